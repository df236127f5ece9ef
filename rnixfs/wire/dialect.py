"""What the HTTP interface of a provider is made of, and what the readers of all of them share.

A dialect is pure: it turns requests into bytes and bytes into answers. Who sends them is `drivers.http`.
"""

import re
import zlib
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from rnixfs import limits
from rnixfs.errors import Code
from rnixfs.llm import Delta, Message, ModelAnswer, ModelRequest, ToolCall, Usage, too_deep
from rnixfs.wire.count import spent
from rnixfs.wire.failure import WireError, message_of, of_status, one_line

INVALID_ARGUMENTS = "__invalid__"
"""The only key of `ToolCall.arguments` when the model's arguments were no JSON object; it holds their text.
A marked call keeps its place in the conversation, so that the loop can tell the model what was wrong."""

REFUSAL = "refusal"
"""The `stop_reason` of an answer that the model, or a filter before or behind it, did not want to give."""

# Where a server tells a model's window: Anthropic, vLLM, OpenRouter and Together, Groq, LM Studio.
_WINDOWS = ("max_input_tokens", "max_model_len", "context_length", "context_window", "max_context_length")


class ListedModel(NamedTuple):
    """An entry of a server's list of models.

    Args:
        name: as requests name it.
        context_window: tokens that it takes at most; 0 where the list does not say.
    """

    name: str
    context_window: int


class StreamReader(Protocol):
    """Puts a streamed reply together from the data of its server-sent events."""

    done: bool
    """Whether nothing can follow that matters, so that nobody need wait for the end of the connection."""

    def feed(self, data: str) -> list[Delta]:
        """Take the data of one event and return what it adds.

        Raises:
            WireError: it is no JSON, or is an error.
        """

    def answer(self, prompt: bytes) -> ModelAnswer:
        """The answer after the last event.

        Args:
            prompt: the body that was sent, to estimate tokens where the provider gave none.

        Raises:
            WireError: the stream ended before the model was done.
        """

    def usage(self, prompt: bytes) -> Usage:
        """What was spent up to here: what the provider said, and an estimate of what it did not say yet."""


class Dialect(Protocol):
    """How a kind of server is asked."""

    models: str
    """The path, with its query, of the list of models."""

    def path(self, model: str, stream: bool) -> str:
        """The path of a call."""

    def headers(self, key: str) -> dict[str, str]:
        """The headers that name the key (empty for none), and whatever else every request needs."""

    def encode(self, request: ModelRequest, model: str, stream: bool) -> bytes:
        """The body of a call.

        Equal requests give equal bytes, and a conversation that grew begins with the one before it (but for
        marks that say where to cache), so that providers' prompt caches hit.
        """

    def read_answer(self, body: bytes, prompt: bytes) -> ModelAnswer:
        """Read the whole reply of a call that does not stream.

        Args:
            body: the reply.
            prompt: the body that was sent, to estimate tokens where the provider gave none.

        Raises:
            WireError: it is no JSON, holds an error (some servers send those with status 200), or no answer.
        """

    def reader(self) -> StreamReader:
        """A reader for one streamed reply."""

    def refusal(self, status: int, body: bytes) -> WireError:
        """The failure that a reply of another status than 200 stands for."""

    def read_models(self, body: bytes) -> list[ListedModel]:
        """Read the list of models.

        Raises:
            WireError: it is none.
        """


class _Call:
    def __init__(self, call_id: str, name: str) -> None:
        self.id = call_id
        self.name = name
        self.arguments: list[str] = []


