"""The scripted model: where a conversation stands, answers, time, streams, files that change, honesty."""

import os
from pathlib import Path

import pytest
import trio

from rnixfs import limits
from rnixfs.drivers.script import Library, ScriptModel, scene_of
from rnixfs.errors import Code, SyscallError
from rnixfs.llm import Message, ModelRequest, Role, ToolCall, ToolSpec, estimate_tokens
from rnixfs.scenario import load

SHELL = ToolSpec("shell", "Runs a command.", {"type": "object"})


def user(text: str) -> Message:
    return Message(Role.USER, text)


def calls(*ids: str, text: str = "") -> Message:
    return Message(Role.ASSISTANT, text, [ToolCall(one, "shell", {"command": one}) for one in ids])


def done(one: str, content: str) -> Message:
    return Message(Role.TOOL, content, tool_call_id=one)


def final(text: str) -> Message:
    return Message(Role.ASSISTANT, text)


def model(rules: str, **more: int) -> ScriptModel:
    return ScriptModel("script", [load(f"name: test\nrules:\n{rules}")], **more)


# --- where a conversation stands ---


def test_an_intent_alone_is_the_beginning():
    """A request without messages begins a piece of work."""
    scene = scene_of(ModelRequest(intent="hello", system_prompt="Be brief.", tools=[SHELL]))
    assert (scene.intent, scene.system_prompt, scene.step, scene.tools) == (
        "hello",
        "Be brief.",
        0,
        ("shell",),
    )


def test_turns_and_results_are_read_from_the_messages():
    """Results are decoded where they are JSON, and know their call, its arguments and its name."""
    messages = [user("go"), calls("call_0_0_all", "x"), done("call_0_0_all", '{"n": 1}\n'), done("x", "text")]
    scene = scene_of(ModelRequest(messages=messages))
    assert scene.step == 1
    assert [call["result"] for call in scene.history] == [{"n": 1}, "text"]
    assert scene.history[0]["arguments"] == {"command": "call_0_0_all"}
    assert (scene.history[0]["name"], scene.history[1]["name"]) == ("all", "")
    assert (scene.last_tool, scene.last_result) == ("shell", "text")


def test_words_between_two_calls_belong_to_the_work():
    """What a user says to a running process does not begin anew."""
    messages = [user("go"), calls("a"), done("a", "1"), user("faster"), calls("b"), done("b", "2")]
    scene = scene_of(ModelRequest(messages=messages))
    assert (scene.intent, scene.step, scene.said) == ("go", 2, ("go", "faster"))


def test_words_after_a_final_answer_begin_anew():
    """A chat asks many things in a row; each has its own turns and results."""
    messages = [
        user("one"),
        calls("a"),
        done("a", "1"),
        final("done"),
        user("two"),
        calls("b"),
        done("b", "2"),
    ]
    scene = scene_of(ModelRequest(messages=messages))
    assert (scene.intent, scene.step) == ("two", 1)
    assert [call["result"] for call in scene.history] == [2]


def test_a_system_message_counts_as_system_prompt():
    """Both ways to give instructions are seen."""
    messages = [Message(Role.SYSTEM, "inner"), user("go")]
    assert scene_of(ModelRequest(system_prompt="outer", messages=messages)).system_prompt == "outer\ninner"


@pytest.mark.parametrize("content", ["", "{", "\ud800", "[" * 100_000, "NaN"])
def test_a_result_that_is_no_json_stays_text(content):
    """No result of a tool can break the model."""
    scene = scene_of(ModelRequest(messages=[user("go"), calls("a"), done("a", content)]))
    assert scene.history[0]["result"] == content


def test_an_odd_conversation_is_read_as_far_as_it_goes():
    """No user, a result without its call: nothing fails."""
    scene = scene_of(ModelRequest(messages=[done("lost", "1"), final("x")]))
    assert (scene.intent, scene.step, scene.history[0]["tool"]) == ("", 1, "")


# --- answers ---


