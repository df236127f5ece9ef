"""The crash harness: kills the daemon at events of one run, again and again, and checks what came of it.

A point says where the daemon dies: at which event of its life, before or after the event was kept, perhaps a
second time in the life after that; or where the disk begins to fail. For each point there is a daemon of
its own on a state of its own, with a real mount, real bash and a person who starts everything anew and wakes
what was interrupted, until root agent and supervisor have ended.

    python -m tests.crash.harness --points 500 --seed 1      any number of points
    python -m tests.crash.harness --point 17:after+4:before  one of them, as a failure names it
"""

import argparse
import gc
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from tests.crash import hooks
from tests.crash.faults import Fault
from tests.crash.laws import check
from tests.crash.life import Place
from tests.crash.points import Point, plan, plan_troubles, read_point
from tests.crash.system import HarnessError, System, mounted

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MEMORY = pathlib.Path("/dev/shm")
SCENARIO = pathlib.Path(__file__).with_name("scenario.yaml")
WORKERS = min(8, 2 * (os.cpu_count() or 1))  # since each mostly waits for commands that sleep


class Outcome(NamedTuple):
    """What came of a point.

    Args:
        point: its text.
        error: what was wrong, empty if nothing.
        lives: events that each life acknowledged.
        seconds: how long it took.
        folder: where everything lies, if it was kept.
    """

    point: str
    error: str
    lives: list[int]
    seconds: float
    folder: str


def try_point(text: str, base: pathlib.Path, fault: Fault | None = None) -> Outcome:
    """Live through a point and check it; its folder stays if something was wrong."""
    began = time.monotonic()
    folder = pathlib.Path(tempfile.mkdtemp(dir=base))
    # A process that is killed takes nothing along, wherever its files are; so they are where it is quick.
    quick = MEMORY if os.access(MEMORY, os.W_OK) else folder
    state = pathlib.Path(tempfile.mkdtemp(prefix="rnixfs-crash-", dir=quick))
    place = Place(folder, state / "state")
    point = read_point(text)
    place.make(SCENARIO, hooks.FULL if point.trouble is not None else hooks.NORMAL)
    system = System(place, point, fault)
    error = ""
    try:
        system.run()
        check(system)
    except HarnessError as failure:
        error = str(failure)
    if fault is not None:
        fault.off()
    if error:
        shutil.copytree(state, folder, dirs_exist_ok=True)
    elif not mounted(place.mount):
        shutil.rmtree(folder)
    shutil.rmtree(state, ignore_errors=True)
    return Outcome(text, error, system.lives, time.monotonic() - began, str(folder) if error else "")


def work(base: pathlib.Path) -> None:
    """Be a worker: points come as lines of the input, outcomes go as lines of JSON."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    fault = Fault.of_environment()
    hooks.warm(SCENARIO)
    gc.freeze()
    for line in sys.stdin:
        outcome = try_point(line.strip(), base, fault)
        print(json.dumps(outcome), flush=True)


def try_points(
    points: Sequence[Point],
    base: pathlib.Path,
    workers: int = WORKERS,
    told: Callable[[Outcome], None] = lambda _outcome: None,
) -> list[Outcome]:
    """Live through many points, some side by side.

    Args:
        points: the points.
        base: a folder for everything.
        workers: how many at a time.
        told: called with each outcome as it comes.
    """
    shares = [points[number::workers] for number in range(workers)]
    with ThreadPoolExecutor(workers) as pool:
        done = pool.map(lambda share: _try_share(share, base, told), filter(None, shares))
        return [outcome for outcomes in done for outcome in outcomes]


def _try_share(share: Sequence[Point], base: pathlib.Path, told: Callable[[Outcome], None]) -> list[Outcome]:
    outcomes = []
    for outcome in worker(share, base):
        told(outcome)
        outcomes.append(outcome)
    if len(outcomes) != len(share):
        missing = str(share[len(outcomes)])
        outcomes.append(Outcome(missing, "the worker ended in this point", [], 0.0, str(base)))
    return outcomes


def worker(share: Sequence[Point], base: pathlib.Path) -> Iterator[Outcome]:
    """Outcomes of points, from a process of its own."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    if any(point.trouble is not None for point in share):
        env |= Fault(base, "/state/log.db").env
    argv = [sys.executable, "-m", "tests.crash.harness", "--work", str(base)]
    with tempfile.TemporaryFile("w+") as questions:
        questions.writelines(f"{point}\n" for point in share)
        questions.seek(0)
        process = subprocess.Popen(
            argv, stdin=questions, stdout=subprocess.PIPE, env=env, cwd=ROOT, text=True
        )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            yield Outcome(*json.loads(line))
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


# --- the command ---


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the harness from a command line; 0 if every law held."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.harness", description="Kill the daemon.")
    parser.add_argument("--points", type=int, default=500, help="how many")
    parser.add_argument("--troubles", type=int, default=0, help="how many points with a failing disk instead")
    parser.add_argument("--seed", type=int, default=1, help="decides which")
    parser.add_argument("--workers", type=int, default=WORKERS, help="how many side by side")
    parser.add_argument("--point", action="append", default=[], help="this one only, as 17:after+4:before")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.work:
        work(pathlib.Path(options.work))
        return 0
    base = pathlib.Path(tempfile.mkdtemp(prefix="rnixfs-crash-"))
    points = [read_point(text) for text in options.point] or _planned(options, base)
    outcomes = try_points(points, base, options.workers, _print)
    failed = [outcome for outcome in outcomes if outcome.error]
    deaths = sum(len(outcome.lives) - 1 for outcome in outcomes)
    print(f"{len(outcomes)} points, {deaths} deaths, {len(failed)} failed")
    if not failed:
        shutil.rmtree(base)
    return 1 if failed else 0


def _planned(options: argparse.Namespace, base: pathlib.Path) -> list[Point]:
    events = undisturbed(base).lives[0]
    if options.troubles:
        return plan_troubles(options.seed, options.troubles, events)
    return plan(options.seed, options.points, events)


def undisturbed(base: pathlib.Path) -> Outcome:
    """The run in which nothing happens."""
    (outcome,) = try_points([Point()], base, 1)
    assert not outcome.error, outcome.error
    return outcome


def _print(outcome: Outcome) -> None:
    mark = "FAILED" if outcome.error else "ok"
    print(f"{mark} {outcome.point} events {outcome.lives} {outcome.seconds:.2f} s", flush=True)
    if outcome.error:
        print(f"{outcome.error}\nkept in {outcome.folder}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
