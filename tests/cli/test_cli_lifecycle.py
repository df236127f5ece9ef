"""`rnix resume`, `suspend`, `checkpoint`, `fork` and `spawn --key`, over a tree of plain files."""

import json

import pytest

from rnixfs_cli import errors, lifecycle, tree

UUID = "0192f3a0-0000-7000-8000-000000000007"


def asleep(rnix, pid, **status):
    """A suspended process that has ended by the time somebody waits for it."""
    rnix.process(pid, state="suspended", suspended="the system was stopped", **status)
    rnix.lay(f"proc/{pid}/log", "[  0.001s] step 1\n[  0.002s] think before\n")
    rnix.lay(
        f"proc/{pid}/.live/log",
        "[  0.001s] step 1\n[  0.002s] think before\n[  0.003s] think after\n[  0.004s] step 2\n",
    )
    rnix.ended(pid)


def refuse(rnix, pid, code="INVALID", message="invalid argument"):
    """Let the ctl of a process refuse what it is told."""
    rnix.lay(f"proc/{pid}/ctl.refusal", json.dumps({"error": {"code": code, "message": message}}))


def ctl(rnix, pid):
    return (rnix.root / f"proc/{pid}/ctl").read_text()


# --- orders ---


@pytest.mark.parametrize(
    ("command", "sent", "said"),
    [
        ("resume", "wake", "resumed"),
        ("suspend", "suspend", "suspended"),
        ("checkpoint", "checkpoint", "checkpoint written"),
    ],
)
def test_an_order_is_a_line_in_the_ctl_of_each(rnix, command, sent, said):
    """One line for each process that is named, in the order given."""
    asleep(rnix, 1)
    asleep(rnix, 2)
    assert rnix(command, "2", "1") == (0, f"[kernel] PID 2: {said}\n[kernel] PID 1: {said}\n", "")
    assert (ctl(rnix, 1), ctl(rnix, 2)) == (f"{sent}\n", f"{sent}\n")
    lines = rnix(command, "1", "2", "--json").out.splitlines()
    assert [json.loads(line) for line in lines] == [{"pid": 1, "done": sent}, {"pid": 2, "done": sent}]


@pytest.mark.parametrize("command", ["resume", "suspend", "checkpoint"])
def test_one_that_fails_does_not_stop_the_others(rnix, command):
    """The others get the order; the failure is told, and is the exit status."""
    asleep(rnix, 2)
    done = rnix(command, "9", "2")
    assert done.status == 1
    assert done.out.startswith("[kernel] PID 2: ")
    assert done.err == f"[NOT_FOUND] PID 9 {command.capitalize()}: /proc/9 (no such process)\n"
    assert ctl(rnix, 2)
    both = [json.loads(line) for line in rnix(command, "9", "2", "--json").out.splitlines()]
    assert {"error", "pid"} == {next(iter(one)) for one in both}


@pytest.mark.parametrize("words", [[], ["x"], ["../1"], ["1", "0"]])
@pytest.mark.parametrize("command", ["resume", "suspend", "checkpoint"])
def test_wrong_use_orders_nothing(rnix, command, words):
    """Without a process, or with a word that is none, nobody gets an order."""
    asleep(rnix, 1)
    assert rnix(command, *words).status == 2
    assert ctl(rnix, 1) == ""


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ("resume", {"state": "running"}, "it is running; only a suspended process can be resumed"),
        (
            "resume",
            {"state": "running", "paused": True},
            "it is paused and not suspended; to go on: rnix kill 1 RESUME",
        ),
        (
            "resume",
            {"state": "dead"},
            "the process has ended already; rnix fork makes one that goes on from a step of it",
        ),
        ("suspend", {"state": "zombie"}, "the process has ended already"),
    ],
)
def test_a_refusal_says_why(rnix, command, status, said):
    """An errno alone does not say what is wrong; the process's status does."""
    rnix.process(1, **status)
    rnix.lay("proc/1/log", "")
    refuse(rnix, 1)
    assert rnix(command, "1") == (1, "", f"[INVALID] PID 1 {command.capitalize()}: /proc/1/ctl ({said})\n")


