"""`init.yaml`: what a daemon starts by itself.

    version: 1
    services:                # processes, started once, in order
      - name: greeter
        intent: say hello
    supervisors:             # after the services, in order
      - name: pair
        required: true       # when it fails, all that this file started is stopped again
        children:
          - {name: worker, intent: work, restart: transient}

**Whose file counts.** The user's own, and that of a project which the user trusts (`RNIX_TRUSTED`): what a
file starts runs commands and spends money, and the file of a project comes with whatever was cloned.
"""

import dataclasses
import enum
from collections.abc import Iterable
from typing import TypeVar

from rnixfs import limits
from rnixfs.errors import SyscallError
from rnixfs.manifest import AGENT_NAME, MODEL_NAME, PROVIDER_NAME
from rnixfs.proc.request import SpawnRequest
from rnixfs.proc.supervision import AGENTS_FIELDS, ChildSpec, Restart, Strategy, SupervisorSpec, check
from rnixfs.yamlread import Fields, ManifestError, clip, load, nearest

VERSION = 1
"""The version of the format."""

FILE_FIELDS = ("version", "services", "supervisors")
_COMMON = ("name", "required", "cwd")
_AGENTS = ("intent", "agent", "provider", "model", "context_budget")
_SPEC = ("strategy", "max_restarts", "max_window", "children")
SERVICE_FIELDS = (*_COMMON, *_AGENTS)
SUPERVISOR_FIELDS = (*_COMMON, "provider", *_SPEC)
CHILD_FIELDS = ("name", *_AGENTS, "restart", "supervisor")
_NAME_RIGHT = "a name of letters, digits, - and _"
_HINTS = {
    "intensity": "write max_restarts",
    "period": "write max_window, in seconds",
    "window": "write max_window, in seconds",
    "max_seconds": "write max_window, in seconds",
    "prompt": "write intent",
    "task": "write intent",
    "command": "init.yaml starts agents; write what is to be done as intent",
}
_SERVICE_HINTS = _HINTS | {
    "type": "a service is a process with an intent; skills, MCP servers and logs need no service here",
    "config": "a service is a process with an intent, an agent and a model",
    "restart": "what is to be started again is a child of a supervisor: write it under supervisors",
}
_E = TypeVar("_E", bound=enum.StrEnum)


class UnitKind(enum.StrEnum):
    """What a unit is."""

    SERVICE = "service"
    SUPERVISOR = "supervisor"


@dataclasses.dataclass(frozen=True, slots=True)
class InitUnit:
    """One thing to start.

    Args:
        name: how people call it; unique in all files together.
        kind: service or supervisor.
        required: whether everything is stopped again when it fails.
        request: what makes it.
        at: `file:line` where it is written.
    """

    name: str
    kind: UnitKind
    required: bool
    request: SpawnRequest
    at: str


@dataclasses.dataclass(frozen=True, slots=True)
class InitPlan:
    """What is to be started, in order.

    Args:
        units: services, then supervisors.
        files: the files it was read from.
        warnings: what was left out, and why.
    """

    units: tuple[InitUnit, ...] = ()
    files: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def parse_init(text: str, file: str) -> InitPlan:
    """Read the text of an `init.yaml`.

    Args:
        text: the text.
        file: its path, for messages.

    Raises:
        ManifestError: the line, what is wrong there and what would be right.
    """
    doc = load(text, file)
    if doc.root.data is None:
        return InitPlan(files=(file,))
    fields = doc.fields()
    fields.only(FILE_FIELDS)
    version = fields.whole("version", 0, 1_000_000)
    if version not in (None, VERSION):
        raise fields.error("version", f"is {version}", f"this release knows version {VERSION}: write that")
    units = [_service(entry) for entry in fields.mappings("services")]
    units += [_supervisor_unit(entry) for entry in fields.mappings("supervisors")]
    _refuse_twins(units, file)
    return InitPlan(tuple(units), (file,))


def merge(plans: Iterable[InitPlan]) -> InitPlan:
    """Several plans as one: a unit of a later plan takes the place of the one of its name."""
    units: dict[str, InitUnit] = {}
    files: list[str] = []
    warnings: list[str] = []
    for plan in plans:
        units |= {unit.name: unit for unit in plan.units}
        files += plan.files
        warnings += plan.warnings
    in_order = sorted(units.values(), key=lambda unit: unit.kind is UnitKind.SUPERVISOR)
    return InitPlan(tuple(in_order), tuple(files), tuple(warnings))


def _refuse_twins(units: list[InitUnit], file: str) -> None:
    seen: dict[str, InitUnit] = {}
    for unit in units:
        if unit.name in seen:
            line = int(unit.at.rpartition(":")[2])
            what = f"the name {unit.name!r} is given to two units, also in {seen[unit.name].at}"
            raise ManifestError(file, line, what, "rename one of them")
        seen[unit.name] = unit


# --- units ---


