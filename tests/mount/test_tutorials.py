"""The tutorials run as they stand, with the programs that they promise to be content with."""

import pathlib
import shutil

import pytest

from tests.daemon import Done, quoted, running, until

TUTORIALS = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "tutorials"
PROGRAMS = ("echo", "cat", "ls", "mkdir", "rmdir")

PRINTED = """\
== A pipe
read
write
== A supervised pair of agents
supervise pair: writer, reader
children: 2
== One of them is killed, and started again
the old one: killed by SIGKILL
the new one: agent default
== One is paused, and goes on
paused: true
paused: false
== Messages
from 0: first
from 0: second
== A message to the one is a result of the other
the reader: code 0
it read: through the pipe
== A pipe from process to process
the writer has an end of it
== A group, and its end
members: 2
code 1: killed by SIGKILL
code 1: killed by SIGKILL
members: 0
== What is left
alive: 0
the folders are gone
"""


def run(folder: pathlib.Path, name: str) -> Done:
    """Run a tutorial on a mount of its own, with a PATH that holds the five programs only."""
    path = folder / "bin"
    path.mkdir()
    for program in PROGRAMS:
        found = shutil.which(program)
        assert found, program
        (path / program).symlink_to(found)
    bash = shutil.which("bash")
    with running(folder) as daemon:
        script = f'PATH={quoted(path)} exec {bash} {quoted(TUTORIALS / name)} "$M"'
        done = daemon.bash(script)
        assert daemon.out("ls $M/proc/groups; cat $M/proc/processes") == ""
        # Its last writer was a program of an agent, which may outlive the agent for a moment.
        until(lambda: daemon.out("ls $M/dev/pipes") == "", "the pipe is gone")
        assert daemon.stop() == 0
    return done


@pytest.mark.timeout(180)
def test_the_tutorial_of_processes(tmp_path):
    """A supervised pair is started, restarted, paused, written to, joined by a pipe and killed as a group by
    echo, cat, ls, mkdir and rmdir; it says what happens, complains about nothing and leaves nothing."""
    done = run(tmp_path, "processes.sh")
    assert (done.status, done.err) == (0, "")
    assert done.out == PRINTED


def test_the_page_shows_the_whole_script():
    """Every command of the script is in the page that explains it, in the same order."""
    page = (TUTORIALS / "processes.md").read_text()
    script = (TUTORIALS / "processes.sh").read_text()
    shown = [line[4:] for line in page.splitlines() if line.startswith("    ")]
    wanted = script.partition("\nsay 'A pipe'\n")[2].splitlines()
    commands = [line for line in wanted if line.strip() and not line.startswith("say ")]
    start, *body = [line for line in shown if line.strip()]
    assert start == "bash docs/tutorials/processes.sh ~/rnix"
    assert body == commands
