"""Replies that no honest server sends, and surroundings in which no client can be made: each is a failure of
the provider that says so, or does no harm. Never is it an error inside the driver."""

import json
import math
import tracemalloc
from typing import Any

import pytest

from rnixfs.errors import Code, SyscallError
from rnixfs.llm import ModelAnswer, ModelRequest, read_request
from rnixfs.model import ModelError
from rnixfs.presets import ANTHROPIC, GEMINI, OPENAI_COMPAT
from rnixfs.state.codec import encode
from rnixfs.wire.anthropic import Messages, MessagesStream
from rnixfs.wire.openai import Chat
from tests.models.httplab import KEY, PEERS, model_of, nobody
from tests.models.servers import events, reply, serving, sse

DEEP = b'{"a":' * 50_000
HI = ModelRequest(intent="hi")


async def asked(driver: str, handler: Any, stream: bool) -> ModelAnswer:
    """What a driver makes of a server's reply."""
    async with serving(handler) as server, model_of(driver, server.url) as model:
        return await model.complete(HI, nobody if stream else None)


async def refused(driver: str, handler: Any, stream: bool) -> ModelError:
    """The failure that a server's reply is."""
    async with serving(handler) as server, model_of(driver, server.url) as model:
        with pytest.raises(ModelError) as caught:
            await model.complete(HI, nobody if stream else None)
    return caught.value


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("driver", list(PEERS))
@pytest.mark.parametrize("status", [200, 400, 429, 500])
async def test_json_of_any_depth(driver, status, stream):
    """JSON too deep for any parser is no JSON, whatever status it comes with."""
    error = await refused(driver, reply(DEEP, status), stream)
    assert error.status == (status if status != 200 else 0)


@pytest.mark.parametrize("driver", list(PEERS))
async def test_an_event_of_any_depth(driver):
    """The same in the middle of a stream; what was spent until then is counted."""
    data = PEERS[driver].half + b"data: " + DEEP + b"\n\n"
    error = await refused(driver, sse(data), stream=True)
    assert "no JSON" in error.reason
    assert error.usage.tokens


def completion(message: dict[str, Any], **usage: Any) -> bytes:
    """A chat completion."""
    choice = {"message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return json.dumps({"model": "m", "choices": [choice], "usage": usage}).encode()


async def test_arguments_of_any_depth():
    """A model that writes nothing but brackets has written arguments that are no JSON object."""
    call = {"id": "c", "function": {"name": "f", "arguments": "[" * 50_000}}
    answer = await asked(OPENAI_COMPAT, reply(completion({"tool_calls": [call]})), stream=False)
    assert list(answer.tool_calls[0].arguments) == ["__invalid__"]


@pytest.mark.parametrize(("levels", "valid"), [(100, True), (101, False), (150, False), (900, False)])
@pytest.mark.parametrize("kind", ["object", "list"])
async def test_arguments_that_no_event_holds(levels, valid, kind):
    """A call whose arguments the log could not hold is one without valid arguments: its process goes on."""
    first, last = ('{"a":', "}") if kind == "object" else ("[", "]")
    deep = '{"a":' + first * (levels - 1) + "1" + last * (levels - 1) + "}"
    call = {"id": "c", "function": {"name": "f", "arguments": deep}}
    answer = await asked(OPENAI_COMPAT, reply(completion({"tool_calls": [call]})), stream=False)
    assert ("__invalid__" not in answer.tool_calls[0].arguments) is valid
    if valid:
        encode({"answer": {"tool_calls": [{"arguments": answer.tool_calls[0].arguments}]}})


@pytest.mark.parametrize("index", [{}, [], 1.5, "x", None])
async def test_an_index_that_is_no_number(index):
    """Whatever a server numbers its calls with, they are calls."""
    call = {"index": index, "id": "c", "function": {"name": "f", "arguments": "{}"}}
    answer = await asked(OPENAI_COMPAT, reply(completion({"tool_calls": [call]})), stream=False)
    assert [one.name for one in answer.tool_calls] == ["f"]


async def test_an_index_that_is_no_number_in_blocks():
    """The same of the blocks of a stream."""
    start = {"type": "content_block_start", "index": {}, "content_block": {"type": "tool_use", "name": "f"}}
    data = f"data: {json.dumps(start)}\n\n".encode()
    assert (await refused(ANTHROPIC, sse(data), stream=True)).transient


@pytest.mark.parametrize("tokens", [1e300, 10**300, -5, "many"])
async def test_tokens_beyond_all_measure(tokens):
    """A count that cannot be true is none: it is estimated."""
    body = completion({"content": "x"}, prompt_tokens=tokens, completion_tokens=tokens)
    answer = await asked(OPENAI_COMPAT, reply(body), stream=False)
    assert answer.estimated
    assert 0 < answer.tokens_used < 1000


@pytest.mark.parametrize("cost", [-1e9, 1e300, "free"])
async def test_a_price_that_is_none(cost):
    """No server can pay back what a process has spent."""
    body = completion({"content": "x"}, prompt_tokens=5, completion_tokens=5, cost=cost)
    answer = await asked(OPENAI_COMPAT, reply(body), stream=False)
    assert answer.cost_usd == 0
    assert math.isfinite(answer.cost_usd)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALL_PROXY", "socks5://user:hunter2@127.0.0.1:1"),
        ("HTTPS_PROXY", "gopher://user:hunter2@127.0.0.1:1"),
        ("HTTPS_PROXY", "http://user:hunter2@127.0.0.1:port"),
        ("SSL_CERT_FILE", "/nonexistent/certificates"),
    ],
)
async def test_an_environment_in_which_no_client_can_be_made(monkeypatch, name, value):
    """A proxy that is none, or certificates that are not there: a failure that says so, without passwords."""
    monkeypatch.setenv(name, value)
    async with model_of(GEMINI, "https://provider.invalid") as model:
        with pytest.raises(ModelError) as caught:
            await model.complete(HI)
    assert caught.value.code is Code.DRIVER
    assert "proxy" in caught.value.reason.lower() or "certificate" in caught.value.reason
    assert "hunter2" not in caught.value.reason
    assert not caught.value.usage.tokens


