"""Telling clients when a process changes, for as long as one of them wants to know.

There are two ways to want it: the newest protocol has streams of its own, which the SDK serves from a bus;
older ones subscribe to a resource. Both are fed from `proc/events`.
"""

import contextlib
import os
from collections.abc import Callable
from typing import Any

import trio
from mcp.server.subscriptions import InMemorySubscriptionBus
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated, ServerEvent

from rnixfs.errors import SyscallError
from rnixfs.gateway.mount import json_of
from rnixfs.mcpserve.files import Source
from rnixfs.mcpserve.tree import SCHEME, Tree

RETRY_SECONDS = 2.0  # before the events are opened again, when the daemon has gone
SEND_SECONDS = 5.0  # for a client to take a notice
SUBSCRIPTIONS_MAX = 1000  # of clients that subscribe to resources one by one

_CHANGED = ("status", "log", "result")
_LISTED = frozenset({"spawn", "reap", "fork"})


class Bus(InMemorySubscriptionBus):
    """What happens to processes, for those who subscribed.

    Args:
        tree: the tree, with what clients may use of it.
    """

    def __init__(self, tree: Tree) -> None:
        super().__init__()
        self._tree = tree
        self._wanted = trio.Event()
        self._count = 0
        self._sessions: dict[str, dict[Any, Any]] = {}  # by URI and connection

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Take a listener; returns what takes it away again."""
        leave = super().subscribe(listener)
        self._begin()
        left = False

        def unsubscribe() -> None:
            nonlocal left
            leave()
            if not left:
                left = True
                self._end()

        return unsubscribe

    def add(self, uri: str, session: Any) -> bool:
        """Tell a session of an older protocol about a resource; returns whether there is room."""
        connection, found = _connection(session), self._sessions.setdefault(uri, {})
        if connection in found:
            return True
        if sum(map(len, self._sessions.values())) >= SUBSCRIPTIONS_MAX:
            return False
        if not any(connection in others for others in self._sessions.values()):
            connection.exit_stack.callback(self._leave, connection)
        found[connection] = session
        self._begin()
        return True

    def remove(self, uri: str, session: Any) -> None:
        """Tell it no more."""
        self._drop(uri, _connection(session))

    def _leave(self, connection: Any) -> None:
        for uri in list(self._sessions):
            self._drop(uri, connection)

    def _drop(self, uri: str, connection: Any) -> None:
        found = self._sessions.get(uri, {})
        if found.pop(connection, None) is not None:
            self._end()
        if not found:
            self._sessions.pop(uri, None)

    def _begin(self) -> None:
        self._count += 1
        self._wanted.set()

    def _end(self) -> None:
        self._count -= 1
        if not self._count:
            self._wanted = trio.Event()

    async def run(self) -> None:
        """Follow the events while somebody wants them; for ever."""
        while True:
            await self._wanted.wait()
            with contextlib.suppress(SyscallError):
                await self._follow()
            await trio.sleep(RETRY_SECONDS)

    async def _follow(self) -> None:
        # Whatever a client may read: each is told only of processes that it sees.
        path = "/proc/.live/events"
        async with self._tree.opened(path, os.O_RDONLY | os.O_NONBLOCK) as descriptor:
            source = Source(self._tree, path, descriptor)
            while self._count and (line := await source.line()) is not None:
                await self._tell(json_of(line))

    async def _tell(self, event: dict[str, Any]) -> None:
        pid = event.get("pid")
        if not pid or not self._tree.rights.sees(f"/proc/{pid}/status"):
            return
        for name in _CHANGED:
            uri = f"{SCHEME}/proc/{pid}/{name}"
            await self.publish(ResourceUpdated(uri=uri))
            for session in list(self._sessions.get(uri, {}).values()):
                await self._notify(uri, session)
        if event.get("event") in _LISTED:
            await self.publish(ResourcesListChanged())

    async def _notify(self, uri: str, session: Any) -> None:
        # It never fails: who is not there any more has left by the end of the connection.
        with trio.move_on_after(SEND_SECONDS):
            await session.send_resource_updated(uri)


def _connection(session: Any) -> Any:
    """What lasts: the SDK makes a session for each request, and has no public name for its connection."""
    return session._connection
