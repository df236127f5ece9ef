"""A tree with processes in it: what a contract test starts from."""

import contextlib
import itertools
import json
import pathlib
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import trio

from tests.daemon import SECONDS
from tests.filetable import Class, Row, of
from tests.tree import Opened, Tree, ask, read, write

SERVER = pathlib.Path(__file__).parents[1] / "mcp" / "rawserver.py"
NAP = 0.01  # seconds between two looks at something that must happen


_numbers = itertools.count(1)


def refused(*numbers: int) -> "pytest.RaisesExc[OSError]":
    """Expects an OSError with one of these numbers."""
    return pytest.RaisesExc(OSError, check=lambda error: error.errno in numbers)


@contextlib.contextmanager
def about(path: str) -> Iterator[None]:
    """Names a file in the report of what fails inside."""
    try:
        yield
    except Exception as error:
        error.add_note(f"This was about {path or 'the root'}.")
        raise


class World:
    """A tree and what a test does in it.

    Args:
        tree: in memory or through a mount.
        host: the folder of the host that `dev/fs` shows.
    """

    def __init__(self, tree: Tree, host: pathlib.Path) -> None:
        self.tree = tree
        self.host = host
        self._pids: list[int] = []
        self._pipes: list[int] = []
        self._groups: list[str] = []
        self._servers: list[str] = []

    # --- files ---

    async def open(self, path: str, flags: int) -> Opened:
        """Open a file."""
        return await self.tree.open(path, flags)

    async def read(self, path: str) -> bytes:
        """All of a file."""
        return await read(self.tree, path)

    async def write(self, path: str, text: str | bytes, **how: int) -> None:
        """Write as `>` does."""
        await write(self.tree, path, text.encode() if isinstance(text, str) else text, **how)

    async def json(self, path: str) -> Any:
        """A file that is one JSON value."""
        return json.loads(await self.read(path))

    async def lines(self, path: str) -> list[Any]:
        """A file of JSON values, one a line."""
        return [json.loads(line) for line in (await self.read(path)).splitlines()]

    async def ask(self, path: str, request: object) -> bytes:
        """Ask a device through an open of one's own."""
        return await ask(self.tree, path, request)

    async def each(self, *kinds: Class) -> list[tuple[Row, str]]:
        """Every row of some classes with one file of it, made of one finished and one running process."""
        live, done = await self.live(), await self.done()
        uuid = (await self.status(done))["uuid"]
        parts: dict[str, object] = {"live": live, "done": done, "uuid": uuid, "host": self.host}
        makers = {
            "pipe": self.pipe,
            "supervisor": self.supervisor,
            "group": self.group,
            "server": self.server,
        }
        rows = list(of(*kinds))
        for name, make in makers.items():
            if any(f"{{{name}}}" in row.sample for row in rows):
                parts[name] = await make()
        return [(row, row.sample.format(**parts).replace("<n>", "3")) for row in rows]

    # --- processes ---

    async def spawn(self, intent: str, **more: Any) -> int:
        """Make a process whose mind is the scripted model."""
        answer = await self.ask("proc/spawn", {"intent": intent, "provider": "script", **more})
        assert answer.endswith(b"\n"), answer
        self._pids.append(int(answer))
        return self._pids[-1]

    async def done(self, intent: str = "say hello", **more: Any) -> int:
        """A process that has ended."""
        pid = await self.spawn(intent, **more)
        await self.read(f"proc/{pid}/wait")
        return pid

    async def live(self) -> int:
        """A process that runs until somebody ends it: it is in its first call of the model."""
        pid = await self.spawn("wait 500 s")

        async def asked() -> bool:
            return b'"Write"' in await self.read(f"proc/{pid}/trace.jsonl")

        await self.until(asked, "the model is asked")
        return pid

    async def supervisor(self, **spec: Any) -> int:
        """A supervisor with two children that run until somebody ends them, once both are started."""
        children = [{"name": name, "intent": "wait 500 s", "provider": "script"} for name in ("one", "two")]
        body = {"supervisor": {"name": "pair", "children": children, **spec}}
        self._pids.append(int(await self.ask("proc/spawn", body)))
        pid = self._pids[-1]

        async def started() -> bool:
            shown = await self.json(f"proc/{pid}/supervisor")
            return all(child["state"] == "running" for child in shown["children"])

        await self.until(started, "the children are started")
        return pid

    async def gated(self) -> tuple[int, pathlib.Path]:
        """A process in a tool of its first step, and the file that lets it go on to its end."""
        gate = self.new_path()
        pid = await self.spawn(f"run: while [ ! -e {gate} ]; do sleep 0.01; done; echo through")

        async def called() -> bool:
            return b" tool shell " in await self.read(f"proc/{pid}/log")

        await self.until(called, "the tool is called")
        return pid, gate

    async def group(self) -> str:
        """A new group without members."""
        name = f"group-{next(_numbers)}"
        await self.tree.change("mkdir", f"proc/groups/{name}")
        self._groups.append(name)
        return name

    async def server(self) -> str:
        """A new MCP server that is ready, and its name."""
        name = f"server-{next(_numbers)}"
        config = {"command": sys.executable, "args": ["-S", str(SERVER), "plain"]}
        await self.write("mnt/mcp/ctl", f"mount {name} {json.dumps(config)}\n")
        self._servers.append(name)

        async def ready() -> bool:
            return (await self.json(f"mnt/mcp/{name}/status"))["state"] == "ready"

        await self.until(ready, "the server is ready")
        return name

    async def pipe(self) -> int:
        """A new pipe, whose second name is `pipe-<n>`."""
        last = max([0, *(int(name) for name in await self.tree.names("dev/pipes") if name.isdecimal())])
        while True:
            number = int(await self.ask("dev/pipe", {"name": f"pipe-{last + 1}"}))
            self._pipes.append(number)
            if number == last + 1:
                return number
            last = number

    def new_path(self) -> pathlib.Path:
        """A path on the host at which nothing is."""
        return self.host / f"new-{next(_numbers)}"

    async def status(self, pid: int) -> dict[str, Any]:
        """The fields of a process's status."""
        found: dict[str, Any] = await self.json(f"proc/{pid}/status")
        return found

    async def end(self, pid: int) -> None:
        """Kill a process and wait until it is over."""
        await self.write(f"proc/{pid}/ctl", "kill\n")
        await self.read(f"proc/{pid}/wait")

    async def until(self, condition: Callable[[], Awaitable[object] | bool], what: str) -> None:
        """Wait for something that must happen."""
        with trio.move_on_after(SECONDS):
            while True:
                found = condition()
                if found if isinstance(found, bool) else await found:
                    return
                await trio.sleep(NAP)
        raise AssertionError(f"not within {SECONDS:g} s: {what}")

    async def leave(self) -> None:
        """End what still runs."""
        for pid in self._pids:
            with contextlib.suppress(OSError):
                await self.tree.change("rmdir", f"proc/{pid}")
        for name in self._servers:
            with contextlib.suppress(OSError):
                await self.write("mnt/mcp/ctl", f"unmount {name}\n")
        for name in self._groups:
            with contextlib.suppress(OSError):
                await self.tree.change("rmdir", f"proc/groups/{name}")
        for number in self._pipes:
            with contextlib.suppress(OSError):
                await self.tree.change("rmdir", f"dev/pipes/{number}")
