"""What a call of an MCP server's tool costs through the mount, beside the same call by the official SDK.

    python -m bench.mcp [--quick] [--rounds N]

See docs/bench.md.
"""

import argparse
import contextlib
import dataclasses
import functools
import pathlib
import signal
import sys
import tempfile
from collections.abc import Iterator

from bench import servers
from bench.mcp import programs
from bench.models.calls import HEAD, Rival
from bench.servers import BenchError

CROWD = 20  # calls at once


class Options(argparse.Namespace):
    """The command line."""

    quick: bool
    rounds: int | None


@dataclasses.dataclass(frozen=True)
class Extent:
    """How much is measured.

    Args:
        rounds: of calls.
        calls: on each side in a round.
    """

    rounds: int
    calls: int


FULL = Extent(7, 1000)
QUICK = Extent(1, CROWD)


def parse(arguments: list[str]) -> Extent:
    """Read the command line, as far as it concerns this part."""
    parser = argparse.ArgumentParser(prog="python -m bench.mcp", allow_abbrev=False, add_help=False)
    parser.add_argument("--quick", action="store_true", help="one small round, to see that it works")
    parser.add_argument("--rounds", type=int, help=f"rounds of calls (default {FULL.rounds})")
    options, _others = parser.parse_known_args(arguments, namespace=Options())
    extent = QUICK if options.quick else FULL
    rounds = extent.rounds if options.rounds is None else options.rounds
    if rounds < 1:
        parser.error(f"--rounds is {rounds}; it must be 1 or more")
    return dataclasses.replace(extent, rounds=rounds)


def rivals(device: pathlib.Path, command: str) -> Iterator[Rival]:
    """What is compared: one call after the other, and many at once."""
    for at_once in (1, CROWD):
        ours = functools.partial(programs.through_mount, device, at_once)
        yield Rival(f"{at_once} at once", ours, functools.partial(programs.bare, command, at_once))


def measure(extent: Extent, folder: pathlib.Path, command: str) -> None:
    """Measure and print."""
    with servers.daemon(folder) as (_, mountpoint):
        found = list(rivals(programs.mount(mountpoint, command), command))
        for _ in range(extent.rounds):
            for rival in found:
                rival.run(extent.calls)
    print("a call of an MCP server's tool:", HEAD, *(rival.row() for rival in found), sep="\n")
    print(f"\nmcp {', '.join(rival.summary() for rival in found)}\n", flush=True)


def main(arguments: list[str]) -> int:
    """Measure and print; the exit status."""
    extent = parse(arguments)
    command = programs.server()
    if not command:
        print(f"mcp NOT MEASURED: {programs.SERVER} is not installed here; 'make dev' installs it\n")
        return 0
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))  # so that the servers are taken away
    try:
        with contextlib.ExitStack() as stack:
            temporary = tempfile.TemporaryDirectory(prefix="rnixfs-bench-", ignore_cleanup_errors=True)
            measure(extent, pathlib.Path(stack.enter_context(temporary)).resolve(), command)
    except BenchError as error:
        print(f"rnixfs: bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
