"""A whole system in memory, and what programs do with the files of its MCP servers."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import trio

from rnixfs import vfs
from rnixfs.bootstrap import Settings, System
from rnixfs.node import Dir, Node
from rnixfs.types import Caller, Ready, Stat

HERE = pathlib.Path(__file__).parent
PERSON = Caller(os.getuid(), os.getgid(), session=1)
WAIT_SECONDS = 60.0  # for what surely comes, on a machine that does other things


def any_server(**fields: Any) -> dict[str, Any]:
    """The server that is written with the SDK."""
    return {"command": sys.executable, "args": [str(HERE / "anyserver.py"), "stdio"], **fields}


def raw_server(*args: str, **fields: Any) -> dict[str, Any]:
    """The server without a library, in one of its modes."""
    return {"command": sys.executable, "args": ["-S", str(HERE / "rawserver.py"), *args], **fields}


class Lab:
    """A system.

    Args:
        folder: for what a test writes.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.diary = folder / "diary"
        env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        env |= {"SECRET_OF_DAEMON": "hidden", "XDG_CONFIG_HOME": str(folder / "config")}
        self.system = System(Settings((str(folder),), env=env))
        self.kernel = self.system.kernel

    async def mount(self, name: str, config: dict[str, Any], caller: Caller = PERSON) -> None:
        """Mount a server and wait until it is ready."""
        if "command" in config:
            config = {**config, "env": {"DIARY": str(self.diary), **config.get("env", {})}}
        await self.kernel.mounts.mount(f"/mnt/mcp/{name}", config, caller)

    def begin(self, name: str, config: dict[str, Any]) -> None:
        """Mount a server, however that goes."""
        if "command" in config:
            config = {**config, "env": {"DIARY": str(self.diary), **config.get("env", {})}}
        self.kernel.mounts.begin(name, config, PERSON)

    def node(self, path: str) -> Node:
        """What is at a path below `mnt/mcp`."""
        return vfs.walk(self.kernel.root, f"/mnt/mcp/{path}", PERSON)

    def stat(self, path: str) -> Stat:
        """What is known of it."""
        return self.node(path).stat()

    def names(self, path: str) -> list[str]:
        """What a folder lists."""
        folder = self.node(path)
        assert isinstance(folder, Dir)
        return [name for name, _ in folder.entries(PERSON)]

    def tree(self, path: str) -> list[str]:
        """All paths below a folder."""
        folder = self.node(path)
        assert isinstance(folder, Dir)
        found: list[str] = []
        for name, node in folder.entries(PERSON):
            found.append(name)
            if isinstance(node, Dir):
                found += [f"{name}/{one}" for one in self.tree(f"{path}/{name}")]
        return found

    async def read(self, path: str, flags: int = os.O_RDONLY) -> bytes:
        """Read a file to its end, as `cat` does."""
        file = self.kernel.open(self.node(path), PERSON, flags, path)
        try:
            data = b""
            while piece := await self._next(file, len(data)):
                data += piece
            return data
        finally:
            file.close()

    @staticmethod
    async def _next(file: Any, offset: int) -> bytes:
        while True:
            try:
                found: bytes = file.read(1 << 20, offset)
            except trio.WouldBlock:
                await file.wait(Ready.READ)
            else:
                return found

    async def call(self, path: str, request: Any) -> Any:
        """Write a request and read its answer, through one open that is closed whatever happens."""
        body = json.dumps(request).encode()
        file = self.kernel.open(self.node(path), PERSON, os.O_RDWR, path)
        try:
            file.write(body, 0)
            data = b""
            while piece := await self._next(file, len(body) + len(data)):
                data += piece
            return json.loads(data)
        finally:
            file.close()

    async def status(self, name: str) -> dict[str, Any]:
        """The status of a mount."""
        found: dict[str, Any] = json.loads(await self.read(f"{name}/status"))
        return found

    async def until(self, found: Callable[[], Any]) -> Any:
        """Wait until something is so, and return it."""

        async def look() -> Any:
            return found()

        return await self.until_asked(look)

    async def until_asked(self, found: Callable[[], Awaitable[Any]]) -> Any:
        """Wait until something is so that takes asking, and return it."""
        with trio.fail_after(WAIT_SECONDS):
            while True:
                if value := await found():
                    return value
                await trio.sleep(0.01)

    async def until_state(self, name: str, *states: str) -> dict[str, Any]:
        """Wait until a mount stands somewhere, and return its status."""

        async def look() -> dict[str, Any] | None:
            status = await self.status(name)
            return status if status["state"] in states else None

        found: dict[str, Any] = await self.until_asked(look)
        return found

    def entries(self) -> list[str]:
        """What the server wrote into its diary."""
        return self.diary.read_text().splitlines() if self.diary.exists() else []


@contextlib.asynccontextmanager
async def running(folder: pathlib.Path) -> AsyncIterator[Lab]:
    """A system that runs; its servers are closed with it."""
    lab = Lab(folder)
    async with trio.open_nursery() as nursery:
        await nursery.start(lab.kernel.run)
        try:
            yield lab
        finally:
            with trio.move_on_after(WAIT_SECONDS, shield=True):
                await lab.kernel.mounts.unmount_all(Caller(0, 0))
            nursery.cancel_scope.cancel()
    await lab.system.models.aclose()
    lab.system.log.close()


async def http_server(lab: Lab, port: int = 0) -> tuple[trio.Process, str]:
    """The server that is written with the SDK, over HTTP: its process and its address."""
    if not port:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
    program = [sys.executable, str(HERE / "anyserver.py"), str(port)]
    env = {**os.environ, "DIARY": str(lab.diary)}
    process = await trio.lowlevel.open_process(program, env=env, stderr=subprocess.DEVNULL)
    with trio.fail_after(WAIT_SECONDS):
        while True:
            try:
                stream = await trio.open_tcp_stream("127.0.0.1", port)
            except OSError:
                await trio.sleep(0.05)
            else:
                await stream.aclose()
                return process, f"http://127.0.0.1:{port}/mcp"
