"""Exchanges: requests and answers of a device, through opens, offsets and mailboxes."""

import functools
import os
from collections.abc import Callable

import msgspec
import pytest
import trio
import trio.testing

from rnixfs import limits
from rnixfs.device import Body, Sink
from rnixfs.errors import Code, SyscallError
from rnixfs.exchange import DeviceNode
from rnixfs.node import File
from rnixfs.types import Caller, Ready
from tests.kernel.kernellab import HOUR, Fake, Held

ALL = 1 << 20
APPEND = os.O_WRONLY | os.O_APPEND
FRESH = os.O_WRONLY | os.O_TRUNC  # as the shell's `>` opens


def person(session: int = 1, uid: int = 1000, pid: int = 0) -> Caller:
    """A program of the host, in a login session."""
    return Caller(uid, uid, agent=pid, host_pid=4242, session=session)


ME = person(1)
OTHER = person(2)


class Desk:
    """A device on a nursery, and what the shell does with it."""

    def __init__(self, nursery: trio.Nursery, device: Fake) -> None:
        self.device = device
        self.node = DeviceNode("desk", device.name, device, nursery.start_soon)

    def echo(self, data: bytes, caller: Caller = ME, flags: int = FRESH) -> None:
        """`echo data > device`"""
        file = self.node.open(caller, flags)
        try:
            file.write(data, 0)
        finally:
            file.close()

    async def cat(self, caller: Caller = ME) -> bytes:
        """`cat device`"""
        file = self.node.open(caller, os.O_RDONLY)
        try:
            return await slurp(file)
        finally:
            file.close()

    def fd(self, caller: Caller = ME) -> "Fd":
        """`exec 3<> device`"""
        return Fd(self.node.open(caller, os.O_RDWR))


class Fd:
    """A descriptor with the position that the host kernel keeps for it."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.position = 0

    def write(self, data: bytes) -> None:
        self.position += self.file.write(data, self.position)

    async def read(self, size: int = ALL) -> bytes:
        data = await read_at(self.file, size, self.position)
        self.position += len(data)
        return data

    async def rest(self) -> bytes:
        data = b""
        while piece := await self.read():
            data += piece
        return data


async def read_at(file: File, size: int, offset: int) -> bytes:
    """A read that waits."""
    while True:
        try:
            return file.read(size, offset)
        except trio.WouldBlock:
            await file.wait(Ready.READ)


async def slurp(file: File) -> bytes:
    """All of a file from its start."""
    data = b""
    while piece := await read_at(file, ALL, len(data)):
        data += piece
    return data


def code_of(call: Callable[[], object]) -> Code:
    """The code that a call fails with."""
    with pytest.raises(SyscallError) as caught:
        call()
    return caught.value.code


def error_in(answer: bytes) -> dict[str, str]:
    """The failure that an answer tells of."""
    return msgspec.json.decode(answer.splitlines()[-1])["error"]


@pytest.fixture
def desk(nursery: trio.Nursery) -> Desk:
    return Desk(nursery, Fake())


@pytest.fixture
def held(nursery: trio.Nursery) -> Desk:
    return Desk(nursery, Held())


settle = trio.testing.wait_all_tasks_blocked


# --- description ---


async def test_reading_without_a_request_describes_and_runs_nothing(desk, autojump_clock):
    """`cat` of an unused device, by whatever kind of open, costs nothing and says what it is."""
    assert msgspec.json.decode(await desk.cat())["device"] == "/dev/fake"
    assert msgspec.json.decode(await desk.fd().rest())["does"] == "Echoes."
    quick = desk.node.open(ME, os.O_RDONLY | os.O_NONBLOCK)
    assert msgspec.json.decode(quick.read(ALL, 0))["device"] == "/dev/fake"
    assert desk.device.asked == []


async def test_a_description_is_one_line(desk, autojump_clock):
    """One JSON object and a newline, then the end of the file."""
    assert (await desk.cat()).count(b"\n") == 1


# --- two opens: the mailbox ---


async def test_json_starts_while_it_is_written(desk, autojump_clock):
    """The request is complete with its last brace, whoever still holds the file."""
    file = desk.node.open(ME, FRESH)
    file.write(b'{"a"', 0)
    assert desk.device.asked == []
    file.write(b":1}\n", 4)
    assert desk.device.asked == [{"a": 1}]
    file.close()
    assert desk.device.asked == [{"a": 1}]
    assert await desk.cat() == b'{"got":{"a":1}}\n'


async def test_text_starts_when_its_writer_closes(desk, autojump_clock):
    """In however many writes it came."""
    file = desk.node.open(ME, FRESH)
    file.write(b"two ", 0)
    file.write(b"words\n", 4)
    assert desk.device.asked == []
    file.close()
    assert desk.device.asked == ["two words"]
    assert await desk.cat() == b'{"got":"two words"}\n'


async def test_text_starts_when_its_reader_comes(desk, autojump_clock):
    """`exec 3> f; echo x >&3; cat f` does not wait for ever, and the close starts nothing twice."""
    file = desk.node.open(ME, FRESH)
    file.write(b"hello\n", 0)
    assert await desk.cat() == b'{"got":"hello"}\n'
    file.close()
    assert desk.device.asked == ["hello"]
    assert await desk.cat() == b'{"got":"hello"}\n'


async def test_a_reader_that_must_not_wait_starts_nothing(desk, autojump_clock):
    """Recursive tools open with O_NONBLOCK: they never end somebody's text."""
    file = desk.node.open(ME, FRESH)
    file.write(b"hello\n", 0)
    desk.node.open(ME, os.O_RDONLY | os.O_NONBLOCK).close()
    assert desk.device.asked == []
    file.close()
    assert desk.device.asked == ["hello"]


