"""Who may ask a gateway and how much, how it starts and how it ends, on a real mount."""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.daemon import SECONDS, Daemon, Done, until
from tests.gateway.gatelab import KEY, KEY_VARIABLE, Lab, gateway, response, start
from tests.gateway.test_gateway_agents import end_of, running, started
from tests.gateway.test_gateway_openai import said

ASK = {"model": "script", "messages": said("say hi")}


# --- who may ask ---


def test_health_needs_no_key(lab: Lab) -> None:
    """Whoever watches over the gateway sees whether it works, and which providers do."""
    status, body = lab.answer("GET", "/health", x_api_key="")
    assert (status, body["status"]) == (200, "ok")
    assert body["providers"]["script"] == "ok"


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/script", "/v1/nothing", "/"])
def test_all_else_needs_the_key(lab: Lab, path: str) -> None:
    """Without the key not even what is there is told."""
    status, body = lab.answer("GET", path, x_api_key="")
    assert (status, body["error"]["code"]) == (401, "invalid_api_key")


@pytest.mark.parametrize(
    "shown", ["", "Bearer", "Bearer x", f"Basic {KEY}", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}"]
)
def test_keys_that_are_wrong(lab: Lab, shown: str) -> None:
    """Only the whole key, shown as a bearer's token, is right."""
    assert lab.answer("GET", "/v1/models", x_api_key="no", authorization=shown)[0] == 401


@pytest.mark.parametrize("shown", [{"x_api_key": KEY}, {"x_api_key": "no", "authorization": f"bearer {KEY}"}])
def test_keys_that_are_right(lab: Lab, shown: dict[str, str]) -> None:
    """The key is taken from the header of either API."""
    assert lab.answer("GET", "/v1/models", **shown)[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "10.0.0.1", ""]
)
def test_other_hosts_are_refused(lab: Lab, host: str) -> None:
    """A page whose name was made to lead here cannot ask, not even with the key."""
    status, body = lab.answer("POST", "/v1/chat/completions", ASK, host=host)
    assert (status, body["error"]["code"]) == (403, "wrong_host")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.2:80", "[::1]:8080"])
def test_names_of_this_machine_are_taken(lab: Lab, host: str) -> None:
    """This machine has several names."""
    assert lab.answer("POST", "/v1/chat/completions", ASK, host=host)[0] == 200


# --- what is asked ---


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens"])
def test_a_body_that_is_too_large(lab: Lab, path: str) -> None:
    """Beyond 4 MiB a body is refused, whether its length is told before or not."""
    body = json.dumps({"model": "script", "messages": said("x" * (5 << 20))}).encode()
    status, told = lab.answer("POST", path, body)
    assert (status, "4194304" in told["error"]["message"]) == (413, True)
    pieces = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (body, b""))
    assert chunked(lab, path, pieces) == 413


def chunked(lab: Lab, path: str, data: bytes) -> int:
    """Send a body in chunks; the status of the response."""
    host, _, port = lab.url.removeprefix("http://").rpartition(":")
    head = f"POST {path} HTTP/1.1\r\nhost: {host}\r\nx-api-key: {KEY}\r\ntransfer-encoding: chunked\r\n\r\n"
    with socket.create_connection((host, int(port)), SECONDS) as connection:
        connection.sendall(head.encode() + data)
        return response(connection)[0]


