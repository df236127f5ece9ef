"""Keeps the conversation of a process within its model's window.

From `compaction.TRIGGER` of the window on, the model itself writes down what is to be known of the older
rounds. Its request goes on from the very prompt that it had last, so that the provider's cache of it serves
once more. Whatever goes wrong with that, the conversation is made to fit without it.
"""

from collections.abc import Awaitable, Callable

from rnixfs import compaction, limits
from rnixfs.errors import LogError, SyscallError
from rnixfs.llm import Message, ModelAnswer, Role
from rnixfs.proc.progress import Compacted
from rnixfs.syscalls import Syscalls
from rnixfs.wire.dialect import REFUSAL

Ask = Callable[[list[Message]], Awaitable[ModelAnswer]]
"""Asks the model with these messages, and with the system prompt and the tools that it always has."""


class Room:
    """Makes room when it is needed.

    Args:
        sys: the system calls.
        ask: asks the model for a summary.
        overhead: tokens of the system prompt and the tools, roughly.
    """

    def __init__(self, sys: Syscalls, ask: Ask, overhead: Callable[[], int]) -> None:
        self._sys = sys
        self._ask = ask
        self._overhead = overhead

    async def make(self) -> None:
        """Make room if the next prompt would fill the window too far."""
        window = self._sys.context_window
        if window and self._fill() > compaction.TRIGGER * window:
            await self._compact(window)

    async def make_after_refusal(self) -> bool:
        """Make room because the provider has refused a prompt as too long; whether there is any now."""
        fill = self._fill()
        return await self._compact(min(fill, self._sys.context_window or fill))

    def _fill(self) -> int:
        """Tokens of the next prompt: those that the provider counted last, and what came since."""
        counted, messages = self._sys.counted
        if not counted:
            return round(self._overhead() + compaction.total(self._sys.context, compaction.tokens_of))
        return round(counted + compaction.total(self._sys.context[messages:], self._counter()))

    def _scale(self) -> float:
        """How many tokens of this provider one of our rough count is."""
        counted, messages = self._sys.counted
        rough = self._overhead() + compaction.total(self._sys.context[:messages], compaction.tokens_of)
        return min(3.0, max(0.3, counted / rough)) if counted and rough else 1.0

    def _counter(self) -> compaction.Count:
        scale = self._scale()  # once, since it looks at all messages
        return lambda message: scale * compaction.tokens_of(message)

    async def _compact(self, window: int) -> bool:
        messages, count, before = list(self._sys.context), self._counter(), self._fill()
        used = compaction.total(messages, count)
        room = max(compaction.LANDING * window - (before - used), 0.1 * window)
        worth = limits.COMPACTION_GAIN * window
        start = compaction.recent(messages, count, compaction.RECENT * window)
        answer, failure = None, ""
        if start and compaction.total(messages[1:start], count) >= worth:
            answer, failure = await self._summary(messages, count, before, window)
        if answer is not None and not failure:
            kept = compaction.summarised(
                messages, start, self._sys.launch.intent, answer.content, count, room
            )
        else:
            kept = compaction.fitted(messages, count, room)
        won = used - compaction.total(kept, count)
        if won < worth:
            return False
        self._sys.compact(Compacted(kept, before, round(before - won), answer, failure))
        self._tell(before, round(before - won), answer is not None and not failure, failure)
        return True

    async def _summary(
        self, messages: list[Message], count: compaction.Count, before: int, window: int
    ) -> tuple[ModelAnswer | None, str]:
        """What the model wrote, and why it cannot be used; an answer of no use is paid all the same."""
        if (reason := self._unaffordable(before)) is not None:
            return None, reason
        prompt = [*messages, Message(role=Role.USER, content=compaction.INSTRUCTION)]
        if before > 0.95 * window:
            prompt = compaction.fitted(prompt, count, 0.9 * window - self._overhead())
        try:
            answer = await self._ask(prompt)
        except LogError:
            raise
        except SyscallError as error:
            return None, f"{error.code}: {error.reason}"
        if answer.tool_calls or answer.stop_reason == REFUSAL or not answer.content.strip():
            return answer, "the model did not write a summary"
        return answer, ""

    def _unaffordable(self, prompt: int) -> str | None:
        _, tokens, _ = self._sys.usage
        _, most, _ = self._sys.limits
        over = most and tokens + 2 * prompt > most
        return "the token budget does not allow to ask the model" if over else None

    def _tell(self, before: int, after: int, summarised: bool, failure: str) -> None:
        how = "by a summary of the model" if summarised else f"without the model ({failure or 'old results'})"
        self._sys.say("warning", f"made room: from about {before} to about {after} tokens, {how}")
