"""One small interface to the tree, twice: in memory, and through a mount by a program of its own.

A contract test is written against `Tree` and `Opened` and run with both, so that what it finds out holds for
agents, who make system calls in memory, and for every program of the host.
"""

import itertools
import json
import os
import pathlib
import sys
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

import trio

from rnixfs import vfs
from rnixfs.bootstrap import System
from rnixfs.errors import Code, SyscallError
from rnixfs.node import Change, Dir, File, Link, Node, wants_read, wants_write
from rnixfs.types import Caller, Kind, Ready
from tests.daemon import SECONDS, Daemon

SIZE = 1 << 20  # bytes of one read
_T = TypeVar("_T")


class Seen(NamedTuple):
    """What stat tells of a name: `file`, `directory` or `link`, bytes, and permission bits."""

    kind: str
    size: int
    mode: int


class Opened(Protocol):
    """One open file."""

    async def read(self, size: int = SIZE) -> bytes:
        """Read on from where it stands; waits."""

    async def write(self, data: bytes) -> int:
        """Write where it stands."""

    async def seek(self, offset: int) -> None:
        """Stand somewhere else."""

    async def ready(self) -> set[str]:
        """What poll tells: some of `read`, `write`, `hup`."""

    async def until(self, what: str) -> None:
        """Wait as poll does, until one of these is so."""

    async def close(self) -> None:
        """Close it."""


class Tree(Protocol):
    """The tree, as one login session reaches it. Paths are relative to the root; errors are OSErrors."""

    async def open(self, path: str, flags: int) -> Opened:
        """Open a file with the flags of open(2)."""

    async def stat(self, path: str) -> Seen:
        """What is known of a name, links not followed."""

    async def names(self, path: str) -> list[str]:
        """The names in a folder."""

    async def readlink(self, path: str) -> str:
        """Where a link leads."""

    async def change(self, call: str, path: str, *arguments: Any) -> None:
        """Do `mkdir`, `rmdir`, `unlink`, `rename` TO, `symlink` TARGET, `chmod` MODE or `truncate` SIZE."""

    async def other(self) -> "Tree":
        """The tree as another login session of the same user reaches it."""


async def read(tree: Tree, path: str) -> bytes:
    """All of a file, as `cat` gets it."""
    opened = await tree.open(path, os.O_RDONLY)
    try:
        return await read_on(opened)
    finally:
        await opened.close()


async def read_on(opened: Opened, size: int = SIZE) -> bytes:
    """The rest of an open file."""
    parts = []
    while part := await opened.read(size):
        parts.append(part)
    return b"".join(parts)


async def write(tree: Tree, path: str, data: bytes, how: int = os.O_TRUNC) -> None:
    """Write as `>` does, or as `>>` with O_APPEND."""
    opened = await tree.open(path, os.O_WRONLY | os.O_CREAT | how)
    try:
        await opened.write(data)
    finally:
        await opened.close()


async def ask(tree: Tree, path: str, request: object) -> bytes:
    """Ask a device through an open of one's own; text for a str, JSON for all else."""
    opened = await tree.open(path, os.O_RDWR)
    try:
        await opened.write(request.encode() if isinstance(request, str) else json.dumps(request).encode())
        return await read_on(opened)
    finally:
        await opened.close()


# --- in memory ---


