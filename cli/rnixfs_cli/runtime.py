"""The folder for run-time files: the daemon's log and the lock of those who start it."""

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator

from rnixfs_cli.errors import CommandError

LOG_MAX = 1 << 20  # bytes after which the next start sets the log aside


def folder() -> str:
    """The run-time folder of this user, made with mode 0700 where it is missing.

    It is $XDG_RUNTIME_DIR/rnix, or /tmp/rnix-UID where that variable names no folder of ours.

    Raises:
        CommandError: the place is taken by somebody else.
    """
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    usable = base.startswith("/") and os.path.isdir(base) and os.access(base, os.W_OK | os.X_OK)
    path = os.path.join(base, "rnix") if usable else f"/tmp/rnix-{os.getuid()}"
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        _check_private(path)
    except OSError as error:
        reason = f"cannot make the run-time folder: {error.strerror}"
        raise CommandError("PERMISSION", reason, syscall="Mount", device=path) from None
    return path


def _check_private(path: str) -> None:
    """Refuse a folder that another user may have laid there, as is possible in /tmp."""
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        reason = "the run-time folder must be a folder of yours; remove it, or set XDG_RUNTIME_DIR"
        raise CommandError("PERMISSION", reason, syscall="Mount", device=path)
    if found.st_mode & 0o077:
        os.chmod(path, 0o700)


def log_path() -> str:
    """The daemon's log."""
    return os.path.join(folder(), "daemon.log")


def open_log() -> int:
    """Open the daemon's log for appending; one that has grown large is set aside first."""
    path = log_path()
    with contextlib.suppress(FileNotFoundError):
        if os.stat(path).st_size > LOG_MAX:
            os.replace(path, path + ".1")
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def log_tail(count: int = 5) -> str:
    """The last lines of the daemon's log, for an error message.

    Args:
        count: lines at most.
    """
    with contextlib.suppress(OSError), open(log_path(), encoding="utf-8", errors="replace") as log:
        return "".join(log.readlines()[-count:]).strip()
    return ""


@contextlib.contextmanager
def starting(mountpoint: str) -> Iterator[None]:
    """Hold the lock that lets one command at a time start the daemon of a mountpoint."""
    import hashlib

    name = hashlib.sha256(os.fsencode(mountpoint)).hexdigest()[:16]
    lock = os.open(os.path.join(folder(), f"{name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
