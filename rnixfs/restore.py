"""The process table from the log, when the system starts.

What had ended is history. What had not is suspended, wherever it stood: nothing starts by itself. Where the
system stopped in the middle of an end, the rest of that is done now.
"""

import dataclasses
import logging

from rnixfs.errors import SyscallError
from rnixfs.kernel import Kernel
from rnixfs.proc.process import Process
from rnixfs.proc.remake import remake
from rnixfs.proc.state import Exit, ExitCode, State
from rnixfs.state.store import Record

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Restored:
    """What was found.

    Args:
        suspended: processes that can be woken.
        lost: processes whose log cannot be read as one; each is named in the daemon's log.
    """

    suspended: int
    lost: int


def restore(kernel: Kernel) -> Restored:
    """Fill the tables of a kernel that does not run yet."""
    found: list[tuple[Process, list[Record]]] = []
    lost = 0
    # In the order of their births, so that each finds its parent.
    for pid in kernel.log.unfinished():
        try:
            process, records = remake(kernel, pid)
        except (SyscallError, ValueError, KeyError, TypeError) as error:
            log.error("process %d cannot be made anew from its log: %s", pid, error)
            lost += 1
            continue
        kernel.enter(process)
        found.append((process, records))
    for process, records in found:
        _connect(kernel, process, records)
    _groups(kernel, found)
    # Ends first, children before parents: an end may tell somebody else.
    with kernel.log.batch():
        for process, records in reversed(found):
            _settle(kernel, process, records)
    for process, _ in found:
        _put_in_order(kernel, process)
    return Restored(sum(process.live for process, _ in found), lost)


def _connect(kernel: Kernel, process: Process, records: list[Record]) -> None:
    for pid in process.unheard:
        child = kernel.history.by_pid(pid)
        if child is not None and pid not in process.heard:
            process.untold[pid] = child
    if process.live:
        kernel.channels.restore(process, records)


def _groups(kernel: Kernel, found: list[tuple[Process, list[Record]]]) -> None:
    lasting: dict[str, bool] = {}
    for record in kernel.log.load(0, ("make_group", "remove_group")):
        name = record.data["group"]
        if record.event == "make_group":
            lasting[name] = record.data["lasting"]
        else:
            lasting.pop(name, None)
    members: dict[str, list[tuple[int, Process]]] = {}
    for process, records in found:
        for name, seq in _joined(records).items() if process.live else ():
            members.setdefault(name, []).append((seq, process))
    for name in {**lasting, **members}:
        joined = sorted(members.get(name, []), key=lambda one: one[0])
        if joined or lasting.get(name):
            kernel.groups.restore(name, [one for _, one in joined], lasting=lasting.get(name, False))


def _put_in_order(kernel: Kernel, process: Process) -> None:
    """Sort the ends that a process has not heard of as they came."""

    def ended(pid: int) -> int:
        return max((record.seq for record in kernel.log.load(pid, ("exit",))), default=0)

    process.untold = {pid: process.untold[pid] for pid in sorted(process.untold, key=ended)}


def _joined(records: list[Record]) -> dict[str, int]:
    """The groups that a process is in, with the number of the event by which it came."""
    joined: dict[str, int] = {}
    for record in records:
        if record.event == "join_group":
            joined[record.data["group"]] = record.seq
        elif record.event == "leave_group":
            joined.pop(record.data["group"], None)
    return joined


def _settle(kernel: Kernel, process: Process, records: list[Record]) -> None:
    if process.state is State.ZOMBIE:
        kernel.release_again(process)
    elif process.ending:
        kernel.finish(process, Exit(ExitCode.ERROR, process.ending))
    elif process.launch.origin is not None and not any(record.event == "inherit" for record in records):
        # What its source was denied may not have been said of it yet.
        kernel.finish(process, Exit(ExitCode.ERROR, "the system stopped while it was forked; fork it again"))
    elif process.state is State.RUNNING:
        kernel.suspend_again(process)
