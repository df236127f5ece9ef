"""Stores for the tests of this folder."""

import pathlib
from collections.abc import Iterator

import pytest

from rnixfs.state.memory import MemoryStore
from rnixfs.state.sqlite import SqliteStore
from rnixfs.state.store import Log
from tests.state.storelab import Clock


@pytest.fixture
def clock() -> Clock:
    """A time that moves only when the test says so."""
    return Clock()


@pytest.fixture
def disk(tmp_path: pathlib.Path, clock: Clock) -> Iterator[SqliteStore]:
    """A log on disk; nobody cuts the power, so nothing is synced, which would take most of the time."""
    store = SqliteStore(tmp_path / "state", synchronous="off", clock=clock, timer=clock)
    yield store
    store.close()


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, clock: Clock) -> Log:
    """A log of each kind."""
    if request.param == "memory":
        return MemoryStore(clock=clock)
    found: SqliteStore = request.getfixturevalue("disk")
    return found
