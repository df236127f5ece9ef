"""Process groups and trees: a signal for many processes, each of which gets it exactly once.

Whom a signal is for is settled before the first process gets it. Delivering is one step without waits, but a
handler that a program installed runs inside that step and may join, leave or end processes, so what is
walked over is always a copy.
"""

import itertools
import time
from typing import TYPE_CHECKING

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, denied, invalid
from rnixfs.proc.process import Process
from rnixfs.proc.signals import Signal
from rnixfs.state.store import Keep
from rnixfs.types import Caller
from rnixfs.vfs import check_name

if TYPE_CHECKING:
    from rnixfs.kernel import Kernel

_serials = itertools.count(1)


class Group:
    """Some processes under one name.

    Args:
        name: a file name.
        lasting: whether it stays when its last member leaves; one made by `mkdir` does, until `rmdir`.
    """

    def __init__(self, name: str, lasting: bool) -> None:
        self.name = name
        self.lasting = lasting
        self.serial = next(_serials)
        self.members: dict[int, Process] = {}
        self.changed_ns = time.time_ns()

    def touch(self) -> None:
        """Remember that its members changed now."""
        self.changed_ns = time.time_ns()


class Groups:
    """All groups, and who is in which.

    Args:
        kernel: delivers the signals.
    """

    def __init__(self, kernel: "Kernel") -> None:
        self._kernel = kernel
        self._groups: dict[str, Group] = {}
        self._of: dict[int, dict[str, None]] = {}

    def names(self) -> list[str]:
        """The names of all groups, oldest first."""
        return list(self._groups)

    def find(self, name: str) -> Group | None:
        """The group with a name, None without one."""
        return self._groups.get(name)

    def group(self, name: str) -> Group:
        """The group with a name.

        Raises:
            SyscallError: NOT_FOUND.
        """
        group = self._groups.get(name)
        if group is None:
            raise SyscallError(
                Code.NOT_FOUND, f"no process group {name!r}; mkdir proc/groups/NAME or joining makes one"
            )
        return group

    def of(self, process: Process) -> list[str]:
        """The names of the groups that a process is in."""
        return list(self._of.get(process.pid, ()))

    # --- making and removing ---

    def make(self, name: str, *, lasting: bool = True) -> Group:
        """Make a group without members.

        Raises:
            SyscallError: EXISTS, INVALID, NAME_TOO_LONG; RESOURCE_EXHAUSTED past `limits.GROUPS_MAX`.
        """
        _check_group_name(name)
        if name in self._groups:
            raise SyscallError(Code.EXISTS, f"there is a process group {name!r} already")
        if len(self._groups) >= limits.GROUPS_MAX:
            raise SyscallError(
                Code.RESOURCE_EXHAUSTED, f"there may be {limits.GROUPS_MAX} process groups; remove some"
            )
        self._kernel.emit("make_group", 0, {"group": name, "lasting": lasting})
        group = self._groups[name] = Group(name, lasting)
        return group

    def remove(self, name: str) -> None:
        """Remove a group without members.

        Raises:
            SyscallError: NOT_FOUND; NOT_EMPTY while it has members.
        """
        group = self.group(name)
        if group.members:
            raise SyscallError(
                Code.NOT_EMPTY,
                f"process group {name!r} has {len(group.members)} members; they must leave first",
            )
        self._discard(group)

    def _discard(self, group: Group) -> None:
        self._kernel.emit("remove_group", 0, {"group": group.name}, Keep.VITAL)
        del self._groups[group.name]

    def restore(self, name: str, members: list[Process], *, lasting: bool) -> None:
        """Have a group as the log tells it, when the system starts."""
        group = self._groups.setdefault(name, Group(name, lasting))
        group.lasting = lasting
        for process in members:
            group.members[process.pid] = process
            self._of.setdefault(process.pid, {})[name] = None

    # --- coming and going ---

    def join(self, process: Process, name: str, caller: Caller) -> None:
        """Put a process into a group, which is made if there is none; being in it already changes nothing.

        Raises:
            SyscallError: PERMISSION without power over the process or the right to the group's folder,
                INVALID for a process that has ended, and what `make` raises.
        """
        self._check(process, name, caller)
        if not process.live:
            raise invalid(f"process {process.pid} has ended; it can join no group")
        group = self._groups.get(name) or self.make(name, lasting=False)
        if process.pid in group.members:
            return
        self._kernel.emit("join_group", process.pid, {"group": name})
        group.members[process.pid] = process
        self._of.setdefault(process.pid, {})[name] = None
        group.touch()

    def leave(self, process: Process, name: str, caller: Caller) -> None:
        """Take a process out of a group; one that joining made goes with its last member.

        Raises:
            SyscallError: PERMISSION as `join`, NOT_FOUND for no such group, INVALID for no member of it.
        """
        self._check(process, name, caller)
        group = self.group(name)
        if process.pid not in group.members:
            raise invalid(f"process {process.pid} is not in the process group {name!r}")
        self._kernel.emit("leave_group", process.pid, {"group": name})
        self._take_out(process, group)

    def leave_all(self, process: Process) -> None:
        """Take a process that ends out of all its groups; its `exit` event says so for each."""
        for name in self.of(process):
            self._take_out(process, self._groups[name])

    def _take_out(self, process: Process, group: Group) -> None:
        del group.members[process.pid]
        mine = self._of[process.pid]
        del mine[group.name]
        if not mine:
            del self._of[process.pid]
        group.touch()
        if not group.members and not group.lasting:
            self._discard(group)

    def _check(self, process: Process, name: str, caller: Caller) -> None:
        self._kernel.check_power(process, caller)
        acting = self._kernel.processes.get(caller.agent)
        if acting is not None:
            acting.view.check(f"/proc/groups/{name}")

    # --- signals ---

    def signal(self, name: str, signal: Signal, caller: Caller) -> int:
        """Send a signal to everybody who is in a group now; returns to how many.

        Raises:
            SyscallError: NOT_FOUND; PERMISSION, and nobody gets it, unless the caller has power over all.
        """
        members = list(self.group(name).members.values())
        beyond = [one.pid for one in members if caller.agent and not one.descends_from(caller.agent)]
        if beyond:
            raise denied(
                f"process {caller.agent} has no power over {_few(beyond)} in the process group {name!r}, "
                "so nobody got the signal"
            )
        return deliver_to(self._kernel, members, signal)


