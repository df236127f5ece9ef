"""What can go wrong between us and a provider behind HTTP, and what becomes of it: FAULTS is the whole table.

Every row holds for every dialect, whether the answer is to stream or not, over real HTTP on the loopback.
"""

import errno
import json
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import trio
import trio.testing

from rnixfs import limits
from rnixfs.drivers.http import HttpModel
from rnixfs.errors import Code
from rnixfs.llm import ModelRequest, Usage
from rnixfs.model import ModelError
from rnixfs.wire.count import spent
from tests.models import servers
from tests.models.httplab import KEY, PEERS, Peer, model_of, nobody
from tests.models.servers import Handler, reply, serving, sse

NOTHING, PROMPT, SO_FAR = "nothing", "the prompt", "the prompt and what came"
AT_ONCE, TIMEOUT = 0.0, 2.5  # seconds after which the call has ended; the clock stands still in between


class Fault(NamedTuple):
    """A row: a fault, and what the caller gets.

    Args:
        what: the fault.
        code: the code of the error.
        number: the errno that programs see.
        transient: whether another attempt is worth its while.
        counted: which tokens count as spent, where the answer is not to stream and where it is.
        ends: seconds until the call ends.
        status: the HTTP status.
        retry_after: seconds after which the server wants to be asked again.
        says: words of the error's text.
    """

    what: str
    code: Code
    number: int
    transient: bool
    counted: tuple[str, str] = (NOTHING, NOTHING)
    ends: float = AT_ONCE
    status: int = 0
    retry_after: float | None = None
    says: str = ""


FAULTS = [
    Fault("refused connection", Code.SERVICE_UNAVAILABLE, errno.EAGAIN, True, says="is the server running?"),
    Fault("no TLS", Code.DRIVER, errno.EIO, False, says="no secure connection"),
    Fault("self-signed certificate", Code.DRIVER, errno.EIO, False, says="no secure connection"),
    Fault("status 400", Code.INVALID, errno.EINVAL, False, status=400, says="it broke"),
    Fault("status 401", Code.PERMISSION, errno.EACCES, False, status=401, says="it broke"),
    Fault("status 402", Code.BUDGET_EXCEEDED, errno.EDQUOT, False, status=402, says="it broke"),
    Fault("status 403", Code.PERMISSION, errno.EACCES, False, status=403, says="it broke"),
    Fault("status 404", Code.NOT_FOUND, errno.ENOENT, False, status=404, says="it broke"),
    Fault("status 408", Code.TIMEOUT, errno.ETIMEDOUT, True, status=408, says="it broke"),
    Fault("status 409", Code.INVALID, errno.EINVAL, True, status=409, says="it broke"),
    Fault("status 413", Code.TOO_LARGE, errno.EFBIG, False, status=413, says="it broke"),
    Fault("status 422", Code.INVALID, errno.EINVAL, False, status=422, says="it broke"),
    Fault("status 425", Code.INVALID, errno.EINVAL, True, status=425, says="it broke"),
    Fault("status 429", Code.SERVICE_UNAVAILABLE, errno.EAGAIN, True, status=429, says="it broke"),
    Fault(
        "status 429, Retry-After: 7",
        Code.SERVICE_UNAVAILABLE,
        errno.EAGAIN,
        True,
        status=429,
        retry_after=7.0,
    ),
    Fault("status 500", Code.DRIVER, errno.EIO, True, status=500, says="it broke"),
    Fault("status 502", Code.DRIVER, errno.EIO, True, status=502, says="it broke"),
    Fault("status 503", Code.SERVICE_UNAVAILABLE, errno.EAGAIN, True, status=503, says="it broke"),
    Fault("status 504", Code.TIMEOUT, errno.ETIMEDOUT, True, status=504, says="it broke"),
    Fault("status 529", Code.SERVICE_UNAVAILABLE, errno.EAGAIN, True, status=529, says="it broke"),
    Fault("half a reply, properly ended", Code.DRIVER, errno.EIO, True, (PROMPT, SO_FAR), says="complete"),
    Fault(
        "half a reply, then a broken connection",
        Code.DRIVER,
        errno.EIO,
        True,
        (PROMPT, SO_FAR),
        says="complete",
    ),
    Fault("invalid JSON", Code.DRIVER, errno.EIO, False, (PROMPT, SO_FAR), says="no JSON"),
    Fault("invalid UTF-8", Code.DRIVER, errno.EIO, False, (PROMPT, SO_FAR)),
    Fault("an endless reply", Code.TOO_LARGE, errno.EFBIG, False, (PROMPT, SO_FAR), says="larger than"),
    Fault(
        "silence before the reply", Code.TIMEOUT, errno.ETIMEDOUT, False, ends=TIMEOUT, says="within 2.5 s"
    ),
    Fault("silence in the reply", Code.TIMEOUT, errno.ETIMEDOUT, False, (PROMPT, SO_FAR), TIMEOUT),
    Fault("connection closed before headers", Code.DRIVER, errno.EIO, True, says="complete"),
    Fault("no HTTP", Code.DRIVER, errno.EIO, True, says="complete"),
]

ERROR = {"error": {"message": "it broke", "type": "t"}}
CUT = {"content-type": "application/json", "content-length": "100000"}


