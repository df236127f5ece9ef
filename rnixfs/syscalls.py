"""System calls: all that a program can do.

Each call is traced, walks from the process's own root, and may be cancelled while it waits. The names in
the trace are those of the reference. Each group of calls is a class of its own under `calls/`.
"""

from rnixfs.calls.capabilities import CapabilityCalls
from rnixfs.calls.context import ContextCalls
from rnixfs.calls.contexts import ContextSpaceCalls
from rnixfs.calls.files import FileCalls
from rnixfs.calls.groups import GroupCalls
from rnixfs.calls.ipc import IpcCalls
from rnixfs.calls.mounts import MountCalls
from rnixfs.calls.processes import ProcessCalls
from rnixfs.calls.signals import SignalCalls
from rnixfs.calls.supervisor import SupervisorCalls
from rnixfs.calls.threads import ThreadCalls


class Syscalls(
    FileCalls,
    ProcessCalls,
    SignalCalls,
    ContextCalls,
    ContextSpaceCalls,
    IpcCalls,
    SupervisorCalls,
    GroupCalls,
    CapabilityCalls,
    ThreadCalls,
    MountCalls,
):
    """The system calls of one process."""
