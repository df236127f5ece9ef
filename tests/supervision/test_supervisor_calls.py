"""The ten calls on supervisors and the system, WaitAny, and the files that reach the same."""

import errno
import json
from typing import Any

import pytest
import trio

from rnixfs import limits, vfs
from rnixfs.errors import Code, SyscallError
from rnixfs.node import Dir
from rnixfs.proc.board import Verb
from rnixfs.proc.request import SpawnRequest, read_spawn
from rnixfs.proc.signals import Signal
from rnixfs.proc.state import ChildEnd, Exit, State
from rnixfs.proc.supervision import SupervisorSpec
from rnixfs.syscalls import Syscalls
from tests.supervision.supervisorlab import PERSON, Lab, exit_of, supervisor


def spec(*children: str, **fields: Any) -> SupervisorSpec:
    """A supervisor as programs give it."""
    found = read_spawn({"supervisor": supervisor(*children, **fields)}).supervisor
    assert found is not None
    return found


SPEC = spec("a", "b")


class Boss:
    """A process whose program does what the test wants, through its system calls."""

    def __init__(self, lab: Lab, **fields) -> None:
        self._calls: list[Syscalls] = []
        lab.programs["boss"] = self._program
        self.process = lab.spawn(intent="boss", **fields)

    async def _program(self, sys):
        self._calls.append(sys)
        await trio.sleep_forever()

    @property
    def calls(self) -> Syscalls:
        """Its system calls, once it runs."""
        return self._calls[0]


@pytest.fixture
async def boss(lab):
    """A process that may do everything, with its system calls at hand."""
    found = Boss(lab)
    await lab.settle()
    return found


def trace(process):
    """The calls of a process as `Name = result`, those that failed with their code."""
    found = [json.loads(line) for line in bytes(process.trace.data).splitlines()]
    return [f"{one['syscall']} = {one.get('error', '').split(' ')[0] or one['result']}" for one in found]


def refused(code):
    """Expects a system call to be refused with a code."""
    return pytest.RaisesExc(SyscallError, check=lambda error: error.code is code)


# --- supervisors ---


async def test_spawn_supervisor_makes_a_child_that_supervises(lab, boss, autojump_clock):
    """It is a child of the caller, and its children are below it."""
    pid = await boss.calls.spawn_supervisor(SPEC)
    await lab.settle()
    sup = lab.kernel.process(pid)
    assert (sup.ppid, lab.named("a").ppid) == (boss.process.pid, pid)
    assert trace(boss.process)[-1] == f"SpawnSupervisor = PID({pid})"


async def test_spawn_supervisor_needs_the_right_to_spawn(lab, autojump_clock):
    """Who may not use /proc/spawn makes no supervisor either."""
    boss = Boss(lab, allowed_devices=["/dev/x"])
    await lab.settle()
    with refused(Code.PERMISSION):
        await boss.calls.spawn_supervisor(SPEC)


async def test_spawn_supervisor_checks_what_it_is_given(lab, boss, autojump_clock):
    """A program is told what a request through the file would be told."""
    wrong = SupervisorSpec("no name", SPEC.children)
    with refused(Code.INVALID):
        await boss.calls.spawn_supervisor(wrong)


async def test_stop_start_and_restart_of_a_child(lab, boss, autojump_clock):
    """Stopped it stays stopped; started and restarted it has a new pid, and no restart is counted against
    the supervisor."""
    calls = boss.calls
    pid = await calls.spawn_supervisor(SPEC)
    await lab.settle()
    first = lab.pid("a")
    await calls.stop_child(pid, "a")
    assert (await calls.list_children(pid))[0]["state"] == "stopped"
    second = await calls.start_child(pid, "a")
    assert second == lab.pid("a") > first
    pids = [await calls.restart_child(pid, "a") for _ in range(5)]
    assert pids == sorted({*pids, second})[1:]
    assert lab.kernel.process(pid).live
    assert trace(boss.process)[-1] == f"RestartChild = PID({pids[-1]})"


async def test_orders_can_be_repeated(lab, boss, autojump_clock):
    """To start what runs, and to stop what does not, changes nothing."""
    pid = await boss.calls.spawn_supervisor(SPEC)
    await lab.settle()
    before = lab.pid("a")
    assert await boss.calls.start_child(pid, "a") == before
    await boss.calls.stop_child(pid, "a")
    await boss.calls.stop_child(pid, "a")
    assert lab.states(lab.kernel.process(pid)) == {"a": "stopped", "b": "running"}


