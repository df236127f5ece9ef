"""Children of a model: spawn starts them, wait collects their ends, and notices tell of the others."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from rnixfs import limits
from rnixfs.device import Body, Sink, json_line
from rnixfs.errors import Code, SyscallError
from rnixfs.llm import ModelAnswer, ModelRequest, Role
from rnixfs.proc.process import Process
from rnixfs.proc.signals import Signal
from rnixfs.proc.state import Exit, State
from tests.programs.reasonlab import (
    PERSON,
    Barrier,
    Bench,
    Reply,
    Tool,
    act,
    answer,
    call,
    failure,
    log_of,
    messages,
    results,
    steps,
    uses,
)

PARENT = "do it"


class Gates(Tool):
    """A tool whose calls end when their gate is opened, or after some seconds of the test's clock."""

    def __init__(self) -> None:
        super().__init__("gate")
        self.opened: dict[str, trio.Event] = {}

    def event(self, name: str) -> trio.Event:
        return self.opened.setdefault(name, trio.Event())

    def open(self, name: str) -> None:
        self.event(name).set()

    async def work(self, sink: Sink, body: Body) -> None:
        assert isinstance(body, dict)
        if "seconds" in body:
            await trio.sleep(body["seconds"])
        else:
            await self.event(body["name"]).wait()
        sink.write(json_line({"through": True}))


def cast(parts: Mapping[str, Any]) -> list[Callable[[ModelRequest], ModelAnswer]]:
    """Replies by intent: each process plays its own part, turn by turn."""

    def reply(request: ModelRequest) -> ModelAnswer:
        turn = sum(one.role is Role.ASSISTANT for one in request.messages)
        line = parts[request.messages[0].content][turn]
        if isinstance(line, SyscallError):
            raise line
        return line(request) if callable(line) else line

    return [reply] * 1000


def gated(name: str, said: str = "") -> list[Reply]:
    """A part that goes through a gate and answers."""
    return [uses(call("gate", name=name)), answer(said or f"{name} is through")]


def spawns(*intents: str) -> ModelAnswer:
    return uses(*(call("spawn", f"s{place}", intent=intent) for place, intent in enumerate(intents)))


def exits(process: Process) -> list[dict[str, Any]]:
    """All ends that its waits collected."""
    return [end for result in results(process) for end in result.get("exits", [])]


def notices(process: Process) -> list[str]:
    """What it was told of ends without asking."""
    return [text for role, text in messages(process)[1:] if role == "user" and text.startswith("Child ")]


def done(pid: int, result: str) -> dict[str, Any]:
    return {"pid": pid, "code": 0, "reason": "done", "result": result}


async def ended(process: Process) -> Process:
    """Wait for its end, in bounded time of the test's clock."""
    with trio.fail_after(3600):
        await process.done.wait()
    return process


def traced(process: Process) -> list[tuple[str, dict[str, Any], str]]:
    records = [msgspec.json.decode(line) for line in bytes(process.trace.data).splitlines()]
    return [(one["syscall"], one["args"], one.get("result", "")) for one in records]


# --- spawn ---


async def test_spawn_answers_at_once(make, autojump_clock):
    """With the pid and nothing else; the parent takes its next steps while the child runs."""
    gates = Gates()
    parts = {
        PARENT: [spawns("slow"), uses(call("echo", n=1)), uses(call("wait")), answer("all done")],
        "slow": gated("slow"),
    }
    bench = await make(*cast(parts), devices=(gates, Tool("echo")))
    process = bench.spawn()
    await trio.sleep(10)
    assert results(process) == [{"pid": 2}, {"got": {"n": 1}}]
    assert bench.kernel.process(2).live
    gates.open("slow")
    await ended(process)
    assert results(process)[2] == {"exits": [done(2, "slow is through")]}
    assert (process.exit, process.result) == (Exit(0, "done"), "all done")


async def test_children_of_one_reply_run_side_by_side(make, autojump_clock):
    """They meet in a device, so all run at once; their pids are in the order of the calls."""
    barrier = Barrier("meet", 3)
    part = [uses(call("meet")), answer("met")]
    parts = {
        PARENT: [spawns("a", "b", "c"), uses(call("wait")), answer("done")],
        "a": part,
        "b": part,
        "c": part,
    }
    bench = await make(*cast(parts), devices=(barrier,))
    process = await ended(bench.spawn())
    assert results(process)[:3] == [{"pid": 2}, {"pid": 3}, {"pid": 4}]
    assert [bench.kernel.process(pid).launch.intent for pid in (2, 3, 4)] == ["a", "b", "c"]
    assert exits(process) == [done(pid, "met") for pid in (2, 3, 4)]
    assert barrier.most == 3


