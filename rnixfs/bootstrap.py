"""Builds a system: the kernel, its tree and its devices. The edges (mount, tests) give it a way in."""

import dataclasses
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import trio

from rnixfs import shipped
from rnixfs.children import Children
from rnixfs.configfile import config_folder, trusted_folders
from rnixfs.device import Device
from rnixfs.discovery import Discovery, servers_of
from rnixfs.drivers.check import Check, Checked
from rnixfs.drivers.claude import ClaudeCli
from rnixfs.drivers.cursor import CursorCli
from rnixfs.drivers.files import Edit, Glob, Grep
from rnixfs.drivers.http import DIALECTS, HttpModel
from rnixfs.drivers.mcp import McpTransports
from rnixfs.drivers.query import Query, size_of
from rnixfs.drivers.script import ScriptModel
from rnixfs.drivers.shell import Shell
from rnixfs.errors import Code, SyscallError
from rnixfs.exchange import DeviceNode
from rnixfs.hostdir import host_roots
from rnixfs.initsource import init_plan
from rnixfs.kernel import Kernel, Launcher
from rnixfs.keyed import KeyedDevice
from rnixfs.launch import EDIT, AgentLauncher
from rnixfs.libdir import lib_dir
from rnixfs.loader import Library, Shelf
from rnixfs.mcp.sampling import to_request, to_result
from rnixfs.mcp.shelf import ServerShelf
from rnixfs.model import Model
from rnixfs.modelshelf import Models
from rnixfs.mountfiles import McpDir
from rnixfs.node import Dir, Document, FixedDir, Node
from rnixfs.proc.birth import Birth
from rnixfs.proc.files import proc_dir
from rnixfs.proc.pipes import PipeDevice, Pipes
from rnixfs.proc.process import Launch, Process
from rnixfs.proc.request import SpawnRequest
from rnixfs.providers import ProviderConfig
from rnixfs.restore import restore
from rnixfs.state.memory import MemoryStore
from rnixfs.state.sqlite import SqliteStore
from rnixfs.state.store import Log, Record
from rnixfs.storeconfig import StoreSettings
from rnixfs.sysdir import LogFiles, sys_dir
from rnixfs.treereadme import README
from rnixfs.types import Caller, Place

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a system is set up.

    Args:
        roots: absolute host folders that people reach under `dev/fs`; the first is where they stand.
        fs_write: whether `dev/fs` of the main mount may be written; off, so that `rm -rf` of the mount
            deletes nothing of the host.
        mountpoint: the canonical folder of the mount, empty without one.
        env: environment of the daemon, for programs and for finding configuration.
        store: how the log is kept.
    """

    roots: tuple[str, ...]
    fs_write: bool = False
    mountpoint: str = ""
    env: Mapping[str, str] = dataclasses.field(default_factory=lambda: dict(os.environ))
    store: StoreSettings = dataclasses.field(default_factory=StoreSettings)


class System:
    """A kernel with its tree and devices.

    Args:
        settings: how it is set up.
        library: where agents, skills and providers come from; the usual folders if None.
        launcher: how spawn requests are resolved, for tests of the kernel; the real one if None.
        log: what the past is read from, and the future written to; one in memory if None.
    """

    def __init__(
        self,
        settings: Settings,
        library: Library | None = None,
        launcher: Launcher | None = None,
        log: Log | None = None,
    ) -> None:
        self.settings = settings
        self.log: Log = log if log is not None else MemoryStore()
        self.children = Children(self.log.uuid)
        self.home = Place(settings.roots[0], dict(settings.env), settings.roots, settings.fs_write)
        self.library = library if library is not None else usual_library(settings.env)
        places, self._wrong_places = servers_of(settings.env)
        self.discovery = Discovery(places, lambda job: self.kernel.start(job))
        self.models = Models(
            self._model,
            lambda job: self.kernel.start(job),
            self._repeatable,
            self._permits,
            self.discovery.found,
        )
        self.kernel = Kernel(launcher if launcher is not None else _Late(self), self.log, dict(settings.env))
        self.kernel.init.load = lambda: init_plan(self._shelf())
        mounts = self.kernel.mounts
        self.servers = ServerShelf(self.library, mounts, self.whereabouts, settings.env)
        mounts.configured = self.servers.configured
        mcp = McpTransports(
            self.children,
            lambda job: self.kernel.start(job),
            lambda pid: self.whereabouts(Caller(0, 0, pid)),
            self._sample,
        )
        self.kernel.mounts.transports |= {"stdio": mcp, "http": mcp}
        self.pipes = Pipes(self.kernel)
        self.kernel.root = self._tree()
        self.restored = restore(self.kernel)
        self.pipes.restore()

    def collect_garbage(self) -> bool:
        """Remove from the log what is not to be kept; says whether there is more of it.

        Raises:
            SyscallError: the log cannot be written.
        """
        # Those stay that are in the table, and those of whose end somebody is yet to hear.
        unheard = (pid for process in self.kernel.live() for pid in process.untold)
        gone = self.log.collect(self.settings.store.retention, {*self.kernel.processes, *unheard})
        if gone.processes:
            count = len(gone.processes)
            log.info("gc: removed %d processes, %d events, %d bytes", count, gone.events, gone.bytes)
        return gone.more

    def collect_all(self) -> None:
        """Collect garbage: a first part now, what is more than that in the background.

        Raises:
            SyscallError: the log cannot be written.
        """
        if self.collect_garbage():
            self.kernel.start(self.keep_small)

    async def keep_small(self) -> None:
        """Collect all garbage, a part at a time, so that others can work in between."""
        try:
            while self.collect_garbage():
                await trio.lowlevel.checkpoint()
        except SyscallError as error:
            log.warning("gc: %s", error.reason)

    def _permits(self, caller: Caller, path: str) -> bool:
        process = self.kernel.processes.get(caller.agent)
        return not caller.agent or (process is not None and process.rights.permits(path))

    async def _sample(self, owner: int, wish: dict[str, Any]) -> dict[str, Any]:
        """Have the model of a mount's owner answer its server; the owner pays.

        Raises:
            SyscallError: INVALID for a wish that no model here can grant, and what the model says.
        """
        request = to_request(wish)
        process = self.kernel.processes.get(owner)
        if process is None:
            shelf, name = self._shelf(), ""
        else:
            shelf, name = self.library.for_cwd(process.launch.place.cwd), process.launch.provider
            request = msgspec.structs.replace(request, model=process.launch.model)
        name = name or shelf.providers()[0].default_provider or self.models.first_available(shelf)
        service = self.models.service(shelf, name)
        if service is None:
            raise SyscallError(Code.NOT_FOUND, f"there is no provider {name!r} to answer the server")
        answer = await service.ask(request, owner)
        if process is not None and process.live:
            spent = {"tokens_used": answer.tokens_used, "cost_usd": answer.cost_usd}
            self.kernel.happen(process, "spent", spent)
        return to_result(answer)

    def launcher(self) -> Launcher:
        """What resolves spawn requests."""
        return AgentLauncher(self.library, self.models, self.home, self._mountpoint)

    def _mountpoint(self) -> str:
        return self.settings.mountpoint

    def _shelf(self) -> Shelf:
        return self.library.for_cwd(self.home.cwd)

    def whereabouts(self, caller: Caller) -> Place:
        """Where a caller stands: a process where it was started, people where the daemon was."""
        process = self.kernel.processes.get(caller.agent) if caller.agent else None
        if process is None:
            return self.home
        place = process.launch.place
        env = {**place.env, "RNIX_PID": str(process.pid)}
        if self.settings.mountpoint:
            env["RNIX_MOUNT"] = f"{self.settings.mountpoint}/proc/{process.pid}/root"
        return dataclasses.replace(place, env=env, writable=process.rights.permits(EDIT))

    # --- the tree ---

    def _tree(self) -> Dir:
        started = Path(shipped.__file__).stat().st_mtime_ns
        return FixedDir(
            "root",
            {
                "README.md": Document("README.md", lambda: README.encode(), lambda: started),
                "dev": self._dev(),
                "proc": proc_dir(self.kernel),
                "mnt": FixedDir("mnt", {"mcp": McpDir(self.kernel.mounts)}),
                "lib": lib_dir(self._shelf),
                "sys": sys_dir(
                    self.kernel,
                    lambda: self.models.states(self._shelf()),
                    self._config,
                    LogFiles(self._query(), self.collect_all, self._log_stats),
                    self._check(),
                    lambda: self.servers.rows(self._shelf()),
                ),
            },
        )

    def _dev(self) -> Dir:
        devices: dict[str, Device] = {
            "pipe": PipeDevice(self.kernel, self.pipes),
            "shell": self._keyed("/dev/shell", Shell(self.children, self.whereabouts, self._mountpoint)),
            "edit": Edit(self.whereabouts, self._mountpoint),
            "glob": Glob(self.whereabouts, self._mountpoint),
            "grep": Grep(self.whereabouts, self._mountpoint),
        }
        nodes = {
            name: DeviceNode(("dev", name), f"/dev/{name}", device, self.kernel.start)
            for name, device in devices.items()
        }
        settings = self.settings
        files = host_roots("dev/fs", settings.roots, settings.fs_write, avoid=self._mountpoint)
        folders: dict[str, Dir] = {"llm": self.models.folder(self._shelf()), "fs": files, "pipes": self.pipes}
        return FixedDir("dev", {**folders, **nodes})

    def _keyed(self, path: str, device: Device, repeatable: bool = False) -> Device:
        return KeyedDevice(device, path, _Ledger(self.kernel), self.kernel.start, repeatable)

    def _repeatable(self, path: str, device: Device) -> Device:
        return self._keyed(path, device, repeatable=True)

    def _query(self) -> Node:
        return DeviceNode(("sys", "query"), "/sys/query", Query(self._log_file), self.kernel.start)

    def _check(self) -> Node:
        def providers(caller: Caller) -> Mapping[str, Checked]:
            return self.models.checked(self.library.for_cwd(self.whereabouts(caller).cwd))

        return DeviceNode(("sys", "check"), "/sys/check", Check(providers), self.kernel.start)

    def _log_file(self) -> str:
        return str(self.log.path) if isinstance(self.log, SqliteStore) else ""

    def _log_stats(self) -> dict[str, int]:
        return size_of(path) if (path := self._log_file()) else {}

    def _config(self) -> dict[str, object]:
        shown = self.library.for_cwd(self.home.cwd)
        return {
            "roots": self.settings.roots,
            "fs_write": self.settings.fs_write,
            "mountpoint": self.settings.mountpoint,
            "config": [source.folder for source in shown.sources],
            "warnings": self._warnings(shown),
            "log": self._log_file(),
            "store": self.settings.store.shown(),
        }

    def _warnings(self, shown: Shelf) -> tuple[str, ...]:
        files = (*shown.providers_shown()[1], *shown.servers_shown()[1])
        return (*self._wrong_places, *dict.fromkeys(files))

    def _model(self, entry: ProviderConfig) -> Model | None:
        make = _MODELS.get(entry.driver)
        return make(self, entry) if make is not None else None


class _Ledger:
    """The log, as devices that take idempotency keys see it.

    Args:
        kernel: appends to it.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def emit(self, event: str, pid: int, data: dict[str, Any]) -> Record:
        return self._kernel.emit(event, pid, data)

    def keyed(self, key: str) -> list[Record]:
        return self._kernel.log.keyed(key)


