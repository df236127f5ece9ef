"""What both APIs ask for, in one form, and what they are given."""

import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from rnixfs.errors import Code
from rnixfs.gateway.refusal import RefusedError, of_code, refuse
from rnixfs.llm import Delta, Message, ModelAnswer, ModelRequest

STOPPED = "stop_sequence"
"""The stop reason of an answer that was cut at a stop sequence; the sequence follows after a colon."""

STOPS_MAX = 16
"""Stop sequences of one request; OpenAI takes 4."""


class Asked(NamedTuple):
    """A request that was read.

    Args:
        model: the model's name as the client wrote it.
        request: what the model is to be asked, without the name.
        stream: whether the answer is to come piece by piece.
        stop: texts before which the answer ends.
        usage: whether a stream is to tell the tokens (OpenAI's form; the other always does).
        thinking: whether the client takes what the model thinks.
        own_effort: an effort in the words of Claude's models, which others may not know.
    """

    model: str
    request: ModelRequest
    stream: bool = False
    stop: tuple[str, ...] = ()
    usage: bool = False
    thinking: bool = True
    own_effort: str = ""


class Writer(Protocol):
    """Writes one streamed answer, each method as bytes of events."""

    def begin(self) -> bytes:
        """What stands before all else."""

    def piece(self, delta: Delta) -> bytes:
        """A piece of text or of reasoning."""

    def end(self, answer: ModelAnswer) -> bytes:
        """What stands after the text: calls of tools, the reason of the end, tokens."""

    def failed(self, refusal: RefusedError) -> bytes:
        """The end of an answer that breaks off."""

    def ping(self) -> bytes:
        """Nothing, so that nobody on the way takes the connection for dead."""


class Form(Protocol):
    """One of the two APIs."""

    def read(self, body: Any) -> Asked:
        """Read the body of a request; raises RefusedError."""

    def whole(self, asked: Asked, answer: ModelAnswer) -> dict[str, Any]:
        """The body of an answer that does not stream."""

    def writer(self, asked: Asked) -> Writer:
        """What writes an answer that streams."""

    def error(self, refusal: RefusedError) -> tuple[int, dict[str, Any]]:
        """Status and body of an error."""


def convert(body: Any, shape: type[Any]) -> Any:
    """Read a body into a shape.

    Raises:
        RefusedError: naming the field that is wrong.
    """
    try:
        return msgspec.convert(body, shape)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        field = where.rstrip("`").lstrip(".")
        place = f"{field}: " if field else ""
        raise refuse(f"{place}{what}", field) from None


def check_conversation(messages: Sequence[Message]) -> None:
    """Refuse a conversation that asks for nothing."""
    if not messages:
        raise refuse("messages: is empty; it must hold at least one message", "messages")


def stops(found: str | list[str] | None, param: str) -> tuple[str, ...]:
    """The stop sequences of a request.

    Raises:
        RefusedError: there are too many.
    """
    texts = (found,) if isinstance(found, str) else tuple(found or ())
    if len(texts) > STOPS_MAX:
        raise refuse(f"{param}: {len(texts)} stop sequences; there may be {STOPS_MAX}", param)
    return tuple(text for text in texts if text)


def identity(kind: str) -> str:
    """A new name for an answer, such as `chatcmpl-…`."""
    return kind + secrets.token_hex(12)


def about(answer: ModelAnswer) -> dict[str, Any]:
    """What neither API has a field for: who answered, how often providers were asked, and the price."""
    return {
        "provider": answer.provider,
        "model": answer.model,
        "attempts": answer.attempts,
        "cost_usd": answer.cost_usd,
        "estimated": answer.estimated,
    }


# --- an answer on its way ---


class Pieces:
    """Decides what of a streamed answer is passed on, and when.

    Args:
        stop: texts before which the answer ends.
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._stop = tuple(stop)
        self._back = max(map(len, self._stop), default=1) - 1  # characters that may begin a stop sequence
        self._text = ""
        self._sent = 0

    def feed(self, delta: Delta) -> list[Delta]:
        """Take a piece; gives what may be passed on.

        Raises:
            RefusedError: the call is made anew after text was passed on. A client adds up what it gets, and
                cannot be told to forget.
        """
        if delta.type == "restart":
            return self._restart()
        if delta.type == "reasoning":
            return [delta]
        self._text += delta.text
        # Also where one was found: another may have begun before it, and end after it.
        safe = max(len(self._text) - self._back, 0)
        end = cut(self._text, self._stop)
        return self._pass(safe if end is None else min(safe, end))

    def _restart(self) -> list[Delta]:
        if self._sent:
            reason = "the provider broke off in the middle of its answer, a part of which was sent; ask again"
            raise of_code(Code.SERVICE_UNAVAILABLE, reason)
        self._text = ""
        return []

    def _pass(self, end: int) -> list[Delta]:
        fresh = self._text[self._sent : end]
        self._sent = max(self._sent, end)
        return [Delta("text", fresh)] if fresh else []

    def finish(self, answer: ModelAnswer) -> list[Delta]:
        """What of a whole answer was not passed on yet; the answer is one of `within`."""
        sent = self._text[: self._sent]
        self._text = answer.content if answer.content.startswith(sent) else sent
        return self._pass(len(self._text))


def cut(text: str, stop: Sequence[str]) -> int | None:
    """Where the first stop sequence of a text begins; None where it holds none."""
    return min((place for one in stop if (place := text.find(one)) >= 0), default=None)


def within(answer: ModelAnswer, stop: Sequence[str]) -> ModelAnswer:
    """An answer that ends before the first stop sequence in it."""
    end = cut(answer.content, stop)
    if end is None:
        return answer
    which = next(one for one in stop if answer.content.startswith(one, end))
    return msgspec.structs.replace(
        answer, content=answer.content[:end], stop_reason=f"{STOPPED}:{which}", tool_calls=[]
    )
