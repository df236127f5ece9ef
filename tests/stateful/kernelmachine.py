"""A machine that does at random whatever can be done to processes, beside a model of what must come of it.

Among the rest it suspends and wakes them, and throws the whole kernel away to build another from the log.

Over 400 lines because the rules and the laws are the methods of one machine.
"""

import functools
import json
import os
from collections import Counter
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rnixfs import limits
from rnixfs.errors import Code, SyscallError
from rnixfs.kernel import Kernel
from rnixfs.llm import Message, Role
from rnixfs.proc import capabilities
from rnixfs.proc.board import ChildState
from rnixfs.proc.channels import kin
from rnixfs.proc.files import process_dir
from rnixfs.proc.groups import signal_tree
from rnixfs.proc.process import Process
from rnixfs.proc.request import SpawnRequest
from rnixfs.proc.signals import Signal
from rnixfs.proc.state import Exit, State
from rnixfs.proc.supervision import ChildSpec, Restart, Strategy, SupervisorSpec
from rnixfs.proc.view import covers
from tests.stateful.machinelab import PERSON, STREAM, Job, Puppet, Stream, World

QUEUE = 4
PATHS = ("/", "/dev", "/dev/shell", "/dev/llm", "/dev/llm/one", "/proc", "/proc/spawn", "/proc/1", "/mnt")
GROUPS = ("red", "green", "blue")
ENDING = frozenset({Signal.TERM, Signal.INT, Signal.KILL})

numbers = st.integers(0, 11)
signals = st.sampled_from([*Signal, Signal.PAUSE, Signal.RESUME, Signal.PAUSE, Signal.RESUME])
paths = st.sampled_from(PATHS)
groups = st.sampled_from(GROUPS)
sizes = st.sampled_from([1, 17, 1000, limits.PIPE_BUF, limits.PIPE_BUF + 1, 40_000, 70_000])
views = st.sampled_from([None, None, None, ["/"], ["/dev", "/proc"], ["/dev/llm"], []])


