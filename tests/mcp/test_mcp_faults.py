"""Servers that do not do as they should: each has clear words on its files, and costs nobody anything."""

import contextlib
import os
import signal
import sys
import time

import pytest
import trio

from rnixfs import limits
from rnixfs.errors import Code, SyscallError
from tests.groups.grouplab import refused
from tests.mcp.mcplab import HERE, PERSON, WAIT_SECONDS, Lab, http_server, raw_server


def alive(pid: int) -> bool:
    """Whether a process runs."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def pid_of(lab: Lab, word: str = "start") -> int:
    """The last pid that the server wrote into its diary after a word."""
    return int([line for line in lab.entries() if line.startswith(word)][-1].split()[1])


# --- servers that do not start ---


@pytest.mark.parametrize(
    ("config", "code", "words"),
    [
        ({"command": "no-such-server-here"}, Code.NOT_FOUND, "cannot run 'no-such-server-here'"),
        ({"command": "/dev/null"}, Code.PERMISSION, "cannot run '/dev/null'"),
        ({"command": "true", "cwd": "/no/such"}, Code.NOT_FOUND, "cannot start in '/no/such'"),
        ({"command": "true"}, Code.DRIVER, r"the server ended by itself \(exit code 0\)"),
        ({"command": "sh", "args": ["-c", "kill -9 $$"]}, Code.DRIVER, "was killed by SIGKILL"),
        (raw_server("exit", "3"), Code.DRIVER, "exit code 3; .*: cannot start: no licence"),
        (raw_server("silent", connect_ms=700), Code.TIMEOUT, "did not connect within 0.7 s"),
        (raw_server("prints"), Code.DRIVER, "lines that are no message of MCP; is it one"),
        (raw_server("nonsense"), Code.DRIVER, "the server's answer is not of the protocol"),
        ({"url": "http://127.0.0.1:9/mcp"}, Code.DRIVER, "the connection failed"),
        ({"command": "true", "url": "http://x/"}, Code.INVALID, "url stands beside command"),
        ({"type": "pigeon"}, Code.INVALID, "there are: http, stdio"),
        ({}, Code.INVALID, 'write "command" for a program'),
    ],
)
async def test_a_server_that_does_not_start(lab, config, code, words):
    """Says why, and nothing is left of it."""
    with trio.fail_after(WAIT_SECONDS):
        with pytest.raises(SyscallError, match=words) as caught:
            await lab.mount("bad", config)
    assert caught.value.code is code
    assert lab.names("") == ["ctl"]
    if lab.entries():
        await lab.until(lambda: not alive(pid_of(lab)))


async def test_a_server_that_failed_shows_why(lab):
    """In its status, with what it said on its standard error."""
    lab.begin("bad", raw_server("exit", "3"))
    status = await lab.until_state("bad", "failed")
    assert status["reason"].startswith("the server ended with exit code 3")
    assert status["stderr"] == "cannot start: no licence\n"
    assert lab.names("bad") == ["status"]


async def test_an_endless_line_ends_the_server(lab, monkeypatch):
    """And never fills the memory."""
    monkeypatch.setattr(limits, "MCP_SKIPPED_MAX", 8 << 20)
    lab.begin("bad", raw_server("endless", output_bytes=1 << 20))
    status = await lab.until_state("bad", "failed")
    assert "a line of more than 8388608 bytes" in status["reason"]
    await lab.until(lambda: not alive(pid_of(lab)))


# --- servers that go wrong later ---


async def test_a_server_that_dies_in_a_call(lab):
    """Its calls fail at once and know why; so does what is written later; its files go."""
    await lab.mount("raw", raw_server("good"))
    answers: list[dict] = []

    async def call() -> None:
        answers.append(await lab.call("raw/tools/hang", {}))

    held = lab.node("raw/tools/call")
    resource = lab.node("raw/resources/note:/a/b")
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(call)
        await lab.until(lambda: lab.entries().count("hangs") == 3)
        began = time.monotonic()
        os.kill(pid_of(lab), signal.SIGKILL)
    assert time.monotonic() - began < 30  # and not the minute that a request may take
    for answer in answers:
        assert answer["error"]["message"] == "the connection ended: the server was killed by SIGKILL"
    status = await lab.until_state("raw", "failed")
    assert status["reason"] == "the server was killed by SIGKILL"
    assert lab.names("raw") == ["status"]
    with refused(Code.DRIVER, "is not connected; mount it again", "SIGKILL"):
        held.open(PERSON, os.O_RDWR).write(b"{}", 0)
    with refused(Code.DRIVER, "is not connected"):
        resource.open(PERSON, os.O_RDONLY)


async def test_unmounting_ends_the_calls(lab):
    """They say that it was unmounted."""
    await lab.mount("raw", raw_server("good"))
    answers: list[dict] = []

    async def call() -> None:
        answers.append(await lab.call("raw/tools/hang", {}))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await lab.until(lambda: "hangs" in lab.entries())
        lab.kernel.mounts.drop("raw", PERSON)
    assert answers[0]["error"]["message"] == "the connection ended: it was unmounted"
    await lab.until(lambda: "end of input" in lab.entries())
    await lab.until(lambda: not alive(pid_of(lab)))


@pytest.mark.parametrize("mode", ["children", "stubborn"])
async def test_nothing_of_a_server_outlives_its_mount(lab, mode):
    """Neither what it started, in whatever session, nor a server that ignores all requests to end."""
    await lab.mount("raw", raw_server(mode))
    pids = [int(line.split()[1]) for line in lab.entries() if line.split()[0] in ("start", "child")]
    assert len(pids) == (2 if mode == "children" else 1)
    assert all(map(alive, pids))
    await lab.kernel.mounts.unmount("/mnt/mcp/raw", PERSON)
    assert not any(map(alive, pids))


async def test_an_answer_that_is_too_long_fails_alone(lab):
    """The server goes on; the answer says how long its configuration lets it be."""
    await lab.mount("raw", raw_server("good", output_bytes=1 << 20))
    answer = await lab.call("raw/tools/long", {"size": 2 << 20})
    assert "at most 1048576 are taken" in answer["error"]["message"]
    assert len((await lab.call("raw/tools/long", {"size": 1000}))["text"]) == 1000


async def test_junk_between_messages_is_passed_over(lab):
    """So are answers to nobody."""
    await lab.mount("raw", raw_server("good"))
    assert (await lab.call("raw/tools/junk", {}))["text"] == "{}"
    assert (await lab.call("raw/tools/call", {"x": 1}))["text"] == '{"x": 1}'


@pytest.mark.parametrize("mode", ["floods", "loud"])
async def test_a_server_that_floods_slows_nobody(lab, mode):
    """Another server's calls go through, and of what it says only a part is kept."""
    await lab.mount("flood", raw_server(mode))
    await lab.mount("raw", raw_server("good"))
    with trio.fail_after(WAIT_SECONDS):
        for number in range(50):
            assert (await lab.call("raw/tools/call", {"x": number}))["text"] == f'{{"x": {number}}}'
    status = await lab.status("flood")
    assert status["state"] == "ready"
    assert len(status["stderr"]) <= limits.MCP_STDERR_MAX
    if mode == "loud":

        async def heard() -> bool:
            return "loud" in (await lab.status("flood"))["stderr"]

        await lab.until_asked(heard)


