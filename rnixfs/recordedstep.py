"""What a recording is made of: steps, how far a process is in them, and what came from outside meanwhile."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from rnixfs.llm import Message, ModelAnswer
from rnixfs.proc.progress import Compacted, Done, StepEnd

RIGHTS = ("grant", "revoke")
ORDERS = ("budget", *RIGHTS)
"""Events from people and parents that change what a process may do."""

TURNS = ("wake", "spent", *ORDERS)
"""Events from outside that change how a process goes on; what a failed call of the model cost is one."""


class Position(NamedTuple):
    """How far a process is.

    Args:
        step: the step that is open, or the next one.
        heard: how often the conversation grew since the last step.
        asked: how often this step's request was sent.
        answered: whether the model has answered it.
        started: the places of its tool calls that have started.
        done: the places of those that have ended.
    """

    step: int
    heard: int = 0
    asked: int = 0
    answered: bool = False
    started: frozenset[int] = frozenset()
    done: frozenset[int] = frozenset()

    def reached(self, now: "Position") -> bool:
        """Whether a process that is at `now` has come as far as this."""
        if now.step != self.step:
            return now.step > self.step
        counts = now.heard >= self.heard and now.asked >= self.asked and now.answered >= self.answered
        return counts and now.started >= self.started and now.done >= self.done


class Turn(NamedTuple):
    """Something from outside.

    Args:
        position: how far the process was.
        event: one of `TURNS`.
        data: of the event.
        up: whose it is: 0 for the process itself, 1 for its parent, and so on.
    """

    position: Position
    event: str
    data: dict[str, Any]
    up: int = 0


class Heard(NamedTuple):
    """A change of the conversation between two steps, or between two requests of one: messages were added, or
    all of them were replaced by fewer.

    Args:
        messages: the messages.
        inbox: how many of them, from the first on, say what people said.
        told: of which children's ends the others tell, in their order.
        own: whether this is the intent, with which the conversation begins.
        compacted: the compaction that this was, with which `messages` took the place of all others; None
            for messages that were added.
        asked: how often the step's request had been sent.
    """

    messages: list[Message]
    inbox: int = 0
    told: Sequence[int] = ()
    own: bool = False
    compacted: Compacted | None = None
    asked: int = 0

    @property
    def said(self) -> list[str]:
        """What people said."""
        return [message.content for message in self.messages[: self.inbox]]

    @property
    def ends(self) -> list[tuple[int, str]]:
        """The children that have ended, and what is told of each."""
        texts = [message.content for message in self.messages[self.inbox :]]
        return list(zip(self.told, texts, strict=False))


class Asked(NamedTuple):
    """A request to the model.

    Args:
        ts: when it was sent, in seconds since 1970.
        sent: how many messages of the conversation it had.
        system_prompt: as the model got it.
        tools: the tools on offer, as JSON; empty for a model without native tools.
        conversation: which of the recording's conversations it was.
    """

    ts: float
    sent: int
    system_prompt: str
    tools: str
    conversation: int


@dataclasses.dataclass(slots=True)
class Step:
    """One step; the last one of a recording may be cut off anywhere.

    Args:
        number: from 1.
        heard: what came into the conversation before it.
        asked: its request, once for each time it was sent: a stop of the system makes it twice.
        answer: what the model said.
        started: the places of its tool calls that have started.
        done: what came of each tool call, by its place.
        end: how it ended.
    """

    number: int
    heard: list[Heard] = dataclasses.field(default_factory=list)
    asked: list[Asked] = dataclasses.field(default_factory=list)
    answer: ModelAnswer | None = None
    started: set[int] = dataclasses.field(default_factory=set)
    done: dict[int, Done] = dataclasses.field(default_factory=dict)
    end: StepEnd | None = None

    @property
    def position(self) -> Position:
        """How far the process is in it."""
        return Position(
            self.number,
            len(self.heard),
            len(self.asked),
            self.answer is not None,
            frozenset(self.started),
            frozenset(self.done),
        )


def place_of(key: str) -> int:
    """The place of a tool call in its answer, from the key that names the call for all time."""
    return int(key.rpartition("/")[2])
