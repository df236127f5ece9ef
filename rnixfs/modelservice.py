"""A provider as others use it: what stands between a model's file and the driver that asks once.

One call of `Service.ask` waits for its turn, asks, and asks again where that may help, all within one time
limit. What the provider says of its limits counts for everybody who calls it, and so does that it is ill.
"""

import dataclasses
import math
import random
from collections.abc import Callable, Hashable
from typing import Any

import msgspec
import trio

from rnixfs import limits
from rnixfs.admission import Admission, Waiting
from rnixfs.backoff import RateLimit, delay
from rnixfs.breaker import Breaker, Verdict
from rnixfs.errors import Code, SyscallError
from rnixfs.llm import Emit, ModelAnswer, ModelRequest, Usage
from rnixfs.model import Model, ModelError, ModelInfo
from rnixfs.modelcall import Call
from rnixfs.pieces import Pieces
from rnixfs.presets import CLAUDE_CLI, CURSOR_CLI, SCRIPT
from rnixfs.prices import both, cost
from rnixfs.providers import ModelConfig, ProviderConfig
from rnixfs.texttools import take_calls
from rnixfs.windows import window_of

_MOST = {
    CLAUDE_CLI: limits.MODEL_CALLS_PROGRAM,
    CURSOR_CLI: limits.MODEL_CALLS_PROGRAM,
    SCRIPT: math.inf,  # it costs nothing
}
_TOO_MANY = 429  # the HTTP status of a rate limit


@dataclasses.dataclass
class _Health:
    """What is remembered of a provider.

    Args:
        calls: how often it was asked.
        failures: how often that failed.
        latency: seconds until its last answer began to come.
        last_error: the last failure.
        models: what it said of its models.
    """

    calls: int = 0
    failures: int = 0
    latency: float | None = None
    last_error: str = ""
    models: dict[str, int] = dataclasses.field(default_factory=dict)


