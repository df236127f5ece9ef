"""The log of another program, for reading alone: it may be in use by a daemon, whose lock is not asked for.

All that is read is of one moment, and nothing on the host is changed.
"""

import contextlib
import os
import pathlib
import sqlite3
import urllib.parse
from collections.abc import Collection
from typing import Any, NoReturn

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, invalid
from rnixfs.state import journals, opening, schema
from rnixfs.state.archive import Readable, Reader
from rnixfs.state.content import Contents
from rnixfs.state.failures import reporting
from rnixfs.state.store import Collected, Keep, Record, Retention


class ReadOnlyLog(Readable):
    """The log in a file of the host, as it was when it was opened. Implements `store.Log`.

    Args:
        path: the file, or the state folder that it lies in.

    Raises:
        SyscallError: NOT_FOUND where there is none; INVALID for another program's, or one of another version;
            DRIVER for what cannot be read.
    """

    notice = ""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path / opening.FILE if path.is_dir() else path
        if not self.path.is_file():
            raise SyscallError(
                Code.NOT_FOUND, f"there is no log {self.path}; name the log.db of a state folder"
            )
        self._db = _open(self.path)
        try:
            with reporting(self.path, "read"):
                version = schema.look(self._db, self.path)
                _check_version(version, self.path)
                numbers = schema.Numbers.of(self._db)
        except BaseException:
            self._db.close()
            raise
        self.uuid = numbers.uuid
        self._last_pid = numbers.pid
        self._reader = Reader(self._db, self.path, Contents(self._db, 0), ())

    # --- what can be read ---

    def read_journal(self, pid: int, name: str) -> bytes:
        with reporting(self.path, "read a journal"):
            return journals.read_blocks(self._db, (pid, name))

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    # --- what cannot be done ---

    def append_event(self, event: str, pid: int, data: dict[str, Any], keep: Keep = Keep.NOW) -> Record:
        self._refuse()

    def append_journal(self, pid: int, name: str, data: bytes) -> None:
        """Nothing is kept here."""

    def settle(self) -> None:
        """Nothing waits here."""

    def sync(self) -> None:
        """Nothing waits here."""

    def batch(self) -> contextlib.AbstractContextManager[None]:
        """Refuse, as `append_event` does."""
        self._refuse()

    def collect(self, keep: Retention, pinned: Collection[int] = ()) -> Collected:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise SyscallError(Code.READ_ONLY, f"the log {self.path} is open for reading alone")


def _open(path: pathlib.Path) -> sqlite3.Connection:
    """A connection that sees the file as it is now, whatever others write meanwhile."""
    with reporting(path, "open"):
        if not _in_use(path):
            # Without this SQLite would leave two files beside the log, which only a writer takes away.
            db = _connect(path, "mode=ro&immutable=1")
            if not _in_use(path):
                return db
            db.close()
        return _connect(path, "mode=ro")


def _in_use(path: pathlib.Path) -> bool:
    """Whether there may be somebody who writes, or something that is not in the file itself yet."""
    return os.path.exists(f"{path}-wal")


def _connect(path: pathlib.Path, how: str) -> sqlite3.Connection:
    uri = f"file:{urllib.parse.quote(os.path.abspath(path))}?{how}"
    db = sqlite3.connect(uri, uri=True, timeout=limits.LOG_LOCKED_SECONDS, isolation_level=None)
    try:
        db.execute("PRAGMA query_only = ON")
        db.execute("BEGIN")
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()  # from here on it is one moment
    except BaseException:
        db.close()
        raise
    return db


def _check_version(version: int, path: pathlib.Path) -> None:
    if not version:
        raise invalid(f"{path} is empty; name the log.db of a daemon that has run")
    if version < schema.VERSION:
        raise invalid(
            f"{path} is of version {version}, this release reads {schema.VERSION}; start the daemon on it "
            "once, which brings it up to date"
        )