class Reply:
    """What a reply consists of, whole or in pieces: the reader of each dialect fills it in."""

    def __init__(self) -> None:
        self.model = ""
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.refusal: list[str] = []
        self.stop = ""
        """Why the model stopped, in the words of `ModelAnswer.stop_reason`; empty while it goes on."""
        self.input_tokens = 0
        self.output_tokens = 0
        self.cached_tokens = 0
        self.total_tokens = 0
        self.cost_usd = 0.0
        self.calls: list[_Call] = []

    def say(self, text: str) -> list[Delta]:
        """Add visible text."""
        self.text.append(text)
        return [Delta("text", text)] if text else []

    def think(self, text: str) -> list[Delta]:
        """Add reasoning."""
        self.reasoning.append(text)
        return [Delta("reasoning", text)] if text else []

    def call(self, call_id: str, name: str) -> _Call:
        """Add a tool call, whose arguments follow."""
        self.calls.append(_Call(call_id, name))
        return self.calls[-1]

    def usage(self, prompt: bytes) -> Usage:
        """The tokens so far: what the provider said, an estimate where it said nothing yet."""
        pieces = [part for call in self.calls for part in call.arguments]
        guess = spent(prompt, *self.text, *self.reasoning, *pieces)
        return Usage(
            input_tokens=self.input_tokens or guess.input_tokens,
            # While a stream goes on its server tells less than it gave, where it tells at all.
            output_tokens=max(self.output_tokens, guess.output_tokens),
            cost_usd=self.cost_usd,
            cached_tokens=self.cached_tokens,
        )

    def answer(self, prompt: bytes) -> ModelAnswer:
        """The whole answer.

        Raises:
            WireError: a tool call names no tool.
        """
        mark = f"call_{zlib.crc32(prompt):08x}"
        calls = [_tool_call(call, f"{mark}_{number}") for number, call in enumerate(self.calls)]
        content, refusal = "".join(self.text), "".join(self.refusal)
        answer = ModelAnswer(content=content or refusal, model=self.model, tool_calls=calls)
        answer.reasoning = "".join(self.reasoning)
        answer.stop_reason = self.stop or "end"
        if calls and answer.stop_reason == "end":
            answer.stop_reason = "tool_calls"
        if refusal and not content:
            answer.stop_reason = REFUSAL
        self._count(answer, prompt)
        return answer

    def _count(self, answer: ModelAnswer, prompt: bytes) -> None:
        answer.estimated = not (self.input_tokens or self.output_tokens or self.total_tokens)
        if answer.estimated:
            usage = self.usage(prompt)
            answer.input_tokens, answer.output_tokens = usage.input_tokens, usage.output_tokens
        else:
            answer.input_tokens, answer.output_tokens = self.input_tokens, self.output_tokens
        answer.tokens_used = max(self.total_tokens, answer.input_tokens + answer.output_tokens)
        answer.cached_tokens = self.cached_tokens
        answer.cost_usd = self.cost_usd


_R = TypeVar("_R", bound=Reply)


class ReplyStream(Generic[_R]):
    """What the readers of streamed replies share; see `StreamReader`.

    Args:
        reply: what the pieces add up to.
    """

    def __init__(self, reply: _R) -> None:
        self._reply = reply
        self.done = False

    def answer(self, prompt: bytes) -> ModelAnswer:
        """The answer after the last event.

        Raises:
            WireError: the stream ended before the model was done.
        """
        if not (self.done or self._reply.stop):
            raise cut_off()
        return self._reply.answer(prompt)

    def usage(self, prompt: bytes) -> Usage:
        """What was spent up to here."""
        return self._reply.usage(prompt)


def _tool_call(call: _Call, made_up: str) -> ToolCall:
    if not call.name:
        raise WireError(Code.DRIVER, "a tool call of the reply names no function")
    return ToolCall(call.id or made_up, call.name, _arguments("".join(call.arguments)))


def _arguments(raw: str) -> dict[str, Any]:
    if raw.strip() in ("", "null"):
        return {}
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = None
    return value if isinstance(value, dict) and not too_deep(value) else {INVALID_ARGUMENTS: raw}


def made_up(call_id: str) -> bool:
    """Whether the name of a call is ours, because its provider gave none. Each prompt gives others."""
    return re.fullmatch(r"call_[0-9a-f]{8}_\d+", call_id) is not None


