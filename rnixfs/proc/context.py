"""The conversation of a process: what its model is shown."""

import msgspec

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, invalid
from rnixfs.llm import Message, Role

_LATEST = 5
_LINE = 120


class Context:
    """A system prompt and messages, in order.

    Args:
        max_messages: most messages.
        max_bytes: most bytes of all texts together.
    """

    def __init__(
        self,
        system_prompt: str = "",
        max_messages: int = limits.CONTEXT_MESSAGES_MAX,
        max_bytes: int = limits.CONTEXT_BYTES_MAX,
    ) -> None:
        self.system_prompt = system_prompt
        self.messages: list[Message] = []
        self.bytes = len(system_prompt.encode())
        self.max_messages = max_messages
        self.max_bytes = max_bytes

    def append(self, *messages: Message) -> None:
        """Add messages in one step: all or none, so that a call and its results are never parted.

        Raises:
            SyscallError: RESOURCE_EXHAUSTED when a limit would be passed.
        """
        self.bytes += self.check_room(*messages)
        self.messages.extend(messages)

    def replace(self, messages: list[Message]) -> None:
        """Put other messages in the place of all there are."""
        self.bytes = len(self.system_prompt.encode()) + sum(map(_size, messages))
        self.messages[:] = messages

    def check_room(self, *messages: Message) -> int:
        """Raise what `append` would raise; returns how many bytes they add."""
        added = sum(_size(message) for message in messages)
        if len(self.messages) + len(messages) > self.max_messages:
            raise self._full(f"{self.max_messages} messages")
        if self.bytes + added > self.max_bytes:
            raise self._full(f"{self.max_bytes} bytes")
        return added

    @staticmethod
    def _full(limit: str) -> SyscallError:
        return SyscallError(Code.RESOURCE_EXHAUSTED, f"the context is full: it may hold {limit}")

    def write(self, offset: int, message: Message) -> int:
        """Append at offset 0, or replace message `offset` (from 1); return the message's number.

        Raises:
            SyscallError: INVALID for an offset that is no message's, RESOURCE_EXHAUSTED when full.
        """
        if offset == 0:
            self.append(message)
            return len(self.messages)
        if not 0 < offset <= len(self.messages):
            raise invalid(f"offset {offset}: 0 appends, 1 to {len(self.messages)} replaces a message")
        grown = _size(message) - _size(self.messages[offset - 1])
        if self.bytes + grown > self.max_bytes:
            raise self._full(f"{self.max_bytes} bytes")
        self.messages[offset - 1] = message
        self.bytes += grown
        return offset

    def read(self, offset: int, length: int) -> list[Message]:
        """`length` messages from number `offset` (from 1; 0 means all).

        Raises:
            SyscallError: INVALID for negative numbers.
        """
        if offset < 0 or length < 0:
            raise invalid(f"offset {offset} and length {length} must be 0 or more")
        return list(self.messages) if offset == 0 else self.messages[offset - 1 : offset - 1 + length]

    def as_json(self) -> bytes:
        """The whole context, as in `messages.json`."""
        return msgspec.json.encode({"system_prompt": self.system_prompt, "messages": self.messages}) + b"\n"

    def summary(self, tokens: int, window: int) -> str:
        """What `context` shows: messages by role, size, the fill of the window, and the last messages.

        Args:
            tokens: tokens of the last prompt, 0 before the first.
            window: tokens that the model takes, 0 where unknown.
        """
        counts = {role: sum(one.role == role for one in self.messages) for role in Role}
        roles = ", ".join(f"{count} {role}" for role, count in counts.items() if count)
        fill = (
            f"{tokens} of {window} ({100 * tokens // window} %)" if window else f"{tokens} (window unknown)"
        )
        lines = [
            f"messages: {len(self.messages)}" + (f" ({roles})" if roles else ""),
            f"bytes:    {self.bytes}",
            f"tokens:   {fill}",
        ]
        first = max(0, len(self.messages) - _LATEST)
        lines += [
            f"  {number}. {one.role}: {_first_line(one)}"
            for number, one in enumerate(self.messages[first:], first + 1)
        ]
        return "\n".join(lines) + "\n"


def _size(message: Message) -> int:
    calls = sum(len(msgspec.json.encode(call)) for call in message.tool_calls)
    echo = len(msgspec.json.encode(message.echo)) if message.echo else 0
    return len(message.content.encode("utf-8", "replace")) + calls + echo


def _first_line(message: Message) -> str:
    text = message.content.strip() or ", ".join(f"calls {call.name}" for call in message.tool_calls)
    line = text.partition("\n")[0]
    return line if len(line) <= _LINE else line[: _LINE - 1] + "…"
