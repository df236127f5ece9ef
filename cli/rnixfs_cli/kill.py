"""`rnix kill`: a signal for a process."""

import contextlib

import click

from rnixfs_cli.errors import CommandError
from rnixfs_cli.lookup import is_pid
from rnixfs_cli.session import Session, json_option, mount_option, pass_session, pid_argument
from rnixfs_cli.tree import ENDED, Tree

NUMBERS = {"1": "TERM", "2": "KILL", "3": "INT", "4": "PAUSE", "5": "RESUME"}


class Kill(click.Command):
    """A command that takes `-KILL` for `-s KILL`, as the kill of a shell does."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; a first one of one dash and a word is a signal."""
        word = args[0][1:] if args and args[0].startswith("-") else ""
        if word.isalnum() and args[0] not in self._options(context):
            args = ["-s", word, *args[1:]]
        return super().parse_args(context, args)

    def _options(self, context: click.Context) -> set[str]:
        return {name for parameter in self.get_params(context) for name in parameter.opts}


@click.command(cls=Kill)
@pid_argument
@click.argument("signal", required=False)
@click.option("-s", "--signal", "option", metavar="SIGNAL", help="The signal; SIGTERM where none is given.")
@json_option
@mount_option
@pass_session
def kill(session: Session, pid: str, signal: str | None, option: str | None) -> None:
    """Send SIGNAL to the process PID.

    Signals: TERM 1 (end in order), KILL 2 (end now), INT 3 (interrupt), PAUSE 4, RESUME 5; names
    with or without SIG, in any case; `rnix kill -KILL PID` works as well.
    """
    if signal is not None and option is not None:
        raise click.UsageError("the signal is given twice; give it after the pid or with -s")
    name = canonical(signal or option or "TERM")
    tree = session.tree()
    number = int(pid) if is_pid(pid) else tree.find(pid, "Kill")[1]
    _send(tree, number, name)
    if session.as_json:
        session.json({"pid": number, "signal": f"SIG{name}"})
    else:
        session.screen.line(f"[kernel] PID {number}: signal sent (SIG{name})")


def _send(tree: Tree, pid: int, name: str) -> None:
    try:
        tree.write(f"proc/{pid}/ctl", f"signal {name}", call="Kill", pid=pid)
    except CommandError as failure:
        if failure.code == "INVALID" and _has_ended(tree, pid):
            failure.reason = "the process has ended already"
        raise


def _has_ended(tree: Tree, pid: int) -> bool:
    """Whether a process is over; one that left the table meanwhile is."""
    with contextlib.suppress(CommandError):
        return tree.status(f"proc/{pid}", call="Kill", pid=pid)["state"] in ENDED
    return True


def canonical(text: str) -> str:
    """The name of a signal without SIG.

    Args:
        text: a name in any case, with or without SIG, or a number.

    Raises:
        click.BadParameter: there is no such signal.
    """
    word = text.strip().upper().removeprefix("SIG")
    name = NUMBERS.get(word, word)
    if name not in NUMBERS.values():
        known = ", ".join(f"{each} ({number})" for number, each in NUMBERS.items())
        raise click.BadParameter(f"no signal {text!r}; one of {known}")
    return name
