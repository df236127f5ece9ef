"""System calls on process groups, process trees, and signals that wait."""

import trio

from rnixfs.calls.base import Calls
from rnixfs.proc.groups import signal_tree
from rnixfs.proc.signals import Signal


class GroupCalls(Calls):
    """JoinGroup, LeaveGroup, GetProcGroup, SignalGroup, SignalTree, SigPending."""

    async def join_group(self, name: str, pid: int | None = None) -> None:
        """Put a process into a group, which is made if there is none.

        Args:
            name: the group, as below `/proc/groups`.
            pid: itself or a descendant; itself if None.

        Raises:
            SyscallError: NOT_FOUND, PERMISSION, INVALID, NAME_TOO_LONG, RESOURCE_EXHAUSTED.
        """
        await trio.lowlevel.checkpoint()
        with self._call("JoinGroup", pid=self._or_own(pid), group=name):
            process = self._kernel.process(self._or_own(pid))
            self._kernel.groups.join(process, name, self._process.caller)

    async def leave_group(self, name: str, pid: int | None = None) -> None:
        """Take a process out of a group.

        Args:
            name: the group.
            pid: itself or a descendant; itself if None.

        Raises:
            SyscallError: NOT_FOUND, PERMISSION, INVALID for one that is not in it.
        """
        await trio.lowlevel.checkpoint()
        with self._call("LeaveGroup", pid=self._or_own(pid), group=name):
            process = self._kernel.process(self._or_own(pid))
            self._kernel.groups.leave(process, name, self._process.caller)

    async def get_proc_group(self, name: str) -> list[int]:
        """The pids in a group, in the order of joining.

        Raises:
            SyscallError: NOT_FOUND, PERMISSION without the right to the group's folder.
        """
        await trio.lowlevel.checkpoint()
        with self._call("GetProcGroup", group=name) as outcome:
            self._process.view.check(f"/proc/groups/{name}")
            pids = list(self._kernel.groups.group(name).members)
            outcome.append(f"{len(pids)} processes")
        return pids

    async def signal_group(self, name: str, signal: Signal) -> int:
        """Send a signal to everybody in a group, to each once; returns to how many.

        Raises:
            SyscallError: NOT_FOUND; PERMISSION, and nobody gets it, without power over all members.
        """
        await trio.lowlevel.checkpoint()
        with self._call("SignalGroup", group=name, signal=str(signal)) as outcome:
            self._process.view.check(f"/proc/groups/{name}")
            reached = self._kernel.groups.signal(name, signal, self._process.caller)
            outcome.append(f"{reached} processes")
        return reached

    async def signal_tree(self, pid: int, signal: Signal) -> int:
        """Send a signal to a process and all its descendants, parents first; returns to how many.

        Raises:
            SyscallError: NOT_FOUND, PERMISSION, INVALID where it has ended.
        """
        await trio.lowlevel.checkpoint()
        with self._call("SignalTree", pid=pid, signal=str(signal)) as outcome:
            process = self._kernel.process(pid)
            reached = signal_tree(self._kernel, process, signal, self._process.caller)
            outcome.append(f"{reached} processes")
        return reached

    def sig_pending(self) -> frozenset[Signal]:
        """The signals that arrived while blocked and wait to be let through."""
        with self._call("SigPending") as outcome:
            waiting = frozenset(self._process.signals.pending)
            outcome.append(", ".join(str(one) for one in sorted(waiting)) or "none")
        return waiting

    def _or_own(self, pid: int | None) -> int:
        return self._process.pid if pid is None else pid
