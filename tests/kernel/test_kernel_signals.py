"""Signals, pauses and time limits: who may send them, what they do, and that nothing escapes them."""

import pytest
import trio
import trio.testing

from rnixfs import limits
from rnixfs.errors import Code, SyscallError
from rnixfs.proc.progress import StepEnd
from rnixfs.proc.signals import Signal
from rnixfs.proc.state import Exit, State
from rnixfs.syscalls import Syscalls
from tests.kernel.kernellab import HOUR, PERSON, SpyStore, agent, done, sleeper, stubborn, waiting

settle = trio.testing.wait_all_tasks_blocked


def code_of(call) -> Code:
    """The code that a call fails with."""
    with pytest.raises(SyscallError) as caught:
        call()
    return caught.value.code


async def stepper(sys: Syscalls) -> Exit:
    """A program of many short steps, paused between them only."""
    while True:
        await sys.boundary()
        step = sys.ask("", "")
        await trio.sleep(1)
        sys.end_step(StepEnd(step, "text"))


# --- who may ---


async def test_who_may_signal_whom(lab, autojump_clock):
    """People everybody; an agent itself and its descendants."""
    parent, stranger = lab.spawn(sleeper), lab.spawn(sleeper)
    child = lab.spawn(sleeper, agent(parent.pid))
    grandchild = lab.spawn(sleeper, agent(child.pid))
    await settle()
    for target in (parent, child, grandchild):
        lab.kernel.signal(target, Signal.PAUSE, agent(parent.pid))
        assert target.paused
    lab.kernel.signal(grandchild, Signal.RESUME, PERSON)
    for target in (parent, stranger):
        refused = code_of(lambda target=target: lab.kernel.signal(target, Signal.KILL, agent(child.pid)))
        assert refused is Code.PERMISSION
        assert target.live


async def test_what_has_ended_takes_no_signal(lab, autojump_clock):
    """INVALID, and no event."""
    process = await lab.run(done)
    reader = lab.kernel.events.join()
    for signal in Signal:
        assert code_of(lambda signal=signal: lab.kernel.signal(process, signal, PERSON)) is Code.INVALID
    lab.kernel.deliver(process, Signal.KILL)
    with pytest.raises(trio.WouldBlock):
        reader.read(99, 0)


# --- TERM, INT, KILL ---


@pytest.mark.parametrize(
    ("signal", "reason"),
    [
        (Signal.TERM, "terminated by SIGTERM"),
        (Signal.INT, "interrupted by SIGINT"),
        (Signal.KILL, "killed by SIGKILL"),
    ],
)
async def test_how_a_signal_ends_a_process(lab, autojump_clock, signal, reason):
    """Code 1 with the reason, at its next wait."""
    process = lab.spawn(sleeper)
    await settle()
    lab.kernel.signal(process, signal, PERSON)
    await process.done.wait()
    assert process.exit == Exit(1, reason)
    assert trio.current_time() == process.born


@pytest.mark.parametrize("signal", [Signal.TERM, Signal.INT, Signal.KILL])
async def test_a_process_can_be_ended_before_it_ran(lab, autojump_clock, signal):
    """Its program never does anything it could be stopped in."""
    ran: list[int] = []

    async def program(sys: Syscalls) -> Exit:
        await trio.lowlevel.checkpoint()
        ran.append(1)
        return Exit(0, "done")

    process = lab.spawn(program)
    lab.kernel.signal(process, signal, PERSON)
    await process.done.wait()
    await settle()
    assert process.exit.code == 1
    assert ran == []


async def test_kill_ends_at_once_whatever_the_program_does(lab, autojump_clock):
    """A shielded program is declared ended in the same step, once; its own end later changes nothing."""
    store = SpyStore()
    lab.kernel.log = store
    process = lab.spawn(stubborn)
    await settle()
    lab.kernel.signal(process, Signal.KILL, PERSON)
    assert process.exit == Exit(1, "killed by SIGKILL")
    assert process.state is State.DEAD
    assert process.done.is_set()
    await trio.sleep(200 * HOUR)
    assert process.exit == Exit(1, "killed by SIGKILL")
    assert store.events(1) == ["spawn", "signal", "exit", "reap"]


async def test_term_gives_ten_seconds(lab, autojump_clock):
    """A program that does not end in that time is declared ended."""
    process = lab.spawn(stubborn)
    await settle()
    lab.kernel.signal(process, Signal.TERM, PERSON)
    await trio.sleep(limits.TERM_GRACE_SECONDS - 0.1)
    assert process.live
    await trio.sleep(0.2)
    assert process.exit == Exit(1, "terminated by SIGTERM; it did not end in time")


