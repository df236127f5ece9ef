"""Servers of models on this machine: which are found, what is not taken for one, and when somebody looks."""

import json
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import trio

from rnixfs import limits
from rnixfs.discovery import Discovery, Server, servers_of
from rnixfs.presets import LOCAL, PRESETS
from rnixfs.providers import ModelConfig, ProviderConfig
from tests.models import servers
from tests.models.servers import SECONDS, hang, head, raw, reply, serving


def listed(*models: Any, **more: Any) -> dict[str, Any]:
    """A list of models as servers give it; a text is the name of one."""
    data = [{"id": one, "object": "model"} if isinstance(one, str) else one for one in models]
    return {"object": "list", "data": data, **more}


def at(url: str, name: str = "ollama") -> Server:
    """The place of a test's server."""
    return Server(name, "127.0.0.1", int(url.rpartition(":")[2]))


def never(_job: Callable[[], Awaitable[None]]) -> None:
    """Nothing is to begin in the background."""
    raise AssertionError("a look began in the background")


def discovery(*places: Server, seconds: float = SECONDS) -> Discovery:
    """One that has time enough on a loaded machine."""
    return Discovery(places, never, seconds)


async def found_at(handler: servers.Handler, name: str = "ollama") -> tuple[ProviderConfig, ...]:
    """What one look finds where this handler answers."""
    async with serving(handler) as server:
        looking = discovery(at(server.url, name))
        await looking.look()
        return looking.found()


