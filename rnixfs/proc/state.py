"""The life of a process as a table, and how it can end."""

import enum

import msgspec

from rnixfs.errors import Code, SyscallError


class State(enum.StrEnum):
    """Where a process stands."""

    CREATED = "created"
    RUNNING = "running"
    SUSPENDED = "suspended"
    ZOMBIE = "zombie"
    DEAD = "dead"


class Event(enum.StrEnum):
    """What can happen to it."""

    START = "start"
    SUSPEND = "suspend"
    WAKE = "wake"
    EXIT = "exit"
    REAP = "reap"


NEXT: dict[tuple[State, Event], State] = {
    (State.CREATED, Event.START): State.RUNNING,
    (State.CREATED, Event.SUSPEND): State.SUSPENDED,
    (State.CREATED, Event.EXIT): State.ZOMBIE,
    (State.RUNNING, Event.SUSPEND): State.SUSPENDED,
    (State.RUNNING, Event.EXIT): State.ZOMBIE,
    (State.SUSPENDED, Event.WAKE): State.RUNNING,
    (State.SUSPENDED, Event.EXIT): State.ZOMBIE,
    (State.ZOMBIE, Event.REAP): State.DEAD,
}
"""Every step that is allowed; the others are errors. No step leads back from an end."""

LIVE = frozenset({State.CREATED, State.RUNNING, State.SUSPENDED})


def advance(state: State, event: Event) -> State:
    """The state after an event.

    Raises:
        SyscallError: INTERNAL for a step that the table does not hold.
    """
    try:
        return NEXT[state, event]
    except KeyError:
        raise SyscallError(Code.INTERNAL, f"a process that is {state} cannot {event}") from None


class ExitCode(enum.IntEnum):
    """How a process ended; also the exit status of `rnix spawn`."""

    DONE = 0
    ERROR = 1
    BUDGET = 2
    CONTEXT_FULL = 3


class Exit(msgspec.Struct, frozen=True):
    """The end of a process: a code and the reason in words."""

    code: int
    reason: str


class ChildEnd(msgspec.Struct, frozen=True):
    """The end of a child: its pid, how it ended, and what it left as its result."""

    pid: int
    exit: Exit
    result: str
