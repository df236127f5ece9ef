"""What the Claude Code command is given, and how its lines are read. No process runs here."""

import itertools
import json
import pathlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rnixfs import limits
from rnixfs.drivers.claude import has_login
from rnixfs.errors import Code
from rnixfs.llm import Delta, ModelAnswer, ModelRequest, Usage
from rnixfs.wire import claude as wire
from rnixfs.wire.claudereply import ClaudeReply
from rnixfs.wire.commandhelp import Help, read_help
from rnixfs.wire.commandreply import EnoughError, JsonLines
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
    "modelUsage": {
        "claude-small": {"outputTokens": 1, "contextWindow": 5},
        "claude-big": {"inputTokens": 100, "outputTokens": 7, "contextWindow": 200_000},
    },
    "num_turns": 1,
}


def line(**changes: Any) -> bytes:
    return json.dumps(RESULT | changes).encode() + b"\n"


def stream(kind: str, parent: str | None = None, **fields: Any) -> bytes:
    """A line with an event of the API's stream."""
    entry = {"type": "stream_event", "event": {"type": kind, **fields}, "parent_tool_use_id": parent}
    return json.dumps(entry).encode() + b"\n"


def start(name: str = "m1") -> bytes:
    return stream("message_start", message={"id": name, "model": "claude-big", "usage": {"input_tokens": 50}})


def piece(text: str, kind: str = "text") -> bytes:
    return stream("content_block_delta", delta={"type": f"{kind}_delta", kind: text})


def whole(name: str, kind: str, text: str, model: str = "claude-big", parent: str | None = None) -> bytes:
    """A line with a finished block, as programs without events of the stream print them."""
    message = {"id": name, "model": model, "content": [{"type": kind, kind: text}]}
    entry = {"type": "assistant", "message": message, "parent_tool_use_id": parent}
    return json.dumps(entry).encode() + b"\n"


def heard(stdout: bytes, pieces: list[Delta] | None = None) -> ClaudeReply:
    reply = ClaudeReply(REQUEST, None if pieces is None else pieces.append)
    reply.feed(stdout)
    reply.close()
    return reply


def read(stdout: bytes, stderr: bytes = b"", returncode: int = 0) -> ModelAnswer:
    return heard(stdout).answer(stderr, returncode, 0.0)


def error_of(stdout: bytes, stderr: bytes = b"", returncode: int = 0) -> WireError:
    with pytest.raises(WireError) as caught:
        read(stdout, stderr, returncode)
    return caught.value


# --- results ---


def test_a_result() -> None:
    """Cached tokens are tokens of the prompt, and the model is the one that wrote most."""
    assert read(line()) == ModelAnswer(
        content="hello",
        tokens_used=130,
        input_tokens=123,
        output_tokens=7,
        cached_tokens=3,
        cost_usd=0.0123,
        model="claude-big",
        context_window=200_000,
        stop_reason="end",
    )


