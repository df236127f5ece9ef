"""What the log costs: events a second, a step, a restart, and bytes on disk.

    python -m bench.log [--quick] [--rounds N] [--langgraph PYTHON]

See docs/bench.md.
"""

import argparse
import dataclasses
import pathlib
import signal
import sys
import tempfile

from bench.log import folders, rate, restart, size, steps
from bench.servers import BenchError


class Options(argparse.Namespace):
    """The command line."""

    quick: bool
    rounds: int | None
    langgraph: str


@dataclasses.dataclass(frozen=True)
class Extent:
    """How much is measured.

    Args:
        rounds: of events and of steps.
        restarts: rounds of restarts.
        single: events kept one at a time, in a round.
        batched: events kept in batches, in a round.
        steps: of a run.
        finished: processes in the history.
        unfinished: processes that had not ended.
    """

    rounds: int
    restarts: int
    single: int
    batched: int
    steps: int
    finished: int
    unfinished: int


FULL = Extent(5, 3, 250, 2000, 100, 10_000, 1000)
QUICK = Extent(1, 1, 10, 200, 5, 30, 4)


def parse(arguments: list[str]) -> tuple[Extent, str]:
    """Read the command line, as far as it concerns this part: how much, and the Python with LangGraph."""
    parser = argparse.ArgumentParser(prog="python -m bench.log", allow_abbrev=False, add_help=False)
    parser.add_argument("--quick", action="store_true", help="one small round, to see that it works")
    parser.add_argument("--rounds", type=int, help=f"rounds (default {FULL.rounds})")
    parser.add_argument("--langgraph", default="", help="a Python that has LangGraph")
    options, _others = parser.parse_known_args(arguments, namespace=Options())
    extent = QUICK if options.quick else FULL
    if options.rounds is not None:
        if options.rounds < 1:
            parser.error(f"--rounds is {options.rounds}; it must be 1 or more")
        extent = dataclasses.replace(extent, rounds=options.rounds)
    return extent, options.langgraph


def measure(extent: Extent, python: str, folder: pathlib.Path) -> None:
    """Measure, and print each table as soon as it is there."""
    _show(f"the log, on {folders.kind(folder)}: events", rate.measure(folder, *_rate(extent)).rows())

    found = steps.measure(folder / "steps", extent.rounds, extent.steps, python)
    _show(f"one step of {extent.steps}", found.rows())
    if found.beside:
        _show(f"beside LangGraph's checkpointer, {extent.steps} steps", found.beside_rows())
    else:
        _show("beside LangGraph's checkpointer: NOT MEASURED, it is not installed here", [])

    sizes = list(size.measure(folder / "sizes", extent.steps))
    _show(f"{extent.steps} steps on disk", [size.HEAD, *(one.row() for one in sizes)])

    restarts = restart.measure(folder / "restart", extent.restarts, extent.finished, extent.unfinished)
    _show("a start with a history", [*restarts.rows(), *restarts.sizes()])
    print(f"{found.summary()}; {size.summary(sizes)}\n", flush=True)


def _rate(extent: Extent) -> tuple[int, int, int]:
    return extent.rounds, extent.single, extent.batched


def _show(title: str, rows: list[str]) -> None:
    print("\n".join([f"{title}:" if rows else title, *rows, ""]), flush=True)


def main(arguments: list[str]) -> int:
    """Measure and print; the exit status."""
    extent, python = parse(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))  # so that daemons are taken away
    try:
        with tempfile.TemporaryDirectory(
            prefix="rnixfs-bench-", dir=folders.lasting(), ignore_cleanup_errors=True
        ) as folder:
            measure(extent, python, pathlib.Path(folder).resolve())
    except BenchError as error:
        print(f"rnixfs: bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
