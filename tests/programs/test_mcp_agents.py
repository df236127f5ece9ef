"""Agents that use MCP servers: mounted before the program starts, for it alone, and gone whatever ends it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from rnixfs.case import read_case
from rnixfs.casefile import run_case
from rnixfs.caserecord import record_case
from rnixfs.errors import Code, SyscallError
from rnixfs.llm import Emit, ModelAnswer, ModelRequest, Role
from rnixfs.mcp.places import tool_name
from rnixfs.proc import capabilities
from rnixfs.proc.capabilities import revoke
from rnixfs.proc.process import Process
from rnixfs.proc.signals import Signal
from rnixfs.proc.state import Exit, State
from rnixfs.programs.mcptools import for_model
from rnixfs.replay import replay
from rnixfs.state.memory import MemoryStore
from rnixfs.syscalls import Syscalls
from rnixfs.types import Caller
from tests.programs.mcplab import McpLab
from tests.programs.reasonlab import PERSON, Reply, Scripted, answer, call, uses
from tests.replay.replaylab import World

settle = wait_all_tasks_blocked


@pytest.fixture
def make(nursery: trio.Nursery, tmp_path: Path) -> Any:
    """Makes a running system: replies of its model and what else `McpLab` takes."""

    async def made(*replies: Reply, **more: Any) -> McpLab:
        assert isinstance(trio.lowlevel.current_clock(), MockClock), "add autojump_clock"
        lab = McpLab(tmp_path, replies, **more)
        lab.agent("clock", "time")
        lab.agent("both", "time", "git")
        await nursery.start(lab.kernel.run)
        return lab

    return made


def caller(process: Process) -> Caller:
    """A process as a caller."""
    return Caller(1000, 1000, agent=process.pid)


def told(process: Process) -> list[str]:
    """What the model was told of its tools' results."""
    return [one.content for one in process.context.messages if one.role is Role.TOOL]


def calls(process: Process) -> list[tuple[str, str]]:
    """System call and path of each line of a trace."""
    lines = [msgspec.json.decode(line) for line in bytes(process.trace.data).splitlines()]
    return [(line["syscall"], line["args"].get("path", "")) for line in lines]


# --- from spawn to exit ---


async def test_an_agent_uses_a_tool_of_its_server(make, autojump_clock):
    """It is offered by its names, without the pid; the model is told the text; all is gone at the end."""
    lab = await make(uses(call("mcp__time__get", zone="UTC")), answer("done"))
    process = await lab.run()
    await settle()
    assert (process.exit.code, process.exit.reason) == (0, "done")
    assert lab.offered() == ["mcp__time__get"]
    assert told(process) == ["get got ['zone']"]
    assert lab.servers["time"].happened == ["connect 1-time", "close 1-time"]
    assert lab.mounts() == []


async def test_tools_are_found_by_system_calls(make, autojump_clock):
    """The trace shows each folder that was read and each device that was asked what it is."""
    lab = await make(uses(call("mcp__time__get")), answer("done"))
    seen = calls(await lab.run())
    assert ("ReadDir", "/mnt/mcp") in seen
    assert ("ReadDir", "/mnt/mcp/1-time/tools") in seen
    assert seen.count(("Open", "/mnt/mcp/1-time/tools/get")) == 2, "once to ask what it is, once to use it"


async def test_a_process_without_servers_looks_for_none(make, autojump_clock):
    """Where nothing is mounted that it may use, nothing is read."""
    lab = await make(answer("done"))
    process = await lab.run("default")
    assert not [path for _, path in calls(process) if path.startswith("/mnt")]
    assert lab.offered() == []


async def test_the_program_waits_for_its_servers(make, autojump_clock):
    """The spawn does not; the process is `created` until they are up, and its model is asked then."""
    lab = await make(answer("done"))
    gate = lab.servers["time"].gate = trio.Event()
    process = lab.spawn()
    await settle()
    assert process.state is State.CREATED
    assert lab.mounts() == ["1-time"]
    assert lab.model.requests == []
    gate.set()
    await process.done.wait()
    assert process.exit.code == 0


