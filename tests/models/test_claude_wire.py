"""What the Claude Code command is given, and how its results are read. No process runs here."""

import json
import pathlib
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rnixfs.drivers.claude import find_command, has_login
from rnixfs.errors import Code
from rnixfs.llm import Message, ModelAnswer, ModelRequest, Role, ToolCall, ToolSpec
from rnixfs.wire import claude as wire
from rnixfs.wire.failure import WireError

REQUEST = ModelRequest(intent="hi", system_prompt="S")
USAGE = {
    "input_tokens": 100,
    "cache_creation_input_tokens": 20,
    "cache_read_input_tokens": 3,
    "output_tokens": 7,
}
RESULT = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "result": "hello",
    "stop_reason": "end_turn",
    "total_cost_usd": 0.0123,
    "usage": USAGE,
    "modelUsage": {"claude-small": {"outputTokens": 1}, "claude-big": {"outputTokens": 7}},
    "num_turns": 1,
}


def line(**changes: Any) -> bytes:
    return json.dumps(RESULT | changes).encode() + b"\n"


def read(stdout: bytes, stderr: bytes = b"", returncode: int = 0) -> ModelAnswer:
    return wire.read_answer(stdout, stderr, returncode, REQUEST)


def error_of(stdout: bytes, stderr: bytes = b"", returncode: int = 0) -> WireError:
    with pytest.raises(WireError) as caught:
        read(stdout, stderr, returncode)
    return caught.value


def test_a_result() -> None:
    """Cached tokens are tokens of the prompt, and the model is the one that wrote most."""
    assert read(line()) == ModelAnswer(
        content="hello",
        tokens_used=130,
        input_tokens=123,
        output_tokens=7,
        cost_usd=0.0123,
        model="claude-big",
        stop_reason="end",
    )


@pytest.mark.parametrize(
    "stdout",
    [
        b"Update available!\n" + line(),
        line(result="earlier") + line(),
        json.dumps([{"type": "system"}, RESULT]).encode(),
        line() + b'{"type":"other"}\nbye\n',
    ],
)
def test_the_last_result_counts(stdout: bytes) -> None:
    """Other lines, several results, and the list that `--verbose` makes are all read."""
    assert read(stdout).content == "hello"


def test_no_usage_is_estimated() -> None:
    """Tokens are never 0: without a count they are estimated and marked."""
    answer = read(line(usage=None))
    assert answer.estimated
    assert answer.tokens_used > answer.output_tokens > 0


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"api_error_status": 401, "result": "Failed to authenticate"}, Code.PERMISSION),
        ({"api_error_status": 429, "result": "rejected"}, Code.SERVICE_UNAVAILABLE),
        ({"api_error_status": 400, "result": "Credit balance is too low"}, Code.INVALID),
        ({"api_error_status": 529, "result": "overloaded"}, Code.SERVICE_UNAVAILABLE),
        ({"api_error_status": 500, "result": "broken"}, Code.DRIVER),
        ({"result": "Not logged in · Please run /login"}, Code.PERMISSION),
        ({"result": "API Error: Connection refused"}, Code.SERVICE_UNAVAILABLE),
        ({"result": "Request timed out"}, Code.TIMEOUT),
        ({"result": "API Error: exceeded the 55 output token maximum."}, Code.RESOURCE_EXHAUSTED),
        ({"subtype": "error_max_turns", "result": None, "errors": ["a", "b"]}, Code.DRIVER),
        ({"subtype": "error_max_budget_usd", "result": None}, Code.BUDGET_EXCEEDED),
    ],
)
def test_error_results(changes: dict[str, Any], code: Code) -> None:
    """`is_error` makes a failure whatever the subtype says; its words are kept."""
    error = error_of(line(is_error=True, **changes), returncode=1)
    assert error.code == code
    assert error.text == (changes["result"] or "; ".join(changes.get("errors", [])) or changes["subtype"])


@pytest.mark.parametrize(
    ("stdout", "stderr", "returncode", "code", "text"),
    [
        (b"", b"", 0, Code.DRIVER, "exited with 0 without a result: it printed nothing"),
        (b"", b"error: unknown option '--x'\n", 1, Code.INVALID, "unknown option"),
        (b"Invalid API key \xc2\xb7 Please run /login", b"", 1, Code.PERMISSION, "Please run /login"),
        (b"", b"", -9, Code.DRIVER, "was ended by signal 9"),
        (line()[:-40], b"", 0, Code.DRIVER, "without a result"),
        (b"\xff\xfe", b"", 0, Code.DRIVER, "without a result"),
    ],
)
def test_no_result(stdout: bytes, stderr: bytes, returncode: int, code: Code, text: str) -> None:
    """A run without a result line failed, whatever its exit code; what it printed is told."""
    error = error_of(stdout, stderr, returncode)
    assert error.code == code
    assert text in error.text


