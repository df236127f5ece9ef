"""What the files of `proc/` hold, and what can be done to a process through them."""

import errno
import itertools
import json
import os
import re
import uuid
from typing import Any

import pytest

from tests.contract.world import World, refused
from tests.filetable import holds
from tests.tree import read_on

STATUS = [
    "pid",
    "ppid",
    "uuid",
    "state",
    "paused",
    "suspended",
    "intent",
    "agent",
    "skills",
    "provider",
    "model",
    "tokens_used",
    "cached_tokens",
    "context_tokens",
    "context_window",
    "context_budget",
    "cost_usd",
    "steps",
    "elapsed_ms",
    "allowed_devices",
    "children",
    "exit",
]


async def shown(world: World, pid: int, name: str) -> Any:
    """A JSON file of a process."""
    return await world.json(f"proc/{pid}/{name}")


async def text(world: World, pid: int, name: str) -> str:
    """A text file of a process."""
    return (await world.read(f"proc/{pid}/{name}")).decode()


# --- spawn ---


@holds("proc/spawn", "proc/<pid>/intent")
async def test_spawn_takes_text_or_json_and_gives_the_pid(world: World) -> None:
    """The answer is the pid and a newline; a text is the intent, exactly as given."""
    intent = 'wait 500 s; ümläut, "quotes",\n two lines\t'
    pid = await world.spawn(intent)
    assert await text(world, pid, "intent") == intent
    await world.write("proc/spawn", "say from text\n")
    answer = await world.read("proc/spawn")
    assert re.fullmatch(rb"\d+\n", answer)
    assert int(answer) > pid
    assert await text(world, int(answer), "intent") == "say from text"
    await world.tree.change("rmdir", f"proc/{int(answer)}")


@pytest.mark.parametrize(
    ("request_", "number", "word"),
    [
        ({"intent": ""}, errno.EINVAL, "intent"),
        ({"intent": "x", "max_steps": 0}, errno.EINVAL, "max_steps"),
        ({"intent": "x", "colour": "red"}, errno.EINVAL, "colour"),
        ({"intent": "x", "agent": "nobody-of-this-name"}, errno.ENOENT, "nobody-of-this-name"),
        ({"intent": "x", "provider": "none-of-this-name"}, errno.ENOENT, "none-of-this-name"),
        ({"intent": "x", "provider": "script", "cwd": "here"}, errno.EINVAL, "cwd"),
        ({"intent": "x", "provider": "script", "cwd": "/no/such/folder"}, errno.ENOENT, "cwd"),
        ({"intent": "x", "provider": "script", "parent": 999_999}, errno.ENOENT, "999999"),
    ],
)
async def test_a_spawn_that_cannot_be_is_refused(
    world: World, request_: dict[str, object], number: int, word: str
) -> None:
    """What is wrong with a request for a process is said at once, with its field; no process comes of it."""
    before = set(await world.tree.names("proc"))
    opened = await world.open("proc/spawn", os.O_RDWR)
    with refused(number):
        await opened.write(json.dumps(request_).encode())
    assert word in json.loads(await read_on(opened))["error"]["message"]
    await opened.close()
    assert set(await world.tree.names("proc")) <= before


# --- the files of a process ---


@holds("proc/<pid>/status", "proc/<pid>/result", "proc/<pid>/children", "proc/processes")
async def test_status_tells_a_life(world: World) -> None:
    """A running process and a finished one: state, accounts, end and result."""
    pid = await world.live()
    status = await world.status(pid)
    assert list(status) == STATUS
    assert (status["pid"], status["ppid"], status["state"], status["exit"]) == (pid, 0, "running", None)
    assert (status["agent"], status["provider"], status["steps"]) == ("default", "script", 1)
    assert status["intent"] == "wait 500 s"
    assert uuid.UUID(status["uuid"]).version == 7
    assert await text(world, pid, "result") == ""
    rows = {row["pid"]: row for row in await world.lines("proc/processes")}
    assert list(rows[pid]) == STATUS

    pid = await world.done("say all is well", model="some-model")
    status = await world.status(pid)
    assert (status["state"], status["exit"]) == ("dead", {"code": 0, "reason": "done"})
    assert (status["steps"], status["children"]) == (1, [])
    assert status["tokens_used"] > 0
    assert await text(world, pid, "result") == "all is well\n"
    assert await text(world, pid, "children") == ""
    assert pid not in {row["pid"] for row in await world.lines("proc/processes")}


