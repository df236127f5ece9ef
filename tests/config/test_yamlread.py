"""YAML with lines: what is taken, what is refused, and that nothing else ever happens."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rnixfs import limits
from rnixfs.errors import Code
from rnixfs.yamlread import Fields, ManifestError, Value, load

from .shelves import attempt


def bare(value: Value) -> object:
    """A value without its lines."""
    match value.data:
        case tuple() as items:
            return [bare(item) for item in items]
        case dict() as fields:
            return {name: bare(entry.value) for name, entry in fields.items()}
        case scalar:
            return scalar


def fields_of(text: str) -> Fields:
    return load(text, "f.yaml").fields()


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        ("text", "text"),
        ("no", "no"),
        ("on", "on"),
        ("12:30", "12:30"),
        ("2020-01-01", "2020-01-01"),
        ("'7'", "7"),
        ("!!str 7", "7"),
        ("7", 7),
        ("-7", -7),
        ("0x1F", 31),
        ("0o17", 15),
        ("007", 7),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("-.inf", float("-inf")),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("9" * 50, float("9" * 50)),
        ("30_000", "30_000"),
    ],
)
def test_plain_words_mean_what_yaml_1_2_says(word: str, meaning: object) -> None:
    found = bare(load(f"a: {word}", "f").root)
    assert found == {"a": meaning}
    assert isinstance(found, dict)
    assert type(found["a"]) is type(meaning)


def test_every_value_knows_its_line() -> None:
    fields = fields_of("# comment\na: 1\nb:\n  - x\n  -\n    y: 2\n")
    assert [fields.line_of("a"), fields.line_of("b")] == [2, 3]
    items = fields.items("b", "") or ()
    assert [item.line for item in items] == [4, 6]


def test_lines_count_from_the_file_that_the_text_is_part_of() -> None:
    assert load("a: 1", "f", before=4).fields().line_of("a") == 5


def test_an_alias_repeats_what_its_anchor_marks() -> None:
    assert bare(load("a: &x [1, 2]\nb: *x", "f").root) == {"a": [1, 2], "b": [1, 2]}


BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 30)
)

REFUSED = [
    ("a: 1\na: 2", 2, "'a' is given twice, first in line 1", "keep one"),
    ("a: !!python/name:os.system x", 1, "the tag", "remove the tag"),
    ("a: !mine {b: c}", 1, "the tag '!mine' is unknown", "remove the tag"),
    ("a: !!int '7'", 1, "is unknown", "remove the tag"),
    ("a: 1\n---\nb: 2", 2, "a second document", "one document"),
    ("a: *x", 1, "*x stands for nothing", "&x"),
    ("a: &x [*x]", 1, "*x stands for nothing", "&x"),
    (BOMB, 4, "too many values", "at most 10000"),
    ("[" + "x," * 20_000 + "]", 1, "too many values", "at most 10000"),
    ("[" * 40, 1, "nested too deep", "at most 32 levels"),
    ("a:\n" + "- " * 40 + "x", 2, "nested too deep", "at most 32 levels"),
    ("1: x", 1, "a field's name is a whole number", "in quotes"),
    ("? [a]\n: x", 1, "a field's name is a list", "in quotes"),
    ("a: b: c", 1, "mapping values are not allowed", "quotes around it"),
    ("a: 1\nb: [1,\nc: 2\n", 4, "not YAML", "begun in line 2"),
    ("a:\n\t- b", 2, "cannot start any token", "column 1"),
    ("a: \x01", 1, "the character U+0001 is not allowed", "remove it"),
    ("a: 1\nb: \ud800", 2, "the character U+D800 is not allowed", "remove it"),
    ('a: "\\ud800"', 1, "U+D800", "printable"),
    ('a: "\\0"', 1, "U+0000", "printable"),
    ('a: "\\e[2J"', 1, "U+001B", "printable"),
    ('a: "\\UFFFFFFFF"', 1, "not YAML", "escape"),
    ("%YAML " + "9" * 5000 + ".1\n---\na: 1", 1, "not YAML", "directive"),
    ("x" * (limits.CONFIG_FILE_MAX + 1), 1, f"{limits.CONFIG_FILE_MAX + 1} characters", "at most"),
]


@pytest.mark.parametrize(("text", "line", "what", "right"), REFUSED)
def test_what_cannot_be_taken_is_refused_with_its_line(text: str, line: int, what: str, right: str) -> None:
    with pytest.raises(ManifestError) as caught:
        load(text, "f.yaml")
    error = caught.value
    assert (error.file, error.line) == ("f.yaml", line)
    assert what in error.what
    assert right in str(error)
    assert str(error) == f"f.yaml:{line}: {error.what}; {error.right}"


def test_an_error_becomes_a_failed_system_call() -> None:
    error = ManifestError("f.yaml", 3, "a is text", "write a number").as_syscall_error()
    assert (error.code, error.reason) == (Code.INVALID, "f.yaml:3: a is text; write a number")


READS = [
    ("whole", lambda f: f.whole("a", 1, 9), "x", "a is text", "a whole number from 1 to 9"),
    ("whole", lambda f: f.whole("a", 1, 9), "true", "a is true or false", "a whole number from 1 to 9"),
    ("whole", lambda f: f.whole("a", 1, 9), "1.5", "a is a number", "a whole number from 1 to 9"),
    ("whole", lambda f: f.whole("a", 1, 9), "10", "a is 10", "a whole number from 1 to 9"),
    ("whole", lambda f: f.whole("a", 1, 9), "0", "a is 0", "a whole number from 1 to 9"),
    ("whole", lambda f: f.whole("a", 1, 9), "", "a is empty", "a whole number from 1 to 9"),
    ("number", lambda f: f.number("a", 0, 9), ".nan", "a is .nan", "a number from 0 to 9"),
    ("number", lambda f: f.number("a", 0, 9), ".inf", "a is .inf", "a number from 0 to 9"),
    ("number", lambda f: f.number("a", 0, 9), "[1]", "a is a list", "a number from 0 to 9"),
    ("flag", lambda f: f.flag("a", True), "yes", "a is text", "true or false"),
    ("flag", lambda f: f.flag("a", True), "1", "a is a whole number", "true or false"),
    ("text", lambda f: f.text("a"), "1", "a is a whole number", "in quotes"),
    ("text", lambda f: f.text("a"), "''", "a is empty", "remove the field"),
    ("text", lambda f: f.text("a"), "", "a is empty", "write text"),
    ("text", lambda f: f.text("a", limit=3), "abcd", "a has 4 characters", "at most 3"),
    ("text", lambda f: f.text("a", pattern="[a-z]+", right="letters"), "A1", "a is 'A1'", "write letters"),
    ("texts", lambda f: f.texts("a"), "x", "a is text", "a list"),
    ("texts", lambda f: f.texts("a"), "[x, 2]", "a[2] is a whole number", "in quotes"),
    ("texts", lambda f: f.texts("a"), "[x, y, x]", "a names 'x' twice", "keep one"),
    ("texts", lambda f: f.texts("a"), f"[{'x,' * 300}]", "a has 300 entries", "at most 256"),
    ("mapping", lambda f: f.mapping("a"), "x", "a is text", "write fields"),
    ("mappings", lambda f: f.mappings("a"), "{x: 1}", "a is a mapping", "a list of entries"),
    ("mappings", lambda f: f.mappings("a"), "[{}, 1]", "a[2] is a whole number", "write fields"),
    ("need", lambda f: f.need("b", "a name"), "x", "b is missing", "add b: a name"),
    ("only", lambda f: f.only(["abc"]), "x", "a is not a field here", "the fields are abc"),
    ("only", lambda f: f.only(["b"], {"a": "write b"}), "x", "a is not a field here", "write b"),
]


@pytest.mark.parametrize(("name", "read", "value", "what", "right"), READS)
def test_fields_that_do_not_fit_are_refused(name, read, value, what, right) -> None:
    with pytest.raises(ManifestError) as caught:
        read(fields_of(f"a: {value}"))
    assert caught.value.line == 1
    assert what in caught.value.what
    assert right in caught.value.right


def test_fields_that_fit_are_read_and_absent_ones_are_none() -> None:
    fields = fields_of("n: 3\nx: 2\nt: ' word '\nf: false\nl: [a, b]\nm: {k: v}\nms: [{k: v}]")
    assert (fields.whole("n", 1, 9), fields.number("x", 0, 9), fields.text("t")) == (3, 2, "word")
    assert (fields.flag("f", True), fields.texts("l")) == (False, ("a", "b"))
    inner = fields.mapping("m")
    assert inner is not None
    assert inner.text("k") == "v"
    assert [one.text("k") for one in fields.mappings("ms")] == ["v"]
    assert (fields.whole("-", 1, 9), fields.number("-", 0, 1), fields.text("-")) == (None, None, "")
    assert (fields.flag("-", True), fields.texts("-"), fields.mapping("-")) == (True, None, None)
    assert fields.mappings("-") == ()


def test_the_nearest_field_is_suggested() -> None:
    with pytest.raises(ManifestError, match="did you mean max_steps"):
        fields_of("max_step: 3").only(["name", "max_steps"])


def test_a_file_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(ManifestError, match=r"^f\.yaml:1: the file is a list; write fields"):
        fields_of("- a")


YAMLISH = st.text(
    st.sampled_from(list("ab01 \n\t:-?[]{},&*!|>'\"%@#~.\\<=u\x00\x85\ufeff\ud800é")), max_size=60
)


@given(st.one_of(st.text(max_size=200), YAMLISH))
def test_any_text_is_taken_or_refused_with_a_line_in_it(text: str) -> None:
    """load never raises anything but ManifestError, and names a line that the text has."""
    found = attempt(lambda: load(text, "f"))
    if isinstance(found, ManifestError):
        assert 1 <= found.line <= len(text.splitlines()) + 1


PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**30), 10**30), st.text("abc é:-#'\"{}[],&*!|>%", max_size=12)
)
TREES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text("abc:- ", max_size=6), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(TREES, st.booleans())
def test_what_yaml_writes_is_read_back(tree: object, flow: bool) -> None:
    """For values that mean the same in YAML 1.1 and 1.2, writing and reading gives the value again."""
    text = yaml.safe_dump(tree, default_flow_style=flow, allow_unicode=True)
    assert bare(load(text, "f").root) == tree
