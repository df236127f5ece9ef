"""`dev/edit`, `dev/glob` and `dev/grep`: the file tools.

All work on host paths that lie below the caller's roots. Edits and globs run in threads, which look again and
again whether anybody still waits; greps run in a child process (`grepjob` says why). The loop never waits.
"""

import json
import os
import signal
import sys
import threading
import zlib
from collections.abc import Callable
from typing import TypeVar

import trio

from rnixfs import edits, globs, grepjob, hostfile, limits, search
from rnixfs.device import Body, Description, Job, Sink, json_line
from rnixfs.errors import Code, SyscallError, not_found, printable
from rnixfs.filetools import (
    EDIT_TOOL,
    GLOB_TOOL,
    GREP_TOOL,
    WRITE_TOOL,
    EditRequest,
    GlobRequest,
    GrepRequest,
    check_between,
    check_edit,
    read_request,
)
from rnixfs.hostpath import Roots, Spot, refusing
from rnixfs.search import Stop, StoppedError
from rnixfs.types import Caller, Place

T = TypeVar("T")
Whereabouts = Callable[[Caller], Place]
"""Where a caller stands on the host."""


def _nowhere() -> str:
    return ""


class _FileDevice:
    """What the three have in common.

    Args:
        whereabouts: where a caller stands.
        avoid: the canonical path of our own mountpoint, "" while there is none.
    """

    def __init__(self, whereabouts: Whereabouts, avoid: Callable[[], str] = _nowhere) -> None:
        self.whereabouts = whereabouts
        self.avoid = avoid
        self.limiter = trio.CapacityLimiter(limits.FILE_THREADS_MAX)

    def roots(self, place: Place) -> Roots:
        return Roots(place.roots, self.avoid)

    def checked(self, place: Place, path: str, timeout_ms: int) -> Roots:
        """The roots, if the path lies below one of them and the time limit is one."""
        check_between("timeout_ms", timeout_ms, 1, limits.SEARCH_MS_MAX)
        roots = self.roots(place)
        roots.resolve(path, place.cwd)
        return roots

    async def in_thread(self, work: Callable[[Stop], T], timeout_ms: int, hint: str) -> T:
        """Work in a thread; when the time is over or nobody waits any more it is told to stop.

        Raises:
            SyscallError: TIMEOUT with the hint, or what the work raises.
        """
        stop = threading.Event()
        try:
            with trio.fail_after(timeout_ms / 1000):
                return await trio.to_thread.run_sync(
                    lambda: work(stop.is_set), abandon_on_cancel=True, limiter=self.limiter
                )
        except trio.TooSlowError:
            raise _too_slow(timeout_ms, hint) from None
        finally:
            stop.set()


def _too_slow(timeout_ms: int, hint: str) -> SyscallError:
    return SyscallError(Code.TIMEOUT, f"not done after {timeout_ms} ms; {hint}")


def _reachable(place: Place) -> str:
    return "" if place.roots else "no folder of the host may be reached from here"


class Edit(_FileDevice):
    """`dev/edit`. Implements `device.Device`."""

    def __init__(self, whereabouts: Whereabouts, avoid: Callable[[], str] = _nowhere) -> None:
        super().__init__(whereabouts, avoid)
        # Two edits of one file must not both start from the same content. Shared by hash of the path.
        self.locks = [threading.Lock() for _ in range(64)]

    def describe(self, caller: Caller) -> Description:
        place = self.whereabouts(caller)
        reason = _reachable(place) or ("" if place.writable else "files can only be read from here")
        return Description(
            device="/dev/edit",
            does="Replaces a text in a file of the host, or writes the whole file. The file changes in one"
            " step, or not at all where something is not as expected.",
            request={"oneOf": [EDIT_TOOL.input_schema, WRITE_TOOL.input_schema]},
            example={"path": "README.md", "old": "teh", "new": "the", "replace_all": True},
            available=not reason,
            reason=reason,
            tools=[EDIT_TOOL, WRITE_TOOL],
            details={"roots": list(place.roots), "max_bytes": limits.EDIT_MAX},
        )

    def accept(self, caller: Caller, body: Body) -> Job:
        request = read_request(body, EditRequest)
        check_edit(request)
        place = self.whereabouts(caller)
        if not place.writable:
            raise SyscallError(Code.READ_ONLY, f"files can only be read from here, so {request.path} stays")
        roots = self.checked(place, request.path, request.timeout_ms)

        async def job(sink: Sink) -> None:
            hint = f"look at {request.path} before you try again"
            answer = await self.in_thread(
                lambda stop: self.edit(roots, request, place.cwd, stop), request.timeout_ms, hint
            )
            sink.write(json_line(answer))

        return job

    def edit(self, roots: Roots, request: EditRequest, cwd: str, stop: Stop) -> dict[str, object]:
        """Do a request, in a thread.

        Raises:
            SyscallError: what is not as expected, or what the host kernel says.
        """
        with refusing(request.path):
            spot = roots.resolve(request.path, cwd)
            with self.locks[zlib.crc32(os.fsencode(spot.path)) % len(self.locks)]:
                return _edit(spot, request, stop) | {"path": _named(spot, cwd)}


