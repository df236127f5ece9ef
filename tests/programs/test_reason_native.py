"""The reasoning loop with a model that takes tools: calls, results, limits, and how it all ends."""

import itertools

import msgspec
import pytest
import trio
import trio.testing

from rnixfs import limits
from rnixfs.errors import Code
from rnixfs.llm import ModelRequest
from rnixfs.proc.signals import Signal
from rnixfs.proc.state import Exit
from tests.programs.reasonlab import (
    PERSON,
    Barrier,
    Failing,
    Forever,
    Tool,
    answer,
    call,
    failure,
    log_of,
    messages,
    results,
    steps,
    uses,
)

settle = trio.testing.wait_all_tasks_blocked


# --- the shape of a run ---


async def test_a_reply_without_calls_is_the_answer(make, autojump_clock):
    """One step: intent in, text out, code 0."""
    bench = await make(answer("It is done.\nAll of it."))
    process = await bench.run("do it well")
    assert process.exit == Exit(0, "done")
    assert process.result == "It is done.\nAll of it."
    assert messages(process) == [("user", "do it well"), ("assistant", "It is done.\nAll of it.")]
    (request,) = bench.model.requests
    assert [(one.role, one.content) for one in request.messages] == [("user", "do it well")]
    assert request.system_prompt == process.context.system_prompt
    assert (process.steps, process.tokens_used, process.model_used) == (1, 10, "fake-1")


async def test_a_call_and_its_result_go_back_to_the_model(make, autojump_clock):
    """The assistant's message with its call, then the tool's with the same id, then the next reply."""
    echo = Tool("echo")
    bench = await make(uses(call("echo", say="x"), content="let me see"), answer("done"), devices=(echo,))
    process = await bench.run()
    assert echo.asked == [{"say": "x"}]
    assert msgspec.to_builtins(bench.model.requests[1].messages) == [
        {"role": "user", "content": "do it"},
        {
            "role": "assistant",
            "content": "let me see",
            "tool_calls": [{"id": "id-echo", "name": "echo", "arguments": {"say": "x"}}],
        },
        {"role": "tool", "content": '{"got":{"say":"x"}}', "tool_call_id": "id-echo"},
    ]
    assert process.exit == Exit(0, "done")
    assert log_of(process) == [
        ("step", "1"),
        ("think", "let me see"),
        ("tool", 'echo {"say":"x"}'),
        ("output", '{"got":{"say":"x"}}'),
        ("step", "2"),
        ("think", "done"),
    ]


async def test_prompts_only_grow_at_their_end(make, autojump_clock):
    """Two requests in a row agree byte by byte in all that the first one had, so a provider's cache holds."""
    echo = Tool("echo")
    bench = await make(
        *(uses(call("echo", f"c{number}", n=number)) for number in range(4)), answer("done"), devices=(echo,)
    )
    process = bench.spawn("x", system_prompt="Today.", context_budget=10**6)
    await trio.sleep(1.5)
    bench.kernel.happen(process, "say", {"text": "hurry"})
    await process.done.wait()
    requests = bench.model.requests
    assert len(requests) == 5
    for first, second in itertools.pairwise(requests):
        head, tail = parts(first), parts(second)
        assert head[0] == tail[0]
        assert head[2] == tail[2]
        assert tail[1].startswith(head[1])
        assert len(tail[1]) > len(head[1])


def parts(request: ModelRequest) -> tuple[bytes, bytes, bytes]:
    """A request as it is written: what is before the messages, they without their last bracket, the rest."""
    whole = msgspec.json.encode(request)
    listed = msgspec.json.encode(request.messages)
    before, found, after = whole.partition(listed)
    assert found
    return before, listed[:-1], after


async def test_two_equal_processes_have_equal_prompts(make, autojump_clock):
    """Nothing of time, pid or order is in a prompt."""
    tools = (Tool("b"), Tool("a"), Tool("c"))
    bench = await make(answer("1"), answer("2"), devices=tools)
    await bench.run("same")
    await trio.sleep(500)
    await bench.run("same")
    first, second = (msgspec.json.encode(request) for request in bench.model.requests)
    assert first == second


