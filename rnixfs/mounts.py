"""What is mounted below `mnt/mcp`: connections to servers, each shown as a folder.

A mount is one task, from connecting to closing, so that a transport can be an ordinary async context manager
with tasks of its own. Writing to `mnt/mcp/ctl` only starts that task; the system call waits for it.
"""

import enum
import itertools
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import trio

from rnixfs import limits
from rnixfs.device import json_line
from rnixfs.errors import Code, SyscallError, denied, invalid
from rnixfs.node import Dir
from rnixfs.state.store import Keep
from rnixfs.types import Caller
from rnixfs.vfs import check_name

log = logging.getLogger(__name__)

ROOT = "/mnt/mcp/"
CTL = "ctl"
_serials = itertools.count(1)


class Transport(Protocol):
    """A way to a server."""

    def connect(self) -> AbstractAsyncContextManager[Dir]:
        """Be connected for as long as the context lasts; its value is the folder that the server shows.

        Entering may wait, and is cancelled after `limits.MOUNT_CONNECT_SECONDS`; leaving closes, within
        `limits.MOUNT_CLOSE_SECONDS`. Both happen in the same task. When the server goes away the context
        raises, even while its body waits.
        """


TransportFactory = Callable[[str, dict[str, Any]], Transport]
"""Makes a transport for a mount's name and configuration, without waiting; raises INVALID for a wrong one."""


class Stage(enum.StrEnum):
    """Where a mount stands."""

    CONNECTING = "connecting"
    READY = "ready"
    FAILED = "failed"
    GONE = "gone"


class Mount:
    """One mount.

    Args:
        name: its folder below `mnt/mcp`.
        kind: type of its transport.
        owner: pid of the process that made it, 0 for people.
    """

    def __init__(self, name: str, kind: str, owner: int) -> None:
        self.name = name
        self.kind = kind
        self.owner = owner
        self.serial = next(_serials)
        self.stage = Stage.CONNECTING
        self.reason: SyscallError | None = None
        self.root: Dir | None = None
        self.scope = trio.CancelScope()
        self.settled = trio.Event()
        self.leaving = trio.Event()
        self.closed = trio.Event()

    def status(self) -> bytes:
        """What `status` shows. The configuration is not among it: it may hold secrets."""
        reason = self.reason.reason if self.reason is not None else ""
        return json_line(
            {
                "name": self.name,
                "type": self.kind,
                "state": self.stage,
                "reason": reason,
                "owner": self.owner,
            }
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

    # --- mounting ---

    def begin(self, name: str, config: dict[str, Any], caller: Caller) -> Mount:
        """Start to mount; whether it succeeds shows in its status.

        Args:
            name: its folder below `mnt/mcp`; that of a failed mount may be taken again.
            config: `type` says which transport, the rest is for that.
            caller: who mounts; a process's mounts go when it ends.

        Raises:
            SyscallError: INVALID for a name or configuration that cannot be, EXISTS,
                RESOURCE_EXHAUSTED past `limits.MOUNTS_MAX`.
        """
        self._check_free(check_mount_name(name))
        kind = config.get("type")
        factory = self.transports.get(kind) if isinstance(kind, str) else None
        if factory is None or not isinstance(kind, str):
            there_are = ", ".join(sorted(self.transports)) or "none in this system"
            raise invalid(f'"type" must name a transport, not {kind!r}; there are: {there_are}')
        transport = factory(name, {key: value for key, value in config.items() if key != "type"})
        mount = Mount(name, kind, caller.agent)
        self._emit("mount", mount.owner, {"name": name, "type": kind})
        self._start(lambda: self._serve(mount, transport))
        self._start(lambda: self._time_out(mount))
        self._mounts[name] = mount
        return mount

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

    async def _serve(self, mount: Mount, transport: Transport) -> None:
        try:
            with mount.scope:
                async with transport.connect() as root:
                    self._ready(mount, root)
                    await mount.leaving.wait()
                    mount.scope.deadline = trio.current_time() + limits.MOUNT_CLOSE_SECONDS
            self._fail(mount, SyscallError(Code.DRIVER, "the connection ended"))
        except Exception as error:
            self._fail(mount, _reason(mount, error))
        finally:
            self._fail(mount, SyscallError(Code.CANCELED, "the system stopped"))
            mount.root = None
            mount.closed.set()

    async def _time_out(self, mount: Mount) -> None:
        with trio.move_on_after(limits.MOUNT_CONNECT_SECONDS):
            await mount.settled.wait()
        if mount.stage is Stage.CONNECTING:
            seconds = f"{limits.MOUNT_CONNECT_SECONDS:g}"
            self._fail(mount, SyscallError(Code.TIMEOUT, f"it did not connect within {seconds} s"))
            mount.scope.cancel()

    def _ready(self, mount: Mount, root: Dir) -> None:
        # It may have been given up meanwhile, by a transport that does not let itself be cancelled.
        if mount.stage is not Stage.CONNECTING:
            mount.leaving.set()
            return
        self._emit("mount_ready", mount.owner, {"name": mount.name}, Keep.VITAL)
        mount.root = root
        mount.stage = Stage.READY
        mount.settled.set()

    def _fail(self, mount: Mount, reason: SyscallError) -> None:
        if mount.stage in (Stage.FAILED, Stage.GONE):
            return
        failure = {"name": mount.name, "reason": reason.reason}
        self._emit("mount_failed", mount.owner, failure, Keep.VITAL)
        log.warning("mount %s: %s", mount.name, reason.reason)
        mount.root = None
        mount.reason = reason
        mount.stage = Stage.FAILED
        mount.settled.set()

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

    def _remove(self, mount: Mount) -> None:
        if self._mounts.get(mount.name) is mount:
            self._emit("unmount", mount.owner, {"name": mount.name}, Keep.VITAL)
            del self._mounts[mount.name]
        if mount.stage is Stage.CONNECTING:
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
