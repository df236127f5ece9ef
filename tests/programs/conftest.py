"""A maker of systems with scripted models."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.programs.reasonlab import Bench, Reply, Scripted, Tool

Make = Callable[..., Awaitable[Bench]]


@pytest.fixture
async def make(nursery: trio.Nursery, tmp_path: Path) -> Make:
    """Makes a running system: replies of its model, devices, and whether the model takes tools."""
    assert isinstance(trio.lowlevel.current_clock(), MockClock), "add autojump_clock"

    async def made(*replies: Reply, devices: tuple[Tool, ...] = (), native: bool = True) -> Bench:
        bench = Bench(tmp_path, [Scripted("fake", replies, native)], devices)
        await nursery.start(bench.kernel.run)
        return bench

    return made
