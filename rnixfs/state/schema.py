"""The tables of the log's file, and how a file of an older version becomes one of this.

    meta       what there is one of: `uuid` of the log; `last_pid`, `last_seq`, `last_content` as of the last
               removal, since numbers are never given twice
    processes  a row for each `spawn`; `exited` and `reaped` are times in seconds since 1970
    events     `seq` grows by one; `key` is the idempotency key; `crc` is over all other columns but `key`
    content    texts kept once; `size` is in bytes before compression
    refs       who needs which content: `owner` is a pid, or -seq for an event of the system (pid 0)
    journals   blocks of traces and logs, compressed, in order of `id`; `size` as above

`PRAGMA user_version` is the version. Each row of `MIGRATIONS` leads from the version before to its own.
"""

import pathlib
import sqlite3
import uuid
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

from rnixfs.errors import SyscallError, invalid
from rnixfs.state import codec
from rnixfs.state.content import Contents
from rnixfs.state.failures import DamagedError

VERSION = 2
APPLICATION = 0x726E6978  # "rnix", by which `file` and other programs know the log
PAGE_SIZE = 4096  # bytes

NOTED = ("spawn", "exit", "reap")  # events that change the row of a process
TABLES = ("meta", "processes", "events", "content", "refs", "journals")

_VERSION_1 = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value);
CREATE TABLE processes
    (pid INTEGER PRIMARY KEY, uuid TEXT, ppid INTEGER, started REAL, exited REAL, reaped REAL);
