"""Models behind Google's Gemini API: its format, its thinking, its signatures and its refusals."""

import functools
import json
from typing import Any

import msgspec
import pytest

from rnixfs.errors import Code
from rnixfs.llm import Delta, Message, ModelAnswer, ModelRequest, Role, ToolCall, ToolSpec
from rnixfs.model import ModelError
from rnixfs.presets import GEMINI
from rnixfs.wire.gemini import UNSIGNED, GenerateContent
from tests.models import httplab
from tests.models.httplab import KEY, nobody
from tests.models.servers import Handler, events, reply, serving, sse

SERVER = "https://generativelanguage.googleapis.com"
HI = ModelRequest(intent="hi")
USER, ASSISTANT, TOOL, SYSTEM = Role.USER, Role.ASSISTANT, Role.TOOL, Role.SYSTEM
USAGE = {
    "promptTokenCount": 100,
    "cachedContentTokenCount": 60,
    "toolUsePromptTokenCount": 5,
    "candidatesTokenCount": 7,
    "thoughtsTokenCount": 30,
    "totalTokenCount": 142,
}

model_of = functools.partial(httplab.model_of, GEMINI)
streaming = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def piece(*parts: dict[str, Any], finish: str = "", **more: Any) -> dict[str, Any]:
    """A reply, or a piece of one."""
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "modelVersion": "gemini-3-pro-001", **more}


def call(name: str = "ls", signature: str = "", **more: Any) -> dict[str, Any]:
    """A part that asks for a tool."""
    part: dict[str, Any] = {"functionCall": {"name": name, "args": {"path": "ä"}, **more}}
    return {**part, "thoughtSignature": signature} if signature else part


def body_of(request: ModelRequest, model: str = "gemini-3-pro", server: str = SERVER) -> dict[str, Any]:
    """The decoded body of a request."""
    return dict(json.loads(GenerateContent(server).encode(request, model, False)))


def talk(*messages: Message, model: str = "gemini-3-pro") -> list[dict[str, Any]]:
    """The contents of a conversation on the wire."""
    return list(body_of(ModelRequest(messages=list(messages)), model)["contents"])


async def ask(handler: Handler, stream: bool = True) -> tuple[ModelAnswer, list[Delta]]:
    deltas: list[Delta] = []
    async with serving(handler) as server, model_of(server.url, server=SERVER) as model:
        return await model.complete(HI, deltas.append if stream else None), deltas


async def failure(handler: Handler, stream: bool = False) -> ModelError:
    async with serving(handler) as server, model_of(server.url) as model:
        with pytest.raises(ModelError) as caught:
            await model.complete(HI, nobody if stream else None)
    return caught.value


# --- requests ---


@streaming
@pytest.mark.parametrize("name", ["gemini-2.5-pro", "models/gemini-2.5-pro"])
async def test_request_on_the_wire(stream: bool, name: str) -> None:
    """A conversation with tools goes out in the provider's format; the model and the way are in the path."""
    request = ModelRequest(
        system_prompt="Be brief.",
        messages=[
            Message(USER, "list"),
            Message(ASSISTANT, "Let me see.", tool_calls=[ToolCall("id-1", "ls", {"path": "ä"})]),
            Message(TOOL, "a\nb", tool_call_id="id-1"),
        ],
        tools=[ToolSpec("ls", "lists", {"type": "object", "additionalProperties": False})],
        temperature=0.0,
        max_tokens=99,
        model=name,
    )
    answer = piece({"text": "ok"}, finish="STOP")
    handler = sse(events([answer])) if stream else reply(answer)
    async with serving(handler) as server, model_of(server.url) as model:
        await model.complete(request, nobody if stream else None)
    (seen,) = server.requests
    way = "streamGenerateContent?alt=sse" if stream else "generateContent"
    assert (seen.method, seen.path) == ("POST", f"/v1beta/models/gemini-2.5-pro:{way}")
    assert seen.headers["x-goog-api-key"] == KEY
    schema = {"type": "object", "additionalProperties": False}
    assert seen.json == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [
            {"functionDeclarations": [{"name": "ls", "description": "lists", "parametersJsonSchema": schema}]}
        ],
        "generationConfig": {"temperature": 0.0, "maxOutputTokens": 99},
        "contents": [
            {"role": "user", "parts": [{"text": "list"}]},
            {"role": "model", "parts": [{"text": "Let me see."}, call(id="id-1")]},
            {
                "role": "user",
                "parts": [{"functionResponse": {"id": "id-1", "name": "ls", "response": {"output": "a\nb"}}}],
            },
        ],
    }


