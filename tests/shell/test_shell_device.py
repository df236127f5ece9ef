"""The shell as a device: what it takes, what it answers, what it refuses."""

import os

import msgspec
import pytest
import trio

from rnixfs import limits
from rnixfs.children import Ended
from rnixfs.drivers.shell import Shell, parse
from rnixfs.errors import Code, SyscallError
from rnixfs.types import Caller, Place

CALLER = Caller(uid=os.getuid(), gid=os.getgid(), agent=3)


class Answer:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> None:
        self.data.extend(data)


class Terminal:
    """A shell and what it answers."""

    def __init__(self, host, mountpoint: str = "") -> None:
        self.host = host
        self.mountpoint = mountpoint
        self.answer = Answer()
        self.shell = Shell(host.children, self.whereabouts, lambda: self.mountpoint)

    def whereabouts(self, caller: Caller) -> Place:
        assert caller is CALLER
        return Place(cwd=self.host.cwd, env=self.host.env, roots=(), writable=True)

    async def text(self, command: str) -> str:
        """The answer to a request in text."""
        self.answer = Answer()
        await self.shell.accept(CALLER, command)(self.answer)
        return self.answer.data.decode()

    async def json(self, command: str, **fields):
        """The answer to a request in JSON."""
        self.answer = Answer()
        await self.shell.accept(CALLER, {"command": command, **fields})(self.answer)
        assert self.answer.data.endswith(b"\n")
        return msgspec.json.decode(self.answer.data)


@pytest.fixture
def terminal(host) -> Terminal:
    """A shell whose programs are gone after the test."""
    return Terminal(host)


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("echo hi", "hi\n"),
        ("echo hi\n", "hi\n"),
        ("printf hi", "hi"),
        ("true", ""),
        ("echo a; echo b >&2; echo c", "a\nb\nc\n"),
        ("exit 3", "[exit 3]\n"),
        ("echo no; exit 3", "no\n[exit 3]\n"),
        ("printf no; exit 3", "no\n[exit 3]\n"),
        ("kill -9 $$", "[exit 137]\n"),
        ("cat; echo $?", "0\n"),
        ("echo ${BASH_VERSION:+bash}", "bash\n"),
    ],
)
async def test_text_is_answered_in_text(terminal, command, answer):
    """Text gives what the command prints, and a last line only where it did not succeed."""
    assert await terminal.text(command) == answer


async def test_json_is_answered_in_json(terminal):
    """JSON gives one object with exactly the documented fields."""
    answer = await terminal.json("echo out; echo err >&2; exit 3")
    assert answer.pop("duration_ms") >= 0
    assert answer == {
        "stdout": "out\n",
        "stderr": "err\n",
        "exit_code": 3,
        "timed_out": False,
        "truncated": False,
    }


async def test_an_exit_code_after_a_signal_is_that_of_bash(terminal):
    """Death by signal n gives 128 + n."""
    assert (await terminal.json("kill -KILL $$"))["exit_code"] == 137


async def test_a_time_limit_is_told(terminal):
    """A command whose time is up says so, and nobody of it is left."""
    answer = await terminal.json("sleep 1000 & sleep 1000", timeout_ms=200)
    assert answer["timed_out"]
    # TERM, or KILL where the machine was too slow for the grace.
    assert answer["exit_code"] in (143, 137)
    assert terminal.host.living() == []


class EndedLate:
    """Stands for programs that use up their time."""

    async def run(self, argv, *, stdout, timeout, **place) -> Ended:
        stdout(b"so far")
        return Ended(-15, True, round(timeout * 1000))


async def test_a_time_limit_is_told_in_text():
    """In text the last line tells the limit, on a line of its own, instead of an exit code."""
    shell = Shell(EndedLate(), lambda caller: Place("/", {}, (), True))
    answer = Answer()
    await shell.accept(CALLER, "sleep 1000")(answer)
    assert answer.data == b"so far\n[timed out after 30000 ms]\n"


async def test_output_comes_while_the_command_runs(terminal, tmp_path):
    """A reader sees what was printed before the command ends."""
    os.mkfifo(tmp_path / "go")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(terminal.text, "printf first; read < go; echo ' second'")
        await terminal.host.until(lambda: terminal.answer.data == b"first", "the first word")
        # Both ways, so that opening waits for nobody; the command has it open when it has read.
        fd = os.open(tmp_path / "go", os.O_RDWR)
        os.write(fd, b"\n")
        await terminal.host.until(lambda: terminal.answer.data == b"first second\n", "the second word")
        os.close(fd)


