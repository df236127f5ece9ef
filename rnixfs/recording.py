"""One process as its log tells it: step by step what it was sent, what it said and did, and what came of it.

A recording is what a replay answers from, and what it compares with. It has three parts: what the process was
born with; its steps; and its turns, which are all that came from outside between two of its own events (its
waking after a stop, a new budget, a changed right), each at its position.
"""

import bisect
import dataclasses
from collections.abc import Collection, Iterator
from typing import Any, Protocol

import msgspec

from rnixfs.errors import Code, SyscallError, invalid
from rnixfs.llm import Message, ModelAnswer
from rnixfs.mcp.places import own_path
from rnixfs.proc.birth import Birth, read_birth
from rnixfs.proc.progress import Compacted, Done, StepEnd
from rnixfs.proc.request import SpawnRequest
from rnixfs.proc.state import Exit
from rnixfs.proc.view import Rights
from rnixfs.recordedstep import RIGHTS, TURNS, Asked, Heard, Position, Step, Turn
from rnixfs.state.store import Entry, Record


class Source(Protocol):
    """What of a log is needed."""

    def load(self, pid: int, events: Collection[str] = ()) -> Iterator[Record]:
        """As `store.Store` has it."""

    def entry(self, who: int | str) -> Entry | None:
        """As `store.Archive` has it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Ancestor:
    """What bounds a process from above.

    Args:
        birth: of the ancestor.
        before: its rights' changes before the process was born.
    """

    birth: Birth
    before: list[Record]


@dataclasses.dataclass(slots=True)
class Recording:
    """A process as its log tells it.

    Args:
        pid: its number.
        birth: what it was born with.
        began: when it was born, in seconds since 1970.
        request: how it was asked for; for a fork, how the process was that it was forked from; None where
            the log does not tell.
        ancestors: its parent, the parent's parent, and so on.
        lost: the ancestor whose log is gone, 0 if none is.
        inherit: what it took over as a fork.
        steps: its steps, the first one first.
        turns: what came from outside, in order.
        conversations: all its messages; a compaction begins another list of them.
        exit: how it ended, None while it has not.
    """

    pid: int
    birth: Birth
    began: float
    request: SpawnRequest | None
    ancestors: list[Ancestor]
    lost: int
    inherit: dict[str, Any] | None = None
    steps: list[Step] = dataclasses.field(default_factory=list)
    turns: list[Turn] = dataclasses.field(default_factory=list)
    conversations: list[list[Message]] = dataclasses.field(default_factory=lambda: [[]])
    exit: Exit | None = None

    def sent(self, asked: Asked) -> list[Message]:
        """The messages that a request had."""
        return self.conversations[asked.conversation][: asked.sent]

    @property
    def native(self) -> bool | None:
        """Whether its model took tools natively; None where it was never asked."""
        return next((bool(asked.tools) for step in self.steps for asked in step.asked), None)

    @property
    def finished(self) -> list[Step]:
        """The steps that have an end."""
        return [step for step in self.steps if step.end is not None]

    @property
    def doubtful(self) -> bool:
        """Whether rights changed while its program was starting, so that the tools it found are uncertain."""
        begun = Position(self.steps[0].number)
        for turn in self.turns:
            if turn.event == "wake":
                begun = turn.position
            elif turn.event in RIGHTS and turn.position == begun:
                return True
        return False

    def step(self, number: int) -> Step | None:
        """The step with a number."""
        place = number - self.steps[0].number
        return self.steps[place] if 0 <= place < len(self.steps) else None

    def bounds(self) -> list[Rights]:
        """The rights of its ancestors when it was born, the parent's first; made anew at each call."""
        rights: list[Rights] = []
        for one in reversed(self.ancestors):
            above = rights[0] if rights else None
            own = (own_path(0, server) for server in one.birth.mcp)  # their names count, not whose they were
            rights.insert(0, Rights(one.birth.allowed_devices, above, own))
            for record in one.before:
                change_rights(rights[0], record.event, record.data)
        return rights


def change_rights(rights: Rights, event: str, data: dict[str, Any]) -> None:
    """Change rights as an event in `RIGHTS` says."""
    change = rights.deny if event == "revoke" else rights.allow
    change(data["path"])


def ended_by_itself(exit_: Exit) -> bool:
    """Whether an end follows from the steps alone: not from a signal, a time limit or a failure around it."""
    rules = ("max_iterations:", "budget_exceeded:", "repeated_failure:", "no_progress:")
    return exit_.code in (0, 2, 3) or exit_.reason.startswith(rules)


# --- reading ---


def read_recording(log: Source, who: int | str) -> Recording:
    """The recording of a process.

    Args:
        log: where it is.
        who: its pid or UUID.

    Raises:
        SyscallError: NOT_FOUND; INVALID for a supervisor, which has no steps; DRIVER for what can no longer
            be read, or was written by a release that kept it otherwise.
    """
    records = _records(log, who)
    try:
        return _recording(log, records)
    except (msgspec.ValidationError, KeyError, TypeError, ValueError) as error:
        reason = f"process {records[0].pid} has events that this release cannot read: {error}"
        raise SyscallError(Code.DRIVER, reason) from error


