"""What a process may use, as a tree: the view is the permission.

Every system call of a process walks from its own root, which shows the main tree through its rights. The
same root is `proc/<pid>/root` in the mount: whoever is given that folder has just these rights, since opens
through it happen on behalf of the process, whoever makes them.
"""

import dataclasses
from collections.abc import Callable, Iterable

import msgspec

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, denied
from rnixfs.mcp.places import ROOT, private_part, server_of
from rnixfs.node import Change, Dir, File, Link, Node
from rnixfs.types import Caller, Stat

FREE = ("/README.md", "/lib", "/proc/self", "/sys/version", "/sys/limits", "/sys/uptime")
"""Paths that every process sees: they say what there is and change nothing."""


def covers(prefix: str, path: str) -> bool:
    """Whether `path` is `prefix` or lies below it."""
    return path == prefix or path.startswith(prefix.rstrip("/") + "/")


def upward(path: str) -> Iterable[str]:
    """A path and the folders above it, up to `/`."""
    yield path
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        yield path


class Rights:
    """Paths that a process may use, always within its parent's.

    Of the granted and denied paths that cover a path, the nearest to it decides, and a denied one before a
    granted one; so each grant and each revocation changes just what it names and what is below. A server
    that was mounted for one process is never among what is below: it must be named.

    Args:
        allowed: paths with all that is below them; None for everything.
        parent: the rights of the parent, which bound these for as long as the process lives.
        own: paths of servers that are mounted for this process alone; it may use such a one for as long as
            its parent may use that server, by whichever mount.
    """

    def __init__(
        self, allowed: Iterable[str] | None, parent: "Rights | None" = None, own: Iterable[str] = ()
    ) -> None:
        self.own = frozenset(own)
        self.allowed = {"/"} if allowed is None else {one.rstrip("/") or "/" for one in allowed}
        self.allowed |= self.own
        self.denied: set[str] = set()
        self.parent = parent

    def permits(self, path: str) -> bool:
        """Whether it may use `path`."""
        if not self._allows(path):
            return False
        if self.parent is None:
            return True
        private = private_part(path)
        return self.parent.has_server(server_of(path)) if private in self.own else self.parent.permits(path)

    def has_server(self, name: str) -> bool:
        """Whether it may use the MCP server of a name: at its usual path, or as its own."""
        mine = any(self.permits(one) for one in self.own if server_of(one) == name)
        return mine or self.permits(ROOT + name)

    def _allows(self, path: str) -> bool:
        private = private_part(path)
        for one in upward(path):
            if one in self.denied:
                return False
            if one in self.allowed:
                return True
            if one == private:
                return False
        return False

    def leads_to(self, path: str) -> bool:
        """Whether something it may use is `path` or lies below."""
        # If anything there may be used, so may `path` or a path below that somebody of the line was granted.
        return self.permits(path) or any(self.permits(one) for one in self._granted_below(path))

    def _granted_below(self, path: str) -> Iterable[str]:
        rights: Rights | None = self
        while rights is not None:
            yield from (one for one in rights.allowed if covers(path, one))
            rights = rights.parent

    def check_grant(self, path: str) -> None:
        """Raise what `grant` would raise."""
        if self.parent is not None and not self.parent.permits(path):
            raise denied(f"{path} cannot be granted: the parent may not use it")
        if sum(not covers(path, one) for one in self.allowed) >= limits.CAPS_MAX:
            raise _too_many("granted")

    def grant(self, path: str) -> None:
        """Allow a path and all that is below it, also what of that was revoked before.

        Raises:
            SyscallError: PERMISSION when the parent may not use it; RESOURCE_EXHAUSTED past
                `limits.CAPS_MAX`.
        """
        self.check_grant(path)
        self.allow(path)

    def allow(self, path: str) -> None:
        """What `grant` does, unchecked: a grant of the log was right when it was made."""
        self._forget(path)
        self.allowed |= {path, *(one for one in self.own if covers(path, one))}

    def check_revoke(self, path: str) -> None:
        """Raise what `revoke` would raise."""
        if sum(not covers(path, one) for one in self.denied) >= limits.CAPS_MAX:
            raise _too_many("denied")

    def revoke(self, path: str) -> None:
        """Take back a path and all that is below it; files that are open stay open.

        Raises:
            SyscallError: RESOURCE_EXHAUSTED past `limits.CAPS_MAX`.
        """
        self.check_revoke(path)
        self.deny(path)

    def deny(self, path: str) -> None:
        """What `revoke` does, unchecked."""
        self._forget(path)
        self.denied.add(path)

    def _forget(self, path: str) -> None:
        self.allowed = {one for one in self.allowed if not covers(path, one)}
        self.denied = {one for one in self.denied if not covers(path, one)}

    def listing(self) -> dict[str, list[str] | None]:
        """What `caps` shows: granted paths (null for everything) and denied ones."""
        return {
            "granted": None if self.allowed - self.own == {"/"} else sorted(self.allowed),
            "denied": sorted(self.denied),
        }


def _too_many(what: str) -> SyscallError:
    return SyscallError(
        Code.RESOURCE_EXHAUSTED,
        f"a process may have {limits.CAPS_MAX} {what} paths; name a folder that holds some of them",
    )


