"""Models behind OpenAI-compatible HTTP, over real HTTP on the loopback."""

import functools
import json
import socket
import ssl
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from rnixfs import limits
from rnixfs.errors import Code, SyscallError
from rnixfs.llm import Delta, Message, ModelAnswer, ModelRequest, Role, ToolCall, ToolSpec
from rnixfs.presets import OPENAI_COMPAT
from rnixfs.wire.dialect import INVALID_ARGUMENTS
from tests.models import httplab, servers
from tests.models.httplab import KEY, nobody
from tests.models.servers import Handler, Server, events, reply, serving, sse

USAGE = {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}


def completion(message: dict[str, Any], finish: str = "stop", **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    body = {"id": "c1", "object": "chat.completion", "model": "m-1", "choices": [choice], "usage": USAGE}
    return body | more


def delta(content: str | None = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    change = fields if content is None else {"content": content, **fields}
    choice = {"index": 0, "delta": change, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "model": "m-1", "choices": [choice]}


def call(arguments: Any, name: str = "read", **more: Any) -> dict[str, Any]:
    return {"id": "call_9", "type": "function", "function": {"name": name, "arguments": arguments}} | more


model_of = functools.partial(httplab.model_of, OPENAI_COMPAT)


async def ask(handler: Handler, request: ModelRequest | None = None) -> tuple[ModelAnswer, Server]:
    async with serving(handler) as server, model_of(server.url) as model:
        answer = await model.complete(request or ModelRequest(intent="hi"))
    return answer, server


async def ask_streaming(handler: Handler) -> tuple[ModelAnswer, list[Delta]]:
    deltas: list[Delta] = []
    async with serving(handler) as server, model_of(server.url) as model:
        answer = await model.complete(ModelRequest(intent="hi", stream=True), deltas.append)
    return answer, deltas


async def failure(handler: Handler, stream: bool = False) -> SyscallError:
    request = ModelRequest(intent="hi")
    async with serving(handler) as server, model_of(server.url) as model:
        with pytest.raises(SyscallError) as caught:
            await model.complete(request, nobody if stream else None)
    return caught.value


async def test_text_and_tokens() -> None:
    """An answer carries the text, the provider's own counts, its model, and no estimate."""
    answer, _ = await ask(reply(completion({"content": "hello"})))
    assert answer == ModelAnswer(
        content="hello", tokens_used=17, input_tokens=12, output_tokens=5, model="m-1", stop_reason="end"
    )


async def test_request_on_the_wire() -> None:
    """A conversation with tools goes out in the provider's format, the key in its header alone."""
    request = ModelRequest(
        system_prompt="Be brief.",
        messages=[
            Message(role=Role.USER, content="list"),
            Message(
                role=Role.ASSISTANT,
                tool_calls=[ToolCall(id="call_1", name="ls", arguments={"path": "ä", "depth": 1})],
            ),
            Message(role=Role.TOOL, content="a\nb", tool_call_id="call_1"),
        ],
        tools=[ToolSpec(name="ls", description="lists", input_schema={"type": "object"})],
        temperature=0.0,
        max_tokens=99,
        model="m-2",
    )
    _, server = await ask(reply(completion({"content": "ok"})), request)
    (seen,) = server.requests
    assert (seen.method, seen.path) == ("POST", "/v1/chat/completions")
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    assert seen.headers["content-type"] == "application/json"
    body = seen.json
    arguments = body["messages"][2]["tool_calls"][0]["function"].pop("arguments")
    assert json.loads(arguments) == {"path": "ä", "depth": 1}
    assert body == {
        "model": "m-2",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "list"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "ls"}}],
            },
            {"role": "tool", "content": "a\nb", "tool_call_id": "call_1"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": "ls", "description": "lists", "parameters": {"type": "object"}},
            }
        ],
        "temperature": 0.0,
        "max_tokens": 99,
    }
    assert KEY.encode() not in seen.content


async def test_an_intent_is_the_only_message() -> None:
    """A request without messages sends its intent as the user's words, and nothing it does not say."""
    _, server = await ask(reply(completion({"content": "ok"})))
    assert server.requests[0].json == {"model": "m-1", "messages": [{"role": "user", "content": "hi"}]}


