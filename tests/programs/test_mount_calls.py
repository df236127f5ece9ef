"""Calls that programs of the host make for a process: in the same trace as its own, with their time."""

import os

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from rnixfs import vfs
from rnixfs.errors import SyscallError
from rnixfs.types import Caller, Ready
from tests.programs.reasonlab import Forever, Tool, answer, call, uses

SHELL = Caller(1000, 1000, agent=1, host_pid=77)
PATH = "/dev/echo"


def mounted(process):
    records = [msgspec.json.decode(line) for line in bytes(process.trace.data).splitlines()]
    return [one for one in records if one.get("origin") == "mount"]


def opened(bench, path=PATH, flags=os.O_RDWR):
    return bench.kernel.open(vfs.walk(bench.kernel.root, path, SHELL), SHELL, flags, path)


async def test_a_call_from_the_mount_is_one_record(make, autojump_clock):
    """With its arguments, its result, the program's pid, and the time that it waited."""
    bench = await make(uses(call("busy")), answer("done"), devices=(Tool("echo"), Forever("busy")))
    process = bench.spawn()
    await wait_all_tasks_blocked()
    await trio.sleep(5)
    file = opened(bench)
    file.write(b'{"n": 1}\n', 0)
    with pytest.raises(trio.WouldBlock):
        file.read(100, 0)
    with pytest.raises(trio.WouldBlock):
        file.read(100, 0)
    await trio.sleep(0.25)
    await file.wait(Ready.READ)
    assert file.read(100, 0) == b'{"got":{"n":1}}\n'
    file.close()
    records = mounted(process)
    assert [(one["syscall"], one["args"]["path"], one["host_pid"], one["pid"]) for one in records] == [
        (name, PATH, 77, 1) for name in ("Open", "Write", "Read", "Close")
    ]
    assert [one["result"] for one in records] == ["0", "9", "16", "0"]
    read = records[2]
    assert (read["ts_ms"], read["duration_ms"]) == (5250, 750)
    assert [one.get("duration_ms", 0) for one in records if one is not read] == [0, 0, 0]
    assert process.live


async def test_a_refused_call_says_why(make, autojump_clock):
    """The record has the error, and no result beside it."""
    bench = await make(uses(call("busy")), answer("done"), devices=(Tool("echo"), Forever("busy")))
    process = bench.spawn()
    await wait_all_tasks_blocked()
    file = opened(bench)
    with pytest.raises(SyscallError):
        file.write(b'{"refuse": true}\n', 0)
    file.close()
    refused = next(one for one in mounted(process) if one["syscall"] == "Write")
    assert refused["error"].startswith("INVALID (")
    assert "result" not in refused


async def test_a_call_that_was_given_up_is_told_too(make, autojump_clock):
    """A reader that a signal took away waited as long as it did."""
    bench = await make(uses(call("busy")), answer("done"), devices=(Tool("echo"), Forever("busy")))
    process = bench.spawn()
    await wait_all_tasks_blocked()
    file = opened(bench, "/dev/busy")
    file.write(b'{"n": 1}\n', 0)
    with pytest.raises(trio.WouldBlock):
        file.read(100, 0)
    with trio.move_on_after(3):
        await file.wait(Ready.READ)
    given_up = mounted(process)[-1]
    assert (given_up["syscall"], given_up["duration_ms"]) == ("Read", 3000)
    assert given_up["error"].startswith("INTERRUPTED (")
    file.close()
