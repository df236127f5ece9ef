"""The template language: values, conditions, loops, lines of errors, bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rnixfs.expressions import DEPTH_MAX, WORDS_MAX, Expression, TemplateError
from rnixfs.templates import Template

NAMES = {"x": 3, "word": "hello", "items": ["a", "b"], "deep": {"list": [{"n": 1}, {"n": 2}]}, "none": None}


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        ("{ no } {x}", "{ no } {x}"),
        ("x is {{ x }}.", "x is 3."),
        ("{{x}}{{word}}", "3hello"),
        ("{{ deep.list[1].n }} {{ deep['list'][-1].n }} {{ deep.list[0] }}", '2 2 {"n": 1}'),
        ("{{ none }}|", "|"),
        ("{{ \"}}\" }}{{ '\\'%}\\n' }}", "}}'%}\n"),
        ("{{ [1, word, [x]] }}", '[1, "hello", [3]]'),
        ("{{ 1 == 1.0 and not (x < 3 or x > 3) }}", "true"),
        ("{{ not not x }} {{ not x }}", "true false"),
        ("{{ 'ell' in word }} {{ 'c' in items }} {{ 'list' in deep }}", "true false true"),
        ("{{ x <= 3 }} {{ x >= 4 }} {{ x != 3 }} {{ none == null }}", "true false false true"),
        ("{% if x == 3 %}yes{% else %}no{% endif %}", "yes"),
        ("{% if x == 4 %}yes{% else %}no{% endif %}", "no"),
        ("{% if none %}yes{% endif %}", ""),
        ("{% for i in items %}<{{ i }}>{% endfor %}", "<a><b>"),
        ("{% for i in [] %}<{{ i }}>{% endfor %}", ""),
        ("{% for i in items %}{% for j in items %}{{ i }}{{ j }} {% endfor %}{% endfor %}", "aa ab ba bb "),
        ("{% set y = items | count %}{{ y }}", "2"),
        ("a{# nothing #}b", "ab"),
        ("one\n{% if x %}\ntwo\n{% endif %}\nthree\n", "one\ntwo\nthree\n"),
        ("one\n  {# alone #}\ntwo", "one\ntwo"),
        ("one\n  {% for i in items %}\n  - {{ i }}\n  {% endfor %}", "one\n  - a\n  - b\n"),
        ("a {% if x %} b {% endif %} c\n", "a  b  c\n"),
    ],
)
def test_a_template_makes_text(source, text):
    """One row a feature; a tag alone in its line takes the line with it."""
    assert Template(source).render(NAMES) == text


def test_a_single_expression_keeps_its_kind():
    """Arguments of tools are numbers and lists, not only texts."""
    assert Template(" {{ items }} ").value(NAMES) == ["a", "b"]
    assert Template("{{ x }}").value(NAMES) == 3
    assert Template("{{ x }}{{ x }}").value(NAMES) == "33"
    assert Template("{{ x }} and more").value(NAMES) == "3 and more"


def test_a_loop_gives_the_name_back():
    """What a loop names is gone after it, and a name that it hid is there again."""
    assert Template("{% for x in items %}{{ x }}{% endfor %}{{ x }}").render(NAMES) == "ab3"
    with pytest.raises(TemplateError, match="no name 'i'"):
        Template("{% for i in items %}{% endfor %}{{ i }}").render(NAMES)


def test_rendering_leaves_the_names_alone():
    """A template can be worked out twice with the same result."""
    template = Template("{% set x = 9 %}{{ x }}")
    assert [template.render(NAMES), template.render(NAMES), NAMES["x"]] == ["9", "9", 3]


@pytest.mark.parametrize(
    ("source", "line", "what"),
    [
        ("{{ x | nope }}", 1, "no filter 'nope'"),
        ("\n\n{{ x. }}", 3, "'}}' stands in the wrong place"),
        ("{{\n\n x ! }}", 3, "'!' means nothing"),
        ("{{ x", 1, "the end stands"),
        ("{{ }}", 1, "'}}' stands"),
        ("\n{{ x y }}", 2, "'y' stands"),
        ("{{ x | }}", 1, "'}}' stands"),
        ("{{ [1 2] }}", 1, "'2' stands"),
        ("{{ (x }}", 1, "'}}' stands"),
        ("{{ x | take }}", 1, "take is given 0 arguments"),
        ("{{ x | count(1) }}", 1, "count is given 1 arguments"),
        ("{{ 'open }}", 1, "means nothing"),
        ("{{ x | match(/(a+)+/) }}", 1, "repeats a group"),
        ("\n{% if x %}\n", 3, "not closed"),
        ("{% endif %}", 1, "'endif' stands in the wrong place"),
        ("{% for i in items %}\n{% endif %}", 2, "'endif' stands in the wrong place"),
        ("{% while x %}", 1, "'while' stands in the wrong place"),
        ("{% for 3 in items %}", 1, "'3' stands"),
        ("{% set x == 3 %}", 1, "'==' stands"),
        ("a\n{# open", 2, "a comment is not closed"),
        ("{{ " + "(" * (DEPTH_MAX + 1), 1, "nested too deep"),
        ("{% if x %}" * (DEPTH_MAX + 1), 1, "nested too deep"),
        ("{{ x" + " | trim" * WORDS_MAX + " }}", 1, "more than"),
        ("{{ x" + ".y" * WORDS_MAX + " }}", 1, "more than"),
    ],
)
def test_a_template_that_cannot_be_read_says_where(source, line, what):
    """The line, what is wrong and what would be right, when it is read and not when it is used."""
    with pytest.raises(TemplateError) as caught:
        Template(source)
    assert caught.value.line == line
    assert what in caught.value.what
    assert caught.value.right


@pytest.mark.parametrize(
    ("source", "line", "what"),
    [
        ("\n{{ nope }}", 2, "no name 'nope'"),
        ("{{ deep.nope }}", 1, "no field 'nope'"),
        ("{{ items[2] }}", 1, "no item 2"),
        ("{{ word.field }}", 1, "text has no field 'field'"),
        ("{{ x[0] }}", 1, "a number has no item 0"),
        ("{{ deep[0] }}", 1, "an object has no item 0"),
        ("\n\n{% for i in word %}{% endfor %}", 3, "for takes a list, not text"),
        ("{{ 1 < word }}", 1, "cannot compare a number and text"),
        ("{{ 'a' in x }}", 1, "cannot compare text and a number"),
        ("a\n{{ word | sum }}", 2, "sum: this filter takes a list"),
    ],
)
def test_a_template_that_cannot_be_worked_out_says_where(source, line, what):
    """A wrong name, field or kind is an error with its line, never an empty text."""
    with pytest.raises(TemplateError) as caught:
        Template(source).render(NAMES)
    assert caught.value.line == line
    assert what in caught.value.what


def test_lines_count_from_the_file():
    """A template inside a file names the file's line."""
    with pytest.raises(TemplateError) as caught:
        Template("one\n{{ nope }}", line=10).render({})
    assert caught.value.line == 11


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in many %}{% for b in many %}{% for c in many %}{% endfor %}{% endfor %}{% endfor %}",
        "{% for a in many %}{{ long }}{% endfor %}",
        "{% for a in many %}{% set y = long | upper %}{% endfor %}",
    ],
)
def test_work_and_text_are_bounded(source):
    """No template can keep the daemon busy or fill its memory."""
    with pytest.raises(TemplateError, match=r"more than|beyond"):
        Template(source).render({"many": list(range(1000)), "long": "x" * 100_000})


def test_an_expression_stands_without_brackets():
    """Conditions are written without the signs of a template."""
    assert Expression("x > 2 and word == 'hello'").value(NAMES) is True
    with pytest.raises(TemplateError, match="end the expression"):
        Expression("x }}")


PIECES = [
    "{{",
    "}}",
    "{%",
    "%}",
    "{#",
    "#}",
    "if",
    "for",
    "in",
    "endif",
    "endfor",
    "else",
    "set",
    "=",
    "x",
    "|",
]
PIECES += ["count", "(", ")", "[", "]", ".", ",", "1", "'a'", "/a/", " ", "\n", "not", "and", "==", "default"]


@given(st.lists(st.sampled_from(PIECES), max_size=30).map(" ".join))
def test_whatever_is_written_it_works_or_says_why(source):
    """Reading and working out end in a text or a TemplateError, nothing else."""
    line = 1
    try:
        Template(source).render(NAMES)
    except TemplateError as error:
        line = error.line
    assert 1 <= line <= source.count("\n") + 1
