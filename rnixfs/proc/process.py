"""One process: what it is, what it holds, and where it stands.

Only the kernel changes a process's state; its program changes what it holds through system calls.

Over 400 lines because what a process is started with, what it holds and what its files show of it are one
record: each field is named in all three.
"""

import dataclasses
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, printable
from rnixfs.llm import Fallback
from rnixfs.mcp.places import own_path
from rnixfs.node import Broadcast, Dir, File, Journal, Pulse, StreamFile
from rnixfs.proc.birth import Birth, Origin, applied, differences
from rnixfs.proc.board import Board
from rnixfs.proc.context import Context
from rnixfs.proc.progress import Progress
from rnixfs.proc.records import StepRecord
from rnixfs.proc.request import SpawnRequest
from rnixfs.proc.signals import Signal, Signals
from rnixfs.proc.state import LIVE, Exit, State
from rnixfs.proc.supervision import SupervisorSpec
from rnixfs.proc.threads import ThreadTable
from rnixfs.proc.view import Rights, View
from rnixfs.traceline import TraceRecord, line
from rnixfs.types import Caller, Place

if TYPE_CHECKING:
    from rnixfs.syscalls import Syscalls

Program = Callable[["Syscalls"], Awaitable[Exit]]
"""What a process runs. It holds a Syscalls object and nothing else of the kernel."""


log = logging.getLogger(__name__)

STOPPED = "the system stopped while it ran"
"""Why a process is suspended that ran when the system was killed."""

