"""Process groups: who is in one, who may command it, and that a signal reaches each member once."""

import os
from collections import Counter as Tally

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from rnixfs import limits
from rnixfs.errors import Code, SyscallError
from rnixfs.proc.process import Process
from rnixfs.proc.signals import Signal
from rnixfs.syscalls import Syscalls
from rnixfs.types import Kind
from tests.groups.grouplab import Counter, Lab, refused
from tests.kernel.kernellab import PERSON, SpyStore, agent, done

# --- making and removing ---


async def test_mkdir_makes_a_group_and_rmdir_removes_an_empty_one(lab, autojump_clock):
    """With a document and a control file in it; the name is free again after."""
    groups = lab.folder("/proc/groups")
    assert lab.names("/proc/groups") == []
    made = groups.mkdir("team", 0o755, PERSON)
    assert made.stat().kind is Kind.DIRECTORY
    assert lab.names("/proc/groups") == ["team"]
    assert lab.names("/proc/groups/team") == ["members", "ctl"]
    assert lab.read("/proc/groups/team/members") == ""
    groups.rmdir("team", PERSON)
    assert lab.names("/proc/groups") == []
    with refused(Code.NOT_FOUND):
        lab.node("/proc/groups/team")
    again = groups.mkdir("team", 0o755, PERSON)
    assert again != made


async def test_a_group_with_members_cannot_be_removed(lab, autojump_clock):
    """As a folder with files in it."""
    process, _ = await lab.puppet()
    lab.folder("/proc/groups").mkdir("team", 0o755, PERSON)
    lab.write(f"/proc/{process.pid}/ctl", "join team\n")
    with refused(Code.NOT_EMPTY, "1 member"):
        lab.folder("/proc/groups").rmdir("team", PERSON)
    lab.write(f"/proc/{process.pid}/ctl", "leave team\n")
    lab.folder("/proc/groups").rmdir("team", PERSON)


async def test_a_group_is_made_once(lab, autojump_clock):
    """A second mkdir is refused, as for folders; one that is not there cannot be removed."""
    groups = lab.folder("/proc/groups")
    groups.mkdir("team", 0o755, PERSON)
    with refused(Code.EXISTS, "team"):
        groups.mkdir("team", 0o755, PERSON)
    with refused(Code.NOT_FOUND, "other"):
        groups.rmdir("other", PERSON)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", Code.INVALID),
        (".", Code.INVALID),
        ("..", Code.INVALID),
        ("a/b", Code.INVALID),
        ("a\nb", Code.INVALID),
        (" a", Code.INVALID),
        ("a\0", Code.INVALID),
        ("a\udc80", Code.INVALID),
        ("ä" * 128, Code.NAME_TOO_LONG),
    ],
)
async def test_names_of_groups_are_names_of_files(lab, autojump_clock, name, code):
    """By mkdir and by joining alike; what is refused leaves nothing."""
    process, sys = await lab.puppet()
    with refused(code):
        lab.folder("/proc/groups").mkdir(name, 0o755, PERSON)
    with refused(code):
        lab.kernel.groups.join(process, name, sys._process.caller)
    assert lab.names("/proc/groups") == []


@pytest.mark.parametrize("name", ["team", "ä" * 127, "a b", "-x", "1", ".hidden"])
async def test_other_names_can_be_joined_and_found(lab, autojump_clock, name):
    """Through the control file, the calls and the folder."""
    process, sys = await lab.puppet()
    lab.write(f"/proc/{process.pid}/ctl", f"join {name}\n")
    assert lab.names("/proc/groups") == [name]
    assert lab.read(f"/proc/groups/{name}/members") == f"{process.pid}\n"
    assert await sys.get_proc_group(name) == [process.pid]