async def test_cancelling_ends_the_command(terminal):
    """When nobody wants the answer any more, nobody of the command is left."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(terminal.text, "sleep 1000 & setsid sleep 1000 & echo ready; wait")
        await terminal.host.until(lambda: terminal.answer.data == b"ready\n", "the first line")
        nursery.cancel_scope.cancel()
    assert terminal.host.living() == []


async def test_long_output_is_cut_in_the_middle_and_counted(terminal):
    """Of 50 MB the beginning, the end and the exact count of the rest arrive, in both forms."""
    command = "yes | head -c 50000000; echo end"
    head, tail = "y\n" * 10_000, "y\n" * 4998 + "end\n"
    assert len(head + tail) == limits.SHELL_OUTPUT_MAX
    expected = f"{head}\n[… {50_000_004 - 30_000} characters cut …]\n{tail}"
    answer = await terminal.json(command)
    assert answer["stdout"] == expected
    assert (answer["stderr"], answer["truncated"], answer["exit_code"]) == ("", True, 0)
    assert await terminal.text(f"({command}) >&2; exit 4") == expected + "[exit 4]\n"


async def test_each_output_has_its_own_limit(terminal):
    """Much on one output cuts nothing from the other."""
    answer = await terminal.json(
        "head -c 30001 /dev/zero | tr '\\0' x >&2; head -c 30000 /dev/zero | tr '\\0' y"
    )
    assert answer["stdout"] == "y" * 30_000
    assert answer["stderr"] == "x" * 20_000 + "\n[… 1 characters cut …]\n" + "x" * 10_000
    assert answer["truncated"]


async def test_what_is_no_utf8_is_shown_as_such(terminal):
    """Any bytes give a valid answer; what is no UTF-8 is marked, what is arrives however it is cut."""
    command = r"printf '\xff ok \xe2'; sleep 0.05; printf '\x82\xac \xe2\x82'"
    assert await terminal.text(command) == "\ufffd ok € \ufffd"
    assert (await terminal.json(command))["stdout"] == "\ufffd ok € \ufffd"
    answer = await terminal.json("head -c 1000000 /dev/urandom; printf '\\0end'")
    assert answer["stdout"].endswith("\0end")


async def test_folder_and_environment(terminal, tmp_path):
    """A request can change where and with what a command runs, starting from the caller's place."""
    (tmp_path / "sub").mkdir()
    terminal.host.env |= {"KEPT": "1", "GONE": "2", "CHANGED": "3"}
    env = {"GONE": None, "CHANGED": "4", "ADDED": "5", "UNKNOWN": None}
    answer = await terminal.json("pwd; echo $KEPT $GONE $CHANGED $ADDED", cwd="sub", env=env)
    assert answer["stdout"] == f"{tmp_path}/sub\n1 4 5\n"
    assert (await terminal.json("pwd", cwd="/"))["stdout"] == "/\n"
    assert await terminal.text("pwd") == f"{tmp_path}\n"


async def test_no_inherited_variable_runs_a_file_first(terminal, tmp_path):
    """BASH_ENV and ENV of the caller are not heard; those of the request are."""
    start = tmp_path / "start"
    start.write_text("echo started\n")
    terminal.host.env |= {"BASH_ENV": str(start), "ENV": str(start)}
    assert await terminal.text("echo hi") == "hi\n"
    answer = await terminal.json("echo hi", env={"BASH_ENV": str(start)})
    assert answer["stdout"] == "started\nhi\n"


async def test_a_missing_folder_is_named(terminal):
    """A folder that is not there fails the job, not the daemon."""
    with pytest.raises(SyscallError, match="no-such-folder") as caught:
        await terminal.json("true", cwd="no-such-folder")
    assert caught.value.code == Code.NOT_FOUND