CREATE INDEX processes_uuid ON processes (uuid);
CREATE INDEX processes_live ON processes (pid) WHERE reaped IS NULL;
CREATE TABLE events (seq INTEGER PRIMARY KEY, ts REAL, event TEXT, pid INTEGER, data TEXT, crc INTEGER);
CREATE INDEX events_pid ON events (pid);
CREATE TABLE content (id INTEGER PRIMARY KEY, hash BLOB UNIQUE, size INTEGER, data BLOB);
CREATE TABLE refs (owner INTEGER, content INTEGER, PRIMARY KEY (owner, content)) WITHOUT ROWID;
CREATE INDEX refs_content ON refs (content);
CREATE TABLE journals (id INTEGER PRIMARY KEY, pid INTEGER, name TEXT, size INTEGER, data BLOB);
CREATE INDEX journals_pid ON journals (pid, name);
"""


def checksum(seq: int, ts: float, event: str, pid: int, stored: bytes) -> int:
    """CRC-32 of an event as it is stored: SQLite itself would not notice a changed letter."""
    return zlib.crc32(stored, zlib.crc32(f"{seq} {ts!r} {pid} {event}".encode()))


def create_version_1(db: sqlite3.Connection) -> None:
    """Make the tables of version 1 in an empty file, inside a transaction."""
    for statement in filter(str.strip, _VERSION_1.split(";")):
        db.execute(statement)
    db.execute("INSERT INTO meta VALUES ('uuid', ?)", (str(uuid.uuid4()),))
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.execute("PRAGMA user_version = 1")


def _add_keys(db: sqlite3.Connection) -> None:
    """Version 2: events are found by their idempotency key."""
    db.execute("ALTER TABLE events ADD COLUMN key TEXT")
    db.execute("CREATE INDEX events_key ON events (key) WHERE key IS NOT NULL")
    find_keys(db)


def find_keys(db: sqlite3.Connection) -> None:
    """Fill the column `key` from the data of all events."""
    contents = Contents(db, 0)
    rows = db.execute(
        "SELECT seq, CAST(data AS BLOB) FROM events WHERE instr(CAST(data AS BLOB), ?)", (b'"key"',)
    )
    found = [(_key(contents, seq, stored), seq) for seq, stored in rows]
    db.executemany("UPDATE events SET key = ? WHERE seq = ?", found)


def _key(contents: Contents, seq: int, stored: bytes) -> str | bytes | None:
    try:
        key = codec.key_of(contents.unpack(stored))
    except ValueError as error:
        raise DamagedError(f"event {seq}", str(error)) from error
    return None if key is None else codec.sql_text(key)


MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {1: create_version_1, 2: _add_keys}


def look(db: sqlite3.Connection, path: pathlib.Path) -> int:
    """The version of the file, 0 for an empty one, before anything is changed in it.

    Raises:
        SyscallError: INVALID for the file of a newer version, and for one of another program.
        DamagedError: if the tables are not all there.
    """
    version = _number(db, "user_version")
    names = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if (names or version) and _number(db, "application_id") != APPLICATION:
        raise invalid(
            f"{path} belongs to another program; move it away, or choose another folder with --state"
        )
    if version > VERSION:
        raise _newer(path, version)
    if version and not names >= set(TABLES):
        raise DamagedError(f"the log {path}", f"without {', '.join(sorted(set(TABLES) - names))}")
    return version


def shape(db: sqlite3.Connection) -> None:
    """Say how a new file is laid out, before it has any table."""
    db.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    db.execute("PRAGMA auto_vacuum = incremental")


def migrate(db: sqlite3.Connection, version: int) -> None:
    """Bring a file from a version to this one, in one transaction."""
    if version == VERSION:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        for number in range(version + 1, VERSION + 1):
            MIGRATIONS[number](db)
            db.execute(f"PRAGMA user_version = {number}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _newer(path: pathlib.Path, version: int) -> SyscallError:
    return invalid(
        f"{path} was written by a newer rnixfs: it has version {version}, this one knows up to {VERSION}; "
        "install that release again, or choose another folder with --state"
    )


def _number(db: sqlite3.Connection, pragma: str) -> int:
    return int(db.execute(f"PRAGMA {pragma}").fetchone()[0])


def meta(db: sqlite3.Connection, name: str) -> str:
    """A value of the table `meta`, empty if there is none."""
    found = db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return str(found[0]) if found else ""


def set_meta(db: sqlite3.Connection, name: str, value: str) -> None:
    """Keep a value in the table `meta`."""
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))


class Numbers(NamedTuple):
    """What the log has given out, so that nothing is given out twice.

    Args:
        uuid: the log's own name.
        seq: the highest number of an event ever.
        pid: the highest pid of an event ever.
        content: the highest number of a text ever.
    """

    uuid: str
    seq: int
    pid: int
    content: int

    @classmethod
    def of(cls, db: sqlite3.Connection) -> "Numbers":
        """Those of a file: what `write` left, or what came after."""
        seq = _highest(db, "last_seq", "SELECT max(seq) FROM events")
        pid = _highest(db, "last_pid", "SELECT max(pid) FROM events")
        content = _highest(db, "last_content", "SELECT max(id) FROM content")
        return cls(meta(db, "uuid"), seq, pid, content)

    def write(self, db: sqlite3.Connection) -> None:
        """Keep them beyond the removal of what they belong to."""
        for name, value in zip(("uuid", "last_seq", "last_pid", "last_content"), self, strict=True):
            set_meta(db, name, str(value))


def _highest(db: sqlite3.Connection, name: str, query: str) -> int:
    return max(number(meta(db, name)), db.execute(query).fetchone()[0] or 0)


def number(text: str) -> int:
    """A number of the table `meta`; what is none is none yet."""
    return int(text) if text.isdecimal() else 0


def note(db: sqlite3.Connection, event: str, pid: int, ts: float, data: dict[str, Any]) -> None:
    """Keep the row of a process up to date with an event of it."""
    if event == "spawn":
        row = (pid, codec.sql_text(str(data.get("uuid", ""))), data.get("ppid") or 0, ts)
        db.execute("INSERT OR REPLACE INTO processes (pid, uuid, ppid, started) VALUES (?, ?, ?, ?)", row)
    elif event == "exit":
        db.execute("UPDATE processes SET exited = ? WHERE pid = ?", (ts, pid))
    elif event == "reap":
        db.execute("UPDATE processes SET reaped = ? WHERE pid = ?", (ts, pid))
