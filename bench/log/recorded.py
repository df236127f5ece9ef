"""Events as a daemon appends them, in any number: those of one real run, with other pids, names and texts."""

import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from bench.log import runs
from rnixfs.state.memory import MemoryStore
from rnixfs.state.store import Log, Record

STEPS = 3  # steps with a tool of the run that is recorded
MARK = "@0000000@"
_TOGETHER = 50  # processes of one transaction
_STEP = ("request", "answer", "tool_started", "tool_finished", "step")


class Event(NamedTuple):
    """What an append takes, without the pid."""

    event: str
    data: dict[str, Any]


class Recording:
    """One run of a process.

    Args:
        folder: a place for its system.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        log = MemoryStore()
        stage = runs.Stage(folder, runs.marked(runs.typical(STEPS), MARK))
        self._pid = stage.run(log, f"{MARK} Read all the parts.")
        self._uuid = next(entry.uuid for entry in log.finished())
        self._records = list(log.load(self._pid))
        self._journals = {name: log.read_journal(self._pid, name) for name in runs.JOURNALS}
        last = max(place for place, one in enumerate(self._records) if one.event == "tool_started")
        self._interrupted = self._records[: last + 1]

    def steps(self, count: int) -> list[Event]:
        """That many events of steps, each step with texts of its own."""
        step = [one for one in self._records if one.event in _STEP][: len(_STEP)]
        found = (
            Event(one.event, self._varied(one, self._pid, number))
            for number in range(count // len(step) + 1)
            for one in step
        )
        return [one for one, _ in zip(found, range(count), strict=False)]

    def play(self, log: Log, pid: int, *, whole: bool) -> None:
        """Append a run to a log as that of another process.

        Args:
            log: the log.
            pid: the process.
            whole: whether it ends; else it stops while its last tool runs.
        """
        records = self._records if whole else self._interrupted
        for record in records[:-1]:
            log.append_event(record.event, pid, self._varied(record, pid, pid))
        for name, text in self._journals.items():
            log.append_journal(pid, name, text)
        log.append_event(records[-1].event, pid, self._varied(records[-1], pid, pid))

    def _varied(self, record: Record, pid: int, number: int) -> dict[str, Any]:
        text = msgspec.json.encode(record.data).replace(MARK.encode(), b"@%07d@" % number)
        text = text.replace(self._uuid.encode(), b"%s%012x" % (self._uuid[:-12].encode(), number))
        text = text.replace(b'"effect":"%d.' % self._pid, b'"effect":"%d.' % pid)
        data: dict[str, Any] = msgspec.json.decode(text)
        return data


def fill(log: Log, recording: Recording, pids: Sequence[int], *, whole: bool) -> None:
    """Append a run for each pid, many in one transaction."""
    for first in range(0, len(pids), _TOGETHER):
        with log.batch():
            for pid in pids[first : first + _TOGETHER]:
                recording.play(log, pid, whole=whole)