@holds("proc/<pid>/messages.json", "proc/<pid>/context")
async def test_the_context_is_shown_whole_and_in_short(world: World) -> None:
    """messages.json has every message in order; context counts them and shows the last ones."""
    pid = await world.done("run: echo through", system_prompt="Be brief.")
    whole = await shown(world, pid, "messages.json")
    assert "Be brief." in whole["system_prompt"]
    roles = [message["role"] for message in whole["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert whole["messages"][0]["content"] == "run: echo through"
    call = whole["messages"][1]["tool_calls"][0]
    assert (call["name"], call["arguments"]) == ("shell", {"command": "echo through"})
    assert whole["messages"][2]["tool_call_id"] == call["id"]
    short = await text(world, pid, "context")
    assert "messages: 4 (1 user, 2 assistant, 1 tool)" in short
    assert "run: echo through" in short


@holds("proc/<pid>/steps.jsonl", "proc/<pid>/steps/<n>.json")
async def test_steps_are_kept_one_by_one(world: World) -> None:
    """A record a step: number, action, tool calls with their results; the journal joins them."""
    pid = await world.done("run: echo through")
    assert await world.tree.names(f"proc/{pid}/steps") == ["1.json", "2.json"]
    steps = [await shown(world, pid, f"steps/{number}.json") for number in (1, 2)]
    assert await world.lines(f"proc/{pid}/steps.jsonl") == steps
    assert [step["step"] for step in steps] == [1, 2]
    assert [step["action"] for step in steps] == ["tool_call", "text"]
    (tool,) = steps[0]["tool_calls"]
    assert (tool["name"], tool["path"]) == ("shell", "/dev/shell")
    assert json.loads(tool["result"])["stdout"] == "through\n"
    assert (steps[0]["tool_path"], steps[0]["tool_result"]) == ("/dev/shell", tool["result"])
    said = [message for step in steps for message in step["messages"]]
    assert said == (await shown(world, pid, "messages.json"))["messages"][:-1]
    for name in ("0.json", "3.json", "01.json", "1", "x.json"):
        with refused(errno.ENOENT):
            await world.tree.stat(f"proc/{pid}/steps/{name}")


@holds("proc/<pid>/trace.jsonl")
async def test_the_trace_is_kept_from_the_start(world: World) -> None:
    """One object a system call, complete and in the order of their ends, failures with their code."""
    pid = await world.done("run: true")
    records = await world.lines(f"proc/{pid}/trace.jsonl")
    calls = [record["syscall"] for record in records]
    assert calls[0] == "Open"
    assert {"Open", "Read", "Write", "ReadDir", "CtxWrite", "Close"} <= set(calls)
    for record in records:
        assert set(record) >= {"ts_ms", "pid", "syscall", "args"}
        assert record["pid"] == pid
        assert record.get("origin", "agent") == "agent"
        assert record.get("duration_ms", 0) >= 0
        assert bool(record.get("result")) != bool(record.get("error"))
    ends = [record["ts_ms"] + record.get("duration_ms", 0) for record in records]
    assert all(later >= sooner - 1 for sooner, later in itertools.pairwise(ends))


@holds("proc/<pid>/log")
async def test_the_log_has_a_category_a_line(world: World) -> None:
    """What it thought and did: a stamp, a category and the words; tool calls and their outputs in order."""
    pid = await world.done("run: echo through")
    lines = (await text(world, pid, "log")).splitlines()
    heads = [re.match(r"\[ *\d+\.\d{3}s\] (think|tool|output|warning|step) ", line) for line in lines]
    words = [head[1] for head in heads if head]
    assert words == ["step", "tool", "output", "step", "think", "think"]
    pid = await world.done("call: no_such_tool {}")
    assert "warning" in await text(world, pid, "log")


@holds("proc/<pid>/caps", "proc/<pid>/env")
async def test_caps_and_env_show_what_it_was_given(world: World) -> None:
    """Granted and denied paths; variables one a line, with secrets masked."""
    env = {"PLAIN": "some value", "MY_API_KEY": "abc123", "LINES2": "a\nb", "EMPTY_TOKEN": ""}
    pid = await world.spawn("wait 500 s", env=env, allowed_devices=["/dev/glob", "/dev/fs"])
    caps = await shown(world, pid, "caps")
    assert caps == {"granted": ["/dev/fs", "/dev/glob", "/dev/llm/script"], "denied": []}
    lines = (await text(world, pid, "env")).splitlines()
    assert lines == ["EMPTY_TOKEN=", "LINES2=a\\nb", "MY_API_KEY=********", "PLAIN=some value"]
    await world.write(f"proc/{pid}/ctl", "revoke /dev/glob\nrevoke /dev/fs/etc\ngrant /dev/grep\n")
    caps = await shown(world, pid, "caps")
    assert caps["granted"] == ["/dev/fs", "/dev/grep", "/dev/llm/script"]
    assert caps["denied"] == ["/dev/fs/etc", "/dev/glob"]


@holds("proc/<pid>/fd/<n>")
async def test_open_files_are_links_to_what_was_opened(world: World) -> None:
    """The table starts at 3 and empties at the end."""
    pid = await world.live()
    assert await world.tree.names(f"proc/{pid}/fd") == ["3"]
    assert await world.tree.readlink(f"proc/{pid}/fd/3") == "../../../dev/llm/script"
    assert "does" in await world.json(f"proc/{pid}/fd/3")
    await world.end(pid)
    assert await world.tree.names(f"proc/{pid}/fd") == []
    with refused(errno.ENOENT):
        await world.tree.stat(f"proc/{pid}/fd/3")


@holds("proc/<pid>/root")
async def test_root_is_the_tree_as_the_process_sees_it(world: World) -> None:
    """A folder that holds what it may use: other devices are not listed, and opening them is EACCES."""
    pid = await world.spawn("wait 500 s", allowed_devices=["/dev/glob"])
    root = f"proc/{pid}/root"
    assert (await world.tree.stat(root)).kind == "link"
    assert set(await world.tree.names(f"{root}/dev")) == {"glob", "llm"}
    assert await world.tree.names(f"{root}/dev/llm") == ["script"]
    assert "does" in await world.json(f"{root}/dev/glob")
    for path in ("dev/shell", "dev/edit", "dev/fs", "proc/spawn", "proc/processes", "sys/ctl"):
        with refused(errno.EACCES):
            await world.open(f"{root}/{path}", os.O_RDONLY)
    assert (await world.status(pid))["pid"] == (await world.json(f"{root}/proc/{pid}/status"))["pid"]
    await world.write(f"proc/{pid}/ctl", "grant /dev/shell\n")
    assert "does" in await world.json(f"{root}/dev/shell")


async def test_what_is_done_through_a_root_is_done_by_its_process(world: World) -> None:
    """Opens through a process's root happen on its behalf, so its rights hold whoever makes them."""
    pid = await world.live()
    with refused(errno.EACCES):
        await world.write(f"proc/{pid}/root/sys/ctl", "loglevel info\n")
    child = int(await world.ask(f"proc/{pid}/root/proc/spawn", {"intent": "say hi", "provider": "script"}))
    status = await world.status(child)
    assert status["ppid"] == pid
    assert (await world.status(pid))["children"] == [child]
    assert await text(world, pid, "children") == f"{child}\n"


@holds("proc/self")
async def test_self_belongs_to_agents_only(world: World) -> None:
    """People are no process: for them `proc/self` leads nowhere; through a root it is that process."""
    assert (await world.tree.stat("proc/self")).kind == "link"
    with refused(errno.ENOENT):
        await world.open("proc/self/status", os.O_RDONLY)
    pid = await world.live()
    assert await world.tree.readlink(f"proc/{pid}/root/proc/self") == str(pid)
    assert (await world.json(f"proc/{pid}/root/proc/self/status"))["pid"] == pid


# --- control ---


@holds("proc/<pid>/ctl")
async def test_a_paused_process_stands_still(world: World) -> None:
    """pause stops it before its next step and stops its clock; resume lets it go on."""
    pid, gate = await world.gated()
    await world.write(f"proc/{pid}/ctl", "pause\n")
    first = (await world.status(pid))["elapsed_ms"]
    gate.touch()

    async def stepped() -> bool:
        return bool(await world.lines(f"proc/{pid}/steps.jsonl"))

    await world.until(stepped, "the step that was running ends")
    status = await world.status(pid)
    assert (status["state"], status["paused"], status["elapsed_ms"]) == ("running", True, first)
    assert status["steps"] == 1
    await world.write(f"proc/{pid}/ctl", "resume\n")
    end = await world.json(f"proc/{pid}/wait")
    assert (end["code"], "through" in end["result"]) == (0, True)


async def test_a_suspended_process_does_nothing_until_it_is_woken(world: World) -> None:
    """suspend cancels what it does, and stops its clock; wake lets it go on where it stood, and its model is
    told of a tool that nobody saw end. Each is refused where there is nothing to do."""
    pid, gate = await world.gated()
    with refused(errno.EINVAL):
        await world.write(f"proc/{pid}/ctl", "wake\n")
    await world.write(f"proc/{pid}/ctl", "suspend\n")
    status = await world.status(pid)
    assert (status["state"], status["suspended"]) == ("suspended", "its owner suspended it")
    assert pid in {row["pid"] for row in await world.lines("proc/processes")}
    gate.touch()
    later = await world.status(pid)
    assert (later["steps"], later["elapsed_ms"], later["exit"]) == (1, status["elapsed_ms"], None)
    with refused(errno.EINVAL):
        await world.write(f"proc/{pid}/ctl", "wake up\n")
    await world.write(f"proc/{pid}/ctl", "wake\n")
    assert (await world.json(f"proc/{pid}/wait"))["code"] == 0
    (step, _) = await world.lines(f"proc/{pid}/steps.jsonl")
    assert [call["error_code"] for call in step["tool_calls"]] == ["UNKNOWN_OUTCOME"]
    for command in ("suspend", "wake"):
        with refused(errno.EINVAL):
            await world.write(f"proc/{pid}/ctl", f"{command}\n")


async def test_a_suspended_process_can_be_ended(world: World) -> None:
    """At once, since nothing of it runs."""
    for command, signal in (("term", "SIGTERM"), ("kill", "SIGKILL")):
        pid = await world.live()
        await world.write(f"proc/{pid}/ctl", f"suspend\n{command}\n")
        end = await world.json(f"proc/{pid}/wait")
        assert (end["code"], signal in end["reason"]) == (1, True)


async def test_a_fork_goes_on_from_a_step(world: World) -> None:
    """It has been through the same steps, up to the one that is named, and then does them anew; its source is
    not touched, whether it has ended or not."""
    source = await world.done("run: echo through")
    pid = int(await world.ask("proc/spawn", {"fork": {"source": str(source), "step": 1}}))
    end = await world.json(f"proc/{pid}/wait")
    assert (end["code"], end["result"]) == (0, (await world.json(f"proc/{source}/wait"))["result"])
    ours, theirs = [(await shown(world, one, "messages.json"))["messages"] for one in (pid, source)]
    assert ours == theirs
    assert [one["step"] for one in await world.lines(f"proc/{pid}/steps.jsonl")] == [2]
    assert (await world.status(pid))["steps"] == 2
    for step in ("3", "x", "-1"):
        with refused(errno.EINVAL):
            await world.write(f"proc/{source}/ctl", f"fork {step}\n")


async def test_a_fork_of_a_fork_begins_where_that_began(world: World) -> None:
    """The steps that a fork took over are its start: before them there is nothing to fork from."""
    source = await world.done("run: echo through")
    first = int(await world.ask("proc/spawn", {"fork": {"source": str(source), "step": 1}}))
    await world.json(f"proc/{first}/wait")
    second = int(await world.ask("proc/spawn", {"fork": {"source": str(first)}}))
    await world.json(f"proc/{second}/wait")
    ours, theirs = [(await shown(world, one, "messages.json"))["messages"] for one in (second, source)]
    assert ours == theirs
    assert [one["step"] for one in await world.lines(f"proc/{second}/steps.jsonl")] == [2]
    with refused(errno.EINVAL):
        await world.write(f"proc/{first}/ctl", "fork 0\n")


async def test_a_checkpoint_is_kept(world: World) -> None:
    """Of a running process and of an ended one; it takes nothing after it."""
    for pid in (await world.live(), await world.done()):
        await world.write(f"proc/{pid}/ctl", "checkpoint\n")
        with refused(errno.EINVAL):
            await world.write(f"proc/{pid}/ctl", "checkpoint 1\n")


async def test_a_key_makes_a_process_once(world: World) -> None:
    """The same request with the same key gives the same process, also when that has ended; another request
    with it is refused."""
    request = {"intent": "say hello", "provider": "script", "idempotency_key": world.new_path().name}
    pid = int(await world.ask("proc/spawn", request))
    await world.read(f"proc/{pid}/wait")
    assert int(await world.ask("proc/spawn", request)) == pid
    opened = await world.open("proc/spawn", os.O_RDWR)
    with refused(errno.EINVAL):
        await opened.write(json.dumps({**request, "intent": "say other"}).encode())
    await opened.close()


@pytest.mark.parametrize("command", ["kill", "term", "int", "signal KILL", "signal SIGTERM", "signal 3"])
async def test_signals_end_a_process(world: World, command: str) -> None:
    """Every way to end it does so, with code 1 and a reason that names the signal."""
    pid = await world.live()
    await world.write(f"proc/{pid}/ctl", f"{command}\n")
    end = await world.json(f"proc/{pid}/wait")
    assert end["code"] == 1
    assert re.search(r"SIG(KILL|TERM|INT)", end["reason"])
    opened = await world.open(f"proc/{pid}/ctl", os.O_WRONLY)
    with refused(errno.EINVAL):
        await opened.write(b"term\n")
    await opened.close()


async def test_a_blocked_signal_waits(world: World) -> None:
    """block keeps a signal back, unblock lets it arrive; KILL cannot be blocked."""
    pid = await world.live()
    await world.write(f"proc/{pid}/ctl", "block TERM\nterm\n")
    assert (await world.status(pid))["state"] == "running"
    with refused(errno.EINVAL):
        await world.write(f"proc/{pid}/ctl", "block KILL\n")
    await world.write(f"proc/{pid}/ctl", "unblock TERM\n")
    assert (await world.json(f"proc/{pid}/wait"))["code"] == 1


async def test_what_people_say_is_its_next_message(world: World) -> None:
    """say adds a message of the user before the next step."""
    pid, gate = await world.gated()
    await world.write(f"proc/{pid}/ctl", "say mind the gap\n")
    gate.touch()
    await world.read(f"proc/{pid}/wait")
    users = [one for one in (await shown(world, pid, "messages.json"))["messages"] if one["role"] == "user"]
    assert [one["content"] for one in users][1:] == ["mind the gap"]
    with refused(errno.EINVAL):
        await world.write(f"proc/{pid}/ctl", "say too late\n")


async def test_a_budget_ends_a_process(world: World) -> None:
    """Past its tokens it ends with code 2; a budget set later counts as well."""
    pid = await world.done("spend 1000 and go on", context_budget=900)
    end = await shown(world, pid, "wait")
    assert end["code"] == 2
    assert "budget" in end["reason"]
    pid, gate = await world.gated()
    await world.write(f"proc/{pid}/ctl", "budget 1\n")
    gate.touch()
    assert (await shown(world, pid, "wait"))["code"] == 2


async def test_a_time_limit_ends_a_process(world: World) -> None:
    """timeout_ms ends it with code 1 and the reason."""
    pid = await world.done("wait 500 s", timeout_ms=50)
    end = await shown(world, pid, "wait")
    assert (end["code"], "timeout" in end["reason"]) == (1, True)


async def test_removing_the_folder_kills_and_reaps(world: World) -> None:
    """rmdir ends a process at once; its folder is gone and its history is there; others cannot be removed."""
    pid = await world.live()
    name = (await world.status(pid))["uuid"]
    opened = await world.open(f"proc/{pid}/wait", os.O_RDONLY)
    await world.tree.change("rmdir", f"proc/{pid}")
    assert json.loads(await read_on(opened))["code"] == 1
    await opened.close()
    with refused(errno.ENOENT):
        await world.open(f"proc/{pid}/status", os.O_RDONLY)
    assert str(pid) not in await world.tree.names("proc")
    assert (await world.json(f"proc/history/{name}/status"))["pid"] == pid
    with refused(errno.ENOENT):
        await world.tree.change("rmdir", f"proc/{pid}")
    for fixed in ("history", f"history/{name}"):
        with refused(errno.EPERM, errno.EACCES):
            await world.tree.change("rmdir", f"proc/{fixed}")


async def test_history_has_the_files_of_finished_processes(world: World) -> None:
    """A finished process is found under its UUID, with the same files and the same contents."""
    pid = await world.done("run: echo through")
    name = (await world.status(pid))["uuid"]
    assert name in await world.tree.names("proc/history")
    files = await world.tree.names(f"proc/{pid}")
    assert await world.tree.names(f"proc/history/{name}") == files
    for file in files:
        if (await world.tree.stat(f"proc/{pid}/{file}")).kind == "file":
            assert await world.read(f"proc/history/{name}/{file}") == await world.read(f"proc/{pid}/{file}")
    running = await world.live()
    assert (await world.status(running))["uuid"] not in await world.tree.names("proc/history")


async def test_a_child_lives_within_its_parent(world: World) -> None:
    """A process's child is listed by its parent, and is given to process 0 when the parent ends."""
    parent = await world.live()
    child = await world.spawn("wait 500 s", parent=parent)
    assert (await world.status(child))["ppid"] == parent
    assert (await world.status(parent))["children"] == [child]
    await world.end(parent)
    assert ((await world.status(child))["ppid"], (await world.status(child))["state"]) == (0, "running")
    with refused(errno.EINVAL):
        opened = await world.open("proc/spawn", os.O_RDWR)
        await opened.write(json.dumps({"intent": "x", "provider": "script", "parent": parent}).encode())


async def test_a_zombie_waits_for_its_parent(world: World) -> None:
    """A child that ended stays a zombie while its parent may still ask for it."""
    parent = await world.live()
    child = await world.spawn("say hi", parent=parent)
    await world.read(f"proc/{child}/wait")
    assert (await world.status(child))["state"] == "zombie"
    await world.end(parent)
    assert (await world.status(child))["state"] == "dead"
