"""Files and links of the host as nodes of the tree; `hostdir` has the folders they lie in."""

import contextlib
import dataclasses
import os
import stat
from collections.abc import Callable, Hashable

import msgspec

from rnixfs import hostfile, limits
from rnixfs.errors import Code, SyscallError, not_found
from rnixfs.hostpath import Roots, Spot, refusing
from rnixfs.node import Change, File, Link, Node, wants_read, wants_write
from rnixfs.types import Caller, Kind, Stat

HOST_FLAGS = os.O_ACCMODE | os.O_APPEND | os.O_TRUNC | os.O_SYNC | os.O_DSYNC
_SPECIAL_BITS = stat.S_ISUID | stat.S_ISGID
_TTL = 1.0  # seconds; 0 would ask for attributes before each cached read, which doubles its time


class Realm:
    """What all nodes of one `dev/fs` share.

    Args:
        key: says which tree it is.
        roots: what can be reached.
        writable: whether files can be changed.
    """

    def __init__(self, key: Hashable, roots: Roots, writable: bool) -> None:
        self.key = key
        self.roots = roots
        self.writable = writable
        # Open files by what they are, for a name that is gone while its file is still open.
        self.opens: dict[tuple[int, int], list[HostFile]] = {}

    def link_text(self, spot: Spot) -> str:
        """The text of a link, rewritten to stay inside."""
        with refusing(spot.path):
            return inward(os.path.dirname(spot.shown), spot.root.readlink(spot.rel), self._physical)

    def _physical(self, path: str) -> str:
        with contextlib.suppress(SyscallError):
            return self.roots.resolve(path).path
        return path

    def may_write(self, spot: Spot) -> None:
        """Raise where files may not be changed."""
        if not self.writable:
            raise SyscallError(Code.READ_ONLY, f"{spot} can only be read here")


def inward(folder: str, text: str, physical: Callable[[str], str]) -> str:
    """A link's text as a relative one that never climbs above the top.

    Args:
        folder: the folder of the link, absolute.
        text: what the link holds.
        physical: where a path with `..` behind a name leads; that name may be a link.
    """
    names = [name for name in text.split("/") if name not in ("", ".")]
    climbs = next((index for index, name in enumerate(names) if name != ".."), len(names))
    depth = len([name for name in folder.split("/") if name])
    plain = ".." not in names[climbs:]
    if text and not text.startswith("/") and plain and climbs <= depth:
        return text
    path = os.path.join(folder, text)
    path = "/" + (path if plain else physical(path)).lstrip("/")
    return os.path.relpath(os.path.normpath(path), folder)


def kind_of(mode: int) -> Kind:
    """What a file type is shown as; pipes, sockets and devices are files that cannot be opened."""
    if stat.S_ISDIR(mode):
        return Kind.DIRECTORY
    return Kind.LINK if stat.S_ISLNK(mode) else Kind.FILE


def host_stat(found: os.stat_result) -> Stat:
    """The host's attributes in our words."""
    return Stat(
        kind_of(found.st_mode),
        size=found.st_size if stat.S_ISREG(found.st_mode) else 0,
        mode=stat.S_IMODE(found.st_mode),
        mtime_ns=found.st_mtime_ns,
        links=found.st_nlink,
        ttl=_TTL,
        name_ttl=0.0,
        blocks=found.st_blocks,
    )


class HostFile(File):
    """One open of a regular file.

    Args:
        realm: where it is counted as open.
        fd: its descriptor, closed with it.
        flags: how it was opened.
        direct: see `File`; True where the file is not the one that its name's pages belong to.
    """

    def __init__(self, realm: Realm, fd: int, flags: int, *, direct: bool = False) -> None:
        self.fd = fd
        self.flags = flags
        self.direct = direct
        found = os.fstat(fd)
        self._key = (found.st_dev, found.st_ino)
        self._opens = realm.opens
        self._opens.setdefault(self._key, []).append(self)

    def read(self, size: int, offset: int) -> bytes:
        if not wants_read(self.flags):
            return super().read(size, offset)
        with refusing("read"):
            return os.pread(self.fd, min(size, limits.HOST_READ_MAX), offset)

    def write(self, data: bytes, offset: int) -> int:
        if not wants_write(self.flags):
            return super().write(data, offset)
        with refusing("write"):
            return os.pwrite(self.fd, data, offset)

    def truncate(self, size: int) -> None:
        if not wants_write(self.flags):
            raise SyscallError(Code.BAD_FD, "this file was not opened for writing")
        with refusing("truncate"):
            os.ftruncate(self.fd, size)

    def close(self) -> None:
        if self.fd < 0:
            return
        opens = self._opens.get(self._key, [])
        if self in opens:
            opens.remove(self)
        if not opens:
            self._opens.pop(self._key, None)
        # A failure of close(2) cannot be told to anybody any more.
        with contextlib.suppress(OSError):
            os.close(self.fd)
        self.fd = -1


