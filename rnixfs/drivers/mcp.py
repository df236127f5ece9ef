"""MCP servers as transports of `mnt/mcp`: programs that are started, and servers that are reached by HTTP.

The SDK, and what checks schemas, are imported with the first connection, in a thread.
"""

import contextlib
import importlib
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, Protocol

import trio

from rnixfs import limits
from rnixfs.errors import Code, SyscallError
from rnixfs.mcp.config import ServerConfig, read_config
from rnixfs.mcp.folder import ServerFolder
from rnixfs.mcp.remote import LostError, Remote, Start
from rnixfs.mounts import ROOT, LeftError, Transport
from rnixfs.node import Dir
from rnixfs.types import Place

log = logging.getLogger(__name__)

INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""Variables that a server gets without being given them: none that can hold a secret."""

Sample = Callable[[int, dict[str, Any]], Awaitable[dict[str, Any]]]
"""Has the model of a process answer a server, by its pid and the parameters of `sampling/createMessage` as
JSON; the result is that of the protocol, too."""


class Ended(Protocol):
    """How a program ended."""

    @property
    def returncode(self) -> int:
        """Its exit code, or the negative number of the signal that killed it."""


class Runner(Protocol):
    """Runs programs of the host; implemented by `children.Children`."""

    async def converse(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        agent: int,
        talk: Callable[[trio.Process], Awaitable[None]],
        leave: float,
    ) -> Ended:
        """Run a program that is talked with, and leave nothing of it behind whatever happens."""


async def no_model(owner: int, request: dict[str, Any]) -> dict[str, Any]:
    """The model of whoever has none.

    Raises:
        SyscallError: always.
    """
    raise SyscallError(Code.NOT_PERMITTED, "there is no model for this server to ask")


class McpTransports:
    """Makes the transports; what `MountTable.transports` takes for `stdio` and for `http`.

    Args:
        runner: runs programs.
        start: runs jobs in the background.
        place_of: where a process stands, or people for 0: a server's folder and variables come from there.
        sample: has a process's model answer.
    """

    def __init__(
        self,
        runner: Runner,
        start: Start,
        place_of: Callable[[int], Place],
        sample: Sample = no_model,
    ) -> None:
        self.runner = runner
        self.start = start
        self.place_of = place_of
        self.sample = sample

    def __call__(self, name: str, config: dict[str, Any]) -> "McpTransport":
        """The transport of one mount.

        Raises:
            SyscallError: INVALID, naming the field that is wrong.
        """
        return McpTransport(self, name, read_config(name, config))


class McpTransport(Transport):
    """The way to one server, and its folder.

    Args:
        common: what all servers share.
        name: of the mount.
        config: how it is reached.
    """

    def __init__(self, common: McpTransports, name: str, config: ServerConfig) -> None:
        self._common = common
        self._config = config
        self._name = name
        self._remote = Remote(ROOT + name, config, common.start)
        self._folder: ServerFolder | None = None
        self._logged = 0
        self._line = b""

    @property
    def restart(self) -> str:
        return self._config.restart

    @property
    def connect_seconds(self) -> float:
        return self._config.connect_ms / 1000

    def details(self) -> dict[str, Any]:
        return self._remote.details()

    @contextlib.asynccontextmanager
    async def connect(self, owner: int) -> AsyncIterator[Dir]:
        place, config = self._common.place_of(owner), self._config
        sdk = await _module("rnixfs.mcp.session")
        streams = await _module("rnixfs.mcp.streams")
        folder = await self._shown()
        reason, returns = SyscallError(Code.CANCELED, "it was unmounted"), False
        try:
            if config.url:
                way: Any = streams.http_transport(config)
                async with self._session(sdk, way, folder, owner):
                    yield folder.root
                    # What waits shall hear it now, and not when all is closed.
                    self._remote.end(reason, returns=False)
            else:
                async with (
                    self._program(sdk, streams, config, place, owner) as way,
                    self._session(sdk, way, folder, owner),
                ):
                    yield folder.root
                    # What waits shall hear it now, and not when all is closed.
                    self._remote.end(reason, returns=False)
        except Exception as error:
            reason, returns = sdk.refusal(error), config.restart != "never"
            raise reason from None
        finally:
            self._remote.end(reason, returns=returns)

    async def _shown(self) -> ServerFolder:
        if self._folder is None:
            schema = await _module("rnixfs.mcp.schema")
            self._folder = ServerFolder(self._remote, lambda found, path: schema.Arguments(found, path).check)
        return self._folder

    @contextlib.asynccontextmanager
    async def _session(
        self, sdk: ModuleType, way: Any, folder: ServerFolder, owner: int
    ) -> AsyncIterator[None]:
        async def sample(request: dict[str, Any]) -> dict[str, Any]:
            return await self._common.sample(owner, request)

        wishes = sdk.Wishes(self._remote, folder.questions.ask, sample)
        async with sdk.connected(way, self._remote, wishes) as session, trio.open_nursery() as nursery:
            self._remote.begin(session)
            nursery.start_soon(_watch, session, self._remote)
            yield
            nursery.cancel_scope.cancel()

    # --- programs ---

    @contextlib.asynccontextmanager
    async def _program(
        self, sdk: ModuleType, streams: ModuleType, config: ServerConfig, place: Place, owner: int
    ) -> AsyncIterator[Any]:
        """A server that is started here; its end is why the context ends."""
        pipes = streams.ProgramStreams(self._hear, config.output_bytes)
        self._logged = 0
        over = trio.Event()
        ended: list[SyscallError] = []

        async def run() -> None:
            try:
                end = await self._common.runner.converse(
                    (config.command, *config.args),
                    cwd=config.cwd or place.cwd,
                    env=_environment(place.env, config.env),
                    agent=owner,
                    talk=pipes.talk,
                    leave=limits.MCP_LEAVE_SECONDS,
                )
                ended.append(self._obituary(end.returncode))
            except SyscallError as error:
                ended.append(error)
            over.set()
            raise ended[0]

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run)
                try:
                    yield pipes.transport()
                except Exception as error:
                    # The session fails as soon as the pipes close; what the program's end was is known later.
                    if isinstance(sdk.refusal(error), LostError):
                        with trio.move_on_after(limits.MCP_LEAVE_SECONDS + limits.CHILD_GRACE_SECONDS):
                            await over.wait()
                    raise
                nursery.cancel_scope.cancel()
        except Exception as error:
            raise (ended[0] if ended else error) from None
        finally:
            pipes.close()

    def _obituary(self, returncode: int) -> SyscallError:
        words = self._remote.last_words()
        said = f"; the last line of its standard error: {words}" if words else ""
        if returncode == 0:
            return LeftError(Code.DRIVER, f"the server ended by itself (exit code 0){said}")
        if returncode > 0:
            return SyscallError(Code.DRIVER, f"the server ended with exit code {returncode}{said}")
        name = signal.Signals(-returncode).name
        return SyscallError(Code.DRIVER, f"the server was killed by {name}{said}")

    def _hear(self, data: bytes) -> None:
        self._remote.hear(data)
        *lines, self._line = (self._line + data).split(b"\n")
        self._line = self._line[-limits.CHILD_CHUNK :]
        for line in lines[: max(0, limits.MCP_LOGGED_MAX - self._logged)]:
            log.info("%s: %s", self._name, line.decode("utf-8", "replace"))
        if self._logged < limits.MCP_LOGGED_MAX <= self._logged + len(lines):
            log.info("%s: more of what it says is only in its status", self._name)
        self._logged += len(lines)


def _environment(env: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    return {name: env[name] for name in INHERITED if name in env} | dict(given)


async def _module(name: str) -> ModuleType:
    """A module whose import takes long, without holding up anybody else."""
    return await trio.to_thread.run_sync(importlib.import_module, name)


async def _watch(session: Any, remote: Remote) -> None:
    """Raise when the server is gone. Where there is no lasting connection, only a request can find out."""
    while True:
        await session.suspect.wait()
        session.suspect = trio.Event()
        try:
            with trio.fail_after(limits.MCP_PING_SECONDS):
                await session.ping()
            remote.still_there()
        except trio.TooSlowError:
            raise SyscallError(
                Code.DRIVER, f"the server does not answer within {limits.MCP_PING_SECONDS:g} s"
            ) from None
