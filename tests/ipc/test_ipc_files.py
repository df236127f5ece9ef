"""`mailbox`, `recv`, `dev/pipe` and `dev/pipes`, as files of the tree."""

import itertools
import json
import os
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from rnixfs import limits, vfs
from rnixfs.errors import Code, SyscallError
from rnixfs.node import Dir, File, Link
from rnixfs.proc.process import Process
from rnixfs.proc.signals import Signal
from rnixfs.types import Caller, Ready
from tests.kernel.kernellab import PERSON, Lab, acting, agent, sleeper

_WRITE = os.O_WRONLY | os.O_TRUNC


def opened(lab: Lab, path: str, flags: int = os.O_RDONLY, caller: Caller = PERSON) -> File:
    return lab.kernel.open(vfs.walk(lab.kernel.root, path, caller), caller, flags, path)


def content(lab: Lab, path: str, caller: Caller = PERSON) -> bytes:
    """All of a file that does not wait."""
    file = opened(lab, path, os.O_RDONLY, caller)
    data, offset = b"", 0
    while part := file.read(1 << 20, offset):
        data += part
        offset += len(part)
    file.close()
    return data


def lines(lab: Lab, path: str, caller: Caller = PERSON) -> list[Any]:
    return [json.loads(line) for line in content(lab, path, caller).splitlines()]


def write(lab: Lab, path: str, data: bytes, caller: Caller = PERSON, flags: int = _WRITE) -> None:
    file = opened(lab, path, flags, caller)
    try:
        file.write(data, 0)
    finally:
        file.close()


async def ask(lab: Lab, request: bytes, caller: Caller = PERSON) -> bytes:
    """What `dev/pipe` answers."""
    file = opened(lab, "/dev/pipe", os.O_RDWR, caller)
    try:
        file.write(request, 0)
        return await next_of(file, len(request))
    finally:
        file.close()


async def next_of(file: File, offset: int = 0) -> bytes:
    """What the next read gives, waiting for it."""
    while True:
        try:
            return file.read(1 << 20, offset)
        except trio.WouldBlock:
            await file.wait(Ready.READ)


def box(process: Process) -> str:
    return f"/proc/{process.pid}/mailbox"


# --- mailbox ---


async def test_writing_sends_and_reading_takes_nothing(lab: Lab) -> None:
    """JSON is a message when it is whole, text when its file is closed; every reader sees all that wait."""
    process = lab.spawn(sleeper)
    write(lab, box(process), b'{"n": 1}')
    write(lab, box(process), b"two words\n", flags=os.O_WRONLY | os.O_APPEND)
    for _ in range(3):
        first, second = lines(lab, box(process))
        assert (first["seq"], first["from"], first["to"], first["data"]) == (1, 0, process.pid, {"n": 1})
        assert (second["seq"], second["data"]) == (2, "two words")
    assert len(lab.kernel.channels.queue(process)) == 2


async def test_several_objects_in_one_open_are_several_messages(lab: Lab) -> None:
    """Each whole object is a message of its own, however the bytes come in."""
    process = lab.spawn(sleeper)
    file = opened(lab, box(process), _WRITE)
    for piece in (b'{"n":', b" 1}", b'\n{"n": 2}', b'\n {"n', b'": 3}\n'):
        assert file.write(piece, 0) == len(piece)
    file.close()
    assert [one["data"]["n"] for one in lines(lab, box(process))] == [1, 2, 3]


async def test_a_reader_ends_a_text_that_its_writer_has_not_closed(lab: Lab) -> None:
    """Text is also ended by a reader of the same session, since close may come late; not by another's."""
    process = lab.spawn(sleeper)
    file = opened(lab, box(process), _WRITE)
    file.write(b"hel", 0)
    file.write(b"lo\n", 0)
    assert lines(lab, box(process), msgspec.structs.replace(PERSON, session=77)) == []
    assert [one["data"] for one in lines(lab, box(process))] == ["hello"]
    file.close()
    assert len(lines(lab, box(process))) == 1


