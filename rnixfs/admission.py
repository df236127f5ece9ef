"""Who may call a provider now, and who waits: a queue that is fair among processes.

**Fairness.** Of those who wait with the same priority, each process in turn sends one call, in the order in
which the processes came; the calls of one process keep their order. So whoever waits sees at most one call of
each other process of the same priority go first.

**Priorities.** High goes before normal, normal before low. A call of a lower priority is passed over
`limits.MODEL_PASSED_OVER_MAX` times; then it is the next, so that nothing starves.

**Holding.** While the provider wants to be left alone nobody starts, and those who wait keep their places.
Afterwards calls begin one at a time, and one more at once for each that succeeds, because all of them
together would only be refused again.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable

import trio

from rnixfs import limits
from rnixfs.errors import Code
from rnixfs.llm import Priority
from rnixfs.model import ModelError


class Waiting:
    """One call that waits.

    Args:
        who: the process that makes it.
        priority: of the call.
        deadline: when it must have ended, in seconds of trio's clock.
    """

    def __init__(self, who: Hashable, priority: Priority, deadline: float) -> None:
        self.who = who
        self.priority = priority
        self.deadline = deadline
        self.granted = False
        self.error: ModelError | None = None
        self.scope = trio.CancelScope()
        self.woken = trio.Event()

    @property
    def decided(self) -> bool:
        """Whether it needs to wait no longer."""
        return self.granted or self.error is not None


class _Lane:
    """Those who wait with one priority: processes in turn, the calls of each in order."""

    def __init__(self) -> None:
        self._turns: OrderedDict[Hashable, OrderedDict[Waiting, None]] = OrderedDict()
        self.passed_over = 0

    def __bool__(self) -> bool:
        return bool(self._turns)

    def add(self, one: Waiting, first: bool) -> None:
        """Put a call behind the others of its process, or before them."""
        calls = self._turns.setdefault(one.who, OrderedDict())
        calls[one] = None
        calls.move_to_end(one, last=not first)

    def put_back(self, one: Waiting) -> None:
        """Put back the call that was taken last, where it was."""
        self.add(one, first=True)
        self._turns.move_to_end(one.who, last=False)

    def take(self) -> Waiting:
        """Remove the next one."""
        who, calls = next(iter(self._turns.items()))
        one, _ = calls.popitem(last=False)
        self._turns.move_to_end(who)
        if not calls:
            del self._turns[who]
        self.passed_over = 0
        return one

    def drop(self, one: Waiting) -> None:
        """Remove one that gave up."""
        calls = self._turns[one.who]
        del calls[one]
        if not calls:
            del self._turns[one.who]
        if not self._turns:
            self.passed_over = 0

    def all(self) -> list[Waiting]:
        """Everybody, each process's calls together."""
        return [one for calls in self._turns.values() for one in calls]


