"""The real system, wired as the daemon wires it, without a mount: the scripted model does real work."""

import os

import msgspec
import pytest
import trio

from rnixfs.bootstrap import Settings, System
from rnixfs.node import Dir
from rnixfs.proc.request import SpawnRequest
from rnixfs.proc.state import Exit
from rnixfs.types import Caller, Kind, Ready
from rnixfs.vfs import walk

ME = Caller(os.getuid(), os.getgid(), host_pid=1, session=1)


@pytest.fixture
async def system(nursery, tmp_path):
    made = System(Settings((str(tmp_path),), env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]}))
    await nursery.start(made.kernel.run)
    return made


async def read(system: System, path: str) -> bytes:
    """A file of the tree, as a person reads it."""
    file = system.kernel.open(walk(system.kernel.root, path, ME), ME, os.O_RDONLY, path)
    data = b""
    while True:
        try:
            piece = file.read(1 << 20, len(data))
        except trio.WouldBlock:
            await file.wait(Ready.READ)
            continue
        if not piece:
            file.close()
            return data
        data += piece


async def test_a_process_of_the_scripted_model_runs_to_its_end(system):
    """Spawned by writing a file, read in `/proc`."""
    spawn = system.kernel.open(walk(system.kernel.root, "/proc/spawn", ME), ME, os.O_WRONLY, "/proc/spawn")
    spawn.write(b'{"intent": "say hello there", "provider": "script"}\n', 0)
    spawn.close()
    assert await read(system, "/proc/spawn") == b"1\n"
    ended = msgspec.json.decode(await read(system, "/proc/1/wait"))
    assert (ended["code"], ended["reason"], ended["result"]) == (0, "done", "hello there")
    assert ended["tokens_used"] > 0
    assert await read(system, "/proc/1/result") == b"hello there\n"
    assert await read(system, "/proc/1/intent") == b"say hello there"
    status = msgspec.json.decode(await read(system, "/proc/1/status"))
    assert (status["state"], status["provider"], status["steps"]) == ("dead", "script", 1)
    assert "no AI" in status["model"]


async def test_the_analyst_reports_what_it_found(system, tmp_path):
    """Its numbers come from real tool calls: another folder, other numbers."""
    results = []
    for count in (2, 5):
        folder = tmp_path / f"project{count}"
        folder.mkdir()
        for number in range(count):
            (folder / f"file{number}.py").write_text("x = 1\n" * (number + 1))
        request = SpawnRequest(
            intent="analyse this project", agent="code-analyst", provider="script", cwd=str(folder)
        )
        process = system.kernel.spawn(request, ME)
        with trio.fail_after(60):
            await process.done.wait()
        assert process.exit == Exit(0, "done"), process.exit
        assert process.steps > 1
        results.append(process.result)
    assert results[0] != results[1]
    assert "2" in results[0]
    assert "5" in results[1]


async def test_reading_the_whole_tree_spends_nothing(system):
    """Every listed file of every folder, as `grep -r` reads them: no process, no model call."""
    todo = ["/"]
    files = 0
    while todo:
        path = todo.pop()
        node = walk(system.kernel.root, path, ME, follow=False)
        if isinstance(node, Dir):
            todo += [f"{path.rstrip('/')}/{name}" for name, _ in node.entries(ME)]
        elif node.stat().kind is Kind.FILE:
            files += 1
            await read(system, path)
    assert files > 20
    assert system.kernel.processes == {}
    assert [record.event for record in system.kernel.log.load(0)] == ["boot"]
