"""Where the tree is mounted, and whether anybody answers there."""

import contextlib
import enum
import errno
import os
import select
import time
from typing import NamedTuple

from rnixfs_cli import bounded
from rnixfs_cli.errors import GONE, CommandError, from_oserror

MOUNTINFO = "/proc/self/mountinfo"
PROBE_SECONDS = 10.0  # a loaded machine answers in milliseconds; beyond this the daemon hangs
MARK = "sys/version"  # the file that tells a tree from any other folder


class State(enum.Enum):
    """What is found at a mountpoint."""

    LIVE = "live"
    ABSENT = "absent"
    STALE = "stale"
    HUNG = "hung"


class Mount(NamedTuple):
    """One line of the host's table of mounts."""

    path: str
    kind: str
    source: str

    @property
    def ours(self) -> bool:
        """Whether it is one of this project's, by what it calls itself."""
        return self.kind.startswith("fuse") and "rnix" in self.kind + self.source


def choose(given: str | None) -> str:
    """The mountpoint's absolute path: the one given, else $RNIX_MOUNT, else ~/rnix.

    The last name is never looked up through a mount, since that could hang.

    Args:
        given: a folder, or None.
    """
    wanted = given or os.environ.get("RNIX_MOUNT") or "~/rnix"
    path = os.path.abspath(os.path.expanduser(wanted))
    return _resolve(path, 40)


def _resolve(path: str, links: int) -> str:
    parent, name = os.path.split(path)
    if not name:
        return path
    try:
        target = os.readlink(path)
    except OSError:
        return os.path.join(os.path.realpath(parent), name)
    if not links:
        raise CommandError("TOO_MANY_LINKS", "too many symbolic links", syscall="Mount", device=path)
    return _resolve(os.path.abspath(os.path.join(parent, target)), links - 1)


def mounts(table: str = MOUNTINFO) -> list[Mount]:
    """The mounts of this host, oldest first.

    Args:
        table: the file to read, in the format of proc_pid_mountinfo(5).
    """
    with open(table, encoding="utf-8", errors="surrogateescape") as lines:
        return [_mount(line) for line in lines]


def _mount(line: str) -> Mount:
    before, _, after = line.partition(" - ")
    kind, source = after.split()[:2]
    return Mount(_unescape(before.split()[4]), kind, _unescape(source))


def _unescape(text: str) -> str:
    """Undo the octal escapes of blanks, tabs, newlines and backslashes."""
    first, *rest = text.split("\\")
    return first + "".join(chr(int(one[:3], 8)) + one[3:] for one in rest)


def mounted(path: str) -> list[Mount]:
    """The mounts on exactly this folder; the last one is what is seen."""
    return [one for one in mounts() if one.path == path]


def leaves_when_idle(path: str) -> bool:
    """Whether the daemon of a mountpoint was started to leave when nobody uses it."""
    found = mounted(path)
    server = found[-1].source.rpartition(":")[2] if found and found[-1].ours else ""
    with contextlib.suppress(OSError), open(f"/proc/{server or 'none'}/cmdline", "rb") as words:
        return b"--idle-exit" in words.read().split(b"\0")
    return False


def probe(path: str, seconds: float = PROBE_SECONDS) -> State:
    """Say whether a tree answers at a path, without hanging on it.

    Args:
        path: the mountpoint.
        seconds: how long a living daemon may take to answer.

    Raises:
        CommandError: the path can be neither used nor mounted on.
    """
    mark = os.path.join(path, MARK)
    try:
        # A read, not a stat: attributes may come from the host's cache while the daemon hangs.
        bounded.read_file(mark, seconds, 1)
    except OSError as error:
        if error.errno in GONE:
            return State.STALE
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return State.ABSENT
        if error.errno == errno.ETIMEDOUT:
            return State.HUNG
        raise from_oserror(error, "Mount", path) from None
    return State.LIVE


def hold(path: str) -> int | None:
    """Keep a file of the tree open, so that an idle daemon stays; None where it has left already."""
    with contextlib.suppress(OSError):
        return os.open(os.path.join(path, MARK), os.O_RDONLY | os.O_CLOEXEC)
    return None


def check_free(path: str) -> None:
    """Refuse to mount where files would be hidden.

    Raises:
        CommandError: the path is no folder, or something is in it.
    """
    try:
        names = os.listdir(path)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno in GONE:
            return
        raise from_oserror(error, "Mount", path) from None
    if names:
        reason = "the folder is not empty and its files would be hidden; name another: --mount or RNIX_MOUNT"
        raise CommandError("NOT_EMPTY", reason, syscall="Mount", device=path)


def wait_unmounted(path: str, seconds: float) -> bool:
    """Wait until nothing is mounted on a folder.

    Args:
        path: the folder.
        seconds: how long to wait.

    Returns:
        Whether it is free.
    """
    deadline = time.monotonic() + seconds
    with open(MOUNTINFO, encoding="utf-8", errors="surrogateescape") as table:
        # The table reports its changes as an exceptional condition: proc_pid_mounts(5).
        poller = select.poll()
        poller.register(table, select.POLLPRI | select.POLLERR)
        while mounted(path):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            poller.poll(min(left, 0.2) * 1000)
            table.seek(0)
            table.read()
    return True
