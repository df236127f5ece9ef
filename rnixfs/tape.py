"""What a rehearsed process runs against in place of the world: its recording.

The model and the tools are answered from the log, what came from outside comes again at the same place, and
the program is started again wherever a stop of the system had cut it off. Every event that the process makes
is compared with the recorded one before it happens; where the log tells no more, the rehearsal is over.
"""

import collections
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import trio

from rnixfs import difference, recordedtools
from rnixfs.difference import Difference, Pair
from rnixfs.errors import Code, SyscallError
from rnixfs.kernel import Kernel
from rnixfs.llm import Message, ModelAnswer, ModelRequest, ToolCall
from rnixfs.mcp.places import PREFIX
from rnixfs.model import ModelError
from rnixfs.proc.process import Process
from rnixfs.proc.progress import Compacted, Done, StepEnd
from rnixfs.proc.state import Exit, ExitCode
from rnixfs.proc.view import Rights
from rnixfs.programs.mcptools import is_servers
from rnixfs.programs.reason import reason
from rnixfs.programs.tools import Tool, collect, with_servers
from rnixfs.recordedstep import RIGHTS, Heard, Position, Step, Turn, place_of
from rnixfs.recording import Recording, change_rights, ended_by_itself
from rnixfs.syscalls import Syscalls


class _StopError(Exception):
    """The program is to stop here."""


class _RestartError(_StopError):
    """The system stopped here, and the process was woken later."""


class _OverError(_StopError):
    """The log tells no more."""


class _DivergedError(_StopError):
    """The process does something else than the recorded one.

    Args:
        found: what.
    """

    def __init__(self, found: Difference) -> None:
        super().__init__(found)
        self.found = found


