"""One traced system call as a line of `rnix strace`.

The kernel writes the same form to `proc/<pid>/trace`; a test compares the two.
"""

import json
from typing import Any

SHOWN = 60  # characters of a text argument


def line(record: dict[str, Any]) -> str:
    """A record of `trace.jsonl` as `[  0.013s] Open("/dev/shell", O_RDWR) = FD(3)  1ms`.

    Args:
        record: the decoded record; `{"dropped": n}` says that n records were not kept.
    """
    if "syscall" not in record:
        return f"... {record.get('dropped', 0)} system calls were not kept"
    args = ", ".join(_shown(name, value) for name, value in record.get("args", {}).items())
    outcome = f"-1 {record['error']}" if record.get("error") else record.get("result", "")
    by = f" [mount {record.get('host_pid', 0)}]" if record.get("origin") == "mount" else ""
    stamp = f"[{record['ts_ms'] / 1000:7.3f}s]"
    return f"{stamp} {record['syscall']}({args}) = {outcome}  {record.get('duration_ms', 0.0):.0f}ms{by}"


def _shown(name: str, value: object) -> str:
    if name == "fd":
        return f"FD({value})"
    if name == "flags" or not isinstance(value, str):
        return str(value)
    cut = value if len(value) <= SHOWN else f"{value[:SHOWN]}…+{len(value) - SHOWN}"
    return json.dumps(cut, ensure_ascii=False)
