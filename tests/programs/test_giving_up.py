"""When a loop is ended that leads nowhere: repeated failures, and steps that change nothing."""

import msgspec
import pytest

from rnixfs import limits
from rnixfs.errors import Code
from rnixfs.proc.progress import Done, Judged
from rnixfs.proc.state import Exit
from rnixfs.programs.reason import judge
from tests.programs.reasonlab import Tool, act, answer, call, steps, uses

SAME = limits.NO_PROGRESS_MAX


def done(name: str = "look", text: str = "nothing new", error: str = "", **arguments: object) -> Done:
    """What came of a call."""
    return Done("1", name, arguments, text, error)


def judged(*outcomes: list[Done]) -> tuple[int, Exit | None]:
    """After how many steps a loop is ended, and how; all of them where it is not."""
    counts, exit_ = Judged(), None
    for number, one in enumerate(outcomes, 1):
        # As over a restart: the counts are what the log has of them.
        counts = msgspec.convert(msgspec.to_builtins(counts), Judged)
        counts, exit_ = judge(counts, one)
        if exit_ is not None:
            return number, exit_
    return len(outcomes), exit_


def test_the_same_actions_with_the_same_results_end_it() -> None:
    """Exactly at the limit, and the reason says what was done over and over."""
    number, exit_ = judged(*[[done(path="a"), done("list")]] * 99)
    assert number == SAME
    reason = f"no_progress: {SAME} steps in a row with the same actions and results: "
    assert exit_ == Exit(1, reason + 'look {"path":"a"}, list {}')


@pytest.mark.parametrize(
    "other",
    [
        [done(text="it changed")],
        [done(path="b")],
        [done("list")],
        [done(), done()],
        [],
    ],
)
def test_anything_new_begins_the_count_again(other: list[Done]) -> None:
    """Another result, another argument, another tool, one call more, or a step without any."""
    before = [[done()]] * (SAME - 1)
    assert judged(*before, other, *before) == (2 * SAME - 1, None)
    number, exit_ = judged(*before, other, *before, [done()])
    assert (number, exit_ is None) == (2 * SAME, False)


def test_steps_without_calls_are_no_loop() -> None:
    """The limit of steps ends those."""
    assert judged(*[[]] * 99) == (99, None)


def test_failures_alike_end_it_before() -> None:
    """They count by the call, and a success, or an outcome that nobody knows, begins the count again."""
    bad, good = done(error="DRIVER: it broke"), done()
    unknown = done(error=f"{Code.UNKNOWN_OUTCOME}: who knows")
    number, exit_ = judged(*[[bad]] * 9)
    assert (number, exit_) == (
        limits.FAILURES_ALIKE_MAX,
        Exit(1, "repeated_failure: 3 tool failures alike: look DRIVER: it broke"),
    )
    assert judged([bad, bad, good, bad, bad]) == (1, None)
    assert judged([bad, bad, unknown, bad, bad]) == (1, None)
    assert judged([bad, bad, bad])[1] is not None


def test_an_outcome_that_nobody_knows_is_no_failure() -> None:
    """However often the system stops, the model is not to blame."""
    unknown = [[done(error=f"{Code.UNKNOWN_OUTCOME}: who knows", number=number)] for number in range(50)]
    assert judged(*unknown) == (50, None)


def test_failures_in_all_end_it() -> None:
    """However different they are."""
    outcomes = [[done(error=f"DRIVER: reason {number}"), done(number=number)] for number in range(9)]
    number, exit_ = judged(*outcomes)
    assert number == limits.FAILURES_MAX
    assert exit_ == Exit(1, "repeated_failure: 6 tool failures; the last: look DRIVER: reason 5")


async def test_a_model_that_goes_in_circles_is_stopped(make, autojump_clock):
    """At the limit, with the record of its last step kept."""
    bench = await make(*[uses(call("echo", say="x"))] * 99, devices=(Tool("echo"),))
    process = await bench.run(max_steps=50)
    assert process.exit.code == 1
    assert process.exit.reason.startswith(f"no_progress: {SAME} steps in a row")
    assert len(bench.model.requests) == len(steps(process)) == SAME


async def test_a_model_of_text_that_goes_in_circles_is_stopped(make, autojump_clock):
    """As the others; and a model that polls until something changes is not."""
    bench = await make(
        *[answer(act("tool_call", "echo", say="x"))] * 99, devices=(Tool("echo"),), native=False
    )
    process = await bench.run(max_steps=50)
    assert process.exit.reason.startswith("no_progress")
    polls = [answer(act("tool_call", "echo", round=number // (SAME - 1))) for number in range(40)]
    bench.model.replies[:] = [*polls, answer("done")]
    assert (await bench.run(max_steps=50)).exit == Exit(0, "done")


async def test_plans_over_and_over_are_no_progress(make, autojump_clock):
    """An action that uses no device counts, too."""
    bench = await make(*[uses(call("plan", steps=["a"]))] * 99)
    process = await bench.run(max_steps=50)
    assert process.exit.reason.startswith("no_progress")