async def test_the_number_of_groups_is_limited(lab, autojump_clock, monkeypatch):
    """With a sentence that names the limit; removing one makes room."""
    monkeypatch.setattr(limits, "GROUPS_MAX", 2)
    groups = lab.folder("/proc/groups")
    groups.mkdir("a", 0o755, PERSON)
    groups.mkdir("b", 0o755, PERSON)
    with refused(Code.RESOURCE_EXHAUSTED, "2 process groups"):
        groups.mkdir("c", 0o755, PERSON)
    groups.rmdir("a", PERSON)
    groups.mkdir("c", 0o755, PERSON)


# --- members ---


async def test_members_are_listed_in_the_order_of_joining(lab, autojump_clock):
    """One pid a line; joining twice changes nothing, not even the time of the file."""
    (first, _), (second, sys) = await lab.puppet(), await lab.puppet()
    await sys.join_group("team")
    lab.write(f"/proc/{first.pid}/ctl", "join team\n")
    before = lab.node("/proc/groups/team/members").stat()
    await sys.join_group("team")
    assert lab.read("/proc/groups/team/members") == f"{second.pid}\n{first.pid}\n"
    assert lab.node("/proc/groups/team/members").stat() == before
    assert lab.kernel.groups.of(first) == ["team"]


async def test_members_cannot_be_written(lab, autojump_clock):
    """They are changed by joining."""
    lab.folder("/proc/groups").mkdir("team", 0o755, PERSON)
    with refused(Code.PERMISSION):
        lab.node("/proc/groups/team/members").open(PERSON, os.O_WRONLY)
    with refused(Code.NOT_PERMITTED):
        lab.folder("/proc/groups/team").unlink("members", PERSON)


async def test_a_group_made_by_joining_goes_with_its_last_member(lab, autojump_clock):
    """One made by mkdir stays."""
    process, sys = await lab.puppet()
    lab.folder("/proc/groups").mkdir("stays", 0o755, PERSON)
    for name in ("stays", "goes"):
        await sys.join_group(name)
    for name in ("stays", "goes"):
        await sys.leave_group(name)
    assert lab.names("/proc/groups") == ["stays"]
    assert lab.kernel.groups.of(process) == []


@pytest.mark.parametrize("signal", [Signal.KILL, Signal.TERM])
async def test_who_ends_leaves_all_groups(lab, autojump_clock, signal):
    """However it ends."""
    (process, sys), (_, other) = await lab.puppet(), await lab.puppet()
    lab.folder("/proc/groups").mkdir("stays", 0o755, PERSON)
    for name in ("stays", "goes", "shared"):
        await sys.join_group(name)
    await other.join_group("shared")
    lab.kernel.signal(process, signal, PERSON)
    await process.done.wait()
    assert lab.names("/proc/groups") == ["stays", "shared"]
    assert await other.get_proc_group("shared") == [other.pid]
    assert lab.read("/proc/groups/stays/members") == ""
    with refused(Code.INVALID, "has ended"):
        lab.write(f"/proc/{process.pid}/ctl", "join stays\n")


async def test_who_is_not_in_a_group_cannot_leave_it(lab, autojump_clock):
    """NOT_FOUND for no such group, INVALID for no member."""
    _, sys = await lab.puppet()
    with refused(Code.NOT_FOUND, "team"):
        await sys.leave_group("team")
    lab.folder("/proc/groups").mkdir("team", 0o755, PERSON)
    with refused(Code.INVALID, "not in"):
        await sys.leave_group("team")
    with refused(Code.NOT_FOUND, "no process 99"):
        await sys.join_group("team", 99)


# --- power ---


async def test_a_process_moves_itself_and_its_descendants_only(lab, autojump_clock):
    """By the calls and by the control file."""
    _, sys = await lab.puppet()
    child, _ = await lab.puppet(parent=sys.pid)
    stranger, _ = await lab.puppet()
    await sys.join_group("team", child.pid)
    await sys.leave_group("team", child.pid)
    lab.write(f"/proc/{child.pid}/ctl", "join team\n", agent(sys.pid))
    with refused(Code.PERMISSION, "no power over process"):
        await sys.join_group("team", stranger.pid)
    with refused(Code.PERMISSION):
        lab.write(f"/proc/{stranger.pid}/ctl", "join team\n", agent(sys.pid))
    assert lab.read("/proc/groups/team/members") == f"{child.pid}\n"