SHUT_DOWN = "the system was stopped"
"""Why a process is suspended that ran when the system ended in order."""


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
        supervisor: what it supervises; its children then end with it, whatever ends it.
        request: how it was asked for.
        origin: what it was forked from.
        effort: how much the model is to think, in the provider's words; empty for its default.
        fallback: who is asked, in order, when the provider cannot answer.
        mcp: names of the MCP servers that are mounted for it.
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
    supervisor: SupervisorSpec | None = None
    request: SpawnRequest | None = None
    origin: Origin | None = None
    effort: str = ""
    fallback: tuple[Fallback, ...] = ()
    mcp: tuple[str, ...] = ()

    @classmethod
    def again(
        cls, birth: Birth, program: Program, env: dict[str, str], binds: dict[str, Any] | None = None
    ) -> "Launch":
        """What a process was started with, from its first event.

        Args:
            birth: the event.
            program: what it runs.
            env: the daemon's environment.
            binds: nodes of its own in its view.
        """
        return cls(
            intent=birth.intent,
            program=program,
            agent=birth.agent,
            skills=birth.skills,
            provider=birth.provider,
            model=birth.model,
            system_prompt=birth.system_prompt,
            allowed=birth.allowed_devices,
            budget=Budget(birth.max_steps, birth.tokens, birth.cost_usd, birth.timeout_ms),
            place=Place(birth.cwd, applied(birth.env, env), birth.roots, birth.writable),
            binds=binds or {},
            supervisor=birth.supervisor,
            request=birth.request,
            origin=birth.origin,
            effort=birth.effort,
            fallback=birth.fallback,
            mcp=birth.mcp,
        )

    def birth(self, uuid: str, ppid: int, depth: int, key: str, env: dict[str, str]) -> Birth:
        """The first event of a process that is started with this; the counterpart of `again`."""
        budget, place = self.budget, self.place
        return Birth(
            uuid=uuid,
            ppid=ppid,
            depth=depth,
            intent=self.intent,
            agent=self.agent,
            skills=self.skills,
            provider=self.provider,
            model=self.model,
            system_prompt=self.system_prompt,
            allowed_devices=self.allowed,
            max_steps=budget.max_steps,
            tokens=budget.tokens,
            cost_usd=budget.cost_usd,
            timeout_ms=budget.timeout_ms,
            cwd=place.cwd,
            roots=place.roots,
            writable=place.writable,
            env=differences(place.env, env),
            supervisor=self.supervisor,
            request=self.request,
            key=key,
            origin=self.origin,
            effort=self.effort,
            fallback=self.fallback,
            mcp=self.mcp,
        )


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

    def set(self, seconds: float) -> None:
        """Stand still at a time."""
        self._before, self._since = seconds, None


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
        born: its first event, where it is made anew from its log.
        bound: the rights that bound its own; the parent's if None.

    Attributes:
        past_ppid: the parent's pid, of one that ended as the child of a process that is gone.
        run: how often its program was started; what a program does counts only in the run it belongs to.
        parked: set while no task of it runs.
        suspended: why it is suspended, empty while it is not.
        inherited: how many of its steps were made by the process that it was forked from.
        heard: pids of ended children that its program knows of.
        unheard: pids of those that others reaped before, as its log tells it.
        keep: puts bytes into a journal of its own that outlives the system.
        settle: makes sure that what was kept so far does.
        note: makes a decision of a supervisor an event.
        servers: the paths of the MCP servers that are mounted for it, by their names.
    """

    def __init__(
        self,
        pid: int,
        parent: "Process | None",
        launch: Launch,
        view: Callable[["Process", Rights], View],
        born: Birth | None = None,
        bound: Rights | None = None,
    ) -> None:
        self.pid = pid
        self.uuid = born.uuid if born is not None else uuid7()
        self.parent = parent
        above = parent.depth if parent is not None else 0
        self.depth: int = born.depth if born is not None else above + 1
        self.launch = launch
        self.past_ppid = 0
        self.run = 0
        self.parked = trio.Event()
        self.parked.set()
        self.suspended = ""
        self.keep: Callable[[str, bytes], None] = lambda _name, _data: None
        self.settle: Callable[[], None] = lambda: None
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
        self.cached_tokens = 0
        self.context_window = 0
        self.cost_usd = 0.0
        self.steps = 0
        self.inherited = 0
        self.budget = launch.budget
        self.context = Context(launch.system_prompt)
        self.progress = Progress()
        self.contexts = {1: self.context}
        self.next_context = 2
        if bound is None and parent is not None:
            bound = parent.rights
        self.servers = {server: own_path(pid, server) for server in launch.mcp}
        self.rights: Rights = Rights(launch.allowed, bound, self.servers.values())
        self.view = view(self, self.rights)
        self.caller = Caller(os.getuid(), os.getgid(), agent=pid)
        self.children: dict[int, Process] = {}
        self.untold: dict[int, Process] = {}  # ended children that its program has not heard of
        self.heard: set[int] = set()
        self.unheard: list[int] = []
        self.files: dict[int, OpenFile] = {}
        self.signals = Signals()
        self.handlers: dict[Signal, Callable[[Signal], None]] = {}
        self.paused = False
        self.resumed = trio.Event()
        self.ending = ""
        self.inbox: list[str] = []
        self.scope = trio.CancelScope()
        self.done = trio.Event()
        self.threads = ThreadTable(self.say)
        self.news = Pulse()
        spec = launch.supervisor
        self.note: Callable[[dict[str, Any]], None] = lambda _data: None
        self.board: Board | None = None
        if spec is not None:
            self.board = Board(spec, self.touch, self.news.fire, lambda data: self.note(data))
        self.trace = Journal(settle=lambda: self.settle())
        self.trace_live = Broadcast()
        self.log = Journal(settle=lambda: self.settle())
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
    def runs(self) -> bool:
        """Whether its time counts: neither paused, suspended nor ended."""
        return not (self.paused or self.suspended or self.exit is not None)

    @property
    def ppid(self) -> int:
        """The parent's pid; 0 for children of the system."""
        return self.parent.pid if self.parent is not None else self.past_ppid

    def touch(self) -> None:
        """Remember that something of it changed now."""
        self.changed_ns = time.time_ns()

    @property
    def stopped_with_system(self) -> bool:
        """Whether it is suspended only because the system stopped."""
        return self.suspended in (STOPPED, SHUT_DOWN)

    def forget_ends(self, pids: Iterable[int]) -> None:
        """The program has heard of the end of these children."""
        for pid in pids:
            self.heard.add(pid)
            self.untold.pop(pid, None)

    def set_budget(self, tokens: int) -> None:
        """Give it another budget of tokens; 0 for no limit."""
        self.budget = dataclasses.replace(self.budget, tokens=tokens)

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
        self.keep("trace", data + b"\n")
        self.trace.append(data + b"\n", time.time_ns())
        if self.trace_live:
            # What somebody sees is kept before.
            self.settle()
            self.trace_live.push((line(record) + "\n").encode())

    def say(self, category: str, text: str) -> None:
        """Add to the log what it thought or did; lines after the first are indented."""
        stamp = f"[{trio.current_time() - self.born:7.3f}s] {category} "
        body = text.rstrip().replace("\n", "\n" + " " * 4)
        data = f"{stamp}{body}\n".encode("utf-8", "replace")
        self.keep("log", data)
        self.log.append(data, time.time_ns())
        if self.log_live:
            self.settle()
            self.log_live.push(data)

    def follow_log(self) -> StreamFile:
        """A reader of the log from its start on."""
        reader = self.log_live.join()
        if self.log.data:
            reader.prepend(bytes(self.log.data))
        return reader

    def add_step(self, record: StepRecord, now_ns: int) -> None:
        """Add a step's record."""
        data = msgspec.json.encode(record) + b"\n"
        self.steps_journal.append(data, now_ns)
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
            "suspended": self.suspended,
            "intent": self.launch.intent,
            "agent": self.launch.agent,
            "skills": self.launch.skills,
            "provider": self.launch.provider,
            "model": self.model_used,
            "tokens_used": self.tokens_used,
            "cached_tokens": self.cached_tokens,
            "context_tokens": self.progress.prompt_tokens,
            "context_window": self.context_window,
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
            self.suspended,
            self.model_used,
            self.tokens_used,
            self.progress.prompt_tokens,
            self.context_window,
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
