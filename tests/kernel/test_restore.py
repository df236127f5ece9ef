"""A system that starts finds in the log what there was: who had ended, and who had not, just as they were.

Over 400 lines because all laws of a restart are here.
"""

import functools
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from rnixfs.errors import Code, SyscallError
from rnixfs.llm import Fallback
from rnixfs.proc.board import Board
from rnixfs.proc.groups import wake_tree
from rnixfs.proc.process import Process
from rnixfs.proc.remake import remake
from rnixfs.proc.request import SpawnRequest
from rnixfs.proc.signals import Signal
from rnixfs.proc.state import Exit, State
from rnixfs.state.memory import MemoryStore
from rnixfs.state.store import Record, Retention
from tests.kernel.restorelab import Place, content, every, rewritten, settle, tell
from tests.programs.reasonlab import PERSON, Bench, Forever, Tool, answer, call, messages, results, uses

HOUR = 3600.0
KEPT = (
    *("intent", "context", "messages.json", "result", "trace.jsonl", "log", "steps.jsonl", "steps/1.json"),
    *("mailbox", "signals", "children", "caps", "env"),
)
"""The files of a process that a restart does not change."""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A folder and a log."""
    return Place(tmp_path)


def code_of(call_: Any) -> Code:
    """The code that a call fails with."""
    with pytest.raises(SyscallError) as caught:
        call_()
    return caught.value.code


def exit_of(process: Process | None) -> Exit:
    """How a process ended."""
    assert process is not None
    assert process.exit is not None
    return process.exit


def board_of(process: Process) -> Board:
    """The board of a supervisor."""
    assert process.board is not None
    return process.board


def looping(*names: str) -> tuple[Any, ...]:
    """Replies of a model that uses tools and then waits in one that never answers."""
    return (*(uses(call(name)) for name in names), uses(call("stuck")))


STUCK = Forever("stuck")


def found(bench: Bench, process: Process) -> Process:
    """The same process in a later system."""
    there = bench.kernel.processes[process.pid]
    assert there is not process
    assert there.uuid == process.uuid
    return there


# --- who is found, and where ---


async def test_who_had_not_ended_is_suspended_and_who_had_is_history(place, autojump_clock):
    """With their pids and UUIDs; nothing starts by itself."""
    async with place.system(answer("first"), *looping("echo"), devices=(Tool("echo"), STUCK)) as bench:
        ended = await bench.run("one")
        process = bench.spawn("two")
        await trio.sleep(5)
        status = process.status()
    async with place.system(devices=(Tool("echo"), STUCK)) as bench:
        assert (place.restored.suspended, place.restored.lost) == (1, 0)
        await settle()
        assert bench.model.requests == []
        assert list(bench.kernel.processes) == [process.pid]
        same = found(bench, process)
        changed = {"state", "suspended", "elapsed_ms"}
        assert {name: value for name, value in same.status().items() if name not in changed} == {
            name: value for name, value in status.items() if name not in changed
        }
        assert (same.state, same.suspended) == (State.SUSPENDED, "the system stopped while it ran")
        assert bench.kernel.history.uuids() == [ended.uuid]
        past = bench.kernel.history.find(ended.uuid)
        assert past.status() == ended.status()


async def test_the_files_of_both_are_the_same(place, autojump_clock):
    """Byte by byte, those of an ended one in its history as in the table before."""
    replies = (uses(call("echo", say="x"), content="thinking"), answer("done\nwell"))
    async with place.system(*replies, *looping("echo"), devices=(Tool("echo"), STUCK)) as bench:
        ended = await bench.run("one", system_prompt="Be brief.", env={"A": "b", "MY_KEY": "secret"})
        process = bench.spawn("two", allowed_devices=["/dev"])
        await trio.sleep(5)
        tell(bench, process, "block TERM", "term", "revoke /dev/echo")
        bench.kernel.channels.send(0, process, {"hello": 1})
        old = bench
    async with place.system(devices=(Tool("echo"), STUCK)) as bench:
        for one, where, more in (
            (ended, f"/proc/history/{ended.uuid}", ("status", ".live/wait")),
            (process, f"/proc/{process.pid}", ()),
        ):
            for name in (*KEPT, *more):
                before = content(old, f"/proc/{one.pid}/{name}")
                assert before or name in ("result", "mailbox", "children", "signals"), name
                assert content(bench, f"{where}/{name}") == before, name


async def test_a_second_restart_finds_the_same_and_writes_nothing(place, autojump_clock):
    """Whoever is suspended stays so with the reason of the first time."""
    async with place.system(*looping("echo"), devices=(Tool("echo"), STUCK)) as bench:
        process = bench.spawn()
        await trio.sleep(5)
        bench.kernel.groups.join(process, "team", PERSON)
    async with place.system() as bench:
        first = found(bench, process).status()
    seen = len(every(place.log))
    async with place.system() as bench:
        assert found(bench, process).status() == first
        assert [record.event for record in every(place.log)[seen:]] == ["boot"]


async def test_pids_are_above_all_that_were_seen(place, autojump_clock):
    """Also above those whose history was removed since."""
    async with place.system(answer("1"), answer("2")) as bench:
        await bench.run("one")
        await bench.run("two")
    assert [entry.pid for entry in place.log.collect(Retention(processes=0)).processes] == [1, 2]
    async with place.system(answer("3")) as bench:
        assert bench.kernel.history.uuids() == []
        assert (await bench.run("three")).pid == 3


async def test_what_cannot_be_read_is_counted_and_the_others_are_there(place, autojump_clock, caplog):
    """The daemon starts; its log names the process, and its children, since nobody knows what bounds them."""
    async with place.system(*looping() * 3, devices=(STUCK,)) as bench:
        first, second = bench.spawn("one"), bench.spawn("two")
        child = bench.kernel.spawn(SpawnRequest(intent="three", parent=first.pid), PERSON)
        await settle()
    events = every(place.log)
    for record in events:
        if (record.pid, record.event) == (first.pid, "spawn"):
            record.data["depth"] = "deep"
    place.log = rewritten(events)
    async with place.system() as bench:
        assert (place.restored.suspended, place.restored.lost) == (1, 2)
        assert list(bench.kernel.processes) == [second.pid]
        for process in (first, child):
            assert f"process {process.pid} cannot be made anew" in caplog.text
    assert place.log.unfinished() == [first.pid, second.pid, child.pid]


async def test_a_process_goes_on_as_it_was_born(place, autojump_clock):
    """Agents, skills and instructions may have changed since; that concerns later ones only."""
    async with place.system(*looping("echo"), devices=(Tool("echo"), STUCK)) as bench:
        bench.agent("worker", "allowed_devices: [/dev/echo, /dev/stuck]\n", "Be old.")
        other = [Fallback("fake", "another")]
        process = bench.spawn(agent="worker", cwd=str(bench.cwd), effort="high", fallback=other)
        await trio.sleep(5)
        before = process.launch
    shutil.rmtree(place.top / "built-in" / "agents" / "worker")
    async with place.system(answer("done"), devices=(Tool("echo"), STUCK)) as bench:
        after = found(bench, process).launch
        words = ("intent", "agent", "skills", "provider", "model", "system_prompt", "effort")
        for field in (*words, "allowed", "budget", "fallback"):
            assert getattr(after, field) == getattr(before, field)
        assert (after.effort, after.fallback) == ("high", tuple(other))
        assert (after.place, after.request) == (before.place, before.request)
        bench.kernel.wake(bench.kernel.processes[process.pid])
        await bench.kernel.processes[process.pid].done.wait()
        assert "Be old." in bench.model.requests[0].system_prompt
        offered = [tool.name for tool in bench.model.requests[0].tools]
        assert offered == ["complete", "plan", "echo", "skill", "stuck"]


async def test_what_a_process_needs_and_is_gone_keeps_it_suspended(place, autojump_clock):
    """The refusal says what; when it is there again, the process can be woken."""
    async with place.system(*looping(), devices=(STUCK,)) as bench:
        process = bench.spawn()
        await settle()
    (place.top / "work").rmdir()
    async with place.system(answer("done"), devices=(STUCK,)) as bench:
        bench.cwd.rmdir()
        same = found(bench, process)
        with pytest.raises(SyscallError, match=f"its working folder {bench.cwd} is gone"):
            bench.kernel.wake(same)
        assert same.state is State.SUSPENDED
        bench.cwd.mkdir()
        bench.model.reason = "nobody is logged in"
        with pytest.raises(SyscallError, match="nobody is logged in"):
            bench.kernel.wake(same)
        bench.model.reason = ""
        bench.kernel.wake(same)
        await same.done.wait()
        assert same.exit == Exit(0, "done")


# --- what limits it ---


async def test_rights_are_what_they_were(place, autojump_clock):
    """Those it was born with, with every grant and revocation since, in their order."""
    paths = (
        "/dev/echo",
        "/dev/stuck",
        "/dev/llm",
        "/dev/llm/fake",
        "/proc/spawn",
        "/mnt",
        "/sys",
        "/dev/fs/a",
    )
    async with place.system(*looping(), devices=(Tool("echo"), STUCK)) as bench:
        process = bench.spawn(allowed_devices=["/dev"])
        await settle()
        tell(bench, process, "revoke /dev", "grant /dev/fs", "revoke /dev/fs/a")
        tell(bench, process, "grant /mnt", "grant /dev/echo")
        before = {path: process.rights.permits(path) for path in paths}
        listed = process.rights.listing()
    assert set(before.values()) == {True, False}
    async with place.system() as bench:
        same = found(bench, process)
        assert {path: same.rights.permits(path) for path in paths} == before
        assert same.rights.listing() == listed


async def test_a_parent_bounds_its_child_over_restarts(place, autojump_clock):
    """One that lives goes on doing so: what it loses, its child loses too."""
    async with place.system(*looping(), *looping(), devices=(Tool("echo"), STUCK)) as bench:
        parent = bench.spawn()
        child = bench.kernel.spawn(SpawnRequest(intent="below", parent=parent.pid), PERSON)
        await settle()
        tell(bench, parent, "revoke /dev/fs")
    async with place.system() as bench:
        above, below = found(bench, parent), found(bench, child)
        assert below.parent is above
        assert above.children == {below.pid: below}
        assert below.rights.listing() == child.rights.listing()
        assert (below.rights.permits("/dev/fs"), below.rights.permits("/dev/echo")) == (False, True)
        tell(bench, above, "revoke /dev/echo")
        assert not below.rights.permits("/dev/echo")
        assert code_of(lambda: below.rights.grant("/dev/echo")) is Code.PERMISSION


async def test_a_parent_that_has_ended_bounds_its_child_still(place, autojump_clock):
    """With its grants and revocations, and with those of its own parents, whoever of them has ended."""
    async with place.system(*looping() * 3, devices=(Tool("echo"), STUCK)) as bench:
        oldest = bench.spawn()
        parent = bench.kernel.spawn(SpawnRequest(intent="middle", parent=oldest.pid), PERSON)
        child = bench.kernel.spawn(SpawnRequest(intent="below", parent=parent.pid), PERSON)
        await settle()
        tell(bench, oldest, "revoke /dev/fs")
        tell(bench, parent, "revoke /dev/echo", "revoke /dev/stuck", "grant /dev/stuck")
        for one in (parent, oldest):
            bench.kernel.deliver(one, Signal.KILL)
        await settle()
        paths = ("/dev/fs", "/dev/echo", "/dev/stuck", "/dev/llm")
        expected = {path: child.rights.permits(path) for path in paths}
    assert expected == {"/dev/fs": False, "/dev/echo": False, "/dev/stuck": True, "/dev/llm": True}
    for _ in range(2):
        async with place.system() as bench:
            below = found(bench, child)
            assert (below.parent, below.ppid, below.depth) == (None, 0, 3)
            assert {path: below.rights.permits(path) for path in expected} == expected
            assert code_of(functools.partial(below.rights.grant, "/dev/echo")) is Code.PERMISSION


async def test_a_fork_is_bound_as_its_source(place, autojump_clock):
    """Also where the parent of that has ended, and over restarts, and whatever of the past is removed."""
    async with place.system(*looping() * 3, devices=(Tool("echo"), STUCK)) as bench:
        parent = bench.spawn()
        child = bench.kernel.spawn(SpawnRequest(intent="below", parent=parent.pid), PERSON)
        await settle()
        tell(bench, parent, "revoke /dev/echo")
        tell(bench, child, "revoke /dev/fs")
        bench.kernel.deliver(parent, Signal.KILL)
        fork = bench.kernel.forks.fork(child, 0, PERSON)
        await settle()
        bench.kernel.deliver(child, Signal.KILL)
        expected = {path: child.rights.permits(path) for path in ("/dev/echo", "/dev/fs", "/dev/stuck")}
        assert expected == {"/dev/echo": False, "/dev/fs": False, "/dev/stuck": True}
        assert (fork.ppid, fork.depth) == (0, child.depth)
        assert {path: fork.rights.permits(path) for path in expected} == expected
    for _ in range(2):
        async with place.system() as bench:
            same = found(bench, fork)
            assert (same.parent, same.ppid, same.depth) == (None, 0, child.depth)
            assert {path: same.rights.permits(path) for path in expected} == expected
            assert code_of(functools.partial(same.rights.grant, "/dev/echo")) is Code.PERMISSION
        place.log.collect(Retention(processes=0, days=0, bytes=0))


async def test_a_fork_that_was_not_finished_is_none(place, autojump_clock):
    """Where the system stopped before all that limits the source was said of the fork, too, it ends."""
    async with place.system(*looping() * 2, devices=(Tool("echo"), STUCK)) as bench:
        source = bench.spawn()
        await settle()
        tell(bench, source, "revoke /dev/echo", "revoke /dev/fs", "budget 5")
        fork = bench.kernel.forks.fork(source, 0, PERSON)
    whole = every(place.log)
    for last in ("spawn", "revoke", "budget", "inherit"):
        place.log = rewritten(whole)
        place.cut(lambda record, last=last: (record.pid, record.event) == (fork.pid, last))
        async with place.system() as bench:
            past = bench.kernel.history.by_pid(fork.pid)
            if last == "inherit":
                assert (past.live, past.rights.listing()) == (True, source.rights.listing())
            else:
                assert not past.live
                assert "forked" in exit_of(past).reason


async def test_nobody_gains_by_what_is_forgotten(place, autojump_clock):
    """Where the log of a parent is gone, what it would have allowed is not known, so nothing is."""
    async with place.system(*looping() * 2, devices=(STUCK,)) as bench:
        parent = bench.spawn()
        child = bench.kernel.spawn(SpawnRequest(intent="below", parent=parent.pid), PERSON)
        await settle()
        bench.kernel.deliver(parent, Signal.KILL)
        await settle()
    place.log = rewritten([record for record in every(place.log) if record.pid != parent.pid])
    async with place.system() as bench:
        below = found(bench, child)
        assert not any(below.rights.permits(path) for path in ("/", "/dev", "/dev/stuck", "/proc/spawn"))


async def test_a_creator_of_somebody_unfinished_is_never_forgotten(place, autojump_clock):
    """However little of the past is kept, since its rights bound the other."""
    async with place.system(*looping() * 2, devices=(STUCK,)) as bench:
        parent = bench.spawn()
        bench.kernel.spawn(SpawnRequest(intent="below", parent=parent.pid), PERSON)
        await settle()
        bench.kernel.deliver(parent, Signal.KILL)
        await settle()
    assert place.log.collect(Retention(processes=0, days=0, bytes=0)).processes == []
    assert place.log.finished() != []


async def test_the_budget_and_what_was_used_of_it(place, autojump_clock):
    """Tokens, dollars and steps count on, and a limit that was passed before ends the process after it."""
    reply = uses(call("echo"), tokens_used=400, input_tokens=300, cost_usd=0.25, model="fake-2")
    async with place.system(reply, *looping(), devices=(Tool("echo"), STUCK)) as bench:
        process = bench.spawn(context_budget=9000, max_cost_usd=1.5, max_steps=7)
        await trio.sleep(5)
        tell(bench, process, "budget 450")
    async with place.system(uses(call("echo")), devices=(Tool("echo"), STUCK)) as bench:
        same = found(bench, process)
        assert (same.budget.tokens, same.budget.cost_usd, same.budget.max_steps) == (450, 1.5, 7)
        assert (same.steps, same.tokens_used, same.cost_usd) == (2, 410, 0.25)
        assert (same.progress.prompt_tokens, same.model_used) == (8, "fake-1")
        bench.kernel.wake(same)
        await same.done.wait()
        assert exit_of(same).reason.startswith("budget_exceeded: 410 of 450 tokens used")
        assert bench.model.requests == []


@pytest.mark.parametrize("how", ["at once", "told before"])
async def test_time_counts_while_it_runs_only(place, autojump_clock, how):
    """Neither in pauses nor while it is suspended, nor while no system runs. Where the system was told to
    stop, it is known to the second; where it was killed, the time until the last event is known."""
    async with place.system(*looping("echo", "echo"), *looping(), devices=(Tool("echo"), STUCK)) as bench:
        process = bench.spawn(timeout_ms=10_000)
        await trio.sleep(1.5)
        tell(bench, process, "pause")
        await trio.sleep(HOUR)
        tell(bench, process, "resume")
        await trio.sleep(2)
        tell(bench, process, "suspend")
        await trio.sleep(HOUR)
        tell(bench, process, "wake")
        await trio.sleep(1)
        tell(bench, process, "say hello")
        await trio.sleep(0.5)
        if how == "told before":
            await bench.kernel.suspend_all()
        assert process.elapsed_ms() == 5000
    counted = 5000 if how == "told before" else 4500
    for _ in range(2):
        await trio.sleep(HOUR)
        async with place.system() as bench:
            assert found(bench, process).elapsed_ms() == counted
    async with place.system(*looping(), devices=(Tool("echo"), STUCK)) as bench:
        same = found(bench, process)
        await trio.sleep(HOUR)
        assert same.elapsed_ms() == counted
        bench.kernel.wake(same)
        await same.done.wait()
        assert exit_of(same).reason.startswith("timeout")
        assert same.elapsed_ms() == 10_000


# --- what it was told ---


async def test_words_that_nobody_heard_yet_wait(place, autojump_clock):
    """Those it has heard are in its conversation, and not said again."""
    async with place.system(uses(call("echo")), *looping(), devices=(Tool("echo"), STUCK)) as bench:
        process = bench.spawn()
        await trio.sleep(0.5)
        tell(bench, process, "say first")
        await trio.sleep(5)
        tell(bench, process, "say second", "say third")
    async with place.system(answer("done"), devices=(Tool("echo"), STUCK)) as bench:
        same = found(bench, process)
        assert same.inbox == ["second", "third"]
        tell(bench, same, "say fourth")
        bench.kernel.wake(same)
        await same.done.wait()
        said = [text for role, text in messages(same) if role == "user"]
        assert said == ["do it", "first", "second", "third", "fourth"]


async def test_blocked_and_waiting_signals(place, autojump_clock):
    """They wait on, once each, and take effect when they are let through."""
    async with place.system(*looping(), *looping(), devices=(STUCK,)) as bench:
        one, other = bench.spawn(), bench.spawn()
        await settle()
        tell(bench, one, "block TERM", "block INT", "block PAUSE", "term", "term", "pause", "unblock PAUSE")
        tell(bench, other, "block TERM", "unblock TERM", "block PAUSE", "pause")
    async with place.system(*looping(), devices=(STUCK,)) as bench:
        first, second = found(bench, one), found(bench, other)
        assert first.signals.blocked == {Signal.TERM, Signal.INT}
        assert (first.signals.pending, first.paused) == ({Signal.TERM}, True)
        assert (second.signals.blocked, second.signals.pending) == ({Signal.PAUSE}, {Signal.PAUSE})
        assert second.status()["paused"] is False
        tell(bench, second, "unblock PAUSE")
        assert second.status()["paused"] is True
        tell(bench, first, "unblock INT")
        assert first.live
        tell(bench, first, "unblock TERM")
        assert first.exit == Exit(1, "terminated by SIGTERM")


async def test_a_paused_process_stays_paused(place, autojump_clock):
    """Also when it is woken: both have to be over before its next step."""
    async with place.system(uses(call("echo")), answer("done"), devices=(Tool("echo"),)) as bench:
        process = bench.spawn()
        await trio.sleep(0.5)
        tell(bench, process, "pause")
        await trio.sleep(5)
    async with place.system(answer("done"), devices=(Tool("echo"),)) as bench:
        same = found(bench, process)
        assert (same.paused, same.state) == (True, State.SUSPENDED)
        bench.kernel.wake(same)
        await trio.sleep(HOUR)
        assert (same.live, len(bench.model.requests)) == (True, 0)
        tell(bench, same, "resume")
        await same.done.wait()
        assert same.exit == Exit(0, "done")
        assert same.elapsed_ms() < 10_000


@pytest.mark.parametrize(
    ("signal", "reason"),
    [
        ("term", "terminated by SIGTERM"),
        ("int", "interrupted by SIGINT"),
        ("kill", "killed by SIGKILL"),
    ],
)
async def test_who_was_told_to_end_ends_with_the_restart(place, autojump_clock, signal, reason):
    """The signal was taken, so it holds; the parent hears of the end."""
    async with place.system(*looping() * 2, devices=(STUCK,)) as bench:
        parent = bench.spawn()
        process = bench.kernel.spawn(SpawnRequest(intent="below", parent=parent.pid), PERSON)
        await settle()
        tell(bench, process, signal)
    place.cut(lambda record: record.event == "signal")
    async with place.system() as bench:
        assert (place.restored.suspended, place.restored.lost) == (1, 0)
        same = found(bench, process)
        assert (same.state, same.exit) == (State.ZOMBIE, Exit(1, reason))
        assert list(found(bench, parent).untold) == [process.pid]
    assert place.events(process.pid)[-2:] == ["signal", "exit"]


async def test_a_time_limit_that_passed_during_the_stop_holds(place, autojump_clock):
    """One that was being ended by its time limit has none left when it is woken."""
    async with place.system(*looping("echo"), devices=(Tool("echo"), STUCK)) as bench:
        process = bench.spawn(timeout_ms=1500)
        await trio.sleep(1.2)
        await bench.kernel.suspend_all()
    async with place.system(*looping(), devices=(Tool("echo"), STUCK)) as bench:
        same = found(bench, process)
        bench.kernel.wake(same)
        start = trio.current_time()
        await same.done.wait()
        assert trio.current_time() - start == pytest.approx(0.3)
        assert exit_of(same).reason.startswith("timeout")


# --- what it shares with others ---


async def test_messages_wait_on(place, autojump_clock):
    """Those that nobody took, in their order, with their numbers, senders and times; no number is given
    twice, whatever the second system sends and the third finds."""
    async with place.system(*looping() * 2, devices=(STUCK,)) as bench:
        one = bench.spawn()
        two = bench.kernel.spawn(SpawnRequest(intent="below", parent=one.pid), PERSON)
        await settle()
        for sender in (0, one.pid, 0):
            bench.kernel.channels.send(sender, two, {"from": sender})
        bench.kernel.channels.send(0, one, "hello")
        assert bench.kernel.channels.receiver(two).take().seq == 1
        waiting = {process.pid: bench.kernel.channels.queue(process).lines() for process in (one, two)}
    async with place.system() as bench:
        first, second = found(bench, one), found(bench, two)
        for process in (first, second):
            assert bench.kernel.channels.queue(process).lines() == waiting[process.pid]
        sent = bench.kernel.channels.send(0, second, "later").seq
        assert sent > 4
        taken = [bench.kernel.channels.receiver(second).take().seq for _ in range(3)]
        assert taken == [2, 3, sent]
        last = bench.kernel.channels.send(0, second, "last")
    async with place.system() as bench:
        assert bench.kernel.channels.queue(found(bench, two)).lines() == last.line()
        assert bench.kernel.channels.send(0, found(bench, one), "again").seq > last.seq


async def test_messages_are_taken_again_by_who_was_stopped_before_it_could(place, autojump_clock):
    """A message is gone when its taking is in the log, and not before."""
    async with place.system(*looping(), devices=(STUCK,)) as bench:
        process = bench.spawn()
        await settle()
        bench.kernel.channels.send(0, process, "once")
        bench.kernel.channels.receiver(process).take()
    whole = every(place.log)
    place.cut(lambda record: record.event == "send")
    async with place.system() as bench:
        assert len(bench.kernel.channels.queue(found(bench, process))) == 1
    place.log = rewritten(whole)
    async with place.system() as bench:
        assert len(bench.kernel.channels.queue(found(bench, process))) == 0


async def test_groups_have_the_same_members_in_the_same_order(place, autojump_clock):
    """Those that last are there without members, too; the others went with their last member, for good."""
    async with place.system(*looping() * 3, devices=(STUCK,)) as bench:
        one, two, three = (bench.spawn() for _ in range(3))
        await settle()
        groups = bench.kernel.groups
        groups.make("lasting")
        groups.make("removed")
        groups.remove("removed")
        for process in (three, one, two):
            groups.join(process, "team", PERSON)
        groups.join(two, "left", PERSON)
        groups.leave(two, "left", PERSON)
        groups.join(one, "gone", PERSON)
        groups.join(three, "lasting", PERSON)
        groups.leave(one, "team", PERSON)
        groups.join(one, "team", PERSON)
        groups.leave(one, "gone", PERSON)
        bench.kernel.deliver(three, Signal.KILL)
        expected = {name: list(groups.group(name).members) for name in groups.names()}
    assert expected == {"lasting": [], "team": [two.pid, one.pid]}
    for _ in range(2):
        async with place.system() as bench:
            groups = bench.kernel.groups
            assert {name: list(groups.group(name).members) for name in groups.names()} == expected
            assert groups.of(found(bench, one)) == ["team"]
    async with place.system() as bench:
        for process in (one, two):
            bench.kernel.deliver(found(bench, process), Signal.KILL)
        assert bench.kernel.groups.names() == ["lasting"]


async def test_a_group_whose_members_all_ended_in_the_stop_is_gone(place, autojump_clock):
    """One that joining made, where the end of its only member was the last that was written."""
    async with place.system(*looping(), devices=(STUCK,)) as bench:
        process = bench.spawn()
        await settle()
        bench.kernel.groups.join(process, "team", PERSON)
        tell(bench, process, "kill")
    place.cut(lambda record: record.event == "exit")
    async with place.system() as bench:
        assert bench.kernel.groups.names() == []
        bench.kernel.groups.make("team")
        assert bench.kernel.groups.names() == ["team"]


async def test_a_key_makes_a_process_once_over_restarts(place, autojump_clock):
    """Whether it has ended meanwhile or waits to be woken; another request with the key is refused."""
    async with place.system(answer("done"), *looping(), devices=(STUCK,)) as bench:
        ended = await bench.run("one", idempotency_key="first")
        process = bench.spawn("two", idempotency_key="second")
        await settle()
    async with place.system() as bench:
        assert bench.spawn("one", idempotency_key="first").uuid == ended.uuid
        assert bench.spawn("two", idempotency_key="second") is found(bench, process)
        assert code_of(lambda: bench.spawn("three", idempotency_key="second")) is Code.INVALID
        assert list(bench.kernel.processes) == [process.pid]


# --- ends that nobody had heard of ---


async def test_a_zombie_that_nobody_reaped_waits_for_its_parent(place, autojump_clock):
    """With its exit and result; the parent's model is told once, and then it is reaped."""
    async with place.system(uses(call("spawn", intent="below")), devices=(STUCK,)) as bench:
        bench.model.replies += [_by_intent({"below": answer("42"), "do it": uses(call("stuck"))})] * 3
        parent = bench.spawn()
        await settle()
        assert bench.kernel.processes[2].state is State.ZOMBIE
    async with place.system(answer("done"), devices=(STUCK,)) as bench:
        zombie, above = bench.kernel.processes[2], found(bench, parent)
        assert (zombie.state, zombie.exit, zombie.result) == (State.ZOMBIE, Exit(0, "done"), "42")
        assert (zombie.parent, list(above.children), list(above.untold)) == (above, [2], [2])
        assert place.restored.suspended == 1
        bench.kernel.wake(above)
        await above.done.wait()
        assert zombie.state is State.DEAD
        told = [text for role, text in messages(above) if role == "user"][1:]
        assert told == ['Child process 2 ended: exited(0) reason "done" result "42"']


