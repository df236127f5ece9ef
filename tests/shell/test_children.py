"""Programs of the host: what goes in and comes out, and that nothing of them is left."""

import os
import signal
from typing import Any

import pytest
import trio

from rnixfs import limits
from rnixfs.errors import Code, SyscallError


async def test_output_and_exit_code(host):
    """Both outputs and the exit code arrive whole."""
    ended = await host.bash("echo out; echo err >&2; exit 3")
    assert (host.out, host.err) == (b"out\n", b"err\n")
    assert (ended.returncode, ended.timed_out) == (3, False)
    assert ended.duration_ms >= 0


async def test_death_by_a_signal_is_a_negative_number(host):
    """A signal is told from an exit code."""
    assert (await host.bash("kill -KILL $$")).returncode == -signal.SIGKILL


async def test_stdin_and_output_flow_at_the_same_time(host):
    """More than any pipe holds can go through a program that answers while it reads."""
    data = os.urandom(5_000_000)
    sizes = []

    def take(chunk: bytes) -> None:
        sizes.append(len(chunk))
        host.out.extend(chunk)

    ended = await host.run(["cat"], stdin=data, stdout=take)
    assert (ended.returncode, host.out == data) == (0, True)
    assert max(sizes) <= limits.CHILD_CHUNK


async def test_a_program_need_not_read_its_stdin(host):
    """What nobody reads stops nobody."""
    assert (await host.bash("exit 4", stdin=bytes(5_000_000))).returncode == 4
    assert (await host.bash("exec <&-; exit 5", stdin=bytes(5_000_000))).returncode == 5


async def test_no_stdin_is_an_empty_stdin(host):
    """A program that reads finds the end at once, and never the daemon's terminal."""
    await host.bash("cat; readlink /proc/self/fd/0")
    assert host.out == b"/dev/null\n"


async def test_one_pipe_keeps_the_order(host):
    """Without a taker of its own, stderr comes through stdout's pipe, in the order of writing."""
    await host.bash("for i in {1..300}; do echo o$i; echo e$i >&2; done", stderr=None)
    assert host.out.decode().split() == [f"{kind}{i}" for i in range(1, 301) for kind in "oe"]


async def test_the_environment_is_the_given_one_and_the_mark(host):
    """Nothing of the daemon's environment reaches a program."""
    await host.run(["env"])
    names = {line.partition("=")[0] for line in host.out.decode().splitlines()}
    assert names == {*host.env, "RNIX_CHILD"}


async def test_a_time_limit_ends_everybody(host):
    """A program whose time is up is ended with all its children, and says so."""
    ended = await host.bash("sleep 1000 | sleep 1000 & sleep 1000", timeout=0.2)
    assert ended.timed_out
    assert host.living() == []


# Each command prints a line once it is what its name says, and would stay for ever.
STAY = {
    "plain": "echo ready; sleep 1000",
    "pipeline": "echo ready; sleep 1000 | sleep 1000 | sleep 1000",
    "background": "sleep 1000 & echo ready; wait",
    "own process groups": "set -m; sleep 1000 & sleep 1000 & echo ready; wait",
    "own session": "setsid sleep 1000 & echo ready; wait",
    "own session, parent gone": "(setsid bash -c 'sleep 1000; true' &); echo ready; sleep 1000",
    "ignores TERM": "trap '' TERM; echo ready; while :; do sleep 1000; done",
    "ignores TERM elsewhere": "(trap '' TERM; setsid bash -c 'echo ready; sleep 1000; :' &); sleep 1000",
    "stopped": "sleep 1000 & kill -STOP $!; echo ready; kill -STOP $$",
    "closed its outputs": "echo ready; exec >&- 2>&-; sleep 1000",
    "many": "for i in {1..30}; do sleep 1000 & done; echo ready; wait",
}


@pytest.mark.parametrize("command", STAY.values(), ids=STAY)
async def test_cancellation_leaves_nobody(host, command):
    """When the caller no longer wants it, a program ends with all it started."""
    await host.cancelled_when_ready(command, grace=0.3)
    assert host.living() == []


