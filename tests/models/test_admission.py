"""The queue in front of a provider: who goes first, who waits, who is sent away."""

import dataclasses
import math

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from rnixfs import limits
from rnixfs.admission import Admission
from rnixfs.errors import Code
from rnixfs.llm import Priority
from rnixfs.model import ModelError

FOREVER = math.inf


@dataclasses.dataclass
class One:
    """A call of a plan, and what became of it. Times are seconds.

    Args:
        who: its process.
        arrives: when it asks.
        lasts: how long it runs.
        patience: how long it waits before it is cancelled.
        priority: its priority.
    """

    who: int
    arrives: float
    lasts: float
    patience: float = FOREVER
    priority: Priority = Priority.NORMAL
    started: float = FOREVER
    ended: float = FOREVER
    gave_up: float = FOREVER


class Lab:
    """Runs a plan on a clock that jumps.

    Args:
        most: calls at once.
        plan: the calls.
        holds: when the provider says for how long it wants to be left alone.
    """

    def __init__(self, most, plan, holds=()):
        self.most = most
        self.plan = plan
        self.holds = holds
        self.running = 0
        self.started: list[One] = []
        trio.run(self._run, clock=trio.testing.MockClock(autojump_threshold=0))

    async def _run(self):
        self.gate = Admission("lab", self.most)
        self.zero = trio.current_time()
        with trio.fail_after(1e7):
            async with trio.open_nursery() as nursery:
                for one in self.plan:
                    nursery.start_soon(self._call, one)
                for at, seconds in self.holds:
                    nursery.start_soon(self._hold, at, seconds)
        assert (self.gate.running, self.gate.waiting) == (0, 0)

    def _now(self):
        return trio.current_time() - self.zero

    async def _hold(self, at, seconds):
        await trio.sleep(at)
        self.gate.hold(trio.current_time() + seconds)

    async def _call(self, one):
        await trio.sleep(one.arrives)
        with trio.move_on_after(one.patience):
            await self.gate.enter(one.who, one.priority, FOREVER)
            one.started = self._now()
        if one.started == FOREVER:
            one.gave_up = self._now()
            return
        self.started.append(one)
        self.running += 1
        assert self.running <= self.most
        await trio.sleep(one.lasts)
        one.ended = self._now()
        self.running -= 1
        self.gate.succeeded()
        self.gate.leave()


# No two things happen at the same moment: what is let in together may run in any order.
def plans(priorities=(Priority.NORMAL,), patient=False):
    """Lists of calls of up to four processes."""
    one = st.tuples(
        st.integers(0, 3),
        st.integers(0, 12),
        st.integers(1, 9),
        st.just(FOREVER) if patient else st.one_of(st.just(FOREVER), st.integers(1, 20)),
        st.sampled_from(priorities),
    )
    return st.lists(one, max_size=24).map(
        lambda rows: [
            One(who, arrives + place * 1e-3, lasts + place * 0.9e-5, patience + place * 0.8e-7, priority)
            for place, (who, arrives, lasts, patience, priority) in enumerate(rows)
        ]
    )


def waited(one: One, before: list[One]) -> float:
    """When a call became the first of its process."""
    of_process = [
        other.started for other in before if other.who == one.who and other.priority is one.priority
    ]
    return max([one.arrives, *of_process])


@given(st.integers(1, 3), plans())
def test_nobody_waits_for_more_than_one_call_of_each_other_process(most, plan):
    """The fairness law, whoever comes, goes or gives up: from the moment that a call is the first of its
    process, each other process starts at most one before it."""
    started = Lab(most, plan).started
    for place, one in enumerate(started):
        since = waited(one, started[:place])
        for other in {1, 2, 3, 0} - {one.who}:
            before = [two for two in started[:place] if two.who == other and two.started > since]
            assert len(before) <= 1, (one, before)


@given(st.integers(1, 3), plans())
def test_the_calls_of_one_process_keep_their_order(most, plan):
    """First come, first served, within one process."""
    for who in range(4):
        arrivals = [one.arrives for one in Lab(most, plan).started if one.who == who]
        assert arrivals == sorted(arrivals)


@given(st.integers(1, 4), plans())
def test_no_place_stays_empty_while_somebody_waits(most, plan):
    """No wake-up is lost: a call starts when it comes, or in the moment in which another one ends; and all
    start that are not cancelled."""
    lab = Lab(most, plan)
    ends = {one.ended for one in lab.started}
    for one in lab.started:
        assert one.started == pytest.approx(one.arrives) or min(
            abs(one.started - end) for end in ends
        ) == pytest.approx(0, abs=1e-6)
    for one in plan:
        assert (one.started < FOREVER) != (one.gave_up < FOREVER)
        if one.gave_up < FOREVER:
            assert one.patience < FOREVER


