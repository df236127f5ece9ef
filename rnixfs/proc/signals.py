"""The five signals, and what one does to a process: decided in one step, so nothing can come between."""

import enum

from rnixfs.errors import invalid


class Signal(enum.IntEnum):
    """The signals, with the numbers of the reference."""

    TERM = 1
    KILL = 2
    INT = 3
    PAUSE = 4
    RESUME = 5

    def __str__(self) -> str:
        return f"SIG{self.name}"


def parse(text: str) -> Signal:
    """A signal by name, with or without SIG, in any case, or by number.

    Raises:
        SyscallError: INVALID, listing the names.
    """
    word = text.strip().upper().removeprefix("SIG")
    if word in Signal.__members__:
        return Signal[word]
    if word.isascii() and word.isdigit() and int(word) in Signal._value2member_map_:
        return Signal(int(word))
    names = ", ".join(f"{one}({int(one)})" for one in Signal)
    raise invalid(f"no signal {text.strip()!r}; one of: {names}")


class Disposition(enum.StrEnum):
    """What becomes of a signal."""

    PEND = "pend"
    HANDLE = "handle"
    DEFAULT = "default"


class Signals:
    """What a process has blocked, what waits for it, and which signals it handles itself."""

    def __init__(self) -> None:
        self.blocked: set[Signal] = set()
        self.pending: set[Signal] = set()
        self.handled: set[Signal] = set()

    def disposition(self, signal: Signal) -> Disposition:
        """What becomes of a signal that arrives now."""
        if signal is Signal.KILL:
            return Disposition.DEFAULT
        if signal in self.blocked:
            return Disposition.PEND
        return Disposition.HANDLE if signal in self.handled else Disposition.DEFAULT

    def resolve(self, signal: Signal) -> Disposition:
        """Decide on a signal that arrives; a blocked one is kept, once."""
        disposition = self.disposition(signal)
        if disposition is Disposition.PEND:
            self.pending.add(signal)
        return disposition

    def block(self, signal: Signal) -> None:
        """Keep a signal until it is unblocked.

        Raises:
            SyscallError: INVALID for KILL.
        """
        self.refuse_kill(signal, "blocked")
        self.blocked.add(signal)

    def unblock(self, signal: Signal) -> bool:
        """Let a signal through again; says whether one was waiting, which the caller must now deliver."""
        self.blocked.discard(signal)
        waiting = signal in self.pending
        self.pending.discard(signal)
        return waiting

    def handle(self, signal: Signal, on: bool) -> None:
        """Say whether the program handles a signal itself.

        Raises:
            SyscallError: INVALID for KILL.
        """
        self.refuse_kill(signal, "handled")
        (self.handled.add if on else self.handled.discard)(signal)

    def clear(self) -> None:
        """Forget everything, at the end of the process."""
        self.blocked.clear()
        self.pending.clear()
        self.handled.clear()

    @staticmethod
    def refuse_kill(signal: Signal, how: str) -> None:
        """Raise INVALID for KILL, which nothing holds up."""
        if signal is Signal.KILL:
            raise invalid(f"SIGKILL cannot be {how}")
