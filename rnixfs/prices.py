"""What a call costs, where its provider names tokens but no price."""

from rnixfs.llm import Usage
from rnixfs.providers import ModelConfig

_TOKENS = 1_000_000  # tokens that a price is for


def cost(model: ModelConfig | None, usage: Usage) -> float:
    """Dollars: what the provider says, or what the configured prices of the model make of the tokens."""
    if usage.cost_usd or model is None:
        return usage.cost_usd
    cached = min(usage.cached_tokens, usage.input_tokens)
    cached_usd = model.input_usd if model.cached_usd is None else model.cached_usd
    dollars = (usage.input_tokens - cached) * model.input_usd + cached * cached_usd
    return (dollars + usage.output_tokens * model.output_usd) / _TOKENS


def both(one: Usage, other: Usage) -> Usage:
    """Two usages as one."""
    return Usage(
        one.input_tokens + other.input_tokens,
        one.output_tokens + other.output_tokens,
        one.cost_usd + other.cost_usd,
        one.cached_tokens + other.cached_tokens,
    )
