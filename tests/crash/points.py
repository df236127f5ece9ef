"""Points: where a daemon dies, and where its disk fails."""

import random
from typing import NamedTuple

BEFORE, AFTER = "before", "after"
FULL, SYNC = "full", "sync"


class Kill(NamedTuple):
    """Where a daemon dies.

    Args:
        number: an event of this life, from 1.
        when: before it is kept, or after it was kept and before anybody heard of it.
    """

    number: int
    when: str


class Trouble(NamedTuple):
    """Where the disk begins to fail.

    Args:
        kind: `full` or `sync`.
        number: the event of this life, from 1, with which it begins.
        refusals: how many events are refused before it is over.
    """

    kind: str
    number: int
    refusals: int


class Point(NamedTuple):
    """What happens to one system.

    Args:
        kills: where the daemon dies, one for each of its first lives.
        trouble: where the disk fails in its first life.
        unmount: whether the harness unmounts after a death, or leaves that to the next daemon.
    """

    kills: tuple[Kill, ...] = ()
    trouble: Trouble | None = None
    unmount: bool = True

    def __str__(self) -> str:
        """The text that `read_point` reads."""
        parts = [f"{kill.number}:{kill.when}" for kill in self.kills]
        if self.trouble is not None:
            parts.append(f"{self.trouble.kind}@{self.trouble.number}x{self.trouble.refusals}")
        return "+".join(parts or ["none"]) + ("" if self.unmount else "/stale")


def read_point(text: str) -> Point:
    """A point from its text: `17:after`, `17:after+4:before/stale`, `full@20x2`, `none`."""
    words, _, stale = text.partition("/")
    kills, trouble = [], None
    for word in words.split("+"):
        if "@" in word:
            kind, _, rest = word.partition("@")
            number, _, refusals = rest.partition("x")
            trouble = Trouble(kind, int(number), int(refusals))
        elif word != "none":
            number, _, when = word.partition(":")
            kills.append(Kill(int(number), when))
    return Point(tuple(kills), trouble, not stale)


def plan(seed: int, count: int, events: int) -> list[Point]:
    """Points at every boundary of a run, in an order of the seed, as often as there are to be.

    Args:
        seed: decides all that is left to chance.
        count: how many.
        events: events of a life in which nothing happens.
    """
    chance = random.Random(seed)
    places = [Kill(number, when) for number in range(1, events + 1) for when in (BEFORE, AFTER)]
    points: list[Point] = []
    while len(points) < count:
        chance.shuffle(places)
        points += [_with_second(chance, place, events) for place in places]
    return points[:count]


def _with_second(chance: random.Random, first: Kill, events: int) -> Point:
    second = Kill(chance.randint(1, max(2, events - first.number)), chance.choice((BEFORE, AFTER)))
    kills = (first, second) if chance.random() < 1 / 3 else (first,)
    return Point(kills, unmount=chance.random() < 1 / 2)


def plan_troubles(seed: int, count: int, events: int) -> list[Point]:
    """Points at which the disk fails, some of them with a death soon after."""
    chance = random.Random(seed)
    points = []
    for _ in range(count):
        trouble = Trouble(chance.choice((FULL, SYNC)), chance.randint(2, events), chance.randint(1, 3))
        death = Kill(trouble.number + chance.randint(1, 6), chance.choice((BEFORE, AFTER)))
        points.append(Point((death,) if chance.random() < 1 / 3 else (), trouble))
    return points
