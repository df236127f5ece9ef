"""The text protocol: what counts as an action, what is text, and that no reply can hurt."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rnixfs import action
from rnixfs.action import (
    BadAction,
    Call,
    Calls,
    Complete,
    Plan,
    Replan,
    Spawn,
    Specialize,
    Text,
    describe_protocol,
    find_objects,
    parse_reply,
)
from rnixfs.llm import ToolSpec

LS = '{"action": "tool_call", "tool": "shell", "data": {"command": "ls"}}'
PS = '{"action": "tool_call", "tool": "shell", "data": {"command": "ps"}}'
CALL_LS = Call("shell", {"command": "ls"})
CALL_PS = Call("shell", {"command": "ps"})


def calls_of(reply: str) -> tuple[Call, ...]:
    found = parse_reply(reply)
    assert isinstance(found, Calls)
    return found.calls


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        pytest.param(LS, Calls((CALL_LS,)), id="alone"),
        pytest.param(f"\n  {LS}\n", Calls((CALL_LS,)), id="space around"),
        pytest.param(f"I look.\n{LS}", Calls((CALL_LS,), "I look."), id="last in the text"),
        pytest.param(
            f"I look.\n{LS}\nThen I see.", Calls((CALL_LS,), "I look.\nThen I see."), id="text after"
        ),
        pytest.param(f"So:\n```json\n{LS}\n```", Calls((CALL_LS,), "So:"), id="json fence"),
        pytest.param(f"```\n{LS}\n```", Calls((CALL_LS,)), id="plain fence"),
        pytest.param(f"```json\n{LS}", Calls((CALL_LS,)), id="fence never closed"),
        pytest.param(f"{LS}\n{PS}", Calls((CALL_LS, CALL_PS)), id="two lines"),
        pytest.param(f"{LS}{PS}", Calls((CALL_LS, CALL_PS)), id="two without space"),
        pytest.param(f"[{LS}, {PS}]", Calls((CALL_LS, CALL_PS), "[\n,\n]"), id="a list of two"),
        pytest.param(
            f"```json\n{LS}\n```\nand\n```json\n{PS}\n```", Calls((CALL_LS, CALL_PS), "and"), id="fences"
        ),
        pytest.param('{"tool": "t", "action": "tool_call"}', Calls((Call("t"),)), id="other order, no data"),
        pytest.param(
            '{"action": "tool_call", "tool": "t", "data": null}', Calls((Call("t"),)), id="null data"
        ),
        pytest.param(
            '{"action": "tool_call", "tool": "t", "data": {"a": "}{\\"}"}}',
            Calls((Call("t", {"a": '}{"}'}),)),
            id="braces and quotes in a string",
        ),
        pytest.param(
            '{"action": "tool_call", "tool": "t", "data": {"a": {"b": [{"c": {}}]}}}',
            Calls((Call("t", {"a": {"b": [{"c": {}}]}}),)),
            id="nested",
        ),
        pytest.param(
            '{"action": "tool_call", "tool": "t", "data": {"a": "one\ntwo"}}',
            Calls((Call("t", {"a": "one\ntwo"}),)),
            id="a raw line break in a string",
        ),
        pytest.param(
            'Use {x} or { "quoted. ' + LS, Calls((CALL_LS,), 'Use {x} or { "quoted.'), id="stray braces"
        ),
        pytest.param('{"note": 1}\n' + LS, Calls((CALL_LS,), '{"note": 1}'), id="another object before"),
        pytest.param(LS + '\n{"files": 3}', Calls((CALL_LS,), '{"files": 3}'), id="another object after"),
        pytest.param(
            LS + '\n{"action": "complete", "data": {"result": "done"}}',
            Calls((CALL_LS,)),
            id="calls before complete",
        ),
        pytest.param(
            '{"action": "plan", "data": {"steps": ["a", "b"], "reason": "why"}}',
            Plan(("a", "b"), "why"),
            id="plan",
        ),
        pytest.param(
            '{"action": "spawn", "tool": "count files", "data": {"agent": "analyst", "model": "m"}}',
            Spawn("count files", {"agent": "analyst", "model": "m"}),
            id="spawn",
        ),
        pytest.param('{"action": "spawn", "data": {"intent": "x"}}', Spawn("x"), id="spawn, intent in data"),
        pytest.param(
            '{"action": "complete", "tool": "", "data": {"result": "42"}}', Complete("42"), id="complete"
        ),
        pytest.param(
            '{"action": "complete", "data": {"result": {"n": 1}}}', Complete('{"n":1}'), id="JSON result"
        ),
        pytest.param('All is well. {"action": "complete"}', Complete("All is well."), id="result beside it"),
        pytest.param('{"action": "replan", "data": {"reason": "no"}}', Replan("no"), id="replan"),
        pytest.param('{"action": "specialize", "tool": "git"}', Specialize("git"), id="specialize"),
        pytest.param(
            '{"action": "plan", "data": {"steps": ["a"]}} {"action": "replan", "data": {"reason": "no"}}',
            Replan("no"),
            id="the last one counts",
        ),
    ],
)
def test_an_action_is_found_wherever_it_stands(reply, expected):
    """A whole JSON object is the action, in whatever text it stands."""
    assert parse_reply(reply) == expected


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "The answer is 42.",
        '{"result": 42}',
        '{"action": "buy", "price": 3}',
        '{"action": ["tool_call"]}',
        '"' + LS.replace('"', '\\"') + '"',
        LS[:-1],
        '{"action": "tool_call", "tool": "t", "data": {"a": NaN}}',
        '{"action": "tool_call", "tool": "t", "data": {"a": "\\ud800"}}',
        "{" * 50 + "}" * 50,
        '{"a":' * 20_000 + "1" + "}" * 20_000,
    ],
)
def test_anything_else_is_the_final_answer(reply):
    """Text, other JSON, broken JSON and JSON that cannot be passed on come back as they are."""
    assert parse_reply(reply) == Text(reply)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ('{"action": "tool_call", "data": {}}', '"tool_call" needs "tool"'),
        ('{"action": "tool_call", "tool": 3}', '"tool" must be text'),
        ('{"action": "tool_call", "tool": "t", "data": [1]}', '"data" must be an object, not a list'),
        ('{"action": "tool_call", "tool": "t", "data": "x"}', '"data" must be an object, not text'),
        ('{"action": "plan", "data": {"steps": []}}', '"plan" needs "data": {"steps"'),
        ('{"action": "plan", "data": {"steps": [1]}}', '"plan" needs "data": {"steps"'),
        ('{"action": "spawn"}', '"spawn" needs'),
        ('{"action": "spawn", "tool": "x", "data": {"agent": 1}}', '"agent" must be text'),
        ('{"action": "complete"}', '"complete" needs'),
        ('{"action": "replan"}', '"replan" needs'),
        ('{"action": "specialize", "tool": " "}', '"specialize" needs'),
        (
            '{"action": "call_tool", "tool": "t", "data": {}}',
            "there is no action 'call_tool'; there are: tool_call",
        ),
        ('{"action": 7, "tool": "t", "data": {}}', "there is no action 7"),
        (LS + ' {"action": "tool_call"}', '"tool_call" needs "tool"'),
    ],
)
def test_an_action_that_cannot_be_used_says_what_would_be_right(reply, reason):
    """The reason is for the model; one bad call refuses the whole batch."""
    found = parse_reply(reply)
    assert isinstance(found, BadAction)
    assert reason in found.reason


MEGABYTE = 1 << 20
WORST = {
    "open braces": "{" * MEGABYTE,
    "open braces and quotes": '{"' * (MEGABYTE // 2),
    "objects that never close": '{"a":' * (MEGABYTE // 5),
    "quotes after escapes": '{"' + '\\"' * (MEGABYTE // 2),
    "a brace and spaces": "{" + " " * MEGABYTE,
    "closed, but no JSON": '{"a" ' * (MEGABYTE // 6) + "}" * (MEGABYTE // 6),
    "quotes": '"' * MEGABYTE,
}


@pytest.mark.parametrize("reply", WORST.values(), ids=WORST.keys())
def test_the_work_on_a_hostile_megabyte_is_bounded(reply):
    """However a reply is made, the search looks at a fixed multiple of its characters (no clock involved)."""
    looks: list[int] = []
    assert list(find_objects(reply, looks.append)) == []
    bound = action.EFFORT_FACTOR * len(reply) + action.EFFORT_FREE
    assert sum(looks) <= bound + len(reply)
    assert parse_reply(reply) == Text(reply)


def test_an_action_behind_many_stray_braces_is_found():
    """The bound leaves room for text that merely looks odd."""
    reply = '{"open ' * 50 + "\n" + LS
    assert calls_of(reply) == (CALL_LS,)


def test_a_long_reply_is_read_to_its_end():
    """A megabyte of prose and code before the action does not hide it."""
    reply = 'if (x) { y("z"); }\n' * (MEGABYTE // 20) + LS
    assert calls_of(reply) == (CALL_LS,)


PIECES = [*'{}[]":,\\ \n`0a', '"action"', '"tool"', '"data"', '"tool_call"', "```"]
TRICKY = st.lists(st.sampled_from(PIECES)).map("".join)


@given(st.one_of(st.text(), TRICKY))
def test_no_text_raises(text):
    """Whatever a model says becomes an action, text or a reason."""
    found = parse_reply(text)
    assert isinstance(found, action.Action)
    if isinstance(found, Text):
        assert found.text == text


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
    lambda name: name.strip() == name != ""
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('ab{}"\\'), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.lists(st.tuples(NAMES, st.dictionaries(st.text("abc}{"), VALUES, max_size=3)), min_size=1, max_size=4),
    st.text("abc \n{}", max_size=10),
    st.booleans(),
)
def test_calls_survive_the_trip(calls, prose, fenced):
    """What was encoded as actions comes back the same: any names and data, prose and fences around."""
    parts = [json.dumps({"action": "tool_call", "tool": tool, "data": data}) for tool, data in calls]
    if fenced:
        parts = [f"```json\n{part}\n```" for part in parts]
    found = parse_reply(prose + "\n" + "\n".join(parts))
    assert isinstance(found, Calls)
    assert list(found.calls) == [Call(tool, data) for tool, data in calls]


SHELL = ToolSpec(
    "shell", "Runs\n  a command.", {"type": "object", "properties": {"command": {"type": "string"}}}
)
READ = ToolSpec("read", "Reads a file.", {"properties": {"path": {"type": "string"}}, "type": "object"})


def test_the_description_names_every_tool_and_action():
    """A model reads every tool with its schema, and how to write each action."""
    text = describe_protocol([SHELL, READ])
    assert (
        '- shell: Runs a command.\n  arguments: {"properties":{"command":{"type":"string"}},"type":"object"}'
        in text
    )
    assert "- read: Reads a file." in text
    for name in action.ACTIONS:
        assert f'{{"action": "{name}"' in text


def test_the_description_is_constant():
    """The same tools give the same bytes, in any order: else the provider's cached prefix is lost."""
    assert describe_protocol([SHELL, READ]) == describe_protocol([READ, SHELL])


def test_the_description_can_leave_actions_out():
    """An agent that may not start children does not read how to."""
    text = describe_protocol([], ["tool_call", "complete"])
    assert '"spawn"' not in text
    assert '"complete"' in text
    assert text.endswith("Tools:\n(none)")
