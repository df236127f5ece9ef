"""The daemon as its user meets it: it comes by itself, leaves by itself, dies, and is started anew."""

import json
import os
import pathlib
import signal

import pytest

from tests.daemon import Daemon, state_of, until
from tests.endtoend.user import ROOT, User, gate

HEADER = "PID  PPID  STATE  AGENT  PROVIDER/MODEL  STEPS  TOKENS  ELAPSED  INTENT\n"
LONG = "wait 600 s"


def one_daemon(user: User) -> int:
    """The pid of the only daemon, which serves the only mount."""
    pid = user.server()
    assert (user.daemons(), user.mounts()) == ([pid], [f"rnixfs:{pid}"])
    return pid


# --- it comes ---


def test_the_first_command_mounts(user):
    """Without any set-up the first command mounts at $RNIX_MOUNT; the next one uses the same daemon."""
    assert user.out("ps") == HEADER
    pid = one_daemon(user)
    assert os.getsid(pid) == pid, "it outlives the terminal it was started from"
    assert user.out("spawn", "-q", "say hello") == "hello\n"
    assert one_daemon(user) == pid


def test_the_default_mountpoint_is_in_the_home(user):
    """Without $RNIX_MOUNT the tree is mounted at ~/rnix, a folder of its user's alone."""
    del user.env["RNIX_MOUNT"]
    assert user.out("ps") == HEADER
    home = user.folder / "home" / "rnix"
    assert user.mounts(home) == [f"rnixfs:{user.server(home)}"]
    assert user.out("umount") == f"[kernel] unmounted {home}\n"
    assert home.stat().st_mode & 0o777 == 0o700


def test_commands_that_race_share_one_daemon(user):
    """However many commands come first at the same time, one daemon is started and all of them succeed."""
    racing = [user.start("spawn", "-q", f"say {number}") for number in range(4)]
    racing += [user.start("ps") for _ in range(2)]
    done = [program.end() for program in racing]
    assert [(one.status, one.err) for one in done] == [(0, "")] * len(racing)
    assert [one.out for one in done[:4]] == [f"{number}\n" for number in range(4)]
    one_daemon(user)


def test_a_command_with_closed_descriptors_works(user):
    """Neither stdin nor stdout nor stderr must be open, not even for the command that starts the daemon."""
    assert user.bash("rnix ps <&- >&- 2>&-").status == 0
    assert user.bash("rnix spawn -q 'say heard' <&- 2>&-").out == "heard\n"
    one_daemon(user)


@pytest.mark.parametrize(
    ("where", "code", "said"),
    [
        ("full", "NOT_EMPTY", "the folder is not empty"),
        ("full/file", "NOT_DIRECTORY", "not a directory"),
        ("full/file/below", "NOT_DIRECTORY", "not a directory"),
        ("/proc/nowhere/m", "NOT_FOUND", "cannot make the mountpoint"),
    ],
)
def test_a_place_that_cannot_be_mounted_on(user, where, code, said):
    """Where nothing can be mounted the command says so in one line and leaves no daemon behind."""
    full = user.folder / "full"
    full.mkdir()
    (full / "file").touch()
    user.env["RNIX_MOUNT"] = str(user.folder / where)
    done = user.rnix("ps")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith(f"[{code}] Mount: {user.folder / where} ({said}")
    assert done.err.count("\n") == 1
    assert user.daemons() == []


def test_mount_shows_the_folder_that_root_names(user):
    """`rnix mount DIR --root X` mounts at DIR and shows X, and nothing beside it, under dev/fs."""
    shown, other = user.folder / "shown", user.folder / "m2"
    shown.mkdir()
    (shown / "note").write_text("seen\n")
    assert user.out("mount", str(other), "--root", str(shown)) == f"[kernel] mounted at {other}\n"
    assert user.bash(f"cat {other}/dev/fs{shown}/note").out == "seen\n"
    assert user.bash(f"ls {other}/dev/fs{user.folder}").out == "shown\n"
    assert user.bash(f"echo x > {other}/dev/fs{shown}/note").status == 1, "writing needs --fs-write"
    assert user.out("mount", str(other)) == f"[kernel] already mounted at {other}\n"
    refused = user.rnix("mount", str(other), "--fs-write")
    assert (refused.status, refused.err.partition(" ")[0]) == (1, "[EXISTS]")
    assert user.out("umount", str(other)) == f"[kernel] unmounted {other}\n"
    assert user.out("mount", str(other), "--root", str(shown), "--fs-write")
    assert user.bash(f"echo written > {other}/dev/fs{shown}/note").status == 0
    assert (shown / "note").read_text() == "written\n"


def test_mount_says_that_a_daemon_will_leave(user):
    """`rnix mount` over a daemon that came by itself says that it will go by itself, and how to keep it."""
    user.out("ps")
    said = user.out("mount").splitlines()
    assert said[0] == f"[kernel] already mounted at {user.mount}"
    assert "leaves when nobody uses it" in said[1]
    user.out("umount")
    user.out("mount")
    assert user.out("mount") == f"[kernel] already mounted at {user.mount}\n"


