"""Scenarios: which rule answers, what it makes, and what a wrong file is told."""

import pytest

from rnixfs.errors import Code
from rnixfs.scenario import choose, load
from rnixfs.scene import Cue, CueCall, Scene
from rnixfs.yamlread import ManifestError


def scenario(rules: str, head: str = "") -> str:
    return f"name: test\n{head}rules:\n{rules}"


def result(tool: str, value: object, name: str = "") -> dict[str, object]:
    return {"tool": tool, "arguments": {"n": 1}, "name": name, "result": value}


SCENE = Scene(
    intent="Run: make tests",
    system_prompt="You are the agent code-analyst.",
    step=2,
    tools=("shell", "read"),
    history=(result("shell", {"stdout": "ok\n"}, "first"), result("read", "text")),
    said=("Run: make tests", "faster"),
    last_result="one\ntwo lines",
)


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ("{}", True),
        ("{intent: make}", True),
        ("{intent: MAKE TESTS}", True),
        ("{intent: cake}", False),
        ("{intent: '/^run:/'}", False),
        ("{intent: '/^run:/i'}", True),
        ("{intent: [cake, '/tests$/']}", True),
        ("{intent: [cake, pie]}", False),
        ("{system_prompt: Code-Analyst}", True),
        ("{system_prompt: writer}", False),
        ("{last_tool: read}", True),
        ("{last_tool: shell}", False),
        ("{last_result: '/^two/'}", True),
        ("{last_result: three}", False),
        ("{step: 2}", True),
        ("{step: 1}", False),
        ("{step: 2+}", True),
        ("{step: 3+}", False),
        ("{step: 1-2}", True),
        ("{step: 3-9}", False),
        ("{tools: [read]}", True),
        ("{tools: [read, shell]}", True),
        ("{tools: [read, write]}", False),
        ("{if: 'step == 2 and last == \"text\"'}", True),
        ("{if: 'got.first.stdout == null'}", False),
        ("{intent: make, step: 2, tools: [read], if: step > 1}", True),
        ("{intent: make, step: 3}", False),
    ],
)
def test_conditions(when, holds):
    """All conditions must hold; of a list of texts, one."""
    found = choose([load(scenario(f"- {{when: {when}, say: yes, name: r}}"))], SCENE)
    assert (found is not None) is holds


def test_the_first_fitting_rule_of_the_first_fitting_scenario_decides():
    """Order is meaning: rules from the top, scenarios in the order given."""
    one = load("name: one\nwhen: {step: 5+}\nrules: [{say: late}]")
    two = load(
        "name: two\nrules: [{name: a, when: {intent: cake}, say: a}, {name: b, say: b}, {name: c, say: c}]"
    )
    three = load("name: three\nrules: [{say: never}]")
    found = choose([one, two, three], SCENE)
    assert found is not None
    assert (found.scenario, found.rule, found.say) == ("two", "b", "b")
    assert choose([one], SCENE) is None


def play(rule: str, scene: Scene = SCENE, head: str = "") -> Cue:
    found = choose([load(scenario(rule, head))], scene)
    assert found is not None
    return found


def test_what_templates_may_name():
    """Everything that a scene knows is there, results by order and by name."""
    say = "{{ step }} {{ tools }} {{ results | count }} {{ last }} {{ got.first.stdout | trim }} "
    say += "{{ history[1].tool }} {{ history[0].arguments.n }} {{ said | last }} "
    say += "{{ system_prompt | words | last }}"
    assert play(f"- say: '{say}'").say == '2 ["shell", "read"] 2 text ok read 1 faster code-analyst.'


def test_calls_are_made_from_templates():
    """Arguments keep their kinds, those that are null are left out, calls whose `if` fails too."""
    cue = play(
        """
- calls:
  - as: one
    tool: shell
    arguments:
      command: '{{ intent | after(":") }}'
      limit: '{{ step }}'
      cwd: '{{ intent | match(/ in (.*)/) }}'
      deep: {list: ['{{ tools }}', 3, true, null]}
  - {tool: read, if: step > 5}
  - tool: '{{ tools | last }}'
"""
    )
    deep = {"list": [["shell", "read"], 3, True, None]}
    assert cue.calls == (
        CueCall("shell", {"command": "make tests", "limit": 2, "deep": deep}, "one"),
        CueCall("read", {}),
    )


def test_calls_can_come_from_one_template():
    """An intent can carry the calls themselves."""
    scene = Scene('go [{"tool": "a", "arguments": {"x": 1}}, {"tool": "b"}]')
    cue = play("- calls: '{{ intent | after(\"go\") | parse_json }}'", scene)
    assert cue.calls == (CueCall("a", {"x": 1}), CueCall("b", {}))


