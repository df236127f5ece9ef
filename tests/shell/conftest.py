"""Real programs for the tests of this folder, and the proof that none of them is left."""

import contextlib
import os
import pathlib
import secrets
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio

from rnixfs.children import Children, Ended

TAG = "TEST_OF_CHILDREN"
PATIENCE = 60.0  # seconds for things that must happen, however loaded the machine is


def tagged(tag: str) -> list[int]:
    """Living processes whose environment carries a tag; the dead have no environment."""
    wanted = f"{TAG}={tag}".encode()
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


class Host:
    """Runs bash for a test, and knows who of it is alive."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.children = Children()
        self.cwd = str(folder)
        self.tag = secrets.token_hex(8)
        self.env = {"PATH": os.environ["PATH"], TAG: self.tag}
        self.out = bytearray()
        self.err = bytearray()

    async def bash(self, command: str, **options) -> Ended:
        """Run a command to its end, with a generous time."""
        return await self.run(["bash", "-c", command], **options)

    async def run(self, argv: list[str], **options) -> Ended:
        """Run a program to its end, and keep what it prints."""
        defaults: dict[str, Any] = {
            "cwd": self.cwd,
            "env": self.env,
            "stdout": self.out.extend,
            "stderr": self.err.extend,
            "timeout": PATIENCE,
        }
        return await self.children.run(argv, **(defaults | options))

    def living(self) -> list[int]:
        """Who of it is alive."""
        return tagged(self.tag)

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something that must happen."""
        with trio.move_on_after(PATIENCE):
            while True:
                if condition():
                    return
                await trio.sleep(0.01)
        pytest.fail(f"not within {PATIENCE} s: {what}")

    async def cancelled_when_ready(self, command: str, **options) -> None:
        """Run a command that prints a line and stays; cancel it when the line is there."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: self.bash(command, **options))
            await self.until(lambda: b"\n" in self.out, f"the first line of {command!r}")
            nursery.cancel_scope.cancel()


@pytest.fixture
def host(tmp_path) -> Iterator[Host]:
    """Programs that are gone after the test, even if it fails."""
    host = Host(tmp_path)
    yield host
    for pid in host.living():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
