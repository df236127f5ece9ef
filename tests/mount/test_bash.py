"""Real programs over a real mount: what people and agents type."""

import json
import os
import pathlib
import re
import signal
import socket
import sys
from collections.abc import Iterator

import pytest

from tests.daemon import Daemon, Program, quoted, running, state_of, until
from tests.mount.agents import done, gated, live, shown, spawn, text
from tests.mount.terminal import PROMPT, Terminal


@pytest.fixture(scope="module")
def folder(daemon: Daemon) -> str:
    """The folder of a finished process in a script: `$M/proc/history/<uuid>`, which stays."""
    pid = done(daemon, "run: seq 1 3")
    return f"$M/proc/history/{shown(daemon, f'proc/{pid}/status')['uuid']}"


# --- tools that read ---


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("cat $P/result", "1\n2\n3\n(exit code 0)\n"),
        ("cat $P/intent", "run: seq 1 3"),
        ("head -n1 $P/result; tail -n1 $P/result; tail -n +2 $P/result | head -n1", "1\n(exit code 0)\n2\n"),
        ("head -c 3 $P/result; tail -c 3 $P/result", "1\n20)\n"),
        ("sed -n 2p $P/result; sed 's/3/three/' $P/result | grep th", "2\nthree\n"),
        ("dd if=$P/result bs=1 skip=2 count=2 status=none", "2\n"),
        ("dd if=$P/trace.jsonl bs=7 status=none | cmp - $P/trace.jsonl && echo same", "same\n"),
        ("jq -r .state $P/status", "dead\n"),
        ("jq -r .exit.code $P/status", "0\n"),
        ("jq -r .tool_calls[0].name $P/steps/1.json", "shell\n"),
        ("jq -s length $P/steps.jsonl", "2\n"),
        ("ls $P/steps", "1.json\n2.json\n"),
        ("ls $P | tr '\\n' ' '", "caps children context ctl env fd intent log mailbox messages.json "
         "recv result root signals status steps steps.jsonl threads trace trace.jsonl wait "),
        ("stat -c %F $P $P/status $P/trace", "directory\nregular file\nsymbolic link\n"),
        ("[ $(stat -c %s $P/log) = $(cat $P/log | wc -c) ] && echo true", "true\n"),
        ("[ $(wc -c < $P/messages.json) = $(cat $P/messages.json | wc -c) ] && echo true", "true\n"),
        ("[ -s $P/status ] && [ ! -s $P/children ] && echo true", "true\n"),
        ("find $P -name status -size +0 -printf '%f\\n'", "status\n"),
        ("find $P/steps -type f -exec cat {} + | wc -l", "2\n"),
        ("grep -l '\"tool_path\":\"/dev/shell\"' -r $P/steps | wc -l", "1\n"),
        ("grep -c . $P/result", "4\n"),
        ("wc -l < $P/result", "4\n"),
        ("sort -r $P/result | head -n1", "3\n"),
        ("cp $P/status copy; cmp copy $P/status && echo same", "same\n"),
        ("cp -r $P/steps c; diff -r c $P/steps && echo same; chmod -R u+w c; rm -r c", "same\n"),
        ("tar cf - -C $P steps log | tar tf - | wc -l", "4\n"),
        ("tar cf - -C $P log | tar xf - -O | cmp - $P/log && echo same", "same\n"),
        ("sha1sum < $P/log | cmp - <(cat $P/log | sha1sum) && echo same", "same\n"),
        ("while read -r line; do echo \"<$line>\"; done < $P/result | head -n2", "<1>\n<2>\n"),
        ("mapfile -t lines < $P/result; echo ${#lines[@]}", "4\n"),
        ("exec 5< $P/result; read -r a <&5; read -r b <&5; echo $b$a", "21\n"),
        ("x=$(<$P/result); echo \"${x%%$'\\n'*}\"", "1\n"),
        ("cat $P/wait | jq .code", "0\n"),
        ("cat $M/dev/fs$PWD/hello.txt", "hello\n"),
        ("tail -n1 $M/README.md | wc -l", "1\n"),
        ("cd $M/proc && cat ../sys/version | wc -l", "1\n"),
        ("cat $M/lib/skills/shell-use/SKILL.md | head -n1", "---\n"),
        ("python3 -c \"import sys; print(open(sys.argv[1]).readline().strip())\" $P/result", "1\n"),
        ("python3 -c \"import mmap, sys; f = open(sys.argv[1]);"
         " print(mmap.mmap(f.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ)[:1])\" $P/result", "b'1'\n"),
        ("test -r $P/status && test -d $P && test -L $P/wait && echo true", "true\n"),
    ],
)  # fmt: skip
def test_tools_read_what_is_there(daemon: Daemon, folder: str, script: str, expected: str) -> None:
    """Every tool that reads files reads these, whole, and comes to an end."""
    assert daemon.out(f"P={folder}; {script}") == expected


