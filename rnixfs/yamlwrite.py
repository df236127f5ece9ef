"""Writes values as YAML that `yamlread` reads back as they were, and that people can read and edit."""

import json
import re
from collections.abc import Iterator
from typing import Any

from rnixfs.yamlvalue import fits, plain

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
# Words that other readers of YAML take for something else than text.
_ODD = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null"])
# What JSON leaves as it is, and YAML reads as the end of a line or not at all.
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_UNBLOCKED = re.compile("[\r\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]|\n\n\\Z|\\A\\s|^[ \t]+$", re.MULTILINE)


def dump(value: Any) -> str:
    """A value as a file.

    Args:
        value: mappings with names that are texts, lists, texts, numbers, flags and None.

    Raises:
        ValueError: for a text that `yamlread` would refuse.
    """
    return "\n".join(_lines(value, "")) + "\n"


def _lines(value: Any, indent: str) -> Iterator[str]:
    """The lines of a mapping or list, of anything else one line."""
    if isinstance(value, dict) and value:
        for name, one in value.items():
            yield from _entry(f"{indent}{_name(name)}:", one, indent + "  ")
    elif isinstance(value, list | tuple) and value:
        for one in value:
            yield from _item(one, indent)
    else:
        yield indent + _scalar(value)


def _entry(head: str, value: Any, indent: str) -> Iterator[str]:
    """A value behind a name, or below it."""
    if isinstance(value, dict | list | tuple) and value:
        yield head
        yield from _lines(value, indent)
    elif isinstance(value, str) and (chomping := _block(value)) is not None:
        yield f"{head} |{chomping}"
        yield from (indent + line if line else "" for line in value.removesuffix("\n").split("\n"))
    else:
        yield f"{head} {_scalar(value)}"


def _item(value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        # The first field stands behind the dash.
        first, *rest = _lines(value, indent + "  ")
        yield f"{indent}- {first[len(indent) + 2 :]}"
        yield from rest
    else:
        yield from _entry(f"{indent}-", value, indent + "  ")


def _name(name: str) -> str:
    return name if _WORD.fullmatch(name) and name.lower() not in _ODD else _quoted(name)


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        is_word = _WORD.fullmatch(value) and value.lower() not in _ODD and plain(value) == value
        return value if is_word else _quoted(value)
    return json.dumps(value)


def _quoted(text: str) -> str:
    if not fits(text):
        raise ValueError(f"YAML cannot hold {text[:60]!r}")
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))


def _block(text: str) -> str | None:
    """How a text ends that can be written as it is, line by line; None for one that cannot."""
    if "\n" not in text or _UNBLOCKED.search(text) or not fits(text):
        return None
    return "" if text.endswith("\n") else "-"
