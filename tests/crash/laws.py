"""What must hold of a system after its last life, whatever happened to it."""

import collections

from rnixfs.state.store import Record
from tests.crash import hooks
from tests.crash.life import digest
from tests.crash.system import HarnessError, System

PROCESSES = 6  # root, its two children, the supervisor and its two
EFFECTS = ["first", "long", "one", "reader", "second", "two", "writer"]
RESULT = """\
The file says: input for all
1 file, 1 line.
Children: reader, writer.
Effects: long, one, reader, two, writer.
"""
"""What the root agent answers when nothing happens to anybody."""


def check(system: System) -> None:
    """Check what came of a system that has lived.

    Raises:
        HarnessError: which law was broken, and how.
    """
    _check_ends(system)
    _check_effects(system)
    check_log(system, hooks.log_of(system.place.state))


def _must(holds: object, law: str, found: object) -> None:
    if not holds:
        raise HarnessError(f"{law}: {found}")


def _check_ends(system: System) -> None:
    for name, end in system.told["ends"].items():
        _must(end["code"] == 0 and end["reason"] == "done", f"{name} ends well", end)
    result = system.told["ends"]["root"]["result"]
    _must(result == RESULT, "the result is that of an undisturbed run", result)


def _check_effects(system: System) -> None:
    effects = sorted(system.place.effects.read_text().splitlines())
    doubled = [name for name, count in collections.Counter(effects).items() if count > 1]
    _must(not doubled, "no effect comes twice", effects)
    wanted = sorted([*EFFECTS, *_more(system)])
    _must(effects == wanted, "every effect comes", effects)


def _more(system: System) -> list[str]:
    """Effects beyond those of every run: where the disk failed, somebody tries the daemon at the end."""
    return [name for name in system.told["ends"] if name == "after"]


def check_log(system: System, records: list[Record]) -> None:
    """Check what is in the log of a system that has lived.

    Raises:
        HarnessError: which law was broken, and how.
    """
    kept = {record.seq: digest(record) for record in records}
    gone = [ack for ack in system.acks if kept.get(ack.seq) != ack.digest]
    # The log is cleared of pipes in which nothing is left.
    cleared = {ack.seq for ack in gone if ack.event.startswith("pipe") and ack.seq not in kept}
    for ack in gone:
        # What could not be kept at once may go with a daemon that is killed, if its disk failed.
        _must(
            ack.seq in cleared or (ack.vital and system.point.trouble is not None),
            "an acknowledged event is in the log as it was",
            f"number {ack.seq}, {ack.event}, is {'another' if ack.seq in kept else 'missing'}",
        )
    numbers = [*(record.seq for record in records), *cleared]
    _must(len(set(numbers)) == len(numbers), "no number comes twice", numbers)
    missing = set(range(1, max(numbers) + 1)) - set(numbers)
    # An event that was refused when its sync failed can be in the log all the same once the daemon is killed,
    # and be cleared from it with its pipe; nobody was told of it.
    unheard = system.point.trouble is not None and missing.isdisjoint(ack.seq for ack in system.acks)
    _must(not missing or unheard, "events are numbered without gaps", sorted(missing))
    _check_processes(system, records)
    _check_pipe(system)


def _check_pipe(system: System) -> None:
    lost = system.place.effects.with_name("effects.lost").exists()
    read = any(ack.event == "pipe_read" for ack in system.acks)
    # Whoever meets a disk that fails closes the pipe, and a pipe that all have closed is gone.
    excused = read or system.point.trouble is not None
    _must(excused or not lost, "what was written into a pipe and never read is there", "it is lost")


def _check_processes(system: System, records: list[Record]) -> None:
    spawned = [record.pid for record in records if record.event == "spawn"]
    ended = [record.pid for record in records if record.event == "exit"]
    _must(sorted(spawned) == sorted(ended), "every process ends, and once", (spawned, ended))
    _must(len(spawned) == PROCESSES + len(_more(system)), "no process is made twice", spawned)
