"""The file of a model: what it says of itself, its answers, its streams."""

import contextlib
import itertools
import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from rnixfs import limits
from rnixfs.device import Body
from rnixfs.drivers.http import DIALECTS, HttpModel
from rnixfs.errors import Code, SyscallError
from rnixfs.exchange import Answer, DeviceNode
from rnixfs.llm import Delta, Fallback, ModelAnswer, ModelRequest
from rnixfs.loader import Library
from rnixfs.model import Model, ModelInfo
from rnixfs.modeldevice import REQUEST_SCHEMA, EventLines, ModelDevice
from rnixfs.modelfallback import Fallbacks
from rnixfs.modelservice import Service
from rnixfs.modelshelf import Models
from rnixfs.providers import ModelConfig, ProviderConfig
from rnixfs.types import Caller
from tests.models.fakemodel import FakeModel, answer, ill, limited, refused, service
from tests.models.servers import Handler, Seen, Server, Stream, events, raw, reply, serving, sse

PERSON = Caller(1000, 1000)


class Paper:
    """Takes what a job writes, with the time."""

    def __init__(self) -> None:
        self.pieces: list[tuple[float, bytes]] = []

    def write(self, data: bytes) -> None:
        self.pieces.append((trio.current_time(), data))

    @property
    def text(self) -> str:
        return b"".join(data for _, data in self.pieces).decode()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]


def device(model: FakeModel, **entry: Any) -> ModelDevice:
    """A file over a fake that has no fallbacks."""
    return ModelDevice(service(model, **entry), Fallbacks(lambda name: None))


async def read(device: ModelDevice, body: Body, caller: Caller = PERSON) -> Paper:
    """What a request gives."""
    paper = Paper()
    await device.accept(caller, body)(paper)
    return paper


async def exchange(device: ModelDevice, body: Body) -> str:
    """What a reader of the file sees, errors included."""
    answer = Answer("/dev/llm/fake", 0)
    await answer.run(device.accept(PERSON, body))
    return bytes(answer.data).decode()


# --- answers ---


async def test_one_request_gives_one_line_of_json(autojump_clock):
    """All fields of an answer, with who gave it; text is the intent."""
    model = FakeModel(answer("hello"))
    paper = await read(device(model), "say hello")
    assert model.requests[0].intent == "say hello"
    (line,) = paper.lines
    assert set(line) == set(ModelAnswer.__struct_fields__)
    assert (line["content"], line["provider"], line["attempts"]) == ("hello", "fake", 1)


async def test_a_plain_stream_is_the_text_and_a_newline(autojump_clock):
    """Thoughts are not part of it, and each piece is there at once."""
    model = FakeModel(answer("one two"), seconds=1)
    model.pieces = [Delta("reasoning", "hm"), Delta("text", "one "), Delta("text", "two")]
    paper = await read(device(model), {"intent": "x", "stream": True})
    assert [data for _, data in paper.pieces] == [b"one ", b"two", b"\n"]
    assert paper.pieces[0][0] + 1 == pytest.approx(paper.pieces[2][0])


async def test_a_stream_of_events_is_json_lines_with_the_answer_last(autojump_clock):
    """Pieces with their kinds, then all fields of the answer."""
    model = FakeModel(ill(), answer("one"))
    model.pieces = [Delta("reasoning", "hm"), Delta("text", "one")]
    *pieces, last = (await read(device(model), {"intent": "x", "stream": "events"})).lines
    kinds = [(line["type"], line["text"]) for line in pieces]
    assert kinds == [
        ("reasoning", "hm"),
        ("text", "one"),
        ("restart", ""),
        ("reasoning", "hm"),
        ("text", "one"),
    ]
    assert last.pop("type") == "answer"
    assert msgspec.convert(last, ModelAnswer).content == "one"
    assert last["attempts"] == 2


