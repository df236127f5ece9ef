"""Finds agents, skills, providers and MCP servers in folders, and keeps what it has parsed.

A library has folders of its own (built in, then the user's) and, for a working folder, the `.rnix` folder
found in it or above it. A name found in a later folder hides the same name in earlier ones, also when what
is there cannot be read: falling back to another agent of that name would run something else than meant.

Over 400 lines for the four kinds of things that lie in the same folders and are read by the same rules.
"""

import dataclasses
import enum
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rnixfs import limits
from rnixfs.configfile import Cache, find_project, foreign, read_text
from rnixfs.errors import Code, SyscallError, from_oserror, invalid
from rnixfs.manifest import (
    AGENT_NAME,
    AgentManifest,
    SkillManifest,
    parse_agent,
    parse_skill,
    parse_skill_head,
)
from rnixfs.mcp import configmerge
from rnixfs.mcp.config import ServerConfig, ServersFile, parse_mcp
from rnixfs.providermerge import merge, problems, restrict_project
from rnixfs.providers import BUILT_IN, ProvidersFile, parse_providers
from rnixfs.yamlread import clip, nearest

_File = TypeVar("_File")


class Shelved(enum.StrEnum):
    """What a library keeps, by the folder it lies in."""

    AGENTS = "agents"
    SKILLS = "skills"

    @property
    def one(self) -> str:
        """One of them, in words."""
        return self.value.removesuffix("s")

    @property
    def main(self) -> str:
        """The file that must be there."""
        return "agent.yaml" if self is Shelved.AGENTS else "SKILL.md"


class Origin(enum.StrEnum):
    """Whose folder something comes from; later ones hide earlier ones."""

    BUILT_IN = "built in"
    GLOBAL = "global"
    PROJECT = "project"


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """A folder with `agents/`, `skills/`, `providers.yaml` and `mcp.yaml`."""

    origin: Origin
    folder: str


@dataclasses.dataclass(frozen=True, slots=True)
class Agent:
    """An agent as it was found.

    Args:
        manifest: its agent.yaml.
        instructions: the text of its instructions.md; "" where there is none.
        origin: whose it is.
        folder: the host folder it lies in.
    """

    manifest: AgentManifest
    instructions: str
    origin: Origin
    folder: str


@dataclasses.dataclass(frozen=True, slots=True)
class Skill:
    """A skill as it was found: its SKILL.md with the body, whose it is, and the host folder it lies in."""

    manifest: SkillManifest
    origin: Origin
    folder: str


@dataclasses.dataclass(frozen=True, slots=True)
class Shown:
    """One line of a list of agents or skills.

    Args:
        description: what it is for; "" where it cannot be read.
        origin: whose it is.
        folder: the host folder it lies in.
        problem: why it cannot be used; "" when it can.
    """

    description: str
    origin: Origin
    folder: str
    problem: str = ""


class Library:
    """All agents, skills and providers of a daemon, whatever the working folder.

    Args:
        folders: those that count everywhere: built in, then the user's.
        trusted: folders whose projects may name programs, scripts and other machines in providers.yaml and
            mcp.yaml.
    """

    def __init__(self, folders: Sequence[Path], trusted: Sequence[Path] = ()) -> None:
        origins = [Origin.BUILT_IN, *[Origin.GLOBAL] * len(folders)]
        self._sources = tuple(
            Source(origin, os.path.abspath(folder)) for origin, folder in zip(origins, folders, strict=False)
        )
        self._trusted = tuple(os.path.realpath(one) for one in trusted)
        self._cache = Cache()

    def for_cwd(self, cwd: str | Path) -> "Shelf":
        """What counts in a working folder.

        Args:
            cwd: an absolute path.

        Raises:
            SyscallError: INVALID where it is not absolute.
        """
        if not os.path.isabs(cwd):
            raise invalid(f"the working folder {str(cwd)!r} is not an absolute path; write it from / on")
        project = find_project(os.path.normpath(cwd))
        if project is None:
            return Shelf(self._cache, self._sources)
        trusted = self._trusts(os.path.dirname(project))
        if not trusted and (warning := foreign(project)):
            return Shelf(self._cache, self._sources, warnings=(warning,))
        return Shelf(self._cache, (*self._sources, Source(Origin.PROJECT, project)), trusted=trusted)

    def _trusts(self, folder: str) -> bool:
        if not self._trusted:
            return False
        real = os.path.realpath(folder)
        return any(real == one or real.startswith(one.rstrip("/") + "/") for one in self._trusted)


# --- what counts in one place ---


