"""Agents that use the tools of real servers, from spawn to exit."""

import json
import os
import pathlib
import signal
from typing import Any

import pytest

from tests.daemon import running, until
from tests.mcpservers import packages
from tests.mcpservers.serverlab import MARK, Lab, gone, marked

ADA = {"name": "Ada", "entityType": "person", "observations": ["wrote a program"]}


class Shelf:
    """The configuration of a user: servers in `mcp.yaml`, and an agent for each list of them.

    Args:
        lab: the daemon.
        mark: of all servers.
    """

    def __init__(self, lab: Lab, mark: str) -> None:
        self.lab = lab
        self.mark = mark
        self.folder = pathlib.Path(lab.daemon.env["XDG_CONFIG_HOME"]) / "rnix"

    def servers(self, **servers: dict[str, Any]) -> None:
        """Write `mcp.yaml`. YAML takes JSON as it is."""
        entries = [
            {"name": name, **config, "env": config.get("env", {}) | {MARK: self.mark}}
            for name, config in servers.items()
        ]
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "mcp.yaml").write_text(json.dumps({"servers": entries}))

    def agent(self, name: str, mcp: list[str], allowed: list[str] | None = None) -> None:
        """Write an agent that has servers."""
        place = self.folder / "agents" / name
        place.mkdir(parents=True)
        manifest = {"name": name, "description": "An agent of a test.", "mcp": mcp}
        if allowed is not None:
            manifest |= {"allowed_devices": allowed}
        (place / "agent.yaml").write_text(json.dumps(manifest))
        (place / "instructions.md").write_text("Do what is asked.\n")

    def spawn(self, agent: str, intent: str, **more: object) -> int:
        """Start an agent; its pid."""
        request = {"provider": "script", "agent": agent, "intent": intent, **more}
        env = {"REQUEST": json.dumps(request)}
        done = self.lab.daemon.bash('echo "$REQUEST" > $M/proc/spawn && cat $M/proc/spawn', env=env)
        assert (done.status, done.err) == (0, ""), done
        return int(done.out)

    def end(self, pid: int) -> dict[str, Any]:
        """Wait for the end of a process; how it ended."""
        found: dict[str, Any] = json.loads(self.lab.daemon.out(f"cat $M/proc/{pid}/wait"))
        return found


@pytest.fixture
def shelf(lab: Lab, tmp_path: pathlib.Path) -> Shelf:
    """A user whose servers are real."""
    found = Shelf(lab, os.urandom(8).hex())
    found.servers(
        memory=packages.memory(tmp_path / "graph.json"),
        everything=packages.everything(),
        broken={"command": "/nonexistent/server"},
    )
    return found


def turns(*calls: tuple[str, dict[str, Any]]) -> str:
    """An intent that has the scripted model make these calls, one a turn, and tell all results."""
    return "script: " + json.dumps([[{"tool": tool, "arguments": given}] for tool, given in calls])


def test_an_agent_uses_servers_of_its_own(shelf: Shelf, tmp_path: pathlib.Path) -> None:
    """It gets the tools of the servers that it names, changes what one keeps, and leaves none behind."""
    shelf.agent("librarian", ["memory", "everything"])
    intent = turns(
        ("mcp__memory__create_entities", {"entities": [ADA]}),
        ("mcp__memory__search_nodes", {"query": "program"}),
        ("mcp__everything__get-sum", {"a": 40, "b": 2}),
    )
    pid = shelf.spawn("librarian", intent)
    assert shelf.end(pid)["code"] == 0
    told = shelf.lab.daemon.out(f"cat $M/proc/{pid}/result")
    assert "Ada" in told
    assert "The sum of 40 and 2 is 42." in told
    assert "Ada" in (tmp_path / "graph.json").read_text()
    gone(shelf.mark)
    assert shelf.lab.names(".") == ["ctl"]


def test_the_servers_of_an_agent_are_its_own(shelf: Shelf) -> None:
    """They are mounted under its pid while it runs, no other agent gets them, and killing it ends them."""
    shelf.agent("librarian", ["memory"])
    pid = shelf.spawn("librarian", "wait 3600 s")
    shelf.lab.await_name("", f"{pid}-memory")
    shelf.lab.ready(f"{pid}-memory")
    assert "read_graph" in shelf.lab.names(f"{pid}-memory/tools")
    other = shelf.spawn("default", turns(("mcp__memory__read_graph", {})))
    shelf.end(other)
    assert "relations" not in shelf.lab.daemon.out(f"cat $M/proc/{other}/result")
    shelf.lab.daemon.out(f"echo kill > $M/proc/{pid}/ctl")
    assert shelf.end(pid)["code"] == 1
    gone(shelf.mark)
    assert shelf.lab.names(".") == ["ctl"]


