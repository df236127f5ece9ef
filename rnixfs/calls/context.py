"""System calls on the context, and what a program reports of its steps: each report is an event first."""

import contextlib
from collections.abc import Iterable, Iterator

import trio

from rnixfs.calls.base import Calls
from rnixfs.llm import Message, ModelAnswer, ToolCall, Usage
from rnixfs.proc.fold import payload
from rnixfs.proc.progress import Compacted, Done, Progress, StepEnd


class ContextCalls(Calls):
    """CtxWrite, the steps, the log and the result."""

    @property
    def context(self) -> list[Message]:
        """Its conversation; to be changed by calls only."""
        return self._process.context.messages

    @property
    def system_prompt(self) -> str:
        """The instructions that stand before its conversation."""
        return self._process.context.system_prompt

    @property
    def progress(self) -> Progress:
        """Where it stands in its reasoning; to be changed by calls only."""
        return self._process.progress

    @property
    def usage(self) -> tuple[int, int, float]:
        """Steps, tokens and dollars so far."""
        return self._process.steps, self._process.tokens_used, self._process.cost_usd

    @property
    def limits(self) -> tuple[int, int, float]:
        """Steps, tokens and dollars it may use in all; 0 for no limit. May change while it runs."""
        budget = self._process.budget
        return budget.max_steps, budget.tokens, budget.cost_usd

    @property
    def context_window(self) -> int:
        """Tokens that its model takes at most; 0 while unknown."""
        return self._process.context_window

    @property
    def counted(self) -> tuple[int, int]:
        """Tokens of the latest prompt, and of how many messages they are; 0 before the first."""
        return self._process.progress.prompt_tokens, self._process.progress.counted

    async def boundary(self) -> list[str]:
        """Between two steps: sleeps while paused, then gives what people said to it and it has not heard."""
        await trio.lowlevel.checkpoint()
        while self._process.paused:
            await self._process.resumed.wait()
        return list(self._process.inbox)

    def append(self, *messages: Message, inbox: int = 0, told: tuple[int, ...] = ()) -> None:
        """Add messages to the context, all or none.

        Args:
            messages: the messages.
            inbox: how many of them say what people said to it.
            told: children of whose end they tell.

        Raises:
            SyscallError: RESOURCE_EXHAUSTED when the context is full.
        """
        with self._call("CtxWrite", offset=0, messages=len(messages)):
            self._process.context.check_room(*messages)
            data = {"messages": payload(messages), "inbox": inbox, "told": list(told)}
            with self._hearing(told):
                self._happen("messages", {name: value for name, value in data.items() if value})

    @contextlib.contextmanager
    def _hearing(self, pids: Iterable[int]) -> Iterator[None]:
        """Reap the children of whose end the event inside tells: no sooner, so that no end is lost."""
        ended = [child for pid in pids if (child := self._process.untold.get(pid)) is not None]
        yield
        for child in ended:
            with self._call("Reap", pid=child.pid) as outcome:
                self._kernel.reap(child)
                assert child.exit is not None
                outcome.append(f"exited({child.exit.code})")

    def _happen(self, event: str, data: dict[str, object]) -> None:
        self._check_mine()
        self._kernel.happen(self._process, event, data)

    # --- one step ---

    def ask(self, system_prompt: str, tools: str) -> int:
        """A request is about to be sent: begins a step, unless one is open; returns its number, from 1.

        Args:
            system_prompt: as the model gets it.
            tools: the tools that it is offered, as JSON.
        """
        process = self._process
        step = process.progress.step or process.steps + 1
        if not process.progress.step:
            self.say("step", str(step))
        sent = len(process.context.messages)
        asked = {"system_prompt": system_prompt, "tools": tools, "effect": f"{process.pid}.{step}"}
        self._happen("request", {"step": step, "sent": sent, **asked})
        return step

    def answered(self, answer: ModelAnswer) -> None:
        """The model has answered; what that used is counted."""
        self._happen("answer", {"step": self.progress.step, "answer": payload(answer)})

    def spent(self, usage: Usage) -> None:
        """A call of the model failed that cost something all the same."""
        if usage.tokens or usage.cost_usd:
            self._happen("spent", {"tokens_used": usage.tokens, "cost_usd": usage.cost_usd})

    def compact(self, what: Compacted) -> None:
        """Put a shorter conversation in the place of the present one."""
        with self._call("CtxWrite", messages=len(what.messages), before=what.before, after=what.after):
            self._happen("compacted", payload(what))

    def tool_started(self, place: int, call: ToolCall, device: str) -> None:
        """A tool is about to run.

        Args:
            place: which call of the answer it is, from 0.
            call: the call.
            device: the path that it uses.
        """
        step = self.progress.step
        # The name of this effect for all time: pids are never used again.
        effect = f"{self.pid}.{step}.{place}"
        about = {"tool": call.name, "device": device, "effect": effect}
        self._happen("tool_started", {"step": step, "place": place, **about})

    def tool_finished(self, place: int, done: Done) -> None:
        """A tool has ended."""
        with self._hearing(done.told):
            data = {"step": self.progress.step, "place": place, "done": payload(done)}
            self._happen("tool_finished", data)

    def end_step(self, end: StepEnd) -> None:
        """The step is over: the conversation grows by it, and its record is kept.

        Raises:
            SyscallError: RESOURCE_EXHAUSTED when the context is full.
        """
        with self._call("CtxWrite", offset=0, messages=len(end.messages)):
            self._process.context.check_room(*end.messages)
            self._happen("step", payload(end))

    # --- what people see ---

    def say(self, category: str, text: str) -> None:
        """Write to the log: what it thinks, does, gives out, or warns of."""
        self._process.say(category, text)

    def set_result(self, text: str) -> None:
        """Leave the final answer."""
        self._happen("result", {"text": text})
