"""A server that answers as providers do, as fast as it can: python -m bench.models.stub GAP

It prints its port, and runs until it is ended. A request whose body or path asks for a stream gets the answer
in pieces: in OpenAI's dialect, which many streams at once are measured with, GAP seconds after each other.
"""

import contextlib
import functools
import sys

import trio

from bench.models import answers

GAP = float(sys.argv[1])
_JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"


async def _connection(stream: trio.SocketStream) -> None:
    with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        rest = b""
        while True:
            while b"\r\n\r\n" not in rest:
                part = await stream.receive_some()
                if not part:
                    return
                rest += part
            head, _, rest = rest.partition(b"\r\n\r\n")
            length = _length(head)
            while len(rest) < length:
                rest += await stream.receive_some()
            await _answer(stream, head, rest[:length])
            rest = rest[length:]


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


async def _answer(stream: trio.SocketStream, head: bytes, body: bytes) -> None:
    method, target, _ = head.split(b" ", 2)
    path = target.decode()
    if method != b"POST" or not path.startswith((answers.OPENAI, answers.ANTHROPIC, answers.GEMINI)):
        await stream.send_all(_NOT_FOUND)
    elif b'"stream":true' in body.replace(b" ", b"") or "stream" in path:
        await _stream(stream, path)
    else:
        data = _whole(path)
        await stream.send_all(_JSON % len(data) + data)


async def _stream(stream: trio.SocketStream, path: str) -> None:
    start, words, end = _pieces(path)
    await stream.send_all(_STREAM + start)
    due = trio.current_time()
    for word in words:
        await stream.send_all(word)
        if path.startswith(answers.OPENAI):
            due += GAP
            await trio.sleep_until(due)
    await stream.send_all(end + b"0\r\n\r\n")


@functools.cache
def _whole(path: str) -> bytes:
    return answers.whole(path)


@functools.cache
def _pieces(path: str) -> tuple[bytes, list[bytes], bytes]:
    start, words, end = answers.pieces(path)
    return _chunk(start), [_chunk(word) for word in words], _chunk(end)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data) if data else b""


async def main() -> None:
    """Serve until this process is ended."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1", backlog=2048)
    print(listeners[0].socket.getsockname()[1], flush=True)
    await trio.serve_listeners(_connection, listeners)


if __name__ == "__main__":
    trio.run(main)
