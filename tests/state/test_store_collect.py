"""What a collection removes, and what it never removes."""

import random

import pytest

from rnixfs import limits
from rnixfs.state.memory import MemoryStore
from rnixfs.state.sqlite import SqliteStore
from rnixfs.state.store import Collected, Log, Retention
from tests.state.storelab import DAY, Clock, end, numbers, prose, reopen, run, told, uuid_of

EVERYTHING = Retention(processes=1000, days=1000.0, bytes=1 << 40)


def some(store: Log, clock: Clock, pids: range) -> None:
    """Finished processes whose ends are a day apart."""
    for pid in pids:
        run(store, pid)
        clock.now += DAY


def left(store: Log) -> list[int]:
    """The pids of the finished processes that are there."""
    return [entry.pid for entry in store.finished()]


def test_nothing_goes_that_may_stay(store: Log, clock: Clock):
    """Within all three limits nothing is removed."""
    some(store, clock, range(1, 6))
    assert store.collect(EVERYTHING) == Collected([], 0, 0, 0)
    assert left(store) == [1, 2, 3, 4, 5]


def test_the_oldest_go_beyond_the_count(store: Log, clock: Clock):
    """Of more processes than are kept the oldest ends go, with events and journals, and only they."""
    some(store, clock, range(1, 6))
    collected = store.collect(Retention(processes=2))
    assert [entry.pid for entry in collected.processes] == [1, 2, 3]
    assert collected.events == 15
    assert collected.bytes >= 0
    assert not collected.more
    assert left(store) == [4, 5]
    for pid in (1, 2, 3):
        assert list(store.load(pid)) == []
        assert store.read_journal(pid, "trace") == b""
        assert store.entry(pid) is store.entry(uuid_of(pid)) is None
    assert told(store, 4) == ["spawn", "step", "step", "exit", "reap"]
    assert store.read_journal(4, "trace").count(b"\n") == 2


def test_those_beyond_the_age_go(store: Log, clock: Clock):
    """What ended longer ago than the days that are kept goes, whatever the count."""
    some(store, clock, range(1, 6))
    store.collect(Retention(days=2.5))
    assert left(store) == [4, 5]


