"""Host paths that cannot leave their folders.

Two rules hold for everything here. First, a path that is used is canonical: whoever follows a symbolic link
does so by reading its text (`Roots.resolve`), never by letting the kernel follow it, so a folder that is
swapped for a link under our hands is refused instead of followed. Second, our own mountpoint is recognised by
its name before any call that could reach it: touching it from the daemon's loop would wait for itself.

Each access opens its root anew, beneath which `openat2` walks. Held descriptors would save one call of a
microsecond, and cost revalidation, a descriptor per root and process, and unmounts that fail as busy.
"""

import contextlib
import ctypes
import dataclasses
import errno
import functools
import os
import stat
from collections.abc import Callable, Iterable, Iterator

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, denied, from_oserror, invalid, not_found, printable

Opener = Callable[[int, str], int]
"""Opens a folder, as a place only (O_PATH), by its canonical path below a descriptor."""

_PLACE = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_SYS_OPENAT2 = 437  # one number on every architecture that numbers system calls like asm-generic
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08  # linux/openat2.h


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_HOW = _How(_PLACE, 0, _BENEATH | _NO_MAGICLINKS | _NO_SYMLINKS)
_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_How), ctypes.c_size_t)
_syscall.restype = ctypes.c_long


def by_openat2(anchor: int, rel: str) -> int:
    """Open a folder beneath another one in a single step of the kernel.

    Raises:
        OSError: ENOTDIR where a part of the path is a link or no folder, EXDEV where it leads out, ENOSYS on
            kernels before 5.6.
    """
    path = os.fsencode(rel)
    while True:
        found: int = _syscall(_SYS_OPENAT2, anchor, path, ctypes.byref(_HOW), ctypes.sizeof(_HOW))
        if found >= 0:
            return found
        number = ctypes.get_errno()
        if number != errno.EINTR:
            # The other opener can only say ENOTDIR for a link in the way.
            number = errno.ENOTDIR if number == errno.ELOOP else number
            raise OSError(number, os.strerror(number), rel)


def by_steps(anchor: int, rel: str) -> int:
    """Open a folder beneath another one name by name, for kernels and sandboxes without openat2."""
    names = rel.split("/")
    if ".." in names:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), rel)
    here = anchor
    try:
        for name in names:
            below = os.open(name, _PLACE | os.O_NOFOLLOW, dir_fd=here)
            if here != anchor:
                os.close(here)
            here = below
    except BaseException:
        if here != anchor:
            os.close(here)
        raise
    return here


@functools.cache
def best_opener() -> Opener:
    """`by_openat2` where the kernel has it and no sandbox forbids it, else `by_steps`."""
    anchor = os.open("/", _PLACE)
    try:
        os.close(by_openat2(anchor, "."))
    except OSError:
        return by_steps
    finally:
        os.close(anchor)
    return by_openat2


@contextlib.contextmanager
def refusing(what: str) -> Iterator[None]:
    """Turn failures of the host kernel into SyscallErrors that name `what`."""
    try:
        yield
    except SyscallError:
        raise
    except OSError as error:
        raise from_oserror(error, f"{os.strerror(error.errno or errno.EIO)}: {printable(what)}") from None
    except ValueError:
        raise invalid(f"a path holds no NUL: {what!r}") from None


def join(folder: str, name: str) -> str:
    """A name below a folder given relative to its root, where the root itself is ""."""
    return f"{folder}/{name}" if folder else name


