"""The supervisor: starts children in order, starts them again as their spec says, stops them in reverse.

An ordinary program on system calls. What to do after an end is decided by `proc.supervision`; here it is
done. Whatever happens next (a child's end, an order, a signal) is taken one at a time, and a child that is
being stopped is waited for, so that two incarnations of one child never run side by side.

Where it stands is on its board, which the log makes, so it may be stopped anywhere and started again: each
incarnation of a child has a key, under which it is made once; an end is on the board before the child is
reaped; and what was decided after an end is done again from its beginning, which changes nothing where it
was done.
"""

import time

import msgspec
import trio

from rnixfs.errors import Code, LogError, SyscallError
from rnixfs.proc.board import Child, ChildState, Order, Verb
from rnixfs.proc.request import SpawnRequest
from rnixfs.proc.signals import Signal
from rnixfs.proc.state import Exit, ExitCode
from rnixfs.proc.supervision import ChildSpec, decide, ends_for_good, recent, stop_seconds
from rnixfs.syscalls import Syscalls

_TOLD = {Signal.TERM: "terminated by SIGTERM", Signal.INT: "interrupted by SIGINT"}


async def supervise(sys: Syscalls) -> Exit:
    """Run a process that is a supervisor."""
    return await _Supervisor(sys).run()


def request_of(child: ChildSpec, key: str = "") -> SpawnRequest:
    """The request that makes a child; of those with the same key one is made."""
    return SpawnRequest(
        idempotency_key=key,
        intent=child.intent,
        agent=child.agent,
        provider=child.provider,
        model=child.model,
        context_budget=child.context_budget,
        supervisor=child.supervisor,
    )


