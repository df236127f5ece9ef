"""The mount: requests of the host kernel, turned into calls on nodes and files.

The only module besides `edge` that knows pyfuse3. Three rules hold for every handler: nothing but a
FUSEError leaves it (anything else would end the mount for everybody), it waits only through `_ready` (so
that a signal to the client ends the wait), and the request that does not wait reaches no scheduler.

Over 400 lines because every request of the host kernel has its handler here.
"""

import errno
import functools
import logging
import os
import stat as modes
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import pyfuse3
import trio
from pyfuse3 import FUSEError

from rnixfs import limits, vfs
from rnixfs.edge import Interruptible, drain
from rnixfs.edge.interrupt import Interrupts
from rnixfs.errors import Code, SyscallError
from rnixfs.kernel import Kernel
from rnixfs.node import Change, Dir, File, Link, Node
from rnixfs.types import Caller, Kind, Ready, Stat

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_Handler = TypeVar("_Handler", bound=Callable[..., Awaitable[Any]])
_TYPE_BITS = {Kind.FILE: modes.S_IFREG, Kind.DIRECTORY: modes.S_IFDIR, Kind.LINK: modes.S_IFLNK}
_POLL_READ = 0x001 | 0x040  # POLLIN | POLLRDNORM
_POLL_WRITE = 0x004 | 0x100  # POLLOUT | POLLWRNORM
_POLL_HANGUP = 0x010
_BLOCK = 4096


def guarded(handler: _Handler) -> _Handler:
    """The one wrapper around every handler: what goes wrong becomes an errno, never the end of the mount."""

    @functools.wraps(handler)
    async def run(*args: Any) -> Any:
        try:
            return await handler(*args)
        except Exception as error:
            raise _as_fuse_error(error, handler.__name__) from None

    return run  # type: ignore[return-value]


def at_once(handler: Callable[..., _T]) -> Callable[..., Coroutine[Any, Any, _T]]:
    """`guarded` for handlers that never wait, who save a coroutine by not being one."""

    @functools.wraps(handler)
    async def run(*args: Any) -> _T:
        try:
            return handler(*args)
        except Exception as error:
            raise _as_fuse_error(error, handler.__name__) from None

    return run


def _as_fuse_error(error: Exception, name: str) -> FUSEError:
    if isinstance(error, FUSEError):
        return error
    if isinstance(error, OSError):
        return FUSEError(error.errno or errno.EIO)
    log.error("%s failed inside", name, exc_info=error)
    return FUSEError(errno.EIO)


class _Inode:
    """One inode that the host kernel knows: its node, how often it was looked up, and one of its names."""

    __slots__ = ("lookups", "name", "node", "parent")

    def __init__(self, node: Node, parent: int, name: str) -> None:
        self.node = node
        self.parent = parent
        self.name = name
        self.lookups = 0


class Inodes:
    """Numbers for nodes: equal nodes share one, and no number is ever used again.

    Args:
        root: gets the root's number.
    """

    def __init__(self, root: Node) -> None:
        self._by_number: dict[int, _Inode] = {pyfuse3.ROOT_INODE: _Inode(root, pyfuse3.ROOT_INODE, "")}
        self._by_node: dict[Node, int] = {root: pyfuse3.ROOT_INODE}
        self._next = pyfuse3.ROOT_INODE + 1

    def __len__(self) -> int:
        return len(self._by_number)

    def node(self, number: int) -> Node:
        """The node of an inode.

        Raises:
            FUSEError: ESTALE for a number that was forgotten.
        """
        try:
            return self._by_number[number].node
        except KeyError:
            raise FUSEError(errno.ESTALE) from None

    def number(self, node: Node, parent: int, name: str) -> int:
        """The inode of a node, new where there is none, looked up once more."""
        number = self._by_node.get(node)
        if number is None:
            number, self._next = self._next, self._next + 1
            self._by_node[node] = number
            self._by_number[number] = _Inode(node, parent, name)
        inode = self._by_number[number]
        inode.lookups += 1
        if name:
            inode.parent, inode.name = parent, name
        return number

    def find(self, node: Node) -> int | None:
        """The inode of a node, if the host kernel knows one."""
        return self._by_node.get(node)

    def forget(self, number: int, count: int) -> None:
        """The host kernel dropped `count` of its references."""
        inode = self._by_number.get(number)
        if inode is None or number == pyfuse3.ROOT_INODE:
            return
        inode.lookups -= count
        if inode.lookups <= 0:
            del self._by_number[number]
            self._by_node.pop(inode.node, None)

    def path(self, number: int) -> str:
        """A path of an inode, for traces."""
        names: list[str] = []
        while (
            number != pyfuse3.ROOT_INODE and number in self._by_number and len(names) < limits.LINK_DEPTH_MAX
        ):
            names.append(self._by_number[number].name)
            number = self._by_number[number].parent
        return "/" + "/".join(reversed(names))


