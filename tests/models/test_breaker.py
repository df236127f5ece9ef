"""The circuit breaker, and the waits between attempts."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rnixfs import limits
from rnixfs.backoff import RateLimit, delay, doubled
from rnixfs.breaker import Breaker, Verdict

FAILURES, FIRST, MOST = 3, 4.0, 20.0


def opened() -> Breaker:
    """A breaker that has just opened, at time 0."""
    breaker = Breaker(FAILURES, FIRST, MOST)
    for _ in range(FAILURES):
        breaker.end(breaker.begin(), Verdict.ILL, 0.0)
    return breaker


def test_it_opens_after_failures_in_a_row():
    """One failure fewer leaves it closed, and any success begins the count anew."""
    breaker = Breaker(FAILURES, FIRST, MOST)
    for _ in range(5):
        for _ in range(FAILURES - 1):
            breaker.end(breaker.begin(), Verdict.ILL, 0.0)
        assert breaker.wait(0.0) == 0
        breaker.end(breaker.begin(), Verdict.WELL, 0.0)
    for _ in range(FAILURES):
        assert breaker.wait(0.0) == 0
        breaker.end(breaker.begin(), Verdict.ILL, 0.0)
    assert breaker.wait(0.0) == FIRST


def test_what_says_nothing_neither_counts_nor_begins_anew():
    """Calls that end without a verdict, such as cancelled ones, change nothing."""
    breaker = Breaker(FAILURES, FIRST, MOST)
    for _ in range(FAILURES - 1):
        breaker.end(breaker.begin(), Verdict.ILL, 0.0)
        breaker.end(breaker.begin(), Verdict.NOTHING, 0.0)
    assert not breaker.open
    breaker.end(breaker.begin(), Verdict.ILL, 0.0)
    assert breaker.open


def test_after_the_cool_down_one_trial_passes_and_its_success_closes():
    """While the trial is on its way others are refused; afterwards all may go."""
    breaker = opened()
    assert breaker.wait(FIRST - 0.5) == 0.5
    assert breaker.wait(FIRST) == 0
    trial = breaker.begin()
    assert breaker.wait(FIRST + 1) > 0
    breaker.end(trial, Verdict.WELL, FIRST + 1)
    assert not breaker.open
    assert breaker.wait(FIRST + 1) == 0


def test_each_failed_trial_doubles_the_cool_down_up_to_a_maximum():
    """4, 8, 16, then 20 and no more; a success brings the first one back."""
    breaker, now, waits = opened(), 0.0, []
    for _ in range(5):
        waits.append(breaker.wait(now))
        now += breaker.wait(now)
        breaker.end(breaker.begin(), Verdict.ILL, now)
    assert waits == [4, 8, 16, 20, 20]
    now += breaker.wait(now)
    breaker.end(breaker.begin(), Verdict.WELL, now)
    for _ in range(FAILURES):
        breaker.end(breaker.begin(), Verdict.ILL, now)
    assert breaker.wait(now) == FIRST


def test_a_trial_that_says_nothing_lets_the_next_one_try():
    """A cancelled trial neither closes the circuit nor blocks it."""
    breaker = opened()
    breaker.end(breaker.begin(), Verdict.NOTHING, FIRST)
    assert breaker.open
    assert breaker.wait(FIRST) == 0


def test_calls_from_before_a_change_of_state_say_nothing_of_now():
    """Only the trial decides while it is on its way, and failures of old calls do not open anew."""
    breaker = Breaker(FAILURES, FIRST, MOST)
    old = [breaker.begin() for _ in range(3 * FAILURES)]
    for number in old[:FAILURES]:
        breaker.end(number, Verdict.ILL, 0.0)
    trial = breaker.begin()
    for number in old[FAILURES : 2 * FAILURES]:
        breaker.end(number, Verdict.ILL, FIRST)
    breaker.end(trial, Verdict.WELL, FIRST)
    for number in old[2 * FAILURES :]:
        breaker.end(number, Verdict.ILL, FIRST)
    assert not breaker.open
    for _ in range(FAILURES):
        breaker.end(breaker.begin(), Verdict.ILL, FIRST)
    assert breaker.open


def test_an_old_call_that_succeeds_closes():
    """It is as good a sign as the trial, whose own end then says nothing more."""
    breaker = Breaker(FAILURES, FIRST, MOST)
    old = [breaker.begin() for _ in range(FAILURES + 1)]
    for number in old[:FAILURES]:
        breaker.end(number, Verdict.ILL, 0.0)
    trial = breaker.begin()
    breaker.end(old[FAILURES], Verdict.WELL, FIRST)
    assert not breaker.open
    breaker.end(trial, Verdict.ILL, FIRST)
    assert not breaker.open


class BreakerLaws(RuleBasedStateMachine):
    """The breaker beside a plain account of what it should do, in any order of events."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker(FAILURES, FIRST, MOST)
        self.now = 0.0
        self.running: list[tuple[int, int]] = []  # number, and the state's count when it began
        self.era = 0
        self.in_a_row = 0
        self.cool_down = FIRST
        self.until: float | None = None
        self.trial = 0

    @rule(seconds=st.integers(1, 30))
    def wait(self, seconds):
        """Time goes by."""
        self.now += seconds

    @precondition(lambda self: self.breaker.wait(self.now) == 0)
    @rule()
    def begin(self):
        """A call begins that is let go."""
        assert self.until is None or (self.now >= self.until and not self.trial)
        number = self.breaker.begin()
        if self.until is not None:
            self.trial = number
        self.running.append((number, self.era))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), verdict=st.sampled_from(Verdict))
    def end(self, data, verdict):
        """A call ends."""
        number, era = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        self.breaker.end(number, verdict, self.now)
        is_trial, self.trial = number == self.trial, 0 if number == self.trial else self.trial
        if verdict is Verdict.WELL:
            self.era += self.until is not None
            self.until, self.trial, self.in_a_row, self.cool_down = None, 0, 0, FIRST
        elif verdict is Verdict.ILL and is_trial:
            self.cool_down = min(2 * self.cool_down, MOST)
            self.until = self.now + self.cool_down
            self.era += 1
        elif verdict is Verdict.ILL and self.until is None and era == self.era:
            self.in_a_row += 1
            if self.in_a_row >= FAILURES:
                self.until = self.now + self.cool_down
                self.era += 1

    @invariant()
    def agrees(self):
        """It refuses exactly when the account says so, and names a time that is not too long."""
        refused = self.until is not None and (bool(self.trial) or self.now < self.until)
        assert (self.breaker.wait(self.now) > 0) == refused
        assert self.breaker.wait(self.now) <= MOST
        assert self.breaker.open == (self.until is not None)