async def test_tools_beside_a_spawn_still_run_side_by_side(make, autojump_clock):
    """A child costs no time, so it is started before the others, whatever its place."""
    barrier = Barrier("meet", 2)
    calls = [call("meet", "a", n=1), call("spawn", "b", intent="x"), call("meet", "c", n=2)]
    parts = {PARENT: [uses(*calls), uses(call("wait")), answer("done")], "x": [answer("y")]}
    bench = await make(*cast(parts), devices=(barrier,))
    process = await ended(bench.spawn())
    first, child, second = results(process)[:3]
    assert (first["met"], child, second["met"]) == (True, {"pid": 2}, True)


async def test_a_wait_in_the_same_reply_comes_after_the_spawns(make, autojump_clock):
    """In the order of the calls: it waits for what was started before it."""
    calls = [call("spawn", "1", intent="x"), call("spawn", "2", intent="x"), call("wait", "3")]
    parts = {PARENT: [uses(*calls), answer("done")], "x": [answer("y")]}
    bench = await make(*cast(parts))
    process = await ended(bench.spawn())
    assert exits(process) == [done(2, "y"), done(3, "y")]
    assert notices(process) == []


# --- wait ---


async def test_wait_collects_all_and_leaves_no_zombie(make, autojump_clock):
    """However they end and in whatever order: sorted by pid, reaped, and nothing more is told of them."""
    gates = Gates()
    parts = {
        PARENT: [spawns("1", "bad", "3"), uses(call("wait")), uses(call("echo")), answer("done")],
        "1": gated("1"),
        "bad": [failure(Code.TIMEOUT, "no model")],
        "3": gated("3"),
    }
    bench = await make(*cast(parts), devices=(gates, Tool("echo")))
    process = bench.spawn()
    await wait_all_tasks_blocked()
    gates.open("3")
    await wait_all_tasks_blocked()
    assert len(results(process)) == 3, "it waits for all"
    gates.open("1")
    await ended(process)
    first, bad, third = exits(process)
    assert (first, third) == (done(2, "1 is through"), done(4, "3 is through"))
    assert (bad["pid"], bad["code"]) == (3, 1)
    assert "no model" in bad["reason"]
    assert process.children == {}
    assert [bench.kernel.process(pid).state for pid in (2, 3, 4)] == [State.DEAD] * 3
    assert notices(process) == []


async def test_wait_for_any_gives_the_first_to_end(make, autojump_clock):
    """The others go on, and can be waited for later."""
    gates = Gates()
    parts = {
        PARENT: [
            spawns("slow", "quick"),
            uses(call("wait", any=True)),
            uses(call("wait", any=True)),
            answer("done"),
        ],
        "slow": gated("slow"),
        "quick": gated("quick"),
    }
    bench = await make(*cast(parts), devices=(gates,))
    process = bench.spawn()
    await wait_all_tasks_blocked()
    gates.open("quick")
    await wait_all_tasks_blocked()
    assert exits(process) == [done(3, "quick is through")]
    gates.open("slow")
    await ended(process)
    assert exits(process) == [done(3, "quick is through"), done(2, "slow is through")]