def _by_intent(replies: dict[str, Any]) -> Any:
    """A reply that depends on whose model is asked."""
    return lambda request: replies[request.messages[0].content]


async def test_an_end_that_others_reaped_is_heard_of_once(place, autojump_clock):
    """Over any number of restarts: before its parent heard of it as well as after."""
    async with place.system(uses(call("spawn", intent="below")), devices=(Tool("echo"), STUCK)) as bench:
        bench.model.replies += [_by_intent({"below": uses(call("stuck")), "do it": uses(call("stuck"))})] * 2
        parent = bench.spawn()
        await settle()
        bench.kernel.remove(bench.kernel.processes[2], PERSON)
    async with place.system() as bench:
        assert 2 not in bench.kernel.processes
        assert list(found(bench, parent).untold) == [2]
    async with place.system(uses(call("echo")), uses(call("stuck")), devices=(Tool("echo"), STUCK)) as bench:
        above = found(bench, parent)
        bench.kernel.wake(above)
        await trio.sleep(5)
        assert [text for _, text in messages(above)].count(_removed(2)) == 1
    async with place.system(answer("done"), devices=(Tool("echo"), STUCK)) as bench:
        above = found(bench, parent)
        assert above.untold == {}
        bench.kernel.wake(above)
        await above.done.wait()
        assert [text for _, text in messages(above)].count(_removed(2)) == 1