async def test_a_private_open_is_told_the_number(lab: Lab) -> None:
    """Opened for both: the queue before anything is written, then the message's number and its receiver."""
    process = lab.spawn(sleeper)
    write(lab, box(process), b'"first"')
    file = opened(lab, box(process), os.O_RDWR)
    assert json.loads(file.read(1000, 0))["data"] == '"first"'
    for seq, text in ((2, b"text\n"), (3, b'{"an": "object"}')):
        file.write(text, 0)
        assert json.loads(await next_of(file, len(text))) == {"seq": seq, "to": process.pid}
    file.close()


async def test_a_refused_object_fails_in_write(lab: Lab) -> None:
    """What is wrong with JSON the writer is told by errno; the next read of its session says why, and shows
    the queue; another session sees the queue only."""
    process = lab.spawn(sleeper)
    write(lab, box(process), b'{"good": 1}')
    with pytest.raises(SyscallError) as caught:
        write(lab, box(process), b'{"bad" 1}')
    assert caught.value.code is Code.INVALID
    refusal, message = lines(lab, box(process))
    assert (refusal["error"]["code"], refusal["error"]["device"]) == ("INVALID", box(process))
    assert message["data"] == {"good": 1}
    assert len(lines(lab, box(process), msgspec.structs.replace(PERSON, session=77))) == 1
    write(lab, box(process), b'{"better": 1}')
    assert [one["data"] for one in lines(lab, box(process))] == [{"good": 1}, {"better": 1}]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\xff\n", "INVALID"),
        (b'{"half":', "INVALID"),
        (b"x" * limits.MESSAGE_MAX + b"\n", "TOO_LARGE"),
    ],
    ids=["no text", "half", "long"],
)
async def test_the_reason_of_a_refused_text_can_be_read(lab: Lab, data: bytes, code: str) -> None:
    """Text is refused when its file is closed, where no errno reaches the writer: reading says why."""
    process = lab.spawn(sleeper)
    write(lab, box(process), data)
    (refusal,) = lines(lab, box(process))
    assert refusal["error"]["code"] == code
    write(lab, box(process), b"")  # `: > mailbox` clears
    assert lines(lab, box(process)) == []


async def test_a_full_queue_is_unavailable_to_writers(lab: Lab) -> None:
    """JSON gets EAGAIN from write, text is refused with the same code, to be read; nothing goes."""
    process = lab.spawn(sleeper)
    for number in range(limits.QUEUE_MESSAGES_MAX):
        lab.kernel.channels.send(0, process, number)
    with pytest.raises(SyscallError) as caught:
        write(lab, box(process), b'{"one": "more"}')
    assert caught.value.code is Code.SERVICE_UNAVAILABLE
    write(lab, box(process), b"one more\n")
    refusal, *waiting = lines(lab, box(process))
    assert refusal["error"]["code"] == "SERVICE_UNAVAILABLE"
    assert [one["data"] for one in waiting] == list(range(limits.QUEUE_MESSAGES_MAX))


async def test_the_mailbox_of_an_ended_process(lab: Lab) -> None:
    """It is empty, and writing to it is NOT_FOUND."""
    process = lab.spawn(sleeper)
    write(lab, box(process), b"unread\n")
    lab.kernel.signal(process, Signal.KILL, PERSON)
    assert content(lab, box(process)) == b""
    with pytest.raises(SyscallError) as caught:
        write(lab, box(process), b'{"too": "late"}')
    assert caught.value.code is Code.NOT_FOUND
    assert lines(lab, f"/proc/history/{process.uuid}/mailbox")[0]["error"]["code"] == "NOT_FOUND"


async def test_who_writes_is_the_sender(lab: Lab) -> None:
    """A program that acts for a process sends as that process, with its power and no more."""
    parent, stranger = lab.spawn(sleeper), lab.spawn(sleeper, allowed_devices=["/dev/none"])
    child = lab.spawn(sleeper, agent(parent.pid), allowed_devices=["/dev/none"])
    write(lab, box(parent), b'{"from": "below"}', agent(child.pid))
    assert lines(lab, box(parent))[0]["from"] == child.pid
    with pytest.raises(SyscallError) as caught:
        write(lab, box(parent), b'{"x": 1}', agent(stranger.pid))
    assert caught.value.code is Code.PERMISSION


