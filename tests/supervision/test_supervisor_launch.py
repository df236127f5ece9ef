"""From a request to a supervisor with real agents: whose rights, folders, models and variables they have."""

import pathlib

import pytest
import trio

from rnixfs import vfs
from rnixfs.bootstrap import Settings, System
from rnixfs.errors import SyscallError
from rnixfs.proc.process import Process
from rnixfs.proc.request import read_spawn
from rnixfs.types import Caller, Place

PERSON = Caller(1000, 1000)
CHILD = {"name": "a", "intent": "wait 500 s"}


@pytest.fixture
async def system(nursery: trio.Nursery, tmp_path: pathlib.Path) -> System:
    """A system in memory, standing in a folder with a folder in it."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "secret").write_text("secret")
    found = System(Settings((str(tmp_path),), env={"HOME": str(tmp_path), "NAME": "value"}))
    await nursery.start(found.kernel.run)
    return found


def spawn(system: System, caller: Caller = PERSON, **fields) -> Process:
    """Make a supervisor with one child."""
    spec = {"name": "sup", "children": [CHILD]}
    return system.kernel.spawn(read_spawn({"provider": "script", "supervisor": spec, **fields}), caller)


async def child_of(sup: Process) -> Process:
    """Its child, once it is started."""
    assert sup.board is not None
    with trio.fail_after(30):
        await sup.board.started.wait()
    assert sup.board.children["a"].exit is None, sup.board.rows()
    return sup.children[sup.board.children["a"].pid]


def text(process: Process, path: str) -> bytes:
    """A file as a process sees it."""
    return vfs.walk(process.view.root, path, process.caller).open(process.caller, 0).read(1000, 0)


async def test_children_stand_where_their_supervisor_stands_and_use_its_model(system, tmp_path):
    """Folder, variables and provider pass from the request of the supervisor to its children."""
    sup = spawn(system, cwd=str(tmp_path / "sub"), env={"X": "y"})
    child = await child_of(sup)
    assert sup.launch.place == Place(str(tmp_path / "sub"), {"X": "y"}, (str(tmp_path / "sub"),), True)
    assert child.launch.place == sup.launch.place
    assert (sup.launch.provider, child.launch.provider) == ("script", "script")
    assert (sup.launch.agent, child.launch.agent) == ("", "default")
    assert sup.launch.intent == "supervise sup: a"


async def test_a_supervisor_of_a_person_may_everything_and_its_children_what_their_agents_may(system):
    """The bound is that of the creator; the agent narrows it."""
    sup = spawn(system)
    child = await child_of(sup)
    assert sup.rights.listing() == {"granted": None, "denied": []}
    assert child.rights.permits("/dev/shell")
    assert not child.rights.permits("/sys/ctl")


async def test_a_supervisor_can_be_narrowed_and_its_children_with_it(system):
    """`allowed_devices` bounds all that it starts; it keeps the right to start."""
    sup = spawn(system, allowed_devices=["/dev/llm/script", "/dev/grep"])
    child = await child_of(sup)
    assert sup.rights.listing()["granted"] == ["/dev/grep", "/dev/llm/script", "/proc/spawn"]
    assert child.rights.permits("/dev/grep")
    assert not child.rights.permits("/dev/shell")
    assert [process.launch.place.writable for process in (sup, child)] == [False, False]


async def test_the_supervisor_of_an_agent_has_no_more_than_the_agent(system, tmp_path):
    """Neither rights nor folders grow on the way, also not through its own view of the tree."""
    sub = str(tmp_path / "sub")
    request = read_spawn(
        {
            "intent": "wait 500 s",
            "provider": "script",
            "cwd": sub,
            "allowed_devices": ["/dev/fs", "/proc/spawn"],
        }
    )
    agent = system.kernel.spawn(request, PERSON)
    sup = spawn(system, agent.caller)
    child = await child_of(sup)
    for process in (sup, child):
        assert process.rights.permits("/dev/fs")
        assert not process.rights.permits("/dev/shell")
        assert not process.launch.place.writable
        with pytest.raises(SyscallError):
            text(process, f"/dev/fs{tmp_path}/secret")
    with pytest.raises(SyscallError, match="lies outside the parent's folders"):
        spawn(system, agent.caller, cwd=str(tmp_path))


async def test_a_child_with_an_agent_that_is_not_there_is_said_by_name(system):
    """The supervisor's end says which child, and what there is."""
    sup = spawn(system, supervisor={"name": "s", "children": [{**CHILD, "agent": "nobody"}]})
    with trio.fail_after(30):
        await sup.done.wait()
    assert sup.exit is not None
    assert sup.exit.reason.startswith(
        "start_failed: 'a' could not be started: no agent 'nobody'; there are: "
    )
