"""The event store: everything that happens is appended here before its effect can be seen."""

import time
from typing import Any, Protocol

import msgspec


class Record(msgspec.Struct):
    """One event.

    Args:
        seq: global number, from 1, without gaps.
        ts: seconds since 1970.
        event: what happened, such as `spawn`.
        pid: the process concerned, 0 for the system.
        data: what belongs to it.
    """

    seq: int
    ts: float
    event: str
    pid: int
    data: dict[str, Any]


class Store(Protocol):
    """Where events are kept. The kernel knows no more of it than these two methods."""

    def load(self) -> list[Record]:
        """All events, in order."""

    def append_event(self, event: str, pid: int, data: dict[str, Any]) -> Record:
        """Keep an event and give it its number and time."""


class MemoryStore:
    """A store that ends with the daemon.

    Args:
        keep: how many of the last events it holds.
    """

    def __init__(self, keep: int = 10_000) -> None:
        self._records: list[Record] = []
        self._seq = 0
        self._keep = keep

    def load(self) -> list[Record]:
        return self._records[-self._keep :]

    def append_event(self, event: str, pid: int, data: dict[str, Any]) -> Record:
        self._seq += 1
        record = Record(self._seq, time.time(), event, pid, data)
        self._records.append(record)
        if len(self._records) > 2 * self._keep:
            del self._records[: self._keep]
        return record