class _Late:
    """A launcher that is made when it is first needed, since it and the kernel need each other."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._made: Launcher | None = None

    def _launcher(self) -> Launcher:
        if self._made is None:
            self._made = self._system.launcher()
        return self._made

    def launch(self, request: SpawnRequest, parent: Process | None) -> Launch:
        return self._launcher().launch(request, parent)

    def revive(self, birth: Birth) -> Launch:
        return self._launcher().revive(birth)

    def check_ready(self, launch: Launch) -> None:
        self._launcher().check_ready(launch)


def usual_library(env: Mapping[str, str]) -> Library:
    """What comes with rnixfs, then the user's own."""
    return Library([shipped.folder("agents").parent, config_folder(env)], trusted_folders(env))


def _claude(system: System, entry: ProviderConfig) -> Model:
    return ClaudeCli(entry, system.children, system.settings.env)


def _cursor(system: System, entry: ProviderConfig) -> Model:
    return CursorCli(entry, system.children, system.settings.env)


def _http(system: System, entry: ProviderConfig) -> Model:
    def key() -> str | None:
        return system.settings.env.get(entry.api_key_env) if entry.api_key_env else None

    return HttpModel(entry, DIALECTS[entry.driver](entry.base_url), key)


def _script(system: System, entry: ProviderConfig) -> Model:
    folder = shipped.folder("scenarios")
    scenarios = [Path(entry.scenario)] if entry.scenario else sorted(folder.glob("*.yaml"))
    return ScriptModel(entry.name, scenarios, entry.timeout_ms)


_MODELS: dict[str, Callable[[System, ProviderConfig], Model]] = {
    "claude-cli": _claude,
    "cursor-cli": _cursor,
    **dict.fromkeys(DIALECTS, _http),
    "script": _script,
}
"""The drivers of models: one row each."""
