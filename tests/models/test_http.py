"""What holds for every model behind HTTP, whatever its server speaks, over real HTTP on the loopback."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from rnixfs import limits
from rnixfs.errors import Code, SyscallError
from rnixfs.llm import Delta, ModelAnswer, ModelRequest
from rnixfs.model import ModelError, ModelInfo
from rnixfs.presets import ANTHROPIC, GEMINI, OPENAI_COMPAT
from rnixfs.providers import ModelConfig
from rnixfs.wire.failure import retry_after
from tests.models import servers
from tests.models.httplab import KEY, PEERS, Peer, model_of, nobody
from tests.models.servers import Handler, Seen, Stream, reply, serving, sse

HI = ModelRequest(intent="hi")

every_peer = pytest.mark.parametrize("peer", PEERS.values(), ids=PEERS)
streaming = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def answering(peer: Peer, models: Any = None, connection: str = "close") -> Handler:
    """A server that answers, streaming where it is asked to, and lists its models."""

    async def handler(seen: Seen, stream: Stream) -> None:
        if seen.method == "GET":
            await reply(models, connection=connection)(seen, stream)
        elif b'"stream":true' in seen.content or "streamGenerateContent" in seen.path:
            await sse(peer.stream, connection=connection)(seen, stream)
        else:
            await reply(peer.whole, connection=connection)(seen, stream)

    return handler


# --- answers ---


@every_peer
@streaming
async def test_an_answer(peer: Peer, stream: bool) -> None:
    """Streaming or not, an answer is the same, with the tokens that the provider counted."""
    deltas: list[Delta] = []
    async with serving(answering(peer)) as server, model_of(peer.driver, server.url) as model:
        answer = await model.complete(HI, deltas.append if stream else None)
    assert (answer.content, answer.stop_reason, answer.estimated) == ("hello, all of you", "end", False)
    assert answer.tokens_used == answer.input_tokens + answer.output_tokens
    assert answer.input_tokens == {OPENAI_COMPAT: 12, ANTHROPIC: 123, GEMINI: 9}[peer.driver]
    assert answer.output_tokens == {OPENAI_COMPAT: 5, ANTHROPIC: 7, GEMINI: 5}[peer.driver]
    if stream:
        assert {delta.type for delta in deltas} == {"text"}
        assert len(deltas) > 1
        assert "".join(delta.text for delta in deltas) == answer.content


@every_peer
async def test_a_stream_cut_anywhere_is_no_answer(peer: Peer) -> None:
    """A stream that ends before the model said that it is done is a failure, never a shorter answer."""
    cut_off: list[tuple[Code, bool]] = []
    whole: list[str] = []
    async with serving(reply(b"")) as server, model_of(peer.driver, server.url) as model:
        for cut in range(0, len(peer.stream), 11):
            server.handler = sse(peer.stream[:cut])
            try:
                whole.append((await model.complete(HI, nobody)).content)
            except ModelError as error:
                cut_off.append((error.code, error.transient))
    assert set(cut_off) == {(Code.DRIVER, True)}
    assert set(whole) <= {"hello, all of you"}
    assert len(whole) < len(cut_off)  # all that may be missing is what follows the reason to stop


@every_peer
@streaming
async def test_equal_requests_are_equal_bytes(peer: Peer, stream: bool) -> None:
    """Prompt caches hit on equal beginnings, so nothing in a request may change by itself."""
    async with serving(answering(peer)) as server, model_of(peer.driver, server.url) as model:
        for _ in range(2):
            await model.complete(HI, nobody if stream else None)
    first, second = server.requests
    assert first == second


# --- what the configuration says ---


@every_peer
async def test_limit_and_effort_of_a_request(peer: Peer) -> None:
    """They stand in what is sent; the answer tells the window that is configured."""
    fields: dict[str, Any] = {"models": [ModelConfig("m-1", 5000)]}
    async with serving(answering(peer)) as server, model_of(peer.driver, server.url, **fields) as model:
        answer = await model.complete(ModelRequest(intent="hi", max_tokens=77, effort="high"))
    (sent,) = (json.dumps(seen.json) for seen in server.requests)
    assert answer.context_window == 5000
    assert "77" in sent
    assert "high" in sent


LISTS: dict[str, Any] = {
    OPENAI_COMPAT: {"data": [{"id": "m-9", "max_model_len": 900}, {"id": "m-8"}]},
    ANTHROPIC: {"data": [{"id": "m-9", "max_input_tokens": 900}, {"id": "m-8"}]},
    GEMINI: {"models": [{"name": "models/m-9", "inputTokenLimit": 900}, {"name": "models/m-8"}]},
}


@every_peer
async def test_the_first_listed_model_is_the_default(peer: Peer) -> None:
    """A local server works without any model configured: it is asked for its list once, however many call."""
    async with (
        serving(answering(peer, LISTS[peer.driver])) as server,
        model_of(peer.driver, server.url, default_model="") as model,
    ):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(model.complete, HI)
        answer = await model.complete(HI)
    asked = [seen for seen in server.requests if seen.method == "GET"]
    assert (len(asked), len(server.requests)) == (1, 5)
    named = [seen for seen in server.requests if "m-9" in seen.path or b'"m-9"' in seen.content]
    assert len(named) == 4
    assert answer.context_window == 900


@every_peer
async def test_a_model_that_was_removed(peer: Peer) -> None:
    """When the first model of the list is gone, the next call finds out what is first now."""
    async with (
        serving(answering(peer, LISTS[peer.driver])) as server,
        model_of(peer.driver, server.url, default_model="") as model,
    ):
        await model.complete(HI)
        server.handler = reply({"error": {"message": "no such model"}}, 404)
        with pytest.raises(ModelError):
            await model.complete(HI)
        server.handler = answering(peer, json.loads(json.dumps(LISTS[peer.driver]).replace("m-9", "m-7")))
        await model.complete(HI)
    last = server.requests[-1]
    assert "m-7" in last.path or b'"m-7"' in last.content


@every_peer
async def test_a_server_without_models(peer: Peer) -> None:
    """Where there is no model to take, the error says where to name one."""
    empty: dict[str, list[str]] = {"data": [], "models": []}
    async with (
        serving(answering(peer, empty)) as server,
        model_of(peer.driver, server.url, default_model="") as model,
    ):
        with pytest.raises(SyscallError) as caught:
            await model.complete(HI)
    assert caught.value.code == Code.INVALID
    assert "lists no models" in caught.value.reason


# --- checks ---


@every_peer
async def test_check(peer: Peer) -> None:
    """A check spends nothing, uses the key, and what it learns of windows is shown."""
    async with (
        serving(answering(peer, LISTS[peer.driver])) as server,
        model_of(peer.driver, server.url) as model,
    ):
        assert await model.check() == [ModelInfo("m-9", 900), ModelInfo("m-8")]
        assert model.details()["context_windows"] == {"m-9": 900}
    (seen,) = server.requests
    assert seen.method == "GET"
    assert any(KEY in value for value in seen.headers.values())
    assert KEY not in seen.path


@every_peer
async def test_configured_windows_count_more(peer: Peer) -> None:
    """What the configuration says of a window stands against what the server says."""
    models = [ModelConfig("m-9", 500), ModelConfig("m-1", 300)]
    async with (
        serving(answering(peer, LISTS[peer.driver])) as server,
        model_of(peer.driver, server.url, models=models) as model,
    ):
        await model.check()
        assert model.details()["context_windows"] == {"m-9": 500, "m-1": 300}


@every_peer
@pytest.mark.parametrize(
    ("handler", "code", "words"),
    [
        (reply({"error": {"message": f"bad key {KEY}"}}, 401), Code.PERMISSION, "bad key ***"),
        (reply({"error": {"message": "what?"}}, 404), Code.NOT_FOUND, "what?"),
        (reply("<html><title>A router</title>"), Code.DRIVER, "no JSON"),
        (reply({"hello": "world"}), Code.DRIVER, "no list of models"),
        (servers.raw(b""), Code.DRIVER, "broke"),
    ],
)
async def test_check_of_what_does_not_work(peer: Peer, handler: Handler, code: Code, words: str) -> None:
    """A check says why a provider would not answer, and shows no key."""
    async with serving(handler) as server, model_of(peer.driver, server.url) as model:
        with pytest.raises(ModelError) as caught:
            await model.check()
    assert caught.value.code == code
    assert words in caught.value.reason


async def test_check_has_an_end(mock_clock: trio.testing.MockClock) -> None:
    """A silent server holds up nobody who only looks."""
    async with serving(reply(b"")) as server, model_of(OPENAI_COMPAT, server.url) as model:
        server.handler = servers.hang(server)
        async with trio.open_nursery() as nursery:

            async def later() -> None:
                await server.asked.wait()
                mock_clock.jump(limits.MODEL_CHECK_SECONDS)

            nursery.start_soon(later)
            with pytest.raises(ModelError) as caught:
                await model.check()
        await server.hung_up.wait()
    assert caught.value.code == Code.TIMEOUT


# --- connections ---


@every_peer
@streaming
@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
async def test_cancelling_hangs_up_at_once(
    peer: Peer,
    stream: bool,
    secure: bool,
    tmp_path: Path,
    mock_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who wants no answer any more leaves no connection behind, and no time passes until it is gone.

    The clock stands still: were anything to wait for a time, this test would never end.
    """
    tls, trusted = servers.certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    async with (
        serving(reply(b""), tls if secure else None) as server,
        model_of(peer.driver, server.url) as model,
    ):
        head = servers.head(200, {"content-type": "text/event-stream"})
        server.handler = servers.hang(server, *([head + peer.half] if stream else []))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(model.complete, HI, nobody if stream else None)
            await server.sent.wait()
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        await server.hung_up.wait()
        server.handler = answering(peer)
        assert (await model.complete(HI)).content == "hello, all of you"


