"""Clipping: what is kept, what is counted, how much memory it takes."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rnixfs.clip import Clip


def clipped(text: str, limit: int, tail: int) -> str:
    """What clipping means, for a text that is there as a whole."""
    if len(text) <= limit:
        return text
    end = text[len(text) - tail :] if tail else ""
    return f"{text[: limit - tail]}\n[… {len(text) - limit} characters cut …]\n{end}"


@given(st.lists(st.text(max_size=30)), st.integers(0, 40), st.data())
def test_any_pieces_give_the_clipped_whole(pieces, limit, data):
    """However a text is cut into pieces, its beginning, its end and the exact count come out."""
    tail = data.draw(st.integers(0, limit))
    clip = Clip(limit, tail)
    said = "".join(map(clip.feed, pieces))
    whole = "".join(pieces)
    assert clip.text() == clipped(whole, limit, tail)
    assert said + clip.rest() == clip.text()
    assert clip.cut == max(0, len(whole) - limit)


def test_the_text_can_be_read_at_any_time_and_feeding_goes_on():
    """Reading the text changes nothing."""
    clip = Clip(4, 2)
    clip.feed("abc")
    assert clip.text() == "abc"
    clip.feed("defg")
    assert clip.text() == clip.text() == "ab\n[… 3 characters cut …]\nfg"


@pytest.mark.parametrize("piece", ["x", "0123456789" * 1000])
def test_memory_does_not_grow_with_the_text(piece):
    """A text without end costs no more than what is kept of it, in small pieces and in large ones."""
    clip = Clip()
    tracemalloc.start()
    try:
        for _ in range(200_000 if len(piece) == 1 else 5000):
            clip.feed(piece)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 << 20
    assert clip.cut == (200_000 if len(piece) == 1 else 50_000_000) - 30_000


def test_an_end_longer_than_the_whole_is_refused():
    """The end is part of what is kept."""
    with pytest.raises(ValueError, match="between 0 and 10"):
        Clip(10, 11)