@pytest.mark.parametrize(
    "stdout",
    [
        b"Update available!\n" + line(),
        line(result="earlier") + line(),
        json.dumps([{"type": "system"}, RESULT]).encode(),
        line().strip(),
        line() + b'{"type":"other"}\nbye\n{"type":5}\n[]\nnull\n5\n{"type":"assistant","message":5}\n',
        line() + stream("message_start") + stream("content_block_delta", delta=5) + stream("new_kind"),
        line() + b'{"type":"system","subtype":"api_retry","attempt":1,"retry_delay_ms":500}\n',
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
    ("changes", "code", "transient"),
    [
        ({"api_error_status": 401, "result": "Failed to authenticate"}, Code.PERMISSION, False),
        ({"api_error_status": 429, "result": "rejected"}, Code.SERVICE_UNAVAILABLE, True),
        ({"api_error_status": 400, "result": "Credit balance is too low"}, Code.INVALID, False),
        ({"api_error_status": 529, "result": "overloaded"}, Code.SERVICE_UNAVAILABLE, True),
        ({"api_error_status": 500, "result": "broken"}, Code.DRIVER, True),
        ({"result": "Not logged in · Please run /login"}, Code.PERMISSION, False),
        ({"result": "API Error: Connection refused"}, Code.SERVICE_UNAVAILABLE, True),
        ({"result": "API Error: Unable to connect (SELF_SIGNED_CERT)"}, Code.SERVICE_UNAVAILABLE, False),
        ({"result": "Request timed out"}, Code.TIMEOUT, True),
        ({"result": "API Error: exceeded the 55 output token maximum."}, Code.RESOURCE_EXHAUSTED, False),
        ({"subtype": "error_during_execution", "result": None, "errors": ["a", "b"]}, Code.DRIVER, False),
        ({"subtype": "error_max_turns", "result": None}, Code.RESOURCE_EXHAUSTED, False),
        ({"subtype": "error_max_budget_usd", "result": None}, Code.BUDGET_EXCEEDED, False),
        ({"stop_reason": "refusal", "result": "flagged"}, Code.INVALID, False),
    ],
)
def test_error_results(changes: dict[str, Any], code: Code, transient: bool) -> None:
    """`is_error` makes a failure whatever the subtype says; its words and what it cost are kept."""
    error = error_of(line(is_error=True, **changes), returncode=1)
    assert (error.code, error.transient) == (code, transient)
    assert error.status == changes.get("api_error_status", 0)
    assert error.text == (changes["result"] or "; ".join(changes.get("errors", [])) or changes["subtype"])
    # By the model: the result's own usage leaves out what broke off.
    assert error.usage == Usage(100, 8, 0.0123)


@pytest.mark.parametrize(
    ("stdout", "stderr", "returncode", "code", "text"),
    [
        (b"", b"", 0, Code.DRIVER, "exited with 0 without a result: it printed nothing"),
        (b"", b"error: unknown option '--x'\n", 1, Code.INVALID, "unknown option"),
        (b"Invalid API key \xc2\xb7 Please run /login", b"", 1, Code.PERMISSION, "Please run /login"),
        (b"", b"", -9, Code.DRIVER, "was ended by signal 9"),
        (line()[:-40], b"", 0, Code.DRIVER, "without a result"),
        (b"\xff\xfe", b"", 0, Code.DRIVER, "without a result"),
        (b"[" * 100_000, b"", 0, Code.DRIVER, "without a result"),
        (b"[log_1f] sending request {\n  model: 1,\n}\n", b"", 0, Code.DRIVER, "it printed nothing"),
        (b"", b"[log_1f] response {\n  x: 1,\n}\nbad luck\n", 1, Code.DRIVER, "a result: bad luck"),
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


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 90.0),
        ("9" * 400, None),
        ("soon", None),
    ],
)
def test_the_time_that_a_server_asks_for(value: str, seconds: float | None) -> None:
    """It stands in the log of the SDK alone, as seconds or as a date."""
    log = f'[log_5a] response error (no more retries left) {{\n  headers: {{\n    "retry-after": "{value}",\n'
    reply = heard(log.encode() + line(is_error=True, api_error_status=429))
    with pytest.raises(WireError) as caught:
        reply.answer(b"", 1, 10.0)
    assert caught.value.retry_after == seconds


@pytest.mark.parametrize(
    ("info", "seconds"),
    [
        ({"status": "rejected", "resetsAt": 110}, 100.0),
        ({"status": "rejected", "resetsAt": 5}, 0.0),
        ({"status": "rejected", "resetsAt": "soon"}, 7.0),
        ({"status": "allowed_warning", "resetsAt": 110}, 7.0),
    ],
)
def test_the_time_when_a_subscription_is_open_again(info: dict[str, Any], seconds: float) -> None:
    """It counts before what a server asks for, unless it is but a warning."""
    told = json.dumps({"type": "rate_limit_event", "rate_limit_info": info}).encode() + b"\n"
    reply = heard(b'  "retry-after": "7",\n' + told + line(is_error=True, api_error_status=429))
    with pytest.raises(WireError) as caught:
        reply.answer(b"", 1, 10.0)
    assert caught.value.retry_after == seconds


# --- pieces ---


def test_pieces() -> None:
    """Thoughts and text come in order; what agents inside the program say is not ours."""
    pieces: list[Delta] = []
    other = stream("content_block_delta", "toolu_1", delta={"type": "text_delta", "text": "not ours"})
    said = start() + piece("hm", "thinking") + other + piece("hel") + piece("lo") + line()
    answer = heard(said, pieces).answer(b"", 0, 0.0)
    assert pieces == [Delta("reasoning", "hm"), Delta("text", "hel"), Delta("text", "lo")]
    assert (answer.content, answer.reasoning) == ("hello", "hm")


