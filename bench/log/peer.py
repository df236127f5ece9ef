"""LangGraph's SQLite checkpointer, as a yardstick: the same messages, in a program of its own."""

import json
import pathlib
from typing import Any

from bench import servers

NAME = "langgraph"
USUAL = "LangGraph, SQLite"
VARIANTS = {
    "LangGraph, in memory": "LangGraph, in memory",
    USUAL: "LangGraph, in memory",
    "LangGraph, plain list, in memory": "LangGraph, plain list, in memory",
    "LangGraph, plain list, SQLite": "LangGraph, plain list, in memory",
}
"""The runs that it makes, and for each the one that it is compared with. `plain list` only adds messages to a
list; the other is its `MessagesState`, which most programs use, and which looks for messages that replace
others."""
ON_DISK = tuple(who for who, base in VARIANTS.items() if who != base)

_PROGRAM = pathlib.Path(__file__).with_name("checkpointer.py")


def run(
    python: str, folder: pathlib.Path, messages: list[dict[str, str]]
) -> list[tuple[str, list[float], int]]:
    """Let it make its runs: of each its name, when its steps began, in seconds, and its bytes on disk.

    Args:
        python: one that has it.
        folder: is made for its files.
        messages: what each step adds.

    Raises:
        BenchError: it failed, or did not end in time.
    """
    folder.mkdir(parents=True)
    told = folder / "messages.json"
    told.write_text(json.dumps(messages))
    # -I: neither the folder of the program nor what the user has installed comes before its own packages.
    printed = servers.ask(python, "-I", _PROGRAM, told, folder, *VARIANTS)
    found: list[dict[str, Any]] = [json.loads(line) for line in printed.splitlines()]
    return [(one["name"], one["times"], one["bytes"]) for one in found]
