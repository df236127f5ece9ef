"""The chat completions format of OpenAI, as its many imitators speak it.

Format: https://platform.openai.com/docs/api-reference/chat. Readers here accept more than it allows where
servers in use differ: content as a list of parts, arguments as an object, no ids, no usage, null anywhere,
thoughts in `reasoning_content` (DeepSeek, llama.cpp, LM Studio) or `reasoning` (Groq, OpenRouter, Ollama).
"""

from typing import Any
from urllib.parse import urlsplit

import msgspec

from rnixfs.errors import Code
from rnixfs.llm import Delta, Message, ModelAnswer, ModelRequest, Role, ToolCall, ToolSpec
from rnixfs.wire.dialect import (
    INVALID_ARGUMENTS,
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
from rnixfs.wire.failure import WireError, refusal

__all__ = ["INVALID_ARGUMENTS", "Chat"]

NAME = "openai"
"""What an answer's `echo` has for the provider lies under this name."""

CALL_ID_MAX = 40
"""Characters of a call's name that OpenAI takes; others take more."""

_STOP_REASONS = {
    "stop": "end",
    "length": "max_tokens",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
}
_ECHOED = ("reasoning_content", "reasoning_details")


class Chat:
    """Chat completions of one server. Implements `dialect.Dialect`.

    Args:
        base_url: its address, since some servers need what others refuse.
    """

    models = "/models"

    def __init__(self, base_url: str) -> None:
        self._server = base_url
        host = urlsplit(base_url).hostname
        # OpenAI's newer models refuse the old name, most other servers do not know the new one.
        self._max_tokens = "max_completion_tokens" if host == "api.openai.com" else "max_tokens"
        # DeepSeek refuses calls of tools without the thoughts that led to them, be they empty.
        self._needs_thoughts = host == "api.deepseek.com"

    def path(self, model: str, stream: bool) -> str:
        return "/chat/completions"

    def headers(self, key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    def encode(self, request: ModelRequest, model: str, stream: bool) -> bytes:
        body: dict[str, Any] = {"model": model, "messages": self._messages(request)}
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.max_tokens:
            body[self._max_tokens] = request.max_tokens
        if request.effort:
            body["reasoning_effort"] = request.effort
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return msgspec.json.encode(body)

    def _messages(self, request: ModelRequest) -> list[dict[str, Any]]:
        system = [{"role": "system", "content": request.system_prompt}] if request.system_prompt else []
        return system + [self._message(message) for message in request.conversation()]

    def _message(self, message: Message) -> dict[str, Any]:
        entry: dict[str, Any] = {"role": str(message.role), "content": message.content}
        if message.role is Role.TOOL:
            entry["tool_call_id"] = fitting_id(message.tool_call_id, CALL_ID_MAX)
        if message.tool_calls:
            entry["content"] = message.content or None
            entry["tool_calls"] = [_call(call) for call in message.tool_calls]
            if self._needs_thoughts:
                entry["reasoning_content"] = ""
            echo = echo_of(message, NAME, self._server)
            entry |= {field: echo[field] for field in _ECHOED if field in echo}
        return entry

    def read_answer(self, body: bytes, prompt: bytes) -> ModelAnswer:
        value = decode(body)
        choice = _first_choice(value)
        message = choice.get("message")
        if not isinstance(message, dict):
            raise WireError(Code.DRIVER, f'the reply has no "choices" with a message: {shown(body)}')
        reply = _Completion(self._server)
        reply.take_message(message)
        reply.take_rest(value, choice)
        return reply.answer(prompt)

    def reader(self) -> "ChatStream":
        return ChatStream(self._server)

    def refusal(self, status: int, body: bytes) -> WireError:
        return refusal(status, body)

    def read_models(self, body: bytes) -> list[ListedModel]:
        return listed(decode_list(body, "data"))


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": msgspec.json.encode(call.arguments).decode()}
    return {"id": fitting_id(call.id, CALL_ID_MAX), "type": "function", "function": function}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": function}


class ChatStream(ReplyStream["_Completion"]):
    """A streamed reply: one `chat.completion.chunk` an event. Implements `dialect.StreamReader`."""

    def __init__(self, server: str) -> None:
        super().__init__(_Completion(server))

    def feed(self, data: str) -> list[Delta]:
        if self.done or data.strip() == "[DONE]":
            self.done = True
            return []
        value = decode(data)
        choice = _first_choice(value)
        deltas = self._reply.take_message(dict_of(choice.get("delta")))
        self._reply.take_rest(value, choice)
        return deltas


class _Completion(Reply):
    """A reply, from a whole message or from its pieces, which have the same fields."""

    def __init__(self, server: str) -> None:
        super().__init__()
        self._server = server
        self._thoughts: list[str] = []
        self._details: list[dict[str, Any]] = []
        self._by_index: dict[object, Any] = {}

    def take_message(self, message: dict[str, Any]) -> list[Delta]:
        """Add a message or a piece of one, and return what it shows."""
        thoughts, text = _content(message)
        deltas = self.think(thoughts) + self.say(text)
        self.refusal.append(text_of(message.get("refusal")))
        for position, entry in enumerate(dicts(message.get("tool_calls"))):
            self._add_call(entry, position)
        self._thoughts.append(text_of(message.get("reasoning_content")))
        self._details += dicts(message.get("reasoning_details"))
        return deltas

    def take_rest(self, value: dict[str, Any], choice: dict[str, Any]) -> None:
        """Take what stands around the message: model, reason to stop, usage."""
        self.model = self.model or text_of(value.get("model"))
        finish = text_of(choice.get("finish_reason"))
        self.stop = _STOP_REASONS.get(finish, finish) or self.stop
        # Groq streams it in a field of its own.
        usage = dict_of(value.get("usage")) or dict_of(dict_of(value.get("x_groq")).get("usage"))
        if usage:
            self._count_usage(usage)

    def _count_usage(self, usage: dict[str, Any]) -> None:
        self.input_tokens = number_of(usage.get("prompt_tokens"))
        # `completion_tokens_details.reasoning_tokens` is a part of it.
        self.output_tokens = number_of(usage.get("completion_tokens"))
        self.total_tokens = number_of(usage.get("total_tokens"))
        details = dict_of(usage.get("prompt_tokens_details"))
        hits = number_of(details.get("cached_tokens")) or number_of(usage.get("prompt_cache_hit_tokens"))
        self.cached_tokens = hits  # the second is DeepSeek's
        cost = usage.get("cost")  # OpenRouter's, in dollars
        # One below nothing would give back what others have spent.
        self.cost_usd = float(cost) if isinstance(cost, int | float) and 0 < cost < 1e9 else 0.0

    def _add_call(self, entry: dict[str, Any], position: int) -> None:
        function = dict_of(entry.get("function"))
        call_id, name = text_of(entry.get("id")), text_of(function.get("name"))
        index = entry["index"] if isinstance(entry.get("index"), int | str) else position
        call = self._by_index.get(index)
        # Some servers give every call the index 0: another id together with a name is another call.
        if call is None or (name and call_id and call_id != call.id):
            call = self._by_index[index] = self.call(call_id, name)
        call.id = call.id or call_id
        call.name = call.name or name
        arguments = function.get("arguments")
        if arguments is not None:
            call.arguments.append(
                arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
            )

    def answer(self, prompt: bytes) -> ModelAnswer:
        answer = super().answer(prompt)
        found = {"reasoning_content": "".join(self._thoughts), "reasoning_details": _joined(self._details)}
        thoughts = {field: value for field, value in found.items() if value}
        if answer.tool_calls and thoughts:
            answer.echo = {NAME: {"server": self._server, **thoughts}}
        return answer


def _joined(details: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """OpenRouter's pieces of thoughts as a whole reply has them: pieces of one index and kind are one."""
    runs: list[list[dict[str, Any]]] = []
    for piece in details:
        last = runs[-1][-1] if runs else {}
        if "index" in piece and all(piece.get(field) == last.get(field) for field in ("index", "type")):
            runs[-1].append(piece)
        else:
            runs.append([piece])
    return [_one_of(run) for run in runs]


def _one_of(pieces: list[dict[str, Any]]) -> dict[str, Any]:
    one: dict[str, Any] = {}
    for piece in pieces:
        one |= {field: value for field, value in piece.items() if value or field not in one}
    for field in ("text", "summary", "data"):
        texts = [text for piece in pieces if (text := text_of(piece.get(field)))]
        if texts:
            one[field] = "".join(texts)
    return one


def _first_choice(value: dict[str, Any]) -> dict[str, Any]:
    choices = dicts(value.get("choices"))
    return choices[0] if choices else {}


def _content(message: dict[str, Any]) -> tuple[str, str]:
    """The reasoning and the visible text of a message or of a piece of one."""
    thoughts = text_of(message.get("reasoning_content")) or text_of(message.get("reasoning"))
    content = message.get("content")
    parts = dicts(content)
    thoughts += "".join(_texts(dicts(part.get("thinking"))) for part in parts)  # Mistral's
    return thoughts, text_of(content) or _texts(parts)


def _texts(parts: list[dict[str, Any]]) -> str:
    return "".join(text_of(part.get("text")) for part in parts if part.get("type") == "text")
