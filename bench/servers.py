"""The servers that are measured: started, pinned to cores, and taken away again.

This process never touches a mount, since a server that hangs would hang it too. Programs do that, each with a
limit in time; one that cannot be ended is left alone until its server is gone, which frees it.
"""

import contextlib
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence

ASK_SECONDS = 60.0  # for any program that asks a server something
START_SECONDS = 60.0
LEAVE_SECONDS = 15.0
_PLAIN = ("env", "--default-signal")  # programs get the signals that a shell gives them


class BenchError(Exception):
    """The benchmark cannot be done; the text says why."""


class Program:
    """A program that was started and must not stay.

    Args:
        argv: what is started.
        env: its environment; ours if None.
        pass_fds: descriptors that it inherits.
        log: what it complains goes there; to our own standard error if None.
    """

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        log: pathlib.Path | None = None,
    ) -> None:
        self.argv = [str(word) for word in argv]
        with contextlib.ExitStack() as stack:
            errors = stack.enter_context(log.open("ab")) if log is not None else None
            self.process = subprocess.Popen(
                [*_PLAIN, *self.argv],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=env,
                pass_fds=pass_fds,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def output(self) -> str:
        """All it prints, once it has ended well.

        Raises:
            BenchError: it failed, or did not end in time.
        """
        try:
            out, _ = self.process.communicate(timeout=ASK_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise BenchError(f"{self.argv} did not end in {ASK_SECONDS:g} s") from None
        if self.process.returncode:
            raise BenchError(f"{self.argv} failed with status {self.process.returncode}")
        return out.decode()

    def line(self) -> str:
        """Its first line of output, "" if it gives none in time."""
        assert self.process.stdout is not None
        return read_line(self.process.stdout.fileno())

    def end(self, number: int = signal.SIGTERM) -> None:
        """End it: by the signal, and if that is not enough by SIGKILL."""
        for one in (number, signal.SIGKILL):
            if self.process.poll() is None:
                self.process.send_signal(one)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(LEAVE_SECONDS)
        if self.process.stdout is not None:
            self.process.stdout.close()


def read_line(fd: int) -> str:
    """The next line of a pipe, "" if it ends or stays silent for `START_SECONDS`."""
    line = b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([fd], [], [], START_SECONDS)
        byte = os.read(fd, 1) if ready else b""
        if not byte:
            return ""
        line += byte
    return line.decode().strip()


def ask(*argv: object) -> str:
    """What a program prints; raises BenchError as `Program.output`."""
    return Program([str(word) for word in argv]).output()


def shell(script: str, *arguments: object) -> str:
    """What a script of bash prints; its arguments are `$1` and so on."""
    return ask("bash", "-euc", script, "bench", *arguments)


def pin(pid: int, cores: set[int]) -> None:
    """Let all threads of a process run on these cores only."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(task.name), cores)


def is_mounted(folder: pathlib.Path) -> bool:
    """Whether something is mounted on a folder, by the host kernel's table."""
    table = pathlib.Path("/proc/self/mountinfo").read_text()
    return any(line.split(" ")[4] == str(folder) for line in table.splitlines())


def unmount(folder: pathlib.Path) -> None:
    """Take whatever is left of a mount off a folder."""
    for _ in range(3):
        if is_mounted(folder):
            command = ["fusermount3", "-u", "-z", str(folder)]
            subprocess.run(command, timeout=LEAVE_SECONDS, stdin=subprocess.DEVNULL, check=False)


@contextlib.contextmanager
def daemon(
    folder: pathlib.Path, options: Sequence[str] = (), config: str = ""
) -> Iterator[tuple[Program, pathlib.Path]]:
    """Our daemon, with a home of its own below `folder`; gives its mountpoint too.

    Args:
        folder: a place for it.
        options: more of its command line.
        config: its `config.yaml`.
    """
    mountpoint, log = folder / "rnixfs", folder / "daemon.log"
    home = folder / "home"
    settings = home / ".config" / "rnix"
    for one in (mountpoint, settings):
        one.mkdir(parents=True)
    (settings / "config.yaml").write_text(config)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("RNIX_", "XDG_"))}
    reading, writing = os.pipe()
    argv = [sys.executable, "-m", "rnixfs.boot", "--mount", str(mountpoint), "--root", str(home)]
    argv += options
    program = Program(
        [*argv, "--ready-fd", str(writing)],
        {**env, "HOME": str(home), "XDG_RUNTIME_DIR": str(home)},
        (writing,),
        log,
    )
    try:
        os.close(writing)
        told = read_line(reading)
        while told.startswith("notice: "):
            told = read_line(reading)
        if told != "ready":
            raise BenchError(f"the daemon did not start: {told}\n{log.read_text()}")
        yield program, mountpoint
    finally:
        os.close(reading)
        program.end()
        unmount(mountpoint)


