"""The models that a working folder's configuration names, as files under `dev/llm/`."""

from collections.abc import Callable, Iterable

import msgspec

from rnixfs.errors import Code, SyscallError
from rnixfs.exchange import DeviceNode, Start
from rnixfs.loader import Shelf
from rnixfs.model import Model, ModelDevice
from rnixfs.node import Dir, Node, TableDir
from rnixfs.providers import ProviderConfig, ProvidersFile
from rnixfs.types import Caller

MakeModel = Callable[[ProviderConfig], Model | None]
"""Makes the model of an entry; None for a driver that this version does not have."""

ORDER = ("claude", "cursor", "script")
"""Who is asked where nothing says otherwise: the first of these that is available."""


class Models:
    """Every model that was ever named, made once an entry.

    Args:
        make: makes a model.
        start: runs the jobs of their files.
    """

    def __init__(self, make: MakeModel, start: Start) -> None:
        self._make = make
        self._start = start
        self._nodes: dict[bytes, DeviceNode | None] = {}
        self._models: list[Model] = []

    def _node(self, entry: ProviderConfig) -> DeviceNode | None:
        key = msgspec.json.encode(entry)
        if key not in self._nodes:
            model = self._make(entry)
            self._nodes[key] = self._serve(key, entry, model) if model is not None else None
        return self._nodes[key]

    def _serve(self, key: bytes, entry: ProviderConfig, model: Model) -> DeviceNode:
        self._models.append(model)
        return DeviceNode(("llm", key), f"/dev/llm/{entry.name}", ModelDevice(model), self._start)

    def folder(self, shelf: Shelf) -> Dir:
        """`dev/llm` for a configuration; a changed file shows at the next look."""

        def find(name: str, _caller: Caller) -> Node | None:
            entry = _entries(shelf).named(name)
            return self._node(entry) if entry is not None else None

        def names(_caller: Caller) -> Iterable[str]:
            return [entry.name for entry in _entries(shelf).providers if self._node(entry) is not None]

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
        node = self._node(entry)
        if node is None:
            return f"this version has no driver {entry.driver!r}"
        device = node.device
        return device.model.unavailable() if isinstance(device, ModelDevice) else ""

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
        for model in self._models:
            await model.aclose()


def _entries(shelf: Shelf) -> ProvidersFile:
    return shelf.providers()[0]
