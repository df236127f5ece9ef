"""What a call of a model costs through us, and many streams at once.

    python -m bench.models [--quick] [--rounds N] [--streams N]

See docs/bench.md.
"""

import argparse
import contextlib
import dataclasses
import pathlib
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator

from bench.load import _cpu_ns as cpu_ns
from bench.load import _rss_kib as rss_kib
from bench.models import answers, calls, programs
from bench.models.setting import STREAMS_MAX, Setting, pin, ready
from bench.servers import BenchError


class Options(argparse.Namespace):
    """The command line."""

    quick: bool
    rounds: int | None
    streams: int | None


@dataclasses.dataclass(frozen=True)
class Extent:
    """How much is measured.

    Args:
        rounds: of calls.
        calls: of each driver in a round.
        streams: at once.
        crowds: rounds of those.
        gap: seconds between two pieces of one of them.
    """

    rounds: int
    calls: int
    streams: int
    crowds: int
    gap: float


FULL = Extent(5, 100, 500, 3, 0.1)
QUICK = Extent(1, 3, 20, 1, 0.01)


def parse(arguments: list[str]) -> Extent:
    """Read the command line, as far as it concerns this part."""
    parser = argparse.ArgumentParser(prog="python -m bench.models", allow_abbrev=False, add_help=False)
    parser.add_argument("--quick", action="store_true", help="one small round, to see that it works")
    parser.add_argument("--rounds", type=int, help=f"rounds of calls (default {FULL.rounds})")
    parser.add_argument("--streams", type=int, help=f"streams at once (default {FULL.streams})")
    options, _others = parser.parse_known_args(arguments, namespace=Options())
    extent = QUICK if options.quick else FULL
    rounds = extent.rounds if options.rounds is None else options.rounds
    streams = extent.streams if options.streams is None else options.streams
    if rounds < 1:
        parser.error(f"--rounds is {rounds}; it must be 1 or more")
    if not 1 <= streams <= STREAMS_MAX:
        parser.error(f"--streams is {streams}; it must be 1 to {STREAMS_MAX}")
    return dataclasses.replace(extent, rounds=rounds, streams=streams)


@dataclasses.dataclass
class Crowd:
    """Many streams at once, through us and without us.

    Args:
        ours: a round each.
        bare: as many, by the HTTP library alone.
        before: KiB of the daemon before the first.
        most: KiB of it at most.
        cpu: seconds of processor time that the daemon took in each round.
    """

    ours: list[programs.Streams]
    bare: list[programs.Streams]
    before: int
    most: int
    cpu: list[float]

    @staticmethod
    def figures(rounds: list[programs.Streams]) -> tuple[float, float, float]:
        """Milliseconds to the first piece, at half and at 99 of 100 streams, and seconds until all ended."""
        median = statistics.median
        half, late = (median(one.at(share) for one in rounds) * 1000 for share in (0.5, 0.99))
        return half, late, median(one.total for one in rounds)

    def costs(self) -> tuple[float, float]:
        """Microseconds of processor time for a piece: of the daemon, and of the program without it."""
        pieces = len(self.ours[0].first) * answers.PIECES
        bare = statistics.median(one.cpu for one in self.bare)
        return statistics.median(self.cpu) / pieces * 1e6, bare / pieces * 1e6

    def rows(self) -> Iterator[str]:
        """The table."""
        yield f"{'':28}{'first p50, ms':>16}{'first p99, ms':>16}{'all, s':>10}"
        for name, rounds in (("through the mount", self.ours), ("httpx2 on trio alone", self.bare)):
            half, late, total = self.figures(rounds)
            yield f"{name:28}{half:16.0f}{late:16.0f}{total:10.2f}"
        more = (self.most - self.before) / len(self.ours[0].first)
        ours, bare = self.costs()
        yield f"{'processor time a piece':28}{ours:10.0f} us of the daemon, {bare:.0f} us without it"
        yield f"{'memory of the daemon':28}{self.most / 1024:10.1f} MiB at most, {more:.1f} KiB a stream"

    def summary(self) -> str:
        """Its part of the last line."""
        ours, bare = self.figures(self.ours), self.figures(self.bare)
        count = len(self.ours[0].first)
        first = f"first piece p50 {ours[0]:.0f} to {bare[0]:.0f} ms, p99 {ours[1]:.0f} to {bare[1]:.0f} ms"
        total = f"total {ours[2]:.2f} to {bare[2]:.2f} s (ratio {ours[2] / bare[2]:.2f})"
        cost = "{:.0f} to {:.0f} us a piece".format(*self.costs())
        return f"{count} streams {first}, {total}, {cost}, daemon {self.most / 1024:.0f} MiB"


def crowd(setting: Setting, count: int, rounds: int) -> Crowd:
    """Measure many streams at once; the daemon, and the client that stands beside it, have one core."""
    own, others = pin(setting)
    device = setting.mountpoint / "dev" / "llm" / "openai-compat"
    body = {"model": answers.MODEL, "messages": [{"role": "user", "content": "Say it."}], "stream": True}
    found = Crowd([], [], rss_kib(setting.daemon.pid), 0, [])
    for _ in range(rounds):
        found.bare.append(programs.crowd_bare(setting.url + answers.OPENAI, body, count, own))
        since = cpu_ns(setting.daemon.pid)
        found.ours.append(
            programs.crowd_through_mount(device, {"intent": "Say it.", "stream": True}, count, others)
        )
        found.cpu.append((cpu_ns(setting.daemon.pid) - since) / 1e9)
        found.most = max(found.most, peak_kib(setting.daemon.pid))
    return found


def peak_kib(pid: int) -> int:
    """The most memory that a process has had, in KiB."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise BenchError(f"process {pid} is gone")


def measure(extent: Extent, setting: Setting) -> None:
    """Measure, and print each table as soon as it is there."""
    rivals = list(calls.rivals(setting))
    for _ in range(extent.rounds):
        for rival in rivals:
            rival.run(extent.calls)
    print("a call of a model:", calls.HEAD, *(rival.row() for rival in rivals), sep="\n")
    if not setting.claude:
        print("claude: NOT MEASURED, the command is not installed here")
    print(flush=True)
    found = crowd(setting, extent.streams, extent.crowds)
    print(f"{extent.streams} streams of {answers.PIECES} pieces at once:", *found.rows(), sep="\n")
    parts = ", ".join(rival.summary() for rival in rivals)
    print(f"\nmodels {parts}; {found.summary()}\n", flush=True)


def main(arguments: list[str]) -> int:
    """Measure and print; the exit status."""
    extent = parse(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))  # so that the servers are taken away
    try:
        with contextlib.ExitStack() as stack:
            temporary = tempfile.TemporaryDirectory(prefix="rnixfs-bench-", ignore_cleanup_errors=True)
            folder = pathlib.Path(stack.enter_context(temporary)).resolve()
            measure(extent, stack.enter_context(ready(folder, extent.gap)))
    except BenchError as error:
        print(f"rnixfs: bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
