"""The crash harness finds what it is there to find: each law, broken on purpose, is reported."""

import contextlib
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rnixfs.errors import Code, SyscallError
from rnixfs.state.store import Record
from tests.crash.laws import EFFECTS, RESULT, check, check_log
from tests.crash.life import Ack, Acks, Place, Watch, digest
from tests.crash.points import AFTER, BEFORE, Kill, Point, Trouble, plan, plan_troubles, read_point
from tests.crash.system import HarnessError, System

# --- points ---


@pytest.mark.parametrize(
    "point",
    [
        Point(),
        Point((Kill(17, AFTER),)),
        Point((Kill(17, BEFORE), Kill(4, AFTER)), unmount=False),
        Point((Kill(9, AFTER),), Trouble("full", 8, 2)),
        Point((), Trouble("sync", 3, 1)),
    ],
    ids=str,
)
def test_a_point_is_its_text(point: Point) -> None:
    """What a failure names can be tried again."""
    assert read_point(str(point)) == point


def test_a_plan_is_its_seed() -> None:
    """The same seed makes the same points, another one others; each boundary comes on both sides."""
    points = plan(1, 250, 100)
    assert points == plan(1, 250, 100)
    assert points != plan(2, 250, 100)
    assert {point.kills[0] for point in points[:200]} == {
        Kill(number, when) for number in range(1, 101) for when in (BEFORE, AFTER)
    }
    assert 0 < sum(len(point.kills) == 2 for point in points) < 250
    assert plan_troubles(1, 9, 50) == plan_troubles(1, 9, 50)


# --- the watch before the store ---


class DiedError(Exception):
    """Where a daemon would have died."""


class Watched(Watch):
    """A watch that only says where it would kill."""

    def die_at(self, place: Kill) -> None:
        if self.kill == place:
            raise DiedError


def store_of(refuse: tuple[int, ...] = ()) -> tuple[type, list[Record]]:
    """A class like a store's that takes events, refuses some by number, and knows batches."""
    records: list[Record] = []
    asked = iter(range(1, 1000))

    class Store:
        def append_event(self, event: str, pid: int, data: dict[str, Any], keep: str = "now") -> Record:
            if next(asked) in refuse:
                raise SyscallError(Code.RESOURCE_EXHAUSTED, "full")
            records.append(Record(len(records) + 1, 1.5, event, pid, data))
            return records[-1]

        @contextlib.contextmanager
        def batch(self) -> Iterator[None]:
            yield

    return Store, records


def many(store: Any, count: int) -> None:
    """Append some events."""
    for number in range(count):
        store.append_event("step", 1, {"number": number})


@pytest.mark.parametrize(("when", "kept"), [(BEFORE, 2), (AFTER, 3)])
def test_the_daemon_dies_before_or_after_the_event(when: str, kept: int) -> None:
    """Before: the store never saw the event. After: it kept it, and the harness knows."""
    kind, records = store_of()
    watch = Watched(Acks(), Kill(3, when))
    watch.install(kind)
    store = kind()
    with pytest.raises(DiedError):
        many(store, 5)
    assert len(records) == kept
    assert list(watch.acks) == [Ack(one.seq, one.event, digest(one), False) for one in records]


def test_a_batch_is_acknowledged_at_its_end() -> None:
    """What a batch appends counts when the batch is over; of a batch that failed nothing counts."""
    kind, records = store_of(refuse=(4,))
    watch = Watched(Acks())
    watch.install(kind)
    store = kind()
    with store.batch():
        many(store, 2)
        assert len(watch.acks) == 0
    assert [ack.seq for ack in watch.acks] == [1, 2]
    with pytest.raises(SyscallError), store.batch():
        many(store, 2)
    assert len(records) == 3
    assert [ack.seq for ack in watch.acks] == [1, 2]
    many(store, 1)
    assert [ack.seq for ack in watch.acks] == [1, 2, 4]


# --- laws ---

PIDS = range(1, 7)


def good_log() -> list[Record]:
    """The log of a run of which nothing can be said."""
    events = [("boot", 0), *(("spawn", pid) for pid in PIDS), *(("exit", pid) for pid in PIDS)]
    return [Record(seq, 1.5, event, pid, {"n": seq}) for seq, (event, pid) in enumerate(events, 1)]


