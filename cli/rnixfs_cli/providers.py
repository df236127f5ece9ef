"""`rnix providers`: the models, whether they can be used, and why not."""

import json
from typing import Any

import click

from rnixfs_cli import table
from rnixfs_cli.screen import Screen, one_line
from rnixfs_cli.session import Session, json_option, mount_option, pass_session

HEADER = ("NAME", "DRIVER", "STATE", "LATENCY", "DEFAULT-MODEL", "REASON")
CHECKED = (*HEADER[:-1], "MODELS", HEADER[-1])
_NUMBERS = frozenset({"LATENCY", "MODELS"})


@click.command()
@click.argument("action", metavar="[check", required=False, type=click.Choice(["check"]))
@click.argument("name", metavar="[NAME]]", required=False)
@json_option
@mount_option
@pass_session
def providers(session: Session, action: str | None, name: str | None) -> int:
    """List the models and whether they can be used; `check` asks them, which costs nothing.

    The exit status of `check` is 1 where the provider NAME, or every provider, cannot be used.
    """
    tree = session.tree()
    if action is None:
        rows = _rows(tree.read("sys/providers").decode("utf-8", "replace"))
    else:
        rows = _rows(tree.exchange("sys/check", {"provider": name} if name else {}, call="Check"))
    if session.as_json:
        session.json(rows)
    else:
        show(rows, session.screen, checked=action is not None)
    return 0 if action is None or any(row.get("available") for row in rows) else 1


def _rows(text: str) -> list[dict[str, Any]]:
    # Not splitlines: a text of JSON may hold what other alphabets take for the end of a line.
    return [json.loads(line) for line in text.split("\n") if line]


def show(rows: list[dict[str, Any]], screen: Screen, *, checked: bool = False) -> None:
    """Print the table.

    Args:
        rows: the lines of `sys/providers`, or those that `sys/check` answered.
        screen: where to print; long texts are cut to its width.
        checked: whether they were asked which models they have.
    """
    first, *others = table.layout(
        CHECKED if checked else HEADER, [_cells(row, checked) for row in rows], _NUMBERS, screen.width()
    )
    screen.line(screen.paint("bold", first))
    for line, row in zip(others, rows, strict=True):
        screen.line(line if row.get("available") else screen.paint("dim", line))


def _cells(row: dict[str, Any], checked: bool) -> tuple[str, ...]:
    models = (str(len(row.get("models") or ())),) if checked else ()
    return (
        one_line(str(row["name"])),
        one_line(str(row["driver"])),
        _state(row),
        _latency(row.get("latency_ms")),
        one_line(str(row.get("default_model") or "-")),
        *models,
        one_line(str(row.get("reason") or "-")),
    )


def _state(row: dict[str, Any]) -> str:
    return one_line(str(row.get("state") or ("ready" if row.get("available") else "unavailable")))


def _latency(milliseconds: float | None) -> str:
    """Milliseconds as people read them; a dash where none were measured."""
    if not milliseconds:
        return "-"
    return f"{milliseconds / 1000:.1f}s" if milliseconds >= 1000 else f"{milliseconds:.0f}ms"
