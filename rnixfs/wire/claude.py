"""What the Claude Code command takes and gives when it is used as a pure model.

Facts here were found by trying version 2.1.330 against a server of ours; its documentation
(https://code.claude.com/docs/en/cli-reference) leaves most of them out.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rnixfs.action import describe_protocol
from rnixfs.errors import Code
from rnixfs.llm import Message, ModelAnswer, ModelRequest, Role, ToolCall
from rnixfs.wire.count import estimate
from rnixfs.wire.failure import WireError, code_of_status

_HEADER = (
    "Below is a conversation, oldest message first. A line that begins with `===` starts a message and names "
    "its author. Reply with the assistant's next message alone, without such a line.\n"
)
# A line of a message that looks like such a line, however often it was escaped before.
_LIKE_A_MARK = re.compile(r"^(?=\\*===)", re.MULTILINE)

_STOP_REASONS = {"end_turn": "end", "stop_sequence": "end", "tool_use": "tool_calls"}

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
    # Ten attempts, its default, take 190 s to tell of a wrong key. Who asks decides about retries.
    "CLAUDE_CODE_MAX_RETRIES": "1",
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
    kept = {name: value for name, value in env.items() if value and _ALLOWED.fullmatch(name)}
    limit = {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(request.max_tokens)} if request.max_tokens else {}
    return kept | _FIXED | limit | {"API_TIMEOUT_MS": str(max(1, round(timeout_s * 1000))), "TMPDIR": folder}


def arguments(
    request: ModelRequest, model: str, system: Sequence[str], env: Mapping[str, str], extra: Sequence[str]
) -> list[str]:
    """The arguments that make the command a model: no tools, no settings, no servers, no memory of the call.

    Args:
        request: gives the number of turns.
        model: the model; empty for the command's default.
        system: the option that carries the system prompt.
        env: its environment; decides between the login by key and the stored one.
        extra: arguments of the provider's entry.
    """
    args = ["-p", "--tools", "", *system, f"--max-turns={max(1, request.max_turns)}"]
    args += [f"--model={model}"] if model else []
    args += ["--strict-mcp-config", "--no-session-persistence", "--output-format=json"]
    return [*args, *_mode(env), *extra]


def _mode(env: Mapping[str, str]) -> list[str]:
    if any(env.get(name) for name in _KEY_VARIABLES):
        return ["--bare"]  # a request of 1 KB in place of 50; never reads a stored login
    deny = '{"permissions":{"deny":["Read"]}}'
    return ["--setting-sources=", "--disable-slash-commands", f"--settings={deny}"]


def system_prompt(request: ModelRequest) -> str:
    """The system prompt, with the tools and how to call them where the request brings tools."""
    tools = describe_protocol(request.tools, ("tool_call",)) if request.tools else ""
    return "\n\n".join(filter(None, (request.system_prompt, tools)))


def prompt(request: ModelRequest) -> str:
    """The conversation as one text.

    A longer conversation begins with the text of a shorter one. No message can pass for another, because
    lines that look like the start of one are escaped; and none can be a command such as `/compact`, which
    the program would run itself, because the text begins with a header.
    """
    return _HEADER + "".join(_rendered(message) for message in request.conversation())


def _rendered(message: Message) -> str:
    author = str(message.role)
    if message.role is Role.TOOL:
        author += f" {json.dumps(message.tool_call_id)}"
    content = message.content
    # The words of a text model hold its calls; those of another model do not.
    if message.tool_calls and '"action"' not in content:
        content = "\n".join(filter(None, (content, *map(_call, message.tool_calls))))
    return f"\n=== {author} ===\n{_LIKE_A_MARK.sub(_backslash, content)}\n"


def _call(call: ToolCall) -> str:
    body = {"action": "tool_call", "tool": call.name, "data": call.arguments}
    return msgspec.json.encode(body).decode()


def _backslash(_: re.Match[str]) -> str:
    return "\\"


def read_answer(stdout: bytes, stderr: bytes, returncode: int, request: ModelRequest) -> ModelAnswer:
    """Read what a run left.

    Only the result line counts: the exit code of an interrupted run is 0, and `subtype` says "success" for
    answers of the server such as 401.

    Raises:
        WireError: there is no result, or it is an error.
    """
    result = _result(stdout)
    if result is None:
        raise _no_result(stdout, stderr, returncode)
    if result.get("is_error") or not isinstance(result.get("result"), str):
        raise _error(result)
    answer = ModelAnswer(content=result["result"], model=_model(result))
    stop = result.get("stop_reason") or "end"
    answer.stop_reason = _STOP_REASONS.get(stop, str(stop))
    cost = result.get("total_cost_usd")  # of this call alone, as no session is resumed
    answer.cost_usd = float(cost) if isinstance(cost, int | float) else 0.0
    _count(answer, result.get("usage"), request)
    return answer


def _result(stdout: bytes) -> dict[str, Any] | None:
    """The last result object; others may stand before it, and `--verbose` makes the output a list."""
    for line in reversed(stdout.splitlines()):
        try:
            value = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        entries = value if isinstance(value, list) else [value]
        for entry in reversed(entries):
            if isinstance(entry, dict) and entry.get("type") == "result":
                return entry
    return None


def _no_result(stdout: bytes, stderr: bytes, returncode: int) -> WireError:
    words = (stderr.strip() or stdout.strip()).decode("utf-8", "replace")
    how = f"was ended by signal {-returncode}" if returncode < 0 else f"exited with {returncode}"
    text = f"the command {how} without a result: {words or 'it printed nothing'}"
    return WireError(_code_of_words(words), text)


def _error(result: dict[str, Any]) -> WireError:
    status = result.get("api_error_status")
    errors = result.get("errors")
    words = (
        result.get("result") or (errors if isinstance(errors, list) else "") or result.get("subtype") or ""
    )
    words = "; ".join(map(str, words)) if isinstance(words, list) else str(words)
    if result.get("subtype") == "error_max_budget_usd":
        return WireError(Code.BUDGET_EXCEEDED, words)
    return WireError(code_of_status(status) if isinstance(status, int) else _code_of_words(words), words)


_WORDS = (
    (re.compile(r"not logged in|/login|invalid api key|authenticat", re.IGNORECASE), Code.PERMISSION),
    (re.compile(r"credit balance|usage limit|spend limit", re.IGNORECASE), Code.BUDGET_EXCEEDED),
    (re.compile(r"output token maximum|prompt is too long", re.IGNORECASE), Code.RESOURCE_EXHAUSTED),
    (re.compile(r"timed out|timeout", re.IGNORECASE), Code.TIMEOUT),
    (re.compile(r"connection (refused|error)|unable to connect", re.IGNORECASE), Code.SERVICE_UNAVAILABLE),
    (re.compile(r"unknown option", re.IGNORECASE), Code.INVALID),
)  # fmt: skip


def _code_of_words(words: str) -> Code:
    """The code of a failure that comes with nothing but words."""
    return next((code for pattern, code in _WORDS if pattern.search(words)), Code.DRIVER)


def _model(result: dict[str, Any]) -> str:
    """The model that wrote most: the command may have asked a small one as well."""
    usage = result.get("modelUsage")
    if not isinstance(usage, dict) or not usage:
        return ""
    return str(max(usage, key=lambda name: _number(usage[name], "outputTokens")))


def _count(answer: ModelAnswer, usage: Any, request: ModelRequest) -> None:
    cached = ("cache_creation_input_tokens", "cache_read_input_tokens")
    answer.input_tokens = sum(_number(usage, field) for field in ("input_tokens", *cached))
    answer.output_tokens = _number(usage, "output_tokens")
    answer.tokens_used = answer.input_tokens + answer.output_tokens
    if not answer.tokens_used:
        estimate(answer, system_prompt(request) + prompt(request))


def _number(fields: Any, name: str) -> int:
    value = fields.get(name) if isinstance(fields, dict) else None
    return int(value) if isinstance(value, int | float) and value > 0 else 0
