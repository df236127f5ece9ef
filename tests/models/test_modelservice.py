"""A provider as others use it: attempts, limits, the circuit breaker, prices, windows, health."""

import math
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, invalid
from rnixfs.llm import Delta, Message, ModelAnswer, ModelRequest, Role, ToolSpec, Usage
from rnixfs.model import ModelError, ModelInfo
from rnixfs.modelservice import Service, most_calls
from rnixfs.prices import cost
from rnixfs.providers import ModelConfig, ProviderConfig
from rnixfs.windows import window_of
from tests.models.fakemodel import FakeModel, answer, ask, ill, limited, refused, service, spent


async def failure_of(service, request=None, who=1, emit=None) -> ModelError:
    """The error of a call."""
    with pytest.raises(ModelError) as caught:
        await service.ask(request or ask(), who, emit)
    return caught.value


# --- attempts ---


async def test_what_may_succeed_later_is_asked_again(autojump_clock):
    """Transient failures are followed by another attempt, and the answer says how many there were."""
    model = FakeModel(ill(), ill(), answer("at last"))
    got = await service(model).ask(ask(), 1)
    assert (got.content, got.attempts, got.provider) == ("at last", 3, "fake")
    assert len(model.requests) == 3


async def test_waits_between_attempts_grow_with_full_jitter(autojump_clock):
    """The waits are a random part of a bound that doubles."""
    parts = iter([1.0, 0.5, 0.25])
    model = FakeModel(ill(), ill(), ill(), answer())
    await service(model, lambda: next(parts), retries=3).ask(ask(), 1)
    base = limits.MODEL_BACKOFF_SECONDS
    waits = [later - sooner for sooner, later in zip(model.times, model.times[1:], strict=False)]
    assert waits == pytest.approx([base, base * 2 * 0.5, base * 4 * 0.25])


@pytest.mark.parametrize(
    "error",
    [
        refused(),
        refused(Code.PERMISSION, 401),
        refused(Code.NOT_FOUND, 404),
        refused(Code.TOO_LARGE, 413),
        ModelError(Code.DRIVER, "no JSON"),
        ModelError(Code.TIMEOUT, "too slow"),
        invalid("no model is named"),
    ],
    ids=lambda error: str(error.code),
)
async def test_what_would_only_fail_again_is_not_repeated(autojump_clock, error):
    """One attempt, and the failure as the driver raised it."""
    model = FakeModel(error)
    with pytest.raises(SyscallError) as caught:
        await service(model, retries=5).ask(ask(), 1)
    assert (caught.value.code, caught.value.reason) == (error.code, error.reason)
    assert len(model.requests) == 1


@pytest.mark.parametrize("retries", [0, 1, 4])
async def test_attempts_are_bounded(autojump_clock, retries):
    """As many further attempts as the entry says, and the error counts them all."""
    model = FakeModel(ill())
    error = await failure_of(service(model, retries=retries))
    assert (error.attempts, len(model.requests)) == (retries + 1, retries + 1)
    assert (error.code, error.status, error.transient) == (Code.DRIVER, 500, True)


@given(
    st.lists(
        st.one_of(
            st.builds(ill),
            st.builds(limited, st.one_of(st.none(), st.floats(0, 40))),
            st.builds(refused),
        ),
        min_size=1,
        max_size=6,
    ),
    st.floats(0, 1),
    st.integers(1, 60_000),
    st.floats(0, 20),
    st.integers(0, 5),
)
def test_no_attempt_before_retry_after_and_none_after_the_deadline(
    errors, chance, timeout_ms, seconds, retries
):
    """Whatever the failures, the jitter and the time limit."""
    model = FakeModel(*errors, answer(), seconds=seconds)
    told: list[tuple[float, float]] = []

    async def main() -> None:
        one = service(model, lambda: chance, retries=retries)
        began = trio.current_time()
        with pytest.raises(SyscallError) if len(errors) > retries else MayFail():
            await one.ask(ask(timeout_ms=timeout_ms), 1)
        assert trio.current_time() <= began + timeout_ms / 1000 + limits.MODEL_GRACE_SECONDS + 1e-6
        for number, at in enumerate(model.times):
            assert at < began + timeout_ms / 1000
            for seen, until in told:
                assert at <= seen or at >= until - 1e-9
            if number < len(errors) and isinstance(error := errors[number], ModelError):
                told.append((at, at + seconds + (error.retry_after or 0)))
        assert len(model.times) <= retries + 1

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


