"""What both APIs say, without a server: reading requests, names of models, answers on their way."""

import json
import pathlib
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

from rnixfs.errors import Code, SyscallError
from rnixfs.gateway import chat, keys, messages
from rnixfs.gateway.app import is_local
from rnixfs.gateway.asked import Asked, Pieces, within
from rnixfs.gateway.echoes import KEPT, Echoes
from rnixfs.gateway.models import Catalog, Provider, Target, intent_of
from rnixfs.gateway.refusal import RefusedError, of_device
from rnixfs.gateway.turn import request_for
from rnixfs.llm import Delta, Message, ModelAnswer, ModelRequest, Role, ToolCall
from rnixfs.wire.dialect import INVALID_ARGUMENTS

USER = [{"role": "user", "content": "hi"}]


# --- names ---

CATALOG = Catalog(
    [
        Provider("claude", "claude-cli", available=False),
        Provider("router", default="meta/llama:free", models=("openai/gpt", "shared")),
        Provider("other", models=("shared", "qwen:7b")),
        Provider("openai"),
    ],
    ["default", "stem"],
)


@pytest.mark.parametrize(
    ("name", "provider", "model"),
    [
        ("other", "other", ""),
        ("other:qwen:7b", "other", "qwen:7b"),
        ("other/anything at all", "other", "anything at all"),
        ("router:meta/llama:free", "router", "meta/llama:free"),
        ("meta/llama:free", "router", "meta/llama:free"),
        ("qwen:7b", "other", "qwen:7b"),
        ("shared", "router", "shared"),
        ("openai/gpt", "openai", "gpt"),
        ("", "router", ""),
        ("default", "router", ""),
    ],
)
def test_names(name: str, provider: str, model: str) -> None:
    """A provider goes before a model, the first before the others, a usable one before one that is not."""
    target = CATALOG.find(name)
    assert target.provider is not None
    assert (target.provider.name, target.model) == (provider, model)


@pytest.mark.parametrize(
    "name", ["nobody", "other:", "otherx", "agent/", "agent/nobody", "stem", "router-x/y"]
)
def test_names_that_nobody_has(name: str) -> None:
    """Nearly a name is none."""
    with pytest.raises(RefusedError, match="agent/stem") as caught:
        CATALOG.find(name)
    assert caught.value.status == 404


def test_a_default_takes_names_that_nobody_has() -> None:
    """With a default there are no unknown names, and known ones keep their meaning."""
    catalog = CATALOG._replace(default="agent/stem")
    assert str(catalog.find("gpt-9")) == "agent/stem"
    assert str(catalog.find("")) == "agent/stem"
    assert str(catalog.find("agent/default")) == "agent/default"
    assert str(catalog.find("other/x")) == "other:x"


def test_nobody_there() -> None:
    """Where no provider can be used, a request without a name is not answered now."""
    with pytest.raises(RefusedError) as caught:
        Catalog([Provider("claude", available=False)]).find("")
    assert caught.value.status == 503


# --- answers on their way ---


@hypothesis.example(["b", "c", "a"], ["c", "bca"])
@hypothesis.given(
    strategies.lists(strategies.text("abc", max_size=4)),
    strategies.lists(strategies.text("abc", min_size=1, max_size=3), max_size=3),
)
def test_a_stream_is_what_the_whole_would_be(pieces: list[str], stop: list[str]) -> None:
    """However an answer is cut into pieces, and whatever stops it, its stream is the text of the whole."""
    sent, flow = [], Pieces(stop)
    for text in pieces:
        sent += flow.feed(Delta("text", text))
    whole = within(ModelAnswer(content="".join(pieces)), stop)
    sent += flow.finish(whole)
    assert "".join(delta.text for delta in sent) == whole.content
    assert not any(one in whole.content for one in stop)


@hypothesis.given(strategies.lists(strategies.text("abc", min_size=1), min_size=1))
def test_a_stream_without_stops_waits_for_nothing(pieces: list[str]) -> None:
    """Without stop sequences each piece is passed on as it comes."""
    flow = Pieces()
    assert [flow.feed(Delta("text", text)) for text in pieces] == [[Delta("text", text)] for text in pieces]


def test_an_answer_that_did_not_stream() -> None:
    """What a provider gave only at the end is passed on at the end."""
    flow = Pieces()
    assert flow.finish(ModelAnswer(content="all of it")) == [Delta("text", "all of it")]


