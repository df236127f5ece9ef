"""A supervisor at work: what is started and stopped, in which order, and when it gives up."""

import pytest
import trio

from rnixfs import limits
from rnixfs.proc.board import Verb
from rnixfs.proc.signals import Signal
from rnixfs.proc.state import Exit, State
from tests.supervision.supervisorlab import HOUR, exit_of, supervisor


async def stubborn(_sys):
    """A program that no cancellation reaches."""
    with trio.CancelScope(shield=True):
        await trio.sleep(100 * HOUR)
    return Exit(0, "at last")


async def quick(_sys):
    """A program that ends well at once."""
    return Exit(0, "done")


# --- start and stop ---


async def test_children_are_started_in_order_as_children_of_the_supervisor(lab, autojump_clock):
    """Each child is an ordinary process below it, in the order of the spec."""
    sup = await lab.supervisor("a", "b", "c")
    assert lab.diary.take() == ["spawn sup", "spawn a", "spawn b", "spawn c"]
    assert [lab.named(name).ppid for name in "abc"] == [sup.pid] * 3
    assert lab.states(sup) == dict.fromkeys("abc", "running")
    assert sup.board.started.is_set()


async def test_a_child_gets_what_its_spec_says(lab, autojump_clock):
    """Agent, provider, model and budget are those of the spec."""
    fields = {"name": "a", "intent": "x", "agent": "g", "provider": "p", "model": "m", "context_budget": 9}
    await lab.supervisor(fields)
    launch = lab.named("x").launch
    assert (launch.agent, launch.provider, launch.model, launch.budget.tokens) == ("g", "p", "m", 9)


@pytest.mark.parametrize(
    ("signal", "reason"),
    [(Signal.TERM, "terminated by SIGTERM"), (Signal.INT, "interrupted by SIGINT")],
)
async def test_told_to_end_it_stops_its_children_in_reverse(lab, autojump_clock, signal, reason):
    """Each child has ended before the one started before it is told."""
    sup = await lab.supervisor("a", "b", "c")
    lab.diary.take()
    lab.kernel.deliver(sup, signal)
    await sup.done.wait()
    assert lab.diary.take() == [
        f"signal sup {signal}",
        *["signal c SIGTERM", "exit c 1", "signal b SIGTERM", "exit b 1", "signal a SIGTERM", "exit a 1"],
        "exit sup 1",
    ]
    assert exit_of(sup) == Exit(1, reason)
    assert lab.states(sup) == dict.fromkeys("abc", "stopped")


async def test_a_child_that_does_not_stop_is_killed_when_its_time_is_up(lab, autojump_clock):
    """TERM, then KILL after the limit; the others are stopped all the same."""
    lab.programs["stone"] = stubborn
    sup = await lab.supervisor("a", "stone")
    lab.diary.take()
    began = trio.current_time()
    lab.kernel.deliver(sup, Signal.TERM)
    await sup.done.wait()
    assert trio.current_time() - began == limits.SUPERVISOR_STOP_SECONDS
    assert lab.diary.take() == [
        "signal sup SIGTERM",
        *["signal stone SIGTERM", "signal stone SIGKILL", "exit stone 1"],
        *["signal a SIGTERM", "exit a 1", "exit sup 1"],
    ]


async def test_a_second_term_changes_nothing(lab, autojump_clock):
    """It is stopping already, and its children keep their time."""
    lab.programs["stone"] = stubborn
    sup = await lab.supervisor("a", "stone")
    lab.kernel.deliver(sup, Signal.TERM)
    await lab.settle()
    lab.diary.take()
    lab.kernel.deliver(sup, Signal.TERM)
    await sup.done.wait()
    assert lab.diary.take().count("signal a SIGTERM") == 1


async def test_children_that_are_all_done_end_their_supervisor_well(lab, autojump_clock):
    """With nothing left to keep running it ends with code 0, and its result says how each child ended."""
    sup = await lab.supervisor("a:transient", "b:temporary")
    await lab.end("a", code=0)
    assert sup.live
    await lab.end("b", code=3)
    assert exit_of(sup) == Exit(0, "done")
    assert lab.states(sup) == {"a": "done", "b": "failed"}
    assert '"result":"result of a"' in sup.result.splitlines()[0]
    assert '"exit":{"code":3,"reason":"crashed"}' in sup.result.splitlines()[1]


