"""A model that does what a test says, and notes what it was asked."""

from collections.abc import Callable, Sequence
from typing import Any

import trio

from rnixfs.errors import Code, SyscallError
from rnixfs.llm import Delta, Emit, ModelAnswer, ModelRequest, Usage
from rnixfs.model import Model, ModelError, ModelInfo
from rnixfs.modelservice import Service
from rnixfs.providers import ProviderConfig

Outcome = ModelAnswer | Exception | Callable[[ModelRequest], ModelAnswer]


def answer(content: str = "hi", **more: Any) -> ModelAnswer:
    """An answer that used ten tokens."""
    usage: dict[str, Any] = {"tokens_used": 10, "input_tokens": 8, "output_tokens": 2, "model": "m"}
    return ModelAnswer(content=content, **usage | more)


def ill(text: str = "boom", status: int = 500, **more: Any) -> ModelError:
    """A failure after which another attempt may help."""
    return ModelError(Code.DRIVER, text, transient=True, status=status, **more)


def limited(retry_after: float | None = None, **more: Any) -> ModelError:
    """A refusal because there were too many calls."""
    text = "too many requests"
    more = {"transient": True, "status": 429, "retry_after": retry_after} | more
    return ModelError(Code.SERVICE_UNAVAILABLE, text, **more)


def refused(code: Code = Code.INVALID, status: int = 400, **more: Any) -> ModelError:
    """A failure that another attempt would only repeat."""
    return ModelError(code, "refused", status=status, **more)


def spent(tokens: int) -> Usage:
    """The usage of a failed attempt."""
    return Usage(input_tokens=tokens - 1, output_tokens=1)


class FakeModel(Model):
    """Gives one outcome after the other; the last one again and again.

    Args:
        outcomes: what comes back; an error is raised, a function is asked.
        name: the provider's.
        seconds: how long an attempt takes.
        pieces: what is emitted before that, wherever somebody listens.
        native: whether it takes tools.
    """

    def __init__(
        self,
        *outcomes: Outcome,
        name: str = "fake",
        seconds: float = 0.0,
        pieces: Sequence[Delta] = (),
        native: bool = True,
    ) -> None:
        self.provider = name
        self.outcomes = list(outcomes or [answer()])
        self.seconds = seconds
        self.pieces = list(pieces)
        self.native_tools = native
        self.reason = ""
        self.requests: list[ModelRequest] = []
        self.times: list[float] = []
        self.running = 0
        self.most_running = 0
        self.infos: list[ModelInfo] | SyscallError = []
        self.closed = False

    def unavailable(self) -> str:
        return self.reason

    def details(self) -> dict[str, object]:
        return {"driver": "fake"}

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> ModelAnswer:
        self.requests.append(request)
        self.times.append(trio.current_time())
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            for piece in self.pieces if emit is not None else ():
                assert emit is not None
                emit(piece)
            await trio.sleep(self.seconds)
        finally:
            self.running -= 1
        if isinstance(outcome, Exception):
            raise outcome
        return outcome(request) if callable(outcome) else outcome

    async def check(self) -> list[ModelInfo]:
        await trio.sleep(self.seconds)
        if isinstance(self.infos, SyscallError):
            raise self.infos
        return self.infos

    async def aclose(self) -> None:
        self.closed = True


def service(model: FakeModel, chance: Callable[[], float] = lambda: 1.0, **entry: Any) -> Service:
    """A service over a fake, of a driver with ordinary limits; jitter is at its largest."""
    fields: dict[str, Any] = {"driver": "openai-compat", "timeout_ms": 60_000} | entry
    return Service(ProviderConfig(model.provider, **fields), model, chance)


def ask(intent: str = "hi", **more: Any) -> ModelRequest:
    """A request."""
    return ModelRequest(intent, **more)
