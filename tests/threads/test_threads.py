"""Threads: they share all that their process has, and end when it does, whatever they wait for."""

import functools
import json
import os

import pytest
import trio

from rnixfs import limits
from rnixfs.errors import Code, SyscallError
from rnixfs.llm import Message, Role
from rnixfs.proc.process import Process
from rnixfs.proc.signals import Signal
from rnixfs.proc.state import Exit
from rnixfs.proc.threads import Stage
from rnixfs.syscalls import Syscalls
from tests.groups.grouplab import Lab, refused, settle
from tests.kernel.kernellab import PERSON, done, sleeper


def status(lab: Lab, process: Process, tid: int) -> dict[str, object]:
    """What the file of a thread says."""
    found: dict[str, object] = json.loads(lab.read(f"/proc/{process.pid}/threads/{tid}/status"))
    return found


# --- results ---


async def test_joining_gives_what_a_thread_returned(lab, autojump_clock):
    """Before and after its end, to any number of others, any number of times."""
    gate = trio.Event()
    got: list[int] = []

    async def program(sys: Syscalls) -> Exit:
        async def slow() -> int:
            await gate.wait()
            return 42

        async def waiter() -> None:
            got.append(await sys.join_thread(1))

        assert sys.spawn_thread(slow, "be slow") == 1
        others = [sys.spawn_thread(waiter) for _ in range(2)]
        gate.set()
        for tid in (1, *others, 1):
            got.append(await sys.join_thread(tid))
        return Exit(0, "done")

    process = await lab.run(program)
    assert process.exit == Exit(0, "done")
    assert sorted(got, key=str) == [42, 42, 42, 42, None, None]


async def test_a_thread_that_fails_tells_who_joins_it(lab, autojump_clock):
    """With its own code where it had one; the process goes on, and its log has a warning."""
    caught: list[SyscallError] = []

    async def program(sys: Syscalls) -> Exit:
        async def denied() -> None:
            await sys.open("/dev/none")

        async def broken() -> None:
            raise ValueError("oops")

        for function in (denied, broken):
            tid = sys.spawn_thread(function)
            for _ in range(2):
                try:
                    await sys.join_thread(tid)
                except SyscallError as error:
                    caught.append(error)
        return Exit(0, "still here")

    process = await lab.run(program)
    assert process.exit == Exit(0, "still here")
    assert [error.code for error in caught] == [Code.NOT_FOUND] * 2 + [Code.INTERNAL] * 2
    assert "thread 1: no such file" in caught[0].reason
    assert "thread 2: ValueError: oops" in caught[2].reason
    assert bytes(process.log.data).count(b"warning thread") == 2


async def test_threads_share_context_files_and_rights(lab, autojump_clock):
    """What one opens another reads; what one appends is in the conversation."""

    async def program(sys: Syscalls) -> Exit:
        async def opener() -> int:
            sys.append(Message(Role.USER, "from a thread"))
            return await sys.open("/proc/self/intent", os.O_RDONLY)

        fd = await sys.join_thread(sys.spawn_thread(opener))
        assert (await sys.read_all(fd)).startswith(b"program")
        assert [message.content for message in sys.context] == ["from a thread"]
        return Exit(0, "done")

    process = await lab.run(program)
    assert process.exit == Exit(0, "done")


# --- ending with the process ---


@pytest.mark.parametrize("how", ["returns", "raises", "term", "kill", "timeout", "int"])
async def test_threads_end_with_their_process(lab, autojump_clock, how):
    """However it ends and whatever they wait for; nothing of them is left."""
    ended: list[str] = []

    async def program(sys: Syscalls) -> Exit:
        async def waits(name: str, wait) -> None:
            try:
                await wait()
            finally:
                ended.append(name)

        fd = await sys.open(f"/proc/{sys.pid}/wait", os.O_RDONLY)
        child = await sys.spawn(lab.named(sleeper))
        waits_for = {
            "sleep": trio.sleep_forever,
            "child": lambda: sys.wait(child),
            "join": lambda: sys.join_thread(1),
            "file": lambda: sys.read(fd),
        }
        for name, wait in waits_for.items():
            sys.spawn_thread(functools.partial(waits, name, wait), name)
        await settle()
        if how == "returns":
            return Exit(0, "done")
        if how == "raises":
            raise ValueError("oops")
        return await sleeper(sys)

    process = lab.spawn(program, timeout_ms=1000)
    await settle()
    if how in ("term", "kill", "int"):
        lab.write(f"/proc/{process.pid}/ctl", f"{how}\n")
    await process.done.wait()
    await settle()
    assert sorted(ended) == ["child", "file", "join", "sleep"]
    assert [status(lab, process, tid)["state"] for tid in (1, 2, 3, 4)] == ["cancelled"] * 4
    assert not process.threads.alive()
    assert not process.threads.busy()


