"""A damaged log: what is whole is saved as it was, the file is set aside as it is, and the daemon starts."""

import contextlib
import datetime
import pathlib
import random
import re
import shutil
import stat
from collections.abc import Callable, Iterator

import pytest

from rnixfs.errors import Code, SyscallError
from rnixfs.state import salvage, schema
from rnixfs.state.sqlite import SqliteStore
from rnixfs.state.store import Record, Retention
from tests.state.storelab import START, Clock, end, events_of, numbers, prose, reopen, run, uuid_of

PAGE = schema.PAGE_SIZE
PIDS = range(25)
STAMP = datetime.datetime.fromtimestamp(START, datetime.UTC).strftime("%Y%m%dT%H%M%SZ")


class Whole:
    """A log of some processes, and what is in it.

    Args:
        folder: where it is made.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        rng = random.Random(4)
        store = SqliteStore(folder)
        store.append_event("boot", 0, {})
        for pid in PIDS[1:]:
            spawn = {"uuid": uuid_of(pid), "ppid": pid // 2, "intent": prose(rng, 400), "key": f"key {pid}"}
            store.append_event("spawn", pid, spawn)
            for step in range(12):
                store.append_event(
                    "step", pid, {"step": step, "note": prose(rng, 60), "answer": prose(rng, 700)}
                )
            store.append_event("answer", pid, {"text": prose(rng, 30_000)})
            store.append_journal(pid, "trace", prose(rng, 2000).encode())
            if pid % 3:
                end(store, pid)
        store.settle()
        self.events = events_of(store, PIDS)
        self.journals = {pid: store.read_journal(pid, "trace") for pid in PIDS}
        self.uuid = store.uuid
        # As after a kill: the write-ahead log is there, and holds a part of it.
        self.live = {file.name: file.read_bytes() for file in folder.iterdir()}
        store.close()
        self.data = store.path.read_bytes()

    @property
    def pages(self) -> int:
        """How many pages the file has."""
        return len(self.data) // PAGE


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """A log that is whole; tests damage copies."""
    return Whole(tmp_path_factory.mktemp("whole"))


@contextlib.contextmanager
def started(folder: pathlib.Path, data: bytes) -> Iterator[SqliteStore]:
    """The daemon's log after a start on a file with these bytes, in a folder with nothing else."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "log.db").write_bytes(data)
    clock = Clock()
    with contextlib.closing(SqliteStore(folder, synchronous="off", clock=clock, timer=clock)) as store:
        yield store


def check(store: SqliteStore, whole: Whole) -> dict[int, Record]:
    """The laws of a salvaged log; returns its events."""
    found = events_of(store, PIDS)
    assert {seq: whole.events[seq] for seq in found} == found
    born = {record.pid for record in found.values() if record.event == "spawn"}
    assert {record.pid for record in found.values()} <= {0, *born}
    over = {record.pid for record in found.values() if record.event == "reap"}
    assert {entry.pid for entry in store.finished()} == over
    assert set(store.unfinished()) == born - over
    for pid in born:
        assert store.read_journal(pid, "trace") in (whole.journals[pid], b"")
        assert [record.pid for record in store.keyed(f"key {pid}")] == [pid]
        entry = store.entry(uuid_of(pid))
        assert entry is not None
        assert entry.pid == pid
    assert store.append_event("boot", 0, {}).seq > max(found, default=0)
    return found


def aside(store: SqliteStore) -> list[pathlib.Path]:
    """The files that were set aside."""
    return sorted(store.path.parent.glob("log.db.damaged-*"))


def noise(rng: random.Random, page: bytearray) -> None:
    """Nothing of the page is left."""
    page[:] = rng.randbytes(len(page))


def nothing(rng: random.Random, page: bytearray) -> None:
    """The page was never written."""
    page[:] = bytes(len(page))


def some_bytes(rng: random.Random, page: bytearray) -> None:
    """A few bytes in a row are wrong."""
    place = rng.randrange(len(page) - 8)
    page[place : place + 8] = rng.randbytes(8)


def one_bit(rng: random.Random, page: bytearray) -> None:
    """A single bit is wrong."""
    page[rng.randrange(len(page))] ^= 1 << rng.randrange(8)


