"""Supervisors as data: what one keeps running, and what it does when a child ends. Pure, so that the
decision can be read and tested as a table.

Three choices that others make differently. A child that has ended for good (its work is done, it was only
to run once, or somebody stopped it) is not started again because of a sibling: finished work is not done
twice. A restart of several children counts once. And the time of a restart still counts when exactly
`max_window` seconds have passed.
"""

import dataclasses
import enum
import re
from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, invalid
from rnixfs.manifest import AGENT_NAME


class Strategy(enum.StrEnum):
    """Whom the end of one child concerns."""

    ONE_FOR_ONE = "one_for_one"
    ONE_FOR_ALL = "one_for_all"
    REST_FOR_ONE = "rest_for_one"


class Restart(enum.StrEnum):
    """After which ends a child is started again: each, those with a code other than 0, none."""

    PERMANENT = "permanent"
    TRANSIENT = "transient"
    TEMPORARY = "temporary"


class ChildSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One child. What is left out is as the agent, the supervisor or the configuration says.

    Args:
        name: how its supervisor calls it.
        intent: what is to be done; a child that is a supervisor needs none.
        agent: the agent that does it.
        provider: the model's provider, a name under `dev/llm/`.
        model: the provider's model.
        context_budget: tokens before it is ended with code 2, counted anew after a restart.
        restart: after which ends it is started again.
        supervisor: what it supervises, where it is a supervisor itself.
    """

    name: str
    intent: str = ""
    agent: str = ""
    provider: str = ""
    model: str = ""
    context_budget: int | None = None
    restart: Restart = Restart.PERMANENT
    supervisor: "SupervisorSpec | None" = None


class SupervisorSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A supervisor.

    Args:
        name: how people call it.
        children: in the order in which they are started.
        strategy: whom the end of one child concerns.
        max_restarts: restarts within `max_window` after which the next one is refused.
        max_window: seconds.
    """

    name: str
    children: tuple[ChildSpec, ...]
    strategy: Strategy = Strategy.ONE_FOR_ONE
    max_restarts: int = limits.SUPERVISOR_RESTARTS
    max_window: float = limits.SUPERVISOR_WINDOW_SECONDS


def stop_seconds(child: ChildSpec) -> float:
    """How long a child may take to stop before it is killed; a supervisor has its children's time too."""
    below = child.supervisor.children if child.supervisor is not None else ()
    return limits.SUPERVISOR_STOP_SECONDS + sum(map(stop_seconds, below))


# --- what a good one is ---

_NAME_RIGHT = f"letters, digits, - and _, at most {limits.MANIFEST_NAME_MAX}, the first a letter or digit"
AGENTS_FIELDS = ("agent", "model", "context_budget")
"""Fields of a child that mean nothing to one that is a supervisor."""


def check(spec: SupervisorSpec, where: str = "supervisor", depth: int = 1) -> None:
    """Refuse a supervisor that could not work.

    Args:
        spec: the supervisor.
        where: its place in the request, for messages.
        depth: how many supervisors are around it, itself included.

    Raises:
        SyscallError: INVALID or TOO_LARGE, naming the field and what would be right.
    """
    if depth > limits.SPAWN_DEPTH_MAX:
        raise invalid(f'"{where}": supervisors may be {limits.SPAWN_DEPTH_MAX} deep, no more')
    _check_name(spec.name, where)
    _within(spec.max_restarts, f"{where}.max_restarts", limits.SUPERVISOR_RESTARTS_MAX)
    if not 0 < spec.max_window <= limits.SUPERVISOR_WINDOW_MAX:
        right = f"it must be more than 0 and at most {limits.SUPERVISOR_WINDOW_MAX:g} seconds"
        raise invalid(f'"{where}.max_window" is {spec.max_window:g}; {right}')
    if not 1 <= len(spec.children) <= limits.SUPERVISOR_CHILDREN_MAX:
        right = f"it must hold 1 to {limits.SUPERVISOR_CHILDREN_MAX}"
        raise invalid(f'"{where}.children" holds {len(spec.children)} children; {right}')
    names: set[str] = set()
    for at, child in enumerate(spec.children):
        _check_child(child, f"{where}.children[{at}]", depth)
        if child.name in names:
            raise invalid(f'"{where}.children" has two called {child.name!r}; rename one of them')
        names.add(child.name)


