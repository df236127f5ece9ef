"""Models behind a command line program: how it is found, asked for its options, run and ended.

Each call is one process of its own, in an empty folder, gone with all that it started when the call ends for
whatever reason. What differs between programs is in the drivers.
"""

import abc
import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import trio

from rnixfs import limits
from rnixfs.commandrunner import Bounded, CommandRunner, Runner
from rnixfs.errors import Code, SyscallError
from rnixfs.hostfind import find_command
from rnixfs.llm import Emit, ModelAnswer, ModelRequest, Usage
from rnixfs.model import Model, ModelError, ModelInfo
from rnixfs.providers import ProviderConfig
from rnixfs.wire.commandhelp import Help
from rnixfs.wire.commandreply import CommandReply, EnoughError
from rnixfs.wire.failure import WireError, one_line


class Call(NamedTuple):
    """How a program is to be started.

    Args:
        argv: the program and its arguments.
        env: its whole environment.
        stdin: what it reads.
        reply: takes what it says.
    """

    argv: list[str]
    env: dict[str, str]
    stdin: bytes
    reply: CommandReply


class CommandModel(Model):
    """A command line program as a model.

    Args:
        entry: its entry in providers.yaml, or what stands for one.
        runner: starts and ends the processes.
        env: the user's environment; None for the daemon's own at the time of a call.
    """

    native_tools = False
    driver: str
    """The name of the driver."""
    names: tuple[str, ...]
    """What the program is called."""
    key_variable: str
    """The variable in which the program looks for its key."""
    secrets: tuple[str, ...]
    """Variables whose values no error text may show."""
    install: str
    """Where to read how it is installed."""
    furniture: Mapping[str, str] = {}
    """Files that it must find where it starts: their text by their path."""

    def __init__(self, entry: ProviderConfig, runner: Runner, env: Mapping[str, str] | None = None) -> None:
        self.provider = entry.name
        self.entry = entry
        self.runner = CommandRunner(runner, self.furniture)
        self._commands = (entry.command,) if entry.command else self.names
        self._env = env

    # --- what differs ---

    @abc.abstractmethod
    def login_problem(self, env: Mapping[str, str]) -> str:
        """Why it would not be let in; empty if it has a key or a login. Starts nothing."""

    @abc.abstractmethod
    def lacks(self, known: Help, env: Mapping[str, str]) -> str:
        """The option without which a program cannot be used safely; empty if it has all."""

    @abc.abstractmethod
    def ignored(self, known: Help) -> list[str]:
        """Fields of a request that mean nothing to it."""

    @abc.abstractmethod
    def prepare(
        self,
        request: ModelRequest,
        emit: Emit | None,
        env: Mapping[str, str],
        known: Help,
        folder: str,
        seconds: float,
    ) -> Call:
        """How it is started, the program itself left out of `argv`.

        Args:
            request: the request.
            emit: takes the pieces of the answer.
            env: the user's environment.
            known: the options of the program.
            folder: where it may leave temporary files.
            seconds: how long it may take.
        """

    @abc.abstractmethod
    def scrubbed(self, env: Mapping[str, str]) -> dict[str, str]:
        """What of the user's environment it gets where it is not asked for an answer."""

    # --- the model ---

    def unavailable(self) -> str:
        env = self.environment()
        program = self.program(env)
        if not program:
            names = " or ".join(f'"{name}"' for name in self._commands)
            return (
                f"the command {names} is not installed (looked in PATH, ~/.local/bin and the folders of npm, "
                f"bun, nvm and Volta); see {self.install}"
            )
        if self._lacks_key(env):
            return f"the environment variable {self.entry.api_key_env} is not set; it must hold the API key"
        return self._too_old(program, self.runner.remembered(program), env) or self.login_problem(env)

    def details(self) -> dict[str, object]:
        program = self.program(self.environment())
        return {
            "driver": self.driver,
            "command": program or self._commands[0],
            "default_model": self.entry.default_model,
            "effort": self.entry.effort,
            "timeout_ms": self.entry.timeout_ms,
            "ignored": self.ignored(self.runner.remembered(program)),
        }

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> ModelAnswer:
        env = self.environment()
        program = self.program(env)
        if not program or self._lacks_key(env):
            code = Code.PERMISSION if program else Code.NOT_FOUND
            raise ModelError(code, f"{self.provider}: {self.unavailable()}")
        seconds = (request.timeout_ms or self.entry.timeout_ms) / 1000
        deadline = trio.current_time() + seconds
        with self._translated(env):
            known = None
            with trio.move_on_at(deadline):
                known = await self.runner.help(program, self.scrubbed(env))
            if known is None:
                raise _too_slow(seconds, Usage())
            self._refuse_old(program, known, env)
            with self.runner.call_folder() as folder:
                call = self.prepare(request, emit, env, known, folder, seconds)
                return await self._ask(program, call, seconds, deadline)

    async def check(self) -> list[ModelInfo]:
        await super().check()
        env = self.environment()
        program = self.program(env)
        with self._translated(env):
            known = await self.runner.help(program, self.scrubbed(env))
            self._refuse_old(program, known, env)
            await self.check_login(program, known, env)
        return []

    async def check_login(self, program: str, known: Help, env: Mapping[str, str]) -> None:
        """Ask the program whether it would be let in.

        Raises:
            WireError: it would not.
        """

    async def aclose(self) -> None:
        self.runner.close()

    # --- parts for the drivers ---

    def environment(self) -> dict[str, str]:
        """The user's environment, with the key where the program looks for it."""
        env = dict(os.environ if self._env is None else self._env)
        if self.entry.api_key_env:
            env[self.key_variable] = env.get(self.entry.api_key_env, "")
        return env

    def program(self, env: Mapping[str, str]) -> str:
        """The path of the program; empty if it is not installed."""
        return find_command(self._commands, env, env.get("HOME", ""))

    # --- one call ---

    async def _ask(self, program: str, call: Call, seconds: float, deadline: float) -> ModelAnswer:
        stderr, returncode = Bounded(limits.COMMAND_ERROR_MAX), 0
        try:
            argv, left = [program, *call.argv], deadline - trio.current_time()
            ended = await self.runner.run(argv, call.env, call.stdin, call.reply.feed, stderr.take_some, left)
            returncode = ended.returncode
            call.reply.close()
            if ended.timed_out and call.reply.result is None:
                raise _too_slow(seconds, call.reply.spent())
        except EnoughError:
            pass
        except WireError as error:
            error.usage = call.reply.spent()
            raise
        return call.reply.answer(bytes(stderr.data), returncode, time.time())

    @contextlib.contextmanager
    def _translated(self, env: Mapping[str, str]) -> Iterator[None]:
        """Turn what fails into a failure of this provider that shows no secret."""
        try:
            yield
        except WireError as error:
            text = one_line(error.text, *(env.get(name, "") for name in self.secrets))
            raise ModelError(
                error.code,
                f"{self.provider}: {text}",
                transient=error.transient,
                retry_after=error.retry_after,
                usage=error.usage,
                status=error.status,
            ) from None
        except SyscallError as error:
            # The host did not start the program: no memory or no descriptor is left, or it is no program.
            transient = error.code is Code.RESOURCE_EXHAUSTED
            raise ModelError(error.code, f"{self.provider}: {error.reason}", transient=transient) from None

    def _lacks_key(self, env: Mapping[str, str]) -> bool:
        # Without the key that is named for it, a call would be charged to another login of the user.
        return bool(self.entry.api_key_env) and not env.get(self.key_variable)

    def _too_old(self, program: str, known: Help, env: Mapping[str, str]) -> str:
        if not (option := self.lacks(known, env)):
            return ""
        return f"{program} has no option {option}, so that its own tools could not be kept off; update it"

    def _refuse_old(self, program: str, known: Help, env: Mapping[str, str]) -> None:
        if old := self._too_old(program, known, env):
            raise WireError(Code.SERVICE_UNAVAILABLE, old)


def _too_slow(seconds: float, usage: Usage) -> WireError:
    return WireError(Code.TIMEOUT, f"no answer within {seconds:g} s; the command was ended", usage=usage)