class Tape:
    """A recording that is played to one process.

    Args:
        recording: what is played.
        model: the provider's model that the process asks for.
        native: whether the model takes tools natively.
        tools_of_log: whether the process has the tools that the log names; else those that there are now.
        late: whether rights that changed while the program was starting, changed after it had looked what
            tools it has; the log cannot tell.

    Attributes:
        found: the first difference, None while there is none.
        failed: why the process could not run.
    """

    def __init__(
        self, recording: Recording, model: str, native: bool, tools_of_log: bool, late: bool = False
    ) -> None:
        self.recording = recording
        self.native = native
        self.found: Difference | None = None
        self.failed: SyscallError | None = None
        self.at = Position(recording.steps[0].number)
        self._model = model
        self._tools_of_log = tools_of_log
        self._turns = collections.deque(recording.turns)
        self._clock = recording.began
        self._bounds = recording.bounds()
        self._late = late
        self._begun = self.at  # where the program was started
        self._stopping = False
        self._told = ""  # what the request told of tools by which those of MCP servers were last made
        self._held: list[Turn] = []  # turns that come with the next event

    def clock(self) -> float:
        """The time of whatever happens now, in seconds since 1970."""
        return self._clock

    async def run(self, kernel: Kernel, process: Process) -> Exit:
        """Run the reasoning loop, as often as it was started; the program of the process."""
        self._take_turns(process)
        while True:
            try:
                exit_ = await reason(_Calls(kernel, process, self), _Hands(self, process))
            except (_StopError, ExceptionGroup) as error:
                stop = _cause(error)
                if not isinstance(stop, _RestartError):
                    return self._stopped_by(stop)
                self._resume(process)
            except SyscallError as error:
                # Where the log tells no more, it may have been just this.
                self.failed = error if self.recording.steps[-1].position != self.at else None
                return Exit(ExitCode.ERROR, error.reason)
            else:
                self._check_exit(exit_)
                return exit_

    def _stopped_by(self, stop: _StopError) -> Exit:
        if isinstance(stop, _DivergedError):
            self.found = stop.found
            return Exit(ExitCode.ERROR, f"diverges at step {stop.found.step}")
        return self.recording.exit or Exit(ExitCode.ERROR, "the log tells no more")

    def _check_exit(self, now: Exit) -> None:
        """Compare the end that the program came to by itself."""
        recorded, step = self.recording.exit, self._step
        if step is not None and (len(step.asked) > self.at.asked or step.end is not None):
            self.found = Difference.of(self.at.step, difference.of_exit(None, now))
        elif recorded is not None and ended_by_itself(recorded) and recorded != now:
            self.found = Difference.of(self.at.step, difference.of_exit(recorded, now))

    # --- what the process asks for ---

    @property
    def _step(self) -> Step | None:
        """The recorded step in whose place the process is."""
        return self.recording.step(self.at.step)

    async def tools(self, sys: Syscalls) -> dict[str, Tool]:
        """The tools that the process has now."""
        if self._tools_of_log and self.recording.native is not None:
            return recordedtools.tools_at(self.recording, self.at, sys.may_use)
        # Those of MCP servers are those of the log in any case: no server is mounted for a rehearsal.
        self._told = ""
        return self.renewed(sys, await collect(sys))

    def renewed(self, sys: Syscalls, tools: dict[str, Tool]) -> dict[str, Tool]:
        """The tools that the process has before a request: of MCP servers those that the log names there."""
        step = self._step
        if step is None or self.at.asked >= len(step.asked):
            return tools
        asked = step.asked[self.at.asked]
        told = asked.tools or asked.system_prompt
        if told == self._told or not (PREFIX in told or any(map(is_servers, tools))):
            return tools
        self._told = told
        servers = recordedtools.tools_at(self.recording, self.at, sys.may_use)
        return with_servers(tools, {name: one for name, one in servers.items() if is_servers(name)})

    def heard(self) -> tuple[list[str], list[tuple[int, str]]]:
        """What it hears before its step."""
        heard = self._next_heard()
        if heard is None or heard.own or heard.compacted is not None:
            return [], []
        return heard.said, heard.ends

    def _next_heard(self) -> Heard | None:
        """The next change of the conversation in this step."""
        step = self._step
        return step.heard[self.at.heard] if step is not None and self.at.heard < len(step.heard) else None

    def answer(self) -> ModelAnswer:
        """The answer to the request that was just sent.

        Raises:
            ModelError: the provider refused it as too long, and room was made.
            _OverError: the model never answered it.
        """
        step, heard = self._step, self._next_heard()
        if heard is not None and heard.compacted is not None and heard.asked == self.at.asked:
            raise ModelError(Code.RESOURCE_EXHAUSTED, "the prompt is too long")
        if step is None or step.answer is None or self.at.asked < len(step.asked):
            raise _OverError
        return step.answer

    def summary(self) -> ModelAnswer:
        """What the model wrote of its conversation.

        Raises:
            SyscallError: it failed to.
            _OverError: the log does not tell.
        """
        heard = self._next_heard()
        what = heard.compacted if heard is not None else None
        if what is None:
            raise _OverError
        if what.answer is None:
            raise SyscallError(Code.DRIVER, what.failure)
        return what.answer

    def done(self, process: Process, place: int) -> Done:
        """What came of the tool call at a place of the answer.

        Raises:
            _StopError: a stop cut it off, or it never ended.
        """
        wakes = (turn.position for turn in self._turns if turn.event == "wake")
        stop = next((position for position in wakes if position.step == self.at.step), None)
        if stop is not None and place not in stop.done:
            # At once, since what ran beside it may come in another order now.
            self.at = stop
            self._take_turns(process)
            self._stopping = True
            raise _RestartError
        done = self._step.done.get(place) if self._step is not None else None
        if done is None:
            raise _OverError
        return done

    def _resume(self, process: Process) -> None:
        """Let the process stand where its log says that it stood when it was woken."""
        step, self._stopping = self._step, False
        process.progress.started = set(self.at.started)
        process.progress.done = (
            {place: step.done[place] for place in self.at.done} if step is not None else {}
        )

    # --- around each event of the process ---

    def before(self, process: Process, event: str, data: dict[str, Any]) -> None:
        """Compare what is about to happen with what happened.

        Raises:
            _StopError: it is something else, or the log tells no more.
        """
        if self._stopping:
            raise _RestartError  # beside the one that was stopped
        look = _LOOKS.get(event)
        if look is None:
            return
        pair = next(iter(look(self, process, data)), None)
        if pair is not None:
            raise _DivergedError(Difference.of(self.at.step, pair))

    def after(self, process: Process, event: str, data: dict[str, Any]) -> None:
        """Go on to what came next.

        Raises:
            _RestartError: that was a stop.
        """
        at = self.at
        match event:
            case "messages" | "compacted":
                self.at = at._replace(heard=at.heard + 1)
            case "request":
                self.at = at._replace(asked=at.asked + 1)
            case "answer":
                self.at = at._replace(answered=True)
            case "tool_started":
                self.at = at._replace(started=at.started | {data["place"]})
            case "tool_finished":
                self.at = at._replace(done=at.done | {data["place"]})
            case "step":
                self.at = Position(at.step + 1)
        if self._take_turns(process):
            self._stopping = True
            raise _RestartError

    def _take_turns(self, process: Process) -> bool:
        """Let happen what came from outside up to here; whether a wake was among it."""
        woken = False
        while self._held and self.at != self._begun:
            self._take(process, self._held.pop(0))
        while self._turns and self._turns[0].position.reached(self.at):
            turn = self._turns.popleft()
            if turn.event == "wake":
                woken, self.at, self._begun = True, turn.position, turn.position
            if self._late and turn.event in RIGHTS and self.at == self._begun:
                self._held.append(turn)
            else:
                self._take(process, turn)
        return woken

    def _take(self, process: Process, turn: Turn) -> None:
        rights = [process.rights, *self._bounds]
        if turn.event == "budget":
            process.set_budget(turn.data["tokens"])
        elif turn.event == "spent":
            process.tokens_used += turn.data["tokens_used"]
            process.cost_usd += turn.data["cost_usd"]
        elif turn.event != "wake" and turn.up < len(rights):
            change_rights(rights[turn.up], turn.event, turn.data)

    @property
    def bound(self) -> Rights | None:
        """The rights that bound the process, None for a child of the system."""
        return self._bounds[0] if self._bounds else None

    # --- what is compared ---

    def _look_at_messages(self, process: Process, data: dict[str, Any]) -> Iterable[Pair]:
        step = self._step
        if step is None or self.at.heard >= len(step.heard):
            raise _OverError
        recorded, now = step.heard[self.at.heard].messages, msgspec.convert(data["messages"], list[Message])
        return difference.of_messages(recorded, now, len(process.context.messages))

    def _look_at_compaction(self, process: Process, data: dict[str, Any]) -> Iterable[Pair]:
        heard = self._next_heard()
        if heard is None or heard.compacted is None:
            raise _OverError
        now = msgspec.convert(data, Compacted)
        return difference.of_messages(heard.compacted.messages, now.messages)

    def _look_at_request(self, process: Process, data: dict[str, Any]) -> Iterator[Pair]:
        step = self._step
        if step is None or self.at.asked >= len(step.asked):
            recorded = self.recording.exit
            if recorded is None or not ended_by_itself(recorded):
                raise _OverError
            yield difference.of_exit(recorded, None)
            return
        asked = step.asked[self.at.asked]
        self._clock = asked.ts
        if asked.system_prompt != data["system_prompt"]:
            yield "system_prompt", asked.system_prompt, data["system_prompt"]
        yield from difference.of_tools(asked.tools, data["tools"])
        if self.recording.birth.model != self._model:
            yield "model", self.recording.birth.model, self._model
        yield from difference.of_messages(self.recording.sent(asked), process.context.messages)

    def _look_at_start(self, _process: Process, data: dict[str, Any]) -> Iterable[Pair]:
        step, place = self._step, data["place"]
        unheard_of = step is not None and place not in step.started and place not in step.done
        if step is None or step.end is None or not unheard_of:
            return []
        return [difference.of_exit(step.end.exit, None)]

    def _look_at_call(self, process: Process, data: dict[str, Any]) -> Iterable[Pair]:
        recorded = self._step.done.get(data["place"]) if self._step is not None else None
        if recorded is None:
            if not (pairs := self._look_at_start(process, data)):
                raise _OverError
            return pairs
        return difference.of_call(data["place"], recorded, msgspec.convert(data["done"], Done))

    def _look_at_end(self, process: Process, data: dict[str, Any]) -> Iterable[Pair]:
        if self._step is None or self._step.end is None:
            raise _OverError
        now = msgspec.convert(data, StepEnd)
        return difference.of_end(self._step.end, now, len(process.context.messages))