async def test_ends_are_heard_of_in_the_order_in_which_they_came(place, autojump_clock):
    """Those of zombies and those of children that others reaped, as if the system had not stopped."""
    async with place.system(*looping() * 6, devices=(STUCK,)) as bench:
        parent = bench.spawn()
        children = [
            bench.kernel.spawn(SpawnRequest(intent="below", parent=parent.pid), PERSON) for _ in range(5)
        ]
        await settle()
        for number, reap in ((3, False), (0, True), (4, False), (1, False), (2, True)):
            bench.kernel.deliver(children[number], Signal.KILL)
            if reap:
                bench.kernel.reap(children[number])
        expected = [children[number].pid for number in (3, 0, 4, 1, 2)]
        assert list(parent.untold) == expected
    for _ in range(2):
        async with place.system() as bench:
            assert list(found(bench, parent).untold) == expected


def _removed(pid: int) -> str:
    return f'Child process {pid} ended: exited(1) reason "killed by SIGKILL" result ""'


async def test_an_end_that_was_heard_of_is_reaped_with_the_restart(place, autojump_clock):
    """Where the system stopped between the two."""
    async with place.system(uses(call("spawn", intent="below")), devices=(Tool("echo"), STUCK)) as bench:
        replies = [answer("42"), uses(call("wait")), uses(call("stuck"))]
        bench.model.replies += [_either("below", replies)] * 3
        parent = bench.spawn()
        await settle()
        assert results(parent)[-1] == {"exits": [{"pid": 2, "code": 0, "reason": "done", "result": "42"}]}
    place.cut(lambda record: record.event == "tool_finished" and bool(record.data["done"].get("told")))
    async with place.system() as bench:
        above = found(bench, parent)
        assert (above.children, above.untold) == ({}, {})
        assert 2 not in bench.kernel.processes
        assert bench.kernel.history.by_pid(2).state is State.DEAD
    assert place.events(2)[-2:] == ["exit", "reap"]


