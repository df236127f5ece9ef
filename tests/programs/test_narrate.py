"""What a model says becomes lines of the log while it speaks."""

from rnixfs.llm import Delta, ModelAnswer
from rnixfs.programs.narrate import Narrator


def told(*pieces: Delta, text: bool = True, content: str = "") -> list[tuple[str, str]]:
    """The lines that come of pieces and the end of their answer."""
    lines: list[tuple[str, str]] = []
    narrator = Narrator(lambda category, words: lines.append((category, words)), text)
    for piece in pieces:
        narrator.take(piece)
    narrator.end(ModelAnswer(content=content))
    return lines


def texts(*pieces: str) -> list[Delta]:
    return [Delta("text", piece) for piece in pieces]


def test_a_line_is_logged_when_it_is_whole():
    """Pieces of any size make the same lines; empty ones are left out."""
    lines = [("think", "one two"), ("think", "three")]
    assert told(*texts("one", " two\n", "\nthr", "ee")) == lines
    assert told(*texts("one two\n\nthree\n")) == lines


def test_a_long_line_is_logged_in_parts():
    """Who follows the log need not wait for the end of a paragraph, and no word is cut."""
    lines = told(*texts(*["word "] * 300))
    assert len(lines) > 2
    assert " ".join(text for _, text in lines).split() == ["word"] * 300


def test_a_model_that_did_not_stream_is_heard_at_its_end():
    """An answer that came whole is logged once, one that streamed is not logged again."""
    assert told(content="all at once") == [("think", "all at once")]
    assert told(*texts("all at once"), content="all at once") == [("think", "all at once")]


def test_actions_in_text_are_not_told_but_thoughts_are():
    """A model that writes its actions as JSON is quoted only for what it thinks."""
    pieces = [Delta("reasoning", "let me see\n"), Delta("text", '{"action":')]
    assert told(*pieces, text=False, content='{"action":') == [("think", "let me see")]


def test_an_answer_that_is_begun_anew():
    """What was said before stays in the log, with a warning behind it, and the new answer is told."""
    lines = told(Delta("text", "half an"), Delta("restart"), content="a whole answer")
    assert [text for _, text in lines][::2] == ["half an", "a whole answer"]
    assert lines[1][0] == "warning"
