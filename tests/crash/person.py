"""The person before the terminal: asks for the processes of a run, wakes what sleeps, and waits for the ends.

Runs in a process of its own, since a process that waits in a mount can be stuck there; whatever it learns it
tells at once, a line of JSON each.
"""

import contextlib
import errno
import functools
import json
import os
import pathlib
import time
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from tests.crash.faults import Fault
from tests.crash.life import end_with_parent

Say = Callable[..., None]
T = TypeVar("T")


def fork_person(
    mount: pathlib.Path, effects: pathlib.Path, told: dict[str, Any], fault: Fault | None = None
) -> tuple[int, int]:
    """Start the person; gives the pid, and a descriptor to read what is said.

    Args:
        mount: the daemon's mount.
        effects: the file for effects.
        told: what the person has said before, in earlier lives of the daemon.
        fault: what may make the disk fail. The person then makes room where something is refused or stands
            still, tries again, and at the end asks for one process more.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    try:
        end_with_parent()
        os.setsid()

        def say(**fields: Any) -> None:
            os.write(writing, json.dumps(fields).encode() + b"\n")

        try:
            _act(str(mount), str(effects), told, say, fault)
        except OSError as error:
            name = errno.errorcode.get(error.errno or 0, "?")
            say(lost=f"{name}: {traceback.format_exc(limit=-3)}")
        except BaseException:
            say(failed=traceback.format_exc())
    finally:
        os._exit(0)


def _act(mount: str, effects: str, told: dict[str, Any], say: Say, fault: Fault | None) -> None:
    if "pipe" not in told:
        _insist(fault, lambda: _make_pipe(mount))
        say(pipe=True)
    pids = {}
    for name, request in _requests(effects).items():
        pids[name] = told.get(name) or _insist(fault, functools.partial(_spawn, mount, name, request))
        say(**{name: pids[name]})
    say(woken=_insist(fault, lambda: _wake_all(mount)))
    if fault is not None:
        _attend(mount, fault)
        more = {"intent": f"crash effect after: {effects}"}
        pids["after"] = _insist(fault, lambda: _spawn(mount, "after", more))
        _attend(mount, fault)
    ends = {name: _end_of(mount, pid) for name, pid in pids.items()}
    say(ends=ends)


def _insist(fault: Fault | None, step: Callable[[], T]) -> T:
    """Do something, once more on a disk that works where the disk refused it."""
    try:
        return step()
    except OSError as error:
        if fault is None or error.errno not in (errno.ENOSPC, errno.EIO):
            raise
    fault.off()
    return step()


def _requests(effects: str) -> dict[str, dict[str, Any]]:
    children = [
        {"name": name, "intent": f"crash effect {name}: {effects}", "restart": "transient"}
        for name in ("first", "second")
    ]
    return {
        "root": {"intent": f"crash root: key:writer key:reader {effects}"},
        "supervisor": {"supervisor": {"name": "pair", "strategy": "one_for_one", "children": children}},
    }


def _make_pipe(mount: str) -> None:
    # It may have been made without anybody living to say so.
    with contextlib.suppress(FileExistsError):
        exchange(f"{mount}/dev/pipe", {"name": "lines"})


def _spawn(mount: str, name: str, request: dict[str, Any]) -> int:
    # So that asking again, after a death in between, makes no second process.
    return int(exchange(f"{mount}/proc/spawn", {**request, "idempotency_key": name}))


def exchange(path: str, request: object) -> str:
    """Ask a device."""
    fd = os.open(path, os.O_RDWR)
    try:
        os.write(fd, json.dumps(request).encode())
        return _rest(fd)
    finally:
        os.close(fd)


def _rest(fd: int) -> str:
    parts = []
    while part := os.read(fd, 65536):
        parts.append(part)
    return b"".join(parts).decode()


def _read(path: str) -> str:
    fd = os.open(path, os.O_RDONLY)
    try:
        return _rest(fd)
    finally:
        os.close(fd)


def _wake_all(mount: str) -> list[int]:
    """Let everything go on that was interrupted, parents first: they take their children along."""
    asleep = sorted(row["pid"] for row in _processes(mount) if row["state"] == "suspended")
    return [pid for pid in asleep if _wake(f"{mount}/proc/{pid}")]


def _processes(mount: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _read(f"{mount}/proc/processes").splitlines()]


def _attend(mount: str, fault: Fault) -> None:
    """Wait until no process is left; whatever stands still for want of room gets room, and is woken."""
    while rows := _processes(mount):
        if any(row["state"] == "suspended" for row in rows):
            fault.off()
            _wake_all(mount)
        time.sleep(0.02)
    fault.off()


def _wake(folder: str) -> bool:
    """Wake a process, if it still sleeps; whether it did."""
    if json.loads(_read(f"{folder}/status"))["state"] != "suspended":
        return False
    fd = os.open(f"{folder}/ctl", os.O_WRONLY)
    try:
        os.write(fd, b"wake\n")
    finally:
        os.close(fd)
    return True


def _end_of(mount: str, pid: int) -> dict[str, Any]:
    """Wait for the end of a process; it may be history."""
    try:
        text = _read(f"{mount}/proc/{pid}/wait")
    except FileNotFoundError:
        text = _read(f"{_past(mount, pid)}/wait")
    end: dict[str, Any] = json.loads(text)
    return end


def _past(mount: str, pid: int) -> str:
    for name in os.listdir(f"{mount}/proc/history"):
        folder = f"{mount}/proc/history/{name}"
        if json.loads(_read(f"{folder}/status"))["pid"] == pid:
            return folder
    raise LookupError(f"process {pid} is neither in proc nor in its history")