def cut_off() -> WireError:
    """The failure of a stream that ended before the model was done."""
    return WireError(Code.DRIVER, "the stream ended before the answer was complete", transient=True)


def decode(body: bytes | str) -> dict[str, Any]:
    """The JSON object of a reply or an event.

    Raises:
        WireError: it is none, or it is an error.
    """
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise _no_json(body, str(error)) from None
    if not isinstance(value, dict):
        raise WireError(Code.DRIVER, f"the reply is no JSON object: {shown(body)}")
    if value.get("error"):
        raise _inner_error(value, shown(body))
    return value


def _no_json(body: bytes | str, why: str) -> WireError:
    cut = "truncated" in why  # which is how msgspec says that the end is missing
    text = "the reply ended before it was complete" if cut and body else f"the reply is no JSON ({why})"
    return WireError(Code.DRIVER, f"{text}: {shown(body)}", transient=cut)


def _inner_error(value: dict[str, Any], body: str) -> WireError:
    """The failure in a reply of status 200. OpenRouter and Google name the status it stands for in `code`."""
    error = value["error"]
    status = error.get("code") if isinstance(error, dict) else None
    if isinstance(status, str) and status.isascii() and status.isdigit():
        status = int(status)
    text = message_of(value) or body
    if isinstance(status, int) and 400 <= status < 600:
        return of_status(status, text)
    return WireError(Code.DRIVER, text)


def decode_list(body: bytes, field: str) -> list[dict[str, Any]]:
    """The entries of a list of models.

    Args:
        body: the reply.
        field: where the list stands in it.

    Raises:
        WireError: there is none.
    """
    value = decode(body)
    if not isinstance(value.get(field), list):
        raise WireError(Code.DRIVER, f"the reply is no list of models: {shown(body)}")
    return dicts(value[field])


def listed(entries: list[dict[str, Any]]) -> list[ListedModel]:
    """The models of a list whose entries have an `id`; those without are left out."""
    return [ListedModel(name, _window(entry)) for entry in entries if (name := text_of(entry.get("id")))]


def _window(entry: dict[str, Any]) -> int:
    meta = dict_of(entry.get("meta"))  # llama.cpp: what it runs with, what the model was trained for
    told = [entry.get(field) for field in _WINDOWS] + [meta.get("n_ctx"), meta.get("n_ctx_train")]
    return next(filter(None, map(number_of, told)), 0)


def shown(body: bytes | str) -> str:
    """The beginning of a reply, for an error text."""
    start = body[: 4 * limits.MODEL_ERROR_MAX]
    return one_line(start if isinstance(start, str) else start.decode("utf-8", "replace"))[:200] or "(empty)"


def text_of(value: Any) -> str:
    """A value if it is text, else none."""
    return value if isinstance(value, str) else ""


def number_of(value: Any) -> int:
    """A value if it is a number above 0 that can be a count, else 0."""
    return int(value) if isinstance(value, int | float) and 0 < value < 1e15 else 0


def dict_of(value: Any) -> dict[str, Any]:
    """A value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def dicts(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; none if it is no list."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def fitting_id(call_id: str, longest: int) -> str:
    """The name of a call in a form that every provider takes: another provider may have chosen it.

    Args:
        call_id: the name.
        longest: the most characters that this provider takes.
    """
    if len(call_id) <= longest and re.fullmatch(r"[A-Za-z0-9_-]+", call_id):
        return call_id
    mark = f"_{zlib.crc32(call_id.encode('utf-8', 'replace')):08x}"
    return re.sub(r"[^A-Za-z0-9_-]", "_", call_id)[: longest - len(mark)] + mark


def echo_of(message: Message, dialect: str, server: str) -> dict[str, Any]:
    """What this server wants back in a message; empty when another gave it, whose signatures it refuses."""
    echo = dict_of(message.echo.get(dialect))
    return echo if echo.get("server") == server else {}
