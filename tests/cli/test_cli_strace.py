"""`rnix strace`: classes of calls, what was not kept, and children, over a tree of plain files and FIFOs."""

import ast
import json
import os
import pathlib

import click
import pytest

from rnixfs import calltable
from rnixfs_cli import callclasses, strace, tracer, tree

PACKAGE = pathlib.Path(calltable.__file__).parent
SECONDS = 60.0  # until a condition that must come counts as one that does not


def finish(process):
    """The rest of a running command: its status and output."""
    try:
        out, err = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    return process.returncode, out, err


def record(name, pid=1, result="ok", **more):
    return {
        "ts_ms": 13.0,
        "pid": pid,
        "syscall": name,
        "args": {},
        "result": result,
        "duration_ms": 1.0,
    } | more


def journal(rnix, pid, *records, folder=""):
    text = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in records)
    return rnix.lay(f"{folder or f'proc/{pid}'}/trace.jsonl", text)


def append(rnix, pid, *records):
    with (rnix.root / f"proc/{pid}/trace.jsonl").open("a") as file:
        file.writelines(json.dumps(one) + "\n" for one in records)


def calls(out):
    """The names of calls in lines of strace, with the mark of their process."""
    lines = [line for line in out.splitlines() if not line.startswith("[strace]")]
    return [line.replace("[  0.013s] ", "").partition("(")[0] for line in lines]


# --- the classes ---


def test_the_classes_are_the_kernels_groups():
    """The command imports nothing of the daemon, so its table is compared with the one of the kernel here."""
    groups: dict[str, set[str]] = {}
    for row in calltable.ROWS:
        if row.method:  # DebugRecord happens by itself and is in no trace
            groups.setdefault(row.group, set()).add(row.name)
    ours = {
        name: set(calls) - set(calltable.BESIDE)
        for name, calls in callclasses.CLASSES.items()
        if name != "thread"
    }
    assert ours == groups
    assert set(calltable.BESIDE) < callclasses.ALL
    assert sum(map(len, callclasses.CLASSES.values())) == len(callclasses.ALL), "each call has one class"


def test_every_traced_call_has_a_class():
    """Read from the source: whatever the kernel writes into a trace can be chosen."""
    names = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("_call", "note", "_note"):
                texts = [one.value for one in node.args if isinstance(one, ast.Constant)]
                names |= {text for text in texts if isinstance(text, str)}
    assert {"Open", "Read", "Spawn", "WaitAny"} <= names
    assert names <= callclasses.ALL


@pytest.mark.parametrize(
    ("expressions", "passed"),
    [
        (("trace=file",), ["Open", "ReadDir"]),
        (("%FILE",), ["Open", "ReadDir"]),
        (("file,process",), ["Open", "ReadDir", "Spawn"]),
        (("file", "send"), ["Open", "ReadDir", "Send"]),
        (("!file,process",), ["Send", "Signal", "SigBlock"]),
        (("file", "!open"), ["ReadDir"]),
        (("signal",), ["Signal", "SigBlock"]),
        (("Signal",), ["Signal"]),
        (("ipc",), ["Send"]),
        (("all",), ["Open", "ReadDir", "Spawn", "Send", "Signal", "SigBlock"]),
        (("",), ["Open", "ReadDir", "Spawn", "Send", "Signal", "SigBlock"]),
    ],
)
def test_classes_in_expressions(expressions, passed):
    """A class is its calls; a call spelled as in traces is that call alone; what is missing is told."""
    wanted = strace.chooser(expressions)
    names = ["Open", "ReadDir", "Spawn", "Send", "Signal", "SigBlock"]
    assert [name for name in names if wanted({"syscall": name})] == passed
    assert wanted({"dropped": 3})


@pytest.mark.parametrize("word", ["opne", "%open", "files", "trace=file,nope"])
def test_a_word_that_is_no_call_is_refused(word):
    """A slip must not look like a process that makes no calls."""
    with pytest.raises(click.BadParameter, match=r"no system call or class .*classes: all, process.*Open"):
        strace.chooser((word,))


def test_a_wrong_expression_is_wrong_use(rnix):
    """Said before anything is traced."""
    done = rnix("strace", "-e", "trace=opne", "1")
    assert (done.status, done.out) == (2, "")
    assert "'opne'" in done.err


