"""What the files of supervisors and of init hold, in memory and through a mount."""

import errno

from tests.contract.world import World, refused
from tests.filetable import holds


async def children(world: World, pid: int) -> dict:
    """The children of a supervisor by name."""
    return {one["name"]: one for one in (await world.json(f"proc/{pid}/supervisor"))["children"]}


async def restarted(world: World, pid: int, name: str, times: int) -> dict:
    """A child of a supervisor, once it runs again."""

    async def again() -> bool:
        child = (await children(world, pid))[name]
        return child["restarts"] == times and child["state"] == "running"

    await world.until(again, f"{name} is started again")
    return (await children(world, pid))[name]


@holds("proc/<pid>/supervisor")
async def test_a_supervisor_and_its_children(world: World) -> None:
    """It shows its spec and its children, which are ordinary processes below it; one that is killed comes
    back with another pid, and `wait` says why the supervisor gave up."""
    pid = await world.supervisor(strategy="rest_for_one", max_restarts=1)
    shown = await world.json(f"proc/{pid}/supervisor")
    assert {name: shown[name] for name in ("name", "strategy", "max_restarts", "max_window")} == {
        "name": "pair",
        "strategy": "rest_for_one",
        "max_restarts": 1,
        "max_window": 60,
    }
    before = await children(world, pid)
    status = await world.status(pid)
    assert sorted(status["children"]) == [before["one"]["pid"], before["two"]["pid"]]
    assert (await world.status(before["two"]["pid"]))["ppid"] == pid
    await world.write(f"proc/{before['two']['pid']}/ctl", "kill\n")
    after = await restarted(world, pid, "two", 1)
    assert after["pid"] > before["two"]["pid"]
    await world.write(f"proc/{after['pid']}/ctl", "kill\n")
    end = await world.json(f"proc/{pid}/wait")
    assert end["code"] == 1
    assert end["reason"].startswith("max_restarts_exceeded: 'two' ended with code 1: killed by SIGKILL")
    assert await world.read(f"proc/{pid}/children") == b""


async def test_orders_through_ctl(world: World) -> None:
    """`stop`, `start` and `restart` reach a child by its name; a name that is none is refused."""
    pid = await world.supervisor()
    await world.write(f"proc/{pid}/ctl", "stop one\n")

    async def stopped() -> bool:
        return (await children(world, pid))["one"]["state"] == "stopped"

    await world.until(stopped, "one is stopped")
    await world.write(f"proc/{pid}/ctl", "start one\n")
    first = await restarted(world, pid, "one", 1)
    await world.write(f"proc/{pid}/ctl", "restart one\n")
    assert (await restarted(world, pid, "one", 2))["pid"] > first["pid"]
    with refused(errno.ENOENT):
        await world.write(f"proc/{pid}/ctl", "stop three\n")
    with refused(errno.EINVAL):
        await world.write(f"proc/{pid}/ctl", "stop\n")


async def test_only_a_supervisor_has_the_file(world: World) -> None:
    """For any other process it is not there."""
    pid = await world.done()
    assert "supervisor" not in await world.tree.names(f"proc/{pid}")
    with refused(errno.ENOENT):
        await world.read(f"proc/{pid}/supervisor")


async def test_killing_a_supervisor_ends_its_children(world: World) -> None:
    """Nothing it started outlives it."""
    pid = await world.supervisor()
    below = [child["pid"] for child in (await children(world, pid)).values()]
    await world.end(pid)
    assert [(await world.status(child))["state"] for child in below] == ["dead", "dead"]


async def test_a_spec_that_could_not_work_is_refused_by_the_write(world: World) -> None:
    """`echo` shows the error, and the reason can be read."""
    with refused(errno.EINVAL):
        await world.ask("proc/spawn", {"supervisor": {"name": "s", "children": []}})
    with refused(errno.EINVAL):
        await world.ask("proc/spawn", {"supervisor": {"name": "s"}, "agent": "default"})


@holds("sys/init")
async def test_what_init_started(world: World) -> None:
    """Without an init.yaml nothing was, and the file says so."""
    shown = await world.json("sys/init")
    assert shown["state"] in ("idle", "up", "starting")
    assert {name: shown[name] for name in ("reason", "files", "units")} == {
        "reason": "",
        "files": [],
        "units": [],
    }


async def test_bootstrap_is_a_command(world: World) -> None:
    """It can be given at any time, takes nothing after it, and starts what there is: here nothing."""
    await world.write("sys/ctl", "bootstrap\n")

    async def up() -> bool:
        return (await world.json("sys/init"))["state"] == "up"

    await world.until(up, "init is up")
    with refused(errno.EINVAL):
        await world.write("sys/ctl", "bootstrap now\n")
