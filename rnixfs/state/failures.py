"""What SQLite reports, as the errors of the system calls."""

import contextlib
import pathlib
import sqlite3
from collections.abc import Iterator

from rnixfs.errors import Code, SyscallError

_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}
_NO_TEXT = "Could not decode"  # how Python, which has no code for it, begins to say that a text is none
_PRIMARY = 0xFF  # the low byte of an extended result code says the kind


class DamagedError(SyscallError):
    """Something in the log is not what was put there.

    Args:
        where: the thing that is damaged, such as "event 12 in /state/log.db".
        how: what was found there, if that is known.
    """

    def __init__(self, where: str, how: str = "") -> None:
        self.what = f"{where} is damaged" + (f" ({' '.join(how.split())})" if how else "")
        super().__init__(Code.DRIVER, f"{self.what} and cannot be read; what else is in the log can be")


def failure(error: sqlite3.Error, path: pathlib.Path, what: str) -> SyscallError:
    """The same failure as a SyscallError.

    Args:
        error: what SQLite said.
        path: the log's file.
        what: what was to be done, such as "keep an event".
    """
    if _kind(error) in _DAMAGED or str(error).startswith(_NO_TEXT):
        return DamagedError(f"the log {path}", str(error))
    if _kind(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM) or _shared_memory_full(error):
        return SyscallError(
            Code.RESOURCE_EXHAUSTED, f"cannot {what}: no room for the log {path} ({error}); free some space"
        )
    return SyscallError(Code.DRIVER, f"cannot {what} in the log {path}: {error}")


@contextlib.contextmanager
def reporting(path: pathlib.Path, what: str) -> Iterator[None]:
    """Turn every error of SQLite inside into a SyscallError; arguments as for `failure`."""
    try:
        yield
    except sqlite3.Error as error:
        raise failure(error, path, what) from error
    except UnicodeDecodeError as error:
        raise DamagedError(f"the log {path}", str(error)) from error


def _kind(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & _PRIMARY


def _shared_memory_full(error: sqlite3.Error) -> bool:
    # The index of the write-ahead log grows by pages that are written for this reason alone.
    return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHMSIZE
