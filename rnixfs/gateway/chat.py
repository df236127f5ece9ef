"""OpenAI's form: chat completions.

Format: https://platform.openai.com/docs/api-reference/chat.
"""

import time
from typing import Any

import msgspec

from rnixfs import llm
from rnixfs.gateway.asked import Asked, about, check_conversation, convert, identity, stops
from rnixfs.gateway.refusal import RefusedError, refuse
from rnixfs.gateway.wishes import choose, in_json
from rnixfs.llm import Delta, Message, ModelAnswer, Role, ToolCall, ToolSpec
from rnixfs.wire.dialect import INVALID_ARGUMENTS

_ROLES = {"developer": Role.SYSTEM} | {str(role): role for role in Role}
_FINISH = {"max_tokens": "length", "tool_calls": "tool_calls", "refusal": "content_filter"}
_TYPES = {401: "authentication_error", 402: "insufficient_quota", 403: "permission_error", 429: "requests"}
_NOT_HERE = {
    "functions": "the field is no longer part of the API; give tools",
    "function_call": "the field is no longer part of the API; give tool_choice",
    "audio": "models here answer with text only",
    "web_search_options": "models here cannot search by themselves; give a tool that does",
}


class _Function(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _Tool(msgspec.Struct):
    type: str = "function"
    function: _Function | None = None


class _CalledFunction(msgspec.Struct):
    name: str
    arguments: str = ""


class _Call(msgspec.Struct):
    id: str
    type: str = "function"
    function: _CalledFunction | None = None


class _Message(msgspec.Struct):
    role: str
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _ResponseFormat(msgspec.Struct):
    type: str
    json_schema: dict[str, Any] | None = None


class _Body(msgspec.Struct):
    messages: list[_Message]
    model: str | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    n: int | None = None
    logprobs: bool | None = None
    modalities: list[str] | None = None
    tools: list[_Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    reasoning_effort: str | None = None
    response_format: _ResponseFormat | None = None
    stop: str | list[str] | None = None


# --- reading ---


def read(body: Any) -> Asked:
    """Read the body of a request.

    Raises:
        RefusedError: naming the field that is wrong, and what would be right.
    """
    asked: _Body = convert(body, _Body)
    _check(asked, body)
    system, messages = _conversation(asked.messages)
    tools, wish = _tools(asked)
    wishes = [system, wish, _format(asked.response_format)]
    request = llm.ModelRequest(
        system_prompt="\n\n".join(filter(None, wishes)),
        messages=messages,
        tools=tools,
        temperature=asked.temperature,
        max_tokens=_most(asked),
        effort=asked.reasoning_effort or "",
    )
    options = asked.stream_options or _StreamOptions()
    return Asked(
        asked.model or "",
        request,
        bool(asked.stream),
        stops(asked.stop, "stop"),
        usage=bool(options.include_usage),
    )


def _check(asked: _Body, body: dict[str, Any]) -> None:
    for field, right in _NOT_HERE.items():
        if body.get(field):
            raise refuse(f"{field}: {right}", field)
    if asked.n not in (None, 1):
        raise refuse(f"n: is {asked.n}; models here give one answer, so it can only be 1", "n")
    if asked.logprobs:
        raise refuse("logprobs: models here do not tell them; leave the field out", "logprobs")
    if asked.modalities and asked.modalities != ["text"]:
        raise refuse('modalities: models here answer with text only; write ["text"]', "modalities")


def _most(asked: _Body) -> int:
    most = asked.max_completion_tokens if asked.max_completion_tokens is not None else asked.max_tokens
    if most is not None and most < 1:
        raise refuse(f"max_completion_tokens: is {most}; it must be at least 1", "max_completion_tokens")
    return most or 0


def _conversation(found: list[_Message]) -> tuple[str, list[Message]]:
    """The instructions before the conversation, and the conversation."""
    messages = [_message(message, f"messages[{place}]") for place, message in enumerate(found)]
    system = []
    while messages and messages[0].role is Role.SYSTEM:
        system.append(messages.pop(0).content)
    check_conversation(messages)
    return "\n\n".join(system), messages


def _message(found: _Message, at: str) -> Message:
    role = _ROLES.get(found.role)
    if role is None:
        raise refuse(
            f"{at}.role: is {found.role[:60]!r}; it must be one of {', '.join(_ROLES)}", f"{at}.role"
        )
    content = _text(found.content, f"{at}.content") or found.refusal or ""
    if role is Role.TOOL and not found.tool_call_id:
        right = "a message of a tool must name the call that it answers"
        raise refuse(f"{at}.tool_call_id: is missing; {right}", f"{at}.tool_call_id")
    calls = [_call(call, f"{at}.tool_calls[{n}]") for n, call in enumerate(found.tool_calls or ())]
    return Message(role, content, calls, (found.tool_call_id or "") if role is Role.TOOL else "")


def _text(content: str | list[dict[str, Any]] | None, at: str) -> str:
    if not isinstance(content, list):
        return content or ""
    return "".join(_part(part, f"{at}[{place}]") for place, part in enumerate(content))


def _part(part: dict[str, Any], at: str) -> str:
    kind = part.get("type")
    text = part.get(kind) if kind in ("text", "refusal") else None
    if not isinstance(text, str):
        raise refuse(f'{at}: is {str(kind)[:60]!r}; models here take parts of type "text" only', at)
    return text


def _call(call: _Call, at: str) -> ToolCall:
    if call.function is None:
        raise refuse(f'{at}: is {call.type[:60]!r}; calls here are of type "function"', at)
    text = call.function.arguments.strip() or "{}"
    try:
        arguments = msgspec.json.decode(text)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        arguments = None
    if not isinstance(arguments, dict):
        # A model wrote them, and is to see what it wrote.
        arguments = {INVALID_ARGUMENTS: text}
    return ToolCall(call.id, call.function.name, arguments)


def _tools(asked: _Body) -> tuple[list[ToolSpec], str]:
    """The tools to offer, and what the model is told of them."""
    tools = [_tool(tool, f"tools[{place}]") for place, tool in enumerate(asked.tools or ())]
    choice = asked.tool_choice
    if choice == "none":
        return [], ""
    if choice in (None, "auto"):
        return tools, ""
    named = choice.get("function", {}).get("name") if isinstance(choice, dict) else ""
    return choose(tools, named, choice == "required")


def _tool(tool: _Tool, at: str) -> ToolSpec:
    function = tool.function
    if tool.type != "function" or function is None:
        raise refuse(f'{at}: is {tool.type[:60]!r}; tools here are of type "function"', at)
    schema = function.parameters or {"type": "object", "properties": {}}
    return ToolSpec(function.name, function.description or "", schema)


def _format(wanted: _ResponseFormat | None) -> str:
    if wanted is None or wanted.type == "text":
        return ""
    if wanted.type == "json_object":
        return in_json(None)
    schema = (wanted.json_schema or {}).get("schema")
    if wanted.type == "json_schema" and isinstance(schema, dict):
        return in_json(schema)
    right = "it can be text, json_object, or json_schema with a schema"
    raise refuse(f"response_format: is {wanted.type[:60]!r}; {right}", "response_format")


# --- writing ---


def whole(asked: Asked, answer: ModelAnswer) -> dict[str, Any]:
    """The body of an answer that does not stream."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.content or None, "refusal": None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.tool_calls:
        message["tool_calls"] = [_written(call) for call in answer.tool_calls]
    else:
        message["content"] = answer.content
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(answer)}
    return {
        "id": identity("chatcmpl-"),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": asked.model,
        "choices": [choice],
        "usage": _usage(answer),
        "rnix": about(answer),
    }


def _finish(answer: ModelAnswer) -> str:
    return "tool_calls" if answer.tool_calls else _FINISH.get(answer.stop_reason, "stop")


def _usage(answer: ModelAnswer) -> dict[str, Any]:
    return {
        "prompt_tokens": answer.input_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": answer.input_tokens + answer.output_tokens,
        "prompt_tokens_details": {"cached_tokens": answer.cached_tokens},
    }


def _written(call: ToolCall) -> dict[str, Any]:
    invalid = call.arguments.get(INVALID_ARGUMENTS)
    arguments = invalid if isinstance(invalid, str) else _json(call.arguments)
    name = call.id or identity("call_")
    return {"id": name, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


class ChatWriter:
    """Writes a streamed answer as events whose data are `chat.completion.chunk` objects.

    Args:
        asked: the request.
    """

    def __init__(self, asked: Asked) -> None:
        self._usage = asked.usage
        self._head = {
            "id": identity("chatcmpl-"),
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": asked.model,
        }

    def begin(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def piece(self, delta: Delta) -> bytes:
        return self._chunk({"content" if delta.type == "text" else "reasoning_content": delta.text})

    def end(self, answer: ModelAnswer) -> bytes:
        calls = [{"index": n, **_written(call)} for n, call in enumerate(answer.tool_calls)]
        data = self._chunk({"tool_calls": calls}) if calls else b""
        data += self._chunk({}, _finish(answer), rnix=about(answer))
        if self._usage:
            data += _event(self._head | {"choices": [], "usage": _usage(answer)})
        return data + b"data: [DONE]\n\n"

    def failed(self, refusal: RefusedError) -> bytes:
        return _event(error(refusal)[1])

    def ping(self) -> bytes:
        return b": ping\n\n"

    def _chunk(self, delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if self._usage else {}
        return _event(self._head | {"choices": [choice]} | usage | more)


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def writer(asked: Asked) -> ChatWriter:
    """What writes an answer that streams."""
    return ChatWriter(asked)


def error(refusal: RefusedError) -> tuple[int, dict[str, Any]]:
    """Status and body of an error."""
    usual = "server_error" if refusal.status >= 500 else "invalid_request_error"
    fields = {
        "message": refusal.reason,
        "type": _TYPES.get(refusal.status, usual),
        "param": refusal.param or None,
        "code": refusal.kind or None,
    }
    return refusal.status, {"error": fields}