class Admission:
    """The gate of one provider.

    Args:
        name: the provider's, for messages.
        most: calls that may run at once.
        room: calls that may wait; the next is refused.
    """

    def __init__(self, name: str, most: float, room: int = limits.MODEL_WAITING_MAX) -> None:
        self._name = name
        self._most = most
        self._now_most = most
        self._room = room
        self._lanes = {priority: _Lane() for priority in Priority}
        self._going: OrderedDict[Waiting, None] = OrderedDict()  # let in, but their tasks did not run yet
        self.held_until = -math.inf
        self.running = 0
        self.waiting = 0

    @property
    def full(self) -> bool:
        """Whether as many run as may."""
        return self.running >= self._now_most

    def held(self) -> float:
        """Seconds for which nobody may start."""
        return max(self.held_until - trio.current_time(), 0.0)

    async def enter(self, who: Hashable, priority: Priority, deadline: float, again: bool = False) -> None:
        """Wait until a call may start, and count it as running; `leave` must follow.

        Args:
            who: the process that calls.
            priority: of the call.
            deadline: when the call must have ended, in seconds of trio's clock.
            again: whether it is another attempt; it goes before what the same process asked later.

        Raises:
            ModelError: SERVICE_UNAVAILABLE when too many wait, or when the provider wants to be left alone
                for longer than the deadline; TIMEOUT when the deadline came; what `refuse` said.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        one = Waiting(who, priority, deadline)
        if self.waiting >= self._room:
            raise self._crowded()
        self._lanes[priority].add(one, first=again)
        self.waiting += 1
        self._judge(one)
        self._advance()
        try:
            while not one.decided:
                await self._wait(one)
        except BaseException:
            self._withdraw(one)
            raise
        if one.error is not None:
            raise one.error
        del self._going[one]

    def leave(self) -> None:
        """A call that entered has ended."""
        self.running -= 1
        self._advance()

    def hold(self, until: float) -> None:
        """Let nobody start before a time, and then slowly. Those whose deadline comes sooner fail at once.

        Args:
            until: in seconds of trio's clock; a time before one that was given already changes nothing.
        """
        self._now_most = 1
        self.held_until = max(self.held_until, until)
        if self.held():
            for one in reversed(self._going):
                self._take_back(one)
            self._going.clear()
            self.refuse(self._too_late)
        self._set_clocks()

    def succeeded(self) -> None:
        """A call went well, so one more may run at once."""
        self._now_most = min(self._now_most + 1, self._most)
        self._advance()

    def refuse(self, why: Callable[[Waiting], ModelError | None]) -> None:
        """Fail those who wait and for whom there is a reason."""
        for lane in self._lanes.values():
            for one in lane.all():
                self._fail(one, why(one))

    # --- those who wait ---

    async def _wait(self, one: Waiting) -> None:
        """Wait for a decision, or for the next time at which there is one to make."""
        one.woken = trio.Event()
        with trio.CancelScope() as one.scope:
            one.scope.deadline = self._clock(one)
            await one.woken.wait()
        if not one.decided:
            self._judge(one)
            self._advance()

    def _clock(self, one: Waiting) -> float:
        return min(one.deadline, self.held_until) if self.held() else one.deadline

    def _set_clocks(self) -> None:
        for lane in self._lanes.values():
            for one in lane.all():
                one.scope.deadline = self._clock(one)

    def _judge(self, one: Waiting) -> None:
        late = self._too_late(one) if self.held() else None
        if late is None and trio.current_time() >= one.deadline:
            late = self._timed_out()
        self._fail(one, late)

    def _fail(self, one: Waiting, error: ModelError | None) -> None:
        if error is None:
            return
        self._lanes[one.priority].drop(one)
        self.waiting -= 1
        one.error = error
        one.woken.set()

    def _withdraw(self, one: Waiting) -> None:
        """A task that waits is cancelled: it leaves nothing behind, and what it was given goes to another."""
        if one.granted:
            del self._going[one]
            self.leave()
        elif one.error is None:
            self._lanes[one.priority].drop(one)
            self.waiting -= 1

    # --- letting in ---

    def _advance(self) -> None:
        while self.waiting and not self.full and not self.held():
            one = self._next().take()
            self.waiting -= 1
            self.running += 1
            one.granted = True
            self._going[one] = None
            one.woken.set()

    def _next(self) -> _Lane:
        """The lane whose turn it is; the others that are not empty are passed over once more."""
        lanes = [lane for lane in self._lanes.values() if lane]
        starved = [lane for lane in lanes if lane.passed_over >= limits.MODEL_PASSED_OVER_MAX]
        chosen = max(starved, key=lambda lane: lane.passed_over) if starved else lanes[0]
        for lane in lanes:
            lane.passed_over += lane is not chosen
        return chosen

    def _take_back(self, one: Waiting) -> None:
        """Let one wait again whose task has not run since it was let in."""
        self._lanes[one.priority].put_back(one)
        self.waiting += 1
        self.running -= 1
        one.granted = False

    # --- reasons ---

    def _crowded(self) -> ModelError:
        text = f"{self._name}: {self.waiting} calls wait already; try again later"
        return ModelError(Code.SERVICE_UNAVAILABLE, text, transient=True)

    def _too_late(self, one: Waiting) -> ModelError | None:
        if one.deadline > self.held_until:
            return None
        wait, left = self.held(), max(one.deadline - trio.current_time(), 0.0)
        text = f"{self._name}: takes no calls for {wait:.3g} s more, and this one has {left:.3g} s left"
        return ModelError(Code.SERVICE_UNAVAILABLE, text, transient=True, retry_after=wait)

    def _timed_out(self) -> ModelError:
        text = f"{self._name}: its time went by waiting for one of {self.running} running calls to end"
        return ModelError(Code.TIMEOUT, text)
