"""What the tools answer: the forms that clients are told of, and errors in words."""

import errno
import json
from typing import Any

from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel, Field

from rnixfs.errors import ERRNO, SyscallError, printable


class Process(BaseModel):
    """A process in short, as `proc/<pid>/status` has it."""

    pid: int
    ppid: int | None = None
    state: str = Field(default="", description="created, running, suspended, zombie or dead")
    paused: bool = False
    intent: str = ""
    agent: str = ""
    provider: str = ""
    model: str = ""
    steps: int = 0
    tokens_used: int = 0
    cost_usd: float = 0.0
    elapsed_ms: float = 0


class Processes(BaseModel):
    """The answer of `ps`."""

    processes: list[Process]


class End(BaseModel):
    """How a process ended, or that it still runs."""

    pid: int
    ended: bool = Field(description="false where it still runs: ask again with wait")
    code: int | None = Field(default=None, description="0 done, 1 error, 2 budget exceeded, 3 context full")
    reason: str = Field(default="", description='"done", or why it ended')
    result: str = Field(default="", description="its final answer")
    tokens_used: int = 0
    elapsed_ms: float = 0
    state: str = Field(default="", description="its state where it has not ended")


class Content(BaseModel):
    """The answer of `read`."""

    path: str = Field(description="the real path, every link worked out")
    encoding: str = Field(description="utf-8, or base64 for what is no text")
    content: str
    offset: int = Field(description="the first byte of the content")
    next_offset: int | None = Field(description="where to read on; null at the end, and for streams")
    ended: bool = Field(description="whether that is all there is")
    timed_out: bool = Field(description="whether the time was over before more came")


class Written(BaseModel):
    """The answer of `write`."""

    path: str = Field(description="the real path, every link worked out")
    bytes: int = Field(description="how many were written")
    encoding: str = Field(description="of the answer: json, utf-8, base64, or none where nothing answers")
    answer: Any = Field(
        default=None, description="a device's answer: an object where it is one of JSON, else text"
    )
    truncated: bool = Field(default=False, description="whether the answer was longer than what is shown")


class Entry(BaseModel):
    """A name in a folder."""

    name: str
    type: str = Field(description="folder, document, stream, device, control, file (of the host) or link")
    size: int | None = Field(default=None, description="in bytes, of documents and files")
    target: str | None = Field(default=None, description="where a link leads")


class Listing(BaseModel):
    """The answer of `ls`."""

    path: str
    entries: list[Entry]
    complete: bool = Field(description="false where there are more names than were listed")


class Signalled(BaseModel):
    """The answer of `kill`."""

    pid: int
    signal: str
    state: str = Field(description="the state afterwards")


def answer(found: BaseModel, text: str | None = None) -> CallToolResult:
    """A result with its structure, and a text for those who go by that.

    Args:
        found: the structure.
        text: the text; else the structure as JSON.
    """
    value = found.model_dump(mode="json")
    shown = json.dumps(value, ensure_ascii=False) if text is None else text
    return CallToolResult(content=[TextContent(type="text", text=shown)], structured_content=value)


def failed(error: SyscallError) -> CallToolResult:
    """A result that tells of a failure: its code, its errno, and why."""
    number = errno.errorcode[ERRNO[error.code]]
    told = {"error": {**error.as_dict(), "errno": number}}
    text = printable(f"{error} {number}")
    return CallToolResult(
        content=[TextContent(type="text", text=text)], structured_content=told, is_error=True
    )
