"""Processes by the command, over a mount: start them, watch them, signal them, look back at them."""

import json
import re
import signal
from typing import Any

import pytest

from tests.daemon import Program, quoted, until
from tests.endtoend.user import User, gate

LONG = "wait 600 s"
"""An intent that ends only by a signal within the time that a test has."""


def held(name: str) -> str:
    """An intent whose process runs a command in its first step until the file `name` is made."""
    call = {"command": f"{gate(name)}; echo opened {name}", "timeout_ms": 600_000}
    return f"call: shell {json.dumps(call)}"


def release(worker: User, name: str) -> None:
    (worker.work / name).touch()


def running(worker: User, pid: str) -> dict[str, Any]:
    """The row of a process in `rnix ps`; empty where it is not listed."""
    rows = json.loads(worker.out("ps", "--json"))
    return next((row for row in rows if str(row["pid"]) == pid), {})


def lines_until(program: Program, text: str) -> list[str]:
    """The lines of a program, up to the first that holds a text."""
    found = [program.line().rstrip("\r")]
    while text not in found[-1]:
        found.append(program.line().rstrip("\r"))
    return found


def type_in(program: Program, keys: bytes) -> None:
    """Type on the terminal of a program."""
    assert program.process.stdin is not None
    program.process.stdin.write(keys)
    program.process.stdin.flush()


# --- spawn ---


def test_a_run_is_shown_while_it_goes_on(worker):
    """Steps and tool calls are printed as they happen, not at the end; the end has result and accounts."""
    run = worker.start("spawn", held("live"))
    first = run.line()
    started = re.fullmatch(r"\[kernel\] spawning PID (\d+) \(script(/.+)?\)\.\.\.", first)
    assert started, first
    pid = started[1]
    assert run.line() == f"[agent/{pid}] step 1"
    assert run.line().startswith(f"[agent/{pid}] tool: shell ")
    assert running(worker, pid)["state"] == "running"
    release(worker, "live")
    done = run.end()
    assert (done.status, done.err) == (0, "")
    *body, last = done.out.splitlines()
    assert f"[agent/{pid}] step 2" in body
    assert any(line.startswith("══ Result ═") for line in body)
    assert any("opened live" in line for line in body)
    end = rf"\[kernel\] PID {pid} exited\(0\) \| script/\S.* \| tokens: \d+ \| elapsed: [\d.]+s"
    assert re.fullmatch(end, last), last


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        (["say done"], 0, None),
        (["fail: TIMEOUT"], 1, "[TIMEOUT] "),
        (["loop", "--max-steps", "2"], 1, "max_iterations: 2 steps"),
        ([LONG, "--timeout-ms", "1"], 1, "timeout: "),
        (["say hello", "--budget", "1"], 2, "budget_exceeded: "),
        (["spend 9000000", "--budget", "8000000"], 2, "budget_exceeded: 900"),
    ],
    ids=["done", "model fails", "steps", "time", "budget before", "budget after"],
)
def test_the_exit_status_is_the_code_of_the_process(worker, words, status, reason):
    """0 for done, 1 for a failure or a limit, 2 for a budget; the last line says which and why."""
    done = worker.rnix("spawn", *words)
    last = done.out.splitlines()[-1]
    assert (done.status, done.err) == (status, "")
    assert f"exited({status}) | script" in last
    assert (reason is None and "reason" not in last) or f"| reason: {reason}" in last


def test_agents_work_where_their_user_stands(worker):
    """Commands of an agent run in the user's folder with the user's variables, -q prints the result alone."""
    done = worker.bash("MARK=mine rnix spawn -q 'run: pwd; echo $MARK'")
    assert (done.status, done.err) == (0, "")
    assert done.out == f"{worker.work}\nmine\n(exit code 0)\n"


def test_the_intent_may_come_as_an_option_or_on_stdin(worker):
    """`rnix -i X` and `rnix spawn -` do what `rnix spawn X` does, over several lines too."""
    assert worker.out("-i", "say option", "-q") == "option\n"
    assert worker.out(f"--mount={worker.mount}", "-i", "say elsewhere", "-q") == "elsewhere\n"
    assert json.loads(worker.out("--json", "-i", "say json"))["result"] == "json"
    assert worker.rnix("spawn", "-q", "-", data=b"say two\nlines\n").out == "two\nlines\n"


def test_json_is_one_object_on_stdout_and_nothing_else(worker):
    """`--json` gives the end of the run for programs, also where it fails."""
    done = json.loads(worker.out("spawn", "--json", "say for programs"))
    assert {key: done[key] for key in ("code", "reason", "result", "agent", "provider")} == {
        "code": 0,
        "reason": "done",
        "result": "for programs",
        "agent": "default",
        "provider": "script",
    }
    assert done["tokens_used"] > 0
    failed = worker.rnix("spawn", "fail", "--json")
    assert failed.status == json.loads(failed.out)["code"] == 1