async def test_a_descendant_is_found_without_mark_and_session(host):
    """Whoever cleared its environment and left the session is still its parent's child."""
    await host.cancelled_when_ready("env -i setsid sleep 1000 & echo $!; wait")
    pid = int(host.out)
    await host.until(lambda: not os.path.exists(f"/proc/{pid}/exe"), "the end of a process without a mark")


async def test_term_comes_first_and_is_waited_for(host, tmp_path):
    """A program can tidy up: it gets TERM, and KILL only after the grace."""
    command = "trap 'echo tidy > done; exit' TERM; echo ready; while :; do sleep 0.01; done"
    await host.cancelled_when_ready(command, grace=1000)
    assert (tmp_path / "done").read_text() == "tidy\n"


async def test_a_stopped_program_gets_its_term(host):
    """TERM reaches a stopped program too, so nobody waits for the grace."""
    await host.cancelled_when_ready("sleep 1000 & kill -STOP $!; echo ready; kill -STOP $$", grace=1000)
    assert host.living() == []


async def test_what_is_printed_after_term_still_arrives(host):
    """A program that is ended for its time is heard to its end."""
    # The limit is what is tested, so it cannot be replaced by a sign of readiness: the program itself
    # says whether it was ready in time.
    ended = await host.bash(
        "trap 'echo bye; exit' TERM; echo on; while :; do sleep 0.01; done", timeout=3, grace=1000
    )
    assert ended.timed_out
    assert host.out in (b"", b"bye\n", b"on\nbye\n")


LEAVE = {
    "holds the pipe": "sleep 1000 & echo hi",
    "holds the pipe in its own session": "setsid sleep 1000 & echo hi",
    "quiet": "sleep 1000 >/dev/null 2>&1 & echo hi",
    "quiet in its own session": "setsid sleep 1000 >/dev/null 2>&1 & echo hi",
    "own group": "set -m; sleep 1000 >/dev/null 2>&1 & echo hi",
    "holds the pipe and ignores TERM": "trap '' TERM; sleep 1000 & echo hi",
    "writes without end": "yes >/dev/null & echo hi",
}


@pytest.mark.parametrize("command", LEAVE.values(), ids=LEAVE)
async def test_nobody_outlives_a_program_that_ended_by_itself(host, command):
    """Who was left in the background is ended, and a pipe that it holds is not waited for."""
    ended = await host.bash(command, grace=0.3, timeout=1000)
    assert (host.out, ended.returncode, ended.timed_out) == (b"hi\n", 0, False)
    assert host.living() == []


async def test_a_failing_taker_ends_the_program_and_is_heard(host):
    """An error of whoever takes the output comes out as it is, after the end of the program."""

    def refuse(chunk: bytes) -> None:
        raise SyscallError(Code.TOO_LARGE, "enough")

    with pytest.raises(SyscallError) as caught:
        await host.bash("while :; do echo x; done", stdout=refuse)
    assert caught.value.code == Code.TOO_LARGE
    assert host.living() == []


async def test_cancellation_at_any_moment_leaves_nobody(host):
    """No program is lost, however early its caller loses interest."""
    for step in range(40):
        with trio.move_on_after(step * 0.0004):
            await host.bash("sleep 1000")
    with trio.CancelScope() as scope:
        scope.cancel()
        await host.bash("sleep 1000")
    assert host.living() == []


async def test_many_at_once(host):
    """Programs do not disturb each other: each gets its own output, and its end spares the others."""
    outputs = [bytearray() for _ in range(50)]

    async def one(number: int) -> None:
        command = f"sleep 1000 >/dev/null 2>&1 & echo {number}"
        assert (await host.bash(command, stdout=outputs[number].extend)).returncode == 0

    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(one, number)
    assert outputs == [f"{number}\n".encode() for number in range(50)]
    assert host.living() == []


