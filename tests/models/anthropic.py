"""The part of Anthropic's Messages API that the real `claude` command uses, played by a server of ours."""

import json
from typing import Any

from tests.models.servers import Handler, Seen, Stream, head, reply

USAGE = {
    "input_tokens": 100,
    "cache_creation_input_tokens": 20,
    "cache_read_input_tokens": 3,
    "output_tokens": 7,
}


def says(text: str) -> Handler:
    """Answer every request for a message with this text, as a stream; refuse everything else."""
    body = stream_of([{"type": "text", "text": text}], "end_turn")
    start = head(200, {"content-type": "text/event-stream"})

    async def handler(seen: Seen, stream: Stream) -> None:
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


def message(content: list[dict[str, Any]], stop: str | None, **more: Any) -> dict[str, Any]:
    """A whole reply."""
    body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5-5",
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": USAGE,
    }
    return body | more


def stream_of(content: list[dict[str, Any]], stop: str) -> bytes:
    """The same reply as a stream: pings between the blocks, and their text in pieces."""
    start = message([], None, usage={**USAGE, "output_tokens": 1})
    sent = [event("message_start", message=start), event("ping")]
    for index, block in enumerate(content):
        sent += _block(index, block)
    end = {"stop_reason": stop, "stop_sequence": None}
    sent += [event("message_delta", delta=end, usage={"output_tokens": 7}), event("message_stop")]
    return b"".join(sent)


def _block(index: int, block: dict[str, Any]) -> list[bytes]:
    start: dict[str, Any]
    match block["type"]:
        case "text":
            start, pieces = {"text": ""}, [("text_delta", "text", part) for part in _halves(block["text"])]
        case "tool_use":
            start = {"id": block["id"], "name": block["name"], "input": {}}
            pieces = [
                ("input_json_delta", "partial_json", part) for part in _halves(json.dumps(block["input"]))
            ]
        case "thinking":
            start = {"thinking": "", "signature": ""}
            pieces = [("thinking_delta", "thinking", part) for part in _halves(block["thinking"])]
            pieces.append(("signature_delta", "signature", block["signature"]))
        case _:  # comes whole
            start, pieces = dict(block), []
    return [
        event("content_block_start", index=index, content_block={"type": block["type"], **start}),
        *(
            event("content_block_delta", index=index, delta={"type": kind, field: part})
            for kind, field, part in pieces
        ),
        event("content_block_stop", index=index),
    ]


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


def event(kind: str, **fields: Any) -> bytes:
    """An event of a stream."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
