"""What the stub server says, in the dialect of each provider: whole, and in pieces. Pure."""

import json
from typing import Any

PIECES = 50  # of an answer that streams
WORDS = [f"word{number} " for number in range(PIECES)]
TEXT = "".join(WORDS)
MODEL = "sonnet"

OPENAI, ANTHROPIC, GEMINI = "/v1/chat/completions", "/v1/messages", "/v1beta/"

_OPENAI_USAGE = {"prompt_tokens": 9, "completion_tokens": PIECES, "total_tokens": 9 + PIECES}
_GEMINI_USAGE = {"promptTokenCount": 9, "candidatesTokenCount": PIECES, "totalTokenCount": 9 + PIECES}


def whole(path: str) -> bytes:
    """The body of an answer in one piece."""
    if path.startswith(OPENAI):
        choice = {"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}
        body: dict[str, Any] = _openai("chat.completion", choice) | {"usage": _OPENAI_USAGE}
    elif path.startswith(ANTHROPIC):
        usage = {"input_tokens": 9, "output_tokens": PIECES}
        body = _message(usage) | {"content": [{"type": "text", "text": TEXT}], "stop_reason": "end_turn"}
    else:
        body = _candidate(TEXT, finishReason="STOP") | {"usageMetadata": _GEMINI_USAGE}
    return json.dumps(body).encode()


def pieces(path: str) -> tuple[bytes, list[bytes], bytes]:
    """The events of an answer that streams: those before the words, one for each word, those after."""
    if path.startswith(OPENAI):
        return _openai_pieces()
    return _anthropic_pieces() if path.startswith(ANTHROPIC) else _gemini_pieces()


def _openai(kind: str, choice: dict[str, Any]) -> dict[str, Any]:
    return {"id": "c1", "object": kind, "created": 1, "model": MODEL, "choices": [choice]}


def _openai_pieces() -> tuple[bytes, list[bytes], bytes]:
    def chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
        return _data(_openai("chat.completion.chunk", {"index": 0, "delta": delta, "finish_reason": finish}))

    usage = _openai("chat.completion.chunk", {}) | {"choices": [], "usage": _OPENAI_USAGE}
    end = chunk({}, "stop") + _data(usage) + b"data: [DONE]\n\n"
    return chunk({"role": "assistant", "content": ""}), [chunk({"content": word}) for word in WORDS], end


def _message(usage: dict[str, int]) -> dict[str, Any]:
    named = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL}
    return named | {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}


def _anthropic_pieces() -> tuple[bytes, list[bytes], bytes]:
    message = _message({"input_tokens": 9, "output_tokens": 1})
    start = _event("message_start", message=message)
    start += _event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    words = [
        _event("content_block_delta", index=0, delta={"type": "text_delta", "text": word}) for word in WORDS
    ]
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    end = _event("content_block_stop", index=0)
    end += _event("message_delta", delta=stop, usage={"output_tokens": PIECES})
    return start, words, end + _event("message_stop")


def _candidate(text: str, **finish: str) -> dict[str, Any]:
    content = {"parts": [{"text": text}], "role": "model"}
    return {"candidates": [{"content": content, "index": 0, **finish}], "modelVersion": MODEL}


def _gemini_pieces() -> tuple[bytes, list[bytes], bytes]:
    words = [_data(_candidate(word)) for word in WORDS]
    return b"", words, _data(_candidate("", finishReason="STOP") | {"usageMetadata": _GEMINI_USAGE})


def _data(value: object) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\n".encode() + _data({"type": kind, **fields})
