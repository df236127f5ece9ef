"""One turn: a request that was read, asked of whoever is meant, and its answer written as it comes."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec
import trio

from rnixfs.gateway.asked import Asked, Form, Pieces, Writer, within
from rnixfs.gateway.client import Client, Source
from rnixfs.gateway.echoes import Echoes
from rnixfs.gateway.models import Target
from rnixfs.gateway.refusal import RefusedError
from rnixfs.llm import Delta, ModelAnswer, ModelRequest

FIRST_SECONDS = (
    15.0  # until a stream begins although nothing came yet: its errors have no status from then on
)
PING_SECONDS = 10.0  # of silence after which a stream says that it lives

Send = Callable[[Any], Awaitable[None]]


class Reply:
    """The response to one request.

    `status` is 0 before it has begun, and `ended` tells whether all of it was given.

    Args:
        send: takes messages of ASGI.
        headers: what stands in each response.
    """

    def __init__(self, send: Send, headers: list[tuple[str, str]]) -> None:
        self.status = 0
        self.ended = False
        self._send = send
        self._headers = headers

    async def whole(self, status: int, body: Any, headers: list[tuple[str, str]] | None = None) -> None:
        """Answer with JSON."""
        data = msgspec.json.encode(body)
        length = ("content-length", str(len(data)))
        await self._begin(status, [("content-type", "application/json"), length, *(headers or [])])
        await self._end(data)

    async def begin_events(self) -> None:
        """Begin to answer with a stream of events."""
        await self._begin(200, [("content-type", "text/event-stream"), ("cache-control", "no-cache")])

    async def events(self, data: bytes) -> None:
        """Send some events."""
        if data:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end_events(self) -> None:
        """End the stream."""
        await self._end(b"")

    async def _end(self, data: bytes) -> None:
        # Said before: the server tells that the client has gone while it still closes the connection.
        self.ended = True
        await self._send({"type": "http.response.body", "body": data})

    async def _begin(self, status: int, headers: list[tuple[str, str]]) -> None:
        self.status = status
        raw = [(name.encode(), value.encode("latin-1")) for name, value in [*self._headers, *headers]]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})


def request_for(target: Target, asked: Asked) -> ModelRequest:
    """What is asked of a target: effort in Claude's words goes to those who know them."""
    if asked.own_effort and target.provider is not None and target.provider.speaks_claude:
        return msgspec.structs.replace(asked.request, effort=asked.own_effort)
    return asked.request


class Place(NamedTuple):
    """Where requests are asked.

    Args:
        mount: the tree.
        echoes: what providers want back with their answers.
    """

    mount: Client
    echoes: Echoes


async def take(form: Form, asked: Asked, place: Place, reply: Reply, meant: Callable[[Target], None]) -> None:
    """Answer a request.

    Args:
        form: the API that it came by.
        asked: the request.
        place: where it is asked.
        reply: takes the answer.
        meant: told who is asked.

    Raises:
        RefusedError: nothing was answered yet, and why.
    """
    target = (await place.mount.catalog()).find(asked.model)
    meant(target)
    asked = asked._replace(model=asked.model or str(target))
    request = place.echoes.restore(request_for(target, asked))
    async with place.mount.ask(target, request, asked.stream) as source:
        if asked.stream:
            answer = await _stream(form.writer(asked), asked, source, reply)
        else:
            answer = await _whole(source)
            await reply.whole(200, form.whole(asked, within(answer, asked.stop)))
    if answer is not None:
        place.echoes.keep(answer)


async def _whole(source: Source) -> ModelAnswer:
    while not isinstance(item := await source.next(), ModelAnswer):
        pass
    return item


async def _stream(writer: Writer, asked: Asked, source: Source, reply: Reply) -> ModelAnswer | None:
    """Write an answer as it comes; gives it, or None where it broke off."""
    pieces, answer = Pieces(asked.stop), None
    item = await _soon(source, FIRST_SECONDS)
    await reply.begin_events()
    await reply.events(writer.begin())
    try:
        while not isinstance(item, ModelAnswer):
            await reply.events(_written(writer, pieces, item))
            item = await _soon(source, PING_SECONDS)
        answer = within(item, asked.stop)
        rest = b"".join(map(writer.piece, pieces.finish(answer)))
        await reply.events(rest + writer.end(answer))
        answer = item
    except RefusedError as refusal:
        await reply.events(writer.failed(refusal))
    await reply.end_events()
    return answer


def _written(writer: Writer, pieces: Pieces, item: Delta | None) -> bytes:
    return writer.ping() if item is None else b"".join(map(writer.piece, pieces.feed(item)))


async def _soon(source: Source, seconds: float) -> Delta | ModelAnswer | None:
    """The next piece; None where nothing comes in time."""
    with trio.move_on_after(seconds):
        return await source.next()
    return None