async def test_wait_for_named_children_leaves_the_others(make, autojump_clock):
    """One that ended and was not named is told of by a notice."""
    gates = Gates()
    parts = {
        PARENT: [spawns("a", "b"), uses(call("wait", pids=[3])), answer("done")],
        "a": gated("a"),
        "b": gated("b"),
    }
    bench = await make(*cast(parts), devices=(gates,))
    process = bench.spawn()
    await wait_all_tasks_blocked()
    gates.open("a")
    await wait_all_tasks_blocked()
    assert exits(process) == []
    gates.open("b")
    await ended(process)
    assert exits(process) == [done(3, "b is through")]
    assert notices(process) == ['Child process 2 ended: exited(0) reason "done" result "a is through"']


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ({"pids": [99]}, "NOT_FOUND", "process 99 is no child of yours"),
        ({"pids": [1]}, "NOT_FOUND", "process 1 is no child of yours"),
        ({"pids": [2, 99]}, "NOT_FOUND", "to wait for: 2"),
        ({"pids": 2}, "INVALID", '"pids" must be a list of numbers'),
        ({"pids": ["2"]}, "INVALID", '"pids" must be a list of numbers'),
        ({"pids": [True]}, "INVALID", '"pids" must be a list of numbers'),
        ({"any": "yes"}, "INVALID", '"any" must be true or false'),
    ],
)
async def test_a_wait_that_cannot_be_done_is_explained(make, autojump_clock, arguments, code, said):
    """As a result with a code and a reason; nothing is collected by it."""
    gates = Gates()
    parts = {
        PARENT: [spawns("x"), uses(call("wait", **arguments)), uses(call("wait")), answer("done")],
        "x": gated("x"),
    }
    bench = await make(*cast(parts), devices=(gates,))
    process = bench.spawn()
    await wait_all_tasks_blocked()
    error = results(process)[1]["error"]
    assert error["code"] == code
    assert said in error["message"]
    gates.open("x")
    await ended(process)
    assert exits(process) == [done(2, "x is through")]


async def test_a_wait_without_children_is_explained(make, autojump_clock):
    """It would never end."""
    bench = await make(uses(call("wait")), uses(call("wait", pids=[])), answer("done"))
    process = await ended(bench.spawn())
    for result in results(process):
        assert result["error"]["code"] == "NOT_FOUND"
        assert "there is no child to wait for" in result["error"]["message"]
    assert process.exit == Exit(0, "done")


async def test_wait_needs_the_right_to_spawn(make, autojump_clock):
    """Who cannot have children reads nothing of them."""
    bench = await make(answer("1"))
    bench.agent("narrow", "allowed_devices: []\n")
    await ended(bench.spawn(agent="narrow"))
    assert not {"spawn", "wait"} & {tool.name for tool in bench.model.requests[0].tools}


async def test_long_results_stay_whole_json(make, autojump_clock):
    """Each is cut by itself, so that none hides another."""
    long = "x" * limits.TOOL_OUTPUT_MAX
    parts = {
        PARENT: [spawns("a", "b"), uses(call("wait")), answer("done")],
        "a": [answer(long)],
        "b": [answer(long)],
    }
    bench = await make(*cast(parts))
    process = await ended(bench.spawn())
    assert [end["pid"] for end in exits(process)] == [2, 3]
    assert all("characters cut" in end["result"] for end in exits(process))


async def test_a_kill_ends_a_wait(make, autojump_clock):
    """The parent ends at once; its child goes on without it."""
    parts = {PARENT: [spawns("x"), uses(call("wait"))], "x": gated("x")}
    gates = Gates()
    bench = await make(*cast(parts), devices=(gates,))
    process = bench.spawn()
    await wait_all_tasks_blocked()
    bench.kernel.signal(process, Signal.KILL, PERSON)
    await ended(process)
    child = bench.kernel.process(2)
    assert (child.live, child.ppid) == (True, 0)
    gates.open("x")
    await ended(child)
    assert (child.exit, child.state) == (Exit(0, "done"), State.DEAD)


# --- notices ---


async def test_an_end_that_nobody_waited_for_is_a_notice(make, autojump_clock):
    """Once, before the next step, as a message of the user; and the child is reaped."""
    gates = Gates()
    parts = {
        PARENT: [spawns("x"), uses(call("gate", name="me")), uses(call("gate", name="on")), answer("done")],
        "x": gated("x", 'two\nlines of "text"'),
    }
    bench = await make(*cast(parts), devices=(gates,))
    process = bench.spawn()
    await wait_all_tasks_blocked()
    gates.open("x")
    await wait_all_tasks_blocked()
    assert notices(process) == [], "in the midst of a step nothing is said"
    assert bench.kernel.process(2).state is State.ZOMBIE
    gates.open("me")
    await wait_all_tasks_blocked()
    text = r'Child process 2 ended: exited(0) reason "done" result "two\nlines of \"text\""'
    assert messages(process)[-1] == ("user", text)
    assert bench.kernel.process(2).state is State.DEAD
    gates.open("on")
    await ended(process)
    assert notices(process) == [text]
    assert ("output", text) in log_of(process)
    assert ("Reap", {"pid": 2}, "exited(0)") in traced(process)


