"""Whatever event the daemon is killed at, or its disk fails at, nothing is lost and nothing is done twice."""

import pathlib

import pytest

from tests.crash.harness import Outcome, try_points, undisturbed
from tests.crash.points import Point, plan, plan_troubles

SEED = 20_251
SHARES, POINTS = 10, 50  # 500 points: each boundary of the run at least once, on both sides
TROUBLE_SHARES, TROUBLES = 4, 15

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> int:
    """Events of a run in which nothing happens; its result is the one that all others must have."""
    return undisturbed(tmp_path_factory.mktemp("undisturbed")).lives[0]


def passed(points: list[Point], base: pathlib.Path) -> list[Outcome]:
    """What came of points, at all of which every law held."""
    outcomes = try_points(points, base)
    wrong = [f"{one.point}: {one.error}\n{one.folder}" for one in outcomes if one.error]
    again = "again: python -m tests.crash.harness --point POINT"
    assert not wrong, "\n\n".join([f"{len(wrong)} of {len(outcomes)} points; {again}", *wrong[:5]])
    return outcomes


def test_the_points_are_at_every_boundary(events: int) -> None:
    """The points that are tried kill at each event of the run, before and after it was kept."""
    tried = {point.kills[0] for point in plan(SEED, SHARES * POINTS, events)}
    assert len(tried) == min(2 * events, SHARES * POINTS)
    assert events > 60


@pytest.mark.parametrize("share", range(SHARES))
def test_a_killed_daemon_goes_on_where_it_stood(events: int, tmp_path: pathlib.Path, share: int) -> None:
    """Killed before or after any event, and once more while it recovers: the result is the same, what was
    acknowledged is in the log as it was, and every effect and every process came once."""
    points = plan(SEED, SHARES * POINTS, events)[share::SHARES]
    outcomes = passed(points, tmp_path)
    assert sum(len(one.lives) > 1 for one in outcomes) > POINTS * 0.9


@pytest.mark.parametrize("share", range(TROUBLE_SHARES))
def test_a_failing_disk_loses_nothing(events: int, tmp_path: pathlib.Path, share: int) -> None:
    """With a full disk or a sync that fails at any event, the daemon stays up and works again afterwards;
    what it acknowledged is kept, also if it is killed soon after."""
    points = plan_troubles(SEED, TROUBLE_SHARES * TROUBLES, events)[share::TROUBLE_SHARES]
    passed(points, tmp_path)