def test_json_errors_are_objects_too(worker):
    """With `--json` a refusal is an object on stdout, beside the line for people on stderr."""
    done = worker.rnix("spawn", "say x", "--agent", "nobody", "--json")
    error = json.loads(done.out)["error"]
    assert done.status == 1
    assert (error["code"], error["device"]) == ("NOT_FOUND", "/proc/spawn")
    assert "no agent 'nobody'" in error["message"]
    assert error["message"] in done.err


@pytest.mark.parametrize(
    "words",
    [
        ["ps"],
        ["version"],
        ["daemon", "status"],
        ["mount"],
        ["kill", "{pid}"],
        ["log", "{pid}"],
        ["wait", "{pid}"],
    ],
    ids=lambda words: " ".join(words),
)
def test_every_command_speaks_json(worker, words):
    """Each line that `--json` prints is a JSON value; the option may stand before the command as well."""
    pid = worker.detach(LONG)
    until(lambda: worker.out("log", pid), "the process's first step")
    if "wait" in words:
        worker.out("kill", pid)
    words = [word.format(pid=pid) for word in words]
    for order in ([*words, "--json"], ["--json", *words]):
        done = worker.rnix(*order)
        assert done.out
        assert all(isinstance(json.loads(line), dict | list) for line in done.out.splitlines())
    worker.rnix("kill", pid, "KILL")


def test_ctrl_c_interrupts_the_process_and_not_the_command(worker):
    """On a terminal Ctrl-C sends INT to the process; the command shows its end and exits with 130."""
    terminal = worker.terminal("spawn", LONG)
    shown = lines_until(terminal, "] step 1")
    assert "\x1b[" in shown[-1], "there is colour on a terminal"
    type_in(terminal, b"\x03")
    shown = lines_until(terminal, "exited(")
    assert any("signal sent (SIGINT)" in line for line in shown)
    assert "exited(1)" in shown[-1]
    assert "reason: interrupted by SIGINT" in shown[-1]
    assert terminal.end().status == 130


def test_on_a_terminal_an_output_takes_one_line(worker):
    """Long output of a tool is cut to the width of the terminal, the command's result is not."""
    terminal = worker.terminal("spawn", "run: seq -s . 1 200")
    shown = lines_until(terminal, "exited(")
    plain = [re.sub(r"\x1b\[\d*m", "", line) for line in shown]
    outputs = [line for line in plain if "] output: " in line]
    assert [(len(line) <= 80, line[-1]) for line in outputs] == [(True, "…")]
    assert any(line.endswith("198.199.200") for line in plain)
    assert terminal.end().status == 0


def test_a_second_ctrl_c_kills_the_process(worker):
    """A process that does not end at INT, here since it blocks it, is killed by the next Ctrl-C."""
    terminal = worker.terminal("spawn", LONG)
    pid = re.search(r"PID (\d+)", lines_until(terminal, "] step 1")[0])
    assert pid
    assert worker.bash(f"echo block INT > $M/proc/{pid[1]}/ctl").status == 0
    type_in(terminal, b"\x03")
    lines_until(terminal, "signal sent (SIGINT)")
    assert running(worker, pid[1])["state"] == "running"
    type_in(terminal, b"\x03")
    shown = lines_until(terminal, "exited(")
    assert any("signal sent (SIGKILL)" in line for line in shown)
    assert "reason: killed by SIGKILL" in shown[-1]
    assert terminal.end().status == 130


def test_output_that_nobody_reads_any_more_is_no_error(worker):
    """`rnix spawn … | head -1` prints one line and no complaint; the process goes on without its audience."""
    done = worker.bash(f"rnix spawn {quoted(held('headless'))} | (head -n 1; exec 0<&-; touch headless)")
    assert (done.status, done.err) == (0, "")
    pid = re.fullmatch(r"\[kernel\] spawning PID (\d+) .*\n", done.out)
    assert pid, done.out
    assert worker.rnix("wait", pid[1]).status == 0


# --- detached processes ---


def test_a_detached_process_is_listed_waited_for_and_read(worker):
    """`--detach` prints the pid at once; ps, wait and log find the process by it while it runs and after."""
    pid = worker.detach(held("detached"))
    assert pid.isdecimal()
    table = worker.out("ps").splitlines()
    assert table[0].split() == ["PID", "PPID", "STATE", "AGENT", "PROVIDER/MODEL", "STEPS", "TOKENS",
                                "ELAPSED", "INTENT"]  # fmt: skip
    row = next(line for line in table[1:] if line.split()[0] == pid)
    assert "running" in row
    assert "call: shell" in row
    waiting = worker.start("wait", pid)
    following = worker.start("log", "-f", pid)
    lines_until(following, "tool shell")
    release(worker, "detached")
    waited = waiting.end()
    assert (waited.status, waited.err) == (0, "")
    assert waited.out.startswith(f"[kernel] PID {pid} exited(0) | script")
    followed = following.end()
    assert (followed.status, followed.err) == (0, "")
    assert "exit_code" in followed.out
    assert not running(worker, pid)
    assert worker.out("wait", pid).startswith(f"[kernel] PID {pid} exited(0)")
    assert "exit_code" in worker.out("log", pid)


