"""Patterns of users: those that could run without end are refused before they are tried."""

import pytest

from rnixfs.patterns import PATTERN_MAX, TEXT_MAX, RefusedError, bounded, clip, compile_pattern


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+",
        "(a*)*$",
        "(a|b)*",
        "(?:(?:a*))*",
        "((a|ab)?)*",
        "(?P<x>a+){2}",
        "(a{1,9}){1,9}",
        "x(?=a+)*",
        "(a?a?)*",
        r"(a)\1",
        "(?P<x>a)(?P=x)",
        "(a)?(?(1)b|c)",
        "(",
        "a**",
        "a" * (PATTERN_MAX + 1),
        ".*" * 9,
    ],
)
def test_a_pattern_that_could_explode_is_refused(pattern):
    """Repeated groups with repetitions or alternatives, back references, and what is no pattern."""
    with pytest.raises(RefusedError) as caught:
        compile_pattern(pattern)
    assert caught.value.what
    assert caught.value.right


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"(ab)*c", "ababc", "ababc"),
        (r"(?:a|b)c", "xbc", "bc"),
        (r"[(+)*|]+", "a(+)b", "(+)"),
        (r"\(a+\)+", "(aa))", "(aa))"),
        (r"[]a]+", "]a", "]a"),
        (r"(?i)HELLO", "hello", "hello"),
        (r"(?<=x)a{2,3}?", "xaaa", "aa"),
        (r"^b$", "a\nb\nc", "b"),
    ],
)
def test_a_harmless_pattern_is_taken(pattern, text, found):
    """Signs inside sets and after backslashes are no repetitions; lines have starts and ends."""
    match = compile_pattern(pattern).search(text)
    assert match is not None
    assert match[0] == found


def test_the_case_of_letters_can_be_ignored():
    """The flag i is the only one."""
    assert compile_pattern("abc", "i").search("ABC")
    assert not compile_pattern("abc").search("ABC")


def test_the_text_is_bounded():
    """A condition sees the start of a long text; a filter refuses it, so that nothing is cut in silence."""
    assert len(clip("x" * (TEXT_MAX + 1))) == TEXT_MAX
    assert bounded("x" * TEXT_MAX)
    with pytest.raises(RefusedError, match="clip"):
        bounded("x" * (TEXT_MAX + 1))