@pytest.mark.parametrize(
    ("code", "message", "said"),
    [
        (
            "NOT_FOUND",
            "no such process",
            "what it needs is not there: its working folder, or its model 'script'",
        ),
        ("NOT_FOUND", "its folder is gone", "its folder is gone"),
        ("SERVICE_UNAVAILABLE", "no model", "no model"),
    ],
)
def test_what_a_process_needs_and_is_not_there(rnix, code, message, said):
    """A process that cannot go on stays suspended; the command says what is missing as far as it is told."""
    asleep(rnix, 1)
    refuse(rnix, 1, code, message)
    assert rnix("resume", "1").err == f"[{code}] PID 1 Resume: /proc/1/ctl ({said})\n"


class Woken(tree.Tree):
    """A tree in which nobody can be woken, and one who could be has been meanwhile."""

    def command(self, name, text, *, call, pid=0):
        raise errors.CommandError("INVALID", "invalid argument", syscall=call, device=f"/{name}", pid=pid)

    def status(self, folder, *, call="Stat", pid=0):
        return {"pid": 2, "state": "running", "suspended": ""}


def test_who_was_woken_with_its_parent_is_no_failure(rnix):
    """Waking a process wakes those below it; naming them too, as after a restart, changes nothing."""
    lifecycle._wake(Woken(""), lifecycle.Sleeper("proc/2", 2, suspended=True, logged=0))
    with pytest.raises(errors.CommandError, match="it is running; only a suspended process"):
        lifecycle._wake(Woken(""), lifecycle.Sleeper("proc/2", 2, suspended=False, logged=0))
    # One that sleeps on was not woken by anybody.
    asleep(rnix, 1)
    refuse(rnix, 1)
    assert rnix("resume", "1") == (1, "", "[INVALID] PID 1 Resume: /proc/1/ctl (invalid argument)\n")


# --- resume and wait ---


def test_resume_and_wait_shows_what_is_new(rnix):
    """What the process did before it was suspended is not shown again; the status is its code."""
    asleep(rnix, 1)
    rnix.ended(1, code=3, reason="context full")
    done = rnix("resume", "--wait", "1")
    assert [line for line in done.out.splitlines() if not line.startswith("═")] == [
        "[kernel] resuming PID 1 (script/tour)...",
        "[agent/1] after",
        "[agent/1] step 2",
        "all is well",
        "[kernel] PID 1 exited(3) | script/tour | tokens: 34 | elapsed: 6.2s | reason: context full",
    ]
    assert (done.status, done.err, ctl(rnix, 1)) == (3, "", "wake\n")


def test_several_are_woken_before_the_first_is_shown(rnix):
    """They go on at once; the status is the highest of their codes."""
    for pid in (1, 2, 3):
        asleep(rnix, pid)
    rnix.ended(2, code=2, reason="budget")
    done = rnix("resume", "--wait", "1", "2", "3", "--json")
    assert [json.loads(line)["pid"] for line in done.out.splitlines()] == [1, 2, 3]
    assert [ctl(rnix, pid) for pid in (1, 2, 3)] == ["wake\n"] * 3
    assert done.status == 2


def test_nobody_is_waited_for_where_one_cannot_go_on(rnix):
    """A failure is told at once, and not after hours of waiting for the others."""
    asleep(rnix, 1)
    rnix.fifo("proc/1/.live/wait")
    done = rnix("resume", "--wait", "1", "9")
    assert (done.status, done.out) == (1, "")
    assert "[NOT_FOUND] PID 9 Resume" in done.err
    assert ctl(rnix, 1) == "wake\n"


def test_waiting_for_a_suspended_process_says_so(rnix):
    """It would wait until somebody resumes the process; a note says how, and stdout stays as it is."""
    asleep(rnix, 1)
    done = rnix("wait", "1")
    assert done.err == "[kernel] PID 1 is suspended; to go on: rnix resume 1\n"
    assert done.out.startswith("[kernel] PID 1 exited(0)")


