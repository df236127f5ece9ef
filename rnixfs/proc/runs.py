"""Running the programs of processes: from the start, or the waking, to the end or the next suspension."""

import logging
from typing import TYPE_CHECKING

import trio

from rnixfs import limits
from rnixfs.errors import LogError, SyscallError
from rnixfs.proc.process import Process
from rnixfs.proc.state import Event, Exit, ExitCode, State, advance
from rnixfs.state.store import Keep
from rnixfs.syscalls import Syscalls

if TYPE_CHECKING:
    from rnixfs.kernel import Kernel

log = logging.getLogger(__name__)

_STARTING = (State.CREATED, State.RUNNING)  # created, while its MCP servers are mounted


class Runs:
    """What runs.

    Args:
        kernel: has the processes, and ends them.
    """

    def __init__(self, kernel: "Kernel") -> None:
        self._kernel = kernel

    def begin(self, process: Process) -> None:
        """Let a process run that is new in the table, or was woken."""
        run = process.run
        self._kernel.start(lambda: self._run(process, run))

    async def _run(self, process: Process, run: int) -> None:
        # The run before may still be unwinding; and meanwhile a later one may have been called for.
        await process.parked.wait()
        if process.run != run:
            return
        if not process.servers:
            self._start(process)
        if process.state not in _STARTING:
            return
        process.parked = trio.Event()
        process.touch()
        if process.budget.timeout_ms:
            self._kernel.start(lambda: self._watch_time(process, run))
        try:
            await self._one_run(process, run)
        finally:
            process.parked.set()

    async def _one_run(self, process: Process, run: int) -> None:
        exit_ = Exit(ExitCode.ERROR, "the system stopped")
        try:
            with process.scope:
                exit_ = await self._kernel.servers.up(process) or await self._program(process)
            if process.scope.cancelled_caught:
                exit_ = Exit(ExitCode.ERROR, process.ending)
        except trio.Cancelled:
            # The system stops: whatever is not in the log by now, goes on with the next one.
            raise
        except Exception as error:
            exit_ = self._failed(process, error)
        if process.state in _STARTING and process.run == run:
            self._kernel.finish(process, exit_)

    @staticmethod
    def _start(process: Process) -> None:
        if process.state is State.CREATED:
            process.state = advance(process.state, Event.START)
            process.touch()

    async def _program(self, process: Process) -> Exit:
        exit_: Exit | None = None
        self._start(process)
        async with trio.open_nursery() as nursery:
            process.threads.open(nursery)
            try:
                exit_ = await process.launch.program(Syscalls(self._kernel, process))
            except Exception as error:
                unwritten = _log_error(error)
                if unwritten is not None and process.state is State.RUNNING and not process.ending:
                    self._kernel.set_aside(
                        process, f"the log cannot be written: {unwritten.reason}", Keep.VITAL
                    )
                exit_ = self._failed(process, error)
            finally:
                process.threads.close()
                if process.threads.busy() and process.live and not process.suspended:
                    how = exit_ or Exit(ExitCode.ERROR, process.ending or "its program was cancelled")
                    process.ending = process.ending or how.reason  # it is over, and cannot be suspended
                    self._kernel.start(lambda: self._end_threads(process, how))
        return exit_

    async def _end_threads(self, process: Process, exit_: Exit) -> None:
        # A thread that no cancellation reaches must not keep the process from ending.
        with trio.move_on_after(limits.TERM_GRACE_SECONDS):
            await process.done.wait()
        self._kernel.finish(process, exit_)

    async def _watch_time(self, process: Process, run: int) -> None:
        """End a process when its time of running is over; pauses do not count."""
        while process.live and process.run == run and (left := process.time_left()) > 0:
            with trio.move_on_after(left):
                await process.done.wait()
            if process.paused:
                await process.resumed.wait()
            if process.suspended:
                return
        limit = process.budget.timeout_ms
        if process.run == run:
            self._kernel.terminate(process, f"timeout: it ran for longer than {limit} ms")

    @staticmethod
    def _failed(process: Process, error: Exception) -> Exit:
        if process.suspended:
            return Exit(ExitCode.ERROR, process.suspended)  # it does not end by this
        if isinstance(error, SyscallError):
            return Exit(ExitCode.ERROR, str(error))
        log.error("the program of process %d failed inside", process.pid, exc_info=error)
        return Exit(ExitCode.ERROR, f"{type(error).__name__} inside its program; the daemon's log has it")


def _log_error(error: BaseException) -> LogError | None:
    """The failure of the log that an exception is or holds."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(_log_error, error.exceptions)), None)
    return error if isinstance(error, LogError) else None
