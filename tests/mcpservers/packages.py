"""The real servers that the set-up has installed, and how each is started."""

import contextlib
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from tests.daemon import until

EVERYTHING = "mcp-server-everything"
FILESYSTEM = "mcp-server-filesystem"
GIT = "mcp-server-git"
MEMORY = "mcp-server-memory"
TIME = "mcp-server-time"
COMMITTED = "2026-01-02T03:04:05+0000"

# Listens where nobody else does, and on this machine only; by itself the server wants a port that is named,
# and takes all addresses. And keeps what it is told.
_LISTEN = """
const { Server } = require("node:net");
const { IncomingMessage } = require("node:http");
const { appendFileSync, writeFileSync, renameSync } = require("node:fs");
const { push } = IncomingMessage.prototype;
IncomingMessage.prototype.push = function (chunk, ...rest) {
    if (chunk) appendFileSync(process.env.PORT_FILE + ".said", chunk.toString() + "\\n");
    return push.call(this, chunk, ...rest);
};
const listen = Server.prototype.listen;
Server.prototype.listen = function (...args) {
    const then = args.filter((arg) => typeof arg === "function");
    this.once("listening", () => {
        writeFileSync(process.env.PORT_FILE + ".new", String(this.address().port));
        renameSync(process.env.PORT_FILE + ".new", process.env.PORT_FILE);
    });
    return listen.call(this, { port: Number(process.env.PORT_WANTED || 0), host: "127.0.0.1" }, ...then);
};
"""


def folder() -> pathlib.Path:
    """Where the set-up has put the commands; their absence is a failure, here and in CI."""
    found = pathlib.Path(sys.prefix, "mcp-servers", "bin")
    assert found.is_dir(), f"there is no {found}: run `make dev`, which installs the MCP servers"
    return found


def command(name: str) -> str:
    """The path of a command that the set-up has installed."""
    found = folder() / name
    assert os.access(found, os.X_OK), f"there is no {found}: run `make dev`, which installs it"
    return str(found)


def everything() -> dict[str, Any]:
    """The configuration of the server that has a bit of all that there is."""
    return {"command": command(EVERYTHING)}


def memory(file: pathlib.Path) -> dict[str, Any]:
    """The configuration of a knowledge graph kept in a file."""
    return {"command": command(MEMORY), "env": {"MEMORY_FILE_PATH": str(file)}}


def filesystem(root: pathlib.Path) -> dict[str, Any]:
    """The configuration of a server of the files in a folder."""
    return {"command": command(FILESYSTEM), "args": [str(root)]}


def clock() -> dict[str, Any]:
    """The configuration of a server of time zones."""
    return {"command": command(TIME), "args": ["--local-timezone", "UTC"]}


def git() -> dict[str, Any]:
    """The configuration of a server of git repositories."""
    return {"command": command(GIT)}


def repository(path: pathlib.Path) -> pathlib.Path:
    """A git repository with one commit and a change that is not in it."""
    path.mkdir()
    (path / "poem.txt").write_text("one\n")
    mine = ["-c", "user.name=A. Tester", "-c", "user.email=tester@example.com"]
    # The same commit in every run.
    env = os.environ | {"GIT_AUTHOR_DATE": COMMITTED, "GIT_COMMITTER_DATE": COMMITTED}
    for words in (["init", "-q"], ["add", "."], [*mine, "commit", "-q", "-m", "the first line"]):
        subprocess.run(["git", *words], cwd=path, env=env, check=True, timeout=60)
    (path / "poem.txt").write_text("one\ntwo\n")
    return path


def document(name: str) -> str:
    """The text of one of the documents that server-everything shows as resources."""
    package = folder().parent / "node_modules" / "@modelcontextprotocol" / "server-everything"
    return (package / "dist" / "docs" / name).read_text()


class HttpServer:
    """server-everything at an address of this machine.

    Args:
        place: a folder for its log.
        port: where it listens; any that is free if 0.

    Attributes:
        said: the file that keeps what clients tell it, a message a line.
    """

    def __init__(self, place: pathlib.Path, port: int = 0) -> None:
        place.mkdir(parents=True, exist_ok=True)
        preload, told = place / "listen.cjs", place / "port"
        preload.write_text(_LISTEN)
        told.unlink(missing_ok=True)
        self.said = place / "port.said"
        self._log = place / "everything.log"
        env = {
            "PATH": os.defpath,
            "HOME": str(place),
            "NODE_OPTIONS": f"--require={preload}",
            "PORT_FILE": str(told),
            "PORT_WANTED": str(port),
        }
        with self._log.open("ab") as log:
            # It ends with the tests, however these end.
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", command(EVERYTHING), "streamableHttp"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=env,
                cwd=place,
                start_new_session=True,
            )
        try:
            until(lambda: told.exists() or self.process.poll() is not None, "the server listens")
            assert told.exists(), f"the server did not start:\n{self.log()}"
        except BaseException:
            self.end()
            raise
        self.port = int(told.read_text())
        self.url = f"http://127.0.0.1:{self.port}/mcp"

    def log(self) -> str:
        """What it wrote so far."""
        return self._log.read_text("utf-8", "replace")

    def sessions(self) -> list[str]:
        """The sessions that clients began, the oldest first."""
        return re.findall(r"^Session initialized with ID: (\S+)$", self.log(), re.MULTILINE)

    def ended(self) -> list[str]:
        """The sessions that clients ended."""
        found = r"^Received session termination request for session (\S+)$"
        return re.findall(found, self.log(), re.MULTILINE)

    def end(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait(60)


@contextlib.contextmanager
def serving(place: pathlib.Path) -> Iterator[HttpServer]:
    """An HTTP server for as long as the block runs."""
    server = HttpServer(place)
    try:
        yield server
    finally:
        server.end()


# Stands between a client and a server that speak over pipes, and keeps what the client says.
_TAP = """
import os, subprocess, sys
log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
server = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE)
while part := os.read(0, 65536):
    os.write(log, part)
    server.stdin.write(part)
    server.stdin.flush()
server.stdin.close()
sys.exit(server.wait())
"""


def tapped(config: Mapping[str, Any], log: pathlib.Path) -> dict[str, Any]:
    """The same server, with what it is told also written to a file."""
    tap = log.with_name(f"{log.name}.py")
    tap.write_text(_TAP)
    args = ["-I", "-S", str(tap), str(log), config["command"], *config.get("args", [])]
    return {**config, "command": sys.executable, "args": args}
