"""The official client of OpenAI against a real gateway on a real mount."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from tests.gateway.gatelab import KEY, Lab

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def said(*texts: str) -> Any:
    """A conversation in which user and assistant take turns; the user begins."""
    return [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]


def test_an_answer(lab: Lab) -> None:
    """The text, why it ended, and the tokens come as the client's types have them."""
    with lab.openai() as client:
        answer = client.chat.completions.create(model="script", messages=said("say hello there"))
    (choice,) = answer.choices
    assert (choice.message.content, choice.message.role) == ("hello there", "assistant")
    assert (choice.finish_reason, choice.message.tool_calls) == ("stop", None)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens > 0
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert (answer.model, answer.object) == ("script", "chat.completion")
    assert answer.model_dump()["rnix"]["model"].startswith("script (no AI)")


def test_a_stream(lab: Lab) -> None:
    """Words come one by one, joined they are the text; the last chunk tells the tokens when asked to."""
    with lab.openai() as client:
        stream = client.chat.completions.create(
            model="play",
            messages=said("count to four"),
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
    texts = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert "".join(filter(None, texts)) == "one two three four"
    assert len(list(filter(None, texts))) > 1
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 0
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_stream_without_usage(lab: Lab) -> None:
    """Who does not ask for tokens gets chunks with a choice only."""
    with lab.openai() as client:
        stream = client.chat.completions.create(model="play", messages=said("count to four"), stream=True)
        chunks = list(stream)
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)


@pytest.mark.parametrize("streams", [False, True])
def test_a_tool_and_back(lab: Lab, streams: bool) -> None:
    """The model calls a tool that the client has, and answers with what the client sends back."""
    messages = said("the weather in Oslo")
    with lab.openai() as client:
        if streams:
            with client.chat.completions.stream(model="play", messages=messages, tools=[WEATHER]) as stream:
                first: Any = stream.get_final_completion().choices[0]
        else:
            answer = client.chat.completions.create(model="play", messages=messages, tools=[WEATHER])
            first = answer.choices[0]
        assert first.finish_reason == "tool_calls"
        assert first.message.content == "Let me see."
        assert first.message.tool_calls is not None
        (call,) = first.message.tool_calls
        assert call.type == "function"
        assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Oslo"})
        result = {"role": "tool", "tool_call_id": call.id, "content": '{"sky": "grey"}'}
        sent = {"role": "assistant", "content": "Let me see.", "tool_calls": [call.model_dump()]}
        turn: Any = [*messages, sent, result]
        last = client.chat.completions.create(model="play", messages=turn, tools=[WEATHER])
    assert last.choices[0].message.content == "It is grey there."
    assert last.usage is not None
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (70, 5)


def test_what_stands_before_a_conversation(lab: Lab) -> None:
    """Instructions of both kinds reach the model in order, content in parts as well."""
    messages: Any = [
        {"role": "system", "content": "First."},
        {"role": "developer", "content": [{"type": "text", "text": "Se"}, {"type": "text", "text": "cond."}]},
        {"role": "user", "content": [{"type": "text", "text": "show me the prompt"}]},
    ]
    with lab.openai() as client:
        answer = client.chat.completions.create(model="play", messages=messages)
    assert answer.choices[0].message.content == "First.\n\nSecond."


def test_wishes_in_words(lab: Lab) -> None:
    """What providers cannot be made to do is asked for in words: that a tool is called, a form of answer."""
    schema: Any = {
        "type": "json_schema",
        "json_schema": {"name": "sky", "schema": {"type": "object", "title": "SKY-SCHEMA"}, "strict": True},
    }
    with lab.openai() as client:
        answer = client.chat.completions.create(
            model="play",
            messages=said("show me the prompt"),
            tools=[WEATHER],
            tool_choice={"type": "function", "function": {"name": "get_weather"}},
            response_format=schema,
        )
    text = answer.choices[0].message.content or ""
    assert "call of the tool get_weather" in text
    assert "SKY-SCHEMA" in text


def test_no_tools_by_choice(lab: Lab) -> None:
    """With the choice none the model sees no tool."""
    with lab.openai() as client:
        answer = client.chat.completions.create(
            model="script", messages=said("show tools"), tools=[WEATHER], tool_choice="none"
        )
        offered = client.chat.completions.create(model="script", messages=said("show tools"), tools=[WEATHER])
    assert answer.choices[0].message.content == ""
    assert offered.choices[0].message.content == "get_weather"


def test_the_most_tokens(lab: Lab) -> None:
    """An answer that reaches its limit says so."""
    with lab.openai() as client:
        answer = client.chat.completions.create(
            model="script", messages=said("say " + "word " * 100), max_completion_tokens=3
        )
    assert answer.choices[0].finish_reason == "length"
    assert len(answer.choices[0].message.content or "") == 12


@pytest.mark.parametrize("streams", [False, True])
def test_a_stop_sequence(lab: Lab, streams: bool) -> None:
    """An answer ends before the first stop sequence, also where that comes in pieces."""
    with lab.openai() as client:
        options: Any = {"model": "play", "messages": said("count to four"), "stop": ["o thr", "four"]}
        if streams:
            stream = client.chat.completions.create(**options, stream=True)
            text = "".join([chunk.choices[0].delta.content or "" for chunk in stream])
        else:
            text = (client.chat.completions.create(**options)).choices[0].message.content
    assert text == "one tw"


