"""`dev/fs`: folders and files of the host as nodes of the tree.

Names below `dev/fs` are absolute host paths. Folders on the way to a root are made up; from a root on
everything is real. Symbolic links are shown as links whose text was rewritten so that whoever follows it, the
host kernel included, stays below `dev/fs`.

Freshness: a name is looked up anew at each use (`ttl` 0), which also brings the true size, and pages are
dropped at each open. So what was written before an open is seen after it, as with NFS, while reads and
mappings of an open file come from the page cache.
"""

import contextlib
import dataclasses
import os
import stat
from collections.abc import Callable, Hashable, Iterator

from rnixfs import hostpath, limits
from rnixfs.errors import Code, SyscallError, denied, invalid, not_found
from rnixfs.hostpath import Opener, Roots, Spot, refusing
from rnixfs.node import Change, Dir, File, FixedDir, Link, Node, wants_read, wants_write
from rnixfs.types import Caller, Kind, Stat
from rnixfs.vfs import check_name

_HOST_FLAGS = os.O_ACCMODE | os.O_APPEND | os.O_TRUNC | os.O_SYNC | os.O_DSYNC
_SPECIAL_BITS = stat.S_ISUID | stat.S_ISGID
_NOREPLACE = 1  # RENAME_NOREPLACE of linux/fs.h
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

    def node(self, spot: Spot, found: os.stat_result) -> Node:
        """The node of what was found at a spot."""
        identity = (found.st_dev, found.st_ino)
        if stat.S_ISDIR(found.st_mode):
            return HostDir(self.key, spot, identity, self)
        if stat.S_ISLNK(found.st_mode):
            key = (self.key, spot, identity)
            return HostLink(key, lambda _caller: self.link_text(spot), spot=spot, realm=self)
        return HostNode(self.key, spot, identity, self)

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
            raise SyscallError(Code.READ_ONLY, f"{spot.path} can only be read here")


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
            raise not_found(self.spot.path)
        return host_stat(found)

    def open(self, caller: Caller, flags: int) -> File:
        if wants_write(flags) or flags & os.O_TRUNC:
            self.realm.may_write(self.spot)
        with refusing(self.spot.path), self.spot.parent() as place:
            fd = hostpath.open_regular(place, self.spot.name, flags & _HOST_FLAGS)
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
            fd = hostpath.open_regular(place, self.spot.name, os.O_WRONLY)
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
            raise not_found(self.spot.path)
        size = len(os.fsencode(self.realm.link_text(self.spot)))
        return dataclasses.replace(host_stat(found), size=size)

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
        raise not_found(spot.path)
    return found


def set_attributes(realm: Realm, spot: Spot, change: Change) -> None:
    """Change mode and times of what is at a spot.

    Raises:
        SyscallError: READ_ONLY; NOT_PERMITTED for owners, and for bits that would lend rights to others.
    """
    realm.may_write(spot)
    with refusing(spot.path):
        found = spot.root.lstat(spot.rel)
        if change.owner is not None:
            _check_owner(found, change.owner, spot)
        if change.mode is not None:
            if change.mode & _SPECIAL_BITS & ~found.st_mode:
                raise SyscallError(Code.NOT_PERMITTED, f"set-id bits cannot be set here: {spot.path}")
            with spot.parent() as place:
                hostpath.chmod(place, spot.name, stat.S_IMODE(change.mode))
        if change.times is not None:
            atime, mtime = change.times
            both = (
                found.st_atime_ns if atime is None else atime,
                found.st_mtime_ns if mtime is None else mtime,
            )
            with spot.parent() as place:
                os.utime(spot.name, ns=both, dir_fd=place, follow_symlinks=False)


def _check_owner(found: os.stat_result, owner: tuple[int, int], spot: Spot) -> None:
    if owner[0] not in (-1, found.st_uid) or owner[1] not in (-1, found.st_gid):
        raise SyscallError(Code.NOT_PERMITTED, f"the owner of {spot.path} cannot be changed here")


