"""The models that a working folder's configuration names, as files under `dev/llm/`."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from rnixfs.device import Device
from rnixfs.errors import Code, SyscallError
from rnixfs.exchange import DeviceNode, Start
from rnixfs.loader import Shelf
from rnixfs.model import Model, ModelDevice
from rnixfs.node import Dir, Node, TableDir
from rnixfs.providers import ProviderConfig, ProvidersFile
from rnixfs.types import Caller

MakeModel = Callable[[ProviderConfig], Model | None]
"""Makes the model of an entry; None for a driver that this version does not have."""

Front = Callable[[str, Device], Device]
"""Puts a device in front of another, given its path."""

ORDER = ("claude", "cursor", "script")
"""Who is asked where nothing says otherwise: the first of these that is available."""


class _Served(NamedTuple):
    """A model and its file."""

    model: Model
    node: DeviceNode


class Models:
    """Every model that was ever named, made once an entry.

    Args:
        make: makes a model.
        start: runs the jobs of their files.
        front: puts something in front of a model's device, given its path.
    """

    def __init__(self, make: MakeModel, start: Start, front: Front = lambda _path, device: device) -> None:
        self._make = make
        self._start = start
        self._front = front
        self._served: dict[bytes, _Served | None] = {}

    def _of(self, entry: ProviderConfig) -> _Served | None:
        key = msgspec.json.encode(entry)
        if key not in self._served:
            model = self._make(entry)
            self._served[key] = self._serve(key, entry, model) if model is not None else None
        return self._served[key]

    def _serve(self, key: bytes, entry: ProviderConfig, model: Model) -> _Served:
        path = f"/dev/llm/{entry.name}"
        device = self._front(path, ModelDevice(model))
        return _Served(model, DeviceNode(("llm", key), path, device, self._start))

    def folder(self, shelf: Shelf) -> Dir:
        """`dev/llm` for a configuration; a changed file shows at the next look."""

        def find(name: str, _caller: Caller) -> Node | None:
            entry = _entries(shelf).named(name)
            served = self._of(entry) if entry is not None else None
            return served.node if served is not None else None

        def names(_caller: Caller) -> Iterable[str]:
            return [entry.name for entry in _entries(shelf).providers if self._of(entry) is not None]

        return TableDir(("llm", shelf.sources), find, names)

    def check(self, shelf: Shelf, name: str) -> None:
        """Raise unless a provider can be asked.

        Raises:
            SyscallError: NOT_FOUND with the names there are, SERVICE_UNAVAILABLE with the reason.
        """
        entry = _entries(shelf).named(name)
        if entry is None:
            there = ", ".join(_entries(shelf).names())
            raise SyscallError(Code.NOT_FOUND, f"no provider {name!r}; there are: {there}")
        reason = self._unavailable(entry)
        if reason:
            raise SyscallError(Code.SERVICE_UNAVAILABLE, f"the provider {name!r} cannot be used: {reason}")

    def _unavailable(self, entry: ProviderConfig) -> str:
        served = self._of(entry)
        if served is None:
            return f"this version has no driver {entry.driver!r}"
        return served.model.unavailable()

    def first_available(self, shelf: Shelf) -> str:
        """The provider to use where nothing names one."""
        entries = _entries(shelf)
        for name in ORDER:
            entry = entries.named(name)
            if entry is not None and not self._unavailable(entry):
                return name
        return ORDER[-1]

    def states(self, shelf: Shelf) -> list[dict[str, object]]:
        """Each provider with its driver and whether it can be used, as `sys/providers` shows it."""
        rows: list[dict[str, object]] = []
        for entry in _entries(shelf).providers:
            reason = self._unavailable(entry)
            rows.append(
                {"name": entry.name, "driver": entry.driver, "available": not reason, "reason": reason}
            )
        return rows

    async def aclose(self) -> None:
        """Let go of everything that the models hold."""
        for served in list(self._served.values()):
            if served is not None:
                await served.model.aclose()


def _entries(shelf: Shelf) -> ProvidersFile:
    return shelf.providers()[0]
