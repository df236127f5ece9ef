"""Where servers of one process lie, and the names of servers' tools as models call them."""

import hashlib
import re
from collections.abc import Collection

from rnixfs import limits

ROOT = "/mnt/mcp/"
PREFIX = "mcp__"
"""Begins the names of tools of MCP servers."""

_PRIVATE = re.compile(r"/mnt/mcp/\d+-([^/]+)")
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST = 6  # hexadecimal digits that tell apart names which would be the same


def own_path(pid: int, server: str) -> str:
    """Where a server is mounted for a process."""
    return f"{ROOT}{pid}-{server}"


def private_part(path: str) -> str:
    """The folder of a server that was mounted for one process, if a path is that or lies below; else ""."""
    found = _PRIVATE.match(path)
    return found[0] if found is not None else ""


def server_of(path: str) -> str:
    """The name of the server that is mounted at a path, without the pid of whom it is for."""
    found = _PRIVATE.match(path)
    return found[1] if found is not None else path.removeprefix(ROOT).partition("/")[0]


def tool_name(server: str, tool: str, taken: Collection[str] = ()) -> str:
    """A tool as models call it: `mcp__<server>__<tool>`, of letters, digits, _ and - alone.

    Args:
        server: the server's name.
        tool: the tool's name, as the server has it.
        taken: names that others have.
    """
    whole = f"{PREFIX}{server}__{tool}"
    name = _UNFIT.sub("_", whole)
    if len(name) <= limits.MCP_TOOL_NAME_MAX and name not in taken:
        return name
    # By what it is called, and not by a count, so that it keeps its name whatever else there is.
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    return f"{name[: limits.MCP_TOOL_NAME_MAX - _DIGEST - 1]}_{digest}"
