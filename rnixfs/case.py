"""Cases: recorded runs as files, each a scenario of the scripted model and a regression test in one.

What the model says is in the scenario's rules, one a step. Under `case` stands the rest:

    case:
      version: 1
      request: {intent: find the bug, agent: default}     # as for proc/spawn, without folder and model
      steps:                                              # what the process met
        - step: 2
          before: [{say: hurry up}, {budget: 5000}]       # also {child: TEXT}, {grant: PATH}, {revoke: PATH}
          during: [{budget: 100}]                         # while the model thought; also grant and revoke
          results: [{tool: shell, text: "3 files\\n"}]     # a failure has `error` as well, as CODE: reason
      expect:
        code: 0
        reason: done
        result: It is in line 7.
        tools: [{step: 1, tool: shell, arguments: {command: ls}}]   # a failure has `error`

A text that YAML cannot hold is written as JSON under its name with `_json` behind it, and such arguments as
one text of JSON.
"""

import dataclasses
import json
from typing import Any

from rnixfs import limits
from rnixfs.errors import SyscallError
from rnixfs.proc.request import SpawnRequest, read_spawn
from rnixfs.scenario import BOUNDS, Scenario
from rnixfs.yamlread import Fields, ManifestError, Value, kind_of, load

VERSION = 1
DURING = ("budget", "grant", "revoke")
BEFORE = ("say", "child", *DURING)
LEFT_OUT = ("cwd", "env", "parent", "provider", "fork", "supervisor", "idempotency_key")
"""Fields of a spawn request that belong to where it ran, not to what was asked for."""


@dataclasses.dataclass(frozen=True, slots=True)
class Before:
    """Something that a process meets between two steps.

    Args:
        kind: one of `BEFORE`.
        text: what is said, what is told of a child's end, or the path.
        tokens: the new budget.
    """

    kind: str
    text: str = ""
    tokens: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """What came of a tool call: the text for the model, and `CODE: reason` of a failure."""

    tool: str
    text: str
    error: str


