"""What failed calls of a model have cost counts in a replay as it did in the run."""

import pytest

from rnixfs.errors import Code
from rnixfs.llm import Usage
from rnixfs.model import ModelError
from tests.programs.reasonlab import answer
from tests.replay.replaylab import Life
from tests.replay.test_replay_compaction import asks


def failure(code: Code, tokens: int, cost: float = 0.0) -> ModelError:
    """A call that failed, and what it cost."""
    usage = Usage(input_tokens=tokens, cost_usd=cost)
    return ModelError(code, "prompt is too long", usage=usage)


def runs() -> dict[str, tuple[list, dict]]:
    """Replies of a model, and the limits of the process, by what happens."""
    full = failure(Code.RESOURCE_EXHAUSTED, 50_000)
    dear = failure(Code.RESOURCE_EXHAUSTED, 1, 7.0)
    ill = failure(Code.DRIVER, 50_000)
    first = asks(1, 3000, 1000)
    start = [first, asks(2, 3000, 4000), asks(3, 500, 8200)]
    tokens, dollars = {"context_budget": 50_000}, {"max_cost_usd": 5.0}
    return {
        "a prompt that was refused": ([first, full, answer("so far"), answer("done")], tokens),
        "dollars": ([first, dear, answer("so far"), answer("done")], dollars),
        "a summary that failed": ([*start, ill, answer("done")], tokens),
        "a stop": ([first, full, "restart", answer("done")], tokens),
    }


@pytest.mark.parametrize("what", list(runs()))
async def test_a_budget_that_failures_used_up_ends_the_replay_too(tmp_path, autojump_clock, what):
    """The end by the budget comes at the same place, though no answer of the recording has those tokens."""
    replies, limits = runs()[what]
    life = Life(tmp_path, replies, **limits)
    process = await life.live()
    assert process.exit is not None
    assert process.exit.code == 2, process.exit
    assert any(record.event == "spent" for record in life.log.load(process.pid))
    outcome = await life.both()
    assert outcome.equal
