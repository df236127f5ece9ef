"""A disk that is full or broken: what is acknowledged is kept, and what must be kept is not lost."""

import contextlib
import errno
import pathlib
import random
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from rnixfs import limits
from rnixfs.errors import Code, SyscallError
from rnixfs.state.sqlite import SqliteStore
from rnixfs.state.store import Entry, Keep, Record, Retention
from tests.state.storelab import START, Clock, end, numbers, prose, reopen, run, told, uuid_of

AMPLE = 1 << 30  # pages
BIG = {"text": "".join(map(chr, range(200, 9200)))}  # some pages, and hardly smaller when compressed


def fill_disk(store: SqliteStore) -> None:
    """From now on the file cannot grow."""
    store._db.execute("PRAGMA max_page_count = 1")


def free_disk(store: SqliteStore) -> None:
    """From now on it can again."""
    store._db.execute(f"PRAGMA max_page_count = {AMPLE}")


def pages(store: SqliteStore) -> int:
    """How large the file is."""
    found: int = store._db.execute("PRAGMA page_count").fetchone()[0]
    return found


@contextlib.contextmanager
def full(store: SqliteStore) -> Iterator[None]:
    """The file cannot grow inside."""
    fill_disk(store)
    yield
    free_disk(store)


class Broken(SqliteStore):
    """A log on a disk whose fsync fails when a test says so."""

    broken = False

    def _commit(self) -> None:
        if self.broken:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error
        super()._commit()


@pytest.fixture
def broken(tmp_path: pathlib.Path, clock: Clock) -> Iterator[Broken]:
    """A log on such a disk, which still works."""
    store = Broken(tmp_path / "broken", synchronous="off", clock=clock, timer=clock)
    yield store
    store.close()


def test_an_event_without_room_is_refused(disk: SqliteStore):
    """No room is ENOSPC with a sentence; the event is not in the log, its number is free, reading goes on."""
    run(disk, 1)
    with full(disk):
        with pytest.raises(SyscallError, match=r"no room for the log .*log\.db.*free some space") as caught:
            disk.append_event("answer", 1, BIG)
        assert (caught.value.code, caught.value.errno) == (Code.RESOURCE_EXHAUSTED, errno.ENOSPC)
        assert told(disk, 1) == ["spawn", "step", "step", "exit", "reap"]
    assert disk.append_event("answer", 1, BIG).seq == 6
    assert next(iter(disk.load(1, ["answer"]))).data == BIG


def test_an_event_that_cannot_be_synced_is_refused(broken: Broken):
    """A failed COMMIT is EIO; nothing of it is there, for us or for others, until it is appended anew."""
    run(broken, 1)
    broken.broken = True
    with pytest.raises(SyscallError, match=r"cannot keep an event in the log .*disk I/O error") as caught:
        broken.append_event("answer", 1, BIG)
    assert (caught.value.code, caught.value.errno) == (Code.DRIVER, errno.EIO)
    broken.broken = False
    assert numbers(broken, "SELECT max(seq) FROM events") == [5]
    assert broken.append_event("answer", 1, BIG).seq == 6
    again = reopen(broken)
    assert next(iter(again.load(1, ["answer"]))).data == BIG
    again.close()


def leave(store: SqliteStore) -> list[Record]:
    """Two events that must be kept, at a time when that is not possible."""
    return [store.append_event("exit", 1, BIG, Keep.VITAL), store.append_event("reap", 1, {}, Keep.VITAL)]


def test_what_must_be_kept_waits_and_is_seen(disk: SqliteStore):
    """`VITAL` events that find no room have numbers, and are part of the log for all who read it here."""
    run(disk, 1, over=False)
    with full(disk):
        assert [(record.seq, record.event) for record in leave(disk)] == [(4, "exit"), (5, "reap")]
        disk.append_event("spawn", 2, {"uuid": uuid_of(2), "key": "k", "text": BIG}, Keep.VITAL)
        assert told(disk, 1) == ["spawn", "step", "step", "exit", "reap"]
        assert [record.data for record in disk.load(1, ["exit"])] == [BIG]
        assert disk.finished() == [Entry(1, uuid_of(1), START)]
        assert disk.entry(1) == disk.entry(uuid_of(1)) == Entry(1, uuid_of(1), START)
        assert disk.entry(2) == disk.entry(uuid_of(2)) == Entry(2, uuid_of(2), None)
        assert disk.unfinished() == [2]
        assert disk.last_pid() == 2
        assert [record.seq for record in disk.keyed("k")] == [6]
    assert numbers(disk, "SELECT max(seq) FROM events") == [3]


