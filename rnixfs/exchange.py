"""Exchanges: how a device's request and answer pass through opens, offsets and mailboxes.

Two ways lead to a device. An open for reading and writing is private: write, read, write, read. An open for
writing only leaves its answer in the mailbox of the caller's login session, where an open for reading only
finds it, so that `echo … > f; cat f` works and two terminals never see each other's answers.
"""

import dataclasses
import logging
import os
from collections.abc import Awaitable, Callable, Hashable

import trio

from rnixfs import limits
from rnixfs.device import Body, Description, Device, Job, json_line
from rnixfs.errors import Code, SyscallError
from rnixfs.framing import Framer
from rnixfs.node import File, Node, Pulse, Snapshot, wants_read, wants_write
from rnixfs.types import Caller, Kind, Ready, Stat

log = logging.getLogger(__name__)

Start = Callable[[Callable[[], Awaitable[None]]], None]
"""Runs a job in the background; the kernel's nursery stands behind it."""


class Answer:
    """What comes back for one request: bytes that grow until they end.

    Implements `device.Sink` for the job, and is read by any number of files.

    Args:
        device: path shown in errors.
        pid: the agent that asked, shown in errors.
    """

    def __init__(self, device: str, pid: int) -> None:
        self.device = device
        self.pid = pid
        self.data = bytearray()
        self.ended_at: float | None = None
        self.failure: SyscallError | None = None
        self.pulse = Pulse()
        self._scope = trio.CancelScope()

    @property
    def ended(self) -> bool:
        """Whether no more bytes will come."""
        return self.ended_at is not None

    def write(self, data: bytes) -> None:
        if len(self.data) + len(data) > limits.ANSWER_MAX:
            raise SyscallError(Code.TOO_LARGE, f"an answer may have {limits.ANSWER_MAX} bytes; this has more")
        self.data += data
        self.pulse.fire()

    def fail(self, error: SyscallError) -> None:
        """End with the reason. Where part of an answer was already given, its reader gets the errno too,
        after the text, since it may take the text for the whole."""
        error.at(syscall="Read", device=self.device, pid=self.pid)
        if self.data:
            self.failure = error
            if not self.data.endswith(b"\n"):
                self.data += b"\n"
        self.data += json_line({"error": error.as_dict()})
        self.end()

    def end(self) -> None:
        """Nothing will follow."""
        if self.ended_at is None:
            self.ended_at = trio.current_time()
        self.pulse.fire()

    def read(self, size: int, offset: int) -> bytes:
        """The bytes at `offset`; raises trio.WouldBlock while they have not come."""
        data = bytes(memoryview(self.data)[offset : offset + size])
        if data:
            return data
        if not self.ended:
            raise trio.WouldBlock
        if self.failure is not None:
            raise self.failure
        return b""

    def cancel(self) -> None:
        """Stop the work; readers see that it was cancelled."""
        self._scope.cancel()

    async def run(self, job: Job) -> None:
        """Run the job to its end; never raises but to pass on the cancellation of the system."""
        try:
            with self._scope:
                await job(self)
        except Exception as error:
            self.fail(as_syscall_error(error, self.device))
        finally:
            if self._scope.cancelled_caught and not self.ended:
                self.fail(
                    SyscallError(Code.CANCELED, "the request was cancelled before its answer was whole")
                )
            self.end()


