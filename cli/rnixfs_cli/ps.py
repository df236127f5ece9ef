"""`rnix ps`: the table of processes."""

from typing import Any

import click

from rnixfs_cli import table
from rnixfs_cli.screen import Screen, duration, model_label, one_line
from rnixfs_cli.session import Session, json_option, mount_option, pass_session

HEADER = ("PID", "PPID", "STATE", "AGENT", "PROVIDER/MODEL", "STEPS", "TOKENS", "ELAPSED", "INTENT")
REASON = "REASON"
_NUMBERS = frozenset({"PID", "PPID", "STEPS", "TOKENS", "ELAPSED"})
_COLOURS = {"running": "green", "paused": "yellow", "suspended": "yellow", "zombie": "red"}


@click.command()
@click.option("-v", "--verbose", is_flag=True, help="Show why processes are suspended, too.")
@json_option
@mount_option
@pass_session
def ps(session: Session, verbose: bool) -> None:
    """List the processes that have not ended. A suspended one goes on with `rnix resume PID`."""
    processes = session.tree().processes()
    if session.as_json:
        session.json(processes)
    else:
        show(processes, session.screen, verbose)


def show(processes: list[dict[str, Any]], screen: Screen, verbose: bool = False) -> None:
    """Print the table; without processes its header alone.

    Args:
        processes: the status of each.
        screen: where to print; long texts are cut to its width.
        verbose: whether to show why a process is suspended.
    """
    header = (*HEADER[:-1], REASON, HEADER[-1]) if verbose else HEADER
    rows = [_row(status, verbose) for status in processes]
    first, *others = table.layout(header, rows, _NUMBERS, screen.width())
    screen.line(screen.paint("bold", first))
    for line, row in zip(others, rows, strict=True):
        screen.line(_coloured(line, row[2], screen))


def _row(status: dict[str, Any], verbose: bool) -> tuple[str, ...]:
    state = "paused" if status.get("paused") and status["state"] == "running" else status["state"]
    reason = (one_line(str(status.get("suspended") or "-")),) if verbose else ()
    return (
        str(status["pid"]),
        str(status.get("ppid", 0)),
        state,
        one_line(str(status.get("agent") or "-")),
        one_line(model_label(status)),
        str(status.get("steps", 0)),
        str(status.get("tokens_used", 0)),
        duration(float(status.get("elapsed_ms", 0))),
        *reason,
        one_line(str(status.get("intent", ""))),
    )


def _coloured(line: str, state: str, screen: Screen) -> str:
    style = _COLOURS.get(state)
    return line.replace(state, screen.paint(style, state), 1) if style else line