def test_finished_blocks_repeat_the_pieces() -> None:
    """A finished block is the same text again, and counts only where no pieces came."""
    said = start() + piece("hello") + whole("m1", "text", "hello") + line()
    assert read(said).content == "hello"
    pieces: list[Delta] = []
    blocks = whole("m1", "thinking", "hm") + whole("m1", "text", "hel") + whole("m1", "text", "lo")
    synthetic = whole("m2", "text", "API Error", "<synthetic>")
    answer = heard(blocks + synthetic + line(result="lo"), pieces).answer(b"", 0, 0.0)
    assert pieces == [Delta("reasoning", "hm"), Delta("text", "hel"), Delta("text", "lo")]
    assert (answer.content, answer.reasoning) == ("hello", "hm")


def test_another_message_begins_anew() -> None:
    """Another attempt, or another turn, takes back what came before it."""
    pieces: list[Delta] = []
    answer = heard(start() + piece("hal") + start("m2") + piece("hello") + line(), pieces).answer(b"", 0, 0.0)
    assert pieces == [Delta("text", "hal"), Delta("restart"), Delta("text", "hello")]
    assert answer.content == "hello"


def test_pieces_and_result_are_the_same() -> None:
    """Where the result is not what the pieces say, it is handed out in their place."""
    pieces: list[Delta] = []
    said = start() + piece("hm", "thinking") + piece("bye") + line()
    assert heard(said, pieces).answer(b"", 0, 0.0).content == "hello"
    assert pieces[2:] == [Delta("restart"), Delta("reasoning", "hm"), Delta("text", "hello")]


@pytest.mark.parametrize("spoken", ["hello\n", "\n hello"])
def test_blanks_at_the_ends_take_nothing_back(spoken) -> None:
    """A program that trims what its model said has said the same; some readers cannot take anything back."""
    pieces: list[Delta] = []
    assert heard(start() + piece(spoken) + line(), pieces).answer(b"", 0, 0.0).content == spoken
    assert pieces == [Delta("text", spoken)]


def test_an_answer_at_its_longest() -> None:
    """Nothing more is wanted of a program whose model was stopped at the most tokens."""
    reply = ClaudeReply(REQUEST, None)
    end = stream("message_delta", delta={"stop_reason": "max_tokens"}, usage={"output_tokens": 9})
    with pytest.raises(EnoughError):
        reply.feed(start() + piece("hel") + end)
    answer = reply.answer(b"", -15, 0.0)
    assert (answer.content, answer.stop_reason, answer.model) == ("hel", "max_tokens", "claude-big")
    assert (answer.input_tokens, answer.output_tokens) == (50, 9)


def test_what_half_an_answer_cost() -> None:
    """The prompt is counted by its message, the answer by its length; earlier messages count too."""
    half = start() + piece("x" * 40)
    assert heard(half).spent() == Usage(50, 10)
    more = stream("message_delta", usage={"output_tokens": 30}) + start("m2") + piece("x" * 8)
    assert heard(half + more).spent() == Usage(100, 32)
    assert heard(b"").spent() == Usage()


