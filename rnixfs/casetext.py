"""How texts, arguments and calls of a recorded run are written into the file of a case.

What stands in the rules of a scenario is a template, so it is written as one that makes the recorded value.
"""

import json
import re
from typing import Any

from rnixfs import limits
from rnixfs.filters import TEXT_MAX
from rnixfs.llm import ToolCall
from rnixfs.yamlvalue import fits

_MARK = re.compile(r"\{\{|\{%|\{#")
_MARKS_MAX = 20  # marks of templates that are escaped one by one; a text with more is written as a whole
_DEPTH_MAX = limits.YAML_DEPTH_MAX - 8  # levels of arguments in YAML; deeper ones are written as JSON
_DIGITS_MAX = 40  # of a number that YAML reads as one
_HINT = 200  # characters of the intent by which the scenario is found


def hint(intent: str) -> str:
    """A part of the intent, by which the scenario is found among others."""
    lines = (line.strip() for line in intent.splitlines() if fits(line))
    found = max(lines, key=len, default="")[:_HINT].strip()
    # Between slashes it would be a pattern, as what is taken where there is no such line.
    return found.lstrip("/").strip() or "/./"


def text_field(name: str, text: str) -> dict[str, Any]:
    """A text as a field; as JSON if YAML cannot hold it."""
    return {name: text} if fits(text) else {f"{name}_json": json.dumps(text)}


def literal(text: str) -> str:
    """A template that makes this very text."""
    # A template that is one expression gives its value, without the spaces around it.
    bare = _MARK.fullmatch(text.strip()) is not None
    if fits(text) and not bare and len(_MARK.findall(text)) <= _MARKS_MAX:
        return _MARK.sub(lambda found: f'{{{{ "{found[0]}" }}}}', text)
    return _from_json(text)


def _from_json(value: object) -> str:
    """A template that makes this very value."""
    text = json.dumps(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"{{{{ '{text}' | parse_json }}}}"


def call_entry(call: ToolCall) -> dict[str, Any]:
    """A tool call as a rule has it, with templates that make what it was."""
    if not call.arguments:
        return {"tool": literal(call.name)}
    arguments = call.arguments
    simple = writable(arguments) and not _is_odd(arguments)
    return {"tool": literal(call.name), "arguments": _escaped(arguments) if simple else _from_json(arguments)}


def arguments_field(arguments: dict[str, Any]) -> dict[str, Any] | str:
    """Arguments as what is expected has them; as JSON if YAML cannot hold them."""
    return arguments if writable(arguments) else json.dumps(arguments)


def _escaped(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _escaped(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_escaped(one) for one in value]
    return literal(value) if isinstance(value, str) else value


def _is_odd(value: Any) -> bool:
    """Whether templates cannot make a value part by part: they leave out what is null, and have a limit."""
    if isinstance(value, dict | list):
        return any(map(_is_odd, value.values() if isinstance(value, dict) else value))
    return value is None or (isinstance(value, str) and len(value) > TEXT_MAX // 2)


def writable(value: Any, depth: int = 0) -> bool:
    """Whether YAML can hold a value as it is."""
    if isinstance(value, dict):
        return depth < _DEPTH_MAX and all(
            fits(name) and writable(one, depth + 1) for name, one in value.items()
        )
    if isinstance(value, list):
        return depth < _DEPTH_MAX and all(writable(one, depth + 1) for one in value)
    if isinstance(value, str):
        return fits(value)
    return not isinstance(value, int) or len(str(value)) < _DIGITS_MAX
