"""One process: what it is, what it holds, and where it stands.

Only the kernel changes a process's state; its program changes what it holds through system calls.
"""

import dataclasses
import logging
import os
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, printable
from rnixfs.node import Broadcast, Dir, File, Journal, StreamFile
from rnixfs.proc.context import Context
from rnixfs.proc.records import StepRecord
from rnixfs.proc.signals import Signal, Signals
from rnixfs.proc.state import LIVE, Exit, State
from rnixfs.proc.view import Rights, View
from rnixfs.traceline import TraceRecord, line
from rnixfs.types import Caller, Place

if TYPE_CHECKING:
    from rnixfs.syscalls import Syscalls

Program = Callable[["Syscalls"], Awaitable[Exit]]
"""What a process runs. It holds a Syscalls object and nothing else of the kernel."""


log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Budget:
    """What ends a process before it is done; 0 means no limit.

    Args:
        max_steps: reasoning steps.
        tokens: tokens of all its model calls together.
        cost_usd: dollars.
        timeout_ms: milliseconds of running; pauses do not count.
    """

    max_steps: int = limits.STEPS_MAX
    tokens: int = 0
    cost_usd: float = 0.0
    timeout_ms: int = 0


@dataclasses.dataclass(frozen=True)
class Launch:
    """All that a new process needs to know; made from a request by the launcher.

    Args:
        intent: what is to be done.
        program: what it runs.
        agent: the agent's name.
        skills: names of its skills.
        provider: name of its model under `dev/llm/`.
        model: the provider's model, empty for the default.
        system_prompt: instructions, whole.
        allowed: paths it may use, None for everything the parent may.
        budget: its limits.
        place: where it stands on the host.
        binds: nodes of its own in its view.
    """

    intent: str
    program: Program
    agent: str
    skills: tuple[str, ...]
    provider: str
    model: str
    system_prompt: str
    allowed: tuple[str, ...] | None
    budget: Budget
    place: Place
    binds: dict[str, Any] = dataclasses.field(default_factory=dict)


class Stopwatch:
    """Time that stands still while paused, and at the end."""

    def __init__(self) -> None:
        self._since: float | None = trio.current_time()
        self._before = 0.0

    def elapsed(self) -> float:
        """Seconds of running so far."""
        return self._before + (trio.current_time() - self._since if self._since is not None else 0.0)

    def stop(self) -> None:
        """Stand still."""
        self._before, self._since = self.elapsed(), None

    def go(self) -> None:
        """Go on."""
        if self._since is None:
            self._since = trio.current_time()


@dataclasses.dataclass(slots=True)
class OpenFile:
    """One entry of a process's table of open files.

    Args:
        path: as the process named it.
        flags: O_… flags of its open.
        file: the open itself.
        offset: where the next read or write starts.
    """

    path: str
    flags: int
    file: File
    offset: int = 0


