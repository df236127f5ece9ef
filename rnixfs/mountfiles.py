"""The folder `mnt/mcp`: its control file, and a folder for each mount."""

from collections.abc import Iterable
from typing import Any

import msgspec

from rnixfs.errors import Code, SyscallError, invalid, not_found
from rnixfs.mounts import CTL, ROOT, Mount, MountTable, Stage, check_common_name, check_mount_name
from rnixfs.node import CommandRow, Control, Dir, Document, File, Node
from rnixfs.types import Caller, Kind, Stat


class McpDir(Dir):
    """`mnt/mcp/`: the control file, and a folder for each mount.

    Args:
        table: the mounts.
    """

    def __init__(self, table: MountTable) -> None:
        self._table = table
        self._ctl = Control("mnt/mcp/ctl", _commands(table))

    def lookup(self, name: str, caller: Caller) -> Node:
        if name == CTL:
            return self._ctl
        mount = self._table.find(name)
        if mount is None:
            raise not_found(ROOT + name)
        return MountDir(mount)

    def entries(self, caller: Caller) -> Iterable[tuple[str, Node]]:
        yield CTL, self._ctl
        for name in self._table.names():
            mount = self._table.find(name)
            if mount is not None:
                yield name, MountDir(mount)


class MountDir(Dir):
    """`mnt/mcp/<name>/`: its status, and, once it is ready, what the server shows.

    Args:
        mount: which.
    """

    def __init__(self, mount: Mount) -> None:
        self._mount = mount

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MountDir) and other._mount is self._mount

    def __hash__(self) -> int:
        return hash((MountDir, self._mount.serial))

    def stat(self) -> Stat:
        # What is unmounted is gone at once: nobody may remember the name.
        return Stat(Kind.DIRECTORY, mode=0o555, links=2, name_ttl=0.0)

    def _status(self) -> Node:
        return Document(("mount", self._mount.serial, "status"), self._mount.status)

    def _root(self, name: str) -> Dir:
        if self._mount.root is None:
            path, stage = f"{ROOT}{self._mount.name}/{name}", self._mount.stage
            if stage is Stage.RESTARTING:
                status = f"{ROOT}{self._mount.name}/status"
                why = f"the mount of {path} is {stage}; try again later, {status} says why"
                raise SyscallError(Code.SERVICE_UNAVAILABLE, why)
            raise not_found(f"{path} (the mount is {stage})")
        return self._mount.root

    def lookup(self, name: str, caller: Caller) -> Node:
        return self._status() if name == "status" else self._root(name).lookup(name, caller)

    def entries(self, caller: Caller) -> Iterable[tuple[str, Node]]:
        yield "status", self._status()
        if self._mount.root is not None:
            yield from ((name, node) for name, node in self._mount.root.entries(caller) if name != "status")

    def create(self, name: str, mode: int, caller: Caller, flags: int) -> tuple[Node, File]:
        return self._root(name).create(name, mode, caller, flags)

    def mkdir(self, name: str, mode: int, caller: Caller) -> Node:
        return self._root(name).mkdir(name, mode, caller)

    def unlink(self, name: str, caller: Caller) -> None:
        self._root(name).unlink(name, caller)

    def rmdir(self, name: str, caller: Caller) -> None:
        self._root(name).rmdir(name, caller)


def _commands(table: MountTable) -> dict[str, CommandRow]:
    def mount(caller: Caller, rest: str) -> None:
        name, _, text = rest.partition(" ")
        if not name:
            raise invalid("mount takes a name and a JSON object, or the name of a server of mcp.yaml")
        check_common_name(name)
        table.begin(name, _config(table, name, text, caller), caller)

    def unmount(caller: Caller, rest: str) -> None:
        table.drop(rest, caller)

    rows = [
        CommandRow(
            "mount NAME [JSON]",
            "connect to a server, without JSON to NAME of mcp.yaml; NAME/status tells how it goes",
            mount,
        ),
        CommandRow("unmount NAME", "close the connection and take the folder away", unmount),
    ]
    return {row.usage.partition(" ")[0]: row for row in rows}


def _config(table: MountTable, name: str, text: str, caller: Caller) -> dict[str, Any]:
    """What is mounted: the server of that name in mcp.yaml, that of `server`, or what JSON says."""
    if not text.strip():
        return table.configured(check_mount_name(name), caller)
    config = _json(text)
    if "server" not in config:
        return config
    if len(config) > 1 or not isinstance(config["server"], str):
        raise invalid('"server" is the name of a server of mcp.yaml, and stands alone: {"server": "time"}')
    return table.configured(config["server"], caller)


def _json(text: str) -> dict[str, Any]:
    try:
        config = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise invalid(f"mount takes a name and a JSON object, but after the name: {error}") from None
    if not isinstance(config, dict):
        raise invalid(
            'mount takes a name and a JSON object such as {"command": "mcp-server-time"} or {"url": …}'
        )
    return config
