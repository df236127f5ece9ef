"""Every file of the tree: its class and its page. What the contract tests go by.

A test walks a running system and fails for a file without a row here; another fails for a row without a page
in `docs/man/`, and a third for one whose content no contract test holds (`holds`).
"""

import enum
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

_T = TypeVar("_T")


class Class(enum.StrEnum):
    """The classes of files; each has its laws in `tests/contract`."""

    FOLDER = "folder"
    DOCUMENT = "document"
    JOURNAL = "journal"
    STREAM = "stream"
    DEVICE = "device"
    CONTROL = "control"
    LINK = "link"
    MAILBOX = "mailbox"
    PIPE = "pipe"
    HOST = "host"
    REMOTE = "remote"


class Row(NamedTuple):
    """One kind of file.

    Args:
        pattern: its path; `<…>` stands for a part that varies.
        kind: its class.
        sample: one such file in `tests.contract.world`: `{done}` is a finished process, `{live}` one that
            runs, `{supervisor}` a supervisor, `{pipe}` a pipe, `{group}` a group, `{server}` a mounted
            server.
    """

    pattern: str
    kind: Class
    sample: str

    @property
    def page(self) -> str:
        """Its page below `docs/man`: the path up to what varies (but for `pid`), hyphens for slashes."""
        path = re.sub(r"/<(?!pid).*", "", self.pattern).replace("<pid>", "pid").removesuffix(".md")
        return path.replace("/", "-").lower() + ".md"

    def matches(self, path: str) -> bool:
        """Whether a path is such a file."""
        parts = re.split(r"(<[^>]+>)", self.pattern)
        return re.fullmatch("".join(_PARTS.get(part) or re.escape(part) for part in parts), path) is not None


_PARTS = {
    "<pid>": r"\d+",
    "<uuid>": r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "<n>": r"[1-9]\d*",
    "<name>": r"[\w.-]+",
    "<provider>": r"[\w.-]+",
    "<host path>": r".+",
    "<server>": r"(?!ctl(?:/|$))[\w-]+",
    "<tool>": r"\w+",
    "<prompt>": r"\w+",
    "<uri>": r"[a-z].*",
}


def _rows(kind: Class, *rows: tuple[str, str] | str) -> Iterable[Row]:
    for row in rows:
        pattern, sample = (row, row) if isinstance(row, str) else row
        yield Row(pattern, kind, sample.replace("proc/<pid>", "proc/{done}"))


def _running(name: str) -> tuple[str, str]:
    return f"proc/<pid>/{name}", f"proc/{{live}}/{name}"


