"""System calls: what each one does, how it fails, and the line that it leaves in the trace."""

import os
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from rnixfs import limits
from rnixfs.errors import Code, SyscallError
from rnixfs.llm import Message, ModelAnswer, Role, ToolCall
from rnixfs.node import Broadcast, StreamNode
from rnixfs.proc.process import Process
from rnixfs.proc.progress import Done, Judged, StepEnd
from rnixfs.proc.signals import Signal
from rnixfs.proc.state import Exit
from rnixfs.syscalls import Syscalls
from rnixfs.traceline import TraceRecord, clip, line
from rnixfs.types import Caller, Kind
from rnixfs.vfs import walk
from tests.kernel.kernellab import (
    PERSON,
    ClosingNode,
    Fake,
    Held,
    Lab,
    SpyStore,
    acting,
    done,
    sleeper,
    text,
    waiting,
)

settle = trio.testing.wait_all_tasks_blocked


async def attempt(call: Any) -> Code | None:
    """The code that an awaited call fails with."""
    try:
        await call
    except SyscallError as error:
        return error.code
    return None


async def within(lab: Lab, act: Any, **fields: Any) -> Process:
    """Do something as a process that must end well."""
    process = await lab.run(acting(act), **fields)
    assert process.exit == Exit(0, "done")
    return process


def calls(lab: Lab, process: Process) -> list[tuple[str, str]]:
    """Name and outcome of each call."""
    return [
        (one["syscall"], one.get("error", "").partition(" ")[0] or one.get("result", ""))
        for one in lab.trace(process)
    ]


# --- files ---


async def test_a_file_is_read_from_where_the_last_read_ended(lab, autojump_clock):
    """Each open has a position of its own."""
    lab.dev["text"] = text("text", b"0123456789")
    found: list[bytes] = []

    async def act(sys: Syscalls) -> None:
        first, second = await sys.open("/dev/text", os.O_RDONLY), await sys.open("/dev/text", os.O_RDONLY)
        found.append(await sys.read(first, 4))
        found.append(await sys.read(second, 2))
        found.append(await sys.read_all(first))
        found.append(await sys.read(first))
        await sys.close(first)
        found.append(await sys.read(second, 2))
        found.append(await sys.read_file("/dev/text"))

    process = await within(lab, act)
    assert found == [b"0123", b"01", b"456789", b"", b"23", b"0123456789"]
    assert calls(lab, process)[:4] == [
        ("Open", "FD(3)"),
        ("Open", "FD(4)"),
        ("Read", "4 bytes"),
        ("Read", "2 bytes"),
    ]


async def test_a_device_is_asked_and_answers(lab, autojump_clock):
    """Open, write, read to the end, close: an exchange, with its trace."""
    lab.add_device("fake", Fake())

    async def act(sys: Syscalls) -> None:
        fd = await sys.open("/dev/fake")
        for word in ("one", "two"):
            assert await sys.write(fd, b'{"say":"%s"}' % word.encode()) == 13
            assert await sys.read_all(fd) == b'{"got":{"say":"%s"}}\n' % word.encode()
        await sys.close(fd)

    process = await within(lab, act)
    assert calls(lab, process) == [
        ("Open", "FD(3)"),
        *[("Write", "13 bytes"), ("Read", "22 bytes"), ("Read", "0 bytes")] * 2,
        ("Close", "0"),
    ]


async def test_a_read_waits_and_its_time_is_in_the_trace(lab, autojump_clock):
    """From the start of the call to its end, in milliseconds; `ts_ms` counts from the process's start."""
    device = Held()
    lab.add_device("held", device)

    async def act(sys: Syscalls) -> None:
        await trio.sleep(2)
        fd = await sys.open("/dev/held")
        await sys.write(fd, b"hello")
        await sys.read(fd)

    process = lab.spawn(acting(act))
    await trio.sleep(5)
    device.gates[0].set()
    await process.done.wait()
    read = lab.trace(process)[-1]
    assert (read["syscall"], read["ts_ms"], read["duration_ms"], read["pid"]) == ("Read", 2000.0, 3000.0, 1)
    assert read["args"] == {"fd": 3, "size": 1 << 20}