@pytest.mark.parametrize("before", range(120, 200, 7))
@pytest.mark.parametrize("driver", list(PEERS))
async def test_a_key_that_is_cut_off(driver, before):
    """A server that tells what it was sent, such as a proxy for tests: wherever the reply is cut for the
    error, no part of the key is told."""
    error = await refused(driver, reply(b"{" + b" " * before + KEY.encode() + b"}"), stream=False)
    text = await refused(driver, reply(b'{"sent": "' + b"x" * before + KEY.encode() + b'"}'), stream=False)
    assert KEY[:5] not in error.reason + text.reason


@pytest.mark.parametrize("model", ["../secrets", "models/../../x", "/x", "models//x", "models/."])
async def test_a_model_whose_name_leads_elsewhere(model):
    """A name that is a way to another address of the server is the name of no model, and is not asked for."""
    async with serving(reply(PEERS[GEMINI].whole)) as server, model_of(GEMINI, server.url) as asked:
        with pytest.raises(ModelError) as caught:
            await asked.complete(ModelRequest(intent="hi", model=model))
    assert caught.value.code is Code.INVALID
    assert not server.requests


@pytest.mark.parametrize("value", [-1, 10**13, 10**400])
@pytest.mark.parametrize("field", ["timeout_ms", "max_tokens"])
def test_a_number_beyond_all_measure(field, value):
    """A request that nobody can mean is refused, and not an error inside."""
    with pytest.raises(SyscallError) as caught:
        read_request({"intent": "x", field: value})
    assert caught.value.code is Code.INVALID


async def test_pieces_of_another_kind_than_their_block():
    """Text for a block of thoughts and thoughts for a call add nothing, and are no error inside."""
    blocks = [{"type": "thinking", "thinking": "hm"}, {"type": "tool_use", "id": "c", "name": "f"}]
    deltas = [
        {"type": "input_json_delta", "partial_json": "{}"},
        {"type": "thinking_delta", "thinking": "more"},
        {"type": "signature_delta", "signature": "s"},
    ]
    chunks: list[dict[str, Any]] = [
        {"type": "content_block_start", "index": place, "content_block": block}
        for place, block in enumerate(blocks)
    ]
    chunks += [
        {"type": "content_block_delta", "index": place, "delta": delta}
        for place in range(2)
        for delta in deltas
    ]
    chunks += [{"type": "message_delta", "delta": {"stop_reason": "tool_use"}}, {"type": "message_stop"}]
    answer = await asked(ANTHROPIC, sse(events(chunks)), stream=True)
    assert answer.reasoning == "hmmore"
    assert [(one.name, one.arguments) for one in answer.tool_calls] == [("f", {})]
    thought = {"type": "thinking", "thinking": "hmmore", "signature": "s"}
    assert answer.echo["anthropic"]["thinking"] == [[0, 0, thought]]


PIECES, SIZE = 3000, 3000


def chunk_of(delta: dict[str, Any]) -> str:
    """A piece of a chat completion."""
    return json.dumps({"choices": [{"delta": delta}]})


@pytest.mark.parametrize(
    ("reader", "event"),
    [
        (Chat("x").reader(), chunk_of({"reasoning_content": "x" * SIZE})),
        (Chat("x").reader(), chunk_of({"reasoning_details": [{"index": 0, "text": "x" * SIZE}]})),
        (
            Messages("x").reader(),
            json.dumps(
                {
                    "type": "content_block_delta",
                    "index": 0,
                    "delta": {"type": "thinking_delta", "thinking": "x" * SIZE},
                }
            ),
        ),
    ],
)
def test_no_piece_is_copied_with_all_before_it(reader, event):
    """What a piece costs does not grow with what came before: the loop serves everybody meanwhile."""
    if isinstance(reader, MessagesStream):
        block = {"type": "thinking", "thinking": ""}
        reader.feed(json.dumps({"type": "content_block_start", "index": 0, "content_block": block}))
    tracemalloc.start()
    try:
        highest = 0
        for number in range(PIECES):
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            reader.feed(event)
            if number > PIECES // 2:
                highest = max(highest, tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    assert highest < PIECES * SIZE / 4