def test_the_list_of_models(lab: Lab) -> None:
    """Every provider, every known model and every agent is in the list, and can be asked for by name."""
    with lab.openai() as client:
        names = [model.id for model in client.models.list()]
        one = client.models.retrieve("agent/default")
    assert {"script", "play", "nobody", "nobody:tiny:7b", "agent/default"} <= set(names)
    assert one.id == "agent/default"


@pytest.mark.parametrize("name", ["play:play", "play/play", "script", "script:default", "default"])
def test_names_of_models(lab: Lab, name: str) -> None:
    """A provider is named alone, or with its model after a colon or a slash; the first one by `default`."""
    with lab.openai() as client:
        answer = client.chat.completions.create(model=name, messages=said("count to four"))
    assert answer.model == name
    expected = "play" if name.startswith("play") else "script"
    if name != "default":
        assert answer.model_dump()["rnix"]["provider"] == expected


def test_a_name_by_the_model_alone(lab: Lab) -> None:
    """A model that one provider is known to have needs no provider before it."""
    with lab.openai() as client, pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(model="tiny:7b", messages=said("hi"))
    assert "nobody" in str(caught.value)


# --- errors ---


def test_an_unknown_model(lab: Lab) -> None:
    """Who names a model that is not there learns which there are."""
    with (
        lab.openai() as client,
        pytest.raises(openai.NotFoundError, match=r"no model 'gpt-99'; there are .*script.*agent/") as caught,
    ):
        client.chat.completions.create(model="gpt-99", messages=said("hi"))
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


def test_a_wrong_key(lab: Lab) -> None:
    """Without the key nothing is answered, and the right key is not told."""
    with lab.openai("rnix-wrong-key") as client, pytest.raises(openai.AuthenticationError) as caught:
        client.models.list()
    assert caught.value.code == "invalid_api_key"
    assert KEY not in str(caught.value)
    assert "rnix-wrong-key" not in str(caught.value)


ERRORS = [
    ("INVALID", openai.BadRequestError, 400),
    ("PERMISSION", openai.PermissionDeniedError, 403),
    ("NOT_FOUND", openai.NotFoundError, 404),
    ("TOO_LARGE", openai.APIStatusError, 413),
    ("BUDGET_EXCEEDED", openai.APIStatusError, 402),
    ("SERVICE_UNAVAILABLE", openai.InternalServerError, 503),
    ("TIMEOUT", openai.InternalServerError, 504),
    ("DRIVER", openai.InternalServerError, 502),
    ("INTERNAL", openai.InternalServerError, 500),
]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(("code", "kind", "status"), ERRORS)
def test_errors_of_a_model(
    lab: Lab, code: str, kind: type[openai.APIStatusError], status: int, streams: bool
) -> None:
    """An error becomes the client's own class, before a stream as well, and keeps its words."""
    options: Any = {"model": "script", "messages": said(f"fail: {code}"), "stream": streams}
    with lab.openai() as client, pytest.raises(kind, match="was asked to fail") as caught:
        client.chat.completions.create(**options)
    assert (caught.value.status_code, caught.value.code) == (status, code.lower())


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages: is empty"),
    ({"messages": "hi"}, "messages: Expected `array`"),
    ({"messages": [{"role": "robot", "content": "hi"}]}, "it must be one of"),
    ({"messages": [{"role": "tool", "content": "hi"}]}, "tool_call_id"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, '"text" only'),
    ({"messages": said("hi"), "n": 2}, "can only be 1"),
    ({"messages": said("hi"), "logprobs": True}, "logprobs"),
    ({"messages": said("hi"), "modalities": ["audio"]}, "modalities"),
    ({"messages": said("hi"), "max_tokens": 0}, "at least 1"),
    ({"messages": said("hi"), "temperature": "warm"}, "temperature"),
    ({"messages": said("hi"), "tool_choice": "required"}, "tool_choice"),
    ({"messages": said("hi"), "tools": [{"type": "custom"}]}, "tools\\[0\\]"),
    ({"messages": said("hi"), "functions": [{"name": "f"}]}, "give tools"),
    ({"messages": said("hi"), "response_format": {"type": "xml"}}, "json_object"),
    ({"messages": said("hi"), "stop": ["x"] * 17}, "stop sequences"),
]


@pytest.mark.parametrize(("body", "words"), WRONG, ids=lambda value: value if isinstance(value, str) else "")
def test_wrong_requests(lab: Lab, body: dict[str, Any], words: str) -> None:
    """A request that cannot be taken is refused with the field and what would be right."""
    with lab.openai() as client, pytest.raises(openai.BadRequestError, match=words):
        client.post("/chat/completions", cast_to=object, body={"model": "script"} | body)


def test_many_streams_at_once(lab: Lab) -> None:
    """Fifty streams at once are all answered, each with its own words."""
    with lab.openai() as client, ThreadPoolExecutor(50) as threads:

        def one(number: int) -> str:
            messages = said(f"stream: I am {number} of fifty")
            stream = client.chat.completions.create(model="script", messages=messages, stream=True)
            return "".join([chunk.choices[0].delta.content or "" for chunk in stream]).strip()

        answers = list(threads.map(one, range(50)))
    assert answers == [f"I am {number} of fifty" for number in range(50)]
