"""Groups, what a process does with signals, and the folder of mounts."""

import errno
import json

import pytest

from tests.contract.world import World, refused
from tests.filetable import holds


@holds("proc/groups/<name>/members", "proc/groups/<name>/ctl")
async def test_a_group_is_made_joined_signalled_and_removed(world: World) -> None:
    """`mkdir` makes it, `join` in a `ctl` enters it, its own `ctl` reaches each member, `rmdir` ends it."""
    name = await world.group()
    one, two = await world.live(), await world.live()
    for pid in (one, two):
        await world.write(f"proc/{pid}/ctl", f"join {name}\n")
    assert await world.read(f"proc/groups/{name}/members") == f"{one}\n{two}\n".encode()
    with refused(errno.ENOTEMPTY):
        await world.tree.change("rmdir", f"proc/groups/{name}")
    await world.write(f"proc/groups/{name}/ctl", "signal PAUSE\n")
    assert [(await world.status(pid))["paused"] for pid in (one, two)] == [True, True]
    await world.write(f"proc/{one}/ctl", f"leave {name}\n")
    await world.write(f"proc/groups/{name}/ctl", "signal KILL\n")
    assert [(await world.status(pid))["state"] for pid in (one, two)] == ["running", "dead"]
    assert await world.read(f"proc/groups/{name}/members") == b""
    await world.tree.change("rmdir", f"proc/groups/{name}")
    assert name not in await world.tree.names("proc/groups")


@pytest.mark.parametrize("line", ["signal NOPE", "dance"])
async def test_what_a_group_does_not_take(world: World, line: str) -> None:
    """Unknown commands and signals are refused in the write."""
    name = await world.group()
    with refused(errno.EINVAL):
        await world.write(f"proc/groups/{name}/ctl", line + "\n")


@holds("proc/<pid>/signals")
async def test_signals_shows_what_is_blocked_and_what_waits(world: World) -> None:
    """A blocked signal waits until it is unblocked."""
    pid = await world.live()
    await world.write(f"proc/{pid}/ctl", "block TERM\n")
    await world.write(f"proc/{pid}/ctl", "term\n")
    shown = await world.json(f"proc/{pid}/signals")
    assert (shown["blocked"], shown["pending"]) == (["SIGTERM"], ["SIGTERM"])
    await world.write(f"proc/{pid}/ctl", "unblock TERM\n")
    assert "SIGTERM" in (await world.json(f"proc/{pid}/wait"))["reason"]


@holds("mnt/mcp/ctl")
@pytest.mark.parametrize(
    "line", ["mount x {}", 'mount x {"type":"none-of-this-name"}', "mount x {", "unmount absent", "mount"]
)
async def test_a_mount_that_cannot_be_made_is_refused_in_the_write(world: World, line: str) -> None:
    """And leaves nothing behind."""
    with refused(errno.EINVAL, errno.ENOENT):
        await world.write("mnt/mcp/ctl", line + "\n")
    assert not {"x", "absent"} & set(await world.tree.names("mnt/mcp"))


@holds(
    "mnt/mcp/<server>/status",
    "mnt/mcp/<server>/tools/<tool>",
    "mnt/mcp/<server>/tools/<tool>.json",
    "mnt/mcp/<server>/prompts/<prompt>",
    "mnt/mcp/<server>/resources/<uri>",
    "mnt/mcp/<server>/resources/.templates.json",
)
async def test_a_server_is_a_folder(world: World) -> None:
    """Its tools and prompts answer, its resources are read, and its names go when it is unmounted."""
    name = await world.server()
    folder = f"mnt/mcp/{name}"
    status = await world.json(f"{folder}/status")
    assert (status["name"], status["owner"], status["server"]["name"]) == (name, 0, "raw")
    assert (await world.json(f"{folder}/tools/call.json"))["name"] == "call"
    assert json.loads(await world.ask(f"{folder}/tools/call", {"x": 1}))["text"] == '{"x": 1}'
    with refused(errno.EINVAL):
        await world.write(f"{folder}/prompts/greet", "{}")
    answer = json.loads(await world.ask(f"{folder}/prompts/greet", {"whom": "Ann"}))
    assert answer["messages"][0]["content"]["text"] == "Greet Ann."
    assert (await world.tree.stat(f"{folder}/resources/urn:note")).size == 0
    assert await world.read(f"{folder}/resources/urn:note") == b"one"
    assert (await world.tree.stat(f"{folder}/resources/urn:note")).size == 3
    assert (await world.json(f"{folder}/resources/.templates.json"))[0]["uriTemplate"] == "urn:day:{n}"
    with refused(errno.ENOENT):
        await world.read(f"{folder}/resources/urn:day:1")
    await world.write("mnt/mcp/ctl", f"unmount {name}\n")
    assert name not in await world.tree.names("mnt/mcp")
    with refused(errno.ENOENT):
        await world.read(f"{folder}/status")
