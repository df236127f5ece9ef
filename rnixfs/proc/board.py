"""The board of a supervisor: what it shows of its children, and where orders for it wait.

The program behind a supervisor writes here and takes the orders; files and system calls read, and leave
orders. So neither knows the other. All that the program decides is an event before it stands on the board,
and the board is made of these events alone, so that a supervisor goes on after a restart where it stood.
"""

import dataclasses
import enum
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import trio

from rnixfs import limits
from rnixfs.errors import Code, SyscallError
from rnixfs.proc.state import Exit
from rnixfs.proc.supervision import ChildSpec, SupervisorSpec
from rnixfs.yamlvalue import nearest


class ChildState(enum.StrEnum):
    """Where a child stands."""

    WAITING = "waiting"  # to be started
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"  # on somebody's order; may be started again by one
    DONE = "done"  # ended for good with code 0
    FAILED = "failed"  # ended for good with another code


WANTED = frozenset({ChildState.WAITING, ChildState.RUNNING})
"""The states of children that are to run."""


@dataclasses.dataclass(slots=True)
class Child:
    """One child as it stands now.

    Args:
        spec: what it is to be.
        pid: of its latest incarnation, 0 before the first.
        state: where it stands.
        restarts: how often it was started again.
        exit: how its latest incarnation ended, None while that runs.
        result: what that one left as its result.
    """

    spec: ChildSpec
    pid: int = 0
    state: ChildState = ChildState.WAITING
    restarts: int = 0
    exit: Exit | None = None
    result: str = ""

    def row(self) -> dict[str, Any]:
        """What files show of it."""
        return {
            "name": self.spec.name,
            "pid": self.pid,
            "state": self.state,
            "restarts": self.restarts,
            "restart": self.spec.restart,
            "exit": self.exit,
        }


class Verb(enum.StrEnum):
    """What a supervisor can be told."""

    START = "start"
    STOP = "stop"
    RESTART = "restart"


