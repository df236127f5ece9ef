"""Context windows of well-known families of models, for providers that name none.

As of November 2026, from what the makers of the models publish; where members of a family differ, or a
larger window must be asked for, the smaller number stands here: one that is too small only makes room early,
one that is too large makes calls fail. Models that people run themselves are left out, because their window
is what their server was started with. What `providers.yaml` or the provider says counts before this table.
"""

_WINDOWS = {
    "claude": 200_000,
    "opus": 200_000,  # the short names of the command line
    "sonnet": 200_000,
    "haiku": 200_000,
    "gpt-3.5-turbo": 16_385,
    "gpt-4": 8_192,
    "gpt-4-32k": 32_768,
    "gpt-4-turbo": 128_000,
    "gpt-4o": 128_000,
    "chatgpt-4o": 128_000,
    "gpt-4.1": 1_047_576,
    "gpt-4.5": 128_000,
    "gpt-5": 400_000,
    "o1": 200_000,
    "o1-mini": 128_000,
    "o1-preview": 128_000,
    "o3": 200_000,
    "o4": 200_000,
    "gemini": 1_048_576,
    "deepseek-chat": 128_000,
    "deepseek-reasoner": 128_000,
    "grok-3": 131_072,
    "grok-4": 256_000,
    "command-r": 128_000,
    "mistral-large": 128_000,
}
_LONGEST_FIRST = sorted(_WINDOWS, key=len, reverse=True)
_LARGE = "[1m]"  # the ending by which the claude command line asks for a million tokens
_LARGE_WINDOW = 1_000_000
_AFTER = "-.:@["  # what may follow the name of a family


def window_of(model: str) -> int:
    """Tokens that a model takes at most, by its name; 0 where the table does not know it.

    Args:
        model: as a provider calls it; what stands before the last slash, as resellers write, is left out.
    """
    name = model.lower().rpartition("/")[2]
    if name.endswith(_LARGE) and window_of(name.removesuffix(_LARGE)):
        return _LARGE_WINDOW
    for family in _LONGEST_FIRST:
        if name.startswith(family) and name[len(family) : len(family) + 1] in ("", *_AFTER):
            return _WINDOWS[family]
    return 0
