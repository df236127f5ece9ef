"""How soon a call ends at its provider once nobody wants it any more.

    python -m bench.models.cancel [--rounds N]

A provider holds its answer back after the first word. Then the call is cancelled in each of the ways there
are, and the time counts until the provider sees the connection closed. With `claude`, that is also the end
of the command's process.
"""

import argparse
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from bench.models.setting import KEY, Setting, ready
from bench.servers import BenchError
from tests.endtoend.slowserver import SlowServer

_SECONDS = 30.0  # for anything that must happen
_ASKING = b'{"intent": "tell", "stream": true}'
# Asks, says so, and waits for the end of the answer: what Ctrl-C is pressed for.
_READER = """
import os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR)
os.write(descriptor, sys.argv[2].encode())
while os.read(descriptor, 4096):
    pass
"""


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for something.

    Raises:
        BenchError: it did not come.
    """
    deadline = time.monotonic() + _SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(f"not within {_SECONDS:g} s: {what}")
        time.sleep(0.0005)


class Ways:
    """The ways in which a call is cancelled; each begins one and returns what ends it.

    Args:
        mountpoint: the mount.
        provider: a provider that never comes to an end.
        server: what stands behind it.
    """

    def __init__(self, mountpoint: pathlib.Path, provider: str, server: SlowServer) -> None:
        self._mount = mountpoint
        self._provider = provider
        self._device = mountpoint / "dev" / "llm" / provider
        self._server = server

    def close(self) -> Callable[[], object]:
        """The file is closed."""
        descriptor = os.open(self._device, os.O_RDWR)
        os.write(descriptor, _ASKING)
        return lambda: os.close(descriptor)

    def interrupt(self) -> Callable[[], object]:
        """Ctrl-C for the program that reads."""
        argv = [sys.executable, "-I", "-S", "-c", _READER, str(self._device), _ASKING.decode()]
        program = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
        return lambda: program.send_signal(signal.SIGINT)

    def kill(self) -> Callable[[], object]:
        """`kill` for the process whose model it is."""
        descriptor = os.open(self._mount / "proc" / "spawn", os.O_RDWR)
        os.write(descriptor, b'{"intent": "tell", "provider": "%s"}' % self._provider.encode())
        pid = int(os.read(descriptor, 100))
        os.close(descriptor)
        control = self._mount / "proc" / str(pid) / "ctl"
        return lambda: control.write_text("kill\n")

    def seconds(self, way: Callable[[], Callable[[], object]]) -> float:
        """Seconds from the end of a call here to its end at the provider."""
        asked, gone = self._server.asked, len(self._server.gone)
        end = way()
        until(lambda: self._server.asked > asked, "the request at the provider")
        time.sleep(0.02)  # the first word is on its way
        started = time.monotonic()
        end()
        until(lambda: len(self._server.gone) > gone, "the end at the provider")
        return self._server.gone[-1] - started


def entries(setting: Setting, server: SlowServer) -> list[str]:
    """Adds providers that ask the slow server; returns their names."""
    config = setting.home.parent / "home" / ".config" / "rnix" / "providers.yaml"
    address = server.url.removesuffix("/v1")
    text = f'  - {{name: slow, driver: openai-compat, base_url: "{server.url}", default_model: m}}\n'
    names = ["slow"]
    if setting.claude:
        names.append("slow-claude")
        text += f'  - {{name: slow-claude, driver: claude-cli, base_url: "{address}", api_key_env: {KEY},\n'
        text += f'     command: "{setting.claude}"}}\n'
    config.write_text(config.read_text() + text)
    return names


def measure(setting: Setting, rounds: int) -> str:
    """Measure and print; returns the last line."""
    server = SlowServer()
    worst: dict[str, float] = {}
    print(f"{'a call is cancelled':28}{'median, ms':>12}{'worst, ms':>12}")
    for provider in entries(setting, server):
        ways = Ways(setting.mountpoint, provider, server)
        for name, way in (("close", ways.close), ("Ctrl-C", ways.interrupt), ("kill", ways.kill)):
            times = [ways.seconds(way) * 1000 for _ in range(rounds)]
            half, most = statistics.median(times), max(times)
            worst[provider] = max(worst.get(provider, 0.0), most)
            print(f"{provider + ', ' + name:28}{half:12.1f}{most:12.1f}", flush=True)
    server.close()
    return "cancelled within " + ", ".join(f"{name} {ms:.1f} ms" for name, ms in worst.items())


def main() -> int:
    """Measure and print; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.models.cancel", allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="one call of each kind, to see that it works")
    parser.add_argument("--rounds", type=int, default=20, help="calls of each kind (default 20)")
    options, _others = parser.parse_known_args()
    rounds: int = 1 if options.quick else options.rounds
    try:
        with (
            tempfile.TemporaryDirectory(prefix="rnixfs-bench-", ignore_cleanup_errors=True) as folder,
            ready(pathlib.Path(folder).resolve(), 0.01) as setting,
        ):
            print(f"\n{measure(setting, rounds)} (target 100)")
    except BenchError as error:
        print(f"rnixfs: bench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
