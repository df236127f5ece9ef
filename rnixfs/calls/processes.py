"""System calls on processes."""

from typing import Any

import trio

from rnixfs.calls.base import Calls
from rnixfs.errors import denied
from rnixfs.proc.process import Process
from rnixfs.proc.request import SpawnRequest
from rnixfs.proc.signals import Signal
from rnixfs.proc.state import ChildEnd, Exit
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
            self._collect(child)
            assert child.exit is not None
            outcome.append(f"exited({child.exit.code})")
        return child.exit, child.result

    @property
    def uncollected(self) -> list[int]:
        """The pids of its children, running and ended, whose end the program has not heard of."""
        return sorted({*self._process.children, *self._process.untold})

    def ended_children(self, *, heard: bool = True) -> list[ChildEnd]:
        """The ends that nobody waited for, in their order, each once.

        One that somebody else has reaped is among them: its parent is to hear of it all the same.

        Args:
            heard: whether the program has heard of them by this, so that those children are reaped; else it
                says so later, when that is in the log.
        """
        return [self._take(child, heard) for child in list(self._process.untold.values())]

    def _take(self, child: Process, heard: bool) -> ChildEnd:
        assert child.exit is not None
        if heard:
            with self._call("Reap", pid=child.pid) as outcome:
                self._collect(child)
                outcome.append(f"exited({child.exit.code})")
        return ChildEnd(child.pid, child.exit, child.result)

    def getpid(self) -> int:
        """Its own pid."""
        with self._call("GetPID") as outcome:
            outcome.append(f"PID({self.pid})")
        return self.pid

    async def kill(self, pid: int, signal: Signal) -> None:
        """Send a signal to itself or a descendant; nothing happens to one that has ended.

        Raises:
            SyscallError: NOT_FOUND, PERMISSION.
        """
        await trio.lowlevel.checkpoint()
        with self._call("Kill", pid=pid, signal=str(signal)):
            process = self._kernel.process(pid)
            self._kernel.check_power(process, self._process.caller)
            self._kernel.deliver(process, signal)

    async def ps(self) -> list[dict[str, Any]]:
        """The status of itself and its descendants."""
        await trio.lowlevel.checkpoint()
        with self._call("PS") as outcome:
            rows = [one.status() for one in self._kernel.processes.values() if one.descends_from(self.pid)]
            outcome.append(f"{len(rows)} processes")
        return rows