async def test_notices_come_in_the_order_of_the_ends(make, autojump_clock):
    """And after what people said meanwhile."""
    gates = Gates()
    parts = {
        PARENT: [spawns("a", "b"), uses(call("gate", name="me")), answer("done")],
        "a": gated("a"),
        "b": gated("b"),
    }
    bench = await make(*cast(parts), devices=(gates,))
    process = bench.spawn()
    for name in ("b", "a"):
        await wait_all_tasks_blocked()
        gates.open(name)
    await wait_all_tasks_blocked()
    process.inbox.append("hurry")
    gates.open("me")
    await ended(process)
    said = [text for role, text in messages(process)[1:] if role == "user"]
    assert [text.partition(" ended")[0] for text in said] == ["hurry", "Child process 3", "Child process 2"]


async def test_what_was_told_cannot_be_waited_for(make, autojump_clock):
    """An end is told once: after the notice the wait says so, and with another child it names that one."""
    gates = Gates()
    parts = {
        PARENT: [
            spawns("x", "y"),
            uses(call("gate", name="me")),
            uses(call("wait", pids=[2])),
            uses(call("wait")),
            uses(call("wait")),
            answer("done"),
        ],
        "x": gated("x"),
        "y": gated("y"),
    }
    bench = await make(*cast(parts), devices=(gates,))
    process = bench.spawn()
    await wait_all_tasks_blocked()
    gates.open("x")
    await wait_all_tasks_blocked()
    gates.open("me")
    await wait_all_tasks_blocked()
    assert results(process)[3]["error"]["message"].endswith("know of its end already; to wait for: 3")
    gates.open("y")
    await ended(process)
    assert len(notices(process)) == 1
    assert exits(process) == [done(3, "y is through")]
    assert "you know of every end" in results(process)[5]["error"]["message"]


@pytest.mark.parametrize("how", ["notice", "wait"])
async def test_a_child_that_somebody_else_reaped_is_told_of_too(make, autojump_clock, how):
    """Who removes a zombie takes nothing from its parent."""
    gates = Gates()
    second = uses(call("wait"), call("wait", "2", pids=[2])) if how == "wait" else uses(call("echo"))
    parts = {
        PARENT: [spawns("x"), uses(call("gate", name="me"), *second.tool_calls), answer("done")],
        "x": gated("x"),
    }
    bench = await make(*cast(parts), devices=(gates, Tool("echo")))
    process = bench.spawn()
    await wait_all_tasks_blocked()
    gates.open("x")
    await wait_all_tasks_blocked()
    bench.kernel.remove(bench.kernel.process(2), PERSON)
    gates.open("me")
    await ended(process)
    if how == "notice":
        assert notices(process) == ['Child process 2 ended: exited(0) reason "done" result "x is through"']
    else:
        assert exits(process) == [done(2, "x is through")]
        assert results(process)[3]["error"]["code"] == "NOT_FOUND"
        assert notices(process) == []


@pytest.mark.parametrize("seed", range(20))
async def test_every_end_is_told_once(make, autojump_clock, seed):
    """Whatever ends when, and whatever is waited for meanwhile: by a wait or by a notice, never by both."""
    dice = random.Random(seed)
    count = dice.randint(1, 12)
    kids = {f"child {n}": [uses(call("gate", seconds=dice.randint(0, 9))), answer("x")] for n in range(count)}
    waiting = [
        uses(call("wait", any=True)),
        uses(call("wait", pids=dice.sample(range(2, count + 2), dice.randint(1, count)))),
        uses(call("gate", seconds=dice.randint(0, 5))),
        uses(call("wait", "1", any=True), call("gate", "2", seconds=1), call("wait", "3", any=True)),
    ]
    turns = [dice.choice(waiting) for _ in range(4)]
    parts = {PARENT: [spawns(*kids), *turns, uses(call("gate", seconds=20)), answer("done")], **kids}
    bench = await make(*cast(parts), devices=(Gates(),))
    process = await ended(bench.spawn())
    told = Counter(end["pid"] for end in exits(process))
    told.update(int(text.split()[2]) for text in notices(process))
    assert told == Counter(range(2, count + 2)), process.exit
    assert process.untold == process.children == {}


# --- the end of a parent ---