def test_a_result_without_text_is_none() -> None:
    """A result that is neither error nor text is a failure."""
    assert error_of(line(result=None)).code == Code.DRIVER


def test_the_rendered_conversation() -> None:
    """Messages stand under a line with their author, calls as the objects of the text protocol."""
    request = ModelRequest(
        messages=[
            Message(role=Role.USER, content="list"),
            Message(role=Role.ASSISTANT, tool_calls=[ToolCall("c1", "ls", {"path": "."})]),
            Message(role=Role.TOOL, content="a\nb", tool_call_id="c1"),
            Message(role=Role.ASSISTANT, content='{"action": "x"}', tool_calls=[ToolCall("c2", "ls", {})]),
        ]
    )
    _, _, body = wire.prompt(request).partition("\n\n")
    assert body == (
        "=== user ===\nlist\n\n"
        '=== assistant ===\n{"action":"tool_call","tool":"ls","data":{"path":"."}}\n\n'
        '=== tool "c1" ===\na\nb\n\n'
        '=== assistant ===\n{"action": "x"}\n'
    )


PIECES = ["=== user ===", '=== tool "c1" ===', "===", "\\", "\n", "/help", "@/etc/passwd", "é", " ", '"']
TEXTS = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
MESSAGES = st.lists(
    st.builds(Message, role=st.sampled_from(Role), content=TEXTS, tool_call_id=TEXTS), min_size=1, max_size=5
)


@given(MESSAGES, MESSAGES)
def test_a_longer_conversation_begins_with_the_shorter(earlier: list[Message], later: list[Message]) -> None:
    """Prompt bytes are constant between steps."""
    longer = wire.prompt(ModelRequest(messages=earlier + later))
    assert longer.startswith(wire.prompt(ModelRequest(messages=earlier)))


@given(MESSAGES)
def test_no_message_passes_for_another(messages: list[Message]) -> None:
    """Each message has exactly one starting line, and its content can be had back."""
    _, _, body = wire.prompt(ModelRequest(messages=messages)).partition("alone, without such a line.\n")
    parts = re.split(r"(?m)^=== .* ===\n", body)[1:]
    contents = [
        re.sub(r"(?m)^\\(?=\\*===)", "", part.removesuffix("\n").removesuffix("\n")) for part in parts
    ]
    expected = [message.content for message in messages]
    assert len(parts) == len(messages)
    assert [text.rstrip("\n") for text in contents] == [text.rstrip("\n") for text in expected]


@given(TEXTS)
def test_a_prompt_is_never_a_command(intent: str) -> None:
    """Text that begins with a slash would be run by the program itself."""
    assert wire.prompt(ModelRequest(intent=intent)).startswith("Below is a conversation")


def test_tools_are_described() -> None:
    """A request that brings tools has them explained, as the model knows no others."""
    request = ModelRequest(intent="x", system_prompt="S", tools=[ToolSpec("ls", "lists", {"type": "object"})])
    text = wire.system_prompt(request)
    assert text.startswith("S\n\n")
    assert "ls" in text
    assert '"action"' in text
    assert wire.system_prompt(REQUEST) == "S"


def test_arguments_with_a_key() -> None:
    """With a key the program is bare: no tools, no settings, no memory, one turn, JSON."""
    env = {"ANTHROPIC_API_KEY": "k"}
    args = wire.arguments(REQUEST, "sonnet", ["--system-prompt=S"], env, ["--effort", "low"])
    assert args == [
        "-p", "--tools", "", "--system-prompt=S", "--max-turns=1", "--model=sonnet", "--strict-mcp-config",
        "--no-session-persistence", "--output-format=json", "--bare", "--effort", "low",
    ]  # fmt: skip