def test_those_beyond_the_size_go(store: Log, clock: Clock):
    """The oldest go until the log is no larger than it may be."""
    rng = random.Random(2)
    for pid in range(1, 9):
        store.append_event("spawn", pid, {"uuid": uuid_of(pid)})
        for _ in range(20):
            store.append_event("step", pid, {"text": prose(rng, 3000)})
        end(store, pid)
        clock.now += 1
    store.settle()
    removed = store.collect(Retention(bytes=size(store) // 2))
    assert 3 <= len(removed.processes) <= 5
    assert removed.bytes > 0
    assert left(store) == list(range(len(removed.processes) + 1, 9))
    assert store.collect(Retention(bytes=1)).processes != []
    assert left(store) == []


def size(store: Log) -> int:
    """How large a log is by its own measure."""
    if isinstance(store, MemoryStore):
        return store._bytes
    assert isinstance(store, SqliteStore)
    return numbers(store, "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")[0]


def test_unfinished_ones_their_creators_and_pinned_ones_stay(store: Log, clock: Clock):
    """Whoever a living process descends from is needed to tell its rights; pinned ones somebody looks at."""
    for pid, ppid in ((1, 0), (2, 1), (3, 2), (4, 1), (5, 0), (6, 5)):
        run(store, pid, ppid, over=False)
    for pid in (1, 2, 4, 5, 6):
        end(store, pid)
    clock.now += 1000 * DAY
    removed = store.collect(Retention(processes=0, days=1, bytes=0), pinned=[6])
    assert [entry.pid for entry in removed.processes] == [4, 5]
    assert left(store) == [1, 2, 6]
    assert store.unfinished() == [3]


def test_numbers_are_never_given_twice(store: Log, clock: Clock):
    """Pids and numbers of events that were removed stay used, also after a restart."""
    some(store, clock, range(1, 4))
    last = store.append_event("signal", 9, {}).seq
    run(store, 12)
    assert len(store.collect(Retention(processes=0)).processes) == 4
    assert store.last_pid() == 12
    if isinstance(store, SqliteStore):
        store = reopen(store, clock=clock)
        assert store.last_pid() == 12
    assert store.append_event("boot", 0, {}).seq == last + 6
    store.close()


def test_keys_go_with_their_events(store: Log):
    """What was removed is found by no key any more."""
    store.append_event("spawn", 1, {"uuid": "u", "key": "k"})
    store.append_event("request", 0, {"key": "k"})
    end(store, 1)
    store.collect(Retention(processes=0))
    assert [record.seq for record in store.keyed("k")] == [2]


# --- events of the system ---


def test_old_requests_of_people_go(store: Log, clock: Clock):
    """`request` and `answered` of the system go by age; its other events stay."""
    for event in ("boot", "request", "answered", "make_group"):
        store.append_event(event, 0, {"text": event * 50})
    store.append_event("request", 1, {})
    clock.now += 10 * DAY
    store.append_event("request", 0, {})
    assert store.collect(Retention(days=11)).events == 0
    assert store.collect(Retention(days=9)).events == 2
    assert told(store, 0) == ["boot", "make_group", "request"]
    assert told(store, 1) == ["request"]


def pipe(store: Log, number: int, *moves: int) -> None:
    """A pipe through which bytes went: written if positive, read if negative."""
    store.append_event("pipe", 0, {"pipe": number})
    for move in moves:
        event = "pipe_write" if move > 0 else "pipe_read"
        store.append_event(event, 0, {"pipe": number, "bytes": abs(move), "data": "x" * 200})


def moves_of(store: Log, number: int) -> list[str]:
    """The events of a pipe that are there."""
    return [record.event for record in store.load(0) if record.data.get("pipe") == number]


def test_pipes_that_are_gone_or_empty_are_forgotten(store: Log):
    """Of a removed pipe everything goes, of an empty one its bytes, of one with bytes only what was read."""
    pipe(store, 1, 10, -4, -6)
    pipe(store, 2, 10, -4)
    pipe(store, 3, 10)
    store.append_event("pipe_removed", 0, {"pipe": 3})
    pipe(store, 4, 10, -10, 7)
    pipe(store, 5)
    store.collect(EVERYTHING)
    assert moves_of(store, 1) == ["pipe"]
    assert moves_of(store, 2) == ["pipe", "pipe_write", "pipe_read"]
    assert moves_of(store, 3) == []
    assert moves_of(store, 4) == ["pipe", "pipe_write"]
    assert moves_of(store, 5) == ["pipe"]


# --- texts ---


def test_a_text_stays_as_long_as_anybody_needs_it(disk: SqliteStore, clock: Clock):
    """A text goes with the last event that refers to it: of a process, or of the system."""
    shared, own, asked = ("shared " * 50), ("own " * 50), ("asked " * 50)
    disk.append_event("request", 0, {"text": asked})
    clock.now += 10 * DAY
    disk.append_event("request", 0, {"text": asked + shared, "more": shared})
    for pid in (1, 2):
        disk.append_event("spawn", pid, {"uuid": uuid_of(pid), "shared": shared, "own": f"{pid} {own}"})
        end(disk, pid)
        clock.now += 1
    count = "SELECT count(*) FROM content"
    assert numbers(disk, count) == [5]
    assert disk.collect(Retention(processes=1, days=1000)).contents == 1
    assert numbers(disk, count) == [4]
    assert disk.collect(Retention(processes=1, days=5)).contents == 1
    assert disk.collect(Retention(processes=0, days=5)).contents == 1
    assert numbers(disk, count) == [2]
    assert [record.data for record in disk.load(0)] == [{"text": asked + shared, "more": shared}]
    clock.now += 10 * DAY
    assert disk.collect(Retention(processes=0, days=5)).contents == 2
    assert numbers(disk, "SELECT count(*) FROM refs") == [0]


def test_a_text_that_was_removed_can_come_again(disk: SqliteStore):
    """What the log remembers of texts does not outlive them; their numbers are never given again."""
    for pid in (1, 2):
        disk.append_event("spawn", pid, {"uuid": uuid_of(pid), "text": "same " * 50})
        end(disk, pid)
        disk.collect(Retention(processes=0))
        assert numbers(disk, "SELECT count(*) FROM content") == [0]
    again = reopen(disk)
    again.append_event("spawn", 4, {"uuid": uuid_of(4), "text": "other " * 50})
    assert numbers(again, "SELECT id FROM content") == [3]
    disk = reopen(again)
    disk.append_event("spawn", 3, {"uuid": uuid_of(3), "text": "same " * 50})
    assert next(iter(disk.load(3))).data["text"] == "same " * 50
    disk.close()


@pytest.mark.parametrize("seed", range(6))
def test_no_text_is_missing_after_any_collections(disk: SqliteStore, clock: Clock, seed: int):
    """Whatever is removed in whatever order: what is left is whole, and no text is left over."""
    rng = random.Random(seed)
    texts = [prose(rng, 300) for _ in range(30)]
    wanted: dict[int, list[str]] = {}
    for pid in range(1, 60):
        wanted[pid] = rng.choices(texts, k=4)
        disk.append_event("spawn", pid, {"uuid": uuid_of(pid), "texts": wanted[pid]})
        disk.append_event("request", 0, {"text": rng.choice(texts)})
        if rng.randrange(4):
            end(disk, pid)
        clock.now += DAY
        if not rng.randrange(5):
            keep = Retention(processes=rng.randint(0, 10), days=rng.choice([3.0, 100.0]))
            for entry in disk.collect(keep).processes:
                del wanted[entry.pid]
    for pid, kept in wanted.items():
        assert next(iter(disk.load(pid))).data["texts"] == kept
    needed = {text for kept in wanted.values() for text in kept}
    needed |= {record.data["text"] for record in disk.load(0)}
    assert numbers(disk, "SELECT count(*) FROM content") == [len(needed)]
    assert numbers(disk, "SELECT count(*) FROM refs WHERE content NOT IN (SELECT id FROM content)") == [0]


# --- in portions, and by itself ---


def test_a_collection_stops_after_some_and_says_so(disk: SqliteStore, monkeypatch: pytest.MonkeyPatch):
    """One call removes no more than `limits.COLLECT_MAX` processes, and asks to be called again."""
    monkeypatch.setattr(limits, "COLLECT_MAX", 3)
    for pid in range(1, 9):
        run(disk, pid)
    found = [disk.collect(Retention(processes=1)) for _ in range(3)]
    assert [(len(one.processes), one.more) for one in found] == [(3, True), (3, True), (1, False)]
    for pid in range(11, 15):
        run(disk, pid)
    found = [disk.collect(Retention(bytes=0)) for _ in range(2)]
    assert [(len(one.processes), one.more) for one in found] == [(3, True), (2, False)]


def test_a_log_in_memory_forgets_by_itself(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    """The oldest finished processes go beyond `limits.HISTORY_MAX`, those that living ones need stay."""
    monkeypatch.setattr(limits, "HISTORY_MAX", 3)
    store = MemoryStore(clock=clock)
    run(store, 1)
    run(store, 2, over=False)
    run(store, 3, 1, over=False)
    some(store, clock, range(4, 10))
    assert left(store) == [1, 8, 9]
    assert told(store, 4) == []
    assert store.unfinished() == [2, 3]


def test_a_log_in_memory_has_a_size(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    """Beyond `limits.MEMORY_LOG_BYTES` the oldest finished processes go, however few they are."""
    monkeypatch.setattr(limits, "MEMORY_LOG_BYTES", 10_000)
    store = MemoryStore(clock=clock)
    some(store, clock, range(1, 50))
    assert left(store)[-1] == 49
    assert 2 <= len(left(store)) <= 10


def test_a_log_in_memory_forgets_requests_of_people(monkeypatch: pytest.MonkeyPatch):
    """Beyond `limits.SYSTEM_EVENTS_MAX` the oldest requests and all empty pipes go; other events stay."""
    monkeypatch.setattr(limits, "SYSTEM_EVENTS_MAX", 20)
    store = MemoryStore()
    store.append_event("boot", 0, {})
    pipe(store, 1, 5, -5)
    for _ in range(100):
        store.append_event("request", 0, {"key": "k"})
    assert len(told(store, 0)) <= 22
    assert told(store, 0)[:3] == ["boot", "pipe", "request"]
    assert len(store.keyed("k")) == len(told(store, 0)) - 2