def _named(spot: Spot, cwd: str) -> str:
    return printable(search.relative(spot.path, os.path.realpath(cwd)))


def _edit(spot: Spot, request: EditRequest, stop: Stop) -> dict[str, object]:
    was, found = _content(spot)
    mtime_ns = found.st_mtime_ns if found is not None else 0
    expected = edits.Expected(request.expected_sha256, request.expected_mtime_ns)
    expected.check(request.path, was, mtime_ns)
    if was is None and (request.content is None or not request.create):
        raise not_found(request.path)
    data, count = _changed(request, was)

    def commit() -> None:
        if stop():
            raise StoppedError

    if found is None:
        _make_folders(spot)
    written = hostfile.replace_regular(spot, data, found, commit)
    return {
        "path": "",
        "replaced": count,
        "created": found is None,
        "sha256": edits.digest(data),
        "size": len(data),
        "mtime_ns": written.st_mtime_ns,
    }


def _content(spot: Spot) -> tuple[bytes | None, os.stat_result | None]:
    try:
        return hostfile.read_regular(spot, limits.EDIT_MAX)
    except FileNotFoundError:
        return None, None


def _changed(request: EditRequest, was: bytes | None) -> tuple[bytes, int]:
    if request.content is not None:
        data = request.content.encode("utf-8", "surrogateescape")
        if len(data) > limits.EDIT_MAX:
            raise SyscallError(
                Code.TOO_LARGE, f"a file may have {limits.EDIT_MAX} bytes here, not {len(data)}"
            )
        return data, 0
    return edits.replace(
        request.path,
        was or b"",
        request.old or "",
        request.new or "",
        everywhere=request.replace_all,
        count=request.expected_count,
    )


def _make_folders(spot: Spot) -> None:
    """Make the folders that a new file needs."""
    names = spot.rel.split("/")[:-1]
    for count in range(1, len(names) + 1):
        folder = Spot(spot.root, "/".join(names[:count]))
        with folder.parent() as place:
            try:
                os.mkdir(folder.name, dir_fd=place)
            except FileExistsError:
                continue


class Glob(_FileDevice):
    """`dev/glob`. Implements `device.Device`."""

    def describe(self, caller: Caller) -> Description:
        place = self.whereabouts(caller)
        reason = _reachable(place)
        return Description(
            device="/dev/glob",
            does="Lists files and folders of the host by a pattern, with exact totals. Text is taken as the"
            " pattern. Names with a dot and .git are left out unless the pattern names them.",
            request=GLOB_TOOL.input_schema,
            example={"pattern": "**/*.py"},
            available=not reason,
            reason=reason,
            tools=[GLOB_TOOL],
            details={"roots": list(place.roots), "cwd": place.cwd},
        )

    def accept(self, caller: Caller, body: Body) -> Job:
        request = read_request({"pattern": body.strip()} if isinstance(body, str) else body, GlobRequest)
        check_between("limit", request.limit, 1, limits.GLOB_MATCHES_MAX)
        place = self.whereabouts(caller)
        base, rest = globs.split_base(request.pattern)
        pattern = globs.compile_glob(rest, everything=request.all)
        path = os.path.join(request.path, base)
        roots = self.checked(place, path, request.timeout_ms)

        def work(stop: Stop) -> dict[str, object]:
            with refusing(path):
                folder = search.folder_at(roots, path, place.cwd)
                cwd = os.path.realpath(place.cwd)
                return search.glob(roots, folder, pattern, limit=request.limit, cwd=cwd, stop=stop)

        async def job(sink: Sink) -> None:
            hint = "search a smaller folder, or give a greater timeout_ms"
            sink.write(json_line(await self.in_thread(work, request.timeout_ms, hint)))

        return job


