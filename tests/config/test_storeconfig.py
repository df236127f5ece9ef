"""config.yaml: every field and every refusal; and the folder of the state."""

import hashlib
import os
import pathlib

import pytest

from rnixfs.errors import Code, SyscallError
from rnixfs.state.opening import LEVELS
from rnixfs.state.store import Retention
from rnixfs.storeconfig import StoreSettings, parse_config, state_folder, store_settings
from rnixfs.yamlread import ManifestError

FILE = "/conf/config.yaml"
EXAMPLE = """\
version: 1
store:
  synchronous: full
  keep:
    processes: 7
    days: 1.5
    bytes: 1000
"""


def env_of(folder: pathlib.Path) -> dict[str, str]:
    """An environment whose configuration lies below a folder."""
    return {"XDG_CONFIG_HOME": str(folder)}


def write(folder: pathlib.Path, text: str | bytes) -> pathlib.Path:
    """Put the file where it is looked for."""
    path = folder / "rnix" / "config.yaml"
    path.parent.mkdir(parents=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_every_field_is_read() -> None:
    """Each field ends where it belongs."""
    assert parse_config(EXAMPLE, FILE) == StoreSettings("full", Retention(processes=7, days=1.5, bytes=1000))


@pytest.mark.parametrize("text", ["", "# nothing\n", "version: 1\n"])
def test_what_is_not_written_is_as_usual(text: str) -> None:
    """A file that says nothing changes nothing."""
    assert parse_config(text, FILE) == StoreSettings("normal", Retention())


@pytest.mark.parametrize("field", ["processes", "days", "bytes"])
def test_each_limit_can_be_set_alone(field: str) -> None:
    """The others stay as usual; 0 is a limit like any other."""
    for value in (0, 5):
        found = parse_config(f"store: {{keep: {{{field}: {value}}}}}", FILE).retention
        assert found == Retention(**{field: value})


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_can_be_set(level: str) -> None:
    """`off` is a word here, not a flag."""
    assert parse_config(f"store: {{synchronous: {level}}}", FILE).synchronous == level


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("store:\n  synchronous: fast\n", 2, ["store.synchronous 'fast' is unknown", "off, normal, full"]),
        ("store:\n  synchronous: ful\n", 2, ["did you mean full?"]),
        ("store:\n  synchronous: true\n", 2, ["store.synchronous is true or false", "off, normal, full"]),
        ("stores: {}\n", 1, ["stores is not a field here", "store, version", "did you mean store?"]),
        ("store:\n  sync: full\n", 2, ["store.sync is not a field here", "keep, synchronous"]),
        ("store:\n  days: 3\n", 2, ["store.days is not a field here", "below keep"]),
        ("keep: {}\n", 1, ["below store"]),
        ("store:\n  keep:\n    day: 3\n", 3, ["store.keep.day is not", "bytes, days, processes", "days?"]),
        ("store:\n  keep:\n    size: 3\n", 3, ["write bytes"]),
        ("store:\n  keep:\n    processes: -1\n", 3, ["store.keep.processes is -1", "from 0 to"]),
        ("store:\n  keep:\n    processes: 1.5\n", 3, ["store.keep.processes is a number", "whole number"]),
        ("store:\n  keep:\n    bytes: 1GB\n", 3, ["store.keep.bytes is text", "whole number"]),
        ("store:\n  keep:\n    days: .inf\n", 3, ["store.keep.days is .inf", "a number from 0"]),
        ("store:\n  keep:\n    days: .nan\n", 3, ["store.keep.days is .nan"]),
        ("store:\n  keep: 5\n", 2, ["store.keep is a whole number"]),
        ("store: full\n", 1, ["store is text"]),
        ("store:\n", 1, ["store is empty"]),
        ("- store\n", 1, ["the file is a list"]),
        ("version: 2\n", 1, ["version is 2", "version 1"]),
        ("store: {\n", 2, ["not YAML"]),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, line: int, words: list[str]) -> None:
    """A refusal names the file, the line, the field and what would be right."""
    with pytest.raises(ManifestError) as caught:
        parse_config(text, FILE)
    message = str(caught.value)
    assert message.startswith(f"{FILE}:{line}: ")
    assert [word for word in words if word not in message] == [], message


def test_the_file_is_the_users_own(tmp_path: pathlib.Path) -> None:
    """It is read from the user's folder for configuration; without one all is as usual."""
    assert store_settings(env_of(tmp_path / "nothing")) == StoreSettings()
    write(tmp_path, EXAMPLE)
    assert store_settings(env_of(tmp_path)).retention.processes == 7


def test_a_wrong_file_is_an_error_and_not_the_usual(tmp_path: pathlib.Path) -> None:
    """Who wrote a limit wrong is told, since the usual one may remove what was to stay."""
    path = write(tmp_path, "store:\n  keeep: {}\n")
    with pytest.raises(SyscallError) as caught:
        store_settings(env_of(tmp_path))
    assert caught.value.code is Code.INVALID
    assert caught.value.reason.startswith(f"{path}:2: store.keeep")


def test_what_cannot_be_read_is_an_error(tmp_path: pathlib.Path) -> None:
    """Bytes that are no text, a folder and a link that leads out are refused with the path."""
    path = write(tmp_path / "bytes", b"store: \xff\n")
    folder = tmp_path / "folder" / "rnix" / "config.yaml"
    folder.mkdir(parents=True)
    link = tmp_path / "link" / "rnix" / "config.yaml"
    link.parent.mkdir(parents=True)
    link.symlink_to("/etc/hostname")
    for one in (path, folder, link):
        with pytest.raises(SyscallError) as caught:
            store_settings(env_of(one.parent.parent))
        assert caught.value.code is Code.INVALID
        assert str(one) in caught.value.reason


# --- where the state lies ---


def test_the_state_lies_below_the_users_data() -> None:
    """The name has the mountpoint's last part, and eight digits of the hash of all of it."""
    mark = hashlib.sha256(b"/home/me/rnix").hexdigest()[:8]
    for env, base in (
        ({"XDG_DATA_HOME": "/data", "HOME": "/home/me"}, "/data"),
        ({"HOME": "/home/me"}, "/home/me/.local/share"),
        ({"XDG_DATA_HOME": "relative", "HOME": "/home/me"}, "/home/me/.local/share"),
        ({"XDG_DATA_HOME": "", "HOME": "/home/me"}, "/home/me/.local/share"),
    ):
        assert state_folder(env, "/home/me/rnix") == pathlib.Path(f"{base}/rnix/rnix-{mark}")


def test_no_two_mounts_share_a_folder() -> None:
    """Mountpoints of the same last part have folders of their own."""
    env = {"XDG_DATA_HOME": "/data"}
    points = ["/a/rnix", "/b/rnix", "/rnix", "/a/b/rnix"]
    assert len({state_folder(env, point) for point in points}) == len(points)


@pytest.mark.parametrize("name", ["n" * 255, "ä" * 127, "caf\udce9"])
def test_any_mountpoint_has_a_folder(tmp_path: pathlib.Path, name: str) -> None:
    """A long name is cut so that the folder can be made, and one that is no UTF-8 is kept."""
    folder = state_folder({"XDG_DATA_HOME": str(tmp_path)}, f"/mnt/{name}")
    folder.mkdir(parents=True)
    assert os.fsencode(folder.name).startswith(os.fsencode(name)[:200])
