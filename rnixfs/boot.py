"""The daemon: mounts a system and serves it until it is told to stop.

`python -m rnixfs.boot --mount DIR` is what the `rnix` command starts. It tells whoever started it, through
`--ready-fd`, either `ready` or `error: <sentence>`; before that a line `notice: <sentence>` for each thing
about the state that people should know.
"""

import argparse
import contextlib
import logging
import os
import pathlib
import signal
import sys
from collections.abc import AsyncIterator

import trio

from rnixfs import fuse, limits
from rnixfs.bootstrap import Settings, System
from rnixfs.edge import mountpoint
from rnixfs.edge.interrupt import Interrupts
from rnixfs.edge.watch import Watcher
from rnixfs.errors import Code, SyscallError
from rnixfs.state.memory import MemoryStore
from rnixfs.state.sqlite import SqliteStore
from rnixfs.state.store import Log
from rnixfs.storeconfig import state_folder, store_settings

log = logging.getLogger("rnixfs")

IDLE_SECONDS = 60.0
_IDLE_LOOK = 5.0
_LEAVE_GRACE = 3.0


class Options(argparse.Namespace):
    """The daemon's command line."""

    mount: str
    root: list[str]
    fs_write: bool
    ready_fd: int
    idle_exit: bool
    foreground: bool
    state: str


def parse(arguments: list[str]) -> Options:
    """Read the daemon's command line."""
    parser = argparse.ArgumentParser(prog="python -m rnixfs.boot", description="Mount an rnix system.")
    parser.add_argument("--mount", required=True, help="folder to mount on")
    parser.add_argument("--root", action="append", default=[], help="host folder shown under dev/fs")
    parser.add_argument("--fs-write", action="store_true", help="let people write below dev/fs")
    parser.add_argument("--ready-fd", type=int, default=-1, help="descriptor to report on")
    parser.add_argument("--idle-exit", action="store_true", help="leave after 60 s without use")
    parser.add_argument("--foreground", action="store_true", help="log to the terminal")
    parser.add_argument("--state", default="", help="folder of the log, or none to keep it in memory")
    return parser.parse_args(arguments, namespace=Options())


