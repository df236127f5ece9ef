"""A supervisor whose system was stopped, wherever that was, goes on with what it had begun."""

import contextlib
from collections.abc import AsyncIterator

import pytest
import trio

from rnixfs.proc.groups import wake_tree
from rnixfs.proc.process import Process
from rnixfs.proc.remake import remake
from rnixfs.proc.signals import Signal
from rnixfs.restore import restore
from rnixfs.state.store import Record
from tests.supervision.supervisorlab import HOUR, PERSON, Diary, Lab


def every(diary: Diary) -> list[Record]:
    """All events of a log, in order."""
    pids = (0, *diary.unfinished(), *(entry.pid for entry in diary.finished()))
    return sorted((record for pid in pids for record in diary.load(pid)), key=lambda record: record.seq)


async def story(strategy: str) -> list[Record]:
    """The log of a supervisor with four children: they crash, end, are stopped and started by hand, and are
    removed by hand; and in the end it is told to end."""
    lab = Lab()
    async with trio.open_nursery() as nursery:
        await nursery.start(lab.kernel.run)
        sup = await lab.supervisor("a", "b", "c:transient", "d:temporary", strategy=strategy, max_restarts=5)
        ctl = f"/proc/{sup.pid}/ctl"
        await lab.end("a")
        await lab.end("c", code=0)
        lab.do(ctl, "stop b")
        await lab.settle()
        lab.do(ctl, "start b")
        await lab.settle()
        lab.kernel.remove(lab.named("b"), PERSON)
        await lab.settle()
        lab.do(ctl, "restart a")
        await lab.settle()
        alone = strategy == "one_for_one"
        assert lab.states(sup) == {
            "a": "running",
            "b": "running",
            "c": "done",
            "d": "running" if alone else "failed",
        }
        lab.kernel.deliver(sup, Signal.TERM)
        await sup.done.wait()
        nursery.cancel_scope.cancel()
    return every(lab.diary)


def so_far(events: list[Record]) -> Diary:
    """A log of these events."""
    diary = Diary()
    for record in events:
        diary.append_event(record.event, record.pid, record.data)
    return diary


def check(lab: Lab, sup: Process, where: str) -> None:
    """One incarnation of each child that runs, none of the others, and no more than the board knows."""
    assert sup.board is not None
    living = [one for one in lab.kernel.live() if one is not sup]
    rows = {row["name"]: row for row in sup.board.rows()}
    running = {name: row["pid"] for name, row in rows.items() if row["state"] == "running"}
    assert {one.launch.intent: one.pid for one in living} == running, where
    assert len(living) == len(running), where
    for name, row in rows.items():
        spawned = [pid for pid, intent in lab.diary.names.items() if intent == name]
        assert len(spawned) == row["restarts"] + (row["pid"] > 0), where
        assert row["state"] in ("running", "done", "stopped", "failed"), where
        assert row["state"] != "failed" or name == "d", where
    assert not sup.untold, where


@contextlib.asynccontextmanager
async def after(events: list[Record]) -> AsyncIterator[Lab]:
    """A system over a log, in which all that can be woken was, and had time for whatever it does."""
    lab = Lab(so_far(events))
    assert restore(lab.kernel).lost == 0
    async with trio.open_nursery() as nursery:
        await nursery.start(lab.kernel.run)
        sup = lab.kernel.processes.get(1)
        if sup is not None and sup.live:
            wake_tree(lab.kernel, sup, PERSON)
            await lab.settle()
            # As long as a child may take to stop.
            await trio.sleep(HOUR)
        yield lab
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
async def test_stopped_after_any_event_it_goes_on(autojump_clock, strategy):
    """Whoever is to run, runs once; nobody runs that is not; and what was told to end ends."""
    events = await story(strategy)
    begun = next(place for place, record in enumerate(events) if record.pid == 1)
    told = next(place for place, record in enumerate(events) if record.data.get("do") == "leave")
    assert told - begun > 30
    for cut in range(begun + 1, len(events) + 1):
        where = f"cut after {cut}: {events[cut - 1]}"
        async with after(events[:cut]) as lab:
            sup = lab.kernel.history.by_pid(1)
            assert sup is not None, where
            if cut <= told:
                assert sup.live, where
                check(lab, sup, where)
            else:
                assert sup.exit is not None, where
                assert lab.kernel.live() == [], where


@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
async def test_what_was_decided_is_done_wherever_it_was_interrupted(autojump_clock, strategy):
    """To its end, and once: each child has been started as often as if nobody had stopped the system."""
    events = await story(strategy)
    places = {
        what: [n for n, one in enumerate(events) if one.data.get("do") == what]
        for what in ("decide", "settled")
    }
    assert len(places["decide"]) == len(places["settled"]) + 1 == 3, "the end of c is decided on, too"
    for settled in places["settled"]:
        decided = max(place for place in places["decide"] if place < settled)
        expected = rows(so_far(events[: settled + 1]))
        for cut in range(decided + 1, settled + 2):
            async with after(events[:cut]) as lab:
                assert rows(lab.diary) == expected, f"cut after {cut}: {events[cut - 1]}"


def rows(diary: Diary) -> dict[str, tuple[str, int]]:
    """State and restarts of each child as a log has them."""
    sup, _ = remake(Lab(diary).kernel, 1)
    assert sup.board is not None
    return {row["name"]: (row["state"], row["restarts"]) for row in sup.board.rows()}
