"""The drained loop: it takes what is there, yields in time, and never reads an empty descriptor."""

import os
import signal
from collections.abc import Iterator
from functools import partial

import pyfuse3
import pytest
from mountlab import Client, python, serving, until, works

from rnixfs.edge import drain

STAT = "import os,sys; os.write(1, b'asks\\n'); os.stat(sys.argv[1])"
ROUNDS = 12  # each meets the dangerous order of events with a chance of one half


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


@pytest.fixture
def original():
    """pyfuse3's own wait, put back whatever a test did."""
    yield vars(pyfuse3)[drain._GLOBAL]
    drain.uninstall()


def is_asleep(client: Client) -> bool:
    """Whether it waits, or has ended."""
    with open(f"/proc/{client.pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] in "SDZ"


def test_killed_client_does_not_stop_the_loop(tmp_path):
    """A request whose client is killed between "readable" and the read leaves the server running.

    The loop stands still twice. In the first stop the request arrives and the next stop is asked for, so
    that epoll reports both at once; where the second stop comes first, the request is gone when the worker
    gets its turn.
    """
    with serving(tmp_path / "mnt") as server:
        assert server.statistics()["drained"]
        for _ in range(ROUNDS):
            assert server.ask("h") == "held"
            with python(STAT, str(server.path / "nothing")) as client:
                assert client.hear() == "asks"
                until(partial(is_asleep, client), "the client asks")
                assert server.ask("gh") == "going"
                assert server.hear() == "held"
                client.send(signal.SIGKILL)
                client.end()
            assert server.ask("g") == "going"
            server.statistics()
        assert works(server)


@pytest.mark.parametrize("loop", ["plain", "drained"])
def test_both_loops_serve(tmp_path, loop):
    """The plain path behind the drained loop works."""
    with serving(tmp_path / "mnt", loop=loop) as server:
        assert server.statistics()["drained"] is (loop == "drained")
        assert works(server)
        assert server.leave() == 0


def test_not_installed_without_a_session(original):
    """Without exactly one descriptor on /dev/fuse the loop stays as it was."""
    assert not drain.install()
    assert vars(pyfuse3)[drain._GLOBAL] is original


@pytest.mark.parametrize("version", ["3.4.0", "3.6.0", "4.5", "3", ""])
def test_not_installed_in_another_release(monkeypatch, original, pipe, version):
    """The loop of another release of pyfuse3 may be another loop."""
    monkeypatch.setattr(drain, "_session_descriptor", lambda: pipe[0])
    monkeypatch.setattr(pyfuse3, "__version__", version)
    assert not drain.install()
    assert vars(pyfuse3)[drain._GLOBAL] is original


def test_not_installed_without_the_function(monkeypatch, pipe):
    """Nor where the function is gone."""
    monkeypatch.setattr(drain, "_session_descriptor", lambda: pipe[0])
    monkeypatch.delattr(pyfuse3, drain._GLOBAL)
    assert not drain.install()


def test_install_twice_and_uninstall(monkeypatch, original, pipe):
    """A second session replaces the first one's wait, and the original comes back."""
    monkeypatch.setattr(drain, "_session_descriptor", lambda: pipe[0])
    assert drain.install()
    assert drain.install()
    assert vars(pyfuse3)[drain._GLOBAL] is not original
    drain.uninstall()
    drain.uninstall()
    assert vars(pyfuse3)[drain._GLOBAL] is original


async def test_bursts_are_bounded(pipe):
    """While requests are there the scheduler gets its turn once in `BURST` of them."""
    turns: list[None] = []

    async def original():
        turns.append(None)
        return True

    os.write(pipe[1], b"x")
    wait = drain._drained(original, pipe[0])
    for _ in range(10 * (drain.BURST + 1)):
        assert await wait()
    assert len(turns) == 10


async def test_empty_descriptor_is_not_reported(pipe):
    """Where the request that woke the worker is gone it waits for the next."""
    turns: list[None] = []

    async def original():
        turns.append(None)
        if len(turns) == 3:
            os.write(pipe[1], b"x")
        return True

    assert await drain._drained(original, pipe[0])()
    assert len(turns) == 3


async def test_end_of_the_session_is_reported(pipe):
    """False ends a worker."""

    async def original():
        return False

    assert not await drain._drained(original, pipe[0])()


def test_a_burst_may_take_as_long_as_the_others_did():
    """An idle loop keeps the small bound, a busy one shares the processor, and no burst is without end."""
    assert drain.burst_after(0.0) == drain.burst_after(0.001) == drain.BURST
    assert drain.burst_after(0.010) == 200
    assert drain.burst_after(60.0) == drain.BURST_MAX