TestBreakerLaws = BreakerLaws.TestCase


# --- waits ---


@given(st.integers(1, 200), st.floats(0, 1))
def test_waits_between_attempts_grow_within_bounds(failed, chance):
    """Full jitter: anything from nothing to the doubled base, and never more than the maximum."""
    most = doubled(limits.MODEL_BACKOFF_SECONDS, failed - 1, limits.MODEL_BACKOFF_MAX_SECONDS)
    assert delay(failed, lambda: chance) == pytest.approx(chance * most)
    assert limits.MODEL_BACKOFF_SECONDS <= most <= limits.MODEL_BACKOFF_MAX_SECONDS
    assert delay(failed, lambda: 1.0) <= delay(failed + 1, lambda: 1.0)


def test_a_time_that_the_provider_names_counts():
    """The latest of the times that were named, even where a later refusal names a sooner one."""
    limit = RateLimit()
    assert limit.told(0, 10, 30.0) == 40
    assert limit.told(0, 11, 5.0) == 40
    assert limit.told(0, 12, 60.0) == 72


@pytest.mark.parametrize(
    ("said", "seconds"),
    [(-3.0, 0), (math.inf, limits.MODEL_HOLD_MAX_SECONDS), (1e9, limits.MODEL_HOLD_MAX_SECONDS)],
)
def test_absurd_times_are_bounded(said, seconds):
    """No answer of a provider can put it out of use for longer than a day."""
    assert RateLimit().told(0, 0, said) == seconds


def test_without_a_named_time_refusals_in_a_row_double_it():
    """Calls that ran side by side count as one refusal; whatever goes through begins anew."""
    limit, now, waits = RateLimit(), 100.0, []
    for _ in range(9):
        until = limit.told(now, now + 1, None)
        assert limit.told(now, now + 1, None) == until
        waits.append(until - now - 1)
        now = until
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    limit.passed()
    assert limit.told(now, now, None) == now + 1


def test_a_time_that_is_no_number_counts_as_none():
    """NaN compares with nothing, so it must not become a time."""
    assert RateLimit().told(0, 5, math.nan) == 6
