"""The parts of the mount's edge that depend on private layouts, and the life of a mount.

`drain` and `interrupt` reach behind the interface of pyfuse3. Each checks what it finds before it relies on
it, and each has a plain path for the case that the check fails: the loop as pyfuse3 ships it, and the
watcher over /proc in `watch`. `mountpoint` prepares, inspects and clears the folder itself.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

Sleep = Callable[[], Awaitable[object]]


class Interruptible(Protocol):
    """Waits that a signal to the waiting program can end."""

    async def wait(self, sleep: Sleep, tid: int = 0) -> bool:
        """Run `sleep` inside the handler of a request until it is done or its client gets a signal.

        Args:
            sleep: what to wait for; it is cancelled when the client gets a signal.
            tid: thread id of the program that opened the file, 0 where it is not known.

        Returns:
            True when `sleep` ended, False when a signal came first. The caller answers EINTR then.

        Raises:
            trio.Cancelled: the scope around the call was cancelled; never because of a signal.
        """
        ...

    async def run(self) -> None:
        """Serve the waits until cancelled; to be started before the first of them."""
        ...