class MayFail:
    """A block that may fail with an error of the system, or not."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: object, _: object) -> bool:
        return kind is not None and issubclass(kind, SyscallError)


async def test_an_attempt_that_would_come_too_late_is_not_waited_for(autojump_clock):
    """The call fails at once with what is known, and says that there is no time left."""
    model, began = FakeModel(limited(30.0)), trio.current_time()
    error = await failure_of(service(model), ask(timeout_ms=20_000))
    assert trio.current_time() == began
    assert (error.code, error.retry_after, error.attempts) == (Code.SERVICE_UNAVAILABLE, 30, 1)
    assert error.reason == "too many requests; there is no time left for another attempt"
    assert error.as_dict()["retry_after_ms"] == 30_000


async def test_a_driver_that_overlooks_its_time_is_cut_off(autojump_clock):
    """Nothing waits longer than its time and a moment for the driver to end by itself."""
    model, began = FakeModel(seconds=math.inf), trio.current_time()
    error = await failure_of(service(model), ask(timeout_ms=2000))
    assert trio.current_time() - began == pytest.approx(2 + limits.MODEL_GRACE_SECONDS)
    assert error.code is Code.TIMEOUT
    assert error.reason == "fake: no complete answer within 2000 ms"
    assert model.requests[0].timeout_ms == 2000


async def test_each_attempt_is_told_the_time_that_is_left(autojump_clock):
    """All attempts and waits share one time limit; the entry's counts where the request names none."""
    model = FakeModel(ill(), answer(), seconds=1)
    await service(model, timeout_ms=10_000).ask(ask(), 1)
    assert [one.timeout_ms for one in model.requests] == [10_000, 8500]


async def test_what_an_entry_says_fills_what_a_request_leaves_out(autojump_clock):
    """Effort and the most tokens of an answer; a request that names them is left alone."""
    model = FakeModel()
    one = service(model, effort="high", default_model="m", models=[ModelConfig("m", max_tokens=77)])
    await one.ask(ask(), 1)
    await one.ask(ask(effort="low", max_tokens=5), 1)
    await one.ask(ask(model="other"), 1)
    assert [(got.effort, got.max_tokens) for got in model.requests] == [("high", 77), ("low", 5), ("high", 0)]


async def test_a_fault_inside_a_driver_is_no_failure_of_the_provider(autojump_clock):
    """What is no error of the system passes through, and the place is free again."""
    one = service(FakeModel(ValueError("a bug"), answer()), concurrency=1)
    with pytest.raises(ValueError, match="a bug"):
        await one.ask(ask(), 1)
    assert (await one.ask(ask(), 1)).content == "hi"


# --- what was spent ---


async def test_failed_attempts_are_paid_for(autojump_clock):
    """Their tokens and dollars are added; the tokens of the answer itself stay its own."""
    failed = ill(usage=Usage(input_tokens=20, output_tokens=5, cost_usd=0.5))
    model = FakeModel(failed, failed, answer(cost_usd=0.25))
    got = await service(model).ask(ask(), 1)
    assert (got.tokens_used, got.input_tokens, got.output_tokens) == (60, 8, 2)
    assert got.cost_usd == pytest.approx(1.25)


async def test_a_final_error_carries_what_all_attempts_spent(autojump_clock):
    """So a budget counts calls that came to nothing."""
    one = service(FakeModel(ill(usage=spent(7)), ill(usage=spent(11)), refused(usage=spent(2))))
    error = await failure_of(one)
    assert (error.usage.tokens, error.attempts, error.code) == (20, 3, Code.INVALID)
    assert error.as_dict()["tokens_used"] == 20


async def test_an_error_without_usage_after_attempts_with_usage_carries_it(autojump_clock):
    """Also where the last one is no error of the provider."""
    error = await failure_of(service(FakeModel(ill(usage=spent(7)), invalid("cannot be made"))))
    assert (error.code, error.reason, error.usage.tokens) == (Code.INVALID, "cannot be made", 7)


