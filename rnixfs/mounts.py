"""What is mounted below `mnt/mcp`: connections to servers, each shown as a folder.

A mount is one task, from connecting to closing, so that a transport can be an ordinary async context manager
with tasks of its own. Writing to `mnt/mcp/ctl` only starts that task; the system call waits for it. Where the
configuration asks for it, the task connects again after the server has gone; what the folder shows stays, and
its files say to try again later.

Over 400 lines because a mount's stages, and every way from one to another, stand here side by side.
"""

import enum
import itertools
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import trio

from rnixfs import limits
from rnixfs.backoff import doubled
from rnixfs.device import json_line
from rnixfs.errors import Code, SyscallError, denied, invalid
from rnixfs.mcp.places import private_part
from rnixfs.node import Dir
from rnixfs.state.store import Keep
from rnixfs.types import Caller
from rnixfs.vfs import check_name

log = logging.getLogger(__name__)

ROOT = "/mnt/mcp/"
CTL = "ctl"
_NOBODY = Caller(0, 0)
_serials = itertools.count(1)


class Transport(Protocol):
    """A way to a server."""

    @property
    def restart(self) -> str:
        """When to connect again after the connection ended: `never`, `on-failure` or `always`."""

    @property
    def connect_seconds(self) -> float:
        """How long connecting may take."""

    def connect(self, owner: int) -> AbstractAsyncContextManager[Dir]:
        """Be connected for as long as the context lasts; its value is the folder that the server shows.

        Entering may wait, and is cancelled after `connect_seconds`; leaving closes, within
        `limits.MOUNT_CLOSE_SECONDS`. Both happen in the same task. When the server goes away the context
        raises, even while its body waits: `LeftError` where it left in good order. It may be entered again
        after that; the folder is then the same one, and may be used in between.

        Args:
            owner: pid of the process that mounts, 0 for people.
        """

    def details(self) -> dict[str, Any]:
        """What `status` shows of it beside what every mount shows; quick, and without secrets."""


class LeftError(SyscallError):
    """The server ended by itself, and not since something failed."""


TransportFactory = Callable[[str, dict[str, Any]], Transport]
"""Makes a transport for a mount's name and configuration, without waiting; raises INVALID for a wrong one."""


Configured = Callable[[str, Caller], dict[str, Any]]
"""Gives what `begin` takes for a server of the configuration, by its name and who mounts it; raises NOT_FOUND
for one that is not there, and INVALID."""


def _unknown(server: str, _caller: Caller) -> dict[str, Any]:
    raise SyscallError(Code.NOT_FOUND, f"no MCP server {server!r}: this system has no configuration of any")


class Stage(enum.StrEnum):
    """Where a mount stands."""

    CONNECTING = "connecting"
    READY = "ready"
    RESTARTING = "restarting"
    FAILED = "failed"
    GONE = "gone"


class Mount:
    """One mount.

    Args:
        name: its folder below `mnt/mcp`.
        kind: type of its transport.
        owner: pid of the process that made it, 0 for people.
        transport: connects.
    """

    def __init__(self, name: str, kind: str, owner: int, transport: Transport) -> None:
        self.name = name
        self.kind = kind
        self.owner = owner
        self.transport = transport
        self.serial = next(_serials)
        self.stage = Stage.CONNECTING
        self.reason: SyscallError | None = None
        self.root: Dir | None = None
        self.scope = trio.CancelScope()
        self.settled = trio.Event()
        self.leaving = trio.Event()
        self.closed = trio.Event()
        self.failures = 0
        self.ready_at: float | None = None

    @property
    def over(self) -> bool:
        """Whether it will never be ready again."""
        return self.stage in (Stage.FAILED, Stage.GONE)

    def may_return(self, reason: SyscallError) -> bool:
        """Whether to connect again after the connection ended for that reason."""
        # What is wrong with the configuration stays wrong.
        if self.over or self.leaving.is_set() or reason.code is Code.INVALID:
            return False
        policy = self.transport.restart
        return policy == "always" or (policy == "on-failure" and not isinstance(reason, LeftError))

    def status(self) -> bytes:
        """What `status` shows. The configuration is not among it: it may hold secrets."""
        return json_line(
            {
                "name": self.name,
                "type": self.kind,
                "state": self.stage,
                "reason": self.reason.reason if self.reason is not None else "",
                "owner": self.owner,
            }
            | self.transport.details()
        )


