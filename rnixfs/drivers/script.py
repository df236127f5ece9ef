"""The scripted model: plays scenarios in place of an AI, for tests, demonstrations and offline work.

It keeps nothing between requests: what it has "done" is read from the messages it is given. A new piece of
work begins with the user's message that follows a final answer, so a process and a chat both work. Files are
read again when they change. It is honest about what it is: its description, its answers' `model` and its help
say that no AI is behind it.
"""

import dataclasses
import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import trio

from rnixfs import limits
from rnixfs.errors import Code, invalid
from rnixfs.llm import Delta, Emit, Message, ModelAnswer, ModelRequest, Role, ToolCall, estimate_tokens
from rnixfs.model import Model, ModelError
from rnixfs.scenario import Scenario, choose, load
from rnixfs.scene import Cue, Scene
from rnixfs.yamlread import ManifestError

TIMEOUT_MS = 600_000  # milliseconds for one answer where neither request nor configuration says
TOKEN_BYTES = 4  # bytes of a token of this model; by definition, so its counts are exact

_MODEL = "script (no AI)"
_NO_RULE = """\
I am a scripted model, not an AI: I only play scenarios written in YAML, and no rule fits this request.

Rules that answer an intent:
{rules}

To talk to a real model, add a provider to ~/.config/rnix/providers.yaml and name it, for example:

version: 1
default_provider: local
providers:
  - name: local
    driver: openai-compat
    base_url: http://127.0.0.1:11434/v1
    default_model: qwen3
"""

Stamp = tuple[int, int, int]


# --- from a request to a scene ---


def scene_of(request: ModelRequest) -> Scene:
    """Where the conversation of a request stands."""
    messages = request.conversation()
    start = _beginning(messages)
    work = messages[start:]
    results = [message.content for message in work if message.role is Role.TOOL]
    users = [message.content for message in work if message.role is Role.USER]
    return Scene(
        intent=users[0] if users else "",
        system_prompt=_system_prompt(request),
        step=sum(message.role is Role.ASSISTANT for message in work),
        tools=tuple(tool.name for tool in request.tools),
        history=tuple(_history(work)),
        said=tuple(users),
        last_result=results[-1] if results else "",
    )


def _beginning(messages: Sequence[Message]) -> int:
    """Where the present piece of work begins: the first user message after the last final answer before it.

    What a user says between two tool calls belongs to the work that goes on.
    """
    start, answered = 0, True
    for place, message in enumerate(messages):
        if message.role is Role.USER and answered:
            start, answered = place, False
        elif message.role is Role.ASSISTANT:
            answered = not message.tool_calls
    return start


def _system_prompt(request: ModelRequest) -> str:
    texts = [message.content for message in request.messages if message.role is Role.SYSTEM]
    return "\n".join([request.system_prompt, *texts] if request.system_prompt else texts)


_NAMED_ID = re.compile(r"call_\d+_\d+_(\w+)")


def _history(messages: Sequence[Message]) -> Iterator[dict[str, Any]]:
    """Each result with the call that it answers, in the order of the results."""
    calls: dict[str, ToolCall] = {}
    for message in messages:
        calls.update((call.id, call) for call in message.tool_calls)
        if message.role is Role.TOOL:
            call = calls.get(message.tool_call_id) or ToolCall(message.tool_call_id, "", {})
            named = _NAMED_ID.fullmatch(call.id)
            yield {
                "tool": call.name,
                "arguments": call.arguments,
                "name": named[1] if named else "",
                "result": _decode(message.content),
            }


def _decode(content: str) -> Any:
    """A result as JSON where it is JSON, else as text."""
    try:
        return msgspec.json.decode(content)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return content


# --- from a cue to an answer ---


def _calls(cue: Cue, request: ModelRequest) -> list[ToolCall]:
    """The cue's calls; their ids are used in no other turn, and carry the calls' names."""
    turn = sum(message.role is Role.ASSISTANT for message in request.messages)
    return [
        ToolCall(f"call_{turn}_{place}" + (f"_{call.name}" if call.name else ""), call.tool, call.arguments)
        for place, call in enumerate(cue.calls)
    ]


def _prompt_text(request: ModelRequest) -> str:
    parts = [request.system_prompt]
    for message in request.conversation():
        parts.append(message.content)
        parts.extend(_call_text(call) for call in message.tool_calls)
    parts.extend(json.dumps(msgspec.to_builtins(tool)) for tool in request.tools)
    return "\n".join(parts)


def _call_text(call: ToolCall) -> str:
    return f"{call.name} {json.dumps(call.arguments)}"


def answer_of(cue: Cue, request: ModelRequest) -> ModelAnswer:
    """The answer that a cue makes, with its tokens counted."""
    calls = _calls(cue, request)
    content, cut = _within(cue.say, request.max_tokens)
    output = estimate_tokens("\n".join([content, *map(_call_text, calls)]))
    input_tokens = estimate_tokens(_prompt_text(request)) if cue.input_tokens is None else cue.input_tokens
    output_tokens = output if cue.output_tokens is None else cue.output_tokens
    return ModelAnswer(
        content=content,
        tokens_used=input_tokens + output_tokens,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cost_usd=cue.cost_usd,
        model=f"{_MODEL}: {cue.scenario}",
        tool_calls=calls,
        stop_reason="max_tokens" if cut else "tool_calls" if calls else "end",
    )


