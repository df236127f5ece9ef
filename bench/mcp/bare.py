"""The same calls by the official SDK alone: python -m bench.mcp.bare COMMAND COUNT AT_ONCE

Starts the server, calls its tool `echo` that often, and prints a JSON list of seconds: of each call where
one is made at once, else what a call took on average.
"""

import json
import os
import pathlib
import sys
import time
from typing import TextIO

import trio
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

TOOL = "echo"
MESSAGE = "The same few words in every call."
WARM_UP = 200  # calls that are not counted, so that connections, code and what a server compiles are there


async def _call(client: Client) -> float:
    since = time.perf_counter()
    answer = await client.call_tool(TOOL, {"message": MESSAGE})
    taken = time.perf_counter() - since
    if answer.is_error or MESSAGE not in answer.model_dump_json():
        sys.exit(answer.model_dump_json())
    return taken


async def one_by_one(client: Client, count: int) -> list[float]:
    """Seconds of each of some calls, one after the other."""
    return [await _call(client) for _ in range(count)]


async def crowd(client: Client, count: int, at_once: int) -> float:
    """Seconds that a call takes on average, so many being under way at any time."""

    async def some() -> None:
        for _ in range(count // at_once):
            await _call(client)

    since = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(at_once):
            nursery.start_soon(some)
    return (time.perf_counter() - since) / (count // at_once * at_once)


async def measure(silent: TextIO, command: str, count: int, at_once: int) -> list[float]:
    """Start a server, call it, and end it; what it complains goes to `silent`."""
    server = stdio_client(StdioServerParameters(command=command), errlog=silent)
    async with Client(server) as client:
        await one_by_one(client, WARM_UP)
        if at_once == 1:
            return await one_by_one(client, count)
        return [await crowd(client, count, at_once)]


def main(command: str, count: str, at_once: str) -> None:
    """Measure and print."""
    with pathlib.Path(os.devnull).open("w") as silent:
        print(json.dumps(trio.run(measure, silent, command, int(count), int(at_once))))


if __name__ == "__main__":
    main(*sys.argv[1:])
