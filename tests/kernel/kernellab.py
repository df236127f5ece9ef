"""A kernel without agents and models: programs are small functions of a test, devices are fakes."""

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import trio

from rnixfs.device import Body, Description, Job, Sink, json_line
from rnixfs.errors import invalid
from rnixfs.exchange import DeviceNode
from rnixfs.kernel import Kernel
from rnixfs.node import Document, File, FixedDir, Node
from rnixfs.proc.birth import Birth
from rnixfs.proc.files import proc_dir
from rnixfs.proc.process import Budget, Launch, Process, Program
from rnixfs.proc.request import SpawnRequest
from rnixfs.proc.state import Exit
from rnixfs.state.memory import MemoryStore
from rnixfs.state.store import Keep, Log, Record
from rnixfs.syscalls import Syscalls
from rnixfs.types import Caller, Place

PERSON = Caller(1000, 1000)
HOUR = 3600.0


def agent(pid: int) -> Caller:
    """A process as a caller."""
    return Caller(1000, 1000, agent=pid)


# --- programs ---


async def done(_sys: Syscalls) -> Exit:
    """A program that ends well at once."""
    return Exit(0, "done")


async def sleeper(_sys: Syscalls) -> Exit:
    """A program that never ends by itself."""
    await trio.sleep_forever()
    raise AssertionError("unreachable")


async def stubborn(_sys: Syscalls) -> Exit:
    """A program that no cancellation reaches."""
    with trio.CancelScope(shield=True):
        await trio.sleep(100 * HOUR)
    return Exit(0, "at last")


def waiting(seconds: float) -> Program:
    """A program that sleeps for a while and ends well."""

    async def program(_sys: Syscalls) -> Exit:
        await trio.sleep(seconds)
        return Exit(0, "done")

    return program


def acting(act: Callable[[Syscalls], Awaitable[Any]]) -> Program:
    """A program that does one thing and ends well."""

    async def program(sys: Syscalls) -> Exit:
        await act(sys)
        return Exit(0, "done")

    return program


# --- the kernel ---


class Lab:
    """A kernel whose launcher knows the programs that a test gave it.

    Args:
        store: keeps the events; the kernel's own if None.
        dev: the nodes of `/dev`.
    """

    def __init__(self, store: Log | None = None, dev: dict[str, Node] | None = None) -> None:
        self.programs: dict[str, Program] = {}
        self.kernel = Kernel(self, store)
        self.dev: dict[str, Node] = dev if dev is not None else {}
        self.kernel.root = FixedDir("root", {"dev": FixedDir("dev", self.dev), "proc": proc_dir(self.kernel)})

    def launch(self, request: SpawnRequest, parent: Process | None) -> Launch:
        allowed = request.allowed_devices
        return Launch(
            intent=request.intent,
            program=self.programs[request.intent],
            agent="test",
            skills=(),
            provider="none",
            model="",
            system_prompt=request.system_prompt,
            allowed=None if allowed is None else tuple(allowed),
            budget=Budget(timeout_ms=request.timeout_ms or 0),
            place=Place("/", request.env or {}, (), False),
            request=request,
        )

    def revive(self, birth: Birth) -> Launch:
        """The launch of a process whose log is read."""
        return Launch.again(birth, self.programs.get(birth.intent, sleeper), {})

    def check_ready(self, launch: Launch) -> None:
        """Every process can go on."""

    def named(self, program: Program, **fields: Any) -> SpawnRequest:
        """A request that runs a program."""
        name = f"program {len(self.programs)}"
        self.programs[name] = program
        return SpawnRequest(intent=name, **fields)

    def spawn(self, program: Program, caller: Caller = PERSON, **fields: Any) -> Process:
        """Start a program as a process."""
        return self.kernel.spawn(self.named(program, **fields), caller)

    async def run(self, program: Program, **fields: Any) -> Process:
        """Start a program and wait for its end."""
        process = self.spawn(program, **fields)
        await process.done.wait()
        return process

    def add_device(self, name: str, device: Any) -> DeviceNode:
        """Put a device into `/dev`."""
        node = DeviceNode(("dev", name), f"/dev/{name}", device, self.kernel.start)
        self.dev[name] = node
        return node

    def trace(self, process: Process) -> list[dict[str, Any]]:
        """The calls of a process so far."""
        return [msgspec.json.decode(line) for line in bytes(process.trace.data).splitlines()]


# --- the store ---


class SpyStore(MemoryStore):
    """A log that looks at the kernel each time an event is given to it."""

    def __init__(self) -> None:
        super().__init__()
        self.look: Callable[[str, int], Any] = lambda _event, _pid: None
        self.seen: list[tuple[str, int, Any]] = []

    def append_event(self, event: str, pid: int, data: dict[str, Any], keep: Keep = Keep.NOW) -> Record:
        self.seen.append((event, pid, self.look(event, pid)))
        return super().append_event(event, pid, data, keep)

    def events(self, pid: int) -> list[str]:
        """What happened to a process."""
        return [record.event for record in self.load(pid)]


# --- devices ---


class Fake:
    """A device that answers with what it was asked, refuses the word `bad`, and counts."""

    def __init__(self, name: str = "/dev/fake") -> None:
        self.name = name
        self.asked: list[Body] = []

    def describe(self, caller: Caller) -> Description:
        return Description(self.name, "Echoes.", {"type": "object"}, {"say": "x"})

    def accept(self, caller: Caller, body: Body) -> Job:
        if body == "bad" or (isinstance(body, dict) and "bad" in body):
            raise invalid("the word bad is refused; say something else")
        self.asked.append(body)

        async def job(sink: Sink) -> None:
            await self.work(sink, body)

        return job

    async def work(self, sink: Sink, body: Body) -> None:
        """Do a request."""
        sink.write(json_line({"got": body}))


class Held(Fake):
    """A device whose jobs wait until the test lets them go.

    Attributes:
        gates: lets the job of a request go, by the number of the request.
        cancelled: the requests whose jobs were cancelled.
    """

    def __init__(self, name: str = "/dev/held") -> None:
        super().__init__(name)
        self.gates: list[trio.Event] = []
        self.cancelled: list[Body] = []

    def accept(self, caller: Caller, body: Body) -> Job:
        inner = super().accept(caller, body)
        gate = trio.Event()
        self.gates.append(gate)

        async def job(sink: Sink) -> None:
            try:
                await gate.wait()
            except trio.Cancelled:
                self.cancelled.append(body)
                raise
            await inner(sink)

        return job


class ClosingFile(File):
    """A file that says when it was closed."""

    def __init__(self, closed: list[str], name: str) -> None:
        self._closed = closed
        self._name = name

    def read(self, size: int, offset: int) -> bytes:
        return b"some text"[offset : offset + size]

    def close(self) -> None:
        self._closed.append(self._name)


@dataclasses.dataclass(frozen=True)
class ClosingNode(Document):
    """A file that notes its opens, and their ends, in two lists."""

    closed: list[str] = dataclasses.field(compare=False, default_factory=list)
    opened: list[str] = dataclasses.field(compare=False, default_factory=list)

    def open(self, caller: Caller, flags: int) -> File:
        self.opened.append(str(self.key))
        return ClosingFile(self.closed, str(self.key))


def text(name: str, data: bytes) -> Document:
    """A document with fixed text."""
    return Document(name, lambda: data)