def test_a_class_is_shown_with_the_calls_from_the_mount(rnix):
    """Those of programs of the host are in the same stream, in their order, and say whose they are."""
    rnix.process(1, state="dead")
    mount = {"origin": "mount", "host_pid": 77}
    journal(
        rnix,
        1,
        record("Open"),
        record("Spawn"),
        record("Open", args={"path": "/dev/fs/a"}, **mount),
        record("Read", error="NOT_FOUND (x)", result="", **mount),
        record("CtxWrite"),
    )
    out = rnix("strace", "-e", "trace=file", "1").out
    assert out.splitlines()[1:-1] == [
        "[  0.013s] Open() = ok  1ms",
        '[  0.013s] Open("/dev/fs/a") = ok  1ms [mount 77]',
        "[  0.013s] Read() = -1 NOT_FOUND (x)  1ms [mount 77]",
    ]
    shown = [json.loads(line) for line in rnix("strace", "--json", "-e", "file", "1").out.splitlines()]
    assert [one.get("origin") for one in shown] == [None, "mount", "mount"]
    rows = json.loads(rnix("strace", "-c", "--json", "-e", "!context", "1").out)
    assert {row["syscall"]: (row["calls"], row["errors"], row["total_ms"]) for row in rows} == {
        "Open": (2, 0, 2.0),
        "Read": (1, 1, 1.0),
        "Spawn": (1, 0, 1.0),
    }


# --- what was not kept ---


def test_what_was_not_kept_is_told_whatever_is_chosen(rnix):
    """In lines, in JSON and below the counts: the exact number."""
    rnix.process(1, state="dead")
    journal(rnix, 1, record("Open"), record("Spawn"), {"dropped": 1234})
    told = "... 1234 system calls were not kept"
    assert rnix("strace", "-e", "ipc", "1").out.splitlines()[1:-1] == [told]
    assert [json.loads(line) for line in rnix("strace", "--json", "-e", "ipc", "1").out.splitlines()] == [
        {"dropped": 1234}
    ]
    assert rnix("strace", "-c", "1").out.splitlines()[-1] == told
    assert json.loads(rnix("strace", "-c", "--json", "1").out)[-1] == {"dropped": 1234}


def test_a_journal_that_fills_up_while_it_is_read(rnix):
    """Its last line counts on, and grows by a digit; the number is told once, as it was at the end."""
    rnix.process(1)
    path = journal(rnix, 1)
    stream = rnix.fifo("proc/1/trace")
    process = rnix.start("strace", "1")
    process.stdout.readline()
    kept = json.dumps(record("Kept")) + "\n"
    for count in (9, 10, 99, 100):
        path.write_text(kept + f'{{"dropped":{count}}}\n')
        os.write(stream, b"a line\n")
    assert process.stdout.readline() == "[  0.013s] Kept() = ok  1ms\n"
    path.write_text(kept + '{"dropped":101}\n')
    os.close(stream)
    status, out, err = finish(process)
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "... 101 system calls were not kept",
        "[strace] detached from PID 1 (process exited)",
    ]


def test_letting_go_tells_what_was_not_kept(rnix):
    """Also when it is interrupted, and the process goes on."""
    journal(rnix, 1, record("Before"), {"dropped": 98})
    stream = rnix.fifo("proc/1/trace")
    shown = []
    tracing = tracer.Tracer(tree.Tree(str(rnix.root)), lambda pid, one: shown.append((pid, one)))
    tracing.attach(1, from_start=True)
    assert shown == [(1, record("Before"))]
    tracing.close()
    assert shown[1:] == [(1, {"dropped": 98})]
    os.close(stream)


@pytest.mark.parametrize(
    ("before", "known"),
    [
        ("", 0),
        ('{"dropped":7}\n', 7),
        (json.dumps(record("A", note='{"dropped":5}')) + "\n", 0),
        (json.dumps(record("A", note="x" * 200)) + "\n" + '{"dropped":123456}\n', 123456),
    ],
)
def test_a_journal_from_now_on(tmp_path, before, known):
    """Begins behind all that there is; a count that was there already is not told again."""
    path = tmp_path / "trace.jsonl"
    path.write_text(before)
    with path.open("rb") as file:
        found = tracer.Journal(file.fileno(), from_start=False)
        assert (found.lines(), found.dropped) == ([], 0)
        kept = before[: before.index('{"dropped"')] if known else before
        if known:
            path.write_text(kept + f'{{"dropped":{known + 1000}}}\n')
            assert (found.lines(), found.dropped) == ([], 1000)
            assert (found.lines(), found.dropped) == ([], 1000)
        else:
            path.write_text(kept + '{"new":1}\n{"dropped":12}\n')
            assert (found.lines(), found.dropped) == ([b'{"new":1}'], 12)