def test_mount_in_the_foreground(user):
    """`--foreground` stays with the daemon; Ctrl-C ends both in order, and nothing stays mounted."""
    mounting = user.start("mount", "--foreground")
    assert mounting.line() == f"[kernel] mounted at {user.mount}"
    mounting.signal(signal.SIGINT)
    done = mounting.end()
    assert done.status == 0, done
    assert "Traceback" not in done.err
    assert (user.mounts(), user.daemons()) == ([], [])


def test_doctor_finds_this_host_able(user):
    """`rnix doctor` mounts for a moment, finds all that is needed, and leaves nothing behind."""
    done = user.rnix("doctor")
    assert done.status == 0, done
    assert "MISSING" not in done.out
    assert "mount: mounted, read and unmounted\n" in done.out
    assert "script" in next(line for line in done.out.splitlines() if "providers:" in line)
    assert not user.mount.exists()
    assert list(pathlib.Path(user.env["TMPDIR"]).iterdir()) == []


# --- it leaves ---


def test_status_and_stop(user):
    """`daemon status` starts nothing and exits with 3 where nothing runs; `daemon stop` may be repeated."""
    status = user.rnix("daemon", "status")
    assert (status.status, status.err, user.daemons()) == (3, "", [])
    assert "not running" in status.out
    user.out("ps")
    pid = one_daemon(user)
    facts = json.loads(user.out("daemon", "status", "--json"))
    assert (facts["state"], facts["mount"]) == ("running", str(user.mount))
    assert user.out("daemon", "stop") == "[kernel] daemon stopped\n"
    assert user.mounts() == []
    until(lambda: not state_of(pid), "the end of the stopped daemon")
    assert user.out("daemon", "stop") == "[kernel] daemon not running\n"


def test_stop_ends_running_processes(user):
    """Agents, and the commands that they run, end with the daemon; who waits for them is told."""
    call = {"command": f"echo $$ > shell.pid; {gate('never')}", "timeout_ms": 600_000}
    pid = user.detach(f"call: shell {json.dumps(call)}")
    shell = user.work / "shell.pid"
    until(lambda: shell.exists() and shell.read_text().endswith("\n"), "the agent's command")
    waiting = user.start("wait", pid)
    watching = user.start("log", "-f", pid)
    until(lambda: user.opened(waiting, f"proc/{pid}/.live/wait"), "the command waits")
    until(lambda: user.opened(watching, f"proc/{pid}/.live/log"), "the command follows")
    left = f"[kernel] 1 process suspended; to go on: rnix resume {pid}\n"
    assert user.out("daemon", "stop") == f"[kernel] daemon stopped\n{left}"
    done = waiting.end()
    assert done.status == 1
    assert "SIGTERM" in done.out or "the daemon" in done.err, done
    watching.end()
    until(lambda: not state_of(int(shell.read_text())), "the end of the agent's command")


def test_umount_while_readers_wait(user):
    """`rnix umount` returns while programs wait in reads of the mount; they end too, none hangs."""
    pid = user.detach(LONG)
    readers = [user.script(f"exec cat $M/proc/{pid}/.live/{name}") for name in ("wait", "trace", "log")]
    readers.append(user.script("exec 3<>$M/dev/shell; echo 'sleep 600' >&3; exec cat <&3"))
    readers.append(user.script("exec cat $M/proc/events"))
    waiting = {"wait": ["wait"], "log": ["log", "-f"], "trace": ["strace"]}
    commands = {name: user.start(*words, pid) for name, words in waiting.items()}
    until(lambda: all(reader.blocked() for reader in readers), "every reader waits")
    until(lambda: all(user.opened(command, f"proc/{pid}/.live/{name}") for name, command in commands.items()),
          "every command waits")  # fmt: skip
    server = one_daemon(user)
    left = f"[kernel] 1 process suspended; to go on: rnix resume {pid}\n"
    assert user.out("umount") == f"[kernel] unmounted {user.mount}\n{left}"
    for program in [*readers, *commands.values()]:
        program.end()
    until(lambda: not state_of(server), "the end of the daemon")
    again = user.rnix("umount")
    assert (again.status, again.err) == (1, f"[INVALID] Umount: {user.mount} (not mounted)\n")


def test_umount_while_somebody_stands_in_the_mount(user):
    """A shell that stands in the mount does not keep it; it finds the folder gone."""
    user.out("ps")
    standing = user.script("cd $M/proc && echo in && read -r && ls")
    assert standing.line() == "in"
    server = one_daemon(user)
    assert user.out("umount") == f"[kernel] unmounted {user.mount}\n"
    until(lambda: not state_of(server), "the end of the daemon")
    assert standing.end(b"\n").status != 0
    assert user.out("ps") == HEADER


IDLE = """
import sys, trio
from rnixfs import boot

boot.IDLE_SECONDS, boot._IDLE_LOOK = 0.2, 0.05
sleep = trio.sleep

async def counted(seconds):
    await sleep(seconds)
    if seconds == boot._IDLE_LOOK:
        print("look", file=sys.stderr, flush=True)

trio.sleep = counted
sys.exit(boot.main())
"""
# In this many looks a daemon that counted itself idle would have left several times over.
LOOKS = 4 * 5


