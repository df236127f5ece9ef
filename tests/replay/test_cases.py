"""Recorded runs as files: they play in the scripted model, and test the agent as it is today."""

import itertools
from typing import Any

import pytest

from rnixfs import case, limits
from rnixfs.case import read_case
from rnixfs.casefile import Deviation, run_case
from rnixfs.caserecord import record_case
from rnixfs.casetext import literal
from rnixfs.drivers.script import ScriptModel
from rnixfs.errors import Code, SyscallError
from rnixfs.llm import Message, ModelAnswer, ModelRequest, Role
from rnixfs.recording import read_recording
from rnixfs.templates import Template
from rnixfs.yamlread import Bounds, ManifestError
from tests.programs.reasonlab import act, answer, call, uses
from tests.replay.replaylab import Echo, Life

ODD = [
    "{{ name }}",
    " {{ ",
    "{{",
    "{% if x %}\n{# no #}\n{% endif %}\n",
    "${{ secrets.X }} and {{{{ }}}} {%%}",
    "{{ x }}" * 100,
    'it\'s "quoted" \\n \\',
    "\x1b[31mred\x00\x07",
    "\ud800 alone",
    "tabs\tand\r\nlines \n \n",
    "- a: [b] # c",
    "no",
    "",
    "é 🙂 \u2028 \x85 \ufeff",
]


def strip_ids(answer: ModelAnswer) -> tuple[str, list[tuple[str, dict[str, Any]]]]:
    """What an answer says and asks for."""
    return answer.content, [(call.name, call.arguments) for call in answer.tool_calls]


async def case_of(life: Life) -> str:
    """The case of a life that is over; it passes."""
    text = record_case(life.log, life.pid)
    assert await check(life, text) == []
    return text


async def check(life: Life, text: str, **more: Any) -> list[Deviation]:
    """What a case finds, in a system with the same devices."""
    return await run_case(read_case(text, "c.yaml"), str(life.bench.cwd), make_system=life.make, **more)


# --- playing ---


async def test_it_plays_in_the_scripted_model_with_the_same_answers(tmp_path, autojump_clock):
    """Given the recorded requests, one after the other; tokens and price included."""
    replies = [
        uses(call("alpha", n=1), call("nothing", x=[1, {"y": None}]), content="a\nb", cost_usd=0.25),
        uses(call("plan", steps=["one"])),
        uses(call("beta", "b1"), call("beta", "b2", text="{{ x }}"), tokens_used=7, input_tokens=8),
        answer("the end: {{ x }}"),
    ]
    life = Life(tmp_path, replies, intent="Find /it/\nquickly")
    await life.live()
    text = await case_of(life)
    model = ScriptModel("script", [read_case(text, "c.yaml").scenario])
    assert len(life.model.requests) == len(replies)
    for request, reply in zip(life.model.requests, replies, strict=True):
        played = await model.complete(request)
        assert strip_ids(played) == strip_ids(reply)
        assert (played.tokens_used, played.cost_usd) == (reply.tokens_used, reply.cost_usd)


async def test_it_is_a_scenario_for_its_intent_alone(tmp_path, autojump_clock):
    """Among other scenarios it does not answer what it was not recorded for."""
    life = Life(tmp_path, [answer("done")], intent="/count/ the   files\nplease")
    await life.live()
    scenario = read_case(await case_of(life), "c.yaml").scenario
    model = ScriptModel("script", [scenario])

    async def answered(intent: str) -> str:
        return (await model.complete(ModelRequest(messages=[Message(Role.USER, intent)]))).content

    assert await answered("/count/ the   files\nplease") == "done"
    assert "no rule fits" in await answered("count something else")


@pytest.mark.parametrize("intent", ["/it/", "/a(/ or /b)/", "//", "{{ x }}", "\x1b[1m\nred", "é" * 5000])
async def test_it_is_found_by_any_intent(tmp_path, autojump_clock, intent):
    """Also where that looks like a pattern, or cannot be written whole."""
    life = Life(tmp_path, [answer("done")], intent=intent)
    await life.live()
    if "\x1b" in intent:
        with pytest.raises(SyscallError, match="its intent holds what YAML does not take"):
            record_case(life.log, life.pid)
    else:
        await case_of(life)


