"""Adds and removes entries of the text of an `mcp.yaml`; the rest of it stays as it is, comments included.

The text is changed where the entry stands, and read again: what would not mean the old servers and the new
one, or the old ones without one, is refused. Entries within braces or brackets are written anew as a whole.
"""

import json
import textwrap
from typing import Any

import msgspec
import yaml

from rnixfs.errors import Code, SyscallError, invalid
from rnixfs.mcp.config import ServerConfig, ServersFile, parse_mcp
from rnixfs.yamlread import ManifestError, nearest
from rnixfs.yamlwrite import dump

_NEW = "version: 1\nservers:\n"
_KEYS = ("servers", "mcpServers")


def add(text: str, file: str, server: ServerConfig) -> str:
    """The text with one more server.

    Args:
        text: of the file; "" where there is none yet.
        file: its path, for messages.
        server: the new one.

    Raises:
        SyscallError: EXISTS; INVALID where the text is wrong, or cannot be changed without a person.
    """
    before = _parsed(text, file)
    if before.named(server.name) is not None:
        what = f"{before.at[server.name]} has a server {server.name!r} already; remove it first"
        raise SyscallError(Code.EXISTS, what, device=file)
    shown = _shown(server)
    return _checked(_with(text or _NEW, shown), file, (*before.servers, server))


def remove(text: str, file: str, name: str) -> str:
    """The text without a server.

    Raises:
        SyscallError: NOT_FOUND with the names there are; INVALID as for `add`.
    """
    before = _parsed(text, file)
    if before.named(name) is None:
        there = ", ".join(before.names()) or "none"
        what = f"{file} has no server {name!r}; it has: {there}{nearest(name, before.names())}"
        raise SyscallError(Code.NOT_FOUND, what, device=file)
    left = tuple(one for one in before.servers if one.name != name)
    place = before.names().index(name)
    return _checked(_without(text, place, left), file, left)


def _parsed(text: str, file: str) -> ServersFile:
    try:
        return parse_mcp(text, file)
    except ManifestError as error:
        raise error.as_syscall_error() from None


def _checked(text: str, file: str, expected: tuple[ServerConfig, ...]) -> str:
    """The text, if it means what it is to mean."""
    if _parsed(text, file).servers != expected:
        raise invalid(f"{file} is written in a way that cannot be changed here; change it by hand")
    return text


def _shown(server: ServerConfig) -> dict[str, Any]:
    """An entry as it is written: what differs from the usual."""
    usual = ServerConfig("")
    found: dict[str, Any] = msgspec.to_builtins(server)
    fields = [field.name for field in msgspec.structs.fields(server)]
    return {
        name: list(found[name]) if isinstance(found[name], tuple) else found[name]
        for name in fields
        if name in found and (name == "name" or getattr(server, name) != getattr(usual, name))
    }


# --- where things stand ---


def _servers(text: str) -> yaml.Node | None:
    """The value of the field with the servers, as it stands in the text."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    for key, value in root.value if isinstance(root, yaml.MappingNode) else ():
        if key.value in _KEYS:
            found: yaml.Node = value
            return found
    return None


def _starts(node: yaml.Node, lines: list[str]) -> list[int]:
    """The first line of each entry, from 0."""
    if isinstance(node, yaml.MappingNode):
        return [key.start_mark.line for key, _ in node.value]
    found = []
    for item in node.value:
        at = item.start_mark.line
        while not lines[at].lstrip().startswith("-"):
            at -= 1  # the dash may stand alone, on a line before
        found.append(at)
    return found


def _last(node: yaml.Node) -> int:
    """The last line of a value, from 0, without the comments behind it."""
    if isinstance(node, yaml.CollectionNode) and not _is_flow(node) and node.value:
        last = node.value[-1]
        return _last(last[1] if isinstance(last, tuple) else last)
    end: int = node.end_mark.line
    # A text in a block ends where the next line begins.
    return end - 1 if node.end_mark.column == 0 and end > node.start_mark.line else end


def _with(text: str, entry: dict[str, Any]) -> str:
    node = _servers(text)
    if node is None:
        return f"{text.rstrip()}\nservers:\n{_block([entry], '  ')}".lstrip("\n")
    if _is_empty(node):
        return _replaced(text, node, f"\n{_block([entry], '  ')}".rstrip("\n"))
    if _is_flow(node):
        return _replaced(text, node, json.dumps(_flow(node, entry), ensure_ascii=False, indent=2))
    lines = text.splitlines(keepends=True)
    indent = " " * node.start_mark.column
    at = _last(node)
    if not lines[at].endswith("\n"):
        lines[at] += "\n"
    shown: Any = [entry]
    if isinstance(node, yaml.MappingNode):
        shown = {entry["name"]: {name: value for name, value in entry.items() if name != "name"}}
    lines.insert(at + 1, _block(shown, indent))
    return "".join(lines)


def _without(text: str, place: int, left: tuple[ServerConfig, ...]) -> str:
    node = _servers(text)
    assert node is not None  # it has the entry
    if _is_flow(node):
        value = {one.name: {k: v for k, v in _shown(one).items() if k != "name"} for one in left}
        shown: Any = value if isinstance(node, yaml.MappingNode) else [_shown(one) for one in left]
        return _replaced(text, node, json.dumps(shown, ensure_ascii=False, indent=2))
    lines = text.splitlines(keepends=True)
    item = node.value[place]
    start, end = _starts(node, lines)[place], _last(item[1] if isinstance(item, tuple) else item)
    del lines[start : end + 1]
    return "".join(lines)


def _is_flow(node: yaml.Node) -> bool:
    return isinstance(node, yaml.CollectionNode) and bool(node.flow_style)


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and not node.value


def _flow(node: yaml.Node, entry: dict[str, Any]) -> Any:
    """The entries within braces or brackets, and one more."""
    value = yaml.SafeLoader("").construct_document(node)
    if isinstance(node, yaml.MappingNode):
        return {**value, entry["name"]: {name: one for name, one in entry.items() if name != "name"}}
    return [*value, entry]


def _replaced(text: str, node: yaml.Node, shown: str) -> str:
    return text[: node.start_mark.index] + shown + text[node.end_mark.index :]


def _block(value: Any, indent: str) -> str:
    return textwrap.indent(dump(value), indent)
