"""The life of processes: spawn, end, wait, reap, reparent, history, and the events that tell of it."""

import msgspec
import pytest
import trio
import trio.testing

from rnixfs import limits
from rnixfs.errors import Code, LogError, SyscallError
from rnixfs.node import StreamFile
from rnixfs.proc.birth import Birth, read_birth
from rnixfs.proc.process import Process
from rnixfs.proc.signals import Signal
from rnixfs.proc.state import Exit, State
from rnixfs.syscalls import Syscalls
from tests.kernel.kernellab import (
    PERSON,
    ClosingNode,
    Lab,
    SpyStore,
    agent,
    done,
    sleeper,
    stubborn,
    waiting,
)

settle = trio.testing.wait_all_tasks_blocked


def code_of(call) -> Code:
    """The code that a call fails with."""
    with pytest.raises(SyscallError) as caught:
        call()
    return caught.value.code


# --- spawn and end ---


async def test_a_process_runs_and_ends(lab, autojump_clock):
    """created, running, then dead at once, since nobody of this system waits for it."""
    process = lab.spawn(done)
    assert (process.pid, process.ppid, process.depth, process.state) == (1, 0, 1, State.CREATED)
    await process.done.wait()
    assert process.exit == Exit(0, "done")
    assert process.state is State.DEAD


async def test_pids_only_grow(lab, autojump_clock):
    """From 1, one by one, never used again, whatever ended in between."""
    first = await lab.run(done)
    lab.kernel.remove(first, PERSON)
    second = await lab.run(done)
    await trio.sleep(2 * limits.DEAD_VISIBLE_SECONDS)
    assert lab.kernel.processes == {}
    third = await lab.run(done)
    assert [first.pid, second.pid, third.pid] == [1, 2, 3]


async def test_pids_go_on_from_what_was_seen(nursery, autojump_clock):
    """After a restart no number is given again that any event of the log has, whatever became of it."""
    store = SpyStore()
    store.append_event("signal", 69, {})
    lab = Lab(store)
    await nursery.start(lab.kernel.run)
    assert lab.spawn(done).pid == 70
    assert Lab(store).kernel.log.last_pid() == 70


async def test_a_refused_spawn_uses_no_pid_and_leaves_nothing(lab, autojump_clock):
    """The launcher's refusal is the caller's error."""
    store = SpyStore()
    lab.kernel.log = store

    def refuse(request, parent):
        raise SyscallError(Code.NOT_FOUND, "no such agent")

    lab.launch, right = refuse, lab.launch
    assert code_of(lambda: lab.spawn(done)) is Code.NOT_FOUND
    lab.launch = right
    assert store.seen == []
    assert lab.kernel.processes == {}
    assert lab.spawn(done).pid == 1


async def test_a_child_belongs_to_the_agent_that_spawns_it(lab, autojump_clock):
    """Whether by a system call or through the mount; a person's process belongs to the system."""
    parent = lab.spawn(sleeper)
    child = lab.spawn(sleeper, agent(parent.pid))
    grandchild = lab.spawn(sleeper, agent(parent.pid), parent=child.pid)
    for_them = lab.spawn(sleeper, PERSON, parent=parent.pid)
    assert [one.ppid for one in (parent, child, grandchild, for_them)] == [0, 1, 2, 1]
    assert list(parent.children) == [child.pid, for_them.pid]
    assert (child.depth, grandchild.depth) == (2, 3)


async def test_whose_children_an_agent_may_make(lab, autojump_clock):
    """Its own and its descendants'; not the system's, not a stranger's, not its own parent's."""
    parent, stranger = lab.spawn(sleeper), lab.spawn(sleeper)
    child = lab.spawn(sleeper, agent(parent.pid))
    for pid in (0, stranger.pid, parent.pid):
        assert code_of(lambda pid=pid: lab.spawn(done, agent(child.pid), parent=pid)) is Code.PERMISSION
    assert code_of(lambda: lab.spawn(done, PERSON, parent=99)) is Code.NOT_FOUND


