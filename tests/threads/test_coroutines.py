"""Coroutines: they run only while resumed, and values go both ways."""

import json
from collections.abc import Generator
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from rnixfs.errors import Code, SyscallError
from rnixfs.proc.process import Process
from rnixfs.proc.signals import Signal
from rnixfs.syscalls import Syscalls
from tests.groups.grouplab import Lab, refused, settle
from tests.kernel.kernellab import PERSON


def stage(lab: Lab, process: Process, cid: int) -> str:
    """Where a coroutine stands, as its file says."""
    return str(json.loads(lab.read(f"/proc/{process.pid}/threads/{cid}/status"))["state"])


async def test_values_go_both_ways(lab, autojump_clock):
    """The first resume's is the argument; each yield gives one out and gets the next one in."""
    process, sys = await lab.puppet()
    got: list[Any] = []

    async def body(first: Any) -> str:
        got.append(first)
        got.append(await sys.yield_value("one"))
        got.append(await sys.yield_value("two"))
        return "end"

    cid = sys.spawn_coroutine(body, "talk")
    assert (stage(lab, process, cid), got) == ("ready", [])
    assert await sys.resume_coroutine(cid, "a") == "one"
    assert (stage(lab, process, cid), got) == ("suspended", ["a"])
    assert await sys.resume_coroutine(cid, "b") == "two"
    assert await sys.resume_coroutine(cid, "c") == "end"
    assert (stage(lab, process, cid), got) == ("done", ["a", "b", "c"])
    with refused(Code.INVALID, "coroutine 1 has ended (done)"):
        await sys.resume_coroutine(cid, "d")


async def test_a_coroutine_runs_only_while_it_is_resumed(lab, autojump_clock):
    """Whatever time passes between; it may wait itself, and the resume waits with it."""
    _, sys = await lab.puppet()
    seen: list[str] = []

    async def body(_first: Any) -> None:
        seen.append("in")
        await sys.yield_value()
        seen.append("in again")
        await trio.sleep(10)
        seen.append("later")

    cid = sys.spawn_coroutine(body)
    await trio.sleep(100)
    assert seen == []
    await sys.resume_coroutine(cid)
    await trio.sleep(100)
    assert seen == ["in"]
    before = trio.current_time()
    await sys.resume_coroutine(cid)
    assert trio.current_time() - before == 10
    assert seen == ["in", "in again", "later"]


async def test_a_failure_reaches_who_resumes(lab, autojump_clock):
    """Once; then the coroutine has ended. The process goes on."""
    process, sys = await lab.puppet()

    async def body(_first: Any) -> None:
        await sys.yield_value()
        raise ValueError("oops")

    cid = sys.spawn_coroutine(body)
    await sys.resume_coroutine(cid)
    with refused(Code.INTERNAL, "coroutine 1: ValueError: oops"):
        await sys.resume_coroutine(cid)
    with refused(Code.INVALID, "has ended (failed)"):
        await sys.resume_coroutine(cid)
    assert process.live
    assert process.log.data == b""


async def test_nobody_resumes_what_runs(lab, autojump_clock):
    """Not a second thread, not the coroutine itself, not one that it resumed."""
    _, sys = await lab.puppet()
    caught: list[SyscallError] = []

    async def resume(cid: int) -> None:
        try:
            await sys.resume_coroutine(cid)
        except SyscallError as error:
            caught.append(error)

    async def inner(_first: Any) -> None:
        await resume(1)
        await resume(2)

    async def outer(_first: Any) -> None:
        await resume(2)
        await trio.sleep(10)

    sys.spawn_coroutine(outer)
    sys.spawn_coroutine(inner)
    first = sys.spawn_thread(lambda: sys.resume_coroutine(1))
    await settle()
    await resume(1)
    await sys.join_thread(first)
    assert [(error.code, error.reason[:23]) for error in caught] == [
        (Code.INVALID, "coroutine 1 is running;"),
        (Code.INVALID, "coroutine 2 is running;"),
        (Code.INVALID, "coroutine 1 is running;"),
    ]


async def test_only_a_coroutine_yields(lab, autojump_clock):
    """Not a program, a thread, or a task that a coroutine started itself."""
    _, sys = await lab.puppet()
    with refused(Code.INVALID, "only a coroutine can yield"):
        await sys.yield_value(1)
    with refused(Code.INVALID, "thread 1: only a coroutine"):
        await sys.join_thread(sys.spawn_thread(lambda: sys.yield_value(1)))

    async def body(_first: Any) -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(task)
        return "refused"

    async def task() -> None:
        with refused(Code.INVALID, "only a coroutine"):
            await sys.yield_value(1)

    assert await sys.resume_coroutine(sys.spawn_coroutine(body)) == "refused"
    with refused(Code.INVALID, "is a thread; join it"):
        await sys.resume_coroutine(1)
    with refused(Code.NOT_FOUND):
        await sys.resume_coroutine(99)


