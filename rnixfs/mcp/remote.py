"""A server as its files see it, over all the connections that are made to it.

The files outlive a connection: what they show is what the server listed last, and while it is away they say
so. A request runs in the task of whoever waits for it, beside the session; when the session ends, its
requests end at once and know why.
"""

import contextlib
import itertools
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import trio

from rnixfs import limits
from rnixfs.errors import Code, SyscallError
from rnixfs.mcp.config import ServerConfig
from rnixfs.mcp.names import Template

_T = TypeVar("_T")
_serials = itertools.count(1)

Start = Callable[[Callable[[], Awaitable[None]]], None]


class LostError(SyscallError):
    """The connection ended while a request waited; why is known a moment later."""


class Call:
    """One request that waits for its answer.

    Args:
        what: what was asked for, such as `tools/get_time`.
        seconds: how long it may take, from now and from each sign of progress.
    """

    def __init__(self, what: str, seconds: float) -> None:
        self.what = what
        self.progress: dict[str, Any] = {}
        self.failure: SyscallError | None = None
        self.scope = trio.CancelScope(deadline=trio.current_time() + seconds)
        self._seconds = seconds
        self._last = trio.current_time() + max(seconds, limits.MCP_CALL_SECONDS)

    def advance(self, progress: float, total: float | None, message: str | None) -> None:
        """The server says how far it is, which keeps the request alive."""
        told = {"progress": progress, "total": total, "message": message}
        self.progress = {name: value for name, value in told.items() if value is not None}
        self.scope.deadline = min(trio.current_time() + self._seconds, self._last)

    def hold(self, held: bool) -> None:
        """Stop its clock while somebody else has to answer first, or let it run again."""
        self.scope.deadline = self._last if held else min(trio.current_time() + self._seconds, self._last)

    def fail(self, reason: SyscallError) -> None:
        """End it for a reason."""
        self.failure = self.failure or reason
        self.scope.cancel()

    def shown(self) -> dict[str, Any]:
        """It as `status` shows it."""
        return {"request": self.what} | self.progress


class Session(Protocol):
    """One connection to a server. Answers are JSON as it came over the wire."""

    async def call_tool(self, name: str, arguments: Mapping[str, Any], call: Call) -> dict[str, Any]:
        """Call a tool; `call` is told of progress."""

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> dict[str, Any]:
        """Have a prompt filled in."""

    async def read_resource(self, uri: str) -> dict[str, Any]:
        """Read a resource."""

    def watch(self, uri: str) -> None:
        """Be told when a resource changes, where the server can tell."""


