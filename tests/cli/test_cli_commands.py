"""The commands as programs, over a tree of plain files and FIFOs."""

import json
import os
import signal
import time

import pytest

SECONDS = 60.0  # until a condition that must come counts as one that does not


def until(condition, what):
    """Wait for a condition that another process brings about."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def finish(process):
    """The rest of a running command: its status and output."""
    try:
        out, err = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    return process.returncode, out, err


def log_of(rnix, pid, *lines):
    rnix.lay(f"proc/{pid}/.live/log", "".join(f"{line}\n" for line in lines))


def spawned(rnix, pid=7, **end):
    """A tree in which a spawn gives a process that has already ended."""
    rnix.lay("answer", f"{pid}\n")
    rnix.process(pid)
    log_of(rnix, pid, "[  0.001s] step step 1", "[  0.002s] tool fs/read README.md")
    rnix.ended(pid, **end)


def test_spawn_shows_the_run(rnix):
    """A run shows its start, its steps, the result and the end, in this order."""
    spawned(rnix)
    done = rnix("spawn", "look around")
    assert done.err == ""
    assert [line for line in done.out.splitlines() if not line.startswith("═")] == [
        "[kernel] spawning PID 7 (script/tour)...",
        "[agent/7] step 1",
        "[agent/7] tool: fs/read README.md",
        "all is well",
        "[kernel] PID 7 exited(0) | script/tour | tokens: 34 | elapsed: 6.2s",
    ]
    assert done.status == 0


def test_spawn_asks_for_what_the_options_say(rnix):
    """Every option reaches the request, with the caller's folder and variables."""
    spawned(rnix)
    rnix.env["MARK"] = "here"
    words = ["--agent", "a", "--provider", "p", "--model", "m", "--max-steps", "3", "--budget", "500"]
    assert rnix("spawn", "-i", "do it", *words, "--timeout-ms", "9", "--skills", "x,y").status == 0
    request = json.loads((rnix.root / "request").read_text())
    assert request.pop("env")["MARK"] == "here"
    assert request == {
        "device": "proc/spawn",
        "intent": "do it",
        "agent": "a",
        "provider": "p",
        "model": "m",
        "max_steps": 3,
        "context_budget": 500,
        "timeout_ms": 9,
        "skills": ["x", "y"],
        "cwd": str(rnix.work.resolve()),
    }


@pytest.mark.parametrize(
    "words", [["-i", "do it"], ["--intent", "do it"], ["--mount", "ROOT", "-i", "do it"]]
)
def test_intent_without_a_sub_command_spawns(rnix, words):
    """`rnix -i INTENT` is `rnix spawn INTENT`."""
    spawned(rnix)
    assert rnix(*[str(rnix.root) if word == "ROOT" else word for word in words]).status == 0
    assert json.loads((rnix.root / "request").read_text())["intent"] == "do it"


@pytest.mark.parametrize("code", [1, 2, 3])
def test_spawn_exits_with_the_code_of_the_process(rnix, code):
    """The exit status is the process's code, and a failure says why."""
    spawned(rnix, code=code, reason="max steps exceeded", result="")
    done = rnix("spawn", "x")
    assert done.status == code
    assert done.out.splitlines()[-1].endswith("| reason: max steps exceeded")


def test_spawn_json_is_one_object(rnix):
    """--json gives one object and nothing else on stdout."""
    spawned(rnix, code=2, reason="budget")
    done = rnix("spawn", "x", "--json")
    assert done.status == 2
    value = json.loads(done.out)
    assert (value["pid"], value["code"], value["reason"], value["provider"]) == (7, 2, "budget", "script")


def test_spawn_quiet_is_the_result(rnix):
    """--quiet gives the result alone."""
    spawned(rnix)
    assert rnix("spawn", "x", "-q").out == "all is well\n"


def test_spawn_detached_gives_the_pid(rnix):
    """--detach prints the pid and waits for nothing."""
    rnix.lay("answer", "7\n")
    assert rnix("spawn", "x", "--detach") == (0, "7\n", "")
    assert json.loads(rnix("spawn", "x", "--detach", "--json").out) == {"pid": 7}


def test_refused_spawn_tells_the_reason(rnix):
    """A refused spawn shows the device's reason, for programs too, and exits with 1."""
    rnix.lay("answer", '{"error": {"code": "NOT_FOUND", "message": "no agent x", "device": "/lib/agents/x"}}')
    done = rnix("spawn", "x")
    assert done == (1, "", "[NOT_FOUND] Spawn: /lib/agents/x (no agent x)\n")
    assert json.loads(rnix("spawn", "x", "--json").out)["error"]["code"] == "NOT_FOUND"