def _either(child: str, replies: list[Any]) -> Any:
    """The first reply for a child, the others, one after the other, for its parent."""
    return lambda request: replies.pop(0 if request.messages[0].content == child else 1)


# --- ends in the middle of which the system stopped ---


@pytest.mark.parametrize("last", ["exit", "reparent", "reap"])
async def test_an_end_is_finished(place, autojump_clock, last):
    """What it does to others is done after the restart, once: its children are the system's, whoever of them
    is a zombie is reaped, and so is it."""
    async with place.system(*looping() * 3, devices=(STUCK,)) as bench:
        parent = bench.spawn()
        child, zombie = (
            bench.kernel.spawn(SpawnRequest(intent="below", parent=parent.pid), PERSON) for _ in range(2)
        )
        await settle()
        bench.kernel.deliver(zombie, Signal.KILL)
        bench.kernel.deliver(parent, Signal.KILL)
        await settle()
    place.cut(lambda record: record.event == last and record.pid != zombie.pid)
    for _ in range(2):
        async with place.system() as bench:
            assert list(bench.kernel.processes) == [child.pid]
            same = found(bench, child)
            assert (same.parent, same.ppid, same.state) == (None, 0, State.SUSPENDED)
            assert sorted(bench.kernel.history.uuids()) == sorted([parent.uuid, zombie.uuid])
    for process in (parent, zombie):
        events = place.events(process.pid)
        assert (events.count("exit"), events.count("reap"), events[-1]) == (1, 1, "reap")
    assert place.events(child.pid).count("reparent") == 1


