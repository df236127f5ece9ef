"""Real interrupts: a signal to a client ends its wait through libfuse's own callback.

The kernel tells libfuse when a waiting client gets a signal, and libfuse tells whoever registered a
callback for the request (`fuse_req_interrupt_func`). pyfuse3 neither registers one nor shows the request.
So a handler that waits leaves a note, and once it is suspended the registrar (`run`) walks down the
coroutines of its task to the object in which pyfuse3 keeps the request, and registers the callback.

Where in that object the request is, nobody promises. `calibrate` finds it from inside a handler whose
client is known: the request is the one word whose context has this uid, gid, pid and umask. The test reads
foreign memory through /proc/self/mem, where a wrong guess is an error and not a crash. Until it succeeds,
and for good where it does not, all waits go to the watcher.

The callback runs in trio's thread, below libfuse's lock on the request: it cancels a scope and must never
reply.
"""

import ctypes
import gc
import logging
import os
import struct
import types
from collections import deque
from typing import Protocol

import pyfuse3
import trio

from rnixfs.edge import Sleep
from rnixfs.edge.watch import Wait, Watcher

ATTEMPTS_MAX = 3  # requests at which calibration is tried before it is given up
_BATCH = 256  # registrations between two turns for other tasks
_WORD = ctypes.sizeof(ctypes.c_void_p)
_HEAD = 2  # words of every Python object: reference count and type
_CONTEXT = struct.Struct("IIiI")  # struct fuse_ctx of libfuse 3: uid, gid, pid, umask

_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_log = logging.getLogger(__name__)
_callbacks: list[object] = []  # for ever: libfuse may hold a callback longer than its owner lives


class Client(Protocol):
    """What a handler is told of its client: `pyfuse3.RequestContext`."""

    @property
    def uid(self) -> int: ...
    @property
    def gid(self) -> int: ...
    @property
    def pid(self) -> int: ...
    @property
    def umask(self) -> int: ...


