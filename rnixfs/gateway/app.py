"""The gateway as an ASGI application: who may ask, what for, and what is said of it in the log."""

import ipaddress
import logging
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec
import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route

from rnixfs.gateway import chat, messages
from rnixfs.gateway.asked import Form, identity
from rnixfs.gateway.client import Client
from rnixfs.gateway.echoes import Echoes
from rnixfs.gateway.keys import Key
from rnixfs.gateway.models import Target, entry, listing
from rnixfs.gateway.refusal import RefusedError, refuse
from rnixfs.gateway.turn import Place, Reply, Send, take

log = logging.getLogger("rnixfs.gateway")

BODY_MAX = 4 << 20  # bytes of a request, as in the reference
DRAIN_MAX = 64 << 20  # bytes of a refused request that are still taken, so that its sender reads why
HEALTH_SECONDS = 3.0  # for the daemon to answer, as in the reference

_OPEN = "/health"  # the one path that needs no key
_GONE = 499  # in the log, for a client that did not wait; nginx made the number usual
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]


class _GoneError(Exception):
    """The client has left."""


class Seen:
    """What the log tells of a request: nothing that was said in it."""

    def __init__(self) -> None:
        self.target = "-"
        self.left = False

    def meant(self, target: Target) -> None:
        """Who is asked; a model's name only where it is known, for a client may write anything there."""
        provider = target.provider
        known = provider is None or target.model in (provider.default, *provider.models)
        self.target = str(target if known else target._replace(model=""))


class Exchange(NamedTuple):
    """One request and the response to it, as a handler gets them.

    Args:
        scope: what ASGI tells of the request.
        receive: gives its body, and then tells when the client has left.
        reply: takes the response.
        form: the API whose client has sent it.
        seen: takes what the log should tell.
    """

    scope: Scope
    receive: Receive
    reply: Reply
    form: Form
    seen: Seen


Handler = Callable[[Exchange], Awaitable[None]]


class Gateway:
    """What the gateway does for each path.

    Args:
        mount: the tree.
        key: what clients must show.
        local: whether it listens to this machine only; then nobody may call it by the name of another.
    """

    def __init__(self, mount: Client, key: Key, local: bool) -> None:
        self._mount = mount
        self._key = key
        self._local = local
        self._place = Place(mount, Echoes())
        self._created = int(time.time())

    def application(self) -> "Guard":
        """The ASGI application."""
        routes = [
            self._route(_OPEN, self._health, "GET"),
            self._route("/v1/models", self._models, "GET"),
            self._route("/v1/models/{name:path}", self._one_model, "GET"),
            self._route("/v1/chat/completions", self._ask, "POST"),
            self._route("/v1/messages", self._ask, "POST"),
            self._route("/v1/messages/count_tokens", self._count, "POST"),
        ]
        handlers: dict[Any, Any] = {HTTPException: _no_such}
        return Guard(Starlette(routes=routes, exception_handlers=handlers), self._admit)

    def _route(self, path: str, handler: Handler, method: str) -> Route:
        return Route(path, Endpoint(handler), methods=[method])

    # --- who may ask ---

    def _admit(self, scope: Scope) -> None:
        """Let a request in.

        Raises:
            RefusedError: it is not for us, or shows no key that is right.
        """
        headers = scope["headers"]
        if self._local and not is_local(_header(headers, b"host").decode("latin-1")):
            # A page of the web can have its own name lead to this machine, and is then the same site.
            reason = "this gateway serves its own machine; call it by the name localhost or 127.0.0.1"
            raise RefusedError(403, reason, kind="wrong_host")
        if scope["path"] != _OPEN and not any(map(self._key.opens, _shown(headers))):
            reason = (
                f"the key is missing or wrong; the right one is in {self._key.origin} where rnix serve runs"
            )
            raise RefusedError(401, reason, kind="invalid_api_key")

    # --- what is asked ---

    async def _health(self, exchange: Exchange) -> None:
        try:
            await self._mount.check(HEALTH_SECONDS)
            catalog = await self._mount.catalog()
        except RefusedError as refusal:
            await exchange.reply.whole(
                503, {"status": "unavailable", "reason": refusal.reason, "providers": {}}
            )
            return
        states = {one.name: "ok" if one.available else "unavailable" for one in catalog.providers}
        usable = "ok" in states.values()
        status = {"status": "ok" if usable else "unavailable", "providers": states}
        await exchange.reply.whole(200 if usable else 503, status)

    async def _models(self, exchange: Exchange) -> None:
        names = (await self._mount.catalog()).names()
        await exchange.reply.whole(200, listing(names, self._created))

    async def _one_model(self, exchange: Exchange) -> None:
        name = exchange.scope["path_params"]["name"]
        exchange.seen.meant((await self._mount.catalog()).find(name))
        await exchange.reply.whole(200, entry(name, self._created))

    async def _ask(self, exchange: Exchange) -> None:
        body = await _json_body(exchange)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_until_gone, exchange, nursery.cancel_scope)
            try:
                asked = exchange.form.read(body)
                await take(exchange.form, asked, self._place, exchange.reply, exchange.seen.meant)
            except RefusedError as refusal:
                # Here, for a nursery would make a group of it.
                await _refuse(exchange, refusal)
            nursery.cancel_scope.cancel()

    async def _count(self, exchange: Exchange) -> None:
        tokens = messages.count(await _json_body(exchange))
        await exchange.reply.whole(200, {"input_tokens": tokens})