async def test_an_open_that_must_not_wait_does_not(lab, autojump_clock):
    """O_NONBLOCK gives SERVICE_UNAVAILABLE (EAGAIN) where another open would wait."""
    source = Broadcast()
    lab.dev["stream"] = StreamNode("stream", lambda _caller: source.join())
    codes: list[Code | None] = []

    async def act(sys: Syscalls) -> None:
        fd = await sys.open("/dev/stream", os.O_RDONLY | os.O_NONBLOCK)
        codes.append(await attempt(sys.read(fd)))
        source.push(b"now\n")
        assert await sys.read(fd) == b"now\n"
        source.end()
        assert await sys.read(fd) == b""

    process = await within(lab, act)
    assert codes == [Code.SERVICE_UNAVAILABLE]
    assert lab.trace(process)[0]["args"]["flags"] == "O_RDONLY|O_NONBLOCK"


async def test_a_cancelled_read_is_in_the_trace(lab, autojump_clock):
    """INTERRUPTED, with what ended it and how long it had waited."""
    lab.add_device("held", Held())

    async def act(sys: Syscalls) -> None:
        fd = await sys.open("/dev/held")
        await sys.write(fd, b"hello")
        await sys.read(fd)

    process = lab.spawn(acting(act))
    await trio.sleep(4)
    lab.kernel.signal(process, Signal.TERM, PERSON)
    await process.done.wait()
    last = lab.trace(process)[-1]
    assert (last["syscall"], last["error"], last["duration_ms"]) == (
        "Read",
        "INTERRUPTED (terminated by SIGTERM)",
        4000.0,
    )
    assert "result" not in last


async def test_how_paths_fail(lab, autojump_clock):
    """Each failure has its code, is in the trace, and carries call, path and pid."""
    lab.dev["text"] = text("text", b"")
    codes: list[Code | None] = []

    async def act(sys: Syscalls) -> None:
        for call in (
            sys.open("/dev/absent"),
            sys.open("/dev/text/x"),
            sys.open("/dev"),
            sys.open("relative"),
            sys.open("/dev/text", os.O_RDWR),
            sys.open("/" + "x" * 300),
            sys.stat("/absent"),
            sys.read_dir("/dev/text"),
            sys.read_dir("/absent"),
        ):
            codes.append(await attempt(call))

    process = await within(lab, act)
    expected = [
        Code.NOT_FOUND,
        Code.NOT_DIRECTORY,
        Code.IS_DIRECTORY,
        Code.INVALID,
        Code.PERMISSION,
        Code.NAME_TOO_LONG,
        Code.NOT_FOUND,
        Code.NOT_DIRECTORY,
        Code.NOT_FOUND,
    ]
    assert codes == expected
    assert [outcome for _, outcome in calls(lab, process)] == expected


async def test_an_error_knows_where_it_happened(lab, autojump_clock):
    """As the command shows it."""
    lab.dev["a"] = text("a", b"")
    lab.dev["b"] = text("b", b"")
    texts: list[str] = []

    async def act(sys: Syscalls) -> None:
        for path in ("/dev/a", "/dev/absent"):
            try:
                await sys.open(path, os.O_RDONLY)
            except SyscallError as error:
                texts.append(str(error))

    await within(lab, act, allowed_devices=["/dev/b", "/dev/absent"])
    assert texts == [
        "[PERMISSION] PID 1 Open: /dev/a (process 1 may not use /dev/a; it may use /dev/absent, /dev/b)",
        "[NOT_FOUND] PID 1 Open: /dev/absent (no such file or directory: absent)",
    ]


