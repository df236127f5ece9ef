"""Google's Gemini API, in its own format.

Format: https://ai.google.dev/api/generate-content. How much a model thinks is asked for in one of two ways: a
word such as `low` is a thinking level (models since Gemini 3), a number is a budget of tokens for the models
before (0 for none, -1 for as much as the model likes).
"""

import re
import urllib.parse
from typing import Any

import msgspec

from rnixfs.errors import Code
from rnixfs.llm import Delta, Message, ModelAnswer, ModelRequest, Role, ToolCall, ToolSpec
from rnixfs.wire.dialect import (
    REFUSAL,
    ListedModel,
    Reply,
    ReplyStream,
    decode,
    decode_list,
    dict_of,
    dicts,
    echo_of,
    made_up,
    number_of,
    shown,
    text_of,
)
from rnixfs.wire.failure import WireError, refusal, seconds_of

NAME = "gemini"
"""What an answer's `echo` has for the provider lies under this name."""

UNSIGNED = "skip_thought_signature_validator"
"""In place of a signature, for calls that another model made.

Gemini 3 refuses calls without one; this is the value that it documents for them:
https://ai.google.dev/gemini-api/docs/thought-signatures.
"""

_STOP_REASONS = {"STOP": "end", "MAX_TOKENS": "max_tokens"} | dict.fromkeys(
    ("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY"), REFUSAL
)
# The model wrote no call that can be read, or one of a tool that there is not: asked again, it may do better.
_BROKEN_CALLS = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"})
_OLD = re.compile(r"(?:models/)?gemini-[12]\b")


class GenerateContent:
    """The Gemini API of one server. Implements `dialect.Dialect`.

    Args:
        base_url: its address; what it wants back is given to no other server.
    """

    models = "/v1beta/models?pageSize=1000"

    def __init__(self, base_url: str) -> None:
        self._server = base_url

    def path(self, model: str, stream: bool) -> str:
        name = urllib.parse.quote(model if "/" in model else f"models/{model}")
        if {"", ".", ".."} & set(name.split("/")):
            # What the address would be of is something else than a model.
            raise WireError(Code.INVALID, f"{model[:200]!r} is no name of a model")
        return f"/v1beta/{name}:" + ("streamGenerateContent?alt=sse" if stream else "generateContent")

    def headers(self, key: str) -> dict[str, str]:
        return {"x-goog-api-key": key} if key else {}

    def encode(self, request: ModelRequest, model: str, stream: bool) -> bytes:
        system, contents = self._conversation(request, UNSIGNED if not _OLD.match(model) else "")
        body: dict[str, Any] = {}
        if system:
            body["systemInstruction"] = {"parts": [{"text": system}]}
        if request.tools:
            body["tools"] = [{"functionDeclarations": [_tool(tool) for tool in request.tools]}]
        if config := _config(request):
            body["generationConfig"] = config
        return msgspec.json.encode({**body, "contents": contents})

    def _conversation(self, request: ModelRequest, unsigned: str) -> tuple[str, list[dict[str, Any]]]:
        system = [request.system_prompt]
        contents: list[dict[str, Any]] = []
        names: dict[str, str] = {}
        kind: object = None
        for message in request.conversation():
            if message.role is Role.SYSTEM and not contents:
                system.append(message.content)
                continue
            names |= {call.id: call.name for call in message.tool_calls}
            parts = self._parts(message, names, unsigned)
            # Results stand by themselves: as many as there were calls, and nothing else.
            if contents and kind == _kind(message):
                contents[-1]["parts"] += parts
            elif parts:
                contents.append(
                    {"role": "model" if message.role is Role.ASSISTANT else "user", "parts": parts}
                )
            kind = _kind(message) if contents else None
        return "\n\n".join(text for text in system if text.strip()), contents

    def _parts(self, message: Message, names: dict[str, str], unsigned: str) -> list[dict[str, Any]]:
        if message.role is Role.TOOL:
            return [_result(message, names)]
        signatures = dict_of(echo_of(message, NAME, self._server).get("signatures"))
        parts: list[dict[str, Any]] = [{"text": message.content}] if message.content.strip() else []
        calls = [_call(call, text_of(signatures.get(call.id))) for call in message.tool_calls]
        # Of several calls at once only the first is signed.
        if calls and not signatures and unsigned:
            calls[0]["thoughtSignature"] = unsigned
        return parts + calls

    def read_answer(self, body: bytes, prompt: bytes) -> ModelAnswer:
        reply = _Content(self._server)
        reply.take(decode(body))
        if not reply.stop:
            raise WireError(Code.DRIVER, f'the reply has no "candidates" that ended: {shown(body)}')
        return reply.answer(prompt)

    def reader(self) -> "ContentStream":
        return ContentStream(self._server)

    def refusal(self, status: int, body: bytes) -> WireError:
        error = refusal(status, body)
        error.retry_after = _retry_delay(body)
        return error

    def read_models(self, body: bytes) -> list[ListedModel]:
        return [
            ListedModel(
                text_of(entry["name"]).removeprefix("models/"), number_of(entry.get("inputTokenLimit"))
            )
            for entry in decode_list(body, "models")
            if entry.get("name")
            and "generateContent" in entry.get("supportedGenerationMethods", ["generateContent"])
        ]


