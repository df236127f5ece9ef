"""Send, Recv and Pipe, as programs call them."""

import itertools
import os
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from rnixfs import limits
from rnixfs.errors import Code, LogError, SyscallError
from rnixfs.proc.ipc import ReadEnd, WriteEnd
from rnixfs.proc.process import Process
from rnixfs.proc.signals import Signal
from rnixfs.syscalls import Syscalls
from rnixfs.types import Caller
from tests.kernel.kernellab import PERSON, Lab, SpyStore, acting, agent, done, sleeper


async def result(lab: Lab, call: Any, caller: Caller = PERSON, **fields: Any) -> Any:
    """What a call gives to a process that makes it and ends; its error is raised here."""
    found: list[Any] = []

    async def act(sys: Syscalls) -> None:
        try:
            found.append(await call(sys))
        except SyscallError as error:
            found.append(error)

    await lab.spawn(acting(act), caller, **fields).done.wait()
    if isinstance(found[0], SyscallError):
        raise found[0]
    return found[0]


async def refusal(lab: Lab, call: Any, caller: Caller = PERSON, **fields: Any) -> Code:
    """The code with which a call fails."""
    with pytest.raises(SyscallError) as caught:
        await result(lab, call, caller, **fields)
    return caught.value.code


def calls_of(lab: Lab, process: Process) -> Syscalls:
    """The system calls of a process, made by the test."""
    return Syscalls(lab.kernel, process)


# --- messages ---


async def test_a_message_arrives_as_a_copy(lab: Lab) -> None:
    """Recv gives number, sender, receiver, time and data; what the sender changes later does not arrive."""
    process = lab.spawn(sleeper)
    sys, data = calls_of(lab, process), {"list": [1, 2], "text": "ä"}
    seq = await sys.send(process.pid, data)
    data["list"] = "changed"
    got = await sys.recv()
    assert list(got) == ["seq", "from", "to", "ts", "data"]
    assert (got["seq"], got["from"], got["to"]) == (seq, process.pid, process.pid)
    assert got["data"] == {"list": [1, 2], "text": "ä"}
    assert got["ts"] > 0


async def test_one_number_orders_all_messages(lab: Lab) -> None:
    """Messages between any processes are numbered 1, 2, 3 … in the order in which they were sent."""
    processes = [lab.spawn(sleeper, allowed_devices=None) for _ in range(4)]
    sent = []
    for step, (one, other) in enumerate(itertools.product(processes, processes)):
        sent.append(await calls_of(lab, one).send(other.pid, step))
    sent.append(lab.kernel.channels.send(0, processes[0], "from a person").seq)
    assert sent == list(range(1, 18))
    got = []
    for one in processes:
        seqs = [(await calls_of(lab, one).recv())["seq"] for _ in range(4)]
        assert seqs == sorted(seqs)
        got += seqs
    assert sorted([*got, 17]) == sent


async def test_recv_waits_for_a_message(lab: Lab) -> None:
    """A process in Recv sleeps until something comes."""
    got: list[Any] = []

    async def act(sys: Syscalls) -> None:
        got.append((await sys.recv())["data"])

    process = lab.spawn(acting(act))
    await wait_all_tasks_blocked()
    assert (got, process.live) == ([], True)
    lab.kernel.channels.send(0, process, "wake up")
    await process.done.wait()
    assert got == ["wake up"]


async def test_recv_without_waiting_says_when_there_is_none(lab: Lab) -> None:
    """With wait=False Recv takes what is there, else it is SERVICE_UNAVAILABLE."""

    async def act(sys: Syscalls) -> list[Any]:
        await sys.send(sys.pid, 1)
        found = [(await sys.recv(wait=False))["data"]]
        with pytest.raises(SyscallError) as caught:
            await sys.recv(wait=False)
        return [*found, caught.value.code]

    assert await result(lab, act) == [1, Code.SERVICE_UNAVAILABLE]


