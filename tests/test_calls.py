"""The 45 system calls: that the table is whole, that its page is made from it, and each call by its name.

Longer than most modules: every call has a test of its own here, found by its name.
"""

import contextlib
import os
import pathlib
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio

from rnixfs import calltable, limits
from rnixfs.calltable import ROWS, Row
from rnixfs.errors import Code, SyscallError
from rnixfs.initfile import parse_init
from rnixfs.llm import Message, Role
from rnixfs.node import Dir, FixedDir
from rnixfs.proc.process import Launch, Process
from rnixfs.proc.request import SpawnRequest
from rnixfs.proc.signals import Signal
from rnixfs.proc.state import State
from rnixfs.proc.supervision import ChildSpec, Restart, SupervisorSpec
from rnixfs.programs.supervise import supervise
from rnixfs.syscalls import Syscalls
from rnixfs.types import Kind
from tests.groups import grouplab
from tests.groups.grouplab import settle
from tests.kernel.kernellab import done, sleeper, stubborn, text

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "calls.md"

# The requirement, by its groups.
NAMES = re.findall(
    r"\w+",
    """
Spawn Kill Wait GetPID PS
CtxAlloc CtxRead CtxWrite CtxFree
Open Read Write Close Stat
DebugRecord
Send Recv Pipe JoinGroup LeaveGroup GetProcGroup SignalGroup Mount Unmount UnmountAll
Signal SigHandle SigBlock SigUnblock SigPending SignalTree CapGrant CapRevoke CapCheck CapList
SpawnSupervisor StartChild StopChild RestartChild ListChildren Bootstrap Reap Suspend Resume Shutdown
""",
)
CANNOT_FAIL = {"GetPID", "PS", "DebugRecord", "SigUnblock", "SigPending"}
BY_ITSELF = {"DebugRecord"}
rows = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


# --- the table ---


def test_the_table_has_the_45_calls() -> None:
    """The rows are the calls that are required, each once, and the calls beside them are others."""
    assert len(NAMES) == 45
    assert [row.name for row in ROWS] == NAMES
    assert not set(calltable.BESIDE) & set(NAMES)


def test_the_page_is_made_from_the_table() -> None:
    """docs/calls.md is what `python -m rnixfs.calltable` prints."""
    assert PAGE.read_text("utf-8") == calltable.page(), "python -m rnixfs.calltable > docs/calls.md"


@rows
def test_each_row_says_all(row: Row) -> None:
    """A row has a signature, a sentence and a file; it has errors, unless it cannot fail, each once."""
    assert row.signature.startswith("(")
    assert row.does.endswith(".")
    assert re.search(r"\b(proc|dev|mnt|sys)/|&3|&-", row.file), "the file that reaches it"
    assert bool(row.errors) is (row.name not in CANNOT_FAIL)
    assert len(set(row.errors)) == len(row.errors)


@rows
def test_each_row_has_a_method(row: Row) -> None:
    """A row names a method of Syscalls, and calls that happen by themselves name none."""
    assert (row.method == "") is (row.name in BY_ITSELF)
    assert not row.method or callable(getattr(Syscalls, row.method))


@rows
def test_each_row_has_a_test(row: Row) -> None:
    """For each call there is a test here that bears its name."""
    name = "test_" + re.sub(r"(?<=[a-z])(?=[A-Z])", "_", row.name).lower()
    assert callable(globals().get(name)), f"{name} is missing"


# --- a kernel, and what a test knows of a call ---


class Lab(grouplab.Lab):
    """A kernel that also knows supervisors, a server that can be mounted, and a document."""

    def __init__(self) -> None:
        super().__init__()
        self.dev["note"] = text("note", b"seven notes\n")
        self.closed: list[str] = []
        self.kernel.mounts.transports["fake"] = lambda name, _config: _Server(name, self.closed)

    def launch(self, request: SpawnRequest, parent: Process | None) -> Launch:
        if request.intent in self.programs or request.supervisor is None:
            return super().launch(request, parent)
        self.programs[""] = supervise
        made = super().launch(request, parent)
        return Launch(**{name: getattr(made, name) for name in made.__dataclass_fields__}
                      | {"supervisor": request.supervisor})  # fmt: skip

    async def supervisor(self, sys: Syscalls) -> int:
        """A supervisor of a child `one` that runs until it is stopped; its pid."""
        self.programs["sleep"] = sleeper
        pid = await sys.spawn_supervisor(SupervisorSpec("sup", (ChildSpec("one", "sleep"),)))
        await settle()
        return pid


