"""Init at work: what a daemon starts by itself, and how it takes it back."""

import logging

import pytest
import trio

from rnixfs import limits, vfs
from rnixfs.errors import Code, SyscallError, invalid
from rnixfs.initfile import parse_init
from rnixfs.node import Document
from rnixfs.proc.signals import Signal
from rnixfs.proc.state import Exit
from tests.supervision.supervisorlab import PERSON, Lab

PLAN = """
services:
  - {name: one, intent: one}
  - {name: two, intent: two}
supervisors:
  - name: sup
    required: true
    children: [{name: a, intent: a}, {name: b, intent: b}]
"""


def plan(lab: Lab, text: str = PLAN) -> None:
    """Give a kernel an init.yaml."""
    lab.kernel.init.load = lambda: parse_init(text, "/c/init.yaml")


async def up(lab: Lab) -> dict:
    """Run init; gives what `sys/init` shows then."""
    await lab.kernel.init.run()
    return lab.json("/sys/init")


def states(shown):
    """Where the units stand."""
    return {unit["name"]: unit["state"] for unit in shown["units"]}


def ends(code, seconds=0.0):
    """A program that ends with a code after some time."""

    async def program(_sys):
        await trio.sleep(seconds)
        return Exit(code, "as told")

    return program


async def test_units_are_started_in_order_as_processes_of_the_system(lab, autojump_clock):
    """Services, then supervisors with their children; all top-level processes."""
    plan(lab)
    shown = await up(lab)
    assert lab.diary.take() == ["spawn one", "spawn two", "spawn sup", "spawn a", "spawn b"]
    assert [lab.named(name).ppid for name in ("one", "two", "sup")] == [0, 0, 0]
    assert (shown["state"], shown["reason"], shown["files"]) == ("up", "", ["/c/init.yaml"])
    assert shown["units"][2] == {
        "name": "sup",
        "kind": "supervisor",
        "required": True,
        "pid": lab.pid("sup"),
        "state": "running",
        "reason": "",
        "at": "/c/init.yaml:6",
    }


async def test_without_a_file_there_is_nothing_to_do(lab, autojump_clock):
    """And `sys/init` says so, before and after."""
    empty = {"reason": "", "files": [], "warnings": [], "units": []}
    assert lab.json("/sys/init") == {"state": "idle", **empty}
    assert await up(lab) == {"state": "up", **empty}


async def test_a_required_unit_that_cannot_be_started_takes_all_back_in_reverse(lab, autojump_clock, caplog):
    """What was started is stopped, the last one first; the log and `sys/init` say why, with the line."""
    plan(lab, PLAN + "  - {name: last, required: true, children: [{name: z, intent: z}]}\n")
    lab.refused["last"] = 1
    with caplog.at_level(logging.ERROR):
        shown = await up(lab)
    assert [line for line in lab.diary.take() if line.startswith("exit")] == [
        *["exit b 1", "exit a 1", "exit sup 1", "exit two 1", "exit one 1"]
    ]
    reason = (
        "/c/init.yaml:9: the supervisor 'last' could not be started: no agent for 'last'; "
        "it is required; what was started is stopped"
    )
    assert (shown["state"], shown["reason"]) == ("failed", reason)
    assert states(shown) == {
        **dict.fromkeys(("one", "two", "sup"), "rolled back"),
        "last": "failed",
    }
    assert [record.getMessage() for record in caplog.records] == [f"init: {reason}"]
    assert lab.kernel.live() == []


async def test_a_required_supervisor_whose_child_cannot_be_started_has_failed(lab, autojump_clock):
    """What it says of itself is in the reason."""
    plan(lab)
    lab.refused["b"] = 1
    shown = await up(lab)
    assert "ended at once with code 1: start_failed: 'b' could not be started" in shown["reason"]
    assert lab.kernel.live() == []


async def test_a_required_unit_that_dies_at_once_has_failed(lab, autojump_clock):
    """Within the start-up check, by a failure."""
    lab.programs["two"] = ends(3, limits.INIT_CHECK_SECONDS / 2)
    plan(lab, "services: [{name: one, intent: one}, {name: two, intent: two, required: true}]")
    shown = await up(lab)
    assert "the service 'two' ended at once with code 3: as told; it is required" in shown["reason"]
    assert states(shown) == {"one": "rolled back", "two": "failed"}


