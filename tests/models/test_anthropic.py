"""Models behind Anthropic's Messages API: its format, its caches, its thinking and its errors."""

import functools
import json
from typing import Any

import anthropic as sdk
import msgspec
import pytest
import trio

from rnixfs import limits
from rnixfs.errors import Code
from rnixfs.llm import Delta, Message, ModelAnswer, ModelRequest, Role, ToolCall, ToolSpec
from rnixfs.model import ModelError
from rnixfs.presets import ANTHROPIC
from rnixfs.wire.anthropic import Messages
from rnixfs.wire.dialect import INVALID_ARGUMENTS
from tests.models import anthropic, httplab
from tests.models.anthropic import message, stream_of
from tests.models.httplab import KEY, nobody
from tests.models.servers import Handler, events, reply, serving, sse

SERVER = "https://api.anthropic.com"
HI = ModelRequest(intent="hi")
USER, ASSISTANT, TOOL, SYSTEM = Role.USER, Role.ASSISTANT, Role.TOOL, Role.SYSTEM
MARK = {"cache_control": {"type": "ephemeral"}}
THOUGHT = {"type": "thinking", "thinking": "I should look.", "signature": "c2lnbmVk"}
HIDDEN = {"type": "redacted_thinking", "data": "aGlkZGVu"}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {"path": "ä"}}

model_of = functools.partial(httplab.model_of, ANTHROPIC)
streaming = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def text(words: str) -> dict[str, Any]:
    """A block of text."""
    return {"type": "text", "text": words}


def body_of(request: ModelRequest, server: str = SERVER, stream: bool = False) -> dict[str, Any]:
    """The decoded body of a request."""
    return dict(json.loads(Messages(server).encode(request, "m-1", stream)))


def unmarked(value: Any) -> Any:
    """A body without its marks for caches."""
    if isinstance(value, list):
        return [unmarked(entry) for entry in value]
    if isinstance(value, dict):
        return {name: unmarked(entry) for name, entry in value.items() if name != "cache_control"}
    return value


def talk(*messages: Message, **fields: Any) -> list[dict[str, Any]]:
    """The messages of a conversation on the wire, without marks."""
    return list(unmarked(body_of(ModelRequest(messages=list(messages), **fields))["messages"]))


async def ask(handler: Handler, request: ModelRequest = HI) -> tuple[ModelAnswer, list[Delta]]:
    deltas: list[Delta] = []
    async with serving(handler) as server, model_of(server.url, server=SERVER) as model:
        return await model.complete(request, deltas.append), deltas


async def failure(handler: Handler, stream: bool = True) -> ModelError:
    async with serving(handler) as server, model_of(server.url) as model:
        with pytest.raises(ModelError) as caught:
            await model.complete(HI, nobody if stream else None)
    return caught.value


# --- requests ---


async def test_request_on_the_wire() -> None:
    """A conversation with tools goes out in the provider's format, with the version it asks for."""
    request = ModelRequest(
        system_prompt="Be brief.",
        messages=[
            Message(USER, "list"),
            Message(ASSISTANT, "Let me see.", tool_calls=[ToolCall("toolu_1", "ls", {"path": "ä"})]),
            Message(TOOL, "a\nb", tool_call_id="toolu_1"),
        ],
        tools=[ToolSpec("cat", "reads", {"type": "object"}), ToolSpec("ls", "lists", {"type": "object"})],
        temperature=0.0,
        max_tokens=99,
        model="m-2",
    )
    async with serving(reply(message([text("ok")], "end_turn"))) as server, model_of(server.url) as model:
        await model.complete(request)
    (seen,) = server.requests
    assert (seen.method, seen.path) == ("POST", "/v1/messages")
    assert seen.headers["x-api-key"] == KEY
    assert seen.headers["anthropic-version"] == "2023-06-01"
    assert seen.json == {
        "model": "m-2",
        "max_tokens": 99,
        "temperature": 0.0,
        "tools": [
            {"name": "cat", "description": "reads", "input_schema": {"type": "object"}},
            {"name": "ls", "description": "lists", "input_schema": {"type": "object"}, **MARK},
        ],
        "system": [{**text("Be brief."), **MARK}],
        "messages": [
            {"role": "user", "content": [{**text("list"), **MARK}]},
            {"role": "assistant", "content": [text("Let me see."), CALL]},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a\nb", **MARK}],
            },
        ],
    }


def test_the_least_request() -> None:
    """What a request does not say is left out, but for the limit that the API must have."""
    assert body_of(HI) == {
        "model": "m-1",
        "max_tokens": limits.MODEL_ANSWER_TOKENS,
        "messages": [{"role": "user", "content": [{**text("hi"), **MARK}]}],
    }
    assert body_of(HI, stream=True)["stream"] is True