_LOOKS = {
    "messages": Tape._look_at_messages,
    "compacted": Tape._look_at_compaction,
    "request": Tape._look_at_request,
    "tool_started": Tape._look_at_start,
    "tool_finished": Tape._look_at_call,
    "step": Tape._look_at_end,
}


def _cause(error: _StopError | ExceptionGroup[Exception]) -> _StopError:
    """Why the program was stopped: of tools that ran side by side, the one that says most.

    Raises:
        ExceptionGroup: it failed for another reason.
    """
    if isinstance(error, _StopError):
        return error
    stops, others = error.split(_StopError)
    if others is not None or stops is None:
        raise error
    leaves = list(_leaves(stops))
    ranked = (_DivergedError, _OverError, _RestartError)
    return min(leaves, key=lambda leaf: ranked.index(type(leaf)))


def _leaves(group: ExceptionGroup[_StopError]) -> Iterator[_StopError]:
    for error in group.exceptions:
        if isinstance(error, ExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


class _Hands:
    """The hands of a process that is rehearsed. Implements `reason.Hands`."""

    def __init__(self, tape: Tape, process: Process) -> None:
        self._tape = tape
        self._process = process

    async def outfit(self, sys: Syscalls) -> tuple[bool, dict[str, Tool]]:
        return self._tape.native, await self._tape.tools(sys)

    async def renew(self, sys: Syscalls, tools: dict[str, Tool]) -> dict[str, Tool]:
        await trio.lowlevel.checkpoint()
        return self._tape.renewed(sys, tools)

    async def heard(self, sys: Syscalls) -> tuple[list[str], list[tuple[int, str]]]:
        await trio.lowlevel.checkpoint()
        return self._tape.heard()

    async def ask(self, sys: Syscalls, request: ModelRequest) -> ModelAnswer:
        await trio.lowlevel.checkpoint()
        return self._tape.answer()

    async def summarise(self, sys: Syscalls, request: ModelRequest) -> ModelAnswer:
        await trio.lowlevel.checkpoint()
        return self._tape.summary()

    async def run(self, sys: Syscalls, tools: dict[str, Tool], call: ToolCall, key: str) -> Done:
        await trio.lowlevel.checkpoint()
        return self._tape.done(self._process, place_of(key))


class _Calls(Syscalls):
    """System calls whose every event is compared with the recording."""

    def __init__(self, kernel: Kernel, process: Process, tape: Tape) -> None:
        super().__init__(kernel, process)
        self._tape = tape

    def _happen(self, event: str, data: dict[str, object]) -> None:
        self._tape.before(self._process, event, data)
        super()._happen(event, data)
        self._tape.after(self._process, event, data)
