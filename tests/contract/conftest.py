"""The tree of a running system, for tests that are run with both ways to reach it."""

import pathlib
from collections.abc import AsyncIterator, Iterator

import pytest
import trio

from rnixfs.bootstrap import Settings, System
from rnixfs.state.sqlite import SqliteStore
from tests.contract.world import World
from tests.daemon import Daemon, environment, running
from tests.tree import MemoryTree, MountTree


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon for all tests of this folder; each reaches it from a session of its own."""
    with running(tmp_path_factory.mktemp("contract")) as daemon:
        yield daemon


@pytest.fixture(params=["memory", "mount"])
async def world(
    request: pytest.FixtureRequest, daemon: Daemon, tmp_path: pathlib.Path
) -> AsyncIterator[World]:
    """A tree, in memory and through a mount, with the host's folder filled alike."""
    if request.param == "mount":
        tree = await trio.to_thread.run_sync(MountTree, daemon)
        world = World(tree, daemon.host)
        _fill(daemon.host)
        try:
            yield world
            await world.leave()
        finally:
            await trio.to_thread.run_sync(tree.end)
    else:
        host = tmp_path / "host"
        host.mkdir()
        _fill(host)
        log = SqliteStore(tmp_path / "state")
        system = System(Settings((str(host),), env=environment(tmp_path)), log=log)
        async with trio.open_nursery() as nursery:
            await nursery.start(system.kernel.run)
            yield World(MemoryTree(system), host)
            nursery.cancel_scope.cancel()
        await system.models.aclose()
        log.close()


def _fill(host: pathlib.Path) -> None:
    (host / "hello.txt").write_text("hello\n")
    (host / "sub").mkdir(exist_ok=True)
    (host / "sub" / "inner.txt").write_text("inner hello\n")