async def test_wrong_descriptors(lab, autojump_clock):
    """BAD_FD for what is not open any more, never was, or was opened the other way."""
    lab.dev["text"] = text("text", b"x")
    lab.add_device("fake", Fake())
    codes: list[Code | None] = []

    async def act(sys: Syscalls) -> None:
        fd = await sys.open("/dev/text", os.O_RDONLY)
        codes.append(await attempt(sys.write(fd, b"x")))
        await sys.close(fd)
        for call in (sys.read(fd), sys.write(fd, b"x"), sys.close(fd), sys.read(99), sys.close(-1)):
            codes.append(await attempt(call))
        writer = await sys.open("/dev/fake", os.O_WRONLY)
        codes.append(await attempt(sys.read(writer)))

    process = await within(lab, act)
    assert codes == [Code.BAD_FD] * 7
    assert [outcome for _, outcome in calls(lab, process)].count("BAD_FD") == 7


async def test_too_many_open_files(lab, autojump_clock, monkeypatch):
    """RESOURCE_EXHAUSTED, and what was refused a number is not left open."""
    monkeypatch.setattr(limits, "OPEN_FILES_MAX", 2)
    closed: list[str] = []
    opened: list[str] = []
    for name in ("a", "b", "c"):
        lab.dev[name] = ClosingNode(name, lambda: b"", closed=closed, opened=opened)
    codes: list[Code | None] = []

    async def act(sys: Syscalls) -> None:
        for name in ("a", "b", "c"):
            codes.append(await attempt(sys.open(f"/dev/{name}", os.O_RDONLY)))
        assert [name for name in opened if name not in closed] == ["a", "b"]
        await sys.close(3)
        codes.append(await attempt(sys.open("/dev/c", os.O_RDONLY)))

    await within(lab, act)
    assert codes == [None, None, Code.RESOURCE_EXHAUSTED, None]


async def test_stat_and_lists(lab, autojump_clock):
    """Kinds and sizes, and only what may be used."""
    lab.dev["text"] = text("text", b"12345")
    lab.dev["other"] = text("other", b"")

    async def act(sys: Syscalls) -> None:
        stat = await sys.stat("/dev/text")
        assert (stat.kind, stat.size) == (Kind.FILE, 5)
        assert (await sys.stat("/")).kind is Kind.DIRECTORY
        assert [(name, one.size) for name, one in await sys.read_dir("/dev")] == [("text", 5)]
        assert sys.may_use("/dev/text")
        assert not sys.may_use("/dev/other")
        assert not sys.may_use("/dev")

    process = await within(lab, act, allowed_devices=["/dev/text"])
    assert calls(lab, process) == [
        ("Stat", "file, 5 bytes"),
        ("Stat", "directory, 0 bytes"),
        ("ReadDir", "1 entries"),
    ]


async def test_a_process_sees_its_own_folder(lab, autojump_clock):
    """`/proc/self` leads to it, and other processes are out of sight."""
    lab.spawn(sleeper)

    async def act(sys: Syscalls) -> None:
        assert b'"pid":2' in await sys.read_file("/proc/self/status")
        assert await attempt(sys.open("/proc/1/status", os.O_RDONLY)) is Code.PERMISSION
        assert [name for name, _ in await sys.read_dir("/proc")] == ["self", "2"]

    await within(lab, act, allowed_devices=[])


# --- processes ---


async def test_a_child_is_made_and_waited_for(lab, autojump_clock):
    """The result comes with the exit; both calls are in the trace."""

    async def child(sys: Syscalls) -> Exit:
        sys.set_result("42")
        return Exit(3, "context full")

    async def act(sys: Syscalls) -> None:
        pid = await sys.spawn(lab.named(child))
        assert await sys.wait(pid) == (Exit(3, "context full"), "42")

    process = await within(lab, act)
    assert calls(lab, process) == [("Spawn", "PID(2)"), ("Wait", "exited(3)")]


