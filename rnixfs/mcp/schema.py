"""Arguments of a tool, held against the tool's JSON Schema before the server sees them.

A schema comes from a server, so it may be anything. References to other documents are never followed, and a
pattern that could run for ever is not tried: the server itself judges what is not judged here. A schema that
is none lets every object pass.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import jsonschema
import referencing
import referencing.exceptions
from jsonschema.protocols import Validator

from rnixfs import limits
from rnixfs.errors import invalid
from rnixfs.patterns import RefusedError, compile_pattern

log = logging.getLogger(__name__)

_SHOWN = 200  # characters of a refused value, or of what would be right


class Arguments:
    """What checks the arguments of one tool.

    Args:
        schema: its input schema.
        where: the tool's path, for messages.
    """

    def __init__(self, schema: Mapping[str, Any], where: str) -> None:
        self._where = where
        self._validator = _validator(schema, where)

    def check(self, arguments: object) -> None:
        """Refuse arguments that do not fit.

        Raises:
            SyscallError: INVALID, with the path of the field and what would be right.
        """
        if not isinstance(arguments, dict):
            raise invalid(f"{self._where} takes its arguments as a JSON object, such as {{}}")
        if self._validator is None:
            return
        try:
            worst = jsonschema.exceptions.best_match(self._validator.iter_errors(arguments))
        except (RecursionError, referencing.exceptions.Unresolvable, ValueError, TypeError) as error:
            log.warning("%s: its schema cannot be used (%r); the server judges", self._where, error)
            return
        if worst is not None:
            raise invalid(f"{self._where}: {_path(worst)} {_complaint(worst)}")


def _validator(schema: Mapping[str, Any], where: str) -> Validator | None:
    try:
        kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        kind.check_schema(schema)
    except (jsonschema.SchemaError, RecursionError, ValueError, TypeError, AttributeError) as error:
        log.warning("%s: its schema is none (%s); the server judges", where, str(error)[:_SHOWN])
        return None
    bounded = jsonschema.validators.extend(
        kind, {"pattern": _pattern, "patternProperties": _pattern_properties}
    )
    return bounded(schema, registry=referencing.Registry())


def _searches(pattern: str, text: str) -> bool | None:
    """Whether a text holds a pattern; None where that is not tried."""
    if len(text) > limits.MCP_PATTERN_TEXT:
        return None
    try:
        return compile_pattern(pattern).search(text) is not None
    except RefusedError:
        return None


def _pattern(
    validator: Validator, pattern: str, instance: object, schema: object
) -> Iterable[jsonschema.ValidationError]:
    if isinstance(instance, str) and _searches(pattern, instance) is False:
        yield jsonschema.ValidationError(f"does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: object, schema: object
) -> Iterable[jsonschema.ValidationError]:
    if not isinstance(instance, dict):
        return
    for pattern, inner in patterns.items():
        for name, value in instance.items():
            if _searches(pattern, name):
                yield from validator.descend(value, inner, path=name, schema_path=pattern)


# --- what is said ---


def _path(error: jsonschema.ValidationError) -> str:
    path = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in error.absolute_path)
    return path.removeprefix(".") or "the object"


def _clip(value: object) -> str:
    text = repr(value) if not isinstance(value, str) else value
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _complaint(error: jsonschema.ValidationError) -> str:
    value: Any = error.validator_value
    got: Any = error.instance
    match error.validator:
        case "required":
            missing = ", ".join(repr(name) for name in value if name not in got)
            return f"lacks {missing}; it takes {_clip(_fields(error))}"
        case "additionalProperties":
            return f"has a field that is not taken ({_clip(error.message)}); it takes {_clip(_fields(error))}"
        case "type":
            right = " or ".join(value) if isinstance(value, list) else value
            return f"is {_kind(got)}, not {_clip(right)}"
        case "enum":
            return f"is {_clip(repr(got))}; one of: {_clip(', '.join(map(repr, value)))}"
        case "pattern":
            return f"is {_clip(repr(got))}, which does not match {_clip(value)}"
    return f"does not fit: {_clip(error.message)} (by {error.validator})"


def _fields(error: jsonschema.ValidationError) -> str:
    schema: Any = error.schema
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not properties:
        return "none"
    required = schema.get("required", ())
    return ", ".join(f"{name} (required)" if name in required else name for name in properties)


def _kind(value: object) -> str:
    names = {bool: "a boolean", str: "a string", int: "an integer", float: "a number"}
    names |= {type(None): "null", list: "an array", dict: "an object"}
    return names.get(type(value), type(value).__name__)