def test_speakers_alternate() -> None:
    """Results of parallel calls are one message, with what the user says next; empty texts are never sent."""
    calls = [ToolCall("a", "f", {}), ToolCall("b", "g", {})]
    told = [Message(TOOL, "1", tool_call_id="a"), Message(TOOL, " ", tool_call_id="b")]
    shown = talk(
        Message(USER, "one"),
        Message(USER, "two"),
        Message(USER, " \n"),
        Message(ASSISTANT, "", tool_calls=calls),
        *told,
        Message(USER, "and?"),
        Message(ASSISTANT, ""),
        Message(USER, "well?"),
    )
    assert shown == [
        {"role": "user", "content": [text("one"), text("two")]},
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "a", "name": "f", "input": {}},
                {"type": "tool_use", "id": "b", "name": "g", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "1"},
                {"type": "tool_result", "tool_use_id": "b"},
                text("and?"),
                text("well?"),
            ],
        },
    ]


def test_system_messages() -> None:
    """Instructions before the conversation join the system prompt; later ones are words of the user."""
    request = ModelRequest(
        system_prompt="first",
        messages=[Message(SYSTEM, "second"), Message(USER, "hi"), Message(SYSTEM, "third")],
    )
    body = unmarked(body_of(request))
    assert body["system"] == [text("first\n\nsecond")]
    assert body["messages"] == [{"role": "user", "content": [text("hi"), text("third")]}]


def test_names_of_calls_that_others_chose() -> None:
    """A call that another provider named keeps a name of its own that this one takes, in call and result."""
    names = ["call:1", "call.1", "x" * 100, "fine_1"]
    calls = [ToolCall(name, "f", {}) for name in names]
    told = [Message(TOOL, "r", tool_call_id=name) for name in names]
    _, said, results = talk(Message(USER, "go"), Message(ASSISTANT, tool_calls=calls), *told)
    sent = [block["id"] for block in said["content"]]
    assert sent == [block["tool_use_id"] for block in results["content"]]
    assert len(set(sent)) == 4
    assert sent[3] == "fine_1"
    assert all(len(name) <= 64 and name.replace("_", "").isalnum() for name in sent)


def long_talk(turns: int) -> ModelRequest:
    """A conversation with tools of so many turns."""
    messages = [Message(USER, "go")]
    for turn in range(turns):
        messages.append(
            Message(ASSISTANT, f"step {turn}", tool_calls=[ToolCall(f"t{turn}", "ls", {"b": 1, "a": 2})])
        )
        messages.append(Message(TOOL, f"result {turn}", tool_call_id=f"t{turn}"))
    tools = [ToolSpec("ls", "lists", {"type": "object"})]
    return ModelRequest(system_prompt="s", messages=messages, tools=tools)


@pytest.mark.parametrize("turns", [0, 1, 2, 5])
def test_a_growing_conversation_hits_the_cache(turns: int) -> None:
    """Each step begins with the step before, and marks its own end and that one's; 4 marks in all."""
    earlier, later = body_of(long_talk(turns)), body_of(long_talk(turns + 1))
    kept = len(earlier["messages"])
    assert unmarked(later["messages"][:kept]) == unmarked(earlier["messages"])
    assert {**later, "messages": []} == {**earlier, "messages": []}
    assert later["messages"][-1]["content"][-1].items() >= MARK.items()
    assert later["messages"][kept - 1]["content"][-1].items() >= MARK.items()
    assert json.dumps(later).count('"cache_control"') == 4


@pytest.mark.parametrize(
    ("effort", "asked"),
    [
        ("", {"max_tokens": 100}),
        (
            "high",
            {
                "max_tokens": 100,
                "thinking": {"type": "adaptive", "display": "summarized"},
                "output_config": {"effort": "high"},
            },
        ),
        ("2000", {"max_tokens": 100, "thinking": {"type": "enabled", "budget_tokens": 2000}}),
        ("none", {"max_tokens": 100, "thinking": {"type": "disabled"}}),
    ],
)
def test_effort(effort: str, asked: dict[str, Any]) -> None:
    """A word is an effort, a number is a budget of tokens, and `none` is none."""
    body = body_of(ModelRequest(intent="hi", effort=effort, max_tokens=100))
    assert {name: body[name] for name in body if name not in ("model", "messages")} == asked


def test_a_budget_leaves_room_for_the_answer() -> None:
    """Where nobody limits the answer, the thinking does not eat it up."""
    body = body_of(ModelRequest(intent="hi", effort="50000"))
    assert body["max_tokens"] == 50_000 + limits.MODEL_ANSWER_TOKENS


# --- answers ---


def without_echo(answer: ModelAnswer) -> ModelAnswer:
    """An answer without what only its server reads."""
    answer.echo = {}
    return answer


