"""`rnix mcp`: the table, changing mcp.yaml, trying a server; and agents that use one, from end to end."""

import contextlib
import json
import os
import pathlib
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.conftest import Rnix
from tests.daemon import Daemon, environment, quoted, running, until

ROOT = pathlib.Path(__file__).resolve().parents[2]
SERVER = pathlib.Path(__file__).with_name("plainserver.py")


def server(name: str, *mounts: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A line of sys/mcp."""
    shown = {"name": name, "type": "stdio", "target": f"uvx {name}", "autostart": False, "file": "m.yaml:1"}
    return shown | more | {"mounts": list(mounts)}


def mount(name: str, state: str = "ready", reason: str = "") -> dict[str, Any]:
    """A mount of a server."""
    return {"name": name, "state": state, "reason": reason, "owner": 0}


def lines(*rows: dict[str, Any]) -> str:
    """Rows as a file of the tree."""
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in rows)


# --- list ---


def test_the_table_has_a_line_for_each_mount(rnix: Rnix) -> None:
    """And one for each server that is mounted nowhere."""
    rows = [
        server("time", mount("time"), mount("7-time", "connecting")),
        server("git", mount("git", "failed", "no such\nprogram\x1b[2J")),
        server("web", type="http", target="https://example.org/mcp"),
    ]
    rnix.lay("sys/mcp", lines(*rows))
    done = rnix("mcp", "list")
    assert (done.status, done.err) == (0, "")
    assert [line.split() for line in done.out.splitlines()[:4]] == [
        ["NAME", "TYPE", "MOUNTS", "STATE", "TARGET", "REASON"],
        ["time", "stdio", "time", "ready", "uvx", "time", "-"],
        ["time", "stdio", "7-time", "connecting", "uvx", "time", "-"],
        ["git", "stdio", "git", "failed", "uvx", "git", *done.out.splitlines()[3].split()[6:]],
    ]
    assert done.out.splitlines()[4].split() == ["web", "http", "-", "-", "https://example.org/mcp", "-"]
    assert "\x1b" not in done.out
    assert json.loads(rnix("mcp", "list", "--json").out) == rows


def test_an_empty_list_says_how_to_begin(rnix: Rnix) -> None:
    """For people; programs get an empty list."""
    rnix.lay("sys/mcp", "")
    assert "rnix mcp add" in rnix("mcp", "list").out
    assert json.loads(rnix("mcp", "list", "--json").out) == []


# --- add and remove ---


@pytest.fixture
def config(rnix: Rnix, tmp_path: pathlib.Path) -> pathlib.Path:
    """The global mcp.yaml of the command."""
    rnix.env = {**rnix.env, "XDG_CONFIG_HOME": str(tmp_path / "config")}
    return tmp_path / "config" / "rnix" / "mcp.yaml"


def test_adding_and_removing_change_the_global_file(rnix: Rnix, config: pathlib.Path) -> None:
    """Without a daemon; the file is its user's alone, and comments stay."""
    done = rnix("mcp", "add", "time", "--env", "TZ=a=b", "--autostart", "--", "uvx", "x", "--port", "1")
    assert (done.status, done.out, done.err) == (0, f"[kernel] added time: {config}\n", "")
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    config.write_text("# mine\n" + config.read_text())
    done = rnix(
        "mcp", "add", "web", "--url", "http://h/mcp", "--header", "Authorization: Bearer ${T}", "--json"
    )
    assert json.loads(done.out) == {"added": "web", "file": str(config)}
    text = config.read_text()
    assert text.startswith("# mine\n")
    for words in ("- uvx", "command: uvx", '- "--port"', 'TZ: "a=b"', "autostart: true", '"Bearer ${T}"')[1:]:
        assert words in text
    assert rnix("mcp", "remove", "time").out == f"[kernel] removed time: {config}\n"
    assert "uvx" not in config.read_text()


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["add", "web", "--", "x"], 1, "[EXISTS] ("),
        (["add", "bad"], 1, "[INVALID] (command is missing; add command"),
        (["add", "a b", "x"], 1, "[INVALID] (name is 'a b'"),
        (["add", "bad", "--url", "http://h/", "x"], 1, "url stands beside command"),
        (["add", "bad", "--env", "API_KEY=hunter2", "x"], 1, "write ${VARIABLE} in its place"),
        (["add", "bad", "--env", "hunter2", "x"], 2, "write NAME=VALUE"),
        (["add", "bad", "--restart", "often", "x"], 2, "--restart"),
        (["remove", "wep"], 1, "has no server 'wep'; it has: web (did you mean web?)"),
        (["add"], 2, "NAME"),
    ],
)
def test_what_cannot_be_changed_is_told(
    rnix: Rnix, config: pathlib.Path, arguments: list[str], status: int, words: str
) -> None:
    """The file stays as it was, and no value is repeated."""
    rnix("mcp", "add", "web", "--url", "http://h/mcp")
    before = config.read_text()
    done = rnix("mcp", *arguments)
    assert (done.status, done.out) == (status, "")
    assert words in done.err
    assert "hunter2" not in done.err
    assert config.read_text() == before


