"""The official client of Anthropic, and the real `claude` command, against a real gateway."""

import json
import os
import pathlib
from typing import Any

import anthropic
import pytest

from tests.daemon import Done
from tests.gateway.gatelab import KEY, Lab
from tests.models.programs import real_claude

WEATHER: Any = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def said(*texts: str) -> Any:
    """A conversation in which user and assistant take turns; the user begins."""
    return [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]


def test_an_answer(lab: Lab) -> None:
    """The text, why it ended, and the tokens come as the client's types have them."""
    with lab.anthropic() as client:
        answer = client.messages.create(model="script", max_tokens=100, messages=said("say hello there"))
    (block,) = answer.content
    assert block.type == "text"
    assert block.text == "hello there"
    assert (answer.role, answer.stop_reason, answer.model) == ("assistant", "end_turn", "script")
    assert answer.usage.input_tokens > 0
    assert answer.usage.output_tokens > 0


def test_a_stream(lab: Lab) -> None:
    """The events come in the order that the API has, and the client puts the message together from them."""
    with (
        lab.anthropic() as client,
        client.messages.stream(model="play", max_tokens=100, messages=said("count to four")) as stream,
    ):
        kinds = [event.type for event in stream]
        answer = stream.get_final_message()
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert kinds.count("content_block_delta") > 1
    assert [block.text for block in answer.content if block.type == "text"] == ["one two three four"]
    assert answer.stop_reason == "end_turn"
    assert answer.usage.output_tokens > 0
    assert answer.usage.input_tokens > 0


@pytest.mark.parametrize("streams", [False, True])
def test_a_tool_and_back(lab: Lab, streams: bool) -> None:
    """The model calls a tool that the client has, and answers with what the client sends back."""
    options: Any = {"model": "play", "max_tokens": 100, "tools": [WEATHER]}
    messages = said("the weather in Oslo")
    with lab.anthropic() as client:
        if streams:
            with client.messages.stream(**options, messages=messages) as stream:
                first = stream.get_final_message()
        else:
            first = client.messages.create(**options, messages=messages)
        text, call = first.content
        assert first.stop_reason == "tool_use"
        assert text.type == "text"
        assert text.text == "Let me see."
        assert call.type == "tool_use"
        assert (call.name, call.input) == ("get_weather", {"city": "Oslo"})
        sky = [{"type": "text", "text": '{"sky": "grey"}', "cache_control": {"type": "ephemeral"}}]
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": sky}]
        turn = [
            *messages,
            {"role": "assistant", "content": [block.model_dump() for block in first.content]},
            {"role": "user", "content": results},
        ]
        last = client.messages.create(**options, messages=turn)
    assert [block.text for block in last.content if block.type == "text"] == ["It is grey there."]
    assert (last.usage.input_tokens, last.usage.output_tokens) == (70, 5)


def test_what_stands_before_a_conversation(lab: Lab) -> None:
    """Blocks of instructions reach the model in order, marks for caches and lines for the books left out."""
    system: Any = [
        {"type": "text", "text": "x-anthropic-billing-header: cch=1;"},
        {"type": "text", "text": "First.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Second."},
    ]
    with lab.anthropic() as client:
        answer = client.messages.create(
            model="play", max_tokens=100, system=system, messages=said("show me the prompt")
        )
    assert [block.text for block in answer.content if block.type == "text"] == ["First.\n\nSecond."]


def test_a_stop_sequence(lab: Lab) -> None:
    """An answer ends before the first stop sequence and says which it was."""
    with lab.anthropic() as client:
        answer = client.messages.create(
            model="play", max_tokens=100, messages=said("count to four"), stop_sequences=["five", " three"]
        )
    assert [block.text for block in answer.content if block.type == "text"] == ["one two"]
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", " three")


def test_tokens_are_estimated(lab: Lab) -> None:
    """The tokens of a request are estimated from all of it, without asking anybody."""
    with lab.anthropic() as client:
        less = client.messages.count_tokens(model="script", messages=said("x" * 400))
        more = client.messages.count_tokens(model="script", messages=said("x" * 400), tools=[WEATHER])
    assert less.input_tokens == 100
    assert more.input_tokens > less.input_tokens


def test_the_list_of_models(lab: Lab) -> None:
    """The same list fits this client, too."""
    with lab.anthropic() as client:
        names = [model.id for model in client.models.list()]
        one = client.models.retrieve("script")
    assert {"script", "play", "agent/default"} <= set(names)
    assert one.display_name == "script"


