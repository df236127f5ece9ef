"""Opening the log's file: a new one, one of today, one of an older version, and one that is damaged."""

import contextlib
import datetime
import os
import pathlib
import sqlite3
from collections.abc import Callable

from rnixfs import limits
from rnixfs.errors import from_oserror, invalid
from rnixfs.state import salvage, schema
from rnixfs.state.archive import Reader
from rnixfs.state.content import Contents
from rnixfs.state.failures import DamagedError, reporting

FILE = "log.db"
LEVELS = ("off", "normal", "full")

_WAL_PAGES = 4096  # pages of the write-ahead log from which they are put into the file itself


def make_folder(folder: pathlib.Path) -> None:
    """Make the state folder for its owner alone; one that is there stays as it is.

    Raises:
        SyscallError: the host's reason.
    """
    try:
        for missing in reversed([one for one in (folder, *folder.parents) if not one.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        reason = f"cannot make the state folder {folder}: {error.strerror}; name another one by --state"
        raise from_oserror(error, reason) from error


def open_log(
    path: pathlib.Path, synchronous: str, clock: Callable[[], float]
) -> tuple[sqlite3.Connection, str]:
    """The connection that writes, and a sentence for people if anything happened to the file.

    Args:
        path: the file.
        synchronous: one of `LEVELS`.
        clock: gives the time that names a file which is set aside.

    Raises:
        SyscallError: as `sqlite.SqliteStore`.
    """
    if synchronous not in LEVELS:
        raise invalid(f"synchronous is one of {', '.join(LEVELS)}, not {synchronous!r}")
    try:
        notice = salvage.finish(path)
        size = path.stat().st_size if path.exists() else schema.PAGE_SIZE
        _close_to_others(path)
        db = _connect(path)
        try:
            if size < schema.PAGE_SIZE:  # SQLite would begin anew
                raise DamagedError(f"the log {path}", f"it has {size} bytes")
            _set_up(db, path, synchronous)
        except DamagedError as error:
            # The damaged file stays open meanwhile: closing it would put its write-ahead log into it.
            with contextlib.closing(db):
                salvage.salvage(path, _stamp(clock()), error.what)
                notice = salvage.finish(path)
            db = _connect(path)
            with contextlib.ExitStack() as undo:
                undo.callback(db.close)
                _set_up(db, path, synchronous)
                undo.pop_all()
        return db, notice
    except OSError as error:
        raise from_oserror(error, f"cannot open the log {path}: {error.strerror}") from error


def _close_to_others(path: pathlib.Path) -> None:
    # SQLite gives its other files the mode of this one.
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(fd, 0o600)
    finally:
        os.close(fd)


def _connect(path: pathlib.Path) -> sqlite3.Connection:
    with reporting(path, "open"):
        return sqlite3.connect(path, timeout=limits.LOG_LOCKED_SECONDS, isolation_level=None)


def _set_up(db: sqlite3.Connection, path: pathlib.Path, synchronous: str) -> None:
    """Make a connection ready to write, and the file one of today.

    Raises:
        DamagedError: for a file that is not as it was written; the connection stays open.
        SyscallError: for any other reason; the connection is closed.
    """
    try:
        with reporting(path, "open"):
            version = schema.look(db, path)
            if not version:
                schema.shape(db)
            db.execute("PRAGMA journal_mode = wal").fetchone()
            # What was removed is gone from the disk too, and no salvage brings it back.
            db.execute("PRAGMA secure_delete = on").fetchone()
            db.execute(f"PRAGMA synchronous = {synchronous}")
            db.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
            db.execute(f"PRAGMA journal_size_limit = {_WAL_PAGES * schema.PAGE_SIZE}")
            schema.migrate(db, version)
            _check(db, path)
    except DamagedError:
        raise
    except BaseException:
        db.close()
        raise


def _check(db: sqlite3.Connection, path: pathlib.Path) -> None:
    """Look for damage in the whole file, and word by word in what the start will read.

    Raises:
        DamagedError: for any.
    """
    # The quick one does not compare the indexes with their tables; the other takes 3 s a gigabyte.
    check = "integrity_check" if path.stat().st_size <= limits.LOG_CHECK_BYTES else "quick_check"
    ((found,),) = db.execute(f"PRAGMA {check}(1)")
    if found != "ok":
        raise DamagedError(f"the log {path}", found)
    if not salvage.valid_uuid(schema.meta(db, "uuid")):
        raise DamagedError(f"the log {path}", "its own name is gone")
    reader = Reader(db, path, Contents(db, 0), ())
    for pid in (0, *reader.unfinished()):
        for _ in reader.load(pid):
            pass


def _stamp(now: float) -> str:
    return datetime.datetime.fromtimestamp(now, datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
