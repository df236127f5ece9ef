"""Queues of messages: order, bounds, and who is served when several wait."""

import math
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from rnixfs import limits
from rnixfs.errors import Code, SyscallError
from rnixfs.proc import ipc
from rnixfs.proc.ipc import Message, MessageQueue, ReceiveFile, Receiver
from rnixfs.types import Ready


def message(seq: int, *data: Any) -> Message:
    """A message; its data is its number unless given."""
    return Message(seq, 0, 1, 0.0, ipc.encode(data[0] if data else seq))


def receiver(queue: MessageQueue, taken: list[int] | None = None) -> Receiver:
    return Receiver(queue, lambda one: taken.append(one.seq) if taken is not None else None)


async def next_of(one: Receiver) -> int | None:
    """The next message's number, waiting for it; None at the end."""
    while True:
        try:
            found = one.take()
        except trio.WouldBlock:
            await one.wait()
            continue
        return found.seq if found is not None else None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip


@given(JSON)
def test_what_arrives_equals_what_was_sent(data):
    """Any JSON value goes through unchanged."""
    assert message(1, data).fields() == {"seq": 1, "from": 0, "to": 1, "ts": 0.0, "data": data}


@pytest.mark.parametrize(
    "data", [b"bytes", {1, 2}, (1, 2), {1: 2}, math.nan, math.inf, object(), "\ud800", [[b""]]]
)
def test_what_is_no_json_value_is_refused(data):
    """What would arrive as something else is not sent at all."""
    with pytest.raises(SyscallError) as caught:
        ipc.encode(data)
    assert caught.value.code is Code.INVALID


def test_what_nests_too_deeply_is_refused():
    """A value without end is an error of the sender, not of the system."""
    data: list[Any] = []
    data.append(data)
    with pytest.raises(SyscallError) as caught:
        ipc.encode(data)
    assert caught.value.code is Code.INVALID


def test_a_message_has_a_largest_size():
    """`limits.MESSAGE_MAX` bytes of JSON pass, one more does not."""
    ipc.encode("x" * (limits.MESSAGE_MAX - 2))
    with pytest.raises(SyscallError) as caught:
        ipc.encode("x" * (limits.MESSAGE_MAX - 1))
    assert caught.value.code is Code.TOO_LARGE


def test_messages_are_taken_in_their_order():
    """First in, first out, and the listing shows the same order while it takes nothing."""
    queue = MessageQueue()
    taken: list[int] = []
    for seq in (2, 5, 9):
        queue.put(message(seq))
    one = receiver(queue, taken)
    assert [line[:8] for line in queue.lines().splitlines()] == [b'{"seq":2', b'{"seq":5', b'{"seq":9']
    assert len(queue) == 3
    for _ in range(3):
        one.take()
    assert taken == [2, 5, 9]
    with pytest.raises(trio.WouldBlock):
        one.take()
    assert queue.bytes == 0


@pytest.mark.parametrize(("count", "size"), [(3, 1000), (1000, 9)])
def test_a_full_queue_refuses_and_loses_nothing(count, size):
    """Past either bound a message is refused with SERVICE_UNAVAILABLE, until one is taken."""
    queue = MessageQueue(count, size)
    for seq in range(1, 4):
        queue.put(message(seq, "x"))
    with pytest.raises(SyscallError) as caught:
        queue.put(message(4, "x"))
    assert caught.value.code is Code.SERVICE_UNAVAILABLE
    one = receiver(queue)
    first = one.take()
    assert first is not None
    assert first.seq == 1
    queue.put(message(5, "x"))
    assert [one.take(), one.take(), one.take()] == [message(2, "x"), message(3, "x"), message(5, "x")]


async def test_waiters_are_served_in_the_order_in_which_they_came():
    """However the scheduler wakes them, the first who waits gets the first message."""
    queue = MessageQueue()
    got: dict[int, int | None] = {}

    async def wait(number: int) -> None:
        got[number] = await next_of(receiver(queue))

    for _ in range(20):
        got.clear()
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(wait, number)
                await wait_all_tasks_blocked()
            for seq in (1, 2):
                queue.put(message(seq))
            await wait_all_tasks_blocked()
            assert got == {0: 1, 1: 2}
            for seq in (3, 4, 5):
                queue.put(message(seq))
        assert got == {0: 1, 1: 2, 2: 3, 3: 4, 4: 5}


