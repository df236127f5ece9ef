"""What can be asked of `proc/spawn`."""

from typing import Any

import msgspec

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, invalid
from rnixfs.idempotency import FIELD, check_key
from rnixfs.llm import Fallback
from rnixfs.proc import supervision
from rnixfs.proc.supervision import SupervisorSpec

_AGENTS_FIELDS = (
    *supervision.AGENTS_FIELDS,
    "skills",
    "max_steps",
    "max_cost_usd",
    "system_prompt",
    "effort",
    "fallback",
)


class ForkFrom(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The process that a new one is to be made from.

    Args:
        source: its pid or UUID; it may have ended.
        step: the last of its steps that the new one has been through; 0 for none, None for its last one.
    """

    source: str
    step: int | None = None


class SpawnRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A process to be made. None and "" mean: as the agent, the parent or the configuration says.

    Args:
        intent: what is to be done.
        agent: the agent that does it.
        provider: the model's provider, a name under `dev/llm/`.
        model: the provider's model.
        skills: skills added to the agent's own.
        allowed_devices: paths it may use, within what the agent and the parent may.
        effort: how much the model is to think, in the provider's words.
        fallback: who is asked, in order, when the provider cannot answer; `[]` for nobody.
        max_steps: reasoning steps before it is ended.
        context_budget: tokens before it is ended with code 2; 0 for no limit.
        max_cost_usd: dollars before it is ended with code 2; 0 for no limit.
        timeout_ms: milliseconds of running (not of pauses) before it is ended; 0 for no limit.
        system_prompt: stands before the agent's instructions.
        parent: pid of the parent, for callers that may speak for it.
        cwd: absolute folder it works in.
        env: environment of its programs; replaces the daemon's.
        supervisor: makes it a supervisor of these children; it needs no intent then.
        fork: makes it from another process, which gives all else but the idempotency key.
        idempotency_key: the same caller with the same key and request gets the same process.
    """

    intent: str = ""
    agent: str = ""
    provider: str = ""
    model: str = ""
    skills: list[str] = []
    allowed_devices: list[str] | None = None
    max_steps: int | None = None
    context_budget: int | None = None
    max_cost_usd: float | None = None
    timeout_ms: int | None = None
    system_prompt: str = ""
    parent: int | None = None
    cwd: str = ""
    env: dict[str, str] | None = None
    supervisor: SupervisorSpec | None = None
    fork: ForkFrom | None = None
    idempotency_key: str = ""
    effort: str = ""
    fallback: list[Fallback] | None = None


def read_spawn(body: object) -> SpawnRequest:
    """Turn a request (decoded JSON, or text that is the intent) into a SpawnRequest.

    Raises:
        SyscallError: INVALID or TOO_LARGE, naming the field and what would be right.
    """
    try:
        request = msgspec.convert({"intent": body} if isinstance(body, str) else body, SpawnRequest)
    except (msgspec.ValidationError, RecursionError) as error:
        raise invalid(f"not a spawn request: {error}{supervision.hint(str(error))}") from None
    if isinstance(body, dict) and FIELD in body:
        check_key(body[FIELD])
    _check(request)
    return request


def _check(request: SpawnRequest) -> None:
    if request.fork is not None:
        _check_fork(request, request.fork)
        return
    if request.supervisor is not None:
        supervision.refuse_agents_fields(request, "", _AGENTS_FIELDS)
        supervision.check(request.supervisor)
    elif not request.intent.strip():
        raise invalid('a spawn request needs "intent": what is to be done, as text')
    if len(request.intent.encode("utf-8", "replace")) > limits.INTENT_MAX:
        raise SyscallError(Code.TOO_LARGE, f'"intent" may have {limits.INTENT_MAX} bytes')
    if request.max_steps is not None and not 1 <= request.max_steps <= limits.STEPS_CEILING:
        raise invalid(f'"max_steps" is {request.max_steps}; it must be 1 to {limits.STEPS_CEILING}')
    _not_negative(request, "context_budget", "max_cost_usd", "timeout_ms")
    if request.cwd and not request.cwd.startswith("/"):
        raise invalid(f'"cwd" is {request.cwd!r}; it must be an absolute path')
    for path in request.allowed_devices or ():
        if not path.startswith("/"):
            raise invalid(f'"allowed_devices" holds {path!r}; paths start with / such as /dev/shell')


def _check_fork(request: SpawnRequest, fork: ForkFrom) -> None:
    if request != SpawnRequest(fork=fork, idempotency_key=request.idempotency_key):
        raise invalid('a request with "fork" has no other field but "idempotency_key"')
    if fork.step is not None and fork.step < 0:
        raise invalid(f'"fork.step" is {fork.step}; it must be 0 (before the first step) or more')


def _not_negative(request: SpawnRequest, *fields: str) -> None:
    for field in fields:
        value = getattr(request, field)
        if value is not None and value < 0:
            raise invalid(f'"{field}" is {value}; it must be 0 (no limit) or more')


def _schema() -> dict[str, Any]:
    """The JSON Schema of a request, without the docstrings that msgspec puts into it."""
    parts: dict[str, dict[str, Any]] = msgspec.json.schema(SpawnRequest)["$defs"]
    for part in parts.values():
        part.pop("description", None)
    schema = parts.pop("SpawnRequest")
    return {**schema, "description": "Text is the intent; JSON says more.", "$defs": parts}


REQUEST_SCHEMA = _schema()