@pytest.mark.parametrize("how", ["event", "batch", "settle", "close", "vital"])
def test_what_waits_is_kept_before_anything_else(disk: SqliteStore, how: str):
    """As soon as there is room, whatever is kept next takes along what waits, in order."""
    run(disk, 1, over=False)
    with full(disk):
        leave(disk)
    if how == "event":
        assert disk.append_event("boot", 0, {}).seq == 6
    elif how == "vital":
        assert disk.append_event("boot", 0, {}, Keep.VITAL).seq == 6
    elif how == "batch":
        with disk.batch():
            assert disk.append_event("boot", 0, {}).seq == 6
    elif how == "settle":
        disk.settle()
    if how != "close":
        assert numbers(disk, "SELECT seq FROM events WHERE pid = 1 ORDER BY seq") == [1, 2, 3, 4, 5]
    again = reopen(disk)
    assert told(again, 1) == ["spawn", "step", "step", "exit", "reap"]
    assert again.finished() == [Entry(1, uuid_of(1), START)]
    again.close()


def test_nothing_passes_what_waits(disk: SqliteStore):
    """A small event for which there would be room is refused as long as an older one has none."""
    run(disk, 1, over=False)
    with full(disk):
        disk.append_event("boot", 0, {})
        leave(disk)
        for attempt in (disk.settle, lambda: disk.append_event("boot", 0, {})):
            with pytest.raises(SyscallError, match="no room"):
                attempt()
    assert disk.append_event("boot", 0, {}).seq == 7


def mixed_batch(store: SqliteStore, vital: list[Record]) -> None:
    """Some events at once, not all of which must be kept."""
    with store.batch():
        store.append_event("boot", 0, {})
        vital.append(store.append_event("exit", 1, {}, Keep.VITAL))
        store.append_event("answer", 2, BIG)
        vital.append(store.append_event("reap", 1, {}, Keep.VITAL))


def test_what_waits_comes_first_also_in_the_table_of_processes(disk: SqliteStore):
    """A process whose start waits can end in the very moment that its start is kept."""
    with full(disk):
        disk.append_event("spawn", 1, {"uuid": uuid_of(1), "text": BIG}, Keep.VITAL)
    disk.append_event("reap", 1, {})
    assert disk.finished() == [Entry(1, uuid_of(1), START)]
    assert numbers(disk, "SELECT count(*) FROM processes WHERE reaped IS NOT NULL") == [1]


def test_what_waits_is_read_once_while_it_is_kept(disk: SqliteStore):
    """An event that goes to disk between two steps of a reader is neither missed nor told twice."""
    run(disk, 1, over=False)
    with full(disk):
        leave(disk)
    records = disk.load(1)
    seen = [next(records).event]
    disk.settle()
    assert seen + [record.event for record in records] == ["spawn", "step", "step", "exit", "reap"]


def test_a_batch_without_room_is_refused_as_a_whole(disk: SqliteStore):
    """At its end a batch raises; its `VITAL` events wait under the first free numbers."""
    run(disk, 1, over=False)
    vital: list[Record] = []
    with full(disk):
        with pytest.raises(SyscallError, match="no room"):
            mixed_batch(disk, vital)
        assert [record.seq for record in vital] == [4, 5]
        assert told(disk, 0) == told(disk, 2) == []
        assert disk.unfinished() == []
    assert disk.append_event("boot", 0, {}).seq == 6
    assert numbers(disk, "SELECT seq FROM events ORDER BY seq") == [1, 2, 3, 4, 5, 6]


# --- journals ---


