"""Long texts of events, kept once: an event holds `{"#": id}` instead, wherever in its data the text stood.

An object whose only key is made of `#` gets one more of them, so that no data can pass for a reference.
"""

import hashlib
import sqlite3
import zlib
from typing import Any

from rnixfs import limits
from rnixfs.state import codec
from rnixfs.state.failures import DamagedError

MARK = "#"
_SIGN = b'"#'  # without these two bytes, encoded data holds neither a reference nor what looks like one
_KNOWN_MAX = 8192  # contents whose number is remembered by their hash
_FAST = 1  # level of zlib: a quarter of the time of the usual one, for a tenth more bytes

_FIND = "SELECT id FROM content WHERE hash = ?"
_GET = "SELECT hash, size, data FROM content WHERE id = ?"
_ADD = "INSERT INTO content (id, hash, size, data) VALUES (?, ?, ?, ?)"


def fingerprint(raw: bytes) -> bytes:
    """What a text is known by: 16 bytes of BLAKE2b."""
    return hashlib.blake2b(raw, digest_size=16).digest()


def shrink(raw: bytes) -> bytes:
    """A text as it is kept: compressed if that makes it smaller."""
    small = zlib.compress(raw, _FAST)
    return small if len(small) < len(raw) else raw


def grow(fingerprinted: bytes, size: int, kept: bytes) -> bytes | None:
    """The text that was kept, None if it is no longer what was put there.

    Args:
        fingerprinted: what `fingerprint` said of it.
        size: its bytes.
        kept: what `shrink` made of it.
    """
    try:
        raw = kept if len(kept) == size else zlib.decompress(kept)
    except (zlib.error, TypeError):
        return None
    return raw if len(raw) == size and fingerprint(raw) == fingerprinted else None


def references(stored: bytes) -> set[int]:
    """The numbers of the contents that stored data refers to."""
    found: set[int] = set()
    if _SIGN in stored:
        _gather(codec.decode(stored), found)
    return found


class Contents:
    """The texts of one log.

    Args:
        db: the log; each `pack` happens inside a transaction of it.
        last: the highest number ever given to a text, removed ones included.
    """

    def __init__(self, db: sqlite3.Connection, last: int) -> None:
        self._db = db
        self.last = last
        self._known: dict[bytes, int] = {}

    def forget(self) -> None:
        """Look every text up anew: a transaction was undone, or texts were removed."""
        self._known.clear()

    # --- in ---

    def pack(self, encoded: bytes) -> tuple[bytes, set[int]]:
        """Data as it is stored, and the numbers of the texts that it refers to."""
        if len(encoded) < limits.CONTENT_MIN + 2 and _SIGN not in encoded:
            return encoded, set()
        used: set[int] = set()
        data = codec.decode(encoded)
        packed = self._replace(data, used)
        return (encoded if packed is data else codec.encode_unchecked(packed)), used

    def _replace(self, value: Any, used: set[int]) -> Any:
        if isinstance(value, str):
            return self._refer(value, used)
        if isinstance(value, dict):
            return self._replace_items(value, used)
        if isinstance(value, list):
            items = [self._replace(one, used) for one in value]
            return value if all(map(_same, items, value)) else items
        return value

    def _replace_items(self, value: dict[str, Any], used: set[int]) -> dict[str, Any]:
        items = {key: self._replace(one, used) for key, one in value.items()}
        if len(items) == 1 and _is_mark(next(iter(items))):
            return {MARK + key: one for key, one in items.items()}
        return value if all(map(_same, items.values(), value.values())) else items

    def _refer(self, text: str, used: set[int]) -> Any:
        # No character of UTF-8 has more than four bytes.
        if len(text) < limits.CONTENT_MIN // 4:
            return text
        raw = text.encode("utf-8", "surrogatepass")
        return text if len(raw) < limits.CONTENT_MIN else {MARK: self._number(raw, used)}

    def _number(self, raw: bytes, used: set[int]) -> int:
        key = fingerprint(raw)
        number = self._known.get(key) or self._find(key) or self._add(key, raw)
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[key] = number
        used.add(number)
        return number

    def _find(self, key: bytes) -> int:
        found = self._db.execute(_FIND, (key,)).fetchone()
        return found[0] if found else 0

    def _add(self, key: bytes, raw: bytes) -> int:
        # Numbers are never given twice, also after a removal: a salvaged event must not find another's text.
        self.last += 1
        self._db.execute(_ADD, (self.last, key, len(raw), shrink(raw)))
        return self.last

    # --- out ---

    def unpack(self, stored: bytes) -> dict[str, Any]:
        """The data that was packed.

        Raises:
            DamagedError: for a text that is gone or changed.
            ValueError: for what is no data.
        """
        data = codec.decode(stored)
        if _SIGN not in stored:
            return data
        restored: dict[str, Any] = self._restore(data)
        return restored

    def _restore(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._restore(one) for one in value]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            (key, one), *_ = value.items()
            if key == MARK:
                return self._raw(one).decode("utf-8", "surrogatepass")
            if _is_mark(key):
                return {key[1:]: self._restore(one)}
        return {key: self._restore(one) for key, one in value.items()}

    def _raw(self, number: int) -> bytes:
        found = self._db.execute(_GET, (number,)).fetchone()
        raw = grow(*found) if found else None
        if raw is None:
            raise DamagedError(f"content {number} of the log")
        return raw


def _gather(value: Any, found: set[int]) -> None:
    if isinstance(value, list):
        for one in value:
            _gather(one, found)
    elif isinstance(value, dict):
        if len(value) == 1 and isinstance(number := value.get(MARK), int):
            found.add(number)
        for one in value.values():
            _gather(one, found)


def _is_mark(key: str) -> bool:
    return bool(key) and not key.strip(MARK)


def _same(one: Any, other: Any) -> bool:
    return one is other
