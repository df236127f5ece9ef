"""Paths: the only place that takes one apart, one name at a time."""

import dataclasses

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, invalid
from rnixfs.node import Dir, Link, Node
from rnixfs.types import Caller


@dataclasses.dataclass(frozen=True, slots=True)
class _Spot:
    """A folder and how it was reached, so that `..` leads back and never above the root."""

    folder: Dir
    above: "_Spot | None"


def check_name(name: str) -> str:
    """Return the name, if it can be one.

    Raises:
        SyscallError: NAME_TOO_LONG past `limits.NAME_MAX` bytes, INVALID for empty ones, `/` and NUL.
    """
    if len(name.encode("utf-8", "surrogateescape")) > limits.NAME_MAX:
        raise SyscallError(Code.NAME_TOO_LONG, f"a name may have {limits.NAME_MAX} bytes: {name[:40]}…")
    if not name or "/" in name or "\0" in name:
        raise invalid(f"not a name: {name!r}")
    return name


def walk(root: Dir, path: str, caller: Caller, *, follow: bool = True) -> Node:
    """The node at an absolute path below `root`.

    Args:
        root: where `/` is; no path and no link leads above it.
        path: starts with `/`.
        caller: who walks.
        follow: whether a link at the end is followed; those on the way always are.

    Raises:
        SyscallError: INVALID, NOT_FOUND, NOT_DIRECTORY, PERMISSION, NAME_TOO_LONG or TOO_MANY_LINKS.
    """
    if not path.startswith("/"):
        raise invalid(f"a path starts with /, unlike {path!r}")
    if len(path.encode("utf-8", "surrogateescape")) > limits.PATH_MAX:
        raise SyscallError(Code.NAME_TOO_LONG, f"a path may have {limits.PATH_MAX} bytes")
    return _Walk(root, caller, follow).to(path)


class _Walk:
    def __init__(self, root: Dir, caller: Caller, follow: bool) -> None:
        self.root = _Spot(root, None)
        self.caller = caller
        self.follow = follow
        self.links = 0

    def to(self, path: str) -> Node:
        place = self.root
        node: Node = place.folder
        names = _names(path)
        must_be_folder = path.endswith(("/", "/."))
        while names:
            name = names.pop()
            if name == "..":
                place = place.above or self.root
                node = place.folder
                continue
            found = place.folder.lookup(check_name(name), self.caller)
            if isinstance(found, Link) and (names or self.follow or must_be_folder):
                place = self._through(found, names, place)
                node = place.folder
                continue
            if isinstance(found, Dir):
                place = _Spot(found, place)
            elif names or must_be_folder:
                raise SyscallError(Code.NOT_DIRECTORY, f"{name} is no folder")
            if not names:
                return found
            node = found
        return node

    def _through(self, link: Link, names: list[str], place: _Spot) -> _Spot:
        self.links += 1
        if self.links > limits.LINK_DEPTH_MAX:
            raise SyscallError(Code.TOO_MANY_LINKS, f"more than {limits.LINK_DEPTH_MAX} links on the way")
        target = link.target(self.caller)
        names.extend(_names(target))
        return self.root if target.startswith("/") else place


def _names(path: str) -> list[str]:
    """The names of a path, last first, without empty ones and dots."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]
