"""Where a request ends: requests are framed by their content, since a close says nothing reliable.

A program's output arrives in pieces of any size, and the host kernel reports the close of every duplicate of
a descriptor, even before the first write. So JSON ends where its value ends, and text ends at the last close
or when its reader comes.
"""

from typing import Any

import msgspec

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, invalid

_TRUNCATED = "truncated"


class Framer:
    """Collects one request.

    A request that starts with `{` is a JSON object; anything else is text.
    """

    def __init__(self) -> None:
        self._data = bytearray()

    def __bool__(self) -> bool:
        """Whether a request has begun and not ended."""
        return bool(self._data.strip())

    def feed(self, data: bytes) -> dict[str, Any] | None:
        """Add bytes; return the object once it is complete, else None.

        Raises:
            SyscallError: TOO_LARGE past `limits.REQUEST_MAX`, INVALID for malformed JSON. The request is
                dropped in both cases.
        """
        self._data += data
        if len(self._data) > limits.REQUEST_MAX:
            self._data.clear()
            raise SyscallError(
                Code.TOO_LARGE, f"a request may have {limits.REQUEST_MAX} bytes; this one has more"
            )
        return self._object() if self._data.lstrip()[:1] == b"{" else None

    def _object(self) -> dict[str, Any] | None:
        try:
            value: dict[str, Any] = msgspec.json.decode(self._data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if _TRUNCATED in str(error):
                return None
            self._data.clear()
            raise invalid(f"not a JSON object: {error}") from None
        self._data.clear()
        return value

    def finish(self) -> str | None:
        """End the request; return its text without the last newline, or None where there is none.

        Raises:
            SyscallError: INVALID for JSON that stops in the middle and for text that is not UTF-8.
        """
        data, self._data = bytes(self._data), bytearray()
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
