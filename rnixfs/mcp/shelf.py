"""The MCP servers of `mcp.yaml`, ready to be mounted by name, and how they fare."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from rnixfs.errors import SyscallError
from rnixfs.loader import Library, Origin, Shelf
from rnixfs.mcp.config import ServerConfig
from rnixfs.mcp.places import ROOT, server_of
from rnixfs.mounts import MountTable
from rnixfs.types import Caller, Place

log = logging.getLogger(__name__)

_SYSTEM = Caller(0, 0)


class ServerShelf:
    """What can be mounted without saying how.

    Args:
        library: finds the configuration.
        mounts: where servers are mounted.
        whereabouts: where a caller stands, whose project counts.
        env: the daemon's environment, which has the values of variables that entries name.
    """

    def __init__(
        self,
        library: Library,
        mounts: MountTable,
        whereabouts: Callable[[Caller], Place],
        env: Mapping[str, str],
    ) -> None:
        self._library = library
        self._mounts = mounts
        self._whereabouts = whereabouts
        self._env = env

    def configured(self, name: str, caller: Caller) -> dict[str, Any]:
        """What `MountTable.begin` takes for a server, by its name. Implements `mounts.Configured`.

        Raises:
            SyscallError: NOT_FOUND; INVALID where a file is wrong, or a variable is not set.
        """
        place = self._whereabouts(caller)
        return self._mounting(self._library.for_cwd(place.cwd).server(name), place)

    def _mounting(self, server: ServerConfig, place: Place) -> dict[str, Any]:
        filled = server.filled(self._env)
        if filled.command and not filled.cwd:
            filled = msgspec.structs.replace(filled, cwd=place.cwd)
        return filled.mounting()

    def autostart(self) -> None:
        """Mount the servers of the user's file that say so; what fails shows in the status of its mount."""
        place = self._whereabouts(_SYSTEM)
        shelf = self._library.for_cwd(place.cwd)
        users = tuple(source for source in shelf.sources if source.origin is not Origin.PROJECT)
        for server in shelf.only(users).servers_shown()[0].servers:
            if server.autostart and self._mounts.find(server.name) is None:
                try:
                    self._mounts.begin(server.name, self._mounting(server, place), _SYSTEM)
                except SyscallError as error:
                    self._mounts.note_failure(server.name, server.kind, error)

    def rows(self, shelf: Shelf) -> list[dict[str, object]]:
        """Each server and its mounts, as `sys/mcp` shows them. Values of variables are not among it."""
        servers, _ = shelf.servers_shown()
        return [self._row(server, servers.at.get(server.name, "")) for server in servers.servers]

    def _row(self, server: ServerConfig, at: str) -> dict[str, object]:
        target = server.url or " ".join([server.command, *server.args])
        shown = {"name": server.name, "type": server.kind, "target": target, "autostart": server.autostart}
        return {**shown, "file": at, "mounts": self._mounts_of(server.name)}

    def _mounts_of(self, server: str) -> list[dict[str, object]]:
        found = [self._mounts.find(name) for name in self._mounts.names() if server_of(ROOT + name) == server]
        return [
            {
                "name": mount.name,
                "state": mount.stage,
                "reason": mount.reason.reason if mount.reason is not None else "",
                "owner": mount.owner,
            }
            for mount in found
            if mount is not None
        ]
