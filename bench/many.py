"""Many live processes at once: how fast they are made, listed, signalled and ended, and their memory.

    python -m bench.many [--count N] [--quick]

A daemon of its own holds processes whose scripted model waits. All is done through the mount, by programs:
this process never touches it. Each program has a limit in time, so the whole has one too.
"""

import argparse
import contextlib
import json
import pathlib
import signal
import sys
import tempfile
import time
from collections.abc import Iterator

from bench import servers
from bench.load import _rss_kib as rss_kib
from bench.servers import BenchError
from rnixfs import limits

COUNT = 10_000  # the requirement
QUICK_COUNT = 200
CHUNK = 500  # processes that one program makes, so that each program is far from its limit in time
SETTLE_SECONDS = 120.0
GROUP = "proc/groups/many"
REQUEST = {"intent": "wait 3600 s", "provider": "script"}

# Makes processes in one private conversation with the device, and puts them into the group.
_SPAWN = """
import os, sys
count, request = int(sys.argv[2]), sys.argv[3].encode() + b"\\n"
os.chdir(sys.argv[1])
device = os.open("proc/spawn", os.O_RDWR)
for _ in range(count):
    os.write(device, request)
    pid = b""
    while part := os.read(device, 64):
        pid += part
    print(int(pid))
"""
_JOIN = """
import os, sys
os.chdir(sys.argv[1])
for pid in sys.argv[2:]:
    ctl = os.open(f"proc/{pid}/ctl", os.O_WRONLY)
    os.write(ctl, b"join many\\n")
    os.close(ctl)
"""


class Options(argparse.Namespace):
    """The command line."""

    count: int | None
    quick: bool


def parse(arguments: list[str]) -> int:
    """Read the command line, as far as it concerns this part; returns the number of processes."""
    parser = argparse.ArgumentParser(prog="python -m bench.many", allow_abbrev=False, add_help=False)
    parser.add_argument("--count", type=int, help=f"live processes (default {COUNT})")
    parser.add_argument("--quick", action="store_true", help=f"only {QUICK_COUNT}, to see that it works")
    options, _others = parser.parse_known_args(arguments, namespace=Options())
    count = options.count
    if count is None:
        count = QUICK_COUNT if options.quick else COUNT
    if not 1 <= count <= limits.PROCESSES_MAX:
        parser.error(f"--count is {count}; it must be 1 to {limits.PROCESSES_MAX}")
    return count


