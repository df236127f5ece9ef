"""The tutorials run as they stand, with the programs that they promise to be content with."""

import pathlib
import shutil

import pytest

from tests.daemon import Done, quoted, running

TUTORIALS = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "tutorials"
PROGRAMS = ("echo", "cat", "ls", "mkdir", "rmdir")

PRINTED = """\
== A supervisor with two agents
intent of the supervisor: supervise pair: writer, reader
its children: 2
== One of them is killed, and started again
the old one: killed by SIGKILL
the new one: listen
== One is paused, and goes on
paused: true
paused: false
== Messages
from a person, 0: first
and then: second
== A pipe between the two
open files: 3 and 3
the writer has an end of it
== A pipe for people
through the pipe
== What an agent is told, it answers
reader: code 0, You said: well done
== A group, and its end
members: 2
ended: killed by SIGKILL
ended: killed by SIGKILL
members: 
== What is left
alive: 
the folders are gone
"""  # noqa: W291


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
        assert daemon.out("ls $M/proc/groups $M/dev/pipes; cat $M/proc/processes").split() == [
            f"{daemon.mount}/dev/pipes:",
            f"{daemon.mount}/proc/groups:",
        ]
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
    wanted = script.partition("\nsay 'A supervisor")[2].splitlines()[1:]
    commands = [line for line in wanted if line.strip() and not line.startswith("say ")]
    assert [line for line in shown if line.strip()] == commands
