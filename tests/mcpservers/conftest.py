"""A daemon with real servers."""

import pathlib
from collections.abc import Iterator

import pytest

from tests.daemon import running
from tests.mcpservers import packages
from tests.mcpservers.packages import HttpServer
from tests.mcpservers.serverlab import Lab


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    """server-everything over HTTP."""
    with packages.serving(tmp_path_factory.mktemp("http")) as server:
        yield server


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, http: HttpServer) -> Iterator[Lab]:
    """One daemon for the tests of a file, on which server-everything is mounted by both transports."""
    with running(tmp_path_factory.mktemp("mcp")) as daemon:
        lab = Lab(daemon)
        lab.begin("stdio", packages.everything())
        lab.begin("http", {"url": http.url})
        lab.ready("stdio")
        lab.ready("http")
        yield lab


@pytest.fixture(params=["stdio", "http"])
def everything(shared: Lab, request: pytest.FixtureRequest) -> str:
    """The name of a mount of server-everything, by each transport."""
    return str(request.param)


@pytest.fixture
def lab(tmp_path: pathlib.Path) -> Iterator[Lab]:
    """A daemon of its own for a test that breaks things, or counts them."""
    with running(tmp_path) as daemon:
        yield Lab(daemon)
