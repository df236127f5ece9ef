"""Real daemons and real programs for tests: started by themselves, bounded in time, gone afterwards.

The process of the tests never touches a mount: a file system that hangs would hang the tests with it.
Programs do that, each in a login session of its own, so that mailboxes of two tests never mix.
"""

import contextlib
import os
import pathlib
import platform
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

SECONDS = 60.0  # for anything that must happen; a bound for what hangs, not a measure
LEAVE_SECONDS = 30.0  # for a daemon that was told to stop
BOOT = ("-m", "rnixfs.boot")

# Programs get the signals that a shell gives them, whatever the tests themselves were started from.
_PLAIN = ("env", "--default-signal")
_OVERRIDE = "--bounding-set=-dac_override,-dac_read_search"
_NO_OVERRIDE = ("setpriv", _OVERRIDE) if os.geteuid() == 0 else ()


def until(condition: Callable[[], object], what: str, seconds: float = SECONDS) -> None:
    """Wait for a condition, and fail with `what` if it does not come."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.005)


def state_of(pid: int) -> str:
    """The state letter of a process as ps shows it; "" for one that is gone or only waits to be reaped."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    letter = text.rpartition(")")[2].split()[0]
    return "" if letter in "ZX" else letter


def members(session: int) -> list[int]:
    """The living processes of a POSIX session."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and os.getsid(int(folder.name)) == session:
                found.append(int(folder.name))
    return [pid for pid in found if state_of(pid)]


_CALLS = {"x86_64": ("0", "1"), "aarch64": ("63", "64")}.get(platform.machine(), ())
"""The numbers of read(2) and write(2), none where they are not known: then every call counts."""


def waits_for_mount(pid: int, mount: pathlib.Path | str) -> bool:
    """Whether a thread of a process waits in a read or write of a file below a mount."""
    return any(_waits(task, f"{mount}/") for task in pathlib.Path(f"/proc/{pid}/task").glob("*"))


def _waits(task: pathlib.Path, below: str) -> bool:
    try:
        # The call that it sleeps in and its arguments, or "running".
        call, *arguments = (task / "syscall").read_text().split()
        if call not in _CALLS and (_CALLS or not call.isdecimal()):
            return False
        if os.readlink(task / "fd" / str(int(arguments[0], 16))).startswith(below):
            return True
    except PermissionError:
        pass
    except OSError:
        return False
    # A mount that was taken off its folder has no path any more, and some hosts do not tell of calls.
    with contextlib.suppress(OSError):
        return "request_wait_answer" in (task / "wchan").read_text()
    return False


class Done(NamedTuple):
    """How a program ended."""

    status: int
    out: str
    err: str


class Program:
    """A program in a session of its own.

    Args:
        argv: what is started.
        env: its environment, with the mount as `M`.
        cwd: where it starts; never in a mount.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: pathlib.Path) -> None:
        self.argv = argv
        self.mount = env.get("M", "")
        self.process = subprocess.Popen(
            [*_PLAIN, *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Its process id, session and process group."""
        return self.process.pid

    def blocked(self) -> int:
        """How many of its processes wait in a read of the mount."""
        return sum(waits_for_mount(pid, self.mount) for pid in self.members())

    def members(self) -> list[int]:
        """The living processes of its session."""
        return members(self.pid)

    def line(self) -> str:
        """Its next line of output."""
        assert self.process.stdout is not None
        out, line = self.process.stdout.fileno(), b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([out], [], [], SECONDS)
            assert ready, f"no line in {SECONDS:g} s from {self.argv}, only {line!r}"
            byte = os.read(out, 1)
            assert byte, f"the output of {self.argv} ended after {line!r}"
            line += byte
        return line.decode().rstrip("\n")

    def end(self, data: bytes = b"", seconds: float = SECONDS) -> Done:
        """Give it the rest of its input, and wait for its end."""
        try:
            out, err = self.process.communicate(data, timeout=seconds)
        except subprocess.TimeoutExpired:
            stuck = report(self.pid)
            self.clear()
            raise AssertionError(f"not over within {seconds:g} s: {self.argv}\n{stuck}") from None
        return Done(self.process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))

    def signal(self, number: int) -> None:
        """Send a signal to its whole process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def clear(self) -> None:
        """Kill all of it, if anything is left, and close the pipes."""
        for pid in self.members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(LEAVE_SECONDS)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()


def report(session: int) -> str:
    """What the processes of a session do, for the message of a test that waited in vain."""
    lines = []
    for pid in members(session):
        with contextlib.suppress(OSError):
            place = pathlib.Path(f"/proc/{pid}")
            status = dict(line.split(":\t", 1) for line in (place / "status").read_text().splitlines())
            shown = ", ".join(
                f"{name} {status[name]}" for name in ("Name", "State", "SigPnd", "ShdPnd", "SigIgn")
            )
            lines.append(f"{pid}: {shown}, in {(place / 'wchan').read_text()}")
    return "\n".join(lines)


def environment(folder: pathlib.Path, **more: str) -> dict[str, str]:
    """An environment whose home and run-time folders lie below `folder`; no server is looked for."""
    home = folder / "home"
    places = {
        "HOME": home,
        "XDG_CONFIG_HOME": home / ".config",
        "XDG_DATA_HOME": home / ".local" / "share",
        "XDG_RUNTIME_DIR": folder / "run",
    }
    for place in places.values():
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "VIRTUAL_ENV") if name in os.environ}
    fixed = {"LC_ALL": "C.UTF-8", "RNIX_LOCAL_SERVERS": "none"}
    return {**kept, **fixed, **{name: str(place) for name, place in places.items()}, **more}