def test_a_conversation_that_no_device_takes(lab: Lab) -> None:
    """Between what a body and what a request to a device may have, the kernel's own limit is told."""
    status, body = lab.answer("POST", "/v1/chat/completions", {**ASK, "messages": said("x" * (2 << 20))})
    assert (status, "1048576 bytes" in body["error"]["message"]) == (413, True)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"text"', b"\xff\xfe", b"[" * 100_000, b'{"messages": "\\ud800"}']
)
def test_bodies_that_are_no_object(lab: Lab, body: bytes) -> None:
    """What is no object of JSON is refused in each API's form."""
    status, told = lab.answer("POST", "/v1/chat/completions", body)
    assert (status, told["error"]["type"]) == (400, "invalid_request_error")
    status, told = lab.answer("POST", "/v1/messages", body)
    assert (status, told["type"], told["error"]["type"]) == (400, "error", "invalid_request_error")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/nothing", 404), ("GET", "/v1/chat/completions", 405), ("DELETE", "/v1/models", 405)],
)
def test_paths_that_are_not_there(lab: Lab, method: str, path: str, status: int) -> None:
    """Other paths and methods are errors in the form of the API."""
    found, body = lab.answer(method, path)
    assert (found, body["error"]["type"]) == (status, "invalid_request_error")
    assert path in body["error"]["message"]


def test_the_log_tells_no_contents(lab: Lab) -> None:
    """A line for each request says what was asked of whom and how it went, and nothing that was said."""
    lab.answer("POST", "/v1/chat/completions", {"model": "script", "messages": said("say SECRET-WORD")})
    lab.answer("POST", "/v1/chat/completions", {"model": "SECRET-WORD", "messages": said("hi")})
    lab.answer("POST", "/v1/chat/completions", {"model": "script:SECRET-WORD\n", "messages": said("hi")})
    lab.answer("GET", "/v1/models", authorization="Bearer SECRET-WORD", x_api_key="SECRET-WORD")
    lab.await_log("GET /v1/models - 401")
    assert "POST /v1/chat/completions script 200" in lab.log()
    assert "POST /v1/chat/completions - 404" in lab.log()
    assert "SECRET-WORD" not in lab.log()
    assert KEY not in lab.log()


@pytest.mark.parametrize("streams", [False, True])
def test_a_connection_that_is_to_be_closed(lab: Lab, streams: bool) -> None:
    """Who asks for the connection to end with the answer gets both, and is not taken for one who left."""
    before = lab.log().count("client left")
    with lab.raw(
        "POST", "/v1/chat/completions", {**ASK, "stream": streams}, connection="close"
    ) as connection:
        data = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert b"hi" in data
    assert lab.log().count("client left") == before


# --- its start ---


def failed(daemon: Daemon, *options: str) -> Done:
    """A gateway that does not start."""
    program = start(daemon, options, daemon.folder / "failed.log")
    try:
        return program.end()
    finally:
        daemon.forget(program)


def complaint(daemon: Daemon, *options: str) -> str:
    """What a gateway that does not start says, as one line of an error and as JSON."""
    (daemon.folder / "failed.log").unlink(missing_ok=True)
    done = failed(daemon, *options)
    error = json.loads(done.out)["error"]
    (line,) = (daemon.folder / "failed.log").read_text().splitlines()
    assert done.status == 1
    assert line.startswith(f"[{error['code']}] Serve: ")
    assert error["message"] in line
    return line


