"""Threads and coroutines of a process: tasks that share all it has and end when it does.

Both run as tasks of one nursery around the program, inside the process's own cancel scope, so whatever ends
or times out the process ends them, whatever they wait for. A thread runs by itself; a coroutine runs only
while somebody waits in `resume`, and hands values over in both directions.
"""

import enum
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, invalid

log = logging.getLogger(__name__)


class Kind(enum.StrEnum):
    """What runs beside the program."""

    THREAD = "thread"
    COROUTINE = "coroutine"


class Stage(enum.StrEnum):
    """Where a thread or coroutine stands. A coroutine is ready until first resumed, suspended in a yield."""

    READY = "ready"
    RUNNING = "running"
    SUSPENDED = "suspended"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED = frozenset({Stage.DONE, Stage.FAILED, Stage.CANCELLED})


class Thread:
    """One thread.

    Args:
        tid: its number in its process.
        intent: what it is for, in words.
        body: what it runs.
        ended: told when it ends.
    """

    kind = Kind.THREAD

    def __init__(
        self, tid: int, intent: str, body: Callable[[], Awaitable[Any]], ended: Callable[["Thread"], None]
    ) -> None:
        self.tid = tid
        self.intent = intent
        self.stage = Stage.RUNNING
        self.failure: SyscallError | None = None
        self.done = trio.Event()
        self.joined = False
        self.task: trio.lowlevel.Task | None = None
        self.changed_ns = time.time_ns()
        self._body = body
        self._tell = ended
        self._value: Any = None
        self._since = trio.current_time()
        self._seconds: float | None = None

    async def run(self) -> None:
        """Run the body to its end; only cancellations leave here."""
        self.task = trio.lowlevel.current_task()
        try:
            self._value = await self._body()
            self.end(Stage.DONE)
        except Exception as error:
            self.end(Stage.FAILED, self._failed(error))
        except BaseExceptionGroup as group:
            cancelled, failed = group.split(trio.Cancelled)
            if failed is not None:
                log.warning("%s %d failed while it was cancelled", self.kind, self.tid, exc_info=failed)
            if cancelled is not None:
                raise cancelled from None
        finally:
            self.end(Stage.CANCELLED)

    def _failed(self, error: Exception) -> SyscallError:
        if isinstance(error, SyscallError):
            return SyscallError(error.code, f"{self.kind} {self.tid}: {error.reason}", device=error.device)
        log.warning("%s %d failed", self.kind, self.tid, exc_info=error)
        return SyscallError(Code.INTERNAL, f"{self.kind} {self.tid}: {type(error).__name__}: {error}")

    def end(self, stage: Stage, failure: SyscallError | None = None) -> None:
        """Note how it ended, once."""
        if self.stage in ENDED:
            return
        self._seconds = self.elapsed()
        self.failure = failure
        self.move(stage)
        self.done.set()
        self._tell(self)

    def move(self, stage: Stage) -> None:
        """Note where it stands."""
        self.stage = stage
        self.changed_ns = time.time_ns()

    def outcome(self) -> Any:
        """What its body returned.

        Raises:
            SyscallError: what it failed with; CANCELED where it was cancelled.
        """
        if self.failure is not None:
            raise SyscallError(self.failure.code, self.failure.reason, device=self.failure.device)
        if self.stage is Stage.CANCELLED:
            raise SyscallError(Code.CANCELED, f"{self.kind} {self.tid} was cancelled")
        return self._value

    def forget(self) -> None:
        """Let go of what it held; only its status is left."""
        self._value = None
        self.task = None

    def elapsed(self) -> float:
        """Seconds from its start to now, or to its end."""
        return trio.current_time() - self._since if self._seconds is None else self._seconds

    def status(self) -> dict[str, Any]:
        """The fields of its `status`."""
        return {
            "tid": self.tid,
            "kind": self.kind,
            "intent": self.intent,
            "state": self.stage,
            "elapsed_ms": int(self.elapsed() * 1000),
            "error": self.failure.reason if self.failure is not None else "",
        }