DAMAGES = [noise, nothing, some_bytes, one_bit]


@pytest.mark.parametrize("how", DAMAGES)
def test_any_page_may_be_damaged(
    tmp_path: pathlib.Path, whole: Whole, how: Callable[[random.Random, bytearray], None]
):
    """Whichever page is hit, also the first: what is read is what was written, and most of it is there."""
    rng = random.Random(7)
    for number in range(0, whole.pages, 3):
        data = bytearray(whole.data)
        page = data[number * PAGE : (number + 1) * PAGE]
        how(rng, page)
        data[number * PAGE : (number + 1) * PAGE] = page
        with started(tmp_path / "state", bytes(data)) as store:
            if not store.notice:
                continue  # a place that holds nothing, or a letter of a finished process: see below
            assert len(check(store, whole)) > 0.7 * len(whole.events)
            assert [file.read_bytes() for file in aside(store)] == [data]


@pytest.mark.parametrize("seed", range(20))
def test_much_may_be_damaged(tmp_path: pathlib.Path, whole: Whole, seed: int):
    """Many pages at once, in any way: what is left is right."""
    rng = random.Random(seed)
    data = bytearray(whole.data)
    for number in rng.sample(range(whole.pages), rng.randint(2, whole.pages // 2)):
        page = data[number * PAGE : (number + 1) * PAGE]
        rng.choice(DAMAGES[:3])(rng, page)
        data[number * PAGE : (number + 1) * PAGE] = page
    with started(tmp_path, bytes(data)) as store:
        assert store.notice
        check(store, whole)


def test_the_end_of_the_file_may_be_missing(tmp_path: pathlib.Path, whole: Whole):
    """A file that was cut off gives what is in the rest."""
    rng = random.Random(3)
    for size in [1, 99, 100, 512, PAGE, *(rng.randrange(len(whole.data)) for _ in range(12))]:
        with started(tmp_path / "state", whole.data[:size]) as store:
            assert "damaged" in store.notice
            found = check(store, whole)
            assert len(found) > 0.4 * len(whole.events) * (size / len(whole.data) - 0.3)


@pytest.mark.parametrize(
    "data",
    [b"", b"garbage", bytes(3 * PAGE), b"SQLite format 3\0" + bytes(84), random.Random(1).randbytes(50_000)],
    ids=["empty", "text", "zeros", "header", "noise"],
)
def test_a_file_without_anything_is_set_aside(tmp_path: pathlib.Path, whole: Whole, data: bytes):
    """From what holds nothing, nothing is saved; the daemon starts with an empty log, and says so."""
    with started(tmp_path, data) as store:
        assert check(store, whole) == {}
        assert "log.db is damaged" in store.notice
        assert "Saved: 0 events and 0 processes." in store.notice
        assert [file.read_bytes() for file in aside(store)] == [data]


def first_page_gone(whole: Whole) -> bytes:
    """The log without the page that says what it is."""
    return bytes(PAGE) + whole.data[PAGE:]


def test_the_notice_says_what_and_where(tmp_path: pathlib.Path, whole: Whole):
    """One sentence for each: what was damaged, what was saved, what was lost, where the old file is."""
    with started(tmp_path, first_page_gone(whole)) as store:
        saved = len(events_of(store, PIDS))
        assert store.notice == (
            f"The log {tmp_path}/log.db is damaged (file is not a database). Saved: {saved} events and 24 "
            "processes. Lost: what could not be read, 0 events that were not whole, and 0 processes without "
            f"their start. The damaged log is {tmp_path}/log.db.damaged-{STAMP}."
        )
    again = SqliteStore(tmp_path)
    assert (again.notice, again.uuid) == ("", store.uuid)
    again.close()


def test_the_new_file_is_a_log_like_any_other(tmp_path: pathlib.Path, whole: Whole):
    """All numbers go on, the name stays, texts are kept once, modes are tight, nothing else lies around."""
    with started(tmp_path, first_page_gone(whole)) as store:
        assert store.uuid == whole.uuid
        assert store.last_pid() == 24
        contents = numbers(store, "SELECT count(*) FROM content")
        run(store, 25)
        assert store.append_event("step", 1, next(store.load(1, ["spawn"])).data).seq == len(whole.events) + 6
        assert numbers(store, "SELECT count(*) FROM content")[0] == contents[0] + 3
        names = {"lock", "log.db", "log.db-shm", "log.db-wal", f"log.db.damaged-{STAMP}"}
        assert {file.name for file in tmp_path.iterdir()} == names
        assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


def spawn_page(whole: Whole, pid: int) -> int:
    """The page of the file that holds the start of a process."""
    return whole.data.index(b'{"uuid":"%s"' % uuid_of(pid).encode()) // PAGE


def test_a_process_without_its_start_is_left_out(tmp_path: pathlib.Path, whole: Whole):
    """What limits a process is in its `spawn`: without that nothing of it comes back."""
    data = bytearray(whole.data)
    number = spawn_page(whole, 9)
    data[number * PAGE : (number + 1) * PAGE] = bytes(PAGE)
    with started(tmp_path, bytes(data)) as store:
        found = check(store, whole)
        lost = set(PIDS) - {record.pid for record in found.values()}
        assert 9 in lost
        counted = re.search(r"and (\d+) processes without their start", store.notice)
        assert counted
        assert 1 <= int(counted[1]) <= len(lost)
        assert store.entry(9) is None
        assert store.read_journal(9, "trace") == b""
        assert numbers(store, "SELECT count(*) FROM refs WHERE owner = 9") == [0]
        assert store.last_pid() == 24


def test_what_was_not_yet_in_the_file_is_saved_too(tmp_path: pathlib.Path, whole: Whole):
    """After a kill most of a log may lie in its write-ahead log; a damaged or empty file hides none of it."""
    for number, damage in enumerate([b"", whole.live["log.db"][:100]]):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, data in whole.live.items():
            (folder / name).write_bytes(data)
        (folder / "log.db").write_bytes(damage)
        store = SqliteStore(folder)
        assert "damaged" in store.notice
        assert len(check(store, whole)) == len(whole.events)
        assert {file.name.partition("Z")[2] for file in aside(store)} == {"", "-wal", "-shm"}
        store.close()


def test_damage_in_the_write_ahead_log_spoils_no_more_than_a_page(tmp_path: pathlib.Path, whole: Whole):
    """With the file gone as well, every sound page of the write-ahead log counts."""
    rng = random.Random(11)
    log = bytearray(whole.live["log.db-wal"])
    place = len(log) // 2
    log[place : place + 100] = rng.randbytes(100)
    (tmp_path / "log.db").write_bytes(b"")
    (tmp_path / "log.db-wal").write_bytes(log)
    store = SqliteStore(tmp_path)
    assert len(check(store, whole)) > 0.8 * len(whole.events)
    store.close()


def test_a_page_that_is_damaged_in_the_write_ahead_log_is_taken_from_before(
    disk: SqliteStore, tmp_path: pathlib.Path
):
    """Only what the last transactions changed is lost with their pages, not what stood there already."""
    for number in range(30):
        disk.append_event("boot", 0, {"number": number})
    log = bytearray(disk.path.with_name("log.db-wal").read_bytes())
    frame = 24 + PAGE
    for place in range(len(log) - 2 * frame, len(log), frame):
        log[place + 24 : place + frame] = random.Random(place).randbytes(PAGE)
    (tmp_path / "log.db").write_bytes(b"")
    (tmp_path / "log.db-wal").write_bytes(log)
    with contextlib.closing(SqliteStore(tmp_path)) as store:
        assert [record.data["number"] for record in store.load(0)] == list(range(29))


def test_an_index_that_lies_is_damage(tmp_path: pathlib.Path):
    """An event that the index does not lead to would be missed without a word; each single letter counts."""
    store = SqliteStore(tmp_path / "state")
    run(store, 1, over=False)
    (root,) = numbers(store, "SELECT rootpage FROM sqlite_master WHERE name = 'events_pid'")
    store.close()
    data = store.path.read_bytes()
    for place in range(root * PAGE - 8, root * PAGE):
        damaged = bytearray(data)
        damaged[place] ^= 1
        with started(tmp_path / "state", bytes(damaged)) as again:
            assert "damaged" in again.notice
            assert len(events_of(again, [1])) == 3


def test_a_letter_of_the_past_is_missed_by_its_reader_alone(tmp_path: pathlib.Path, whole: Whole):
    """Damage in a finished process that the form of the file does not show is told to its readers."""
    data = whole.data.replace(b'"key":"key 1"', b'"key":"kex 1"')
    assert data != whole.data
    with started(tmp_path, data) as store:
        assert store.notice == ""
        with pytest.raises(SyscallError, match=r"event 2 in .*log\.db is damaged") as caught:
            list(store.load(1))
        assert caught.value.code is Code.DRIVER
        for pid in PIDS[2:]:
            assert list(store.load(pid)) == [record for record in whole.events.values() if record.pid == pid]


def test_a_letter_of_what_goes_on_is_found_at_the_start(tmp_path: pathlib.Path, whole: Whole):
    """An unfinished process is looked at word by word before anything goes on."""
    data = whole.data.replace(b'"key":"key 3"', b'"key":"kex 3"')
    assert data != whole.data
    with started(tmp_path, data) as store:
        assert re.search(r"Event \d+ in .* is damaged", store.notice)
        assert 3 not in store.unfinished()
        assert len(check(store, whole)) == len(whole.events) - 14


def test_what_was_removed_does_not_come_back(tmp_path: pathlib.Path, clock: Clock):
    """A removed process is gone from the disk, and so from what is saved of a damaged log."""
    store = SqliteStore(tmp_path, clock=clock)
    for pid in range(1, 40):
        store.append_event(
            "spawn", pid, {"uuid": uuid_of(pid), "word": f"secret {pid}.", "long": f"{pid} " * 300}
        )
        end(store, pid)
    store.collect(Retention(processes=3))
    store.close()
    data = store.path.read_bytes()
    assert [pid for pid in range(1, 40) if b"secret %d." % pid in data] == [37, 38, 39]
    with started(tmp_path / "state", bytes(PAGE) + data[PAGE:]) as again:
        assert [entry.pid for entry in again.finished()] == [37, 38, 39]
        assert again.last_pid() == 39
        assert again.append_event("boot", 0, {}).seq == 39 * 3 + 1


def test_a_log_without_its_name_gets_a_new_one(disk: SqliteStore):
    """Who the log is, others remember; if that is lost, it is another log with the same events."""
    run(disk, 1)
    disk._db.execute("UPDATE meta SET value = 'nobody' WHERE name = 'uuid'")
    again = reopen(disk)
    assert "its own name is gone" in again.notice
    assert len(events_of(again, [1])) == 5
    assert salvage.valid_uuid(again.uuid)
    again.close()


def test_a_salvage_that_was_interrupted_is_finished(tmp_path: pathlib.Path, whole: Whole):
    """Whether the daemon ended before or after the new file was whole, the next start has all of it."""
    (tmp_path / "log.db").write_bytes(first_page_gone(whole))
    (tmp_path / "log.db.salvaging").write_bytes(b"half of a file")
    salvage.salvage(tmp_path / "log.db", "20200101T000000Z", "the log is damaged")
    assert (tmp_path / "log.db").read_bytes() == first_page_gone(whole)
    store = SqliteStore(tmp_path)
    assert store.notice.startswith("The log is damaged. Saved: ")
    assert len(check(store, whole)) == len(whole.events)
    assert [file.name for file in aside(store)] == ["log.db.damaged-20200101T000000Z"]
    store.close()


def test_each_damaged_file_has_a_name_of_its_own(tmp_path: pathlib.Path, clock: Clock):
    """Two files that are damaged within a second are both set aside."""
    for text in (b"one", b"two", b"three"):
        (tmp_path / "log.db").write_bytes(text)
        SqliteStore(tmp_path, clock=clock).close()
    found = {file.name: file.read_bytes() for file in tmp_path.glob("log.db.damaged-*")}
    name = f"log.db.damaged-{STAMP}"
    assert found == {name: b"one", f"{name}-2": b"two", f"{name}-3": b"three"}
