"""Where a process stands in its reasoning, as its log tells it: the part that lies between two steps' ends.

A step is a request, an answer, the tool calls that it asks for, and an end. Each is an event, so that a
process whose system stopped goes on at that very place: what was answered is not asked again, and what a
tool did is not done again. Pure: events come in, and the program reads where it stands.
"""

import dataclasses
from typing import Any

import msgspec

from rnixfs.llm import Message, ModelAnswer, ToolCall
from rnixfs.proc.records import CallRecord, StepRecord
from rnixfs.proc.state import Exit


class Done(msgspec.Struct, omit_defaults=True):
    """What came of one tool call.

    Args:
        id: the model's name for the call.
        name: the tool.
        arguments: as the model gave them.
        text: the result for the model.
        error: `CODE: reason` of a failure, empty for success.
        duration_ms: how long it took.
        device: the path that was used, empty for an unknown tool.
        told: children of whose end the model hears by this.
    """

    id: str
    name: str
    arguments: dict[str, Any] = {}
    text: str = ""
    error: str = ""
    duration_ms: int = 0
    device: str = ""
    told: list[int] = []

    @property
    def call(self) -> ToolCall:
        """The call."""
        return ToolCall(self.id, self.name, self.arguments)

    def record(self) -> CallRecord:
        """It as steps.jsonl shows it."""
        return CallRecord(
            id=self.id,
            name=self.name,
            path=self.device,
            input=self.arguments,
            result="" if self.error else self.text,
            error=self.error,
            error_code=self.error.partition(":")[0],
            duration_ms=self.duration_ms,
        )


class Judged(msgspec.Struct, omit_defaults=True):
    """What the rules that end a loop count.

    Args:
        failures: tool failures in all.
        alike: equal tool failures in a row.
        last_failure: the latest of them.
        same: steps in a row with the same actions and the same results.
        last_seen: a digest of the actions and results of the latest step.
    """

    failures: int = 0
    alike: int = 0
    last_failure: str = ""
    same: int = 0
    last_seen: str = ""


class StepEnd(msgspec.Struct, omit_defaults=True):
    """The end of a step.

    Args:
        step: its number.
        action: as `StepRecord` has it.
        summary: one line.
        messages: what the conversation grows by, all or nothing.
        judged: the counts after it.
        result: the final answer, None while there is none.
        exit: how the process ends by this step, None where it goes on.
    """

    step: int
    action: str
    summary: str = ""
    messages: list[Message] = []
    judged: Judged = msgspec.field(default_factory=Judged)
    result: str | None = None
    exit: Exit | None = None


class Compacted(msgspec.Struct, omit_defaults=True):
    """A conversation that was shortened.

    Args:
        messages: the whole conversation from now on.
        before: tokens of the next prompt before, roughly.
        after: the same afterwards.
        answer: what the model wrote down of it; None where it was not asked, or failed to answer.
        failure: why the conversation was shortened without the model's words; empty where it was not.
    """

    messages: list[Message]
    before: int
    after: int
    answer: ModelAnswer | None = None
    failure: str = ""


@dataclasses.dataclass(slots=True)
class Progress:
    """The step that is open, and what lasts from step to step.

    Args:
        step: its number, 0 between steps.
        sent: how many messages its prompt had; of them, `new` were not sent before.
        new: see there.
        begun_ns: nanoseconds from the spawn to its request.
        answer: what the model said, None before it has.
        started: the tool calls that have started, by their place in the answer.
        done: what came of those that have ended.
        judged: what the rules that end a loop count.
        exit: how the process is to end, None while it goes on.
        told_before: how many messages all requests so far have sent.
        prompt_tokens: tokens of the latest prompt, as its provider counted them, or of a compacted one.
        counted: how many messages those tokens are of.
    """

    step: int = 0
    sent: int = 0
    new: int = 0
    begun_ns: int = 0
    answer: ModelAnswer | None = None
    started: set[int] = dataclasses.field(default_factory=set)
    done: dict[int, Done] = dataclasses.field(default_factory=dict)
    judged: Judged = dataclasses.field(default_factory=Judged)
    exit: Exit | None = None
    told_before: int = 0
    prompt_tokens: int = 0
    counted: int = 0

    def begin(self, step: int, sent: int, at_ns: int) -> None:
        """A request is sent."""
        if (self.step, self.sent) != (step, sent):
            self.new, self.told_before = max(0, sent - self.told_before), sent
        self.step, self.sent, self.begun_ns = step, sent, at_ns

    def answered(self, answer: ModelAnswer) -> None:
        """The model has answered."""
        self.answer = answer
        self.prompt_tokens, self.counted = answer.input_tokens, self.sent

    def compacted(self, what: Compacted) -> None:
        """The conversation was shortened: what is sent next was not sent so before."""
        self.prompt_tokens, self.counted = what.after, len(what.messages)
        self.told_before = 0

    def end(self, end: StepEnd, prompt: list[Message]) -> StepRecord:
        """The step is over; returns its record.

        Args:
            end: its end.
            prompt: the conversation as the model was sent it.
        """
        record = self._record(end, prompt)
        self.judged, self.exit = end.judged, end.exit
        self.step, self.answer = 0, None
        self.started, self.done = set(), {}
        return record

    def _record(self, end: StepEnd, prompt: list[Message]) -> StepRecord:
        answer = self.answer or ModelAnswer()
        calls = [self.done[place].record() for place in sorted(self.done)]
        record = StepRecord(
            step=end.step,
            timestamp=self.begun_ns,
            messages=prompt[self.sent - self.new : self.sent],
            message_count=self.sent,
            token_count=answer.tokens_used,
            request_tokens=answer.input_tokens,
            response_tokens=answer.output_tokens,
            raw_response=answer.content,
            action=end.action,
            summary=end.summary,
            tool_calls=calls,
        )
        if calls:
            last = calls[-1]
            record.tool_path, record.tool_input = last.path, last.input
            record.tool_result, record.tool_error = last.result, last.error
            record.tool_duration = last.duration_ms
        return record
