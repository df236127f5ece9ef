"""Starting processes, waiting for them, and ending them."""

import contextlib
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import trio

from rnixfs.errors import Code, SyscallError, denied, from_oserror, invalid
from rnixfs.gateway.mount import json_of, lines_of, read_file, write_all
from rnixfs.mcpserve.files import CHUNK, Source, encode, told_error
from rnixfs.mcpserve.rights import SPAWN
from rnixfs.mcpserve.tree import Tree

KILL_SECONDS = 5.0  # for the order to kill a process
INTENT_SHOWN = 200  # characters of an intent in a list
SUMMARY = (
    "pid", "ppid", "state", "paused", "intent", "agent", "provider", "model", "steps", "tokens_used",
    "cost_usd", "elapsed_ms",
)  # fmt: skip
"""What a list shows of the status of a process."""

Tell = Callable[[str], Awaitable[None]]
"""Takes a line of a log."""

_SIGNAL = re.compile(r"[A-Z0-9]{1,16}")


async def table(tree: Tree) -> list[dict[str, Any]]:
    """The processes that live, in short: all, or the client's own.

    Raises:
        SyscallError: they cannot be read.
    """

    def look() -> list[dict[str, Any]]:
        tree.resolve("/proc")
        rows = lines_of(read_file(tree.host("/proc/processes")))
        return [row for row in rows if tree.rights.sees(f"/proc/{row.get('pid')}/status")]

    try:
        return [_short(row) for row in await tree.call(look)]
    except OSError as error:
        raise tree.failure(error, "/proc/processes", "Read") from None


def _short(row: dict[str, Any]) -> dict[str, Any]:
    found = {name: row[name] for name in SUMMARY if name in row}
    intent = str(found.get("intent", ""))
    if len(intent) > INTENT_SHOWN:
        found["intent"] = f"{intent[:INTENT_SHOWN]}… ({len(intent)} characters)"
    return found


async def spawn(tree: Tree, wanted: dict[str, Any]) -> int:
    """Start a process; its pid. One that comes when nobody waits any more is killed.

    Args:
        tree: the tree.
        wanted: the request, without what the server adds.

    Raises:
        SyscallError: it is refused, for the reason that the device gives.
    """
    request = await tree.call(_request, tree, wanted)
    pid = await tree.keep(lambda: _spawn(tree, request), lambda late: _order(tree, late))
    tree.rights.adopt(pid)
    return pid


def _request(tree: Tree, wanted: dict[str, Any]) -> bytes:
    rights = tree.rights
    rights.check_act("starting a process")
    if not rights.sees(tree.there(SPAWN).path):
        raise denied(f"this server may not start processes: {SPAWN} is not on its list").at(
            syscall="Spawn", device=SPAWN
        )
    devices = rights.within(wanted.get("allowed_devices"))
    if devices is not None:
        wanted = wanted | {"allowed_devices": devices}
    if not tree.view:
        wanted = wanted | {"cwd": _folder(wanted.get("cwd", ""), rights.restricted)}
    return encode(wanted)


def _folder(asked: str, restricted: bool) -> str:
    """The folder that a process works in: the one asked for, else the one where this server was started."""
    try:
        here = os.getcwd()
    except OSError:
        raise SyscallError(
            Code.NOT_FOUND, "the folder where this server was started is gone", syscall="Spawn"
        ) from None
    # Its files are what the process may use as its own, so a client with a list does not choose them.
    if restricted and asked and not f"{os.path.realpath(asked)}/".startswith(f"{os.path.realpath(here)}/"):
        raise denied(f"the folder {asked} is not below {here}, where this server was started")
    return asked or here


def _spawn(tree: Tree, request: bytes) -> int:
    descriptor = tree.open(SPAWN, os.O_RDWR)
    try:
        try:
            write_all(descriptor, request)
            answer = os.read(descriptor, CHUNK)
        except OSError as error:
            answer = b""
            with contextlib.suppress(OSError):
                answer = os.read(descriptor, CHUNK)
            raise told_error(answer, SPAWN) or tree.failure(error, SPAWN, "Spawn") from None
    finally:
        os.close(descriptor)
    if not answer.strip().isdigit():
        raise told_error(answer, SPAWN) or SyscallError(
            Code.DRIVER, "the answer is no pid", syscall="Spawn", device=SPAWN
        )
    return int(answer)