async def test_what_ended_has_no_more_children(lab, autojump_clock):
    """Nor has what is ending."""
    parent = lab.spawn(sleeper)
    await settle()
    lab.kernel.signal(parent, Signal.TERM, PERSON)
    assert code_of(lambda: lab.spawn(done, agent(parent.pid))) is Code.INVALID
    await parent.done.wait()
    assert code_of(lambda: lab.spawn(done, agent(parent.pid))) is Code.INVALID


async def test_generations_are_limited(lab, autojump_clock):
    """Exactly as deep as the limit says."""
    process = lab.spawn(sleeper)
    for _ in range(limits.SPAWN_DEPTH_MAX - 1):
        process = lab.spawn(sleeper, agent(process.pid))
    assert process.depth == limits.SPAWN_DEPTH_MAX
    assert code_of(lambda: lab.spawn(done, agent(process.pid))) is Code.RESOURCE_EXHAUSTED


async def test_processes_are_limited(lab, autojump_clock, monkeypatch):
    """The number of live ones; when some have gone there is room again."""
    monkeypatch.setattr(limits, "PROCESSES_MAX", 3)
    processes = [lab.spawn(sleeper) for _ in range(3)]
    assert code_of(lambda: lab.spawn(done)) is Code.RESOURCE_EXHAUSTED
    lab.kernel.remove(processes[0], PERSON)
    lab.spawn(sleeper)


async def test_dead_processes_take_no_room(lab, autojump_clock, monkeypatch):
    """The limit is one of live processes, or a burst of short ones would close the system for a minute."""
    monkeypatch.setattr(limits, "PROCESSES_MAX", 3)
    for _ in range(10):
        await lab.run(done)
    assert lab.spawn(done).live


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("secret"), "ValueError inside its program; the daemon's log has it"),
        (
            SyscallError(Code.TIMEOUT, "slow", syscall="Read", device="/dev/x", pid=1),
            "[TIMEOUT] PID 1 Read: /dev/x (slow)",
        ),
    ],
)
async def test_a_program_that_raises_ends_its_process_only(lab, autojump_clock, caplog, error, reason):
    """Code 1 with the reason; what is unexpected goes to the log; other processes go on."""

    async def program(sys: Syscalls) -> Exit:
        raise error

    other = lab.spawn(sleeper)
    process = await lab.run(program)
    assert process.exit == Exit(1, reason)
    assert other.live
    assert ("failed inside" in caplog.text) is isinstance(error, ValueError)


async def test_a_program_that_fails_in_a_nursery_is_contained(lab, autojump_clock, caplog):
    """A group of errors is an error."""

    async def program(sys: Syscalls) -> Exit:
        async def fail() -> None:
            raise KeyError("x")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)
        raise AssertionError("unreachable")

    process = await lab.run(program)
    assert process.exit.code == 1
    assert "Group" in process.exit.reason


async def test_a_program_may_end_itself_while_it_is_ending(lab, autojump_clock):
    """TERM lets it finish what it does: its own exit counts."""

    async def program(sys: Syscalls) -> Exit:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            return Exit(0, "saved")

    process = lab.spawn(program)
    await settle()
    lab.kernel.signal(process, Signal.TERM, PERSON)
    await process.done.wait()
    assert process.exit == Exit(0, "saved")


async def test_the_end_closes_what_was_open(lab, autojump_clock):
    """Files, streams of its folder, signals that waited."""
    closed: list[str] = []
    lab.dev["a"] = ClosingNode("a", lambda: b"", closed=closed)
    lab.dev["b"] = ClosingNode("b", lambda: b"", closed=closed)

    async def program(sys: Syscalls) -> Exit:
        await sys.open("/dev/a", 0)
        await sys.open("/dev/b", 0)
        sys.block(Signal.INT)
        return Exit(0, "done")

    process = lab.spawn(program)
    streams: list[StreamFile] = [
        process.trace_live.join(),
        process.log_live.join(),
        process.ended_live.join(),
    ]
    await process.done.wait()
    assert closed == ["a", "b"]
    assert process.files == {}
    for stream in streams:
        while stream.read(1 << 20, 0):
            pass


