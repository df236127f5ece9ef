"""Cursor's command as a model, played by a program of ours in the form that is known of it."""

import json
import os
import pathlib
import stat
import sys
from typing import Any, NamedTuple

import pytest
import trio

from rnixfs import limits
from rnixfs.children import Children
from rnixfs.drivers.cursor import CursorCli
from rnixfs.errors import ERRNO, Code, SyscallError
from rnixfs.llm import Delta, Message, ModelAnswer, ModelRequest, Role, ToolSpec, Usage
from rnixfs.model import ModelError
from rnixfs.presets import CURSOR_CLI
from rnixfs.providers import ProviderConfig
from rnixfs.wire.cursor import CursorReply
from rnixfs.wire.failure import WireError
from tests.models.programs import everybody_with
from tests.models.servers import SECONDS

KEY = "key_very_secret_0123456789"
DOUBLE = pathlib.Path(__file__).with_name("cursor_double.py")


class Row(NamedTuple):
    """A failure of the program, and what is told of it.

    Args:
        word: what it does, see the double.
        code: what the error means.
        text: a part of the reason.
        transient: whether another attempt may succeed.
        status: the HTTP status that the words stand for.
    """

    word: str
    code: Code
    text: str
    transient: bool = False
    status: int = 0


FAULTS = [
    Row("LIMIT", Code.BUDGET_EXCEEDED, "exited with 1 without a result: Error: You've hit your usage limit"),
    Row("BUSY", Code.SERVICE_UNAVAILABLE, "resource_exhausted", True, 429),
    Row("AWAY", Code.SERVICE_UNAVAILABLE, "ECONNREFUSED", True),
    Row("SLOW", Code.TIMEOUT, "deadline_exceeded", True),
    Row("MODEL", Code.NOT_FOUND, "Cannot use this model"),
    Row("BROKEN", Code.DRIVER, "internal error", True),
    Row("ODD", Code.DRIVER, "something else"),
    Row("LEAK", Code.DRIVER, "odd key ***"),
    Row("CUT", Code.SERVICE_UNAVAILABLE, "socket hang up", True),
    Row("KILLED", Code.DRIVER, "was ended by signal 9"),
    Row("NOTHING", Code.DRIVER, "exited with 0 without a result: it printed nothing"),
    Row("GARBAGE", Code.DRIVER, "without a result"),
    Row("ENDLESS", Code.TOO_LARGE, "printed more than"),
    Row("HANG", Code.TIMEOUT, "no answer within 1.5 s"),
]


@pytest.fixture
def program(tmp_path: pathlib.Path) -> str:
    """The double under its name, run by the Python that runs the tests."""
    folder = tmp_path / "bin"
    folder.mkdir()
    path = folder / "agent"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -I {DOUBLE} "$@"\n')
    path.chmod(0o755)
    return str(path)


def cursor(program: str, home: str = "/nonexistent", key: str = KEY, **fields: Any) -> CursorCli:
    millis = round(SECONDS * 1000)
    usual: dict[str, Any] = {"name": "cursor", "driver": CURSOR_CLI, "timeout_ms": millis, "command": program}
    env = {"HOME": home, "PATH": os.defpath} | ({"CURSOR_API_KEY": key} if key else {})
    return CursorCli(ProviderConfig(**usual | fields), Children(), env)


async def ask(program: str, intent: str, pieces: list[Delta] | None = None, **fields: Any) -> ModelAnswer:
    model = cursor(program)
    emit = None if pieces is None else pieces.append
    try:
        return await model.complete(ModelRequest(intent=intent, **fields), emit)
    finally:
        await model.aclose()


async def failure(model: CursorCli, request: ModelRequest, pieces: list[Delta] | None = None) -> ModelError:
    with trio.fail_after(45), pytest.raises(ModelError) as caught:
        await model.complete(request, None if pieces is None else pieces.append)
    await model.aclose()
    return caught.value


# --- answers ---


async def test_an_answer(program: str) -> None:
    """The result line is the answer; tokens of the cache are a part of the prompt."""
    answer = await ask(program, "hi", model="gpt-9")
    assert answer == ModelAnswer(
        content="Hello from cursor",
        tokens_used=38,
        input_tokens=35,
        output_tokens=3,
        cached_tokens=20,
        model="gpt-9",
    )


async def test_an_answer_as_it_comes(program: str) -> None:
    """Pieces are handed out once, though the program repeats the message that they make."""
    pieces: list[Delta] = []
    answer = await ask(program, "THINK", pieces, model="gpt-9")
    assert pieces == [
        Delta("reasoning", "let me"),
        Delta("reasoning", " see"),
        Delta("text", "Hello"),
        Delta("text", " from"),
        Delta("text", " cursor"),
    ]
    assert (answer.content, answer.reasoning, answer.model) == ("Hello from cursor", "let me see", "gpt-9")


async def test_a_message_before_a_tool(program: str) -> None:
    """What the model says before a tool is denied belongs to the answer, once."""
    pieces: list[Delta] = []
    answer = await ask(program, "TOOL", pieces)
    assert "".join(piece.text for piece in pieces) == answer.content == "I look. Hello from cursor"
    assert {piece.type for piece in pieces} == {"text"}


async def test_no_usage_is_estimated(program: str) -> None:
    """Older versions count nothing; then tokens are estimated and marked."""
    answer = await ask(program, "NOUSAGE")
    assert answer.estimated
    assert answer.tokens_used > answer.output_tokens > 0


async def test_what_the_program_is_given(program: str) -> None:
    """Instructions and tools stand in the prompt, which comes by the pipe; no tool is let through.

    The folder is empty but for the file that denies all tools, and no foreign variable is handed on.
    """
    request = ModelRequest(
        messages=[Message(role=Role.USER, content="ECHO " + "x" * limits.ARGUMENT_MAX)],
        system_prompt="Be Brief 17.",
        tools=[ToolSpec("look", "Looks.", {})],
        model="sonnet",
    )
    model = cursor(program, args=["--force"])
    told = json.loads((await model.complete(request)).content)
    await model.aclose()
    assert told["argv"] == [
        "--print", "--mode", "ask", "--trust", "--output-format", "json", "--model", "sonnet", "--force",
    ]  # fmt: skip
    assert told["prompt"].startswith("[System Instructions]\nBe Brief 17.\n\n")
    assert "- look: Looks." in told["prompt"]
    assert told["prompt"].endswith(f"\n=== user ===\n{request.messages[0].content}\n")
    (file,) = told["files"]
    assert file == ".cursor/cli.json"
    permissions = json.loads(told["files"][file])["permissions"]
    assert permissions["allow"] == []
    assert {"Shell(*)", "Read(**)", "Write(**)"} <= set(permissions["deny"])
    assert {"CURSOR_API_KEY", "TMPDIR", "HOME"} <= set(told["env"])


async def test_cancelling_in_the_middle_of_an_answer(program: str, tmp_path: pathlib.Path) -> None:
    """When nobody wants the answer the program is gone, its whole group."""
    some = trio.Event()
    model = cursor(program, home=str(tmp_path))

    async def call() -> None:
        await model.complete(ModelRequest(intent="HANG"), lambda piece: some.set())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        with trio.fail_after(45):
            await some.wait()
        assert everybody_with(f"HOME={tmp_path}") != []
        nursery.cancel_scope.cancel()
    assert everybody_with(f"HOME={tmp_path}") == []
    await model.aclose()


