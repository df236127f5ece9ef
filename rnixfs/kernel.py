"""The kernel: processes, signals, opens and events. It has never heard of FUSE, models or prompts.

Everything runs in one trio thread, so whatever happens between two awaits is one step; methods that are not
async are such steps. An event is appended to the store before its effect can be seen.

Over 400 lines because the steps of a life (spawn, signal, exit, reap) are one law and read each other's
state; what stands by itself (groups, messages, threads, mounts, init) is in `proc/` and `mounts`.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec
import trio

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, denied, invalid
from rnixfs.mounts import MountTable
from rnixfs.node import Broadcast, Dir, File, FixedDir, Node
from rnixfs.proc.channels import Channels, kin
from rnixfs.proc.groups import Groups
from rnixfs.proc.init import Init
from rnixfs.proc.process import Launch, Process
from rnixfs.proc.request import SpawnRequest
from rnixfs.proc.signals import Disposition, Signal
from rnixfs.proc.state import Event, Exit, ExitCode, State, advance
from rnixfs.proc.traced import Traced, flag_names
from rnixfs.proc.view import Rights, View
from rnixfs.state.store import MemoryStore, Record, Store
from rnixfs.syscalls import Syscalls
from rnixfs.types import Caller

log = logging.getLogger(__name__)


class Launcher(Protocol):
    """Turns a request into all that a process needs to know: agent, skills, model, limits, view."""

    def launch(self, request: SpawnRequest, parent: Process | None) -> Launch:
        """Resolve a request.

        Raises:
            SyscallError: INVALID, NOT_FOUND or PERMISSION, saying which part and what would be right.
        """


class Kernel:
    """The process table and what can be done to it.

    Args:
        launcher: resolves spawn requests.
        store: keeps the events.
        first_pid: number of the first process; above all that were ever seen.
    """

    def __init__(self, launcher: Launcher, store: Store | None = None, first_pid: int = 1) -> None:
        self.root: Dir = FixedDir("root")
        self.processes: dict[int, Process] = {}
        self.history: dict[str, Process] = {}
        self.events = Broadcast()
        self.stopping = trio.Event()
        self.on_removed: Callable[[int], None] = lambda _pid: None
        self._launcher = launcher
        self._store: Store = store if store is not None else MemoryStore()
        self._next_pid = first_pid
        self._live = 0
        self._nursery: trio.Nursery | None = None
        self.channels = Channels(self)
        self.groups = Groups(self)
        self.mounts = MountTable(self.start, self.emit, self._rules)
        self.init = Init(self)

    # --- life of the system ---

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Be the system until cancelled; every process and every job of a device runs in here."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self.emit("boot", 0, {"first_pid": self._next_pid})
            task_status.started()
            await trio.sleep_forever()

    def start(self, job: Callable[[], Awaitable[None]]) -> None:
        """Run a job in the background, until it ends or the system does."""
        if self._nursery is None:
            raise SyscallError(Code.SERVICE_UNAVAILABLE, "the system is not running")
        self._nursery.start_soon(job)

    def shut_down(self) -> None:
        """Ask the system to stop; whoever runs it waits for `stopping` and calls `end_all`."""
        self.emit("shutdown", 0, {})
        self.stopping.set()

    async def end_all(self, grace: float = limits.TERM_GRACE_SECONDS) -> None:
        """End every process: TERM, then KILL for those that are left after `grace` seconds."""
        live = self.live()
        for process in live:
            # What has a supervisor is stopped by it, in reverse order.
            if process.parent is None or process.parent.board is None:
                self.deliver(process, Signal.TERM)
        with trio.move_on_after(grace):
            for process in live:
                await process.done.wait()
        for process in live:
            self.deliver(process, Signal.KILL)
        with trio.move_on_after(grace):
            await self.mounts.unmount_all(Caller(0, 0))

    def emit(self, event: str, pid: int, data: dict[str, Any]) -> Record:
        """Append an event to the store, then tell those who listen."""
        record = self._store.append_event(event, pid, data)
        if self.events:
            self.events.push(msgspec.json.encode(_flat(record)) + b"\n")
        return record

    # --- the table ---

    def live(self) -> list[Process]:
        """The processes that have not ended."""
        return [process for process in self.processes.values() if process.live]

    def process(self, pid: int) -> Process:
        """The process with a pid.

        Raises:
            SyscallError: NOT_FOUND.
        """
        try:
            return self.processes[pid]
        except KeyError:
            raise SyscallError(Code.NOT_FOUND, f"no process {pid}") from None

    def spawn(self, request: SpawnRequest, caller: Caller) -> Process:
        """Make a process and let it run.

        Args:
            request: what it is to be.
            caller: who asks; an agent becomes the parent.

        Raises:
            SyscallError: what of the request cannot be done, and why.
        """
        parent = self._parent(request, caller)
        self._check_room(parent)
        launch = self._launcher.launch(request, parent)
        process = Process(self._next_pid, parent, launch, self._view)
        self._next_pid += 1
        self.emit("spawn", process.pid, _birth(process))
        self.processes[process.pid] = process
        self._live += 1
        if parent is not None:
            parent.children[process.pid] = process
            parent.touch()
        self.start(lambda: self._run(process))
        return process

    def _parent(self, request: SpawnRequest, caller: Caller) -> Process | None:
        pid = caller.agent if request.parent is None else request.parent
        if pid == 0 and not caller.agent:
            return None
        if pid == 0:
            raise denied('an agent\'s children are its own; leave out "parent"')
        parent = self.process(pid)
        if not (caller.agent == 0 or parent.descends_from(caller.agent)):
            raise denied(f"process {caller.agent} may not spawn children of process {pid}")
        if not parent.live or parent.ending:
            raise invalid(f"process {pid} has ended or is ending; it can have no more children")
        return parent

    def _check_room(self, parent: Process | None) -> None:
        if self.stopping.is_set():
            raise SyscallError(Code.SERVICE_UNAVAILABLE, "the system is shutting down")
        if parent is not None and parent.depth >= limits.SPAWN_DEPTH_MAX:
            raise SyscallError(
                Code.RESOURCE_EXHAUSTED,
                f"processes may be {limits.SPAWN_DEPTH_MAX} generations deep, no more",
            )
        if self._live >= limits.PROCESSES_MAX:
            raise SyscallError(
                Code.RESOURCE_EXHAUSTED, f"there may be {limits.PROCESSES_MAX} processes, no more"
            )

    def _view(self, process: Process, rights: Rights) -> View:
        def own(path: str) -> bool:
            if not path.startswith("/proc/"):
                return False
            owner, _, rest = path.removeprefix("/proc/").partition("/")
            if owner == str(process.pid):
                return True
            other = self.processes.get(int(owner)) if owner.isdecimal() else None
            if other is None:
                return False
            return other.descends_from(process.pid) or (rest == "mailbox" and kin(process, other))

        return View(process.pid, self.root, rights, own, process.launch.binds)

    # --- running and ending ---

    async def _run(self, process: Process) -> None:
        if not process.live:
            return
        process.state = advance(process.state, Event.START)
        process.touch()
        if process.budget.timeout_ms:
            self.start(lambda: self._watch_time(process))
        exit_ = Exit(ExitCode.ERROR, "the system stopped")
        try:
            with process.scope:
                exit_ = await self._program(process)
            if process.scope.cancelled_caught:
                exit_ = Exit(ExitCode.ERROR, process.ending)
        except Exception as error:
            exit_ = self._failed(process, error)
        finally:
            self.finish(process, exit_)

    async def _program(self, process: Process) -> Exit:
        exit_: Exit | None = None
        async with trio.open_nursery() as nursery:
            process.threads.open(nursery)
            try:
                exit_ = await process.launch.program(Syscalls(self, process))
            except Exception as error:
                exit_ = self._failed(process, error)
            finally:
                process.threads.close()
                if process.threads.busy():
                    how = exit_ or Exit(ExitCode.ERROR, process.ending or "its program was cancelled")
                    self.start(lambda: self._end_threads(process, how))
        return exit_

    async def _end_threads(self, process: Process, exit_: Exit) -> None:
        # A thread that no cancellation reaches must not keep the process from ending.
        with trio.move_on_after(limits.TERM_GRACE_SECONDS):
            await process.done.wait()
        self.finish(process, exit_)

    async def _watch_time(self, process: Process) -> None:
        """End a process when its time of running is over; pauses do not count."""
        while process.live and (left := process.time_left()) > 0:
            with trio.move_on_after(left):
                await process.done.wait()
            if process.paused:
                await process.resumed.wait()
        limit = process.budget.timeout_ms
        self._terminate(process, f"timeout: it ran for longer than {limit} ms")

    @staticmethod
    def _failed(process: Process, error: Exception) -> Exit:
        if isinstance(error, SyscallError):
            return Exit(ExitCode.ERROR, str(error))
        log.error("the program of process %d failed inside", process.pid, exc_info=error)
        return Exit(ExitCode.ERROR, f"{type(error).__name__} inside its program; the daemon's log has it")

    def finish(self, process: Process, exit_: Exit) -> None:
        """End a process that has not ended: whoever comes first, once."""
        if not process.live:
            return
        self.emit("exit", process.pid, {"code": int(exit_.code), "reason": exit_.reason})
        process.exit = exit_
        process.watch.stop()
        process.state = advance(process.state, Event.EXIT)
        self._live -= 1
        self._release(process)
        process.touch()
        process.ended_live.push(process.ending_line())
        process.ended_live.end()
        process.done.set()
        if process.parent is not None:
            process.parent.untold[process.pid] = process
            process.parent.news.fire()
        if process.parent is None or not process.parent.live:
            self.reap(process)

    def _release(self, process: Process) -> None:
        # The order is a law: children first, so that they are nobody's while it ends; then its program; then
        # whoever reads what it did or waits to hear from it; last what it alone knew of. The task of its
        # program has ended before, unless it was killed or did not end in time. All that is left of a zombie
        # then is its record; `reap` makes it a dead process, which the table drops later.
        self._take_along(process)
        self._orphan(process)
        process.scope.cancel()
        self._close_files(process)
        process.trace_live.end()
        process.log_live.end()
        self.channels.release(process)
        self.groups.leave_all(process)
        process.signals.clear()
        process.paused = False
        process.resumed.set()
        process.threads.release()
        self.mounts.release(process.pid)

    @staticmethod
    def _close_files(process: Process) -> None:
        for opened in process.files.values():
            opened.file.close()
        process.files.clear()

    def _take_along(self, process: Process) -> None:
        """End what a supervisor supervised: without it nobody would start or stop them."""
        if process.board is None:
            return
        process.board.close()
        for child in reversed(list(process.children.values())):
            self.deliver(child, Signal.KILL)

    def _orphan(self, process: Process) -> None:
        for child in list(process.children.values()):
            self.emit("reparent", child.pid, {"ppid": 0})
            child.parent = None
            child.touch()
            if child.state is State.ZOMBIE:
                self.reap(child)
        if process.children:
            process.children.clear()
            process.touch()
        process.untold.clear()

    def reap(self, process: Process) -> None:
        """Release a zombie: it is dead, stays visible for a while, then only its history is left."""
        if process.state is not State.ZOMBIE:
            return
        self.emit("reap", process.pid, {})
        process.state = advance(process.state, Event.REAP)
        process.touch()
        if process.parent is not None:
            process.parent.children.pop(process.pid, None)
            process.parent.touch()
        self._remember(process)
        if self._nursery is not None and not self._nursery.cancel_scope.cancel_called:
            self._nursery.start_soon(self._bury, process)

    def _remember(self, process: Process) -> None:
        self.history[process.uuid] = process
        while len(self.history) > limits.HISTORY_MAX:
            del self.history[next(iter(self.history))]

    async def _bury(self, process: Process) -> None:
        await trio.sleep(limits.DEAD_VISIBLE_SECONDS)
        self._drop(process)

    def _drop(self, process: Process) -> None:
        if self.processes.pop(process.pid, None) is not None:
            self.on_removed(process.pid)

    def remove(self, process: Process, caller: Caller) -> None:
        """Kill and reap, and take it out of the table: `rmdir proc/<pid>`."""
        self.check_power(process, caller)
        self.deliver(process, Signal.KILL)
        self.reap(process)
        self._drop(process)

    # --- signals ---

    def signal(self, process: Process, signal: Signal, caller: Caller) -> None:
        """Send a signal on behalf of a caller.

        Raises:
            SyscallError: PERMISSION unless the caller is a person, the process itself or an ancestor;
                INVALID for a process that has ended.
        """
        self.check_power(process, caller)
        if not process.live:
            raise invalid(f"process {process.pid} has ended")
        self.deliver(process, signal)

    @staticmethod
    def check_power(process: Process, caller: Caller) -> None:
        """Raise PERMISSION unless the caller is a person, the process itself or an ancestor."""
        if caller.agent and not process.descends_from(caller.agent):
            raise denied(f"process {caller.agent} has no power over process {process.pid}")

    def _rules(self, caller: Caller, pid: int) -> bool:
        process = self.processes.get(pid)
        return process is not None and process.descends_from(caller.agent)

    def deliver(self, process: Process, signal: Signal) -> None:
        """Let a signal take effect, or wait where it is blocked."""
        if not process.live:
            return
        self.emit("signal", process.pid, {"signal": str(signal)})
        disposition = process.signals.resolve(signal)
        if disposition is Disposition.DEFAULT:
            _DEFAULT[signal](self, process)
        elif disposition is Disposition.HANDLE:
            process.on_signal(signal)
        process.touch()
        process.news.fire()

    def _terminate(self, process: Process, reason: str) -> None:
        if process.ending or not process.live:
            return
        process.ending = reason
        process.scope.cancel()
        self.start(lambda: self._grace(process))

    async def _grace(self, process: Process) -> None:
        with trio.move_on_after(limits.TERM_GRACE_SECONDS):
            await process.done.wait()
        self.finish(process, Exit(ExitCode.ERROR, f"{process.ending}; it did not end in time"))

    def _kill(self, process: Process) -> None:
        process.ending = "killed by SIGKILL"
        process.scope.cancel()
        self.finish(process, Exit(ExitCode.ERROR, process.ending))

    def _pause(self, process: Process) -> None:
        if process.paused or process.ending:
            return
        process.paused = True
        process.resumed = trio.Event()
        process.watch.stop()

    def _resume(self, process: Process) -> None:
        if not process.paused:
            return
        process.paused = False
        process.watch.go()
        process.resumed.set()

    # --- opens ---

    def open(self, node: Node, caller: Caller, flags: int, path: str) -> File:
        """The one place where files are opened, by system calls and by the mount.

        Args:
            node: what to open.
            caller: who opens.
            flags: O_… flags of open(2).
            path: as the caller named it, for traces and errors.

        Raises:
            SyscallError: what the node refuses.
        """
        process = self.processes.get(caller.agent) if caller.host_pid and caller.agent else None
        try:
            file = node.open(caller, flags)
        except SyscallError as error:
            error.at(syscall="Open", device=path, pid=caller.agent)
            if process is not None:
                Traced.note(process, caller, "Open", {"path": path, "flags": flag_names(flags)}, error=error)
            raise
        if process is None:
            return file
        Traced.note(process, caller, "Open", {"path": path, "flags": flag_names(flags)}, result="0")
        return Traced(file, process, caller, path)


_DEFAULT: dict[Signal, Callable[[Kernel, Process], None]] = {
    Signal.TERM: lambda kernel, process: kernel._terminate(process, "terminated by SIGTERM"),
    Signal.INT: lambda kernel, process: kernel._terminate(process, "interrupted by SIGINT"),
    Signal.KILL: Kernel._kill,
    Signal.PAUSE: Kernel._pause,
    Signal.RESUME: Kernel._resume,
}


def _flat(record: Record) -> dict[str, Any]:
    return {
        "seq": record.seq,
        "ts": record.ts,
        "event": record.event,
        "pid": record.pid,
        **record.data,
    }


def _birth(process: Process) -> dict[str, Any]:
    launch = process.launch
    return {
        "ppid": process.ppid,
        "uuid": process.uuid,
        "intent": launch.intent,
        "agent": launch.agent,
        "skills": list(launch.skills),
        "provider": launch.provider,
        "model": launch.model,
        "allowed_devices": process.rights.listing()["granted"],
        "cwd": launch.place.cwd,
    }
