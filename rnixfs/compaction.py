"""Making room in a conversation that nears the model's window. Pure: messages in, messages out.

A conversation is the intent, then rounds: an assistant's message, the results of its calls, and what was
said before the next one. Only whole rounds are removed, so a call and its results are never parted; a
provider refuses a conversation in which they are. Every rewriting costs the provider's cache of the prompt,
so it is done seldom and then down to `LANDING`.

The model itself writes what is to be known of the removed rounds. Where it cannot, results and rounds are
removed without it: making room must never depend on who may be the reason that there is none.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence

import msgspec

from rnixfs import limits
from rnixfs.llm import Message, Role, estimate_tokens

TRIGGER = 0.8
"""Share of the window from which room is made, as in the reference."""

LANDING = TRIGGER / 1.5
"""Share of the window that is used afterwards at most, as in the reference."""

RECENT = 0.2
"""Share of the window that the latest rounds, kept word by word, may take."""

INSTRUCTION = (
    "The conversation is about to outgrow your context window. Write down, for yourself, what is needed to "
    "go on without the messages above: the task and what was asked for since; what was done and with what "
    "result; facts, names, paths and numbers that were found, exactly; decisions and why; what is open, and "
    "the next step. Answer with this text alone. Call no tool."
)
"""The last message of a request for a summary."""

RESULT_OF = "Result of "
"""How the message begins that tells a model without native tools what came of its action."""

REMOVED = "[This old result was removed to make room. Run the tool again if it is needed.]"
_DROPPED = "[Earlier messages were removed here to make room.]"
_SUMMARY = "What happened so far, as you wrote it down when the conversation grew too long:"
_CUT = "\n[… {} characters were removed to make room …]\n"
_ENDS = 40  # characters that stay of any text

Count = Callable[[Message], float]
"""Tokens of a message."""


def tokens_of(message: Message) -> int:
    """A rough count of a message's tokens."""
    calls = msgspec.json.encode(message.tool_calls).decode() if message.tool_calls else ""
    return estimate_tokens(message.content + calls)


def total(messages: Sequence[Message], count: Count) -> float:
    """Tokens of messages together."""
    return sum(map(count, messages))


def rounds(messages: Sequence[Message]) -> list[int]:
    """Where the rounds begin."""
    return [place for place, one in enumerate(messages) if place and one.role is Role.ASSISTANT]


def recent(messages: Sequence[Message], count: Count, room: float) -> int:
    """Where the latest rounds begin that fit in `room` tokens together; at least one round is kept.

    Returns:
        a place between two rounds; 0 where there is nothing to remove.
    """
    starts = rounds(messages)
    kept, left = 0, room
    end = len(messages)
    for start in reversed(starts):
        left -= total(messages[start:end], count)
        if left < 0 and kept:
            break
        kept = end = start
    return kept if kept > 1 else 0


def summarised(
    messages: Sequence[Message], start: int, intent: str, summary: str, count: Count, room: float
) -> list[Message]:
    """A conversation whose messages before `start` are told by a summary.

    Args:
        messages: the conversation.
        start: a place that `recent` gave.
        intent: what the process is to do.
        summary: what the model wrote.
        count: tokens of a message.
        room: tokens that the result may have.
    """
    parts = [intent, f"{_SUMMARY}\n{summary.strip()}", *_carried(messages[:start])]
    first = Message(role=Role.USER, content="\n\n".join(parts))
    return fitted([first, *messages[start:]], count, room)


def _carried(messages: Sequence[Message]) -> Iterator[str]:
    """What must outlive a summary word by word: the latest plan, and the skills that were loaded."""
    calls = {call.id: call for one in messages for call in one.tool_calls}
    plans = [call for call in calls.values() if call.name == "plan"]
    if plans:
        yield "Your plan: " + msgspec.json.encode(plans[-1].arguments).decode()
    left = limits.CARRIED_SKILLS_MAX
    for one in messages:
        call = calls.get(one.tool_call_id) if one.role is Role.TOOL else None
        if call is not None and call.name == "skill" and len(one.content) <= left:
            left -= len(one.content)
            yield f"A skill that you loaded:\n{one.content}"


def fitted(messages: Sequence[Message], count: Count, room: float) -> list[Message]:
    """A conversation made to fit without a model: the same one where it fits already.

    Old results go first, then whole rounds from the oldest on, then the middle of what is left of texts.

    Args:
        messages: the conversation; its first message is the intent.
        count: tokens of a message.
        room: tokens that the result may have. It has more only where not even that is possible.
    """
    kept = list(messages)
    _empty_results(kept, count, room)
    _drop_rounds(kept, count, room)
    _cut_texts(kept, count, room)
    return kept


def _empty_results(messages: list[Message], count: Count, room: float) -> None:
    last = (rounds(messages) or [0])[-1]
    over = total(messages, count) - room
    for place in range(1, last):
        one = messages[place]
        if over <= 0:
            return
        if _is_result(one) and len(one.content) > limits.OLD_RESULT_BYTES:
            messages[place] = msgspec.structs.replace(one, content=REMOVED)
            over -= count(one) - count(messages[place])


def _is_result(message: Message) -> bool:
    if message.role is Role.USER:
        return message.content.startswith(RESULT_OF)
    return message.role is Role.TOOL


def _drop_rounds(messages: list[Message], count: Count, room: float) -> None:
    starts = rounds(messages)
    over = total(messages, count) - room
    cut = 0
    for start, end in itertools.pairwise(starts):
        if over <= 0:
            break
        over -= total(messages[start:end], count)
        cut = end
    if cut:
        first = messages[0]
        marked = first.content if first.content.endswith(_DROPPED) else f"{first.content}\n\n{_DROPPED}"
        messages[:cut] = [msgspec.structs.replace(first, content=marked)]


def _cut_texts(messages: list[Message], count: Count, room: float) -> None:
    """Cut the longest texts in their middle, the results' first and the intent last.

    What a call carries cannot be cut. So that no intent is given up in vain to a call that is larger than
    the room, half of the room is the intent's, with the summary that stands in its message.
    """

    def rank(place: int) -> tuple[bool, bool, int]:
        return not place, not _is_result(messages[place]), -len(messages[place].content)

    for place in sorted(range(len(messages)), key=rank):
        over = total(messages, count) - room
        if over <= 0:
            return
        one = messages[place]
        kept = max(0.0 if place else room / 2, count(one) - over)
        if kept < count(one):
            text = _without_middle(one.content, max(0.0, kept / count(one)))
            messages[place] = msgspec.structs.replace(one, content=text)


def _without_middle(text: str, share: float) -> str:
    """About that share of a text, from both its ends; the same text where that is no less."""
    keep = max(_ENDS, int(len(text) * share) - len(_CUT) - _ENDS)
    gone = len(text) - keep
    if gone <= len(_CUT):
        return text
    return text[: keep - keep // 2] + _CUT.format(gone) + text[len(text) - keep // 2 :]
