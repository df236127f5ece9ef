"""A prompt that does not fit in the window: each provider says so in words of its own."""

import json
from typing import Any

import pytest

from rnixfs.errors import Code
from rnixfs.wire.failure import is_too_long, refusal

LONG: dict[str, Any] = {
    "openai": {
        "error": {
            "message": "This model's maximum context length is 8192 tokens, yours resulted in 9000.",
            "type": "invalid_request_error",
            "code": "context_length_exceeded",
        }
    },
    "llama.cpp": {
        "error": {
            "code": 400,
            "message": "request (5093 tokens) exceeds the available context size (4096 tokens)",
            "type": "exceed_context_size_error",
        }
    },
    "anthropic": {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "prompt is too long: 200251 tokens > 200000 maximum",
        },
    },
    "vllm": {"object": "error", "message": "maximum context length is 4096", "code": 400},
    "gemini": {
        "error": {
            "code": 400,
            "message": "The input token count (1200000) exceeds the maximum number allowed (1048576).",
            "status": "INVALID_ARGUMENT",
        }
    },
    "groq": {"error": {"message": "Please reduce the length of the messages or completion."}},
    "lm studio": {"error": "Trying to keep the first 5000 tokens when context the overflows."},
}
OTHERS = [
    "max_tokens is too large: 9000",
    "the model `small` does not exist",
    "messages: roles must alternate",
    "the request body is too large",
    "context deadline exceeded",
    "Post http://runner: context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
]


@pytest.mark.parametrize("who", LONG)
@pytest.mark.parametrize("status", [400, 413])
def test_the_words_are_known(who, status):
    """It is RESOURCE_EXHAUSTED, so that room is made, and never asked again as it is."""
    error = refusal(status, json.dumps(LONG[who]).encode())
    assert (error.code, error.transient) == (Code.RESOURCE_EXHAUSTED, False)
    assert is_too_long(error.text)


@pytest.mark.parametrize("words", OTHERS)
def test_other_refusals_are_not_taken_for_it(words):
    """What is wrong with the request in another way stays EINVAL: a shorter conversation would not help."""
    error = refusal(400, json.dumps({"error": {"message": words}}).encode())
    assert error.code is Code.INVALID
    assert not is_too_long(error.text)
