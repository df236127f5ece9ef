"""Anthropic's Messages API, as other servers (llama.cpp, DeepSeek and more) speak it too.

Format: https://platform.claude.com/docs/en/api/messages. How much a model thinks is asked for in one of two
ways: a word such as `high` is an effort of adaptive thinking (models since Claude 4.6), a number is a budget
of tokens for the models before (at least 1024), and `none` turns thinking off.
"""

from typing import Any

import msgspec

from rnixfs import limits
from rnixfs.errors import Code
from rnixfs.llm import Delta, Message, ModelAnswer, ModelRequest, Role, ToolSpec
from rnixfs.wire.dialect import (
    REFUSAL,
    ListedModel,
    Reply,
    ReplyStream,
    decode,
    decode_list,
    dict_of,
    dicts,
    echo_of,
    fitting_id,
    listed,
    number_of,
    shown,
    text_of,
)
from rnixfs.wire.failure import WireError, message_of, of_status, refusal

NAME = "anthropic"
"""What an answer's `echo` has for the provider lies under this name."""

VERSION = "2023-06-01"
"""The version of the API, the only one there is: https://platform.claude.com/docs/en/api/versioning."""

CALL_ID_MAX = 64

_STOP_REASONS = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tool_calls",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "refusal": REFUSAL,
}
# https://platform.claude.com/docs/en/api/errors: in a stream the status line has already gone out.
_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_CACHED = {"cache_control": {"type": "ephemeral"}}


class Messages:
    """The Messages API of one server. Implements `dialect.Dialect`.

    Args:
        base_url: its address; what it wants back is given to no other server.
    """

    models = "/v1/models?limit=1000"

    def __init__(self, base_url: str) -> None:
        self._server = base_url

    def path(self, model: str, stream: bool) -> str:
        return "/v1/messages"

    def headers(self, key: str) -> dict[str, str]:
        return {"anthropic-version": VERSION, **({"x-api-key": key} if key else {})}

    def encode(self, request: ModelRequest, model: str, stream: bool) -> bytes:
        system, messages = self._conversation(request)
        body: dict[str, Any] = {"model": model, **_thinking(request.effort, request.max_tokens)}
        if body.get("thinking", {}).get("type") == "enabled" and _thoughtless(messages):
            del body["thinking"]
        if stream:
            body["stream"] = True
        if request.temperature is not None:
            body["temperature"] = request.temperature
        # Caches hold what comes before a mark, in the order tools, system, messages; four marks are allowed.
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
            body["tools"][-1] |= _CACHED
        if system:
            body["system"] = [{"type": "text", "text": system, **_CACHED}]
        _mark(messages)
        return msgspec.json.encode({**body, "messages": messages})

    def _conversation(self, request: ModelRequest) -> tuple[str, list[dict[str, Any]]]:
        """The system prompt, and the messages: each has other speakers than the one before."""
        system = [request.system_prompt]
        messages: list[dict[str, Any]] = []
        for message in request.conversation():
            if message.role is Role.SYSTEM and not messages:
                system.append(message.content)
                continue
            role = "assistant" if message.role is Role.ASSISTANT else "user"
            blocks = self._blocks(message)
            if messages and messages[-1]["role"] == role:
                messages[-1]["content"] += blocks
            elif blocks:
                messages.append({"role": role, "content": blocks})
        return "\n\n".join(text for text in system if text.strip()), messages

    def _blocks(self, message: Message) -> list[dict[str, Any]]:
        if message.role is Role.TOOL:
            return [_result(message)]
        calls = [
            {
                "type": "tool_use",
                "id": fitting_id(call.id, CALL_ID_MAX),
                "name": call.name,
                "input": call.arguments,
            }
            for call in message.tool_calls
        ]
        return _woven(message.content, calls, echo_of(message, NAME, self._server).get("thinking"))

    def read_answer(self, body: bytes, prompt: bytes) -> ModelAnswer:
        message = _decoded(body)
        if not isinstance(message.get("content"), list):
            raise WireError(Code.DRIVER, f'the reply has no "content": {shown(body)}')
        reply = _Message(self._server)
        for index, block in enumerate(dicts(message["content"])):
            reply.start_block(index, block)
        reply.take_start(message)
        reply.take_end(message, message.get("usage"))
        return reply.answer(prompt)

    def reader(self) -> "MessagesStream":
        return MessagesStream(self._server)

    def refusal(self, status: int, body: bytes) -> WireError:
        return refusal(status, body)

    def read_models(self, body: bytes) -> list[ListedModel]:
        return listed(decode_list(body, "data"))


