"""What mailboxes and pipes hold, for programs of the host and for agents alike."""

import errno
import json
import os

import trio

from tests.contract.world import World, refused
from tests.filetable import holds
from tests.tree import Opened, read_on

PIPE_BYTES = 64 << 10  # bytes that a pipe holds


async def messages(world: World, pid: int) -> list[object]:
    """The data of the messages that wait for a process."""
    return [message["data"] for message in await world.lines(f"proc/{pid}/mailbox")]


@holds("proc/<pid>/mailbox")
async def test_a_mailbox_takes_messages_and_shows_those_that_wait(world: World) -> None:
    """JSON is a message when it is whole, text when its file is closed; reading takes nothing."""
    pid = await world.live()
    assert await world.read(f"proc/{pid}/mailbox") == b""
    opened = await world.open(f"proc/{pid}/mailbox", os.O_WRONLY)
    for piece in ('{"task": 1}\n', '{"task"', ": 2}\n"):
        await opened.write(piece.encode())
    await opened.close()
    await world.write(f"proc/{pid}/mailbox", "some text\n")
    for _ in range(2):
        assert await messages(world, pid) == [{"task": 1}, {"task": 2}, "some text"]
    lines = await world.lines(f"proc/{pid}/mailbox")
    assert {(line["from"], line["to"]) for line in lines} == {(0, pid)}
    assert [line["seq"] for line in lines] == sorted(line["seq"] for line in lines)
    assert (await world.tree.stat(f"proc/{pid}/mailbox")).size == 0


async def test_a_refused_message_says_why(world: World) -> None:
    """Malformed JSON fails in write; text that cannot be sent is refused at its end; its session can read
    both reasons."""
    pid = await world.live()
    path = f"proc/{pid}/mailbox"
    opened = await world.open(path, os.O_WRONLY)
    with refused(errno.EINVAL):
        await opened.write(b'{"no json"}')
    await opened.close()
    assert (await world.lines(path))[0]["error"]["code"] == "INVALID"
    await world.write(path, b"no \xff text\n")
    refusal = (await world.lines(path))[0]["error"]
    assert (refusal["code"], refusal["device"]) == ("INVALID", f"/{path}")
    assert await World(await world.tree.other(), world.host).read(path) == b""
    await world.end(pid)
    opened = await world.open(path, os.O_WRONLY)
    with refused(errno.ENOENT):
        await opened.write(b'{"too": "late"}')
    await opened.close()


@holds("proc/<pid>/recv", "proc/<pid>/.live/recv")
async def test_recv_takes_a_message_each_read(world: World) -> None:
    """A read takes the oldest message, and waits where there is none."""
    pid = await world.live()
    for text in ("one\n", "two\n"):
        await world.write(f"proc/{pid}/mailbox", text)
    opened = await world.open(f"proc/{pid}/recv", os.O_RDONLY)
    assert json.loads(await opened.read())["data"] == "one"
    assert await messages(world, pid) == ["two"]
    assert json.loads(await opened.read())["data"] == "two"
    assert await opened.ready() == set()
    got: list[bytes] = []

    async def wait() -> None:
        got.append(await opened.read())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await world.write(f"proc/{pid}/mailbox", '{"three": 3}')
    assert json.loads(got[0])["data"] == {"three": 3}
    await opened.close()


@holds(
    "dev/pipe", "dev/pipes/<n>/.live/read", "dev/pipes/<n>/read", "dev/pipes/<n>/write", "dev/pipes/<name>"
)
async def test_bytes_go_through_a_pipe(world: World) -> None:
    """What is written to one end is read from the other, by number and by name; when both were opened and
    closed the pipe is gone."""
    number = await world.pipe()
    assert sorted(await world.tree.names(f"dev/pipes/{number}")) == ["read", "write"]
    assert await world.tree.readlink(f"dev/pipes/{number}/read") == ".live/read"
    assert await world.tree.readlink(f"dev/pipes/pipe-{number}") == str(number)
    reader = await world.open(f"dev/pipes/{number}/read", os.O_RDONLY)
    writer = await world.open(f"dev/pipes/pipe-{number}/write", os.O_WRONLY)
    assert await reader.ready() == set()
    assert await writer.ready() == {"write"}
    await writer.write(b"hello\n")
    await reader.until("read")
    assert await reader.read() == b"hello\n"
    await writer.close()
    assert await reader.read() == b""
    await reader.close()

    async def gone() -> bool:
        return str(number) not in await world.tree.names("dev/pipes")

    await world.until(gone, "the pipe is removed")
    with refused(errno.ENOENT):
        await world.tree.stat(f"dev/pipes/{number}")


