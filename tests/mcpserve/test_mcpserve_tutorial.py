"""The tutorial on the tree as an MCP server says what is so: its programs run, and print what it shows."""

import os
import pathlib
import re
import sys

import pytest

from tests.mcpserve.servelab import Lab

TUTORIAL = pathlib.Path(__file__).resolve().parents[2] / "docs" / "tutorials" / "mcp-serve.md"
PROGRAMS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)


def test_the_tutorial_has_programs() -> None:
    """Every program of the tutorial stands before what it prints."""
    assert len(PROGRAMS) == TUTORIAL.read_text().count("```python") == 4


@pytest.fixture(scope="module")
def path(lab: Lab) -> str:
    """A search path on which `rnix` is the command for the mount: the SDK passes few variables on."""
    command = lab.daemon.folder / "bin" / "rnix"
    command.parent.mkdir()
    words = f'exec "{sys.executable}" -P -m rnixfs_cli "$@"'
    settings = {"RNIX_MOUNT": str(lab.daemon.mount), "PYTHONPATH": lab.daemon.env["PYTHONPATH"]}
    exports = "\n".join(f'export {name}="{value}"' for name, value in settings.items())
    command.write_text(f"#!/bin/sh\n{exports}\n{words}\n")
    command.chmod(0o755)
    return os.pathsep.join([str(command.parent), lab.daemon.env["PATH"]])


@pytest.mark.parametrize(("program", "output"), PROGRAMS)
def test_programs_of_the_tutorial(lab: Lab, path: str, program: str, output: str) -> None:
    """A program of the tutorial prints what the tutorial shows."""
    running = lab.daemon.program([sys.executable, "-P", "-c", program], {"PATH": path})
    done = running.end()
    lab.daemon.forget(running)
    assert (done.status, done.err, done.out) == (0, "", output)