async def test_no_command_starts_in_the_own_mount(terminal, tmp_path):
    """The mount is refused as a folder, by its name, below it and through links; its neighbours are not."""
    for name in ("mount/proc", "mount2"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to("mount/proc")
    terminal.mountpoint = str(tmp_path / "mount")
    for cwd in ("mount", "mount/proc", "x/../mount/proc", str(tmp_path / "mount"), "link"):
        with pytest.raises(SyscallError, match="mount of rnix itself") as caught:
            await terminal.json("pwd", cwd=cwd)
        assert caught.value.code == Code.INVALID
    assert (await terminal.json("pwd", cwd="mount2"))["exit_code"] == 0


async def test_the_agent_is_told_by_its_session(terminal):
    """A command runs for the agent that asked."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(terminal.text, "echo $$; sleep 1000")
        await terminal.host.until(lambda: terminal.answer.data.endswith(b"\n"), "the pid of bash")
        assert terminal.host.children.agent_of(int(terminal.answer.data)) == 3
        nursery.cancel_scope.cancel()


async def test_fifty_commands_at_once(terminal):
    """Commands run beside each other, and each answer is its own."""
    answers = [Answer() for _ in range(50)]
    async with trio.open_nursery() as nursery:
        for number, answer in enumerate(answers):
            nursery.start_soon(terminal.shell.accept(CALLER, f"echo {number}; exit {number}"), answer)
    expected = [f"{number}\n[exit {number}]\n" for number in range(50)]
    expected[0] = "0\n"
    assert [answer.data.decode() for answer in answers] == expected


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("", "command is empty"),
        (" \n", "command is empty"),
        ("a\0b", "NUL"),
        ("\ud800", "Unicode"),
        ("x" * limits.ARGUMENT_MAX, "put it into a file"),
        (None, "JSON object such as"),
        (["ls"], "JSON object such as"),
        (7, "JSON object such as"),
        ({}, '"command" is missing'),
        ({"command": 7}, '"command" is 7; it must be a string'),
        ({"command": None}, '"command" is null'),
        ({"command": ""}, "command is empty"),
        ({"command": "ls", "comand": "ls"}, "unknown field 'comand'.*command, timeout_ms, cwd"),
        ({"command": "ls", "timeout_ms": "5"}, '"timeout_ms" is "5"; it must be a whole number'),
        ({"command": "ls", "timeout_ms": True}, '"timeout_ms" is true'),
        ({"command": "ls", "timeout_ms": 0.5}, '"timeout_ms" is 0.5'),
        ({"command": "ls", "timeout_ms": 0}, "from 1 to 600000"),
        ({"command": "ls", "timeout_ms": 600_001}, "from 1 to 600000"),
        ({"command": "ls", "cwd": 1}, '"cwd" is 1'),
        ({"command": "ls", "cwd": ""}, "\"cwd\" is ''"),
        ({"command": "ls", "cwd": "\0"}, '"cwd" is .*path of a folder'),
        ({"command": "ls", "env": []}, '"env" is \\[\\]; it must be an object'),
        ({"command": "ls", "env": {"A": 1}}, "'A': 1; it must be a string, or null"),
        ({"command": "ls", "env": {"": "x"}}, "name is not empty"),
        ({"command": "ls", "env": {"A": "x" * limits.ARGUMENT_MAX}}, "variable 'A'"),
        ({"command": "ls", "background": True}, "no background units"),
        ({"command": "ls", "background": "no"}, '"background" is "no"; it must be true or false'),
    ],
)
def test_what_is_wrong_is_refused_at_once(terminal, body, sentence):
    """A wrong request fails while its writer listens, and the reason names the field and what is right."""
    with pytest.raises(SyscallError, match=sentence) as caught:
        terminal.shell.accept(CALLER, body)
    assert caught.value.code == Code.INVALID


def test_numbers_and_nulls_as_models_write_them():
    """A whole number may be written as 5.0, and null means the default."""
    body = {"command": "ls", "timeout_ms": 5.0, "cwd": None, "env": None, "background": False}
    request = parse(body)
    assert (request.timeout_ms, request.cwd, request.env) == (5, "", {})
    assert parse({"command": "ls", "timeout_ms": None}).timeout_ms == limits.SHELL_TIMEOUT_MS


def test_the_description_is_true(terminal):
    """The example is accepted, all that the tool names is known, and the whole can be sent as JSON."""
    description = terminal.shell.describe(CALLER)
    assert parse(description.example).as_json
    assert description.available
    assert msgspec.json.decode(msgspec.json.encode(description))["device"] == "/dev/shell"
    (tool,) = description.tools
    assert (tool.name, tool.read_only, tool.parallel) == ("shell", False, False)
    assert set(tool.input_schema["properties"]) == {"command", "timeout_ms", "cwd"}
    assert set(tool.input_schema["properties"]) < set(description.request["properties"])
    assert terminal.shell.describe(CALLER) == description


def test_without_bash_it_says_so(host):
    """A host without bash has a shell that cannot be used, and says how to get one."""
    shell = Shell(host.children, lambda caller: Place("/", {}, (), True), find=lambda name: None)
    description = shell.describe(CALLER)
    assert (description.available, description.tools) == (False, [])
    assert "install" in description.reason
    with pytest.raises(SyscallError, match="bash") as caught:
        shell.accept(CALLER, "ls")
    assert caught.value.code == Code.SERVICE_UNAVAILABLE
