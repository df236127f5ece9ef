"""The tools of a process: what its devices offer, and what the program can do with files and children."""

import dataclasses
import os
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import msgspec
import trio

from rnixfs import limits
from rnixfs.device import Description, ToolInfo
from rnixfs.edits import render_list, render_read
from rnixfs.errors import Code, LogError, SyscallError, invalid
from rnixfs.llm import ToolCall, ToolSpec, Usage
from rnixfs.model import ModelError
from rnixfs.proc.progress import Done
from rnixfs.proc.request import read_spawn
from rnixfs.proc.state import ChildEnd
from rnixfs.programs import mcptools
from rnixfs.syscalls import Syscalls
from rnixfs.traceline import clip
from rnixfs.types import Kind
from rnixfs.wire.openai import INVALID_ARGUMENTS

Run = Callable[[Syscalls, dict[str, Any], str], Awaitable[tuple[str, list[int]]]]
"""Does a call, given the arguments and the call's key; returns the result's text, and the children of whose
end it tells."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tool:
    """One tool.

    Args:
        spec: as the model sees it.
        run: does it.
        parallel: whether it may run beside others of the same reply.
        device: the path whose use it needs.
        first: whether it goes before those that run side by side: it takes no time, and its order shows.
        again: whether it may run again where nobody saw its end: it changes nothing, or does so once a key.
    """

    spec: ToolSpec
    run: Run
    parallel: bool
    device: str
    first: bool = False
    again: bool = False


async def collect(sys: Syscalls) -> dict[str, Tool]:
    """Every tool that the process may use now, by name, in a stable order."""
    tools: dict[str, Tool] = {}
    for path in await _device_paths(sys):
        for info in (await describe(sys, path)).tools:
            tools[info.name] = _device_tool(path, info)
    for tool in _OWN:
        if sys.may_use(tool.device):
            tools[tool.spec.name] = tool
    return with_servers(tools, await collect_servers(sys))


async def collect_servers(sys: Syscalls) -> dict[str, Tool]:
    """The tools of MCP servers that the process may use now, by name."""
    tools: dict[str, Tool] = {}
    for server, path in await mcptools.tool_files(sys):
        try:
            infos = (await describe(sys, path)).tools
        except SyscallError as error:
            if not mcptools.is_gone(error):
                raise
            continue
        for info in infos:
            name = mcptools.named(server, path, info.name, tools)
            tools[name] = _device_tool(path, info, name, mcptools.for_model)
    return tools


def with_servers(tools: dict[str, Tool], servers: dict[str, Tool]) -> dict[str, Tool]:
    """Tools in a stable order, with these of MCP servers in place of those that there were."""
    others = {name: tool for name, tool in tools.items() if not mcptools.is_servers(name)}
    return dict(sorted((others | servers).items()))


async def _device_paths(sys: Syscalls) -> list[str]:
    entries = await sys.read_dir("/dev")
    return sorted(f"/dev/{name}" for name, stat in entries if stat.kind is Kind.FILE)


async def describe(sys: Syscalls, path: str) -> Description:
    """What a device says of itself."""
    fd = await sys.open(path)
    try:
        return msgspec.json.decode(await sys.read_all(fd), type=Description)
    finally:
        sys.close_now(fd)


def _device_tool(
    path: str, info: ToolInfo, name: str = "", shown: Callable[[str], str] = lambda answer: answer
) -> Tool:
    async def run(sys: Syscalls, arguments: dict[str, Any], _key: str) -> tuple[str, list[int]]:
        return shown(await ask(sys, path, {**arguments, **info.extra})), []

    spec = ToolSpec(name or info.name, info.description, info.input_schema)
    return Tool(spec, run, info.parallel, path, again=info.read_only)


async def ask(sys: Syscalls, path: str, request: object) -> str:
    """Open a device, write a request, read the answer, close.

    Raises:
        SyscallError: the device refused the request, or failed.
    """
    fd = await sys.open(path)
    try:
        await sys.write(fd, msgspec.json.encode(request))
        answer = await sys.read_all(fd)
    finally:
        sys.close_now(fd)
    raise_failure(answer, sys.pid)
    return answer.decode("utf-8", "replace").removesuffix("\n")


def raise_failure(answer: bytes, pid: int) -> None:
    """Raise what a device's answer says went wrong, if it does.

    Raises:
        SyscallError: the failure in `{"error": …}`.
    """
    if not answer.startswith(b'{"error":'):
        return
    try:
        error = msgspec.json.decode(answer)["error"]
        failure = _failure(Code(error["code"]), error)
        failure = failure.at(syscall=error["syscall"], device=error["device"], pid=pid)
    except (msgspec.DecodeError, RecursionError, KeyError, TypeError, ValueError):
        return  # an answer that only looks like a failure
    raise failure


def _failure(code: Code, error: dict[str, Any]) -> SyscallError:
    if "retryable" not in error:
        return SyscallError(code, error["message"])
    usage = Usage(input_tokens=error.get("tokens_used", 0), cost_usd=error.get("cost_usd", 0.0))
    return ModelError(code, error["message"], transient=error["retryable"], usage=usage)


# --- running calls ---


async def run_calls(
    tools: dict[str, Tool],
    calls: list[ToolCall],
    ended: Collection[int],
    one: Callable[[int, ToolCall], Awaitable[None]],
) -> None:
    """Run the calls of one reply, side by side where all are safe to.

    Args:
        tools: those that there are, by name.
        calls: what the model asks for.
        ended: the places in `calls` of those that are not to run.
        one: runs the call at a place.
    """
    left = [place for place in range(len(calls)) if place not in ended]
    found = {place: tools.get(calls[place].name) for place in left}
    if len(left) < 2 or not all(tool is not None and tool.parallel for tool in found.values()):
        for place in left:
            await one(place, calls[place])
        return
    for place, tool in found.items():
        if tool is not None and tool.first:
            await one(place, calls[place])
    slots = trio.CapacityLimiter(limits.PARALLEL_TOOLS_MAX)

    async def beside(place: int) -> None:
        async with slots:
            await one(place, calls[place])

    async with trio.open_nursery() as nursery:
        for place, tool in found.items():
            if tool is not None and not tool.first:
                nursery.start_soon(beside, place)


def refused(tools: dict[str, Tool], call: ToolCall) -> SyscallError | None:
    """Why a call cannot even start, None where it can."""
    if call.name not in tools:
        there = ", ".join(tools) or "none"
        return SyscallError(Code.NOT_FOUND, f"there is no tool {call.name!r}; there are: {there}")
    if INVALID_ARGUMENTS in call.arguments:
        return invalid(f"the arguments are no JSON object: {clip(str(call.arguments[INVALID_ARGUMENTS]))}")
    return None


def fail(call: ToolCall, tool: Tool | None, failure: SyscallError, duration_ms: int = 0) -> Done:
    """What comes of a call that failed: a result for the model that says why."""
    text = msgspec.json.encode({"error": failure.as_dict()}).decode()
    error = f"{failure.code}: {failure.reason}"
    device = tool.device if tool is not None else ""
    return Done(call.id, call.name, call.arguments, _cut(text), error, duration_ms, device)


async def run_call(sys: Syscalls, tools: dict[str, Tool], call: ToolCall, key: str) -> Done:
    """Run one call. Whatever fails becomes a result for the model.

    Args:
        sys: the system calls of the process.
        tools: those that there are.
        call: one that is not refused.
        key: names this call for all time.

    Raises:
        LogError: the log cannot be written, so nothing more may happen.
    """
    tool, started = tools[call.name], trio.current_time()
    try:
        text, told = await tool.run(sys, call.arguments, key)
    except LogError:
        raise
    except SyscallError as failure:
        return fail(call, tool, failure, _milliseconds(started))
    took = _milliseconds(started)
    return Done(call.id, call.name, call.arguments, _cut(text), "", took, tool.device, told)


def _milliseconds(since: float) -> int:
    return int((trio.current_time() - since) * 1000)


def _cut(text: str, most: int = limits.TOOL_OUTPUT_MAX) -> str:
    return text if len(text) <= most else f"{text[:most]}\n[… {len(text) - most} characters cut …]"


# --- the program's own tools ---


def _text(arguments: dict[str, Any], name: str, default: str | None = None) -> str:
    value = arguments.get(name, default)
    if not isinstance(value, str):
        raise invalid(f'"{name}" must be text')
    return value


def _number(arguments: dict[str, Any], name: str, default: int) -> int:
    value = arguments.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise invalid(f'"{name}" must be a number that is not negative')
    return value


def _flag(arguments: dict[str, Any], name: str) -> bool:
    value = arguments.get(name, False)
    if not isinstance(value, bool):
        raise invalid(f'"{name}" must be true or false')
    return value


def _host_path(sys: Syscalls, path: str) -> str:
    return "/dev/fs" + os.path.normpath(os.path.join(sys.launch.place.cwd, path))


async def _read(sys: Syscalls, arguments: dict[str, Any], _key: str) -> tuple[str, list[int]]:
    path = _text(arguments, "path")
    data = await _bounded(sys, _host_path(sys, path))
    first, count = _number(arguments, "offset", 1), _number(arguments, "limit", limits.READ_LINES)
    return msgspec.json.encode(render_read(data, path, first, count)).decode(), []


async def _bounded(sys: Syscalls, path: str) -> bytes:
    size = (await sys.stat(path)).size
    if size > limits.EDIT_MAX:
        raise SyscallError(
            Code.TOO_LARGE, f"{path} has {size} bytes; files up to {limits.EDIT_MAX} can be read, use grep"
        )
    return await sys.read_file(path)


async def _list(sys: Syscalls, arguments: dict[str, Any], _key: str) -> tuple[str, list[int]]:
    path = _text(arguments, "path", ".")
    entries = await sys.read_dir(_host_path(sys, path))
    shown = render_list([(name, stat.kind, stat.size) for name, stat in entries])
    return msgspec.json.encode(shown).decode(), []


async def _spawn(sys: Syscalls, arguments: dict[str, Any], key: str) -> tuple[str, list[int]]:
    request = read_spawn(arguments)
    if not request.idempotency_key:
        request.idempotency_key = key
    return msgspec.json.encode({"pid": await sys.spawn(request)}).decode(), []


async def _wait(sys: Syscalls, arguments: dict[str, Any], _key: str) -> tuple[str, list[int]]:
    left, enough = set(_awaited(sys, arguments)), _flag(arguments, "any")
    ends: list[ChildEnd] = []
    while left:
        end = await sys.wait_any(left, until=lambda: enough and bool(ends), heard=False)
        if end is None:
            break
        left.discard(end.pid)
        ends.append(end)
    # Each is cut by itself, so that the whole stays JSON; a tenth is left for what stands around them.
    most = limits.TOOL_OUTPUT_MAX * 9 // 10 // len(ends)
    exits = [
        {"pid": end.pid, "code": end.exit.code, "reason": end.exit.reason, "result": _cut(end.result, most)}
        for end in sorted(ends, key=lambda end: end.pid)
    ]
    return msgspec.json.encode({"exits": exits}).decode(), [end.pid for end in ends]


def _awaited(sys: Syscalls, arguments: dict[str, Any]) -> list[int]:
    """The children to wait for: those that are named, else all."""
    pids, there = arguments.get("pids"), sys.uncollected
    if not (pids is None or (isinstance(pids, list) and all(type(pid) is int for pid in pids))):
        raise invalid('"pids" must be a list of numbers; leave it out to wait for every child')
    if not (pids or there):
        raise SyscallError(
            Code.NOT_FOUND, "there is no child to wait for: none was started, or you know of every end"
        )
    for pid in pids or ():
        if pid not in there:
            rest = ", ".join(map(str, there)) or "none"
            raise SyscallError(
                Code.NOT_FOUND,
                f"process {pid} is no child of yours, or you know of its end already; to wait for: {rest}",
            )
    return pids or there


def notice(end: ChildEnd) -> str:
    """What a model reads of a child's end that it did not wait for; one line, whatever the child wrote."""
    reason, result = (msgspec.json.encode(_cut(text)).decode() for text in (end.exit.reason, end.result))
    return f"Child process {end.pid} ended: exited({end.exit.code}) reason {reason} result {result}"