@pytest.mark.parametrize("how", ["wait before", "wait after"])
async def test_wait_tells_any_number_of_readers(lab, autojump_clock, how):
    """The line of `wait` is there for those who waited and for those who come later."""

    async def program(sys: Syscalls) -> Exit:
        await trio.sleep(2)
        sys.set_result("42")
        return Exit(2, "budget")

    process = lab.spawn(program)
    if how == "wait after":
        await process.done.wait()
    folder = lab.kernel.root.lookup("proc", PERSON).lookup("1", PERSON).lookup(".live", PERSON)
    readers = [folder.lookup("wait", PERSON).open(PERSON, 0) for _ in range(3)]
    await process.done.wait()
    for reader in readers:
        assert msgspec.json.decode(reader.read(1 << 20, 0)) == {
            "code": 2,
            "reason": "budget",
            "result": "42",
            "tokens_used": 0,
            "elapsed_ms": 2000,
        }
        assert reader.read(1 << 20, 0) == b""


# --- zombies, orphans, the dead ---


async def test_a_child_stays_a_zombie_until_it_is_waited_for(lab, autojump_clock):
    """Then it is dead; a second wait finds no child."""
    seen: list[object] = []

    async def program(sys: Syscalls) -> Exit:
        pid = await sys.spawn(lab.named(done))
        child = lab.kernel.process(pid)
        await child.done.wait()
        await trio.sleep(1000)
        seen.append(child.state)
        seen.append(await sys.wait(pid))
        seen.append(child.state)
        assert lab.kernel.process(sys.pid).children == {}
        return Exit(0, "done")

    process = await lab.run(program)
    assert process.exit == Exit(0, "done")
    assert seen == [State.ZOMBIE, (Exit(0, "done"), ""), State.DEAD]


async def test_orphans_go_to_the_system(lab, autojump_clock):
    """Live children become children of process 0, reaped when they end; zombies are reaped at once."""
    children: list[Process] = []

    async def program(sys: Syscalls) -> Exit:
        for one in (done, sleeper):
            children.append(lab.kernel.process(await sys.spawn(lab.named(one))))
        await children[0].done.wait()
        return Exit(0, "done")

    parent = await lab.run(program)
    zombie, live = children
    assert (zombie.state, live.state) == (State.DEAD, State.RUNNING)
    assert (live.ppid, parent.children) == (0, {})
    assert not live.descends_from(parent.pid)
    lab.kernel.signal(live, Signal.KILL, PERSON)
    assert live.state is State.DEAD


async def test_an_orphan_keeps_the_bounds_of_its_parent(lab, autojump_clock):
    """Losing a parent gives no rights."""
    parent = lab.spawn(sleeper, allowed_devices=["/dev/a"])
    child = lab.spawn(sleeper, agent(parent.pid))
    lab.kernel.signal(parent, Signal.KILL, PERSON)
    assert child.parent is None
    assert child.rights.permits("/dev/a")
    assert not child.rights.permits("/dev/b")


async def test_the_dead_stay_visible_for_a_while(lab, autojump_clock):
    """60 seconds in the table, then only in the history, which reads them from the log; others are told."""
    removed: list[int] = []
    lab.kernel.on_removed = removed.append
    process = await lab.run(done)
    await trio.sleep(limits.DEAD_VISIBLE_SECONDS - 1)
    assert lab.kernel.process(1) is process
    assert removed == []
    await trio.sleep(2)
    assert code_of(lambda: lab.kernel.process(1)) is Code.NOT_FOUND
    assert removed == [1]
    assert lab.kernel.history.uuids() == [process.uuid]
    past = lab.kernel.history.find(process.uuid)
    assert past is not process
    assert past is lab.kernel.history.by_pid(1)
    assert (past.pid, past.uuid, past.state, past.exit) == (1, process.uuid, State.DEAD, process.exit)


async def test_a_zombie_stays_visible_until_it_is_reaped(lab, autojump_clock):
    """However long that takes."""
    parent = lab.spawn(sleeper)
    child = lab.spawn(done, agent(parent.pid))
    await trio.sleep(10 * limits.DEAD_VISIBLE_SECONDS)
    assert lab.kernel.process(child.pid).state is State.ZOMBIE