async def test_term_twice_gives_no_second_grace_and_kill_ends_it(lab, autojump_clock):
    """The first reason stays for a second TERM; KILL comes through."""
    process = lab.spawn(stubborn)
    await settle()
    lab.kernel.signal(process, Signal.TERM, PERSON)
    await trio.sleep(6)
    lab.kernel.signal(process, Signal.INT, PERSON)
    await trio.sleep(5)
    assert process.exit == Exit(1, "terminated by SIGTERM; it did not end in time")
    other = lab.spawn(stubborn)
    await settle()
    lab.kernel.signal(other, Signal.TERM, PERSON)
    lab.kernel.signal(other, Signal.KILL, PERSON)
    assert other.exit == Exit(1, "killed by SIGKILL")


async def test_what_was_killed_does_nothing_more(lab, autojump_clock):
    """After the exit no event and no open file of it appears, also while its program unwinds."""
    store = SpyStore()
    lab.kernel.log = store

    async def program(sys: Syscalls) -> Exit:
        fd = await sys.open("/proc/self/status", 0)
        try:
            await trio.sleep_forever()
        finally:
            sys.close_now(fd)
            sys.block(Signal.TERM)

    process = lab.spawn(program)
    await settle()
    lab.kernel.signal(process, Signal.KILL, PERSON)
    calls = len(lab.trace(process))
    await settle()
    assert store.events(1) == ["spawn", "signal", "exit", "reap"]
    assert process.files == {}
    assert [call for call in lab.trace(process)[calls:] if "BAD_FD" in call.get("error", "")] == []


async def test_a_program_that_never_waits_is_ended_at_its_first_wait(lab, autojump_clock):
    """Work without a wait between is one step; the signal is seen when it is over."""
    process = None

    async def busy(sys: Syscalls) -> Exit:
        lab.kernel.signal(process, Signal.TERM, PERSON)
        for _ in range(1000):
            sys.say("think", "busy")
        await trio.lowlevel.checkpoint()
        raise AssertionError("unreachable")

    process = lab.spawn(busy)
    await process.done.wait()
    assert process.exit == Exit(1, "terminated by SIGTERM")


# --- PAUSE and RESUME ---


async def test_a_pause_takes_effect_between_steps(lab, autojump_clock):
    """A step that began is finished, none begins, and resuming goes on."""
    process = lab.spawn(stepper)
    await trio.sleep(2.5)
    lab.kernel.signal(process, Signal.PAUSE, PERSON)
    assert process.status()["paused"] is True
    await trio.sleep(100)
    assert process.steps == 3
    assert process.state is State.RUNNING
    lab.kernel.signal(process, Signal.RESUME, PERSON)
    await trio.sleep(1.5)
    assert process.steps > 3
    assert process.status()["paused"] is False


async def test_the_clock_stands_still_while_paused(lab, autojump_clock):
    """elapsed counts running time only, and stands at the end."""
    process = lab.spawn(stepper)
    await trio.sleep(2.5)
    lab.kernel.signal(process, Signal.PAUSE, PERSON)
    await trio.sleep(100)
    assert process.elapsed_ms() == 2500
    lab.kernel.signal(process, Signal.RESUME, PERSON)
    await trio.sleep(1)
    assert process.elapsed_ms() == 3500
    lab.kernel.signal(process, Signal.KILL, PERSON)
    await trio.sleep(10)
    assert process.elapsed_ms() == 3500


async def test_pausing_twice_is_pausing_once(lab, autojump_clock):
    """And so is resuming, also of what is not paused."""
    process = lab.spawn(stepper, timeout_ms=10_000)
    await trio.sleep(2.5)
    lab.kernel.signal(process, Signal.RESUME, PERSON)
    for _ in range(2):
        lab.kernel.signal(process, Signal.PAUSE, PERSON)
        await trio.sleep(50)
    for _ in range(2):
        lab.kernel.signal(process, Signal.RESUME, PERSON)
    await trio.sleep(7)
    assert process.live
    await trio.sleep(1)
    assert not process.live


@pytest.mark.parametrize("signal", [Signal.TERM, Signal.INT, Signal.KILL])
async def test_a_paused_process_can_be_ended(lab, autojump_clock, signal):
    """It does not have to be resumed first."""
    process = lab.spawn(stepper)
    await settle()
    lab.kernel.signal(process, Signal.PAUSE, PERSON)
    await trio.sleep(5)
    lab.kernel.signal(process, signal, PERSON)
    await process.done.wait()
    assert process.exit.code == 1
    assert process.paused is False


# --- time limits ---


async def test_a_time_limit_ends_a_process(lab, autojump_clock):
    """Code 1, and the reason names the limit."""
    process = lab.spawn(sleeper, timeout_ms=1500)
    await process.done.wait()
    assert trio.current_time() - process.born == pytest.approx(1.5)
    assert process.exit.code == 1
    assert process.exit.reason.startswith("timeout")
    assert "1500 ms" in process.exit.reason


async def test_a_time_limit_does_not_run_while_paused(lab, autojump_clock):
    """What was left of it is left after the pause."""
    process = lab.spawn(stepper, timeout_ms=5000)
    await trio.sleep(2.5)
    lab.kernel.signal(process, Signal.PAUSE, PERSON)
    await trio.sleep(HOUR)
    assert process.live
    lab.kernel.signal(process, Signal.RESUME, PERSON)
    await trio.sleep(2.4)
    assert process.live
    await trio.sleep(0.2)
    assert process.exit.reason.startswith("timeout")


