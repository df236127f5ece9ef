"""Walking host folders, with exact totals. Waits for the disk, so it runs in a thread or in a child process.

Every folder is opened anew from its root, so one that was swapped for a link is left out, not followed. Only
one folder is open at a time, however deep the tree. Names come in order, so that a cut list is the same list
each time.
"""

import collections
import dataclasses
import heapq
import itertools
import operator
import os
import stat
from collections.abc import Callable, Iterator

from rnixfs import hostpath, limits
from rnixfs.errors import Code, SyscallError, not_found, printable
from rnixfs.globs import Pattern, States
from rnixfs.hostpath import Roots, Spot, refusing

Stop = Callable[[], bool]
"""Asked again and again while something works: whether nobody wants the result any more."""

_SORT_PIECE = 4096  # names sorted at once, some 2 ms
_STOP_EVERY = 512  # names looked at between two such questions


class StoppedError(Exception):
    """The search was told to stop; nobody waits for its result."""


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """Something that a search came by.

    Args:
        spot: where it is.
        kind: `file`, `folder`, `link` or `other`.
        size: bytes; 0 for everything but files.
        mtime_ns: last change, nanoseconds since 1970.
    """

    spot: Spot
    kind: str
    size: int
    mtime_ns: int


_Entry = tuple[str, str, int, int, States | None]
"""Name; kind, size and mtime_ns if it matches, else "", 0 and 0; what can still match below it, if anything.
A tuple, since the garbage collector need not visit those: it would stop the daemon for 60 ms at 100,000."""


def walk(roots: Roots, base: Spot, pattern: Pattern, stop: Stop) -> Iterator[Found]:
    """Everything below a folder that matches, in order; links are given but not followed.

    What vanishes or cannot be read while the search goes on is left out.

    Args:
        roots: says what must not be touched.
        base: a folder, or else nothing is found.
        pattern: matched against the path below `base`.
        stop: see `Stop`.

    Raises:
        StoppedError: when told so.
        SyscallError: `base` itself cannot be listed.
    """
    with refusing(base.path):
        first = _entries(roots, base, pattern, pattern.start(), stop)
    levels = [(base, first)]
    while levels:
        folder, entries = levels[-1]
        entry = next(entries, None)
        if entry is None:
            levels.pop()
            continue
        name, kind, size, mtime_ns, below = entry
        spot = Spot(folder.root, hostpath.join(folder.rel, name))
        if kind:
            yield Found(spot, kind, size, mtime_ns)
        if below:
            try:
                levels.append((spot, _entries(roots, spot, pattern, below, stop)))
            except OSError:
                continue  # gone, or not ours to read


def _entries(roots: Roots, folder: Spot, pattern: Pattern, states: States, stop: Stop) -> Iterator[_Entry]:
    """What of a folder matches or may hold matches, by name."""
    with folder.root.folder(folder.rel) as place:
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place)
    try:
        with os.scandir(fd) as names:
            return _in_order(_matching(names, roots.mount_in(folder.path), pattern, states, stop))
    finally:
        os.close(fd)


def _in_order(entries: Iterator[_Entry]) -> Iterator[_Entry]:
    """Sorted, and let go of, in pieces: all at once would keep the loop from the interpreter for long."""
    pieces = []
    while piece := list(itertools.islice(entries, _SORT_PIECE)):
        piece.sort(key=_name, reverse=True)
        pieces.append(piece)
    return heapq.merge(*map(_taken, pieces), key=_name)


def _taken(piece: list[_Entry]) -> Iterator[_Entry]:
    while piece:
        yield piece.pop()


_name = operator.itemgetter(0)


def _matching(
    names: Iterator["os.DirEntry[str]"], mountpoint: str, pattern: Pattern, states: States, stop: Stop
) -> Iterator[_Entry]:
    for count, one in enumerate(names):
        if count % _STOP_EVERY == 0 and stop():
            raise StoppedError
        after = pattern.step(states, one.name)
        # The mountpoint is known by its name; even asking what it is could wait for ourselves.
        if not after or one.name == mountpoint:
            continue
        try:
            is_folder = one.is_dir(follow_symlinks=False)
            row = ("", 0, 0)
            if pattern.done(after, is_folder):
                row = describe(one.stat(follow_symlinks=False))
        except OSError:
            continue  # gone
        below = after if is_folder and pattern.open(after) else None
        if row[0] or below:
            yield (one.name, *row, below)


def describe(found: os.stat_result) -> tuple[str, int, int]:
    """Kind, size and mtime_ns, as in `Found`."""
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
    kind = kinds.get(stat.S_IFMT(found.st_mode), "other")
    return kind, found.st_size if kind == "file" else 0, found.st_mtime_ns


def folder_at(roots: Roots, path: str, cwd: str) -> Spot:
    """The canonical spot of a folder that is there.

    Raises:
        SyscallError: as `Roots.resolve`; NOT_FOUND, NOT_DIRECTORY.
    """
    spot = roots.resolve(path, cwd)
    with refusing(path):
        found = spot.root.lstat(spot.rel)
    if not stat.S_ISDIR(found.st_mode):
        raise SyscallError(Code.NOT_DIRECTORY, f"{path} is no folder")
    return spot


def relative(path: str, cwd: str) -> str:
    """A path as short as it can be said: below `cwd` without it."""
    if hostpath.below(path, cwd):
        return os.path.relpath(path, cwd)
    return path


def glob(
    roots: Roots, base: Spot, pattern: Pattern, *, limit: int, cwd: str, stop: Stop
) -> dict[str, object]:
    """Everything that matches: the first `limit` by name, and the totals of all.

    Args:
        roots: says what must not be touched.
        base: the folder to search.
        pattern: for the paths below it.
        limit: how many matches are listed.
        cwd: canonical folder that paths are shown relative to, where they lie in it.
        stop: see `Stop`.

    Returns:
        `matches` (path, size in bytes, kind, mtime in seconds since 1970), `total`, `truncated`, `files`,
        `folders`, `bytes`, and `by_extension`: how many files have one of the commonest extensions.
    """
    matches: list[dict[str, object]] = []
    kinds: collections.Counter[str] = collections.Counter()
    extensions: collections.Counter[str] = collections.Counter()
    size = 0
    for found in walk(roots, base, pattern, stop):
        kinds[found.kind] += 1
        size += found.size
        if found.kind == "file":
            extensions[os.path.splitext(found.spot.name)[1].lower()] += 1
        if len(matches) < limit:
            matches.append(_row(found, cwd))
    total = kinds.total()
    return {
        "matches": matches,
        "total": total,
        "truncated": total > len(matches),
        "files": kinds["file"],
        "folders": kinds["folder"],
        "bytes": size,
        "by_extension": _commonest(extensions),
    }


def _row(found: Found, cwd: str) -> dict[str, object]:
    return {
        "path": printable(relative(found.spot.path, cwd)),
        "size": found.size,
        "kind": found.kind,
        "mtime": found.mtime_ns // 1_000_000_000,
    }


def _commonest(extensions: "collections.Counter[str]") -> dict[str, int]:
    """By count, then by name, so that the order is always the same; "" counts files without one."""
    rows = sorted(extensions.items(), key=lambda row: (-row[1], row[0]))
    return {printable(name): count for name, count in rows[: limits.GLOB_EXTENSIONS]}


def must_exist(spot: Spot, path: str) -> os.stat_result:
    """What is at a spot; NOT_FOUND names the path as it was asked for."""
    try:
        with refusing(path):
            return spot.root.lstat(spot.rel)
    except SyscallError as error:
        if error.code is Code.NOT_FOUND:
            raise not_found(path) from None
        raise