class _Server:
    """A server to be mounted; the name `deaf` does not connect."""

    restart = "never"
    connect_seconds = 30.0

    def __init__(self, name: str, closed: list[str]) -> None:
        self.name = name
        self.closed = closed

    @contextlib.asynccontextmanager
    async def connect(self, owner: int) -> AsyncIterator[Dir]:
        if self.name == "deaf":
            raise ConnectionRefusedError("nobody listens")
        yield FixedDir("server", {"hello": text("hello", b"from the server\n")})
        self.closed.append(self.name)

    def details(self) -> dict[str, Any]:
        """Nothing beside what every mount shows."""
        return {}


@pytest.fixture
async def lab(nursery: trio.Nursery, autojump_clock: trio.abc.Clock) -> Lab:
    """A kernel that runs; tests name `autojump_clock` too."""
    found = Lab()
    await nursery.start(found.kernel.run)
    return found


def records(lab: Lab, sys: Syscalls, name: str) -> list[dict[str, Any]]:
    """The records of a call in the trace of the process whose system calls these are."""
    process = lab.kernel.process(sys.pid)
    return [record for record in lab.trace(process) if record["syscall"] == name]


def once(lab: Lab, sys: Syscalls, name: str) -> dict[str, Any]:
    """The one record of a call."""
    (record,) = records(lab, sys, name)
    assert record["pid"] == sys.pid
    return record


def fails(name: str, code: Code) -> contextlib.AbstractContextManager[object]:
    """Expect a call to fail with a code that its row has."""
    (row,) = (row for row in ROWS if row.name == name)
    assert code in row.errors, f"{code} is missing in the row of {name}"

    def right(error: SyscallError) -> bool:
        return error.code is code and error.syscall == name

    return pytest.raises(SyscallError, check=right)


def failed(lab: Lab, sys: Syscalls, name: str, code: Code) -> None:
    """A call that failed is the second record of its name, with its code."""
    _, record = records(lab, sys, name)
    assert record["error"].startswith(f"{code} (")


# --- process ---


async def test_spawn(lab: Lab, autojump_clock: object) -> None:
    """Makes a child of the caller, which runs."""
    _, sys = await lab.puppet()
    pid = await sys.spawn(lab.named(sleeper))
    await settle()
    child = lab.kernel.process(pid)
    assert (child.ppid, child.state) == (sys.pid, State.RUNNING)
    assert once(lab, sys, "Spawn")["result"] == f"PID({pid})"
    _, confined = await lab.puppet(allowed_devices=["/dev"])
    with fails("Spawn", Code.PERMISSION):
        await confined.spawn(lab.named(sleeper))
    assert "PERMISSION" in once(lab, confined, "Spawn")["error"]


async def test_kill(lab: Lab, autojump_clock: object) -> None:
    """Ends a descendant by a signal, and does nothing to one that has ended."""
    _, sys = await lab.puppet()
    pid = await sys.spawn(lab.named(sleeper))
    await sys.kill(pid, Signal.KILL)
    assert lab.kernel.process(pid).exit is not None
    assert once(lab, sys, "Kill")["args"] == {"pid": pid, "signal": "SIGKILL"}
    with fails("Kill", Code.NOT_FOUND):
        await sys.kill(999, Signal.KILL)
    failed(lab, sys, "Kill", Code.NOT_FOUND)
    await sys.kill(pid, Signal.KILL)


async def test_wait(lab: Lab, autojump_clock: object) -> None:
    """Waits for the end of a child and reaps it."""
    _, sys = await lab.puppet()
    pid = await sys.spawn(lab.named(done))
    exit_, _ = await sys.wait(pid)
    assert exit_.code == 0
    assert lab.kernel.process(pid).state is State.DEAD
    assert once(lab, sys, "Wait")["result"] == "exited(0)"
    with fails("Wait", Code.PERMISSION):
        await sys.wait(sys.pid)
    failed(lab, sys, "Wait", Code.PERMISSION)


async def test_get_pid(lab: Lab, autojump_clock: object) -> None:
    """Says the caller's own number; it cannot fail."""
    process, sys = await lab.puppet()
    assert sys.getpid() == process.pid
    assert once(lab, sys, "GetPID")["result"] == f"PID({process.pid})"


async def test_ps(lab: Lab, autojump_clock: object) -> None:
    """Shows the caller and what descends from it, and nobody else; it cannot fail."""
    await lab.puppet()
    _, sys = await lab.puppet()
    pid = await sys.spawn(lab.named(sleeper))
    assert [row["pid"] for row in await sys.ps()] == [sys.pid, pid]
    assert once(lab, sys, "PS")["result"] == "2 processes"


