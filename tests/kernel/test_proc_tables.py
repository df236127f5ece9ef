"""What a process is made of, table by table: states, signals, context, requests, time, names, numbers."""

import itertools
import os
import time
import uuid

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from rnixfs import limits
from rnixfs.errors import Code, SyscallError
from rnixfs.llm import Message, Role, ToolCall
from rnixfs.node import File
from rnixfs.proc import request as spawning
from rnixfs.proc.context import Context
from rnixfs.proc.process import OpenFile, Stopwatch, uuid7
from rnixfs.proc.request import ForkFrom, SpawnRequest, read_spawn
from rnixfs.proc.signals import Disposition, Signal, Signals, parse
from rnixfs.proc.state import LIVE, Event, Exit, ExitCode, State, advance
from tests.kernel.kernellab import done

# --- states ---

STEPS = {
    ("created", "start"): "running",
    ("created", "suspend"): "suspended",
    ("created", "exit"): "zombie",
    ("running", "suspend"): "suspended",
    ("running", "exit"): "zombie",
    ("suspended", "wake"): "running",
    ("suspended", "exit"): "zombie",
    ("zombie", "reap"): "dead",
}


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("state", State)
def test_every_state_meets_every_event(state, event):
    """The steps above and no other."""
    expected = STEPS.get((state.value, event.value))
    if expected is None:
        with pytest.raises(SyscallError, match=f"{state} cannot {event}") as caught:
            advance(state, event)
        assert caught.value.code is Code.INTERNAL
    else:
        assert advance(state, event) == expected


def test_every_live_process_can_end_and_no_dead_one_comes_back():
    """An exit is a step from each live state; from an end no step leads to a live one."""
    assert {state for state in State if (state, Event.EXIT) in {(s, Event.EXIT) for s in LIVE}} == LIVE
    for state in State:
        for event in Event:
            target = STEPS.get((state.value, event.value))
            if state in LIVE and event is Event.EXIT:
                assert target == "zombie"
            if state not in LIVE and target is not None:
                assert State(target) not in LIVE


def test_exit_codes_are_the_promised_numbers():
    """They are the exit status of `rnix spawn`."""
    assert {code.name: int(code) for code in ExitCode} == {
        "DONE": 0,
        "ERROR": 1,
        "BUDGET": 2,
        "CONTEXT_FULL": 3,
    }
    assert msgspec.json.encode(Exit(ExitCode.BUDGET, "x")) == b'{"code":2,"reason":"x"}'


# --- signals ---


def test_signals_have_the_promised_numbers():
    """TERM 1, KILL 2, INT 3, PAUSE 4, RESUME 5, and are shown as SIG…"""
    assert [f"{signal} {int(signal)}" for signal in Signal] == [
        "SIGTERM 1",
        "SIGKILL 2",
        "SIGINT 3",
        "SIGPAUSE 4",
        "SIGRESUME 5",
    ]


@pytest.mark.parametrize("signal", Signal)
def test_ways_to_name_a_signal(signal):
    """With and without SIG, in any case, or by number."""
    for text in (signal.name, f"SIG{signal.name}", f" sig{signal.name.lower()}\n", str(int(signal))):
        assert parse(text) is signal


@pytest.mark.parametrize("text", ["", "0", "6", "HUP", "SIG", "SIGSIGTERM", "TERM KILL", "-1", "1.0", "²"])
def test_what_names_no_signal(text):
    """The answer lists those there are."""
    with pytest.raises(SyscallError, match=r"SIGTERM\(1\).*SIGRESUME\(5\)") as caught:
        parse(text)
    assert caught.value.code is Code.INVALID


@pytest.mark.parametrize("signal", Signal)
@pytest.mark.parametrize("blocked", [False, True])
@pytest.mark.parametrize("handled", [False, True])
def test_what_becomes_of_a_signal(signal, blocked, handled):
    """KILL always takes its default; others wait while blocked, else go to the handler, else the default."""
    signals = Signals()
    if signal is Signal.KILL:
        assert signals.resolve(signal) is Disposition.DEFAULT
        return
    if handled:
        signals.handle(signal, True)
    if blocked:
        signals.block(signal)
    expected = Disposition.PEND if blocked else Disposition.HANDLE if handled else Disposition.DEFAULT
    assert signals.resolve(signal) is expected
    assert signals.pending == ({signal} if blocked else set())


