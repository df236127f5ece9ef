"""A conversation that nears its model's window: who shortens it, when, and what becomes of the process."""

import msgspec
import pytest

from rnixfs import compaction
from rnixfs.errors import Code
from rnixfs.llm import ModelRequest, Role, Usage
from rnixfs.model import ModelError
from rnixfs.proc.state import Exit, ExitCode
from tests.programs.reasonlab import Tool, answer, call, log_of, messages, steps, uses

WINDOW = 10_000


class Long(Tool):
    """A tool whose results have as many characters as it is asked for."""

    async def work(self, sink, body) -> None:
        sink.write(b"x" * body.get("size", 10) + b"\n")


def asks(number: int, size: int, tokens: int, window: int = WINDOW):
    """A reply that calls the tool, to a prompt of so many tokens."""
    one = call("long", f"c{number}", size=size)
    return uses(one, input_tokens=tokens, tokens_used=tokens + 2, context_window=window)


def refusal(tokens: int = 0) -> ModelError:
    """What a provider says of a prompt that is too long."""
    usage = Usage(input_tokens=tokens)
    return ModelError(Code.RESOURCE_EXHAUSTED, "fake: prompt is too long", usage=usage)


async def test_the_model_sums_up_what_it_has_done(make, autojump_clock):
    """From 80 % of the window on: the model writes a summary, which takes the place of the older rounds."""
    bench = await make(
        asks(1, 9000, 1000),
        asks(2, 9000, 4000),
        asks(3, 3000, 7500),
        answer("We looked three times.", input_tokens=8300, tokens_used=8400, context_window=WINDOW),
        answer("done", context_window=WINDOW),
        devices=(Long("long"),),
    )
    process = await bench.run("look around")
    assert process.exit == Exit(0, "done")
    asked, after = bench.model.requests[3], bench.model.requests[4]
    before = bench.model.requests[2]
    assert asked.messages[: len(before.messages)] == before.messages
    assert (asked.system_prompt, asked.tools) == (before.system_prompt, before.tools)
    assert asked.messages[-1].content == compaction.INSTRUCTION
    first = after.messages[0]
    assert first.role is Role.USER
    assert first.content.startswith("look around\n\n")
    assert "We looked three times." in first.content
    assert [one.role for one in after.messages[1:]] == [Role.ASSISTANT, Role.TOOL]
    assert after.messages[1].tool_calls[0].id == after.messages[2].tool_call_id == "c3"
    assert process.tokens_used == 1002 + 4002 + 7502 + 8400 + 10
    assert any("made room" in text and "summary" in text for _, text in log_of(process))
    record = steps(process)[3]
    assert record["messages"] == msgspec.to_builtins(after.messages)


async def test_spend_and_fill_are_two_numbers(make, autojump_clock):
    """What was spent only grows; the fill is the latest prompt's, and falls when room is made."""
    bench = await make(
        asks(1, 9000, 3000),
        asks(2, 4000, 8500),
        answer("so far", tokens_used=8600),
        answer("done", input_tokens=2000, tokens_used=2010, context_window=WINDOW),
        devices=(Long("long"),),
    )
    process = await bench.run()
    status = process.status()
    assert status["tokens_used"] == 3002 + 8502 + 8600 + 2010
    assert (status["context_tokens"], status["context_window"]) == (2000, WINDOW)
    assert "2000 of 10000 (20 %)" in process.context.summary(2000, WINDOW)


@pytest.mark.parametrize(
    "useless",
    [
        ModelError(Code.SERVICE_UNAVAILABLE, "fake: overloaded", usage=Usage(input_tokens=7)),
        uses(call("long", size=1)),
        answer("  "),
    ],
)
async def test_without_a_summary_old_results_go(make, autojump_clock, useless):
    """Whatever is wrong with the model's summary, the process goes on; what it cost is counted."""
    bench = await make(
        asks(1, 16_000, 1000),
        asks(2, 6_000, 5000),
        asks(3, 10, 8200),
        useless,
        answer("done", context_window=WINDOW),
        devices=(Long("long"),),
    )
    process = await bench.run()
    assert process.exit == Exit(0, "done")
    kept = bench.model.requests[-1].messages
    assert compaction.REMOVED in [one.content for one in kept]
    assert [one.role for one in kept].count(Role.TOOL) == 3
    spent = 7 if isinstance(useless, ModelError) else 10
    assert process.tokens_used == 1002 + 5002 + 8202 + spent + 10


async def test_a_prompt_that_is_refused_is_shortened(make, autojump_clock):
    """With a window that nobody knows: the refusal makes room, and the same step asks once more."""
    bench = await make(
        asks(1, 20_000, 1000, window=0),
        refusal(3),
        answer("so far"),
        answer("done"),
        devices=(Long("long"),),
    )
    process = await bench.run()
    assert process.exit == Exit(0, "done")
    assert process.steps == 2
    assert len(bench.model.requests[-1].messages[-1].content) < 20_000
    assert process.tokens_used == 1002 + 3 + 10


