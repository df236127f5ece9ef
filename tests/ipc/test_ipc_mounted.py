"""Pipes and messages through a mount: programs that wait in them can always be ended."""

import hashlib
import json
import pathlib
import signal
from collections.abc import Iterator

import pytest

from tests.daemon import Daemon, running, until


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with a mount."""
    with running(tmp_path_factory.mktemp("ipc")) as daemon:
        yield daemon


def new_pipe(daemon: Daemon) -> str:
    """The folder of a new pipe, as bash writes it."""
    number = int(daemon.out("echo new > $M/dev/pipe; cat $M/dev/pipe"))
    return f"$M/dev/pipes/{number}"


def new_process(daemon: Daemon) -> int:
    """A process that runs until somebody ends it."""
    request = '{"intent":"wait 500 s","provider":"script"}'
    return int(daemon.out(f"echo '{request}' > $M/proc/spawn; cat $M/proc/spawn"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_writers_of_a_full_pipe_can_be_ended_in_any_order(daemon: Daemon, number: signal.Signals) -> None:
    """Two programs wait for room; the one that came second goes at its signal, while the first waits on."""
    pipe = new_pipe(daemon)
    daemon.out(f"head -c 65536 /dev/zero > {pipe}/write")
    text = f"exec 3> {pipe}/write; echo open; exec cat /dev/zero >&3"
    first, second = writers = [daemon.script(text) for _ in range(2)]
    assert [writer.line() for writer in writers] == ["open"] * 2
    until(lambda: all(writer.blocked() for writer in writers), "both wait for room")
    second.signal(number)
    assert second.end().status == -number
    assert first.process.poll() is None
    daemon.out(f"head -c 1000000 {pipe}/read > /dev/null")
    done = first.end()
    assert "Broken pipe" in done.err
    for writer in writers:
        daemon.forget(writer)


@pytest.mark.parametrize("end", ["pipe", "recv"])
def test_a_reader_that_waits_can_be_ended(daemon: Daemon, end: str) -> None:
    """A signal ends a wait for bytes and for messages, and what comes then is for the next reader."""
    if end == "pipe":
        pipe = new_pipe(daemon)
        read, send = f"{pipe}/read", f"echo later > {pipe}/write"
    else:
        pid = new_process(daemon)
        read, send = f"$M/proc/{pid}/recv", f"echo later > $M/proc/{pid}/mailbox"
    keep = daemon.script(f"exec 3< {read}; echo open; read -r line <&3; echo $line")
    assert keep.line() == "open"
    until(keep.blocked, "it waits")
    waiting = daemon.script(f"exec 3< {read}; echo open; exec head -n 1 <&3")
    assert waiting.line() == "open"
    until(waiting.blocked, "it waits behind the other")
    keep.signal(signal.SIGKILL)
    assert keep.end().status == -signal.SIGKILL
    daemon.out(send)
    assert "later" in waiting.end().out
    for one in (keep, waiting):
        daemon.forget(one)


def test_a_large_file_goes_through_a_pipe(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    """Megabytes arrive byte by byte as they were, at the speed of the slower side."""
    content = bytes(index * 31 % 256 for index in range(1 << 16)) * 48
    (tmp_path / "in").write_bytes(content)
    pipe = new_pipe(daemon)
    writer = daemon.script(f"exec cat {tmp_path}/in > {pipe}/write")
    digest = daemon.out(f"sha256sum < {pipe}/read").split()[0]
    assert digest == hashlib.sha256(content).hexdigest()
    assert writer.end() == (0, "", "")
    daemon.forget(writer)


def test_recursive_tools_neither_wait_nor_take(daemon: Daemon) -> None:
    """grep -r over a process and a pipe, and find over all pipes, end by themselves and take nothing."""
    pid = new_process(daemon)
    pipe = new_pipe(daemon)
    daemon.out(f"echo needle > $M/proc/{pid}/mailbox; echo needle > {pipe}/write")
    found = daemon.out(f"grep -rl needle $M/proc/{pid}/mailbox $M/proc/{pid}/intent")
    assert found.splitlines() == [f"{daemon.mount}/proc/{pid}/mailbox"]
    daemon.out(f"grep -rs needle $M/proc/{pid} {pipe} > /dev/null; find $M/dev/pipes > /dev/null")
    assert json.loads(daemon.out(f"cat $M/proc/{pid}/mailbox"))["data"] == "needle"
    assert daemon.out(f"cat {pipe}/read") == "needle\n"
    daemon.out(f"rmdir $M/proc/{pid}")