ANSWER = ModelAnswer(
    content="Here: 世界",
    tokens_used=130,
    input_tokens=123,
    output_tokens=7,
    model="claude-sonnet-5-5",
    tool_calls=[ToolCall("toolu_1", "ls", {"path": "ä"})],
    stop_reason="tool_calls",
    reasoning="I should look.",
    cached_tokens=3,
)
BLOCKS = [THOUGHT, HIDDEN, text("Here: 世界"), CALL]


async def test_an_answer() -> None:
    """Text, thoughts, calls and all kinds of tokens are read; the cached ones are a part of the input."""
    answer, deltas = await ask(reply(message(BLOCKS, "tool_use")))
    assert without_echo(answer) == ANSWER
    assert deltas == [Delta("reasoning", "I should look."), Delta("text", "Here: 世界")]


async def test_a_stream() -> None:
    """A stream gives the same answer, and its pieces as they come."""
    answer, deltas = await ask(sse(stream_of(BLOCKS, "tool_use")))
    assert without_echo(answer) == ANSWER
    assert [delta.type for delta in deltas] == ["reasoning", "reasoning", "text", "text"]
    assert "".join(delta.text for delta in deltas) == "I should look.Here: 世界"


async def test_a_stream_cut_into_chunks_anywhere() -> None:
    """Where the network cuts a stream changes nothing."""
    stream = stream_of(BLOCKS, "tool_use")
    async with serving(reply(b"")) as server, model_of(server.url, server=SERVER) as model:
        for cut in range(0, len(stream), 13):
            server.handler = sse(stream[:cut], stream[cut : cut + 1], stream[cut + 1 :])
            assert without_echo(await model.complete(HI, nobody)) == ANSWER


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", "end"),
        ("stop_sequence", "end"),
        ("max_tokens", "max_tokens"),
        ("model_context_window_exceeded", "max_tokens"),
        ("refusal", "refusal"),
        ("pause_turn", "pause_turn"),
    ],
)
@streaming
async def test_reasons_to_stop(reason: str, stop: str, stream: bool) -> None:
    """Each reason to stop has its word."""
    content = [text("x")]
    answer, _ = await ask(sse(stream_of(content, reason)) if stream else reply(message(content, reason)))
    assert answer.stop_reason == stop


async def test_an_input_that_is_no_json() -> None:
    """A call whose input was cut off is marked, never lost."""
    start = stream_of([CALL], "max_tokens")
    at = start.rindex(b"input_json_delta")
    broken = start[: start.rindex(b"event:", 0, at)] + start[start.index(b"event: content_block_stop", at) :]
    answer, _ = await ask(sse(broken))
    (call,) = answer.tool_calls
    assert list(call.arguments) == [INVALID_ARGUMENTS]


async def test_counts_after_the_end() -> None:
    """A further event with counts takes nothing back of what the one before it said."""
    stream = stream_of([text("hello")], "max_tokens")
    at = stream.index(b"event: message_stop")
    late = anthropic.event("message_delta", delta={}, usage={"output_tokens": 9, "input_tokens": None})
    answer, _ = await ask(sse(stream[:at] + late + stream[at:]))
    assert (answer.stop_reason, answer.input_tokens, answer.output_tokens) == ("max_tokens", 123, 9)


async def test_events_that_nobody_knows_yet() -> None:
    """New kinds of events, blocks and pieces are passed over."""
    new = events(
        [
            {"type": "something_new", "index": 0},
            {"type": "content_block_start", "index": 9, "content_block": {"type": "new_block"}},
            {"type": "content_block_delta", "index": 9, "delta": {"type": "new_delta", "text": "no"}},
            {"type": "content_block_delta", "index": 9, "delta": {"type": "citations_delta", "citation": {}}},
        ]
    )
    stream = stream_of([text("hello")], "end_turn")
    at = stream.index(b"event: content_block_start")
    answer, _ = await ask(sse(stream[:at] + new + stream[at:]))
    assert answer.content == "hello"


# --- thoughts that come back ---


@streaming
async def test_thoughts_go_back_where_they_were(stream: bool) -> None:
    """The provider gets its signed thoughts back unchanged, each in its place among text and calls."""
    other = {**CALL, "id": "toolu_2"}
    blocks = [THOUGHT, text("first "), HIDDEN, text("second"), CALL, {**THOUGHT, "thinking": "And?"}, other]
    answer, _ = await ask(
        sse(stream_of(blocks, "tool_use")) if stream else reply(message(blocks, "tool_use"))
    )
    said = Message(ASSISTANT, answer.content, tool_calls=answer.tool_calls, echo=answer.echo)
    kept = msgspec.json.decode(msgspec.json.encode(said), type=Message)  # as the log keeps it
    sent = talk(Message(USER, "go"), kept)[1]["content"]
    assert sent == blocks


