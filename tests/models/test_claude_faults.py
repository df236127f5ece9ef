"""How the `claude` command fails, and what its caller is told: one row for each failure."""

import contextlib
import os
import pathlib
import socket
from collections.abc import AsyncGenerator
from typing import Any, NamedTuple

import pytest
import trio

from rnixfs import limits
from rnixfs.children import Children
from rnixfs.drivers.claude import ClaudeCli
from rnixfs.errors import ERRNO, Code
from rnixfs.llm import ModelAnswer, ModelRequest
from rnixfs.model import ModelError
from tests.models.messages_stub import INPUT, begun, event, fails, message, says, streams, tool_use
from tests.models.programs import KEY, claude, entry, environment, real_claude, stand_in, standing_in
from tests.models.servers import Handler, Server, hang, reply, serving

HALF = begun(("text", "Half of an answer"))
OVERLOADED = {"type": "overloaded_error", "message": "Overloaded"}


class Row(NamedTuple):
    """A failure of the server, and what is told of it.

    Args:
        name: the row's.
        handler: what the server does.
        code: what the error means; None where the answer comes all the same.
        text: a part of the reason.
        transient: whether another attempt may succeed.
        status: the HTTP status that is told.
        retry_after: seconds that the server asked for.
        spent: tokens of the prompt that are counted; those of the answer are then counted too.
    """

    name: str
    handler: Handler
    code: Code | None
    text: str
    transient: bool = False
    status: int = 0
    retry_after: float | None = None
    spent: int = 0


FAULTS = [
    Row("400", fails(400, "invalid_request_error", "bad"), Code.INVALID, "bad", status=400),
    Row(
        "400 for a prompt that is too long",
        fails(400, "invalid_request_error", "prompt is too long: 200251 tokens > 200000 maximum"),
        Code.RESOURCE_EXHAUSTED, "too long", status=400,
    ),
    Row("401", fails(401, "authentication_error", f"no {KEY}"), Code.PERMISSION, "no ***", status=401),
    Row("404", fails(404, "not_found_error", "no"), Code.NOT_FOUND, "selected model", status=404),
    Row("408", fails(408, "timeout_error", "late"), Code.TIMEOUT, "late", True, 408),
    Row("413", fails(413, "request_too_large", "big"), Code.TOO_LARGE, "too large", status=413),
    Row("429", fails(429, "rate_limit_error", "slow"), Code.SERVICE_UNAVAILABLE, "slow", True, 429),
    Row(
        "429 that names seconds",
        fails(429, "rate_limit_error", "slow down", retry_after="7"),
        Code.SERVICE_UNAVAILABLE, "slow down", True, 429, 7.0,
    ),
    Row(
        "429 that names a time of the past",
        fails(429, "rate_limit_error", "slow", retry_after="Wed, 21 Oct 2015 07:28:00 GMT"),
        Code.SERVICE_UNAVAILABLE, "slow", True, 429, 0.0,
    ),
    Row("500", fails(500, "api_error", "broken"), Code.DRIVER, "broken", True, 500),
    Row(
        "529 that names seconds",
        fails(529, "overloaded_error", "busy", retry_after="2.5"),
        Code.SERVICE_UNAVAILABLE, "busy", True, 529, 2.5,
    ),
    Row("half a stream", streams(HALF), Code.DRIVER, "lost", True, spent=INPUT),
    Row("no stream at all", streams(b""), Code.DRIVER, "without receiving", True),
    Row("a web page", reply("<html>no</html>", kind="text/html"), Code.DRIVER, "without receiving", True),
    Row(
        "overloaded in a stream",
        streams(HALF + event("error", error=OVERLOADED)),
        Code.SERVICE_UNAVAILABLE, "Overloaded", True, 529, spent=INPUT,
    ),
    Row(
        "invalid JSON",
        streams(HALF + b'event: content_block_delta\ndata: {"type": nonsense\n\n'),
        Code.DRIVER, "JSON Parse error", spent=INPUT,
    ),
    Row(
        "a refusal",
        streams(message(("text", "I must"), stop="refusal")),
        Code.INVALID, "flagged this message", spent=INPUT,
    ),
    Row("a call of a tool", streams(tool_use()), Code.RESOURCE_EXHAUSTED, "number of turns", spent=INPUT),
    Row(
        "invalid UTF-8",
        streams(message(("text", "an odd answer")).replace(b"odd", b"\xff\xfe")),
        None, "an \ufffd\ufffd answer", spent=INPUT,
    ),
]  # fmt: skip