async def test_step_records_tell_what_happened(make, autojump_clock):
    """One a step, with the fields of the reference: each message is in the record of the step that sent it
    first, and only there; the last call stands beside the list of all."""
    bench = await make(
        uses(call("echo", say="x"), call("absent"), content="thinking"),
        answer("the end\nof it", tokens_used=7),
        devices=(Tool("echo"),),
    )
    process = await bench.run()
    first, second = steps(process)
    assert 0 <= first.pop("timestamp") <= second.pop("timestamp") < 600e9
    reason = "there is no tool 'absent'; there are: echo, list, read, skill, spawn, wait"
    said = {"role": "user", "content": "do it"}
    assert first == {
        "step": 1,
        "messages": [said],
        "message_count": 1,
        "token_count": 10,
        "request_tokens": 8,
        "response_tokens": 2,
        "raw_response": "thinking",
        "action": "tool_call",
        "summary": "echo, absent",
        "tool_error": f"NOT_FOUND: {reason}",
        "tool_calls": [
            {
                "id": "id-echo",
                "name": "echo",
                "path": "/dev/echo",
                "input": {"say": "x"},
                "result": '{"got":{"say":"x"}}',
                "duration_ms": 1000,
            },
            {
                "id": "id-absent",
                "name": "absent",
                "error": f"NOT_FOUND: {reason}",
                "error_code": "NOT_FOUND",
            },
        ],
    }
    conversation = msgspec.to_builtins(process.context.messages)
    assert [said, *second.pop("messages")] == conversation[:-1]
    assert second == {
        "step": 2,
        "message_count": 4,
        "token_count": 7,
        "request_tokens": 8,
        "response_tokens": 2,
        "raw_response": "the end\nof it",
        "action": "text",
        "summary": "the end",
    }


async def test_the_record_of_a_single_call_tells_it_in_its_own_fields(make, autojump_clock):
    """As the reference has them."""
    bench = await make(uses(call("echo", say="x")), answer("done"), devices=(Tool("echo"),))
    process = await bench.run()
    record = steps(process)[0]
    assert {name: record[name] for name in record if name.startswith("tool_") and name != "tool_calls"} == {
        "tool_path": "/dev/echo",
        "tool_input": {"say": "x"},
        "tool_result": '{"got":{"say":"x"}}',
        "tool_duration": 1000,
    }


async def test_the_request_names_the_tools_that_may_be_used(make, autojump_clock):
    """Sorted, with what the loop itself understands first; an agent's rights decide."""
    bench = await make(answer("1"), answer("2"), answer("3"), devices=(Tool("zeta"), Tool("alpha")))
    bench.agent("narrow", "allowed_devices: [/dev/zeta]\n")
    bench.agent("none", "allowed_devices: []\n")
    for agent in ("default", "narrow", "none"):
        await bench.run(agent=agent)
    names = [[tool.name for tool in request.tools] for request in bench.model.requests]
    assert names == [
        ["complete", "plan", "alpha", "list", "read", "skill", "spawn", "wait", "zeta"],
        ["complete", "plan", "skill", "zeta"],
        ["complete", "plan", "skill"],
    ]


# --- several calls ---


async def test_calls_run_side_by_side_where_all_are_safe_to(make, autojump_clock):
    """Each waits for the others, so they only end if they run at once."""
    barrier = Barrier("meet", 3)
    bench = await make(
        uses(*(call("meet", f"c{n}", n=n) for n in range(3))), answer("done"), devices=(barrier,)
    )
    process = await bench.run()
    assert results(process) == [{"met": True, "of": {"n": n}} for n in range(3)]


async def test_one_unsafe_call_makes_all_run_in_turn(make, autojump_clock):
    """In the order of the reply, one at a time."""
    safe, unsafe = Barrier("meet", 2), Tool("solo", parallel=False)
    calls = [call("meet", "a", n=1), call("solo", "b"), call("meet", "c", n=2)]
    bench = await make(uses(*calls), answer("done"), devices=(safe, unsafe))
    process = await bench.run()
    assert [one["met"] for one in results(process) if "met" in one] == [False, False]
    assert (safe.most, unsafe.most) == (1, 1)


