"""Real servers that end, hang or are killed: clear errors, nothing left behind, nobody else disturbed."""

import json
import os
import pathlib
import signal

from tests.daemon import until
from tests.mcpservers import packages
from tests.mcpservers.packages import HttpServer
from tests.mcpservers.serverlab import Lab, gone, marked

LONG = "trigger-long-running-operation"
FOR_EVER = {"duration": 3600, "steps": 36000}
SUM = {"a": 20, "b": 22}

# A server with a child that neither reads nor listens to SIGTERM, as a wrapper script may have one.
CLINGING = "trap '' TERM; (trap '' TERM; exec sleep 3600) & exec {command}"


def clinging() -> dict[str, object]:
    """server-everything with such a child."""
    return {
        "command": "bash",
        "args": ["-c", CLINGING.format(command=packages.command(packages.EVERYTHING))],
    }


def test_nothing_is_left_after_unmount(lab: Lab) -> None:
    """The server and everything that it started end with its mount, whatever they do with signals."""
    mark = lab.mount("e", clinging())
    assert len(marked(mark)) >= 2
    groups = {os.getpgid(pid) for pid in marked(mark)}
    assert os.getpgid(lab.daemon.process.pid) not in groups, "a server is in the daemon's own group"
    lab.unmount("e")
    gone(mark)


def test_unmounting_gives_waiting_calls_up(lab: Lab) -> None:
    """A program that waits for an answer of a server that is unmounted gets an error, not nothing."""
    mark = lab.mount("e", packages.everything())
    asking = lab.asking(f"e/tools/{LONG}", FOR_EVER)
    until(asking.blocked, "the program waits for the answer")
    lab.unmount("e")
    done = asking.end()
    assert '"error"' in done.out or done.status != 0, done
    gone(mark)


def test_nothing_is_left_when_the_daemon_leaves(lab: Lab) -> None:
    """Shutting the system down ends all servers."""
    marks = [lab.mount("a", clinging()), lab.mount("b", packages.clock())]
    assert lab.daemon.stop() == 0
    assert [marked(mark) for mark in marks] == [[], []]


def test_nothing_is_left_after_the_daemon_was_killed(lab: Lab) -> None:
    """A daemon that was killed cannot end its servers; they are gone when the next one is ready."""
    marks = [lab.mount("a", clinging()), lab.mount("b", packages.clock())]
    lab.daemon.signal(signal.SIGKILL)
    lab.daemon.wait()
    lab.daemon.start()
    for mark in marks:
        gone(mark)
    assert lab.names(".") == ["ctl"]
    again = lab.mount("a", packages.everything())
    assert lab.say("a/tools/get-sum", SUM).endswith("42.")
    lab.unmount("a")
    gone(again)


def test_a_server_killed_in_mid_call(lab: Lab) -> None:
    """The call that runs fails with a reason, the mount says that it failed, and others go on."""
    mark = lab.mount("e", packages.everything())
    other = lab.mount("other", packages.everything())
    asking = lab.asking(f"e/tools/{LONG}", FOR_EVER)
    until(asking.blocked, "the program waits for the answer")
    for pid in marked(mark):
        os.kill(pid, signal.SIGKILL)
    done = asking.end()
    error = json.loads(done.out)["error"]
    assert error["code"] in ("DRIVER", "CANCELED", "SERVICE_UNAVAILABLE"), error
    assert error["message"]
    until(lambda: lab.status("e")["state"] == "failed", "the mount has failed")
    assert lab.status("e")["reason"]
    assert "No such file" in lab.daemon.bash(f"cat $M/mnt/mcp/e/tools/{LONG}").err
    assert lab.say("other/tools/get-sum", SUM).endswith("42.")
    lab.mount("e", packages.everything())
    assert lab.say("e/tools/get-sum", SUM).endswith("42.")
    assert marked(other)


def test_a_server_is_started_again_where_that_is_wanted(lab: Lab) -> None:
    """With `restart`, a killed server comes back by itself, and its files work again."""
    mark = lab.mount("e", packages.everything() | {"restart": "on-failure"})
    before = marked(mark)
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    until(lambda: set(marked(mark)) - set(before), "another server is started")
    until(lambda: lab.status("e")["state"] == "ready", "the mount is ready again")
    until(
        lambda: '"content"' in lab.ask("e/tools/get-sum", SUM).out,
        "the tool answers again",
    )
    lab.unmount("e")
    gone(mark)


def test_a_program_that_is_not_there(lab: Lab) -> None:
    """The status names it; the mount that failed can be taken away."""
    lab.begin("no", {"command": "/nonexistent/server"})
    status = lab.settled("no")
    assert status["state"] == "failed"
    assert "/nonexistent/server" in status["reason"]
    assert lab.names("no") == ["status"]
    lab.unmount("no")


