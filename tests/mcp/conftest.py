"""A running system for the tests of this folder."""

import pathlib
from collections.abc import AsyncIterator

import pytest

from tests.mcp.mcplab import Lab, running


@pytest.fixture
async def lab(tmp_path: pathlib.Path) -> AsyncIterator[Lab]:
    """A system that runs."""
    async with running(tmp_path) as lab:
        yield lab