def test_a_port_that_is_taken(lab: Lab) -> None:
    """A port that somebody else has is named, with what to do."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        line = complaint(lab.daemon, f"--key-env={KEY_VARIABLE}", f"--port={port}")
    assert f"127.0.0.1:{port} (address already in use; name a free port" in line


def test_a_host_that_is_not_here(lab: Lab) -> None:
    """An address of another machine cannot be listened on."""
    assert "192.0.2.1:0 (" in complaint(lab.daemon, f"--key-env={KEY_VARIABLE}", "--host=192.0.2.1")


def test_a_mount_that_is_not_there(lab: Lab, tmp_path: pathlib.Path) -> None:
    """A folder that is no mount, or is not there, is named."""
    options = [f"--key-env={KEY_VARIABLE}", f"--mount={tmp_path}"]
    assert f"{tmp_path} (no tree of rnix is mounted at" in complaint(lab.daemon, *options)
    options = [f"--key-env={KEY_VARIABLE}", f"--mount={tmp_path}/none"]
    assert "[SERVICE_UNAVAILABLE]" in complaint(lab.daemon, *options)


def test_a_default_that_is_not_there(lab: Lab) -> None:
    """A default that nobody knows is refused at the start, with the names there are."""
    line = complaint(lab.daemon, f"--key-env={KEY_VARIABLE}", "--default=nowhere")
    assert line.startswith("[NOT_FOUND]")
    assert "no model 'nowhere'; there are " in line


@pytest.mark.parametrize("value", ["", "short", "has blanks in it"])
def test_a_key_that_is_none(lab: Lab, value: str) -> None:
    """A variable without a key is named, and what it holds is not repeated."""
    words = ["env", f"OTHER={value}", "bash", "-c", 'exec "$@"', "bash"]
    program = lab.daemon.program(
        [
            *words,
            sys.executable,
            "-P",
            "-m",
            "rnixfs.gateway",
            "--mount",
            str(lab.daemon.mount),
            "--key-env=OTHER",
        ]
    )
    done = program.end()
    lab.daemon.forget(program)
    assert (done.status, "$OTHER" in done.err) == (1, True)
    assert not value or value not in done.err


# --- lives of their own ---


def ask(url: str, key: str, body: object = ASK) -> int:
    """Ask a gateway; the status of its response."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=SECONDS)
    with contextlib.closing(connection):
        connection.request(
            "POST", "/v1/chat/completions", json.dumps(body), {"authorization": f"Bearer {key}"}
        )
        return connection.getresponse().status


def test_a_key_is_made_and_kept(tmp_path: pathlib.Path) -> None:
    """Without a variable a key is made once, in a file of its user alone, and is the same next time."""
    with gateway(tmp_path, "--key-env=") as first:
        path = pathlib.Path(first.told["key"])
        key = path.read_text().strip()
        assert path == tmp_path / "home/.local/share/rnix/serve.key"
        assert path.stat().st_mode & 0o777 == 0o600
        assert ask(first.url, key) == 200
        second = Lab(first.daemon, ["--key-env="])
        assert second.url != first.url
        assert ask(second.url, key) == 200
        path.chmod(0o644)
        assert "chmod 600" in complaint(first.daemon, "--key-env=")


def test_a_default_for_unknown_names(tmp_path: pathlib.Path) -> None:
    """With a default, clients that insist on a name of their own are served by it."""
    with gateway(tmp_path, "--default=play:play") as lab:
        status, body = lab.answer(
            "POST", "/v1/messages", {"model": "claude-x", "messages": said("count to four")}
        )
        assert (status, body["rnix"]["provider"], body["model"]) == (200, "play", "claude-x")
        status, body = lab.answer("POST", "/v1/messages", {"messages": said("count to four")})
        assert (status, body["rnix"]["provider"], body["model"]) == (200, "play", "play:play")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_told(tmp_path: pathlib.Path, number: int) -> None:
    """Told to end, it takes nothing new, cancels what does not end in time, and kills its agents."""
    with gateway(tmp_path) as lab:
        never = {"model": "play", "messages": said("never mind")}
        agent = {"model": "agent/default", "messages": said("wait 600 s")}
        with lab.raw("POST", "/v1/chat/completions", never), lab.raw("POST", "/v1/chat/completions", agent):
            pid = started(lab, "wait 600 s")
            until(lambda: running(lab, "play") == 1, "the call at the model")
            os.kill(lab.program.pid, number)
            assert lab.program.end().status == 0
        assert "SIGKILL" in end_of(lab, pid)["reason"]
        until(lambda: running(lab, "play") == 0, "the end of the call")


def test_it_ends_at_once_when_told_twice(tmp_path: pathlib.Path) -> None:
    """A second signal ends what runs without waiting; agents are killed all the same."""
    with gateway(tmp_path) as lab:
        agent = {"model": "agent/default", "messages": said("wait 600 s")}
        with lab.raw("POST", "/v1/chat/completions", agent):
            pid = started(lab, "wait 600 s")
            os.kill(lab.program.pid, signal.SIGINT)
            lab.await_log("SIGINT: ends within 5 s")
            os.kill(lab.program.pid, signal.SIGINT)
            assert lab.program.end().status == 0
        assert "SIGINT: ends now" in lab.log()
        assert "SIGKILL" in end_of(lab, pid)["reason"]