def test_a_wrong_file_is_not_touched(rnix: Rnix, config: pathlib.Path) -> None:
    """The refusal names its line."""
    config.parent.mkdir(parents=True)
    config.write_text("version: 1\nservers: 3\n")
    done = rnix("mcp", "add", "time", "x")
    assert done.status == 1
    assert f"{config}:2: servers is a whole number" in done.err
    assert config.read_text() == "version: 1\nservers: 3\n"


# --- a real daemon and a real server ---


def configure(folder: pathlib.Path) -> None:
    """A user with a server that works and starts with the daemon, one that fails, and agents of both."""
    config = pathlib.Path(environment(folder)["XDG_CONFIG_HOME"]) / "rnix"
    program = {"command": sys.executable, "args": [str(SERVER), str(folder)]}
    servers = {
        "plain": {**program, "autostart": True, "env": {"SECRET": "${PLAIN_SECRET}"}},
        "broken": {**program, "args": [str(SERVER), "fail"]},
    }
    for name, used in (("loud", "plain"), ("failing", "plain, broken")):
        agent = config / "agents" / name
        agent.mkdir(parents=True)
        (agent / "agent.yaml").write_text(f"name: {name}\ndescription: for tests\nmcp: [{used}]\n")
    (config / "mcp.yaml").write_text(json.dumps({"servers": servers}))


ENV = {"PLAIN_SECRET": "open sesame"}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with these servers."""
    folder = tmp_path_factory.mktemp("climcp")
    configure(folder)
    with running(folder, env=ENV) as daemon:
        yield daemon


def command(daemon: Daemon, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the command against a daemon."""
    program = [sys.executable, "-P", "-m", "rnixfs_cli", *arguments]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "cli")])
    env = daemon.env | {"RNIX_MOUNT": str(daemon.mount), "PYTHONPATH": paths}
    return subprocess.run(
        program, env=env, cwd=daemon.host, capture_output=True, text=True, timeout=90, check=False
    )


def states(daemon: Daemon) -> dict[str, str]:
    """The state of each mount that `list` shows."""
    rows = json.loads(command(daemon, "mcp", "list", "--json").stdout)
    return {mount["name"]: mount["state"] for row in rows for mount in row["mounts"]}


