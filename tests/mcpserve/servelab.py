"""The tree as an MCP server, on a real mount, for the SDK's own client."""

import contextlib
import gc
import json
import os
import pathlib
import signal
import sys
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import trio
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from tests.daemon import SECONDS, Daemon, Program, running, until
from tests.gateway.gatelab import KEY, KEY_VARIABLE, configure

UNTIDY = "ignore:Async generator:ResourceWarning"
"""For `pytest.mark.filterwarnings`: the SDK's client leaves streams of HTTP to the garbage collector."""

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_WORDS = (sys.executable, "-P", "-m", "rnixfs.mcpserve")


class Lab:
    """A daemon, and servers in front of it.

    Args:
        daemon: the daemon.
    """

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon

    def words(self, *options: str) -> list[str]:
        """The command line of a server."""
        return [*_WORDS, "--mount", str(self.daemon.mount), *options]

    @contextlib.asynccontextmanager
    async def stdio(self, *options: str, mode: Any = "auto") -> AsyncIterator[Client]:
        """A client that starts a server of its own, and talks to it by its standard streams."""
        program, *arguments = self.words(*options)
        parameters = StdioServerParameters(command=program, args=arguments, env=self.daemon.env)
        with trio.fail_after(SECONDS):
            async with Client(parameters, mode=mode) as client:
                yield client

    def http(self, *options: str) -> "Server":
        """A server that listens."""
        return Server(self.daemon, self.words("--http", "--port=0", "--json", *options))

    @contextlib.contextmanager
    def serving(self, *options: str) -> Iterator["Server"]:
        """The same for as long as the block runs."""
        server = self.http(*options)
        try:
            yield server
        finally:
            self.daemon.forget(server.program)

    def processes(self) -> list[dict[str, Any]]:
        """The status of every process of the system that has not ended."""
        return [json.loads(line) for line in self.daemon.out("cat $M/proc/processes").splitlines()]

    def working(self, intent: str) -> list[int]:
        """The pids of those that work on an intent."""
        return [int(row["pid"]) for row in self.processes() if row["intent"] == intent]

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for a condition that is found out by programs; the client goes on meanwhile."""
        await trio.to_thread.run_sync(until, condition, what)


class Server:
    """A server that listens, for clients by HTTP.

    Args:
        daemon: what it stands before.
        words: its command line.
    """

    def __init__(self, daemon: Daemon, words: list[str]) -> None:
        self.program: Program = daemon.program([*words, f"--key-env={KEY_VARIABLE}"], {KEY_VARIABLE: KEY})
        self._mount = f"{daemon.mount}/"
        self.told: dict[str, Any] = json.loads(self.program.line())
        self.url: str = self.told["url"]

    @contextlib.asynccontextmanager
    async def client(self, mode: Any = "auto", key: str = KEY, **more: Any) -> AsyncIterator[Client]:
        """A client that shows a key."""
        with tidied(), trio.fail_after(SECONDS):
            async with create_mcp_http_client({"authorization": f"Bearer {key}"}) as http:
                transport = streamable_http_client(self.url, http_client=http)
                async with Client(transport, mode=mode, **more) as client:
                    yield client

    def opened(self, name: str) -> int:
        """How many files below a folder of the mount it has open; found out without touching the mount."""
        links = list(pathlib.Path(f"/proc/{self.program.pid}/fd").iterdir())
        return sum(_target(link).startswith(self._mount + name) for link in links)

    def end(self) -> tuple[int, str]:
        """Tell it to end; its status, and what it complained of."""
        self.program.signal(signal.SIGTERM)
        done = self.program.end()
        return done.status, done.err


@contextlib.contextmanager
def tidied() -> Iterator[None]:
    """Have what a client left collected here, not in a test that comes later."""
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


def _target(link: pathlib.Path) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """What a tool answers, which must succeed, as a structure."""
    found: Any = await client.call_tool(tool, arguments)
    assert not found.is_error, found.content[0].text
    structure: dict[str, Any] = found.structured_content
    return structure


async def refused(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The error with which a tool answers, which must fail; it is told in words, too."""
    found: Any = await client.call_tool(tool, arguments)
    assert found.is_error, found.content[0].text
    error: dict[str, Any] = found.structured_content["error"]
    text = found.content[0].text
    assert f"[{error['code']}]" in text
    assert error["message"] in text
    assert text.endswith(error["errno"])
    return error


async def text_of(client: Client, path: str) -> str:
    """What a file holds."""
    found: str = (await call(client, "read", path=path))["content"]
    return found


@contextlib.contextmanager
def world(folder: pathlib.Path, *options: str) -> Iterator[Lab]:
    """A daemon for as long as the block runs, with the folder of the tests' own models."""
    configure(folder)
    path = os.pathsep.join([str(_ROOT), str(_ROOT / "cli"), os.environ.get("PYTHONPATH", "")])
    with running(folder, options, env={"PYTHONPATH": path.rstrip(os.pathsep)}) as daemon:
        yield Lab(daemon)
