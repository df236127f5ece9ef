"""What the kernel knows of messages and pipes: queues, who may send to whom, and the numbers."""

import contextlib
import os
from typing import TYPE_CHECKING, Any

import msgspec

from rnixfs.errors import Code, SyscallError, denied
from rnixfs.proc import ipc
from rnixfs.proc.ipc import Message, MessageQueue, Pipe, Receiver
from rnixfs.proc.process import OpenFile, Process
from rnixfs.state.store import Keep, Record
from rnixfs.types import Caller

if TYPE_CHECKING:
    from rnixfs.kernel import Kernel


def kin(one: Process, other: Process) -> bool:
    """Whether one is the other, an ancestor, a descendant, or a sibling of it.

    Children of process 0 are no siblings: nobody but the system has brought them together.
    """
    if one.descends_from(other.pid) or other.descends_from(one.pid):
        return True
    return one.parent is not None and one.parent is other.parent


class Channels:
    """The queues of all processes, and the number of the last message and pipe.

    Args:
        kernel: has the processes, and keeps the events.
    """

    def __init__(self, kernel: "Kernel") -> None:
        self._kernel = kernel
        self._queues: dict[int, MessageQueue] = {}
        self._sent = 0
        self._pipes = 0

    # --- messages ---

    def queue(self, process: Process) -> MessageQueue:
        """The queue of a process, made when it is first asked for; a closed one where it has ended."""
        if process.live:
            return self._queues.setdefault(process.pid, MessageQueue())
        ended = MessageQueue()
        ended.close()
        return ended

    def may_send(self, sender: int, target: Process) -> bool:
        """Whether a process may send to another: it may use the other's mailbox, as kin or by a grant.

        Args:
            sender: its pid, 0 for people, who may.
            target: the other.
        """
        return not sender or self._kernel.process(sender).view.sees(f"/proc/{target.pid}/mailbox")

    def send(self, sender: int, target: Process, data: Any) -> Message:
        """Put a copy of `data` into the queue of a process.

        Args:
            sender: pid of who sends, 0 for people.
            target: who is to get it.
            data: a JSON value.

        Raises:
            SyscallError: NOT_FOUND where one of them has ended, PERMISSION, INVALID, TOO_LARGE, and
                SERVICE_UNAVAILABLE when the queue is full.
        """
        if not target.live:
            raise _ended(target)
        if sender and not self._kernel.process(sender).live:
            raise _ended(self._kernel.process(sender))
        if not self.may_send(sender, target):
            raise denied(
                f"process {sender} may not send to process {target.pid}: it is neither an ancestor nor a"
                f" descendant nor a sibling, and /proc/{target.pid}/mailbox was not granted"
            )
        copy, queue = ipc.encode(data), self.queue(target)
        queue.check_room(copy)
        return self._put(queue, sender, target, copy)

    def _put(self, queue: MessageQueue, sender: int, target: Process, copy: msgspec.Raw) -> Message:
        seq = self._sent + 1
        data = msgspec.json.decode(copy)
        about = {"message": seq, "from": sender, "bytes": memoryview(copy).nbytes, "data": data}
        record = self._kernel.emit("send", target.pid, about)
        self._sent = seq
        message = Message(seq, sender, target.pid, record.ts, copy)
        queue.put(message)
        return message

    def restore(self, process: Process, records: list[Record]) -> None:
        """Let the messages wait again that nobody had taken when the system stopped."""
        taken = {record.data["message"] for record in records if record.event == "recv"}
        for record in records:
            if record.event == "send" and record.data["message"] not in taken:
                about = record.data
                copy = msgspec.Raw(msgspec.json.encode(about["data"]))
                self.queue(process).put(
                    Message(about["message"], about["from"], process.pid, record.ts, copy)
                )

    def number_from(self, last: int) -> None:
        """Number messages from above `last` on: no number is given twice."""
        self._sent = max(self._sent, last)

    def receiver(self, process: Process) -> Receiver:
        """One who takes messages of a process."""

        def taking(message: Message) -> None:
            self._kernel.emit("recv", process.pid, {"message": message.seq})

        return Receiver(self.queue(process), taking)

    def release(self, process: Process) -> None:
        """The process has ended: those who wait for its messages see it, and what nobody took is counted."""
        queue = self._queues.pop(process.pid, None)
        if queue is None:
            return
        count, size = queue.close()
        if count:
            self._kernel.emit("unread", process.pid, {"messages": count, "bytes": size}, Keep.VITAL)

    # --- pipes ---

    def next_pipe(self) -> int:
        """The number of a new pipe; none is used again."""
        self._pipes += 1
        return self._pipes

    def pipe_seen(self, number: int) -> None:
        """A pipe of an earlier run of the system has this number."""
        self._pipes = max(self._pipes, number)

    def connect(
        self, writer: Process, reader: Process, caller: Caller, flags: int = 0
    ) -> tuple[Pipe, int, int]:
        """Put the ends of a new pipe among the open files of two processes, which may be the same.

        Args:
            writer: gets the end that is written.
            reader: gets the end that is read.
            caller: who asks; an agent needs power over both.
            flags: O_NONBLOCK, or nothing.

        Returns:
            The pipe, the number of the writer's end and that of the reader's.

        Raises:
            SyscallError: PERMISSION, NOT_FOUND for one that has ended, RESOURCE_EXHAUSTED where one has too
                many open files.
        """
        for one in (writer, reader):
            self._check_end(one, caller)
        pipe = Pipe(self.next_pipe())
        with contextlib.ExitStack() as undo:
            write_fd = _give(writer, OpenFile(pipe.name, os.O_WRONLY | flags, pipe.writer()), undo)
            read_fd = _give(reader, OpenFile(pipe.name, os.O_RDONLY | flags, pipe.reader()), undo)
            about = {"pipe": pipe.number, "to": reader.pid, "write_fd": write_fd, "read_fd": read_fd}
            self._kernel.emit("pipe", writer.pid, about)
            undo.pop_all()
        return pipe, write_fd, read_fd

    @staticmethod
    def _check_end(process: Process, caller: Caller) -> None:
        if caller.agent and not process.descends_from(caller.agent):
            raise denied(f"process {caller.agent} has no power over process {process.pid}")
        if not process.live:
            raise _ended(process)


def _give(process: Process, opened: OpenFile, undo: contextlib.ExitStack) -> int:
    undo.callback(opened.file.close)
    fd = process.add_file(opened)
    undo.callback(process.files.pop, fd, None)
    process.touch()
    return fd


def _ended(process: Process) -> SyscallError:
    return SyscallError(Code.NOT_FOUND, f"process {process.pid} has ended")
