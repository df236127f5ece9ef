"""`lib/`: the agents and skills that the loaders see, with their files as they are on the host."""

import dataclasses
import os
import stat
from collections.abc import Callable, Iterable

from rnixfs.configfile import pinned
from rnixfs.errors import SyscallError, from_oserror, not_found
from rnixfs.loader import Shelf, Shelved
from rnixfs.node import Dir, File, FixedDir, Node, TableDir, refuse_writing
from rnixfs.types import Caller, Kind, Ready, Stat

_TTL = 1.0  # seconds; an edit on the host shows after that at the latest


class HostFile(File):
    """One open of a file of the host, read only.

    Args:
        handle: its descriptor, which this object closes.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def read(self, size: int, offset: int) -> bytes:
        try:
            return os.pread(self._handle, size, offset)
        except OSError as error:
            raise from_oserror(error) from None

    def poll(self) -> Ready:
        return Ready.READ

    def close(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)


@dataclasses.dataclass(frozen=True)
class ShelfFile(Node):
    """A file of an agent or skill.

    Args:
        base: the folder that it must really lie in.
        path: the file.
    """

    base: str
    path: str

    def stat(self) -> Stat:
        return _stat_of(_look(self.base, self.path))

    def open(self, caller: Caller, flags: int) -> File:
        refuse_writing(flags, f"what lib shows of {self.path}")
        try:
            with pinned(self.base, self.path) as handle:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise not_found(self.path)
                return HostFile(os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            raise from_oserror(error) from None


@dataclasses.dataclass(frozen=True)
class ShelfDir(Dir):
    """The folder of an agent or skill, or one inside it; arguments as `ShelfFile` has them."""

    base: str
    path: str

    def stat(self) -> Stat:
        found = _look(self.base, self.path)
        return Stat(Kind.DIRECTORY, mode=0o555, mtime_ns=found.st_mtime_ns, links=2, ttl=_TTL)

    def lookup(self, name: str, caller: Caller) -> Node:
        node = self._child(name)
        if node is None:
            raise not_found(name)
        return node

    def entries(self, caller: Caller) -> Iterable[tuple[str, Node]]:
        try:
            names = sorted(os.listdir(self.path))
        except OSError as error:
            raise from_oserror(error) from None
        found = ((name, self._child(name)) for name in names)
        return [(name, node) for name, node in found if node is not None]

    def _child(self, name: str) -> Node | None:
        if name in ("", ".", "..") or "/" in name:
            return None
        path = os.path.join(self.path, name)
        try:
            mode = _look(self.base, path).st_mode
        except SyscallError:
            # Gone, or a link that leads out: neither is part of what the loaders see.
            return None
        if stat.S_ISDIR(mode):
            return ShelfDir(self.base, path)
        return ShelfFile(self.base, path) if stat.S_ISREG(mode) else None


def _look(base: str, path: str) -> os.stat_result:
    try:
        with pinned(base, path) as handle:
            return os.fstat(handle)
    except (OSError, ValueError) as error:
        raise from_oserror(error) if isinstance(error, OSError) else not_found(path) from None


def _stat_of(found: os.stat_result) -> Stat:
    return Stat(
        Kind.FILE,
        size=found.st_size,
        mode=0o444 | (found.st_mode & 0o111),
        mtime_ns=found.st_mtime_ns,
        ttl=_TTL,
        blocks=found.st_blocks,
    )


def lib_dir(shelf: Callable[[], Shelf]) -> Dir:
    """The folder `lib/`.

    Args:
        shelf: says what counts now; asked at every look.
    """
    return FixedDir("lib", {str(what): _shelf_dir(shelf, what) for what in Shelved})


def _shelf_dir(shelf: Callable[[], Shelf], what: Shelved) -> Dir:
    def find(name: str, caller: Caller) -> Node | None:
        try:
            source, folder = shelf().find(what, name)
            _look(source.folder, folder)
        except SyscallError:
            return None
        return ShelfDir(source.folder, folder)

    def names(caller: Caller) -> Iterable[str]:
        return shelf().names(what)

    return TableDir(f"lib/{what}", find, names)
