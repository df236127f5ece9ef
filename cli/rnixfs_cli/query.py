"""`rnix query`: the log, asked with SQL."""

import json
import sys
from typing import Any

import click

from rnixfs_cli import table
from rnixfs_cli.screen import Screen, one_line
from rnixfs_cli.session import Session, json_option, mount_option, pass_session


@click.command()
@click.argument("sql")
@json_option
@mount_option
@pass_session
def query(session: Session, sql: str) -> None:
    """Run one statement of SQL (`-` reads it from stdin) that reads the log, and print its rows."""
    if sql == "-":
        sql = "" if sys.stdin is None else sys.stdin.read()
    if not sql.strip():
        raise click.UsageError(
            "say what to ask, such as: rnix query 'SELECT event, count(*) FROM events GROUP BY 1'"
        )
    rows = session.tree().query(sql)
    if session.as_json:
        session.json(rows)
    else:
        show(rows, session.screen)


def show(rows: list[dict[str, Any]], screen: Screen) -> None:
    """Print rows as a table; the columns are those of the first.

    Args:
        rows: the rows, which all have the same columns.
        screen: where to print; long texts are cut to its width.
    """
    if not rows:
        screen.line("no rows")
        return
    header = list(rows[0])
    right = {name for name in header if all(_is_number(row[name]) for row in rows)}
    cells = [[_text(value) for value in row.values()] for row in rows]
    names = [one_line(name) for name in header]
    first, *others = table.layout(names, cells, {one_line(name) for name in right}, screen.width())
    screen.line(screen.paint("bold", first))
    for line in others:
        screen.line(line)


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _text(value: object) -> str:
    if value is None:
        return "NULL"
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
