"""A kernel whose processes are puppets: they run until the test, or a signal, ends them."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import trio
from trio.testing import wait_all_tasks_blocked

from rnixfs import vfs
from rnixfs.errors import Code, SyscallError
from rnixfs.kernel import Kernel
from rnixfs.node import Dir, FixedDir
from rnixfs.proc.birth import Birth
from rnixfs.proc.files import proc_dir
from rnixfs.proc.process import Budget, Launch, Process
from rnixfs.proc.request import SpawnRequest, read_spawn
from rnixfs.proc.state import Exit
from rnixfs.programs.supervise import supervise
from rnixfs.state.memory import MemoryStore
from rnixfs.state.store import Keep, Record
from rnixfs.syscalls import Syscalls
from rnixfs.sysdir import sys_dir
from rnixfs.types import Caller, Place

PERSON = Caller(1000, 1000)
HOUR = 3600.0


class Diary(MemoryStore):
    """A store that a test can read as a diary: what was started, told, suspended and ended, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[int, str] = {}
        self.lines: list[str] = []

    def append_event(self, event: str, pid: int, data: dict[str, Any], keep: Keep = Keep.NOW) -> Record:
        if event == "spawn":
            self.names[pid] = data["intent"]
        detail = {"exit": "code", "signal": "signal"}.get(event)
        if event in ("spawn", "exit", "signal", "suspend", "wake"):
            words = [event, self.names[pid], *([str(data[detail])] if detail else [])]
            self.lines.append(" ".join(words))
        return super().append_event(event, pid, data, keep)

    def take(self) -> list[str]:
        """What happened since the last look."""
        lines, self.lines = self.lines, []
        return lines


class Lab:
    """A running kernel, how often its launcher refuses what, and the strings of its puppets.

    A process is called by its intent; a supervisor without an intent by its name.

    Args:
        diary: the log; an empty one if None.
    """

    def __init__(self, diary: Diary | None = None) -> None:
        self.diary = diary if diary is not None else Diary()
        self.kernel = Kernel(self, self.diary)
        self.refused: dict[str, int] = {}
        self.programs: dict[str, Callable[[Syscalls], Awaitable[Exit]]] = {}
        self.kernel.root = FixedDir(
            "root",
            {"proc": proc_dir(self.kernel), "sys": sys_dir(self.kernel, list, dict)},
        )
        self._strings: dict[int, tuple[trio.Event, list[Exit]]] = {}

    def launch(self, request: SpawnRequest, parent: Process | None) -> Launch:
        name = request.intent or (request.supervisor.name if request.supervisor else "")
        if self.refused.get(name, 0):
            self.refused[name] -= 1
            raise SyscallError(Code.NOT_FOUND, f"no agent for {name!r}")
        program = supervise if request.supervisor else self.programs.get(name, self._puppet)
        allowed = request.allowed_devices
        return Launch(
            intent=name,
            program=program,
            agent=request.agent,
            skills=(),
            provider=request.provider,
            model=request.model,
            system_prompt="",
            allowed=None if allowed is None else tuple(allowed),
            budget=Budget(timeout_ms=request.timeout_ms or 0, tokens=request.context_budget or 0),
            place=Place("/", {}, (), False),
            supervisor=request.supervisor,
            request=request,
        )

    def revive(self, birth: Birth) -> Launch:
        """The launch of a process whose log is read."""
        program = supervise if birth.supervisor else self.programs.get(birth.intent, self._puppet)
        return Launch.again(birth, program, {})

    def check_ready(self, launch: Launch) -> None:
        """Every process can go on."""

    async def _puppet(self, sys: Syscalls) -> Exit:
        event, exits = self._string(sys.pid)
        await event.wait()
        sys.set_result(f"result of {sys.launch.intent}")
        return exits[0]

    def _string(self, pid: int) -> tuple[trio.Event, list[Exit]]:
        return self._strings.setdefault(pid, (trio.Event(), []))

    # --- what a test does ---

    def spawn(self, caller: Caller = PERSON, **fields: Any) -> Process:
        """Make a process from the fields of a request."""
        return self.kernel.spawn(read_spawn(fields), caller)

    async def supervisor(self, *children: str | dict[str, Any], **spec: Any) -> Process:
        """A supervisor called `sup` whose children are puppets, once it has done all it can do for now; a
        child is its name, or `name:restart`, or its fields."""
        process = self.spawn(supervisor=supervisor(*children, **spec))
        await self.settle()
        return process

    async def settle(self) -> None:
        """Wait until nobody can do anything but wait."""
        await wait_all_tasks_blocked()

    def named(self, name: str) -> Process:
        """The latest process of a name."""
        return next(one for one in reversed(self.kernel.processes.values()) if one.launch.intent == name)

    def pid(self, name: str) -> int:
        """Its pid."""
        return self.named(name).pid

    def pull(self, *names: str, code: int = 1) -> None:
        """Let puppets end, all before anybody can look."""
        for name in names:
            event, exits = self._string(self.pid(name))
            exits.append(Exit(code, "done" if code == 0 else "crashed"))
            event.set()

    async def end(self, *names: str, code: int = 1) -> list[str]:
        """Let puppets end; gives the diary of what came of it."""
        self.diary.take()
        self.pull(*names, code=code)
        await self.settle()
        return self.diary.take()

    def do(self, path: str, line: str, caller: Caller = PERSON) -> None:
        """Write a line to a control file."""
        file = vfs.walk(self.root, path, caller).open(caller, 1)
        file.write(f"{line}\n".encode(), 0)

    def json(self, path: str, caller: Caller = PERSON) -> Any:
        """A document that is JSON."""
        file = vfs.walk(self.root, path, caller).open(caller, 0)
        return json.loads(file.read(1 << 20, 0))

    @property
    def root(self) -> Dir:
        """The tree."""
        return self.kernel.root

    def rows(self, process: Process) -> dict[str, dict[str, Any]]:
        """The children of a supervisor as its file shows them, by name."""
        return {row["name"]: row for row in self.json(f"/proc/{process.pid}/supervisor")["children"]}

    def states(self, process: Process) -> dict[str, str]:
        """Where the children of a supervisor stand."""
        return {name: row["state"] for name, row in self.rows(process).items()}


def supervisor(*children: str | dict[str, Any], **spec: Any) -> dict[str, Any]:
    """The fields of a supervisor; its children are puppets called as they are."""
    return {"name": "sup", "children": [child(one) for one in children], **spec}


def child(one: str | dict[str, Any]) -> dict[str, Any]:
    """The fields of a child."""
    if isinstance(one, dict):
        return one
    name, _, restart = one.partition(":")
    return {"name": name, "intent": name, "restart": restart or "permanent"}


def exit_of(process: Process) -> Exit:
    """How a process ended."""
    assert process.exit is not None, f"process {process.pid} has not ended"
    return process.exit