async def test_all_servers_connect_at_once(make, autojump_clock):
    """A slow one does not keep the others waiting."""
    lab = await make(answer("done"))
    lab.servers["time"].gate = trio.Event()
    lab.spawn("both")
    await settle()
    assert lab.servers["git"].happened == ["connect 1-git"]


async def test_where_one_fails_nothing_is_left(make, autojump_clock):
    """The process ends with code 1 and the reason; its model is not asked, and the others are closed."""
    lab = await make()
    lab.servers["git"].failure = OSError(2, "no such program")
    process = await lab.run("both")
    await settle()
    assert process.exit.code == 1
    reason = "mcp: server 'git': FileNotFoundError: [Errno 2] no such program"
    assert process.exit.reason == reason
    assert lab.mounts() == []
    assert lab.servers["time"].happened == ["connect 1-time", "close 1-time"]
    assert lab.model.requests == []


async def test_a_server_that_never_answers_ends_the_process_in_time(make, autojump_clock):
    """After the time limit of connecting."""
    lab = await make()
    lab.servers["time"].gate = trio.Event()
    process = await lab.run()
    assert process.exit.reason == "mcp: server 'time': it did not connect within 30 s"
    assert lab.mounts() == []


async def test_a_variable_that_is_not_set_ends_the_process(make, autojump_clock):
    """The reason names the variable."""
    lab = await make()
    lab.configure("  - name: time\n    command: time\n    env: {TOKEN: '${NO_SUCH}'}\n")
    process = await lab.run()
    assert "needs $NO_SUCH" in process.exit.reason
    assert lab.servers["time"].happened == []


async def test_variables_are_filled_in_when_it_connects(make, autojump_clock):
    """From the daemon's environment; and it works where its process stands."""
    lab = await make(answer("done"))
    lab.configure("  - name: time\n    command: time\n    env: {TOKEN: 'x${HOME}'}\n")
    await lab.run()
    (config,) = lab.servers["time"].configs
    assert config["env"] == {"TOKEN": "x/home/x"}
    assert config["cwd"] == str(lab.bench.cwd)


@pytest.mark.parametrize("when", ["connecting", "running"])
@pytest.mark.parametrize("signal", [Signal.KILL, Signal.TERM])
async def test_a_signal_takes_the_servers_along(make, autojump_clock, when, signal):
    """Whether they are up or not."""
    lab = await make(answer("never"))
    lab.model.gate = trio.Event()
    if when == "connecting":
        lab.servers["git"].gate = trio.Event()
    process = lab.spawn("both")
    await settle()
    assert process.state is (State.CREATED if when == "connecting" else State.RUNNING)
    lab.kernel.signal(process, signal, PERSON)
    await process.done.wait()
    await settle()
    assert lab.mounts() == []
    for server in lab.servers.values():
        assert [one.split()[0] for one in server.happened] == ["connect", "close"]


async def test_a_program_that_breaks_takes_the_servers_along(make, autojump_clock):
    """An exception inside of it, and a refusal of its model."""
    lab = await make(SyscallError(Code.PERMISSION, "no"))
    process = await lab.run()
    await settle()
    assert process.exit.code == 1
    assert lab.mounts() == []
    assert lab.servers["time"].happened[-1] == "close 1-time"


async def test_a_suspended_process_holds_no_servers(make, autojump_clock):
    """It gets them again before it goes on."""
    lab = await make(uses(call("mcp__time__get")), answer("done"))
    lab.model.gate = trio.Event()
    process = lab.spawn()
    await settle()
    lab.kernel.suspend(process, "for a test")
    await settle()
    assert lab.mounts() == []
    lab.model.gate.set()
    lab.kernel.wake(process)
    await process.done.wait()
    await settle()
    assert told(process) == ["get got []"]
    assert lab.servers["time"].happened == ["connect 1-time", "close 1-time"] * 2


