"""Serving clients of this machine by streamable HTTP."""

import json
import logging
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import trio
from hypercorn.trio import serve as serve_asgi
from hypercorn.typing import ASGIFramework
from starlette.types import ASGIApp

from rnixfs.gateway.app import is_local
from rnixfs.gateway.keys import Key
from rnixfs.gateway.server import server_config
from rnixfs.mcpserve.server import TreeServer

log = logging.getLogger("rnixfs.mcpserve")

PATH = "/mcp"
GRACE_SECONDS = 2.0  # for requests that run when it is told to end; streams of clients would last for ever
BODY_MAX = 4 << 20  # bytes of a request

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


class Guard:
    """Lets those in who call this machine by its own name and show the key.

    Args:
        inner: the application behind it.
        key: what clients must show.
    """

    def __init__(self, inner: ASGIApp, key: Key) -> None:
        self._inner = inner
        self._key = key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            if not is_local(headers.get(b"host", b"").decode("latin-1")):
                # A page of the web can have its own name lead to this machine, and is then the same site.
                await _refuse(send, 403, "this server serves its own machine; call it by the name 127.0.0.1")
                return
            if not any(map(self._key.opens, _shown(headers))):
                await _refuse(
                    send, 401, f"the key is missing or wrong; the right one is in {self._key.origin}"
                )
                return
        elif scope["type"] != "lifespan":
            return
        await self._inner(scope, receive, send)


def _shown(headers: dict[bytes, bytes]) -> list[bytes]:
    kind, _, token = headers.get(b"authorization", b"").partition(b" ")
    return [headers.get(b"x-api-key", b""), token.strip() if kind.lower() == b"bearer" else b""]


async def _refuse(send: Send, status: int, reason: str) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": reason}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def serve(server: TreeServer, key: Key, listening: socket.socket, announce: Callable[[], None]) -> None:
    """Serve until a signal.

    Args:
        server: what is served.
        key: what clients must show.
        listening: where they come.
        announce: called when signals are obeyed and clients may come.
    """
    inner = server.streamable_http_app(streamable_http_path=PATH, max_request_body_size=BODY_MAX)
    guarded = cast(ASGIFramework, Guard(inner, key))
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            told = trio.Event()
            announce()
            nursery.start_soon(server.bus.run)
            nursery.start_soon(_obey, signals, told, nursery.cancel_scope)
            await serve_asgi(
                guarded,
                server_config(listening, "rnixfs.mcpserve.http", GRACE_SECONDS),
                shutdown_trigger=told.wait,
                mode="asgi",
            )
            nursery.cancel_scope.cancel()


async def _obey(signals: AsyncIterator[int], told: trio.Event, everything: trio.CancelScope) -> None:
    """End in peace at the first signal, at once at the next."""
    async for _ in signals:
        if told.is_set():
            everything.cancel()
            return
        told.set()