async def test_a_child_stopped_on_order_keeps_its_supervisor(lab, boss, autojump_clock):
    """With all children stopped by hand it waits for the order that starts one; nothing else starts them."""
    pid = await boss.calls.spawn_supervisor(spec("a", "b", strategy="one_for_all"))
    await lab.settle()
    await boss.calls.stop_child(pid, "a")
    await lab.end("b")
    assert lab.states(lab.kernel.process(pid)) == {"a": "stopped", "b": "running"}
    await boss.calls.stop_child(pid, "b")
    await lab.settle()
    assert lab.kernel.process(pid).live
    await boss.calls.start_child(pid, "b")
    assert lab.states(lab.kernel.process(pid)) == {"a": "stopped", "b": "running"}


async def test_a_start_that_fails_on_order_is_told_to_who_ordered(lab, boss, autojump_clock):
    """It is no failure of the supervisor, and can be tried again."""
    pid = await boss.calls.spawn_supervisor(SPEC)
    await lab.settle()
    await boss.calls.stop_child(pid, "a")
    lab.refused["a"] = 1
    with refused(Code.NOT_FOUND):
        await boss.calls.start_child(pid, "a")
    assert lab.states(lab.kernel.process(pid)) == {"a": "stopped", "b": "running"}
    await boss.calls.start_child(pid, "a")
    assert lab.states(lab.kernel.process(pid)) == {"a": "running", "b": "running"}


async def test_orders_are_refused_with_the_reason(lab, boss, autojump_clock):
    """An unknown child, a process that supervises nothing, a stranger, itself, one that has ended."""
    pid = await boss.calls.spawn_supervisor(SPEC)
    foreign = await lab.supervisor("x")
    with pytest.raises(SyscallError, match="has no child 'aa'; it has: a, b") as caught:
        await boss.calls.start_child(pid, "aa")
    assert caught.value.code is Code.NOT_FOUND
    with refused(Code.INVALID):
        await boss.calls.start_child(lab.pid("a"), "a")
    with refused(Code.PERMISSION):
        await boss.calls.stop_child(foreign.pid, "x")
    with refused(Code.PERMISSION):
        await boss.calls.list_children(foreign.pid)
    with refused(Code.INVALID):
        await boss.calls.restart_child(boss.process.pid, "a")
    with refused(Code.NOT_FOUND):
        await boss.calls.list_children(999)
    lab.kernel.deliver(lab.kernel.process(pid), Signal.KILL)
    with pytest.raises(SyscallError, match="has ended; spawn a new one"):
        await boss.calls.start_child(pid, "a")


async def test_an_order_does_not_outlive_its_supervisor(lab, boss, nursery, autojump_clock):
    """Who waits for an order learns that the supervisor has ended before it obeyed."""
    pid = await boss.calls.spawn_supervisor(SPEC)
    await lab.settle()
    sup = lab.kernel.process(pid)
    lab.kernel.deliver(sup, Signal.PAUSE)
    errors = []

    async def ask():
        try:
            await boss.calls.stop_child(pid, "a")
        except SyscallError as error:
            errors.append(error.code)

    nursery.start_soon(ask)
    await lab.settle()
    assert errors == []
    lab.kernel.deliver(sup, Signal.KILL)
    await lab.settle()
    assert errors == [Code.INVALID]


async def test_orders_that_wait_have_a_limit(lab, autojump_clock):
    """A supervisor that cannot obey does not collect orders for ever."""
    sup = await lab.supervisor("a")
    for _ in range(limits.SUPERVISOR_ORDERS_MAX):
        sup.board.order(Verb.STOP, "a")
    with refused(Code.RESOURCE_EXHAUSTED):
        sup.board.order(Verb.STOP, "a")


async def test_a_child_is_within_the_rights_of_its_supervisor_and_that_one_within_its_creators(
    lab, autojump_clock
):
    """Restarts lead to no more rights than the creator has, also after a right was taken back."""
    boss = Boss(lab, allowed_devices=["/dev/x", "/dev/y", "/proc/spawn"])
    await lab.settle()
    await boss.calls.spawn_supervisor(SPEC)
    await lab.settle()
    assert lab.named("a").rights.permits("/dev/x")
    assert not lab.named("a").rights.permits("/dev/z")
    boss.process.rights.revoke("/dev/x")
    await lab.end("a")
    assert not lab.named("a").rights.permits("/dev/x")
    assert lab.named("a").rights.permits("/dev/y")