def test_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of an answer has a limit of its own, whatever its pieces are."""
    monkeypatch.setattr(limits, "MODEL_REPLY_MAX", 1000)
    with pytest.raises(WireError) as caught:
        heard(start() + piece("x" * 500) + piece("x" * 501))
    assert caught.value.code == Code.TOO_LARGE


@pytest.mark.parametrize(
    ("limit", "most", "output"),
    [
        ("MODEL_REPLY_MAX", 100, b"x" * 100 + b"\n"),
        ("COMMAND_OUTPUT_MAX", 100, b"x\n" * 50),
        ("COMMAND_LINES_MAX", 100, b"\n" * 100),
    ],
)
def test_limits_of_the_output(monkeypatch: pytest.MonkeyPatch, limit: str, most: int, output: bytes) -> None:
    """Up to its limit an output is read, past it there is an error."""
    monkeypatch.setattr(limits, limit, most)
    JsonLines(lambda entry: None, lambda words: None).feed(output)
    with pytest.raises(WireError) as caught:
        JsonLines(lambda entry: None, lambda words: None).feed(b"x" + output + b"\n")
    assert caught.value.code == Code.TOO_LARGE


PARTS = [b'{"a":1}', b"[{},{}]", b"words", b"\n", b"\n\n", b" ", b"\xff"]


@given(st.lists(st.sampled_from(PARTS)), st.data())
def test_lines_do_not_depend_on_pieces(parts: list[bytes], data: st.DataObject) -> None:
    """However the output is cut into pieces, its lines are the same."""
    output = b"".join(parts)

    def taken(chunks: list[bytes]) -> list[object]:
        seen: list[object] = []
        lines = JsonLines(seen.append, seen.append)
        for chunk in chunks:
            lines.feed(chunk)
        lines.close()
        return seen

    cuts = sorted(data.draw(st.lists(st.integers(0, len(output)), max_size=5)))
    edges = [0, *cuts, len(output)]
    assert taken([output[a:b] for a, b in itertools.pairwise(edges)]) == taken([output])


# --- what it is given ---


def test_arguments_with_a_key() -> None:
    """With a key the program is bare: no tools, no settings, no memory, one turn, a line an event."""
    env = {"ANTHROPIC_API_KEY": "k"}
    args = wire.arguments(REQUEST, "sonnet", "low", ["--system-prompt=S"], env, ["--extra", "it"], Help())
    assert args == [
        "-p", "--tools", "", "--system-prompt=S", "--max-turns=1", "--model=sonnet", "--effort=low",
        "--strict-mcp-config", "--no-session-persistence", "--output-format=stream-json", "--verbose",
        "--include-partial-messages", "--bare", "--extra", "it",
    ]  # fmt: skip


def test_arguments_with_a_stored_login() -> None:
    """A stored login rules the bare mode out, so settings, skills and reading are put off singly."""
    args = wire.arguments(REQUEST, "", "", ["--system-prompt=S"], {}, [], Help())
    assert "--bare" not in args
    assert not any(arg.startswith(("--model", "--effort")) for arg in args)
    assert args[-3:] == [
        "--setting-sources=",
        "--disable-slash-commands",
        '--settings={"permissions":{"deny":["Read"]}}',
    ]
    old = wire.arguments(REQUEST, "", "", [], {}, [], Help(frozenset({"--tools"})))
    assert "--disable-slash-commands" not in old
    assert "--setting-sources=" in old


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
        "API_TIMEOUT_MS": "1500", "TMPDIR": "/tmp/t", "ANTHROPIC_LOG": "debug",
    }  # fmt: skip
    assert fixed["CLAUDE_CODE_MAX_RETRIES"] == "0"
    assert fixed["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "55"
    assert fixed["CLAUDE_CODE_DISABLE_ATTACHMENTS"] == "1"
    assert fixed["CLAUDE_CODE_DISABLE_FILE_MENTIONS"] == "1"
    assert "CLAUDE_CODE_ENTRYPOINT" not in fixed


HELP = """Usage: it [options] [command]

Options:
  -p, --print                  Print; see also
                               --not-an-option and --nor-this
  --allowedTools, --allowed-tools <tools...>
      Which, such as
      "--quoted"
  --model <name>               A model
  --bare
  -v                           Only short

Commands:
  auth                         Log in
  plugin|plugins [options]     More
"""


def test_options_are_read_from_help() -> None:
    """Options are what stands at the beginning of a line that is indented a little, not what texts name."""
    known = read_help(HELP)
    assert set(known.options or ()) == {"--print", "--allowedTools", "--allowed-tools", "--model", "--bare"}
    assert {"auth", "plugin"} <= known.commands
    assert (known.has("--bare"), known.has("--effort")) == (True, False)
    assert (known.only("--bare"), known.only("--effort")) == (["--bare"], [])


@pytest.mark.parametrize("text", ["", "error: no help here", "--print at the very beginning"])
def test_a_help_without_options_tells_nothing(text: str) -> None:
    """A program that does not tell its options is taken to have all."""
    assert read_help(text).options is None
    assert read_help(text).has("--whatever")


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
