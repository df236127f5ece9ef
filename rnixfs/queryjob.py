"""Reads the event store with SQL, in a process of its own.

A statement may come from a model, and some take all time and memory already while SQLite prepares them, when
nothing can interrupt it: forty names that each stand for two of the one before are enough. A child process
can be bounded and killed. It takes one JSON object on its standard input, gives the rows or what was wrong
on its standard output, and starts in some 60 ms. The daemon imports from here only how to talk to it.

Within the child a statement can only read: the connection is read-only, and SQLite asks an authorizer about
everything that the statement wants, before it runs.
"""

import base64
import contextlib
import json
import pathlib
import resource
import signal
import sqlite3
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, denied, invalid
from rnixfs.state import codec
from rnixfs.state.content import Contents, grow
from rnixfs.state.failures import DamagedError, failure

Scalar = str | int | float | None

_STEPS = 10_000  # of SQLite's virtual machine between two looks at the time: well below a millisecond
_EXTRA = 2  # seconds of processor time past the limit after which the host ends a child that did not look
_ORPHAN = 60  # seconds after which a child ends that waits for something, should the daemon be gone
_LIKE_MAX = 1000  # bytes of a pattern, whose cost is the product of its length and that of the text
_PRIVATE = "private"  # how names of tables begin that no query may read
_SCHEMA = "sqlite_master"
_VIRTUAL = ("json_each", "json_tree", "pragma_table_info")  # tables that functions make
_INNOCUOUS = 0x200000  # SQLITE_INNOCUOUS of sqlite3.h: "unlikely to cause problems even if misused"
_JSON = ("json", "->")  # the functions on JSON are as harmless, and only later releases mark them so

_MAY = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE}
_WANTED = {
    sqlite3.SQLITE_ATTACH: "attach another file",
    sqlite3.SQLITE_DETACH: "detach a file",
    sqlite3.SQLITE_INSERT: "insert rows",
    sqlite3.SQLITE_UPDATE: "change rows",
    sqlite3.SQLITE_DELETE: "delete rows",
    sqlite3.SQLITE_TRANSACTION: "begin or end a transaction",
    sqlite3.SQLITE_SAVEPOINT: "set a savepoint",
}
# What SQLite says of a statement; all else is about the log.
_MINE = {
    sqlite3.SQLITE_ERROR: Code.INVALID,
    sqlite3.SQLITE_MISMATCH: Code.INVALID,
    sqlite3.SQLITE_RANGE: Code.INVALID,
    sqlite3.SQLITE_TOOBIG: Code.TOO_LARGE,
    sqlite3.SQLITE_BUSY: Code.SERVICE_UNAVAILABLE,
    sqlite3.SQLITE_LOCKED: Code.SERVICE_UNAVAILABLE,
}


def query(path: str, sql: str, arguments: Sequence[Scalar]) -> bytes:
    """The rows that a statement gives: a JSON object each, one a line.

    Args:
        path: the file of the log.
        sql: one statement.
        arguments: the values of its `?`.

    Raises:
        SyscallError: INVALID with SQLite's own words, PERMISSION for what is more than reading, TIMEOUT,
            TOO_LARGE for too many rows or bytes, RESOURCE_EXHAUSTED for too much memory; DRIVER where the
            log cannot be read.
    """
    guard = _Guard()
    try:
        with contextlib.closing(_connect(path)) as connection:
            guard.watch(connection)
            try:
                return b"".join(_lines(connection.execute(sql, arguments)))
            except (sqlite3.Error, sqlite3.Warning) as error:
                if guard.error is not None:
                    raise guard.error from None
                _raise_mine(error, connection)
                raise
    except sqlite3.Error as error:
        raise failure(error, pathlib.Path(path), "read") from error
    except MemoryError:
        most = f"{limits.QUERY_MEMORY_MAX >> 20} MiB"
        raise SyscallError(
            Code.RESOURCE_EXHAUSTED, f"the query needs more than {most} of memory; make it simpler"
        ) from None


def _connect(path: str) -> sqlite3.Connection:
    uri = f"file:{urllib.parse.quote(path)}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=limits.QUERY_SECONDS)
    connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA temp_store = MEMORY")  # which is bounded, and the disk may be full
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limits.QUERY_BYTES_MAX)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, _LIKE_MAX)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    # What is no UTF-8 is to be seen, not to fail the query.
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    return connection


