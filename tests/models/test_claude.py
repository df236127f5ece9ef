"""The `claude` command as a model: the real program against a server of ours, and stand-ins that fail."""

import importlib.util
import os
import pathlib
import shutil
import sys
from typing import Any

import pytest
import trio

from rnixfs import limits
from rnixfs.children import Children
from rnixfs.drivers.claude import ClaudeCli
from rnixfs.errors import Code, SyscallError
from rnixfs.llm import Message, ModelRequest, Role
from tests.models import anthropic
from tests.models.servers import SECONDS, Server, hang, serving

KEY = "sk-ant-very-secret-0123456789"


def real_claude() -> str:
    """The program that the package claude-agent-sdk bundles; its absence is a failure, here and in CI."""
    spec = importlib.util.find_spec("claude_agent_sdk")
    places = list(spec.submodule_search_locations or []) if spec else []
    for place in places:
        path = pathlib.Path(place, "_bundled", "claude")
        if path.is_file():
            return str(path)
    pytest.fail(
        f"the claude command is not installed beside {sys.executable}: run `make dev`, which installs the "
        "package claude-agent-sdk that bundles it"
    )


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    """An empty home, so that no login and no settings of the user are read."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def environment(home: pathlib.Path, url: str, key: str = KEY) -> dict[str, str]:
    env = {"HOME": str(home), "PATH": os.defpath, "LANG": "C.UTF-8", "ANTHROPIC_BASE_URL": url}
    return env | ({"ANTHROPIC_API_KEY": key} if key else {})


def claude(server: Server, home: pathlib.Path, **options: Any) -> ClaudeCli:
    env = environment(home, server.url, options.pop("key", KEY))
    return ClaudeCli("claude", Children(), real_claude(), "sonnet", SECONDS, env=env, **options)


# --- the real program ---


async def test_an_answer(home: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The real program sends our prompt, no tools and no file, and its result becomes an answer.

    A file that the prompt mentions with `@`, and a command after a `/`, stay the words they are.
    """
    secret = tmp_path / "secret.txt"
    secret.write_text("MARK-OF-A-FILE")
    intent = f"/help me with @{secret}"
    async with serving(anthropic.says("héllo from afar")) as server:
        model = claude(server, home)
        assert model.unavailable() == ""
        answer = await model.complete(ModelRequest(intent=intent, system_prompt="Be Brief 17."))
        await model.aclose()
    (seen,) = server.requests
    assert (answer.content, answer.stop_reason, answer.estimated) == ("héllo from afar", "end", False)
    assert (answer.input_tokens, answer.output_tokens, answer.tokens_used) == (123, 7, 130)
    assert answer.cost_usd > 0
    assert answer.model.startswith("claude-")
    assert seen.headers["x-api-key"] == KEY
    assert seen.json["tools"] == []
    assert "Be Brief 17." in str(seen.json["system"])
    assert intent in anthropic.prompt_of(seen)
    assert b"MARK-OF-A-FILE" not in seen.content


