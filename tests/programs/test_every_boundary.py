"""A run that is stopped at any event goes on after it, to the same end, and does nothing twice.

The stop is exact: the log is cut after an event, and with it what the world had seen by then. The same is
done with a real daemon and SIGKILL in `tests/crash`; here each boundary takes milliseconds.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from rnixfs.device import Body, Description, Job, Sink, ToolInfo, json_line
from rnixfs.llm import Emit, ModelAnswer, ModelRequest, Role, ToolCall
from rnixfs.proc.groups import wake_tree
from rnixfs.proc.process import Process
from rnixfs.restore import restore
from rnixfs.state.memory import MemoryStore
from rnixfs.state.store import Keep, Record
from rnixfs.types import Caller
from tests.programs.reasonlab import OBJECT, PERSON, Bench, Scripted, Tool, answer, uses

Event = tuple[str, int, dict[str, Any], Keep]


class World:
    """What effects leave behind, whoever runs."""

    def __init__(self, done: tuple[str, ...] = ()) -> None:
        self.done = list(done)


class Effect(Tool):
    """A tool that changes the world; it takes a moment before and after."""

    def __init__(self, world: World) -> None:
        super().__init__("effect")
        self.world = world

    async def work(self, sink: Sink, body: Body) -> None:
        assert isinstance(body, dict)
        await trio.sleep(0.01)
        self.world.done.append(str(body["name"]))
        await trio.sleep(0.01)
        sink.write(json_line({"did": body["name"]}))


class Check(Tool):
    """A tool that only looks."""

    def __init__(self, world: World) -> None:
        super().__init__("check")
        self.world = world

    def describe(self, caller: Caller) -> Description:
        tools = [ToolInfo("check", "Looks.", OBJECT, read_only=True, parallel=True)]
        return Description("/dev/check", "For tests.", OBJECT, {}, tools=tools)

    def accept(self, caller: Caller, body: Body) -> Job:
        async def job(sink: Sink) -> None:
            await trio.sleep(0.01)
            assert isinstance(body, dict)
            sink.write(json_line({"name": body["name"], "there": body["name"] in self.world.done}))

        return job


class Diary(MemoryStore):
    """A log that remembers what the world had seen at each event.

    Args:
        world: the world.
        events: what it begins with.
    """

    def __init__(self, world: World, events: list[Event] | None = None) -> None:
        super().__init__()
        self.world = world
        self.events: list[Event] = []
        self.seen: list[tuple[str, ...]] = []
        for one in events or ():
            self.append_event(*one)

    def append_event(self, event: str, pid: int, data: dict[str, Any], keep: Keep = Keep.NOW) -> Record:
        self.events.append((event, pid, data, keep))
        self.seen.append(tuple(self.world.done))
        return super().append_event(event, pid, data, keep)


# --- a mind that is a function of what it is shown ---


def mind(request: ModelRequest) -> ModelAnswer:
    """The next thing to do, from the conversation alone."""
    intent = request.messages[0].content
    calls = {call.id: call for message in request.messages for call in message.tool_calls}
    results = [
        (calls[message.tool_call_id], msgspec.json.decode(message.content))
        for message in request.messages
        if message.role is Role.TOOL
    ]
    plan = (_root if intent == "root" else _child)(results, request)
    if isinstance(plan, str):
        return answer(plan)
    turn = len(request.messages)
    return uses(*(ToolCall(f"{turn}-{place}", name, more) for place, (name, more) in enumerate(plan)))


Results = list[tuple[ToolCall, Any]]
Plan = str | list[tuple[str, dict[str, Any]]]


def _left(results: Results, *names: str) -> list[tuple[str, dict[str, Any]]]:
    """What is to be done for each effect that is not known to be done: look where nobody knows, else do."""
    todo = []
    for name in names:
        state = "undone"
        for call, result in results:
            if call.arguments.get("name") != name:
                continue
            if call.name == "check":
                state = "done" if result["there"] else "undone"
            else:
                unknown = result.get("error", {}).get("code") == "UNKNOWN_OUTCOME"
                state = "unknown" if unknown else "done"
        if state != "done":
            todo.append(("check" if state == "unknown" else "effect", {"name": name}))
    return todo


def _child(results: Results, request: ModelRequest) -> Plan:
    name = request.messages[0].content
    return _left(results, name) or f"{name} is done"


def _root(results: Results, request: ModelRequest) -> Plan:
    if todo := _left(results, "a", "b"):
        return todo
    spawned = [result["pid"] for call, result in results if call.name == "spawn"]
    if not spawned:
        return [("spawn", {"intent": "c"}), ("spawn", {"intent": "d"})]
    exits = [end for call, result in results if call.name == "wait" for end in result["exits"]]
    if len(exits) < len(spawned):
        return [("wait", {})]
    if todo := _left(results, "e"):
        return todo
    return " ".join(["root", *sorted(end["result"] for end in exits)])


# --- the runs ---


def bench(top: Path, world: World, log: Diary) -> Bench:
    """A system over a log."""

    class Mind(Scripted):
        async def complete(self, request: ModelRequest, emit: Emit | None = None) -> ModelAnswer:
            await trio.sleep(0.01)
            return mind(request)

    return Bench(top, [Mind()], [Effect(world), Check(world)], log=log)


async def during(made: Bench, act: Callable[[], Awaitable[Process]]) -> Process:
    """Run a system until something has been done in it."""
    async with trio.open_nursery() as nursery:
        await nursery.start(made.kernel.run)
        process = await act()
        nursery.cancel_scope.cancel()
    return process


async def whole(top: Path) -> tuple[Diary, Process]:
    """The run that nobody stops."""
    world = World()
    log = Diary(world)
    made = bench(top, world, log)

    async def act() -> Process:
        return await made.run("root")

    return log, await during(made, act)


async def again(top: Path, log: Diary, cut: int, late: bool = True) -> tuple[Diary, Process]:
    """The same run, stopped after `cut` events and woken.

    Args:
        top: an empty folder.
        log: of the run that is stopped.
        cut: how many of its events are kept.
        late: whether the world has seen all that came before the next event, or only what came before the
            last one that is kept.
    """
    seen = [*log.seen, tuple(log.world.done)]
    world = World(seen[cut if late else cut - 1])
    short = Diary(world, log.events[:cut])
    made = bench(top, world, short)
    restore(made.kernel)

    async def act() -> Process:
        known = short.entry(1)
        if known is None:
            return await made.run("root")
        process = made.kernel.processes.get(1)
        if process is None:
            past = made.kernel.history.by_pid(1)
            assert past is not None
            return past
        if process.live:
            wake_tree(made.kernel, process, PERSON)
        await process.done.wait()
        return process

    return short, await during(made, act)


@pytest.mark.parametrize("late", [True, False])
async def test_stopped_after_any_event_it_ends_the_same(tmp_path, autojump_clock, late):
    """The result, the exit and each effect, once, wherever the log is cut."""
    log, first = await whole(tmp_path / "first")
    assert first.result == "root c is done d is done"
    assert sorted(log.world.done) == ["a", "b", "c", "d", "e"]
    assert len(log.events) > 50
    for cut in range(1, len(log.events) + 1):
        rest, process = await again(tmp_path / f"cut-{cut}", log, cut, late)
        where = f"cut after {cut}: {log.events[cut - 1][:2]}"
        assert (process.exit, process.result) == (first.exit, first.result), where
        assert sorted(rest.world.done) == ["a", "b", "c", "d", "e"], where


async def test_stopped_twice_it_ends_the_same(tmp_path, autojump_clock):
    """A second stop in the run after the first one changes nothing either."""
    log, first = await whole(tmp_path / "first")
    for cut in range(5, len(log.events), 7):
        rest, _ = await again(tmp_path / f"cut-{cut}", log, cut)
        for later in range(cut + 1, len(rest.events), 5):
            last, process = await again(tmp_path / f"cut-{cut}-{later}", rest, later)
            where = f"cut after {cut}, then {later}: {rest.events[later - 1][:2]}"
            assert (process.exit, process.result) == (first.exit, first.result), where
            assert sorted(last.world.done) == ["a", "b", "c", "d", "e"], where


@pytest.mark.parametrize("event", ["request", "tool_started"])
async def test_each_effect_has_a_key_of_its_own(tmp_path, autojump_clock, event):
    """No two requests or tool calls share a key, also among processes."""
    log, _ = await whole(tmp_path)
    keys = [data["effect"] for name, _, data, _ in log.events if name == event]
    assert len(keys) > 4
    assert len(set(keys)) == len(keys)
