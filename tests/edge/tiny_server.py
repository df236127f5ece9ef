"""A file system of a few files around the parts under test, steered through its standard input.

    tiny_server.py MOUNTPOINT MODE LOOP ATTR_SECONDS

MODE is `real` (libfuse interrupts), `watch` (the watcher does) or `none`; LOOP is `drained` or `plain`.
Files: `now` answers at once, `never` waits for ever, `soon` answers with the offset after a moment or two,
`twice` waits for the command `n`, then, deaf, for `m`, then for ever.
Commands are single bytes, each answered by a line: `s` statistics as JSON, `h` stop the loop until `g`.
At the end of its input it unmounts and leaves.
"""

import errno
import json
import os
import random
import stat
import sys
from collections.abc import Awaitable, Callable
from functools import partial

import pyfuse3
import trio
from pyfuse3 import EntryAttributes, FileHandleT, FileInfo, FUSEError, InodeT, RequestContext

from rnixfs.edge import Interruptible, drain, mountpoint
from rnixfs.edge.interrupt import Interrupts
from rnixfs.edge.watch import Watcher

NAMES = {b"now": 2, b"never": 3, b"soon": 4, b"twice": 5}
SIZES = {2: 4}


class Deaf:
    """Waits that nothing interrupts: what pyfuse3 gives by itself."""

    async def wait(self, sleep: Callable[[], Awaitable[object]], tid: int = 0) -> bool:
        await sleep()
        return True

    async def run(self) -> None:
        await trio.sleep_forever()


class Files(pyfuse3.Operations):
    """The file system; its counters are the statistics."""

    supports_dot_lookup = False

    def __init__(self, mode: str, attr_seconds: float) -> None:
        super().__init__()
        self.watcher = Watcher()
        self.interrupts = Interrupts(self.watcher)
        choice: dict[str, Interruptible] = {"real": self.interrupts, "watch": self.watcher, "none": Deaf()}
        self.waits = choice[mode]
        self.attr_seconds = attr_seconds
        self.opens: dict[int, tuple[int, int]] = {}  # handle: inode, thread that opened it
        self.steps = {name: trio.Event() for name in "nm"}
        self.drained = False
        self.waiting = self.answered = self.interrupted = self.gaps = 0

    def statistics(self) -> dict[str, object]:
        return {
            "drained": self.drained,
            "calibrated": self.interrupts.calibrated,
            "missed": self.interrupts.missed,
            "registered": len(self.interrupts),
            "watched": len(self.watcher),
            "rounds": self.watcher.rounds,
            "waiting": self.waiting,
            "answered": self.answered,
            "interrupted": self.interrupted,
            "gaps": self.gaps,
        }

    async def lookup(self, parent_inode: InodeT, name: bytes, ctx: RequestContext) -> EntryAttributes:
        if name not in NAMES:
            raise FUSEError(errno.ENOENT)
        return self.attributes(NAMES[name])

    async def getattr(self, inode: InodeT, ctx: RequestContext) -> EntryAttributes:
        return self.attributes(inode)

    def attributes(self, inode: int) -> EntryAttributes:
        entry = EntryAttributes()
        entry.st_ino = InodeT(inode)
        mode = stat.S_IFDIR | 0o755 if inode == pyfuse3.ROOT_INODE else stat.S_IFREG | 0o666
        entry.st_mode = pyfuse3.ModeT(mode)
        entry.attr_timeout = entry.entry_timeout = self.attr_seconds
        entry.st_size = SIZES.get(inode, 0)
        entry.st_uid, entry.st_gid = os.getuid(), os.getgid()
        return entry

    async def open(self, inode: InodeT, flags: int, ctx: RequestContext) -> FileInfo:
        if not self.interrupts.settled:
            await self.interrupts.calibrate(ctx)
        handle = max(self.opens, default=0) + 1
        self.opens[handle] = (inode, ctx.pid)
        return FileInfo(fh=FileHandleT(handle), direct_io=True)

    async def read(self, fh: FileHandleT, off: int, size: int) -> bytes:
        inode, tid = self.opens[fh]
        if inode == 2:
            return b"now\n"[off : off + size]
        if inode == 4:
            return await self.soon(off, tid)
        if inode == 5:
            await self.wait(self.steps["n"].wait, tid)
            self.gaps += 1
            await self.steps["m"].wait()
        await self.wait(trio.sleep_forever, tid)
        return b""

    async def soon(self, offset: int, tid: int) -> bytes:
        """A third at once, a third after one turn of the scheduler, a third after up to 10 ms."""
        kind = random.randrange(3)
        if kind:
            seconds = random.random() * 0.01
            await self.wait(trio.lowlevel.checkpoint if kind == 1 else partial(trio.sleep, seconds), tid)
        self.answered += 1
        return b"%d\n" % offset

    async def wait(self, sleep: Callable[[], Awaitable[object]], tid: int) -> None:
        self.waiting += 1
        try:
            done = await self.waits.wait(sleep, tid)
        finally:
            self.waiting -= 1
        if not done:
            self.interrupted += 1
            raise FUSEError(errno.EINTR)

    async def flush(self, fh: FileHandleT) -> None:
        raise FUSEError(errno.ENOSYS)

    async def release(self, fh: FileHandleT) -> None:
        del self.opens[fh]


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


async def control(files: Files) -> None:
    """Obey until the end of the input."""
    while True:
        await trio.lowlevel.wait_readable(0)
        command = os.read(0, 1).decode()
        if not command:
            return
        if command == "s":
            say(json.dumps(files.statistics()))
        elif command == "h":
            say("held")
            os.read(0, 1)  # the whole loop stands still on purpose
            say("going")
        elif command in files.steps:
            files.steps[command].set()
            say(command)


async def main(files: Files) -> None:
    async with trio.open_nursery() as nursery:

        async def serve() -> None:
            await pyfuse3.main(1, 1_000_000)
            nursery.cancel_scope.cancel()

        nursery.start_soon(files.interrupts.run)
        nursery.start_soon(serve)
        say("ready")
        await control(files)
        nursery.cancel_scope.cancel()


def start(path: str, mode: str, loop: str, attr_seconds: str) -> None:
    files = Files(mode, float(attr_seconds))
    pyfuse3.init(files, path, mountpoint.options(os.getpid()) | {"default_permissions"})
    try:
        files.drained = loop == "drained" and drain.install()
        trio.run(main, files)
    finally:
        drain.uninstall()
        pyfuse3.close()


if __name__ == "__main__":
    start(*sys.argv[1:])
