"""The lines of `proc/<pid>/log`: `[  0.013s] category text`; what goes on over more lines is indented."""

from typing import NamedTuple

from rnixfs_cli.screen import Screen, fit

_STYLES = {"think": "dim", "output": "dim", "tool": "cyan", "warning": "yellow", "step": "bold"}
INDENT = "    "
"""What the kernel writes before the second and later lines of an entry."""


class Entry(NamedTuple):
    """One line of a log.

    Args:
        seconds: time since the start of the process.
        category: think, tool, output, warning or step; empty for a line of another form.
        text: the rest.
    """

    seconds: float
    category: str
    text: str

    @property
    def goes_on(self) -> bool:
        """Whether the line belongs to the entry before it."""
        return not self.category and self.text.startswith(INDENT)

    def as_dict(self) -> dict[str, object]:
        """The entry for programs."""
        return {"seconds": self.seconds, "category": self.category, "text": self.text}


def parse(line: str) -> Entry:
    """Take a line apart; one of another form is all text."""
    stamp, _, rest = line.partition("] ")
    category, _, text = rest.partition(" ")
    try:
        return Entry(float(stamp.removeprefix("[").strip().removesuffix("s")), category, text)
    except ValueError:
        return Entry(0.0, "", line)


def live(entry: Entry, pid: int, screen: Screen) -> str:
    """An entry as `rnix spawn` shows it: `[agent/1] step 1`; of output a terminal gets one line.

    Args:
        entry: the entry.
        pid: whose it is.
        screen: decides on colour.
    """
    text = screen.safe(entry.text)
    if entry.category == "step":
        text = text if text.startswith("step") else f"step {text}"
    elif entry.category in ("tool", "output", "warning"):
        text = f"{entry.category}: {text}"
    line, width = f"[agent/{pid}] {text}", screen.width()
    if entry.category == "output" and width is not None:
        line = fit(line, width)
    return painted(line, entry, screen)


def painted(text: str, entry: Entry, screen: Screen) -> str:
    """A text in the colour of an entry's category."""
    style = _STYLES.get(entry.category)
    return screen.paint(style, text) if style else text
