"""The `claude` command as a model: the real program against a server of ours, and programs that stand in."""

import json
import os
import pathlib
import shutil
from typing import Any

import pytest
import trio

from rnixfs import limits
from rnixfs.children import Children
from rnixfs.drivers.claude import ClaudeCli
from rnixfs.errors import Code, SyscallError
from rnixfs.llm import Delta, Message, ModelRequest, Role
from rnixfs.model import ModelError
from tests.models.messages_stub import INPUT, MODEL, begun, message, prompt_of, says, streams
from tests.models.programs import (
    CLAUDE_HELP,
    KEY,
    claude,
    entry,
    environment,
    everybody_with,
    real_claude,
    stand_in,
    standing_in,
)
from tests.models.servers import hang, head, serving

OK = """echo '{"type":"result","is_error":false,"result":"ok"}'"""


def lines(*objects: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in objects)


START = {
    "type": "stream_event",
    "event": {"type": "message_start", "message": {"id": "m", "model": MODEL, "usage": {"input_tokens": 50}}},
}
PIECE = {
    "type": "stream_event",
    "event": {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "12345678"}},
}


def count(folder: pathlib.Path, names: str) -> int:
    return len(list(folder.glob(names)))


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    """An empty home, so that no login and no settings of the user are read."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


# --- the real program ---


async def test_an_answer(home: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The real program sends our prompt, no tools and no file, and its result becomes an answer.

    A file that the prompt mentions with `@`, and a command after a `/`, stay the words they are.
    """
    secret = tmp_path / "secret.txt"
    secret.write_text("MARK-OF-A-FILE")
    intent = f"/help me with @{secret}"
    async with serving(says("héllo from afar")) as server:
        model = claude(server.url, home, effort="low")
        assert model.unavailable() == ""
        answer = await model.complete(ModelRequest(intent=intent, system_prompt="Be Brief 17."))
        await model.aclose()
    (seen,) = server.requests
    assert (answer.content, answer.stop_reason, answer.estimated) == ("héllo from afar", "end", False)
    assert (answer.input_tokens, answer.output_tokens, answer.tokens_used) == (INPUT, 7, INPUT + 7)
    assert answer.cached_tokens == 3
    assert answer.cost_usd > 0
    assert answer.model == MODEL
    assert answer.context_window >= 200_000
    assert seen.headers["x-api-key"] == KEY
    assert seen.json["tools"] == []
    assert seen.json["output_config"] == {"effort": "low"}
    assert "Be Brief 17." in str(seen.json["system"])
    assert intent in prompt_of(seen)
    assert b"MARK-OF-A-FILE" not in seen.content


async def test_an_answer_as_it_comes(home: pathlib.Path) -> None:
    """Thoughts and text are handed out in pieces, in their order, and add up to the answer.

    The answer has all blocks of text, where the program's own result has the last one alone.
    """
    blocks = (("thinking", "well, well"), ("text", "one two "), ("text", "three"))
    pieces: list[Delta] = []
    async with serving(streams(message(*blocks))) as server:
        model = claude(server.url, home)
        answer = await model.complete(ModelRequest(intent="hi", effort="high"), pieces.append)
        await model.aclose()
    assert pieces == [
        Delta("reasoning", "well, "),
        Delta("reasoning", "well"),
        Delta("text", "one "),
        Delta("text", "two "),
        Delta("text", "three"),
    ]
    assert (answer.content, answer.reasoning) == ("one two three", "well, well")
    assert server.requests[0].json["output_config"] == {"effort": "high"}


