"""Where a rehearsed process first does something else than the recorded one: step, field, and both values."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from rnixfs.errors import printable
from rnixfs.llm import Message, ToolSpec
from rnixfs.proc.progress import Done, StepEnd
from rnixfs.proc.state import Exit
from rnixfs.traceline import clip

GOES_ON = "goes on"
_SHOWN = 200  # characters of a value that a person is shown


class Difference(msgspec.Struct, frozen=True):
    """One difference.

    Args:
        step: in which step it shows.
        field: what differs there, such as `system_prompt`, `tools[shell]`, `messages[2].content`.
        recorded: what the log has.
        now: what there is today.
    """

    step: int
    field: str
    recorded: str
    now: str

    @classmethod
    def of(cls, step: int, pair: "Pair") -> "Difference":
        """A difference, given what differs in a step."""
        field, recorded, now = map(printable, pair)
        return cls(step, field, recorded, now)

    def lines(self) -> str:
        """Both values for people: of longer ones, the first line in which they differ."""
        recorded, now, number = _first_lines(self.recorded, self.now)
        where = f" (line {number})" if number else ""
        return f"  recorded{where}: {clip(recorded, _SHOWN)}\n  now{where}: {clip(now, _SHOWN)}"


def _first_lines(one: str, other: str) -> tuple[str, str, int]:
    """The first line of each in which two texts differ, and its number; 0 where both have one line."""
    ours, theirs = one.split("\n"), other.split("\n")
    if len(ours) == len(theirs) == 1:
        return (*_from_there(one, other), 0)
    longer = max(len(ours), len(theirs))
    for number in range(longer):
        left = ours[number] if number < len(ours) else "(no such line)"
        right = theirs[number] if number < len(theirs) else "(no such line)"
        if left != right:
            return (*_from_there(left, right), number + 1)
    return one, other, 0


def _from_there(one: str, other: str) -> tuple[str, str]:
    """Two long lines from shortly before the place where they part."""
    same = next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), 0)
    start = max(0, same - _SHOWN // 4) if max(len(one), len(other)) > _SHOWN else 0
    mark = "…" if start else ""
    return mark + one[start:], mark + other[start:]


def shown(value: Any) -> str:
    """A value as a text."""
    if isinstance(value, str):
        return value
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=False)


Pair = tuple[str, str, str]
"""A field, what was recorded and what is now."""


def of_fields(recorded: Any, now: Any, *names: str, prefix: str = "") -> Iterator[Pair]:
    """The fields in which two values of a kind differ."""
    for name in names:
        one, other = getattr(recorded, name), getattr(now, name)
        if one != other:
            yield f"{prefix}{name}", shown(one), shown(other)


def of_messages(recorded: list[Message], now: list[Message], first: int = 0) -> Iterator[Pair]:
    """The first difference of two stretches of a conversation.

    Args:
        recorded: messages of the log.
        now: those in their place.
        first: how many messages stand before them.
    """
    for place, (one, other) in enumerate(zip(recorded, now, strict=False), first):
        names = ("role", "content", "tool_calls", "tool_call_id")
        yield from of_fields(one, other, *names, prefix=f"messages[{place}].")
    if len(recorded) != len(now):
        yield "messages", f"{first + len(recorded)} messages", f"{first + len(now)} messages"


def of_tools(recorded: str, now: str) -> Iterator[Pair]:
    """The difference of two lists of tools, in JSON; empty for a model that has none natively."""
    if recorded == now:
        return
    if not (recorded and now):
        yield "tools", recorded or "described in the prompt", now or "described in the prompt"
        return
    ours, theirs = _by_name(recorded), _by_name(now)
    for name in [*ours, *(name for name in theirs if name not in ours)]:
        one, other = ours.get(name, "(not offered)"), theirs.get(name, "(not offered)")
        if one != other:
            yield f"tools[{name}]", one, other
    yield "tools", ", ".join(ours), ", ".join(theirs)


def _by_name(tools: str) -> dict[str, str]:
    specs = msgspec.json.decode(tools, type=list[ToolSpec])
    return {spec.name: msgspec.json.encode(spec).decode() for spec in specs}


def of_call(place: int, recorded: Done, now: Done) -> Iterator[Pair]:
    """The difference of what came of a tool call."""
    prefix = f"tool_calls[{place}]."
    return of_fields(recorded, now, "name", "arguments", "error", "text", "device", prefix=prefix)


def of_end(recorded: StepEnd, now: StepEnd, sent: int) -> Iterator[Pair]:
    """The difference of two ends of a step.

    Args:
        recorded: the end in the log.
        now: the end today.
        sent: how many messages the conversation had.
    """
    if recorded.exit != now.exit:
        yield of_exit(recorded.exit, now.exit)
    yield from of_fields(recorded, now, "action", "summary", "result")
    yield from of_messages(recorded.messages, now.messages, sent)


def of_exit(recorded: Exit | None, now: Exit | None) -> Pair:
    """The difference of two ends of a process, named after the limit that made it."""
    reasons = [exit_.reason if exit_ is not None else GOES_ON for exit_ in (recorded, now)]
    field = next((_LIMITS[how] for reason in reasons for how in _LIMITS if reason.startswith(how)), "exit")
    if field == "context_budget" and any("$" in reason for reason in reasons):
        field = "max_cost_usd"
    return field, _ending(recorded), _ending(now)


def _ending(exit_: Exit | None) -> str:
    return f"{exit_.code} {exit_.reason}" if exit_ is not None else GOES_ON


_LIMITS = {"max_iterations:": "max_steps", "budget_exceeded:": "context_budget"}