async def test_a_cancelled_resume_cancels_the_coroutine(lab, autojump_clock):
    """As the call of a function would be; one that is suspended is not touched by it."""
    process, sys = await lab.puppet()
    unwound: list[str] = []

    async def body(_first: Any) -> None:
        await sys.yield_value()
        try:
            await trio.sleep_forever()
        finally:
            unwound.append("yes")

    cid = sys.spawn_coroutine(body)
    with trio.CancelScope() as scope:
        await sys.resume_coroutine(cid)
        scope.cancel()
    assert stage(lab, process, cid) == "suspended"
    with trio.move_on_after(1) as limit:
        await sys.resume_coroutine(cid)
    await settle()
    assert limit.cancelled_caught
    assert (stage(lab, process, cid), unwound) == ("cancelled", ["yes"])
    assert process.live


@pytest.mark.parametrize("signal", [Signal.KILL, Signal.TERM])
async def test_coroutines_end_with_their_process(lab, autojump_clock, signal):
    """Never resumed, in a yield, or in the middle of a wait."""
    process, sys = await lab.puppet()
    unwound: list[str] = []

    async def body(name: str) -> None:
        try:
            if name == "yields":
                await sys.yield_value()
            await trio.sleep_forever()
        finally:
            unwound.append(name)

    for _ in range(3):
        sys.spawn_coroutine(body)
    await sys.resume_coroutine(2, "yields")
    sys.spawn_thread(lambda: sys.resume_coroutine(3, "waits"))
    await settle()
    lab.kernel.signal(process, signal, PERSON)
    await process.done.wait()
    await settle()
    assert sorted(unwound) == ["waits", "yields"]
    assert [stage(lab, process, tid) for tid in (1, 2, 3, 4)] == ["cancelled"] * 4


async def test_calls_on_coroutines_are_traced_by_name(lab, autojump_clock):
    """Values are shown, cut where they are long; a yield is recorded when it is resumed."""
    process, sys = await lab.puppet()

    async def body(_first: Any) -> None:
        await sys.yield_value({"a": 1})

    cid = sys.spawn_coroutine(body, "talk")
    await sys.resume_coroutine(cid, "in")
    await sys.resume_coroutine(cid, "x" * 1000)
    calls = [(call["syscall"], call["args"], call["result"]) for call in lab.trace(process)]
    assert calls[:2] == [
        ("SpawnCoroutine", {"intent": "talk"}, "CID(1)"),
        ("ResumeCoroutine", {"cid": 1, "value": "'in'"}, "{'a': 1}"),
    ]
    assert calls[2][:2] == ("Yield", {"value": "{'a': 1}"})
    assert calls[3][0] == "ResumeCoroutine"
    assert len(calls[2][2]) < 100


# --- against Python's own generators ---


def summing(first: int) -> Generator[int, int, str]:
    """Yields the sum of what it was sent; ends at a negative number."""
    total = first
    while (more := (yield total)) >= 0:
        total += more
    return f"sum {total}"


async def compare(sent: list[int]) -> None:
    """Send the same to a coroutine and to a generator."""
    lab = Lab()
    async with trio.open_nursery() as nursery:
        await nursery.start(lab.kernel.run)
        _, sys = await lab.puppet()
        cid = sys.spawn_coroutine(lambda first: _summing(sys, first))
        generator = summing(sent[0])
        assert await sys.resume_coroutine(cid, sent[0]) == next(generator)
        for number in sent[1:]:
            try:
                expected: Any = generator.send(number)
            except StopIteration as end:
                expected = end.value
            assert await sys.resume_coroutine(cid, number) == expected
            if isinstance(expected, str):
                break
        nursery.cancel_scope.cancel()


async def _summing(sys: Syscalls, first: int) -> str:
    total = first
    while (more := await sys.yield_value(total)) >= 0:
        total += more
    return f"sum {total}"


@given(st.lists(st.integers(-3, 100), min_size=1, max_size=20))
def test_a_coroutine_is_a_generator(sent):
    """What is sent comes out of the yield, what is yielded out of the resume, in the same turns."""
    trio.run(compare, sent, clock=MockClock(autojump_threshold=0))
