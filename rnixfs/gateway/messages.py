"""Anthropic's form: messages.

Format: https://docs.anthropic.com/en/api/messages. What the real `claude` command sends is read, too: system
messages in the middle of a conversation, marks for caches, and fields of betas, which are left out.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from rnixfs import llm
from rnixfs.gateway.asked import STOPPED, Asked, about, check_conversation, convert, identity, stops
from rnixfs.gateway.refusal import RefusedError, refuse
from rnixfs.gateway.wishes import choose, in_json
from rnixfs.llm import Delta, Message, ModelAnswer, Role, ToolCall, ToolSpec, estimate_tokens

Block = dict[str, Any]

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_OVERLOADED = 529  # the status that this API has in the place of 503
_STOP = {
    "max_tokens": "max_tokens",
    "tool_calls": "tool_use",
    "refusal": "refusal",
    STOPPED: STOPPED,
}
_NO_FILES = "models here take text only"
# A line of the `claude` command for Anthropic's books. It changes, and would spoil the caches of providers.
_BILLING = "x-anthropic-billing-header:"


class _Message(msgspec.Struct):
    role: str
    content: str | list[Block]


class _Tool(msgspec.Struct):
    name: str
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class _OutputConfig(msgspec.Struct):
    effort: str | None = None
    format: dict[str, Any] | None = None


class _Body(msgspec.Struct):
    messages: list[_Message]
    model: str | None = None
    system: str | list[Block] | None = None
    max_tokens: int | None = None
    stream: bool | None = None
    temperature: float | None = None
    tools: list[_Tool] | None = None
    tool_choice: dict[str, Any] | None = None
    stop_sequences: list[str] | None = None
    thinking: dict[str, Any] | None = None
    output_config: _OutputConfig | None = None
    output_format: dict[str, Any] | None = None
    mcp_servers: list[Any] | None = None
    container: Any = None


# --- reading ---


def read(body: Any) -> Asked:
    """Read the body of a request.

    Raises:
        RefusedError: naming the field that is wrong, and what would be right.
    """
    asked: _Body = convert(body, _Body)
    _check(asked)
    config = asked.output_config or _OutputConfig()
    tools, wish = _tools(asked)
    messages = list(_conversation(asked.messages))
    check_conversation(messages)
    wishes = [_system(asked.system), wish, _format(config.format or asked.output_format)]
    request = llm.ModelRequest(
        system_prompt="\n\n".join(filter(None, wishes)),
        messages=messages,
        tools=tools,
        temperature=asked.temperature,
        max_tokens=asked.max_tokens or 0,
    )
    return Asked(
        asked.model or "",
        request,
        bool(asked.stream),
        stops(asked.stop_sequences, "stop_sequences"),
        thinking=(asked.thinking or {}).get("type") in ("enabled", "adaptive"),
        own_effort=config.effort or "",
    )


def count(body: Any) -> int:
    """An estimate of the tokens of a request: four bytes a token.

    Raises:
        RefusedError: it is no request.
    """
    request = read(body).request
    texts = [request.system_prompt]
    for message in request.messages:
        texts.append(message.content)
        texts.extend(f"{call.name}{_json(call.arguments)}" for call in message.tool_calls)
    texts.extend(_json(tool) for tool in request.tools)
    return sum(map(estimate_tokens, texts))


def _check(asked: _Body) -> None:
    if asked.max_tokens is not None and asked.max_tokens < 1:
        raise refuse(f"max_tokens: is {asked.max_tokens}; it must be at least 1", "max_tokens")
    for field in ("mcp_servers", "container"):
        if getattr(asked, field):
            raise refuse(f"{field}: works at Anthropic only; leave it out, or give tools", field)


def _system(found: str | list[Block] | None) -> str:
    if not isinstance(found, list):
        return found or ""
    texts = [_text_of(block, f"system[{place}]") for place, block in enumerate(found)]
    return "\n\n".join(text for text in texts if not text.startswith(_BILLING))


def _text_of(block: Block, at: str) -> str:
    text = block.get("text") if block.get("type") == "text" else None
    if not isinstance(text, str):
        raise refuse(f'{at}: is {_kind(block)!r}; it must be a block of type "text" with a text', at)
    return text


def _kind(block: Block) -> str:
    return str(block.get("type"))[:60]


def _conversation(found: list[_Message]) -> Iterator[Message]:
    for place, message in enumerate(found):
        at = f"messages[{place}]"
        blocks = message.content
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        if message.role == "user":
            yield from _user(blocks, f"{at}.content")
        elif message.role == "assistant":
            yield _assistant(blocks, f"{at}.content")
        elif message.role == "system":
            yield Message(Role.SYSTEM, _system(blocks))
        else:
            right = "it must be user, assistant or system"
            raise refuse(f"{at}.role: is {message.role[:60]!r}; {right}", f"{at}.role")


def _user(blocks: list[Block], at: str) -> Iterator[Message]:
    """The messages of a user's turn: results of tools, and what the user says before, between and after."""
    said: list[str] = []
    for place, block in enumerate(blocks):
        if block.get("type") == "tool_result":
            if said:
                yield Message(Role.USER, "\n".join(said))
                said = []
            yield _result(block, f"{at}[{place}]")
        else:
            said.append(_said(block, f"{at}[{place}]"))
    if said:
        yield Message(Role.USER, "\n".join(said))


