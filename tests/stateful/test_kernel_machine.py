"""Whatever is done to processes, in whatever order: the laws of the kernel hold."""

import traceback
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from rnixfs.kernel import Kernel
from rnixfs.proc import fold
from rnixfs.proc.channels import Channels
from rnixfs.proc.ipc import MessageQueue, Pipe
from rnixfs.proc.process import Process
from rnixfs.proc.runs import Runs
from rnixfs.proc.state import State
from rnixfs.state.store import Record
from tests.stateful.kernelmachine import KernelMachine

LONG = settings(
    max_examples=100,
    stateful_step_count=60,
    deadline=None,
    derandomize=True,
    database=None,
    # A failure is told as it was found: to shorten it would take longer than the test may.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
SHORT = settings(LONG, report_multiple_bugs=False)


@pytest.mark.timeout(120)
def test_the_laws_hold_whatever_is_done() -> None:
    """Thousands of random steps break no law, and when the system ends nothing is left of them."""
    run_state_machine_as_test(KernelMachine, settings=LONG)


def lose_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each seventh message is accepted and gone."""
    put = MessageQueue.put

    def lossy(queue: MessageQueue, message: Any) -> None:
        if message.seq % 7:
            put(queue, message)

    monkeypatch.setattr(MessageQueue, "put", lossy)


def reap_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was reaped is reaped again when somebody asks for it."""
    reap = Kernel.reap

    def again(kernel: Kernel, process: Process) -> None:
        if process.state is State.DEAD:
            kernel.emit("reap", process.pid, {})
        reap(kernel, process)

    monkeypatch.setattr(Kernel, "reap", again)


def drop_a_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read that gets something loses the byte after it."""
    take = Pipe.take

    def lossy(pipe: Pipe, size: int) -> bytes:
        data = take(pipe, size)
        if data:
            del pipe.data[:1]
        return data

    monkeypatch.setattr(Pipe, "take", lossy)


def forget_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first message that waited for a process is lost with the kernel."""
    restore = Channels.restore

    def forgetful(channels: Channels, process: Process, records: list[Record]) -> None:
        restore(channels, process, records)
        if len(queue := channels.queue(process)):
            queue.drop_first()

    monkeypatch.setattr(Channels, "restore", forgetful)


def forgive(monkeypatch: pytest.MonkeyPatch) -> None:
    """A right that was taken back is there again after a restart."""
    monkeypatch.setattr(fold, "REBUILD", {**fold.REBUILD, "revoke": lambda _process, _record: None})


def start_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found in the log goes on without having been woken."""
    suspend = Kernel.suspend_again

    def eager(kernel: Kernel, process: Process) -> None:
        suspend(kernel, process)
        process.suspended, process.state = "", State.RUNNING

    monkeypatch.setattr(Kernel, "suspend_again", eager)


def begin_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run of a program is begun twice."""
    begin = Runs.begin

    def twice(runs: Runs, process: Process) -> None:
        begin(runs, process)
        begin(runs, process)

    monkeypatch.setattr(Runs, "begin", twice)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("bug", "laws"),
    [
        (lose_a_message, {"_messages", "receive"}),
        (reap_twice, {"_life"}),
        (drop_a_byte, {"_pipes", "_read"}),
        (forget_a_message, {"_messages", "receive"}),
        (forgive, {"restart", "_rights_are_within_the_parents"}),
        (start_by_itself, {"restart", "_runs"}),
        (begin_twice, {"_life", "_runs"}),
    ],
)
def test_the_machine_finds_a_bug(bug: Any, laws: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these bugs breaks a law that forbids it, within the same number of steps."""
    bug(monkeypatch)
    with pytest.raises(AssertionError) as caught:
        run_state_machine_as_test(KernelMachine, settings=SHORT)
    assert laws & {frame.name for frame in traceback.extract_tb(caught.value.__traceback__)}
