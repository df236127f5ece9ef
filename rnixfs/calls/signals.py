"""System calls on signals."""

from collections.abc import Callable

import trio

from rnixfs.calls.base import Calls
from rnixfs.errors import Code, SyscallError
from rnixfs.proc.signals import Signal


class SignalCalls(Calls):
    """Signal, SigHandle, SigBlock, SigUnblock."""

    async def signal(self, pid: int, signal: Signal) -> None:
        """Send a signal to itself or a descendant that lives.

        Raises:
            SyscallError: NOT_FOUND also for one that has ended, PERMISSION.
        """
        await trio.lowlevel.checkpoint()
        with self._call("Signal", pid=pid, signal=str(signal)):
            process = self._kernel.process(pid)
            if not process.live:
                raise SyscallError(Code.NOT_FOUND, f"process {pid} has ended")
            self._kernel.signal(process, signal, self._process.caller)

    def on_signal(self, signal: Signal, handler: Callable[[Signal], None] | None) -> None:
        """Handle a signal itself, or, with None, no longer.

        Raises:
            SyscallError: INVALID for KILL.
        """
        with self._call("SigHandle", signal=str(signal)):
            self._process.signals.handle(signal, handler is not None)
            self._process.touch()
            if handler is not None:
                self._process.handlers[signal] = handler

    def block(self, signal: Signal) -> None:
        """Keep a signal waiting.

        Raises:
            SyscallError: INVALID for KILL.
        """
        with self._call("SigBlock", signal=str(signal)):
            self._process.signals.refuse_kill(signal, "blocked")
            self._kernel.happen(self._process, "block", {"signal": str(signal)})

    def unblock(self, signal: Signal) -> None:
        """Let a signal through again; one that waited arrives now."""
        with self._call("SigUnblock", signal=str(signal)):
            waiting = signal in self._process.signals.pending
            self._kernel.happen(self._process, "unblock", {"signal": str(signal)})
            if waiting:
                self._kernel.deliver(self._process, signal)