def test_kill_can_be_neither_blocked_nor_handled():
    """Both are refused, and nothing changed."""
    signals = Signals()
    for call in (lambda: signals.block(Signal.KILL), lambda: signals.handle(Signal.KILL, True)):
        with pytest.raises(SyscallError, match="SIGKILL") as caught:
            call()
        assert caught.value.code is Code.INVALID
    assert (signals.blocked, signals.handled) == (set(), set())
    assert signals.resolve(Signal.KILL) is Disposition.DEFAULT


def test_a_blocked_signal_waits_once():
    """However often it came, unblocking tells of one; a second unblocking of none."""
    signals = Signals()
    signals.block(Signal.TERM)
    signals.resolve(Signal.TERM)
    signals.resolve(Signal.TERM)
    assert signals.unblock(Signal.TERM)
    assert not signals.unblock(Signal.TERM)
    assert signals.resolve(Signal.TERM) is Disposition.DEFAULT


def test_handling_can_be_taken_back_and_the_end_forgets_all():
    """Nothing outlives the process."""
    signals = Signals()
    signals.handle(Signal.INT, True)
    signals.handle(Signal.INT, False)
    assert signals.resolve(Signal.INT) is Disposition.DEFAULT
    signals.handle(Signal.INT, True)
    signals.block(Signal.TERM)
    signals.resolve(Signal.TERM)
    signals.clear()
    assert (signals.blocked, signals.pending, signals.handled) == (set(), set(), set())


# --- context ---


def user(text: str) -> Message:
    return Message(Role.USER, text)


def test_a_context_takes_all_messages_or_none():
    """A call and its results are never parted, whichever limit is reached."""
    for context in (Context(max_messages=3), Context(max_bytes=3)):
        context.append(user("a"), user("b"))
        with pytest.raises(SyscallError, match="the context is full") as caught:
            context.append(user("c"), user("d"))
        assert caught.value.code is Code.RESOURCE_EXHAUSTED
        assert [message.content for message in context.messages] == ["a", "b"]
        context.append(user("c"))


def test_a_context_counts_bytes_of_all_texts():
    """The system prompt, texts in UTF-8, and tool calls with their arguments."""
    context = Context("übe")
    assert context.bytes == 4
    context.append(user("ü"))
    assert context.bytes == 6
    call = ToolCall("1", "shell", {"command": "ls"})
    context.append(Message(Role.ASSISTANT, "", [call]))
    assert context.bytes == 6 + len(msgspec.json.encode(call))


@given(st.lists(st.tuples(st.integers(0, 6), st.text(max_size=4)), max_size=20))
def test_writes_keep_the_count_of_bytes(writes):
    """0 appends, a number replaces that message, any other is refused; the count is that of what is there."""
    context = Context("sys", max_bytes=30)
    expected: list[str] = []
    for offset, content in writes:
        grown = expected.copy()
        if offset == 0:
            grown.append(content)
        elif offset <= len(expected):
            grown[offset - 1] = content
        size = 3 + sum(len(one.encode()) for one in grown)
        if offset > len(expected) or size > 30:
            with pytest.raises(SyscallError) as caught:
                context.write(offset, user(content))
            invalid = offset > len(expected)
            assert caught.value.code is (Code.INVALID if invalid else Code.RESOURCE_EXHAUSTED)
        else:
            assert context.write(offset, user(content)) == (offset or len(grown))
            expected = grown
        assert [one.content for one in context.messages] == expected
        assert context.bytes == 3 + sum(len(one.encode()) for one in expected)


def test_reads_of_a_context():
    """From a number on, from 1; 0 is all; a list of its own."""
    context = Context()
    context.append(user("a"), user("b"), user("c"))
    assert [one.content for one in context.read(2, 5)] == ["b", "c"]
    assert [one.content for one in context.read(1, 1)] == ["a"]
    assert context.read(9, 1) == []
    everything = context.read(0, 0)
    everything.clear()
    assert len(context.messages) == 3
    for offset, length in ((-1, 1), (1, -1)):
        with pytest.raises(SyscallError):
            context.read(offset, length)


