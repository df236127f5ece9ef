"""Programs of the host that the daemon runs for others, from their start to their complete end.

Each run is a POSIX session of its own, and its environment carries a mark (`RNIX_CHILD`). When a run ends,
for whatever reason, everybody who belongs to it ends too: members of its session, carriers of its mark and
all descendants of these. So a program put in the background, moved to another process group or detached
by `setsid` does not outlive the command that started it. A program that leaves the session, clears its
environment and loses its parent before the end cannot be told from a stranger; only a sandbox holds that.

A daemon that is killed can end nobody. So each program carries a second mark too (`RNIX_STATE`), the id of
the state that the daemon works on, and the next daemon on that state ends who is left before it does
anything else. (That the host ends a program with its parent, PR_SET_PDEATHSIG, would not do: what it means
by parent is the thread that started the program, and threads come and go; and background programs of the
program would stay.)

The leader of a run is not reaped before everybody else is gone: as long as it is a zombie its number, which
names the session and the process group, is given to nobody else.

Over 400 lines because the two kinds of runs, to a program's end and in a conversation, share how all that
belongs to one is ended, which must be seen at a glance.
"""

import contextlib
import ctypes
import dataclasses
import functools
import logging
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import trio

from rnixfs import hostprogram, hosttable, leftovers, limits
from rnixfs.errors import Code, SyscallError

_PR_SET_CHILD_SUBREAPER = 36
_STRAY_SECONDS = 30.0  # how long a zombie that nobody knows must wait for its owner before it is reaped
_log = logging.getLogger(__name__)

Give = Callable[[bytes], None]
Converse = Callable[[trio.Process], Awaitable[None]]