@pytest.mark.parametrize("signal", [Signal.TERM, Signal.KILL])
async def test_recv_ends_when_the_process_does(lab: Lab, signal: Signal) -> None:
    """A signal that ends the process ends its Recv, and the trace says how."""

    async def act(sys: Syscalls) -> None:
        await sys.recv()

    process = lab.spawn(acting(act))
    await wait_all_tasks_blocked()
    lab.kernel.signal(process, signal, PERSON)
    await process.done.wait()
    await wait_all_tasks_blocked()
    (record,) = [one for one in lab.trace(process) if one["syscall"] == "Recv"]
    assert record["error"].startswith("INTERRUPTED")


async def test_a_full_queue_is_said_and_nothing_is_lost(lab: Lab) -> None:
    """The message past the bound is refused with SERVICE_UNAVAILABLE; all before it arrive."""
    process = lab.spawn(sleeper)
    sys = calls_of(lab, process)
    for number in range(limits.QUEUE_MESSAGES_MAX):
        await sys.send(process.pid, number)
    with pytest.raises(SyscallError) as caught:
        await sys.send(process.pid, "one more")
    assert caught.value.code is Code.SERVICE_UNAVAILABLE
    got = [(await sys.recv())["data"] for _ in range(limits.QUEUE_MESSAGES_MAX)]
    assert got == list(range(limits.QUEUE_MESSAGES_MAX))
    assert await sys.send(process.pid, "now") == limits.QUEUE_MESSAGES_MAX + 1