async def test_spawning_needs_the_right_to(lab, autojump_clock):
    """`/proc/spawn` must be among what it may use."""

    async def act(sys: Syscalls) -> None:
        assert await attempt(sys.spawn(lab.named(done))) is Code.PERMISSION

    process = await within(lab, act, allowed_devices=["/dev"])
    assert calls(lab, process) == [("Spawn", "PERMISSION")]
    assert len(lab.kernel.processes) == 1


async def test_kill_and_ps_reach_descendants_only(lab, autojump_clock):
    """A stranger can be neither listed nor ended."""
    stranger = lab.spawn(sleeper)

    async def act(sys: Syscalls) -> None:
        pid = await sys.spawn(lab.named(sleeper))
        assert [row["pid"] for row in await sys.ps()] == [sys.pid, pid]
        assert await attempt(sys.kill(stranger.pid, Signal.KILL)) is Code.PERMISSION
        assert await attempt(sys.kill(99, Signal.KILL)) is Code.NOT_FOUND
        await sys.kill(pid, Signal.KILL)
        assert (await sys.wait(pid))[0].code == 1
        assert await attempt(sys.kill(pid, Signal.KILL)) is None
        assert await attempt(sys.signal(pid, Signal.KILL)) is Code.NOT_FOUND

    process = await within(lab, act)
    assert stranger.live
    assert calls(lab, process) == [
        ("Spawn", "PID(3)"),
        ("PS", "2 processes"),
        ("Kill", "PERMISSION"),
        ("Kill", "NOT_FOUND"),
        ("Kill", "0"),
        ("Wait", "exited(1)"),
        ("Kill", "0"),
        ("Signal", "NOT_FOUND"),
    ]


async def test_a_process_may_end_itself(lab, autojump_clock):
    """With a signal to its own pid."""
    process = await lab.run(acting(lambda sys: sys.kill(sys.pid, Signal.KILL)))
    assert process.exit == Exit(1, "killed by SIGKILL")


# --- context, accounts, records ---


async def test_messages_are_added_all_or_none(lab, autojump_clock):
    """A full context refuses the whole call, and the trace says how many there were."""
    process = lab.spawn(waiting(1))
    sys = Syscalls(lab.kernel, process)
    process.context.max_messages = 3
    message = Message(Role.USER, "x")
    sys.append(message, message)
    with pytest.raises(SyscallError) as caught:
        sys.append(message, message)
    assert caught.value.code is Code.RESOURCE_EXHAUSTED
    assert len(sys.context) == 2
    sys.append(message)
    assert calls(lab, process) == [("CtxWrite", "0"), ("CtxWrite", "RESOURCE_EXHAUSTED"), ("CtxWrite", "0")]
    assert [one["args"]["messages"] for one in lab.trace(process)] == [2, 2, 1]


async def test_what_was_said_comes_at_boundaries_until_it_is_in_the_conversation(lab, autojump_clock):
    """In order; what comes between the boundary and the message waits for the next; and a paused process
    hears it when it goes on."""
    heard: list[list[str]] = []

    async def act(sys: Syscalls) -> None:
        for take in (False, False, True, True):
            heard.append(await sys.boundary())
            await trio.sleep(2)
            if take:
                sys.append(Message(Role.USER, "; ".join(heard[-1])), inbox=len(heard[-1]))

    def say(text: str) -> None:
        lab.kernel.happen(process, "say", {"text": text})

    process = lab.spawn(acting(act))
    await trio.sleep(1)
    say("a")
    await trio.sleep(2)
    say("b")
    await trio.sleep(2)
    lab.kernel.signal(process, Signal.PAUSE, PERSON)
    say("c")
    await trio.sleep(50)
    lab.kernel.signal(process, Signal.RESUME, PERSON)
    await process.done.wait()
    assert heard == [[], ["a"], ["a", "b"], ["c"]]
    assert [one.content for one in process.context.messages] == ["a; b", "c"]
    assert process.inbox == []