@pytest.mark.parametrize("name", ["mailbox", "recv"])
async def test_messages_are_read_by_their_owners_only(lab: Lab, name: str) -> None:
    """People, the process and its ancestors may read its messages; children, siblings and others not."""
    parent, stranger = lab.spawn(sleeper), lab.spawn(sleeper)
    process, sibling = lab.spawn(sleeper, agent(parent.pid)), lab.spawn(sleeper, agent(parent.pid))
    child = lab.spawn(sleeper, agent(process.pid))
    path = f"/proc/{process.pid}/{name}"
    for who in (PERSON, agent(process.pid), agent(parent.pid)):
        opened(lab, path, os.O_RDONLY, who).close()
    for one in (child, sibling, stranger):
        with pytest.raises(SyscallError) as caught:
            opened(lab, path, os.O_RDONLY, agent(one.pid))
        assert caught.value.code is Code.PERMISSION


# --- recv ---


async def test_recv_takes_the_next_message(lab: Lab) -> None:
    """A read of `recv` takes one message and waits for the next; the end of the process is its end."""
    process = lab.spawn(sleeper)
    file = opened(lab, f"/proc/{process.pid}/recv")
    for text in ("one", "two"):
        lab.kernel.channels.send(0, process, text)
    assert json.loads(file.read(4096, 0))["data"] == "one"
    assert [one["data"] for one in lines(lab, box(process))] == ["two"]
    assert json.loads(file.read(4096, 99))["data"] == "two"
    assert file.poll() is Ready.NONE
    with pytest.raises(trio.WouldBlock):
        file.read(4096, 0)
    got: list[bytes] = []

    async def wait() -> None:
        got.append(await next_of(file))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        lab.kernel.channels.send(0, process, "three")
    assert json.loads(got[0])["data"] == "three"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        lab.kernel.signal(process, Signal.KILL, PERSON)
    assert got[1] == b""
    assert content(lab, f"/proc/{process.pid}/recv") == b""