async def test_a_stored_login(home: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Without a key the program works in its other mode, where it still reads no file of the user.

    A token in the environment stands for the login here.
    """
    secret = tmp_path / "secret.txt"
    secret.write_text("MARK-OF-A-FILE")
    (home / ".claude").mkdir()
    (home / ".claude/CLAUDE.md").write_text("MARK-OF-MEMORY")
    async with serving(anthropic.says("ok")) as server:
        model_env = environment(home, server.url, "") | {"ANTHROPIC_AUTH_TOKEN": KEY}
        model = ClaudeCli("claude", Children(), real_claude(), "sonnet", SECONDS, env=model_env)
        answer = await model.complete(ModelRequest(intent=f"read @{secret}", system_prompt="S"))
        await model.aclose()
    sent = b"".join(seen.content for seen in server.requests)
    assert answer.content == "ok"
    assert f"read @{secret}".encode() in sent
    assert b"MARK-OF" not in sent


async def test_a_long_system_prompt_and_conversation(home: pathlib.Path) -> None:
    """What is too long for an argument goes through a file and the pipe, complete."""
    system = "S" * limits.ARGUMENT_MAX + "end-of-system"
    messages = [Message(role=Role.USER, content="x" * 300_000 + "end-of-message")]
    async with serving(anthropic.says("ok")) as server:
        model = claude(server, home)
        await model.complete(ModelRequest(messages=messages, system_prompt=system))
        await model.aclose()
    sent = server.requests[0].content.decode()
    assert system in sent
    assert messages[0].content in sent


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (401, "authentication_error", Code.PERMISSION),
        (400, "invalid_request_error", Code.INVALID),
    ],
)
async def test_refusals_of_the_server(home: pathlib.Path, status: int, kind: str, code: Code) -> None:
    """The program calls these results a success; they are failures, with the code of their status."""
    async with serving(anthropic.fails(status, kind, f"not today, {KEY}")) as server:
        model = claude(server, home)
        with pytest.raises(SyscallError) as caught:
            await model.complete(ModelRequest(intent="hi"))
        await model.aclose()
    assert caught.value.code == code
    assert "not today" in caught.value.reason
    assert KEY not in caught.value.reason


async def test_nobody_is_logged_in(home: pathlib.Path) -> None:
    """Without key and login the provider is not available, and a call says what to do."""
    async with serving(anthropic.says("never")) as server:
        model = claude(server, home, key="")
        assert "nobody is logged in" in model.unavailable()
        with pytest.raises(SyscallError) as caught:
            await model.complete(ModelRequest(intent="hi"))
        await model.aclose()
    assert caught.value.code == Code.PERMISSION
    assert server.requests == []


async def test_cancelling_ends_the_program(home: pathlib.Path) -> None:
    """When nobody wants the answer the program ends at once, and its connection with it."""
    async with serving(anthropic.says("never")) as server:
        server.handler = hang(server)
        model = claude(server, home)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(model.complete, ModelRequest(intent="hi"))
            await server.asked.wait()
            nursery.cancel_scope.cancel()
        await server.hung_up.wait()
        await model.aclose()


# --- stand-ins ---


def stand_in(folder: pathlib.Path, script: str) -> str:
    path = folder / "claude"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def exists(path: str) -> bool:
    return pathlib.Path(path).exists()


def model_of(command: str, **options: Any) -> ClaudeCli:
    env = {"HOME": "/nonexistent", "PATH": os.defpath, "ANTHROPIC_API_KEY": KEY}
    return ClaudeCli("claude", Children(), command, timeout_s=options.pop("timeout_s", SECONDS), env=env)


async def failure(model: ClaudeCli, request: ModelRequest | None = None) -> SyscallError:
    with pytest.raises(SyscallError) as caught:
        await model.complete(request or ModelRequest(intent="hi"))
    await model.aclose()
    return caught.value


@pytest.mark.parametrize(
    ("script", "code", "text"),
    [
        ("exit 0", Code.DRIVER, "exited with 0 without a result"),
        ("echo 'bad things' >&2; exit 3", Code.DRIVER, "exited with 3 without a result: bad things"),
        ("echo 'no JSON'", Code.DRIVER, "no JSON"),
        ('echo "my key is $ANTHROPIC_API_KEY" >&2; exit 1', Code.DRIVER, "my key is ***"),
        ("kill -KILL $$", Code.DRIVER, "signal 9"),
        ("""echo '{"type":"result","is_error":true,"result":"sad"}'""", Code.DRIVER, "sad"),
    ],
)
async def test_failing_programs(tmp_path: pathlib.Path, script: str, code: Code, text: str) -> None:
    """However the program fails, the error says how, in its own words."""
    error = await failure(model_of(stand_in(tmp_path, script)))
    assert error.code == code
    assert text in error.reason


async def test_the_program_stands_in_an_empty_folder(tmp_path: pathlib.Path) -> None:
    """It finds no project files, gets the prompt by its pipe, and nothing it leaves stays."""
    script = f"""
    {{ pwd; ls -A; echo "$TMPDIR"; cat; }} > {tmp_path}/seen
    touch "$TMPDIR/left"
    echo '{{"type":"result","is_error":false,"result":"ok"}}'
    """
    model = model_of(stand_in(tmp_path, script))
    answer = await model.complete(ModelRequest(intent="what is here?"))
    cwd, temporary, *prompt = (tmp_path / "seen").read_text().splitlines()
    assert answer.content == "ok"
    assert answer.estimated
    assert prompt[-2:] == ["=== user ===", "what is here?"]
    assert (exists(cwd), exists(temporary)) == (True, False)
    await model.aclose()
    assert not exists(cwd)


async def test_the_folder_is_made_again(tmp_path: pathlib.Path) -> None:
    """A sweep of the temporary files between two calls does no harm."""
    script = f"""pwd > {tmp_path}/seen; echo '{{"type":"result","is_error":false,"result":"ok"}}'"""
    model = model_of(stand_in(tmp_path, script))
    await model.complete(ModelRequest(intent="one"))
    shutil.rmtree(pathlib.Path((tmp_path / "seen").read_text().strip()).parent)
    assert (await model.complete(ModelRequest(intent="two"))).content == "ok"
    await model.aclose()


async def test_a_program_that_takes_too_long(tmp_path: pathlib.Path) -> None:
    """The request's time limit ends the program and the child that it started."""
    # The child holds a pipe of ours: its other end is closed when the child is gone.
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    held = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        command = stand_in(tmp_path, f"sleep 600 > {fifo} & wait")
        error = await failure(model_of(command), ModelRequest(intent="hi", timeout_ms=1500))
        assert error.code == Code.TIMEOUT
        assert "1.5 s" in error.reason
        assert os.read(held, 1) == b""
    finally:
        os.close(held)


async def test_a_program_that_does_not_stop_talking(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Output without end is stopped at its limit."""
    monkeypatch.setattr(limits, "MODEL_REPLY_MAX", 100_000)
    error = await failure(model_of(stand_in(tmp_path, "exec yes")))
    assert error.code == Code.TOO_LARGE


async def test_a_missing_program(tmp_path: pathlib.Path) -> None:
    """A program that is not installed makes the provider unavailable, and a call says so."""
    model = model_of("claude-of-nobody")
    assert "is not installed" in model.unavailable()
    error = await failure(model)
    assert error.code == Code.NOT_FOUND
    assert "is not installed" in error.reason


async def test_a_named_key_that_is_missing(tmp_path: pathlib.Path) -> None:
    """A key variable of the provider's entry that is not set is told by its name."""
    command = stand_in(tmp_path, "exit 0")
    model = ClaudeCli("work", Children(), command, env={"ANTHROPIC_API_KEY": "k"}, api_key_env="WORK_KEY")
    assert "WORK_KEY is not set" in model.unavailable()


async def test_description_shows_no_secret(tmp_path: pathlib.Path) -> None:
    """The description names the program and runs nothing."""
    command = stand_in(tmp_path, f"touch {tmp_path}/ran")
    model = model_of(command)
    assert model.unavailable() == ""
    assert model.details()["command"] == command
    assert KEY not in str(model.details())
    assert not (tmp_path / "ran").exists()