async def test_an_answer_says_what_made_it_and_what_it_cost():
    """Tokens are exact, four bytes each by definition; the model's name says that it is no AI."""
    request = ModelRequest(intent="hello there", system_prompt="Be brief.")
    answer = await model("- say: Hi {{ intent }}").complete(request)
    assert answer.content == "Hi hello there"
    assert answer.model == "script (no AI): test"
    assert answer.stop_reason == "end"
    assert answer.input_tokens == estimate_tokens("Be brief.\nhello there")
    assert answer.output_tokens == estimate_tokens("Hi hello there")
    assert answer.tokens_used == answer.input_tokens + answer.output_tokens
    assert answer.estimated is False


async def test_tools_calls_and_results_count_as_tokens():
    """A longer prompt costs more: results, calls and tool descriptions are part of it."""
    plain = ModelRequest(messages=[user("go")])
    more = ModelRequest(messages=[user("go"), calls("a"), done("a", "x" * 400)])
    tooled = ModelRequest(messages=[user("go")], tools=[SHELL])
    one = model("- say: x")
    counts = [(await one.complete(request)).input_tokens for request in (plain, more, tooled)]
    assert counts[1] > counts[0] + 100
    assert counts[2] > counts[0]


async def test_calls_have_ids_of_their_own_in_every_turn():
    """An id is used once in a conversation; the results find their way back by it."""
    rules = "- {when: {step: 0-1}, calls: [{tool: shell, as: one}, {tool: shell}]}\n- say: '{{ got.one }}'"
    messages = [user("go")]
    seen: list[str] = []
    for turn in range(2):
        answer = await model(rules).complete(ModelRequest(messages=messages))
        assert answer.stop_reason == "tool_calls"
        seen += [call.id for call in answer.tool_calls]
        results = [done(call.id, f"{turn}{place}") for place, call in enumerate(answer.tool_calls)]
        messages += [Message(Role.ASSISTANT, "", answer.tool_calls), *results]
    assert len(set(seen)) == 4
    answer = await model(rules).complete(ModelRequest(messages=messages))
    assert answer.content == "10"


async def test_a_scenario_may_set_tokens_and_cost():
    """Budgets are tested with numbers that a rule names."""
    answer = await model("- {say: x, tokens: {input: 10, output: 20}, cost_usd: 0.5}").complete(
        ModelRequest("go")
    )
    assert (answer.input_tokens, answer.output_tokens, answer.tokens_used, answer.cost_usd) == (
        10,
        20,
        30,
        0.5,
    )


async def test_an_answer_is_cut_at_max_tokens():
    """The limit of a request holds, between characters, and the answer says so."""
    answer = await model("- say: ääää").complete(ModelRequest("go", max_tokens=1))
    assert (answer.content, answer.stop_reason, answer.output_tokens) == ("ää", "max_tokens", 1)
    answer = await model("- say: abcd").complete(ModelRequest("go", max_tokens=1))
    assert (answer.content, answer.stop_reason) == ("abcd", "end")


async def test_a_failure_is_the_error_that_the_rule_names():
    """Any error of a provider can be played."""
    with pytest.raises(SyscallError) as caught:
        await model("- fail: {code: SERVICE_UNAVAILABLE, message: busy}").complete(ModelRequest("go"))
    assert (caught.value.code, caught.value.reason) == (Code.SERVICE_UNAVAILABLE, "busy")


async def test_a_delay_takes_its_time(autojump_clock):
    """A slow model answers after the delay of its rule."""
    await model("- {say: x, delay_ms: 1500}").complete(ModelRequest("go"))
    assert trio.current_time() == pytest.approx(1.5)


@pytest.mark.parametrize(("asked", "default"), [(100, 600_000), (0, 100)])
async def test_a_delay_beyond_the_time_limit_is_a_timeout(autojump_clock, asked, default):
    """The request's limit holds, else the provider's."""
    with pytest.raises(SyscallError) as caught:
        await model("- {say: x, delay_ms: 1500}", timeout_ms=default).complete(
            ModelRequest("go", timeout_ms=asked)
        )
    assert caught.value.code is Code.TIMEOUT
    assert trio.current_time() == pytest.approx(0.1)