class Coroutine(Thread):
    """One coroutine: its body gets the value of the first resume, each yield that of the next.

    Args:
        tid: its number in its process.
        intent: what it is for, in words.
        function: what it runs.
        ended: told when it ends.
    """

    kind = Kind.COROUTINE

    def __init__(
        self,
        tid: int,
        intent: str,
        function: Callable[[Any], Awaitable[Any]],
        ended: Callable[[Thread], None],
    ) -> None:
        super().__init__(tid, intent, lambda: function(self._take()), ended)
        self.stage = Stage.READY
        self._scope = trio.CancelScope()
        self._passed: Any = None
        self._turn = trio.Event()
        self._back = trio.Event()

    async def run(self) -> None:
        """Run the body to its end."""
        try:
            with self._scope:
                await super().run()
        finally:
            self._back.set()

    async def resume(self, value: Any, start: Callable[[Callable[[], Awaitable[None]]], None]) -> Any:
        """Hand a value over, let it run, and take what it yields or returns.

        A cancelled resume cancels the coroutine, as it would a function that is called.

        Args:
            value: for the coroutine.
            start: starts its task, at the first time.

        Raises:
            SyscallError: INVALID where it has ended or runs already; what it failed with.
        """
        if self.stage in ENDED:
            raise invalid(f"coroutine {self.tid} has ended ({self.stage}); there is nothing to resume")
        if self.stage is Stage.RUNNING:
            raise invalid(f"coroutine {self.tid} is running; it can be resumed when it has yielded")
        first = self.stage is Stage.READY
        self._passed, self._back = value, trio.Event()
        self.move(Stage.RUNNING)
        if first:
            start(self.run)
        else:
            self._turn.set()
        try:
            await self._back.wait()
        except trio.Cancelled:
            self._scope.cancel()
            raise
        return self.outcome() if self.stage in ENDED else self._take()

    async def hand_over(self, value: Any) -> Any:
        """Yield a value from inside, and wait for that of the next resume."""
        self._passed, self._turn = value, trio.Event()
        self.move(Stage.SUSPENDED)
        self._back.set()
        await self._turn.wait()
        return self._take()

    def _take(self) -> Any:
        value, self._passed = self._passed, None
        return value

    def forget(self) -> None:
        super().forget()
        self._passed = None


