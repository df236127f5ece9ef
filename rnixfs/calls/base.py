"""What all system calls share: whose they are, and that each is traced."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import trio

from rnixfs import vfs
from rnixfs.errors import Code, SyscallError
from rnixfs.node import Node
from rnixfs.proc.process import Launch, Process
from rnixfs.traceline import TraceRecord

if TYPE_CHECKING:
    from rnixfs.kernel import Kernel


class Calls:
    """The base of each group of system calls of one process.

    Args:
        kernel: does what is asked.
        process: asks.
    """

    def __init__(self, kernel: "Kernel", process: Process) -> None:
        self._kernel = kernel
        self._process = process

    @property
    def launch(self) -> Launch:
        """What it was started with."""
        return self._process.launch

    @property
    def pid(self) -> int:
        """Its pid."""
        return self._process.pid

    def may_use(self, path: str) -> bool:
        """Whether a path is among what the process may use (CapCheck)."""
        return self._process.view.sees(path)

    @contextlib.contextmanager
    def _call(self, syscall: str, **args: Any) -> Iterator[list[str]]:
        """Trace what happens inside; the block leaves the result's text in the list."""
        process, started = self._process, trio.current_time()
        if not process.live:
            # Killed, and its program has not unwound yet: nothing that it does may follow its exit.
            raise SyscallError(Code.INTERRUPTED, "the process has ended", syscall=syscall, pid=process.pid)
        outcome: list[str] = []
        failure = ""
        try:
            yield outcome
        except SyscallError as error:
            error.at(syscall=syscall, device=str(args.get("path", "")), pid=process.pid)
            failure = f"{error.code} ({error.reason})"
            raise
        except trio.Cancelled:
            failure = f"{Code.INTERRUPTED} ({process.ending or 'cancelled'})"
            raise
        finally:
            process.record(
                TraceRecord(
                    ts_ms=round((started - process.born) * 1000, 3),
                    pid=process.pid,
                    syscall=syscall,
                    args=args,
                    result="" if failure else "".join(outcome) or "0",
                    error=failure,
                    duration_ms=round((trio.current_time() - started) * 1000, 3),
                )
            )

    def _collect(self, child: Process) -> None:
        """Reap a child for the program, which is not told of its end again."""
        self._process.untold.pop(child.pid, None)
        self._kernel.reap(child)

    def _walk(self, path: str) -> Node:
        return vfs.walk(self._process.view.root, path, self._process.caller)
