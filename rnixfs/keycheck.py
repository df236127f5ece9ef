"""Tells keys from names, so that none is kept in a file of configuration or repeated in a message."""

import re

from rnixfs.yamlread import ManifestError, Value

NO_KEYS = "put the key into an environment variable and write the variable's name as api_key_env"

# Beginnings of keys that their issuers document, and long runs of mixed letters and digits.
_KEY = re.compile(r"(?:sk-|gsk_|hf_|xai-|ghp_|github_pat_|glpat-|pplx-|r8_|AIza|AKIA)[A-Za-z0-9_-]{12,}")
_LONG_WORD = re.compile(r"[A-Za-z0-9]{32,}")


def looks_secret(text: str) -> bool:
    """Whether a text is more likely a key than a name."""
    return _KEY.search(text) is not None or any(_mixed(word) for word in _LONG_WORD.findall(text))


def _mixed(word: str) -> bool:
    kinds = (str.islower, str.isupper, str.isdigit)
    return all(any(kind(letter) for letter in word) for kind in kinds)


def refuse_keys(file: str, value: Value, where: str = "") -> None:
    """Look through everything that a file holds.

    Args:
        file: its name, for the message.
        value: what it holds.
        where: the path of that, such as `providers[1]`.

    Raises:
        ManifestError: with the line of the first text that looks like a key, but not the text.
    """
    match value.data:
        case str(text):
            if looks_secret(text):
                raise ManifestError(file, value.line, f"{where or 'the text'} looks like a secret", NO_KEYS)
        case tuple(items):
            for at, item in enumerate(items, 1):
                refuse_keys(file, item, f"{where}[{at}]")
        case dict(entries):
            for name, entry in entries.items():
                if looks_secret(name):
                    raise ManifestError(file, entry.line, "a field's name looks like a secret", NO_KEYS)
                refuse_keys(file, entry.value, f"{where}.{name}".removeprefix("."))