def test_rsync_copies_all_that_is_a_file(daemon: Daemon, folder: str) -> None:
    """rsync finds true sizes, copies every byte, and leaves links alone."""
    daemon.out(f"rsync -rlt --chmod=ugo=rwX {folder}/ copied/")
    assert (
        daemon.out(f"for f in status log messages.json trace.jsonl; do cmp {folder}/$f copied/$f; done") == ""
    )
    assert os.readlink(daemon.host / "copied" / "trace") == ".live/trace"


def test_tail_follows_a_log(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    """tail -f shows the log from its start, then each line as it comes, and complains about nothing."""
    gate = tmp_path / "gate"
    pid = gated(daemon, gate)
    tail = daemon.program(["bash", "-c", f"exec tail -s 0.05 -n +1 -f $M/proc/{pid}/log 2>&1"])
    assert re.match(r"\[.*s\] step 1", tail.line())
    assert " tool shell " in tail.line()
    gate.touch()
    lines = ""
    while "step 2" not in lines:
        lines += tail.line()
    assert "through" in lines
    assert "tail:" not in lines
    daemon.forget(tail)


def test_a_stream_shows_each_record_at_once(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    """cat of a trace prints calls while the process runs and ends when it ends."""
    gate = tmp_path / "gate"
    pid = gated(daemon, gate)
    cat = daemon.script(f"exec cat $M/proc/{pid}/trace")
    until(cat.blocked, "cat waits for the trace")
    gate.touch()
    done = cat.end()
    assert (done.status, done.err) == (0, "")
    for line in done.out.splitlines():
        assert re.fullmatch(r"\[ *\d+\.\d{3}s\] [A-Z]\w+\(.*\) = .*  \d+ms", line), line
    assert "through" in text(daemon, f"proc/{pid}/result")


# --- tools that write ---


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo 'echo hi' > $D; cat $D", "hi\n"),
        ("echo 'echo hi' >> $D; cat $D; cat $D", "hi\nhi\n"),
        ("echo 'echo one' > $D; cat $D; echo 'echo two' > $D; cat $D", "one\ntwo\n"),
        ("echo 'echo hi' > $D; cat $D; : > $D; jq -r .device $D", "hi\n/dev/shell\n"),
        ("printf 'echo a\\necho b' > $D; cat $D", "a\nb\n"),
        ("echo 'echo hi' | tee $D; cat $D", "echo hi\nhi\n"),
        ("echo 'echo hi' | dd of=$D status=none; cat $D", "hi\n"),
        ("echo 'echo hi' | dd of=$D bs=1 status=none; cat $D", "hi\n"),
        ("cp <(echo 'echo hi') $D; cat $D", "hi\n"),
        ("cat > $D <<< 'echo hi'; cat $D", "hi\n"),
        ("jq -n '{command: \"echo hi; exit 4\"}' > $D; jq -c '[.stdout, .exit_code]' $D", '["hi\\n",4]\n'),
        ("{ echo '{\"command\":'; echo '\"echo hi\"}'; } > $D; jq -r .stdout $D", "hi\n\n"),
        ("echo 'seq 1 4' > $D; while read -r n; do echo \"<$n>\"; done < $D", "<1>\n<2>\n<3>\n<4>\n"),
        ("echo 'echo hi' > $D; head -c1 $D; tail -c2 $D", "hi\n"),
        ("exec 3<>$D; echo 'echo hi' >&3; cat <&3; echo 'echo you' >&3; cat <&3", "hi\nyou\n"),
        ("exec 3<>$D; echo 'seq 1 3' >&3; while read -r n <&3; do echo \"<$n>\"; done", "<1>\n<2>\n<3>\n"),
        ("exec 3<>$D; echo '{\"command\": \"pwd\"}' >&3; jq -r .stdout <&3", "{host}\n\n"),
        ("exec 3<>$D; echo 'echo hi' >&3; read -r x <&3; echo $x; jq -r .device $D", "hi\n/dev/shell\n"),
        ("exec 3<>$D 4<>$D; echo 'echo a' >&3; echo 'echo b' >&4; cat <&4; cat <&3", "b\na\n"),
        ("(echo 'echo hi' > $D); (cat $D)", "hi\n"),
        ("echo 'echo mine' > $D; setsid -w cat $D | jq -r .device; cat $D", "/dev/shell\nmine\n"),
        ("echo 'seq 1 100000' > $D; cat $D | tail -n1", "100000\n"),
        ("echo '{\"intent\":\"say hi\"}' > $M/dev/llm/script; jq -r .content $M/dev/llm/script", "hi\n"),
        ("touch $D && cat $D | jq -r .device", "/dev/shell\n"),
        ("truncate -s 0 $D && cat $D | jq -r .device", "/dev/shell\n"),
        ("python3 -c 'import sys; f = open(sys.argv[1], \"r+\"); f.write(\"echo hi\"); f.seek(0);"
         " print(f.read())' $D", "hi\n\n"),
    ],
)  # fmt: skip
def test_tools_ask_devices(daemon: Daemon, script: str, expected: str) -> None:
    """Every way to write a request and read its answer in a shell gives that answer."""
    assert daemon.out(f"D=$M/dev/shell; {script}") == expected.replace("{host}", str(daemon.host))


