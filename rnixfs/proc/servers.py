"""The MCP servers of a process: mounted before its program runs, gone when it does not.

They are `mnt/mcp/<pid>-<server>`, for that process alone. Where one cannot be had, those that can go again
and the process ends, since its agent counts on all of them. A suspended process holds none; it gets them
again, by today's configuration, before it goes on.
"""

from typing import TYPE_CHECKING

import trio

from rnixfs.errors import LogError, SyscallError
from rnixfs.proc.process import Process
from rnixfs.proc.state import Exit, ExitCode

if TYPE_CHECKING:
    from rnixfs.kernel import Kernel


class Servers:
    """Mounts what processes need.

    Args:
        kernel: has the mounts.

    Attributes:
        off: whether nothing is mounted, as in a rehearsal, where tools are answered from a record.
    """

    def __init__(self, kernel: "Kernel") -> None:
        self._kernel = kernel
        self.off = False

    async def up(self, process: Process) -> Exit | None:
        """Mount the servers of a process, all at once; returns the end that it comes to where one fails.

        Those that had connected by then go with that end.

        Raises:
            LogError: the log cannot be written.
        """
        if self.off or not process.servers:
            return None
        failures: list[tuple[str, SyscallError]] = []
        async with trio.open_nursery() as nursery:

            async def mount(server: str, path: str) -> None:
                try:
                    await self._mount(process, server, path)
                except LogError:
                    raise
                except SyscallError as error:
                    failures.append((server, error))
                    nursery.cancel_scope.cancel()

            for server, path in process.servers.items():
                nursery.start_soon(mount, server, path)
        if not failures:
            return None
        server, error = failures[0]
        return Exit(ExitCode.ERROR, f"mcp: server {server!r}: {error.reason}")

    async def _mount(self, process: Process, server: str, path: str) -> None:
        mounts = self._kernel.mounts
        config = mounts.configured(server, process.caller)
        await mounts.mount(path, config, process.caller)

    def down(self, process: Process) -> None:
        """Unmount the servers of a process; their connections close in the background."""
        for path in process.servers.values():
            self._kernel.mounts.discard(path, process.pid)