async def test_an_answer_stays_readable(desk, autojump_clock):
    """Any number of readers, from any offset."""
    desk.echo(b"hello\n")
    for _ in range(3):
        assert await desk.cat() == b'{"got":"hello"}\n'
    file = desk.node.open(ME, os.O_RDONLY)
    assert await read_at(file, 5, 2) == b'got":'
    assert await read_at(file, ALL, 500) == b""


async def test_the_next_request_takes_the_place_of_the_answer(desk, autojump_clock):
    """The mailbox holds one answer: that of the last request."""
    desk.echo(b"one\n")
    await desk.cat()
    desk.echo(b"two\n")
    assert await desk.cat() == b'{"got":"two"}\n'


async def test_appending_is_as_writing(desk, autojump_clock):
    """`>>` behaves as `>`: the next request replaces the answer."""
    desk.echo(b"one\n", flags=APPEND)
    assert await desk.cat() == b'{"got":"one"}\n'
    desk.echo(b"two\n", flags=APPEND)
    assert await desk.cat() == b'{"got":"two"}\n'


async def test_truncating_clears(desk, autojump_clock):
    """`: > f` forgets the answer."""
    desk.echo(b"one\n")
    assert b"one" in await desk.cat()
    desk.echo(b"")
    assert b"device" in await desk.cat()


async def test_white_space_is_no_request(desk, autojump_clock):
    """An empty line appended to a device neither asks nor clears."""
    desk.echo(b"one\n")
    await desk.cat()
    desk.echo(b"\n", flags=APPEND)
    assert await desk.cat() == b'{"got":"one"}\n'
    assert desk.device.asked == ["one"]


async def test_truncating_cancels_what_runs(held, autojump_clock):
    """The job ends, and who reads its answer is told: CANCELED."""
    held.echo(b"slow\n")
    await settle()
    reader = held.node.open(ME, os.O_RDONLY)
    held.echo(b"")
    answer = await slurp(reader)
    assert error_in(answer)["code"] == "CANCELED"
    assert held.device.cancelled == ["slow"]
    assert b"device" in await held.cat()


async def test_a_new_request_cancels_the_old_one(held, autojump_clock):
    """Nobody could read its answer any more."""
    held.echo(b"old\n")
    await settle()
    held.echo(b"new\n")
    await settle()
    assert held.device.cancelled == ["old"]
    held.device.gates[1].set()
    assert await held.cat() == b'{"got":"new"}\n'


async def test_two_requests_in_one_step(held, autojump_clock):
    """The first one's job ends at its first wait."""
    held.echo(b"old\n")
    held.echo(b"new\n")
    await settle()
    assert held.device.cancelled == ["old"]
    held.device.gates[-1].set()
    assert await held.cat() == b'{"got":"new"}\n'


async def test_closing_a_reader_or_a_writer_cancels_nothing(held, autojump_clock):
    """The answer belongs to the mailbox, not to who asked or looks."""
    held.echo(b"slow\n")
    await settle()
    held.node.open(ME, os.O_RDONLY).close()
    await settle()
    held.device.gates[0].set()
    assert await held.cat() == b'{"got":"slow"}\n'