def _check_new(name: str) -> None:
    if check_name(name) in (".", ".."):
        raise invalid(f"{name} is no name for something new")


@dataclasses.dataclass(frozen=True)
class HostDir(Dir):
    """A folder of the host; arguments as for `HostNode`."""

    key: Hashable
    spot: Spot
    identity: tuple[int, int]
    realm: Realm = dataclasses.field(compare=False, repr=False)

    ttl = 0.0

    def stat(self) -> Stat:
        found = look(self.realm, self.spot, self.identity)
        if not stat.S_ISDIR(found.st_mode):
            raise not_found(self.spot.path)
        return host_stat(found)

    def lookup(self, name: str, caller: Caller) -> Node:
        _check_new(name)
        spot = self._at(name)
        if self.realm.roots.forbids(spot.path):
            return self._mountpoint(spot)
        with refusing(spot.path):
            return self.realm.node(spot, spot.root.lstat(spot.rel))

    def entries(self, caller: Caller) -> Iterator[tuple[str, Node]]:
        """The names in the host's order, found while they are taken, so that a huge folder makes no pause."""
        with refusing(self.spot.path), self.spot.root.folder(self.spot.rel) as place:
            fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place)
        try:
            with os.scandir(fd) as found:
                for entry in found:
                    node = self._entry(fd, entry.name)
                    if node is not None:
                        yield entry.name, node
        finally:
            os.close(fd)

    def _entry(self, fd: int, name: str) -> Node | None:
        spot = self._at(name)
        if self.realm.roots.forbids(spot.path):
            return self._mountpoint(spot)
        try:
            return self.realm.node(spot, os.stat(name, dir_fd=fd, follow_symlinks=False))
        except OSError:
            return None  # gone since it was listed

    def _at(self, name: str) -> Spot:
        return Spot(self.spot.root, hostpath.join(self.spot.rel, name))

    def _mountpoint(self, spot: Spot) -> Node:
        return FixedDir((self.key, "mountpoint", spot.path))

    def _new(self, name: str) -> Spot:
        _check_new(name)
        spot = self._at(name)
        self.realm.may_write(spot)
        if self.realm.roots.holds_mount(spot.path):
            raise denied(f"{spot.path} holds the mountpoint of this tree; unmount first")
        return spot

    def _found(self, spot: Spot) -> Node:
        return self.realm.node(spot, spot.root.lstat(spot.rel))

    def create(self, name: str, mode: int, caller: Caller, flags: int) -> tuple[Node, File]:
        spot = self._new(name)
        with refusing(spot.path), spot.parent() as place:
            try:
                fd = hostpath.create_regular(place, name, flags & _HOST_FLAGS, mode)
            except FileExistsError:
                if flags & os.O_EXCL:
                    raise
                fd = hostpath.open_regular(place, name, flags & _HOST_FLAGS)
            opened = HostFile(self.realm, fd, flags)
            return self.realm.node(spot, os.fstat(fd)), opened

    def mkdir(self, name: str, mode: int, caller: Caller) -> Node:
        spot = self._new(name)
        with refusing(spot.path), spot.parent() as place:
            os.mkdir(name, mode & 0o777, dir_fd=place)
            hostpath.chmod(place, name, mode & 0o777)
            return self._found(spot)

    def unlink(self, name: str, caller: Caller) -> None:
        spot = self._new(name)
        with refusing(spot.path), spot.parent() as place:
            os.unlink(name, dir_fd=place)

    def rmdir(self, name: str, caller: Caller) -> None:
        spot = self._new(name)
        with refusing(spot.path), spot.parent() as place:
            os.rmdir(name, dir_fd=place)

    def rename(self, name: str, target: Dir, new: str, caller: Caller, flags: int) -> None:
        """Move an entry within this tree.

        Args:
            flags: 0 or RENAME_NOREPLACE.

        Raises:
            SyscallError: INVALID for other flags, CROSS_DEVICE for a folder that is not the host's.
        """
        if flags & ~_NOREPLACE:
            raise invalid("of the flags of renameat2(2) only RENAME_NOREPLACE is known here")
        if not isinstance(target, HostDir) or target.key != self.key:
            raise SyscallError(Code.CROSS_DEVICE, f"{name} can only be moved between folders of the host")
        old, spot = self._new(name), target._new(new)
        with refusing(f"{old.path} -> {spot.path}"), old.parent() as place, spot.parent() as there:
            hostpath.rename(place, name, there, new, replace=not flags)

    def symlink(self, name: str, to: str, caller: Caller) -> Node:
        """Make a link with exactly this text; where it leads out of the roots it can only be seen."""
        spot = self._new(name)
        with refusing(spot.path), spot.parent() as place:
            os.symlink(to, name, dir_fd=place)
            return self._found(spot)

    def link(self, name: str, node: Node, caller: Caller) -> Node:
        spot = self._new(name)
        if not isinstance(node, HostNode) or node.key != self.key:
            raise SyscallError(Code.CROSS_DEVICE, f"{name} can only be a second name of a file of the host")
        self.realm.may_write(node.spot)
        with refusing(spot.path), node.spot.parent() as place, spot.parent() as there:
            os.link(node.spot.name, name, src_dir_fd=place, dst_dir_fd=there, follow_symlinks=False)
            return self._found(spot)

    def setattr(self, caller: Caller, change: Change) -> None:
        if change.size is not None:
            raise SyscallError(Code.IS_DIRECTORY, f"{self.spot.path} is a folder")
        set_attributes(self.realm, self.spot, change)


