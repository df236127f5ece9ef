"""Suspending and waking: a program is cancelled where it stands, and started again, never twice at once."""

import pytest
import trio
import trio.testing

from rnixfs import limits
from rnixfs.errors import Code, SyscallError
from rnixfs.llm import Message, Role
from rnixfs.proc.groups import suspend_tree, wake_tree
from rnixfs.proc.process import Process
from rnixfs.proc.signals import Signal
from rnixfs.proc.state import Exit, State
from rnixfs.syscalls import Syscalls
from tests.kernel.kernellab import PERSON, ClosingNode, Lab, SpyStore, agent, done, sleeper, stubborn

settle = trio.testing.wait_all_tasks_blocked


class Runs:
    """A program that counts its runs, and how many of them there are at once."""

    def __init__(self) -> None:
        self.begun = 0
        self.inside = 0
        self.most = 0

    async def __call__(self, sys: Syscalls) -> Exit:
        self.begun += 1
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            return await sleeper(sys)
        finally:
            self.inside -= 1


def code_of(call) -> Code:
    """The code that a call fails with."""
    with pytest.raises(SyscallError) as caught:
        call()
    return caught.value.code


async def test_a_suspended_process_runs_no_more_until_it_is_woken(lab, autojump_clock):
    """Its program is cancelled; it lives, and says why it stands still; waking starts the program again."""
    runs = Runs()
    process = lab.spawn(runs)
    await settle()
    assert lab.kernel.suspend(process, "for a while")
    status = process.status()
    assert (status["state"], status["suspended"], status["exit"]) == ("suspended", "for a while", None)
    await settle()
    assert (runs.begun, runs.inside, process.live) == (1, 0, True)
    await trio.sleep(10)
    lab.kernel.wake(process)
    await settle()
    assert (runs.begun, runs.inside) == (2, 1)
    assert (process.state, process.suspended) == (State.RUNNING, "")


async def test_suspending_twice_is_suspending_once(lab, autojump_clock):
    """And waking what is not suspended is refused."""
    process = lab.spawn(sleeper)
    await settle()
    assert code_of(lambda: lab.kernel.wake(process)) is Code.INVALID
    assert lab.kernel.suspend(process, "first")
    assert not lab.kernel.suspend(process, "second")
    assert process.suspended == "first"
    assert [one.event for one in lab.kernel.log.load(process.pid)] == ["spawn", "suspend"]


@pytest.mark.parametrize("rounds", [1, 2, 3])
@pytest.mark.parametrize("ran", [False, True])
async def test_a_program_runs_once_however_often_it_is_suspended_and_woken(lab, autojump_clock, rounds, ran):
    """All in one step, before the program could notice anything: there is one run of it at a time."""
    runs = Runs()
    process = lab.spawn(runs)
    if ran:
        await settle()
    for _ in range(rounds):
        lab.kernel.suspend(process, "for a moment")
        lab.kernel.wake(process)
    await settle()
    assert (runs.inside, runs.most, runs.begun, process.exit) == (1, 1, 1 + ran, None)
    lab.kernel.suspend(process, "for a while")
    await settle()
    assert runs.inside == 0


async def test_a_program_that_unwinds_slowly_is_waited_for(lab, autojump_clock):
    """The next run begins when the one before has let go; what that one returns does not count."""
    begun: list[float] = []

    async def program(sys: Syscalls) -> Exit:
        begun.append(trio.current_time())
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(7)
        raise AssertionError("unreachable")

    process = lab.spawn(program)
    await settle()
    lab.kernel.suspend(process, "for a moment")
    lab.kernel.wake(process)
    await trio.sleep(6)
    assert (len(begun), process.live) == (1, True)
    await trio.sleep(2)
    assert begun[1] - begun[0] == pytest.approx(7)
    assert process.state is State.RUNNING


async def test_what_an_earlier_run_returns_is_not_the_end(lab, autojump_clock):
    """A program that takes its cancellation for its end does not end the process."""

    async def program(sys: Syscalls) -> Exit:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            return Exit(0, "I thought it was over")

    process = lab.spawn(program)
    await settle()
    lab.kernel.suspend(process, "for a moment")
    await settle()
    assert process.live
    lab.kernel.wake(process)
    lab.kernel.suspend(process, "again")
    lab.kernel.wake(process)
    await settle()
    assert process.state is State.RUNNING


