"""Who is asked when a provider cannot answer, and who may ask whom."""

import math
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, invalid
from rnixfs.llm import Delta, Fallback, ModelAnswer, Usage
from rnixfs.model import ModelError
from rnixfs.modelfallback import Fallbacks
from rnixfs.modelservice import Service
from rnixfs.types import Caller
from tests.models.fakemodel import FakeModel, Outcome, answer, ask, ill, limited, refused, service, spent

PERSON = Caller(1000, 1000)
AGENT = Caller(1000, 1000, agent=7)


class Town:
    """Some providers that know each other.

    Args:
        permitted: the providers that a process may use.
        more: by name, what a provider answers, or the provider.
    """

    def __init__(self, permitted=(), **more: Outcome | FakeModel) -> None:
        self.models = {
            name: one if isinstance(one, FakeModel) else FakeModel(one, name=name)
            for name, one in more.items()
        }
        self.entries: dict[str, dict[str, Any]] = {name: {"retries": 0} for name in more}
        self.services: dict[str, Service] = {}
        paths = {f"/dev/llm/{name}" for name in permitted}
        self.fallbacks = Fallbacks(self.find, lambda caller, path: not caller.agent or path in paths)

    def entry(self, name: str, *fallback: Fallback, **fields: Any) -> None:
        """Configure a provider."""
        self.entries[name] |= {"fallback": list(fallback), **fields}

    def find(self, name: str) -> Service | None:
        if name not in self.models:
            return None
        if name not in self.services:
            self.services[name] = service(self.models[name], lambda: 0.0, **self.entries[name])
        return self.services[name]

    async def ask(self, name="a", caller=PERSON, emit=None, **more: Any) -> ModelAnswer:
        first = self.find(name)
        assert first is not None
        return await self.fallbacks.ask(first, ask(**more), caller, emit)

    async def failure(self, name="a", caller=PERSON, emit=None, **more: Any) -> SyscallError:
        with pytest.raises(SyscallError) as caught:
            await self.ask(name, caller, emit, **more)
        return caught.value

    def asked(self) -> list[str]:
        """Who was asked, in order."""
        times = sorted((at, name) for name, model in self.models.items() for at in model.times)
        return [name for _, name in times]


def to(*names: str) -> list[Fallback]:
    """Fallbacks to providers."""
    return [Fallback(name) for name in names]


DOWN = ModelError(Code.SERVICE_UNAVAILABLE, "down", transient=True)


async def test_the_next_one_answers(autojump_clock):
    """The answer names who gave it, and counts all attempts and what they spent."""
    town = Town(a=ill(usage=Usage(3, 1, 0.5)), b=answer("from b", cost_usd=0.25))
    got = await town.ask(fallback=to("b"))
    assert (got.content, got.provider, got.attempts) == ("from b", "b", 2)
    assert (got.tokens_used, got.cost_usd) == (14, 0.75)


async def test_nobody_else_is_asked_while_one_answers(autojump_clock):
    """A fallback costs nothing as long as it is not needed."""
    town = Town(a=answer(), b=answer())
    town.entry("a", Fallback("b"))
    await town.ask(fallback=to("b"))
    assert town.asked() == ["a"]


async def test_fallbacks_are_asked_in_order(autojump_clock):
    """One after the other, until one answers."""
    town = Town(a=DOWN, b=DOWN, c=answer("c"), d=answer("d"))
    for model in town.models.values():
        model.seconds = 0.1
    assert (await town.ask(fallback=to("b", "c", "d"))).provider == "c"
    assert town.asked() == ["a", "b", "c"]


async def test_the_list_of_a_request_takes_the_place_of_the_entrys(autojump_clock):
    """Not both: who names somebody wants nobody else."""
    town = Town(a=DOWN, b=DOWN, c=answer())
    town.entry("a", Fallback("c"))
    assert (await town.ask()).provider == "c"
    await town.failure(fallback=to("b"))
    assert town.asked().count("c") == 1


async def test_lists_of_the_configuration_are_followed_on_without_loops(autojump_clock):
    """a to b and c, b to d and a, d to b: each is asked once, near ones first."""
    town = Town(a=DOWN, b=DOWN, c=DOWN, d=DOWN)
    for model in town.models.values():
        model.seconds = 0.1
    town.entry("a", Fallback("b"), Fallback("c"))
    town.entry("b", Fallback("d"), Fallback("a"))
    town.entry("d", Fallback("b"))
    await town.failure()
    assert town.asked() == ["a", "b", "c", "d"]


