"""The reasoning loop: ask the model, do what it says, tell it what came of it, until it answers.

A program like any other: it holds system calls and nothing else. The messages of the prompt are only ever
added to, so that two prompts in a row agree in all that the first one had and a provider's cache holds.

Where it stands is never in its own variables, but in `sys.progress`, which the log makes. So it can be
stopped anywhere and started again: what was answered is not asked again, what a tool did is not done again,
and of a tool that had started and not ended the model is told that its outcome is unknown, unless the tool
changes nothing.

Children run beside their parent. The model collects their ends with the tool `wait`; of an end that it did
not collect it is told before its next step, once. How a child ended is the model's to judge: no code of a
child counts as a failure of a tool. A final answer ends the process whatever its children do; those that
still run become children of the system.

Over 400 lines because a step, and all ways in which it can end, are read as one.
"""

import hashlib
from typing import Protocol

import msgspec

from rnixfs import action, limits
from rnixfs.compaction import RESULT_OF
from rnixfs.errors import Code, SyscallError, invalid
from rnixfs.llm import (
    EVENTS,
    Emit,
    Message,
    ModelAnswer,
    ModelRequest,
    Role,
    ToolCall,
    ToolSpec,
    estimate_tokens,
    read_event,
)
from rnixfs.model import ModelError
from rnixfs.proc.progress import Done, Judged, StepEnd
from rnixfs.proc.state import Exit, ExitCode
from rnixfs.programs.narrate import Narrator
from rnixfs.programs.room import Room
from rnixfs.programs.tools import (
    Tool,
    collect,
    collect_servers,
    describe,
    fail,
    notice,
    raise_failure,
    refused,
    run_call,
    run_calls,
    with_servers,
)
from rnixfs.syscalls import Syscalls
from rnixfs.traceline import clip
from rnixfs.wire.failure import is_too_long

_SUMMARY = 120
_LOGGED = 400

_META = (
    ToolSpec(
        "complete",
        "End the work with its result. A reply without tool calls does the same.",
        {"type": "object", "properties": {"result": {"type": "string"}}, "required": ["result"]},
    ),
    ToolSpec(
        "plan",
        "Note the steps you are going to take.",
        {
            "type": "object",
            "properties": {
                "steps": {"type": "array", "items": {"type": "string"}},
                "reason": {"type": "string"},
            },
            "required": ["steps"],
        },
    ),
)
"""Actions that are no tools of a device, offered as tools to models with native tool calls."""


class Hands(Protocol):
    """What the loop reaches the world with; a replay has others."""

    async def outfit(self, sys: Syscalls) -> tuple[bool, dict[str, Tool]]:
        """Whether the model takes tools natively, and the tools there are, by name.

        Raises:
            SyscallError: the model cannot be used, and why.
        """

    async def renew(self, sys: Syscalls, tools: dict[str, Tool]) -> dict[str, Tool]:
        """The tools before a step: the same, but for those of MCP servers, which may have changed."""

    async def heard(self, sys: Syscalls) -> tuple[list[str], list[tuple[int, str]]]:
        """What people said to it, and of which children's ends it has not heard, with a line on each."""

    async def ask(self, sys: Syscalls, request: ModelRequest) -> ModelAnswer:
        """Ask the model for its next step, and log what it says as it comes.

        Raises:
            ModelError: the model failed, and what that cost.
            SyscallError: what else went wrong.
        """

    async def summarise(self, sys: Syscalls, request: ModelRequest) -> ModelAnswer:
        """Ask the model for a summary of its conversation.

        Raises:
            ModelError, SyscallError: as `ask`.
        """

    async def run(self, sys: Syscalls, tools: dict[str, Tool], call: ToolCall, key: str) -> Done:
        """Run a tool; whatever fails becomes a result for the model.

        Args:
            sys: the system calls.
            tools: those that there are.
            call: what the model asked for.
            key: names this call for all time.
        """


