"""Every filter: what it makes of a value, and what it refuses."""

from typing import Any

import pytest

from rnixfs import filters
from rnixfs.expressions import TemplateError
from rnixfs.templates import Template

FILES = [{"path": "a.py", "size": 3}, {"path": "b.md", "size": 1}, {"path": "c.py", "size": 2}]
NAMES: dict[str, Any] = {
    "text": "one two\nthree",
    "path": "/src/lib/main.tar.gz",
    "list": [3, 1, 2, 1],
    "mixed": ["b", None, 2, True, "a", [1]],
    "files": FILES,
    "counts": {".py": 2, ".md": 1},
    "number": 7,
    "nothing": None,
    "empty": [],
}

TABLE = [
    ("number | add(3)", 10),
    ('"run: ls: x" | after(":")', "ls: x"),
    ('"run" | after(":")', ""),
    ("path | basename", "main.tar.gz"),
    ('"run: ls" | before(":")', "run"),
    ("2048 | bytes", "2 KiB"),
    ("1500000 | bytes", "1.4 MiB"),
    ("0 | bytes", "0 B"),
    ("text | clip(5)", "one …"),
    ("text | clip(500)", NAMES["text"]),
    ("text | count", 13),
    ("counts | count", 2),
    ("list | counting", {"1": 2, "2": 1, "3": 1}),
    ('nothing | default("d")', "d"),
    ('number | default("d")', 7),
    ('missing | default("d")', "d"),
    ('counts.nope.deeper | default("d")', "d"),
    ('files[9].path | default("d")', "d"),
    ("path | dirname", "/src/lib"),
    ("path | extension", ".gz"),
    ('"Makefile" | extension', ""),
    ("text | find_all(/[a-z]+/)", ["one", "two", "three"]),
    ("text | find_all(/(t)[a-z]/)", ["t", "t"]),
    ("list | first", 3),
    ("empty | first", None),
    ("text | indent(2)", "  one two\n  three"),
    ("counts | items", [{"key": ".py", "value": 2}, {"key": ".md", "value": 1}]),
    ('list | join("-")', "3-1-2-1"),
    ("list | take(2) | repeat(2)", [3, 1, 3, 1]),
    ("list | repeat(0)", []),
    ("list | join", "3121"),
    ("counts | json", '{".py": 2, ".md": 1}'),
    ("counts | keys", [".py", ".md"]),
    ("list | last", 1),
    ("empty | last", None),
    ("list | length", 4),
    ("text | lines", ["one two", "three"]),
    ('"ÄB" | lower', "äb"),
    ('files | map("path")', ["a.py", "b.md", "c.py"]),
    ('files | map("nope")', [None, None, None]),
    ("text | match(/t(w.)/)", "wo"),
    ("text | match(/^three$/)", "three"),
    ("text | match(/four/)", None),
    ("text | match(/ONE/i)", "one"),
    ("number | mul(3)", 21),
    ('" 42 " | number', 42),
    ('"-1.5" | number', -1.5),
    ("number | number", 7),
    ('"[1, {}]" | parse_json', [1, {}]),
    ("number | per(2)", 3.5),
    ("number | per(0)", 0.0),
    ('text | replace("one", "1")', "1 two\nthree"),
    ("list | reverse", [1, 2, 1, 3]),
    ("2.6 | round", 3),
    ("list | skip(1)", [1, 2, 1]),
    ("list | skip(9)", []),
    ("list | sort", [1, 1, 2, 3]),
    ('files | sort("size") | map("size")', [1, 2, 3]),
    ("mixed | sort", [None, True, 2, "a", "b", [1]]),
    ('"a,b" | split(",")', ["a", "b"]),
    ("number | sub(3)", 4),
    ("list | sum", 7),
    ('files | sum("size")', 6),
    ("list | take(2)", [3, 1]),
    ("list | take(-1)", []),
    ("text | test(/two$/)", True),
    ("text | test(/^two/)", False),
    ('" x " | trim', "x"),
    ("list | unique", [3, 1, 2]),
    ("mixed | unique | count", 6),
    ('"äb" | upper', "ÄB"),
    ('files | where("size", 3) | map("path")', ["a.py"]),
    (r'files | where("path", /\.py$/) | map("path")', ["a.py", "c.py"]),
    (r'files | without("path", /\.py$/) | map("path")', ["b.md"]),
    ("text | words", ["one", "two", "three"]),
]


@pytest.mark.parametrize(("expression", "expected"), TABLE)
def test_a_filter_makes_what_its_name_says(expression, expected):
    """One row a case."""
    assert Template("{{ " + expression + " }}").value(NAMES) == expected


def test_every_filter_is_in_the_table():
    """No filter without a row above."""
    used = {word for expression, _ in TABLE for word in expression.replace("(", " ").split()}
    assert set(filters.FILTERS) <= used


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        ("number | lines | first | first", "takes a list, not text"),
        ("counts | lines", "takes text, not an object"),
        ("list | upper", "takes text, not a list"),
        ("text | add(1)", "takes a number, not text"),
        ("true | add(1)", "takes a number, not true or false"),
        ("number | take(1)", "takes a list, not a number"),
        ("list | take(1.5)", "not a whole number"),
        ('text | match("one")', "takes a pattern, not text"),
        ('text | replace("", "x")', "nothing to look for"),
        ('text | split("")', "nothing to split at"),
        ("number | count", "a number has no length"),
        ("list | items", "items takes an object, not a list"),
        ('"abc" | number', "is no number"),
        ('"{" | parse_json', "is no JSON"),
        ('files | sum("path")', "takes a number, not text"),
        ("/x/ | json", "JSON"),
        ("/x/ | upper", "takes text, not a pattern"),
        ("number | mul(" + "9" * 200 + ") | mul(" + "9" * 200 + ")", "product is too large"),
    ],
)
def test_a_filter_refuses_what_it_cannot_take(expression, what):
    """The error names the filter and what would be right."""
    with pytest.raises(TemplateError) as caught:
        Template("{{ " + expression + " }}").value(NAMES)
    assert what in str(caught.value)
    assert caught.value.right


BIG = "x" * filters.TEXT_MAX


@pytest.mark.parametrize(
    "expression",
    [
        "big | replace('x', big)",
        "[big, big] | join(big)",
        "many | join(big)",
        "big | indent(1000000)",
        "big | match(/x/)",
        "[big, 'x'] | json | upper",
    ],
)
def test_no_filter_makes_more_than_its_limit(expression):
    """The size is known before the text is made, so memory is safe too."""
    with pytest.raises(TemplateError, match="at most"):
        Template("{{ " + expression + " }}").value({"big": BIG, "many": ["x"] * 1000})


def test_a_list_beyond_its_limit_is_refused():
    """Items are bounded as well as characters."""
    with pytest.raises(TemplateError, match="at most"):
        Template("{{ text | lines }}").value({"text": "\n" * (filters.ITEMS_MAX + 1)})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "true"),
        (3, "3"),
        (2.0, "2"),
        (2.5, "2.5"),
        ("x", "x"),
        ([1, "ä"], '[1, "ä"]'),
        ({}, "{}"),
    ],
)
def test_values_print_as_people_write_them(value, text):
    """Null is nothing, whole numbers have no point, lists and objects are JSON."""
    assert filters.to_text(value) == text
