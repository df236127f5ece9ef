"""A server that the tests talk to, written with the SDK: `python anyserver.py stdio|PORT`.

It keeps a diary in the file that the variable DIARY names: what it was asked, and what was cancelled.
"""

import os
import sys
from typing import cast

import mcp_types as types
import trio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel

server = MCPServer("anyserver", instructions="For tests.")


def note(text: str) -> None:
    """Write into the diary."""
    if path := os.environ.get("DIARY"):
        with open(path, "a") as file:
            file.write(text + "\n")


class Sum(BaseModel):
    """A structured answer."""

    total: int


@server.tool(annotations=types.ToolAnnotations(read_only_hint=True))
def echo(text: str) -> str:
    """Says the same."""
    return text


@server.tool()
def add(a: int, b: int = 0) -> Sum:
    """Adds two numbers."""
    note(f"add {a} {b}")
    return Sum(total=a + b)


@server.tool()
def picture() -> types.CallToolResult:
    """Draws."""
    dot = types.ImageContent(type="image", data="iVBORw0K", mime_type="image/png")
    link = types.ResourceLink(type="resource_link", uri="note://book/first", name="first")
    return types.CallToolResult(content=[types.TextContent(type="text", text="a dot"), dot, link])


@server.tool()
def fail(words: str) -> str:
    """Fails."""
    raise ToolError(words)


@server.tool()
async def wait(name: str) -> None:
    """Waits for ever, and says so when nobody waits with it."""
    note(f"wait {name}")
    try:
        await trio.sleep_forever()
    finally:
        note(f"cancelled {name}")


@server.tool()
async def progress(ctx: Context, steps: int, seconds: float) -> str:
    """Takes steps of some length."""
    for step in range(steps):
        await trio.sleep(seconds)
        await ctx.report_progress(step + 1, steps, f"step {step + 1}")
    return "done"


@server.tool()
def long(size: int) -> str:
    """Answers at length."""
    return "x" * size


@server.tool()
def die(code: int) -> str:
    """Ends the server."""
    print("I was told to die", file=sys.stderr, flush=True)
    os._exit(code)


@server.tool()
def environment() -> str:
    """The names of its variables."""
    return " ".join(sorted(os.environ))


@server.tool()
async def grow(ctx: Context, name: str) -> str:
    """Makes a tool, and says so."""
    server.add_tool(lambda: name, name=name, description=name)
    await ctx.notify_tools_changed()
    return name


@server.tool()
async def shrink(ctx: Context, name: str) -> str:
    """Removes a tool, and says so."""
    server.remove_tool(name)
    await ctx.notify_tools_changed()
    return name


NOTES = {"first": "one\n"}


@server.resource("note://book/first", mime_type="text/plain")
def first() -> str:
    """A note."""
    return NOTES["first"]


@server.resource("file:///etc/motd")
def motd() -> str:
    """A file."""
    return "hello\n"


@server.resource("note://book/bytes", mime_type="application/octet-stream")
def raw() -> bytes:
    """Bytes."""
    return bytes(range(256))


@server.resource("note://page/{number}")
def page(number: str) -> str:
    """A page."""
    if number == "0":
        raise ValueError("there is no page 0")
    return f"page {number}\n"


@server.tool()
async def rewrite(ctx: Context, text: str) -> str:
    """Changes the first note, and says so."""
    NOTES["first"] = text
    await ctx.notify_resource_updated("note://book/first")
    return text


@server.prompt()
def review(code: str, tone: str = "kind") -> str:
    """Asks for a review."""
    return f"Review, and be {tone}: {code}"


async def main() -> None:
    """Serve."""
    if sys.argv[1] == "stdio":
        await server.run_stdio_async()
        return
    from hypercorn.config import Config
    from hypercorn.trio import serve
    from hypercorn.typing import ASGIFramework

    config = Config()
    config.bind = [f"127.0.0.1:{sys.argv[1]}"]
    config.errorlog = None
    # The two libraries have different words for the same kind of application.
    await serve(cast(ASGIFramework, server.streamable_http_app()), config)


if __name__ == "__main__":
    trio.run(main)