async def test_a_growing_conversation_keeps_its_bytes() -> None:
    """The messages of a step begin with the bytes of the step before, so that prompt caches hit."""
    messages = [Message(role=Role.USER, content="one")]
    first = ModelRequest(system_prompt="s", messages=list(messages))
    messages.append(
        Message(role=Role.ASSISTANT, tool_calls=[ToolCall(id="c", name="ls", arguments={"b": 1, "a": 2})])
    )
    messages.append(Message(role=Role.TOOL, content="x", tool_call_id="c"))
    second = ModelRequest(system_prompt="s", messages=messages)
    async with serving(reply(completion({"content": "ok"}))) as server, model_of(server.url) as model:
        await model.complete(first)
        await model.complete(second)
    earlier, later = (seen.content for seen in server.requests)
    assert later.startswith(earlier.removesuffix(b"]}"))


async def test_several_calls_share_one_client() -> None:
    """Calls at the same time each get their own answer."""

    async def handler(seen: servers.Seen, stream: servers.Stream) -> None:
        await reply(completion({"content": seen.json["messages"][0]["content"]}))(seen, stream)

    answers: dict[str, str] = {}
    async with serving(handler) as server, model_of(server.url) as model, trio.open_nursery() as nursery:

        async def one(text: str) -> None:
            answers[text] = (await model.complete(ModelRequest(intent=text))).content

        for number in range(10):
            nursery.start_soon(one, f"n{number}")
    assert answers == {f"n{number}": f"n{number}" for number in range(10)}


@pytest.mark.parametrize(
    ("message", "finish", "content", "stop"),
    [
        ({"content": "<think>so</think>x"}, "stop", "<think>so</think>x", "end"),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "stop", "ab", "end"),
        ({"content": "cut"}, "length", "cut", "max_tokens"),
        ({"content": None}, "stop", "", "end"),
        ({"content": ""}, "content_filter", "", "content_filter"),
        ({"content": None, "refusal": "I will not."}, "stop", "I will not.", "refusal"),
    ],
)  # fmt: skip
async def test_shapes_of_messages(message: dict[str, Any], finish: str, content: str, stop: str) -> None:
    """The text is found in every form, and each way to stop has its word."""
    answer, _ = await ask(reply(completion(message, finish)))
    assert (answer.content, answer.stop_reason) == (content, stop)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (call('{"path": "a"}'), ToolCall("call_9", "read", {"path": "a"})),
        (call({"path": "a"}), ToolCall("call_9", "read", {"path": "a"})),
        (call(""), ToolCall("call_9", "read", {})),
        (call("null"), ToolCall("call_9", "read", {})),
        (call(None), ToolCall("call_9", "read", {})),
        (call('{"path": '), ToolCall("call_9", "read", {INVALID_ARGUMENTS: '{"path": '})),
        (call('["a"]'), ToolCall("call_9", "read", {INVALID_ARGUMENTS: '["a"]'})),
    ],
)
async def test_shapes_of_tool_calls(entry: dict[str, Any], expected: ToolCall) -> None:
    """Arguments arrive as a dict whatever their form; such that are no object are marked, never lost."""
    answer, _ = await ask(reply(completion({"content": None, "tool_calls": [entry]}, "tool_calls")))
    assert answer.tool_calls == [expected]
    assert answer.stop_reason == "tool_calls"


async def test_tool_calls_with_the_wrong_finish_reason() -> None:
    """Tool calls are the reason to stop even where a server says "stop"."""
    answer, _ = await ask(reply(completion({"content": "so", "tool_calls": [call("{}")]}, "stop")))
    assert (answer.stop_reason, answer.content) == ("tool_calls", "so")


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": None}, {"prompt_tokens": 0}])
async def test_no_usage_is_estimated(usage: Any) -> None:
    """Tokens are never 0: without a provider's count they are estimated and marked so."""
    answer, _ = await ask(reply(completion({"content": "12345678"}, usage=usage)))
    assert answer.estimated
    assert answer.output_tokens == 2
    assert answer.tokens_used == answer.input_tokens + 2 > 2


