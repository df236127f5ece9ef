"""One traced system call, as a JSON object and as a line that strace users can read."""

from typing import Any

import msgspec

_SHOWN = 60


class TraceRecord(msgspec.Struct, omit_defaults=True):
    """One system call.

    Args:
        ts_ms: milliseconds from the start of the process to the start of the call.
        pid: the process.
        syscall: the call's name, such as `Open`.
        args: its arguments by name, long values cut.
        result: what it gave, as text; absent for a failure.
        error: code and reason of a failure.
        duration_ms: how long it took, waiting included.
        origin: `agent`, or `mount` for a program of the host that acts for the process.
        host_pid: for `mount`, the host's pid.
    """

    ts_ms: float
    pid: int
    syscall: str
    args: dict[str, Any]
    result: str = ""
    error: str = ""
    duration_ms: float = 0.0
    origin: str = "agent"
    host_pid: int = 0


def line(record: TraceRecord) -> str:
    """The record as `[  0.013s] Open("/dev/shell", O_RDWR) = FD(3)  1ms`, without a newline."""
    args = ", ".join(_shown(name, value) for name, value in record.args.items())
    outcome = f"-1 {record.error}" if record.error else record.result
    by = f" [mount {record.host_pid}]" if record.origin == "mount" else ""
    return (
        f"[{record.ts_ms / 1000:7.3f}s] {record.syscall}({args}) = {outcome}  {record.duration_ms:.0f}ms{by}"
    )


def _shown(name: str, value: object) -> str:
    if name == "fd":
        return f"FD({value})"
    if name == "flags" or not isinstance(value, str):
        return str(value)
    return msgspec.json.encode(clip(value)).decode()


def clip(text: str, limit: int = _SHOWN) -> str:
    """The start of a text, with the count of what was cut."""
    return text if len(text) <= limit else f"{text[:limit]}…+{len(text) - limit}"