def _service(entry: Fields) -> InitUnit:
    entry.only(SERVICE_FIELDS, _SERVICE_HINTS)
    name = _name(entry)
    entry.need("intent", "what is to be done, as text")
    request = SpawnRequest(
        intent=_intent(entry),
        agent=entry.text("agent", pattern=AGENT_NAME, right=_NAME_RIGHT),
        provider=_provider(entry),
        model=_model(entry),
        context_budget=_budget(entry),
        cwd=_cwd(entry),
    )
    return _unit(entry, name, UnitKind.SERVICE, request)


def _supervisor_unit(entry: Fields) -> InitUnit:
    entry.only(SUPERVISOR_FIELDS, _HINTS)
    spec = _spec(entry)
    try:
        check(spec)
    except SyscallError as error:
        what = f"{entry.path.rstrip('.')} cannot be taken"
        raise ManifestError(entry.file, entry.line, what, error.reason) from None
    request = SpawnRequest(provider=_provider(entry), cwd=_cwd(entry), supervisor=spec)
    return _unit(entry, spec.name, UnitKind.SUPERVISOR, request)


def _unit(entry: Fields, name: str, kind: UnitKind, request: SpawnRequest) -> InitUnit:
    return InitUnit(name, kind, entry.flag("required", False), request, f"{entry.file}:{entry.line}")


def _spec(entry: Fields) -> SupervisorSpec:
    name = _name(entry)
    restarts = entry.whole("max_restarts", 0, limits.SUPERVISOR_RESTARTS_MAX)
    window = entry.number("max_window", 0.001, limits.SUPERVISOR_WINDOW_MAX)
    entry.need("children", "a list of entries, each with its fields")
    children = [_child(one) for one in entry.mappings("children")]
    if not 1 <= len(children) <= limits.SUPERVISOR_CHILDREN_MAX:
        right = f"write 1 to {limits.SUPERVISOR_CHILDREN_MAX}"
        raise entry.error("children", f"has {len(children)} entries", right)
    _refuse_same_names(entry, children)
    return SupervisorSpec(
        name=name,
        children=tuple(children),
        strategy=_one_of(entry, "strategy", Strategy.ONE_FOR_ONE),
        max_restarts=limits.SUPERVISOR_RESTARTS if restarts is None else restarts,
        max_window=limits.SUPERVISOR_WINDOW_SECONDS if window is None else window,
    )


def _refuse_same_names(entry: Fields, children: list[ChildSpec]) -> None:
    seen: set[str] = set()
    for child, item in zip(children, entry.mappings("children"), strict=True):
        if child.name in seen:
            raise item.error("name", f"{child.name!r} is given to two children", "rename one of them")
        seen.add(child.name)


def _child(entry: Fields) -> ChildSpec:
    entry.only(CHILD_FIELDS, _HINTS)
    inner = entry.mapping("supervisor")
    if inner is not None:
        inner.only(("name", *_SPEC), _HINTS)
        for field in AGENTS_FIELDS:
            if field in entry:
                raise entry.error(field, "means nothing to a supervisor", "give it to its children")
    else:
        entry.need("intent", "what is to be done, as text")
    return ChildSpec(
        name=_name(entry),
        intent=_intent(entry),
        agent=entry.text("agent", pattern=AGENT_NAME, right=_NAME_RIGHT),
        provider=_provider(entry),
        model=_model(entry),
        context_budget=_budget(entry),
        restart=_one_of(entry, "restart", Restart.PERMANENT),
        supervisor=_spec(inner) if inner is not None else None,
    )


# --- fields ---


def _name(entry: Fields) -> str:
    entry.need("name", _NAME_RIGHT)
    return entry.text("name", limit=limits.MANIFEST_NAME_MAX, pattern=AGENT_NAME, right=_NAME_RIGHT)


def _intent(entry: Fields) -> str:
    return entry.text("intent", limit=limits.CONFIG_FILE_MAX, right="what is to be done, as text")


def _provider(entry: Fields) -> str:
    return entry.text("provider", pattern=PROVIDER_NAME, right="the name of a provider")


def _model(entry: Fields) -> str:
    return entry.text("model", pattern=MODEL_NAME, right="the name of a model")


def _budget(entry: Fields) -> int | None:
    return entry.whole("context_budget", 0, limits.BUDGET_TOKENS_MAX)


def _cwd(entry: Fields) -> str:
    right = "the absolute path of a folder, such as /home/me/project"
    return entry.text("cwd", limit=limits.PATH_MAX, pattern=r"/.*", right=right)


def _one_of(entry: Fields, name: str, default: _E) -> _E:
    kinds = type(default)
    names = [str(one) for one in kinds]
    text = entry.text(name, right=f"one of {', '.join(names)}")
    if text and text not in names:
        right = f"write one of {', '.join(names)}{nearest(text, names)}"
        raise entry.error(name, f"is {clip(text)}", right)
    return kinds(text) if text else default
