"""What servers show below `mnt/mcp`, over both transports and both ages of the protocol."""

import json
import os
from collections.abc import AsyncIterator

import pytest
import trio

from rnixfs import limits
from rnixfs.device import Description
from rnixfs.errors import Code, SyscallError
from rnixfs.exchange import DeviceNode
from rnixfs.node import Dir
from rnixfs.types import Caller
from tests.groups.grouplab import refused
from tests.mcp.mcplab import PERSON, Lab, any_server, http_server, raw_server


@pytest.fixture(params=["stdio", "http"])
async def any_lab(lab: Lab, request: pytest.FixtureRequest) -> AsyncIterator[Lab]:
    """A system on which the server of the SDK is mounted as `any`."""
    if request.param == "stdio":
        await lab.mount("any", any_server())
        yield lab
        return
    process, url = await http_server(lab)
    try:
        await lab.mount("any", {"url": url, "headers": {"X-Test": "1"}})
        yield lab
    finally:
        process.kill()
        await process.wait()


async def test_a_server_is_a_folder(any_lab):
    """Its tools, resources and prompts are files, and its status says what it is."""
    names = any_lab.tree("any")
    assert {"status", "tools/add", "tools/add.json", "prompts/review"} <= set(names)
    resources = [name for name in names if name.startswith("resources/")]
    assert resources == [
        "resources/.templates.json",
        "resources/note:",
        "resources/note:/book",
        "resources/note:/book/first",
        "resources/note:/book/bytes",
        "resources/file:",
        "resources/file:/etc",
        "resources/file:/etc/motd",
    ]
    status = await any_lab.status("any")
    assert (status["state"], status["server"]["name"]) == ("ready", "anyserver")
    assert status["instructions"] == "For tests."
    assert status["requests"] == []
    definition = json.loads(await any_lab.read("any/tools/add.json"))
    assert (definition["name"], definition["inputSchema"]["required"]) == ("add", ["a"])
    templates = json.loads(await any_lab.read("any/resources/.templates.json"))
    assert [one["uriTemplate"] for one in templates] == ["note://page/{number}"]


async def test_a_tool_is_a_device(any_lab):
    """Its arguments are the request; texts, structured answers, pictures and links all arrive."""
    assert await any_lab.call("any/tools/add", {"a": 1, "b": 2}) == {
        "content": [{"type": "text", "text": '{\n  "total": 3\n}'}],
        "text": '{\n  "total": 3\n}',
        "structured": {"total": 3},
    }
    drawn = await any_lab.call("any/tools/picture", {})
    assert drawn["text"] == "a dot"
    assert [one["type"] for one in drawn["content"]] == ["text", "image", "resource_link"]
    assert drawn["content"][1] == {"type": "image", "data": "iVBORw0K", "mimeType": "image/png"}
    assert drawn["content"][2]["uri"] == "note://book/first"


async def test_a_tool_that_fails_says_why(any_lab):
    """In the server's words, as an error answer."""
    answer = await any_lab.call("any/tools/fail", {"words": "so sorry"})
    assert answer["error"]["code"] == "DRIVER"
    assert "so sorry" in answer["error"]["message"]
    assert answer["error"]["device"] == "/mnt/mcp/any/tools/fail"
    assert "so sorry" in (await any_lab.status("any"))["last_error"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"a": "x"}, ("tools/add: a is a string, not integer",)),
        ({}, ("the object lacks 'a'", "it takes a (required), b")),
        ({"a": 1, "b": None}, ("b is null, not integer",)),
        ([1], ("takes its arguments as a JSON object",)),
    ],
)
async def test_wrong_arguments_are_refused_in_write(lab, arguments, words):
    """With the path of the field and what would be right; the server does not see them."""
    await lab.mount("any", any_server())
    with refused(Code.INVALID, *words):
        await lab.call("any/tools/add", arguments)
    assert not any(line.startswith("add") for line in lab.entries())


