"""Messages of a server that come as lines, whatever else comes with them."""

import re

from rnixfs import limits
from rnixfs.errors import Code, SyscallError

_ID = rb'"id"\s*:\s*(\d+|"[^"\\]{1,100}")\s*'
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"\s*'
# Where an id can only be that of the message itself: next to its first or its last brace.
_HEAD = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb",\s*)?" + _ID + rb",")
_TAIL = re.compile(rb",\s*(?:" + _VERSION + rb",\s*)?" + _ID + rb"(?:,\s*" + _VERSION + rb")?\}\s*$")
_EDGE = 256  # bytes at either end of a message that is too long in which its id is looked for


class TooLong:
    """A line that was thrown away since it is longer than a message may be.

    Args:
        size: its bytes.
        answers: JSON of the id of the request that it answered, None where that is not to be seen.
    """

    def __init__(self, size: int, answers: bytes | None) -> None:
        self.size = size
        self.answers = answers


class Lines:
    """Cuts what comes into lines, and holds no more than one message of the longest size.

    Args:
        most: bytes of a message at most.
    """

    def __init__(self, most: int = limits.MCP_OUTPUT_MAX) -> None:
        self._most = max(most, 2 * _EDGE)
        self._data = bytearray()
        self._searched = 0
        self._size = 0  # of a line that is thrown away
        self._head = b""

    def feed(self, chunk: bytes) -> list[bytes | TooLong]:
        """Take bytes; returns the lines that are whole now, without those that are blank.

        Raises:
            SyscallError: TOO_LARGE for a line that does not end.
        """
        found: list[bytes | TooLong] = []
        self._data += chunk
        while (end := self._data.find(b"\n", self._searched)) >= 0:
            line = bytes(self._data[:end])
            del self._data[: end + 1]
            self._searched = 0
            if self._size or len(line) > self._most:
                found.append(self._ended(line))
            elif line.strip():
                found.append(line)
        self._searched = len(self._data)
        if len(self._data) > self._most:
            self._throw_away()
        return found

    def _throw_away(self) -> None:
        if not self._size:
            self._head = bytes(self._data[:_EDGE])
        dropped = len(self._data) - _EDGE
        self._size += dropped
        del self._data[:dropped]
        self._searched = len(self._data)
        if self._size > limits.MCP_SKIPPED_MAX:
            raise SyscallError(
                Code.TOO_LARGE, f"the server sends a line of more than {limits.MCP_SKIPPED_MAX} bytes"
            )

    def _ended(self, line: bytes) -> TooLong:
        head, size = self._head or line[:_EDGE], self._size + len(line)
        self._size, self._head = 0, b""
        found = _HEAD.match(head) or _TAIL.search(line[-_EDGE:])
        return TooLong(size, found[1] if found else None)