# --- context ---

HELLO = Message(Role.USER, "hello")
AGAIN = Message(Role.USER, "again")


async def test_ctx_alloc(lab: Lab, autojump_clock: object) -> None:
    """Makes a context beside the one that each process has, of the size that was asked for."""
    _, sys = await lab.puppet()
    cid = await sys.ctx_alloc(1)
    assert cid == 2
    await sys.ctx_write(HELLO, cid=cid)
    with fails("CtxWrite", Code.RESOURCE_EXHAUSTED):
        await sys.ctx_write(AGAIN, cid=cid)
    assert once(lab, sys, "CtxAlloc")["result"] == "CTX(2)"
    with fails("CtxAlloc", Code.INVALID):
        await sys.ctx_alloc(0)
    failed(lab, sys, "CtxAlloc", Code.INVALID)


async def test_ctx_read(lab: Lab, autojump_clock: object) -> None:
    """Gives messages by number, from 1, with the system prompt."""
    _, sys = await lab.puppet(system_prompt="Be brief.")
    await sys.ctx_write(HELLO)
    await sys.ctx_write(AGAIN)
    assert await sys.ctx_read(offset=2, length=1) == ("Be brief.", [AGAIN])
    assert once(lab, sys, "CtxRead")["result"] == "1 messages"
    with fails("CtxRead", Code.NOT_FOUND):
        await sys.ctx_read(9)
    failed(lab, sys, "CtxRead", Code.NOT_FOUND)


async def test_ctx_write(lab: Lab, autojump_clock: object) -> None:
    """Appends at 0, puts a message in the place of another elsewhere."""
    process, sys = await lab.puppet()
    assert await sys.ctx_write(HELLO) == 1
    assert once(lab, sys, "CtxWrite")["result"] == "message 1"
    with fails("CtxWrite", Code.INVALID):
        await sys.ctx_write(AGAIN, 7)
    failed(lab, sys, "CtxWrite", Code.INVALID)
    assert await sys.ctx_write(AGAIN, 1) == 1
    assert process.context.messages == [AGAIN]


async def test_ctx_free(lab: Lab, autojump_clock: object) -> None:
    """Lets go of a context that was made, never of the main one."""
    _, sys = await lab.puppet()
    cid = await sys.ctx_alloc()
    await sys.ctx_free(cid)
    with fails("CtxRead", Code.NOT_FOUND):
        await sys.ctx_read(cid)
    assert once(lab, sys, "CtxFree")["args"] == {"cid": cid}
    with fails("CtxFree", Code.INVALID):
        await sys.ctx_free(1)
    failed(lab, sys, "CtxFree", Code.INVALID)


# --- file ---


async def test_open(lab: Lab, autojump_clock: object) -> None:
    """Opens a path; the number is the lowest that is free from 3."""
    process, sys = await lab.puppet()
    assert await sys.open("/dev/note", os.O_RDONLY) == 3
    assert process.files[3].path == "/dev/note"
    assert once(lab, sys, "Open")["args"] == {"path": "/dev/note", "flags": "O_RDONLY"}
    with fails("Open", Code.NOT_FOUND):
        await sys.open("/dev/none")
    failed(lab, sys, "Open", Code.NOT_FOUND)


async def test_read(lab: Lab, autojump_clock: object) -> None:
    """Reads on from where the last read ended, and waits until there is something."""
    _, sys = await lab.puppet()
    fd = await sys.open("/dev/note", os.O_RDONLY)
    assert await sys.read(fd, 5) == b"seven"
    assert once(lab, sys, "Read")["result"] == "5 bytes"
    with fails("Read", Code.BAD_FD):
        await sys.read(99)
    failed(lab, sys, "Read", Code.BAD_FD)
    assert await sys.read(fd) == b" notes\n"
    write_end, read_end = await sys.pipe()
    with fails("Read", Code.INVALID):
        await sys.read(write_end)
    got: list[bytes] = []

    async def read() -> None:
        got.append(await sys.read(read_end))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await settle()
        assert not got
        await sys.write(write_end, b"late")
    assert got == [b"late"]


