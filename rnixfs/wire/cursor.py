"""What Cursor's command line program is given, and what it says.

The formats are those of https://cursor.com/docs/cli/reference/output-format and of recorded runs: usage,
`thinking` lines and the repetition of a streamed message are not in that page.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rnixfs.errors import Code
from rnixfs.llm import Emit, ModelAnswer, ModelRequest, Usage
from rnixfs.wire.commandhelp import Help
from rnixfs.wire.commandreply import CommandReply, failing, number
from rnixfs.wire.count import estimate
from rnixfs.wire.transcript import prompt as transcript
from rnixfs.wire.transcript import system_prompt

KEY_VARIABLE = "CURSOR_API_KEY"
"""The variable in which the program looks for its key."""

# Where it finds itself, its login and the network, and nothing else of the user.
_ALLOWED = re.compile(
    r"HOME|PATH|LANG|LC_\w+|TZ|USER|LOGNAME|XDG_\w+|CURSOR_API_KEY|CURSOR_CONFIG_DIR"
    r"|(HTTPS?|ALL|NO)_PROXY|(https?|all|no)_proxy|NODE_EXTRA_CA_CERTS|SSL_CERT_(FILE|DIR)"
)
# Without these it would write files and run commands, or wait for somebody who trusts the folder.
_NEEDED = ("--mode", "--output-format")

# https://cursor.com/docs/cli/reference/permissions: what a project denies, no other file can allow.
_DENIED = ["Shell(*)", "Read(**)", "Read(/**)", "Write(**)", "Write(/**)", "WebFetch(*)", "Mcp(*:*)"]
FURNITURE = {".cursor/cli.json": json.dumps({"permissions": {"allow": [], "deny": _DENIED}})}
"""Files of the folder where it starts: they deny it every tool."""

_FAILURES = (
    failing(r"authentication required|not (logged|signed) in|unauthenticated|unauthorized", Code.PERMISSION),
    failing(r"api key|permission_denied|workspace trust", Code.PERMISSION),
    failing(r"usage limit|requests limit|spend limit|quota|upgrade to", Code.BUDGET_EXCEEDED),
    failing(r"unknown option|unexpected argument|invalid_argument", Code.INVALID),
    failing(r"cannot use this model|model .*not (found|available)|unknown model", Code.NOT_FOUND),
    failing(r"certificate|CERT_|self.signed|UNABLE_TO_VERIFY|EPROTO|\bTLS\b", Code.SERVICE_UNAVAILABLE),
    failing(
        r"resource_exhausted|rate.?limit|too many requests|\b429\b",
        Code.SERVICE_UNAVAILABLE,
        transient=True,
        status=429,
    ),
    failing(
        r"\[unavailable\]|overloaded|ECONNREFUSED|ECONNRESET|ENOTFOUND|EAI_AGAIN|EPIPE|socket hang up"
        r"|fetch failed|network",
        Code.SERVICE_UNAVAILABLE,
        transient=True,
    ),
    failing(r"timed out|timeout|ETIMEDOUT|deadline_exceeded", Code.TIMEOUT, transient=True),
    failing(r"\[internal\]|\[aborted\]", Code.DRIVER, transient=True),
)


def environment(env: Mapping[str, str], folder: str) -> dict[str, str]:
    """The whole environment of the command.

    Args:
        env: the user's, of which only what it needs is handed on.
        folder: where it may leave temporary files.
    """
    kept = {name: value for name, value in env.items() if value and _ALLOWED.fullmatch(name)}
    return kept | {"NO_COLOR": "1", "NO_OPEN_BROWSER": "1", "TMPDIR": folder}


def lacks(known: Help) -> str:
    """The option without which a program cannot be used safely; empty if it has all."""
    return next((option for option in _NEEDED if not known.has(option)), "")


def arguments(model: str, streams: bool, extra: Sequence[str], known: Help) -> list[str]:
    """The arguments that make it answer a question; the prompt comes through stdin.

    Args:
        model: the model; empty for the command's default.
        streams: whether the answer is wanted as it comes.
        extra: arguments of the provider's entry.
        known: the options of this program.
    """
    args = ["--print", "--mode", "ask", *known.only("--trust")]
    args += ["--output-format", "stream-json" if streams else "json"]
    args += known.only("--stream-partial-output") if streams else []
    args += ["--model", model] if model else []
    return [*args, *extra]


def prompt(request: ModelRequest) -> str:
    """The whole prompt: instructions under a mark of their own, as there is no option for them."""
    system = system_prompt(request)
    return f"[System Instructions]\n{system}\n\n{transcript(request)}" if system else transcript(request)


class CursorReply(CommandReply):
    """The reply of one run of Cursor's command.

    Args:
        request: what was asked.
        emit: takes the pieces as they come; None where nobody wants them.
        model: the model that was asked for; only some forms of output name the one that answered.
    """

    failures = _FAILURES

    def __init__(self, request: ModelRequest, emit: Emit | None, model: str = "") -> None:
        super().__init__(request, emit)
        self._model = model
        self._partial = False

    def take(self, entry: dict[str, Any]) -> None:
        match entry.get("type"):
            case "system" if entry.get("subtype") == "init":
                self._model = str(entry.get("model") or self._model)
            case "thinking" if entry.get("subtype") != "completed":
                self.say("reasoning", str(entry.get("text") or ""))
            case "assistant":
                self._assistant(entry)
            case "result":
                self.result = entry

    def _assistant(self, entry: dict[str, Any]) -> None:
        """Take a piece or a whole message.

        Pieces carry a time. What they add up to comes once more, either with the id of a call of the model,
        before a tool is used, or without a time, at the end.
        """
        piece = "timestamp_ms" in entry and not entry.get("model_call_id")
        if piece or not self._partial:
            self.say("text", _text_of(entry.get("message")))
        self._partial = self._partial or piece

    def spent(self) -> Usage:
        usage = (self.result or {}).get("usage")
        cached = number(usage, "cacheReadTokens")
        # Tokens of the cache are not among those of the input.
        given = number(usage, "inputTokens") + cached + number(usage, "cacheWriteTokens")
        output = number(usage, "outputTokens") or self.guessed().output_tokens
        return Usage(given, output, cached_tokens=cached)

    def answer(self, stderr: bytes, returncode: int, now: float) -> ModelAnswer:
        """As `CommandReply.answer`. Its failures are an exit code and words, without any result."""
        result, complaint = self.result, stderr.decode("utf-8", "replace").strip()
        if result is None:
            raise self.no_result(complaint, returncode)
        content = result.get("result")
        if result.get("is_error") or returncode or not isinstance(content, str):
            words = complaint or result.get("error") or content
            raise self.failure(str(words or "the result holds no text"))
        usage = self.spent()
        answer = ModelAnswer(content=self.settle(content), reasoning=self.said("reasoning"))
        answer.model = self._model
        answer.input_tokens, answer.output_tokens = usage.input_tokens, usage.output_tokens
        answer.cached_tokens, answer.tokens_used = usage.cached_tokens, usage.tokens
        if not usage.input_tokens:
            estimate(answer, prompt(self.request))
        return answer


def _text_of(message: Any) -> str:
    parts = message.get("content") if isinstance(message, dict) else None
    if not isinstance(parts, list):
        return parts if isinstance(parts, str) else ""
    texts = (part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text")
    return "".join(text for text in texts if isinstance(text, str))