async def test_an_unknown_tool_beside_others_makes_all_run_in_turn(make, autojump_clock):
    """Nothing is known of it, so nothing may be assumed."""
    barrier = Barrier("meet", 2)
    calls = [call("meet", "a"), call("absent", "b"), call("meet", "c")]
    bench = await make(uses(*calls), answer("done"), devices=(barrier,))
    process = await bench.run()
    assert barrier.most == 1
    assert [one.get("error", {}).get("code") for one in results(process)] == [None, "NOT_FOUND", None]


async def test_no_more_run_at_once_than_the_limit(make, autojump_clock):
    """The others follow."""
    count = limits.PARALLEL_TOOLS_MAX + 5
    echo = Tool("echo")
    bench = await make(
        uses(*(call("echo", f"c{n}", n=n) for n in range(count))), answer("done"), devices=(echo,)
    )
    process = await bench.run()
    assert echo.most == limits.PARALLEL_TOOLS_MAX
    assert results(process) == [{"got": {"n": n}} for n in range(count)]


async def test_results_stand_in_the_order_of_their_calls(make, autojump_clock):
    """Whichever ended first; providers refuse anything else."""

    class Backwards(Tool):
        async def work(self, sink, body):
            await trio.sleep(10 - body["n"])
            sink.write(b"%d" % body["n"])

    bench = await make(
        uses(*(call("back", f"c{n}", n=n) for n in range(5))), answer("done"), devices=(Backwards("back"),)
    )
    process = await bench.run()
    assert results(process) == [0, 1, 2, 3, 4]
    tool_ids = [one.tool_call_id for one in process.context.messages if one.tool_call_id]
    assert tool_ids == ["c0", "c1", "c2", "c3", "c4"]


async def test_calls_with_equal_ids_keep_their_own_results(make, autojump_clock):
    """Some models give every call the same id, or none: each call still gets what it asked for."""
    echo = Tool("echo")
    calls = [call("echo", "same", n=1), call("echo", "same", n=2), call("plan", "same", steps=["a"])]
    bench = await make(uses(*calls), answer("done"), devices=(echo,))
    process = await bench.run()
    assert results(process) == [{"got": {"n": 1}}, {"got": {"n": 2}}, {"noted": True}]


# --- what goes wrong with tools ---


async def test_an_unknown_tool_is_a_result_for_the_model(make, autojump_clock):
    """With the names there are; the work goes on."""
    bench = await make(uses(call("absent")), answer("done"), devices=(Tool("echo"),))
    process = await bench.run()
    (result,) = results(process)
    assert result["error"]["code"] == "NOT_FOUND"
    assert "there are: echo" in result["error"]["message"]
    assert process.exit == Exit(0, "done")


@pytest.mark.parametrize(
    ("made", "code", "said"),
    [
        (call("echo", refuse=True), "INVALID", "refuse"),
        (call("read"), "INVALID", '"path" must be text'),
        (call("read", path=5), "INVALID", '"path" must be text'),
        (call("read", path="a.txt", offset="1"), "INVALID", '"offset" must be a number'),
        (call("read", path="a.txt", limit=-1), "INVALID", '"limit" must be a number'),
        (call("read", path="a.txt", limit=True), "INVALID", '"limit" must be a number'),
        (call("read", path="absent"), "NOT_FOUND", "absent"),
        (call("read", path="nul\0"), "INVALID", "name"),
        (call("read", path="x" * 300), "NAME_TOO_LONG", "255"),
        (call("read", path="."), "IS_DIRECTORY", "folder"),
        (call("list", path="a.txt"), "NOT_DIRECTORY", "folder"),
        (call("list", path=["x"]), "INVALID", '"path" must be text'),
        (call("spawn"), "INVALID", "intent"),
        (call("spawn", intent="x", agent="absent"), "NOT_FOUND", "absent"),
        (call("spawn", intent="x", color="red"), "INVALID", "color"),
        (call("skill", skill="absent"), "INVALID", "no skill"),
        (call("complete", result=5), "INVALID", "result"),
        (call("broken"), "DRIVER", "it broke"),
        (call("crashing"), "INTERNAL", "KeyError"),
    ],
)
async def test_whatever_fails_is_a_result_for_the_model(make, autojump_clock, made, code, said):
    """Structured, with the reason; never the end of the process."""
    tools = (
        Tool("echo"),
        Failing("broken", failure(Code.DRIVER, "it broke")),
        Failing("crashing", KeyError("x")),
    )
    bench = await make(uses(made), answer("done"), devices=tools)
    (bench.cwd / "a.txt").write_text("one\ntwo\n")
    process = await bench.run()
    assert process.exit == Exit(0, "done")
    (result,) = results(process)
    assert result["error"]["code"] == code
    assert said in result["error"]["message"]
    record = steps(process)[0]
    (told,) = record["tool_calls"]
    assert told["error"].startswith(f"{code}: ")
    assert (told["error_code"], record["tool_error"]) == (code, told["error"])
    assert ("warning", told["error"].partition("\n")[0]) in log_of(process)