async def test_write(lab: Lab, autojump_clock: object) -> None:
    """Writes what fits, waits where nothing does, and fails when nobody reads any more."""
    _, sys = await lab.puppet()
    write_end, read_end = await sys.pipe(nonblock=True)
    assert await sys.write(write_end, b"some") == 4
    assert once(lab, sys, "Write")["result"] == "4 bytes"
    with fails("Write", Code.BAD_FD):
        await sys.write(99, b"x")
    failed(lab, sys, "Write", Code.BAD_FD)
    assert await sys.write(write_end, bytes(limits.PIPE_BYTES)) == limits.PIPE_BYTES - 4
    with fails("Write", Code.SERVICE_UNAVAILABLE):
        await sys.write(write_end, b"x")
    await sys.close(read_end)
    with fails("Write", Code.BROKEN_PIPE):
        await sys.write(write_end, b"x")


async def test_close(lab: Lab, autojump_clock: object) -> None:
    """Closes; the number means nothing afterwards."""
    process, sys = await lab.puppet()
    fd = await sys.open("/dev/note", os.O_RDONLY)
    await sys.close(fd)
    assert not process.files
    assert once(lab, sys, "Close")["args"] == {"fd": fd}
    with fails("Close", Code.BAD_FD):
        await sys.close(fd)
    failed(lab, sys, "Close", Code.BAD_FD)


async def test_stat(lab: Lab, autojump_clock: object) -> None:
    """Says what a path is and how large."""
    _, sys = await lab.puppet()
    found = await sys.stat("/dev/note")
    assert (found.kind, found.size) == (Kind.FILE, 12)
    assert "12 bytes" in once(lab, sys, "Stat")["result"]
    with fails("Stat", Code.NOT_FOUND):
        await sys.stat("/dev/none")
    failed(lab, sys, "Stat", Code.NOT_FOUND)


# --- debug ---


async def test_debug_record(lab: Lab, autojump_clock: object) -> None:
    """Each call is recorded once, failed ones too, in order; recording is no call that is recorded."""
    process, sys = await lab.puppet()
    sys.getpid()
    with fails("Stat", Code.NOT_FOUND):
        await sys.stat("/dev/none")
    first, second = lab.trace(process)
    assert [first["syscall"], second["syscall"]] == ["GetPID", "Stat"]
    for record in (first, second):
        assert record["pid"] == process.pid
        assert record["duration_ms"] >= 0
    assert second["error"].startswith("NOT_FOUND (")
    assert records(lab, sys, "DebugRecord") == []


# --- IPC ---


async def test_send(lab: Lab, autojump_clock: object) -> None:
    """Puts a copy into the queue of the other process."""
    _, sys = await lab.puppet()
    child = lab.kernel.process(await sys.spawn(lab.named(sleeper)))
    data = {"task": ["a"]}
    seq = await sys.send(child.pid, data)
    data["task"].append("b")
    waiting = lab.kernel.channels.queue(child).first()
    assert waiting is not None
    assert (waiting.seq, waiting.fields()["data"]) == (seq, {"task": ["a"]})
    assert once(lab, sys, "Send")["result"] == f"message {seq}"
    with fails("Send", Code.NOT_FOUND):
        await sys.send(999, "x")
    failed(lab, sys, "Send", Code.NOT_FOUND)
    stranger, _ = await lab.puppet()
    _, confined = await lab.puppet(allowed_devices=["/dev"])
    with fails("Send", Code.PERMISSION):
        await confined.send(stranger.pid, "x")


async def test_recv(lab: Lab, autojump_clock: object) -> None:
    """Takes the next message, with its sender."""
    _, sys = await lab.puppet()
    await sys.send(sys.pid, "to myself")
    got = await sys.recv()
    assert (got["from"], got["data"]) == (sys.pid, "to myself")
    assert once(lab, sys, "Recv")["result"] == f"message {got['seq']} from {sys.pid}"
    with fails("Recv", Code.SERVICE_UNAVAILABLE):
        await sys.recv(wait=False)
    failed(lab, sys, "Recv", Code.SERVICE_UNAVAILABLE)


async def test_pipe(lab: Lab, autojump_clock: object) -> None:
    """Joins two processes: what the one writes the other reads."""
    _, sys = await lab.puppet()
    child, its = await lab.puppet(parent=sys.pid)
    write_end, read_end = await sys.pipe(reader=child.pid)
    await sys.write(write_end, b"down the pipe")
    assert await its.read(read_end) == b"down the pipe"
    assert once(lab, sys, "Pipe")["args"] == {"writer": sys.pid, "reader": child.pid}
    with fails("Pipe", Code.NOT_FOUND):
        await sys.pipe(reader=999)
    failed(lab, sys, "Pipe", Code.NOT_FOUND)


