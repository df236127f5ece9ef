"""Waiting for a file without missing a signal.

Python runs its signal handlers between two steps of the program. One that arrives after the last such moment
and before the host's kernel begins to wait would be noticed only when the wait ends, which may be never. So
waiting happens in poll(2), together with a pipe into which the arrival of a signal is written.
"""

import os
import select
import signal

RECHECK_MS = 1000  # readiness is asked for anew this often, should a wake-up ever get lost on the way

_pipe: list[int] = []


def bell() -> int:
    """The descriptor that becomes readable when a signal arrives; main thread only."""
    if not _pipe:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        _pipe.extend((reader, writer))
    return _pipe[0]


def wait(poller: select.poll) -> list[int]:
    """Wait until one of the poller's descriptors can be read, or a signal arrives.

    Args:
        poller: what to wait for; the bell is added to it.

    Returns:
        The descriptors that can be read; none after a signal.
    """
    ringing = bell()
    poller.register(ringing, select.POLLIN)
    ready = [descriptor for descriptor, _ in poller.poll(RECHECK_MS)]
    if ringing in ready:
        os.read(ringing, 1 << 12)
        ready.remove(ringing)
    return ready


def readable(descriptor: int) -> None:
    """Wait until a read of this descriptor would not wait."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    while not wait(poller):
        pass