async def test_price_of_the_provider() -> None:
    """A price that comes with the usage is the cost of the call."""
    answer, _ = await ask(reply(completion({"content": "x"}, usage={**USAGE, "cost": 0.0125})))
    assert answer.cost_usd == 0.0125


@pytest.mark.parametrize(
    ("details", "cached"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 8}}, 8),
        ({"prompt_cache_hit_tokens": 8, "prompt_cache_miss_tokens": 4}, 8),
        ({"prompt_tokens_details": None}, 0),
        ({"completion_tokens_details": {"reasoning_tokens": 3}}, 0),
    ],
)
async def test_cached_tokens(details: dict[str, Any], cached: int) -> None:
    """Cached tokens are found in both of their places; they and reasoning are parts of the sums, not more."""
    answer, _ = await ask(reply(completion({"content": "x"}, usage={**USAGE, **details})))
    assert (answer.cached_tokens, answer.input_tokens, answer.output_tokens) == (cached, 12, 5)
    assert answer.tokens_used == 17


@pytest.mark.parametrize(
    "message",
    [
        {"content": "x", "reasoning_content": "thoughts"},
        {"content": "x", "reasoning": "thoughts"},
        {"content": "x", "reasoning": "thoughts", "reasoning_content": "thoughts"},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "thoughts"}]},
                     {"type": "text", "text": "x"}]},
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
async def test_shapes_of_reasoning(message: dict[str, Any], stream: bool) -> None:
    """Reasoning is found in each of its places, once, and never in the text."""
    chunks: list[dict[str, Any] | str] = [
        {"choices": [{"index": 0, "delta": message}]},
        delta(None, "stop"),
        "[DONE]",
    ]
    deltas: list[Delta] = []
    handler = sse(events(chunks)) if stream else reply(completion(message))
    async with serving(handler) as server, model_of(server.url) as model:
        answer = await model.complete(ModelRequest(intent="hi"), deltas.append)
    assert (answer.content, answer.reasoning) == ("x", "thoughts")
    assert deltas == [Delta("reasoning", "thoughts"), Delta("text", "x")]


async def test_calls_that_have_no_name() -> None:
    """Calls without a name of the server's get one each, other ones in another step."""
    handler = reply(completion({"tool_calls": [call("{}", id=None), call("{}", id=None)]}, "tool_calls"))
    async with serving(handler) as server, model_of(server.url) as model:
        answers = [await model.complete(ModelRequest(intent=text)) for text in ("one", "two")]
    assert len({one.id for answer in answers for one in answer.tool_calls}) == 4


ERROR = {"error": {"message": "it broke", "type": "t", "code": "c"}}


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, Code.INVALID), (401, Code.PERMISSION), (402, Code.BUDGET_EXCEEDED), (403, Code.PERMISSION),
        (404, Code.NOT_FOUND), (408, Code.TIMEOUT), (409, Code.INVALID), (413, Code.TOO_LARGE),
        (422, Code.INVALID), (429, Code.SERVICE_UNAVAILABLE), (500, Code.DRIVER), (502, Code.DRIVER),
        (503, Code.SERVICE_UNAVAILABLE), (504, Code.TIMEOUT), (301, Code.DRIVER), (204, Code.DRIVER),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
async def test_status_codes(status: int, code: Code, stream: bool) -> None:
    """Each HTTP status has its code, and the error names provider and status."""
    error = await failure(reply(b"" if status == 204 else json.dumps(ERROR), status), stream)
    assert error.code == code
    assert f"acme: HTTP {status}: " in error.reason


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (ERROR, "it broke (t, c)"),
        ({"error": "it broke"}, "it broke"),
        ({"error": {"message": "it broke", "type": None, "code": 400}}, "it broke (400)"),
        ({"object": "error", "message": "it broke"}, "it broke"),
        ({"detail": "it broke"}, "it broke"),
        ({"detail": [{"loc": ["body"], "msg": "it broke"}]}, "it broke"),
        ([ERROR], "it broke (t, c)"),
        ({"strange": 1}, '{"strange": 1}'),
        ("it broke", "it broke"),
        ("", "no text in the reply"),
        ("<html><head><title>502 Bad\nGateway</title></head><body>x</body>", "a web page: 502 Bad Gateway"),
        ("<p>it <b>broke</b></p>", "a web page: it broke"),
        (b"\xff\xfe broke", "broke"),
    ],
)
async def test_error_bodies(body: Any, text: str) -> None:
    """The words of an error are found in every shape that servers give them."""
    error = await failure(reply(body, 500))
    assert error.code == Code.DRIVER
    assert text in error.reason
    assert "\n" not in error.reason


