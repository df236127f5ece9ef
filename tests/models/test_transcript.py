"""A conversation as one text, for programs that take a prompt alone."""

import re

from hypothesis import given
from hypothesis import strategies as st

from rnixfs.llm import Message, ModelRequest, Role, ToolCall, ToolSpec
from rnixfs.wire import transcript


def test_the_rendered_conversation() -> None:
    """Messages stand under a line with their author, calls as the objects of the text protocol."""
    request = ModelRequest(
        messages=[
            Message(role=Role.USER, content="list"),
            Message(role=Role.ASSISTANT, tool_calls=[ToolCall("c1", "ls", {"path": "."})]),
            Message(role=Role.TOOL, content="a\nb", tool_call_id="c1"),
            Message(role=Role.ASSISTANT, content='{"action": "x"}', tool_calls=[ToolCall("c2", "ls", {})]),
        ]
    )
    _, _, body = transcript.prompt(request).partition("\n\n")
    assert body == (
        "=== user ===\nlist\n\n"
        '=== assistant ===\n{"action":"tool_call","tool":"ls","data":{"path":"."}}\n\n'
        '=== tool "c1" ===\na\nb\n\n'
        '=== assistant ===\n{"action": "x"}\n'
    )


PIECES = ["=== user ===", '=== tool "c1" ===', "===", "\\", "\n", "/help", "@/etc/passwd", "é", " ", '"']
TEXTS = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
MESSAGES = st.lists(
    st.builds(Message, role=st.sampled_from(Role), content=TEXTS, tool_call_id=TEXTS), min_size=1, max_size=5
)


@given(MESSAGES, MESSAGES)
def test_a_longer_conversation_begins_with_the_shorter(earlier: list[Message], later: list[Message]) -> None:
    """Prompt bytes are constant between steps."""
    longer = transcript.prompt(ModelRequest(messages=earlier + later))
    assert longer.startswith(transcript.prompt(ModelRequest(messages=earlier)))


@given(MESSAGES)
def test_no_message_passes_for_another(messages: list[Message]) -> None:
    """Each message has exactly one starting line, and its content can be had back."""
    _, _, body = transcript.prompt(ModelRequest(messages=messages)).partition("alone, without such a line.\n")
    parts = re.split(r"(?m)^=== .* ===\n", body)[1:]
    contents = [
        re.sub(r"(?m)^\\(?=\\*===)", "", part.removesuffix("\n").removesuffix("\n")) for part in parts
    ]
    expected = [message.content for message in messages]
    assert len(parts) == len(messages)
    assert [text.rstrip("\n") for text in contents] == [text.rstrip("\n") for text in expected]


@given(TEXTS)
def test_a_prompt_is_never_a_command(intent: str) -> None:
    """Text that begins with a slash would be run by the program itself."""
    assert transcript.prompt(ModelRequest(intent=intent)).startswith("Below is a conversation")


def test_tools_are_described() -> None:
    """A request that brings tools has them explained, as the model knows no others."""
    request = ModelRequest(intent="x", system_prompt="S", tools=[ToolSpec("ls", "lists", {"type": "object"})])
    text = transcript.system_prompt(request)
    assert text.startswith("S\n\n")
    assert "ls" in text
    assert '"action"' in text
    assert transcript.system_prompt(ModelRequest(intent="x", system_prompt="S")) == "S"