async def test_what_was_said_is_not_lost_with_a_message_that_has_no_room(lab, autojump_clock):
    """All or none: a context that is full leaves it to be heard."""
    process = lab.spawn(waiting(1))
    sys = Syscalls(lab.kernel, process)
    lab.kernel.happen(process, "say", {"text": "a"})
    process.context.max_messages = 0
    with pytest.raises(SyscallError, match="the context is full"):
        sys.append(Message(Role.USER, "a"), inbox=1)
    assert await sys.boundary() == ["a"]
    assert [record.event for record in lab.kernel.log.load(process.pid)] == ["spawn", "say"]


async def test_accounts(lab, autojump_clock):
    """Tokens and dollars add up, the last prompt and the last named model count."""

    async def act(sys: Syscalls) -> None:
        assert sys.ask("", "") == 1
        sys.answered(ModelAnswer(tokens_used=10, input_tokens=8, cost_usd=0.5, model="m"))
        sys.end_step(StepEnd(1, "text"))
        assert sys.ask("", "") == 2
        sys.answered(ModelAnswer(tokens_used=5, input_tokens=3, cost_usd=0.25))
        assert sys.usage == (2, 15, 0.75)

    process = await within(lab, act)
    assert (process.progress.prompt_tokens, process.model_used) == (3, "m")
    assert process.status()["tokens_used"] == 15


async def test_a_request_sent_again_is_the_same_step(lab, autojump_clock):
    """As after a restart that came before the answer."""

    async def act(sys: Syscalls) -> None:
        assert [sys.ask("", ""), sys.ask("", "")] == [1, 1]
        sys.answered(ModelAnswer(tokens_used=10))
        sys.end_step(StepEnd(1, "text"))
        assert sys.usage == (1, 10, 0.0)

    process = await within(lab, act)
    assert len(process.step_records) == 1


async def test_a_step_is_told_event_by_event_and_its_record_kept(nursery, autojump_clock):
    """Each event before what it changes; the record is in `steps.jsonl` and the file `steps/<n>.json`."""
    store = SpyStore()
    lab = Lab(store)
    await nursery.start(lab.kernel.run)

    def look(_event: str, pid: int) -> tuple[object, ...]:
        process = lab.kernel.processes.get(pid)
        if process is None:
            return ()
        at, kept = process.progress, (len(process.context.messages), len(process.step_records))
        return at.step, at.answer is not None, len(at.started), len(at.done), *kept

    store.look = look
    call = ToolCall("c1", "echo", {"text": "hi"})

    async def act(sys: Syscalls) -> None:
        sys.append(Message(Role.USER, "do it"))
        sys.ask("be good", "[]")
        await trio.sleep(1)
        sys.answered(ModelAnswer(content="thinking", tool_calls=[call], tokens_used=5, input_tokens=3))
        sys.tool_started(0, call, "/dev/echo")
        sys.tool_finished(0, Done("c1", "echo", {"text": "hi"}, "hi there", "", 7, "/dev/echo"))
        said = Message(Role.ASSISTANT, "thinking", [call])
        told = Message(Role.TOOL, "hi there", tool_call_id="c1")
        sys.end_step(StepEnd(1, "tool_call", "echo", [said, told], Judged(same=1), result="so far"))

    process = await within(lab, act)
    assert [one for one in store.seen if one[0] not in ("boot", "exit", "reap")] == [
        ("spawn", 1, ()),
        ("messages", 1, (0, False, 0, 0, 0, 0)),
        ("request", 1, (0, False, 0, 0, 1, 0)),
        ("answer", 1, (1, False, 0, 0, 1, 0)),
        ("tool_started", 1, (1, True, 0, 0, 1, 0)),
        ("tool_finished", 1, (1, True, 1, 0, 1, 0)),
        ("step", 1, (1, True, 1, 1, 1, 0)),
    ]
    assert look("", 1) == (0, False, 0, 0, 3, 1)
    assert (process.result, process.progress.judged) == ("so far", Judged(same=1))
    one, whole = (
        walk(lab.kernel.root, f"/proc/1/{name}", PERSON).open(PERSON, 0).read(9999, 0)
        for name in ("steps/1.json", "steps.jsonl")
    )
    assert process.step_records == [one]
    assert one == whole
    record = msgspec.json.decode(one)
    assert 0 <= record.pop("timestamp") < 60e9
    assert record == {
        "step": 1,
        "messages": [{"role": "user", "content": "do it"}],
        "message_count": 1,
        "token_count": 5,
        "request_tokens": 3,
        "response_tokens": 0,
        "raw_response": "thinking",
        "action": "tool_call",
        "summary": "echo",
        "tool_path": "/dev/echo",
        "tool_input": {"text": "hi"},
        "tool_result": "hi there",
        "tool_duration": 7,
        "tool_calls": [
            {
                "id": "c1",
                "name": "echo",
                "path": "/dev/echo",
                "input": {"text": "hi"},
                "result": "hi there",
                "duration_ms": 7,
            }
        ],
    }


