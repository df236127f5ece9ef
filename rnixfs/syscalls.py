"""System calls: all that a program can do.

Each call is traced, walks from the process's own root, and may be cancelled while it waits. The names in
the trace are those of the reference. Each group of calls is a class of its own under `calls/`.
"""

from rnixfs.calls.context import ContextCalls
from rnixfs.calls.contexts import ContextSpaceCalls
from rnixfs.calls.files import FileCalls
from rnixfs.calls.processes import ProcessCalls
from rnixfs.calls.signals import SignalCalls


class Syscalls(FileCalls, ProcessCalls, SignalCalls, ContextCalls, ContextSpaceCalls):
    """The system calls of one process."""
