"""Finding agents, skills and providers: who hides whom, what is refused, what is kept."""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rnixfs import configfile, limits
from rnixfs.configfile import Cache, config_folder, trusted_folders
from rnixfs.errors import Code, SyscallError
from rnixfs.loader import Library, Origin
from rnixfs.manifest import whitelist
from rnixfs.providers import BUILT_IN

from .shelves import Shelves, add_agent, add_skill, write


@pytest.fixture
def shelves(tmp_path: Path) -> Shelves:
    return Shelves.below(tmp_path)


def refused(call: Callable[[], object]) -> SyscallError:
    with pytest.raises(SyscallError) as caught:
        call()
    return caught.value


# --- who hides whom ---


def test_the_project_hides_the_user_who_hides_what_is_built_in(shelves: Shelves) -> None:
    shelf = shelves.library().for_cwd(shelves.cwd)
    for folder, origin in (
        (shelves.built_in, Origin.BUILT_IN),
        (shelves.user, Origin.GLOBAL),
        (shelves.project, Origin.PROJECT),
    ):
        add_agent(folder, "a", f"from {origin}", instructions=f"I am {origin}\n")
        add_skill(folder, "s", f"from {origin}", body=f"# {origin}")
        agent, skill = shelf.agent("a"), shelf.skill("s")
        assert (agent.manifest.description, agent.origin) == (f"from {origin}", origin)
        assert agent.instructions == f"I am {origin}"
        assert agent.folder == str(folder / "agents" / "a")
        assert (skill.manifest.body, skill.origin) == (f"# {origin}", origin)


def test_names_of_all_folders_are_listed_once(shelves: Shelves) -> None:
    add_agent(shelves.built_in, "a", "one")
    add_agent(shelves.user, "b", "two")
    add_agent(shelves.project, "b", "three")
    add_agent(shelves.project, "c", "four")
    found = shelves.library().for_cwd(shelves.cwd).agents()
    assert [(name, one.description, one.origin) for name, one in found.items()] == [
        ("a", "one", "built in"),
        ("b", "three", "project"),
        ("c", "four", "project"),
    ]


def test_outside_of_the_project_its_agents_do_not_count(shelves: Shelves, tmp_path: Path) -> None:
    add_agent(shelves.project, "a", "x")
    assert shelves.library().for_cwd(tmp_path).agents() == {}


def test_the_nearest_project_counts_alone(shelves: Shelves) -> None:
    add_agent(shelves.project, "outer", "x")
    add_agent(shelves.cwd / ".rnix", "inner", "x")
    assert list(shelves.library().for_cwd(shelves.cwd).agents()) == ["inner"]


def test_a_broken_agent_hides_the_good_one_below_and_says_why(shelves: Shelves) -> None:
    """Another agent of that name never runs in its place."""
    add_agent(shelves.user, "a", "good")
    add_agent(shelves.project, "a", "bad", more="max_step: 3\n")
    shelf = shelves.library().for_cwd(shelves.cwd)
    path = shelves.project / "agents" / "a" / "agent.yaml"
    error = refused(lambda: shelf.agent("a"))
    assert error.code is Code.INVALID
    assert error.reason.startswith(f"{path}:3: max_step is not a field here")
    shown = shelf.agents()["a"]
    assert (shown.description, shown.origin, shown.problem) == ("", Origin.PROJECT, error.reason)


def test_an_agent_without_instructions_has_none(shelves: Shelves) -> None:
    add_agent(shelves.user, "a", "x")
    assert shelves.library().for_cwd("/").agent("a").instructions == ""


def test_missing_folders_are_empty_ones(tmp_path: Path) -> None:
    shelf = Library([tmp_path / "none"]).for_cwd(tmp_path)
    assert (shelf.agents(), shelf.skills()) == ({}, {})
    assert refused(lambda: shelf.agent("a")).reason == "no agent 'a'; there are no agents"


# --- skills ---