@pytest.mark.parametrize("stream", [False, True, "events"])
async def test_an_error_ends_an_answer(autojump_clock, stream):
    """As one line, after what was given before, with what a reader needs to decide about another attempt."""
    model = FakeModel(limited(90.0))
    model.pieces = [Delta("text", "half")]
    text = await exchange(device(model), {"intent": "x", "stream": stream})
    *before, last = text.splitlines()
    assert before == {False: [], True: ["half"], "events": ['{"type":"text","text":"half"}']}[stream]
    error = json.loads(last)["error"]
    assert (error["code"], error["retryable"]) == ("SERVICE_UNAVAILABLE", True)
    assert (error["retry_after_ms"], error["attempts"], error["status"]) == (90_000, 1, 429)


async def test_nothing_is_held_back_before_an_error(autojump_clock):
    """Pieces that wait for their line come before the reason."""
    model = FakeModel(refused())
    model.pieces = [Delta("text", "a"), Delta("text", "b"), Delta("text", "c")]
    first, second, _ = (await exchange(device(model), {"intent": "x", "stream": "events"})).splitlines()
    assert [json.loads(line)["text"] for line in (first, second)] == ["a", "bc"]


async def test_a_failed_sink_ends_a_stream():
    """An answer that grows too large ends with the reason, and the model is not asked again."""

    class Full(Paper):
        def write(self, data: bytes) -> None:
            raise SyscallError(Code.TOO_LARGE, "no more")

    for stream in (True, "events"):
        model = FakeModel(answer("x"))
        model.pieces = [Delta("text", "x")]
        with pytest.raises(SyscallError, match="no more"):
            await device(model).accept(PERSON, {"intent": "x", "stream": stream})(Full())
        assert len(model.requests) == 1


# --- how often a stream writes ---


@given(st.lists(st.tuples(st.sampled_from(["text", "reasoning"]), st.integers(0, 300)), max_size=60))
def test_a_fast_stream_is_gathered_and_nothing_is_lost(plan):
    """Whatever the pace: the pieces of a kind in a row are whole and in order, none is held for longer than
    a moment, and there are at most 20 writes a second after the first."""

    async def main() -> None:
        paper = Paper()
        lines, given = EventLines(paper), []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lines.run)
            for number, (kind, millis) in enumerate(plan):
                lines.take(Delta(kind, f"{number} "))
                given.append((trio.current_time(), kind, f"{number} "))
                await trio.sleep(millis / 1000)
            lines.end(answer())
            nursery.cancel_scope.cancel()
        assert _runs((line["type"], line["text"]) for line in paper.lines[:-1]) == _runs(
            (kind, text) for _, kind, text in given
        )
        assert paper.lines[-1]["type"] == "answer"
        for at, _, text in given:
            written = next(when for when, data in paper.pieces if text.encode() in data.replace(b'"', b" "))
            assert written - at <= limits.STREAM_LINE_SECONDS + 1e-6
        times = sorted({at for at, _ in paper.pieces[:-1]})
        for sooner, later in itertools.pairwise(times):
            assert later - sooner >= limits.STREAM_LINE_SECONDS - 1e-6 or later == times[-1]

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def _runs(pieces: Any) -> list[tuple[str, str]]:
    """Pieces with those of a kind in a row joined."""
    runs: list[tuple[str, str]] = []
    for kind, text in pieces:
        if runs and runs[-1][0] == kind:
            runs[-1] = (kind, runs[-1][1] + text)
        else:
            runs.append((kind, text))
    return runs


async def test_a_restart_voids_what_was_not_written_yet(autojump_clock):
    """Nobody reads words that are void already."""
    paper = Paper()
    lines = EventLines(paper)
    for delta in (Delta("text", "a"), Delta("text", "b"), Delta("restart"), Delta("text", "c")):
        lines.take(delta)
    lines.end(answer())
    assert [line.get("text") for line in paper.lines[:-1]] == ["a", "", "c"]


# --- what it says of itself ---


def test_the_schema_names_every_field_of_a_request():
    """No more and no fewer than are taken."""
    assert set(REQUEST_SCHEMA["properties"]) == set(ModelRequest.__struct_fields__)