@given(st.lists(st.lists(st.integers(0, 4), max_size=4), min_size=5, max_size=5))
def test_any_web_of_fallbacks_ends(web):
    """However providers name each other, each that can be reached is asked exactly once."""

    async def main() -> None:
        town = Town(**{f"p{n}": DOWN for n in range(5)})
        for n, others in enumerate(web):
            town.entry(f"p{n}", *(Fallback(f"p{other}") for other in others))
        await town.failure("p0")
        reached, before = {0}, set[int]()
        while reached != before:
            before = set(reached)
            reached |= {other for n in before for other in web[n]}
        assert sorted(town.asked()) == sorted(f"p{n}" for n in reached)

    trio.run(main)


async def test_another_model_of_the_same_provider(autojump_clock):
    """A fallback without a provider means the one whose list it stands in."""

    def by_model(request):
        if request.model != "small":
            raise ill("m: overloaded")
        return answer(model="small")

    town = Town(a=by_model, b=DOWN)
    town.entry("a", Fallback(model="small"))
    town.entry("b", Fallback("a", "small"))
    assert (await town.ask()).model == "small"
    assert (await town.ask(fallback=[Fallback("b"), Fallback(model="small")])).model == "small"
    assert (await town.ask("b")).model == "small"


async def test_a_fallback_gets_its_own_model_and_effort(autojump_clock):
    """The names of one provider mean nothing to another."""
    town = Town(a=DOWN, b=answer(), c=answer())
    town.entry("b", effort="think")
    await town.ask(model="a-large", effort="max", fallback=[Fallback("b")])
    assert (town.models["b"].requests[0].model, town.models["b"].requests[0].effort) == ("", "think")
    await town.ask(model="a-large", fallback=[Fallback("c", "c-large")])
    assert town.models["c"].requests[0].model == "c-large"


# --- when ---


@pytest.mark.parametrize(
    "error",
    [
        ill(),
        DOWN,
        ModelError(Code.DRIVER, "no JSON"),
        ModelError(Code.TIMEOUT, "took too long", transient=True, status=504),
        refused(Code.PERMISSION, 401),
        refused(Code.NOT_FOUND, 404),
        refused(Code.BUDGET_EXCEEDED, 402),
        limited(3600.0),
    ],
    ids=lambda error: f"{error.code}-{error.status}",
)
async def test_another_is_asked_after_what_another_may_not_have(autojump_clock, error):
    """Also where the key is refused or the model is missing: another has a key and models of its own."""
    assert (await Town(a=error, b=answer()).ask(fallback=to("b"))).provider == "b"


@pytest.mark.parametrize(
    "error",
    [
        refused(),
        refused(Code.TOO_LARGE, 413),
        ModelError(Code.RESOURCE_EXHAUSTED, "the context is full"),
        invalid("no messages"),
    ],
    ids=lambda error: str(error.code),
)
async def test_nobody_else_is_asked_where_the_request_is_at_fault(autojump_clock, error):
    """The failure comes back as it is."""
    town = Town(a=error, b=answer())
    failure = await town.failure(fallback=to("b"))
    assert (failure.code, failure.reason) == (error.code, error.reason)
    assert town.asked() == ["a"]


async def test_another_is_asked_for_one_that_is_not_set_up(autojump_clock):
    """Whatever code its driver gives for that."""
    town = Town(a=invalid("the scenario has a fault in line 3"), b=answer())
    town.models["a"].reason = "the scenario has a fault in line 3"
    assert (await town.ask(fallback=to("b"))).provider == "b"


async def test_another_is_asked_while_a_provider_is_left_alone(autojump_clock):
    """At once, without asking the ill one."""
    town = Town(a=ill(), b=answer())
    for _ in range(limits.BREAKER_FAILURES):
        await town.ask(fallback=to("b"))
    town.models["a"].times.clear()
    began = trio.current_time()
    got = await town.ask(fallback=to("b"))
    assert (got.provider, got.attempts, trio.current_time()) == ("b", 1, began)
    assert "a" not in town.asked()


async def test_a_limit_that_ends_in_time_is_waited_for_and_a_longer_one_is_not(autojump_clock):
    """A fallback takes over at once where the provider wants longer than the call has."""
    town = Town(a=FakeModel(limited(10.0), answer(), name="a"), b=answer())
    town.entry("a", retries=1)
    began = trio.current_time()
    assert (await town.ask(timeout_ms=60_000, fallback=to("b"))).provider == "a"
    assert trio.current_time() - began == pytest.approx(10)
    town.models["a"].outcomes = [limited(10.0)]
    began = trio.current_time()
    assert (await town.ask(timeout_ms=9000, fallback=to("b"))).provider == "b"
    assert trio.current_time() == began


async def test_all_share_one_time_limit(autojump_clock):
    """The next one gets what is left; where nothing is, it is not asked."""
    town = Town(a=FakeModel(ill(), name="a", seconds=4), b=answer())
    await town.ask(timeout_ms=10_000, fallback=to("b"))
    assert town.models["b"].requests[0].timeout_ms == 6000
    town.models["a"].seconds = math.inf
    failure = await town.failure(timeout_ms=10_000, fallback=to("b"))
    assert failure.code is Code.TIMEOUT
    assert failure.reason == (
        "all providers exhausted: a: no complete answer within 10000 ms; b: there was no time left to ask it"
    )