def test_a_text_that_was_changed_at_the_end() -> None:
    """What was sent stays sent where the whole answer has other blanks."""
    flow = Pieces()
    flow.feed(Delta("text", " hello \n"))
    assert flow.finish(ModelAnswer(content="hello")) == []


def test_a_call_made_anew() -> None:
    """Before a text was sent a new attempt is nobody's business; after that the stream ends with an error."""
    flow = Pieces(["longer than the text"])
    assert flow.feed(Delta("reasoning", "hm")) == [Delta("reasoning", "hm")]
    assert flow.feed(Delta("text", "wrong")) == []
    assert flow.feed(Delta("restart")) == []
    assert flow.feed(Delta("text", "a text that is right")) == [Delta("text", "a")]
    with pytest.raises(RefusedError, match="ask again") as caught:
        flow.feed(Delta("restart"))
    assert caught.value.status == 503


@hypothesis.given(
    strategies.lists(strategies.sampled_from([Delta("text", "t"), Delta("reasoning", "r")])),
    strategies.lists(strategies.sampled_from(["one", "two"]), max_size=2),
    strategies.booleans(),
)
def test_events_of_anthropic_are_well_formed(deltas: list[Delta], calls: list[str], thinking: bool) -> None:
    """Blocks are numbered without gaps, opened and closed in turn, and hold deltas of their own kind."""
    writer = messages.writer(Asked("m", ModelRequest(), thinking=thinking))
    data = writer.begin() + b"".join(map(writer.piece, deltas))
    data += writer.end(ModelAnswer(tool_calls=[ToolCall(f"id-{name}", name, {}) for name in calls]))
    events = [json.loads(line[6:]) for line in data.decode().splitlines() if line.startswith("data: ")]
    names = [line[7:] for line in data.decode().splitlines() if line.startswith("event: ")]
    assert names == [event["type"] for event in events]
    assert [names[0], *names[-2:]] == ["message_start", "message_delta", "message_stop"]
    opened, number = "", -1
    for event in events[1:-2]:
        if event["type"] == "content_block_start":
            assert (opened, event["index"]) == ("", number + 1)
            opened, number = event["content_block"]["type"], event["index"]
        elif event["type"] == "content_block_stop":
            assert (opened != "", event["index"]) == (True, number)
            opened = ""
        else:
            kinds = {"text": "text_delta", "thinking": "thinking_delta", "tool_use": "input_json_delta"}
            assert (event["delta"]["type"], event["index"]) == (kinds[opened], number)
    assert opened == ""


# --- reading ---


def test_arguments_that_are_no_json() -> None:
    """What a model wrote as arguments comes back to it as it was, and leaves as it was."""
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": '}}
    asked = chat.read({"messages": [*USER, {"role": "assistant", "tool_calls": [call]}]})
    kept = asked.request.messages[1].tool_calls
    assert kept == [ToolCall("c1", "f", {INVALID_ARGUMENTS: '{"a":'})]
    written = chat.whole(asked, ModelAnswer(tool_calls=kept))["choices"][0]["message"]["tool_calls"]
    assert written[0]["function"]["arguments"] == '{"a":'


def test_calls_without_a_name_get_one() -> None:
    """Where a provider gives no ids, results could not name their call."""
    answer = ModelAnswer(tool_calls=[ToolCall("", "f", {})])
    asked = Asked("m", ModelRequest())
    assert chat.whole(asked, answer)["choices"][0]["message"]["tool_calls"][0]["id"].startswith("call_")
    assert messages.whole(asked, answer)["content"][0]["id"].startswith("toolu_")


