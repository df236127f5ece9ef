"""The tutorial on MCP says what is so: its commands run, and print what it shows."""

import pathlib
import re
import shutil

import pytest

from tests.daemon import Daemon, Done, quoted, running
from tests.mcpservers import packages

TUTORIAL = pathlib.Path(__file__).resolve().parents[2] / "docs" / "tutorials" / "mcp.md"
STEPS = re.findall(r"```sh\n(.*?)```\n\n```text\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)
PROGRAMS = ("cat", "jq", "ls", "sleep")
NEXT = "== the next step =="


def run(daemon: Daemon, place: pathlib.Path) -> Done:
    """Run the commands with a PATH that holds the promised programs only."""
    path = place / "bin"
    path.mkdir()
    for program in PROGRAMS:
        found = shutil.which(program)
        assert found, program
        (path / program).symlink_to(found)
    repository = packages.repository(place / "poem")
    commands = f"\necho {quoted(NEXT)}\n".join(step for step, _ in STEPS)
    script = place / "tutorial.sh"
    script.write_text(f'set -euo pipefail\ncd "$M"\n{commands}')
    variables = f"REPO={quoted(repository)} NOTES={quoted(place / 'notes.jsonl')} PATH={quoted(path)}"
    return daemon.bash(f"{variables} exec {shutil.which('bash')} {quoted(script)}")


@pytest.mark.timeout(200)
def test_the_commands_of_the_tutorial(tmp_path: pathlib.Path) -> None:
    """Each step prints what the page shows, complains about nothing, and at the end no server is left."""
    found = f"{packages.folder()}:{pathlib.Path(shutil.which('git') or '').parent}:/usr/bin:/bin"
    with running(tmp_path, env={"PATH": found}) as daemon:
        done = run(daemon, tmp_path)
        assert (done.status, done.err) == (0, ""), done
        assert done.out.split(f"{NEXT}\n") == [output for _, output in STEPS]


def test_every_step_shows_what_it_prints() -> None:
    """No command of the page is left out of the test."""
    page = TUTORIAL.read_text()
    assert len(STEPS) == page.count("```sh\n") == page.count("```text\n") > 5