@pytest.mark.parametrize("other", [person(2), person(1, uid=2000), person(1, pid=7)])
async def test_mailboxes_belong_to_user_session_and_agent(desk, other, autojump_clock):
    """Two terminals, two users, two agents: each sees its own answers only."""
    desk.echo(b"mine\n", ME)
    desk.echo(b"theirs\n", other)
    assert await desk.cat(ME) == b'{"got":"mine"}\n'
    assert await desk.cat(other) == b'{"got":"theirs"}\n'
    desk.echo(b"", other)
    assert await desk.cat(ME) == b'{"got":"mine"}\n'
    assert b"device" in await desk.cat(other)


async def test_any_process_of_a_session_shares_its_mailbox(desk, autojump_clock):
    """`echo` and `cat` are two processes."""
    desk.echo(b"mine\n", Caller(1000, 1000, host_pid=1, session=9))
    assert await desk.cat(Caller(1000, 100, host_pid=2, session=9)) == b'{"got":"mine"}\n'


async def test_a_writer_keeps_its_mailbox_while_others_come_and_go(desk, autojump_clock):
    """Between the open and the write of one terminal another one may open the same device."""
    writer = desk.node.open(ME, FRESH)
    await desk.cat(OTHER)
    writer.write(b'{"a":1}', 0)
    writer.close()
    assert await desk.cat(ME) == b'{"got":{"a":1}}\n'


async def test_a_writer_keeps_its_mailbox_while_its_own_session_reads(desk, autojump_clock):
    """`exec 3> f; cat f; echo '{…}' >&3; cat f`: the second `cat` shows the answer."""
    writer = desk.node.open(ME, FRESH)
    assert b"device" in await desk.cat()
    writer.write(b'{"a":1}', 0)
    assert await desk.cat() == b'{"got":{"a":1}}\n'


async def test_many_sessions_at_once(held, autojump_clock):
    """Answers that come in another order than their requests reach who asked."""
    callers = [person(number) for number in range(100)]
    for number, caller in enumerate(callers):
        held.echo(b'{"n":%d}' % number, caller)
    found: dict[int, bytes] = {}

    async def read(number: int) -> None:
        found[number] = await held.cat(callers[number])

    async with trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(read, number)
        await settle()
        for gate in reversed(held.device.gates):
            gate.set()
    assert found == {number: b'{"got":{"n":%d}}\n' % number for number in range(100)}


# --- refusals and failures ---


async def test_a_refused_request_fails_in_write_and_is_explained_in_read(desk, autojump_clock):
    """The writer gets the errno, and the reason is one `cat` away."""
    writer = desk.node.open(ME, FRESH)
    assert code_of(lambda: writer.write(b'{"bad":1}', 0)) is Code.INVALID
    writer.close()
    assert error_in(await desk.cat()) == {
        "code": "INVALID",
        "message": "the word bad is refused; say something else",
        "syscall": "Write",
        "device": "/dev/fake",
    }


async def test_refused_text_is_explained_in_read(desk, autojump_clock):
    """Text is refused after its writer left, so nothing may be raised at close."""
    desk.echo(b"bad\n")
    assert error_in(await desk.cat())["code"] == "INVALID"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b'{"a":1}}', Code.INVALID),
        (b"{nonsense}", Code.INVALID),
        (b"x" * (limits.REQUEST_MAX + 1), Code.TOO_LARGE),
        (b'{"a":"' + b"x" * limits.REQUEST_MAX, Code.TOO_LARGE),
    ],
)
async def test_malformed_requests_never_reach_the_device(desk, data, code, autojump_clock):
    """EINVAL and EFBIG come from write; the same file then takes a better request."""
    for opened in (desk.node.open(ME, FRESH), desk.node.open(ME, os.O_RDWR)):
        assert code_of(functools.partial(opened.write, data, 0)) is code
        assert desk.device.asked == []
        opened.write(b'{"a":1}', 0)
        assert desk.device.asked == [{"a": 1}]
        desk.device.asked.clear()
        opened.close()


async def test_a_request_of_the_greatest_size_is_taken(desk, autojump_clock):
    """Exactly `limits.REQUEST_MAX` bytes."""
    frame = b'{"a":"%s"}'
    data = frame % (b"x" * (limits.REQUEST_MAX - len(frame) + 2))
    assert len(data) == limits.REQUEST_MAX
    desk.echo(data)
    assert len(desk.device.asked) == 1


async def test_an_unfinished_object_is_explained_in_read(desk, autojump_clock):
    """`printf '{"a":' > f; cat f`"""
    desk.echo(b'{"a":')
    error = error_in(await desk.cat())
    assert error["code"] == "INVALID"
    assert "closing brace" in error["message"]
    assert desk.device.asked == []