async def test_retry_after_is_told() -> None:
    """Who is limited learns for how long."""
    error = await failure(reply(ERROR, 429, retry_after="7"))
    assert error.reason == "acme: HTTP 429: it broke (t, c); retry after 7 s"


async def test_redirects_are_not_followed() -> None:
    """A key is not sent wherever a server points; the error says where that is."""
    error = await failure(reply("", 307, location="http://elsewhere.example/v1"))
    assert "http://elsewhere.example/v1" in error.reason


@pytest.mark.parametrize("stream", [False, True])
async def test_the_key_is_in_no_error(stream: bool) -> None:
    """Servers that repeat a wrong key do not get it into a trace."""
    error = await failure(reply({"error": f"bad key {KEY}"}, 401), stream)
    assert KEY not in str(error)
    assert "bad key ***" in error.reason


async def test_long_errors_are_cut_and_say_so() -> None:
    """A provider's page of words becomes a bounded text that tells what is missing."""
    error = await failure(reply("x" * 10_000, 500))
    assert len(error.reason) < limits.MODEL_ERROR_MAX + 100
    assert "more characters" in error.reason


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        ("this is no JSON", Code.DRIVER, "no JSON"),
        ("", Code.DRIVER, "no JSON"),
        ("[1]", Code.DRIVER, "no JSON object"),
        ({"id": "x"}, Code.DRIVER, "choices"),
        ({"choices": []}, Code.DRIVER, "choices"),
        ({"choices": [{"message": None}]}, Code.DRIVER, "choices"),
        (b'{"choices": "\xff"}', Code.DRIVER, "no JSON"),
        ({"error": {"message": "slow down", "code": 429}}, Code.SERVICE_UNAVAILABLE, "slow down"),
        ({"error": "odd"}, Code.DRIVER, "odd"),
        (completion({"tool_calls": [{"id": "c", "function": {"arguments": "{}"}}]}), Code.DRIVER, "names no"),
    ],
)
async def test_replies_that_are_none(body: Any, code: Code, text: str, stream: bool) -> None:
    """A body with status 200 that holds no answer is a failure with its reason, asked as stream or not."""
    error = await failure(reply(body), stream)
    assert error.code == code
    assert text in error.reason


