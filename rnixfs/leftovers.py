"""Programs that a daemon started and could not end, because it was killed: the next one ends them.

A command whose daemon is gone would go on and do what it has not done yet, while the model is told that its
outcome is unknown. Whoever carries the mark of the state belongs to it, also their descendants and the
members of sessions that one of them leads. This daemon itself and its ancestors never do: it may have been
started by a command of the agent whose daemon was killed.
"""

import logging
import os
import signal
import time

from rnixfs import hosttable
from rnixfs.hosttable import Seen

_log = logging.getLogger(__name__)

_Key = tuple[int, int]


def end(state_id: str, seconds: float) -> int:
    """Kill everybody who belongs to a state, and wait until they are gone; say how many there were.

    Args:
        state_id: the value of their mark, not empty.
        seconds: how long that may take; who is left then is reported in the log.

    Raises:
        OSError: /proc cannot be read, or no descriptor is left to read it.
    """
    mark = state_id.encode()
    told: set[_Key] = set()
    give_up = time.monotonic() + seconds
    pause = 0.002
    while living := living_of(mark, told):
        for seen in living:
            hosttable.signal_process(seen, signal.SIGKILL)
        told.update(seen.key for seen in living)
        if time.monotonic() >= give_up:
            pids = ", ".join(str(seen.pid) for seen in living)
            _log.warning("programs of an earlier daemon do not end, even by SIGKILL: %s", pids)
            break
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    return len(told)


def living_of(mark: bytes, known: set[_Key]) -> list[Seen]:
    """Everybody alive who belongs to a state.

    Args:
        mark: the value of its mark.
        known: keys of those who were found before; they may have nothing left to be told by.
    """
    table = {seen.pid: seen for seen in hosttable.everybody()}
    spared = _with_ancestors(os.getpid(), table)
    others = {seen.pid: seen for seen in table.values() if seen.alive and seen.pid not in spared}
    found = {
        seen.pid
        for seen in others.values()
        if seen.key in known or hosttable.settled_variable_of(seen, hosttable.STATE) == mark
    }
    before = -1
    while before != len(found):
        before = len(found)
        sessions = _sessions(found, table)
        found.update(seen.pid for seen in others.values() if seen.parent in found or seen.session in sessions)
    return [others[pid] for pid in sorted(found)]


def _with_ancestors(pid: int, table: dict[int, Seen]) -> set[int]:
    chain: set[int] = set()
    while pid in table and pid not in chain:
        chain.add(pid)
        pid = table[pid].parent
    return chain


def _sessions(found: set[int], table: dict[int, Seen]) -> set[int]:
    """The sessions that are theirs as a whole: led by one of them, or by a leader who is gone.

    A terminal of the host in which somebody set the mark by hand is led by its shell, and none of these.
    """
    sessions = {table[pid].session for pid in found} - {0, os.getsid(0)}
    return {pid for pid in sessions if pid in found or not (pid in table and table[pid].alive)}
