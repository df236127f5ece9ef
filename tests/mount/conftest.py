"""A daemon for real programs."""

from collections.abc import Iterator

import pytest

from tests.daemon import Daemon, running


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon for the tests that leave it as they found it."""
    with running(tmp_path_factory.mktemp("mount")) as daemon:
        (daemon.host / "hello.txt").write_text("hello\n")
        yield daemon