@contextlib.contextmanager
def yardstick(
    executable: pathlib.Path, folder: pathlib.Path, sizes: "Sizes"
) -> Iterator[tuple[Program, pathlib.Path]]:
    """The server in C, with files of the same sizes; gives its mountpoint too."""
    mountpoint = folder / "c"
    mountpoint.mkdir()
    program = Program([str(word) for word in (executable, mountpoint, *sizes)])
    try:
        if program.line() != "ready":
            raise BenchError("the server in C did not start")
        yield program, mountpoint
    finally:
        program.end()
        unmount(mountpoint)


class Sizes(tuple[int, int, int]):
    """Bytes of `proc/1/status`, bytes of `proc/1/messages.json`, entries of `proc`."""

    @classmethod
    def of(cls, mountpoint: pathlib.Path) -> "Sizes":
        """The sizes that a mount has now."""
        script = 'cd "$1/proc"; wc -c <1/status; wc -c <1/messages.json; ls -A | wc -l'
        status, messages, entries = (int(word) for word in shell(script, mountpoint).split())
        return cls((status, messages, entries))


def populate(mountpoint: pathlib.Path, entries: int) -> None:
    """Fill a daemon's `proc` with processes that stay, until it lists `entries` names.

    The first has a long system prompt, so that a file of more than 4 KiB is there, and is paused, so that
    its files keep their sizes.
    """
    request = {"intent": "wait 3600 s", "provider": "script", "agent": "default"}
    first = request | {"system_prompt": "Wait until you are told to stop. " * 300}
    script = """
        cd "$1/proc"
        make() { exec 3<>spawn; printf '%s\\n' "$1" >&3; read -r pid <&3; exec 3>&-; }
        make "$2"
        echo "$pid"
        echo pause >"$pid/ctl"
        while [ "$(ls -A | wc -l)" -lt "$4" ]; do make "$3"; done
    """
    pid = shell(script, mountpoint, json.dumps(first), json.dumps(request), entries).strip()
    if pid != "1":
        raise BenchError(f"the first process got the pid {pid}, not 1")


@contextlib.contextmanager
def memory(sizes: Sizes) -> Iterator[pathlib.Path | None]:
    """The same tree as ordinary files in memory (tmpfs); None where the machine has none."""
    shared = pathlib.Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        yield None
        return
    root = shared / f"rnixfs-bench-{os.getpid()}"
    try:
        _fill(root, *sizes)
        yield root
    finally:
        subprocess.run(["rm", "-rf", "--", str(root)], check=False)


def _fill(root: pathlib.Path, status: int, messages: int, entries: int) -> None:
    agent, models = root / "proc" / "1", root / "dev" / "llm"
    for folder in (agent, models):
        folder.mkdir(parents=True)
    files = {agent / "status": status, agent / "messages.json": messages}
    files |= {agent / "ctl": 1024, models / "script": 1024}
    for file, size in files.items():
        file.write_bytes(b" " * size)
    for number in range(2, entries + 1):
        (root / "proc" / f"entry-{number}").mkdir()
