"""Where a conversation stands, and what a scripted model does next: what scenarios take and give."""

import dataclasses
from typing import Any

from rnixfs.errors import Code


@dataclasses.dataclass(frozen=True, slots=True)
class Scene:
    """Where a conversation stands, as rules see it.

    Args:
        intent: the user's words that began this piece of work.
        system_prompt: the instructions.
        step: assistant's turns since the intent.
        tools: names of the tools on offer.
        history: `tool`, `arguments`, `name` and `result` of each call since the intent.
        said: the user's texts since the intent.
        last_result: the last result as it came, before decoding.
    """

    intent: str
    system_prompt: str = ""
    step: int = 0
    tools: tuple[str, ...] = ()
    history: tuple[dict[str, Any], ...] = ()
    said: tuple[str, ...] = ()
    last_result: str = ""

    @property
    def last_tool(self) -> str:
        """The tool whose result came last, empty if none did."""
        return self.history[-1]["tool"] if self.history else ""

    def names(self) -> dict[str, Any]:
        """What templates may name."""
        results = [call["result"] for call in self.history]
        return {
            "intent": self.intent,
            "system_prompt": self.system_prompt,
            "step": self.step,
            "tools": list(self.tools),
            "results": results,
            "last": results[-1] if results else None,
            "got": {call["name"]: call["result"] for call in self.history if call["name"]},
            "history": list(self.history),
            "said": list(self.said),
        }


@dataclasses.dataclass(frozen=True, slots=True)
class CueCall:
    """A tool call of an answer; `name` is its `as`."""

    tool: str
    arguments: dict[str, Any]
    name: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Cue:
    """What the model does next.

    Args:
        scenario: the scenario's name.
        rule: the rule's name.
        say: the text.
        calls: tool calls.
        failure: code and reason in place of an answer.
        delay_ms: milliseconds to wait before the answer.
        word_delay_ms: milliseconds between two words of a stream.
        input_tokens: tokens of the prompt, None to count them.
        output_tokens: tokens of the answer, None to count them.
        cost_usd: price in dollars.
    """

    scenario: str
    rule: str
    say: str = ""
    calls: tuple[CueCall, ...] = ()
    failure: tuple[Code, str] | None = None
    delay_ms: float = 0
    word_delay_ms: float = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float = 0.0
