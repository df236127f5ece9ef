"""`tools/` and `prompts/` of a server: a device each, and what the server says of each tool."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from rnixfs.device import Body, Description, Device, Job, Sink, ToolInfo, json_line
from rnixfs.errors import not_found
from rnixfs.exchange import DeviceNode
from rnixfs.mcp.content import prompt_answer, prompt_arguments, prompt_schema, tool_answer
from rnixfs.mcp.names import DEFINITION, file_name
from rnixfs.mcp.places import PREFIX, ROOT
from rnixfs.mcp.remote import Call, Remote, Session
from rnixfs.node import Dir, Document, Node
from rnixfs.types import Caller, Kind, Stat

Check = Callable[[object], None]
"""Refuses arguments that do not fit a schema."""

CheckOf = Callable[[Mapping[str, Any], str], Check]
"""Makes the check of a schema for the tool at a path."""


class FleetingNode(DeviceNode):
    """A device whose name goes when the server says so."""

    def stat(self) -> Stat:
        return Stat(Kind.FILE, mode=self.mode, ttl=1.0, name_ttl=0.0)


class FleetingDocument(Document):
    """A document whose name goes when the server says so."""

    def stat(self) -> Stat:
        return msgspec.structs.replace(super().stat(), name_ttl=0.0)


class ToolDevice:
    """A tool: its arguments are the request.

    Args:
        remote: its server.
        name: as the server calls it.
        path: of its file.
        check_of: makes the check of its arguments.
    """

    def __init__(self, remote: Remote, name: str, path: str, check_of: CheckOf) -> None:
        self._remote = remote
        self._name = name
        self._path = path
        self._check_of = check_of
        self._checked: tuple[Mapping[str, Any], Check] | None = None

    def describe(self, caller: Caller) -> Description:
        away = self._remote.away
        definition = self._remote.definition("tools", self._name)
        schema = definition.get("inputSchema") or {"type": "object"}
        return Description(
            device=self._path,
            does=definition.get("description") or definition.get("title") or "The server does not say.",
            request=schema,
            example=_example(schema),
            available=away is None,
            reason=away.reason if away is not None else "",
            tools=[self._tool(definition, schema)],
        )

    def _tool(self, definition: Mapping[str, Any], schema: dict[str, Any]) -> ToolInfo:
        hints = definition.get("annotations") or {}
        reads = bool(hints.get("readOnlyHint"))
        return ToolInfo(
            name=f"{PREFIX}{self._remote.path.removeprefix(ROOT)}__{self._name}",
            description=definition.get("description") or definition.get("title") or self._name,
            input_schema=schema,
            read_only=reads,
            parallel=reads or bool(hints.get("idempotentHint")),
        )

    def accept(self, caller: Caller, body: Body) -> Job:
        if (away := self._remote.away) is not None:
            raise away
        definition = self._remote.definition("tools", self._name)
        self._check(definition)(body)
        assert isinstance(body, dict)
        arguments = body

        async def job(sink: Sink) -> None:
            async def call(session: Session, call: Call) -> dict[str, Any]:
                return tool_answer(await session.call_tool(self._name, arguments, call))

            sink.write(json_line(await self._remote.ask(f"tools/{self._name}", call)))

        return job

    def _check(self, definition: Mapping[str, Any]) -> Check:
        if self._checked is None or self._checked[0] is not definition:
            schema = definition.get("inputSchema") or {"type": "object"}
            self._checked = (definition, self._check_of(schema, self._path))
        return self._checked[1]


class PromptDevice:
    """A prompt: its arguments are the request, its messages the answer.

    Args:
        remote: its server.
        name: as the server calls it.
        path: of its file.
    """

    def __init__(self, remote: Remote, name: str, path: str) -> None:
        self._remote = remote
        self._name = name
        self._path = path

    def _declared(self) -> tuple[dict[str, Any], list[Mapping[str, Any]]]:
        definition = self._remote.definition("prompts", self._name)
        return definition, definition.get("arguments") or []

    def describe(self, caller: Caller) -> Description:
        away = self._remote.away
        definition, declared = self._declared()
        schema = prompt_schema(declared)
        return Description(
            device=self._path,
            does=definition.get("description") or definition.get("title") or "The server does not say.",
            request=schema,
            example=_example(schema),
            available=away is None,
            reason=away.reason if away is not None else "",
        )

    def accept(self, caller: Caller, body: Body) -> Job:
        if (away := self._remote.away) is not None:
            raise away
        arguments = prompt_arguments(self._declared()[1], body, self._path)

        async def job(sink: Sink) -> None:
            async def get(session: Session, call: Call) -> dict[str, Any]:
                return prompt_answer(await session.get_prompt(self._name, arguments))

            sink.write(json_line(await self._remote.ask(f"prompts/{self._name}", get)))

        return job


def _example(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A request of the fields that are needed, each as its schema shows it or by its type."""
    properties = schema.get("properties")
    required = schema.get("required")
    if not isinstance(properties, dict) or not isinstance(required, list):
        return {}
    return {str(name): _example_value(properties.get(name)) for name in required}


