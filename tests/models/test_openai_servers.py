"""What servers behind OpenAI-compatible HTTP do in their own way."""

import functools
import json
from typing import Any

import pytest

from rnixfs.llm import Message, ModelRequest, Role, ToolCall
from rnixfs.model import ModelInfo
from rnixfs.presets import OPENAI_COMPAT
from rnixfs.wire.openai import Chat
from tests.models import httplab
from tests.models.httplab import nobody
from tests.models.servers import events, reply, serving, sse
from tests.models.test_openai import USAGE, ask_streaming, completion, delta

model_of = functools.partial(httplab.model_of, OPENAI_COMPAT)


def encoded(request: ModelRequest, server: str) -> dict[str, Any]:
    """The decoded body of a request to a server."""
    return dict(json.loads(Chat(server).encode(request, "m-1", False)))


@pytest.mark.parametrize(
    ("server", "field"),
    [
        ("https://api.openai.com/v1", "max_completion_tokens"),
        ("https://api.groq.com/openai/v1", "max_tokens"),
        ("http://127.0.0.1:11434/v1", "max_tokens"),
    ],
)
def test_the_name_of_the_limit(server: str, field: str) -> None:
    """OpenAI itself takes the new name of the limit, everybody else the old one."""
    body = encoded(ModelRequest(intent="hi", max_tokens=5, effort="low"), server)
    assert {name: body[name] for name in body if name not in ("model", "messages")} == {
        field: 5,
        "reasoning_effort": "low",
    }


DEEPSEEK = "https://api.deepseek.com/v1"
CALLED = {"id": "a", "function": {"name": "ls", "arguments": "{}"}}


@pytest.mark.parametrize("stream", [False, True])
async def test_thoughts_beside_calls_go_back(stream: bool) -> None:
    """DeepSeek refuses a conversation whose calls miss the thoughts that led to them."""
    message = {"reasoning_content": "thoughts", "tool_calls": [CALLED]}
    pieces = [{"reasoning_content": "thou"}, {"reasoning_content": "ghts"}, {"tool_calls": [CALLED]}]
    chunks = [{"choices": [{"index": 0, "delta": piece}]} for piece in pieces]
    handler = (
        sse(events([*chunks, delta(None, "tool_calls"), "[DONE]"])) if stream else reply(completion(message))
    )
    async with serving(handler) as server, model_of(server.url, server=DEEPSEEK) as model:
        answer = await model.complete(ModelRequest(intent="hi"), nobody if stream else None)
    said = Message(Role.ASSISTANT, answer.content, tool_calls=answer.tool_calls, echo=answer.echo)
    request = ModelRequest(messages=[Message(Role.USER, "hi"), said])
    assert encoded(request, DEEPSEEK)["messages"][1]["reasoning_content"] == "thoughts"
    # Others refuse fields that they do not know.
    assert "reasoning_content" not in encoded(request, "https://api.groq.com/openai/v1")["messages"][1]


def test_calls_of_other_models() -> None:
    """DeepSeek takes calls that another model made when their thoughts are there, though empty."""
    said = Message(Role.ASSISTANT, tool_calls=[ToolCall("a", "ls", {})])
    request = ModelRequest(messages=[Message(Role.USER, "hi"), said, Message(Role.ASSISTANT, "done")])
    _, called, done = encoded(request, DEEPSEEK)["messages"]
    assert called["reasoning_content"] == ""
    assert "reasoning_content" not in done


async def test_details_of_reasoning_go_back() -> None:
    """OpenRouter's pieces of signed thoughts come back to it as it would have sent them whole."""
    pieces = [
        {"type": "reasoning.text", "text": "thou", "index": 0, "format": "f", "signature": None},
        {"type": "reasoning.text", "text": "ghts", "index": 0, "format": "f", "signature": None},
        {"type": "reasoning.text", "index": 0, "signature": "c2ln"},
        {"type": "reasoning.encrypted", "data": "aa", "index": 1, "id": "a"},
    ]
    chunks = [{"choices": [{"index": 0, "delta": {"reasoning_details": [piece]}}]} for piece in pieces]
    stream = events([*chunks, delta(None, tool_calls=[CALLED]), delta(None, "tool_calls"), "[DONE]"])
    answer, _ = await ask_streaming(sse(stream))
    (kept,) = answer.echo.values()
    assert kept["reasoning_details"] == [
        {"type": "reasoning.text", "text": "thoughts", "index": 0, "format": "f", "signature": "c2ln"},
        {"type": "reasoning.encrypted", "data": "aa", "index": 1, "id": "a"},
    ]
    said = Message(Role.ASSISTANT, tool_calls=answer.tool_calls, echo=answer.echo)
    body = encoded(ModelRequest(messages=[said]), kept["server"])
    assert body["messages"][0]["reasoning_details"] == kept["reasoning_details"]


def test_long_names_of_calls() -> None:
    """OpenAI takes names of 40 characters: longer ones of other servers are cut alike in call and result."""
    names = ["chatcmpl-tool-" + "0" * 32, "chatcmpl-tool-" + "0" * 31 + "1", "call_1"]
    calls = [ToolCall(name, "ls", {}) for name in names]
    told = [Message(Role.TOOL, "r", tool_call_id=name) for name in names]
    messages = [Message(Role.ASSISTANT, tool_calls=calls), *told]
    said, *results = encoded(ModelRequest(messages=messages), "https://api.openai.com/v1")["messages"]
    sent = [one["id"] for one in said["tool_calls"]]
    assert sent == [one["tool_call_id"] for one in results]
    assert len(set(sent)) == 3
    assert sent[2] == "call_1"
    assert max(map(len, sent)) == 40


async def test_usage_in_a_field_of_its_own() -> None:
    """Groq streams its counts in another place."""
    answer, _ = await ask_streaming(
        sse(events([delta("x"), {**delta(None, "stop"), "x_groq": {"usage": USAGE}}]))
    )
    assert (answer.input_tokens, answer.output_tokens, answer.estimated) == (12, 5, False)


@pytest.mark.parametrize(
    ("entry", "window"),
    [
        ({"max_model_len": 32768}, 32768),
        ({"context_length": 200000}, 200000),
        ({"context_window": 131072}, 131072),
        ({"max_context_length": 4096}, 4096),
        ({"meta": {"n_ctx": 2048, "n_ctx_train": 8192}}, 2048),
        ({"meta": {"n_ctx_train": 8192}}, 8192),
        ({"meta": None, "context_length": None}, 0),
        ({}, 0),
    ],
)
async def test_windows_in_lists_of_models(entry: dict[str, Any], window: int) -> None:
    """Windows are read where vLLM, OpenRouter, Groq, LM Studio and llama.cpp tell them."""
    body = {"object": "list", "data": [{"id": "m", "object": "model", **entry}, {"object": "junk"}, 5]}
    async with serving(reply(body)) as server, model_of(server.url) as model:
        assert await model.check() == [ModelInfo("m", window)]
    assert server.requests[0].path == "/v1/models"