async def test_groups_need_the_right_to_their_folder(lab, autojump_clock):
    """A process that may not use `/proc/groups` neither makes, joins, reads nor signals one."""
    process, sys = await lab.puppet(allowed_devices=["/dev"])
    lab.folder("/proc/groups").mkdir("team", 0o755, PERSON)
    for call in (
        lambda: sys.join_group("team"),
        lambda: sys.leave_group("team"),
        lambda: sys.get_proc_group("team"),
        lambda: sys.signal_group("team", Signal.INT),
    ):
        with refused(Code.PERMISSION, "/proc/groups/team"):
            await call()
    with refused(Code.PERMISSION, "/proc/groups/team"):
        lab.write(f"/proc/{process.pid}/ctl", "join team\n", agent(process.pid))
    lab.write(f"/proc/{process.pid}/ctl", "join team\ngrant /proc/groups/team\n")
    assert await sys.get_proc_group("team") == [process.pid]


async def test_a_group_is_signalled_by_who_has_power_over_all(lab, autojump_clock):
    """A member beyond means that nobody gets it; people and common ancestors may always."""
    counter = Counter()
    _, parent = await lab.puppet()
    children = [(await lab.puppet(parent=parent.pid))[1] for _ in range(3)]
    _, stranger = await lab.puppet()
    for sys in [*children, stranger]:
        counter.watch(sys)
        await sys.join_group("team")
    with refused(Code.PERMISSION, f"no power over process {stranger.pid} in"):
        await parent.signal_group("team", Signal.INT)
    with refused(Code.PERMISSION):
        lab.write("/proc/groups/team/ctl", "signal INT\n", agent(parent.pid))
    assert counter.got == []
    lab.write("/proc/groups/team/ctl", "signal INT\n")
    assert counter.got == [*(sys.pid for sys in children), stranger.pid]
    await stranger.leave_group("team")
    counter.got.clear()
    assert await parent.signal_group("team", Signal.INT) == 3
    assert counter.got == [sys.pid for sys in children]


# --- signals ---


async def test_what_the_control_file_of_a_group_takes(lab, autojump_clock):
    """Any spelling of a signal; anything else is refused with what would be right."""
    process, sys = await lab.puppet()
    await sys.join_group("team")
    assert lab.read("/proc/groups/team/ctl").split()[:2] == ["signal", "NAME"]
    lab.write("/proc/groups/team/ctl", "signal sigpause\n")
    assert process.paused
    lab.write("/proc/groups/team/ctl", "SIGNAL 5\n")
    assert not process.paused
    with refused(Code.INVALID, "no signal 'HUP'"):
        lab.write("/proc/groups/team/ctl", "signal HUP\n")
    with refused(Code.INVALID, "unknown command 'kill'"):
        lab.write("/proc/groups/team/ctl", "kill\n")


async def test_an_open_control_file_of_a_removed_group_reaches_nobody(lab, autojump_clock):
    """Not even those of a new group with the same name."""
    groups = lab.folder("/proc/groups")
    groups.mkdir("team", 0o755, PERSON)
    file = lab.node("/proc/groups/team/ctl").open(PERSON, os.O_WRONLY)
    groups.rmdir("team", PERSON)
    counter = Counter()
    _, sys = await lab.puppet()
    counter.watch(sys)
    await sys.join_group("team")
    with refused(Code.NOT_FOUND):
        file.write(b"signal INT\n", 0)
    assert counter.got == []


