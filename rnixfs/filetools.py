"""Requests to the file tools, and how the tools describe themselves. Pure."""

from typing import Any, TypeVar

import msgspec

from rnixfs import limits
from rnixfs.device import Body, ToolInfo
from rnixfs.errors import invalid

T = TypeVar("T", bound=msgspec.Struct)


class EditRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A request to `dev/edit`; `tools` of its description says what each field means."""

    path: str
    old: str | None = None
    new: str | None = None
    content: str | None = None
    replace_all: bool = False
    create: bool = True
    expected_sha256: str | None = None
    expected_mtime_ns: int | None = None
    expected_count: int | None = None
    timeout_ms: int = limits.SEARCH_MS


class GlobRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A request to `dev/glob`."""

    pattern: str
    path: str = "."
    limit: int = limits.GLOB_MATCHES
    all: bool = False
    timeout_ms: int = limits.SEARCH_MS


class GrepRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A request to `dev/grep`."""

    pattern: str
    path: str = "."
    glob: str = ""
    limit: int = limits.GREP_MATCHES
    context: int = 0
    ignore_case: bool = False
    fixed: bool = False
    all: bool = False
    timeout_ms: int = limits.SEARCH_MS


_TIMEOUT = {"type": "integer", "description": f"milliseconds, default {limits.SEARCH_MS}"}
_PATH = {"type": "string", "description": "absolute, or relative to the working folder"}
_ALL = {"type": "boolean", "description": "also names that begin with a dot, and .git"}
_EXPECTED = {
    "expected_sha256": {"type": "string", "description": 'refuse if the file has another; "" if it exists'},
    "expected_mtime_ns": {"type": "integer", "description": "refuse if the file has another"},
}


def _schema(required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties | {"timeout_ms": _TIMEOUT},
        "required": required,
        "additionalProperties": False,
    }


EDIT_TOOL = ToolInfo(
    "edit",
    "Replaces a text in a file. It must be there exactly once unless replace_all or expected_count is given.",
    _schema(
        ["path", "old", "new"],
        path=_PATH,
        old={"type": "string", "description": "the text to replace, to the letter"},
        new={"type": "string", "description": "what to put in its place"},
        replace_all={"type": "boolean"},
        expected_count={"type": "integer", "description": "replace all, but only if there are so many"},
        **_EXPECTED,
    ),
)
WRITE_TOOL = ToolInfo(
    "write",
    "Writes a whole file in one step, with the folders it needs.",
    _schema(
        ["path", "content"],
        path=_PATH,
        content={"type": "string"},
        create={"type": "boolean", "description": "false: the file must be there already"},
        **_EXPECTED,
    ),
)
GLOB_TOOL = ToolInfo(
    "glob",
    "Lists files and folders whose path matches a pattern such as **/*.py or src/{a,b}/*, with exact totals.",
    _schema(
        ["pattern"],
        pattern={"type": "string", "description": "* ? [] within a name, ** for any folders, {a,b}"},
        path=_PATH,
        limit={"type": "integer", "minimum": 1, "maximum": limits.GLOB_MATCHES_MAX},
        all=_ALL,
    ),
    read_only=True,
    parallel=True,
)
GREP_TOOL = ToolInfo(
    "grep",
    "Searches the lines of text files for a regular expression of Python, with exact totals.",
    _schema(
        ["pattern"],
        pattern={"type": "string"},
        path=_PATH,
        glob={"type": "string", "description": "which files, such as *.py or src/**/*.c"},
        limit={"type": "integer", "minimum": 1, "maximum": limits.GREP_MATCHES_MAX},
        context={"type": "integer", "minimum": 0, "maximum": limits.GREP_CONTEXT_MAX},
        ignore_case={"type": "boolean"},
        fixed={"type": "boolean", "description": "the pattern is a text"},
        all=_ALL,
    ),
    read_only=True,
    parallel=True,
)


def read_request(body: Body, kind: type[T]) -> T:
    """A request as its struct.

    Raises:
        SyscallError: INVALID with the field that is wrong and those there are.
    """
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        fields = ", ".join(field.name for field in msgspec.structs.fields(kind))
        raise invalid(f"{error}; a request is a JSON object of: {fields}") from None


def check_between(what: str, value: int, least: int, most: int) -> None:
    """Raise INVALID for a number that is out of bounds."""
    if not least <= value <= most:
        raise invalid(f"{what} must be from {least} to {most}, not {value}")


def check_edit(request: EditRequest) -> None:
    """Raise INVALID for fields of a request to `dev/edit` that do not go together."""
    replacing = request.old is not None or request.new is not None
    if replacing == (request.content is not None):
        raise invalid("give either old and new, to replace a text, or content, for the whole file")
    if replacing and (request.old is None or request.new is None):
        raise invalid("to replace a text both old and new are needed")
    if not replacing and (request.replace_all or request.expected_count is not None):
        raise invalid("replace_all and expected_count belong to old and new, not to content")