def test_an_agent_gets_all_servers_or_none(shelf: Shelf) -> None:
    """Where one of its servers does not start, the others are ended, and the reason names the one."""
    shelf.agent("librarian", ["memory", "broken"])
    pid = shelf.spawn("librarian", "say something")
    end = shelf.end(pid)
    assert end["code"] == 1
    assert "broken" in end["reason"]
    assert "/nonexistent/server" in end["reason"]
    gone(shelf.mark)
    assert shelf.lab.names(".") == ["ctl"]


def test_a_tool_that_refuses_is_told_to_the_model(shelf: Shelf) -> None:
    """Wrong arguments, and errors of the tool, are results: the agent goes on."""
    shelf.agent("librarian", ["everything"])
    intent = turns(
        ("mcp__everything__get-sum", {"a": "one", "b": 2}),
        ("mcp__everything__echo", {"message": "still here"}),
    )
    pid = shelf.spawn("librarian", intent)
    assert shelf.end(pid)["code"] == 0
    told = shelf.lab.daemon.out(f"cat $M/proc/{pid}/result")
    assert "number" in told
    assert "Echo: still here" in told


def test_an_agent_with_few_rights_uses_its_server(shelf: Shelf) -> None:
    """What it names as its servers it may use beside the devices that it is allowed."""
    shelf.agent("narrow", ["everything"], ["/dev/glob"])
    pid = shelf.spawn(
        "narrow", turns(("mcp__everything__echo", {"message": "in"}), ("shell", {"command": "id"}))
    )
    shelf.end(pid)
    told = shelf.lab.daemon.out(f"cat $M/proc/{pid}/result")
    assert "Echo: in" in told
    assert "uid=" not in told


def test_a_server_that_everybody_has(shelf: Shelf) -> None:
    """One that people have mounted by its name in the file is there for an agent that names none."""
    done = shelf.lab.control("mount everything")
    assert (done.status, done.err) == (0, "")
    shelf.lab.ready("everything")
    pid = shelf.spawn("default", turns(("mcp__everything__get-sum", {"a": 1, "b": 1})))
    shelf.end(pid)
    assert "The sum of 1 and 1 is 2." in shelf.lab.daemon.out(f"cat $M/proc/{pid}/result")


def test_an_agent_whose_server_is_killed(shelf: Shelf) -> None:
    """A call that a dead server owes fails as a result with the reason; the agent lives."""
    shelf.agent("librarian", ["everything"])
    long = ("mcp__everything__trigger-long-running-operation", {"duration": 3600, "steps": 36000})
    pid = shelf.spawn("librarian", turns(long))
    shelf.lab.await_name("", f"{pid}-everything")
    until(
        lambda: '"requests":[{' in shelf.lab.daemon.bash(f"cat $M/mnt/mcp/{pid}-everything/status").out,
        "the call is under way",
    )
    for server in marked(shelf.mark):
        os.kill(server, signal.SIGKILL)
    assert shelf.end(pid)["code"] == 0
    assert "SIGKILL" in shelf.lab.daemon.out(f"cat $M/proc/{pid}/result")


def test_agents_servers_die_with_a_killed_daemon(tmp_path: pathlib.Path) -> None:
    """After `kill -9` the next daemon ends them; the agent is suspended, and `wake` brings them back."""
    with running(tmp_path) as daemon:
        shelf = Shelf(Lab(daemon), os.urandom(8).hex())
        shelf.servers(everything=packages.everything())
        shelf.agent("librarian", ["everything"])
        pid = shelf.spawn("librarian", "wait 3600 s")
        shelf.lab.await_name("", f"{pid}-everything")
        shelf.lab.ready(f"{pid}-everything")
        before = marked(shelf.mark)
        assert before
        daemon.signal(signal.SIGKILL)
        daemon.wait()
        daemon.start()
        until(lambda: not set(marked(shelf.mark)) & set(before), "the servers of the killed daemon are gone")
        until(
            lambda: json.loads(daemon.out(f"cat $M/proc/{pid}/status"))["state"] == "suspended",
            "the agent is suspended",
        )
        assert shelf.lab.names(".") == ["ctl"]
        daemon.out(f"echo wake > $M/proc/{pid}/ctl")
        shelf.lab.await_name("", f"{pid}-everything")
        shelf.lab.ready(f"{pid}-everything")
        daemon.out(f"echo kill > $M/proc/{pid}/ctl")
        gone(shelf.mark)
