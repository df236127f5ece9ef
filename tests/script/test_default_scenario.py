"""The scenario default: small commands that make a process do one thing on purpose."""

import json

import pytest
import trio

from rnixfs.drivers.script import ScriptModel
from rnixfs.errors import Code, SyscallError
from rnixfs.llm import Message, ModelRequest, Role, ToolCall
from tests.script.play import Play, shipped_model


@pytest.fixture
def model() -> ScriptModel:
    return shipped_model()


def shell(arguments):
    return {"stdout": f"<{arguments['command']}>\n", "stderr": "", "exit_code": 3}


TOOLS = {
    "shell": shell,
    "plan": lambda arguments: "noted",
}


class Children:
    """The tools spawn and wait: each child answers what it was asked, unless its intent is to fail."""

    def __init__(self):
        self.running = {}
        self.started = 0

    def tools(self):
        return TOOLS | {"spawn": self.spawn, "wait": self.wait}

    def spawn(self, arguments):
        if arguments.get("agent") == "nobody":
            return {"error": {"code": "NOT_FOUND", "message": "no agent 'nobody'"}}
        self.started += 1
        self.running[self.started + 1] = arguments
        return {"pid": self.started + 1}

    def wait(self, arguments):
        assert self.running, "a wait for nobody"
        exits = [self.end(pid, asked) for pid, asked in self.running.items()]
        self.running.clear()
        return {"exits": exits}

    @staticmethod
    def end(pid, asked):
        if asked["intent"] == "fail":
            return {"pid": pid, "code": 1, "reason": "as asked", "result": ""}
        said = f"{asked.get('agent')} did {asked['intent']}"
        return {"pid": pid, "code": 0, "reason": "done", "result": said}

    def notice(self, pid):
        """What a process that did not wait reads of the end of a child."""
        end = self.end(pid, self.running.pop(pid))
        reason, result = json.dumps(end["reason"]), json.dumps(end["result"])
        return Message(
            Role.USER, f"Child process {pid} ended: exited({end['code']}) reason {reason} result {result}"
        )


@pytest.mark.parametrize(
    ("intent", "answer"),
    [
        ("say hello, world: yes", "hello, world: yes"),
        ("Say  two\nlines", "two\nlines"),
        ("run: ls -l | wc", "<ls -l | wc>\n(exit code 3)\n"),
        ('call: shell {"command": "a {b}"}', '{"stdout": "<a {b}>\\n", "stderr": "", "exit_code": 3}'),
        ("call: plan", "noted"),
        ("parallel: a; b ; c", "<a>\n<b>\n<c>\n"),
        ("parallel: a; b ; c;d; e", "<a>\n<b>\n<c>\n<d>\n"),
        ("spawn: say x", "The child answered: None did say x"),
        ("spawn code-analyst: spawn: say x", "The child answered: code-analyst did spawn: say x"),
        ("spawn: fail", "The child failed: as asked"),
        ("spawn 1: say x", "Child 2 answered: None did say x\n"),
        ('spawn 3: say "x": y', "".join(f'Child {n} answered: None did say "x": y\n' for n in (2, 3, 4))),
        ("spawn 2: fail", "Child 2 failed: as asked\nChild 3 failed: as asked\n"),
        ("plan: one; two", "Planned: one; two"),
        ("stream: a b", "a b"),
        ("show tools", "plan\nshell\nspawn\nwait"),
        ("show prompt", "the prompt"),
        ("spend 5000", "I claim 5000 tokens."),
    ],
)
async def test_a_command_does_what_it_says(model, intent, answer):
    """One row a command, played to its end."""
    assert await Play(intent, Children().tools(), "the prompt").finish(model) == answer


async def test_children_start_in_one_reply(model):
    """So that they run side by side; the wait for them comes in the next."""
    play = Play("spawn 4: say x", Children().tools())
    await play.finish(model)
    assert [[call.name for call in turn] for turn in play.calls] == [["spawn"] * 4, ["wait"]]


async def test_a_child_that_was_told_of_is_not_waited_for(model):
    """A notice that comes before the wait takes its place: each end is told once."""
    for intent, answer in [
        ("spawn: say x", "The child answered: None did say x"),
        ("spawn: say }\"'{", "The child answered: None did say }\"'{"),
        ("spawn 1: say x", 'Child process 2 ended: exited(0) reason "done" result "None did say x"\n'),
    ]:
        children = Children()
        play = Play(intent, children.tools())
        await play.turn(model)
        play.messages.append(children.notice(2))
        assert await play.finish(model) == answer
        assert len(play.calls) == 1


async def test_those_that_were_not_told_of_are_waited_for(model):
    """One of three has ended before the wait: one notice, two that are collected."""
    children = Children()
    play = Play("spawn 3: say x", children.tools())
    await play.turn(model)
    play.messages.append(children.notice(3))
    told = 'Child process 3 ended: exited(0) reason "done" result "None did say x"'
    rest = [f"Child {pid} answered: None did say x" for pid in (2, 4)]
    assert (await play.finish(model)).splitlines() == [told, *rest]


async def test_children_that_cannot_be_started(model):
    """The reason is reported, and nobody is waited for."""
    assert "no agent 'nobody'" in await Play("spawn nobody: say x", Children().tools()).finish(model)
    refused = TOOLS | {"spawn": lambda arguments: {"error": {"code": "PERMISSION", "message": "not you"}}}
    assert await Play("spawn 2: say x", refused).finish(model) == "Not started: not you\n" * 2
    assert "not you" in await Play("notice: say x", refused).finish(model)