class View:
    """The tree as one process sees it.

    Args:
        pid: the process; opens through this view happen on its behalf.
        root: the main tree.
        rights: what it may use.
        own: whether a path belongs to the process itself, such as its folder in proc/.
        binds: nodes that stand at a path in place of the main tree's, such as its own `/dev/fs`.
    """

    def __init__(
        self, pid: int, root: Dir, rights: Rights, own: Callable[[str], bool], binds: dict[str, Node]
    ) -> None:
        self.pid = pid
        self.rights = rights
        self.own = own
        self.binds = binds
        self.root = SeenDir(self, "/", root)

    def sees(self, path: str) -> bool:
        """Whether the process may use `path`."""
        return any(covers(free, path) for free in FREE) or self.own(path) or self.rights.permits(path)

    def passes(self, path: str) -> bool:
        """Whether `path` is on the way to something it may use."""
        on_the_way = path in ("/proc", "/sys") or self.own(f"{path}/mailbox") or self.rights.leads_to(path)
        return on_the_way or self.sees(path)

    def show(self, path: str, node: Node) -> Node:
        """A node as seen through this view."""
        if isinstance(node, Dir):
            return SeenDir(self, path, node)
        return SeenLink.of(self, node) if isinstance(node, Link) else SeenNode(self, path, node)

    def acting(self, caller: Caller) -> Caller:
        """The caller, as one who acts for the process."""
        return msgspec.structs.replace(caller, agent=self.pid) if caller.agent != self.pid else caller

    def check(self, path: str) -> None:
        """Raise PERMISSION for a path that the process may not use."""
        if not self.sees(path):
            raise self.refusal(path)

    def refusal(self, path: str) -> SyscallError:
        """The error for a path that the process may not use."""
        allowed = self.rights.listing()["granted"] or []
        may = f"it may use {', '.join(allowed)}" if allowed else "ask its owner to grant it"
        return denied(f"process {self.pid} may not use {path}; {may}")


@dataclasses.dataclass(frozen=True)
class SeenNode(Node):
    """A file seen through a view."""

    view: View
    path: str = dataclasses.field(compare=False)
    inner: Node

    def stat(self) -> Stat:
        return self.inner.stat()

    def open(self, caller: Caller, flags: int) -> File:
        self.view.check(self.path)
        return self.inner.open(self.acting(caller), flags)

    def acting(self, caller: Caller) -> Caller:
        return self.view.acting(caller)

    def setattr(self, caller: Caller, change: Change) -> None:
        self.view.check(self.path)
        self.inner.setattr(self.view.acting(caller), change)


@dataclasses.dataclass(frozen=True)
class SeenLink(Link):
    """A link seen through a view: where it leads may depend on the process."""

    inner: Link = dataclasses.field(kw_only=True)

    @classmethod
    def of(cls, view: View, link: Link) -> "SeenLink":
        """Wrap a link."""
        return cls(("seen", view, link), lambda caller: link.target(view.acting(caller)), inner=link)

    def stat(self) -> Stat:
        return self.inner.stat()


@dataclasses.dataclass(frozen=True)
class SeenDir(Dir):
    """A folder seen through a view."""

    view: View
    path: str
    inner: Dir

    def stat(self) -> Stat:
        return self.inner.stat()

    def _at(self, name: str) -> str:
        return f"{self.path.rstrip('/')}/{name}"

    def lookup(self, name: str, caller: Caller) -> Node:
        path = self._at(name)
        bound = self.view.binds.get(path)
        node = bound if bound is not None else self.inner.lookup(name, self.view.acting(caller))
        if self.view.sees(path) or (isinstance(node, Dir) and self.view.passes(path)):
            return self.view.show(path, node)
        raise self.view.refusal(path)

    def entries(self, caller: Caller) -> Iterable[tuple[str, Node]]:
        for name, node in self.inner.entries(self.view.acting(caller)):
            path = self._at(name)
            if self.view.sees(path) or (isinstance(node, Dir) and self.view.passes(path)):
                yield name, self.view.show(path, self.view.binds.get(path, node))

    def _change(self, name: str) -> Dir:
        self.view.check(self._at(name))
        return self.inner

    def setattr(self, caller: Caller, change: Change) -> None:
        self.view.check(self.path)
        self.inner.setattr(self.view.acting(caller), change)

    def create(self, name: str, mode: int, caller: Caller, flags: int) -> tuple[Node, File]:
        node, file = self._change(name).create(name, mode, self.view.acting(caller), flags)
        return self.view.show(self._at(name), node), file

    def mkdir(self, name: str, mode: int, caller: Caller) -> Node:
        node = self._change(name).mkdir(name, mode, self.view.acting(caller))
        return self.view.show(self._at(name), node)

    def unlink(self, name: str, caller: Caller) -> None:
        self._change(name).unlink(name, self.view.acting(caller))

    def rmdir(self, name: str, caller: Caller) -> None:
        self._change(name).rmdir(name, self.view.acting(caller))

    def rename(self, name: str, target: Dir, new: str, caller: Caller, flags: int) -> None:
        if isinstance(target, SeenDir):
            target = target._change(new)
        self._change(name).rename(name, target, new, self.view.acting(caller), flags)

    def symlink(self, name: str, to: str, caller: Caller) -> Node:
        node = self._change(name).symlink(name, to, self.view.acting(caller))
        return self.view.show(self._at(name), node)

    def link(self, name: str, node: Node, caller: Caller) -> Node:
        inner = node.inner if isinstance(node, SeenNode) else node
        return self.view.show(self._at(name), self._change(name).link(name, inner, self.view.acting(caller)))
