"""What a device's answer has to look like to count as its failure."""

import pytest

from rnixfs.action import BadAction, parse_reply
from rnixfs.errors import Code, SyscallError
from rnixfs.programs.tools import raise_failure


@pytest.mark.parametrize(
    "answer",
    [
        b'{"error":"text"}',
        b'{"error":{"code":"TIMEOUT"}}',
        b'{"error":{"code":"TIMEOUT","message":"so"}}',
        b'{"error":{"code":"NOTHING","message":"so","syscall":"Read","device":"/dev/x"}}',
        b'{"error":' + b"[" * 50_000,
        b'{"error":',
    ],
)
def test_what_only_looks_like_a_failure_is_a_result(answer: bytes) -> None:
    """A tool may answer with anything; only the form that devices give to failures is one."""
    raise_failure(answer, 1)


def test_an_action_that_no_event_holds_is_none() -> None:
    """The model is told so, in place of a process that stops because its log cannot be written."""
    nested = '{"a":' * 150 + "1" + "}" * 150
    action = parse_reply('{"action": "tool_call", "tool": "t", "data": ' + nested + "}")
    assert isinstance(action, BadAction)
    assert "levels" in action.reason


def test_a_failure_is_raised() -> None:
    """With its code, its words and where it was."""
    with pytest.raises(SyscallError) as caught:
        raise_failure(b'{"error":{"code":"TIMEOUT","message":"so","syscall":"Read","device":"/dev/x"}}', 7)
    assert (caught.value.code, caught.value.reason, caught.value.pid) == (Code.TIMEOUT, "so", 7)
