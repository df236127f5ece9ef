"""A running kernel for the tests of this folder."""

import pytest
import trio
from trio.testing import MockClock

from tests.kernel.kernellab import Lab


@pytest.fixture
async def lab(nursery: trio.Nursery, autojump_clock: MockClock) -> Lab:
    """A kernel that runs, on a clock that jumps to whatever is waited for."""
    found = Lab()
    await nursery.start(found.kernel.run)
    return found
