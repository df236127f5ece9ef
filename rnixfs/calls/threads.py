"""Calls that make and drive threads and coroutines of a process.

They share its context, its open files and its rights, since they use the same Syscalls object.
"""

import reprlib
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from rnixfs.calls.base import Calls
from rnixfs.errors import invalid
from rnixfs.traceline import clip


class ThreadCalls(Calls):
    """SpawnThread, JoinThread, SpawnCoroutine, ResumeCoroutine, Yield."""

    def spawn_thread(self, function: Callable[[], Awaitable[Any]], intent: str = "") -> int:
        """Run a function beside the program; returns the thread's number.

        Args:
            function: runs until it returns or the process ends.
            intent: what it is for, in words.

        Raises:
            SyscallError: INVALID while the process ends; RESOURCE_EXHAUSTED past `limits.THREADS_MAX`.
        """
        with self._call("SpawnThread", intent=clip(intent)) as outcome:
            self._refuse_at_the_end()
            thread = self._process.threads.spawn(function, intent)
            outcome.append(f"TID({thread.tid})")
        return thread.tid

    async def join_thread(self, tid: int) -> Any:
        """Wait for a thread to end; returns what its function returned.

        Raises:
            SyscallError: NOT_FOUND; INVALID for oneself and for coroutines; what the thread failed with.
        """
        await trio.lowlevel.checkpoint()
        with self._call("JoinThread", tid=tid) as outcome:
            value = await self._process.threads.join(tid)
            outcome.append(reprlib.repr(value))
        return value

    def spawn_coroutine(self, function: Callable[[Any], Awaitable[Any]], intent: str = "") -> int:
        """Make a coroutine, which runs only while it is resumed; returns its number.

        Args:
            function: gets the value of the first resume; it may call `yield_value`.
            intent: what it is for, in words.

        Raises:
            SyscallError: as `spawn_thread`.
        """
        with self._call("SpawnCoroutine", intent=clip(intent)) as outcome:
            self._refuse_at_the_end()
            coroutine = self._process.threads.spawn_coroutine(function, intent)
            outcome.append(f"CID({coroutine.tid})")
        return coroutine.tid

    async def resume_coroutine(self, cid: int, value: Any = None) -> Any:
        """Let a coroutine run until it yields or returns; gives that value, or what it failed with.

        Raises:
            SyscallError: NOT_FOUND; INVALID where it runs already or has ended; what it failed with.
        """
        await trio.lowlevel.checkpoint()
        with self._call("ResumeCoroutine", cid=cid, value=reprlib.repr(value)) as outcome:
            given = await self._process.threads.resume(cid, value)
            outcome.append(reprlib.repr(given))
        return given

    async def yield_value(self, value: Any = None) -> Any:
        """From inside a coroutine: give a value to whoever resumed it; returns that of the next resume.

        Raises:
            SyscallError: INVALID outside of a coroutine.
        """
        with self._call("Yield", value=reprlib.repr(value)) as outcome:
            given = await self._process.threads.hand_over(value)
            outcome.append(reprlib.repr(given))
        return given

    def _refuse_at_the_end(self) -> None:
        if self._process.ending or not self._process.live:
            raise invalid("the process is ending; it can start no more threads")
