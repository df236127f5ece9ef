"""Agents and skills as files: `agent.yaml` and `SKILL.md`.

**Which devices an agent may use.** Its own `allowed_devices` and the `allowed-tools` of all its skills make
one whitelist together. A skill that names no tools adds nothing to it. Where neither the agent nor any of
its skills names something there is no whitelist, and the agent may use everything under /dev and /mnt:
`whitelist` says None then. An agent that writes `allowed_devices: []` has said something, namely "none but
what my skills bring". The agent's own model need not be named.
"""

import dataclasses
from collections.abc import Iterable

from rnixfs import limits
from rnixfs.yamlread import Entry, Fields, ManifestError, Value, clip, kind_of, load, nearest

AGENT_NAME = rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{limits.MANIFEST_NAME_MAX - 1}}}"
SKILL_NAME = r"[a-z0-9]+(?:-[a-z0-9]+)*"  # as the SKILL.md format has it
PROVIDER_NAME = AGENT_NAME
MODEL_NAME = r"[^\s-]\S*"  # never an option of a command line
_AGENT_NAME_RIGHT = "a name of letters, digits, - and _"
_SKILL_NAME_RIGHT = "a name of lower case letters, digits and single hyphens"

TREE = ("dev", "mnt", "proc", "lib", "sys")
"""The folders at the top of the tree that a device path can begin with."""

UNRESTRICTED = ("/dev", "/mnt", "/proc/spawn")
"""What no whitelist stands for."""

_FILES = ("/dev/fs", "/dev/edit", "/dev/patch")
TOOL_DEVICES = {
    "Bash": ("/dev/shell",),
    "Edit": _FILES,
    "Glob": ("/dev/fs", "/dev/glob"),
    "Grep": ("/dev/fs", "/dev/grep"),
    "LS": ("/dev/fs",),
    "MultiEdit": _FILES,
    "Read": ("/dev/fs",),
    "WebFetch": ("/dev/web/fetch",),
    "WebSearch": ("/dev/web/search",),
    "Write": _FILES,
    "shell": ("/dev/shell",),
    "edit": _FILES,
    "patch": _FILES,
    "glob": ("/dev/fs", "/dev/glob"),
    "grep": ("/dev/fs", "/dev/grep"),
    "read_file": ("/dev/fs",),
    "list_files": ("/dev/fs",),
    "write_file": _FILES,
}
"""Names of tools, here and in skills written for other agents, and the devices that they need here."""


@dataclasses.dataclass(frozen=True, slots=True)
class AgentManifest:
    """What `agent.yaml` says. None and "" stand for what it leaves to others.

    Args:
        name: the agent, as its folder is called.
        description: what it is for.
        provider: `models.provider`; "" for the first that is available.
        model: `models.preferred`, as the provider calls it.
        fallback: `models.fallback`, the model to use when the preferred one fails.
        fallback_provider: `models.fallback_provider`, that model's provider.
        reasoning_effort: `models.reasoning_effort`, in the provider's words.
        skills: names of the skills it has, in order.
        allowed_devices: devices beside those of its skills; see the module.
        context_budget: tokens that it may use in all.
        max_steps: reasoning steps.
        timeout_ms: milliseconds from spawn to end.
        max_cost_usd: dollars that it may spend.
        planning: whether it may answer with a plan before it acts.
        language: the language of its answers.
        mcp: names of the MCP servers mounted for it.
        unused: fields it sets that this release takes and does not act on, for a warning.
        skills_line: the line of `skills`, for messages about them.
        mcp_line: the line of `mcp`.
    """

    name: str
    description: str = ""
    provider: str = ""
    model: str = ""
    fallback: str = ""
    fallback_provider: str = ""
    reasoning_effort: str = ""
    skills: tuple[str, ...] = ()
    allowed_devices: tuple[str, ...] | None = None
    context_budget: int | None = None
    max_steps: int | None = None
    timeout_ms: int | None = None
    max_cost_usd: float | None = None
    planning: bool = True
    language: str = ""
    mcp: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    skills_line: int = 1
    mcp_line: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class SkillManifest:
    """What `SKILL.md` says.

    Args:
        name: the skill, as its folder is called.
        description: what it does and when to use it.
        allowed_tools: device paths and tool names; None where it names none.
        license: its licence, in a word or a file's name.
        compatibility: what it needs to run.
        metadata: further facts by name.
        body: the text after the front matter; "" where only that was read.
    """

    name: str
    description: str
    allowed_tools: tuple[str, ...] | None = None
    license: str = ""
    compatibility: str = ""
    metadata: tuple[tuple[str, str], ...] = ()
    body: str = ""


def whitelist(agent: AgentManifest, skills: Iterable[SkillManifest]) -> tuple[str, ...] | None:
    """The device paths that an agent with these skills may use, sorted; None for `UNRESTRICTED`.

    Names of tools stand as the devices that they need.
    """
    named = [agent.allowed_devices, *(skill.allowed_tools for skill in skills)]
    if all(one is None for one in named):
        return None
    tools = {tool for one in named for tool in one or ()}
    return tuple(sorted({device for tool in tools for device in TOOL_DEVICES.get(tool, (tool,))}))