def test_a_program_that_is_no_server(lab: Lab) -> None:
    """One that ends at once fails with its exit, and what it complained of is in the status."""
    lab.begin("no", {"command": packages.command(packages.FILESYSTEM), "args": ["/nonexistent/folder"]})
    status = lab.settled("no")
    assert status["state"] == "failed"
    assert "/nonexistent/folder" in json.dumps(status)


def test_what_a_server_writes_to_its_errors_is_shown(lab: Lab) -> None:
    """It is in the status while the server runs."""
    lab.mount("e", packages.everything())
    until(lambda: "Starting default (STDIO) server" in lab.read("e/status"), "the words of the server")


def test_a_server_that_hangs_slows_nobody(lab: Lab) -> None:
    """One that is stopped in the middle answers nothing; the rest of the mount is as quick as before."""
    mark = lab.mount("e", packages.everything() | {"request_ms": 4000})
    stopped = marked(mark)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        asking = lab.asking("e/tools/get-sum", SUM)
        until(asking.blocked, "the program waits for the answer")
        assert "get-sum" in lab.names("e/tools")
        lab.mount("other", packages.everything())
        assert lab.say("other/tools/get-sum", SUM).endswith("42.")
        done = asking.end()
        assert json.loads(done.out)["error"]["code"] == "TIMEOUT"
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    assert lab.say("e/tools/get-sum", SUM).endswith("42.")


def test_unmounting_a_server_that_hangs(lab: Lab) -> None:
    """It is gone from the tree at once, and killed soon."""
    mark = lab.mount("e", packages.everything())
    for pid in marked(mark):
        os.kill(pid, signal.SIGSTOP)
    lab.unmount("e")
    gone(mark)


# --- over HTTP ---


def test_a_session_is_ended_with_its_mount(lab: Lab, http: HttpServer) -> None:
    """The server is told that the session is over."""
    lab.mount("far", {"url": http.url})
    session = http.sessions()[-1]
    assert lab.status("far")["type"] == "http"
    lab.unmount("far")
    until(lambda: session in http.ended(), "the session is ended")


def test_a_server_that_nobody_runs(lab: Lab, http: HttpServer) -> None:
    """A refused connection is a clear failure, at once."""
    lab.begin("no", {"url": "http://127.0.0.1:9/mcp"})
    status = lab.settled("no")
    assert status["state"] == "failed"
    assert status["reason"]


def test_an_address_without_a_server(lab: Lab, http: HttpServer) -> None:
    """So is an address at which something else answers."""
    lab.begin("no", {"url": http.url.replace("/mcp", "/elsewhere")})
    status = lab.settled("no")
    assert status["state"] == "failed"
    assert "Not Found" in status["reason"]


def test_an_http_server_killed_in_mid_call(lab: Lab, tmp_path: pathlib.Path) -> None:
    """The call fails with a reason; when the server is back, it can be mounted again."""
    server = HttpServer(tmp_path / "http")
    try:
        lab.mount("far", {"url": server.url})
        asking = lab.asking(f"far/tools/{LONG}", FOR_EVER)
        until(asking.blocked, "the program waits for the answer")
        server.end()
        error = json.loads(asking.end().out)["error"]
        assert error["message"]
        server = HttpServer(tmp_path / "http", server.port)
        lab.control("unmount far")
        lab.mount("far", {"url": server.url})
        assert lab.say("far/tools/get-sum", SUM).endswith("42.")
    finally:
        server.end()


# --- bounds ---


def test_mounting_and_unmounting_leaks_nothing(lab: Lab) -> None:
    """The daemon has as many descriptors, threads and children after ten rounds as after the first."""
    daemon = lab.daemon.process.pid

    def children() -> list[int]:
        words = pathlib.Path(f"/proc/{daemon}/task/{daemon}/children").read_text().split()
        return [int(word) for word in words]

    def rounds(count: int) -> None:
        for _ in range(count):
            mark = lab.mount("e", packages.everything())
            assert lab.say("e/tools/get-sum", SUM).endswith("42.")
            lab.unmount("e")
            gone(mark)

    rounds(2)
    until(lambda: not children(), "all servers are reaped")
    before = len(os.listdir(f"/proc/{daemon}/fd"))
    rounds(5)
    until(lambda: not children(), "all servers are reaped")
    until(lambda: len(os.listdir(f"/proc/{daemon}/fd")) <= before, "all descriptors are closed")


def test_the_write_does_not_wait(lab: Lab) -> None:
    """Whoever mounts a server that never answers goes on at once, and may take it away again."""
    mark = lab.begin("slow", {"command": "sleep", "args": ["3600"]})
    assert lab.status("slow")["state"] == "connecting"
    lab.unmount("slow")
    gone(mark)


def test_a_server_that_never_answers(lab: Lab) -> None:
    """After the time that the configuration gives to connecting it has failed, and its program is gone."""
    mark = lab.begin("slow", {"command": "sleep", "args": ["3600"], "connect_ms": 500})
    status = lab.settled("slow")
    assert status["state"] == "failed"
    assert "0.5 s" in status["reason"]
    gone(mark)