async def test_a_suspension_while_servers_connect(make, autojump_clock):
    """Nothing of it stays, and the process starts when it is woken."""
    lab = await make(answer("done"))
    gate = lab.servers["time"].gate = trio.Event()
    process = lab.spawn()
    await settle()
    lab.kernel.suspend(process, "for a test")
    await settle()
    assert (process.state, lab.mounts()) == (State.SUSPENDED, [])
    gate.set()
    lab.kernel.wake(process)
    await process.done.wait()
    assert process.exit.code == 0


async def test_after_a_restart_the_servers_are_there_again(tmp_path, autojump_clock):
    """Before the process goes on; what it had been told stays as it was."""
    lab = McpLab(tmp_path)
    lab.agent("clock", "time")
    lab.model.replies = [
        after(lambda: setattr(lab.model, "gate", trio.Event()), uses(call("mcp__time__get")))
    ]
    async with trio.open_nursery() as nursery:
        await nursery.start(lab.kernel.run)
        process = lab.spawn()
        await settle()
        assert told(process) == ["get got []"]
        await lab.kernel.suspend_all()
        assert lab.mounts() == []
        assert lab.servers["time"].happened == ["connect 1-time", "close 1-time"]
        nursery.cancel_scope.cancel()
    lab.model.gate = None
    lab.model.replies = [uses(call("mcp__time__get", "second", again=1)), answer("done")]
    lab.boot()
    async with trio.open_nursery() as nursery:
        await nursery.start(lab.kernel.run)
        assert lab.mounts() == [], "nothing starts by itself"
        again = lab.kernel.process(1)
        lab.kernel.wake(again)
        await again.done.wait()
        nursery.cancel_scope.cancel()
    assert again.exit.code == 0
    assert told(again) == ["get got []", "get got ['again']"]
    assert lab.offered() == ["mcp__time__get"]


async def test_a_server_that_is_gone_from_the_file_keeps_a_process_suspended(make, autojump_clock):
    """Waking says what is missing."""
    lab = await make(answer("done"))
    lab.model.gate = trio.Event()
    process = lab.spawn()
    await settle()
    lab.kernel.suspend(process, "for a test")
    lab.configure("  - {name: git, command: git}\n")
    with pytest.raises(SyscallError, match="needs an MCP server that is gone: no MCP server 'time'"):
        lab.kernel.wake(process)
    assert process.state is State.SUSPENDED


# --- what a spawn refuses ---


async def test_a_name_that_is_not_there_is_refused_at_spawn(make, autojump_clock):
    """With the line of agent.yaml, the names there are, and the nearest."""
    lab = await make()
    lab.agent("wrong", "tiem")
    with pytest.raises(SyscallError) as caught:
        lab.spawn("wrong")
    assert caught.value.code is Code.INVALID
    assert "agents/wrong/agent.yaml:3: no MCP server 'tiem'" in caught.value.reason
    assert "there are: time, git (did you mean time?)" in caught.value.reason
    assert lab.kernel.processes == {}


async def test_a_file_that_is_wrong_is_refused_at_spawn(make, autojump_clock):
    """With its line; an agent without servers does not care."""
    lab = await make(answer("done"))
    lab.configure("  - {name: time}\n")
    with pytest.raises(SyscallError, match=r"mcp\.yaml:3: servers\[1\]\.command is missing"):
        lab.spawn()
    assert (await lab.run("default")).exit.code == 0


async def test_a_request_may_leave_servers_out(make, autojump_clock):
    """What it allows bounds what the agent names."""
    lab = await make(answer("done"), answer("done"))
    process = await lab.run("both", allowed_devices=["/dev/fs", "/mnt/mcp/git"])
    assert process.launch.mcp == ("git",)
    assert lab.offered() == ["mcp__git__get"]
    assert (await lab.run("both", allowed_devices=["/dev/fs"])).launch.mcp == ()
    assert lab.servers["time"].happened == []


# --- rights ---


