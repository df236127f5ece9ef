"""The log on disk: what another process finds after a kill, who may read it, and how large it is."""

import contextlib
import errno
import os
import pathlib
import random
import sqlite3
import stat

import pytest

from rnixfs import limits
from rnixfs.errors import Code, SyscallError
from rnixfs.state.sqlite import SqliteStore
from rnixfs.state.store import Keep, Retention
from tests.state.storelab import Clock, end, events_of, line_of, numbers, prose, python, reopen, run, told

WRITER = """
import pathlib, sys
from rnixfs.state.sqlite import SqliteStore
store = SqliteStore(pathlib.Path(sys.argv[1]), synchronous=sys.argv[2])
number = store.append_event("spawn", 1, {"uuid": "u"}).seq
while True:
    print(number, flush=True)
    if number % 5:
        number = store.append_event("step", 1, {"text": f"answer to number {number} " * 20}).seq
    else:
        with store.batch():
            for _ in range(3):
                number = store.append_event("step", 1, {"small": number}).seq
"""


@pytest.mark.parametrize(
    ("synchronous", "acknowledged"), [("off", 40), ("normal", 1), ("normal", 77), ("full", 25)]
)
def test_kill_loses_nothing_that_was_acknowledged(
    tmp_path: pathlib.Path, synchronous: str, acknowledged: int
):
    """After `kill -9` in the middle of its work every event that the daemon told of is there, once."""
    with python("-c", WRITER, str(tmp_path), synchronous) as writer:
        last = [int(line_of(writer)) for _ in range(acknowledged)][-1]
        writer.kill()
        # What it told between our last look and its end counts too; its last line may be cut off.
        told_since = writer.communicate()[0].splitlines(keepends=True)
    last = max([last, *(int(line) for line in told_since if line.endswith("\n"))])
    store = SqliteStore(tmp_path)
    records = list(store.load(1))
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    assert len(records) >= last
    assert store.append_event("step", 1, {}).seq == len(records) + 1
    assert store.notice == ""
    store.close()


def test_another_connection_sees_an_event_at_once(disk: SqliteStore):
    """When `append_event` has returned, the event is in the file for everybody."""
    for number in range(1, 20):
        disk.append_event("step", 1, {"text": f"{number} " * 100})
        assert numbers(disk, "SELECT max(seq) FROM events") == [number]


def test_another_connection_sees_a_batch_only_as_a_whole(disk: SqliteStore):
    """Nothing of a batch is in the file before its end."""
    with disk.batch():
        run(disk, 1)
        assert numbers(disk, "SELECT count(*) FROM events") == [0]
    assert numbers(disk, "SELECT count(*) FROM events") == [5]