PRICED = ModelConfig("m", input_usd=2.0, output_usd=10.0, cached_usd=0.5)


@pytest.mark.parametrize(
    ("config", "usage", "dollars"),
    [
        (PRICED, Usage(1_000_000, 0), 2.0),
        (PRICED, Usage(0, 1_000_000), 10.0),
        (PRICED, Usage(1_000_000, 0, 0.0, 400_000), 1.4),
        (PRICED, Usage(10, 0, 0.0, 400_000), 5e-6),
        (PRICED, Usage(1_000_000, 1_000_000, 0.125), 0.125),
        (ModelConfig("m", input_usd=2.0), Usage(1_000_000, 0, 0.0, 1_000_000), 2.0),
        (None, Usage(1_000_000, 1_000_000), 0.0),
    ],
)
def test_prices_are_dollars_for_a_million_tokens(config, usage, dollars):
    """Cached input tokens have a price of their own; what the provider says counts more than any price."""
    assert cost(config, usage) == pytest.approx(dollars)


async def test_costs_come_from_the_entry_where_the_provider_names_none(autojump_clock):
    """For the answer and for failed attempts, by the model that answered, or that was asked for."""
    dated = answer(model="m-2026-01-01", input_tokens=1_000_000, output_tokens=0)
    model = FakeModel(ill(usage=Usage(500_000, 0)), dated)
    got = await service(model, models=[PRICED]).ask(ask(model="m"), 1)
    assert got.cost_usd == pytest.approx(3.0)
    error = await failure_of(
        service(FakeModel(refused(usage=Usage(500_000, 0))), models=[PRICED], default_model="m")
    )
    assert error.usage.cost_usd == pytest.approx(1.0)


# --- streams ---


HALF = (Delta("reasoning", "hm"), Delta("text", "half"))


async def test_a_plain_stream_is_not_repeated_after_its_first_text(autojump_clock):
    """Nobody can take back what was given; the error says so."""
    pieces: list[Delta] = []
    model = FakeModel(ill(), answer(), pieces=HALF)
    error = await failure_of(service(model), ask(stream=True), emit=pieces.append)
    assert len(model.requests) == 1
    assert error.reason == "boom; a part of the answer was given already, so it is not asked for again"
    assert pieces == list(HALF)


async def test_a_plain_stream_is_repeated_while_no_text_came(autojump_clock):
    """What the model thinks is not part of a plain stream."""
    pieces: list[Delta] = []
    model = FakeModel(ill(), answer("whole"), pieces=HALF[:1])
    await service(model).ask(ask(stream=True), 1, pieces.append)
    assert [piece.text for piece in pieces if piece.type == "text"] == ["whole"]
    assert "restart" not in [piece.type for piece in pieces]


async def test_a_stream_of_events_begins_anew(autojump_clock):
    """`restart` comes before the pieces of the next attempt, and only where something was given before."""
    pieces: list[Delta] = []
    model = FakeModel(ill(), ill(), answer("half"), pieces=HALF)
    got = await service(model).ask(ask(stream="events"), 1, pieces.append)
    assert got.attempts == 3
    assert pieces == [*HALF, Delta("restart"), *HALF, Delta("restart"), *HALF]
    pieces.clear()
    await service(FakeModel(ill(), answer("x"))).ask(ask(stream="events"), 1, pieces.append)
    assert pieces == [Delta("text", "x")]


@pytest.mark.parametrize("after", [(), (Delta("text", "hello"),)])
async def test_what_a_program_takes_back_itself_is_void(autojump_clock, after):
    """The command line drivers say `restart`, too: when their program asks anew, or answers otherwise than
    it spoke. Pieces together are the answer all the same."""
    pieces: list[Delta] = []
    model = FakeModel(answer("hello"), pieces=(Delta("restart"), *HALF, Delta("restart"), *after))
    await service(model).ask(ask(stream="events"), 1, pieces.append)
    assert pieces == [*HALF, Delta("restart"), Delta("text", "hello")]
    pieces.clear()
    model = FakeModel(answer("hello"), pieces=(*HALF, Delta("restart"), *after))
    await service(model).ask(ask(stream=True), 1, pieces.append)
    assert "restart" not in [piece.type for piece in pieces]