async def test_a_server_is_for_its_process_alone(make, autojump_clock):
    """Others may not use it, whatever they may of /mnt; people may."""
    lab = await make(answer("never"), answer("never"))
    lab.model.gate = trio.Event()
    mine, child, other = lab.spawn(), None, lab.spawn("default")
    await settle()
    child = lab.spawn("default", caller(mine))
    path = "/mnt/mcp/1-time/tools/get"
    assert mine.rights.permits(path)
    assert not other.rights.permits(path)
    assert not child.rights.permits(path)
    assert other.rights.permits("/mnt/mcp/anything/else")
    sys = Syscalls(lab.kernel, other)
    assert [name for name, _ in await sys.read_dir("/mnt/mcp")] == ["ctl"]
    with pytest.raises(SyscallError) as caught:
        await sys.read_dir("/mnt/mcp/1-time")
    assert caught.value.code is Code.PERMISSION


async def test_a_child_may_be_given_it(make, autojump_clock):
    """By a grant, or by the request that makes it."""
    lab = await make()
    lab.model.gate = trio.Event()
    mine = lab.spawn()
    await settle()
    path = "/mnt/mcp/1-time"
    child = lab.spawn("default", caller(mine))
    capabilities.grant(lab.kernel, child, path, caller(mine))
    assert child.rights.permits(f"{path}/tools/get")
    given = lab.spawn("default", caller(mine), allowed_devices=[path])
    assert given.rights.permits(f"{path}/tools/get")
    revoke(lab.kernel, mine, path, PERSON)
    assert not child.rights.permits(f"{path}/tools/get"), "no child has what its parent lost"


async def test_servers_add_to_what_a_whitelist_allows(make, autojump_clock):
    """An agent that may use but one device, may use its servers too."""
    lab = await make(answer("done"))
    lab.agent("narrow", "time", more="allowed_devices: [/dev/fs]\n")
    process = await lab.run("narrow")
    assert process.rights.listing()["granted"] == ["/dev/fs", "/dev/llm/fake", "/mnt/mcp/1-time"]
    assert lab.offered() == ["mcp__time__get"]


async def test_a_child_gets_no_server_that_its_parent_may_not_use(make, autojump_clock):
    """Else an agent could gain a server by spawning another agent."""
    lab = await make()
    lab.model.gate = trio.Event()
    lab.agent("narrow", "git", more="allowed_devices: [/proc/spawn]\n")
    lab.agent("wide", "git", more="allowed_devices: [/proc/spawn, /mnt/mcp/time]\n")
    narrow, wide = lab.spawn("narrow"), lab.spawn("wide")
    await settle()
    with pytest.raises(SyscallError, match="process 1 may not use the MCP server 'time'") as caught:
        lab.spawn("clock", caller(narrow))
    assert caught.value.code is Code.PERMISSION
    assert lab.spawn("clock", caller(wide)).rights.permits("/mnt/mcp/3-time/tools/get")
    lab.agent("same", "git")
    child = lab.spawn("same", caller(narrow))
    await settle()
    path = f"/mnt/mcp/{child.pid}-git"
    assert child.rights.permits(path), "the parent has that server, too"
    revoke(lab.kernel, narrow, "/mnt/mcp/1-git", PERSON)
    assert not child.rights.permits(path)


async def test_a_granted_folder_keeps_the_own_servers(make, autojump_clock):
    """A grant of what lies above changes nothing for them."""
    lab = await make()
    lab.model.gate = trio.Event()
    process = lab.spawn()
    await settle()
    capabilities.grant(lab.kernel, process, "/mnt", PERSON)
    assert process.rights.permits("/mnt/mcp/1-time")


async def test_a_fork_has_servers_of_its_own(make, autojump_clock):
    """And what was revoked of the source's is revoked of its own."""
    lab = await make(uses(call("mcp__time__get")), answer("one"))
    source = await lab.run()
    fork = lab.kernel.forks.fork(source, 1, PERSON)
    lab.model.replies = [answer("two")]
    await fork.done.wait()
    await settle()
    assert fork.result == "two"
    assert lab.servers["time"].happened[2:] == [f"connect {fork.pid}-time", f"close {fork.pid}-time"]
    first, second = lab.model.requests[1], lab.model.requests[2]
    assert first == second, "prompts agree, whatever the pids"