@dataclasses.dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended.

    Args:
        returncode: its exit code, or the negative number of the signal that killed it.
        timed_out: whether it was ended because its time was up.
        duration_ms: milliseconds from the request to the end of all that belonged to it.
    """

    returncode: int
    timed_out: bool
    duration_ms: int


@dataclasses.dataclass(eq=False, slots=True)
class _Run:
    """One started program.

    Args:
        process: the leader; its pid names the session and the first process group.
        pidfd: readable when the leader has ended; None where the host had no descriptor left.
        started: start of the leader in clock ticks since boot; nobody of the run is older.
        members: pid and start of those who were found to belong to the run.
    """

    mark: bytes
    process: trio.Process
    pidfd: int | None
    started: int
    members: set[tuple[int, int]] = dataclasses.field(default_factory=set)

    async def leader_ended(self) -> None:
        """Wait until the leader has ended, and leave it a zombie."""
        if self.pidfd is None:
            await self.process.wait()
        else:
            await trio.lowlevel.wait_readable(self.pidfd)


class Children:
    """Starts programs and answers for all that they leave.

    Args:
        state_id: id of the state that the daemon works on, unlike that of any other; every program carries
            it. Empty without a state that outlives the daemon.
    """

    def __init__(self, state_id: str = "") -> None:
        self._state_id = state_id
        self._marks = {hosttable.STATE: state_id} if state_id else {}
        # Before 3.11.4, Python holds its lock across vfork, until the child has changed its folder and has
        # executed its program. If either lies in the mount, the mount waits for itself for ever. The
        # documentation of subprocess names this switch, though not by a public name.
        if sys.version_info < (3, 11, 4):
            vars(subprocess)["_USE_VFORK"] = False
        self._agent_of_mark: dict[bytes, int] = {}
        self._agent_of_session: dict[int, int] = {}
        self._runs: dict[int, _Run] = {}
        self._scanners = trio.CapacityLimiter(4)
        self._adopts = False
        self._strays: dict[tuple[int, int], float] = {}

    def adopt_orphans(self) -> bool:
        """Become the parent of descendants that lose theirs, so that each can be reaped; say if it worked.

        Zombies are then reaped at the end of each run. Children that others started are left to them.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        self._adopts = libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
        return self._adopts

    def end_leftovers(self) -> int:
        """End what an earlier daemon on the same state started and left; say how many processes that were.

        To be called once, by whoever holds the state, before anything runs. It waits for their end, for at
        most `limits.CHILD_KILL_SECONDS`; who does not end is reported in the log.

        Raises:
            OSError: the processes of the host cannot be looked at.
        """
        return leftovers.end(self._state_id, limits.CHILD_KILL_SECONDS) if self._state_id else 0

    def agent_of(self, session: int) -> int:
        """The agent for which the run was started that the host's session belongs to; 0 if there is none."""
        known = self._agent_of_session.get(session)
        if known is not None or not self._agent_of_mark:
            return known or 0
        # A program may come here before its start has returned, or from a session that it began itself.
        agent = self._agent_of_mark.get(hosttable.mark_of(session) or b"", 0)
        if agent or len(self._runs) == len(self._agent_of_mark):
            self._agent_of_session[session] = agent
        return agent

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        agent: int = 0,
        stdin: bytes = b"",
        stdout: Give,
        stderr: Give | None,
        timeout: float,
        grace: float = limits.CHILD_GRACE_SECONDS,
    ) -> Ended:
        """Run a program to its end, and end all that it left.

        When its time is up, or the caller is cancelled, everybody of the run gets TERM, then KILL.

        Args:
            argv: the program, looked for in the PATH of `env`, and its arguments.
            cwd: the folder it starts in.
            env: its whole environment; the marks are added.
            agent: pid of the agent it runs for, 0 for nobody.
            stdin: what it can read; it gets /dev/null where this is empty.
            stdout: takes its output as it comes, in pieces of at most `limits.CHILD_CHUNK` bytes.
            stderr: takes its other output likewise; None sends both through one pipe, in their order.
            timeout: seconds it may take; math.inf for no limit.
            grace: seconds from TERM to KILL.

        Raises:
            SyscallError: NOT_FOUND, NOT_DIRECTORY, PERMISSION, INVALID or RESOURCE_EXHAUSTED when it cannot
                be started, TIMEOUT when its folder or program could not even be looked at in time.
            Exception: whatever `stdout` or `stderr` raised; the run is ended first.
        """
        hostprogram.check(argv, env)
        began = trio.current_time()
        program = ""
        with trio.move_on_after(timeout):
            program = await trio.to_thread.run_sync(
                hostprogram.find, argv[0], cwd, env, abandon_on_cancel=True
            )
        if not program:
            raise SyscallError(Code.TIMEOUT, f"cannot look at {cwd} within {timeout} s; is a disk stuck?")
        run = await self._start(argv, program, cwd, env, agent, bool(stdin), stderr is None)
        try:
            timed_out = await self._attend(run, _Talk(stdin, stdout, stderr), began + timeout, grace)
        finally:
            self._forget(run)
        returncode = run.process.returncode
        duration = round((trio.current_time() - began) * 1000)
        return Ended(-signal.SIGKILL if returncode is None else returncode, timed_out, duration)

    async def converse(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        agent: int = 0,
        talk: Converse,
        leave: float,
        grace: float = limits.CHILD_GRACE_SECONDS,
    ) -> Ended:
        """Run a program that is talked with, to its end, and end all that it left.

        Args:
            argv: as for `run`; so are `cwd`, `env`, `agent` and `grace`.
            cwd: the folder it starts in.
            env: its whole environment.
            agent: pid of the agent it runs for, 0 for nobody.
            talk: gets the program with its three pipes. When it returns or raises, when the program has
                ended or the caller is cancelled, the program's input is closed and it is ended.
            leave: seconds that it may take to end by itself after its input was closed.
            grace: seconds from TERM to KILL.

        Raises:
            SyscallError: as for `run`, when it cannot be started.
            Exception: whatever `talk` raised; the program is ended first.
        """
        hostprogram.check(argv, env)
        began = trio.current_time()
        program = await trio.to_thread.run_sync(hostprogram.find, argv[0], cwd, env, abandon_on_cancel=True)
        run = await self._start(argv, program, cwd, env, agent, talks=True, one_pipe=False)
        try:
            await self._converse(run, talk, leave, grace)
        finally:
            self._forget(run)
        returncode = run.process.returncode
        duration = round((trio.current_time() - began) * 1000)
        return Ended(-signal.SIGKILL if returncode is None else returncode, False, duration)

    async def _converse(self, run: _Run, talk: Converse, leave: float, grace: float) -> None:
        failure: Exception | None = None
        said = trio.Event()

        async def speak(enough: trio.CancelScope) -> None:
            nonlocal failure
            try:
                await talk(run.process)
            except Exception as error:
                failure = error
            said.set()
            enough.cancel()

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(speak, nursery.cancel_scope)
                await run.leader_ended()
                # Others may hold the pipes.
                with trio.move_on_after(limits.CHILD_LINGER_SECONDS):
                    await said.wait()
                nursery.cancel_scope.cancel()
        finally:
            with trio.move_on_after(leave + grace + 2 * limits.CHILD_KILL_SECONDS, shield=True):
                await self._see_off(run, leave, grace)
        if failure is not None:
            raise failure

    async def _see_off(self, run: _Run, leave: float, grace: float) -> None:
        """Close the input of a program, and end everybody of the run who does not end by that."""
        assert run.process.stdin is not None
        assert run.process.stdout is not None
        assert run.process.stderr is not None
        await run.process.stdin.aclose()
        with trio.move_on_after(leave):
            await run.leader_ended()
        await self._end(run, grace)
        await run.process.wait()
        await run.process.stdout.aclose()
        await run.process.stderr.aclose()

    async def _start(
        self,
        argv: Sequence[str],
        program: str,
        cwd: str,
        env: Mapping[str, str],
        agent: int,
        talks: bool,
        one_pipe: bool,
    ) -> _Run:
        mark = secrets.token_hex(8)
        self._agent_of_mark[mark.encode()] = agent
        self._agent_of_session.clear()
        try:
            # Once its thread runs, a start cannot be cancelled, so no process is lost on the way.
            process = await trio.lowlevel.open_process(
                argv,
                executable=program,
                cwd=cwd,
                env={**env, **self._marks, hosttable.MARK: mark},
                stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if one_pipe else subprocess.PIPE,
                start_new_session=True,
            )
        except BaseException as error:
            del self._agent_of_mark[mark.encode()]
            if isinstance(error, OSError):
                raise hostprogram.refusal(error, argv[0], cwd) from error
            raise
        pidfd, since = hosttable.pidfd_of(process.pid), hosttable.start_of(process.pid)
        run = _Run(mark.encode(), process, pidfd, since)
        self._runs[process.pid] = run
        self._agent_of_session.clear()
        self._agent_of_session[process.pid] = agent
        return run

    def _forget(self, run: _Run) -> None:
        if run.pidfd is not None:
            os.close(run.pidfd)
        del self._runs[run.process.pid]
        del self._agent_of_mark[run.mark]
        self._agent_of_session.clear()

    async def _attend(self, run: _Run, talk: "_Talk", deadline: float, grace: float) -> bool:
        """Wait until a program or its time has ended, then end the rest; say whether its time was up."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk.hold, run.process)
            try:
                with talk.wanted:
                    with trio.move_on_at(deadline) as limit:
                        await run.leader_ended()
                    if not limit.cancelled_caught:
                        await talk.heard(limits.CHILD_LINGER_SECONDS)
            except trio.Cancelled:
                talk.deaf = True
                raise
            finally:
                # The end has limits of its own, and is not for the caller to cut short.
                with trio.move_on_after(grace + 2 * limits.CHILD_KILL_SECONDS, shield=True):
                    await self._end(run, grace)
                    await run.process.wait()
                    await talk.heard(limits.CHILD_LINGER_SECONDS)
                talk.scope.cancel()
        if talk.failure is not None:
            raise talk.failure
        return limit.cancelled_caught

    async def _end(self, run: _Run, grace: float) -> None:
        """End everybody of a run: TERM, and KILL for those who are left after the grace."""
        left = await self._signal(run, signal.SIGTERM, grace)
        if left:
            left = await self._signal(run, signal.SIGKILL, limits.CHILD_KILL_SECONDS)
        if left:
            pids = ", ".join(str(seen.pid) for seen in left)
            _log.warning("session %d: these processes do not end, even by SIGKILL: %s", run.process.pid, pids)

    async def _signal(self, run: _Run, number: signal.Signals, seconds: float) -> list[hosttable.Seen]:
        """Send a signal once to everybody of a run, also to those who appear later; return who is left."""
        told: set[tuple[int, int]] = set()
        give_up = trio.current_time() + seconds
        pause = 0.002
        while living := await self._living(run):
            fresh = [seen for seen in living if seen.key not in told]
            # The first time the group gets it as one, so that nobody slips away by a fork.
            together = not told and any(seen.group == run.process.pid for seen in fresh)
            if together:
                hosttable.signal_group(run.process.pid, number)
            for seen in fresh:
                if not (together and seen.group == run.process.pid):
                    hosttable.signal_process(seen, number)
            told.update(seen.key for seen in fresh)
            if trio.current_time() >= give_up:
                break
            await trio.sleep(min(pause, max(0.0, give_up - trio.current_time())))
            pause = min(2 * pause, 0.05)
        return living

    async def _living(self, run: _Run) -> list[hosttable.Seen]:
        """Everybody of a run who is alive; those who are dead and ours are reaped."""
        look = functools.partial(
            hosttable.members_of, run.process.pid, run.mark, run.started, frozenset(run.members)
        )
        try:
            with trio.fail_after(limits.CHILD_KILL_SECONDS):
                table, members = await trio.to_thread.run_sync(
                    look, limiter=self._scanners, abandon_on_cancel=True
                )
        except (OSError, trio.TooSlowError) as error:
            _log.warning("session %d: /proc cannot be read (%r); its group is killed", run.process.pid, error)
            hosttable.signal_group(run.process.pid, signal.SIGKILL)
            return []
        run.members.update(seen.key for seen in members)
        self._reap(run, table)
        return [seen for seen in members if seen.alive]

    def _reap(self, run: _Run, table: Iterable[hosttable.Seen]) -> None:
        """Reap the dead that were adopted.

        The child of somebody else in this daemon must never be taken for one: known members of the run are
        adopted, and so is every child in the run's session but its leader. Others are strays only when
        their owner has let them lie for long.
        """
        me, now = os.getpid(), trio.current_time()
        dead = [seen for seen in table if seen.parent == me and not seen.alive and seen.pid not in self._runs]
        strays: dict[tuple[int, int], float] = {}
        for seen in dead:
            if seen.session == run.process.pid or seen.key in run.members:
                hosttable.reap(seen.pid)
            elif self._adopts and seen.session != os.getsid(0):
                since = self._strays.get(seen.key, now)
                if now - since < _STRAY_SECONDS:
                    strays[seen.key] = since
                else:
                    hosttable.reap(seen.pid)
        self._strays = strays


class _Talk:
    """What a program is told and what it says.

    It goes on while the program is being ended, also for a caller who was cancelled: a pipe that breaks
    would kill programs that are just tidying up.

    Args:
        stdin: what it is told.
        stdout: takes what it says.
        stderr: takes what it says there; None if both come through one pipe.
    """

    def __init__(self, stdin: bytes, stdout: Give, stderr: Give | None) -> None:
        self.wanted = trio.CancelScope()  # left when a taker fails
        self.scope = trio.CancelScope(shield=True)
        self.deaf = False
        self.failure: Exception | None = None
        self._stdin = stdin
        self._takers = (stdout, stderr)
        self._open = 1 if stderr is None else 2
        self._heard = trio.Event()

    async def hold(self, process: trio.Process) -> None:
        """Feed and read a program until all its pipes are closed."""
        with self.scope:
            async with trio.open_nursery() as nursery:
                if process.stdin is not None:
                    nursery.start_soon(_feed, process.stdin, self._stdin)
                for stream, take in zip((process.stdout, process.stderr), self._takers, strict=True):
                    if stream is not None and take is not None:
                        nursery.start_soon(self._read, stream, take)

    async def heard(self, seconds: float) -> None:
        """Wait for the end of what it says, but not for long: others may hold the pipe."""
        with trio.move_on_after(seconds):
            await self._heard.wait()

    async def _read(self, stream: trio.abc.ReceiveStream, take: Give) -> None:
        async with stream:
            while chunk := await stream.receive_some(limits.CHILD_CHUNK):
                self._hand_over(bytes(chunk), take)
        self._open -= 1
        if not self._open:
            self._heard.set()

    def _hand_over(self, chunk: bytes, take: Give) -> None:
        if self.deaf or self.failure is not None:
            return
        try:
            take(chunk)
        except Exception as error:
            # Kept for the caller, who would get it as a group of one from here.
            self.failure = error
            self.wanted.cancel()


async def _feed(stream: trio.abc.SendStream, data: bytes) -> None:
    # A program need not read what it is given.
    with contextlib.suppress(trio.BrokenResourceError):
        async with stream:
            await stream.send_all(data)