@pytest.mark.parametrize(
    "words", [["spawn"], ["spawn", "  "], ["spawn", "a", "-i", "b"], ["spawn", "x", "--max-steps", "0"]]
)
def test_wrong_use_of_spawn(rnix, words):
    """Wrong use exits with 2 and says on stderr what would be right."""
    done = rnix(*words)
    assert (done.status, done.out) == (2, "")
    assert "Error:" in done.err


def test_spawn_is_live_and_ctrl_c_goes_to_the_process(rnix):
    """Lines show while the process runs; Ctrl-C interrupts it, again kills it, and the status is 130."""
    spawned(rnix)
    (rnix.root / "proc/7/.live/log").unlink()
    stream = rnix.fifo("proc/7/.live/log")
    ctl = rnix.root / "proc/7/ctl"
    process = rnix.start("spawn", "x")
    assert process.stdout is not None
    assert process.stdout.readline() == "[kernel] spawning PID 7 (script/tour)...\n"
    os.write(stream, b"[  0.001s] step 1\n")
    assert process.stdout.readline() == "[agent/7] step 1\n"
    process.send_signal(signal.SIGINT)
    until(lambda: ctl.read_text() == "int\n", "the first Ctrl-C was not handed on")
    process.send_signal(signal.SIGINT)
    until(lambda: ctl.read_text() == "kill\n", "the second Ctrl-C was not handed on")
    os.write(stream, b"[  0.002s] warning killed\n")
    os.close(stream)
    status, out, err = finish(process)
    assert status == 130
    assert out.startswith("[agent/7] warning: killed\n")
    assert err.splitlines() == [
        "[kernel] PID 7: signal sent (SIGINT)",
        "[kernel] PID 7: signal sent (SIGKILL)",
    ]


def test_third_ctrl_c_leaves_a_process_that_does_not_end(rnix):
    """Whatever the process does, the third Ctrl-C gives the terminal back."""
    spawned(rnix)
    (rnix.root / "proc/7/.live/log").unlink()
    stream = rnix.fifo("proc/7/.live/log")
    process = rnix.start("spawn", "x")
    assert process.stdout is not None
    assert process.stderr is not None
    os.write(stream, b"[  0.001s] step 1\n")
    process.stdout.readline()
    process.stdout.readline()
    for name in ("SIGINT", "SIGKILL"):
        process.send_signal(signal.SIGINT)
        assert name in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] == 130
    os.close(stream)


def test_ps(rnix):
    """The table has a line for each process; --json is one array."""
    assert rnix("ps").out.split()[0] == "PID"
    assert json.loads(rnix("ps", "--json").out) == []
    rnix.process(1)
    rnix.process(2, ppid=1, state="zombie")
    lines = rnix("ps").out.splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [["1", "0", "running"], ["2", "1", "zombie"]]
    assert [one["pid"] for one in json.loads(rnix("ps", "--json").out)] == [1, 2]


@pytest.mark.parametrize(
    ("words", "sent"),
    [([], "TERM"), (["KILL"], "KILL"), (["-s", "sigint"], "INT"), (["4"], "PAUSE"), (["-s", "5"], "RESUME")],
)
def test_kill_writes_the_signal(rnix, words, sent):
    """A signal is a line in the process's ctl."""
    rnix.process(1)
    assert rnix("kill", "1", *words) == (0, f"[kernel] PID 1: signal sent (SIG{sent})\n", "")
    assert (rnix.root / "proc/1/ctl").read_text() == f"signal {sent}\n"


def test_kill_of_nobody(rnix):
    """No such process: the code, the process, the call, the device and the reason; status 1."""
    assert rnix("kill", "9") == (1, "", "[NOT_FOUND] PID 9 Kill: /proc/9/ctl (no such process)\n")
    done = rnix("kill", "9", "--json")
    assert (done.status, json.loads(done.out)["error"]["device"]) == (1, "/proc/9/ctl")


@pytest.mark.parametrize("words", [["x"], ["0"], ["-1"], ["1", "HUP"], ["1", "TERM", "-s", "KILL"], []])
def test_wrong_use_of_kill(rnix, words):
    """Wrong use exits with 2 and writes nothing."""
    rnix.process(1)
    assert rnix("kill", *words).status == 2
    assert (rnix.root / "proc/1/ctl").read_text() == ""


def test_wait(rnix):
    """Waiting gives the last line and the process's code."""
    rnix.process(1)
    rnix.ended(1, code=3, reason="context full")
    done = rnix("wait", "1")
    assert done.status == 3
    assert (
        done.out
        == "[kernel] PID 1 exited(3) | script/tour | tokens: 34 | elapsed: 6.2s | reason: context full\n"
    )
    assert json.loads(rnix("wait", "1", "--json").out)["code"] == 3