class Remote:
    """A server.

    Args:
        path: its folder, such as `/mnt/mcp/time`.
        config: how it is reached.
        start: runs jobs in the background.

    Attributes:
        tools: definitions of tools by name, as the server gave them.
        prompts: those of prompts.
        resources: those of resources by URI.
        templates: those of templates of URIs.
        version: rises with each change of a list.
        changed_ns: when a list last changed, in ns since 1970.
        about: what `status` shows of the server beside that.
        said: what it said on its standard error, at most `limits.MCP_STDERR_MAX` bytes.
    """

    def __init__(self, path: str, config: ServerConfig, start: Start) -> None:
        self.path = path
        self.config = config
        self.start = start
        self.key = next(_serials)
        self.tools: dict[str, dict[str, Any]] = {}
        self.prompts: dict[str, dict[str, Any]] = {}
        self.resources: dict[str, dict[str, Any]] = {}
        self.templates: list[tuple[Template, dict[str, Any]]] = []
        self.version = 0
        self.changed_ns = time.time_ns()
        self.about: dict[str, Any] = {}
        self.said = bytearray()
        self.last_error = ""
        self._session: Session | None = None
        self._away = SyscallError(Code.SERVICE_UNAVAILABLE, f"{path} is not connected")
        self._there = trio.Event()
        self._asks = 0
        self._calls: dict[Call, None] = {}
        self._read: dict[str, tuple[int, int]] = {}  # size and time of change by URI

    # --- connections ---

    def begin(self, session: Session) -> None:
        """A connection was made."""
        self._session = session

    def end(self, reason: SyscallError, *, returns: bool) -> None:
        """The connection is gone: what waits fails with the reason, what comes is refused with it.

        Args:
            reason: why.
            returns: whether another connection will be made.
        """
        self._session = None
        again = "try again later" if returns else "mount it again"
        code = Code.SERVICE_UNAVAILABLE if returns else Code.DRIVER
        self._away = SyscallError(code, f"{self.path} is not connected; {again} ({reason.reason})")
        for call in self._calls:
            call.fail(SyscallError(Code.DRIVER, f"the connection ended: {reason.reason}"))

    def still_there(self) -> None:
        """It answers, though a request of it was lost: that one was lost alone."""
        self._there.set()
        self._there = trio.Event()

    @property
    def away(self) -> SyscallError | None:
        """Why it cannot be asked now, None if it can."""
        if self._session is not None:
            return None
        return SyscallError(self._away.code, self._away.reason)

    # --- requests ---

    async def ask(self, what: str, do: Callable[[Session, Call], Awaitable[_T]]) -> _T:
        """Ask the server.

        Args:
            what: what for, such as `tools/get_time`.
            do: asks.

        Raises:
            SyscallError: TIMEOUT, SERVICE_UNAVAILABLE, or what the server says; also when it ends meanwhile.
        """
        try:
            return await self._ask(what, do)
        except SyscallError as error:
            self.last_error = f"{what}: {error.reason}"[: limits.MCP_ERROR_MAX]
            raise

    async def _ask(self, what: str, do: Callable[[Session, Call], Awaitable[_T]]) -> _T:
        session = self._session
        if session is None:
            raise SyscallError(self._away.code, self._away.reason)
        if len(self._calls) >= limits.MCP_CALLS_MAX:
            many = f"{limits.MCP_CALLS_MAX} requests wait for {self.path} already; try again later"
            raise SyscallError(Code.SERVICE_UNAVAILABLE, many)
        call = Call(what, self.config.request_ms / 1000)
        if self._asks:
            call.hold(True)
        self._calls[call] = None
        try:
            with call.scope:
                try:
                    return await do(session, call)
                except LostError:
                    # Whoever closes the connection knows more, and ends this.
                    with trio.move_on_after(limits.MCP_PING_SECONDS + limits.MCP_LEAVE_SECONDS):
                        await self._there.wait()
                    raise
        finally:
            del self._calls[call]
        if call.failure is not None:
            raise call.failure
        raise SyscallError(
            Code.TIMEOUT,
            f"{self.path} did not answer {what} within {self.config.request_ms} ms; it was cancelled there",
        )

    @contextlib.contextmanager
    def waiting_for_us(self) -> Iterator[None]:
        """While the server waits for an answer of ours its requests do not run out of time.

        Which of them made it ask is not to be seen.
        """
        self._asks += 1
        for call in self._calls:
            call.hold(True)
        try:
            yield
        finally:
            self._asks -= 1
            if not self._asks:
                for call in self._calls:
                    call.hold(False)

    # --- what it lists ---

    def list_tools(self, found: Sequence[dict[str, Any]]) -> None:
        """These are its tools now."""
        self._changed("tools", {one["name"]: one for one in found})

    def list_prompts(self, found: Sequence[dict[str, Any]]) -> None:
        """These are its prompts now."""
        self._changed("prompts", {one["name"]: one for one in found})

    def list_resources(self, found: Sequence[dict[str, Any]], templates: Sequence[dict[str, Any]]) -> None:
        """These are its resources, and the templates of those it does not list."""
        self.templates = [(Template(one["uriTemplate"]), one) for one in templates]
        self._changed("resources", {one["uri"]: one for one in found})

    def _changed(self, which: str, found: dict[str, dict[str, Any]]) -> None:
        setattr(self, which, found)
        self.version += 1
        self.changed_ns = time.time_ns()

    def definition(self, kind: str, name: str) -> dict[str, Any]:
        """The definition of a tool or prompt.

        Args:
            kind: `tools` or `prompts`.
            name: as the server calls it.

        Raises:
            SyscallError: NOT_FOUND where the server has it no more.
        """
        found = (self.tools if kind == "tools" else self.prompts).get(name)
        if found is None:
            raise SyscallError(Code.NOT_FOUND, f"{self.path} has no {kind}/{name} any more")
        return found

    # --- its resources ---

    def size_of(self, uri: str) -> tuple[int, int]:
        """Size of a resource, 0 while it is not known, and when that was found out, in ns since 1970."""
        return self._read.get(uri, (0, 0))

    def was_read(self, uri: str, size: int) -> None:
        """A resource was read."""
        known = self._read.pop(uri, None)
        while len(self._read) >= limits.MCP_SIZES_MAX:
            del self._read[next(iter(self._read))]
        self._read[uri] = known if known is not None and known[0] == size else (size, time.time_ns())

    def was_changed(self, uri: str) -> None:
        """The server says that a resource is another one now."""
        self._read.pop(uri, None)
        self._read[uri] = (0, time.time_ns())

    # --- what it says ---

    def hear(self, data: bytes) -> None:
        """It said something on its standard error."""
        self.said += data
        del self.said[: -limits.MCP_STDERR_MAX]

    def last_words(self) -> str:
        """The last line that it said there."""
        lines = deque(self.said.decode("utf-8", "replace").split("\n"))
        while lines and not lines[-1].strip():
            lines.pop()
        return lines[-1].strip()[:500] if lines else ""

    def details(self) -> dict[str, Any]:
        """What `status` shows of it."""
        return {
            **self.about,
            "tools": len(self.tools),
            "resources": len(self.resources),
            "prompts": len(self.prompts),
            "requests": [call.shown() for call in self._calls],
            "last_error": self.last_error,
            "stderr": self.said.decode("utf-8", "replace"),
        }