def test_what_must_be_kept_of_a_batch_that_fails_is_kept_at_once(disk: SqliteStore):
    """A batch that its own code ends takes along only what need not be kept; the rest waits for nothing."""
    with contextlib.suppress(ZeroDivisionError), disk.batch():
        disk.append_event("exit", 1, {}, Keep.VITAL)
        disk.append_event("step", 1, {"number": 1 // 0})
    assert numbers(disk, "SELECT count(*) FROM events WHERE event = 'exit'") == [1]


def test_everything_is_there_after_a_restart(disk: SqliteStore, clock: Clock):
    """Events, entries, keys, journals, numbers and the log's name outlive the daemon."""
    for pid in range(1, 9):
        run(disk, pid, pid - 1, over=pid % 2 == 0)
        clock.now += 1
    disk.append_event("request", 0, {"key": "k", "text": "x" * 500})
    before = (
        events_of(disk, range(9)),
        disk.unfinished(),
        disk.finished(),
        disk.keyed("k"),
        [disk.read_journal(pid, "trace") for pid in range(9)],
        disk.last_pid(),
        disk.uuid,
    )
    again = reopen(disk, clock=clock)
    after = (
        events_of(again, range(9)),
        again.unfinished(),
        again.finished(),
        again.keyed("k"),
        [again.read_journal(pid, "trace") for pid in range(9)],
        again.last_pid(),
        again.uuid,
    )
    assert after == before
    assert again.append_event("boot", 0, {}).seq == max(before[0]) + 1
    again.close()


# --- journals are lazy ---


def blocks(store: SqliteStore) -> int:
    """How many blocks of journals are on disk."""
    return numbers(store, "SELECT count(*) FROM journals")[0]


def test_journals_wait_for_a_moment_and_no_longer(disk: SqliteStore, clock: Clock):
    """Lines wait in memory up to `limits.JOURNAL_SECONDS`, and go to disk with whatever comes then."""
    disk.append_journal(1, "trace", b"one\n")
    disk.append_event("step", 1, {})
    assert blocks(disk) == 0
    clock.now += limits.JOURNAL_SECONDS
    disk.append_event("step", 1, {})
    assert blocks(disk) == 1
    disk.append_journal(1, "trace", b"two\n")
    clock.now += limits.JOURNAL_SECONDS
    disk.append_journal(2, "trace", b"three\n")
    assert blocks(disk) == 3
    assert disk.read_journal(1, "trace") == b"one\ntwo\n"


def test_settle_puts_journals_on_disk(disk: SqliteStore):
    """After `settle` nothing waits."""
    disk.append_journal(1, "trace", b"one\n")
    disk.append_journal(2, "log", b"two\n")
    disk.settle()
    assert blocks(disk) == 2


def test_much_of_a_journal_does_not_wait(disk: SqliteStore):
    """`limits.JOURNAL_BLOCK` bytes go to disk at once."""
    disk.append_journal(1, "trace", bytes(limits.JOURNAL_BLOCK - 1))
    assert blocks(disk) == 0
    disk.append_journal(1, "trace", b"x")
    assert blocks(disk) == 1


def test_the_end_of_a_process_puts_its_journals_into_one_block_each(disk: SqliteStore):
    """With the `reap` event the journals of the process, and only its, are on disk, each in one piece."""
    for number in range(20):
        for pid in (1, 2):
            disk.append_journal(pid, "trace", b"line %d\n" % number)
        disk.append_journal(1, "log", b"word\n")
        disk.settle()
    disk.append_journal(1, "trace", b"last\n")
    disk.append_journal(2, "trace", b"waits\n")
    run(disk, 1, steps=0)
    assert numbers(disk, "SELECT count(*) FROM journals WHERE pid = 1") == [2]
    assert numbers(disk, "SELECT count(*) FROM journals WHERE pid = 2") == [20]
    assert (
        disk.read_journal(1, "trace") == b"".join(b"line %d\n" % number for number in range(20)) + b"last\n"
    )


def test_large_blocks_are_not_written_again(disk: SqliteStore):
    """Tidying up takes no longer for a longer journal: only small blocks between large ones are joined."""
    rng = random.Random(5)
    parts = [
        prose(rng, size) for size in (10, 20, limits.JOURNAL_BLOCK, 30, 40, limits.JOURNAL_BLOCK + 1, 50)
    ]
    for part in parts:
        disk.append_journal(1, "trace", part.encode())
        disk.settle()
    run(disk, 1, steps=0)
    assert numbers(disk, "SELECT size FROM journals ORDER BY id") == [
        30,
        limits.JOURNAL_BLOCK,
        70,
        limits.JOURNAL_BLOCK + 1,
        50,
    ]
    assert disk.read_journal(1, "trace") == "".join(parts).encode()


# --- the files ---


def modes(folder: pathlib.Path) -> dict[str, int]:
    """The permission bits of all files of a folder."""
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


def test_the_log_is_its_owners_alone(tmp_path: pathlib.Path):
    """Folders that are made have mode 0700, files 0600, whatever the mask; wider files are closed."""
    folder = tmp_path / "a" / "b"
    before = os.umask(0)
    try:
        store = SqliteStore(folder)
        run(store, 1)
        assert modes(folder) == dict.fromkeys(["lock", "log.db", "log.db-wal", "log.db-shm"], 0o600)
        assert [stat.S_IMODE(one.stat().st_mode) for one in (folder, folder.parent)] == [0o700, 0o700]
        store.close()
        store.path.chmod(0o644)
        SqliteStore(folder).close()
        assert modes(folder)["log.db"] == 0o600
    finally:
        os.umask(before)


def test_a_folder_that_was_there_keeps_its_mode(tmp_path: pathlib.Path):
    """Whoever names a folder of their own decides who may look into it."""
    tmp_path.chmod(0o755)
    SqliteStore(tmp_path).close()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_an_unknown_level_is_refused(tmp_path: pathlib.Path):
    """`synchronous` is one of three words, and a refusal holds no lock."""
    with pytest.raises(SyscallError, match="off, normal, full") as caught:
        SqliteStore(tmp_path, synchronous="extra")
    assert caught.value.code is Code.INVALID
    SqliteStore(tmp_path).close()


def test_a_folder_that_cannot_be_made_says_why(tmp_path: pathlib.Path):
    """The host's reason comes with the name of the folder."""
    (tmp_path / "file").touch()
    with pytest.raises(SyscallError, match=f"{tmp_path}/file/state") as caught:
        SqliteStore(tmp_path / "file" / "state")
    assert caught.value.code is Code.NOT_DIRECTORY


LEVELS = {"off": 0, "normal": 1, "full": 2}


@pytest.mark.parametrize("synchronous", LEVELS)
def test_the_level_is_that_of_sqlite(tmp_path: pathlib.Path, synchronous: str):
    """Each word sets the level of SQLite of that name."""
    store = SqliteStore(tmp_path, synchronous=synchronous)
    assert store._db.execute("PRAGMA synchronous").fetchone() == (LEVELS[synchronous],)
    assert store._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


# --- size ---


def hundred_steps(store: SqliteStore, clock: Clock, rng: random.Random) -> int:
    """A run of 100 steps as an agent makes it; returns the bytes of its distinct texts."""
    texts = {"prompt": prose(rng, 6000)}
    store.append_event(
        "spawn", 1, {"uuid": "u", "ppid": 0, "system_prompt": texts["prompt"], "agent": "coder"}
    )
    for step in range(100):
        clock.now += 1
        answer = texts[f"answer {step}"] = prose(rng, rng.randint(1000, 3000))
        output = texts[f"output {step}"] = prose(rng, rng.randint(1000, 3000))
        call = {"id": f"call_{step}", "name": "read_file", "arguments": {"path": f"src/module_{step}.py"}}
        store.append_event("request", 1, {"step": step, "messages": 2 * step + 2, "model": "large-1"})
        store.append_event("answer", 1, {"step": step, "text": answer, "tools": [call], "tokens": 512 + step})
        store.append_event("tool_started", 1, {"step": step, **call})
        store.append_event("tool_finished", 1, {"step": step, "id": call["id"], "output": output, "ok": True})
        said = [{"role": "assistant", "content": answer}, {"role": "tool", "content": output}]
        store.append_event("messages", 1, {"step": step, "added": said})
        store.append_event(
            "step", 1, {"step": step, "action": "read_file", "answer": answer, "output": output}
        )
        for _ in range(8):
            store.append_journal(
                1,
                "trace",
                b'{"ts":%.6f,"pid":1,"call":"Read","path":"/dev/fs/src/module_%d.py","result":%d,"ms":%.3f}\n'
                % (clock.now, step, rng.randrange(4096), rng.random()),
            )
    end(store, 1)
    return sum(len(text.encode()) for text in texts.values())


def test_a_run_takes_little_more_than_its_texts(disk: SqliteStore, clock: Clock):
    """100 steps, trace included, need at most 1.2 times the bytes of their distinct texts."""
    distinct = hundred_steps(disk, clock, random.Random(1))
    assert len(told(disk, 1)) == 603
    disk.close()
    sizes = [file.stat().st_size for file in disk.path.parent.iterdir()]
    assert sum(sizes) <= 1.2 * distinct


def test_gone_room_is_given_back(disk: SqliteStore, clock: Clock):
    """The file becomes smaller when what it held is removed."""
    hundred_steps(disk, clock, random.Random(1))
    disk.append_event("boot", 0, {}, Keep.VITAL)
    collected = disk.collect(Retention(processes=0))
    disk.close()
    assert disk.path.stat().st_size < 100_000
    assert collected.bytes > 200_000


def test_a_sync_reaches_every_file_of_the_log(disk, monkeypatch):
    """The log, what was written ahead of it, and their folder are synced; journals that waited are in it."""
    synced = []
    monkeypatch.setattr("os.fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    disk.append_event("spawn", 1, {"uuid": "u"})
    disk.append_journal(1, "trace", b"a line\n")
    disk.sync()
    assert set(synced) == {str(disk.path), f"{disk.path}-wal", str(disk.path.parent)}
    with sqlite3.connect(f"file:{disk.path}?mode=ro", uri=True) as other:
        assert other.execute("SELECT count(*) FROM events").fetchone() == (1,)
        assert other.execute("SELECT count(*) FROM journals").fetchone() == (1,)


def test_a_sync_that_fails_says_so(disk, monkeypatch):
    """A disk that fails an fsync is told to whoever asked for it."""

    def broken(_fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("os.fsync", broken)
    with pytest.raises(SyscallError, match="cannot sync") as caught:
        disk.sync()
    assert caught.value.code is Code.DRIVER