def test_wait_waits(rnix):
    """The command ends when the process does, and not before."""
    rnix.process(1)
    stream = rnix.fifo("proc/1/wait")
    process = rnix.start("wait", "1")
    assert process.poll() is None
    os.write(
        stream, b'{"code": 0, "reason": "completed", "result": "", "tokens_used": 1, "elapsed_ms": 10}\n'
    )
    # The writing end must outlive the reader's open, or the reader would wait for another writer.
    until(
        lambda: _reads(process.pid, rnix.root / "proc/1/wait") or process.poll() is not None, "nobody reads"
    )
    os.close(stream)
    assert finish(process)[0] == 0


def _reads(pid, path):
    """Whether a process has a file open."""
    try:
        return any(os.path.samefile(f"/proc/{pid}/fd/{one}", path) for one in os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return False


def test_wait_for_a_daemon_that_ends(rnix):
    """An end without a word is the daemon's end and no success."""
    rnix.process(1)
    rnix.lay("proc/1/wait", "")
    done = rnix("wait", "1")
    assert done.status == 1
    assert "the daemon ended before the process did" in done.err


@pytest.mark.parametrize("command", ["wait", "log", "strace"])
def test_nobody_to_look_at(rnix, command):
    """A process that is not there is NOT_FOUND for every command; a word that is no process is wrong use."""
    done = rnix(command, "9")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("[NOT_FOUND] PID 9 ")
    assert rnix(command, "../1").status == 2


def test_log(rnix):
    """The log is printed as it is; for programs each line is an object."""
    rnix.process(1)
    text = "[  0.001s] step 1\n[  0.002s] think so be it\n"
    rnix.lay("proc/1/log", text)
    assert rnix("log", "1") == (0, text, "")
    assert json.loads(rnix("log", "1", "--json").out.splitlines()[1]) == {
        "seconds": 0.002,
        "category": "think",
        "text": "so be it",
    }


def test_log_follows(rnix):
    """-f shows lines as they come and ends with the process."""
    rnix.process(1)
    stream = rnix.fifo("proc/1/.live/log")
    process = rnix.start("log", "-f", "1")
    assert process.stdout is not None
    for line in ("[  0.001s] step 1\n", "[  0.002s] think hm\n"):
        os.write(stream, line.encode())
        assert process.stdout.readline() == line
    os.close(stream)
    assert finish(process) == (0, "", "")


def test_finished_processes_are_found_in_the_history(rnix):
    """A process that has left proc/ is found by its pid and by its uuid."""
    uuid = "0192f3a0-0000-7000-8000-000000000005"
    rnix.lay(f"proc/history/{uuid}/status", json.dumps({"pid": 5, "uuid": uuid, "state": "dead"}))
    rnix.lay(f"proc/history/{uuid}/log", "[  0.001s] step 1\n")
    for wanted in ("5", uuid):
        assert rnix("log", "-f", wanted) == (0, "[  0.001s] step 1\n", "")


def record(name, took=1.0, pid=1, **more):
    return {
        "ts_ms": 13.0,
        "pid": pid,
        "syscall": name,
        "args": {"fd": 3},
        "result": "ok",
        "duration_ms": took,
    } | more


def journal(rnix, pid, *records):
    rnix.lay(f"proc/{pid}/trace.jsonl", "".join(json.dumps(one) + "\n" for one in records))


def append(rnix, pid, one):
    with (rnix.root / f"proc/{pid}/trace.jsonl").open("a") as file:
        file.write(json.dumps(one) + "\n")


def test_strace_of_a_finished_process(rnix):
    """A process that has ended shows all that it did."""
    rnix.process(1, state="zombie")
    journal(rnix, 1, record("Open"), record("Read", error="[TIMEOUT] (late)"))
    assert rnix("strace", "1").out.splitlines() == [
        "[strace] attached to PID 1 (state: zombie)",
        "[  0.013s] Open(FD(3)) = ok  1ms",
        "[  0.013s] Read(FD(3)) = -1 [TIMEOUT] (late)  1ms",
        "[strace] detached from PID 1 (process exited)",
    ]
    assert rnix("strace", "1", "-e", "!open").out.count("Open") == 0
    assert [json.loads(line)["syscall"] for line in rnix("strace", "--json", "1").out.splitlines()] == [
        "Open",
        "Read",
    ]


def test_strace_counts(rnix):
    """-c prints a table of calls, errors and times."""
    rnix.process(1, state="dead")
    journal(rnix, 1, record("Open", 1.0), record("Read", 3.0, error="[TIMEOUT]"))
    lines = rnix("strace", "-c", "1").out.splitlines()
    assert [line.split() for line in lines[-3:]] == [
        ["75.00", "0.003000", "3.000", "1", "1", "Read"],
        ["25.00", "0.001000", "1.000", "1", "Open"],
        ["100.00", "0.004000", "2", "1", "total"],
    ]
    rows = json.loads(rnix("strace", "-c", "--json", "1").out)
    assert [row["syscall"] for row in rows] == ["Read", "Open"]


def test_strace_of_a_running_process_starts_now(rnix):
    """Attached to a running process, strace shows what comes from then on, until the process ends."""
    rnix.process(1)
    journal(rnix, 1, record("Before"))
    stream = rnix.fifo("proc/1/trace")
    process = rnix.start("strace", "1")
    assert process.stdout is not None
    assert "attached to PID 1 (state: running)" in process.stdout.readline()
    append(rnix, 1, record("After"))
    os.write(stream, b"a line\n")
    assert process.stdout.readline() == "[  0.013s] After(FD(3)) = ok  1ms\n"
    append(rnix, 1, record("Last"))
    os.close(stream)
    status, out, _ = finish(process)
    assert status == 0
    assert out.splitlines() == [
        "[  0.013s] Last(FD(3)) = ok  1ms",
        "[strace] detached from PID 1 (process exited)",
    ]


def test_strace_follows_children_from_their_first_call(rnix):
    """-f shows children with their pid, from their first call, also after the parent has ended."""
    rnix.process(1)
    journal(rnix, 1)
    parent, events = rnix.fifo("proc/1/trace"), rnix.fifo("proc/events")
    process = rnix.start("strace", "-f", "1")
    assert process.stdout is not None
    process.stdout.readline()
    rnix.process(2, ppid=1)
    journal(rnix, 2, record("First", pid=2))
    child = rnix.fifo("proc/2/trace")
    os.write(
        events, b'{"seq":1,"event":"spawn","pid":3,"ppid":8}\n{"seq":2,"event":"spawn","pid":2,"ppid":1}\n'
    )
    assert process.stdout.readline() == "[pid 2] [  0.013s] First(FD(3)) = ok  1ms\n"
    os.close(parent)
    append(rnix, 2, record("Second", pid=2))
    os.write(child, b"a line\n")
    assert process.stdout.readline() == "[pid 2] [  0.013s] Second(FD(3)) = ok  1ms\n"
    os.close(child)
    status, out, _ = finish(process)
    assert (status, out) == (0, "[strace] detached from PID 1 (process exited)\n")
    os.close(events)


def test_ctrl_c_detaches_strace(rnix):
    """Ctrl-C lets go of the process: nothing is written to it, and the status is 130."""
    rnix.process(1)
    journal(rnix, 1)
    stream = rnix.fifo("proc/1/trace")
    process = rnix.start("strace", "1")
    assert process.stdout is not None
    process.stdout.readline()
    append(rnix, 1, record("Seen"))
    os.write(stream, b"a line\n")
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    status, out, _ = finish(process)
    assert (status, out) == (130, "[strace] detached from PID 1 (interrupted)\n")
    assert (rnix.root / "proc/1/ctl").read_text() == ""
    os.close(stream)


@pytest.mark.parametrize(
    "words",
    [
        ["ps"],
        ["kill", "7"],
        ["wait", "7"],
        ["log", "7"],
        ["strace", "7"],
        ["resume", "7"],
        ["suspend", "7"],
        ["fork", "7"],
        ["history"],
        ["query", "x"],
        ["gc"],
        ["spawn", "x"],
        ["daemon", "status"],
        ["daemon", "stop", "--help"],
        ["version"],
    ],
)
def test_commands_use_files_alone(rnix, words):
    """No command loads the daemon or its libraries, nor what would make its start slow."""
    spawned(rnix)
    rnix.lay("proc/7/log", "")
    rnix.process(7, state="dead")
    rnix.lay("proc/7/trace.jsonl", "")
    rnix.lay("sys/uptime", "1.5\n")
    rnix.lay("sys/stats", '{"processes": 1, "history": 0}\n')
    rnix.lay("sys/ctl", "")
    rnix.rows()
    assert rnix(*words).status == 0
    loaded = set(rnix.modules())
    assert not loaded & {"rnixfs", "trio", "pyfuse3", "msgspec", "httpx2", "yaml"}
    if words[0] == "ps":
        assert not loaded & {
            "asyncio",
            "subprocess",
            "importlib.metadata",
            "shutil",
            "hashlib",
            "tempfile",
            "socket",
        }


def test_output_that_nobody_reads(rnix):
    """A reader that goes away ends the command without a traceback."""
    rnix.process(1)
    rnix.lay("proc/1/log", ("[  0.001s] think " + "x" * 80 + "\n") * 20_000)
    process = rnix.start("log", "1")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(SECONDS) == 1
    assert "Traceback" not in err