def test_the_metadata_of_a_skill_does_not_need_its_body(shelves: Shelves) -> None:
    """Progressive: the head is read even where the rest is too large to be used."""
    add_skill(shelves.user, "s", "what it does", body="x" * 79 + "\n" + "line\n" * 100_000)
    shelf = shelves.library().for_cwd("/")
    head = shelf.skill_metadata("s").manifest
    assert (head.description, head.body) == ("what it does", "")
    assert shelf.skills()["s"].problem == ""
    error = refused(lambda: shelf.skill("s"))
    assert error.code is Code.TOO_LARGE
    assert f"larger than {limits.PROSE_FILE_MAX} bytes" in error.reason


def test_the_skills_of_an_agent_come_in_order_and_make_its_whitelist(shelves: Shelves) -> None:
    add_skill(shelves.built_in, "one", "x", more="allowed-tools: /dev/fs\n")
    add_skill(shelves.user, "two", "x", more="allowed-tools: /dev/shell\n")
    add_skill(shelves.user, "three", "x")
    add_agent(shelves.user, "a", "x", more="skills: [two, one]\n")
    shelf = shelves.library().for_cwd("/")
    agent = shelf.agent("a")
    skills = shelf.skills_of(agent, ["one", "three", "three"])
    assert [skill.manifest.name for skill in skills] == ["two", "one", "three"]
    assert whitelist(agent.manifest, [one.manifest for one in skills]) == ("/dev/fs", "/dev/shell")


def test_a_skill_that_is_not_there_is_named_with_the_line_that_wants_it(shelves: Shelves) -> None:
    add_skill(shelves.user, "code-analysis", "x")
    path = add_agent(shelves.user, "a", "x", more="skills:\n  - code-analyis\n")
    shelf = shelves.library().for_cwd("/")
    agent = shelf.agent("a")
    error = refused(lambda: shelf.skills_of(agent))
    assert error.code is Code.INVALID
    assert error.reason == (
        f"{path}:3: no skill 'code-analyis'; there are: code-analysis (did you mean code-analysis?)"
    )
    assert refused(lambda: shelf.skills_of(agent, ["x"])).code is Code.INVALID


# --- refusals ---


def test_an_unknown_agent_is_not_found_and_the_nearest_is_named(shelves: Shelves) -> None:
    add_agent(shelves.user, "code-analyst", "x")
    add_agent(shelves.user, "default", "x")
    error = refused(lambda: shelves.library().for_cwd("/").agent("code-analist"))
    assert error.code is Code.NOT_FOUND
    assert error.reason == (
        "no agent 'code-analist'; there are: code-analyst, default (did you mean code-analyst?)"
    )


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../user", "a\0b", "-a", "a" * 65, "a b", "é", "a\n"])
def test_what_cannot_be_a_name_never_reaches_the_disk(shelves: Shelves, name: str) -> None:
    shelf = shelves.library().for_cwd("/")
    for call in (shelf.agent, shelf.skill, shelf.skill_metadata):
        error = refused(partial(call, name))
        assert error.code is Code.INVALID
        assert "use letters, digits, - and _" in error.reason


def test_a_working_folder_must_be_absolute(shelves: Shelves) -> None:
    assert refused(lambda: shelves.library().for_cwd("here")).code is Code.INVALID


BAD_FILES = [
    ("agents/a/agent.yaml", None, "agent.yaml: is missing"),
    ("agents/a/agent.yaml", b"name: b\ndescription: x", "agent.yaml:1: name is 'b' in the folder 'a'"),
    ("agents/a/agent.yaml", b"name: a\ndescription: \xff", "agent.yaml:2: byte 0xff is not UTF-8"),
    ("agents/a/agent.yaml", b"#" * (limits.CONFIG_FILE_MAX + 1), "agent.yaml: is larger than"),
    ("agents/a/instructions.md", b"\n\xff", "instructions.md:2: byte 0xff is not UTF-8"),
    ("agents/a/instructions.md", b"#" * (limits.PROSE_FILE_MAX + 1), "instructions.md: is larger than"),
]


