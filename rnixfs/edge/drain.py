"""A loop that takes the requests that are already there before it goes back to the scheduler.

pyfuse3 asks epoll before each request and then reads the descriptor in a way that blocks, with Python's
global lock held. Two things follow. A request costs two turns of the scheduler, which is more than half of
its time. And if the client of a queued request is killed between the two steps, the read finds nothing and
the whole process, all threads of it, stands still until the next request comes.

`install` puts a readiness wait in the place of pyfuse3's own that polls the descriptor itself: a request
that is there is taken at once, and the blocking read is never reached with an empty descriptor. It rests on
the name of a private function of pyfuse3 3.5; where that is not as expected the loop stays as it was.
"""

import os
import select
import time
from collections.abc import Awaitable, Callable

import pyfuse3

ReadinessWait = Callable[[], Awaitable[bool]]

# Requests taken in a row before other tasks get a turn. Measured with eight clients at full speed: 32 gives
# 93 % of the rate of 128, and a timer is late by 0.3 ms in place of 1 ms.
BURST = 32
# Where others keep the processor busy between two bursts, as hundreds of streams do, a burst may take as long
# as they did: requests for new work would otherwise wait behind all the work that there is.
BURST_MAX = 1024
REQUEST_SECONDS = 50e-6  # processor time of a request, roughly
SUPPORTED = (3, 5)  # the release line of pyfuse3 whose loop this was written for
_GLOBAL = "_wait_fuse_readable"
_replaced: list[ReadinessWait] = []  # the original, while ours is in its place


def install() -> bool:
    """Replace the readiness wait of pyfuse3; to be called after `pyfuse3.init`, for each session anew.

    Returns:
        Whether the drained loop is in place. False leaves the plain loop, which is slower and otherwise the
        same.
    """
    uninstall()
    original = vars(pyfuse3).get(_GLOBAL)
    descriptor = _session_descriptor()
    if not _is_supported(pyfuse3.__version__) or not callable(original) or descriptor is None:
        return False
    _replaced.append(original)
    vars(pyfuse3)[_GLOBAL] = _drained(original, descriptor)
    return True


def uninstall() -> None:
    """Put the original readiness wait back; does nothing where it is in place already."""
    if _replaced:
        vars(pyfuse3)[_GLOBAL] = _replaced.pop()


def _is_supported(version: str) -> bool:
    return tuple(version.split(".")[:2]) == tuple(str(part) for part in SUPPORTED)


def _session_descriptor() -> int | None:
    """The descriptor of the session, which pyfuse3 does not show: the only one that is open on /dev/fuse.

    None where there are several, since a wait on the wrong one would never end.
    """
    found = [int(name) for name in os.listdir("/proc/self/fd") if _is_fuse(f"/proc/self/fd/{name}")]
    return found[0] if len(found) == 1 else None


def _is_fuse(link: str) -> bool:
    try:
        return os.readlink(link) == "/dev/fuse"
    except OSError:  # the descriptor of the listing itself is closed by now
        return False


def burst_after(busy: float) -> int:
    """How many requests may be taken in a row, after others had this many seconds of processor time."""
    return max(BURST, min(BURST_MAX, int(busy / REQUEST_SECONDS)))


def _drained(original: ReadinessWait, descriptor: int) -> ReadinessWait:
    """A readiness wait that returns at once while requests are there, some times in a row at most.

    Args:
        original: waits until one is there.
        descriptor: of the session.
    """
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    is_ready = poller.poll
    # Shared by all workers, so that the bound holds for the loop and not for each of them.
    taken, most = 0, BURST

    async def wait_readable() -> bool:
        nonlocal taken, most
        while True:
            if taken < most and is_ready(0):
                taken += 1
                return True
            taken, since = 0, time.thread_time()
            if not await original():
                return False
            most = burst_after(time.thread_time() - since)
            # Another worker may have taken it, or its client may be gone: look before the read that blocks.
            if is_ready(0):
                return True

    return wait_readable
