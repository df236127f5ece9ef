"""What the file tools do with the text of a file: replace in it, check it, show it. Pure."""

import dataclasses
import hashlib
from collections.abc import Iterable

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, invalid, not_found, printable


@dataclasses.dataclass(frozen=True, slots=True)
class Expected:
    """What a file must be for an edit to happen; None for what does not matter.

    Args:
        sha256: hash of its content in hexadecimal; "" if it must not be there.
        mtime_ns: time of its last change, nanoseconds since 1970.
        count: how often the old text must be in it.
    """

    sha256: str | None = None
    mtime_ns: int | None = None
    count: int | None = None

    def check(self, path: str, data: bytes | None, mtime_ns: int) -> None:
        """Compare with a file.

        Args:
            path: for messages.
            data: its content, None if it is not there.
            mtime_ns: time of its last change, 0 if it is not there.

        Raises:
            SyscallError: INVALID with what was found instead; EXISTS for one that should not be there.
        """
        if self.sha256 is not None:
            self._check_hash(path, data)
        if self.mtime_ns is not None and self.mtime_ns != mtime_ns:
            raise invalid(f"{path} was changed: mtime_ns is {mtime_ns}, not {self.mtime_ns}; read it again")

    def _check_hash(self, path: str, data: bytes | None) -> None:
        if not self.sha256:
            if data is not None:
                raise SyscallError(Code.EXISTS, f"{path} is there already, with sha256 {digest(data)}")
        elif data is None:
            raise not_found(path)
        elif self.sha256.lower() != (found := digest(data)):
            raise invalid(f"{path} was changed: sha256 is {found}, not {self.sha256}; read it again")


def digest(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def replace(
    path: str, data: bytes, old: str, new: str, *, everywhere: bool = False, count: int | None = None
) -> tuple[bytes, int]:
    """Replace a text that occurs once, or all its occurrences.

    Bytes that are no UTF-8 stay as they are. Where the file has CRLF line ends and `old` has none, both texts
    are taken with CRLF.

    Args:
        path: for messages.
        data: content of the file.
        old: what to replace.
        new: what to put in its place.
        everywhere: replace all occurrences, not exactly one.
        count: how many there must be; replaces all of them.

    Returns:
        The new content, and how many were replaced.

    Raises:
        SyscallError: INVALID where the number of occurrences is not right, TOO_LARGE past `limits.EDIT_MAX`.
    """
    if not old:
        raise invalid("old is empty; to write a whole file give content in place of old and new")
    if old == new:
        raise invalid("old and new are the same, so nothing would change")
    was, becomes = old.encode("utf-8", "surrogateescape"), new.encode("utf-8", "surrogateescape")
    found = data.count(was)
    if not found and b"\n" in was and b"\r\n" in data and b"\r\n" not in was:
        was, becomes = was.replace(b"\n", b"\r\n"), becomes.replace(b"\n", b"\r\n")
        found = data.count(was)
    _check_count(path, found, everywhere, count)
    size = len(data) + found * (len(becomes) - len(was))
    if size > limits.EDIT_MAX:
        raise SyscallError(Code.TOO_LARGE, f"{path} would have {size} bytes; the limit is {limits.EDIT_MAX}")
    return data.replace(was, becomes), found


def _check_count(path: str, found: int, everywhere: bool, count: int | None) -> None:
    if count is not None:
        if found != count:
            raise invalid(f"old is {found} times in {path}, not {count} times")
    elif not found:
        raise invalid(f"old is not in {path}; it must be there to the letter, spaces and line ends included")
    elif found > 1 and not everywhere:
        raise invalid(f"old is {found} times in {path}; give more text around it, or replace_all")
    if not found:
        raise invalid(f"old is not in {path}, so there is nothing to replace")


def render_read(data: bytes, path: str, offset: int = 1, limit: int = limits.READ_LINES) -> dict[str, object]:
    """Some lines of a file, as the answer of a tool.

    Args:
        data: content of the file.
        path: for the answer.
        offset: number of the first line, from 1.
        limit: how many lines.

    Returns:
        `path`, `content`, `lines` and `size` of the whole file, `truncated`, and if so `next`, the offset
        to go on with where there are more lines.

    Raises:
        SyscallError: INVALID for a file that is no text, and for an offset or limit below 1.
    """
    if offset < 1 or limit < 1:
        raise invalid(f"offset and limit count lines from 1; got {offset} and {limit}")
    if b"\0" in data:
        raise invalid(f"{path} is no text: {len(data)} bytes with NUL among them")
    lines = _lines(data.decode("utf-8", "replace"))
    if offset > len(lines) + 1:
        raise invalid(f"{path} has {len(lines)} lines, so none is number {offset}")
    shown, last, cut = _take(lines, offset - 1, limit)
    answer: dict[str, object] = {
        "path": printable(path),
        "content": shown,
        "lines": len(lines),
        "size": len(data),
        "truncated": cut or last < len(lines),
    }
    if last < len(lines):
        answer["next"] = last + 1
    return answer


def _lines(text: str) -> list[str]:
    """Lines with their ends, as editors count them: only LF ends one, unlike for str.splitlines."""
    *whole, last = text.split("\n")
    return [f"{line}\n" for line in whole] + ([last] if last else [])


def _take(lines: list[str], first: int, limit: int) -> tuple[str, int, bool]:
    """Text of the lines from `first`, the index behind the last one given, and whether a line was cut."""
    taken: list[str] = []
    room = limits.READ_TEXT_MAX
    for index, line in enumerate(lines[first : first + limit], first):
        if len(line) > room:
            if taken:
                return "".join(taken), index, False
            return f"{line[:room]}[… {len(line) - room} more characters of this line]\n", index + 1, True
        taken.append(line)
        room -= len(line)
    return "".join(taken), min(first + limit, len(lines)), False


def render_list(entries: Iterable[tuple[str, str, int]], limit: int = limits.LIST_MAX) -> dict[str, object]:
    """The entries of a folder, as the answer of a tool.

    Args:
        entries: name, kind and size in bytes of each.
        limit: how many are given, in the order of their names; the rest is part of the total only.
    """
    found = sorted(entries)
    return {
        "entries": [
            {"name": printable(name), "kind": str(kind), "size": size} for name, kind, size in found[:limit]
        ],
        "total": len(found),
        "truncated": len(found) > limit,
    }