async def test_where_no_room_can_be_made_the_context_is_full(make, autojump_clock):
    """An intent that is longer than the window ends the process with code 3 and the provider's words."""
    bench = await make(refusal())
    process = await bench.run()
    assert process.exit == Exit(ExitCode.CONTEXT_FULL, "fake: prompt is too long")


async def test_a_budget_without_room_for_a_summary(make, autojump_clock):
    """A summary that the token budget does not allow is not asked for."""
    bench = await make(
        asks(1, 16_000, 1000),
        asks(2, 10, 8500),
        answer("done"),
        devices=(Long("long"),),
    )
    process = await bench.run(context_budget=20_000)
    assert process.exit == Exit(0, "done")
    assert len(bench.model.requests) == 3
    assert compaction.REMOVED in [text for _, text in messages(process)]


async def test_a_text_model_sums_up_too(make, autojump_clock):
    """A model without native tools is asked in the same way, and its rounds end with results in words."""
    action = '{"action": "tool_call", "tool": "long", "data": {"size": 9000}}'

    def acts(tokens: int):
        return answer(action, input_tokens=tokens, tokens_used=tokens, context_window=WINDOW)

    bench = await make(
        acts(1000),
        acts(5000),
        acts(8100),
        answer("so far"),
        answer("done"),
        devices=(Long("long"),),
        native=False,
    )
    process = await bench.run("look")
    assert process.exit == Exit(0, "done")
    last: ModelRequest = bench.model.requests[-1]
    assert [one.role for one in last.messages] == [Role.USER, Role.ASSISTANT, Role.USER]
    assert "so far" in last.messages[0].content


async def test_a_request_that_is_too_large_for_the_file_is_shortened(make, autojump_clock):
    """A model's file takes requests up to a limit, whatever the window: a longer conversation makes room."""
    replies = [asks(number, 99_000 - number, 1000, window=10_000_000) for number in range(15)]
    bench = await make(*replies, answer("so far"), answer("done"), devices=(Long("long"),))
    process = await bench.run()
    assert process.exit == Exit(0, "done")
    last = bench.model.requests[-1]
    assert "so far" in last.messages[0].content or len(last.messages) < 31
    assert any("made room" in text for _, text in log_of(process))


async def test_a_large_call_does_not_cost_the_intent(make, autojump_clock):
    """A file that the model has just written cannot be shortened. Neither the intent nor the summary is
    thrown away for it, which would gain next to nothing."""
    large = call("long", "c3", size=10, file="y" * 40_000)
    intent = "build a bridge: " + "as strong as can be, " * 20
    bench = await make(
        asks(1, 4000, 1000),
        asks(2, 4000, 2000),
        uses(large, input_tokens=2100, tokens_used=8400, context_window=WINDOW),
        answer("We looked twice, and then wrote the file that the bridge needs most."),
        answer("done", context_window=WINDOW),
        devices=(Long("long"),),
    )
    process = await bench.run(intent)
    assert process.exit == Exit(0, "done")
    first = bench.model.requests[-1].messages[0].content
    assert first.startswith(intent)
    assert "wrote the file that the bridge needs most." in first


async def test_a_refusal_is_no_summary(make, autojump_clock):
    """What a model says that does not want to sum up never takes the place of the conversation."""
    refused = answer("I cannot help with that.", stop_reason="refusal")
    bench = await make(
        asks(1, 16_000, 1000),
        asks(2, 6_000, 5000),
        asks(3, 10, 8200),
        refused,
        answer("done", context_window=WINDOW),
        devices=(Long("long"),),
    )
    process = await bench.run("look around")
    assert process.exit == Exit(0, "done")
    kept = bench.model.requests[-1].messages
    assert not any("cannot help" in one.content for one in kept)
    assert [one.role for one in kept].count(Role.TOOL) == 3
    assert process.tokens_used == 1002 + 5002 + 8202 + 10 + 10


async def test_making_room_takes_time_in_proportion(make, autojump_clock, monkeypatch):
    """However many messages there are, each is counted a few times: the loop serves others, too."""
    rounds = 150
    bench = await make(
        *(asks(number, number, 10, window=0) for number in range(rounds)),
        refusal(),
        answer("so far"),
        answer("done"),
        devices=(Long("long"),),
    )
    counted = 0
    real = compaction.tokens_of

    def counting(message):
        nonlocal counted
        counted += 1
        return real(message)

    monkeypatch.setattr(compaction, "tokens_of", counting)
    process = await bench.run(max_steps=rounds + 5)
    assert process.exit == Exit(0, "done")
    assert counted < 100 * rounds
