"""What goes into a model's file and what comes out of it: the wire of `dev/llm/<provider>`."""

import enum
from typing import Any

import msgspec

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
    """

    role: Role
    content: str = ""
    tool_calls: list[ToolCall] = []
    tool_call_id: str = ""


class ToolSpec(msgspec.Struct, forbid_unknown_fields=True):
    """A tool as a model sees it: its name, what it does, and the JSON Schema of its arguments."""

    name: str
    description: str
    input_schema: dict[str, Any]


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
        stream: answer with the text as it comes, in place of one JSON object.
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
    stream: bool = False

    def conversation(self) -> list[Message]:
        """The messages to send: `messages`, or the intent as the only one."""
        return self.messages or [Message(role=Role.USER, content=self.intent)]


class ModelAnswer(msgspec.Struct):
    """A model's answer.

    Args:
        content: the text.
        tokens_used: input and output tokens of this call together.
        input_tokens: tokens of the prompt, cached ones included.
        output_tokens: tokens of the answer.
        cost_usd: the price of this call in dollars; 0 where the provider names none.
        model: the model that answered, as the provider calls it.
        tool_calls: calls that the model asks for.
        stop_reason: why it stopped: `end`, `tool_calls`, `max_tokens`, or the provider's own word.
        estimated: whether the tokens were estimated because the provider gave none.
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


def _check(request: ModelRequest) -> None:
    if not request.intent.strip() and not request.messages:
        raise invalid('a model request needs "intent" (text) or "messages" (a list that is not empty)')
    for field in ("timeout_ms", "max_tokens"):
        if getattr(request, field) < 0:
            raise invalid(f'"{field}" is {getattr(request, field)}; it must be 0 or more')


def estimate_tokens(text: str) -> int:
    """A rough count of tokens for providers that give none: four bytes a token, rounded up."""
    return -(-len(text.encode("utf-8", "replace")) // 4)
