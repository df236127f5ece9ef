"""The laws of streams: found through a link, joined at open, waited for, ended with their source."""

import errno
import json
import os
import re
from typing import Any

from tests.contract.world import World, about, refused
from tests.filetable import Class, holds
from tests.tree import Opened, read_on


async def drained(world: World, path: str) -> Opened:
    """A hasty reader of a stream that has read all that was there when it joined."""
    opened = await world.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while await opened.read():
            pass
    except OSError as error:
        if error.errno != errno.EAGAIN:
            raise
    return opened


async def test_a_stream_is_a_link_to_what_is_never_listed(world: World) -> None:
    """`X` leads to `.live/X` beside it; `.live` can be entered, but a recursive tool does not meet it."""
    pid = await world.live()
    for folder, names in (("proc", ["events"]), (f"proc/{pid}", ["wait", "trace"])):
        assert ".live" not in await world.tree.names(folder)
        for name in names:
            assert (await world.tree.stat(f"{folder}/{name}")).kind == "link"
            assert await world.tree.readlink(f"{folder}/{name}") == f".live/{name}"
            found = await world.tree.stat(f"{folder}/.live/{name}")
            assert (found.kind, found.size) == ("file", 0)
    assert await world.tree.names("proc/.live") == []
    assert await world.tree.names(f"proc/{pid}/.live") == []


async def test_nothing_to_read_is_waited_for_or_told(world: World) -> None:
    """While nothing happens poll is silent and O_NONBLOCK reads get EAGAIN, again and again."""
    for _, path in await world.each(Class.STREAM):
        with about(path):
            opened = await drained(world, path)
            if path != "proc/events":  # other tests make events, too
                assert await opened.ready() == set()
                for _ in range(3):
                    with refused(errno.EAGAIN):
                        await opened.read()
            await opened.close()


async def test_a_stream_ends_with_its_process(world: World) -> None:
    """Every reader gets what came last and then EOF; poll tells of both; EOF comes again."""
    paths = [path for row, path in await world.each(Class.STREAM) if "<pid>" in row.pattern]
    readers = {path: [await world.open(path, os.O_RDONLY) for _ in range(3)] for path in paths}
    hasty = {path: await drained(world, path) for path in paths}
    await world.end(int(paths[0].split("/")[1]))
    for path in paths:
        with about(path):
            contents = {await read_on(reader) for reader in readers[path]}
            assert len(contents) == 1
            for reader in [*readers[path], hasty[path]]:
                await reader.until("read")
                assert {"read", "hup"} <= await reader.ready()
                await read_on(reader)
                assert await reader.read() == b""
                await reader.close()


async def test_a_stream_has_no_offsets(world: World) -> None:
    """A record is given once to each reader, whatever its position; pieces of any size join to the whole."""
    pid = await world.live()
    whole = await world.open(f"proc/{pid}/wait", os.O_RDONLY)
    pieces = await world.open(f"proc/{pid}/wait", os.O_RDONLY)
    await world.end(pid)
    line = await read_on(whole)
    assert json.loads(line)["code"] == 1
    assert await pieces.read(1) == line[:1]
    await pieces.seek(0)
    assert await read_on(pieces, 7) == line[1:]
    await whole.close()
    await pieces.close()


@holds("proc/<pid>/wait", "proc/<pid>/.live/wait")
async def test_wait_tells_how_a_process_ended(world: World) -> None:
    """`wait` gives one JSON line at the end, to any number of readers, also after the end."""
    pid = await world.done("say hello")
    for _ in range(2):
        end = await world.json(f"proc/{pid}/wait")
        assert set(end) == {"code", "reason", "result", "tokens_used", "elapsed_ms"}
        assert (end["code"], end["result"]) == (0, "hello")
        assert end["tokens_used"] > 0
    pid = await world.done("fail: DRIVER")
    end = await world.json(f"proc/{pid}/wait")
    assert (end["code"], end["result"]) == (1, "")
    assert "DRIVER" in end["reason"]


@holds("proc/<pid>/trace", "proc/<pid>/.live/trace")
async def test_trace_shows_system_calls_as_strace_does(world: World) -> None:
    """Each line has the time, the call with its arguments, what it gave, and how long it took."""
    pid, gate = await world.gated()
    opened = await world.open(f"proc/{pid}/trace", os.O_RDONLY)
    gate.touch()
    lines = (await read_on(opened)).decode().splitlines()
    await opened.close()
    assert lines
    assert any(" Write(FD(" in line for line in lines)
    for line in lines:
        assert re.fullmatch(r"\[ *\d+\.\d{3}s\] [A-Z][A-Za-z]+\(.*\) = \S.*  \d+ms", line)


@holds("proc/<pid>/.live/log")
async def test_the_log_can_be_followed_from_its_start(world: World) -> None:
    """The stream of the log gives what the journal holds, to its end and no further."""
    pid, gate = await world.gated()
    opened = await world.open(f"proc/{pid}/.live/log", os.O_RDONLY)
    gate.touch()
    assert await read_on(opened) == await world.read(f"proc/{pid}/log")
    await opened.close()


@holds("proc/events", "proc/.live/events")
async def test_events_come_in_order_with_their_numbers(world: World) -> None:
    """Every event is one JSON line; the numbers have no gaps; a life goes from spawn to reap."""
    opened = await world.open("proc/events", os.O_RDONLY | os.O_NONBLOCK)
    pid = await world.done("say hello")
    records: list[dict[str, Any]] = []
    rest = b""
    while not any(one["pid"] == pid and one["event"] == "reap" for one in records):
        await opened.until("read")
        *lines, rest = (rest + await opened.read()).split(b"\n")
        records += [json.loads(line) for line in lines]
    await opened.close()
    numbers = [one["seq"] for one in records]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    mine = [one for one in records if one["pid"] == pid]
    told = [one["event"] for one in mine]
    assert told == ["spawn", "messages", "request", "answer", "step", "exit", "reap"]
    assert mine[0]["intent"] == "say hello"
    assert (mine[-2]["code"], mine[-2]["reason"]) == (0, "done")


async def test_a_stream_joined_late_gives_what_comes_from_then_on(world: World) -> None:
    """A reader of the trace of a process that has ended gets EOF at once; the journal has all of it."""
    pid = await world.done()
    assert await world.read(f"proc/{pid}/trace") == b""
    assert await world.read(f"proc/{pid}/trace.jsonl")