async def test_a_reply_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply that passes its limit ends with an error, not with the memory."""
    monkeypatch.setattr(limits, "MODEL_REPLY_MAX", 1000)
    endless = events([delta("x" * 100)]) * 50
    assert (await failure(reply(completion({"content": "x" * 1000})))).code == Code.TOO_LARGE
    assert (await failure(sse(endless), stream=True)).code == Code.TOO_LARGE


STREAM = events(
    [
        delta("", role="assistant"),
        delta(None, reasoning_content="hm"),
        delta("Grüße, "),
        delta("世界 🌍"),
        delta(None, tool_calls=[{"index": 0, "id": "a", "function": {"name": "ls", "arguments": ""}}]),
        delta(None, tool_calls=[{"index": 0, "function": {"arguments": '{"p":'}}]),
        delta(None, tool_calls=[{"index": 0, "function": {"arguments": '"é"}'}}]),
        delta(None, "tool_calls"),
        {"model": "m-1", "choices": [], "usage": USAGE},
        "[DONE]",
    ]
)
STREAMED = ModelAnswer(
    content="Grüße, 世界 🌍",
    tokens_used=17,
    input_tokens=12,
    output_tokens=5,
    model="m-1",
    tool_calls=[ToolCall("a", "ls", {"p": "é"})],
    stop_reason="tool_calls",
    reasoning="hm",
)


def plain(answer: ModelAnswer) -> ModelAnswer:
    """An answer without what only its server reads."""
    return msgspec.structs.replace(answer, echo={})


async def test_a_stream() -> None:
    """Text is handed out piece by piece; the answer at the end is that of a call without stream."""
    answer, deltas = await ask_streaming(sse(STREAM))
    assert plain(answer) == STREAMED
    assert deltas == [Delta("reasoning", "hm"), Delta("text", "Grüße, "), Delta("text", "世界 🌍")]


async def test_a_stream_asks_for_its_usage() -> None:
    """Streams count tokens only when asked to."""
    async with serving(sse(STREAM)) as server, model_of(server.url) as model:
        await model.complete(ModelRequest(intent="hi"), nobody)
    body = server.requests[0].json
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})


async def test_a_stream_cut_into_chunks_anywhere() -> None:
    """Where the network cuts a stream changes nothing, at whatever byte it does."""
    async with serving(reply("")) as server, model_of(server.url) as model:
        for cut in range(0, len(STREAM), 3):
            server.handler = sse(STREAM[:cut], STREAM[cut : cut + 1], STREAM[cut + 1 :])
            deltas: list[Delta] = []
            assert plain(await model.complete(ModelRequest(intent="hi"), deltas.append)) == STREAMED
            assert "".join(delta.text for delta in deltas) == f"hm{STREAMED.content}"


@pytest.mark.parametrize("end", [True, False])
async def test_a_stream_that_ends_early_anywhere(end: bool) -> None:
    """A stream that ends before the model is done is a failure, never a shorter answer.

    With `end` the server closes the body properly; without, the connection breaks.
    """
    last = STREAM.index(b'"finish_reason": "tool_calls"')
    done = STREAM.index(b"[DONE]")
    async with serving(reply("")) as server, model_of(server.url) as model:
        for cut in range(0, last if end else done, 7):
            server.handler = sse(STREAM[:cut], end=end)
            with pytest.raises(SyscallError) as caught:
                await model.complete(ModelRequest(intent="hi"), nobody)
            assert caught.value.code == Code.DRIVER
            assert "complete" in caught.value.reason


async def test_a_stream_without_end_mark_or_usage() -> None:
    """Some servers send neither `[DONE]` nor usage: the finish reason completes the answer."""
    answer, _ = await ask_streaming(sse(events([delta("hi"), delta(None, "stop")])))
    assert (answer.content, answer.stop_reason, answer.estimated) == ("hi", "end", True)


async def test_line_ends_and_comments_of_streams() -> None:
    """CRLF, comments, other fields and keep-alive lines are as good as none."""
    stream = b": ping\r\n\r\nevent: x\r\nid: 1\r\n" + events([delta("a", "stop")]).replace(b"\n", b"\r\n")
    answer, _ = await ask_streaming(sse(stream + b"data:[DONE]\r\n\r\n"))
    assert answer.content == "a"


async def test_a_server_that_never_closes_after_the_end_mark() -> None:
    """The end mark ends the answer; nobody waits for the connection."""
    async with serving(reply("")) as server, model_of(server.url) as model:
        start = servers.head(200, {"content-type": "text/event-stream"})
        server.handler = servers.hang(server, start + STREAM)
        assert plain(await model.complete(ModelRequest(intent="hi"), nobody)) == STREAMED
        await server.hung_up.wait()


async def test_an_error_inside_a_stream() -> None:
    """An error after the first words is an error."""
    broken = events([delta("some"), {"error": {"message": "overloaded", "code": 503}}])
    error = await failure(sse(broken), stream=True)
    assert (error.code, error.reason) == (Code.SERVICE_UNAVAILABLE, "acme: overloaded (503)")


async def test_junk_inside_a_stream() -> None:
    """An event that is no JSON is an error that shows it."""
    error = await failure(sse(events(["{nonsense"])), stream=True)
    assert error.code == Code.DRIVER
    assert "{nonsense" in error.reason


async def test_parallel_calls_in_a_stream() -> None:
    """Pieces of several calls find together, also where every call has the index 0."""
    pieces = [
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}}],
        [{"index": 1, "id": "b", "function": {"name": "g", "arguments": '{"x":1}'}}],
        [{"index": 0, "function": {"arguments": "}"}}],
        [{"index": 0, "id": "c", "function": {"name": "h", "arguments": "{}"}}],
    ]
    stream = events([delta(None, tool_calls=piece) for piece in pieces] + [delta(None, "stop"), "[DONE]"])
    answer, _ = await ask_streaming(sse(stream))
    assert answer.tool_calls == [
        ToolCall("a", "f", {}), ToolCall("b", "g", {"x": 1}), ToolCall("c", "h", {})
    ]  # fmt: skip


async def test_a_server_that_cannot_stream() -> None:
    """A whole answer to a request for a stream is handed out as one piece."""
    answer, deltas = await ask_streaming(reply(completion({"content": "whole", "reasoning": "hm"})))
    assert (answer.content, answer.reasoning) == ("whole", "hm")
    assert deltas == [Delta("reasoning", "hm"), Delta("text", "whole")]


async def test_a_reader_that_refuses_more() -> None:
    """A failure of whoever takes the text ends the call and arrives unchanged."""
    refusal = SyscallError(Code.TOO_LARGE, "enough")

    def emit(_: Delta) -> None:
        raise refusal

    async with serving(sse(STREAM)) as server, model_of(server.url) as model:
        with pytest.raises(SyscallError) as caught:
            await model.complete(ModelRequest(intent="hi"), emit)
    assert caught.value is refusal


async def test_nobody_listens() -> None:
    """A refused connection says where, and asks the right question."""
    with socket.socket() as silent:  # held, so that nobody else listens at its port
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        async with model_of(f"http://127.0.0.1:{port}") as model:
            with pytest.raises(SyscallError) as caught:
                await model.complete(ModelRequest(intent="hi"))
    assert caught.value.code == Code.SERVICE_UNAVAILABLE
    assert f"127.0.0.1:{port}" in caught.value.reason
    assert "is the server running?" in caught.value.reason


async def test_an_unknown_host() -> None:
    """A name that nobody knows is told as such. (`.invalid` is reserved: RFC 6761.)"""

    class NoNames(trio.abc.HostnameResolver):
        async def getaddrinfo(self, *args: Any) -> Any:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        async def getnameinfo(self, *args: Any) -> Any:
            raise AssertionError("nobody asks for this")

    trio.socket.set_custom_hostname_resolver(NoNames())
    async with model_of("http://models.invalid") as model:
        with pytest.raises(SyscallError) as caught:
            await model.complete(ModelRequest(intent="hi"))
    assert caught.value.code == Code.SERVICE_UNAVAILABLE
    assert "cannot be resolved" in caught.value.reason


async def test_no_tls_where_tls_is_asked_for() -> None:
    """A server that speaks plain HTTP at an https:// address is told from one that is down."""
    async with (
        serving(reply(ERROR, 400)) as server,
        model_of(server.url.replace("http:", "https:")) as model,
    ):
        with pytest.raises(SyscallError) as caught:
            await model.complete(ModelRequest(intent="hi"))
    assert caught.value.code == Code.DRIVER
    assert "no secure connection" in caught.value.reason
    assert ssl.SSLError.__name__ not in caught.value.reason


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"junk\r\n\r\n",
    ],
)
async def test_broken_exchanges(sent: bytes) -> None:
    """A connection that breaks, or speaks no HTTP, is a failure of the driver."""
    error = await failure(servers.raw(sent))
    assert error.code == Code.DRIVER
    assert "before the answer was complete" in error.reason