def test_check_says_what_a_server_offers(daemon: Daemon) -> None:
    """And leaves no mount behind, whether it connected or not."""
    done = command(daemon, "mcp", "check", "plain", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert (found["ready"], found["tools"], found["resources"], found["prompts"]) == (True, 2, 0, 0)
    assert found["took_ms"] > 0
    assert "connected in" in command(daemon, "mcp", "check", "plain").stdout
    done = command(daemon, "mcp", "check", "broken", "--json")
    assert (done.returncode, json.loads(done.stdout)["ready"]) == (1, False)
    assert json.loads(done.stdout)["reason"]
    done = command(daemon, "mcp", "check", "nobody")
    assert done.returncode == 1
    assert "no MCP server 'nobody'; there are: plain, broken" in done.stderr
    assert not [name for name in states(daemon) if name.startswith("check-")]


def test_a_server_that_starts_with_the_daemon_is_there(daemon: Daemon) -> None:
    """Its tools can be used, and the variable that it names was filled in."""
    script = (
        'until [ "$(jq -r .state $M/mnt/mcp/plain/status)" = ready ]; do sleep 0.1; done; '
        "exec 3<> $M/mnt/mcp/plain/tools/reveal; echo '{}' >&3; jq -r .text <&3"
    )
    done = daemon.bash(script)
    assert (done.status, done.out) == (0, "OPEN SESAME\n"), done
    assert states(daemon)["plain"] == "ready"


def test_an_agent_uses_a_tool_of_its_server(daemon: Daemon) -> None:
    """From the spawn to the result; then its mount is gone."""
    intent = 'call: mcp__plain__shout {"text": "well done"}'
    done = command(daemon, "spawn", "--agent", "loud", "--provider", "script", intent)
    assert done.returncode == 0, done
    assert "WELL DONE" in done.stdout
    assert not [name for name in states(daemon) if name[0].isdecimal()]


def test_an_agent_whose_server_does_not_start_ends_with_the_reason(daemon: Daemon) -> None:
    """Code 1, and nothing of the server that did start is left."""
    done = command(daemon, "spawn", "--agent", "failing", "--provider", "script", "hello")
    assert done.returncode == 1
    assert "mcp: server 'broken':" in done.stdout + done.stderr
    assert not [name for name in states(daemon) if name[0].isdecimal()]


def programs(folder: pathlib.Path) -> list[int]:
    """The processes of servers that were started for a folder."""
    found = []
    for place in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (place / "cmdline").read_bytes().split(b"\0")
            if os.fsencode(SERVER) in words and os.fsencode(folder) in words:
                found.append(int(place.name))
    return found


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_is_resumed_has_its_server_again(tmp_path: pathlib.Path, end: signal.Signals) -> None:
    """Whether the daemon before left in order or was killed; of that one's servers none is left."""
    configure(tmp_path)
    turns = [
        [{"tool": "shell", "arguments": {"command": "sleep 600"}}],
        [{"tool": "mcp__plain__shout", "arguments": {"text": "back again"}}],
    ]
    request = {"intent": f"script: {json.dumps(turns)}", "agent": "loud", "provider": "script"}
    with running(tmp_path, env=ENV) as daemon:
        spawn = f"echo {quoted(json.dumps(request))} > $M/proc/spawn; cat $M/proc/spawn"
        pid = daemon.out(spawn).strip()
        daemon.out(f"until grep -q 'sleep 600' $M/proc/{pid}/log; do sleep 0.1; done")
        assert states(daemon)[f"{pid}-plain"] == "ready"
        before = programs(tmp_path)
        assert len(before) == 2, "that of the process, and the one that people share"
        daemon.signal(end)
        daemon.wait()
        daemon.start()
        until(lambda: not set(before) & set(programs(tmp_path)), "the servers of the daemon before are gone")
        assert f"{pid}-plain" not in states(daemon), "nothing starts by itself"
        assert command(daemon, "resume", pid).returncode == 0
        done = command(daemon, "wait", pid)
        assert (done.returncode, done.stderr) == (0, "")
        assert "BACK AGAIN" in daemon.out(
            f"cat $M/proc/{pid}/result 2>/dev/null || cat $M/proc/history/*/result"
        )
        assert f"{pid}-plain" not in states(daemon)