def as_syscall_error(error: BaseException, device: str) -> SyscallError:
    """What a job raised, as its asker sees it; what is no SyscallError goes to the daemon's log."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, SyscallError):
        return error
    log.error("the device %s failed inside", device, exc_info=error)
    return SyscallError(Code.INTERNAL, f"{type(error).__name__} inside the device; the daemon's log has it")


class Mailbox:
    """The last exchange of one login session with one device."""

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self.writer: MailboxWriter | None = None
        self.users = 0

    def idle(self, now: float) -> bool:
        """Whether its answer has lain for longer than `limits.MAILBOX_SECONDS`, or there is none."""
        ended = self.answer.ended_at if self.answer is not None else now - limits.MAILBOX_SECONDS
        return not self.users and ended is not None and now - ended >= limits.MAILBOX_SECONDS

    def clear(self) -> None:
        """Cancel what runs and forget the answer."""
        if self.answer is not None:
            self.answer.cancel()
        self.answer = None

    def finish_text(self) -> None:
        """Start the text that a writer has not closed yet, since its reader is here."""
        if self.writer is not None:
            self.writer.finish()


@dataclasses.dataclass(frozen=True)
class DeviceNode(Node):
    """The name of a device.

    Args:
        key: says which device it is.
        path: its path in the main tree, for messages.
        device: what it does.
        start: runs its jobs.
        mode: permission bits.
    """

    key: Hashable
    path: str = dataclasses.field(compare=False)
    device: Device = dataclasses.field(compare=False)
    start: Start = dataclasses.field(compare=False)
    mode: int = dataclasses.field(compare=False, default=0o666)
    boxes: dict[tuple[int, int, int], Mailbox] = dataclasses.field(compare=False, default_factory=dict)

    def stat(self) -> Stat:
        return Stat(Kind.FILE, mode=self.mode, ttl=1.0)

    def describe(self, caller: Caller) -> Description:
        """What the device does, and its tools."""
        return self.device.describe(caller)

    def open(self, caller: Caller, flags: int) -> File:
        if wants_read(flags) and wants_write(flags):
            return PrivateExchange(self, caller)
        box = self._box(caller)
        if wants_write(flags):
            if flags & os.O_TRUNC:
                box.clear()
            return MailboxWriter(self, caller, box)
        return self._reader(box, caller, flags)

    def _reader(self, box: Mailbox, caller: Caller, flags: int) -> File:
        if not flags & os.O_NONBLOCK:
            box.finish_text()
        if box.answer is None:
            return self.description(caller)
        return MailboxReader(box.answer)

    def description(self, caller: Caller) -> "Snapshot":
        """What reading shows when nothing was asked."""
        return Snapshot(json_line(self.device.describe(caller)))

    def _box(self, caller: Caller) -> Mailbox:
        now = trio.current_time()
        for key in [key for key, box in self.boxes.items() if box.idle(now)]:
            del self.boxes[key]
        key = (caller.uid, caller.session, caller.agent)
        if key not in self.boxes and len(self.boxes) >= limits.MAILBOXES_MAX:
            self._drop_oldest()
        return self.boxes.setdefault(key, Mailbox())

    def _drop_oldest(self) -> None:
        for key, box in self.boxes.items():
            if not box.users and (box.answer is None or box.answer.ended):
                del self.boxes[key]
                return
        raise SyscallError(
            Code.SERVICE_UNAVAILABLE, f"{limits.MAILBOXES_MAX} sessions wait for {self.path}; try again later"
        )

    def begin(self, caller: Caller, body: Body) -> Answer:
        """Have the device take a request, and start it.

        Raises:
            SyscallError: the device refuses it.
        """
        answer = Answer(self.path, caller.agent)
        job = self.device.accept(caller, body)
        self.start(lambda: answer.run(job))
        return answer

    def refused(self, caller: Caller, error: SyscallError) -> Answer:
        """The answer to a request that was refused: the reason, for whoever reads next."""
        error.at(syscall="Write", device=self.path, pid=caller.agent)
        answer = Answer(self.path, caller.agent)
        answer.fail(error)
        return answer


class MailboxWriter(File):
    """An open for writing only."""

    def __init__(self, node: DeviceNode, caller: Caller, box: Mailbox) -> None:
        self.node = node
        self.caller = caller
        self.box = box
        self._framer = Framer()
        box.users += 1

    def write(self, data: bytes, offset: int) -> int:
        if data.strip() and not self._framer:
            self.box.clear()
        try:
            body = self._framer.feed(data)
            if body is not None:
                self._begin(body)
        except SyscallError as error:
            self.box.answer = self.node.refused(self.caller, error)
            raise
        self.box.writer = self if self._framer else None
        return len(data)

    def _begin(self, body: Body) -> None:
        self.box.writer = None
        self.box.clear()
        self.box.answer = self.node.begin(self.caller, body)

    def finish(self) -> None:
        """Start the text written so far. A refusal is left for the reader: nobody else is there to see it."""
        if self.box.writer is self:
            self.box.writer = None
        try:
            text = self._framer.finish()
            if text is not None:
                self._begin(text)
        except SyscallError as error:
            self.box.answer = self.node.refused(self.caller, error)

    def poll(self) -> Ready:
        return Ready.WRITE

    def close(self) -> None:
        self.finish()
        self.box.users -= 1


class MailboxReader(File):
    """An open for reading only, of an answer that was there or on its way when it was opened."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.pulse: Pulse = answer.pulse
        self._seen = 0

    def read(self, size: int, offset: int) -> bytes:
        data = self.answer.read(size, offset)
        self._seen = max(self._seen, offset + len(data))
        return data

    def poll(self) -> Ready:
        if self.answer.ended or len(self.answer.data) > self._seen:
            return Ready.READ
        return Ready.NONE


