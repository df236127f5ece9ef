"""Agents without an AI: a system whose models play what a test wrote down, and devices that watch."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import trio

from rnixfs.device import Body, Description, Job, Sink, ToolInfo, json_line
from rnixfs.errors import Code, SyscallError, invalid
from rnixfs.exchange import DeviceNode
from rnixfs.hostdir import host_roots
from rnixfs.kernel import Kernel
from rnixfs.launch import AgentLauncher
from rnixfs.libdir import lib_dir
from rnixfs.llm import Delta, Emit, Message, ModelAnswer, ModelRequest, Role, ToolCall
from rnixfs.loader import Library
from rnixfs.model import Model
from rnixfs.modelshelf import Models
from rnixfs.node import FixedDir, Node
from rnixfs.proc.files import proc_dir
from rnixfs.proc.process import Process
from rnixfs.proc.request import SpawnRequest
from rnixfs.state.store import Log
from rnixfs.types import Caller, Place

PERSON = Caller(1000, 1000)
OBJECT = {"type": "object"}

Reply = ModelAnswer | SyscallError | Callable[[ModelRequest], ModelAnswer]


# --- models ---


class Scripted(Model):
    """A model that gives one reply after the other and keeps every request.

    Args:
        provider: its name.
        replies: what it says; an error is raised, a function is asked.
        native: whether it takes tools.
    """

    def __init__(self, provider: str = "fake", replies: Sequence[Reply] = (), native: bool = True) -> None:
        self.provider = provider
        self.replies = list(replies)
        self.native_tools = native
        self.requests: list[ModelRequest] = []
        self.reason = ""
        self.gate: trio.Event | None = None

    def unavailable(self) -> str:
        return self.reason

    def details(self) -> dict[str, object]:
        return {"driver": "scripted"}

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> ModelAnswer:
        self.requests.append(request)
        if self.gate is not None:
            await self.gate.wait()
        await trio.lowlevel.checkpoint()
        assert self.replies, f"no reply left for {request.messages[-1]}"
        reply = self.replies.pop(0)
        if isinstance(reply, SyscallError):
            raise reply
        found = reply(request) if callable(reply) else reply
        if emit is not None:
            emit(Delta("text", found.content))
        return found


def answer(content: str = "", calls: Sequence[ToolCall] = (), **more: Any) -> ModelAnswer:
    """A reply that used ten tokens."""
    usage: dict[str, Any] = {
        "tokens_used": 10,
        "input_tokens": 8,
        "output_tokens": 2,
        "model": "fake-1",
    } | more
    return ModelAnswer(content=content, tool_calls=list(calls), **usage)


def call(name: str, /, id: str = "", **arguments: Any) -> ToolCall:
    """One call; its id is its name if none is given."""
    return ToolCall(id or f"id-{name}", name, arguments)


def uses(*calls: ToolCall, content: str = "", **more: Any) -> ModelAnswer:
    """A reply that asks for tools."""
    return answer(content, calls, **more)


def act(action: str, tool: str = "", **data: Any) -> str:
    """An action of the text protocol."""
    return msgspec.json.encode({"action": action, "tool": tool, "data": data}).decode()


# --- devices ---


class Tool:
    """A device with one tool, which answers with what it was asked.

    Args:
        name: of the device and of its tool.
        parallel: whether calls may run side by side.
    """

    def __init__(self, name: str, parallel: bool = True) -> None:
        self.name = name
        self.parallel = parallel
        self.asked: list[Body] = []
        self.inside = 0
        self.most = 0

    def describe(self, caller: Caller) -> Description:
        tools = [ToolInfo(self.name, f"Does {self.name}.", OBJECT, parallel=self.parallel)]
        return Description(f"/dev/{self.name}", "For tests.", OBJECT, {}, tools=tools)

    def accept(self, caller: Caller, body: Body) -> Job:
        if isinstance(body, dict) and body.get("refuse"):
            raise invalid('"refuse" is not a thing to ask for')
        self.asked.append(body)

        async def job(sink: Sink) -> None:
            self.inside += 1
            self.most = max(self.most, self.inside)
            try:
                await self.work(sink, body)
            finally:
                self.inside -= 1

        return job

    async def work(self, sink: Sink, body: Body) -> None:
        """Do one call."""
        await trio.sleep(1)
        sink.write(json_line({"got": body}))


class Barrier(Tool):
    """A tool whose calls end only when a number of them are there at once."""

    def __init__(self, name: str, count: int, parallel: bool = True) -> None:
        super().__init__(name, parallel)
        self.count = count
        self.met = trio.Event()

    async def work(self, sink: Sink, body: Body) -> None:
        if self.inside >= self.count:
            self.met.set()
        with trio.move_on_after(60):
            await self.met.wait()
        sink.write(json_line({"met": self.met.is_set(), "of": body}))


class Failing(Tool):
    """A tool that raises."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(name)
        self.error = error

    async def work(self, sink: Sink, body: Body) -> None:
        await trio.lowlevel.checkpoint()
        raise self.error