async def test_a_final_answer_leaves_running_children_to_the_system(make, autojump_clock):
    """They become children of process 0 and go on; one that has ended is reaped with its parent's end."""
    gates = Gates()
    parts = {
        PARENT: [spawns("runs", "ends"), lambda request: answer("enough")],
        "runs": gated("runs"),
        "ends": [answer("early")],
    }
    bench = await make(*cast(parts), devices=(gates,))
    process = await ended(bench.spawn())
    assert (process.exit, process.result) == (Exit(0, "done"), "enough")
    runs, ends = bench.kernel.process(2), bench.kernel.process(3)
    assert (runs.live, runs.ppid) == (True, 0)
    await ended(ends)
    assert ends.state is State.DEAD
    gates.open("runs")
    await ended(runs)
    assert (runs.result, runs.state) == ("runs is through", State.DEAD)
    assert process.untold == {}


async def test_failing_children_are_no_tool_failures(make, autojump_clock):
    """More of them than a process may have failures, alike at that, collected and told of."""
    count = limits.FAILURES_MAX + 1
    bad = failure(Code.TIMEOUT, "no model")
    turns = [reply for _ in range(count) for reply in (spawns("bad"), uses(call("wait")))]
    parts = {
        PARENT: [*turns, spawns(*["bad"] * count), uses(call("gate", seconds=5)), answer("so be it")],
        "bad": [bad],
    }
    bench = await make(*cast(parts), devices=(Gates(),))
    process = await ended(bench.spawn())
    assert process.exit == Exit(0, "done")
    assert [end["code"] for end in exits(process)] + [1] * len(notices(process)) == [1] * (2 * count)
    assert all("exited(1)" in text and "no model" in text for text in notices(process))


# --- models that only write text ---


async def test_the_action_spawn_answers_with_the_pid(make, autojump_clock):
    """The intent stands in `tool`; the tool `wait` collects what the child answered."""
    parts = {
        PARENT: [
            answer(act("spawn", "count files", agent="default")),
            answer(act("tool_call", "wait")),
            answer("There are 7."),
        ],
        "count files": [answer("7 files")],
    }
    bench: Bench = await make(*cast(parts), native=False)
    process = await ended(bench.spawn())
    assert process.result == "There are 7."
    texts = [text for role, text in messages(process) if role == "user"]
    assert texts[1:] == [
        'Result of spawn:\n{"pid":2}',
        'Result of wait:\n{"exits":[{"pid":2,"code":0,"reason":"done","result":"7 files"}]}',
    ]
    assert [one["action"] for one in steps(process)] == ["spawn", "tool_call", "text"]
    assert bench.kernel.process(2).launch.intent == "count files"


async def test_several_actions_spawn_start_several_children(make, autojump_clock):
    """None of a reply is lost, also beside a tool call and a plan."""
    reply = "\n".join(
        [
            act("spawn", "a"),
            act("tool_call", "echo", n=1),
            act("spawn", "b"),
            act("plan", "", steps=["wait"]),
        ]
    )
    parts = {
        PARENT: [answer(reply), answer(act("tool_call", "wait")), answer("done")],
        "a": [answer("A")],
        "b": [answer("B")],
    }
    bench = await make(*cast(parts), devices=(Tool("echo"),), native=False)
    process = await ended(bench.spawn())
    started = messages(process)[2][1]
    assert started == (
        'Result of spawn:\n{"pid":2}\n\nResult of echo:\n{"got":{"n":1}}\n\nResult of spawn:\n{"pid":3}'
    )


async def test_notices_reach_text_models(make, autojump_clock):
    """As their own message, after the results."""
    gates = Gates()
    parts = {
        PARENT: [
            answer(act("spawn", "x")),
            answer(act("tool_call", "gate", seconds=5)),
            answer("done"),
        ],
        "x": [answer("y")],
    }
    bench = await make(*cast(parts), devices=(gates,), native=False)
    process = await ended(bench.spawn())
    assert notices(process) == ['Child process 2 ended: exited(0) reason "done" result "y"']


async def test_the_protocol_tells_of_wait(make, autojump_clock):
    """Where the process may spawn."""
    bench = await make(answer("1"), answer("2"), native=False)
    bench.agent("narrow", "allowed_devices: []\n")
    await ended(bench.spawn())
    await ended(bench.spawn(agent="narrow"))
    whole, narrow = (request.system_prompt for request in bench.model.requests)
    assert "- wait: Wait until children have ended" in whole
    assert "- spawn:" not in whole
    assert "- wait:" not in narrow
