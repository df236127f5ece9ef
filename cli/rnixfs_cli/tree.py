"""The mounted tree as the commands use it: open, read and write of its files, nothing else."""

import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any

from rnixfs_cli import attention
from rnixfs_cli.errors import CommandError, from_oserror

CHUNK = 1 << 16  # bytes asked for at once
ENDED = frozenset({"zombie", "dead"})
"""States of a process that is over."""


class Tree:
    """The files below a mountpoint.

    Args:
        root: absolute path of the mountpoint.
    """

    def __init__(self, root: str) -> None:
        self.root = root

    def path(self, name: str) -> str:
        """The host's path of a name such as `proc/1/status`."""
        return os.path.join(self.root, name)

    def open(self, name: str, flags: int = os.O_RDONLY, *, call: str = "Open", pid: int = 0) -> int:
        """Open a file of the tree.

        Args:
            name: its path below the root.
            flags: as of open(2).
            call: what the command is doing, for the message.
            pid: the process concerned, for the message.

        Raises:
            CommandError: with the code of the errno.
        """
        try:
            return os.open(self.path(name), flags | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            raise self.failure(error, name, call, pid) from None

    def failure(self, error: OSError, name: str, call: str, pid: int = 0) -> CommandError:
        """What went wrong with a file, in the kernel's words."""
        return from_oserror(error, call, f"/{name}", pid=pid, missing="no such process" if pid else "")

    def read(self, name: str, *, call: str = "Read", pid: int = 0) -> bytes:
        """The whole of a file.

        Raises:
            CommandError: it cannot be opened or read.
        """
        descriptor = self.open(name, call=call, pid=pid)
        try:
            return b"".join(chunks(descriptor))
        except OSError as error:
            raise self.failure(error, name, call, pid) from None
        finally:
            os.close(descriptor)

    def write(self, name: str, text: str, *, call: str = "Write", pid: int = 0) -> None:
        """Write one line to a control file.

        Raises:
            CommandError: it cannot be opened, or refuses.
        """
        descriptor = self.open(name, os.O_WRONLY, call=call, pid=pid)
        try:
            os.write(descriptor, f"{text}\n".encode())
        except OSError as error:
            raise self.failure(error, name, call, pid) from None
        finally:
            os.close(descriptor)

    def command(self, name: str, text: str, *, call: str, pid: int = 0) -> None:
        """Give one command to a control file.

        Raises:
            CommandError: it cannot be opened, or refuses, with its own reason where it gives one.
        """
        descriptor = self.open(name, os.O_RDWR, call=call, pid=pid)
        try:
            os.write(descriptor, f"{text}\n".encode())
        except OSError as error:
            with contextlib.suppress(OSError):
                raise_refusal(os.pread(descriptor, CHUNK, 0), f"/{name}", call, pid)
            raise self.failure(error, name, call, pid) from None
        finally:
            os.close(descriptor)

    def exchange(self, name: str, request: dict[str, Any], *, call: str) -> str:
        """Make a request of a device and wait for its answer.

        Args:
            name: the device's path below the root.
            request: the request.
            call: what the command is doing, for the message.

        Raises:
            CommandError: the request is refused or fails, with the device's own reason where it gives one.
        """
        descriptor = self.open(name, os.O_RDWR, call=call)
        try:
            answer = ask(descriptor, json.dumps(request).encode()) + b"".join(live(descriptor))
        except OSError as error:
            raise self.failure(error, name, call) from None
        finally:
            os.close(descriptor)
        raise_refusal(answer, f"/{name}", call)
        return answer.decode("utf-8", "replace")

    def status(self, folder: str, *, call: str = "Stat", pid: int = 0) -> dict[str, Any]:
        """The status of a process.

        Args:
            folder: its folder, such as `proc/1`.
            call: what the command is doing, for the message.
            pid: the process, for the message.

        Raises:
            CommandError: there is no such process.
        """
        status: dict[str, Any] = json.loads(self.read(f"{folder}/status", call=call, pid=pid))
        return status

    def processes(self) -> list[dict[str, Any]]:
        """The status of every live process."""
        return [json.loads(line) for line in self.read("proc/processes").splitlines() if line.strip()]

    def query(self, sql: str, *arguments: str | float) -> list[dict[str, Any]]:
        """The rows that a statement of SQL gives over the log.

        Args:
            sql: one statement that reads.
            arguments: the values of its `?`.

        Raises:
            CommandError: it is refused, or the log is not one that can be asked.
        """
        answer = self.exchange("sys/query", {"sql": sql, "args": list(arguments)}, call="Query")
        # Not splitlines: a text of JSON may hold what other alphabets take for the end of a line.
        return [json.loads(line) for line in answer.split("\n") if line]

    def find(self, wanted: str, call: str) -> tuple[str, int]:
        """The folder and pid of a process, also of one that has moved to the history.

        Args:
            wanted: a pid, a uuid or the beginning of one.
            call: what the command is doing, for the message.

        Raises:
            CommandError: there is none, or more than one.
        """
        from rnixfs_cli import lookup

        return lookup.find(self, wanted, call)


def ask(descriptor: int, request: bytes) -> bytes:
    """Write a request and read the answer on one descriptor; after a refusal, read the reason.

    Raises:
        OSError: it failed, and the device gives no reason.
    """
    try:
        rest = memoryview(request)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError:
        with contextlib.suppress(OSError):
            reason = os.read(descriptor, CHUNK)
            if reason.startswith(b'{"error"'):
                return reason
        raise
    return os.read(descriptor, CHUNK)


def raise_refusal(answer: bytes, device: str, call: str, pid: int = 0) -> None:
    """Turn a device's `{"error": …}` into the failure it tells of; any other answer is none."""
    if not answer.startswith(b'{"error"'):
        return
    try:
        error = json.loads(answer)["error"]
    except ValueError:
        return
    if not isinstance(error, dict) or "message" not in error:
        return
    code, device = error.get("code", "DRIVER"), error.get("device") or device
    raise CommandError(code, error["message"], syscall=call, device=device, pid=pid)


def chunks(descriptor: int) -> Iterator[bytes]:
    """What a descriptor gives until its end, as it comes."""
    while data := os.read(descriptor, CHUNK):
        yield data


def live(descriptor: int) -> Iterator[bytes]:
    """What a stream gives until its end, as it comes; signals are noticed while it waits."""
    while True:
        attention.readable(descriptor)
        data = os.read(descriptor, CHUNK)
        if not data:
            return
        yield data


def lines(descriptor: int) -> Iterator[str]:
    """The lines that a stream gives until its end, as they come, without newlines."""
    rest = b""
    for data in live(descriptor):
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace")
    if rest:
        yield rest.decode("utf-8", "replace")
