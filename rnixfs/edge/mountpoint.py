"""The folder that a mount covers: is it free, is something dead or alive on it, how to take it off.

A file system in user space whose server hangs makes every program that touches it hang, in a way that no
signal ends, and a server that touches its own mount from its loop waits for itself. So nothing here touches a
FUSE mount: what is mounted where comes from /proc/self/mountinfo, paths are resolved without looking into
such mounts, and the one question that only the mount can answer (does its server live?) is asked by a child
process that may be left behind.

Longer than most modules: one table of the host's mounts serves finding, clearing, taking off and checking.
"""

import ctypes
import dataclasses
import errno
import os
import re
import select
import shutil
import signal
import stat
import sys
from collections.abc import Iterable

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, from_oserror

SUBTYPE = "rnix"  # the file system's type is fuse.rnix in `mount` and `findmnt`
PROBE_SECONDS = 5.0  # how long a live server may take to answer before it is taken for hanging
TOOL_SECONDS = 10.0  # how long fusermount3 may take
STALE_MAX = 100  # dead mounts taken off one folder; they stack when a daemon is killed again and again

_SOURCE = re.compile(r"rnixfs:(\d+)")
_OCTAL = re.compile(r"\\([0-7]{3})")
_MNT_DETACH = 2  # umount2(2)
_UMOUNT_NOFOLLOW = 8  # umount2(2)
_CAP_SYS_ADMIN = 21  # capabilities(7)
_DEAD = (errno.ENOTCONN, errno.ECONNABORTED)
# statvfs and not stat: the attributes of a dead mount may still be in the kernel's cache.
_PROBE = "import os,sys\ntry: os.statvfs(sys.argv[1])\nexcept OSError as e: os._exit(e.errno)"


@dataclasses.dataclass(frozen=True, slots=True)
class Mount:
    """One line of /proc/self/mountinfo.

    Args:
        path: absolute path of the folder it covers.
        fstype: type of file system, such as "ext4" or "fuse.rnix".
        source: what is mounted; the name of the file system for FUSE.
    """

    path: str
    fstype: str
    source: str

    @property
    def fuse(self) -> bool:
        """Whether a program serves it."""
        return self.fstype in ("fuse", "fuseblk") or self.fstype.startswith(("fuse.", "fuseblk."))

    @property
    def server(self) -> int | None:
        """Process id of the daemon that serves it, for mounts made with `options`; None for others."""
        match = _SOURCE.fullmatch(self.source)
        return int(match[1]) if match and self.fuse else None


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """Something about the host that keeps mounts from working.

    Args:
        what: what is wrong, one sentence.
        remedy: what to do about it, one sentence.
    """

    what: str
    remedy: str


def options(pid: int) -> set[str]:
    """Mount options that make a mount recognizable.

    Args:
        pid: process id of the daemon.
    """
    return {f"fsname=rnixfs:{pid}", f"subtype={SUBTYPE}"}


# --- what is mounted where ---


def parse_mountinfo(text: str) -> list[Mount]:
    """The mounts of a mountinfo file (proc_pid_mountinfo(5)), in its order: the newest is last."""
    mounts = []
    for line in text.split("\n"):
        fields, _, rest = line.partition(" - ")
        words, what = fields.split(" "), rest.split(" ")
        if len(words) >= 5 and len(what) >= 2:
            mounts.append(Mount(_unescape(words[4]), _unescape(what[0]), _unescape(what[1])))
    return mounts