def _within(text: str, most: int) -> tuple[str, bool]:
    """A text cut to a number of tokens (0: no limit), and whether it was cut."""
    data = text.encode("utf-8", "replace")
    if not most or len(data) <= most * TOKEN_BYTES:
        return text, False
    return data[: most * TOKEN_BYTES].decode("utf-8", "ignore"), True


def _words(text: str) -> list[str]:
    """A text in pieces of one word each; joined they are the text."""
    return re.findall(r"\s*\S+|\s+\Z", text)


# --- the files ---


@dataclasses.dataclass(slots=True)
class _Cached:
    stamp: Stamp
    scenario: Scenario


class Library:
    """Scenarios from files, read when first needed and again when they change.

    Args:
        sources: files, folders (every `*.yaml` in them, by name) and scenarios that were read already. The
            first one that has a rule for a request answers it.
    """

    def __init__(self, sources: Sequence[Path | Scenario]) -> None:
        self._sources = tuple(sources)
        self._cache: dict[Path, _Cached] = {}

    def scenarios(self) -> list[Scenario]:
        """All scenarios, in order.

        Raises:
            ManifestError: one of them cannot be read.
        """
        return [scenario for source in self._sources for scenario in self._expand(source)]

    def _expand(self, source: Path | Scenario) -> list[Scenario]:
        if isinstance(source, Scenario):
            return [source]
        try:
            paths = sorted(source.glob("*.yaml")) if source.is_dir() else [source]
            return [self._file(path) for path in paths]
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise ManifestError(str(source), 1, f"cannot be read: {reason}", "name a readable file") from None

    def _file(self, path: Path) -> Scenario:
        found = path.stat()
        stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        cached = self._cache.get(path)
        if cached is None or cached.stamp != stamp:
            cached = self._cache[path] = _Cached(stamp, _read(path, found))
        return cached.scenario


def _read(path: Path, found: os.stat_result) -> Scenario:
    if not stat.S_ISREG(found.st_mode):  # reading a pipe would stop the daemon
        raise ManifestError(str(path), 1, "is no regular file", "name a YAML file")
    if found.st_size > limits.SCENARIO_FILE_MAX:
        right = f"at most {limits.SCENARIO_FILE_MAX} are taken"
        raise ManifestError(str(path), 1, f"the file has {found.st_size} bytes", right)
    return load(path.read_text("utf-8"), str(path))


# --- the model ---


class ScriptModel(Model):
    """A model that plays scenarios. Not an AI.

    Args:
        provider: its name under `dev/llm/`.
        scenarios: as `Library` takes them. A request whose `model` is a scenario's name is played by that one
            only; other names of models are let through, so that a setting for a real model does no harm.
        timeout_ms: milliseconds for one answer where the request says nothing.
    """

    native_tools = True

    def __init__(
        self, provider: str, scenarios: Sequence[Path | Scenario], timeout_ms: int = TIMEOUT_MS
    ) -> None:
        self.provider = provider
        self._library = Library(scenarios)
        self._timeout_ms = timeout_ms

    def unavailable(self) -> str:
        try:
            found = self._library.scenarios()
        except ManifestError as error:
            return str(error)
        return "" if found else "no scenario is configured; name at least one YAML file with rules"

    def details(self) -> dict[str, object]:
        try:
            found = self._library.scenarios()
        except ManifestError:
            found = []  # `unavailable` says why
        return {
            "driver": "script",
            "ai": False,
            "note": "Plays scenarios from YAML files; there is no AI behind it. Nothing leaves this machine.",
            "scenarios": [{"name": one.name, "description": one.description} for one in found],
        }

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> ModelAnswer:
        cue = self._cue(request)
        timeout_ms = request.timeout_ms or self._timeout_ms
        with trio.move_on_after(timeout_ms / 1000):
            await trio.sleep(cue.delay_ms / 1000)
            if cue.failure is not None:
                raise ModelError(*cue.failure)  # not transient: asked again, it would play the same
            answer = answer_of(cue, request)
            if emit is not None:
                await _emit_words(answer.content, cue.word_delay_ms / 1000, emit)
            return answer
        right = "raise timeout_ms, or lower the delay in the scenario"
        raise ModelError(Code.TIMEOUT, f"{self.provider}: no answer within {timeout_ms} ms; {right}")

    def _cue(self, request: ModelRequest) -> Cue:
        """What to do next.

        Raises:
            SyscallError: INVALID, a scenario is wrong: which, in which line, and what would be right.
        """
        try:
            scenarios = self._library.scenarios()
            named = [scenario for scenario in scenarios if scenario.name == request.model]
            return choose(named or scenarios, scene_of(request)) or _help(scenarios)
        except ManifestError as error:
            raise invalid(str(error)) from None


async def _emit_words(text: str, delay: float, emit: Emit) -> None:
    for place, word in enumerate(_words(text)):
        if place:
            await trio.sleep(delay)
        emit(Delta("text", word))


def _help(scenarios: Sequence[Scenario]) -> Cue:
    """What to say when no rule fits."""
    lines = [f"- {rule.help}" for scenario in scenarios for rule in scenario.rules if rule.help]
    return Cue("none", "", say=_NO_RULE.format(rules="\n".join(lines) or "(none)"))
