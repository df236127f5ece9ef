"""The reasoning loop with a model that only writes text: one JSON object says what to do."""

import itertools

import msgspec
import pytest

from rnixfs import limits
from rnixfs.errors import Code
from rnixfs.proc.state import Exit
from tests.programs.reasonlab import Barrier, Failing, Tool, act, answer, failure, log_of, messages, steps


async def test_text_alone_is_the_answer(make, autojump_clock):
    """Also when it speaks of JSON."""
    bench = await make(answer('Use {"a": 1} as the body.'), native=False)
    process = await bench.run()
    assert (process.exit, process.result) == (Exit(0, "done"), 'Use {"a": 1} as the body.')
    assert steps(process)[0]["action"] == "text"


async def test_the_protocol_and_the_tools_are_in_the_prompt(make, autojump_clock):
    """In place of tool definitions, and only what may be used; the process's own prompt stays as it was."""
    bench = await make(answer("1"), answer("2"), devices=(Tool("echo"), Tool("other")), native=False)
    bench.agent("narrow", "allowed_devices: [/dev/echo]\n")
    first = await bench.run()
    await bench.run(agent="narrow")
    whole, narrow = bench.model.requests
    assert whole.tools == narrow.tools == []
    assert whole.system_prompt.startswith(first.context.system_prompt)
    assert "- echo: Does echo." in whole.system_prompt
    assert "- other: Does other." in whole.system_prompt
    assert '"action": "spawn"' in whole.system_prompt
    assert "- echo: Does echo." in narrow.system_prompt
    assert "- other" not in narrow.system_prompt
    assert '"action": "spawn"' not in narrow.system_prompt
    assert '"action": "specialize"' not in whole.system_prompt


@pytest.mark.parametrize(
    "shape",
    [
        "{}",
        "I look first.\n\n{}",
        "Fenced:\n```json\n{}\n```\n",
        'An example is {{"a": "}}"}}, but I do:\n{}',
    ],
)
async def test_a_tool_call_in_text(make, autojump_clock, shape):
    """Alone, after words, in a fence: the tool runs and its result is the next message of the user."""
    echo = Tool("echo")
    reply = shape.format(act("tool_call", "echo", say="}{"))
    bench = await make(answer(reply), answer("done"), devices=(echo,), native=False)
    process = await bench.run()
    assert echo.asked == [{"say": "}{"}]
    assert messages(process) == [
        ("user", "do it"),
        ("assistant", reply),
        ("user", 'Result of echo:\n{"got":{"say":"}{"}}'),
        ("assistant", "done"),
    ]
    assert process.exit == Exit(0, "done")
    assert steps(process)[0]["action"] == "tool_call"


async def test_several_calls_in_text_run_side_by_side(make, autojump_clock):
    """With all results in one message, in order."""
    barrier = Barrier("meet", 2)
    reply = "\n".join(act("tool_call", "meet", n=n) for n in range(2))
    bench = await make(answer(reply), answer("done"), devices=(barrier,), native=False)
    process = await bench.run()
    assert messages(process)[2][1] == (
        'Result of meet:\n{"met":true,"of":{"n":0}}\n\nResult of meet:\n{"met":true,"of":{"n":1}}'
    )


async def test_prompts_of_text_models_only_grow_at_their_end(make, autojump_clock):
    """Byte by byte, through every kind of action."""
    replies = [
        answer(act("plan", steps=["look"])),
        answer(act("tool_call", "echo", n=1)),
        answer(act("tool_call", "absent")),
        answer(act("replan", reason="it failed")),
        answer("done"),
    ]
    bench = await make(*replies, devices=(Tool("echo"),), native=False)
    await bench.run()
    requests = bench.model.requests
    assert len(requests) == 5
    for first, second in itertools.pairwise(requests):
        assert first.system_prompt == second.system_prompt
        assert msgspec.json.encode(second.messages).startswith(msgspec.json.encode(first.messages)[:-1])


async def test_complete_gives_the_result(make, autojump_clock):
    """The object's result, not the text around it."""
    bench = await make(answer("Here it is: " + act("complete", result="42")), native=False)
    process = await bench.run()
    assert (process.exit, process.result) == (Exit(0, "done"), "42")
    assert steps(process)[0]["action"] == "complete"


async def test_plans_are_noted(make, autojump_clock):
    """They go to the log, and the model is told to go on."""
    replies = [
        answer(act("plan", steps=["a", "b"])),
        answer(act("replan", reason="b failed")),
        answer("done"),
    ]
    bench = await make(*replies, native=False)
    process = await bench.run()
    assert [text for role, text in messages(process) if role == "user"][1:] == ["Noted. Go on."] * 2
    assert [one["action"] for one in steps(process)] == ["plan", "replan", "text"]
    assert ("think", "plan: a; b") in log_of(process)
    assert ("think", "replan: b failed") in log_of(process)


async def test_specialize_loads_a_skill(make, autojump_clock):
    """Its text is the next message."""
    bench = await make(answer(act("specialize", "notes")), answer("done"), native=False)
    bench.skill("notes", "Take notes carefully.")
    process = await bench.run(skills=["notes"])
    assert "Take notes carefully." in messages(process)[2][1]
    assert steps(process)[0]["action"] == "specialize"
    assert '"action": "specialize"' in bench.model.requests[0].system_prompt


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (act("jump", "x"), "there is no action 'jump'"),
        ('{"action": "tool_call", "tool": "echo", "data": 5}', '"data" must be an object'),
        ('{"action": "tool_call", "data": {}}', '"tool_call" needs "tool"'),
        (act("plan"), '"plan" needs'),
    ],
)
async def test_an_action_that_cannot_be_used_is_explained(make, autojump_clock, reply, said):
    """The model reads what would be right, and goes on."""
    bench = await make(answer(reply), answer("done"), devices=(Tool("echo"),), native=False)
    process = await bench.run()
    assert said in messages(process)[2][1]
    assert process.exit == Exit(0, "done")
    assert any(category == "warning" and said in text for category, text in log_of(process))


async def test_actions_that_cannot_be_used_end_the_process_in_the_end(make, autojump_clock):
    """They count as failures: three alike in a row."""
    bench = await make(*[answer(act("jump", "x"))] * 9, native=False)
    process = await bench.run()
    assert process.exit.code == 1
    assert "3 tool failures alike" in process.exit.reason
    assert len(bench.model.requests) == limits.FAILURES_ALIKE_MAX


async def test_failing_tools_of_text_models(make, autojump_clock):
    """Unknown and broken ones: structured results; three alike end the process."""
    tools = (Failing("broken", failure(Code.DRIVER, "it broke")),)
    replies = [answer(act("tool_call", "absent"))] + [answer(act("tool_call", "broken"))] * 5
    bench = await make(*replies, devices=tools, native=False)
    process = await bench.run()
    unknown, broken = (messages(process)[place][1] for place in (2, 4))
    assert '"code":"NOT_FOUND"' in unknown
    assert '"message":"it broke"' in broken
    assert process.exit == Exit(1, "repeated_failure: 3 tool failures alike: broken DRIVER: it broke")


async def test_limits_hold_for_text_models(make, autojump_clock):
    """Steps and tokens, as for the others."""
    looped = [answer(act("tool_call", "echo"), tokens_used=400)] * 9
    bench = await make(*looped, devices=(Tool("echo"),), native=False)
    process = await bench.run(max_steps=2)
    assert process.exit == Exit(1, "max_iterations: 2 steps without a final answer")
    process = await bench.run(context_budget=1000)
    assert process.exit.code == 2
