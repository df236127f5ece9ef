"""Starts the tiny server and its clients, with a bound on every wait and nothing left behind.

No function here touches a mount from the process of the tests: that is what clients are for.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PATIENCE = 60.0  # seconds that a condition may take on a loaded machine

Statistics = dict[str, Any]


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition, and fail with `what` if it does not come."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"did not happen in {PATIENCE:g} s: {what}"
        time.sleep(0.002)


def read_line(descriptor: int) -> str:
    """One line from a pipe, byte by byte so that nothing of the next one is taken."""
    line = b""
    deadline = time.monotonic() + PATIENCE
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"no answer in {PATIENCE:g} s, only {line!r}"
        byte = os.read(descriptor, 1)
        assert byte, f"the other side has gone, after {line!r}"
        line += byte
    return line.decode().rstrip("\n")


def plain_signals() -> None:
    """What a shell gives to a program, whatever the tests themselves were started from."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


class Server:
    """The tiny server in a process of its own."""

    def __init__(self, path: Path, mode: str, loop: str, attr_seconds: float) -> None:
        self.path = path
        self.mode = mode
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "tiny_server.py"), str(path), mode, loop, str(attr_seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._in, self._out = self.process.stdin.fileno(), self.process.stdout.fileno()

    @property
    def pid(self) -> int:
        return self.process.pid

    def hear(self) -> str:
        """Its next line."""
        return read_line(self._out)

    def tell(self, commands: str) -> None:
        os.write(self._in, commands.encode())

    def ask(self, command: str) -> str:
        self.tell(command)
        return self.hear()

    def statistics(self) -> Statistics:
        found: Statistics = json.loads(self.ask("s"))
        return found

    def until(self, **values: int) -> Statistics:
        """Wait until the statistics have these values."""
        last: Statistics = {}

        def agrees() -> bool:
            last.update(self.statistics())
            return all(last[name] == value for name, value in values.items())

        until(agrees, f"{values}")
        return last

    def leave(self) -> int:
        """Ask it to unmount and end; its exit code."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        """End it without a chance to unmount."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def clear(self) -> None:
        """End it whatever its state, and close the pipes."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGCONT)
                self.process.kill()
                self.process.wait(PATIENCE)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


@contextlib.contextmanager
def serving(
    path: Path, mode: str = "real", loop: str = "drained", attr_seconds: float = 0
) -> Iterator[Server]:
    """A server on a folder, which is made if it is missing; afterwards neither is there."""
    path.mkdir(exist_ok=True) if not is_mounted(path) else None
    server = Server(path, mode, loop, attr_seconds)
    try:
        assert server.hear() == "ready"
        yield server
    finally:
        server.clear()
        sweep(path)


def is_mounted(path: Path) -> bool:
    """Whether something is mounted there, by the kernel's table."""
    return any(line.split(" ")[4] == escaped(path) for line in _table())


def _table() -> list[str]:
    return Path("/proc/self/mountinfo").read_text().splitlines()


def escaped(path: Path) -> str:
    return str(path).replace("\\", "\\134").replace(" ", "\\040").replace("\n", "\\012")


def sweep(path: Path) -> None:
    """Take every mount off a folder."""
    for _ in range(10):
        if not is_mounted(path):
            return
        command = ["umount", "-l"] if os.geteuid() == 0 else ["fusermount3", "-u", "-z"]
        subprocess.run([*command, str(path)], timeout=PATIENCE, check=False, stdin=subprocess.DEVNULL)


class Client:
    """A program that uses a mount."""

    def __init__(self, *argv: str) -> None:
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            preexec_fn=plain_signals,
        )
        assert self.process.stdout is not None
        self._out = self.process.stdout

    @property
    def pid(self) -> int:
        return self.process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """The server may still live, so a client that nothing ends is left to the end of the server."""
        self.process.kill()
        self._out.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)

    def hear(self) -> str:
        """Its next line."""
        return read_line(self._out.fileno())

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Wait for its end: exit code, or minus the signal that ended it."""
        return self.process.wait(PATIENCE)


def python(code: str, *arguments: str) -> Client:
    """A client that runs some lines of Python."""
    return Client(sys.executable, "-I", "-S", "-c", code, *arguments)


def works(server: Server) -> bool:
    """Whether a new program can use the mount."""
    with Client("cat", str(server.path / "now")) as client:
        return client.hear() == "now" and client.end() == 0


@contextlib.contextmanager
def stopped(server: Server) -> Iterator[None]:
    """The server stands still; it goes on by itself before a test that touches the mount hangs for ever."""
    alarm = threading.Timer(PATIENCE, server.process.send_signal, [signal.SIGCONT])
    server.process.send_signal(signal.SIGSTOP)
    alarm.start()
    try:
        yield
    finally:
        alarm.cancel()
        alarm.join()
        server.process.send_signal(signal.SIGCONT)
