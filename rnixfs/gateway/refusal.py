"""Requests that get no answer: why, in a form that becomes an error of either API."""

import math
from typing import Any

from rnixfs.errors import Code

_STATUS = {
    Code.NOT_FOUND: 404,
    # Not 401: that would tell the client that the key which it gave to the gateway is wrong.
    Code.PERMISSION: 403,
    Code.NOT_PERMITTED: 403,
    Code.INVALID: 400,
    Code.TIMEOUT: 504,
    Code.SERVICE_UNAVAILABLE: 503,
    Code.RESOURCE_EXHAUSTED: 503,
    Code.CANCELED: 503,
    Code.INTERRUPTED: 503,
    Code.BUDGET_EXCEEDED: 402,
    Code.UNKNOWN_OUTCOME: 502,
    Code.TOO_LARGE: 413,
    Code.DRIVER: 502,
}
"""The status of a code; 500 for the others."""

TOO_MANY = 429


class RefusedError(Exception):
    """A request that gets no answer.

    Args:
        status: the HTTP status.
        reason: a sentence that says what, where and what would be right.
        kind: the error's name for programs, such as `model_not_found`.
        param: the field of the request that is wrong; "" where it is none.
        retry_after_ms: milliseconds after which another attempt makes sense; None where unknown.
        final: whether clients should not try again by themselves, although the status would let them.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        *,
        kind: str = "",
        param: str = "",
        retry_after_ms: int | None = None,
        final: bool = False,
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.kind = kind
        self.param = param
        self.retry_after_ms = retry_after_ms
        self.final = final

    def headers(self) -> list[tuple[str, str]]:
        """What clients of both APIs go by before they try again."""
        found = []
        if self.retry_after_ms is not None:
            # RFC 9110 has seconds; the official clients prefer the other.
            found.append(("retry-after", str(math.ceil(self.retry_after_ms / 1000))))
            found.append(("retry-after-ms", str(self.retry_after_ms)))
        if self.final:
            found.append(("x-should-retry", "false"))
        return found


def refuse(reason: str, param: str = "") -> RefusedError:
    """A request that cannot be taken as it is."""
    return RefusedError(400, reason, kind="invalid_request", param=param)


def of_code(code: str, reason: str, **more: Any) -> RefusedError:
    """The refusal of a code of the kernel, as devices spell it.

    Args:
        code: such as `NOT_FOUND`; an unknown one counts as a failure inside.
        reason: the sentence.
        more: further arguments of `RefusedError`.
    """
    status = _STATUS.get(Code(code), 500) if code in Code.__members__ else 500
    return RefusedError(more.pop("status", 0) or status, reason, kind=code.lower(), **more)


def of_device(error: Any) -> RefusedError:
    """The refusal that stands under "error" in a device's answer."""
    if not isinstance(error, dict):
        return of_code(Code.DRIVER, f"the device answered with an error of no known form: {error!r:.200}")
    code, wait = str(error.get("code", Code.DRIVER)), error.get("retry_after_ms")
    many = code == Code.SERVICE_UNAVAILABLE and error.get("status") == TOO_MANY
    return of_code(
        code,
        str(error.get("message", "the device gave no reason")),
        status=TOO_MANY if many else 0,
        retry_after_ms=wait if isinstance(wait, int) else None,
        final=error.get("retryable") is False,
    )