@dataclasses.dataclass(frozen=True)
class HostNode(Node):
    """A file of the host.

    Args:
        key: which tree it belongs to.
        spot: where it is.
        identity: (device, inode) on the host, so that a file put in its place is another node.
    """

    key: Hashable
    spot: Spot
    identity: tuple[int, int]
    realm: Realm = dataclasses.field(compare=False, repr=False)

    def stat(self) -> Stat:
        found = look(self.realm, self.spot, self.identity)
        if kind_of(found.st_mode) is not Kind.FILE:
            raise not_found(str(self.spot))
        return host_stat(found)

    def open(self, caller: Caller, flags: int) -> File:
        if wants_write(flags) or flags & os.O_TRUNC:
            self.realm.may_write(self.spot)
        with refusing(self.spot.path), self.spot.parent() as place:
            fd = hostfile.open_regular(place, self.spot.name, flags & HOST_FLAGS)
        opened = HostFile(self.realm, fd, flags)
        # Another file took the name since it was looked up: its bytes must not mix with cached pages.
        opened.direct = opened._key != self.identity
        return opened

    def setattr(self, caller: Caller, change: Change) -> None:
        set_attributes(self.realm, self.spot, change)
        if change.size is not None:
            self._resize(change.size)

    def _resize(self, size: int) -> None:
        for opened in self.realm.opens.get(self.identity, ()):
            if wants_write(opened.flags):
                opened.truncate(size)
                return
        with refusing(self.spot.path), self.spot.parent() as place:
            fd = hostfile.open_regular(place, self.spot.name, os.O_WRONLY)
            try:
                os.ftruncate(fd, size)
            finally:
                os.close(fd)


@dataclasses.dataclass(frozen=True)
class HostLink(Link):
    """A symbolic link of the host."""

    spot: Spot = dataclasses.field(compare=False, kw_only=True)
    realm: Realm = dataclasses.field(compare=False, kw_only=True, repr=False)

    def stat(self) -> Stat:
        with refusing(self.spot.path):
            found = self.spot.root.lstat(self.spot.rel)
        if not stat.S_ISLNK(found.st_mode):
            raise not_found(str(self.spot))
        size = len(os.fsencode(self.realm.link_text(self.spot)))
        return msgspec.structs.replace(host_stat(found), size=size)

    def setattr(self, caller: Caller, change: Change) -> None:
        if change.mode is not None:
            raise SyscallError(Code.NOT_PERMITTED, "a link has no mode of its own")
        set_attributes(self.realm, self.spot, change)


def look(realm: Realm, spot: Spot, identity: tuple[int, int]) -> os.stat_result:
    """What is at a spot; if it is not what was there and that is still open, what was there."""
    found = None
    with refusing(spot.path):
        try:
            found = spot.root.lstat(spot.rel)
        except (FileNotFoundError, NotADirectoryError):
            found = None
        if found is not None and (found.st_dev, found.st_ino) == identity:
            return found
        opened = realm.opens.get(identity)
        if opened:
            return os.fstat(opened[0].fd)
    if found is None:
        raise not_found(str(spot))
    return found


def set_attributes(realm: Realm, spot: Spot, change: Change) -> None:
    """Change mode and times of what is at a spot.

    Raises:
        SyscallError: READ_ONLY; NOT_PERMITTED for owners, and for bits that would lend rights to others.
    """
    realm.may_write(spot)
    if change.owner is None and change.mode is None and change.times is None:
        return
    with refusing(spot.path):
        found = spot.root.lstat(spot.rel)
        if change.owner is not None:
            _check_owner(found, change.owner, spot)
        with spot.parent() as place:
            if change.mode is not None:
                _set_mode(place, spot, found, change.mode)
            if change.times is not None:
                _set_times(place, spot, found, change.times)


def _set_mode(place: int, spot: Spot, found: os.stat_result, mode: int) -> None:
    if mode & _SPECIAL_BITS & ~found.st_mode:
        raise SyscallError(Code.NOT_PERMITTED, f"set-id bits cannot be set here: {spot}")
    hostfile.chmod(place, spot.name, stat.S_IMODE(mode))


def _set_times(place: int, spot: Spot, found: os.stat_result, times: tuple[int | None, int | None]) -> None:
    atime, mtime = times
    both = (
        found.st_atime_ns if atime is None else atime,
        found.st_mtime_ns if mtime is None else mtime,
    )
    os.utime(spot.name, ns=both, dir_fd=place, follow_symlinks=False)


def _check_owner(found: os.stat_result, owner: tuple[int, int], spot: Spot) -> None:
    if owner[0] not in (-1, found.st_uid) or owner[1] not in (-1, found.st_gid):
        raise SyscallError(Code.NOT_PERMITTED, f"the owner of {spot} cannot be changed here")
