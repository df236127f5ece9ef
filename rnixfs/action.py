"""The text protocol of models that have no tool calls of their own: one JSON object says what to do.

    {"action": "tool_call", "tool": "shell", "data": {"command": "ls"}}

Such an object may be the whole reply, stand in a fenced block, or stand among other text; only whole JSON
objects count, found with strings respected, so that a brace inside a string breaks nothing. All `tool_call`
objects of a reply are its calls, and so are `spawn` objects beside other actions; in a reply without calls
the last action counts. A reply without an action is the final answer. Nothing in a reply raises an error: an
action that cannot be used becomes a `BadAction`, whose reason is meant for the model.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import msgspec

from rnixfs import limits
from rnixfs.llm import ToolSpec, too_deep

EFFORT_FREE = 1_000_000  # characters that a search may look at beyond EFFORT_FACTOR times the reply
EFFORT_FACTOR = 4  # so that a reply made to be slow (a megabyte of open braces) costs linear time


class Call(msgspec.Struct, frozen=True):
    """One tool call.

    Args:
        tool: the tool's name.
        data: its arguments by name.
    """

    tool: str
    data: dict[str, Any] = {}


class Calls(msgspec.Struct, frozen=True, tag="tool_call"):
    """Tool calls of one reply, in order, with the text that stood around them."""

    calls: tuple[Call, ...]
    said: str = ""


class Plan(msgspec.Struct, frozen=True, tag="plan"):
    """The steps the model means to take, and why."""

    steps: tuple[str, ...]
    reason: str = ""
    said: str = ""


class Spawn(msgspec.Struct, frozen=True, tag="spawn"):
    """A child process to start.

    Args:
        intent: what the child is to do.
        data: the other fields of the request, such as `agent` and `model`.
        said: the text that stood around the action.
    """

    intent: str
    data: dict[str, Any] = {}
    said: str = ""


class Complete(msgspec.Struct, frozen=True, tag="complete"):
    """The end of the work, with its result."""

    result: str


class Replan(msgspec.Struct, frozen=True, tag="replan"):
    """The plan does not hold any more, and why."""

    reason: str
    said: str = ""


class Specialize(msgspec.Struct, frozen=True, tag="specialize"):
    """A skill to load into the process."""

    skill: str
    said: str = ""


class Text(msgspec.Struct, frozen=True, tag="text"):
    """No action: the final answer."""

    text: str


class BadAction(msgspec.Struct, frozen=True, tag="bad"):
    """An action that cannot be used; `reason` says to the model what would be right."""

    reason: str
    said: str = ""


Action = Calls | Plan | Spawn | Complete | Replan | Specialize | Text | BadAction


class _UnusableError(Exception):
    """Why an action cannot be used; the argument is the reason."""


# --- reading one object ---


def _field(body: dict[str, Any], name: str, what: str) -> str:
    value = body.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _UnusableError(f'"{name}" must be text ({what}), not {_kind(value)}')
    return value.strip()


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _data(body: dict[str, Any]) -> dict[str, Any]:
    data = body.get("data")
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise _UnusableError(f'"data" must be an object, not {_kind(data)}')
    if too_deep(data):
        raise _UnusableError(f'"data" may have {limits.MODEL_ARGUMENTS_DEPTH_MAX} levels; it has more')
    return data


def _read_call(body: dict[str, Any], said: str) -> Calls:
    tool = _field(body, "tool", "the tool's name")
    if not tool:
        raise _UnusableError('"tool_call" needs "tool", the name of a tool')
    return Calls((Call(tool, _data(body)),), said)


def _read_plan(body: dict[str, Any], said: str) -> Plan:
    data = _data(body)
    steps = data.get("steps")
    if not isinstance(steps, list) or not steps or not all(isinstance(step, str) for step in steps):
        raise _UnusableError('"plan" needs "data": {"steps": [...]}, a list of texts that is not empty')
    return Plan(tuple(steps), _field(data, "reason", "why this plan"), said)


def _read_spawn(body: dict[str, Any], said: str) -> Spawn:
    data = dict(_data(body))
    intent = _field(body, "tool", "the child's intent") or _field(data, "intent", "the child's intent")
    data.pop("intent", None)
    if not intent:
        raise _UnusableError('"spawn" needs the child\'s intent as text in "tool"')
    for name in ("agent", "model"):
        _field(data, name, f"the child's {name}")
    return Spawn(intent, data, said)


def _read_complete(body: dict[str, Any], said: str) -> Complete:
    result = _data(body).get("result", said or None)
    if result is None:
        raise _UnusableError('"complete" needs "data": {"result": "the final answer"}')
    return Complete(result if isinstance(result, str) else msgspec.json.encode(result).decode())


def _read_replan(body: dict[str, Any], said: str) -> Replan:
    reason = _field(_data(body), "reason", "why the plan does not hold")
    if not reason:
        raise _UnusableError('"replan" needs "data": {"reason": "why the plan does not hold"}')
    return Replan(reason, said)


def _read_specialize(body: dict[str, Any], said: str) -> Specialize:
    skill = _field(body, "tool", "the skill's name") or _field(_data(body), "skill", "the skill's name")
    if not skill:
        raise _UnusableError('"specialize" needs the skill\'s name as text in "tool"')
    return Specialize(skill, said)


_READERS: dict[str, Callable[[dict[str, Any], str], Action]] = {
    "tool_call": _read_call,
    "plan": _read_plan,
    "spawn": _read_spawn,
    "complete": _read_complete,
    "replan": _read_replan,
    "specialize": _read_specialize,
}
ACTIONS = tuple(_READERS)


def _is_action(body: dict[str, Any]) -> bool:
    """Whether an object means to be an action. An unknown word needs `tool` or `data` beside it to count."""
    word = body.get("action")
    if not isinstance(word, str):
        return "action" in body and "tool" in body and "data" in body
    return word in _READERS or "tool" in body or "data" in body


def _read(body: dict[str, Any], said: str) -> Action:
    reader = _READERS.get(body["action"]) if isinstance(body["action"], str) else None
    try:
        if reader is None:
            raise _UnusableError(f"there is no action {body['action']!r}; there are: {', '.join(ACTIONS)}")
        return reader(body, said)
    except _UnusableError as problem:
        return BadAction(str(problem), said)


# --- finding objects in text ---

_START = re.compile(r'\{\s*+"')
# A string that never ends runs to the end of the text; without that, each quote would search again.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\Z)|[{}]', re.DOTALL)


def _end_of_object(text: str, start: int) -> int:
    """Where the object that opens at `start` ends; -1 if it does not."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        if token[0] == "{":
            depth += 1
        elif token[0] == "}":
            depth -= 1
            if depth == 0:
                return token.end()
    return -1


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _decode(fragment: str) -> dict[str, Any] | None:
    """An object from JSON; line breaks inside strings are let through, because models write them."""
    try:
        value = json.loads(fragment, strict=False, parse_constant=_refuse_constant)
        msgspec.json.encode(value)  # refuses what could not be passed on: lone surrogates, infinities
    except (ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return None
    return value if isinstance(value, dict) else None


def find_objects(
    text: str, spent: Callable[[int], None] = lambda count: None
) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Every outermost JSON object of a text as (start, end, value), in order.

    Args:
        text: any text.
        spent: told the number of characters that each attempt looked at. The sum stays within
            `EFFORT_FACTOR * len(text) + EFFORT_FREE`, plus one look; the search stops there.
    """
    effort = EFFORT_FACTOR * len(text) + EFFORT_FREE
    position = 0
    while effort > 0 and (found := _START.search(text, position)):
        start = found.start()
        end = _end_of_object(text, start)
        looked = (len(text) if end < 0 else end) - start
        spent(looked)
        effort -= looked
        value = _decode(text[start:end]) if end > 0 else None
        position = start + 1 if value is None else end
        if value is not None:
            yield start, end, value


_FENCES = re.compile(r"^[ \t]*```\w*[ \t]*$", re.MULTILINE)


def _around(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """The text without the spans and without the fences that stood around them."""
    kept, position = [], 0
    for start, end in spans:
        kept.append(text[position:start])
        position = end
    kept.append(text[position:])
    return "\n".join(part for part in (_FENCES.sub("", piece).strip() for piece in kept) if part)


def parse_reply(text: str) -> Action:
    """What a model's reply asks for. Never raises, whatever the text.

    Args:
        text: the reply, of any length; the work is linear in it.
    """
    found = [(start, end, body) for start, end, body in find_objects(text) if _is_action(body)]
    if not found:
        return Text(text)
    said = _around(text, [(start, end) for start, end, _ in found])
    actions = [_read(body, said) for _, _, body in found]
    return _first_bad(actions) or _join(actions, said) or actions[-1]


def _first_bad(actions: Sequence[Action]) -> Action | None:
    """One unusable action refuses the whole reply: half a batch would surprise the model."""
    return next((action for action in actions if isinstance(action, BadAction)), None)


def _join(actions: Sequence[Action], said: str) -> Action | None:
    """Calls and spawns of a reply as one action. A `complete` beside them waits, or they would be lost."""
    calls = tuple(call for action in actions for call in _as_calls(action))
    return Calls(calls, said) if calls and len(actions) > 1 else None


def _as_calls(action: Action) -> tuple[Call, ...]:
    if isinstance(action, Spawn):
        return (Call("spawn", {"intent": action.intent, **action.data}),)
    return action.calls if isinstance(action, Calls) else ()


# --- telling the model ---

_EXPLAINED = {
    "tool_call": '{"action": "tool_call", "tool": "<tool name>", "data": {<arguments>}} - use a tool',
    "plan": '{"action": "plan", "tool": "", "data": {"steps": ["..."], "reason": "..."}} - note a plan',
    "spawn": '{"action": "spawn", "tool": "<intent>", "data": {"agent": "<name>"}} - start a child process; '
    "the result is its pid, and the tool wait collects its answer",
    "complete": '{"action": "complete", "tool": "", "data": {"result": "..."}} - end with this result',
    "replan": '{"action": "replan", "tool": "", "data": {"reason": "..."}} - say that the plan failed',
    "specialize": '{"action": "specialize", "tool": "<skill name>", "data": {}} - load a skill',
}

_PROTOCOL = """\
To act, reply with one JSON object and nothing else:
{actions}
Several tool_call objects in one reply, one after another, are several calls. The result of each call comes in
the next message. A reply without such an object is your final answer and ends the work.

Tools:
{tools}"""


def describe_protocol(tools: Sequence[ToolSpec], actions: Sequence[str] = ACTIONS) -> str:
    """The text that explains the protocol and the tools to a model without native tools.

    The same tools and actions give the same bytes, in whatever order they come: a changed prompt would cost
    the provider's cached prefix.

    Args:
        tools: what `tool_call` may name.
        actions: which actions to explain, of `ACTIONS`.
    """
    lines = [f"- {_EXPLAINED[name]}" for name in ACTIONS if name in actions]
    described = [_describe_tool(tool) for tool in sorted(tools, key=lambda tool: tool.name)]
    return _PROTOCOL.format(actions="\n".join(lines), tools="\n".join(described) or "(none)")


def _describe_tool(tool: ToolSpec) -> str:
    schema = msgspec.json.encode(tool.input_schema, order="sorted").decode()
    return f"- {tool.name}: {' '.join(tool.description.split())}\n  arguments: {schema}"
