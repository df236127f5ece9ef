"""The tools that a client is offered."""

import json
import math
import time
from collections.abc import Callable
from typing import Annotated, Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult, ToolAnnotations
from pydantic import Field

from rnixfs.errors import SyscallError, invalid, printable
from rnixfs.mcpserve import files, processes
from rnixfs.mcpserve.answers import (
    Content,
    End,
    Entry,
    Listing,
    Process,
    Processes,
    Signalled,
    Written,
    answer,
    failed,
)
from rnixfs.mcpserve.rights import SPAWN
from rnixfs.mcpserve.tree import Tree

READ_BYTES = 65_536  # of one read, where the client does not say
STREAM_SECONDS = 2.0  # that a read waits for what comes, where the client does not say
STREAM_SECONDS_MAX = 600.0
ANSWER_SECONDS = 300.0  # that a device may take to answer, where the client does not say
ANSWER_SECONDS_MAX = 3600.0
WAIT_SECONDS = 60.0  # that `wait` waits, where the client does not say
WAIT_SECONDS_MAX = 3600.0
LINES_A_SECOND = 20  # of a log that are passed on; the others can be read in it

_PATH = "path in the tree, such as /proc/1/status, /dev/shell or /dev/fs/home/me/file; also as rnix:///proc/1/status"
Path = Annotated[str, Field(description=_PATH, min_length=1, max_length=4096)]
Pid = Annotated[int, Field(description="number of the process", ge=1)]


class Telling:
    """Passes the lines of a log on to a client as progress.

    Args:
        context: of the call.
    """

    def __init__(self, context: Context[Any, Any]) -> None:
        self._context = context
        self._count = 0
        self._second = 0
        self._told = 0

    async def line(self, text: str) -> None:
        """Pass one on, unless there were too many in this second."""
        self._count += 1
        second = int(time.monotonic())
        self._told = self._told + 1 if second == self._second else 1
        self._second = second
        if self._told <= LINES_A_SECOND:
            await self._context.report_progress(self._count, None, text)


