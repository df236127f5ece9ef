"""The models that a working folder's configuration names, as files under `dev/llm/`."""

from collections.abc import Callable, Hashable, Iterable

import msgspec

from rnixfs.device import Device
from rnixfs.errors import Code, SyscallError
from rnixfs.exchange import DeviceNode, Start
from rnixfs.loader import Shelf
from rnixfs.model import Model, ModelInfo
from rnixfs.modeldevice import ModelDevice
from rnixfs.modelfallback import Fallbacks, Permits, people_only
from rnixfs.modelservice import Service
from rnixfs.node import Dir, Node, TableDir
from rnixfs.presets import LOCAL, PRESETS
from rnixfs.providermerge import remedy, with_found
from rnixfs.providers import ProviderConfig, ProvidersFile
from rnixfs.types import Caller
from rnixfs.unusable import Unusable

MakeModel = Callable[[ProviderConfig], Model | None]
"""Makes the model of an entry; None for a driver that this version does not have."""

Front = Callable[[str, Device], Device]
"""Puts a device in front of another, given its path."""

Found = Callable[[], tuple[ProviderConfig, ...]]
"""The servers of this machine that were found without configuration, the one to prefer first."""

PROGRAMS = ("claude", "cursor")
LAST = "script"
"""Who is asked where nothing says otherwise: the first program that is available, then the first server that
was found, then the script."""


