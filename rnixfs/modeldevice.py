"""`dev/llm/<provider>`: the file of a model."""

import dataclasses
import math
from typing import Any

import msgspec
import trio

from rnixfs import limits, llm
from rnixfs.device import Body, Description, Job, Sink, json_line
from rnixfs.errors import SyscallError
from rnixfs.modelfallback import Fallbacks
from rnixfs.modelservice import Service, most_calls
from rnixfs.types import Caller

_TEXT = {"type": "string"}
_WHOLE = {"type": "integer", "minimum": 0}
REQUEST_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": '"intent" or "messages" must say something',
    "properties": {
        "intent": {**_TEXT, "description": "the user's words"},
        "system_prompt": {**_TEXT, "description": "instructions that stand before the conversation"},
        "model": {**_TEXT, "description": "the provider's model; empty for its default"},
        "max_turns": {"type": "integer", "description": "turns that a command line model may take"},
        "timeout_ms": {**_WHOLE, "description": "for the whole call; 0 for the provider's default"},
        "messages": {"type": "array", "description": "the conversation: role, content, tool_calls"},
        "tools": {"type": "array", "description": "name, description, input_schema"},
        "temperature": {"type": "number"},
        "max_tokens": {**_WHOLE, "description": "of the answer; 0 for the provider's default"},
        "stream": {
            "enum": [False, True, llm.EVENTS],
            "description": 'true: text as it comes, in place of one JSON object; "events": a JSON object a '
            'line: {"type": "text" | "reasoning", "text"}, {"type": "restart"} when all before is void, and '
            'at last {"type": "answer"} with the fields of an answer',
        },
        "effort": {**_TEXT, "description": "how much to think, in the provider's words"},
        "priority": {
            "enum": [str(one) for one in llm.Priority],
            "description": "who goes first where calls wait",
        },
        "fallback": {
            "type": "array",
            "description": "who is asked, in order, when the provider cannot answer: provider (empty: this "
            "one), model (empty: its default)",
        },
    },
}


@dataclasses.dataclass
class ModelDevice:
    """One request, one answer. Implements `device.Device`.

    Args:
        service: the provider.
        fallbacks: who else may be asked.
    """

    service: Service
    fallbacks: Fallbacks

    def describe(self, caller: Caller) -> Description:
        """What the model takes and what is known of it."""
        service, entry = self.service, self.service.entry
        reason, most = service.unavailable(), most_calls(entry)
        return Description(
            device=f"/dev/llm/{entry.name}",
            does="Asks a language model. Text is taken as the intent.",
            request=dict(REQUEST_SCHEMA),
            example={"intent": "say hello", "system_prompt": "You are brief."},
            available=not reason,
            reason=reason,
            details={
                "native_tools": service.model.native_tools,
                "models": service.models(),
                "context_window": service.window(),
                "concurrency": None if math.isinf(most) else most,
                "fallback": msgspec.to_builtins(entry.fallback),
                "answer": list(llm.ModelAnswer.__struct_fields__),
                **service.model.details(),
            },
        )

    def accept(self, caller: Caller, body: Body) -> Job:
        """Take a request; the job asks."""
        request = llm.read_request(body)

        async def job(sink: Sink) -> None:
            if request.stream == llm.EVENTS:
                await self._events(request, caller, sink)
            elif request.stream:
                await self._ask(request, caller, lambda delta: _write_text(sink, delta))
                sink.write(b"\n")
            else:
                sink.write(json_line(await self._ask(request, caller, None)))

        return job

    async def _ask(self, request: llm.ModelRequest, caller: Caller, emit: llm.Emit | None) -> llm.ModelAnswer:
        return await self.fallbacks.ask(self.service, request, caller, emit)

    async def _events(self, request: llm.ModelRequest, caller: Caller, sink: Sink) -> None:
        lines = EventLines(sink)
        failure: SyscallError | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lines.run)
            try:
                lines.end(await self._ask(request, caller, lines.take))
            except SyscallError as error:
                # Not raised here: a nursery would wrap it.
                failure = error
            nursery.cancel_scope.cancel()
        lines.flush()
        if failure is not None:
            raise failure


def _write_text(sink: Sink, delta: llm.Delta) -> None:
    if delta.type == "text":
        sink.write(delta.text.encode("utf-8", "replace"))


class EventLines:
    """Pieces as JSON lines. What comes close after a line shares the next one.

    Args:
        sink: takes the lines.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._pending: list[llm.Delta] = []
        self._next_at = -math.inf
        self._wanted = trio.Event()

    def take(self, delta: llm.Delta) -> None:
        """One more piece."""
        if delta.type == "restart":
            self._pending.clear()
            self._sink.write(llm.event_line(delta))
            return
        self._pending.append(delta)
        self._flush_if_due()

    def _flush_if_due(self) -> None:
        if trio.current_time() >= self._next_at:
            self.flush()
        elif self._pending:
            self._wanted.set()

    def flush(self) -> None:
        """Write what is pending: a line for all pieces of a kind in a row."""
        if not self._pending:
            return
        kind, texts = self._pending[0].type, list[str]()
        for delta in self._pending:
            if delta.type != kind:
                self._sink.write(llm.event_line(llm.Delta(kind, "".join(texts))))
                kind, texts = delta.type, []
            texts.append(delta.text)
        self._sink.write(llm.event_line(llm.Delta(kind, "".join(texts))))
        self._pending.clear()
        self._next_at = trio.current_time() + limits.STREAM_LINE_SECONDS

    def end(self, answer: llm.ModelAnswer) -> None:
        """The answer is whole."""
        self.flush()
        self._sink.write(llm.event_line(answer))

    async def run(self) -> None:
        """Write what is pending when its time has come, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            await trio.sleep_until(self._next_at)
            self._flush_if_due()