class MountTable:
    """All mounts, and the transports there are.

    Args:
        start: runs a job in the background.
        emit: records an event, by its name, the process concerned and what belongs to it.
        rules: whether a caller has power over what a process made.
    """

    def __init__(
        self,
        start: Callable[[Callable[[], Awaitable[None]]], None],
        emit: Callable[..., object],
        rules: Callable[[Caller, int], bool],
    ) -> None:
        self.transports: dict[str, TransportFactory] = {}
        self.configured: Configured = _unknown
        self._start = start
        self._emit = emit
        self._rules = rules
        self._mounts: dict[str, Mount] = {}

    def names(self) -> list[str]:
        """The names of all mounts, those that failed included."""
        return list(self._mounts)

    def find(self, name: str) -> Mount | None:
        """The mount with a name, None without one."""
        return self._mounts.get(name)

    def stamp(self, name: str) -> tuple[object, ...]:
        """What changes with the tools of a mount: its number, its stage, and the age of its listing."""
        mount = self._mounts[name]
        if mount.root is None:
            return (mount.serial, mount.stage)
        try:
            tools = mount.root.lookup("tools", _NOBODY)
        except SyscallError:
            return (mount.serial, mount.stage)
        return (mount.serial, mount.stage, tools.stat().mtime_ns)

    # --- mounting ---

    def begin(self, name: str, config: dict[str, Any], caller: Caller) -> Mount:
        """Start to mount; whether it succeeds shows in its status.

        Args:
            name: its folder below `mnt/mcp`; that of a failed mount may be taken again.
            config: `command` or `url`, and what else belongs to that; `type` names the transport where
                neither does.
            caller: who mounts; a process's mounts go when it ends.

        Raises:
            SyscallError: INVALID for a name or configuration that cannot be, EXISTS,
                RESOURCE_EXHAUSTED past `limits.MOUNTS_MAX`.
        """
        self._check_free(check_mount_name(name))
        kind, factory = self._factory(config)
        transport = factory(name, {key: value for key, value in config.items() if key != "type"})
        mount = Mount(name, kind, caller.agent, transport)
        self._emit("mount", mount.owner, {"name": name, "type": kind})
        self._start(lambda: self._serve(mount))
        self._mounts[name] = mount
        return mount

    def _factory(self, config: dict[str, Any]) -> tuple[str, TransportFactory]:
        """The transport that a configuration names, or means by what else it holds."""
        kind = config.get("type", "stdio" if "command" in config else "http" if "url" in config else None)
        kind = _SAME.get(kind, kind) if isinstance(kind, str) else kind
        factory = self.transports.get(kind) if isinstance(kind, str) else None
        if factory is None or not isinstance(kind, str):
            there_are = ", ".join(sorted(self.transports)) or "none in this system"
            raise invalid(
                'write "command" for a program to start or "url" for a server that runs; '
                f'"type" must name a transport, not {kind!r}; there are: {there_are}'
            )
        return kind, factory

    def _check_free(self, name: str) -> None:
        there = self._mounts.get(name)
        if there is not None and there.stage is not Stage.FAILED:
            raise SyscallError(
                Code.EXISTS, f"{ROOT}{name} is mounted already ({there.stage}); unmount it first"
            )
        if there is None and len(self._mounts) >= limits.MOUNTS_MAX:
            raise SyscallError(
                Code.RESOURCE_EXHAUSTED, f"there may be {limits.MOUNTS_MAX} mounts; unmount some"
            )

    async def mount(self, path: str, config: dict[str, Any], caller: Caller) -> None:
        """Mount and wait until it is ready; nothing is left of it when it fails or this is cancelled.

        Args:
            path: `/mnt/mcp/NAME`.
            config: as for `begin`.
            caller: who mounts.

        Raises:
            SyscallError: what `begin` raises, TIMEOUT, DRIVER, or what the transport says.
        """
        mount = self.begin(name_of(path), config, caller)
        try:
            await mount.settled.wait()
        except trio.Cancelled:
            self._remove(mount)
            raise
        if mount.stage is not Stage.READY:
            self._remove(mount)
            reason = mount.reason or SyscallError(Code.CANCELED, f"{path} was unmounted while it connected")
            raise SyscallError(reason.code, reason.reason, device=path)

    async def _serve(self, mount: Mount) -> None:
        try:
            while True:
                reason = await self._connected(mount)
                if not mount.may_return(reason):
                    self._fail(mount, reason)
                    return
                self._interrupt(mount, reason)
                with trio.move_on_after(_pause(mount)):
                    await mount.leaving.wait()
                    return
                mount.failures += 1
        finally:
            self._fail(mount, SyscallError(Code.CANCELED, "the system stopped"))
            mount.root = None
            mount.closed.set()

    async def _connected(self, mount: Mount) -> SyscallError:
        """Be connected once; returns why that ended."""
        mount.scope = scope = trio.CancelScope()
        mount.ready_at = None
        settled = trio.Event()
        self._start(lambda: self._time_out(mount, scope, settled))
        try:
            with scope:
                async with mount.transport.connect(mount.owner) as root:
                    settled.set()
                    self._ready(mount, root, scope)
                    await mount.leaving.wait()
                    scope.deadline = trio.current_time() + limits.MOUNT_CLOSE_SECONDS
        except Exception as error:
            return _reason(mount, error)
        finally:
            settled.set()
        late = scope.cancelled_caught and mount.ready_at is None and not mount.leaving.is_set()
        return _too_late(mount) if late else SyscallError(Code.DRIVER, "the connection ended")

    async def _time_out(self, mount: Mount, scope: trio.CancelScope, settled: trio.Event) -> None:
        with trio.move_on_after(mount.transport.connect_seconds):
            await settled.wait()
        if settled.is_set() or mount.over:
            return
        # It is told at once: a transport may not let itself be cancelled.
        reason = _too_late(mount)
        if mount.may_return(reason):
            self._interrupt(mount, reason)
        else:
            self._fail(mount, reason)
        scope.cancel()

    def _ready(self, mount: Mount, root: Dir, scope: trio.CancelScope) -> None:
        # It may have been given up meanwhile, by a transport that does not let itself be cancelled.
        if mount.over or scope.cancel_called:
            scope.cancel()
            return
        self._emit("mount_ready", mount.owner, {"name": mount.name}, Keep.VITAL)
        mount.root = root
        mount.stage = Stage.READY
        mount.reason = None
        mount.ready_at = trio.current_time()
        mount.settled.set()

    def _interrupt(self, mount: Mount, reason: SyscallError) -> None:
        """The connection is gone, and will be made anew."""
        known = mount.stage is Stage.RESTARTING and mount.reason is not None
        if not known or mount.reason is None or mount.reason.reason != reason.reason:
            self._tell(mount, reason)
        mount.reason = reason
        mount.stage = Stage.RESTARTING
        mount.settled.set()

    def _fail(self, mount: Mount, reason: SyscallError) -> None:
        if mount.over:
            return
        self._tell(mount, reason)
        mount.root = None
        mount.reason = reason
        mount.stage = Stage.FAILED
        mount.settled.set()

    def _tell(self, mount: Mount, reason: SyscallError) -> None:
        failure = {"name": mount.name, "reason": reason.reason}
        self._emit("mount_failed", mount.owner, failure, Keep.VITAL)
        log.warning("mount %s: %s", mount.name, reason.reason)

    # --- unmounting ---

    def drop(self, name: str, caller: Caller) -> Mount:
        """Take a mount away; its connection closes in the background.

        Raises:
            SyscallError: NOT_FOUND; PERMISSION for processes, but for what they or their descendants mounted.
        """
        mount = self._mounts.get(name)
        if mount is None:
            raise SyscallError(Code.NOT_FOUND, f"nothing is mounted at {ROOT}{name}")
        if caller.agent and not self._rules(caller, mount.owner):
            raise denied(f"process {caller.agent} has no power over {ROOT}{name}, which it did not mount")
        self._remove(mount)
        return mount

    def discard(self, path: str, owner: int) -> None:
        """Take away what a process mounted at a path, if it is there."""
        mount = self._mounts.get(name_of(path))
        if mount is not None and mount.owner == owner:
            self._remove(mount)

    def note_failure(self, name: str, kind: str, reason: SyscallError) -> None:
        """Show why a server could not even be asked to connect, as the status of a mount that failed."""
        if name not in self._mounts:
            self._mounts[name] = mount = Mount(name, kind, 0, _Unreachable(reason))
            mount.closed.set()
            self._fail(mount, reason)

    def _remove(self, mount: Mount) -> None:
        if self._mounts.get(mount.name) is mount:
            self._emit("unmount", mount.owner, {"name": mount.name}, Keep.VITAL)
            del self._mounts[mount.name]
        if mount.stage in (Stage.CONNECTING, Stage.RESTARTING):
            mount.scope.cancel()
        mount.stage = Stage.GONE
        mount.root = None
        mount.settled.set()
        mount.leaving.set()

    async def unmount(self, path: str, caller: Caller) -> None:
        """Take a mount away and wait until its connection is closed.

        Raises:
            SyscallError: as `drop`, INVALID for a path that is no mount's; TIMEOUT when closing takes
                longer than `limits.MOUNT_CLOSE_SECONDS`.
        """
        await self._until_closed(self.drop(name_of(path), caller))

    async def unmount_all(self, caller: Caller) -> int:
        """Take away all mounts that a caller has power over, at once; returns how many.

        Raises:
            SyscallError: TIMEOUT when closing takes too long.
        """
        mine = [one for one in self._mounts.values() if not caller.agent or self._rules(caller, one.owner)]
        for mount in mine:
            self._remove(mount)
        for mount in mine:
            await self._until_closed(mount)
        return len(mine)

    def release(self, pid: int) -> None:
        """A process has ended: take away what it mounted."""
        for mount in [one for one in self._mounts.values() if one.owner == pid]:
            self._remove(mount)

    @staticmethod
    async def _until_closed(mount: Mount) -> None:
        with trio.move_on_after(limits.MOUNT_CLOSE_SECONDS + 1):
            await mount.closed.wait()
            return
        raise SyscallError(
            Code.TIMEOUT, f"{ROOT}{mount.name} is unmounted, but its connection does not close"
        )


