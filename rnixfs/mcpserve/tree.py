"""The mount as this program uses it: names that are worked out and checked before anything is opened.

Every call of the mount is made in a thread and waited for with a limit, so that a daemon which is slow or has
gone costs one request and not all.
"""

import contextlib
import errno
import os
import stat
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any, Generic, NamedTuple, TypeVar

import trio

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, from_oserror, invalid, not_found
from rnixfs.gateway.mount import json_of, read_file
from rnixfs.hostpath import best_opener
from rnixfs.mcpserve.rights import FILES, Rights

CALL_SECONDS = 30.0  # for a call of the mount; a loaded machine takes milliseconds
CLOSE_SECONDS = 5.0  # for closing a file, also of those who are cancelled
THREADS = 64  # calls of the mount that run at once; each is short
SCHEME = "rnix://"

_GONE = frozenset({errno.ENOTCONN, errno.ECONNABORTED, errno.ENODEV})
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR})
_MARK = "sys/version"  # the file that tells a tree from any other folder
T = TypeVar("T")


class Kept(Generic[T]):
    """What a call gives, to be given back if it comes when nobody waits for it any more.

    Args:
        action: the call.
        undo: what gives it back.
    """

    def __init__(self, action: Callable[[], T], undo: Callable[[T], object]) -> None:
        self._action = action
        self._undo = undo
        self._lock = threading.Lock()
        self._left = False
        self._found: list[T] = []

    def run(self) -> T:
        """Make the call; in a thread."""
        found = self._action()
        with self._lock:
            self._found.append(found)
            late = self._left
        if late:
            self._undo(found)
        return found

    def leave(self) -> None:
        """Wait for it no more."""
        with self._lock:
            self._left = True
            came = list(self._found)
        for found in came:
            threading.Thread(target=self._undo, args=(found,), daemon=True).start()


class Place(NamedTuple):
    """A name that was worked out.

    Args:
        path: the real path in the tree, beginning with `/`.
        mode: type and permission bits; 0 where nothing is there.
        size: in bytes, as it is told; 0 for what has no size.
    """

    path: str
    mode: int
    size: int

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return stat.S_ISDIR(self.mode)

    @property
    def is_stream(self) -> bool:
        """Whether reading it waits for what comes."""
        return os.path.basename(os.path.dirname(self.path)) == ".live"

    @property
    def is_host_file(self) -> bool:
        """Whether it is a file of the host."""
        return f"{FILES}/" in f"{self.path}/" and not self.is_stream

    @property
    def is_control(self) -> bool:
        """Whether it takes commands."""
        return os.path.basename(self.path) == "ctl" and not self.is_host_file

    @property
    def is_device(self) -> bool:
        """Whether what is written to it gets an answer."""
        whole = self.mode & 0o444 and self.mode & 0o222
        return bool(whole) and not (self.is_folder or self.is_control or self.is_host_file)