async def test_a_fork_gains_nothing_by_being_one(make, autojump_clock):
    """What was revoked of its source's server is revoked of its own."""
    lab = await make(uses(call("mcp__time__get")), answer("one"))
    lab.model.gate = trio.Event()
    source = lab.spawn()
    await settle()
    revoke(lab.kernel, source, "/mnt/mcp/1-time", PERSON)
    lab.model.gate.set()
    await source.done.wait()
    fork = lab.kernel.forks.fork(source, 1, PERSON)
    assert not fork.rights.permits(f"/mnt/mcp/{fork.pid}-time")
    await fork.done.wait()


@pytest.mark.parametrize("name", ["1-time", "77-x"])
async def test_nobody_takes_the_name_of_a_processes_server(make, autojump_clock, name):
    """A mount with such a name can only be one that the system made."""
    lab = await make()
    lab.model.gate = trio.Event()
    process = lab.spawn("default")
    await settle()
    with pytest.raises(SyscallError, match="begins with a number and -"):
        await Syscalls(lab.kernel, process).mount(f"/mnt/mcp/{name}", {"type": "stdio", "command": "time"})


# --- lists that change ---


def after(change: Any, reply: ModelAnswer) -> Any:
    """A reply before which something changes."""

    def made(_request: ModelRequest) -> ModelAnswer:
        change()
        return reply

    return made


async def test_a_changed_list_is_offered_with_the_next_step(make, autojump_clock):
    """And only then is the prompt another one."""
    lab = await make()
    server = lab.servers["time"]
    lab.model.replies = [
        uses(call("mcp__time__get")),
        after(lambda: server.offer("get", "set"), uses(call("mcp__time__get", "b", n=1))),
        uses(call("mcp__time__set")),
        answer("done"),
    ]
    process = await lab.run()
    offered = [lab.offered(place) for place in range(4)]
    assert offered == [["mcp__time__get"]] * 2 + [["mcp__time__get", "mcp__time__set"]] * 2
    assert told(process)[-1] == "set got []"
    tools = [msgspec.json.encode(request.tools) for request in lab.model.requests]
    assert tools[0] == tools[1]
    assert tools[2] == tools[3]
    reads = [one for one in calls(process) if one == ("ReadDir", "/mnt/mcp/1-time/tools")]
    assert len(reads) == 2, "the list is read when it has changed, not at each step"


async def test_a_server_that_people_mount_is_offered_too(make, autojump_clock):
    """To every process that may use it."""
    lab = await make()

    def mount() -> None:
        config = lab.kernel.mounts.configured("git", PERSON)
        lab.kernel.mounts.begin("git", config, PERSON)

    lab.model.replies = [
        after(mount, uses(call("plan", steps=["a"]))),
        uses(call("mcp__git__get")),
        answer("done"),
    ]
    process = await lab.run("default")
    assert [lab.offered(place) for place in range(3)] == [[], ["mcp__git__get"], ["mcp__git__get"]]
    assert told(process)[-1] == "get got []"


async def test_an_own_server_stands_before_a_shared_one_of_its_name(make, autojump_clock):
    """Else each tool would be offered twice."""
    lab = await make(uses(call("mcp__time__get")), answer("done"))
    lab.kernel.mounts.begin("time", lab.kernel.mounts.configured("time", PERSON), PERSON)
    await settle()
    process = await lab.run()
    assert lab.offered() == ["mcp__time__get"]
    assert ("Open", "/mnt/mcp/1-time/tools/get") in calls(process)
    assert ("Open", "/mnt/mcp/time/tools/get") not in calls(process)


