"""The chat completions format of OpenAI, as its many imitators speak it.

Format: https://platform.openai.com/docs/api-reference/chat. Readers here accept more than it allows where
servers in use differ: content as a list of parts, arguments as an object, no ids, no usage, null anywhere.
"""

from typing import Any

import msgspec

from rnixfs import limits
from rnixfs.errors import Code
from rnixfs.llm import Message, ModelAnswer, ModelRequest, Role, ToolCall, ToolSpec
from rnixfs.wire.count import estimate
from rnixfs.wire.failure import WireError, code_of_status, message_of, one_line

INVALID_ARGUMENTS = "__invalid__"
"""The only key of `ToolCall.arguments` when the model's arguments were no JSON object; it holds their text.
A marked call keeps its place in the conversation, so that the loop can tell the model what was wrong."""

_STOP_REASONS = {
    "stop": "end",
    "length": "max_tokens",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
}


def encode_request(request: ModelRequest, model: str, stream: bool) -> bytes:
    """The body of a request; equal requests give equal bytes, so that providers' prompt caches hit."""
    body: dict[str, Any] = {"model": model, "messages": _messages(request)}
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.max_tokens:
        body["max_tokens"] = request.max_tokens
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return msgspec.json.encode(body)


def _messages(request: ModelRequest) -> list[dict[str, Any]]:
    system = [{"role": "system", "content": request.system_prompt}] if request.system_prompt else []
    return system + [_message(message) for message in request.conversation()]