@pytest.mark.parametrize("program", [ends(1, 2 * limits.INIT_CHECK_SECONDS), ends(0)])
async def test_a_later_end_or_a_good_one_is_no_failure_of_the_start(lab, autojump_clock, program):
    """Work that is done at once is done; what fails later has been up."""
    lab.programs["two"] = program
    plan(lab, "services: [{name: one, intent: one}, {name: two, intent: two, required: true}]")
    shown = await up(lab)
    assert shown["state"] == "up"
    await lab.named("two").done.wait()
    assert states(lab.json("/sys/init")) == {"one": "running", "two": "ended"}


async def test_one_that_is_not_required_fails_alone(lab, autojump_clock, caplog):
    """The others go on; a warning says so."""
    lab.refused["one"] = 1
    plan(lab)
    with caplog.at_level(logging.WARNING):
        shown = await up(lab)
    assert shown["state"] == "up"
    assert states(shown) == {"one": "failed", "two": "running", "sup": "running"}
    assert shown["units"][0]["reason"] == "could not be started: no agent for 'one'"
    assert "it is not required; the others go on" in caplog.text


async def test_a_file_that_cannot_be_taken_starts_nothing(lab, autojump_clock, caplog):
    """The daemon runs on, so that its user can read what is wrong."""

    def broken():
        raise invalid("/c/init.yaml:1: x is not a field here")

    lab.kernel.init.load = broken
    shown = await up(lab)
    assert (shown["state"], shown["reason"]) == ("failed", "/c/init.yaml:1: x is not a field here")
    assert "init: /c/init.yaml:1: x is not a field here" in caplog.text


async def test_bootstrap_starts_only_what_does_not_run(lab, autojump_clock):
    """A second time it leaves alone what runs, and starts what has ended."""
    plan(lab)
    await up(lab)
    lab.kernel.deliver(lab.named("two"), Signal.KILL)
    lab.diary.take()
    lab.do("/sys/ctl", "bootstrap")
    await lab.settle()
    assert lab.diary.take() == ["spawn two"]


async def test_a_failure_takes_back_only_what_this_start_brought_up(lab, autojump_clock):
    """What ran before goes on."""
    plan(lab, "services: [{name: one, intent: one}]")
    await up(lab)
    text = (
        "services: [{name: one, intent: one}, {name: two, intent: two}, {name: x, intent: x, required: true}]"
    )
    plan(lab, text)
    lab.refused["x"] = 1
    shown = await up(lab)
    assert states(shown) == {"one": "running", "two": "rolled back", "x": "failed"}


async def test_it_cannot_be_started_twice_at_once(lab, autojump_clock):
    """The second one is told to look."""
    plan(lab)
    lab.kernel.start(lab.kernel.init.run)
    await lab.settle()
    assert lab.json("/sys/init")["state"] == "starting"
    with pytest.raises(SyscallError) as caught:
        await lab.kernel.init.bring_up()
    assert caught.value.code is Code.SERVICE_UNAVAILABLE


async def test_an_interrupted_start_says_so(lab, autojump_clock):
    """It does not stay `starting` for ever."""
    plan(lab)
    with trio.move_on_after(limits.INIT_CHECK_SECONDS / 2):
        await lab.kernel.init.bring_up()
    assert lab.json("/sys/init")["reason"] == "it was interrupted"


async def test_taking_back_kills_what_does_not_stop(lab, autojump_clock):
    """The rollback ends, whatever a process does."""

    async def stone(_sys):
        with trio.CancelScope(shield=True):
            await trio.sleep(1000)
        return Exit(0, "")

    lab.programs["one"] = stone
    plan(lab, "services: [{name: one, intent: one}, {name: two, intent: two, required: true}]")
    lab.refused["two"] = 1
    await up(lab)
    assert lab.kernel.live() == []


async def test_the_document(lab, autojump_clock):
    """`sys/init` has a true size, is not written, and its time moves with its units."""
    plan(lab)
    await up(lab)
    node = vfs.walk(lab.root, "/sys/init", PERSON)
    assert isinstance(node, Document)
    before = node.stat()
    assert before.size == len(node.open(PERSON, 0).read(1 << 20, 0))
    with pytest.raises(SyscallError):
        node.open(PERSON, 1)
    lab.kernel.deliver(lab.named("one"), Signal.KILL)
    assert node.stat().mtime_ns > before.mtime_ns
