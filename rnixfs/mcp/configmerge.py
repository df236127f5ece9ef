"""Several `mcp.yaml` as one: the project's over the user's, each entry as a whole.

**What a project's file may not do.** It comes with whatever was cloned. So an entry there that starts a
program, reaches another machine, sends a variable of the daemon, or lets its server ask people or models is
dropped unless the user trusts the project: each would let the author of the project run commands as that
user, or read out a key. An entry that is dropped does not hide the user's own of that name. And nothing of a
project is mounted by itself when the system starts.
"""

from urllib.parse import urlsplit

import msgspec

from rnixfs.address import is_loopback
from rnixfs.mcp.config import ServerConfig, ServersFile

_ALLOW = "put the entry into the global mcp.yaml, or list the project's folder in RNIX_TRUSTED"


def merge(base: ServersFile, over: ServersFile) -> ServersFile:
    """Two files as one: an entry of `over` takes the place of the whole entry of that name.

    Not field by field: half an entry of a project beside the headers of the global one would send those to
    the project's address.
    """
    merged = {one.name: one for one in base.servers} | {one.name: one for one in over.servers}
    return ServersFile(tuple(merged.values()), base.at | over.at)


def restrict_project(
    file: ServersFile, where: str = ".rnix/mcp.yaml", *, trusted: bool = False
) -> tuple[ServersFile, tuple[str, ...]]:
    """A project's file without what only its user may decide (see the module), and a warning for each thing
    that was left out.

    Args:
        file: the parsed file.
        where: its path, for the warnings.
        trusted: whether the user trusts the project.
    """
    kept: list[ServerConfig] = []
    warnings: list[str] = []
    for one in file.servers:
        if not trusted and (reason := _needs_trust(one)):
            warnings.append(
                f"{where}: MCP server {one.name!r} is not used because it {reason}; to allow it, {_ALLOW}"
            )
            continue
        if one.autostart:
            warnings.append(
                f"{where}: autostart of MCP server {one.name!r} counts in the global mcp.yaml only"
            )
        kept.append(msgspec.structs.replace(one, autostart=False))
    names = {one.name for one in kept}
    at = {name: line for name, line in file.at.items() if name in names}
    return ServersFile(tuple(kept), at), tuple(warnings)


def _needs_trust(one: ServerConfig) -> str:
    if one.command:
        return "starts a program"
    if not is_loopback(one.url):
        return f"reaches another machine ({urlsplit(one.url).hostname})"
    if one.references():
        return f"sends ${one.references()[0]}"
    return f"allows {' and '.join(one.allow)}" if one.allow else ""