async def test_a_tool_describes_itself_to_models(any_lab):
    """With its schema, and whether it may be repeated and run beside others."""

    def described(tool: str) -> Description:
        node = any_lab.node(f"any/tools/{tool}")
        assert isinstance(node, DeviceNode)
        return node.describe(PERSON)

    [tool] = described("echo").tools
    assert (tool.name, tool.read_only, tool.parallel) == ("mcp__any__echo", True, True)
    assert tool.input_schema["required"] == ["text"]
    [tool] = described("add").tools
    assert (tool.description, tool.read_only, tool.parallel) == ("Adds two numbers.", False, False)
    assert described("add").example == {"a": 1}
    assert json.loads(await any_lab.read("any/tools/add")).get("available", True)


async def test_closing_the_file_cancels_the_call_at_the_server(any_lab):
    """The server hears of it."""
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(any_lab.call, "any/tools/wait", {"name": "Ann"})
            await any_lab.until(lambda: "wait Ann" in any_lab.entries())
            assert (await any_lab.status("any"))["requests"] == [{"request": "tools/wait"}]
            scope.cancel()
    await any_lab.until(lambda: "cancelled Ann" in any_lab.entries())
    assert (await any_lab.call("any/tools/echo", {"text": "still there"}))["text"] == "still there"


async def test_many_calls_at_once(any_lab):
    """Each gets its own answer."""
    answers: dict[int, str] = {}

    async def one(number: int) -> None:
        answers[number] = (await any_lab.call("any/tools/echo", {"text": str(number)}))["text"]

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(one, number)
    assert answers == {number: str(number) for number in range(100)}


async def test_resources_are_documents(any_lab):
    """Texts and bytes as they are; a size is known when somebody has read them."""
    assert any_lab.stat("any/resources/note:/book/first").size == 0
    assert await any_lab.read("any/resources/note:/book/first") == b"one\n"
    assert any_lab.stat("any/resources/note:/book/first").size == 4
    assert await any_lab.read("any/resources/note:/book/bytes") == bytes(range(256))
    assert await any_lab.read("any/resources/file:///etc/motd") == b"hello\n"


async def test_what_matches_a_template_can_be_opened(any_lab):
    """Though it is not listed; whether it is there the server says."""
    assert await any_lab.read("any/resources/note:/page/7") == b"page 7\n"
    assert "page" not in any_lab.names("any/resources/note:")
    with pytest.raises(SyscallError) as caught:
        await any_lab.read("any/resources/note:/page/0")
    assert "page/0" in caught.value.reason
    with refused(Code.NOT_DIRECTORY):
        any_lab.node("any/resources/note:/page/1/2")
    for path in ("note:/leaf", "other:", "note:/book/second"):
        with refused(Code.NOT_FOUND):
            any_lab.node(f"any/resources/{path}")


async def test_searching_programs_ask_the_server_nothing(lab):
    """An open that does not wait, a listing or a look at sizes costs no request."""
    await lab.mount("raw", raw_server("good"))
    lab.tree("raw")
    with pytest.raises(trio.WouldBlock):
        lab.node("raw/resources/note:/a/b").open(PERSON, os.O_RDONLY | os.O_NONBLOCK).read(9, 0)
    assert not [line for line in lab.entries() if line.startswith("resources/")]
    with refused(Code.PERMISSION, "a resource"):
        lab.node("raw/resources/note:/a/b").open(PERSON, os.O_WRONLY)


async def test_prompts_are_devices(any_lab):
    """Arguments in, messages out; what is missing or too much is refused in write."""
    answer = await any_lab.call("any/prompts/review", {"code": "x = 1"})
    assert answer["description"] == "Asks for a review."
    assert answer["messages"][0]["content"]["text"] == "Review, and be kind: x = 1"
    for arguments, words in (
        ({}, "lacks the argument 'code'; it takes code, tone"),
        ({"code": 1}, "the argument 'code' must be a text"),
        ({"code": "x", "mood": "y"}, "takes no argument 'mood'"),
        (["x"], "takes its arguments as a JSON object"),
    ):
        with refused(Code.INVALID, words):
            await any_lab.call("any/prompts/review", arguments)


