"""A kernel in a thread of its own, for tests that are not async: each step is done there and then settles.

The clock stands still unless a step moves it, so nothing here depends on how fast the machine is.
"""

import dataclasses
import random
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from rnixfs.errors import Code, SyscallError
from rnixfs.kernel import Kernel
from rnixfs.node import FixedDir
from rnixfs.proc.birth import Birth
from rnixfs.proc.files import proc_dir
from rnixfs.proc.ipc import Pipe
from rnixfs.proc.process import Budget, Launch, Process
from rnixfs.proc.request import SpawnRequest
from rnixfs.proc.state import Exit
from rnixfs.programs.supervise import supervise
from rnixfs.restore import Restored, restore
from rnixfs.state.memory import MemoryStore
from rnixfs.state.store import Keep, Record
from rnixfs.syscalls import Syscalls
from rnixfs.types import Caller, Place

PERSON = Caller(1000, 1000)
THREAD_SECONDS = 60.0
STREAM = random.Random(1).randbytes(1 << 20) * 4
"""What goes through each pipe, from its first byte on: no two places of it look alike."""

T = TypeVar("T")


class Job:
    """A system call that a puppet makes in a task of its own, and what came of it."""

    def __init__(self) -> None:
        self.done = False
        self.code: Code | None = None


class Puppet:
    """A process that does what the test says.

    Args:
        sys: its system calls.
        nursery: runs those that may wait.
    """

    def __init__(self, sys: Syscalls, nursery: trio.Nursery) -> None:
        self.sys = sys
        self.nursery = nursery
        self.end = trio.Event()
        self.exit = Exit(0, "done")


@dataclasses.dataclass
class Stream:
    """A pipe between two processes, and what must be in it.

    Args:
        pipe: the pipe.
        ends: pid and number of the open file, of the writer and of the reader.
        waits: whether its calls wait.
        written: bytes that went in.
        taken: bytes that came out.
        jobs: the last call at each end.
        closed: the ends that were closed by a call.
    """

    pipe: Pipe
    ends: dict[str, tuple[int, int]]
    waits: bool
    written: int = 0
    taken: int = 0
    jobs: dict[str, Job] = dataclasses.field(default_factory=dict)
    closed: set[str] = dataclasses.field(default_factory=set)

    def busy(self, end: str) -> bool:
        """Whether a call at an end still waits."""
        return end in self.jobs and not self.jobs[end].done