def deliver_to(kernel: "Kernel", processes: list[Process], signal: Signal) -> int:
    """Deliver a signal to processes, and say how many of them had not ended before the first got it."""
    reached = sum(process.live for process in processes)
    for process in processes:
        kernel.deliver(process, signal)
    return reached


def signal_tree(kernel: "Kernel", root: Process, signal: Signal, caller: Caller) -> int:
    """Send a signal to a process and all its descendants, parents first; returns to how many.

    Parents come first so that one that is ending can neither start another child nor take the end of its
    children for a failure. Children that come while the signal goes round, made by a handler, get it too.

    Raises:
        SyscallError: PERMISSION without power over the root, INVALID where it has ended.
    """
    kernel.check_power(root, caller)
    if not root.live:
        raise invalid(f"process {root.pid} has ended")
    tree: dict[int, Process] = {}
    reached = 0
    # A parent that ends loses its children, so the whole tree is noted before the first gets the signal.
    while new := _newcomers([root, *tree.values()], tree):
        tree.update((one.pid, one) for one in new)
        reached += deliver_to(kernel, new, signal)
    return reached


def suspend_tree(kernel: "Kernel", root: Process, reason: str, caller: Caller) -> int:
    """Suspend a process and all its descendants; returns how many it did anything to.

    Ancestors are never concerned: they wait, as for any child that takes its time.

    Raises:
        SyscallError: PERMISSION without power over the root, INVALID where it has ended.
    """
    return sum(kernel.suspend(one, reason) for one in _tree(kernel, root, caller))


def wake_tree(kernel: "Kernel", root: Process, caller: Caller) -> int:
    """Wake a process and all those of its descendants that are suspended; returns how many they are.

    Raises:
        SyscallError: PERMISSION, INVALID where it has ended or nobody is suspended, and what one of them
            needs and is not there; nobody is woken then.
    """
    suspended = [one for one in _tree(kernel, root, caller) if one.suspended]
    if not suspended:
        raise invalid(f"process {root.pid} is {root.state}; only a suspended one can be woken")
    for one in suspended:
        kernel.launcher.check_ready(one.launch)
    for one in suspended:
        kernel.wake(one)
    return len(suspended)


def _tree(kernel: "Kernel", root: Process, caller: Caller) -> list[Process]:
    kernel.check_power(root, caller)
    if not root.live:
        raise invalid(f"process {root.pid} has ended")
    return _newcomers([root], {})


def _newcomers(roots: list[Process], known: dict[int, Process]) -> list[Process]:
    seen: dict[int, Process] = {}
    waiting = roots[::-1]
    while waiting:
        process = waiting.pop()
        if process.pid not in seen:
            seen[process.pid] = process
            waiting += reversed(process.children.values())
    return [process for pid, process in seen.items() if pid not in known]


def _check_group_name(name: str) -> None:
    if not name.isprintable() or name != name.strip() or name in (".", ".."):
        raise invalid(f"the name of a process group is printable text without blanks around it, not {name!r}")
    check_name(name)


def _few(pids: list[int]) -> str:
    shown = ", ".join(map(str, pids[:5]))
    more = f" and {len(pids) - 5} more" if len(pids) > 5 else ""
    return f"process {shown}{more}"