# --- failures ---


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("row", FAULTS, ids=lambda row: row.word)
async def test_failures(program: str, monkeypatch: pytest.MonkeyPatch, row: Row, streams: bool) -> None:
    """The program fails with an exit code and words, and these are all that there is to go by."""
    monkeypatch.setattr(limits, "COMMAND_OUTPUT_MAX", 1_000_000)
    pieces: list[Delta] | None = [] if streams else None
    timeout_ms = 1500 if row.word == "HANG" else 0
    error = await failure(cursor(program), ModelRequest(intent=row.word, timeout_ms=timeout_ms), pieces)
    assert (error.code, error.errno) == (row.code, ERRNO[row.code])
    assert row.text in error.reason
    assert error.reason.startswith("cursor: ")
    assert KEY not in str(error.as_dict())
    assert (error.transient, error.as_dict()["retryable"]) == (row.transient, row.transient)
    assert (error.status, error.retry_after) == (row.status, None)
    # What had come of an answer is counted.
    said = len("".join(piece.text for piece in pieces or []))
    assert error.usage == Usage(output_tokens=-(-said // 4))
    assert (error.usage.tokens > 0) == bool(row.word == "CUT" and streams) or row.word == "HANG"


async def test_nobody_is_logged_in(program: str, tmp_path: pathlib.Path) -> None:
    """Without key and login the provider is not available, and a call says what to do."""
    model = cursor(program, home=str(tmp_path), key="")
    assert "set CURSOR_API_KEY" in model.unavailable()
    error = await failure(model, ModelRequest(intent="hi"))
    assert (error.code, error.transient) == (Code.PERMISSION, False)
    assert "CURSOR_API_KEY" in error.reason


@pytest.mark.parametrize(
    ("file", "text"),
    [(".config/cursor/auth.json", '{"accessToken": "t"}'), (".cursor/cli-config.json", '{"authInfo": {}}')],
)
async def test_a_stored_login(program: str, tmp_path: pathlib.Path, file: str, text: str) -> None:
    """A login that the program has stored lets it in, wherever that version keeps it."""
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    model = cursor(program, home=str(tmp_path), key="")
    assert "nobody is logged in" in model.unavailable()
    path.write_text(text)
    assert model.unavailable() == ""
    assert await model.check() == []
    await model.aclose()


async def test_a_check_finds_a_login_that_is_over(program: str, tmp_path: pathlib.Path) -> None:
    """The program itself is asked whether its login still holds."""
    home = tmp_path / "logged-out"
    (home / ".config/cursor").mkdir(parents=True)
    (home / ".config/cursor/auth.json").write_text('{"accessToken": "t"}')
    model = cursor(program, home=str(home), key="")
    with pytest.raises(SyscallError) as caught:
        await model.check()
    await model.aclose()
    assert caught.value.code == Code.PERMISSION


def test_the_older_name_wins(tmp_path: pathlib.Path) -> None:
    """Something else may be called `agent`; `cursor-agent` is nothing else."""
    for name in ("a/agent", "b/cursor-agent"):
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text("#!/bin/sh\n")
        path.chmod(stat.S_IRWXU)
    model = CursorCli(
        ProviderConfig("cursor", CURSOR_CLI), Children(), {"PATH": f"{tmp_path}/a:{tmp_path}/b"}
    )
    assert model.details()["command"] == f"{tmp_path}/b/cursor-agent"


async def test_another_program_called_agent(tmp_path: pathlib.Path) -> None:
    """A program that does not know the mode for questions is never asked one."""
    path = tmp_path / "agent"
    path.write_text(f'#!/bin/sh\nif [ "$1" = --help ]; then echo "  --all"; exit; fi\ntouch {tmp_path}/ran\n')
    path.chmod(0o755)
    model = cursor(str(path))
    error = await failure(model, ModelRequest(intent="hi"))
    assert error.code == Code.SERVICE_UNAVAILABLE
    assert "has no option --mode" in error.reason
    assert not (tmp_path / "ran").exists()


def test_description(program: str) -> None:
    """It names what the program cannot be told, and shows no key."""
    details = cursor(program, default_model="auto").details()
    assert details["ignored"] == ["temperature", "max_tokens", "max_turns", "effort"]
    assert (details["driver"], details["command"]) == ("cursor-cli", program)
    assert KEY not in str(details)


# --- lines ---


def read(*lines: dict[str, Any] | str, returncode: int = 0, stderr: bytes = b"") -> ModelAnswer:
    reply = CursorReply(ModelRequest(intent="hi"), None)
    for line in lines:
        reply.feed((line if isinstance(line, str) else json.dumps(line)).encode() + b"\n")
    reply.close()
    return reply.answer(stderr, returncode, 0.0)


RESULT = {"type": "result", "subtype": "success", "is_error": False, "result": "text"}


@pytest.mark.parametrize(
    "odd",
    [
        "Update available", "", "[]", "[1]", "null", "{}", '{"type": 5}', '{"type": "new"}', '{"type"',
        '{"type": "assistant"}', '{"type": "assistant", "message": {"content": [5, {"type": "text"}]}}',
        '{"type": "thinking", "text": null}', '{"type": "tool_call"}', '{"type": "user", "message": 3}',
    ],
)  # fmt: skip
def test_lines_that_mean_nothing(odd: str) -> None:
    """Whatever else stands in the output, the result counts."""
    assert read(odd, RESULT, odd).content == "text"


def test_a_result_that_is_an_error() -> None:
    """A result that says that it is an error is one, and so is one of a program that failed after it."""
    with pytest.raises(WireError) as caught:
        read(RESULT | {"is_error": True, "result": "Authentication required"})
    assert (caught.value.code, caught.value.text) == (Code.PERMISSION, "Authentication required")
    with pytest.raises(WireError) as caught:
        read(RESULT, returncode=1, stderr=b"Error: [unavailable]")
    assert (caught.value.code, caught.value.transient) == (Code.SERVICE_UNAVAILABLE, True)