async def test_an_answer_that_came_at_once_is_given_as_one_piece(autojump_clock):
    """Whoever reads pieces gets all of the answer from them, whatever the driver can do."""
    pieces: list[Delta] = []
    await service(FakeModel(answer("all", reasoning="why"))).ask(ask(stream=True), 1, pieces.append)
    assert pieces == [Delta("reasoning", "why"), Delta("text", "all")]


# --- one provider for all ---


async def test_no_more_calls_at_once_than_the_entry_says(autojump_clock):
    """The others wait, and all are answered."""
    model = FakeModel(seconds=1)
    one = service(model, concurrency=3)
    async with trio.open_nursery() as nursery:
        for who in range(10):
            nursery.start_soon(one.ask, ask(), who)
        await trio.testing.wait_all_tasks_blocked()
        row = one.row()
        assert (row["running"], row["waiting"], row["state"]) == (3, 7, "busy")
    assert model.most_running == 3
    assert len(model.requests) == 10


def test_each_driver_has_a_limit_of_its_own():
    """Programs are few, HTTP is many, and what the entry says counts."""

    def most(driver: str, **more: Any) -> float:
        return most_calls(ProviderConfig("p", driver, **more))

    assert most("claude-cli") == most("cursor-cli") == limits.MODEL_CALLS_PROGRAM
    assert most("openai-compat") == most("anthropic") == most("gemini") == limits.MODEL_CALLS_HTTP
    assert most("script") == math.inf
    assert most("claude-cli", concurrency=9) == 9


async def test_a_priority_goes_first(autojump_clock):
    """Of those who wait, the high one is asked next."""
    model = FakeModel(seconds=1)
    one = service(model, concurrency=1)
    async with trio.open_nursery() as nursery:
        for name in ("low", "normal", "high"):
            nursery.start_soon(one.ask, ask(f"first {name}", priority="normal"), 0)
        await trio.testing.wait_all_tasks_blocked()
        for name in ("low", "normal", "high"):
            nursery.start_soon(one.ask, ask(name, priority=name), 1)
    names = [request.intent for request in model.requests]
    assert names.index("high") < names.index("normal") < names.index("low")


async def test_waiting_for_others_counts_as_time(autojump_clock):
    """TIMEOUT says that the call waited for its turn the whole time."""
    one = service(FakeModel(seconds=100), concurrency=1, timeout_ms=200_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.ask, ask(), 1)
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        error = await failure_of(one, ask(timeout_ms=5000), 2)
        assert trio.current_time() - began == pytest.approx(5)
        nursery.cancel_scope.cancel()
    assert error.code is Code.TIMEOUT
    assert "waiting for one of 1 running calls" in error.reason
    assert error.attempts == 0


async def test_a_rate_limit_counts_for_everybody(autojump_clock):
    """One call is refused with a time; nobody starts before it, and then all are answered."""
    model = FakeModel(limited(20.0), answer(), seconds=1)
    one, began = service(model), trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.ask, ask("first"), 1)
        await trio.sleep(5)
        assert one.row()["state"] == "limited"
        assert one.row()["reason"] == "fake: takes no calls for 16 s more"
        for who in (2, 3):
            nursery.start_soon(one.ask, ask("later"), who)
    assert [round(at - began) for at in model.times] == [0, 21, 22, 22]


async def test_a_rate_limit_without_a_time_waits_longer_each_time(autojump_clock):
    """1 s, then 2 s: as no time was named, the waits are a guess that grows."""
    model = FakeModel(limited(), limited(), answer())
    began = trio.current_time()
    await service(model, lambda: 0.0).ask(ask(), 1)
    assert [at - began for at in model.times] == pytest.approx([0, 1, 3])