@pytest.fixture
def nobody() -> Iterator[Server]:
    """A place where nobody listens, and nobody else can: the port is taken by a socket that does not."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        yield Server("llamacpp", *one.getsockname())


# --- what is found ---


@pytest.mark.parametrize("name", LOCAL)
async def test_a_server_that_lists_models_is_a_provider(name: str) -> None:
    """Its name, address, models and first model are those of the entry that one would have written."""
    async with serving(reply(listed("qwen3:8b", "llama3"))) as server:
        looking = discovery(at(server.url, name))
        assert looking.found() == ()
        await looking.look()
        assert looking.found() == (
            ProviderConfig(
                name,
                "openai-compat",
                f"{server.url}/v1",
                default_model="qwen3:8b",
                models=[ModelConfig("qwen3:8b"), ModelConfig("llama3")],
            ),
        )
        assert [(seen.method, seen.path, seen.content) for seen in server.requests] == [
            ("GET", "/v1/models", b"")
        ]
        assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ({"max_model_len": 4096}, 4096),
        ({"context_length": 8192}, 8192),
        ({"meta": {"n_ctx": 2048, "n_ctx_train": 131072}}, 2048),
        ({"meta": {"n_ctx_train": 131072}}, 0),
        ({"meta": None, "max_model_len": "many"}, 0),
        ({"max_model_len": -1}, 0),
    ],
)
async def test_the_window_is_the_one_that_the_server_names(model: dict[str, Any], window: int) -> None:
    """Windows are taken where the server says them; the one of the training is not that of the server."""
    (found,) = await found_at(reply(listed({"id": "m", **model})))
    assert found.models == [ModelConfig("m", window)]


async def test_no_proxy_stands_before_this_machine(nobody: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable for the ways to other machines leads nobody astray here."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{nobody.port}")
    (found,) = await found_at(reply(listed("m")))
    assert found.default_model == "m"


async def test_models_that_hold_no_conversation_are_left_out() -> None:
    """A model for embeddings is not asked for answers, wherever in the list it stands."""
    (found,) = await found_at(reply(listed("text-embedding-nomic", "qwen3", "bge-reranker")))
    assert (found.default_model, [one.name for one in found.models]) == ("qwen3", ["qwen3"])


NOT_ONE: dict[str, servers.Handler] = {
    "a web page": reply("<html><title>Hello</title></html>", kind="text/html"),
    "not found": reply({"detail": "Not Found"}, status=404),
    "a key wanted": reply({"error": {"message": "no key"}}, status=401),
    "an error": reply(listed("m"), status=500),
    "moved": reply("", status=302, location="/login"),
    "not JSON": reply("[", kind="application/json"),
    "another object": reply({"models": [{"name": "m"}]}),
    "a list": reply([{"id": "m"}]),
    "no list": reply({"object": "list", "data": None}),
    "nothing in it": reply(listed()),
    "models without names": reply(listed({"object": "model"})),
    "other things": reply(listed("m", 5)),
    "names of numbers": reply(listed({"id": 5})),
    "unfit names": reply(listed("a\x1b[2J", " ", "x" * 300)),
    "embeddings only": reply(listed("text-embedding-nomic")),
    "ourselves": reply(listed({"id": "script", "owned_by": "rnix"})),
    "deep": reply('{"data": ' + "[" * 100_000),
    "not UTF-8": reply(b'{"data": [{"id": "\xff"}]}'),
    "large": reply(listed("m", more="x" * (limits.DISCOVERY_BYTES + 1))),
    "endless": servers.endless("application/json", b'{"data": [', b'{"id": "m"}, ' * 5000),
    "no HTTP": raw(b"SSH-2.0-OpenSSH_9.2p1\r\n"),
    "bytes": raw(bytes(range(256))),
    "a broken answer": raw(head(200, {"content-length": "100"}) + b'{"data"'),
    "packed": reply(b"\x1f\x8b\x08\x00", content_encoding="gzip"),
    "nothing": raw(),
}


@pytest.mark.parametrize("handler", NOT_ONE.values(), ids=NOT_ONE.keys())
async def test_what_is_no_server_of_models_is_not_taken(handler: servers.Handler) -> None:
    """Anything may stand on a port that is free for all."""
    assert await found_at(handler) == ()


async def test_a_port_without_a_listener_hides_no_other(nobody: Server) -> None:
    """Where nobody listens nothing is found, and others are found all the same, in their order."""
    async with serving(reply(listed("one"))) as first, serving(reply(listed("two"))) as second:
        looking = discovery(at(first.url, "vllm"), nobody, at(second.url, "ollama"))
        await looking.look()
        assert [one.name for one in looking.found()] == ["vllm", "ollama"]


async def test_a_server_of_somebody_else_is_not_even_asked() -> None:
    """Whoever listens on a free port of a shared machine would decide what agents do."""
    async with serving(reply(listed("m"))) as server:
        asked: list[tuple[str, int]] = []

        def trusted(host: str, port: int) -> bool:
            asked.append((host, port))
            return False

        place = at(server.url)
        looking = Discovery((place,), never, SECONDS, trusted)
        await looking.look()
        assert looking.found() == ()
        assert server.requests == []
        assert asked == [(place.host, place.port)]


# --- as time goes by ---


async def test_a_server_that_ends_is_gone_and_one_that_begins_is_there() -> None:
    """Each look tells how it is now."""
    async with serving(reply(listed("m"))) as server:
        looking = discovery(at(server.url))
        await looking.look()
        assert [one.name for one in looking.found()] == ["ollama"]
    await looking.look()
    assert looking.found() == ()


async def test_a_server_that_turned_into_something_else_is_gone() -> None:
    """What was a server of models a moment ago need not be one now."""
    async with serving(reply(listed("m"))) as server:
        looking = discovery(at(server.url))
        await looking.look()
        server.handler = NOT_ONE["a web page"]
        await looking.look()
        assert looking.found() == ()


@pytest.mark.parametrize("busy", ["silent", "loading"])
async def test_a_server_at_work_stays_but_is_not_found_anew(busy: str) -> None:
    """A server that takes connections and does not answer in time is as it was: it may be computing."""
    async with serving(reply(listed("m"))) as server:
        looking = discovery(at(server.url))
        await looking.look()
        server.handler = hang(server) if busy == "silent" else reply({"error": "Loading model"}, status=503)
        other = discovery(at(server.url))
        for one in (looking, other):
            with trio.move_on_after(0.2):
                await one.look()
        assert [one.name for one in looking.found()] == ["ollama"]
        assert other.found() == ()


@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 200 OK\r\nx: ", head(200, {"content-length": "9"}) + b"{"])
async def test_a_look_ends_in_time_and_leaves_no_connection(first: bytes) -> None:
    """A server that is silent, wherever in its answer, is left after the time of one look."""
    async with serving(reply("")) as server:
        server.handler = hang(server, first)
        looking = discovery(at(server.url), seconds=0.2)
        # The library is imported in the first look; a look may end before it has asked.
        while not server.requests:
            await looking.look()
        await server.hung_up.wait()
        assert looking.found() == ()


async def test_the_first_model_stays_the_same_while_it_is_there() -> None:
    """Ollama lists the model used last first; which one is asked by default does not change with that."""
    async with serving(reply(listed("a", "b"))) as server:
        looking = discovery(at(server.url))
        names = []
        for models in (("a", "b"), ("b", "a"), ("b", "c")):
            server.handler = reply(listed(*models))
            await looking.look()
            names.append(looking.found()[0].default_model)
        assert names == ["a", "a", "b"]


# --- when somebody looks ---


async def test_interest_begins_one_look_where_the_last_is_old(
    nobody: Server, autojump_clock: trio.testing.MockClock
) -> None:
    """Asking for what was found never waits; it begins a look in the background, one at a time, and not
    before somebody awaited the first."""
    jobs: list[Callable[[], Awaitable[None]]] = []
    looking = Discovery((nobody,), jobs.append)
    looking.found()
    assert jobs == []
    await looking.look()
    looking.found()
    await trio.sleep(limits.DISCOVERY_AGE_SECONDS - 0.1)
    looking.found()
    assert jobs == []
    await trio.sleep(0.2)
    for _ in range(3):
        looking.found()
    assert len(jobs) == 1
    await jobs.pop()()
    looking.found()
    assert jobs == []


async def test_nobody_looks_where_there_is_nowhere_to(autojump_clock: trio.testing.MockClock) -> None:
    """Switched off means that no connection is ever made."""
    looking = Discovery((), never)
    await looking.look()
    await trio.sleep(100)
    assert looking.found() == ()


# --- where they are looked for ---


def test_the_places_are_those_of_the_presets() -> None:
    """Without variables: the documented ports, on this machine, in the order of preference."""
    places, wrong = servers_of({})
    assert [(one.name, one.base_url) for one in places] == [(name, PRESETS[name].base_url) for name in LOCAL]
    assert wrong == ()


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("127.0.0.1:11500", "http://127.0.0.1:11500/v1"),
        ("127.0.0.1", "http://127.0.0.1:11434/v1"),
        (":11500", "http://127.0.0.1:11500/v1"),
        ("11500", "http://127.0.0.1:11500/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("localhost:1", "http://127.0.0.1:1/v1"),
        ("http://localhost", "http://127.0.0.1:80/v1"),
        ("http://127.0.0.1:3/", "http://127.0.0.1:3/v1"),
        ("[::1]:5", "http://[::1]:5/v1"),
        ("::1", "http://[::1]:11434/v1"),
        ("::", "http://[::1]:11434/v1"),
        # What is elsewhere, or no address, leaves the usual place.
        ("", "http://127.0.0.1:11434/v1"),
        ("10.0.0.1:11434", "http://127.0.0.1:11434/v1"),
        ("https://localhost:5", "http://127.0.0.1:11434/v1"),
        ("example.com", "http://127.0.0.1:11434/v1"),
        ("127.0.0.1:0", "http://127.0.0.1:11434/v1"),
        ("127.0.0.1:70000", "http://127.0.0.1:11434/v1"),
        ("127.0.0.1:" + "9" * 5000, "http://127.0.0.1:11434/v1"),
        ("127.0.0.1:x", "http://127.0.0.1:11434/v1"),
    ],
)
def test_ollamas_own_variable_counts_where_it_means_this_machine(value: str, address: str) -> None:
    """OLLAMA_HOST moves the place; it never leads to another machine."""
    places, wrong = servers_of({"OLLAMA_HOST": value})
    assert (places[0].name, places[0].base_url) == ("ollama", address)
    assert len(places) == len(LOCAL)
    assert wrong == ()


def test_one_place_is_looked_at_once() -> None:
    """Where Ollama listens on the port of another server, what is there is Ollama."""
    places, _ = servers_of({"OLLAMA_HOST": "127.0.0.1:8080"})
    assert [one.name for one in places] == ["ollama", "vllm", "lmstudio"]


def test_a_variable_says_where_to_look_or_nowhere() -> None:
    """Names with ports or addresses take the place of the usual ones, in the same order; what is wrong is
    named and the rest counts."""
    assert servers_of({"RNIX_LOCAL_SERVERS": "none", "OLLAMA_HOST": ":5"}) == ((), ())
    places, wrong = servers_of({"RNIX_LOCAL_SERVERS": "vllm=[::1]:5, ollama=11500,"})
    assert places == (Server("ollama", "127.0.0.1", 11500), Server("vllm", "::1", 5))
    assert wrong == ()
    places, wrong = servers_of({"RNIX_LOCAL_SERVERS": "olama=1,ollama=10.0.0.1:5,vllm=,llamacpp=8081"})
    assert places == (Server("llamacpp", "127.0.0.1", 8081),)
    assert [text.partition(" is no place")[0] for text in wrong] == [
        "RNIX_LOCAL_SERVERS: 'olama=1'",
        "RNIX_LOCAL_SERVERS: 'ollama=10.0.0.1:5'",
        "RNIX_LOCAL_SERVERS: 'vllm='",
    ]
    assert "such as ollama=11434" in json.dumps(wrong)
