"""What an MCP server asks of a model (`sampling/createMessage`), as a request to a model, and back.

Format: https://modelcontextprotocol.io/specification/2025-11-25/client/sampling. Which model answers is not
the server's choice, so its preferences are left out; so is the wish for context of other servers.
"""

from typing import Any

from rnixfs.errors import invalid
from rnixfs.llm import Message, ModelAnswer, ModelRequest, Role

_STOP_REASONS = {"end": "endTurn", "max_tokens": "maxTokens"}


def to_request(params: dict[str, Any]) -> ModelRequest:
    """The request to a model that a server's wish stands for.

    Raises:
        SyscallError: INVALID for what is no text, and for a conversation without messages.
    """
    messages = [
        Message(Role(one["role"]), "\n".join(map(_text, _parts(one["content"]))))
        for one in params["messages"]
    ]
    if not messages:
        raise invalid('"messages" of the server is empty; it must hold what the model is to answer')
    return ModelRequest(
        system_prompt=params.get("systemPrompt") or "",
        messages=messages,
        temperature=params.get("temperature"),
        max_tokens=int(params.get("maxTokens") or 0),
    )


def _parts(content: Any) -> list[dict[str, Any]]:
    return content if isinstance(content, list) else [content]


def _text(part: dict[str, Any]) -> str:
    if part.get("type") != "text":
        raise invalid(
            f'the server shows the model content of type "{part.get("type")}"; only text is passed on'
        )
    return str(part["text"])


def to_result(answer: ModelAnswer) -> dict[str, Any]:
    """A model's answer as the server gets it."""
    return {
        "role": "assistant",
        "content": {"type": "text", "text": answer.content},
        "model": answer.model or answer.provider,
        "stopReason": _STOP_REASONS.get(answer.stop_reason, answer.stop_reason),
    }
