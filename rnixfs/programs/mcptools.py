"""The tools of MCP servers: what the mounts that a process may use offer to its model.

They are found by system calls, as the files below `mnt/mcp` show them. A tool is a file of `tools/` beside
which stands the one with its definition, of the same name and `.json`.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from rnixfs.errors import Code, SyscallError
from rnixfs.mcp.places import PREFIX, ROOT, private_part, server_of, tool_name
from rnixfs.syscalls import Syscalls

_GONE = (Code.NOT_FOUND, Code.PERMISSION, Code.SERVICE_UNAVAILABLE, Code.DRIVER)
_DEFINITION = ".json"
_BINARY_SHOWN = 200  # characters of base64 up to which a model is shown a picture's or file's bytes


async def tool_files(sys: Syscalls) -> list[tuple[str, str]]:
    """The tools' devices: name of the server and path, in a stable order.

    Where a process has a server of its own, the one that others share under that name is left out.
    """
    if not sys.mounted:
        return []
    folders = [ROOT + name for name in await _names(sys, ROOT.rstrip("/")) if name != "ctl"]
    own = {server_of(folder) for folder in folders if private_part(folder)}
    found: list[tuple[str, str]] = []
    for folder in folders:
        if not private_part(folder) and server_of(folder) in own:
            continue
        names = set(await _names(sys, f"{folder}/tools"))
        found += [
            (server_of(folder), f"{folder}/tools/{name}") for name in names if name + _DEFINITION in names
        ]
    return sorted(found)


async def _names(sys: Syscalls, folder: str) -> list[str]:
    try:
        return sorted(name for name, _ in await sys.read_dir(folder))
    except SyscallError as error:
        if error.code not in _GONE:
            raise
        return []  # it connects still, or went away meanwhile


def is_gone(error: SyscallError) -> bool:
    """Whether a failure says no more than that a server, or its tool, is not there any more."""
    return error.code in _GONE


def is_servers(name: str) -> bool:
    """Whether a tool is one of an MCP server, by its name."""
    return name.startswith(PREFIX)


def named(server: str, path: str, tool: str, taken: Iterable[str]) -> str:
    """The name under which a tool is offered.

    Args:
        server: the server's name.
        path: the tool's file.
        tool: the tool as its file calls it: maybe with the name of its mount, in which a pid may be.
        taken: names that others have.
    """
    mount = path.removeprefix(ROOT).partition("/")[0]
    return tool_name(server, tool.removeprefix(f"{PREFIX}{mount}__"), frozenset(taken))


# --- answers ---


def for_model(answer: str) -> str:
    """A tool's answer as a model is told it: plain text where it is nothing else, and no bytes in base64."""
    try:
        result = msgspec.json.decode(answer)
    except (msgspec.DecodeError, RecursionError):
        return answer
    content = result.get("content") if isinstance(result, dict) else None
    if not isinstance(content, list) or not all(isinstance(one, dict) for one in content):
        return answer
    texts = [one["text"] for one in content if one.get("type") == "text" and isinstance(one.get("text"), str)]
    text = "\n".join(texts)
    structured = result.get("structured")
    if len(texts) == len(content) and (structured is None or _says(text, structured)):
        return text
    if len(texts) == len(content):
        return msgspec.json.encode({"text": text, "structured": structured}).decode()
    told = {name: value for name, value in result.items() if name != "text"}  # which the content has too
    return msgspec.json.encode({**told, "content": [_without_bytes(one) for one in content]}).decode()


def _says(text: str, structured: object) -> bool:
    """Whether a text is structured content once more, as most servers send it."""
    try:
        return bool(msgspec.json.decode(text) == structured)
    except (msgspec.DecodeError, RecursionError):
        return False


def _without_bytes(block: dict[str, Any]) -> dict[str, Any]:
    """A block of content without the bytes of a picture, a sound or a file, which are no words."""
    shown = {name: _without_bytes(one) if isinstance(one, dict) else one for name, one in block.items()}
    for field in ("data", "blob"):
        value = shown.get(field)
        if isinstance(value, str) and len(value) > _BINARY_SHOWN:
            shown[field] = f"[{len(value)} characters of base64, not shown]"
    return shown
