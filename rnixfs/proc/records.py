"""What is kept of each step of reasoning."""

from typing import Any

import msgspec


class StepRecord(msgspec.Struct, omit_defaults=True):
    """One step of reasoning, with the field names of the reference.

    Args:
        step_number: from 1.
        timestamp: seconds since 1970.
        messages: how many messages the model was sent (they are in `messages.json`).
        tokens_used: tokens of this step.
        raw_response: the model's reply, whole.
        action: `tool_call plan spawn complete specialize replan text`.
        summary: one line.
        tools: each tool call with path, input, result, error and milliseconds.
    """

    step_number: int
    timestamp: float
    messages: int
    tokens_used: int
    raw_response: str
    action: str
    summary: str
    tools: list[dict[str, Any]] = []
