"""One turn over time, without a mount: silence, late errors, and answers that come early enough."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
import trio

from rnixfs.gateway import chat, messages
from rnixfs.gateway.asked import Form
from rnixfs.gateway.client import Client, Source
from rnixfs.gateway.echoes import Echoes
from rnixfs.gateway.models import Catalog, Provider, Target
from rnixfs.gateway.refusal import RefusedError, of_code
from rnixfs.gateway.turn import FIRST_SECONDS, PING_SECONDS, Place, Reply, take
from rnixfs.llm import Delta, ModelAnswer, ModelRequest

FORMS: list[Form] = [chat, messages]


class Played(Source):
    """Gives what a test lays out: waits of so many seconds, pieces, an answer, errors."""

    def __init__(self, *items: float | Delta | ModelAnswer | RefusedError) -> None:
        self._items = list(items)

    async def next(self) -> Delta | ModelAnswer:
        while isinstance(self._items[0], int | float):
            # Whoever is cancelled here waits the rest another time.
            began = trio.current_time()
            wait = self._items[0]
            try:
                await trio.sleep(wait)
            finally:
                self._items[0] = wait - (trio.current_time() - began)
            self._items.pop(0)
        item = self._items.pop(0)
        if isinstance(item, RefusedError):
            raise item
        assert not isinstance(item, int | float)
        return item


class Stage:
    """Stands for a mount whose only model plays."""

    def __init__(self, source: Source) -> None:
        self._source = source

    async def catalog(self) -> Catalog:
        return Catalog([Provider("p")])

    @contextlib.asynccontextmanager
    async def ask(self, target: Target, request: ModelRequest, wants_pieces: bool) -> AsyncIterator[Source]:
        yield self._source


async def turn(form: Form, *items: Any) -> list[tuple[float, Any]]:
    """What is sent in one streamed turn, each message with its time."""
    sent = []

    async def send(message: Any) -> None:
        sent.append((trio.current_time() - began, message.get("status") or message["body"].decode()))

    asked = form.read({"model": "p", "stream": True, "messages": [{"role": "user", "content": "hi"}]})
    place = Place(cast(Client, Stage(Played(*items))), Echoes())
    began = trio.current_time()
    await take(form, asked, place, Reply(send, []), lambda target: None)
    return sent


@pytest.mark.parametrize("form", FORMS)
async def test_silence(autojump_clock: trio.testing.MockClock, form: Form) -> None:
    """A stream begins although nothing comes, and says now and then that it lives."""
    silence = FIRST_SECONDS + 2.5 * PING_SECONDS
    sent = await turn(form, silence, Delta("text", "at last"), ModelAnswer(content="at last"))
    pings = [at for at, text in sent if isinstance(text, str) and "ping" in text]
    assert (sent[0][0], sent[0][1]) == (FIRST_SECONDS, 200)
    assert pings == [FIRST_SECONDS + n * PING_SECONDS for n in range(3)]
    assert "".join(str(text) for _, text in sent).count("at last") == 1


@pytest.mark.parametrize("form", FORMS)
async def test_an_error_that_comes_early(autojump_clock: trio.testing.MockClock, form: Form) -> None:
    """Before the stream has begun an error is a status."""
    with pytest.raises(RefusedError) as caught:
        await turn(form, FIRST_SECONDS - 1, of_code("TIMEOUT", "too slow"))
    assert caught.value.status == 504


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("before", [[FIRST_SECONDS + 1], [Delta("text", "some")]])
async def test_an_error_that_comes_late(
    autojump_clock: trio.testing.MockClock, form: Form, before: list[Any]
) -> None:
    """Once the stream has begun an error is its last event, and nothing pretends that the answer is whole."""
    sent = await turn(form, *before, of_code("TIMEOUT", "too slow"))
    texts = [str(text) for _, text in sent]
    assert texts[0] == "200"
    assert ("too slow" in texts[-2], texts[-1]) == (True, "")
    assert not any(mark in "".join(texts) for mark in ("[DONE]", "message_stop", 'finish_reason":"stop'))


async def test_thoughts_before_a_text(autojump_clock: trio.testing.MockClock) -> None:
    """What a model thought stands before what it says, and the mark of the end after all."""
    sent = await turn(chat, Delta("reasoning", "hm"), 1.0, ModelAnswer(content="so"))
    text = "".join(str(one) for _, one in sent)
    assert text.index('"reasoning_content":"hm"') < text.index('"content":"so"') < text.index("[DONE]")