async def test_a_supervisor_that_may_no_longer_spawn_gives_up(lab, autojump_clock):
    """Taking /proc/spawn back stops the restarts, and it says so."""
    sup = await lab.supervisor("a")
    sup.rights.revoke("/proc/spawn")
    await lab.end("a")
    assert "may not use /proc/spawn" in exit_of(sup).reason


# --- WaitAny and Reap ---


async def test_wait_any_gives_the_child_that_ended_and_reaps_it(lab, boss, autojump_clock):
    """Whichever comes first; each end is given once."""
    pids = {name: await boss.calls.spawn(SpawnRequest(intent=name)) for name in "xyz"}
    await lab.end("y", code=0)
    end = await boss.calls.wait_any()
    assert end == ChildEnd(pids["y"], Exit(0, "done"), "result of y")
    assert lab.kernel.process(pids["y"]).state is State.DEAD
    await lab.end("z", code=3)
    end = await boss.calls.wait_any([pids["x"], pids["z"]])
    assert (end.pid, end.exit.code) == (pids["z"], 3)
    assert trace(boss.process)[-1] == f"WaitAny = PID({pids['z']}) exited(3)"


async def test_wait_any_waits(lab, boss, nursery, autojump_clock):
    """It returns when a child of the named ones ends, not when another one does."""
    pids = [await boss.calls.spawn(SpawnRequest(intent=name)) for name in "xy"]
    found = []

    async def wait():
        found.append(await boss.calls.wait_any([pids[0]]))

    nursery.start_soon(wait)
    await lab.end("y")
    assert found == []
    await lab.end("x")
    assert [end.pid for end in found] == [pids[0]]


async def test_wait_any_gives_up_when_told(lab, boss, autojump_clock):
    """After a time, or when its condition holds; the child stays a child."""
    await boss.calls.spawn(SpawnRequest(intent="x"))
    began = trio.current_time()
    assert await boss.calls.wait_any(seconds=2.5) is None
    assert trio.current_time() - began == 2.5
    assert await boss.calls.wait_any(until=lambda: True) is None
    assert trace(boss.process)[-1] == "WaitAny = none"
    assert boss.calls.uncollected == [lab.pid("x")]


async def test_wait_any_sees_a_child_that_somebody_removed(lab, boss, autojump_clock):
    """`rmdir proc/<pid>` takes it out of the table; its end is told all the same."""
    pid = await boss.calls.spawn(SpawnRequest(intent="x"))
    await lab.settle()
    lab.kernel.remove(lab.kernel.process(pid), PERSON)
    end = await boss.calls.wait_any([pid])
    assert (end.pid, end.exit.reason) == (pid, "killed by SIGKILL")


async def test_wait_any_refuses_what_cannot_be_waited_for(lab, boss, autojump_clock):
    """Without children there is nothing to wait for; others' children and unknown pids are refused."""
    stranger = lab.spawn(intent="stranger")
    with refused(Code.NOT_FOUND):
        await boss.calls.wait_any()
    with refused(Code.NOT_FOUND):
        await boss.calls.wait_any([999])
    with refused(Code.PERMISSION):
        await boss.calls.wait_any([stranger.pid])


async def test_reap_releases_a_child_that_has_ended(lab, boss, autojump_clock):
    """Without waiting: one that runs is refused with EAGAIN, a stranger with EACCES."""
    pid = await boss.calls.spawn(SpawnRequest(intent="x"))
    await lab.settle()
    with pytest.raises(SyscallError) as caught:
        await boss.calls.reap(pid)
    assert caught.value.errno == errno.EAGAIN
    await lab.end("x", code=2)
    assert await boss.calls.reap(pid) == Exit(2, "crashed")
    assert lab.kernel.process(pid).state is State.DEAD
    assert trace(boss.process)[-1] == "Reap = exited(2)"
    with refused(Code.PERMISSION):
        await boss.calls.reap(lab.spawn(intent="stranger").pid)


# --- Suspend, Resume, Shutdown ---