async def test_a_description_says_what_is_known(autojump_clock):
    """Models with their windows, tools, limits, who stands in, and why it cannot be used."""
    model = FakeModel(native=False)
    model.infos = [ModelInfo("tiny", 512)]
    one = device(
        model,
        models=[ModelConfig("big", context_window=9000)],
        default_model="big",
        fallback=[Fallback("other")],
        concurrency=2,
    )
    await one.service.check()
    described = one.describe(PERSON)
    assert described.available
    assert described.details == {
        "native_tools": False,
        "models": [{"name": "big", "context_window": 9000}, {"name": "tiny", "context_window": 512}],
        "context_window": 9000,
        "concurrency": 2,
        "fallback": [{"provider": "other"}],
        "answer": list(ModelAnswer.__struct_fields__),
        "driver": "fake",
    }
    model.reason = "no key"
    described = one.describe(PERSON)
    assert (described.available, described.reason) == (False, "no key")


def test_what_is_no_request_is_refused_at_once():
    """The writer hears what would be right."""
    for body in ({"intent": "x", "stream": "lines"}, {"intent": "x", "priority": "urgent"}, {}):
        with pytest.raises(SyscallError) as caught:
            device(FakeModel()).accept(PERSON, body)
        assert caught.value.code is Code.INVALID


# --- many files ---


class Rack:
    """The models of a folder of the host.

    Args:
        top: an empty folder; its `providers.yaml` is the configuration.
        models: by name.
        permitted: paths that processes may use.
    """

    def __init__(self, top, models: Mapping[str, Model], permitted: tuple[str, ...] = ()) -> None:
        self.file = top / "providers.yaml"
        self.models = Models(
            lambda entry: models.get(entry.name),
            lambda job: None,
            permits=lambda caller, path: not caller.agent or path in permitted,
        )
        self.shelf = Library([top / "built-in", top]).for_cwd(str(top))

    def configure(self, *names: str, more: str = "") -> None:
        """Write the configuration."""
        entries = "".join(
            f"  - name: {name}\n    driver: openai-compat\n    base_url: http://127.0.0.1:1/v1\n    {more}\n"
            for name in names
        )
        self.file.write_text(f"version: 1\nproviders:\n{entries}")

    async def ask(self, name: str, body: Body, caller: Caller = PERSON) -> str:
        node = self.models.folder(self.shelf).lookup(name, caller)
        assert isinstance(node, DeviceNode)
        paper = Paper()
        await node.device.accept(caller, body)(paper)
        return paper.text


async def test_a_process_may_name_only_fallbacks_that_its_rights_permit(tmp_path, autojump_clock):
    """What the launcher of processes says counts, through the folder that they see."""
    models = {name: FakeModel(refused(Code.PERMISSION, 401), name=name) for name in "ab"}
    models["c"] = FakeModel(answer("c"), name="c")
    rack = Rack(tmp_path, models, ("/dev/llm/a", "/dev/llm/c"))
    rack.configure(*"abc")
    body = {"intent": "x", "fallback": [{"provider": "b"}, {"provider": "c"}]}
    text = await rack.ask("a", body, Caller(0, 0, agent=3))
    assert json.loads(text)["provider"] == "c"
    assert models["b"].requests == []


async def test_states_are_rows_of_the_services(tmp_path, autojump_clock):
    """Each provider of the configuration has one, also where this version has no driver for it."""
    models = {"a": FakeModel(name="a")}
    rack = Rack(tmp_path, models)
    rack.configure("a", "b")
    await rack.ask("a", "hi")
    rows = {row["name"]: row for row in rack.models.states(rack.shelf)}
    assert (rows["a"]["state"], rows["a"]["calls"]) == ("ready", 1)
    assert (rows["b"]["state"], rows["b"]["available"]) == ("unavailable", False)
    assert "no driver" in str(rows["b"]["reason"])
    await rack.models.aclose()
    assert models["a"].closed


