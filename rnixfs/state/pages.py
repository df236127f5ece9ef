"""The rows of an SQLite file read without SQLite, so that damage in one place hides nothing elsewhere.

Source of the formats: https://www.sqlite.org/fileformat2.html, sections 1.6 (pages of b-trees), 2.1 (records)
and 4 (the write-ahead log). Only leaves of tables are looked at, each by itself: what leads to them may be
gone. Which table a row belongs to, and whether it is whole, the reader of the rows must see from its values.
"""

import mmap
import pathlib
import struct
from collections.abc import Iterator

Value = int | float | bytes | str | None
Row = tuple[int, list[Value]]  # rowid, values; a column that is the rowid is None

_LEAF = 0x0D
_FILE_HEADER = 100  # bytes at the start of page 1
_WAL_HEADER, _FRAME_HEADER = 32, 24  # bytes
_WAL_LITTLE, _WAL_BIG = 0x377F0682, 0x377F0683
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}  # bytes by serial type
_BROKEN = (IndexError, ValueError, struct.error)


class Pages:
    """The pages of a file, each as the last transaction left it that is whole.

    Args:
        path: the file; its write-ahead log lies beside it.
        size: bytes of a page.

    Raises:
        OSError: the host's reason.
    """

    def __init__(self, path: pathlib.Path, size: int) -> None:
        self._size = size
        self._file = _contents(path)
        self._log = _contents(path.with_name(path.name + "-wal"))
        self._newer = dict(_committed(self._log, size))
        self.count = max(len(self._file) // size, *self._newer, 0)

    def page(self, number: int) -> bytes:
        """The bytes of a page, from 1; fewer than a page where the file ends.

        Raises:
            IndexError: if there is no such page.
        """
        if not 1 <= number <= self.count:
            raise IndexError(number)
        if number in self._newer:
            return self._log[self._newer[number] :][: self._size]
        return self._file[(number - 1) * self._size : number * self._size]

    def rows(self) -> Iterator[Row]:
        """Every row that can be read, in no order."""
        for number in range(1, self.count + 1):
            page = self.page(number)
            start = _FILE_HEADER if number == 1 else 0
            if page[start : start + 1] == bytes([_LEAF]):
                yield from self._leaf(page, start)

    def _leaf(self, page: bytes, start: int) -> Iterator[Row]:
        (cells,) = struct.unpack_from(">H", page, start + 3)
        for index in range(cells):
            try:
                (place,) = struct.unpack_from(">H", page, start + 8 + 2 * index)
                row = self._cell(page, place)
            except _BROKEN:
                continue
            yield row

    def _cell(self, page: bytes, place: int) -> Row:
        length, place = _varint(page, place)
        rowid, place = _varint(page, place)
        here = self._local(length)
        payload = page[place : place + here]
        if here < length:
            (following,) = struct.unpack_from(">I", page, place + here)
            payload += self._overflow(following, length - here)
        if len(payload) != length:
            raise ValueError("a row that is cut off")
        return _signed(rowid), list(_record(payload))

    def _local(self, length: int) -> int:
        """How many bytes of a row lie in its leaf; the rest is in pages of its own."""
        most = self._size - 35
        if length <= most:
            return length
        least = (self._size - 12) * 32 // 255 - 23
        share = least + (length - least) % (self._size - 4)
        return share if share <= most else least

    def _overflow(self, number: int, length: int) -> bytes:
        if length > self.count * self._size:
            raise ValueError("a row longer than the file")
        parts = []
        while length > 0:
            page = self.page(number)
            (number,) = struct.unpack_from(">I", page)
            parts.append(page[4 : 4 + length])
            length -= self._size - 4
        return b"".join(parts)


def _contents(path: pathlib.Path) -> bytes | mmap.mmap:
    try:
        with path.open("rb") as file:
            # An empty file cannot be mapped.
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (FileNotFoundError, ValueError):
        return b""


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A number of one to nine bytes, and the place after it."""
    value = 0
    for index in range(8):
        byte = data[place + index]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place + index + 1
    return value << 8 | data[place + 8], place + 9


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _record(payload: bytes) -> Iterator[Value]:
    size, place = _varint(payload, 0)
    body = size
    while place < size:
        kind, place = _varint(payload, place)
        value, body = _value(payload, body, kind)
        yield value


def _value(payload: bytes, place: int, kind: int) -> tuple[Value, int]:
    if kind == 0:
        return None, place
    if kind in _INTEGERS:
        end = place + _INTEGERS[kind]
        return int.from_bytes(payload[place:end], "big", signed=True), end
    if kind == 7:
        return struct.unpack_from(">d", payload, place)[0], place + 8
    if kind in (8, 9):
        return kind - 8, place
    if kind < 12:
        raise ValueError("a kind of value that no file has")
    end = place + (kind - 12) // 2
    if end > len(payload):
        raise ValueError("a value that is cut off")
    found = payload[place:end]
    return (found.decode() if kind % 2 else found), end


def _committed(log: bytes | mmap.mmap, size: int) -> Iterator[tuple[int, int]]:
    """Numbers of pages and where they lie in the write-ahead log, oldest first, up to the last commit."""
    if len(log) < _WAL_HEADER:
        return
    magic, _, page_size, _, *rest = struct.unpack_from(">8I", log)
    if magic not in (_WAL_LITTLE, _WAL_BIG) or page_size != size:
        return
    order = "<" if magic == _WAL_LITTLE else ">"
    salts, before = rest[:2], tuple(rest[2:])
    waiting: list[tuple[int, int]] = []
    for place in range(_WAL_HEADER, len(log) - _FRAME_HEADER - size + 1, _FRAME_HEADER + size):
        number, commit, *found = struct.unpack_from(">6I", log, place)
        body = place + _FRAME_HEADER
        # Each frame holds the sum of all before it, so one that is damaged spoils only itself and the next.
        # Those of an earlier round, which follow the last, have other salts.
        mine = found[:2] == salts
        if mine and _sum(order, before, log[place : place + 8], log[body : body + size]) == tuple(found[2:]):
            waiting.append((number, body))
            if commit:
                yield from waiting
                waiting.clear()
        before = tuple(found[2:])


def _sum(order: str, before: tuple[int, ...], *parts: bytes) -> tuple[int, int]:
    one, two = before
    for part in parts:
        words = struct.unpack(f"{order}{len(part) // 4}I", part)
        for index in range(0, len(words), 2):
            one = (one + words[index] + two) & 0xFFFFFFFF
            two = (two + words[index + 1] + one) & 0xFFFFFFFF
    return one, two
