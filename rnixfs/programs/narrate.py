"""What a model says while it speaks, as lines of its process's log."""

from collections.abc import Callable

from rnixfs.llm import Delta, ModelAnswer

_LINE = 400  # characters from which a piece of a long line is logged before its end


class Narrator:
    """Takes the pieces of one answer and logs them line by line.

    Args:
        say: adds to the log: a category, and the words.
        text: whether the text is worth telling; that of a model which writes its actions as JSON is not.
    """

    def __init__(self, say: Callable[[str, str], None], text: bool) -> None:
        self._say = say
        self._text = text
        self._pending = ""
        self._spoke = False

    def take(self, delta: Delta) -> None:
        """One more piece."""
        if delta.type == "restart":
            self._flush()
            self._spoke = False
            self._say("warning", "the answer broke off and is asked for anew")
        elif delta.type == "reasoning" or self._text:
            self._spoke = self._spoke or delta.type == "text"
            self._add(delta.text)

    def end(self, answer: ModelAnswer) -> None:
        """The answer is whole."""
        if self._text and not self._spoke:
            self._add(answer.content)
        self._flush()

    def _add(self, text: str) -> None:
        *lines, rest = (self._pending + text).split("\n")
        for line in lines:
            self._tell(line)
        if len(rest) >= _LINE and (cut := rest.rfind(" ")) > 0:
            self._tell(rest[:cut])
            rest = rest[cut + 1 :]
        self._pending = rest

    def _flush(self) -> None:
        self._tell(self._pending)
        self._pending = ""

    def _tell(self, line: str) -> None:
        if line.strip():
            self._say("think", line)
