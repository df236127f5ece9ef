"""Crowds, crashes and drivers that misbehave: the mount answers, or ends at once, and leaves nothing."""

import json
import pathlib
import re
import signal
import sys
from collections.abc import Iterator

import pytest

from tests.daemon import BOOT, Daemon, Program, quoted, running, state_of, until
from tests.mount.agents import live, shown, text

HOSTILE = str(pathlib.Path(__file__).with_name("hostile.py"))
CROWD = 300
GONE = "Transport endpoint is not connected|Software caused connection abort|Input/output error"


@pytest.fixture(scope="module", params=["libfuse", "watcher"])
def hostile(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with drivers that misbehave, with both ways to interrupt what waits."""
    watch = ["--watch"] if request.param == "watcher" else []
    program = [HOSTILE, *watch]
    with running(tmp_path_factory.mktemp("hostile"), program=program) as daemon:
        yield daemon


def fine(daemon: Daemon) -> None:
    """The daemon serves everybody as before."""
    assert daemon.process.poll() is None, daemon.log()
    assert daemon.out("cat $M/hostile/document; cat $M/sys/version | wc -l") == "fine\n1\n"
    assert daemon.out("echo 'echo alive' > $M/dev/shell; cat $M/dev/shell") == "alive\n"


# --- drivers that misbehave ---


@pytest.mark.parametrize(
    "script",
    [
        "cat $H/describe",
        "exec 3<>$H/describe; cat <&3",
        "echo '{}' > $H/accept",
        "cat $H/file-read",
        "cat $H/file-read-group",
        "cat $H/file-read-oserror",
        "cat $H/file-read-too-much",
        "echo x > $H/file-write",
        "python3 -c 'import os, sys; os.ftruncate(os.open(sys.argv[1], os.O_RDWR), 0)' $H/file-truncate",
        "cat $H/open",
        "cat $H/open-nothing",
        "ls -l $H/stat",
        "ls -l $H/hash",
        "cat $H/render",
        "cat $H/lookup/x",
        "mkdir $H/lookup/x",
        "ls $H/list",
        "find $H/list",
    ],
)
def test_a_driver_that_fails_ends_only_the_request(hostile: Daemon, script: str) -> None:
    """Whatever a driver does wrong, its caller gets EIO, and everybody else is served as before."""
    done = hostile.bash(f"H=$M/hostile; {script}")
    assert done.status != 0
    assert re.search("put/output error|Errno 5", done.err), done
    fine(hostile)


@pytest.mark.parametrize(
    "script",
    [
        "cat $H/file-read-text",
        "cat $H/file-read-nothing",
        "echo x > $H/file-write-nothing",
        "echo x > $H/file-write-text",
        "exec 3<$H/file-poll-nothing; read -t 0 <&3; exit 5",
        "ls -l $H/stat-nothing",
        "readlink $H/link-nothing",
        "cat $H/lookup-nothing/x",
        "ls $H/list-nothing",
    ],
)
def test_a_driver_that_gives_nonsense_ends_only_the_request(tmp_path: pathlib.Path, script: str) -> None:
    """A driver that gives what is no answer at all harms nobody else either."""
    with running(tmp_path, program=[HOSTILE]) as daemon:
        assert daemon.bash(f"H=$M/hostile; {script}").status != 0
        fine(daemon)


def test_a_failure_is_in_the_log_with_its_place(hostile: Daemon) -> None:
    """The daemon's log has the stack of what failed inside."""
    hostile.bash("cat $M/hostile/file-read")
    assert "ValueError: a driver failed on purpose" in hostile.log()
    assert "read failed inside" in hostile.log()
    assert "hostile.py" in hostile.log()


def test_a_file_that_fails_at_its_end_harms_nobody(hostile: Daemon) -> None:
    """close and poll that fail are nobody's error; the file was read all the same."""
    assert hostile.out("cat $M/hostile/file-close") == "fine\n"
    assert hostile.bash("exec 3<$M/hostile/file-poll; read -t 0 <&3; cat <&3").out == "fine\n"
    fine(hostile)


@pytest.mark.parametrize(("name", "code"), [("job", "INTERNAL"), ("group", "INTERNAL"), ("bus", "DRIVER")])
def test_a_job_that_fails_answers(hostile: Daemon, name: str, code: str) -> None:
    """A job's failure is its answer, however it fails; what is inside of it stays in the log."""
    error = json.loads(hostile.out(f"echo '{{}}' > $M/hostile/{name}; cat $M/hostile/{name}"))["error"]
    assert (error["code"], error["device"]) == (code, f"/hostile/{name}")
    fine(hostile)


def test_an_answer_that_breaks_off_is_not_taken_for_whole(hostile: Daemon) -> None:
    """Where part of an answer was given, its reader gets the reason and then the errno."""
    done = hostile.bash("echo '{}' > $M/hostile/half; cat $M/hostile/half")
    assert done.out.startswith('first half\n{"error":{"code":"INTERNAL"')
    assert (done.status, "put/output error" in done.err) == (1, True)


def test_an_answer_without_end_is_cut(hostile: Daemon) -> None:
    """An answer past its limit ends with TOO_LARGE and EFBIG, and the daemon's memory is its own again."""
    done = hostile.bash(
        "exec 3<>$M/hostile/flood; echo '{}' >&3; cat <&3 | tail -c 200; exit ${PIPESTATUS[0]}"
    )
    assert '"code":"TOO_LARGE"' in done.out
    assert (done.status, "File too large" in done.err) == (1, True)
    fine(hostile)


def test_a_device_that_never_answers_holds_up_nobody(hostile: Daemon) -> None:
    """Its reader waits, others are served, and closing ends it."""
    waits = hostile.script("exec 3<>$M/hostile/never; echo '{}' >&3; exec cat <&3")
    until(waits.blocked, "cat waits")
    fine(hostile)
    assert hostile.bash("N=$M/hostile/never; echo '{}' > $N; timeout 0.2 cat $N").status == 124
    gone(waits, signal.SIGTERM)
    fine(hostile)


def gone(program: Program, number: int = signal.SIGKILL) -> None:
    """Send a signal to a program: nothing of it is left, in no state."""
    pids = program.members()
    program.signal(number)
    until(lambda: not [pid for pid in pids if state_of(pid)], f"{program.argv} ends on signal {number}")
    program.clear()


# --- crowds ---


def crowd(daemon: Daemon, command: str) -> Program:
    """Many programs that all wait in the mount."""
    program = daemon.script(f"for i in $(seq {CROWD}); do {command} & done; wait")
    until(lambda: program.blocked() == CROWD, f"{CROWD} programs wait")
    return program


def test_a_crowd_of_readers_delays_nobody(hostile: Daemon) -> None:
    """With 300 blocked readers the mount answers others; killed, all of them are gone."""
    pid = live(hostile)
    program = crowd(hostile, f"cat $M/proc/{pid}/wait")
    assert shown(hostile, f"proc/{pid}/status")["state"] == "running"
    fine(hostile)
    gone(program)
    assert shown(hostile, f"proc/{pid}/status")["state"] == "running"
    hostile.out(f"rmdir $M/proc/{pid}")


def test_a_crowd_of_readers_is_served_at_once(hostile: Daemon) -> None:
    """When what they wait for comes, each of 300 readers gets it once, and ends."""
    pid = live(hostile)
    program = crowd(hostile, f"cat $M/proc/{pid}/wait")
    hostile.out(f"echo kill > $M/proc/{pid}/ctl")
    done = program.end()
    lines = done.out.splitlines()
    assert (len(lines), len(set(lines))) == (CROWD, 1)
    assert json.loads(lines[0])["reason"] == "killed by SIGKILL"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_both_ways_of_interrupting_end_a_wait(hostile: Daemon, number: int) -> None:
    """With libfuse's interrupts and with the watcher, what waits dies of a signal, no other reader does."""
    pid = live(hostile)
    others = hostile.script(f"exec cat $M/proc/{pid}/wait")
    victim = hostile.script(f"exec cat $M/proc/{pid}/wait")
    until(others.blocked, "one cat waits")
    until(victim.blocked, "another cat waits")
    gone(victim, number)
    assert others.blocked()
    hostile.out(f"echo kill > $M/proc/{pid}/ctl")
    assert json.loads(others.end().out)["code"] == 1


def test_a_signal_that_is_handled_or_ignored_ends_no_program(hostile: Daemon) -> None:
    """A program that handles a signal reads on after it, one that ignores it never notices."""
    pid = live(hostile)
    handles = hostile.python(
        "import os, signal, sys\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('handled', flush=True))\n"
        "signal.signal(signal.SIGUSR2, signal.SIG_IGN)\n"
        "print(os.read(os.open(sys.argv[1], os.O_RDONLY), 4096).decode())",
        f"{hostile.mount}/proc/{pid}/wait",
    )
    until(handles.blocked, "it waits")
    handles.signal(signal.SIGUSR2)
    handles.signal(signal.SIGUSR1)
    assert handles.line() == "handled"
    until(handles.blocked, "it waits again")
    hostile.out(f"echo kill > $M/proc/{pid}/ctl")
    assert json.loads(handles.line())["code"] == 1
    hostile.forget(handles)


# --- poll ---

_WAITERS = {
    "poll": """
poller = select.poll()
poller.register(fd, select.POLLIN)
look = lambda seconds: bool(poller.poll(seconds * 1000))
""",
    "select": """
look = lambda seconds: bool(select.select([fd], [], [], seconds)[0])
""",
    "epoll": """
poller = select.epoll()
poller.register(fd, select.EPOLLIN)
look = lambda seconds: bool(poller.poll(seconds))
""",
    "epoll edge": """
poller = select.epoll()
poller.register(fd, select.EPOLLIN | select.EPOLLET)
look = lambda seconds: bool(poller.poll(seconds))
""",
    "asyncio": """
import asyncio
def look(seconds):
    async def wait():
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(fd, event.set)
        try:
            await asyncio.wait_for(event.wait(), seconds)
        except TimeoutError:
            return False
        finally:
            loop.remove_reader(fd)
        return True
    return asyncio.run(wait())
""",
}
_POLLS = """
import os, select, sys
fd = os.open(sys.argv[1], int(sys.argv[2]))
if len(sys.argv) > 3:
    os.write(fd, sys.argv[3].encode())
{look}
print("quiet" if not look(0.05) else "ready", flush=True)
print("woken" if look(60) else "not woken", flush=True)
print(os.read(fd, 4096).decode(), flush=True)
"""


@pytest.mark.parametrize("way", _WAITERS)
def test_a_stream_wakes_who_polls(hostile: Daemon, way: str) -> None:
    """Every way to wait for a file is quiet until a record comes, and wakes then."""
    pid = live(hostile)
    program = hostile.python(_POLLS.replace("{look}", _WAITERS[way]), f"{hostile.mount}/proc/{pid}/wait", "0")
    assert program.line() == "quiet"
    hostile.out(f"echo kill > $M/proc/{pid}/ctl")
    assert program.line() == "woken"
    assert json.loads(program.line())["reason"] == "killed by SIGKILL"
    hostile.forget(program)


@pytest.mark.parametrize("way", _WAITERS)
@pytest.mark.parametrize("form", ["text", "JSON"])
def test_an_exchange_wakes_who_polls(hostile: Daemon, tmp_path: pathlib.Path, way: str, form: str) -> None:
    """A private exchange is quiet while its device works, and wakes when the answer comes."""
    command = f"while [ ! -e {quoted(tmp_path / 'gate')} ]; do sleep 0.01; done; echo through"
    request = command if form == "text" else json.dumps({"command": command})
    program = hostile.python(
        _POLLS.replace("{look}", _WAITERS[way]), f"{hostile.mount}/dev/shell", "2", request
    )
    assert program.line() == "quiet"
    (tmp_path / "gate").touch()
    assert program.line() == "woken"
    assert "through" in program.line()
    hostile.forget(program)


# --- the end of the daemon ---


@pytest.fixture
def mortal(tmp_path: pathlib.Path) -> Iterator[Daemon]:
    """A daemon of the test's own."""
    with running(tmp_path) as daemon:
        yield daemon


def readers(daemon: Daemon) -> list[Program]:
    """Programs that wait in different files of a mount."""
    pid = live(daemon)
    waits = [
        daemon.script(f"exec cat $M/proc/{pid}/wait"),
        daemon.script(f"exec cat $M/proc/{pid}/trace"),
        daemon.script("exec 3<>$M/dev/shell; echo 'sleep 500' >&3; exec cat <&3"),
        daemon.script('echo \'{"command":"sleep 500"}\' > $M/dev/shell; exec cat $M/dev/shell'),
    ]
    for program in waits:
        until(program.blocked, f"{program.argv} waits")
    return waits


def test_a_daemon_that_is_killed_frees_its_clients_and_its_folder(mortal: Daemon) -> None:
    """After SIGKILL of the daemon whatever waited ends at once with an error, and the next start clears the
    dead mount away."""
    waits = readers(mortal)
    mortal.signal(signal.SIGKILL)
    mortal.wait()
    for program in waits:
        done = program.end()
        assert done.status != 0
        assert re.search(GONE, done.err), done
    assert mortal.mounted()
    assert mortal.bash("ls $M").status != 0
    mortal.start()
    assert mortal.out("jq -r .state $M/proc/processes | sort -u") == "suspended\n"
    assert mortal.out("echo 'echo alive' > $M/dev/shell; cat $M/dev/shell") == "alive\n"
    assert mortal.stop() == 0
    assert not mortal.mounted()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_daemon_that_is_told_to_leave_unmounts(mortal: Daemon, number: int) -> None:
    """With readers waiting it suspends their processes, frees the readers, unmounts, and exits with 0; the
    next start has the processes."""
    waits = readers(mortal)
    mortal.signal(number)
    assert mortal.wait() == 0
    assert not mortal.mounted()
    ends = [program.end() for program in waits]
    assert ends[0].out == ""  # nothing ended
    for program in waits:
        assert state_of(program.pid) == ""
    assert "unmounted" in mortal.log()
    assert "Traceback" not in mortal.log()
    mortal.start()
    assert mortal.out("jq -r .suspended $M/proc/processes | sort -u") == "the system was stopped\n"


def test_shutdown_by_file_is_like_a_signal(mortal: Daemon) -> None:
    """`echo shutdown > sys/ctl` ends the daemon in the same way."""
    waits = readers(mortal)
    mortal.bash("echo shutdown > $M/sys/ctl")
    assert mortal.wait() == 0
    assert not mortal.mounted()
    for program in waits:
        program.end()


def test_unmounting_ends_the_daemon(mortal: Daemon) -> None:
    """`fusermount3 -u` of a mount that nobody uses ends its daemon with 0."""
    assert mortal.unmount() == 0
    assert mortal.wait() == 0
    assert not mortal.mounted()
    assert "Traceback" not in mortal.log()


def test_unmounting_while_readers_wait(mortal: Daemon) -> None:
    """`fusermount3 -u` is refused while programs wait in it, and harms none; with -z it goes from the folder,
    and the daemon leaves when the last of them is gone."""
    waits = readers(mortal)
    assert mortal.unmount() != 0
    assert mortal.out("cat $M/sys/version | wc -l") == "1\n"
    assert mortal.unmount("-z") == 0
    assert not mortal.mounted()
    for program in waits:
        assert program.blocked()
        gone(program, signal.SIGTERM)
    assert mortal.wait() == 0
    assert "Traceback" not in mortal.log()


def test_programs_of_agents_end_with_the_daemon(mortal: Daemon, tmp_path: pathlib.Path) -> None:
    """What agents and requests started on the host is gone when the daemon is."""
    mark = tmp_path / "pids"
    request = json.dumps({"command": f"echo $$ >> {quoted(mark)}; sleep 500"})
    mortal.bash(f"echo {quoted(request)} > $M/dev/shell")
    until(lambda: mark.exists() and mark.read_text().endswith("\n"), "the command runs")
    assert mortal.stop() == 0
    until(lambda: not any(state_of(int(pid)) for pid in mark.read_text().split()), "the command is gone")


def test_a_second_daemon_is_refused(mortal: Daemon) -> None:
    """A folder with a living mount is not taken from its daemon."""
    done = mortal.program([sys.executable, *BOOT, "--mount", str(mortal.mount), "--foreground"]).end()
    assert done.status == 1
    assert str(mortal.mount) in done.err
    assert text(mortal, "sys/version")
