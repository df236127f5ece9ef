"""The 45 system calls, one row each: the page docs/calls.md is made from this table, and tests check it.

`python -m rnixfs.calltable` prints the page.
"""

import dataclasses
import errno
import sys
from collections.abc import Iterable

from rnixfs.errors import ERRNO, Code

C = Code


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One system call.

    Args:
        name: as traces show it.
        group: the part of the kernel it belongs to.
        method: its name on `Syscalls`; empty for what happens by itself.
        signature: arguments and result.
        does: one sentence.
        file: how a person reaches it, as a shell would write it in the mount.
        errors: what it can fail with.
    """

    name: str
    group: str
    method: str
    signature: str
    does: str
    file: str
    errors: tuple[Code, ...]


ROWS = (
    # --- process ---
    Row(
        "Spawn", "process", "spawn", "(request) -> pid", "Makes a child that runs an agent.",
        "echo '{\"intent\": …}' > proc/spawn; cat proc/spawn",
        (C.INVALID, C.NOT_FOUND, C.PERMISSION, C.SERVICE_UNAVAILABLE, C.RESOURCE_EXHAUSTED),
    ),
    Row(
        "Kill", "process", "kill", "(pid, signal)", "Sends a signal; nothing happens to one that has ended.",
        "echo kill > proc/<pid>/ctl", (C.NOT_FOUND, C.PERMISSION),
    ),
    Row(
        "Wait", "process", "wait", "(pid) -> exit, result", "Waits for a child to end and reaps it.",
        "cat proc/<pid>/wait", (C.NOT_FOUND, C.PERMISSION),
    ),
    Row("GetPID", "process", "getpid", "() -> pid", "The caller's own pid.", "readlink proc/self", ()),
    Row("PS", "process", "ps", "() -> rows", "The status of the caller and its descendants.",
        "cat proc/processes", ()),
    # --- context ---
    Row(
        "CtxAlloc", "context", "ctx_alloc", "(size) -> cid", "Makes a context for so many messages.",
        "cat proc/<pid>/context (each process has one from its start)", (C.INVALID, C.RESOURCE_EXHAUSTED),
    ),
    Row(
        "CtxRead", "context", "ctx_read", "(cid, offset, length) -> system prompt, messages",
        "Reads messages by number, all with offset 0.", "cat proc/<pid>/messages.json",
        (C.NOT_FOUND, C.INVALID),
    ),
    Row(
        "CtxWrite", "context", "ctx_write", "(message, offset, cid) -> number",
        "Appends a message (offset 0) or puts one in the place of another.",
        "echo 'say TEXT' > proc/<pid>/ctl", (C.NOT_FOUND, C.INVALID, C.RESOURCE_EXHAUSTED),
    ),
    Row("CtxFree", "context", "ctx_free", "(cid)", "Lets go of a context.",
        "rmdir proc/<pid> (frees all of them)", (C.NOT_FOUND, C.INVALID)),
    # --- file ---
    Row(
        "Open", "file", "open", "(path, flags) -> fd", "Opens a path of the caller's view.",
        "exec 3<>dev/shell",
        (C.NOT_FOUND, C.PERMISSION, C.IS_DIRECTORY, C.INVALID, C.RESOURCE_EXHAUSTED),
    ),
    Row("Read", "file", "read", "(fd, size) -> bytes", "Reads, and waits until there is something.",
        "cat <&3", (C.BAD_FD, C.INVALID, C.SERVICE_UNAVAILABLE)),
    Row(
        "Write", "file", "write", "(fd, data) -> count", "Writes, and waits until there is room.",
        "echo ls >&3",
        (C.BAD_FD, C.INVALID, C.TOO_LARGE, C.BROKEN_PIPE, C.SERVICE_UNAVAILABLE),
    ),
    Row("Close", "file", "close", "(fd)", "Closes, and cancels what a private exchange runs.", "exec 3>&-",
        (C.BAD_FD,)),
    Row("Stat", "file", "stat", "(path) -> kind, size, time", "What is known of a path.",
        "stat proc/1/status", (C.NOT_FOUND, C.PERMISSION)),
    # --- debug ---
    Row(
        "DebugRecord", "debug", "", "(by itself)", "Each call, once, with arguments, result and time.",
        "cat proc/<pid>/trace.jsonl; cat proc/<pid>/trace", (),
    ),
    # --- IPC ---
    Row(
        "Send", "ipc", "send", "(pid, data) -> seq", "Puts a copy into another process's mailbox.",
        "echo hello > proc/<pid>/mailbox",
        (C.NOT_FOUND, C.PERMISSION, C.INVALID, C.SERVICE_UNAVAILABLE, C.TOO_LARGE),
    ),
    Row("Recv", "ipc", "recv", "() -> message", "Takes the next message, and waits for it.",
        "head -n 1 proc/<pid>/recv", (C.SERVICE_UNAVAILABLE,)),
    Row(
        "Pipe", "ipc", "pipe", "(writer, reader) -> write fd, read fd",
        "Joins two processes by 64 KiB with back-pressure.",
        "echo '{\"from\": 1, \"to\": 2}' > dev/pipe; cat dev/pipe",
        (C.NOT_FOUND, C.PERMISSION, C.RESOURCE_EXHAUSTED),
    ),
    Row("JoinGroup", "ipc", "join_group", "(name, pid)", "Makes a process a member of a group.",
        "echo 'join G' > proc/<pid>/ctl",
        (C.INVALID, C.NOT_FOUND, C.PERMISSION, C.NAME_TOO_LONG, C.RESOURCE_EXHAUSTED)),
    Row("LeaveGroup", "ipc", "leave_group", "(name, pid)", "Ends a membership.",
        "echo 'leave G' > proc/<pid>/ctl", (C.NOT_FOUND, C.PERMISSION, C.INVALID)),
    Row("GetProcGroup", "ipc", "get_proc_group", "(name) -> pids", "The members of a group.",
        "cat proc/groups/G/members", (C.NOT_FOUND, C.PERMISSION)),
    Row(
        "SignalGroup", "ipc", "signal_group", "(name, signal) -> count",
        "Sends a signal to every member, once each.", "echo 'signal TERM' > proc/groups/G/ctl",
        (C.NOT_FOUND, C.PERMISSION),
    ),
    Row(
        "Mount", "ipc", "mount", "(path, config)", "Makes a server a folder below /mnt/mcp.",
        "echo 'mount NAME {…}' > mnt/mcp/ctl",
        (C.INVALID, C.EXISTS, C.PERMISSION, C.RESOURCE_EXHAUSTED, C.TIMEOUT, C.DRIVER),
    ),
    Row("Unmount", "ipc", "unmount", "(path)", "Takes such a folder away.",
        "echo 'unmount NAME' > mnt/mcp/ctl", (C.INVALID, C.NOT_FOUND, C.PERMISSION, C.TIMEOUT)),
    Row("UnmountAll", "ipc", "unmount_all", "() -> count", "Takes all of the caller's away.",
        "echo shutdown > sys/ctl", (C.PERMISSION, C.TIMEOUT)),
    # --- signals and capabilities ---
    Row("Signal", "signal", "signal", "(pid, signal)", "Sends a signal to one that lives.",
        "echo 'signal TERM' > proc/<pid>/ctl", (C.NOT_FOUND, C.PERMISSION)),
    Row("SigHandle", "signal", "on_signal", "(signal, handler)", "Handles a signal itself, or no longer.",
        "cat proc/<pid>/signals", (C.INVALID,)),
    Row("SigBlock", "signal", "block", "(signal)", "Keeps a signal waiting.",
        "echo 'block TERM' > proc/<pid>/ctl", (C.INVALID,)),
    Row("SigUnblock", "signal", "unblock", "(signal)", "Lets it through; one that waited arrives now.",
        "echo 'unblock TERM' > proc/<pid>/ctl", ()),
    Row("SigPending", "signal", "sig_pending", "() -> signals", "The signals that wait.",
        "cat proc/<pid>/signals", ()),
    Row("SignalTree", "signal", "signal_tree", "(pid, signal) -> count",
        "Sends a signal to a process and all below it, once each.", "echo 'tree TERM' > proc/<pid>/ctl",
        (C.NOT_FOUND, C.PERMISSION, C.INVALID)),
    Row("CapGrant", "capability", "cap_grant", "(pid, path)", "Lets a descendant use a path.",
        "echo 'grant PATH' > proc/<pid>/ctl",
        (C.NOT_FOUND, C.PERMISSION, C.INVALID, C.RESOURCE_EXHAUSTED)),
    Row("CapRevoke", "capability", "cap_revoke", "(pid, path)", "Takes it back, below the process too.",
        "echo 'revoke PATH' > proc/<pid>/ctl",
        (C.NOT_FOUND, C.PERMISSION, C.INVALID, C.RESOURCE_EXHAUSTED)),
    Row("CapCheck", "capability", "cap_check", "(path) -> bool", "Whether the caller may use a path.",
        "ls proc/<pid>/root/PATH", (C.INVALID,)),
    Row("CapList", "capability", "cap_list", "(pid) -> granted, denied", "What a process may use.",
        "cat proc/<pid>/caps", (C.NOT_FOUND, C.PERMISSION)),
    # --- supervision and init ---
    Row(
        "SpawnSupervisor", "supervisor", "spawn_supervisor", "(spec) -> pid",
        "Makes a process that starts children and restarts them.",
        "echo '{\"supervisor\": {…}}' > proc/spawn",
        (C.INVALID, C.PERMISSION, C.RESOURCE_EXHAUSTED),
    ),
    Row("StartChild", "supervisor", "start_child", "(pid, name) -> pid", "Starts a child that is down.",
        "echo 'start NAME' > proc/<pid>/ctl", (C.NOT_FOUND, C.PERMISSION, C.INVALID)),
    Row("StopChild", "supervisor", "stop_child", "(pid, name)", "Stops a child and leaves it down.",
        "echo 'stop NAME' > proc/<pid>/ctl", (C.NOT_FOUND, C.PERMISSION, C.INVALID)),
    Row("RestartChild", "supervisor", "restart_child", "(pid, name) -> pid",
        "Stops a child and starts it again.", "echo 'restart NAME' > proc/<pid>/ctl",
        (C.NOT_FOUND, C.PERMISSION, C.INVALID)),
    Row("ListChildren", "supervisor", "list_children", "(pid) -> rows", "Its children with pid and restarts.",
        "cat proc/<pid>/supervisor", (C.NOT_FOUND, C.PERMISSION, C.INVALID)),
    Row("Bootstrap", "init", "bootstrap", "()", "Starts what init.yaml names.",
        "echo bootstrap > sys/ctl; cat sys/init", (C.INVALID, C.PERMISSION, C.SERVICE_UNAVAILABLE)),
    Row("Reap", "init", "reap", "(pid) -> exit", "Releases a child that has ended.", "rmdir proc/<pid>",
        (C.NOT_FOUND, C.PERMISSION, C.SERVICE_UNAVAILABLE)),
    Row("Suspend", "init", "suspend", "(pid) -> count", "Pauses a process and all below it.",
        "echo suspend > proc/<pid>/ctl", (C.NOT_FOUND, C.PERMISSION, C.INVALID)),
    Row("Resume", "init", "resume", "(pid) -> count", "Lets them go on.", "echo wake > proc/<pid>/ctl",
        (C.NOT_FOUND, C.PERMISSION, C.INVALID)),
    Row("Shutdown", "init", "shutdown", "()", "Ends every process, unmounts and stops.",
        "echo shutdown > sys/ctl", (C.PERMISSION,)),
)  # fmt: skip

BESIDE = ("SpawnThread", "JoinThread", "SpawnCoroutine", "Yield", "ResumeCoroutine", "ReadDir", "WaitAny")
"""Calls beside the 45: threads and coroutines run inside a process and have no file to make them."""

_HEAD = """# The 45 system calls

