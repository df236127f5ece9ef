"""The process table of the host as /proc shows it, and signals that reach the right process.

Reading it can wait where another process is stuck, so the daemon reads it in a thread.
"""

import contextlib
import dataclasses
import os
import signal

MARK = "RNIX_CHILD"
"""Name of the variable that tells which run of the daemon a process belongs to."""

_MARK_BYTES = MARK.encode() + b"="


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


def members_of(session: int, mark: bytes, since: int) -> tuple[list[Seen], list[Seen]]:
    """All processes of the host, and those that belong to a run, dead ones too.

    Args:
        session: the session that was begun for the run.
        mark: the value of its mark.
        since: start of its leader, in clock ticks since boot.

    Raises:
        OSError: /proc cannot be read, or no descriptor is left to read it.
    """
    table = [seen for name in os.listdir("/proc") if name.isdigit() and (seen := look(int(name)))]
    # Nobody is older than the leader, so few environments have to be read.
    young = [seen for seen in table if seen.started >= since]
    found = {seen.pid for seen in young if seen.session == session or mark_of(seen.pid) == mark}
    before = -1
    while before != len(found):
        before = len(found)
        found.update(seen.pid for seen in young if seen.parent in found)
    return table, [seen for seen in young if seen.pid in found]


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


def mark_of(pid: int) -> bytes:
    """The mark in the environment of a process; empty if it has none or belongs to another user."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:
        return b""
    return next((entry[len(_MARK_BYTES) :] for entry in variables if entry.startswith(_MARK_BYTES)), b"")


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
    if pidfd is None:
        return
    try:
        now = look(seen.pid)
        if now is not None and now.started == seen.started:
            signal.pidfd_send_signal(pidfd, number)
            signal.pidfd_send_signal(pidfd, signal.SIGCONT)
    except (ProcessLookupError, PermissionError):
        # Gone, or run by another user; who stays is reported by the caller in the end.
        return
    finally:
        os.close(pidfd)


def reap(pid: int) -> None:
    """Take the exit status of a dead child, which ends the zombie."""
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
