"""The tools that a process had, from its log alone, whatever devices there are today.

The log holds them as the model was told of them. What a model is not told (which device a tool uses, whether
it may run again) is seen from what was done with it. None runs beside others: they are answered from the log,
and what is in the log does not depend on their order.
"""

import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec

from rnixfs.errors import Code, SyscallError
from rnixfs.llm import ToolSpec
from rnixfs.programs.tools import Tool
from rnixfs.recordedstep import Asked, Position, Step
from rnixfs.recording import Recording
from rnixfs.syscalls import Syscalls

_ACTIONS = ("complete", "plan")  # offered like tools, but no tools of a device
_UNLISTED = "skill"  # the tool that every process has, and that no text protocol lists
_TOOL = re.compile(r"- (?P<name>\S+): (?P<description>.*)\n  arguments: (?P<schema>\{.*\})(?:\n|\Z)")

_REFUSAL = re.compile(r"NOT_FOUND: there is no tool .*; there are: (.*)", re.DOTALL)


def tools_at(recording: Recording, now: Position, may_use: Callable[[str], bool]) -> dict[str, Tool]:
    """The tools that a process had, by name.

    Args:
        recording: the process.
        now: how far it is, as its program starts.
        may_use: whether it may use a path now.
    """
    step, habits = recording.step(now.step), _Habits(recording)
    if step is None:
        return {}
    if now.asked < len(step.asked):
        specs = _specs(step.asked[now.asked], recording)
    else:
        specs = _specs_within(recording, step)
        there = _listed_in_refusal(step, now) or _told_next(recording, step)
        if there is None:
            there = habits.usable(_specs(step.asked[-1], recording) if step.asked else specs, specs, may_use)
        gone = _gone(step, now)
        specs = {name: spec for name, spec in specs.items() if name in there and name not in gone}
    return {name: habits.tool(spec) for name, spec in sorted(specs.items()) if name not in _ACTIONS}


def _specs_within(recording: Recording, step: Step) -> dict[str, ToolSpec]:
    """All tools that the process was ever told of, as they were told of last before the end of a step."""
    specs: dict[str, ToolSpec] = {}
    for one in recording.steps:
        for asked in one.asked:
            known = _specs(asked, recording)
            specs = specs | known if one.number <= step.number else known | specs
    return specs


def _told_next(recording: Recording, step: Step) -> Collection[str] | None:
    """The tools that the model was told of after a step; None if it was not asked again."""
    following = recording.step(step.number + 1)
    return _specs(following.asked[0], recording) if following is not None and following.asked else None


def _specs(asked: Asked, recording: Recording) -> dict[str, ToolSpec]:
    """The tools that a request names."""
    if not asked.tools:
        return {spec.name: spec for spec in _listed(asked, recording)}
    return {spec.name: spec for spec in msgspec.json.decode(asked.tools, type=list[ToolSpec])}


def _listed_in_refusal(step: Step, now: Position) -> list[str] | None:
    """The tools that the first refusal after a position says there were; None without one."""
    for place, done in step.done.items():
        found = _REFUSAL.match(done.error)
        if place not in now.done and found is not None:
            return found[1].split(", ")
    return None


def _listed(asked: Asked, recording: Recording) -> list[ToolSpec]:
    """The tools that the text protocol explains in a prompt."""
    protocol = asked.system_prompt[len(recording.birth.system_prompt) :]
    actions, _, tools = protocol.partition("\nTools:\n")
    specs = [
        ToolSpec(found["name"], found["description"], msgspec.json.decode(found["schema"]))
        for found in _TOOL.finditer(tools)
    ]
    hidden = [_UNLISTED] + ["spawn"] * ('"action": "spawn"' in actions)
    return specs + [ToolSpec(name, "", {}) for name in hidden]


def _gone(step: Step, now: Position) -> set[str]:
    """The tools that calls after a position found no more: these failed without a device."""
    later = [done for place, done in step.done.items() if place not in now.done]
    return {done.name for done in later if done.error and not done.device}


class _Habits:
    """What was done with each tool."""

    def __init__(self, recording: Recording) -> None:
        self._paths: dict[str, str] = {}
        self._again: set[str] = set()
        wakes = [turn.position for turn in recording.turns if turn.event == "wake"]
        for step in recording.steps:
            self._look(step, [position for position in wakes if position.step == step.number])

    def _look(self, step: Step, wakes: list[Position]) -> None:
        for done in step.done.values():
            if done.device:
                self._paths.setdefault(done.name, done.device)
        for wake in wakes:
            for place in wake.started - wake.done:
                what = step.done.get(place)
                if what is not None and not what.error.startswith(str(Code.UNKNOWN_OUTCOME)):
                    self._again.add(what.name)

    def usable(
        self, latest: Collection[str], names: Iterable[str], may_use: Callable[[str], bool]
    ) -> list[str]:
        """Of some tools those that can be used: by their path, where that is known, else as it was lately."""
        return [
            name
            for name in names
            if (may_use(self._paths[name]) if self._paths.get(name) else name in latest)
        ]

    def tool(self, spec: ToolSpec) -> Tool:
        """A tool with these habits."""
        name = spec.name
        path = self._paths.get(name, "")
        return Tool(spec, _refuse, False, path, again=name in self._again)


async def _refuse(_sys: Syscalls, _arguments: dict[str, Any], _key: str) -> tuple[str, list[int]]:
    raise SyscallError(Code.NOT_PERMITTED, "a tool of a recording does nothing")
