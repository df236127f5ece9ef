"""Laws of the pure part of the file tools: replacing, checking, showing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rnixfs import edits, limits
from rnixfs.errors import Code, SyscallError, printable


def refused(call, *args, **more) -> tuple[Code, str]:
    with pytest.raises(SyscallError) as caught:
        call(*args, **more)
    return caught.value.code, caught.value.reason


def test_one_occurrence_is_replaced():
    """And everything around it stays to the byte."""
    assert edits.replace("f", b"a\xff old \r\nz", "old", "new") == (b"a\xff new \r\nz", 1)


def test_the_number_of_occurrences_must_be_right():
    """The message says how many there are."""
    assert refused(edits.replace, "f", b"x", "old", "new") == (
        Code.INVALID,
        "old is not in f; it must be there to the letter, spaces and line ends included",
    )
    code, reason = refused(edits.replace, "f", b"old old", "old", "new")
    assert (code, "2 times" in reason) == (Code.INVALID, True)
    assert edits.replace("f", b"old old", "old", "new", everywhere=True) == (b"new new", 2)
    assert edits.replace("f", b"old old", "old", "new", count=2) == (b"new new", 2)
    code, reason = refused(edits.replace, "f", b"old old", "old", "new", count=3, everywhere=True)
    assert (code, reason) == (Code.INVALID, "old is 2 times in f, not 3 times")
    assert refused(edits.replace, "f", b"x", "old", "new", count=0)[0] is Code.INVALID


def test_edits_that_change_nothing_or_everything_are_refused():
    """An empty old text is nowhere and everywhere; equal texts are a mistake."""
    assert refused(edits.replace, "f", b"x", "", "new")[0] is Code.INVALID
    assert refused(edits.replace, "f", b"x", "x", "x")[0] is Code.INVALID


def test_the_size_after_an_edit_is_bounded_before_it_is_made():
    """A small request cannot make a huge file."""
    data = b"a" * (1 << 20)
    assert refused(edits.replace, "f", data, "a", "b" * 1000, everywhere=True)[0] is Code.TOO_LARGE


def test_line_ends_of_the_file_are_kept():
    """Texts with LF find text with CRLF, and become CRLF; a text that is there as it is is taken so."""
    assert edits.replace("f", b"a\r\nb\r\nc", "a\nb", "x\ny") == (b"x\r\ny\r\nc", 1)
    assert edits.replace("f", b"a\nb\r\n", "a\nb", "x\ny") == (b"x\ny\r\n", 1)
    assert refused(edits.replace, "f", b"a b\r\n", "a\nb", "x")[0] is Code.INVALID


@given(
    st.text(alphabet="ab\n", max_size=30),
    st.text(alphabet="ab\n", min_size=1, max_size=3),
    st.text(max_size=5),
)
def test_replacing_everywhere_is_what_str_does(text, old, new):
    """Compared with str.replace; counting and replacing agree."""
    count = text.count(old)
    if not count or old == new:
        assert refused(edits.replace, "f", text.encode(), old, new, everywhere=True)[0] is Code.INVALID
        return
    expected = (text.replace(old, new).encode(), count)
    assert edits.replace("f", text.encode(), old, new, everywhere=True) == expected
    assert edits.replace("f", text.encode(), old, new, count=count) == expected


def test_expectations_are_checked_with_the_value_found():
    """So that whoever asked can go on from there."""
    data = b"content"
    edits.Expected().check("f", None, 0)
    edits.Expected(edits.digest(data).upper(), 5).check("f", data, 5)
    code, reason = refused(edits.Expected("0" * 64).check, "f", data, 5)
    assert (code, edits.digest(data) in reason) == (Code.INVALID, True)
    code, reason = refused(edits.Expected(mtime_ns=6).check, "f", data, 5)
    assert (code, "mtime_ns is 5, not 6" in reason) == (Code.INVALID, True)
    assert refused(edits.Expected("").check, "f", data, 5)[0] is Code.EXISTS
    edits.Expected("").check("f", None, 0)
    assert refused(edits.Expected("0" * 64).check, "f", None, 0)[0] is Code.NOT_FOUND


def test_reading_shows_lines_and_says_what_is_missing():
    """Lines count from 1; `next` is where to go on."""
    data = b"one\ntwo\nthree"
    whole = {"path": "f", "content": "one\ntwo\nthree", "lines": 3, "size": 13, "truncated": False}
    assert edits.render_read(data, "f") == whole
    part = edits.render_read(data, "f", 2, 1)
    assert part == {"path": "f", "content": "two\n", "lines": 3, "size": 13, "truncated": True, "next": 3}
    assert edits.render_read(data, "f", 3)["content"] == "three"
    assert edits.render_read(data, "f", 4)["content"] == ""
    assert edits.render_read(b"", "f")["lines"] == 0
    assert edits.render_read(b"a\x0cb\x1cc\xe2\x80\xa8d\n", "f")["lines"] == 1


def test_reading_refuses_what_it_cannot_show():
    """Binary files, and lines that are not there."""
    assert refused(edits.render_read, b"a\0b", "f") == (
        Code.INVALID,
        "f is no text: 3 bytes with NUL among them",
    )
    for offset, limit in ((0, 1), (1, 0), (3, 1)):
        assert refused(edits.render_read, b"a\n", "f", offset, limit)[0] is Code.INVALID
    assert edits.render_read(b"\xff", "f")["content"] == "�"


def test_a_read_is_bounded_and_says_so():
    """Neither many lines nor one long line pass the limit, and `next` always goes on."""
    data = b"0123456789\n" * 20_000
    answer = edits.render_read(data, "f", 1, 20_000)
    assert len(str(answer["content"])) <= limits.READ_TEXT_MAX
    assert answer["truncated"] is True
    assert answer["next"] == limits.READ_TEXT_MAX // 11 + 1
    long = b"x" * (limits.READ_TEXT_MAX + 5) + b"\nend\n"
    answer = edits.render_read(long, "f")
    assert str(answer["content"]).endswith("[… 6 more characters of this line]\n")
    assert (answer["truncated"], answer["next"]) == (True, 2)


@given(st.text(alphabet="ab\n\r", max_size=60), st.integers(1, 5))
def test_pages_of_a_file_make_the_file(text, limit):
    """Following `next` gives every line once, in order."""
    offset: object = 1
    read = ""
    while offset is not None:
        assert isinstance(offset, int)
        page = edits.render_read(text.encode(), "f", offset, limit)
        read += str(page["content"])
        offset = page.get("next")
    assert read == text


def test_a_list_is_sorted_and_its_total_is_exact():
    """Also where it is cut; names that are no UTF-8 can be shown."""
    entries = [("b", "file", 2), ("a", "directory", 0), ("\udcff", "file", 1)]
    assert edits.render_list(entries, 2) == {
        "entries": [
            {"name": "a", "kind": "directory", "size": 0},
            {"name": "b", "kind": "file", "size": 2},
        ],
        "total": 3,
        "truncated": True,
    }
    assert printable("a\udcffé") == "a\\xffé"
