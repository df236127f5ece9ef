"""Files of other versions, of other programs, and of another daemon that runs."""

import os
import pathlib
import sqlite3
from typing import Any

import pytest

from rnixfs.errors import Code, SyscallError
from rnixfs.state import codec, schema
from rnixfs.state.content import Contents
from rnixfs.state.sqlite import SqliteStore
from tests.state.storelab import events_of, line_of, python, run, uuid_of

LONG_KEY = "key " * 40


def version_1(path: pathlib.Path) -> str:
    """A log as version 1 kept it: processes 1 (over) and 2, and three events with keys; returns its uuid."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN")
    schema.create_version_1(db)
    contents = Contents(db, 0)
    events: list[tuple[str, int, dict[str, Any]]] = [
        ("spawn", 1, {"uuid": uuid_of(1), "ppid": 0, "prompt": "long " * 50}),
        ("request", 1, {"key": "short", "text": "\ud800"}),
        ("exit", 1, {"inner": {"key": "short"}}),
        ("reap", 1, {}),
        ("spawn", 2, {"uuid": uuid_of(2), "ppid": 1, "key": LONG_KEY}),
        ("request", 0, {"key": "short"}),
    ]
    for seq, (event, pid, data) in enumerate(events, 1):
        stored, used = contents.pack(codec.encode(data))
        row = (seq, float(seq), event, pid, stored, schema.checksum(seq, float(seq), event, pid, stored))
        db.execute("INSERT INTO events VALUES (?, ?, ?, ?, CAST(? AS TEXT), ?)", row)
        db.executemany("INSERT INTO refs VALUES (?, ?)", [(pid or -seq, number) for number in used])
        schema.note(db, event, pid, float(seq), data)
    uuid = schema.meta(db, "uuid")
    db.execute("COMMIT")
    db.close()
    return uuid


def test_a_file_of_version_1_becomes_one_of_today(tmp_path: pathlib.Path):
    """All that version 1 kept is there, what is new is filled in, and it is done once."""
    uuid = version_1(tmp_path / "log.db")
    store = SqliteStore(tmp_path)
    assert (store.uuid, store.notice) == (uuid, "")
    assert [record.seq for record in store.keyed("short")] == [2, 6]
    assert [record.seq for record in store.keyed(LONG_KEY)] == [5]
    assert store.keyed("short")[0].data == {"key": "short", "text": "\ud800"}
    assert [entry.pid for entry in store.finished()] == [1]
    assert store.unfinished() == [2]
    assert next(iter(store.load(1))).data["prompt"] == "long " * 50
    assert store.append_event("request", 0, {"key": "short"}).seq == 7
    store.close()
    again = SqliteStore(tmp_path)
    assert [record.seq for record in again.keyed("short")] == [2, 6, 7]
    again.close()


def test_a_migration_that_fails_changes_nothing(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    """All steps to today's version are one transaction."""
    version_1(tmp_path / "log.db")
    step = schema.MIGRATIONS[2]

    def fails(db: sqlite3.Connection) -> None:
        step(db)
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setitem(schema.MIGRATIONS, 2, fails)
    with pytest.raises(SyscallError, match="disk I/O error"):
        SqliteStore(tmp_path)
    monkeypatch.undo()
    db = sqlite3.connect(tmp_path / "log.db")
    assert db.execute("PRAGMA user_version").fetchone() == (1,)
    assert "key" not in [row[1] for row in db.execute("PRAGMA table_info(events)")]
    db.close()
    store = SqliteStore(tmp_path)
    assert len(store.keyed("short")) == 2
    store.close()


def test_every_version_has_its_step():
    """The table of migrations leads from nothing to today's version without a hole."""
    assert list(schema.MIGRATIONS) == list(range(1, schema.VERSION + 1))


def test_a_file_of_a_newer_version_is_refused_and_left_alone(tmp_path: pathlib.Path):
    """The sentence says what, where and what would be right; the file stays as it is, and unlocked."""
    SqliteStore(tmp_path).close()
    db = sqlite3.connect(tmp_path / "log.db")
    db.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    db.close()
    before = (tmp_path / "log.db").read_bytes()
    for _ in range(2):
        with pytest.raises(SyscallError, match=r"log\.db was written by a newer rnixfs: .*install") as caught:
            SqliteStore(tmp_path)
        assert caught.value.code is Code.INVALID
    assert (tmp_path / "log.db").read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["lock", "log.db"]


def test_a_file_of_another_program_is_refused_and_left_alone(tmp_path: pathlib.Path):
    """A sound file that is not ours is not damaged, and not ours to move."""
    db = sqlite3.connect(tmp_path / "log.db")
    db.execute("CREATE TABLE addresses (name TEXT)")
    db.close()
    before = (tmp_path / "log.db").read_bytes()
    with pytest.raises(SyscallError, match=r"log\.db belongs to another program") as caught:
        SqliteStore(tmp_path)
    assert caught.value.code is Code.INVALID
    assert (tmp_path / "log.db").read_bytes() == before


# --- one daemon a folder ---

HOLDER = """
import pathlib, sys
from rnixfs.state.sqlite import SqliteStore
store = SqliteStore(pathlib.Path(sys.argv[1]), mountpoint="/mnt/of the other")
store.append_event("spawn", 1, {"uuid": "u"})
print("open", flush=True)
sys.stdin.read()
"""


def test_a_second_daemon_is_refused(tmp_path: pathlib.Path):
    """The folder belongs to one process; the refusal names it, and it is free when that one is gone."""
    with python("-c", HOLDER, str(tmp_path)) as holder:
        assert line_of(holder) == "open\n"
        words = rf"in use by the daemon with pid {holder.pid}, which serves /mnt/of the other; .*--state"
        for _ in range(2):
            with pytest.raises(SyscallError, match=words) as caught:
                SqliteStore(tmp_path)
            assert caught.value.code is Code.SERVICE_UNAVAILABLE
    store = SqliteStore(tmp_path)
    assert store.unfinished() == [1]
    store.close()


def test_two_logs_in_one_process_exclude_each_other_too(disk: SqliteStore):
    """The lock belongs to the open log, not to the process."""
    with pytest.raises(SyscallError, match=f"in use by the daemon with pid {os.getpid()};"):
        SqliteStore(disk.path.parent)
    run(disk, 1)
    assert len(events_of(disk, [1])) == 5
    disk.close()
    SqliteStore(disk.path.parent).close()