async def test_join_group(lab: Lab, autojump_clock: object) -> None:
    """Puts a process into a group, which is made for it."""
    process, sys = await lab.puppet()
    await sys.join_group("team")
    assert lab.kernel.groups.of(process) == ["team"]
    assert once(lab, sys, "JoinGroup")["args"] == {"pid": sys.pid, "group": "team"}
    with fails("JoinGroup", Code.INVALID):
        await sys.join_group(" ")
    failed(lab, sys, "JoinGroup", Code.INVALID)


async def test_leave_group(lab: Lab, autojump_clock: object) -> None:
    """Takes it out again; the group goes with its last member."""
    _, sys = await lab.puppet()
    await sys.join_group("team")
    await sys.leave_group("team")
    assert lab.kernel.groups.names() == []
    assert once(lab, sys, "LeaveGroup")["result"] == "0"
    with fails("LeaveGroup", Code.NOT_FOUND):
        await sys.leave_group("team")
    failed(lab, sys, "LeaveGroup", Code.NOT_FOUND)


async def test_get_proc_group(lab: Lab, autojump_clock: object) -> None:
    """Lists the members in the order in which they joined."""
    _, sys = await lab.puppet()
    child = await sys.spawn(lab.named(sleeper))
    await sys.join_group("team", child)
    await sys.join_group("team")
    assert await sys.get_proc_group("team") == [child, sys.pid]
    assert once(lab, sys, "GetProcGroup")["result"] == "2 processes"
    with fails("GetProcGroup", Code.NOT_FOUND):
        await sys.get_proc_group("none")
    failed(lab, sys, "GetProcGroup", Code.NOT_FOUND)


async def test_signal_group(lab: Lab, autojump_clock: object) -> None:
    """Reaches every member, and says how many."""
    _, sys = await lab.puppet()
    children = [await sys.spawn(lab.named(sleeper)) for _ in range(2)]
    for pid in children:
        await sys.join_group("team", pid)
    assert await sys.signal_group("team", Signal.PAUSE) == 2
    assert all(lab.kernel.process(pid).paused for pid in children)
    assert once(lab, sys, "SignalGroup")["args"] == {"group": "team", "signal": "SIGPAUSE"}
    with fails("SignalGroup", Code.NOT_FOUND):
        await sys.signal_group("none", Signal.PAUSE)
    failed(lab, sys, "SignalGroup", Code.NOT_FOUND)


async def test_mount(lab: Lab, autojump_clock: object) -> None:
    """Shows what a server has as a folder, once it is connected; nothing is left of one that fails."""
    _, sys = await lab.puppet()
    await sys.mount("/mnt/mcp/time", {"type": "fake"})
    assert lab.read("/mnt/mcp/time/hello") == "from the server\n"
    assert once(lab, sys, "Mount")["args"] == {"path": "/mnt/mcp/time", "type": "fake"}
    with fails("Mount", Code.EXISTS):
        await sys.mount("/mnt/mcp/time", {"type": "fake"})
    failed(lab, sys, "Mount", Code.EXISTS)
    with fails("Mount", Code.DRIVER):
        await sys.mount("/mnt/mcp/deaf", {"type": "fake"})
    assert lab.names("/mnt/mcp") == ["ctl", "time"]


async def test_unmount(lab: Lab, autojump_clock: object) -> None:
    """Takes the folder away, and returns when the connection is closed."""
    _, sys = await lab.puppet()
    await sys.mount("/mnt/mcp/time", {"type": "fake"})
    await sys.unmount("/mnt/mcp/time")
    assert (lab.names("/mnt/mcp"), lab.closed) == (["ctl"], ["time"])
    assert once(lab, sys, "Unmount")["result"] == "0"
    with fails("Unmount", Code.NOT_FOUND):
        await sys.unmount("/mnt/mcp/time")
    failed(lab, sys, "Unmount", Code.NOT_FOUND)


async def test_unmount_all(lab: Lab, autojump_clock: object) -> None:
    """Takes away what the caller mounted, and nobody else's."""
    _, sys = await lab.puppet()
    _, other = await lab.puppet()
    await other.mount("/mnt/mcp/theirs", {"type": "fake"})
    for name in ("one", "two"):
        await sys.mount(f"/mnt/mcp/{name}", {"type": "fake"})
    assert await sys.unmount_all() == 2
    assert lab.names("/mnt/mcp") == ["ctl", "theirs"]
    assert once(lab, sys, "UnmountAll")["result"] == "2 mounts"
    _, confined = await lab.puppet(allowed_devices=["/dev"])
    with fails("UnmountAll", Code.PERMISSION):
        await confined.unmount_all()


