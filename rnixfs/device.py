"""What a device is: it says what it does, takes a request, and does it in the background.

A device never sees opens, offsets or mailboxes; `exchange` brings those. So that a request is refused while
its writer still listens, taking it (`accept`) and doing it (the job) are two steps.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from rnixfs.types import Caller


class ToolInfo(msgspec.Struct, omit_defaults=True):
    """One tool that a device offers to models.

    Args:
        name: as models call it.
        description: what it does, for the model.
        input_schema: JSON Schema of the arguments. The arguments, as a JSON object, are the request.
        read_only: whether it changes nothing, so that it may run again after a crash.
        parallel: whether it may run beside other calls of the same reply.
        extra: fields added to every request made by this tool, such as the operation it stands for.
    """

    name: str
    description: str
    input_schema: dict[str, Any]
    read_only: bool = False
    parallel: bool = False
    extra: dict[str, Any] = {}


class Description(msgspec.Struct, omit_defaults=True):
    """What reading a device shows when nobody asked it anything.

    Args:
        device: its name in the tree, such as `/dev/shell`.
        does: one or two sentences.
        request: JSON Schema of a request, or a sentence where text is taken too.
        example: a request that works.
        available: whether it can be used now.
        reason: why not.
        tools: the tools it offers to models.
        details: anything else worth knowing before use.
    """

    device: str
    does: str
    request: dict[str, Any]
    example: Any
    available: bool = True
    reason: str = ""
    tools: list[ToolInfo] = []
    details: dict[str, Any] = {}


class Sink(Protocol):
    """Where a job writes its answer, as it comes."""

    def write(self, data: bytes) -> None:
        """Append to the answer; its readers see it at once.

        Raises:
            SyscallError: TOO_LARGE when the answer passes `limits.ANSWER_MAX`.
        """


Job = Callable[[Sink], Awaitable[None]]
"""A request that was accepted: runs in a task of its own, is cancelled when nobody wants the answer, and
raises SyscallError where it fails. It must bring its own time limit."""

Body = dict[str, Any] | list[Any] | str | int | float | bool | None
"""A request: a decoded JSON value, or a str of text. (A JSON string arrives as text, too.)"""


class Device(Protocol):
    """A file that answers requests."""

    def describe(self, caller: Caller) -> Description:
        """What it does; must be quick and must spend nothing."""

    def accept(self, caller: Caller, body: Body) -> Job:
        """Check a request and return the job that does it; must not wait.

        Raises:
            SyscallError: INVALID and the like, with the reason; the writer gets the errno.
        """


def json_line(value: object) -> bytes:
    """A value as one line of JSON, the form of every answer."""
    return msgspec.json.encode(value) + b"\n"