class Tree:
    """The tree, or the part of it that a process sees.

    Args:
        mount: absolute path of the mountpoint.
        rights: what the client may use.
        view: the pid of the process whose view it is; "" for the whole tree.
    """

    def __init__(self, mount: str, rights: Rights, view: str = "") -> None:
        self.mount = mount
        self.rights = rights
        self.view = view
        self.root = f"{mount}/proc/{view}/.live/root" if view else mount
        self._limiter = trio.CapacityLimiter(THREADS)
        self._held = -1
        self._holding = threading.Lock()
        rights.parent_of = self.parent_of

    # --- calls ---

    async def call(self, action: Callable[..., T], *arguments: Any, seconds: float = CALL_SECONDS) -> T:
        """Make a call of the mount in a thread; it is left behind when the time is over.

        Raises:
            SyscallError: the call failed, or TIMEOUT.
        """
        with trio.move_on_after(seconds):
            return await trio.to_thread.run_sync(
                action, *arguments, limiter=self._limiter, abandon_on_cancel=True
            )
        raise SyscallError(Code.TIMEOUT, f"the daemon at {self.mount} did not answer within {seconds:g} s")

    async def keep(self, action: Callable[[], T], undo: Callable[[T], object]) -> T:
        """The same for what must be given back, also when it comes too late."""
        kept = Kept(action, undo)
        try:
            return await self.call(kept.run)
        except BaseException:
            kept.leave()
            raise

    def host(self, path: str) -> str:
        """The host's path of a path of the tree."""
        return self.root + path.rstrip("/")

    def failure(self, error: OSError, path: str, syscall: str) -> SyscallError:
        """The failure that a failed call of the mount is.

        Args:
            error: what the host's kernel answered.
            path: of the tree.
            syscall: the name of what was tried.
        """
        if isinstance(error, SyscallError):
            return error.at(syscall=syscall, device=path)
        if error.errno in _GONE or (
            error.errno in _ABSENT and not os.path.exists(os.path.join(self.mount, _MARK))
        ):
            reason = f"no tree of rnix is mounted at {self.mount} now; run: rnix mount"
            return SyscallError(Code.SERVICE_UNAVAILABLE, reason, syscall=syscall, device=path)
        if error.errno in _ABSENT and self.view and not os.path.exists(f"{self.root}/{_MARK}"):
            reason = f"process {self.view}, whose view this server offers, is gone"
            return SyscallError(Code.NOT_FOUND, reason, syscall=syscall, device=path)
        failure = from_oserror(error)
        return SyscallError(failure.code, failure.reason.lower(), syscall=syscall, device=path)

    async def check(self) -> None:
        """See that there is a tree.

        Raises:
            SyscallError: there is none.
        """
        try:
            await self.call(read_file, self.host(f"/{_MARK}"))
        except OSError as error:
            raise self.failure(error, f"/{_MARK}", "Open") from None

    # --- names ---

    def resolve(self, name: str) -> Place:
        """Work a name out, checking every part of it on the way; in a thread.

        Links are followed by their text, never by the host's kernel, so what was checked is what is opened.

        Raises:
            SyscallError: it is no name, it may not be used, or a part of it is not there.
        """
        self._hold()
        todo, here, links = self._parts(name), list[str](), 0
        found: os.stat_result | None = None
        while todo:
            part = todo.pop()
            if part == "..":
                here, found = here[:-1], None
                continue
            path = "/".join(["", *here, part])
            self.rights.check_pass(path)
            found = self._look(path, last=not todo)
            if found is None or not stat.S_ISLNK(found.st_mode):
                here.append(part)
                continue
            links += 1
            if links > limits.LINK_DEPTH_MAX:
                raise SyscallError(Code.TOO_MANY_LINKS, f"{name}: too many links, one after the other")
            text = os.readlink(self.host(path))
            if text.startswith("/"):
                here, text = [], self._inside(text, path)
            todo += _split(text)
            found = None
        path = "/" + "/".join(here)
        if found is None:
            found = self._look(path, last=True)
        return Place(path, found.st_mode if found else 0, found.st_size if found else 0)

    def _parts(self, name: str) -> list[str]:
        """The parts of a name as clients write it, the first one last."""
        if "\0" in name:
            raise invalid("a path has no NUL in it")
        if name.startswith(SCHEME):
            name = name.removeprefix(SCHEME)
        elif name == self.mount or name.startswith(f"{self.mount}/"):
            name = name.removeprefix(self.mount)
        return _split(name)

    def _inside(self, text: str, path: str) -> str:
        if not text.startswith(f"{self.root}/"):
            raise not_found(f"{path}, which is a link that leads out of the tree")
        return text.removeprefix(self.root)

    def _look(self, path: str, last: bool) -> os.stat_result | None:
        """What is at a path; None where nothing is, and it is the last part."""
        try:
            return os.lstat(self.host(path))
        except OSError as error:
            if last and error.errno == errno.ENOENT:
                return None
            raise self.failure(error, path, "Open") from None

    def parent_of(self, pid: str) -> str:
        """The pid of a process's parent; "" where there is none."""
        with contextlib.suppress(OSError):
            return str(json_of(read_file(self.host(f"/proc/{pid}/status"))).get("ppid", ""))
        return ""

    # --- files ---

    def there(self, name: str) -> Place:
        """The same for what must be there; in a thread.

        Raises:
            SyscallError: as `resolve`, or NOT_FOUND.
        """
        place = self.resolve(name)
        if not place.mode:
            missing = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
            raise self.failure(missing, place.path, "Open")
        return place

    def open(self, path: str, flags: int) -> int:
        """Open a file by its real path, in which no part may have become a link; in a thread.

        Raises:
            SyscallError: it cannot be opened.
        """
        folder, _, last = path.strip("/").rpartition("/")
        try:
            anchor = os.open(self.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                place = best_opener()(anchor, folder or ".")
            finally:
                os.close(anchor)
            try:
                return os.open(last or ".", flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666, dir_fd=place)
            finally:
                os.close(place)
        except OSError as error:
            raise self.failure(error, path, "Open") from None

    @contextlib.asynccontextmanager
    async def opened(self, path: str, flags: int) -> AsyncIterator[int]:
        """A file, open for as long as the block runs.

        Args:
            path: its real path.
            flags: as of open(2).

        Raises:
            SyscallError: it cannot be opened.
        """
        descriptor = await self.keep(lambda: self.open(path, flags), os.close)
        try:
            yield descriptor
        finally:
            # A daemon that has ended may make a close fail; closed it is.
            with trio.CancelScope(shield=True), contextlib.suppress(OSError):
                await self.call(os.close, descriptor, seconds=CLOSE_SECONDS)

    def _hold(self) -> None:
        """Keep a file open, so that a daemon which leaves when it is idle stays; also the next daemon."""
        with self._holding, contextlib.suppress(OSError):
            if self._held >= 0:
                with contextlib.suppress(OSError):
                    os.fstat(self._held)
                    return
                held, self._held = self._held, -1
                with contextlib.suppress(OSError):
                    os.close(held)
            self._held = os.open(os.path.join(self.mount, _MARK), os.O_RDONLY | os.O_CLOEXEC)


def _split(text: str) -> list[str]:
    return [part for part in reversed(text.split("/")) if part not in ("", ".")]
