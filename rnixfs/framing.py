"""Where a request ends: requests are framed by their content, since a close says nothing reliable.

A program's output arrives in pieces of any size, and the host kernel reports the close of every duplicate of
a descriptor, even before the first write. So JSON ends where its value ends, and text ends at the last close
or when its reader comes.
"""

import re
from typing import Any

import msgspec

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, invalid

_BLANKS = 64  # bytes looked at first for what a request starts with
_STRUCTURE = re.compile(rb'[\\"{}]')
_LONE = re.compile(rb"\\u[dD][89a-fA-F]")


class Framer:
    """Collects one request.

    A request that starts with `{` is a JSON object; anything else is text.
    """

    def __init__(self) -> None:
        self._data = bytearray()
        self._scanned = 0
        self._depth = 0
        self._quoted = False

    def __bool__(self) -> bool:
        """Whether a request has begun and not ended."""
        return bool(self._data.strip())

    @property
    def is_text(self) -> bool:
        """Whether a text has begun: one that a close or a reader ends."""
        return self._first() not in (b"", b"{")

    def _first(self) -> bytes:
        return bytes(self._data[:_BLANKS].lstrip()[:1] or self._data.lstrip()[:1])

    def feed(self, data: bytes) -> dict[str, Any] | None:
        """Add bytes; return the object once it is complete, else None.

        Raises:
            SyscallError: TOO_LARGE past `limits.REQUEST_MAX`, INVALID for malformed JSON. The request is
                dropped in both cases.
        """
        self._data += data
        if len(self._data) > limits.REQUEST_MAX:
            self._drop()
            raise SyscallError(
                Code.TOO_LARGE, f"a request may have {limits.REQUEST_MAX} bytes; this one has more"
            )
        if self._first() != b"{":
            return None
        return self._decode() if self._looks_whole() or self._is_whole() else None

    def _looks_whole(self) -> bool:
        """Whether the first write is one JSON value, as nearly all are: decoding takes less than scanning."""
        if self._scanned or not self._data.rstrip().endswith(b"}"):
            return False
        try:
            msgspec.json.decode(self._data, type=msgspec.Raw)
        except (msgspec.DecodeError, RecursionError):
            return False  # the scan finds out whether more is to come, or what is wrong
        return True

    def _is_whole(self) -> bool:
        """Whether the braces that were opened are closed; each byte is looked at once."""
        position = self._scanned
        while found := _STRUCTURE.search(self._data, position):
            sign, position = found[0], found.end()
            if sign == b"\\":
                position += 1  # the escaped byte, which may come with the next write
            elif sign == b'"':
                self._quoted = not self._quoted
            elif not self._quoted:
                self._depth += 1 if sign == b"{" else -1
                if self._depth == 0:
                    return True
        self._scanned = max(position, len(self._data))
        return False

    def _decode(self) -> dict[str, Any]:
        data = bytes(self._data)
        self._drop()
        try:
            value: dict[str, Any] = msgspec.json.decode(data)
            if _LONE.search(data):
                msgspec.json.encode(value)  # half of a surrogate pair could not be passed on
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise invalid(f"not a JSON object: {error}") from None
        return value

    def _drop(self) -> None:
        self._data = bytearray()
        self._scanned = self._depth = 0
        self._quoted = False

    def finish(self) -> str | None:
        """End the request; return its text without the last newline, or None where there is none.

        Raises:
            SyscallError: INVALID for JSON that stops in the middle and for text that is not UTF-8.
        """
        data = bytes(self._data)
        self._drop()
        if not data.strip():
            return None
        if data.lstrip()[:1] == b"{":
            raise invalid(
                "the request stops in the middle of a JSON object: a closing brace or quote is missing"
            )
        try:
            return data.decode().removesuffix("\n")
        except UnicodeDecodeError as error:
            raise invalid(f"text must be UTF-8; byte {error.start} is not") from None
