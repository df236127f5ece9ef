"""The table of files against a running system, and what is in the files outside of `proc/`."""

import ast
import errno
import os
import pathlib

import pytest

import rnixfs
from rnixfs import limits
from tests.contract.world import World, refused
from tests.filetable import PAGELESS, TABLE, Class, holds, row_of

ROOT = pathlib.Path(__file__).resolve().parents[2]


async def walk(world: World, folder: str, mine: set[str]) -> list[str]:
    """Every path below a folder, `.live` folders included, links not followed, but processes only of `mine`:
    pids and UUIDs. A daemon that serves many tests has hundreds of others, all alike."""
    found = []
    names = await world.tree.names(folder)
    if folder in ("proc", "proc/history"):
        names = [name for name in names if name in mine or not name[0].isdigit()]
    hidden = [".live"] if folder == "proc" or (folder.startswith("proc/") and "status" in names) else []
    for name in [*names, *hidden]:
        path = f"{folder}/{name}".lstrip("/")
        found.append(path)
        if (await world.tree.stat(path)).kind == "directory":
            found += await walk(world, path, mine)
    return found


async def test_every_file_has_a_row(world: World) -> None:
    """A running system with a finished and a running process holds nothing that the table does not know, and
    everything that the table knows is there. (What a folder hides must be looked up by name.)"""
    done, live = await world.done("run: true"), await world.live()
    await world.pipe()
    await world.group()
    await world.server()
    supervisor = await world.supervisor()
    found = await walk(world, "", {str(done), str(live), str(supervisor), (await world.status(done))["uuid"]})
    assert f"proc/{live}/status" in found
    assert [path for path in found if row_of(path) is None] == []
    for path in found:
        row = row_of(path)
        assert row is not None
        kind = (await world.tree.stat(path)).kind
        assert kind == {Class.FOLDER: "directory", Class.LINK: "link"}.get(row.kind, "file") or (
            row.kind is Class.HOST
        )
    known = {row.pattern for path in found if (row := row_of(path)) is not None}
    hidden = {row.pattern for row in TABLE if "/.live/" in row.pattern}
    assert {row.pattern for row in TABLE} - known - hidden == {""}