async def test_text_that_is_not_utf8_is_explained_in_read(desk, autojump_clock):
    """The device never sees it."""
    desk.echo(b"\xff\n")
    assert error_in(await desk.cat())["code"] == "INVALID"


class Failing(Fake):
    """A device that writes something, then fails."""

    def __init__(self, before: list[bytes], error: Exception) -> None:
        super().__init__()
        self.before = before
        self.error = error

    async def work(self, sink: Sink, body: Body) -> None:
        await trio.lowlevel.checkpoint()
        for data in self.before:
            sink.write(data)
        raise self.error


async def test_a_failure_without_any_answer_is_the_answer(nursery, autojump_clock):
    """It is text to read, so that `cat` shows it, and no errno follows."""
    desk = Desk(nursery, Failing([], SyscallError(Code.TIMEOUT, "took too long")))
    desk.echo(b"x\n", person(1, pid=3))
    assert error_in(await desk.cat(person(1, pid=3))) == {
        "code": "TIMEOUT",
        "message": "took too long",
        "syscall": "Read",
        "device": "/dev/fake",
    }


@pytest.mark.parametrize("part", [b"half of it", b"half of it\n"])
async def test_a_failure_after_part_of_an_answer_gives_an_errno_too(nursery, autojump_clock, part):
    """The text, the reason on a line of its own, then the errno: nobody takes half for the whole."""
    desk = Desk(nursery, Failing([part], SyscallError(Code.TIMEOUT, "took too long")))
    desk.echo(b"x\n")
    file = desk.node.open(ME, os.O_RDONLY)
    data = b""
    while not data.endswith(b"}}\n"):
        data += await read_at(file, 7, len(data))
    assert data.startswith(b'half of it\n{"error":')
    for _ in range(2):
        assert code_of(lambda: file.read(ALL, len(data))) is Code.TIMEOUT


async def test_a_device_that_breaks_is_contained(nursery, autojump_clock, caplog):
    """Any exception becomes INTERNAL for its reader, is in the log, and the device goes on."""
    device = Failing([], KeyError("secret"))
    desk = Desk(nursery, device)
    desk.echo(b"x\n")
    error = error_in(await desk.cat())
    assert error["code"] == "INTERNAL"
    assert "KeyError" in error["message"]
    assert "secret" not in error["message"]
    assert "failed inside" in caplog.text
    device.error = SyscallError(Code.DRIVER, "again")
    desk.echo(b"x\n")
    assert error_in(await desk.cat())["code"] == "DRIVER"


async def test_a_failure_in_a_nursery_of_the_device_keeps_its_code(nursery, autojump_clock):
    """A group of one error is that error."""

    class Grouped(Fake):
        async def work(self, sink: Sink, body: Body) -> None:
            async def fail() -> None:
                raise SyscallError(Code.BROKEN_PIPE, "gone")

            async with trio.open_nursery() as inner:
                inner.start_soon(fail)

    desk = Desk(nursery, Grouped())
    desk.echo(b"x\n")
    assert error_in(await desk.cat())["code"] == "BROKEN_PIPE"


async def test_an_answer_has_a_limit(nursery, autojump_clock, monkeypatch):
    """What fits is kept; past the limit the reader gets TOO_LARGE, not a silent cut."""
    monkeypatch.setattr(limits, "ANSWER_MAX", 10)
    desk = Desk(nursery, Failing([b"12345", b"67890", b"x"], RuntimeError("not reached")))
    desk.echo(b"x\n")
    await settle()
    file = desk.node.open(ME, os.O_RDONLY)
    data = file.read(ALL, 0)
    assert data.startswith(b'1234567890\n{"error":')
    assert code_of(lambda: file.read(ALL, len(data))) is Code.TOO_LARGE


async def test_an_answer_is_read_as_it_comes(nursery, autojump_clock):
    """Every reader sees each part at once, and waits in between; poll says which it is."""

    class Slow(Fake):
        async def work(self, sink: Sink, body: Body) -> None:
            for part in (b"one ", b"two ", b"three\n"):
                await trio.sleep(10)
                sink.write(part)

    desk = Desk(nursery, Slow())
    desk.echo(b"x\n")
    readers = [desk.node.open(ME, os.O_RDONLY) for _ in range(2)]
    assert [reader.poll() for reader in readers] == [Ready.NONE] * 2
    start = trio.current_time()
    for reader in readers:
        assert await read_at(reader, ALL, 0) == b"one "
    assert trio.current_time() - start == pytest.approx(10)
    assert [reader.poll() for reader in readers] == [Ready.NONE] * 2
    with pytest.raises(trio.WouldBlock):
        readers[0].read(ALL, 4)
    assert await slurp(readers[0]) == b"one two three\n"
    assert readers[1].poll() == Ready.READ