def test_a_daemon_that_ends_and_comes_back(tmp_path: pathlib.Path) -> None:
    """Without a daemon requests fail at once and say why; with a new one they are answered again."""
    with gateway(tmp_path) as lab:
        with lab.raw(
            "POST", "/v1/chat/completions", {"model": "play", "messages": said("never mind")}
        ) as cut:
            until(lambda: running(lab, "play") == 1, "the call at the model")
            assert lab.daemon.stop() == 0
            assert response(cut)[0] == 503
        until(lambda: lab.answer("GET", "/health")[0] == 503, "the gateway to notice")
        status, body = lab.answer("POST", "/v1/chat/completions", ASK)
        assert (status, "rnix mount" in body["error"]["message"]) == (503, True)
        lab.daemon.start()
        assert lab.answer("POST", "/v1/chat/completions", ASK)[0] == 200
        assert lab.answer("GET", "/health")[0] == 200
        # A daemon may leave when it is idle; nobody whose file is open is.
        assert lab.opened("sys") == 1


def test_a_daemon_that_hangs(tmp_path: pathlib.Path) -> None:
    """A daemon that does not answer is not healthy, and is again when it does."""
    with gateway(tmp_path) as lab:
        lab.daemon.signal(signal.SIGSTOP)
        try:
            status, body = lab.answer("GET", "/health")
        finally:
            lab.daemon.signal(signal.SIGCONT)
        assert (status, body["status"]) == (503, "unavailable")
        assert "does not answer" in body["reason"]
        assert lab.answer("GET", "/health")[0] == 200


# --- the command ---


def rnix(daemon: Daemon, words: Sequence[str]) -> Done:
    """Run the command to its end."""
    program = daemon.program([sys.executable, "-m", "rnixfs_cli", *words], {"RNIX_MOUNT": str(daemon.mount)})
    try:
        return program.end()
    finally:
        daemon.forget(program)


def test_the_command(lab: Lab) -> None:
    """`rnix serve` tells the address and where the key is, answers, and ends well after Ctrl-C."""
    words = [sys.executable, "-m", "rnixfs_cli", "serve", "--port", "0", "--key-env", KEY_VARIABLE]
    env = {"RNIX_MOUNT": str(lab.daemon.mount), KEY_VARIABLE: KEY}
    program = lab.daemon.program(words, env)
    line = program.line()
    url = next(word for word in line.split() if word.startswith("http"))
    assert line.startswith("[serve] http://127.0.0.1:")
    assert line.endswith(f"offers the models of {lab.daemon.mount}; key: ${KEY_VARIABLE}")
    assert ask(url.removesuffix("/v1"), KEY) == 200
    os.kill(program.pid, signal.SIGINT)
    assert program.end().status == 0
    lab.daemon.forget(program)


def test_the_command_reports_failures(lab: Lab) -> None:
    """What goes wrong at the start is told as by every command."""
    done = rnix(lab.daemon, ["serve", "--port", "0", "--key-env", "NOT_SET_ANYWHERE"])
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("[INVALID] Serve: ")
    assert "$NOT_SET_ANYWHERE is not set" in done.err


def test_help_loads_nothing_heavy(lab: Lab) -> None:
    """The command itself knows nothing of servers: it becomes one only when it serves."""
    words = [sys.executable, "-X", "importtime", "-m", "rnixfs_cli", "serve", "--help"]
    done = subprocess.run(
        words, env=lab.daemon.env, capture_output=True, text=True, timeout=SECONDS, check=True
    )
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "--key-env" in done.stdout
    assert "rnixfs_cli" in loaded
    assert loaded.isdisjoint({"trio", "starlette", "hypercorn", "rnixfs", "anyio", "msgspec"})
