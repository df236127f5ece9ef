"""What the Claude Code command says, line by line, and what its results mean.

Facts here were found by trying version 2.1.329 against a server of ours: an error of the server has the
subtype "success", the result holds the last block of text alone, and an interrupted run exits with 0.
"""

import re
from typing import Any

from rnixfs.errors import Code
from rnixfs.llm import Emit, ModelAnswer, ModelRequest, Usage
from rnixfs.wire.commandreply import CommandReply, EnoughError, failing, number
from rnixfs.wire.count import estimate
from rnixfs.wire.failure import WireError, is_too_long, of_status, retry_after
from rnixfs.wire.transcript import prompt, system_prompt

_STOP_REASONS = {"end_turn": "end", "stop_sequence": "end", "tool_use": "tool_calls"}
_SYNTHETIC = "<synthetic>"  # the model of messages that the program wrote itself
# A line of the SDK's log, and in it the header of a reply.
_LOG = re.compile(r"\[log_\w+\] |[ }]|response \d")
_HEADER = re.compile(r'\s+"?(retry-after|retry-after-ms|date)"?: "([^"]*)"')

_FAILURES = (
    failing(r"not logged in|/login|invalid api key|authenticat", Code.PERMISSION),
    failing(r"credit balance|usage limit|spend limit|hit your .*limit", Code.BUDGET_EXCEEDED),
    failing(r"output token maximum|prompt is too long", Code.RESOURCE_EXHAUSTED),
    failing(r"unknown option", Code.INVALID),
    failing(r"json parse error|unable to parse", Code.DRIVER),
    failing(r"certificate|CERT_|self.signed|UNABLE_TO_VERIFY|EPROTO|\bTLS\b", Code.SERVICE_UNAVAILABLE),
    failing(r"timed out|timeout", Code.TIMEOUT, transient=True),
    failing(r"stream ended|truncated|connection to the api was lost", Code.DRIVER, transient=True),
    failing(
        r"connection (refused|error|reset|closed)|unable to connect|socket",
        Code.SERVICE_UNAVAILABLE,
        transient=True,
    ),
)
_SUBTYPES = {
    "error_max_turns": Code.RESOURCE_EXHAUSTED,
    "error_max_budget_usd": Code.BUDGET_EXCEEDED,
}