@pytest.fixture
def system(tmp_path: pathlib.Path) -> System:
    """A system after a run of which nothing can be said."""
    place = Place(tmp_path, tmp_path / "state")
    place.host.mkdir()
    place.effects.write_text("".join(f"{name}\n" for name in EFFECTS))
    end = {"code": 0, "reason": "done"}
    ends = {"root": {**end, "result": RESULT}, "supervisor": {**end, "result": ""}}
    acks = [Ack(record.seq, record.event, digest(record), False) for record in good_log()]
    return System(place, Point((Kill(5, AFTER),)), told={"ends": ends}, acks=acks)


def test_a_good_run_passes(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is reported where nothing is wrong."""
    monkeypatch.setattr("tests.crash.hooks.log_of", lambda _state: good_log())
    check(system)


def lose(log: list[Record]) -> None:
    """An acknowledged event is not there."""
    del log[-1]


def lose_within(log: list[Record]) -> None:
    """There is a gap."""
    del log[3]


def double(log: list[Record]) -> None:
    """An event is there twice."""
    log.insert(3, log[3])


def change(log: list[Record]) -> None:
    """An event is not what it was."""
    log[3].data["n"] = 5


def end_twice(log: list[Record]) -> None:
    """A process ends a second time."""
    log.append(Record(len(log) + 1, 1.5, "exit", 3, {}))


def make_twice(log: list[Record]) -> None:
    """There is a process more than was asked for."""
    log.append(Record(len(log) + 1, 1.5, "spawn", 7, {}))
    log.append(Record(len(log) + 1, 1.5, "exit", 7, {}))


@pytest.mark.parametrize(
    ("break_it", "law"),
    [
        (lose, "acknowledged event is in the log"),
        (lose_within, "acknowledged event is in the log"),
        (double, "no number comes twice"),
        (change, "in the log as it was"),
        (end_twice, "every process ends, and once"),
        (make_twice, "no process is made twice"),
    ],
)
def test_a_broken_log_is_found(system: System, break_it: Callable[[list[Record]], None], law: str) -> None:
    """Events that are lost, doubled or changed are reported, and so are processes."""
    log = good_log()
    break_it(log)
    with pytest.raises(HarnessError, match=law):
        check_log(system, log)


def test_a_gap_is_found(system: System) -> None:
    """A number that is missing is reported, also if nobody heard of its event."""
    log = good_log()
    lose_within(log)
    system.acks.clear()
    with pytest.raises(HarnessError, match="without gaps"):
        check_log(system, log)


def test_what_a_pipe_lost_is_found(system: System) -> None:
    """A line that nobody read and nobody finds is reported; one that somebody had read is not."""
    system.place.effects.with_name("effects.lost").touch()
    with pytest.raises(HarnessError, match="pipe"):
        check_log(system, good_log())
    read = Record(len(good_log()) + 1, 1.5, "pipe_read", 0, {})
    system.acks.append(Ack(read.seq, read.event, digest(read), False))
    check_log(system, [*good_log(), read])
    # The log is cleared of pipes in time.
    check_log(system, good_log())


@pytest.mark.parametrize(
    ("effects", "law"), [([*EFFECTS, "one"], "no effect comes twice"), (EFFECTS[1:], "every effect comes")]
)
def test_wrong_effects_are_found(system: System, effects: list[str], law: str) -> None:
    """An effect that comes twice or never is reported."""
    system.place.effects.write_text("".join(f"{name}\n" for name in effects))
    with pytest.raises(HarnessError, match=law):
        check(system)


@pytest.mark.parametrize(("field", "value"), [("code", 1), ("reason", "killed"), ("result", "another")])
def test_another_end_is_found(system: System, field: str, value: object) -> None:
    """An agent that ends in another way, or with another result, is reported."""
    system.told["ends"]["root"][field] = value
    with pytest.raises(HarnessError, match=r"ends well|the result"):
        check(system)


def test_what_waits_in_memory_may_go_with_a_failing_disk_only(system: System) -> None:
    """An event that is never refused may be lost if the disk failed before the death, else not."""
    log = good_log()
    late = Ack(len(log) + 1, "exit", b"x" * 16, True)
    system.acks.append(late)
    with pytest.raises(HarnessError, match="missing"):
        check_log(system, log)
    system.point = Point((Kill(5, AFTER),), Trouble("full", 4, 1))
    check_log(system, log)
    system.acks[-1] = late._replace(vital=False)
    with pytest.raises(HarnessError, match="missing"):
        check_log(system, log)
