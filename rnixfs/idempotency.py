"""Idempotency keys: a request that carries one runs once, however often it is asked.

The same rules hold for every device that takes a key: what a key may be, whose it is, and how two requests
with one key are compared.
"""

import hashlib
from typing import Any

import msgspec

from rnixfs import limits
from rnixfs.errors import invalid
from rnixfs.types import Caller

FIELD = "idempotency_key"
"""The field of a request in JSON that holds its key."""

SCHEMA: dict[str, Any] = {
    "type": "string",
    "minLength": 1,
    "maxLength": limits.IDEMPOTENCY_KEY_MAX,
    "description": "The same request with the same key runs once, also across a restart.",
}
"""JSON Schema of the field."""


def check_key(value: object) -> str:
    """A key as it came in a request.

    Raises:
        SyscallError: INVALID for what is no text, for an empty or long one, and for signs without a shape.
    """
    right = f"it must be text of 1 to {limits.IDEMPOTENCY_KEY_MAX} printable characters"
    if not isinstance(value, str):
        raise invalid(f'"{FIELD}" is no text; {right}')
    if not 1 <= len(value) <= limits.IDEMPOTENCY_KEY_MAX:
        raise invalid(f'"{FIELD}" has {len(value)} characters; {right}')
    if not value.isprintable():
        raise invalid(f'"{FIELD}" holds a character that cannot be printed; {right}')
    return value


def scoped(device: str, caller: Caller, key: str) -> str:
    """A key together with where it counts: one device, and one person or process.

    Args:
        device: its path, which holds no space.
        caller: who asks; a process by its pid, which is never used again, a person by the uid.
        key: as it came.
    """
    who = f"agent:{caller.agent}" if caller.agent else f"uid:{caller.uid}"
    return f"{device} {who} {key}"


def digest(body: object) -> str:
    """What a request's content comes to, whatever the order of its fields: 32 hexadecimal digits."""
    return hashlib.sha256(msgspec.json.encode(body, order="sorted")).hexdigest()[:32]
