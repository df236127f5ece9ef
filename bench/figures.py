"""What the benchmark measured, and how it is shown. Pure: no clock, no files."""

import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

OURS, C, PROCFS, TMPFS = "rnixfs", "c", "procfs", "tmpfs"
SERVERS = (OURS, C, PROCFS, TMPFS)
SAME, CROSS = "same", "cross"
LAYOUTS = {SAME: "client and server on the same core", CROSS: "client and server on two cores"}
TARGET = 1.6  # what open+read+close may cost, in times of the C server
_SUMMARY = ("orc", "stat", "pread")


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """One thing that is measured.

    Args:
        name: as the client and the JSON output call it.
        what: one line for people.
        path: below the root of each server.
        count: how often it is done for one figure.
        elsewhere: which servers can do it beside the two FUSE servers.
    """

    name: str
    what: str
    path: str
    count: int
    elsewhere: tuple[str, ...] = (TMPFS,)

    def servers(self) -> tuple[str, ...]:
        """The servers that can do it."""
        return (OURS, C, *self.elsewhere)


OPERATIONS = (
    Operation("orc", "open+read+close proc/1/status", "proc/1/status", 1000, (PROCFS, TMPFS)),
    Operation("stat", "stat proc/1/status", "proc/1/status", 2000, (PROCFS, TMPFS)),
    Operation("pread", "pread 4 KiB of proc/1/messages.json", "proc/1/messages.json", 3000),
    Operation("readdir", "open+list+close proc", "proc", 500),
    Operation("ctl", "write+read proc/1/ctl", "proc/1/ctl", 1000),
    Operation("exchange", "request+answer dev/llm/script", "dev/llm/script", 200),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """One figure: medians and tails of one operation at one server in one round, in microseconds."""

    layout: str
    operation: str
    server: str
    round: int
    p50: float
    p99: float


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """What the daemon takes while programs wait for it.

    Args:
        readers: programs that wait in a read.
        rss_kib: its resident memory, KiB.
        cpu_ms_per_s: milliseconds of processor time it takes in a second.
    """

    readers: int
    rss_kib: int
    cpu_ms_per_s: float


class Figures:
    """All samples of one run.

    Args:
        samples: in any order.
        loads: without readers first.
    """

    def __init__(self, samples: Iterable[Sample], loads: Sequence[Load]) -> None:
        self.samples = tuple(samples)
        self.loads = tuple(loads)

    def _of(self, layout: str, operation: str, server: str) -> dict[int, Sample]:
        wanted = (layout, operation, server)
        return {
            sample.round: sample
            for sample in self.samples
            if (sample.layout, sample.operation, sample.server) == wanted
        }

    def median(self, layout: str, operation: str, server: str) -> float | None:
        """The median over the rounds of the p50, microseconds; None where nothing was measured."""
        samples = self._of(layout, operation, server).values()
        return statistics.median(sample.p50 for sample in samples) if samples else None

    def ratio(self, layout: str, operation: str, server: str) -> float | None:
        """How many times the C server's time: the median of the ratios within each round.

        Other load of the machine changes from round to round, so times of different rounds are not
        comparable, and neither would be a ratio of their medians.
        """
        theirs = self._of(layout, operation, C)
        ratios = [
            sample.p50 / theirs[number].p50
            for number, sample in self._of(layout, operation, server).items()
            if number in theirs
        ]
        return statistics.median(ratios) if ratios else None

    def layouts(self) -> list[str]:
        """The layouts that were measured."""
        return [layout for layout in LAYOUTS if any(sample.layout == layout for sample in self.samples)]

    # --- for people ---

    def table(self) -> str:
        """Everything as text."""
        parts = [self._layout(layout) for layout in self.layouts()]
        parts.extend(_load_line(load) for load in self.loads)
        return "\n".join(parts)

    def _layout(self, layout: str) -> str:
        head = "".join(f"{name:>19}" for name in SERVERS)
        rows = [f"{LAYOUTS[layout]}: p50 in microseconds, in brackets times the C server", f"{'':36}{head}"]
        for operation in OPERATIONS:
            cells = "".join(f"{self._cell(layout, operation.name, server):>19}" for server in SERVERS)
            rows.append(f"{operation.what:36}{cells}")
        return "\n".join([*rows, ""])

    def _cell(self, layout: str, operation: str, server: str) -> str:
        median, ratio = self.median(layout, operation, server), self.ratio(layout, operation, server)
        return "-" if median is None or ratio is None else f"{median:.1f} ({ratio:.2f})"

    def summary(self) -> str:
        """The last line: the ratios to the C server with one core for both."""
        orc, stat, pread = (self.ratio(SAME, name, OURS) for name in _SUMMARY)
        assert orc is not None
        assert stat is not None
        assert pread is not None
        return f"orc ratio {orc:.2f} (target {TARGET:.2f}), stat ratio {stat:.2f}, pread ratio {pread:.2f}"

    # --- for programs ---

    def as_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {
            "target": TARGET,
            "layouts": {
                layout: {operation.name: self._row(layout, operation) for operation in OPERATIONS}
                for layout in self.layouts()
            },
            "loads": [dataclasses.asdict(load) for load in self.loads],
            "samples": [dataclasses.asdict(sample) for sample in self.samples],
        }

    def _row(self, layout: str, operation: Operation) -> dict[str, Any]:
        return {
            server: {
                "p50_us": self.median(layout, operation.name, server),
                "ratio": self.ratio(layout, operation.name, server),
            }
            for server in operation.servers()
            if self._of(layout, operation.name, server)
        }


def _load_line(load: Load) -> str:
    return (
        f"{load.readers:5} blocked readers: {load.rss_kib / 1024:.1f} MiB resident, "
        f"{load.cpu_ms_per_s:.2f} ms of processor time a second"
    )
