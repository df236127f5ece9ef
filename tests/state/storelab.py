"""What the tests of the event store share: clocks, both stores, a run of an agent, and a look at the file."""

import contextlib
import pathlib
import random
import sqlite3
import subprocess
import sys
from collections.abc import Collection, Iterator
from typing import Any

from rnixfs.state.sqlite import SqliteStore
from rnixfs.state.store import Log, Record

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
START = 1_700_000_000.0  # seconds since 1970
DAY = 86_400.0


class Clock:
    """A time that moves only when a test says so."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


def reopen(store: SqliteStore, **options: Any) -> SqliteStore:
    """The same log after a stop and a start."""
    store.close()
    return SqliteStore(store.path.parent, synchronous="off", **options)


def run(store: Log, pid: int, ppid: int = 0, *, steps: int = 2, over: bool = True) -> None:
    """A process with a text of its own in each step, that may be over."""
    store.append_event("spawn", pid, {"uuid": uuid_of(pid), "ppid": ppid, "intent": f"process {pid} " * 20})
    for number in range(steps):
        store.append_event("step", pid, {"step": number, "answer": f"{pid}:{number} " * 60})
        store.append_journal(pid, "trace", b'{"pid":%d,"step":%d}\n' % (pid, number))
    if over:
        end(store, pid)


def end(store: Log, pid: int) -> None:
    """The last two events of a process."""
    store.append_event("exit", pid, {"code": 0})
    store.append_event("reap", pid, {})


def uuid_of(pid: int) -> str:
    """The uuid that `run` gives a process."""
    return f"0190-{pid}"


def events_of(store: Log, pids: Collection[int]) -> dict[int, Record]:
    """All events of some processes by number."""
    return {record.seq: record for pid in pids for record in store.load(pid)}


def told(store: Log, pid: int) -> list[str]:
    """The names of the events of a process."""
    return [record.event for record in store.load(pid)]


def numbers(store: SqliteStore, query: str) -> list[int]:
    """One column as another program sees it."""
    other = sqlite3.connect(f"file:{store.path}?mode=ro", uri=True)
    try:
        return [number for (number,) in other.execute(query)]
    finally:
        other.close()


@contextlib.contextmanager
def python(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that runs some Python, ended with `kill -9` at last."""
    command = [sys.executable, *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        try:
            yield other
        finally:
            other.kill()


def line_of(other: subprocess.Popen[str]) -> str:
    """The next line that another process writes."""
    assert other.stdout is not None
    line = other.stdout.readline()
    assert line, "the other process has ended"
    return line


def prose(rng: random.Random, size: int) -> str:
    """Some text of about that many bytes that compresses as text does: words come again."""
    words = rng.choices(_WORDS, weights=_WEIGHTS, k=size // 3 + 1)
    return " ".join(words)[:size]


_RNG = random.Random(0)
_WORDS = ["".join(_RNG.choices("etaoinshrdlucmfwypvbgkjqxz", k=_RNG.randint(2, 10))) for _ in range(4000)]
_WEIGHTS = [1 / rank for rank in range(1, 4001)]