async def test_a_cancelled_call_asks_nobody_else(autojump_clock):
    """Who gives up wants no other answer."""
    town = Town(a=FakeModel(name="a", seconds=100), b=answer())
    with trio.move_on_after(1):
        await town.ask(fallback=to("b"))
    assert town.asked() == ["a"]


# --- all failed ---


async def test_one_error_names_everybody(autojump_clock):
    """The code of the first, each provider with its reason, the sum of what was spent, the soonest time."""
    town = Town(
        a=ModelError(Code.DRIVER, "a: burns", transient=True, status=502, usage=spent(5)),
        b=limited(3600.0),
        c=refused(Code.PERMISSION, 401, usage=spent(6)),
    )
    failure = await town.failure(fallback=to("b", "c", "nowhere"))
    assert isinstance(failure, ModelError)
    assert failure.reason == (
        "all providers exhausted: a: burns; b: too many requests; c: refused; "
        "nowhere: there is no such provider"
    )
    assert (failure.code, failure.status, failure.transient) == (Code.DRIVER, 502, True)
    assert (failure.usage.tokens, failure.attempts, failure.retry_after) == (11, 3, 3600)


async def test_a_later_one_that_finds_fault_with_the_request_does_not_end_it(autojump_clock):
    """It may be only this one that cannot take it."""
    town = Town(a=DOWN, b=refused(), c=answer())
    assert (await town.ask(fallback=to("b", "c"))).provider == "c"


# --- rights ---


async def test_a_process_falls_back_by_itself_only_to_what_it_may_use(autojump_clock):
    """Others are left out, and the error says why; people may use all."""
    town = Town(permitted=("c",), a=DOWN, b=answer(), c=answer())
    assert (await town.ask(caller=AGENT, fallback=to("b", "c"))).provider == "c"
    failure = await town.failure(caller=AGENT, fallback=to("b"))
    assert failure.reason == "all providers exhausted: a: down; b: process 7 may not use /dev/llm/b"
    assert "b" not in town.asked()
    assert (await town.ask(caller=PERSON, fallback=to("b"))).provider == "b"


async def test_what_the_configuration_names_needs_no_right(autojump_clock):
    """Whoever wrote it decides what the file leads to, also further on."""
    town = Town(a=DOWN, b=DOWN, c=answer())
    town.entry("a", Fallback("b"))
    town.entry("b", Fallback("c"))
    assert (await town.ask(caller=AGENT)).provider == "c"


async def test_a_process_does_not_learn_of_providers_that_it_may_not_use(autojump_clock):
    """Whether one exists is not said to whom it is not open."""
    town = Town(a=DOWN, b=answer())
    reasons = [(await town.failure(caller=AGENT, fallback=to(name))).reason for name in ("b", "nowhere")]
    assert reasons[0].replace("b", "nowhere") == reasons[1].replace("b", "nowhere")


async def test_another_model_of_the_same_provider_needs_no_further_right(autojump_clock):
    """Who may use the file may name a model in it."""
    town = Town(a=lambda request: answer(model=request.model))
    town.models["a"].outcomes = [ill(), answer()]
    assert (await town.ask(caller=AGENT, fallback=[Fallback(model="small")])).attempts == 2


async def test_without_rights_known_processes_fall_back_to_nobody(autojump_clock):
    """Where nobody says what processes may, they may not."""
    town = Town(a=DOWN, b=answer())
    town.fallbacks = Fallbacks(town.find)
    await town.failure(caller=AGENT, fallback=to("b"))
    assert (await town.ask(fallback=to("b"))).provider == "b"


# --- streams ---


HALF = [Delta("text", "half")]


async def test_a_plain_stream_stays_with_who_began_to_speak(autojump_clock):
    """After the first text nobody else is asked."""
    pieces: list[Delta] = []
    town = Town(a=FakeModel(refused(Code.NOT_FOUND, 404), name="a", pieces=HALF), b=answer())
    await town.failure(emit=pieces.append, stream=True, fallback=to("b"))
    assert (town.asked(), pieces) == (["a"], HALF)


async def test_a_stream_of_events_begins_anew_with_another(autojump_clock):
    """`restart` comes before what the next one says, and only where something was said."""
    for said in (HALF, []):
        pieces: list[Delta] = []
        town = Town(a=FakeModel(ill(), name="a", pieces=said), b=answer("whole"))
        await town.ask(emit=pieces.append, stream="events", fallback=to("b"))
        assert pieces == [*said, *([Delta("restart")] if said else []), Delta("text", "whole")]
