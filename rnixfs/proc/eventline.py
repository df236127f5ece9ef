"""Events as the lines of `proc/events`: for those who watch, so long texts are cut, and say so."""

from typing import Any

import msgspec

from rnixfs import limits
from rnixfs.state.store import Record


def event_line(record: Record) -> bytes:
    """An event as one line of JSON."""
    head = {"seq": record.seq, "ts": record.ts, "event": record.event, "pid": record.pid}
    return msgspec.json.encode(head | _shown(record.data)) + b"\n"


def _shown(data: dict[str, Any]) -> dict[str, Any]:
    # Variables may be secrets; their names say enough.
    return {
        name: sorted(value) if name == "env" and isinstance(value, dict) else _cut(value)
        for name, value in data.items()
    }


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        rest = len(value) - limits.EVENT_TEXT
        return value if rest <= 0 else f"{value[: limits.EVENT_TEXT]}… ({rest} characters more: sys/query)"
    if isinstance(value, dict):
        return _shown(value)
    return [_cut(one) for one in value] if isinstance(value, list | tuple) else value
