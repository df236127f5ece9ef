"""A small HTTP server on the loopback that plays what providers send, byte by byte, and their failures."""

import array
import contextlib
import dataclasses
import fcntl
import json
import ssl
import termios
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import trio

Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]
"""A connection, as handlers see it."""

SECONDS = 60.0  # the longest a test here may take, on a loaded machine too


@dataclasses.dataclass
class Seen:
    """A request as it came over the wire."""

    method: str
    path: str
    headers: dict[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        """Its decoded body."""
        return json.loads(self.content)


Handler = Callable[[Seen, Stream], Awaitable[None]]
"""Answers one request on its connection."""


@dataclasses.dataclass
class Server:
    """A running server: its address, and what it was asked."""

    url: str
    handler: Handler
    keep: bool = False
    """Whether a connection serves one request after another."""
    connections: int = 0
    requests: list[Seen] = dataclasses.field(default_factory=list)
    asked: trio.Event = dataclasses.field(default_factory=trio.Event)
    """Set when the first request has come."""
    sent: trio.Event = dataclasses.field(default_factory=trio.Event)
    """Set when the client's side has all that `hang` sends."""
    hung_up: trio.Event = dataclasses.field(default_factory=trio.Event)
    """Set when a client goes away while `hang` holds its request."""


@contextlib.asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Server]:
    """Run a server on a free port of the loopback for the length of the block.

    Args:
        handler: answers its requests.
        tls: its certificate; None for plain HTTP.
    """
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        server = Server(f"{'https' if tls else 'http'}://127.0.0.1:{port}", handler)

        async def connection(socket: trio.SocketStream) -> None:
            stream = trio.SSLStream(socket, tls, server_side=True, https_compatible=True) if tls else socket
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                server.connections += 1
                async with stream:
                    while seen := await _receive(stream):
                        server.requests.append(seen)
                        server.asked.set()
                        await server.handler(seen, stream)
                        if not server.keep:
                            break

        nursery.start_soon(trio.serve_listeners, connection, listeners)
        try:
            with trio.fail_after(SECONDS):
                yield server
        finally:
            nursery.cancel_scope.cancel()


async def _receive(stream: Stream) -> Seen | None:
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = await stream.receive_some()
        if not chunk:
            return None
        data += chunk
        if data[:1] == b"\x16":  # the start of a TLS handshake
            await stream.send_all(head(400, {}) + b"this server speaks no TLS")
            return None
    start, _, content = data.partition(b"\r\n\r\n")
    first, *lines = start.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(content) < int(headers.get("content-length", 0)):
        content += await stream.receive_some()
    method, path, _ = first.split(" ", 2)
    return Seen(method, path, headers, content)


def reply(
    body: bytes | str | dict[str, Any] | list[Any],
    status: int = 200,
    kind: str = "application/json",
    connection: str = "close",
    **headers: str,
) -> Handler:
    """Answer with a whole body; header names are written with `_` for `-`."""
    data = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
    fields = {"content-type": kind, "content-length": str(len(data))} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    return raw(head(status, fields, connection=connection) + data)


def head(status: int, headers: dict[str, str], *, connection: str = "close") -> bytes:
    """The bytes of a status line and headers."""
    fields = {**headers, "connection": connection}
    lines = [f"HTTP/1.1 {status} Reason", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def raw(*pieces: bytes) -> Handler:
    """Send these bytes as they are."""

    async def handler(_: Seen, stream: Stream) -> None:
        for piece in pieces:
            await stream.send_all(piece)

    return handler


def sse(*pieces: bytes, end: bool = True, connection: str = "close") -> Handler:
    """Send an event stream, each piece as one HTTP chunk.

    Args:
        pieces: the bytes of the stream.
        end: whether the mark of a complete body follows.
        connection: the header of that name.
    """
    fields = {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked"}
    start = head(200, fields, connection=connection)
    chunks = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces if piece]
    return raw(start, *chunks, *([b"0\r\n\r\n"] if end else []))


def events(chunks: Iterable[dict[str, Any] | str]) -> bytes:
    """The bytes of events, one for each chunk."""
    texts = (chunk if isinstance(chunk, str) else json.dumps(chunk, ensure_ascii=False) for chunk in chunks)
    return "".join(f"data: {text}\n\n" for text in texts).encode()


def endless(kind: str, first: bytes, piece: bytes) -> Handler:
    """Send the beginning of a body, then the same piece again and again for as long as somebody takes it."""

    async def handler(_: Seen, stream: Stream) -> None:
        await stream.send_all(head(200, {"content-type": kind}) + first)
        while True:
            await stream.send_all(piece)

    return handler


def hang(server: Server, *first: bytes) -> Handler:
    """Send some bytes, then wait for the client to go away, and say so in `server.hung_up`."""

    async def handler(_: Seen, stream: Stream) -> None:
        for piece in first:
            await stream.send_all(piece)
        await _delivered(stream)
        server.sent.set()
        with contextlib.suppress(trio.BrokenResourceError):
            while await stream.receive_some():
                pass
        server.hung_up.set()

    return handler


async def _delivered(stream: Stream) -> None:
    """Wait until the other side has acknowledged all bytes."""
    socket = stream.transport_stream.socket if isinstance(stream, trio.SSLStream) else stream.socket
    waiting = array.array("i", [1])
    while waiting[0]:
        await trio.lowlevel.checkpoint()
        fcntl.ioctl(socket, termios.TIOCOUTQ, waiting)


# Signed by itself for 127.0.0.1, from 2000 to 2099. It was made for these tests and protects nothing.
_CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBZDCCAQqgAwIBAgIBATAKBggqhkjOPQQDAjAQMQ4wDAYDVQQDDAV0ZXN0czAg
Fw0wMDAxMDEwMDAwMDBaGA8yMDk5MTIzMTAwMDAwMFowEDEOMAwGA1UEAwwFdGVz
dHMwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAR3VTz12si6MTj9pIT2dccLB2Pk
lmDS2VSSO0nXxhPlWDmHI4FglySDelH1UEb0WrMRFosErShrqx9KVKtXY46To1Mw
UTAPBgNVHREECDAGhwR/AAABMA8GA1UdEwEB/wQFMAMBAf8wDgYDVR0PAQH/BAQD
AgKEMB0GA1UdDgQWBBRwxB92j2jeQqbZb+VtHgiPoFS1DDAKBggqhkjOPQQDAgNI
ADBFAiEA1qwqMvQZDlaE9KcoOUxgz4xztlFS9JfD5AT7MJr036gCIBD4e+kRuPo4
MIuiFTESd9++9Etdvtt2xzsUCpSC5562
-----END CERTIFICATE-----
"""
_KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg03VuoZeIJv0Z6uEE
SAtv5O+puEwyHmUrMFF6yW+HgiWhRANCAAR3VTz12si6MTj9pIT2dccLB2PklmDS
2VSSO0nXxhPlWDmHI4FglySDelH1UEb0WrMRFosErShrqx9KVKtXY46T
-----END PRIVATE KEY-----
"""


def certificate(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """A server's certificate that nobody has signed, and the file with which a client can trust it."""
    trusted, both = folder / "trusted.pem", folder / "server.pem"
    trusted.write_text(_CERTIFICATE)
    both.write_text(_CERTIFICATE + _KEY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    return context, trusted
