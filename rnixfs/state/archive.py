"""Reading the log's file, together with the events that are not in it yet."""

import pathlib
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from rnixfs.state import codec, schema
from rnixfs.state.content import Contents
from rnixfs.state.failures import DamagedError, reporting
from rnixfs.state.store import Entry, Record

_COLUMNS = "SELECT seq, ts, event, pid, CAST(data AS BLOB), crc FROM events"
_CHUNK = 64  # events read at once: no statement stays open while others write
_ENTRY = "SELECT pid, uuid, reaped, coalesce(exited, reaped) FROM processes"

_Row = tuple[int, float, str, int, bytes | None, int]
_Process = tuple[int, str, float | None, float | None]


class Pending(NamedTuple):
    """An event that is not on disk.

    Args:
        record: the event.
        encoded: its data when it was appended, whatever the caller did to it since.
        key: its idempotency key.
    """

    record: Record
    encoded: bytes
    key: str | None

    def whole(self) -> Record:
        """The event as it was appended."""
        record = self.record
        return Record(record.seq, record.ts, record.event, record.pid, codec.decode(self.encoded))


class Reader:
    """What is in a log.

    Args:
        db: its file.
        path: where that is, for error messages.
        contents: its texts.
        pending: the events that wait, in order; the list is the writer's and changes.
    """

    def __init__(
        self, db: sqlite3.Connection, path: pathlib.Path, contents: Contents, pending: Sequence[Pending]
    ) -> None:
        self._db = db
        self._path = path
        self._contents = contents
        self._pending = pending

    # --- events ---

    def load(self, pid: int, events: Collection[str] = ()) -> Iterator[Record]:
        """The events of a process; see `store.Store`."""
        names = tuple(events)
        only = f" AND event IN ({', '.join('?' * len(names))})" if names else ""
        query = f"{_COLUMNS} WHERE pid = ? AND seq > ?{only} ORDER BY seq LIMIT {_CHUNK}"
        last = 0
        while chunk := self._fetch(query, (pid, last, *names)):
            last = chunk[-1].seq
            yield from chunk
        for pending in tuple(self._pending):
            record = pending.record
            if record.pid == pid and (not names or record.event in names):
                yield pending.whole()

    def keyed(self, key: str) -> list[Record]:
        """The events with a key; see `store.Archive`."""
        found = self._fetch(f"{_COLUMNS} WHERE key = ? ORDER BY seq", (codec.sql_text(key),))
        return found + [one.whole() for one in self._pending if one.key == key]

    def _fetch(self, query: str, arguments: Sequence[object]) -> list[Record]:
        with reporting(self._path, "read events"):
            return [self._record(row) for row in self._db.execute(query, arguments).fetchall()]

    def _record(self, row: _Row) -> Record:
        seq, ts, event, pid, stored, crc = row
        if stored is None or schema.checksum(seq, ts, event, pid, stored) != crc:
            raise DamagedError(f"event {seq} in {self._path}")
        try:
            return Record(seq, ts, event, pid, self._contents.unpack(stored))
        except (DamagedError, ValueError) as error:
            how = error.what if isinstance(error, DamagedError) else str(error)
            raise DamagedError(f"event {seq} in {self._path}", how) from error

    # --- processes ---

    def unfinished(self) -> list[int]:
        """The pids that are not over; see `store.Archive`."""
        with reporting(self._path, "read processes"):
            pids = {pid for (pid,) in self._db.execute("SELECT pid FROM processes WHERE reaped IS NULL")}
        for pid, event in self._turns():
            if event == "spawn":
                pids.add(pid)
            elif event == "reap":
                pids.discard(pid)
        return sorted(pids)

    def finished(self) -> list[Entry]:
        """The processes that are over; see `store.Archive`."""
        query = "SELECT pid, uuid, coalesce(exited, reaped) FROM processes WHERE reaped IS NOT NULL"
        with reporting(self._path, "read processes"):
            found = [Entry(*row) for row in self._db.execute(query)]
        known = {entry.pid for entry in found}
        waiting = (self.entry(pid) for pid, event in self._turns() if event == "reap" and pid not in known)
        found += [entry for entry in waiting if entry is not None]
        return sorted(found, key=lambda entry: (entry.ended_ts, entry.pid))

    def entry(self, who: int | str) -> Entry | None:
        """The process with a pid or a uuid; see `store.Archive`."""
        column = "pid" if isinstance(who, int) else "uuid"
        value = who if isinstance(who, int) else codec.sql_text(who)
        with reporting(self._path, "read processes"):
            row = self._db.execute(f"{_ENTRY} WHERE {column} = ?", (value,)).fetchone()
        return self._with_turns(who, row)

    def _with_turns(self, who: int | str, row: _Process | None) -> Entry | None:
        pid, uuid, reaped, ended = row or (0, "", None, None)
        for record, encoded, _ in self._pending:
            if record.event == "spawn" and not pid:
                born = str(codec.decode(encoded).get("uuid", ""))
                pid, uuid = (record.pid, born) if who in (record.pid, born) else (0, "")
            elif record.event == "exit" and record.pid == pid:
                ended = record.ts
            elif record.event == "reap" and record.pid == pid:
                reaped, ended = record.ts, record.ts if ended is None else ended
        return Entry(pid, uuid, None if reaped is None else ended) if pid else None

    def _turns(self) -> list[tuple[int, str]]:
        return [(one.record.pid, one.record.event) for one in self._pending]


class Readable:
    """What a log in a file answers by reading; see `store.Store` and `store.Archive`. Whoever opens the file
    sets both fields."""

    _reader: Reader
    _last_pid: int

    def load(self, pid: int, events: Collection[str] = ()) -> Iterator[Record]:
        return self._reader.load(pid, events)

    def last_pid(self) -> int:
        return self._last_pid

    def unfinished(self) -> list[int]:
        return self._reader.unfinished()

    def finished(self) -> list[Entry]:
        return self._reader.finished()

    def entry(self, who: int | str) -> Entry | None:
        return self._reader.entry(who)

    def keyed(self, key: str) -> list[Record]:
        return self._reader.keyed(key)