async def test_a_first_start_that_fails_takes_back_the_others(lab, autojump_clock):
    """Nothing is left running of a supervisor that could not start all of its children."""
    lab.refused["c"] = 1
    sup = await lab.supervisor("a", "b", "c", "d")
    assert lab.diary.take() == [
        *["spawn sup", "spawn a", "spawn b"],
        *["signal b SIGTERM", "exit b 1", "signal a SIGTERM", "exit a 1", "exit sup 1"],
    ]
    assert exit_of(sup) == Exit(1, "start_failed: 'c' could not be started: no agent for 'c'")


# --- restarts ---


async def test_one_for_one_starts_only_the_one_that_ended(lab, autojump_clock):
    """The others keep their pids; the new one has a new pid and counts its restart."""
    sup = await lab.supervisor("a", "b", "c")
    before = {name: lab.pid(name) for name in "abc"}
    assert await lab.end("b") == ["exit b 1", "spawn b"]
    rows = lab.rows(sup)
    assert [rows[name]["pid"] == before[name] for name in "abc"] == [True, False, True]
    assert rows["b"]["pid"] == lab.pid("b") > max(before.values())
    assert [rows[name]["restarts"] for name in "abc"] == [0, 1, 0]


async def test_an_ended_child_is_reaped(lab, autojump_clock):
    """No zombie is left of an earlier incarnation."""
    sup = await lab.supervisor("a")
    first = lab.named("a")
    await lab.end("a")
    assert first.state is State.DEAD
    assert list(sup.children) == [lab.pid("a")]


async def test_one_for_all_stops_the_others_in_reverse_and_starts_all(lab, autojump_clock):
    """Everything stops before anything starts."""
    await lab.supervisor("a", "b", "c", strategy="one_for_all")
    assert await lab.end("b") == [
        *["exit b 1", "signal c SIGTERM", "exit c 1", "signal a SIGTERM", "exit a 1"],
        *["spawn a", "spawn b", "spawn c"],
    ]


async def test_rest_for_one_starts_those_again_that_came_after(lab, autojump_clock):
    """What was started before the one that ended is left alone."""
    await lab.supervisor("a", "b", "c", "d", strategy="rest_for_one")
    assert await lab.end("b") == [
        *["exit b 1", "signal d SIGTERM", "exit d 1", "signal c SIGTERM", "exit c 1"],
        *["spawn b", "spawn c", "spawn d"],
    ]


async def test_transient_children_start_again_only_after_failures(lab, autojump_clock):
    """Code 0 is their end."""
    sup = await lab.supervisor("a:transient", "b")
    assert await lab.end("a", code=2) == ["exit a 2", "spawn a"]
    assert await lab.end("a", code=0) == ["exit a 0"]
    assert lab.states(sup) == {"a": "done", "b": "running"}


async def test_temporary_children_never_start_again(lab, autojump_clock):
    """Not after their own failure, and not after that of a sibling that takes them along."""
    sup = await lab.supervisor("a:temporary", "b", "c:temporary", strategy="one_for_all")
    assert await lab.end("c") == ["exit c 1"]
    assert await lab.end("b") == ["exit b 1", "signal a SIGTERM", "exit a 1", "spawn b"]
    assert lab.states(sup) == {"a": "failed", "b": "running", "c": "failed"}


async def test_finished_work_is_not_done_again_for_a_sibling(lab, autojump_clock):
    """A transient child that ended well stays ended when all others start again, also when both ends come
    at the same moment."""
    sup = await lab.supervisor("a:transient", "b:transient", "c", "d:transient", strategy="one_for_all")
    await lab.end("a", code=0)
    lab.diary.take()
    lab.pull("b", "d", code=0)
    lab.pull("c", code=1)
    await lab.settle()
    happened = lab.diary.take()
    assert sorted(happened[:3]) == ["exit b 0", "exit c 1", "exit d 0"]
    assert happened[3:] == ["spawn c"]
    assert lab.states(sup) == {"a": "done", "b": "done", "c": "running", "d": "done"}


