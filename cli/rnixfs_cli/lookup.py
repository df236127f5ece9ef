"""Finding processes, those of earlier daemons too, by pid, by uuid or by the beginning of one.

The log answers that in one question, however long the history is. A log that is only in memory cannot be
asked; then the folders are looked through.
"""

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rnixfs_cli.errors import CommandError
from rnixfs_cli.tree import Tree

HISTORY = "proc/history"
WHOLE = 36  # characters of a whole uuid
SHOWN = 6  # of the processes that a name may mean, told in a message
# Of a uuid the time in milliseconds and 12 random bits: who shares these was made in the same millisecond.
SHORT = 18
_BY_PID = "SELECT pid, uuid FROM processes WHERE pid = ?"
BY_UUID = f"SELECT pid, uuid FROM processes WHERE uuid >= ? AND uuid < ? ORDER BY uuid LIMIT {SHOWN * 2}"


class Known(NamedTuple):
    """A process that the system knows.

    Args:
        pid: its number.
        uuid: its name for ever.
    """

    pid: int
    uuid: str


def is_pid(wanted: str) -> bool:
    """Whether a checked name is a pid and not the beginning of a uuid."""
    return wanted.isdecimal() and not wanted.startswith("0")


def uuid_range(beginning: str) -> tuple[str, str]:
    """The arguments of `BY_UUID`: hexadecimal digits and dashes sort below g."""
    return beginning, f"{beginning}g"


def find(tree: Tree, wanted: str, call: str) -> tuple[str, int]:
    """The folder and pid of a process; arguments and errors as of `Tree.find`."""
    pid = int(wanted) if is_pid(wanted) else 0
    # The two places that need no question.
    direct = f"proc/{wanted}" if pid else f"{HISTORY}/{wanted}" if len(wanted) == WHOLE else ""
    status = _status(tree, direct) if direct else {}
    if status and wanted in (str(status["pid"]), status.get("uuid")):
        return direct, int(status["pid"])
    found = _matching(tree, wanted)
    check_single(wanted, found, call)
    for one in found:
        for folder in (f"proc/{one.pid}", f"{HISTORY}/{one.uuid}"):
            if _status(tree, folder).get("uuid") == one.uuid:
                return folder, one.pid
    raise CommandError("NOT_FOUND", "no such process", syscall=call, device=f"/proc/{wanted}", pid=pid)


def _status(tree: Tree, folder: str) -> dict[str, Any]:
    """The status of a process, empty without one."""
    with contextlib.suppress(CommandError):
        return tree.status(folder)
    return {}


def _matching(tree: Tree, wanted: str) -> list[Known]:
    try:
        rows = (
            tree.query(_BY_PID, int(wanted)) if is_pid(wanted) else tree.query(BY_UUID, *uuid_range(wanted))
        )
    except CommandError:
        matches = (one for one in _listed(tree, wanted) if wanted == str(one.pid) or _begins(one, wanted))
        return sorted(set(matches))
    return [Known(row["pid"], row["uuid"]) for row in rows]


def _begins(one: Known, wanted: str) -> bool:
    return not is_pid(wanted) and one.uuid.startswith(wanted)


def _listed(tree: Tree, wanted: str) -> Iterator[Known]:
    """The processes of the folders, but for those of the history whose names show that they are others."""
    yield from (Known(one["pid"], one["uuid"]) for one in tree.processes() if one.get("uuid"))
    for uuid in past(tree):
        if is_pid(wanted) or uuid.startswith(wanted):
            status = _status(tree, f"{HISTORY}/{uuid}")
            if status:
                yield Known(status["pid"], uuid)


def past(tree: Tree) -> list[str]:
    """The names in `proc/history`, the one that ended last first."""
    try:
        # No sorting: the folder lists them in the order of their ends.
        return os.listdir(tree.path(HISTORY))[::-1]
    except OSError:
        return []


def check_single(wanted: str, found: Sequence[Known], call: str) -> None:
    """Refuse a name that more than one process has.

    Raises:
        CommandError: it has; says which.
    """
    if len(found) < 2:
        return
    names = shortened([one.uuid for one in found])
    shown = [f"{names[one.uuid]} (PID {one.pid})" for one in found[:SHOWN]]
    more = ", …" if len(found) > SHOWN else ""
    reason = f"more than one uuid begins like that: {', '.join(shown)}{more}; give more of it, or the pid"
    raise CommandError("INVALID", reason, syscall=call, device=f"/{HISTORY}/{wanted}")


def shortened(uuids: Sequence[str]) -> dict[str, str]:
    """For each uuid a beginning that no other of them has."""
    ordered = sorted(set(uuids))
    lengths = dict.fromkeys(ordered, SHORT)
    for before, after in itertools.pairwise(ordered):
        needed = next(at for at in range(WHOLE) if before[at] != after[at]) + 1
        lengths[before], lengths[after] = max(lengths[before], needed), max(lengths[after], needed)
    return {uuid: uuid[:length] for uuid, length in lengths.items()}
