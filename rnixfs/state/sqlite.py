"""The log on disk: one SQLite file, one connection that writes.

What each level of `synchronous` survives, once an event was acknowledged:

| level | the daemon killed (`kill -9`) | power cut, or the host's kernel stopped |
|---|---|---|
| `off` | everything is there | the last events may be gone, the file may be damaged |
| `normal` | everything is there | the last events may be gone, since the last checkpoint; never damaged |
| `full` | everything is there | everything is there, at the price of an fsync an event or batch |

Journals (traces and logs) may lose their last `limits.JOURNAL_SECONDS` in any of these cases.

Every call is one transaction, which holds whatever waits together with the new event. Nothing that belongs to
a transaction is taken for granted before its COMMIT came back without an error; after an error it is rolled
back, and what must not be lost is written anew, never merely committed again.
"""

import contextlib
import os
import pathlib
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any, NoReturn

from rnixfs import limits
from rnixfs.errors import SyscallError, from_oserror
from rnixfs.state import codec, collecting, journals, opening, schema
from rnixfs.state.archive import Pending, Readable, Reader
from rnixfs.state.content import Contents
from rnixfs.state.failures import failure, reporting
from rnixfs.state.lock import FolderLock
from rnixfs.state.store import Collected, Keep, Record, Retention

_INSERT = "INSERT INTO events (seq, ts, event, pid, data, crc, key) VALUES (?, ?, ?, ?, ?, ?, ?)"
_REFER = "INSERT OR IGNORE INTO refs VALUES (?, ?)"


