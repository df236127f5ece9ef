"""One call of a provider, over all attempts to get its answer."""

import dataclasses
from collections.abc import Hashable

import msgspec

from rnixfs.errors import SyscallError
from rnixfs.llm import ModelRequest, Usage
from rnixfs.model import ModelError
from rnixfs.pieces import Pieces
from rnixfs.prices import cost
from rnixfs.providers import ModelConfig


@dataclasses.dataclass
class Call:
    """One call, over all of its attempts.

    Args:
        request: what is asked, with what the entry fills in.
        config: what is configured of the model that it names.
        who: the process that asks.
        pieces: the answer on its way out.
        began: when it was asked, in seconds of trio's clock.
        deadline: when it must have ended.
        attempts: how often the provider was asked.
        spent: what failed attempts cost.
        failure: how the last attempt failed.
    """

    request: ModelRequest
    config: ModelConfig | None
    who: Hashable
    pieces: Pieces
    began: float
    deadline: float
    attempts: int = 0
    spent: Usage = dataclasses.field(default_factory=Usage)
    failure: SyscallError | None = None

    @property
    def millis(self) -> int:
        """Milliseconds that the whole call may take."""
        return round((self.deadline - self.began) * 1000)

    def ended(self, error: SyscallError, why: str = "") -> SyscallError:
        """The failure of the call: the error, with what all attempts spent.

        Args:
            error: how its last attempt failed, or why there is none.
            why: why there is no other attempt.
        """
        first = self.failure if self.failure is not None else error
        if not isinstance(error, ModelError) and self.attempts <= 1:
            return error
        told = [first.reason] if first is error else [first.reason, error.reason]
        ended = ModelError(
            first.code,
            "; ".join([*told, why] if why else told),
            transient=isinstance(error, ModelError) and error.transient,
            retry_after=error.retry_after if isinstance(error, ModelError) else None,
            usage=msgspec.structs.replace(self.spent, cost_usd=cost(self.config, self.spent)),
            status=first.status if isinstance(first, ModelError) else 0,
        )
        ended.attempts = self.attempts
        return ended
