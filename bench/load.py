"""What the daemon takes while nothing happens: memory and processor time, with and without readers."""

import contextlib
import pathlib
import time
from collections.abc import Callable

from bench.figures import Load
from bench.servers import BenchError, Program

_START_SECONDS = 30.0
_SETTLE_LOOKS = 30


def measure(
    client: pathlib.Path, pid: int, mountpoint: pathlib.Path, readers: int, seconds: float
) -> list[Load]:
    """Look at a daemon without readers and with some that wait.

    Args:
        client: the program that blocks.
        pid: the daemon.
        mountpoint: its mount.
        readers: how many wait, each in a thread of its own.
        seconds: for how long processor time is counted.

    Raises:
        BenchError: the readers could not be started, or do not wait.
    """
    loads = [_look(pid, 0, seconds)]
    crowd = Program([str(word) for word in (client, "block", readers, mountpoint / "proc/1/wait")])
    try:
        if crowd.line() != "started":
            raise BenchError(f"{readers} readers could not be started")
        _until(lambda: _waiting(crowd.pid) >= readers, f"{readers} readers wait")
        loads.append(_look(pid, readers, seconds))
    finally:
        crowd.end()
    return loads


def _settle(pid: int) -> None:
    """Let it finish what the last requests left to do; one that never rests is measured all the same."""
    before = -1
    for _ in range(_SETTLE_LOOKS):
        now = _cpu_ns(pid)
        if now == before:
            return
        before = now
        time.sleep(0.1)


def _look(pid: int, readers: int, seconds: float) -> Load:
    _settle(pid)
    before, since = _cpu_ns(pid), time.monotonic_ns()
    time.sleep(seconds)
    share = (_cpu_ns(pid) - before) / (time.monotonic_ns() - since)
    return Load(readers, _rss_kib(pid), share * 1000)


def _cpu_ns(pid: int) -> int:
    """Nanoseconds for which the threads of a process ran (the first number of schedstat)."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that ended meanwhile
            total += int((task / "schedstat").read_text().split()[0])
    return total


def _rss_kib(pid: int) -> int:
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise BenchError(f"process {pid} is gone")


def _waiting(pid: int) -> int:
    """How many threads of a process wait for the answer of a FUSE server."""
    count = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            count += "request_wait_answer" in (task / "wchan").read_text()
    return count


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(f"not within {_START_SECONDS:g} s: {what}")
        time.sleep(0.05)