def _thinking(effort: str, max_tokens: int) -> dict[str, Any]:
    """The fields that ask for thinking, with the most tokens of the answer, of which it is a part."""
    most = {"max_tokens": max_tokens or limits.MODEL_ANSWER_TOKENS}
    if not effort:
        return most
    if effort == "none":
        return {**most, "thinking": {"type": "disabled"}}
    if effort.isascii() and effort.isdigit():
        budget = int(effort)
        most = {"max_tokens": max_tokens or limits.MODEL_ANSWER_TOKENS + budget}
        return {**most, "thinking": {"type": "enabled", "budget_tokens": budget}}
    # Where nobody asks for a summary, newer models keep their thoughts to themselves.
    thinking = {"type": "adaptive", "display": "summarized"}
    return {**most, "thinking": thinking, "output_config": {"effort": effort}}


def _thoughtless(messages: list[dict[str, Any]]) -> bool:
    """Whether the results go to calls without thoughts, which with a budget of thinking are refused."""
    if len(messages) < 2 or not any(block["type"] == "tool_result" for block in messages[-1]["content"]):
        return False
    return "thinking" not in messages[-2]["content"][0]["type"]


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}


def _result(message: Message) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": fitting_id(message.tool_call_id, CALL_ID_MAX)}
    return {**block, "content": message.content} if message.content.strip() else block


def _woven(text: str, calls: list[dict[str, Any]], thinking: Any) -> list[dict[str, Any]]:
    """The blocks of an assistant's message, with its thoughts where they were.

    Args:
        text: its text.
        calls: its calls.
        thinking: entries of three: how many characters and how many calls came before a block, and the block.
    """
    blocks: list[dict[str, Any]] = []
    said = called = 0
    for before, made, block in [*(thinking or ()), (len(text), len(calls), None)]:
        if (piece := text[said:before]).strip():
            blocks.append({"type": "text", "text": piece})
        blocks += calls[called:made]
        blocks += [block] if block else []
        said, called = before, made
    return blocks


def _mark(messages: list[dict[str, Any]]) -> None:
    """Mark the end of the conversation, and that of the step before: the cache holds an entry up to there."""
    spoken = [message for message in messages if message["role"] == "user"]
    for message in spoken[-2:]:
        message["content"][-1] |= _CACHED


def _decoded(data: bytes | str) -> dict[str, Any]:
    """A reply or an event; an error in it has a name in place of a status."""
    try:
        return decode(data)
    except WireError as error:
        raise _named(data) or error from None


def _named(data: bytes | str) -> WireError | None:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    status = _STATUS.get(text_of(dict_of(dict_of(value).get("error")).get("type")))
    return of_status(status, message_of(value)) if status else None


class MessagesStream(ReplyStream["_Message"]):
    """A streamed reply. Implements `dialect.StreamReader`."""

    def __init__(self, server: str) -> None:
        super().__init__(_Message(server))

    def feed(self, data: str) -> list[Delta]:
        if self.done:
            return []
        event = _decoded(data)
        # Pings, ends of blocks and events that came later than this reader say nothing that is needed.
        match event.get("type"):
            case "message_start":
                self._reply.take_start(dict_of(event.get("message")))
            case "content_block_start":
                return self._reply.start_block(_index(event), dict_of(event.get("content_block")))
            case "content_block_delta":
                return self._reply.add_to_block(_index(event), dict_of(event.get("delta")))
            case "message_delta":
                self._reply.take_end(dict_of(event.get("delta")), event.get("usage"))
            case "message_stop":
                self.done = True
        return []


