"""Claude through its own command line program, Claude Code, with the program's tools off.

Each call is one process of its own: about 0.3 s and 200 MB, gone with its whole group when the call is
cancelled. The program is found, never brought along: its licence does not allow that.
"""

import os
import pathlib
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from rnixfs import limits
from rnixfs.errors import Code, SyscallError
from rnixfs.llm import ModelAnswer, ModelRequest
from rnixfs.model import Model
from rnixfs.providers import CLAUDE_CLI
from rnixfs.wire import claude as wire
from rnixfs.wire.failure import WireError, one_line, too_large

_CONFIG_MAX = 8 << 20  # bytes of the program's own settings that are looked at


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
    ) -> Finished:
        """Run a program to its end, and leave nothing of it behind whatever happens."""


class ClaudeCli(Model):
    """The `claude` command as a model.

    Args:
        provider: its name under `dev/llm/`.
        runner: starts and ends the processes.
        command: the program's name or path; None or empty for `claude`, looked for where installers put it.
        default_model: the model for requests that name none; empty for the program's own choice.
        timeout_s: seconds for a call whose request names no time.
        extra_args: further arguments of the program.
        base_url: the address of the API, where it is not the public one.
        api_key_env: the variable that holds the key, where it is not ANTHROPIC_API_KEY.
        env: the user's environment; None for the daemon's own at the time of a call.
    """

    native_tools = False

    def __init__(
        self,
        provider: str,
        runner: Runner,
        command: str | None = None,
        default_model: str = "",
        timeout_s: float = limits.PROVIDER_TIMEOUT_MS / 1000,
        extra_args: Sequence[str] = (),
        *,
        base_url: str = "",
        api_key_env: str = "",
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.provider = provider
        self._runner = runner
        self._command = command or "claude"
        self._default_model = default_model
        self._timeout_s = timeout_s
        self._extra_args = list(extra_args)
        self._base_url = base_url
        self._api_key_env = api_key_env
        self._env = env
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def unavailable(self) -> str:
        env = self._environment()
        if not self._found(env):
            return (
                f'the command "{self._command}" is not installed (looked in PATH, ~/.local/bin and the '
                "folders of npm and bun); see https://code.claude.com/docs/en/setup"
            )
        if self._api_key_env and not env.get("ANTHROPIC_API_KEY"):
            return f"the environment variable {self._api_key_env} is not set; it must hold the API key"
        if not has_login(env):
            return f'nobody is logged in: run "{self._command} /login" once, or set ANTHROPIC_API_KEY'
        return ""

    def details(self) -> dict[str, object]:
        return {
            "driver": CLAUDE_CLI,
            "command": self._found(self._environment()) or self._command,
            "default_model": self._default_model,
            "timeout_ms": round(self._timeout_s * 1000),
            "ignored": ["temperature"],
        }

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        env = self._environment()
        program = self._found(env)
        if not program:
            raise SyscallError(Code.NOT_FOUND, f"{self.provider}: {self.unavailable()}")
        with tempfile.TemporaryDirectory(
            prefix="call-", dir=self._home(), ignore_cleanup_errors=True
        ) as folder:
            try:
                return await self._ask(program, env, request, folder)
            except WireError as error:
                secrets = (env.get(name, "") for name in wire.SECRET_VARIABLES)
                text = one_line(error.text, *secrets)
                raise SyscallError(error.code, f"{self.provider}: {text}") from None

    async def _ask(
        self, program: str, env: Mapping[str, str], request: ModelRequest, folder: str
    ) -> ModelAnswer:
        seconds = request.timeout_ms / 1000 or self._timeout_s
        system = _system_option(wire.system_prompt(request), folder)
        model = request.model or self._default_model
        stdout, stderr = _Collector(), _Collector()
        ended = await self._runner.run(
            [program, *wire.arguments(request, model, system, env, self._extra_args)],
            cwd=self._empty_folder(),
            env=wire.environment(env, request, seconds, folder),
            stdin=wire.prompt(request).encode("utf-8", "replace"),
            stdout=stdout.take,
            stderr=stderr.take,
            timeout=seconds,
        )
        if ended.timed_out:
            raise WireError(Code.TIMEOUT, f"no answer within {seconds:g} s; the command was ended")
        return wire.read_answer(bytes(stdout.data), bytes(stderr.data), ended.returncode, request)

    async def aclose(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _environment(self) -> dict[str, str]:
        env = dict(os.environ if self._env is None else self._env)
        if self._base_url:
            env["ANTHROPIC_BASE_URL"] = self._base_url
        if self._api_key_env:
            env["ANTHROPIC_API_KEY"] = env.get(self._api_key_env, "")
        return env

    def _found(self, env: Mapping[str, str]) -> str:
        return find_command(self._command, env, env.get("HOME", ""))

    def _home(self) -> str:
        # Someone who sweeps the folder of temporary files may have removed it since the last call.
        if self._folder is not None and not os.path.isdir(self._folder.name):
            self._folder.cleanup()
            self._folder = None
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="rnix-claude-", ignore_cleanup_errors=True)
        return self._folder.name

    def _empty_folder(self) -> str:
        """A folder without project files; one for all calls, because the program may name it in prompts."""
        folder = os.path.join(self._home(), "empty")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        return folder


class _Collector:
    def __init__(self) -> None:
        self.data = bytearray()

    def take(self, chunk: bytes) -> None:
        self.data += chunk
        if len(self.data) > limits.MODEL_REPLY_MAX:
            raise too_large()


def _system_option(text: str, folder: str) -> list[str]:
    """The option for a system prompt; a file carries what an argument cannot."""
    data = text.encode("utf-8", "replace")
    if len(data) < limits.ARGUMENT_MAX // 2 and b"\0" not in data:
        return [f"--system-prompt={text}"]
    path = pathlib.Path(folder, "system-prompt.txt")
    path.write_bytes(data)
    return [f"--system-prompt-file={path}"]


def find_command(name: str, env: Mapping[str, str], home: str) -> str:
    """Where a program lies that npm, bun or its own installer put on this machine; empty if nowhere.

    Args:
        name: its name, or its path where the name holds a slash; `~/` is the home.
        env: for PATH and NVM_DIR.
        home: the user's home; empty to look in PATH alone.
    """
    if "/" in name:
        path = os.path.join(home, name[2:]) if name.startswith("~/") else name
        return path if os.path.isabs(path) and _is_program(path) else ""
    # A relative folder in PATH would mean a folder of the daemon, not of who asks.
    folders = [folder for folder in env.get("PATH", "").split(os.pathsep) if os.path.isabs(folder)]
    if home:
        own = (".local/bin", ".claude/local", ".npm-global/bin", ".npm/bin", ".bun/bin", ".volta/bin")
        folders += [os.path.join(home, folder) for folder in own]
        folders += _nvm_folders(env.get("NVM_DIR") or os.path.join(home, ".nvm"))
    paths = (os.path.join(folder, name) for folder in (*folders, "/usr/local/bin"))
    return next(filter(_is_program, paths), "")


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _nvm_folders(nvm: str) -> list[str]:
    """The program folders of nvm, that of the newest Node first."""
    try:
        versions = os.listdir(os.path.join(nvm, "versions", "node"))
    except OSError:
        return []
    versions.sort(key=lambda version: [int(part) for part in re.findall(r"\d+", version)], reverse=True)
    return [os.path.join(nvm, "versions", "node", version, "bin") for version in versions]


def has_login(env: Mapping[str, str]) -> bool:
    """Whether the program has something to log in with; says nothing of whether it is still good."""
    if any(env.get(name) for name in wire.LOGIN_VARIABLES):
        return True
    home = pathlib.Path(env.get("HOME") or "/nonexistent")
    configured = env.get("CLAUDE_CONFIG_DIR")
    folder = pathlib.Path(configured) if configured else home / ".claude"
    return (folder / ".credentials.json").is_file() or _holds_key(
        (folder if configured else home) / ".claude.json"
    )


def _holds_key(settings: pathlib.Path) -> bool:
    try:
        with settings.open("rb") as file:
            return b'"primaryApiKey"' in file.read(_CONFIG_MAX)
    except OSError:
        return False
