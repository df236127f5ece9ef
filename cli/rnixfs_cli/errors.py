"""Errors that end a command, in the form that the kernel gives its own."""

import errno
import os

# The readings of rnixfs.errors, repeated since this package imports nothing of the daemon; a test compares.
CODES: dict[int, str] = {
    errno.ENOENT: "NOT_FOUND",
    errno.EBADF: "BAD_FD",
    errno.EACCES: "PERMISSION",
    errno.EPERM: "NOT_PERMITTED",
    errno.EINVAL: "INVALID",
    errno.ETIMEDOUT: "TIMEOUT",
    errno.EISDIR: "IS_DIRECTORY",
    errno.ENOTDIR: "NOT_DIRECTORY",
    errno.EEXIST: "EXISTS",
    errno.ENOTEMPTY: "NOT_EMPTY",
    errno.ENAMETOOLONG: "NAME_TOO_LONG",
    errno.ELOOP: "TOO_MANY_LINKS",
    errno.EXDEV: "CROSS_DEVICE",
    errno.EROFS: "READ_ONLY",
    errno.EPIPE: "BROKEN_PIPE",
    errno.EAGAIN: "SERVICE_UNAVAILABLE",
    errno.ENOSPC: "RESOURCE_EXHAUSTED",
    errno.EDQUOT: "BUDGET_EXCEEDED",
    errno.EINTR: "INTERRUPTED",
    errno.ECANCELED: "CANCELED",
    errno.EOWNERDEAD: "UNKNOWN_OUTCOME",
    errno.EFBIG: "TOO_LARGE",
    errno.EIO: "DRIVER",
}
GONE = frozenset({errno.ENOTCONN, errno.ECONNABORTED, errno.ENODEV})
"""What an access to a mount answers when its daemon has ended."""


class CommandError(Exception):
    """A command that could not do its work.

    Args:
        code: what went wrong, in the kernel's words.
        reason: a sentence that says what, where and what would be right.
        syscall: the system call that failed, such as "Kill".
        device: the path in the tree, such as "/proc/9/ctl", or the host's.
        pid: the process concerned, 0 for none.
        status: exit status of the command.
    """

    def __init__(
        self, code: str, reason: str, *, syscall: str = "", device: str = "", pid: int = 0, status: int = 1
    ) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.syscall = syscall
        self.device = device
        self.pid = pid
        self.status = status

    def __str__(self) -> str:
        """The line that is shown: `[CODE] PID n Syscall: device (reason)`."""
        who = f"PID {self.pid} " if self.pid else ""
        where = f"{self.syscall}: {self.device} " if self.syscall else ""
        return f"[{self.code}] {who}{where}({self.reason})"

    def as_dict(self) -> dict[str, str]:
        """The object under "error", as devices answer it."""
        return {"code": self.code, "message": self.reason, "syscall": self.syscall, "device": self.device}


def from_oserror(
    error: OSError, syscall: str, device: str, *, pid: int = 0, missing: str = ""
) -> CommandError:
    """The failure of an access to the mount.

    Args:
        error: what the host kernel answered.
        syscall: what was being done, such as "Kill".
        device: the path in the tree.
        pid: the process concerned, 0 for none.
        missing: the reason to give when the name is not there.
    """
    number = error.errno or errno.EIO
    if number in GONE:
        reason = "the daemon has ended; the next rnix command starts it again"
        return CommandError("SERVICE_UNAVAILABLE", reason, syscall=syscall, device=device, pid=pid)
    reason = missing if missing and number == errno.ENOENT else os.strerror(number).lower()
    return CommandError(CODES.get(number, "DRIVER"), reason, syscall=syscall, device=device, pid=pid)
