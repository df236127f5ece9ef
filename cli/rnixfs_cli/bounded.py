"""Access to a mount with a time limit.

A daemon that hangs would take the caller with it: a read of its mount ignores every signal but the answer. So
a look that must not hang happens in a forked child, and the parent waits for the child with a limit.
"""

import errno
import os
import select
import signal
import time
from collections.abc import Callable


def bounded(action: Callable[[], bytes], seconds: float) -> bytes:
    """Do something in a forked child and return the bytes it gives.

    Args:
        action: what to do; it must not use what the parent would have to clean up.
        seconds: how long it may take; the child is killed then.

    Raises:
        OSError: what the action raised, or ETIMEDOUT.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _act(action, writer)
    os.close(writer)
    try:
        data = _collect(reader, time.monotonic() + seconds)
    except BaseException:
        # In the state D the child stays until its request is answered; it is not ours to wait for that.
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, os.WNOHANG)
        raise
    finally:
        os.close(reader)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        number = status if status > 0 else errno.EIO
        raise OSError(number, os.strerror(number))
    return data


def _act(action: Callable[[], bytes], writer: int) -> None:
    """The child: give the bytes to the pipe and the errno to the exit status."""
    status = errno.EIO
    try:
        data = memoryview(action())
        while data:
            data = data[os.write(writer, data) :]
        status = 0
    except OSError as error:
        status = error.errno or errno.EIO
    finally:
        os._exit(status)


def _collect(reader: int, deadline: float) -> bytes:
    poller = select.poll()
    poller.register(reader, select.POLLIN)
    data = b""
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not poller.poll(left * 1000):
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        piece = os.read(reader, 1 << 16)
        if not piece:
            return data
        data += piece


def read_file(path: str, seconds: float, limit: int = 1 << 20) -> bytes:
    """The start of a file, with a time limit.

    Args:
        path: the file.
        seconds: how long it may take.
        limit: bytes at most.

    Raises:
        OSError: as the host answers, or ETIMEDOUT.
    """

    def read() -> bytes:
        descriptor = os.open(path, os.O_RDONLY)
        data = b""
        while len(data) < limit and (piece := os.read(descriptor, limit - len(data))):
            data += piece
        return data

    return bounded(read, seconds)


def write_file(path: str, data: bytes, seconds: float) -> None:
    """Write a control file, with a time limit.

    Args:
        path: the file, which must exist.
        data: what to write.
        seconds: how long it may take.

    Raises:
        OSError: as the host answers, or ETIMEDOUT.
    """

    def write() -> bytes:
        os.write(os.open(path, os.O_WRONLY), data)
        return b""

    bounded(write, seconds)