async def test_sessions_lead_to_agents(host):
    """While a program runs, its session and those begun below it belong to its agent; then to nobody."""

    async def run() -> None:
        await host.bash("echo $$; setsid bash -c 'echo $$; sleep 1000; true' & wait", agent=7)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await host.until(lambda: host.out.count(b"\n") == 2, "both lines")
        sessions = [int(line) for line in host.out.split()]
        assert [host.children.agent_of(session) for session in sessions] == [7, 7]
        assert host.children.agent_of(os.getsid(0)) == 0
        nursery.cancel_scope.cancel()
    assert [host.children.agent_of(session) for session in sessions] == [0, 0]


async def test_a_relative_program_starts_from_the_folder(host, tmp_path):
    """`./x` and a relative PATH mean the folder that the program starts in."""
    script = tmp_path / "hello"
    script.write_text("#!/bin/sh\necho hello from $PWD\n")
    script.chmod(0o755)
    await host.run(["./hello"])
    await host.run(["hello"], env={"PATH": "."})
    assert host.out.decode() == f"hello from {tmp_path}\n" * 2


def make(folder, name: str, content: bytes, mode: int) -> str:
    """A file in a folder; gives its path."""
    path = folder / name
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


async def test_what_cannot_be_started_says_why(host, tmp_path):
    """Every reason has its code, and its sentence names what is wrong."""
    plain = make(tmp_path, "plain", b"echo no", 0o644)
    no_format = make(tmp_path, "noformat", b"\x00\x01\x02", 0o755)
    no_interpreter = make(tmp_path, "nointerpreter", b"#!/no/such/interpreter\n", 0o755)
    refusals: list[tuple[list[str], dict[str, Any], Code, str]] = [
        (["no-such-program"], {}, Code.NOT_FOUND, "no-such-program.*not in PATH"),
        (["/no/such/program"], {}, Code.NOT_FOUND, "/no/such/program"),
        ([plain], {}, Code.PERMISSION, "not executable"),
        ([no_format], {}, Code.INVALID, "no program of this host"),
        ([no_interpreter], {}, Code.NOT_FOUND, "interpreter"),
        (["true"], {"cwd": "/no/such/folder"}, Code.NOT_FOUND, "/no/such/folder"),
        (["true"], {"cwd": plain}, Code.NOT_DIRECTORY, "not a directory"),
        (["true"], {"cwd": "relative"}, Code.INVALID, "absolute"),
        (["true"], {"cwd": "/\0"}, Code.INVALID, "NUL"),
        ([], {}, Code.INVALID, "no program"),
        (["true", "a\0b"], {}, Code.INVALID, "argument 1.*NUL"),
        (["true", "\ud800"], {}, Code.INVALID, "Unicode"),
        (["true", "x" * limits.ARGUMENT_MAX], {}, Code.INVALID, "argument 1 is 131072 bytes"),
        (["true", *["x" * 100_000] * 80], {}, Code.INVALID, "together are too long"),
        (["true"], {"env": {"A=B": ""}}, Code.INVALID, "A=B"),
        (["true"], {"env": {"A": "\0"}}, Code.INVALID, "'A'.*NUL"),
        (["true"], {"env": {"A": "x" * limits.ARGUMENT_MAX}}, Code.INVALID, "'A' is"),
    ]
    for argv, options, code, sentence in refusals:
        with pytest.raises(SyscallError, match=sentence) as caught:
            await host.run(argv, **options)
        assert caught.value.code == code, argv
    assert host.children.agent_of(os.getsid(0)) == 0


async def test_the_longest_argument_is_taken(host):
    """The limit of one string is the host's own, so one byte less works."""
    await host.run(["printf", "%s", "x" * (limits.ARGUMENT_MAX - 1)])
    assert len(host.out) == limits.ARGUMENT_MAX - 1


async def test_looking_at_the_folder_counts_against_the_time(host):
    """A file system that does not answer cannot hold a caller: looking at the folder is bounded too."""
    with pytest.raises(SyscallError, match="cannot look at") as caught:
        await host.bash("true", timeout=0)
    assert caught.value.code == Code.TIMEOUT
