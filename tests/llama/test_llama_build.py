"""The script that builds llama-server: it takes what is there, says what is missing, leaves nothing over."""

import os
import pathlib
import re
import subprocess

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / ".ci" / "llama-server.sh"


class Machine:
    """A machine with a cache and a Python of its own.

    Args:
        folder: where both lie.
        pip: what its `pip download` does, in bash.
    """

    def __init__(self, folder: pathlib.Path, pip: str = "echo no way to the network >&2; exit 1") -> None:
        self.cache = folder / "cache"
        self.prefix = folder / "prefix"
        (self.prefix / "bin").mkdir(parents=True)
        self.python = self.prefix / "bin" / "python"
        self.python.write_text(
            f"#!/bin/bash\nif [ $2 = pip ]; then {pip}; fi\necho '{self.prefix}/bin/llama-server'\n"
        )
        self.python.chmod(0o755)

    def run(self, **env: str) -> subprocess.CompletedProcess[str]:
        """Run the script."""
        return subprocess.run(
            ["bash", SCRIPT, self.python],
            env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "XDG_CACHE_HOME": str(self.cache)} | env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def kept(self) -> list[str]:
        """What lies in the cache."""
        return sorted(path.name for path in (self.cache / "rnix-tests").iterdir())

    def build(self) -> pathlib.Path:
        """Put a server where the script would, as if it had been built; returns its path."""
        machine = subprocess.run(["uname", "-m"], capture_output=True, check=True, text=True).stdout.encode()
        digest = subprocess.run(
            ["sha256sum"], input=machine + SCRIPT.read_bytes(), capture_output=True, check=True
        ).stdout.decode()[:12]
        version = re.search(r"^version=(.*)$", SCRIPT.read_text(), re.MULTILINE)
        assert version is not None
        server = self.cache / "rnix-tests" / f"llama-server-{version[1]}-{digest}" / "llama-server"
        server.parent.mkdir(parents=True)
        server.write_text("#!/bin/sh\nexit 0\n")
        server.chmod(0o755)
        return server


def test_what_was_built_is_taken(tmp_path: pathlib.Path) -> None:
    """Where the cache has the server, it is linked beside Python, and nothing is downloaded."""
    machine = Machine(tmp_path)
    server = machine.build()
    for _ in range(2):
        done = machine.run()
        assert (done.returncode, done.stderr) == (0, "")
        assert re.fullmatch(r"rnixfs: llama-server: \S+ is there\n", done.stdout)
        assert (machine.prefix / "bin" / "llama-server").readlink() == server


def test_a_server_that_does_not_run_is_not_taken(tmp_path: pathlib.Path) -> None:
    """One of another machine, or half of one, is built anew."""
    machine = Machine(tmp_path)
    machine.build().write_text("#!/bin/sh\nexit 127\n")
    done = machine.run()
    assert done.returncode == 1
    assert "building" in done.stdout


def test_no_network(tmp_path: pathlib.Path) -> None:
    """What cannot be downloaded stops the set-up with a sentence, and leaves nothing half done."""
    machine = Machine(tmp_path)
    done = machine.run()
    assert done.returncode == 1
    assert "no way to the network" in done.stderr
    assert "pip could not download the source package of llama-cpp-python" in done.stderr.splitlines()[-1]
    assert machine.kept() == ["lock"]
    assert not (machine.prefix / "bin" / "llama-server").exists()


def test_a_package_that_is_none(tmp_path: pathlib.Path) -> None:
    """A step that fails is named, with its own words above."""
    machine = Machine(tmp_path, "exit 0")
    done = machine.run()
    assert done.returncode == 1
    assert "unpacking failed" in done.stderr.splitlines()[-1]
    assert machine.kept() == ["lock"]


@pytest.mark.parametrize("tool", ["cmake", "ninja", "g++"])
def test_a_missing_tool_is_named(tmp_path: pathlib.Path, tool: str) -> None:
    """Without a compiler the set-up says which tool it wants, and how to get it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    there = {
        "bash",
        "cat",
        "cut",
        "dirname",
        "env",
        "flock",
        "mkdir",
        "readlink",
        "sha256sum",
        "timeout",
        "uname",
    }
    for command in (there | {"cmake", "ninja", "g++", "strip", "tar"}) - {tool}:
        found = subprocess.run(
            ["bash", "-c", f"type -P {command}"], capture_output=True, text=True, check=True
        )
        (folder / command).symlink_to(found.stdout.strip())
    done = Machine(tmp_path).run(PATH=str(folder))
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"rnixfs: llama-server cannot be built without {tool}; run 'make dev', which installs it."
    ]


def test_a_missing_python_is_named(tmp_path: pathlib.Path) -> None:
    """Run before the set-up, the script says what comes first."""
    machine = Machine(tmp_path)
    machine.python.unlink()
    done = machine.run()
    assert done.returncode == 1
    assert f"there is no {machine.python}" in done.stderr
    assert "run 'make dev'" in done.stderr
