"""The commands for what outlives a daemon, over real mounts: suspended, finished and forked processes."""

import json
import re
from collections.abc import Iterator

import pytest

from tests.daemon import until
from tests.endtoend.user import User, gate, user_of


@pytest.fixture
def user(tmp_path) -> Iterator[User]:
    """A user who has not used the command yet."""
    with user_of(tmp_path) as user:
        yield user


def held(user):
    """Start a process whose first step runs a command that never ends; its pid, once the command runs."""
    call = {"command": f"touch begun; {gate('never')}", "timeout_ms": 600_000}
    pid = user.detach(f"call: shell {json.dumps(call)}")
    until((user.work / "begun").exists, "the process's command")
    return pid


def listed(user, *words):
    """The rows of a command that prints a table."""
    return json.loads(user.rnix(*words, "--json").out)


def state(user, pid):
    return next((one["state"] for one in listed(user, "ps") if str(one["pid"]) == pid), "")


def warned(done, count):
    """Whether a command that started the daemon told of the processes that are suspended."""
    return re.fullmatch(rf"\[kernel\] warning: {count} process(es)? .*rnix resume.*\n", done.err) is not None


# --- suspended and resumed ---


def test_umount_says_how_to_go_on_and_that_goes_on(user):
    """What ran at the unmount is suspended and does not start by itself; resuming takes it to its end."""
    pid = held(user)
    assert user.out("umount").splitlines() == [
        f"[kernel] unmounted {user.mount}",
        f"[kernel] 1 process suspended; to go on: rnix resume {pid}",
    ]
    listing = user.rnix("ps", "-v")
    assert warned(listing, 1), listing
    assert "suspended" in listing.out
    assert "the system" in listing.out
    done = user.rnix("resume", "--wait", pid)
    assert (done.status, done.err) == (0, "")
    first, *_, last = done.out.splitlines()
    assert first.startswith(f"[kernel] resuming PID {pid} (script")
    assert last.startswith(f"[kernel] PID {pid} exited(0)")
    assert user.rnix("resume", pid).err.startswith(f"[INVALID] PID {pid} Resume: ")
    assert user.out("umount") == f"[kernel] unmounted {user.mount}\n"


def test_suspend_and_resume_while_the_daemon_runs(user):
    """A suspended process does nothing and is no zombie; what its tool did is told when it goes on."""
    pid = held(user)
    assert user.out("suspend", pid) == f"[kernel] PID {pid}: suspended\n"
    assert state(user, pid) == "suspended"
    assert user.out("suspend", pid) == f"[kernel] PID {pid}: suspended\n", "once more changes nothing"
    waiting = user.start("wait", pid)
    assert user.out("resume", pid) == f"[kernel] PID {pid}: resumed\n"
    assert waiting.end().status == 0
    assert user.rnix("suspend", pid).err.endswith("(the process has ended already)\n")


def test_a_family_is_resumed_by_its_parent(user):
    """Children go on with their parent; naming them as well is no failure."""
    pid = user.detach("spawn 2: wait 600 s")
    until(lambda: len(listed(user, "ps")) == 3, "the children are there")
    said = user.out("umount").splitlines()
    assert said[1] == f"[kernel] 3 processes suspended; to go on: rnix resume {pid}"
    pids = [str(one["pid"]) for one in listed(user, "ps")]
    assert user.out("resume", *pids) == "".join(f"[kernel] PID {one}: resumed\n" for one in pids)
    assert {one["state"] for one in listed(user, "ps")} == {"running"}


def test_a_killed_daemon_leaves_processes_that_go_on(user):
    """After SIGKILL the processes are suspended; the outcome of the tool that ran is unknown, and told so."""
    pid = held(user)
    watching = user.start("resume", "--wait", pid)
    assert watching.end().status == 1, "it is running"
    user.kill_daemon()
    assert warned(user.rnix("ps"), 1)
    done = user.rnix("resume", "--wait", pid, "--json")
    end = json.loads(done.out)
    assert (done.status, end["code"]) == (0, 0)
    assert "unknown" in end["result"]
    assert "step 1" in user.out("log", pid)


def test_who_watches_is_told_how_to_go_on(user):
    """A command that watches a process when the daemon leaves says that it is suspended, and what to type."""
    watching = user.start("spawn", "wait 600 s")
    while "] step 1" not in watching.line():
        pass
    pid = str(listed(user, "ps")[0]["pid"])
    user.out("umount")
    done = watching.end()
    assert done.status == 1
    assert "the daemon" in done.err
    assert state(user, pid) == "suspended"


# --- the past ---


