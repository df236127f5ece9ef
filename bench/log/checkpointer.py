"""The runs of LangGraph: one node a step, which adds an answer and a tool's result to the messages.

    python -I checkpointer.py MESSAGES.json FOLDER NAME...

For each name it prints a line of JSON: `name`, `times` at which the steps began (seconds), `bytes` on disk
once all is closed. It runs in an environment that has LangGraph and nothing of ours. What the model and the
tool take is left out: both come from a list.
"""

import contextlib
import importlib
import json
import operator
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypedDict


class PlainState(TypedDict):
    """Messages that are only ever added to."""

    messages: Annotated[list[Any], operator.add]


def steps(told: list[dict[str, str]]) -> list[list[Any]]:
    """The messages of each step, in its own types."""
    types = importlib.import_module("langchain_core.messages")
    return [
        [
            types.AIMessage(
                content=one["said"],
                tool_calls=[{"id": one["id"], "name": "read", "args": {"path": one["path"]}}],
            ),
            types.ToolMessage(content=one["result"], tool_call_id=one["id"]),
        ]
        for one in told
    ]


@contextlib.contextmanager
def saver(name: str, folder: pathlib.Path) -> Iterator[Any]:
    """Where its checkpoints go."""
    if name.endswith("in memory"):
        yield importlib.import_module("langgraph.checkpoint.memory").InMemorySaver()
        return
    folder.mkdir()
    sqlite = importlib.import_module("langgraph.checkpoint.sqlite").SqliteSaver
    with sqlite.from_conn_string(str(folder / "checkpoints.db")) as found:
        yield found


def graph(plain: bool, step: Callable[[Any], Any], more: Callable[[], bool], checkpointer: Any) -> Any:
    """The graph, compiled: its only node follows itself as long as there is more."""
    module = importlib.import_module("langgraph.graph")
    built = module.StateGraph(PlainState if plain else module.MessagesState)
    built.add_node("step", step)
    built.add_edge(module.START, "step")
    built.add_conditional_edges("step", lambda _state: "step" if more() else module.END, ["step", module.END])
    return built.compile(checkpointer=checkpointer)


def run(name: str, told: list[dict[str, str]], folder: pathlib.Path) -> list[float]:
    """Make one run; when its steps began."""
    left = iter(steps(told))
    times: list[float] = []

    def step(_state: Any) -> dict[str, Any]:
        times.append(time.monotonic())
        return {"messages": next(left)}

    first = importlib.import_module("langchain_core.messages").HumanMessage(content="Read all the parts.")
    config = {"configurable": {"thread_id": "1"}, "recursion_limit": len(told) + 5}
    with saver(name, folder) as checkpointer:
        app = graph("plain list" in name, step, lambda: len(times) < len(told), checkpointer)
        state = app.invoke({"messages": [first]}, config, durability="sync")
    if len(state["messages"]) != 1 + 2 * len(told):
        raise SystemExit(f"{name}: {len(state['messages'])} messages after {len(told)} steps")
    return times


def main(arguments: list[str]) -> None:
    """Make all runs."""
    # Whatever this machine is set up for: nothing of it goes to a service.
    os.environ.update(LANGSMITH_TRACING="false", LANGCHAIN_TRACING_V2="false")
    told = json.loads(pathlib.Path(arguments[0]).read_text())
    for place, name in enumerate(arguments[2:]):
        folder = pathlib.Path(arguments[1]) / str(place)
        times = run(name, told, folder)
        size = sum(path.stat().st_size for path in folder.iterdir()) if folder.exists() else 0
        print(json.dumps({"name": name, "times": times, "bytes": size}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