# --- time and number of mailboxes ---


async def test_an_answer_expires_after_an_hour(desk, autojump_clock):
    """Until then it is there."""
    desk.echo(b"one\n")
    await desk.cat()
    await trio.sleep(HOUR - 1)
    assert b"one" in await desk.cat()
    await trio.sleep(2)
    assert b"device" in await desk.cat()
    assert len(desk.node.boxes) <= 1


async def test_what_still_runs_never_expires(held, autojump_clock):
    """The hour counts from the end of the answer."""
    held.echo(b"slow\n")
    await settle()
    await trio.sleep(3 * HOUR)
    held.device.gates[0].set()
    assert await held.cat() == b'{"got":"slow"}\n'
    assert held.device.cancelled == []


async def test_the_number_of_mailboxes_is_limited(held, monkeypatch, autojump_clock):
    """The oldest that is finished makes room; where all are busy the next session is refused with EAGAIN."""
    monkeypatch.setattr(limits, "MAILBOXES_MAX", 3)
    for session in (1, 2, 3):
        held.echo(b'{"n":1}', person(session))
    await settle()
    assert code_of(lambda: held.node.open(person(4), FRESH)) is Code.SERVICE_UNAVAILABLE
    assert held.device.cancelled == []
    held.device.gates[1].set()
    await settle()
    held.echo(b'{"n":2}', person(4))
    await settle()
    for gate in held.device.gates:
        gate.set()
    assert [await held.cat(person(session)) for session in (1, 3, 4)] == [
        b'{"got":{"n":1}}\n',
        b'{"got":{"n":1}}\n',
        b'{"got":{"n":2}}\n',
    ]


# --- one open for both: a private exchange ---


async def test_a_private_exchange_goes_on_and_on(desk, autojump_clock):
    """Write, read, write, read: each answer begins where the position stands after the write."""
    fd = desk.fd()
    for word in ("one", "two", "three"):
        fd.write(b'{"say":"%s"}\n' % word.encode())
        assert await fd.rest() == b'{"got":{"say":"%s"}}\n' % word.encode()


async def test_private_text_ends_when_it_is_read(desk, autojump_clock):
    """`exec 3<> f; echo hello >&3; read -r line <&3`"""
    fd = desk.fd()
    fd.write(b"hel")
    fd.write(b"lo\n")
    assert await fd.read() == b'{"got":"hello"}\n'
    fd.write(b"more\n")
    assert await fd.read(4) == b'{"go'
    assert await fd.rest() == b't":"more"}\n'


async def test_python_reads_after_a_seek_to_the_start(desk, autojump_clock):
    """A position below the end of the request means that the program went back: the answer begins at 0."""
    fd = desk.fd()
    fd.write(b"hello\n")
    fd.position = 0
    assert await fd.rest() == b'{"got":"hello"}\n'
    fd.position = 0
    assert await fd.read(6) == b'{"got"'
    fd.write(b"again\n")
    fd.position = 0
    assert await fd.rest() == b'{"got":"again"}\n'


async def test_pread_and_pwrite_at_zero(desk, autojump_clock):
    """Programs that name their offsets may always use 0."""
    file = desk.node.open(ME, os.O_RDWR)
    for word in (b"one", b"two"):
        file.write(word, 0)
        assert await slurp(file) == b'{"got":"%s"}\n' % word


async def test_bash_reads_a_byte_at_a_time_and_seeks_back(desk, autojump_clock):
    """A shell that reads too much seeks back to just after the line, which lies within the answer."""
    fd = desk.fd()
    fd.write(b"hello\n")
    start = fd.position
    block = await fd.read(100)
    fd.position = start + 3
    assert await fd.rest() == block[3:]


async def test_private_exchanges_share_nothing(desk, autojump_clock):
    """Not with each other, not with the mailbox of the same session."""
    first, second = desk.fd(), desk.fd()
    first.write(b"first\n")
    second.write(b"second\n")
    desk.echo(b"box\n")
    assert await second.rest() == b'{"got":"second"}\n'
    assert await first.rest() == b'{"got":"first"}\n'
    assert await desk.cat() == b'{"got":"box"}\n'


