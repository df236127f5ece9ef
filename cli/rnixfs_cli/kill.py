"""`rnix kill`: a signal for a process."""

import click

from rnixfs_cli.session import Session, json_option, mount_option, pass_session

NUMBERS = {"1": "TERM", "2": "KILL", "3": "INT", "4": "PAUSE", "5": "RESUME"}


@click.command()
@click.argument("pid", type=click.IntRange(min=1))
@click.argument("signal", required=False)
@click.option("-s", "--signal", "option", metavar="SIGNAL", help="The signal; SIGTERM where none is given.")
@json_option
@mount_option
@pass_session
def kill(session: Session, pid: int, signal: str | None, option: str | None) -> None:
    """Send SIGNAL to the process PID.

    Signals: TERM 1 (end in order), KILL 2 (end now), INT 3 (interrupt), PAUSE 4, RESUME 5; names
    with or without SIG, in any case.
    """
    if signal is not None and option is not None:
        raise click.UsageError("the signal is given twice; give it after the pid or with -s")
    name = canonical(signal or option or "TERM")
    session.tree().write(f"proc/{pid}/ctl", f"signal {name}", call="Kill", pid=pid)
    if session.as_json:
        session.json({"pid": pid, "signal": f"SIG{name}"})
    else:
        session.screen.line(f"[kernel] PID {pid}: signal sent (SIG{name})")


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
