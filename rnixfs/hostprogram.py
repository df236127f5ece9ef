"""Which programs of the host can be started, and why others cannot."""

import errno
import os
import shutil
from collections.abc import Mapping, Sequence

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, from_oserror, invalid


def check(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Refuse arguments and variables that no program can be started with.

    Raises:
        SyscallError: INVALID, with the argument or variable and what would be right.
    """
    if not argv or not argv[0]:
        raise invalid("no program is named; the first argument must be one")
    for number, text in enumerate(argv):
        _check_string(f"argument {number}", text)
    for name, value in env.items():
        if not name or "=" in name:
            raise invalid(f"a variable cannot be named {name!r}; a name is not empty and has no '='")
        _check_string(f"variable {name!r}", f"{name}={value}")


def _check_string(what: str, text: str) -> None:
    if "\0" in text:
        raise invalid(f"{what} holds a NUL byte, which cannot be handed to a program; remove it")
    try:
        size = len(os.fsencode(text))
    except UnicodeEncodeError:
        raise invalid(f"{what} holds half of a surrogate pair; it must be valid Unicode") from None
    # The kernel counts the NUL byte at the end, too.
    if size >= limits.ARGUMENT_MAX:
        raise invalid(
            f"{what} is {size} bytes long; the host takes less than {limits.ARGUMENT_MAX} bytes in one "
            "string, so put it into a file or send it through stdin"
        )


def find(name: str, cwd: str, env: Mapping[str, str]) -> str:
    """The absolute path of a program that can be started in a folder; looks at files, so it can wait.

    Args:
        name: a name to look for in PATH, or a path, where a relative one starts at `cwd`.
        cwd: the folder it will start in.
        env: the environment it will get.

    Raises:
        SyscallError: NOT_FOUND, NOT_DIRECTORY, PERMISSION or INVALID, with what is wrong.
    """
    _check_string("cwd", cwd)
    if not os.path.isabs(cwd):
        raise invalid(f"cwd is {cwd!r}; it must be an absolute path")
    if not os.path.isdir(cwd):
        try:
            os.stat(cwd)
        except OSError as error:
            raise from_oserror(error, f"cannot start in {cwd!r}: {os.strerror(error.errno or 0)}") from error
        raise SyscallError(Code.NOT_DIRECTORY, f"cannot start in {cwd!r}: it is not a directory")
    # Relative names mean the folder of the program, not the daemon's.
    if "/" in name:
        path = os.path.join(cwd, name)
        if os.path.exists(path) and not os.access(path, os.X_OK):
            raise SyscallError(Code.PERMISSION, f"cannot run {path!r}: it is not executable")
        places = None
    else:
        path = name
        folders = env.get("PATH", os.defpath).split(os.pathsep)
        places = os.pathsep.join(os.path.join(cwd, folder) for folder in folders)
    program = shutil.which(path, path=places)
    if program is None:
        where = "there is no such program" if places is None else "it is not in PATH"
        raise SyscallError(Code.NOT_FOUND, f"cannot run {name!r}: {where}")
    return program


def refusal(error: OSError, name: str, cwd: str) -> SyscallError:
    """Why the host did not start a program, in words."""
    if isinstance(error, SyscallError):
        return error
    match error.errno:
        case errno.ENOENT:
            code, why = Code.NOT_FOUND, "it, its interpreter or its folder is not there"
        case errno.E2BIG:
            code, why = Code.INVALID, "arguments and environment together are too long; use a file or stdin"
        case errno.ENOEXEC:
            code, why = Code.INVALID, "it is no program of this host, and no script with a #! line"
        case errno.EMFILE | errno.ENFILE | errno.EAGAIN | errno.ENOMEM:
            code, why = Code.RESOURCE_EXHAUSTED, f"{os.strerror(error.errno)}; try again when less runs"
        case _:
            code, why = from_oserror(error).code, os.strerror(error.errno or errno.EIO)
    return SyscallError(code, f"cannot run {name!r} in {cwd!r}: {why}")
