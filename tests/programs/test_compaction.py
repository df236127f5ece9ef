"""Making room in a conversation: what may be removed, what must stay, and how far it goes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rnixfs import compaction, limits
from rnixfs.llm import Message, Role, ToolCall

INTENT = "build the bridge"
WORDS = st.text("abc de\n", max_size=60)
RESULTS = st.one_of(WORDS, st.integers(1, 6000).map(lambda size: "r" * size))


@st.composite
def round_of(draw: st.DrawFn) -> list[Message]:
    """An assistant's message, the results of its calls, and what a person said then."""
    count = draw(st.integers(0, 3))
    number = draw(st.integers(0, 10_000))
    calls = [
        ToolCall(f"c{number}-{place}", draw(st.sampled_from(["echo", "skill", "plan"])), {"n": place})
        for place in range(count)
    ]
    said = [Message(Role.ASSISTANT, draw(WORDS), calls)]
    said += [Message(Role.TOOL, draw(RESULTS), tool_call_id=call.id) for call in calls]
    if not calls or draw(st.booleans()):
        said.append(Message(Role.USER, draw(RESULTS)))
    return said


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """A conversation as the reasoning loop makes it."""
    rounds = draw(st.lists(round_of(), max_size=12))
    return [Message(Role.USER, INTENT), *(one for said in rounds for one in said)]


def check_pairs(messages: list[Message]) -> None:
    """Each result stands behind the message with its call, and each call has its results at once."""
    waiting: list[str] = []
    for one in messages:
        if one.role is Role.TOOL:
            assert one.tool_call_id in waiting
            waiting.remove(one.tool_call_id)
        else:
            assert not waiting
            waiting = [call.id for call in one.tool_calls]
    assert not waiting


def size(messages: list[Message]) -> float:
    return compaction.total(messages, compaction.tokens_of)


@given(conversations(), st.integers(0, 8000))
def test_without_a_model_it_fits_and_no_pair_is_parted(messages, room):
    """Whatever there is and however small the room: calls keep their results, the intent stays, the last
    round's messages stay, and nothing grows; where the structure alone fits, the result fits."""
    kept = compaction.fitted(messages, compaction.tokens_of, room)
    check_pairs(kept)
    assert kept[0].content.startswith(INTENT[:4])
    last = (compaction.rounds(messages) or [0])[-1]
    assert [(one.role, one.tool_call_id) for one in kept][-len(messages[last:]) :] == [
        (one.role, one.tool_call_id) for one in messages[last:]
    ]
    if size(messages) <= room:
        assert kept == messages
    if room >= 1000:
        assert size(kept) <= room


@given(conversations(), st.integers(200, 4000))
def test_a_summary_stands_for_whole_rounds(messages, room):
    """The place from which messages are kept lies between two rounds, and what is kept is kept in order."""
    start = compaction.recent(messages, compaction.tokens_of, room / 3)
    if not start:
        assert len(compaction.rounds(messages)) < 2 or compaction.rounds(messages)[0] <= 1
        return
    assert messages[start].role is Role.ASSISTANT
    kept = compaction.summarised(
        messages, start, INTENT, "I found the river.", compaction.tokens_of, 10_000_000
    )
    check_pairs(kept)
    assert kept[1:] == messages[start:]
    assert kept[0].content.startswith(INTENT)
    assert "I found the river." in kept[0].content


def test_old_results_go_before_rounds() -> None:
    """Only results of more than a kilobyte go, the oldest first, and only as many as are needed."""
    messages = [Message(Role.USER, INTENT)]
    for number in range(4):
        call = ToolCall(f"c{number}", "read_file", {})
        messages += [
            Message(Role.ASSISTANT, "look", [call]),
            Message(Role.TOOL, "x" * 4000 if number != 1 else "short", tool_call_id=call.id),
        ]
    kept = compaction.fitted(messages, compaction.tokens_of, size(messages) - 1500)
    contents = [one.content for one in kept if one.role is Role.TOOL]
    assert contents == [compaction.REMOVED, "short", compaction.REMOVED, "x" * 4000]
    assert len(kept) == len(messages)


def test_the_latest_plan_and_loaded_skills_outlive_a_summary() -> None:
    """What a model is bound to follow is kept word by word, beside what it wrote itself."""
    plans = [ToolCall(f"p{number}", "plan", {"steps": [f"step {number}"]}) for number in range(2)]
    skill = ToolCall("s", "skill", {"skill": "review"})
    messages = [Message(Role.USER, INTENT)]
    for call in (*plans, skill):
        text = "HOW TO REVIEW" if call is skill else "noted"
        messages += [Message(Role.ASSISTANT, "", [call]), Message(Role.TOOL, text, tool_call_id=call.id)]
    messages += [Message(Role.ASSISTANT, "and on"), Message(Role.USER, "yes")]
    start = compaction.recent(messages, compaction.tokens_of, 5)
    first = compaction.summarised(messages, start, INTENT, "so far", compaction.tokens_of, 100_000)[0].content
    assert "step 1" in first
    assert "step 0" not in first
    assert "HOW TO REVIEW" in first


def test_a_loaded_skill_that_is_too_large_is_left_out() -> None:
    """Skills of any size must not bring back what a summary has removed."""
    skill = ToolCall("s", "skill", {})
    large = "x" * (limits.CARRIED_SKILLS_MAX + 1)
    messages = [
        Message(Role.USER, INTENT),
        Message(Role.ASSISTANT, "", [skill]),
        Message(Role.TOOL, large, tool_call_id="s"),
        Message(Role.ASSISTANT, "on"),
        Message(Role.USER, "yes"),
    ]
    kept = compaction.summarised(messages, 3, INTENT, "so far", compaction.tokens_of, 1_000_000)
    assert large not in kept[0].content


@pytest.mark.parametrize("room", [80, 200, 1000])
def test_one_huge_result_loses_its_middle(room) -> None:
    """Where a single result is too large, its beginning and end stay, and the gap says how much is gone."""
    call = ToolCall("c", "shell", {})
    text = "BEGIN " + "x" * 100_000 + " END"
    messages = [
        Message(Role.USER, INTENT),
        Message(Role.ASSISTANT, "", [call]),
        Message(Role.TOOL, text, tool_call_id="c"),
    ]
    kept = compaction.fitted(messages, compaction.tokens_of, room)
    assert size(kept) <= room
    assert kept[0].content == INTENT
    assert "characters were removed" in kept[2].content
    if room >= 200:
        assert kept[2].content.startswith("BEGIN")
        assert kept[2].content.endswith("END")