async def test_a_stored_login(home: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Without a key the program works in its other mode, where it still reads no file of the user.

    A token in the environment stands for the login here.
    """
    secret = tmp_path / "secret.txt"
    secret.write_text("MARK-OF-A-FILE")
    (home / ".claude").mkdir()
    (home / ".claude/CLAUDE.md").write_text("MARK-OF-MEMORY")
    async with serving(says("ok")) as server:
        user = environment(home, server.url, "") | {"ANTHROPIC_AUTH_TOKEN": KEY}
        model = ClaudeCli(entry(command=real_claude()), Children(), user)
        answer = await model.complete(ModelRequest(intent=f"read @{secret}", system_prompt="S"))
        assert model.details()["mode"] == "login"
        await model.aclose()
    sent = b"".join(seen.content for seen in server.requests)
    assert answer.content == "ok"
    assert f"read @{secret}".encode() in sent
    assert b"MARK-OF" not in sent


async def test_a_long_system_prompt_and_conversation(home: pathlib.Path) -> None:
    """What is too long for an argument goes through a file and the pipe, complete."""
    system = "S" * limits.ARGUMENT_MAX + "end-of-system"
    messages = [Message(role=Role.USER, content="x" * 300_000 + "end-of-message")]
    async with serving(says("ok")) as server:
        model = claude(server.url, home)
        await model.complete(ModelRequest(messages=messages, system_prompt=system))
        await model.aclose()
    sent = server.requests[0].content.decode()
    assert system in sent
    assert messages[0].content in sent


async def test_a_key_and_an_address_of_the_entry(home: pathlib.Path) -> None:
    """The entry names the variable of the key, the address and the model; its request may name another."""
    async with serving(says("ok")) as server:
        user = environment(home, "http://127.0.0.1:9", "another-key") | {"WORK_KEY": KEY}
        own = entry(
            command=real_claude(), base_url=server.url, api_key_env="WORK_KEY", default_model="claude-mine-1"
        )
        model = ClaudeCli(own, Children(), user)
        await model.complete(ModelRequest(intent="hi"))
        await model.complete(ModelRequest(intent="hi", model="claude-other-2", max_tokens=55))
        await model.aclose()
    first, second = server.requests
    assert first.headers["x-api-key"] == KEY
    assert (first.json["model"], second.json["model"]) == ("claude-mine-1", "claude-other-2")
    assert second.json["max_tokens"] == 55


async def test_nobody_is_logged_in(home: pathlib.Path) -> None:
    """Without key and login the provider is not available, and a call says what to do."""
    async with serving(says("never")) as server:
        model = claude(server.url, home, key="")
        assert "nobody is logged in" in model.unavailable()
        with pytest.raises(ModelError) as caught:
            await model.complete(ModelRequest(intent="hi"))
        await model.aclose()
    assert (caught.value.code, caught.value.transient) == (Code.PERMISSION, False)
    assert "/login" in caught.value.reason
    assert server.requests == []


async def test_checking_spends_nothing(home: pathlib.Path) -> None:
    """A check asks the program for its options and its login, and sends no request."""
    async with serving(says("never")) as server:
        model = claude(server.url, home)
        assert await model.check() == []
        await model.aclose()
        # A file that looks like a login is enough to be tried, but not for the program.
        (home / ".claude").mkdir(exist_ok=True)
        (home / ".claude/.credentials.json").write_text("{}")
        other = claude(server.url, home, key="")
        assert other.unavailable() == ""
        with pytest.raises(SyscallError) as caught:
            await other.check()
        await other.aclose()
    assert caught.value.code == Code.PERMISSION
    assert "nobody is logged in" in caught.value.reason
    assert server.requests == []


async def test_cancelling_in_the_middle_of_an_answer(home: pathlib.Path) -> None:
    """When nobody wants the answer the program is gone at once, its whole group and its connection."""
    some = trio.Event()
    started = head(200, {"content-type": "text/event-stream"}) + begun(("text", "a piece of the answer"))
    async with serving(says("never")) as server:
        server.handler = hang(server, started)
        model = claude(server.url, home)

        async def call() -> None:
            await model.complete(ModelRequest(intent="hi"), lambda piece: some.set())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await some.wait()
            assert everybody_with(f"HOME={home}") != []
            nursery.cancel_scope.cancel()
        assert everybody_with(f"HOME={home}") == []
        await server.hung_up.wait()
        await model.aclose()


async def test_cancelling_a_program_that_does_not_want_to_end(tmp_path: pathlib.Path) -> None:
    """A program that takes no notice is killed soon, with all that it started."""
    assert limits.COMMAND_GRACE_SECONDS < 0.1
    mark, said = f"HOME={tmp_path}", lines(START, PIECE).decode()
    path = stand_in(tmp_path, f"trap '' TERM; sleep 600 & echo '{said}'; sleep 600; sleep 600")
    user = {"PATH": os.defpath, "HOME": str(tmp_path), "ANTHROPIC_API_KEY": KEY}
    model, some = standing_in(path, user), trio.Event()

    async def call() -> None:
        await model.complete(ModelRequest(intent="hi"), lambda piece: some.set())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        with trio.fail_after(45):
            await some.wait()
        assert everybody_with(mark) != []
        nursery.cancel_scope.cancel()
    assert everybody_with(mark) == []
    await model.aclose()


# --- programs that stand in ---


async def failure(model: ClaudeCli, request: ModelRequest | None = None) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await model.complete(request or ModelRequest(intent="hi"))
    await model.aclose()
    return caught.value


def exists(path: str) -> bool:
    return pathlib.Path(path).exists()


async def test_the_program_stands_in_an_empty_folder(tmp_path: pathlib.Path) -> None:
    """It finds no project files, gets the prompt by its pipe, and nothing it leaves stays."""
    script = f"""
    {{ pwd; ls -A; echo "$TMPDIR"; cat; }} > {tmp_path}/seen
    touch "$TMPDIR/left"
    {OK}
    """
    model = standing_in(stand_in(tmp_path, script))
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
    model = standing_in(stand_in(tmp_path, f"pwd > {tmp_path}/seen; {OK}"))
    await model.complete(ModelRequest(intent="one"))
    shutil.rmtree(pathlib.Path((tmp_path / "seen").read_text().strip()).parent)
    assert (await model.complete(ModelRequest(intent="two"))).content == "ok"
    await model.aclose()


async def test_a_missing_program(tmp_path: pathlib.Path) -> None:
    """A program that is not installed makes the provider unavailable, and a call says so."""
    model = standing_in("claude-of-nobody")
    assert "is not installed" in model.unavailable()
    error = await failure(model)
    assert (error.code, error.transient) == (Code.NOT_FOUND, False)
    assert "is not installed" in error.reason


async def test_no_program_at_all(tmp_path: pathlib.Path) -> None:
    """A file that the host cannot start is told by its path."""
    path = tmp_path / "claude"
    path.write_bytes(b"\x7fELF is not enough")
    path.chmod(0o755)
    error = await failure(standing_in(str(path)))
    assert error.code == Code.INVALID
    assert error.reason.startswith(f"claude: cannot run '{path}'")


async def test_a_named_key_that_is_missing(tmp_path: pathlib.Path) -> None:
    """A key variable of the provider's entry that is not set is told by its name; no other key is used."""
    command = stand_in(tmp_path, "exit 0")
    model = standing_in(command, {"ANTHROPIC_API_KEY": "k"}, api_key_env="WORK_KEY")
    assert "WORK_KEY is not set" in model.unavailable()
    error = await failure(model)
    assert (error.code, error.transient) == (Code.PERMISSION, False)
    assert "WORK_KEY is not set" in error.reason


def test_description_shows_no_secret(tmp_path: pathlib.Path) -> None:
    """The description names the program and runs nothing."""
    path = tmp_path / "claude"
    path.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    path.chmod(0o755)
    model = standing_in(str(path), effort="low", default_model="sonnet")
    assert model.unavailable() == ""
    assert model.details() == {
        "driver": "claude-cli",
        "command": str(path),
        "default_model": "sonnet",
        "effort": "low",
        "timeout_ms": 60_000,
        "ignored": ["temperature"],
        "mode": "key",
    }
    assert not (tmp_path / "ran").exists()


# --- its options ---


def without(*options: str) -> str:
    """The help of an older program."""
    lines = CLAUDE_HELP.splitlines(keepends=True)
    return "".join(line for line in lines if not any(option in line for option in options))


def arguments(tmp_path: pathlib.Path) -> list[str]:
    """What the last run of `RECORDS` was given."""
    return (tmp_path / "argv").read_text().splitlines()


def records(tmp_path: pathlib.Path) -> str:
    return f'for word; do echo "$word"; done > {tmp_path}/argv; {OK}'


@pytest.mark.parametrize(
    ("option", "given", "instead"),
    [
        ("--effort", "--effort=low", "--verbose"),
        ("--include-partial-messages", "--include-partial-messages", "--verbose"),
        ("--no-session-persistence", "--no-session-persistence", "--verbose"),
        ("--bare", "--bare", "--setting-sources="),
    ],
)
async def test_an_older_program_is_not_given_what_it_does_not_know(
    tmp_path: pathlib.Path, option: str, given: str, instead: str
) -> None:
    """It works without the option, as long as its tools stay off; a current one is given it."""
    old = standing_in(stand_in(tmp_path, records(tmp_path), "old", without(option)), effort="low")
    await old.complete(ModelRequest(intent="hi"))
    assert given not in arguments(tmp_path)
    assert instead in arguments(tmp_path)
    assert ("effort" in str(old.details()["ignored"])) == (option == "--effort")
    new = standing_in(stand_in(tmp_path, records(tmp_path), "new"), effort="low")
    await new.complete(ModelRequest(intent="hi"))
    assert given in arguments(tmp_path)
    await old.aclose()
    await new.aclose()


@pytest.mark.parametrize("options", [("--tools",), ("--strict-mcp-config",), ("--bare", "--setting-sources")])
async def test_a_program_that_would_keep_its_tools_is_not_run(
    tmp_path: pathlib.Path, options: tuple[str, ...]
) -> None:
    """Where tools, servers or settings cannot be kept off the provider is not available, and says why."""
    model = standing_in(stand_in(tmp_path, f"touch {tmp_path}/ran; {OK}", tells=without(*options)))
    error = await failure(model)
    assert (error.code, error.transient) == (Code.SERVICE_UNAVAILABLE, False)
    assert f"has no option {options[-1]}" in error.reason
    assert f"has no option {options[-1]}" in model.unavailable()
    with pytest.raises(SyscallError, match=r"has no option"):
        await model.check()
    assert not (tmp_path / "ran").exists()
    await model.aclose()


async def test_options_are_asked_for_once_for_each_program(tmp_path: pathlib.Path) -> None:
    """Calls at once wait for one answer, later ones know it, and another file is asked again."""
    asked = f"touch {tmp_path}/asked-$$"
    path = stand_in(tmp_path, OK, asked=asked)
    model = standing_in(path)
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(model.complete, ModelRequest(intent="hi"))
    await model.complete(ModelRequest(intent="hi"))
    assert count(tmp_path, "asked-*") == 1
    os.utime(path, ns=(1, 1))
    await model.complete(ModelRequest(intent="hi"))
    assert count(tmp_path, "asked-*") == 2
    await model.aclose()


@pytest.mark.parametrize(
    "help_does", ["exit 1", "exit 0", "echo '  --half of its options'; exit 2", "exec yes"]
)
async def test_a_program_that_does_not_tell_its_options(tmp_path: pathlib.Path, help_does: str) -> None:
    """It is given all of them, and would itself refuse those that it does not have."""
    path = tmp_path / "claude"
    path.write_text(f'#!/bin/sh\nif [ "$1" = --help ]; then {help_does}; fi\n{records(tmp_path)}\n')
    path.chmod(0o755)
    model = standing_in(str(path), effort="low")
    assert (await model.complete(ModelRequest(intent="hi"))).content == "ok"
    assert {"--bare", "--tools", "--effort=low"} <= set(arguments(tmp_path))
    await model.aclose()


async def test_a_program_of_npm_whose_install_script_did_not_run(tmp_path: pathlib.Path) -> None:
    """The package for the platform holds the program, and the file in its place is a placeholder."""
    modules = tmp_path / "lib/node_modules"
    placeholder = modules / "@anthropic-ai/claude-code/bin/claude.exe"
    placeholder.parent.mkdir(parents=True)
    placeholder.write_text("#!/bin/sh\necho 'run the install script' >&2; exit 1\n")
    placeholder.chmod(0o755)
    machine = {"x86_64": "x64", "aarch64": "arm64"}[os.uname().machine]
    package = modules / f"@anthropic-ai/claude-code-linux-{machine}"
    package.mkdir()
    real = stand_in(package, OK)
    found = tmp_path / "bin/claude"
    found.parent.mkdir()
    found.symlink_to(placeholder)
    model = standing_in("", {"PATH": str(found.parent), "ANTHROPIC_API_KEY": KEY})
    assert model.details()["command"] == real
    assert (await model.complete(ModelRequest(intent="hi"))).content == "ok"
    await model.aclose()


async def test_a_program_beside_its_interpreter(tmp_path: pathlib.Path) -> None:
    """What no shell has put into PATH, the program finds in the folder where it lies itself."""
    folder = tmp_path / ".nvm/versions/node/v20.1.0/bin"
    folder.mkdir(parents=True)
    (folder / "claude").write_text("#!/usr/bin/env node-of-nobody\n")
    (folder / "node-of-nobody").write_text(f"#!/bin/sh\n{OK}\n")
    for path in folder.iterdir():
        path.chmod(0o755)
    user = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "ANTHROPIC_API_KEY": KEY}
    model = standing_in("", user)
    assert (await model.complete(ModelRequest(intent="hi"))).content == "ok"
    await model.aclose()