class Process:
    """A process of the table.

    Args:
        pid: its number.
        parent: its parent, None for a child of process 0.
        launch: what it is to do.
        view: makes its view, given its rights.
    """

    def __init__(
        self,
        pid: int,
        parent: "Process | None",
        launch: Launch,
        view: Callable[["Process", Rights], View],
    ) -> None:
        self.pid = pid
        self.uuid = uuid7()
        self.parent = parent
        self.depth: int = parent.depth + 1 if parent is not None else 1
        self.launch = launch
        self.state = State.CREATED
        self.started_ns = time.time_ns()
        self.changed_ns = self.started_ns
        self.ended_at: float | None = None
        self.watch = Stopwatch()
        self.born = trio.current_time()
        self.exit: Exit | None = None
        self.result = ""
        self.model_used = launch.model
        self.tokens_used = 0
        self.prompt_tokens = 0
        self.cost_usd = 0.0
        self.steps = 0
        self.budget = launch.budget
        self.context = Context(launch.system_prompt)
        self.rights: Rights = Rights(launch.allowed, parent.rights if parent is not None else None)
        self.view = view(self, self.rights)
        self.caller = Caller(os.getuid(), os.getgid(), agent=pid)
        self.children: dict[int, Process] = {}
        self.files: dict[int, OpenFile] = {}
        self.signals = Signals()
        self.handlers: dict[Signal, Callable[[Signal], None]] = {}
        self.paused = False
        self.resumed = trio.Event()
        self.ending = ""
        self.inbox: list[str] = []
        self.scope = trio.CancelScope()
        self.done = trio.Event()
        self.trace = Journal()
        self.trace_live = Broadcast()
        self.log = Journal()
        self.log_live = Broadcast()
        self.steps_journal = Journal()
        self.step_records: list[bytes] = []
        self.ended_live = Broadcast()
        self.folder: Dir | None = None
        self._status_made: tuple[object, ...] = ()
        self._status_line = b""

    @property
    def live(self) -> bool:
        """Whether it has not ended yet."""
        return self.state in LIVE

    @property
    def ppid(self) -> int:
        """The parent's pid; 0 for children of the system."""
        return self.parent.pid if self.parent is not None else 0

    def touch(self) -> None:
        """Remember that something of it changed now."""
        self.changed_ns = time.time_ns()

    def descends_from(self, pid: int) -> bool:
        """Whether `pid` is this process or one of its ancestors."""
        one: Process | None = self
        while one is not None and one.pid != pid:
            one = one.parent
        return one is not None

    # --- signals and the clock ---

    def on_signal(self, signal: Signal) -> None:
        """Call the program's own handler."""
        handler = self.handlers.get(signal)
        if handler is None:
            return
        try:
            handler(signal)
        except Exception:
            # Whoever sent the signal is not to blame for the handler.
            log.exception("the handler of process %d for %s failed", self.pid, signal)

    def time_left(self) -> float:
        """Seconds of running until its time limit."""
        return self.budget.timeout_ms / 1000 - self.watch.elapsed()

    # --- open files ---

    def add_file(self, opened: OpenFile) -> int:
        """Give an open file the lowest free number from 3.

        Raises:
            SyscallError: RESOURCE_EXHAUSTED past `limits.OPEN_FILES_MAX`.
        """
        if len(self.files) >= limits.OPEN_FILES_MAX:
            raise SyscallError(
                Code.RESOURCE_EXHAUSTED, f"a process may have {limits.OPEN_FILES_MAX} open files; close some"
            )
        fd = 3
        while fd in self.files:
            fd += 1
        self.files[fd] = opened
        return fd

    def file(self, fd: int) -> OpenFile:
        """The open file with a number.

        Raises:
            SyscallError: BAD_FD.
        """
        try:
            return self.files[fd]
        except KeyError:
            raise SyscallError(Code.BAD_FD, f"FD({fd}) is not open") from None

    # --- journals ---

    def record(self, record: TraceRecord) -> None:
        """Add a system call to the trace."""
        try:
            data = msgspec.json.encode(record)
        except UnicodeEncodeError:
            record.args = {
                name: printable(one) if isinstance(one, str) else one for name, one in record.args.items()
            }
            data = msgspec.json.encode(record)
        self.trace.append(data + b"\n", time.time_ns())
        if self.trace_live:
            self.trace_live.push((line(record) + "\n").encode())

    def say(self, category: str, text: str) -> None:
        """Add to the log what it thought or did; lines after the first are indented."""
        stamp = f"[{trio.current_time() - self.born:7.3f}s] {category} "
        body = text.rstrip().replace("\n", "\n" + " " * 4)
        data = f"{stamp}{body}\n".encode("utf-8", "replace")
        self.log.append(data, time.time_ns())
        self.log_live.push(data)

    def follow_log(self) -> StreamFile:
        """A reader of the log from its start on."""
        reader = self.log_live.join()
        if self.log.data:
            reader.prepend(bytes(self.log.data))
        return reader

    def add_step(self, record: StepRecord) -> None:
        """Add a step's record."""
        data = msgspec.json.encode(record) + b"\n"
        self.steps_journal.append(data, time.time_ns())
        self.step_records.append(data)

    # --- what files show ---

    def status(self) -> dict[str, Any]:
        """The fields of `status`."""
        return {
            "pid": self.pid,
            "ppid": self.ppid,
            "uuid": self.uuid,
            "state": self.state,
            "paused": self.paused,
            "intent": self.launch.intent,
            "agent": self.launch.agent,
            "skills": self.launch.skills,
            "provider": self.launch.provider,
            "model": self.model_used,
            "tokens_used": self.tokens_used,
            "context_budget": self.budget.tokens,
            "cost_usd": self.cost_usd,
            "steps": self.steps,
            "elapsed_ms": self.elapsed_ms(),
            "allowed_devices": self.rights.listing()["granted"],
            "children": list(self.children),
            "exit": self.exit,
        }

    def status_line(self) -> bytes:
        """The content of `status`: a line of JSON."""
        # One open of it asks twice, for the size and for the bytes, and listings ask for every process. All
        # that changes is compared, so that a change nobody reported is seen too; rights are always reported.
        now = (
            self.changed_ns,
            self.elapsed_ms(),
            self.state,
            self.paused,
            self.model_used,
            self.tokens_used,
            self.cost_usd,
            self.steps,
            self.budget.tokens,
            self.exit,
            self.parent,
            len(self.children),
        )
        if now != self._status_made:
            self._status_made, self._status_line = now, msgspec.json.encode(self.status()) + b"\n"
        return self._status_line

    def elapsed_ms(self) -> int:
        """Milliseconds of running, pauses left out."""
        return int(self.watch.elapsed() * 1000)

    def ending_line(self) -> bytes:
        """What `wait` gives."""
        assert self.exit is not None
        return (
            msgspec.json.encode(
                {
                    "code": self.exit.code,
                    "reason": self.exit.reason,
                    "result": self.result,
                    "tokens_used": self.tokens_used,
                    "elapsed_ms": self.elapsed_ms(),
                }
            )
            + b"\n"
        )


def uuid7() -> str:
    """A UUID of version 7 (RFC 9562): 48 bits of milliseconds, then random bits, so that keys sort by age."""
    millis = time.time_ns() // 1_000_000
    rand = int.from_bytes(os.urandom(10))
    number = (
        (millis & (1 << 48) - 1) << 80
        | 0x7 << 76
        | (rand >> 62 & 0xFFF) << 64
        | 0b10 << 62
        | rand & (1 << 62) - 1
    )
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
