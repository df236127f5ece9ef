"""A gateway before a provider on the network, played by a server of ours: thoughts, limits, failures."""

import os
import pathlib
import signal
from collections.abc import Callable
from typing import Any

import openai
import pytest
import trio

from tests.daemon import until
from tests.gateway.gatelab import Lab, gateway, response
from tests.gateway.test_gateway_openai import said
from tests.models.servers import Handler, Seen, Server, Stream, events, hang, reply, serving, sse

FAR = """
version: 1
providers:
  - name: far
    driver: openai-compat
    base_url: {url}/v1
    default_model: m
    retries: 1
"""


def chunk(finish: str | None = None, **delta: str) -> dict[str, Any]:
    """A piece of an answer as the provider streams it."""
    return {"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


THINKS = [
    chunk(reasoning_content="hm, "),
    chunk(reasoning_content="yes"),
    chunk(content="It is "),
    chunk(content="so."),
]
ENDS: list[dict[str, Any] | str] = [chunk("stop"), "[DONE]"]


def in_turn(*handlers: Handler) -> Handler:
    """Answer the first request with the first handler, and so on; the last one stays."""
    left = list(handlers)

    async def handler(seen: Seen, stream: Stream) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(seen, stream)

    return handler


async def play(folder: pathlib.Path, handler: Handler, act: Callable[[Lab], None]) -> Server:
    """Have clients act, in a thread, on a gateway whose provider is played by a handler."""

    def whole(url: str) -> None:
        with gateway(folder, providers=FAR.format(url=url)) as lab:
            act(lab)

    async with serving(handler) as server:
        await trio.to_thread.run_sync(whole, server.url)
    return server


async def test_thoughts_stream(tmp_path: pathlib.Path) -> None:
    """What a model thinks comes apart from its text: as reasoning, or as a block where thoughts are taken."""

    def act(lab: Lab) -> None:
        with lab.openai() as client:
            stream = client.chat.completions.create(model="far", messages=said("so?"), stream=True)
            deltas = [one.choices[0].delta.model_dump() for one in stream if one.choices]
        thought = "".join(delta.get("reasoning_content") or "" for delta in deltas)
        assert (thought, "".join(delta["content"] or "" for delta in deltas)) == ("hm, yes", "It is so.")
        with (
            lab.anthropic() as other,
            other.messages.stream(
                model="far",
                max_tokens=2048,
                messages=said("so?"),
                thinking={"type": "enabled", "budget_tokens": 1024},
            ) as message,
        ):
            thinking, text = message.get_final_message().content
        assert thinking.type == "thinking"
        assert text.type == "text"
        assert (thinking.thinking, text.text) == ("hm, yes", "It is so.")

    await play(tmp_path, sse(events([*THINKS, *ENDS])), act)


async def test_the_model_and_the_wishes_of_a_request_arrive(tmp_path: pathlib.Path) -> None:
    """What the client asks for is what the provider is asked for."""

    def act(lab: Lab) -> None:
        with lab.openai() as client:
            client.chat.completions.create(
                model="far:another",
                messages=said("so?"),
                temperature=0.25,
                max_completion_tokens=77,
                reasoning_effort="low",
            )

    server = await play(tmp_path, sse(events([*THINKS, *ENDS])), act)
    sent = server.requests[-1].json
    assert (sent["model"], sent["temperature"], sent["reasoning_effort"]) == ("another", 0.25, "low")
    assert 77 in (sent.get("max_tokens"), sent.get("max_completion_tokens"))
    assert sent["messages"] == said("so?")


async def test_a_rate_limit(tmp_path: pathlib.Path) -> None:
    """A provider's limit is a limit of the gateway, with the time after which it ends."""

    def act(lab: Lab) -> None:
        with lab.openai() as client, pytest.raises(openai.RateLimitError, match="slow down") as caught:
            client.chat.completions.create(model="far", messages=said("so?"))
        assert float(caught.value.response.headers["retry-after"]) > 100

    # Longer than the call may take, so that the kernel does not wait for it.
    refusal = reply({"error": {"message": "slow down"}}, 429, retry_after="900")
    await play(tmp_path, refusal, act)


async def test_an_answer_that_breaks_off(tmp_path: pathlib.Path) -> None:
    """A stream that broke off after some text ends with an error: the text cannot be taken back."""
    heard = trio.Event()

    async def broken(seen: Seen, stream: Stream) -> None:
        await sse(events(THINKS), end=False)(seen, stream)
        await heard.wait()

    def act(lab: Lab) -> None:
        with lab.openai() as client:
            stream = client.chat.completions.create(model="far", messages=said("so?"), stream=True)
            with pytest.raises(openai.APIError, match="ask again"):
                listen(stream, "It is so.", lambda: trio.from_thread.run_sync(heard.set))

    await play(tmp_path, in_turn(broken, sse(events([*THINKS, *ENDS]))), act)


async def test_an_answer_that_is_asked_for_anew(tmp_path: pathlib.Path) -> None:
    """Who waits for the whole answer gets that of another attempt, and learns how many there were."""

    def act(lab: Lab) -> None:
        with lab.openai() as client:
            answer = client.chat.completions.create(model="far", messages=said("so?"))
        assert answer.choices[0].message.content == "It is so."
        assert answer.model_dump()["rnix"]["attempts"] == 2

    broken = sse(events(THINKS), end=False)
    await play(tmp_path, in_turn(broken, sse(events([*THINKS, *ENDS]))), act)


def listen(stream: Any, text: str, heard: Callable[[], None]) -> None:
    """Read a stream to its end, and call `heard` when it has given a text."""
    read = ""
    for one in stream:
        read += one.choices[0].delta.content or ""
        if read == text:
            heard()


async def test_a_client_that_leaves_hangs_up_at_the_provider(tmp_path: pathlib.Path) -> None:
    """Nobody pays for an answer that nobody waits for."""
    body = {"model": "far", "messages": said("so?"), "stream": True}
    async with serving(reply({})) as server:
        server.handler = hang(server)

        def whole() -> None:
            with gateway(tmp_path, providers=FAR.format(url=server.url)) as lab:
                with lab.raw("POST", "/v1/chat/completions", body):
                    until(server.asked.is_set, "the request at the provider")
                until(server.hung_up.is_set, "the end of its connection")

        await trio.to_thread.run_sync(whole)


async def test_requests_that_run_may_end(tmp_path: pathlib.Path) -> None:
    """A request that is nearly done when the gateway is told to end is still answered."""
    asked, told = trio.Event(), trio.Event()

    async def patient(seen: Seen, stream: Stream) -> None:
        asked.set()
        await told.wait()
        await sse(events([*THINKS, *ENDS]))(seen, stream)

    def act(lab: Lab) -> None:
        with lab.raw("POST", "/v1/chat/completions", {"model": "far", "messages": said("so?")}) as connection:
            until(asked.is_set, "the request at the provider")
            os.kill(lab.program.pid, signal.SIGTERM)
            lab.await_log("SIGTERM: ends within 5 s")
            trio.from_thread.run_sync(told.set)
            status, body = response(connection)
        assert (status, body["choices"][0]["message"]["content"]) == (200, "It is so.")
        assert lab.program.end().status == 0

    await play(tmp_path, patient, act)