async def test_members_that_come_and_go_while_a_signal_goes_round(lab, autojump_clock):
    """Who is in it when the signal is sent gets it once: also who is made to leave, not who joins then."""
    got: list[int] = []
    (_, first), (_, leaver), (_, joiner), (_, victim), (_, last) = [await lab.puppet() for _ in range(5)]

    def at_first(_signal: Signal) -> None:
        got.append(first.pid)
        groups, processes = lab.kernel.groups, lab.kernel.processes
        groups.leave(processes[leaver.pid], "team", PERSON)
        groups.join(processes[joiner.pid], "team", PERSON)
        lab.kernel.deliver(processes[victim.pid], Signal.KILL)

    first.on_signal(Signal.INT, at_first)
    for sys in (leaver, joiner, victim, last):
        sys.on_signal(Signal.INT, lambda _signal, pid=sys.pid: got.append(pid))
    for sys in (first, leaver, victim, last):
        await sys.join_group("team")
    assert lab.kernel.groups.signal("team", Signal.INT, PERSON) == 4
    assert got == [first.pid, leaver.pid, last.pid]
    assert await first.get_proc_group("team") == [first.pid, last.pid, joiner.pid]


async def test_a_group_can_be_killed(lab, autojump_clock):
    """Everybody ends, and the group with them."""
    members = [await lab.puppet() for _ in range(4)]
    for _, sys in members:
        await sys.join_group("team")
    lab.write("/proc/groups/team/ctl", "signal KILL\n")
    assert [process.live for process, _ in members] == [False] * 4
    assert lab.names("/proc/groups") == []


async def test_a_handler_that_fails_keeps_the_signal_from_nobody(lab, autojump_clock):
    """It is a fault of one program only."""
    (process, broken), (_, other) = await lab.puppet(), await lab.puppet()
    counter = Counter()

    def fail(_signal: Signal) -> None:
        raise ValueError("oops")

    broken.on_signal(Signal.INT, fail)
    counter.watch(other)
    for sys in (broken, other):
        await sys.join_group("team")
    lab.write("/proc/groups/team/ctl", "signal INT\n")
    assert counter.got == [other.pid]
    assert process.live


async def test_the_calls_on_groups_are_traced_by_name(lab, autojump_clock):
    """With what they were given and what came of it."""
    process, sys = await lab.puppet()
    sys.block(Signal.TERM)
    await sys.join_group("team")
    await sys.get_proc_group("team")
    await sys.signal_group("team", Signal.TERM)
    assert sys.sig_pending() == {Signal.TERM}
    await sys.leave_group("team")
    with refused(Code.NOT_FOUND):
        await sys.signal_group("team", Signal.INT)
    calls = [(call["syscall"], call.get("result"), call.get("error", "")) for call in lab.trace(process)][1:]
    assert calls[:5] == [
        ("JoinGroup", "0", ""),
        ("GetProcGroup", "1 processes", ""),
        ("SignalGroup", "1 processes", ""),
        ("SigPending", "SIGTERM", ""),
        ("LeaveGroup", "0", ""),
    ]
    assert calls[5][0] == "SignalGroup"
    assert calls[5][2].startswith("NOT_FOUND")


async def test_each_change_is_an_event_before_it_shows(nursery, autojump_clock):
    """So that the log says who was in which group; an exit says it for all groups of a process."""
    store = SpyStore()
    lab = Lab(store)
    seen: list[list[str]] = []
    store.look = lambda event, _pid: seen.append([event, *lab.kernel.groups.names()])
    await nursery.start(lab.kernel.run)
    process = lab.spawn(done)
    lab.folder("/proc/groups").mkdir("team", 0o755, PERSON)
    lab.kernel.groups.join(process, "own", PERSON)
    lab.kernel.groups.leave(process, "own", PERSON)
    lab.folder("/proc/groups").rmdir("team", PERSON)
    assert seen[2:] == [
        ["make_group"],
        ["make_group", "team"],
        ["join_group", "team", "own"],
        ["leave_group", "team", "own"],
        ["remove_group", "team", "own"],
        ["remove_group", "team"],
    ]
    assert store.events(process.pid) == ["spawn", "join_group", "leave_group"]


