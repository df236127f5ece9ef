"""How the failure of a provider reads: the code of an HTTP status, and the words of an error body."""

import re
from typing import Any

import msgspec

from rnixfs import limits
from rnixfs.errors import Code

_CODES = {
    400: Code.INVALID,
    401: Code.PERMISSION,
    402: Code.BUDGET_EXCEEDED,
    403: Code.PERMISSION,
    404: Code.NOT_FOUND,
    405: Code.NOT_FOUND,
    408: Code.TIMEOUT,
    413: Code.TOO_LARGE,
    422: Code.INVALID,
    429: Code.SERVICE_UNAVAILABLE,
    503: Code.SERVICE_UNAVAILABLE,
    504: Code.TIMEOUT,
    529: Code.SERVICE_UNAVAILABLE,
}
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029]+")
_TITLE = re.compile(r"<(title|h1)[^>]*>(.*?)</\1", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^>]*>")


class WireError(Exception):
    """A reply that is a failure, or that is no reply.

    Args:
        code: what it means for the caller.
        text: the reason in words; may hold the provider's own.
    """

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def too_large() -> WireError:
    """The failure of a reply that passes `limits.MODEL_REPLY_MAX`."""
    return WireError(Code.TOO_LARGE, f"the reply is larger than {limits.MODEL_REPLY_MAX} bytes")


def code_of_status(status: int) -> Code:
    """The code of an HTTP status that is no success (RFC 9110; 529 is Anthropic's "overloaded")."""
    if status in _CODES:
        return _CODES[status]
    return Code.INVALID if 400 <= status < 500 else Code.DRIVER


def one_line(text: str, *secrets: str) -> str:
    """Foreign words made fit for an error text: one line, bounded, without any of the secrets."""
    for secret in filter(None, secrets):
        text = text.replace(secret, "***")
    text = _UNPRINTABLE.sub(" ", text).strip()
    rest = len(text) - limits.MODEL_ERROR_MAX
    return text if rest <= 0 else f"{text[: limits.MODEL_ERROR_MAX]}… ({rest} more characters)"


def body_text(body: bytes) -> str:
    """The message inside an error body: JSON of the usual shapes, a page's title, or the text as it is."""
    text = body.decode("utf-8", "replace").strip()
    if not text:
        return "no text in the reply"
    if text.startswith("<"):
        return _page_text(text)
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    return message_of(value) or text


def message_of(value: Any) -> str:
    """The message of a decoded error, whichever of the providers' shapes it has; empty if there is none.

    Known shapes: `{"error": {"message", "type", "code"}}`, `{"error": "text"}`, `{"message"}`,
    `{"detail": "text" | [{"msg"}]}`, and a list around any of them.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return message_of(value[0]) if value else ""
    if not isinstance(value, dict):
        return ""
    for field in ("error", "message", "detail", "msg"):
        if found := message_of(value.get(field)):
            return found + _kind_of(value) if field == "message" else found
    return ""


def _kind_of(error: dict[str, Any]) -> str:
    kinds = [str(error[field]) for field in ("type", "code") if error.get(field)]
    return f" ({', '.join(dict.fromkeys(kinds))})" if kinds else ""


def _page_text(page: str) -> str:
    title = _TITLE.search(page)
    return "a web page: " + _TAG.sub(" ", title.group(2) if title else page)
