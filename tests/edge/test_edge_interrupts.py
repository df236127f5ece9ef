"""A signal to a program that waits in the mount ends its wait, through libfuse or through the watcher."""

import json
import os
import signal
import sys
from collections.abc import Iterator

import pytest
import trio
from mountlab import HERE, Client, Server, python, serving, until, works

from rnixfs.edge import interrupt
from rnixfs.edge.interrupt import Interrupts
from rnixfs.edge.watch import Watcher

FATAL = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL]

READ = "import os,sys; os.read(os.open(sys.argv[1], os.O_RDONLY), 10)"
READ_IN_THREAD = """
import os, signal, sys, threading
read = lambda: os.read(os.open(sys.argv[1], os.O_RDONLY), 10)
threading.Thread(target=read, daemon=True).start()
signal.pause()
"""
READ_IN_THREAD_OF_AN_OPENER = """
import os, signal, sys, threading
descriptor = os.open(sys.argv[1], os.O_RDONLY)
threading.Thread(target=os.read, args=(descriptor, 10), daemon=True).start()
signal.pause()
"""
READ_MASKED = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
signal.signal(signal.SIGUSR2, signal.SIG_IGN)
os.read(os.open(sys.argv[1], os.O_RDONLY), 10)
"""
READ_WITH_HANDLER = """
import os, signal, sys
def handle(*_):
    os.write(1, b"handled\\n")
