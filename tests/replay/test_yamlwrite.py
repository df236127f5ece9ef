"""What is written as YAML is read back as it was, and looks as people would write it."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rnixfs import limits
from rnixfs.yamlread import Bounds, Value, load
from rnixfs.yamlvalue import fits
from rnixfs.yamlwrite import dump

SIGNS = list(" \n\n\t:#-{}[]|>'\"\\%@`&*!?,.~\r\x85\u2028\ufeff")
TEXTS = st.text(st.one_of(st.sampled_from(SIGNS), st.characters()), max_size=30).filter(fits)
SCALARS = st.one_of(
    TEXTS,
    st.sampled_from(["no", "y", "null", "~", "1", "0x1", "1e3", ".5", "12:30", "2001-01-01", "=", "<<"]),
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(allow_nan=False, allow_infinity=False),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)


def plain(value: Value) -> Any:
    """A value without its lines."""
    if isinstance(value.data, tuple):
        return [plain(one) for one in value.data]
    if isinstance(value.data, dict):
        return {name: plain(entry.value) for name, entry in value.data.items()}
    return value.data


@given(st.dictionaries(TEXTS, VALUES, min_size=1, max_size=4))
def test_what_is_written_is_read_back(value):
    """By our reader, for small files and for large ones, which another parser reads."""
    text = dump(value)
    assert plain(load(text, "f").root) == value
    long = f"{text}{'#' * limits.CONFIG_FILE_MAX}\n"
    assert plain(load(long, "f", bounds=Bounds(characters=len(long))).root) == value


@given(st.dictionaries(TEXTS, TEXTS, min_size=1, max_size=4))
def test_other_readers_find_the_same_texts(value):
    """Words that they would take for flags or dates stand in quotes."""
    assert yaml.safe_load(dump(value)) == value


def test_it_looks_as_people_write_it():
    """Words without quotes, texts of several lines as they are, and what belongs together indented."""
    value = {
        "name": "mine",
        "said": "one\n  two\n",
        "more": "one\n\ntwo",
        "list": [{"tool": "shell", "arguments": {"command": "ls -l"}}, "x: y", []],
        "off": "off",
        "number": 5,
        "nothing": None,
    }
    assert dump(value) == (
        "name: mine\n"
        "said: |\n  one\n    two\n"
        "more: |-\n  one\n\n  two\n"
        "list:\n"
        "  - tool: shell\n    arguments:\n"
        '      command: "ls -l"\n'
        '  - "x: y"\n'
        "  - []\n"
        '"off": "off"\n'
        "number: 5\n"
        "nothing: null\n"
    )


@pytest.mark.parametrize("text", ["\x1b", "a\x00b", "\ud800", "lines\n\x7f"])
def test_what_yaml_cannot_hold_is_refused(text):
    """Whoever writes it must have another form for it."""
    assert not fits(text)
    with pytest.raises(ValueError, match="YAML cannot hold"):
        dump({"a": text})