def _recording(log: Source, records: list[Record]) -> Recording:
    birth = read_birth(records[0].data)
    if birth.supervisor is not None:
        raise invalid(f"process {records[0].pid} is a supervisor: it has no steps; name one of its children")
    ancestors, lost, later = _ancestry(log, birth.ppid, records[0].seq)
    request = _request(log, birth)
    recording = Recording(records[0].pid, birth, records[0].ts, request, ancestors, lost)
    _Reader(recording).read(records[1:], later)
    return recording


def _records(log: Source, who: int | str) -> list[Record]:
    if isinstance(who, str) and who.isdecimal():
        who = int(who)
    entry = log.entry(who)
    records = list(log.load(entry.pid)) if entry is not None else []
    if not records or records[0].event != "spawn":
        raise SyscallError(
            Code.NOT_FOUND, f"there is no process {who} in the log; give the pid or UUID of one that is there"
        )
    return records


def _ancestry(log: Source, pid: int, born: int) -> tuple[list[Ancestor], int, list[tuple[int, Record]]]:
    """The ancestors from the parent up; the first whose log is gone; changes of rights after a birth, with
    how far up they happened."""
    ancestors: list[Ancestor] = []
    later: list[tuple[int, Record]] = []
    while pid:
        records = list(log.load(pid, ("spawn", *RIGHTS)))
        if not records or records[0].event != "spawn":
            return ancestors, pid, later
        birth = read_birth(records[0].data)
        place = bisect.bisect(records, born, key=lambda record: record.seq)
        ancestors.append(Ancestor(birth, records[1:place]))
        later += [(len(ancestors), record) for record in records[max(1, place) :]]
        pid = birth.ppid
    return ancestors, 0, later


def _request(log: Source, birth: Birth) -> SpawnRequest | None:
    """How a process was asked for, or the one that it descends from by forks."""
    source: Birth | None = birth
    while source is not None and (source.request is None or source.request.fork is not None):
        source = _forked_from(log, source)
    return source.request if source is not None else None


def _forked_from(log: Source, birth: Birth) -> Birth | None:
    """The birth of the process that one was forked from; None where it is no fork, or that one is gone."""
    entry = log.entry(birth.origin.uuid) if birth.origin is not None else None
    found = list(log.load(entry.pid, ("spawn",))) if entry is not None else []
    return read_birth(found[0].data) if found else None


class _Reader:
    """Puts the events of a process where they belong."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._step = Step(1)

    def read(self, records: list[Record], later: list[tuple[int, Record]]) -> None:
        mixed = [(0, record) for record in records] + later
        for up, record in sorted(mixed, key=lambda one: one[1].seq):
            if record.event in TURNS:
                turn = Turn(self._step.position, record.event, record.data, up)
                self._recording.turns.append(turn)
            elif (row := _ROWS.get(record.event)) is not None:
                row(self, record)
        self._recording.steps.append(self._step)

    def inherit(self, record: Record) -> None:
        self._recording.inherit = record.data
        self._conversation.extend(_messages(record))
        self._step.number = record.data["steps"] + 1
        # What the fork took over of its power came before, and belongs to this step as well.
        turns = self._recording.turns
        turns[:] = [turn._replace(position=self._step.position) for turn in turns]

    @property
    def _conversation(self) -> list[Message]:
        return self._recording.conversations[-1]

    def grow(self, record: Record) -> None:
        data, conversation = record.data, self._conversation
        heard = Heard(_messages(record), data.get("inbox", 0), data.get("told", []), not conversation)
        self._step.heard.append(heard)
        conversation += heard.messages

    def compacted(self, record: Record) -> None:
        what = msgspec.convert(record.data, Compacted)
        heard = Heard(what.messages, compacted=what, asked=len(self._step.asked))
        self._step.heard.append(heard)
        self._recording.conversations.append(list(what.messages))

    def request(self, record: Record) -> None:
        data = record.data
        number = len(self._recording.conversations) - 1
        asked = Asked(record.ts, data["sent"], data["system_prompt"], data["tools"], number)
        self._step.asked.append(asked)

    def answer(self, record: Record) -> None:
        self._step.answer = msgspec.convert(record.data["answer"], ModelAnswer)

    def started(self, record: Record) -> None:
        self._step.started.add(record.data["place"])

    def finished(self, record: Record) -> None:
        self._step.done[record.data["place"]] = msgspec.convert(record.data["done"], Done)

    def end(self, record: Record) -> None:
        self._step.end = msgspec.convert(record.data, StepEnd)
        self._conversation.extend(self._step.end.messages)
        self._recording.steps.append(self._step)
        self._step = Step(self._step.number + 1)

    def exit(self, record: Record) -> None:
        self._recording.exit = Exit(record.data["code"], record.data["reason"])


def _messages(record: Record) -> list[Message]:
    return msgspec.convert(record.data["messages"], list[Message])


_ROWS = {
    "inherit": _Reader.inherit,
    "messages": _Reader.grow,
    "compacted": _Reader.compacted,
    "request": _Reader.request,
    "answer": _Reader.answer,
    "tool_started": _Reader.started,
    "tool_finished": _Reader.finished,
    "step": _Reader.end,
    "exit": _Reader.exit,
}
