"""A conversation as one text, for programs that take no messages but only a prompt."""

import json
import re

import msgspec

from rnixfs.action import describe_protocol
from rnixfs.llm import Message, ModelRequest, Role, ToolCall

_HEADER = (
    "Below is a conversation, oldest message first. A line that begins with `===` starts a message and names "
    "its author. Reply with the assistant's next message alone, without such a line.\n"
)
# A line of a message that looks like such a line, however often it was escaped before.
_LIKE_A_MARK = re.compile(r"^(?=\\*===)", re.MULTILINE)


def system_prompt(request: ModelRequest) -> str:
    """The system prompt, with the tools and how to call them where the request brings tools."""
    tools = describe_protocol(request.tools, ("tool_call",)) if request.tools else ""
    return "\n\n".join(filter(None, (request.system_prompt, tools)))


def prompt(request: ModelRequest) -> str:
    """The conversation as one text.

    A longer conversation begins with the text of a shorter one. No message can pass for another, because
    lines that look like the start of one are escaped; and none can be a command such as `/compact`, which
    a program would run itself, because the text begins with a header.
    """
    return _HEADER + "".join(_rendered(message) for message in request.conversation())


def _rendered(message: Message) -> str:
    author = str(message.role)
    if message.role is Role.TOOL:
        author += f" {json.dumps(message.tool_call_id)}"
    content = message.content
    # The words of a text model hold its calls; those of another model do not.
    if message.tool_calls and '"action"' not in content:
        content = "\n".join(filter(None, (content, *map(_call, message.tool_calls))))
    return f"\n=== {author} ===\n{_LIKE_A_MARK.sub(_backslash, content)}\n"


def _call(call: ToolCall) -> str:
    body = {"action": "tool_call", "tool": call.name, "data": call.arguments}
    return msgspec.json.encode(body).decode()


def _backslash(_: re.Match[str]) -> str:
    return "\\"
