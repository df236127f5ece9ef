"""SignalTree: a process and all its descendants, each once, parents first; and signals that wait."""

import json
import os

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from rnixfs import limits
from rnixfs.errors import Code
from rnixfs.proc.process import Process
from rnixfs.proc.signals import Signal
from rnixfs.syscalls import Syscalls
from tests.groups.grouplab import Counter, Lab, refused
from tests.kernel.kernellab import PERSON, agent, sleeper


async def family(lab: Lab) -> list[tuple[Process, Syscalls]]:
    """1 with the children 2 and 3, 4 the child of 2, and 5 beside them."""
    found = [await lab.puppet()]
    for parent in (1, 1, 2):
        found.append(await lab.puppet(parent=parent))
    return [*found, await lab.puppet()]


async def test_a_tree_gets_a_signal_parents_first_each_once(lab, autojump_clock):
    """The control file and the call do the same; who is beside the tree gets nothing."""
    counter = Counter()
    people = await family(lab)
    for _, sys in people:
        counter.watch(sys)
    lab.write("/proc/1/ctl", "tree INT\n")
    assert counter.got == [1, 2, 4, 3]
    counter.got.clear()
    assert await people[0][1].signal_tree(2, Signal.INT) == 2
    assert counter.got == [2, 4]
    assert lab.trace(people[0][0])[-1]["syscall"] == "SignalTree"


@pytest.mark.parametrize("signal", [Signal.TERM, Signal.KILL])
async def test_a_tree_ends_whole(lab, autojump_clock, signal):
    """Though the end of a parent gives its children to process 0 before they get the signal."""
    people = await family(lab)
    assert await people[0][1].signal_tree(1, signal) == 4
    for process, _ in people[:4]:
        await process.done.wait()
        assert process.exit is not None
        assert process.exit.reason in ("terminated by SIGTERM", "killed by SIGKILL")
    assert people[4][0].live


async def test_who_has_no_power_signals_no_tree(lab, autojump_clock):
    """Nobody of it gets it; one that has ended has none."""
    counter = Counter()
    people = await family(lab)
    for _, sys in people:
        counter.watch(sys)
    with refused(Code.PERMISSION, "no power over process 1"):
        await people[4][1].signal_tree(1, Signal.INT)
    with refused(Code.PERMISSION):
        lab.write("/proc/1/ctl", "tree INT\n", agent(2))
    assert counter.got == []
    lab.kernel.signal(people[4][0], Signal.KILL, PERSON)
    with refused(Code.INVALID, "process 5 has ended"):
        lab.write("/proc/5/ctl", "tree INT\n")
    with refused(Code.INVALID, "no signal ''"):
        lab.write("/proc/1/ctl", "tree\n")
    with refused(Code.NOT_FOUND):
        await people[0][1].signal_tree(99, Signal.INT)


async def test_children_that_come_while_the_signal_goes_round_get_it(lab, autojump_clock):
    """Made by a handler at any place of the tree; each gets it once, and they end the round."""
    got: list[int] = []
    people = await family(lab)

    def bear(parent: int) -> None:
        child = lab.spawn(sleeper, parent=parent)
        child.signals.handle(Signal.INT, True)
        child.handlers[Signal.INT] = lambda _signal: got.append(child.pid)

    def handler(pid: int, parent: int):
        def handle(_signal: Signal) -> None:
            got.append(pid)
            if pid in (1, 3):
                bear(parent)

        return handle

    for process, sys in people[:4]:
        sys.on_signal(Signal.INT, handler(process.pid, {1: 4, 3: 1}.get(process.pid, 0)))
    lab.write("/proc/1/ctl", "tree INT\n")
    assert got[:4] == [1, 2, 4, 3]
    assert sorted(got[4:]) == [6, 7]


async def grow(parents: list[int], start: int, signal: Signal) -> None:
    """Grow a tree, end some of it, signal a part, and count."""
    lab = Lab()
    async with trio.open_nursery() as nursery:
        await nursery.start(lab.kernel.run)
        found: list[tuple[Process, Syscalls]] = []
        counter = Counter()
        for number in parents:
            parent = found[number % len(found)][0] if found and number else None
            if parent is not None and parent.depth >= limits.SPAWN_DEPTH_MAX:
                parent = None
            found.append(await lab.puppet(parent=parent.pid if parent is not None else None))
            counter.watch(found[-1][1], Signal.PAUSE)
        root = found[start % len(found)][0]
        below = [process.pid for process, _ in found if process.descends_from(root.pid)]
        reached = await found[0][1].signal_tree(root.pid, signal) if root is found[0][0] else None
        if reached is None:
            lab.write(f"/proc/{root.pid}/ctl", f"tree {signal}")
        if signal is Signal.PAUSE:
            assert sorted(counter.got) == below
        else:
            assert sorted(process.pid for process, _ in found if not process.live) == below
        assert reached in (None, len(below))
        nursery.cancel_scope.cancel()


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=12),
    st.integers(0, 12),
    st.sampled_from([Signal.PAUSE, Signal.KILL]),
)
def test_any_tree_is_reached_whole_and_nothing_else(parents, start, signal):
    """Handled or not, wherever it is sent to."""
    trio.run(grow, parents, start, signal, clock=MockClock(autojump_threshold=0))


# --- signals that wait ---


async def test_the_signals_of_a_process_can_be_read(lab, autojump_clock):
    """What is blocked, what waits, what it handles; the file changes when they do."""
    process, sys = await lab.puppet()
    path = f"/proc/{process.pid}/signals"
    assert json.loads(lab.read(path)) == {"blocked": [], "pending": [], "handled": []}
    times = [lab.node(path).stat().mtime_ns]
    sys.block(Signal.PAUSE)
    times.append(lab.node(path).stat().mtime_ns)
    lab.write(f"/proc/{process.pid}/ctl", "block TERM\n")
    sys.on_signal(Signal.INT, lambda _signal: None)
    lab.write(f"/proc/{process.pid}/ctl", "term\nterm\n")
    assert sys.sig_pending() == {Signal.TERM}
    assert json.loads(lab.read(path)) == {
        "blocked": ["SIGTERM", "SIGPAUSE"],
        "pending": ["SIGTERM"],
        "handled": ["SIGINT"],
    }
    assert times == sorted(set(times))
    lab.kernel.signal(process, Signal.KILL, PERSON)
    assert json.loads(lab.read(path)) == {"blocked": [], "pending": [], "handled": []}
    with refused(Code.PERMISSION):
        lab.node(path).open(PERSON, os.O_RDWR)


async def test_a_signal_that_waited_reaches_a_group_member_once(lab, autojump_clock):
    """However often it was sent while blocked."""
    counter = Counter()
    _, sys = await lab.puppet()
    counter.watch(sys)
    sys.block(Signal.INT)
    await sys.join_group("team")
    for _ in range(3):
        await sys.signal_group("team", Signal.INT)
    assert counter.got == []
    sys.unblock(Signal.INT)
    assert counter.got == [sys.pid]
    assert sys.sig_pending() == frozenset()
