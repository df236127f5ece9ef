"""`python -m rnixfs.replay` and `casefile` on the log of a real system, which may be running."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest
import trio

from rnixfs import casefile, replay
from rnixfs.bootstrap import Settings, System
from rnixfs.errors import Code, SyscallError
from rnixfs.proc.request import SpawnRequest
from rnixfs.state.reading import ReadOnlyLog
from rnixfs.state.sqlite import SqliteStore
from rnixfs.state.store import Retention
from rnixfs.types import Caller

ROOT = pathlib.Path(__file__).resolve().parents[2]
ME = Caller(1000, 1000)
SECONDS = 60


def lived(top: pathlib.Path, log: SqliteStore, intent: str = "say hello", **request: Any) -> int:
    """The pid of a process of the scripted model, which has come to its end."""

    async def live() -> int:
        (top / "work").mkdir(exist_ok=True)
        (top / "work" / "a.py").write_text("x = 1\n")
        system = System(Settings((str(top / "work"),)), log=log)
        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:
                await nursery.start(system.kernel.run)
                asked = SpawnRequest(intent=intent, provider="script", **request)
                process = system.kernel.spawn(asked, ME)
                await process.done.wait()
                nursery.cancel_scope.cancel()
        return process.pid

    return trio.run(live)


def analysed(top: pathlib.Path, log: SqliteStore) -> int:
    """A process that used several tools."""
    return lived(top, log, "analyse this project", agent="code-analyst")


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


@pytest.fixture
def log(state):
    with contextlib.closing(SqliteStore(state, synchronous="off")) as found:
        yield found


def test_a_run_of_real_tools_replays_while_the_log_is_in_use(tmp_path, state, log, capsys):
    """Nobody waits for the lock, and one line says what is equal."""
    pid = analysed(tmp_path, log)
    entry = log.entry(pid)
    assert entry is not None
    for words in ([str(pid)], [entry.uuid], ["--recorded", str(pid)]):
        assert replay.main(["--log", str(state / "log.db"), *words]) == 0
        line = capsys.readouterr().out
        assert line.startswith(f"replayed {entry.uuid}: ")
        assert line.count("\n") == 1
        assert "steps, equal: messages.json " in line
    log.append_event("checkpoint", pid, {})


def test_the_outcome_as_json(tmp_path, state, log, capsys):
    """For programs: the same in fields."""
    pid = lived(tmp_path, log)
    assert replay.main(["--log", str(state), "--json", str(pid)]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert (outcome["pid"], outcome["steps"], outcome["equal"], outcome["difference"]) == (pid, 1, True, None)
    assert sorted(outcome["files"]) == ["messages.json", "result", "steps.jsonl"]
    assert outcome["files"]["result"] == len("hello\n")


def test_a_project_whose_agent_changed(tmp_path, state, log, capsys):
    """Status 1, and step, field and both lines."""
    folder = tmp_path / "work" / ".rnix" / "agents" / "mine"
    folder.mkdir(parents=True)
    (folder / "agent.yaml").write_text("name: mine\ndescription: mine\n")
    (folder / "instructions.md").write_text("One.\nTwo.\n")
    pid = lived(tmp_path, log, agent="mine")
    assert replay.main(["--log", str(state), str(pid)]) == 0
    (folder / "instructions.md").write_text("One.\nThree.\n")
    capsys.readouterr()
    assert replay.main(["--log", str(state), str(pid)]) == 1
    first, recorded, now = capsys.readouterr().out.splitlines()
    assert first.endswith(" diverges at step 1: system_prompt")
    assert (recorded, now) == ("  recorded (line 2): Two.", "  now (line 2): Three.")
    assert replay.main(["--log", str(state), "--recorded", str(pid)]) == 0


def test_what_cannot_be_replayed(tmp_path, state, log, capsys):
    """Status 2, and a sentence; nothing on the standard output."""
    spec = {"name": "s", "children": [{"name": "c", "intent": "say hi", "provider": "script"}]}
    log.append_event("spawn", 7, {"uuid": "u7", "supervisor": spec})
    log.append_event("spawn", 8, {"uuid": "u8", "ppid": 0})
    log.append_event("request", 8, {"step": 1})
    cases = {"99": "no process 99 in the log", "nobody": "no process nobody", "u7": "is a supervisor"}
    cases["8"] = "process 8 has events that this release cannot read"
    for who, words in cases.items():
        for main, command in ((replay.main, []), (casefile.main, ["record"])):
            assert main([*command, "--log", str(state), who]) == 2
            out, err = capsys.readouterr()
            assert out == ""
            assert words in err
    assert replay.main(["--log", str(tmp_path / "none"), "1"]) == 2
    assert "there is no log" in capsys.readouterr().err


# --- nothing outside is touched ---

WATCHED = """
import os, sys
from typing import Any
seen = []