class _Guard:
    """Says what a statement may do, and for how long; `error` holds why it was ended."""

    def __init__(self) -> None:
        self.error: SyscallError | None = None
        self._deadline = time.process_time() + limits.QUERY_SECONDS
        self._tables: frozenset[str] = frozenset()
        self._functions: frozenset[str] = frozenset()

    def watch(self, connection: sqlite3.Connection) -> None:
        """Stand over a connection from now on."""
        # Used before there is an authorizer: the first use of these tables enters them into the schema.
        connection.execute("SELECT 1 FROM json_each('1'), json_tree('1'), pragma_table_info('x')")
        self._tables = frozenset((*tables(connection), _SCHEMA, *_VIRTUAL))
        self._functions = frozenset((*_harmless(connection), *self._add_functions(connection)))
        connection.set_authorizer(self._authorize)
        connection.set_progress_handler(self._is_over, _STEPS)

    def _add_functions(self, connection: sqlite3.Connection) -> Iterator[str]:
        for name, function in (("text", _text_of), ("whole", _whole_of)):
            connection.create_function(name, 1, self._telling(function(connection)))
            yield name

    def _telling(self, function: Callable[[Any], str | None]) -> Callable[[Any], str | None]:
        """A function whose failure can be told: of an exception SQLite says only that there was one."""

        def call(value: Any) -> str | None:
            try:
                return None if value is None else function(value)
            except SyscallError as error:
                self.error = self.error or error
                raise

        return call

    def _is_over(self) -> bool:
        if self.error is None and time.process_time() > self._deadline:
            self.error = too_slow()
        return self.error is not None

    def _authorize(
        self, action: int, first: str | None, second: str | None, _database: str | None, _inner: str | None
    ) -> int:
        refusal = self._refusal(action, first or "", second or "")
        if refusal and self.error is None:
            self.error = denied(f"a query may only read, and not {refusal}")
        return sqlite3.SQLITE_DENY if refusal else sqlite3.SQLITE_OK

    def _refusal(self, action: int, first: str, second: str) -> str:
        """What the statement wants and may not have; empty where it may."""
        if action in _MAY:
            return ""
        if first == _SCHEMA and action != sqlite3.SQLITE_READ:
            return "change the schema, nor read the tables that SQLite makes itself"
        if action == sqlite3.SQLITE_READ:
            # Without a column it is a name as it was written, that of a common table expression included.
            known = first in self._tables if second else not first.lower().startswith(_PRIVATE)
            return "" if known else f"the table {first}"
        if action == sqlite3.SQLITE_FUNCTION:
            return "" if second.lower() in self._functions else f"the function {second}()"
        if action == sqlite3.SQLITE_PRAGMA:
            return "" if first.lower() == "table_info" else f"PRAGMA {first}; only PRAGMA table_info(TABLE)"
        return _WANTED.get(action, "change the schema")


def tables(connection: sqlite3.Connection) -> list[str]:
    """The tables that a query may read."""
    names = (name for (name,) in connection.execute(f"SELECT name FROM {_SCHEMA} WHERE type = 'table'"))
    return sorted(name for name in names if not name.lower().startswith((_PRIVATE, "sqlite_")))


def _harmless(connection: sqlite3.Connection) -> Iterator[str]:
    rows = connection.execute("SELECT name, flags & ? FROM pragma_function_list", (_INNOCUOUS,))
    return (name.lower() for name, innocuous in rows if innocuous or name.lower().startswith(_JSON))


# --- functions of the log ---


def _text_of(connection: sqlite3.Connection) -> Callable[[Any], str | None]:
    """`text(id)`: a content of the log; NULL if there is none of that number."""

    def text(number: Any) -> str | None:
        found = connection.execute("SELECT hash, size, data FROM content WHERE id = ?", (number,)).fetchone()
        raw = grow(*found) if found else b""
        if raw is None:
            raise DamagedError(f"content {number} of the log")
        return raw.decode("utf-8", "replace") if found else None

    return text