@given(st.integers(1, 3), plans(tuple(Priority), patient=True))
def test_a_lower_priority_is_passed_over_a_bounded_number_of_times(most, plan):
    """High goes first, and yet nothing starves: while a call of a lower priority waits, at most
    MODEL_PASSED_OVER_MAX calls and one more go before the next of its priority."""
    started = Lab(most, plan).started
    for place, one in enumerate(started):
        since = max([one.arrives, *(two.started for two in started[:place] if two.priority is one.priority)])
        before = [two for two in started[:place] if two.started > since]
        assert len(before) <= limits.MODEL_PASSED_OVER_MAX + 1


@given(st.integers(1, 3), plans(), st.lists(st.tuples(st.integers(0, 15), st.integers(1, 9)), max_size=4))
def test_nobody_starts_while_the_provider_wants_to_be_left_alone(most, plan, holds):
    """Held, all wait; afterwards all go, each process's calls in their order."""
    holds = [(at + 0.0005, seconds) for at, seconds in holds]
    # Those let in at the same moment may run in any order.
    started = sorted(Lab(most, plan, holds).started, key=lambda one: (one.started, one.arrives))
    for one in started:
        for at, seconds in holds:
            assert not at + 1e-6 < one.started < at + seconds - 1e-6
    for who in range(4):
        arrivals = [one.arrives for one in started if one.who == who]
        assert arrivals == sorted(arrivals)
    assert len(started) == sum(one.gave_up == FOREVER for one in plan)


def test_a_crowd_of_low_calls_goes_on_under_a_flood_of_high_ones():
    """The exact share: of calls that all wait, one of nine is a low one."""
    plan = [One(1, 0.0, 1.0)]  # holds the place until all the others wait
    plan += [One(2, 0.1 + n * 1e-3, 1.0, priority=Priority.HIGH) for n in range(40)]
    plan += [One(3, 0.2 + n * 1e-3, 1.0, priority=Priority.LOW) for n in range(10)]
    order = [str(one.priority) for one in Lab(1, plan).started][1:]
    share = limits.MODEL_PASSED_OVER_MAX
    assert order[: 2 * (share + 1)] == (["high"] * share + ["low"]) * 2


def test_a_flood_of_one_process_delays_another_by_one_call():
    """A hundred calls wait; who comes then is the next but one at most."""
    plan = [One(1, n * 1e-3, 1.0) for n in range(100)] + [One(2, 3.5, 1.0)]
    started = Lab(1, plan).started
    assert started.index(plan[-1]) <= 5


# --- single moves ---


async def test_after_a_hold_calls_begin_slowly(autojump_clock):
    """One at a time at first, and one more at once for each that succeeds, up to the limit."""
    gate, most = Admission("slow", 4), []

    async def call(who):
        await gate.enter(who, Priority.NORMAL, FOREVER)
        most.append(gate.running)
        await trio.sleep(1)
        gate.succeeded()
        gate.leave()

    gate.hold(trio.current_time() + 5)
    async with trio.open_nursery() as nursery:
        for who in range(20):
            nursery.start_soon(call, who)
    assert max(most) == 4
    assert trio.current_time() == pytest.approx(5 + 1 + 1 + 5)  # 1, 2, 4, 4, 4, 4, and the last one


async def test_a_call_whose_time_ends_before_a_hold_fails_at_once(autojump_clock):
    """It does not wait in vain: whoever waits, and whoever comes, hears how long the provider wants."""
    gate, now = Admission("p", 1), trio.current_time()
    await gate.enter(1, Priority.NORMAL, FOREVER)
    errors: list[ModelError] = []

    async def call(deadline):
        with pytest.raises(ModelError) as caught:
            await gate.enter(2, Priority.NORMAL, deadline)
        errors.append(caught.value)
        assert trio.current_time() - now == pytest.approx(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call, now + 30)
        await trio.sleep(1)
        gate.hold(now + 61)
        nursery.start_soon(call, now + 61)
    assert [error.code for error in errors] == [Code.SERVICE_UNAVAILABLE] * 2
    assert [error.retry_after for error in errors] == [pytest.approx(60)] * 2
    assert "p: takes no calls for 60 s more, and this one has 29 s left" in [one.reason for one in errors]
    assert gate.waiting == 0


async def test_waiting_ends_with_the_deadline(autojump_clock):
    """TIMEOUT names what was waited for, and the place in the queue is gone."""
    gate, now = Admission("p", 1), trio.current_time()
    await gate.enter(1, Priority.NORMAL, FOREVER)
    with pytest.raises(ModelError, match="p: its time went by waiting for one of 1 running calls") as caught:
        await gate.enter(2, Priority.NORMAL, now + 3)
    assert caught.value.code is Code.TIMEOUT
    assert trio.current_time() - now == pytest.approx(3)
    assert (gate.running, gate.waiting) == (1, 0)