@dataclasses.dataclass(frozen=True, slots=True)
class Met:
    """What a process met in a step, before it, and while the model thought."""

    before: tuple[Before, ...] = ()
    during: tuple[Before, ...] = ()
    results: tuple[Result, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """A tool call that is expected."""

    step: int
    tool: str
    arguments: dict[str, Any]
    error: str


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A case that was read.

    Args:
        scenario: what the model says.
        request: what is asked for.
        met: by the step's number.
        code: the expected exit code.
        reason: the expected reason of the exit.
        result: the expected result.
        tools: the expected tool calls, in order.
    """

    scenario: Scenario
    request: SpawnRequest
    met: dict[int, Met]
    code: int
    reason: str
    result: str
    tools: tuple[Wanted, ...]


def read_case(text: str, file: str) -> Case:
    """Read a case.

    Args:
        text: its YAML.
        file: its name, for messages.

    Raises:
        ManifestError: with the line, what is wrong there and what would be right.
    """
    fields = load(text, file, bounds=BOUNDS).fields()
    scenario = Scenario(fields)
    case = _part(fields, "case", "what `rnix record` writes there")
    case.only(["version", "recorded", "request", "steps", "expect"])
    if case.whole("version", 0, 10**6) != VERSION:
        raise case.error(
            "version", "is missing or unknown", f"this release knows version {VERSION}: write that"
        )
    expect = _part(case, "expect", "code, reason, result and tools")
    expect.only(["code", "reason", "reason_json", "result", "result_json", "tools"])
    code = expect.whole("code", 0, 255)
    if code is None:
        raise expect.error("code", "is missing", "write the exit code, such as 0")
    return Case(
        scenario=scenario,
        request=_request(_part(case, "request", "the intent and what else was asked for")),
        met=_all_met(case),
        code=code,
        reason=_exact(expect, "reason"),
        result=_exact(expect, "result"),
        tools=tuple(_wanted(tool) for tool in expect.mappings("tools")),
    )


def _part(fields: Fields, name: str, right: str) -> Fields:
    found = fields.mapping(name)
    if found is None:
        raise fields.error(name, "is missing", f"add {name}: {right}")
    return found


def _request(fields: Fields) -> SpawnRequest:
    known = [name for name in SpawnRequest.__struct_fields__ if name not in LEFT_OUT]
    fields.only(known, dict.fromkeys(LEFT_OUT, "leave it out: a case runs where it is tested"))
    try:
        return read_spawn({name: _plain(entry.value) for name, entry in fields.entries.items()})
    except SyscallError as error:
        raise ManifestError(fields.file, fields.line, error.reason, "correct the request") from None


def _all_met(case: Fields) -> dict[int, Met]:
    found: dict[int, Met] = {}
    for fields in case.mappings("steps"):
        number, met = _met(fields)
        if number in found:
            raise fields.error("step", f"{number} has an entry already", "write one entry for each step")
        found[number] = met
    return found


def _met(fields: Fields) -> tuple[int, Met]:
    fields.only(["step", "before", "during", "results"])
    before = tuple(_before(one, BEFORE) for one in fields.mappings("before"))
    during = tuple(_before(one, DURING) for one in fields.mappings("during"))
    results = tuple(_result(one) for one in fields.mappings("results"))
    return _step(fields), Met(before, during, results)


def _step(fields: Fields) -> int:
    number = fields.whole("step", 1, limits.STEPS_CEILING)
    if number is None:
        raise fields.error("step", "is missing", "write the number of the step, from 1")
    return number


def _before(fields: Fields, kinds: tuple[str, ...]) -> Before:
    fields.only([*kinds, *(f"{name}_json" for name in kinds if name not in DURING)])
    if len(fields.entries) != 1:
        right = f"write one of {', '.join(kinds)} in each entry"
        raise ManifestError(fields.file, fields.line, f"{len(fields.entries)} things in one entry", right)
    (name,) = fields.entries
    kind = name.removesuffix("_json")
    if kind == "budget":
        return Before(kind, tokens=fields.whole(kind, 0, limits.BUDGET_TOKENS_MAX) or 0)
    return Before(kind, _exact(fields, kind))


def _result(fields: Fields) -> Result:
    fields.only(["tool", "tool_json", "text", "text_json", "error", "error_json"])
    return Result(_exact(fields, "tool"), _exact(fields, "text"), _exact(fields, "error", ""))


def _wanted(fields: Fields) -> Wanted:
    fields.only(["step", "tool", "tool_json", "arguments", "error", "error_json"])
    arguments = _arguments(fields) if "arguments" in fields else {}
    return Wanted(_step(fields), _exact(fields, "tool"), arguments, _exact(fields, "error", ""))


def _arguments(fields: Fields) -> dict[str, Any]:
    value = fields.entries["arguments"].value
    found = _decoded(fields, "arguments") if isinstance(value.data, str) else _plain(value)
    if not isinstance(found, dict):
        raise fields.error("arguments", f"is {kind_of(value)}", "write the arguments by name")
    return found


def _exact(fields: Fields, name: str, default: str | None = None) -> str:
    """A text with all its spaces; it may stand as JSON under another name."""
    found: Any = default
    if name in fields:
        found = fields.entries[name].value.data
    elif f"{name}_json" in fields:
        name = f"{name}_json"
        found = _decoded(fields, name)
    elif default is None:
        raise fields.error(name, "is missing", f"add {name}, a text")
    if not isinstance(found, str):
        raise fields.error(name, "is no text", "write text, in quotes if it looks like something else")
    return found


def _decoded(fields: Fields, name: str) -> Any:
    """What a text of JSON stands for."""
    value = fields.entries[name].value
    try:
        if not isinstance(value.data, str):
            raise ValueError("it is no text")
        return json.loads(value.data)
    except (ValueError, RecursionError) as error:
        raise fields.error(
            name, f"is no JSON: {error}", "write one JSON value, as a text in quotes"
        ) from None


def _plain(value: Value) -> Any:
    """A value of the file without its lines."""
    if isinstance(value.data, tuple):
        return [_plain(one) for one in value.data]
    if isinstance(value.data, dict):
        return {name: _plain(entry.value) for name, entry in value.data.items()}
    return value.data