async def test_what_cannot_be_logged_does_not_happen_to_a_program(nursery, autojump_clock):
    """Its process is suspended with the reason, so that it goes on where it stood when there is room."""
    store = SpyStore()
    lab = Lab(store)
    await nursery.start(lab.kernel.run)

    def fail(event: str, _pid: int) -> None:
        if event == "messages":
            raise SyscallError(Code.RESOURCE_EXHAUSTED, "the disk is full")

    async def act(sys: Syscalls) -> None:
        if not sys.context:
            sys.append(Message(Role.USER, "once"))

    store.look = fail
    process = lab.spawn(acting(act))
    await settle()
    assert process.status()["suspended"] == "the log cannot be written: the disk is full"
    assert (process.exit, process.context.messages, store.events(1)) == (None, [], ["spawn", "suspend"])
    store.look = lambda _event, _pid: None
    lab.kernel.wake(process)
    await process.done.wait()
    assert process.exit == Exit(0, "done")
    assert [one.content for one in process.context.messages] == ["once"]


async def test_the_log_is_stamped_and_indented(lab, autojump_clock):
    """One line each with category; further lines of the same text stand below it."""

    async def act(sys: Syscalls) -> None:
        await trio.sleep(1.5)
        sys.say("think", "first\nsecond\n")
        sys.say("tool", "lone \ud800 surrogate")

    process = await within(lab, act)
    assert bytes(process.log.data) == (
        b"[  1.500s] think first\n    second\n[  1.500s] tool lone ? surrogate\n"
    )


async def test_who_follows_the_log_sees_it_from_its_start(lab, autojump_clock):
    """Whenever they join, and to its end."""

    async def act(sys: Syscalls) -> None:
        sys.say("a", "1")
        await trio.sleep(2)
        sys.say("b", "2")

    process = lab.spawn(acting(act))
    early = process.follow_log()
    await trio.sleep(1)
    middle = process.follow_log()
    await process.done.wait()
    late = process.follow_log()
    for reader in (early, middle, late):
        data = b""
        while piece := reader.read(99, 0):
            data += piece
        assert data == bytes(process.log.data)


# --- the trace ---


async def test_live_readers_of_the_trace_see_lines(lab, autojump_clock):
    """As strace prints them, from when they join to the end."""
    lab.dev["text"] = text("text", b"12345")

    async def act(sys: Syscalls) -> None:
        await trio.sleep(0.013)
        await sys.read_file("/dev/text")

    process = lab.spawn(acting(act))
    reader = process.trace_live.join()
    await process.done.wait()
    data = b""
    while piece := reader.read(9999, 0):
        data += piece
    assert data.decode().splitlines() == [
        '[  0.013s] Open("/dev/text", O_RDONLY) = FD(3)  0ms',
        "[  0.013s] Read(FD(3), 1048576) = 5 bytes  0ms",
        "[  0.013s] Read(FD(3), 1048576) = 0 bytes  0ms",
        "[  0.013s] Close(FD(3)) = 0  0ms",
    ]


