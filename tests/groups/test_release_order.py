"""The end of a process: its parts are released in one order, each once, whoever ends it."""

import os
from typing import Any

import pytest
import trio

from rnixfs import limits
from rnixfs.proc.process import Process
from rnixfs.proc.signals import Signal
from rnixfs.proc.state import Exit, State
from rnixfs.syscalls import Syscalls
from tests.groups.grouplab import Lab, settle
from tests.kernel.kernellab import PERSON, sleeper

STEPS = (
    "orphans",
    "cancel",
    "files",
    "trace",
    "log",
    "messages",
    "groups",
    "signals",
    "threads",
    "mounts",
    "kept",
    "wait",
    "dead",
    "removed",
)
"""The order, with the task of the program before all, but for one that is killed."""


class Spy:
    """Notes when the parts of a process are released.

    Args:
        lab: has the kernel.
        process: is going to end.
        monkeypatch: puts the notes into the parts.
    """

    def __init__(self, lab: Lab, process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[str] = []
        kernel = lab.kernel
        for owner, method, step in (
            (kernel, "_orphan", "orphans"),
            (kernel, "_close_files", "files"),
            (kernel.channels, "release", "messages"),
            (kernel.groups, "leave_all", "groups"),
            (kernel.mounts, "release", "mounts"),
            (kernel, "settle", "kept"),
            (process.trace_live, "end", "trace"),
            (process.log_live, "end", "log"),
            (process.ended_live, "end", "wait"),
            (process.signals, "clear", "signals"),
        ):
            self._wrap(monkeypatch, owner, method, step, process)
        # Slots and scopes take no patches of one object, so their classes are watched.
        self._watch_class(monkeypatch, type(process.threads), "release", process.threads, "threads")
        self._watch_class(monkeypatch, trio.CancelScope, "cancel", process.scope, "cancel")
        emit = kernel.emit

        def noting(event: str, pid: int, *more: Any):
            if pid == process.pid and event == "reap":
                self.steps.append("dead")
            return emit(event, pid, *more)

        monkeypatch.setattr(kernel, "emit", noting)
        kernel.on_removed = lambda pid: self.steps.append("removed") if pid == process.pid else None

    def _wrap(self, monkeypatch, owner: object, method: str, step: str, process: Process) -> None:
        original = getattr(owner, method)

        def noting(*args):
            if not args or args[0] in (process, process.pid):
                self.steps.append(step)
            return original(*args)

        monkeypatch.setattr(owner, method, noting)

    def _watch_class(self, monkeypatch, kind: type, method: str, mine: object, step: str) -> None:
        original = getattr(kind, method)

        def noting(one, *args, **fields):
            if one is mine:
                self.steps.append(step)
            return original(one, *args, **fields)

        monkeypatch.setattr(kind, method, noting)


@pytest.mark.parametrize("how", ["returns", "raises", "term", "kill", "timeout"])
async def test_the_parts_of_a_process_are_released_in_order(lab, autojump_clock, monkeypatch, how):
    """Each once, and the program's task has ended before, but where KILL does not wait for it."""
    gate = trio.Event()
    spy: list[Spy] = []

    async def program(sys: Syscalls) -> Exit:
        await sys.open("/proc/self/trace", os.O_RDONLY)
        await sys.join_group("team")
        sys.spawn_thread(trio.sleep_forever)
        sys.spawn_coroutine(trio.sleep)
        sys.on_signal(Signal.INT, lambda _signal: None)
        try:
            await gate.wait()
        finally:
            spy[0].steps.append("task")
        if how == "raises":
            raise ValueError("oops")
        return Exit(0, "done")

    process = lab.spawn(program, timeout_ms=1000)
    await settle()
    spy.append(Spy(lab, process, monkeypatch))
    child = lab.spawn(sleeper, parent=process.pid)
    if how in ("returns", "raises"):
        gate.set()
    if how in ("term", "kill"):
        lab.write(f"/proc/{process.pid}/ctl", f"{how}\n")
    await process.done.wait()
    await settle()
    await trio.sleep(limits.DEAD_VISIBLE_SECONDS + 1)
    steps = spy[0].steps
    if how in ("term", "kill", "timeout"):
        # What ends it from outside cancels first; the release says it again, for all other ends.
        steps.remove("cancel")
    if how == "kill":
        # KILL ends a process at once; its task unwinds after, at its next turn.
        assert steps.index("task") > steps.index("dead")
    else:
        assert steps[0] == "task"
    steps.remove("task")
    assert tuple(steps) == STEPS
    assert child.ppid == 0
    assert child.live
    assert process.state is State.DEAD
    assert process.pid not in lab.kernel.processes
    assert process.uuid in lab.kernel.history.uuids()


@pytest.mark.parametrize("first", ["wait", "rmdir", "parent"])
async def test_a_process_is_reaped_once_whoever_comes_first(lab, autojump_clock, first):
    """The one who waits for it, the one who removes it, or the end of its parent."""
    parent, sys = await lab.puppet()
    child, _ = await lab.puppet(parent=parent.pid)
    sys.spawn_thread(lambda: sys.wait(child.pid))
    await settle()
    reaps: list[int] = []
    emit = lab.kernel.emit

    def noting(event: str, pid: int, *more: Any):
        if event == "reap":
            reaps.append(pid)
        return emit(event, pid, *more)

    lab.kernel.emit = noting
    if first == "wait":
        lab.kernel.signal(child, Signal.KILL, PERSON)
    if first == "rmdir":
        lab.folder("/proc").rmdir(str(child.pid), PERSON)
    if first == "parent":
        lab.kernel.signal(child, Signal.KILL, PERSON)
        lab.kernel.signal(parent, Signal.KILL, PERSON)
    await settle()
    lab.kernel.deliver(parent, Signal.KILL)
    await settle()
    assert reaps == [child.pid, parent.pid]
    assert child.state is State.DEAD
