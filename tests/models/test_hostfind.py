"""Where programs are found that a user's installers put on the machine."""

import pathlib

import pytest

from rnixfs.hostfind import find_command


def program(path: pathlib.Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    "place",
    [
        ".local/bin",
        ".claude/local",
        ".npm-global/bin",
        ".bun/bin",
        ".volta/bin",
        ".local/share/pnpm",
        ".nvm/versions/node/v20.1.0/bin",
    ],
)
def test_places_of_installers(tmp_path: pathlib.Path, place: str) -> None:
    """The program is found where its installers put it, though no shell set PATH."""
    path = program(tmp_path / place / "acme-claude")
    assert find_command(["acme-claude"], {"PATH": "/nonexistent"}, str(tmp_path)) == path


def test_a_relative_folder_in_path_is_nobody_s(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would mean a folder of the daemon, where anybody may have put a program."""
    program(tmp_path / "acme")
    monkeypatch.chdir(tmp_path)
    assert find_command(["acme"], {"PATH": ".::"}, "") == ""


def test_path_comes_first_and_the_newest_node(tmp_path: pathlib.Path) -> None:
    """PATH decides; among nvm's folders the newest version does, by number and not by letters."""
    program(tmp_path / ".nvm/versions/node/v9.9.9/bin/acme")
    newest = program(tmp_path / ".nvm/versions/node/v20.1.0/bin/acme")
    assert find_command(["acme"], {}, str(tmp_path)) == newest
    first = program(tmp_path / "bin/acme")
    assert find_command(["acme"], {"PATH": f".:{tmp_path}/bin"}, str(tmp_path)) == first


def test_paths_as_commands(tmp_path: pathlib.Path) -> None:
    """A path is taken as it is; what cannot be run, or hangs on the daemon's folder, is no program."""
    path = program(tmp_path / "x/acme")
    assert find_command([path], {}, "") == path
    assert find_command(["~/x/acme"], {}, str(tmp_path)) == path
    assert find_command(["./x/acme"], {}, str(tmp_path)) == ""
    (tmp_path / "x/acme").chmod(0o644)
    assert find_command([path], {}, "") == ""
    assert find_command(["acme"], {"PATH": f"{tmp_path}/x"}, "") == ""


@pytest.mark.parametrize(
    ("variable", "below"),
    [("BUN_INSTALL", "bin"), ("VOLTA_HOME", "bin"), ("PNPM_HOME", ""), ("NPM_CONFIG_PREFIX", "bin")],
)
def test_folders_that_variables_name(tmp_path: pathlib.Path, variable: str, below: str) -> None:
    """An installer that was told to use another folder is asked where that is."""
    path = program(tmp_path / "elsewhere" / below / "acme")
    assert find_command(["acme"], {variable: str(tmp_path / "elsewhere")}, "/nonexistent") == path
    assert find_command(["acme"], {variable: "elsewhere"}, "/nonexistent") == ""


def test_a_better_name_wins_wherever_it_lies(tmp_path: pathlib.Path) -> None:
    """Of several names the first that is anywhere counts."""
    program(tmp_path / "a/second")
    first = program(tmp_path / "b/first")
    env = {"PATH": f"{tmp_path}/a:{tmp_path}/b"}
    assert find_command(["first", "second"], env, "") == first
    assert find_command(["none", "second"], env, "") == f"{tmp_path}/a/second"
