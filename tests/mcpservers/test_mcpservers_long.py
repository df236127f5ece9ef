"""What takes time at real servers: progress, giving up, and lists that change meanwhile."""

import json
import pathlib
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.daemon import until
from tests.mcpservers import packages
from tests.mcpservers.packages import HttpServer
from tests.mcpservers.serverlab import Lab

LONG = "e/tools/trigger-long-running-operation"
FOR_EVER = {"duration": 3600, "steps": 36000}
SILENT = {"duration": 3600, "steps": 1}


class Tap:
    """What a server was told.

    Args:
        path: the file in which that is kept.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def said(self, method: str) -> list[dict[str, Any]]:
        """All messages of a method."""
        lines = self.path.read_bytes().splitlines(keepends=True) if self.path.exists() else []
        whole = [json.loads(line) for line in lines if line.endswith(b"\n")]
        return [message for message in whole if message.get("method") == method]

    def await_said(self, method: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait until there are so many messages of a method."""
        until(lambda: len(self.said(method)) >= count, f"{count} {method} in {self.path}")
        return self.said(method)


@pytest.fixture
def tap(shared: Lab, tmp_path: pathlib.Path) -> Iterator[Tap]:
    """server-everything mounted as `e`, with all that it is told."""
    found = Tap(tmp_path / "said")
    with shared.mounted("e", packages.tapped(packages.everything(), found.path)):
        yield found


def test_a_long_call_answers_when_it_is_done(shared: Lab, everything: str) -> None:
    """A read waits as long as the tool takes, and no longer."""
    tool = f"{everything}/tools/trigger-long-running-operation"
    assert "completed" in shared.say(tool, {"duration": 0.3, "steps": 3})


def test_progress_is_asked_for(shared: Lab, tap: Tap) -> None:
    """The server is given a token for each call, which is how it may tell of its progress."""
    assert "completed" in shared.say(LONG, {"duration": 0.2, "steps": 2})
    call = tap.said("tools/call")[0]["params"]
    assert call["name"] == "trigger-long-running-operation"
    assert call["_meta"]["progressToken"] is not None


def test_closing_the_file_cancels_at_the_server(shared: Lab, tap: Tap) -> None:
    """A program that is ended while it waits for an answer gives the call up; the server is told which."""
    asking = shared.asking(LONG, FOR_EVER)
    call = tap.await_said("tools/call")[0]
    until(asking.blocked, "the program waits for the answer")
    asking.signal(signal.SIGTERM)
    cancelled = tap.await_said("notifications/cancelled")
    assert [one["params"]["requestId"] for one in cancelled] == [call["id"]]
    assert "completed" in shared.say(LONG, {"duration": 0.1, "steps": 1})


def test_closing_the_file_cancels_over_http(shared: Lab, http: HttpServer) -> None:
    """The same for a server that is reached by HTTP; its answers to others go on."""
    tap = Tap(http.said)
    mine = {"duration": 3601, "steps": 1}

    def calls() -> list[dict[str, Any]]:
        return [one for one in tap.said("tools/call") if one["params"]["arguments"] == mine]

    asking = shared.asking("http/tools/trigger-long-running-operation", mine)
    until(calls, "the call has come to the server")
    until(asking.blocked, "the program waits for the answer")
    asking.signal(signal.SIGTERM)
    until(
        lambda: (
            calls()[0]["id"] in [one["params"]["requestId"] for one in tap.said("notifications/cancelled")]
        ),
        "the server is told",
    )
    shared.daemon.forget(asking)
    assert shared.say("http/tools/get-sum", {"a": 1, "b": 2}) == "The sum of 1 and 2 is 3."


def test_ctrl_c_cancels_too(shared: Lab, tap: Tap) -> None:
    """The same for the signal of a terminal, by which a read ends at once."""
    asking = shared.asking(LONG, FOR_EVER)
    tap.await_said("tools/call")
    until(asking.blocked, "the program waits for the answer")
    asking.signal(signal.SIGINT)
    tap.await_said("notifications/cancelled")
    assert asking.end().status != 0


