"""A real server of models behind our drivers: llama-server, by each of the ways that lead to it."""

import json
from typing import Any

import pytest
import trio

from tests.llama.llamalab import COMMAND, HTTP, Lab, until
from tests.llama.scripted import NUMBERS, SHELL_CALL, TEXTS
from tests.llama.server import ALIAS, SECONDS, SLOTS, WINDOW, LlamaServer
from tests.tree import ask, read_on

every = pytest.mark.parametrize("provider", [*HTTP, COMMAND])
by_http = pytest.mark.parametrize("provider", HTTP)

TOOL = {
    "name": SHELL_CALL["name"],
    "description": "Runs a command.",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}},
}


# --- the server itself ---


@pytest.mark.parametrize("temperature", [0.0, 1.5])
@pytest.mark.parametrize("name", ["PLAIN", "COUNT", "ACTION"])
async def test_the_model_says_what_is_written(llama: LlamaServer, name: str, temperature: float) -> None:
    """What the tests here rest on: without us, the server gives the scripted answer, however it samples."""
    body = {"messages": [{"role": "user", "content": name}], "temperature": temperature}
    answer = await trio.to_thread.run_sync(llama.get, "/v1/chat/completions", body)
    assert answer["choices"][0]["message"]["content"] == TEXTS[name]
    assert answer["choices"][0]["finish_reason"] == "stop"


# --- answers ---


@every
async def test_an_answer_and_its_tokens(lab: Lab, provider: str) -> None:
    """The text is the server's, and what we count is what the server has counted, no more and no less."""
    before = await lab.spent()
    answer = await lab.ask(provider, intent="PLAIN", system_prompt="Say it.")
    after = await lab.spent()
    assert answer["content"] == TEXTS["PLAIN"]
    assert (answer["stop_reason"], answer["model"], answer["estimated"]) == ("end", ALIAS, False)
    assert (before[0] + answer["input_tokens"], before[1] + answer["output_tokens"]) == after
    assert answer["tokens_used"] == answer["input_tokens"] + answer["output_tokens"]
    assert answer["output_tokens"] > 5


@by_http
async def test_the_most_tokens_of_an_answer(lab: Lab, provider: str) -> None:
    """The limit of a request reaches the server, and the answer says that it was cut there."""
    answer = await lab.ask(provider, intent="FOREVER", max_tokens=12)
    assert (answer["stop_reason"], answer["output_tokens"]) == ("max_tokens", 12)
    assert answer["content"] == TEXTS["FOREVER"] * 6


@by_http
async def test_the_same_prompt_again_comes_from_the_cache(lab: Lab, provider: str) -> None:
    """Tokens that the server need not read again are said to be cached, and are counted all the same."""
    intent = f"PLAIN, asked twice by way of {provider}: {'long words of a user, ' * 20}"
    first, again = [await lab.ask(provider, intent=intent) for _ in range(2)]
    assert first["input_tokens"] == again["input_tokens"]
    assert 400 < again["cached_tokens"] < again["input_tokens"]


@every
async def test_an_answer_in_pieces(lab: Lab, provider: str) -> None:
    """The pieces are the answer, in order; the last line is the whole of it, and has its tokens."""
    file = await lab.opened(provider, intent="COUNT", stream="events")
    with trio.fail_after(SECONDS):
        *pieces, answer = await lab.events(file)
    assert {piece["type"] for piece in pieces} == {"text"}
    assert "".join(piece["text"] for piece in pieces) == "".join(NUMBERS) == answer["content"]
    assert answer["output_tokens"] >= len(NUMBERS)
    assert not answer["estimated"]


@by_http
async def test_an_answer_as_plain_text(lab: Lab, provider: str) -> None:
    """`stream: true` gives the words alone."""
    file = await lab.opened(provider, intent="COUNT", stream=True)
    with trio.fail_after(SECONDS):
        assert (await read_on(file)).decode() == "".join(NUMBERS) + "\n"


@every
async def test_pieces_come_while_the_server_writes_and_closing_frees_it(lab: Lab, provider: str) -> None:
    """The first words come while the answer is being written, and who closes the file stops the writing."""
    await lab.slots(0)
    cancelled = lab.llama.cancelled()
    file = await lab.opened(provider, intent="FOREVER", max_tokens=WINDOW - 8000, stream=True)
    with trio.fail_after(SECONDS):
        assert (await file.read(64)).startswith(b" tick")
    assert await trio.to_thread.run_sync(lab.llama.busy) == 1
    await file.close()
    await lab.slots(0)
    assert lab.llama.cancelled() == cancelled + 1
    assert (await lab.ask(provider, intent="PLAIN"))["content"] == TEXTS["PLAIN"]