async def test_what_happened_during_a_reply_that_is_left_out(tmp_path, autojump_clock):
    """It is met before the next step."""
    life = Life(tmp_path, [], native=False)

    def reply(_request):
        life.world.kernel.happen(life.process, "revoke", {"path": "/dev/beta"})
        return answer('{"action": "fly", "tool": "", "data": {}}')

    life.model.replies = [reply, answer(act("tool_call", "alpha", n=1)), answer("done")]
    await life.live()
    made = read_case(await case_of(life), "c.yaml")
    assert [(one.kind, one.text) for one in made.met[1].before] == [("revoke", "/dev/beta")]


async def test_a_run_of_the_text_protocol_plays_as_native_calls(tmp_path, autojump_clock):
    """Each action becomes the call that does the same; a reply of no use is left out."""
    replies = [
        answer("I look.\n" + act("tool_call", "alpha", n=1) + act("tool_call", "beta", n=2)),
        answer(act("plan", steps=["a", "b"], reason="r")),
        answer('{"action": "fly", "tool": "", "data": {}}'),
        answer(act("replan", reason="no")),
        answer(act("spawn", "help me", agent="kid")),
        answer(act("specialize", "notes")),
        answer(act("complete", result="all done")),
    ]
    life = Life(tmp_path, replies, native=False, skills=["notes"])
    life.bench.skill("notes", "Take notes.")
    life.kid.replies = [answer("kid")]
    await life.live()
    made = read_case(await case_of(life), "c.yaml")
    assert [(one.step, one.tool) for one in made.tools] == [
        (1, "alpha"),
        (1, "beta"),
        (2, "plan"),
        (3, "plan"),
        (4, "spawn"),
        (5, "skill"),
    ]
    assert "step 3" in made.scenario.description
    assert made.result == "all done"


@pytest.mark.parametrize("text", ODD)
def test_a_literal_is_the_very_text(text):
    """Marks of templates, quotes, spaces and control characters come out as they went in."""
    assert Template(literal(text)).value({}) == text


@pytest.mark.parametrize("text", [one for one in ODD if one and one.isprintable()] + ["\x1b[0m", "a\x00"])
async def test_odd_texts_survive_the_file(tmp_path, autojump_clock, text):
    """In answers, arguments and results."""
    life = Life(tmp_path, [uses(call("alpha", t=text, n=None), content=text), answer(text)])
    await life.live()
    made = read_case(await case_of(life), "c.yaml")
    assert made.result == text
    assert made.tools[0].arguments == {"t": text, "n": None}
    model = ScriptModel("script", [made.scenario])
    played = await model.complete(life.model.requests[0])
    assert strip_ids(played) == (text, [("alpha", {"t": text, "n": None})])


async def test_arguments_of_any_depth(tmp_path, autojump_clock):
    """Deeper than YAML is read here, and with numbers that are too long for it."""
    deep: Any = "leaf"
    for _ in range(60):
        deep = {"in": [deep]}
    arguments = {"deep": deep, "big": 10**45, "half": 1.5, "flag": True}
    life = Life(tmp_path, [uses(call("alpha", **arguments)), answer("done")])
    await life.live()
    assert read_case(await case_of(life), "c.yaml").tools[0].arguments == arguments


async def test_a_long_run_fits(tmp_path, autojump_clock):
    """More steps and bytes than a file of configuration may have; the scripted model takes it as a file."""
    replies = [uses(call("alpha", n=number, text="x" * 500)) for number in range(400)]
    life = Life(tmp_path, [*replies, answer("done")], max_steps=500)
    await life.live()
    text = await case_of(life)
    assert limits.CONFIG_FILE_MAX < len(text) < limits.SCENARIO_FILE_MAX
    path = tmp_path / "case.yaml"
    path.write_text(text)
    model = ScriptModel("script", [path])
    assert strip_ids(await model.complete(life.model.requests[399])) == strip_ids(replies[399])


# --- what it meets ---


async def test_words_budgets_and_rights_come_again(tmp_path, autojump_clock):
    """Before the same step, or while the model thinks."""
    life = Life(tmp_path, [])

    def meet(*happened):
        def reply(_request):
            for event, data in happened:
                life.world.kernel.happen(life.process, event, data)
            return uses(call("alpha", n=1))

        return reply

    life.model.replies = [
        meet(("say", {"text": "hurry"}), ("say", {"text": "up\n"}), ("revoke", {"path": "/dev/beta"})),
        meet(("budget", {"tokens": 5})),
    ]
    process = await life.live()
    assert process.exit is not None
    assert process.exit.reason == "budget_exceeded: 20 of 5 tokens used"
    made = read_case(await case_of(life), "c.yaml")
    assert [one.text for one in made.met[2].before] == ["hurry", "up\n"]
    assert [(one.kind, one.text) for one in made.met[1].during] == [("revoke", "/dev/beta")]
    assert [(one.kind, one.tokens) for one in made.met[2].during] == [("budget", 5)]


