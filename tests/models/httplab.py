"""The drivers of models behind HTTP, set up for tests, and what each kind of server says."""

import contextlib
import dataclasses
import json
from collections.abc import AsyncGenerator
from typing import Any

from rnixfs.drivers.http import DIALECTS, HttpModel
from rnixfs.llm import Delta, Usage
from rnixfs.presets import ANTHROPIC, GEMINI, OPENAI_COMPAT
from rnixfs.providers import ProviderConfig
from tests.models import anthropic, servers
from tests.models.servers import events

KEY = "sk-very-secret-0123456789"


@contextlib.asynccontextmanager
async def model_of(
    driver: str, url: str, key: str | None = KEY, *, server: str = "", **fields: Any
) -> AsyncGenerator[HttpModel]:
    """The driver for a server.

    Args:
        driver: its name.
        url: where the server is.
        key: the API key.
        server: the address of the server whose peculiarities count; the real one if empty.
        fields: further fields of the entry.
    """
    usual: dict[str, Any] = {"default_model": "m-1", "timeout_ms": round(servers.SECONDS * 1000)}
    address = f"{url}/v1" if driver == OPENAI_COMPAT else url
    entry = ProviderConfig("acme", driver, address, **(usual | fields))
    model = HttpModel(entry, DIALECTS[driver](server or address), lambda: key)
    try:
        yield model
    finally:
        await model.aclose()


def nobody(_: Delta) -> None:
    """Take a piece of an answer that nobody looks at."""


@dataclasses.dataclass(frozen=True)
class Peer:
    """What a server of one dialect says.

    Args:
        driver: the driver that asks it.
        whole: an answer, "hello, all of you".
        stream: the same as a stream.
        half: the beginning of that stream, after which the text is not complete.
        came: what `half` counts; no input tokens where they are estimated.
        piece: an event with a piece of text, of which there can be any number.
    """

    driver: str
    whole: bytes
    stream: bytes
    half: bytes
    came: Usage
    piece: bytes


def _openai() -> Peer:
    def chunk(text: str, finish: str | None = None) -> dict[str, Any]:
        return {
            "model": "m-1",
            "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}],
        }

    usage = {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "hello, all of you"},
        "finish_reason": "stop",
    }
    half = events([chunk("hello, ")])
    return Peer(
        OPENAI_COMPAT,
        json.dumps({"model": "m-1", "choices": [choice], "usage": usage}).encode(),
        half + events([chunk("all of you", "stop"), {"choices": [], "usage": usage}, "[DONE]"]),
        half,
        Usage(0, 2),
        events([chunk("x" * 1000)]),
    )


def _anthropic() -> Peer:
    content = [{"type": "text", "text": "hello, all of you"}]
    stream = anthropic.stream_of(content, "end_turn")
    middle = stream.index(b"\n\n", stream.index(b"hello, ")) + 2
    piece = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x" * 1000}}
    return Peer(
        ANTHROPIC,
        json.dumps(anthropic.message(content, "end_turn")).encode(),
        stream,
        stream[:middle],
        Usage(123, 2, cached_tokens=3),
        events([piece]),
    )


def _gemini() -> Peer:
    def chunk(text: str, finish: str = "", output: int = 0) -> dict[str, Any]:
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": [{"text": text}]}, "index": 0}
        if finish:
            candidate["finishReason"] = finish
        usage = {"promptTokenCount": 9, "candidatesTokenCount": output, "totalTokenCount": 9 + output}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m-1"}

    half = events([chunk("hello, ", output=1)])
    return Peer(
        GEMINI,
        json.dumps(chunk("hello, all of you", "STOP", 5)).encode(),
        half + events([chunk("all of you", "STOP", 5)]),
        half,
        Usage(9, 2),
        events([chunk("x" * 1000)]),
    )


PEERS = {peer.driver: peer for peer in (_openai(), _anthropic(), _gemini())}
"""One for each dialect, by the name of its driver."""
