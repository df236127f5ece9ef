"""Opens that programs of the host make for an agent: traced like the agent's own system calls."""

import os
from typing import Any

import trio

from rnixfs.errors import Code, SyscallError
from rnixfs.node import File
from rnixfs.proc.process import Process
from rnixfs.traceline import TraceRecord
from rnixfs.types import Caller, Ready

_MODES = {os.O_RDONLY: "O_RDONLY", os.O_WRONLY: "O_WRONLY", os.O_RDWR: "O_RDWR"}
_FLAGS = {"O_APPEND": os.O_APPEND, "O_CREAT": os.O_CREAT, "O_NONBLOCK": os.O_NONBLOCK, "O_TRUNC": os.O_TRUNC}


def flag_names(flags: int) -> str:
    """The flags of an open as strace shows them."""
    names = [_MODES.get(flags & os.O_ACCMODE, "O_ACCMODE")]
    return "|".join(names + [name for name, bit in _FLAGS.items() if flags & bit])


class Traced(File):
    """A file whose reads, writes and close go to a process's trace.

    A call that has to wait is tried again when the file may be ready; its time counts from the first wait.
    """

    def __init__(self, file: File, process: Process, caller: Caller, path: str) -> None:
        self.file = file
        self.process = process
        self.caller = caller
        self.path = path
        self.pulse = file.pulse
        self.direct = file.direct
        self._since: dict[str, float] = {}

    @staticmethod
    def note(
        process: Process,
        caller: Caller,
        syscall: str,
        args: dict[str, Any],
        *,
        result: str = "",
        error: SyscallError | None = None,
        since: float | None = None,
    ) -> None:
        """Record one call that a program of the host made."""
        now = trio.current_time()
        since = now if since is None else since
        process.record(
            TraceRecord(
                ts_ms=round((since - process.born) * 1000, 3),
                pid=process.pid,
                syscall=syscall,
                args=args,
                result=result,
                error=f"{error.code} ({error.reason})" if error is not None else "",
                duration_ms=round((now - since) * 1000, 3),
                origin="mount",
                host_pid=caller.host_pid,
            )
        )

    def _note(self, syscall: str, count: int, error: SyscallError | None = None) -> None:
        self.note(
            self.process,
            self.caller,
            syscall,
            {"path": self.path},
            result="" if error is not None else str(count),
            error=error,
            since=self._since.pop(syscall, None),
        )

    def read(self, size: int, offset: int) -> bytes:
        try:
            data = self.file.read(size, offset)
        except SyscallError as error:
            self._note("Read", -1, error)
            raise
        self._note("Read", len(data))
        return data

    def write(self, data: bytes, offset: int) -> int:
        try:
            count = self.file.write(data, offset)
        except SyscallError as error:
            self._note("Write", -1, error)
            raise
        self._note("Write", count)
        return count

    def truncate(self, size: int) -> None:
        self.file.truncate(size)

    def poll(self) -> Ready:
        return self.file.poll()

    async def wait(self, want: Ready) -> None:
        syscall = "Read" if Ready.READ in want else "Write"
        self._since.setdefault(syscall, trio.current_time())
        try:
            await self.file.wait(want)
        except trio.Cancelled:
            self._note(syscall, -1, SyscallError(Code.INTERRUPTED, "the program did not wait for it"))
            raise

    def close(self) -> None:
        self.file.close()
        self._note("Close", 0)