@every_peer
@streaming
async def test_a_trusted_certificate(
    peer: Peer, stream: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers of this machine with a certificate of one's own are reached when the environment trusts it."""
    tls, trusted = servers.certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    async with serving(answering(peer), tls) as server, model_of(peer.driver, server.url) as model:
        answer = await model.complete(HI, nobody if stream else None)
    assert answer.content == "hello, all of you"


@every_peer
async def test_connections_serve_again(peer: Peer, mock_clock: trio.testing.MockClock) -> None:
    """Call after call takes the same connection, streaming or not. (Time stands still here.)"""
    async with (
        serving(answering(peer, connection="keep-alive")) as server,
        model_of(peer.driver, server.url) as model,
    ):
        server.keep = True
        for stream in (False, True, True, False):
            await model.complete(HI, nobody if stream else None)
        assert (len(server.requests), server.connections) == (4, 1)


async def test_there_are_as_many_connections_as_calls_may_run() -> None:
    """The pool follows the configured number of calls; a look at the models finds one more."""
    peer = PEERS[OPENAI_COMPAT]
    go_on = trio.Event()

    async def handler(seen: Seen, stream: Stream) -> None:
        if seen.method == "POST":
            await go_on.wait()
        await answering(peer, LISTS[OPENAI_COMPAT], "keep-alive")(seen, stream)

    async with serving(handler) as server, model_of(OPENAI_COMPAT, server.url, concurrency=2) as model:
        server.keep = True
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(model.complete, HI)
            while len(server.requests) < 2:
                await trio.lowlevel.checkpoint()
            assert len(await model.check()) == 2
            nursery.start_soon(model.complete, HI)
            nursery.start_soon(model.complete, HI)
            await trio.testing.wait_all_tasks_blocked()
            assert server.connections == 3
            go_on.set()
        assert (len(server.requests), server.connections) == (5, 3)


async def test_many_streams_at_once() -> None:
    """Streams that run together do not mix."""
    answers: dict[str, ModelAnswer] = {}

    async def handler(seen: Seen, stream: Stream) -> None:
        text = seen.json["messages"][0]["content"]
        chunks: list[dict[str, Any]] = [
            {"choices": [{"index": 0, "delta": {"content": text}}]} for _ in range(20)
        ]
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        await sse(*(servers.events([chunk]) for chunk in chunks), servers.events([end, "[DONE]"]))(
            seen, stream
        )

    async with (
        serving(handler) as server,
        model_of(OPENAI_COMPAT, server.url) as model,
        trio.open_nursery() as nursery,
    ):

        async def one(text: str) -> None:
            answers[text] = await model.complete(ModelRequest(intent=text), nobody)

        for number in range(100):
            nursery.start_soon(one, f"<{number}>")
    assert {text: answer.content for text, answer in answers.items()} == {text: text * 20 for text in answers}
    assert len(answers) == 100


# --- when to come again ---


NOW = 1_800_000_000.0  # Fri, 15 Jan 2027 08:00:00 GMT


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Fri, 15 Jan 2027 08:00:30 GMT"}, 30.0),
        ({"retry-after": "Fri, 15 Jan 2027 07:59:00 GMT"}, 0.0),
        # A server whose clock is an hour ahead means the same half minute.
        ({"retry-after": "Fri, 15 Jan 2027 09:00:30 GMT", "date": "Fri, 15 Jan 2027 09:00:00 GMT"}, 30.0),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2.0),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m30s"}, 90.0),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "250ms"}, 0.25),
        ({"x-ratelimit-remaining-requests": "9", "x-ratelimit-reset-requests": "1m30s"}, None),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "later"}, None),
        (
            {
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "1h0m1s",
                "x-ratelimit-remaining-tokens": "0",
                "x-ratelimit-reset-tokens": "6s",
            },
            3601.0,
        ),
    ],
)
def test_when_to_come_again(headers: dict[str, str], seconds: float | None) -> None:
    """The time a server asks for is found in each of its forms, and nonsense is none."""
    assert retry_after(headers, NOW) == seconds


