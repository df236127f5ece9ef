"""The watcher: which signals count, who is gone, and that it rests while nobody waits."""

import os
from functools import partial

import pytest
import trio
import trio.testing

from rnixfs.edge.watch import GONE_SECONDS, Sight, Watcher, judge, look

NONE = 0
INT, KILL, CHLD = 1 << 1, 1 << 8, 1 << 16


def status(*, own=NONE, shared=NONE, blocked=NONE, ignored=NONE, caught=NONE, state="S (sleeping)") -> str:
    return (
        f"Name:\tSigPnd:\nState:\t{state}\nTgid:\t7\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\n"
        f"SigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\nCapInh:\t0\n"
    )


@pytest.fixture
def proc(tmp_path):
    """A procfs with one thread, 7, that has no signals."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_text(status())
    return tmp_path


@pytest.mark.parametrize(
    ("fields", "sight"),
    [
        ({}, Sight.QUIET),
        ({"own": INT}, Sight.SIGNALLED),
        ({"shared": INT}, Sight.SIGNALLED),
        ({"shared": KILL}, Sight.SIGNALLED),
        ({"shared": INT, "caught": INT}, Sight.SIGNALLED),
        ({"own": INT, "blocked": INT}, Sight.QUIET),
        ({"shared": INT, "ignored": INT}, Sight.QUIET),
        ({"shared": INT | KILL, "blocked": INT}, Sight.SIGNALLED),
        ({"shared": CHLD}, Sight.QUIET),
        ({"shared": CHLD, "caught": CHLD}, Sight.SIGNALLED),
        ({"state": "Z (zombie)"}, Sight.GONE),
        ({"state": "X (dead)"}, Sight.GONE),
    ],
)
def test_judge(fields, sight):
    """Only a signal that the program would take counts."""
    assert judge(status(**fields).encode()) is sight


def test_judge_bears_a_kernel_without_the_fields():
    """Missing fields are no signals."""
    assert judge(b"Name:\tx\n") is Sight.QUIET


def test_look_at_nobody(tmp_path):
    """A thread that is not there is gone."""
    assert look(7, str(tmp_path)) is Sight.GONE


def test_look_at_oneself():
    """The real procfs is understood: a program that runs has nothing pending."""
    assert look(os.getpid()) is Sight.QUIET


async def test_wait_that_ends_by_itself(proc, autojump_clock, nursery):
    """True, after as long as it took, and nothing is watched any more."""
    watcher = Watcher(proc=str(proc))
    nursery.start_soon(watcher.run)
    start = trio.current_time()
    assert await watcher.wait(partial(trio.sleep, 10), 7)
    assert trio.current_time() - start == pytest.approx(10)
    assert len(watcher) == 0


async def test_signal_ends_every_wait_of_the_thread(proc, autojump_clock, nursery):
    """One look serves all that the thread opened; 10,000 waits end together."""
    watcher = Watcher(proc=str(proc))
    nursery.start_soon(watcher.run)
    results = []

    async def client():
        results.append(await watcher.wait(trio.sleep_forever, 7))

    async with trio.open_nursery() as clients:
        for _ in range(10_000):
            clients.start_soon(client)
        await trio.testing.wait_all_tasks_blocked()
        assert len(watcher) == 10_000
        (proc / "7" / "status").write_text(status(shared=INT))
    assert results == [False] * 10_000
    assert len(watcher) == 0


async def test_gone_thread_gets_a_moment(tmp_path, autojump_clock, nursery):
    """Whoever inherited the descriptor is interrupted too, but not at every look."""
    watcher = Watcher(proc=str(tmp_path))
    nursery.start_soon(watcher.run)
    start = trio.current_time()
    assert not await watcher.wait(trio.sleep_forever, 7)
    assert trio.current_time() - start >= GONE_SECONDS


async def test_unknown_thread_is_left_alone(tmp_path, autojump_clock, nursery):
    """Without a thread id there is nothing to look at."""
    watcher = Watcher(proc=str(tmp_path))
    nursery.start_soon(watcher.run)
    assert await watcher.wait(partial(trio.sleep, 1000), 0)
    assert watcher.rounds == 0


async def test_rests_while_nobody_waits(proc, autojump_clock, nursery):
    """No round is made before the first wait nor after the last."""
    watcher = Watcher(proc=str(proc))
    nursery.start_soon(watcher.run)
    await trio.sleep(1000)
    assert watcher.rounds == 0
    assert await watcher.wait(partial(trio.sleep, 1), 7)
    await trio.sleep(1)
    rounds = watcher.rounds
    assert rounds > 0
    await trio.sleep(1000)
    assert watcher.rounds == rounds


async def test_cancellation_passes(proc, autojump_clock, nursery):
    """A scope around the wait ends it as trio's scopes do, not as an interrupt."""
    watcher = Watcher(proc=str(proc))
    nursery.start_soon(watcher.run)
    with trio.move_on_after(1) as scope:
        await watcher.wait(trio.sleep_forever, 7)
    assert scope.cancelled_caught
    assert len(watcher) == 0


async def test_errors_pass(proc, nursery):
    """What the sleep raises comes out as it is."""

    async def fail():
        await trio.lowlevel.checkpoint()
        raise ValueError("this one")

    watcher = Watcher(proc=str(proc))
    with pytest.raises(ValueError, match="this one"):
        await watcher.wait(fail, 7)
    assert len(watcher) == 0