@dataclasses.dataclass(frozen=True)
class HostRoots(Dir):
    """A made-up folder on the way to the roots.

    Args:
        key: which tree it belongs to.
        path: the host path that it stands for, "" for the top.
    """

    key: Hashable
    path: str
    realm: Realm = dataclasses.field(compare=False, repr=False)

    ttl = 0.0

    def lookup(self, name: str, caller: Caller) -> Node:
        path = f"{self.path}/{name}"
        roots = self.realm.roots
        spot = roots.locate(path)
        if spot is not None and not spot.rel:
            with refusing(spot.path):
                return self.realm.node(spot, spot.root.lstat(""))
        if spot is None and roots.leads_to_root(path):
            return HostRoots(self.key, path, self.realm)
        raise SyscallError(Code.NOT_FOUND, f"{path} is none of the folders that may be reached: {roots}")

    def entries(self, caller: Caller) -> Iterator[tuple[str, Node]]:
        prefix = self.path + "/"
        below = [root.shown for root in self.realm.roots.all if root.shown.startswith(prefix)]
        for name in sorted({path[len(prefix) :].partition("/")[0] for path in below}):
            with contextlib.suppress(SyscallError):  # a root that is not there now
                yield name, self.lookup(name, caller)


def host_roots(
    key: Hashable,
    roots: tuple[str, ...],
    writable: bool,
    *,
    avoid: Callable[[], str] = lambda: "",
    opener: Opener | None = None,
) -> Dir:
    """The folder `dev/fs`.

    Args:
        key: says which tree it is; nodes of trees with different keys are different.
        roots: absolute host folders that can be reached. None of them may lie in the mountpoint.
        writable: whether files can be changed.
        avoid: the canonical path of our own mountpoint, "" while there is none; shown as an empty folder.
        opener: how folders are opened; the best way if None.
    """
    realm = Realm(key, Roots(roots, avoid, opener), writable)
    whole = next((root for root in realm.roots.all if root.shown == "/"), None)
    if whole is None:
        return HostRoots(key, "", realm)
    found = whole.lstat("")
    return HostDir(key, Spot(whole, ""), (found.st_dev, found.st_ino), realm)