async def test_two_that_crash_together_are_one_restart_of_all(lab, autojump_clock):
    """The crash of a sibling that would be stopped anyway is no second failure."""
    await lab.supervisor("a", "b", "c", strategy="one_for_all", max_restarts=1)
    happened = await lab.end("a", "c")
    assert [line for line in happened if line.startswith("spawn")] == ["spawn a", "spawn b", "spawn c"]


async def test_a_restart_that_cannot_be_made_is_a_failure_like_an_exit(lab, autojump_clock):
    """It counts, and when it fails too often the supervisor says why."""
    sup = await lab.supervisor("a", "b")
    lab.refused["a"] = 100
    assert await lab.end("a") == ["exit a 1", "signal b SIGTERM", "exit b 1", "exit sup 1"]
    assert lab.refused["a"] == 100 - 3
    reason = "'a' ended with code 1: could not be started: no agent for 'a'"
    assert exit_of(sup).reason.startswith(f"max_restarts_exceeded: {reason}; 3 restarts within 60 s")


async def test_those_behind_a_failed_restart_are_not_forgotten(lab, autojump_clock):
    """A restart of all that stops half-way goes on with the next attempt."""
    sup = await lab.supervisor("a", "b", "c", strategy="rest_for_one")
    lab.refused["b"] = 1
    assert await lab.end("a") == [
        *["exit a 1", "signal c SIGTERM", "exit c 1", "signal b SIGTERM", "exit b 1"],
        *["spawn a", "spawn b", "spawn c"],
    ]
    assert lab.states(sup) == dict.fromkeys("abc", "running")
    # One restart for the end of a, one for the start of b that failed, and one is left.
    await lab.end("c")
    assert sup.live
    await lab.end("c")
    assert not sup.live


# --- giving up ---


async def test_more_restarts_than_allowed_end_it_with_the_reason(lab, autojump_clock):
    """The fourth failure within the window stops the others in reverse and ends it with code 1."""
    sup = await lab.supervisor("a", "b", "c")
    for _ in range(3):
        await lab.end("b")
    assert await lab.end("b") == [
        *["exit b 1", "signal c SIGTERM", "exit c 1", "signal a SIGTERM", "exit a 1", "exit sup 1"]
    ]
    said = "max_restarts_exceeded: 'b' ended with code 1: crashed; 3 restarts within 60 s are allowed"
    assert exit_of(sup) == Exit(1, said)
    assert lab.states(sup) == {"a": "stopped", "b": "failed", "c": "stopped"}


async def test_restarts_of_all_children_count_together_and_slide_out_of_the_window(lab, autojump_clock):
    """Only those of the last `max_window` seconds count, whoever failed."""
    sup = await lab.supervisor("a", "b", max_restarts=2, max_window=10)
    for name in ("a", "b", "a", "b", "a"):
        await lab.end(name)
        assert sup.live
        await trio.sleep(6)
    await lab.end("b")
    assert sup.live
    await lab.end("a")
    assert not sup.live


async def test_a_child_that_fails_at_once_uses_up_its_restarts_at_once(lab, autojump_clock):
    """No restart storm: a permanent child that cannot live is started 1 + max_restarts times."""
    lab.programs["a"] = quick
    sup = await lab.supervisor("a", max_restarts=5)
    assert lab.diary.take().count("spawn a") == 6
    assert exit_of(sup).code == 1


# --- incarnations, and strangers ---


async def test_the_end_of_a_stranger_changes_nothing(lab, autojump_clock):
    """A process that somebody put under the supervisor is reaped, and no child is started for it."""
    sup = await lab.supervisor("a")
    stranger = lab.spawn(intent="stranger", parent=sup.pid)
    await lab.settle()
    lab.kernel.deliver(stranger, Signal.KILL)
    await lab.end("a")
    assert stranger.state is State.DEAD
    assert lab.rows(sup)["a"]["restarts"] == 1