def test_journals_wait_for_room_without_a_word(disk: SqliteStore, clock: Clock):
    """A full disk makes no journal fail, and holds up no event that has room."""
    run(disk, 1, over=False)
    text = prose(random.Random(3), 3 * limits.JOURNAL_BLOCK).encode()
    with full(disk):
        disk.append_journal(1, "trace", text)
        clock.now += limits.JOURNAL_SECONDS
        disk.append_journal(1, "trace", b"more\n")
        assert disk.read_journal(1, "trace").endswith(text + b"more\n")
        assert disk.append_event("boot", 0, {}).seq == 4
    clock.now += limits.JOURNAL_SECONDS
    disk.append_event("boot", 0, {})
    again = reopen(disk)
    assert again.read_journal(1, "trace").endswith(text + b"more\n")
    again.close()


def test_no_event_is_refused_for_the_journals_that_are_due(disk: SqliteStore, clock: Clock):
    """Where there is room for an event and not for the lines that are due, the event is kept."""
    text = prose(random.Random(3), limits.JOURNAL_BLOCK - 1).encode()
    run(disk, 1, over=False)
    disk.settle()
    with full(disk):
        disk.append_journal(1, "trace", text)
        clock.now += limits.JOURNAL_SECONDS
        assert disk.append_event("boot", 0, {}).seq == 4
        disk.append_event("answer", 1, BIG, Keep.VITAL)
    disk._db.execute(f"PRAGMA max_page_count = {pages(disk) + 8}")
    with pytest.raises(SyscallError, match="no room"):
        disk.settle()
    assert numbers(disk, "SELECT max(seq) FROM events") == [5]
    free_disk(disk)
    disk.settle()
    assert disk.read_journal(1, "trace").endswith(text)