async def test_an_answer_that_looks_like_a_failure_is_an_answer(make, autojump_clock):
    """Only the whole shape with a known code counts as one."""

    class Odd(Tool):
        async def work(self, sink, body):
            sink.write(
                b'{"error": "none"}' if body.get("a") else b'{"error":{"code":"MADE_UP","message":"x"}}'
            )

    bench = await make(uses(call("odd", "1", a=1), call("odd", "2")), answer("done"), devices=(Odd("odd"),))
    process = await bench.run()
    assert results(process) == [{"error": "none"}, {"error": {"code": "MADE_UP", "message": "x"}}]
    told = steps(process)[0]["tool_calls"]
    assert [("error" in one, one["result"]) for one in told] == [
        (False, '{"error": "none"}'),
        (False, '{"error":{"code":"MADE_UP","message":"x"}}'),
    ]


async def test_three_failures_alike_in_a_row_end_the_process(make, autojump_clock):
    """Code 1, and the reason says which; exactly at the third, with its record kept."""
    bench = await make(
        *[uses(call("broken"))] * 9, devices=(Failing("broken", failure(Code.DRIVER, "it broke")),)
    )
    process = await bench.run()
    assert process.exit.code == 1
    assert process.exit.reason == "repeated_failure: 3 tool failures alike: broken DRIVER: it broke"
    assert len(bench.model.requests) == limits.FAILURES_ALIKE_MAX
    assert len(steps(process)) == limits.FAILURES_ALIKE_MAX


async def test_six_failures_in_all_end_the_process(make, autojump_clock):
    """However different, and whatever worked in between."""
    replies = []
    for number in range(9):
        replies += [uses(call(f"absent{number}")), uses(call("echo"))]
    bench = await make(*replies, devices=(Tool("echo"),))
    process = await bench.run()
    assert process.exit.code == 1
    assert process.exit.reason.startswith("repeated_failure: 6 tool failures; the last: absent5 NOT_FOUND")
    assert len(bench.model.requests) == 11


async def test_a_success_ends_a_row_of_equal_failures(make, autojump_clock):
    """Two, a success, two: the process goes on."""
    bad, good = uses(call("broken")), uses(call("echo"))
    tools = (Tool("echo"), Failing("broken", failure(Code.DRIVER)))
    bench = await make(bad, bad, good, bad, bad, answer("done"), devices=tools)
    assert (await bench.run()).exit == Exit(0, "done")


async def test_equal_failures_of_one_reply_count_each(make, autojump_clock):
    """Three calls that fail alike are three failures; the model's message and its results stay together."""
    bench = await make(
        uses(*(call("broken", f"c{n}") for n in range(3))), devices=(Failing("broken", failure(Code.DRIVER)),)
    )
    process = await bench.run()
    assert "3 tool failures alike" in process.exit.reason
    assert [role for role, _ in messages(process)] == ["user", "assistant", "tool", "tool", "tool"]


async def test_a_long_result_is_cut_with_a_count(make, autojump_clock):
    """The model sees how much is missing."""

    class Long(Tool):
        async def work(self, sink, body):
            sink.write(b"x" * (limits.TOOL_OUTPUT_MAX + 123))

    bench = await make(uses(call("long")), answer("done"), devices=(Long("long"),))
    process = await bench.run()
    text = messages(process)[2][1]
    assert text == "x" * limits.TOOL_OUTPUT_MAX + "\n[… 123 characters cut …]"


