"""sys/check: providers are asked side by side, bounded in time, and each failure stands in its own line."""

import json
from typing import Any

import pytest
import trio

from rnixfs import limits
from rnixfs.device import Body
from rnixfs.drivers.check import Check
from rnixfs.errors import Code, SyscallError
from rnixfs.model import ModelError, ModelInfo
from rnixfs.types import Caller

PERSON = Caller(1000, 1000)


class Provider:
    """A provider that answers, or fails, after some seconds."""

    def __init__(self, name: str, seconds: float = 0, failure: SyscallError | None = None) -> None:
        self.name = name
        self.seconds = seconds
        self.failure = failure
        self.asked = 0
        self.latency: float | None = None

    def row(self) -> dict[str, object]:
        row = {"name": self.name, "state": "ready", "available": True, "reason": ""}
        return {**row, "latency_ms": self.latency}

    async def check(self) -> list[ModelInfo]:
        self.asked += 1
        await trio.sleep(self.seconds)
        if self.failure is not None:
            raise self.failure
        self.latency = self.seconds * 1000
        return [ModelInfo(f"{self.name}-large", 4096), ModelInfo("small")]


class Answer:
    """Takes an answer."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.data.splitlines()]


async def ask(body: Body, *providers: Provider) -> list[dict[str, Any]]:
    """What the device answers."""
    answer = Answer()
    await Check(lambda _caller: {one.name: one for one in providers}).accept(PERSON, body)(answer)
    return answer.rows()


@pytest.mark.parametrize("body", ["", " \n", "all", {}, {"provider": ""}, {"provider": "all"}])
async def test_without_a_name_all_are_asked(body: Body) -> None:
    """In the order that they have, one line each."""
    assert [row["name"] for row in await ask(body, Provider("b"), Provider("a"))] == ["b", "a"]


@pytest.mark.parametrize("body", ["a", "a\n", {"provider": "a"}, "a, a"])
async def test_only_who_is_named_is_asked(body: Body) -> None:
    """Nobody else hears of it, and nobody is asked twice."""
    one, other = Provider("a"), Provider("b")
    assert [row["name"] for row in await ask(body, one, other)] == ["a"]
    assert (one.asked, other.asked) == (1, 0)


async def test_several_may_be_named() -> None:
    """Names with blanks or commas between, answered in their order."""
    providers = [Provider(name) for name in "abc"]
    assert [row["name"] for row in await ask("c, a", *providers)] == ["c", "a"]


async def test_a_line_is_the_one_of_sys_providers_with_the_models(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """As it is once the provider was asked."""
    (row,) = await ask("a", Provider("a", seconds=0.25))
    assert row == {
        "name": "a",
        "state": "ready",
        "available": True,
        "reason": "",
        "latency_ms": 250.0,
        "models": [{"name": "a-large", "context_window": 4096}, {"name": "small"}],
    }


async def test_a_failure_is_the_line_of_who_failed(autojump_clock: trio.testing.MockClock) -> None:
    """The reason is told, and the others are asked all the same."""
    failures = [
        SyscallError(Code.PERMISSION, "a: no key"),
        ModelError(Code.TIMEOUT, "b: gone", transient=True),
    ]
    rows = await ask("", Provider("a", 1, failures[0]), Provider("b", 2, failures[1]), Provider("c", 3))
    assert [(row["available"], row["state"], row["reason"], len(row["models"])) for row in rows] == [
        (False, "unavailable", "a: no key", 0),
        (False, "unavailable", "b: gone", 0),
        (True, "ready", "", 2),
    ]
    assert trio.current_time() == 3


async def test_a_silent_provider_is_not_waited_for_longer(autojump_clock: trio.testing.MockClock) -> None:
    """The answer comes in bounded time, whoever does not answer."""
    rows = await ask("", Provider("mute", 10**9), Provider("a"))
    assert trio.current_time() == limits.CHECK_SECONDS
    assert [(row["name"], row["available"]) for row in rows] == [("mute", False), ("a", True)]
    assert rows[0]["reason"] == f"no answer within {limits.CHECK_SECONDS:g} s"


async def test_only_so_many_are_asked_at_once(autojump_clock: trio.testing.MockClock) -> None:
    """Some providers are programs that are started for this."""
    providers = [Provider(f"p{number}", 1) for number in range(2 * limits.CHECKS_MAX + 1)]
    assert len(await ask("", *providers)) == len(providers)
    assert trio.current_time() == 3


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ("b", Code.NOT_FOUND, "no provider 'b'; there are: script"),
        ("scrip", Code.NOT_FOUND, "did you mean script?"),
        ({"provider": "x" * 500}, Code.NOT_FOUND, "…"),
        ({"name": "script"}, Code.INVALID, "unknown field 'name'; a request has: provider"),
        ({"provider": 5}, Code.INVALID, "names as text"),
        (["script"], Code.INVALID, "names as text"),
        (None, Code.INVALID, "names as text"),
    ],
)
def test_a_request_that_is_none_is_refused_at_once(body: Body, code: Code, words: str) -> None:
    """Before anybody is asked, with what would be right."""
    provider = Provider("script")
    with pytest.raises(SyscallError) as caught:
        Check(lambda _caller: {"script": provider}).accept(PERSON, body)
    assert caught.value.code is code
    assert words in caught.value.reason
    assert provider.asked == 0


def test_the_description_asks_nobody() -> None:
    """Reading spends nothing and waits for nobody."""
    provider = Provider("script")
    shown = Check(lambda _caller: {"script": provider}).describe(PERSON)
    assert (shown.device, shown.available, provider.asked) == ("/sys/check", True, 0)
