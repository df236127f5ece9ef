"""System calls on supervisors and on the system as a whole."""

import math
from collections.abc import Callable, Collection, Iterable
from typing import Any

import trio

from rnixfs.calls.base import Calls
from rnixfs.errors import Code, SyscallError, denied, invalid
from rnixfs.proc.board import Board, Verb
from rnixfs.proc.groups import suspend_tree, wake_tree
from rnixfs.proc.process import Process
from rnixfs.proc.request import SpawnRequest
from rnixfs.proc.state import ChildEnd, Exit
from rnixfs.proc.supervision import SupervisorSpec, check

CONTROL = "/sys/ctl"
"""The right to command the system: only somebody who grants this path gives it to a process."""


def _never() -> bool:
    return False


class SupervisorCalls(Calls):
    """SpawnSupervisor StartChild StopChild RestartChild ListChildren Bootstrap Reap Suspend Resume Shutdown,
    and WaitAny."""

    # --- what a supervisor's own program needs ---

    @property
    def board(self) -> Board:
        """The board of a process that is a supervisor.

        Raises:
            SyscallError: INVALID for any other process.
        """
        return _board(self._process)

    @property
    def paused(self) -> bool:
        """Whether it is to do nothing for now."""
        return self._process.paused

    async def wait_any(
        self,
        pids: Collection[int] | None = None,
        *,
        until: Callable[[], bool] = _never,
        seconds: float = math.inf,
        heard: bool = True,
    ) -> ChildEnd | None:
        """Wait for the first of some children to end, and reap it unless `heard` is false.

        Args:
            pids: the children; one that somebody else has reaped counts as ended. None for any child.
            until: gives up waiting when this is true; asked after each signal, end of a child and order.
            seconds: gives up waiting after this time.
            heard: whether the program has heard of the end by this, so that the child is reaped; else it
                says so later, when that is in the log.

        Returns:
            How it ended, or None where the waiting was given up.

        Raises:
            SyscallError: NOT_FOUND for a pid that there is not, or where there is nothing to wait for;
                PERMISSION for a process that is no child.
        """
        await trio.lowlevel.checkpoint()
        shown = "any" if pids is None else sorted(pids)
        with self._call("WaitAny", pids=shown) as outcome:
            look = self._looking(pids, until)
            with trio.move_on_after(seconds):
                while (ended := look()) is None and not until():
                    await self._process.news.wait()
            ended = look()
            if ended is None:
                outcome.append("none")
                return None
            if heard:
                self._collect(ended)
            assert ended.exit is not None
            outcome.append(f"PID({ended.pid}) exited({ended.exit.code})")
        return ChildEnd(ended.pid, ended.exit, ended.result)

    def collect(self, pid: int) -> None:
        """Reap a child of whose end the program has told the log; nothing happens where that was done."""
        child = self._process.children.get(pid) or self._process.untold.get(pid)
        if child is not None:
            self._collect(child)

    def _looking(
        self, pids: Collection[int] | None, until: Callable[[], bool]
    ) -> Callable[[], Process | None]:
        """A look at some children: gives one that has ended."""
        if not (pids or self._process.children or until is not _never):
            raise SyscallError(Code.NOT_FOUND, f"process {self.pid} has no children to wait for")
        named = None if pids is None else [self._own_child(pid) for pid in sorted(pids)]

        def look() -> Process | None:
            children: Iterable[Process] = self._process.children.values() if named is None else named
            return next((child for child in children if not child.live), None)

        return look

    def _own_child(self, pid: int) -> Process:
        mine = self._process.children.get(pid) or self._process.untold.get(pid)
        # Or removed from the table before we could look at it.
        found = mine if mine is not None else self._kernel.history.by_pid(pid)
        if found is None:
            raise SyscallError(Code.NOT_FOUND, f"no process {pid}")
        if found.parent is not self._process:
            raise denied(f"process {pid} is no child of process {self.pid}")
        return found

    # --- supervisors ---

    async def spawn_supervisor(self, spec: SupervisorSpec) -> int:
        """Make a child that is a supervisor; returns its pid.

        Raises:
            SyscallError: what of the spec cannot be done; PERMISSION where `/proc/spawn` is not among what
                the process may use.
        """
        await trio.lowlevel.checkpoint()
        with self._call("SpawnSupervisor", name=spec.name, children=len(spec.children)) as outcome:
            self._process.view.check("/proc/spawn")
            check(spec)
            child = self._kernel.spawn(SpawnRequest(supervisor=spec), self._process.caller)
            outcome.append(f"PID({child.pid})")
        return child.pid

    async def start_child(self, pid: int, name: str) -> int:
        """Let a supervisor start a child, unless it runs; returns the child's pid.

        Raises:
            SyscallError: NOT_FOUND for a supervisor or child that there is not, PERMISSION unless the
                supervisor is a descendant, INVALID for a process that is no supervisor or has ended; and
                why the child cannot be started.
        """
        return await self._order("StartChild", pid, Verb.START, name)

    async def stop_child(self, pid: int, name: str) -> None:
        """Let a supervisor stop a child, which stays stopped; errors as `start_child` has them."""
        await self._order("StopChild", pid, Verb.STOP, name)

    async def restart_child(self, pid: int, name: str) -> int:
        """Let a supervisor stop a child and start it again; returns the new pid, errors as `start_child`."""
        return await self._order("RestartChild", pid, Verb.RESTART, name)

    async def _order(self, call: str, pid: int, verb: Verb, name: str) -> int:
        await trio.lowlevel.checkpoint()
        with self._call(call, pid=pid, name=name) as outcome:
            if pid == self.pid:
                raise invalid("a supervisor cannot wait for itself; its owner gives it orders")
            child = await _board(self._subject(pid)).order(verb, name).outcome()
            outcome.append(f"PID({child})")
        return child

    async def list_children(self, pid: int) -> list[dict[str, Any]]:
        """The children of a supervisor: name, pid, state, restarts, and how the latest one ended.

        Raises:
            SyscallError: NOT_FOUND, PERMISSION unless it is the process itself or a descendant, INVALID for
                a process that is no supervisor.
        """
        await trio.lowlevel.checkpoint()
        with self._call("ListChildren", pid=pid) as outcome:
            rows = _board(self._subject(pid)).rows()
            outcome.append(f"{len(rows)} children")
        return rows

    def _subject(self, pid: int) -> Process:
        """A process that this one has power over."""
        process = self._kernel.process(pid)
        self._kernel.check_power(process, self._process.caller)
        return process

    # --- processes and the system ---

    async def reap(self, pid: int) -> Exit:
        """Release a child that has ended, without waiting; returns how it ended.

        Raises:
            SyscallError: NOT_FOUND, PERMISSION for a process that is no child, SERVICE_UNAVAILABLE for one
                that has not ended.
        """
        await trio.lowlevel.checkpoint()
        with self._call("Reap", pid=pid) as outcome:
            child = self._own_child(pid)
            if child.exit is None:
                raise SyscallError(Code.SERVICE_UNAVAILABLE, f"process {pid} has not ended; wait for it")
            self._collect(child)
            outcome.append(f"exited({child.exit.code})")
        return child.exit

    async def suspend(self, pid: int) -> int:
        """Let a process and its descendants do nothing until they are woken; returns how many they are.

        Raises:
            SyscallError: NOT_FOUND, PERMISSION unless it is the process itself or a descendant, INVALID for
                one that has ended.
        """
        await trio.lowlevel.checkpoint()
        with self._call("Suspend", pid=pid) as outcome:
            why = f"process {self.pid} suspended it"
            count = suspend_tree(self._kernel, self._kernel.process(pid), why, self._process.caller)
            outcome.append(f"{count} processes")
        return count

    async def resume(self, pid: int) -> int:
        """Let a process and its descendants go on; the counterpart of `suspend`, with its errors."""
        await trio.lowlevel.checkpoint()
        with self._call("Resume", pid=pid) as outcome:
            count = wake_tree(self._kernel, self._kernel.process(pid), self._process.caller)
            outcome.append(f"{count} processes")
        return count

    async def bootstrap(self) -> None:
        """Start what `init.yaml` names and does not run; returns when it is up, or was rolled back.

        Raises:
            SyscallError: PERMISSION unless somebody granted `/sys/ctl`, SERVICE_UNAVAILABLE while it is
                already at it, and INVALID with what is wrong or could not be started.
        """
        await trio.lowlevel.checkpoint()
        with self._call("Bootstrap"):
            self._process.view.check(CONTROL)
            await self._kernel.init.bring_up()

    async def shutdown(self) -> None:
        """Ask the system to stop.

        Raises:
            SyscallError: PERMISSION unless somebody granted `/sys/ctl`.
        """
        await trio.lowlevel.checkpoint()
        with self._call("Shutdown"):
            self._process.view.check(CONTROL)
            self._kernel.shut_down()


def _board(process: Process) -> Board:
    if process.board is None:
        raise invalid(f"process {process.pid} is no supervisor")
    return process.board