def test_the_least_request() -> None:
    """What a request does not say is left out."""
    assert body_of(HI) == {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}


def test_speakers() -> None:
    """Results of parallel calls stand together and by themselves; texts of a speaker join, empty ones go."""
    calls = [ToolCall("a", "f", {}), ToolCall("b", "g", {})]
    shown = talk(
        Message(USER, "one"),
        Message(USER, "two"),
        Message(ASSISTANT, " ", tool_calls=calls),
        Message(TOOL, "1", tool_call_id="a"),
        Message(TOOL, "2", tool_call_id="b"),
        Message(SYSTEM, "three"),
        Message(USER, "four"),
        model="gemini-2.5-pro",
    )
    assert [(content["role"], len(content["parts"])) for content in shown] == [
        ("user", 2),
        ("model", 2),
        ("user", 2),
        ("user", 2),
    ]
    results = [part["functionResponse"] for part in shown[2]["parts"]]
    assert [(result["name"], result["response"]) for result in results] == [
        ("f", {"output": "1"}),
        ("g", {"output": "2"}),
    ]


def test_system_messages() -> None:
    """Instructions before the conversation join the system prompt."""
    request = ModelRequest(system_prompt="first", messages=[Message(SYSTEM, "second"), Message(USER, "hi")])
    body = body_of(request)
    assert body["systemInstruction"] == {"parts": [{"text": "first\n\nsecond"}]}
    assert body["contents"] == [{"role": "user", "parts": [{"text": "hi"}]}]


@pytest.mark.parametrize(
    ("effort", "config"),
    [
        ("low", {"thinkingLevel": "low", "includeThoughts": True}),
        ("2000", {"thinkingBudget": 2000, "includeThoughts": True}),
        ("0", {"thinkingBudget": 0, "includeThoughts": True}),
        ("-1", {"thinkingBudget": -1, "includeThoughts": True}),
    ],
)
def test_effort(effort: str, config: dict[str, Any]) -> None:
    """A word is a level, a number is a budget of tokens."""
    body = body_of(ModelRequest(intent="hi", effort=effort))
    assert body["generationConfig"] == {"thinkingConfig": config}


def test_a_growing_conversation_keeps_its_bytes() -> None:
    """The contents of a step begin with the bytes of the step before, so that the provider's cache hits."""
    messages = [Message(USER, "one")]
    dialect = GenerateContent(SERVER)
    tools = [ToolSpec("ls", "lists", {"type": "object"})]
    earlier = b""
    for turn in range(4):
        request = ModelRequest(system_prompt="s", messages=list(messages), tools=tools, max_tokens=9)
        later = dialect.encode(request, "gemini-3-pro", False)
        assert later.startswith(earlier.removesuffix(b"]}"))
        earlier = later
        messages.append(Message(ASSISTANT, tool_calls=[ToolCall(f"c{turn}", "ls", {"b": 1, "a": 2})]))
        messages.append(Message(TOOL, "x", tool_call_id=f"c{turn}"))


# --- answers ---


ANSWER = ModelAnswer(
    content="Here: 世界",
    tokens_used=142,
    input_tokens=105,
    output_tokens=37,
    model="gemini-3-pro-001",
    tool_calls=[ToolCall("id-1", "ls", {"path": "ä"}), ToolCall("id-2", "cat", {"path": "ä"})],
    stop_reason="tool_calls",
    reasoning="I should look.",
    cached_tokens=60,
    echo={"gemini": {"server": SERVER, "signatures": {"id-1": "c2lnbmVk"}}},
)
STREAM = [
    piece({"text": "I should ", "thought": True}, usageMetadata={"promptTokenCount": 100}),
    piece({"text": "look.", "thought": True}),
    piece({"text": "Here: "}),
    piece({"text": "世界"}, call(signature="c2lnbmVk", id="id-1")),
    piece(call("cat", id="id-2")),
    piece({"text": ""}, finish="STOP", usageMetadata=USAGE),
]


