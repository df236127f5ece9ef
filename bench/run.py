"""Measure the mount beside a server in C, Linux procfs and tmpfs.

    python -m bench.run --programs DIR [--quick] [--rounds N] [--json FILE]

In each round every server does every operation, in random order, so that what else the machine does
falls on all of them alike. See docs/bench.md.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
from collections.abc import Iterator

from bench import load, servers
from bench.figures import CROSS, OPERATIONS, OURS, PROCFS, SAME, TMPFS, C, Figures, Operation, Sample
from bench.servers import BenchError, Program, Sizes

ENTRIES = 10  # names that proc lists


class Options(argparse.Namespace):
    """The command line."""

    programs: pathlib.Path
    quick: bool
    rounds: int | None
    json: pathlib.Path | None


@dataclasses.dataclass(frozen=True)
class Extent:
    """How much is measured.

    Args:
        rounds: rounds.
        share: of each operation's count that is done.
        readers: blocked readers.
        seconds: for which processor time is counted.
    """

    rounds: int
    share: float
    readers: int
    seconds: float


FULL = Extent(11, 1.0, 1000, 2.0)
QUICK = Extent(1, 0.1, 50, 0.3)


def parse(arguments: list[str]) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="bench/run.sh", description="Measure the speed of the mount.")
    parser.add_argument("--programs", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="one short round, to see that it works")
    parser.add_argument("--rounds", type=int, help=f"rounds (default {FULL.rounds})")
    parser.add_argument("--json", type=pathlib.Path, help="write all figures to this file")
    options = parser.parse_args(arguments, namespace=Options())
    if options.rounds is not None and options.rounds < 1:
        parser.error(f"--rounds is {options.rounds}; it must be 1 or more")
    return options


def extent(options: Options) -> Extent:
    """How much these options ask for."""
    chosen = QUICK if options.quick else FULL
    return chosen if options.rounds is None else dataclasses.replace(chosen, rounds=options.rounds)


class Bench:
    """Servers that run, and what is measured of them.

    Args:
        client: the program that measures.
        processes: the FUSE servers that run, by name.
        roots: where each server's tree lies, by name.
    """

    def __init__(
        self, client: pathlib.Path, processes: dict[str, Program], roots: dict[str, pathlib.Path]
    ) -> None:
        self.client = client
        self.processes = processes
        self.roots = roots
        self.cores = sorted(os.sched_getaffinity(0))

    def layouts(self) -> dict[str, tuple[int, int]]:
        """Cores of client and server; the second layout needs two."""
        found = {SAME: (self.cores[0], self.cores[0])}
        if len(self.cores) > 1:
            found[CROSS] = (self.cores[0], self.cores[1])
        return found

    def round(self, number: int, share: float) -> Iterator[Sample]:
        """Every operation at every server, once."""
        for layout, (ours, theirs) in self.layouts().items():
            self.pin({theirs})
            tasks = [(operation, name) for operation in OPERATIONS for name in operation.servers()]
            random.shuffle(tasks)
            for operation, name in tasks:
                if name in self.roots and (layout == SAME or name in self.processes):
                    p50, p99 = self.time(operation, name, ours, share)
                    yield Sample(layout, operation.name, name, number, p50, p99)

    def pin(self, cores: set[int]) -> None:
        """Keep the FUSE servers on these cores."""
        for program in self.processes.values():
            servers.pin(program.pid, cores)

    def time(self, operation: Operation, name: str, core: int, share: float) -> tuple[float, float]:
        """Median and 99th percentile of one operation, microseconds."""
        path = "/proc/self/status" if name == PROCFS else self.roots[name] / operation.path
        count = max(10, round(operation.count * share))
        p50, p99 = servers.ask(self.client, "time", core, operation.name, count, path).split()
        return int(p50) / 1000, int(p99) / 1000


@contextlib.contextmanager
def running(programs: pathlib.Path, folder: pathlib.Path) -> Iterator[Bench]:
    """All servers, with equal trees."""
    with contextlib.ExitStack() as stack:
        ours, our_root = stack.enter_context(servers.daemon(folder))
        servers.populate(our_root, ENTRIES)
        sizes = Sizes.of(our_root)
        yardstick, its_root = stack.enter_context(servers.yardstick(programs / "cserver", folder, sizes))
        files = stack.enter_context(servers.memory(sizes))
        roots = {OURS: our_root, C: its_root, PROCFS: pathlib.Path("/proc")}
        if files is not None:
            roots[TMPFS] = files
        print(f"rnixfs: bench: status of {sizes[0]} bytes, proc of {sizes[2]} entries", flush=True)
        yield Bench(programs / "client", {OURS: ours, C: yardstick}, roots)


def measure(options: Options, folder: pathlib.Path) -> Figures:
    """Start the servers and do all rounds."""
    much = extent(options)
    samples: list[Sample] = []
    with running(options.programs, folder) as bench:
        for number in range(much.rounds):
            samples.extend(bench.round(number, much.share))
            print(f"rnixfs: bench: round {number + 1} of {much.rounds}", flush=True)
        bench.pin(set(bench.cores))
        daemon, root = bench.processes[OURS], bench.roots[OURS]
        loads = load.measure(bench.client, daemon.pid, root, much.readers, much.seconds)
    return Figures(samples, loads)


def main(arguments: list[str]) -> int:
    """Measure, print and write; the exit status."""
    options = parse(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))  # so that the servers are taken away
    try:
        with tempfile.TemporaryDirectory(prefix="rnixfs-bench-", ignore_cleanup_errors=True) as folder:
            figures = measure(options, pathlib.Path(folder).resolve())
    except BenchError as error:
        print(f"rnixfs: bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if options.json is not None:
        options.json.write_text(json.dumps(figures.as_json(), indent=1) + "\n")
    print(f"\n{figures.table()}\n{figures.summary()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
