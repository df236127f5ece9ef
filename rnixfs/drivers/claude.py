"""Claude through its own command line program, Claude Code, with the program's tools off.

Each call is one process of its own: about 0.4 s and 200 MB, gone with its whole group when the call is
cancelled. The program is found, never brought along: its licence does not allow that.

There are two modes. With a key (ANTHROPIC_API_KEY, or Bedrock, Vertex or Foundry) the program runs bare: it
sends the request and nothing else. Without one it uses the login that it has stored, that of a subscription,
and adds a block about its surroundings to each request.
"""

import pathlib
import platform
from collections.abc import Mapping

import msgspec

from rnixfs import limits
from rnixfs.commandmodel import Call, CommandModel
from rnixfs.errors import Code
from rnixfs.hostfind import npm_platform_program
from rnixfs.llm import Emit, ModelRequest
from rnixfs.presets import CLAUDE_CLI
from rnixfs.wire import claude as wire
from rnixfs.wire.claudereply import ClaudeReply
from rnixfs.wire.commandhelp import Help
from rnixfs.wire.failure import WireError
from rnixfs.wire.transcript import prompt, system_prompt

_CONFIG_MAX = 8 << 20  # bytes of the program's own settings that are looked at
_PLACEHOLDER_MAX = 64 << 10  # bytes of a file that is no native program of 200 MB
_NPM_MACHINES = {"x86_64": "x64", "aarch64": "arm64"}
_LOGIN_SECONDS = 10.0  # for asking the program whether somebody is logged in


class ClaudeCli(CommandModel):
    """The `claude` command as a model.

    Args:
        entry: its entry in providers.yaml: `base_url` is the address of the API where it is not the public
            one, `api_key_env` the variable that holds the key where it is not ANTHROPIC_API_KEY.
        runner: starts and ends the processes.
        env: the user's environment; None for the daemon's own at the time of a call.
    """

    driver = CLAUDE_CLI
    names = ("claude",)
    key_variable = "ANTHROPIC_API_KEY"
    secrets = wire.SECRET_VARIABLES
    install = "https://code.claude.com/docs/en/setup"

    def environment(self) -> dict[str, str]:
        url = self.entry.base_url
        return super().environment() | ({"ANTHROPIC_BASE_URL": url} if url else {})

    def program(self, env: Mapping[str, str]) -> str:
        path = super().program(env)
        return _native(path) or path

    def login_problem(self, env: Mapping[str, str]) -> str:
        if has_login(env):
            return ""
        return 'nobody is logged in: run "claude /login" once, or set ANTHROPIC_API_KEY'

    def lacks(self, known: Help, env: Mapping[str, str]) -> str:
        return wire.lacks(known, env)

    def ignored(self, known: Help) -> list[str]:
        return ["temperature"] + ([] if known.has("--effort") else ["effort"])

    def details(self) -> dict[str, object]:
        mode = "key" if wire.by_key(self.environment()) else "login"
        return super().details() | {"mode": mode}

    def scrubbed(self, env: Mapping[str, str]) -> dict[str, str]:
        return wire.environment(env, ModelRequest(), _LOGIN_SECONDS, "")

    def prepare(
        self,
        request: ModelRequest,
        emit: Emit | None,
        env: Mapping[str, str],
        known: Help,
        folder: str,
        seconds: float,
    ) -> Call:
        args = wire.arguments(
            request,
            request.model or self.entry.default_model,
            request.effort or self.entry.effort,
            _system_option(system_prompt(request), folder),
            env,
            self.entry.args,
            known,
        )
        return Call(
            args,
            wire.environment(env, request, seconds, folder),
            prompt(request).encode("utf-8", "replace"),
            ClaudeReply(request, emit),
        )

    async def check_login(self, program: str, known: Help, env: Mapping[str, str]) -> None:
        # A version without this command would take the two words for a prompt.
        if "auth" not in known.commands:
            return
        argv = [program, "auth", "status"]
        heard = await self.runner.heard(argv, self.scrubbed(env), _LOGIN_SECONDS)
        if _logged_in(heard.text) is False:
            raise WireError(Code.PERMISSION, self.login_problem({}))


def _logged_in(text: str) -> bool | None:
    """What the program says of its login; None where that cannot be read."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    found = value.get("loggedIn") if isinstance(value, dict) else None
    return found if isinstance(found, bool) else None


def _native(path: str) -> str:
    """The program itself, where npm has left the small placeholder that its install script replaces."""
    try:
        if not path or pathlib.Path(path).stat().st_size > _PLACEHOLDER_MAX:
            return ""
    except OSError:
        return ""
    package = f"@anthropic-ai/claude-code-linux-{_NPM_MACHINES.get(platform.machine(), 'x64')}"
    return npm_platform_program(path, package, "claude")


def _system_option(text: str, folder: str) -> list[str]:
    """The option for a system prompt; a file carries what an argument cannot."""
    data = text.encode("utf-8", "replace")
    if len(data) < limits.ARGUMENT_MAX // 2 and b"\0" not in data:
        return [f"--system-prompt={text}"]
    path = pathlib.Path(folder, "system-prompt.txt")
    path.write_bytes(data)
    return [f"--system-prompt-file={path}"]


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