def _unescape(word: str) -> str:
    """Space, tab, newline and backslash are written as three octal digits."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), word)


def mounts() -> list[Mount]:
    """All mounts that this process can see."""
    with open("/proc/self/mountinfo", "rb") as file:
        return parse_mountinfo(os.fsdecode(file.read()))


def mounted_at(path: str) -> Mount | None:
    """The topmost mount on a folder, found without touching it; None where there is none.

    Args:
        path: the folder; a relative path starts from the working directory.
    """
    table = mounts()
    return _topmost(canonical(path, table), table)


def _topmost(path: str, table: Iterable[Mount]) -> Mount | None:
    return next((mount for mount in reversed(list(table)) if mount.path == path), None)


def canonical(path: str, table: Iterable[Mount] | None = None) -> str:
    """The absolute path without symbolic links, found without touching a FUSE mount.

    What lies below such a mount, or does not exist, is resolved by its words alone.

    Args:
        path: any path.
        table: the mounts, if they are known already.

    Raises:
        SyscallError: TOO_MANY_LINKS.
    """
    served = {mount.path for mount in (mounts() if table is None else table) if mount.fuse}
    todo = _parts(os.path.join(_working_directory(path), path))
    done = "/"
    links = 0
    while todo:
        name = todo.pop()
        if name == "..":
            done = os.path.dirname(done)
            continue
        here = os.path.join(done, name)
        target = None if _within_any(here, served) else _link(here)
        if target is None:
            done = here
            continue
        links += 1
        if links > limits.LINK_DEPTH_MAX:
            raise SyscallError(Code.TOO_MANY_LINKS, f"too many symbolic links in {path}")
        if target.startswith("/"):
            done = "/"
        todo += _parts(target)
    return done


def _working_directory(path: str) -> str:
    """The folder that a path starts from; the kernel tells it without touching it."""
    return "/" if path.startswith("/") else os.getcwd()


def _parts(path: str) -> list[str]:
    """The names of a path, last one first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def _within_any(path: str, folders: set[str]) -> bool:
    return any(_within(path, folder) for folder in folders)


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def inside(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies below it, symbolic links resolved, without touching a FUSE mount.

    A root or working directory inside the mount makes the daemon wait for itself; so does a mount inside a
    root that the daemon walks. Ask with the arguments either way round.
    """
    table = mounts()
    return _within(canonical(path, table), canonical(folder, table))


# --- before the mount ---


def prepare(path: str, *, probe_seconds: float = PROBE_SECONDS) -> None:
    """Make a folder ready to be mounted on: clear dead mounts, create it (0700) where it is missing.

    May wait for `probe_seconds` and for fusermount3: to be called before the loop runs, or in a thread.

    Args:
        path: the folder, `~` already expanded.
        probe_seconds: how long a live server found there may take to answer.

    Raises:
        SyscallError: EXISTS where a live file system is mounted, NOT_DIRECTORY, NOT_EMPTY, PERMISSION,
            or what kept the folder from being made or a dead mount from being taken off.
    """
    where = canonical(path)
    for _ in range(STALE_MAX):
        mount = mounted_at(where)
        if mount is None or not mount.fuse:
            break
        _refuse_live(mount, probe_seconds)
        unmount(where, lazy=True)
    else:
        raise SyscallError(Code.EXISTS, f"{where} carries over {STALE_MAX} dead mounts: unmount them by hand")
    _make_folder(where)


def _refuse_live(mount: Mount, seconds: float) -> None:
    """Return if the mount is dead."""
    number = _probe(mount.path, seconds)
    if number in _DEAD:
        return
    by = f" by pid {mount.server}" if mount.server else f" ({mount.fstype}, {mount.source})"
    state = ", which does not answer" if number is None else ""
    raise SyscallError(
        Code.EXISTS,
        f"{mount.path} is already mounted{by}{state}: unmount it first, or choose another folder",
    )


def _probe(path: str, seconds: float) -> int | None:
    """The errno that asking the mount gives, 0 for none; None where it does not answer in time."""
    argv = [sys.executable, "-I", "-S", "-c", _PROBE, path]
    return _exit_code(argv, seconds)


def _exit_code(argv: list[str], seconds: float) -> int | None:
    """Run a program without input and output; None where it does not end in time.

    Such a program is killed but not waited for: the kernel lets it go only when the mount it touched answers.
    """
    null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=null)
    descriptor = os.pidfd_open(pid)
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        if poller.poll(seconds * 1000):
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.kill(pid, signal.SIGKILL)
        return None
    finally:
        os.close(descriptor)


def _make_folder(where: str) -> None:
    try:
        os.makedirs(where, mode=0o700, exist_ok=True)
        names = os.listdir(where)
    except (FileExistsError, NotADirectoryError):
        raise SyscallError(
            Code.NOT_DIRECTORY, f"{where} is not a folder: choose a new or an empty folder to mount on"
        ) from None
    except OSError as error:
        raise from_oserror(error, f"cannot use {where} to mount on: {error.strerror}") from error
    if names:
        raise SyscallError(
            Code.NOT_EMPTY,
            f"{where} is not empty (it holds {names[0]!r}), which the mount would hide: choose an empty one",
        )
    if not os.access(where, os.W_OK):
        raise SyscallError(
            Code.PERMISSION, f"{where} belongs to somebody else: choose a folder of your own to mount on"
        )


# --- taking a mount off ---


def unmount(path: str, lazy: bool = False) -> None:
    """Take the topmost mount off a folder. Not to be called from the loop that serves it.

    Args:
        path: the folder.
        lazy: detach it at once, also while programs use it or its server is dead.

    Raises:
        SyscallError: SERVICE_UNAVAILABLE while programs use it, INVALID where nothing is mounted, or what the
            host answered.
    """
    where = canonical(path)
    if mounted_at(where) is None:
        raise SyscallError(Code.INVALID, f"nothing is mounted on {where}")
    if os.geteuid() == 0 and _unmount_as_root(where, lazy):
        return
    _unmount_as_user(where, lazy)


def _unmount_as_root(where: str, lazy: bool) -> bool:
    """False where root has no right to unmount (in a container without the capability)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.umount2(os.fsencode(where), _UMOUNT_NOFOLLOW | (_MNT_DETACH if lazy else 0)) == 0:
        return True
    number = ctypes.get_errno()
    if number == errno.EPERM:
        return False
    if number == errno.EBUSY:
        raise _busy(where)
    raise from_oserror(OSError(number, ""), f"cannot unmount {where}: {os.strerror(number)}")


def _unmount_as_user(where: str, lazy: bool) -> None:
    tool = shutil.which("fusermount3")
    if tool is None:
        problem = _without_fusermount()
        raise SyscallError(Code.NOT_FOUND, f"cannot unmount {where}: {problem.what} {problem.remedy}")
    code = _exit_code([tool, "-u", *(["-z"] if lazy else []), "--", where], TOOL_SECONDS)
    if code is None:
        raise SyscallError(Code.TIMEOUT, f"fusermount3 did not unmount {where} within {TOOL_SECONDS:g} s")
    if code and lazy:
        raise SyscallError(Code.PERMISSION, f"cannot unmount {where}: it was mounted by somebody else")
    if code:
        raise _busy(where)


def _busy(where: str) -> SyscallError:
    return SyscallError(
        Code.SERVICE_UNAVAILABLE,
        f"{where} is in use: end the programs that read from it or stand in it, or unmount it lazily",
    )


# --- the host ---


def check_host(
    device: str = "/dev/fuse", sysctl: str = "/proc/sys/fs/fuse", status: str = "/proc/self/status"
) -> list[Problem]:
    """What about this host keeps mounts from working; empty where all is well.

    Args:
        device: the device file of FUSE.
        sysctl: folder of FUSE's kernel settings.
        status: status file of this process, for its capabilities.
    """
    found = [_check_device(device), _check_right_to_mount(status)]
    found += [_check_timeout(f"{sysctl}/{name}_request_timeout") for name in ("default", "max")]
    return [problem for problem in found if problem is not None]


def _check_device(device: str) -> Problem | None:
    try:
        if not stat.S_ISCHR(os.stat(device).st_mode):
            return Problem(f"{device} is not a device.", "Remove it and run `modprobe fuse` as root.")
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return Problem(
            f"{device} is missing.",
            "Run `modprobe fuse` as root, or give the container `--device /dev/fuse --cap-add SYS_ADMIN`.",
        )
    except OSError as error:
        return Problem(
            f"{device} cannot be opened: {error.strerror}.",
            "Run `chmod 666 /dev/fuse` as root, or start the container with `--device /dev/fuse`.",
        )
    return None


def _check_right_to_mount(status: str) -> Problem | None:
    if os.geteuid() != 0:
        return None if shutil.which("fusermount3") else _without_fusermount()
    if _capabilities(status) >> _CAP_SYS_ADMIN & 1:
        return None
    return Problem(
        "root may not mount here: the capability CAP_SYS_ADMIN is missing.",
        "Start the container with `--cap-add SYS_ADMIN --device /dev/fuse`.",
    )


def _without_fusermount() -> Problem:
    return Problem(
        "fusermount3 is missing, without which only root can mount.",
        "Run `apt-get install fuse3` as root.",
    )


def _capabilities(status: str) -> int:
    with open(status, encoding="utf-8", errors="replace") as file:
        return next((int(line.split()[1], 16) for line in file if line.startswith("CapEff:")), 0)


def _check_timeout(path: str) -> Problem | None:
    """A kernel that limits requests ends the whole mount when one read waits longer (from Linux 6.14)."""
    try:
        with open(path, encoding="ascii") as file:
            seconds = file.read().strip()
    except OSError:
        return None
    if seconds in ("", "0"):
        return None
    return Problem(
        f"{path} is {seconds}: the kernel ends the mount when a read waits longer than that many seconds.",
        f"Run `echo 0 > {path}` as root.",
    )
