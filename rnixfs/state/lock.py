"""One daemon a state folder: the lock says who has it, and the host's kernel frees it with its holder."""

import errno
import fcntl
import os
import pathlib

from rnixfs.errors import Code, SyscallError, from_oserror


class FolderLock:
    """The lock of a state folder, held from the start.

    Args:
        folder: the state folder, which exists.
        mountpoint: what the holder serves, for the words that others read.

    Raises:
        SyscallError: SERVICE_UNAVAILABLE if another process has it; the host's own reason otherwise.
    """

    def __init__(self, folder: pathlib.Path, mountpoint: str) -> None:
        self._path = folder / "lock"
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise from_oserror(error, f"cannot open the lock {self._path}: {error.strerror}") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()} {mountpoint}\n".encode(errors="surrogateescape"), 0)
        except OSError as error:
            refusal = self._refusal(error)
            self.release()
            raise refusal from error

    def release(self) -> None:
        """Let the next one have it; a second time does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _refusal(self, error: OSError) -> SyscallError:
        folder = self._path.parent
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            return from_oserror(error, f"cannot lock the state folder {folder}: {error.strerror}")
        pid, _, mountpoint = os.pread(self._fd, 8192, 0).decode(errors="replace").strip().partition(" ")
        holder = f"the daemon with pid {pid}" if pid else "another daemon"
        serving = f", which serves {mountpoint}" if mountpoint else ""
        return SyscallError(
            Code.SERVICE_UNAVAILABLE,
            f"the state folder {folder} is in use by {holder}{serving}; unmount that one, or choose another "
            "folder with --state",
        )
