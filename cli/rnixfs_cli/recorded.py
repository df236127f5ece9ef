"""`rnix replay`, `rnix record` and `rnix test`: runs that are in the log, gone through again without a model.

The work is done by programs of the daemon's package, each in a process of its own, on this terminal. They
read the log and need no daemon.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Sequence

import click

from rnixfs_cli import lookup, mountpoint
from rnixfs_cli.errors import CommandError
from rnixfs_cli.session import Session, json_option, mount_option, pass_session, pid_argument

LOG = "log.db"
NAME_MAX = 255  # bytes of the name of a file
MARK = 8  # hexadecimal digits of the hash of a mountpoint

log_option = click.option(
    "--log", "log", metavar="PATH", help="The log's file; else that of the mountpoint, mounted or not."
)


@click.command()
@pid_argument
@click.option(
    "--recorded", is_flag=True, help="With agent, skills and tools as they were, not as they are now."
)
@log_option
@json_option
@mount_option
@pass_session
def replay(session: Session, pid: str, recorded: bool, log: str | None) -> int:
    """Run PID again with model and tools answered from the log, and say where it diverges.

    The exit status is 0 where all is equal, 1 where it diverges, and 2 where there is nothing to compare.
    """
    words = ["--recorded"] if recorded else []
    words += ["--json"] if session.as_json else []
    return _on_log(session, pid, log, ["rnixfs.replay"], words)


@click.command()
@pid_argument
@log_option
@mount_option
@pass_session
def record(session: Session, pid: str, log: str | None) -> int:
    """Print the run of PID as a case for `rnix test`, which the scripted model can play, too."""
    return _on_log(session, pid, log, ["rnixfs.casefile", "record"], [])


@click.command()
@click.argument("cases", metavar="CASE.yaml...", nargs=-1, required=True)
@click.option("--live-tools", is_flag=True, help="Run the tools; else they are answered from the case.")
def test(cases: tuple[str, ...], live_tools: bool) -> int:
    """Run recorded cases again and compare; the exit status is 0 where all are as recorded."""
    return run(["rnixfs.casefile", "test", *(["--live-tools"] if live_tools else []), "--", *cases])


def _on_log(session: Session, pid: str, log: str | None, module: Sequence[str], words: Sequence[str]) -> int:
    call = module[-1].removeprefix("rnixfs.").capitalize()
    where = session.mount()
    path = log_file(where, call) if log is None else os.path.abspath(log)
    if os.path.isdir(path):
        path = os.path.join(path, LOG)
    if not os.path.exists(path):
        reason = "there is no log; name another mountpoint with --mount, or the log's file with --log"
        raise CommandError("NOT_FOUND", reason, syscall=call, device=path)
    return run([*module, "--log", path, *words, _whole(path, pid, call)])


def _whole(path: str, wanted: str, call: str) -> str:
    """A process by a name that the programs know: they take pids and whole uuids."""
    if lookup.is_pid(wanted) or len(wanted) == lookup.WHOLE:
        return wanted
    import sqlite3
    import urllib.parse

    found: list[lookup.Known] = []
    # What is wrong with the log the program tells better.
    with contextlib.suppress(sqlite3.Error):
        uri = f"file:{urllib.parse.quote(path)}?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as log:
            found = [lookup.Known(*row) for row in log.execute(lookup.BY_UUID, lookup.uuid_range(wanted))]
    lookup.check_single(wanted, found, call)
    return found[0].uuid if found else wanted


def log_file(where: str, call: str) -> str:
    """Where the log of a mountpoint is; a daemon that answers there knows.

    Args:
        where: absolute path of the mountpoint.
        call: what the command is doing, for the message.

    Raises:
        CommandError: its log is in memory only.
    """
    from rnixfs_cli import leaving

    if mountpoint.probe(where) is not mountpoint.State.LIVE:
        return os.path.join(state_folder(where), LOG)
    with contextlib.suppress(OSError, ValueError):
        path = leaving.log_of(where)
        if path:
            return path
    reason = "the daemon's log is in memory only, or cannot be found; name the log's file with --log"
    raise CommandError("INVALID", reason, syscall=call, device=where)


def state_folder(where: str) -> str:
    """The folder where a daemon keeps the state of a mountpoint, unless it is told another.

    Args:
        where: absolute path of the mountpoint.
    """
    import hashlib

    base = os.environ.get("XDG_DATA_HOME", "")
    home = os.environ.get("HOME") or os.path.expanduser("~")
    data = base if os.path.isabs(base) else os.path.join(home, ".local", "share")
    mark = hashlib.sha256(os.fsencode(where)).hexdigest()[:MARK]
    last = os.fsdecode(os.fsencode(os.path.basename(where))[: NAME_MAX - MARK - 1])
    return os.path.join(data, "rnix", f"{last}-{mark}")


def run(words: Sequence[str]) -> int:
    """Run a program of the daemon's package on this terminal.

    Args:
        words: the module's name, and its arguments.

    Returns:
        Its exit status; 128 and the number of the signal that ended it.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    # -P: a file of the current folder must not pass for a module of ours.
    argv = [sys.executable, "-P", "-m", *words]
    # Ctrl-C reaches it by itself, and its end is ours.
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        ignored = before is signal.SIG_IGN
        usual = [signal.SIGPIPE, signal.SIGXFSZ, *([] if ignored else [signal.SIGINT])]
        pid = os.posix_spawn(argv[0], argv, os.environ, setsigdef=usual)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        signal.signal(signal.SIGINT, before)
    return status if status >= 0 else 128 - status