async def test_an_earlier_incarnation_is_nobody(lab, autojump_clock):
    """The board knows a child by the pid that it has now."""
    sup = await lab.supervisor("a")
    first = lab.pid("a")
    await lab.end("a")
    assert sup.board.current(first) is None
    assert sup.board.current(lab.pid("a")) is sup.board.children["a"]
    lab.kernel.deliver(sup, Signal.TERM)
    await sup.done.wait()
    assert sup.board.current(lab.pid("a")) is None


async def test_a_child_that_is_removed_by_hand_is_started_again(lab, autojump_clock):
    """`rmdir proc/<pid>` kills and reaps before the supervisor can; it notices all the same."""
    sup = await lab.supervisor("a")
    lab.kernel.remove(lab.named("a"), sup.caller)
    await lab.settle()
    assert lab.diary.take()[-1] == "spawn a"
    # Also one that was removed while the supervisor did not look: paused, with an order that waits.
    lab.kernel.deliver(sup, Signal.PAUSE)
    sup.board.order(Verb.START, "a")
    await lab.settle()
    lab.kernel.remove(lab.named("a"), sup.caller)
    lab.kernel.deliver(sup, Signal.RESUME)
    await lab.settle()
    assert lab.diary.take()[-1] == "spawn a"
    assert lab.rows(sup)["a"]["restarts"] == 2


# --- what takes it along ---


@pytest.mark.parametrize("how", ["kill", "remove", "timeout"])
async def test_children_go_with_their_supervisor_whatever_ends_it(lab, autojump_clock, how):
    """A killed supervisor cannot stop its children; the kernel does, the last one first."""
    sup = lab.spawn(supervisor=supervisor("a", "b"), **({"timeout_ms": 1000} if how == "timeout" else {}))
    await lab.settle()
    lab.diary.take()
    if how == "kill":
        lab.kernel.deliver(sup, Signal.KILL)
    elif how == "remove":
        lab.kernel.remove(sup, sup.caller)
    await sup.done.wait()
    happened = [line for line in lab.diary.take() if "sup" not in line]
    assert happened == ["signal b SIGKILL", "exit b 1", "signal a SIGKILL", "exit a 1"]
    assert [lab.named(name).state for name in "ab"] == [State.DEAD, State.DEAD]
    assert lab.states(sup) if how != "remove" else True


async def test_who_waits_for_a_start_learns_of_an_end_before_it(lab, autojump_clock):
    """A supervisor that is killed before it began has started all that it ever will."""
    sup = lab.spawn(supervisor=supervisor("a"))
    lab.kernel.deliver(sup, Signal.KILL)
    assert sup.board.started.is_set()
    await lab.settle()
    assert "spawn a" not in lab.diary.take()


async def test_a_supervisor_killed_while_it_stops_a_child_leaves_nothing(lab, autojump_clock):
    """Also a child that resists is gone with it."""
    lab.programs["stone"] = stubborn
    sup = await lab.supervisor("a", "stone")
    lab.kernel.deliver(sup, Signal.TERM)
    await lab.settle()
    lab.kernel.deliver(sup, Signal.KILL)
    assert lab.kernel.live() == []


# --- supervisors under supervisors ---


async def test_nested_supervisors_start_and_stop_as_one_tree(lab, autojump_clock):
    """A child that is a supervisor has stopped its own children before its elder sibling is stopped."""
    inner = {"name": "in", "supervisor": supervisor("x", "y", name="inner")}
    sup = await lab.supervisor("a", inner, "b")
    assert lab.diary.take() == [*["spawn sup", "spawn a", "spawn inner", "spawn b"], "spawn x", "spawn y"]
    lab.kernel.deliver(sup, Signal.TERM)
    await sup.done.wait()
    assert [line for line in lab.diary.take() if line.startswith("exit")] == [
        *["exit b 1", "exit y 1", "exit x 1", "exit inner 1", "exit a 1", "exit sup 1"]
    ]


async def test_an_inner_supervisor_that_gives_up_is_started_again_by_the_outer_one(lab, autojump_clock):
    """Failures escalate: the outer supervisor starts the whole inner tree anew."""
    inner = {"name": "in", "supervisor": supervisor("x", name="inner", max_restarts=0)}
    sup = await lab.supervisor(inner)
    assert await lab.end("x") == ["exit x 1", "exit inner 1", "spawn inner", "spawn x"]
    assert lab.rows(sup)["in"]["restarts"] == 1


