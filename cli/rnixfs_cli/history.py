"""`rnix history`: the processes that have ended, those of earlier daemons too."""

import datetime
import itertools
import os
import re
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import click

from rnixfs_cli import lookup, table
from rnixfs_cli.errors import CommandError
from rnixfs_cli.screen import Screen, fit, one_line
from rnixfs_cli.session import Session, json_option, mount_option, pass_session
from rnixfs_cli.tree import Tree

HEADER = ("ENDED", "PID", "UUID", "CODE", "REASON", "AGENT", "STEPS", "TOKENS", "INTENT")
_NUMBERS = frozenset({"PID", "CODE", "STEPS", "TOKENS"})
USUAL = 50  # processes shown where no number is given
CLIPPED = 80  # columns of a reason or an intent, where the width of no terminal limits them
_ENDED = (
    "SELECT pid, uuid, coalesce(exited, reaped) AS ended FROM processes"
    " WHERE reaped IS NOT NULL AND coalesce(exited, reaped) >= ? ORDER BY ended DESC, pid DESC LIMIT 10000"
)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class Past(NamedTuple):
    """A process that has ended.

    Args:
        uuid: its name in `proc/history`.
        ended: when it ended, seconds since 1970.
        status: its `status`.
    """

    uuid: str
    ended: float
    status: dict[str, Any]


def moment(_context: click.Context, _parameter: click.Parameter, value: str | None) -> float:
    """A time in seconds since 1970: so long ago (`90s 30m 2h 3d 1w`), or a date, maybe with a time of day.

    Raises:
        click.BadParameter: it is neither.
    """
    text = (value or "").strip()
    ago = re.fullmatch(r"(\d{1,9})([smhdw])", text)
    if ago:
        return time.time() - int(ago[1]) * _UNITS[ago[2]]
    if value is None:
        return 0.0
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        right = "write 30m, 2h, 3d, 2025-01-31 or 2025-01-31T14:00"
        raise click.BadParameter(f"{value!r} is no time; {right}") from None


@click.command()
@click.option(
    "-n", "--last", "count", type=click.IntRange(min=0), default=USUAL, show_default=True, metavar="N",
    help="How many at most, the last ones; 0 for all.",
)  # fmt: skip
@click.option("--agent", help="Only those of this agent.")
@click.option(
    "--since",
    callback=moment,
    metavar="WHEN",
    help="Only those that ended after: 30m, 2h, 3d ago, or a date.",
)
@json_option
@mount_option
@pass_session
def history(session: Session, count: int, agent: str | None, since: float) -> None:
    """List the processes that have ended, the last one at the end.

    `rnix log`, `rnix strace`, `rnix fork` and `rnix replay` take the PID and the UUID of each.
    """
    chosen = (
        one for one in ended(session.tree(), since) if agent is None or one.status.get("agent") == agent
    )
    # Read from the last one back, and no further than asked for: what ended long ago is made from the log.
    found = list(itertools.islice(chosen, count or None))[::-1]
    if session.as_json:
        session.json([{"ended": one.ended, **one.status} for one in found])
    else:
        show(found, session.screen)


def ended(tree: Tree, since: float) -> Iterator[Past]:
    """The processes that have ended, the last one first.

    Args:
        tree: the tree.
        since: only those that ended not before, seconds since 1970.
    """
    for uuid, when in _ends(tree, since):
        try:
            yield Past(uuid, when, tree.status(f"{lookup.HISTORY}/{uuid}"))
        except CommandError:
            # Removed from the log while we look.
            continue


def _ends(tree: Tree, since: float) -> Iterator[tuple[str, float]]:
    try:
        rows = tree.query(_ENDED, since)
    except CommandError:
        # A log in memory cannot be asked. Nothing of a process changes after its end.
        for uuid in lookup.past(tree):
            when = _changed(tree, uuid)
            if when >= since:
                yield uuid, when
        return
    for row in rows:
        yield row["uuid"], row["ended"]


def _changed(tree: Tree, uuid: str) -> float:
    try:
        return os.stat(tree.path(f"{lookup.HISTORY}/{uuid}/status")).st_mtime
    except OSError:
        return 0.0


def show(found: list[Past], screen: Screen) -> None:
    """Print the table; without processes its header alone.

    Args:
        found: the processes.
        screen: where to print; long texts are cut to its width.
    """
    names = lookup.shortened([one.uuid for one in found])
    rows = [_row(one, names[one.uuid]) for one in found]
    first, *others = table.layout(HEADER, rows, _NUMBERS, screen.width())
    screen.line(screen.paint("bold", first))
    for line, row in zip(others, rows, strict=True):
        screen.line(line if row[3] == "0" else screen.paint("red", line))


def _row(one: Past, name: str) -> tuple[str, ...]:
    status = one.status
    end = status.get("exit") or {}
    return (
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.ended)),
        str(status["pid"]),
        name,
        str(end.get("code", "-")),
        fit(one_line(str(end.get("reason", "-"))), CLIPPED),
        one_line(str(status.get("agent") or "-")),
        str(status.get("steps", 0)),
        str(status.get("tokens_used", 0)),
        fit(one_line(str(status.get("intent", ""))), CLIPPED),
    )