@pytest.mark.parametrize("stream", [False, True])
async def test_a_server_that_never_answers(stream: bool, mock_clock: trio.testing.MockClock) -> None:
    """The request's time limit ends the call, and its connection."""
    request = ModelRequest(intent="hi", timeout_ms=2500)
    async with serving(reply("")) as server, model_of(server.url) as model, trio.open_nursery() as nursery:
        server.handler = servers.hang(server)

        async def late() -> None:
            await server.asked.wait()
            mock_clock.jump(3)

        nursery.start_soon(late)
        with pytest.raises(SyscallError) as caught:
            await model.complete(request, nobody if stream else None)
        await server.hung_up.wait()
    assert caught.value.code == Code.TIMEOUT
    assert "2.5 s" in caught.value.reason


async def test_a_stream_that_stalls(mock_clock: trio.testing.MockClock) -> None:
    """The time limit covers the whole answer, not the time between two pieces."""
    async with serving(reply("")) as server, model_of(server.url, timeout_ms=5000) as model:
        start = servers.head(200, {"content-type": "text/event-stream"})
        server.handler = servers.hang(server, start + events([delta("some")]))
        with pytest.raises(SyscallError) as caught:
            await model.complete(ModelRequest(intent="hi"), lambda delta: mock_clock.jump(6))
        await server.hung_up.wait()
    assert caught.value.code == Code.TIMEOUT


