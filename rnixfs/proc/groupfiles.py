"""The files of `proc/groups`, and the file `signals` of a process."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rnixfs.device import json_line
from rnixfs.errors import not_found
from rnixfs.node import Command, CommandRow, Control, Dir, Document, FixedDir, Node
from rnixfs.proc import signals
from rnixfs.proc.groups import Group, Groups, signal_tree
from rnixfs.proc.process import Process
from rnixfs.types import Caller, Kind, Stat

if TYPE_CHECKING:
    from rnixfs.kernel import Kernel


class GroupsDir(Dir):
    """`proc/groups/`: a folder for each group; `mkdir` makes one, `rmdir` removes one without members."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def stat(self) -> Stat:
        return Stat(Kind.DIRECTORY, mode=0o755, links=2, ttl=1.0)

    def lookup(self, name: str, caller: Caller) -> Node:
        group = self._groups.find(name)
        if group is None:
            raise not_found(f"/proc/groups/{name}")
        return group_dir(self._groups, group)

    def entries(self, caller: Caller) -> Iterable[tuple[str, Node]]:
        for name in self._groups.names():
            group = self._groups.find(name)
            if group is not None:
                yield name, group_dir(self._groups, group)

    def mkdir(self, name: str, mode: int, caller: Caller) -> Node:
        return group_dir(self._groups, self._groups.make(name))

    def rmdir(self, name: str, caller: Caller) -> None:
        self._groups.remove(name)


class _GroupDir(FixedDir):
    def stat(self) -> Stat:
        # A group goes with its last member: nobody may remember the name.
        return Stat(Kind.DIRECTORY, mode=0o555, links=2, name_ttl=0.0)


def group_dir(groups: Groups, group: Group) -> Dir:
    """`proc/groups/<name>/`."""
    key = ("group", group.serial)

    def members() -> bytes:
        return "".join(f"{pid}\n" for pid in group.members).encode()

    return _GroupDir(
        key,
        {
            "members": Document((key, "members"), members, lambda: group.changed_ns),
            "ctl": Control((key, "ctl"), _commands(groups, group)),
        },
    )


def _commands(groups: Groups, group: Group) -> dict[str, CommandRow]:
    def send(caller: Caller, rest: str) -> None:
        if groups.find(group.name) is not group:
            raise not_found(f"/proc/groups/{group.name}")
        groups.signal(group.name, signals.parse(rest), caller)

    return {
        "signal": CommandRow("signal NAME", "send every member a signal: TERM KILL INT PAUSE RESUME", send)
    }


def signals_row(_kernel: "Kernel", process: Process) -> Node:
    """`proc/<pid>/signals`: what it blocks, what waits for it, and what it handles itself."""

    def render() -> bytes:
        table = process.signals
        sets = {"blocked": table.blocked, "pending": table.pending, "handled": table.handled}
        return json_line({name: [str(one) for one in sorted(found)] for name, found in sets.items()})

    return Document((process.uuid, "signals"), render, lambda: process.changed_ns)


def group_commands(kernel: "Kernel", process: Process) -> list[tuple[str, str, Command]]:
    """What `proc/<pid>/ctl` knows of groups and trees: usage, help and the command."""

    def tree(caller: Caller, rest: str) -> None:
        signal_tree(kernel, process, signals.parse(rest), caller)

    def join(caller: Caller, rest: str) -> None:
        kernel.groups.join(process, rest, caller)

    def leave(caller: Caller, rest: str) -> None:
        kernel.groups.leave(process, rest, caller)

    return [
        ("tree NAME", "send it and all its descendants a signal", tree),
        ("join G", "put it into a process group, which is made if there is none", join),
        ("leave G", "take it out of a process group", leave),
    ]