async def _skill(sys: Syscalls, arguments: dict[str, Any], _key: str) -> tuple[str, list[int]]:
    name = _text(arguments, "skill")
    if name not in sys.launch.skills:
        raise invalid(f"no skill {name!r}; this process has: {', '.join(sys.launch.skills) or 'none'}")
    return (await sys.read_file(f"/lib/skills/{name}/SKILL.md")).decode("utf-8", "replace"), []


def _schema(required: list[str], **properties: tuple[str, str]) -> dict[str, Any]:
    shown = {name: {"type": kind, "description": text} for name, (kind, text) in properties.items()}
    return {"type": "object", "properties": shown, "required": required}


_OWN = (
    Tool(
        ToolSpec(
            "read",
            "Read a text file by lines.",
            _schema(
                ["path"],
                path=("string", "relative to the working folder, or absolute"),
                offset=("integer", "first line, from 1"),
                limit=("integer", "number of lines"),
            ),
        ),
        _read,
        True,
        "/dev/fs",
        again=True,
    ),
    Tool(
        ToolSpec(
            "list",
            "List a folder: names, kinds and sizes.",
            _schema([], path=("string", "relative to the working folder, or absolute")),
        ),
        _list,
        True,
        "/dev/fs",
        again=True,
    ),
    Tool(
        ToolSpec(
            "spawn",
            "Start a child process with an intent of its own. Answers at once with its pid; children run "
            "side by side. wait collects how they end; you are told of the end of one that you do not wait "
            "for. Those that still run when you give your final answer go on without you.",
            _schema(
                ["intent"],
                intent=("string", "what the child is to do"),
                agent=("string", "the agent that does it"),
                model=("string", "its model"),
            ),
        ),
        _spawn,
        True,
        "/proc/spawn",
        first=True,
        again=True,  # its key makes it once
    ),
    Tool(
        ToolSpec(
            "wait",
            "Wait until children have ended; gives pid, exit code, reason and result of each, once.",
            {
                "type": "object",
                "properties": {
                    "pids": {
                        "type": "array",
                        "items": {"type": "integer"},
                        "description": "which children; all if left out",
                    },
                    "any": {
                        "type": "boolean",
                        "description": "whether the end of one of them is enough; false if left out",
                    },
                },
                "required": [],
            },
        ),
        _wait,
        False,  # so that it comes after the spawns that stand before it in a reply
        "/proc/spawn",
        again=True,
    ),
    Tool(
        ToolSpec(
            "skill",
            "Load the instructions of a skill named in the system prompt.",
            _schema(["skill"], skill=("string", "the skill's name")),
        ),
        _skill,
        True,
        "/lib/skills",
        again=True,
    ),
)
