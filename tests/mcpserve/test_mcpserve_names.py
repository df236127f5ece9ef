"""What a name of a client leads to, and what it may be used for: in a folder that looks like a tree."""

import os
import pathlib
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from rnixfs.errors import Code, SyscallError
from rnixfs.mcpserve.rights import Rights
from rnixfs.mcpserve.tree import Tree

FOLDERS = (
    "sys",
    "lib",
    "dev/fs/home/me",
    "dev/fs/other",
    "dev/llm",
    "proc/7/.live/root",
    "proc/8/.live",
    "proc/9",
)
FILES = ("sys/version", "sys/stats", "README.md", "dev/shell", "dev/fs/home/me/note", "dev/fs/other/secret",
         "dev/llm/script", "proc/spawn", "proc/7/status", "proc/7/ctl", "proc/8/status", "proc/8/.live/recv",
         "proc/7/.live/root/dev-shell", "secret")  # fmt: skip
LINKS = {
    "proc/7/root": ".live/root",
    "proc/8/recv": ".live/recv",
    "proc/8/fd": "../../dev/shell",
    "dev/fs/home/me/out": "../../other/secret",
    "dev/fs/home/me/up": "../..",
    "dev/fs/home/me/host": "/etc/passwd",
    "dev/fs/home/me/round": "round",
    "dev/fs/home/me/inside": "note",
}