async def test_the_children_of_a_supervisor_that_ended_end(place, autojump_clock):
    """Without it nobody would start or stop them."""
    spec = {"name": "sup", "children": [{"name": "a", "intent": "a"}, {"name": "b", "intent": "b"}]}
    async with place.system(*looping() * 2, devices=(STUCK,)) as bench:
        sup = _supervisor(bench, spec)
        await settle()
        assert len(bench.kernel.live()) == 3
        bench.kernel.deliver(sup, Signal.KILL)
    place.cut(lambda record: (record.pid, record.event) == (sup.pid, "exit"))
    async with place.system() as bench:
        assert bench.kernel.processes == {}
        assert place.restored.suspended == 0
        assert [exit_of(bench.kernel.history.by_pid(pid)).reason for pid in (2, 3)] == [
            "killed by SIGKILL"
        ] * 2


def _supervisor(bench: Bench, spec: dict[str, Any]) -> Process:
    request = msgspec.convert({"supervisor": spec}, SpawnRequest)
    return bench.kernel.spawn(request, PERSON)


# --- supervisors ---


async def test_the_board_of_a_supervisor_is_what_it_was(place, autojump_clock):
    """Pids, states, restarts and ends of its children; woken with them, it starts none of them again."""
    spec = {
        "name": "sup",
        "max_restarts": 2,
        "children": [
            {"name": name, "intent": name, "restart": kind}
            for name, kind in (("a", "permanent"), ("b", "temporary"), ("c", "permanent"))
        ],
    }
    async with place.system(*looping() * 4, devices=(STUCK,)) as bench:
        sup = _supervisor(bench, spec)
        await settle()
        for pid in (2, 3):
            bench.kernel.deliver(bench.kernel.processes[pid], Signal.KILL)
        await settle()
        tell(bench, sup, "stop c")
        await settle()
        board = board_of(sup).listing()
        rows = {row["name"]: (row["pid"], row["state"], row["restarts"]) for row in board["children"]}
        assert rows == {"a": (5, "running", 1), "b": (3, "failed", 0), "c": (4, "stopped", 0)}
    async with place.system(*looping() * 3, devices=(STUCK,)) as bench:
        same = found(bench, sup)
        assert board_of(same).listing() == board
        assert wake_tree(bench.kernel, same, PERSON) == 2
        await settle()
        assert board_of(same).listing() == board
        assert [one.pid for one in bench.kernel.live()] == [sup.pid, 5]
        bench.kernel.deliver(bench.kernel.processes[5], Signal.KILL)
        await settle()
        assert [row["restarts"] for row in board_of(same).rows()] == [2, 0, 0]
        bench.kernel.deliver(bench.kernel.processes[6], Signal.KILL)
        await settle()
        assert exit_of(same).reason.startswith("max_restarts_exceeded")


