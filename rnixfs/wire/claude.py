"""What the Claude Code command is given when it is used as a pure model.

Facts here were found by trying version 2.1.329 against a server of ours; its documentation
(https://code.claude.com/docs/en/cli-reference) leaves most of them out.
"""

import re
from collections.abc import Mapping, Sequence

from rnixfs.llm import ModelRequest
from rnixfs.wire.commandhelp import Help

# Variables of the user that the command needs: where it finds itself, its login and the network. All else
# stays out: above all the marks of a Claude Code session in which the daemon itself may have been started.
_ALLOWED = re.compile(
    r"HOME|PATH|LANG|LC_\w+|TZ|USER|LOGNAME|XDG_\w+|CLAUDE_CONFIG_DIR|CLAUDE_CODE_OAUTH_TOKEN"
    r"|ANTHROPIC_\w+|CLAUDE_CODE_USE_(BEDROCK|VERTEX|FOUNDRY)|CLAUDE_CODE_SKIP_\w+_AUTH"
    r"|AWS_\w+|GOOGLE_\w+|GCLOUD_\w+|CLOUD_ML_REGION|VERTEX_\w+|AZURE_\w+"
    r"|(HTTPS?|ALL|NO)_PROXY|(https?|all|no)_proxy|NODE_EXTRA_CA_CERTS|SSL_CERT_(FILE|DIR)"
)
_FIXED = {
    # One connection, to the model: without these it also looks for updates and reports what it does.
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    # One request: who asks decides about others. Ten retries, its default, take 190 s to tell of a wrong
    # key; a stream that broke it asks for once more in one piece, an answer that was refused likewise.
    "CLAUDE_CODE_MAX_RETRIES": "0",
    "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
    "CLAUDE_CODE_DISABLE_REFUSAL_RETRY": "1",
    # The variable of Anthropic's SDK for its log. The log has the one thing that no result tells, the header
    # `retry-after`; the SDK itself blots out keys in it. Measured: no longer, and 2.5 KB a call.
    "ANTHROPIC_LOG": "debug",
    # Without these two, `@/etc/passwd` in a prompt is replaced by that file, even with all tools off.
    "CLAUDE_CODE_DISABLE_ATTACHMENTS": "1",
    "CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1",
}
_KEY_VARIABLES = (
    "ANTHROPIC_API_KEY",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
)
LOGIN_VARIABLES = (*_KEY_VARIABLES, "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
"""Variables any of which lets the command in without a stored login."""
SECRET_VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
"""Variables whose values no error text may show."""

# Without one of these the program could run tools, ask servers or obey files of the user.
_NEEDED = ("--tools", "--strict-mcp-config")
_NEEDED_BESIDE_BARE = ("--setting-sources",)


def environment(
    env: Mapping[str, str], request: ModelRequest, timeout_s: float, folder: str
) -> dict[str, str]:
    """The whole environment of the command.

    Args:
        env: the user's, of which only what it needs is handed on.
        request: its `max_tokens` can be given in no other way.
        timeout_s: seconds for one request to the model.
        folder: where it may leave temporary files.
    """
    limit = {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(request.max_tokens)} if request.max_tokens else {}
    kept = allowed(env) | _FIXED | limit
    return kept | {"API_TIMEOUT_MS": str(max(1, round(timeout_s * 1000))), "TMPDIR": folder}


def allowed(env: Mapping[str, str]) -> dict[str, str]:
    """The variables of the user that are handed on."""
    return {name: value for name, value in env.items() if value and _ALLOWED.fullmatch(name)}


def by_key(env: Mapping[str, str]) -> bool:
    """Whether the command works with a key; else it works with a stored login or a token."""
    return any(env.get(name) for name in _KEY_VARIABLES)


def lacks(known: Help, env: Mapping[str, str]) -> str:
    """The option without which this program cannot be used safely; empty if it has all."""
    bare = by_key(env) and known.has("--bare")
    needed = _NEEDED if bare else (*_NEEDED, *_NEEDED_BESIDE_BARE)
    return next((option for option in needed if not known.has(option)), "")


def arguments(
    request: ModelRequest,
    model: str,
    effort: str,
    system: Sequence[str],
    env: Mapping[str, str],
    extra: Sequence[str],
    known: Help,
) -> list[str]:
    """The arguments that make the command a model: no tools, no settings, no servers, no memory of the call.

    There is one form of output for all calls, since it costs as much as the others: a line for each event.
    It has the tokens of an answer that broke off, and what the model thought, which the others leave out.

    Args:
        request: gives the number of turns.
        model: the model; empty for the command's default.
        effort: how much the model is to think; empty for its default.
        system: the option that carries the system prompt.
        env: its environment; decides between the login by key and the stored one.
        extra: arguments of the provider's entry.
        known: the options of this program.
    """
    args = ["-p", "--tools", "", *system, f"--max-turns={max(1, request.max_turns)}"]
    args += [f"--model={model}"] if model else []
    args += [f"--effort={effort}"] if effort and known.has("--effort") else []
    args += ["--strict-mcp-config", *known.only("--no-session-persistence")]
    args += ["--output-format=stream-json", "--verbose", *known.only("--include-partial-messages")]
    return [*args, *_mode(env, known), *extra]


def _mode(env: Mapping[str, str], known: Help) -> list[str]:
    if by_key(env) and known.has("--bare"):
        return ["--bare"]  # a request of 1 KB in place of 50; never reads a stored login
    deny = '{"permissions":{"deny":["Read"]}}'
    return ["--setting-sources=", *known.only("--disable-slash-commands"), f"--settings={deny}"]
