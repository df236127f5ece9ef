"""`rnix replay`, `record` and `test`: which program they run, on which log, and what comes of its end."""

import contextlib
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys

import pytest

from rnixfs.storeconfig import state_folder
from rnixfs_cli import recorded

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS = 60
UUID = "0192f3a0-0000-7000-8000-000000000005"

# Stands in for the daemon's programs: says how it was called.
PROGRAM = """
import json, os, pathlib, sys
print(json.dumps([pathlib.Path(sys.argv[0]).stem, *sys.argv[1:]]), flush=True)
print("from stdin:", sys.stdin.read(), file=sys.stderr)
sys.exit(int(os.environ.get("STATUS", "0")))
"""
WAITS = """
import os, signal, sys
print(os.getpid(), flush=True)
signal.pause()
"""


class Host:
    """A host with a stand-in for the daemon's programs, and no daemon."""

    def __init__(self, folder, program=PROGRAM):
        self.folder = folder
        self.mount = folder / "mnt"
        package = folder / "packages" / "rnixfs"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        for name in ("replay", "casefile"):
            (package / f"{name}.py").write_text(program)
        self.env = os.environ | {
            "HOME": str(folder),
            "XDG_DATA_HOME": str(folder / "data"),
            "XDG_RUNTIME_DIR": str(folder),
            "RNIX_MOUNT": str(self.mount),
            "PYTHONPATH": os.pathsep.join([str(folder / "packages"), str(ROOT / "cli")]),
        }
        self.log = folder / "data" / "rnix" / recorded_name(self.mount) / "log.db"

    def start(self, *words):
        return subprocess.Popen(
            [sys.executable, "-m", "rnixfs_cli", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.env,
            cwd=self.folder,
        )

    def __call__(self, *words, data=""):
        process = self.start(*words)
        try:
            out, err = process.communicate(data, timeout=SECONDS)
        finally:
            process.kill()
        return process.returncode, out, err

    def lay_log(self, path=None):
        path = path or self.log
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        return str(path)

    def live(self, config):
        """Lay the files of a mount that answers."""
        for name, text in {
            "sys/version": "0.0.1\n",
            "sys/config": json.dumps(config),
        }.items():
            path = self.mount / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def recorded_name(mount):
    return os.path.basename(recorded.state_folder(str(mount)))


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path.resolve())


@pytest.mark.parametrize("data", ["", "data", "/data"])
@pytest.mark.parametrize("mount", ["/home/me/rnix", "/", "/tmp/" + "ä" * 127])
def test_the_state_lies_where_the_daemon_puts_it(monkeypatch, data, mount):
    """The command imports nothing of the daemon, so what it computes is compared with the daemon's here."""
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_DATA_HOME", data)
    assert recorded.state_folder(mount) == str(state_folder(os.environ, mount))


@pytest.mark.parametrize(
    ("words", "called"),
    [
        (["replay", "5"], ["replay", "--log", "LOG", "5"]),
        (["replay", "5", "--recorded", "--json"], ["replay", "--log", "LOG", "--recorded", "--json", "5"]),
        (["--json", "replay", UUID], ["replay", "--log", "LOG", "--json", UUID]),
        (["record", "5"], ["casefile", "record", "--log", "LOG", "5"]),
    ],
)
def test_the_program_gets_the_log_of_the_mountpoint(host, words, called):
    """Without a daemon the log lies where its mountpoint says; none is started for this."""
    log = host.lay_log()
    status, out, err = host(*words, data="typed")
    assert json.loads(out) == [log if word == "LOG" else word for word in called]
    assert (status, err) == (0, "from stdin: typed\n"), "the terminal is passed through"
    assert not host.mount.exists()


def test_cases_need_no_log(host):
    """What is tested is in the files."""
    assert json.loads(host("test", "a.yaml", "b.yaml")[1]) == ["casefile", "test", "--", "a.yaml", "b.yaml"]
    called = ["casefile", "test", "--live-tools", "--", "-a.yaml"]
    assert json.loads(host("test", "--live-tools", "--", "-a.yaml")[1]) == called
    assert host("test")[0] == 2


@pytest.mark.parametrize("command", ["replay", "record"])
def test_a_daemon_knows_where_its_log_is(host, command):
    """It may have been started with another folder."""
    log = host.lay_log(host.folder / "elsewhere" / "log.db")
    host.live({"log": log})
    for name in ("5", UUID):
        assert json.loads(host(command, name)[1])[-3:] == ["--log", log, name]


@pytest.mark.parametrize("command", ["replay", "record"])
def test_a_process_by_the_beginning_of_its_uuid(host, command):
    """The log tells which one it is, with and without a daemon; more than one is refused with their names."""
    host.log.parent.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(host.log)) as log, log:
        log.execute("CREATE TABLE processes (pid INTEGER PRIMARY KEY, uuid TEXT)")
        twin = UUID.replace("a0", "a1", 1)
        log.executemany("INSERT INTO processes VALUES (?, ?)", [(5, UUID), (6, twin)])
    assert json.loads(host(command, "0192f3a0")[1])[-1] == UUID
    assert json.loads(host(command, "0192f4")[1])[-1] == "0192f4", "the program says that there is none"
    status, out, err = host(command, "0192f3")
    assert (status, out) == (1, "")
    assert "0192f3a0-0000-7000 (PID 5), 0192f3a1-0000-7000 (PID 6)" in err


@pytest.mark.parametrize("config", [{"log": ""}, {}])
def test_a_log_in_memory_cannot_be_replayed(host, config):
    """The message says what is missing."""
    host.lay_log()
    host.live(config)
    status, out, err = host("replay", "5")
    assert (status, out) == (1, "")
    assert err.startswith(f"[INVALID] Replay: {host.mount} (the daemon's log is in memory only")


def test_a_log_may_be_named(host):
    """One that was set aside, or whose mount is elsewhere."""
    host.live({"log": ""})
    log = host.lay_log(host.folder / "old.db")
    assert json.loads(host("replay", "5", "--log", "old.db")[1]) == ["replay", "--log", log, "5"]
    log = host.lay_log(host.folder / "aside" / "log.db")
    assert json.loads(host("replay", "5", "--log", "aside")[1]) == ["replay", "--log", log, "5"]


def test_a_log_that_is_not_there(host):
    """Said by the command, before anything is started."""
    status, out, err = host("replay", "5")
    assert (status, out) == (1, "")
    assert err.startswith(f"[NOT_FOUND] Replay: {host.log} (there is no log; ")
    host.lay_log(host.folder / "x.db")
    assert host("record", "5", "--log", "y.db")[0] == 1


@pytest.mark.parametrize("status", [0, 1, 3])
def test_the_status_is_the_programs(host, status):
    """Whatever it is."""
    host.lay_log()
    host.env["STATUS"] = str(status)
    assert host("replay", "5")[0] == status
    assert host("test", "x.yaml")[0] == status


def test_a_program_that_a_signal_ends(tmp_path):
    """The status is what a shell would report; Ctrl-C, which both get, ends the command with it."""
    host = Host(tmp_path.resolve(), WAITS)
    process = host.start("test", "x.yaml")
    try:
        child = int(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.poll() is None, "Ctrl-C is for the program; its end is the command's"
        os.kill(child, signal.SIGINT)
        assert process.wait(SECONDS) == 130
        assert "rnixfs_cli" not in process.stderr.read(), "no traceback of the command"
    finally:
        process.kill()
        process.communicate()