class LiveHands:
    """The hands of a process that works. Implements `Hands`."""

    def __init__(self) -> None:
        self._fd = -1
        self._native = True
        self._mounted: tuple[object, ...] = ()

    async def outfit(self, sys: Syscalls) -> tuple[bool, dict[str, Tool]]:
        path = _model(sys)
        description = await describe(sys, path)
        if not description.available:
            raise SyscallError(Code.SERVICE_UNAVAILABLE, description.reason, syscall="Open", device=path)
        self._mounted = sys.mounted
        tools = await collect(sys)
        self._fd = await sys.open(path)
        self._native = bool(description.details.get("native_tools"))
        return self._native, tools

    async def renew(self, sys: Syscalls, tools: dict[str, Tool]) -> dict[str, Tool]:
        if (mounted := sys.mounted) == self._mounted:
            return tools
        self._mounted = mounted
        return with_servers(tools, await collect_servers(sys))

    async def heard(self, sys: Syscalls) -> tuple[list[str], list[tuple[int, str]]]:
        said = await sys.boundary()
        return said, [(end.pid, notice(end)) for end in sys.ended_children(heard=False)]

    async def ask(self, sys: Syscalls, request: ModelRequest) -> ModelAnswer:
        narrator = Narrator(sys.say, text=self._native)
        answer = await self._exchange(sys, request, narrator.take)
        narrator.end(answer)
        if answer.provider not in ("", sys.launch.provider):
            sys.say("warning", f"{sys.launch.provider} could not answer; {answer.provider} did")
        return answer

    async def summarise(self, sys: Syscalls, request: ModelRequest) -> ModelAnswer:
        return await self._exchange(sys, request, lambda _delta: None)

    async def _exchange(self, sys: Syscalls, request: ModelRequest, take: Emit) -> ModelAnswer:
        await sys.write(self._fd, msgspec.json.encode(request))
        answer, pending = None, b""
        while data := await sys.read(self._fd):
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                raise_failure(line, sys.pid)
                event = read_event(line)
                if isinstance(event, ModelAnswer):
                    answer = event
                else:
                    take(event)
        if answer is None:
            raise SyscallError(Code.DRIVER, "the model's file ended before its answer", device=_model(sys))
        return answer

    async def run(self, sys: Syscalls, tools: dict[str, Tool], call: ToolCall, key: str) -> Done:
        return await run_call(sys, tools, call, key)


async def reason(sys: Syscalls, hands: Hands | None = None) -> Exit:
    """Run a process whose mind is a model."""
    try:
        return await _Loop(sys, hands if hands is not None else LiveHands()).run()
    except SyscallError as error:
        if not _is_full(error):
            raise
        return Exit(ExitCode.CONTEXT_FULL, error.reason)


def _is_full(error: SyscallError) -> bool:
    """Whether the conversation has no room left, here or in the model's window."""
    return error.reason.startswith("the context is full") or _is_too_long(error)


def _is_too_long(error: SyscallError) -> bool:
    """Whether a prompt was refused for its length: by its provider, or by the file, which takes no more."""
    if isinstance(error, ModelError):
        # The words alone could be those of a fallback, whose window is not the one that counts.
        return error.code is Code.RESOURCE_EXHAUSTED and is_too_long(error.reason)
    return error.code is Code.TOO_LARGE and error.syscall == "Write"


def _model(sys: Syscalls) -> str:
    return f"/dev/llm/{sys.launch.provider}"