async def test_children_are_in_the_case(tmp_path, autojump_clock):
    """Those that were waited for, and those that it was told of; none is started."""
    replies = [
        uses(call("spawn", "s1", intent="one", agent="kid"), call("wait", "w1")),
        uses(call("spawn", "s2", intent="two", agent="kid"), call("gamma", seconds=9)),
        uses(call("beta")),
        answer("done"),
    ]
    life = Life(tmp_path, replies)
    life.kid.replies = [answer("first"), answer("second")]
    await life.live()
    made = read_case(await case_of(life), "c.yaml")
    assert [one.kind for one in made.met[3].before] == ["child"]
    assert "second" in made.met[3].before[0].text
    assert await check(life, record_case(life.log, life.pid), live=True) == []
    assert len(life.kid.requests) == 2, "as many as in its life"


async def test_a_childs_case_has_the_rights_of_the_child(tmp_path, autojump_clock):
    """What bounded it from above is part of what was asked for."""
    replies = [uses(call("spawn", intent="help", agent="kid"), call("wait")), answer("done")]
    life = Life(tmp_path, replies, allowed_devices=["/dev/beta", "/dev/llm", "/proc/spawn"])
    life.kid.replies = [uses(call("alpha"), call("beta")), answer("kid")]
    await life.live()
    text = record_case(life.log, life.pid + 1)
    assert await check(life, text) == []
    made = read_case(text, "c.yaml")
    assert [one.error.partition(":")[0] for one in made.tools] == ["NOT_FOUND", ""]
    assert "/dev/beta" in (made.request.allowed_devices or ())
    assert "/dev" not in (made.request.allowed_devices or ())


async def test_a_forks_case_begins_at_the_beginning(tmp_path, autojump_clock):
    """With the steps of the other process that it took over."""
    replies = [uses(call("alpha", n=1)), uses(call("alpha", n=2)), uses(call("alpha", n=3)), answer("first")]
    life = Life(tmp_path, replies)
    await life.live()
    life.model.replies = [uses(call("beta", n=4)), answer("second")]
    fork = await life.fork(2)
    text = record_case(life.log, fork)
    assert await check(life, text) == []
    made = read_case(text, "c.yaml")
    assert [one.arguments["n"] for one in made.tools] == [1, 2, 4]
    assert made.result == "second"


# --- what deviates ---


async def one_tool(tmp_path) -> tuple[Life, str]:
    """A process of an agent that uses two tools, one after the other, and its case."""
    life = Life(tmp_path, [uses(call("beta", n=1)), uses(call("alpha", n=2)), answer("done")], agent="worker")
    life.bench.agent("worker", "allowed_devices: [/dev/alpha, /dev/beta]\n", "Work.")
    await life.live()
    return life, await case_of(life)


async def test_a_tool_that_was_taken_away(tmp_path, autojump_clock):
    """Named with its step; the rest goes on as far as it can."""
    life, text = await one_tool(tmp_path)
    life.bench.agent("worker", "allowed_devices: [/dev/beta]\n", "Work.")
    (found,) = await check(life, text)
    assert (found.step, found.field, found.expected) == (2, "tools[0].error", "success")
    assert found.got.startswith("NOT_FOUND: there is no tool 'alpha'")
    assert found.line().startswith('step 2: tools[0].error: expected "success", got "NOT_FOUND')


async def test_fewer_steps_than_it_takes(tmp_path, autojump_clock):
    """Every consequence is named: the call that is missing, the steps, and the end."""
    life, text = await one_tool(tmp_path)
    life.bench.agent("worker", "allowed_devices: [/dev/alpha, /dev/beta]\nmax_steps: 1\n", "Work.")
    found = await check(life, text)
    fields = [(one.step, one.field) for one in found]
    end = [(1, "steps"), (1, "exit code"), (1, "exit reason"), (1, "result")]
    assert fields == [(2, "tools[0]"), *end]
    assert found[0].line() == 'step 2: tools[0]: expected "alpha {\\"n\\": 2}", got "no call"'


