"""The reasoning loop: ask the model, do what it says, tell it what came of it, until it answers.

A program like any other: it holds system calls and nothing else. The messages of the prompt are only ever
added to, so that two prompts in a row agree in all that the first one had and a provider's cache holds.

Children run beside their parent. The model collects their ends with the tool `wait`; of an end that it did
not collect it is told before its next step, once. How a child ended is the model's to judge: no code of a
child counts as a failure of a tool. A final answer ends the process whatever its children do; those that
still run become children of the system.
"""

import time
from collections import Counter
from typing import Any

import msgspec

from rnixfs import action, limits
from rnixfs.errors import Code, SyscallError, invalid
from rnixfs.llm import Message, ModelAnswer, ModelRequest, Role, ToolCall, ToolSpec, estimate_tokens
from rnixfs.proc.records import StepRecord
from rnixfs.proc.state import Exit, ExitCode
from rnixfs.programs.tools import Outcome, Tool, collect, describe, notice, raise_failure, run_calls
from rnixfs.syscalls import Syscalls
from rnixfs.traceline import clip

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


async def reason(sys: Syscalls) -> Exit:
    """Run a process whose mind is a model."""
    try:
        return await _Loop(sys).run()
    except SyscallError as error:
        if error.code is Code.RESOURCE_EXHAUSTED and error.reason.startswith("the context is full"):
            return Exit(ExitCode.CONTEXT_FULL, error.reason)
        raise