class PrivateExchange(File):
    """An open for reading and writing: its requests and answers are nobody else's.

    The position of a file belongs to the host kernel, which moves it with writes and reads alike. So each
    write anchors the answer's first byte at the position where the write ended; a read below it means that
    the program went back to the start.
    """

    def __init__(self, node: DeviceNode, caller: Caller) -> None:
        self.node = node
        self.caller = caller
        self.pulse: Pulse = Pulse()
        self._framer = Framer()
        self._answer: Answer | None = None
        self._described: Snapshot | None = None
        self._base = 0
        self._seen = 0

    def write(self, data: bytes, offset: int) -> int:
        if self._answer is not None and not self._answer.ended and data.strip():
            raise SyscallError(
                Code.SERVICE_UNAVAILABLE, "an answer is on its way; read it, or close the file to cancel it"
            )
        self._base = offset  # where the position stays if the write is refused
        self._take(lambda: self._framer.feed(data))
        self._base = offset + len(data)
        return len(data)

    def _take(self, frame: Callable[[], Body]) -> None:
        try:
            body = frame()
            if body is not None:
                self._set(self.node.begin(self.caller, body))
        except SyscallError as error:
            self._set(self.node.refused(self.caller, error))
            raise

    def _set(self, answer: Answer) -> None:
        self._answer = answer
        self._seen = 0
        # The exchange's own pulse outlives its answers, so that a poller needs to look at one only.
        answer.pulse = self.pulse

    def _finish_text(self) -> None:
        if self._framer:
            self._take(self._framer.finish)

    def read(self, size: int, offset: int) -> bytes:
        self._finish_text()
        if self._answer is None:
            return self._describe().read(size, offset)
        if offset < self._base:
            self._base = 0
        start = offset - self._base
        data = self._answer.read(size, start)
        self._seen = max(self._seen, start + len(data))
        return data

    def _describe(self) -> Snapshot:
        if self._described is None:
            self._described = self.node.description(self.caller)
        return self._described

    def poll(self) -> Ready:
        if self._framer:
            return Ready.WRITE | (self._ready_after_text() if self._framer.is_text else Ready.NONE)
        if self._answer is None or self._answer.ended:
            return Ready.READ | Ready.WRITE
        return Ready.READ if len(self._answer.data) > self._seen else Ready.NONE

    def _ready_after_text(self) -> Ready:
        # Whoever polls for the answer of a text has ended the text; a refusal makes the file readable.
        try:
            self._finish_text()
        except SyscallError:
            return Ready.READ
        return Ready.NONE

    def close(self) -> None:
        if self._answer is not None and not self._answer.ended:
            self._answer.cancel()