class ClaudeReply(CommandReply):
    """The reply of one run of the Claude Code command.

    Args:
        request: what was asked.
        emit: takes the pieces as they come; None where nobody wants them.
    """

    failures = _FAILURES

    def __init__(self, request: ModelRequest, emit: Emit | None) -> None:
        super().__init__(request, emit)
        self._streams = False
        self._message = ""
        self._model = ""
        self._input = 0
        self._cached = 0
        self._output = 0
        self._before = 0  # output tokens of earlier messages
        self._stop = ""
        self._headers: dict[str, str] = {}
        self._resets: float | None = None

    # --- lines ---

    def take(self, entry: dict[str, Any]) -> None:
        # Agents inside the program, which have a parent, are none of our answer.
        if entry.get("parent_tool_use_id"):
            return
        match entry.get("type"):
            case "stream_event" if isinstance(entry.get("event"), dict):
                self._event(entry["event"])
            case "assistant" if isinstance(entry.get("message"), dict):
                self._whole(entry["message"])
            case "rate_limit_event" if isinstance(entry.get("rate_limit_info"), dict):
                self._limits(entry["rate_limit_info"])
            case "result":
                self.result = entry

    def hear(self, line: str) -> None:
        if not self._is_log(line):
            super().hear(line)

    def _is_log(self, line: str) -> bool:
        if found := _HEADER.match(line):
            self._headers[found[1]] = found[2]
        return _LOG.match(line) is not None

    def _event(self, event: dict[str, Any]) -> None:
        """Take an event of the API's stream; known only to programs with `--include-partial-messages`."""
        self._streams = True
        match event.get("type"):
            case "message_start" if isinstance(event.get("message"), dict):
                self._begin(event["message"])
            case "content_block_delta" if isinstance(event.get("delta"), dict):
                self._piece(event["delta"], ("text_delta", "thinking_delta"))
            case "message_delta":
                self._output = number(event.get("usage"), "output_tokens") or self._output
                delta = event.get("delta")
                self._ended(delta.get("stop_reason") if isinstance(delta, dict) else None)

    def _begin(self, message: dict[str, Any]) -> None:
        """A message begins, be it the first one, that of another turn, or that of another attempt."""
        self.restart()
        self._message, self._model = str(message.get("id")), str(message.get("model") or "")
        usage = message.get("usage")
        self._cached += number(usage, "cache_read_input_tokens")
        self._input += _input_of(usage)
        self._before, self._output = self._before + self._output, 0

    def _ended(self, reason: object) -> None:
        self._stop = str(reason or "")
        if reason == "max_tokens":
            # The program would now let the model go on, three times, at our cost.
            raise EnoughError

    def _whole(self, message: dict[str, Any]) -> None:
        """Take a finished block; all that programs without events of the stream tell."""
        if self._streams or message.get("model") == _SYNTHETIC:
            return
        if message.get("id") != self._message:
            self._begin(message)
        blocks = message.get("content")
        for block in blocks if isinstance(blocks, list) else []:
            if isinstance(block, dict):
                self._piece(block, ("text", "thinking"))

    def _piece(self, block: dict[str, Any], types: tuple[str, str]) -> None:
        kind = block.get("type")
        if kind == types[0]:
            self.say("text", str(block.get("text") or ""))
        elif kind == types[1]:
            self.say("reasoning", str(block.get("thinking") or ""))

    def _limits(self, info: dict[str, Any]) -> None:
        resets = info.get("resetsAt")
        if info.get("status") == "rejected" and isinstance(resets, int | float):
            self._resets = float(resets)

    # --- the end ---

    def spent(self) -> Usage:
        result = self.result or {}
        cost = result.get("total_cost_usd")
        cost_usd = float(cost) if isinstance(cost, int | float) else 0.0
        counted = _sum_of(result.get("modelUsage"))
        if counted.tokens:
            return Usage(counted.input_tokens, counted.output_tokens, cost_usd, counted.cached_tokens)
        output = self._before + max(self._output, self.guessed().output_tokens)
        return Usage(self._input, output, cost_usd, self._cached)

    def answer(self, stderr: bytes, returncode: int, now: float) -> ModelAnswer:
        """As `CommandReply.answer`. Only the result line counts, never the exit code."""
        # Some versions keep the log apart from the lines of JSON.
        words = [line for line in stderr.decode("utf-8", "replace").splitlines() if not self._is_log(line)]
        if self.result is None:
            if self._stop != "max_tokens":
                raise self.no_result("\n".join(words), returncode)
            return self._cut_short()
        result = self.result
        if result.get("is_error") or not isinstance(result.get("result"), str):
            raise self._error(result, now)
        said = self.said("text")
        content = self.settle(said if said.endswith(result["result"]) else result["result"])
        answer = ModelAnswer(content=content, reasoning=self.said("reasoning"))
        stop = result.get("stop_reason") or "end"
        answer.stop_reason = _STOP_REASONS.get(stop, str(stop))
        answer.cost_usd = self.spent().cost_usd  # of this call alone, as no session is resumed
        answer.model, answer.context_window = _model(result)
        _count(answer, _usage_of(result.get("usage")), self.request)
        return answer

    def _cut_short(self) -> ModelAnswer:
        answer = ModelAnswer(content=self.said("text"), reasoning=self.said("reasoning"))
        answer.model, answer.stop_reason = self._model, "max_tokens"
        _count(answer, self.spent(), self.request)
        return answer

    def _error(self, result: dict[str, Any], now: float) -> WireError:
        words = _words(result)
        status = result.get("api_error_status")
        if isinstance(status, int):
            error = of_status(status, words, self._wait(now))
            if is_too_long(words):
                error.code = Code.RESOURCE_EXHAUSTED
            error.usage = self.spent()
            return error
        code = _SUBTYPES.get(str(result.get("subtype")))
        if result.get("stop_reason") == "refusal":
            code = Code.INVALID
        return WireError(code, words, usage=self.spent()) if code else self.failure(words)

    def _wait(self, now: float) -> float | None:
        if self._resets is not None:
            return max(0.0, self._resets - now)
        return retry_after(self._headers, now)


def _words(result: dict[str, Any]) -> str:
    errors = result.get("errors")
    words = result.get("result") or (errors if isinstance(errors, list) else "")
    return "; ".join(map(str, words)) if isinstance(words, list) else str(words or result.get("subtype"))


def _model(result: dict[str, Any]) -> tuple[str, int]:
    """The model that wrote most, and its window: the command may have asked a small one as well."""
    usage = result.get("modelUsage")
    if not isinstance(usage, dict) or not usage:
        return "", 0
    name = max(usage, key=lambda name: number(usage[name], "outputTokens"))
    return str(name), number(usage[name], "contextWindow")


def _count(answer: ModelAnswer, usage: Usage, request: ModelRequest) -> None:
    answer.input_tokens, answer.output_tokens = usage.input_tokens, usage.output_tokens
    answer.cached_tokens, answer.tokens_used = usage.cached_tokens, usage.tokens
    if not answer.tokens_used:
        estimate(answer, system_prompt(request) + prompt(request))


def _input_of(usage: Any) -> int:
    cached = ("cache_creation_input_tokens", "cache_read_input_tokens")
    return sum(number(usage, field) for field in ("input_tokens", *cached))


def _usage_of(usage: Any) -> Usage:
    cached = number(usage, "cache_read_input_tokens")
    return Usage(_input_of(usage), number(usage, "output_tokens"), cached_tokens=cached)


def _sum_of(models: Any) -> Usage:
    """All that a call spent, by the model; the result's own usage leaves out a message that broke off."""
    each = list(models.values()) if isinstance(models, dict) else []

    def total(*fields: str) -> int:
        return sum(number(usage, field) for usage in each for field in fields)

    return Usage(
        total("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens"),
        total("outputTokens"),
        cached_tokens=total("cacheReadInputTokens"),
    )
