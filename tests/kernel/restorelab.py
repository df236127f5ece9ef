"""Systems over one log, one after the other, and logs that end where a test cuts them."""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import trio
import trio.testing

from rnixfs.proc.process import Process
from rnixfs.restore import Restored, restore
from rnixfs.state.memory import MemoryStore
from rnixfs.state.store import Log, Record
from rnixfs.vfs import walk
from tests.programs.reasonlab import PERSON, Bench, Reply, Scripted, Tool

settle = trio.testing.wait_all_tasks_blocked


class Place:
    """A folder of the host and a log, over which one system after the other runs.

    The log's time is that of the test's clock, so that what it tells of seconds is exact.

    Args:
        top: an empty folder.
    """

    def __init__(self, top: Path) -> None:
        self.top = top
        self.log: MemoryStore = MemoryStore(clock=lambda: 1e9 + trio.current_time())
        self.restored = Restored(0, 0)

    @contextlib.asynccontextmanager
    async def system(self, *replies: Reply, devices: Sequence[Tool] = ()) -> AsyncIterator[Bench]:
        """A system over what the log holds by now, until the block is left: as if the daemon were killed.

        Args:
            replies: what its model says.
            devices: its devices.
        """
        bench = Bench(self.top, [Scripted("fake", replies)], devices, log=self.log)
        self.restored = restore(bench.kernel)
        async with trio.open_nursery() as nursery:
            await nursery.start(bench.kernel.run)
            yield bench
            nursery.cancel_scope.cancel()

    def cut(self, here: Callable[[Record], bool]) -> None:
        """Let the log end with the first event that is the one, as if the daemon had been killed there."""
        events = every(self.log)
        last = next(place for place, record in enumerate(events) if here(record))
        self.log = rewritten(events[: last + 1])

    def events(self, pid: int) -> list[str]:
        """What happened to a process."""
        return [record.event for record in self.log.load(pid)]


def every(log: Log) -> list[Record]:
    """All events of a log, in order."""
    pids = (0, *log.unfinished(), *(entry.pid for entry in log.finished()))
    return sorted((record for pid in pids for record in log.load(pid)), key=lambda record: record.seq)


def rewritten(events: list[Record]) -> MemoryStore:
    """A log of these events, with their times; later ones have the time of the test's clock."""
    times = iter([record.ts for record in events])
    log = MemoryStore(clock=lambda: next(times, 1e9 + trio.current_time()))
    for record in events:
        log.append_event(record.event, record.pid, record.data)
    return log


def tell(bench: Bench, process: Process, *lines: str) -> None:
    """Write lines to the control file of a process."""
    ctl = walk(bench.kernel.root, f"/proc/{process.pid}/ctl", PERSON)
    ctl.open(PERSON, 1).write("".join(f"{line}\n" for line in lines).encode(), 0)


def content(bench: Bench, path: str) -> bytes:
    """A file of the tree."""
    return bytes(walk(bench.kernel.root, path, PERSON).open(PERSON, 0).read(1 << 24, 0))
