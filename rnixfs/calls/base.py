"""What all system calls share: whose they are, and that each is traced."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import trio

from rnixfs import vfs
from rnixfs.errors import Code, SyscallError
from rnixfs.node import Node
from rnixfs.proc.process import Launch, Process
from rnixfs.proc.state import State
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
        self._run = process.run

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
        self._check_mine(syscall)
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

    def _check_mine(self, syscall: str = "") -> None:
        """Raise INTERRUPTED for a program that has not unwound yet though its process ended or was suspended:
        nothing that it does may follow that, and it must not meddle with the run after it."""
        process = self._process
        if process.live and not process.suspended and process.run == self._run:
            return
        why = "the process was suspended" if process.live else "the process has ended"
        raise SyscallError(Code.INTERRUPTED, why, syscall=syscall, pid=process.pid)

    def _collect(self, child: Process) -> None:
        """Reap a child for the program, which is not told of its end again."""
        if child.state is State.DEAD and child.pid in self._process.untold:
            # Somebody else reaped it, so the log has its end among those to be heard of yet.
            self._kernel.happen(self._process, "heard", {"child": child.pid})
        self._process.forget_ends([child.pid])
        self._kernel.reap(child)

    def _walk(self, path: str) -> Node:
        return vfs.walk(self._process.view.root, path, self._process.caller)
