"""Serving the client that started this program, by its standard streams.

The SDK reads its input in a thread that nothing can stop. So it is given a pipe, which is filled here, and
closed when the input ends, nobody takes the output any more, or a signal comes: the end of the pipe is how it
is told to leave.
"""

import contextlib
import os
import select
import signal
import sys
from collections.abc import AsyncIterator

import trio

from rnixfs.mcpserve.server import TreeServer

CHUNK = 1 << 16  # bytes of input at once
INPUT, OUTPUT = 0, 1  # descriptors
CHECK_SECONDS = 5.0  # after which it is seen again whether anybody takes the output


async def serve(server: TreeServer) -> None:
    """Serve until the client closes its side, or a signal."""
    output = select.poll()
    # A copy, for the SDK turns the descriptor elsewhere; without events it tells of errors alone.
    output.register(os.dup(OUTPUT), 0)
    reading, writing = os.pipe2(os.O_CLOEXEC)
    # Line by line: the text layer would wait for a whole chunk.
    sys.stdin = os.fdopen(reading, "r", encoding="utf-8", errors="replace")
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.bus.run)
            nursery.start_soon(_fill, writing, signals, output)
            await server.run_stdio_async()
            nursery.cancel_scope.cancel()


async def _fill(writing: int, signals: AsyncIterator[int], output: select.poll) -> None:
    async with trio.lowlevel.FdStream(writing) as pipe, trio.open_nursery() as nursery:
        nursery.start_soon(_until_signal, signals, nursery.cancel_scope)
        with contextlib.suppress(trio.BrokenResourceError):
            while data := await _input(output):
                await pipe.send_all(data)
        nursery.cancel_scope.cancel()


async def _until_signal(signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
    async for _ in signals:
        scope.cancel()


async def _input(output: select.poll) -> bytes:
    """What comes next; nothing at the end."""
    ready = False
    while not ready:
        if output.poll(0):
            return b""
        with trio.move_on_after(CHECK_SECONDS):
            try:
                await trio.lowlevel.wait_readable(INPUT)
            except OSError:
                # A file, which is always ready and cannot be polled.
                await trio.lowlevel.checkpoint()
            ready = True
    # Not set to O_NONBLOCK: that would hold for everybody who shares the descriptor.
    try:
        return b"" if output.poll(0) else os.read(INPUT, CHUNK)
    except OSError:
        return b""
