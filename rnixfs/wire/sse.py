"""Server-sent events: the stream format of https://html.spec.whatwg.org/multipage/server-sent-events.html.

Own code although httpx2 has a reader: its iterators leave an inner generator to the garbage collector when
reading stops early, at a failure or at the provider's end mark, and trio complains of each with a warning.
"""

from rnixfs.errors import Code
from rnixfs.wire.failure import WireError


class EventReader:
    """Turns the bytes of a stream, however they are cut, into the data of its events."""

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[str]:
        """Take some bytes and return the data of each event that they complete.

        Raises:
            WireError: they are no UTF-8. (Browsers would replace what is none: an answer is not to change.)
        """
        self._pending.append(chunk)
        if b"\n" not in chunk and b"\r" not in chunk:
            return []
        lines = b"".join(self._pending).splitlines(keepends=True)
        # A carriage return at the very end may be the first half of a line end.
        self._pending = [] if lines[-1].endswith(b"\n") else [lines.pop()]
        events = [self._line(line.rstrip(b"\r\n")) for line in lines]
        return [event for event in events if event is not None]

    def _line(self, line: bytes) -> str | None:
        if not line and self._data:
            event, self._data = "\n".join(self._data), []
            return event
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(_text(value.removeprefix(b" ")))
        return None


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise WireError(Code.DRIVER, f"the stream holds bytes that are no UTF-8: {error}") from None