def _said(block: Block, at: str) -> str:
    source = block.get("source")
    if block.get("type") == "document" and isinstance(source, dict) and source.get("type") == "text":
        return str(source.get("data", ""))
    if block.get("type") in ("image", "document"):
        raise refuse(f"{at}: is {_kind(block)!r}; {_NO_FILES}", at)
    return _text_of(block, at)


def _result(block: Block, at: str) -> Message:
    call, content = block.get("tool_use_id"), block.get("content") or ""
    if not isinstance(call, str) or not call:
        raise refuse(f"{at}.tool_use_id: is missing; a result must name the call that it answers", at)
    if isinstance(content, list):
        content = "\n".join(_shown(part, f"{at}.content[{place}]") for place, part in enumerate(content))
    if not isinstance(content, str):
        raise refuse(f"{at}.content: must be a text or a list of blocks", at)
    failed = block.get("is_error") is True and "error" not in content[:40].lower()
    return Message(Role.TOOL, f"Error: {content}" if failed else content, tool_call_id=call)


def _shown(block: Any, at: str) -> str:
    """A part of a tool's result.

    A refusal of an image here would end the conversation for good: nobody chose to send it. So the model
    is told that there was one.
    """
    if not isinstance(block, dict):
        raise refuse(f"{at}: must be a block", at)
    if block.get("type") == "tool_reference":
        return f"[tool {block.get('tool_name')}]"
    if block.get("type") in ("image", "document"):
        return f"[{block['type']} left out: {_NO_FILES}]"
    return _text_of(block, at)


def _assistant(blocks: list[Block], at: str) -> Message:
    texts, calls = [], []
    for place, block in enumerate(blocks):
        if block.get("type") == "tool_use":
            calls.append(_call(block, f"{at}[{place}]"))
        elif block.get("type") not in ("thinking", "redacted_thinking"):
            texts.append(_text_of(block, f"{at}[{place}]"))
    return Message(Role.ASSISTANT, "".join(texts), calls)


def _call(block: Block, at: str) -> ToolCall:
    try:
        return msgspec.convert({"arguments": block.get("input"), **block}, ToolCall)
    except msgspec.ValidationError:
        right = "a call must have the texts id and name, and the object input"
        raise refuse(f"{at}: is no call of a tool; {right}", at) from None


def _tools(asked: _Body) -> tuple[list[ToolSpec], str]:
    tools = [_tool(tool, f"tools[{place}]") for place, tool in enumerate(asked.tools or ())]
    choice = asked.tool_choice or {}
    kind = choice.get("type", "auto")
    if kind == "none":
        return [], ""
    if kind == "auto":
        return tools, ""
    return choose(tools, choice.get("name") if kind == "tool" else "", kind == "any")


def _tool(tool: _Tool, at: str) -> ToolSpec:
    if tool.input_schema is None or tool.type not in (None, "custom"):
        reason = f"the tool {tool.name[:60]!r} of type {str(tool.type)[:60]!r} works at Anthropic only"
        raise refuse(f"{at}: {reason}; tools here have an input_schema", at)
    return ToolSpec(tool.name, tool.description or "", tool.input_schema)


def _format(wanted: dict[str, Any] | None) -> str:
    if wanted is None:
        return ""
    schema = wanted.get("schema")
    if wanted.get("type") != "json_schema" or not isinstance(schema, dict):
        right = "it can be of type json_schema, with a schema"
        raise refuse(f"output_config.format: {right}", "output_config.format")
    return in_json(schema)


