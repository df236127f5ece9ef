"""A log that ends with the daemon, for tests and for `--state none`."""

import contextlib
import math
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

from rnixfs import limits
from rnixfs.state import codec, retention
from rnixfs.state.store import Collected, Entry, Keep, Record, Retention

_SLACK = 10  # a tenth more than the limit may be there before a trim, so that few events pay for one


class _Event(NamedTuple):
    """One event; its data is encoded, so that nobody who holds it can change the past."""

    record: Record  # without data
    encoded: bytes
    key: str | None

    def whole(self) -> Record:
        """The event as it was appended."""
        bare = self.record
        return Record(bare.seq, bare.ts, bare.event, bare.pid, codec.decode(self.encoded))


class _Process:
    """What the log knows of one process."""

    def __init__(self, pid: int, data: dict[str, Any]) -> None:
        self.pid = pid
        self.uuid = str(data.get("uuid", ""))
        self.ppid = int(data.get("ppid") or 0)
        self.exit_ts: float | None = None
        self.reap_ts: float | None = None

    def entry(self) -> Entry:
        """The process as others see it."""
        if self.reap_ts is None:
            return Entry(self.pid, self.uuid, None)
        return Entry(self.pid, self.uuid, self.reap_ts if self.exit_ts is None else self.exit_ts)