def test_arguments_with_a_stored_login() -> None:
    """A stored login rules the bare mode out, so settings, skills and reading are put off singly."""
    args = wire.arguments(REQUEST, "", ["--system-prompt=S"], {}, [])
    assert "--bare" not in args
    assert not any(arg.startswith("--model") for arg in args)
    assert args[-3:] == [
        "--setting-sources=",
        "--disable-slash-commands",
        '--settings={"permissions":{"deny":["Read"]}}',
    ]


def test_the_environment_is_scrubbed() -> None:
    """Only what the program needs comes through; foreign secrets and marks of an outer session do not."""
    env = wire.environment(
        {
            "HOME": "/h", "PATH": "/bin", "LANG": "C.UTF-8", "ANTHROPIC_API_KEY": "k", "HTTPS_PROXY": "p",
            "ANTHROPIC_AUTH_TOKEN": "", "OPENAI_API_KEY": "no", "CLAUDECODE": "1", "NODE_OPTIONS": "--x",
            "CLAUDE_CODE_ENTRYPOINT": "cli", "CLAUDE_CODE_MAX_RETRIES": "10", "LD_PRELOAD": "x.so",
        },
        ModelRequest(intent="x", max_tokens=55),
        1.5,
        "/tmp/t",
    )  # fmt: skip
    fixed = {name: env.pop(name) for name in list(env) if name.startswith(("CLAUDE_CODE_", "DISABLE_"))}
    assert env == {
        "HOME": "/h", "PATH": "/bin", "LANG": "C.UTF-8", "ANTHROPIC_API_KEY": "k", "HTTPS_PROXY": "p",
        "API_TIMEOUT_MS": "1500", "TMPDIR": "/tmp/t",
    }  # fmt: skip
    assert fixed["CLAUDE_CODE_MAX_RETRIES"] == "1"
    assert fixed["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "55"
    assert fixed["CLAUDE_CODE_DISABLE_ATTACHMENTS"] == "1"
    assert "CLAUDE_CODE_ENTRYPOINT" not in fixed


def program(path: pathlib.Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    "place", [".local/bin", ".claude/local", ".npm-global/bin", ".bun/bin", ".nvm/versions/node/v20.1.0/bin"]
)
def test_places_of_installers(tmp_path: pathlib.Path, place: str) -> None:
    """The program is found where its installers put it, though no shell set PATH."""
    path = program(tmp_path / place / "acme-claude")
    assert find_command("acme-claude", {"PATH": "/nonexistent"}, str(tmp_path)) == path


def test_path_comes_first_and_the_newest_node(tmp_path: pathlib.Path) -> None:
    """PATH decides; among nvm's folders the newest version does, by number and not by letters."""
    program(tmp_path / ".nvm/versions/node/v9.9.9/bin/acme")
    newest = program(tmp_path / ".nvm/versions/node/v20.1.0/bin/acme")
    assert find_command("acme", {}, str(tmp_path)) == newest
    first = program(tmp_path / "bin/acme")
    assert find_command("acme", {"PATH": f".:{tmp_path}/bin"}, str(tmp_path)) == first


def test_paths_as_commands(tmp_path: pathlib.Path) -> None:
    """A path is taken as it is; what cannot be run, or hangs on the daemon's folder, is no program."""
    path = program(tmp_path / "x/acme")
    assert find_command(path, {}, "") == path
    assert find_command("~/x/acme", {}, str(tmp_path)) == path
    assert find_command("./x/acme", {}, str(tmp_path)) == ""
    (tmp_path / "x/acme").chmod(0o644)
    assert find_command(path, {}, "") == ""
    assert find_command("acme", {"PATH": f"{tmp_path}/x"}, "") == ""


def test_logins(tmp_path: pathlib.Path) -> None:
    """A key, a token, or a file of the program's own login lets it in; nothing else does."""
    home = {"HOME": str(tmp_path)}
    assert not has_login(home)
    assert not has_login({})
    assert has_login({"ANTHROPIC_API_KEY": "k"})
    assert has_login({"CLAUDE_CODE_OAUTH_TOKEN": "t"})
    (tmp_path / ".claude.json").write_text('{"numStartups": 1}')
    assert not has_login(home)
    (tmp_path / ".claude.json").write_text('{"primaryApiKey": "k"}')
    assert has_login(home)
    assert not has_login({**home, "CLAUDE_CONFIG_DIR": str(tmp_path / "other")})
    (tmp_path / "other").mkdir()
    (tmp_path / "other/.credentials.json").write_text("{}")
    assert has_login({**home, "CLAUDE_CONFIG_DIR": str(tmp_path / "other")})