async def test_other_expectations(tmp_path, autojump_clock):
    """What somebody writes into the file is what is expected."""
    life, text = await one_tool(tmp_path)
    changes = {
        "step: 2\n        tool: alpha": ("step: 2\n        tool: beta", (2, "tools[0]", "beta", "alpha")),
        "    result: done": ("    result: over", (3, "result", "over", "done")),
        "    reason: done": ("    reason: gone", (3, "exit reason", "gone", "done")),
        "    code: 0": ("    code: 1", (3, "exit code", "1", "0")),
    }
    for old, (new, expected) in changes.items():
        assert text.count(old) == 1, old
        assert await check(life, text.replace(old, new)) == [Deviation(*expected)]


async def test_arguments_that_differ(tmp_path, autojump_clock):
    """By field, as JSON."""
    life, text = await one_tool(tmp_path)
    rules, rest = text.split("\ncase:\n")
    changed = rules.replace('"n": 2\n', '"n": 3\n')
    assert await check(life, f"{changed}\ncase:\n{rest}") == [
        Deviation(2, "tools[0].arguments", '{"n": 2}', '{"n": 3}')
    ]


async def test_live_tools_are_really_run(tmp_path, autojump_clock):
    """Their results may be others than then, but they must fail or succeed as they did."""
    life, text = await one_tool(tmp_path)
    asked = len(life.echo("alpha").asked)
    assert await check(life, text, live=True) == []
    assert len(life.echo("alpha").asked) == asked + 1

    class Broken(Echo):
        async def work(self, sink, body):
            raise SyscallError(Code.DRIVER, "it broke")

    life.devices[0] = Broken("alpha")
    (found,) = await check(life, text, live=True)
    assert (found.step, found.field) == (2, "tools[0].error")
    assert await check(life, text) == [], "answered from the case it does not matter"


async def test_an_agent_that_is_gone(tmp_path, autojump_clock):
    """It cannot be launched, and why."""
    life, text = await one_tool(tmp_path)
    with pytest.raises(SyscallError, match="no agent 'other'"):
        await check(life, text.replace("agent: worker", "agent: other"))


# --- runs that no case can hold ---


async def test_runs_that_did_not_end_by_themselves(tmp_path, autojump_clock):
    """A failure of the model, a process that is not over, one whose model was never asked."""
    failed = Life(tmp_path / "1", [SyscallError(Code.SERVICE_UNAVAILABLE, "gone")])
    await failed.live()
    stopped = Life(tmp_path / "2", [uses(call("alpha")), "restart"])
    await stopped.live(wake=False)
    never = Life(tmp_path / "3", [], context_budget=1)
    await never.live()
    for life, words in (
        (failed, "it ended by '[SERVICE"),
        (stopped, "has not ended"),
        (never, "never answered"),
    ):
        with pytest.raises(SyscallError, match="cannot be a case") as caught:
            record_case(life.log, life.pid)
        assert words in caught.value.reason
        assert caught.value.code is Code.INVALID


async def test_a_run_that_a_new_budget_stopped_among_its_tools(tmp_path, autojump_clock):
    """After a stop of the system, at a place where a case has none."""
    life = Life(tmp_path, [uses(call("alpha"), call("gamma", stop=True))])
    life.echo("gamma").stop = lambda: life.tell("restart")
    life.between = [lambda world, process: world.kernel.happen(process, "budget", {"tokens": 5})]
    process = await life.live()
    assert process.exit is not None
    assert process.exit.reason.startswith("budget_exceeded")
    with pytest.raises(SyscallError, match="a new budget stopped it in the middle of step 1"):
        record_case(life.log, life.pid)


async def test_a_run_that_is_too_long(tmp_path, autojump_clock, monkeypatch):
    """The file could not be read again."""
    life = Life(tmp_path, [uses(call("alpha", text="x" * 1000)), answer("done")])
    await life.live()
    monkeypatch.setattr(case, "BOUNDS", Bounds(characters=2000))
    with pytest.raises(SyscallError, match=r"cannot be a case: the text has .*; at most 2000 are taken"):
        record_case(life.log, life.pid)


async def test_odd_names_of_tools(tmp_path, autojump_clock):
    """A name of spaces is none; that run cannot be played."""
    life = Life(tmp_path, [uses(call(" ")), answer("done")])
    await life.live()
    with pytest.raises(SyscallError, match="step 1 calls a tool by a name that is none"):
        record_case(life.log, life.pid)


# --- files ---

GOOD = """\
name: mine
rules:
  - when: {step: 0}
    say: hello
case:
  version: 1
  request: {intent: say hello}
  steps:
    - step: 1
      before: [{say: hurry}]
      results: [{tool: alpha, text: ok}]
  expect:
    code: 0
    reason: done
    result: hello
    tools: [{step: 1, tool: alpha, arguments: {n: 1}}]
"""

