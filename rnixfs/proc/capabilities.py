"""Granting and revoking rights while a process runs, and the record of it.

What limits power is in the log: each change is an event before it has an effect. That a process stays within
its parent's rights is the business of `proc.view.Rights`, at every look, so nothing here can break it.
"""

from typing import TYPE_CHECKING

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, denied, invalid
from rnixfs.node import Command
from rnixfs.proc.process import Process
from rnixfs.types import Caller

if TYPE_CHECKING:
    from rnixfs.kernel import Kernel


def grant(kernel: "Kernel", process: Process, path: str, caller: Caller) -> None:
    """Let a process use a path and what is below it.

    Args:
        kernel: records it.
        process: gets the right.
        path: absolute, as in the tree.
        caller: a person or an ancestor; nobody grants rights to itself.

    Raises:
        SyscallError: PERMISSION without power, for oneself and for what the parent may not use; INVALID for
            no path and for a process that has ended; RESOURCE_EXHAUSTED past `limits.CAPS_MAX`.
    """
    path = _check(kernel, process, path, caller)
    if caller.agent == process.pid:
        raise denied("a process cannot grant rights to itself")
    process.rights.check_grant(path)
    kernel.happen(process, "grant", {"path": path, "by": caller.agent})


def revoke(kernel: "Kernel", process: Process, path: str, caller: Caller) -> None:
    """Take a path and what is below it back, from a process and so from all its descendants.

    Args:
        kernel: records it.
        process: loses the right.
        path: absolute, as in the tree.
        caller: a person, an ancestor, or the process itself, which may give up what it has.

    Raises:
        SyscallError: PERMISSION without power, INVALID and RESOURCE_EXHAUSTED as for `grant`.
    """
    path = _check(kernel, process, path, caller)
    process.rights.check_revoke(path)
    kernel.happen(process, "revoke", {"path": path, "by": caller.agent})


def clean_path(text: str) -> str:
    """A path as rights hold it: absolute, without `.`, empty names, and a slash at its end.

    Raises:
        SyscallError: INVALID for a relative path, one with `..`, and text that is not Unicode;
            NAME_TOO_LONG.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise invalid(f"a path must be Unicode text, unlike {text!r}") from None
    if size > limits.PATH_MAX:
        raise SyscallError(Code.NAME_TOO_LONG, f"a path may have {limits.PATH_MAX} bytes, not {size}")
    names = [name for name in text.split("/") if name not in ("", ".")]
    if not text.startswith("/") or ".." in names:
        raise invalid(f"a path such as /dev/shell is needed, without .., not {text!r}")
    return "/" + "/".join(names)


def capability_commands(kernel: "Kernel", process: Process) -> list[tuple[str, str, Command]]:
    """What `proc/<pid>/ctl` knows of rights: usage, help and the command."""

    def give(caller: Caller, rest: str) -> None:
        grant(kernel, process, rest, caller)

    def take(caller: Caller, rest: str) -> None:
        revoke(kernel, process, rest, caller)

    return [
        ("grant PATH", "let it use a path and what is below it", give),
        ("revoke PATH", "take a path back; open files stay open", take),
    ]


def _check(kernel: "Kernel", process: Process, path: str, caller: Caller) -> str:
    kernel.check_power(process, caller)
    if not process.live:
        raise invalid(f"process {process.pid} has ended; its rights mean nothing any more")
    return clean_path(path)