@by_http
async def test_closing_frees_a_server_that_was_to_answer_in_one_piece(lab: Lab, provider: str) -> None:
    """Nobody waits for an answer that nobody reads."""
    await lab.slots(0)
    cancelled = lab.llama.cancelled()
    file = await lab.opened(provider, intent="FOREVER", max_tokens=WINDOW - 8000)
    await lab.slots(1)
    await file.close()

    async def freed() -> bool:
        return lab.llama.cancelled() > cancelled

    # Not by asking the server: each question puts off for a second its own look at who is still there.
    await until(freed)
    await lab.slots(0)


@by_http
async def test_twenty_at_once(lab: Lab, provider: str) -> None:
    """More calls than the server writes at once all get an answer, each its own."""
    wanted = ["PLAIN", "COUNT"] * 10
    assert len(wanted) > SLOTS
    answers: dict[int, Any] = {}

    async def one(number: int, name: str) -> None:
        answers[number] = await lab.ask(provider, intent=f"{name} for number {number}")

    async with trio.open_nursery() as nursery:
        for number, name in enumerate(wanted):
            nursery.start_soon(one, number, name)
    assert [answers[number]["content"] for number in range(20)] == [TEXTS[name] for name in wanted]
    assert {answer["attempts"] for answer in answers.values()} == {1}


# --- tools ---


@by_http
@pytest.mark.parametrize("stream", [False, "events"])
async def test_a_tool_and_its_result(lab: Lab, provider: str, stream: bool | str) -> None:
    """A call that the server reads out of its model's words comes to us whole, and its result goes back."""
    said = {"role": "user", "content": "SHELL, please"}

    async def answer_to(messages: list[dict[str, Any]]) -> Any:
        file = await lab.opened(provider, messages=messages, tools=[TOOL], stream=stream)
        with trio.fail_after(SECONDS):
            return json.loads((await read_on(file)).splitlines()[-1])

    first = await answer_to([said])
    (call,) = first["tool_calls"]
    assert {"name": call["name"], "arguments": call["arguments"]} == SHELL_CALL
    assert (first["stop_reason"], first["content"]) == ("tool_calls", "")
    asked = {"role": "assistant", "content": "", "tool_calls": [call]}
    result = {"role": "tool", "content": "42", "tool_call_id": call["id"]}
    second = await answer_to([said, asked, result])
    assert (second["content"], second["tool_calls"], second["stop_reason"]) == (TEXTS["FOUND"], [], "end")
    assert second["input_tokens"] > first["input_tokens"]


# --- what is known of the server ---


@by_http
async def test_a_check_finds_the_model(lab: Lab, provider: str) -> None:
    """Asked whether it would answer, the server names its model, and spends nothing."""
    before = await lab.spent()
    (row,) = map(json.loads, (await ask(lab.tree, "sys/check", provider)).splitlines())
    assert (row["name"], row["state"], [one["name"] for one in row["models"]]) == (provider, "ready", [ALIAS])
    assert await lab.spent() == before


async def test_the_window_is_the_servers(lab: Lab) -> None:
    """Nobody configured how much the model takes: the server says it, a check shows it, answers carry it."""
    (row,) = map(json.loads, (await ask(lab.tree, "sys/check", "chat")).splitlines())
    assert row["models"] == [{"name": ALIAS, "context_window": WINDOW}]
    assert (await lab.ask("chat", intent="PLAIN"))["context_window"] == WINDOW


@every
async def test_more_than_the_window(lab: Lab, provider: str) -> None:
    """A prompt that the server refuses is no reason to ask again; the message has its numbers."""
    error = (await lab.ask(provider, intent="x" * (WINDOW + 1)))["error"]
    assert (error["status"], error["retryable"], error["attempts"]) == (400, False, 1)
    assert str(WINDOW) in error["message"]
    assert error["message"].startswith(f"{provider}: ")
    # Through the command it is known by its words alone.
    assert provider == COMMAND or error["code"] == "RESOURCE_EXHAUSTED"