def below(path: str, folder: str) -> bool:
    """Whether a canonical path is a folder or lies in it; no folder holds anything if it is ""."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/") if folder else False


@dataclasses.dataclass(frozen=True)
class Root:
    """A folder of the host whose content may be reached.

    Args:
        path: canonical path: absolute, without links.
        shown: how it was spelled, which may lead through links.
        opener: how folders beneath it are opened.
    """

    path: str
    shown: str
    opener: Opener = dataclasses.field(compare=False, default_factory=best_opener)

    @contextlib.contextmanager
    def folder(self, rel: str) -> Iterator[int]:
        """A descriptor (O_PATH) of a folder beneath the root, closed afterwards.

        Raises:
            OSError: as the kernel says; ENOTDIR for a link in the way.
        """
        place = os.open(self.path, _PLACE | os.O_NOFOLLOW)
        try:
            if rel:
                anchor, place = place, -1
                try:
                    place = self.opener(anchor, rel)
                finally:
                    os.close(anchor)
            yield place
        finally:
            if place >= 0:
                os.close(place)

    def lstat(self, rel: str) -> os.stat_result:
        """What is there; a link is not followed."""
        if not rel:
            with self.folder("") as place:
                return os.fstat(place)
        parent, _, name = rel.rpartition("/")
        with self.folder(parent) as place:
            return os.stat(name, dir_fd=place, follow_symlinks=False)

    def readlink(self, rel: str) -> str:
        """The text of a symbolic link; OSError EINVAL for anything else."""
        parent, _, name = rel.rpartition("/")
        with self.folder(parent) as place:
            return os.readlink(name, dir_fd=place)

    def host(self, rel: str) -> str:
        """The absolute host path of what lies at `rel`."""
        return f"{self.path.rstrip('/')}/{rel}" if rel else self.path


@dataclasses.dataclass(frozen=True)
class Spot:
    """A canonical place beneath a root; there may be nothing at it yet."""

    root: Root
    rel: str

    def __str__(self) -> str:
        return printable(self.path)

    @property
    def path(self) -> str:
        """Its absolute host path."""
        return self.root.host(self.rel)

    @property
    def shown(self) -> str:
        """The same, spelled as the root was."""
        return f"{self.root.shown.rstrip('/')}/{self.rel}" if self.rel else self.root.shown

    @property
    def name(self) -> str:
        """Its last name; "" for a root."""
        return self.rel.rpartition("/")[2]

    @contextlib.contextmanager
    def parent(self) -> Iterator[int]:
        """A descriptor of the folder it lies in; PERMISSION for a root, which nobody may replace."""
        if not self.rel:
            raise denied(f"{self} itself cannot be changed")
        with self.root.folder(self.rel.rpartition("/")[0]) as place:
            yield place


class Roots:
    """The folders that a caller may reach, and the one that nobody may touch.

    Args:
        paths: absolute folders.
        avoid: the canonical path of our own mountpoint, "" while there is none.
        opener: how folders are opened; the best way if None.
    """

    def __init__(
        self, paths: Iterable[str], avoid: Callable[[], str] = lambda: "", opener: Opener | None = None
    ) -> None:
        found: list[Root] = []
        self.avoid = avoid
        for path in sorted({os.path.normpath("/" + path.lstrip("/")) for path in paths}, key=len):
            real = os.path.realpath(path)
            for shown in dict.fromkeys((real, path)):
                if not any(below(shown, other.shown) for other in found):
                    found.append(Root(real, shown, opener or best_opener()))
        self.all = tuple(found)

    def __str__(self) -> str:
        return printable(", ".join(root.path for root in self.all)) or "none"

    def forbids(self, path: str) -> bool:
        """Whether a canonical path is our own mountpoint or lies in it. Asks nobody but the name."""
        return below(path, self.avoid())

    def holds_mount(self, path: str) -> bool:
        """Whether our own mountpoint is this canonical path or lies somewhere below it."""
        mountpoint = self.avoid()
        return bool(mountpoint) and below(mountpoint, path)

    def mount_in(self, folder: str) -> str:
        """The name of our own mountpoint if it lies directly in this canonical folder, else ""."""
        parent, _, name = self.avoid().rpartition("/")
        return name if (parent or "/") == folder else ""

    def locate(self, path: str) -> Spot | None:
        """The spot of a path without dots, None outside of all roots. Follows nothing, asks nobody."""
        for root in self.all:
            if below(path, root.shown):
                return Spot(root, path[len(root.shown) :].strip("/"))
        return None

    def leads_to_root(self, path: str) -> bool:
        """Whether a root lies below this path, itself outside of all roots."""
        return any(root.shown != path and below(root.shown, path) for root in self.all)

    def resolve(self, path: str, cwd: str = "/") -> Spot:
        """The canonical spot of a path, links followed as far as they stay inside.

        Args:
            path: absolute, or relative to `cwd`. Its last names need not exist.
            cwd: absolute folder.

        Raises:
            SyscallError: PERMISSION outside the roots, before anything there is looked at, and in our own
                mount; TOO_MANY_LINKS; INVALID for no path at all; what the host kernel says.
        """
        if not path or "\0" in path:
            raise invalid(f"a path has at least one character and no NUL: {path!r}")
        with refusing(path):
            return _Resolution(self, path).run(os.path.join("/", cwd, path))


class _Resolution:
    """One run of `Roots.resolve`: names still to do, last first, and the canonical ones done."""

    def __init__(self, roots: Roots, asked: str) -> None:
        self.roots = roots
        self.asked = printable(asked)
        self.links = 0
        self.done: list[str] = []
        self.todo: list[str] = []

    def run(self, path: str) -> Spot:
        self.push(path)
        while self.todo:
            name = self.todo.pop()
            if name == "..":
                del self.done[-1:]
                continue
            self.done.append(name)
            if not self.step():
                break
        spot = self.roots.locate(self.here())
        if spot is None:
            raise self.outside()
        return Spot(spot.root, join(spot.rel, "/".join(reversed(self.todo))).strip("/"))

    def push(self, path: str) -> None:
        self.todo.extend(name for name in reversed(path.split("/")) if name not in ("", "."))

    def here(self) -> str:
        return "/" + "/".join(self.done)

    def step(self) -> bool:
        """Look at the name just added; False if nothing is there, so that the rest is taken as it is."""
        spot = self.roots.locate(self.here())
        if spot is None:
            if self.roots.leads_to_root(self.here()):
                return True
            raise self.outside()
        if self.roots.forbids(spot.path):
            raise denied(f"{self.asked} leads into the mount itself, whose files are no files of the host")
        if not spot.rel:
            self.done = [name for name in spot.root.path.split("/") if name]
            return True
        try:
            if stat.S_ISLNK(spot.root.lstat(spot.rel).st_mode):
                self.follow(spot)
        except FileNotFoundError:
            if ".." in self.todo:
                raise not_found(self.asked) from None
            return False
        return True

    def follow(self, spot: Spot) -> None:
        self.links += 1
        if self.links > limits.LINK_DEPTH_MAX:
            raise SyscallError(
                Code.TOO_MANY_LINKS, f"more than {limits.LINK_DEPTH_MAX} links on the way: {self.asked}"
            )
        text = spot.root.readlink(spot.rel)
        self.done = [] if text.startswith("/") else self.done[:-1]
        self.push(text)

    def outside(self) -> SyscallError:
        return denied(f"{self.asked} is outside of the folders that may be reached: {self.roots}")
