"""Cursor through its own command line program, in its mode for questions, with every tool denied.

The program has no option for a system prompt, so that instructions stand in the prompt; and none for turns,
the length of an answer, or how much to think: its models have names for the latter.
"""

import pathlib
from collections.abc import Mapping

from rnixfs.commandmodel import Call, CommandModel
from rnixfs.errors import Code
from rnixfs.llm import Emit, ModelRequest
from rnixfs.presets import CURSOR_CLI
from rnixfs.wire import cursor as wire
from rnixfs.wire.commandhelp import Help
from rnixfs.wire.failure import WireError

_LOGIN_SECONDS = 10.0  # for asking the program whether somebody is logged in
_SETTINGS_MAX = 1 << 20  # bytes of the program's own settings that are looked at


class CursorCli(CommandModel):
    """The `agent` command, also called `cursor-agent`, as a model.

    Args:
        entry: its entry in providers.yaml; `api_key_env` is the variable that holds the key, where it is not
            CURSOR_API_KEY.
        runner: starts and ends the processes.
        env: the user's environment; None for the daemon's own at the time of a call.
    """

    driver = CURSOR_CLI
    # The older name first: other programs may be called `agent`.
    names = ("cursor-agent", "agent")
    key_variable = wire.KEY_VARIABLE
    secrets = (wire.KEY_VARIABLE,)
    install = "https://cursor.com/docs/cli/installation"
    furniture = wire.FURNITURE

    def login_problem(self, env: Mapping[str, str]) -> str:
        if env.get(wire.KEY_VARIABLE) or has_login(env):
            return ""
        return f'nobody is logged in: set {wire.KEY_VARIABLE}, or run "cursor-agent login" once'

    def lacks(self, known: Help, env: Mapping[str, str]) -> str:
        return wire.lacks(known)

    def ignored(self, known: Help) -> list[str]:
        return ["temperature", "max_tokens", "max_turns", "effort"]

    def scrubbed(self, env: Mapping[str, str]) -> dict[str, str]:
        return wire.environment(env, "")

    def prepare(
        self,
        request: ModelRequest,
        emit: Emit | None,
        env: Mapping[str, str],
        known: Help,
        folder: str,
        seconds: float,
    ) -> Call:
        model = request.model or self.entry.default_model
        args = wire.arguments(model, emit is not None, self.entry.args, known)
        stdin = wire.prompt(request).encode("utf-8", "replace")
        return Call(args, wire.environment(env, folder), stdin, wire.CursorReply(request, emit, model))

    async def check_login(self, program: str, known: Help, env: Mapping[str, str]) -> None:
        # A version without this command would take the word for a prompt.
        if env.get(wire.KEY_VARIABLE) or "status" not in known.commands:
            return
        heard = await self.runner.heard([program, "status"], self.scrubbed(env), _LOGIN_SECONDS)
        if "not logged in" in heard.text.lower():
            raise WireError(Code.PERMISSION, self.login_problem({}))


def has_login(env: Mapping[str, str]) -> bool:
    """Whether the program has stored a login; says nothing of whether it is still good.

    Recent versions keep it in `cursor/auth.json` of the user's configuration, others in their own settings.
    """
    home = pathlib.Path(env.get("HOME") or "/nonexistent")
    shared = pathlib.Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    own = pathlib.Path(env.get("CURSOR_CONFIG_DIR") or home / ".cursor")
    return _holds(shared / "cursor" / "auth.json", b'Token"') or _holds(
        own / "cli-config.json", b'"authInfo"'
    )


def _holds(file: pathlib.Path, mark: bytes) -> bool:
    try:
        with file.open("rb") as opened:
            return mark in opened.read(_SETTINGS_MAX)
    except OSError:
        return False
