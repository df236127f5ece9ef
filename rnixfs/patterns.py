"""Regular expressions that come from files of the user: checked before use, and run on bounded text only.

Python's engine backtracks, so a pattern such as `(a+)+$` can run for years. Two rules keep a scenario from
stopping the daemon: a repeated group may hold neither another repetition without end nor an alternative, and
there is no back reference; the text is at most `TEXT_MAX` characters.
"""

import re

TEXT_MAX = 64 << 10  # characters of text that a pattern may be tried on
PATTERN_MAX = 1000  # characters of a pattern
REPEATS_MAX = 8  # repetitions in one pattern: each one multiplies the worst case by the text


class RefusedError(ValueError):
    """Something in a user's file that cannot be used.

    Args:
        what: what is wrong.
        right: what would be right.
    """

    def __init__(self, what: str, right: str) -> None:
        super().__init__(f"{what}; {right}")
        self.what = what
        self.right = right


_PIECE = re.compile(
    r"(?P<refer>\\[1-9]|\(\?P=|\(\?\()|(?P<escape>\\.)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<flags>\(\?[a-z]+\))"
    r"|(?P<open>\()(?:\?(?:P<\w+>|<?[=!]|[a-z]*:))?|(?P<close>\))|(?P<maybe>\?)|(?P<repeat>[*+]|\{\d*,?\d*\})[?+]?"
    r"|(?P<bar>\|)|(?P<other>.)",
    re.DOTALL,
)


def compile_pattern(pattern: str, flags: str = "") -> re.Pattern[str]:
    """A pattern ready for use.

    Args:
        pattern: in Python's syntax. `^` and `$` match at every line.
        flags: `i` to ignore case, or empty.

    Raises:
        RefusedError: it is no pattern, or one that could run without end.
    """
    if len(pattern) > PATTERN_MAX:
        raise RefusedError(f"the pattern has {len(pattern)} characters", f"at most {PATTERN_MAX} are taken")
    _check_repeats(pattern)
    try:
        return re.compile(pattern, re.MULTILINE | (re.IGNORECASE if flags == "i" else 0))
    except (re.error, OverflowError, RecursionError) as error:
        what = f"/{pattern}/ is no regular expression: {error}"
        raise RefusedError(what, "correct it, or escape it") from None


def _check_repeats(pattern: str) -> None:
    risky = [False]  # for each open group, outermost first: must it not be repeated?
    closed = False  # was the piece before this one a group that must not be repeated?
    repeats = 0
    for piece in _PIECE.finditer(pattern):
        kind = piece.lastgroup
        if kind == "refer":
            raise RefusedError(f"/{pattern}/ refers back to a group", "write it without back references")
        if kind == "repeat":
            repeats += 1
            _check_group(pattern, closed)
        if kind in ("repeat", "maybe", "bar"):
            risky[-1] = True
        if kind == "open":
            risky.append(False)
        closed = (kind == "maybe" and closed) or (kind == "close" and _close(risky))
    if repeats > REPEATS_MAX:
        raise RefusedError(f"/{pattern}/ has {repeats} repetitions", f"at most {REPEATS_MAX} are taken")


def _check_group(pattern: str, closed: bool) -> None:
    if closed:
        raise RefusedError(
            f"/{pattern}/ repeats a group that holds a repetition or an alternative",
            "repeat one character or set, such as [a-z ]*",
        )


def _close(risky: list[bool]) -> bool:
    """Leave a group; what is risky inside it is risky in the one around it."""
    inner = risky.pop() if len(risky) > 1 else False
    risky[-1] = risky[-1] or inner
    return inner


def clip(text: str) -> str:
    """The start of a text, as much as a pattern may be tried on."""
    return text[:TEXT_MAX]


def bounded(text: str) -> str:
    """A text that is short enough for a pattern.

    Raises:
        RefusedError: it is longer than `TEXT_MAX`.
    """
    if len(text) > TEXT_MAX:
        raise RefusedError(
            f"the text has {len(text)} characters, too many for a pattern",
            f"at most {TEXT_MAX} are taken: shorten it with clip({TEXT_MAX}) first",
        )
    return text
