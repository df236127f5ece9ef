"""`resources/` of a server: folders by the parts of URIs, and documents that are read when they are opened.

Looking at names, sizes and times asks the server nothing, and no more does an open that will not wait
(`O_NONBLOCK`), which is how programs open files that search whole trees.
"""

import dataclasses
import os
from collections.abc import Iterable

import msgspec
import trio

from rnixfs.device import json_line
from rnixfs.errors import SyscallError, not_found
from rnixfs.exchange import as_syscall_error
from rnixfs.mcp.content import document
from rnixfs.mcp.names import DOCUMENT, TEMPLATES, path_uri, uri_path
from rnixfs.mcp.remote import Call, Remote, Session
from rnixfs.mcp.tools import FleetingDocument
from rnixfs.node import Dir, File, Node, Pulse, refuse_writing
from rnixfs.types import Caller, Kind, Ready, Stat

Path = tuple[str, ...]


class Index:
    """The listed resources as a tree of names.

    Args:
        uris: what the server lists.
    """

    def __init__(self, uris: Iterable[str]) -> None:
        self.folders: dict[Path, dict[str, None]] = {(): {}}
        self.documents: dict[Path, str] = {}
        paths = {uri_path(uri): uri for uri in uris}
        for path in paths:
            for depth in range(len(path) - 1):
                self.folders.setdefault(path[:depth], {})[path[depth]] = None
                self.folders.setdefault(path[: depth + 1], {})
        for path, uri in paths.items():
            # Where a folder has the name, the document gets another.
            name = path[-1] + DOCUMENT if path in self.folders else path[-1]
            self.folders.setdefault(path[:-1], {})[name] = None
            self.documents[*path[:-1], name] = uri


class ResourceTree:
    """All resources of a server.

    Args:
        remote: the server.
    """

    def __init__(self, remote: Remote) -> None:
        self.remote = remote
        self._version = -1
        self._index = Index(())

    def index(self) -> Index:
        """What is listed now."""
        if self._version != self.remote.version:
            self._version = self.remote.version
            self._index = Index(self.remote.resources)
        return self._index

    def find(self, path: Path) -> Node | None:
        """The node of a path, also of a document that is not listed but of which there is a template."""
        index = self.index()
        if (uri := index.documents.get(path)) is not None:
            return ResourceNode(self.remote.key, uri, self.remote)
        if path in index.folders:
            return ResourceDir(self, path)
        for template, _ in self.remote.templates:
            if template.matches(path) and (uri := path_uri(path)) is not None:
                return ResourceNode(self.remote.key, uri, self.remote)
        if any(template.leads(path) for template, _ in self.remote.templates):
            return ResourceDir(self, path)
        return None


class ResourceDir(Dir):
    """A folder of resources.

    Args:
        tree: all resources of the server.
        path: the names that lead here from `resources/`.
    """

    def __init__(self, tree: ResourceTree, path: Path = ()) -> None:
        self._tree = tree
        self._path = path

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ResourceDir) and (other._tree, other._path) == (self._tree, self._path)

    def __hash__(self) -> int:
        return hash((ResourceDir, self._tree, self._path))

    def stat(self) -> Stat:
        return Stat(Kind.DIRECTORY, mode=0o555, links=2, name_ttl=0.0)

    def lookup(self, name: str, caller: Caller) -> Node:
        if not self._path and name == TEMPLATES and self._tree.remote.templates:
            return self._templates()
        node = self._tree.find((*self._path, name))
        if node is None:
            folder = "/".join((self._tree.remote.path, "resources", *self._path))
            raise not_found(f"{folder}/{name}")
        return node

    def entries(self, caller: Caller) -> Iterable[tuple[str, Node]]:
        found: list[tuple[str, Node]] = []
        if not self._path and self._tree.remote.templates:
            found.append((TEMPLATES, self._templates()))
        for name in self._tree.index().folders.get(self._path, ()):
            node = self._tree.find((*self._path, name))
            if node is not None:
                found.append((name, node))
        return found

    def _templates(self) -> Node:
        def render() -> bytes:
            shown = [definition for _, definition in self._tree.remote.templates]
            return msgspec.json.format(json_line(shown), indent=2)

        return FleetingDocument(("mcp", self._tree.remote.key, TEMPLATES), render)


@dataclasses.dataclass(frozen=True)
class ResourceNode(Node):
    """A document that a server has.

    Args:
        key: of the server.
        uri: of the document.
        remote: the server.
    """

    key: int
    uri: str
    remote: Remote = dataclasses.field(compare=False)

    def stat(self) -> Stat:
        size, changed = self.remote.size_of(self.uri)
        return Stat(Kind.FILE, size=size, mtime_ns=changed, name_ttl=0.0)

    def open(self, caller: Caller, flags: int) -> File:
        refuse_writing(flags, "a resource")
        if (away := self.remote.away) is not None:
            raise away
        return ResourceFile(self.remote, self.uri, asks=not flags & os.O_NONBLOCK)


class ResourceFile(File):
    """One open of a resource: what the server sent for it.

    Args:
        remote: the server.
        uri: of the document.
        asks: whether the server is asked; an open that will not wait gets nothing.
    """

    def __init__(self, remote: Remote, uri: str, *, asks: bool) -> None:
        self.pulse: Pulse = Pulse()
        self._remote = remote
        self._uri = uri
        self._data: bytes | None = None
        self._failure: SyscallError | None = None
        self._scope = trio.CancelScope()
        if asks:
            remote.start(self._fetch)

    async def _fetch(self) -> None:
        try:
            with self._scope:
                self._data = await self._remote.ask(f"resources/{self._uri}", self._ask)
                self._remote.was_read(self._uri, len(self._data))
        except Exception as error:
            self._failure = as_syscall_error(error, self._remote.path)
        finally:
            self.pulse.fire()

    async def _ask(self, session: Session, call: Call) -> bytes:
        session.watch(self._uri)
        return document(await session.read_resource(self._uri), self._uri)

    def read(self, size: int, offset: int) -> bytes:
        if self._failure is not None:
            # Each read gets an error of its own, since whoever takes it writes into it.
            raise SyscallError(self._failure.code, self._failure.reason)
        if self._data is None:
            raise trio.WouldBlock
        return self._data[offset : offset + size]

    def poll(self) -> Ready:
        return Ready.NONE if self._data is None and self._failure is None else Ready.READ

    def close(self) -> None:
        self._scope.cancel()
