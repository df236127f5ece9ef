"""Queues of messages and pipes: how processes hand data to each other.

Neither knows of processes. Both wait in the way of files: what cannot be done now raises `trio.WouldBlock`,
and a pulse wakes whoever may look again.

Over 400 lines because both kinds, and the files that are opens of them, are here.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import trio

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, invalid
from rnixfs.node import File, Pulse
from rnixfs.types import Ready

# --- messages ---


class Message(msgspec.Struct, frozen=True):
    """One message.

    Args:
        seq: its number among all messages of the system, from 1.
        sender: pid of the process that sent it, 0 for people; `from` in JSON.
        to: pid of the process it was sent to.
        ts: when it was sent, seconds since 1970.
        data: any JSON value, encoded, so that nobody shares it with the sender.
    """

    seq: int
    sender: int = msgspec.field(name="from")
    to: int
    ts: float
    data: msgspec.Raw

    def line(self) -> bytes:
        """It as one line of JSON."""
        return msgspec.json.encode(self) + b"\n"

    def fields(self) -> dict[str, Any]:
        """It as a program gets it: `seq`, `from`, `to`, `ts` and `data`."""
        fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return fields


def encode(data: Any) -> msgspec.Raw:
    """A copy of what is to be sent.

    Args:
        data: a JSON value: what would arrive as something else is refused, not changed.

    Raises:
        SyscallError: INVALID for what is no JSON value, TOO_LARGE past `limits.MESSAGE_MAX`.
    """
    try:
        encoded = msgspec.json.encode(data)
        same = msgspec.json.decode(encoded) == data
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise invalid(f"a message must be a JSON value: {error}") from None
    if not same:
        raise invalid("a message must be a JSON value: text, numbers, lists, and objects whose keys are text")
    if len(encoded) > limits.MESSAGE_MAX:
        raise SyscallError(
            Code.TOO_LARGE, f"a message may have {limits.MESSAGE_MAX} bytes; this has {len(encoded)}"
        )
    return msgspec.Raw(encoded)


class MessageQueue:
    """The messages that wait for one process, oldest first, and those who wait for them, in their order.

    Args:
        max_messages: most messages.
        max_bytes: most bytes of their data together.
    """

    def __init__(
        self, max_messages: int = limits.QUEUE_MESSAGES_MAX, max_bytes: int = limits.QUEUE_BYTES_MAX
    ) -> None:
        self.pulse = Pulse()
        self.closed = False
        self.bytes = 0
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self._messages: dict[int, Message] = {}
        self._line: dict[object, None] = {}

    def __len__(self) -> int:
        return len(self._messages)

    def check_room(self, data: msgspec.Raw) -> None:
        """Raise SERVICE_UNAVAILABLE where a message with this data would not fit now."""
        if len(self) >= self.max_messages:
            raise self._full(f"{self.max_messages} messages")
        if self.bytes + _size(data) > self.max_bytes:
            raise self._full(f"{self.max_bytes} bytes of messages")

    @staticmethod
    def _full(what: str) -> SyscallError:
        return SyscallError(
            Code.SERVICE_UNAVAILABLE, f"the receiver's queue is full: {what} may wait; send it again later"
        )

    def put(self, message: Message) -> None:
        """Add a message, with a number above all before.

        Raises:
            SyscallError: SERVICE_UNAVAILABLE when it is full, NOT_FOUND when it is closed.
        """
        if self.closed:
            raise SyscallError(Code.NOT_FOUND, "the receiver has ended")
        self.check_room(message.data)
        self._messages[message.seq] = message
        self.bytes += _size(message.data)
        self.pulse.fire()

    def first(self) -> Message | None:
        """The oldest message, which stays."""
        return next(iter(self._messages.values()), None)

    def drop_first(self) -> None:
        """Take the oldest message away."""
        message = self._messages.pop(next(iter(self._messages)))
        self.bytes -= _size(message.data)

    def lines(self) -> bytes:
        """All that wait, one line of JSON each."""
        return b"".join(message.line() for message in self._messages.values())

    def close(self) -> tuple[int, int]:
        """End it: those who wait see it. Returns how many messages nobody took, and their bytes."""
        dropped = len(self), self.bytes
        self._messages.clear()
        self.bytes = 0
        self.closed = True
        self.pulse.fire()
        return dropped

    # --- the line of those who wait ---

    def join(self, place: object) -> None:
        """Stand at the end of the line."""
        self._line[place] = None

    def leave(self, place: object) -> None:
        """Go out of the line; whoever stood behind may now be served."""
        self._line.pop(place, None)
        if self._messages:
            self.pulse.fire()

    def served(self, place: object) -> bool:
        """Whether the next message is for this place: the first of the line, or anybody where there is none.

        One at a time, since the scheduler wakes those who wait in any order.
        """
        first = next(iter(self._line), place)
        return self.closed or (first is place and len(self) > 0)


def _size(data: msgspec.Raw) -> int:
    return memoryview(data).nbytes


class Receiver:
    """One who takes messages from a queue. Those who wait get them in the order in which they came.

    Args:
        queue: where from.
        taking: called with a message before it is gone from the queue.
    """

    def __init__(self, queue: MessageQueue, taking: Callable[[Message], None]) -> None:
        self.queue = queue
        self._taking = taking
        self._my_turn = False

    def ready(self) -> bool:
        """Whether `take` would not have to wait."""
        return self.queue.closed or (self._my_turn and len(self.queue) > 0) or self.queue.served(self)

    def take(self) -> Message | None:
        """The next message, or None when the queue is closed.

        Raises:
            trio.WouldBlock: there is none for this one yet.
        """
        if not self.ready():
            raise trio.WouldBlock
        self._my_turn = False
        message = self.queue.first()
        if message is not None:
            self._taking(message)
            self.queue.drop_first()
        return message

    async def wait(self) -> None:
        """Stand in line until there is a message for this one, or the queue is closed."""
        place = object()
        self.queue.join(place)
        try:
            while not self.queue.served(place):
                await self.queue.pulse.wait()
            self._my_turn = True
        finally:
            self.queue.leave(place)


class ReceiveFile(File):
    """An open that takes messages: each read of it gives the next, as a line of JSON."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.pulse: Pulse = receiver.queue.pulse
        self._rest = b""

    def read(self, size: int, offset: int) -> bytes:
        """The next message, or what a shorter read left of the last, whatever the offset."""
        if not self._rest and size:
            message = self.receiver.take()
            self._rest = message.line() if message is not None else b""
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def poll(self) -> Ready:
        if self._rest:
            return Ready.READ
        if self.receiver.queue.closed:
            return Ready.READ | Ready.HANGUP
        return Ready.READ if self.receiver.ready() else Ready.NONE

    async def wait(self, want: Ready) -> None:
        if not self.poll() & (want | Ready.HANGUP):
            await self.receiver.wait()