class _Open:
    """One open of the mount."""

    __slots__ = ("file", "flags", "inode", "tid")

    def __init__(self, file: File, flags: int, inode: int, tid: int) -> None:
        self.file = file
        self.flags = flags
        self.inode = inode
        self.tid = tid


class Mount(pyfuse3.Operations):
    """The handlers of one mount.

    Args:
        kernel: opens files.
        root: what is mounted.
        interrupts: ends the waits of clients that get a signal.
        agent_of: the agent for which a POSIX session of the host was started, 0 for none.
    """

    supports_dot_lookup = False
    enable_writeback_cache = False

    def __init__(
        self, kernel: Kernel, root: Dir, interrupts: Interruptible, agent_of: Callable[[int], int]
    ) -> None:
        super().__init__()
        self.kernel = kernel
        self.inodes = Inodes(root)
        self.files: dict[int, _Open] = {}
        self._root = root
        self._interrupts = interrupts
        self._uncalibrated = interrupts if isinstance(interrupts, Interrupts) else None
        self._agent_of = agent_of
        self._folders: dict[int, list[tuple[str, Node]]] = {}
        self._next_handle = 1
        self._waiting = 0
        self._started = time.time_ns()
        self._uid = os.getuid()
        self._gid = os.getgid()

    # --- helpers ---

    def _handle(self) -> int:
        self._next_handle += 1
        return self._next_handle

    def _identify(self, uid: int, gid: int, tid: int) -> Caller:
        try:
            session = os.getsid(tid) if tid > 0 else 0
        except OSError:
            session = 0
        return Caller(uid, gid, self._agent_of(session), tid or 1, session)

    def _who(self, ctx: pyfuse3.RequestContext) -> Caller:
        return self._identify(ctx.uid, ctx.gid, ctx.pid)

    def _dir(self, inode: int) -> Dir:
        node = self.inodes.node(inode)
        if not isinstance(node, Dir):
            raise FUSEError(errno.ENOTDIR)
        return node

    def _attributes(self, number: int, stat: Stat) -> pyfuse3.EntryAttributes:
        attributes = pyfuse3.EntryAttributes()
        attributes.st_ino = pyfuse3.InodeT(number)
        attributes.st_mode = pyfuse3.ModeT(_TYPE_BITS[stat.kind] | stat.mode)
        attributes.st_nlink = stat.links
        attributes.st_uid = self._uid
        attributes.st_gid = self._gid
        attributes.st_size = stat.size
        attributes.st_blksize = _BLOCK
        attributes.st_blocks = stat.blocks or -(-stat.size // 512)
        changed = stat.mtime_ns or self._started
        attributes.st_atime_ns = attributes.st_ctime_ns = attributes.st_mtime_ns = changed
        attributes.attr_timeout = stat.ttl
        attributes.entry_timeout = stat.name_ttl
        return attributes

    def _entry(self, node: Node, parent: int, name: str) -> pyfuse3.EntryAttributes:
        stat = node.stat()
        return self._attributes(self.inodes.number(node, parent, name), stat)

    @guarded
    async def _ready(self, opened: _Open, want: Ready, attempt: Callable[[], _T]) -> _T:
        """Wait until `attempt` finds something; EINTR when the client gets a signal first."""
        if opened.flags & os.O_NONBLOCK:
            raise FUSEError(errno.EAGAIN)
        if self._waiting >= limits.WAITING_MAX:
            raise FUSEError(errno.EAGAIN)
        self._waiting += 1
        try:
            while True:
                if not await self._interrupts.wait(lambda: opened.file.wait(want), opened.tid):
                    raise FUSEError(errno.EINTR)
                try:
                    return attempt()
                except trio.WouldBlock:
                    continue
        finally:
            self._waiting -= 1

    # --- names ---

    @at_once
    def lookup(self, parent: int, raw: bytes, ctx: pyfuse3.RequestContext) -> pyfuse3.EntryAttributes:
        name = vfs.check_name(os.fsdecode(raw))
        folder = self._dir(parent)
        return self._entry(folder.lookup(name, self._who(ctx)), parent, name)

    async def forget(self, forgotten: Any) -> None:
        for number, count in forgotten:
            self.inodes.forget(number, count)

    @at_once
    def getattr(self, inode: int, ctx: pyfuse3.RequestContext | None) -> pyfuse3.EntryAttributes:
        return self._attributes(inode, self.inodes.node(inode).stat())

    @at_once
    def setattr(
        self,
        inode: int,
        attr: pyfuse3.EntryAttributes,
        fields: pyfuse3.SetattrFields,
        fh: int | None,
        ctx: pyfuse3.RequestContext,
    ) -> pyfuse3.EntryAttributes:
        node = self.inodes.node(inode)
        change = _change(attr, fields)
        opened = self.files.get(fh) if fh is not None else None
        if change.size is not None and opened is not None:
            opened.file.truncate(change.size)
            change = Change(None, change.mode, change.owner, change.times)
        if change != Change():
            node.setattr(self._who(ctx), change)
        return self._attributes(inode, node.stat())

    @at_once
    def readlink(self, inode: int, ctx: pyfuse3.RequestContext) -> bytes:
        node = self.inodes.node(inode)
        if not isinstance(node, Link):
            raise FUSEError(errno.EINVAL)
        return os.fsencode(node.target(self._who(ctx)))

    @at_once
    def mkdir(
        self, parent: int, raw: bytes, mode: int, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        name = vfs.check_name(os.fsdecode(raw))
        return self._entry(self._dir(parent).mkdir(name, mode & ~ctx.umask, self._who(ctx)), parent, name)

    @at_once
    def unlink(self, parent: int, raw: bytes, ctx: pyfuse3.RequestContext) -> None:
        self._dir(parent).unlink(os.fsdecode(raw), self._who(ctx))

    @at_once
    def rmdir(self, parent: int, raw: bytes, ctx: pyfuse3.RequestContext) -> None:
        self._dir(parent).rmdir(os.fsdecode(raw), self._who(ctx))

    @at_once
    def rename(
        self, parent: int, raw: bytes, new_parent: int, new: bytes, flags: int, ctx: pyfuse3.RequestContext
    ) -> None:
        name = vfs.check_name(os.fsdecode(new))
        self._dir(parent).rename(os.fsdecode(raw), self._dir(new_parent), name, self._who(ctx), flags)

    @at_once
    def symlink(
        self, parent: int, raw: bytes, target: bytes, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        name = vfs.check_name(os.fsdecode(raw))
        node = self._dir(parent).symlink(name, os.fsdecode(target), self._who(ctx))
        return self._entry(node, parent, name)

    @at_once
    def link(
        self, inode: int, new_parent: int, new: bytes, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        name = vfs.check_name(os.fsdecode(new))
        node = self._dir(new_parent).link(name, self.inodes.node(inode), self._who(ctx))
        return self._entry(node, new_parent, name)

    @at_once
    def mknod(
        self, parent: int, raw: bytes, mode: int, rdev: int, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        raise SyscallError(Code.NOT_PERMITTED, "this tree holds no special files")

    # --- folders ---

    @at_once
    def opendir(self, inode: int, ctx: pyfuse3.RequestContext) -> int:
        folder = self._dir(inode)
        handle = self._handle()
        listing: list[tuple[str, Node]] = [(".", folder), ("..", folder)]
        listing.extend(folder.entries(self._who(ctx)))
        self._folders[handle] = listing
        self.files[handle] = _Open(File(), 0, inode, ctx.pid)
        return handle

    @at_once
    def readdir(self, fh: int, start: int, token: pyfuse3.ReaddirToken) -> None:
        listing = self._folders[fh]
        parent = self.files[fh].inode
        for index in range(start, len(listing)):
            name, node = listing[index]
            if not self._list(token, parent, name, node, index + 1):
                return

    def _list(self, token: pyfuse3.ReaddirToken, parent: int, name: str, node: Node, following: int) -> bool:
        """Add one entry to a listing; False when it has no more room."""
        if name in (".", ".."):
            attributes = self._attributes(parent, node.stat())
            return pyfuse3.readdir_reply(token, pyfuse3.FileNameT(name.encode()), attributes, following)
        try:
            stat = node.stat()
        except SyscallError:
            return True  # it went away since the folder was opened
        number = self.inodes.number(node, parent, name)
        attributes = self._attributes(number, stat)
        if pyfuse3.readdir_reply(token, pyfuse3.FileNameT(os.fsencode(name)), attributes, following):
            return True
        self.inodes.forget(number, 1)
        return False

    @at_once
    def releasedir(self, fh: int) -> None:
        del self._folders[fh]
        del self.files[fh]

    # --- files ---

    async def open(self, inode: int, flags: int, ctx: pyfuse3.RequestContext) -> pyfuse3.FileInfo:
        if self._uncalibrated is not None:
            await self._calibrate(self._uncalibrated, ctx)
        try:
            return self._open(inode, flags, ctx)
        except Exception as error:
            raise _as_fuse_error(error, "open") from None

    @guarded
    async def _calibrate(self, interrupts: Interrupts, ctx: pyfuse3.RequestContext) -> None:
        await interrupts.calibrate(ctx)
        self._uncalibrated = None if interrupts.settled else interrupts

    def _open(self, inode: int, flags: int, ctx: pyfuse3.RequestContext) -> pyfuse3.FileInfo:
        node = self.inodes.node(inode)
        caller = node.acting(self._who(ctx))
        path = self.inodes.path(inode) if caller.agent else ""
        file = self.kernel.open(node, caller, flags, path)
        return self._opened(file, flags, inode, ctx.pid)

    def _opened(self, file: File, flags: int, inode: int, tid: int) -> pyfuse3.FileInfo:
        handle = self._handle()
        self.files[handle] = _Open(file, flags, inode, tid)
        return pyfuse3.FileInfo(fh=pyfuse3.FileHandleT(handle), direct_io=file.direct)

    @at_once
    def create(
        self, parent: int, raw: bytes, mode: int, flags: int, ctx: pyfuse3.RequestContext
    ) -> tuple[pyfuse3.FileInfo, pyfuse3.EntryAttributes]:
        name = vfs.check_name(os.fsdecode(raw))
        node, file = self._dir(parent).create(name, mode & ~ctx.umask, self._who(ctx), flags)
        attributes = self._entry(node, parent, name)
        return self._opened(file, flags, attributes.st_ino, ctx.pid), attributes

    async def read(self, fh: int, off: int, size: int) -> bytes:
        try:
            return _checked(self.files[fh].file.read(size, off), size)
        except trio.WouldBlock:
            pass
        except Exception as error:
            raise _as_fuse_error(error, "read") from None
        opened = self.files[fh]
        return await self._ready(opened, Ready.READ, lambda: _checked(opened.file.read(size, off), size))

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        try:
            return int(self.files[fh].file.write(buf, off))
        except trio.WouldBlock:
            pass
        except Exception as error:
            raise _as_fuse_error(error, "write") from None
        opened = self.files[fh]
        return await self._ready(opened, Ready.WRITE, lambda: int(opened.file.write(buf, off)))

    async def flush(self, fh: int) -> None:
        # Told once, the host kernel never asks again: a close of a duplicate means nothing here.
        raise FUSEError(errno.ENOSYS)

    async def fsync(self, fh: int, datasync: bool) -> None:
        """Nothing is kept back: every write has reached its file before it returned."""

    async def fsyncdir(self, fh: int, datasync: bool) -> None:
        """As `fsync`."""

    @at_once
    def release(self, fh: int) -> None:
        opened = self.files.pop(fh)
        if opened.file.pulse is not None:
            opened.file.pulse.forget(fh)
        opened.file.close()

    @at_once
    def poll(
        self, inode: int, fh: int, handle: pyfuse3.PollHandle | None, ctx: pyfuse3.RequestContext
    ) -> int:
        file = self.files[fh].file
        if handle is not None and file.pulse is not None:
            file.pulse.once(fh, handle.notify)
        ready = file.poll()
        mask = _POLL_READ if ready & Ready.READ else 0
        mask |= _POLL_WRITE if ready & Ready.WRITE else 0
        return mask | (_POLL_HANGUP if ready & Ready.HANGUP else 0)

    @at_once
    def statfs(self, ctx: pyfuse3.RequestContext) -> pyfuse3.StatvfsData:
        data = pyfuse3.StatvfsData()
        data.f_bsize = data.f_frsize = _BLOCK
        data.f_files = len(self.inodes)
        data.f_namemax = limits.NAME_MAX
        return data

    # --- what the daemon asks ---

    def busy(self) -> int:
        """How many files and folders are open."""
        return len(self.files)

    def forget_process(self, pid: int) -> None:
        """Tell the host kernel that `proc/<pid>` is gone."""
        proc = self.inodes.find(self._root.lookup("proc", Caller(self._uid, self._gid)))
        if proc is not None:
            name = pyfuse3.FileNameT(str(pid).encode())
            pyfuse3.invalidate_entry_async(pyfuse3.InodeT(proc), name, ignore_enoent=True)


MAX_TASKS = 1_000_000  # pyfuse3's default of 99 lets the 99th waiting read hang the whole mount


def attach(mount: Mount, mountpoint: str, options: set[str]) -> None:
    """Mount, so that requests queue up for `serve`.

    Args:
        mount: the handlers.
        mountpoint: a folder that is ready.
        options: mount options beside `default_permissions`.

    Raises:
        RuntimeError: the host kernel or fusermount3 refused.
    """
    pyfuse3.init(mount, mountpoint, {*options, "default_permissions"})
    if not drain.install():
        log.warning("this version of pyfuse3 is not known: serving by its plain loop")


async def serve() -> None:
    """Answer requests until somebody unmounts; cancel it to stop. Never `pyfuse3.terminate`, which waits
    for handlers that wait for clients."""
    await pyfuse3.main(min_tasks=1, max_tasks=MAX_TASKS)


def detach() -> None:
    """Unmount; clients that still wait get an error at once."""
    drain.uninstall()
    pyfuse3.close()


def _checked(data: bytes, size: int) -> bytes:
    """What a file gave for a read. pyfuse3 would end the mount for anything but bytes, and for too many."""
    if not isinstance(data, bytes) or len(data) > size:
        raise TypeError(f"a read of {size} bytes gave {type(data).__name__}, not bytes, or more than that")
    return data


def _change(attr: pyfuse3.EntryAttributes, fields: pyfuse3.SetattrFields) -> Change:
    owner = None
    if fields.update_uid or fields.update_gid:
        owner = (attr.st_uid if fields.update_uid else -1, attr.st_gid if fields.update_gid else -1)
    times = None
    if fields.update_atime or fields.update_mtime:
        times = (
            attr.st_atime_ns if fields.update_atime else None,
            attr.st_mtime_ns if fields.update_mtime else None,
        )
    return Change(
        size=attr.st_size if fields.update_size else None,
        mode=modes.S_IMODE(attr.st_mode) if fields.update_mode else None,
        owner=owner,
        times=times,
    )