class _MemoryFile:
    def __init__(self, file: File, flags: int, offset: int) -> None:
        self.file = file
        self.flags = flags
        self.offset = offset

    async def read(self, size: int = SIZE) -> bytes:
        if not wants_read(self.flags):
            raise SyscallError(Code.BAD_FD, "opened for writing only")
        data = await self._when(Ready.READ, lambda: self.file.read(size, self.offset))
        self.offset += len(data)
        return data

    async def write(self, data: bytes) -> int:
        if not wants_write(self.flags):
            raise SyscallError(Code.BAD_FD, "opened for reading only")
        count = await self._when(Ready.WRITE, lambda: self.file.write(data, self.offset))
        self.offset += count
        return count

    async def _when(self, want: Ready, attempt: Callable[[], _T]) -> _T:
        while True:
            await trio.lowlevel.checkpoint()
            try:
                return attempt()
            except trio.WouldBlock:
                if self.flags & os.O_NONBLOCK:
                    raise SyscallError(Code.SERVICE_UNAVAILABLE, "not ready") from None
                await self.file.wait(want)

    async def seek(self, offset: int) -> None:
        self.offset = offset

    async def ready(self) -> set[str]:
        ready = self.file.poll()
        names = {Ready.READ: "read", Ready.WRITE: "write", Ready.HANGUP: "hup"}
        return {name for bit, name in names.items() if ready & bit}

    async def until(self, what: str) -> None:
        await self.file.wait(Ready.READ if what == "read" else Ready.WRITE)

    async def close(self) -> None:
        self.file.close()


_sessions = itertools.count(1_000_000)


class MemoryTree:
    """The tree of a system in this process, with what the host kernel does in front of a mount.

    Args:
        system: a running one.
    """

    def __init__(self, system: System) -> None:
        self.system = system
        self.caller = Caller(os.getuid(), os.getgid(), session=next(_sessions))

    def _walk(self, path: str, *, follow: bool) -> Node:
        return vfs.walk(self.system.kernel.root, f"/{path}", self.caller, follow=follow)

    def _place(self, path: str) -> tuple[Dir, str]:
        above, _, name = path.rpartition("/")
        folder = self._walk(above, follow=True)
        assert isinstance(folder, Dir)
        return folder, vfs.check_name(name)

    async def open(self, path: str, flags: int) -> Opened:
        await trio.lowlevel.checkpoint()
        try:
            node = self._walk(path, follow=True)
        except SyscallError as error:
            if error.code is not Code.NOT_FOUND or not flags & os.O_CREAT:
                raise
            folder, name = self._place(path)
            _, file = folder.create(name, 0o644, self.caller, flags)
            return _MemoryFile(file, flags, 0)
        if isinstance(node, Dir):
            raise SyscallError(Code.IS_DIRECTORY, "a folder")
        file = self.system.kernel.open(node, self.caller, flags & ~os.O_CREAT, path)
        return _MemoryFile(file, flags, node.stat().size if flags & os.O_APPEND else 0)

    async def stat(self, path: str) -> Seen:
        await trio.lowlevel.checkpoint()
        found = self._walk(path, follow=False).stat()
        kinds = {Kind.FILE: "file", Kind.DIRECTORY: "directory", Kind.LINK: "link"}
        return Seen(kinds[found.kind], found.size, found.mode)

    async def names(self, path: str) -> list[str]:
        await trio.lowlevel.checkpoint()
        folder = self._walk(path, follow=True)
        if not isinstance(folder, Dir):
            raise SyscallError(Code.NOT_DIRECTORY, "no folder")
        return [name for name, _ in folder.entries(self.caller)]

    async def readlink(self, path: str) -> str:
        await trio.lowlevel.checkpoint()
        link = self._walk(path, follow=False)
        assert isinstance(link, Link)
        return link.target(self.caller)

    async def change(self, call: str, path: str, *arguments: Any) -> None:
        await trio.lowlevel.checkpoint()
        if call in ("chmod", "truncate"):
            node = self._walk(path, follow=True)
            only = Change(mode=arguments[0]) if call == "chmod" else Change(size=arguments[0])
            return node.setattr(self.caller, only)
        folder, name = self._place(path)
        match call:
            case "mkdir":
                folder.mkdir(name, 0o755, self.caller)
            case "symlink":
                folder.symlink(name, arguments[0], self.caller)
            case "rename":
                folder.lookup(name, self.caller)
                target, new = self._place(arguments[0])
                folder.rename(name, target, new, self.caller, 0)
            case _:
                folder.lookup(name, self.caller)
                (folder.rmdir if call == "rmdir" else folder.unlink)(name, self.caller)
        return None

    async def other(self) -> "MemoryTree":
        return MemoryTree(self.system)