@pytest.mark.parametrize("how", ["returns", "timeout", "term"])
async def test_a_thread_that_no_cancellation_reaches_does_not_keep_its_process(lab, autojump_clock, how):
    """It has the time of a TERM, then the process ends without it."""
    gate = trio.Event()

    async def program(sys: Syscalls) -> Exit:
        async def stubborn() -> None:
            with trio.CancelScope(shield=True):
                await gate.wait()

        sys.spawn_thread(stubborn)
        await settle()
        return Exit(0, "done") if how == "returns" else await sleeper(sys)

    process = lab.spawn(program, timeout_ms=1000)
    await settle()
    before = trio.current_time()
    if how == "term":
        lab.kernel.signal(process, Signal.TERM, PERSON)
    await process.done.wait()
    limit = limits.TERM_GRACE_SECONDS + (1.0 if how == "timeout" else 0.0)
    assert trio.current_time() - before == pytest.approx(limit, abs=0.1)
    assert process.exit is not None
    assert process.exit.reason.startswith(
        {"returns": "done", "timeout": "timeout", "term": "terminated"}[how]
    )
    assert status(lab, process, 1)["state"] == "cancelled"
    gate.set()
    await settle()
    assert status(lab, process, 1)["state"] == "cancelled"


async def test_threads_do_not_outlive_the_run_that_made_them(nursery, autojump_clock):
    """The kernel stops as soon as it is told to, with threads in every stage: those that had not ended count
    as cancelled, and a process that is woken starts without them."""
    lab = Lab()
    async with trio.open_nursery() as own:
        await own.start(lab.kernel.run)
        process, sys = await lab.puppet()
        sys.spawn_thread(trio.sleep_forever)
        sys.spawn_coroutine(trio.sleep)
        await settle()
        start = trio.current_time()
        await lab.kernel.suspend_all()
        assert trio.current_time() == start
        assert [status(lab, process, tid)["state"] for tid in (1, 2)] == ["cancelled", "cancelled"]
        lab.kernel.wake(process)
        await settle()
        assert process.live
        assert not process.threads.alive()
        own.cancel_scope.cancel()


@pytest.mark.parametrize("signal", [Signal.KILL, Signal.TERM])
async def test_a_process_that_ends_starts_no_threads(lab, autojump_clock, signal):
    """Neither while it is being ended nor after."""
    process, sys = await lab.puppet()
    lab.kernel.signal(process, signal, PERSON)
    for call in (lambda: sys.spawn_thread(trio.sleep_forever), lambda: sys.spawn_coroutine(trio.sleep)):
        with refused(Code.INVALID if process.live else Code.INTERRUPTED):
            call()
    assert not process.threads.alive()


# --- refusals and limits ---


async def test_what_cannot_be_joined(lab, autojump_clock):
    """Itself, what is not there, and coroutines."""
    _, sys = await lab.puppet()
    caught: list[SyscallError] = []

    async def selfish() -> None:
        try:
            await sys.join_thread(1)
        except SyscallError as error:
            caught.append(error)

    await sys.join_thread(sys.spawn_thread(selfish))
    assert caught[0].code is Code.INVALID
    cid = sys.spawn_coroutine(trio.sleep)
    with refused(Code.INVALID, "is a coroutine; resume it"):
        await sys.join_thread(cid)
    with refused(Code.NOT_FOUND, "no thread 99"):
        await sys.join_thread(99)