def test_the_past_is_there_after_a_restart(user):
    """History, log, trace and end of a process are found under the next daemon, by all of its names."""
    first = json.loads(user.out("spawn", "--json", "run: echo past"))
    failed = json.loads(user.rnix("spawn", "--json", "fail: TIMEOUT").out)
    names = [str(first["pid"]), first["uuid"], first["uuid"][:18], first["uuid"][:18].upper()]
    before = {command: user.out(command, names[0]) for command in ("log", "strace", "wait")}
    assert "past" in before["log"]
    user.out("umount")
    for name in names:
        assert {command: user.out(command, name) for command in before} == before
    rows = listed(user, "history")
    assert [one["pid"] for one in rows] == [first["pid"], failed["pid"]]
    assert [one["exit"]["code"] for one in rows] == [0, 1]
    assert rows[0]["ended"] <= rows[1]["ended"]
    table = user.out("history", "--since", "1h", "-n", "1").splitlines()
    assert table[1].split()[2:5] == [str(failed["pid"]), failed["uuid"][:18], "1"]
    assert user.rnix("wait", failed["uuid"]).status == 1
    begins = first["uuid"][:6]
    if failed["uuid"].startswith(begins):  # uuids begin with the time, and these digits change in hours
        many = user.rnix("log", begins)
        assert (many.status, many.out) == (1, "")
        assert all(f"(PID {one['pid']})" in many.err for one in (first, failed))


def test_a_fork_of_the_past(user):
    """A process that ended under an earlier daemon can be gone on from; its fork is a process of its own."""
    source = str(json.loads(user.out("spawn", "--json", "run: echo hello"))["pid"])
    user.out("umount")
    made = user.out("fork", source, "--step", "1").strip()
    assert int(made) > int(source)
    assert user.out("wait", made).startswith(f"[kernel] PID {made} exited(0)")
    again = user.rnix("fork", source, "--wait")
    assert again.status == 0
    assert "hello" in again.out
    wrong = user.rnix("fork", source, "--step", "99")
    assert wrong.status == 1
    assert wrong.err.startswith("[INVALID] Fork: /proc/spawn (")


def test_a_key_runs_once_over_a_restart(user):
    """The same command with the same key gives the same process and result, and does its work once."""
    words = ["spawn", "--key", "k", "-q", "run: echo x >> ran; cat ran"]
    first = user.out(*words)
    assert user.out(*words) == first
    user.out("umount")
    assert user.out(*words) == first
    assert (user.work / "ran").read_text() == "x\n"
    other = user.rnix("spawn", "--key", "k", "say other")
    assert (other.status, other.err.partition(" ")[0]) == (1, "[INVALID]")


# --- the log ---


def test_the_log_is_asked_and_cleaned(user):
    """Rows are a table for people and an array for programs; a wrong statement says why; gc runs."""
    user.out("spawn", "-q", "say hello")
    asked = "SELECT pid, event FROM events WHERE event IN ('spawn', 'reap') ORDER BY seq"
    assert user.out("query", asked) == "pid  event\n  1  spawn\n  1  reap\n"
    assert json.loads(user.out("query", asked, "--json")) == [
        {"pid": 1, "event": "spawn"},
        {"pid": 1, "event": "reap"},
    ]
    assert user.rnix("query", "-", data=b"SELECT 1 AS one\n").out == "one\n  1\n"
    wrong = user.rnix("query", "SELECT x FROM nowhere")
    assert (wrong.status, wrong.out) == (1, "")
    assert wrong.err.startswith("[INVALID] Query: /sys/query (no such table: nowhere")
    assert user.rnix("query", "DELETE FROM events").err.startswith("[PERMISSION] Query: ")
    assert user.out("gc").startswith("[kernel] removed 0 finished processes from the log; 1 are kept")
    assert user.out("checkpoint", user.detach("wait 600 s")).endswith("checkpoint written\n")


def test_a_log_in_memory(user):
    """With `--state none` processes of this daemon are found, nothing outlives it, and umount says so."""
    user.out("mount", "--state", "none")
    done = json.loads(user.out("spawn", "--json", "say hello"))
    assert [one["pid"] for one in listed(user, "history")] == [done["pid"]]
    assert user.out("log", done["uuid"][:18]) == user.out("log", str(done["pid"]))
    assert user.rnix("query", "SELECT 1").err.startswith("[SERVICE_UNAVAILABLE] Query: /sys/query (")
    assert user.rnix("replay", "1").err.startswith("[INVALID] Replay: ")
    user.detach("wait 600 s")
    assert user.out("umount").endswith("[kernel] 1 process ended with it: the log was in memory only\n")
    assert listed(user, "ps") == listed(user, "history") == []


def test_a_log_in_a_folder_of_its_own(user):
    """`--state DIR` keeps the log there, and only a mount that names it again has its processes."""
    folder = user.folder / "state"
    user.out("mount", "--state", str(folder))
    pid = user.detach("wait 600 s")
    assert f"rnix resume {pid}\n" in user.out("daemon", "stop")
    assert (folder / "log.db").exists()
    assert listed(user, "ps") == []
    user.out("umount")
    assert warned(user.rnix("mount", "--state", str(folder)), 1)
    assert state(user, pid) == "suspended"
