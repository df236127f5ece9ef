"""What people command a process is in the event log, so that a restart could know of it."""

import json

import pytest

from rnixfs.errors import SyscallError
from rnixfs.node import Dir
from rnixfs.types import Caller
from tests.kernel.kernellab import Lab, sleeper

PERSON = Caller(0, 0)


def command(lab: Lab, pid: int, line: str) -> None:
    """Write a line to the process's `ctl`."""
    folder = lab.kernel.root.lookup("proc", PERSON)
    assert isinstance(folder, Dir)
    process = folder.lookup(str(pid), PERSON)
    assert isinstance(process, Dir)
    process.lookup("ctl", PERSON).open(PERSON, 1).write(line.encode() + b"\n", 0)


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ("budget 500", {"event": "budget", "tokens": 500, "by": 0}),
        ("say go on", {"event": "say", "text": "go on", "by": 0}),
        ("block TERM", {"event": "block", "signal": "SIGTERM", "by": 0}),
        ("unblock TERM", {"event": "unblock", "signal": "SIGTERM", "by": 0}),
    ],
)
async def test_a_command_is_an_event(lab: Lab, autojump_clock, line, event):
    """With what was asked and who asked."""
    process = lab.spawn(sleeper)
    events = lab.kernel.events.join()
    command(lab, process.pid, line)
    (shown,) = [json.loads(one) for one in events.read(1 << 16, 0).splitlines()]
    assert event.items() <= shown.items()
    assert shown["pid"] == process.pid


@pytest.mark.parametrize("line", ["budget lots", "say", "block KILL", "block NOPE", "unblock NOPE"])
async def test_a_refused_command_is_none(lab: Lab, autojump_clock, line):
    """What did not happen is not in the log."""
    process = lab.spawn(sleeper)
    events = lab.kernel.events.join()
    with pytest.raises(SyscallError):
        command(lab, process.pid, line)
    assert not events.poll()
