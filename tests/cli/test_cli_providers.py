"""`rnix providers`: the table, the check, and what the exit status says."""

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.conftest import Rnix
from tests.daemon import Daemon, environment, running

ROOT = pathlib.Path(__file__).resolve().parents[2]


def row(name: str, **more: Any) -> dict[str, Any]:
    """A line of sys/providers."""
    return {
        "name": name,
        "driver": "openai-compat",
        "state": "ready",
        "available": True,
        "reason": "",
        "latency_ms": None,
        "calls": 0,
        "failures": 0,
        "running": 0,
        "waiting": 0,
        "last_error": "",
        "default_model": "",
    } | more


def lines(*rows: dict[str, Any]) -> str:
    """Rows as a file of the tree."""
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in rows)


DOWN: dict[str, Any] = {"state": "unavailable", "available": False}
NO_KEY: dict[str, Any] = {**DOWN, "reason": "the environment variable GROQ_API_KEY is not set"}


def asked(rnix: Rnix) -> Any:
    """What a device was asked."""
    return json.loads((rnix.root / "request").read_text())


def test_the_table_shows_state_latency_and_reason(rnix: Rnix) -> None:
    """One line each, in the order of the file; a dash where there is nothing to tell."""
    local = row("ollama", latency_ms=12.4, default_model="qwen3:8b", last_error="it was down a while ago")
    busy = row("slow", state="busy", latency_ms=2345.6)
    rnix.lay("sys/providers", lines(local, busy, row("groq", **NO_KEY)))
    done = rnix("providers")
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines() == [
        "NAME    DRIVER         STATE        LATENCY  DEFAULT-MODEL  REASON",
        "ollama  openai-compat  ready           12ms  qwen3:8b       -",
        "slow    openai-compat  busy            2.3s  -              -",
        "groq    openai-compat  unavailable        -  -              "
        "the environment variable GROQ_API_KEY is not set",
    ]
    assert not (rnix.root / "request").exists(), "looking asks nobody"


def test_json_is_what_the_file_holds(rnix: Rnix) -> None:
    """Programs get every field, as one array."""
    rows = [row("ollama", latency_ms=12.4, reason="a\u2028b"), row("groq", **NO_KEY)]
    rnix.lay("sys/providers", lines(*rows))
    assert json.loads(rnix("providers", "--json").out) == rows


def test_looking_succeeds_whatever_there_is_to_see(rnix: Rnix) -> None:
    """That nothing can be used is no failure of the command that tells it."""
    rnix.lay("sys/providers", lines(row("groq", **NO_KEY)))
    assert rnix("providers").status == 0


def test_text_of_providers_cannot_command_the_terminal(rnix: Rnix) -> None:
    """Reasons hold words of others: they stay on their line, without control characters."""
    rnix.lay("sys/providers", lines(row("x", **DOWN, reason="one\ntwo\x1b[2J")))
    done = rnix("providers")
    assert len(done.out.splitlines()) == 2
    assert "\x1b" not in done.out


@pytest.mark.parametrize(
    ("arguments", "body", "rows", "status"),
    [
        ([], {}, [row("a"), row("b", **NO_KEY)], 0),
        ([], {}, [row("a", **DOWN), row("b", **NO_KEY)], 1),
        (["a"], {"provider": "a"}, [row("a")], 0),
        (["a"], {"provider": "a"}, [row("a", **DOWN)], 1),
    ],
)
def test_check_asks_and_its_status_says_whether_anybody_can_be_used(
    rnix: Rnix, arguments: list[str], body: dict[str, str], rows: list[dict[str, Any]], status: int
) -> None:
    """1 where the one that is named cannot be used, or where none can."""
    rnix.lay("answer", lines(*rows))
    for options in ([], ["--json"]):
        done = rnix("providers", "check", *arguments, *options)
        assert (done.status, done.err) == (status, "")
        assert asked(rnix) == {"device": "sys/check", **body}
    assert json.loads(done.out) == rows