async def test_an_end_of_a_pipe_has_one_direction(world: World) -> None:
    """The end that is written cannot be read, and the other way round."""
    number = await world.pipe()
    for flags in (os.O_RDONLY, os.O_RDWR):
        with refused(errno.EACCES):
            await world.open(f"dev/pipes/{number}/write", flags)
    with refused(errno.EACCES):
        await world.open(f"dev/pipes/{number}/read", os.O_WRONLY)


async def test_writers_wait_for_readers(world: World) -> None:
    """A full pipe makes a writer wait and a hasty one EAGAIN; another writer who waits holds up nobody; all
    bytes come in the end."""
    number = await world.pipe()
    path = f"dev/pipes/{number}/write"
    writers = [await world.open(path, os.O_WRONLY) for _ in range(2)]
    hasty = await world.open(path, os.O_WRONLY | os.O_NONBLOCK)
    reader = await world.open(f"dev/pipes/{number}/read", os.O_RDONLY)
    assert await hasty.write(bytes(PIPE_BYTES)) == PIPE_BYTES
    with refused(errno.EAGAIN):
        await hasty.write(b"x")
    await hasty.close()
    block, got = b"x" * 4096, 0

    async def write(writer: Opened) -> None:
        for _ in range(20):
            assert await writer.write(block) == len(block)
        await writer.close()

    async with trio.open_nursery() as nursery:
        for writer in writers:
            nursery.start_soon(write, writer)
        while data := await reader.read(5000):
            got += len(data)
    assert got == PIPE_BYTES + 40 * len(block)
    await reader.close()


async def test_a_pipe_without_readers_is_broken(world: World) -> None:
    """When the last reader has closed, writing is EPIPE."""
    number = await world.pipe()
    writer = await world.open(f"dev/pipes/{number}/write", os.O_WRONLY)
    reader = await world.open(f"dev/pipes/{number}/read", os.O_RDONLY)
    await writer.write(b"a")
    await reader.close()

    async def broken() -> bool:
        return "hup" in await writer.ready()

    await world.until(broken, "the close has reached the pipe")
    with refused(errno.EPIPE):
        await writer.write(b"b")
    await writer.close()


async def test_rmdir_ends_a_pipe(world: World) -> None:
    """rmdir of its folder takes a pipe from all who have it open: readers get what it held, and its end."""
    number = await world.pipe()
    writer = await world.open(f"dev/pipes/{number}/write", os.O_WRONLY)
    reader = await world.open(f"dev/pipes/{number}/read", os.O_RDONLY)
    await writer.write(b"rest")
    await world.tree.change("rmdir", f"dev/pipes/{number}")
    assert await read_on(reader) == b"rest"
    with refused(errno.EPIPE):
        await writer.write(b"x")
    await reader.close()
    await writer.close()


@holds("dev/pipe")
async def test_people_connect_two_processes(world: World) -> None:
    """{"from", "to"} puts the ends among the open files of both, where `fd/` shows `pipe:[n]`."""
    one, other = await world.live(), await world.live()
    answer = json.loads(await world.ask("dev/pipe", {"from": one, "to": other}))
    for end, pid in (("from", one), ("to", other)):
        assert answer[end]["pid"] == pid
        link = await world.tree.readlink(f"proc/{pid}/fd/{answer[end]['fd']}")
        assert link == f"pipe:[{answer['pipe']}]"