class _Loop:
    def __init__(self, sys: Syscalls, hands: Hands) -> None:
        self.sys = sys
        self.hands = hands
        self.progress = sys.progress
        self.native = True
        self.tools: dict[str, Tool] = {}
        self.system_prompt = sys.system_prompt
        self.offered = ""
        self.room = Room(sys, self._summarise, lambda: estimate_tokens(self.system_prompt + self.offered))

    async def run(self) -> Exit:
        if self.progress.exit is not None:
            return self.progress.exit  # it was stopped between its last step and its end
        await self._set_up()
        while True:
            if not self.progress.step:
                await self._listen()
                self._equip(await self.hands.renew(self.sys, self.tools))
                await self.room.make()
                if (stop := self._exhausted()) is not None:
                    return stop
            if (stop := await self._step()) is not None:
                return stop

    async def _set_up(self) -> None:
        self.native, tools = await self.hands.outfit(self.sys)
        self._equip(tools)
        if not self.sys.context:
            self.sys.append(Message(role=Role.USER, content=self.sys.launch.intent))

    def _equip(self, tools: dict[str, Tool]) -> None:
        """Offer these tools from now on."""
        if tools is self.tools:
            return
        self.tools = tools
        if not self.native:
            specs = [tool.spec for name, tool in tools.items() if name not in ("spawn", "skill")]
            protocol = action.describe_protocol(specs, self._actions())
            self.system_prompt = f"{self.sys.system_prompt}\n\n{protocol}"
        self.offered = _json(self._specs()) if self.native else ""

    def _actions(self) -> list[str]:
        hidden = {"spawn"} if "spawn" not in self.tools else set()
        if not self.sys.launch.skills:
            hidden.add("specialize")
        return [name for name in action.ACTIONS if name not in hidden]

    async def _listen(self) -> None:
        said, ends = await self.hands.heard(self.sys)
        for _, text in ends:
            self.sys.say("output", clip(text, _LOGGED))
        texts = [*said, *(text for _, text in ends)]
        if texts:
            messages = (Message(role=Role.USER, content=text) for text in texts)
            self.sys.append(*messages, inbox=len(said), told=tuple(pid for pid, _ in ends))

    # --- limits ---

    def _exhausted(self) -> Exit | None:
        """The exit due before the next model call, if there is one."""
        steps, tokens, _ = self.sys.usage
        max_steps, max_tokens, _ = self.sys.limits
        if steps >= max_steps:
            return Exit(ExitCode.ERROR, f"max_iterations: {max_steps} steps without a final answer")
        if max_tokens and tokens + self._next_prompt() > max_tokens:
            return Exit(
                ExitCode.BUDGET,
                f"budget_exceeded: {tokens} of {max_tokens} tokens used, the next prompt does not fit",
            )
        return self._overspent()

    def _next_prompt(self) -> int:
        texts = "".join(message.content for message in self.sys.context)
        return estimate_tokens(self.system_prompt + texts)

    def _overspent(self) -> Exit | None:
        """The exit due after a call that passed the budget."""
        _, tokens, cost = self.sys.usage
        _, max_tokens, max_cost = self.sys.limits
        if max_tokens and tokens >= max_tokens:
            return Exit(ExitCode.BUDGET, f"budget_exceeded: {tokens} of {max_tokens} tokens used")
        if max_cost and cost >= max_cost:
            return Exit(ExitCode.BUDGET, f"budget_exceeded: ${cost:.4f} of ${max_cost:.4f} spent")
        return None

    # --- one step ---

    async def _step(self) -> Exit | None:
        answer = self.progress.answer
        if answer is None:
            answer = await self._ask()
            self.sys.answered(answer)
        end = await self._act(answer)
        self.sys.end_step(end)
        return end.exit

    async def _ask(self) -> ModelAnswer:
        self.sys.ask(self.system_prompt, self.offered)
        try:
            return await self.hands.ask(self.sys, self._request(list(self.sys.context)))
        except SyscallError as error:
            if isinstance(error, ModelError):
                self.sys.spent(error.usage)
            if not _is_too_long(error) or not await self.room.make_after_refusal():
                raise
        return await self._ask()

    async def _summarise(self, messages: list[Message]) -> ModelAnswer:
        try:
            return await self.hands.summarise(self.sys, self._request(messages))
        except ModelError as error:
            self.sys.spent(error.usage)
            raise

    def _request(self, messages: list[Message]) -> ModelRequest:
        launch = self.sys.launch
        return ModelRequest(
            system_prompt=self.system_prompt,
            model=launch.model,
            messages=messages,
            tools=self._specs() if self.native else [],
            stream=EVENTS,
            effort=launch.effort,
            fallback=list(launch.fallback),
        )

    def _specs(self) -> list[ToolSpec]:
        return [*_META, *(tool.spec for tool in self.tools.values())]

    async def _act(self, answer: ModelAnswer) -> StepEnd:
        if answer.tool_calls:
            return await self._act_native(answer)
        if self.native:
            return self._complete(answer.content, "text")
        return await self._act_text(answer, action.parse_reply(answer.content))

    # --- native tool calls ---

    async def _act_native(self, answer: ModelAnswer) -> StepEnd:
        calls = answer.tool_calls
        result = _completion(calls)
        if len(calls) == 1 and result is not None:
            return self._complete(result, "complete")
        if (stop := self._overspent()) is not None:
            return self._end("tool_call", _names(calls), exit=stop)
        outcomes = await self._run(calls)
        said = Message(role=Role.ASSISTANT, content=answer.content, tool_calls=calls, echo=answer.echo)
        told = [Message(role=Role.TOOL, content=one.text, tool_call_id=one.id) for one in outcomes]
        if result is not None and not any(one.error for one in outcomes):
            end = self._complete(result, "complete")
            return msgspec.structs.replace(end, messages=[said, *told, *end.messages])
        name = "plan" if all(call.name == "plan" for call in calls) else "tool_call"
        return self._judged(self._end(name, _names(calls), said, *told), outcomes)

    async def _run(self, calls: list[ToolCall]) -> list[Done]:
        """Run the calls of an answer, but for those that have ended before the system was stopped."""
        done = self.progress.done
        for place, call in enumerate(calls):
            if place not in done and place not in self.progress.started:
                self.sys.say("tool", f"{call.name} {clip(_json(call.arguments), _LOGGED)}")
            if place not in done and call.name in _NOTED:
                self._finished(place, _noted(call))
        await run_calls(self.tools, calls, done.keys(), self._one)
        return [done[place] for place in range(len(calls))]

    async def _one(self, place: int, call: ToolCall) -> None:
        """Run one call, which has not ended; it may have started before the system was stopped."""
        tool = self.tools.get(call.name)
        if place in self.progress.started and not (tool is not None and tool.again):
            self._finished(place, fail(call, tool, _UNKNOWN))
            return
        problem = refused(self.tools, call)
        if problem is not None:
            self._finished(place, fail(call, tool, problem))
            return
        self.sys.tool_started(place, call, tool.device if tool is not None else "")
        key = f"{_KEY}{self.progress.step}/{place}"
        self._finished(place, await self.hands.run(self.sys, self.tools, call, key))

    def _finished(self, place: int, done: Done) -> None:
        self.sys.tool_finished(place, done)
        self.sys.say("warning" if done.error else "output", clip(done.error or done.text, _LOGGED))

    # --- when to give up ---

    def _judged(self, end: StepEnd, outcomes: list[Done]) -> StepEnd:
        """The end of a step, with the exit that is due where its tools keep failing, or nothing changes."""
        judged, exit_ = judge(self.progress.judged, outcomes)
        return msgspec.structs.replace(end, judged=judged, exit=exit_)

    # --- actions of text models ---

    async def _act_text(self, answer: ModelAnswer, what: action.Action) -> StepEnd:
        if isinstance(what, action.Text):
            return self._complete(what.text, "text")
        if isinstance(what, action.Complete):
            return self._complete(what.result, "complete")
        self._think(what.said)
        name = _ACTION_NAMES[type(what)]
        if (stop := self._overspent()) is not None:
            return self._end(name, exit=stop)
        said = Message(role=Role.ASSISTANT, content=answer.content)
        calls = _calls(what)
        outcomes = await self._run(calls) if calls else self._answer_action(what)
        told = "\n\n".join(f"{RESULT_OF}{one.name}:\n{one.text}" for one in outcomes) if calls else ""
        told = told or next((one.text for one in outcomes), "Noted. Go on.")
        end = self._end(name, _names(calls), said, Message(role=Role.USER, content=told))
        return self._judged(end, outcomes)

    def _answer_action(self, what: action.Action) -> list[Done]:
        """What comes of an action that uses no device."""
        if isinstance(what, action.BadAction):
            self.sys.say("warning", what.reason)
            return [Done("1", "action", text=what.reason, error=f"INVALID: {what.reason}")]
        self.sys.say("think", _noted_text(what))
        return []

    # --- the end ---

    def _end(self, name: str, summary: str = "", *messages: Message, exit: Exit | None = None) -> StepEnd:
        return StepEnd(
            step=self.progress.step,
            action=name,
            summary=clip(summary, _SUMMARY),
            messages=list(messages),
            judged=self.progress.judged,
            exit=exit,
        )

    def _complete(self, text: str, how: str) -> StepEnd:
        exit_ = self._overspent() or Exit(ExitCode.DONE, "done")
        said = Message(role=Role.ASSISTANT, content=text)
        end = self._end(how, text.strip().partition("\n")[0], said, exit=exit_)
        return msgspec.structs.replace(end, result=text)

    def _think(self, text: str) -> None:
        if text.strip():
            self.sys.say("think", text)