def test_clearing_the_mailbox_cancels(shared: Lab, tap: Tap) -> None:
    """A request that was only written runs until an empty write takes it back."""
    path = f"$M/mnt/mcp/{LONG}"
    script = shared.daemon.script(
        f"echo '{json.dumps(FOR_EVER)}' > {path}; read -r; : > {path}; read -r; cat {path}"
    )
    tap.await_said("tools/call")
    assert tap.said("notifications/cancelled") == []
    assert script.process.stdin is not None
    script.process.stdin.write(b"\n")
    script.process.stdin.flush()
    tap.await_said("notifications/cancelled")
    done = script.end(b"\n")
    assert "does" in json.loads(done.out)


def test_a_call_past_its_time_is_cancelled(shared: Lab, tmp_path: pathlib.Path) -> None:
    """After the time that the configuration gives a request, its answer is TIMEOUT and the server is told."""
    tap = Tap(tmp_path / "said")
    with shared.mounted("e", packages.tapped(packages.everything(), tap.path) | {"request_ms": 3000}):
        done = shared.ask(LONG, SILENT)
        assert json.loads(done.out)["error"]["code"] == "TIMEOUT"
        tap.await_said("notifications/cancelled")


def test_progress_keeps_a_call_alive(shared: Lab) -> None:
    """The time of a request begins anew with each sign of progress."""
    with shared.mounted("e", packages.everything() | {"request_ms": 6000}):
        assert "completed" in shared.say(LONG, {"duration": 7.5, "steps": 75})


def test_progress_is_shown(shared: Lab, everything: str) -> None:
    """The status of a server has its requests that run, each with how far it is."""
    tool = "tools/trigger-long-running-operation"
    asking = shared.asking(f"{everything}/{tool}", FOR_EVER)

    def progress() -> int:
        found = shared.status(everything)["requests"]
        return max((one.get("progress", 0) for one in found if one["request"] == tool), default=0)

    until(lambda: progress() >= 2, "two steps of progress")
    shared.daemon.forget(asking)
    until(lambda: shared.status(everything)["requests"] == [], "the request is given up")


def test_other_calls_pass_a_long_one(shared: Lab, everything: str) -> None:
    """While one call lasts, the same server answers others."""
    asking = shared.asking(f"{everything}/tools/trigger-long-running-operation", FOR_EVER)
    until(asking.blocked, "the program waits for the answer")
    assert shared.say(f"{everything}/tools/get-sum", {"a": 1, "b": 2}) == "The sum of 1 and 2 is 3."
    assert shared.read(f"{everything}/resources/demo:/resource/dynamic/text/1").startswith("Resource 1")
    assert asking.process.poll() is None
    shared.daemon.forget(asking)


def test_a_changed_list_shows_without_a_new_mount(shared: Lab, tap: Tap) -> None:
    """When a server says that its list has changed, it is asked again, and the folder shows it."""
    folder = "e/resources/demo:/resource"
    assert "session" not in shared.names(folder)
    shared.call("e/tools/gzip-file-as-resource", {"name": "new.gz", "data": "data:text/plain,x"})
    shared.await_name(folder, "session")
    shared.await_name(f"{folder}/session", "new.gz")
    assert len(tap.said("resources/list")) >= 2


def test_tools_that_come_later_show(shared: Lab) -> None:
    """server-everything adds tools once it knows what its client can do; they are listed, too."""
    with shared.mounted("e", packages.everything()):
        shared.await_name("e/tools", "simulate-research-query")
        assert shared.json("e/tools/simulate-research-query.json")["name"] == "simulate-research-query"


def test_a_resource_is_read_anew_after_it_changed(shared: Lab, tmp_path: pathlib.Path) -> None:
    """A document is never older than the last change that its server made."""
    with shared.mounted("memory", packages.memory(tmp_path / "graph.json")):
        path = "memory/resources/memory:/knowledge-graph"
        assert shared.json(path) == {"entities": [], "relations": []}
        for name in ("a", "b", "c"):
            entity: dict[str, Any] = {"name": name, "entityType": "letter", "observations": []}
            shared.call("memory/tools/create_entities", {"entities": [entity]})
            assert shared.json(path)["entities"][-1]["name"] == name