# --- through a mount ---

_PUPPET = pathlib.Path(__file__).with_name("puppet.py")


class Puppet:
    """A program that makes system calls for a test, any number of them at once.

    Args:
        daemon: whose mount it reaches.
    """

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.program = daemon.program([sys.executable, "-I", "-S", str(_PUPPET), str(daemon.mount)])
        self._numbers = itertools.count(1)
        self._answers: dict[int, dict[str, Any]] = {}
        self._news = threading.Condition()
        self._gone = False
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def _listen(self) -> None:
        assert self.program.process.stdout is not None
        for line in self.program.process.stdout:
            answer = json.loads(line)
            with self._news:
                self._answers[answer["number"]] = answer
                self._news.notify_all()
        with self._news:
            self._gone = True
            self._news.notify_all()

    def call(self, what: str, *arguments: Any) -> Any:
        """Make a call and wait for what it gives; raises the OSError that it met."""
        number = next(self._numbers)
        line = json.dumps({"number": number, "call": what, "arguments": arguments}) + "\n"
        assert self.program.process.stdin is not None
        os.write(self.program.process.stdin.fileno(), line.encode())
        with self._news:
            done = self._news.wait_for(lambda: number in self._answers or self._gone, SECONDS)
            assert done, f"{what} {arguments} did not return within {SECONDS:g} s"
            assert number in self._answers, f"the program ended in {what} {arguments}"
            answer = self._answers.pop(number)
        if "errno" in answer:
            raise OSError(answer["errno"], os.strerror(answer["errno"]), *map(str, arguments[:1]))
        return answer["result"]

    def end(self) -> None:
        """End it whatever it waits for."""
        self.program.process.kill()
        self._reader.join(SECONDS)
        self.daemon.forget(self.program)


class _MountFile:
    def __init__(self, tree: "MountTree", handle: int) -> None:
        self.tree = tree
        self.handle = handle

    async def read(self, size: int = SIZE) -> bytes:
        text: str = await self.tree.call("read", self.handle, size)
        return text.encode("latin-1")

    async def write(self, data: bytes) -> int:
        return int(await self.tree.call("write", self.handle, data.decode("latin-1")))

    async def seek(self, offset: int) -> None:
        await self.tree.call("seek", self.handle, offset)

    async def ready(self) -> set[str]:
        return set(await self.tree.call("poll", self.handle, 0, ["read", "write"]))

    async def until(self, what: str) -> None:
        assert await self.tree.call("poll", self.handle, SECONDS * 1000, [what]), f"never {what}"

    async def close(self) -> None:
        await self.tree.call("close", self.handle)


class MountTree:
    """The tree of a daemon, reached by a program in a session of its own.

    Args:
        daemon: has the mount.
    """

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.puppet = Puppet(daemon)
        self._others: list[MountTree] = []
        # Of its own, so that calls that wait never use up the threads of others.
        self._limiter = trio.CapacityLimiter(100)

    async def call(self, what: str, *arguments: Any) -> Any:
        """Make a call in the program, in a thread that a cancellation leaves behind."""
        return await trio.to_thread.run_sync(
            lambda: self.puppet.call(what, *arguments), abandon_on_cancel=True, limiter=self._limiter
        )

    async def open(self, path: str, flags: int) -> Opened:
        return _MountFile(self, await self.call("open", path, flags))

    async def stat(self, path: str) -> Seen:
        return Seen(*await self.call("stat", path))

    async def names(self, path: str) -> list[str]:
        return list(await self.call("names", path))

    async def readlink(self, path: str) -> str:
        return str(await self.call("readlink", path))

    async def change(self, call: str, path: str, *arguments: Any) -> None:
        await self.call(call, path, *arguments)

    async def other(self) -> "MountTree":
        self._others.append(await trio.to_thread.run_sync(MountTree, self.daemon))
        return self._others[-1]

    def end(self) -> None:
        """End the program, and those of the other sessions."""
        for one in [self, *self._others]:
            one.puppet.end()
