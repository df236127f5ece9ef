"""Resources, subscriptions and prompts of the tree as an MCP server."""

import base64
import json
from typing import Any

import pytest
import trio
from mcp.shared.exceptions import MCPError
from mcp_types import PromptReference, ResourceTemplateReference

from tests.mcpserve.servelab import UNTIDY, Lab, Server, call

pytestmark = pytest.mark.filterwarnings(UNTIDY)


async def contents(client: Any, uri: str) -> Any:
    """What is in a resource of one part."""
    (part,) = (await client.read_resource(uri)).contents
    return part


async def test_documents_are_listed(server: Server) -> None:
    """What tells of the whole tree is listed, and the files of each process; each can be read."""
    async with server.client() as client:
        pid = (await call(client, "spawn", intent="wait 600 s listed", wait=False))["pid"]
        uris = [resource.uri for resource in (await client.list_resources()).resources]
        assert {"rnix:///README.md", "rnix:///sys/version", "rnix:///proc/processes"} <= set(uris)
        assert {f"rnix:///proc/{pid}/{name}" for name in ("status", "log", "result")} <= set(uris)
        for uri in uris:
            assert (await contents(client, uri)).uri == uri
        templates = (await client.list_resource_templates()).resource_templates
        assert [one.uri_template for one in templates] == ["rnix:///{+path}"]
        await call(client, "kill", pid=pid, signal="KILL")


async def test_contents_have_types(server: Server, lab: Lab) -> None:
    """JSON is told as JSON, text as text, bytes as bytes, and a folder gives its listing."""
    (lab.daemon.host / "a b.bin").write_bytes(b"\xff\x00")
    async with server.client() as client:
        await call(client, "spawn", intent="say hi")
        status = await contents(client, "rnix:///proc/1/status")
        assert (status.mime_type, json.loads(status.text)["pid"]) == ("application/json", 1)
        assert (await contents(client, "rnix:///sys/version")).mime_type == "text/plain"
        assert (await contents(client, "rnix:///README.md")).mime_type == "text/markdown"
        found = await contents(client, f"rnix:///dev/fs{lab.daemon.host}/a%20b.bin")
        assert base64.b64decode(found.blob) == b"\xff\x00"
        folder = json.loads((await contents(client, "rnix:///sys")).text)
        assert "rnix:///sys/version" in {entry["uri"] for entry in folder["entries"]}


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("rnix:///proc/999999/status", "NOT_FOUND"),
        ("rnix:///../../etc/passwd", "NOT_FOUND"),
        ("rnix:///%2e%2e/%2e%2e/etc/passwd", "NOT_FOUND"),
        ("rnix:///a%00b", "NUL"),
        ("file:///etc/passwd", "rnix:///PATH"),
    ],
)
async def test_resources_that_are_not_there(server: Server, uri: str, words: str) -> None:
    """What cannot be read is an error of the protocol that says why."""
    async with server.client() as client:
        with pytest.raises(MCPError, match=words) as caught:
            await client.read_resource(uri)
    assert caught.value.error.code == -32602


async def test_subscriptions_of_the_newest_protocol(server: Server) -> None:
    """A client that listens is told when a process changes, and when there is another one."""
    async with server.client() as client:
        pid = (await call(client, "spawn", intent="wait 600 s heard", wait=False))["pid"]
        uri = f"rnix:///proc/{pid}/status"
        async with client.listen(resource_subscriptions=[uri], resources_list_changed=True) as heard:
            kinds = set()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(call_often, client, pid)
                async for event in heard:
                    kinds.add(type(event).__name__)
                    if len(kinds) == 2:
                        break
                nursery.cancel_scope.cancel()
        assert kinds == {"ResourceUpdated", "ResourcesListChanged"}
        await call(client, "kill", pid=pid, signal="KILL")


async def call_often(client: Any, pid: int) -> None:
    """Change a process, and have others come and go, until cancelled: the first may be before it is heard."""
    while True:
        await call(client, "write", path=f"/proc/{pid}/ctl", text="budget 1000")
        await call(client, "spawn", intent="say hi")


@pytest.mark.filterwarnings("ignore:resources/:mcp.shared.exceptions.MCPDeprecationWarning")
async def test_subscriptions_of_older_protocols(lab: Lab) -> None:
    """A client that subscribes to a resource is told when it changes, and no more after it unsubscribes."""
    told = trio.Event()

    async def take(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/resources/updated":
            assert message.params.uri.endswith("/status")
            told.set()

    with lab.serving() as server:
        async with server.client("legacy", message_handler=take) as client:
            pid = (await call(client, "spawn", intent="wait 600 s told", wait=False))["pid"]
            await client.subscribe_resource(f"rnix:///proc/{pid}/status")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(call_often, client, pid)
                await told.wait()
                nursery.cancel_scope.cancel()
            await client.unsubscribe_resource(f"rnix:///proc/{pid}/status")
            await call(client, "kill", pid=pid, signal="KILL")
            with trio.fail_after(60):
                while server.opened("proc"):
                    # Each call is an event, after one of which the events are closed.
                    await call(client, "spawn", intent="say hi")


async def test_agents_are_prompts(server: Server) -> None:
    """Each agent is a prompt that says what it is for and how it is put to work."""
    async with server.client() as client:
        prompts = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
        assert {"agent/default", "agent/code-analyst"} <= set(prompts)
        found: Any = await client.get_prompt("agent/default", {"task": "count the stars"})
        (message,) = found.messages
        assert '{"intent": "count the stars", "agent": "default"}' in message.content.text
        assert (prompts["agent/default"].description or "?") in message.content.text
        for name, arguments in (("agent/nobody", {}), ("agent/default", {"tusk": "x"})):
            with pytest.raises(MCPError):
                await client.get_prompt(name, arguments)


async def test_paths_are_completed(server: Server) -> None:
    """A client that has begun a path is told how it may go on; of what is not there, nothing."""
    async with server.client() as client:
        reference = ResourceTemplateReference(uri="rnix:///{+path}")
        expected = {"ver": [], "sys/ver": ["sys/version"], "s": ["sys/"], "nowhere/x": []}
        for begun, values in expected.items():
            found = await client.complete(reference, {"name": "path", "value": begun})
            assert found.completion.values == values
        task = await client.complete(PromptReference(name="agent/default"), {"name": "task", "value": "x"})
        assert task.completion.values == []