async def test_the_history_keeps_the_last_ones(lab, autojump_clock, monkeypatch):
    """First in, first out, bounded."""
    monkeypatch.setattr(limits, "HISTORY_MAX", 3)
    processes = [await lab.run(done) for _ in range(5)]
    assert lab.kernel.history.uuids() == [one.uuid for one in processes[2:]]
    assert len(lab.kernel.history) == 3
    assert lab.kernel.history.find(processes[0].uuid) is None


async def test_removing_kills_reaps_and_forgets(lab, autojump_clock):
    """`rmdir proc/<pid>`, also of what cannot be cancelled; its child goes to the system; once only."""
    removed: list[int] = []
    lab.kernel.on_removed = removed.append
    parent = lab.spawn(sleeper)
    process = lab.spawn(stubborn, agent(parent.pid))
    child = lab.spawn(sleeper, agent(process.pid))
    await settle()
    lab.kernel.remove(process, PERSON)
    assert process.exit == Exit(1, "killed by SIGKILL")
    assert process.state is State.DEAD
    assert process.pid not in lab.kernel.processes
    assert lab.kernel.history.uuids() == [process.uuid]
    assert (child.ppid, parent.children) == (0, {})
    await trio.sleep(2 * limits.DEAD_VISIBLE_SECONDS)
    assert removed == [process.pid]


async def test_whom_an_agent_may_remove(lab, autojump_clock):
    """Itself and what descends from it."""
    parent, stranger = lab.spawn(sleeper), lab.spawn(sleeper)
    child = lab.spawn(sleeper, agent(parent.pid))
    assert code_of(lambda: lab.kernel.remove(stranger, agent(parent.pid))) is Code.PERMISSION
    assert code_of(lambda: lab.kernel.remove(parent, agent(child.pid))) is Code.PERMISSION
    assert stranger.live
    lab.kernel.remove(child, agent(parent.pid))
    assert not child.live


async def test_wait_is_for_ones_own_children(lab, autojump_clock):
    """A stranger is refused, an unknown pid is not found."""
    stranger = lab.spawn(sleeper)
    codes: list[Code] = []

    async def program(sys: Syscalls) -> Exit:
        for pid in (stranger.pid, sys.pid, 99):
            try:
                await sys.wait(pid)
            except SyscallError as error:
                codes.append(error.code)
        return Exit(0, "done")

    await lab.run(program)
    assert codes == [Code.PERMISSION, Code.PERMISSION, Code.NOT_FOUND]