def watch(event, args):
    if event == "socket.__new__" and args[1] != 1:
        seen.append((event, args))
    if event in ("socket.connect", "socket.bind", "socket.sendto", "subprocess.Popen", "os.system", "os.exec",
                 "os.posix_spawn", "os.fork", "os.forkpty", "os.mkdir", "os.rename", "os.remove", "os.rmdir",
                 "os.link", "os.symlink", "os.truncate", "os.chmod"):
        seen.append((event, args))
    if event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and args[0] != "/dev/null":
        seen.append((event, args))

from rnixfs import casefile, replay
module, *arguments = sys.argv[1:]
sys.addaudithook(watch)
status = {"replay": replay, "casefile": casefile}[module].main(arguments)
print(repr(seen), file=sys.stderr)
sys.exit(status)
"""


def watched(*words: str) -> tuple[int, str, str]:
    """Run one of the programs, and tell what it opened to the outside."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", WATCHED, *words],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=env,
        check=False,
    )
    return ended.returncode, ended.stdout, ended.stderr


def test_a_replay_opens_no_socket_starts_no_program_and_writes_no_file(tmp_path, state, log):
    """Of a run that did start programs; and the folder of the log is as it was, to the last file."""
    pid = analysed(tmp_path, log)
    log.close()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert sorted(path.name for path in state.iterdir()) == ["lock", "log.db"]
    for more in ([], ["--recorded"]):
        status, out, err = watched("replay", "--log", str(state), *more, str(pid))
        assert (status, err) == (0, "[]\n"), out
    status, case, err = watched("casefile", "record", "--log", str(state), str(pid))
    assert (status, err) == (0, "[]\n")
    (tmp_path / "case.yaml").write_text(case)
    status, out, err = watched("casefile", "test", str(tmp_path / "case.yaml"))
    assert (status, err) == (0, "[]\n"), out
    (tmp_path / "case.yaml").unlink()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


async def test_a_replay_in_a_running_program_needs_no_socket(tmp_path, state, monkeypatch):
    """As above, where the sockets are taken away altogether."""
    import socket

    def live() -> int:
        with contextlib.closing(SqliteStore(state, synchronous="off")) as log:
            return analysed(tmp_path, log)

    pid = await trio.to_thread.run_sync(live)

    def refuse(*_arguments: object, **_named: object) -> None:
        raise AssertionError("somebody reaches out")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(os, "posix_spawn", refuse)
    with contextlib.closing(ReadOnlyLog(state)) as past:
        assert (await replay.replay(past, pid)).equal


# --- the log, for reading alone ---


def test_a_log_in_use_is_read_as_it_is_at_that_moment(state, log):
    """What is written later does not show, and nobody is kept from writing."""
    log.append_event("spawn", 1, {"uuid": "u1", "text": "x" * 500})
    with contextlib.closing(ReadOnlyLog(state)) as past:
        log.append_event("exit", 1, {"code": 0})
        log.append_journal(1, "trace", b"line\n")
        log.append_event("reap", 1, {})
        assert [record.event for record in past.load(1)] == ["spawn"]
        assert past.unfinished() == [1]
        assert (past.uuid, past.last_pid(), past.finished(), past.keyed("k")) == (log.uuid, 1, [], [])
    with contextlib.closing(ReadOnlyLog(state / "log.db")) as past:
        assert list(past.load(1)) == list(log.load(1))
        assert past.read_journal(1, "trace") == b"line\n"
        assert past.entry("u1") == past.entry(1) == log.entry(1)


def test_a_log_that_nobody_uses_is_left_as_it_is(state, log):
    """No files appear beside it, and it may be read where nothing can be written."""
    log.append_event("spawn", 1, {"uuid": "u1"})
    log.close()
    with contextlib.closing(ReadOnlyLog(state)) as past:
        assert [record.event for record in past.load(1)] == ["spawn"]
    assert sorted(path.name for path in state.iterdir()) == ["lock", "log.db"]


def test_what_a_killed_daemon_left_is_read_too(state, log):
    """Its last events are in another file than the first."""
    log.append_event("spawn", 1, {"uuid": "u1"})
    copy = state.with_name("killed")
    copy.mkdir()
    for name in ("log.db", "log.db-wal"):
        (copy / name).write_bytes((state / name).read_bytes())
    with contextlib.closing(ReadOnlyLog(copy)) as past:
        assert [record.event for record in past.load(1)] == ["spawn"]


def test_nothing_can_be_written_there(state, log):
    """Each way to write is refused, and waits for nothing."""
    with contextlib.closing(ReadOnlyLog(state)) as past:
        for attempt in (lambda: past.append_event("x", 1, {}), past.batch, lambda: past.collect(Retention())):
            with pytest.raises(SyscallError) as caught:
                attempt()
            assert caught.value.code is Code.READ_ONLY
        past.append_journal(1, "trace", b"lost")
        past.settle()
        past.sync()
        assert past.read_journal(1, "trace") == b""