async def test_text_models_are_told_of_changes_too(make, autojump_clock):
    """In the part of the prompt that explains the tools."""
    lab = await make(native=False)
    server = lab.servers["time"]
    lab.model.replies = [
        after(lambda: server.offer("set"), answer('{"action": "plan", "data": {"steps": ["a"]}}')),
        answer('{"action": "complete", "data": {"result": "done"}}'),
    ]
    assert (await lab.run()).result == "done"
    first, second = (request.system_prompt for request in lab.model.requests)
    assert "mcp__time__get" in first
    assert "mcp__time__get" not in second
    assert "mcp__time__set" in second


# --- names and answers ---


@pytest.mark.parametrize(
    ("server", "tool", "name"),
    [
        ("time", "get_time", "mcp__time__get_time"),
        ("time", "get.time/now", "mcp__time__get_time_now"),
        ("time", "zeit für", "mcp__time__zeit_f_r"),
    ],
)
def test_names_of_tools_have_letters_that_models_take(server, tool, name):
    """What others refuse is replaced."""
    assert tool_name(server, tool) == name


def test_names_of_tools_are_short_and_differ():
    """Two long names with the same beginning, and two that are alike once replaced."""
    long = [tool_name("server", "x" * 100 + end) for end in "ab"]
    assert len(set(long)) == 2
    assert {len(name) for name in long} == {64}
    taken = {tool_name("s", "a.b")}
    other = tool_name("s", "a/b", taken)
    assert other not in taken
    assert other == tool_name("s", "a/b", taken), "and it is the same each time"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ('{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"text":"a\\nb"}', "a\nb"),
        ('{"content":[{"type":"text","text":"{\\"n\\":1}"}],"structured":{"n":1}}', '{"n":1}'),
        (
            '{"content":[{"type":"text","text":"one"}],"structured":{"n":1}}',
            '{"text":"one","structured":{"n":1}}',
        ),
        ('{"content":[],"structured":[1]}', '{"text":"","structured":[1]}'),
        ('{"content":[{"type":"image","data":"AAAA"}]}', '{"content":[{"type":"image","data":"AAAA"}]}'),
        (
            '{"content":[{"type":"image","data":"' + "A" * 201 + '"}],"text":""}',
            '{"content":[{"type":"image","data":"[201 characters of base64, not shown]"}]}',
        ),
        ("plain", "plain"),
        ('{"content":"x"}', '{"content":"x"}'),
        ("[1]", "[1]"),
    ],
)
def test_a_model_is_told_text_where_there_is_only_text(given, shown):
    """What else there is, stays JSON; bytes are no words."""
    assert for_model(given) == shown


# --- replay ---


async def test_a_recorded_run_is_replayed_without_its_servers(tmp_path, autojump_clock):
    """Its tools and what they answered come from the log, a change of the list included."""
    lab = McpLab(tmp_path)
    lab.agent("clock", "time")
    server = lab.servers["time"]
    lab.model.replies = [
        uses(call("mcp__time__get")),
        after(lambda: server.offer("get", "set"), uses(call("mcp__time__get", "b", n=1))),
        uses(call("mcp__time__set")),
        answer("done"),
    ]
    async with trio.open_nursery() as nursery:
        await nursery.start(lab.kernel.run)
        assert (await lab.run()).exit == Exit(0, "done")
        await settle()
        nursery.cancel_scope.cancel()
    before = list(server.happened)
    for recorded in (False, True):

        def system(log: Any, _cwd: str) -> World:
            return World(lab.bench, [lab.model], [], log)

        outcome = await replay(lab.log, 1, recorded=recorded, make_system=system)
        assert outcome.difference is None, outcome.lines()
        assert outcome.steps == 4
    assert server.happened == before


async def test_a_case_of_a_recorded_run_needs_no_server(tmp_path, autojump_clock):
    """Its tools are those that it has results of."""
    lab = McpLab(tmp_path, [uses(call("mcp__time__get", zone="UTC")), answer("done")])
    lab.agent("clock", "time")
    async with trio.open_nursery() as nursery:
        await nursery.start(lab.kernel.run)
        await lab.run()
        await settle()
        nursery.cancel_scope.cancel()
    case = read_case(record_case(lab.log, 1), "case.yaml")
    before = list(lab.servers["time"].happened)

    def system(log: Any, _cwd: str) -> World:
        return World(lab.bench, [lab.model], [], log)

    assert await run_case(case, str(lab.bench.cwd), make_system=system) == []
    assert lab.servers["time"].happened == before


