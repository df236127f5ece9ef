"""The part of Anthropic's Messages API that the real `claude` command uses, played by a server of ours."""

import json
from typing import Any

import trio

from tests.models.servers import Handler, Seen, head, reply

USAGE = {
    "input_tokens": 100,
    "cache_creation_input_tokens": 20,
    "cache_read_input_tokens": 3,
    "output_tokens": 7,
}


def says(text: str) -> Handler:
    """Answer every request for a message with this text, as a stream; refuse everything else."""
    body = _stream(text)
    start = head(200, {"content-type": "text/event-stream"})

    async def handler(seen: Seen, stream: trio.SocketStream) -> None:
        if seen.method == "POST" and seen.path.startswith("/v1/messages?"):
            await stream.send_all(start + body)
        else:
            await fails(404, "not_found_error", "no such path")(seen, stream)

    return handler


def fails(status: int, kind: str, message: str) -> Handler:
    """Answer with an error in the API's shape."""
    return reply({"type": "error", "error": {"type": kind, "message": message}}, status)


def prompt_of(seen: Seen) -> str:
    """All text that a request sends to the model beside the system prompt."""
    return "\n".join(_texts(seen.json["messages"]))


def _texts(value: Any) -> list[str]:
    if isinstance(value, list):
        return [text for entry in value for text in _texts(entry)]
    if isinstance(value, dict):
        return _texts(value.get("content", value.get("text", "")))
    return [str(value)]


def _stream(text: str) -> bytes:
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5-5",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**USAGE, "output_tokens": 1},
    }
    sent = [
        _event("message_start", message=message),
        _event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        _event("content_block_delta", index=0, delta={"type": "text_delta", "text": text}),
        _event("content_block_stop", index=0),
        _event(
            "message_delta",
            delta={"stop_reason": "end_turn", "stop_sequence": None},
            usage={"output_tokens": 7},
        ),
        _event("message_stop"),
    ]
    return b"".join(sent)


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
