"""A user of the `rnix` command: a home, a folder to work in, a mountpoint, and the command on the PATH."""

import contextlib
import os
import pathlib
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence

from tests.daemon import SECONDS, Done, Program, environment, state_of, until

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL_SECONDS = 30.0  # for fusermount3

# What an installed `rnix` is: a program whose own folder, not the current one, comes first in sys.path.
COMMAND = "import sys\nfrom rnixfs_cli.main import main\nsys.argv[0] = 'rnix'\nmain()\n"

IMPATIENT = """
import functools
from rnixfs_cli import mountpoint
mountpoint.probe = functools.partial(mountpoint.probe, seconds=1.0)
"""

# Runs a command on a terminal of its own; what is written to this program is typed there.
TERMINAL = """
import os, pty, sys
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])) & 0xFF)
"""


class User:
    """A user of the command on a host that has no other.

    Args:
        folder: where the home, the folder to work in and the mountpoint lie.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder.resolve()
        self.mount = self.folder / "m"
        self.work = self.folder / "work"
        self.work.mkdir()
        self.programs: list[Program] = []
        tools = self.folder / "bin"
        tools.mkdir()
        (tools / "rnix.py").write_text(COMMAND)
        command = tools / "rnix"
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {tools}/rnix.py "$@"\n')
        command.chmod(0o755)
        self.env = environment(self.folder, RNIX_MOUNT=str(self.mount), M=str(self.mount))
        self.env |= {"TERM": "xterm", "COLUMNS": "80"}
        (self.folder / "tmp").mkdir()
        self.env["TMPDIR"] = str(self.folder / "tmp")
        self.env["PATH"] = f"{tools}:{self.env.get('PATH', os.defpath)}"
        self.env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "cli"), str(ROOT)])

    # --- what a user does ---

    def start(self, *words: str) -> Program:
        """Start the command; it is gone when the user is."""
        return self._program(["rnix", *words])

    def rnix(self, *words: str, data: bytes = b"") -> Done:
        """Run the command to its end, `data` being its input."""
        return self._finish(self.start(*words), data)

    def out(self, *words: str) -> str:
        """What the command prints; it must succeed and complain about nothing."""
        done = self.rnix(*words)
        assert (done.status, done.err) == (0, ""), f"{words}\n{done}"
        return done.out

    def script(self, text: str) -> Program:
        """Start a script of bash, in which `$M` is the mount."""
        return self._program(["bash", "-c", text])

    def bash(self, text: str) -> Done:
        """Run a script of bash to its end."""
        return self._finish(self.script(text))

    def terminal(self, *words: str) -> Program:
        """Start the command on a terminal."""
        return self._program([sys.executable, "-I", "-S", "-c", TERMINAL, "rnix", *words])

    def detach(self, intent: str, *words: str) -> str:
        """Start a process and leave it running; its pid."""
        return self.out("spawn", "--detach", intent, *words).strip()

    def _program(self, argv: Sequence[str]) -> Program:
        made = Program(argv, self.env, self.work)
        self.programs.append(made)
        return made

    def _finish(self, program: Program, data: bytes = b"") -> Done:
        try:
            return program.end(data)
        finally:
            program.clear()
            self.programs.remove(program)

    def lose_patience(self) -> None:
        """Give a daemon one second, not ten, before the command takes it for hanging."""
        command = self.folder / "bin" / "rnix.py"
        command.write_text(IMPATIENT + COMMAND)

    # --- what is there ---

    def mounts(self, path: pathlib.Path | None = None) -> list[str]:
        """What is mounted on a folder, the oldest first, as `rnixfs:PID`."""
        lines = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
        found = [line.split(" - ") for line in lines if line.split()[4] == str(path or self.mount)]
        return [after.split()[1] for _, after in found]

    def server(self, path: pathlib.Path | None = None) -> int:
        """The pid of the daemon that the mount itself names."""
        name, _, pid = self.mounts(path)[-1].partition(":")
        assert name == "rnixfs"
        return int(pid)

    def daemons(self) -> list[int]:
        """The living daemons whose mountpoint lies below this user's folder, mounted or not."""
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._is_daemon(pid)]

    def _is_daemon(self, pid: int) -> bool:
        try:
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        except (OSError, UnicodeDecodeError):
            return False
        below = any(word.startswith(f"{self.folder}/") for word in words)
        return "rnixfs.boot" in words and "--mount" in words and below and state_of(pid) != ""

    def kill_daemon(self) -> int:
        """End the daemon as a crash would; its pid."""
        pid = self.server()
        os.kill(pid, signal.SIGKILL)
        until(lambda: not state_of(pid), "the end of the killed daemon")
        return pid

    def opened(self, program: Program, name: str) -> bool:
        """Whether a program holds a file of the tree open; found out without touching the mount."""
        wanted = f"{self.mount}/{name}"
        links = [link for pid in program.members() for link in pathlib.Path(f"/proc/{pid}/fd").glob("*")]
        return any(_leads_to(link, wanted) for link in links)

    # --- the end ---

    def clear(self) -> None:
        """Leave nothing behind, whatever happened: daemons first, for readers wait for them."""
        self._end_daemons(signal.SIGTERM)
        for program in self.programs:
            program.clear()
        for point in self._mountpoints():
            while self.mounts(point):
                argv = ["fusermount3", "-u", "-z", str(point)]
                done = subprocess.run(argv, capture_output=True, timeout=TOOL_SECONDS, check=False)
                assert done.returncode == 0, f"{point} cannot be unmounted: {done.stderr!r}"

    def _end_daemons(self, number: int) -> None:
        for pid in self.daemons():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        try:
            until(lambda: not self.daemons(), "the end of the daemons", SECONDS / 2)
        except AssertionError:
            if number == signal.SIGKILL:
                raise
            self._end_daemons(signal.SIGKILL)

    def _mountpoints(self) -> list[pathlib.Path]:
        lines = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
        points = {line.split()[4] for line in lines}
        return [pathlib.Path(point) for point in points if point.startswith(f"{self.folder}/")]


def _leads_to(link: pathlib.Path, path: str) -> bool:
    try:
        return os.readlink(link) == path
    except OSError:
        return False


@contextlib.contextmanager
def user_of(folder: pathlib.Path) -> Iterator[User]:
    """A user for as long as the block runs."""
    user = User(folder)
    try:
        yield user
    finally:
        user.clear()


def gate(name: str) -> str:
    """A command that waits until somebody makes the file `name` in the folder where the agent works."""
    return f"until [ -e {name} ]; do sleep 0.02; done"


def field(line: str, label: str) -> str:
    """What stands after a label in the kernel's last line on a process."""
    parts = [part.strip() for part in line.split("|")]
    return next(part.removeprefix(f"{label}:").strip() for part in parts if part.startswith(f"{label}:"))
