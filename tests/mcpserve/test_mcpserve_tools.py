"""The tools of the tree as an MCP server, asked by the SDK's own client on a real mount."""

import base64
import json
import os
from typing import Any

import pytest
import trio
from mcp_types import ToolAnnotations

from rnixfs import limits
from tests.mcpserve.servelab import UNTIDY, Lab, Server, call, refused, text_of

pytestmark = pytest.mark.filterwarnings(UNTIDY)

TOOLS = {"ps", "ls", "read", "wait", "write", "kill", "spawn"}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_tools_are_listed(server: Server, mode: str) -> None:
    """Every tool says what it does, what it takes, what it gives, and whether it changes anything."""
    async with server.client(mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == TOOLS
    for tool in tools.values():
        assert tool.description
        assert tool.title
        assert tool.input_schema["additionalProperties"] is False
        assert tool.output_schema is not None
        for field in tool.input_schema["properties"].values():
            assert field["description"]
    hints = {name: tool.annotations or ToolAnnotations() for name, tool in tools.items()}
    assert {name for name, one in hints.items() if one.read_only_hint} == {"ps", "ls", "read", "wait"}
    assert {name for name, one in hints.items() if one.destructive_hint} == {"write", "kill"}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_same_by_standard_streams(lab: Lab, mode: str) -> None:
    """A client that starts the server itself gets the same, by the newest protocol and by older ones."""
    async with lab.stdio(mode=mode) as client:
        version = client.session.protocol_version
        assert (version == "2026-07-28") is (mode == "auto")
        assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
        assert (await text_of(client, "/sys/version")).count(".") == 2
        assert "README.md" in (client.session.instructions or "")


# --- processes ---


async def test_spawn_gives_the_result(server: Server) -> None:
    """An agent is started and waited for; its log comes as progress, its answer as the result."""
    told: list[str] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    async with server.client() as client:
        found: Any = await client.call_tool("spawn", {"intent": "run: echo there"}, progress_callback=tell)
    end = found.structured_content
    assert (end["ended"], end["code"], end["reason"]) == (True, 0, "done")
    assert found.content[0].text == end["result"] == "there\n(exit code 0)\n"
    assert any('tool shell {"command":"echo there"}' in line for line in told)


async def test_spawn_without_waiting(server: Server) -> None:
    """A process that nobody waits for is listed, waited for in vain, paused, and killed."""
    async with server.client() as client:
        begun = await call(client, "spawn", intent="wait 600 s", wait=False)
        pid = begun["pid"]
        assert begun["ended"] is False
        rows = {row["pid"]: row for row in (await call(client, "ps"))["processes"]}
        assert rows[pid]["intent"] == "wait 600 s"
        assert (await call(client, "wait", pid=pid, timeout_s=0))["ended"] is False
        await call(client, "kill", pid=pid, signal="PAUSE")
        assert json.loads(await text_of(client, f"/proc/{pid}/status"))["paused"] is True
        await call(client, "kill", pid=pid, signal="sigkill", tree=True)
        end = await call(client, "wait", pid=pid)
        assert (end["ended"], end["code"], end["reason"]) == (True, 1, "killed by SIGKILL")
        assert pid not in {row["pid"] for row in (await call(client, "ps"))["processes"]}


async def test_spawn_passes_everything_on(server: Server, lab: Lab) -> None:
    """What the client says of a process is what the process gets; it works where the server does."""
    async with server.client() as client:
        wanted: dict[str, Any] = {"agent": "default", "provider": "script", "max_steps": 7}
        wanted |= {
            "context_budget": 100_000,
            "system_prompt": "SYSTEM-MARK",
            "allowed_devices": ["/dev/shell"],
        }
        begun = await call(client, "spawn", intent="run: pwd", wait=False, **wanted)
        pid = begun["pid"]
        end = await call(client, "wait", pid=pid)
        assert end["result"].startswith(f"{lab.daemon.host}\n")
        assert "SYSTEM-MARK" in await text_of(client, f"/proc/{pid}/messages.json")
        assert json.loads(await text_of(client, f"/proc/{pid}/caps"))["granted"] == [
            "/dev/llm/script",
            "/dev/shell",
        ]
        assert json.loads(await text_of(client, f"/proc/{pid}/status"))["context_budget"] == 100_000


async def test_an_agent_that_fails(server: Server) -> None:
    """The failure of an agent is its end, with a code and a reason in words."""
    async with server.client() as client:
        found: Any = await client.call_tool("spawn", {"intent": "fail: DRIVER"})
    assert found.structured_content["code"] == 1
    assert "failed with code 1: [DRIVER]" in found.content[0].text


# --- files ---


async def test_folders_are_listed(server: Server) -> None:
    """A listing says of each name how it behaves."""
    async with server.client() as client:
        top = (await call(client, "ls"))["entries"]
        assert {"README.md", "dev", "lib", "mnt", "proc", "sys"} <= {entry["name"] for entry in top}
        pid = (await call(client, "spawn", intent="say hi"))["pid"]
        kinds = {
            entry["name"]: entry["type"]
            for entry in (await call(client, "ls", path=f"proc/{pid}"))["entries"]
        }
    expected = {
        "status": "document",
        "ctl": "control",
        "trace": "stream",
        "mailbox": "device",
        "steps": "folder",
    }
    assert expected | {"root": "link"} == {name: kinds[name] for name in [*expected, "root"]}


@pytest.mark.parametrize(
    "path", ["/sys/version", "sys/version", "rnix:///sys/version", "/proc/../sys//./version"]
)
async def test_ways_to_write_a_path(server: Server, path: str) -> None:
    """A path may be written with or without its slash, as a URI, and with detours."""
    async with server.client() as client:
        assert (await call(client, "read", path=path))["path"] == "/sys/version"


async def test_reading_in_parts(server: Server, lab: Lab) -> None:
    """Parts put together are the whole, and no character is cut."""
    text = "grün " * 30
    (lab.daemon.host / "long.txt").write_text(text)
    path, parts = f"/dev/fs{lab.daemon.host}/long.txt", ""
    offset: int | None = 0
    async with server.client() as client:
        while offset is not None:
            part = await call(client, "read", path=path, offset=offset, length=8)
            assert part["encoding"] == "utf-8"
            parts += part["content"]
            offset = part["next_offset"]
    assert parts == text


async def test_reading_bytes(server: Server, lab: Lab) -> None:
    """What is no text comes as base64."""
    (lab.daemon.host / "bytes").write_bytes(b"\xff\x00\xfe")
    async with server.client() as client:
        found = await call(client, "read", path=f"/dev/fs{lab.daemon.host}/bytes")
    assert (found["encoding"], base64.b64decode(found["content"])) == ("base64", b"\xff\x00\xfe")


async def test_names_that_are_no_unicode(server: Server, lab: Lab) -> None:
    """A folder of the host with such a name in it is listed all the same."""
    folder = lab.daemon.host / "odd"
    folder.mkdir()
    (folder / os.fsdecode(b"bad\xff")).write_text("x")
    (folder / "link").symlink_to(os.fsdecode(b"bad\xff"))
    path = f"/dev/fs{folder}"
    async with server.client() as client:
        names = [entry["name"] for entry in (await call(client, "ls", path=path))["entries"]]
        assert names == ["bad\\xff", "link"]
        assert await text_of(client, f"{path}/link") == "x"
        (part,) = (await client.read_resource(f"rnix://{path}")).contents
        assert "bad%FF" in str(part)


async def test_reading_a_stream(server: Server) -> None:
    """A stream is read for a time, and says that it was over."""
    async with server.client() as client:
        found = await call(client, "read", path="/proc/events", timeout_s=0.1)
        assert (found["timed_out"], found["ended"], found["next_offset"]) == (True, False, None)
        pid = (await call(client, "spawn", intent="say hi"))["pid"]
        ended = await call(client, "read", path=f"/proc/{pid}/wait", timeout_s=60)
        assert json.loads(ended["content"])["result"] == "hi"
        assert ended["ended"] is True


async def test_reading_a_device_asks_nothing(server: Server) -> None:
    """A device that is read says what it does; also after somebody asked it."""
    async with server.client() as client:
        await call(client, "write", path="/dev/shell", text="echo asked")
        assert "request" in json.loads(await text_of(client, "/dev/shell"))


async def test_asking_a_device(server: Server) -> None:
    """To write to a device is a whole exchange, by text or by JSON."""
    async with server.client() as client:
        plain = await call(client, "write", path="/dev/shell", text="echo $((6 * 7))")
        assert (plain["encoding"], plain["answer"]) == ("utf-8", "42\n")
        value = await call(client, "write", path="/dev/shell", value={"command": "echo hi; exit 3"})
        assert (value["answer"]["stdout"], value["answer"]["exit_code"]) == ("hi\n", 3)
        model = await call(client, "write", path="/dev/llm/script", value={"intent": "say hello"})
        assert model["answer"]["content"] == "hello"
        text = await call(client, "write", path="/dev/shell", text='{"command": "echo as text"}')
        assert text["answer"]["stdout"] == "as text\n"


async def test_a_device_that_takes_too_long(server: Server, lab: Lab) -> None:
    """When the time is over the exchange ends, and so does what ran."""
    async with server.client() as client:
        error = await refused(client, "write", path="/dev/shell", text="sleep 600", timeout_s=0.3)
    assert (error["code"], error["errno"]) == ("TIMEOUT", "ETIMEDOUT")
    await lab.until(lambda: not server.opened("dev"), "the device to be closed")


async def test_commands(server: Server) -> None:
    """A control takes a command, and gives no answer."""
    async with server.client() as client:
        pid = (await call(client, "spawn", intent="wait 600 s", wait=False))["pid"]
        done = await call(client, "write", path=f"/proc/{pid}/ctl", text="budget 5000\nkill\n")
        assert (done["encoding"], done["answer"]) == ("none", None)
        assert (await call(client, "wait", pid=pid))["reason"] == "killed by SIGKILL"


# --- failures ---


@pytest.mark.parametrize(
    ("tool", "arguments", "code", "errno", "words"),
    [
        ("read", {"path": "/proc/999999/status"}, "NOT_FOUND", "ENOENT", "no such file"),
        ("read", {"path": "/etc/passwd"}, "NOT_FOUND", "ENOENT", "no such file"),
        ("read", {"path": "/dev/fs/etc/passwd"}, "NOT_FOUND", "ENOENT", ""),
        ("read", {"path": "/proc"}, "IS_DIRECTORY", "EISDIR", "listed"),
        ("read", {"path": "/proc/events", "offset": 3}, "INVALID", "EINVAL", "offset"),
        ("read", {"path": "a\0b"}, "INVALID", "EINVAL", "NUL"),
        ("read", {}, "INVALID", "EINVAL", "path: Field required"),
        ("read", {"path": "/sys/version", "lenght": 3}, "INVALID", "EINVAL", "'lenght'"),
        ("read", {"path": "/sys/version", "length": 0}, "INVALID", "EINVAL", "length"),
        ("ls", {"path": "/sys/version"}, "NOT_DIRECTORY", "ENOTDIR", "folders"),
        ("ls", {"path": "/nowhere"}, "NOT_FOUND", "ENOENT", "no such file"),
        ("write", {"path": "/sys/version", "text": "x"}, "PERMISSION", "EACCES", "only read"),
        ("write", {"path": "/nowhere", "text": "x"}, "NOT_FOUND", "ENOENT", "no such file"),
        ("write", {"path": "/proc", "text": "x"}, "IS_DIRECTORY", "EISDIR", "folder"),
        ("write", {"path": "/dev/shell", "value": {"comand": "x"}}, "INVALID", "EINVAL", "'comand'"),
        ("write", {"path": "/dev/shell", "text": "x", "value": {}}, "INVALID", "EINVAL", "not both"),
        (
            "write",
            {"path": "/dev/llm/nobody", "value": {"intent": "hi"}},
            "SERVICE_UNAVAILABLE",
            "EAGAIN",
            "connect",
        ),
        (
            "write",
            {"path": "/dev/shell", "text": "x" * limits.REQUEST_MAX + "x"},
            "TOO_LARGE",
            "EFBIG",
            "1048577",
        ),
        ("write", {"path": "/sys/ctl", "text": "hop"}, "INVALID", "EINVAL", "hop"),
        ("kill", {"pid": 999999}, "NOT_FOUND", "ENOENT", "no process 999999"),
        ("kill", {"pid": 1, "signal": "TERM\ngrant /"}, "INVALID", "EINVAL", "no signal"),
        ("wait", {"pid": 999999}, "NOT_FOUND", "ENOENT", "no process 999999"),
        ("wait", {"pid": 0}, "INVALID", "EINVAL", "pid"),
        ("spawn", {"intent": "hi", "agent": "nobody"}, "NOT_FOUND", "ENOENT", "nobody"),
        ("spawn", {"intent": "hi", "provider": "none"}, "NOT_FOUND", "ENOENT", "none"),
        ("spawn", {"intent": "hi", "cwd": "relative"}, "INVALID", "EINVAL", "absolute"),
        ("nothing", {}, "NOT_FOUND", "ENOENT", "nothing"),
    ],
)
async def test_failures_are_told(
    server: Server, tool: str, arguments: dict[str, Any], code: str, errno: str, words: str
) -> None:
    """A failure is a result with the code, the errno, and the reason in words, as the kernel has them."""
    async with server.client() as client:
        error = await refused(client, tool, **arguments)
    assert (error["code"], error["errno"]) == (code, errno)
    assert words in error["message"]


# --- many ---


async def test_fifty_calls_at_once(server: Server) -> None:
    """Calls run side by side, and each gets its own answer."""
    answers: dict[int, str] = {}
    async with server.client() as client:

        async def ask(number: int) -> None:
            answers[number] = (await call(client, "write", path="/dev/shell", text=f"echo {number}"))[
                "answer"
            ]

        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(ask, number)
    assert answers == {number: f"{number}\n" for number in range(50)}


async def test_fifty_calls_at_once_by_standard_streams(lab: Lab) -> None:
    """The same on one pair of streams."""
    answers: list[str] = []
    async with lab.stdio() as client:

        async def ask() -> None:
            answers.append(await text_of(client, "/sys/version"))

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(ask)
    assert len(answers) == 50
    assert len(set(answers)) == 1