# --- agent.yaml ---

_UNUSED_AGENT_FIELDS = (
    "alternatives", "coarse_loop_threshold", "compact_timeout", "ctx_size", "deferred_skills",
    "loop_threshold", "max_tokens", "project_doc", "sla", "step_timeout", "tools",
)  # fmt: skip
"""Fields that agents written for Rnix may have and that mean nothing here yet."""

AGENT_FIELDS = (
    "name", "description", "models", "skills", "allowed_devices", "context_budget", "max_steps",
    "timeout_ms", "max_cost_usd", "max_cost", "planning", "language", "mcp", *_UNUSED_AGENT_FIELDS,
)  # fmt: skip
MODEL_FIELDS = ("provider", "preferred", "fallback", "fallback_provider", "reasoning_effort")
_AGENT_HINTS = {
    "model": "write it under models, as preferred",
    "provider": "write it under models, as provider",
    "fallback": "write it under models, as fallback",
    "allowed-tools": "an agent has allowed_devices; allowed-tools belong into a SKILL.md",
    "instructions": "put the text into instructions.md beside this file",
    "system_prompt": "put the text into instructions.md beside this file",
    "timeout": "write timeout_ms, in milliseconds",
}


def parse_agent(text: str, file: str, *, folder: str = "") -> AgentManifest:
    """Read the text of an `agent.yaml`.

    Args:
        text: the text.
        file: its name, for messages.
        folder: the name of the folder it lies in, which must be the agent's name; "" to leave that open.

    Raises:
        ManifestError: the line, what is wrong there and what would be right.
    """
    fields = load(text, file).fields()
    fields.only(AGENT_FIELDS, _AGENT_HINTS)
    models = fields.mapping("models") or Fields(file, fields.line, "models.", {})
    models.only(MODEL_FIELDS)
    a_provider, a_model = "the name of a provider", "the name of a model"
    return AgentManifest(
        name=_name(fields, AGENT_NAME, _AGENT_NAME_RIGHT, folder),
        description=_description(fields),
        provider=models.text("provider", pattern=PROVIDER_NAME, right=a_provider),
        model=models.text("preferred", pattern=MODEL_NAME, right=a_model),
        fallback=models.text("fallback", pattern=MODEL_NAME, right=a_model),
        fallback_provider=models.text("fallback_provider", pattern=PROVIDER_NAME, right=a_provider),
        reasoning_effort=models.text("reasoning_effort", right="a word such as low or high"),
        skills=_skills(fields),
        allowed_devices=_devices(fields),
        context_budget=fields.whole("context_budget", 1, limits.BUDGET_TOKENS_MAX),
        max_steps=fields.whole("max_steps", 1, limits.STEPS_CEILING),
        timeout_ms=fields.whole("timeout_ms", 1, limits.TIMEOUT_MS_MAX),
        max_cost_usd=_cost(fields),
        planning=fields.flag("planning", True),
        language=fields.text("language", right="the name of a language"),
        mcp=fields.texts("mcp", pattern=AGENT_NAME, right="the name of a server in mcp.yaml") or (),
        unused=tuple(name for name in _UNUSED_AGENT_FIELDS if name in fields),
        skills_line=fields.line_of("skills"),
        mcp_line=fields.line_of("mcp"),
    )


def _name(fields: Fields, pattern: str, right: str, folder: str) -> str:
    fields.need("name", right)
    name = fields.text("name", limit=limits.MANIFEST_NAME_MAX, pattern=pattern, right=right)
    if folder and name != folder:
        raise fields.error("name", f"is {clip(name)} in the folder {clip(folder)}", "give both the same name")
    return name


def _description(fields: Fields) -> str:
    right = "a sentence that says what it is for"
    fields.need("description", right)
    return fields.text("description", limit=limits.DESCRIPTION_MAX, right=right)


def _skills(fields: Fields) -> tuple[str, ...]:
    limit = limits.MANIFEST_NAME_MAX
    return fields.texts("skills", limit=limit, pattern=SKILL_NAME, right=_SKILL_NAME_RIGHT) or ()


def _cost(fields: Fields) -> float | None:
    if "max_cost" in fields and "max_cost_usd" in fields:
        raise fields.error("max_cost", "says what max_cost_usd says too", "keep max_cost_usd")
    return fields.number("max_cost" if "max_cost" in fields else "max_cost_usd", 0, limits.COST_USD_MAX)


def _devices(fields: Fields) -> tuple[str, ...] | None:
    items = fields.items("allowed_devices", "a list of device paths, such as [/dev/fs, /dev/shell]")
    if items is None:
        return None
    where = f"{fields.path}allowed_devices"
    return _tools(fields.file, where, [(item.line, _word(fields.file, where, item)) for item in items])


# --- device paths and tool names ---


def _word(file: str, where: str, item: Value) -> str:
    if not isinstance(item.data, str):
        what = f"{where} holds {kind_of(item)}"
        raise ManifestError(file, item.line, what, "write device paths or tool names")
    return item.data.strip()


