"""A real mount with real servers, driven as a person drives it: by programs of the shell."""

import contextlib
import json
import os
import pathlib
import secrets
import shlex
from collections.abc import Iterator
from typing import Any

from tests.daemon import SECONDS, Daemon, Done, Program, state_of, until

MARK = "MCP_TEST_MARK"
"""A variable by which the processes of one server are found, however they are related."""

# Opens a device, writes a request, reads all of the answer.
_ASK = 'exec 3<>"$M/mnt/mcp/$1"; printf "%s\\n" "$2" >&3 && cat <&3'


class Lab:
    """A daemon and its servers.

    Args:
        daemon: the daemon.
    """

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon

    # --- mounting ---

    def control(self, line: str) -> Done:
        """Write a line to `ctl`."""
        return self.daemon.bash(f"echo {shlex.quote(line)} > $M/mnt/mcp/ctl")

    def begin(self, name: str, config: dict[str, Any]) -> str:
        """Start to mount; the mark of the server's processes."""
        mark = secrets.token_hex(8)
        if "command" in config:
            config = config | {"env": config.get("env", {}) | {MARK: mark}}
        done = self.control(f"mount {name} {json.dumps(config)}")
        assert (done.status, done.err) == (0, ""), done
        return mark

    def mount(self, name: str, config: dict[str, Any]) -> str:
        """Mount, and wait until it is ready; the mark of the server's processes."""
        mark = self.begin(name, config)
        self.ready(name)
        return mark

    @contextlib.contextmanager
    def mounted(self, name: str, config: dict[str, Any]) -> Iterator[str]:
        """A mount for as long as the block runs; afterwards nothing is left of it. Gives its mark."""
        mark = self.mount(name, config)
        try:
            yield mark
        finally:
            self.unmount(name)
            gone(mark)

    def ready(self, name: str, seconds: float = SECONDS) -> dict[str, Any]:
        """Wait until a mount is ready; its status."""
        status = self.settled(name, seconds)
        assert status["state"] == "ready", f"{status}\n{self.daemon.log()[-2000:]}"
        return status

    def settled(self, name: str, seconds: float = SECONDS) -> dict[str, Any]:
        """Wait until it is known whether a mount succeeded; its status."""
        until(lambda: self.status(name)["state"] != "connecting", f"{name} is connected", seconds)
        return self.status(name)

    def unmount(self, name: str) -> None:
        """Take a server away."""
        done = self.control(f"unmount {name}")
        assert (done.status, done.err) == (0, ""), done
        assert name not in self.names(".")

    def status(self, name: str) -> dict[str, Any]:
        """What `status` of a mount shows."""
        found: dict[str, Any] = json.loads(self.read(f"{name}/status"))
        return found

    # --- looking ---

    def names(self, path: str) -> list[str]:
        """The names in a folder below `mnt/mcp`, in order."""
        return self.daemon.out(f"ls -A $M/mnt/mcp/{shlex.quote(path)}").splitlines()

    def await_name(self, path: str, name: str) -> None:
        """Wait until a folder below `mnt/mcp` lists a name."""
        until(lambda: name in self.daemon.bash(f"ls -A $M/mnt/mcp/{path}").out.splitlines(), f"{path}/{name}")

    def read(self, path: str) -> str:
        """What a file below `mnt/mcp` holds."""
        return self.daemon.out(f"cat $M/mnt/mcp/{shlex.quote(path)}")

    def json(self, path: str) -> Any:
        """What a file below `mnt/mcp` holds, decoded."""
        return json.loads(self.read(path))

    def bytes(self, path: str) -> bytes:
        """The bytes of a file below `mnt/mcp`."""
        return bytes.fromhex(self.daemon.out(f"od -An -v -tx1 $M/mnt/mcp/{shlex.quote(path)}"))

    # --- calling ---

    def ask(self, path: str, arguments: object = None) -> Done:
        """Ask a device below `mnt/mcp`, and read the answer."""
        return self.daemon.bash(f"set -- {shlex.quote(path)} {self._request(arguments)}; {_ASK}")

    def asking(self, path: str, arguments: object = None) -> Program:
        """Start to ask a device; the program waits for the answer."""
        return self.daemon.script(f"set -- {shlex.quote(path)} {self._request(arguments)}; {_ASK}")

    @staticmethod
    def _request(arguments: object) -> str:
        return shlex.quote(json.dumps({} if arguments is None else arguments))

    def call(self, path: str, arguments: object = None) -> dict[str, Any]:
        """The answer of a device that succeeds, decoded."""
        done = self.ask(path, arguments)
        assert (done.status, done.err) == (0, ""), done
        return answer(done)

    def say(self, path: str, arguments: object = None) -> str:
        """The text in the answer of a tool that succeeds."""
        found = self.call(path, arguments)
        assert "error" not in found, found
        return text(found)


def answer(done: Done) -> dict[str, Any]:
    """The one line of an answer, decoded."""
    found: dict[str, Any] = json.loads(done.out)
    assert done.out.endswith("\n")
    assert done.out.count("\n") == 1
    return found


def text(answer: dict[str, Any]) -> str:
    """All text in the answer of a tool."""
    return "\n".join(part["text"] for part in answer["content"] if part["type"] == "text")


def marked(mark: str) -> list[int]:
    """The living processes of a server, whoever their parents are now."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for place in pathlib.Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        try:
            variables = (place / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in variables and state_of(int(place.name)):
            found.append(int(place.name))
    return sorted(found)


def gone(mark: str) -> None:
    """Wait until nothing of a server is left."""
    until(lambda: not marked(mark), f"the processes {marked(mark)} of the server are gone")


def descriptors(pid: int) -> int:
    """How many descriptors a process has."""
    return len(os.listdir(f"/proc/{pid}/fd"))
