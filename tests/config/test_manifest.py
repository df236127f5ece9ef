"""agent.yaml and SKILL.md: every field, every refusal."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rnixfs.manifest import (
    AGENT_FIELDS,
    SKILL_FIELDS,
    TOOL_DEVICES,
    AgentManifest,
    SkillManifest,
    parse_agent,
    parse_skill,
    parse_skill_head,
    tool_problem,
    whitelist,
)
from rnixfs.yamlread import ManifestError

from .shelves import attempt

FULL = """\
name: code-analyst
description: Reads code
models:
  provider: claude
  preferred: sonnet
  fallback: haiku
  fallback_provider: local
  reasoning_effort: high
context_budget: 8192
max_steps: 20
timeout_ms: 60000
max_cost_usd: 1.5
skills:
  - code-analysis
allowed_devices: [/dev/shell, Read]
planning: false
language: Deutsch
mcp: [time]
project_doc: true
"""


def test_every_field_of_an_agent_is_read() -> None:
    assert parse_agent(FULL, "agent.yaml", folder="code-analyst") == AgentManifest(
        name="code-analyst",
        description="Reads code",
        provider="claude",
        model="sonnet",
        fallback="haiku",
        fallback_provider="local",
        reasoning_effort="high",
        skills=("code-analysis",),
        allowed_devices=("/dev/shell", "Read"),
        context_budget=8192,
        max_steps=20,
        timeout_ms=60000,
        max_cost_usd=1.5,
        planning=False,
        language="Deutsch",
        mcp=("time",),
        unused=("project_doc",),
        mcp_line=18,
        skills_line=13,
    )


def test_name_and_description_are_enough() -> None:
    agent = parse_agent("name: a\ndescription: b", "agent.yaml")
    assert agent == AgentManifest(name="a", description="b")
    assert (agent.max_steps, agent.context_budget, agent.allowed_devices) == (None, None, None)


def test_max_cost_is_taken_as_the_older_name() -> None:
    assert parse_agent("name: a\ndescription: b\nmax_cost: 2", "f").max_cost_usd == 2


HEAD = "name: a\ndescription: b\n"
AGENT_REFUSED = [
    ("", 1, "the file is empty", "write fields"),
    ("description: b", 1, "name is missing", "add name"),
    ("name: a", 1, "description is missing", "add description"),
    ("name: a\ndescription:", 2, "description is empty", "write a sentence"),
    ("name: ../a\ndescription: b", 1, "name is '../a'", "letters, digits"),
    ("name: 7\ndescription: b", 1, "name is a whole number", "in quotes"),
    ("name: other\ndescription: b", 1, "name is 'other' in the folder 'a'", "the same name"),
    (f"name: {'a' * 65}\ndescription: b", 1, "name has 65 characters", "at most 64"),
    (f"name: a\ndescription: {'x' * 1025}", 2, "description has 1025 characters", "at most 1024"),
    (HEAD + "max_step: 3", 3, "max_step is not a field here", "did you mean max_steps?"),
    (HEAD + "model: x", 3, "model is not a field here", "under models, as preferred"),
    (HEAD + "provider: x", 3, "provider is not a field here", "under models, as provider"),
    (HEAD + "system_prompt: x", 3, "system_prompt is not a field here", "instructions.md"),
    (HEAD + "allowed-tools: x", 3, "allowed-tools is not a field here", "allowed_devices"),
    (HEAD + "max_steps: many", 3, "max_steps is text", "a whole number from 1 to"),
    (HEAD + "max_steps: 0", 3, "max_steps is 0", "a whole number from 1 to"),
    (HEAD + "context_budget: -1", 3, "context_budget is -1", "a whole number from 1 to"),
    (HEAD + "timeout_ms: 1.5", 3, "timeout_ms is a number", "a whole number"),
    (HEAD + "max_cost_usd: .nan", 3, "max_cost_usd is .nan", "a number from 0 to"),
    (HEAD + "max_cost: 1\nmax_cost_usd: 1", 3, "max_cost says what max_cost_usd says", "keep max_cost_usd"),
    (HEAD + "planning: off", 3, "planning is text", "true or false"),
    (HEAD + "skills: code-analysis", 3, "skills is text", "a list"),
    (HEAD + "skills:", 3, "skills is empty", "a list"),
    (HEAD + "skills:\n  - ok\n  - Not_Ok", 5, "skills[2] is 'Not_Ok'", "lower case letters"),
    (HEAD + "skills:\n- ok\n- ok", 5, "skills names 'ok' twice", "keep one"),
    (HEAD + "models: sonnet", 3, "models is text", "write fields"),
    (HEAD + "models:\n  prefered: x", 4, "models.prefered is not a field", "did you mean preferred?"),
    (HEAD + "models:\n  preferred: --x", 4, "models.preferred is '--x'", "the name of a model"),
    (HEAD + "models:\n  provider: a b", 4, "models.provider is 'a b'", "the name of a provider"),
    (HEAD + "mcp: [a/b]", 3, "mcp[1] is 'a/b'", "mcp.yaml"),
    (HEAD + "allowed_devices:", 3, "allowed_devices is empty", "a list of device paths"),
    (HEAD + "allowed_devices:\n - /dev/fs\n - /etc", 5, "'/etc' is not a path of the tree", "/dev/fs"),
    (HEAD + "allowed_devices: [7]", 3, "allowed_devices holds a whole number", "device paths"),
    (HEAD + "name: c", 3, "'name' is given twice, first in line 1", "keep one"),
]


@pytest.mark.parametrize(("text", "line", "what", "right"), AGENT_REFUSED)
def test_a_bad_agent_is_refused_with_file_line_and_remedy(
    text: str, line: int, what: str, right: str
) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_agent(text, "x/agent.yaml", folder="a")
    assert (caught.value.file, caught.value.line) == ("x/agent.yaml", line)
    assert what in caught.value.what
    assert right in caught.value.right


SKILL = """\
---
name: code-analysis
description: >
  Analyse
  code.