class Order:
    """One order that waits for its supervisor.

    Args:
        verb: what to do.
        name: with which child.
    """

    def __init__(self, verb: Verb, name: str) -> None:
        self.verb = verb
        self.name = name
        self.pid = 0
        self._error: SyscallError | None = None
        self._done = trio.Event()

    def obeyed(self, pid: int) -> None:
        """It is done; `pid` is the child's latest incarnation."""
        self.pid = pid
        self._done.set()

    def failed(self, error: SyscallError) -> None:
        """It cannot be done."""
        self._error = error
        self._done.set()

    async def outcome(self) -> int:
        """Wait until it is done; returns the child's pid.

        Raises:
            SyscallError: why it could not be done.
        """
        await self._done.wait()
        if self._error is not None:
            raise self._error
        return self.pid


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done after an end: children to stop, then children to start, in order."""

    stop: tuple[str, ...] = ()
    start: tuple[str, ...] = ()

    def without(self, name: str) -> "Plan":
        """The rest, when all is done about a child."""
        stop, start = (tuple(one for one in names if one != name) for names in (self.stop, self.start))
        return Plan(stop, start)


class Board:
    """A supervisor's children and orders.

    Args:
        spec: the supervisor.
        changed: called after each change.
        called: called when an order has come.

        note: makes what the program decides an event, which comes back by `apply`.

    Attributes:
        orders: those that wait, the oldest first.
        leave: why it is to end, empty while it is not.
        restarts: when it started children again, seconds since 1970; old ones included.
        undecided: ends of children on which nothing is decided yet, the oldest first.
        plan: what was decided last and is not done yet.
        started: set when each child was started once, or the first start of one has failed.
    """

    def __init__(
        self,
        spec: SupervisorSpec,
        changed: Callable[[], None],
        called: Callable[[], None],
        note: Callable[[dict[str, Any]], None],
    ) -> None:
        self.spec = spec
        self.children = {child.name: Child(child) for child in spec.children}
        self.orders: deque[Order] = deque()
        self.started = trio.Event()
        self.leave = ""
        self.restarts: list[float] = []
        self.undecided: deque[tuple[str, Exit]] = deque()
        self.plan = Plan()
        self._changed = changed
        self._called = called
        self._note = note
        self._closed = False

    # --- for the program: each of these is an event, which `apply` then takes ---

    def begin(self, child: Child, pid: int) -> None:
        """A new incarnation of a child runs."""
        self._tell("begin", name=child.spec.name, pid=pid)

    def mark(self, child: Child, state: ChildState) -> None:
        """A child stands elsewhere now."""
        self._tell("mark", name=child.spec.name, state=str(state))

    def end(
        self,
        child: Child,
        exit_: Exit,
        result: str = "",
        *,
        then: ChildState | None = None,
        undecided: bool = False,
    ) -> None:
        """The latest incarnation of a child has ended, or could not be started.

        Args:
            child: the child.
            exit_: how it ended.
            result: what it left.
            then: the child's state; None for what its exit code says.
            undecided: whether it is to be decided yet what follows.
        """
        end = {"code": int(exit_.code), "reason": exit_.reason, "result": result}
        state = then if then is not None else ChildState.FAILED if exit_.code else ChildState.DONE
        self._tell("end", name=child.spec.name, **end, state=str(state), undecided=undecided)

    def decide(self, restarted: float, start: Iterable[str] = (), stop: Iterable[str] = ()) -> None:
        """The oldest end that waited is decided on.

        Args:
            restarted: when it made a restart, seconds since 1970; 0 for none.
            start: children to be started for it, in order.
            stop: children to be stopped before.
        """
        self._tell("decide", restarted=restarted, start=list(start), stop=list(stop))

    def settled(self) -> None:
        """What was decided is done."""
        self._tell("settled")

    def go(self, reason: str) -> None:
        """It is to end; the first reason counts."""
        if not self.leave:
            self._tell("leave", reason=reason)

    def _tell(self, what: str, **more: Any) -> None:
        self._note({"do": what, **more})

    def apply(self, data: dict[str, Any]) -> None:
        """Stand as an event says."""
        _APPLY[data["do"]](self, data)
        self._changed()

    def _begin(self, data: dict[str, Any]) -> None:
        child = self.children[data["name"]]
        child.restarts += 1 if child.pid else 0
        child.pid, child.state, child.exit, child.result = data["pid"], ChildState.RUNNING, None, ""
        self.plan = self.plan.without(data["name"])  # it has made way, if it had to

    def _mark(self, data: dict[str, Any]) -> None:
        self.children[data["name"]].state = ChildState(data["state"])

    def _end(self, data: dict[str, Any]) -> None:
        child = self.children[data["name"]]
        child.exit, child.result = Exit(data["code"], data["reason"]), data["result"]
        child.state = ChildState(data["state"])
        if data["undecided"]:
            self.undecided.append((data["name"], child.exit))

    def _decide(self, data: dict[str, Any]) -> None:
        name, _ = self.undecided.popleft()
        self.plan = Plan(tuple(data["stop"]), tuple(data["start"]))
        if data["restarted"]:
            # More than these can never count.
            self.restarts = [*self.restarts, data["restarted"]][-self.spec.max_restarts - 1 :]
        if name in data["start"]:
            self.children[name].state = ChildState.WAITING

    def _settled(self, _data: dict[str, Any]) -> None:
        self.plan = Plan()

    def _leave(self, data: dict[str, Any]) -> None:
        self.leave = data["reason"]

    def current(self, pid: int) -> Child | None:
        """The child that now runs as `pid`; None for an earlier incarnation, and for a process that
        somebody else put under this supervisor."""
        running = (child for child in self.children.values() if child.state is ChildState.RUNNING)
        return next((child for child in running if child.pid == pid), None)

    def wanted(self) -> list[Child]:
        """The children that are to run, in the order in which they are started."""
        return [child for child in self.children.values() if child.state in WANTED]

    # --- for everybody else ---

    def order(self, verb: Verb, name: str) -> Order:
        """Leave an order.

        Raises:
            SyscallError: NOT_FOUND for a child that there is not, INVALID where the supervisor has ended,
                RESOURCE_EXHAUSTED where too many orders wait.
        """
        if name not in self.children:
            names = ", ".join(self.children)
            reason = f"the supervisor {self.spec.name!r} has no child {name!r}; it has: {names}"
            raise SyscallError(Code.NOT_FOUND, reason + nearest(name, list(self.children)))
        if self._closed:
            raise self._over()
        if len(self.orders) >= limits.SUPERVISOR_ORDERS_MAX:
            reason = f"{limits.SUPERVISOR_ORDERS_MAX} orders wait for the supervisor; try again later"
            raise SyscallError(Code.RESOURCE_EXHAUSTED, reason)
        order = Order(verb, name)
        self.orders.append(order)
        self._called()
        return order

    def close(self) -> None:
        """The supervisor has ended: nobody will obey the orders that still wait, nor a later one."""
        self._closed = True
        self.started.set()
        while self.orders:
            self.orders.popleft().failed(self._over())
        for child in self.children.values():
            if child.state in WANTED or child.state is ChildState.STOPPING:
                child.state = ChildState.STOPPED

    def _over(self) -> SyscallError:
        return SyscallError(Code.INVALID, f"the supervisor {self.spec.name!r} has ended; spawn a new one")

    def rows(self) -> list[dict[str, Any]]:
        """What files show of the children."""
        return [child.row() for child in self.children.values()]

    def listing(self) -> dict[str, Any]:
        """What `supervisor` shows."""
        return {
            "name": self.spec.name,
            "strategy": self.spec.strategy,
            "max_restarts": self.spec.max_restarts,
            "max_window": self.spec.max_window,
            "children": self.rows(),
        }


_APPLY: dict[str, Callable[[Board, dict[str, Any]], None]] = {
    "begin": Board._begin,
    "mark": Board._mark,
    "end": Board._end,
    "decide": Board._decide,
    "settled": Board._settled,
    "leave": Board._leave,
}
