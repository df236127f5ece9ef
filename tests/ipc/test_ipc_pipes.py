"""Pipes against a model: any order of opens, writes, reads and closes, byte by byte."""

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from trio.testing import wait_all_tasks_blocked

from rnixfs import limits
from rnixfs.errors import Code, SyscallError
from rnixfs.node import File
from rnixfs.proc.ipc import Pipe, ReadEnd, WriteEnd
from rnixfs.types import Ready

PIECE = limits.PIPE_BUF
SIZE = limits.PIPE_BYTES


def code_of(caught: "pytest.ExceptionInfo[SyscallError]") -> Code:
    return caught.value.code


def pattern(start: int, count: int) -> bytes:
    """Bytes that say where in a stream they stand."""
    return bytes((start + index) * 7 % 251 for index in range(count))


class PipeMachine(RuleBasedStateMachine):
    """A pipe beside a list of bytes that obeys the rules of pipe(7)."""

    def __init__(self) -> None:
        super().__init__()
        self.pipe = Pipe(1)
        self.held = b""
        self.sent = 0
        self.readers: list[ReadEnd] = []
        self.writers: list[WriteEnd] = []
        self.was_read = self.was_written = False

    @rule()
    def open_reader(self) -> None:
        self.readers.append(self.pipe.reader())
        self.was_read = True

    @rule()
    def open_writer(self) -> None:
        self.writers.append(self.pipe.writer())
        self.was_written = True

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def close_reader(self, data) -> None:
        self._close(self.readers, data)

    @precondition(lambda self: self.writers)
    @rule(data=st.data())
    def close_writer(self, data) -> None:
        self._close(self.writers, data)

    @staticmethod
    def _close(ends, data) -> None:
        end = ends.pop(data.draw(st.integers(0, len(ends) - 1)))
        end.close()
        end.close()

    @precondition(lambda self: self.writers)
    @rule(
        data=st.data(),
        count=st.sampled_from([0, 1, 2, 100, PIECE - 1, PIECE, PIECE + 1, 20_000, SIZE - 1, SIZE, SIZE + 1]),
    )
    def write(self, data, count) -> None:
        end = data.draw(st.sampled_from(self.writers))
        piece, room = pattern(self.sent, count), SIZE - len(self.held)
        if count == 0:
            assert end.write(piece, 0) == 0
        elif self.was_read and not self.readers:
            with pytest.raises(SyscallError) as caught:
                end.write(piece, 0)
            assert code_of(caught) is Code.BROKEN_PIPE
        elif room == 0 or (count <= PIECE and room < count):
            with pytest.raises(trio.WouldBlock):
                end.write(piece, 0)
        else:
            taken = end.write(piece, 0)
            assert taken == min(count, room)
            self.held += piece[:taken]
            self.sent += taken

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), count=st.sampled_from([0, 1, 3, 4095, 4096, 10_000, SIZE, 1 << 20]))
    def read(self, data, count) -> None:
        end = data.draw(st.sampled_from(self.readers))
        if count and not self.held and not (self.was_written and not self.writers):
            with pytest.raises(trio.WouldBlock):
                end.read(count, 0)
            return
        assert end.read(count, 0) == self.held[:count]
        self.held = self.held[count:]

    @invariant()
    def poll_tells_the_truth(self) -> None:
        ended = self.was_written and not self.writers
        broken = self.was_read and not self.readers
        for reader in self.readers:
            assert bool(reader.poll() & Ready.READ) == bool(self.held or ended)
            assert bool(reader.poll() & Ready.HANGUP) == ended
        for writer in self.writers:
            assert bool(writer.poll() & Ready.WRITE) == (broken or SIZE - len(self.held) >= PIECE)
            assert bool(writer.poll() & Ready.HANGUP) == broken

    @invariant()
    def counts_are_right(self) -> None:
        assert (self.pipe.readers, self.pipe.writers) == (len(self.readers), len(self.writers))
        assert self.pipe.unused == (not self.readers and not self.writers)
        assert bytes(self.pipe.data) == self.held


TestPipeMachine = PipeMachine.TestCase


@pytest.mark.parametrize("call", ["read", "write"])
def test_the_wrong_end_is_invalid(call):
    """Reading the end that is written, and writing the one that is read, is INVALID, with the reason."""
    pipe = Pipe(7)
    end: File = pipe.writer() if call == "read" else pipe.reader()
    with pytest.raises(SyscallError, match=r"wrong end of pipe:\[7\]") as caught:
        end.read(1, 0) if call == "read" else end.write(b"x", 0)
    assert code_of(caught) is Code.INVALID


