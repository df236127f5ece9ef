"""The kernel: processes, signals, opens and events. It has never heard of FUSE, models or prompts.

Everything runs in one trio thread, so whatever happens between two awaits is one step; methods that are not
async are such steps. An event is appended to the log before its effect can be seen; what the log cannot hold
does not happen. Only ends happen all the same, and are written as soon as that can be done.

Over 400 lines because the steps of a life (spawn, signal, suspend, wake, exit, reap) are one law and read
each other's state; what stands by itself (programs that run, groups, messages, history) is in `proc/`.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import trio

from rnixfs import limits
from rnixfs.errors import Code, LogError, SyscallError, denied, invalid
from rnixfs.mounts import MountTable
from rnixfs.node import Broadcast, Dir, File, FixedDir, Node
from rnixfs.proc import fold
from rnixfs.proc.birth import Birth
from rnixfs.proc.channels import Channels, kin
from rnixfs.proc.eventline import event_line
from rnixfs.proc.fold import ENDINGS
from rnixfs.proc.forks import Forks
from rnixfs.proc.groups import Groups
from rnixfs.proc.history import History
from rnixfs.proc.init import Init
from rnixfs.proc.process import SHUT_DOWN, STOPPED, Launch, Process
from rnixfs.proc.request import SpawnRequest
from rnixfs.proc.runs import Runs
from rnixfs.proc.servers import Servers
from rnixfs.proc.signals import Disposition, Signal
from rnixfs.proc.state import Event, Exit, ExitCode, State, advance
from rnixfs.proc.traced import Traced, flag_names
from rnixfs.proc.view import Rights, View
from rnixfs.state.memory import MemoryStore
from rnixfs.state.store import Keep, Log, Record
from rnixfs.types import Caller

log = logging.getLogger(__name__)


class Launcher(Protocol):
    """Turns a request into all that a process needs to know: agent, skills, model, limits, view."""

    def launch(self, request: SpawnRequest, parent: Process | None) -> Launch:
        """Resolve a request.

        Raises:
            SyscallError: INVALID, NOT_FOUND or PERMISSION, saying which part and what would be right.
        """

    def revive(self, birth: Birth) -> Launch:
        """The launch that a process had, from its first event; nothing is looked up anew."""

    def check_ready(self, launch: Launch) -> None:
        """Raise what keeps a process from going on now, such as a model or a folder that is gone."""


class Kernel:
    """The process table and what can be done to it.

    Args:
        launcher: resolves spawn requests.
        log: keeps the events; one in memory if None.
        env: the daemon's environment; of a process only the differences are kept.

    Attributes:
        stopping: set when the system is asked to stop.
        journaled: set when something was kept that is not on disk yet; whoever sees to that replaces it.
    """

    def __init__(self, launcher: Launcher, log: Log | None = None, env: dict[str, str] | None = None) -> None:
        self.root: Dir = FixedDir("root")
        self.processes: dict[int, Process] = {}
        self.launcher = launcher
        self.log: Log = log if log is not None else MemoryStore()
        self.env = dict(env or {})
        self.history = History(self)
        self.forks = Forks(self)
        self.runs = Runs(self)
        self.events = Broadcast()
        self.stopping = trio.Event()
        self.journaled = trio.Event()
        self.on_removed: Callable[[int], None] = lambda _pid: None
        self._next_pid = self.log.last_pid() + 1
        self._live = 0
        self._unwritten = ""
        self._nursery: trio.Nursery | None = None
        self.channels = Channels(self)
        self.groups = Groups(self)
        self.mounts = MountTable(self.start, self.emit, self._rules)
        self.servers = Servers(self)
        self.init = Init(self)

    # --- life of the system ---

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Be the system until cancelled; every process and every job of a device runs in here."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            record = self.emit("boot", 0, {"first_pid": self._next_pid}, Keep.VITAL)
            # Each message that was ever sent is an event before this one, so its number was lower.
            self.channels.number_from(record.seq - 1)
            task_status.started()
            await trio.sleep_forever()

    def start(self, job: Callable[[], Awaitable[None]]) -> None:
        """Run a job in the background, until it ends or the system does."""
        if self._nursery is None:
            raise SyscallError(Code.SERVICE_UNAVAILABLE, "the system is not running")
        self._nursery.start_soon(job)

    def shut_down(self) -> None:
        """Ask the system to stop; whoever runs it waits for `stopping` and calls `suspend_all`."""
        self.emit("shutdown", 0, {}, Keep.VITAL)
        self.stopping.set()

    async def suspend_all(self, grace: float = limits.TERM_GRACE_SECONDS) -> None:
        """Suspend every process, so that each can go on when the system runs again.

        Args:
            grace: seconds that their programs may take to let go.
        """
        live = self.live()
        for process in live:
            try:
                self.suspend(process, SHUT_DOWN)
            except LogError as error:
                # A restart suspends it all the same.
                log.error("process %d: %s", process.pid, error.reason)
        with trio.move_on_after(grace):
            for process in live:
                await process.parked.wait()
        with trio.move_on_after(grace):
            await self.mounts.unmount_all(Caller(0, 0))

    def emit(self, event: str, pid: int, data: dict[str, Any], keep: Keep = Keep.NOW) -> Record:
        """Append an event to the log, then tell those who listen.

        Raises:
            LogError: it cannot be kept, so it must not happen.
        """
        try:
            record = self.log.append_event(event, pid, data, keep)
        except SyscallError as error:
            raise LogError.of(error) from error
        if self.events:
            self.events.push(event_line(record))
        return record

    def happen(self, process: Process, event: str, data: dict[str, Any]) -> Record:
        """Append an event of a process, then change the process as it says.

        Raises:
            LogError: as `emit`.
        """
        record = self.emit(event, process.pid, data)
        fold.apply(process, record)
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

        With an idempotency key, the process that the same caller made before with the same key and request.

        Raises:
            SyscallError: what of the request cannot be done, and why; INVALID for a key that was used for
                another request.
        """
        if request.fork is not None:
            return self.forks.spawn(request, caller)
        key = self.forks.scoped(request, caller)
        known = self.forks.known(key, request)
        if known is not None:
            return known
        parent = self.parent_for(request, caller)
        self.check_room(parent)
        process = self.bear(self.launcher.launch(request, parent), parent, key)
        self.runs.begin(process)
        return process

    def bear(
        self,
        launch: Launch,
        parent: Process | None,
        key: str = "",
        bound: Rights | None = None,
        source: Process | None = None,
    ) -> Process:
        """Put a new process into the table, which does not run yet.

        Args:
            launch: what it is to do.
            parent: its parent, None for the system.
            key: the idempotency key that it was asked for with, with its scope.
            bound: the rights that bound its own; the parent's if None.
            source: the process that it is a fork of, whose depth it has.
        """
        process = Process(self._next_pid, parent, launch, self.view, bound=bound)
        if source is not None:
            # As the log tells it: a child of whoever made the source, who may have ended.
            process.depth, process.past_ppid = source.depth, self.forks.creator(source)
        birth = launch.birth(process.uuid, process.ppid, process.depth, key, self.env)
        record = self.emit("spawn", process.pid, birth.data())
        self._next_pid += 1
        process.started_ns = process.changed_ns = int(record.ts * 1e9)
        self.enter(process)
        if process.past_ppid and parent is None:
            self.emit("reparent", process.pid, {"ppid": 0}, Keep.VITAL)
        process.past_ppid = 0
        return process

    def enter(self, process: Process) -> None:
        """Put a process that has not ended into the table."""
        pid = process.pid
        process.keep = lambda name, data: self._journal(pid, name, data)
        process.settle = self.settle
        process.note = lambda data: self._decided(process, data)
        self.processes[pid] = process
        self._live += process.live
        if process.parent is not None:
            process.parent.children[pid] = process
            process.parent.touch()

    def _journal(self, pid: int, name: str, data: bytes) -> None:
        self.log.append_journal(pid, name, data)
        self.journaled.set()

    def _decided(self, process: Process, data: dict[str, Any]) -> None:
        if process.state is not State.RUNNING:
            raise SyscallError(Code.INTERRUPTED, f"process {process.pid} is {process.state}")
        self.happen(process, "board", data)

    def checkpoint(self, process: Process, caller: Caller) -> None:
        """Mark where a process stands, and see that the log up to here outlives a power cut.

        Raises:
            LogError: the log cannot hold it.
        """
        self.happen(process, "checkpoint", {"step": process.steps, "by": caller.agent})
        try:
            self.log.sync()
        except SyscallError as error:
            raise LogError.of(error) from error

    def settle(self) -> None:
        """Put on disk what was kept lazily, before somebody sees it."""
        try:
            self.log.settle()
            self._unwritten = ""
        except SyscallError as error:
            # Nobody who reads can do anything about it; whoever next writes an event is told.
            if error.reason != self._unwritten:
                log.error("the log: %s", error.reason)
            self._unwritten = error.reason

    def parent_for(self, request: SpawnRequest, caller: Caller) -> Process | None:
        """The parent of a process to be made, None for the system.

        Raises:
            SyscallError: PERMISSION, NOT_FOUND, and INVALID for one that has ended.
        """
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

    def check_room(self, parent: Process | None) -> None:
        """Raise what stands against one more process below a parent."""
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

    def view(self, process: Process, rights: Rights) -> View:
        """The tree as a process sees it."""

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

    # --- ending ---

    def finish(self, process: Process, exit_: Exit) -> None:
        """End a process that has not ended: whoever comes first, once."""
        if not process.live:
            return
        end = {"code": int(exit_.code), "reason": exit_.reason, "elapsed_ms": process.elapsed_ms()}
        self.emit("exit", process.pid, end, Keep.VITAL)
        process.exit, process.suspended = exit_, ""
        process.watch.stop()
        process.state = advance(process.state, Event.EXIT)
        self._live -= 1
        self._release(process)
        process.touch()
        process.ended_live.push(process.ending_line())
        process.ended_live.end()
        process.done.set()
        self.tell_parent(process)

    def tell_parent(self, process: Process) -> None:
        """Let the parent of a zombie know; without one that lives nobody will ask, so it is reaped."""
        parent = process.parent
        if parent is not None and process.pid not in parent.heard:
            parent.untold[process.pid] = process
            parent.news.fire()
        if parent is None or not parent.live:
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
        self.settle()

    def release_again(self, process: Process) -> None:
        """Finish what the end of a process does to others, where the system stopped in the middle of it."""
        self._take_along(process)
        self._orphan(process)
        if process.parent is not None and process.pid in process.parent.heard:
            self.reap(process)
        self.tell_parent(process)

    def suspend_again(self, process: Process) -> None:
        """Note that a process was running when the system stopped."""
        self.emit("suspend", process.pid, {"reason": STOPPED, "restart": True}, Keep.VITAL)
        process.suspended = STOPPED
        process.state = advance(process.state, Event.SUSPEND)
        process.touch()

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
            self.emit("reparent", child.pid, {"ppid": 0}, Keep.VITAL)
            child.parent, child.past_ppid = None, 0
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
        parent = process.parent
        if parent is not None and parent.live and process.pid not in parent.heard:
            # Somebody else reaps it; its parent is to hear of it all the same, after a restart too.
            self.emit("unheard", parent.pid, {"child": process.pid}, Keep.VITAL)
        self.emit("reap", process.pid, {}, Keep.VITAL)
        process.state = advance(process.state, Event.REAP)
        process.touch()
        if process.parent is not None:
            process.parent.children.pop(process.pid, None)
            process.parent.touch()
        if self._nursery is None:
            self._drop(process)  # of an earlier run of the system
        elif not self._nursery.cancel_scope.cancel_called:
            self._nursery.start_soon(self._bury, process)

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
        disposition = process.signals.disposition(signal)
        # What is to end it must be possible whatever the disk says.
        keep = Keep.VITAL if signal is Signal.KILL else Keep.NOW
        self.emit("signal", process.pid, {"signal": str(signal), "to": str(disposition)}, keep)
        process.signals.resolve(signal)
        if disposition is Disposition.DEFAULT:
            _DEFAULT[signal](self, process)
        elif disposition is Disposition.HANDLE:
            process.on_signal(signal)
        process.touch()
        process.news.fire()

    def terminate(self, process: Process, reason: str) -> None:
        """Tell a process to end, and end it when its time for that is over."""
        if process.ending or not process.live:
            return
        process.ending = reason
        if process.suspended:
            self.finish(process, Exit(ExitCode.ERROR, reason))
            return
        process.scope.cancel()
        self.start(lambda: self._grace(process))

    async def _grace(self, process: Process) -> None:
        with trio.move_on_after(limits.TERM_GRACE_SECONDS):
            await process.done.wait()
        self.finish(process, Exit(ExitCode.ERROR, f"{process.ending}; it did not end in time"))

    def _kill(self, process: Process) -> None:
        process.ending = ENDINGS[Signal.KILL]
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
        if not process.suspended:
            process.watch.go()
        process.resumed.set()

    # --- suspending and waking ---

    def suspend(self, process: Process, reason: str) -> bool:
        """Let a process do nothing until it is woken: its program is cancelled where it stands.

        Args:
            process: the process; its descendants are not concerned.
            reason: why, for people.

        Returns:
            Whether it did anything; one that is ending, or suspended already, stays as it is.

        Raises:
            LogError: the log cannot hold it.
        """
        if process.state not in (State.CREATED, State.RUNNING) or process.ending:
            return False
        self.set_aside(process, reason)
        return True

    def set_aside(self, process: Process, reason: str, keep: Keep = Keep.NOW) -> None:
        """Suspend a process that can be suspended."""
        self.emit("suspend", process.pid, {"reason": reason}, keep)
        process.suspended = reason
        process.state = advance(process.state, Event.SUSPEND)
        process.watch.stop()
        process.scope.cancel()
        self._close_files(process)
        process.threads.release()
        process.signals.handled.clear()
        process.handlers.clear()
        if reason != SHUT_DOWN:  # `suspend_all` unmounts, and waits until all is closed
            self.servers.down(process)
        process.touch()
        process.news.fire()

    def wake(self, process: Process) -> None:
        """Let a suspended process go on where it stood.

        Raises:
            SyscallError: INVALID unless it is suspended; what it needs and is not there now.
        """
        if not process.suspended:
            raise invalid(f"process {process.pid} is {process.state}; only a suspended one can be woken")
        if self.stopping.is_set():
            raise SyscallError(Code.SERVICE_UNAVAILABLE, "the system is shutting down")
        self.launcher.check_ready(process.launch)
        self.emit("wake", process.pid, {})
        process.suspended = ""
        process.run += 1
        process.scope = trio.CancelScope()
        process.state = advance(process.state, Event.WAKE)
        if not process.paused:
            process.watch.go()
        process.touch()
        self.runs.begin(process)

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
    Signal.TERM: lambda kernel, process: kernel.terminate(process, ENDINGS[Signal.TERM]),
    Signal.INT: lambda kernel, process: kernel.terminate(process, ENDINGS[Signal.INT]),
    Signal.KILL: Kernel._kill,
    Signal.PAUSE: Kernel._pause,
    Signal.RESUME: Kernel._resume,
}