class Report:
    """Tells whoever started the daemon how it went, once."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def note(self, line: str) -> None:
        """Write a line before the last one."""
        # Whoever started us may be gone; that is no reason to stop.
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.write(self._fd, line.encode("utf-8", "replace") + b"\n")

    def tell(self, line: str) -> None:
        """Write the last line and close."""
        self.note(line)
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
        self._fd = -1


def prepare(options: Options) -> Settings:
    """Check the folders and make the mountpoint ready.

    Raises:
        SyscallError: what stands in the way, and the remedy.
    """
    folder = os.path.abspath(os.path.expanduser(options.mount))
    mountpoint.prepare(folder)
    canonical = mountpoint.canonical(folder)
    roots = tuple(os.path.realpath(root) for root in options.root) or (os.path.realpath(os.getcwd()),)
    for root in roots:
        if mountpoint.inside(root, canonical):
            raise SyscallError(
                Code.INVALID, f"the folder {root} lies in the mountpoint {canonical}; choose another"
            )
    return Settings(roots, options.fs_write, canonical, store=store_settings(os.environ))


def open_state(options: Options, settings: Settings) -> Log:
    """The log of the system that is mounted at this folder.

    Raises:
        SyscallError: another daemon has it, it is of a newer version, or the host refuses it.
    """
    if options.state == "none":
        return MemoryStore()
    kept = settings.store
    folder = pathlib.Path(options.state) if options.state else state_folder(settings.env, settings.mountpoint)
    folder = pathlib.Path(mountpoint.canonical(os.path.abspath(folder)))
    if mountpoint.inside(str(folder), settings.mountpoint):
        reason = f"the state folder {folder} lies in the mountpoint {settings.mountpoint}; choose another"
        raise SyscallError(Code.INVALID, reason)
    return SqliteStore(folder, synchronous=kept.synchronous, mountpoint=settings.mountpoint)


def _tell_of_state(system: System, report: Report) -> None:
    """Say what happened to the log, and who waits to go on."""
    if system.log.notice:
        log.warning("%s", system.log.notice)
        report.note(f"notice: {' '.join(system.log.notice.split())}")
    restored = system.restored
    if restored.lost:
        report.note(f"notice: {restored.lost} processes cannot be made anew; the daemon's log names them")
    if restored.suspended:
        count = f"{restored.suspended} process{'es' if restored.suspended > 1 else ''}"
        log.info("%s suspended since the last stop", count)
        report.note(f"notice: {count} suspended; to go on: rnix resume PID")


async def serve(settings: Settings, options: Options, report: Report, state: Log) -> None:
    """Mount and serve until a signal, a shutdown, an unmount or idleness ends it."""
    system = System(settings, log=state)
    if ended := system.children.end_leftovers():
        log.warning("ended %d programs that the daemon before had left", ended)
    system.children.adopt_orphans()
    interrupts = Interrupts(Watcher())
    mount = fuse.Mount(system.kernel, system.kernel.root, interrupts, system.children.agent_of)
    system.kernel.on_removed = mount.forget_process
    # Before there is a mount: a signal that ended us at once would leave it behind, dead.
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        fuse.attach(mount, settings.mountpoint, mountpoint.options(os.getpid()))
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(system.kernel.run)
                nursery.start_soon(interrupts.run)
                nursery.start_soon(_main, nursery.cancel_scope)
                with trio.move_on_after(5):
                    await trio.to_thread.run_sync(_open_first, settings.mountpoint, abandon_on_cancel=True)
                await system.discovery.look()
                _tell_of_state(system, report)
                report.tell("ready")
                log.info("mounted at %s", settings.mountpoint)
                nursery.start_soon(_until_signal, system, signals)
                system.servers.autostart()
                nursery.start_soon(system.kernel.init.run)
                nursery.start_soon(_keep_journals, system)
                nursery.start_soon(_keep_small, system)
                if options.idle_exit:
                    nursery.start_soon(_until_idle, system, mount)
                await system.kernel.stopping.wait()
                await system.kernel.suspend_all(_LEAVE_GRACE)
                nursery.cancel_scope.cancel()
        finally:
            fuse.detach()
            with trio.CancelScope(shield=True), trio.move_on_after(5):
                await system.models.aclose()
            log.info("unmounted %s", settings.mountpoint)


def _open_first(folder: str) -> None:
    # The first open calibrates interrupts. It should be ours: that of a client in another pid namespace
    # could not be recognized.
    with contextlib.suppress(OSError), open(f"{folder}/README.md", "rb"):
        pass


async def _main(scope: trio.CancelScope) -> None:
    # Returns by itself when somebody unmounts us.
    await fuse.serve()
    scope.cancel()


async def _until_signal(system: System, signals: AsyncIterator[int]) -> None:
    # To the end: a second signal must not end us before the mount is taken away.
    async for number in signals:
        log.info("stopping on signal %d", number)
        system.kernel.shut_down()


async def _keep_journals(system: System) -> None:
    # So that a kill of the daemon loses no more of the traces than this, even where nothing else happens.
    while True:
        await system.kernel.journaled.wait()
        system.kernel.journaled = trio.Event()
        await trio.sleep(limits.JOURNAL_SECONDS)
        system.kernel.settle()


async def _keep_small(system: System) -> None:
    while True:
        await system.keep_small()
        await trio.sleep(limits.GC_SECONDS)


async def _until_idle(system: System, mount: fuse.Mount) -> None:
    idle = 0.0
    while idle < IDLE_SECONDS:
        await trio.sleep(_IDLE_LOOK)
        running = any(not process.suspended for process in system.kernel.live())
        idle = 0.0 if running or mount.busy() else idle + _IDLE_LOOK
    log.info("idle for %d s", IDLE_SECONDS)
    system.kernel.shut_down()


def _usual_signals() -> None:
    """Undo what whoever started us ignores or blocks: ends of children must be seen, and programs that
    agents run must be able to be interrupted."""
    for number in (signal.SIGCHLD, signal.SIGQUIT, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def main(arguments: list[str] | None = None) -> int:
    """Run the daemon; returns its exit status."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    log.setLevel(logging.INFO)  # of libraries only what is wrong: one has a line to say of each request
    _usual_signals()
    report = Report(options.ready_fd)
    try:
        settings = prepare(options)
        with contextlib.closing(open_state(options, settings)) as state:
            trio.run(serve, settings, options, report, state)
    except (OSError, RuntimeError) as error:
        reason = error.reason if isinstance(error, SyscallError) else str(error)
        log.error("%s", reason)
        report.tell(f"error: {' '.join(reason.split())}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
