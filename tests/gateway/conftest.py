"""One daemon and one gateway for all tests of a file."""

from collections.abc import Iterator

import pytest

from tests.gateway.gatelab import Lab, gateway


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A gateway that stays for a whole file."""
    with gateway(tmp_path_factory.mktemp("gateway")) as made:
        yield made
