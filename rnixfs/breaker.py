"""A circuit breaker: after failures in a row a provider is left alone for a while, then tried with one call.

It knows no clock: whoever uses it says what time it is, in seconds of any clock that does not go back.
"""

import enum
import math

from rnixfs import limits


class Verdict(enum.Enum):
    """What the end of a call says of its provider."""

    WELL = "well"
    ILL = "ill"
    NOTHING = "nothing"


class Breaker:
    """Closed at first; opens after failures in a row, and closes with the first success.

    Args:
        failures: how many in a row open it.
        seconds: until an open one lets a trial pass, the first time.
        most: seconds to which that grows, doubling with each trial that fails.
    """

    def __init__(
        self,
        failures: float = limits.BREAKER_FAILURES,
        seconds: float = limits.BREAKER_SECONDS,
        most: float = limits.BREAKER_MAX_SECONDS,
    ) -> None:
        self._most_failures = failures
        self._first = seconds
        self._most = most
        self._failures = 0
        self._cool_down = seconds
        self._until = -math.inf
        self._open = False
        self._begun = 0
        self._changed = 0  # calls up to this one began before the last change of state
        self._trial = 0

    @property
    def open(self) -> bool:
        """Whether calls are refused, but for a trial."""
        return self._open

    def wait(self, now: float) -> float:
        """Seconds for which calls are refused; 0 when one may go. While a trial is on its way it is the
        time that a failed trial would add."""
        if not self._open:
            return 0.0
        return self._cool_down if self._trial else max(self._until - now, 0.0)

    def begin(self) -> int:
        """Begin a call that `wait` lets go; returns its number, for `end`."""
        self._begun += 1
        if self._open:
            self._trial = self._begun
        return self._begun

    def end(self, number: int, verdict: Verdict, now: float) -> None:
        """A call ended. A failure of one that began before the last change of state says nothing of now."""
        is_trial = number == self._trial
        if is_trial:
            self._trial = 0
        if verdict is Verdict.WELL:
            self._close()
        elif verdict is Verdict.ILL and is_trial:
            self._cool_down = min(self._cool_down * 2, self._most)
            self._reopen(now)
        elif verdict is Verdict.ILL and not self._open and number > self._changed:
            self._failures += 1
            if self._failures >= self._most_failures:
                self._open = True
                self._reopen(now)

    def try_now(self) -> None:
        """Let the next call try, because there is reason to think that the provider is well again."""
        self._until = -math.inf

    def _close(self) -> None:
        if self._open:
            self._changed = self._begun
        self._open = False
        self._trial = 0
        self._failures = 0
        self._cool_down = self._first

    def _reopen(self, now: float) -> None:
        self._until = now + self._cool_down
        self._changed = self._begun