def test_check_counts_the_models(rnix: Rnix) -> None:
    """How many models a provider says it has; their names are for programs."""
    models = [{"name": "small"}, {"name": "large", "context_window": 4096}]
    rnix.lay("answer", lines(row("ollama", latency_ms=3, models=models), row("groq", **NO_KEY, models=[])))
    done = rnix("providers", "check")
    assert done.out.splitlines()[0].split() == [
        *("NAME", "DRIVER", "STATE", "LATENCY", "DEFAULT-MODEL", "MODELS", "REASON"),
    ]
    assert done.out.splitlines()[1].split() == ["ollama", "openai-compat", "ready", "3ms", "-", "2", "-"]
    assert json.loads(rnix("providers", "check", "--json").out)[0]["models"] == models


def test_an_unknown_provider_is_named(rnix: Rnix) -> None:
    """The device's own words, with the names there are."""
    error = {"code": "NOT_FOUND", "message": "no provider 'x'; there are: script", "device": "/sys/check"}
    rnix.lay("answer", json.dumps({"error": error}))
    done = rnix("providers", "check", "x")
    assert (done.status, done.err) == (
        1,
        "[NOT_FOUND] Check: /sys/check (no provider 'x'; there are: script)\n",
    )


@pytest.mark.parametrize("arguments", [["chek"], ["check", "a", "b"]])
def test_wrong_usage_is_told(rnix: Rnix, arguments: list[str]) -> None:
    """As for every command: status 2, and nothing is asked."""
    done = rnix("providers", *arguments)
    assert (done.status, done.out) == (2, "")
    assert "Usage: rnix providers" in done.err


# --- a real daemon ---


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon whose user has a provider that cannot be reached and one without its key."""
    folder = tmp_path_factory.mktemp("cliproviders")
    config = pathlib.Path(environment(folder)["XDG_CONFIG_HOME"]) / "rnix"
    config.mkdir()
    entries = [
        {
            "name": "dead",
            "driver": "openai-compat",
            "base_url": "http://127.0.0.1:1/v1",
            "default_model": "m",
        },
        {"name": "keyless", "driver": "anthropic", "api_key_env": "NOBODY_HAS_THIS"},
    ]
    (config / "providers.yaml").write_text(json.dumps({"providers": entries}))
    with running(folder) as daemon:
        yield daemon


def command(daemon: Daemon, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the command against a daemon."""
    program = [sys.executable, "-P", "-m", "rnixfs_cli", *arguments]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "cli")])
    env = daemon.env | {"RNIX_MOUNT": str(daemon.mount), "PYTHONPATH": paths}
    return subprocess.run(
        program, env=env, cwd=daemon.host, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_command_shows_what_the_daemon_knows(daemon: Daemon) -> None:
    """Configured and built-in providers, and why one cannot be used before anybody was asked."""
    done = command(daemon, "providers", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    rows = {one["name"]: one for one in json.loads(done.stdout)}
    assert {"script", "claude", "cursor", "dead", "keyless"} == set(rows)
    assert (rows["dead"]["state"], rows["dead"]["default_model"]) == ("ready", "m")
    assert (rows["keyless"]["state"], rows["keyless"]["available"]) == ("unavailable", False)
    assert "NOBODY_HAS_THIS" in rows["keyless"]["reason"]


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [("script", 0, ""), ("dead", 1, "127.0.0.1:1"), ("keyless", 1, "NOBODY_HAS_THIS")],
)
def test_a_check_tells_who_answers(daemon: Daemon, name: str, status: int, words: str) -> None:
    """Asking finds out what looking cannot: that nobody listens there."""
    done = command(daemon, "providers", "check", name, "--json")
    (found,) = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (status, "")
    assert (found["name"], found["available"]) == (name, status == 0)
    assert words in found["reason"]


def test_without_a_daemon_that_can_be_started_the_reason_is_one_line(tmp_path: pathlib.Path) -> None:
    """Where none runs and none can, the command says why, as every command does."""
    mount = tmp_path / "taken"
    mount.mkdir()
    (mount / "file").touch()
    env = environment(tmp_path) | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "cli")])}
    program = [sys.executable, "-P", "-m", "rnixfs_cli", "providers", "--mount", str(mount)]
    done = subprocess.run(
        program, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert str(mount) in done.stderr
    assert "not empty" in done.stderr
