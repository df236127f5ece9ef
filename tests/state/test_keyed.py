"""Idempotency keys: a request with a key runs once, whoever joins and whatever is cancelled or restarted."""

import os
import pathlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from rnixfs import limits
from rnixfs.bootstrap import Settings, System
from rnixfs.device import Body, Description, Job, Sink
from rnixfs.errors import Code, SyscallError, invalid
from rnixfs.exchange import Answer, DeviceNode
from rnixfs.idempotency import FIELD, SCHEMA
from rnixfs.keyed import KeyedDevice
from rnixfs.state.memory import MemoryStore
from rnixfs.state.sqlite import SqliteStore
from rnixfs.state.store import Record
from rnixfs.types import Caller, Ready
from tests.daemon import environment
from tests.tree import MemoryTree, ask

PATH = "/dev/counter"
ME = Caller(1000, 1000)
OTHER = Caller(1001, 1001)
AGENT = Caller(1000, 1000, agent=7)
EDGE = 0.01  # seconds before and after a limit at which a test looks; the clock is a fake


class Ledger:
    """A store as devices see it, whose disk a test may fill.

    Args:
        store: outlives a simulated daemon.
    """

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.full_for: set[str] = set()
        self.records: list[Record] = []

    def emit(self, event: str, pid: int, data: dict[str, Any]) -> Record:
        if event in self.full_for:
            raise SyscallError(Code.RESOURCE_EXHAUSTED, "the disk is full")
        self.records.append(self.store.append_event(event, pid, data))
        return self.records[-1]

    def keyed(self, key: str) -> list[Record]:
        return self.store.keyed(key)

    def events(self) -> list[str]:
        """The names of what was recorded."""
        return [record.event for record in self.records]


class Counter:
    """A device that counts how often it runs. `{"say": TEXT}` is answered with the text and the count."""

    def __init__(self) -> None:
        self.runs = 0
        self.cancelled = 0
        self.gate: trio.Event | None = None
        self.started = trio.Event()
        self.leave = trio.Event()
        self.leave.set()
        self.before: Callable[[], None] = lambda: None

    def describe(self, caller: Caller) -> Description:
        return Description(PATH, "counts", {"type": "object", "properties": {"say": {}}}, {"say": "hi"})

    def accept(self, caller: Caller, body: Body) -> Job:
        if isinstance(body, dict) and set(body) - {"say", "fail", "bytes", "more"}:
            raise invalid(f"unknown fields in {body}")

        async def job(sink: Sink) -> None:
            self.before()
            self.runs += 1
            self.started.set()
            if self.gate is not None:
                try:
                    await self.gate.wait()
                except trio.Cancelled:
                    self.cancelled += 1
                    with trio.CancelScope(shield=True):
                        await self.leave.wait()
                    raise
            self._answer(body if isinstance(body, dict) else {"say": body}, sink)

        return job

    def _answer(self, body: dict[str, Any], sink: Sink) -> None:
        if "bytes" in body:
            sink.write(bytes(body["bytes"]))
        elif "fail" in body:
            sink.write(b"a part that nobody is to see")
            raise SyscallError(Code.TIMEOUT, body["fail"])
        else:
            sink.write(f"{body['say']} {self.runs}".encode())
            sink.write(b"\n")


class Desk:
    """One run of the daemon: the device behind its keys, and what is asked of it."""

    def __init__(self, nursery: trio.Nursery, store: MemoryStore, **how: bool) -> None:
        self.inner = Counter()
        self.ledger = Ledger(store)
        self.nursery = nursery
        self.device = KeyedDevice(self.inner, PATH, self.ledger, nursery.start_soon, **how)

    def ask(self, key: object, caller: Caller = ME, **body: object) -> Answer:
        """Begin a request with a key."""
        job = self.device.accept(
            caller, {"say": "hi", **body, FIELD: key} if not body else {**body, FIELD: key}
        )
        answer = Answer(PATH, caller.agent)
        self.nursery.start_soon(answer.run, job)
        return answer

    async def answer(self, key: object, caller: Caller = ME, **body: object) -> bytes:
        """Ask, and wait for the whole answer."""
        return await whole(self.ask(key, caller, **body))


