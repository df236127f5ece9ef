"""`rnix resume`, `rnix suspend`, `rnix checkpoint` and `rnix fork`: processes set aside, and gone on with."""

import contextlib
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import click

from rnixfs_cli.errors import CommandError
from rnixfs_cli.screen import Screen
from rnixfs_cli.session import Session, json_option, mount_option, pass_session, pid_argument, pids_argument
from rnixfs_cli.spawn import pid_of, tell_pid
from rnixfs_cli.tree import ENDED, Tree
from rnixfs_cli.watch import watch


class Order(NamedTuple):
    """What a command tells a process.

    Args:
        command: the word for its `ctl`.
        call: what is being done, for messages.
        done: what has become of it.
    """

    command: str
    call: str
    done: str


WAKE = Order("wake", "Resume", "resumed")
SUSPEND = Order("suspend", "Suspend", "suspended")
CHECKPOINT = Order("checkpoint", "Checkpoint", "checkpoint written")


@click.command()
@pids_argument
@click.option(
    "--wait", "follow", is_flag=True, help="Show what it does until it ends; the status is its code."
)
@json_option
@mount_option
@pass_session
def resume(session: Session, pids: tuple[str, ...], follow: bool) -> int:
    """Let suspended processes, and those below them, go on where they stood.

    With --wait and more than one, they all go on at once and are shown one after the other.
    """
    tree = session.tree()
    sleepers: list[Sleeper] = []

    def look(wanted: str) -> int:
        sleepers.append(_sleeper(tree, wanted))
        return 0

    def wake(one: Sleeper) -> int:
        _wake(tree, one)
        if not follow:
            tell(session, one.pid, WAKE)
        return 0

    def show(one: Sleeper) -> int:
        return watch(tree, one.pid, session, word="resuming", skip=one.logged)

    # Waking one wakes those below it, so all are looked at before.
    status = max(each(session, pids, look), each(session, sleepers, wake))
    return each(session, sleepers, show) if follow and not status else status


class Sleeper(NamedTuple):
    """A process that is to go on.

    Args:
        folder: its folder.
        pid: the process.
        suspended: whether it is suspended.
        logged: lines of its log, which were seen before; what comes from now on is shown.
    """

    folder: str
    pid: int
    suspended: bool
    logged: int


def _sleeper(tree: Tree, wanted: str) -> Sleeper:
    folder, pid = tree.find(wanted, WAKE.call)
    suspended = bool(tree.status(folder, call=WAKE.call, pid=pid).get("suspended"))
    logged = tree.read(f"{folder}/log", call=WAKE.call, pid=pid).count(b"\n")
    return Sleeper(folder, pid, suspended, logged)


def _wake(tree: Tree, one: Sleeper) -> None:
    try:
        give(tree, one.folder, one.pid, WAKE)
    except CommandError:
        # It may have been woken meanwhile, together with its parent.
        if not one.suspended or tree.status(one.folder, call=WAKE.call, pid=one.pid).get("suspended"):
            raise


@click.command()
@pids_argument
@json_option
@mount_option
@pass_session
def suspend(session: Session, pids: tuple[str, ...]) -> int:
    """Let processes, and those below them, do nothing until `rnix resume`, even if the daemon restarts."""
    return _order(session, pids, SUSPEND)


@click.command()
@pids_argument
@json_option
@mount_option
@pass_session
def checkpoint(session: Session, pids: tuple[str, ...]) -> int:
    """See that all that processes did so far outlives a power cut of the host."""
    return _order(session, pids, CHECKPOINT)


@click.command()
@pid_argument
@click.option("--step", type=click.IntRange(min=0), help="The last step it has been through; 0 for none.")
@click.option(
    "--wait", "follow", is_flag=True, help="Show what it does until it ends; the status is its code."
)
@json_option
@mount_option
@pass_session
def fork(session: Session, pid: str, step: int | None, follow: bool) -> int:
    """Make a process that goes on from a step of PID, the last one if none is given, and print its pid."""
    tree = session.tree()
    _, source = tree.find(pid, "Fork")
    request = {"source": str(source)} | ({} if step is None else {"step": step})
    made = pid_of(tree.exchange("proc/spawn", {"fork": request}, call="Fork"))
    return watch(tree, made, session, word="forking") if follow else tell_pid(session, made)


def _order(session: Session, pids: Iterable[str], order: Order) -> int:
    tree = session.tree()

    def one(wanted: str) -> int:
        folder, pid = tree.find(wanted, order.call)
        give(tree, folder, pid, order)
        tell(session, pid, order)
        return 0

    return each(session, pids, one)


def each(session: Session, wanted: Iterable[Any], action: Callable[[Any], int]) -> int:
    """Do something for each of several; one that fails is told and does not stop the others.

    Returns:
        The highest exit status.
    """
    worst = 0
    for one in wanted:
        try:
            status = action(one)
        except CommandError as failure:
            status = session.fail(failure, Screen(sys.stderr))
        worst = max(worst, status)
    return worst


def give(tree: Tree, folder: str, pid: int, order: Order) -> None:
    """Write an order to the `ctl` of a process.

    Raises:
        CommandError: it is refused, and why, as far as that can be seen.
    """
    try:
        tree.command(f"{folder}/ctl", order.command, call=order.call, pid=pid)
    except CommandError as failure:
        with contextlib.suppress(CommandError):
            failure.reason = _why(tree.status(folder), order, failure)
        raise


def _why(status: dict[str, Any], order: Order, failure: CommandError) -> str:
    """The reason for a refusal in the words of what was wanted."""
    state = status["state"]
    if state in ENDED:
        more = "; rnix fork makes one that goes on from a step of it" if order is WAKE else ""
        return f"the process has ended already{more}"
    if order is WAKE and failure.code == "INVALID" and not status.get("suspended"):
        if status.get("paused"):
            return f"it is paused and not suspended; to go on: rnix kill {status['pid']} RESUME"
        return f"it is {state}; only a suspended process can be resumed"
    if order is WAKE and failure.code == "NOT_FOUND" and failure.reason == "no such process":
        return f"what it needs is not there: its working folder, or its model {status.get('provider')!r}"
    return failure.reason


def tell(session: Session, pid: int, order: Order) -> None:
    """Say that an order was obeyed."""
    if session.as_json:
        session.json({"pid": pid, "done": order.command})
    else:
        session.screen.line(f"[kernel] PID {pid}: {order.done}")