async def test_what_goes_through_begins_the_guess_anew(autojump_clock):
    """After an answer the first wait is short again."""
    model = FakeModel(limited(), limited(), answer(), limited(), answer())
    one = service(model, lambda: 0.0)
    await one.ask(ask(), 1)
    began = trio.current_time()
    await one.ask(ask(), 1)
    assert trio.current_time() - began == pytest.approx(limits.MODEL_LIMITED_SECONDS)


async def test_another_attempt_goes_before_what_its_process_asked_later(autojump_clock):
    """It has waited longest."""
    model = FakeModel(ill(), answer(), seconds=1)
    one = service(model, lambda: 0.0, concurrency=1)
    async with trio.open_nursery() as nursery:
        for name in ("first", "second", "third"):
            nursery.start_soon(one.ask, ask(name), 1)
            await trio.testing.wait_all_tasks_blocked()
    assert [request.intent for request in model.requests] == ["first", "second", "first", "third"]


async def test_whoever_cannot_wait_for_a_rate_limit_hears_at_once(autojump_clock):
    """With the time after which to ask again, so that another provider can be asked."""
    model = FakeModel(limited(20.0), answer())
    one = service(model)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.ask, ask(), 1)
        await trio.sleep(4)
        error = await failure_of(one, ask(timeout_ms=3000), 2)
    assert error.as_dict()["retry_after_ms"] == 16_000
    assert error.code is Code.SERVICE_UNAVAILABLE


async def test_cancelling_leaves_no_trace(autojump_clock):
    """Wherever a call is cancelled - waiting, asking, between attempts -, the next one is served at once."""
    for outcome, seconds in ((answer(), 9.0), (ill(), 0.0)):
        model = FakeModel(outcome, seconds=seconds)
        one = service(model, concurrency=1)
        with trio.move_on_after(0.1):
            async with trio.open_nursery() as nursery:
                for who in range(3):
                    nursery.start_soon(one.ask, ask(), who)
        row = one.row()
        assert (row["running"], row["waiting"], row["state"]) == (0, 0, "ready")
        model.outcomes, model.seconds, began = [answer("next")], 0.0, trio.current_time()
        assert (await one.ask(ask(), 1)).content == "next"
        assert trio.current_time() == began


async def test_five_hundred_streams_at_once(autojump_clock):
    """All are answered, whole, with no more at once than allowed."""
    words = [Delta("text", f"{n} ") for n in range(20)]
    model = FakeModel(answer("".join(word.text for word in words)), seconds=1, pieces=words)
    one, got = service(model, timeout_ms=600_000), dict[int, str]()

    async def reader(who: int) -> None:
        pieces: list[Delta] = []
        await one.ask(ask(stream="events"), who, pieces.append)
        got[who] = "".join(piece.text for piece in pieces)

    async with trio.open_nursery() as nursery:
        for who in range(500):
            nursery.start_soon(reader, who)
    assert len(got) == 500
    assert set(got.values()) == {"".join(word.text for word in words)}
    assert model.most_running == limits.MODEL_CALLS_HTTP


# --- the circuit breaker ---


async def opened(*outcomes: Any, **more: Any) -> tuple[Service, FakeModel]:
    """A service whose circuit has just opened."""
    model = FakeModel(ill("the server burns"))
    one = service(model, retries=0, **more)
    for _ in range(limits.BREAKER_FAILURES):
        await failure_of(one)
    model.outcomes = list(outcomes)
    model.requests.clear()
    return one, model


async def test_an_ill_provider_is_left_alone(autojump_clock):
    """After failures in a row calls fail at once, with the reason and the time of the next attempt."""
    one, model = await opened(answer())
    error = await failure_of(one)
    assert model.requests == []
    assert (error.code, error.retry_after) == (Code.SERVICE_UNAVAILABLE, limits.BREAKER_SECONDS)
    assert "the server burns" in error.reason
    row = one.row()
    assert (row["state"], row["available"]) == ("open", True)
    assert row["reason"] == error.reason


async def test_after_a_while_one_call_tries(autojump_clock):
    """One passes; the others fail at once while it is on its way; its success lets all go."""
    one, model = await opened(answer())
    model.seconds = 3
    await trio.sleep(limits.BREAKER_SECONDS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.ask, ask("the trial"), 1)
        await trio.testing.wait_all_tasks_blocked()
        await failure_of(one)
    assert [request.intent for request in model.requests] == ["the trial"]
    assert (await one.ask(ask(), 1)).content == "hi"