async def whole(answer: Answer) -> bytes:
    """All of an answer, once it has ended."""
    while not answer.ended:
        await answer.pulse.wait()
    return bytes(answer.data)


def refused(code: Code, words: str = "") -> "pytest.RaisesExc[SyscallError]":
    """Expects a SyscallError of a code, with these words in its reason."""
    return pytest.RaisesExc(SyscallError, check=lambda error: error.code is code and words in error.reason)


Story = Callable[[Desk], Awaitable[None]]


async def with_desk(store: MemoryStore, story: Story, **how: bool) -> Desk:
    """Play a story in one run of the daemon, which ends as a killed one does: at once."""
    async with trio.open_nursery() as nursery:
        desk = Desk(nursery, store, **how)
        await story(desk)
        nursery.cancel_scope.cancel()
    return desk


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def desk(store: MemoryStore, nursery: trio.Nursery) -> Desk:
    return Desk(nursery, store)


# --- once ---


async def test_a_request_with_a_key_runs_once(desk: Desk) -> None:
    """Whoever asks again with the key gets the recorded answer, any number of times."""
    assert [await desk.answer("a") for _ in range(3)] == [b"hi 1\n"] * 3
    assert desk.inner.runs == 1
    assert desk.ledger.events() == ["request", "answered"]


async def test_the_log_knows_of_the_request_before_it_runs(desk: Desk) -> None:
    """`request` is recorded before the work begins, `answered` before anybody sees the answer."""
    seen: list[list[str]] = []
    desk.inner.before = lambda: seen.append(desk.ledger.events())
    desk.inner.gate = trio.Event()
    answer = desk.ask("a")
    await desk.inner.started.wait()
    assert (seen, bytes(answer.data)) == ([["request"]], b"")
    desk.inner.gate.set()
    while not answer.data:
        await answer.pulse.wait()
    assert desk.ledger.events() == ["request", "answered"]
    request, answered = (record.data for record in desk.ledger.records)
    assert (request["device"], request["uid"], answered["answer"]) == (PATH, 1000, "hi 1\n")
    assert request["key"] == answered["key"] != "a"
    assert {record.pid for record in desk.ledger.records} == {0}


async def test_those_who_ask_meanwhile_join(desk: Desk) -> None:
    """Requests with the key of one that runs wait for it, and all get the same answer."""
    desk.inner.gate = trio.Event()
    answers = [desk.ask("a") for _ in range(5)]
    await desk.inner.started.wait()
    answers += [desk.ask("a") for _ in range(5)]
    desk.inner.gate.set()
    assert [await whole(answer) for answer in answers] == [b"hi 1\n"] * 10
    assert (desk.inner.runs, desk.ledger.events()) == (1, ["request", "answered"])


async def test_a_key_counts_where_it_was_used(desk: Desk) -> None:
    """Another key, another person and a process have requests of their own."""
    askers = [("a", ME), ("b", ME), ("a", OTHER), ("a", AGENT)]
    for _ in range(2):
        assert [await desk.answer(key, who) for key, who in askers] == [b"hi %d\n" % n for n in (1, 2, 3, 4)]
    assert [record.data.get("agent") for record in desk.ledger.records[::2]] == [None, None, None, 7]


async def test_a_key_counts_for_one_device(store: MemoryStore, nursery: trio.Nursery) -> None:
    """The same key at another device is another request."""
    ledger, counter = Ledger(store), Counter()
    for path in ("/dev/one", "/dev/two"):
        device = KeyedDevice(counter, path, ledger, nursery.start_soon)
        answer = Answer(path, 0)
        await answer.run(device.accept(ME, {"say": "hi", FIELD: "a"}))
        assert not bytes(answer.data).startswith(b'{"error"')
    assert counter.runs == 2


async def test_requests_without_a_key_pass_untouched(desk: Desk) -> None:
    """Text and objects without a key run every time, leave no event, and are given as they come."""
    for body in ("hi", {"say": "hi"}) * 2:
        answer = Answer(PATH, 0)
        await answer.run(desk.device.accept(ME, body))
    assert (desk.inner.runs, desk.ledger.events()) == (4, [])


