"""What of the past may go: the rules that all stores share, without any store.

An event of a pipe names it in its data as "pipe"; `pipe_write` and `pipe_read` say how many "bytes" they
moved.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from rnixfs.state.store import Entry, Retention

DAY = 86_400.0  # seconds
ASKED = ("request", "answered")  # events of the system that age makes worthless
PIPES = ("pipe", "pipe_write", "pipe_read", "pipe_removed")

PipeEvent = tuple[int, str, dict[str, Any]]  # number, event, data


def creators(pids: Iterable[int], parents: Mapping[int, int]) -> set[int]:
    """Some processes, and all that created them directly or not."""
    found: set[int] = set()
    for pid in pids:
        while pid and pid not in found:
            found.add(pid)
            pid = parents.get(pid, 0)
    return found


def removable(finished: list[Entry], spared: Collection[int]) -> list[Entry]:
    """The finished processes that may go at all, oldest end first."""
    return [entry for entry in finished if entry.pid not in spared]


def beyond(finished: list[Entry], spared: Collection[int], keep: Retention, now: float) -> list[Entry]:
    """The finished processes beyond the number or the age that is kept, oldest end first.

    Args:
        finished: all of them, oldest end first; spared ones count too.
        spared: pids that stay whatever the rules say.
        keep: the rules; its bytes are not looked at.
        now: seconds since 1970.
    """
    surplus = len(finished) - keep.processes
    oldest = now - keep.days * DAY
    old = _taker(surplus, lambda entry: entry.ended_ts is not None and entry.ended_ts < oldest)
    return [entry for entry in removable(finished, spared) if old(entry)]


def _taker(surplus: int, too_old: Callable[[Entry], bool]) -> Callable[[Entry], bool]:
    taken = 0

    def take(entry: Entry) -> bool:
        nonlocal taken
        chosen = taken < surplus or too_old(entry)
        taken += chosen
        return chosen

    return take


def settled_pipes(events: Iterable[PipeEvent]) -> Iterator[int]:
    """The numbers of events of pipes that nobody needs.

    Of a removed pipe that is all; of one that is still there, what was written and read up to the last
    moment at which it was empty.
    """
    pipes: dict[Any, _Pipe] = {}
    for seq, event, data in events:
        pipes.setdefault(data.get("pipe"), _Pipe()).see(seq, event, data)
    for pipe in pipes.values():
        yield from pipe.settled


class _Pipe:
    """What one pipe has been through so far."""

    def __init__(self) -> None:
        self.settled: list[int] = []
        self._made: list[int] = []
        self._moved: list[int] = []
        self._level = 0

    def see(self, seq: int, event: str, data: dict[str, Any]) -> None:
        """Take the next event."""
        if event == "pipe":
            self._made.append(seq)
            return
        self._moved.append(seq)
        if event == "pipe_removed":
            self._level = 0
            self.settled += self._made
            self._made.clear()
        else:
            size = data.get("bytes")
            moved = size if isinstance(size, int) else 0
            self._level += moved if event == "pipe_write" else -moved
        if self._level <= 0:
            self.settled += self._moved
            self._moved.clear()