def _kind(message: Message) -> str:
    return "user" if message.role is Role.SYSTEM else str(message.role)


def _config(request: ModelRequest) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if request.temperature is not None:
        config["temperature"] = request.temperature
    if request.max_tokens:
        config["maxOutputTokens"] = request.max_tokens
    if request.effort:
        number = re.fullmatch(r"-?\d+", request.effort, re.ASCII)
        level = {"thinkingBudget": int(request.effort)} if number else {"thinkingLevel": request.effort}
        config["thinkingConfig"] = {"includeThoughts": True, **level}
    return config


def _tool(tool: ToolSpec) -> dict[str, Any]:
    # The older field `parameters` takes a part of JSON Schema only, and refuses the rest.
    return {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.input_schema}


def _named(call_id: str) -> dict[str, str]:
    """The name of a call, where the server gave it one: those that we made up mean nothing to it."""
    return {} if not call_id or made_up(call_id) else {"id": call_id}


def _call(call: ToolCall, signature: str) -> dict[str, Any]:
    part: dict[str, Any] = {"functionCall": {**_named(call.id), "name": call.name, "args": call.arguments}}
    return {**part, "thoughtSignature": signature} if signature else part


def _result(message: Message, names: dict[str, str]) -> dict[str, Any]:
    name = names.get(message.tool_call_id, message.tool_call_id)
    response = {"output": message.content}
    return {"functionResponse": {**_named(message.tool_call_id), "name": name, "response": response}}


def _retry_delay(body: bytes) -> float | None:
    """Seconds until the next attempt, which the API names in the body: `google.rpc.RetryInfo`."""
    try:
        details = dicts(dict_of(dict_of(msgspec.json.decode(body)).get("error")).get("details"))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    waits = [seconds_of(text_of(detail.get("retryDelay"))) for detail in details]
    return next((wait for wait in waits if wait is not None), None)


class ContentStream(ReplyStream["_Content"]):
    """A streamed reply: each event is a reply with a further piece. Implements `dialect.StreamReader`.

    It is never done: no mark ends the stream, and numbers may follow the last text.
    """

    def __init__(self, server: str) -> None:
        super().__init__(_Content(server))

    def feed(self, data: str) -> list[Delta]:
        return self._reply.take(decode(data))


class _Content(Reply):
    """A reply, whole or in pieces, which have the same form."""

    def __init__(self, server: str) -> None:
        super().__init__()
        self._server = server
        self._signatures: dict[int, str] = {}

    def take(self, value: dict[str, Any]) -> list[Delta]:
        """Add a reply or a piece of one, and return what it shows."""
        self.model = text_of(value.get("modelVersion")) or self.model
        if usage := dict_of(value.get("usageMetadata")):
            self._count_usage(usage)
        feedback = dict_of(value.get("promptFeedback"))
        if reason := text_of(feedback.get("blockReason")):
            self._refuse("the prompt was blocked", reason, feedback.get("blockReasonMessage"))
        candidate = next(iter(dicts(value.get("candidates"))), {})
        deltas = [delta for part in _parts_of(candidate) for delta in self._take_part(part)]
        self._end(text_of(candidate.get("finishReason")), candidate.get("finishMessage"))
        return deltas

    def _take_part(self, part: dict[str, Any]) -> list[Delta]:
        if call := dict_of(part.get("functionCall")):
            if signature := text_of(part.get("thoughtSignature")):
                self._signatures[len(self.calls)] = signature
            arguments = msgspec.json.encode(call.get("args") or {}).decode()
            self.call(text_of(call.get("id")), text_of(call.get("name"))).arguments.append(arguments)
            return []
        text = text_of(part.get("text"))
        return self.think(text) if part.get("thought") is True else self.say(text)

    def _end(self, reason: str, message: Any) -> None:
        if not reason or reason == "FINISH_REASON_UNSPECIFIED":
            return
        if reason in _BROKEN_CALLS:
            text = f"the model made no valid tool call: {text_of(message) or reason}"
            raise WireError(Code.DRIVER, text, transient=True, usage=self.usage(b""))
        self.stop = _STOP_REASONS.get(reason, reason.lower())
        if self.stop == REFUSAL:
            self._refuse("the answer was blocked", reason, message)

    def _refuse(self, what: str, reason: str, message: Any) -> None:
        self.stop = REFUSAL
        self.refusal.append(": ".join(filter(None, (what, reason, text_of(message)))))

    def _count_usage(self, usage: dict[str, Any]) -> None:
        def of(*fields: str) -> int:
            return sum(number_of(usage.get(field)) for field in fields)

        self.input_tokens = of("promptTokenCount", "toolUsePromptTokenCount")
        self.output_tokens = of("candidatesTokenCount", "thoughtsTokenCount")
        self.total_tokens = of("totalTokenCount")
        self.cached_tokens = of("cachedContentTokenCount")  # a part of the prompt's

    def answer(self, prompt: bytes) -> ModelAnswer:
        answer = super().answer(prompt)
        signatures = {answer.tool_calls[number].id: sign for number, sign in self._signatures.items()}
        if signatures:
            answer.echo = {NAME: {"server": self._server, "signatures": signatures}}
        return answer


def _parts_of(candidate: dict[str, Any]) -> list[dict[str, Any]]:
    return dicts(dict_of(candidate.get("content")).get("parts"))