async def test_killing_the_outermost_supervisor_ends_the_tree(lab, autojump_clock):
    """Every generation goes with the one above."""
    inner = {"name": "in", "supervisor": supervisor("x", name="inner")}
    sup = await lab.supervisor(inner, "a")
    lab.kernel.deliver(sup, Signal.KILL)
    assert lab.kernel.live() == []


# --- pause, and the end of the system ---


async def test_a_paused_supervisor_starts_nothing_until_it_goes_on(lab, autojump_clock):
    """What happened meanwhile is made good when it resumes."""
    sup = await lab.supervisor("a")
    lab.kernel.deliver(sup, Signal.PAUSE)
    assert await lab.end("a") == ["exit a 1"]
    lab.kernel.deliver(sup, Signal.RESUME)
    await lab.settle()
    assert lab.diary.take() == ["signal sup SIGRESUME", "spawn a"]


async def test_a_paused_supervisor_can_be_ended(lab, autojump_clock):
    """TERM reaches it, and its children are stopped."""
    sup = await lab.supervisor("a", "b")
    lab.kernel.deliver(sup, Signal.PAUSE)
    await lab.settle()
    lab.kernel.deliver(sup, Signal.TERM)
    await sup.done.wait()
    assert lab.kernel.live() == []


async def test_when_the_system_stops_a_supervisor_and_its_children_stand_still(lab, autojump_clock):
    """None ends, none is told to, and none is started again."""
    sup = await lab.supervisor("a", "b")
    lab.diary.take()
    lab.kernel.shut_down()
    await lab.kernel.suspend_all()
    assert lab.diary.take() == ["suspend sup", "suspend a", "suspend b"]
    assert lab.states(sup) == {"a": "running", "b": "running"}


async def test_a_supervisor_that_is_woken_goes_on_with_the_same_children(lab, autojump_clock):
    """Those that still run are not started again; those that ended meanwhile are, once."""
    sup = await lab.supervisor("a", "b")
    pids = lab.pid("a"), lab.pid("b")
    lab.kernel.suspend(sup, "for a while")
    await lab.settle()
    assert await lab.end("a") == ["exit a 1"]
    lab.kernel.wake(sup)
    await lab.settle()
    assert lab.diary.take() == ["wake sup", "spawn a"]
    assert lab.pid("a") > pids[1]
    assert lab.pid("b") == pids[1]
    assert {name: row["restarts"] for name, row in lab.rows(sup).items()} == {"a": 1, "b": 0}
    assert await lab.end("b") == ["exit b 1", "spawn b"]


async def test_restarts_from_before_a_suspension_count(lab, autojump_clock):
    """Nobody gets more restarts by being suspended."""
    sup = await lab.supervisor("a", max_restarts=1)
    assert await lab.end("a") == ["exit a 1", "spawn a"]
    lab.kernel.suspend(sup, "for a while")
    await lab.settle()
    lab.kernel.wake(sup)
    await lab.settle()
    await lab.end("a")
    assert exit_of(sup).reason.startswith("max_restarts_exceeded")


async def test_a_stop_that_was_begun_is_finished_by_a_supervisor_that_is_woken(lab, autojump_clock):
    """A child that was being stopped is stopped, and stays so."""
    sup = await lab.supervisor("a", "b")
    lab.named("a").signals.block(Signal.TERM)
    lab.do(f"/proc/{sup.pid}/ctl", "stop a")
    await lab.settle()
    assert lab.states(sup)["a"] == "stopping"
    lab.kernel.suspend(sup, "for a while")
    await lab.settle()
    await trio.sleep(HOUR)
    assert lab.named("a").live
    lab.diary.take()
    lab.kernel.wake(sup)
    await trio.sleep(HOUR)
    assert lab.diary.take() == ["wake sup", "signal a SIGTERM", "signal a SIGKILL", "exit a 1"]
    assert lab.states(sup) == {"a": "stopped", "b": "running"}
