"""The agents and skills that ship: each is good, says enough, and asks for what it needs only."""

import pytest

from rnixfs import shipped
from rnixfs.loader import Library, Shelf
from rnixfs.manifest import whitelist

BUILT_IN = shipped.folder("agents").parent
AGENTS = ("code-analyst", "default")
SKILLS = ("code-analysis", "shell-use")


@pytest.fixture(scope="module")
def shelf() -> Shelf:
    return Library([BUILT_IN]).for_cwd("/")


def allowed(shelf: Shelf, name: str) -> tuple[str, ...] | None:
    agent = shelf.agent(name)
    return whitelist(agent.manifest, [skill.manifest for skill in shelf.skills_of(agent)])


def test_agents_and_skills_lie_side_by_side() -> None:
    """One folder serves as the library's built-in one."""
    assert shipped.folder("skills").parent == BUILT_IN


def test_everything_that_ships_is_listed_without_a_problem(shelf: Shelf) -> None:
    assert tuple(shelf.agents()) == AGENTS
    assert tuple(shelf.skills()) == SKILLS
    assert not [one.problem for one in (*shelf.agents().values(), *shelf.skills().values()) if one.problem]


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_has_instructions_and_its_skills_are_there(shelf: Shelf, name: str) -> None:
    agent = shelf.agent(name)
    assert len(agent.instructions) > 500
    assert shelf.skills_of(agent)
    assert agent.manifest.unused == ()


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_leaves_the_choice_of_the_provider_open(shelf: Shelf, name: str) -> None:
    manifest = shelf.agent(name).manifest
    assert (manifest.provider, manifest.model) == ("", "")


@pytest.mark.parametrize("name", SKILLS)
def test_a_skill_is_short_enough_to_be_carried_along(shelf: Shelf, name: str) -> None:
    """Under 100 tokens of metadata and 5,000 of body, at four bytes a token."""
    manifest = shelf.skill(name).manifest
    assert len(manifest.description.encode()) < 400
    assert 500 < len(manifest.body.encode()) < 20_000


def test_the_analyst_can_look_at_files_and_nothing_else(shelf: Shelf) -> None:
    assert allowed(shelf, "code-analyst") == ("/dev/fs", "/dev/glob", "/dev/grep")


def test_the_general_helper_may_use_all_devices_and_servers(shelf: Shelf) -> None:
    assert {"/dev", "/mnt"} <= set(allowed(shelf, "default") or ())
