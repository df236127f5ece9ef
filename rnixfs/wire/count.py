"""Tokens of answers whose provider gave none."""

import msgspec

from rnixfs.llm import ModelAnswer, estimate_tokens


def estimate(answer: ModelAnswer, prompt: str) -> None:
    """Fill in the tokens of an answer whose provider gave none, and mark them as estimated."""
    calls = msgspec.json.encode(answer.tool_calls).decode() if answer.tool_calls else ""
    answer.input_tokens = estimate_tokens(prompt)
    answer.output_tokens = estimate_tokens(answer.content + calls)
    answer.tokens_used = answer.input_tokens + answer.output_tokens
    answer.estimated = True
