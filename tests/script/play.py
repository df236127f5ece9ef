"""Plays a scripted model against tools that answer what a test gives, as the reasoning loop does."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from rnixfs import shipped
from rnixfs.drivers.script import ScriptModel
from rnixfs.llm import Message, ModelAnswer, ModelRequest, Role, ToolCall, ToolSpec

Tool = Callable[[dict[str, Any]], object]


def shipped_model() -> ScriptModel:
    """The scripted model with the scenarios that come with rnixfs."""
    return ScriptModel("script", [shipped.folder("scenarios")])


class Play:
    """One conversation.

    Args:
        intent: the user's words.
        tools: what each tool answers to its arguments: text, or a value that becomes JSON.
        system_prompt: the instructions.
    """

    def __init__(self, intent: str, tools: Mapping[str, Tool], system_prompt: str = "") -> None:
        self.messages = [Message(Role.USER, intent)]
        self.tools = dict(tools)
        self.system_prompt = system_prompt
        self.calls: list[list[ToolCall]] = []

    def request(self) -> ModelRequest:
        """The next request."""
        specs = [ToolSpec(name, name, {"type": "object"}) for name in self.tools]
        return ModelRequest(system_prompt=self.system_prompt, messages=self.messages, tools=specs)

    async def turn(self, model: ScriptModel) -> ModelAnswer:
        """Ask once, and run the calls."""
        answer = await model.complete(self.request())
        self.messages = [*self.messages, Message(Role.ASSISTANT, answer.content, answer.tool_calls)]
        if answer.tool_calls:
            self.calls.append(answer.tool_calls)
        for call in answer.tool_calls:
            self.messages.append(Message(Role.TOOL, self.run(call), tool_call_id=call.id))
        return answer

    def run(self, call: ToolCall) -> str:
        """One tool's answer as text."""
        if call.name not in self.tools:
            return json.dumps({"error": {"code": "NOT_FOUND", "message": f"no tool {call.name}"}})
        found = self.tools[call.name](call.arguments)
        return found if isinstance(found, str) else json.dumps(found) + "\n"

    async def finish(self, model: ScriptModel, most: int = 10) -> str:
        """Ask until there is a final answer; its text."""
        for _ in range(most):
            answer = await self.turn(model)
            if not answer.tool_calls:
                return answer.content
        raise AssertionError(f"no final answer after {most} turns")