async def test_a_program_of_the_host_is_traced_with_its_pid(lab, autojump_clock):
    """Opens, reads, writes and closes that it makes for an agent; a person's are nobody's."""
    device = lab.add_device("fake", Fake())
    process = lab.spawn(sleeper)
    outside = Caller(1000, 1000, agent=process.pid, host_pid=4242, session=1)
    file = lab.kernel.open(device, outside, os.O_RDWR, "/dev/fake")
    file.write(b'{"a":1}', 0)
    await settle()
    assert file.read(99, 7) == b'{"got":{"a":1}}\n'
    file.close()
    with pytest.raises(SyscallError, match="only be read"):
        lab.kernel.open(text("x", b""), outside, os.O_WRONLY, "/x")
    lab.kernel.open(device, PERSON, os.O_RDONLY, "/dev/fake").read(9, 0)
    rows = lab.trace(process)
    assert [(row["syscall"], row.get("result", row.get("error"))) for row in rows] == [
        ("Open", "0"),
        ("Write", "7"),
        ("Read", "16"),
        ("Close", "0"),
        ("Open", "PERMISSION (a document can only be read)"),
    ]
    assert {(row["origin"], row["host_pid"]) for row in rows} == {("mount", 4242)}


async def test_failing_reads_and_writes_of_the_host_are_traced(lab, autojump_clock):
    """With the code, and the error passes on."""
    device = lab.add_device("fake", Fake())
    process = lab.spawn(sleeper)
    outside = Caller(1000, 1000, agent=process.pid, host_pid=4242)
    file = lab.kernel.open(device, outside, os.O_RDWR, "/dev/fake")
    with pytest.raises(SyscallError):
        file.write(b'{"bad":1}', 0)
    writer = lab.kernel.open(device, outside, os.O_WRONLY, "/dev/fake")
    with pytest.raises(SyscallError):
        writer.read(1, 0)
    errors = [row["error"].partition(" ")[0] for row in lab.trace(process) if row.get("error")]
    assert errors == ["INVALID", "BAD_FD"]


def test_a_line_shows_failures_long_values_and_the_mount():
    """As strace users read it."""
    record = TraceRecord(
        12.3, 1, "Write", {"fd": 3, "data": 'say "x"\n' + "y" * 100}, error="TIMEOUT (slow)", duration_ms=1.6
    )
    assert line(record) == (
        '[  0.012s] Write(FD(3), "say \\"x\\"\\n' + "y" * 52 + '…+48") = -1 TIMEOUT (slow)  2ms'
    )
    outside = TraceRecord(0, 1, "Read", {"path": "/x"}, result="5", origin="mount", host_pid=7)
    assert line(outside) == '[  0.000s] Read("/x") = 5  0ms [mount 7]'


def test_clipping_counts_what_was_cut():
    """At the limit nothing is."""
    assert clip("x" * 60) == "x" * 60
    assert clip("x" * 61) == "x" * 60 + "…+1"


async def test_the_journal_of_a_trace_is_complete(lab, autojump_clock):
    """Far beyond what a slow live reader keeps."""
    lab.dev["text"] = text("text", b"1")
    reader = None

    async def act(sys: Syscalls) -> None:
        nonlocal reader
        reader = lab.kernel.process(sys.pid).trace_live.join()
        for _ in range(limits.STREAM_RECORDS_MAX + 10):
            await sys.stat("/dev/text")

    process = await within(lab, act)
    assert len(lab.trace(process)) == limits.STREAM_RECORDS_MAX + 10
    assert reader is not None
    assert reader.read(1 << 20, 0) == b'{"dropped":10}\n'
