"""A user for tests that start, end or break daemons, and one whose daemon the other tests share."""

import pathlib
from collections.abc import Iterator

import pytest

from tests.endtoend.user import User, user_of


@pytest.fixture
def user(tmp_path: pathlib.Path) -> Iterator[User]:
    """A user who has not used the command yet."""
    with user_of(tmp_path) as user:
        yield user


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """A user whose daemon runs, and stays, for all tests of a file."""
    with user_of(tmp_path_factory.mktemp("worker")) as user:
        assert user.rnix("mount", "--root", str(user.work)).status == 0
        yield user