class Service:
    """A provider with a queue, limits, repeated attempts, a circuit breaker and prices.

    Args:
        entry: its configuration.
        model: asks it once.
        chance: gives numbers from 0 to 1, for the jitter of waits.
    """

    def __init__(
        self, entry: ProviderConfig, model: Model, chance: Callable[[], float] = random.random
    ) -> None:
        self.entry = entry
        self.model = model
        self._chance = chance
        self._admission = Admission(entry.name, most_calls(entry))
        # A script that plays a failure is not ill.
        self._breaker = Breaker(math.inf) if entry.driver == SCRIPT else Breaker()
        self._limit = RateLimit()
        self._health = _Health()

    # --- asking ---

    async def ask(
        self, request: ModelRequest, who: Hashable, emit: Emit | Pieces | None = None
    ) -> ModelAnswer:
        """Ask, and wait for the whole answer.

        Args:
            request: the request; its `fallback` is others' business.
            who: the process that asks; those who wait take turns.
            emit: takes pieces as they come; `restart` only where `request.stream` is `"events"`. Together
                they are the answer's text and reasoning, whatever the driver does.

        Raises:
            ModelError: it did not answer, with what all attempts spent.
            SyscallError: the request cannot be made.
        """
        call = self._call(request, who, emit)
        while True:
            await self._enter(call)
            outcome = await self._attempt(call)
            if isinstance(outcome, ModelAnswer):
                return outcome
            await self._pause(call, outcome)

    def _call(self, request: ModelRequest, who: Hashable, emit: Emit | Pieces | None) -> Call:
        config = self._config(request.model)
        request = msgspec.structs.replace(
            request,
            effort=request.effort or self.entry.effort,
            max_tokens=request.max_tokens or (config.max_tokens if config is not None else 0),
        )
        now = trio.current_time()
        seconds = (request.timeout_ms or self.entry.timeout_ms) / 1000
        return Call(request, config, who, Pieces.of(emit, request), now, now + seconds)

    async def _enter(self, call: Call) -> None:
        """Wait for the call's turn."""
        try:
            self._refuse_if_open()
            again = call.attempts > 0
            await self._admission.enter(call.who, call.request.priority, call.deadline, again)
            try:
                self._refuse_if_open()
            except ModelError:
                self._admission.leave()
                raise
        except ModelError as error:
            raise call.ended(error) from None

    async def _attempt(self, call: Call) -> ModelAnswer | SyscallError:
        """Ask once; the call has entered, and leaves."""
        started, number, verdict = trio.current_time(), self._breaker.begin(), Verdict.NOTHING
        call.attempts += 1
        self._health.calls += 1
        try:
            answer = await self._complete(call)
            verdict = Verdict.WELL
            return self._succeeded(call, answer, started)
        except SyscallError as error:
            verdict = self._verdict(call, error, started)
            self._failed(call, error, started)
            return error
        finally:
            self._breaker.end(number, verdict, trio.current_time())
            if self._breaker.wait(trio.current_time()):
                self._admission.refuse(self._broken)
            self._admission.leave()

    async def _complete(self, call: Call) -> ModelAnswer:
        left = call.deadline - trio.current_time()
        request = msgspec.structs.replace(call.request, timeout_ms=max(1, int(left * 1000)))
        call.pieces.begin()
        emit = call.pieces.sink(text=self.model.native_tools or not request.tools)
        with trio.move_on_at(call.deadline + limits.MODEL_GRACE_SECONDS):
            return await self.model.complete(request, emit)
        raise ModelError(Code.TIMEOUT, f"{self.entry.name}: no complete answer within {call.millis} ms")

    async def _pause(self, call: Call, error: SyscallError) -> None:
        """Wait before another attempt.

        Raises:
            SyscallError: there is none.
        """
        call.failure = None
        if not isinstance(error, ModelError) or not error.transient or call.attempts > self.entry.retries:
            raise call.ended(error)
        if call.pieces.stuck:
            raise call.ended(error, "a part of the answer was given already, so it is not asked for again")
        start = trio.current_time() + delay(call.attempts, self._chance)
        if max(start, self._admission.held_until) >= call.deadline:
            raise call.ended(error, "there is no time left for another attempt")
        call.failure = error
        await trio.sleep_until(start)

    # --- what an attempt means ---

    def _verdict(self, call: Call, error: SyscallError, started: float) -> Verdict:
        if not isinstance(error, ModelError):
            return Verdict.NOTHING
        if 400 <= error.status < 500:
            return Verdict.WELL  # it answers, if only to say no
        if error.transient:
            return Verdict.ILL
        patience = 0.9 * min(limits.BREAKER_PATIENCE_SECONDS, self.entry.timeout_ms / 1000)
        silent = call.pieces.first_at == math.inf and trio.current_time() - started >= patience
        return Verdict.ILL if error.code is Code.TIMEOUT and silent else Verdict.NOTHING

    def _failed(self, call: Call, error: SyscallError, started: float) -> None:
        self._health.failures += 1
        self._health.last_error = error.reason
        if not isinstance(error, ModelError):
            return
        call.spent = both(call.spent, error.usage)
        if error.status == _TOO_MANY or error.retry_after is not None:
            now = trio.current_time()
            self._admission.hold(self._limit.told(started, now, error.retry_after))

    def _succeeded(self, call: Call, answer: ModelAnswer, started: float) -> ModelAnswer:
        self._limit.passed()
        self._admission.succeeded()
        self._health.latency = min(trio.current_time(), call.pieces.first_at) - started
        answer = self._completed(call, answer)
        if call.request.tools and not self.model.native_tools:
            take_calls(call.request, answer)
        call.pieces.end(answer)
        return answer

    def _completed(self, call: Call, answer: ModelAnswer) -> ModelAnswer:
        """A copy of the answer, with what the driver cannot know."""
        config = self._config(answer.model, call.request.model)
        usage = Usage(answer.input_tokens, answer.output_tokens, answer.cost_usd, answer.cached_tokens)
        return msgspec.structs.replace(
            answer,
            tokens_used=answer.tokens_used + call.spent.tokens,
            cost_usd=cost(config, usage) + cost(config, call.spent),
            context_window=self._window(answer, config),
            provider=self.entry.name,
            attempts=call.attempts,
        )

    # --- models ---

    def _config(self, *names: str) -> ModelConfig | None:
        """What is configured of a model, under the first of its names that is known."""
        named = (self.entry.model(name or self.entry.default_model) for name in names)
        return next((config for config in named if config is not None), None)

    def _window(self, answer: ModelAnswer, config: ModelConfig | None) -> int:
        if answer.context_window:
            self._health.models[answer.model] = answer.context_window
        configured = config.context_window if config is not None else 0
        return configured or self.window(answer.model)

    def window(self, model: str = "") -> int:
        """Tokens that a model takes at most: as configured, as the provider said, or as is well known.

        Args:
            model: the model; empty for the default.

        Returns:
            0 where nobody knows.
        """
        model = model or self.entry.default_model
        config = self.entry.model(model)
        configured = config.context_window if config is not None else 0
        return configured or self._health.models.get(model, 0) or window_of(model)

    def models(self) -> list[dict[str, Any]]:
        """The models that are known, with their windows (0: unknown), the configured ones first."""
        names = [*(one.name for one in self.entry.models), self.entry.default_model, *self._health.models]
        return [
            {"name": name, "context_window": self.window(name)} for name in dict.fromkeys(filter(None, names))
        ]

    # --- health ---

    def unavailable(self) -> str:
        """Why it cannot be used at all, in a sentence; empty when it can."""
        return self.model.unavailable()

    def row(self) -> dict[str, Any]:
        """How it does, as a line of `sys/providers`."""
        unavailable = self.unavailable()
        state, reason = self._state(unavailable)
        latency = self._health.latency
        return {
            "name": self.entry.name,
            "driver": self.entry.driver,
            "state": state,
            "available": not unavailable,
            "reason": reason,
            "latency_ms": None if latency is None else round(latency * 1000, 1),
            "calls": self._health.calls,
            "failures": self._health.failures,
            "running": self._admission.running,
            "waiting": self._admission.waiting,
            "last_error": self._health.last_error,
        }

    def _state(self, unavailable: str) -> tuple[str, str]:
        if unavailable:
            return "unavailable", unavailable
        if self._breaker.open:
            return "open", self._broken().reason
        if held := self._admission.held():
            return "limited", f"{self.entry.name}: takes no calls for {held:.3g} s more"
        return ("busy", "") if self._admission.full else ("ready", "")

    async def check(self) -> list[ModelInfo]:
        """Ask the provider whether it would answer, without spending anything.

        Returns:
            the models that it says it has.

        Raises:
            SyscallError: why it would not; TIMEOUT after `limits.MODEL_CHECK_SECONDS`.
        """
        started = trio.current_time()
        try:
            found = await self._checked()
        except SyscallError as error:
            self._health.last_error = error.reason
            raise
        self._health.latency = trio.current_time() - started
        self._health.models.update((one.name, one.context_window) for one in found)
        self._breaker.try_now()
        return found

    async def _checked(self) -> list[ModelInfo]:
        with trio.move_on_after(limits.MODEL_CHECK_SECONDS + limits.MODEL_GRACE_SECONDS):
            return await self.model.check()
        text = f"{self.entry.name}: no answer within {limits.MODEL_CHECK_SECONDS:g} s"
        raise ModelError(Code.TIMEOUT, text)

    async def aclose(self) -> None:
        """Let go of connections and processes. Not to be used afterwards."""
        await self.model.aclose()

    # --- the circuit breaker ---

    def _refuse_if_open(self) -> None:
        if self._breaker.wait(trio.current_time()):
            raise self._broken()

    def _broken(self, _: Waiting | None = None) -> ModelError:
        wait = self._breaker.wait(trio.current_time())
        until = f"for {wait:.3g} s" if wait else "until the next call has tried it"
        text = f"{self.entry.name}: is left alone {until} after failures in a row"
        if self._health.last_error:
            text = f"{text}, the last one: {self._health.last_error}"
        return ModelError(Code.SERVICE_UNAVAILABLE, text, transient=True, retry_after=wait)


def most_calls(entry: ProviderConfig) -> float:
    """How many calls of a provider may run at once."""
    return entry.concurrency or _MOST.get(entry.driver, limits.MODEL_CALLS_HTTP)