async def test_a_stream_comes_word_by_word(autojump_clock):
    """The pieces are words, one a delay, and joined they are the answer, spaces included."""
    pieces: list[tuple[str, float]] = []
    rules = '- {say: " one  two\\nthree ", word_delay_ms: 1000}'
    answer = await model(rules).complete(
        ModelRequest("go"), lambda delta: pieces.append((delta.text, trio.current_time()))
    )
    assert "".join(text for text, _ in pieces) == answer.content == " one  two\nthree "
    assert [round(at) for _, at in pieces[:3]] == [0, 1, 2]


async def test_a_template_that_fails_names_its_file_and_line():
    """The reason tells the writer of a scenario where to look."""
    with pytest.raises(SyscallError) as caught:
        await model("- say: '{{ results[0] }}'").complete(ModelRequest("go"))
    assert caught.value.code is Code.INVALID
    assert "scenario:3: there is no item 0" in caught.value.reason


async def test_without_a_rule_it_says_what_it_is_and_what_to_do():
    """Nobody takes the scripted model for an AI, and everybody learns how to get a real one."""
    answer = await model("- {when: {intent: x}, say: y, help: 'x: says y'}").complete(ModelRequest("qqq"))
    assert "not an AI" in answer.content
    assert "- x: says y" in answer.content
    assert "providers.yaml" in answer.content
    assert answer.stop_reason == "end"


async def test_the_model_of_a_request_can_name_a_scenario():
    """A named scenario plays alone; a real model's name is let through."""
    one, two = load("name: one\nrules: [{say: 1}]"), load("name: two\nrules: [{say: 2}]")
    both = ScriptModel("script", [one, two])
    answers = [(await both.complete(ModelRequest("go", model=name))).content for name in ("", "two", "gpt-9")]
    assert answers == ["1", "2", "1"]


# --- files ---


def write(path: Path, text: str, when: int) -> None:
    path.write_text(text)
    os.utime(path, ns=(when, when))


async def test_a_changed_file_is_read_again(tmp_path):
    """Scenarios are edited while the daemon runs."""
    path = tmp_path / "s.yaml"
    write(path, "name: s\nrules: [{say: 1}]", 10**18)
    script = ScriptModel("script", [path])
    assert (await script.complete(ModelRequest("go"))).content == "1"
    write(path, "name: s\nrules: [{say: 2}]", 10**18 + 1)
    assert (await script.complete(ModelRequest("go"))).content == "2"


def test_a_folder_holds_scenarios(tmp_path):
    """Every YAML file in it, by name."""
    for name in ("b", "a"):
        (tmp_path / f"{name}.yaml").write_text(f"name: {name}\nrules: [{{say: x}}]")
    (tmp_path / "notes.txt").write_text("not one")
    found = Library([tmp_path]).scenarios()
    assert [one.name for one in found] == ["a", "b"]


def test_a_bad_file_makes_it_unavailable_with_the_reason(tmp_path):
    """The description tells which file and line, and recovers when the file does."""
    path = tmp_path / "s.yaml"
    write(path, "name: s\nrules: [{sya: 1}]", 10**18)
    script = ScriptModel("script", [path])
    assert f"{path}:2: rules[1].sya is not a field" in script.unavailable()
    assert script.details()["ai"] is False
    write(path, "name: s\nrules: [{say: 1}]", 10**18 + 1)
    assert script.unavailable() == ""


async def test_what_cannot_be_read_is_refused(tmp_path):
    """A missing file, a pipe (which would stop the daemon), a huge file, other bytes: each says why."""
    pipe, huge, odd = tmp_path / "pipe.yaml", tmp_path / "huge.yaml", tmp_path / "odd.yaml"
    os.mkfifo(pipe)
    huge.write_bytes(b"#" * (limits.SCENARIO_FILE_MAX + 1))
    odd.write_bytes(b"\xff\xfe")
    expected = {
        tmp_path / "none.yaml": "No such file",
        pipe: "no regular file",
        huge: "bytes",
        odd: "not UTF-8",
    }
    for path, reason in expected.items():
        script = ScriptModel("script", [path])
        assert reason in script.unavailable()
        with pytest.raises(SyscallError) as caught:
            await script.complete(ModelRequest("go"))
        assert caught.value.code is Code.INVALID


def test_without_scenarios_it_is_unavailable():
    """An empty list is a mistake in the configuration."""
    assert "no scenario" in ScriptModel("script", []).unavailable()
