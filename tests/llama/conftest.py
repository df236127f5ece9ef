"""One llama-server for all tests here, and systems that know it as a provider."""

import pathlib
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.llama.llamalab import Lab, configured, system_of
from tests.llama.server import LlamaServer, running


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    """The real server with the scripted model."""
    with running(tmp_path_factory.mktemp("llama")) as server:
        yield server


@pytest.fixture
async def lab(llama: LlamaServer, tmp_path: pathlib.Path) -> AsyncIterator[Lab]:
    """A system in memory whose providers are all that server, each through another driver."""
    async with system_of(configured(tmp_path, llama), llama) as made:
        yield made