async def test_threads_are_limited(lab, autojump_clock, monkeypatch):
    """Those that have not ended, coroutines among them; one that ends makes room."""
    monkeypatch.setattr(limits, "THREADS_MAX", 3)
    gate = trio.Event()
    _, sys = await lab.puppet()
    first = sys.spawn_thread(gate.wait)
    sys.spawn_thread(trio.sleep_forever)
    sys.spawn_coroutine(trio.sleep)
    for call in (lambda: sys.spawn_thread(gate.wait), lambda: sys.spawn_coroutine(trio.sleep)):
        with refused(Code.RESOURCE_EXHAUSTED, "3 threads"):
            call()
    gate.set()
    await sys.join_thread(first)
    assert sys.spawn_thread(gate.wait) == 4


async def test_ended_threads_are_kept_for_a_while_the_joined_ones_shorter(lab, autojump_clock, monkeypatch):
    """So many that nobody who joins all it may start finds one gone; numbers are never used again."""
    monkeypatch.setattr(limits, "THREADS_KEPT", 3)
    process, sys = await lab.puppet()

    async def nothing() -> None:
        pass

    for _ in range(3):
        sys.spawn_thread(nothing)
    await settle()
    await sys.join_thread(2)
    for _ in range(2):
        sys.spawn_thread(nothing)
        await settle()
    assert lab.names(f"/proc/{process.pid}/threads") == ["3", "4", "5"]
    with refused(Code.NOT_FOUND, "last 3"):
        await sys.join_thread(2)
    assert limits.THREADS_KEPT <= limits.THREADS_MAX


def test_as_many_ended_threads_are_kept_as_may_run():
    """So that who starts all it may and joins them afterwards finds each."""
    assert limits.THREADS_KEPT >= limits.THREADS_MAX


# --- files ---


async def test_the_status_of_a_thread_is_a_file(lab, autojump_clock):
    """Its fields, while it runs and after; also of a process in the history."""
    process, sys = await lab.puppet()
    assert lab.names(f"/proc/{process.pid}/threads") == []
    gate = trio.Event()

    async def work() -> None:
        await gate.wait()
        raise ValueError("oops")

    sys.spawn_thread(work, "count the files")
    await trio.sleep(2)
    running = {"tid": 1, "kind": "thread", "intent": "count the files", "state": "running", "error": ""}
    assert status(lab, process, 1) == {**running, "elapsed_ms": 2000}
    gate.set()
    await settle()
    await trio.sleep(5)
    failed = {**running, "state": "failed", "error": "thread 1: ValueError: oops", "elapsed_ms": 2000}
    assert status(lab, process, 1) == failed
    assert lab.names(f"/proc/{process.pid}/threads/1") == ["status"]
    lab.kernel.signal(process, Signal.KILL, PERSON)
    history = f"/proc/history/{process.uuid}/threads/1/status"
    assert json.loads(lab.read(history)) == failed
    for name in ("2", "01", "x", "²"):
        with refused(Code.NOT_FOUND):
            lab.node(f"/proc/{process.pid}/threads/{name}")
    with refused(Code.PERMISSION):
        lab.node(history).open(PERSON, os.O_WRONLY)


async def test_calls_on_threads_are_traced_by_name(lab, autojump_clock):
    """With the number that a thread got, and long values cut."""
    process, sys = await lab.puppet()

    async def give() -> str:
        return "x" * 1000

    assert await sys.join_thread(sys.spawn_thread(give, "give")) == "x" * 1000
    spawned, joined = lab.trace(process)
    assert (spawned["syscall"], spawned["args"], spawned["result"]) == (
        "SpawnThread",
        {"intent": "give"},
        "TID(1)",
    )
    assert (joined["syscall"], joined["args"]) == ("JoinThread", {"tid": 1})
    assert len(joined["result"]) < 100


async def test_a_process_without_threads_ends_as_ever(lab, autojump_clock):
    """At once, with its own result."""
    process = await lab.run(done)
    assert process.exit == Exit(0, "done")
    assert lab.names(f"/proc/{process.pid}/threads") == []
    assert Stage.RUNNING.value == "running"