@every_peer
async def test_an_empty_purse_is_not_worth_another_attempt(peer: Peer) -> None:
    """Where 429 means that the money is gone, waiting does not help."""
    error = {"error": {"message": "pay first", "type": "insufficient_quota", "code": "insufficient_quota"}}
    async with serving(reply(error, 429)) as server, model_of(peer.driver, server.url) as model:
        with pytest.raises(ModelError) as caught:
            await model.complete(HI)
    assert (caught.value.code, caught.value.transient) == (Code.BUDGET_EXCEEDED, False)


@every_peer
async def test_the_key_is_in_its_header_alone(peer: Peer) -> None:
    """Each server gets the key in its own header, and servers that repeat it do not get it into an error."""
    handler = reply({"error": {"message": f"bad {KEY}"}}, 401)
    async with serving(handler) as server, model_of(peer.driver, server.url) as model:
        with pytest.raises(ModelError) as caught:
            await model.complete(HI)
    (seen,) = server.requests
    name, value = {
        OPENAI_COMPAT: ("authorization", f"Bearer {KEY}"),
        ANTHROPIC: ("x-api-key", KEY),
        GEMINI: ("x-goog-api-key", KEY),
    }[peer.driver]
    assert {name: value} == {header: value for header, value in seen.headers.items() if KEY in value}
    assert KEY not in seen.path
    assert KEY.encode() not in seen.content
    assert "bad ***" in caught.value.reason
    assert KEY not in json.dumps(caught.value.as_dict())