def test_messages_json_is_the_whole_context():
    """One JSON object and a newline."""
    context = Context("be brief")
    context.append(user("hi"), Message(Role.TOOL, "42", tool_call_id="c1"))
    data = context.as_json()
    assert data.endswith(b"\n")
    assert msgspec.json.decode(data) == {
        "system_prompt": "be brief",
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "tool", "content": "42", "tool_call_id": "c1"},
        ],
    }


def test_the_summary_of_a_context():
    """Messages by role, size, the fill of the window, and the first lines of the last five."""
    context = Context()
    context.append(*(user(f"text {number}\nmore") for number in range(6)))
    context.append(Message(Role.ASSISTANT, "", [ToolCall("1", "glob", {})]), user("x" * 500))
    lines = context.summary(250, 1000).splitlines()
    assert lines[0] == "messages: 8 (7 user, 1 assistant)"
    assert lines[2] == "tokens:   250 of 1000 (25 %)"
    assert lines[3:7] == [
        "  4. user: text 3",
        "  5. user: text 4",
        "  6. user: text 5",
        "  7. assistant: calls glob",
    ]
    assert lines[7].startswith("  8. user: xxx")
    assert lines[7].endswith("…")
    assert len(lines[7]) < 140
    assert "window unknown" in context.summary(7, 0)
    assert Context().summary(0, 0).startswith("messages: 0\n")


# --- requests ---


def test_text_is_an_intent():
    """`echo do it > proc/spawn`"""
    assert read_spawn("do it") == SpawnRequest(intent="do it")


def test_json_says_more():
    """Every field of the contract is taken."""
    body = {
        "intent": "x",
        "agent": "a",
        "provider": "p",
        "model": "m",
        "skills": ["s"],
        "allowed_devices": ["/dev/shell"],
        "max_steps": 3,
        "context_budget": 0,
        "max_cost_usd": 0.5,
        "timeout_ms": 1,
        "system_prompt": "s",
        "parent": 1,
        "cwd": "/tmp",
        "env": {"A": "b"},
        "idempotency_key": "once",
        "effort": "high",
        "fallback": [{"provider": "q", "model": "n"}, {"model": "o"}],
    }
    assert msgspec.to_builtins(read_spawn(body)) == body
    assert set(spawning.REQUEST_SCHEMA["properties"]) == {*body, "supervisor", "fork"}


def test_a_fork_is_asked_for_with_its_source_alone():
    """By pid or UUID, from a step or the last one, and with a key."""
    body = {"fork": {"source": "7", "step": 0}, "idempotency_key": "once"}
    assert read_spawn(body) == SpawnRequest(fork=ForkFrom("7", 0), idempotency_key="once")
    assert read_spawn({"fork": {"source": "7"}}).fork == ForkFrom("7", None)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("", "intent"),
        (" \n", "intent"),
        ({}, "intent"),
        ({"intent": ""}, "intent"),
        ({"intent": 5}, "intent"),
        ([], "object"),
        (None, "object"),
        (7, "object"),
        ({"intent": "x", "intnet": 1}, "intnet"),
        ({"intent": "x", "max_steps": 0}, "max_steps"),
        ({"intent": "x", "max_steps": limits.STEPS_CEILING + 1}, "max_steps"),
        ({"intent": "x", "max_steps": "3"}, "max_steps"),
        ({"intent": "x", "max_steps": 1.5}, "max_steps"),
        ({"intent": "x", "context_budget": -1}, "context_budget"),
        ({"intent": "x", "max_cost_usd": -0.1}, "max_cost_usd"),
        ({"intent": "x", "timeout_ms": -1}, "timeout_ms"),
        ({"intent": "x", "cwd": "relative"}, "cwd"),
        ({"intent": "x", "allowed_devices": ["dev/shell"]}, "allowed_devices"),
        ({"intent": "x", "allowed_devices": "/dev/shell"}, "allowed_devices"),
        ({"intent": "x", "skills": "s"}, "skills"),
        ({"intent": "x", "env": {"A": 1}}, "env"),
        ({"intent": "x", "parent": "1"}, "parent"),
        ({"intent": "x", "idempotency_key": ""}, "idempotency_key"),
        ({"intent": "x", "idempotency_key": "a\tb"}, "idempotency_key"),
        ({"intent": "x", "idempotency_key": 1}, "idempotency_key"),
        ({"intent": "x", "fork": {"source": "1"}}, "fork"),
        ({"fork": {"source": "1"}, "max_steps": 3}, "fork"),
        ({"fork": {"source": "1", "step": -1}}, "fork.step"),
        ({"fork": {"step": 1}}, "source"),
        ({"fork": {"source": "1", "steps": 1}}, "steps"),
    ],
)
def test_a_request_that_is_wrong_names_its_field(body, named):
    """INVALID, with the field and what would be right."""
    with pytest.raises(SyscallError, match=named) as caught:
        read_spawn(body)
    assert caught.value.code is Code.INVALID