class Forever(Tool):
    """A tool that never answers."""

    async def work(self, sink: Sink, body: Body) -> None:
        await trio.sleep_forever()


# --- the system ---


def write(path: Path, text: str) -> None:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


class Bench:
    """A kernel with the real launcher and reasoning loop, a library of its own, and fake models and devices.

    Args:
        top: an empty folder of the host.
        models: by the name of their provider; the first is the default.
        devices: by their name under `/dev`.
        first_default: whether the configuration names the first model as the default.
        log: the kernel's log; one in memory if None.
    """

    def __init__(
        self,
        top: Path,
        models: Sequence[Model],
        devices: Sequence[Tool] = (),
        first_default: bool = True,
        log: Log | None = None,
    ) -> None:
        self.top = top
        self.cwd = top / "work"
        self.cwd.mkdir(parents=True, exist_ok=True)
        self.built_in = top / "built-in"
        self.user = top / "user"
        self.agent("default", "")
        entries = "".join(f"  - name: {model.provider}\n    driver: script\n" for model in models)
        default = f"default_provider: {models[0].provider}\n" if first_default else ""
        write(self.user / "providers.yaml", f"version: 1\n{default}providers:\n{entries}")
        self.model = models[0]
        named = {model.provider: model for model in models}
        self.library = Library([self.built_in, self.user])
        self.models = Models(
            lambda entry: named.get(entry.name),
            lambda job: self.kernel.start(job),
            permits=lambda caller, path: self.kernel.processes[caller.agent].rights.permits(path),
        )
        self.home = Place(str(self.cwd), {"HOME": "/home/x"}, (str(self.cwd),), True)
        self.mountpoint = ""
        launcher = AgentLauncher(self.library, self.models, self.home, lambda: self.mountpoint)
        self.kernel = Kernel(launcher, log, self.home.env)
        nodes: dict[str, Node] = {
            device.name: DeviceNode(("dev", device.name), f"/dev/{device.name}", device, self.kernel.start)
            for device in devices
        }
        shelf = self.library.for_cwd(str(self.cwd))
        nodes |= {"llm": self.models.folder(shelf), "fs": host_roots("fs", self.home.roots, True)}
        self.kernel.root = FixedDir(
            "root",
            {
                "dev": FixedDir("dev", nodes),
                "proc": proc_dir(self.kernel),
                "lib": lib_dir(lambda: self.library.for_cwd(str(self.cwd))),
            },
        )

    def agent(self, name: str, more: str, instructions: str = "Be good.") -> None:
        """Add an agent to the library."""
        folder = self.built_in / "agents" / name
        write(folder / "agent.yaml", f"name: {name}\ndescription: the agent {name}\n{more}")
        write(folder / "instructions.md", instructions)

    def skill(self, name: str, body: str, more: str = "") -> None:
        """Add a skill to the library."""
        text = f"---\nname: {name}\ndescription: about {name}\n{more}---\n{body}\n"
        write(self.built_in / "skills" / name / "SKILL.md", text)

    def spawn(self, intent: str = "do it", caller: Caller = PERSON, **fields: Any) -> Process:
        """Start an agent."""
        return self.kernel.spawn(SpawnRequest(intent=intent, **fields), caller)

    async def run(self, intent: str = "do it", **fields: Any) -> Process:
        """Start an agent and wait for its end."""
        process = self.spawn(intent, **fields)
        await process.done.wait()
        return process


def messages(process: Process) -> list[tuple[str, str]]:
    """Role and text of each message of a process."""
    return [(str(one.role), one.content) for one in process.context.messages]


def results(process: Process) -> list[Any]:
    """The results of tools that its model was told of, in order."""
    return [msgspec.json.decode(one.content) for one in process.context.messages if one.role is Role.TOOL]


def steps(process: Process) -> list[dict[str, Any]]:
    """The records of its steps."""
    return [msgspec.json.decode(record) for record in process.step_records]


def log_of(process: Process) -> list[tuple[str, str]]:
    """Category and text of each line of its log."""
    lines = bytes(process.log.data).decode().splitlines()
    return [
        (line.split("] ", 1)[1].partition(" ")[0], line.split("] ", 1)[1].partition(" ")[2]) for line in lines
    ]


def failure(code: Code, reason: str = "on purpose") -> SyscallError:
    """An error of a model or a tool."""
    return SyscallError(code, reason)


def said(request: ModelRequest) -> list[Message]:
    """What the model was shown."""
    return request.messages