async def test_an_answer() -> None:
    """Text, thoughts, calls and all kinds of tokens are read."""
    parts = [part for one in STREAM for part in one["candidates"][0]["content"]["parts"]]
    answer, _ = await ask(reply(piece(*parts, finish="STOP", usageMetadata=USAGE)), stream=False)
    assert answer == ANSWER


async def test_a_stream() -> None:
    """A stream gives the same answer, and its pieces as they come."""
    answer, deltas = await ask(sse(events(STREAM)))
    assert answer == ANSWER
    assert deltas == [
        Delta("reasoning", "I should "),
        Delta("reasoning", "look."),
        Delta("text", "Here: "),
        Delta("text", "世界"),
    ]


async def test_a_stream_cut_into_chunks_anywhere() -> None:
    """Where the network cuts a stream changes nothing, nor do the line ends of Google's servers."""
    stream = events(STREAM).replace(b"\n", b"\r\n")
    async with serving(reply(b"")) as server, model_of(server.url, server=SERVER) as model:
        for cut in range(0, len(stream), 17):
            server.handler = sse(stream[:cut], stream[cut : cut + 1], stream[cut + 1 :])
            assert await model.complete(HI, nobody) == ANSWER


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("STOP", "end"),
        ("MAX_TOKENS", "max_tokens"),
        ("SAFETY", "refusal"),
        ("RECITATION", "refusal"),
        ("PROHIBITED_CONTENT", "refusal"),
        ("SOMETHING_NEW", "something_new"),
    ],
)
@streaming
async def test_reasons_to_stop(reason: str, stop: str, stream: bool) -> None:
    """Each reason to stop has its word."""
    answer = piece({"text": "x"}, finish=reason)
    got, _ = await ask(sse(events([answer])) if stream else reply(answer), stream)
    assert (got.content, got.stop_reason) == ("x", stop)


@streaming
async def test_a_blocked_prompt(stream: bool) -> None:
    """A prompt that is blocked gives a refusal with its reason, and its tokens count."""
    feedback = {"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": "not this"}
    body = {"promptFeedback": feedback, "usageMetadata": {"promptTokenCount": 12, "totalTokenCount": 12}}
    answer, _ = await ask(sse(events([body])) if stream else reply(body), stream)
    assert answer.stop_reason == "refusal"
    assert answer.content == "the prompt was blocked: PROHIBITED_CONTENT: not this"
    assert (answer.tokens_used, answer.estimated) == (12, False)


@streaming
async def test_a_blocked_answer(stream: bool) -> None:
    """An answer that a filter took away whole says so."""
    body = {"candidates": [{"finishReason": "SAFETY", "index": 0}], "usageMetadata": USAGE}
    answer, _ = await ask(sse(events([body])) if stream else reply(body), stream)
    assert (answer.stop_reason, answer.content) == ("refusal", "the answer was blocked: SAFETY")


