"""The pure parts of the command: words, lines and tables."""

import errno
import io
import json
import socket
import threading

import click
import hypothesis
import hypothesis.strategies as st
import msgspec
import pytest

from rnixfs import errors as kernel_errors
from rnixfs import traceline as kernel_traceline
from rnixfs.proc import signals
from rnixfs_cli import (
    errors,
    kill,
    loglines,
    main,
    mountpoint,
    ps,
    screen,
    spawn,
    strace,
    traceline,
    tree,
    watch,
)


class Paper:
    """A screen that keeps what is printed on it."""

    def __init__(self, terminal: bool = False) -> None:
        self.stream = io.StringIO()
        self.screen = screen.Screen(self.stream, terminal)

    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


def test_codes_are_those_of_the_kernel():
    """An errno has the same code in the command as in the kernel."""
    theirs = {number: str(code) for number, code in kernel_errors.CODE_OF_ERRNO.items()}
    assert {number: theirs[number] for number in errors.CODES} == errors.CODES
    assert set(kernel_errors.ERRNO.values()) == set(errors.CODES)


def test_signals_are_those_of_the_kernel():
    """Names and numbers of the signals are the kernel's."""
    assert {str(int(one)): one.name for one in signals.Signal} == kill.NUMBERS


@pytest.mark.parametrize("text", ["TERM", "term", "SIGTERM", "sigterm", " Term ", "1"])
def test_signal_names(text):
    """A signal is known by its name in any case, with and without SIG, and by its number."""
    assert kill.canonical(text) == "TERM"


@pytest.mark.parametrize("text", ["", "9", "HUP", "TERM KILL", "0"])
def test_unknown_signals_are_refused_with_the_list(text):
    """An unknown signal is refused, and the refusal lists the known ones."""
    with pytest.raises(
        click.BadParameter, match=r"TERM \(1\), KILL \(2\), INT \(3\), PAUSE \(4\), RESUME \(5\)"
    ):
        kill.canonical(text)


def test_error_line():
    """An error shows as code, process, system call, device and reason."""
    error = errors.from_oserror(
        OSError(errno.ENOENT, "x"), "Kill", "/proc/9/ctl", pid=9, missing="no such process"
    )
    assert str(error) == "[NOT_FOUND] PID 9 Kill: /proc/9/ctl (no such process)"
    assert error.status == 1


def test_error_of_a_dead_daemon_says_so():
    """ENOTCONN means that the daemon has ended, and the line says what happens next."""
    error = errors.from_oserror(OSError(errno.ENOTCONN, "x"), "Read", "/proc/1/status")
    assert str(error).startswith("[SERVICE_UNAVAILABLE] Read: /proc/1/status (the daemon has ended")


_NAMES = st.sampled_from(["path", "fd", "flags", "size", "data", "Open"])
_VALUES = st.one_of(
    st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=80),
    st.integers(-(2**31), 2**31),
    st.booleans(),
    st.lists(st.integers(0, 9), max_size=3),
)


@hypothesis.given(
    args=st.dictionaries(_NAMES, _VALUES, max_size=3),
    ts=st.floats(0, 1e8),
    took=st.floats(0, 1e6),
    error=st.sampled_from(["", "[NOT_FOUND] (no such file)"]),
    origin=st.sampled_from(["agent", "mount"]),
)
def test_trace_lines_are_the_kernels(args, ts, took, error, origin):
    """A record of the journal becomes the very line that the kernel writes to the live trace."""
    record = kernel_traceline.TraceRecord(
        ts, 1, "Open", args, result="FD(3)", error=error, duration_ms=took, origin=origin, host_pid=77
    )
    assert traceline.line(json.loads(msgspec.json.encode(record))) == kernel_traceline.line(record)


def test_trace_line_of_lost_records():
    """Records that were not kept are told of."""
    assert traceline.line({"dropped": 3}) == "... 3 system calls were not kept"


def test_log_line_is_taken_apart():
    """A log line is a time, a category and a text."""
    assert loglines.parse("[  0.013s] tool shell ls -l") == (0.013, "tool", "shell ls -l")
    assert loglines.parse("[12345.678s] output ") == (12345.678, "output", "")


@pytest.mark.parametrize("line", ["", "plain", '{"dropped":3}', "[x] y", "[1s]"])
def test_log_line_of_another_form_is_all_text(line):
    """A line of another form is shown as it is."""
    assert loglines.parse(line) == (0.0, "", line)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0.0s"),
        (440, "0.4s"),
        (6200, "6.2s"),
        (59_940, "59.9s"),
        (59_960, "1m00s"),
        (125_000, "2m05s"),
        (3_720_000, "1h02m"),
    ],
)
def test_durations(milliseconds, text):
    """Times are short: tenths of seconds, then minutes, then hours."""
    assert screen.duration(milliseconds) == text


def test_terminal_gets_no_control_characters_of_agents():
    """Text of an agent cannot command the terminal; a file gets it as it is."""
    text = "a\x1b[31mb\x9bc\x7f\td\n"
    assert screen.Screen(io.StringIO(), True).safe(text) == "a\ufffd[31mb\ufffdc\ufffd\td\n"
    assert screen.Screen(io.StringIO(), False).safe(text) == text