# --- pipes ---


class Pipe:
    """Bytes on their way from writers to readers, with room for a bounded number.

    It has no end before somebody wrote, and is not broken before somebody read: those who come first wait.

    Args:
        number: names it in `pipe:[n]`.
        size: bytes it holds; `piece` is how many of them one write puts in without being parted.
        on_close: called each time an open of it was closed.
        moving: called before bytes come in (`pipe_write`) or go out (`pipe_read`), with the bytes; what it
            raises keeps them from moving.
    """

    def __init__(
        self,
        number: int,
        size: int = limits.PIPE_BYTES,
        on_close: Callable[["Pipe"], None] = lambda _pipe: None,
        moving: Callable[["Pipe", str, bytes], None] = lambda _pipe, _event, _data: None,
    ) -> None:
        self.number = number
        self.size = size
        self.piece = min(limits.PIPE_BUF, size)
        self.data = bytearray()
        self.readers = 0
        self.writers = 0
        self.pulse = Pulse()
        self.on_close = on_close
        self.moving = moving
        self._was_read = False
        self._was_written = False
        self._hung_up = False

    @property
    def name(self) -> str:
        """What `fd/<n>` shows."""
        return f"pipe:[{self.number}]"

    @property
    def room(self) -> int:
        """Bytes that fit now."""
        return self.size - len(self.data)

    @property
    def ended(self) -> bool:
        """Whether nothing will come after what it holds: there were writers, and all have closed."""
        return self._hung_up or (self._was_written and not self.writers)

    @property
    def broken(self) -> bool:
        """Whether nobody will read: there were readers, and all have closed."""
        return self._hung_up or (self._was_read and not self.readers)

    @property
    def unused(self) -> bool:
        """Whether nobody has it open."""
        return not (self.readers or self.writers)

    @property
    def done(self) -> bool:
        """Whether both ends were opened and closed."""
        return self._was_read and self._was_written and self.unused

    def reader(self) -> "ReadEnd":
        """A new open of the end that is read."""
        self.readers += 1
        self._was_read = True
        return ReadEnd(self)

    def writer(self) -> "WriteEnd":
        """A new open of the end that is written."""
        self.writers += 1
        self._was_written = True
        return WriteEnd(self)

    def hang_up(self) -> None:
        """End it for everybody: readers get what it holds and then its end, writers find it broken."""
        self._hung_up = True
        self.pulse.fire()

    def restore(self, event: str, data: bytes, count: int) -> None:
        """Move bytes as an event of the log says, when the system starts; the opens of then are closed."""
        if event == "pipe_write":
            self._was_written = True
            self.data += data
        else:
            self._was_read = True
            del self.data[:count]

    def take(self, size: int) -> bytes:
        """At most `size` bytes; b"" at the end.

        Raises:
            trio.WouldBlock: it holds nothing, and there may come more.
        """
        if not self.data and not self.ended and size:
            raise trio.WouldBlock
        data = bytes(self.data[:size])
        if data:
            self.moving(self, "pipe_read", data)
            del self.data[:size]
            self.pulse.fire()
        return data

    def put(self, data: bytes) -> int:
        """Add what fits, and say how much that is; `piece` bytes or fewer go in whole or not at all.

        Raises:
            trio.WouldBlock: there is no room.
            SyscallError: BROKEN_PIPE when nobody will read.
        """
        if not data:
            return 0
        if self.broken:
            raise SyscallError(Code.BROKEN_PIPE, f"nobody reads {self.name} any more")
        least = len(data) if len(data) <= self.piece else 1
        if self.room < least:
            raise trio.WouldBlock
        count = min(len(data), self.room)
        self.moving(self, "pipe_write", data[:count])
        self.data += data[:count]
        self.pulse.fire()
        return count