async def test_a_second_request_waits_for_the_first_answer(held, autojump_clock):
    """EAGAIN while an answer is on its way, and nothing is cancelled by it."""
    fd = held.fd()
    fd.write(b'{"n":1}')
    await settle()
    assert code_of(lambda: fd.write(b'{"n":2}')) is Code.SERVICE_UNAVAILABLE
    held.device.gates[0].set()
    assert await fd.rest() == b'{"got":{"n":1}}\n'
    fd.write(b'{"n":2}')
    await settle()
    held.device.gates[1].set()
    assert await fd.rest() == b'{"got":{"n":2}}\n'


async def test_an_unread_answer_is_dropped_by_the_next_request(desk, autojump_clock):
    """Who does not read wants the next one."""
    fd = desk.fd()
    fd.write(b'{"n":1}')
    await settle()
    fd.write(b'{"n":2}')
    assert await fd.rest() == b'{"got":{"n":2}}\n'


async def test_closing_a_private_exchange_cancels(held, autojump_clock):
    """Nobody else could ever read the answer."""
    fd = held.fd()
    fd.write(b'{"n":1}')
    await settle()
    fd.file.close()
    await settle()
    assert held.device.cancelled == [{"n": 1}]


async def test_private_refusals(desk, autojump_clock):
    """EINVAL from write for JSON, from read for text, and the reason is read next; then it goes on."""
    fd = desk.fd()
    assert code_of(lambda: fd.write(b'{"bad":1}')) is Code.INVALID
    assert error_in(await fd.rest())["message"].startswith("the word bad")
    fd.write(b"bad\n")
    with pytest.raises(SyscallError) as caught:
        await fd.read()
    assert caught.value.code is Code.INVALID
    assert error_in(await fd.rest())["code"] == "INVALID"
    fd.write(b"good\n")
    assert await fd.rest() == b'{"got":"good"}\n'


async def test_poll_of_a_private_exchange(held, autojump_clock):
    """Free at first, silent while it works, readable with the answer, writable after it."""
    fd = held.fd()
    assert fd.file.poll() == Ready.READ | Ready.WRITE
    fd.write(b'{"n":1}')
    await settle()
    assert fd.file.poll() == Ready.NONE
    held.device.gates[0].set()
    await fd.file.wait(Ready.READ)
    assert Ready.READ in fd.file.poll()
    await fd.rest()
    assert Ready.WRITE in fd.file.poll()


async def test_whoever_polls_for_the_answer_of_a_text_gets_it(desk, autojump_clock):
    """`select` before the first read would otherwise wait for ever."""
    fd = desk.fd()
    fd.write(b"hello\n")
    with trio.fail_after(60):
        await fd.file.wait(Ready.READ)
    assert await fd.rest() == b'{"got":"hello"}\n'


async def test_poll_between_two_pieces_of_an_object_leaves_it_alone(desk, autojump_clock):
    """An event loop polls before each piece that it writes."""
    fd = desk.fd()
    fd.write(b'{"say":')
    assert Ready.WRITE in fd.file.poll()
    fd.write(b'"x"}')
    assert await fd.rest() == b'{"got":{"say":"x"}}\n'


async def test_the_same_poll_handle_hears_of_each_answer(held, autojump_clock):
    """A poller registers with the open, which outlives its answers."""
    fd = held.fd()
    for number in range(2):
        fd.write(b'{"n":%d}' % number)
        await settle()
        heard: list[bool] = []
        fd.file.pulse.once("poll", lambda heard=heard: heard.append(True))
        held.device.gates[number].set()
        await settle()
        assert heard == [True]
        await fd.rest()


async def test_the_device_knows_who_asks(nursery, autojump_clock):
    """The caller of the open, for all that follows."""
    asked: list[Caller] = []

    class Who(Fake):
        def accept(self, caller, body):
            asked.append(caller)
            return super().accept(caller, body)

    desk = Desk(nursery, Who())
    desk.echo(b"x\n", OTHER)
    desk.fd(ME).write(b'{"a":1}')
    assert asked == [OTHER, ME]


async def test_the_system_may_stop_while_an_answer_is_on_its_way(autojump_clock):
    """Its readers get an end, and the cancellation passes."""
    async with trio.open_nursery() as nursery:
        held = Desk(nursery, Held())
        held.echo(b"slow\n")
        await settle()
        reader = held.node.open(ME, os.O_RDONLY)
        nursery.cancel_scope.cancel()
    assert reader.poll() == Ready.READ
    assert reader.read(ALL, 0) == b""
