"""Journals of processes in the log: what waits in memory, and the blocks on disk."""

import sqlite3
import zlib
from collections.abc import Collection, Iterable

from rnixfs import limits
from rnixfs.state.failures import DamagedError

Key = tuple[int, str]  # pid, name
_Block = tuple[int, int, bytes]  # id, size, data

_FAST, _SMALL = 1, 6  # levels of zlib: for a block that is merged later, and for good

_ADD = "INSERT INTO journals (pid, name, size, data) VALUES (?, ?, ?, ?)"
_BLOCKS = "SELECT id, size, data FROM journals WHERE pid = ? AND name = ? ORDER BY id"
_NAMES = "SELECT DISTINCT name FROM journals WHERE pid = ?"
_UPDATE = "UPDATE journals SET size = ?, data = ? WHERE id = ?"
_REMOVE = "DELETE FROM journals WHERE id = ?"


class Waiting:
    """The bytes of journals that are not on disk.

    A disk that takes nothing must not fill the memory: past `limits.JOURNALS_WAITING_MAX` bytes are counted
    instead, and the journal then says so in a line of its own, `{"dropped_bytes": n}`.
    """

    def __init__(self) -> None:
        self._parts: dict[Key, bytearray] = {}
        self._dropped: dict[Key, int] = {}
        self._size = 0
        self.since = 0.0  # when the oldest came, by the clock of whoever adds

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, key: Key, data: bytes, now: float) -> None:
        """Take some bytes of a journal."""
        if not self._parts:
            self.since = now
        part = self._parts.setdefault(key, bytearray())
        if self._size + len(data) > limits.JOURNALS_WAITING_MAX:
            self._dropped[key] = self._dropped.get(key, 0) + len(data)
            return
        mark = _mark(self._dropped.pop(key, 0))
        part += mark + data
        self._size += len(mark) + len(data)

    def due(self, now: float) -> bool:
        """Whether something has waited long enough, or is much."""
        return bool(self._parts) and (
            self._size >= limits.JOURNAL_BLOCK or now - self.since >= limits.JOURNAL_SECONDS
        )

    def keys(self, pids: Collection[int] | None = None) -> list[Key]:
        """The journals that wait: all, or those of some processes."""
        return [key for key in self._parts if pids is None or key[0] in pids]

    def text(self, key: Key) -> bytes:
        """What waits of one journal."""
        return bytes(self._parts.get(key, b"")) + _mark(self._dropped.get(key, 0))

    def drop(self, keys: Iterable[Key]) -> None:
        """Forget what is on disk now."""
        for key in keys:
            self._size -= len(self._parts.pop(key))
            self._dropped.pop(key, None)


def write_block(db: sqlite3.Connection, key: Key, text: bytes) -> None:
    """Add a block to a journal on disk."""
    db.execute(_ADD, (*key, len(text), zlib.compress(text, _FAST)))


def read_blocks(db: sqlite3.Connection, key: Key) -> bytes:
    """A journal, as far as it is on disk.

    Raises:
        DamagedError: for a block that is not what was written.
    """
    return b"".join(_text(key, number, size, data) for number, size, data in db.execute(_BLOCKS, key))


def merge(db: sqlite3.Connection, pid: int) -> None:
    """Join the small blocks of the journals of a process, which will hardly grow any more."""
    for (name,) in db.execute(_NAMES, (pid,)).fetchall():
        blocks = db.execute(_BLOCKS, (pid, name)).fetchall()
        for run in _runs(blocks):
            _join(db, run)


def _runs(blocks: list[_Block]) -> list[list[_Block]]:
    """Neighbours that become one block each; what is large already is left, so that merging takes no time."""
    runs: list[list[_Block]] = [[]]
    for block in blocks:
        if block[1] >= limits.JOURNAL_BLOCK:
            runs.append([])
        else:
            runs[-1].append(block)
    return [run for run in runs if run]


def _join(db: sqlite3.Connection, run: list[_Block]) -> None:
    texts = [block_text(size, data) for _, size, data in run]
    whole = [text for text in texts if text is not None]
    if len(whole) < len(run):
        return  # damage is for whoever reads it; the end of a process must not fail for it
    text = b"".join(whole)
    db.execute(_UPDATE, (len(text), zlib.compress(text, _SMALL), run[0][0]))
    db.executemany(_REMOVE, [(number,) for number, _, _ in run[1:]])


def block_text(size: int, data: bytes) -> bytes | None:
    """The bytes of a block on disk, None if they are not what was written."""
    try:
        text = zlib.decompress(data)
    except (zlib.error, TypeError):
        return None
    return text if len(text) == size else None


def _text(key: Key, number: int, size: int, data: bytes) -> bytes:
    text = block_text(size, data)
    if text is None:
        raise DamagedError(f"block {number} of the journal {key[1]!r} of process {key[0]}")
    return text


def _mark(dropped: int) -> bytes:
    return b'{"dropped_bytes": %d}\n' % dropped if dropped else b""