class _End(File):
    """One open of a pipe.

    Args:
        pipe: the pipe.
    """

    _way = ""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self.pulse: Pulse = pipe.pulse
        self.closed = False

    def _check_open(self) -> None:
        if self.closed:
            raise invalid(f"this end of {self.pipe.name} was closed before")

    def _wrong_end(self) -> SyscallError:
        return invalid(f"this is the wrong end of {self.pipe.name}: it can only be {self._way}")

    def read(self, size: int, offset: int) -> bytes:
        raise self._wrong_end()

    def write(self, data: bytes, offset: int) -> int:
        raise self._wrong_end()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._leave()
        self.pipe.pulse.fire()
        self.pipe.on_close(self.pipe)

    def _leave(self) -> None:
        """Count this end no longer."""


class ReadEnd(_End):
    """The end that is read."""

    _way = "read"

    def read(self, size: int, offset: int) -> bytes:
        self._check_open()
        return self.pipe.take(size)

    def poll(self) -> Ready:
        if self.closed or self.pipe.ended:
            return Ready.READ | Ready.HANGUP
        return Ready.READ if self.pipe.data else Ready.NONE

    def _leave(self) -> None:
        self.pipe.readers -= 1


class WriteEnd(_End):
    """The end that is written."""

    _way = "written"

    def write(self, data: bytes, offset: int) -> int:
        self._check_open()
        return self.pipe.put(data)

    def poll(self) -> Ready:
        if self.closed or self.pipe.broken:
            return Ready.WRITE | Ready.HANGUP
        # Room for one whole piece, as on Linux: so that a write of one never waits after this.
        return Ready.WRITE if self.pipe.room >= self.pipe.piece else Ready.NONE

    def _leave(self) -> None:
        self.pipe.writers -= 1
