"""A damaged log: what is whole goes into a new file, the damaged one is set aside, and a sentence says so.

A new file is whole before it takes the place of the old one, and has a name of its own until then, so an end
in the middle of this is finished by the next start. The damaged file is only read.
"""

import contextlib
import os
import pathlib
import sqlite3
import uuid
from collections.abc import Iterable, Iterator

from rnixfs.state import journals, schema
from rnixfs.state.content import Contents, grow, references
from rnixfs.state.failures import reporting
from rnixfs.state.pages import Pages, Row, Value

_NOTED = f"""
SELECT event, pid, ts, CAST(data AS BLOB) FROM events
WHERE event IN ({", ".join("?" * len(schema.NOTED))}) ORDER BY seq
"""
_STRANGE = "pid <> 0 AND pid NOT IN (SELECT pid FROM events WHERE event = 'spawn')"


def salvage(path: pathlib.Path, stamp: str, reason: str) -> None:
    """Write what is whole of a log into a file beside it, which `finish` puts in its place.

    Args:
        path: the damaged file.
        stamp: the time, for the name under which it is set aside.
        reason: what is wrong with it.

    Raises:
        SyscallError: RESOURCE_EXHAUSTED without room for the new file, DRIVER for other failures to write it.
        OSError: the host's reason.
    """
    draft = path.with_name(path.name + ".salvaging")
    for part in ("-journal", ""):
        draft.with_name(draft.name + part).unlink(missing_ok=True)
    os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    with reporting(draft, "save the events of a damaged log"), _draft(draft) as db:
        _Salvage(db).fill(Pages(path, schema.PAGE_SIZE).rows(), stamp, reason)
    draft.replace(_ready(path))


def finish(path: pathlib.Path) -> str:
    """Put a salvaged log in the place of the damaged one.

    Args:
        path: the log's file.

    Returns:
        A sentence for people; empty if nothing was salvaged.

    Raises:
        OSError: the host's reason.
    """
    ready = _ready(path)
    if not ready.exists():
        return ""
    with contextlib.closing(sqlite3.connect(ready)) as db:
        notice, stamp = schema.meta(db, "notice"), schema.meta(db, "stamp")
    aside = _aside(path, stamp)
    for part in _parts(path):
        _keep(path.with_name(path.name + part), aside.with_name(aside.name + part))
    for part in ("-wal", "-shm"):
        path.with_name(path.name + part).unlink(missing_ok=True)
    ready.replace(path)
    _sync(path.parent)
    return f"{notice} The damaged log is {aside}."