async def test_a_right_that_is_taken_back_shows_as_a_refusal(make, autojump_clock):
    """At the next use of the tool."""
    bench = await make(uses(call("echo")), uses(call("echo")), answer("done"), devices=(Tool("echo"),))
    process = bench.spawn()
    await trio.sleep(0.5)
    process.rights.revoke("/dev/echo")
    await process.done.wait()
    first, second = results(process)
    assert "got" in first
    assert second["error"]["code"] == "PERMISSION"


# --- files, skills, children ---


async def test_files_are_read_and_listed_in_the_working_folder(make, autojump_clock):
    """Relative and absolute; what lies outside is refused."""
    bench = await make(
        uses(
            call("list", "1"),
            call("read", "2", path="a.txt", offset=2),
            call("read", "3", path="/etc/passwd"),
        ),
        answer("done"),
    )
    (bench.cwd / "a.txt").write_text("one\ntwo\n")
    process = await bench.run()
    listed, read, outside = results(process)
    assert "a.txt" in msgspec.json.encode(listed).decode()
    assert "two" in msgspec.json.encode(read).decode()
    assert "one" not in msgspec.json.encode(read).decode()
    assert outside["error"]["code"] in ("PERMISSION", "NOT_FOUND")


async def test_a_skill_is_loaded_when_asked_for(make, autojump_clock):
    """The prompt names it, its text comes with the call."""
    bench = await make(uses(call("skill", skill="notes")), answer("done"))
    bench.skill("notes", "Take notes carefully.")
    process = await bench.run(skills=["notes"])
    assert "notes: about notes" in process.context.system_prompt
    assert "carefully" not in process.context.system_prompt
    assert "Take notes carefully." in messages(process)[2][1]


# --- actions of the loop itself ---


async def test_complete_ends_with_its_result(make, autojump_clock):
    """The tool `complete` is the answer, whatever text stands beside it."""
    bench = await make(uses(call("complete", result="42"), content="I am finished"))
    process = await bench.run()
    assert (process.exit, process.result) == (Exit(0, "done"), "42")
    assert steps(process)[0]["action"] == "complete"


async def test_no_call_beside_complete_is_dropped(make, autojump_clock):
    """A reply that edits and completes does both; the edit must not get lost."""
    echo = Tool("echo")
    bench = await make(uses(call("echo", n=1), call("complete", result="42")), answer("42"), devices=(echo,))
    process = await bench.run()
    assert echo.asked == [{"n": 1}]
    assert (process.exit, process.result) == (Exit(0, "done"), "42")


async def test_a_plan_is_noted_and_the_work_goes_on(make, autojump_clock):
    """It uses no device; its step is a `plan`, unless real tools stand beside it."""
    echo = Tool("echo")
    bench = await make(
        uses(call("plan", steps=["a", "b"])),
        uses(call("echo", "1", n=1), call("plan", "2", steps=["c"])),
        answer("done"),
        devices=(echo,),
    )
    process = await bench.run()
    assert results(process) == [{"noted": True}, {"got": {"n": 1}}, {"noted": True}]
    assert [one["action"] for one in steps(process)] == ["plan", "tool_call", "text"]
    assert echo.asked == [{"n": 1}]


async def test_what_people_say_comes_before_the_next_step(make, autojump_clock):
    """As messages of the user, after the results of the running step."""
    bench = await make(uses(call("echo")), answer("done"), devices=(Tool("echo"),))
    process = bench.spawn()
    await trio.sleep(0.5)
    folder = bench.kernel.root.lookup("proc", PERSON).lookup("1", PERSON)
    folder.lookup("ctl", PERSON).open(PERSON, 1).write(b"say use metres\nsay and hurry\n", 0)
    await process.done.wait()
    assert [role for role, _ in messages(process)] == [
        "user",
        "assistant",
        "tool",
        "user",
        "user",
        "assistant",
    ]
    assert messages(process)[3:5] == [("user", "use metres"), ("user", "and hurry")]