STAND_INS = [
    # name, what the program does, code, a part of the reason
    ("nothing, as after SIGINT", "exit 0", Code.DRIVER, "exited with 0 without a result: it printed nothin"),
    ("an exit code", "echo 'too bad' >&2; exit 3", Code.DRIVER, "exited with 3 without a result: too bad"),
    ("many words", "echo 'the reason' >&2; yes | head -c 300000 >&2; exit 1", Code.DRIVER, "the reason y y"),
    ("no JSON", "echo 'no JSON'", Code.DRIVER, "no JSON"),
    ("no UTF-8", r"""printf '{"type":"result","result":"\377\376"}\n'""", Code.DRIVER, "without a result"),
    ("half a result", """printf '{"type":"result","is_error":false,"re'""", Code.DRIVER, "without a result"),
    ("a key in its words", 'echo "my key is $ANTHROPIC_API_KEY" >&2; exit 1', Code.DRIVER, "my key is ***"),
    ("a signal", "kill -KILL $$", Code.DRIVER, "was ended by signal 9"),
    ("an option it does not know", "echo \"error: unknown option '--x'\" >&2; exit 1", Code.INVALID, "--x"),
    ("no login", "echo 'Invalid API key - Please run /login'; exit 1", Code.PERMISSION, "run /login"),
    ("an error result", """echo '{"type":"result","is_error":true,"result":"sad"}'""", Code.DRIVER, "sad"),
    ("endless lines", "exec yes", Code.TOO_LARGE, "printed more than"),
    ("an endless line", "exec tr '\\0' x < /dev/zero", Code.TOO_LARGE, "larger than"),
    ("endless complaints", "exec yes >&2", Code.TOO_LARGE, "of errors"),
]  # fmt: skip


class Told(NamedTuple):
    """What came of a call: its answer or its failure, and how often the server was asked."""

    answer: ModelAnswer | None
    error: ModelError | None
    asked: int = 0


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    """An empty home, so that no login and no settings of the user are read."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@contextlib.asynccontextmanager
async def asking(handler: Handler, home: pathlib.Path, **fields: Any) -> AsyncGenerator[Told]:
    async with serving(handler) as server:
        yield await _ask(server, home, **fields)


async def _ask(server: Server, home: pathlib.Path, **fields: Any) -> Told:
    model = claude(server.url, home, **fields)
    answer, error = None, None
    try:
        answer = await model.complete(ModelRequest(intent="hi"))
    except ModelError as raised:
        error = raised
    await model.aclose()
    return Told(answer, error, len(server.requests))


@pytest.mark.parametrize("row", FAULTS, ids=lambda row: row.name)
async def test_failures_of_the_server(home: pathlib.Path, row: Row) -> None:
    """Each failure has its code, says whether to try again and when, and counts what was spent.

    The program asks once, and it ends long before the three minutes that its own retries would take.
    """
    with trio.fail_after(45):
        async with asking(row.handler, home) as told:
            pass
    if row.code is None:
        assert told.answer is not None
        assert told.answer.content == row.text
        assert told.answer.input_tokens == row.spent
        return
    error = told.error
    assert error is not None
    assert (error.code, error.errno) == (row.code, ERRNO[row.code])
    assert row.text in error.reason
    assert error.reason.startswith("claude: ")
    assert (error.transient, error.status, error.retry_after) == (row.transient, row.status, row.retry_after)
    assert error.usage.input_tokens == row.spent
    assert (error.usage.output_tokens > 0) == (row.spent > 0)
    # What the server does not take, and charges nobody for, the program asks for in other forms.
    assert told.asked == 1 or row.status in (400, 404)
    shown = error.as_dict()
    assert KEY not in str(shown)
    assert shown["retryable"] is row.transient
    assert shown.get("status", 0) == row.status
    assert shown.get("retry_after_ms") == (None if row.retry_after is None else row.retry_after * 1000)
    assert shown.get("tokens_used", 0) == error.usage.tokens


async def test_nobody_listens(home: pathlib.Path) -> None:
    """A refused connection is a failure that may pass."""
    with socket.socket() as unused:
        # Bound, so that nobody else gets the port, but not listening.
        unused.bind(("127.0.0.1", 0))
        told = await _ask(Server(f"http://127.0.0.1:{unused.getsockname()[1]}", says("never")), home)
    assert told.error is not None
    assert (told.error.code, told.error.transient) == (Code.SERVICE_UNAVAILABLE, True)
    assert "refused" in told.error.reason


async def test_no_tls(home: pathlib.Path) -> None:
    """A server that speaks no TLS fails, and is not asked again."""
    async with serving(says("never")) as server:
        url = server.url.replace("http:", "https:")
        told = await _ask(Server(url, server.handler), home)
    assert told.error is not None
    assert (told.error.code, told.error.transient) == (Code.SERVICE_UNAVAILABLE, False)
    assert "EPROTO" in told.error.reason


async def test_a_server_that_is_silent(home: pathlib.Path) -> None:
    """Our own time limit ends the program; that is no reason to try again."""
    async with serving(says("never")) as server:
        server.handler = hang(server)
        began = trio.current_time()
        told = await _ask(server, home, timeout_ms=2500)
        assert trio.current_time() - began < 30
    assert told.error is not None
    assert (told.error.code, told.error.transient) == (Code.TIMEOUT, False)
    assert "no answer within 2.5 s" in told.error.reason


async def test_a_limit_of_a_subscription(home: pathlib.Path) -> None:
    """The time at which a subscription may be used again is told in seconds from now."""
    resets = 4_000_000_000  # in the year 2096
    headers = {
        "anthropic_ratelimit_unified_status": "rejected",
        "anthropic_ratelimit_unified_reset": str(resets),
        "anthropic_ratelimit_unified_representative_claim": "five_hour",
    }
    handler = fails(429, "rate_limit_error", "limited", **headers)
    async with serving(handler) as server:
        user = environment(home, server.url, "") | {"CLAUDE_CODE_OAUTH_TOKEN": KEY}
        model = ClaudeCli(entry(command=real_claude()), Children(), user)
        with pytest.raises(ModelError) as caught:
            await model.complete(ModelRequest(intent="hi"))
        await model.aclose()
    assert (caught.value.status, caught.value.transient) == (429, True)
    assert caught.value.retry_after is not None
    assert 1e9 < caught.value.retry_after < resets
    assert "limit" in caught.value.reason


async def test_a_budget_that_is_spent(home: pathlib.Path) -> None:
    """A budget among the entry's arguments ends in a failure that counts what it cost."""
    async with asking(says("dear"), home, args=["--max-budget-usd=0.000001"]) as told:
        pass
    assert told.error is not None
    assert told.error.code == Code.BUDGET_EXCEEDED
    assert told.error.usage.input_tokens == INPUT
    assert told.error.usage.cost_usd > 0
    assert told.error.as_dict()["cost_usd"] == told.error.usage.cost_usd


