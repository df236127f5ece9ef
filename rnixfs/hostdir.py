"""`dev/fs`: folders and files of the host as nodes of the tree.

Names below `dev/fs` are absolute host paths. Folders on the way to a root are made up; from a root on
everything is real. Symbolic links are shown as links whose text was rewritten so that whoever follows it, the
host kernel included, stays below `dev/fs`.

Freshness: a name is looked up anew at each use (`name_ttl` 0), which also brings the true size, and pages are
dropped at each open. So what was written before an open is seen after it, as with NFS, while reads and
mappings of an open file come from the page cache.
"""

import contextlib
import dataclasses
import os
import stat
from collections.abc import Callable, Hashable, Iterator

import msgspec

from rnixfs import hostfile, hostpath
from rnixfs.errors import Code, SyscallError, denied, invalid, not_found, printable
from rnixfs.hostnode import HOST_FLAGS, HostFile, HostLink, HostNode, Realm, host_stat, look, set_attributes
from rnixfs.hostpath import Opener, Roots, Spot, refusing
from rnixfs.node import Change, Dir, File, FixedDir, Node
from rnixfs.types import Caller, Stat
from rnixfs.vfs import check_name

_NOREPLACE = 1  # RENAME_NOREPLACE of linux/fs.h


def node_of(realm: Realm, spot: Spot, found: os.stat_result) -> Node:
    """The node of what was found at a spot."""
    identity = (found.st_dev, found.st_ino)
    if stat.S_ISDIR(found.st_mode):
        return HostDir(realm.key, spot, identity, realm)
    if stat.S_ISLNK(found.st_mode):
        key = (realm.key, spot, identity)
        return HostLink(key, lambda _caller: realm.link_text(spot), spot=spot, realm=realm)
    return HostNode(realm.key, spot, identity, realm)


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

    def stat(self) -> Stat:
        found = look(self.realm, self.spot, self.identity)
        if not stat.S_ISDIR(found.st_mode):
            raise not_found(str(self.spot))
        return host_stat(found)

    def lookup(self, name: str, caller: Caller) -> Node:
        _check_new(name)
        spot = self._at(name)
        if self.realm.roots.forbids(spot.path):
            return self._mountpoint(spot)
        with refusing(spot.path):
            return node_of(self.realm, spot, spot.root.lstat(spot.rel))

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
            return node_of(self.realm, spot, os.stat(name, dir_fd=fd, follow_symlinks=False))
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
            raise denied(f"{spot} holds the mountpoint of this tree; unmount first")
        return spot

    def _found(self, spot: Spot) -> Node:
        return node_of(self.realm, spot, spot.root.lstat(spot.rel))

    def create(self, name: str, mode: int, caller: Caller, flags: int) -> tuple[Node, File]:
        spot = self._new(name)
        with refusing(spot.path), spot.parent() as place:
            try:
                fd = hostfile.create_regular(place, name, flags & HOST_FLAGS, mode)
            except FileExistsError:
                if flags & os.O_EXCL:
                    raise
                fd = hostfile.open_regular(place, name, flags & HOST_FLAGS)
            opened = HostFile(self.realm, fd, flags)
            return node_of(self.realm, spot, os.fstat(fd)), opened

    def mkdir(self, name: str, mode: int, caller: Caller) -> Node:
        spot = self._new(name)
        with refusing(spot.path), spot.parent() as place:
            os.mkdir(name, mode & 0o777, dir_fd=place)
            hostfile.chmod(place, name, mode & 0o777)
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
            raise SyscallError(
                Code.CROSS_DEVICE, f"{printable(name)} can only be moved between folders of the host"
            )
        old, spot = self._new(name), target._new(new)
        with refusing(f"{old} -> {spot}"), old.parent() as place, spot.parent() as there:
            hostfile.rename(place, name, there, new, replace=not flags)

    def symlink(self, name: str, to: str, caller: Caller) -> Node:
        """Make a link with exactly this text; where it leads out of the roots it can only be seen."""
        spot = self._new(name)
        with refusing(spot.path), spot.parent() as place:
            os.symlink(to, name, dir_fd=place)
            return self._found(spot)

    def link(self, name: str, node: Node, caller: Caller) -> Node:
        spot = self._new(name)
        if not isinstance(node, HostNode) or node.key != self.key:
            raise SyscallError(
                Code.CROSS_DEVICE, f"{printable(name)} can only be a second name of a file of the host"
            )
        self.realm.may_write(node.spot)
        with refusing(spot.path), node.spot.parent() as place, spot.parent() as there:
            os.link(node.spot.name, name, src_dir_fd=place, dst_dir_fd=there, follow_symlinks=False)
            return self._found(spot)

    def setattr(self, caller: Caller, change: Change) -> None:
        if change.size is not None:
            raise SyscallError(Code.IS_DIRECTORY, f"{self.spot} is a folder")
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

    def stat(self) -> Stat:
        # A root can go and come back at any time, so the names on the way to it are not to be remembered.
        return msgspec.structs.replace(super().stat(), name_ttl=0.0)

    def lookup(self, name: str, caller: Caller) -> Node:
        path = f"{self.path}/{name}"
        roots = self.realm.roots
        spot = roots.locate(path)
        if spot is not None and not spot.rel:
            with refusing(spot.path):
                return node_of(self.realm, spot, spot.root.lstat(""))
        if spot is None and roots.leads_to_root(path):
            return HostRoots(self.key, path, self.realm)
        raise SyscallError(
            Code.NOT_FOUND, f"{printable(path)} is none of the folders that may be reached: {roots}"
        )

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
