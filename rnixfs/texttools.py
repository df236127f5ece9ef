"""Tool calls of models that have none of their own: the text protocol of `action`, read back into calls."""

from rnixfs.action import Calls, parse_reply
from rnixfs.llm import ModelAnswer, ModelRequest, Role, ToolCall


def take_calls(request: ModelRequest, answer: ModelAnswer) -> None:
    """Turn an answer whose text asks for tools into one with `tool_calls`, in place.

    The ids are made up: they name the turn and the place, so they are used once in a conversation, and the
    same conversation gets the same ids.
    """
    if answer.tool_calls or not isinstance(action := parse_reply(answer.content), Calls):
        return
    turn = sum(message.role is Role.ASSISTANT for message in request.messages)
    answer.tool_calls = [
        ToolCall(f"call_{turn}_{place}", call.tool, call.data) for place, call in enumerate(action.calls)
    ]
    answer.content = action.said
    answer.stop_reason = "tool_calls"