Made from the table in `rnixfs/calltable.py` by `python -m rnixfs.calltable`; a test compares the two.

An agent makes a call through `Syscalls`; a person reaches the same through a file. Every call, from either
side, is one line of `proc/<pid>/trace.jsonl`. Beside the 45 there are {beside}.

The errors are those of the call itself, with the errno that a program at the mount sees. Beside them every
call of a process that has ended fails with INTERRUPTED (EINTR), Open, Read and Write fail with what the file
at hand refuses, and a file refuses text that is no command of it with INVALID (EINVAL).
"""


def page(rows: Iterable[Row] = ROWS) -> str:
    """The page of the calls, in Markdown."""
    parts = [_HEAD.format(beside=", ".join(f"`{name}`" for name in BESIDE))]
    group = ""
    for row in rows:
        if row.group != group:
            group = row.group
            parts.append(f"\n## {group}\n\n| call | signature | what it does | through a file | errors |")
            parts.append("|---|---|---|---|---|")
        parts.append(_line(row))
    return "\n".join(parts) + "\n"


def _line(row: Row) -> str:
    errors = ", ".join(f"{code} ({_errno(code)})" for code in row.errors) or "none"
    method = f"<br>`Syscalls.{row.method}`" if row.method else ""
    cells = (f"`{row.name}`{method}", f"`{row.signature}`", row.does, f"`{row.file}`", errors)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _errno(code: Code) -> str:
    return errno.errorcode[ERRNO[code]]


if __name__ == "__main__":
    sys.stdout.write(page())