async def test_the_queue_is_bounded(autojump_clock):
    """One more than fits is refused at once with EAGAIN, and may be asked again."""
    gate = Admission("p", 1, room=2)
    await gate.enter(1, Priority.NORMAL, FOREVER)
    async with trio.open_nursery() as nursery:
        for who in (2, 3):
            nursery.start_soon(gate.enter, who, Priority.LOW, FOREVER)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(ModelError, match="2 calls wait already") as caught:
            await gate.enter(4, Priority.HIGH, FOREVER)
        nursery.cancel_scope.cancel()
    assert (caught.value.code, caught.value.transient) == (Code.SERVICE_UNAVAILABLE, True)
    assert (gate.running, gate.waiting) == (1, 0)


async def test_another_attempt_goes_before_later_calls_of_its_process(autojump_clock):
    """It was first, so it stays first among its own; the other processes keep their turns."""
    gate, order = Admission("p", 1), []
    await gate.enter(9, Priority.NORMAL, FOREVER)

    async def call(who, name, again):
        await gate.enter(who, Priority.NORMAL, FOREVER, again)
        order.append(name)
        gate.leave()

    async with trio.open_nursery() as nursery:
        for who, name, again in ((1, "a", False), (1, "b", False), (2, "c", False), (1, "again", True)):
            nursery.start_soon(call, who, name, again)
            await trio.testing.wait_all_tasks_blocked()
        gate.leave()
    assert order == ["again", "c", "a", "b"]


async def test_a_call_let_in_and_cancelled_in_the_same_moment_passes_its_place_on():
    """Whatever comes first, the place is not lost."""
    for cancel_first in (True, False):
        gate, entered = Admission("p", 1), trio.Event()
        await gate.enter(1, Priority.NORMAL, FOREVER)
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                scope = trio.CancelScope()

                async def first(scope=scope, gate=gate):
                    with scope:
                        await gate.enter(2, Priority.NORMAL, FOREVER)
                        gate.leave()

                async def second(gate=gate, entered=entered):
                    await gate.enter(3, Priority.NORMAL, FOREVER)
                    entered.set()

                nursery.start_soon(first)
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(second)
                await trio.testing.wait_all_tasks_blocked()
                for step in (scope.cancel, gate.leave) if cancel_first else (gate.leave, scope.cancel):
                    step()
                await entered.wait()
        assert (gate.running, gate.waiting) == (1, 0)


async def test_a_hold_that_meets_calls_just_let_in_takes_them_back_in_order(autojump_clock):
    """Nobody starts after the provider said so, not even who was let in already; the order stays."""
    gate, order, now = Admission("p", 3), [], trio.current_time()
    for who in (7, 8, 9):
        await gate.enter(who, Priority.NORMAL, FOREVER)

    async def call(who):
        await gate.enter(who, Priority.NORMAL, FOREVER)
        order.append((who, trio.current_time() - now))
        gate.leave()

    async with trio.open_nursery() as nursery:
        for who in (1, 2, 3, 4):
            nursery.start_soon(call, who)
            await trio.testing.wait_all_tasks_blocked()
        for _ in range(3):
            gate.leave()
        gate.hold(now + 10)
    assert [who for who, _ in order] == [1, 2, 3, 4]
    assert all(at >= 10 for _, at in order)
    assert (gate.running, gate.waiting) == (0, 0)


async def test_refusing_fails_those_that_wait_and_only_those():
    """Each hears the reason; who runs goes on."""
    gate, errors = Admission("p", 1), []
    await gate.enter(1, Priority.NORMAL, FOREVER)

    async def call(who):
        with pytest.raises(ModelError) as caught:
            await gate.enter(who, Priority.NORMAL, FOREVER)
        errors.append(caught.value.reason)

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            for who in (2, 3):
                nursery.start_soon(call, who)
            await trio.testing.wait_all_tasks_blocked()
            gate.refuse(lambda one: ModelError(Code.SERVICE_UNAVAILABLE, f"not you, {one.who}"))
    assert sorted(errors) == ["not you, 2", "not you, 3"]
    assert (gate.running, gate.waiting) == (1, 0)


async def test_a_cancelled_caller_never_enters():
    """A call that begins cancelled takes no place, even where one is free."""
    gate = Admission("p", 1)
    with trio.CancelScope() as scope:
        scope.cancel()
        await gate.enter(1, Priority.NORMAL, FOREVER)
    assert scope.cancelled_caught
    assert (gate.running, gate.waiting) == (0, 0)