def _index(event: dict[str, Any]) -> int:
    return index if isinstance(index := event.get("index"), int) else -1


class _Thought:
    """A block of thoughts, which grows by pieces."""

    def __init__(self, block: dict[str, Any]) -> None:
        self._block = block
        self.grown = {field: [text_of(block.get(field))] for field in ("thinking", "signature")}

    def whole(self) -> dict[str, Any]:
        """The block as it is given back."""
        texts = {field: "".join(pieces) for field, pieces in self.grown.items()}
        return self._block | {field: text for field, text in texts.items() if text}


class _Message(Reply):
    """A reply, from its blocks or from their pieces."""

    def __init__(self, server: str) -> None:
        super().__init__()
        self._server = server
        self._tokens: dict[str, int] = {}
        self._calls_by_index: dict[object, Any] = {}
        self._thoughts_by_index: dict[object, _Thought] = {}
        self._thinking: list[tuple[int, int, _Thought]] = []

    def take_start(self, message: dict[str, Any]) -> None:
        """Take what stands before the blocks."""
        self.model = text_of(message.get("model"))
        self._count_usage(message.get("usage"))

    def take_end(self, delta: dict[str, Any], usage: Any) -> None:
        """Take what stands after the blocks."""
        reason = text_of(delta.get("stop_reason"))
        self.stop = _STOP_REASONS.get(reason, reason) or self.stop
        self._count_usage(usage)

    def start_block(self, index: object, block: dict[str, Any]) -> list[Delta]:
        """Begin a block, which may be whole already."""
        match block.get("type"):
            case "text":
                return self.say(text_of(block.get("text")))
            case "tool_use":
                call = self.call(text_of(block.get("id")), text_of(block.get("name")))
                self._calls_by_index[index] = call
                # A stream begins with an empty input, and its pieces follow as text.
                if block.get("input"):
                    call.arguments.append(msgspec.json.encode(block["input"]).decode())
            case "thinking" | "redacted_thinking":
                kept = self._thoughts_by_index[index] = _Thought(block)
                self._thinking.append((sum(map(len, self.text)), len(self.calls), kept))
                return self.think(text_of(block.get("thinking")))
        return []

    def add_to_block(self, index: object, delta: dict[str, Any]) -> list[Delta]:
        """Add a piece to a block that has begun."""
        call, thought = self._calls_by_index.get(index), self._thoughts_by_index.get(index)
        match delta.get("type"):
            case "text_delta":
                return self.say(text_of(delta.get("text")))
            case "input_json_delta" if call is not None:
                call.arguments.append(text_of(delta.get("partial_json")))
            case "thinking_delta" if thought is not None:
                thought.grown["thinking"].append(text_of(delta.get("thinking")))
                return self.think(text_of(delta.get("thinking")))
            case "signature_delta" if thought is not None:
                thought.grown["signature"].append(text_of(delta.get("signature")))
        return []

    def _count_usage(self, usage: Any) -> None:
        # Those of later events are sums, but they need not name each number again.
        self._tokens |= {
            name: number_of(value) for name, value in dict_of(usage).items() if value is not None
        }
        read = self._tokens.get("cache_read_input_tokens", 0)
        written = self._tokens.get("cache_creation_input_tokens", 0)
        self.input_tokens = self._tokens.get("input_tokens", 0) + read + written
        self.cached_tokens = read
        self.output_tokens = self._tokens.get("output_tokens", 0)

    def answer(self, prompt: bytes) -> ModelAnswer:
        answer = super().answer(prompt)
        if answer.tool_calls and self._thinking:
            thinking = [[said, made, thought.whole()] for said, made, thought in self._thinking]
            answer.echo = {NAME: {"server": self._server, "thinking": thinking}}
        return answer