async def test_those_who_wait_hear_that_the_provider_is_ill(autojump_clock):
    """They do not wait for a place at a provider that nobody asks."""
    model = FakeModel(ill(), seconds=1)
    one = service(model, retries=0, concurrency=1)
    errors: list[ModelError] = []

    async def call(who: int) -> None:
        errors.append(await failure_of(one, who=who))

    async with trio.open_nursery() as nursery:
        for who in range(20):
            nursery.start_soon(call, who)
    assert len(model.requests) == limits.BREAKER_FAILURES
    assert sum("left alone" in error.reason for error in errors) == 20 - limits.BREAKER_FAILURES


async def test_those_who_wait_for_a_limit_hear_that_the_provider_is_ill(autojump_clock):
    """At once, not when the time is over that it asked for."""
    unwell = ModelError(Code.SERVICE_UNAVAILABLE, "repairs", transient=True, status=503, retry_after=50.0)
    model = FakeModel(*[ill()] * (limits.BREAKER_FAILURES - 1), unwell, seconds=1)
    one = service(model, retries=0, concurrency=1)
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for who in range(limits.BREAKER_FAILURES + 5):
            nursery.start_soon(failure_of, one, None, who)
    assert trio.current_time() - began == pytest.approx(limits.BREAKER_FAILURES)


async def test_of_two_let_in_together_one_tries(autojump_clock):
    """The provider was limited and fell ill; when both are over, one of those who waited is the trial. The
    other fails at once, and takes no place."""

    def outcome(request: ModelRequest) -> ModelAnswer:
        if request.intent == "bad":
            raise ill()
        if request.intent == "limited":
            raise limited(60.0)
        return answer()

    one = service(FakeModel(outcome, seconds=1), retries=0, concurrency=20, timeout_ms=600_000)
    began, ends = trio.current_time(), list[tuple[str, float]]()

    async def call(intent: str) -> None:
        try:
            await one.ask(ask(intent), intent)
            ends.append(("answered", trio.current_time() - began))
        except ModelError as error:
            end = "refused" if "left alone" in error.reason else "failed"
            ends.append((end, trio.current_time() - began))

    async with trio.open_nursery() as nursery:
        for intent, count in (("limited", 1), ("good", 3), ("bad", limits.BREAKER_FAILURES)):
            for _ in range(count):
                nursery.start_soon(call, intent)
            await trio.sleep(0.1)
        await trio.sleep(limits.BREAKER_SECONDS * 2)
        assert (one.row()["state"], len(ends)) == ("open", 4 + limits.BREAKER_FAILURES)
        ends.clear()
        nursery.start_soon(call, "one")
        nursery.start_soon(call, "other")
    assert [(end, round(at)) for end, at in ends] == [("refused", 61), ("answered", 62)]
    assert (one.row()["running"], one.row()["waiting"], one.row()["state"]) == (0, 0, "ready")


async def test_a_call_whose_provider_falls_ill_between_attempts_says_both(autojump_clock):
    """How it failed itself, and why it is not asked again."""
    model = FakeModel(ill(usage=spent(4)))
    one = service(model, lambda: 0.0, retries=20)
    error = await failure_of(one)
    assert len(model.requests) == limits.BREAKER_FAILURES
    assert error.reason.startswith("boom; fake: is left alone for 5 s after failures in a row")
    assert (error.code, error.attempts) == (Code.DRIVER, limits.BREAKER_FAILURES)
    assert error.usage.tokens == 4 * limits.BREAKER_FAILURES


@pytest.mark.parametrize(
    "error",
    [refused(), refused(Code.PERMISSION, 401), limited(0.0), ModelError(Code.DRIVER, "no JSON")],
    ids=["400", "401", "429", "other"],
)
async def test_failures_that_say_nothing_of_its_health_do_not_open(autojump_clock, error):
    """A provider that refuses is not ill."""
    one = service(FakeModel(error), retries=0)
    for _ in range(3 * limits.BREAKER_FAILURES):
        await failure_of(one)
    assert one.row()["state"] != "open"