async def test_an_earlier_run_can_do_nothing_more(lab, autojump_clock):
    """Neither while its process is suspended nor when that is woken."""
    codes: list[Code] = []
    calls: list[Syscalls] = []

    async def program(sys: Syscalls) -> Exit:
        calls.append(sys)
        try:
            await trio.sleep_forever()
        finally:
            if len(calls) == 1:
                codes.append(code_of(lambda: sys.append(Message(Role.USER, "too late"))))

    process = lab.spawn(program)
    await settle()
    lab.kernel.suspend(process, "for a moment")
    await settle()
    lab.kernel.wake(process)
    await settle()
    codes.append(code_of(lambda: calls[0].set_result("too late")))
    calls[1].set_result("in time")
    assert codes == [Code.INTERRUPTED, Code.INTERRUPTED]
    assert (process.context.messages, process.result) == ([], "in time")


async def test_threads_of_an_earlier_run_do_not_end_the_process(lab, autojump_clock):
    """Also where they take longer than a process may take to end."""
    begun: list[Syscalls] = []

    async def program(sys: Syscalls) -> Exit:
        begun.append(sys)
        if len(begun) == 1:
            sys.spawn_thread(lambda: stubborn(sys))
        return await sleeper(sys)

    process = lab.spawn(program)
    await settle()
    lab.kernel.suspend(process, "for a moment")
    lab.kernel.wake(process)
    await trio.sleep(10 * limits.TERM_GRACE_SECONDS)
    assert (process.exit, process.state) == (None, State.RUNNING)


async def test_a_program_that_has_ended_is_not_started_again(lab, autojump_clock):
    """While threads of it still unwind it is ending, so that it cannot be suspended any more."""

    async def program(sys: Syscalls) -> Exit:
        sys.spawn_thread(lambda: stubborn(sys))
        await trio.sleep(1)
        return Exit(0, "all done")

    process = lab.spawn(program)
    await trio.sleep(2)
    assert process.live
    assert not lab.kernel.suspend(process, "too late")
    await process.done.wait()
    assert process.exit == Exit(0, "all done")


async def test_files_are_closed_and_handlers_forgotten(lab, autojump_clock):
    """What only a run of the program knows of goes with it; what the process holds stays."""
    closed: list[str] = []
    lab.dev["a"] = ClosingNode("a", lambda: b"", closed=closed)

    async def program(sys: Syscalls) -> Exit:
        await sys.open("/dev/a", 0)
        sys.on_signal(Signal.INT, lambda _signal: None)
        sys.block(Signal.TERM)
        return await sleeper(sys)

    process = lab.spawn(program)
    await settle()
    lab.kernel.groups.join(process, "team", PERSON)
    lab.kernel.channels.send(0, process, "hello")
    lab.kernel.signal(process, Signal.TERM, PERSON)
    lab.kernel.suspend(process, "for a while")
    assert (closed, process.files) == (["a"], {})
    assert (process.signals.handled, process.handlers) == (set(), {})
    assert (process.signals.blocked, process.signals.pending) == ({Signal.TERM}, {Signal.TERM})
    assert lab.kernel.groups.of(process) == ["team"]
    assert len(lab.kernel.channels.queue(process)) == 1


async def test_the_clock_stands_still_while_suspended(lab, autojump_clock):
    """As in a pause; a pause inside a suspension, and the other way round, both have to be over."""
    process = lab.spawn(sleeper, timeout_ms=5000)
    await trio.sleep(2)
    lab.kernel.suspend(process, "for a while")
    await trio.sleep(100)
    lab.kernel.signal(process, Signal.PAUSE, PERSON)
    lab.kernel.wake(process)
    await trio.sleep(100)
    assert process.elapsed_ms() == 2000
    lab.kernel.suspend(process, "for a while")
    lab.kernel.signal(process, Signal.RESUME, PERSON)
    await trio.sleep(100)
    assert process.elapsed_ms() == 2000
    lab.kernel.wake(process)
    await trio.sleep(2.9)
    assert process.live
    await trio.sleep(0.2)
    assert process.exit.reason.startswith("timeout")


@pytest.mark.parametrize(
    ("signal", "reason"),
    [
        (Signal.TERM, "terminated by SIGTERM"),
        (Signal.INT, "interrupted by SIGINT"),
        (Signal.KILL, "killed by SIGKILL"),
    ],
)
async def test_a_suspended_process_ends_at_once(lab, autojump_clock, signal, reason):
    """Nothing of it has to unwind."""
    process = lab.spawn(sleeper)
    await settle()
    lab.kernel.suspend(process, "for a while")
    lab.kernel.signal(process, signal, PERSON)
    assert (process.exit, process.state) == (Exit(1, reason), State.DEAD)
    assert process.status()["suspended"] == ""
    assert code_of(lambda: lab.kernel.wake(process)) is Code.INVALID