class ThreadTable:
    """The threads and coroutines of one process.

    Args:
        say: writes to the process's log, by category and text.
    """

    __slots__ = ("_all", "_next", "_nursery", "_say", "_tasks")

    def __init__(self, say: Callable[[str, str], None]) -> None:
        self._say = say
        self._all: dict[int, Thread] = {}
        self._tasks: dict[trio.lowlevel.Task, Thread] = {}
        self._next = 1
        self._nursery: trio.Nursery | None = None

    def open(self, nursery: trio.Nursery) -> None:
        """Take the nursery in which they run."""
        self._nursery = nursery

    def close(self) -> None:
        """Cancel all, as the program has ended; no more can be started."""
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()
        self._nursery = None

    def release(self) -> None:
        """The process has ended: whoever has not ended yet counts as cancelled, and results are let go."""
        self.close()
        for thread in list(self._all.values()):
            thread.end(Stage.CANCELLED)
            thread.forget()
        self._tasks.clear()

    def alive(self) -> list[Thread]:
        """Those that have not ended."""
        return [one for one in self._all.values() if one.stage not in ENDED]

    def busy(self) -> bool:
        """Whether a task of theirs is left."""
        return bool(self._tasks)

    def numbers(self) -> list[int]:
        """The numbers of those that can be seen."""
        return list(self._all)

    def find(self, tid: int) -> Thread | None:
        """The thread or coroutine with a number, None without one."""
        return self._all.get(tid)

    def get(self, tid: int) -> Thread:
        """The thread or coroutine with a number.

        Raises:
            SyscallError: NOT_FOUND.
        """
        thread = self._all.get(tid)
        if thread is None:
            raise SyscallError(
                Code.NOT_FOUND, f"no thread {tid}; the last {limits.THREADS_KEPT} that ended are kept"
            )
        return thread

    # --- threads ---

    def spawn(self, body: Callable[[], Awaitable[Any]], intent: str) -> Thread:
        """Start a thread.

        Raises:
            SyscallError: INVALID while the process ends, RESOURCE_EXHAUSTED past `limits.THREADS_MAX`.
        """
        self._check_room()
        thread = Thread(self._next, intent, body, self._ended)
        self._add(thread)
        self._start(thread, thread.run)
        return thread

    async def join(self, tid: int) -> Any:
        """Wait for a thread to end and give what it returned, any number of times.

        Raises:
            SyscallError: NOT_FOUND; INVALID for oneself and for coroutines; what the thread failed with.
        """
        thread = self.get(tid)
        if isinstance(thread, Coroutine):
            raise invalid(f"{tid} is a coroutine; resume it instead")
        if thread.task is trio.lowlevel.current_task():
            raise invalid(f"thread {tid} cannot wait for itself")
        await thread.done.wait()
        thread.joined = True
        return thread.outcome()

    # --- coroutines ---

    def spawn_coroutine(self, function: Callable[[Any], Awaitable[Any]], intent: str) -> Coroutine:
        """Make a coroutine; it runs from its first resume on.

        Raises:
            SyscallError: as `spawn`.
        """
        self._check_room()
        coroutine = Coroutine(self._next, intent, function, self._ended)
        self._add(coroutine)
        return coroutine

    async def resume(self, tid: int, value: Any) -> Any:
        """Let a coroutine run until it yields or ends; see `Coroutine.resume`.

        Raises:
            SyscallError: NOT_FOUND, INVALID, what the coroutine failed with.
        """
        coroutine = self.get(tid)
        if not isinstance(coroutine, Coroutine):
            raise invalid(f"{tid} is a thread; join it instead")
        return await coroutine.resume(value, lambda run: self._start(coroutine, run))

    async def hand_over(self, value: Any) -> Any:
        """Yield, from inside of a coroutine.

        Raises:
            SyscallError: INVALID anywhere else.
        """
        here = self._tasks.get(trio.lowlevel.current_task())
        if not isinstance(here, Coroutine):
            raise invalid("only a coroutine can yield, in the task that it was started in")
        return await here.hand_over(value)

    # --- both ---

    def _check_room(self) -> None:
        if self._nursery is None:
            raise invalid("the process is ending; it can start no more threads")
        if len(self.alive()) >= limits.THREADS_MAX:
            raise SyscallError(
                Code.RESOURCE_EXHAUSTED,
                f"a process may have {limits.THREADS_MAX} threads and coroutines; let some end",
            )

    def _add(self, thread: Thread) -> None:
        self._all[thread.tid] = thread
        self._next += 1

    def _start(self, thread: Thread, run: Callable[[], Awaitable[None]]) -> None:
        async def task() -> None:
            here = trio.lowlevel.current_task()
            self._tasks[here] = thread
            try:
                await run()
            finally:
                self._tasks.pop(here, None)

        if self._nursery is None:
            raise invalid("the process is ending; nothing can be started in it")
        self._nursery.start_soon(task, name=f"{thread.kind} {thread.tid}")

    def _ended(self, thread: Thread) -> None:
        # The failure of a coroutine reaches whoever resumes it; that of a thread perhaps nobody.
        if thread.failure is not None and thread.kind is Kind.THREAD:
            self._say("warning", thread.failure.reason)
        over = [one for one in self._all.values() if one.stage in ENDED]
        excess = len(over) - limits.THREADS_KEPT
        if excess > 0:
            # Joined ones go first: nobody will ask them for their result again.
            for one in sorted(over, key=lambda one: not one.joined)[:excess]:
                del self._all[one.tid]
