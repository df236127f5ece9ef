"""A process made anew from its log: one that goes on after a restart, and one that ended long ago."""

import time
from typing import TYPE_CHECKING

import trio

from rnixfs.errors import not_found
from rnixfs.mcp.places import own_path
from rnixfs.node import Journal
from rnixfs.proc.birth import Birth, read_birth
from rnixfs.proc.fold import rebuild
from rnixfs.proc.process import Process
from rnixfs.proc.state import State
from rnixfs.proc.view import Rights
from rnixfs.state.store import Record

if TYPE_CHECKING:
    from rnixfs.kernel import Kernel


def remake(kernel: "Kernel", pid: int) -> tuple[Process, list[Record]]:
    """A process from its log, and its events; it is not put into the table.

    Args:
        kernel: has the log, and the process's parent if that has not ended.
        pid: the process.

    Raises:
        SyscallError: NOT_FOUND where the log does not begin with its spawn.
    """
    records = list(kernel.log.load(pid))
    if not records or records[0].event != "spawn":
        raise not_found(f"process {pid} in the log")
    birth = read_birth(records[0].data)
    orphan = any(record.event == "reparent" for record in records)
    parent = None if orphan else kernel.processes.get(birth.ppid)
    bound = bounds(kernel, birth.ppid)
    process = Process(pid, parent, kernel.launcher.revive(birth), kernel.view, birth, bound)
    process.past_ppid = 0 if orphan else birth.ppid
    process.started_ns = int(records[0].ts * 1e9)
    process.born = trio.current_time() - max(0.0, time.time() - records[0].ts)
    rebuild(process, records)
    _stand(process, records)
    for name, journal in (("trace", process.trace), ("log", process.log)):
        _refill(journal, kernel.log.read_journal(pid, name), process.changed_ns)
    return process, records


def _stand(process: Process, records: list[Record]) -> None:
    """Put it into the state that its events end with."""
    events = {record.event for record in records}
    if "reap" in events:
        process.state = State.DEAD
    elif process.exit is not None:
        process.state = State.ZOMBIE
    else:
        process.state = State.SUSPENDED if process.suspended else State.RUNNING
    if process.exit is not None:
        elapsed = next(record.data.get("elapsed_ms", 0) for record in records if record.event == "exit")
        process.watch.set((elapsed + 0.5) / 1000)  # half more, as the digits of a float may fall short of it
        process.done.set()
        process.trace_live.end()
        process.log_live.end()
        process.ended_live.end()
        if process.board is not None:
            process.board.close()


def _refill(journal: Journal, data: bytes, now_ns: int) -> None:
    for line in data.splitlines(keepends=True):
        journal.append(line, now_ns)


def bounds(kernel: "Kernel", ppid: int) -> Rights | None:
    """The rights that bound a child of a process for life, whether that has ended or not.

    None for a child of the system. Where the log of an ancestor is gone, nothing is allowed: a process must
    not gain by what was forgotten.
    """
    if not ppid:
        return None
    there = kernel.processes.get(ppid)
    if there is not None:
        return there.rights
    records = list(kernel.log.load(ppid, ("spawn", "grant", "revoke")))
    if not records or records[0].event != "spawn":
        return Rights(())
    birth: Birth = read_birth(records[0].data)
    own = (own_path(ppid, server) for server in birth.mcp)
    rights = Rights(birth.allowed_devices, bounds(kernel, birth.ppid), own)
    for record in records[1:]:
        change = rights.deny if record.event == "revoke" else rights.allow
        change(record.data["path"])
    return rights