async def test_streams_share_a_connection(mock_clock: trio.testing.MockClock) -> None:
    """A stream read to its end leaves its connection to the next call. (Time stands still here.)"""
    async with serving(sse(STREAM, connection="keep-alive")) as server, model_of(server.url) as model:
        server.keep = True
        for _ in range(3):
            assert plain(await model.complete(ModelRequest(intent="hi"), nobody)) == STREAMED
        assert (len(server.requests), server.connections) == (3, 1)


@pytest.mark.parametrize("stream", [False, True])
async def test_cancelling_closes_the_connection(stream: bool) -> None:
    """When nobody wants the answer, the provider sees the connection end, and the model stays usable."""
    async with serving(reply("")) as server, model_of(server.url) as model:
        server.handler = servers.hang(server)
        request = ModelRequest(intent="hi")
        async with trio.open_nursery() as nursery:

            async def asking() -> None:
                await model.complete(request, nobody if stream else None)

            nursery.start_soon(asking)
            await server.asked.wait()
            nursery.cancel_scope.cancel()
        await server.hung_up.wait()
        server.handler = reply(completion({"content": "again"}))
        assert (await model.complete(request)).content == "again"


async def test_a_missing_key() -> None:
    """A key that is named but not there makes the provider unavailable, and no request leaves."""
    async with (
        serving(reply(completion({"content": "x"}))) as server,
        model_of(server.url, key=None, api_key_env="ACME_KEY") as model,
    ):
        assert "ACME_KEY is not set" in model.unavailable()
        with pytest.raises(SyscallError) as caught:
            await model.complete(ModelRequest(intent="hi"))
        assert caught.value.code == Code.PERMISSION
        assert server.requests == []


async def test_no_key_where_none_is_needed() -> None:
    """Servers on this machine need no key, and get no empty one."""
    async with serving(reply(completion({"content": "x"}))) as server, model_of(server.url, None) as model:
        assert model.unavailable() == ""
        await model.complete(ModelRequest(intent="hi"))
    assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize("key", ["sk-ä", "sk-\x00", "sk-a\nb"])
async def test_keys_that_fit_in_no_header(key: str) -> None:
    """A damaged key is told without being shown."""
    async with model_of("http://127.0.0.1:9", key, api_key_env="ACME_KEY") as model:
        with pytest.raises(SyscallError) as caught:
            await model.complete(ModelRequest(intent="hi"))
    assert caught.value.code == Code.PERMISSION
    assert "ACME_KEY" in caught.value.reason
    assert key not in caught.value.reason


async def test_a_key_with_a_line_feed() -> None:
    """A key read from a file with `cat` works."""
    async with (
        serving(reply(completion({"content": "x"}))) as server,
        model_of(server.url, f"{KEY}\n") as model,
    ):
        await model.complete(ModelRequest(intent="hi"))
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


async def test_no_model_is_named() -> None:
    """Where calls cost money nobody guesses a model: the error says where one belongs."""
    async with model_of("https://models.example", default_model="", api_key_env="ACME_KEY") as model:
        with pytest.raises(SyscallError) as caught:
            await model.complete(ModelRequest(intent="hi"))
    assert caught.value.code == Code.INVALID
    assert "default_model" in caught.value.reason


async def test_description_without_network_or_secret() -> None:
    """Looking at a provider costs nothing and shows no key."""
    async with serving(reply("")) as server, model_of(server.url, api_key_env="ACME_KEY") as model:
        assert model.unavailable() == ""
        assert KEY not in json.dumps(model.details())
        assert server.requests == []


async def test_a_proxy_is_no_way_to_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model on the loopback is asked directly, whatever proxy the environment names."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    answer, _ = await ask(reply(completion({"content": "direct"})))
    assert answer.content == "direct"