class _Unreachable:
    """The transport of a mount that could not even begin. Implements `Transport`."""

    restart = "never"
    connect_seconds = 0.0

    def __init__(self, reason: SyscallError) -> None:
        self._reason = reason

    def connect(self, owner: int) -> AbstractAsyncContextManager[Dir]:
        raise self._reason

    def details(self) -> dict[str, Any]:
        return {}


_SAME = {"streamable-http": "http", "streamableHttp": "http"}
"""Other names of transports that are in use."""


def _pause(mount: Mount) -> float:
    """Seconds until the next attempt to connect."""
    now = trio.current_time()
    if mount.ready_at is not None and now - mount.ready_at >= limits.MOUNT_HEALTHY_SECONDS:
        mount.failures = 0
    return doubled(limits.MOUNT_RESTART_SECONDS, mount.failures, limits.MOUNT_RESTART_MAX_SECONDS)


def _too_late(mount: Mount) -> SyscallError:
    seconds = f"{mount.transport.connect_seconds:g}"
    return SyscallError(Code.TIMEOUT, f"it did not connect within {seconds} s")


def _reason(mount: Mount, error: Exception) -> SyscallError:
    cause: BaseException = error
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    if isinstance(cause, SyscallError):
        return cause
    if not isinstance(cause, OSError):
        log.error("the transport of mount %s failed inside", mount.name, exc_info=error)
    return SyscallError(Code.DRIVER, f"{type(cause).__name__}: {cause}")


# --- names ---


def check_common_name(name: str) -> None:
    """Raise INVALID for a name that only a server can have that is mounted for one process."""
    if private_part(ROOT + name):
        raise invalid(
            f"the mount's name {name!r} begins with a number and -, as those do that are made for a process; "
            "choose another"
        )


def check_mount_name(name: str) -> str:
    """Return the name, if a mount can have it.

    Raises:
        SyscallError: INVALID or NAME_TOO_LONG, with the rule.
    """
    if not name.isprintable() or " " in name or name in (".", "..", CTL):
        raise invalid(
            f"a mount's name is printable text without blanks, and not . .. or {CTL}, unlike {name!r}"
        )
    return check_name(name)


def name_of(path: str) -> str:
    """The name in `/mnt/mcp/NAME`.

    Raises:
        SyscallError: INVALID for other paths.
    """
    name = path.removeprefix(ROOT)
    if name == path or not name or "/" in name:
        raise invalid(f"mounts are at {ROOT}NAME, not at {path!r}")
    return name
