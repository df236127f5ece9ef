"""What a command line model prints, read as it comes: lines of JSON, and lines that are none."""

import abc
import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec

from rnixfs import limits
from rnixfs.errors import Code
from rnixfs.llm import Delta, Emit, ModelAnswer, ModelRequest, Usage, estimate_tokens
from rnixfs.wire.failure import WireError, too_large


class EnoughError(Exception):
    """The answer is complete, though its program would go on by itself."""


class JsonLines:
    """Cuts what a program prints into lines.

    Args:
        take_object: takes each JSON object; of a list that fills a line, each of its objects.
        take_words: takes every other line that is not empty.
    """

    def __init__(
        self, take_object: Callable[[dict[str, Any]], None], take_words: Callable[[str], None]
    ) -> None:
        self._take_object = take_object
        self._take_words = take_words
        self._rest = bytearray()
        self._size = 0
        self._count = 0

    def feed(self, chunk: bytes) -> None:
        """Take bytes, in pieces of any size.

        Raises:
            WireError: a line passes `limits.MODEL_REPLY_MAX` bytes, or all of them pass
                `limits.COMMAND_OUTPUT_MAX` bytes or are more than `limits.COMMAND_LINES_MAX`.
        """
        *lines, rest = chunk.split(b"\n")
        self._size += len(chunk)
        self._count += len(lines)
        if self._size > limits.COMMAND_OUTPUT_MAX or self._count > limits.COMMAND_LINES_MAX:
            most = f"{limits.COMMAND_OUTPUT_MAX} bytes or {limits.COMMAND_LINES_MAX} lines"
            raise WireError(Code.TOO_LARGE, f"the command printed more than {most}; it was ended")
        for line in lines:
            self._add(line)
            self._line()
        self._add(rest)

    def close(self) -> None:
        """Take the last line, which need not have an end."""
        self._line()

    def _add(self, part: bytes) -> None:
        self._rest += part
        if len(self._rest) > limits.MODEL_REPLY_MAX:
            raise too_large()

    def _line(self) -> None:
        line, self._rest = bytes(self._rest), bytearray()
        objects = _objects(line) if line[:1] in (b"{", b"[") else []
        for entry in objects:
            self._take_object(entry)
        if not objects and line.strip():
            self._take_words(line.decode("utf-8", "replace"))


def _objects(line: bytes) -> list[dict[str, Any]]:
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    entries = value if isinstance(value, list) else [value]
    return [entry for entry in entries if isinstance(entry, dict)]


class Failing(NamedTuple):
    """What words of a program mean.

    Args:
        words: how they are known.
        code: what failed then.
        transient: whether it may pass.
        status: the HTTP status that they stand for; 0 for none.
    """

    words: re.Pattern[str]
    code: Code
    transient: bool = False
    status: int = 0


_OTHER = Failing(re.compile(""), Code.DRIVER)


def failing(words: str, code: Code, *, transient: bool = False, status: int = 0) -> Failing:
    """A row for `CommandReply.failures`; `words` is a regular expression, its case does not matter."""
    return Failing(re.compile(words, re.IGNORECASE), code, transient, status)


class CommandReply(abc.ABC):
    """The reply of one run of a program.

    Args:
        request: what was asked.
        emit: takes the pieces as they come; None where nobody wants them.
    """

    failures: tuple[Failing, ...] = ()
    """How its failures are known that come with nothing but words; the first that fits counts."""

    def __init__(self, request: ModelRequest, emit: Emit | None) -> None:
        self.request = request
        self.words: list[str] = []
        self.result: dict[str, Any] | None = None
        self._emit = emit
        self._pieces: dict[str, list[str]] = {"text": [], "reasoning": []}
        self._size = 0
        self._lines = JsonLines(self.take, self.hear)

    def feed(self, chunk: bytes) -> None:
        """Take bytes of its output.

        Raises:
            WireError: it is too long.
            EnoughError: nothing of what would follow is wanted.
        """
        self._lines.feed(chunk)

    @abc.abstractmethod
    def take(self, entry: dict[str, Any]) -> None:
        """Take one object of the output."""

    def hear(self, line: str) -> None:
        """Take a line that is no JSON; the first ones are kept as an explanation of a failure."""
        if len(self.words) < 20:
            self.words.append(line[: limits.MODEL_ERROR_MAX])

    @abc.abstractmethod
    def spent(self) -> Usage:
        """What is known to be spent up to now."""

    @abc.abstractmethod
    def answer(self, stderr: bytes, returncode: int, now: float) -> ModelAnswer:
        """The answer, after the run has ended.

        Args:
            stderr: the other output of the program.
            returncode: its exit code, or the negative number of the signal that killed it.
            now: the time, in seconds since 1970.

        Raises:
            WireError: there is none.
        """

    def say(self, kind: Literal["text", "reasoning"], piece: str) -> None:
        """Add a piece of the answer, and hand it out."""
        self._size += len(piece)
        if self._size > limits.MODEL_REPLY_MAX:
            raise too_large()
        self._add(kind, piece)

    def _add(self, kind: Literal["text", "reasoning"], piece: str) -> None:
        if piece:
            self._pieces[kind].append(piece)
            if self._emit is not None:
                self._emit(Delta(kind, piece))

    def said(self, kind: Literal["text", "reasoning"]) -> str:
        """All pieces of one kind."""
        return "".join(self._pieces[kind])

    def restart(self) -> None:
        """Take back all pieces, as the answer begins anew."""
        if any(self._pieces.values()):
            self._pieces = {"text": [], "reasoning": []}
            if self._emit is not None:
                self._emit(Delta("restart"))

    def settle(self, content: str) -> str:
        """Make the pieces that were handed out say the same as the answer; returns the answer."""
        said = self.said("text")
        if content.strip() == said.strip():
            return said  # blanks at the ends are not worth a restart, which not every reader can bear
        reasoning = self.said("reasoning")
        self.restart()
        self._add("reasoning", reasoning)
        self._add("text", content)
        return content

    def close(self) -> None:
        """Take what the output ended with."""
        self._lines.close()

    def guessed(self) -> Usage:
        """The tokens of the answer as far as it has come, where nobody counted them."""
        return Usage(output_tokens=estimate_tokens(self.said("text") + self.said("reasoning")))

    def no_result(self, complaint: str, returncode: int) -> WireError:
        """The failure of a run that ended without a result.

        Args:
            complaint: what it printed as an error.
            returncode: as in `answer`.
        """
        words = complaint.strip() or "\n".join(self.words).strip()
        how = f"was ended by signal {-returncode}" if returncode < 0 else f"exited with {returncode}"
        text = f"the command {how} without a result: {words or 'it printed nothing'}"
        return self.failure(words, text)

    def failure(self, words: str, text: str = "") -> WireError:
        """A failure that is known by its words alone.

        Args:
            words: the program's own.
            text: what is told; empty for the words.
        """
        row = next((row for row in self.failures if row.words.search(words)), _OTHER)
        usage = self.spent()
        return WireError(row.code, text or words, transient=row.transient, usage=usage, status=row.status)


def number(fields: Any, name: str) -> int:
    """A count of a decoded object; 0 where it is no such thing."""
    value = fields.get(name) if isinstance(fields, dict) else None
    return int(value) if isinstance(value, int | float) and 0 < value < 1e15 else 0
