"""Interrupts without help from FUSE: one task that looks at the pending signals of the programs that wait.

This is the path behind `interrupt`. It watches the thread that opened the file, for that is all that pyfuse3
tells; a program that reads through a descriptor it inherited is not seen. A look costs about 40 µs, so the
pause between two rounds grows with what a round costs, and nothing runs while nobody waits.
"""

import enum
import os
import signal

import trio

from rnixfs.edge import Sleep

PERIOD = 0.025  # seconds between two rounds of looks
SHARE = 0.25  # the part of the loop's time that looks may take when very many wait
GONE_SECONDS = 0.25  # how long a wait lasts at least when the thread that opened the file is gone
_LOOKS_IN_A_ROW = 64  # looks between two turns for other tasks
_STATUS_BYTES = 8192  # /proc/<tid>/status is about 1.5 KB; the longest line lists groups


def _bit(number: int) -> int:
    return 1 << (number - 1)


# What these do where the program does not handle them is nothing (signal(7), "Ign").
_HARMLESS = _bit(signal.SIGCHLD) | _bit(signal.SIGCONT) | _bit(signal.SIGURG) | _bit(signal.SIGWINCH)


class Sight(enum.Enum):
    """What a look at a thread shows."""

    QUIET = enum.auto()
    SIGNALLED = enum.auto()
    GONE = enum.auto()


class Wait:
    """One request that waits, from the start of its sleep to the end of it.

    Args:
        tid: thread id of the program that opened the file, 0 where it is not known.
    """

    __slots__ = ("over", "request", "scope", "since", "task", "tid")

    def __init__(self, tid: int) -> None:
        self.tid = tid
        self.task = trio.lowlevel.current_task()
        self.scope = trio.CancelScope()
        self.since = 0.0  # seconds on trio's clock; set by the watcher
        self.request = 0  # address of libfuse's request; set by whoever registers the wait there
        self.over = False  # from here on the task may serve another request

    def interrupt(self) -> None:
        """End the sleep, unless it has ended."""
        if not self.over:
            self.scope.cancel()

    async def run(self, sleep: Sleep) -> bool:
        """Sleep; False when `interrupt` cut it short."""
        try:
            with self.scope:
                await sleep()
        finally:
            self.over = True
        return not self.scope.cancelled_caught


class Watcher:
    """Interrupts waits by looking at /proc/<tid>/status of the thread that opened the file.

    Args:
        proc: where procfs is mounted.
        period: seconds between two rounds.
    """

    def __init__(self, proc: str = "/proc", period: float = PERIOD) -> None:
        self.rounds = 0  # rounds of looks so far
        self._proc = proc
        self._period = period
        self._waits: dict[int, set[Wait]] = {}
        self._bell = trio.lowlevel.ParkingLot()

    def __len__(self) -> int:
        return sum(map(len, self._waits.values()))

    async def wait(self, sleep: Sleep, tid: int = 0) -> bool:
        """Run `sleep` until it is done (True) or the thread `tid` has a signal to take (False)."""
        wait = Wait(tid)
        self.add(wait)
        try:
            return await wait.run(sleep)
        finally:
            self.discard(wait)

    def add(self, wait: Wait) -> None:
        """Watch over a wait; one without a thread id cannot be watched and is left alone."""
        if wait.tid <= 0:
            return
        wait.since = trio.current_time()
        self._waits.setdefault(wait.tid, set()).add(wait)
        self._bell.unpark()

    def discard(self, wait: Wait) -> None:
        """Stop watching; does nothing for a wait that is not watched."""
        waits = self._waits.get(wait.tid)
        if waits is None:
            return
        waits.discard(wait)
        if not waits:
            del self._waits[wait.tid]

    async def run(self) -> None:
        """Look round after round while somebody waits; until cancelled."""
        pause = self._period
        while True:
            while not self._waits:
                await self._bell.park()
            await trio.sleep(pause)
            cost = await self._round()
            pause = max(self._period, cost / SHARE - cost)

    async def _round(self) -> float:
        """One look at each thread; the seconds that the looks took, without those of other tasks."""
        cost = 0.0
        threads = list(self._waits)
        for start in range(0, len(threads), _LOOKS_IN_A_ROW):
            began = trio.current_time()
            for tid in threads[start : start + _LOOKS_IN_A_ROW]:
                self._look(tid)
            cost += trio.current_time() - began
            await trio.lowlevel.checkpoint()
        self.rounds += 1
        return cost

    def _look(self, tid: int) -> None:
        sight = look(tid, self._proc) if tid in self._waits else Sight.QUIET
        if sight is Sight.QUIET:
            return
        # A reader cannot vanish while it waits, so whoever reads for a thread that is gone inherited the
        # descriptor, or is being killed. It gets a moment before each EINTR, or it would do nothing but
        # retry.
        latest = trio.current_time() - (GONE_SECONDS if sight is Sight.GONE else 0)
        for wait in self._waits[tid]:
            if wait.since <= latest:
                wait.interrupt()


def look(tid: int, proc: str = "/proc") -> Sight:
    """Whether a thread has a signal to take.

    Args:
        tid: thread id.
        proc: where procfs is mounted.
    """
    try:
        descriptor = os.open(f"{proc}/{tid}/status", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return Sight.GONE
    try:
        return judge(os.read(descriptor, _STATUS_BYTES))
    except ProcessLookupError:
        return Sight.GONE
    finally:
        os.close(descriptor)


def judge(status: bytes) -> Sight:
    """What a status file says (proc_pid_status(5)).

    A signal counts when it is pending for the thread or its process and would end the program or run a
    handler: blocked and ignored ones do not, nor do those whose default is to do nothing.
    """
    if _field(status, b"State")[:1] in (b"Z", b"X"):
        return Sight.GONE
    pending = _mask(status, b"SigPnd") | _mask(status, b"ShdPnd")
    if not pending:
        return Sight.QUIET
    idle = _mask(status, b"SigBlk") | _mask(status, b"SigIgn") | (_HARMLESS & ~_mask(status, b"SigCgt"))
    return Sight.SIGNALLED if pending & ~idle else Sight.QUIET


def _mask(status: bytes, name: bytes) -> int:
    return int(_field(status, name) or b"0", 16)


def _field(status: bytes, name: bytes) -> bytes:
    """The value of a field, b"" where there is none; the first line (the name, free text) never matches."""
    start = status.find(b"\n" + name + b":\t")
    if start < 0:
        return b""
    start += len(name) + 3
    end = status.find(b"\n", start)
    return status[start:end] if end >= 0 else status[start:]