@pytest.mark.parametrize("use", ["open file", "process"])
def test_an_idle_daemon_leaves(user, use):
    """A daemon started by itself leaves when there is no process and no open file, and not before."""
    program = user.folder / "idle.py"
    program.write_text(IDLE)
    daemon = Daemon(user.folder, ["--idle-exit"], program=[str(program)], env={"PYTHONPATH": str(ROOT)})
    try:
        if use == "process":
            pid = user.detach(LONG)
        else:
            holding = user.script("exec 3<$M/README.md; echo held; read -r")
            assert holding.line() == "held"
        looked = daemon.log().count("look\n")
        until(lambda: daemon.log().count("look\n") >= looked + LOOKS, "looks while it is used")
        assert daemon.mounted()
        if use == "process":
            assert user.rnix("kill", pid).status == 0
        else:
            assert holding.end(b"\n").status == 0
        assert daemon.wait() == 0
        assert not daemon.mounted()
        assert "idle for" in daemon.log()
    finally:
        daemon.clear()


# --- it dies ---


def test_a_killed_daemon_is_replaced(user):
    """After SIGKILL of the daemon its stale mount is cleared and the next command works as if at first."""
    user.out("ps")
    for _ in range(2):
        dead = user.kill_daemon()
        assert user.bash("ls $M").status != 0
        assert user.out("ps") == HEADER
        assert one_daemon(user) != dead


def test_a_killed_daemon_is_told_to_those_who_wait(user):
    """Commands and readers that wait when the daemon dies end; the commands say what happened."""
    pid = user.detach(LONG)
    reader = user.script(f"exec cat $M/proc/{pid}/.live/wait")
    commands = [user.start("wait", pid), user.start("spawn", LONG)]
    while "] step 1" not in commands[1].line():
        pass
    until(lambda: user.opened(commands[0], f"proc/{pid}/.live/wait"), "the command waits")
    until(reader.blocked, "the reader waits")
    user.kill_daemon()
    assert reader.end().status != 0
    for command in commands:
        done = command.end()
        assert done.status == 1
        assert done.err.startswith("[SERVICE_UNAVAILABLE] PID ")
        assert "the daemon " in done.err
        assert done.err.count("\n") == 1


def test_a_stale_mount_is_shown_and_cleared(user):
    """`daemon status` tells a stale mount from a running daemon, stop says what to do, umount clears it."""
    user.out("ps")
    user.kill_daemon()
    status = user.rnix("daemon", "status", "--json")
    assert (status.status, json.loads(status.out)["state"].partition(",")[0]) == (3, "dead")
    stop = user.rnix("daemon", "stop")
    assert (stop.status, stop.err.partition(" ")[0]) == (1, "[SERVICE_UNAVAILABLE]")
    assert "rnix umount" in stop.err
    assert user.out("umount") == f"[kernel] unmounted {user.mount}\n"
    assert user.mounts() == []
    assert list(user.mount.iterdir()) == []


def test_who_stands_in_a_stale_mount_is_told_to_leave_it(user):
    """A new mount could not be seen from inside a stale one, so the command says what to do first."""
    user.out("ps")
    standing = user.script('cd "$M" && echo in && read -r && rnix ps')
    assert standing.line() == "in"
    user.kill_daemon()
    done = standing.end(b"\n")
    assert (done.status, done.out) == (1, "")
    assert done.err == (
        f"[INVALID] Mount: {user.mount} (you stand inside the mountpoint; cd out of it first)\n"
    )


def test_a_hung_daemon_does_not_hang_the_command(user):
    """A daemon that answers nothing, here a stopped one, is found out in time and can be unmounted."""
    user.out("ps")
    server = one_daemon(user)
    os.kill(server, signal.SIGSTOP)
    user.lose_patience()
    try:
        asking = [user.start("daemon", "status"), user.start("ps")]
        status, ps = (program.end() for program in asking)
        assert (status.status, "does not answer" in status.out) == (3, True)
        assert (ps.status, ps.err.partition(" ")[0], "rnix umount" in ps.err) == (1, "[TIMEOUT]", True)
        assert user.out("umount") == f"[kernel] unmounted {user.mount}\n"
        assert user.mounts() == []
    finally:
        os.kill(server, signal.SIGKILL)
    until(lambda: not state_of(server), "the end of the killed daemon")
    assert user.out("ps") == HEADER


def test_the_log_of_the_daemon_is_private(user):
    """Run-time files lie below $XDG_RUNTIME_DIR/rnix, for their user alone."""
    user.out("ps")
    folder = pathlib.Path(user.env["XDG_RUNTIME_DIR"]) / "rnix"
    assert folder.stat().st_mode & 0o777 == 0o700
    log = folder / "daemon.log"
    assert log.stat().st_mode & 0o777 == 0o600
    assert f"mounted at {user.mount}" in log.read_text()