def judge(before: Judged, outcomes: list[Done]) -> tuple[Judged, Exit | None]:
    """What the rules that end a loop count after a step, and the exit that is due.

    Healthy polling sees results that change at some time, and its failures are no failures alike; so only
    the same actions with the same results count as no progress. An outcome that is unknown is no failure.

    Args:
        before: the counts before the step.
        outcomes: what came of its calls.
    """
    judged = msgspec.structs.replace(before)
    for one in outcomes:
        if not one.error or one.error.startswith(str(Code.UNKNOWN_OUTCOME)):
            judged.alike = 0
            continue
        judged.failures += 1
        key = f"{one.name} {one.error}"
        judged.alike = judged.alike + 1 if key == judged.last_failure else 1
        judged.last_failure = key
        if judged.alike >= limits.FAILURES_ALIKE_MAX:
            reason = f"repeated_failure: {judged.alike} tool failures alike: {key}"
            return judged, Exit(ExitCode.ERROR, reason)
        if judged.failures >= limits.FAILURES_MAX:
            reason = f"repeated_failure: {limits.FAILURES_MAX} tool failures; the last: {key}"
            return judged, Exit(ExitCode.ERROR, reason)
    return _progressing(judged, outcomes)


def _progressing(judged: Judged, outcomes: list[Done]) -> tuple[Judged, Exit | None]:
    seen = _digest(outcomes) if outcomes else ""
    judged.same = judged.same + 1 if seen and seen == judged.last_seen else 1
    judged.last_seen = seen
    if judged.same < limits.NO_PROGRESS_MAX:
        return judged, None
    what = clip(", ".join(f"{one.name} {_json(one.arguments)}" for one in outcomes))
    reason = f"no_progress: {judged.same} steps in a row with the same actions and results: {what}"
    return judged, Exit(ExitCode.ERROR, reason)


