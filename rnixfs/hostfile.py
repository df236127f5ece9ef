"""Regular files of the host: open them without waiting, make, read, replace, rename and change them.

Everything works on a name in a folder that `hostpath` opened, so nothing here can be led elsewhere.
"""

import contextlib
import ctypes
import errno
import os
import secrets
import stat
from collections.abc import Callable

from rnixfs.errors import Code, SyscallError, denied, invalid, printable
from rnixfs.hostpath import Spot

_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_RENAME_NOREPLACE = 1  # linux/fs.h
_libc = ctypes.CDLL(None, use_errno=True)


def open_regular(place: int, name: str, flags: int) -> int:
    """Open a regular file of a folder, never waiting and never following a link.

    Args:
        place: descriptor of the folder.
        name: one name.
        flags: access mode, O_APPEND and O_TRUNC; O_TRUNC is done only once the file is known to be one.

    Raises:
        OSError: as the kernel says; ELOOP for a link.
        SyscallError: PERMISSION for pipes, sockets and devices, IS_DIRECTORY for folders.
    """
    # Opening a device can have effects, and a pipe can wait: look first, and again at what was opened.
    check_regular(os.stat(name, dir_fd=place, follow_symlinks=False), name)
    fd = os.open(name, (flags & ~(os.O_TRUNC | os.O_CREAT)) | _SAFE, dir_fd=place)
    try:
        check_regular(os.fstat(fd), name)
        if flags & os.O_TRUNC:
            os.ftruncate(fd, 0)
    except BaseException:
        os.close(fd)
        raise
    return fd


def check_regular(found: os.stat_result, name: str) -> None:
    """Raise for what is neither a regular file nor a link."""
    mode = found.st_mode
    if stat.S_ISDIR(mode):
        raise SyscallError(Code.IS_DIRECTORY, f"{printable(name)} is a folder")
    if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
        raise denied(f"{printable(name)} is a {_special(mode)}; only regular files can be opened here")


def replace_regular(
    spot: Spot, data: bytes, before: os.stat_result | None, commit: Callable[[], None]
) -> os.stat_result:
    """Put new content in the place of a file in one step, so that nobody ever sees half of it.

    Mode and owner stay; a second name of the old file (a hard link) keeps the old content.

    Args:
        spot: a canonical place; its folder must be there.
        data: all of the new content.
        before: what was there when it was read, None if nothing was.
        commit: called last before the change; may raise to leave all as it was.

    Raises:
        OSError: as the kernel says.
        SyscallError: INVALID where somebody else changed the file since `before`, EXISTS where one appeared.
    """
    with spot.parent() as place:
        name = f".rnix-{secrets.token_hex(8)}.tmp"
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, 0o666, dir_fd=place)
        try:
            with open(fd, "wb") as file:
                file.write(data)
                file.flush()
                if before is not None:
                    _take_over(fd, before)
                os.fsync(fd)
                written = os.fstat(fd)
            commit()
            _check_unchanged(place, spot, before)
            _put(place, name, spot, replace=before is not None)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=place)
            raise
        return written


def _take_over(fd: int, before: os.stat_result) -> None:
    """Give a new file the owner and mode of the old one; set-id bits go, as with any write."""
    now = os.fstat(fd)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        with contextlib.suppress(PermissionError):
            os.fchown(fd, before.st_uid, before.st_gid)
    os.fchmod(fd, stat.S_IMODE(before.st_mode) & ~(stat.S_ISUID | stat.S_ISGID))


def _check_unchanged(place: int, spot: Spot, before: os.stat_result | None) -> None:
    if before is None:
        return
    now = os.stat(spot.name, dir_fd=place, follow_symlinks=False)
    if (now.st_ino, now.st_mtime_ns, now.st_size) != (before.st_ino, before.st_mtime_ns, before.st_size):
        raise invalid(f"{spot} was changed by somebody else meanwhile; nothing was written, read it again")


def _put(place: int, name: str, spot: Spot, *, replace: bool) -> None:
    try:
        rename(place, name, place, spot.name, replace=replace)
    except FileExistsError:
        raise SyscallError(Code.EXISTS, f"{spot} appeared meanwhile; nothing was written") from None
    except OSError as error:
        if replace or error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
        # A file system without RENAME_NOREPLACE: a second name is refused where the first is taken, too.
        os.link(name, spot.name, src_dir_fd=place, dst_dir_fd=place, follow_symlinks=False)
        os.unlink(name, dir_fd=place)


def _special(mode: int) -> str:
    words = {stat.S_IFIFO: "named pipe", stat.S_IFSOCK: "socket"}
    return words.get(stat.S_IFMT(mode), "device")


def create_regular(place: int, name: str, flags: int, mode: int) -> int:
    """Make a new regular file with exactly these permission bits and open it; EEXIST if the name is taken."""
    fd = os.open(name, (flags & ~os.O_TRUNC) | os.O_CREAT | os.O_EXCL | _SAFE, mode & 0o777, dir_fd=place)
    try:
        os.fchmod(fd, mode & 0o777)
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_regular(spot: Spot, most: int) -> tuple[bytes, os.stat_result]:
    """The content of a regular file, and what is known of it at that moment.

    Raises:
        OSError: as the kernel says.
        SyscallError: as `open_regular`; TOO_LARGE past `most` bytes.
    """
    with spot.parent() as place:
        fd = open_regular(place, spot.name, os.O_RDONLY)
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        data = file.read(most + 1) if found.st_size <= most else b""
        if found.st_size > most or len(data) > most:
            raise SyscallError(Code.TOO_LARGE, f"{spot} has more than {most} bytes, the limit for this")
        return data, found


def chmod(place: int, name: str, mode: int) -> None:
    """Set permission bits of a name, never through a link (Linux has no plain call for that)."""
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
    try:
        os.chmod(f"/proc/self/fd/{fd}", mode)
    finally:
        os.close(fd)


def rename(place: int, name: str, target: int, new: str, *, replace: bool) -> None:
    """Move a name, in one step of the kernel; EEXIST if `new` is there and must not be replaced."""
    if replace:
        os.rename(name, new, src_dir_fd=place, dst_dir_fd=target)
        return
    # libc has the call since glibc 2.28; its number differs from machine to machine.
    call = getattr(_libc, "renameat2", None)
    if call is None or call(place, os.fsencode(name), target, os.fsencode(new), _RENAME_NOREPLACE):
        number = ctypes.get_errno() if call else errno.ENOSYS
        raise OSError(number, os.strerror(number), name)
