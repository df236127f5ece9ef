"""What a client may use: a list of paths, as agents have one, and whether anything may be changed.

Paths here are real ones: absolute below the top of the tree, with every link and `..` worked out before.
"""

import re
from collections.abc import Callable, Iterable

from rnixfs.errors import Code, SyscallError, denied
from rnixfs.proc import view
from rnixfs.proc.view import covers

SPAWN = "/proc/spawn"
FILES = "/dev/fs"  # of the host
GENERATIONS_MAX = 64  # steps from a process to the one that this server started

_PROCESS = re.compile(r"/proc/(\d+)(?:/|$)")
_CONTROL = re.compile(r"/proc/(?:\d+|history/[^/]+)/ctl")
_VIEW = re.compile(r"(/proc/(?:\d+|history/[^/]+)/\.live/root)(/.*)?")
_RECEIVED = re.compile(r"/proc/(?:\d+|history/[^/]+)/\.live/recv")


class Rights:
    """What may be used.

    Args:
        allowed: paths with all that is below them; None for everything.
        read_only: whether nothing may be changed, started or ended.
        fs_write: whether files of the host may be written.
        parent_of: the pid of a process's parent; "" where there is none.
    """

    def __init__(
        self,
        allowed: Iterable[str] | None = None,
        *,
        read_only: bool = False,
        fs_write: bool = False,
        parent_of: Callable[[str], str] = lambda _pid: "",
    ) -> None:
        self.restricted = allowed is not None
        self.read_only = read_only
        self.parent_of = parent_of
        self._fs_write = fs_write
        self._allowed = view.Rights(allowed)
        self._started: set[str] = set()

    def adopt(self, pid: int) -> None:
        """Count a process, and what it starts, as the client's own."""
        self._started.add(str(pid))

    def paths(self) -> list[str] | None:
        """The paths of the list; None where everything may be used."""
        return self._allowed.listing()["granted"] if self.restricted else None

    def sees(self, path: str) -> bool:
        """Whether what is at a path may be used."""
        if not self.restricted:
            return True
        # What lies in the view of a process is reached as that process: both must be allowed.
        inner = _VIEW.fullmatch(path)
        if inner is not None:
            return self._sees(inner[1]) and (inner[2] is None or self.sees(inner[2]))
        return self._sees(path)

    def _sees(self, path: str) -> bool:
        path = _plain(path)
        return any(covers(free, path) for free in view.FREE) or self._allowed.permits(path) or self.owns(path)

    def passes(self, path: str) -> bool:
        """Whether a path is on the way to something that may be used."""
        inner = _VIEW.fullmatch(path) if self.restricted else None
        if inner is not None and inner[2] is not None:
            return self._sees(inner[1]) and self.passes(inner[2])
        path = _plain(path)
        return path in ("/", "/proc", "/sys") or self._allowed.leads_to(path) or self.sees(path)

    def owns(self, path: str) -> bool:
        """Whether a path belongs to a process that this client started, or that such a one did."""
        found = _PROCESS.match(path)
        if found is None or not self._started:
            return False
        pid = found[1]
        for _ in range(GENERATIONS_MAX):
            if pid in self._started:
                return True
            pid = self.parent_of(pid)
            if pid in ("", "0"):
                return False
        return False

    # --- checks ---

    def check_pass(self, path: str) -> None:
        """Raise PERMISSION for a path that is not even on the way to anything."""
        if not self.passes(path):
            raise self._refusal(path)

    def check_read(self, path: str) -> None:
        """Raise PERMISSION for what may not be read."""
        if not self.sees(path):
            raise self._refusal(path)
        if self.read_only and _RECEIVED.search(path):
            raise _unchanging(f"reading {path} takes the messages")

    def check_write(self, path: str, data: bytes) -> None:
        """Raise for what may not be written.

        Args:
            path: the file.
            data: what would be written.

        Raises:
            SyscallError: PERMISSION or READ_ONLY.
        """
        if not self.sees(path):
            raise self._refusal(path)
        if self.read_only:
            raise _unchanging(f"{path} cannot be written")
        inner = _innermost(path)
        if covers(FILES, inner) and not self._fs_write:
            right = "start it with --fs-write, or change the file with /dev/edit"
            raise SyscallError(Code.READ_ONLY, f"this server does not write files of the host; {right}")
        if self.restricted:
            self._check_power(inner, data)

    def check_act(self, what: str) -> None:
        """Raise PERMISSION where nothing may be changed."""
        if self.read_only:
            raise _unchanging(what)

    def _check_power(self, path: str, data: bytes) -> None:
        """Refuse what would let others do what the client may not."""
        if path == SPAWN:
            raise denied(
                "this server has a list of paths; start processes with the tool spawn, which passes it on"
            )
        if not _CONTROL.fullmatch(path):
            return
        for line in data.decode("utf-8", "replace").splitlines():
            word, *granted = line.split(None, 1) or [""]
            path = granted[0].strip().rstrip("/") if granted else ""
            if word.lower() == "grant" and not self._allowed.permits(path or "/"):
                raise denied(f"{path} cannot be granted: it is not on the list of this server")

    def within(self, asked: list[str] | None) -> list[str] | None:
        """The paths that a process may be started with.

        Args:
            asked: those that the client asks for; None for all that there are.

        Raises:
            SyscallError: PERMISSION: one of them is not the client's.
        """
        if not self.restricted:
            return asked
        for path in asked or ():
            if not self._allowed.permits(path.rstrip("/") or "/"):
                raise self._refusal(path)
        return self.paths() if asked is None else asked

    def _refusal(self, path: str) -> SyscallError:
        allowed = self.paths() or []
        return denied(f"this server may not use {path}; it may use {', '.join(allowed) or 'what it starts'}")


def _plain(path: str) -> str:
    """The path under which a stream is known: what is read is `.live/X`, what is allowed is `X`."""
    return path if covers(FILES, path) else f"{path}/".replace("/.live/", "/").rstrip("/") or "/"


def _innermost(path: str) -> str:
    """The path in the view through which a path leads."""
    while (inner := _VIEW.fullmatch(path)) is not None:
        path = inner[2] or "/"
    return path


def _unchanging(what: str) -> SyscallError:
    return denied(f"{what}: this server was started with --read-only")
