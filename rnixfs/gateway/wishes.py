"""What providers cannot be made to do, and are asked for in words instead."""

from typing import Any

import msgspec

from rnixfs.gateway.refusal import refuse
from rnixfs.llm import ToolSpec


def choose(tools: list[ToolSpec], named: Any, any_of_them: bool) -> tuple[list[ToolSpec], str]:
    """Have the model call one of the tools, or a certain one: by asking it to, which is all there is.

    Args:
        tools: all of them.
        named: the name of the one to be called, "" where it may be any.
        any_of_them: whether any will do.

    Raises:
        RefusedError: there is no such tool, or the choice is none that is known.
    """
    if any_of_them and tools:
        return tools, "Answer with a call of at least one of your tools, not with text alone."
    found = [tool for tool in tools if tool.name == named]
    if not found:
        right = "it can be auto, none, any of the tools, or the name of one of them"
        raise refuse(f"tool_choice: names no tool of this request; {right}", "tool_choice")
    return found, f"Answer with a call of the tool {named}, not with text alone."


def in_json(schema: dict[str, Any] | None) -> str:
    """The words that ask a model for JSON; nothing else makes it keep to that.

    Args:
        schema: the JSON Schema to keep to; None for any object.
    """
    words = "Answer with one JSON object and nothing else: no words around it, no code fence."
    if schema is None:
        return words
    return f"{words} It must fit this JSON Schema: {msgspec.json.encode(schema).decode()}"