def _whole_of(connection: sqlite3.Connection) -> Callable[[Any], str]:
    """`whole(data)`: the data of an event with its contents put back in."""
    contents = Contents(connection, 0)

    def whole(data: Any) -> str:
        try:
            stored = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)
            return codec.encode(contents.unpack(stored)).decode("utf-8", "replace")
        except (TypeError, ValueError, RecursionError):
            right = "as in SELECT whole(data) FROM events"
            raise invalid(f"whole() takes the data of an event, {right}, not {str(data)[:60]!r}") from None

    return whole


# --- answers ---


def _lines(cursor: sqlite3.Cursor) -> Iterator[bytes]:
    if cursor.description is None:
        raise invalid("there is no statement; write one, such as SELECT count(*) FROM events")
    names, size = _names([column[0] for column in cursor.description]), 0
    for number, row in enumerate(cursor):
        if number == limits.QUERY_ROWS:
            raise SyscallError(
                Code.TOO_LARGE,
                f"there are more than {limits.QUERY_ROWS} rows; add LIMIT, or a narrower WHERE",
            )
        line = msgspec.json.encode(dict(zip(names, map(_shown, row), strict=True))) + b"\n"
        size += len(line)
        if size > limits.QUERY_BYTES_MAX:
            right = "add LIMIT, or name the columns that you need"
            raise SyscallError(
                Code.TOO_LARGE, f"the rows have more than {limits.QUERY_BYTES_MAX} bytes; {right}"
            )
        yield line


def _names(columns: list[str]) -> list[str]:
    """The names of the columns, each once: a repeated one gets a number, as in SQLite's own subqueries."""
    names: dict[str, None] = {}
    for column in columns:
        name, number = column, 0
        while name in names:
            number += 1
            name = f"{column}:{number}"
        names[name] = None
    return list(names)


def _shown(value: object) -> object:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def too_slow() -> SyscallError:
    """A query that took too long."""
    right = "narrow it down by WHERE, or join less"
    return SyscallError(
        Code.TIMEOUT, f"the query takes more than {limits.QUERY_SECONDS:g} s of processor time; {right}"
    )


def _raise_mine(error: sqlite3.Error | sqlite3.Warning, connection: sqlite3.Connection) -> None:
    """Raise what is wrong with the statement, if that is what the error says."""
    # Errors without a code are those of Python's own checks, such as the number of arguments.
    code = _MINE.get(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF)
    if code is None:
        return
    words = str(error).rstrip(".")
    if words == "user-defined function raised exception":
        words = "a text that is no UTF-8 must be given to a function as CAST(… AS BLOB)"
    if words.startswith(("no such table", "no such column")):
        words += f"; there are {_shape(connection)}"
    raise SyscallError(code, words) from None


def _shape(connection: sqlite3.Connection) -> str:
    """The tables with their columns."""
    connection.set_authorizer(None)
    connection.set_progress_handler(None, 0)
    columns = "SELECT group_concat(name, ', ') FROM pragma_table_info(?)"
    shown = ((name, connection.execute(columns, (name,)).fetchone()[0]) for name in tables(connection))
    return ", ".join(f"{name}({names})" for name, names in shown)


# --- the child ---


def main() -> None:
    """Answer the request on the standard input; a failure is an answer, too, and its status is 0 as well."""
    request = json.load(sys.stdin)
    _bound()
    try:
        answer = b"\n" + query(request["path"], request["sql"], request["args"])
    except SyscallError as error:
        answer = json.dumps([str(error.code), error.reason]).encode()
    sys.stdout.buffer.write(answer)
    sys.stdout.flush()


def _bound() -> None:
    # For what no handler sees, and for a daemon that is gone.
    for limit, most in (
        (resource.RLIMIT_CPU, int(limits.QUERY_SECONDS) + _EXTRA),
        (resource.RLIMIT_AS, limits.QUERY_MEMORY_MAX),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(limit)
        resource.setrlimit(limit, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    signal.alarm(_ORPHAN)


def as_json(path: str, sql: str, arguments: Sequence[Scalar]) -> bytes:
    """A request as the child takes it; arguments as for `query`."""
    return json.dumps({"path": path, "sql": sql, "args": list(arguments)}).encode()


def rows_of(answer: bytes) -> bytes:
    """The rows in an answer of the child.

    Raises:
        SyscallError: what it holds in their place.
    """
    if answer.startswith(b"\n"):
        return answer[1:]
    code, reason = json.loads(answer)
    raise SyscallError(Code(code), reason)
