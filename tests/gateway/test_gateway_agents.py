"""Agents as models, and clients that leave, against a real gateway on a real mount."""

import json
from typing import Any

import openai
import pytest

from tests.daemon import until
from tests.gateway.gatelab import Lab
from tests.gateway.test_gateway_openai import WEATHER, said


def started(lab: Lab, intent: str) -> int:
    """Wait for the process of an intent; its pid."""
    found: list[int] = []

    def there() -> bool:
        found.extend(int(one["pid"]) for one in lab.processes() if one["intent"] == intent)
        return bool(found)

    until(there, f"a process for {intent!r}")
    return found[0]


def end_of(lab: Lab, pid: int) -> dict[str, Any]:
    """How a process ended, once it has."""
    end: dict[str, Any] = json.loads(lab.daemon.out(f"cat $M/proc/{pid}/wait"))
    return end


def test_an_agent_answers(lab: Lab) -> None:
    """An agent is asked like a model; it uses tools of its own, and its result is the answer."""
    with lab.openai() as client:
        answer = client.chat.completions.create(model="agent/default", messages=said("run: echo from afar"))
    (choice,) = answer.choices
    assert choice.message.content == "from afar\n(exit code 0)\n"
    assert (choice.finish_reason, choice.message.tool_calls) == ("stop", None)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens > answer.usage.completion_tokens > 0


def test_an_agent_counts_its_tokens(lab: Lab) -> None:
    """The tokens told are those of the whole process, divided as its steps divide them."""
    with lab.openai() as client:
        answer = client.chat.completions.create(model="agent/default", messages=said("spend 4321"))
    assert answer.usage is not None
    assert (answer.usage.completion_tokens, answer.usage.total_tokens) == (4321, 4321)


def test_an_agent_streams_its_log(lab: Lab) -> None:
    """What an agent does comes as reasoning while it works; its result comes as text."""
    with lab.openai() as client:
        stream = client.chat.completions.create(
            model="agent/default", messages=said("run: echo from afar"), stream=True
        )
        deltas = [chunk.choices[0].delta.model_dump() for chunk in stream if chunk.choices]
    thought = "".join(delta.get("reasoning_content") or "" for delta in deltas)
    assert 'tool shell {"command":"echo from afar"}' in thought
    assert "".join(delta["content"] or "" for delta in deltas) == "from afar\n(exit code 0)\n"


def test_an_agent_knows_the_conversation(lab: Lab) -> None:
    """What was said before stands before the last message; instructions become the system prompt."""
    messages: Any = [{"role": "system", "content": "SYSTEM-MARK"}, *said("first", "second", "third and last")]
    with lab.openai() as client:
        client.chat.completions.create(model="agent/default", messages=messages)
    found = lab.daemon.out("grep -l 'third and last' $M/proc/[0-9]*/intent").split()
    folder = found[-1].rpartition("/")[0]
    intent = lab.daemon.out(f"cat {folder}/intent")
    assert intent.split("\n\n")[1:3] == ["user: first", "assistant: second"]
    assert intent.rstrip().endswith("third and last")
    assert "SYSTEM-MARK" in lab.daemon.out(f"cat {folder}/messages.json")


def test_an_agent_with_thoughts_for_anthropic(lab: Lab) -> None:
    """Who takes thoughts gets the log of an agent as a block of its own; others get the result alone."""
    options: Any = {"model": "agent/default", "max_tokens": 2048, "messages": said("run: echo from afar")}
    with lab.anthropic() as client:
        with client.messages.stream(**options, thinking={"type": "enabled", "budget_tokens": 1024}) as stream:
            thoughtful = stream.get_final_message()
        with client.messages.stream(**options) as stream:
            plain = stream.get_final_message()
    assert [block.type for block in thoughtful.content] == ["thinking", "text"]
    assert [block.type for block in plain.content] == ["text"]


def test_tools_of_the_client_are_not_for_agents(lab: Lab) -> None:
    """An agent has its own tools: those on offer are left aside."""
    with lab.openai() as client:
        answer = client.chat.completions.create(
            model="agent/default", messages=said("call: get_weather {}"), tools=[WEATHER]
        )
    assert "there is no tool 'get_weather'" in (answer.choices[0].message.content or "")


def test_an_agent_that_fails(lab: Lab) -> None:
    """The reason is told, and clients are told not to have the agent act again by themselves."""
    with (
        lab.openai(max_retries=3) as client,
        pytest.raises(openai.InternalServerError, match="DRIVER") as caught,
    ):
        client.chat.completions.create(model="agent/default", messages=said("fail: DRIVER"))
    assert caught.value.status_code == 502
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert caught.value.response.request.headers["x-stainless-retry-count"] == "0"


def test_an_unknown_agent(lab: Lab) -> None:
    """There are the agents of the mount and no others."""
    with lab.openai() as client, pytest.raises(openai.NotFoundError, match="agent/default"):
        client.chat.completions.create(model="agent/nobody", messages=said("hi"))


def test_an_intent_that_is_too_long(lab: Lab) -> None:
    """What no process takes is refused with the kernel's reason."""
    with lab.openai() as client, pytest.raises(openai.APIStatusError, match="intent") as caught:
        client.chat.completions.create(model="agent/default", messages=said("x" * 300_000))
    assert caught.value.status_code == 413


# --- clients that leave ---


@pytest.mark.parametrize("streams", [False, True])
def test_a_client_that_leaves_ends_its_agent(lab: Lab, streams: bool) -> None:
    """The process of an agent is killed when its client goes away, whether it streams or not."""
    intent = f"wait 600 s {streams}"
    body = {"model": "agent/default", "messages": said(intent), "stream": streams}
    with lab.raw("POST", "/v1/chat/completions", body):
        pid = started(lab, intent)
    assert "SIGKILL" in end_of(lab, pid)["reason"]
    until(lambda: not lab.opened("proc"), "the files of the process to be closed")


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_a_client_that_leaves_ends_its_call(lab: Lab, path: str, streams: bool) -> None:
    """The call of a model is cancelled when its client goes away, and its file closed."""
    with lab.raw("POST", path, {"model": "play", "messages": said("never mind"), "stream": streams}):
        until(lambda: running(lab, "play") == 1, "the call at the model")
        assert lab.opened("dev/llm") == 1
    until(lambda: running(lab, "play") == 0, "the end of the call")
    until(lambda: not lab.opened("dev/llm"), "its file to be closed")


def test_a_client_that_leaves_in_the_middle_of_a_stream(lab: Lab) -> None:
    """Who reads a part of an answer and goes away ends the rest."""
    body = {"model": "play", "messages": said("count slowly"), "stream": True}
    with lab.raw("POST", "/v1/chat/completions", body) as connection:
        read = b""
        while b'"one' not in read:
            read += connection.recv(1 << 16)
    until(lambda: running(lab, "play") == 0, "the end of the call")
    until(lambda: not lab.opened("dev/llm"), "its file to be closed")
    until(lambda: "play 200" in lab.log() and lab.log().rstrip().endswith("client left"), "a line in the log")


def running(lab: Lab, provider: str) -> int:
    """How many calls run at a provider."""
    rows = [json.loads(line) for line in lab.daemon.out("cat $M/sys/providers").splitlines()]
    return int(next(row["running"] for row in rows if row["name"] == provider))