def test_a_finished_process_is_found_by_its_uuid(worker):
    """The uuid that `--json` gives names the process in log, wait and strace after its end."""
    done = json.loads(worker.rnix("spawn", "--json", "fail").out)
    waited = worker.rnix("wait", done["uuid"], "--json")
    assert waited.status == json.loads(waited.out)["code"] == 1
    assert worker.out("strace", done["uuid"]) == worker.out("strace", str(done["pid"]))
    assert worker.out("log", done["uuid"]) == worker.out("log", str(done["pid"]))


# --- kill ---


@pytest.mark.parametrize(
    ("words", "name", "reason"),
    [
        ([], "SIGTERM", "terminated by SIGTERM"),
        (["TERM"], "SIGTERM", "terminated by SIGTERM"),
        (["1"], "SIGTERM", "terminated by SIGTERM"),
        (["-s", "SIGKILL"], "SIGKILL", "killed by SIGKILL"),
        (["int"], "SIGINT", "interrupted by SIGINT"),
        (["-KILL"], "SIGKILL", "killed by SIGKILL"),
        (["-2"], "SIGKILL", "killed by SIGKILL"),
    ],
    ids=["default", "name", "number", "option", "small", "dash name", "dash number"],
)
def test_signals_end_a_process(worker, words, name, reason):
    """A signal that ends a process is its reason, and its code is 1."""
    pid = worker.detach(LONG)
    order = [*words, pid] if words and words[0].startswith("-") else [pid, *words]
    assert worker.out("kill", *order) == f"[kernel] PID {pid}: signal sent ({name})\n"
    done = worker.rnix("wait", pid)
    assert (done.status, done.err) == (1, "")
    assert done.out.endswith(f"| reason: {reason}\n")


def test_a_paused_process_takes_no_further_step(worker):
    """PAUSE holds a process before its next step, what it was doing ends; RESUME lets it go on."""
    pid = worker.detach(held("paused"))
    until(lambda: "tool shell" in worker.out("log", pid), "the process's first tool call")
    assert worker.out("kill", pid, "PAUSE") == f"[kernel] PID {pid}: signal sent (SIGPAUSE)\n"
    row = next(line for line in worker.out("ps").splitlines() if line.split()[0] == pid)
    assert row.split()[2] == "paused"
    release(worker, "paused")
    until(lambda: "exit_code" in worker.out("log", pid), "the end of the command")
    paused = running(worker, pid)
    assert (paused["paused"], paused["steps"]) == (True, 1)
    worker.out("kill", pid, "RESUME")
    assert worker.rnix("wait", pid).status == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["kill", "9999"], "[NOT_FOUND] PID 9999 Kill: /proc/9999/ctl (no such process)"),
        (["wait", "9999"], "[NOT_FOUND] PID 9999 Wait: /proc/9999 (no such process)"),
        (["log", "9999"], "[NOT_FOUND] PID 9999 Log: /proc/9999 (no such process)"),
        (["strace", "9999"], "[NOT_FOUND] PID 9999 Trace: /proc/9999 (no such process)"),
        (["spawn", "x", "--agent", "none"], "[NOT_FOUND] Spawn: /proc/spawn (no agent 'none'; there are: "),
        (["spawn", "x", "--provider", "no"], "[NOT_FOUND] Spawn: /proc/spawn (no provider 'no'; there are: "),
        (["spawn", "x", "--skills", "none"], "[NOT_FOUND] Spawn: /proc/spawn (no skill 'none'"),
    ],
    ids=["kill", "wait", "log", "strace", "agent", "provider", "skill"],
)  # fmt: skip
def test_errors_say_what_where_and_why(worker, words, said):
    """A refusal is one line, `[CODE] PID n Call: file (reason)`, and the exit status 1."""
    done = worker.rnix(*words)
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith(said)
    assert done.err.count("\n") == 1


def test_signals_of_the_host_are_not_guessed_at(worker):
    """`kill -9` names no signal of this system; nothing is sent and the message lists those there are."""
    pid = worker.detach(LONG)
    done = worker.rnix("kill", "-9", pid)
    assert (done.status, done.out) == (2, "")
    assert "no signal '9'; one of TERM (1), KILL (2), INT (3), PAUSE (4), RESUME (5)" in done.err
    uuid = running(worker, pid)["uuid"]
    assert worker.out("kill", uuid, "KILL") == f"[kernel] PID {pid}: signal sent (SIGKILL)\n"


