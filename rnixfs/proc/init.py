"""Init: starts what `init.yaml` names, takes it all back when something required fails, and says why.

It runs in the kernel, since process 0 is nobody's child: what it starts are top-level processes.
"""

import logging
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from rnixfs import limits
from rnixfs.device import json_line
from rnixfs.errors import Code, SyscallError
from rnixfs.initfile import InitPlan, InitUnit
from rnixfs.proc.groups import wake_tree
from rnixfs.proc.process import Process
from rnixfs.proc.signals import Signal
from rnixfs.proc.supervision import ChildSpec, stop_seconds
from rnixfs.types import Caller

if TYPE_CHECKING:
    from rnixfs.kernel import Kernel

log = logging.getLogger(__name__)

IDLE, STARTING, UP, FAILED = "idle", "starting", "up", "failed"
"""The states of init."""


class Unit:
    """One unit of the plan as it stands now.

    Args:
        plan: what it is to be.
    """

    def __init__(self, plan: InitUnit) -> None:
        self.plan = plan
        self.process: Process | None = None
        self.reason = ""
        self.taken_back = False

    @property
    def state(self) -> str:
        """Where it stands: waiting, running, suspended, ended, failed, or stopped for another's failure."""
        if self.taken_back:
            return "rolled back"
        if self.reason:
            return "failed"
        if self.process is None:
            return "waiting"
        if self.process.suspended:
            return "suspended"
        return "running" if self.process.live else "ended"

    def row(self) -> dict[str, Any]:
        """What `sys/init` shows of it."""
        return {
            "name": self.plan.name,
            "kind": self.plan.kind,
            "required": self.plan.required,
            "pid": self.process.pid if self.process is not None else 0,
            "state": self.state,
            "reason": self.reason,
            "at": self.plan.at,
        }


class Init:
    """What a daemon starts by itself.

    Args:
        kernel: makes the processes.

    Attributes:
        load: reads the plan; whoever builds the system sets it.
    """

    def __init__(self, kernel: "Kernel") -> None:
        self.load: Callable[[], InitPlan] = InitPlan
        self._kernel = kernel
        self._plan = InitPlan()
        self._units: dict[str, Unit] = {}
        self._state = IDLE
        self._reason = ""
        self._changed_ns = time.time_ns()

    # --- files ---

    def document(self) -> bytes:
        """The content of `sys/init`."""
        return json_line(
            {
                "state": self._state,
                "reason": self._reason,
                "files": self._plan.files,
                "warnings": self._plan.warnings,
                "units": [unit.row() for unit in self._units.values()],
            }
        )

    def changed(self) -> int:
        """When that changed last, nanoseconds since 1970."""
        processes = (unit.process for unit in self._units.values())
        return max([self._changed_ns, *(one.changed_ns for one in processes if one is not None)])

    def _set(self, state: str, reason: str = "") -> None:
        self._state, self._reason = state, reason
        self._changed_ns = time.time_ns()

    # --- starting ---

    async def run(self) -> None:
        """Start what is to run; failures are told in the log and in `sys/init`."""
        try:
            await self.bring_up()
        except SyscallError as error:
            log.error("init: %s", error.reason)

    async def bring_up(self) -> None:
        """Start the units that do not run, in order; all that this started is stopped when one fails that
        is required.

        Raises:
            SyscallError: SERVICE_UNAVAILABLE while it is already at it; INVALID for files that cannot be
                taken and for a required unit that failed.
        """
        if self._state == STARTING:
            raise SyscallError(Code.SERVICE_UNAVAILABLE, "init is starting already; look at /sys/init")
        self._set(STARTING)
        failure = "it was interrupted"
        try:
            await self._start_units()
            failure = ""
        except SyscallError as error:
            failure = error.reason
            raise
        finally:
            self._set(FAILED if failure else UP, failure)

    async def _start_units(self) -> None:
        self._plan = self.load()
        for warning in self._plan.warnings:
            log.warning("init: %s", warning)
        self._units = {plan.name: self._unit(plan) for plan in self._plan.units}
        started: list[Unit] = []
        for unit in self._units.values():
            if unit.state == "running":
                continue
            started.append(unit)
            unit.reason = await self._bring_up(unit)
            self._changed_ns = time.time_ns()
            if unit.reason and unit.plan.required:
                await self._take_back(started)
                raise SyscallError(Code.INVALID, self._told(unit, "is required; what was started is stopped"))
            if unit.reason:
                log.warning("init: %s", self._told(unit, "is not required; the others go on"))

    def _unit(self, plan: InitUnit) -> Unit:
        """The unit of a plan; one that runs is kept as it is."""
        known = self._units.get(plan.name)
        return known if known is not None and known.state == "running" else Unit(plan)

    @staticmethod
    def _told(unit: Unit, so: str) -> str:
        return f"{unit.plan.at}: the {unit.plan.kind} {unit.plan.name!r} {unit.reason}; it {so}"

    async def _bring_up(self, unit: Unit) -> str:
        """Start a unit; returns what went wrong."""
        try:
            process = self._again(unit) or self._kernel.spawn(
                unit.plan.request, Caller(os.getuid(), os.getgid())
            )
        except SyscallError as error:
            return f"could not be started: {error.reason}"
        unit.process = process
        log.info("init: started the %s %r as process %d", unit.plan.kind, unit.plan.name, process.pid)
        if process.board is not None:
            await process.board.started.wait()
        with trio.move_on_after(limits.INIT_CHECK_SECONDS):
            await process.done.wait()
        end = process.exit
        return f"ended at once with code {end.code}: {end.reason}" if end is not None and end.code else ""

    def _again(self, unit: Unit) -> Process | None:
        """The process of a unit that ran when the system stopped, woken; None without one.

        One that somebody suspended stays as it is: a restart is no reason to go against that.
        """
        for process in self._kernel.live():
            if process.parent is None and process.suspended and process.launch.request == unit.plan.request:
                if process.stopped_with_system:
                    wake_tree(self._kernel, process, Caller(os.getuid(), os.getgid()))
                return process
        return None

    async def _take_back(self, started: list[Unit]) -> None:
        """Stop units, the last one first."""
        for unit in reversed(started):
            if unit.process is None or not unit.process.live:
                continue
            unit.taken_back = True
            self._kernel.deliver(unit.process, Signal.TERM)
            with trio.move_on_after(_stop_seconds(unit.plan)):
                await unit.process.done.wait()
            self._kernel.deliver(unit.process, Signal.KILL)


def _stop_seconds(plan: InitUnit) -> float:
    return stop_seconds(ChildSpec(plan.name, supervisor=plan.request.supervisor))