# --- writing ---


def whole(asked: Asked, answer: ModelAnswer) -> dict[str, Any]:
    """The body of an answer that does not stream."""
    content: list[Block] = []
    if answer.reasoning and asked.thinking:
        content.append({"type": "thinking", "thinking": answer.reasoning, "signature": ""})
    if answer.content:
        content.append({"type": "text", "text": answer.content})
    content += [_use(call) | {"input": call.arguments} for call in answer.tool_calls]
    return _message(asked) | {
        "content": content,
        **_ending(answer),
        "usage": _usage(answer),
        "rnix": about(answer),
    }


def _message(asked: Asked) -> dict[str, Any]:
    return {"id": identity("msg_"), "type": "message", "role": "assistant", "model": asked.model}


def _use(call: ToolCall) -> Block:
    return {"type": "tool_use", "id": call.id or identity("toolu_"), "name": call.name, "input": {}}


def _ending(answer: ModelAnswer) -> dict[str, Any]:
    word, _, stopped = answer.stop_reason.partition(":")
    reason = "tool_use" if answer.tool_calls else _STOP.get(word, "end_turn")
    return {"stop_reason": reason, "stop_sequence": stopped if reason == STOPPED else None}


def _usage(answer: ModelAnswer) -> dict[str, Any]:
    """Tokens as this API counts them: those of the cache are not among the others."""
    return {
        "input_tokens": max(answer.input_tokens - answer.cached_tokens, 0),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": answer.cached_tokens,
        "output_tokens": answer.output_tokens,
    }


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


class MessagesWriter:
    """Writes a streamed answer as the events `message_start` to `message_stop`.

    Args:
        asked: the request.
    """

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._open = ""
        self._index = -1

    def begin(self) -> bytes:
        # How many tokens there are is known at the end, and told there.
        message = _message(self._asked) | {"content": [], "stop_reason": None, "stop_sequence": None}
        return _event("message_start", message=message | {"usage": _usage(ModelAnswer())})

    def piece(self, delta: Delta) -> bytes:
        if delta.type == "text":
            opened = self._block("text", {"type": "text", "text": ""})
            return opened + self._delta("text_delta", text=delta.text)
        if not self._asked.thinking:
            return b""
        opened = self._block("thinking", {"type": "thinking", "thinking": "", "signature": ""})
        return opened + self._delta("thinking_delta", thinking=delta.text)

    def end(self, answer: ModelAnswer) -> bytes:
        data = b"".join(map(self._called, answer.tool_calls)) + self._close()
        delta, usage = _ending(answer), _usage(answer)
        data += _event("message_delta", delta=delta, usage=usage, rnix=about(answer))
        return data + _event("message_stop")

    def _called(self, call: ToolCall) -> bytes:
        # Closed first: one call follows another in a block of its own.
        data = self._close() + self._block("tool_use", _use(call))
        return data + self._delta("input_json_delta", partial_json=_json(call.arguments))

    def failed(self, refusal: RefusedError) -> bytes:
        return _event("error", error=error(refusal)[1]["error"])

    def ping(self) -> bytes:
        return _event("ping")

    def _block(self, kind: str, start: Block) -> bytes:
        if self._open == kind:
            return b""
        data = self._close()
        self._open = kind
        self._index += 1
        return data + _event("content_block_start", index=self._index, content_block=start)

    def _close(self) -> bytes:
        if not self._open:
            return b""
        self._open = ""
        return _event("content_block_stop", index=self._index)

    def _delta(self, kind: str, **fields: str) -> bytes:
        return _event("content_block_delta", index=self._index, delta={"type": kind, **fields})


def _event(kind: str, **fields: Any) -> bytes:
    data = msgspec.json.encode({"type": kind, **fields})
    return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"


def writer(asked: Asked) -> MessagesWriter:
    """What writes an answer that streams."""
    return MessagesWriter(asked)


def error(refusal: RefusedError) -> tuple[int, dict[str, Any]]:
    """Status and body of an error."""
    status = _OVERLOADED if refusal.status == 503 else refusal.status
    kind = _TYPES.get(refusal.status, "api_error" if status >= 500 else "invalid_request_error")
    return status, {"type": "error", "error": {"type": kind, "message": refusal.reason}}
