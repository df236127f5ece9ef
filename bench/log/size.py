"""What a run takes on disk, beside the bytes of its distinct content."""

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence

from bench.log import runs
from bench.log.runs import Content, Stage
from rnixfs.state.sqlite import SqliteStore

TARGET = 1.2  # what a run may take on disk, in times of its distinct content


@dataclasses.dataclass(frozen=True)
class Size:
    """What one run takes on disk.

    Args:
        texts: which texts it had.
        content: what is in it.
        bytes: of its files, once the log was closed.
    """

    texts: str
    content: Content
    bytes: int

    @property
    def ratio(self) -> float:
        """Bytes on disk in times of the distinct content."""
        return self.bytes / self.content.bytes

    def row(self) -> str:
        """A line of the table."""
        content = self.content
        return f"{self.texts:24}{content.texts:14,}{content.lines:16,}{self.bytes:16,}{self.ratio:12.2f}"


HEAD = f"{'':24}{'its texts':>14}{'trace and log':>16}{'bytes on disk':>16}{'ratio':>12}"


def measure(folder: pathlib.Path, steps: int) -> Iterator[Size]:
    """Make a run with each kind of texts, and look at what it left on disk."""
    for make in runs.KINDS:
        texts = make(steps)
        place = folder / make.__name__
        stage = Stage(place, texts)
        log = SqliteStore(place / "state")
        try:
            found = runs.content(log, stage.run(log))
        finally:
            log.close()
        yield Size(texts.name, found, runs.on_disk(place / "state"))


def summary(sizes: Sequence[Size]) -> str:
    """The ratios, for other programs: of the usual texts, and of the worst ones."""
    worst = max(size.ratio for size in sizes)
    return f"size ratio {sizes[0].ratio:.2f}, at worst {worst:.2f} (target {TARGET:.2f})"
