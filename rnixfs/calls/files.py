"""System calls on files."""

import os
from collections.abc import Callable
from typing import TypeVar

import trio

from rnixfs.calls.base import Calls
from rnixfs.errors import Code, SyscallError, from_oserror
from rnixfs.node import Dir, Node
from rnixfs.proc.process import OpenFile
from rnixfs.proc.traced import flag_names
from rnixfs.traceline import clip
from rnixfs.types import Ready, Stat

READ_SIZE = 1 << 20
_T = TypeVar("_T")


class FileCalls(Calls):
    """Open, Read, Write, Close, Stat, and ReadDir."""

    async def open(self, path: str, flags: int = os.O_RDWR) -> int:
        """Open a path; returns the number of the open file.

        Raises:
            SyscallError: NOT_FOUND, PERMISSION and what the node refuses.
        """
        await trio.lowlevel.checkpoint()
        with self._call("Open", path=path, flags=flag_names(flags)) as outcome:
            file = self._kernel.open(self._open_node(path, flags), self._process.caller, flags, path)
            fd = self._numbered(OpenFile(path, flags, file))
            outcome.append(f"FD({fd})")
        return fd

    def _numbered(self, opened: OpenFile) -> int:
        try:
            return self._process.add_file(opened)
        except SyscallError:
            opened.file.close()
            raise

    def _open_node(self, path: str, flags: int) -> Node:
        node = self._walk(path)
        if isinstance(node, Dir):
            raise SyscallError(Code.IS_DIRECTORY, f"{path} is a folder; list it instead")
        return node

    async def read(self, fd: int, size: int = READ_SIZE) -> bytes:
        """Read from an open file, waiting until there is something; b"" is the end.

        Raises:
            SyscallError: BAD_FD, SERVICE_UNAVAILABLE for an O_NONBLOCK open with nothing to read.
        """
        with self._call("Read", fd=fd, size=size) as outcome:
            opened = self._process.file(fd)
            data = await self._until_ready(opened, Ready.READ, lambda: opened.file.read(size, opened.offset))
            opened.offset += len(data)
            outcome.append(f"{len(data)} bytes")
        return data

    async def read_all(self, fd: int) -> bytes:
        """Read an open file to its end."""
        parts = []
        while data := await self.read(fd):
            parts.append(data)
        return b"".join(parts)

    async def write(self, fd: int, data: bytes) -> int:
        """Write to an open file, waiting until there is room.

        Raises:
            SyscallError: BAD_FD, and what the file refuses.
        """
        preview = clip(data[:400].decode("utf-8", "replace"))
        with self._call("Write", fd=fd, data=preview, size=len(data)) as outcome:
            opened = self._process.file(fd)
            count = await self._until_ready(
                opened, Ready.WRITE, lambda: opened.file.write(data, opened.offset)
            )
            opened.offset += count
            outcome.append(f"{count} bytes")
        return count

    @staticmethod
    async def _until_ready(opened: OpenFile, want: Ready, attempt: Callable[[], _T]) -> _T:
        await trio.lowlevel.checkpoint()
        while True:
            try:
                return attempt()
            except trio.WouldBlock:
                if opened.flags & os.O_NONBLOCK:
                    raise SyscallError(
                        Code.SERVICE_UNAVAILABLE, "not ready, and opened with O_NONBLOCK"
                    ) from None
                await opened.file.wait(want)
            except OSError as error:
                raise from_oserror(error) from error

    async def close(self, fd: int) -> None:
        """Close an open file.

        Raises:
            SyscallError: BAD_FD.
        """
        await trio.lowlevel.checkpoint()
        self.close_now(fd)

    def close_now(self, fd: int) -> None:
        """Close without a checkpoint, for cleanup after a cancellation; after the end all is closed."""
        if not self._process.live:
            return
        with self._call("Close", fd=fd):
            self._process.file(fd).file.close()
            del self._process.files[fd]

    async def stat(self, path: str) -> Stat:
        """What is known of a path.

        Raises:
            SyscallError: NOT_FOUND and PERMISSION.
        """
        await trio.lowlevel.checkpoint()
        with self._call("Stat", path=path) as outcome:
            stat = self._walk(path).stat()
            outcome.append(f"{stat.kind}, {stat.size} bytes")
        return stat

    async def read_dir(self, path: str) -> list[tuple[str, Stat]]:
        """The names in a folder with what is known of them.

        Raises:
            SyscallError: NOT_FOUND, NOT_DIRECTORY and PERMISSION.
        """
        await trio.lowlevel.checkpoint()
        with self._call("ReadDir", path=path) as outcome:
            node = self._walk(path)
            if not isinstance(node, Dir):
                raise SyscallError(Code.NOT_DIRECTORY, f"{path} is no folder")
            found = [(name, one.stat()) for name, one in node.entries(self._process.caller)]
            outcome.append(f"{len(found)} entries")
        return found

    async def read_file(self, path: str) -> bytes:
        """Open, read to the end and close."""
        fd = await self.open(path, os.O_RDONLY)
        try:
            return await self.read_all(fd)
        finally:
            self.close_now(fd)