def test_a_refused_write_says_so(daemon: Daemon) -> None:
    """echo reports the errno, and the file says why."""
    done = daemon.bash("echo '{\"comand\": 1}' > $M/dev/shell; echo $?; jq -r .error.message $M/dev/shell")
    assert "write error: Invalid argument" in done.err
    assert done.out.startswith("1\nunknown field 'comand'")
    done = daemon.bash("echo nonsense > $M/sys/ctl")
    assert "write error: Invalid argument" in done.err
    assert done.status == 1


@pytest.mark.parametrize(
    "script",
    [
        "sed -i s/a/b/ $P/status",
        "echo x > $P/status",
        "echo x >> $P/log",
        "rm -f $P/status",
        "mv $P/status $P/other",
        "mkdir $P/new",
        "touch $P/new",
        "ln -s x $P/new",
        "ln $P/status $P/new",
        "mkfifo $P/new",
        "chmod 777 $P/status",
        "rmdir $P",
        "cp /etc/hostname $P/new",
    ],
)
def test_what_cannot_be_changed_says_so(daemon: Daemon, folder: str, script: str) -> None:
    """Tools that change files fail with a reason that fits (never an I/O error), and nothing is changed."""
    before = daemon.out(f"ls {folder}; cat {folder}/status")
    done = daemon.bash(f"P={folder}; {script}")
    assert done.status != 0
    assert re.search(
        "Permission denied|Operation not permitted|Read-only|preserving permissions", done.err
    ), done
    assert "put/output error" not in done.err
    assert daemon.out(f"ls {folder}; cat {folder}/status") == before


