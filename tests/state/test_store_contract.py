"""What every event store does, whatever it is kept in."""

import pytest

from rnixfs.state.memory import MemoryStore
from rnixfs.state.store import Entry, Keep, Log, Record
from tests.state.storelab import START, Clock, end, run, told, uuid_of


def test_events_get_numbers_without_gaps_and_the_time(store: Log, clock: Clock):
    """Numbers start at 1 and grow by one over all processes; the time is that of the clock."""
    first = store.append_event("boot", 0, {"first_pid": 1})
    clock.now += 2.5
    second = store.append_event("spawn", 1, {"uuid": "u"})
    assert first == Record(1, START, "boot", 0, {"first_pid": 1})
    assert second == Record(2, START + 2.5, "spawn", 1, {"uuid": "u"})


def test_load_gives_one_process_in_order(store: Log):
    """A process sees its own events alone, in order; the system is process 0."""
    for number in range(200):
        store.append_event("step", number % 3, {"number": number})
    for pid in range(3):
        assert [record.data["number"] for record in store.load(pid)] == list(range(pid, 200, 3))
    assert list(store.load(7)) == []


def test_load_gives_the_named_events_only(store: Log):
    """With names, only the events with these names come."""
    run(store, 1)
    assert [record.event for record in store.load(1, ("spawn", "reap"))] == ["spawn", "reap"]
    assert list(store.load(1, ("signal",))) == []


def test_what_happens_while_events_are_read_harms_nobody(store: Log):
    """Appending between two events that are read is allowed."""
    for _ in range(100):
        store.append_event("step", 1, {})
    seen = 0
    for record in store.load(1):
        if record.event == "step":
            seen += 1
            store.append_event("echo", 1, {})
    assert seen == 100
    assert len(list(store.load(1, ("echo",)))) == 100


def test_the_past_does_not_change(store: Log):
    """What a caller does to data after it was appended, or after it was read, changes no event."""
    numbers = [1]
    store.append_event("step", 1, {"list": numbers, "text": "long " * 50})
    numbers.append(2)
    next(iter(store.load(1))).data["list"].append(3)
    assert next(iter(store.load(1))).data == {"list": [1], "text": "long " * 50}


def test_processes_are_unfinished_until_their_reap(store: Log, clock: Clock):
    """`exit` says when a process ended, `reap` that it is over."""
    for pid in (2, 1, 3):
        run(store, pid, over=False)
    assert store.unfinished() == [1, 2, 3]
    assert store.finished() == []
    clock.now += 1
    store.append_event("exit", 2, {})
    assert store.unfinished() == [1, 2, 3]
    clock.now += 60
    store.append_event("reap", 2, {})
    assert store.unfinished() == [1, 3]
    assert store.finished() == [Entry(2, uuid_of(2), START + 1)]


def test_finished_ones_come_in_the_order_of_their_ends(store: Log, clock: Clock):
    """The oldest end is first, whatever the pid; a `reap` without `exit` is the end."""
    for pid in (1, 2, 3):
        run(store, pid, over=False)
    for pid in (3, 1, 2):
        clock.now += 1
        store.append_event("reap", pid, {})
    assert [(entry.pid, entry.ended_ts) for entry in store.finished()] == [
        (3, START + 1),
        (1, START + 2),
        (2, START + 3),
    ]


def test_a_process_is_found_by_pid_and_by_uuid(store: Log):
    """Both names lead to the same entry; unknown ones to none."""
    run(store, 1)
    run(store, 2, over=False)
    assert store.entry(1) == store.entry(uuid_of(1)) == Entry(1, uuid_of(1), START)
    assert store.entry(2) == store.entry(uuid_of(2)) == Entry(2, uuid_of(2), None)
    assert store.entry(3) is None
    assert store.entry("1") is None
    assert store.entry("") is None


def test_the_last_pid_is_that_of_any_event(store: Log):
    """Pids of all events count, also of processes that never started."""
    assert store.last_pid() == 0
    store.append_event("signal", 9, {})
    run(store, 4)
    assert store.last_pid() == 9


def test_events_are_found_by_their_key(store: Log):
    """The text under "key" finds every event that has it, in order and over all processes."""
    long = "k" * 200
    for key in ("a", long, "b", "a", long):
        store.append_event("request", len(key) % 7, {"key": key, "text": "x" * 300})
    store.append_event("request", 0, {"key": None})
    store.append_event("request", 0, {"key": ["a"]})
    store.append_event("request", 0, {"inner": {"key": "a"}})
    assert [record.seq for record in store.keyed("a")] == [1, 4]
    assert [record.seq for record in store.keyed(long)] == [2, 5]
    assert store.keyed("a")[0].data == {"key": "a", "text": "x" * 300}
    assert store.keyed("c") == []


