"""Programs whose daemon was killed: the next daemon on the same state ends them, and nobody else."""

import contextlib
import os
import pathlib
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from rnixfs.children import Children
from tests.daemon import state_of

# A daemon as far as it matters here: it runs one command for an agent, for as long as that takes.
DAEMON = """
import functools, math, os, sys, trio
from rnixfs.children import Children
state, command = sys.argv[1:]
children = Children(state)
children.adopt_orphans()
hear = functools.partial(os.write, 1)
env = {"PATH": os.environ["PATH"]}
run = functools.partial(
    children.run, ["bash", "-c", command], cwd="/", env=env, stdout=hear, stderr=None, timeout=math.inf
)
trio.run(run)
"""

# A later daemon on the same state, started by a program that carries the mark itself.
LATER = "import sys; from rnixfs.children import Children; print(Children(sys.argv[1]).end_leftovers())"


def state() -> str:
    """The id of a state that nobody else has."""
    return f"test-{secrets.token_hex(8)}"


class Hosts:
    """Daemons and other programs of a test, with the processes that they told of."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []
        self.told: list[int] = []

    def start(self, argv: list[str], **env: str) -> subprocess.Popen[bytes]:
        """Start a program in a session of its own."""
        surroundings = {"PATH": os.environ["PATH"], "PYTHONPATH": os.getcwd(), **env}
        made = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=surroundings,
            cwd=self.folder,
            start_new_session=True,
        )
        self.started.append(made)
        return made

    def pids(self, program: subprocess.Popen[bytes], lines: int) -> list[int]:
        """What it prints: the pids of processes that now live."""
        assert program.stdout is not None
        found = [int(program.stdout.readline()) for _ in range(lines)]
        self.told += found
        assert all(map(state_of, found)), found
        return found

    def killed_daemon(self, state_id: str, command: str, lines: int = 1) -> list[int]:
        """Run a command in a daemon, and kill that one as soon as the pids are told."""
        daemon = self.start([sys.executable, "-c", DAEMON, state_id, command])
        pids = self.pids(daemon, lines)
        daemon.kill()
        daemon.wait()
        assert all(map(state_of, pids)), "programs do not end with their daemon"
        return pids

    def clear(self) -> None:
        """Leave nobody behind."""
        for pid in self.told:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for program in self.started:
            program.kill()
            program.wait()
            assert program.stdout is not None
            program.stdout.close()


@pytest.fixture
def hosts(tmp_path: pathlib.Path) -> Iterator[Hosts]:
    """Programs that are gone after the test."""
    made = Hosts(tmp_path)
    yield made
    made.clear()


# Each prints the pids of all its processes, on as many lines as stand beside it.
LEFT = {
    "plain": ("echo $$; exec sleep 1000", 1),
    "pipeline": ("sleep 1000 | sleep 1000 & echo $$; jobs -p; echo $!; wait", 3),
    "background": ("sleep 1000 & sleep 1000 & echo $$; jobs -p; wait", 3),
    "leader gone": ("sleep 1000 & echo $!; kill -KILL $$", 1),
    "own groups": ("set -m; sleep 1000 & sleep 1000 & echo $$; jobs -p; wait", 3),
    "own session": ("setsid sleep 1000 & echo $$; echo $!; wait", 2),
    "own session, parent gone": (
        "(setsid bash -c 'echo $$; sleep 1000; true' &); echo $$; exec sleep 999",
        2,
    ),
    "grandchildren": ("bash -c 'bash -c \"sleep 1000 & echo \\$!; echo \\$\\$; wait\" & wait' & wait", 2),
    "ignores TERM": ("trap '' TERM HUP INT; echo $$; while :; do read -rt 1000 < <(:); sleep 1000; done", 1),
    "stopped": ("echo $$; kill -STOP $$", 1),
    "no mark, but a child": ("env -i setsid sleep 1000 & echo $$; echo $!; wait", 2),
    "no mark, but in the session": ("(env -i sleep 1000 & echo $!); echo $$; exec sleep 999", 2),
    "no mark, but led by a child": (
        "setsid bash -c '(env -i sleep 1000 & echo $!); echo $$; sleep 999; true'",
        2,
    ),
}


@pytest.mark.parametrize(("command", "lines"), LEFT.values(), ids=LEFT)
def test_what_a_killed_daemon_left_is_ended(hosts: Hosts, command: str, lines: int) -> None:
    """Whatever its programs did to get away, the next daemon on that state ends them, and counts them."""
    state_id = state()
    pids = hosts.killed_daemon(state_id, command, lines)
    ended = Children(state_id).end_leftovers()
    assert [pid for pid in pids if state_of(pid)] == []
    assert ended >= len(pids)
    assert Children(state_id).end_leftovers() == 0


def test_a_command_has_no_effect_after_the_next_daemons_start(hosts: Hosts, tmp_path: pathlib.Path) -> None:
    """What a command had not done when the next daemon started is never done."""
    state_id, gate, effect = state(), tmp_path / "gate", tmp_path / "effect"
    command = f"echo $$; while [ ! -e {gate} ]; do sleep 0.01; done; echo done > {effect}"
    (pid,) = hosts.killed_daemon(state_id, command)
    Children(state_id).end_leftovers()
    assert state_of(pid) == ""
    gate.touch()
    assert not effect.exists()


def test_another_state_is_left_alone(hosts: Hosts) -> None:
    """Daemons on other states, alive or killed, keep their programs."""
    mine, other = state(), state()
    left = hosts.killed_daemon(other, "sleep 1000 & echo $!; wait")
    daemon = hosts.start([sys.executable, "-c", DAEMON, other, "sleep 1000 & echo $!; wait"])
    left += hosts.pids(daemon, 1)
    hosts.killed_daemon(mine, "echo $$; exec sleep 1000")
    assert Children(mine).end_leftovers() == 1
    assert all(map(state_of, [*left, daemon.pid]))
    assert Children(mine[:-1]).end_leftovers() == 0
    assert all(map(state_of, left))


def test_without_a_state_nobody_is_ended(hosts: Hosts) -> None:
    """A daemon that keeps nothing has no predecessor whose programs it could end."""
    left = hosts.killed_daemon("", "echo $$; exec sleep 1000")
    assert Children().end_leftovers() == 0
    assert all(map(state_of, left))


def test_a_daemon_never_ends_itself_and_its_ancestors(hosts: Hosts) -> None:
    """A command of an agent may start the next daemon: that one ends the others, and lives."""
    state_id = state()
    command = f"sleep 1000 & echo $!; {sys.executable} -c '{LATER}' {state_id}; echo $$; exec sleep 1000"
    program = hosts.start(["bash", "-c", command], RNIX_STATE=state_id)
    (sibling,) = hosts.pids(program, 1)
    assert program.stdout is not None
    assert program.stdout.readline() == b"1\n"
    assert hosts.pids(program, 1) == [program.pid]
    assert state_of(sibling) == ""


def test_a_mark_set_by_hand_does_not_cost_the_terminal(hosts: Hosts) -> None:
    """Somebody who copies the mark to one command loses this command, not the session that it ran in."""
    state_id = state()
    command = f"RNIX_STATE={state_id} sleep 1000 & echo $!; sleep 1000 & echo $!; echo $$; wait"
    marked, unmarked, leader = hosts.pids(hosts.start(["bash", "-c", command]), 3)
    assert Children(state_id).end_leftovers() == 1
    assert [bool(state_of(pid)) for pid in (marked, unmarked, leader)] == [False, True, True]


async def test_programs_carry_the_state(tmp_path: pathlib.Path) -> None:
    """The mark is the daemon's own, even for an environment that comes with another one."""
    out = bytearray()
    env = {"PATH": os.environ["PATH"], "RNIX_STATE": "another"}
    await Children("mine").run(
        ["bash", "-c", "echo $RNIX_STATE"], cwd="/", env=env, stdout=out.extend, stderr=None, timeout=60
    )
    assert out == b"mine\n"


def test_the_end_is_waited_for(hosts: Hosts) -> None:
    """When the call returns they are gone, however many there were; nobody is just about to end."""
    state_id = state()
    command = "for i in {1..60}; do sleep 1000 & echo $!; done; echo $$; wait"
    pids = hosts.killed_daemon(state_id, command, 61)
    assert Children(state_id).end_leftovers() == 61
    assert [pid for pid in pids if state_of(pid)] == []