@pytest.fixture
def mount(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with files and links as a tree has them."""
    root = tmp_path / "m"
    for name in FOLDERS:
        (root / name).mkdir(parents=True)
    for name in FILES:
        (root / name).write_text(name)
    for name, target in LINKS.items():
        (root / name).symlink_to(target)
    (tmp_path / "secret").write_text("outside")
    return root


def tree_of(mount: pathlib.Path, *allowed: str, **more: Any) -> Tree:
    """The tree, for a client that may use some paths; everything where none are named."""
    return Tree(str(mount), Rights(allowed or None, **more))


def code_of(tree: Tree, name: str) -> str:
    """Why a name cannot be read; "" where it can."""
    try:
        place = tree.there(name)
        tree.rights.check_read(place.path)
    except SyscallError as error:
        return str(error.code)
    return ""


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("/sys/version", "/sys/version"),
        ("sys/./version", "/sys/version"),
        ("//sys//version/", "/sys/version"),
        ("dev/../sys/version", "/sys/version"),
        ("../../../sys/version", "/sys/version"),
        ("dev/fs/home/me/up/home/me/inside", "/dev/fs/home/me/note"),
        ("dev/fs/home/me/out", "/dev/fs/other/secret"),
        ("proc/8/fd", "/dev/shell"),
        ("proc/7/root/dev-shell", "/proc/7/.live/root/dev-shell"),
        ("rnix:///sys/version", "/sys/version"),
        ("/", "/"),
        ("..", "/"),
    ],
)
def test_names_lead_to_real_paths(mount: pathlib.Path, name: str, path: str) -> None:
    """Every link and every `..` is worked out before anything else."""
    assert tree_of(mount).there(name).path == path


def test_paths_of_the_host_below_the_mount(mount: pathlib.Path) -> None:
    """A path as programs of this machine write it is taken, too."""
    assert tree_of(mount).there(f"{mount}/sys/version").path == "/sys/version"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("../secret/x", "NOT_DIRECTORY"),
        ("/etc/passwd", "NOT_FOUND"),
        ("dev/fs/home/me/host", "NOT_FOUND"),
        ("dev/fs/home/me/round", "TOO_MANY_LINKS"),
        ("nowhere/../sys/version", "NOT_FOUND"),
        ("a\0b", "INVALID"),
        ("sys/version/x", "NOT_DIRECTORY"),
        ("x" * 300, "NAME_TOO_LONG"),
    ],
)
def test_names_that_lead_nowhere(mount: pathlib.Path, name: str, code: str) -> None:
    """A link that leads out of the tree, or round in circles, leads nowhere."""
    assert code_of(tree_of(mount), name) == code


@pytest.mark.parametrize(
    "name",
    [
        "dev/fs/other/secret",
        "dev/fs/home/me/out",
        "dev/fs/home/me/up/other/secret",
        "dev/fs/home/me/../../other/secret",
        "rnix:///dev/fs/home/me/../../other/secret",
        "dev/fs/home/me/../../../shell",
        "proc/8/fd",
        "proc/7/root/dev-shell",
        "proc/7/status",
        "proc",
        "sys/stats",
        "dev/fs/other/nothing",
    ],
)
def test_tricks_do_not_leave_the_list(mount: pathlib.Path, name: str) -> None:
    """Whatever way a name takes, what it leads to must be on the list; what is not there is not told."""
    tree = tree_of(mount, "/dev/fs/home/me")
    assert code_of(tree, "dev/fs/home/me/inside") == ""
    expected = "PERMISSION" if name != "proc" else ""
    found = code_of(tree, name)
    assert found == expected or (name == "proc" and found == "PERMISSION")


def test_what_everybody_sees(mount: pathlib.Path) -> None:
    """What says what there is and changes nothing is seen with any list, as by every process."""
    tree = tree_of(mount, "/dev/llm")
    assert [code_of(tree, name) for name in ("README.md", "sys/version", "dev/llm/script")] == ["", "", ""]


def test_the_view_of_a_process_gives_nothing_more(mount: pathlib.Path) -> None:
    """Who may use the folder of a process does not get through its view what is not on the list."""
    assert code_of(tree_of(mount, "/proc/7"), "proc/7/root/dev-shell") == "PERMISSION"
    assert code_of(tree_of(mount, "/proc/7", "/dev-shell"), "proc/7/root/dev-shell") == ""
    assert code_of(tree_of(mount, "/dev-shell"), "proc/7/root/dev-shell") == "PERMISSION"


def test_processes_that_the_client_started(mount: pathlib.Path) -> None:
    """A process that the client started is its own, and what such a one starts; others are not."""
    tree = tree_of(mount, "/proc/spawn")
    tree.rights.parent_of = {"8": "7", "7": "0", "9": "0"}.__getitem__
    assert code_of(tree, "proc/7/status") == "PERMISSION"
    tree.rights.adopt(7)
    assert [code_of(tree, f"proc/{pid}/status") for pid in (7, 8)] == ["", ""]
    assert code_of(tree, "proc/9") == "PERMISSION"
    assert code_of(tree, "proc/7/root/dev-shell") == "PERMISSION"


def test_streams_are_allowed_by_the_name_that_is_known(mount: pathlib.Path) -> None:
    """Who may read a stream may read what its link leads to, and nothing beside it."""
    tree = tree_of(mount, "/proc/8/recv")
    assert [code_of(tree, name) for name in ("proc/8/recv", "proc/8/status")] == ["", "PERMISSION"]
    (mount / "dev/fs/home/me/.live").mkdir()
    (mount / "dev/fs/home/me/.live/note").write_text("not this")
    assert code_of(tree_of(mount, "/dev/fs/home/me/note"), "dev/fs/home/me/.live/note") == "PERMISSION"


def written(tree: Tree, name: str, data: bytes = b"x") -> str:
    """Why a name cannot be written; "" where it can."""
    try:
        tree.rights.check_write(tree.resolve(name).path, data)
    except SyscallError as error:
        return str(error.code)
    return ""


def test_files_of_the_host_are_not_written(mount: pathlib.Path) -> None:
    """Only where it is asked for, whatever way leads there."""
    for name in ("dev/fs/home/me/note", "dev/fs/home/me/inside", "dev/fs/new", "rnix:///dev/shell/../fs/x"):
        assert written(tree_of(mount), name) == (
            "READ_ONLY" if "shell" not in name else written(tree_of(mount), name)
        )
        assert written(tree_of(mount, fs_write=True), "dev/fs/home/me/note") == ""
    assert written(tree_of(mount), "dev/shell") == ""


def test_nothing_is_written_where_only_reading_is_allowed(mount: pathlib.Path) -> None:
    """Nor are messages taken."""
    tree = tree_of(mount, read_only=True)
    assert {written(tree, name) for name in ("dev/shell", "proc/7/ctl", "proc/spawn")} == {"PERMISSION"}
    assert code_of(tree, "proc/8/recv") == "PERMISSION"
    assert code_of(tree_of(mount), "proc/8/recv") == ""
    with pytest.raises(SyscallError, match="--read-only"):
        tree.rights.check_act("starting a process")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"pause", ""),
        (b"grant /dev/llm", ""),
        (b"grant /dev/shell", "PERMISSION"),
        (b"pause\n  grant /", "PERMISSION"),
        (b"grant\t/dev/shell", "PERMISSION"),
        (b"pause\rgrant /dev/shell", "PERMISSION"),
    ],
)
def test_a_list_is_not_left_by_granting(mount: pathlib.Path, data: bytes, code: str) -> None:
    """A client with a list grants nothing that is not on it, nor starts what has more."""
    tree = tree_of(mount, "/proc", "/dev/llm")
    assert written(tree, "proc/7/ctl", data) == code
    assert written(tree, "proc/spawn") == "PERMISSION"
    assert tree.rights.within(None) == ["/dev/llm", "/proc"]
    assert tree.rights.within(["/dev/llm/script"]) == ["/dev/llm/script"]
    with pytest.raises(SyscallError) as caught:
        tree.rights.within(["/dev"])
    assert caught.value.code is Code.PERMISSION


def test_a_folder_that_becomes_a_link(mount: pathlib.Path) -> None:
    """What was checked is what is opened: a folder that was swapped for a link since is refused."""
    tree = tree_of(mount, "/dev/fs/home/me")
    path = tree.there("dev/fs/home/me/note").path
    os.rename(mount / "dev/fs/home/me", mount / "dev/fs/home/old")
    (mount / "dev/fs/home/me").symlink_to("../other")
    (mount / "dev/fs/other/note").write_text("not this")
    with pytest.raises(SyscallError):
        tree.open(path, os.O_RDONLY)


@hypothesis.given(
    st.lists(st.sampled_from(["..", ".", "", "dev", "fs", "home", "me", "up", "out", "other", "secret"]))
)
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_no_name_leaves_the_list(mount: pathlib.Path, parts: list[str]) -> None:
    """Whatever a name is made of, what may be read lies below what is on the list."""
    tree = tree_of(mount, "/dev/fs/home/me")
    try:
        path = tree.there("/".join(parts)).path
        tree.rights.check_read(path)
    except SyscallError:
        return
    assert path.startswith("/dev/fs/home/me")
