"""Runs a command line program in an empty folder of its own, and learns from its help what it takes."""

import contextlib
import logging
import os
import pathlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import trio

from rnixfs import limits
from rnixfs.errors import Code
from rnixfs.wire.commandhelp import Help, read_help
from rnixfs.wire.commandreply import EnoughError
from rnixfs.wire.failure import WireError

_log = logging.getLogger(__name__)


class Finished(Protocol):
    """How a program ended."""

    @property
    def returncode(self) -> int:
        """Its exit code, or the negative number of the signal that killed it."""

    @property
    def timed_out(self) -> bool:
        """Whether it was ended because its time was up."""


class Runner(Protocol):
    """Runs programs of the host; implemented by `children.Children`."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        stdin: bytes,
        stdout: Callable[[bytes], None],
        stderr: Callable[[bytes], None],
        timeout: float,
        grace: float,
    ) -> Finished:
        """Run a program to its end, and leave nothing of it behind whatever happens."""


class Heard(NamedTuple):
    """What a program said to a question about itself.

    Args:
        text: all that it printed.
        returncode: its exit code; None where it had to be ended.
    """

    text: str
    returncode: int | None


class CommandRunner:
    """Runs the program of one provider.

    Args:
        runner: starts and ends the processes.
        furniture: files that it must find where it starts: their text by their path.
    """

    def __init__(self, runner: Runner, furniture: Mapping[str, str]) -> None:
        self._runner = runner
        self._furniture = furniture
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._helps: dict[tuple[str, int, int, int], Help] = {}
        self._asking = trio.Lock()

    async def run(
        self,
        argv: list[str],
        env: dict[str, str],
        stdin: bytes,
        stdout: Callable[[bytes], None],
        stderr: Callable[[bytes], None],
        seconds: float,
    ) -> Finished:
        """Run the program to its end; as `Runner.run`.

        Args:
            argv: its path and arguments.
            env: its whole environment; its own folder is added at the end of PATH.
            stdin: what it reads.
            stdout: takes its output.
            stderr: takes its other output.
            seconds: how long it may take.
        """
        return await self._runner.run(
            argv,
            cwd=self._empty_folder(),
            env=_beside(argv[0], env),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            timeout=max(0.0, seconds),
            grace=limits.COMMAND_GRACE_SECONDS,
        )

    async def heard(self, argv: list[str], env: dict[str, str], seconds: float) -> Heard:
        """Ask the program about itself; arguments as in `run`."""
        heard = Bounded(limits.COMMAND_HELP_MAX)
        returncode = None
        with contextlib.suppress(EnoughError):
            env = env | {"TMPDIR": self._home()}
            ended = await self.run(argv, env, b"", heard.take_all, heard.take_all, seconds)
            returncode = None if ended.timed_out else ended.returncode
        return Heard(heard.data.decode("utf-8", "replace"), returncode)

    async def help(self, program: str, env: dict[str, str]) -> Help:
        """The options of the program, asked once for each of its files.

        Where it does not tell them, it is taken to have all: it refuses those that it does not have, before
        it does anything.
        """
        async with self._asking:
            key = _identity(program)
            if key not in self._helps:
                heard = await self.heard([program, "--help"], env, limits.COMMAND_HELP_SECONDS)
                known = read_help(heard.text) if heard.returncode == 0 else Help()
                if known.options is None:
                    _log.warning("%s --help does not tell its options; all are taken to be there", program)
                self._helps = {key: known}
            return self._helps[key]

    def remembered(self, program: str) -> Help:
        """What is known of its options without asking."""
        return self._helps.get(_identity(program), Help())

    def call_folder(self) -> tempfile.TemporaryDirectory[str]:
        """A folder for the temporary files of one call."""
        return tempfile.TemporaryDirectory(prefix="call-", dir=self._home(), ignore_cleanup_errors=True)

    def close(self) -> None:
        """Remove the folders."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _home(self) -> str:
        # Someone who sweeps the folder of temporary files may have removed it since the last call.
        if self._folder is not None and not os.path.isdir(self._folder.name):
            self.close()
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="rnix-model-", ignore_cleanup_errors=True)
        return self._folder.name

    def _empty_folder(self) -> str:
        """A folder without project files; one for all calls, because the program may name it in prompts."""
        folder = pathlib.Path(self._home(), "empty")
        folder.mkdir(mode=0o700, exist_ok=True)
        for name, text in self._furniture.items():
            path = folder / name
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        return str(folder)


class Bounded:
    """Keeps a part of what a program prints.

    Args:
        most: how many bytes are kept.
    """

    def __init__(self, most: int) -> None:
        self.data = bytearray()
        self._most = most
        self._size = 0

    def take_all(self, chunk: bytes) -> None:
        """Keep the beginning; more than that is not wanted."""
        self.data += chunk[: self._most - len(self.data)]
        if len(self.data) >= self._most:
            raise EnoughError

    def take_some(self, chunk: bytes) -> None:
        """Keep the beginning, where the programs say why they gave up, and drop what follows.

        Raises:
            WireError: all of it passes `limits.COMMAND_OUTPUT_MAX`.
        """
        self._size += len(chunk)
        if self._size > limits.COMMAND_OUTPUT_MAX:
            text = f"the command printed more than {limits.COMMAND_OUTPUT_MAX} bytes of errors; it was ended"
            raise WireError(Code.TOO_LARGE, text)
        self.data += chunk[: self._most - len(self.data)]


def _beside(program: str, env: dict[str, str]) -> dict[str, str]:
    """The environment, with the program's folder at the end of PATH.

    A program of npm is started by a `node` that lies beside it, where no shell has set PATH.
    """
    folders = (env.get("PATH", os.defpath), os.path.dirname(program))
    return env | {"PATH": os.pathsep.join(filter(None, folders))}


def _identity(program: str) -> tuple[str, int, int, int]:
    """What changes when a program is replaced by another version."""
    try:
        seen = os.stat(program)
    except OSError:
        return program, 0, 0, 0
    return program, seen.st_ino, seen.st_mtime_ns, seen.st_size
