"""Who may ask a server that listens, and how the command starts one."""

import http.client
import json
import pathlib
import sys

import pytest

from tests.daemon import LEAVE_SECONDS, SECONDS
from tests.gateway.gatelab import KEY, KEY_VARIABLE
from tests.mcpserve.servelab import UNTIDY, Lab, Server, text_of

pytestmark = pytest.mark.filterwarnings(UNTIDY)

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


def post(server: Server, **headers: str) -> tuple[int, str]:
    """Send a ping; the status and the text of the response."""
    host = server.url.removeprefix("http://").removesuffix("/mcp")
    fields = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    fields |= {"authorization": f"Bearer {KEY}", "mcp-protocol-version": "2025-11-25"} | headers
    connection = http.client.HTTPConnection(host, timeout=SECONDS)
    try:
        connection.request(
            "POST", "/mcp", json.dumps(PING), {name: value for name, value in fields.items() if value}
        )
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize(
    "shown", ["", "Bearer", "Bearer x", f"Basic {KEY}", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}"]
)
def test_the_key_must_be_right(server: Server, shown: str) -> None:
    """Without the whole key nothing is answered, and where it is found is told."""
    status, text = post(server, authorization=shown)
    assert status == 401
    assert f"${KEY_VARIABLE}" in json.loads(text)["error"]["message"]
    assert KEY not in text


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8081", "127.0.0.1.evil.example", "10.0.0.1"])
def test_other_hosts_are_refused(server: Server, host: str) -> None:
    """A page whose name was made to lead here cannot ask, not even with the key."""
    assert post(server, host=host)[0] == 403


def test_other_origins_are_refused(server: Server) -> None:
    """A page of the web cannot ask, whatever name it calls."""
    assert post(server, origin="https://evil.example")[0] == 403


async def test_a_client_with_the_key(server: Server) -> None:
    """Who shows the key is served; the first line of output says where, and never what the key is."""
    assert server.told["key"] == f"${KEY_VARIABLE}"
    assert KEY not in json.dumps(server.told)
    async with server.client() as client:
        assert await text_of(client, "/sys/version")


def test_a_port_that_is_taken(lab: Lab, server: Server) -> None:
    """A port that others have is told of in one line."""
    port = server.url.rpartition(":")[2].removesuffix("/mcp")
    program = lab.daemon.program(lab.words("--http", f"--port={port}"))
    done = program.end()
    lab.daemon.forget(program)
    assert done.status == 1
    assert done.err.startswith("[SERVICE_UNAVAILABLE] Serve: ")
    assert "--port" in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--allow", "dev/shell"], "--allow is 'dev/shell'; it must be a path"),
        (["--allow", "/dev/../proc"], "it must be a path of the tree"),
        (["--agent", "nobody"], "lib/agents/nobody/agent.yaml is not there"),
        (["--agent", "../x"], "--agent is '../x'"),
        (["--view", "999999"], "process 999999, whose view this server offers, is gone"),
        (["--view", "x"], "--view is 'x'; it must be the pid"),
    ],
)
def test_options_that_are_wrong(lab: Lab, options: list[str], words: str) -> None:
    """What is wrong at the start is told in one line, with a status of failure."""
    program = lab.daemon.program(lab.words(*options))
    done = program.end()
    lab.daemon.forget(program)
    assert (done.status, done.out, done.err.count("\n")) == (1, "", 1)
    assert words in done.err


def test_the_command_becomes_the_server(lab: Lab) -> None:
    """`rnix mcp-serve` is the server of the mount that it is told of."""
    words = [sys.executable, "-P", "-m", "rnixfs_cli", "mcp-serve", "--mount", str(lab.daemon.mount)]
    program = lab.daemon.program([*words, "--read-only", "--allow", "/sys"])
    assert program.process.stdin is not None
    program.process.stdin.write(json.dumps(PING).encode() + b"\n")
    program.process.stdin.flush()
    assert json.loads(program.line()) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    done = program.end()
    lab.daemon.forget(program)
    assert (done.status, done.err) == (0, "")


def test_the_command_imports_nothing_heavy(lab: Lab) -> None:
    """Neither the SDK nor trio is imported by the command, only by the server that it becomes."""
    heavy = "{'trio', 'mcp', 'rnixfs', 'pydantic', 'starlette'}"
    program = f"import sys, rnixfs_cli.mcp_serve; print(sorted({heavy} & set(sys.modules)))"
    running = lab.daemon.program([sys.executable, "-P", "-c", program])
    done = running.end(seconds=LEAVE_SECONDS)
    lab.daemon.forget(running)
    assert (done.out, done.err) == ("[]\n", "")


def test_the_key_of_rnix_serve(lab: Lab) -> None:
    """Without a variable the key is the one in the state folder, which only its user may read."""
    program = lab.daemon.program(lab.words("--http", "--port=0"))
    line = program.line()
    lab.daemon.forget(program)
    path = line.rpartition("key: ")[2]
    assert pathlib.Path(path).name == "serve.key"
    assert pathlib.Path(path).stat().st_mode & 0o077 == 0
    assert pathlib.Path(path).read_text().strip() not in line