class Diary(MemoryStore):
    """A store that keeps all, and remembers each process that ended."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Record] = []
        self.on_exit: Callable[[int], None] = lambda _pid: None

    def append_event(self, event: str, pid: int, data: dict[str, Any], keep: Keep = Keep.NOW) -> Record:
        if event == "exit":
            self.on_exit(pid)
        record = super().append_event(event, pid, data, keep)
        self.records.append(record)
        return record


class World:
    """A running kernel, its puppets, and every process that there ever was.

    Attributes:
        all: the processes by pid, those that are only in the history included.
        puppets: the latest run of each, by pid.
        inside: how many runs there are of each at once, by pid.
    """

    def __init__(self) -> None:
        self.diary = Diary()
        self.diary.on_exit = lambda pid: self.remember(self.kernel.processes[pid])
        self.all: dict[int, Process] = {}
        self.puppets: dict[int, Puppet] = {}
        self.inside: Counter[int] = Counter()
        self.kernel = self._build()
        self.problems: list[BaseException] = []
        self.clock = MockClock()
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(THREAD_SECONDS), "the kernel's thread did not start"
        assert self._failure is None, self._failure

    def _build(self) -> Kernel:
        kernel = Kernel(self, self.diary)
        kernel.root = FixedDir("root", {"proc": proc_dir(kernel)})
        return kernel

    # --- the thread ---

    def _run(self) -> None:
        try:
            trio.run(self._main, clock=self.clock)
        except BaseException as failure:
            self._failure = failure
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._stop = trio.Event()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await nursery.start(self._serve)
            self._ready.set()
            await self._stop.wait()
            nursery.cancel_scope.cancel()

    async def _serve(self, task_status: trio.TaskStatus[None]) -> None:
        self._over = trio.Event()
        await self.kernel.run(task_status)
        self._over.set()

    def restart(self, gently: bool) -> Restored:
        """Throw the kernel away, and build another one over the same log.

        Args:
            gently: whether it is told to stop before, as people do.
        """

        async def again() -> Restored:
            if gently:
                self.kernel.shut_down()
                await self.kernel.suspend_all()
            nursery = self.kernel._nursery
            assert nursery is not None
            nursery.cancel_scope.cancel()
            await self._over.wait()
            old, self.kernel = self.all, self._build()
            self.all = {}
            restored = restore(self.kernel)
            await self._nursery.start(self._serve)
            await wait_all_tasks_blocked()
            for pid in old:
                process = self.kernel.history.by_pid(pid)
                assert process is not None, f"process {pid} is neither in the table nor in the history"
                self.remember(process)
            return restored

        return trio.from_thread.run(again, trio_token=self._token)

    def do(self, step: Callable[[], T]) -> T:
        """Do something in the kernel's thread, and wait until nobody can do anything but wait."""

        async def settled() -> T:
            try:
                return step()
            finally:
                await wait_all_tasks_blocked()
                for process in self.kernel.processes.values():
                    self.remember(process)

        return trio.from_thread.run(settled, trio_token=self._token)

    def attempt(self, step: Callable[[], T]) -> tuple[T | None, Code | None]:
        """Do something that may be refused; gives what came of it, and the refusal's code."""
        try:
            return self.do(step), None
        except SyscallError as error:
            return None, error.code

    def stop(self) -> None:
        """End the thread."""
        if self._thread.is_alive():
            trio.from_thread.run_sync(self._stop.set, trio_token=self._token)
        self._thread.join(THREAD_SECONDS)
        assert not self._thread.is_alive(), "the kernel's thread did not end"
        assert self._failure is None, self._failure

    # --- processes ---

    def remember(self, process: Process) -> None:
        """Note a process; two of one pid are a problem."""
        assert self.all.setdefault(process.pid, process) is process, f"pid {process.pid} was used twice"

    def launch(self, request: SpawnRequest, parent: Process | None) -> Launch:
        """Every process is a puppet or a supervisor."""
        allowed = request.allowed_devices
        return Launch(
            intent=request.intent,
            program=supervise if request.supervisor else self._puppet,
            agent="test",
            skills=(),
            provider="none",
            model="",
            system_prompt="",
            allowed=None if allowed is None else tuple(allowed),
            budget=Budget(),
            place=Place("/", {}, (), False),
            supervisor=request.supervisor,
            request=request,
        )

    def revive(self, birth: Birth) -> Launch:
        """The launch of a process whose log is read."""
        return Launch.again(birth, supervise if birth.supervisor else self._puppet, {})

    def check_ready(self, launch: Launch) -> None:
        """Every process can go on."""

    async def _puppet(self, sys: Syscalls) -> Exit:
        self.inside[sys.pid] += 1
        try:
            async with trio.open_nursery() as nursery:
                puppet = self.puppets[sys.pid] = Puppet(sys, nursery)
                await puppet.end.wait()
                nursery.cancel_scope.cancel()
            sys.set_result(f"result of process {sys.pid}")
        finally:
            self.inside[sys.pid] -= 1
        return puppet.exit

    def call(self, puppet: Puppet, act: Callable[[], Awaitable[T]], then: Callable[[T], None]) -> Job:
        """Let a puppet make a call that may wait; `then` gets its result in the same step."""
        job = Job()

        async def run() -> None:
            try:
                then(await act())
            except SyscallError as error:
                job.code = error.code
            except Exception as error:
                self.problems.append(error)
            finally:
                job.done = True

        puppet.nursery.start_soon(run)
        return job

    # --- what happened ---

    def events(self, event: str) -> list[Record]:
        """The events of a kind."""
        return [record for record in self.diary.records if record.event == event]