def held() -> set[str]:
    """The patterns that `@holds` names in the tests of this folder."""
    found: set[str] = set()
    for file in pathlib.Path(__file__).parent.glob("test_*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "holds":
                found |= {str(ast.literal_eval(argument)) for argument in node.args}
    return found


@pytest.mark.parametrize(
    "row", [row for row in TABLE if row.kind not in PAGELESS], ids=lambda row: row.pattern.replace("/", ":")
)
def test_every_row_has_a_contract_test(row) -> None:
    """What a file contains is held by a test that names it; that it keeps the laws of its class, all rows
    are tested for."""
    assert row.pattern in held()


# --- README.md, lib/ and sys/ ---


@holds("README.md")
async def test_the_readme_says_how_to_use_the_tree(world: World) -> None:
    """It is short, and names every folder at the top."""
    readme = (await world.read("README.md")).decode()
    assert len(readme.encode()) < 4096
    for name in await world.tree.names(""):
        assert name in readme or name == "README.md"
    assert await world.tree.names("") == ["README.md", "dev", "proc", "mnt", "lib", "sys"]


@holds("lib/agents/<name>/agent.yaml", "lib/agents/<name>/instructions.md", "lib/skills/<name>/SKILL.md")
async def test_lib_shows_what_the_loaders_see(world: World) -> None:
    """Agents and skills with their files, byte by byte."""
    assert {"default", "code-analyst"} <= set(await world.tree.names("lib/agents"))
    assert {"shell-use", "code-analysis"} <= set(await world.tree.names("lib/skills"))
    for path in ("agents/default/agent.yaml", "agents/default/instructions.md", "skills/shell-use/SKILL.md"):
        assert await world.read(f"lib/{path}") == (ROOT / path).read_bytes()


PROVIDER_FIELDS = (
    *("name", "driver", "state", "available", "reason", "default_model"),
    *("latency_ms", "calls", "failures", "running", "waiting", "last_error"),
)


@holds("sys/version", "sys/uptime", "sys/stats", "sys/limits", "sys/config", "sys/providers")
async def test_sys_tells_what_the_system_is(world: World) -> None:
    """Version, seconds since the start, counts, every limit, the settings, and who can be asked."""
    assert await world.read("sys/version") == f"{rnixfs.__version__}\n".encode()
    first = float(await world.read("sys/uptime"))
    assert float(await world.read("sys/uptime")) >= first >= 0
    await world.live()
    assert (await world.json("sys/stats"))["processes"] >= 1
    lines = (await world.read("sys/limits")).decode().splitlines()
    assert f"NAME_MAX {limits.NAME_MAX}" in lines
    assert [line.split()[0] for line in lines] == [name for name in dir(limits) if name.isupper()]
    config = await world.json("sys/config")
    assert config["roots"] == [str(world.host)]
    assert config["fs_write"] is False
    providers = {row["name"]: row for row in await world.lines("sys/providers")}
    script = providers["script"]
    assert [script[name] for name in PROVIDER_FIELDS[:5]] == ["script", "script", "ready", True, ""]
    assert all(set(PROVIDER_FIELDS) <= set(row) or not row["available"] for row in providers.values())
    assert set(await world.tree.names("dev/llm")) <= set(providers)


@holds("sys/mcp")
async def test_sys_mcp_tells_which_servers_can_be_mounted(world: World) -> None:
    """Those of mcp.yaml, as it is now; a project may name one that runs on this machine."""
    folder = world.host / ".rnix"
    folder.mkdir(exist_ok=True)
    file = folder / "mcp.yaml"
    file.write_text(
        "servers:\n  near: {url: 'http://127.0.0.1:1/mcp'}\n  far: {url: 'http://192.0.2.1/mcp'}\n"
    )
    try:
        near = {"name": "near", "type": "http", "target": "http://127.0.0.1:1/mcp", "autostart": False}
        assert await world.lines("sys/mcp") == [{**near, "file": f"{file}:2", "mounts": []}]
        warnings = (await world.json("sys/config"))["warnings"]
        assert any("'far' is not used because it reaches another machine" in one for one in warnings)
    finally:
        file.unlink()
    assert await world.lines("sys/mcp") == []


@holds("sys/ctl")
async def test_sys_ctl_takes_the_commands_of_people(world: World) -> None:
    """Commands that are right are taken; a command with too much behind it is not."""
    await world.write("sys/ctl", "loglevel debug\nloglevel info\n")
    opened = await world.open("sys/ctl", os.O_WRONLY)
    with refused(errno.EINVAL):
        await opened.write(b"shutdown now\n")
    await opened.close()
    assert "shutdown" in (await world.read("sys/ctl")).decode()


# --- files of the host ---


@holds("dev/fs/<host path>")
async def test_host_files_are_shown_as_they_are(world: World) -> None:
    """Names, sizes and bytes of the host's folders; links that lead out lead nowhere."""
    path = f"dev/fs{world.host}"
    (world.host / "big").write_bytes(bytes(range(256)) * 5000)
    for link, target in (("inside", "sub/inner.txt"), ("outside", "/etc/passwd")):
        if not (world.host / link).is_symlink():
            (world.host / link).symlink_to(target)
    assert set(os.listdir(world.host)) == set(await world.tree.names(path))
    assert await world.read(f"{path}/big") == bytes(range(256)) * 5000
    assert (await world.tree.stat(f"{path}/big")).size == 256 * 5000
    assert await world.read(f"{path}/inside") == b"inner hello\n"
    with refused(errno.ENOENT, errno.EACCES):
        await world.open(f"{path}/outside", os.O_RDONLY)
    with refused(errno.ENOENT):
        await world.tree.stat("dev/fs/etc")


async def test_host_files_cannot_be_changed_by_default(world: World) -> None:
    """Without leave to write every change of the host's files is EROFS, and changes nothing."""
    path = f"dev/fs{world.host}"
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND):
        with refused(errno.EROFS):
            await world.open(f"{path}/hello.txt", flags)
    with refused(errno.EROFS):
        await world.open(f"{path}/new.txt", os.O_WRONLY | os.O_CREAT)
    for call, *arguments in (("mkdir",), ("symlink", "x")):
        with refused(errno.EROFS):
            await world.tree.change(call, f"{path}/new.txt", *arguments)
    with refused(errno.EROFS):
        await world.tree.change("rmdir", f"{path}/sub")
    with refused(errno.EROFS):
        await world.tree.change("truncate", f"{path}/hello.txt", 0)
    assert (world.host / "hello.txt").read_text() == "hello\n"
    assert not (world.host / "new.txt").exists()
