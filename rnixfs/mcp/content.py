"""What servers answer, as files show it. All of it is JSON as it came over the wire.

Nothing is lost: images and sounds stay base64 with their type, links stay links. Only what a shell wants
first is added, the texts of an answer as one.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, invalid


def tool_answer(result: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of a tool: its content, the structured one where there is one, and all its text.

    Raises:
        SyscallError: DRIVER with the server's words, where the tool says that it failed.
    """
    content = result.get("content") or []
    text = joined(content)
    if result.get("isError"):
        raise SyscallError(Code.DRIVER, _clipped(text) or "the tool failed and did not say why")
    answer: dict[str, Any] = {"content": content, "text": text}
    if result.get("structuredContent") is not None:
        answer["structured"] = result["structuredContent"]
    return answer


def joined(content: list[Any]) -> str:
    """The texts among contents, a line break between them."""
    return "\n".join(text for text in map(_text, content) if text is not None)


def _text(item: Any) -> str | None:
    if not isinstance(item, dict):
        return None
    if item.get("type") == "resource":
        item = item.get("resource") or {}
    text = item.get("text")
    return text if isinstance(text, str) else None


def _clipped(text: str) -> str:
    most = limits.MCP_ERROR_MAX
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"


def prompt_answer(result: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of a prompt."""
    return {"description": result.get("description") or "", "messages": result.get("messages") or []}


def document(result: Mapping[str, Any], uri: str) -> bytes:
    """The bytes of a resource: its contents one after another, texts as UTF-8.

    Raises:
        SyscallError: DRIVER where the server sends neither text nor base64.
    """
    return b"".join(_bytes(one, uri) for one in result.get("contents") or [])


def _bytes(item: Mapping[str, Any], uri: str) -> bytes:
    if isinstance(text := item.get("text"), str):
        return text.encode("utf-8", "replace")
    try:
        return base64.b64decode(item.get("blob") or "", validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise SyscallError(
            Code.DRIVER, f"the server sent {uri} as what is neither text nor base64; that is its mistake"
        ) from None


def prompt_arguments(declared: list[Mapping[str, Any]], body: object, where: str) -> dict[str, str]:
    """The arguments of a prompt, checked: those it needs are there, all are texts, and it knows each.

    Args:
        declared: what the server says of its arguments.
        body: the request; an empty text stands for none.
        where: the prompt's path, for messages.

    Raises:
        SyscallError: INVALID, naming the argument.
    """
    names = [str(one.get("name")) for one in declared]
    takes = ", ".join(names) or "no arguments"
    given = {} if isinstance(body, str) and not body.strip() else body
    if not isinstance(given, dict):
        raise invalid(f"{where} takes its arguments as a JSON object of texts; it takes {takes}")
    for one in declared:
        if one.get("required") and one.get("name") not in given:
            raise invalid(f"{where} lacks the argument {one.get('name')!r}; it takes {takes}")
    for name, value in given.items():
        if name not in names:
            raise invalid(f"{where} takes no argument {name!r}; it takes {takes}")
        if not isinstance(value, str):
            raise invalid(f"{where}: the argument {name!r} must be a text in quotes")
    return given


def prompt_schema(declared: list[Mapping[str, Any]]) -> dict[str, Any]:
    """The arguments of a prompt as JSON Schema."""
    return {
        "type": "object",
        "properties": {
            str(one.get("name")): {"type": "string"}
            | ({"description": one["description"]} if one.get("description") else {})
            for one in declared
        },
        "required": [str(one.get("name")) for one in declared if one.get("required")],
    }
