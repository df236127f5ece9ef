"""How long to wait: before another attempt of one call, and for a provider that wants to be left alone."""

import math
import random
from collections.abc import Callable

from rnixfs import limits


def doubled(first: float, times: int, most: float) -> float:
    """A time doubled a number of times, within a maximum."""
    return min(first * 2.0 ** min(times, 64), most)


def delay(failed: int, chance: Callable[[], float] = random.random) -> float:
    """Seconds before another attempt: exponential with full jitter, so that those who failed together do
    not come back together.

    Args:
        failed: attempts that failed, from 1.
        chance: gives numbers from 0 to 1.
    """
    return chance() * doubled(limits.MODEL_BACKOFF_SECONDS, failed - 1, limits.MODEL_BACKOFF_MAX_SECONDS)


class RateLimit:
    """When a provider may be asked again that refused a call because there were too many."""

    def __init__(self) -> None:
        self.until = -math.inf
        self._in_a_row = 0
        self._told_at = -math.inf

    def told(self, started: float, now: float, retry_after: float | None) -> float:
        """The provider refused a call; returns the time before which no other may start.

        Args:
            started: when that call began. Of calls that ran side by side only the first refusal makes the
                wait longer, where the provider names none.
            now: the time.
            retry_after: seconds that the provider names; None where it does not.
        """
        if retry_after is not None and not math.isnan(retry_after):
            wait = min(max(retry_after, 0.0), limits.MODEL_HOLD_MAX_SECONDS)
        elif started >= self._told_at:
            first, most = limits.MODEL_LIMITED_SECONDS, limits.MODEL_LIMITED_MAX_SECONDS
            wait = doubled(first, self._in_a_row, most)
            self._in_a_row += 1
            self._told_at = now
        else:
            wait = 0.0
        self.until = max(self.until, now + wait)
        return self.until

    def passed(self) -> None:
        """A call went through."""
        self._in_a_row = 0