def hint(problem: str) -> str:
    """What would be right, where msgspec only says that a strategy or a restart is invalid; else nothing."""
    for field, kinds in (("strategy", Strategy), ("restart", Restart)):
        if problem.startswith("Invalid enum") and problem.endswith(f".{field}`"):
            return f"; write one of {', '.join(kinds)}"
    return ""


def _check_name(name: str, where: str) -> None:
    if not re.fullmatch(AGENT_NAME, name):
        raise invalid(f'"{where}.name" is {name[:80]!r}; write {_NAME_RIGHT}')


def _within(value: int, where: str, most: int) -> None:
    if not 0 <= value <= most:
        raise invalid(f'"{where}" is {value}; it must be 0 to {most}')


def _check_child(child: ChildSpec, where: str, depth: int) -> None:
    _check_name(child.name, where)
    if child.context_budget is not None:
        _within(child.context_budget, f"{where}.context_budget", limits.BUDGET_TOKENS_MAX)
    if len(child.intent.encode("utf-8", "replace")) > limits.INTENT_MAX:
        raise SyscallError(Code.TOO_LARGE, f'"{where}.intent" may have {limits.INTENT_MAX} bytes')
    if child.supervisor is None:
        if not child.intent.strip():
            raise invalid(f'"{where}" needs "intent": what {child.name!r} is to do, as text')
        return
    refuse_agents_fields(child, f"{where}.", AGENTS_FIELDS)
    check(child.supervisor, f"{where}.supervisor", depth + 1)


def refuse_agents_fields(request: object, before: str, fields: Iterable[str]) -> None:
    """Refuse fields that only mean something for a process with a model.

    Args:
        request: what has the fields.
        before: what stands before their names in messages.
        fields: the fields.

    Raises:
        SyscallError: INVALID, naming the field.
    """
    for field in fields:
        if getattr(request, field) not in (None, "", []):
            raise invalid(f'"{before}{field}" means nothing to a supervisor; give it to its children')


# --- the decision ---


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """What to do after a child's end.

    Args:
        stop: the children to stop first, in this order.
        start: the children to start then, in this order.
        give_up: whether to end in place of starting anything.
    """

    stop: tuple[str, ...] = ()
    start: tuple[str, ...] = ()
    give_up: bool = False


_CONCERNS: dict[Strategy, Callable[[int, int], bool]] = {
    Strategy.ONE_FOR_ONE: lambda _ended, _other: False,
    Strategy.ONE_FOR_ALL: lambda _ended, _other: True,
    Strategy.REST_FOR_ONE: lambda ended, other: other > ended,
}
"""Whether the end of one child concerns another; both by their place in the order of starting."""

_AGAIN: dict[Restart, Callable[[int], bool]] = {
    Restart.PERMANENT: lambda _code: True,
    Restart.TRANSIENT: lambda code: code != 0,
    Restart.TEMPORARY: lambda _code: False,
}


def ends_for_good(child: ChildSpec, code: int) -> bool:
    """Whether an end with a code is a child's last."""
    return not _AGAIN[child.restart](code)


def recent(restarts: Sequence[float], window: float, now: float) -> list[float]:
    """The times, of those in `restarts`, that lie at most `window` seconds before `now`."""
    return [time for time in restarts if now - time <= window]


def decide(
    spec: SupervisorSpec,
    ended: str,
    code: int,
    wanted: Collection[str],
    restarts: Sequence[float],
    now: float,
) -> Decision:
    """What to do when a child has ended by itself.

    Args:
        spec: the supervisor.
        ended: the child's name.
        code: its exit code.
        wanted: names of the other children that run, or are about to be started.
        restarts: times of earlier restarts, in seconds.
        now: the time, on the same clock.
    """
    children = {child.name: child for child in spec.children}
    names = list(children)
    if ends_for_good(children[ended], code):
        return Decision()
    others = [name for name in names if name in wanted and name != ended]
    if len(recent(restarts, spec.max_window, now)) >= spec.max_restarts:
        return Decision(stop=tuple(reversed(others)), give_up=True)
    place = names.index(ended)
    concerned = [name for name in others if _CONCERNS[spec.strategy](place, names.index(name))]
    start = [
        name
        for name in names
        if name == ended or (name in concerned and children[name].restart is not Restart.TEMPORARY)
    ]
    return Decision(stop=tuple(reversed(concerned)), start=tuple(start))