async def test_readers_and_the_process_share_one_line(lab: Lab) -> None:
    """A file and the process itself wait in one line, first come, first served; no message comes twice."""
    got: list[tuple[str, Any]] = []

    async def act(sys: Any) -> None:
        got.append(("process", (await sys.recv())["data"]))
        await trio.sleep_forever()

    process = lab.spawn(acting(act))
    await wait_all_tasks_blocked()

    async def wait() -> None:
        file = opened(lab, f"/proc/{process.pid}/recv")
        got.append(("file", json.loads(await next_of(file))["data"]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        lab.kernel.channels.send(0, process, 1)
        lab.kernel.channels.send(0, process, 2)
    assert got == [("process", 1), ("file", 2)]


async def test_recv_is_found_through_a_link(lab: Lab) -> None:
    """As every stream it is a link into `.live`, so that recursive tools take no message."""
    process = lab.spawn(sleeper)
    folder = vfs.walk(lab.kernel.root, f"/proc/{process.pid}", PERSON)
    assert isinstance(folder, Dir)
    link = folder.lookup("recv", PERSON)
    assert isinstance(link, Link)
    assert link.target(PERSON) == ".live/recv"
    with pytest.raises(SyscallError) as caught:
        opened(lab, f"/proc/{process.pid}/recv", os.O_WRONLY)
    assert caught.value.code is Code.PERMISSION


async def test_fd_shows_pipes_by_number(lab: Lab) -> None:
    """`fd/<n>` of a pipe's end leads to `pipe:[n]`."""
    process = lab.spawn(sleeper)
    lab.kernel.channels.connect(process, process, PERSON)
    folder = vfs.walk(lab.kernel.root, f"/proc/{process.pid}/fd", PERSON)
    assert isinstance(folder, Dir)
    links = {name: node.target(PERSON) for name, node in folder.entries(PERSON) if isinstance(node, Link)}
    assert links == {"3": "pipe:[1]", "4": "pipe:[1]"}


# --- dev/pipe and dev/pipes ---


def names(lab: Lab, path: str = "/dev/pipes") -> list[str]:
    folder = vfs.walk(lab.kernel.root, path, PERSON)
    assert isinstance(folder, Dir)
    return [name for name, _ in folder.entries(PERSON)]


async def test_a_new_pipe_has_two_ends(lab: Lab) -> None:
    """`new` answers a number; what is written to one end comes out of the other, then the end of the file;
    when both were closed the pipe is gone."""
    assert await ask(lab, b"new\n") == b"1\n"
    assert names(lab, "/dev/pipes/1") == ["read", "write"]
    reader, writer = opened(lab, "/dev/pipes/1/read"), opened(lab, "/dev/pipes/1/write", os.O_WRONLY)
    assert writer.write(b"hello", 0) == 5
    assert reader.read(100, 0) == b"hello"
    with pytest.raises(trio.WouldBlock):
        reader.read(100, 0)
    writer.close()
    assert reader.read(100, 0) == b""
    assert names(lab) == ["1"]
    reader.close()
    assert names(lab) == []
    with pytest.raises(SyscallError) as caught:
        opened(lab, "/dev/pipes/1/read")
    assert caught.value.code is Code.NOT_FOUND


async def test_what_is_written_first_waits_for_its_reader(lab: Lab) -> None:
    """Two writers one after the other, then a reader: it gets both, and the end."""
    assert await ask(lab, b"{}") == b"1\n"
    write(lab, "/dev/pipes/1/write", b"one\n")
    write(lab, "/dev/pipes/1/write", b"two\n")
    assert content(lab, "/dev/pipes/1/read") == b"one\ntwo\n"
    assert names(lab) == []


async def test_an_end_has_one_direction(lab: Lab) -> None:
    """The one end cannot be opened for writing, the other not for reading."""
    await ask(lab, b"new")
    for end, flags in itertools.product(("read", "write"), (os.O_RDONLY, os.O_WRONLY, os.O_RDWR)):
        if (end, flags) in (("read", os.O_RDONLY), ("write", os.O_WRONLY)):
            continue
        with pytest.raises(SyscallError) as caught:
            opened(lab, f"/dev/pipes/1/{end}", flags)
        assert caught.value.code is Code.PERMISSION
    assert names(lab) == ["1"]


async def test_each_open_for_writing_has_an_inode_of_its_own(lab: Lab) -> None:
    """Two look-ups of `write` give two nodes, so that one writer who waits holds up no other."""
    await ask(lab, b"new")
    one, other = (vfs.walk(lab.kernel.root, "/dev/pipes/1/write", PERSON) for _ in range(2))
    assert one != other
    assert vfs.walk(lab.kernel.root, "/dev/pipes/1", PERSON) == vfs.walk(
        lab.kernel.root, "/dev/pipes/1", PERSON
    )


async def test_a_pipe_can_have_a_name(lab: Lab) -> None:
    """A name is a link to the number; a taken one is EXISTS, one that cannot be a name INVALID."""
    assert await ask(lab, b'{"name": "lines"}') == b"1\n"
    assert names(lab) == ["1", "lines"]
    write(lab, "/dev/pipes/lines/write", b"by name")
    assert content(lab, "/dev/pipes/1/read") == b"by name"
    assert await ask(lab, b'{"name": "lines"}') == b"2\n"
    for request, code in (
        (b'{"name": "lines"}', Code.EXISTS),
        (b'{"name": "a/b"}', Code.INVALID),
        (b'{"name": "17"}', Code.INVALID),
        (b'{"name": ".live"}', Code.INVALID),
        (b'{"name": 5}', Code.INVALID),
        (b'{"nmae": "x"}', Code.INVALID),
        (b'{"from": 1}', Code.INVALID),
        (b'{"from": 1, "to": true}', Code.INVALID),
        (b'{"from": 1, "to": 1, "name": "x"}', Code.INVALID),
        (b'{"from": 1, "to": 1}', Code.NOT_FOUND),
    ):
        with pytest.raises(SyscallError) as caught:
            await ask(lab, request)
        assert caught.value.code is code, request
    assert names(lab) == ["2", "lines"]


async def test_text_that_asks_for_nothing_is_refused(lab: Lab) -> None:
    """Any text but `new` is INVALID, and makes no pipe."""
    with pytest.raises(SyscallError) as caught:
        await ask(lab, b"mew\n")
    assert caught.value.code is Code.INVALID
    assert names(lab) == []


async def test_two_processes_are_connected_by_people_and_ancestors(lab: Lab) -> None:
    """{"from", "to"} puts the ends among the open files of both, for those with power over both."""
    parent, stranger = lab.spawn(sleeper), lab.spawn(sleeper)
    one, other = lab.spawn(sleeper, agent(parent.pid)), lab.spawn(sleeper, agent(parent.pid))
    request = json.dumps({"from": one.pid, "to": other.pid}).encode()
    for weak in (stranger, one):
        with pytest.raises(SyscallError) as caught:
            await ask(lab, request, agent(weak.pid))
        assert caught.value.code is Code.PERMISSION
    for who in (PERSON, agent(parent.pid)):
        answer = json.loads(await ask(lab, request, who))
        ends = [process.files[answer[end]["fd"]].file for process, end in ((one, "from"), (other, "to"))]
        assert (answer["from"]["pid"], answer["to"]["pid"]) == (one.pid, other.pid)
        ends[0].write(b"hello", 0)
        assert ends[1].read(10, 0) == b"hello"
    assert names(lab) == []


async def test_rmdir_ends_a_pipe_for_all(lab: Lab) -> None:
    """Whoever has it open is woken: readers by the end, writers by BROKEN_PIPE; its folder is gone."""
    await ask(lab, b'{"name": "x"}')
    reader, writer = opened(lab, "/dev/pipes/1/read"), opened(lab, "/dev/pipes/x/write", os.O_WRONLY)
    folder = vfs.walk(lab.kernel.root, "/dev/pipes", PERSON)
    assert isinstance(folder, Dir)
    got: list[bytes] = []

    async def wait() -> None:
        got.append(await next_of(reader))

    with pytest.raises(SyscallError) as caught:
        folder.rmdir("x", PERSON)
    assert caught.value.code is Code.NOT_DIRECTORY
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        folder.rmdir("1", PERSON)
    assert (got, names(lab)) == ([b""], [])
    with pytest.raises(SyscallError) as caught:
        writer.write(b"x", 0)
    assert caught.value.code is Code.BROKEN_PIPE
    reader.close()
    writer.close()
    with pytest.raises(SyscallError) as caught:
        folder.rmdir("1", PERSON)
    assert caught.value.code is Code.NOT_FOUND


async def test_pipes_that_nobody_opens_are_bounded_and_expire(lab: Lab, autojump_clock: MockClock) -> None:
    """At most `limits.PIPES_MAX`; one that nobody had open for an hour goes, one that is open stays."""
    for number in range(1, limits.PIPES_MAX + 1):
        assert await ask(lab, b"new") == b"%d\n" % number
    with pytest.raises(SyscallError) as caught:
        await ask(lab, b"new")
    assert caught.value.code is Code.RESOURCE_EXHAUSTED
    used = opened(lab, "/dev/pipes/1/read")
    await trio.sleep(limits.PIPE_UNUSED_SECONDS - 1)
    assert len(names(lab)) == limits.PIPES_MAX
    write(lab, "/dev/pipes/2/write", b"late")
    await trio.sleep(1)
    assert names(lab) == ["1", "2"]
    await trio.sleep(limits.PIPE_UNUSED_SECONDS)
    assert names(lab) == ["1"]
    used.close()
    assert await ask(lab, b"new") == b"%d\n" % (limits.PIPES_MAX + 1)


async def test_dev_pipe_describes_itself(lab: Lab) -> None:
    """Reading without asking says what it does and makes nothing."""
    described = json.loads(content(lab, "/dev/pipe"))
    assert described["device"] == "/dev/pipe"
    assert set(described["request"]["properties"]) == {"name", "from", "to"}
    assert names(lab) == []
