"""How long a start takes with a long history: opening the log, making the tables anew, the first listing."""

import contextlib
import dataclasses
import gc
import pathlib
import random
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise

import trio

from bench import servers
from bench.log import recorded, runs
from bench.log.recorded import Recording
from bench.servers import BenchError
from rnixfs.bootstrap import System
from rnixfs.node import Dir
from rnixfs.state.sqlite import SqliteStore
from rnixfs.types import Caller
from rnixfs.vfs import walk

NOTHING = "an empty log"
_PERSON = Caller(0, 0)
# So that the daemon keeps all of it: what it does about more is not measured here.
_KEEP_ALL = "version: 1\nstore: {keep: {processes: 1000000, bytes: 1000000000000}}\n"


@dataclasses.dataclass(frozen=True)
class Sample:
    """One start; all times in seconds.

    Args:
        what: the log it began with.
        open: opening the log, which looks for damage in all of it.
        restore: making the tables of the system anew.
        listing: listing `proc/history` for the first time, in memory.
    """

    what: str
    open: float
    restore: float
    listing: float


@dataclasses.dataclass(frozen=True)
class Mounted:
    """One start of a daemon.

    Args:
        what: the log it began with.
        ready: seconds until it was mounted and ready.
        listing: seconds of `ls proc/history`, the first time.
    """

    what: str
    ready: float
    listing: float


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A log that starts begin with; each takes a copy.

    Args:
        what: for people.
        folder: where it lies.
        finished: processes that have ended.
        unfinished: processes that run when the daemon is killed.
        events: all of its events.
    """

    what: str
    folder: pathlib.Path
    finished: int
    unfinished: int
    events: int


class Restarts:
    """All samples."""

    def __init__(
        self, logs: Sequence[Prepared], samples: Sequence[Sample], mounted: Sequence[Mounted]
    ) -> None:
        self.logs = tuple(logs)
        self.samples = tuple(samples)
        self.mounted = tuple(mounted)

    def rows(self) -> list[str]:
        """The table."""
        columns = ("open the log", "restore", "first ls", "daemon ready", "its first ls")
        return [f"{'seconds':36}" + "".join(f"{one:>14}" for one in columns), *map(self._row, self.logs)]

    def _row(self, log: Prepared) -> str:
        own = [one for one in self.samples if one.what == log.what]
        daemons = [one for one in self.mounted if one.what == log.what]
        figures = [[one.open for one in own], [one.restore for one in own], [one.listing for one in own]]
        figures += [[one.ready for one in daemons], [one.listing for one in daemons]]
        cells = (f"{statistics.median(one):14.3f}" for one in figures)
        return f"{log.what:36}" + "".join(cells)

    def sizes(self) -> list[str]:
        """A line on each log."""
        return [
            f"{log.what:36}{log.events:10,} events{runs.on_disk(log.folder) / (1 << 20):10.1f} MiB"
            for log in self.logs
        ]


def prepare(folder: pathlib.Path, finished: int, unfinished: int) -> list[Prepared]:
    """Make the logs: an empty one, one of a long history, and that one with processes that had not ended."""
    recording = Recording(folder / "recorded")
    found: list[Prepared] = []
    for what, ended, running in (
        (NOTHING, 0, 0),
        (f"{finished:,} in history", finished, 0),
        (f"the same and {unfinished:,} unfinished", finished, unfinished),
    ):
        place = folder / f"log-{len(found)}"
        if running:
            shutil.copytree(found[-1].folder, place)
        log = SqliteStore(place, synchronous="off")
        try:
            if running:
                pids = range(finished + 1, finished + running + 1)
                recorded.fill(log, recording, pids, whole=False)
            elif ended:
                recorded.fill(log, recording, range(1, ended + 1), whole=True)
            mark = log.append_event("boot", 0, {"first_pid": log.last_pid() + 1})
        finally:
            log.close()
        found.append(Prepared(what, place, ended, running, mark.seq))
    return found


def measure(folder: pathlib.Path, rounds: int, finished: int, unfinished: int) -> Restarts:
    """Start with each log, in memory and as a daemon.

    Args:
        folder: a place for the logs.
        rounds: how often, in random order.
        finished: processes in the history.
        unfinished: processes that had not ended.

    Raises:
        BenchError: a start did not find what was in the log.
    """
    folder.mkdir()
    logs = prepare(folder, finished, unfinished)
    stage = runs.Stage(folder / "stage", runs.typical(recorded.STEPS))
    samples: list[Sample] = []
    mounted: list[Mounted] = []
    for number in range(rounds):
        for log in random.sample(logs, len(logs)):
            with copied(log, folder / f"{log.folder.name}-{number}") as state:
                samples.append(trio.run(_start, log, stage, state))
            with copied(log, folder / f"{log.folder.name}-{number}") as state:
                mounted.append(_mount(log, folder / f"daemon-{log.folder.name}-{number}", state))
    return Restarts(logs, samples, mounted)


@contextlib.contextmanager
def copied(log: Prepared, place: pathlib.Path) -> Iterator[pathlib.Path]:
    """A copy of a log, for one start."""
    shutil.copytree(log.folder, place)
    try:
        yield place
    finally:
        shutil.rmtree(place)


async def _start(log: Prepared, stage: runs.Stage, state: pathlib.Path) -> Sample:
    # In a loop, since what is restored asks for its time.
    gc.collect()
    times = [time.perf_counter()]
    store = SqliteStore(state)
    try:
        times.append(time.perf_counter())
        system = stage.system(store)
        times.append(time.perf_counter())
        names = _listing(system)
        times.append(time.perf_counter())
    finally:
        store.close()
    _expect(f"names in proc/history, {log.what}", len(names), log.finished)
    _expect(f"processes restored, {log.what}", system.restored.suspended, log.unfinished)
    opened, restored, listed = (b - a for a, b in pairwise(times))
    return Sample(log.what, opened, restored, listed)


def _listing(system: System) -> list[str]:
    history = walk(system.kernel.root, "/proc/history", _PERSON)
    return [name for name, _ in history.entries(_PERSON)] if isinstance(history, Dir) else []


def _mount(log: Prepared, folder: pathlib.Path, state: pathlib.Path) -> Mounted:
    folder.mkdir()
    since = time.perf_counter()
    with servers.daemon(folder, ("--state", str(state)), _KEEP_ALL) as (_, mountpoint):
        ready = time.perf_counter() - since
        since = time.perf_counter()
        count = int(servers.shell('ls "$1/proc/history" | wc -l', mountpoint))
        listing = time.perf_counter() - since
        live = int(servers.shell('wc -l <"$1/proc/processes"', mountpoint))
    _expect(f"lines of proc/processes, {log.what}", live, log.unfinished)
    _expect(f"names that ls shows, {log.what}", count, log.finished)
    return Mounted(log.what, ready, listing)


def _expect(what: str, found: int, right: int) -> None:
    if found != right:
        raise BenchError(f"{what}: {found}, and not {right}")
