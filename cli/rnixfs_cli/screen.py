"""What commands print: colour only where a person looks, text of agents made harmless, one line at once."""

import os
import sys
from typing import TextIO

STYLES = {"dim": "2", "bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_WIDE = ("W", "F")


class Screen:
    """A place for output.

    Args:
        stream: where text goes; None where the descriptor is closed, and then nothing is printed.
        terminal: whether a person looks at it; found out where it is not given.
    """

    def __init__(self, stream: TextIO | None = None, terminal: bool | None = None) -> None:
        self.stream = sys.stdout if stream is None else stream
        self.terminal = is_terminal(self.stream) if terminal is None else terminal
        # https://no-color.org: any non-empty value means no colour.
        self.colour = self.terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def line(self, text: str = "") -> None:
        """Print a line at once, so that it is seen while the command goes on."""
        if self.stream is not None:
            self.stream.write(text + "\n")
            self.stream.flush()

    def paint(self, style: str, text: str) -> str:
        """A text in a style of `STYLES`, where there is colour."""
        return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if self.colour else text

    def safe(self, text: str) -> str:
        """Text of an agent: for a terminal without the control characters that could command it."""
        return harmless(text) if self.terminal else text

    def width(self) -> int | None:
        """Columns of the terminal; None where nobody looks and lines may be of any length."""
        if not self.terminal or self.stream is None:
            return None
        columns = os.environ.get("COLUMNS", "")
        if columns.isdecimal() and int(columns):
            return int(columns)
        try:
            return os.get_terminal_size(self.stream.fileno()).columns or None
        except OSError:
            return None


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person looks at a stream."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def harmless(text: str) -> str:
    """Text without control characters other than tabs and newlines; each shows as U+FFFD."""
    if text.isprintable():
        return text
    return "".join("\ufffd" if _controls(one) else one for one in text)


def _controls(character: str) -> bool:
    return (character < " " and character not in "\t\n") or "\x7f" <= character <= "\x9f"


def one_line(text: str) -> str:
    """Text on one line: each run of blanks and newlines becomes one blank."""
    return harmless(" ".join(text.split()))


def cells(text: str) -> int:
    """Columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    import unicodedata

    narrow = sum(not unicodedata.combining(one) for one in text)
    return narrow + sum(unicodedata.east_asian_width(one) in _WIDE for one in text)


def fit(text: str, width: int) -> str:
    """A text cut to a number of columns; an ellipsis shows the cut."""
    if cells(text) <= width:
        return text
    while text and cells(text) > width - 1:
        text = text[: max(width - 1, 0)] if len(text) >= width else text[:-1]
    return text + "…" if width > 0 else ""


def duration(milliseconds: float) -> str:
    """A time as people read it: `0.4s`, `6.2s`, `2m05s`, `1h02m`."""
    seconds = milliseconds / 1000
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    return f"{minutes // 60}h{minutes % 60:02d}m"


def model_label(status: dict[str, object]) -> str:
    """Provider and model of a process: `script/code-analyst`."""
    return "/".join(str(status[key]) for key in ("provider", "model") if status.get(key)) or "-"


def exit_line(pid: int, label: str, end: dict[str, object]) -> str:
    """The kernel's last word on a process.

    Args:
        pid: the process.
        label: provider and model.
        end: what `proc/<pid>/wait` gave.
    """
    code = int(str(end.get("code", 1)))
    took = duration(float(str(end.get("elapsed_ms", 0))))
    parts = [
        f"[kernel] PID {pid} exited({code})",
        label,
        f"tokens: {end.get('tokens_used', 0)}",
        f"elapsed: {took}",
    ]
    if code:
        parts.append(f"reason: {one_line(str(end.get('reason', '')))}")
    return " | ".join(parts)
