"""Error codes of the system calls and the errno that each becomes at the mount.

A code is what agents, traces and the command line show; an errno is all that a program outside sees, so
every code has one. The two-way table is checked by a test.
"""

import enum
import errno
import os


class Code(enum.StrEnum):
    """What went wrong with a system call, in words that stay the same across releases."""

    NOT_FOUND = "NOT_FOUND"
    BAD_FD = "BAD_FD"
    PERMISSION = "PERMISSION"
    NOT_PERMITTED = "NOT_PERMITTED"
    INVALID = "INVALID"
    TIMEOUT = "TIMEOUT"
    IS_DIRECTORY = "IS_DIRECTORY"
    NOT_DIRECTORY = "NOT_DIRECTORY"
    EXISTS = "EXISTS"
    NOT_EMPTY = "NOT_EMPTY"
    NAME_TOO_LONG = "NAME_TOO_LONG"
    TOO_MANY_LINKS = "TOO_MANY_LINKS"
    CROSS_DEVICE = "CROSS_DEVICE"
    READ_ONLY = "READ_ONLY"
    BROKEN_PIPE = "BROKEN_PIPE"
    SERVICE_UNAVAILABLE = "SERVICE_UNAVAILABLE"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
    INTERRUPTED = "INTERRUPTED"
    CANCELED = "CANCELED"
    UNKNOWN_OUTCOME = "UNKNOWN_OUTCOME"
    TOO_LARGE = "TOO_LARGE"
    DRIVER = "DRIVER"
    INTERNAL = "INTERNAL"


ERRNO: dict[Code, int] = {
    Code.NOT_FOUND: errno.ENOENT,
    Code.BAD_FD: errno.EBADF,
    Code.PERMISSION: errno.EACCES,
    Code.NOT_PERMITTED: errno.EPERM,
    Code.INVALID: errno.EINVAL,
    Code.TIMEOUT: errno.ETIMEDOUT,
    Code.IS_DIRECTORY: errno.EISDIR,
    Code.NOT_DIRECTORY: errno.ENOTDIR,
    Code.EXISTS: errno.EEXIST,
    Code.NOT_EMPTY: errno.ENOTEMPTY,
    Code.NAME_TOO_LONG: errno.ENAMETOOLONG,
    Code.TOO_MANY_LINKS: errno.ELOOP,
    Code.CROSS_DEVICE: errno.EXDEV,
    Code.READ_ONLY: errno.EROFS,
    Code.BROKEN_PIPE: errno.EPIPE,
    Code.SERVICE_UNAVAILABLE: errno.EAGAIN,
    Code.RESOURCE_EXHAUSTED: errno.ENOSPC,
    Code.BUDGET_EXCEEDED: errno.EDQUOT,
    Code.INTERRUPTED: errno.EINTR,
    Code.CANCELED: errno.ECANCELED,
    Code.UNKNOWN_OUTCOME: errno.EOWNERDEAD,
    Code.TOO_LARGE: errno.EFBIG,
    Code.DRIVER: errno.EIO,
    Code.INTERNAL: errno.EIO,
}

# The first code listed for an errno is its reading; EIO from the host is a driver's failure.
CODE_OF_ERRNO: dict[int, Code] = {number: code for code, number in reversed(ERRNO.items())} | {
    errno.ENOSYS: Code.NOT_PERMITTED,
    errno.ENOTSUP: Code.NOT_PERMITTED,
}


def printable(text: str) -> str:
    """A text that can be encoded: what is no UTF-8 in names of the host is shown as `\\xNN`."""
    try:
        text.encode()
    except UnicodeEncodeError:
        # Lone surrogates come from names of the host, which keep their bytes, and from JSON, which has none.
        escaped = text.encode("utf-8", "surrogateescape" if _from_bytes(text) else "backslashreplace")
        return escaped.decode("utf-8", "backslashreplace")
    return text


def _from_bytes(text: str) -> bool:
    return all(not 0xD800 <= ord(sign) < 0xDC80 and not 0xDCFF < ord(sign) <= 0xDFFF for sign in text)


class SyscallError(OSError):
    """A failed system call: a code, the reason in words, and where it happened.

    Compare `code`, not the class: Python picks subclasses of OSError by errno only for OSError itself.

    Args:
        code: what went wrong.
        reason: a sentence that says what, where and what would be right.
        syscall: the call that failed, such as "Open"; filled in by the choke point if empty.
        device: the path or device concerned; filled in likewise.
        pid: the process that called, 0 for callers outside any agent.
    """

    def __init__(self, code: Code, reason: str, *, syscall: str = "", device: str = "", pid: int = 0) -> None:
        self.reason = printable(reason)
        super().__init__(ERRNO[code], self.reason)
        self.code = code
        self.syscall = syscall
        self.device = device
        self.pid = pid

    def at(self, *, syscall: str = "", device: str = "", pid: int = 0) -> "SyscallError":
        """Fill in what the place that raised did not know, and return the same error."""
        self.syscall = self.syscall or syscall
        self.device = self.device or device
        self.pid = self.pid or pid
        return self

    def as_dict(self) -> dict[str, object]:
        """The object under "error" in a device's answer."""
        return {
            "code": str(self.code),
            "message": self.reason,
            "syscall": self.syscall,
            "device": printable(self.device),
        }

    def __str__(self) -> str:
        """The line the command shows: `[CODE] PID n Syscall: device (reason)`."""
        who = f"PID {self.pid} " if self.pid else ""
        where = f"{self.syscall}: {self.device} " if self.syscall else ""
        return f"[{self.code}] {who}{where}({self.reason})"


class LogError(SyscallError):
    """An event could not be kept, so what it was to announce did not happen.

    A class of its own, since whoever else fails may go on, while nothing may happen that the log cannot hold.
    """

    @classmethod
    def of(cls, error: SyscallError) -> "LogError":
        """The failure of a store, as the failure of what was to happen."""
        return cls(error.code, error.reason)


def from_oserror(error: OSError, reason: str = "") -> SyscallError:
    """The same failure of the host kernel as a SyscallError (unknown numbers become DRIVER)."""
    if isinstance(error, SyscallError):
        return error
    code = CODE_OF_ERRNO.get(error.errno or 0, Code.DRIVER)
    return SyscallError(code, reason or os.strerror(error.errno or errno.EIO))


def invalid(reason: str) -> SyscallError:
    """A request that cannot be taken as it is (EINVAL)."""
    return SyscallError(Code.INVALID, reason)


def not_found(name: str) -> SyscallError:
    """A name that is not there (ENOENT)."""
    return SyscallError(Code.NOT_FOUND, f"no such file or directory: {name}")


def denied(reason: str) -> SyscallError:
    """A thing that the caller may not do (EACCES)."""
    return SyscallError(Code.PERMISSION, reason)