class _Loop:
    def __init__(self, sys: Syscalls) -> None:
        self.sys = sys
        self.model = f"/dev/llm/{sys.launch.provider}"
        self.fd = -1
        self.native = True
        self.tools: dict[str, Tool] = {}
        self.system_prompt = sys.system_prompt
        self.failures: Counter[str] = Counter()
        self.last_failure = ""
        self.alike = 0

    async def run(self) -> Exit:
        await self._set_up()
        while True:
            for text in await self.sys.boundary():
                self.sys.append(Message(role=Role.USER, content=text))
            self._tell_of_ends()
            if (stop := self._exhausted()) is not None:
                return stop
            if (stop := await self._step()) is not None:
                return stop

    async def _set_up(self) -> None:
        description = await describe(self.sys, self.model)
        if not description.available:
            raise SyscallError(
                Code.SERVICE_UNAVAILABLE, description.reason, syscall="Open", device=self.model
            )
        self.native = bool(description.details.get("native_tools"))
        self.tools = await collect(self.sys)
        if not self.native:
            specs = [tool.spec for name, tool in self.tools.items() if name not in ("spawn", "skill")]
            self.system_prompt = f"{self.system_prompt}\n\n{action.describe_protocol(specs, self._actions())}"
        self.fd = await self.sys.open(self.model)
        self.sys.append(Message(role=Role.USER, content=self.sys.launch.intent))

    def _actions(self) -> list[str]:
        hidden = {"spawn"} if "spawn" not in self.tools else set()
        if not self.sys.launch.skills:
            hidden.add("specialize")
        return [name for name in action.ACTIONS if name not in hidden]

    def _tell_of_ends(self) -> None:
        for end in self.sys.ended_children():
            text = notice(end)
            self.sys.say("output", clip(text, _LOGGED))
            self.sys.append(Message(role=Role.USER, content=text))

    # --- limits ---

    def _exhausted(self) -> Exit | None:
        """The exit due before the next model call, if there is one."""
        steps, tokens, cost = self.sys.usage
        max_steps, max_tokens, max_cost = self.sys.limits
        if steps >= max_steps:
            return Exit(ExitCode.ERROR, f"step limit: {max_steps} steps without a final answer")
        if max_tokens and tokens + self._next_prompt() > max_tokens:
            return Exit(
                ExitCode.BUDGET,
                f"budget_exceeded: {tokens} of {max_tokens} tokens used, the next prompt does not fit",
            )
        if max_cost and cost >= max_cost:
            return Exit(ExitCode.BUDGET, f"budget_exceeded: ${cost:.4f} of ${max_cost:.4f} spent")
        return None

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
        number = self.sys.begin_step()
        sent = len(self.sys.context)
        answer = await self._ask()
        self.sys.account(answer)
        record = StepRecord(number, time.time(), sent, answer.tokens_used, answer.content, "text", "")
        try:
            return await self._act(answer, record)
        finally:
            self.sys.add_step(record)

    async def _ask(self) -> ModelAnswer:
        request = ModelRequest(
            system_prompt=self.system_prompt,
            model=self.sys.launch.model,
            messages=list(self.sys.context),
            tools=self._specs() if self.native else [],
        )
        await self.sys.write(self.fd, msgspec.json.encode(request))
        data = await self.sys.read_all(self.fd)
        raise_failure(data, self.sys.pid)
        return msgspec.json.decode(data, type=ModelAnswer)

    def _specs(self) -> list[ToolSpec]:
        return [*_META, *(tool.spec for tool in self.tools.values())]

    async def _act(self, answer: ModelAnswer, record: StepRecord) -> Exit | None:
        if answer.tool_calls:
            return await self._act_native(answer, record)
        if self.native:
            return self._complete(answer.content, record, "text")
        return await self._act_text(answer, action.parse_reply(answer.content), record)

    # --- native tool calls ---

    async def _act_native(self, answer: ModelAnswer, record: StepRecord) -> Exit | None:
        self._think(answer.content)
        calls = answer.tool_calls
        if len(calls) == 1 and (result := _completion(calls)) is not None:
            return self._complete(result, record, "complete")
        if (stop := self._overspent()) is not None:
            return stop
        outcomes = await self._run(calls, record)
        self.sys.append(
            Message(role=Role.ASSISTANT, content=answer.content, tool_calls=calls),
            *(Message(role=Role.TOOL, content=one.text, tool_call_id=one.call.id) for one in outcomes),
        )
        result = _completion(calls)
        if result is not None and not any(one.error for one in outcomes):
            return self._complete(result, record, "complete")
        return self._judge(outcomes)

    async def _run(self, calls: list[ToolCall], record: StepRecord) -> list[Outcome]:
        record.action = "plan" if all(call.name == "plan" for call in calls) else "tool_call"
        record.summary = clip(", ".join(call.name for call in calls), _SUMMARY)
        for call in calls:
            self.sys.say("tool", f"{call.name} {clip(_json(call.arguments), _LOGGED)}")
        # By place, not by id: some models give every call the same.
        done = iter(
            await run_calls(self.sys, self.tools, [call for call in calls if call.name not in _NOTED])
        )
        outcomes = [_noted(call) if call.name in _NOTED else next(done) for call in calls]
        for one in outcomes:
            self.sys.say("warning" if one.error else "output", clip(one.error or one.text, _LOGGED))
            record.tools.append(_tool_record(one))
        return outcomes

    def _judge(self, outcomes: list[Outcome]) -> Exit | None:
        """End a process whose tools keep failing."""
        for one in outcomes:
            if not one.error:
                self.alike = 0
                continue
            self.failures["all"] += 1
            key = f"{one.call.name} {one.error}"
            self.alike = self.alike + 1 if key == self.last_failure else 1
            self.last_failure = key
            if self.alike >= limits.FAILURES_ALIKE_MAX:
                return Exit(ExitCode.ERROR, f"{self.alike} tool failures alike: {key}")
            if self.failures["all"] >= limits.FAILURES_MAX:
                return Exit(ExitCode.ERROR, f"{limits.FAILURES_MAX} tool failures; the last: {key}")
        return None

    # --- actions of text models ---

    async def _act_text(self, answer: ModelAnswer, what: action.Action, record: StepRecord) -> Exit | None:
        if isinstance(what, action.Text):
            return self._complete(what.text, record, "text")
        if isinstance(what, action.Complete):
            return self._complete(what.result, record, "complete")
        self._think(what.said)
        if (stop := self._overspent()) is not None:
            return stop
        reply, outcomes = await self._answer_action(what, record)
        self.sys.append(
            Message(role=Role.ASSISTANT, content=answer.content), Message(role=Role.USER, content=reply)
        )
        return self._judge(outcomes)

    async def _answer_action(self, what: action.Action, record: StepRecord) -> tuple[str, list[Outcome]]:
        calls = _calls(what)
        if calls:
            outcomes = await self._run(calls, record)
            record.action = _ACTION_NAMES.get(type(what), "tool_call")
            return "\n\n".join(f"Result of {one.call.name}:\n{one.text}" for one in outcomes), outcomes
        record.action = _ACTION_NAMES[type(what)]
        if isinstance(what, action.BadAction):
            self.sys.say("warning", what.reason)
            failure = ToolCall("1", "action", {})
            return what.reason, [Outcome(failure, what.reason, f"INVALID: {what.reason}", 0, "")]
        self.sys.say("think", _noted_text(what))
        return "Noted. Go on.", []

    # --- the end ---

    def _complete(self, text: str, record: StepRecord, how: str) -> Exit:
        record.action = how
        record.summary = clip(text.strip().partition("\n")[0], _SUMMARY)
        self.sys.set_result(text)
        self.sys.append(Message(role=Role.ASSISTANT, content=text))
        return self._overspent() or Exit(ExitCode.DONE, "done")

    def _think(self, text: str) -> None:
        if text.strip():
            self.sys.say("think", text)


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


def _noted(call: ToolCall) -> Outcome:
    """What comes of an action that uses no device."""
    if call.name == "complete" and not isinstance(call.arguments.get("result"), str):
        problem = invalid('"result" must be text: the final answer')
        text = msgspec.json.encode({"error": problem.as_dict()}).decode()
        return Outcome(call, text, f"{problem.code}: {problem.reason}", 0, "")
    return Outcome(call, '{"noted":true}', "", 0, "")


def _noted_text(what: action.Action) -> str:
    if isinstance(what, action.Plan):
        return "plan: " + "; ".join(what.steps)
    return f"replan: {what.reason}" if isinstance(what, action.Replan) else ""


def _tool_record(one: Outcome) -> dict[str, Any]:
    return {
        "tool_path": one.device,
        "tool": one.call.name,
        "tool_input": one.call.arguments,
        "tool_result": "" if one.error else one.text,
        "tool_error": one.error,
        "duration_ms": one.duration_ms,
    }


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