class Crowd:
    """The processes of one daemon.

    Args:
        daemon: pid of the daemon.
        mountpoint: its mount.
        count: how many processes there are to be.
    """

    def __init__(self, daemon: int, mountpoint: pathlib.Path, count: int) -> None:
        self.daemon = daemon
        self.mountpoint = mountpoint
        self.count = count
        self.pids: list[str] = []

    def measure(self) -> Iterator[str]:
        """Do all of it, one line of figures after the other.

        Raises:
            BenchError: something of it did not happen.
        """
        before = rss_kib(self.daemon)
        yield self._rate("made", self.spawn())
        yield self._rate("made and in their first step", self.settle('"steps":1,'))
        each = (rss_kib(self.daemon) - before) / self.count
        yield f"{'memory a process':32}{each:10.1f} KiB  ({before / 1024:.1f} MiB without any)"
        yield self._time("ls proc", self.listing())
        yield self._time("cat proc/processes", self.processes())
        yield self._rate("joined a group", self.join())
        yield self._time("group: signal PAUSE", self.signal("PAUSE"))
        self.settle('"paused":true,')
        yield self._time("group: signal KILL", self.signal("KILL"))
        yield self._time("until all were reaped", self.reaped())
        yield f"{'memory after their end':32}{rss_kib(self.daemon) / 1024:10.1f} MiB"

    def _rate(self, what: str, seconds: float) -> str:
        return f"{what:32}{seconds:10.2f} s    {self.count / seconds:.0f} a second"

    @staticmethod
    def _time(what: str, seconds: float) -> str:
        return f"{what:32}{seconds * 1000:10.1f} ms"

    # --- what is measured: each returns seconds ---

    def spawn(self) -> float:
        """Make the processes, by one program after the other."""
        self._started = time.monotonic()
        for first in range(0, self.count, CHUNK):
            some = min(CHUNK, self.count - first)
            self.pids += self._python(_SPAWN, some, json.dumps(REQUEST)).split()
        return time.monotonic() - self._started

    def settle(self, mark: str) -> float:
        """Wait until the lines of all processes hold a mark; seconds since the first was made."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while self._shell('cat "$1/proc/processes"').count(mark) != self.count:
            if time.monotonic() > deadline:
                raise BenchError(f"not within {SETTLE_SECONDS:g} s: {mark} in {self.count} processes")
            time.sleep(0.1)
        return time.monotonic() - self._started

    def listing(self) -> float:
        """List the folder, and see that all are there."""
        names, seconds = self._timed('ls "$1/proc"')
        self._expect("names in proc", sum(name.isdecimal() for name in names.split()), self.count)
        return seconds

    def processes(self) -> float:
        """Read the document with a line for each."""
        text, seconds = self._timed('cat "$1/proc/processes"')
        self._expect("lines of proc/processes", text.count("\n"), self.count)
        return seconds

    def join(self) -> float:
        """Put all into a group."""
        self._shell(f'mkdir "$1/{GROUP}"')
        since = time.monotonic()
        for first in range(0, self.count, CHUNK):
            self._python(_JOIN, *self.pids[first : first + CHUNK])
        seconds = time.monotonic() - since
        members = self._shell(f'cat "$1/{GROUP}/members"').split()
        self._expect("members of the group", len(set(members)), self.count)
        return seconds

    def signal(self, name: str) -> float:
        """Send all of them a signal by one line; it has taken effect when the write is over."""
        return self._timed(f'echo "signal {name}" > "$1/{GROUP}/ctl"')[1]

    def reaped(self) -> float:
        """Wait until none lives, is a member, or waits to be reaped."""
        since = time.monotonic()
        while self._stats()["processes"]:
            if time.monotonic() - since > SETTLE_SECONDS:
                raise BenchError(f"not within {SETTLE_SECONDS:g} s: all processes have ended")
            time.sleep(0.01)
        seconds = time.monotonic() - since
        self._expect("members of the group", len(self._shell(f'cat "$1/{GROUP}/members"')), 0)
        # The log forgets what is beyond the limit at its own time.
        history, least = self._stats()["history"], min(self.count, limits.HISTORY_MAX)
        if not least <= history <= self.count:
            raise BenchError(f"processes in the history: {history}, and not {least} to {self.count}")
        return seconds

    # --- how ---

    def _stats(self) -> dict[str, int]:
        stats: dict[str, int] = json.loads(self._shell('cat "$1/sys/stats"'))
        return stats

    def _python(self, text: str, *arguments: object) -> str:
        return servers.ask(sys.executable, "-I", "-S", "-c", text, self.mountpoint, *arguments)

    def _shell(self, script: str) -> str:
        return servers.shell(script, self.mountpoint)

    def _timed(self, script: str) -> tuple[str, float]:
        since = time.monotonic()
        return self._shell(script), time.monotonic() - since

    @staticmethod
    def _expect(what: str, found: int, right: int) -> None:
        if found != right:
            raise BenchError(f"{what}: {found}, and not {right}")


def main(arguments: list[str]) -> int:
    """Measure and print; the exit status."""
    count = parse(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))  # so that the daemon is taken away
    print(f"{count} live processes:", flush=True)
    try:
        with contextlib.ExitStack() as stack:
            temporary = tempfile.TemporaryDirectory(prefix="rnixfs-bench-", ignore_cleanup_errors=True)
            folder = pathlib.Path(stack.enter_context(temporary)).resolve()
            daemon, mountpoint = stack.enter_context(servers.daemon(folder))
            for line in Crowd(daemon.pid, mountpoint, count).measure():
                print(line, flush=True)
    except BenchError as error:
        print(f"rnixfs: bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
