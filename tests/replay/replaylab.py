"""Runs that are made up from a number: a process, its model and tools, and what comes from outside."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from rnixfs.bootstrap import Settings, System
from rnixfs.device import Body, Description, Sink, ToolInfo, json_line
from rnixfs.errors import Code, SyscallError
from rnixfs.exchange import DeviceNode
from rnixfs.hostdir import host_roots
from rnixfs.llm import Emit, ModelAnswer, ModelRequest
from rnixfs.model import Model
from rnixfs.node import Dir, FixedDir, Node
from rnixfs.proc.process import Process
from rnixfs.proc.request import SpawnRequest
from rnixfs.proc.signals import Signal
from rnixfs.providers import ProviderConfig
from rnixfs.recording import read_recording
from rnixfs.replay import Outcome, replay
from rnixfs.state.memory import MemoryStore
from rnixfs.state.store import Log
from tests.programs.reasonlab import OBJECT, PERSON, Bench, Scripted, Tool, act, answer, call, uses

SECONDS = 100_000  # of the jumping clock, which passes only while everybody waits


class Echo(Tool):
    """A tool that says what it was asked, or fails where it is asked to.

    Args:
        name: of the device and of its tool.
        parallel: whether calls may run side by side.
        again: whether it changes nothing.
    """

    def __init__(self, name: str, parallel: bool = True, again: bool = False) -> None:
        super().__init__(name, parallel)
        self.again = again
        self.stop: Callable[[], None] | None = None  # what happens once, in the middle of a call

    def describe(self, caller: Any) -> Description:
        info = ToolInfo(self.name, f"Does {self.name}.", OBJECT, self.again, self.parallel)
        return Description(f"/dev/{self.name}", "For tests.", OBJECT, {}, tools=[info])

    async def work(self, sink: Sink, body: Body) -> None:
        assert isinstance(body, dict)
        await trio.sleep(body.get("seconds", 0) + 0.001 * len(self.asked))
        if body.get("stop") and self.stop is not None:
            stop, self.stop = self.stop, None
            stop()
            await trio.sleep_forever()
        if "fail" in body:
            raise SyscallError(Code.DRIVER, f"{self.name} broke: {body['fail']}")
        sink.write(json_line({"tool": self.name, "got": body, "text": "é\n" * body.get("lines", 0)}))


class Halting(Scripted):
    """A model that never answers where its reply is an order; the order is given then."""

    replies: list[Any]

    def __init__(self, provider: str, replies: list[Any], native: bool, tell: Callable[[str], None]) -> None:
        super().__init__(provider, replies, native)
        self.tell = tell

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> ModelAnswer:
        if self.replies and isinstance(self.replies[0], str):
            self.requests.append(request)
            self.tell(self.replies.pop(0))
            await trio.sleep_forever()
        return await super().complete(request, emit)


class World(System):
    """The real system with the models and devices of a bench, on any log.

    Args:
        bench: has the library, the models and the folders.
        devices: by their name under `/dev`.
        log: its log.
    """

    def __init__(self, bench: Bench, models: list[Model], devices: list[Tool], log: Log) -> None:
        self._named = {model.provider: model for model in models}
        self._devices = devices
        super().__init__(Settings((str(bench.cwd),), env=dict(bench.home.env)), bench.library, log=log)

    def _model(self, entry: ProviderConfig) -> Model | None:
        return self._named.get(entry.name)

    def _dev(self) -> Dir:
        nodes: dict[str, Node] = {
            one.name: DeviceNode(("dev", one.name), f"/dev/{one.name}", one, self.kernel.start)
            for one in self._devices
        }
        shelf = self.library.for_cwd(self.home.cwd)
        return FixedDir(
            "dev", {"llm": self.models.folder(shelf), "fs": host_roots("fs", self.home.roots, True), **nodes}
        )


class Life:
    """A process from its start to its end, over stops of the system.

    Args:
        top: an empty folder of the host.
        replies: what its model says, one after the other; a function is asked, and `suspend` or `restart`
            happens while it thinks.
        native: whether its model takes tools.
        devices: those that there are; three tools if none are named.
        log: where its events go; in memory if None.
        request: fields of its spawn request.
    """

    def __init__(
        self,
        top: Path,
        replies: list[Any],
        *,
        native: bool = True,
        devices: list[Tool] | None = None,
        log: Log | None = None,
        **request: Any,
    ) -> None:
        self.model = Halting("fake", replies, native, lambda order: self.tell(order))
        self.kid = Scripted("kid", [], native=True)
        self.bench = Bench(top, [self.model, self.kid])
        self.bench.agent("kid", "models:\n  provider: kid\n")
        self.devices: list[Tool] = (
            devices
            if devices is not None
            else [Echo("alpha"), Echo("beta", again=True), Echo("gamma", False)]
        )
        self.log: Log = log if log is not None else MemoryStore()
        self.request = SpawnRequest(**{"intent": "do it"} | request)
        self.pid = 0
        self.order = ""
        self.ordered = trio.Event()
        self.between: list[Callable[[World, Process], object]] = []  # done to it while it is suspended

    @property
    def world(self) -> World:
        """The system that runs now."""
        return self._world

    @property
    def process(self) -> Process:
        """The process."""
        return self._world.kernel.processes[self.pid]

    def make(self, log: Log, _cwd: str) -> World:
        """A system with this log."""
        return World(self.bench, [self.model, self.kid], self.devices, log)

    def tell(self, order: str) -> None:
        """Order `suspend` or `restart`, from inside a model or a tool."""
        self.order = order
        self.ordered.set()

    def echo(self, name: str) -> Echo:
        """One of the tools."""
        found = next(one for one in self.devices if one.name == name)
        assert isinstance(found, Echo)
        return found

    async def live(self, *, wake: bool = True) -> Process:
        """From birth to the end; or to the first stop, where it is not woken."""
        with trio.fail_after(SECONDS):
            while True:
                async with trio.open_nursery() as nursery:
                    over = await self._run(nursery, wake)
                    nursery.cancel_scope.cancel()
                if over:
                    return self._process

    async def _run(self, nursery: trio.Nursery, wake: bool) -> bool:
        """One run of the system; whether it was the last."""
        self._world = self.make(self.log, "")
        await nursery.start(self._world.kernel.run)
        if not self.pid:
            self._process = self._world.kernel.spawn(self.request, PERSON)
            self.pid = self._process.pid
        else:
            found = self._world.kernel.history.by_pid(self.pid)
            assert found is not None
            self._process = found
            if not wake or not found.live:
                return True
            self._wake()
        while True:
            self.ordered = trio.Event()
            if await self._first(self._process):
                return True
            if self.order == "restart":
                return False
            self._world.kernel.suspend(self._process, "for a test")
            await self._process.parked.wait()
            if not wake:
                return True
            self._wake()

    async def _first(self, process: Process) -> bool:
        """Whether it ended before something was ordered."""
        async with trio.open_nursery() as nursery:

            async def until(event: trio.Event) -> None:
                await event.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(until, process.done)
            nursery.start_soon(until, self.ordered)
        return process.exit is not None

    def _wake(self) -> None:
        for change in self.between:
            change(self._world, self._process)
        self.between.clear()
        for one in list(self._world.kernel.processes.values()):
            if one.suspended:
                self._world.kernel.wake(one)

    async def replay(self, *, recorded: bool = False, who: int | str = 0) -> Outcome:
        """Replay it, in a system with the same devices."""
        return await replay(self.log, who or self.pid, recorded=recorded, make_system=self.make)

    async def both(self, who: int | str = 0) -> Outcome:
        """Replay it in both ways, which must be equal."""
        outcome = await self.replay(who=who)
        assert outcome.difference is None, outcome.difference
        again = await self.replay(recorded=True, who=who)
        assert again == outcome, again.difference
        return outcome

    async def fork(self, step: int, request: SpawnRequest | None = None) -> int:
        """Fork it once it has ended, let the fork live, and give its pid."""
        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:
                world = self._world = self.make(self.log, "")
                await nursery.start(world.kernel.run)
                source = world.kernel.history.by_pid(self.pid)
                assert source is not None
                if request is not None:
                    fork = world.kernel.spawn(request, PERSON)
                else:
                    fork = world.kernel.forks.fork(source, step, PERSON)
                await fork.done.wait()
                nursery.cancel_scope.cancel()
        return fork.pid

    def said(self, number: int) -> ModelAnswer:
        """An answer that uses a tool, in the way of its model."""
        if self.model.native_tools:
            return uses(call("beta", f"f{number}", n=number), content="once more")
        return answer(act("tool_call", "beta", n=number))

    def steps(self) -> int:
        """How many steps the log has of it."""
        return len(read_recording(self.log, self.pid).finished)


# --- made up from a number ---


class Fate:
    """Makes up a life.

    Args:
        seed: the same number makes the same life.
        top: an empty folder of the host.
        log: where its events go.
    """

    def __init__(self, seed: int, top: Path, log: Log | None = None) -> None:
        self.rng = random.Random(seed)
        self.native = seed % 3 != 2
        budget: dict[str, Any] = (
            {"context_budget": self.rng.randrange(40, 400)} if self.rng.random() < 0.15 else {}
        )
        steps: dict[str, Any] = {"max_steps": self.rng.randrange(1, 5)} if self.rng.random() < 0.2 else {}
        replies = [self._reply(number) for number in range(self.rng.randrange(0, 8))] + self._ends()
        self.life = Life(top, replies, native=self.native, log=log, **budget, **steps)
        self.life.kid.replies = [answer(f"kid {number}") for number in range(50)]
        self.life.echo("alpha").stop = lambda: self.life.tell("suspend")
        self.life.echo("beta").stop = lambda: self.life.tell("restart")
        self.life.between = [self._change for _ in range(self.rng.randrange(3))]

    def _ends(self) -> list[Any]:
        """Replies that lead to an end, one way or the other."""
        kind = self.rng.randrange(8)
        if kind == 0:
            return [self._say([call("alpha", n=1)])] * 12  # no_progress
        if kind == 1:
            return [self._say([call("gamma", fail="so")])] * 4  # repeated_failure
        if kind == 2:
            return [SyscallError(Code.SERVICE_UNAVAILABLE, "the model is gone")]
        if kind == 3:
            both = [call("alpha", n=2), call("complete", result="beside")]
            return [self._say(both), answer("after all")]
        return [self._say([call("complete", result="all\ndone")])] if kind < 6 else [answer("In words: é")]

    def _change(self, world: World, process: Process) -> None:
        """What somebody does to it while it is suspended."""
        match self.rng.randrange(4):
            case 0:
                world.kernel.happen(process, "say", {"text": f"while you slept {self.rng.random()}"})
            case 1:
                world.kernel.happen(process, "budget", {"tokens": self.rng.choice([0, 60, 1000])})
            case 2:
                world.kernel.happen(process, "revoke", {"path": "/dev/gamma"})
            case _:
                world.kernel.happen(process, "grant", {"path": "/dev/gamma"})

    def _reply(self, number: int) -> Any:
        rng = self.rng
        kind = rng.randrange(14)
        if kind > 11:
            return ["suspend", "restart"][kind - 12]
        if kind == 0:
            return self._outside(number, lambda: self._order("suspend"))
        if kind == 1:
            return self._outside(number, lambda: self._order("restart"))
        if kind == 2:
            return self._outside(number, lambda: self._happen("say", text=f"words {number}"))
        if kind == 3:
            return self._outside(number, lambda: self._happen("budget", tokens=rng.choice([0, 90, 5000])))
        if kind == 4:
            return self._outside(number, lambda: self._happen("revoke", path="/dev/alpha"))
        if kind == 5:
            plan = call("plan", steps=["one", "two"], reason="to see")
            return self._say([plan], f"thinking {number}")
        if kind == 6:
            return self._say([call("spawn", f"s{number}", intent=f"kid {number}", agent="kid")])
        if kind == 7:
            kids = [call("spawn", f"s{number}-{at}", intent=f"kid {at}", agent="kid") for at in range(2)]
            return self._say([*kids, call("wait", f"w{number}")])
        if kind == 9 and rng.random() < 0.2:
            return self._outside(number, lambda: self._signal(rng.choice([Signal.TERM, Signal.KILL])))
        if kind == 8 and not self.native:
            return answer(
                rng.choice(['{"action": "fly", "tool": "", "data": {}}', "{}", act("replan", reason="x")])
            )
        return self._say(self._calls(number), rng.choice(["", f"text {number}", "two\nlines"]))

    def _calls(self, number: int) -> list[Any]:
        rng = self.rng
        return [self._call(f"c{number}-{at}", number * 10 + at) for at in range(rng.randrange(1, 7))]

    def _call(self, id: str, number: int) -> Any:
        rng = self.rng
        name = rng.choice(["alpha", "alpha", "beta", "beta", "gamma", "nothing", "wait"])
        more: dict[str, Any] = {"n": number} if name != "wait" else {"pids": [99]}
        if rng.random() < 0.15:
            more["fail"] = f"of {number}"
        if rng.random() < 0.2:
            more["seconds"] = rng.randrange(5)
        if rng.random() < 0.2:
            more["stop"] = True
        if rng.random() < 0.1:
            more["lines"] = rng.randrange(1, 300)
        if rng.random() < 0.05:
            more["refuse"] = True
        if rng.random() < 0.05:
            more = {"_invalid_arguments": "{no json"}
        return call(name, id, **more)

    def _say(self, calls: list[Any], content: str = "") -> ModelAnswer:
        """An answer that asks for tools, in the model's own way."""
        used: dict[str, Any] = {
            "tokens_used": self.rng.randrange(5, 40),
            "cost_usd": self.rng.choice([0.0, 0.001]),
        }
        if self.native:
            return uses(*calls, content=content, **used)
        special = {
            "plan": act("plan", **calls[0].arguments),
            "complete": act("complete", **calls[0].arguments),
        }
        texts = [
            special[one.name]
            if len(calls) == 1 and one.name in special
            else act("tool_call", one.name, **one.arguments)
            for one in calls
        ]
        return answer("\n".join([content, *texts]), **used)

    def _outside(self, number: int, happen: Callable[[], None]) -> Callable[[ModelRequest], ModelAnswer]:
        """A reply during which something happens from outside."""
        said = self._say(self._calls(number))

        def reply(_request: ModelRequest) -> ModelAnswer:
            happen()
            return said

        return reply

    def _signal(self, signal: Signal) -> None:
        self.life.world.kernel.deliver(self.life.process, signal)

    def _order(self, order: str) -> None:
        self.life.tell(order)

    def _happen(self, event: str, **data: Any) -> None:
        self.life.world.kernel.happen(self.life.process, event, data)
