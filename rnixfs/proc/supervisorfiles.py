"""The files of supervisors: `proc/<pid>/supervisor`, and the commands of `ctl` for subtrees and children."""

from collections.abc import Callable

from rnixfs.device import json_line
from rnixfs.errors import invalid
from rnixfs.kernel import Kernel
from rnixfs.node import Document, Node
from rnixfs.proc.board import Board, Verb
from rnixfs.proc.process import Process
from rnixfs.types import Caller

Command = tuple[str, str, Callable[[Caller, str], None]]
"""A command of `ctl`: its usage, its help, and what it does."""

_HELP = {
    Verb.START: "start a child that does not run",
    Verb.STOP: "stop a child: TERM, then KILL; it stays stopped",
    Verb.RESTART: "stop a child and start it again",
}


def supervisor_file(_kernel: Kernel, process: Process) -> Node:
    """The document with the children of a supervisor."""
    board = board_of(process)
    return Document(
        (process.uuid, "supervisor"), lambda: json_line(board.listing()), lambda: process.changed_ns
    )


def supervisor_commands(process: Process) -> list[Command]:
    """The commands for the children of a supervisor; none for any other process."""
    if process.board is None:
        return []
    return [(f"{verb} CHILD", _HELP[verb], _order(process.board, verb)) for verb in Verb]


def _order(board: Board, verb: Verb) -> Callable[[Caller, str], None]:
    def run(_caller: Caller, rest: str) -> None:
        if not rest:
            raise invalid(f"{verb} takes the name of a child: {', '.join(board.children)}")
        board.order(verb, rest)

    return run


def board_of(process: Process) -> Board:
    """The board of a supervisor.

    Raises:
        SyscallError: INVALID for any other process.
    """
    if process.board is None:
        raise invalid(f"process {process.pid} is no supervisor")
    return process.board
