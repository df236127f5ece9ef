"""From a spawn request to a launch: which agent, which model, which rights, where."""

import dataclasses
import os
from collections.abc import Callable, Iterable
from typing import TypeVar

from rnixfs import limits
from rnixfs.edge import mountpoint
from rnixfs.errors import Code, SyscallError, denied, invalid
from rnixfs.hostdir import host_roots
from rnixfs.libdir import lib_dir
from rnixfs.llm import Fallback
from rnixfs.loader import Agent, Library, Shelf, Skill
from rnixfs.manifest import UNRESTRICTED, whitelist
from rnixfs.mcp.places import ROOT
from rnixfs.modelshelf import Models
from rnixfs.node import Dir, Node
from rnixfs.proc.birth import Birth
from rnixfs.proc.process import Budget, Launch, Process
from rnixfs.proc.request import SpawnRequest
from rnixfs.proc.supervision import SupervisorSpec
from rnixfs.proc.view import covers
from rnixfs.programs.reason import reason
from rnixfs.programs.supervise import supervise
from rnixfs.types import Place

EDIT = "/dev/edit"
"""The right to change files: whoever may use this device may write below its `/dev/fs` too."""

SPAWN = "/proc/spawn"
DEFAULT_AGENT = "default"
_T = TypeVar("_T")


class AgentLauncher:
    """Resolves spawn requests. Implements `kernel.Launcher`.

    Args:
        library: finds agents, skills and providers.
        models: the models' files.
        home: where processes stand whose request names no folder.
        own_mount: the folder of our own mount, in which no process may stand.
    """

    def __init__(self, library: Library, models: Models, home: Place, own_mount: Callable[[], str]) -> None:
        self._library = library
        self._models = models
        self._home = home
        self._mountpoint = own_mount

    def launch(self, request: SpawnRequest, parent: Process | None) -> Launch:
        cwd = self._cwd(request, parent)
        shelf = self._library.for_cwd(cwd)
        if request.supervisor is not None:
            return self._supervisor(request, parent, cwd, shelf, request.supervisor)
        agent = shelf.agent(request.agent or DEFAULT_AGENT)
        skills = shelf.skills_of(agent, request.skills)
        provider = self._provider(request, agent, parent, shelf)
        fallback = self._fallback(request, agent, parent, shelf, provider)
        mcp = _servers(request, agent, parent, shelf)
        named = whitelist(agent.manifest, [skill.manifest for skill in skills])
        models = [provider, *(one.provider for one in fallback if one.provider)]
        allowed = _allowed(UNRESTRICTED if named is None else named, request, models)
        place = self._place(cwd, request, parent, allowed)
        return Launch(
            intent=request.intent,
            program=reason,
            agent=agent.manifest.name,
            skills=tuple(skill.manifest.name for skill in skills),
            provider=provider,
            model=self._model(request, agent, provider),
            system_prompt=_system_prompt(request, agent, skills, cwd),
            allowed=allowed,
            budget=_budget(request, agent),
            place=place,
            binds=self._binds(place, shelf),
            request=request,
            effort=request.effort or _of_provider(agent, provider, agent.manifest.reasoning_effort),
            fallback=fallback,
            mcp=mcp,
        )

    def _supervisor(
        self, request: SpawnRequest, parent: Process | None, cwd: str, shelf: Shelf, spec: SupervisorSpec
    ) -> Launch:
        """A supervisor may what its creator may, since its children may no more than it."""
        named = request.allowed_devices
        allowed = None if named is None else (*named, SPAWN)
        place = self._place(cwd, request, parent, ("/",) if allowed is None else allowed)
        return Launch(
            intent=request.intent or f"supervise {spec.name}: {', '.join(one.name for one in spec.children)}",
            program=supervise,
            agent="",
            skills=(),
            provider=request.provider or (parent.launch.provider if parent is not None else ""),
            model="",
            system_prompt="",
            allowed=allowed,
            budget=Budget(timeout_ms=request.timeout_ms or 0),
            place=place,
            binds=self._binds(place, shelf),
            supervisor=spec,
            request=request,
        )

    def revive(self, birth: Birth) -> Launch:
        program = reason if birth.supervisor is None else supervise
        launch = Launch.again(birth, program, self._home.env)
        shelf = self._library.for_cwd(birth.cwd)
        return dataclasses.replace(launch, binds=self._binds(launch.place, shelf))

    def check_ready(self, launch: Launch) -> None:
        cwd = launch.place.cwd
        if not os.path.isdir(cwd):
            raise SyscallError(Code.NOT_FOUND, f"its working folder {cwd} is gone; make it again first")
        shelf = self._library.for_cwd(cwd)
        for server in launch.mcp:
            shelf.server(server, "it needs an MCP server that is gone: ")
        if launch.provider and launch.supervisor is None:
            self._models.check(shelf, launch.provider)

    def _binds(self, place: Place, shelf: Shelf) -> dict[str, Node]:
        return {
            "/dev/fs": self._files(place),
            "/dev/llm": self._models.folder(shelf),
            "/lib": lib_dir(lambda: self._library.for_cwd(place.cwd)),
        }

    def _cwd(self, request: SpawnRequest, parent: Process | None) -> str:
        inherited = parent.launch.place if parent is not None else self._home
        # Links are resolved without touching our own mount, which would wait for the daemon that asks.
        cwd = mountpoint.canonical(os.path.normpath(request.cwd or inherited.cwd))
        mount = self._mountpoint()
        if mount and covers(mount, cwd):
            raise invalid(f'"cwd" {cwd} lies in the mount {mount}; a process stands in a folder of the host')
        if not os.path.isdir(cwd):
            raise SyscallError(Code.NOT_FOUND, f'"cwd" {cwd} is no folder of the host')
        if parent is not None and not any(covers(root, cwd) for root in inherited.roots):
            raise denied(f'"cwd" {cwd} lies outside the parent\'s folders: {", ".join(inherited.roots)}')
        return cwd

    def _place(
        self, cwd: str, request: SpawnRequest, parent: Process | None, allowed: tuple[str, ...]
    ) -> Place:
        inherited = parent.launch.place if parent is not None else self._home
        env = dict(inherited.env if request.env is None else request.env)
        writable = any(covers(one, EDIT) for one in allowed)
        if parent is not None:
            writable = writable and parent.rights.permits(EDIT)
        return Place(cwd, env, (cwd,), writable)

    def _files(self, place: Place) -> Dir:
        key = ("fs", place.roots, place.writable)
        return host_roots(key, place.roots, place.writable, avoid=self._mountpoint)

    def _provider(self, request: SpawnRequest, agent: Agent, parent: Process | None, shelf: Shelf) -> str:
        inherited = parent.launch.provider if parent is not None else ""
        configured = shelf.providers()[0].default_provider
        name = request.provider or agent.manifest.provider or inherited or configured
        provider = name or self._models.first_available(shelf)
        self._models.check(shelf, provider)
        _check_permitted(parent, provider)
        return provider

    def _fallback(
        self, request: SpawnRequest, agent: Agent, parent: Process | None, shelf: Shelf, provider: str
    ) -> tuple[Fallback, ...]:
        """Who is asked instead; what the agent names means nothing to another provider than its own."""
        if request.fallback is not None:
            for one in request.fallback:
                if one.provider and self._models.service(shelf, one.provider) is None:
                    self._models.check(shelf, one.provider)
                _check_permitted(parent, one.provider or provider)
            return tuple(request.fallback)
        manifest = agent.manifest
        mine = manifest.provider in ("", provider) and (manifest.fallback or manifest.fallback_provider)
        named = Fallback(manifest.fallback_provider, manifest.fallback)
        if not mine or (parent is not None and not parent.rights.permits(_path(named.provider or provider))):
            return ()
        return (named,)

    @staticmethod
    def _model(request: SpawnRequest, agent: Agent, provider: str) -> str:
        if request.model:
            return request.model
        return _of_provider(agent, provider, agent.manifest.model)