class Models:
    """Every model that was ever named, made once an entry.

    Args:
        make: makes a model.
        start: runs the jobs of their files.
        front: puts something in front of a model's device, given its path.
        permits: whether a caller may use a path; a process's requests fall back only to what it permits.
        found: tells which servers run that nobody configured.
    """

    def __init__(
        self,
        make: MakeModel,
        start: Start,
        front: Front = lambda _path, device: device,
        permits: Permits = people_only,
        found: Found = tuple,
    ) -> None:
        self._make = make
        self._start = start
        self._front = front
        self._permits = permits
        self._found = found
        self._services: dict[bytes, Service | None] = {}
        self._nodes: dict[Hashable, DeviceNode] = {}

    def _entries(self, shelf: Shelf) -> ProvidersFile:
        return with_found(shelf.providers()[0], self._found())

    def _of(self, entry: ProviderConfig) -> Service | None:
        key = _key(entry)
        if key not in self._services:
            model = self._make(entry)
            self._services[key] = Service(entry, model) if model is not None else None
        return self._services[key]

    def service(self, shelf: Shelf, name: str) -> Service | None:
        """The provider of that name; None without one, or without a driver for it."""
        entry = self._entries(shelf).named(name)
        return self._of(entry) if entry is not None else None

    def _node(self, shelf: Shelf, name: str) -> DeviceNode | None:
        """The file of a provider. Each configuration has its own, since it says who a name falls back to."""
        service = self.service(shelf, name)
        if service is None:
            return None
        key = ("llm", shelf.sources, _key(service.entry))
        if key not in self._nodes:
            path = f"/dev/llm/{name}"
            fallbacks = Fallbacks(lambda other: self.service(shelf, other), self._permits)
            device = self._front(path, ModelDevice(service, fallbacks))
            self._nodes[key] = DeviceNode(key, path, device, self._start)
        return self._nodes[key]

    def _unusable(self, shelf: Shelf, name: str, wrong: str) -> DeviceNode:
        path, key = f"/dev/llm/{name}", ("llm", shelf.sources, name, wrong)
        if key not in self._nodes:
            self._nodes[key] = DeviceNode(key, path, Unusable(path, wrong), self._start)
        return self._nodes[key]

    def folder(self, shelf: Shelf) -> Dir:
        """`dev/llm` for a configuration; a changed file shows at the next look."""

        def find(name: str, _caller: Caller) -> Node | None:
            shown, _, wrong = shelf.providers_shown()
            if not wrong:
                return self._node(shelf, name)
            return self._unusable(shelf, name, wrong) if shown.named(name) is not None else None

        def names(_caller: Caller) -> Iterable[str]:
            shown = with_found(shelf.providers_shown()[0], self._found())
            return [entry.name for entry in shown.providers if self._of(entry) is not None]

        return TableDir(("llm", shelf.sources), find, names)

    def check(self, shelf: Shelf, name: str) -> None:
        """Raise unless a provider can be asked.

        Raises:
            SyscallError: NOT_FOUND with the names there are, SERVICE_UNAVAILABLE with the reason.
        """
        entries = self._entries(shelf)
        entry = entries.named(name)
        if entry is None and name in LOCAL:
            # Not for want of a name: its server may start, and whoever asks again then is answered.
            raise SyscallError(Code.SERVICE_UNAVAILABLE, _not_running(name))
        if entry is None:
            there = ", ".join(entries.names())
            what = f"no provider {name!r}; there are: {there}{remedy(entries, name)}"
            raise SyscallError(Code.NOT_FOUND, what)
        reason = self._unavailable(entry)
        if reason:
            raise SyscallError(Code.SERVICE_UNAVAILABLE, f"the provider {name!r} cannot be used: {reason}")

    def _unavailable(self, entry: ProviderConfig) -> str:
        service = self._of(entry)
        if service is None:
            return f"this version has no driver {entry.driver!r}"
        return service.unavailable()

    def first_available(self, shelf: Shelf) -> str:
        """The provider to use where nothing names one."""
        entries = self._entries(shelf)
        running = {one.base_url for one in self._found()}
        for name in (*PROGRAMS, *LOCAL):
            entry = entries.named(name)
            # An entry for a server of this machine counts while the server runs, and where it names a model.
            if entry is None or (name in LOCAL and not (entry.default_model and entry.base_url in running)):
                continue
            if not self._unavailable(entry):
                return name
        return LAST

    def states(self, shelf: Shelf) -> list[dict[str, object]]:
        """Each provider, how it does, and whether it can be used, as `sys/providers` shows it.

        Where the configuration is wrong, these are those that are built in, which cannot be used then.
        """
        shown, _, wrong = shelf.providers_shown()
        if wrong:
            rows = [{**self._state(entry), **_unusable(wrong)} for entry in shown.providers]
            return [{**row, "default": False} for row in rows]
        first = shown.default_provider or self.first_available(shelf)
        entries = with_found(shown, self._found()).providers
        return [{**self._state(entry), "default": entry.name == first} for entry in entries]

    def _state(self, entry: ProviderConfig) -> dict[str, object]:
        service = self._of(entry)
        if service is None:
            shown = {"name": entry.name, "driver": entry.driver}
            row = {**shown, **_unusable(self._unavailable(entry))}
        else:
            row = service.row()
        return {**row, "default_model": entry.default_model}

    def checked(self, shelf: Shelf) -> dict[str, "Checked"]:
        """Each provider, to be asked whether it would answer.

        Raises:
            SyscallError: INVALID where the configuration is wrong, with its line.
        """
        return {entry.name: Checked(self, entry) for entry in self._entries(shelf).providers}

    async def aclose(self) -> None:
        """Let go of everything that the models hold."""
        for service in list(self._services.values()):
            if service is not None:
                await service.aclose()


class Checked:
    """A provider that can be asked whether it would answer.

    Args:
        models: knows its service.
        entry: its configuration.
    """

    def __init__(self, models: Models, entry: ProviderConfig) -> None:
        self._models = models
        self._entry = entry

    def row(self) -> dict[str, object]:
        """Its line in `sys/providers`."""
        return self._models._state(self._entry)

    async def check(self) -> list[ModelInfo]:
        """The models that it says it has.

        Raises:
            SyscallError: why it would not answer.
        """
        service = self._models._of(self._entry)
        if service is None:
            raise SyscallError(Code.SERVICE_UNAVAILABLE, self._models._unavailable(self._entry))
        return await service.check()


def _unusable(reason: str) -> dict[str, object]:
    return {"state": "unavailable", "available": False, "reason": reason}


def _not_running(name: str) -> str:
    where = PRESETS[name].base_url
    return (
        f"no server of {name!r} was found; start it, or write an entry {name!r} into providers.yaml where it "
        f"is not at {where}"
    )


def _key(entry: ProviderConfig) -> bytes:
    return msgspec.json.encode(entry)
