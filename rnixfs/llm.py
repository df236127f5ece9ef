"""What goes into a model's file and what comes out of it: the wire of `dev/llm/<provider>`."""

import enum
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import msgspec

from rnixfs import limits
from rnixfs.errors import invalid


class Role(enum.StrEnum):
    """Who speaks in a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class ToolCall(msgspec.Struct, omit_defaults=True):
    """One call of a tool that a model asks for.

    Args:
        id: the model's name for this call; the result carries it back.
        name: the tool's name.
        arguments: the arguments by name.
    """

    id: str
    name: str
    arguments: dict[str, Any]


class Message(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """One message of a conversation.

    Args:
        role: who speaks.
        content: the text.
        tool_calls: calls that an assistant's message asks for.
        tool_call_id: for a tool's message, the call that it answers.
        echo: for an assistant's message, what its provider wants back unchanged (`ModelAnswer.echo`).
    """

    role: Role
    content: str = ""
    tool_calls: list[ToolCall] = []
    tool_call_id: str = ""
    echo: dict[str, Any] = {}


class ToolSpec(msgspec.Struct, forbid_unknown_fields=True):
    """A tool as a model sees it: its name, what it does, and the JSON Schema of its arguments."""

    name: str
    description: str
    input_schema: dict[str, Any]


class Priority(enum.StrEnum):
    """Who goes first where a provider takes no more calls at once."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class Fallback(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Who is asked when a provider cannot answer.

    Args:
        provider: its name under `dev/llm/`; empty for the provider that failed, with another model.
        model: the model; empty for that provider's default.
    """

    provider: str = ""
    model: str = ""


EVENTS: Literal["events"] = "events"
"""The value of `stream` that asks for one JSON object a line: `Delta`s, then the whole answer."""


class Delta(NamedTuple):
    """A piece of an answer that streams.

    Args:
        type: `text`, or `reasoning` for what the model thinks before it speaks. `restart` says that the call
            is made anew: all pieces before it are void.
        text: the piece.
    """

    type: Literal["text", "reasoning", "restart"]
    text: str = ""


Emit = Callable[[Delta], None]
"""Takes the pieces of an answer as they come."""


class ModelRequest(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A request to a model. Either `intent` or `messages` must say something.

    Args:
        intent: the user's words; added as the last user message where `messages` is empty.
        system_prompt: instructions that stand before the conversation.
        model: the provider's model; empty for its default.
        max_turns: turns that a command line model may take by itself.
        timeout_ms: milliseconds for the whole call; 0 for the provider's default.
        messages: the conversation so far.
        tools: tools the model may ask for.
        temperature: sampling temperature; None for the provider's default.
        max_tokens: most tokens of the answer; 0 for the provider's default.
        stream: answer with the text as it comes, in place of one JSON object; `"events"` for JSON lines.
        effort: how much the model is to think, in the provider's words; empty for its default.
        priority: who goes first where calls wait for each other.
        fallback: who is asked instead, in order, when the provider cannot answer.
    """

    intent: str = ""
    system_prompt: str = ""
    model: str = ""
    max_turns: int = 1
    timeout_ms: int = 0
    messages: list[Message] = []
    tools: list[ToolSpec] = []
    temperature: float | None = None
    max_tokens: int = 0
    stream: bool | Literal["events"] = False
    effort: str = ""
    priority: Priority = Priority.NORMAL
    fallback: list[Fallback] = []

    def conversation(self) -> list[Message]:
        """The messages to send: `messages`, or the intent as the only one."""
        return self.messages or [Message(role=Role.USER, content=self.intent)]


class ModelAnswer(msgspec.Struct):
    """A model's answer.

    Args:
        content: the text.
        tokens_used: what the call spent: input and output tokens, those of failed attempts included.
        input_tokens: tokens of the prompt, cached ones included.
        output_tokens: tokens of the answer, reasoning included.
        cost_usd: the price of the call in dollars, failed attempts included; 0 where nobody names one.
        model: the model that answered, as the provider calls it.
        tool_calls: calls that the model asks for.
        stop_reason: why it stopped: `end`, `tool_calls`, `max_tokens`, or the provider's own word.
        estimated: whether the tokens were estimated because the provider gave none.
        reasoning: what the model thought before it spoke, where the provider shows that.
        cached_tokens: input tokens that the provider had in its cache.
        context_window: tokens that the model takes at most; 0 where unknown.
        provider: who answered, as its file is called.
        attempts: how often providers were asked until one answered.
        echo: what the provider wants back unchanged in this answer's message, such as signed thoughts beside
            tool calls, under the dialect's name; others ignore it.
    """

    content: str = ""
    tokens_used: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    model: str = ""
    tool_calls: list[ToolCall] = []
    stop_reason: str = "end"
    estimated: bool = False
    reasoning: str = ""
    cached_tokens: int = 0
    context_window: int = 0
    provider: str = ""
    attempts: int = 1
    echo: dict[str, Any] = {}


class Usage(msgspec.Struct, frozen=True):
    """What a call spent, or a part of it that failed.

    Args:
        input_tokens: tokens of the prompt, cached ones included.
        output_tokens: tokens of the answer.
        cost_usd: dollars, 0 where unknown.
        cached_tokens: those of the input tokens that the provider had in its cache.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    cached_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens


def read_request(body: object) -> ModelRequest:
    """Turn a request (decoded JSON, or text that stands for the intent) into a ModelRequest.

    Raises:
        SyscallError: INVALID, naming the field and what would be right.
    """
    try:
        request = msgspec.convert({"intent": body} if isinstance(body, str) else body, ModelRequest)
    except msgspec.ValidationError as error:
        raise invalid(f"not a model request: {error}") from None
    _check(request)
    return request


def event_line(event: Delta | ModelAnswer) -> bytes:
    """A line of a request with `"stream": "events"`: a JSON object whose `type` says what it is."""
    if isinstance(event, ModelAnswer):
        return msgspec.json.encode({"type": "answer", **msgspec.structs.asdict(event)}) + b"\n"
    return msgspec.json.encode(event._asdict()) + b"\n"


def read_event(line: bytes) -> Delta | ModelAnswer:
    """The counterpart of `event_line`."""
    fields = msgspec.json.decode(line, type=dict[str, Any])
    if fields["type"] == "answer":
        return msgspec.convert(fields, ModelAnswer)  # which takes no notice of the type
    return Delta(fields["type"], fields.get("text", ""))


_WHOLE_MAX = 10**12  # milliseconds: 30 years


def _check(request: ModelRequest) -> None:
    if not request.intent.strip() and not request.messages:
        raise invalid('a model request needs "intent" (text) or "messages" (a list that is not empty)')
    for field in ("timeout_ms", "max_tokens"):
        if not 0 <= (value := getattr(request, field)) <= _WHOLE_MAX:
            raise invalid(f'"{field}" must be from 0 to {_WHOLE_MAX}, not {str(value)[:20]}')


def too_deep(arguments: dict[str, Any]) -> bool:
    """Whether the arguments of a call have more levels than `limits.MODEL_ARGUMENTS_DEPTH_MAX`."""
    level: list[Any] = [arguments]
    for _ in range(limits.MODEL_ARGUMENTS_DEPTH_MAX):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return False
    return any(isinstance(one, dict | list) for one in level)


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def estimate_tokens(text: str) -> int:
    """A rough count of tokens for providers that give none: four bytes a token, rounded up."""
    return -(-len(text.encode("utf-8", "replace")) // 4)