def test_numbers_and_failures():
    """Delays, tokens, costs and failures are data, plain or worked out."""
    cue = play(
        """
- say: 3
  delay_ms: '{{ step | mul(100) }}'
  word_delay_ms: 5
  cost_usd: 0.25
  tokens: {input: 7, output: '{{ step }}'}
"""
    )
    assert (cue.say, cue.delay_ms, cue.word_delay_ms, cue.cost_usd) == ("3", 200, 5, 0.25)
    assert (cue.input_tokens, cue.output_tokens) == (7, 2)
    assert play("- fail: {code: TIMEOUT}").failure == (Code.TIMEOUT, "the scenario says so")
    failure = play(
        '- fail: {code: \'{{ "denied" | replace("denied", "permission") }}\', message: \'at {{ step }}\'}'
    )
    assert failure.failure == (Code.PERMISSION, "at 2")


def test_names_of_a_scenario_are_worked_out_in_order():
    """A value that several rules need is written once, and may use the ones above it."""
    head = "names: {command: '{{ intent | after(\":\") }}', parts: '{{ command | words }}'}\n"
    assert play("- when: {if: 'parts | count == 2'}\n  say: '{{ parts | first }}'", head=head).say == "make"


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", 1, "the file is empty"),
        ("- a", 1, "the file is a list"),
        ("rules: [{say: x}]", 1, "name is missing"),
        ("name: test\n", 1, "rules is missing or empty"),
        ("name: test\nrules: []", 2, "rules is missing or empty"),
        ("name: a b\nrules: [{say: x}]", 1, "name is 'a b'"),
        ("name: test\nrule: []", 2, "rule is not a field"),
        (scenario("- {say: x, sya: y}"), 3, "rules[1].sya is not a field"),
        (scenario("- {name: x}"), 3, "say is missing"),
        (scenario("- {say: x, when: {intention: y}}"), 3, "rules[1].when.intention is not a field"),
        (scenario("- say: x\n  when: {step: one}"), 4, "step is text that is no step"),
        (scenario("- say: x\n  when:\n    intent: /(a+)+/"), 5, "repeats a group"),
        (scenario("- say: x\n  when:\n    if: step >"), 5, "the end stands"),
        (scenario("- say: x\n  when: {if: [a]}"), 4, "if is a list"),
        (scenario("- say: |\n    one\n    {{ two | }}"), 5, "'}}' stands"),
        (scenario("- say: '{{ x | nope }}'"), 3, "no filter 'nope'"),
        (scenario("- calls:\n  - arguments: {}"), 4, "tool is missing"),
        (scenario("- calls:\n  - tool: x\n    args: {}"), 5, "args is not a field"),
        (scenario("- calls:\n  - tool: x\n    arguments:\n      a: ['{{ ( }}']"), 6, "'}}' stands"),
        (scenario("- calls:\n  - {tool: x, as: 3}"), 4, "as is a whole number"),
        (scenario("- fail: {message: x}"), 3, "code is missing"),
        (scenario("- fail: {code: NOPE}"), 3, "code is 'NOPE'"),
        (scenario("- say: x\n  tokens: {in: 3}"), 4, "in is not a field"),
        (scenario("- say: x", "names: {intent: y}\n"), 2, "intent cannot be a name"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(text, line, what):
    """The file, the line, what is wrong and what would be right, before anything is played."""
    with pytest.raises(ManifestError) as caught:
        load(text, "s.yaml")
    assert (caught.value.file, caught.value.line) == ("s.yaml", line)
    assert what in str(caught.value)


@pytest.mark.parametrize(
    ("rule", "line", "what"),
    [
        ("- say: x {{ nope }}", 3, "no name 'nope'"),
        ("- say: |\n    one\n    {{ results[7] }}", 5, "no item 7"),
        ("- say: x\n  when:\n    if: nope", 5, "no name 'nope'"),
        ("- say: x\n  delay_ms: '{{ intent }}'", 4, "must make a number from 0"),
        ("- say: x\n  delay_ms: -1", 4, "must make a number from 0"),
        ("- calls:\n  - tool: ''", 4, "must make the name of a tool"),
        ("- calls:\n  - tool: x\n    arguments: '{{ intent }}'", 5, "must make an object"),
        ("- calls: '{{ intent }}'", 3, "must make a list"),
        ("- calls: '{{ [1] }}'", 3, "must make a list"),
        ("- fail: {code: '{{ intent }}'}", 3, "the codes are NOT_FOUND"),
    ],
)
def test_a_rule_that_cannot_be_played_says_where(rule, line, what):
    """An error while playing names the file's line too."""
    with pytest.raises(ManifestError) as caught:
        choose([load(scenario(rule), "s.yaml")], SCENE)
    assert caught.value.line == line
    assert what in str(caught.value)