# --- signals ---


async def test_signal(lab: Lab, autojump_clock: object) -> None:
    """Sends a signal to one that lives, and says so where it has ended."""
    _, sys = await lab.puppet()
    pid = await sys.spawn(lab.named(sleeper))
    await sys.signal(pid, Signal.PAUSE)
    assert lab.kernel.process(pid).paused
    assert once(lab, sys, "Signal")["args"] == {"pid": pid, "signal": "SIGPAUSE"}
    await sys.kill(pid, Signal.KILL)
    with fails("Signal", Code.NOT_FOUND):
        await sys.signal(pid, Signal.PAUSE)
    failed(lab, sys, "Signal", Code.NOT_FOUND)


async def test_sig_handle(lab: Lab, autojump_clock: object) -> None:
    """The handler is called in place of what the signal would do; KILL has none."""
    process, sys = await lab.puppet()
    got: list[Signal] = []
    sys.on_signal(Signal.TERM, got.append)
    await sys.kill(sys.pid, Signal.TERM)
    assert (got, process.live, process.ending) == ([Signal.TERM], True, "")
    assert once(lab, sys, "SigHandle")["args"] == {"signal": "SIGTERM"}
    with fails("SigHandle", Code.INVALID):
        sys.on_signal(Signal.KILL, got.append)
    failed(lab, sys, "SigHandle", Code.INVALID)


async def test_sig_block(lab: Lab, autojump_clock: object) -> None:
    """A blocked signal waits and does nothing; KILL cannot be blocked."""
    process, sys = await lab.puppet()
    sys.block(Signal.PAUSE)
    await sys.kill(sys.pid, Signal.PAUSE)
    assert not process.paused
    assert sys.sig_pending() == {Signal.PAUSE}
    assert once(lab, sys, "SigBlock")["result"] == "0"
    with fails("SigBlock", Code.INVALID):
        sys.block(Signal.KILL)
    failed(lab, sys, "SigBlock", Code.INVALID)


async def test_sig_unblock(lab: Lab, autojump_clock: object) -> None:
    """A signal that waited arrives now; it cannot fail, even for one that was not blocked."""
    process, sys = await lab.puppet()
    sys.block(Signal.PAUSE)
    await sys.kill(sys.pid, Signal.PAUSE)
    sys.unblock(Signal.PAUSE)
    assert process.paused
    assert once(lab, sys, "SigUnblock")["result"] == "0"
    sys.unblock(Signal.KILL)


async def test_sig_pending(lab: Lab, autojump_clock: object) -> None:
    """Names the signals that wait, and nothing else; it cannot fail."""
    _, sys = await lab.puppet()
    sys.block(Signal.INT)
    await sys.kill(sys.pid, Signal.INT)
    assert sys.sig_pending() == {Signal.INT}
    assert once(lab, sys, "SigPending")["result"] == "SIGINT"


async def test_signal_tree(lab: Lab, autojump_clock: object) -> None:
    """Reaches the process and all below it, once each."""
    _, sys = await lab.puppet()
    child, its = await lab.puppet(parent=sys.pid)
    grandchild = lab.kernel.process(await its.spawn(lab.named(sleeper)))
    assert await sys.signal_tree(child.pid, Signal.PAUSE) == 2
    assert (child.paused, grandchild.paused) == (True, True)
    assert once(lab, sys, "SignalTree")["result"] == "2 processes"
    with fails("SignalTree", Code.NOT_FOUND):
        await sys.signal_tree(999, Signal.PAUSE)
    failed(lab, sys, "SignalTree", Code.NOT_FOUND)
    await sys.kill(child.pid, Signal.KILL)
    with fails("SignalTree", Code.INVALID):
        await sys.signal_tree(child.pid, Signal.PAUSE)


# --- capabilities ---


async def test_cap_grant(lab: Lab, autojump_clock: object) -> None:
    """A descendant may use a path from now on; nobody grants rights to itself."""
    _, sys = await lab.puppet()
    child, _ = await lab.puppet(parent=sys.pid, allowed_devices=[])
    assert not child.view.sees("/dev/note")
    await sys.cap_grant(child.pid, "/dev/note")
    assert child.view.sees("/dev/note")
    assert once(lab, sys, "CapGrant")["args"] == {"pid": child.pid, "path": "/dev/note"}
    with fails("CapGrant", Code.PERMISSION):
        await sys.cap_grant(sys.pid, "/dev/note")
    failed(lab, sys, "CapGrant", Code.PERMISSION)