def test_colour_only_for_people(monkeypatch):
    """Colour needs a terminal, and NO_COLOR or a dumb one turns it off."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert screen.Screen(io.StringIO(), True).paint("red", "x") == "\x1b[31mx\x1b[0m"
    assert screen.Screen(io.StringIO(), False).paint("red", "x") == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert screen.Screen(io.StringIO(), True).paint("red", "x") == "x"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert screen.Screen(io.StringIO(), True).paint("red", "x") == "x"


@hypothesis.given(st.text(alphabet=st.sampled_from("ab世界é"), max_size=30), st.integers(0, 20))
def test_fit_never_exceeds_the_width(text, width):
    """A cut text has at most the columns it may have, and one that fits is left alone."""
    cut = screen.fit(text, width)
    assert screen.cells(cut) <= width
    assert cut == text or cut.endswith("…") or width == 0


def _status(**more):
    return {"pid": 1, "state": "running", "agent": "default", "provider": "script", "model": "m"} | more


def test_ps_without_processes_is_a_header():
    """An empty table is its header."""
    paper = Paper()
    ps.show([], paper.screen)
    assert [line.split() for line in paper.lines()] == [list(ps.HEADER)]


def test_ps_columns_stand_below_their_names():
    """Each process is a line, numbers to the right and words to the left of their columns."""
    paper = Paper()
    ps.show(
        [
            _status(intent="one\ntwo", ppid=0, steps=3, tokens_used=1234, elapsed_ms=6200.0),
            _status(pid=12, ppid=1, paused=True, agent=None, provider="claude", model="", intent=""),
        ],
        paper.screen,
    )
    header, first, second = paper.lines()
    assert first.split() == ["1", "0", "running", "default", "script/m", "3", "1234", "6.2s", "one", "two"]
    assert second.split() == ["12", "1", "paused", "-", "claude", "0", "0", "0.0s"]
    assert first[header.index("STATE") :].startswith("running")
    assert second[: header.index("PID") + 3] == " 12"


def test_ps_fits_the_terminal(monkeypatch):
    """On a terminal no line is wider than it; elsewhere intents are whole."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    paper = Paper(terminal=True)
    ps.show([_status(intent="word " * 50)], paper.screen)
    assert max(map(screen.cells, paper.lines())) == 80
    plain = Paper()
    ps.show([_status(intent="word " * 50)], plain.screen)
    assert plain.lines()[1].count("word") == 50


@pytest.mark.parametrize("terminal", [False, True])
def test_ps_needs_no_room(monkeypatch, terminal):
    """A terminal of few columns is no error."""
    monkeypatch.setenv("COLUMNS", "1")
    ps.show([_status(intent="x" * 10)], Paper(terminal).screen)


def test_exit_line():
    """The last line names the process, its code, its model, tokens and time, and a reason where it failed."""
    end = {"code": 0, "reason": "completed", "result": "", "tokens_used": 1234, "elapsed_ms": 6200}
    assert (
        screen.exit_line(1, "claude/haiku", end)
        == "[kernel] PID 1 exited(0) | claude/haiku | tokens: 1234 | elapsed: 6.2s"
    )
    assert screen.exit_line(1, "x", end | {"code": 1, "reason": "max steps\nexceeded"}).endswith(
        " | reason: max steps exceeded"
    )


@pytest.mark.parametrize(
    ("expressions", "passed"),
    [
        ((), ["Open", "Read", "Close"]),
        (("open",), ["Open"]),
        (("trace=open,READ",), ["Open", "Read"]),
        (("open", "close"), ["Open", "Close"]),
        (("!read",), ["Open", "Close"]),
        (("trace=!read,close",), ["Open"]),
    ],
)
def test_strace_expressions(expressions, passed):
    """-e names the calls to show, or with ! those to leave out."""
    wanted = strace.chooser(expressions)
    assert [name for name in ("Open", "Read", "Close") if wanted({"syscall": name})] == passed


def test_strace_counts():
    """-c adds up calls, errors and times, the longest first."""
    summary = strace.Summary()
    for name, took, error in [("Open", 1.0, ""), ("Read", 5.0, ""), ("Open", 2.0, "[NOT_FOUND]")]:
        summary.add(1, {"syscall": name, "duration_ms": took, "error": error})
    summary.add(1, {"dropped": 4})
    assert summary.rows() == [
        {"syscall": "Read", "calls": 1, "errors": 0, "total_ms": 5.0},
        {"syscall": "Open", "calls": 2, "errors": 1, "total_ms": 3.0},
    ]


def test_environment_leaves_out_what_is_not_utf8():
    """Requests are UTF-8, so a variable of other bytes stays behind."""
    assert spawn.environment({b"A": b"\xc3\xa4", b"B": b"\xff", b"\xfe": b"x"}) == {"A": "ä"}


