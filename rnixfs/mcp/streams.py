"""The two ways to a server, as streams of messages for the SDK: a program's pipes, and streamable HTTP.

Whatever a server does, it costs this system little: a message that is too long is thrown away as it comes,
and who sends too many waits. The SDK's own way to a program holds lines of any length and leaves what the
program started; so programs are run by `Children` here.
"""

import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Protocol

import anyio
import httpx2
import mcp_types as types
import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from rnixfs import limits
from rnixfs.address import is_loopback
from rnixfs.errors import Code, SyscallError
from rnixfs.mcp.config import ServerConfig
from rnixfs.mcp.lines import Lines, TooLong

log = logging.getLogger(__name__)

Message = SessionMessage | Exception


class Pace:
    """Holds up whoever comes too fast.

    Args:
        most: how many are let through in a second.
    """

    def __init__(self, most: float) -> None:
        self._most = most
        self._left = most
        self._since = trio.current_time()

    async def take(self, count: float = 1) -> None:
        """Let something pass, now or when it is time."""
        now = trio.current_time()
        self._left = min(self._most, self._left + (now - self._since) * self._most) - count
        self._since = now
        if self._left < 0:
            await trio.sleep(-self._left / self._most)


# --- programs ---


class ProgramStreams:
    """Messages through the pipes of a program.

    Args:
        hear: takes what the program says on its standard error.
        most: bytes of a message at most.
    """

    def __init__(self, hear: Callable[[bytes], None], most: int) -> None:
        self._hear = hear
        self._most = most
        self._got, self.incoming = anyio.create_memory_object_stream[Message](0)
        self.outgoing, self._sent = anyio.create_memory_object_stream[SessionMessage](0)

    @contextlib.asynccontextmanager
    async def transport(
        self,
    ) -> AsyncIterator[tuple[MemoryObjectReceiveStream[Message], MemoryObjectSendStream[SessionMessage]]]:
        """What the SDK connects by."""
        yield self.incoming, self.outgoing

    def close(self) -> None:
        """Nothing more will come or go."""
        for stream in (self._got, self.incoming, self.outgoing, self._sent):
            stream.close()

    async def talk(self, process: trio.Process) -> None:
        """Talk with a program until it closes its output.

        Raises:
            SyscallError: DRIVER or TOO_LARGE for a program that sends what is no message, or no end of one.
        """
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        heard = trio.Event()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._listen, process.stderr, heard)
                nursery.start_soon(self._write, process.stdin)
                await self._read(process.stdout)
                with trio.move_on_after(limits.CHILD_LINGER_SECONDS):
                    await heard.wait()
                nursery.cancel_scope.cancel()
        finally:
            self._got.close()

    async def _read(self, stdout: trio.abc.ReceiveStream) -> None:
        lines, pace, junk = Lines(self._most), Pace(limits.MCP_MESSAGES_SECOND), 0
        while chunk := await stdout.receive_some(limits.CHILD_CHUNK):
            for line in lines.feed(bytes(chunk)):
                message = _too_long(line, self._most) if isinstance(line, TooLong) else _message(line)
                await pace.take()
                junk = 0 if message is not None else junk + 1
                if junk > limits.MCP_JUNK_MAX:
                    raise SyscallError(
                        Code.DRIVER,
                        f"the server printed {junk} lines that are no message of MCP; is it one? "
                        "A server of stdio prints nothing else to its standard output",
                    )
                if message is not None and not await self._deliver(message):
                    return

    async def _deliver(self, message: SessionMessage) -> bool:
        try:
            await self._got.send(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return False
        return True

    async def _write(self, stdin: trio.abc.SendStream) -> None:
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for message in self._sent:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await stdin.send_all(text.encode() + b"\n")

    async def _listen(self, stderr: trio.abc.ReceiveStream, heard: trio.Event) -> None:
        pace = Pace(limits.MCP_STDERR_SECOND)
        while chunk := await stderr.receive_some(limits.CHILD_CHUNK):
            self._hear(bytes(chunk))
            await pace.take(len(chunk))
        heard.set()


def _message(line: bytes) -> SessionMessage | None:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return None


def _too_long(line: TooLong, most: int) -> SessionMessage | None:
    """The failure of the request whose answer was thrown away."""
    log.warning("a server sent a message of %d bytes; it was thrown away", line.size)
    if line.answers is None:
        return None
    request = types.jsonrpc_message_adapter.validate_json(
        b'{"jsonrpc":"2.0","method":"ping","id":%b}' % line.answers, by_name=False
    )
    assert isinstance(request, types.JSONRPCRequest)
    what = f"the answer has {line.size} bytes; at most {most} are taken, so ask for less"
    error = types.ErrorData(code=TOO_LONG, message=what)
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=request.id, error=error))


TOO_LONG = -32099
"""Code of the error that stands for an answer that was too long; of those that are free for any use."""


# --- HTTP ---


class Readable(Protocol):
    """Where the SDK reads messages from."""

    async def receive(self) -> Message:
        """The next message."""

    async def aclose(self) -> None:
        """Take no more."""


class Paced:
    """A stream of messages that come no faster than they may.

    Args:
        source: the stream.
    """

    def __init__(self, source: Readable) -> None:
        self._source = source
        self._pace = Pace(limits.MCP_MESSAGES_SECOND)

    async def receive(self) -> Message:
        """The next message."""
        await self._pace.take()
        return await self._source.receive()

    async def aclose(self) -> None:
        """Take no more."""
        await self._source.aclose()

    def __aiter__(self) -> "Paced":
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> "Paced":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class _Bounded(httpx2.AsyncByteStream):
    """The body of a response, no longer than a message may be."""

    def __init__(self, body: httpx2.AsyncByteStream, most: int) -> None:
        self._body = body
        self._most = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._body:
            size += len(chunk)
            _check_size(size, self._most)
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise httpx2.ReadError(f"the answer has more than {most} bytes; ask for less")


async def _bound(most: int, response: httpx2.Response) -> None:
    """Bound the body of a response, but for streams, whose events are bounded one by one."""
    length = response.headers.get("content-length", "")
    _check_size(int(length) if length.isdecimal() else 0, most)
    body = response.stream
    streams = response.headers.get("content-type", "").startswith("text/event-stream")
    if not streams and isinstance(body, httpx2.AsyncByteStream):
        response.stream = _Bounded(body, most)


@contextlib.asynccontextmanager
async def http_transport(config: ServerConfig) -> AsyncIterator[tuple[Paced, Awaitable[None] | object]]:
    """What the SDK connects by to a server that runs.

    Args:
        config: its address and headers.
    """
    # How long a request may take others decide; a stream may be silent for as long as it likes.
    timeout = httpx2.Timeout(None, connect=config.connect_ms / 1000)
    pool = httpx2.Limits(max_connections=None, max_keepalive_connections=limits.MODEL_CALLS_HTTP)
    async with (
        httpx2.AsyncClient(
            headers=dict(config.headers),
            timeout=timeout,
            limits=pool,
            trust_env=not is_loopback(config.url),
            event_hooks={"response": [functools.partial(_bound, config.output_bytes)]},
        ) as client,
        streamable_http_client(config.url, http_client=client, max_sse_event_size=config.output_bytes) as (
            incoming,
            outgoing,
        ),
    ):
        yield Paced(incoming), outgoing