async def test_cap_revoke(lab: Lab, autojump_clock: object) -> None:
    """What is taken back from a process is taken from all below it."""
    _, sys = await lab.puppet()
    child, its = await lab.puppet(parent=sys.pid)
    below = lab.kernel.process(await its.spawn(lab.named(sleeper)))
    await sys.cap_revoke(child.pid, "/dev/note")
    assert not child.view.sees("/dev/note")
    assert not below.view.sees("/dev/note")
    assert once(lab, sys, "CapRevoke")["result"] == "0"
    with fails("CapRevoke", Code.INVALID):
        await sys.cap_revoke(child.pid, "dev/note")
    failed(lab, sys, "CapRevoke", Code.INVALID)


async def test_cap_check(lab: Lab, autojump_clock: object) -> None:
    """Says whether the caller may use a path."""
    _, sys = await lab.puppet(allowed_devices=["/dev"])
    assert await sys.cap_check("/dev/note") is True
    assert once(lab, sys, "CapCheck")["result"] == "yes"
    with fails("CapCheck", Code.INVALID):
        await sys.cap_check("dev/note")
    failed(lab, sys, "CapCheck", Code.INVALID)
    assert await sys.cap_check("/sys/ctl") is False


async def test_cap_list(lab: Lab, autojump_clock: object) -> None:
    """Says what was granted and denied."""
    _, sys = await lab.puppet(allowed_devices=["/dev"])
    await sys.cap_revoke(sys.pid, "/dev/note")
    assert await sys.cap_list() == {"granted": ["/dev"], "denied": ["/dev/note"]}
    assert once(lab, sys, "CapList")["result"] == "1 granted"
    with fails("CapList", Code.NOT_FOUND):
        await sys.cap_list(999)
    failed(lab, sys, "CapList", Code.NOT_FOUND)


# --- supervision ---


async def test_spawn_supervisor(lab: Lab, autojump_clock: object) -> None:
    """Makes a child that starts its own children."""
    _, sys = await lab.puppet()
    pid = await lab.supervisor(sys)
    assert len(lab.kernel.process(pid).children) == 1
    assert once(lab, sys, "SpawnSupervisor")["result"] == f"PID({pid})"
    with fails("SpawnSupervisor", Code.INVALID):
        await sys.spawn_supervisor(SupervisorSpec("empty", ()))
    failed(lab, sys, "SpawnSupervisor", Code.INVALID)


async def only_child(sys: Syscalls, supervisor: int) -> tuple[int, str, int]:
    """Pid, state and restarts of a supervisor's child."""
    (row,) = await sys.list_children(supervisor)
    return row["pid"], row["state"], row["restarts"]


async def order_unknown(
    lab: Lab, sys: Syscalls, name: str, call: Callable[[int, str], Any], pid: int
) -> None:
    """An order for a child that there is not fails, and is recorded."""
    with fails(name, Code.NOT_FOUND):
        await call(pid, "nobody")
    failed(lab, sys, name, Code.NOT_FOUND)


async def test_start_child(lab: Lab, autojump_clock: object) -> None:
    """Starts a child that was stopped, as a new process."""
    _, sys = await lab.puppet()
    supervisor = await lab.supervisor(sys)
    before = (await only_child(sys, supervisor))[0]
    await sys.stop_child(supervisor, "one")
    pid = await sys.start_child(supervisor, "one")
    assert pid != before
    assert lab.kernel.process(pid).live
    assert once(lab, sys, "StartChild")["result"] == f"PID({pid})"
    await order_unknown(lab, sys, "StartChild", sys.start_child, supervisor)


async def test_stop_child(lab: Lab, autojump_clock: object) -> None:
    """Stops a child, which stays stopped although it is permanent."""
    _, sys = await lab.puppet()
    supervisor = await lab.supervisor(sys)
    await sys.stop_child(supervisor, "one")
    await settle()
    pid, state, restarts = await only_child(sys, supervisor)
    assert (state, restarts, lab.kernel.process(pid).live) == ("stopped", 0, False)
    assert once(lab, sys, "StopChild")["args"] == {"pid": supervisor, "name": "one"}
    await order_unknown(lab, sys, "StopChild", sys.stop_child, supervisor)


