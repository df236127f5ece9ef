"""`rnix history`, `query` and `gc`, and how processes are found by what was kept of them."""

import json
import os
import time

import click
import hypothesis
import hypothesis.strategies as st
import pytest

from rnixfs_cli import history, lookup, screen, session, table


def uuid(head, pid):
    return f"{head}-0000-7000-8000-{pid:012d}"


def past(rnix, pid, head="0192f3a0", **status):
    """A finished process, and the row that the log has of it."""
    name = rnix.past(pid, uuid=uuid(head, pid), **status)
    return {"pid": pid, "uuid": name, "ended": 1_700_000_000.0 + pid}


# --- history ---


def test_history_is_a_table_with_the_last_one_at_the_end(rnix):
    """One line for each, with when it ended, how, and what it was; the order is that of the ends."""
    rnix.env["TZ"] = "UTC"
    first = past(
        rnix, 3, head="0192f4b0", agent="scout", intent="look\naround " + "x" * 200, steps=4, tokens_used=99
    )
    second = past(rnix, 1, exit={"code": 1, "reason": "killed by SIGKILL"})
    rnix.rows(second, first)  # the last end comes first
    done = rnix("history")
    assert (done.status, done.err) == (0, "")
    header, *lines = done.out.splitlines()
    assert header.split() == list(history.HEADER)
    assert lines[0].startswith("2023-11-14 22:13:23    3  0192f4b0-0000-7000     0  done  ")
    assert "  scout        4      99  look around xxx" in lines[0]
    assert lines[0].endswith("…")
    assert lines[1].split()[2:6] == ["1", "0192f3a0-0000-7000", "1", "killed"]
    assert len(lines) == 2


def test_history_for_programs_is_whole(rnix):
    """--json gives the whole status of each with the time of its end; nobody is an empty list."""
    intent = "x" * 500
    rnix.rows(past(rnix, 3, intent=intent))
    (one,) = json.loads(rnix("history", "--json").out)
    assert (one["ended"], one["pid"], one["intent"]) == (1_700_000_003.0, 3, intent)
    assert one["exit"] == {"code": 0, "reason": "done"}
    rnix.rows()
    assert json.loads(rnix("history", "--json").out) == []
    assert rnix("history").out.split() == list(history.HEADER)


@pytest.mark.parametrize(
    ("words", "pids"),
    [
        ([], [1, 2, 3, 4]),
        (["-n", "2"], [3, 4]),
        (["-n", "0"], [1, 2, 3, 4]),
        (["--agent", "scout"], [1, 4]),
        (["--agent", "scout", "-n", "1"], [4]),
        (["--agent", "nobody", "-n", "0"], []),
    ],
)
def test_history_shows_the_last_ones_that_were_asked_for(rnix, words, pids):
    """-n counts what is shown, after the choice of an agent."""
    rows = [past(rnix, pid, agent="scout" if pid in (1, 4) else "default") for pid in (1, 2, 3, 4)]
    rnix.rows(*reversed(rows))
    assert [one["pid"] for one in json.loads(rnix("history", "--json", *words).out)] == pids


def test_history_since(rnix):
    """The log is asked for what ended after a time."""
    rnix.rows()
    rnix("history", "--since", "2025-01-31T12:00+00:00")
    before = time.time()
    rnix("history", "--since", "2h")
    rnix("history")
    exact, ago, ever = (request["args"][0] for request in rnix.asked())
    assert exact == 1_738_324_800.0
    assert before - 7200 <= ago <= time.time() - 7200
    assert ever == 0.0


@pytest.mark.parametrize("text", ["", "soon", "1y", "-5m", "2025-13-01", "9" * 30 + "d"])
def test_history_since_no_time(text):
    """What is no time is refused with what would be one."""
    with pytest.raises(click.BadParameter, match="is no time; write 30m, 2h, 3d, 2025-01-31"):
        history.moment(click.Context(history.history), click.Option(["--since"]), text)


def test_history_of_a_log_in_memory(rnix):
    """Where SQL cannot be asked, the folders tell; the time of the last change is that of the end."""
    for pid in (1, 2, 3):
        path = rnix.root / f"proc/history/{rnix.past(pid)}/status"
        os.utime(path, (1_700_000_000 + pid, 1_700_000_000 + pid))
    found = json.loads(rnix("history", "--json").out)
    assert sorted((one["pid"], one["ended"]) for one in found) == [
        (pid, 1_700_000_000.0 + pid) for pid in (1, 2, 3)
    ]
    late = json.loads(rnix("history", "--json", "--since", "2023-11-14T22:13:22+00:00").out)
    assert sorted(one["pid"] for one in late) == [2, 3]


