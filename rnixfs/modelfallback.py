"""Who is asked when a provider cannot answer.

The list of the request counts, else that of the provider's entry. A process's own list reaches only providers
that its rights permit; what the configuration names needs no right, since whoever wrote it decides what the
file leads to. Lists of the configuration are followed on: the list of a fallback comes after those before it,
and nobody is asked twice.

Another is asked after every failure that another may not have: the provider cannot be reached, is ill,
limited or not set up, refuses its key, or does not have the model. It is not asked where the request itself
is at fault or does not fit, since another would only say the same, nor where text was given already that
cannot be taken back.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import trio

from rnixfs.errors import Code, SyscallError, denied
from rnixfs.llm import Emit, Fallback, ModelAnswer, ModelRequest, Usage
from rnixfs.model import ModelError
from rnixfs.modelservice import Service
from rnixfs.pieces import Pieces
from rnixfs.prices import both
from rnixfs.types import Caller

Find = Callable[[str], Service | None]
"""The provider of a name; None where there is none."""

Permits = Callable[[Caller, str], bool]
"""Whether a caller may use a path of the main tree."""

_REQUESTS_FAULT = (
    Code.INVALID,
    Code.TOO_LARGE,
    Code.RESOURCE_EXHAUSTED,
    Code.CANCELED,
    Code.INTERRUPTED,
)


def people_only(caller: Caller, _path: str) -> bool:
    """Rights where nobody knows those of processes: people may use every path."""
    return not caller.agent


class _Failed(NamedTuple):
    """A provider that did not answer."""

    name: str
    error: SyscallError

    @property
    def told(self) -> str:
        """Who, and why."""
        reason = self.error.reason
        return reason if reason.startswith(self.name) else f"{self.name}: {reason}"


class Fallbacks:
    """Asks a provider, and others when it cannot answer.

    Args:
        find: finds the others.
        permits: whether a caller may use a path.
    """

    def __init__(self, find: Find, permits: Permits = people_only) -> None:
        self._find = find
        self._permits = permits

    async def ask(
        self, first: Service, request: ModelRequest, caller: Caller, emit: Emit | None = None
    ) -> ModelAnswer:
        """Ask `first`, then those who come after it, within one time limit.

        Raises:
            ModelError: all failed; names each with its reason.
            SyscallError: the request cannot be made.
        """
        pieces, who = Pieces.of(emit, request), caller.agent or (caller.uid, caller.session)
        deadline = trio.current_time() + (request.timeout_ms or first.entry.timeout_ms) / 1000
        failed: list[_Failed] = []
        for turn in self._turns(first, request):
            left = deadline - trio.current_time()
            if left <= 0:
                late = SyscallError(Code.TIMEOUT, "there was no time left to ask it")
                failed.append(_Failed(turn.provider, late))
                break
            try:
                service = self._service(first, request, turn, caller)
                answer = await service.ask(_for(request, first, turn, left), who, pieces)
            except SyscallError as error:
                failed.append(_Failed(turn.provider, error))
                if pieces.stuck or (len(failed) == 1 and not _may_another(first, error)):
                    break
            else:
                return _with_spent(answer, failed)
        raise _exhausted(failed)

    def _turns(self, first: Service, request: ModelRequest) -> Iterator[Fallback]:
        """Everybody to ask, in order; the providers are named."""
        own = bool(request.fallback)
        start = first.entry.name
        waiting = deque([Fallback(start, request.model), *_named(start, request.fallback)])
        seen: set[tuple[str, str]] = set()
        while waiting:
            turn = waiting.popleft()
            service = first if turn.provider == start else self._find(turn.provider)
            model = turn.model or (service.entry.default_model if service is not None else "")
            if (turn.provider, model) in seen:
                continue
            seen.add((turn.provider, model))
            yield turn
            if service is not None and not own:
                waiting.extend(_named(turn.provider, service.entry.fallback))

    def _service(self, first: Service, request: ModelRequest, turn: Fallback, caller: Caller) -> Service:
        if turn.provider == first.entry.name:
            return first
        path = f"/dev/llm/{turn.provider}"
        if request.fallback and not self._permits(caller, path):
            raise denied(f"{turn.provider}: process {caller.agent} may not use {path}")
        service = self._find(turn.provider)
        if service is None:
            raise SyscallError(Code.NOT_FOUND, f"{turn.provider}: there is no such provider")
        return service


def _named(origin: str, fallbacks: Sequence[Fallback]) -> list[Fallback]:
    """Fallbacks with the providers named; one without means the provider whose list it stands in."""
    return [Fallback(one.provider or origin, one.model) for one in fallbacks]


def _for(request: ModelRequest, first: Service, turn: Fallback, left: float) -> ModelRequest:
    """The request as it is put to one provider.

    Args:
        request: the request.
        first: whom it was made to.
        turn: who is asked, and for which model.
        left: seconds that are left.
    """
    # How much to think is said in the words of the provider that was asked.
    effort = request.effort if turn.provider == first.entry.name else ""
    millis = max(1, int(left * 1000))
    return msgspec.structs.replace(request, model=turn.model, effort=effort, timeout_ms=millis)


def _may_another(service: Service, error: SyscallError) -> bool:
    return error.code not in _REQUESTS_FAULT or bool(service.unavailable())


def _spent(failed: Sequence[_Failed]) -> tuple[Usage, int]:
    """What those who failed have spent, and how often they were asked."""
    spent, attempts = Usage(), 0
    for one in failed:
        if isinstance(one.error, ModelError):
            spent = both(spent, one.error.usage)
            attempts += one.error.attempts
    return spent, attempts


def _with_spent(answer: ModelAnswer, failed: Sequence[_Failed]) -> ModelAnswer:
    spent, attempts = _spent(failed)
    return msgspec.structs.replace(
        answer,
        tokens_used=answer.tokens_used + spent.tokens,
        cost_usd=answer.cost_usd + spent.cost_usd,
        attempts=answer.attempts + attempts,
    )


def _exhausted(failed: Sequence[_Failed]) -> SyscallError:
    """The failure of all: the code of the first, and every reason."""
    first = failed[0].error
    if len(failed) == 1:
        return first
    spent, attempts = _spent(failed)
    known = [one.error for one in failed if isinstance(one.error, ModelError)]
    waits = [error.retry_after for error in known if error.retry_after is not None]
    exhausted = ModelError(
        first.code,
        "all providers exhausted: " + "; ".join(one.told for one in failed),
        transient=any(error.transient for error in known),
        retry_after=min(waits, default=None),
        usage=spent,
        status=first.status if isinstance(first, ModelError) else 0,
    )
    exhausted.attempts = attempts
    return exhausted