class Grep(_FileDevice):
    """`dev/grep`. Implements `device.Device`."""

    def describe(self, caller: Caller) -> Description:
        place = self.whereabouts(caller)
        reason = _reachable(place)
        return Description(
            device="/dev/grep",
            does="Searches the lines of text files of the host, with exact totals. Text is taken as the"
            " pattern. Binary files are skipped and counted; names with a dot and .git are left out unless"
            " asked for.",
            request=GREP_TOOL.input_schema,
            example={"pattern": "def main", "glob": "*.py"},
            available=not reason,
            reason=reason,
            tools=[GREP_TOOL],
            details={"roots": list(place.roots), "cwd": place.cwd, "max_line": limits.GREP_LINE_MAX},
        )

    def accept(self, caller: Caller, body: Body) -> Job:
        request = read_request({"pattern": body.rstrip("\n")} if isinstance(body, str) else body, GrepRequest)
        check_between("limit", request.limit, 1, limits.GREP_MATCHES_MAX)
        check_between("context", request.context, 0, limits.GREP_CONTEXT_MAX)
        grepjob.compile_text(request.pattern, fixed=request.fixed, ignore_case=request.ignore_case)
        grepjob.compile_filter(request.glob, everything=request.all)
        place = self.whereabouts(caller)
        self.checked(place, request.path, request.timeout_ms)
        query = self.query(request, place)

        async def job(sink: Sink) -> None:
            async with self.limiter:
                sink.write(json_line(await _grep(query, request.timeout_ms)))

        return job

    def query(self, request: GrepRequest, place: Place) -> grepjob.Query:
        """The request as the child process takes it."""
        return grepjob.Query(
            pattern=request.pattern,
            path=request.path,
            cwd=place.cwd,
            roots=place.roots,
            avoid=self.avoid(),
            glob=request.glob,
            limit=request.limit,
            context=request.context,
            ignore_case=request.ignore_case,
            fixed=request.fixed,
            everything=request.all,
            seconds=request.timeout_ms / 1000,
        )


_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(grepjob.__file__)))
_CHILD = "import sys; sys.path.append(sys.argv[1]); from rnixfs.grepjob import main; main()"


async def _grep(query: grepjob.Query, timeout_ms: int) -> object:
    """Run the child process; it is killed when the time is over or nobody waits any more."""
    with trio.move_on_after(timeout_ms / 1000):
        ended = await trio.run_process(
            # -I and -S: nothing of the environment and no site packages, so that it starts fast and the same.
            [sys.executable, "-I", "-S", "-c", _CHILD, _PACKAGE],
            stdin=grepjob.as_json(query),
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            deliver_cancel=_kill,
            cwd="/",
            env={"LC_ALL": "C.UTF-8"},
        )
        return _answer(ended.returncode, ended.stdout, ended.stderr)
    raise _too_slow(timeout_ms, "search a smaller folder, a simpler pattern, or give a greater timeout_ms")


async def _kill(process: trio.Process) -> None:
    process.send_signal(signal.SIGKILL)


def _answer(code: int, stdout: bytes, stderr: bytes) -> object:
    if code:
        words = stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise SyscallError(Code.DRIVER, f"the search ended with status {code}: {words or 'no message'}")
    answer = json.loads(stdout)
    if "error" in answer:
        name, reason = answer["error"]
        raise SyscallError(Code(name), reason)
    return answer["ok"]