async def test_cancelled_calls_do_not_open(autojump_clock):
    """Who gives up says nothing of the provider."""
    one = service(FakeModel(seconds=math.inf))
    for _ in range(3 * limits.BREAKER_FAILURES):
        with trio.move_on_after(100):
            await one.ask(ask(timeout_ms=1_000_000), 1)
    assert one.row()["state"] == "ready"


@pytest.mark.parametrize(
    ("timeout_ms", "pieces", "state"),
    [(30_000, (), "open"), (1000, (), "ready"), (30_000, (Delta("text", "slow"),), "ready")],
    ids=["silent", "impatient", "slow"],
)
async def test_a_timeout_counts_where_the_provider_had_time_and_was_silent(
    autojump_clock, timeout_ms, pieces, state
):
    """A process with little patience cannot close a provider for all; and who speaks is not dead."""
    one = service(FakeModel(seconds=math.inf, pieces=pieces))
    for _ in range(limits.BREAKER_FAILURES):
        await failure_of(one, ask(timeout_ms=timeout_ms, stream=True), emit=lambda piece: None)
    assert one.row()["state"] == state


async def test_a_script_that_plays_failures_is_not_ill(autojump_clock):
    """A rehearsal of a bad day goes on to its end."""
    one = service(FakeModel(ill()), driver="script", retries=0)
    for _ in range(3 * limits.BREAKER_FAILURES):
        assert (await failure_of(one)).reason == "boom"


# --- tools of models without tools ---


ACT = '{"action": "tool_call", "tool": "ls", "data": {"path": "/"}}'
LS = ToolSpec("ls", "lists", {"type": "object"})


async def test_an_action_in_the_text_becomes_a_call(autojump_clock):
    """A model without tools answers as one with tools does; the words around stay."""
    one = service(FakeModel(answer(f"I look.\n{ACT}"), native=False))
    got = await one.ask(ask(tools=[LS]), 1)
    assert [(call.name, call.arguments) for call in got.tool_calls] == [("ls", {"path": "/"})]
    assert (got.content, got.stop_reason) == ("I look.", "tool_calls")
    later = ModelRequest(
        messages=[Message(Role.USER, "go"), Message(Role.ASSISTANT, tool_calls=got.tool_calls)], tools=[LS]
    )
    again = await one.ask(later, 1)
    assert again.tool_calls[0].id != got.tool_calls[0].id


@pytest.mark.parametrize(
    ("native", "tools", "text"),
    [(True, [LS], ACT), (False, [], ACT), (False, [LS], "just words"), (False, [LS], '{"action": "plan"}')],
)
async def test_other_answers_stay_as_they_are(autojump_clock, native, tools, text):
    """Models with tools, requests without, and texts that call nothing."""
    got = await service(FakeModel(answer(text), native=native)).ask(ask(tools=tools), 1)
    assert (got.content, got.tool_calls, got.stop_reason) == (text, [], "end")


async def test_pieces_of_an_action_are_not_shown(autojump_clock):
    """A reader gets the words as one piece when it is clear what they are, and thoughts as they come."""
    pieces: list[Delta] = []
    model = FakeModel(answer(f"I look. {ACT}"), native=False)
    model.pieces = [Delta("reasoning", "hm"), Delta("text", "I look. "), Delta("text", ACT)]
    await service(model).ask(ask(tools=[LS], stream="events"), 1, pieces.append)
    assert pieces == [Delta("reasoning", "hm"), Delta("text", "I look.")]


# --- models and windows ---


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("claude-sonnet-4-5-20250929", 200_000),
        ("sonnet", 200_000),
        ("sonnet[1m]", 1_000_000),
        ("anthropic/claude-3.5-haiku", 200_000),
        ("gpt-4", 8192),
        ("gpt-4-0613", 8192),
        ("gpt-4o-mini", 128_000),
        ("gpt-4.1-nano", 1_047_576),
        ("gpt-4-turbo-2024-04-09", 128_000),
        ("GPT-5-mini", 400_000),
        ("gpt-5.2", 400_000),
        ("o1-mini-2024-09-12", 128_000),
        ("models/gemini-2.5-flash", 1_048_576),
        ("gpt-oss-120b", 0),
        ("o10", 0),
        ("qwen3", 0),
        ("weird[1m]", 0),
        ("", 0),
    ],
)
def test_windows_of_well_known_families(name, tokens):
    """By the longest family that fits; what nobody knows is 0, not a guess."""
    assert window_of(name) == tokens