class Daemon:
    """A daemon with its mount.

    Args:
        folder: where its mountpoint `m`, its home, its log and the folder `host` that it shows lie.
        options: further options of its command line.
        program: arguments that make Python run it.
        env: variables that replace those of `environment`.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        options: Sequence[str] = (),
        *,
        program: Sequence[str] = BOOT,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.mount = folder / "m"
        self.host = folder / "host"
        self.host.mkdir(exist_ok=True)
        self.env = environment(folder) | dict(env or {}) | {"M": str(self.mount)}
        self.programs: list[Program] = []
        self._log = folder / "daemon.log"
        self._argv = [
            sys.executable,
            *program,
            "--mount",
            str(self.mount),
            "--root",
            str(self.host),
            *options,
        ]
        self.start()

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        reading, writing = os.pipe()
        try:
            with self._log.open("ab") as log:
                self.process = subprocess.Popen(
                    [*self._argv, "--ready-fd", str(writing)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self.env,
                    cwd=self.host,
                    start_new_session=True,
                    pass_fds=[writing],
                )
            os.close(writing)
            self._await_ready(reading)
        finally:
            os.close(reading)

    def _await_ready(self, reading: int) -> None:
        told = b""
        # Lines that begin with notice: tell of the state; the last line says how the start went.
        while not re.search(rb"^(ready|error: .*)\n\Z", told, re.MULTILINE):
            ready, _, _ = select.select([reading], [], [], SECONDS)
            part = os.read(reading, 4096) if ready else b""
            if not part:
                break
            told += part
        if not told.endswith(b"ready\n"):
            self.clear()
            raise AssertionError(f"the daemon said {told!r}; its log:\n{self.log()}")

    def log(self) -> str:
        """What it wrote so far."""
        return self._log.read_text("utf-8", "replace")

    # --- programs ---

    def program(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Program:
        """Start a program; it is gone when the daemon is."""
        made = Program(argv, self.env | dict(env or {}), self.host)
        self.programs.append(made)
        return made

    def script(self, text: str, env: Mapping[str, str] | None = None) -> Program:
        """Start a script of bash, in which `$M` is the mount."""
        return self.program(["bash", "-c", text], env)

    def bash(self, text: str, data: bytes = b"", env: Mapping[str, str] | None = None) -> Done:
        """Run a script of bash to its end."""
        return self._run(self.script(text, env), data)

    def _run(self, program: Program, data: bytes = b"") -> Done:
        try:
            return program.end(data)
        finally:
            self.forget(program)

    def plain(self, text: str) -> Done:
        """Run a script as somebody for whom permission bits count: root looks past them otherwise."""
        return self._run(self.program([*_NO_OVERRIDE, "bash", "-c", text]))

    def out(self, text: str) -> str:
        """What a script prints; it must succeed and complain about nothing."""
        done = self.bash(text)
        assert (done.status, done.err) == (0, ""), f"{text}\n{done}"
        return done.out

    def forget(self, program: Program) -> None:
        """End a program, if it is not over."""
        program.clear()
        if program in self.programs:
            self.programs.remove(program)

    def python(self, text: str, *arguments: str) -> Program:
        """Start a program of Python's that needs the standard library only."""
        return self.program([sys.executable, "-I", "-S", "-c", text, *arguments])

    # --- its end ---

    def signal(self, number: int) -> None:
        """Send the daemon a signal."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Its exit status, once it has ended."""
        return self.process.wait(LEAVE_SECONDS)

    def stop(self) -> int:
        """Ask it to leave; its exit status."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        return self.wait()

    def mounted(self) -> bool:
        """Whether anything, dead or alive, lies over its folder."""
        mounts = pathlib.Path("/proc/self/mountinfo").read_text()
        return any(line.split()[4] == str(self.mount) for line in mounts.splitlines())

    def unmount(self, *options: str) -> int:
        """Take the mount off the folder as its user would; the status of fusermount3."""
        argv = ["fusermount3", "-u", *options, str(self.mount)]
        return subprocess.run(argv, stderr=subprocess.DEVNULL, timeout=LEAVE_SECONDS, check=False).returncode

    def clear(self) -> None:
        """Leave nothing behind, whatever happened."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.stop()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(LEAVE_SECONDS)
        for program in list(self.programs):
            self.forget(program)
        while self.mounted():
            assert self.unmount("-z") == 0, f"{self.mount} cannot be unmounted"


@contextlib.contextmanager
def running(folder: pathlib.Path, options: Sequence[str] = (), **more: Any) -> Iterator[Daemon]:
    """A daemon for as long as the block runs; arguments as `Daemon` has them."""
    daemon = Daemon(folder, options, **more)
    try:
        yield daemon
    finally:
        daemon.clear()


def quoted(value: object) -> str:
    """A value as one word of bash."""
    return shlex.quote(str(value))