async def test_nobody_goes_before_those_who_wait():
    """While somebody waits, messages are for him: who comes later stands behind."""
    queue = MessageQueue()
    got: list[int | None] = []

    async def wait() -> None:
        got.append(await next_of(receiver(queue)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        queue.put(message(1))
        queue.put(message(2))
        late = receiver(queue)
        assert not late.ready()
        with pytest.raises(trio.WouldBlock):
            late.take()
        assert await next_of(late) == 2
    assert got == [1]


async def test_one_who_gives_up_leaves_his_place_to_the_next():
    """A cancelled waiter neither keeps a message nor holds up those behind him."""
    queue = MessageQueue()
    got: list[int | None] = []
    gone = trio.CancelScope()

    async def impatient() -> None:
        with gone:
            await next_of(receiver(queue))
            raise AssertionError("it was cancelled before the message could be taken")

    async def patient() -> None:
        got.append(await next_of(receiver(queue)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(impatient)
        await wait_all_tasks_blocked()
        nursery.start_soon(patient)
        await wait_all_tasks_blocked()
        gone.cancel()
        queue.put(message(1))
    assert got == [1]


async def test_one_who_was_called_and_does_not_come_holds_up_nobody():
    """A reader whose wait ended but who never reads keeps nothing from the next."""
    queue = MessageQueue()
    absent = receiver(queue)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(absent.wait)
        await wait_all_tasks_blocked()
        queue.put(message(1))
    assert await next_of(receiver(queue)) == 1
    with pytest.raises(trio.WouldBlock):
        absent.take()


async def test_closing_ends_all_who_wait_and_counts_what_is_left():
    """Waiters get the end; messages nobody took are gone and counted; nothing can be added."""
    queue = MessageQueue()
    got: list[int | None] = []

    async def wait() -> None:
        got.append(await next_of(receiver(queue)))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        queue.close()
    assert got == [None] * 3
    full = MessageQueue()
    full.put(message(1, "ab"))
    full.put(message(2, "c"))
    assert full.close() == (2, 7)
    assert full.lines() == b""
    with pytest.raises(SyscallError) as caught:
        full.put(message(3))
    assert caught.value.code is Code.NOT_FOUND


def test_an_open_gives_a_message_a_read():
    """Each read is one message as a line; a short read leaves the rest for the next; poll tells the truth."""
    queue = MessageQueue()
    file = ReceiveFile(receiver(queue))
    assert file.poll() is Ready.NONE
    queue.put(message(1, "a"))
    queue.put(message(2, "b"))
    assert file.poll() is Ready.READ
    assert file.read(4096, 0) == b'{"seq":1,"from":0,"to":1,"ts":0.0,"data":"a"}\n'
    assert file.read(5, 0) == b'{"seq'
    queue.close()
    assert file.poll() is Ready.READ
    assert file.read(4096, 0) == b'":2,"from":0,"to":1,"ts":0.0,"data":"b"}\n'
    assert file.poll() == Ready.READ | Ready.HANGUP
    assert file.read(4096, 0) == b""


def test_what_cannot_be_recorded_is_not_taken():
    """The taking is recorded before the message is gone: where that fails it stays."""
    queue = MessageQueue()
    queue.put(message(1))

    def fails(_message: Message) -> None:
        raise OSError(28, "no space")

    with pytest.raises(OSError, match="no space"):
        Receiver(queue, fails).take()
    assert len(queue) == 1


@given(st.lists(st.sampled_from(["put", "take", "peek"]), max_size=60))
def test_a_queue_is_a_bounded_list(steps):
    """Any order of putting and taking does what it does to a list with bounds."""
    queue = MessageQueue(4)
    model: list[int] = []
    one = receiver(queue)
    for seq, step in enumerate(steps):
        if step == "put" and len(model) < 4:
            queue.put(message(seq))
            model.append(seq)
        elif step == "put":
            with pytest.raises(SyscallError):
                queue.put(message(seq))
        elif step == "take" and model:
            assert one.take() == message(model.pop(0))
        elif step == "take":
            with pytest.raises(trio.WouldBlock):
                one.take()
        assert len(queue) == len(model)
        assert queue.bytes == sum(len(str(number)) for number in model)
        assert queue.lines() == b"".join(message(number).line() for number in model)