# --- fork ---


@pytest.mark.parametrize(
    ("words", "fork"),
    [
        (["7"], {"source": "7"}),
        (["7", "--step", "3"], {"source": "7", "step": 3}),
        (["--step", "0", UUID], {"source": "7", "step": 0}),
        ([UUID.upper()], {"source": "7"}),
        ([UUID.replace("-", "")[:30]], {"source": "7"}),
    ],
)
def test_fork_asks_for_a_step(rnix, words, fork):
    """The source goes along as its pid, however it was named, and the step only where one is given."""
    rnix.past(7)
    rnix.lay("answer", "8\n")
    assert rnix("fork", *words) == (0, "8\n", "")
    request = json.loads((rnix.root / "request").read_text())
    assert request == {"device": "proc/spawn", "fork": fork}
    assert json.loads(rnix("fork", *words, "--json").out) == {"pid": 8}


def test_fork_and_wait(rnix):
    """The new process is shown from its start to its end."""
    rnix.past(7)
    asleep(rnix, 8)
    rnix.lay("answer", "8\n")
    done = rnix("fork", "7", "--wait")
    assert done.out.splitlines()[:3] == [
        "[kernel] forking PID 8 (script/tour)...",
        "[agent/8] step 1",
        "[agent/8] before",
    ]
    assert done.status == 0


def test_a_fork_that_is_refused(rnix):
    """The device says why; a source that is not there, and a step below 0, do not get that far."""
    rnix.past(7)
    rnix.lay("answer", '{"error": {"code": "INVALID", "message": "no finished step 9"}}')
    assert rnix("fork", "7", "--step", "9").err == "[INVALID] Fork: /proc/spawn (no finished step 9)\n"
    assert rnix("fork", "9").err == "[NOT_FOUND] PID 9 Fork: /proc/9 (no such process)\n"
    assert rnix("fork", "7", "--step", "-1").status == 2


# --- spawn with a key ---


def test_a_key_goes_along(rnix):
    """The request has the key, and none where none is given."""
    rnix.lay("answer", "7\n")
    rnix("spawn", "x", "--key", "nightly 1", "--detach")
    assert json.loads((rnix.root / "request").read_text())["idempotency_key"] == "nightly 1"
    rnix("spawn", "x", "--detach")
    assert "idempotency_key" not in json.loads((rnix.root / "request").read_text())


def test_a_key_of_a_process_that_is_only_history(rnix):
    """What was done with the key long ago is shown as if it were done now, with the same exit status."""
    rnix.past(7)
    folder = f"proc/history/{UUID}"
    rnix.lay(f"{folder}/.live/log", "[  0.001s] step 1\n")
    end = {"code": 2, "reason": "budget", "result": "half of it", "tokens_used": 34, "elapsed_ms": 6200.0}
    rnix.lay(f"{folder}/wait", json.dumps(end) + "\n")
    rnix.lay("answer", "7\n")
    done = rnix("spawn", "x", "--key", "k")
    assert (done.status, done.err) == (2, "")
    assert done.out.splitlines()[:2] == [
        "[kernel] made with this key: PID 7 (script/tour)...",
        "[agent/7] step 1",
    ]
    assert rnix("spawn", "x", "--key", "k", "-q").out == "half of it\n"


def test_a_key_of_a_suspended_process_is_not_waited_for(rnix):
    """Nobody would ever wake it while the command waits; the command says what to do instead."""
    asleep(rnix, 7)
    rnix.lay("answer", "7\n")
    done = rnix("spawn", "x", "--key", "k")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("[SERVICE_UNAVAILABLE] PID 7 Spawn: /proc/7 (made with this key before")
    assert "rnix resume --wait 7" in done.err
    assert rnix("spawn", "x", "--key", "k", "--detach").out == "7\n"
