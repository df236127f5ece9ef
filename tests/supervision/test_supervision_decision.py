"""What a supervisor does when a child ends, as a table and as laws over every case."""

import itertools

import pytest

from rnixfs.proc.supervision import (
    ChildSpec,
    Decision,
    Restart,
    Strategy,
    SupervisorSpec,
    decide,
    ends_for_good,
    recent,
)

P, T, Y = Restart.PERMANENT, Restart.TRANSIENT, Restart.TEMPORARY
ONE, ALL, REST = Strategy.ONE_FOR_ONE, Strategy.ONE_FOR_ALL, Strategy.REST_FOR_ONE
NAMES = "abc"


def spec(strategy, kinds=(P, P, P), max_restarts=3, max_window=60.0):
    """A supervisor of a, b and c."""
    children = tuple(ChildSpec(name, "x", restart=kind) for name, kind in zip(NAMES, kinds, strict=True))
    return SupervisorSpec("s", children, strategy, max_restarts, max_window)


TABLE = [
    # strategy, kinds, ended, code, wanted -> stop, start
    (ONE, (P, P, P), "a", 1, "bc", "", "a"),
    (ONE, (P, P, P), "b", 0, "ac", "", "b"),
    (ONE, (P, P, P), "c", 3, "", "", "c"),
    (ONE, (T, P, P), "a", 0, "bc", "", ""),
    (ONE, (T, P, P), "a", 2, "bc", "", "a"),
    (ONE, (Y, P, P), "a", 0, "bc", "", ""),
    (ONE, (Y, P, P), "a", 1, "bc", "", ""),
    (ALL, (P, P, P), "a", 1, "bc", "cb", "abc"),
    (ALL, (P, P, P), "b", 0, "ac", "ca", "abc"),
    (ALL, (P, P, P), "c", 1, "ab", "ba", "abc"),
    (ALL, (P, P, P), "b", 1, "c", "c", "bc"),
    (ALL, (T, P, P), "a", 0, "bc", "", ""),
    (ALL, (Y, P, P), "a", 1, "bc", "", ""),
    (ALL, (Y, P, P), "b", 1, "ac", "ca", "bc"),
    (ALL, (Y, P, Y), "b", 1, "ac", "ca", "b"),
    (ALL, (T, P, T), "b", 1, "ac", "ca", "abc"),
    (REST, (P, P, P), "a", 1, "bc", "cb", "abc"),
    (REST, (P, P, P), "b", 1, "ac", "c", "bc"),
    (REST, (P, P, P), "c", 0, "ab", "", "c"),
    (REST, (P, T, P), "b", 0, "ac", "", ""),
    (REST, (P, P, Y), "a", 1, "bc", "cb", "ab"),
    (REST, (Y, P, P), "b", 1, "ac", "c", "bc"),
]


@pytest.mark.parametrize(("strategy", "kinds", "ended", "code", "wanted", "stop", "start"), TABLE)
def test_the_table(strategy, kinds, ended, code, wanted, stop, start):
    """Each row says whom an end concerns: stopped in reverse order, started in order."""
    found = decide(spec(strategy, kinds), ended, code, set(wanted), [], 0.0)
    assert found == Decision(tuple(stop), tuple(start))


CASES = [
    (strategy, kinds, ended, code, wanted)
    for strategy in Strategy
    for kinds in itertools.product(Restart, repeat=3)
    for ended in NAMES
    for code in (0, 1, 2, 3)
    for size in range(3)
    for wanted in itertools.combinations([name for name in NAMES if name != ended], size)
]


def test_every_case_obeys_the_laws():
    """Over all strategies, kinds, codes and sets of running children: what has ended for good changes
    nothing; otherwise the ended child starts again, only those that the strategy names stop and start, in
    the two orders, and nothing temporary and nothing that did not run is started."""
    for strategy, kinds, ended, code, wanted in CASES:
        found = decide(spec(strategy, kinds), ended, code, wanted, [], 0.0)
        kind = dict(zip(NAMES, kinds, strict=True))
        again = kind[ended] is P or (kind[ended] is T and code != 0)
        if not again:
            assert found == Decision()
            continue
        concerned = {
            ONE: set(),
            ALL: set(wanted),
            REST: {name for name in wanted if name > ended},
        }[strategy]
        assert found.stop == tuple(sorted(concerned, reverse=True))
        assert found.start == tuple(sorted({ended} | {one for one in concerned if kind[one] is not Y}))
        assert not found.give_up


def test_too_many_restarts_stop_all_that_runs_whatever_the_strategy():
    """The restart after the last one allowed is refused: all others stop, the last started first."""
    for strategy, kinds, ended, code, wanted in CASES:
        given = spec(strategy, kinds, max_restarts=2)
        found = decide(given, ended, code, wanted, [1.0, 2.0], 3.0)
        if ends_for_good(given.children[NAMES.index(ended)], code):
            assert found == Decision()
        else:
            assert found == Decision(tuple(sorted(wanted, reverse=True)), (), give_up=True)


@pytest.mark.parametrize(
    ("restarts", "now", "gives_up"),
    [
        ([], 0.0, False),
        ([0.0, 1.0], 2.0, False),
        ([0.0, 1.0, 2.0], 3.0, True),
        ([0.0, 1.0, 2.0], 60.0, True),
        ([0.0, 1.0, 2.0], 60.5, False),
        ([0.0, 30.0, 61.0], 62.0, False),
        ([2.5, 30.0, 61.0], 62.0, True),
    ],
)
def test_the_window_slides(restarts, now, gives_up):
    """Only restarts of the last 60 s count, the one exactly 60 s ago among them."""
    assert decide(spec(ONE), "a", 1, "bc", restarts, now).give_up is gives_up


def test_no_restarts_allowed_means_the_first_failure_ends_it():
    """`max_restarts` of 0 is a supervisor that only starts and stops together."""
    assert decide(spec(ONE, max_restarts=0), "a", 1, "", [], 0.0) == Decision(give_up=True)


def test_recent_keeps_what_lies_within_the_window():
    """Times older than the window are forgotten."""
    assert recent([0.0, 10.0, 20.0], 10.0, 20.0) == [10.0, 20.0]
