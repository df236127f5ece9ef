"""A running kernel for the tests of this folder."""

import pytest
import trio
from trio.testing import MockClock

from tests.kernel.kernellab import Lab


@pytest.fixture
async def lab(nursery: trio.Nursery) -> Lab:
    """A kernel that runs; the test must ask for a clock itself, since pytest-trio looks nowhere else."""
    assert isinstance(trio.lowlevel.current_clock(), MockClock), "add autojump_clock or mock_clock"
    found = Lab()
    await nursery.start(found.kernel.run)
    return found