async def test_a_changed_list_shows_at_once(lab):
    """Names appear and vanish; what is no file's name is encoded; one that was held says that it is gone."""
    await lab.mount("any", any_server())
    before = lab.stat("any/tools").mtime_ns
    await lab.call("any/tools/grow", {"name": "new/one"})
    await lab.until(lambda: "new%2Fone" in lab.names("any/tools"))
    assert lab.stat("any/tools").mtime_ns > before
    assert (await lab.call("any/tools/new%2Fone", {}))["text"] == "new/one"
    held = lab.node("any/tools/new%2Fone")
    assert (await lab.call("any/tools/shrink", {"name": "new/one"}))["text"] == "new/one"
    await lab.until(lambda: "new%2Fone" not in lab.names("any/tools"))
    with refused(Code.NOT_FOUND, "no tools/new/one any more"):
        held.open(PERSON, os.O_RDWR).write(b"{}", 0)
    with refused(Code.NOT_FOUND):
        lab.node("any/tools/new%2Fone")


async def test_a_resource_that_was_opened_is_watched(lab):
    """When the server says that it changed, its time moves and its size is unknown again."""
    await lab.mount("any", any_server())
    assert await lab.read("any/resources/note:/book/first") == b"one\n"
    before = lab.stat("any/resources/note:/book/first").mtime_ns

    async def rewritten() -> bool:
        await lab.call("any/tools/rewrite", {"text": "other"})
        return lab.stat("any/resources/note:/book/first").mtime_ns > before

    # The subscription is made beside the reading.
    await lab.until_asked(rewritten)
    assert await lab.read("any/resources/note:/book/first") == b"other"
    assert lab.stat("any/resources/note:/book/first").size == 5


async def test_a_server_gets_only_safe_variables(lab):
    """And those that its configuration adds."""
    await lab.mount("any", any_server(env={"GIVEN": "1"}))
    names = (await lab.call("any/tools/environment", {}))["text"].split()
    assert {"PATH", "GIVEN", "DIARY"} <= set(names)
    assert "SECRET_OF_DAEMON" not in names


async def test_names_are_made_by_the_server(lab):
    """Nobody else makes or removes any."""
    await lab.mount("any", any_server())
    for path in ("any/tools", "any/resources", "any/prompts", "any/resources/note:"):
        folder = lab.node(path)
        assert isinstance(folder, Dir)
        with refused(Code.NOT_PERMITTED):
            folder.mkdir("x", 0o755, PERSON)
        with refused(Code.NOT_FOUND):
            folder.lookup("x", PERSON)
    assert lab.node("any/tools") == lab.node("any/tools")
    assert hash(lab.node("any/resources/note:")) == hash(lab.node("any/resources/note:"))


# --- servers of the older protocol ---


async def test_an_old_server_lists_by_pages(lab):
    """All pages are shown, and a list that changed is asked for again."""
    await lab.mount("raw", raw_server("good"))
    status = await lab.status("raw")
    assert (status["protocol"], status["tools"], status["prompts"]) == ("2025-06-18", 11, 0)
    assert len([name for name in lab.names("raw/tools") if not name.endswith(".json")]) == 11
    await lab.call("raw/tools/add_tool", {"name": "fresh"})
    await lab.until(lambda: "fresh" in lab.names("raw/tools"))


async def test_a_document_and_a_folder_of_one_name(lab):
    """Are both there: the document gets a sign at its end."""
    await lab.mount("raw", raw_server("good"))
    assert sorted(lab.names("raw/resources/note:")) == ["a", "a%."]
    assert await lab.read("raw/resources/note:/a%.") == b"one"
    assert await lab.read("raw/resources/note:/a/b") == b"two"


async def test_an_old_server_is_subscribed_to(lab):
    """Once a resource was opened, until it is unmounted."""
    await lab.mount("raw", raw_server("good"))
    assert await lab.read("raw/resources/note:/a%.") == b"one"
    await lab.until(lambda: "resources/subscribe note://a" in lab.entries())
    assert await lab.read("raw/resources/note:/a%.") == b"one"
    await lab.call("raw/tools/touch", {"text": "three"})
    await lab.until(lambda: lab.stat("raw/resources/note:/a%.").size == 0)
    assert await lab.read("raw/resources/note:/a%.") == b"three"
    assert lab.entries().count("resources/subscribe note://a") == 1


async def test_subscriptions_are_limited(lab, monkeypatch):
    """The one that was opened longest ago goes."""
    monkeypatch.setattr(limits, "MCP_SUBSCRIPTIONS_MAX", 1)
    await lab.mount("raw", raw_server("good"))
    await lab.read("raw/resources/note:/a%.")
    await lab.until(lambda: "resources/subscribe note://a" in lab.entries())
    await lab.read("raw/resources/note:/a/b")
    await lab.until(lambda: "resources/unsubscribe note://a" in lab.entries())


