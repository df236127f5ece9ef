"""A running kernel for the tests of this folder."""

import pytest
import trio

from tests.supervision.supervisorlab import Lab


@pytest.fixture
async def lab(nursery: trio.Nursery) -> Lab:
    """A kernel that runs. Tests take `autojump_clock` beside it: only their own arguments set the clock."""
    found = Lab()
    await nursery.start(found.kernel.run)
    return found
