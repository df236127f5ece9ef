"""System calls on processes."""

from typing import Any

import trio

from rnixfs.calls.base import Calls
from rnixfs.errors import denied
from rnixfs.proc.request import SpawnRequest
from rnixfs.proc.signals import Signal
from rnixfs.proc.state import Exit
from rnixfs.traceline import clip


class ProcessCalls(Calls):
    """Spawn, Kill, Wait, PS."""

    async def spawn(self, request: SpawnRequest) -> int:
        """Make a child; returns its pid.

        Raises:
            SyscallError: PERMISSION where `/proc/spawn` is not among what it may use.
        """
        await trio.lowlevel.checkpoint()
        with self._call("Spawn", intent=clip(request.intent), agent=request.agent) as outcome:
            self._process.view.check("/proc/spawn")
            child = self._kernel.spawn(request, self._process.caller)
            outcome.append(f"PID({child.pid})")
        return child.pid

    async def wait(self, pid: int) -> tuple[Exit, str]:
        """Wait for a child to end, and reap it; returns how it ended and its result.

        Raises:
            SyscallError: NOT_FOUND, PERMISSION for a process that is no child.
        """
        await trio.lowlevel.checkpoint()
        with self._call("Wait", pid=pid) as outcome:
            child = self._kernel.process(pid)
            if child.parent is not self._process:
                raise denied(f"process {pid} is no child of process {self.pid}")
            await child.done.wait()
            self._kernel.reap(child)
            assert child.exit is not None
            outcome.append(f"exited({child.exit.code})")
        return child.exit, child.result

    async def kill(self, pid: int, signal: Signal) -> None:
        """Send a signal to itself or a descendant.

        Raises:
            SyscallError: NOT_FOUND, PERMISSION, INVALID.
        """
        await trio.lowlevel.checkpoint()
        with self._call("Kill", pid=pid, signal=str(signal)):
            self._kernel.signal(self._kernel.process(pid), signal, self._process.caller)

    async def ps(self) -> list[dict[str, Any]]:
        """The status of itself and its descendants."""
        await trio.lowlevel.checkpoint()
        with self._call("PS") as outcome:
            rows = [one.status() for one in self._kernel.processes.values() if one.descends_from(self.pid)]
            outcome.append(f"{len(rows)} processes")
        return rows
