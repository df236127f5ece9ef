"""MCP servers that a test holds in its hand, below a real system whose models are scripted."""

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any

import trio

from rnixfs.device import Body, Description, Sink, ToolInfo, json_line
from rnixfs.errors import SyscallError, not_found
from rnixfs.exchange import DeviceNode
from rnixfs.node import Dir, Document, FixedDir, Node
from rnixfs.proc.process import Process
from rnixfs.proc.request import SpawnRequest
from rnixfs.state.memory import MemoryStore
from rnixfs.state.store import Log
from rnixfs.types import Caller, Kind, Stat
from tests.programs.reasonlab import OBJECT, PERSON, Bench, Reply, Scripted, Tool, write
from tests.replay.replaylab import World


class ServerTool(Tool):
    """A tool of a server; it says which mount it was asked through, and what."""

    def __init__(self, path: str, name: str) -> None:
        super().__init__(name)
        self.path = path

    def describe(self, caller: Caller) -> Description:
        tools = [ToolInfo(self.name, f"Does {self.name}.", OBJECT, parallel=True)]
        return Description(self.path, "For tests.", OBJECT, {}, tools=tools)

    async def work(self, sink: Sink, body: Body) -> None:
        await trio.lowlevel.checkpoint()
        assert isinstance(body, dict)
        said = [{"type": "text", "text": f"{self.name} got {sorted(body)}"}]
        sink.write(json_line({"content": said, "text": said[0]["text"]}))


@dataclasses.dataclass
class Server:
    """A server that can be mounted.

    Args:
        tools: what it offers.
        gate: lets it connect.
        failure: what connecting raises.
        happened: each connect and close, with the name of the mount.
        configs: how it was mounted.
    """

    tools: list[str] = dataclasses.field(default_factory=lambda: ["get"])
    gate: trio.Event | None = None
    failure: Exception | None = None
    happened: list[str] = dataclasses.field(default_factory=list)
    configs: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    changed: int = 1

    def offer(self, *tools: str) -> None:
        """Change what it offers."""
        self.tools = list(tools)
        self.changed += 1


class Fake:
    """The transport of one mount. Implements `mounts.Transport`."""

    restart = "never"
    connect_seconds = 30.0

    def __init__(self, server: Server, name: str, lab: "McpLab") -> None:
        self._server = server
        self._name = name
        self._lab = lab

    @contextlib.asynccontextmanager
    async def connect(self, owner: int) -> AsyncIterator[Dir]:
        self._server.happened.append(f"connect {self._name}")
        try:
            if self._server.gate is not None:
                await self._server.gate.wait()
            if self._server.failure is not None:
                raise self._server.failure
            await trio.lowlevel.checkpoint()
            yield FixedDir(("fake", self._name), {"tools": Tools(self._server, self._name, self._lab)})
        finally:
            self._server.happened.append(f"close {self._name}")

    def details(self) -> dict[str, Any]:
        return {"tools": len(self._server.tools)}


class Tools(Dir):
    """The folder `tools` of a fake server."""

    def __init__(self, server: Server, name: str, lab: "McpLab") -> None:
        self._server = server
        self._path = f"/mnt/mcp/{name}/tools"
        self._lab = lab
        self._nodes: dict[str, Node] = {}

    def stat(self) -> Stat:
        return Stat(Kind.DIRECTORY, mode=0o555, links=2, mtime_ns=self._server.changed)

    def lookup(self, name: str, caller: Caller) -> Node:
        for one, node in self.entries(caller):
            if one == name:
                return node
        raise not_found(f"{self._path}/{name}")

    def entries(self, caller: Caller) -> Iterable[tuple[str, Node]]:
        for tool in self._server.tools:
            yield tool, self._node(tool)
            yield f"{tool}.json", Document((self._path, tool, "json"), lambda: b"{}\n")

    def _node(self, tool: str) -> Node:
        path = f"{self._path}/{tool}"
        if tool not in self._nodes:
            device = ServerTool(path, tool)
            self._nodes[tool] = DeviceNode(path, path, device, self._lab.kernel.start)
        return self._nodes[tool]


class McpLab:
    """A real system with a library of its own, scripted models, and servers by their command.

    Args:
        top: an empty folder of the host.
        replies: what the model says.
        names: the servers that mcp.yaml names.
        native: whether the model takes tools.
        log: the system's log; one in memory if None.
    """

    def __init__(
        self,
        top: Path,
        replies: Sequence[Reply] = (),
        names: Sequence[str] = ("time", "git"),
        native: bool = True,
        log: Log | None = None,
    ) -> None:
        self.model = Scripted("fake", replies, native)
        self.bench = Bench(top, [self.model])
        self.servers = {name: Server() for name in names}
        self.configure("".join(f"  - {{name: {name}, command: {name}}}\n" for name in names))
        self.log: Log = log if log is not None else MemoryStore()
        self.world = self.boot()

    def configure(self, entries: str) -> None:
        """Write the user's mcp.yaml, given its entries."""
        write(self.bench.user / "mcp.yaml", f"version: 1\nservers:\n{entries}")

    def boot(self) -> World:
        """A system, as a start of the daemon makes it from the log."""
        self.world = World(self.bench, [self.model], [], self.log)

        def stdio(name: str, config: dict[str, Any]) -> Fake:
            server = self.servers[config["command"]]
            server.configs.append(config)
            return Fake(server, name, self)

        self.world.kernel.mounts.transports["stdio"] = stdio
        return self.world

    @property
    def kernel(self) -> Any:
        """The kernel of the running system."""
        return self.world.kernel

    def agent(self, name: str, *servers: str, more: str = "") -> None:
        """Add an agent with MCP servers."""
        self.bench.agent(name, f"mcp: [{', '.join(servers)}]\n{more}")

    def spawn(self, agent: str = "clock", caller: Caller = PERSON, **fields: Any) -> Process:
        """Start an agent."""
        process: Process = self.kernel.spawn(SpawnRequest(intent="do it", agent=agent, **fields), caller)
        return process

    async def run(self, agent: str = "clock", **fields: Any) -> Process:
        """Start an agent and wait for its end."""
        process = self.spawn(agent, **fields)
        await process.done.wait()
        return process

    def mounts(self) -> list[str]:
        """The names of what is mounted."""
        names: list[str] = self.kernel.mounts.names()
        return names

    def offered(self, place: int = -1) -> list[str]:
        """The tools of MCP servers in a request that the model got."""
        specs = self.model.requests[place].tools
        return [spec.name for spec in specs if spec.name.startswith("mcp__")]


def why(error: SyscallError) -> tuple[str, str]:
    """Code and reason."""
    return str(error.code), error.reason