class Endpoint:
    """A handler as an ASGI application.

    Args:
        handler: what it does; raises RefusedError.
    """

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = scope["rnix"]
        try:
            await self._handler(exchange)
        except RefusedError as refusal:
            await _refuse(exchange, refusal)


class Guard:
    """Stands before all paths: lets requests in, gives each a name, and logs it.

    Args:
        inner: the application behind it.
        admit: raises RefusedError for those who may not enter.
    """

    def __init__(self, inner: Starlette, admit: Callable[[Scope], None]) -> None:
        self._inner = inner
        self._admit = admit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._request(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._inner(scope, receive, send)
        # Whatever else there is, such as WebSockets, is ended by the server when nothing answers.

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = identity("req_")
        reply = Reply(send, [("request-id", name), ("x-request-id", name)])
        exchange = Exchange(scope, receive, reply, form_of(scope), Seen())
        scope["rnix"] = exchange
        began = time.monotonic()
        try:
            await self._admitted(exchange, send)
        except _GoneError:
            exchange.seen.left = True
        finally:
            _log_line(exchange, time.monotonic() - began)

    async def _admitted(self, exchange: Exchange, send: Send) -> None:
        try:
            self._admit(exchange.scope)
            await self._inner(exchange.scope, exchange.receive, send)
        except RefusedError as refusal:
            await _drain(exchange.receive, 0)
            await _refuse(exchange, refusal)
        except Exception as error:
            if isinstance(error, _GoneError):
                raise
            _log_bug(error)
            if exchange.reply.status:
                return  # the server cuts off what has no end
            await _refuse(
                exchange, RefusedError(500, "the gateway failed inside; its log has more", kind="internal")
            )


def _log_line(exchange: Exchange, seconds: float) -> None:
    scope, seen, status = exchange.scope, exchange.seen, exchange.reply.status or _GONE
    left = ", client left" if seen.left else ""
    words = (scope["method"], _path(scope), seen.target, status, round(seconds * 1000), left)
    log.info("%s %s %s %d %d ms%s", *words)


def _log_bug(error: BaseException) -> None:
    # Without the error's own words: they may repeat what was said.
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = "".join(traceback.format_tb(error.__traceback__))
    log.error("%s inside the gateway:\n%s", type(error).__name__, frames.rstrip())


async def _refuse(exchange: Exchange, refusal: RefusedError) -> None:
    status, body = exchange.form.error(refusal)
    await exchange.reply.whole(status, body, refusal.headers())


async def _no_such(request: Any, error: HTTPException) -> "Endpoint":
    """A path or method that is not there."""
    scope = request.scope
    refusal = RefusedError(
        error.status_code, f"{scope['method']} {_path(scope)}: {error.detail}", kind="not_found"
    )

    async def answer(exchange: Exchange) -> None:
        raise refusal

    return Endpoint(answer)


async def _until_gone(exchange: Exchange, scope: trio.CancelScope) -> None:
    """Cancel when the client has left before the end."""
    while (await exchange.receive())["type"] != "http.disconnect":
        pass
    if not exchange.reply.ended:
        exchange.seen.left = True
        scope.cancel()


# --- what a request says ---


def form_of(scope: Scope) -> Form:
    """The API whose client has sent a request."""
    anthropic = scope["path"].startswith("/v1/messages") or _header(scope["headers"], b"anthropic-version")
    return messages if anthropic else chat


def is_local(host: str) -> bool:
    """Whether a Host header names this machine as it is seen from itself."""
    name, _, port = host.lower().rpartition(":")
    if not name or not port.isdecimal():
        name = host.lower()
    if name in _LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _shown(headers: Any) -> list[bytes]:
    """The keys that a request shows."""
    kind, _, token = _header(headers, b"authorization").partition(b" ")
    return [_header(headers, b"x-api-key"), token.strip() if kind.lower() == b"bearer" else b""]


def _header(headers: Any, name: bytes) -> bytes:
    return next((bytes(value) for key, value in headers if key == name), b"")


def _path(scope: Scope) -> str:
    path = scope.get("raw_path") or b""
    return path[:200].decode("ascii", "backslashreplace")


async def _json_body(exchange: Exchange) -> Any:
    """The body of a request, an object of JSON.

    Raises:
        RefusedError: it is too large, or none.
    """
    data = await _body(exchange)
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise refuse(f"the body is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise refuse("the body must be an object of JSON")
    return value


async def _body(exchange: Exchange) -> bytes:
    declared = _header(exchange.scope["headers"], b"content-length")
    if declared.isdigit() and int(declared) > DRAIN_MAX:
        raise _too_large()
    data = bytearray()
    more = True
    while more:
        piece, more = await _piece(exchange.receive)
        data += piece
        if len(data) > BODY_MAX:
            await _drain(exchange.receive, len(data), more)
            raise _too_large()
    return bytes(data)


def _too_large() -> RefusedError:
    return RefusedError(413, f"the body is larger than {BODY_MAX} bytes", kind="too_large")


async def _piece(receive: Receive) -> tuple[bytes, bool]:
    """The next piece of a body, and whether there is more."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise _GoneError
    return message.get("body", b""), message.get("more_body", False)


async def _drain(receive: Receive, taken: int, more: bool = True) -> None:
    """Take the rest of a body that nobody wants: who still sends does not read the answer."""
    while more and taken <= DRAIN_MAX:
        piece, more = await _piece(receive)
        taken += len(piece)
