"""The port that every provider of models implements."""

import abc

import msgspec
import trio

from rnixfs import llm
from rnixfs.errors import Code, SyscallError


class ModelInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model that a provider says it has.

    Args:
        name: as the provider calls it.
        context_window: tokens that it takes at most; 0 where the provider does not say.
    """

    name: str
    context_window: int = 0


_NOTHING = llm.Usage()


class ModelError(SyscallError):
    """A provider did not answer, or not as it should.

    Args:
        code: what it means for the caller.
        reason: a sentence that begins with the provider's name.
        transient: whether the same request may well succeed a little later.
        retry_after: seconds after which the provider wants to be asked again; None where it did not say.
        usage: what was spent all the same.
        status: the HTTP status, 0 without one.
    """

    def __init__(
        self,
        code: Code,
        reason: str,
        *,
        transient: bool = False,
        retry_after: float | None = None,
        usage: llm.Usage = _NOTHING,
        status: int = 0,
    ) -> None:
        super().__init__(code, reason)
        self.transient = transient
        self.retry_after = retry_after
        self.usage = usage
        self.status = status
        self.attempts = 1

    def as_dict(self) -> dict[str, object]:
        """The error, with what a caller needs to decide about another attempt and to count what was spent."""
        shown = {**super().as_dict(), "retryable": self.transient, "attempts": self.attempts}
        if self.retry_after is not None:
            shown["retry_after_ms"] = round(self.retry_after * 1000)
        if self.status:
            shown["status"] = self.status
        if self.usage != _NOTHING:
            shown |= {"tokens_used": self.usage.tokens, "cost_usd": self.usage.cost_usd}
        return shown


class Model(abc.ABC):
    """A provider of answers.

    Args:
        provider: its name under `dev/llm/`.
        native_tools: whether it takes `tools` and answers with `tool_calls`; others get the tools
            described in the prompt and answer with one JSON object in the text.
    """

    provider: str
    native_tools: bool = False

    @abc.abstractmethod
    def unavailable(self) -> str:
        """Why it cannot be used now, in a sentence; empty when it can. Quick, and spends nothing."""

    @abc.abstractmethod
    def details(self) -> dict[str, object]:
        """What its description says beside the common part: driver, default model, address or command."""

    @abc.abstractmethod
    async def complete(self, request: llm.ModelRequest, emit: llm.Emit | None = None) -> llm.ModelAnswer:
        """Ask once, without any second attempt, and wait for the whole answer.

        Args:
            request: the request. What it says of `stream`, `priority` and `fallback` is others' business.
            emit: takes text and reasoning as they come; None where nobody wants them before the end.

        Raises:
            ModelError: what failed, TIMEOUT after `request.timeout_ms`; says what was spent all the same.
            SyscallError: the request cannot be made, and another attempt would not help.
        """

    async def check(self) -> list[ModelInfo]:
        """Ask the provider, without spending anything, whether it would answer.

        Returns:
            the models that it says it has; empty where it does not say.

        Raises:
            SyscallError: why it would not.
        """
        await trio.lowlevel.checkpoint()
        if reason := self.unavailable():
            raise SyscallError(Code.SERVICE_UNAVAILABLE, reason)
        return []

    async def aclose(self) -> None:
        """Let go of connections and processes. Not to be used afterwards."""
