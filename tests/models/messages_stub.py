"""What the Messages API sends to the `claude` command: whole streams, half ones, and errors."""

import json
import re
from typing import Any

from tests.models.servers import Handler, Seen, head, raw, reply

USAGE = {
    "input_tokens": 100,
    "cache_creation_input_tokens": 20,
    "cache_read_input_tokens": 3,
    "output_tokens": 1,
}
INPUT = 123  # the tokens of the prompt by that
MODEL = "claude-sonnet-5-5"


def event(kind: str, **fields: Any) -> bytes:
    """One event of a stream."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def begun(*blocks: tuple[str, str]) -> bytes:
    """A message up to its last piece: its start, and for each block its kind and text, a word at a time."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": []}
    sent = [event("message_start", message=message | {"stop_reason": None, "usage": USAGE})]
    for index, (kind, text) in enumerate(blocks):
        empty = {"type": kind, kind: ""} | ({"signature": ""} if kind == "thinking" else {})
        sent.append(event("content_block_start", index=index, content_block=empty))
        for piece in re.findall(r"\S*\s*", text)[:-1]:
            delta = {"type": f"{kind}_delta", kind: piece}
            sent.append(event("content_block_delta", index=index, delta=delta))
        if index < len(blocks) - 1:
            sent.append(event("content_block_stop", index=index))
    return b"".join(sent)


def ended(index: int, stop: str = "end_turn", tokens: int = 7) -> bytes:
    """The end of a message whose last block has this index."""
    delta = {"stop_reason": stop, "stop_sequence": None}
    return (
        event("content_block_stop", index=index)
        + event("message_delta", delta=delta, usage={"output_tokens": tokens})
        + event("message_stop")
    )


def message(*blocks: tuple[str, str], stop: str = "end_turn", tokens: int = 7) -> bytes:
    """A whole message."""
    return begun(*blocks) + ended(len(blocks) - 1, stop, tokens)


def tool_use() -> bytes:
    """A message that calls a tool."""
    start = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": '{"command": "echo hi"}'}
    return (
        begun()
        + event("content_block_start", index=0, content_block=start)
        + event("content_block_delta", index=0, delta=delta)
        + ended(0, "tool_use", 9)
    )


def streams(body: bytes, **headers: str) -> Handler:
    """Answer with this stream."""
    return raw(head(200, {"content-type": "text/event-stream", **headers}) + body)


def says(text: str) -> Handler:
    """Answer every request with this text."""
    return streams(message(("text", text)))


def fails(status: int, kind: str, text: str, **headers: str) -> Handler:
    """Answer with an error in the API's shape; header names are written with `_` for `-`."""
    return reply({"type": "error", "error": {"type": kind, "message": text}}, status, **headers)


def prompt_of(seen: Seen) -> str:
    """All text that a request sends to the model beside the system prompt."""
    return "\n".join(_texts(seen.json["messages"]))


def _texts(value: Any) -> list[str]:
    if isinstance(value, list):
        return [text for entry in value for text in _texts(entry)]
    if isinstance(value, dict):
        return _texts(value.get("content", value.get("text", "")))
    return [str(value)]