def test_what_was_removed_meanwhile_is_left_out(rnix):
    """A process that the log no longer has is no error."""
    rnix.rows({"pid": 9, "uuid": uuid("0192f3a0", 9), "ended": 1.0}, past(rnix, 1))
    done = rnix("history", "--json")
    assert [one["pid"] for one in json.loads(done.out)] == [1]
    assert (done.status, done.err) == (0, "")


# --- finding processes ---


def heads(rnix, *heads):
    """Finished processes 1, 2, … whose uuids begin so, each with a log that names it."""
    rows = []
    for pid, head in enumerate(heads, 1):
        rows.append(past(rnix, pid, head))
        rnix.lay(f"proc/history/{rows[-1]['uuid']}/log", f"[  0.001s] think {pid}\n")
    return rows


@pytest.mark.parametrize("asked", ["sql", "folders"])
@pytest.mark.parametrize(
    "name", ["0192f4", "0192F4", "0192f4b0-0", "0192f4b00000", "0192f4b0000070008000000000000002", "2"]
)
def test_a_process_by_the_beginning_of_its_uuid(rnix, name, asked):
    """Six digits are enough where no other uuid begins like that, in any case, with and without dashes."""
    rows = heads(rnix, "0192f3a0", "0192f4b0", "0192f5c0")
    if asked == "sql":
        rnix.rows(rows[1])
    assert rnix("log", name) == (0, "[  0.001s] think 2\n", "")


@pytest.mark.parametrize("asked", ["sql", "folders"])
@pytest.mark.parametrize("command", ["log", "strace", "wait", "fork"])
def test_a_beginning_of_more_than_one(rnix, command, asked):
    """Nothing is guessed: the message names those that it could be, so that each can be typed."""
    rows = heads(rnix, "0192f3a0", "0192f3a1", "0192f4b0")
    if asked == "sql":
        rnix.rows(*rows[:2])
    done = rnix(command, "0192f3a")
    assert (done.status, done.out) == (1, "")
    assert "0192f3a0-0000-7000 (PID 1), 0192f3a1-0000-7000 (PID 2); give more of it" in done.err
    assert "PID 3" not in done.err


def test_a_pid_that_was_digits_of_a_uuid_all_the_same(rnix):
    """Digits that begin with 0 begin a uuid, others are a pid."""
    heads(rnix, "01923456", "12345678")
    rnix.process(123456)
    rnix.lay("proc/123456/log", "[  0.001s] think live\n")
    assert rnix("log", "019234").out == "[  0.001s] think 1\n"
    assert rnix("log", "123456").out == "[  0.001s] think live\n"


def test_a_live_process_by_the_beginning_of_its_uuid(rnix):
    """It need not have ended; kill takes it as well."""
    rnix.process(4, uuid=uuid("0192f6d0", 4))
    rnix.lay("proc/4/log", "[  0.001s] think 4\n")
    assert rnix("log", "0192f6").out == "[  0.001s] think 4\n"
    assert rnix("kill", "0192f6").out == "[kernel] PID 4: signal sent (SIGTERM)\n"


def test_the_trace_of_the_past(rnix):
    """strace of a finished process shows what is in its journal, by pid, uuid and beginning."""
    (row,) = heads(rnix, "0192f3a0")
    record = {"ts_ms": 13.0, "pid": 1, "syscall": "Open", "args": {}, "result": "FD(3)", "duration_ms": 1.0}
    rnix.lay(f"proc/history/{row['uuid']}/trace.jsonl", json.dumps(record) + "\n")
    shown = {rnix("strace", name).out for name in ("1", row["uuid"], "0192f3")}
    assert shown == {
        "[strace] attached to PID 1 (state: dead)\n"
        "[  0.013s] Open() = FD(3)  1ms\n"
        "[strace] detached from PID 1 (process exited)\n"
    }


@pytest.mark.parametrize("asked", ["sql", "folders"])
@pytest.mark.parametrize("name", ["77", "abcdef", uuid("0192f3a0", 77)])
def test_nobody_has_that_name(rnix, name, asked):
    """A name that no process has ever had is NOT_FOUND."""
    heads(rnix, "0192f3a0")
    if asked == "sql":
        rnix.rows()
    done = rnix("wait", name)
    assert (done.status, done.out) == (1, "")
    assert done.err.endswith(f"Wait: /proc/{name} (no such process)\n")


@pytest.mark.parametrize(
    "text", ["", "x", "0", "-1", "../1", "0192f", "0192g3a0", "1" * 33 + "a", "١٢٣", "-0192f3a0"]
)
def test_a_word_that_is_no_process(text):
    """What is neither a pid nor the beginning of a uuid is refused: it would become part of a path."""
    with pytest.raises(click.BadParameter, match="is no process; give a pid"):
        session.identity(text)