async def test_bytes_bound_a_queue_too(lab: Lab) -> None:
    """Large messages fill a queue before it has many."""
    process = lab.spawn(sleeper)
    sys, data = calls_of(lab, process), "x" * (limits.MESSAGE_MAX - 2)
    for _ in range(limits.QUEUE_BYTES_MAX // limits.MESSAGE_MAX):
        await sys.send(process.pid, data)
    with pytest.raises(SyscallError) as caught:
        await sys.send(process.pid, "")
    assert caught.value.code is Code.SERVICE_UNAVAILABLE
    with pytest.raises(SyscallError) as caught:
        await sys.send(process.pid, data + "x")
    assert caught.value.code is Code.TOO_LARGE


async def test_nobody_sends_to_what_has_ended(lab: Lab) -> None:
    """A pid that never was, a zombie and a dead process are NOT_FOUND."""
    parent = lab.spawn(sleeper)
    dead = await lab.run(done)
    zombie = lab.spawn(done, agent(parent.pid))
    await zombie.done.wait()
    for pid in (999, dead.pid, zombie.pid):
        with pytest.raises(SyscallError) as caught:
            await calls_of(lab, parent).send(pid, "hello")
        assert caught.value.code is Code.NOT_FOUND
    with pytest.raises(SyscallError) as caught:
        lab.kernel.channels.send(dead.pid, parent, "from beyond")
    assert caught.value.code is Code.NOT_FOUND


def family(lab: Lab) -> dict[str, Process]:
    """Processes with narrow rights, named after what they are to `me`."""
    narrow: dict[str, Any] = {"allowed_devices": ["/dev/none"]}
    found = {"grandparent": lab.spawn(sleeper, **narrow), "stranger": lab.spawn(sleeper, **narrow)}
    for name, parent in (
        ("parent", "grandparent"),
        ("uncle", "grandparent"),
        ("me", "parent"),
        ("sibling", "parent"),
        ("cousin", "uncle"),
        ("child", "me"),
        ("other child", "me"),
    ):
        found[name] = lab.spawn(sleeper, agent(found[parent].pid), **narrow)
    return found


KIN = ("grandparent", "parent", "me", "sibling", "child", "other child")
OTHERS = ("stranger", "uncle", "cousin")


async def test_one_may_send_to_kin_only(lab: Lab) -> None:
    """Itself, ancestors, descendants and siblings can be sent to; all others are PERMISSION."""
    found = family(lab)
    sys = calls_of(lab, found["me"])
    for name in KIN:
        assert await sys.send(found[name].pid, name) > 0
        assert (await calls_of(lab, found[name]).recv())["data"] == name
    for name in OTHERS:
        with pytest.raises(SyscallError) as caught:
            await sys.send(found[name].pid, name)
        assert caught.value.code is Code.PERMISSION
        assert len(lab.kernel.channels.queue(found[name])) == 0


async def test_a_grant_makes_a_stranger_reachable(lab: Lab) -> None:
    """A process may send to any whose mailbox it was granted, until that is taken back."""
    found = family(lab)
    sys, stranger = calls_of(lab, found["grandparent"]), found["stranger"]
    path = f"/proc/{stranger.pid}/mailbox"
    found["grandparent"].rights.grant(path)
    assert await sys.send(stranger.pid, "hello") == 1
    found["grandparent"].rights.revoke(path)
    with pytest.raises(SyscallError) as caught:
        await sys.send(stranger.pid, "hello")
    assert caught.value.code is Code.PERMISSION


async def test_the_view_shows_the_mailboxes_of_kin_and_no_more_of_them(lab: Lab) -> None:
    """By its own view a process finds its parent's and sibling's mailboxes, and nothing else of theirs."""
    found = family(lab)
    sys = calls_of(lab, found["me"])
    for name in ("parent", "sibling"):
        folder = f"/proc/{found[name].pid}"
        assert [entry for entry, _ in await sys.read_dir(folder)] == ["mailbox"]
        with pytest.raises(SyscallError):
            await sys.open(f"{folder}/status", os.O_RDONLY)
        fd = await sys.open(f"{folder}/mailbox", os.O_WRONLY)
        await sys.write(fd, b'{"to": "kin"}')
        await sys.close(fd)
        assert (await calls_of(lab, found[name]).recv())["data"] == {"to": "kin"}
        with pytest.raises(SyscallError) as caught:
            await sys.open(f"{folder}/mailbox", os.O_RDONLY)
        assert caught.value.code is Code.PERMISSION
    for name in OTHERS:
        with pytest.raises(SyscallError) as caught:
            await sys.open(f"/proc/{found[name].pid}/mailbox", os.O_WRONLY)
        assert caught.value.code is Code.PERMISSION


async def test_an_event_comes_before_its_message() -> None:
    """When the store is given the event of a message, nobody can have seen the message yet; the same holds
    for the taking."""

    def waiting_for(pid: int) -> int:
        process = own.kernel.processes.get(pid)
        return len(own.kernel.channels.queue(process)) if process is not None else 0

    store = SpyStore()
    store.look = lambda _event, pid: waiting_for(pid)
    own = Lab(store)
    async with trio.open_nursery() as nursery:
        await nursery.start(own.kernel.run)
        process = own.spawn(sleeper)
        sys = calls_of(own, process)
        await sys.send(process.pid, "x")
        await sys.recv()
        waiting = [seen for event, _, seen in store.seen if event in ("send", "recv")]
        nursery.cancel_scope.cancel()
    assert waiting == [0, 1]


async def test_a_message_that_cannot_be_recorded_is_not_sent() -> None:
    """Where the log is full the sender is told, the message is nowhere, and its number is free again."""

    def fails(event: str, _pid: int) -> None:
        if event == "send":
            raise SyscallError(Code.RESOURCE_EXHAUSTED, "no space left")

    store = SpyStore()
    store.look = fails
    own = Lab(store)
    async with trio.open_nursery() as nursery:
        await nursery.start(own.kernel.run)
        process = own.spawn(sleeper)
        with pytest.raises(LogError, match="no space left"):
            own.kernel.channels.send(0, process, "x")
        assert len(own.kernel.channels.queue(process)) == 0
        store.look = lambda _event, _pid: None
        assert own.kernel.channels.send(0, process, "x").seq == 1
        nursery.cancel_scope.cancel()


async def test_unread_messages_are_counted_at_the_end() -> None:
    """What nobody took goes with the process, and an event says how many there were."""
    store = SpyStore()
    own = Lab(store)
    async with trio.open_nursery() as nursery:
        await nursery.start(own.kernel.run)
        process = own.spawn(sleeper)
        for number in range(3):
            own.kernel.channels.send(0, process, number)
        own.kernel.signal(process, Signal.KILL, PERSON)
        await process.done.wait()
        nursery.cancel_scope.cancel()
    (record,) = store.load(process.pid, ("unread",))
    assert record.data == {"messages": 3, "bytes": 3}


async def test_calls_are_traced(lab: Lab) -> None:
    """Send, Recv and Pipe stand in the trace with what they gave."""

    async def act(sys: Syscalls) -> None:
        await sys.send(sys.pid, "hello")
        await sys.recv()
        await sys.pipe()

    process = await lab.run(acting(act))
    send, recv, pipe = lab.trace(process)
    assert (send["syscall"], send["args"]) == ("Send", {"to": process.pid, "data": "hello"})
    assert (send["result"], recv["syscall"]) == ("message 1", "Recv")
    assert recv["result"] == f"message 1 from {process.pid}"
    assert (pipe["syscall"], pipe["result"]) == ("Pipe", "FD(3), FD(4)")


# --- pipes ---


async def test_a_process_has_both_ends_of_its_own_pipe(lab: Lab) -> None:
    """What is written to one number is read from the other; `fd/` shows `pipe:[n]`."""

    async def act(sys: Syscalls) -> list[Any]:
        write_fd, read_fd = await sys.pipe()
        await sys.write(write_fd, b"through")
        links = [name for name, _ in await sys.read_dir(f"/proc/{sys.pid}/fd")]
        found = [await sys.read(read_fd), links]
        await sys.close(write_fd)
        return [*found, await sys.read(read_fd)]

    assert await result(lab, act) == [b"through", ["3", "4"], b""]


async def test_two_processes_are_connected_with_back_pressure(lab: Lab) -> None:
    """A parent connects two children: bytes arrive whole, and the writer is never ahead by more than the
    pipe holds."""
    total, chunk, ahead, got = 5 * limits.PIPE_BYTES, 10_000, [0], bytearray()
    sent = bytes(index % 251 for index in range(total))
    written = [0]
    go = trio.Event()

    async def writer(sys: Syscalls) -> None:
        await go.wait()
        (fd,) = lab.kernel.process(sys.pid).files
        while written[0] < total:
            written[0] += await sys.write(fd, sent[written[0] : written[0] + chunk])
            ahead[0] = max(ahead[0], written[0] - len(got))
        await sys.close(fd)

    async def reader(sys: Syscalls) -> None:
        await go.wait()
        (fd,) = lab.kernel.process(sys.pid).files
        while data := await sys.read(fd, 777):
            got.extend(data)

    async def parent(sys: Syscalls) -> None:
        pids = [await sys.spawn(lab.named(acting(one))) for one in (writer, reader)]
        await sys.pipe(*pids)
        go.set()
        for pid in pids:
            await sys.wait(pid)

    await lab.run(acting(parent))
    assert bytes(got) == sent
    assert limits.PIPE_BYTES - chunk < ahead[0] <= limits.PIPE_BYTES + 777


async def test_a_writer_waits_and_a_hasty_one_is_told(lab: Lab) -> None:
    """A full pipe makes a writer wait; with O_NONBLOCK it is SERVICE_UNAVAILABLE, as is an empty one."""

    async def act(sys: Syscalls) -> list[Any]:
        write_fd, read_fd = await sys.pipe(nonblock=True)
        codes = []
        with pytest.raises(SyscallError) as caught:
            await sys.read(read_fd)
        codes.append(caught.value.code)
        assert await sys.write(write_fd, bytes(limits.PIPE_BYTES + 5)) == limits.PIPE_BYTES
        with pytest.raises(SyscallError) as caught:
            await sys.write(write_fd, b"x")
        return [*codes, caught.value.code]

    assert await result(lab, act) == [Code.SERVICE_UNAVAILABLE] * 2


@pytest.mark.parametrize("victim", ["writer", "reader"])
async def test_the_end_of_a_process_releases_its_ends(lab: Lab, victim: str) -> None:
    """Whoever waits at the other end of a killed process gets EOF or BROKEN_PIPE; whoever is killed while it
    waits is gone at once."""
    outcome: list[Any] = []
    connected = trio.Event()

    async def wait(sys: Syscalls) -> None:
        await connected.wait()
        (fd,) = lab.kernel.process(sys.pid).files
        try:
            if victim == "writer":
                outcome.append(await sys.read(fd))
            while victim == "reader":
                await sys.write(fd, bytes(limits.PIPE_BYTES))
        except SyscallError as error:
            outcome.append(error.code)

    waiter, other = lab.spawn(acting(wait)), lab.spawn(sleeper)
    ends = (other, waiter) if victim == "writer" else (waiter, other)
    lab.kernel.channels.connect(*ends, PERSON)
    connected.set()
    await wait_all_tasks_blocked()
    assert outcome == []
    lab.kernel.signal(other, Signal.KILL, PERSON)
    await waiter.done.wait()
    assert outcome == [b"" if victim == "writer" else Code.BROKEN_PIPE]
    assert other.files == waiter.files == {}


async def test_a_killed_waiter_is_released(lab: Lab) -> None:
    """A process that waits for room in a pipe ends with its KILL, and its end is closed."""

    async def fill(sys: Syscalls) -> None:
        write_fd, _ = await sys.pipe()
        while True:
            await sys.write(write_fd, bytes(limits.PIPE_BYTES))

    process = lab.spawn(acting(fill))
    await wait_all_tasks_blocked()
    ends = [opened.file for opened in process.files.values()]
    (pipe,) = {end.pipe for end in ends if isinstance(end, ReadEnd | WriteEnd)}
    lab.kernel.signal(process, Signal.KILL, PERSON)
    await process.done.wait()
    assert pipe.done


async def test_the_wrong_end_is_invalid(lab: Lab) -> None:
    """Writing the number that is for reading, and the other way round, is INVALID."""

    async def act(sys: Syscalls) -> list[Code]:
        write_fd, read_fd = await sys.pipe()
        codes = []
        for call in (sys.read(write_fd), sys.write(read_fd, b"x")):
            with pytest.raises(SyscallError) as caught:
                await call
            codes.append(caught.value.code)
        return codes

    assert await result(lab, act) == [Code.INVALID] * 2


async def test_only_those_below_can_be_connected(lab: Lab) -> None:
    """Pipe takes itself and descendants: others are PERMISSION, ended ones and unknown pids NOT_FOUND."""
    found = family(lab)
    sys = calls_of(lab, found["me"])
    for name in ("parent", "sibling", "stranger"):
        for ends in ((found[name].pid, None), (None, found[name].pid)):
            with pytest.raises(SyscallError) as caught:
                await sys.pipe(*ends)
            assert caught.value.code is Code.PERMISSION
        assert found[name].files == {}
    assert await sys.pipe(found["child"].pid, found["other child"].pid) == (3, 3)
    lab.kernel.signal(found["other child"], Signal.KILL, PERSON)
    for pid in (found["other child"].pid, 999):
        with pytest.raises(SyscallError) as caught:
            await sys.pipe(reader=pid)
        assert caught.value.code is Code.NOT_FOUND
    assert found["me"].files == {}


async def test_no_room_for_one_end_leaves_neither(lab: Lab) -> None:
    """Where one process has all the open files that it may have, the other gets no end either."""
    parent = lab.spawn(sleeper)
    child = lab.spawn(sleeper, agent(parent.pid))
    for _ in range(limits.OPEN_FILES_MAX // 2):
        await calls_of(lab, child).pipe()
    with pytest.raises(SyscallError) as caught:
        await calls_of(lab, parent).pipe(reader=child.pid)
    assert caught.value.code is Code.RESOURCE_EXHAUSTED
    assert parent.files == {}
    assert len(child.files) == limits.OPEN_FILES_MAX
