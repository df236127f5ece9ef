"""Many real servers, and many calls at once."""

import json
import os
import pathlib

import pytest

from tests.daemon import SECONDS, until
from tests.mcpservers import packages
from tests.mcpservers.packages import HttpServer
from tests.mcpservers.serverlab import Lab, gone, marked

CALLS = 100

# Calls a tool from as many threads as asked, each through an open of its own; prints the answers.
CROWD = """
import json, os, sys, threading
path, count = sys.argv[1], int(sys.argv[2])
threading.stack_size(256 << 10)
answers = [None] * count
def one(n):
    device = os.open(path, os.O_RDWR)
    os.write(device, json.dumps({"a": n, "b": 1000}).encode())
    answer = b""
    while part := os.read(device, 1 << 16):
        answer += part
    os.close(device)
    answers[n] = json.loads(answer)["content"][0]["text"]
threads = [threading.Thread(target=one, args=(n,)) for n in range(count)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(answers))
"""


@pytest.mark.timeout(300)
def test_ten_servers_at_once(lab: Lab, tmp_path: pathlib.Path, http: HttpServer) -> None:
    """Ten servers of all kinds connect side by side, answer side by side, and are gone side by side."""
    place = packages.repository(tmp_path / "repo")
    wanted = {
        **{f"everything{n}": packages.everything() for n in range(2)},
        **{f"memory{n}": packages.memory(tmp_path / f"graph{n}.json") for n in range(2)},
        "files": packages.filesystem(place),
        "git": packages.git(),
        "time": packages.clock(),
        **{f"far{n}": {"url": http.url} for n in range(3)},
    }
    assert len(wanted) == 10
    marks = [lab.begin(name, config) for name, config in wanted.items()]
    for name in wanted:
        lab.ready(name, 3 * SECONDS)
    assert lab.names(".") == sorted(["ctl", *wanted])
    calls = {
        "everything0/tools/echo": {"message": "a"},
        "everything1/tools/get-sum": {"a": 1, "b": 2},
        "memory0/tools/read_graph": {},
        "memory1/tools/read_graph": {},
        "files/tools/list_directory": {"path": str(place)},
        "git/tools/git_status": {"repo_path": str(place)},
        "time/tools/get_current_time": {"timezone": "UTC"},
        **{f"far{n}/tools/echo": {"message": str(n)} for n in range(3)},
    }
    asking = [lab.asking(path, arguments) for path, arguments in calls.items()]
    for program in asking:
        found = json.loads(program.end().out)
        assert found["content"], found
    for name in wanted:
        lab.unmount(name)
    for mark in marks:
        gone(mark)
    assert lab.names(".") == ["ctl"]


def test_a_hundred_calls_at_once(shared: Lab, everything: str) -> None:
    """Each of a hundred programs that call the same tool gets its own answer."""
    path = str(shared.daemon.mount / "mnt" / "mcp" / everything / "tools" / "get-sum")
    program = shared.daemon.python(CROWD, path, str(CALLS))
    done = program.end()
    shared.daemon.forget(program)
    assert (done.status, done.err) == (0, "")
    assert json.loads(done.out) == [f"The sum of {n} and 1000 is {n + 1000}." for n in range(CALLS)]


def test_twenty_programs_of_the_shell(shared: Lab, everything: str) -> None:
    """Separate processes, each with a login session of its own, never see each other's answers."""
    tool = f"{everything}/tools/echo"
    asking = [shared.asking(tool, {"message": f"<{n}>"}) for n in range(20)]
    told = [json.loads(program.end().out)["content"][0]["text"] for program in asking]
    for program in asking:
        shared.daemon.forget(program)
    assert told == [f"Echo: <{n}>" for n in range(20)]


def test_many_calls_leave_no_descriptors(shared: Lab, everything: str) -> None:
    """What a call needs in the daemon and in the server is given back."""
    daemon = shared.daemon.process.pid
    path = str(shared.daemon.mount / "mnt" / "mcp" / everything / "tools" / "get-sum")

    def crowd() -> None:
        program = shared.daemon.python(CROWD, path, str(CALLS))
        assert program.end().status == 0
        shared.daemon.forget(program)

    crowd()
    before = len(os.listdir(f"/proc/{daemon}/fd"))
    for _ in range(3):
        crowd()
    # What a pool of connections keeps open for the next call is no more than the first crowd left.
    until(lambda: len(os.listdir(f"/proc/{daemon}/fd")) <= before + 5, "descriptors are closed")


def test_the_servers_of_two_mounts_are_two(lab: Lab) -> None:
    """A program that is mounted twice runs twice."""
    one, two = lab.mount("one", packages.everything()), lab.mount("two", packages.everything())
    assert not set(marked(one)) & set(marked(two))
    lab.unmount("one")
    gone(one)
    assert lab.say("two/tools/echo", {"message": "still"}) == "Echo: still"
