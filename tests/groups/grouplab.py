"""A kernel with all of `proc` and `mnt`, and processes whose system calls a test makes itself."""

import os
import re
from typing import Any

import pytest
from trio.testing import wait_all_tasks_blocked

from rnixfs import vfs
from rnixfs.errors import Code, SyscallError
from rnixfs.mountfiles import McpDir
from rnixfs.node import Dir, FixedDir, Node
from rnixfs.proc.process import Process
from rnixfs.proc.signals import Signal
from rnixfs.proc.state import Exit
from rnixfs.state.store import Log
from rnixfs.syscalls import Syscalls
from rnixfs.types import Caller
from tests.kernel import kernellab
from tests.kernel.kernellab import PERSON, sleeper

settle = wait_all_tasks_blocked


def refused(code: Code, *words: str) -> pytest.RaisesExc[SyscallError]:
    """Expect a refusal with a code, and words in its reason in this order."""
    match = ".*".join(map(re.escape, words)) or None
    return pytest.raises(SyscallError, match=match, check=lambda error: error.code is code)


class Lab(kernellab.Lab):
    """A kernel for tests of groups, threads and mounts.

    Args:
        store: keeps the events; the kernel's own if None.
    """

    def __init__(self, store: Log | None = None) -> None:
        super().__init__(store)
        root = self.kernel.root
        assert isinstance(root, FixedDir)
        root.children["mnt"] = FixedDir("mnt", {"mcp": McpDir(self.kernel.mounts)})

    async def puppet(self, **fields: Any) -> tuple[Process, Syscalls]:
        """A process that waits for ever, and its system calls, for the test to make."""
        found: list[Syscalls] = []

        async def program(sys: Syscalls) -> Exit:
            found.append(sys)
            return await sleeper(sys)

        process = self.spawn(program, **fields)
        await settle()
        return process, found[0]

    # --- the tree, as a program of the host reaches it ---

    def node(self, path: str, caller: Caller = PERSON) -> Node:
        """The node at a path."""
        return vfs.walk(self.kernel.root, path, caller)

    def folder(self, path: str, caller: Caller = PERSON) -> Dir:
        """The folder at a path."""
        node = self.node(path, caller)
        assert isinstance(node, Dir)
        return node

    def names(self, path: str) -> list[str]:
        """What a folder lists."""
        return [name for name, _ in self.folder(path).entries(PERSON)]

    def read(self, path: str) -> str:
        """A document's text, whose size is true."""
        node = self.node(path)
        data = node.open(PERSON, os.O_RDONLY).read(1 << 20, 0)
        assert node.stat().size == len(data)
        return data.decode()

    def write(self, path: str, text: str, caller: Caller = PERSON) -> None:
        """Write as `echo` does."""
        file = self.kernel.open(self.node(path, caller), caller, os.O_WRONLY, path)
        assert file.write(text.encode(), 0) == len(text.encode())
        file.close()


class Counter:
    """Counts the signals that reach processes, by their pids."""

    def __init__(self) -> None:
        self.got: list[int] = []

    def watch(self, sys: Syscalls, signal: Signal = Signal.INT) -> None:
        """Count a signal of a process."""
        sys.on_signal(signal, lambda _signal: self.got.append(sys.pid))
