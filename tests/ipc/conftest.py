"""A running kernel with pipes for the tests of this folder."""

import pytest
import trio

from rnixfs.exchange import DeviceNode
from rnixfs.proc.pipes import PipeDevice, Pipes
from tests.kernel.kernellab import Lab


@pytest.fixture
async def lab(nursery: trio.Nursery) -> Lab:
    """A kernel that runs, with `dev/pipe` and `dev/pipes`."""
    found = Lab()
    pipes = Pipes(found.kernel)
    device = PipeDevice(found.kernel, pipes)
    found.dev["pipe"] = DeviceNode("dev/pipe", "/dev/pipe", device, found.kernel.start)
    found.dev["pipes"] = pipes
    await nursery.start(found.kernel.run)
    return found