class Tools:
    """The tools, for one tree.

    Args:
        tree: the tree, with what the client may use of it.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def offered(self) -> list[Tool]:
        """Those that make sense with the rights of the client."""
        rights = self._tree.rights
        found = [
            _tool(self.ps, "List processes", reads=True),
            _tool(self.ls, "List a folder", reads=True),
            _tool(self.read, "Read a file", reads=True),
            _tool(self.wait, "Wait for a process", reads=True),
        ]
        if rights.read_only:
            return found
        found += [
            _tool(self.write, "Write a file, or ask a device", destroys=True, open_world=True),
            _tool(self.kill, "Send a signal to a process", destroys=True),
        ]
        return [
            *found,
            *([_tool(self.spawn, "Start an agent", open_world=True)] if rights.sees(SPAWN) else []),
        ]

    # --- processes ---

    async def spawn(
        self,
        context: Context[Any, Any],
        intent: Annotated[str, Field(description="what is to be done, in words", min_length=1)],
        agent: Annotated[
            str, Field(description="who does it, a folder of /lib/agents; else the default")
        ] = "",
        provider: Annotated[
            str, Field(description="of the model, a name in /dev/llm; else the configured one")
        ] = "",
        model: Annotated[str, Field(description="a model of the provider; else its default")] = "",
        skills: Annotated[
            list[str] | None, Field(description="names in /lib/skills, beside the agent's")
        ] = None,
        cwd: Annotated[
            str,
            Field(description="absolute folder of the host it works in; else where this server was started"),
        ] = "",
        allowed_devices: Annotated[
            list[str] | None,
            Field(description='paths it may use, such as ["/dev/shell"]; else what its agent may'),
        ] = None,
        system_prompt: Annotated[str, Field(description="stands before the instructions of the agent")] = "",
        effort: Annotated[str, Field(description="how much the model is to think, such as high")] = "",
        max_steps: Annotated[
            int | None, Field(description="steps of reasoning before it is ended", ge=1)
        ] = None,
        context_budget: Annotated[
            int | None, Field(description="tokens before it is ended; 0: no limit", ge=0)
        ] = None,
        max_cost_usd: Annotated[
            float | None, Field(description="dollars before it is ended; 0: no limit", ge=0)
        ] = None,
        timeout_ms: Annotated[
            int | None, Field(description="milliseconds of running; 0: no limit", ge=0)
        ] = None,
        wait: Annotated[
            bool,
            Field(
                description="wait for its end and give its result; the log comes as progress, and cancelling "
                "the call kills it. With false the pid is given at once: use wait, read and kill with it"
            ),
        ] = True,
    ) -> Annotated[CallToolResult, End]:
        """Start an agent as a process that works on an intent with its own model and tools.

        The result is the agent's final answer. An agent that failed has a code other than 0, and a reason.
        Work that may take many minutes is better started with wait=false.
        """
        given = {
            "intent": intent,
            "agent": agent,
            "provider": provider,
            "model": model,
            "skills": skills or [],
            "cwd": cwd,
            "allowed_devices": allowed_devices,
            "system_prompt": system_prompt,
            "effort": effort,
            "max_steps": max_steps,
            "context_budget": context_budget,
            "max_cost_usd": max_cost_usd,
            "timeout_ms": timeout_ms,
        }
        wanted = {name: value for name, value in given.items() if value not in (None, "", [])}
        if allowed_devices is not None:
            wanted["allowed_devices"] = allowed_devices
        pid = await processes.spawn(self._tree, wanted)
        if not wait:
            return answer(End(pid=pid, ended=False, state="running"))
        ended = False
        try:
            found = await processes.wait(self._tree, pid, math.inf, Telling(context).line)
            ended = True
        finally:
            if not ended:
                await processes.end(self._tree, pid)
        return _end(pid, found or {})

    async def wait(
        self,
        context: Context[Any, Any],
        pid: Pid,
        timeout_s: Annotated[
            float, Field(description="seconds to wait; 0 asks how it is", ge=0, le=WAIT_SECONDS_MAX)
        ] = WAIT_SECONDS,
    ) -> Annotated[CallToolResult, End]:
        """Wait for the end of a process, and give its result; the lines of its log come as progress.

        Where it has not ended within the time, ended is false, and it goes on. Cancelling does nothing to it.
        """
        # What has ended says so at once, and needs a moment for it all the same.
        seconds = max(timeout_s, 0.2)
        found = await processes.wait(self._tree, pid, seconds, Telling(context).line)
        if found is not None:
            return _end(pid, found)
        now = await processes.status(self._tree, pid)
        return answer(End(pid=pid, ended=False, state=str(now.get("state", ""))))

    async def ps(self) -> Annotated[CallToolResult, Processes]:
        """List the processes that live: agents at work, with their intent, state, steps, tokens and cost.

        More is in the files of /proc/<pid>: status, log, result, steps.jsonl, messages.json, trace.jsonl.
        """
        rows = await processes.table(self._tree)
        return answer(Processes(processes=[Process.model_validate(row) for row in rows]))

    async def kill(
        self,
        pid: Pid,
        signal: Annotated[
            str, Field(description="TERM (may finish), KILL (at once), INT, PAUSE or RESUME")
        ] = "TERM",
        tree: Annotated[bool, Field(description="also all that the process started")] = False,
    ) -> Annotated[CallToolResult, Signalled]:
        """Send a signal to a process: end it, interrupt it, pause it, or let it go on."""
        await processes.kill(self._tree, pid, signal, tree)
        try:
            state = str((await processes.status(self._tree, pid)).get("state", ""))
        except SyscallError:
            state = "gone"
        return answer(Signalled(pid=pid, signal=signal.strip().upper(), state=state))

    # --- files ---

    async def ls(self, path: Path = "/") -> Annotated[CallToolResult, Listing]:
        """List a folder of the tree. Types say how a file behaves.

        A document is read; a device is asked by write; a control takes commands, one a line; a stream waits
        for what comes. /README.md tells of the whole tree.
        """
        real, rows, complete = await files.listing(self._tree, path)
        entries = [Entry.model_validate(files.shown(row)) for row in rows]
        text = "\n".join(_line(entry) for entry in entries) or "(empty)"
        more = "" if complete else f"\n… more than {files.ENTRIES_MAX} names; the rest is left out"
        return answer(Listing(path=printable(real), entries=entries, complete=complete), text + more)

    async def read(
        self,
        path: Path,
        offset: Annotated[int, Field(description="first byte", ge=0)] = 0,
        length: Annotated[int, Field(description="bytes", ge=1, le=files.READ_MAX)] = READ_BYTES,
        timeout_s: Annotated[
            float, Field(description="seconds that a stream may be waited for", ge=0, le=STREAM_SECONDS_MAX)
        ] = STREAM_SECONDS,
    ) -> Annotated[CallToolResult, Content]:
        """Read a file of the tree: text as it is, anything else as base64.

        Reading never spends anything: a device tells what it does and which requests it takes. A stream is
        read for timeout_s seconds and gives what came in them, with timed_out true. Long files are read in
        parts: go on at next_offset.
        """
        place, piece = await files.read(self._tree, path, offset, length, timeout_s)
        encoding, content, used = files.as_text(piece)
        found = Content(
            path=printable(place.path),
            encoding=encoding,
            content=content,
            offset=offset,
            next_offset=None if piece.ended or place.is_stream else offset + used,
            ended=piece.ended,
            timed_out=piece.timed_out,
        )
        return answer(found, content + _note(found, timeout_s))

    async def write(
        self,
        path: Path,
        text: Annotated[str, Field(description="what is written, as text")] = "",
        value: Annotated[
            dict[str, Any] | list[Any] | None,
            Field(description="what is written, as JSON, in the place of text"),
        ] = None,
        timeout_s: Annotated[
            float,
            Field(
                description="seconds that a device may take; then it is cancelled",
                gt=0,
                le=ANSWER_SECONDS_MAX,
            ),
        ] = ANSWER_SECONDS,
    ) -> Annotated[CallToolResult, Written]:
        """Write to a file of the tree; for a device it is a whole exchange: the request, then its answer.

        Examples: {"path": "/dev/shell", "value": {"command": "date"}}; {"path": "/proc/3/ctl", "text":
        "pause"}; {"path": "/sys/query", "text": "select pid from processes"}. Reading a device shows its
        requests. A file of the host is replaced by what is written.
        """
        if value is not None and text:
            raise invalid("give text or value, not both").at(syscall="Write", device=path)
        data = files.encode(value) if value is not None else text.encode("utf-8", "surrogatepass")
        place, told = await files.write(self._tree, path, data, timeout_s)
        if told is None:
            return answer(
                Written(path=printable(place.path), bytes=len(data), encoding="none"),
                f"{len(data)} bytes written",
            )
        error = files.told_error(told.data, place.path)
        return failed(error) if error is not None else _written(place.path, len(data), told)


# --- forms ---


def _tool(
    action: Callable[..., Any],
    title: str,
    *,
    reads: bool = False,
    destroys: bool = False,
    open_world: bool = False,
) -> Tool:
    hints = ToolAnnotations(
        title=title,
        read_only_hint=reads,
        destructive_hint=destroys,
        idempotent_hint=reads,
        open_world_hint=open_world,
    )
    words = " ".join((action.__doc__ or "").split())
    made = Tool.from_function(action, title=title, description=words, annotations=hints)
    # Clients that check by the schema find a field that is spelled wrong by themselves.
    made.parameters["additionalProperties"] = False
    return made


def _end(pid: int, found: dict[str, Any]) -> CallToolResult:
    known = {
        name: found[name]
        for name in ("code", "reason", "result", "tokens_used", "elapsed_ms")
        if name in found
    }
    ended = End(pid=pid, ended=True, **known)
    if not ended.code:
        return answer(ended, ended.result)
    said = f"\n{ended.result}" if ended.result else ""
    return answer(ended, f"process {pid} failed with code {ended.code}: {ended.reason}{said}")


def _line(entry: Entry) -> str:
    size = "" if entry.size is None else f" {entry.size}"
    target = "" if entry.target is None else f" -> {entry.target}"
    return f"{entry.type}\t{entry.name}{target}{size}"


def _note(found: Content, seconds: float) -> str:
    if found.timed_out:
        return f"\n[within {seconds:g} s nothing more came]"
    if found.next_offset is not None:
        return f"\n[more from offset {found.next_offset}]"
    return ""


def _written(path: str, size: int, told: files.Piece) -> CallToolResult:
    encoding, text, _ = files.as_text(told)
    value: Any = text
    if encoding == "utf-8" and text.startswith("{"):
        try:
            value, encoding = json.loads(text), "json"
        except (ValueError, RecursionError):
            value = text
    found = Written(
        path=printable(path), bytes=size, encoding=encoding, answer=value, truncated=not told.ended
    )
    return answer(
        found, text if told.ended else f"{text}\n[the answer is longer than {files.READ_MAX} bytes]"
    )