def _example_value(schema: object) -> Any:
    if not isinstance(schema, dict):
        return "…"
    for field in ("examples", "enum"):
        if isinstance(schema.get(field), list) and schema[field]:
            return schema[field][0]
    if "default" in schema:
        return schema["default"]
    of_type = {"integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}, "null": None}
    kind = schema.get("type")
    return of_type.get(kind, "…") if isinstance(kind, str) else "…"


class ListedDir(Dir):
    """A folder of devices, one for each name that the server lists.

    Args:
        remote: the server.
        kind: `tools` or `prompts`.
        make: makes the device of a name, for a path.
        defined: whether each has a document with its definition, too.
    """

    def __init__(
        self, remote: Remote, kind: str, make: Callable[[str, str], Device], *, defined: bool
    ) -> None:
        self._remote = remote
        self._kind = kind
        self._make = make
        self._defined = defined
        self._version = -1
        self._devices: dict[str, Node] = {}
        self._nodes: dict[str, Node] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ListedDir) and (other._remote, other._kind) == (self._remote, self._kind)

    def __hash__(self) -> int:
        return hash((ListedDir, self._remote, self._kind))

    def stat(self) -> Stat:
        changed = self._remote.changed_ns  # by which a program sees that it should look again
        return Stat(Kind.DIRECTORY, mode=0o555, links=2, mtime_ns=changed, name_ttl=0.0)

    def lookup(self, name: str, caller: Caller) -> Node:
        node = self._current().get(name)
        if node is None:
            raise not_found(f"{self._remote.path}/{self._kind}/{name}")
        return node

    def entries(self, caller: Caller) -> Iterable[tuple[str, Node]]:
        return list(self._current().items())

    def _current(self) -> dict[str, Node]:
        if self._version != self._remote.version:
            self._version = self._remote.version
            listed = self._remote.tools if self._kind == "tools" else self._remote.prompts
            # A name that stays keeps its node, and with it the answers that wait for their readers.
            self._devices = {name: self._devices.get(name) or self._device(name) for name in listed}
            self._nodes = {}
            for name in listed:
                self._nodes[file_name(name)] = self._devices[name]
                if self._defined:
                    self._nodes[file_name(name) + DEFINITION] = self._definition(name)
        return self._nodes

    def _device(self, name: str) -> Node:
        path = f"{self._remote.path}/{self._kind}/{file_name(name)}"
        key = ("mcp", self._remote.key, self._kind, name)
        return FleetingNode(key, path, self._make(name, path), self._remote.start)

    def _definition(self, name: str) -> Node:
        def render() -> bytes:
            definition = self._remote.definition(self._kind, name)
            return msgspec.json.format(json_line(definition), indent=2)

        return FleetingDocument(("mcp", self._remote.key, self._kind, name, DEFINITION), render)