class Steady(Scripted):
    """A model that goes by what it was told: two calls of a tool, then an answer."""

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> ModelAnswer:
        done = sum(one.role is Role.TOOL for one in request.messages)
        self.replies = [uses(call("mcp__time__get", f"call-{done}", n=done)) if done < 2 else answer("done")]
        return await super().complete(request, emit)


async def test_a_stop_at_any_event_loses_no_server(tmp_path, autojump_clock):
    """Woken in the next system, the process has its server again, comes to the same end, and leaves none."""
    lab = McpLab(tmp_path)
    lab.agent("clock", "time")
    lab.model = Steady("fake")
    lab.boot()
    async with trio.open_nursery() as nursery:
        await nursery.start(lab.kernel.run)
        assert (await lab.run()).result == "done"
        await settle()
        nursery.cancel_scope.cancel()
    events = list(lab.log.load(1))
    end = next(place for place, record in enumerate(events) if record.event == "exit")
    assert {"mount", "mount_ready", "unmount"} <= {record.event for record in events}
    for cut in range(1, end):
        lab.log = MemoryStore()
        for record in events[:cut]:
            lab.log.append_event(record.event, record.pid, record.data)
        await _goes_on(lab)


async def _goes_on(lab: McpLab) -> None:
    lab.boot()
    async with trio.open_nursery() as nursery:
        await nursery.start(lab.kernel.run)
        process = lab.kernel.process(1)
        assert (process.state, lab.mounts()) == (State.SUSPENDED, [])
        lab.kernel.wake(process)
        await process.done.wait()
        await settle()
        nursery.cancel_scope.cancel()
    assert (process.exit.code, process.result) == (0, "done")
    assert lab.mounts() == []
    assert lab.servers["time"].happened[-2:] == ["connect 1-time", "close 1-time"]


# --- servers without an agent ---


async def test_servers_start_with_the_system_where_they_say_so(make, autojump_clock):
    """Those of the user's file; one that cannot shows why in its status."""
    lab = await make()
    lab.configure(
        "  - {name: time, command: time, autostart: true}\n"
        "  - {name: git, command: git}\n"
        "  - {name: bad, command: bad, env: {A: '${NO_SUCH}'}, autostart: true}\n"
    )
    lab.world.servers.autostart()
    await settle()
    assert sorted(lab.mounts()) == ["bad", "time"]
    bad = msgspec.json.decode(lab.kernel.mounts.find("bad").status())
    assert bad["state"] == "failed"
    assert "$NO_SUCH" in bad["reason"]
    assert msgspec.json.decode(lab.kernel.mounts.find("time").status())["state"] == "ready"
    rows = {row["name"]: row for row in lab.world.servers.rows(lab.world._shelf())}
    assert [mount["state"] for mount in rows["time"]["mounts"]] == ["ready"]
    assert rows["git"]["mounts"] == []


async def test_the_control_file_mounts_by_name(make, autojump_clock):
    """Without JSON the server of that name; with `server` another one under that name."""
    lab = await make()
    lab.model.gate = trio.Event()
    sys = Syscalls(lab.kernel, lab.spawn("default"))
    for line in (b"mount time\n", b'mount probe {"server": "git"}\n'):
        fd = await sys.open("/mnt/mcp/ctl", 1)
        await sys.write(fd, line)
        sys.close_now(fd)
    await settle()
    assert lab.mounts() == ["time", "probe"]
    assert lab.servers["git"].happened == ["connect probe"]
    fd = await sys.open("/mnt/mcp/ctl", 1)
    with pytest.raises(SyscallError, match="no MCP server 'nobody'; there are: time, git"):
        await sys.write(fd, b"mount nobody\n")
    with pytest.raises(SyscallError, match="stands alone"):
        await sys.write(fd, b'mount x {"server": "git", "env": {}}\n')