async def test_an_option_that_does_not_exist(home: pathlib.Path) -> None:
    """A mistake among the entry's arguments is told in the program's own words."""
    async with asking(says("never"), home, args=["--no-such-option"]) as told:
        pass
    assert told.error is not None
    assert (told.error.code, told.error.transient, told.asked) == (Code.INVALID, False, 0)
    assert "unknown option '--no-such-option'" in told.error.reason


async def test_an_answer_that_is_cut_short(home: pathlib.Path) -> None:
    """At its longest an answer ends, where the program itself would ask three times for more."""
    handler = streams(message(("text", "as far as"), stop="max_tokens", tokens=5))
    async with asking(handler, home) as told:
        pass
    assert told.answer is not None
    assert (told.answer.content, told.answer.stop_reason) == ("as far as", "max_tokens")
    assert (told.answer.input_tokens, told.answer.output_tokens, told.answer.estimated) == (INPUT, 5, False)


@pytest.mark.parametrize(("name", "script", "code", "text"), STAND_INS, ids=[row[0] for row in STAND_INS])
async def test_failing_programs(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    script: str,
    code: Code,
    text: str,
) -> None:
    """However a program fails, the error says how, in its own words, and there is no second attempt."""
    monkeypatch.setattr(limits, "MODEL_REPLY_MAX", 100_000)
    monkeypatch.setattr(limits, "COMMAND_OUTPUT_MAX", 1_000_000)
    model = standing_in(stand_in(tmp_path, script))
    with trio.fail_after(45), pytest.raises(ModelError) as caught:
        await model.complete(ModelRequest(intent="hi"))
    await model.aclose()
    assert caught.value.code == code
    assert caught.value.reason.startswith("claude: ")
    assert text in caught.value.reason
    assert (caught.value.transient, caught.value.usage.tokens) == (False, 0)


async def test_a_program_that_takes_too_long(tmp_path: pathlib.Path) -> None:
    """The request's time limit ends the program and the child that it started."""
    # The child holds a pipe of ours: its other end is closed when the child is gone.
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    held = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        model = standing_in(stand_in(tmp_path, f"sleep 600 > {fifo} & wait"))
        with pytest.raises(ModelError) as caught:
            await model.complete(ModelRequest(intent="hi", timeout_ms=1500))
        await model.aclose()
        assert caught.value.code == Code.TIMEOUT
        assert "1.5 s" in caught.value.reason
        assert os.read(held, 1) == b""
    finally:
        os.close(held)
