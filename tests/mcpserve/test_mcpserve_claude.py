"""The real `claude` command as a client of the tree: its model is played, all else is real."""

import json
import pathlib
from typing import Any

import trio

from tests.daemon import SECONDS, Program
from tests.mcpserve.servelab import Lab
from tests.models.anthropic import stream_of
from tests.models.programs import real_claude
from tests.models.servers import Seen, Stream, head, serving

TOOL = "mcp__rnix__spawn"


class Played:
    """A model that calls a tool once, and then says what came of it."""

    def __init__(self) -> None:
        self.offered: set[str] = set()
        self.results: list[str] = []

    async def __call__(self, seen: Seen, stream: Stream) -> None:
        """Answer a request."""
        if seen.method != "POST" or not seen.path.startswith("/v1/messages?"):
            await stream.send_all(head(404, {"content-type": "application/json"}) + b"{}")
            return
        self.offered |= {tool["name"] for tool in seen.json.get("tools", ())}
        results = [block for block in blocks_of(seen.json) if block.get("type") == "tool_result"]
        if results:
            self.results = [json.dumps(block["content"]) for block in results]
            body = stream_of([{"type": "text", "text": "the agent has answered"}], "end_turn")
        else:
            call = {
                "type": "tool_use",
                "id": "toolu_1",
                "name": TOOL,
                "input": {"intent": "run: echo from below"},
            }
            body = stream_of([call], "tool_use")
        await stream.send_all(head(200, {"content-type": "text/event-stream"}) + body)


def blocks_of(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The blocks of the messages of a request."""
    contents = [message["content"] for message in request["messages"]]
    return [block for content in contents if isinstance(content, list) for block in content]


async def test_claude_drives_the_tree(lab: Lab, tmp_path: pathlib.Path) -> None:
    """Claude Code starts the server, offers its tools to the model, and passes the result of an agent on."""
    words = lab.words()
    environment = {"PYTHONPATH": lab.daemon.env["PYTHONPATH"]}
    server = {"type": "stdio", "command": words[0], "args": words[1:], "env": environment}
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"rnix": server}}))
    model = Played()
    async with serving(model) as stub:
        home = tmp_path / "home"
        home.mkdir()
        variables = {
            "ANTHROPIC_BASE_URL": stub.url,
            "ANTHROPIC_API_KEY": "test-key-of-claude",
            "HOME": str(home),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            # All tools at once, and only when the server is connected.
            "ENABLE_TOOL_SEARCH": "false",
            "MCP_CONNECTION_NONBLOCKING": "0",
            "MCP_TIMEOUT": str(round(SECONDS * 1000)),
        }
        options = ["--mcp-config", str(config), "--strict-mcp-config", "--allowedTools", TOOL]
        argv = [real_claude(), "-p", "Have an agent say something.", "--output-format", "json", *options]
        program = lab.daemon.program([*argv, "--model", "sonnet"], variables)
        done = await trio.to_thread.run_sync(finish, program)
        lab.daemon.forget(program)
    assert done.status == 0, done
    assert json.loads(done.out)["result"] == "the agent has answered"
    names = ("ps", "ls", "read", "write", "spawn", "wait", "kill")
    (result,) = model.results
    assert {f"mcp__rnix__{name}" for name in names} <= model.offered, (model.offered, result)
    assert "from below" in result
    assert "exit code 0" in result


def finish(program: Program) -> Any:
    """The end of a program, which may take as long as starting claude does on a loaded machine."""
    return program.end(seconds=1.5 * SECONDS)