def test_tokens_of_a_cache() -> None:
    """One API counts cached tokens among the others, the other one beside them."""
    answer = ModelAnswer(input_tokens=100, cached_tokens=90, output_tokens=5)
    asked = Asked("m", ModelRequest())
    usage = chat.whole(asked, answer)["usage"]
    assert (usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]) == (100, 90)
    usage = messages.whole(asked, answer)["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (10, 90, 5)


def test_a_turn_of_a_user_in_the_order_in_which_it_was_said() -> None:
    """Results of tools and words of the user are messages of their own, in their order."""
    content = [
        {"type": "text", "text": "before"},
        {"type": "tool_result", "tool_use_id": "t1", "content": "one"},
        {
            "type": "tool_result",
            "tool_use_id": "t2",
            "is_error": True,
            "content": [{"type": "text", "text": "no"}],
        },
        {"type": "tool_result", "tool_use_id": "t3"},
        {"type": "text", "text": "after"},
        {"type": "document", "source": {"type": "text", "data": "a document"}},
    ]
    asked = messages.read({"messages": [{"role": "user", "content": content}]})
    assert [(one.role, one.content, one.tool_call_id) for one in asked.request.messages] == [
        (Role.USER, "before", ""),
        (Role.TOOL, "one", "t1"),
        (Role.TOOL, "Error: no", "t2"),
        (Role.TOOL, "", "t3"),
        (Role.USER, "after\na document", ""),
    ]


def test_an_image_in_a_result_is_named() -> None:
    """Nobody chose to send what a tool gave, so the conversation goes on, and the model knows of it."""
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image", "source": {}}]}
    asked = messages.read({"messages": [{"role": "user", "content": [result]}]})
    assert "image left out" in asked.request.messages[0].content


def test_turns_of_an_assistant_and_of_the_system() -> None:
    """Thoughts that come back are left out; instructions in the middle stay where they are."""
    assistant = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "I call."},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}, "cache_control": {}},
    ]
    asked = messages.read(
        {
            "messages": [
                *USER,
                {"role": "assistant", "content": assistant},
                {"role": "system", "content": [{"type": "text", "text": "now this"}]},
                {"role": "user", "content": "go on"},
            ]
        }
    )
    assert asked.request.messages[1:3] == [
        Message(Role.ASSISTANT, "I call.", [ToolCall("t1", "f", {"a": 1})]),
        Message(Role.SYSTEM, "now this"),
    ]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages: is empty"),
    ({"messages": [{"role": "robot", "content": "hi"}]}, "user, assistant or system"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "text only"),
    ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "tool_use_id: is missing"),
    ({"messages": [{"role": "assistant", "content": [{"type": "tool_use"}]}]}, "id and name"),
    ({"messages": [{"role": "user", "content": [{"type": "odd"}]}]}, "'odd'"),
    ({"messages": USER, "max_tokens": 0}, "at least 1"),
    ({"messages": USER, "tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "Anthropic only"),
    ({"messages": USER, "tool_choice": {"type": "any"}}, "names no tool"),
    ({"messages": USER, "tool_choice": {"type": "tool", "name": "f"}}, "names no tool"),
    ({"messages": USER, "mcp_servers": [{}]}, "Anthropic only"),
    ({"messages": USER, "system": [{"type": "image"}]}, r"system\[0\]"),
    ({"messages": USER, "output_config": {"format": {"type": "xml"}}}, "json_schema"),
    ({"messages": USER, "stop_sequences": "x"}, "stop_sequences"),
]


@pytest.mark.parametrize(("body", "words"), WRONG)
def test_requests_of_anthropic_that_are_wrong(body: dict[str, Any], words: str) -> None:
    """A request that cannot be taken is refused with the field and what would be right."""
    with pytest.raises(RefusedError, match=words) as caught:
        messages.read(body)
    assert caught.value.status == 400


def test_effort_in_the_words_of_claude() -> None:
    """Effort of Anthropic's API goes to Claude's models alone; others might refuse a word of theirs."""
    asked = messages.read({"messages": USER, "output_config": {"effort": "max"}})
    assert request_for(Target(Provider("c", "claude-cli")), asked).effort == "max"
    assert request_for(Target(Provider("o", "openai-compat")), asked).effort == ""
    asked = chat.read({"messages": USER, "reasoning_effort": "high"})
    assert request_for(Target(Provider("o", "openai-compat")), asked).effort == "high"


def test_an_intent_of_a_conversation() -> None:
    """One message is the intent as it is; of more, the last one is told apart."""
    first = Message(Role.USER, "do it")
    assert intent_of(ModelRequest(messages=[first])) == "do it"
    text = intent_of(
        ModelRequest(messages=[first, Message(Role.ASSISTANT, "done"), Message(Role.USER, "again")])
    )
    assert text.split("\n\n")[1:] == ["user: do it", "assistant: done", "What is to be done now:", "again"]
    with pytest.raises(RefusedError):
        intent_of(ModelRequest(messages=[Message(Role.USER, " ")]))


# --- what providers want back ---


def test_echoes_come_back_with_their_calls() -> None:
    """What belongs to an answer stands beside its calls when they come back, and beside no others."""
    echoes = Echoes()
    call = ToolCall("t1", "f", {"a": 1, "b": 2})
    echoes.keep(ModelAnswer(tool_calls=[call], echo={"signed": "S"}))
    same = Message(Role.ASSISTANT, tool_calls=[ToolCall("t1", "f", {"b": 2, "a": 1})])
    other = Message(Role.ASSISTANT, tool_calls=[ToolCall("t1", "f", {"a": 2})])
    restored = echoes.restore(ModelRequest(messages=[same, other, Message(Role.USER, "x")])).messages
    assert [one.echo for one in restored] == [{"signed": "S"}, {}, {}]


def test_echoes_are_bounded() -> None:
    """The oldest are forgotten first."""
    echoes = Echoes()
    calls = [[ToolCall(f"t{number}", "f", {})] for number in range(KEPT + 1)]
    for call in calls:
        echoes.keep(ModelAnswer(tool_calls=call, echo={"signed": "S"}))
    sent = [Message(Role.ASSISTANT, tool_calls=call) for call in (calls[0], calls[1])]
    assert [one.echo for one in echoes.restore(ModelRequest(messages=sent)).messages] == [{}, {"signed": "S"}]


# --- errors ---


@pytest.mark.parametrize(
    ("error", "status", "headers"),
    [
        ({"code": "SERVICE_UNAVAILABLE", "status": 429}, 429, []),
        (
            {"code": "SERVICE_UNAVAILABLE", "retry_after_ms": 1500, "retryable": True},
            503,
            [("retry-after", "2"), ("retry-after-ms", "1500")],
        ),
        ({"code": "SERVICE_UNAVAILABLE", "status": 529, "retryable": True}, 503, []),
        ({"code": "DRIVER", "retryable": False}, 502, [("x-should-retry", "false")]),
        ({"code": "CANCELED"}, 503, []),
        ({"code": "NEW_CODE"}, 500, []),
        ("text", 502, []),
        (None, 502, []),
    ],
)
def test_errors_of_devices(error: Any, status: int, headers: list[tuple[str, str]]) -> None:
    """What a device tells of an error decides the status, and what clients do next."""
    refusal = of_device(error)
    assert (refusal.status, refusal.headers()) == (status, headers)
    assert refusal.reason


def test_every_code_has_a_status() -> None:
    """Each code of the kernel is a failure, in both APIs."""
    for code in Code:
        refusal = of_device({"code": str(code), "message": "words"})
        for form in (chat, messages):
            status, body = form.error(refusal)
            assert 400 <= status < 600
            assert body["error"]["message"] == "words"


# --- keys and hosts ---


def test_a_key_is_never_shown() -> None:
    """Whatever is printed of a key, it is not the key."""
    key = keys.from_environment("NAME", {"NAME": " secret-secret \n"})
    assert "secret" not in f"{key} {key!r} {vars(key)['origin']}"
    assert key.opens(b"secret-secret")


@pytest.mark.parametrize("shown", [b"", b"secret-secre", b"secret-secrett", b"SECRET-SECRET", b"\xff"])
def test_only_the_whole_key_opens(shown: bytes) -> None:
    """Nearly the key is none."""
    assert not keys.Key("secret-secret", "$NAME").opens(shown)


def test_keys_of_two_at_once(tmp_path: pathlib.Path) -> None:
    """The file that another one has made in the meantime is the one that counts."""
    folder = tmp_path / "state"
    first = keys.from_file(folder)
    value = (folder / keys.FILE).read_text().strip().encode()
    keys._make(folder / keys.FILE)
    assert first.opens(value)
    assert keys.from_file(folder).opens(value)
    assert [one.name for one in folder.iterdir()] == [keys.FILE]


@pytest.mark.parametrize("content", ["", "short", "two words of it", "schlüssel-schlüssel"])
def test_a_file_without_a_key(tmp_path: pathlib.Path, content: str) -> None:
    """A file that holds no key is named, and what it holds is not repeated."""
    path = tmp_path / keys.FILE
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(SyscallError, match=keys.FILE) as caught:
        keys.from_file(tmp_path)
    assert not content or content not in str(caught.value)


def test_a_folder_that_cannot_be_made(tmp_path: pathlib.Path) -> None:
    """Where no file can be kept, the reason is told."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SyscallError, match="cannot be used") as caught:
        keys.from_file(tmp_path / "file")
    assert caught.value.code == Code.PERMISSION


@pytest.mark.parametrize(
    ("host", "local"),
    [("localhost:8080", True), ("[::1]", True), ("127.9.9.9", True)]
    + [
        (host, False)
        for host in ("", "localhost.evil.example", "1.2.3.4:80", "[::2]:80", "evil:80", "0.0.0.0")
    ],
)
def test_local_hosts(host: str, local: bool) -> None:
    """Only names that lead to the machine itself are local."""
    assert is_local(host) is local