def test_request_holds_only_what_was_asked_for():
    """Options that were not given are left to the kernel; the caller's folder and variables go along."""
    request = spawn.request_of("do it", {"agent": None, "skills": (), "max_steps": None})
    assert set(request) == {"intent", "cwd", "env"}
    request = spawn.request_of("do it", {"skills": ("a, b", "c"), "budget": 0, "timeout_ms": 5})
    assert (request["skills"], request["context_budget"], request["timeout_ms"]) == (["a", "b", "c"], 0, 5)


def test_effort_and_fallbacks_of_a_spawn() -> None:
    """PROVIDER, PROVIDER:MODEL and :MODEL, in their order; without them the kernel decides."""
    wishes = {"skills": (), "effort": "high", "fallback": ("local", "groq:llama:70b", ":small")}
    request = spawn.request_of("do it", wishes)
    assert request["effort"] == "high"
    assert request["fallback"] == [
        {"provider": "local"},
        {"provider": "groq", "model": "llama:70b"},
        {"model": "small"},
    ]
    request = spawn.request_of("do it", {"skills": (), "effort": None, "fallback": ()})
    assert "fallback" not in request
    assert "effort" not in request


def test_a_run_as_people_see_it():
    """Thoughts show whole, a tool's output with its first line, and then the result."""
    paper = Paper()
    view = watch.View(1, paper.screen)
    log = ["step step 1", "think first", "    second", "tool shell {}", "output a", "    b", "warning late"]
    for line in log:
        view.entry(loglines.parse(line if line.startswith("    ") else f"[  0.001s] {line}"))
    view.end("script/m", {"code": 0, "result": "last\n", "tokens_used": 1, "elapsed_ms": 10})
    assert [line for line in paper.lines() if not line.startswith("═")] == [
        "[agent/1] step 1",
        "[agent/1] first",
        "    second",
        "[agent/1] tool: shell {}",
        "[agent/1] output: a",
        "[agent/1] warning: late",
        "last",
        "[kernel] PID 1 exited(0) | script/m | tokens: 1 | elapsed: 0.0s",
    ]


MOUNTINFO = r"""24 1 8:1 / / rw,relatime shared:1 - ext4 /dev/vda rw
90 24 0:50 / /home/me/my\040tree rw,nosuid shared:7 master:1 - fuse.rnixfs rnixfs rw,user_id=0
91 24 0:51 / /mnt/far rw - fuse.sshfs me@far:/ rw
"""


def test_table_of_mounts(tmp_path):
    """The host's table is read with its optional fields and escapes; our mounts are known by name."""
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTINFO)
    found = mountpoint.mounts(str(table))
    assert [one.path for one in found] == ["/", "/home/me/my tree", "/mnt/far"]
    assert [one.ours for one in found] == [False, True, False]


def test_mountpoint_is_chosen_in_order(tmp_path, monkeypatch):
    """The option comes before RNIX_MOUNT, that before ~/rnix; links on the way are resolved."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RNIX_MOUNT", raising=False)
    home = tmp_path.resolve()
    assert mountpoint.choose(None) == f"{home}/rnix"
    monkeypatch.setenv("RNIX_MOUNT", f"{tmp_path}/b/../c")
    assert mountpoint.choose(None) == f"{home}/c"
    (tmp_path / "link").symlink_to("c/d")
    assert mountpoint.choose(f"{tmp_path}/link") == f"{home}/c/d"
    monkeypatch.chdir(tmp_path)
    assert mountpoint.choose("here") == f"{home}/here"


def test_mountpoint_in_a_circle_of_links(tmp_path):
    """Links that lead in a circle are an error and not a loop."""
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(errors.CommandError, match="too many symbolic links"):
        mountpoint.choose(str(tmp_path / "a"))


def _served(answer: bytes, request: bytes) -> bytes:
    """What `ask` gives when the other side of a socket reads a request of this size and answers."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        seen = b""
        while len(seen) < len(request):
            seen += theirs.recv(1 << 16)
        theirs.sendall(answer)

    server = threading.Thread(target=serve)
    server.start()
    try:
        with ours, theirs:
            return tree.ask(ours.fileno(), request)
    finally:
        server.join()


def test_ask_writes_the_whole_request_and_reads_the_answer():
    """A request larger than one write takes is written to its end before the answer is read."""
    assert _served(b"7\n", b"x" * 3_000_000) == b"7\n"


def test_a_refusal_carries_the_devices_reason():
    """The reason of a refused request is the device's own."""
    answer = b'{"error": {"code": "INVALID", "message": "no agent x", "device": "/proc/spawn"}}\n'
    with pytest.raises(errors.CommandError) as caught:
        tree.raise_refusal(answer, "/proc/spawn", "Spawn")
    assert str(caught.value) == "[INVALID] Spawn: /proc/spawn (no agent x)"
    tree.raise_refusal(b"7\n", "/proc/spawn", "Spawn")


def test_every_command_has_its_module():
    """Each name of the table leads to a command of that name, with help."""
    group = main.cli
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert command.help
