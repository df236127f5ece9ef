"""Removing what is beyond the retention from the log's file, inside one transaction."""

import sqlite3
from collections.abc import Collection

from rnixfs import limits
from rnixfs.state import codec, retention, schema
from rnixfs.state.store import Collected, Entry, Retention

_FINISHED = """
SELECT pid, uuid, coalesce(exited, reaped) AS ended FROM processes
WHERE reaped IS NOT NULL ORDER BY ended, pid
"""
_CREATORS = """
WITH RECURSIVE needed (pid) AS (
    SELECT pid FROM processes WHERE reaped IS NULL
    UNION SELECT processes.ppid FROM processes JOIN needed USING (pid)
) SELECT pid FROM needed
"""
_CONTENTS = """
DELETE FROM content WHERE id IN (SELECT content FROM refs WHERE owner = :owner)
AND NOT EXISTS (SELECT 1 FROM refs WHERE refs.content = content.id AND refs.owner <> :owner)
"""
_ASKED = (
    f"SELECT seq FROM events WHERE pid = 0 AND ts < ? AND event IN ({', '.join('?' * len(retention.ASKED))})"
)
_PIPES = f"""
SELECT seq, event, CAST(data AS BLOB) FROM events
WHERE pid = 0 AND event IN ({", ".join("?" * len(retention.PIPES))}) ORDER BY seq
"""
_EVENTS_MAX = 50  # events of the system that count as one process
_PAGES_MAX = 4096  # pages given back to the host at once


class Removal:
    """One removal from the log.

    Args:
        db: the log, in a transaction.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.processes: list[Entry] = []
        self.events = 0
        self.contents = 0

    def process(self, entry: Entry) -> None:
        """Remove everything about a process."""
        self.events += self._db.execute("DELETE FROM events WHERE pid = ?", (entry.pid,)).rowcount
        self._db.execute("DELETE FROM journals WHERE pid = ?", (entry.pid,))
        self._db.execute("DELETE FROM processes WHERE pid = ?", (entry.pid,))
        self._owner(entry.pid)
        self.processes.append(entry)

    def event(self, seq: int) -> None:
        """Remove an event of the system."""
        self.events += self._db.execute("DELETE FROM events WHERE seq = ?", (seq,)).rowcount
        self._owner(-seq)

    def _owner(self, owner: int) -> None:
        self.contents += self._db.execute(_CONTENTS, {"owner": owner}).rowcount
        self._db.execute("DELETE FROM refs WHERE owner = ?", (owner,))


def collect(db: sqlite3.Connection, keep: Retention, pinned: Collection[int], now: float) -> Collected:
    """Remove what is beyond `keep`; see `store.Archive.collect`."""
    before = used_bytes(db)
    removal = Removal(db)
    finished = [Entry(*row) for row in db.execute(_FINISHED)]
    spared = {*pinned, *(pid for (pid,) in db.execute(_CREATORS))}
    old = retention.beyond(finished, spared, keep, now)
    for entry in old[: limits.COLLECT_MAX]:
        removal.process(entry)
    worthless = _worthless(db, now - keep.days * retention.DAY)
    room = limits.COLLECT_MAX * _EVENTS_MAX
    for seq in worthless[:room]:
        removal.event(seq)
    rest = retention.removable(finished, {*spared, *(entry.pid for entry in removal.processes)})
    more = len(old) > limits.COLLECT_MAX or len(worthless) > room
    more = _make_room(db, removal, rest, keep.bytes) or more
    saved = before - used_bytes(db)
    return Collected(removal.processes, removal.events, removal.contents, saved, more)


def used_bytes(db: sqlite3.Connection) -> int:
    """The size of what is in the file, without the room that is free in it."""
    return (_pragma(db, "page_count") - _pragma(db, "freelist_count")) * schema.PAGE_SIZE


def give_back(db: sqlite3.Connection) -> None:
    """Cut free room off the end of the file, no more than takes a moment."""
    # The statement must run to its end, which `execute` sees in its first row.
    db.executescript(f"PRAGMA incremental_vacuum({_PAGES_MAX})")


def _make_room(db: sqlite3.Connection, removal: Removal, rest: list[Entry], size: int) -> bool:
    """Remove processes until the log is no larger than `size` bytes; True if time, not need, ended that."""
    for entry in rest:
        if used_bytes(db) <= size:
            return False
        if len(removal.processes) >= limits.COLLECT_MAX:
            return True
        removal.process(entry)
    return False


def _worthless(db: sqlite3.Connection, oldest: float) -> list[int]:
    asked = [seq for (seq,) in db.execute(_ASKED, (oldest, *retention.ASKED))]
    rows = db.execute(_PIPES, retention.PIPES)
    # What pipes moved may be long and is kept elsewhere; their numbers and sizes stand in the event itself.
    pipes = retention.settled_pipes((seq, event, codec.decode(stored)) for seq, event, stored in rows)
    return asked + list(pipes)


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])
