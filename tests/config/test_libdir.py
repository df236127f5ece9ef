"""lib/: shows what the loaders see, as it is on the host."""

import os
from pathlib import Path

import pytest

from rnixfs.errors import Code, SyscallError
from rnixfs.libdir import lib_dir
from rnixfs.node import Dir, Node
from rnixfs.types import Caller, Kind

from .shelves import LONG_AGO, Shelves, add_agent, add_skill, age, write

ME = Caller(uid=1000, gid=1000)


@pytest.fixture
def shelves(tmp_path: Path) -> Shelves:
    return Shelves.below(tmp_path)


@pytest.fixture
def lib(shelves: Shelves) -> Dir:
    library = shelves.library()
    return lib_dir(lambda: library.for_cwd(shelves.cwd))


def walk(node: Node, path: str) -> Node:
    for name in path.split("/"):
        assert isinstance(node, Dir)
        node = node.lookup(name, ME)
    return node


def names(node: Node) -> list[str]:
    assert isinstance(node, Dir)
    return [name for name, _ in node.entries(ME)]


def content(node: Node) -> bytes:
    file = node.open(ME, os.O_RDONLY)
    try:
        return file.read(1 << 20, 0)
    finally:
        file.close()


def test_agents_and_skills_of_all_folders_are_listed(shelves: Shelves, lib: Dir) -> None:
    add_agent(shelves.built_in, "b", "x", instructions="hello")
    add_agent(shelves.project, "a", "x")
    add_skill(shelves.user, "s", "x")
    write(shelves.user / "skills" / "s" / "scripts" / "run.sh", "echo hi")
    assert names(lib) == ["agents", "skills"]
    assert names(walk(lib, "agents")) == ["a", "b"]
    assert names(walk(lib, "agents/b")) == ["agent.yaml", "instructions.md"]
    assert names(walk(lib, "skills/s")) == ["SKILL.md", "scripts"]
    assert content(walk(lib, "skills/s/scripts/run.sh")) == b"echo hi"


def test_the_project_hides_what_is_built_in(shelves: Shelves, lib: Dir) -> None:
    add_agent(shelves.built_in, "a", "built in", instructions="x")
    before = walk(lib, "agents/a")
    add_agent(shelves.project, "a", "of the project")
    assert b"of the project" in content(walk(lib, "agents/a/agent.yaml"))
    assert names(walk(lib, "agents/a")) == ["agent.yaml"]
    assert walk(lib, "agents/a") != before
    assert walk(lib, "agents/a") == walk(lib, "agents/a")


def test_sizes_and_times_are_those_of_the_files(shelves: Shelves, lib: Dir) -> None:
    path = add_agent(shelves.user, "a", "x")
    path.chmod(0o755)
    age(path)
    found = walk(lib, "agents/a/agent.yaml").stat()
    assert (found.kind, found.size, found.mtime_ns) == (Kind.FILE, path.stat().st_size, LONG_AGO)
    assert (found.mode, found.blocks) == (0o555, path.stat().st_blocks)
    age(path.parent)
    folder = walk(lib, "agents/a").stat()
    assert (folder.kind, folder.mode, folder.mtime_ns) == (Kind.DIRECTORY, 0o555, LONG_AGO)


def test_files_are_read_at_any_offset(shelves: Shelves, lib: Dir) -> None:
    add_agent(shelves.user, "a", "x", instructions="0123456789")
    file = walk(lib, "agents/a/instructions.md").open(ME, os.O_RDONLY)
    assert (file.read(4, 3), file.read(9, 8), file.read(9, 10)) == (b"3456", b"89", b"")
    file.close()
    file.close()
    with pytest.raises(SyscallError) as caught:
        file.read(1, 0)
    assert caught.value.code is Code.BAD_FD


def test_a_change_on_the_host_shows_at_the_next_look(shelves: Shelves, lib: Dir) -> None:
    path = add_agent(shelves.user, "a", "x", instructions="before").with_name("instructions.md")
    node = walk(lib, "agents/a/instructions.md")
    path.write_text("and after", encoding="utf-8")
    assert (content(node), node.stat().size) == (b"and after", 9)
    path.unlink()
    for call in (node.stat, lambda: node.open(ME, os.O_RDONLY)):
        with pytest.raises(SyscallError) as caught:
            call()
        assert caught.value.code is Code.NOT_FOUND


def test_a_broken_agent_is_shown_so_that_it_can_be_looked_at(shelves: Shelves, lib: Dir) -> None:
    write(shelves.user / "agents" / "a" / "agent.yaml", "nonsense")
    assert content(walk(lib, "agents/a/agent.yaml")) == b"nonsense"


@pytest.mark.parametrize(
    "path", ["agents/none", "agents/..", "agents/a/none", "agents/a/..", "agents/a/x\0y"]
)
def test_unknown_names_are_not_found(shelves: Shelves, lib: Dir, path: str) -> None:
    add_agent(shelves.user, "a", "x")
    with pytest.raises(SyscallError) as caught:
        walk(lib, path)
    assert caught.value.code is Code.NOT_FOUND


def test_nothing_outside_and_nothing_but_files_and_folders_shows(
    shelves: Shelves, lib: Dir, tmp_path: Path
) -> None:
    folder = add_agent(shelves.project, "a", "x").parent
    secret = write(tmp_path / "outside" / "secret", "secret")
    (folder / "link").symlink_to(secret)
    (folder / "up").symlink_to(secret.parent)
    (folder / "dangling").symlink_to("nowhere")
    (folder / "inside").symlink_to("agent.yaml")
    os.mkfifo(folder / "pipe")
    (shelves.project / "agents" / "b").symlink_to(secret.parent)
    assert names(walk(lib, "agents/a")) == ["agent.yaml", "inside"]
    assert names(walk(lib, "agents")) == ["a"]
    for path in ("agents/a/link", "agents/a/up", "agents/a/pipe", "agents/b"):
        with pytest.raises(SyscallError) as caught:
            walk(lib, path)
        assert caught.value.code is Code.NOT_FOUND


def test_lib_can_only_be_read(shelves: Shelves, lib: Dir) -> None:
    add_agent(shelves.user, "a", "x")
    with pytest.raises(SyscallError) as caught:
        walk(lib, "agents/a/agent.yaml").open(ME, os.O_WRONLY)
    assert caught.value.code is Code.PERMISSION
    for folder in ("agents", "agents/a"):
        node = walk(lib, folder)
        assert isinstance(node, Dir)
        with pytest.raises(SyscallError) as caught:
            node.mkdir("new", 0o755, ME)
        assert caught.value.code is Code.NOT_PERMITTED