def _digest(outcomes: list[Done]) -> str:
    seen = msgspec.json.encode([(one.name, one.arguments, one.text) for one in outcomes])
    return hashlib.sha256(seen).hexdigest()[:16]


_KEY = "step\t"
"""Begins the keys of tool calls: no key that somebody else gives holds a tab."""

_UNKNOWN = SyscallError(
    Code.UNKNOWN_OUTCOME,
    "the outcome is unknown: the system stopped while this ran and did not see its end; look whether it took"
    " effect before you do it again",
)

_NOTED = {spec.name for spec in _META}

_ACTION_NAMES: dict[type, str] = {
    action.Calls: "tool_call",
    action.Plan: "plan",
    action.Spawn: "spawn",
    action.Replan: "replan",
    action.Specialize: "specialize",
    action.BadAction: "text",
}


def _calls(what: action.Action) -> list[ToolCall]:
    """The tool calls that an action stands for."""
    if isinstance(what, action.Calls):
        return [ToolCall(str(index), call.tool, call.data) for index, call in enumerate(what.calls, 1)]
    if isinstance(what, action.Spawn):
        return [ToolCall("1", "spawn", {"intent": what.intent, **what.data})]
    if isinstance(what, action.Specialize):
        return [ToolCall("1", "skill", {"skill": what.skill})]
    return []


def _completion(calls: list[ToolCall]) -> str | None:
    """The result that a `complete` among the calls gives, if there is one."""
    for call in calls:
        if call.name == "complete" and isinstance(call.arguments.get("result"), str):
            return str(call.arguments["result"])
    return None


def _noted(call: ToolCall) -> Done:
    """What comes of an action that uses no device."""
    if call.name == "complete" and not isinstance(call.arguments.get("result"), str):
        return fail(call, None, invalid('"result" must be text: the final answer'))
    return Done(call.id, call.name, call.arguments, '{"noted":true}')


def _names(calls: list[ToolCall]) -> str:
    return ", ".join(call.name for call in calls)


def _noted_text(what: action.Action) -> str:
    if isinstance(what, action.Plan):
        return "plan: " + "; ".join(what.steps)
    return f"replan: {what.reason}" if isinstance(what, action.Replan) else ""


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