class SqliteStore(Readable):
    """The log in a folder of the host.

    Args:
        folder: the state folder; made with mode 0700 if it is not there.
        synchronous: `off`, `normal` or `full`; see above.
        mountpoint: what the daemon serves, for the words of the lock.
        clock: gives the time of an event, in seconds since 1970.
        timer: gives seconds that only grow.

    Raises:
        SyscallError: SERVICE_UNAVAILABLE if another daemon has the folder, INVALID for the file of a newer
            version or of another program, or an unknown level; the host's own reason otherwise. A damaged
            file is none: it is set aside, and `notice` says what was saved.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        synchronous: str = "normal",
        mountpoint: str = "",
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = folder / opening.FILE
        self._clock = clock
        self._timer = timer
        opening.make_folder(folder)
        self._lock = FolderLock(folder, mountpoint)
        try:
            self._db, self.notice = opening.open_log(self.path, synchronous, clock)
            self.uuid, self._seq, self._last_pid, last_content = schema.Numbers.of(self._db)
        except BaseException:
            self._lock.release()
            raise
        self._contents = Contents(self._db, last_content)
        self._pending: list[Pending] = []  # what `VITAL` left, then what an open batch holds
        self._batch: list[Keep] | None = None  # how the last ones of `_pending` are kept
        self._waiting = journals.Waiting()
        self._retry_at = 0.0  # lazy writes wait until then after a failure
        self._reader = Reader(self._db, self.path, self._contents, self._pending)

    # --- events ---

    def append_event(self, event: str, pid: int, data: dict[str, Any], keep: Keep = Keep.NOW) -> Record:
        encoded = codec.encode(data)
        record = Record(self._seq + 1, float(self._clock()), event, pid, data)
        one = Pending(record, encoded, codec.key_of(data))
        if self._batch is not None:
            self._pending.append(one)
            self._batch.append(keep)
        else:
            self._append(one, keep)
        self._seq = record.seq
        self._last_pid = max(self._last_pid, pid)
        return record

    def _append(self, one: Pending, keep: Keep) -> None:
        try:
            self._keep([*self._pending, one])
        except SyscallError:
            if keep is Keep.NOW:
                raise
            self._pending.append(one)
        else:
            self._pending.clear()

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Events that are kept together or not at all; see `store.Log`."""
        if self._batch is not None:
            yield
            return
        batch = self._batch = []
        try:
            yield
            self._keep(self._pending)
            self._pending.clear()
        except BaseException:
            self._undo(batch)
            self._batch = None
            with contextlib.suppress(SyscallError):
                self.settle()
            raise
        finally:
            self._batch = None

    def _undo(self, batch: list[Keep]) -> None:
        """Forget the `NOW` events of a batch; the others wait, with the numbers that are free."""
        start = len(self._pending) - len(batch)
        events = self._pending[start:]
        del self._pending[start:]
        self._seq -= len(events)
        for one, keep in zip(events, batch, strict=True):
            if keep is Keep.VITAL:
                self._seq += 1
                one.record.seq = self._seq
                self._pending.append(one)

    # --- journals ---

    def append_journal(self, pid: int, name: str, data: bytes) -> None:
        self._waiting.add((pid, name), data, self._timer())
        if self._batch is None and self._due():
            # Whoever writes a trace has no use for the failure, and everything goes on waiting.
            with contextlib.suppress(SyscallError):
                self.settle()

    def read_journal(self, pid: int, name: str) -> bytes:
        with reporting(self.path, "read a journal"):
            return journals.read_blocks(self._db, (pid, name)) + self._waiting.text((pid, name))

    def settle(self) -> None:
        if self._batch is not None or not (self._pending or self._waiting):
            return
        try:
            self._write(self._pending, everything=True)
        except SyscallError:
            # Events are small; there may be room for them and none for the journals.
            if self._pending and self._waiting:
                self._write(self._pending)
                self._pending.clear()
            raise
        self._pending.clear()

    def sync(self) -> None:
        self.settle()
        # The log and what was written ahead of it are one only together; the folder holds their names.
        for path in (self.path.with_name(f"{self.path.name}-wal"), self.path, self.path.parent):
            try:
                self._sync(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise from_oserror(error, f"cannot sync {path}: {error.strerror}") from error

    @staticmethod
    def _sync(path: pathlib.Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    # --- the archive ---

    def collect(self, keep: Retention, pinned: Collection[int] = ()) -> Collected:
        with contextlib.suppress(SyscallError):
            self.settle()
        # On a full disk there is still room in the write-ahead log, once that may begin anew.
        with contextlib.suppress(sqlite3.Error):
            self._db.execute("PRAGMA wal_checkpoint").fetchone()
        numbers = schema.Numbers(self.uuid, self._seq, self._last_pid, self._contents.last)
        try:
            self._db.execute("BEGIN IMMEDIATE")
            numbers.write(self._db)
            collected = collecting.collect(self._db, keep, pinned, self._clock())
            self._commit()
        except BaseException as error:
            self._fail(error)
        self._contents.forget()
        with contextlib.suppress(sqlite3.Error):
            collecting.give_back(self._db)
        return collected

    def close(self) -> None:
        with contextlib.suppress(SyscallError):
            self.settle()
            # The blocks of journals that were put together have left holes.
            with reporting(self.path, "give back room"):
                collecting.give_back(self._db)
        self._db.close()
        self._lock.release()

    # --- writing ---

    def _keep(self, events: list[Pending]) -> None:
        """Put events on disk, and journals that are due unless these are what finds no room."""
        if self._due():
            with contextlib.suppress(SyscallError):
                self._write(events, everything=True)
                return
        self._write(events)

    def _write(self, events: list[Pending], *, everything: bool = False) -> None:
        """Put events on disk in one transaction, with the journals of the processes that are over.

        Args:
            events: all that wait, in order.
            everything: whether all journals go along.
        """
        over = [one.record.pid for one in events if one.record.event == "reap"]
        keys = self._waiting.keys(None if everything else over) if everything or over else []
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for one in events:
                self._insert(one)
            for key in keys:
                journals.write_block(self._db, key, self._waiting.text(key))
            for pid in over:
                journals.merge(self._db, pid)
            self._commit()
        except BaseException as error:
            self._fail(error)
        if keys:
            self._waiting.drop(keys)

    def _due(self) -> bool:
        if not self._waiting:
            return False
        now = self._timer()
        return now >= self._retry_at and self._waiting.due(now)

    def _insert(self, one: Pending) -> None:
        record = one.record
        stored, used = self._contents.pack(one.encoded)
        crc = schema.checksum(record.seq, record.ts, record.event, record.pid, stored)
        key = None if one.key is None else codec.sql_text(one.key)
        row = (record.seq, record.ts, record.event, record.pid, _column(stored), crc, key)
        self._db.execute(_INSERT, row)
        if used:
            owner = record.pid or -record.seq
            self._db.executemany(_REFER, [(owner, number) for number in used])
        if record.event in schema.NOTED:
            schema.note(self._db, record.event, record.pid, record.ts, codec.decode(one.encoded))

    def _commit(self) -> None:
        self._db.execute("COMMIT")

    def _fail(self, error: BaseException) -> NoReturn:
        """Undo a transaction, and tell why in the words of system calls."""
        self._contents.forget()
        self._retry_at = self._timer() + limits.JOURNAL_SECONDS
        # SQLite itself may have ended the transaction, and will not do it twice; if it cannot end it now, the
        # next attempt begins with the same error and comes here again.
        if self._db.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error):
            raise failure(error, self.path, "keep an event") from error
        raise error


def _column(stored: bytes) -> str | bytes:
    try:
        return stored.decode()
    except UnicodeDecodeError:  # lone surrogates
        return stored
