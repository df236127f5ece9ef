"""Where a request ends: the pieces it comes in make no difference."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rnixfs import limits
from rnixfs.errors import Code, SyscallError
from rnixfs.framing import Framer

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
OBJECTS = st.dictionaries(st.text(), VALUES, max_size=5)
SPACE = st.sampled_from(["", " ", "\n", " \n\t "])


@st.composite
def pieces_of(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """The bytes, cut at any places."""
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=6)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def feed_all(framer: Framer, pieces: list[bytes]) -> list[Any]:
    """Every object that came out."""
    return [found for piece in pieces if (found := framer.feed(piece)) is not None]


@given(st.data(), OBJECTS, SPACE, SPACE, st.booleans(), st.sampled_from([None, 1]))
def test_any_pieces_of_an_object_give_that_object(data, value, before, after, ascii_only, indent):
    """An object comes out once, whole, whatever the pieces and the way it was written."""
    encoded = before + json.dumps(value, ensure_ascii=ascii_only, indent=indent) + after
    framer = Framer()
    assert feed_all(framer, data.draw(pieces_of(encoded.encode()))) == [value]
    assert not framer
    assert framer.finish() is None


@pytest.mark.parametrize(
    "encoded",
    [
        '{"a": -1.5e+10}',
        '{"a": [0.25, -0, 1E-2]}',
        '{"a": true, "b": null}',
        '{"a": "\\ud83d\\ude00\\""}',
        "{}",
    ],
)
def test_an_object_may_be_cut_anywhere(encoded):
    """No place is special: not the middle of a number, a word, an escape or a character."""
    for place in range(1, len(encoded)):
        framer = Framer()
        pieces = [encoded[:place].encode(), encoded[place:].encode()]
        assert feed_all(framer, pieces) == [json.loads(encoded)], f"cut after {encoded[:place]!r}"


def test_bytes_one_by_one():
    """The smallest pieces there are."""
    encoded = msgspec.json.encode({"command": "echo ü", "n": [1, 2, {"x": "}"}]})
    framer = Framer()
    found = feed_all(framer, [bytes([byte]) for byte in encoded])
    assert found == [{"command": "echo ü", "n": [1, 2, {"x": "}"}]}]


def test_one_request_after_another():
    """A framer that gave an object is ready for the next, and white space between them is nothing."""
    framer = Framer()
    assert framer.feed(b'{"a":1}\n') == {"a": 1}
    assert framer.feed(b"\n") is None
    assert not framer
    assert framer.feed(b'{"b":2}') == {"b": 2}


@given(st.data(), st.text(min_size=1).filter(lambda one: one.strip() and not one.strip().startswith("{")))
def test_any_pieces_of_a_text_give_that_text(data, value):
    """Text ends only when told, and comes out as it went in, but for one last newline."""
    encoded = value.encode()
    if not encoded.strip() or encoded.lstrip()[:1] == b"{":
        return  # white space beyond ASCII counts as text, and the other way round
    framer = Framer()
    assert feed_all(framer, data.draw(pieces_of(encoded + b"\n"))) == []
    assert framer
    assert framer.finish() == value
    assert not framer


def test_nothing_is_no_request():
    """Neither nothing nor white space is a request."""
    framer = Framer()
    assert framer.finish() is None
    assert framer.feed(b" \n") is None
    assert not framer
    assert framer.finish() is None


@pytest.mark.parametrize(
    "data",
    [
        b"{x}",
        b'{"a":1} trailing',
        b'{"a":1}{"b":2}',
        b'{"a" 1}',
        b'{"a":\xff}',
        b'{"a":"\xff\xfe"}',
        b"{,}",
        b'{"a":"\\ud83d"}',
    ],
)
def test_malformed_json_is_refused_while_it_is_written(data):
    """The writer hears of it, and the next request starts clean."""
    framer = Framer()
    with pytest.raises(SyscallError) as caught:
        framer.feed(data)
    assert caught.value.code is Code.INVALID
    assert not framer
    assert framer.feed(b'{"a":1}') == {"a": 1}


def test_an_object_that_never_ends_is_refused_at_the_end():
    """A missing brace is named when the writer says that was all."""
    framer = Framer()
    assert framer.feed(b'{"a": [1, 2') is None
    assert framer
    with pytest.raises(SyscallError, match="closing brace") as caught:
        framer.finish()
    assert caught.value.code is Code.INVALID
    assert not framer


def test_text_that_is_not_utf8_is_refused():
    """The place of the first bad byte is named."""
    framer = Framer()
    framer.feed(b"abc\xff")
    with pytest.raises(SyscallError, match="byte 3") as caught:
        framer.finish()
    assert caught.value.code is Code.INVALID


@pytest.mark.parametrize("start", [b"", b'{"a":"'])
def test_a_request_has_a_limit(start, monkeypatch):
    """At the limit it is taken, above it is TOO_LARGE and forgotten, for text and JSON alike."""
    monkeypatch.setattr(limits, "REQUEST_MAX", 100)
    framer = Framer()
    assert framer.feed(start + b"x" * (100 - len(start))) is None
    with pytest.raises(SyscallError, match="100 bytes") as caught:
        framer.feed(b"x")
    assert caught.value.code is Code.TOO_LARGE
    assert not framer
    assert framer.feed(b'{"a":1}') == {"a": 1}


def test_deep_nesting_is_refused_not_a_crash():
    """A bomb of brackets is an invalid request."""
    framer = Framer()

    def request() -> None:
        framer.feed(b'{"a":' * 100_000)
        framer.finish()

    with pytest.raises(SyscallError) as caught:
        request()
    assert caught.value.code is Code.INVALID
    assert not framer
