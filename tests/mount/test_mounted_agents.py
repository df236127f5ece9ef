"""Agents through the mount: made, watched, told and ended by files, and what their programs find there."""

import json
import pathlib
import re
from typing import Any

import pytest

from tests.daemon import Daemon, quoted, state_of, until
from tests.mount.agents import done, gated, live, shown, spawn, text


def test_a_life_in_files(daemon: Daemon) -> None:
    """The whole of it as one types it: spawn, pid, wait, result, log, trace, steps, history."""
    out = daemon.out(
        'echo \'{"intent": "run: echo through", "provider": "script"}\' > $M/proc/spawn\n'
        "read -r pid < $M/proc/spawn\n"
        "jq -c '[.code, .reason]' $M/proc/$pid/wait\n"
        "head -n1 $M/proc/$pid/result\n"
        "grep -c ' tool shell ' $M/proc/$pid/log\n"
        "jq -r .syscall $M/proc/$pid/trace.jsonl | sort -u | tr '\\n' ' '; echo\n"
        "jq -r .action $M/proc/$pid/steps.jsonl\n"
        "jq -r '.messages[].role' $M/proc/$pid/messages.json | tr '\\n' ' '; echo\n"
        "cmp $M/proc/$pid/status $M/proc/history/$(jq -r .uuid $M/proc/$pid/status)/status && echo same\n"
        "rmdir $M/proc/$pid; ls $M/proc | grep -cx $pid\n"
        "true\n"
    )
    assert out.splitlines() == [
        '[0,"done"]',
        "through",
        "1",
        "Close CtxWrite Open Read ReadDir Write ",
        "tool_call",
        "text",
        "user assistant tool assistant ",
        "same",
        "0",
    ]


