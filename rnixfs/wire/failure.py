"""How the failure of a provider reads: the code of a status, the words of a body, when to come again."""

import datetime
import email.utils
import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from rnixfs import limits
from rnixfs.errors import Code
from rnixfs.llm import Usage

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
TRANSIENT = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""The statuses after which the same request may well succeed a little later."""

# What servers call an empty purse while they send 429: to wait does not fill it.
_NO_MONEY = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
_NOTHING = Usage()
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029]+")
_TITLE = re.compile(r"<(title|h1)[^>]*>(.*?)</\1", re.IGNORECASE | re.DOTALL)
# What OpenAI, llama.cpp, Anthropic, vLLM and DeepSeek, Gemini, Groq and LM Studio say, in this order.
# "context deadline exceeded" is what servers in Go say of a time that is over.
_TOO_LONG = re.compile(
    r"context_length_exceeded|exceed_context_size|prompt is too long|maximum context length"
    r"|input token count.{0,40}exceeds|reduce the length of the (messages|prompt)"
    r"|exceeds? the (available |model's )?context|context(?! deadline).{0,12}(exceed|overflow)",
    re.IGNORECASE,
)
_TAG = re.compile(r"<[^>]*>")
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:([\d.]+)s)?(?:([\d.]+)ms)?")


class WireError(Exception):
    """A reply that is a failure, or that is no reply.

    Args:
        code: what it means for the caller.
        text: the reason in words; may hold the provider's own.
        transient: whether the same request may well succeed a little later.
        retry_after: seconds after which the provider wants to be asked again; None where it did not say.
        usage: what was spent all the same.
        status: the HTTP status, 0 without one.
    """

    def __init__(
        self,
        code: Code,
        text: str,
        *,
        transient: bool = False,
        retry_after: float | None = None,
        usage: Usage = _NOTHING,
        status: int = 0,
    ) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.transient = transient
        self.retry_after = retry_after
        self.usage = usage
        self.status = status


def is_too_long(words: str) -> bool:
    """Whether a provider says, in whatever words of its own, that a prompt does not fit in the window."""
    return _TOO_LONG.search(words) is not None


def too_large() -> WireError:
    """The failure of a reply that passes `limits.MODEL_REPLY_MAX`."""
    return WireError(Code.TOO_LARGE, f"the reply is larger than {limits.MODEL_REPLY_MAX} bytes")


def code_of_status(status: int) -> Code:
    """The code of an HTTP status that is no success (RFC 9110; 529 is Anthropic's "overloaded")."""
    if status in _CODES:
        return _CODES[status]
    return Code.INVALID if 400 <= status < 500 else Code.DRIVER


def of_status(status: int, text: str, retry_after: float | None = None) -> WireError:
    """The failure that an HTTP status stands for.

    Args:
        status: the status, from 300 to 599.
        text: the reason in words.
        retry_after: seconds after which the provider wants to be asked again.
    """
    transient = status in TRANSIENT
    return WireError(
        code_of_status(status), text, transient=transient, retry_after=retry_after, status=status
    )


def refusal(status: int, body: bytes) -> WireError:
    """The failure that a reply of another status than 200 stands for, whoever sent it."""
    error = of_status(status, f"HTTP {status}: {body_text(body)}")
    if status == 429 and _NO_MONEY & _words_of(body):
        error.code, error.transient = Code.BUDGET_EXCEEDED, False
    elif status in (400, 413) and is_too_long(error.text):
        error.code = Code.RESOURCE_EXHAUSTED
    return error


def _words_of(body: bytes) -> set[str]:
    try:
        error = msgspec.json.decode(body)["error"]
        return {word for word in (error.get("code"), error.get("type")) if isinstance(word, str)}
    except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError, KeyError, AttributeError):
        return set()


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds after which a server wants to be asked again; None where it does not say.

    Known are `retry-after-ms`; `retry-after` in seconds or as a date (RFC 9110); and where neither is there,
    the `x-ratelimit-reset-*` of OpenAI for those limits of which nothing remains.

    Args:
        headers: those of the reply, with names in small letters.
        now: seconds since 1970, for dates of servers that do not tell their own time.
    """
    wait = _number(headers.get("retry-after-ms", ""))
    if wait is not None:
        return wait / 1000
    given = headers.get("retry-after", "")
    wait = _number(given)
    if wait is None:
        wait = _until(given, _date(headers.get("date", "")) or now)
    return _reset(headers) if wait is None else wait


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return max(0.0, value) if math.isfinite(value) else None


def _date(text: str) -> float | None:
    try:
        date = email.utils.parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    # A date without a zone is one of UTC: HTTP knows no other.
    return (date if date.tzinfo else date.replace(tzinfo=datetime.UTC)).timestamp()


def _until(text: str, now: float) -> float | None:
    date = _date(text)
    return None if date is None else max(0.0, date - now)


def _reset(headers: Mapping[str, str]) -> float | None:
    empty = [kind for kind in ("requests", "tokens") if headers.get(f"x-ratelimit-remaining-{kind}") == "0"]
    waits = [seconds_of(headers.get(f"x-ratelimit-reset-{kind}", "")) for kind in empty]
    return max((wait for wait in waits if wait is not None), default=None)


def seconds_of(duration: str) -> float | None:
    """Seconds of a duration such as `6m0s`, `20ms` or `8.5s`; None if it is none."""
    match = _DURATION.fullmatch(duration.strip())
    if match is None or not any(match.groups()):
        return None
    try:
        hours, minutes, seconds, milliseconds = (float(part or 0) for part in match.groups())
    except ValueError:
        return None
    return hours * 3600 + minutes * 60 + seconds + milliseconds / 1000


def one_line(text: str, *secrets: str) -> str:
    """Foreign words made fit for an error text: one line, bounded, without any of the secrets."""
    for secret in filter(None, secrets):
        text = _without_beginning(text.replace(secret, "***"), secret)
    text = _UNPRINTABLE.sub(" ", text).strip()
    rest = len(text) - limits.MODEL_ERROR_MAX
    return text if rest <= 0 else f"{text[: limits.MODEL_ERROR_MAX]}… ({rest} more characters)"


def _without_beginning(text: str, secret: str) -> str:
    """A text that may have been cut in the middle of a secret, without the part of it at the end."""
    parts = (secret[:size] for size in range(len(secret) - 1, _TOLD - 1, -1))
    found = next(filter(text.endswith, parts), "")
    return text[: len(text) - len(found)] + "***" if found else text


_TOLD = 4  # characters with which keys of a kind begin alike


def body_text(body: bytes) -> str:
    """The message inside an error body: JSON of the usual shapes, a page's title, or the text as it is."""
    text = body.decode("utf-8", "replace").strip()
    if not text:
        return "no text in the reply"
    if text.startswith("<"):
        return _page_text(text)
    try:
        return message_of(msgspec.json.decode(text)) or text
    except (msgspec.DecodeError, RecursionError):
        return text


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
    kinds = [str(error[field]) for field in ("type", "status", "code") if error.get(field)]
    return f" ({', '.join(dict.fromkeys(kinds))})" if kinds else ""


def _page_text(page: str) -> str:
    title = _TITLE.search(page)
    return "a web page: " + _TAG.sub(" ", title.group(2) if title else page)