async def test_calls_are_limited(lab, monkeypatch):
    """The next one is told to try again."""
    monkeypatch.setattr(limits, "MCP_CALLS_MAX", 1)
    await lab.mount("raw", raw_server("good"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lab.call, "raw/tools/hang", {})
        await lab.until(lambda: "hangs" in lab.entries())
        answer = await lab.call("raw/tools/call", {})
        assert answer["error"]["code"] == "SERVICE_UNAVAILABLE"
        assert "1 requests wait" in answer["error"]["message"]
        nursery.cancel_scope.cancel()


# --- servers of HTTP ---


async def _answer(stream: trio.SocketStream, mode: str) -> None:
    """Answer each request of a connection as the mode says."""
    with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        async with stream:
            await stream.receive_some(65536)
            if mode == "hangs":
                await trio.sleep_forever()
            kind, body = BODIES[mode]
            head = f"HTTP/1.1 {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            await stream.send_all(head.encode() + body)


BODIES = {
    "error": ("500 Oops\r\nContent-Type: text/plain", b"oops"),
    "page": ("200 OK\r\nContent-Type: text/html", b"<html>hello</html>"),
    "nonsense": ("200 OK\r\nContent-Type: application/json", b'{"surprise": true}'),
    "endless": ("200 OK\r\nContent-Type: application/json", b" " * (4 << 20)),
    "denied": ("401 Unauthorized\r\nWWW-Authenticate: Bearer", b""),
}


@pytest.mark.parametrize("mode", [*BODIES, "hangs"])
async def test_an_address_that_is_no_server(lab, nursery, mode):
    """Fails with clear words, and in time."""
    listeners = await nursery.start(trio.serve_tcp, lambda stream: _answer(stream, mode), 0)
    port = listeners[0].socket.getsockname()[1]
    config = {"url": f"http://127.0.0.1:{port}/mcp", "connect_ms": 3000, "output_bytes": 1 << 20}
    with trio.fail_after(WAIT_SECONDS), pytest.raises(SyscallError) as caught:
        await lab.mount("bad", config)
    assert caught.value.code in (Code.DRIVER, Code.TIMEOUT, Code.INVALID, Code.NOT_PERMITTED)
    assert caught.value.reason
    assert lab.names("") == ["ctl"]
    nursery.cancel_scope.cancel()


async def test_a_server_of_http_that_goes_away(lab, monkeypatch):
    """Its call fails, which is when that is found out; it is there again when it is."""
    monkeypatch.setattr(limits, "MOUNT_RESTART_SECONDS", 0.05)
    process, url = await http_server(lab)
    await lab.mount("any", {"url": url, "restart": "on-failure"})
    process.kill()
    await process.wait()
    answer = await lab.call("any/tools/echo", {"text": "x"})
    assert answer["error"]["code"] == "DRIVER"
    status = await lab.until_state("any", "restarting")
    assert "failed" in status["reason"]
    process, _ = await http_server(lab, int(url.split(":")[2].split("/")[0]))
    try:
        await lab.until_state("any", "ready")
        assert (await lab.call("any/tools/echo", {"text": "x"}))["text"] == "x"
    finally:
        process.kill()
        await process.wait()


# --- servers that come back ---


async def test_a_server_that_failed_is_started_again(lab, monkeypatch):
    """Its folder stays meanwhile, and its files say to try again; then they work, held ones too."""
    monkeypatch.setattr(limits, "MOUNT_RESTART_SECONDS", 3600.0)
    await lab.mount("raw", raw_server("good", restart="on-failure"))
    held = lab.node("raw/tools/call")
    first = pid_of(lab)
    answer = await lab.call("raw/tools/quit", {"code": 4})
    assert "the server ended with exit code 4" in answer["error"]["message"]
    status = await lab.until_state("raw", "restarting")
    assert status["reason"].startswith("the server ended with exit code 4")
    assert "tools" in lab.names("raw")
    with refused(Code.SERVICE_UNAVAILABLE, "try again later", "exit code 4"):
        await lab.call("raw/tools/call", {})
    with refused(Code.SERVICE_UNAVAILABLE, "try again later"):
        await lab.read("raw/resources/note:/a/b")
    monkeypatch.setattr(limits, "MOUNT_RESTART_SECONDS", 0.01)
    await lab.kernel.mounts.unmount("/mnt/mcp/raw", PERSON)
    await lab.mount("raw", raw_server("good", restart="on-failure"))
    held = lab.node("raw/tools/call")
    os.kill(pid_of(lab), signal.SIGKILL)
    await lab.until(lambda: len([line for line in lab.entries() if line.startswith("start")]) == 3)
    await lab.until_state("raw", "ready")
    assert held == lab.node("raw/tools/call")
    assert (await lab.call("raw/tools/call", {"x": 1}))["text"] == '{"x": 1}'
    assert pid_of(lab) != first


async def test_a_server_that_ends_by_itself_comes_back_only_if_always_wanted(lab, monkeypatch):
    """Its end is no failure, where its exit code is 0."""
    monkeypatch.setattr(limits, "MOUNT_RESTART_SECONDS", 0.01)
    await lab.mount("one", raw_server("good", restart="on-failure"))
    await lab.call("one/tools/quit", {})
    assert (await lab.until_state("one", "failed"))["reason"].startswith("the server ended by itself")
    await lab.mount("two", raw_server("good", restart="always"))
    first = pid_of(lab)
    await lab.call("two/tools/quit", {})
    await lab.until(lambda: pid_of(lab) != first)
    await lab.until_state("two", "ready")


async def test_the_sdk_is_not_loaded_before_it_is_needed():
    """A system without servers starts without it."""
    program = "import rnixfs.bootstrap, sys; print([n for n in ('mcp', 'jsonschema') if n in sys.modules])"
    root = HERE.parent.parent
    done = await trio.run_process([sys.executable, "-c", program], cwd=root, capture_stdout=True)
    assert done.stdout == b"[]\n"
