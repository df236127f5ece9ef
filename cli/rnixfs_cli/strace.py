"""`rnix strace`: the system calls of a process."""

from collections.abc import Callable
from typing import Any

import click

from rnixfs_cli import callclasses, traceline
from rnixfs_cli.session import Session, json_option, mount_option, pass_session, pid_argument
from rnixfs_cli.tracer import Show, Tracer
from rnixfs_cli.tree import ENDED


@click.command()
@pid_argument
@click.option("-f", "follow", is_flag=True, help="Follow children too; their lines start with [pid N].")
@click.option(
    "-e",
    "expressions",
    multiple=True,
    metavar="[trace=]WHAT[,WHAT]",
    help="Only these calls, or classes of calls: "
    f"{', '.join(callclasses.CLASSES)}; with ! before them, all others.",
)
@click.option(
    "-c", "count", is_flag=True, help="Count calls, errors and times, from the start of the process."
)
@json_option
@mount_option
@pass_session
def strace(session: Session, pid: str, follow: bool, expressions: tuple[str, ...], count: bool) -> None:
    """Show the system calls of the process PID from now on; for one that has ended, all that it made.

    Ctrl-C lets go of the process and does not touch it.
    """
    wanted = chooser(expressions)
    tree = session.tree()
    folder, number = tree.find(pid, "Trace")
    state = tree.status(folder, call="Trace", pid=number)["state"]
    summary = Summary()
    show = summary.add if count else _shower(session, number)
    notes = session.screen.line if not session.as_json else _silent
    tracer = Tracer(tree, lambda pid, record: show(pid, record) if wanted(record) else None, follow)
    over = state in ENDED or folder.startswith("proc/history/")
    if not over:
        tracer.attach(number, from_start=count)
    reason = "interrupted"
    try:
        notes(f"[strace] attached to PID {number} (state: {state})")
        if over:
            tracer.past(folder, number)
        tracer.run()
        reason = "process exited"
    finally:
        tracer.close()
        notes(f"[strace] detached from PID {number} ({reason})")
        if count:
            summary.show(session)


def _silent(_line: str) -> None:
    """Notes for people have no place in output for programs."""


def _shower(session: Session, first: int) -> Show:
    screen = session.screen

    def as_json(pid: int, record: dict[str, Any]) -> None:
        # What says only how much is missing does not say of whom.
        session.json(record if "pid" in record or pid == first else {"pid": pid, **record})

    def as_line(pid: int, record: dict[str, Any]) -> None:
        mark = "" if pid == first else f"[pid {pid}] "
        text = screen.safe(mark + traceline.line(record))
        screen.line(screen.paint("red", text) if record.get("error") else text)

    return as_json if session.as_json else as_line


def chooser(expressions: tuple[str, ...]) -> Callable[[dict[str, Any]], bool]:
    """What `-e` lets through.

    Args:
        expressions: names of calls and of classes of calls with commas between them, in any case; `trace=`
            may stand before them, and a `!` before the names turns the choice round.

    Returns:
        A test for a record; what tells of records that were not kept always passes.

    Raises:
        click.BadParameter: a name that there is not.
    """
    only: set[str] = set()
    never: set[str] = set()
    for expression in expressions:
        names = expression.strip().removeprefix("trace=")
        chosen = never if names.startswith("!") else only
        chosen.update(*map(_calls_of, filter(None, map(str.strip, names.removeprefix("!").split(",")))))

    def wanted(record: dict[str, Any]) -> bool:
        name = record.get("syscall")
        return name is None or (name not in never and (not only or name in only))

    return wanted


def _calls_of(word: str) -> frozenset[str]:
    try:
        return callclasses.calls_of(word)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="-e") from None


class Summary:
    """Calls, errors and times by name, as `strace -c` has them."""

    def __init__(self) -> None:
        self.calls: dict[str, list[float]] = {}
        self.errors: dict[str, int] = {}
        self.dropped = 0

    def add(self, _pid: int, record: dict[str, Any]) -> None:
        """Count a record."""
        name = record.get("syscall")
        if name is None:
            self.dropped += record.get("dropped", 0)
            return
        self.calls.setdefault(name, []).append(float(record.get("duration_ms", 0.0)))
        self.errors[name] = self.errors.get(name, 0) + bool(record.get("error"))

    def rows(self) -> list[dict[str, Any]]:
        """One row for each name, the longest time first."""
        found = [
            {
                "syscall": name,
                "calls": len(times),
                "errors": self.errors[name],
                "total_ms": round(sum(times), 3),
            }
            for name, times in self.calls.items()
        ]
        return sorted(found, key=lambda row: (-float(str(row["total_ms"])), str(row["syscall"])))

    def show(self, session: Session) -> None:
        """Print the table."""
        rows = self.rows()
        if session.as_json:
            session.json([*rows, {"dropped": self.dropped}] if self.dropped else rows)
            return
        whole = sum(row["total_ms"] for row in rows)
        session.screen.line("% time     seconds     ms/call     calls    errors syscall")
        for row in rows:
            share = 100 * row["total_ms"] / whole if whole else 0.0
            each = row["total_ms"] / row["calls"]
            numbers = f"{share:6.2f} {row['total_ms'] / 1000:11.6f} {each:11.3f} {row['calls']:9d}"
            session.screen.line(f"{numbers} {row['errors'] or '':>9} {row['syscall']}")
        calls, errors = sum(row["calls"] for row in rows), sum(row["errors"] for row in rows)
        session.screen.line(f"100.00 {whole / 1000:11.6f} {'':11} {calls:9d} {errors or '':>9} total")
        if self.dropped:
            session.screen.line(traceline.line({"dropped": self.dropped}))
