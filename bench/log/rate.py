"""Events a second through the store, beside a loop of inserts of the same bytes into a table of SQLite."""

import contextlib
import dataclasses
import pathlib
import random
import sqlite3
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from bench.log.recorded import Event, Recording
from rnixfs.state.memory import MemoryStore
from rnixfs.state.opening import LEVELS
from rnixfs.state.sqlite import SqliteStore
from rnixfs.state.store import Log

BATCH = 100  # events of one transaction
MEMORY = "memory"
SINGLE, BATCHED = "one at a time", f"in batches of {BATCH}"
_PID = 1


class Target(Protocol):
    """What takes events."""

    def write(self, events: Sequence[Event]) -> None:
        """Keep these together, before it returns."""

    def close(self) -> None:
        """Let go of it."""


class Ours:
    """A log of ours.

    Args:
        log: the log.
    """

    def __init__(self, log: Log) -> None:
        self._log = log

    def write(self, events: Sequence[Event]) -> None:
        """Keep these together."""
        if len(events) == 1:
            self._log.append_event(events[0].event, _PID, events[0].data)
            return
        with self._log.batch():
            for one in events:
                self._log.append_event(one.event, _PID, one.data)

    def close(self) -> None:
        """Close the log."""
        self._log.close()


class Plain:
    """About the least that keeps an event: one row with the same bytes, in a table without an index.

    Args:
        path: the file.
        synchronous: as for `SqliteStore`.
    """

    def __init__(self, path: pathlib.Path, synchronous: str) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA page_size = 4096")
        self._db.execute("PRAGMA journal_mode = wal").fetchone()
        self._db.execute(f"PRAGMA synchronous = {synchronous}")
        self._db.execute("PRAGMA wal_autocheckpoint = 4096")
        self._db.execute(
            "CREATE TABLE events (seq INTEGER PRIMARY KEY, ts REAL, event TEXT, pid INTEGER, data)"
        )

    def write(self, events: Sequence[Event]) -> None:
        """Keep these in one transaction."""
        self._db.execute("BEGIN IMMEDIATE")
        for one in events:
            row = (time.time(), one.event, _PID, msgspec.json.encode(one.data))
            self._db.execute("INSERT INTO events (ts, event, pid, data) VALUES (?, ?, ?, ?)", row)
        self._db.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._db.close()


@dataclasses.dataclass(frozen=True)
class Sample:
    """Events a second of one target in one round."""

    how: str
    level: str
    plain: bool
    rate: float


class Rates:
    """All samples, in the order of the rounds."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.samples = tuple(samples)

    def rates(self, how: str, level: str, *, plain: bool) -> list[float]:
        """Events a second, round by round."""
        wanted = (how, level, plain)
        return [one.rate for one in self.samples if (one.how, one.level, one.plain) == wanted]

    def ratio(self, how: str, level: str) -> float | None:
        """Our time as a multiple of the plain loop's: the median over the rounds; None without one."""
        plain, ours = self.rates(how, level, plain=True), self.rates(how, level, plain=False)
        return statistics.median(b / a for a, b in zip(ours, plain, strict=True)) if plain else None

    def rows(self) -> list[str]:
        """The table."""
        head = f"{'':24}{'events a second':>22}{'plain SQLite':>16}{'times its time':>18}"
        return [head, *(self._row(how, level) for how in (SINGLE, BATCHED) for level in (*LEVELS, MEMORY))]

    def _row(self, how: str, level: str) -> str:
        ours = statistics.median(self.rates(how, level, plain=False))
        ratio = self.ratio(how, level)
        beside = f"{'-':>16}{'-':>18}"
        if ratio is not None:
            beside = f"{statistics.median(self.rates(how, level, plain=True)):16,.0f}{ratio:18.2f}"
        return f"{how:24}{level:>8}{ours:14,.0f}{beside}"


def measure(folder: pathlib.Path, rounds: int, single: int, batched: int) -> Rates:
    """Time all targets, in each round in another order.

    Args:
        folder: a place for the logs.
        rounds: how often.
        single: events that are kept one at a time in a round.
        batched: events that are kept in batches, in a round.
    """
    recording = Recording(folder / "recorded")
    samples: list[Sample] = []
    with contextlib.ExitStack() as stack:
        targets = list(_targets(folder))
        for _, _, target in targets:
            stack.callback(target.close)
        events = recording.steps(rounds * (single + batched))
        for _ in range(rounds):
            lots = {SINGLE: _take(events, single), BATCHED: _take(events, batched)}
            for how, lot in lots.items():
                random.shuffle(targets)
                for level, plain, target in targets:
                    seconds = _time(target, lot, 1 if how == SINGLE else BATCH)
                    samples.append(Sample(how, level, plain, len(lot) / seconds))
    return Rates(samples)


def _targets(folder: pathlib.Path) -> Iterator[tuple[str, bool, Target]]:
    for level in LEVELS:
        yield level, False, Ours(SqliteStore(folder / level, synchronous=level))
        yield level, True, Plain(folder / f"{level}.db", level)
    yield MEMORY, False, Ours(MemoryStore())


def _take(events: list[Event], count: int) -> list[Event]:
    taken = events[:count]
    del events[:count]
    return taken


def _time(target: Target, events: Sequence[Event], together: int) -> float:
    lots = [events[first : first + together] for first in range(0, len(events), together)]
    since = time.perf_counter()
    for lot in lots:
        target.write(lot)
    return time.perf_counter() - since