def _tools(file: str, where: str, words: list[tuple[int, str]]) -> tuple[str, ...]:
    for line, word in words:
        if wrong := tool_problem(word):
            what, right = wrong
            raise ManifestError(file, line, f"{where}: {what}", right)
    return tuple(dict.fromkeys(word for _, word in words))


def tool_problem(word: str) -> tuple[str, str] | None:
    """What is wrong with one entry of a whitelist, and what would be right; None for a good one."""
    if word.startswith("/"):
        return _path_problem(word)
    if "(" in word or ")" in word or "*" in word:
        # Dropping the pattern would grant more than the author asked for.
        return (
            f"{clip(word)} allows a tool for some arguments only, which cannot be kept here",
            "allow the whole tool or device, or leave it out",
        )
    if word not in TOOL_DEVICES:
        close = nearest(word, TOOL_DEVICES)
        return (
            f"{clip(word)} is neither a device path nor a tool known here",
            f"write a path such as /dev/fs, or one of {', '.join(TOOL_DEVICES)}{close}",
        )
    return None


def _path_problem(path: str) -> tuple[str, str] | None:
    parts = path.split("/")[1:]
    if any(part in ("", ".", "..") for part in parts):
        return f"{clip(path)} is not a plain path", "write it without //, . and .. and without a / at the end"
    if parts[0] not in TREE:
        close = nearest(parts[0], TREE)
        right = f"device paths begin with /dev/ or /mnt/{close}; files of the host lie under /dev/fs"
        return f"{clip(path)} is not a path of the tree", right
    return None


# --- SKILL.md ---

SKILL_FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
_SKILL_HINTS = {
    "allowed_tools": "write allowed-tools, with a hyphen",
    "tools": "write allowed-tools",
    "version": "write it under metadata",
    "author": "write it under metadata",
}
_FENCE = "---"


def parse_skill(text: str, file: str, *, folder: str = "") -> SkillManifest:
    """Read the text of a `SKILL.md`; arguments and errors as `parse_agent` has them."""
    head, body = _split(text, file)
    return dataclasses.replace(_read_head(head, file, folder), body=body)


def parse_skill_head(text: str, file: str, *, folder: str = "") -> SkillManifest:
    """Read the front matter only; the text may end anywhere behind it. `body` stays empty."""
    head, _ = _split(text, file)
    return _read_head(head, file, folder)


def _split(text: str, file: str) -> tuple[str, str]:
    lines = text.removeprefix("\ufeff").split("\n")
    if lines[0].rstrip() != _FENCE:
        right = "begin the file with a line of three hyphens, the fields, and another such line"
        raise ManifestError(file, 1, "SKILL.md must start with ---", right)
    for number, line in enumerate(lines[1:], 1):
        if line.rstrip() == _FENCE:
            return "\n".join(lines[1:number]), "\n".join(lines[number + 1 :]).strip("\r\n")
    right = "end the fields with a line of three hyphens"
    raise ManifestError(file, len(lines), "SKILL.md is missing the closing ---", right)


def _read_head(head: str, file: str, folder: str) -> SkillManifest:
    doc = load(head, file, before=1)
    if doc.root.data is None:
        raise ManifestError(file, 1, "the front matter is empty", "add name and description")
    fields = doc.fields()
    fields.only(SKILL_FIELDS, _SKILL_HINTS)
    return SkillManifest(
        name=_name(fields, SKILL_NAME, _SKILL_NAME_RIGHT, folder),
        description=_description(fields),
        allowed_tools=_allowed_tools(fields),
        license=fields.text("license", right="the name of a licence"),
        compatibility=fields.text("compatibility", limit=limits.COMPATIBILITY_MAX, right="what it needs"),
        metadata=_metadata(fields),
    )


def _allowed_tools(fields: Fields) -> tuple[str, ...] | None:
    entry: Entry | None = fields.entries.get("allowed-tools")
    if entry is None:
        return None
    words = _tool_words(fields.file, entry)
    if len(words) > limits.MANIFEST_ITEMS_MAX:
        right = f"at most {limits.MANIFEST_ITEMS_MAX} are taken"
        raise fields.error("allowed-tools", f"has {len(words)} entries", right)
    return _tools(fields.file, "allowed-tools", words) or None


def _tool_words(file: str, entry: Entry) -> list[tuple[int, str]]:
    match entry.value.data:
        case tuple() as items:
            return [(item.line, _word(file, "allowed-tools", item)) for item in items]
        case str() as text:
            return [(entry.value.line, word) for word in text.replace(",", " ").split()]
        case _:
            what = f"allowed-tools is {kind_of(entry.value)}"
            right = "write device paths or tool names with spaces between, such as /dev/fs /dev/grep"
            raise ManifestError(file, entry.line, what, right)


def _metadata(fields: Fields) -> tuple[tuple[str, str], ...]:
    found = fields.mapping("metadata")
    if found is None:
        return ()
    for name, (line, value) in found.entries.items():
        if isinstance(value.data, tuple | dict):
            what = f"metadata.{clip(name)} is {kind_of(value)}"
            raise ManifestError(fields.file, line, what, "write a text")
    return tuple((name, value.raw) for name, (_, value) in found.entries.items())