def test_a_closed_end_is_invalid():
    """An end that was closed is of no more use, and the pipe counts it once."""
    pipe = Pipe(1)
    reader, writer = pipe.reader(), pipe.writer()
    for end in (reader, writer):
        end.close()
        end.close()
    with pytest.raises(SyscallError) as caught:
        reader.read(1, 0)
    assert code_of(caught) is Code.INVALID
    with pytest.raises(SyscallError) as caught:
        writer.write(b"x", 0)
    assert code_of(caught) is Code.INVALID
    assert (pipe.readers, pipe.writers) == (0, 0)
    assert pipe.done


def test_hanging_up_ends_both_sides():
    """Readers get what the pipe holds and then the end; writers find it broken."""
    pipe = Pipe(1)
    reader, writer = pipe.reader(), pipe.writer()
    writer.write(b"rest", 0)
    pipe.hang_up()
    assert reader.read(100, 0) == b"rest"
    assert reader.read(100, 0) == b""
    with pytest.raises(SyscallError) as caught:
        writer.write(b"x", 0)
    assert code_of(caught) is Code.BROKEN_PIPE


async def put(end: WriteEnd, data: bytes) -> None:
    """Write all, waiting for room, as a program does."""
    while data:
        try:
            data = data[end.write(data, 0) :]
        except trio.WouldBlock:
            await end.wait(Ready.WRITE)


async def get(end: ReadEnd, size: int) -> bytes:
    """The next bytes, waiting for them."""
    while True:
        try:
            return end.read(size, 0)
        except trio.WouldBlock:
            await end.wait(Ready.READ)


@given(
    st.lists(st.integers(1, 3 * PIECE), min_size=1, max_size=20),
    st.integers(1, 3 * PIECE),
    st.sampled_from([1, 100, PIECE, SIZE]),
)
def test_a_stream_of_bytes_arrives_whole(writes, read_size, room):
    """Whatever the sizes of writes, reads and of the pipe: all bytes come once, in order, then the end; and
    nobody sleeps for ever."""
    sent = pattern(0, sum(writes))

    async def write(end: WriteEnd) -> None:
        start = 0
        for count in writes:
            await put(end, sent[start : start + count])
            start += count
        end.close()

    async def main() -> bytes:
        pipe, got = Pipe(1, room), b""
        reader = pipe.reader()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, pipe.writer())
            while part := await get(reader, read_size):
                got += part
        return got

    assert trio.run(main) == sent


async def test_pieces_of_several_writers_are_never_torn(nursery):
    """Writes of up to PIPE_BUF bytes stay in one piece between other writers, also when the pipe is full."""
    pipe, count = Pipe(1), 40
    reader = pipe.reader()
    lines = [bytes([65 + number]) * (PIECE - 1 - number) + b"\n" for number in range(3)]

    async def write(end: WriteEnd, line: bytes) -> None:
        for _ in range(count):
            await put(end, line)
        end.close()

    for line in lines:
        nursery.start_soon(write, pipe.writer(), line)
    got = b""
    while part := await get(reader, 1000):
        got += part
    assert sorted(got.splitlines(keepends=True)) == sorted(lines * count)


@pytest.mark.parametrize("ending", ["close", "hang up"])
async def test_whoever_waits_is_woken_by_the_end(ending):
    """A waiting reader gets the end and a waiting writer BROKEN_PIPE, when the other side goes."""
    for side in ("read", "write"):
        pipe = Pipe(1)
        reader, writer = pipe.reader(), pipe.writer()
        outcome: list[object] = []

        async def wait(
            side: str = side, reader: ReadEnd = reader, writer: WriteEnd = writer, outcome=outcome
        ):
            if side == "read":
                outcome.append(await get(reader, 10))
                return
            with pytest.raises(SyscallError) as caught:
                await put(writer, bytes(SIZE + 1))
            outcome.append(code_of(caught))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await wait_all_tasks_blocked()
            assert outcome == []
            if ending == "hang up":
                pipe.hang_up()
            else:
                (writer if side == "read" else reader).close()
        assert outcome == [b"" if side == "read" else Code.BROKEN_PIPE]


def test_who_comes_first_waits():
    """Before the other side has ever come there is neither an end nor a broken pipe."""
    pipe = Pipe(1)
    reader = pipe.reader()
    with pytest.raises(trio.WouldBlock):
        reader.read(1, 0)
    reader.close()
    other = Pipe(2)
    writer = other.writer()
    assert writer.write(b"early", 0) == 5
    writer.close()
    late = other.reader()
    assert late.read(10, 0) == b"early"
    assert late.read(10, 0) == b""
