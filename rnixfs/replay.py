"""Replays: a recorded process is run again, offline, and compared with what it was.

    python -m rnixfs.replay --log LOG.DB [--recorded] [--json] PID|UUID

The reasoning loop is the real one, in a system that is only in memory; models and tools are answered from the
log, which is opened for reading alone. The agent, its skills and its prompt are those of today, or with
`--recorded` those that the process was started with. Status 0: everything is equal, byte for byte; 1: it
diverges, and the first difference is shown; 2: there is nothing to compare, and why.
"""

import argparse
import contextlib
import dataclasses
import os
import pathlib
import sys
from collections.abc import Callable

import msgspec
import trio

from rnixfs.bootstrap import System
from rnixfs.difference import Difference
from rnixfs.errors import Code, SyscallError
from rnixfs.kernel import Kernel
from rnixfs.proc.files import FILES
from rnixfs.proc.process import Launch, Process
from rnixfs.proc.remake import remake
from rnixfs.proc.state import Exit
from rnixfs.recording import Recording, read_recording
from rnixfs.relaunch import MakeSystem, relaunch, revive, usual_system
from rnixfs.state.memory import MemoryStore
from rnixfs.state.reading import ReadOnlyLog
from rnixfs.state.store import Log
from rnixfs.syscalls import Syscalls
from rnixfs.tape import Tape
from rnixfs.types import Caller

COMPARED = ("messages.json", "steps.jsonl", "result")
"""The files of a process that a replay must give again, byte for byte."""


class Outcome(msgspec.Struct, frozen=True):
    """What came of a replay.

    Args:
        uuid: the process.
        pid: its number.
        steps: how many of its steps were replayed to their end.
        equal: whether there is no difference.
        files: the sizes of the compared files, in bytes, where they are equal.
        difference: the first difference.
    """

    uuid: str
    pid: int
    steps: int
    equal: bool
    files: dict[str, int]
    difference: Difference | None = None

    def lines(self) -> str:
        """It in words."""
        if self.difference is not None:
            where = f"{self.uuid} diverges at step {self.difference.step}: {self.difference.field}"
            return f"{where}\n{self.difference.lines()}"
        sizes = ", ".join(f"{name} {size} bytes" for name, size in self.files.items())
        return f"replayed {self.uuid}: {self.steps} {'step' if self.steps == 1 else 'steps'}, equal: {sizes}"


async def replay(
    log: Log, who: int | str, *, recorded: bool = False, make_system: MakeSystem = usual_system
) -> Outcome:
    """Run a recorded process again, and compare.

    Args:
        log: where it is; nothing is written there.
        who: its pid or UUID.
        recorded: whether it is launched as it was, and has the tools that it had; else as it would be today.
        make_system: makes the system that it runs in.

    Raises:
        SyscallError: there is no such process, it has no steps, or it cannot be launched any more.
    """
    recording = read_recording(log, who)
    first: Outcome | None = None
    for native, late in _ways(recording):
        outcome = await _replay(log, recording, (native, recorded, late), make_system)
        if outcome.equal:
            return outcome
        first = first or outcome
    assert first is not None
    return first


def _ways(recording: Recording) -> list[tuple[bool, bool]]:
    """What the log leaves open: each way it may have been is tried, the likelier one first."""
    natives = (True, False) if recording.native is None else (recording.native,)
    return [(native, late) for late in (False, True)[: 1 + recording.doubtful] for native in natives]


async def _replay(
    log: Log, recording: Recording, how: tuple[bool, bool, bool], make_system: MakeSystem
) -> Outcome:
    native, recorded, late = how
    clock = _Clock()
    store = _Store(recording.pid, clock)
    system = make_system(store, recording.birth.cwd)
    system.kernel.servers.off = True
    past, _ = remake(Kernel(system.kernel.launcher, log), recording.pid)
    launch = revive(system, recording.birth) if recorded else _launch_today(system, recording)
    tape = Tape(recording, launch.model, native, recorded, late)
    clock.read = tape.clock
    process = await _rehearse(system, launch, tape)
    if tape.failed is not None:
        raise tape.failed
    contents = {name: tuple(_read(system.kernel, one, name) for one in (past, process)) for name in COMPARED}
    found = tape.found or _first_difference(contents)
    return Outcome(
        recording.birth.uuid,
        recording.pid,
        len(process.step_records),
        found is None,
        {} if found is not None else {name: len(both[-1]) for name, both in contents.items()},
        found,
    )


