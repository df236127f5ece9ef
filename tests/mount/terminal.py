"""An interactive bash on a terminal of its own."""

import contextlib
import os
import pty
import select
import signal
import subprocess
import time

from tests.daemon import LEAVE_SECONDS, SECONDS, Daemon, members, report, waits_for_mount

PROMPT = "READY> "


class Terminal:
    """A bash that a test types into.

    Args:
        daemon: whose mount is `$M`.
    """

    def __init__(self, daemon: Daemon) -> None:
        self._mount = daemon.mount
        self._master, slave = pty.openpty()
        # setsid gives it the terminal as its own; it runs it in place where it leads no process group.
        argv = ["env", "--default-signal", "setsid", "-c", "bash", "--norc", "--noprofile", "-i"]
        env = daemon.env | {"PS1": PROMPT, "TERM": "dumb", "HISTFILE": "/dev/null"}
        self._process = subprocess.Popen(
            argv, stdin=slave, stdout=slave, stderr=slave, env=env, cwd=daemon.host
        )
        os.close(slave)
        self._screen = ""
        self.expect(PROMPT)

    @property
    def pid(self) -> int:
        """The shell, and its session."""
        return self._process.pid

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._master, text.encode())

    def expect(self, words: str) -> str:
        """Wait until the screen shows some words; returns what came before them."""
        deadline = time.monotonic() + SECONDS
        while words not in self._screen:
            ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{words!r} not within {SECONDS:g} s, only {self._screen!r}\n{report(self.pid)}"
            self._screen += os.read(self._master, 65536).decode("utf-8", "replace")
        before, _, self._screen = self._screen.partition(words)
        return before

    def blocked(self) -> bool:
        """Whether a program waits in a read of the mount and would get the keys: bash starts the programs of
        a pipeline before it hands the terminal to them."""
        front = os.tcgetpgrp(self._master)
        return any(_group(pid) == front and waits_for_mount(pid, self._mount) for pid in members(self.pid))

    def clear(self) -> None:
        """End all that runs in it."""
        for pid in members(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(LEAVE_SECONDS)
        os.close(self._master)


def _group(pid: int) -> int:
    """The process group of a process, 0 for one that is gone."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0