class Interrupts:
    """Waits that libfuse interrupts, with a watcher behind them.

    Args:
        watcher: takes the waits that libfuse cannot interrupt; `run` runs it too.
    """

    def __init__(self, watcher: Watcher) -> None:
        self.calibrated = False  # whether libfuse interrupts; otherwise the watcher does
        self.settled = False  # whether calibration is over, one way or the other
        self.missed = 0  # waits whose request was not found although calibrated
        self._watcher = watcher
        self._index = 0  # of the word that holds the request
        self._attempts = 0
        self._fresh: deque[Wait] = deque()
        self._bell = trio.lowlevel.ParkingLot()
        self._waits: dict[int, Wait] = {}  # by address of the request
        self._callback = _Callback(self._on_interrupt)
        _callbacks.append(self._callback)
        self._library = _library()
        if self._library is None:
            self._give_up("libfuse does not offer the functions")

    def __len__(self) -> int:
        """Waits that libfuse can interrupt now."""
        return len(self._waits)

    async def wait(self, sleep: Sleep, tid: int = 0) -> bool:
        """Run `sleep` until it is done (True) or the client of this request gets a signal (False).

        To be awaited by the task that serves the request itself, not by a child task. From its end to the
        end of the handler nothing has to be undone; it may be awaited again in the same request, and a
        signal that came in between ends the second wait at once.

        Args:
            sleep: what to wait for.
            tid: thread id of the program that opened the file, for the watcher.
        """
        if not self.calibrated:
            return await self._watcher.wait(sleep, tid)
        wait = Wait(tid)
        self._fresh.append(wait)
        self._bell.unpark()
        try:
            return await wait.run(sleep)
        finally:
            self._waits.pop(wait.request, None)
            self._watcher.discard(wait)

    async def run(self) -> None:
        """Register the callbacks and run the watcher, until cancelled; start it before `pyfuse3.main`."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watcher.run)
            while True:
                for _ in range(min(len(self._fresh), _BATCH)):
                    self._register(self._fresh.popleft())
                if self._fresh:
                    await trio.lowlevel.checkpoint()
                else:
                    await self._bell.park()

    async def calibrate(self, client: Client) -> bool:
        """Find out where requests are kept; to be awaited in a handler that is told its client.

        Args:
            client: the context that pyfuse3 gave to this very handler.

        Returns:
            Whether real interrupts work from here on.
        """
        if not self.settled:
            task, looked = trio.lowlevel.current_task(), trio.Event()

            def look() -> None:
                if not self.settled:
                    self._calibrate(task, client)
                looked.set()

            # The coroutines can be walked only while they are suspended.
            trio.lowlevel.current_trio_token().run_sync_soon(look)
            await looked.wait()
        return self.calibrated

    def _calibrate(self, task: trio.lowlevel.Task, client: Client) -> None:
        self._attempts += 1
        container = _container(task)
        matches = [] if container is None or client.pid <= 0 else self._matches(container, client)
        if len(matches) == 1:
            self._index = matches[0]
            self.calibrated = self.settled = True
        elif self._attempts >= ATTEMPTS_MAX:
            self._give_up("the request was not found in pyfuse3's objects")

    def _give_up(self, reason: str) -> None:
        self.settled = True
        _log.warning("no interrupts from libfuse (%s): watching /proc in their place", reason)

    def _matches(self, container: object, client: Client) -> list[int]:
        """Indices of the words that lead to the context of this client."""
        expected = _CONTEXT.pack(client.uid, client.gid, client.pid, client.umask)
        indices = range(_HEAD, type(container).__basicsize__ // _WORD)
        return [index for index in indices if self._context(_word(container, index)) == expected]

    def _context(self, request: int) -> bytes:
        """The context that a request would have at this address; b"" where there is no memory."""
        if not request or request % _WORD or self._library is None:
            return b""
        address = self._library.fuse_req_ctx(request) or 0  # computes an address, reads nothing
        try:
            memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            return os.pread(memory, _CONTEXT.size, address)
        except (OSError, OverflowError):
            return b""
        finally:
            os.close(memory)

    def _register(self, wait: Wait) -> None:
        if wait.over:  # it ended before we came, and its task may serve another request by now
            return
        container = _container(wait.task)
        if container is None or self._library is None:
            self.missed += 1
            self._watcher.add(wait)
            return
        wait.request = _word(container, self._index)
        self._waits[wait.request] = wait
        # Calls back at once if the signal came before.
        self._library.fuse_req_interrupt_func(wait.request, self._callback, None)

    def _on_interrupt(self, request: int, _data: int | None) -> None:
        wait = self._waits.get(request)
        if wait is not None:
            wait.interrupt()


def _library() -> ctypes.PyDLL | None:
    """The libfuse that pyfuse3 loaded, found through the symbols that pyfuse3 depends on.

    Calls keep Python's lock, so no other thread runs while libfuse calls back.
    """
    try:
        library = ctypes.PyDLL(pyfuse3.__file__)
        library.fuse_req_ctx.argtypes = [ctypes.c_void_p]
        library.fuse_req_ctx.restype = ctypes.c_void_p
        library.fuse_req_interrupt_func.argtypes = [ctypes.c_void_p, _Callback, ctypes.c_void_p]
        library.fuse_req_interrupt_func.restype = None
    except (OSError, AttributeError):
        return None
    return library


def _container(task: trio.lowlevel.Task) -> object | None:
    """The object in which pyfuse3 keeps the request that a suspended task serves."""
    step: object = task.coro
    while step is not None:
        below: object = getattr(step, "cr_await", None)
        # Only the handlers of pyfuse3 itself, which are no coroutines of Python's, hold one.
        found = None if isinstance(step, types.CoroutineType) else _held(step, below)
        if found is not None:
            return found
        step = below if below is None or hasattr(below, "cr_await") else _unwrapped(below)
    return None


def _held(step: object, below: object) -> object | None:
    """The request's object among the variables of one coroutine; those of the next one below do not count."""
    wanted = vars(pyfuse3).get("_Container")
    closures = (thing for thing in gc.get_referents(step) if thing is not below)
    things = (thing for closure in closures for thing in gc.get_referents(closure))
    return next((thing for thing in things if type(thing) is wanted), None)


def _unwrapped(wrapper: object) -> object | None:
    """The coroutine behind the iterator that Cython puts around one that is awaited from Python."""
    return next((thing for thing in gc.get_referents(wrapper) if hasattr(thing, "cr_await")), None)


def _word(thing: object, index: int) -> int:
    return ctypes.c_size_t.from_address(id(thing) + index * _WORD).value
