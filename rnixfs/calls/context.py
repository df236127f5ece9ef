"""System calls on the context, and what a program reports of its steps."""

import trio

from rnixfs.calls.base import Calls
from rnixfs.llm import Message, ModelAnswer
from rnixfs.proc.records import StepRecord


class ContextCalls(Calls):
    """CtxWrite, the accounts, the log and the step records."""

    @property
    def context(self) -> list[Message]:
        """Its conversation; to be changed by `append` only."""
        return self._process.context.messages

    @property
    def system_prompt(self) -> str:
        """The instructions that stand before its conversation."""
        return self._process.context.system_prompt

    @property
    def usage(self) -> tuple[int, int, float]:
        """Steps, tokens and dollars so far."""
        return self._process.steps, self._process.tokens_used, self._process.cost_usd

    @property
    def limits(self) -> tuple[int, int, float]:
        """Steps, tokens and dollars it may use in all; 0 for no limit. May change while it runs."""
        budget = self._process.budget
        return budget.max_steps, budget.tokens, budget.cost_usd

    async def boundary(self) -> list[str]:
        """Between two steps: sleeps while paused, then gives what people said to it meanwhile."""
        await trio.lowlevel.checkpoint()
        while self._process.paused:
            await self._process.resumed.wait()
        said, self._process.inbox = self._process.inbox, []
        return said

    def append(self, *messages: Message) -> None:
        """Add messages to the context, all or none.

        Raises:
            SyscallError: RESOURCE_EXHAUSTED when the context is full.
        """
        with self._call("CtxWrite", offset=0, messages=len(messages)):
            self._process.context.append(*messages)
            self._process.touch()

    def begin_step(self) -> int:
        """Count a step; returns its number, from 1."""
        self._process.steps += 1
        self._process.touch()
        self.say("step", str(self._process.steps))
        return self._process.steps

    def account(self, answer: ModelAnswer) -> None:
        """Add what a model call used."""
        self._process.tokens_used += answer.tokens_used
        self._process.prompt_tokens = answer.input_tokens
        self._process.cost_usd += answer.cost_usd
        self._process.model_used = answer.model or self._process.model_used
        self._process.touch()

    def add_step(self, record: StepRecord) -> None:
        """Keep the record of a step; one that a kill cut short is not kept, since nothing follows an exit."""
        if not self._process.live:
            return
        self._kernel.emit("step", self.pid, {"step": record.step_number, "action": record.action})
        self._process.add_step(record)

    def say(self, category: str, text: str) -> None:
        """Write to the log: what it thinks, does, gives out, or warns of."""
        self._process.say(category, text)

    def set_result(self, text: str) -> None:
        """Leave the final answer."""
        self._process.result = text
        self._process.touch()