# --- what a key stands for ---


async def test_a_key_stands_for_one_content(desk: Desk) -> None:
    """The same key with another content is refused, while the first runs and afterwards; the order of fields
    is no content."""
    desk.inner.gate = trio.Event()
    first = desk.ask("a", say="x", more=1)
    with refused(Code.INVALID, "another content"):
        desk.ask("a", say="y", more=1)
    desk.inner.gate.set()
    await whole(first)
    with refused(Code.INVALID, "another content"):
        desk.ask("a", say="y", more=1)
    assert await desk.answer("a", more=1, say="x") == b"x 1\n"


@pytest.mark.parametrize(
    "key", ["", "x" * (limits.IDEMPOTENCY_KEY_MAX + 1), "a\nb", "\x00", "\ud800", 5, None, []]
)
async def test_a_key_is_printable_text(desk: Desk, key: object) -> None:
    """What cannot be a key is refused, and nothing runs."""
    with refused(Code.INVALID, FIELD):
        desk.ask(key)
    assert (desk.inner.runs, desk.ledger.events()) == (0, [])


@pytest.mark.parametrize("key", ["x", "ä ö", "x" * limits.IDEMPOTENCY_KEY_MAX, "uid:1 a"])
async def test_every_printable_text_is_a_key(desk: Desk, key: str) -> None:
    """Any printable text in the limit does."""
    assert await desk.answer(key) == await desk.answer(key) == b"hi 1\n"


async def test_a_refused_request_uses_no_key(desk: Desk) -> None:
    """What the device refuses leaves nothing, so the corrected request may carry the key."""
    with refused(Code.INVALID, "unknown fields"):
        desk.ask("a", sya="hi")
    assert desk.ledger.events() == []
    assert await desk.answer("a") == b"hi 1\n"


async def test_the_description_names_the_field(desk: Desk) -> None:
    """A device says that it takes a key, beside what it says itself."""
    described = desk.device.describe(ME)
    assert described.request["properties"] == {"say": {}, FIELD: SCHEMA}
    assert described.request["type"] == "object"
    assert FIELD not in desk.inner.describe(ME).request["properties"]


# --- failures ---


async def test_a_failure_is_an_answer(desk: Desk) -> None:
    """Who asks again after a failure gets the same failure, and nothing of what came before it."""
    answers = [await desk.answer("a", fail="no time left") for _ in range(2)]
    assert answers[0] == answers[1]
    assert answers[0].startswith(b'{"error":{"code":"TIMEOUT","message":"no time left"')
    assert desk.inner.runs == 1