@pytest.mark.parametrize(("path", "data", "reason"), BAD_FILES)
def test_files_that_cannot_be_read_say_where_and_why(shelves: Shelves, path, data, reason) -> None:
    add_agent(shelves.user, "a", "x")
    file = shelves.user / path
    if data is None:
        file.unlink()
    else:
        file.write_bytes(data)
    error = refused(lambda: shelves.library().for_cwd("/").agent("a"))
    assert error.code in (Code.INVALID, Code.TOO_LARGE)
    assert error.reason.startswith(f"{shelves.user}/agents/a/{reason}")


@pytest.mark.parametrize("name", ["agent.yaml", "instructions.md"])
@pytest.mark.parametrize("kind", ["folder", "fifo"])
def test_only_regular_files_are_read(shelves: Shelves, name: str, kind: str) -> None:
    """A pipe in their place neither blocks nor counts."""
    path = add_agent(shelves.user, "a", "x", instructions="x").parent / name
    path.unlink()
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    error = refused(lambda: shelves.library().for_cwd("/").agent("a"))
    assert (error.code, error.reason.startswith(f"{path}: is not a regular file")) == (Code.INVALID, True)


@pytest.mark.parametrize("what", ["agent.yaml", "instructions.md", "."])
def test_links_that_lead_out_of_the_folder_are_refused(shelves: Shelves, tmp_path: Path, what: str) -> None:
    """A cloned project cannot have the daemon read other files of its user."""
    outside = add_agent(tmp_path / "outside", "a", "x", instructions="secret").parent
    add_agent(shelves.project, "a", "x", instructions="x")
    path = shelves.project / "agents" / "a" / what
    if what == ".":
        path = shelves.project / "agents" / "a"
        path.rename(tmp_path / "away")
        path.symlink_to(outside)
    else:
        path.unlink()
        path.symlink_to(outside / what)
    error = refused(lambda: shelves.library().for_cwd(shelves.cwd).agent("a"))
    assert error.code is Code.INVALID
    assert "out of" in error.reason
    assert str(outside) in error.reason


def test_links_that_stay_inside_are_followed(shelves: Shelves) -> None:
    shared = write(shelves.project / "shared.md", "said once")
    add_agent(shelves.project, "a", "x")
    (shelves.project / "agents" / "a" / "instructions.md").symlink_to(shared)
    assert shelves.library().for_cwd(shelves.cwd).agent("a").instructions == "said once"


def test_a_folder_of_the_library_may_itself_be_a_link(shelves: Shelves, tmp_path: Path) -> None:
    """Whoever keeps ~/.config/rnix elsewhere and links to it is understood."""
    add_agent(shelves.user, "a", "x")
    (tmp_path / "link").symlink_to(shelves.user)
    assert Library([shelves.built_in, tmp_path / "link"]).for_cwd("/").agent("a").origin is Origin.GLOBAL


def test_a_project_folder_that_is_a_link_is_left_out_with_a_warning(shelves: Shelves, tmp_path: Path) -> None:
    add_agent(shelves.project, "a", "x")
    shelves.project.rename(tmp_path / "moved")
    shelves.project.symlink_to(tmp_path / "moved")
    shelf = shelves.library().for_cwd(shelves.cwd)
    assert shelf.agents() == {}
    assert shelf.warnings == (
        f"{shelves.project} is not used because it is a symbolic link; make it a folder",
    )
    assert shelf.providers()[1] == shelf.warnings


