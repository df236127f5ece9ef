"""`rnix ps`: the table of processes."""

from typing import Any

import click

from rnixfs_cli.screen import Screen, cells, duration, fit, model_label, one_line
from rnixfs_cli.session import Session, json_option, mount_option, pass_session

HEADER = ("PID", "PPID", "STATE", "AGENT", "PROVIDER/MODEL", "STEPS", "TOKENS", "ELAPSED", "INTENT")
_NUMBERS = frozenset({"PID", "PPID", "STEPS", "TOKENS", "ELAPSED"})
_COLOURS = {"running": "green", "paused": "yellow", "suspended": "yellow", "zombie": "red"}


@click.command()
@json_option
@mount_option
@pass_session
def ps(session: Session) -> None:
    """List the processes."""
    processes = session.tree().processes()
    if session.as_json:
        session.json(processes)
    else:
        show(processes, session.screen)


def show(processes: list[dict[str, Any]], screen: Screen) -> None:
    """Print the table; without processes its header alone.

    Args:
        processes: the status of each.
        screen: where to print; the intents are cut to its width.
    """
    rows = [_row(status) for status in processes]
    widths = [max(map(cells, column)) for column in zip(HEADER, *rows, strict=True)]
    screen.line(screen.paint("bold", _line(HEADER, widths, screen)))
    for row in rows:
        screen.line(_coloured(_line(row, widths, screen), row[2], screen))


def _row(status: dict[str, Any]) -> tuple[str, ...]:
    state = "paused" if status.get("paused") and status["state"] == "running" else status["state"]
    return (
        str(status["pid"]),
        str(status.get("ppid", 0)),
        state,
        one_line(str(status.get("agent") or "-")),
        one_line(model_label(status)),
        str(status.get("steps", 0)),
        str(status.get("tokens_used", 0)),
        duration(float(status.get("elapsed_ms", 0))),
        one_line(str(status.get("intent", ""))),
    )


def _line(row: tuple[str, ...], widths: list[int], screen: Screen) -> str:
    columns = [_padded(*one) for one in zip(HEADER[:-1], row[:-1], widths[:-1], strict=True)]
    start = "  ".join(columns)
    total = screen.width()
    if total is None:
        return f"{start}  {row[-1]}".rstrip()
    return fit(f"{start}  {fit(row[-1], max(total - cells(start) - 2, 8))}".rstrip(), total)


def _padded(name: str, text: str, width: int) -> str:
    blanks = " " * (width - cells(text))
    return blanks + text if name in _NUMBERS else text + blanks


def _coloured(line: str, state: str, screen: Screen) -> str:
    style = _COLOURS.get(state)
    return line.replace(state, screen.paint(style, state), 1) if style else line