def test_files_that_are_no_log_of_this_release(tmp_path, state, log):
    """Another program's, an empty one, one that is no database, and one of another version."""
    import sqlite3

    def refusal(path: pathlib.Path) -> str:
        with pytest.raises(SyscallError) as caught:
            ReadOnlyLog(path)
        return caught.value.reason

    empty, text, other = tmp_path / "empty.db", tmp_path / "text.db", tmp_path / "other.db"
    empty.write_bytes(b"")
    text.write_bytes(b"words " * 1000)
    with contextlib.closing(sqlite3.connect(other)) as db:
        db.execute("CREATE TABLE t (x)")
    assert "is empty" in refusal(empty)
    assert "is damaged" in refusal(text)
    assert "belongs to another program" in refusal(other)
    log.close()
    for version, words in ((1, "start the daemon on it once"), (999, "written by a newer rnixfs")):
        with contextlib.closing(sqlite3.connect(state / "log.db")) as db:
            db.execute(f"PRAGMA user_version = {version}")
        assert words in refusal(state)


# --- cases on the command line ---


@pytest.fixture
def case(tmp_path, state, log, capsys, monkeypatch):
    """The file of a case, recorded from real tools; the current folder is that of the process."""
    pid = analysed(tmp_path, log)
    assert casefile.main(["record", "--log", str(state), str(pid)]) == 0
    path = tmp_path / "case.yaml"
    path.write_text(capsys.readouterr().out)
    monkeypatch.chdir(tmp_path / "work")
    return path


def test_a_case_passes_where_nothing_changed(case, capsys):
    """With the tools of the case, and with real ones; a line for each case, and one for all."""
    for more in ([], ["--live-tools"]):
        assert casefile.main(["test", *more, "--", str(case), str(case)]) == 0
        first, second, last = capsys.readouterr().out.splitlines()
        assert first == second
        assert first.startswith("ok code-analyst-")
        assert last == "2 passed, 0 failed"


def test_a_case_fails_where_the_agent_changed(case, tmp_path, capsys):
    """Status 1; the deviations are named, and the other cases are still run."""
    other = tmp_path / "other.yaml"
    text = case.read_text()
    other.write_text(
        text.replace("    code: 0\n", "    code: 3\n").replace("    reason: done\n", "    reason: x\n")
    )
    assert casefile.main(["test", str(other), str(case)]) == 1
    first, second, third, last = capsys.readouterr().out.splitlines()
    assert first.startswith("FAILED code-analyst-")
    assert first.endswith('exit code: expected "3", got "0"')
    assert second.startswith("  step ")
    assert second.endswith('exit reason: expected "x", got "done"')
    assert third.startswith("ok ")
    assert last == "1 passed, 1 failed"


REAL = """\
name: real
rules:
  - when: {step: 0}
    calls:
      - {tool: read, arguments: {path: data.txt}}
      - {tool: shell, arguments: {command: echo done > made.txt}}
  - when: {step: 1}
    say: both done
case:
  version: 1
  request: {intent: read and write}
  steps:
    - step: 1
      results: [{tool: read, text: some lines}, {tool: shell, text: nothing}]
  expect:
    code: 0
    reason: done
    result: both done
    tools:
      - {step: 1, tool: read, arguments: {path: data.txt}}
      - {step: 1, tool: shell, arguments: {command: echo done > made.txt}}
"""


def test_live_tools_work_in_the_current_folder(tmp_path, monkeypatch, capsys):
    """There they find files and leave files; answered from the case they do neither."""
    path = tmp_path / "real.yaml"
    path.write_text(REAL)
    monkeypatch.chdir(tmp_path)
    assert casefile.main(["test", str(path)]) == 0
    assert not (tmp_path / "made.txt").exists()
    assert casefile.main(["test", "--live-tools", str(path)]) == 1
    assert 'step 1: tools[0].error: expected "success", got "NOT_FOUND' in capsys.readouterr().out
    assert (tmp_path / "made.txt").read_text() == "done\n"
    (tmp_path / "data.txt").write_text("lines\n")
    assert casefile.main(["test", "--live-tools", str(path)]) == 0


def test_bad_files_are_named_with_their_line(case, tmp_path, capsys):
    """And what would be right; the rest is still run."""
    bad, binary, huge = tmp_path / "bad.yaml", tmp_path / "binary.yaml", tmp_path / "huge.yaml"
    bad.write_text(case.read_text().replace("  version: 1\n", "  version: 9\n"))
    binary.write_bytes(b"name: x\n\xff\n")
    huge.write_bytes(b"#" * ((4 << 20) + 1))
    files = [bad, binary, huge, tmp_path / "none.yaml", case]
    assert casefile.main(["test", *map(str, files)]) == 1
    lines = capsys.readouterr().out.splitlines()
    number = 1 + bad.read_text().splitlines().index("  version: 9")
    assert lines[0].startswith(f"FAILED {bad}: {bad}:{number}: case.version is missing or unknown; ")
    assert lines[1] == f"FAILED {binary}: {binary}:2: is not UTF-8; save the file as UTF-8"
    assert "too long" in lines[2]
    assert "cannot be read: No such file" in lines[3]
    assert lines[4].startswith("ok ")
    assert lines[5] == "1 passed, 4 failed"
