"""System calls on mounts."""

from typing import Any

import trio

from rnixfs.calls.base import Calls
from rnixfs.mounts import CTL, ROOT, check_common_name, name_of


class MountCalls(Calls):
    """Mount, Unmount, UnmountAll; they need the right to `/mnt/mcp/ctl`."""

    @property
    def mounted(self) -> tuple[object, ...]:
        """What of the mounts the process may use; it is another whenever a listing of their tools changes."""
        rights, mounts = self._process.rights, self._kernel.mounts
        return tuple(mounts.stamp(name) for name in mounts.names() if rights.permits(ROOT + name))

    async def mount(self, path: str, config: dict[str, Any]) -> None:
        """Connect to a server and show it; what a process mounted goes when it ends.

        Args:
            path: `/mnt/mcp/NAME`.
            config: `type` names the transport, the rest is for that.

        Raises:
            SyscallError: INVALID for another path, a wrong configuration or an unknown type; EXISTS,
                PERMISSION, RESOURCE_EXHAUSTED; TIMEOUT and DRIVER when it does not connect, and nothing is
                left of it then.
        """
        await trio.lowlevel.checkpoint()
        # The rest of the configuration may hold secrets.
        with self._call("Mount", path=path, type=str(config.get("type"))):
            self._check_right()
            check_common_name(name_of(path))
            await self._kernel.mounts.mount(path, config, self._process.caller)

    async def unmount(self, path: str) -> None:
        """Close a connection and take its folder away.

        Raises:
            SyscallError: INVALID, NOT_FOUND; PERMISSION for what neither it nor a descendant mounted;
                TIMEOUT when the connection does not close in time; it is gone all the same.
        """
        await trio.lowlevel.checkpoint()
        with self._call("Unmount", path=path):
            self._check_right()
            await self._kernel.mounts.unmount(path, self._process.caller)

    async def unmount_all(self) -> int:
        """Unmount all that it and its descendants mounted; returns how many.

        Raises:
            SyscallError: PERMISSION, TIMEOUT.
        """
        await trio.lowlevel.checkpoint()
        with self._call("UnmountAll") as outcome:
            self._check_right()
            count = await self._kernel.mounts.unmount_all(self._process.caller)
            outcome.append(f"{count} mounts")
        return count

    def _check_right(self) -> None:
        self._process.view.check(ROOT + CTL)
