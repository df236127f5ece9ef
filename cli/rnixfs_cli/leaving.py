"""What is at work when a daemon is told to leave, and how to go on with it."""

import json
import os
from typing import Any, NamedTuple

from rnixfs_cli import bounded
from rnixfs_cli.screen import Screen

READ_SECONDS = 10.0  # for each of the two files that are read
PROCESSES_MAX = 64 << 20  # bytes of the list of processes
NAMED = 5  # pids that the hint names


class AtWork(NamedTuple):
    """The processes that ran.

    Args:
        pids: those that had neither ended nor been suspended.
        roots: those of them whose parents are not among them; resuming one resumes what is below it.
        kept: whether a log outside of memory holds them.
    """

    pids: list[int]
    roots: list[int]
    kept: bool

    def as_dict(self) -> dict[str, Any]:
        """What has become of them, for programs."""
        return {"suspended": self.pids if self.kept else []}


NOBODY = AtWork([], [], True)


def look(where: str) -> AtWork:
    """The processes that run on a mount; nobody where that cannot be read.

    Args:
        where: absolute path of the mountpoint.
    """
    try:
        data = bounded.read_file(os.path.join(where, "proc/processes"), READ_SECONDS, PROCESSES_MAX)
        return _at_work([json.loads(line) for line in data.split(b"\n") if line], log_of(where))
    except (OSError, ValueError):
        return NOBODY


def _at_work(processes: list[dict[str, Any]], log: str) -> AtWork:
    running = {one["pid"]: one.get("ppid", 0) for one in processes if not one.get("suspended")}
    roots = [pid for pid, ppid in running.items() if ppid not in running]
    return AtWork(list(running), roots, bool(log))


def log_of(where: str) -> str:
    """The path of the log of a mount that answers; empty for one in memory.

    Raises:
        OSError: it cannot be read, or not in time.
        ValueError: the daemon says nothing that makes sense.
    """
    config = json.loads(bounded.read_file(os.path.join(where, "sys/config"), READ_SECONDS))
    return str(config.get("log") or "")


def tell(at_work: AtWork, screen: Screen) -> None:
    """Say what has become of them, and how to go on; nothing where nobody was at work."""
    count = len(at_work.pids)
    if not count:
        return
    processes = "1 process" if count == 1 else f"{count} processes"
    if not at_work.kept:
        screen.line(f"[kernel] {processes} ended with it: the log was in memory only")
        return
    names = " ".join(map(str, at_work.roots[:NAMED])) if len(at_work.roots) <= NAMED else "PID (see: rnix ps)"
    screen.line(f"[kernel] {processes} suspended; to go on: rnix resume {names}")