async def test_a_time_limit_holds_for_a_process_paused_before_it_ran(lab, autojump_clock):
    """A pause in the step of the spawn stops its clock too, and the limit counts after it."""
    process = lab.spawn(stepper, timeout_ms=5000)
    lab.kernel.signal(process, Signal.PAUSE, PERSON)
    await trio.sleep(HOUR)
    assert process.live
    lab.kernel.signal(process, Signal.RESUME, PERSON)
    await trio.sleep(4.9)
    assert process.live
    await trio.sleep(0.2)
    assert not process.live


async def test_no_limit_is_no_limit(lab, autojump_clock):
    """0 means none."""
    process = await lab.run(waiting(1000 * HOUR), timeout_ms=0)
    assert process.exit == Exit(0, "done")


# --- blocked and handled signals ---


@pytest.mark.parametrize("signal", [Signal.TERM, Signal.INT, Signal.PAUSE])
async def test_a_blocked_signal_takes_effect_when_it_is_let_through(lab, autojump_clock, signal):
    """Not before, once, and then as if it had just come."""

    async def program(sys: Syscalls) -> Exit:
        sys.block(signal)
        await trio.sleep(10)
        sys.unblock(signal)
        while True:
            await sys.boundary()
            await trio.sleep(1)

    process = lab.spawn(program)
    await trio.sleep(1)
    lab.kernel.signal(process, signal, PERSON)
    lab.kernel.signal(process, signal, PERSON)
    await trio.sleep(8)
    assert process.live
    assert process.paused is False
    await trio.sleep(5)
    if signal is Signal.PAUSE:
        assert process.paused is True
    else:
        assert process.exit.code == 1


async def test_unblocking_what_did_not_come_does_nothing(lab, autojump_clock):
    """The process goes on."""

    async def program(sys: Syscalls) -> Exit:
        sys.block(Signal.TERM)
        sys.unblock(Signal.TERM)
        await trio.lowlevel.checkpoint()
        return Exit(0, "done")

    assert (await lab.run(program)).exit == Exit(0, "done")


@pytest.mark.parametrize("signal", [Signal.TERM, Signal.INT, Signal.PAUSE, Signal.RESUME])
async def test_a_program_may_handle_a_signal(lab, autojump_clock, signal):
    """The handler runs in place of the default, each time; without it the default is back."""
    heard: list[Signal] = []

    async def program(sys: Syscalls) -> Exit:
        sys.on_signal(signal, heard.append)
        await trio.sleep(10)
        sys.on_signal(signal, None)
        await trio.sleep(10)
        await sys.boundary()
        return Exit(0, "done")

    process = lab.spawn(program)
    await trio.sleep(1)
    lab.kernel.signal(process, signal, PERSON)
    lab.kernel.signal(process, signal, PERSON)
    assert heard == [signal, signal]
    await trio.sleep(10)
    assert process.live
    lab.kernel.signal(process, signal, PERSON)
    await settle()
    assert heard == [signal, signal]
    assert process.paused is (signal is Signal.PAUSE)
    assert process.live is (signal in (Signal.PAUSE, Signal.RESUME))


async def test_kill_cannot_be_handled(lab, autojump_clock):
    """The program is told so."""
    codes: list[Code] = []

    async def program(sys: Syscalls) -> Exit:
        for call in (lambda: sys.on_signal(Signal.KILL, print), lambda: sys.block(Signal.KILL)):
            try:
                call()
            except SyscallError as error:
                codes.append(error.code)
        return Exit(0, "done")

    process = await lab.run(program)
    assert codes == [Code.INVALID, Code.INVALID]
    assert process.exit.code == 0


async def test_a_handler_that_fails_does_not_hit_the_sender(lab, autojump_clock):
    """The fault of one program is never the error of another's call."""

    async def program(sys: Syscalls) -> Exit:
        def fail(_signal: Signal) -> None:
            raise ValueError("in the handler")

        sys.on_signal(Signal.TERM, fail)
        return await sleeper(sys)

    process = lab.spawn(program)
    await settle()
    lab.kernel.signal(process, Signal.TERM, PERSON)
    lab.kernel.signal(process, Signal.KILL, PERSON)
    assert not process.live


@pytest.mark.parametrize("line", ["term", "signal TERM", "signal sigterm", "signal 1", "TERM"])
async def test_the_control_file_sends_signals(lab, autojump_clock, line):
    """By name, with and without SIG, by number."""
    process = lab.spawn(sleeper)
    await settle()
    folder = lab.kernel.root.lookup("proc", PERSON).lookup("1", PERSON)
    folder.lookup("ctl", PERSON).open(PERSON, 1).write(line.encode() + b"\n", 0)
    await process.done.wait()
    assert process.exit == Exit(1, "terminated by SIGTERM")
