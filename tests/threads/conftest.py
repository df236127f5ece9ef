"""A running kernel for the tests of this folder."""

import pytest
import trio
from trio.testing import MockClock

from tests.groups.grouplab import Lab


@pytest.fixture
async def lab(nursery: trio.Nursery, autojump_clock: MockClock) -> Lab:
    """A kernel that runs. Tests name `autojump_clock` too: pytest-trio looks at their own arguments only."""
    found = Lab()
    await nursery.start(found.kernel.run)
    return found