class _Supervisor:
    def __init__(self, sys: Syscalls) -> None:
        self.sys = sys
        self.board = sys.board
        self.spec = self.board.spec
        # The log has times of day; in between, only the clock that stands still with the program counts.
        ago = trio.current_time() - time.time()
        self.restarts = [since + ago for since in self.board.restarts]

    @property
    def leave(self) -> str:
        """Why it is to end, empty while it is not."""
        return self.board.leave

    async def run(self) -> Exit:
        for signal in _TOLD:
            self.sys.on_signal(signal, self._told)
        await self._recover()
        await self._start_all()
        self.board.started.set()
        while not self.leave and self._has_work():
            await self._turn()
        return await self._finish()

    def _told(self, signal: Signal) -> None:
        self.board.go(_TOLD[signal])

    async def _recover(self) -> None:
        """Finish what was begun when the system stopped."""
        for child in self.board.children.values():
            if child.state is ChildState.STOPPING and not self.leave:
                await self._stop(child, self._meant(child.spec.name))
        if self.board.plan.start and not self.leave:
            await self._carry_out()

    def _meant(self, name: str) -> ChildState | None:
        """Where a child was to stand that was being stopped: for a sibling's sake, else on an order."""
        plan = self.board.plan
        if name in plan.start:
            return ChildState.WAITING
        return None if name in plan.stop else ChildState.STOPPED

    def _has_work(self) -> bool:
        # A child that was stopped on order may be started by another order.
        stopped = any(child.state is ChildState.STOPPED for child in self.board.children.values())
        return bool(stopped or self.board.wanted() or self.board.orders or self.board.undecided)

    async def _start_all(self) -> None:
        for child in self.board.children.values():
            if self.leave:
                return
            if child.state is not ChildState.WAITING:
                continue  # it was started before the system stopped
            try:
                await self._start(child)
            except LogError:
                raise
            except SyscallError as error:
                self.board.end(child, Exit(ExitCode.ERROR, error.reason))
                self.board.go(f"start_failed: {child.spec.name!r} could not be started: {error.reason}")

    async def _finish(self) -> Exit:
        for child in reversed(self.board.children.values()):
            await self._stop(child, ChildState.STOPPED)
        self.sys.set_result(self._result())
        return Exit(ExitCode.ERROR, self.leave) if self.leave else Exit(ExitCode.DONE, "done")

    def _result(self) -> str:
        rows = ({**child.row(), "result": child.result} for child in self.board.children.values())
        return "\n".join(msgspec.json.encode(row).decode() for row in rows)

    # --- one thing at a time ---

    async def _turn(self) -> None:
        await self._while_paused()
        if self.board.undecided:
            name, exit_ = self.board.undecided[0]
            await self._after_end(self.board.children[name], exit_)
        elif self.board.orders:
            await self._obey(self.board.orders.popleft())
        elif not self.leave:
            await self._next_end()

    async def _while_paused(self) -> None:
        if self.sys.paused and not self.leave:
            await self.sys.wait_any((), until=lambda: bool(self.leave) or not self.sys.paused)

    async def _next_end(self) -> None:
        # With those that somebody else put under this supervisor, so that they do not stay zombies, and
        # with the pids on the board, since somebody may have reaped one of them before us.
        running = (child.pid for child in self.board.wanted() if child.state is ChildState.RUNNING)
        ended = await self.sys.wait_any({*running, *self.sys.uncollected}, until=self._called, heard=False)
        if ended is None:
            return
        child = self.board.current(ended.pid)
        if child is not None:
            self.board.end(child, ended.exit, ended.result, undecided=True)
            how = f"code {ended.exit.code}: {ended.exit.reason}"
            self.sys.say("output", f"{child.spec.name!r}, process {ended.pid}, ended with {how}")
        self.sys.collect(ended.pid)

    def _called(self) -> bool:
        return bool(self.leave or self.board.orders)

    # --- restarting ---

    async def _after_end(self, child: Child, exit_: Exit) -> None:
        now = trio.current_time()
        wanted = [one.spec.name for one in self.board.wanted()]
        what = decide(self.spec, child.spec.name, exit_.code, wanted, self.restarts, now)
        if what.give_up:
            self.board.go(self._too_many(child, exit_))
            self.board.decide(0)
            return
        if not what.start:
            self.board.decide(0)
            return
        self.restarts = [*recent(self.restarts, self.spec.max_window, now), now]
        self.board.decide(time.time(), what.start, what.stop)
        await self._carry_out()

    async def _carry_out(self) -> None:
        """Do what was decided last; of a part that was done already nothing is done again."""
        plan = self.board.plan
        for name in plan.stop:
            await self._make_way(self.board.children[name], again=name in plan.start)
        await self._start_again(plan.start)
        self.board.settled()

    async def _make_way(self, child: Child, again: bool) -> None:
        """Stop a child for a sibling's sake; one whose work was done just before stays ended."""
        if child.state is not ChildState.RUNNING:
            return
        ended = await self.sys.wait_any([child.pid], until=lambda: True, heard=False)
        if ended is not None and ends_for_good(child.spec, ended.exit.code):
            self.board.end(child, ended.exit, ended.result)
            self.sys.collect(child.pid)
        else:
            await self._stop(child, ChildState.WAITING if again else None)

    def _too_many(self, child: Child, exit_: Exit) -> str:
        within = f"{self.spec.max_restarts} restarts within {self.spec.max_window:g} s"
        how = f"code {exit_.code}: {exit_.reason}"
        return f"max_restarts_exceeded: {child.spec.name!r} ended with {how}; {within} are allowed"

    async def _start_again(self, names: tuple[str, ...]) -> None:
        for child in [self.board.children[name] for name in names]:
            if self.leave:
                return
            if child.state is not ChildState.WAITING:
                continue
            try:
                await self._start(child)
            except LogError:
                raise
            except SyscallError as error:
                # As if it had ended at once. Those after it wait; the next decision starts them.
                failure = Exit(ExitCode.ERROR, f"could not be started: {error.reason}")
                self.board.end(child, failure, undecided=True)
                self.sys.say("warning", f"{child.spec.name!r} {failure.reason}")
                return

    # --- orders ---

    async def _obey(self, order: Order) -> None:
        child = self.board.children[order.name]
        try:
            if order.verb is not Verb.START:
                await self._stop(child, ChildState.STOPPED)
                self.board.mark(child, ChildState.STOPPED)
            if order.verb is not Verb.STOP and child.state is not ChildState.RUNNING:
                self.board.mark(child, ChildState.WAITING)  # on the board first: a restart goes on with it
                await self._start(child)
        except LogError:
            raise
        except SyscallError as error:
            self.board.mark(child, ChildState.STOPPED)
            self.sys.say("warning", f"{order.verb} {order.name}: {error.reason}")
            order.failed(error)
        else:
            order.obeyed(child.pid)

    # --- one child ---

    async def _start(self, child: Child) -> None:
        # The incarnation's number makes the key: it grows with each that the board knows of.
        begun = child.restarts + 1 if child.pid else 0
        pid = await self.sys.spawn(request_of(child.spec, f"child\t{child.spec.name}/{begun}"))
        self.board.begin(child, pid)
        self.sys.say("output", f"started {child.spec.name!r} as process {pid}")

    async def _stop(self, child: Child, then: ChildState | None) -> None:
        """Stop a child that runs: TERM, and KILL when its time is up.

        Args:
            child: the child.
            then: its state after that; None for what its exit code says.
        """
        if child.state not in (ChildState.RUNNING, ChildState.STOPPING):
            return
        self.board.mark(child, ChildState.STOPPING)
        await self._signal(child.pid, Signal.TERM)
        ended = await self.sys.wait_any([child.pid], seconds=stop_seconds(child.spec), heard=False)
        if ended is None:
            self.sys.say("warning", f"{child.spec.name!r} did not stop in time; killing process {child.pid}")
            await self._signal(child.pid, Signal.KILL)
            ended = await self.sys.wait_any([child.pid], heard=False)
        assert ended is not None
        self.board.end(child, ended.exit, ended.result, then=then)
        self.sys.collect(child.pid)

    async def _signal(self, pid: int, signal: Signal) -> None:
        try:
            await self.sys.kill(pid, signal)
        except SyscallError as error:
            # It has ended meanwhile, or somebody has removed it.
            if error.code not in (Code.INVALID, Code.NOT_FOUND):
                raise
