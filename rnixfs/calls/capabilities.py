"""System calls on what processes may use."""

import trio

from rnixfs.calls.base import Calls
from rnixfs.proc import capabilities


class CapabilityCalls(Calls):
    """CapGrant, CapRevoke, CapCheck, CapList."""

    async def cap_grant(self, pid: int, path: str) -> None:
        """Let a descendant use a path and what is below it, within its parent's rights.

        Raises:
            SyscallError: NOT_FOUND, PERMISSION, INVALID, RESOURCE_EXHAUSTED.
        """
        await trio.lowlevel.checkpoint()
        with self._call("CapGrant", pid=pid, path=path):
            capabilities.grant(self._kernel, self._kernel.process(pid), path, self._process.caller)

    async def cap_revoke(self, pid: int, path: str) -> None:
        """Take a path back from itself or a descendant, and so from all below; open files stay open.

        Raises:
            SyscallError: NOT_FOUND, PERMISSION, INVALID, RESOURCE_EXHAUSTED.
        """
        await trio.lowlevel.checkpoint()
        with self._call("CapRevoke", pid=pid, path=path):
            capabilities.revoke(self._kernel, self._kernel.process(pid), path, self._process.caller)

    async def cap_check(self, path: str) -> bool:
        """Whether it may use a path now.

        Raises:
            SyscallError: INVALID for a path that is not absolute.
        """
        await trio.lowlevel.checkpoint()
        with self._call("CapCheck", path=path) as outcome:
            may = self._process.view.sees(capabilities.clean_path(path))
            outcome.append("yes" if may else "no")
        return may

    async def cap_list(self, pid: int | None = None) -> dict[str, list[str] | None]:
        """What a process was granted (None for everything) and denied, by those two words.

        Args:
            pid: itself or a descendant; itself if None.

        Raises:
            SyscallError: NOT_FOUND, PERMISSION.
        """
        await trio.lowlevel.checkpoint()
        with self._call("CapList", pid=self.pid if pid is None else pid) as outcome:
            process = self._process if pid is None else self._kernel.process(pid)
            self._kernel.check_power(process, self._process.caller)
            listing = process.rights.listing()
            granted = listing["granted"]
            outcome.append("everything" if granted is None else f"{len(granted)} granted")
        return listing