async def test_too_large_an_answer_is_a_failure(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that cannot be kept is an error, with what to do about it."""
    monkeypatch.setattr(limits, "KEYED_ANSWER_MAX", 3)
    for _ in range(2):
        answer = await desk.answer("a")
        assert b"TOO_LARGE" in answer
        assert b"without a key" in answer
    assert desk.inner.runs == 1


async def test_any_bytes_can_be_an_answer(desk: Desk) -> None:
    """What is no text comes back as it was."""
    for data in ([0, 255, 128], [104, 105], []):
        assert [await desk.answer(str(data), bytes=data) for _ in range(2)] == [bytes(data)] * 2


async def test_what_cannot_be_recorded_does_not_run(desk: Desk) -> None:
    """Where the log takes no `request` the writer is told, and nothing is done."""
    desk.ledger.full_for = {"request"}
    with refused(Code.RESOURCE_EXHAUSTED):
        desk.ask("a")
    desk.ledger.full_for = set()
    assert await desk.answer("a") == b"hi 1\n"


async def test_an_answer_that_cannot_be_recorded_is_not_given(desk: Desk) -> None:
    """Where the log takes no `answered` the asker gets that error; asked again, it is recorded and given, and
    the work is not done twice."""
    desk.ledger.full_for = {"answered"}
    for _ in range(2):
        assert b"RESOURCE_EXHAUSTED" in await desk.answer("a")
    desk.ledger.full_for = set()
    assert [await desk.answer("a") for _ in range(2)] == [b"hi 1\n"] * 2
    assert (desk.inner.runs, desk.ledger.events()) == (1, ["request", "answered"])


# --- nobody waits ---


async def test_the_work_goes_on_while_anybody_waits(desk: Desk) -> None:
    """Cancelling one of several askers takes nothing from the others."""
    desk.inner.gate = trio.Event()
    first, second = desk.ask("a", AGENT), desk.ask("a", AGENT)
    await desk.inner.started.wait()
    first.cancel()
    assert b"CANCELED" in await whole(first)
    desk.inner.gate.set()
    assert await whole(second) == b"hi 1\n"


async def test_a_process_cancels_its_work_at_once(desk: Desk, autojump_clock: trio.abc.Clock) -> None:
    """Work of a process that nobody waits for is cancelled. It may have been half done, so that is what
    everybody gets who asks again."""
    desk.inner.gate = trio.Event()
    answer = desk.ask("a", AGENT)
    await desk.inner.started.wait()
    began = trio.current_time()
    answer.cancel()
    await trio.testing.wait_all_tasks_blocked()
    assert desk.ledger.events() == ["request", "answered"]
    assert (trio.current_time(), desk.inner.cancelled) == (began, 1)
    assert b"CANCELED" in await desk.answer("a", AGENT)
    assert desk.inner.runs == 1


async def test_work_of_a_person_waits_for_the_next_asker(desk: Desk, autojump_clock: trio.abc.Clock) -> None:
    """A person's work runs on for a while when its asker goes, and who asks with the key in time joins it."""
    desk.inner.gate = trio.Event()
    for _ in range(3):
        answer = desk.ask("a")
        await desk.inner.started.wait()
        answer.cancel()
        await whole(answer)
        await trio.sleep(limits.KEYED_LINGER_SECONDS - EDGE)
    answer = desk.ask("a")
    await trio.sleep(10 * limits.KEYED_LINGER_SECONDS)
    desk.inner.gate.set()
    assert await whole(answer) == b"hi 1\n"


async def test_work_of_a_person_is_cancelled_in_the_end(desk: Desk, autojump_clock: trio.abc.Clock) -> None:
    """When nobody came back in time it is cancelled, and that is on record."""
    desk.inner.gate = trio.Event()
    answer = desk.ask("a")
    await desk.inner.started.wait()
    answer.cancel()
    await trio.sleep(limits.KEYED_LINGER_SECONDS - EDGE)
    assert desk.inner.cancelled == 0
    await trio.sleep(2 * EDGE)
    assert (desk.inner.cancelled, desk.ledger.events()) == (1, ["request", "answered"])
    assert b"CANCELED" in await desk.answer("a")


@pytest.mark.parametrize("who", [ME, AGENT])
async def test_what_changes_nothing_runs_again_after_a_cancellation(
    store: MemoryStore, nursery: trio.Nursery, autojump_clock: trio.abc.Clock, who: Caller
) -> None:
    """A cancelled request to a model leaves no answer, so the next one with the key gets a whole one."""
    desk = Desk(nursery, store, repeatable=True)
    desk.inner.gate = trio.Event()
    answer = desk.ask("a", who)
    await desk.inner.started.wait()
    answer.cancel()
    await trio.sleep(limits.KEYED_LINGER_SECONDS + EDGE)
    again = desk.ask("a", who)
    desk.inner.gate.set()
    assert await whole(again) == b"hi 2\n"
    assert desk.ledger.events() == ["request", "answered"]


async def test_work_that_is_being_cancelled_is_not_joined(store: MemoryStore, nursery: trio.Nursery) -> None:
    """Who asks a model between the cancellation and its end gets an answer, not the cancellation."""
    desk = Desk(nursery, store, repeatable=True)
    desk.inner.gate, desk.inner.leave = trio.Event(), trio.Event()
    first = desk.ask("a", AGENT)
    await desk.inner.started.wait()
    first.cancel()
    await trio.testing.wait_all_tasks_blocked()
    assert (first.ended, desk.inner.cancelled) == (True, 1)
    second = desk.ask("a", AGENT)
    desk.inner.gate.set()
    assert await whole(second) == b"hi 2\n"
    desk.inner.leave.set()


async def test_a_shell_that_asks_again_from_its_session_joins(desk: Desk) -> None:
    """`echo … > device` twice: the second ends the first one's exchange, and yet the work is done once."""
    node = DeviceNode("counter", PATH, desk.device, desk.nursery.start_soon)
    desk.inner.gate = trio.Event()
    for _ in range(2):
        file = node.open(ME, os.O_WRONLY | os.O_TRUNC)
        await trio.testing.wait_all_tasks_blocked()
        file.write(b'{"say": "hi", "idempotency_key": "a"}', 0)
        file.close()
        await desk.inner.started.wait()
    desk.inner.gate.set()
    reader = node.open(ME, os.O_RDONLY)
    await reader.wait(Ready.READ)
    assert reader.read(100, 0) == b"hi 1\n"
    reader.close()
    assert desk.inner.runs == 1


# --- restarts ---


async def test_an_answer_outlives_the_daemon(store: MemoryStore) -> None:
    """A daemon that starts later gives what an earlier one recorded, failures too, and refuses another
    content."""

    async def first(desk: Desk) -> None:
        assert await desk.answer("a") == b"hi 1\n"
        await desk.answer("b", fail="no luck")

    async def second(desk: Desk) -> None:
        assert await desk.answer("a") == b"hi 1\n"
        assert b"no luck" in await desk.answer("b", fail="no luck")
        with refused(Code.INVALID, "another content"):
            desk.ask("a", say="ho")

    await with_desk(store, first)
    assert (await with_desk(store, second)).inner.runs == 0


async def stop_while_it_runs(desk: Desk) -> None:
    """Ask, and leave while the work is done."""
    desk.inner.gate = trio.Event()
    desk.ask("a")
    await desk.inner.started.wait()


async def test_what_ran_when_the_daemon_stopped_is_unknown(store: MemoryStore) -> None:
    """Nobody can say whether it was done, so it does not run again and the asker is told to look; every time,
    until the key is another one."""

    async def second(desk: Desk) -> None:
        for _ in range(2):
            with refused(Code.UNKNOWN_OUTCOME, "outcome unknown"):
                desk.ask("a")
        assert await desk.answer("b") == b"hi 1\n"

    assert (await with_desk(store, stop_while_it_runs)).ledger.events() == ["request"]
    assert (await with_desk(store, second)).inner.runs == 1


async def test_what_changes_nothing_runs_again_after_a_restart(store: MemoryStore) -> None:
    """A request to a model that the daemon's stop interrupted is asked anew, and answered once."""

    async def second(desk: Desk) -> None:
        with refused(Code.INVALID, "another content"):
            desk.ask("a", say="ho")
        assert [await desk.answer("a") for _ in range(2)] == [b"hi 1\n"] * 2

    await with_desk(store, stop_while_it_runs, repeatable=True)
    again = await with_desk(store, second, repeatable=True)
    assert (again.inner.runs, again.ledger.events()) == (1, ["answered"])


async def test_a_whole_system_remembers_what_ran(tmp_path: pathlib.Path) -> None:
    """The shell and the models of a system that starts on the log of another give what that one recorded, and
    the commands do not run again."""
    (tmp_path / "host").mkdir()
    settings = Settings((str(tmp_path / "host"),), env=environment(tmp_path))
    shell = {"command": "echo once >> mark; date +%N", FIELD: "a"}
    answers = []
    for _ in range(2):
        log = SqliteStore(tmp_path / "state")
        system = System(settings, log=log)
        async with trio.open_nursery() as nursery:
            await nursery.start(system.kernel.run)
            tree = MemoryTree(system)
            asked = {"dev/shell": shell, "dev/llm/script": {"intent": "say hello", FIELD: "a"}}
            answers.append([await ask(tree, path, request) for path, request in asked.items()])
            nursery.cancel_scope.cancel()
        await system.models.aclose()
        log.close()
    assert answers[0] == answers[1]
    assert b'"content":"hello"' in answers[0][1]
    assert (tmp_path / "host" / "mark").read_text() == "once\n"
