"""`rnix mount` and `rnix umount`."""

import contextlib
import os
import signal
from collections.abc import Callable
from types import FrameType

import click

from rnixfs_cli import daemon, leaving, mountpoint
from rnixfs_cli.errors import CommandError
from rnixfs_cli.session import Session, json_option, mount_option, pass_session


@click.command()
@click.argument("directory", metavar="[DIR]", required=False)
@click.option("--foreground", is_flag=True, help="Stay, with the daemon's messages on stderr, until it ends.")
@click.option(
    "--root", "roots", multiple=True, metavar="FOLDER", help="A folder below dev/fs; else the current one."
)
@click.option("--fs-write", is_flag=True, help="Let files below dev/fs be changed through the mount.")
@click.option(
    "--state",
    metavar="DIR",
    help="The folder of the log; none keeps it in memory; else one for each mountpoint.",
)
@json_option
@mount_option
@pass_session
def mount(
    session: Session,
    directory: str | None,
    foreground: bool,
    roots: tuple[str, ...],
    fs_write: bool,
    state: str | None,
) -> int:
    """Mount the tree on DIR and keep it there until `rnix umount`."""
    session.given = directory or session.given
    where = session.mount()
    _check_roots(where, roots)
    _check_state(where, state)
    plan = daemon.Plan(where, roots, fs_write, idle_exit=False, foreground=foreground, state=state or "")
    pid = daemon.start(plan)
    if pid is None and (roots or fs_write or foreground or state):
        reason = "already mounted, so these options would have no effect; first: rnix umount"
        raise CommandError("EXISTS", reason, syscall="Mount", device=where)
    if foreground and pid is not None:
        return _stay(pid, lambda: _tell(session, where, pid))
    _tell(session, where, pid)
    return 0


def _tell(session: Session, where: str, pid: int | None) -> None:
    leaves = pid is None and mountpoint.leaves_when_idle(where)
    if session.as_json:
        session.json({"mount": where, "started": pid is not None, "idle_exit": leaves})
        return
    session.screen.line(f"[kernel] {'already ' if pid is None else ''}mounted at {where}")
    if leaves:
        session.screen.line(
            "[kernel] it was started by another command and leaves when nobody uses it;"
            " to keep it: rnix umount, then rnix mount"
        )


def _inside(path: str, where: str) -> bool:
    return path == where or path.startswith(where + "/")


def _check_state(where: str, state: str | None) -> None:
    if state is None or state == daemon.IN_MEMORY:
        return
    if not state:
        raise click.BadParameter("it is empty; name a folder, or write none", param_hint="--state")
    if _inside(os.path.realpath(state), where):
        reason = "a log inside the mountpoint would be hidden by the mount; name a folder outside"
        raise CommandError("INVALID", reason, syscall="Mount", device=state)


def _check_roots(where: str, roots: tuple[str, ...]) -> None:
    for root in roots:
        real = os.path.realpath(root)
        if _inside(real, where):
            reason = (
                "a root inside the mountpoint would make the daemon wait for itself; name a folder outside"
            )
            raise CommandError("INVALID", reason, syscall="Mount", device=root)
        if not os.path.isdir(real):
            raise CommandError(
                "NOT_FOUND", "a root must be a folder that exists", syscall="Mount", device=root
            )


def _stay(pid: int, ready: Callable[[], None]) -> int:
    """Wait for the daemon in the foreground; TERM is handed on to it, Ctrl-C reaches it by itself.

    Args:
        pid: the daemon.
        ready: called once signals end the daemon and not this command alone.
    """

    def hand_on(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    signal.signal(signal.SIGTERM, hand_on)
    signal.signal(signal.SIGINT, lambda _number, _frame: None)
    ready()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return status if status >= 0 else 128 - status


@click.command()
@click.argument("directory", metavar="[DIR]", required=False)
@click.option("--force", is_flag=True, help="Detach it even while programs use it.")
@json_option
@mount_option
@pass_session
def umount(session: Session, directory: str | None, force: bool) -> None:
    """Stop the daemon of DIR and take the mount away; a stale mount is cleared.

    Processes that run are suspended; `rnix resume PID` lets them go on.
    """
    session.given = directory or session.given
    where = session.mount()
    at_work = leaving.NOBODY

    def look() -> None:
        nonlocal at_work
        at_work = leaving.look(where)

    daemon.unmount(where, force, look)
    if mountpoint.mounted(where):
        reason = "something else is mounted there still; see: findmnt"
        raise CommandError("INVALID", reason, syscall="Umount", device=where)
    if session.as_json:
        session.json({"mount": where, "mounted": False, **at_work.as_dict()})
    else:
        session.screen.line(f"[kernel] unmounted {where}")
        leaving.tell(at_work, session.screen)