@streaming
async def test_a_call_that_cannot_be_read(stream: bool) -> None:
    """What the model meant as a call but is none may be better next time; what it cost counts."""
    body = {"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}], "usageMetadata": USAGE}
    error = await failure(sse(events([body])) if stream else reply(body), stream)
    assert (error.code, error.transient) == (Code.DRIVER, True)
    assert "MALFORMED_FUNCTION_CALL" in error.reason
    assert (error.usage.input_tokens, error.usage.output_tokens) == (105, 37)


@streaming
@pytest.mark.parametrize("body", [{}, {"candidates": []}, piece({"text": "and th"})])
async def test_replies_that_are_none(body: dict[str, Any], stream: bool) -> None:
    """A reply without an end is no answer."""
    error = await failure(sse(events([body])) if stream else reply(body), stream)
    assert error.code == Code.DRIVER


# --- calls, their names and signatures ---


async def test_calls_without_names() -> None:
    """Calls that the server does not name get names that differ from step to step, for us alone."""
    handler = reply(piece(call(), call("cat"), finish="STOP"))
    async with serving(handler) as server, model_of(server.url, server=SERVER) as model:
        first = await model.complete(ModelRequest(intent="one"))
        second = await model.complete(ModelRequest(intent="two"))
    names = [one.id for answer in (first, second) for one in answer.tool_calls]
    assert len(set(names)) == 4
    said = Message(ASSISTANT, tool_calls=first.tool_calls)
    told = [Message(TOOL, "r", tool_call_id=one.id) for one in first.tool_calls]
    _, model_says, results = talk(Message(USER, "one"), said, *told, model="gemini-2.5-pro")
    assert model_says["parts"] == [call(), call("cat")]
    sent = [part["functionResponse"] for part in results["parts"]]
    assert [list(one) for one in sent] == [["name", "response"]] * 2
    assert [one["name"] for one in sent] == ["ls", "cat"]


@streaming
async def test_signatures_go_back(stream: bool) -> None:
    """The provider gets the signature of a call back with that call, also after the log kept it."""
    parts = [call(id="a", signature="c2ln"), call("cat", id="b"), call("wc", id="c", signature="Mm5k")]
    body = piece(*parts, finish="STOP")
    answer, _ = await ask(sse(events([body])) if stream else reply(body), stream)
    said = Message(ASSISTANT, answer.content, tool_calls=answer.tool_calls, echo=answer.echo)
    kept = msgspec.json.decode(msgspec.json.encode(said), type=Message)
    assert talk(Message(USER, "go"), kept)[1]["parts"] == parts


@pytest.mark.parametrize(
    ("model", "signed"),
    [
        ("gemini-3-pro", True),
        ("gemini-flash-latest", True),
        ("gemini-2.5-pro", False),
        ("models/gemini-1.5-pro", False),
    ],
)
def test_calls_of_other_models(model: str, signed: bool) -> None:
    """Calls that another model made go with the mark that newer models ask for; older ones get none."""
    echo = {
        "anthropic": {"server": "x", "thinking": []},
        "gemini": {"server": "other", "signatures": {"a": "no"}},
    }
    said = Message(ASSISTANT, tool_calls=[ToolCall("a", "f", {}), ToolCall("b", "g", {})], echo=echo)
    parts = talk(Message(USER, "go"), said, model=model)[1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == [UNSIGNED if signed else None, None]


# --- failures ---


async def test_when_to_come_again_is_in_the_body() -> None:
    """Google says it in the error's details."""
    details = [
        {"@type": "type.googleapis.com/google.rpc.Help", "links": []},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "8.5s"},
    ]
    body = {"error": {"code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED", "details": details}}
    error = await failure(reply(body, 429))
    assert (error.code, error.transient, error.retry_after) == (Code.SERVICE_UNAVAILABLE, True, 8.5)
    assert error.reason == "acme: HTTP 429: quota (RESOURCE_EXHAUSTED, 429); retry after 8.5 s"


async def test_an_error_inside_a_stream() -> None:
    """An error after the first words is an error, with its status."""
    error = await failure(
        sse(events([STREAM[0], {"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}])),
        stream=True,
    )
    assert (error.code, error.status, error.transient) == (Code.SERVICE_UNAVAILABLE, 503, True)
    assert error.usage.input_tokens == 100


async def test_only_models_that_can_answer_are_listed() -> None:
    """Models for other purposes are no models here."""
    listed = {
        "models": [
            {"name": "models/embedding-1", "supportedGenerationMethods": ["embedContent"]},
            {
                "name": "models/gemini-x",
                "inputTokenLimit": 5,
                "supportedGenerationMethods": ["generateContent"],
            },
        ]
    }
    async with serving(reply(listed)) as server, model_of(server.url) as model:
        assert [one.name for one in await model.check()] == ["gemini-x"]
