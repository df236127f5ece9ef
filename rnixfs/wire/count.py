"""Tokens of answers whose provider gave none."""

import msgspec

from rnixfs.llm import ModelAnswer, Usage, estimate_tokens


def estimate(answer: ModelAnswer, prompt: str) -> None:
    """Fill in the tokens of an answer whose provider gave none, and mark them as estimated."""
    calls = msgspec.json.encode(answer.tool_calls).decode() if answer.tool_calls else ""
    answer.input_tokens = estimate_tokens(prompt)
    answer.output_tokens = estimate_tokens(answer.content + calls)
    answer.tokens_used = answer.input_tokens + answer.output_tokens
    answer.estimated = True


def spent(prompt: bytes, *texts: str) -> Usage:
    """A rough count of a call: the body that was sent, and the pieces that came back."""
    return Usage(-(-len(prompt) // 4), estimate_tokens("".join(texts)))