async def test_restart_child(lab: Lab, autojump_clock: object) -> None:
    """Ends the process of a child and makes a new one."""
    _, sys = await lab.puppet()
    supervisor = await lab.supervisor(sys)
    before = (await only_child(sys, supervisor))[0]
    pid = await sys.restart_child(supervisor, "one")
    assert (await only_child(sys, supervisor))[:2] == (pid, "running")
    assert not lab.kernel.process(before).live
    assert once(lab, sys, "RestartChild")["result"] == f"PID({pid})"
    await order_unknown(lab, sys, "RestartChild", sys.restart_child, supervisor)


async def test_list_children(lab: Lab, autojump_clock: object) -> None:
    """Shows where each child of a supervisor stands; other processes have no such list."""
    _, sys = await lab.puppet()
    supervisor = await lab.supervisor(sys)
    (row,) = await sys.list_children(supervisor)
    assert (row["name"], row["state"], row["restart"]) == ("one", "running", Restart.PERMANENT)
    assert once(lab, sys, "ListChildren")["result"] == "1 children"
    with fails("ListChildren", Code.INVALID):
        await sys.list_children(sys.pid)
    failed(lab, sys, "ListChildren", Code.INVALID)


# --- init ---

INIT = "services:\n  - {name: clock, intent: tick}\n"


async def test_bootstrap(lab: Lab, autojump_clock: object) -> None:
    """Starts what init.yaml names, and returns when it is up."""
    _, sys = await lab.puppet()
    lab.programs["tick"] = sleeper
    lab.kernel.init.load = lambda: parse_init(INIT, "init.yaml")
    await sys.bootstrap()
    assert "tick" in [process.launch.intent for process in lab.kernel.live()]
    assert once(lab, sys, "Bootstrap")["result"] == "0"
    _, confined = await lab.puppet(allowed_devices=["/dev"])
    with fails("Bootstrap", Code.PERMISSION):
        await confined.bootstrap()


async def test_reap(lab: Lab, autojump_clock: object) -> None:
    """Releases a child that has ended; for one that has not it does not wait."""
    _, sys = await lab.puppet()
    pid = await sys.spawn(lab.named(done))
    await lab.kernel.process(pid).done.wait()
    assert (await sys.reap(pid)).code == 0
    assert lab.kernel.process(pid).state is State.DEAD
    assert once(lab, sys, "Reap")["result"] == "exited(0)"
    with fails("Reap", Code.SERVICE_UNAVAILABLE):
        await sys.reap(await sys.spawn(lab.named(sleeper)))
    failed(lab, sys, "Reap", Code.SERVICE_UNAVAILABLE)


async def test_suspend(lab: Lab, autojump_clock: object) -> None:
    """Lets a process and all below it do nothing until they are woken."""
    _, sys = await lab.puppet()
    child, its = await lab.puppet(parent=sys.pid)
    below = lab.kernel.process(await its.spawn(lab.named(sleeper)))
    assert await sys.suspend(child.pid) == 2
    assert (child.state, below.state) == (State.SUSPENDED, State.SUSPENDED)
    assert child.suspended == f"process {sys.pid} suspended it"
    assert once(lab, sys, "Suspend")["result"] == "2 processes"
    with fails("Suspend", Code.NOT_FOUND):
        await sys.suspend(999)
    failed(lab, sys, "Suspend", Code.NOT_FOUND)


async def test_resume(lab: Lab, autojump_clock: object) -> None:
    """Lets a process and all below it go on."""
    _, sys = await lab.puppet()
    child, its = await lab.puppet(parent=sys.pid)
    below = lab.kernel.process(await its.spawn(lab.named(sleeper)))
    await sys.suspend(child.pid)
    assert await sys.resume(child.pid) == 2
    assert (child.state, below.state) == (State.RUNNING, State.RUNNING)
    assert once(lab, sys, "Resume")["result"] == "2 processes"
    with fails("Resume", Code.NOT_FOUND):
        await sys.resume(999)
    failed(lab, sys, "Resume", Code.NOT_FOUND)


async def test_shutdown(lab: Lab, autojump_clock: object) -> None:
    """Asks the system to stop; then no more processes are made, and all that there are are suspended."""
    _, sys = await lab.puppet()
    _, confined = await lab.puppet(allowed_devices=["/dev"])
    with fails("Shutdown", Code.PERMISSION):
        await confined.shutdown()
    assert not lab.kernel.stopping.is_set()
    await sys.shutdown()
    assert lab.kernel.stopping.is_set()
    assert once(lab, sys, "Shutdown")["result"] == "0"
    with fails("Spawn", Code.SERVICE_UNAVAILABLE):
        await sys.spawn(lab.named(stubborn))
    await lab.kernel.suspend_all()
    assert {process.state for process in lab.kernel.live()} == {State.SUSPENDED}
