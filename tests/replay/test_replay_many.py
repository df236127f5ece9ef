"""Replays of many runs of varied shapes are equal, byte for byte; and those that can be are good cases."""

import collections

import pytest

from rnixfs.case import read_case
from rnixfs.casefile import run_case
from rnixfs.caserecord import record_case
from rnixfs.errors import Code, SyscallError
from rnixfs.recording import ended_by_itself, read_recording
from tests.programs.reasonlab import answer
from tests.replay.replaylab import Fate, Life

RUNS = 100


@pytest.mark.parametrize("seed", range(RUNS))
async def test_a_run_and_its_children_replay_byte_for_byte(seed, tmp_path, autojump_clock):
    """As they would be launched today, where nothing has changed, and as they were."""
    life = Fate(seed, tmp_path).life
    await life.live()
    for pid in range(1, life.log.last_pid() + 1):
        outcome = await life.both(pid)
        assert outcome.steps == len(read_recording(life.log, pid).finished)
        assert sorted(outcome.files) == ["messages.json", "result", "steps.jsonl"]


@pytest.mark.parametrize("seed", range(0, RUNS, 4))
async def test_a_fork_replays_byte_for_byte(seed, tmp_path, autojump_clock):
    """From each of its first steps, whatever became of the other."""
    life = Fate(seed, tmp_path).life
    await life.live()
    steps = life.steps()
    life.model.replies = []
    for step in range(min(steps, 3)):
        life.model.replies += [life.said(step), answer(f"after step {step}")]
        await life.both(await life.fork(step))


@pytest.mark.parametrize("seed", range(RUNS))
async def test_a_run_makes_a_case_that_passes(seed, tmp_path, autojump_clock):
    """Or it is refused with the reason, which is never that it could not be written."""
    life = Fate(seed, tmp_path).life
    await life.live()
    text, refusal = recorded(life)
    if refusal is not None:
        assert refusal.code is Code.INVALID
        assert refusal.reason.startswith(f"process {life.pid} cannot be a case: ")
        return
    found = await run_case(read_case(text, "case"), str(life.bench.cwd), make_system=life.make)
    assert [deviation.line() for deviation in found] == []


def recorded(life: Life) -> tuple[str, SyscallError | None]:
    """The case of a life, or why there is none."""
    try:
        return record_case(life.log, life.pid), None
    except SyscallError as error:
        return "", error


async def test_the_runs_are_of_every_shape(tmp_path, autojump_clock):
    """Of each kind of event and of end there are some, and most of them can be cases."""
    events: collections.Counter[str] = collections.Counter()
    ends: collections.Counter[str] = collections.Counter()
    for seed in range(RUNS):
        life = Fate(seed, tmp_path / str(seed)).life
        process = await life.live()
        for record in life.log.load(life.pid):
            events[record.event] += 1
            error = record.data["done"].get("error", "") if record.event == "tool_finished" else ""
            events[error.partition(":")[0]] += 1
        recording = read_recording(life.log, life.pid)
        events["text" if recording.native is False else "native"] += 1
        events["again"] += any(len(step.asked) > 1 for step in recording.steps)
        ends[process.exit.reason.partition(":")[0].partition("]")[0] if process.exit else "none"] += 1
        ends["by itself"] += process.exit is not None and ended_by_itself(process.exit)
    wanted = {"suspend", "wake", "say", "budget", "grant", "revoke", "signal", "tool_started"}
    assert wanted <= set(events)
    assert {"UNKNOWN_OUTCOME", "NOT_FOUND", "INVALID", "DRIVER", "text", "native", "again"} <= set(events)
    assert {"done", "budget_exceeded", "max_iterations", "repeated_failure", "no_progress"} <= set(ends)
    assert "[SERVICE_UNAVAILABLE" in ends
    assert ends["by itself"] > RUNS / 2