class _Clock:
    """The time of the replay; what it reads is known only after it was given away."""

    def __init__(self) -> None:
        self.read: Callable[[], float] = lambda: 0.0

    def __call__(self) -> float:
        return self.read()


class _Store(MemoryStore):
    """An empty log in which the next process gets a certain pid."""

    def __init__(self, pid: int, clock: Callable[[], float]) -> None:
        super().__init__(clock=clock)
        self._first = pid

    def last_pid(self) -> int:
        return max(super().last_pid(), self._first - 1)


def _launch_today(system: System, recording: Recording) -> Launch:
    birth, request = recording.birth, recording.request
    if recording.lost:
        raise _gone(recording, f"the log of process {recording.lost}, whose rights bound it, is gone")
    if request is None:
        raise _gone(recording, "the log does not tell how it was asked for")
    if not os.path.isdir(birth.cwd):
        raise _gone(recording, f"its working folder {birth.cwd} is gone")
    request = msgspec.structs.replace(request, cwd=birth.cwd, parent=None)
    try:
        return relaunch(system, request, birth.provider)
    except SyscallError as error:
        raise _gone(recording, error.reason, error.code) from error


def _gone(recording: Recording, why: str, code: Code = Code.NOT_FOUND) -> SyscallError:
    return SyscallError(
        code,
        f"process {recording.pid} cannot be launched as it would be today: {why}; with --recorded it is "
        "launched as it was",
    )


async def _rehearse(system: System, launch: Launch, tape: Tape) -> Process:
    """Let a process run to where its recording ends."""
    kernel, recording = system.kernel, tape.recording
    process: Process

    async def program(_sys: Syscalls) -> Exit:
        return await tape.run(kernel, process)

    # Its time was measured when it ran; here nothing takes time.
    budget = dataclasses.replace(launch.budget, timeout_ms=0)
    launch = dataclasses.replace(launch, program=program, budget=budget)
    async with trio.open_nursery() as nursery:
        await nursery.start(kernel.run)
        process = kernel.bear(launch, None, bound=tape.bound)
        if recording.inherit is not None:
            kernel.happen(process, "inherit", recording.inherit)
        kernel.runs.begin(process)
        await process.done.wait()
        nursery.cancel_scope.cancel()
    return process


def _read(kernel: Kernel, process: Process, name: str) -> bytes:
    """A file of `proc/<pid>/`, which never makes its readers wait."""
    file = FILES[name](kernel, process).open(Caller(0, 0), os.O_RDONLY)
    data = b""
    while part := file.read(1 << 20, len(data)):
        data += part
    file.close()
    return data


def _first_difference(contents: dict[str, tuple[bytes, ...]]) -> Difference | None:
    """A difference of the files that no event has shown."""
    for name, (past, now) in contents.items():
        if past != now:
            lines = zip(past.splitlines(), now.splitlines(), strict=False)
            place = next((number for number, (one, other) in enumerate(lines, 1) if one != other), 1)
            return Difference(place, name, past.decode("utf-8", "replace"), now.decode("utf-8", "replace"))
    return None


# --- the command ---


class Options(argparse.Namespace):
    """The command line."""

    log: pathlib.Path
    recorded: bool
    json: bool
    who: str


def parse(arguments: list[str]) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m rnixfs.replay", description="Run a recorded process again, offline, and compare."
    )
    parser.add_argument("--log", type=pathlib.Path, required=True, help="the log.db, or the folder it is in")
    parser.add_argument("--recorded", action="store_true", help="with the agent and the tools that it had")
    parser.add_argument("--json", action="store_true", help="the outcome as one JSON object")
    parser.add_argument("who", metavar="PID|UUID", help="the process")
    return parser.parse_args(arguments, namespace=Options())


def main(arguments: list[str] | None = None) -> int:
    """Replay one process; returns the exit status."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    try:
        with contextlib.closing(ReadOnlyLog(options.log)) as log:
            outcome = trio.run(lambda: replay(log, options.who, recorded=options.recorded))
    except SyscallError as error:
        print(f"replay: {error.reason}", file=sys.stderr)
        return 2
    print(msgspec.json.encode(outcome).decode() if options.json else outcome.lines())
    return 0 if outcome.equal else 1


if __name__ == "__main__":
    sys.exit(main())