async def test_suspend_and_resume_reach_the_whole_subtree_once(lab, boss, autojump_clock):
    """The process and all below it, parents first, nobody above or beside; one that is suspended already
    stays as it is, and so does one that runs."""
    pid = await boss.calls.spawn_supervisor(SPEC)
    await lab.settle()
    lab.diary.take()
    a = lab.named("a")
    assert await boss.calls.suspend(a.pid) == 1
    assert await boss.calls.suspend(pid) == 2
    assert lab.diary.take() == ["suspend a", "suspend sup", "suspend b"]
    assert [one.state for one in lab.kernel.live()] == ["running", "suspended", "suspended", "suspended"]
    assert await boss.calls.resume(a.pid) == 1
    assert await boss.calls.resume(pid) == 2
    assert lab.diary.take() == ["wake a", "wake sup", "wake b"]
    await lab.settle()
    assert {one.state for one in lab.kernel.live()} == {"running"}
    assert trace(boss.process)[-4:] == [
        *["Suspend = 1 processes", "Suspend = 2 processes", "Resume = 1 processes", "Resume = 2 processes"]
    ]
    with refused(Code.INVALID):
        await boss.calls.resume(pid)


async def test_a_process_may_suspend_itself(lab, boss, autojump_clock):
    """It is cancelled where it stands, with all below it."""
    pid = await boss.calls.spawn_supervisor(SPEC)
    await lab.settle()
    assert await boss.calls.suspend(boss.process.pid) == 4
    await lab.settle()
    assert {one.state for one in lab.kernel.live()} == {"suspended"}
    assert boss.process.suspended == f"process {boss.process.pid} suspended it"
    with refused(Code.INTERRUPTED):
        await boss.calls.resume(pid)


async def test_suspend_needs_power_over_a_process_that_lives(lab, boss, autojump_clock):
    """Strangers, ended and unknown processes are refused."""
    pid = await boss.calls.spawn(SpawnRequest(intent="x"))
    await lab.end("x")
    for subject, code in [
        (pid, Code.INVALID),
        (lab.spawn(intent="stranger").pid, Code.PERMISSION),
        (999, Code.NOT_FOUND),
    ]:
        with refused(code):
            await boss.calls.suspend(subject)
        with refused(code):
            await boss.calls.resume(subject)


async def test_the_system_is_commanded_only_by_who_was_granted_its_control(lab, autojump_clock):
    """Shutdown and Bootstrap need /sys/ctl, which no agent has unless somebody grants it."""
    boss = Boss(lab, allowed_devices=["/dev"])
    await lab.settle()
    for call in (boss.calls.shutdown, boss.calls.bootstrap):
        with refused(Code.PERMISSION):
            await call()
    assert not lab.kernel.stopping.is_set()
    boss.process.rights.grant("/sys/ctl")
    await boss.calls.bootstrap()
    await boss.calls.shutdown()
    assert lab.kernel.stopping.is_set()
    assert trace(boss.process)[-2:] == ["Bootstrap = 0", "Shutdown = 0"]


# --- the same through files ---


async def test_the_file_of_a_supervisor(lab, autojump_clock):
    """`supervisor` shows the spec and where each child stands."""
    sup = await lab.supervisor("a", "b:transient", strategy="rest_for_one", max_window=10)
    await lab.end("b", code=0)
    (a, b) = (lab.pid("a"), lab.pid("b"))
    running = {"name": "a", "pid": a, "state": "running", "restarts": 0, "restart": "permanent", "exit": None}
    done = {"name": "b", "pid": b, "state": "done", "restarts": 0, "restart": "transient"}
    assert lab.json(f"/proc/{sup.pid}/supervisor") == {
        "name": "sup",
        "strategy": "rest_for_one",
        "max_restarts": 3,
        "max_window": 10,
        "children": [running, {**done, "exit": {"code": 0, "reason": "done"}}],
    }


async def test_only_supervisors_have_the_file(lab, autojump_clock):
    """For any other process it is not there, nor are the commands."""
    await lab.supervisor("a")
    folder, sup = (vfs.walk(lab.root, f"/proc/{lab.pid(name)}", PERSON) for name in ("a", "sup"))
    assert isinstance(folder, Dir)
    assert isinstance(sup, Dir)
    assert "supervisor" not in dict(folder.entries(PERSON))
    assert "supervisor" in dict(sup.entries(PERSON))
    with refused(Code.NOT_FOUND):
        folder.lookup("supervisor", PERSON)
    with pytest.raises(SyscallError, match="unknown command 'start'"):
        lab.do(f"/proc/{lab.pid('a')}/ctl", "start x")