def test_a_project_folder_of_another_user_is_left_out_unless_trusted(
    shelves: Shelves, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can put a .rnix into /tmp for others to run."""
    add_agent(shelves.project, "a", "x")
    owner = shelves.project.stat().st_uid
    monkeypatch.setattr(configfile, "_friendly", lambda uid: uid == owner + 1)
    shelf = shelves.library().for_cwd(shelves.cwd)
    assert shelf.agents() == {}
    assert f"belongs to user {owner}" in shelf.warnings[0]
    assert list(shelves.library(shelves.project.parent).for_cwd(shelves.cwd).agents()) == ["a"]


def test_more_folders_than_can_be_listed_are_refused_but_found_by_name(
    shelves: Shelves, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SHELF_NAMES_MAX", 1)
    for name in ("a", "b"):
        add_agent(shelves.user, name, "x")
    shelf = shelves.library().for_cwd("/")
    assert "holds 2 folders; at most 1 can be listed" in refused(shelf.agents).reason
    assert shelf.agent("b").manifest.name == "b"


def test_folders_that_cannot_be_names_are_not_listed(shelves: Shelves) -> None:
    for name in (".hidden", "with space", "__pycache__"):
        (shelves.user / "agents" / name).mkdir(parents=True)
    write(shelves.user / "agents" / "file", "x")
    assert shelves.library().for_cwd("/").agents() == {}


# --- providers ---


def test_providers_are_built_in_then_the_users_then_the_projects(shelves: Shelves) -> None:
    write(
        shelves.user / "providers.yaml", "default_provider: local\nproviders: [{name: ollama}, {name: groq}]"
    )
    write(
        shelves.project / "providers.yaml",
        "providers:\n"
        "  - {name: local, driver: openai-compat, base_url: 'http://127.0.0.1:1'}\n"
        "  - {name: ollama, default_model: x}",
    )
    found, warnings = shelves.library().for_cwd(shelves.cwd).providers()
    assert found.names() == ("claude", "cursor", "script", "ollama", "groq", "local")
    assert found.default_provider == "local"
    assert [one.default_model for one in found.providers if one.name == "ollama"] == ["x"]
    assert warnings == ()


def test_a_default_that_is_missing_here_is_warned_of(shelves: Shelves) -> None:
    path = write(shelves.user / "providers.yaml", "default_provider: locl")
    _, warnings = shelves.library().for_cwd("/").providers()
    assert warnings[0].startswith(f"{path}:1: default_provider 'locl' is not the name of a provider")


def test_a_projects_programs_count_only_when_it_is_trusted(shelves: Shelves) -> None:
    path = write(shelves.project / "providers.yaml", "providers: [{name: claude, command: ./evil}]")
    found, warnings = shelves.library().for_cwd(shelves.cwd).providers()
    claude = found.named("claude")
    assert claude is not None
    assert claude.command == ""
    assert warnings[0].startswith(f"{path}: provider 'claude' is not used because it names a program")
    for folder in (shelves.project.parent, shelves.project.parent.parent):
        found, warnings = shelves.library(folder).for_cwd(shelves.cwd).providers()
        claude = found.named("claude")
        assert claude is not None
        assert (claude.command, warnings) == ("./evil", ())


def test_a_folder_beside_the_trusted_one_is_not_trusted(shelves: Shelves) -> None:
    write(shelves.project / "providers.yaml", "providers: [{name: claude, command: ./evil}]")
    beside = Path(str(shelves.project.parent)[:-1])
    assert shelves.library(beside).for_cwd(shelves.cwd).providers()[1] != ()


def test_a_bad_providers_file_is_refused_with_its_line(shelves: Shelves) -> None:
    path = write(shelves.user / "providers.yaml", "version: 9")
    error = refused(lambda: shelves.library().for_cwd("/").providers())
    assert error.code is Code.INVALID
    assert error.reason.startswith(f"{path}:1: version is 9")


def test_a_providers_file_that_becomes_wrong_counts_as_it_was(shelves: Shelves) -> None:
    """Half a line that was saved stops nobody's work; the warning says what is wrong, until it is right."""
    path = write(shelves.user / "providers.yaml", "providers: [{name: groq}]")
    library = shelves.library()
    assert library.for_cwd("/").providers()[1] == ()
    for wrong in ("providers: [{name: groq}", "version: 9", "# \xff"):
        path.write_bytes(wrong.encode("latin-1"))
        found, warnings = library.for_cwd("/").providers()
        assert found.named("groq") is not None
        assert len(warnings) == 1
        assert warnings[0].startswith(f"{path}:1: ")
        assert "counts as it was before" in warnings[0]
    write(path, "providers: [{name: ollama}]")
    found, warnings = library.for_cwd("/").providers()
    assert (found.named("groq"), warnings) == (None, ())


def test_what_a_file_was_is_forgotten_when_it_is_gone(shelves: Shelves) -> None:
    """A new file has no past: where it is wrong, nothing stands in for it."""
    path = write(shelves.user / "providers.yaml", "providers: [{name: groq}]")
    library = shelves.library()
    library.for_cwd("/").providers()
    path.unlink()
    assert library.for_cwd("/").providers()[0].named("groq") is None
    write(path, "version: 9")
    assert refused(lambda: library.for_cwd("/").providers()).code is Code.INVALID


def test_a_file_that_was_never_right_shows_what_is_built_in_and_why(shelves: Shelves) -> None:
    """Who only looks is told what is wrong, and raises nothing."""
    path = write(shelves.user / "providers.yaml", "version: 9")
    shown, warnings, wrong = shelves.library().for_cwd("/").providers_shown()
    assert shown == BUILT_IN
    assert wrong.startswith(f"{path}:1: version is 9")
    assert warnings == (wrong,)
    write(path, "default_provider: groq")
    shown, warnings, wrong = shelves.library().for_cwd("/").providers_shown()
    assert (shown.default_provider, len(warnings), wrong) == ("groq", 1, "")


def test_a_wrong_file_of_a_project_is_no_way_to_trust(shelves: Shelves) -> None:
    """What was left out of the project's file stays left out while the file is wrong."""
    path = write(
        shelves.project / "providers.yaml", "providers: [{name: claude, command: ./evil}, {name: groq}]"
    )
    library = shelves.library()
    library.for_cwd(shelves.cwd).providers()
    write(path, "providers: [")
    found, warnings = library.for_cwd(shelves.cwd).providers()
    claude = found.named("claude")
    assert claude is not None
    assert claude.command == ""
    assert found.named("groq") is not None
    assert len(warnings) == 2


def test_the_users_prices_hold_in_a_project(shelves: Shelves) -> None:
    """What a project's entry may say is bounded by what the user said of that name."""
    models = "models: [{name: a, input_usd: %d}]"
    write(shelves.user / "providers.yaml", f"providers: [{{name: groq, concurrency: 2, {models % 3}}}]")
    write(shelves.project / "providers.yaml", f"providers: [{{name: groq, {models % 0}}}]")
    found = shelves.library().for_cwd(shelves.cwd).providers()[0].named("groq")
    assert found is not None
    assert (found.models[0].input_usd, found.concurrency) == (3, 2)
    trusted = shelves.library(shelves.project.parent).for_cwd(shelves.cwd).providers()[0].named("groq")
    assert trusted is not None
    assert (trusted.models[0].input_usd, trusted.concurrency) == (0, 0)


def test_a_fallback_that_is_missing_here_is_warned_of(shelves: Shelves) -> None:
    """Whoever saves a file learns of the wrong name before it matters."""
    path = write(shelves.user / "providers.yaml", "providers:\n - name: groq\n   fallback: clade")
    _, warnings = shelves.library().for_cwd("/").providers()
    assert warnings[0].startswith(f"{path}:3: fallback 'clade' of 'groq' is not the name of a provider")


def test_what_is_built_in_brings_no_providers_file(shelves: Shelves) -> None:
    write(shelves.built_in / "providers.yaml", "providers: [{name: groq}]")
    assert shelves.library().for_cwd("/").providers()[0].names() == ("claude", "cursor", "script")


# --- what is kept ---


@pytest.fixture
def parses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were read, in order."""
    read: list[str] = []
    real = configfile.read_file

    def counted(base: str, path: str, limit: int, *, cut: bool = False) -> bytes:
        read.append(os.path.basename(path))
        return real(base, path, limit, cut=cut)

    monkeypatch.setattr(configfile, "read_file", counted)
    return read


def later(monkeypatch: pytest.MonkeyPatch, seconds: float = 60) -> None:
    """Let the clock stand so far behind all changes that their times tell them apart."""
    now = time.time_ns() + int(seconds * 1e9)
    monkeypatch.setattr(configfile, "_now_ns", lambda: now)


def test_files_that_did_not_change_are_not_read_again(shelves, parses, monkeypatch) -> None:
    add_agent(shelves.user, "a", "x", instructions="i")
    later(monkeypatch)
    shelf = shelves.library().for_cwd("/")
    first = shelf.agent("a")
    assert shelf.agent("a").manifest is first.manifest
    assert parses == ["agent.yaml", "instructions.md"]


def test_refusals_are_kept_too_and_raised_anew(shelves, parses, monkeypatch) -> None:
    write(shelves.user / "agents" / "a" / "agent.yaml", "name: b")
    later(monkeypatch)
    shelf = shelves.library().for_cwd("/")
    first, second = refused(lambda: shelf.agent("a")), refused(lambda: shelf.agent("a"))
    assert parses == ["agent.yaml"]
    assert first is not second
    assert str(first) == str(second)


def test_a_changed_file_is_read_again(shelves, parses, monkeypatch) -> None:
    path = add_agent(shelves.user, "a", "x")
    later(monkeypatch)
    shelf = shelves.library().for_cwd("/")
    shelf.agent("a")
    path.write_text("name: a\ndescription: longer", encoding="utf-8")
    assert shelf.agent("a").manifest.description == "longer"
    replacement = write(path.with_name("new"), "name: a\ndescription: LONGER")
    replacement.replace(path)
    assert shelf.agent("a").manifest.description == "LONGER"


def test_a_change_within_one_tick_of_the_files_clock_is_seen(shelves: Shelves) -> None:
    """Same size, same inode, perhaps the same time: a file that has just changed is read each time."""
    path = add_agent(shelves.user, "a", "0")
    shelf = shelves.library().for_cwd("/")
    for turn in range(10):
        with path.open("r+", encoding="utf-8") as file:
            file.write(f"name: a\ndescription: '{turn}'")
        assert shelf.agent("a").manifest.description == str(turn)


def test_the_file_read_longest_ago_is_forgotten_first(shelves, parses, monkeypatch) -> None:
    monkeypatch.setattr(limits, "CONFIG_CACHE_MAX", 2)
    later(monkeypatch)
    cache = Cache()
    paths = [str(write(shelves.user / name, name)) for name in ("a", "b", "c")]
    read: list[str] = []

    def parse(path: str) -> str:
        read.append(os.path.basename(path))
        return path

    for index in (0, 1, 0, 2, 0, 1):
        assert cache.get(paths[index], parse, "text") == paths[index]
    assert read == ["a", "b", "c", "b"]


# --- where things are ---


def test_the_users_folder_follows_xdg() -> None:
    assert config_folder({"HOME": "/h"}) == Path("/h/.config/rnix")
    assert config_folder({"HOME": "/h", "XDG_CONFIG_HOME": "/x"}) == Path("/x/rnix")
    assert config_folder({"HOME": "/h", "XDG_CONFIG_HOME": "x"}) == Path("/h/.config/rnix")


def test_trusted_folders_are_absolute_ones() -> None:
    assert trusted_folders({"RNIX_TRUSTED": "/a:b::/c d"}) == (Path("/a"), Path("/c d"))
    assert trusted_folders({}) == ()


def test_the_search_for_a_project_ends(monkeypatch: pytest.MonkeyPatch, shelves: Shelves) -> None:
    monkeypatch.setattr(limits, "PROJECT_DEPTH_MAX", 2)
    assert configfile.find_project(str(shelves.cwd)) is None
    assert configfile.find_project(str(shelves.cwd.parent)) == str(shelves.project)