TABLE: tuple[Row, ...] = (
    *_rows(
        Class.FOLDER,
        "",
        "dev",
        "dev/llm",
        "dev/fs",
        "dev/pipes",
        ("dev/pipes/<n>", "dev/pipes/{pipe}"),
        "proc",
        "proc/.live",
        "proc/history",
        ("proc/history/<uuid>", "proc/history/{uuid}"),
        ("proc/<pid>", "proc/<pid>"),
        _running(".live"),
        ("proc/<pid>/steps", "proc/<pid>/steps"),
        _running("fd"),
        ("proc/<pid>/threads", "proc/<pid>/threads"),
        "proc/groups",
        ("proc/groups/<name>", "proc/groups/{group}"),
        "mnt",
        "mnt/mcp",
        ("mnt/mcp/<server>", "mnt/mcp/{server}"),
        ("mnt/mcp/<server>/tools", "mnt/mcp/{server}/tools"),
        ("mnt/mcp/<server>/resources", "mnt/mcp/{server}/resources"),
        ("mnt/mcp/<server>/prompts", "mnt/mcp/{server}/prompts"),
        "lib",
        "lib/agents",
        ("lib/agents/<name>", "lib/agents/default"),
        "lib/skills",
        ("lib/skills/<name>", "lib/skills/shell-use"),
        "sys",
    ),
    *_rows(
        Class.DOCUMENT,
        "README.md",
        "proc/processes",
        ("proc/<pid>/status", "proc/<pid>/status"),
        ("proc/<pid>/intent", "proc/<pid>/intent"),
        ("proc/<pid>/context", "proc/<pid>/context"),
        ("proc/<pid>/messages.json", "proc/<pid>/messages.json"),
        ("proc/<pid>/result", "proc/<pid>/result"),
        ("proc/<pid>/steps/<n>.json", "proc/<pid>/steps/1.json"),
        ("proc/<pid>/children", "proc/<pid>/children"),
        ("proc/<pid>/caps", "proc/<pid>/caps"),
        ("proc/<pid>/env", "proc/<pid>/env"),
        ("proc/<pid>/signals", "proc/<pid>/signals"),
        ("proc/groups/<name>/members", "proc/groups/{group}/members"),
        ("proc/<pid>/supervisor", "proc/{supervisor}/supervisor"),
        ("lib/agents/<name>/agent.yaml", "lib/agents/default/agent.yaml"),
        ("lib/agents/<name>/instructions.md", "lib/agents/default/instructions.md"),
        ("lib/skills/<name>/SKILL.md", "lib/skills/shell-use/SKILL.md"),
        ("mnt/mcp/<server>/status", "mnt/mcp/{server}/status"),
        ("mnt/mcp/<server>/tools/<tool>.json", "mnt/mcp/{server}/tools/call.json"),
        ("mnt/mcp/<server>/resources/.templates.json", "mnt/mcp/{server}/resources/.templates.json"),
        "sys/version",
        "sys/uptime",
        "sys/stats",
        "sys/limits",
        "sys/config",
        "sys/providers",
        "sys/mcp",
        "sys/init",
    ),
    *_rows(
        Class.JOURNAL,
        ("proc/<pid>/trace.jsonl", "proc/<pid>/trace.jsonl"),
        ("proc/<pid>/log", "proc/<pid>/log"),
        ("proc/<pid>/steps.jsonl", "proc/<pid>/steps.jsonl"),
    ),
    *_rows(
        Class.STREAM,
        ("proc/.live/events", "proc/events"),
        ("proc/<pid>/.live/wait", "proc/{live}/wait"),
        ("proc/<pid>/.live/trace", "proc/{live}/trace"),
        ("proc/<pid>/.live/log", "proc/{live}/.live/log"),
        ("proc/<pid>/.live/recv", "proc/{live}/recv"),
        ("dev/pipes/<n>/.live/read", "dev/pipes/{pipe}/read"),
    ),
    *_rows(
        Class.DEVICE,
        ("dev/llm/<provider>", "dev/llm/script"),
        "dev/shell",
        "dev/edit",
        "dev/glob",
        "dev/grep",
        "dev/pipe",
        "proc/spawn",
        "sys/query",
        "sys/check",
        ("mnt/mcp/<server>/tools/<tool>", "mnt/mcp/{server}/tools/call"),
        ("mnt/mcp/<server>/prompts/<prompt>", "mnt/mcp/{server}/prompts/greet"),
    ),
    *_rows(
        Class.CONTROL,
        _running("ctl"),
        "sys/ctl",
        "mnt/mcp/ctl",
        ("proc/groups/<name>/ctl", "proc/groups/{group}/ctl"),
    ),
    *_rows(
        Class.LINK,
        "proc/self",
        "proc/events",
        ("proc/<pid>/wait", "proc/<pid>/wait"),
        ("proc/<pid>/trace", "proc/<pid>/trace"),
        ("proc/<pid>/recv", "proc/<pid>/recv"),
        ("proc/<pid>/root", "proc/<pid>/root"),
        ("dev/pipes/<n>/read", "dev/pipes/{pipe}/read"),
        ("dev/pipes/<name>", "dev/pipes/pipe-{pipe}"),
        _running("fd/<n>"),
    ),
    *_rows(Class.MAILBOX, _running("mailbox")),
    *_rows(Class.PIPE, ("dev/pipes/<n>/write", "dev/pipes/{pipe}/write")),
    *_rows(Class.REMOTE, ("mnt/mcp/<server>/resources/<uri>", "mnt/mcp/{server}/resources/urn:note")),
    *_rows(Class.HOST, ("dev/fs/<host path>", "dev/fs{host}/hello.txt")),
)

PAGELESS = frozenset({Class.FOLDER})
"""Classes without pages: what a folder holds is said by the pages of its files."""


def of(*kinds: Class) -> list[Row]:
    """The rows of some classes."""
    return [row for row in TABLE if row.kind in kinds]


def row_of(path: str) -> Row | None:
    """The row of a path, None if it has none. Files of finished processes are those of running ones."""
    path = re.sub(r"^proc/history/[^/]+/", "proc/0/", path)
    return next((row for row in TABLE if row.matches(path)), None)


def page_of(row: Row) -> str:
    """The page of a row: a stream is described where it is found, at the name that leads to it."""
    return row.page.replace("-.live", "")


def holds(*patterns: str) -> Callable[[_T], _T]:
    """Say of a test that it holds what these files contain; read from the source by the test of the table."""
    known = {row.pattern for row in TABLE}
    assert known >= set(patterns), f"no such rows: {set(patterns) - known}"
    return lambda test: test