@contextlib.contextmanager
def _draft(draft: pathlib.Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as db:
        schema.shape(db)
        db.execute("PRAGMA synchronous = full")
        schema.migrate(db, 0)
        db.execute("BEGIN")
        yield db
        db.execute("COMMIT")


def _parts(path: pathlib.Path) -> tuple[str, ...]:
    """What is set aside with the file: an empty write-ahead log is only left from looking at the file."""
    log = path.with_name(path.name + "-wal")
    return ("-wal", "-shm", "") if log.exists() and log.stat().st_size else ("",)


def _ready(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(path.name + ".salvaged")


def _aside(path: pathlib.Path, stamp: str) -> pathlib.Path:
    """A name that is free, or that an earlier start gave to this very file."""
    names = [f"{path.name}.damaged-{stamp}{more}" for more in ("", *(f"-{n}" for n in range(2, 1000)))]
    for aside in map(path.with_name, names):
        if not aside.exists() or (path.exists() and aside.samefile(path)):
            return aside
    raise FileExistsError(f"too many damaged logs in {path.parent}")


def _keep(file: pathlib.Path, aside: pathlib.Path) -> None:
    if not file.exists() or aside.exists():
        return
    try:
        aside.hardlink_to(file)
    except OSError:  # a file system without links
        file.rename(aside)


def _sync(folder: pathlib.Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class _Salvage:
    """One new log.

    Args:
        db: its file, with tables and in a transaction.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._meta: dict[str, str] = {}
        self._broken = 0  # events that were found and are not whole

    def fill(self, rows: Iterable[Row], stamp: str, reason: str) -> None:
        """Take all rows that are whole, and make of them what they need to be a log."""
        for rowid, values in rows:
            self._take(rowid, values)
        self._keep_numbers()
        self._refer()
        lost = self._leave_out()
        self._note()
        self._db.execute("DELETE FROM content WHERE id NOT IN (SELECT content FROM refs)")
        schema.find_keys(self._db)
        schema.set_meta(self._db, "stamp", stamp)
        schema.set_meta(self._db, "notice", self._notice(reason, lost))

    # --- single rows ---

    def _take(self, rowid: int, values: list[Value]) -> None:
        match values:
            case [
                None,
                int() | float() as ts,
                str() as event,
                int() as pid,
                str() | bytes() as data,
                int() as crc,
                *_,
            ]:
                self._take_event(rowid, float(ts), event, pid, data, crc)
            case [None, bytes() as known, int() as size, bytes() as kept]:
                if grow(known, size, kept) is not None:
                    self._put("content", rowid, known, size, kept)
            case [None, int() as pid, str() as name, int() as size, bytes() as block]:
                if journals.block_text(size, block) is not None:
                    self._put("journals", rowid, pid, name, size, block)
            case [str() as name, str() as value]:
                self._meta[name] = value

    def _take_event(self, seq: int, ts: float, event: str, pid: int, data: str | bytes, crc: int) -> None:
        stored = data.encode() if isinstance(data, str) else data
        if schema.checksum(seq, ts, event, pid, stored) == crc:
            self._put("events", seq, ts, event, pid, data, crc, None)
        else:
            self._broken += 1

    def _put(self, table: str, *values: Value) -> None:
        self._db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(values))})", values)

    # --- the whole ---

    def _keep_numbers(self) -> None:
        """Nothing is given out twice, so what is left out counts too."""
        found = schema.Numbers.of(self._db)
        before = {
            name: schema.number(self._meta.get(name, "")) for name in ("last_seq", "last_pid", "last_content")
        }
        schema.Numbers(
            valid_uuid(self._meta.get("uuid", "")) or found.uuid,
            max(found.seq, before["last_seq"]),
            max(found.pid, before["last_pid"]),
            max(found.content, before["last_content"]),
        ).write(self._db)

    def _refer(self) -> None:
        """Note who needs which text; an event without its text is not whole."""
        known = {number for (number,) in self._db.execute("SELECT id FROM content")}
        broken: list[tuple[int]] = []
        for seq, pid, stored in self._db.execute("SELECT seq, pid, CAST(data AS BLOB) FROM events"):
            used = references(stored)
            if used <= known:
                rows = [(pid or -seq, number) for number in used]
                self._db.executemany("INSERT OR IGNORE INTO refs VALUES (?, ?)", rows)
            else:
                broken.append((seq,))
        self._db.executemany("DELETE FROM events WHERE seq = ?", broken)
        self._broken += len(broken)

    def _leave_out(self) -> int:
        """Remove what belongs to processes whose start is lost; returns how many they were."""
        rows = self._db.execute(f"SELECT DISTINCT pid FROM events WHERE {_STRANGE}")
        pids = {pid for (pid,) in rows.fetchall()}
        self._db.execute(f"DELETE FROM journals WHERE {_STRANGE}")
        self._db.execute(f"DELETE FROM events WHERE {_STRANGE}")
        self._db.executemany("DELETE FROM refs WHERE owner = ?", [(pid,) for pid in pids])
        return len(pids)

    def _note(self) -> None:
        contents = Contents(self._db, 0)
        for event, pid, ts, stored in self._db.execute(_NOTED, schema.NOTED):
            schema.note(self._db, event, pid, ts, contents.unpack(stored))

    def _notice(self, reason: str, lost: int) -> str:
        ((events,),) = self._db.execute("SELECT count(*) FROM events")
        ((processes,),) = self._db.execute("SELECT count(*) FROM processes")
        return (
            f"{reason[:1].upper()}{reason[1:]}. Saved: {events} events and {processes} processes. Lost: what "
            f"could not be read, {self._broken} events that were not whole, and {lost} processes without "
            "their start."
        )


def valid_uuid(text: str) -> str:
    """The name of a log, empty if that is none."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return ""