BAD = [
    (GOOD.partition("case:")[0], 1, "case is missing", "add case"),
    (GOOD.replace("version: 1", "version: 2"), 6, "case.version", "write that"),
    (GOOD.replace("intent: say hello", "intnt: x"), 7, "case.request.intnt", "did you mean intent?"),
    (GOOD.replace("intent: say hello", "agent: x"), 7, 'needs "intent"', "correct the request"),
    (GOOD.replace("intent: say hello", "intent: x, cwd: /"), 7, "cwd", "leave it out"),
    (GOOD.replace("- step: 1\n", "- stp: 1\n"), 9, "case.steps[1].stp", "did you mean step?"),
    (GOOD.replace("- step: 1\n      before", "- before"), 9, "case.steps[1].step is missing", "from 1"),
    (GOOD.replace("{say: hurry}", "{say: hurry, budget: 1}"), 10, "2 things in one entry", "write one of"),
    (GOOD.replace("{say: hurry}", "{budget: many}"), 10, "before[1].budget is text", "whole number"),
    (GOOD.replace("{say: hurry}", "{say: 5}"), 10, "before[1].say is no text", "in quotes"),
    (GOOD.replace("text: ok", "text_json: '{'"), 11, "results[1].text_json is no JSON", "JSON value"),
    (GOOD.replace("text: ok", "error: x"), 11, "results[1].text is missing", "a text"),
    (GOOD.replace("    code: 0\n", ""), 13, "expect.code is missing", "exit code"),
    (GOOD.replace("code: 0", "code: done"), 13, "expect.code is text", "whole number"),
    (GOOD.replace("    result: hello\n", ""), 13, "expect.result is missing", "a text"),
    (GOOD.replace("{n: 1}", "[n]"), 16, "tools[1].arguments is a list", "by name"),
    (GOOD.replace("{n: 1}", "'[1]'"), 16, "tools[1].arguments is text", "by name"),
    (GOOD.replace("    say: hello\n", ""), 3, "rules[1].say is missing", "a rule needs"),
    (GOOD + "  more: 1\n", 17, "case.more is not a field", "the fields are"),
    (GOOD.replace("  expect:", "    - step: 1\n  expect:"), 12, "1 has an entry already", "one entry"),
]


def test_the_good_file_is_good():
    """So that each bad one is bad for one reason."""
    made = read_case(GOOD, "c.yaml")
    assert made.met[1].before[0].text == "hurry"
    assert made.tools[0].arguments == {"n": 1}


@pytest.mark.parametrize(("text", "line", "what", "right"), BAD)
def test_a_bad_file_is_refused_with_its_line(text, line, what, right):
    """What is wrong there, and what would be right."""
    with pytest.raises(ManifestError) as caught:
        read_case(text, "c.yaml")
    assert (caught.value.line, what in caught.value.what, right in caught.value.right) == (
        line,
        True,
        True,
    ), str(caught.value)


# --- recordings ---


async def test_a_recording_says_what_happened_and_when(tmp_path, autojump_clock):
    """Steps with their requests, what was heard before them, and what came from outside at its place."""
    life = Life(tmp_path, [])

    def reply(_request):
        life.world.kernel.happen(life.process, "say", {"text": "hurry"})
        life.world.kernel.happen(life.process, "budget", {"tokens": 5000})
        return uses(call("alpha", "a", n=1), call("beta", "b", stop=True))

    life.model.replies += [reply, "restart", answer("done")]
    life.echo("beta").stop = lambda: life.tell("suspend")
    await life.live()
    recording = read_recording(life.log, life.pid)
    first, second, rest = recording.steps
    assert [one.own for one in first.heard] == [True]
    assert [turn.event for turn in recording.turns] == ["budget", "wake", "wake"]
    budget, wake, later = (turn.position for turn in recording.turns)
    assert (budget.step, budget.asked, budget.answered) == (1, 1, False)
    assert (wake.started, wake.done) == (frozenset({0, 1}), frozenset({0}))
    assert (later.step, later.heard, later.asked) == (2, 1, 1)
    assert second.heard[0].said == ["hurry"]
    assert [len(step.asked) for step in recording.steps] == [1, 2, 0]
    assert second.end is not None
    assert second.end.result == "done"
    assert rest == type(rest)(3)
    assert recording.exit is not None
    assert [step.number for step in recording.finished] == [1, 2]
    positions = [turn.position for turn in recording.turns]
    for one, other in itertools.pairwise(positions):
        assert one.reached(other)
        assert not other.reached(one)
