"""Searching the text of files, in a process of its own.

Python's regular expressions backtrack, hold the interpreter's lock and cannot be interrupted: one bad pattern
in a thread would stop the whole daemon. A child process can be killed. It takes one JSON object on its
standard input and gives one on its standard output, imports nothing but the standard library and the search
itself, and starts in some 50 ms. The daemon imports from here only what it needs to check a request.
"""

import collections
import contextlib
import dataclasses
import io
import json
import os
import re
import signal
import stat
import sys
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from rnixfs import hostfile, limits
from rnixfs.errors import SyscallError, invalid, printable
from rnixfs.globs import Pattern, compile_glob
from rnixfs.hostpath import Roots, Spot, refusing
from rnixfs.search import must_exist, relative, walk

_BINARY_PROBE = 8192  # bytes at the start of a file in which a NUL makes it binary, as for git
_ALARM_EXTRA = 5  # seconds past the limit after which a child ends by itself, should the daemon be gone
_CUT = "…"


@dataclasses.dataclass(frozen=True, slots=True)
class Query:
    """What to search for.

    Args:
        pattern: regular expression of Python, or a text.
        path: folder or file.
        cwd: absolute folder for relative paths.
        roots: folders that may be reached.
        avoid: canonical path of our own mountpoint.
        glob: which files; without `/` it is about their names wherever they are.
        limit: how many matches are given.
        context: lines shown before and after each.
        ignore_case: whether a and A are the same.
        fixed: whether the pattern is a text.
        everything: whether names with a dot and `.git` are searched.
        seconds: time limit.
    """

    pattern: str
    path: str
    cwd: str
    roots: tuple[str, ...]
    avoid: str
    glob: str
    limit: int
    context: int
    ignore_case: bool
    fixed: bool
    everything: bool
    seconds: float


def compile_text(pattern: str, *, fixed: bool, ignore_case: bool) -> re.Pattern[str]:
    """The regular expression that lines are searched for.

    Raises:
        SyscallError: INVALID with the reason and the place.
    """
    if not pattern or len(pattern) > limits.PATTERN_MAX:
        raise invalid(f"a pattern has 1 to {limits.PATTERN_MAX} characters")
    if "\n" in pattern:
        raise invalid("a pattern is matched against single lines, so it holds no line end")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile(re.escape(pattern) if fixed else pattern, re.IGNORECASE if ignore_case else 0)
    except (re.error, RecursionError, OverflowError) as error:
        raise invalid(f"not a regular expression of Python: {error}; with fixed it is a text") from None


def compile_filter(glob: str, *, everything: bool) -> Pattern:
    """The pattern for the files to search."""
    if not glob:
        return compile_glob("**", everything=everything)
    return compile_glob(glob if "/" in glob else f"**/{glob}", everything=everything)


def grep(query: Query) -> dict[str, object]:
    """Search until the end.

    Returns:
        `matches` (path, line from 1, text, and with a context `before` and `after`), `total` of all matching
        lines, `files` they are in, `searched`, `skipped` (binary, too large, not readable), and `truncated`.

    Raises:
        SyscallError: as `Roots.resolve`, or INVALID for one of the patterns.
    """
    roots = Roots(query.roots, lambda: query.avoid)
    find = compile_text(query.pattern, fixed=query.fixed, ignore_case=query.ignore_case)
    result = _Result(query, os.path.realpath(query.cwd))
    for spot in _files(roots, query):
        text = _read(spot)
        if text is None:
            result.skipped += 1
        else:
            result.file(spot, text, find)
    return result.answer()


def _files(roots: Roots, query: Query) -> Iterator[Spot]:
    base = roots.resolve(query.path, query.cwd)
    if not stat.S_ISDIR(must_exist(base, query.path).st_mode):
        yield base
        return
    files = compile_filter(query.glob, everything=query.everything)
    for found in walk(roots, base, files, lambda: False):
        if found.kind == "file":
            yield found.spot


def _read(spot: Spot) -> str | None:
    """The text of a file; None if it is none."""
    with contextlib.suppress(OSError), spot.parent() as place:
        fd = hostfile.open_regular(place, spot.name, os.O_RDONLY)
        with open(fd, "rb") as file:
            data = file.read(_BINARY_PROBE)
            if b"\0" in data or os.fstat(fd).st_size > limits.GREP_FILE_MAX:
                return None
            return (data + file.read(limits.GREP_FILE_MAX)).decode("utf-8", "replace")
    return None


class _Result:
    def __init__(self, query: Query, cwd: str) -> None:
        self.query = query
        self.cwd = cwd
        self.matches: list[dict[str, object]] = []
        self.total = self.files = self.searched = self.skipped = 0
        self.room = limits.GREP_TEXT_MAX

    def file(self, spot: Spot, text: str, find: re.Pattern[str]) -> None:
        """Search one file."""
        self.searched += 1
        if self.query.fixed and not self.query.ignore_case and self.query.pattern not in text:
            return
        hits = 0
        before: collections.deque[str] = collections.deque(maxlen=self.query.context)
        open_rows: list[dict[str, Any]] = []  # matches whose lines after are not complete
        for number, line in enumerate(io.StringIO(text, newline="\n"), 1):
            line = line.removesuffix("\n").removesuffix("\r")
            for row in open_rows:
                self.spend(row["after"], clip_line(line))
            open_rows = [row for row in open_rows if len(row["after"]) < self.query.context]
            found = find.search(line)
            if found:
                hits += 1
                if len(self.matches) < self.query.limit and self.room > 0:
                    row = self.add(spot, number, clip_line(line, found.start()), before)
                    open_rows += [row] if self.query.context else []
            before.append(line)
        self.total += hits
        self.files += bool(hits)

    def add(self, spot: Spot, number: int, text: str, before: Iterable[str]) -> dict[str, Any]:
        row: dict[str, Any] = {"path": printable(relative(spot.path, self.cwd)), "line": number, "text": text}
        self.room -= len(text)
        if self.query.context:
            row |= {"before": [], "after": []}
            for line in before:
                self.spend(row["before"], clip_line(line))
        self.matches.append(row)
        return row

    def spend(self, lines: list[str], line: str) -> None:
        self.room -= len(line)
        lines.append(line)

    def answer(self) -> dict[str, object]:
        return {
            "matches": self.matches,
            "total": self.total,
            "files": self.files,
            "searched": self.searched,
            "skipped": self.skipped,
            "truncated": self.total > len(self.matches),
        }


def clip_line(line: str, column: int = 0) -> str:
    """A line, or the part of a long one that holds `column`, with a sign where something is missing."""
    if len(line) <= limits.GREP_LINE_MAX:
        return line
    room = limits.GREP_LINE_MAX - 2 * len(_CUT)
    start = max(0, min(column - room // 4, len(line) - room))
    end = start + room
    return f"{_CUT if start else ''}{line[start:end]}{_CUT if end < len(line) else ''}"


def main() -> None:
    """Answer the request on the standard input; a failure is an answer, too."""
    query = Query(**json.load(sys.stdin))
    signal.alarm(int(query.seconds) + _ALARM_EXTRA)
    try:
        with refusing(query.path):
            answer: dict[str, object] = {"ok": grep(query)}
    except SyscallError as error:
        answer = {"error": [str(error.code), error.reason]}
    json.dump(answer, sys.stdout)


def as_json(query: Query) -> bytes:
    """A request as the child takes it."""
    return json.dumps(dataclasses.asdict(query)).encode()