async def test_progress_is_seen_and_keeps_a_request_alive(lab):
    """The status shows it; a tool that goes on may take longer than a request that says nothing."""
    await lab.mount("raw", raw_server("good", request_ms=2000))
    seen: list[dict[str, object]] = []

    async def look() -> None:
        while True:
            seen.extend((await lab.status("raw"))["requests"])
            await trio.sleep(0.05)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        answer = await lab.call("raw/tools/slow", {"steps": 8, "seconds": 0.4})
        nursery.cancel_scope.cancel()
    assert answer["text"] == "done"
    assert {"request": "tools/slow", "progress": 1, "total": 8, "message": "on"} in seen


async def test_a_request_has_a_time_limit(lab):
    """Then the server is told to stop, and the next request is answered."""
    await lab.mount("raw", raw_server("good", request_ms=500))
    answer = await lab.call("raw/tools/hang", {})
    assert answer["error"]["code"] == "TIMEOUT"
    assert "tools/hang within 500 ms" in answer["error"]["message"]
    await lab.until(lambda: "notifications/cancelled" in lab.entries())
    assert (await lab.call("raw/tools/call", {"x": 1}))["text"] == '{"x": 1}'


async def test_a_server_refuses_in_its_own_words(lab):
    """Of a tool, and of a resource that is not there."""
    await lab.mount("raw", raw_server("good"))
    answer = await lab.call("raw/tools/refuse", {})
    assert answer["error"]["message"] == "the server refused (-32000): I will not"


# --- what servers ask for ---


async def test_questions_are_asked_where_that_is_allowed(lab):
    """Each is a file: reading shows it, writing answers it; its request has time until then."""
    await lab.mount("raw", raw_server("good", allow=["elicitation"], request_ms=1000))
    assert lab.names("raw/questions") == []
    answers: list[str] = []

    async def asking() -> None:
        answers.append((await lab.call("raw/tools/ask", {}))["text"])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(asking)
        await lab.until(lambda: lab.names("raw/questions") == ["1"])
        shown = json.loads(await lab.read("raw/questions/1"))
        assert shown["does"] == "Who?"
        assert shown["request"]["properties"]["content"]["required"] == ["name"]
        await trio.sleep(1.2)  # longer than a request may take: real time, of the server's own process
        with refused(Code.INVALID, "the action is one of accept"):
            await lab.call("raw/questions/1", {"name": "Ann"})
        with refused(Code.INVALID, "lacks 'name'"):
            await lab.call("raw/questions/1", {"action": "accept", "content": {}})
        request = {"action": "accept", "content": {"name": "Ann"}}
        assert await lab.call("raw/questions/1", request) == {"answered": "accept"}
    assert json.loads(answers[0]) == {"action": "accept", "content": {"name": "Ann"}}
    assert lab.names("raw/questions") == []


async def test_what_is_not_allowed_is_refused(lab):
    """A server that asks all the same is told so; there is no folder for questions."""
    await lab.mount("raw", raw_server("good"))
    assert "questions" not in lab.names("raw")
    for tool in ("ask", "think"):
        answer = json.loads((await lab.call(f"raw/tools/{tool}", {}))["text"])
        assert "not supported" in answer["message"].lower(), answer


async def test_sampling_goes_to_the_model_of_the_owner(lab):
    """Where it is allowed; the server gets what the model says."""
    asked: list[tuple[int, str]] = []

    async def sample(owner: int, request: dict) -> dict:
        asked.append((owner, request["messages"][0]["content"]["text"]))
        answer = {"type": "text", "text": "Thought."}
        return {"role": "assistant", "content": answer, "model": "m", "stopReason": "endTurn"}

    transports = lab.kernel.mounts.transports["stdio"]
    transports.sample = sample
    await lab.mount("raw", raw_server("good", allow=["sampling"]), Caller(0, 0))
    answer = json.loads((await lab.call("raw/tools/think", {}))["text"])
    assert answer["content"]["text"] == "Thought."
    assert asked == [(0, "Think.")]