ERRORS = [
    ("INVALID", anthropic.BadRequestError, 400, "invalid_request_error"),
    ("PERMISSION", anthropic.PermissionDeniedError, 403, "permission_error"),
    ("NOT_FOUND", anthropic.NotFoundError, 404, "not_found_error"),
    ("TOO_LARGE", anthropic.APIStatusError, 413, "request_too_large"),
    ("SERVICE_UNAVAILABLE", anthropic.APIStatusError, 529, "overloaded_error"),
    ("TIMEOUT", anthropic.APIStatusError, 504, "timeout_error"),
    ("DRIVER", anthropic.InternalServerError, 502, "api_error"),
]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(("code", "kind", "status", "name"), ERRORS)
def test_errors_of_a_model(
    lab: Lab, code: str, kind: type[anthropic.APIStatusError], status: int, name: str, streams: bool
) -> None:
    """An error becomes the client's own class, before a stream as well, and keeps its words."""
    with lab.anthropic() as client, pytest.raises(kind, match="was asked to fail") as caught:
        client.messages.create(model="script", max_tokens=100, messages=said(f"fail: {code}"), stream=streams)
    assert caught.value.status_code == status
    assert json.loads(caught.value.response.text)["error"]["type"] == name


def test_a_wrong_key_and_an_unknown_model(lab: Lab) -> None:
    """Both are errors of this API's form."""
    with lab.anthropic("rnix-wrong-key") as client, pytest.raises(anthropic.AuthenticationError) as caught:
        client.messages.create(model="script", max_tokens=1, messages=said("hi"))
    assert json.loads(caught.value.response.text)["type"] == "error"
    with lab.anthropic() as client, pytest.raises(anthropic.NotFoundError, match="there are"):
        client.messages.create(model="claude-99", max_tokens=1, messages=said("hi"))


def test_a_bearer_token_is_a_key(lab: Lab) -> None:
    """Clients of this API may show the key in either header."""
    with lab.anthropic(key=None, auth_token=KEY) as client:
        assert client.messages.count_tokens(model="script", messages=said("hi")).input_tokens == 1


# --- the real command ---


def claude(lab: Lab, folder: pathlib.Path, prompt: str, *options: str, model: str = "script") -> Done:
    """Run the real `claude` command, whose only server is the gateway."""
    home = folder / "home"
    home.mkdir()
    env = {
        "HOME": str(home),
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "ANTHROPIC_BASE_URL": lab.url,
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",
    }
    words = [
        real_claude(),
        "-p",
        "--bare",
        "--model",
        model,
        "--no-session-persistence",
        "--strict-mcp-config",
    ]
    program = lab.daemon.program([*words, "--output-format", "json", *options], env)
    try:
        return program.end(prompt.encode())
    finally:
        lab.daemon.forget(program)


def test_the_real_claude_command(lab: Lab, tmp_path: pathlib.Path) -> None:
    """The real command runs on a provider of the mount, streams its answer and counts its tokens."""
    done = claude(lab, tmp_path, "say hello from the mount", "--tools", "")
    assert done.status == 0, done
    result = json.loads(done.out)
    assert (result["is_error"], result["result"]) == (False, "hello from the mount")
    assert result["usage"]["output_tokens"] > 0


def test_the_real_claude_command_uses_its_tools(lab: Lab, tmp_path: pathlib.Path) -> None:
    """A model of the mount calls a tool of the real command, which runs it and sends back what came of it."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "note.txt").write_text("the word is heliotrope\n")
    call = json.dumps({"file_path": str(work / "note.txt")})
    done = claude(lab, tmp_path, f"call: Read {call}", "--tools", "Read", "--add-dir", str(work))
    assert done.status == 0, done
    result = json.loads(done.out)
    assert "the word is heliotrope" in result["result"]
    assert result["num_turns"] == 2


def test_the_real_claude_command_meets_an_error(lab: Lab, tmp_path: pathlib.Path) -> None:
    """A model that fails fails in the command's own words, with its status."""
    done = claude(lab, tmp_path, "fail: PERMISSION", "--tools", "")
    result = json.loads(done.out)
    assert (done.status, result["is_error"], result["api_error_status"]) == (1, True, 403)
