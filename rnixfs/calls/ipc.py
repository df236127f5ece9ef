"""System calls between processes: messages and pipes."""

import os
from typing import Any

import trio

from rnixfs.calls.base import Calls
from rnixfs.errors import Code, SyscallError
from rnixfs.traceline import clip


class IpcCalls(Calls):
    """Send, Recv, Pipe."""

    async def send(self, pid: int, data: Any) -> int:
        """Send a message to a process; returns its number, which orders all messages of the system.

        Args:
            pid: who is to get it: itself, an ancestor, a descendant, a sibling, or a process whose
                `/proc/<pid>/mailbox` is among what it may use.
            data: a JSON value, of which a copy is sent.

        Raises:
            SyscallError: NOT_FOUND, PERMISSION, INVALID for what is no JSON value, TOO_LARGE past
                `limits.MESSAGE_MAX`, SERVICE_UNAVAILABLE when the receiver's queue is full.
        """
        await trio.lowlevel.checkpoint()
        with self._call("Send", to=pid, data=clip(str(data))) as outcome:
            message = self._kernel.channels.send(self.pid, self._kernel.process(pid), data)
            outcome.append(f"message {message.seq}")
        return message.seq

    async def recv(self, *, wait: bool = True) -> dict[str, Any]:
        """Take the next message, waiting for it: `{"seq", "from", "to", "ts", "data"}`.

        Those who wait at once, other readers of `proc/<pid>/recv` among them, get messages in the order in
        which they came.

        Args:
            wait: whether to wait when there is none.

        Raises:
            SyscallError: SERVICE_UNAVAILABLE when there is none and it is not to wait.
        """
        await trio.lowlevel.checkpoint()
        with self._call("Recv") as outcome:
            message = await self._next(wait)
            outcome.append(f"message {message['seq']} from {message['from']}")
        return message

    async def _next(self, wait: bool) -> dict[str, Any]:
        receiver = self._kernel.channels.receiver(self._process)
        while True:
            try:
                message = receiver.take()
            except trio.WouldBlock:
                if not wait:
                    raise SyscallError(Code.SERVICE_UNAVAILABLE, "no message is waiting") from None
                await receiver.wait()
                continue
            if message is None:
                raise SyscallError(Code.CANCELED, f"process {self.pid} has ended")
            return message.fields()

    async def pipe(
        self, writer: int | None = None, reader: int | None = None, *, nonblock: bool = False
    ) -> tuple[int, int]:
        """Connect two processes by a pipe of `limits.PIPE_BYTES`.

        Args:
            writer: pid of the process that gets the end that is written; itself if None.
            reader: pid of the process that gets the end that is read; itself if None.
            nonblock: whether both ends are open with O_NONBLOCK.

        Returns:
            The number of the writer's open file and that of the reader's.

        Raises:
            SyscallError: NOT_FOUND, PERMISSION unless both are itself or descendants, RESOURCE_EXHAUSTED
                where one of them has too many open files.
        """
        await trio.lowlevel.checkpoint()
        writer = self.pid if writer is None else writer
        reader = self.pid if reader is None else reader
        with self._call("Pipe", writer=writer, reader=reader) as outcome:
            ends = self._kernel.process(writer), self._kernel.process(reader)
            flags = os.O_NONBLOCK if nonblock else 0
            _, write_fd, read_fd = self._kernel.channels.connect(*ends, self._process.caller, flags)
            outcome.append(f"FD({write_fd}), FD({read_fd})")
        return write_fd, read_fd