license: MIT
compatibility: needs git
metadata:
  version: 1.0
  author: me
allowed-tools: /dev/fs, /dev/grep  Bash
---

# Body
---
more
"""


def test_every_field_of_a_skill_is_read() -> None:
    assert parse_skill(SKILL, "SKILL.md", folder="code-analysis") == SkillManifest(
        name="code-analysis",
        description="Analyse code.",
        allowed_tools=("/dev/fs", "/dev/grep", "Bash"),
        license="MIT",
        compatibility="needs git",
        metadata=(("version", "1.0"), ("author", "me")),
        body="# Body\n---\nmore",
    )


def test_the_head_of_a_skill_is_read_without_its_body() -> None:
    head = parse_skill_head(SKILL, "SKILL.md")
    assert (head.name, head.body) == ("code-analysis", "")


def test_line_ends_and_a_byte_order_mark_do_not_matter() -> None:
    crlf = "\ufeff" + SKILL.replace("\n", "\r\n")
    found = parse_skill(crlf, "SKILL.md")
    assert (found.name, found.body) == ("code-analysis", "# Body\r\n---\r\nmore")


@pytest.mark.parametrize(
    ("tools", "found"),
    [
        ("/dev/fs /dev/shell", ("/dev/fs", "/dev/shell")),
        ("/dev/fs,/dev/shell", ("/dev/fs", "/dev/shell")),
        ("[/dev/fs, Read]", ("/dev/fs", "Read")),
        ("\n  - /dev/fs\n  - /mnt/mcp/time", ("/dev/fs", "/mnt/mcp/time")),
        ("/dev/fs /dev/fs", ("/dev/fs",)),
        ("''", None),
        ("[]", None),
    ],
)
def test_allowed_tools_are_a_list_or_a_text(tools: str, found: tuple[str, ...] | None) -> None:
    text = f"---\nname: s\ndescription: d\nallowed-tools: {tools}\n---\n"
    assert parse_skill(text, "SKILL.md").allowed_tools == found


def skill_text(*lines: str) -> str:
    return "\n".join(["---", "name: s", "description: d", *lines, "---", "body"])


SKILL_REFUSED = [
    ("", 1, "SKILL.md must start with ---", "three hyphens"),
    ("# Title", 1, "SKILL.md must start with ---", "three hyphens"),
    ("---\nname: s\ndescription: d\n", 4, "missing the closing ---", "three hyphens"),
    ("---\n---\nbody", 1, "the front matter is empty", "add name and description"),
    ("---\n- a\n---\n", 2, "the file is a list", "write fields"),
    ("---\nname: s\n---\n", 2, "description is missing", "add description"),
    ("---\nname: Big\ndescription: d\n---\n", 2, "name is 'Big'", "lower case"),
    ("---\nname: a--b\ndescription: d\n---\n", 2, "name is 'a--b'", "single hyphens"),
    ("---\nname: t\ndescription: d\n---\n", 2, "name is 't' in the folder 's'", "the same name"),
    (skill_text("allowed_tools: /dev/fs"), 4, "allowed_tools is not a field here", "with a hyphen"),
    (skill_text("version: 1"), 4, "version is not a field here", "metadata"),
    (skill_text("licence: MIT"), 4, "licence is not a field here", "did you mean license?"),
    (skill_text("allowed-tools: 7"), 4, "allowed-tools is a whole number", "spaces between"),
    (skill_text("allowed-tools:"), 4, "allowed-tools is empty", "spaces between"),
    (skill_text("allowed-tools: [[a]]"), 4, "allowed-tools holds a list", "device paths"),
    (skill_text("allowed-tools: Bash(git:*)"), 4, "for some arguments only", "the whole tool"),
    (skill_text("allowed-tools: Gerp"), 4, "'Gerp' is neither", "did you mean Grep?"),
    (skill_text("allowed-tools: /dev/../etc"), 4, "not a plain path", "without //"),
    (skill_text("allowed-tools: /dev/fs/"), 4, "not a plain path", "without //"),
    (skill_text("allowed-tools: /"), 4, "not a plain path", "without //"),
    (skill_text("allowed-tools: /deb/fs"), 4, "not a path of the tree", "did you mean dev?"),
    (skill_text("allowed-tools:", "  - /dev/fs", "  - /tmp"), 6, "not a path of the tree", "/dev/"),
    (skill_text("allowed-tools: " + " ".join(f"/dev/{n}" for n in range(300))), 4, "300 entries", "256"),
    (skill_text("metadata: [a]"), 4, "metadata is a list", "write fields"),
    (skill_text("metadata:", "  a: [b]"), 5, "metadata.'a' is a list", "write a text"),
    (skill_text(f"compatibility: {'x' * 501}"), 4, "compatibility has 501 characters", "at most 500"),
    (skill_text("license: a: b"), 4, "not YAML", "quotes"),
]


@pytest.mark.parametrize(("text", "line", "what", "right"), SKILL_REFUSED)
def test_a_bad_skill_is_refused_with_file_line_and_remedy(
    text: str, line: int, what: str, right: str
) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_skill(text, "s/SKILL.md", folder="s")
    assert (caught.value.file, caught.value.line) == ("s/SKILL.md", line)
    assert what in caught.value.what
    assert right in caught.value.right


def skill(*tools: str, none: bool = False) -> SkillManifest:
    return SkillManifest("s", "d", None if none else tools)


@pytest.mark.parametrize(
    ("own", "skills", "devices"),
    [
        (None, [], None),
        (None, [skill(none=True)], None),
        (None, [skill("/dev/fs"), skill(none=True)], ("/dev/fs",)),
        (None, [skill("/dev/shell"), skill("/dev/fs", "/dev/shell")], ("/dev/fs", "/dev/shell")),
        ((), [], ()),
        ((), [skill("/dev/fs")], ("/dev/fs",)),
        (("/mnt/mcp/time",), [skill("/dev/fs")], ("/dev/fs", "/mnt/mcp/time")),
        (("Read",), [skill("Bash")], ("/dev/fs", "/dev/shell")),
        (("/dev/fs",), [skill(none=True)], ("/dev/fs",)),
    ],
)
def test_the_whitelist_is_what_agent_and_skills_name_together(own, skills, devices) -> None:
    assert whitelist(AgentManifest("a", "d", allowed_devices=own), skills) == devices


@pytest.mark.parametrize("tool", sorted(TOOL_DEVICES))
def test_known_tools_are_good_entries_and_stand_for_device_paths(tool: str) -> None:
    assert tool_problem(tool) is None
    assert all(tool_problem(path) is None for path in TOOL_DEVICES[tool])


LINE = st.builds(
    lambda name, value: f"{name}: {value}",
    st.sampled_from([*AGENT_FIELDS, *SKILL_FIELDS, "other"]),
    st.sampled_from(
        ["", "a", "1", "-1", "[]", "[a]", "[1, /dev/fs]", "{}", "{a: b}", "true", ".nan", "'", "*a"]
    ),
)
TEXTS = st.one_of(st.text(max_size=80), st.lists(LINE, max_size=8).map("\n".join))


@given(TEXTS)
def test_any_text_is_an_agent_or_a_refusal(text: str) -> None:
    """parse_agent raises nothing but ManifestError."""
    found = attempt(lambda: parse_agent(text, "f"))
    assert found.name if isinstance(found, AgentManifest) else found.what and found.right


@given(TEXTS, st.booleans())
def test_any_text_is_a_skill_or_a_refusal(text: str, fenced: bool) -> None:
    """parse_skill raises nothing but ManifestError, and the head says the same as the whole."""
    whole = f"---\n{text}\n---\n" if fenced else text
    found = attempt(lambda: parse_skill(whole, "f"))
    if isinstance(found, SkillManifest):
        assert parse_skill_head(whole, "f") == dataclasses.replace(found, body="")
    else:
        assert found.what
        assert found.right