def test_pausing_stops_the_clock(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    """While paused, elapsed_ms stands still, whatever time goes by; resumed, it goes on to its end."""
    gate = tmp_path / "gate"
    pid = gated(daemon, gate)
    daemon.out(f"echo pause > $M/proc/{pid}/ctl")
    first = shown(daemon, f"proc/{pid}/status")["elapsed_ms"]
    gate.touch()
    until(lambda: text(daemon, f"proc/{pid}/steps.jsonl"), "its step ends")
    status = shown(daemon, f"proc/{pid}/status")
    assert (status["paused"], status["elapsed_ms"], status["steps"]) == (True, first, 1)
    daemon.out(f"echo resume > $M/proc/{pid}/ctl")
    assert shown(daemon, f"proc/{pid}/wait")["code"] == 0
    assert shown(daemon, f"proc/{pid}/status")["elapsed_ms"] >= first


def test_what_is_said_reaches_it(daemon: Daemon) -> None:
    """`say` in ctl is the next message that its model gets."""
    pid = spawn(daemon, "listen")
    daemon.out(f"echo 'say that will do' > $M/proc/{pid}/ctl")
    assert "that will do" in shown(daemon, f"proc/{pid}/wait")["result"]


def test_killing_it_ends_its_programs(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    """rmdir of a process ends what it runs on the host, children of children included."""
    mark = tmp_path / "pids"
    command = f"(echo $BASHPID >> {mark}; exec sleep 500) & echo $$ >> {mark}; exec sleep 500"
    pid = spawn(daemon, f"run: {command}")
    until(lambda: mark.exists() and mark.read_text().count("\n") == 2, "both programs run")
    daemon.out(f"rmdir $M/proc/{pid}")
    pids = [int(one) for one in mark.read_text().split()]
    until(lambda: not any(map(state_of, pids)), "both programs are gone")


def test_a_code_analyst_has_no_shell(daemon: Daemon) -> None:
    """The rights of an agent are its tree: what it may not use is not listed in its root, and opening it
    there is EACCES."""
    pid = spawn(daemon, "wait 500 s", agent="code-analyst")
    root = f"$M/proc/{pid}/root"
    assert "shell" not in daemon.out(f"ls {root}/dev").split()
    for path in ("dev/shell", "dev/edit", "sys/ctl"):
        for script in (f"cat {root}/{path}", f"echo x > {root}/{path}"):
            refused = daemon.bash(script)
            assert refused.status == 1
            assert "Permission denied" in refused.err
    assert daemon.out(f"jq -r .device {root}/dev/glob") == "/dev/glob\n"
    assert daemon.out(f"readlink {root}/proc/self") == f"{pid}\n"
    daemon.out(f"rmdir $M/proc/{pid}")


def test_a_code_analyst_does_its_work(daemon: Daemon) -> None:
    """The main job on a folder: it searches with real tools and reports what is there."""
    (daemon.host / "code").mkdir(exist_ok=True)
    (daemon.host / "code" / "main.py").write_text("def main():\n    pass\n")
    (daemon.host / "code" / "README.md").write_text("# A thing\n")
    pid = done(daemon, "explore this folder", agent="code-analyst", cwd=str(daemon.host / "code"))
    end = shown(daemon, f"proc/{pid}/wait")
    assert end["code"] == 0
    assert "main.py" in end["result"]


def test_its_programs_find_themselves(daemon: Daemon) -> None:
    """A command that an agent's shell runs is that agent for the mount: `proc/self` is its pid, `$RNIX_MOUNT`
    its own root, and what it spawns is its child."""
    request = quoted(json.dumps({"intent": "say hi", "provider": "script"}))
    script = (
        f"readlink {daemon.mount}/proc/self; readlink $RNIX_MOUNT/proc/self; echo $RNIX_PID; "
        f"(exec setsid -w readlink {daemon.mount}/proc/self/); "
        f"echo {request} > $RNIX_MOUNT/proc/spawn; cat $RNIX_MOUNT/proc/spawn"
    )
    pid = done(daemon, f"run: {script}")
    lines = text(daemon, f"proc/{pid}/result").splitlines()
    assert lines[:3] == [str(pid)] * 3
    child = int(lines[-2])
    births = [one for one in shown_lines(daemon, f"proc/{pid}/trace.jsonl") if one.get("origin") == "mount"]
    assert {"Open", "Read", "Write", "Close"} <= {one["syscall"] for one in births}
    assert all(one["host_pid"] > 0 for one in births)
    assert f'"pid":{child},' in text(daemon, f"proc/{child}/status")


def shown_lines(daemon: Daemon, path: str) -> list[dict[str, Any]]:
    """A file of JSON values, one a line."""
    return [json.loads(line) for line in text(daemon, path).splitlines()]


def test_a_child_gets_no_more_than_its_parent(daemon: Daemon) -> None:
    """Who spawns through a process's root makes its child, and a child's rights lie within its parent's."""
    pid = spawn(daemon, "wait 500 s", allowed_devices=["/dev/glob", "/proc/spawn"])
    request = {"intent": "wait 500 s", "provider": "script", "allowed_devices": ["/dev", "/sys"]}
    root = f"$M/proc/{pid}/root"
    child = int(daemon.out(f"echo {quoted(json.dumps(request))} > {root}/proc/spawn; cat {root}/proc/spawn"))
    assert shown(daemon, f"proc/{child}/status")["ppid"] == pid
    assert daemon.out(f"ls $M/proc/{child}/root/dev") == "glob\nllm\n"
    assert "Permission denied" in daemon.bash(f"cat $M/proc/{child}/root/dev/shell").err
    daemon.out(f"rmdir $M/proc/{child} $M/proc/{pid}")


def test_events_tell_of_all_processes(daemon: Daemon) -> None:
    """A reader of proc/events sees each life in order, as JSON lines with numbers that have no gap."""
    reader = daemon.script("exec cat $M/proc/events")
    until(reader.blocked, "cat waits for events")
    pid = done(daemon, "say hello")
    records: list[dict[str, Any]] = []
    while not any((one["pid"], one["event"]) == (pid, "reap") for one in records):
        records.append(json.loads(reader.line()))
    daemon.forget(reader)
    numbers = [one["seq"] for one in records]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    mine = [one["event"] for one in records if one["pid"] == pid]
    assert mine == ["spawn", "messages", "request", "answer", "step", "exit", "reap"]


def test_a_trace_reads_like_strace(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    """Calls with their arguments, results and times; those of the model, the tool and the end are there."""
    gate = tmp_path / "gate"
    pid = gated(daemon, gate)
    reader = daemon.script(f"exec cat $M/proc/{pid}/trace")
    until(reader.blocked, "cat waits")
    gate.touch()
    lines = reader.end().out.splitlines()
    for call in (
        r"Read\(FD\(4\), 1048576\) = \d+ bytes",
        r"Write\(FD\(3\), \".*\", \d+\) = \d+ bytes",
        r"CtxWrite\(0, 2\) = 0",
    ):
        pattern = rf"\[ *\d+\.\d{{3}}s\] {call}  \d+ms"
        assert any(re.fullmatch(pattern, line) for line in lines), pattern


@pytest.mark.parametrize(
    ("more", "intent", "code", "words"),
    [
        ({"context_budget": 900}, "spend 1000 and go on", 2, "budget"),
        ({"max_steps": 2}, "loop", 1, "max_iterations"),
        ({"timeout_ms": 100}, "wait 500 s", 1, "timeout"),
        ({}, "fail: TIMEOUT", 1, "TIMEOUT"),
        ({}, "loop fail", 1, "failures alike"),
    ],
)
def test_limits_end_it(daemon: Daemon, more: dict[str, int], intent: str, code: int, words: str) -> None:
    """Each limit ends a process with its code and says so."""
    pid = done(daemon, intent, **more)
    end = shown(daemon, f"proc/{pid}/wait")
    assert (end["code"], words in end["reason"]) == (code, True), end


def test_many_at_once(daemon: Daemon) -> None:
    """Thirty processes side by side: each has its own result, and one read of proc/processes tells of all."""
    before = len(text(daemon, "proc/processes").splitlines())
    pids = [
        int(pid)
        for pid in daemon.out(
            "for i in $(seq 30); do\n"
            'echo "{\\"intent\\":\\"wait 500 s\\",\\"provider\\":\\"script\\"}" > $M/proc/spawn\n'
            "cat $M/proc/spawn\ndone"
        ).split()
    ]
    assert len(set(pids)) == 30
    rows = shown_lines(daemon, "proc/processes")
    assert len(rows) >= before + 30
    assert set(pids) <= {row["pid"] for row in rows}
    daemon.out("cd $M/proc; rmdir " + " ".join(map(str, pids)))
    assert not set(pids) & {row["pid"] for row in shown_lines(daemon, "proc/processes")}


def test_a_live_process_keeps_its_folder(daemon: Daemon) -> None:
    """Whoever stands in a process's folder reads on there until it is gone."""
    pid = live(daemon)
    out = daemon.out(
        f"cd $M/proc/{pid}; jq -r .state status; echo kill > ctl; jq -r .code wait; jq -r .state status"
    )
    assert out == "running\n1\ndead\n"