async def test_a_pause_takes_effect_at_the_end_of_the_step(make, autojump_clock):
    """The reply that was on its way is used, its tools run, and the next request waits."""
    echo = Tool("echo")
    bench = await make(uses(call("echo")), answer("done"), devices=(echo,))
    bench.model.gate = trio.Event()
    process = bench.spawn()
    await settle()
    bench.kernel.signal(process, Signal.PAUSE, PERSON)
    bench.model.gate.set()
    await trio.sleep(1000)
    assert len(echo.asked) == 1
    assert len(bench.model.requests) == 1
    assert process.live
    bench.kernel.signal(process, Signal.RESUME, PERSON)
    await process.done.wait()
    assert process.exit == Exit(0, "done")
    assert process.elapsed_ms() < 1000


# --- limits ---


async def test_the_step_limit(make, autojump_clock):
    """Exactly so many model calls, then code 1 with the reason."""
    bench = await make(*[uses(call("echo"))] * 9, devices=(Tool("echo"),))
    process = await bench.run(max_steps=3)
    assert process.exit == Exit(1, "max_iterations: 3 steps without a final answer")
    assert len(bench.model.requests) == 3
    assert process.steps == 3


async def test_the_last_step_may_be_the_answer(make, autojump_clock):
    """The limit counts steps, not what would have followed."""
    bench = await make(uses(call("echo")), answer("done"), devices=(Tool("echo"),))
    assert (await bench.run(max_steps=2)).exit == Exit(0, "done")


async def test_the_time_limit(make, autojump_clock):
    """Also while a tool never answers; the tool is told."""
    bench = await make(uses(call("slow")), devices=(slow := Forever("slow"),))
    process = await bench.run(timeout_ms=5000)
    assert process.exit.code == 1
    assert process.exit.reason.startswith("timeout")
    await settle()
    assert slow.inside == 0


async def test_a_budget_refuses_a_call_that_cannot_fit(make, autojump_clock):
    """Before it is made: no token is spent, code 2."""
    bench = await make(answer("never"))
    process = await bench.run("x" * 4000, context_budget=900)
    assert process.exit.code == 2
    assert process.exit.reason.startswith("budget_exceeded: 0 of 900 tokens")
    assert bench.model.requests == []


async def test_a_budget_counts_what_was_used(make, autojump_clock):
    """The second call would not fit beside the first one's tokens, though each would fit alone."""
    bench = await make(
        uses(call("echo", text="y" * 1200), tokens_used=500), answer("never"), devices=(Tool("echo"),)
    )
    process = await bench.run("x", context_budget=700)
    assert process.exit.code == 2
    assert process.exit.reason == "budget_exceeded: 500 of 700 tokens used, the next prompt does not fit"
    assert len(bench.model.requests) == 1


async def test_a_budget_that_was_passed_is_told_after_the_call(make, autojump_clock):
    """The overshoot is reported, no tool runs any more, and the step is kept."""
    echo = Tool("echo")
    bench = await make(uses(call("echo"), tokens_used=5000), devices=(echo,))
    process = await bench.run(context_budget=1000)
    assert process.exit == Exit(2, "budget_exceeded: 5000 of 1000 tokens used")
    assert echo.asked == []
    assert process.status()["tokens_used"] == 5000
    assert len(steps(process)) == 1


async def test_an_answer_that_passed_the_budget_is_kept(make, autojump_clock):
    """It was paid for; the code says what it cost."""
    bench = await make(answer("worth it", tokens_used=5000))
    process = await bench.run(context_budget=1000)
    assert process.exit.code == 2
    assert process.result == "worth it"


async def test_a_limit_of_dollars(make, autojump_clock):
    """As with tokens: after the call that passed it, code 2."""
    bench = await make(*[uses(call("echo"), cost_usd=0.4)] * 5, devices=(Tool("echo"),))
    process = await bench.run(max_cost_usd=1.0)
    assert process.exit == Exit(2, "budget_exceeded: $1.2000 of $1.0000 spent")
    assert len(bench.model.requests) == 3