def test_the_size_of_an_intent():
    """In bytes, exactly up to the limit."""
    most = limits.INTENT_MAX
    assert read_spawn("ü" * (most // 2)).intent
    with pytest.raises(SyscallError, match=str(most)) as caught:
        read_spawn("ü" * (most // 2) + "x")
    assert caught.value.code is Code.TOO_LARGE


@pytest.mark.parametrize(
    ("field", "value"), [("max_steps", 1), ("max_steps", limits.STEPS_CEILING), ("timeout_ms", 0)]
)
def test_the_ends_of_ranges_are_taken(field, value):
    """Limits include their ends."""
    assert getattr(read_spawn({"intent": "x", field: value}), field) == value


# --- time ---


async def test_a_stopwatch_stands_still_while_stopped(autojump_clock):
    """Only running time counts, however often it is told the same."""
    watch = Stopwatch()
    await trio.sleep(5)
    watch.stop()
    watch.stop()
    await trio.sleep(100)
    assert watch.elapsed() == pytest.approx(5)
    watch.go()
    watch.go()
    await trio.sleep(2)
    assert watch.elapsed() == pytest.approx(7)


# --- names ---


def test_uuids_are_of_version_7_and_unique():
    """RFC 9562: version 7, the variant of the RFC, and no two alike."""
    made = [uuid7() for _ in range(2000)]
    assert len(set(made)) == len(made)
    for text in made:
        found = uuid.UUID(text)
        assert (found.version, found.variant) == (7, uuid.RFC_4122)
        assert str(found) == text


@given(st.lists(st.integers(0, 2**47), min_size=2, max_size=6))
def test_uuids_sort_by_their_age(times):
    """The first 48 bits are milliseconds since 1970, so later ones sort later."""
    with pytest.MonkeyPatch.context() as patch:
        made = []
        for millis in sorted(times):
            patch.setattr(time, "time_ns", lambda millis=millis: millis * 1_000_000 + 999_999)
            made.append((millis, uuid7()))
    for millis, text in made:
        assert uuid.UUID(text).int >> 80 == millis
    for (earlier, one), (later, other) in itertools.pairwise(made):
        if earlier < later:
            assert one < other


def test_uuids_use_all_their_random_bits(monkeypatch):
    """74 bits come from the system's generator; all ones show where they go."""
    monkeypatch.setattr(os, "urandom", lambda count: b"\xff" * count)
    variant = 0b10 << 62
    assert uuid.UUID(uuid7()).int & (1 << 76) - 1 == 0xFFF << 64 | variant | (1 << 62) - 1


# --- open files ---


async def test_open_files_have_the_lowest_free_number(lab, autojump_clock):
    """From 3 up; a closed one is used again first; a wrong one is BAD_FD; the table has a limit."""
    process = await lab.run(done)

    def add() -> int:
        return process.add_file(OpenFile("/x", os.O_RDONLY, File()))

    assert [add(), add(), add()] == [3, 4, 5]
    del process.files[4]
    assert [add(), add()] == [4, 6]
    for fd in (-1, 0, 2, 7):
        with pytest.raises(SyscallError, match="not open") as caught:
            process.file(fd)
        assert caught.value.code is Code.BAD_FD
    while len(process.files) < limits.OPEN_FILES_MAX:
        add()
    with pytest.raises(SyscallError, match=str(limits.OPEN_FILES_MAX)) as caught:
        add()
    assert caught.value.code is Code.RESOURCE_EXHAUSTED