async def test_a_notice_ends_the_going_on(model, autojump_clock):
    """The parent does not wait: it takes its turns until it reads of its child's end."""
    children = Children()
    play = Play("notice: say x", children.tools())
    for _ in range(3):
        await play.turn(model)
    assert [call.name for turn in play.calls for call in turn] == ["spawn", "plan", "plan"]
    play.messages.append(children.notice(2))
    assert await play.finish(model) == (
        'I was told: Child process 2 ended: exited(0) reason "done" result "None did say x"'
    )


async def test_hello_without_tools_is_answered(model):
    """`echo '{"intent": "hello"}' > dev/llm/script` gives a sensible, honest answer."""
    answer = await model.complete(ModelRequest("hello"))
    assert "no AI" in answer.content
    assert answer.model == "script (no AI): default"


async def test_help_lists_every_command(model):
    """Every rule with a help line is listed where no rule fits."""
    text = (await model.complete(ModelRequest("help"))).content
    for word in (
        "say X",
        "run: COMMAND",
        "wait N ms",
        "fail: CODE",
        "loop same",
        "spawn: INTENT",
        "explore PATH",
    ):
        assert f"{word}" in text


async def test_run_without_a_shell_says_so(model):
    """Nothing is pretended where the tool is missing."""
    assert 'no tool "shell"' in await Play("run: ls", {}).finish(model)


async def test_a_result_that_is_an_error_is_reported(model):
    """What the tool answered is passed on as it is."""
    tools = {"shell": lambda arguments: {"error": {"code": "PERMISSION", "message": "not yours"}}}
    assert "not yours" in await Play("run: ls", tools).finish(model)


@pytest.mark.parametrize(("intent", "seconds"), [("wait 250 ms", 0.25), ("sleep 2 s", 2), ("wait 1.5s", 1.5)])
async def test_wait_takes_that_long(model, autojump_clock, intent, seconds):
    """Delays are virtual in tests and real outside."""
    await model.complete(ModelRequest(intent))
    assert trio.current_time() == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("intent", "code"),
    [
        ("fail", Code.DRIVER),
        ("fail: TIMEOUT", Code.TIMEOUT),
        ("Fail: resource_exhausted", Code.RESOURCE_EXHAUSTED),
    ],
)
async def test_fail_fails_with_that_code(model, intent, code):
    """Any provider's failure can be played."""
    with pytest.raises(SyscallError) as caught:
        await model.complete(ModelRequest(intent))
    assert caught.value.code is code


async def test_fail_with_a_code_that_does_not_exist_lists_the_codes(model):
    """A slip in a test of the kernel is seen at once."""
    with pytest.raises(SyscallError, match="the codes are NOT_FOUND"):
        await model.complete(ModelRequest("fail: OOPS"))


@pytest.mark.parametrize(
    ("intent", "names", "commands"),
    [
        ("loop", ["shell"] * 3, ["echo turn 0", "echo turn 1", "echo turn 2"]),
        ("loop same", ["shell"] * 3, ["true"] * 3),
        ("loop fail", ["no_such_tool"] * 3, [None] * 3),
        ("loop fail differently", ["no_such_tool_0", "no_such_tool_1", "no_such_tool_2"], [None] * 3),
        ('loop: shell {"command": "x"}', ["shell"] * 3, ["x"] * 3),
        ("spend 100 and go on", ["shell"] * 3, ["echo turn 0", "echo turn 1", "echo turn 2"]),
    ],
)
async def test_loops_never_end(model, intent, names, commands):
    """Each turn asks for one more call: the drivers for limits, breakers and budgets."""
    play = Play(intent, TOOLS)
    for _ in range(3):
        await play.turn(model)
    made = [call for turn in play.calls for call in turn]
    assert [call.name for call in made] == names
    assert [call.arguments.get("command") for call in made] == commands


async def test_spend_claims_its_tokens(model):
    """Budgets can be reached in one answer."""
    assert (await model.complete(ModelRequest("spend 5000"))).tokens_used == 5000
    assert (await model.complete(ModelRequest("spend 70 and go on"))).tokens_used == 70


async def test_a_script_in_the_intent_is_played_turn_by_turn(model):
    """Any sequence of batches can be driven from outside; the end reports every result."""
    one, two = {"tool": "shell", "arguments": {"command": "a"}}, {"tool": "plan", "arguments": {"steps": []}}
    play = Play("script: " + json.dumps([[one, two], [one]]), TOOLS)
    results = json.loads(await play.finish(model))
    assert [[call.name for call in turn] for turn in play.calls] == [["shell", "plan"], ["shell"]]
    assert results == [shell(one["arguments"]), "noted", shell(one["arguments"])]


async def test_complete_calls_the_tool_of_that_name(model):
    """The end of a process by its own action."""
    answer = await model.complete(ModelRequest("complete: 42"))
    assert [(call.name, call.arguments) for call in answer.tool_calls] == [("complete", {"result": "42"})]


async def test_listen_ends_when_the_user_speaks(model):
    """A message to a running process is heard, and ends this one."""
    play = Play("listen", TOOLS)
    await play.turn(model)
    await play.turn(model)
    play.messages = [*play.messages, Message(Role.USER, "stop now")]
    assert await play.finish(model) == "You said: stop now"


async def test_a_chat_goes_from_command_to_command(model):
    """A user message after a final answer is a new command."""
    play = Play("say one", TOOLS)
    assert await play.finish(model) == "one"
    play.messages.append(Message(Role.USER, "run: two"))
    assert "<two>" in await play.finish(model)
    assert play.calls == [[ToolCall("call_1_0", "shell", {"command": "two"})]]