# --- children ---


def child(rnix, pid, **status):
    rnix.process(pid, **status)
    journal(rnix, pid, record(f"Of{pid}", pid=pid))


def test_children_are_found_in_the_journal(rnix):
    """A spawn that the events do not tell of is followed all the same, from the child's first call."""
    rnix.process(1)
    journal(rnix, 1)
    parent, events = rnix.fifo("proc/1/trace"), rnix.fifo("proc/events")
    process = rnix.start("strace", "-f", "1")
    process.stdout.readline()
    child(rnix, 2, ppid=1, state="zombie")
    append(rnix, 1, record("Spawn", result="PID(2)"), record("Close"))
    os.write(parent, b"a line\n")
    os.close(parent)
    status, out, err = finish(process)
    assert (status, err) == (0, "")
    assert sorted(calls(out)) == ["Close", "Spawn", "[pid 2] Of2"]
    os.close(events)


def test_children_are_looked_for_when_events_were_lost(rnix):
    """A reader of events that lagged is told so, and asks the processes themselves."""
    rnix.process(1)
    journal(rnix, 1)
    parent, events = rnix.fifo("proc/1/trace"), rnix.fifo("proc/events")
    process = rnix.start("strace", "-f", "1")
    process.stdout.readline()
    child(rnix, 2, ppid=1, state="zombie")
    rnix.process(1, children=[2])
    os.write(events, b'{"dropped":5000}\n')
    assert process.stdout.readline() == "[pid 2] [  0.013s] Of2() = ok  1ms\n"
    os.close(parent)
    assert finish(process)[0] == 0
    os.close(events)


def family(rnix):
    """Three generations that have ended, the last one in the history already."""
    rnix.process(1, state="dead")
    journal(rnix, 1, record("Spawn", result="PID(2)"), record("Close"), record("Spawn", error="[PERMISSION]"))
    rnix.process(2, ppid=1, state="dead")
    journal(rnix, 2, record("Spawn", pid=2, result="PID(3)"), {"dropped": 4})
    uuid = "0192f3a0-0000-7000-8000-000000000003"
    rnix.lay(f"proc/history/{uuid}/status", json.dumps({"pid": 3, "uuid": uuid, "state": "dead"}))
    journal(rnix, 3, record("Open", pid=3), folder=f"proc/history/{uuid}")
    os.close(rnix.fifo("proc/events"))


def test_a_family_that_has_ended(rnix):
    """The parent's journal, then each child's."""
    family(rnix)
    events = os.open(rnix.root / "proc/events", os.O_RDWR)
    assert calls(rnix("strace", "-f", "1").out) == [
        "Spawn",
        "Close",
        "Spawn",
        "[pid 2] Spawn",
        "[pid 2] ... 4 system calls were not kept",
        "[pid 3] Open",
    ]
    assert calls(rnix("strace", "1").out) == ["Spawn", "Close", "Spawn"]
    shown = [json.loads(line) for line in rnix("strace", "-f", "--json", "1").out.splitlines()]
    assert [one["pid"] for one in shown] == [1, 1, 1, 2, 2, 3]
    assert shown[4] == {"pid": 2, "dropped": 4}
    os.close(events)


def test_counts_of_a_family(rnix):
    """-c with -f adds up what all of them did."""
    family(rnix)
    events = os.open(rnix.root / "proc/events", os.O_RDWR)
    rows = json.loads(rnix("strace", "-f", "-c", "--json", "-e", "process,file", "1").out)
    assert {row["syscall"]: (row["calls"], row["errors"]) for row in rows[:-1]} == {
        "Spawn": (3, 1),
        "Close": (1, 0),
        "Open": (1, 0),
    }
    assert rows[-1] == {"dropped": 4}
    os.close(events)
