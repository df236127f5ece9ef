"""The event store: everything that happens is appended here before its effect can be seen.

Three protocols, from what the kernel needs to what a whole log can do, and the values that they speak of.
`MemoryStore` and `SqliteStore` have them all.
"""

import contextlib
import enum
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple, Protocol

import msgspec

from rnixfs import limits


class Record(msgspec.Struct):
    """One event.

    Args:
        seq: global number, from 1, without gaps but for what `collect` removed.
        ts: seconds since 1970.
        event: what happened, such as `spawn`.
        pid: the process concerned, 0 for the system.
        data: what belongs to it, as JSON can hold it.
    """

    seq: int
    ts: float
    event: str
    pid: int
    data: dict[str, Any]


class Keep(enum.Enum):
    """How an event is kept.

    `NOW`: it is kept before `append_event` returns, or it is refused and its number is free again.
    `VITAL`: never refused. Where it cannot be kept it waits in memory, in order, and is kept before anything
    that comes after it; as long as something waits, a `NOW` event is kept together with it or refused.
    """

    NOW = "now"
    VITAL = "vital"


class Entry(NamedTuple):
    """One process that the log knows.

    Args:
        pid: its number.
        uuid: its name for ever.
        ended_ts: when it ended, in seconds since 1970; None until its `reap` event.
    """

    pid: int
    uuid: str
    ended_ts: float | None


class Retention(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much of the past is kept; what is beyond any of the three goes, oldest first.

    Args:
        processes: finished processes.
        days: age of the end of a process, and of a person's request to a device, in days of 86,400 s.
        bytes: size of the whole log on disk.
    """

    processes: int = limits.HISTORY_MAX
    days: float = limits.HISTORY_DAYS
    bytes: int = limits.HISTORY_BYTES


class Collected(NamedTuple):
    """What a collection removed.

    Args:
        processes: those whose history is gone, oldest end first.
        events: how many events, those of the processes included.
        contents: how many texts that nobody referred to any more.
        bytes: by how many bytes the log became smaller, as far as the store knows.
        more: whether it stopped at `limits.COLLECT_MAX` processes and wants to be called again.
    """

    processes: list[Entry]
    events: int
    contents: int
    bytes: int
    more: bool = False


class Store(Protocol):
    """Where events are kept. The kernel knows no more of it than these two methods."""

    def load(self, pid: int, events: Collection[str] = ()) -> Iterator[Record]:
        """The events of one process, 0 for the system's, in order; only those named if any are.

        Raises:
            SyscallError: DRIVER for what can no longer be read.
        """

    def append_event(self, event: str, pid: int, data: dict[str, Any], keep: Keep = Keep.NOW) -> Record:
        """Keep an event and give it its number and time.

        Raises:
            SyscallError: for `Keep.NOW` alone: RESOURCE_EXHAUSTED when there is no room, DRIVER for any other
                reason not to be kept. The event is not in the log then.
        """


class Journals(Protocol):
    """Lines of traces and logs by process: bytes that only grow, kept some time after they were given."""

    def append_journal(self, pid: int, name: str, data: bytes) -> None:
        """Add to a journal, which is on disk within `limits.JOURNAL_SECONDS`; this never fails."""

    def read_journal(self, pid: int, name: str) -> bytes:
        """A whole journal, with what is not on disk yet; empty if there is none.

        Raises:
            SyscallError: DRIVER for what can no longer be read.
        """

    def settle(self) -> None:
        """Put on disk whatever waits.

        Raises:
            SyscallError: as `Store.append_event`; everything goes on waiting.
        """

    def sync(self) -> None:
        """See that all that was kept so far outlives a power cut, whatever else is configured.

        Raises:
            SyscallError: as `settle`; DRIVER where the disk fails.
        """


class Archive(Protocol):
    """What is in the log, by process. Each may raise DRIVER for what can no longer be read."""

    def last_pid(self) -> int:
        """The highest pid of any event ever, also of removed ones; 0 without one."""

    def unfinished(self) -> list[int]:
        """The pids with a `spawn` event and without a `reap` event, ascending."""

    def finished(self) -> list[Entry]:
        """The processes with a `reap` event, oldest end first."""

    def entry(self, who: int | str) -> Entry | None:
        """The process with a pid or a uuid; None if the log knows none."""

    def keyed(self, key: str) -> list[Record]:
        """All events whose data has this text as "key", in order."""

    def collect(self, keep: Retention, pinned: Collection[int] = ()) -> Collected:
        """Remove what is beyond `keep`: finished processes, what people asked devices, pipes without bytes.

        Neither pinned processes nor the creators of unfinished ones go, nor a text that anything refers to.

        Raises:
            SyscallError: as `Store.append_event`; nothing, or only part of it, was removed.
        """

    def close(self) -> None:
        """Put on disk what waits as far as that goes, and let go of the log."""


class Log(Store, Journals, Archive, Protocol):
    """A whole log, as those who put the system together hold it."""

    uuid: str  # the log's own name, for ever
    notice: str  # what a person should know about how it was opened; mostly empty

    def batch(self) -> contextlib.AbstractContextManager[None]:
        """Keep all events appended inside at once, at the end; none is acknowledged, nor final, before.

        Raises:
            SyscallError: at the end, as `append_event`. No `NOW` event of the batch is in the log then, as
                after any other exception inside it; the others are, with the numbers that became free.
        """