async def test_a_supervisor_hears_of_ends_that_came_while_no_system_ran_it(place, autojump_clock):
    """It was suspended; its child ended, was reaped, and is history: woken, it starts another one, once."""
    spec = {"name": "sup", "children": [{"name": "a", "intent": "a"}]}
    async with place.system(*looping(), devices=(STUCK,)) as bench:
        sup = _supervisor(bench, spec)
        await settle()
    async with place.system() as bench:
        bench.kernel.remove(bench.kernel.processes[2], PERSON)
        assert board_of(found(bench, sup)).rows()[0]["state"] == "running"
    async with place.system(*looping(), devices=(STUCK,)) as bench:
        same = found(bench, sup)
        bench.kernel.wake(same)
        await settle()
        (row,) = board_of(same).rows()
        assert (row["pid"], row["state"], row["restarts"]) == (3, "running", 1)
        assert same.untold == {}
    async with place.system() as bench:
        assert found(bench, sup).untold == {}


# --- what a process is made from ---


async def test_every_event_of_a_log_leaves_a_process_that_can_be_made(place, autojump_clock):
    """Wherever the log ends, no process is lost."""
    spec = {"name": "sup", "children": [{"name": "a", "intent": "a"}]}
    async with place.system(
        uses(call("spawn", intent="below")), *looping() * 3, devices=(Tool("echo"), STUCK)
    ) as bench:
        process = bench.spawn()
        await settle()
        sup = _supervisor(bench, spec)
        await settle()
        tell(bench, process, "block TERM", "term", "say hello", "budget 5")
        tell(bench, process, "revoke /dev", "pause", "suspend", "wake")
        bench.kernel.groups.join(process, "team", PERSON)
        bench.kernel.channels.send(0, process, 1)
        bench.kernel.channels.receiver(process).take()
        bench.kernel.deliver(bench.kernel.processes[2], Signal.KILL)
        bench.kernel.deliver(sup, Signal.KILL)
        tell(bench, process, "unblock TERM")
        await settle()
    events = every(place.log)
    for cut in range(1, len(events)):
        place.log = rewritten(events[:cut])
        unfinished = place.log.unfinished()
        async with place.system() as bench:
            assert place.restored.lost == 0, events[cut - 1]
            for pid in unfinished:
                past = bench.kernel.processes.get(pid) or bench.kernel.history.by_pid(pid)
                assert past.state in (State.SUSPENDED, State.ZOMBIE, State.DEAD)
            assert place.restored.suspended == len(bench.kernel.live())