async def test_windows_by_who_knows_best(autojump_clock):
    """The entry, then the provider (with the answer, or when checked), then the table."""
    model = FakeModel(answer(model="gpt-4"))
    one = service(model, models=[ModelConfig("gpt-4o", context_window=1000)], default_model="gpt-4o")
    assert one.window() == 1000
    assert (await one.ask(ask(), 1)).context_window == 1000
    assert (await one.ask(ask(model="gpt-4"), 1)).context_window == 8192
    model.infos = [ModelInfo("gpt-4", 4000), ModelInfo("tiny", 512)]
    await one.check()
    assert (await one.ask(ask(model="gpt-4"), 1)).context_window == 4000
    model.outcomes = [answer(model="gpt-4", context_window=2000)]
    assert (await one.ask(ask(model="gpt-4"), 1)).context_window == 2000
    assert one.models() == [
        {"name": "gpt-4o", "context_window": 1000},
        {"name": "gpt-4", "context_window": 2000},
        {"name": "tiny", "context_window": 512},
    ]


# --- health ---


async def test_a_row_says_how_it_does(autojump_clock):
    """Counts, the last failure, and the time until the last answer began to come."""
    model = FakeModel(ill("once"), answer(), seconds=0.25)
    one = service(model, lambda: 0.0)
    assert one.row() == {
        "name": "fake", "driver": "openai-compat", "state": "ready", "available": True, "reason": "",
        "latency_ms": None, "calls": 0, "failures": 0, "running": 0, "waiting": 0, "last_error": "",
    }  # fmt: skip
    await one.ask(ask(), 1)
    row = one.row()
    assert (row["calls"], row["failures"], row["last_error"], row["latency_ms"]) == (2, 1, "once", 250)
    model.pieces = [Delta("text", "at once")]
    await one.ask(ask(stream=True), 1, lambda piece: None)
    assert one.row()["latency_ms"] == 0
    model.outcomes = [ill(), answer()]
    await one.ask(ask(stream="events"), 1, lambda piece: None)
    assert one.row()["latency_ms"] == 0
    model.reason = "no key"
    row = one.row()
    assert (row["state"], row["available"], row["reason"]) == ("unavailable", False, "no key")
    assert one.unavailable() == "no key"


async def test_a_check_spends_nothing_and_is_remembered(autojump_clock):
    """It gives the models that there are; a failure is the last error; the time is bounded."""
    model = FakeModel(seconds=0.5)
    model.infos = [ModelInfo("tiny", 512)]
    one = service(model)
    assert await one.check() == model.infos
    assert one.row()["latency_ms"] == 500
    assert model.requests == []
    model.infos = SyscallError(Code.SERVICE_UNAVAILABLE, "down")
    with pytest.raises(SyscallError, match="down"):
        await one.check()
    assert one.row()["last_error"] == "down"
    model.seconds = math.inf
    with pytest.raises(ModelError, match="fake: no answer within 10 s"):
        await one.check()


async def test_a_good_check_lets_the_next_call_try(autojump_clock):
    """Who repaired a server need not wait until it is noticed."""
    one, _ = await opened(answer())
    await failure_of(one)
    await one.check()
    assert (await one.ask(ask(), 1)).content == "hi"


async def test_closing_closes_the_model():
    """Connections and processes are let go of."""
    model = FakeModel()
    await service(model).aclose()
    assert model.closed


async def test_an_answer_of_the_driver_is_not_changed(autojump_clock):
    """What a service adds goes into a copy, so a driver may keep its own."""
    mine = answer()
    before = msgspec.structs.replace(mine)
    got = await service(FakeModel(mine), models=[PRICED]).ask(ask(), 1)
    assert mine == before
    assert isinstance(got, ModelAnswer)
    assert got.provider == "fake"