def _path(provider: str) -> str:
    return f"/dev/llm/{provider}"


def _check_permitted(parent: Process | None, provider: str) -> None:
    path = _path(provider)
    if parent is not None and not parent.rights.permits(path):
        raise denied(f"process {parent.pid} may not use {path}, so its child may not either")


def _servers(request: SpawnRequest, agent: Agent, parent: Process | None, shelf: Shelf) -> tuple[str, ...]:
    """The MCP servers that the agent names, but for those that the request leaves out.

    Raises:
        SyscallError: INVALID with the line of agent.yaml that names one that is not there; PERMISSION for one
            that the parent may not use.
    """
    manifest, outer = agent.manifest, request.allowed_devices
    found = [
        name
        for name in manifest.mcp
        if outer is None or any(covers(one.rstrip("/") or "/", ROOT + name) for one in outer)
    ]
    for name in found:
        try:
            shelf.server(name)
        except SyscallError as error:
            if error.code is not Code.NOT_FOUND:
                raise
            raise invalid(f"{agent.folder}/agent.yaml:{manifest.mcp_line}: {error.reason}") from None
        if parent is not None and not parent.rights.has_server(name):
            raise denied(
                f"process {parent.pid} may not use the MCP server {name!r} ({ROOT}{name}), so its child may "
                "not either"
            )
    return tuple(found)


def _of_provider(agent: Agent, provider: str, word: str) -> str:
    """What the agent says in the words of its provider; they mean nothing to another."""
    return word if agent.manifest.provider in ("", provider) else ""


def _allowed(agents: tuple[str, ...], request: SpawnRequest, models: list[str]) -> tuple[str, ...]:
    """The paths that both the agent and the request allow, and the files of its models."""
    both = agents if request.allowed_devices is None else _common(agents, tuple(request.allowed_devices))
    return (*both, *dict.fromkeys(map(_path, models)))


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    narrow = {path for path in one if any(covers(outer, path) for outer in other)}
    narrow |= {path for path in other if any(covers(outer, path) for outer in one)}
    return tuple(sorted(narrow))


def _budget(request: SpawnRequest, agent: Agent) -> Budget:
    manifest = agent.manifest
    return Budget(
        max_steps=_first(request.max_steps, manifest.max_steps, limits.STEPS_MAX),
        tokens=_first(request.context_budget, manifest.context_budget, 0),
        cost_usd=_first(request.max_cost_usd, manifest.max_cost_usd, 0.0),
        timeout_ms=_first(request.timeout_ms, manifest.timeout_ms, 0),
    )


def _first(*values: _T | None) -> _T:
    return next(value for value in values if value is not None)


def _system_prompt(request: SpawnRequest, agent: Agent, skills: Iterable[Skill], cwd: str) -> str:
    listed = [f"- {skill.manifest.name}: {skill.manifest.description}" for skill in skills]
    parts = [
        request.system_prompt.strip(),
        agent.instructions.strip(),
        "Skills (load one with the tool `skill` when its task comes up):\n" + "\n".join(listed)
        if listed
        else "",
        f"Working folder: {cwd}",
    ]
    return "\n\n".join(part for part in parts if part)