async def test_a_log_that_does_not_begin_with_a_birth_makes_no_process(place, autojump_clock):
    """NOT_FOUND; so is a pid that there never was."""
    async with place.system() as bench:
        place.log.append_event("say", 7, {"text": "nobody is there"})
        for pid in (7, 8):
            assert code_of(lambda pid=pid: remake(bench.kernel, pid)) is Code.NOT_FOUND
        assert bench.kernel.history.by_pid(7) is None


async def test_an_event_that_nobody_knows_changes_nothing(place, autojump_clock):
    """As one that a later release has written."""
    async with place.system(*looping(), devices=(STUCK,)) as bench:
        process = bench.spawn()
        await settle()
        status = process.status()
        place.log.append_event("invented", process.pid, {"x": 1})
    async with place.system() as bench:
        same = found(bench, process).status()
        changed = {"state", "suspended", "elapsed_ms"}
        assert all(same[name] == status[name] for name in status if name not in changed)


async def test_the_lab_cuts_a_log_where_it_says(autojump_clock) -> None:
    """The events before stay as they were, with their numbers and times."""
    log = MemoryStore(clock=iter([1.0, 2.0, 3.0]).__next__)
    for number, pid in ((1, 5), (2, 0), (3, 5)):
        log.append_event("spawn" if number == 1 else "x", pid, {"n": number})
    assert rewritten(every(log)[:2]).unfinished() == [5]
    assert [(one.seq, one.ts) for one in every(rewritten(every(log)))] == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert isinstance(every(log)[0], Record)