async def test_a_budget_may_change_while_it_runs(make, autojump_clock):
    """`budget N` counts from the next call; 0 lifts it."""
    bench = await make(
        uses(call("echo"), tokens_used=400),
        uses(call("echo"), tokens_used=400),
        answer("done"),
        devices=(Tool("echo"),),
    )
    process = bench.spawn(context_budget=900)
    await trio.sleep(0.5)
    folder = bench.kernel.root.lookup("proc", PERSON).lookup("1", PERSON)
    folder.lookup("ctl", PERSON).open(PERSON, 1).write(b"budget 0\n", 0)
    await process.done.wait()
    assert process.exit == Exit(0, "done")
    assert process.status()["context_budget"] == 0


async def test_a_full_context_has_a_code_of_its_own(make, autojump_clock):
    """Code 3; a call and its results are in it together or not at all."""
    bench = await make(uses(call("echo", "a"), call("echo", "b")), devices=(Tool("echo"),))
    process = bench.spawn()
    process.context.max_messages = 3
    await process.done.wait()
    assert process.exit.code == 3
    assert process.exit.reason == "the context is full: it may hold 3 messages"
    assert [role for role, _ in messages(process)] == ["user"]


async def test_an_intent_that_fills_the_context(make, autojump_clock):
    """Nothing is asked at all."""
    bench = await make(answer("never"))
    process = bench.spawn("x" * 1000)
    process.context.max_bytes = 100
    await process.done.wait()
    assert process.exit.code == 3
    assert bench.model.requests == []


# --- failures of the model ---


async def test_a_failing_model_ends_the_process_with_its_reason(make, autojump_clock):
    """Code 1, with code, place and words of the failure."""
    bench = await make(failure(Code.TIMEOUT, "no answer within 5 s"))
    process = await bench.run()
    assert process.exit == Exit(1, "[TIMEOUT] PID 1 Read: /dev/llm/fake (no answer within 5 s)")
    assert process.steps == 1


async def test_a_model_that_became_unavailable(make, autojump_clock):
    """Its reason is the exit's, and it was not asked."""
    bench = await make(answer("never"))
    process = bench.spawn()
    bench.model.reason = "the program is gone; install it"
    await process.done.wait()
    assert process.exit.code == 1
    assert process.exit.reason.startswith("[SERVICE_UNAVAILABLE]")
    assert "the program is gone; install it" in process.exit.reason
    assert bench.model.requests == []


# --- ended from outside ---


@pytest.mark.parametrize("signal", [Signal.TERM, Signal.INT, Signal.KILL])
async def test_a_process_that_is_ended_in_a_tool(make, autojump_clock, signal):
    """The tool is cancelled, no call without a result is in the context, and nothing follows the exit."""
    slow = Forever("slow")
    bench = await make(uses(call("slow", "a"), call("slow", "b")), devices=(slow,))
    events = bench.kernel.events.join()
    process = bench.spawn()
    await settle()
    assert slow.inside == 2
    bench.kernel.signal(process, signal, PERSON)
    await process.done.wait()
    await settle()
    assert slow.inside == 0
    assert [role for role, _ in messages(process)] == ["user"]
    lines = [msgspec.json.decode(line) for line in events.read(1 << 20, 0).splitlines()]
    own = [line["event"] for line in lines if line["pid"] == 1]
    assert own[-2:] == ["exit", "reap"], own
    errors = [line for line in bytes(process.trace.data).splitlines() if b"BAD_FD" in line]
    assert errors == []


async def test_a_process_that_is_ended_while_its_model_thinks(make, autojump_clock):
    """The request is cancelled too."""
    bench = await make(answer("never"))
    bench.model.gate = trio.Event()
    process = bench.spawn()
    await settle()
    bench.kernel.signal(process, Signal.TERM, PERSON)
    await process.done.wait()
    assert process.exit == Exit(1, "terminated by SIGTERM")
    bench.model.gate.set()
    await settle()
    assert len(bench.model.replies) == 1


async def test_many_processes_at_once(make, autojump_clock):
    """Each has its own conversation."""

    def reply(request: ModelRequest):
        return answer(request.messages[0].content) if len(request.messages) > 1 else uses(call("echo"))

    bench = await make(*[reply] * 200, devices=(Tool("echo"),))
    processes = [bench.spawn(f"work {number}") for number in range(100)]
    for process in processes:
        await process.done.wait()
    assert [process.result for process in processes] == [f"work {number}" for number in range(100)]