async def test_it_cannot_be_written(lab, autojump_clock):
    """It is a document."""
    sup = await lab.supervisor("a")
    with refused(Code.PERMISSION):
        vfs.walk(lab.root, f"/proc/{sup.pid}/supervisor", PERSON).open(PERSON, 1)


async def test_its_time_moves_when_a_child_changes(lab, autojump_clock):
    """So that who looks at the time alone sees a restart."""
    sup = await lab.supervisor("a")
    node = vfs.walk(lab.root, f"/proc/{sup.pid}/supervisor", PERSON)
    before, same = node.stat().mtime_ns, node.stat().mtime_ns
    assert before == same
    await lab.end("a")
    assert node.stat().mtime_ns > before


async def test_the_commands_of_a_supervisor(lab, autojump_clock):
    """`stop`, `start` and `restart` with the name of a child, one after the other."""
    sup = await lab.supervisor("a", "b")
    ctl = f"/proc/{sup.pid}/ctl"
    first = lab.pid("a")
    lab.do(ctl, "stop a")
    lab.do(ctl, "start a")
    await lab.settle()
    second = lab.pid("a")
    assert second > first
    lab.do(ctl, "restart a")
    lab.do(ctl, "stop b")
    await lab.settle()
    assert lab.pid("a") > second
    assert lab.states(sup) == {"a": "running", "b": "stopped"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("stop", "stop takes the name of a child: a, b"),
        ("start c", "the supervisor 'sup' has no child 'c'; it has: a, b"),
        ("restart a b", "has no child 'a b'"),
    ],
)
async def test_wrong_commands_are_refused_at_once(lab, autojump_clock, line, said):
    """Whoever writes the line gets the error."""
    sup = await lab.supervisor("a", "b")
    with pytest.raises(SyscallError, match=said):
        lab.do(f"/proc/{sup.pid}/ctl", line)


async def test_the_commands_are_listed(lab, autojump_clock):
    """Reading `ctl` says what a supervisor can be told."""
    sup = await lab.supervisor("a")
    text = vfs.walk(lab.root, f"/proc/{sup.pid}/ctl", PERSON).open(PERSON, 0).read(1 << 16, 0).decode()
    assert {"start CHILD", "stop CHILD", "restart CHILD"} <= {
        line.partition("  ")[0].strip() for line in text.splitlines()
    }


async def test_a_child_may_not_command_its_supervisor(lab, autojump_clock):
    """Power goes down the tree only."""
    sup = await lab.supervisor("a")
    with refused(Code.PERMISSION):
        lab.do(f"/proc/{sup.pid}/ctl", "stop a", lab.named("a").caller)


async def test_suspend_and_wake_through_the_file(lab, autojump_clock):
    """Any process has them; they reach all below it and take nothing after them."""
    sup = await lab.supervisor("a", "b")
    lab.do(f"/proc/{sup.pid}/ctl", "suspend")
    assert [one.suspended for one in lab.kernel.live()] == ["its owner suspended it"] * 3
    assert lab.json(f"/proc/{sup.pid}/status")["state"] == "suspended"
    lab.do(f"/proc/{sup.pid}/ctl", "wake")
    lab.do(f"/proc/{lab.pid('a')}/ctl", "suspend")
    assert [one.state for one in lab.kernel.live()] == ["running", "suspended", "running"]
    with refused(Code.INVALID):
        lab.do(f"/proc/{lab.pid('b')}/ctl", "wake")
    with pytest.raises(SyscallError, match="takes nothing after it, but got 'a'"):
        lab.do(f"/proc/{sup.pid}/ctl", "suspend a")


async def test_a_supervisor_can_still_be_looked_at_after_its_end(lab, autojump_clock):
    """The file stays with the process, and orders are refused."""
    sup = await lab.supervisor("a")
    lab.kernel.deliver(sup, Signal.KILL)
    await lab.settle()
    assert lab.json(f"/proc/history/{sup.uuid}/supervisor")["children"][0]["state"] == "stopped"
    with pytest.raises(SyscallError, match="has ended"):
        lab.do(f"/proc/{sup.pid}/ctl", "start a")