def _message(message: Message) -> dict[str, Any]:
    entry: dict[str, Any] = {"role": str(message.role), "content": message.content}
    if message.role is Role.TOOL:
        entry["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        entry["content"] = message.content or None
        entry["tool_calls"] = [_call(call) for call in message.tool_calls]
    return entry


def _call(call: ToolCall) -> dict[str, Any]:
    arguments = msgspec.json.encode(call.arguments).decode()
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": function}


def read_answer(body: bytes, request: ModelRequest) -> ModelAnswer:
    """Read the whole reply of a call that does not stream.

    Raises:
        WireError: it is no JSON, holds an error (some servers send those with status 200), or no choice.
    """
    reply = _decode(body)
    choice = _first_choice(reply)
    message = choice.get("message") if choice else None
    if choice is None or not isinstance(message, dict):
        raise WireError(Code.DRIVER, f'the reply has no "choices" with a message: {_shown(body)}')
    parts = _Parts(model=_text(reply.get("model")))
    parts.text.append(_content(message))
    parts.refusal.append(_text(message.get("refusal")))
    parts.add_calls(message.get("tool_calls"))
    parts.finish = _text(choice.get("finish_reason"))
    parts.usage = reply.get("usage")
    return parts.answer(request)


class StreamReader:
    """Puts a streamed reply together from the data of its events, one `chat.completion.chunk` each."""

    def __init__(self) -> None:
        self._parts = _Parts()
        self.done = False
        """Whether the end mark `[DONE]` came."""

    def feed(self, data: str) -> str:
        """Take the data of one event and return the text it adds; what follows the end mark is ignored.

        Raises:
            WireError: it is no JSON, or is an error.
        """
        if self.done or data.strip() == "[DONE]":
            self.done = True
            return ""
        return self._take(_decode(data.encode()))

    def _take(self, chunk: dict[str, Any]) -> str:
        parts = self._parts
        parts.model = parts.model or _text(chunk.get("model"))
        parts.usage = chunk.get("usage") or parts.usage
        choice = _first_choice(chunk) or {}
        parts.finish = _text(choice.get("finish_reason")) or parts.finish
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return ""
        parts.refusal.append(_text(delta.get("refusal")))
        parts.add_calls(delta.get("tool_calls"))
        text = _content(delta)
        parts.text.append(text)
        return text

    def answer(self, request: ModelRequest) -> ModelAnswer:
        """The answer after the last event.

        Raises:
            WireError: the stream ended before the model was done (neither a finish reason nor `[DONE]`).
        """
        if not (self.done or self._parts.finish):
            raise WireError(Code.DRIVER, "the stream ended before the answer was complete")
        return self._parts.answer(request)


class _Call:
    def __init__(self, call_id: str, name: str) -> None:
        self.id = call_id
        self.name = name
        self.arguments: list[str] = []


class _Parts:
    """What a reply consists of, whole or in pieces."""

    def __init__(self, model: str = "") -> None:
        self.model = model
        self.text: list[str] = []
        self.refusal: list[str] = []
        self.finish = ""
        self.usage: Any = None
        self._calls: list[_Call] = []
        self._by_index: dict[object, _Call] = {}

    def add_calls(self, entries: Any) -> None:
        if not isinstance(entries, list):
            return
        for position, entry in enumerate(entries):
            if isinstance(entry, dict):
                self._add_call(entry, position)

    def _add_call(self, entry: dict[str, Any], position: int) -> None:
        function = entry.get("function")
        function = function if isinstance(function, dict) else {}
        call_id, name = _text(entry.get("id")), _text(function.get("name"))
        index = entry.get("index")
        index = position if index is None else index
        call = self._by_index.get(index)
        # Some servers give every call the index 0: another id together with a name is another call.
        if call is None or (name and call_id and call_id != call.id):
            call = self._by_index[index] = _Call(call_id, name)
            self._calls.append(call)
        call.id = call.id or call_id
        call.name = call.name or name
        arguments = function.get("arguments")
        if arguments is not None:
            call.arguments.append(
                arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
            )

    def answer(self, request: ModelRequest) -> ModelAnswer:
        calls = [_tool_call(call, number) for number, call in enumerate(self._calls)]
        content, refusal = "".join(self.text), "".join(self.refusal)
        answer = ModelAnswer(content=content or refusal, model=self.model, tool_calls=calls)
        answer.stop_reason = _STOP_REASONS.get(self.finish, self.finish or "end")
        if calls and answer.stop_reason == "end":
            answer.stop_reason = "tool_calls"
        if refusal and not content:
            answer.stop_reason = "refusal"
        _count(answer, self.usage, request)
        return answer


def _tool_call(call: _Call, number: int) -> ToolCall:
    if not call.name:
        raise WireError(Code.DRIVER, f"tool call {number} of the reply names no function")
    return ToolCall(
        id=call.id or f"call_{number}", name=call.name, arguments=_arguments("".join(call.arguments))
    )


def _arguments(raw: str) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(raw) if raw.strip() else {}
    except msgspec.DecodeError:
        value = None
    if value is None and raw.strip() == "null":
        return {}
    return value if isinstance(value, dict) else {INVALID_ARGUMENTS: raw}


def _count(answer: ModelAnswer, usage: Any, request: ModelRequest) -> None:
    usage = usage if isinstance(usage, dict) else {}
    answer.input_tokens = _number(usage.get("prompt_tokens"))
    answer.output_tokens = _number(usage.get("completion_tokens"))
    answer.tokens_used = max(_number(usage.get("total_tokens")), answer.input_tokens + answer.output_tokens)
    cost = usage.get("cost")  # OpenRouter's field, in dollars
    answer.cost_usd = float(cost) if isinstance(cost, int | float) else 0.0
    if not answer.tokens_used:
        estimate(answer, encode_request(request, "", stream=False).decode())


def _decode(body: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(Code.DRIVER, f"the reply is no JSON ({error}): {_shown(body)}") from None
    if not isinstance(value, dict):
        raise WireError(Code.DRIVER, f"the reply is no JSON object: {_shown(body)}")
    if value.get("error"):
        raise WireError(_code_of_error(value["error"]), message_of(value) or _shown(body))
    return value


def _code_of_error(error: Any) -> Code:
    """The code of an error inside a reply of status 200: OpenRouter puts the HTTP status in `code`."""
    status = error.get("code") if isinstance(error, dict) else None
    if isinstance(status, str) and status.isascii() and status.isdigit():
        status = int(status)
    return code_of_status(status) if isinstance(status, int) and 400 <= status < 600 else Code.DRIVER


def _first_choice(reply: dict[str, Any]) -> dict[str, Any] | None:
    choices = reply.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else None


def _content(message: dict[str, Any]) -> str:
    """The visible text of a message or delta. Reasoning comes in other fields or parts and is left out."""
    content = message.get("content")
    if isinstance(content, list):
        texts = [
            part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"
        ]
        return "".join(map(_text, texts))
    return _text(content)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and value > 0 else 0


def _shown(body: bytes) -> str:
    return one_line(body[: 4 * limits.MODEL_ERROR_MAX].decode("utf-8", "replace"))[:200] or "(empty)"