def half(peer: Peer, stream: bool) -> Handler:
    """Half a reply, whose connection then ends in the way that says that it is whole."""
    if stream:
        return sse(peer.half)
    return servers.raw(
        servers.head(200, {"content-type": "application/json"}) + peer.whole[: len(peer.whole) // 2]
    )


def broken(peer: Peer, stream: bool) -> Handler:
    """Half a reply, whose connection then breaks."""
    return sse(peer.half, end=False) if stream else servers.raw(servers.head(200, CUT) + peer.whole[:-5])


def damaged(peer: Peer, stream: bool, damage: bytes) -> Handler:
    """A reply, or the second event of a stream, that holds what it must not."""
    return sse(peer.half, b"data: " + damage + b"\n\n") if stream else reply(damage)


def endless(peer: Peer, stream: bool) -> Handler:
    """A reply that never ends."""
    if stream:
        return servers.endless("text/event-stream", peer.half, peer.piece)
    return servers.endless("application/json", b"", b" " * 999)


def silent(server: servers.Server, peer: Peer, stream: bool) -> Handler:
    """Half a reply, and then nothing more, while the connection stays."""
    start = servers.head(200, {"content-type": "text/event-stream"}) if stream else servers.head(200, CUT)
    return servers.hang(server, start + (peer.half if stream else peer.whole[:-5]))


def handler_of(fault: Fault, server: servers.Server, peer: Peer, stream: bool) -> Handler:
    """What the server does."""
    if fault.status:
        headers = {} if fault.retry_after is None else {"retry_after": f"{fault.retry_after:g}"}
        return reply(ERROR, fault.status, **headers)
    handlers: dict[str, Callable[[], Handler]] = {
        "no TLS": lambda: reply(ERROR, 400),
        "self-signed certificate": lambda: reply(peer.whole),
        "half a reply, properly ended": lambda: half(peer, stream),
        "half a reply, then a broken connection": lambda: broken(peer, stream),
        "invalid JSON": lambda: damaged(peer, stream, b'{"choices": nonsense'),
        "invalid UTF-8": lambda: damaged(peer, stream, peer.whole.replace(b"hello", b"hell\xff")),
        "an endless reply": lambda: endless(peer, stream),
        "silence before the reply": lambda: servers.hang(server),
        "silence in the reply": lambda: silent(server, peer, stream),
        "connection closed before headers": lambda: servers.raw(b""),
        "no HTTP": lambda: servers.raw(b"220 mail.example ESMTP\r\n"),
    }
    return handlers[fault.what]()


@asynccontextmanager
async def faulty(
    fault: Fault, peer: Peer, stream: bool, folder: Path
) -> AsyncGenerator[tuple[HttpModel, servers.Server]]:
    """A driver whose server has the fault."""
    tls = servers.certificate(folder)[0] if fault.what == "self-signed certificate" else None
    async with serving(reply(b""), tls) as server:
        url = server.url
        if fault.what == "no TLS":
            url = url.replace("http:", "https:")
        with socket.socket() as held:  # held, so that nobody else listens at its port
            if fault.what == "refused connection":
                held.bind(("127.0.0.1", 0))
                url = f"http://127.0.0.1:{held.getsockname()[1]}"
            else:
                server.handler = handler_of(fault, server, peer, stream)
            async with model_of(peer.driver, url) as model:
                yield model, server


def counted(fault: Fault, peer: Peer, stream: bool, prompt: bytes) -> Usage:
    """What the row says was spent."""
    how = fault.counted[stream]
    if how == NOTHING:
        return Usage()
    guess = spent(prompt)
    if how == PROMPT:
        return guess
    came = peer.came
    return msgspec.structs.replace(came, input_tokens=came.input_tokens or guess.input_tokens)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("peer", PEERS.values(), ids=PEERS)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
async def test_faults(
    fault: Fault,
    peer: Peer,
    stream: bool,
    tmp_path: Path,
    mock_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each row of the table holds: code, errno, whether to try again, tokens, time, the error's object."""
    monkeypatch.setattr(limits, "MODEL_REPLY_MAX", 200_000)
    request = ModelRequest(intent="hi", timeout_ms=round(TIMEOUT * 1000))
    start = trio.current_time()
    async with faulty(fault, peer, stream, tmp_path) as (model, server), trio.open_nursery() as nursery:
        if fault.ends:
            nursery.start_soon(later, server, mock_clock)
        with pytest.raises(ModelError) as caught:
            await model.complete(request, nobody if stream else None)
        prompt = server.requests[0].content if server.requests else b""
    error = caught.value
    assert (error.code, error.errno, error.transient) == (fault.code, fault.number, fault.transient)
    assert (error.status, error.retry_after) == (fault.status, fault.retry_after)
    assert trio.current_time() - start == pytest.approx(fault.ends)
    assert fault.says in error.reason
    assert KEY not in error.reason
    check_usage(fault, error, counted(fault, peer, stream, prompt))
    check_object(fault, error)


async def later(server: servers.Server, clock: trio.testing.MockClock) -> None:
    """Let the time pass after which a call ends, once all that the server sends has been read."""
    await server.sent.wait()
    await trio.testing.wait_all_tasks_blocked()
    clock.jump(TIMEOUT)


def check_usage(fault: Fault, error: ModelError, expected: Usage) -> None:
    """What was spent is what the row says; of an endless stream it is known within bounds."""
    if fault.what == "an endless reply" and expected.output_tokens:
        assert error.usage.input_tokens == expected.input_tokens
        assert 10_000 < error.usage.output_tokens <= limits.MODEL_REPLY_MAX / 4
    else:
        assert error.usage == expected


def check_object(fault: Fault, error: ModelError) -> None:
    """The error's object holds the same, for callers that decide by it, and can be sent."""
    expected: dict[str, Any] = {
        "code": str(fault.code),
        "message": error.reason,
        "syscall": "",
        "device": "",
        "retryable": fault.transient,
        "attempts": 1,
    }
    if fault.retry_after is not None:
        expected["retry_after_ms"] = round(fault.retry_after * 1000)
    if fault.status:
        expected["status"] = fault.status
    if error.usage.tokens:
        expected |= {"tokens_used": error.usage.tokens, "cost_usd": 0.0}
    assert json.loads(json.dumps(error.as_dict())) == expected
