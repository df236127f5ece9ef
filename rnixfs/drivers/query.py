"""`/sys/query`: asks the log with SQL.

The log holds what every process and every person did, so whoever may use this device may read all of that: a
process sees it only where its rights name it.
"""

import contextlib
import os
import signal
import sqlite3
import sys
import urllib.parse
from collections.abc import Callable
from typing import Any

import msgspec
import trio

from rnixfs import limits, queryjob
from rnixfs.device import Body, Description, Job, Sink
from rnixfs.errors import Code, SyscallError, invalid
from rnixfs.types import Caller

_NO_LOG = "the log is kept in memory only, and SQL needs a file: start the daemon without --state none"
_EXAMPLE = "SELECT pid, whole(data) AS born FROM events WHERE event = 'spawn' ORDER BY seq DESC LIMIT 3"
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(queryjob.__file__)))
_CHILD = "import sys; sys.path[:] = sys.argv[1:]; from rnixfs.queryjob import main; main()"
_WHOLE_MAX = (1 << 63) - 1  # SQLite's whole numbers have 64 bits

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "sql": {"type": "string", "description": "One statement that reads."},
        "args": {
            "type": "array",
            "items": {"type": ["string", "number", "boolean", "null"]},
            "maxItems": limits.QUERY_ARGUMENTS_MAX,
            "description": "The values of its `?`, in order.",
        },
    },
    "required": ["sql"],
    "additionalProperties": False,
    "description": "Or text: the statement alone.",
}


class Request(msgspec.Struct, frozen=True):
    """A request that was checked.

    Args:
        sql: one statement.
        args: the values of its `?`.
    """

    sql: str
    args: tuple[queryjob.Scalar, ...] = ()


class Query:
    """The device.

    Args:
        path: tells the file of the log; empty where the log is in memory only.
    """

    def __init__(self, path: Callable[[], str]) -> None:
        self._path = path
        self._slots = trio.CapacityLimiter(limits.QUERIES_MAX)

    def describe(self, caller: Caller) -> Description:
        """What can be asked."""
        path = self._path()
        return Description(
            device="/sys/query",
            does="Runs one SQL statement that reads the log; gives a JSON object for each row, one a line.",
            request=_SCHEMA,
            example={"sql": _EXAMPLE},
            available=bool(path),
            reason="" if path else _NO_LOG,
            details={
                "dialect": "SQLite",
                "tables": "SELECT name, sql FROM sqlite_schema",
                "functions": {
                    "whole(data)": "an event's data, with the long texts put back in that the log keeps once",
                    "text(id)": "such a text by its number",
                },
                "limits": {
                    "seconds": limits.QUERY_SECONDS,
                    "rows": limits.QUERY_ROWS,
                    "bytes": limits.QUERY_BYTES_MAX,
                },
            },
        )

    def accept(self, caller: Caller, body: Body) -> Job:
        """Check the form of a request; what is wrong with its SQL is in the answer.

        Raises:
            SyscallError: INVALID with the field and what would be right; SERVICE_UNAVAILABLE without a file.
        """
        request, path = parse(body), self._path()
        if not path:
            raise SyscallError(Code.SERVICE_UNAVAILABLE, _NO_LOG)

        async def job(sink: Sink) -> None:
            with trio.move_on_after(limits.QUERY_WALL_SECONDS):
                async with self._slots:
                    sink.write(await _rows(queryjob.as_json(path, request.sql, request.args)))
                return
            raise SyscallError(
                Code.TIMEOUT, f"no answer within {limits.QUERY_WALL_SECONDS:g} s; the host is busy, ask again"
            )

        return job


def size_of(path: str) -> dict[str, int]:
    """How large the log is: `log_bytes` on disk, and `log_events`, the number of its last event.

    Quick enough for the loop, whatever the size; events that cannot be read are left out.

    Args:
        path: its file.
    """
    sizes = {"log_bytes": sum(map(_bytes_of, (path, f"{path}-wal")))}
    uri = f"file:{urllib.parse.quote(path)}?mode=ro"
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(uri, uri=True)) as log:
        sizes["log_events"] = log.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0]
    return sizes


def _bytes_of(path: str) -> int:
    with contextlib.suppress(OSError):
        return os.stat(path).st_size
    return 0


async def _rows(request: bytes) -> bytes:
    """Run the child process; it is killed when the time is over or nobody waits any more."""
    ended = await trio.run_process(
        # -I and -S: nothing of the environment, and of the site only the folders that the daemon uses.
        [sys.executable, "-I", "-S", "-c", _CHILD, _PACKAGE, *sys.path],
        stdin=request,
        capture_stdout=True,
        capture_stderr=True,
        check=False,
        deliver_cancel=_kill,
        cwd="/",
        env={"LC_ALL": "C.UTF-8"},
    )
    if ended.returncode == -signal.SIGXCPU:
        raise queryjob.too_slow()
    if ended.returncode:
        words = ended.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise SyscallError(
            Code.DRIVER, f"the query ended with status {ended.returncode}: {words or 'no message'}"
        )
    return queryjob.rows_of(ended.stdout)


async def _kill(process: trio.Process) -> None:
    process.send_signal(signal.SIGKILL)


def parse(body: Body) -> Request:
    """Check a request.

    Raises:
        SyscallError: INVALID with the field and what would be right.
    """
    if isinstance(body, str):
        return Request(_sql(body))
    if not isinstance(body, dict):
        raise invalid('a request is a statement as text, or a JSON object such as {"sql": "SELECT 1"}')
    for name in body:
        if name not in _SCHEMA["properties"]:
            raise invalid(f"unknown field {name!r}; a query has: {', '.join(_SCHEMA['properties'])}")
    if "sql" not in body:
        raise invalid('field "sql" is missing; it must be a string')
    return Request(_sql(body["sql"]), _args(body.get("args")))


def _sql(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise invalid('"sql" must be one statement, such as SELECT count(*) FROM events')
    return value


def _args(value: object) -> tuple[queryjob.Scalar, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > limits.QUERY_ARGUMENTS_MAX:
        raise invalid(f'"args" must be a list of at most {limits.QUERY_ARGUMENTS_MAX} values')
    for place, one in enumerate(value, 1):
        if not (one is None or isinstance(one, str | int | float)):
            raise invalid(f'"args"[{place}] must be text, a number, true, false or null; SQL has no lists')
        if isinstance(one, int) and not -_WHOLE_MAX - 1 <= one <= _WHOLE_MAX:
            raise invalid(f'"args"[{place}] is too large: a whole number has 64 bits; give it as text')
    return tuple(value)
