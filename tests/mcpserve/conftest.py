"""One daemon, and one server that listens, for all tests of a file."""

from collections.abc import Iterator

import pytest

from tests.mcpserve.servelab import Lab, Server, world


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A daemon that stays for a whole file."""
    with world(tmp_path_factory.mktemp("mcpserve")) as made:
        (made.daemon.host / "note.txt").write_text("kept\n")
        yield made


@pytest.fixture(scope="module")
def server(lab: Lab) -> Server:
    """A server that may do everything, and stays for a whole file."""
    return lab.http()