class Shelf:
    """The agents, skills and providers that count in one working folder. Made by `Library.for_cwd`.

    Args:
        cache: the library's.
        sources: folders, later ones over earlier ones.
        trusted: whether the project may do what the user may.
        warnings: what was left out on the way here.
    """

    def __init__(
        self,
        cache: Cache,
        sources: tuple[Source, ...],
        *,
        trusted: bool = False,
        warnings: tuple[str, ...] = (),
    ) -> None:
        self._cache = cache
        self._trusted = trusted
        self.sources = sources
        self.warnings = warnings

    def only(self, sources: tuple[Source, ...]) -> "Shelf":
        """The same with these folders alone."""
        return Shelf(self._cache, sources, trusted=self._trusted)

    @property
    def trusted(self) -> bool:
        """Whether the project may do what the user may."""
        return self._trusted

    # --- names ---

    def find(self, what: Shelved, name: str) -> tuple[Source, str]:
        """The source and the host folder of an agent or skill.

        Raises:
            SyscallError: INVALID for what cannot be a name, NOT_FOUND with the names there are.
        """
        if not re.fullmatch(AGENT_NAME, name):
            right = f"use letters, digits, - and _, at most {limits.MANIFEST_NAME_MAX}"
            raise invalid(f"{clip(name)} cannot be the name of an agent or skill; {right}")
        for source in reversed(self.sources):
            folder = os.path.join(source.folder, what, name)
            if os.path.isdir(folder):
                return source, folder
        raise self._missing(what, name)

    def _missing(self, what: Shelved, name: str) -> SyscallError:
        names = self.names(what)
        there = f"there are: {', '.join(names)}" if names else f"there are no {what}"
        return SyscallError(Code.NOT_FOUND, f"no {what.one} {name!r}; {there}{nearest(name, names)}")

    def names(self, what: Shelved) -> list[str]:
        """The names of all agents or skills, sorted.

        Raises:
            SyscallError: INVALID where a folder holds more than can be listed.
        """
        found: set[str] = set()
        for source in self.sources:
            found.update(_folders_in(os.path.join(source.folder, what)))
        return sorted(found)

    # --- agents ---

    def agent(self, name: str) -> Agent:
        """An agent by name.

        Raises:
            SyscallError: NOT_FOUND, or INVALID with the file, the line and what is wrong there.
        """
        source, folder = self.find(Shelved.AGENTS, name)

        def parse(path: str) -> AgentManifest:
            text = read_text(source.folder, path, limits.CONFIG_FILE_MAX)
            return parse_agent(text, path, folder=name)

        manifest: AgentManifest = self._load(Shelved.AGENTS, folder, parse, "agent")
        return Agent(manifest, self._instructions(source, folder), source.origin, folder)

    def _instructions(self, source: Source, folder: str) -> str:
        path = os.path.join(folder, "instructions.md")

        def parse(path: str) -> str:
            return read_text(source.folder, path, limits.PROSE_FILE_MAX).strip()

        try:
            return str(self._cache.get(path, parse, "text"))
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise _located(error, path) from None

    def agents(self) -> dict[str, Shown]:
        """All agents by name, sorted; those that cannot be used with the reason."""
        return self._list(Shelved.AGENTS, lambda name: self.agent(name).manifest.description)

    # --- skills ---

    def skill(self, name: str) -> Skill:
        """A skill by name, with its body; errors as `agent` has them."""
        return self._skill(name, parse_skill, cut=False)

    def skill_metadata(self, name: str) -> Skill:
        """A skill by name without its body: only the head of its file is read."""
        return self._skill(name, parse_skill_head, cut=True)

    def _skill(self, name: str, parser: Callable[..., SkillManifest], *, cut: bool) -> Skill:
        source, folder = self.find(Shelved.SKILLS, name)
        limit = limits.CONFIG_FILE_MAX if cut else limits.PROSE_FILE_MAX

        def parse(path: str) -> SkillManifest:
            return parser(read_text(source.folder, path, limit, cut=cut), path, folder=name)

        return Skill(self._load(Shelved.SKILLS, folder, parse, parser), source.origin, folder)

    def skills(self) -> dict[str, Shown]:
        """All skills by name, sorted; those that cannot be used with the reason."""
        return self._list(Shelved.SKILLS, lambda name: self.skill_metadata(name).manifest.description)

    def skills_of(self, agent: Agent, more: Iterable[str] = ()) -> tuple[Skill, ...]:
        """The skills that an agent names and `more`, in order, each once.

        Raises:
            SyscallError: INVALID with the line of agent.yaml that names a skill which is not there.
        """
        own = [self._named_by(agent, name) for name in agent.manifest.skills]
        added = [self.skill(name) for name in more if name not in agent.manifest.skills]
        return (*own, *{skill.manifest.name: skill for skill in added}.values())

    def _named_by(self, agent: Agent, name: str) -> Skill:
        try:
            return self.skill(name)
        except SyscallError as error:
            if error.code is not Code.NOT_FOUND:
                raise
            where = f"{agent.folder}/{Shelved.AGENTS.main}:{agent.manifest.skills_line}"
            raise invalid(f"{where}: {error.reason}") from None

    # --- providers ---

    def providers(self) -> tuple[ProvidersFile, tuple[str, ...]]:
        """All providers, built in, the user's and the project's, and warnings about what was left out.

        A file that has become wrong counts as it was before, so that who saves half a line stops nobody's
        work; the warnings say so.

        Raises:
            SyscallError: INVALID with the file, the line and what is wrong there, where it was never right.
        """
        merged, warnings = BUILT_IN, list(self.warnings)
        for source in self.sources:
            if source.origin is Origin.BUILT_IN:
                continue
            found, wrong = self._providers_of(source)
            warnings.extend(wrong)
            if source.origin is Origin.PROJECT and not self._trusted:
                path = os.path.join(source.folder, "providers.yaml")
                found, dropped = restrict_project(found, path, merged)
                warnings.extend(dropped)
            merged = merge(merged, found)
        return merged, (*warnings, *problems(merged))

    def providers_shown(self) -> tuple[ProvidersFile, tuple[str, ...], str]:
        """The same for those who only look: with why nothing can be used, "" where all is well.

        Where a file is wrong and was never right, these are the providers that are built in.
        """
        try:
            return (*self.providers(), "")
        except SyscallError as error:
            return BUILT_IN, (*self.warnings, error.reason), error.reason

    def _providers_of(self, source: Source) -> tuple[ProvidersFile, tuple[str, ...]]:
        return self._file_of(source, "providers.yaml", parse_providers, ProvidersFile())

    # --- MCP servers ---

    def servers(self) -> tuple[ServersFile, tuple[str, ...]]:
        """All MCP servers of `mcp.yaml`, the user's and the project's, and warnings about what was left out.

        A file that has become wrong counts as it was before, as for `providers`.

        Raises:
            SyscallError: INVALID with the file, the line and what is wrong there, where it was never right.
        """
        merged, warnings = ServersFile(), list(self.warnings)
        for source in self.sources:
            if source.origin is Origin.BUILT_IN:
                continue
            found, wrong = self._file_of(source, "mcp.yaml", parse_mcp, ServersFile())
            warnings.extend(wrong)
            if source.origin is Origin.PROJECT:
                path = os.path.join(source.folder, "mcp.yaml")
                found, dropped = configmerge.restrict_project(found, path, trusted=self._trusted)
                warnings.extend(dropped)
            merged = configmerge.merge(merged, found)
        return merged, tuple(warnings)

    def servers_shown(self) -> tuple[ServersFile, tuple[str, ...]]:
        """The same for those who only look: none where a file is wrong, and a warning that says why."""
        try:
            return self.servers()
        except SyscallError as error:
            return ServersFile(), (*self.warnings, error.reason)

    def server(self, name: str, by: str = "") -> ServerConfig:
        """An MCP server by name.

        Args:
            name: as `mcp.yaml` has it.
            by: what names it, for the message.

        Raises:
            SyscallError: NOT_FOUND with the names there are and why one of that name is not used; INVALID
                where a file is wrong.
        """
        file, warnings = self.servers()
        found = file.named(name)
        if found is not None:
            return found
        names = file.names()
        there = f"there are: {', '.join(names)}" if names else "mcp.yaml names none"
        left_out = "".join(f"; {one}" for one in warnings if f"MCP server {name!r}" in one)
        what = f"{by}no MCP server {name!r}; {there}{nearest(name, names)}{left_out}"
        raise SyscallError(Code.NOT_FOUND, what)

    # --- shared ---

    def _file_of(
        self, source: Source, name: str, parser: Callable[[str, str], _File], nothing: _File
    ) -> tuple[_File, tuple[str, ...]]:
        """A file of configuration, as it was before where it has become wrong, and a warning then."""
        path = os.path.join(source.folder, name)

        def parse(path: str) -> _File:
            return parser(read_text(source.folder, path, limits.CONFIG_FILE_MAX), path)

        try:
            found: _File = self._cache.get(path, parse, name)
        except (FileNotFoundError, NotADirectoryError):
            return nothing, ()
        except OSError as error:
            located = _located(error, path)
            former: _File | None = self._cache.last_good(path, name)
            if former is None:
                raise located from None
            return former, (f"{located.reason} (until then the file counts as it was before)",)
        return found, ()

    def _load(self, what: Shelved, folder: str, parse: Callable[[str], Any], kind: object) -> Any:
        path = os.path.join(folder, what.main)
        try:
            return self._cache.get(path, parse, kind)
        except FileNotFoundError:
            raise invalid(f"{path}: is missing; write it, or remove the folder") from None
        except OSError as error:
            raise _located(error, path) from None

    def _list(self, what: Shelved, describe: Callable[[str], str]) -> dict[str, Shown]:
        return {name: self._shown(what, name, describe) for name in self.names(what)}

    def _shown(self, what: Shelved, name: str, describe: Callable[[str], str]) -> Shown:
        source, folder = self.find(what, name)
        try:
            return Shown(describe(name), source.origin, folder)
        except SyscallError as error:
            return Shown("", source.origin, folder, error.reason)


def _located(error: OSError, path: str) -> SyscallError:
    if isinstance(error, SyscallError):
        return error
    reason = f"{path}: {os.strerror(error.errno or 0)}; make it a file that the daemon may read"
    return from_oserror(error, reason)


def _folders_in(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            found = [one.name for one in entries if re.fullmatch(AGENT_NAME, one.name) and one.is_dir()]
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
    if len(found) > limits.SHELF_NAMES_MAX:
        raise invalid(f"{folder}: holds {len(found)} folders; at most {limits.SHELF_NAMES_MAX} can be listed")
    return found
