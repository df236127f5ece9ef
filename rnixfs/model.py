"""Models as devices: the port that every provider implements, and the file that serves it."""

import abc
from collections.abc import Callable

from rnixfs import llm
from rnixfs.device import Body, Description, Job, Sink, json_line
from rnixfs.types import Caller


class Model(abc.ABC):
    """A provider of answers.

    Args:
        provider: its name under `dev/llm/`.
        native_tools: whether it takes `tools` and answers with `tool_calls`; others get the tools
            described in the prompt and answer with one JSON object in the text.
    """

    provider: str
    native_tools: bool = False

    @abc.abstractmethod
    def unavailable(self) -> str:
        """Why it cannot be used now, in a sentence; empty when it can. Quick, and spends nothing."""

    @abc.abstractmethod
    def details(self) -> dict[str, object]:
        """What its description says beside the common part: driver, default model, address or command."""

    @abc.abstractmethod
    async def complete(self, request: llm.ModelRequest) -> llm.ModelAnswer:
        """Ask once and wait for the whole answer.

        Raises:
            SyscallError: what failed, TIMEOUT after `request.timeout_ms`.
        """

    async def stream(self, request: llm.ModelRequest, emit: Callable[[str], None]) -> llm.ModelAnswer:
        """Ask once and hand out the text as it comes; here all at once, for providers that cannot stream."""
        answer = await self.complete(request)
        emit(answer.content)
        return answer

    async def aclose(self) -> None:
        """Let go of connections and processes. Not to be used afterwards."""


REQUEST_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "intent": {"type": "string", "description": "the user's words"},
        "system_prompt": {"type": "string"},
        "model": {"type": "string"},
        "max_turns": {"type": "integer"},
        "timeout_ms": {"type": "integer"},
        "messages": {"type": "array", "description": "the conversation: role, content, tool_calls"},
        "tools": {"type": "array", "description": "name, description, input_schema"},
        "temperature": {"type": "number"},
        "max_tokens": {"type": "integer"},
        "stream": {"type": "boolean", "description": "text as it comes, in place of one JSON object"},
    },
}


class ModelDevice:
    """`dev/llm/<provider>`: one request, one answer. Implements `device.Device`."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def describe(self, caller: Caller) -> Description:
        reason = self.model.unavailable()
        return Description(
            device=f"/dev/llm/{self.model.provider}",
            does="Asks a language model. Text is taken as the intent.",
            request=dict(REQUEST_SCHEMA),
            example={"intent": "say hello", "system_prompt": "You are brief."},
            available=not reason,
            reason=reason,
            details={"native_tools": self.model.native_tools, **self.model.details()},
        )

    def accept(self, caller: Caller, body: Body) -> Job:
        request = llm.read_request(body)

        async def job(sink: Sink) -> None:
            if request.stream:
                await self.model.stream(request, lambda text: sink.write(text.encode()))
                sink.write(b"\n")
            else:
                sink.write(json_line(await self.model.complete(request)))

        return job