# --- at random, against a model ---

STEP = st.tuples(
    st.sampled_from(["join", "leave", "spawn", "kill", "signal", "mkdir", "rmdir"]),
    st.integers(0, 5),
    st.sampled_from(["a", "b", "c"]),
)


class Model:
    """What groups ought to do, in a few lines.

    Args:
        lab: has the kernel.
    """

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.members: dict[str, list[int]] = {}
        self.lasting: set[str] = set()
        self.processes: list[tuple[Process, Syscalls]] = []
        self.expected: Tally[int] = Tally()
        self.counter = Counter()
        self.may = True

    def _left(self, name: str, pid: int) -> None:
        self.members[name].remove(pid)
        if not self.members[name] and name not in self.lasting:
            del self.members[name]

    async def spawn(self, _pick: int, _name: str) -> None:
        self.processes.append(await self.lab.puppet())
        self.counter.watch(self.processes[-1][1])

    async def kill(self, pick: int, _name: str) -> None:
        if pick >= len(self.processes):
            return
        process, _ = self.processes.pop(pick)
        self.lab.kernel.signal(process, Signal.KILL, PERSON)
        for name in [name for name, pids in self.members.items() if process.pid in pids]:
            self._left(name, process.pid)

    async def join(self, pick: int, name: str) -> None:
        if pick >= len(self.processes):
            return
        sys = self.processes[pick][1]
        await sys.join_group(name)
        if sys.pid not in self.members.setdefault(name, []):
            self.members[name].append(sys.pid)

    async def leave(self, pick: int, name: str) -> None:
        if pick >= len(self.processes):
            return
        sys = self.processes[pick][1]
        self.may = sys.pid in self.members.get(name, [])
        await sys.leave_group(name)
        self._left(name, sys.pid)

    async def signal(self, _pick: int, name: str) -> None:
        self.may = name in self.members
        self.lab.write(f"/proc/groups/{name}/ctl", "signal INT")
        self.expected.update(self.members[name])

    async def mkdir(self, _pick: int, name: str) -> None:
        self.may = name not in self.members
        self.lab.folder("/proc/groups").mkdir(name, 0o755, PERSON)
        self.members[name] = []
        self.lasting.add(name)

    async def rmdir(self, _pick: int, name: str) -> None:
        self.may = self.members.get(name) == []
        self.lab.folder("/proc/groups").rmdir(name, PERSON)
        del self.members[name]
        self.lasting.discard(name)

    def check(self) -> None:
        """Compare all that can be seen."""
        assert sorted(self.lab.names("/proc/groups")) == sorted(self.members)
        for name, pids in self.members.items():
            assert self.lab.read(f"/proc/groups/{name}/members") == "".join(f"{pid}\n" for pid in pids)
        assert Tally(self.counter.got) == self.expected


async def play(steps: list[tuple[str, int, str]]) -> None:
    """Do the steps with the kernel and the model, and compare after each."""
    lab = Lab()
    async with trio.open_nursery() as nursery:
        await nursery.start(lab.kernel.run)
        model = Model(lab)
        for what, pick, name in steps:
            before = {name: list(pids) for name, pids in model.members.items()}
            model.may, refusal = True, None
            try:
                await getattr(model, what)(pick, name)
            except SyscallError as error:
                refusal = error
                assert model.members == before
            assert model.may is (refusal is None), refusal
            model.check()
        await lab.kernel.suspend_all()
        model.check()  # whoever is suspended stays where it is
        for process in lab.kernel.live():
            lab.kernel.deliver(process, Signal.KILL)
        assert not lab.kernel.groups._of
        assert set(lab.names("/proc/groups")) == model.lasting
        nursery.cancel_scope.cancel()


@given(st.lists(STEP, max_size=40))
def test_groups_agree_with_a_model(steps):
    """In whatever order: members are who joined and live, and each signal reaches each of them once."""
    trio.run(play, steps, clock=MockClock(autojump_threshold=0))