async def end(tree: Tree, pid: int) -> None:
    """Kill a process and all that it started. Also those who are cancelled do this."""
    with trio.CancelScope(shield=True), contextlib.suppress(OSError):
        await tree.call(_order, tree, pid, seconds=KILL_SECONDS)


def _order(tree: Tree, pid: int) -> None:
    with contextlib.suppress(OSError):
        _command(tree, pid, "tree KILL")


def _command(tree: Tree, pid: int, command: str) -> None:
    descriptor = tree.open(f"/proc/{pid}/ctl", os.O_RDWR)
    try:
        write_all(descriptor, f"{command}\n".encode())
    except OSError as error:
        with contextlib.suppress(OSError):
            told = told_error(os.read(descriptor, CHUNK), f"/proc/{pid}/ctl")
            error = told or error
        raise error from None
    finally:
        os.close(descriptor)


async def kill(tree: Tree, pid: int, signal: str, whole: bool) -> None:
    """Send a signal.

    Args:
        tree: the tree.
        pid: the process.
        signal: its name or number.
        whole: whether all that the process started gets it, too.

    Raises:
        SyscallError: there is no such process or signal, or it is not the client's.
    """
    name = signal.strip().upper()
    if not _SIGNAL.fullmatch(name):
        raise invalid(f"{signal!r} is no signal; use TERM, KILL, INT, PAUSE or RESUME").at(syscall="Kill")
    path = f"/proc/{pid}/ctl"

    def act() -> None:
        command = f"tree {name}" if whole else f"signal {name}"
        tree.rights.check_write(tree.there(path).path, command.encode())
        _command(tree, pid, command)

    try:
        await tree.call(act)
    except OSError as error:
        raise _missing(tree.failure(error, path, "Kill"), pid) from None


def _missing(error: SyscallError, pid: int) -> SyscallError:
    if error.code is Code.NOT_FOUND and "view" not in error.reason:
        return SyscallError(
            Code.NOT_FOUND, f"there is no process {pid}", syscall=error.syscall, device=error.device
        )
    return error


async def status(tree: Tree, pid: int) -> dict[str, Any]:
    """The status of a process, in short."""

    def look() -> dict[str, Any]:
        path = tree.there(f"/proc/{pid}/status").path
        tree.rights.check_read(path)
        return json_of(read_file(tree.host(path)))

    try:
        return _short(await tree.call(look))
    except OSError as error:
        raise _missing(tree.failure(error, f"/proc/{pid}/status", "Wait"), pid) from None


async def wait(tree: Tree, pid: int, seconds: float, tell: Tell) -> dict[str, Any] | None:
    """Wait for the end of a process.

    Args:
        tree: the tree.
        pid: the process.
        seconds: how long.
        tell: takes the lines of its log from now on.

    Returns:
        How it ended; None where it has not.

    Raises:
        SyscallError: there is no such process, or the daemon ended.
    """
    await status(tree, pid)
    async with _stream(tree, f"/proc/{pid}/wait") as waiting, _stream(tree, f"/proc/{pid}/.live/log") as log:
        with trio.move_on_after(seconds):
            while (line := await log.line()) is not None:
                await tell(line.decode("utf-8", "replace"))
            return await _end(waiting, pid)
    return None


async def _end(waiting: Source, pid: int) -> dict[str, Any]:
    line = await waiting.line()
    if line is None:
        reason = f"the daemon ended; process {pid} is suspended, and goes on after: rnix resume {pid}"
        raise SyscallError(Code.SERVICE_UNAVAILABLE, reason, syscall="Wait", device=f"/proc/{pid}/wait")
    found = json_of(line)
    if "error" in found:
        raise told_error(line, f"/proc/{pid}/wait") or from_oserror(OSError())
    return found


@contextlib.asynccontextmanager
async def _stream(tree: Tree, name: str) -> AsyncIterator[Source]:
    def look() -> str:
        path = tree.there(name).path
        tree.rights.check_read(path)
        return path

    path = await tree.call(look)
    async with tree.opened(path, os.O_RDONLY | os.O_NONBLOCK) as descriptor:
        yield Source(tree, path, descriptor)
