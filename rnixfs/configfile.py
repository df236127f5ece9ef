"""Configuration files on the host: where they are, read safely, parsed once.

A file is opened by O_PATH first and taken only when it really lies below its folder, so a symbolic link in
a cloned project cannot lead to a file elsewhere, and opening has no effect on devices and pipes. Reading is
plain blocking I/O on small local files; a file that did not change costs one stat.
"""

import dataclasses
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, invalid
from rnixfs.yamlread import ManifestError

PROJECT = ".rnix"
"""The folder that a project keeps its agents, skills and providers in."""

# Within this time after a change another one may leave the same times on the file: the kernel's clock for
# file times moves in steps of up to 10 ms (CONFIG_HZ=100).
_RACY_NS = 50_000_000


@contextmanager
def pinned(base: str, path: str) -> Iterator[int]:
    """Hold a name below a folder as an O_PATH descriptor, for fstat and for reopening through /proc/self/fd.

    Raises:
        OSError: it is not there, or may not be looked at.
        SyscallError: INVALID where it leads out of the folder.
    """
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        real, top = os.readlink(f"/proc/self/fd/{handle}"), os.path.realpath(base)
        if real != top and not real.startswith(top.rstrip("/") + "/"):
            raise invalid(f"{path}: leads to {real}, out of {top}; put the file itself there, not a link")
        yield handle
    finally:
        os.close(handle)


def read_file(base: str, path: str, limit: int, *, cut: bool = False) -> bytes:
    """The bytes of a regular file below a folder.

    Args:
        base: the folder that it must lie in.
        path: the file.
        limit: most bytes.
        cut: take the first `limit` bytes of a larger file, up to the end of a line, in place of refusing it.

    Raises:
        OSError: as open(2) and read(2).
        SyscallError: INVALID where it is not a regular file below the folder, TOO_LARGE past the limit.
    """
    with pinned(base, path) as handle:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise invalid(f"{path}: is not a regular file; put a file with text there")
        reading = os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_CLOEXEC)
        with open(reading, "rb") as file:
            data = file.read(limit + 1)
    if len(data) <= limit:
        return data
    if cut:
        return data[:limit].rpartition(b"\n")[0]
    raise SyscallError(Code.TOO_LARGE, f"{path}: is larger than {limit} bytes; make it shorter", device=path)


def read_text(base: str, path: str, limit: int, *, cut: bool = False) -> str:
    """The same as text.

    Raises:
        OSError: as `read_file`.
        ManifestError: it is not UTF-8; with the line.
    """
    data = read_file(base, path, limit, cut=cut)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        what = f"byte {data[error.start]:#04x} is not UTF-8"
        raise ManifestError(path, line, what, "save the file as UTF-8") from None


def _now_ns() -> int:
    return time.time_ns()


Signature = tuple[int, int, int, int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class _Kept:
    signature: Signature
    settled: bool
    result: Any
    error: SyscallError | None
    good: Any = None


class Cache:
    """What files were parsed to, refusals included, until the file changes."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, object], _Kept] = {}

    def get(self, path: str, parse: Callable[[str], Any], kind: object) -> Any:
        """What `parse` makes of a file.

        Args:
            path: the file.
            parse: reads and parses it.
            kind: says which parser it is.

        Raises:
            OSError: the file cannot be looked at.
            SyscallError: what parse raised, or INVALID for its ManifestError.
        """
        former = self._kept.pop((path, kind), None)
        found = os.stat(path)
        signature = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        kept = former
        if kept is None or kept.signature != signature or not kept.settled:
            settled = abs(_now_ns() - found.st_ctime_ns) > _RACY_NS
            result, error = _outcome(parse, path)
            good = former.good if error is not None and former is not None else result
            kept = _Kept(signature, settled, result, error, good)
            while len(self._kept) >= limits.CONFIG_CACHE_MAX:
                del self._kept[next(iter(self._kept))]
        self._kept[path, kind] = kept
        if kept.error is not None:
            # A new one each time: whoever catches an error adds to it.
            raise SyscallError(kept.error.code, kept.error.reason, device=kept.error.device)
        return kept.result

    def last_good(self, path: str, kind: object) -> Any:
        """What a file was last parsed to, since it was last missing; None where it never could be."""
        kept = self._kept.get((path, kind))
        return kept.good if kept is not None else None


def _outcome(parse: Callable[[str], Any], path: str) -> tuple[Any, SyscallError | None]:
    try:
        return parse(path), None
    except ManifestError as error:
        return None, error.as_syscall_error()
    except SyscallError as error:
        return None, error


# --- where things are ---


def config_folder(env: Mapping[str, str]) -> Path:
    """The user's folder for configuration: `$XDG_CONFIG_HOME/rnix`, or `~/.config/rnix`."""
    base = env.get("XDG_CONFIG_HOME", "")
    home = env.get("HOME") or os.path.expanduser("~")
    return Path(base if os.path.isabs(base) else os.path.join(home, ".config")) / "rnix"


def trusted_folders(env: Mapping[str, str]) -> tuple[Path, ...]:
    """The folders of `$RNIX_TRUSTED`, with colons between: projects in them may do what the user may."""
    return tuple(Path(one) for one in env.get("RNIX_TRUSTED", "").split(os.pathsep) if os.path.isabs(one))


def find_project(cwd: str) -> str | None:
    """The `.rnix` in a folder or the nearest one above it."""
    for _ in range(limits.PROJECT_DEPTH_MAX):
        candidate = os.path.join(cwd, PROJECT)
        if os.path.isdir(candidate):
            return candidate
        above = os.path.dirname(cwd)
        if above == cwd:
            return None
        cwd = above
    return None


def foreign(project: str) -> str:
    """Why a `.rnix` cannot be used: somebody else may have left it above the user's folder, as in /tmp."""
    try:
        found = os.lstat(project)
    except OSError as error:
        return f"{project} is not used: {os.strerror(error.errno or 0)}"
    if stat.S_ISLNK(found.st_mode):
        return f"{project} is not used because it is a symbolic link; make it a folder"
    if not _friendly(found.st_uid):
        return (
            f"{project} is not used because it belongs to user {found.st_uid}; to allow it, list "
            f"{os.path.dirname(project)} in RNIX_TRUSTED"
        )
    return ""


def _friendly(uid: int) -> bool:
    return uid in (os.geteuid(), 0)
