"""Real servers that ask in turn: people for input, and the model of a process for words."""

import json
import os
import pathlib
from typing import Any

import pytest

from tests.daemon import Done, until
from tests.mcpservers import packages
from tests.mcpservers.serverlab import Lab, answer
from tests.mcpservers.test_mcpservers_agent import Shelf, turns

ELICIT = "trigger-elicitation-request"
SAMPLE = "trigger-sampling-request"


def asked(lab: Lab, mount: str, reply: dict[str, Any]) -> tuple[dict[str, Any], Done]:
    """Call the tool that asks, and answer its question: what was asked, and how the call ended."""
    asking = lab.asking(f"{mount}/tools/{ELICIT}")
    until(lambda: lab.names(f"{mount}/questions"), "the question is there")
    (number,) = lab.names(f"{mount}/questions")
    question = lab.json(f"{mount}/questions/{number}")
    told = lab.daemon.bash(f"echo '{json.dumps(reply)}' > $M/mnt/mcp/{mount}/questions/{number}")
    if told.status:
        lab.daemon.forget(asking)
        return question, told
    done = asking.end()
    lab.daemon.forget(asking)
    return question, done


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_question_is_a_file(shared: Lab, http: packages.HttpServer, transport: str) -> None:
    """Reading it shows what is asked and in which form; what is written to it goes to the server."""
    config = packages.everything() if transport == "stdio" else {"url": http.url}
    with shared.mounted("asks", config | {"allow": ["elicitation"]}):
        shared.await_name("asks/tools", ELICIT)
        assert shared.names("asks/questions") == []
        reply = {"action": "accept", "content": {"name": "Ada", "check": True}}
        question, done = asked(shared, "asks", reply)
        assert "fields" in question["does"]
        form = question["request"]["properties"]["content"]
        assert form["required"] == ["name"]
        assert "- Name: Ada" in answer(done)["text"]
        assert shared.names("asks/questions") == []


def test_a_question_is_declined(shared: Lab) -> None:
    """Then the server knows that, and its tool ends well."""
    with shared.mounted("asks", packages.everything() | {"allow": ["elicitation"]}):
        shared.await_name("asks/tools", ELICIT)
        _, done = asked(shared, "asks", {"action": "decline"})
        assert "declined" in answer(done)["text"]


def test_a_reply_that_does_not_fit_the_form(shared: Lab) -> None:
    """It is refused by the write."""
    with shared.mounted("asks", packages.everything() | {"allow": ["elicitation"]}):
        shared.await_name("asks/tools", ELICIT)
        _, told = asked(shared, "asks", {"action": "accept", "content": {"name": 5}})
        assert "Invalid argument" in told.err


def test_who_is_not_allowed_to_ask_does_not(shared: Lab, everything: str) -> None:
    """Without `allow` a server is told that it cannot ask, and there is no folder for questions."""
    shared.await_name(f"{everything}/tools", "simulate-research-query")
    tools = shared.names(f"{everything}/tools")
    assert ELICIT not in tools
    assert SAMPLE not in tools
    assert "questions" not in shared.names(everything)


def test_a_server_asks_the_model_of_its_owner(lab: Lab, tmp_path: pathlib.Path) -> None:
    """An agent's server that may: its agent's model answers, and the agent's tokens pay for it."""
    shelf = Shelf(lab, os.urandom(8).hex())
    shelf.servers(everything=packages.everything() | {"allow": ["sampling"]})
    shelf.agent("thinker", ["everything"])
    call = (f"mcp__everything__{SAMPLE}", {"prompt": "say so", "maxTokens": 100})
    pid = shelf.spawn("thinker", turns(call))
    assert shelf.end(pid)["code"] == 0
    steps = [json.loads(line) for line in lab.daemon.out(f"cat $M/proc/{pid}/steps.jsonl").splitlines()]
    told = next(one for step in steps for one in step["tool_calls"])["result"]
    assert "script (no AI)" in told
    spent = json.loads(lab.daemon.out(f"cat $M/proc/{pid}/status"))["tokens_used"]
    assert spent > sum(step["token_count"] for step in steps)


def test_a_server_of_people_asks_the_default_model(lab: Lab) -> None:
    """A mount without an owner asks whom a process would ask that names nobody."""
    with lab.mounted("asks", packages.everything() | {"allow": ["sampling"]}):
        lab.await_name("asks/tools", SAMPLE)
        done = lab.asking(f"asks/tools/{SAMPLE}", {"prompt": "say so", "maxTokens": 100}).end()
        assert "script (no AI)" in json.dumps(answer(done))