signal.signal(signal.SIGUSR1, handle)
os.read(os.open(sys.argv[1], os.O_RDONLY), 10)
"""


@pytest.fixture(params=["real", "watch"])
def server(request, tmp_path) -> Iterator[Server]:
    with serving(tmp_path / "mnt", mode=request.param) as server:
        yield server


@pytest.fixture
def real(tmp_path) -> Iterator[Server]:
    with serving(tmp_path / "mnt", mode="real") as server:
        yield server


@pytest.mark.parametrize("number", FATAL)
def test_signal_ends_a_blocked_cat(server, number):
    """A program that waits in a read ends by the signal it gets, and its wait with it."""
    with Client("cat", str(server.path / "never")) as cat:
        server.until(waiting=1)
        cat.send(number)
        assert cat.end() == -number
    server.until(waiting=0, registered=0, watched=0)
    assert works(server)


@pytest.mark.parametrize("code", [READ, READ_IN_THREAD, READ_IN_THREAD_OF_AN_OPENER])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_signal_ends_python(server, code, number):
    """The same for an interpreter, also where another thread than the signalled one waits."""
    with python(code, str(server.path / "never")) as reader:
        server.until(waiting=1)
        reader.send(number)
        assert reader.end() == -number
    server.until(waiting=0, registered=0, watched=0)


def test_inherited_descriptor(real):
    """The program that reads is interrupted, not the one that opened: the watcher cannot do that."""
    script = 'exec 3<>"$1"; cat <&3 & echo $!; wait $!; echo "cat: $?"'
    with Client("bash", "-c", script, "bash", str(real.path / "never")) as bash:
        cat = int(bash.hear())
        real.until(waiting=1)
        os.kill(cat, signal.SIGTERM)
        assert bash.hear() == f"cat: {128 + signal.SIGTERM}"
        assert bash.end() == 0
    real.until(waiting=0, registered=0)


def test_masked_and_ignored_signals_do_not_interrupt(server):
    """A signal that the program does not take leaves its wait alone."""
    with python(READ_MASKED, str(server.path / "never")) as reader:
        server.until(waiting=1)
        reader.send(signal.SIGUSR1)
        reader.send(signal.SIGUSR2)
        rounds = server.statistics()["rounds"]
        # What came for the reader has been dealt with when a later signal to somebody else has.
        with Client("cat", str(server.path / "never")) as other:
            server.until(waiting=2)
            other.send(signal.SIGTERM)
            assert other.end() == -signal.SIGTERM
        if server.mode == "watch":
            until(lambda: server.statistics()["rounds"] > rounds + 2, "the watcher looks again")
        assert server.until(waiting=1)["interrupted"] == 1
        reader.send(signal.SIGTERM)
        assert reader.end() == -signal.SIGTERM


def test_handled_signal_runs_the_handler(server):
    """A program that handles the signal does so at once, and goes back to its read as Python does."""
    with python(READ_WITH_HANDLER, str(server.path / "never")) as reader:
        server.until(waiting=1)
        reader.send(signal.SIGUSR1)
        assert reader.hear() == "handled"
        server.until(waiting=1, interrupted=1)
        reader.send(signal.SIGTERM)
        assert reader.end() == -signal.SIGTERM


def test_signal_between_two_waits_of_a_request(real):
    """A signal that comes while the handler does not wait ends its next wait."""
    with Client("cat", str(real.path / "twice")) as cat:
        real.until(waiting=1)
        assert real.ask("n") == "n"
        real.until(waiting=0, gaps=1)
        cat.send(signal.SIGTERM)
        with Client("cat", str(real.path / "never")) as other:
            real.until(waiting=1)
            other.send(signal.SIGTERM)
            assert other.end() == -signal.SIGTERM
        assert real.ask("m") == "m"
        assert cat.end() == -signal.SIGTERM
    real.until(waiting=0, registered=0, interrupted=2)


def test_300_blocked_readers_are_killed(server):
    """Hundreds of readers wait, the mount works on beside them, and SIGKILL frees every one."""
    path = str(server.path / "never")
    with Client(sys.executable, str(HERE / "crowd.py"), "block", path, "300") as crowd:
        readers = json.loads(crowd.hear())
        server.until(waiting=300)
        assert works(server)
        for reader in readers:
            os.kill(reader, signal.SIGKILL)
        assert crowd.hear() == "ended 300"
        assert crowd.end() == 0
    assert server.until(waiting=0, registered=0, watched=0)["missed"] == 0
    assert works(server)


def test_storm_of_signals(server):
    """Thousands of reads under signals: every answer is the one asked for, and nothing is left over."""
    path = str(server.path / "soon")
    with Client(sys.executable, str(HERE / "crowd.py"), "storm", path, "12", "100") as storm:
        assert storm.hear() == "0"
        assert storm.end() == 0
    found = server.until(waiting=0, registered=0, watched=0)
    assert found["interrupted"] > 0
    assert found["missed"] == 0
    assert found["answered"] >= 12 * 100


def test_unmount_while_readers_wait(server):
    """Leaving frees every reader with an error, and the server ends well."""
    with Client("cat", str(server.path / "never")) as cat:
        server.until(waiting=1)
        assert server.leave() == 0
        assert cat.end() == 1


def test_calibration_succeeds_on_this_machine(real):
    """With the pinned versions real interrupts work; the watcher is for others."""
    assert works(real)
    assert real.statistics()["calibrated"]


class Nobody:
    """A client that no request belongs to."""

    uid = gid = umask = 0
    pid = 1


async def test_calibration_outside_a_request_gives_up(caplog):
    """Where no request can be found the watcher takes over, and the log says so once."""
    interrupts = Interrupts(Watcher())
    results = [await interrupts.calibrate(Nobody()) for _ in range(interrupt.ATTEMPTS_MAX + 2)]
    assert not any(results)
    assert interrupts.settled
    assert not interrupts.calibrated
    assert len(caplog.records) == 1


async def test_without_libfuse_the_watcher_takes_over(monkeypatch):
    """A pyfuse3 whose libfuse lacks the functions is no reason to fail."""
    monkeypatch.setattr(interrupt, "_library", lambda: None)
    interrupts = Interrupts(Watcher())
    assert interrupts.settled
    assert await interrupts.wait(trio.lowlevel.checkpoint)


async def test_uncalibrated_waits_go_to_the_watcher(tmp_path, autojump_clock):
    """Before calibration a wait is watched, and the watcher runs with the interrupts."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_text("Name:\tx\nSigPnd:\t0000000000000002\n")
    interrupts = Interrupts(Watcher(proc=str(tmp_path)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(interrupts.run)
        assert not await interrupts.wait(trio.sleep_forever, 7)
        nursery.cancel_scope.cancel()


async def test_a_request_that_cannot_be_found_is_watched(tmp_path, autojump_clock):
    """A wait outside of its request's own task is counted, and the watcher takes it."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_text("Name:\tx\nSigPnd:\t0000000000000002\n")
    interrupts = Interrupts(Watcher(proc=str(tmp_path)))
    interrupts.calibrated = interrupts.settled = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(interrupts.run)
        assert not await interrupts.wait(trio.sleep_forever, 7)
        assert interrupts.missed == 1
        nursery.cancel_scope.cancel()
