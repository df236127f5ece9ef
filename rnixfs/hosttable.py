"""The process table of the host as /proc shows it, and signals that reach the right process.

Reading it can wait where another process is stuck, so the daemon reads it in a thread.
"""

import contextlib
import dataclasses
import os
import signal
import time
from collections.abc import Collection, Iterator

MARK = "RNIX_CHILD"
"""Name of the variable that tells which run of the daemon a process belongs to."""

STATE = "RNIX_STATE"
"""Name of the variable that tells which daemon's state a process belongs to, across restarts."""


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """One process of the host, as /proc showed it.

    Args:
        pid: its number.
        state: the letter that `ps` shows.
        parent: pid of its parent.
        group: its process group.
        session: its POSIX session.
        threads: how many it has.
        started: its start, in clock ticks since boot.
    """

    pid: int
    state: str
    parent: int
    group: int
    session: int
    threads: int
    started: int

    @property
    def alive(self) -> bool:
        """Whether it still runs, or could."""
        # The first thread of a program may end before its others; the program is then no zombie yet.
        return self.state not in "ZX" or self.threads > 1

    @property
    def key(self) -> tuple[int, int]:
        """What tells it from a later process of the same number."""
        return self.pid, self.started


def members_of(
    session: int, mark: bytes, since: int, known: Collection[tuple[int, int]]
) -> tuple[list[Seen], list[Seen]]:
    """All processes of the host, and those that belong to a run, dead ones too.

    Args:
        session: the session that was begun for the run.
        mark: the value of its mark.
        since: start of its leader, in clock ticks since boot.
        known: keys of those who were found before; they may have nothing left to be told by.

    Raises:
        OSError: /proc cannot be read, or no descriptor is left to read it.
    """
    table: dict[int, Seen] = {}
    found: set[int] = set()
    for seen in everybody():
        table[seen.pid] = seen
        # Nobody is older than the leader, so few environments have to be read.
        if seen.key in known or (
            seen.started >= since and (seen.session == session or settled_variable_of(seen, MARK) == mark)
        ):
            found.add(seen.pid)
    before = -1
    while before != len(found):
        before = len(found)
        found.update(seen.pid for seen in table.values() if seen.parent in found)
    return list(table.values()), [table[pid] for pid in found]


def everybody() -> Iterator[Seen]:
    """All processes of the host; whoever is missing is the child of somebody who was seen alive.

    Raises:
        OSError: /proc cannot be read, or no descriptor is left to read it.
    """
    read: set[str] = set()
    # Until nobody is new.
    while new := {name for name in os.listdir("/proc") if name.isdigit()} - read:
        read |= new
        yield from filter(None, map(look, map(int, new)))


def settled_variable_of(seen: Seen, name: str) -> bytes:
    """A variable of a process, also of one that is just executing a program; empty without it."""
    # Such a process has an empty environment for a moment; so has every thread of the kernel for ever, and
    # those are children of process 2.
    for _ in range(3):
        value = variable_of(seen.pid, name)
        if value is not None or not seen.alive or seen.parent == 2:
            break
        time.sleep(0.001)
    return value or b""


def look(pid: int) -> Seen | None:
    """A process as it is now; None if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            line = file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # The name of the program stands in parentheses, and may hold spaces and parentheses itself.
    field = line[line.rindex(b")") + 2 :].split()
    return Seen(
        pid=pid,
        state=field[0].decode(),
        parent=int(field[1]),
        group=int(field[2]),
        session=int(field[3]),
        threads=int(field[17]),
        started=int(field[19]),
    )


def mark_of(pid: int) -> bytes | None:
    """The mark of a process; as `variable_of`."""
    return variable_of(pid, MARK)


def variable_of(pid: int, name: str) -> bytes | None:
    """A variable of a process; empty without it or of another user, None where it has no variables at all."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:
        return b""
    start = name.encode() + b"="
    values = (entry.removeprefix(start) for entry in variables if entry.startswith(start))
    return next(values, b"" if any(variables) else None)


def start_of(pid: int) -> int:
    """When a process started, in clock ticks since boot; 0, older than all, where that cannot be read."""
    try:
        seen = look(pid)
    except OSError:
        return 0
    return seen.started if seen else 0


def pidfd_of(pid: int) -> int | None:
    """A descriptor for a process, to be closed by the caller; None if it is gone or none is left."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def signal_group(group: int, number: signal.Signals) -> None:
    """Signal a process group, if there is one."""
    # A stopped process takes TERM only when it goes on.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
        os.killpg(group, signal.SIGCONT)


def signal_process(seen: Seen, number: signal.Signals) -> None:
    """Signal a process, unless its number was given to somebody else since it was seen."""
    pidfd = pidfd_of(seen.pid)
    try:
        now = look(seen.pid)
        if now is None or now.started != seen.started:
            return
        if pidfd is None:
            os.kill(seen.pid, number)
            os.kill(seen.pid, signal.SIGCONT)
        else:
            signal.pidfd_send_signal(pidfd, number)
            signal.pidfd_send_signal(pidfd, signal.SIGCONT)
    except OSError:
        # Gone, run by another user, or not readable now; the caller looks again, and reports who stays.
        return
    finally:
        if pidfd is not None:
            os.close(pidfd)


def reap(pid: int) -> None:
    """Take the exit status of a dead child, which ends the zombie."""
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