def test_journals_only_grow(store: Log):
    """All bytes of a journal come back in order, whenever they were put on disk."""
    for number in range(50):
        store.append_journal(1, "trace", b"line %d\n" % number)
        store.append_journal(1, "log", b"\xff\x00")
        store.append_journal(2, "trace", b"other\n")
        if number % 20 == 0:
            store.settle()
    assert store.read_journal(1, "trace") == b"".join(b"line %d\n" % number for number in range(50))
    assert store.read_journal(1, "log") == b"\xff\x00" * 50
    assert store.read_journal(2, "trace") == b"other\n" * 50
    assert store.read_journal(2, "log") == b""


def test_journals_stay_after_the_end_of_their_process(store: Log):
    """The end of a process, which tidies its journals, changes none; late lines come after."""
    run(store, 1, steps=40, over=False)
    before = store.read_journal(1, "trace")
    end(store, 1)
    assert store.read_journal(1, "trace") == before
    store.append_journal(1, "trace", b"late\n")
    assert store.read_journal(1, "trace") == before + b"late\n"


def test_a_batch_is_kept_as_a_whole(store: Log):
    """Events of a batch have their numbers, and are seen by whoever looks inside and after it."""
    with store.batch():
        run(store, 1)
        assert told(store, 1) == ["spawn", "step", "step", "exit", "reap"]
        assert store.entry(1) == store.entry(uuid_of(1)) == Entry(1, uuid_of(1), START)
        assert store.finished() == [Entry(1, uuid_of(1), START)]
        run(store, 2, over=False)
        assert store.unfinished() == [2]
        store.append_event("request", 0, {"key": "k"})
        assert [record.seq for record in store.keyed("k")] == [9]
    assert store.append_event("boot", 0, {}).seq == 10
    assert store.unfinished() == [2]


class BoomError(Exception):
    """Something goes wrong inside a batch."""


def broken_batch(store: Log, kept: list[Record]) -> None:
    """A batch that fails after two events that must be kept and two that need not."""
    with store.batch():
        run(store, 2, steps=0, over=False)
        kept.append(store.append_event("exit", 1, {}, Keep.VITAL))
        store.append_event("step", 1, {"key": "gone"})
        kept.append(store.append_event("reap", 1, {}, Keep.VITAL))
        raise BoomError


def test_a_batch_that_fails_leaves_only_what_must_be_kept(store: Log):
    """After an exception inside a batch its `NOW` events never were; the others have the numbers."""
    run(store, 1, steps=0, over=False)
    kept: list[Record] = []
    with pytest.raises(BoomError):
        broken_batch(store, kept)
    assert [record.seq for record in kept] == [2, 3]
    assert [(record.seq, record.event) for record in store.load(1)] == [
        (1, "spawn"),
        (2, "exit"),
        (3, "reap"),
    ]
    assert list(store.load(2)) == []
    assert store.entry(2) is None
    assert store.keyed("gone") == []
    assert store.append_event("boot", 0, {}).seq == 4
    assert store.finished() == [Entry(1, uuid_of(1), START)]


def nested_batches(store: Log) -> None:
    """A batch that fails after one inside it came to its end."""
    with store.batch():
        with store.batch():
            store.append_event("step", 1, {})
        raise BoomError


def test_a_batch_inside_a_batch_is_part_of_it(store: Log):
    """Only the end of the outer one keeps anything."""
    with pytest.raises(BoomError):
        nested_batches(store)
    assert list(store.load(1)) == []


@pytest.mark.parametrize("keep", Keep)
def test_what_json_cannot_hold_is_no_event(store: Log, keep: Keep):
    """Data that is no JSON is the caller's mistake, and leaves nothing behind."""
    with pytest.raises(TypeError):
        store.append_event("step", 1, {"value": object()}, keep)
    assert store.append_event("step", 1, {}).seq == 1


def test_settling_nothing_is_fine(store: Log):
    """With nothing that waits there is nothing to do."""
    store.settle()
    store.settle()
    assert (store.last_pid(), store.unfinished(), store.finished()) == (0, [], [])
    assert store.notice == ""


def test_every_log_has_a_name_of_its_own(store: Log):
    """Two logs never have the same uuid."""
    assert store.uuid != MemoryStore().uuid