class KernelMachine(RuleBasedStateMachine):
    """The rules are grouped as the kernel is; what must hold after each of them is at the end."""

    @initialize()
    def begin(self) -> None:
        """Start a kernel, and what is known of it."""
        self.world = World()
        self.told: set[int] = set()
        self.free: set[int] = set()
        self.strays: set[int] = set()
        self.rights: dict[int, dict[str, bool]] = {}
        self.elders: dict[int, int] = {}
        self.paused: set[int] = set()
        self.asleep: set[int] = set()
        self.blocked: dict[int, set[Signal]] = {}
        self.pending: dict[int, set[Signal]] = {}
        self.budgets: dict[int, int] = {}
        self.said: dict[int, list[str]] = {}
        self.heard: list[int] = []
        self.waits: list[tuple[int, int, Job]] = []
        self.values = 0
        self.sent: dict[int, list[int]] = {}
        self.got: dict[int, list[tuple[int, int]]] = {}
        self.receivers: dict[int, list[Job]] = {}
        self.groups: dict[str, tuple[bool, list[int]]] = {}
        self.streams: list[Stream] = []
        for parent in (0, 1, 1, 0):
            self._spawn(SpawnRequest(intent="do", parent=parent), self.world.all.get(parent))
        self.pipe(0, 1, waits=True)
        self.pipe(2, 3, waits=False)

    # --- choosing ---

    def _living(self) -> list[Process]:
        return [one for one in self.world.all.values() if one.live][-12:]

    @property
    def kernel(self) -> Kernel:
        """The kernel that runs now."""
        return self.world.kernel

    def _puppets(self) -> list[Puppet]:
        awake = [one.pid for one in self._living() if one.state is State.RUNNING and one.board is None]
        return [self.world.puppets[pid] for pid in awake]

    def _souls(self) -> list[Process]:
        return [one for one in self._living() if one.board is None]

    @staticmethod
    def _one(found: list[Any], number: int) -> Any:
        return found[number % len(found)] if found else None

    # --- being born ---

    def _spawn(self, request: SpawnRequest, parent: Process | None, then: str = "") -> Process | None:
        def step() -> Process:
            made = self.kernel.spawn(request, PERSON)
            if then == "kill":
                self.kernel.deliver(made, Signal.KILL)
            if then in ("suspend", "wake"):
                assert self.kernel.suspend(made, "at once")
            if then == "wake":
                self.kernel.wake(made)
            return made

        process, code = self.world.attempt(step)
        if process is None:
            assert parent is not None
            assert code is Code.RESOURCE_EXHAUSTED, code
            assert parent.depth >= limits.SPAWN_DEPTH_MAX
            return None
        self.elders[process.pid] = parent.pid if parent is not None else 0
        allowed = request.allowed_devices
        own = ["/"] if allowed is None else allowed
        self.rights[process.pid] = {path: any(covers(one, path) for one in own) for path in PATHS}
        if request.supervisor is None and (parent is None or parent.board is None):
            self.free.add(process.pid)
        if then == "kill":
            self.told.add(process.pid)
        if then == "suspend":
            self.asleep.add(process.pid)
        return process

    @rule(number=numbers, allowed=views)
    def spawn(self, number: int, allowed: list[str] | None) -> None:
        """A process of its own, or a child."""
        parent = self._one(self._living(), number) if number % 3 else None
        pid = parent.pid if parent else 0
        self._spawn(SpawnRequest(intent="do", parent=pid, allowed_devices=allowed), parent)

    @rule(number=numbers)
    def fork(self, number: int) -> None:
        """One more of a process, which may have ended: bound as it was, and a child of the same parent."""
        source = self._one([one for one in self.world.all.values() if one.pid in self.rights][-12:], number)
        if source is None or source.board is not None:
            return
        parent = source.parent if source.parent is not None and source.parent.live else None
        made = self.world.do(lambda: self.kernel.forks.fork(source, 0, PERSON))
        assert (made.parent, made.depth) == (parent, source.depth)
        self.elders[made.pid] = self.elders[source.pid]
        self.rights[made.pid] = dict(self.rights[source.pid])
        if source.pid in self.budgets:
            self.budgets[made.pid] = self.budgets[source.pid]
        if parent is None or parent.board is None:
            self.free.add(made.pid)
        if parent is None:
            self.strays.add(made.pid)

    @rule(then=st.sampled_from(["kill", "suspend", "wake"]))
    def stillborn(self, then: str) -> None:
        """Killed, or suspended, or suspended and woken, before its program ran."""
        self._spawn(SpawnRequest(intent="do", parent=0), None, then)

    @rule(
        number=numbers,
        strategy=st.sampled_from(list(Strategy)),
        kinds=st.tuples(st.sampled_from(list(Restart)), st.sampled_from(list(Restart))),
    )
    def supervisor(self, number: int, strategy: Strategy, kinds: tuple[Restart, Restart]) -> None:
        """A supervisor with two children."""
        parent = self._one(self._living(), number) if not number % 4 else None
        children = tuple(
            ChildSpec(name, intent="do", restart=kind) for name, kind in zip("ab", kinds, strict=True)
        )
        spec = SupervisorSpec("sup", children, strategy)
        self._spawn(SpawnRequest(supervisor=spec, parent=parent.pid if parent else 0), parent)

    # --- ending ---

    @rule(number=numbers, code=st.integers(0, 1), also=st.booleans())
    def exits(self, number: int, code: int, also: bool) -> None:
        """A program ends, or two in the same step."""
        found = self._puppets()
        chosen = {
            id(one): one
            for one in [self._one(found, number), *([self._one(found, number + 1)] * also)]
            if one
        }

        def step() -> None:
            for one in chosen.values():
                one.exit = Exit(code, "by itself")
                one.end.set()

        self.told |= {one.sys.pid for one in chosen.values()}
        self.world.do(step)

    @rule(number=numbers, signal=signals)
    def signal(self, number: int, signal: Signal) -> None:
        """A signal for one process."""
        process = self._one(self._living(), number)
        if process is not None:
            self._note(signal, [process])
            self.world.do(lambda: self.kernel.signal(process, signal, PERSON))

    def _note(self, signal: Signal, processes: list[Process]) -> None:
        for pid in {one.pid for one in processes}:
            if signal is not Signal.KILL and signal in self.blocked.get(pid, ()):
                self.pending.setdefault(pid, set()).add(signal)
            elif signal in ENDING:
                self.told.add(pid)
            elif signal is Signal.PAUSE:
                self.paused.add(pid)
            else:
                self.paused.discard(pid)

    @rule(number=numbers, signal=signals, let=st.booleans())
    def block(self, number: int, signal: Signal, let: bool) -> None:
        """A signal waits, once, until it is let through."""
        process = self._one([one for one in self._living() if one.pid in self.free], number)
        if process is None or signal is Signal.KILL:
            return
        if not let:
            self.blocked.setdefault(process.pid, set()).add(signal)
            self._tell(process, f"block {signal}")
            return
        self.blocked.get(process.pid, set()).discard(signal)
        if signal in self.pending.get(process.pid, ()):
            self.pending[process.pid].discard(signal)
            self._note(signal, [process])
        self._tell(process, f"unblock {signal}")

    def _tell(self, process: Process, line: str) -> Code | None:
        """Write a line to a control file; gives the refusal's code."""
        node = process_dir(self.kernel, process).lookup("ctl", PERSON)
        _, code = self.world.attempt(lambda: node.open(PERSON, os.O_WRONLY).write(f"{line}\n".encode(), 0))
        return code

    # --- suspending and waking ---

    @rule(number=numbers, tree=st.booleans(), times=st.integers(0, 2))
    def suspend(self, number: int, tree: bool, times: int) -> None:
        """A process, or it and all below it; sometimes it is woken and suspended again in the same step."""
        process = self._one(self._living(), number)
        if process is None:
            return
        if tree:
            for one in self._below(process):
                self._sleeps(one)
            assert self._tell(process, "suspend") is None
            return
        new = process.pid not in self.asleep
        self._sleeps(process)

        def step() -> bool:
            first = self.kernel.suspend(process, "for a while")
            for _ in range(times):
                self.kernel.wake(process)
                assert self.kernel.suspend(process, "for a while")
            return first

        assert self.world.do(step) is new

    @staticmethod
    def _below(root: Process) -> list[Process]:
        below = [root]
        for one in below:
            below += one.children.values()
        return [one for one in below if one.live]

    def _sleeps(self, process: Process) -> None:
        """What a run of a program had goes with it: its calls, and the ends of pipes that it had open."""
        if process.pid not in self.asleep:
            self._cut(process.pid)
        self.asleep.add(process.pid)

    def _cut(self, pid: int) -> None:
        self.waits = [one for one in self.waits if one[0] != pid]
        for stream in self.streams:
            stream.closed |= {end for end, (owner, _) in stream.ends.items() if owner == pid}

    @rule(number=numbers, tree=st.booleans())
    def wake(self, number: int, tree: bool) -> None:
        """Only what is suspended can be woken; of a tree all that are."""
        process = self._one(self._living(), number)
        if process is None:
            return
        below = self._below(process) if tree else [process]
        sleeping = {one.pid for one in below} & self.asleep
        self.asleep -= sleeping
        if tree:
            code = self._tell(process, "wake")
        else:
            _, code = self.world.attempt(lambda: self.kernel.wake(process))
        assert code is (None if sleeping else Code.INVALID), (code, sleeping)

    @rule(number=numbers, times=st.integers(1, 3))
    def nap(self, number: int, times: int) -> None:
        """A process is suspended and woken in one step: its program is started again, once."""
        process = self._one([one for one in self._living() if one.state is State.RUNNING], number)
        if process is None:
            return
        before = self.world.puppets.get(process.pid)
        self._cut(process.pid)

        def step() -> None:
            for _ in range(times):
                assert self.kernel.suspend(process, "for a moment")
                self.kernel.wake(process)

        self.world.do(step)
        assert process.board is not None or self.world.puppets[process.pid] is not before

    # --- another kernel ---

    @rule(gently=st.booleans())
    def restart(self, gently: bool) -> None:
        """The kernel is thrown away, with or without a word, and another one built from the log: who had not
        ended is suspended just as it was, who had is in the history; pipes between processes are gone."""
        before = {pid: self._portrait(process) for pid, process in self.world.all.items()}
        past = {pid for pid, process in self.world.all.items() if process.state is State.DEAD}
        living = {process.pid for process in self.world.all.values() if process.live}
        old = list(self.world.all.values())
        restored = self.world.restart(gently)
        self.asleep |= living
        self.waits.clear()
        self.streams.clear()
        assert (restored.suspended, restored.lost) == (len(living), 0)
        for pid, process in self.world.all.items():
            after = self._portrait(process)
            changed = {name: (was, after[name]) for name, was in before[pid].items() if after[name] != was}
            assert not changed, f"process {pid}: {changed}"
        assert not {id(process) for process in old} & {id(process) for process in self.world.all.values()}
        assert {one.pid for one in self.kernel.live()} == living
        uuids = [self.world.all[pid].uuid for pid in past]
        assert sorted(self.kernel.history.uuids()) == sorted(uuids)
        assert not past & set(self.kernel.processes)

    @staticmethod
    def _portrait(process: Process) -> dict[str, Any]:
        """All that a restart must not change."""
        shown: dict[str, Any] = {
            "uuid": process.uuid,
            "depth": process.depth,
            "ppid": process.ppid,
            "intent": process.launch.intent,
            "state": "suspended" if process.live else process.state,
            "exit": process.exit,
            "result": process.result,
            "rights": process.rights.listing(),
            "budget": process.budget,
            "messages": process.context.messages,
            "elapsed": process.elapsed_ms() if process.exit is not None else None,
            "suspended": process.suspended if process.exit is not None else None,
        }
        if not process.live:
            return shown
        return shown | {
            "paused": process.paused,
            "children": sorted(process.children),
            "untold": sorted(process.untold),
            "blocked": process.signals.blocked,
            "pending": process.signals.pending,
            "inbox": process.inbox,
            "board": process.board.listing() if process.board is not None else None,
        }

    @rule(number=numbers, signal=signals)
    def tree(self, number: int, signal: Signal) -> None:
        """A signal for a process and all below it, each once."""
        root = self._one(self._living(), number)
        if root is None:
            return
        below = [root]
        for one in below:
            below += one.children.values()
        reached = [one for one in below if one.live]
        self._note(signal, reached)
        before = len(self.world.diary.records)
        assert self.world.do(lambda: signal_tree(self.kernel, root, signal, PERSON)) == len(reached)
        later = self.world.diary.records[before:]
        counts = Counter(record.pid for record in later if record.event == "signal")
        if all(one.board is None for one in below):
            assert all(counts[one.pid] == 1 for one in reached)

    @rule(number=numbers)
    def rmdir(self, number: int) -> None:
        """A process is killed, reaped and taken out of the table, in whatever state it is."""
        process = self._one(list(self.kernel.processes.values())[-12:], number)
        if process is not None:
            self.told.add(process.pid)
            self.world.do(lambda: self.kernel.remove(process, PERSON))
            assert process.pid not in self.kernel.processes
            assert process.state is State.DEAD

    @rule()
    def a_minute_later(self) -> None:
        """The dead leave the table; nobody else notices."""
        self.world.do(lambda: self.world.clock.jump(limits.DEAD_VISIBLE_SECONDS + 1))
        assert all(one.state is not State.DEAD for one in self.kernel.processes.values())

    # --- hearing of the end ---

    @rule(number=numbers)
    def wait(self, number: int) -> None:
        """A parent waits for a child, which may have ended, and may have been waited for."""
        awake = {puppet.sys.pid for puppet in self._puppets()}
        pairs = [(one.ppid, one) for pid, one in self.kernel.processes.items() if one.ppid in awake]
        pair = self._one(pairs, number)
        if pair is None:
            return
        puppet, child = self.world.puppets[pair[0]], pair[1]
        job = self.world.do(
            lambda: self.world.call(puppet, lambda: puppet.sys.wait(child.pid), lambda _end: None)
        )
        self.waits.append((puppet.sys.pid, child.pid, job))

    @rule(number=numbers)
    def reap(self, number: int) -> None:
        """A parent takes the ends of its children: each once."""
        found = self._puppets()
        bereaved = [one for one in found if self.world.all[one.sys.pid].untold]
        puppet = self._one(bereaved or found, number)
        if puppet is None:
            return

        def step() -> list[int]:
            ends = [end.pid for end in puppet.sys.ended_children(heard=False)]
            puppet.sys.append(Message(Role.USER, str(ends)), told=tuple(ends))
            return ends

        self.heard += self.world.do(step)
        assert not self.world.all[puppet.sys.pid].untold

    # --- what people say ---

    @rule(number=numbers)
    def say(self, number: int) -> None:
        """It waits until the process has heard it."""
        process = self._one(self._living(), number)
        if process is not None:
            self.values += 1
            self.said.setdefault(process.pid, []).append(f"word {self.values}")
            assert self._tell(process, f"say word {self.values}") is None

    @rule(number=numbers)
    def listen(self, number: int) -> None:
        """A process hears what was said, all of it, once."""
        puppet = self._one(self._puppets(), number)
        if puppet is None:
            return
        words = self.said.pop(puppet.sys.pid, [])

        def step() -> list[str]:
            said = list(self.world.all[puppet.sys.pid].inbox)
            puppet.sys.append(*(Message(Role.USER, word) for word in said), inbox=len(said))
            return said

        assert self.world.do(step) == words

    @rule(number=numbers, tokens=st.integers(0, 9))
    def budget(self, number: int, tokens: int) -> None:
        """Another budget counts from now on, and over restarts."""
        process = self._one(self._living(), number)
        if process is not None:
            self.budgets[process.pid] = tokens
            assert self._tell(process, f"budget {tokens}") is None

    # --- groups ---

    @rule(name=groups)
    def make_group(self, name: str) -> None:
        """A group that lasts."""
        _, code = self.world.attempt(lambda: self.kernel.groups.make(name))
        assert code is (Code.EXISTS if name in self.groups else None)
        self.groups.setdefault(name, (True, []))

    @rule(name=groups, number=numbers)
    def join(self, name: str, number: int) -> None:
        """Joining makes a group where there is none, and changes nothing the second time."""
        process = self._one(self._living(), number)
        if process is not None:
            self.world.do(lambda: self.kernel.groups.join(process, name, PERSON))
            members = self.groups.setdefault(name, (False, []))[1]
            if process.pid not in members:
                members.append(process.pid)

    @rule(name=groups, number=numbers)
    def leave(self, name: str, number: int) -> None:
        """The last one to leave a group that joining made takes it along."""
        process = self._one(self._living(), number)
        if process is None:
            return
        _, code = self.world.attempt(lambda: self.kernel.groups.leave(process, name, PERSON))
        if name not in self.groups:
            assert code is Code.NOT_FOUND
        elif process.pid not in self.groups[name][1]:
            assert code is Code.INVALID
        else:
            assert code is None
            self.groups[name][1].remove(process.pid)
            self._tidy_groups()

    @rule(name=groups)
    def remove_group(self, name: str) -> None:
        """Only a group without members can be removed."""
        _, code = self.world.attempt(lambda: self.kernel.groups.remove(name))
        if name not in self.groups:
            assert code is Code.NOT_FOUND
        elif self.groups[name][1]:
            assert code is Code.NOT_EMPTY
        else:
            assert code is None
            del self.groups[name]

    @rule(name=groups, signal=signals)
    def signal_group(self, name: str, signal: Signal) -> None:
        """All members get it."""
        members = [self.world.all[pid] for pid in self.groups.get(name, (False, []))[1]]
        self._note(signal, members)
        reached, code = self.world.attempt(lambda: self.kernel.groups.signal(name, signal, PERSON))
        if name in self.groups:
            assert reached == len(members)
        else:
            assert code is Code.NOT_FOUND

    def _tidy_groups(self) -> None:
        for name, (lasting, members) in list(self.groups.items()):
            members[:] = [pid for pid in members if self.world.all[pid].live]
            if not members and not lasting:
                del self.groups[name]

    # --- messages ---

    def _permits(self, pid: int, path: str) -> bool:
        elder = self.elders[pid]
        return self.rights[pid][path] and (not elder or self._permits_of(elder, path))

    def _permits_of(self, pid: int, path: str) -> bool:
        return self._permits(pid, path) if pid in self.rights else self.world.all[pid].rights.permits(path)

    def _waiting(self, pid: int) -> int:
        return len(self.sent.get(pid, ())) - len(self.got.get(pid, ()))

    @rule(sender=numbers, receiver=numbers, count=st.integers(1, 6), kill=st.integers(0, 5))
    def send(self, sender: int, receiver: int, count: int, kill: int) -> None:
        """Messages in one step, and sometimes the end of the receiver in the same."""
        to = self._one([one.pid for one in self._souls()], receiver)
        if to is None:
            return
        source, process = self._one([0, *self.rights], sender), self.world.all[to]
        expected = self._refusal(source, process)
        self.kernel.channels.queue(process).max_messages = QUEUE
        room = QUEUE - self._waiting(to)

        def step() -> list[Code | None]:
            codes = [self._send(source, process) for _ in range(count)]
            if kill == 0:
                self.kernel.deliver(process, Signal.KILL)
            return codes

        if kill == 0:
            self.told.add(to)
        codes = self.world.do(step)
        if expected is not None:
            assert set(codes) == {expected}, codes
        else:
            full = max(0, count - room)
            assert codes == [None] * (count - full) + [Code.SERVICE_UNAVAILABLE] * full

    def _refusal(self, source: int, to: Process) -> Code | None:
        if source == 0:
            return None
        origin = self.world.all[source]
        if not origin.live:
            return Code.NOT_FOUND
        mailbox = "/proc/1" if to.pid == 1 else "/proc"
        return None if kin(origin, to) or self._permits(source, mailbox) else Code.PERMISSION

    def _send(self, source: int, receiver: Process) -> Code | None:
        self.values += 1
        try:
            self.kernel.channels.send(source, receiver, self.values)
        except SyscallError as error:
            return error.code
        self.sent.setdefault(receiver.pid, []).append(self.values)
        return None

    @rule(
        sender=numbers,
        receiver=numbers,
        steps=st.lists(st.sampled_from(["send", "take", "wait", "wait"]), min_size=3, max_size=9),
    )
    def chat(self, sender: int, receiver: int, steps: list[str]) -> None:
        """Messages for one process, now and then more than it takes."""
        for step in steps:
            if step == "send":
                self.send(sender, receiver, count=2, kill=1)
            else:
                self.receive(receiver, step == "wait")
            self._messages()

    @rule(number=numbers, wait=st.booleans())
    def receive(self, number: int, wait: bool) -> None:
        """The next message, or a place in the line of those who wait."""
        puppet = self._one(self._puppets(), number)
        if puppet is None:
            return
        pid = puppet.sys.pid
        place, empty = len(self.receivers.get(pid, ())), not self._waiting(pid)
        note = functools.partial(self._received, pid, place)
        job = self.world.do(lambda: self.world.call(puppet, lambda: puppet.sys.recv(wait=wait), note))
        self.receivers.setdefault(pid, []).append(job)
        assert job.done or (wait and empty)
        assert job.code is (Code.SERVICE_UNAVAILABLE if empty and not wait else None)

    def _received(self, pid: int, place: int, message: dict[str, Any]) -> None:
        self.got.setdefault(pid, []).append((place, message["data"]))

    # --- pipes ---

    @rule(writer=numbers, reader=numbers, waits=st.booleans())
    def pipe(self, writer: int, reader: int, waits: bool) -> None:
        """A pipe from one process to another, or to itself."""
        found = self._puppets()
        if not found:
            return
        one, other = (self.world.all[self._one(found, number).sys.pid] for number in (writer, reader))
        flags = 0 if waits else os.O_NONBLOCK
        pipe, write_fd, read_fd = self.world.do(
            lambda: self.kernel.channels.connect(one, other, PERSON, flags)
        )
        ends = {"write": (one.pid, write_fd), "read": (other.pid, read_fd)}
        self.streams.append(Stream(pipe, ends, waits))

    def _open(self, stream: Stream, end: str) -> bool:
        return end not in stream.closed and self.world.all[stream.ends[end][0]].live

    def _usable(self, stream: Stream, end: str) -> bool:
        return self._open(stream, end) and not stream.busy(end)

    @precondition(lambda self: self.streams)
    @rule(
        number=numbers,
        steps=st.lists(
            st.tuples(st.sampled_from(["write", "write", "read", "read", "read", "hang up"]), sizes),
            min_size=2,
            max_size=10,
        ),
    )
    def traffic(self, number: int, steps: list[tuple[str, int]]) -> None:
        """Writes and reads of all sizes, on one pipe that still has an end."""
        found = [one for one in self.streams if self._open(one, "write") or self._open(one, "read")]
        stream = self._one(found[-4:], number)
        for end, size in steps if stream is not None else ():
            if end == "hang up":
                self._hang_up(stream)
            elif self._usable(stream, end):
                (self._write if end == "write" else self._read)(stream, size)
                self._pipes()

    def _hang_up(self, stream: Stream) -> None:
        """Close an end while somebody waits at the other, who then sees it."""
        for end, other in (("write", "read"), ("read", "write")):
            if stream.busy(other) and self._usable(stream, end):
                self._close(stream, end)
                assert stream.jobs[other].done, "it still waits at a pipe whose other end is closed"
                assert stream.jobs[other].code is (Code.BROKEN_PIPE if other == "write" else None)
                return

    def _write(self, stream: Stream, size: int) -> None:
        """What does not fit is left out; what is small goes in whole or not at all."""
        if stream.written + size > len(STREAM):
            return
        pid, fd = stream.ends["write"]
        room = limits.PIPE_BYTES - (stream.written - stream.taken)
        fits = room >= size or (size > limits.PIPE_BUF and room > 0)
        reads, pending, before = self._open(stream, "read"), stream.busy("read"), stream.written
        data = STREAM[before : before + size]

        def wrote(count: int) -> None:
            stream.written += count

        self._at(stream, "write", lambda sys: sys.write(fd, data), wrote, pid)
        job = stream.jobs["write"]
        if not reads:
            assert job.code is Code.BROKEN_PIPE
        elif fits:
            assert job.done
            assert job.code is None
            assert pending or stream.written == before + min(size, room)
        else:
            assert job.done is not stream.waits
            assert job.code is (None if stream.waits else Code.SERVICE_UNAVAILABLE)

    def _read(self, stream: Stream, size: int) -> None:
        """What was written, in its order; the end only after the last byte of a writer who is gone."""
        pid, fd = stream.ends["read"]
        held, writes = stream.written - stream.taken, self._open(stream, "write")
        counts: list[int] = []

        def took(data: bytes) -> None:
            assert data == STREAM[stream.taken : stream.taken + len(data)], "other bytes than were written"
            stream.taken += len(data)
            counts.append(len(data))

        self._at(stream, "read", lambda sys: sys.read(fd, size), took, pid)
        job = stream.jobs["read"]
        if held or not writes:
            assert counts == [min(size, held)]
        else:
            assert job.done is not stream.waits
            assert job.code is (None if stream.waits else Code.SERVICE_UNAVAILABLE)

    def _at(self, stream: Stream, end: str, act: Any, then: Any, pid: int) -> None:
        puppet = self.world.puppets[pid]

        def step() -> None:
            stream.jobs[end] = self.world.call(puppet, lambda: act(puppet.sys), then)

        self.world.do(step)

    @precondition(lambda self: self.streams)
    @rule(number=numbers, end=st.sampled_from(["read", "write"]))
    def close(self, number: int, end: str) -> None:
        """Either end may go first."""
        stream = self._one([one for one in self.streams if self._open(one, end)][-4:], number)
        if stream is not None:
            self._close(stream, end)

    def _close(self, stream: Stream, end: str) -> None:
        pid, fd = stream.ends[end]
        stream.closed.add(end)
        self.world.do(lambda: self.world.puppets[pid].sys.close_now(fd))

    # --- rights ---

    @rule(number=numbers, path=paths, give=st.booleans())
    def change_rights(self, number: int, path: str, give: bool) -> None:
        """A right that the parent lacks cannot be given; each change reaches what lies below the path."""
        process = self._one([one for one in self._living() if one.pid in self.rights], number)
        if process is None:
            return
        elder = self.elders[process.pid]
        change = capabilities.grant if give else capabilities.revoke
        _, code = self.world.attempt(lambda: change(self.kernel, process, path, PERSON))
        if give and elder and not self._permits_of(elder, path):
            assert code is Code.PERMISSION
            return
        assert code is None
        own = self.rights[process.pid]
        own.update({one: give for one in own if covers(path, one)})

    # --- what holds after each rule ---

    @invariant()
    def laws(self) -> None:
        """All of them."""
        self._check()
        self._supervision()

    def _check(self) -> None:
        self._life()
        self._runs()
        self._obedience()
        self._ends_are_heard()
        self._messages()
        self._pipes()
        self._membership()
        self._rights_are_within_the_parents()

    def _life(self) -> None:
        """No pid twice; ends and reaps once each; zombies only with a parent that lives; no false count."""
        assert not self.world.problems, self.world.problems
        everybody = self.world.all
        born = [record.pid for record in self.world.events("spawn")]
        assert born == list(range(1, len(born) + 1))
        exits, reaps = (Counter(one.pid for one in self.world.events(event)) for event in ("exit", "reap"))
        assert exits == Counter(pid for pid, one in everybody.items() if not one.live)
        assert reaps == Counter(pid for pid, one in everybody.items() if one.state is State.DEAD)
        for process in everybody.values():
            assert process.exit is None or "inside its program" not in process.exit.reason, process.exit
            if process.state is State.ZOMBIE:
                assert process.parent is not None
                assert process.parent.live
        assert self.kernel._live == sum(one.live for one in everybody.values())
        assert self.kernel._live == len(self.kernel.live())

    def _runs(self) -> None:
        """A process that runs has one task of its program, any other none; the suspended are those that were
        suspended, and what they are told waits for them."""
        for pid, process in self.world.all.items():
            if process.board is None:
                assert self.world.inside[pid] == (process.state is State.RUNNING), pid
            if process.live:
                assert (process.state is State.SUSPENDED) is (pid in self.asleep), pid
                assert bool(process.suspended) is (pid in self.asleep)
                assert process.inbox == self.said.get(pid, [])
                assert process.budget.tokens == self.budgets.get(pid, 0)
                assert process.signals.blocked == self.blocked.get(pid, set())
                assert process.signals.pending == self.pending.get(pid, set())

    def _obedience(self) -> None:
        """Who was told to end has ended, nobody else has, and the paused are those that were paused."""
        for pid, process in self.world.all.items():
            if pid in self.told:
                assert not process.live, f"process {pid} lives on"
            elif pid in self.free:
                assert process.live, f"process {pid} ended: {process.exit}"
            if process.live:
                assert process.paused is (pid in self.paused)

    def _ends_are_heard(self) -> None:
        """Each end is told once, and nobody waits for a child that has ended."""
        assert len(self.heard) == len(set(self.heard))
        for parent, child, job in self.waits:
            alive = self.world.all[parent].live and self.world.all[child].live
            assert job.done is not alive
            if job.done and self.world.all[parent].live:
                assert self.world.all[child].state is State.DEAD

    def _messages(self) -> None:
        """What was received and what waits, together and in order, is what was sent."""
        unread = {record.pid: record.data["messages"] for record in self.world.events("unread")}
        for pid, sent in self.sent.items():
            process, got = self.world.all[pid], self.got.get(pid, [])
            places = [place for place, _ in got]
            assert places == sorted(places), "somebody was served out of turn"
            assert [value for _, value in got] == sent[: len(got)]
            rest = sent[len(got) :]
            if process.live:
                lines = self.kernel.channels.queue(process).lines().splitlines()
                assert [json.loads(line)["data"] for line in lines] == rest
                assert not rest or all(job.done for job in self.receivers.get(pid, ()))
            else:
                assert unread.get(pid, 0) == len(rest)
        assert all(self.world.all[pid].live for pid in self.kernel.channels._queues)

    def _pipes(self) -> None:
        """A pipe holds just the bytes that went in and not out, and nobody waits without need."""
        for stream in self.streams:
            pipe = stream.pipe
            assert pipe.data == STREAM[stream.taken : stream.written]
            ends = [self._open(stream, "write"), self._open(stream, "read")]
            assert [pipe.writers, pipe.readers] == ends
            assert not stream.busy("read") or (not pipe.data and ends[0])
            assert not stream.busy("write") or (pipe.room < limits.PIPE_BUF and ends[1])

    def _membership(self) -> None:
        """The members of a group are those that joined and live, in the order of joining."""
        self._tidy_groups()
        found = {name: list(self.kernel.groups.group(name).members) for name in self.kernel.groups.names()}
        assert found == {name: members for name, (_, members) in self.groups.items()}
        for process in self._living():
            mine = {name for name, (_, members) in self.groups.items() if process.pid in members}
            assert set(self.kernel.groups.of(process)) == mine

    def _rights_are_within_the_parents(self) -> None:
        """Nobody may use what its parent may not, and each may use what it was given."""
        for pid in self.rights:
            process, elder = self.world.all[pid], self.world.all.get(self.elders[pid])
            for path in PATHS:
                assert process.rights.permits(path) is self._permits(pid, path), (pid, path)
                assert elder is None or not process.rights.permits(path) or elder.rights.permits(path)

    def _supervision(self) -> None:
        """A supervisor's children run as its board says, one incarnation of each; none outlives it."""
        for process in self.world.all.values():
            if process.board is None:
                continue
            born = [one for one in self.world.events("spawn") if one.data.get("ppid") == process.pid]
            living = {one.pid for one in born if self.world.all[one.pid].live} - self.strays
            if not process.live:
                assert not living
                continue
            if process.paused or process.suspended:
                continue
            running = {one.pid for one in process.board.children.values() if one.state is ChildState.RUNNING}
            assert running <= living
            assert living - running <= self.elders.keys()
            for child in process.board.children.values():
                assert child.state in (ChildState.RUNNING, ChildState.DONE, ChildState.FAILED)
                assert child.spec.restart is not Restart.PERMANENT or child.pid in running

    # --- the end ---

    def teardown(self) -> None:
        """When all have ended, nothing of anybody is left."""
        if not hasattr(self, "world"):
            return
        try:
            self._end()
        finally:
            self.world.stop()

    def _end(self) -> None:
        def step() -> None:
            while live := self.kernel.live():
                self.kernel.deliver(live[-1], Signal.KILL)

        self.world.do(step)
        self.told |= set(self.world.all)
        self._check()
        assert not self.kernel.live()
        assert not self.kernel.channels._queues
        assert all(one.state is State.DEAD for one in self.world.all.values())
        self.world.do(lambda: self.world.clock.jump(limits.DEAD_VISIBLE_SECONDS + 1))
        assert not self.kernel.processes
        nursery = self.kernel._nursery
        assert nursery is not None
        assert not nursery.child_tasks, "a task of the kernel goes on"