def test_a_signal_for_a_process_that_has_ended(worker):
    """The refusal says that the process has ended, not only that something is invalid."""
    pid = str(json.loads(worker.out("spawn", "--json", "say bye"))["pid"])
    done = worker.rnix("kill", pid)
    assert (done.status, done.out) == (1, "")
    assert done.err == f"[INVALID] PID {pid} Kill: /proc/{pid}/ctl (the process has ended already)\n"


# --- strace ---


def calls_of(text: str) -> list[str]:
    """The lines of an strace that show calls."""
    return [line for line in text.splitlines() if not line.startswith("[strace]")]


def test_strace_shows_the_calls_from_now_to_the_end(worker):
    """Attached to a running process, strace prints exactly the calls that end later, then lets go."""
    pid = worker.detach(held("traced"))
    until(lambda: "tool shell" in worker.out("log", pid), "the process's first tool call")
    tracing = worker.start("strace", pid)
    assert tracing.line() == f"[strace] attached to PID {pid} (state: running)"
    release(worker, "traced")
    traced = tracing.end()
    assert (traced.status, traced.err) == (0, "")
    assert traced.out.endswith(f"\n[strace] detached from PID {pid} (process exited)\n")
    late, whole = calls_of(traced.out), calls_of(worker.out("strace", pid))
    assert 0 < len(late) < len(whole)
    assert late == whole[-len(late) :]
    assert re.fullmatch(r"\[ *\d+\.\d{3}s\] Open\(\"/dev/llm/script\", O_RDWR\) = FD\(3\)  \d+ms", whole[0])


def test_strace_follows_children_from_their_first_call(worker):
    """With -f the calls of a child that is spawned later are shown, all of them, marked with its pid."""
    turns = [
        [{"tool": "shell", "arguments": {"command": gate("family"), "timeout_ms": 600_000}}],
        [{"tool": "spawn", "arguments": {"intent": "say child"}}],
    ]
    pid = worker.detach(f"script: {json.dumps(turns)}")
    tracing = worker.start("strace", "-f", pid)
    tracing.line()
    release(worker, "family")
    traced = tracing.end()
    assert (traced.status, traced.err) == (0, "")
    spawned = re.search(r'Spawn\("say child", ""\) = PID\((\d+)\)', traced.out)
    assert spawned, traced.out
    mark = f"[pid {spawned[1]}] "
    shown = [line.removeprefix(mark) for line in traced.out.splitlines() if line.startswith(mark)]
    assert shown == calls_of(worker.out("strace", spawned[1]))
    assert traced.out.splitlines()[-1] == f"[strace] detached from PID {pid} (process exited)"


def test_strace_of_a_finished_process_is_its_whole_journal(worker):
    """After the end strace prints every call there was, one line for each record of trace.jsonl."""
    pid = str(json.loads(worker.out("spawn", "--json", "say traced"))["pid"])
    shown = worker.out("strace", pid).splitlines()
    assert shown[0].startswith(f"[strace] attached to PID {pid} (state: ")
    records = [json.loads(line) for line in worker.out("strace", pid, "--json").splitlines()]
    journal = worker.bash(f"cat $M/proc/{pid}/trace.jsonl").out.splitlines()
    assert records == [json.loads(line) for line in journal]
    names = [line.partition("] ")[2].partition("(")[0] for line in shown[1:-1]]
    assert names == [record["syscall"] for record in records]
    counted = json.loads(worker.out("strace", "-c", "--json", pid))
    assert sum(row["calls"] for row in counted) == len(records)


def test_strace_of_a_finished_process_shows_its_children_too(worker):
    """With -f the journals of children follow the parent's, marked with their pids."""
    pid = str(json.loads(worker.out("spawn", "--json", "spawn: spawn: say grandchild"))["pid"])
    shown = calls_of(worker.out("strace", "-f", pid))
    marks = {match[1] for line in shown if (match := re.match(r"\[pid (\d+)\] ", line))}
    assert len(marks) == 2
    whole = [calls_of(worker.out("strace", one)) for one in (pid, *sorted(marks, key=int))]
    assert [re.sub(r"^\[pid \d+\] ", "", line) for line in shown] == [*whole[0], *whole[1], *whole[2]]


def test_ctrl_c_lets_go_of_a_traced_process(worker):
    """Interrupting strace ends strace; the process does not notice."""
    pid = worker.detach(LONG)
    tracing = worker.start("strace", pid)
    tracing.line()
    tracing.signal(signal.SIGINT)
    traced = tracing.end()
    assert traced.status == 130
    assert traced.out.splitlines()[-1] == f"[strace] detached from PID {pid} (interrupted)"
    assert "Traceback" not in traced.err
    assert running(worker, pid)["state"] == "running"
    worker.out("kill", pid, "KILL")
