"""What is kept of each step of reasoning."""

from typing import Any

import msgspec

from rnixfs.llm import Message


class CallRecord(msgspec.Struct, omit_defaults=True):
    """One tool call of a step, with the field names of the reference.

    Args:
        id: the model's name for the call.
        name: the tool.
        path: the device that it used, empty for none.
        input: the arguments.
        result: what the model was told, empty for a failure.
        error: `CODE: reason` of a failure.
        error_code: the code alone.
        duration_ms: how long it took.
    """

    id: str
    name: str
    path: str = ""
    input: dict[str, Any] = {}
    result: str = ""
    error: str = ""
    error_code: str = ""
    duration_ms: int = 0


class StepRecord(msgspec.Struct, omit_defaults=True):
    """One step of reasoning, with the field names of the reference.

    Args:
        step: from 1.
        timestamp: nanoseconds from the spawn to the request.
        messages: the messages of the prompt that no step before has sent, so that those of all steps
            together are the conversation, each once.
        message_count: how many messages the prompt had in all.
        token_count: tokens of this step.
        request_tokens: those of the prompt.
        response_tokens: those of the answer.
        raw_response: the model's text, whole.
        action: `tool_call plan spawn complete specialize replan text`.
        summary: one line.
        tool_path: the device of the last tool call, empty without one; so do the next four fields.
        tool_input: its arguments.
        tool_result: what the model was told.
        tool_error: `CODE: reason` of its failure.
        tool_duration: milliseconds that it took.
        tool_calls: every tool call, in order.
    """

    step: int
    timestamp: int
    messages: list[Message]
    message_count: int
    token_count: int
    request_tokens: int
    response_tokens: int
    raw_response: str
    action: str
    summary: str
    tool_path: str = ""
    tool_input: dict[str, Any] = {}
    tool_result: str = ""
    tool_error: str = ""
    tool_duration: int = 0
    tool_calls: list[CallRecord] = []
