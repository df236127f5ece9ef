"""The pieces of one answer on their way to whoever reads it, over all attempts to get it."""

import math

import trio

from rnixfs.llm import EVENTS, Delta, Emit, ModelAnswer, ModelRequest


class Pieces:
    """Hands pieces on, and knows what was given already.

    Args:
        emit: takes them; None where nobody wants them before the end.
        restartable: whether it understands `restart`. Elsewhere a text that was given cannot be taken back.
    """

    def __init__(self, emit: Emit | None, restartable: bool) -> None:
        self._emit = emit
        self._restartable = restartable
        self._given: set[str] = set()
        self.first_at = math.inf

    @classmethod
    def of(cls, emit: "Emit | Pieces | None", request: ModelRequest) -> "Pieces":
        """The pieces of a request: only one for JSON lines takes a `restart`."""
        return emit if isinstance(emit, Pieces) else cls(emit, request.stream == EVENTS)

    @property
    def stuck(self) -> bool:
        """Whether text was given that cannot be taken back."""
        return "text" in self._given and not self._restartable

    def begin(self) -> None:
        """An attempt begins, so what earlier ones gave is void."""
        self._void()
        self._given.clear()
        self.first_at = math.inf

    def _void(self) -> None:
        """Take back what was given, where that can be done."""
        if self._given and self._restartable and self._emit is not None:
            self._emit(Delta("restart"))
            self._given.clear()

    def sink(self, text: bool) -> Emit | None:
        """What a model is given to emit into.

        Args:
            text: whether its text goes on as it comes. That of a model that writes its tool calls as text
                waits for the end, when it is clear which of it was said to the reader.
        """
        if self._emit is None:
            return None
        return self._take if text else self._take_all_but_text

    def end(self, answer: ModelAnswer) -> None:
        """The answer is whole: what of it was not given in pieces is given now."""
        for kind, text in (("reasoning", answer.reasoning), ("text", answer.content)):
            if kind not in self._given:
                self._give(Delta("text" if kind == "text" else "reasoning", text))

    def _take(self, delta: Delta) -> None:
        self._note_time()
        self._give(delta)

    def _take_all_but_text(self, delta: Delta) -> None:
        self._note_time()
        if delta.type != "text":
            self._give(delta)

    def _note_time(self) -> None:
        if self.first_at == math.inf:
            self.first_at = trio.current_time()

    def _give(self, delta: Delta) -> None:
        if delta.type == "restart":
            self._void()  # a program asked anew by itself, or its answer is another than its pieces
        elif delta.text and self._emit is not None:
            self._given.add(delta.type)
            self._emit(delta)