def test_two_scripts_share_nothing(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    """Two login sessions at once: each reads its own answers only."""
    loop = 'for n in 1 2 3 4 5; do echo "echo {0}-$n" > $M/dev/shell; cat $M/dev/shell; done'
    scripts = [daemon.script(loop.format(name)) for name in ("a", "b", "c")]
    for name, script in zip(("a", "b", "c"), scripts, strict=True):
        assert script.end().out == "".join(f"{name}-{n}\n" for n in range(1, 6))


def test_permission_bits_allow_what_can_be_done(daemon: Daemon) -> None:
    """The bits that are shown let the mount's owner do all that the tree offers, without being root: ask
    devices, command and remove processes, but not write to documents."""
    pid = live(daemon)
    done = daemon.plain(
        f"cd $M; echo 'echo hi' > dev/shell; cat dev/shell; echo pause > proc/{pid}/ctl; "
        f"jq .paused proc/{pid}/status; rmdir proc/{pid}; [ -e proc/{pid} ] || echo gone"
    )
    assert (done.status, done.out, done.err) == (0, "hi\ntrue\ngone\n", "")
    for script in ("mkdir $M/proc/x", "touch $M/x", "echo x > $M/proc/processes", "chmod 777 $M/dev/shell"):
        done = daemon.plain(script)
        assert re.search("Permission denied|Operation not permitted", done.err), done


# --- waits that end ---


def test_a_time_limit_ends_a_wait(daemon: Daemon) -> None:
    """timeout(1) ends a program that waits in the mount."""
    pid = live(daemon)
    assert daemon.bash(f"timeout 0.3 head -n1 $M/proc/{pid}/wait").status == 124
    assert daemon.bash("exec 3<>$M/dev/shell; echo 'sleep 500' >&3; timeout 0.3 cat <&3").status == 124
    daemon.out(f"rmdir $M/proc/{pid}")


@pytest.fixture
def terminal(daemon: Daemon) -> Iterator[Terminal]:
    """An interactive shell."""
    terminal = Terminal(daemon)
    yield terminal
    terminal.clear()


WAITS = (
    "cat $M/proc/PID/wait",
    "head -n1 $M/proc/PID/trace",
    "cat $M/proc/PID/wait | cat",
    "x=$(cat $M/proc/PID/wait)",
    "exec 3<>$M/dev/shell; echo 'sleep 500' >&3; cat <&3",
    "echo 'sleep 500' > $M/dev/shell; cat $M/dev/shell",
)


@pytest.mark.parametrize(
    ("command", "key"),
    [
        *((wait, "\x03") for wait in WAITS),
        *((wait, "\x1c") for wait in WAITS),
        # Here the interactive bash itself waits, and it takes no notice of Ctrl-\ anywhere.
        ("read -r x < $M/proc/PID/wait", "\x03"),
    ],
)
def test_keys_end_a_wait(daemon: Daemon, terminal: Terminal, command: str, key: str) -> None:
    """Ctrl-C and Ctrl-\\ on a terminal end what waits in the mount, and the shell goes on."""
    pid = live(daemon)
    terminal.type(command.replace("PID", str(pid)) + "\n")
    until(terminal.blocked, f"{command} waits")
    terminal.type(key)
    terminal.expect(PROMPT)
    terminal.type("echo al''ive\n")
    terminal.expect("alive\r\n")
    daemon.out(f"rmdir $M/proc/{pid}")


def test_a_wait_can_be_stopped_and_goes_on(daemon: Daemon, terminal: Terminal) -> None:
    """Ctrl-Z stops a program that waits, and fg lets it wait on and get its answer."""
    pid = live(daemon)
    terminal.type(f"cat $M/proc/{pid}/wait\n")
    until(terminal.blocked, "cat waits")
    terminal.type("\x1a")
    terminal.expect("Stopped")
    terminal.expect(PROMPT)
    terminal.type("fg\n")
    until(terminal.blocked, "cat waits again")
    daemon.out(f"echo kill > $M/proc/{pid}/ctl")
    terminal.expect('"reason":"killed by SIGKILL"')
    terminal.expect(PROMPT)


# --- nothing is spent by looking ---


class Spies:
    """A daemon whose models and shell leave marks when they are used.

    Args:
        folder: for all of it.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.marks = folder / "marks"
        self.marks.mkdir()
        self.tools = folder / "tools"
        self.tools.mkdir()
        for name in ("claude", "cursor-agent", "bash"):
            program = self.tools / name
            program.write_text(f'#!/bin/bash -p\ntouch {quoted(self.marks / name)}\nexec /bin/bash "$@"\n')
            program.chmod(0o755)
        (folder / "mark.sh").write_text(f"touch {quoted(self.marks / 'BASH_ENV')}\n")
        self.startup = folder / "mark.sh"
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.socket.setblocking(False)
        config = folder / "home" / ".config" / "rnix"
        config.mkdir(parents=True)
        (config / "providers.yaml").write_text(
            "version: 1\nproviders:\n  - name: local\n    driver: openai-compat\n"
            f"    base_url: http://127.0.0.1:{self.socket.getsockname()[1]}/v1\n    default_model: m\n"
        )

    def seen(self) -> set[str]:
        """What was used so far."""
        found = {mark.name for mark in self.marks.iterdir()}
        try:
            self.socket.accept()[0].close()
        except BlockingIOError:
            return found
        return found | {"network"}


@pytest.fixture
def spies(tmp_path: pathlib.Path) -> Iterator[Spies]:
    """Spies, not yet called by anybody."""
    spies = Spies(tmp_path)
    yield spies
    spies.socket.close()


@pytest.fixture
def spied(tmp_path: pathlib.Path, spies: Spies) -> Iterator[Daemon]:
    """A daemon that finds the spies where it looks for models and the shell."""
    path = f"{spies.tools}{os.pathsep}{os.environ['PATH']}"
    with running(tmp_path, env={"PATH": path, "BASH_ENV": str(spies.startup)}) as daemon:
        # The tests' own programs are to leave no marks.
        daemon.env |= {"PATH": os.environ["PATH"]}
        del daemon.env["BASH_ENV"]
        yield daemon


def children_of(pid: int) -> list[str]:
    """The programs that a process has started and that have not ended."""
    folders = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return [child for folder in folders for child in (folder / "children").read_text().split()]


@pytest.mark.parametrize(
    "script",
    [
        "grep -rq 'no such words' $M; [ $? = 1 ]",
        "find $M -type f -exec cat {} + | wc -c",
        "find $M -type f -exec head -c 100 {} \\; | wc -c",
        "tar cf - --warning=no-file-changed --warning=no-file-shrank -C $M . | wc -c",
        # What sys/stats says gets shorter, too, and rsync tells of files that do.
        "rsync -rlt --chmod=ugo=rwX --exclude=/sys/stats $M/ copied/ && rm -rf copied",
        "ls -laR $M; du -s $M",
        'for f in $(find $M); do [ -r "$f" ] && [ -x "$f" ] && file=$f; done; true',
    ],
)
def test_recursive_tools_spend_nothing_and_end(spied: Daemon, spies: Spies, script: str) -> None:
    """Whoever reads all of the tree asks no model, runs no command, uses no network, makes no process and
    does not wait, though a process runs."""
    pid = spawn(spied, "wait 500 s")
    before = spied.out("ls $M/proc; cat $M/proc/processes | wc -l")
    done = spied.bash(script)
    assert (done.status, done.err) == (0, ""), done
    assert spies.seen() == set()
    assert spied.out("ls $M/proc; cat $M/proc/processes | wc -l") == before
    assert children_of(spied.process.pid) == []
    assert shown(spied, f"proc/{pid}/status")["steps"] == 1


def test_the_spies_speak_when_they_are_asked(spied: Daemon, spies: Spies) -> None:
    """The test above can fail: asked by a request, each of them leaves its mark."""
    seen: set[str] = set()
    for name in ("claude", "local"):
        spied.out(f'echo \'{{"intent": "x"}}\' > $M/dev/llm/{name}')

    def both() -> bool:
        seen.update(spies.seen())
        return seen >= {"claude", "network"}

    until(both, "both models are asked")
    assert not spies.seen() & {"bash", "BASH_ENV"}
    request = json.dumps({"command": "true", "env": {"BASH_ENV": str(spies.startup)}})
    spied.out(f"echo {quoted(request)} > $M/dev/shell; cat $M/dev/shell")
    assert spies.seen() >= {"bash", "BASH_ENV"}


@pytest.mark.parametrize("script", ["rm -rf $M", "rm -rf $M/*", "find $M/dev $M/lib $M/sys -delete"])
def test_removing_all_of_the_mount_removes_nothing_of_the_host(tmp_path: pathlib.Path, script: str) -> None:
    """`rm -rf` of the mount fails; the host's files, the mount and its devices are as before."""
    with running(tmp_path) as daemon:
        (daemon.host / "sub").mkdir()
        for name in ("one.txt", "sub/two.txt"):
            (daemon.host / name).write_text(f"{name}\n")
        assert daemon.bash(script).status != 0
        assert (daemon.host / "one.txt").read_text() == "one.txt\n"
        assert (daemon.host / "sub" / "two.txt").read_text() == "sub/two.txt\n"
        assert daemon.out("echo 'echo alive' > $M/dev/shell; cat $M/dev/shell") == "alive\n"
        assert daemon.out("ls $M") == "README.md\ndev\nlib\nmnt\nproc\nsys\n"


# --- signals to what waits ---


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
@pytest.mark.parametrize(
    "script",
    [
        "exec cat $M/proc/PID/wait",
        "exec 3<>$M/dev/shell; echo 'sleep 500' >&3; exec cat <&3",
        "exec 3<$M/proc/PID/wait; (exec cat <&3) & wait",
        f"exec {quoted(sys.executable)} -I -S -c 'open(\"'$M/proc/PID/wait'\").read()'",
    ],
)
def test_signals_end_a_wait(daemon: Daemon, script: str, number: int) -> None:
    """A program that waits in the mount dies of the signals that end programs elsewhere; nothing is left."""
    pid = live(daemon)
    program = daemon.script(script.replace("PID", str(pid)))
    until(program.blocked, f"{script} waits")
    signal_all(program, number)
    until(lambda: not program.members(), f"nothing is left of {script}")
    assert state_of(program.pid) == ""
    daemon.forget(program)
    daemon.out(f"rmdir $M/proc/{pid}")


def signal_all(program: Program, number: int) -> None:
    """A signal to every process of a program; those in the background of a script ignore SIGINT."""
    program.signal(number)
    if number == signal.SIGINT:
        program.signal(signal.SIGTERM)
