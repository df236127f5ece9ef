"""The folder `proc/<pid>/threads`."""

from typing import TYPE_CHECKING

from rnixfs.device import json_line
from rnixfs.node import Document, FixedDir, Node, TableDir
from rnixfs.proc.process import Process
from rnixfs.types import Caller

if TYPE_CHECKING:
    from rnixfs.kernel import Kernel


def threads_row(_kernel: "Kernel", process: Process) -> Node:
    """`proc/<pid>/threads/`: a folder for each thread and coroutine, with its status."""

    def find(name: str, _caller: Caller) -> Node | None:
        thread = process.threads.find(int(name)) if name.isdecimal() and name == str(int(name)) else None
        if thread is None:
            return None
        key = (process.uuid, "thread", thread.tid)
        status = Document((key, "status"), lambda: json_line(thread.status()), lambda: thread.changed_ns)
        return FixedDir(key, {"status": status})

    return TableDir(
        (process.uuid, "threads"), find, lambda _caller: [str(tid) for tid in process.threads.numbers()]
    )
