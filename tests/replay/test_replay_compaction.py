"""Runs whose conversation was shortened replay like all others."""

import pytest

from rnixfs.case import read_case
from rnixfs.casefile import run_case
from rnixfs.caserecord import record_case
from rnixfs.errors import Code
from rnixfs.llm import Usage
from rnixfs.model import ModelError
from tests.programs.reasonlab import answer, call, uses
from tests.replay.replaylab import Life

WINDOW = 10_000


def asks(number: int, lines: int, tokens: int):
    """A reply that calls a tool with a result of so many lines, to a prompt of so many tokens."""
    one = call("beta", f"c{number}", lines=lines)
    return uses(one, input_tokens=tokens, tokens_used=tokens, context_window=WINDOW)


REFUSED = ModelError(Code.RESOURCE_EXHAUSTED, "prompt is too long", usage=Usage(input_tokens=5))


def runs() -> dict[str, list]:
    """Replies of a model by what happens."""
    start = [asks(1, 3000, 1000), asks(2, 3000, 4000), asks(3, 500, 8200)]
    ill = ModelError(Code.DRIVER, "fake: out of order")
    return {
        "summary": [*start, answer("so far"), answer("done")],
        "failure": [*start, ill, answer("done")],
        "useless": [*start, answer(""), answer("done")],
        "refusal": [asks(1, 3000, 1000), REFUSED, answer("so far"), answer("done")],
        "restart before": [*start, "restart", answer("so far"), answer("done")],
        "restart after": [*start, answer("so far"), "restart", answer("done")],
        "restart between": [asks(1, 3000, 1000), REFUSED, "restart", REFUSED, answer("s"), answer("done")],
        "suspend after": [*start, answer("so far"), "suspend", asks(4, 1, 3000), answer("done")],
        "twice": [*start, answer("s"), asks(4, 9000, 5000), answer("s, and more"), answer("done")],
    }


@pytest.mark.parametrize("what", list(runs()))
async def test_it_replays(tmp_path, autojump_clock, what):
    """Byte for byte, as launched today and as recorded: messages, steps and result."""
    life = Life(tmp_path, runs()[what])
    process = await life.live()
    assert process.exit is not None
    assert process.exit.reason == "done", process.exit
    assert any(record.event == "compacted" for record in life.log.load(process.pid))
    outcome = await life.both()
    assert outcome.equal


async def test_a_fork_begins_with_the_shortened_conversation(tmp_path, autojump_clock):
    """A fork after a compaction has what its source had then, one of a step before it has all."""
    life = Life(tmp_path, [*runs()["summary"], answer("fork done"), answer("early fork done")])
    await life.live()
    late = await life.fork(3)
    early = await life.fork(2)
    firsts = {}
    for pid in (late, early):
        (record,) = life.log.load(pid, ("inherit",))
        firsts[pid] = record.data["messages"]
    assert len(firsts[early]) == 5
    assert len(firsts[late]) == 7
    await life.both(late)
    await life.both(early)


@pytest.mark.parametrize("what", ["summary", "refusal"])
async def test_it_can_be_a_case(tmp_path, autojump_clock, what):
    """Played by a model whose window is unknown, it needs no room, and comes to the same end."""
    life = Life(tmp_path, runs()[what])
    process = await life.live()
    text = record_case(life.log, process.pid)
    assert await run_case(read_case(text, "c.yaml"), str(life.bench.cwd), make_system=life.make) == []
