"""An event's data as bytes of JSON, and back: what comes out is what went in."""

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from rnixfs import limits
from rnixfs.errors import SyscallError, invalid

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(dict[str, Any])


def encode(data: dict[str, Any]) -> bytes:
    """The JSON of an event's data; lone surrogates, which UTF-8 cannot hold, keep the bytes they would have.

    Raises:
        TypeError: for what JSON cannot hold.
        SyscallError: INVALID for more than `limits.EVENT_DEPTH_MAX` levels of lists and objects.
    """
    try:
        encoded = encode_unchecked(data)
    except RecursionError:
        raise _too_deep() from None
    # Counting is quick, and nearly always answer enough.
    brackets = encoded.count(b"{") + encoded.count(b"[")
    if brackets > limits.EVENT_DEPTH_MAX and _is_deep(decode(encoded)):
        raise _too_deep()
    return encoded


def encode_unchecked(data: dict[str, Any]) -> bytes:
    """The same without a look at the depth."""
    try:
        return _encoder.encode(data)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(data, str_keys=True)
        text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "surrogatepass")


def _is_deep(data: dict[str, Any]) -> bool:
    level: list[Any] = [data]
    for _ in range(limits.EVENT_DEPTH_MAX):
        level = [inner for one in level for inner in _inside(one) if isinstance(inner, dict | list)]
    return bool(level)


def _inside(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _too_deep() -> SyscallError:
    return invalid(f"an event holds no more than {limits.EVENT_DEPTH_MAX} levels of lists and objects")


def decode(encoded: bytes | str) -> dict[str, Any]:
    """The data that `encode` was given.

    Raises:
        ValueError: for anything but the JSON of an object.
    """
    try:
        return _decoder.decode(encoded)
    except ValueError:
        if isinstance(encoded, str):
            raise
        found = json.loads(encoded.decode("utf-8", "surrogatepass"))
        if not isinstance(found, dict):
            raise ValueError("the data of an event is an object") from None
        return found


def key_of(data: dict[str, Any]) -> str | None:
    """The idempotency key in an event's data."""
    key = data.get("key")
    return key if isinstance(key, str) and key else None


def sql_text(text: str) -> str | bytes:
    """A text as SQLite can hold and compare it: bytes if it has lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text