async def test_thoughts_go_to_no_other_server() -> None:
    """Signatures mean nothing to another server, which would refuse them."""
    answer, _ = await ask(reply(message(BLOCKS, "tool_use")))
    said = Message(ASSISTANT, answer.content, tool_calls=answer.tool_calls, echo=answer.echo)
    request = ModelRequest(messages=[Message(USER, "go"), said])
    assert "thinking" in json.dumps(body_of(request, SERVER)["messages"])
    assert "thinking" not in json.dumps(body_of(request, "http://127.0.0.1:8080")["messages"])


async def test_thoughts_without_calls_are_not_kept() -> None:
    """Only between a call and its result does the provider want them back."""
    answer, _ = await ask(reply(message([THOUGHT, text("done")], "end_turn")))
    assert answer.echo == {}
    assert answer.reasoning == "I should look."


def test_a_budget_waits_for_the_next_turn() -> None:
    """With a budget, results of calls that came without thoughts would be refused: it is left out there."""
    said = Message(ASSISTANT, tool_calls=[ToolCall("a", "f", {})])
    told = Message(TOOL, "r", tool_call_id="a")
    unsigned = ModelRequest(messages=[Message(USER, "go"), said, told], effort="2000")
    assert "thinking" not in body_of(unsigned)
    echo = {"anthropic": {"server": SERVER, "thinking": [[0, 0, THOUGHT]]}}
    signed = ModelRequest(
        messages=[Message(USER, "go"), Message(ASSISTANT, tool_calls=said.tool_calls, echo=echo), told],
        effort="2000",
    )
    assert body_of(signed)["thinking"] == {"type": "enabled", "budget_tokens": 2000}


# --- failures ---


@pytest.mark.parametrize(
    ("kind", "code", "status", "transient"),
    [
        ("overloaded_error", Code.SERVICE_UNAVAILABLE, 529, True),
        ("rate_limit_error", Code.SERVICE_UNAVAILABLE, 429, True),
        ("api_error", Code.DRIVER, 500, True),
        ("timeout_error", Code.TIMEOUT, 504, True),
        ("invalid_request_error", Code.INVALID, 400, False),
        ("authentication_error", Code.PERMISSION, 401, False),
        ("billing_error", Code.BUDGET_EXCEEDED, 402, False),
        ("permission_error", Code.PERMISSION, 403, False),
        ("not_found_error", Code.NOT_FOUND, 404, False),
        ("request_too_large", Code.TOO_LARGE, 413, False),
        ("new_error", Code.DRIVER, 0, False),
    ],
)
@pytest.mark.parametrize("begun", [False, True], ids=["at once", "after words"])
async def test_errors_inside_a_stream(
    kind: str, code: Code, status: int, transient: bool, begun: bool
) -> None:
    """An error in a stream means what its status would have meant, and words that came before it count."""
    error = anthropic.event("error", error={"type": kind, "message": "it broke"})
    first = httplab.PEERS[ANTHROPIC].half if begun else b""
    caught = await failure(sse(first + error))
    assert (caught.code, caught.status, caught.transient) == (code, status, transient)
    assert caught.reason == f"acme: it broke ({kind})"
    if begun:
        assert (caught.usage.input_tokens, caught.usage.output_tokens) == (123, 2)
    elif status:
        assert caught.usage.tokens == 0


@streaming
@pytest.mark.parametrize("body", [{"id": "x"}, {"content": None}, {"content": "text"}])
async def test_replies_that_are_none(body: Any, stream: bool) -> None:
    """A body with status 200 that holds no answer is a failure that shows it."""
    error = await failure(reply(body), stream)
    assert error.code == Code.DRIVER
    assert 'no "content"' in error.reason


# --- another opinion ---


async def test_the_official_client_reads_our_stub_alike() -> None:
    """The maker's own client gets the same answer from the same bytes, so that the stub is no fiction."""
    async with serving(sse(stream_of(BLOCKS, "tool_use"))) as server:

        def ask_it() -> Any:
            with sdk.Anthropic(api_key=KEY, base_url=server.url, max_retries=0) as client:
                arguments: dict[str, Any] = {"model": "m-1", "max_tokens": 10}
                with client.messages.stream(
                    messages=[{"role": "user", "content": "hi"}], **arguments
                ) as stream:
                    return stream.get_final_message()

        theirs = await trio.to_thread.run_sync(ask_it)
        async with model_of(server.url, server=SERVER) as model:
            ours = await model.complete(HI, nobody)
    assert [block.model_dump(exclude_none=True) for block in theirs.content] == BLOCKS
    assert (theirs.usage.output_tokens, theirs.stop_reason) == (ours.output_tokens, "tool_use")
    assert without_echo(ours) == ANSWER
