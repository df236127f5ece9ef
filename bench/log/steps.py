"""What it costs that a step is kept: runs with the log in memory and on disk, and the same in LangGraph.

In each round every one of them makes a whole run, in random order. The runs of LangGraph are made by a
program of its own (`checkpointer.py`), with the messages that ours made.
"""

import dataclasses
import gc
import pathlib
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence

from bench.log import peer, runs
from bench.log.runs import Pace, Stage
from rnixfs.state.memory import MemoryStore
from rnixfs.state.sqlite import SqliteStore
from rnixfs.state.store import Log

MEMORY, NORMAL, FULL = "log in memory", "SQLite, normal", "SQLite, full"
OURS: dict[str, str] = {MEMORY: "", NORMAL: "normal", FULL: "full"}
BASES = dict.fromkeys(OURS, MEMORY) | peer.VARIANTS
"""For each run the one in memory that it is compared with."""


@dataclasses.dataclass(frozen=True)
class Sample:
    """One run.

    Args:
        who: one of `BASES`.
        round: from 0.
        pace: of its steps.
        bytes: on disk once it was closed; 0 for what is in memory.
    """

    who: str
    round: int
    pace: Pace
    bytes: int


class Steps:
    """All samples.

    Args:
        samples: in any order.
        steps: of each run.
        messages: bytes of the distinct texts of the messages, which both have.
    """

    def __init__(self, samples: Sequence[Sample], steps: int, messages: int) -> None:
        self.samples = tuple(samples)
        self.steps = steps
        self.messages = messages

    def of(self, who: str) -> dict[int, Sample]:
        """The samples of one, by round."""
        return {one.round: one for one in self.samples if one.who == who}

    def median(self, who: str, figure: Callable[[Sample], float]) -> float:
        """The median over the rounds."""
        return statistics.median(map(figure, self.of(who).values()))

    def ratio(self, who: str, base: str, figure: Callable[[Sample], float]) -> float:
        """How many times that of another: the median of the ratios within each round."""
        other = self.of(base)
        return statistics.median(
            figure(sample) / figure(other[number]) for number, sample in self.of(who).items()
        )

    @property
    def beside(self) -> bool:
        """Whether LangGraph was measured."""
        return all(self.of(who) for who in peer.VARIANTS)

    # --- for people ---

    def rows(self) -> list[str]:
        """The table of the times."""
        head = f"{'':36}{'ms a step':>12}{'p50':>10}{'in memory = 1':>16}{'ms for the disk':>18}"
        return [head, *(self._row(who) for who in (*OURS, *peer.VARIANTS) if self.of(who))]

    def _row(self, who: str) -> str:
        row = f"{who:36}{self.median(who, _mean):12.2f}{self.median(who, _p50):10.2f}"
        if who == BASES[who]:
            return f"{row}{1:16.2f}{'-':>18}"
        return f"{row}{self.ratio(who, BASES[who], _mean):16.2f}{self.more(who):18.2f}"

    def more(self, who: str) -> float:
        """Milliseconds a step that one on disk takes more than the same in memory."""
        here, base = self.of(who), self.of(BASES[who])
        return statistics.median(_mean(here[number]) - _mean(base[number]) for number in here)

    def beside_rows(self) -> list[str]:
        """Both on disk: time and size. LangGraph's SQLite does what ours does at `full`."""
        head = f"{'':36}{'ms a step, p50':>16}{'ms for the disk':>18}{'bytes on disk':>16}"
        return [f"{head}{'times the messages':>20}", *map(self._beside_row, (NORMAL, FULL, *peer.ON_DISK))]

    def _beside_row(self, who: str) -> str:
        size = self.median(who, _bytes)
        times = f"{self.median(who, _p50):16.2f}{self.more(who):18.2f}"
        return f"{who:36}{times}{size:16,.0f}{size / self.messages:20.2f}"

    def summary(self) -> str:
        """The ratios, for other programs."""
        normal, full = (self.ratio(who, MEMORY, _mean) for who in (NORMAL, FULL))
        line = f"log step ratio {normal:.2f} normal, {full:.2f} full"
        if not self.beside:
            return f"{line}; langgraph not measured"
        pair = (FULL, peer.USUAL)
        times = " to ".join(f"{self.median(who, _p50):.1f}" for who in pair)
        more = " to ".join(f"{self.more(who):.1f}" for who in pair)
        sizes = " to ".join(f"{self.median(who, _bytes):,.0f}" for who in pair)
        return (
            f"{line}; beside langgraph {times} ms a step (ratio {self.ratio(*pair, _p50):.2f}), "
            f"of which {more} for the disk, {sizes} bytes (ratio {self.ratio(*pair, _bytes):.3f})"
        )


def _mean(sample: Sample) -> float:
    return sample.pace.mean


def _p50(sample: Sample) -> float:
    return sample.pace.p50


def _bytes(sample: Sample) -> float:
    return float(sample.bytes)


def measure(folder: pathlib.Path, rounds: int, steps: int, python: str) -> Steps:
    """Make all runs.

    Args:
        folder: a place for them.
        rounds: how often each is made.
        steps: steps with a tool of a run.
        python: the Python that has LangGraph; empty to leave that out.
    """
    stage = Stage(folder / "stage", runs.typical(steps))
    log = MemoryStore()
    messages = runs.conversation(log, stage.run(log))  # the first run also warms all up
    samples: list[Sample] = []
    for number in range(rounds):
        place = folder / f"round-{number}"
        turns = [*OURS, *([peer.NAME] if python else [])]
        random.shuffle(turns)
        for turn in turns:
            samples.extend(_turn(turn, number, stage, place, messages, python))
    distinct = {text for one in messages for text in one.values()}
    return Steps(samples, steps, sum(len(text.encode()) for text in distinct))


def _turn(
    turn: str,
    number: int,
    stage: Stage,
    place: pathlib.Path,
    messages: list[dict[str, str]],
    python: str,
) -> Iterator[Sample]:
    if turn == peer.NAME:
        for who, times, size in peer.run(python, place / "langgraph", messages):
            yield Sample(who, number, Pace.of(times), size)
        return
    state = place / turn
    log = _log(turn, state)
    gc.collect()
    try:
        pace = runs.pace(log, stage.run(log))
    finally:
        log.close()
    yield Sample(turn, number, pace, runs.on_disk(state) if OURS[turn] else 0)


def _log(turn: str, state: pathlib.Path) -> Log:
    # Times of events are what is measured, so no clock that somebody sets.
    if OURS[turn]:
        return SqliteStore(state, synchronous=OURS[turn], clock=time.monotonic)
    return MemoryStore(clock=time.monotonic)