@hypothesis.given(
    st.lists(st.uuids(), min_size=1, max_size=30, unique=True).map(lambda all_: [str(one) for one in all_])
)
def test_short_names_mean_one_process_each(uuids):
    """A short name is a beginning of its uuid and of no other, and can be typed."""
    names = lookup.shortened(uuids)
    for one in uuids:
        assert [other for other in uuids if other.startswith(names[one])] == [one]
        assert len(names[one]) >= lookup.SHORT
    twins = ["0192f3a0-0000-7000-8000-00000000000a", "0192f3a0-0000-7000-8000-00000000000b"]
    assert lookup.shortened(twins) == {one: one for one in twins}


# --- query ---


def test_rows_are_a_table(rnix):
    """Columns as the statement has them, numbers to the right; each row is one line."""
    rnix.rows(
        {"event": "spawn", "n": 3, "data": None, "raw": {"base64": "AA=="}},
        {"event": "exit", "n": 12, "data": "two\nlines\u2028", "raw": "x"},
    )
    done = rnix("query", "SELECT …")
    assert done.err == ""
    assert done.out.splitlines() == [
        "event   n  data       raw",
        'spawn   3  NULL       {"base64": "AA=="}',
        "exit   12  two lines  x",
    ]
    assert rnix.asked() == [{"sql": "SELECT …", "args": []}]


def test_rows_for_programs(rnix):
    """--json is one array of the rows, with texts whole, also of separators that are no ends of lines."""
    rows = [{"a": "x\u2028y\u0085z", "n": 1.5}, {"a": None, "n": 2}]
    rnix.lay("rows", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    assert json.loads(rnix("query", "x", "--json").out) == rows
    rnix.rows()
    assert rnix("query", "x", "--json").out == "[]\n"
    assert rnix("query", "x").out == "no rows\n"


def test_a_column_named_error_is_no_failure(rnix):
    """Only the object that devices answer with is one."""
    rnix.rows({"error": "x"}, {"error": "y"})
    assert rnix("query", "x").out == "error\nx\ny\n"


def test_a_query_that_is_refused(rnix):
    """The reason is shown as any other, for programs too."""
    rnix.lay("rows", '{"error": {"code": "INVALID", "message": "near \\"x\\": syntax error"}}')
    assert rnix("query", "x") == (1, "", '[INVALID] Query: /sys/query (near "x": syntax error)\n')
    assert json.loads(rnix("query", "x", "--json").out)["error"]["device"] == "/sys/query"
    assert rnix("query", " ").status == 2
    assert rnix("query").status == 2


@hypothesis.given(
    st.lists(st.lists(st.text(st.sampled_from("ab世 "), max_size=40), min_size=3, max_size=3), max_size=5),
    st.one_of(st.none(), st.integers(1, 100)),
)
def test_a_table_fits(rows, width):
    """No line is wider than the terminal; without one every text is whole."""
    lines = table.layout(("ONE", "TWO", "THREE"), rows, {"TWO"}, width)
    assert len(lines) == len(rows) + 1
    if width is not None:
        assert max(map(screen.cells, lines)) <= width
    else:
        assert all(text.strip() in line for row, line in zip(rows, lines[1:], strict=True) for text in row)


# --- ps ---


def test_ps_says_why_a_process_is_suspended(rnix):
    """The state is in the table; -v adds the reason, which others do not have."""
    rnix.process(1)
    rnix.process(2, state="suspended", suspended="the system was stopped", intent="go on")
    header, one, two = rnix("ps", "-v").out.splitlines()
    assert header.split()[-2:] == ["REASON", "INTENT"]
    at = header.index("REASON")
    assert one[at:].split() == ["-", "look", "around"]
    assert two[at:] == "the system was stopped  go on"
    assert "suspended" in rnix("ps").out
    assert "stopped" not in rnix("ps").out


# --- gc ---


def test_gc_tells_what_is_left(rnix):
    """The order goes to sys/ctl; the numbers are the system's own."""
    rnix.lay("sys/ctl", "")
    rnix.lay("sys/stats", json.dumps({"history": 12, "log_bytes": 4096}))
    done = rnix("gc")
    assert done == (0, "[kernel] removed 0 finished processes from the log; 12 are kept, 4096 bytes\n", "")
    assert (rnix.root / "sys/ctl").read_text() == "gc\n"
    assert json.loads(rnix("gc", "--json").out) == {"removed": 0, "history": 12, "log_bytes": 4096}
    rnix.lay("sys/ctl.refusal", '{"error": {"code": "RESOURCE_EXHAUSTED", "message": "the disk is full"}}')
    assert rnix("gc").err == "[RESOURCE_EXHAUSTED] Collect: /sys/ctl (the disk is full)\n"
