"""The mount as this program uses it: open, read, write, poll and close of its files, nothing else.

Calls that may wait for the daemon are made in threads, so that a daemon which is slow stops one request
and not all.
"""

import contextlib
import errno
import math
import os
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import msgspec
import trio

from rnixfs.errors import Code, SyscallError, from_oserror
from rnixfs.gateway.models import Catalog, Provider
from rnixfs.gateway.refusal import RefusedError, of_code, of_device

CHUNK = 1 << 16  # bytes asked for at once
THREADS = 64  # calls of the mount that run at once; each is short
CATALOG_SECONDS = 1.0  # how long what was found out about providers and agents is believed

_GONE = frozenset({errno.ENOTCONN, errno.ECONNABORTED, errno.ENODEV})
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR})
_MARK = "sys/version"  # the file that tells a tree from any other folder
T = TypeVar("T")


class Mount:
    """The tree.

    Args:
        root: absolute path of the mountpoint.
        default: the model that stands for names which nobody knows; "" for none.
    """

    def __init__(self, root: str, default: str = "") -> None:
        self.root = root
        self.default = default
        self._limiter = trio.CapacityLimiter(THREADS)
        self._catalog = Catalog(())
        self._looked = -math.inf
        self._looking = trio.Lock()
        self._held = -1

    def path(self, name: str) -> str:
        """The host's path of a name such as `dev/llm/script`."""
        return os.path.join(self.root, name)

    async def call(self, action: Callable[..., T], *arguments: Any) -> T:
        """Make a call of the mount in a thread; it is waited for even by those who are cancelled."""
        return await trio.to_thread.run_sync(action, *arguments, limiter=self._limiter)

    async def check(self, seconds: float) -> None:
        """See whether a daemon answers.

        Args:
            seconds: how long it may take.

        Raises:
            RefusedError: none does.
        """
        with trio.move_on_after(seconds):
            try:
                # Left behind if it hangs: nothing depends on it.
                await trio.to_thread.run_sync(read_file, self.path(_MARK), abandon_on_cancel=True)
            except OSError as error:
                raise self.refusal(error, _MARK) from None
            return
        raise of_code(Code.SERVICE_UNAVAILABLE, f"the daemon at {self.root} does not answer")

    def refusal(self, error: OSError, name: str) -> RefusedError:
        """The refusal that a failed call of the mount is.

        Args:
            error: what the host's kernel answered.
            name: the file.
        """
        if error.errno in _GONE or (error.errno in _ABSENT and not os.path.exists(self.path(_MARK))):
            self._looked = -math.inf  # what comes next may be another daemon
            reason = f"no tree of rnix is mounted at {self.root}; run: rnix mount"
            return of_code(Code.SERVICE_UNAVAILABLE, reason)
        failure = from_oserror(error)
        reason = failure.reason if isinstance(error, SyscallError) else failure.reason.lower()
        return of_code(failure.code, f"/{name}: {reason}")

    # --- what there is ---

    async def catalog(self) -> Catalog:
        """The providers and agents that there are.

        Raises:
            RefusedError: the tree cannot be read.
        """
        async with self._looking:
            if trio.current_time() - self._looked >= CATALOG_SECONDS:
                try:
                    self._catalog = await self.call(self._look)
                except OSError as error:
                    raise self.refusal(error, "dev/llm") from None
                self._looked = trio.current_time()
            return self._catalog

    def _look(self) -> Catalog:
        self._hold()
        found = lines_of(read_file(self.path("sys/providers")))
        rows = {str(row["name"]): row for row in found if "name" in row}
        there = sorted(os.listdir(self.path("dev/llm")))
        names = [name for name in rows if name in there] + [name for name in there if name not in rows]
        # The one first that the system itself takes where none is named.
        names.sort(key=lambda name: not rows.get(name, {}).get("default"))
        providers = [self._provider(name, rows.get(name, {})) for name in names]
        return Catalog(providers, sorted(os.listdir(self.path("lib/agents"))), self.default)

    def _hold(self) -> None:
        """Keep a file open, so that a daemon which leaves when it is idle stays; also the next daemon."""
        with contextlib.suppress(OSError):
            os.fstat(self._held)
            return
        if self._held >= 0:
            held, self._held = self._held, -1
            with contextlib.suppress(OSError):
                os.close(held)
        self._held = os.open(self.path(_MARK), os.O_RDONLY | os.O_CLOEXEC)

    def _provider(self, name: str, row: dict[str, Any]) -> Provider:
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            description = json_of(_description(self.path(f"dev/llm/{name}")))
            details = description.get("details") or {}
            found = [*_names(details.get("models")), *_names(row.get("models"))]
            return Provider(
                name,
                driver=str(row.get("driver") or details.get("driver") or ""),
                default=str(details.get("default_model") or row.get("default_model") or ""),
                models=tuple(dict.fromkeys(found)),
                available=bool(description.get("available", True)),
            )
        return Provider(name, available=False)

    # --- files ---

    @contextlib.asynccontextmanager
    async def opened(self, name: str, flags: int) -> AsyncIterator[int]:
        """A file, open for as long as the block runs.

        Args:
            name: its path below the root.
            flags: as of open(2).

        Raises:
            RefusedError: it cannot be opened.
        """
        descriptor = await self.call(self.open, name, flags)
        try:
            yield descriptor
        finally:
            # A daemon that has ended may make a close fail; closed it is.
            with trio.CancelScope(shield=True), contextlib.suppress(OSError):
                await self.call(os.close, descriptor)

    def open(self, name: str, flags: int) -> int:
        """Open a file; to be called in a thread.

        Raises:
            RefusedError: it cannot be opened.
        """
        try:
            return os.open(self.path(name), flags | os.O_CLOEXEC)
        except OSError as error:
            raise self.refusal(error, name) from None

    async def write(self, name: str, descriptor: int, data: bytes) -> None:
        """Write a whole request to a device.

        Raises:
            RefusedError: the device refuses it, for its own reason.
        """
        try:
            await self.call(write_all, descriptor, data)
        except OSError as error:
            raise await self.call(self.refused, name, descriptor, error) from None

    def refused(self, name: str, descriptor: int, error: OSError) -> RefusedError:
        """Why a device refused a request, which it says to who reads next; to be called in a thread."""
        with contextlib.suppress(OSError):
            told = json_of(os.read(descriptor, CHUNK))
            if "error" in told:
                return of_device(told["error"])
        return self.refusal(error, name)


# --- calls ---


def read_file(path: str) -> bytes:
    """The whole of a file."""
    with open(path, "rb", buffering=0) as file:
        return file.read()


def _description(path: str) -> bytes:
    # Opened for both: what is only read shows the last answer of this session, not what the device is.
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return b"".join(iter(lambda: os.read(descriptor, CHUNK), b""))
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of a request; a file of the mount may take it in parts."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def json_of(data: bytes) -> dict[str, Any]:
    """The object in a text of JSON; an empty one where there is none."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def lines_of(data: bytes) -> list[dict[str, Any]]:
    """The objects in lines of JSON."""
    return [json_of(line) for line in data.split(b"\n") if line.strip()]


def _names(models: Any) -> list[str]:
    """Names of models, however they are listed: texts, or objects with a name."""
    found = models if isinstance(models, list) else []
    names = [one.get("name") if isinstance(one, dict) else one for one in found]
    return [name for name in names if isinstance(name, str) and name]