async def test_two_tasks_may_wait_for_one_child(lab, autojump_clock):
    """Both hear how it ended."""
    heard: list[int] = []

    async def program(sys: Syscalls) -> Exit:
        pid = await sys.spawn(lab.named(waiting(5)))

        async def wait() -> None:
            heard.append((await sys.wait(pid))[0].code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            nursery.start_soon(wait)
        return Exit(0, "done")

    await lab.run(program)
    assert heard == [0, 0]


# --- events ---


def read_events(reader: StreamFile) -> list[dict]:
    """The events that are there now."""
    data = b""
    while True:
        try:
            data += reader.read(1 << 20, 0)
        except trio.WouldBlock:
            return [msgspec.json.decode(line) for line in data.splitlines()]


async def test_events_come_in_order_without_gaps(lab, autojump_clock):
    """Every reader sees every event from when it joined, numbered one by one."""
    first = lab.kernel.events.join()
    parent = lab.spawn(sleeper)
    child = lab.spawn(done, agent(parent.pid))
    second = lab.kernel.events.join()
    await child.done.wait()
    lab.kernel.signal(parent, Signal.KILL, PERSON)
    events = read_events(first)
    assert [(event["event"], event["pid"]) for event in events] == [
        ("spawn", 1),
        ("spawn", 2),
        ("exit", 2),
        ("signal", 1),
        ("exit", 1),
        ("reparent", 2),
        ("reap", 2),
        ("reap", 1),
    ]
    numbers = [event["seq"] for event in events]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert read_events(second) == events[2:]
    assert events[2] | {"ts": 0, "seq": 0} == {
        "seq": 0,
        "ts": 0,
        "event": "exit",
        "pid": 2,
        "code": 0,
        "reason": "done",
        "elapsed_ms": 0,
    }


async def test_what_limits_power_is_in_the_log(lab, autojump_clock):
    """The event of a spawn says who, from whom, what, where, what it may use, and for how long."""
    parent = lab.spawn(sleeper)
    reader = lab.kernel.events.join()
    process = lab.spawn(sleeper, parent=1, allowed_devices=["/dev/a"], timeout_ms=5, system_prompt="be good")
    (event,) = read_events(reader)
    (stored,) = lab.kernel.log.load(process.pid)
    assert read_birth(stored.data) == Birth(
        uuid=process.uuid,
        ppid=parent.pid,
        depth=2,
        intent=process.launch.intent,
        agent="test",
        provider="none",
        system_prompt="be good",
        allowed_devices=("/dev/a",),
        max_steps=limits.STEPS_MAX,
        timeout_ms=5,
        cwd="/",
        request=process.launch.request,
    )
    assert event == {"seq": stored.seq, "ts": stored.ts, "event": "spawn", "pid": 2, **stored.data}


async def test_listeners_never_see_what_variables_hold(nursery, autojump_clock):
    """Their values may be secrets; the log has them, since a restart needs them."""
    secret = "x-very-secret"
    lab = Lab()
    await nursery.start(lab.kernel.run)
    reader = lab.kernel.events.join()
    process = lab.spawn(sleeper, env={"TOKEN": secret})
    (event,) = read_events(reader)
    assert secret not in str(event)
    assert (event["env"], event["request"]["env"]) == (["TOKEN"], ["TOKEN"])
    assert next(lab.kernel.log.load(process.pid)).data["env"] == {"TOKEN": secret}


async def test_an_event_is_stored_before_its_effect_shows(nursery, autojump_clock):
    """A store that looks at the system when it is told sees the state of before."""
    store = SpyStore()
    lab = Lab(store)

    def look(event: str, pid: int):
        process = lab.kernel.processes.get(pid)
        if process is None:
            return "no process"
        return process.state.value, process.paused, process.exit, process.ppid, process.ending

    store.look = look
    await nursery.start(lab.kernel.run)
    parent = lab.spawn(sleeper)
    child = lab.spawn(sleeper, agent(parent.pid))
    await settle()
    for signal in (Signal.PAUSE, Signal.RESUME, Signal.TERM):
        lab.kernel.signal(parent, signal, PERSON)
    await parent.done.wait()
    lab.kernel.signal(child, Signal.KILL, PERSON)
    running = ("running", False, None, 0, "")
    assert store.seen == [
        ("boot", 0, "no process"),
        ("spawn", 1, "no process"),
        ("spawn", 2, "no process"),
        ("signal", 1, running),
        ("signal", 1, ("running", True, None, 0, "")),
        ("signal", 1, running),
        ("exit", 1, ("running", False, None, 0, "terminated by SIGTERM")),
        ("reparent", 2, ("running", False, None, 1, "")),
        ("reap", 1, ("zombie", False, Exit(1, "terminated by SIGTERM"), 0, "terminated by SIGTERM")),
        ("signal", 2, running),
        ("exit", 2, ("running", False, None, 0, "killed by SIGKILL")),
        ("reap", 2, ("zombie", False, Exit(1, "killed by SIGKILL"), 0, "killed by SIGKILL")),
    ]


async def test_a_store_that_fails_stops_the_effect(lab, autojump_clock):
    """What cannot be logged does not happen, and uses no pid."""

    def fail(event: str, pid: int):
        raise SyscallError(Code.RESOURCE_EXHAUSTED, "the disk is full")

    lab.kernel.log = SpyStore()
    lab.kernel.log.look = fail
    with pytest.raises(LogError, match="the disk is full") as caught:
        lab.spawn(done)
    assert caught.value.code is Code.RESOURCE_EXHAUSTED
    assert (lab.kernel.processes, lab.kernel.live()) == ({}, [])
    lab.kernel.log.look = lambda _event, _pid: None
    assert lab.spawn(done).pid == 1


# --- the end of the system ---


async def test_nothing_is_spawned_while_the_system_stops(lab, autojump_clock):
    """The refusal is EAGAIN, and the event is there."""
    reader = lab.kernel.events.join()
    lab.kernel.shut_down()
    assert lab.kernel.stopping.is_set()
    assert code_of(lambda: lab.spawn(done)) is Code.SERVICE_UNAVAILABLE
    assert [event["event"] for event in read_events(reader)] == ["shutdown"]


async def test_suspending_all_waits_for_programs_to_let_go(lab, autojump_clock):
    """Each is suspended at once, and what its program does after that does not count; one that no
    cancellation reaches is not waited for longer than the grace."""
    late: list[Code] = []

    async def saver(sys: Syscalls) -> Exit:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(3)
                late.append(code_of(lambda: sys.set_result("saved")))

    async def deaf(sys: Syscalls) -> Exit:
        sys.block(Signal.TERM)
        return await sleeper(sys)

    saving, stuck, blocking = (lab.spawn(one) for one in (saver, stubborn, deaf))
    child = lab.spawn(sleeper, agent(1))
    await settle()
    start = trio.current_time()
    await lab.kernel.suspend_all(grace=5)
    assert trio.current_time() - start == pytest.approx(5)
    assert late == [Code.INTERRUPTED]
    for process in (saving, stuck, blocking, child):
        assert (process.state, process.suspended) == (State.SUSPENDED, "the system was stopped")
        assert (process.exit, process.result) == (None, "")
        assert list(lab.kernel.log.load(process.pid))[-1].event == "suspend"
    assert [one.parked.is_set() for one in (saving, stuck, blocking, child)] == [True, False, True, True]
    assert child.parent is saving


async def test_suspending_all_lets_those_end_that_are_ending(lab, autojump_clock):
    """Whoever told them to end is obeyed."""

    async def saver(sys: Syscalls) -> Exit:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(3)
            sys.set_result("saved")

    process = lab.spawn(saver)
    await settle()
    lab.kernel.signal(process, Signal.TERM, PERSON)
    await lab.kernel.suspend_all(grace=5)
    assert (process.exit, process.result) == (Exit(1, "terminated by SIGTERM"), "saved")


async def test_suspending_all_waits_no_longer_than_needed(lab, autojump_clock):
    """Without stubborn ones it takes no time; a second time changes nothing."""
    processes = [lab.spawn(sleeper) for _ in range(5)]
    await settle()
    start = trio.current_time()
    await lab.kernel.suspend_all()
    assert trio.current_time() == start
    assert lab.kernel.live() == processes
    seen = lab.kernel.events.join()
    await lab.kernel.suspend_all()
    assert read_events(seen) == []


async def test_suspending_all_goes_on_where_the_log_is_full(nursery, autojump_clock):
    """The others are suspended, and nothing is raised: a restart suspends the rest all the same."""
    store = SpyStore()
    lab = Lab(store)
    await nursery.start(lab.kernel.run)
    first, second = lab.spawn(sleeper), lab.spawn(sleeper)
    await settle()

    def fail(event: str, pid: int):
        if pid == first.pid:
            raise SyscallError(Code.RESOURCE_EXHAUSTED, "the disk is full")

    store.look = fail
    await lab.kernel.suspend_all(grace=1)
    assert (first.state, second.state) == (State.RUNNING, State.SUSPENDED)
    assert first.exit is None


async def test_a_system_that_is_cancelled_leaves_its_processes_unfinished(autojump_clock):
    """No event says that they ended, whatever they were doing: the next system finds them in the log."""
    store = SpyStore()
    lab = Lab(store)
    async with trio.open_nursery() as nursery:
        await nursery.start(lab.kernel.run)
        parent = lab.spawn(sleeper)
        child = lab.spawn(sleeper, agent(parent.pid))
        await settle()
        nursery.cancel_scope.cancel()
    for process in (parent, child):
        assert process.exit is None
        assert store.events(process.pid) == ["spawn"]
    assert store.unfinished() == [parent.pid, child.pid]


async def test_a_system_that_does_not_run_starts_nothing(autojump_clock):
    """The refusal says so."""
    assert code_of(lambda: Lab().kernel.start(trio.sleep_forever)) is Code.SERVICE_UNAVAILABLE