class MemoryStore:
    """A log that ends with the daemon; it holds no more than `limits` say of what is over.

    Args:
        clock: gives the time of an event, in seconds since 1970.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self.uuid = str(uuid.uuid4())
        self.notice = ""
        self._clock = clock
        self._seq = 0
        self._last_pid = 0
        self._bytes = 0
        self._events: dict[int, list[_Event]] = {}
        self._keys: dict[str, list[_Event]] = {}
        self._processes: dict[int, _Process] = {}
        self._over = 0  # processes with a `reap` event
        self._journals: dict[int, dict[str, bytearray]] = {}
        self._batch: list[tuple[Record, Keep]] | None = None

    # --- events ---

    def load(self, pid: int, events: Collection[str] = ()) -> Iterator[Record]:
        for event in tuple(self._events.get(pid, ())):
            if not events or event.record.event in events:
                yield event.whole()

    def append_event(self, event: str, pid: int, data: dict[str, Any], keep: Keep = Keep.NOW) -> Record:
        encoded = codec.encode(data)
        record = Record(self._seq + 1, self._clock(), event, pid, data)
        self._put(record, encoded)
        if self._batch is None:
            self._trim(event, pid)
        else:
            self._batch.append((record, keep))
        return record

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Events that are kept together or not at all; see `store.Log`."""
        if self._batch is not None:
            yield
            return
        self._batch = []
        try:
            yield
        except BaseException:
            self._undo(self._batch)
            raise
        finally:
            self._batch = None

    def _put(self, record: Record, encoded: bytes) -> None:
        key = codec.key_of(record.data)
        bare = Record(record.seq, record.ts, record.event, record.pid, {})
        event = _Event(bare, encoded, key)
        self._seq = record.seq
        self._last_pid = max(self._last_pid, record.pid)
        self._bytes += len(encoded)
        self._events.setdefault(record.pid, []).append(event)
        if key is not None:
            self._keys.setdefault(key, []).append(event)
        self._note(record)

    def _note(self, record: Record) -> None:
        if record.event == "spawn":
            self._processes[record.pid] = _Process(record.pid, record.data)
        process = self._processes.get(record.pid)
        if process is not None and record.event == "exit":
            process.exit_ts = record.ts
        if process is not None and record.event == "reap":
            self._over += process.reap_ts is None
            process.reap_ts = record.ts

    def _undo(self, batch: list[tuple[Record, Keep]]) -> None:
        kept = []
        for record, keep in reversed(batch):
            event = self._events[record.pid].pop()
            self._forget(event)
            self._unnote(record)
            self._seq = record.seq - 1
            if keep is Keep.VITAL:
                kept.append((record, event.encoded))
        for record, encoded in reversed(kept):
            record.seq = self._seq + 1
            self._put(record, encoded)

    def _unnote(self, record: Record) -> None:
        process = self._processes.get(record.pid)
        if process is None:
            return
        if record.event == "spawn":
            del self._processes[record.pid]
        elif record.event == "exit":
            process.exit_ts = None
        elif record.event == "reap":
            self._over -= 1
            process.reap_ts = None

    def _forget(self, event: _Event) -> None:
        self._bytes -= len(event.encoded)
        if event.key is not None:
            self._keys[event.key].remove(event)
            if not self._keys[event.key]:
                del self._keys[event.key]

    # --- journals ---

    def append_journal(self, pid: int, name: str, data: bytes) -> None:
        self._journals.setdefault(pid, {}).setdefault(name, bytearray()).extend(data)
        self._bytes += len(data)

    def read_journal(self, pid: int, name: str) -> bytes:
        return bytes(self._journals.get(pid, {}).get(name, b""))

    def settle(self) -> None:
        """Nothing waits here."""

    def sync(self) -> None:
        """Nothing outlives the daemon here."""

    # --- the archive ---

    def last_pid(self) -> int:
        return self._last_pid

    def unfinished(self) -> list[int]:
        return sorted(pid for pid, process in self._processes.items() if process.reap_ts is None)

    def finished(self) -> list[Entry]:
        over = [process for process in self._processes.values() if process.reap_ts is not None]
        return sorted((process.entry() for process in over), key=lambda entry: (entry.ended_ts, entry.pid))

    def entry(self, who: int | str) -> Entry | None:
        if isinstance(who, int):
            process = self._processes.get(who)
            return None if process is None else process.entry()
        found = [process.entry() for process in self._processes.values() if process.uuid == who]
        return found[0] if found else None

    def keyed(self, key: str) -> list[Record]:
        return [event.whole() for event in self._keys.get(key, ())]

    def collect(self, keep: Retention, pinned: Collection[int] = ()) -> Collected:
        now, before = self._clock(), self._bytes
        spared = {*pinned, *retention.creators(self.unfinished(), self._parents())}
        finished = self.finished()
        gone = retention.beyond(finished, spared, keep, now)
        number = sum(map(self._drop, gone))
        for entry in retention.removable(finished, spared):
            if self._bytes <= keep.bytes:
                break
            if entry.pid in self._processes:
                number += self._drop(entry)
                gone.append(entry)
        number += self._drop_system(self._worthless(now - keep.days * retention.DAY))
        return Collected(gone, number, 0, before - self._bytes)

    def close(self) -> None:
        """There is nothing to let go of."""

    def _parents(self) -> dict[int, int]:
        return {pid: process.ppid for pid, process in self._processes.items()}

    def _drop(self, entry: Entry) -> int:
        events = self._events.pop(entry.pid, [])
        for event in events:
            self._forget(event)
        self._bytes -= sum(map(len, self._journals.pop(entry.pid, {}).values()))
        del self._processes[entry.pid]
        self._over -= 1
        return len(events)

    def _worthless(self, oldest: float) -> set[int]:
        asked = (event.record for event in self._events.get(0, ()) if event.record.event in retention.ASKED)
        return {record.seq for record in asked if record.ts < oldest} | self._settled_pipes()

    def _settled_pipes(self) -> set[int]:
        pipes = (event for event in self._events.get(0, ()) if event.record.event in retention.PIPES)
        return set(
            retention.settled_pipes(
                (event.record.seq, event.record.event, codec.decode(event.encoded)) for event in pipes
            )
        )

    def _drop_system(self, seqs: Collection[int]) -> int:
        events = self._events.get(0, [])
        for event in events:
            if event.record.seq in seqs:
                self._forget(event)
        self._events[0] = [event for event in events if event.record.seq not in seqs]
        return len(events) - len(self._events[0])

    # --- what a log in memory can hold ---

    def _trim(self, event: str, pid: int) -> None:
        if event == "reap":
            full = self._bytes > limits.MEMORY_LOG_BYTES
            if full or _much(self._over, limits.HISTORY_MAX):
                room = limits.MEMORY_LOG_BYTES - limits.MEMORY_LOG_BYTES // _SLACK
                self.collect(Retention(limits.HISTORY_MAX, math.inf, room))
        elif not pid and _much(len(self._events[0]), limits.SYSTEM_EVENTS_MAX):
            self._drop_system(self._settled_pipes())
            self._drop_system(self._oldest_asked(len(self._events[0]) - limits.SYSTEM_EVENTS_MAX))

    def _oldest_asked(self, number: int) -> set[int]:
        asked = [event.record.seq for event in self._events[0] if event.record.event in retention.ASKED]
        return set(asked[: max(0, number)])


def _much(number: int, limit: int) -> bool:
    return number > limit + limit // _SLACK