async def test_a_process_can_be_suspended_before_it_ran(lab, autojump_clock):
    """Its program begins when it is woken."""
    runs = Runs()
    process = lab.spawn(runs)
    lab.kernel.suspend(process, "not yet")
    await settle()
    assert (runs.begun, process.state) == (0, State.SUSPENDED)
    lab.kernel.wake(process)
    await settle()
    assert (runs.begun, process.state) == (1, State.RUNNING)


async def test_what_is_ending_is_not_suspended(lab, autojump_clock):
    """It was told to end, and does; what has ended is refused."""
    process = lab.spawn(sleeper)
    await settle()
    lab.kernel.signal(process, Signal.TERM, PERSON)
    assert not lab.kernel.suspend(process, "too late")
    await process.done.wait()
    assert process.exit == Exit(1, "terminated by SIGTERM")
    assert code_of(lambda: suspend_tree(lab.kernel, process, "too late", PERSON)) is Code.INVALID


async def test_nothing_is_woken_while_the_system_stops(lab, autojump_clock):
    """As nothing is spawned."""
    process = lab.spawn(sleeper)
    await settle()
    lab.kernel.suspend(process, "for a while")
    lab.kernel.shut_down()
    assert code_of(lambda: lab.kernel.wake(process)) is Code.SERVICE_UNAVAILABLE
    assert process.state is State.SUSPENDED


async def test_what_a_process_needs_is_looked_at_before_anybody_is_woken(lab, autojump_clock):
    """Where it is gone for one of a tree, none of them is woken."""
    parent = lab.spawn(sleeper)
    child = lab.spawn(sleeper, agent(parent.pid))
    await settle()
    assert suspend_tree(lab.kernel, parent, "for a while", PERSON) == 2

    def check_ready(launch) -> None:
        if launch is child.launch:
            raise SyscallError(Code.NOT_FOUND, "its working folder is gone")

    lab.check_ready = check_ready
    assert code_of(lambda: lab.kernel.wake(child)) is Code.NOT_FOUND
    assert code_of(lambda: wake_tree(lab.kernel, parent, PERSON)) is Code.NOT_FOUND
    assert {parent.state, child.state} == {State.SUSPENDED}


async def test_who_may_suspend_and_wake(lab, autojump_clock):
    """People everybody; an agent itself and its descendants; nobody above or beside is concerned."""
    boss, stranger = lab.spawn(sleeper), lab.spawn(sleeper)
    parent = lab.spawn(sleeper, agent(boss.pid))
    child = lab.spawn(sleeper, agent(parent.pid))
    await settle()
    for call in (
        lambda: suspend_tree(lab.kernel, parent, "why not", agent(stranger.pid)),
        lambda: suspend_tree(lab.kernel, parent, "why not", agent(child.pid)),
        lambda: wake_tree(lab.kernel, parent, agent(stranger.pid)),
    ):
        assert code_of(call) is Code.PERMISSION
    suspend_tree(lab.kernel, parent, "because", agent(boss.pid))
    states = [one.state for one in (boss, stranger, parent, child)]
    assert states == [State.RUNNING, State.RUNNING, State.SUSPENDED, State.SUSPENDED]


async def test_a_parent_hears_of_an_end_that_came_while_it_was_suspended(lab, autojump_clock):
    """Once, also where somebody else reaped the child meanwhile."""
    heard: list[int] = []

    async def program(sys: Syscalls) -> Exit:
        heard.extend(end.pid for end in sys.ended_children())
        return await sleeper(sys)

    parent = lab.spawn(program)
    await settle()
    lab.kernel.suspend(parent, "for a while")
    zombie, removed = (lab.spawn(done, PERSON, parent=parent.pid) for _ in range(2))
    await settle()
    lab.kernel.remove(removed, PERSON)
    assert heard == []
    for _ in range(2):
        lab.kernel.wake(parent)
        await settle()
        lab.kernel.suspend(parent, "again")
        await settle()
    assert sorted(heard) == [zombie.pid, removed.pid]


async def test_an_event_is_stored_before_a_suspension_shows(nursery, autojump_clock):
    """And before a waking does; where it cannot be stored, nothing happens."""
    store = SpyStore()
    lab = Lab(store)
    await nursery.start(lab.kernel.run)
    process: Process = lab.spawn(sleeper)
    await settle()
    store.look = lambda _event, _pid: (process.state.value, process.suspended)
    lab.kernel.suspend(process, "why")
    lab.kernel.wake(process)
    await settle()
    assert store.seen[-2:] == [("suspend", 1, ("running", "")), ("wake", 1, ("suspended", "why"))]

    def fail(_event: str, _pid: int) -> None:
        raise SyscallError(Code.RESOURCE_EXHAUSTED, "the disk is full")

    store.look = fail
    assert code_of(lambda: lab.kernel.suspend(process, "why")) is Code.RESOURCE_EXHAUSTED
    assert process.state is State.RUNNING