async def test_two_looks_at_a_file_find_the_same_one(tmp_path):
    """An answer that waits in a mailbox is found again; a changed entry is another file."""
    rack = Rack(tmp_path, {"a": FakeModel(name="a")})
    rack.configure("a")
    folder = rack.models.folder(rack.shelf)
    assert folder.lookup("a", PERSON) is folder.lookup("a", PERSON)


# --- over real HTTP ---


def completion(text: str) -> dict[str, Any]:
    """A chat completion."""
    return {
        "model": "m-1",
        "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500},
    }


def chunk(text: str, **more: Any) -> dict[str, Any]:
    """A piece of a streamed completion."""
    return {"model": "m-1", "choices": [{"index": 0, "delta": {"content": text}, **more}]}


def one_after_the_other(*handlers: Handler) -> Handler:
    """Answer each request with the next handler, and then always with the last."""
    left = list(handlers)

    async def handler(seen: Seen, stream: Stream) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(seen, stream)

    return handler


@contextlib.asynccontextmanager
async def over_http(server: Server, **fields: Any):
    """A file over a server of the loopback."""
    entry = ProviderConfig("local", "openai-compat", f"{server.url}/v1", default_model="m", **fields)
    model = HttpModel(entry, DIALECTS[entry.driver](entry.base_url), lambda: None)
    one = Service(entry, model, lambda: 0.0)
    try:
        yield ModelDevice(one, Fallbacks(lambda name: None))
    finally:
        await one.aclose()


async def test_a_server_that_is_busy_at_first():
    """503, then 429 with a time, then an answer: one line, with prices, window, and all attempts."""
    busy = reply({"error": {"message": "loading"}}, 503)
    slow = reply({"error": {"message": "slow down"}}, 429, retry_after="0")
    async with serving(one_after_the_other(busy, slow, reply(completion("done")))) as server:
        prices = ModelConfig("m", context_window=4096, input_usd=1.0, output_usd=2.0)
        async with over_http(server, models=[prices]) as one:
            got = (await read(one, "hi")).lines[0]
            row = one.service.row()
    assert (got["content"], got["attempts"], got["provider"]) == ("done", 3, "local")
    assert (got["cost_usd"], got["context_window"]) == (pytest.approx(0.002), 4096)
    assert (row["calls"], row["failures"]) == (3, 2)
    assert len(server.requests) == 3


async def test_a_stream_that_breaks_off_begins_anew():
    """Half a stream, then a whole one: `restart` stands between them, and the answer is the whole."""
    half = sse(events([chunk("half ")]), end=False)
    whole = sse(events([chunk("all of "), chunk("it", finish_reason="stop"), "[DONE]"]))
    async with serving(one_after_the_other(half, whole)) as server, over_http(server) as one:
        *pieces, last = (await read(one, {"intent": "x", "stream": "events"})).lines
    assert _runs((line["type"], line["text"]) for line in pieces) == [
        ("text", "half "),
        ("restart", ""),
        ("text", "all of it"),
    ]
    assert (last["content"], last["attempts"]) == ("all of it", 2)


async def test_a_request_that_the_server_refuses_is_asked_once():
    """400 is the request's own fault."""
    wrong = reply({"error": {"message": "no such field"}}, 400)
    async with serving(wrong) as server, over_http(server, retries=5) as one:
        with pytest.raises(SyscallError, match="local: HTTP 400: no such field") as caught:
            await read(one, "hi")
    assert caught.value.code is Code.INVALID
    assert len(server.requests) == 1


async def test_a_server_that_hangs_up_opens_the_circuit():
    """After failures in a row it is not asked any more."""
    async with serving(raw()) as server, over_http(server, retries=0) as one:
        for _ in range(limits.BREAKER_FAILURES):
            with pytest.raises(SyscallError):
                await read(one, "hi")
        asked = len(server.requests)
        with pytest.raises(SyscallError, match="left alone") as caught:
            await read(one, "hi")
    assert caught.value.code is Code.SERVICE_UNAVAILABLE
    assert len(server.requests) == asked