# --- a runner of ours, for what depends on time ---


class Scripted:
    """A runner whose programs say what they are told to say, and end as they are told to end."""

    def __init__(self, *chunks: bytes, timed_out: bool = False) -> None:
        self.chunks = chunks
        self.timed_out = timed_out
        self.returncode = 0

    async def run(self, argv: Any, *, stdout: Any, **_: Any) -> "Scripted":
        await trio.lowlevel.checkpoint()
        if argv[-1] == "--help":
            stdout(CLAUDE_HELP.encode())
            return Scripted()
        for chunk in self.chunks:
            stdout(chunk)
        return self


async def test_tokens_of_a_call_whose_time_is_up(tmp_path: pathlib.Path) -> None:
    """What an answer has cost until then is counted."""
    command = stand_in(tmp_path, "")
    user = {"ANTHROPIC_API_KEY": KEY}
    model = ClaudeCli(entry(command=command), Scripted(lines(START, PIECE), timed_out=True), user)
    error = await failure(model)
    assert error.code == Code.TIMEOUT
    assert (error.usage.input_tokens, error.usage.output_tokens) == (50, 2)
    assert error.as_dict()["tokens_used"] == 52


async def test_tokens_of_an_answer_that_is_too_long(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was said before the limit is counted."""
    monkeypatch.setattr(limits, "MODEL_REPLY_MAX", 1000)
    runner = Scripted(lines(START, PIECE), b"x" * 1001)
    error = await failure(
        ClaudeCli(entry(command=stand_in(tmp_path, "")), runner, {"ANTHROPIC_API_KEY": KEY})
    )
    assert (error.code, error.usage.tokens) == (Code.TOO_LARGE, 52)


async def test_a_last_line_without_its_end(tmp_path: pathlib.Path) -> None:
    """A result counts, though the program ended before it ended the line."""
    runner = Scripted(lines({"type": "result", "result": "there"}).strip())
    model = ClaudeCli(entry(command=stand_in(tmp_path, "")), runner, {"ANTHROPIC_API_KEY": KEY})
    assert (await model.complete(ModelRequest(intent="hi"))).content == "there"
    await model.aclose()


async def test_a_program_that_does_not_end_after_its_result(tmp_path: pathlib.Path) -> None:
    """An answer that has come is not lost to the time limit."""
    said = lines({"type": "result", "result": "there"})
    runner = Scripted(said, timed_out=True)
    model = ClaudeCli(entry(command=stand_in(tmp_path, "")), runner, {"ANTHROPIC_API_KEY": KEY})
    assert (await model.complete(ModelRequest(intent="hi"))).content == "there"
    await model.aclose()
