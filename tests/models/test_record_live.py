"""A run with a provider on the network, recorded: it plays again when the provider is gone."""

import pathlib
from typing import Any

import trio

from rnixfs.bootstrap import Settings, System
from rnixfs.case import read_case
from rnixfs.casefile import run_case
from rnixfs.caserecord import record_case
from rnixfs.drivers.script import ScriptModel
from rnixfs.llm import ModelRequest
from rnixfs.proc.request import SpawnRequest
from rnixfs.replay import replay
from rnixfs.state.memory import MemoryStore
from rnixfs.types import Caller
from tests.models.servers import SECONDS, events, serving, sse

PERSON = Caller(1000, 1000)


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    """One event of a streamed reply."""
    return {"model": "far-1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def replies() -> list[list[dict[str, Any] | str]]:
    """A call of the shell, then the end."""
    function = {"name": "shell", "arguments": '{"command": "echo $((6 * 7))"}'}
    called = [{"index": 0, "id": "call_9", "type": "function", "function": function}]
    usage = {"prompt_tokens": 50, "completion_tokens": 5, "total_tokens": 55}
    first = [chunk(content="let me count"), chunk(tool_calls=called), chunk("tool_calls"), {"usage": usage}]
    second = [chunk(content="It is "), chunk(content="42."), chunk("stop"), {"usage": usage}]
    return [[*first, "[DONE]"], [*second, "[DONE]"]]


async def lived(log: MemoryStore, top: pathlib.Path, url: str) -> int:
    """Let a process work with the provider at an address; gives its pid."""
    home = top / "home"
    config = home / ".config" / "rnix"
    config.mkdir(parents=True)
    entry = f"  - name: far\n    driver: openai-compat\n    base_url: {url}/v1\n    default_model: far-1\n"
    (config / "providers.yaml").write_text(f"version: 1\nproviders:\n{entry}")
    system = System(Settings((str(top),), env={"HOME": str(home), "PATH": "/usr/bin:/bin"}), log=log)
    async with trio.open_nursery() as nursery:
        await nursery.start(system.kernel.run)
        process = system.kernel.spawn(SpawnRequest(intent="how many?", provider="far"), PERSON)
        await process.done.wait()
        assert (process.result, process.tokens_used) == ("It is 42.", 110)
        nursery.cancel_scope.cancel()
    return process.pid


async def test_recorded_live_played_offline(tmp_path):
    """The case passes, the same scenario answers as `dev/llm/script`, and the log replays, all without the
    server: nobody listens at its address any more."""
    answers = replies()
    log = MemoryStore()

    async def handler(seen, stream):
        await sse(events(answers.pop(0)))(seen, stream)

    with trio.fail_after(SECONDS):
        async with serving(handler) as server:
            pid = await lived(log, tmp_path, server.url)
        assert [seen.path for seen in server.requests] == ["/v1/chat/completions"] * 2
        text = record_case(log, pid)
        case = read_case(text, "far.yaml")
        assert await run_case(case, str(tmp_path)) == []
        assert (await replay(log, pid)).equal
        played = await ScriptModel("script", [case.scenario]).complete(ModelRequest(intent="how many?"))
    assert played.tool_calls[0].arguments == {"command": "echo $((6 * 7))"}
    assert (played.content, played.tokens_used) == ("let me count", 55)
