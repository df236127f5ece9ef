"""A run that was stopped at any event, and went on, replays byte for byte."""

from typing import Any

import pytest

from rnixfs.state.memory import MemoryStore
from rnixfs.state.store import Log
from tests.programs.reasonlab import act, answer, call, uses
from tests.replay.replaylab import Life


def native() -> list[Any]:
    """Tools side by side and one after the other, a failure, children, and a plan."""
    return [
        uses(call("alpha", "a", n=1), call("beta", "b", n=2), call("nothing", "c"), content="look"),
        uses(call("plan", steps=["one"]), call("gamma", n=3), call("beta", fail="so")),
        uses(call("spawn", "s1", intent="one", agent="kid"), call("spawn", "s2", intent="two", agent="kid")),
        uses(call("alpha", "d", n=4), call("alpha", "e", seconds=3), call("beta", "f", n=5)),
        uses(call("wait")),
        uses(call("complete", result="all")),
    ]


def text() -> list[Any]:
    """The same kinds of steps in the text protocol."""
    return [
        answer(act("tool_call", "alpha", n=1) + act("tool_call", "beta", n=2)),
        answer('{"action": "fly", "tool": "", "data": {}}'),
        answer(act("plan", steps=["one"])),
        answer(act("spawn", "one", agent="kid")),
        answer(act("tool_call", "gamma", n=3) + act("tool_call", "nothing")),
        answer(act("tool_call", "alpha", n=4) + act("tool_call", "alpha", n=5, seconds=2)),
        answer("all"),
    ]


def cut(log: Log, number: int, last: int) -> MemoryStore:
    """A log with no more than the first events of another."""
    now = [0.0]
    copy = MemoryStore(clock=lambda: now[0])
    records = sorted((one for pid in range(last + 1) for one in log.load(pid)), key=lambda one: one.seq)
    for record in records[:number]:
        now[0] = record.ts
        copy.append_event(record.event, record.pid, record.data)
    return copy


@pytest.mark.parametrize("replies", [native, text])
async def test_a_run_that_was_stopped_at_any_event(replies, tmp_path, autojump_clock):
    """Whatever of it was in the log by then; the next system wakes it, and it goes on to its end."""

    def make(folder: str, log: Log | None = None) -> Life:
        life = Life(tmp_path / folder, replies(), native=replies is native, log=log)
        life.kid.replies = [answer("kid")] * 9
        return life

    whole = make("whole")
    await whole.live()
    await whole.both()
    last = whole.log.last_pid()
    total = sum(1 for pid in range(last + 1) for _ in whole.log.load(pid))
    assert total > 40
    woken = 0
    for number in range(1, total):
        log = cut(whole.log, number, last)
        if not log.unfinished():
            continue
        life = make(str(number), log)
        life.pid = whole.pid
        life.model.replies = life.model.replies[sum(1 for _ in log.load(life.pid, ("answer",))) :]
        process = await life.live()
        assert process.exit is not None
        assert process.exit.reason == "done", (number, process.exit)
        woken += sum(1 for _ in log.load(life.pid, ("wake",)))
        for pid in range(1, log.last_pid() + 1):
            await life.both(pid)
    assert woken > 30