def test_a_broken_disk_is_not_tried_for_each_line(
    broken: Broken, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    """After a failure lazy lines wait `limits.JOURNAL_SECONDS` before the next attempt."""
    broken.broken = True
    attempts: list[float] = []
    commit = broken._commit

    def counted() -> None:
        attempts.append(clock.now)
        commit()

    monkeypatch.setattr(broken, "_commit", counted)
    for _ in range(100):
        broken.append_journal(1, "trace", bytes(limits.JOURNAL_BLOCK // 10))
        clock.now += limits.JOURNAL_SECONDS / 40
    assert 2 <= len(attempts) <= 4
    broken.broken = False


def test_lines_that_nobody_can_hold_are_counted(disk: SqliteStore, monkeypatch: pytest.MonkeyPatch):
    """Past the limit bytes are dropped, and the journal itself says how many and where."""
    monkeypatch.setattr(limits, "JOURNALS_WAITING_MAX", 50)
    disk.append_journal(1, "trace", b"a" * 30 + b"\n")
    disk.append_journal(1, "trace", b"b" * 30 + b"\n")
    disk.append_journal(2, "trace", b"c" * 30 + b"\n")
    disk.append_journal(1, "trace", b"d" * 30 + b"\n")
    told_of = b"a" * 30 + b'\n{"dropped_bytes": 62}\n'
    assert disk.read_journal(1, "trace") == told_of
    disk.settle()
    disk.append_journal(1, "trace", b"e\n")
    again = reopen(disk)
    assert again.read_journal(1, "trace") == told_of + b"e\n"
    assert again.read_journal(2, "trace") == b'{"dropped_bytes": 31}\n'
    again.close()


# --- making room ---


def test_a_collection_makes_room_on_a_full_disk(disk: SqliteStore):
    """What is removed gives its room to what waits and to what comes."""
    for pid in range(1, 20):
        run(disk, pid, steps=10)
    run(disk, 20, over=False)
    fill_disk(disk)
    disk.append_event("exit", 20, BIG, Keep.VITAL)
    with pytest.raises(SyscallError, match="no room"):
        disk.append_event("boot", 0, {})
    assert len(disk.collect(Retention(processes=5)).processes) == 14
    disk.append_event("answer", 20, BIG)
    assert told(disk, 20) == ["spawn", "step", "step", "exit", "answer"]


# --- any order of all of it ---


class Model:
    """What must be in a log after any calls."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, int, dict[str, Any]]] = []
        self.journals: dict[int, bytes] = {}
        self.pids = 0  # each is used for one process only, whether its start was refused or not

    def append(self, store: SqliteStore, rng: random.Random) -> None:
        """One event, which the log may refuse only if it need not be kept."""
        name = rng.choice(["step", "spawn", "exit", "reap"])
        self.pids += name == "spawn"
        event = (name, self.pids if name == "spawn" else rng.randint(0, self.pids), _data(rng))
        keep = rng.choice(list(Keep))
        try:
            record = store.append_event(*event, keep)
        except SyscallError:
            assert keep is Keep.NOW
        else:
            self.kept.append(event)
            assert record.seq == len(self.kept)

    def batch(self, store: SqliteStore, rng: random.Random) -> None:
        """Some events at once."""
        events = [("step", rng.randint(0, self.pids), _data(rng)) for _ in range(rng.randint(0, 5))]
        keeps = [rng.choice(list(Keep)) for _ in events]
        try:
            with store.batch():
                for event, keep in zip(events, keeps, strict=True):
                    store.append_event(*event, keep)
            self.kept += events
        except SyscallError:
            self.kept += [event for event, keep in zip(events, keeps, strict=True) if keep is Keep.VITAL]

    def journal(self, store: SqliteStore, rng: random.Random) -> None:
        """Some lines."""
        pid, line = rng.randint(0, self.pids), b"%d\n" % rng.randrange(10**9) * rng.choice([1, 10, 1000])
        store.append_journal(pid, "trace", line)
        self.journals[pid] = self.journals.get(pid, b"") + line

    def settle(self, store: SqliteStore, rng: random.Random) -> None:
        """Whatever waits is tried."""
        with contextlib.suppress(SyscallError):
            store.settle()

    def check(self, store: SqliteStore) -> None:
        """The log tells exactly this."""
        for pid in range(self.pids + 1):
            mine = [event for event in self.kept if event[1] == pid]
            assert [(record.event, record.pid, record.data) for record in store.load(pid)] == mine
            assert store.read_journal(pid, "trace") == self.journals.get(pid, b"")
        born = {pid for event, pid, _ in self.kept if event == "spawn"}
        over = {pid for event, pid, _ in self.kept if event == "reap"} & born
        assert {entry.pid for entry in store.finished()} == over
        assert set(store.unfinished()) == born - over


def _data(rng: random.Random) -> dict[str, Any]:
    text = prose(rng, rng.choice([5, 500, 20_000]))
    return {"uuid": f"u{rng.random()}", "text": text, "list": [text, {"#": text}]}


@pytest.mark.parametrize("seed", range(12))
def test_any_order_of_calls_and_failures(broken: Broken, clock: Clock, seed: int):
    """Whatever is called while the disk is full, broken or fine: the log holds what it said it holds."""
    rng, model = random.Random(seed), Model()
    for _ in range(120):
        if not rng.randrange(8):
            rng.choice([fill_disk, free_disk])(broken)
            broken.broken = not rng.randrange(3)
        clock.now += rng.choice([0, limits.JOURNAL_SECONDS / 3])
        rng.choice([model.append, model.append, model.batch, model.journal, model.settle])(broken, rng)
    model.check(broken)
    free_disk(broken)
    broken.broken = False
    again = reopen(broken)
    assert again.notice == ""
    model.check(again)
    again.close()


def test_the_end_of_a_process_waits_with_its_journals(disk: SqliteStore):
    """A `reap` that waits takes the journals of its process along when there is room."""
    run(disk, 1, over=False)
    with full(disk):
        disk.append_journal(1, "trace", prose(random.Random(1), 20_000).encode())
        with contextlib.suppress(SyscallError):
            end(disk, 1)
        disk.append_event("reap", 1, BIG, Keep.VITAL)
    disk.append_event("boot", 0, {})
    assert numbers(disk, "SELECT count(*) FROM journals") == [1]
    assert numbers(disk, "SELECT count(*) FROM processes WHERE reaped IS NULL") == [0]
