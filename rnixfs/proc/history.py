"""Finished processes: read from the log when somebody asks, however long ago they ended."""

from collections import OrderedDict
from typing import TYPE_CHECKING

from rnixfs import limits
from rnixfs.errors import SyscallError
from rnixfs.proc.process import Process
from rnixfs.proc.remake import remake

if TYPE_CHECKING:
    from rnixfs.kernel import Kernel


class History:
    """The processes that were reaped, by UUID.

    Args:
        kernel: has the log.
    """

    def __init__(self, kernel: "Kernel") -> None:
        self._kernel = kernel
        self._made: OrderedDict[str, Process] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kernel.log.finished())

    def uuids(self) -> list[str]:
        """The UUIDs of all, the one that ended first first."""
        return [entry.uuid for entry in self._kernel.log.finished()]

    def holds(self, uuid: str) -> bool:
        """Whether a process with this UUID has ended and was reaped."""
        entry = self._kernel.log.entry(uuid)
        return entry is not None and entry.ended_ts is not None

    def find(self, uuid: str) -> Process | None:
        """The process with a UUID, None where none such has ended."""
        entry = self._kernel.log.entry(uuid)
        if entry is None or entry.ended_ts is None:
            self._made.pop(uuid, None)
            return None
        there = self._kernel.processes.get(entry.pid)
        return there if there is not None else self._past(uuid, entry.pid)

    def by_pid(self, pid: int) -> Process | None:
        """The process that had a pid, in the table or past; None without one."""
        there = self._kernel.processes.get(pid)
        if there is not None:
            return there
        entry = self._kernel.log.entry(pid)
        return self.find(entry.uuid) if entry is not None else None

    def _past(self, uuid: str, pid: int) -> Process | None:
        made = self._made.get(uuid)
        if made is None:
            try:
                made, _ = remake(self._kernel, pid)
            except SyscallError:
                return None
            self._made[uuid] = made
            if len(self._made) > limits.HISTORY_CACHE:
                self._made.popitem(last=False)
        self._made.move_to_end(uuid)
        return made
