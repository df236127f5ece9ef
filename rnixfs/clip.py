"""Long text kept short: its beginning, its end, and the exact count of what lies between."""

from rnixfs import limits


class Clip:
    """Takes text piece by piece, keeps at most `limit_chars` of it, and counts the rest.

    Args:
        limit_chars: characters kept in all.
        tail_chars: how many of them are the end of the text.

    Raises:
        ValueError: if the end alone would pass the limit.
    """

    def __init__(
        self, limit_chars: int = limits.SHELL_OUTPUT_MAX, tail_chars: int = limits.SHELL_TAIL
    ) -> None:
        if not 0 <= tail_chars <= limit_chars:
            raise ValueError(f"tail_chars is {tail_chars}; it must lie between 0 and {limit_chars}")
        self._head_room = limit_chars - tail_chars
        self._tail_chars = tail_chars
        self._head: list[str] = []
        self._tail: list[str] = []
        self._tail_held = 0
        self._after_head = 0

    def feed(self, text: str) -> str:
        """Take the next piece; return the part of it that stays for certain, as it is in the beginning."""
        head, rest = text[: self._head_room], text[self._head_room :]
        if head:
            self._head_room -= len(head)
            self._head.append(head)
        if rest:
            self._after_head += len(rest)
            self._hold(rest)
        return head

    @property
    def cut(self) -> int:
        """How many characters are left out so far."""
        return max(0, self._after_head - self._tail_chars)

    def rest(self) -> str:
        """What follows the pieces that `feed` returned: the mark of the cut, if any, and the end."""
        end = self._end("".join(self._tail))
        return f"\n[… {self.cut} characters cut …]\n{end}" if self.cut else end

    def text(self) -> str:
        """The whole text, clipped."""
        return "".join(self._head) + self.rest()

    def _hold(self, rest: str) -> None:
        piece = self._end(rest)
        self._tail.append(piece)
        self._tail_held += len(piece)
        # Joined only now and then, so that many small pieces cost no more than a few large ones. The
        # count of pieces matters too: a string of one character weighs far more than its character.
        if self._tail_held > 2 * self._tail_chars or len(self._tail) > 1024:
            joined = self._end("".join(self._tail))
            self._tail = [joined]
            self._tail_held = len(joined)

    def _end(self, text: str) -> str:
        return text[max(0, len(text) - self._tail_chars) :]
