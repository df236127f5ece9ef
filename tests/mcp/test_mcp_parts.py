"""The parts of the client that wait for nobody: lines, schemas, what servers answer."""

import base64
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rnixfs import limits
from rnixfs.errors import Code, SyscallError
from rnixfs.mcp.content import document, prompt_answer, prompt_arguments, tool_answer
from rnixfs.mcp.lines import Lines, TooLong
from rnixfs.mcp.schema import Arguments
from tests.groups.grouplab import refused

# --- lines ---


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b""))), st.integers(1, 30))
def test_lines_are_the_same_however_they_are_cut(lines, size):
    """Pieces of any length give the lines that were sent, without the blank ones."""
    data = b"".join(line + b"\n" for line in lines)
    cutter, found = Lines(), []
    for start in range(0, len(data), size):
        found += cutter.feed(data[start : start + size])
    assert found == [line for line in lines if line.strip()]


@pytest.mark.parametrize(
    ("line", "answers"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":"%s"}', b"7"),
        (b'{"id": "x-1", "jsonrpc":"2.0","result":"%s"}', b'"x-1"'),
        (b'{"result":{"a":"%s"},"jsonrpc":"2.0","id":8}', b"8"),
        (b'{"jsonrpc":"2.0","result":"%s","id":9} ', b"9"),
        (b'{"result":{"id":5,"a":"%s","id":6}}', None),
        (b'{"result":{"a":{"id":4,"b":"%s"}}}', None),
        (b"%s", None),
    ],
)
@pytest.mark.parametrize("piece", [700, 1 << 20])
def test_a_line_that_is_too_long_is_thrown_away(line, answers, piece):
    """As it comes; what it answered is known where that stands at either end. Then lines go on."""
    whole = line % (b"x" * 5000)
    data, cutter, found = whole + b"\nnext\n", Lines(1000), []
    for start in range(0, len(data), piece):
        found += cutter.feed(data[start : start + piece])
    first, second = found
    assert isinstance(first, TooLong)
    assert (first.size, first.answers, second) == (len(whole), answers, b"next")


def test_a_line_without_end_is_given_up(monkeypatch):
    """After a bounded number of bytes, of which few are held."""
    monkeypatch.setattr(limits, "MCP_SKIPPED_MAX", 100_000)
    cutter = Lines(1000)
    with refused(Code.TOO_LARGE, "a line of more than 100000 bytes"):
        for _ in range(1000):
            cutter.feed(b"x" * 900)


# --- schemas ---

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Z]"},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
        "home": {"$ref": "#/$defs/place"},
    },
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"place": {"type": "object", "properties": {"zip": {"type": ["integer", "null"]}}}},
}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "t: the object lacks 'name'; it takes name (required), tags, home"),
        ({"name": 7}, "t: name is an integer, not string"),
        ({"name": "ann"}, "t: name is 'ann', which does not match ^[A-Z]"),
        ({"name": "Ann", "tags": ["a", "c"]}, "t: tags[1] is 'c'; one of: 'a', 'b'"),
        ({"name": "Ann", "home": {"zip": "x"}}, "t: home.zip is a string, not integer or null"),
        ({"name": "Ann", "nam": 1}, "t: the object has a field that is not taken"),
        ("text", "t takes its arguments as a JSON object"),
        (None, "t takes its arguments as a JSON object"),
    ],
)
def test_arguments_that_do_not_fit(arguments, words):
    """The refusal names the field and what would be right."""
    with refused(Code.INVALID, words):
        Arguments(PERSON, "t").check(arguments)
    Arguments(PERSON, "t").check({"name": "Ann", "tags": ["a"], "home": {"zip": None}})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"type": "object", "properties": 7},
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$ref": "#/no/where"},
        {"$ref": "#"},
        {"$schema": "http://example.org/unknown", "type": "object"},
        {"properties": {"x": {"pattern": "("}}},
        {"properties": {"x": {"pattern": r"\p{L}+"}}},
    ],
)
def test_a_schema_that_cannot_be_used_lets_pass(schema):
    """The server judges then; nothing is fetched."""
    Arguments(schema, "t").check({"x": "y"})


def test_a_pattern_that_would_run_for_ever_is_not_tried():
    """Neither on a value nor on the name of a field."""
    bad = "(a+)+$"
    schema = {"properties": {"x": {"pattern": bad}}, "patternProperties": {bad: {"type": "string"}}}
    began = time.monotonic()
    Arguments(schema, "t").check({"x": "a" * 60 + "!", "a" * 60 + "!": 7})
    assert time.monotonic() - began < 30


def test_fields_by_pattern_are_checked():
    """Where the pattern is a plain one."""
    with refused(Code.INVALID, "t: n_1 is a string, not integer"):
        Arguments({"patternProperties": {"^n_": {"type": "integer"}}}, "t").check({"n_1": "x", "m": "y"})


# --- answers ---


def test_the_answer_of_a_tool_keeps_everything():
    """And adds its text as one, that of embedded documents too."""
    content = [
        {"type": "text", "text": "one"},
        {"type": "image", "data": "AA==", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "x://a", "text": "two"}},
    ]
    assert tool_answer({"content": content}) == {"content": content, "text": "one\ntwo"}
    assert tool_answer({"content": [], "structuredContent": {"a": 1}})["structured"] == {"a": 1}
    with refused(Code.DRIVER, "one"):
        tool_answer({"content": content, "isError": True})
    with refused(Code.DRIVER, "did not say why"):
        tool_answer({"isError": True})


def test_a_long_error_is_cut(monkeypatch):
    """And says how long it is."""
    monkeypatch.setattr(limits, "MCP_ERROR_MAX", 10)
    with refused(Code.DRIVER, "xxxxxxxxxx… (50 characters)"):
        tool_answer({"content": [{"type": "text", "text": "x" * 50}], "isError": True})


def test_documents_are_bytes():
    """Texts and binary ones, one after another; what is neither is the server's mistake."""
    blob = base64.b64encode(b"\0\xff").decode()
    assert document({"contents": [{"text": "é"}, {"blob": blob}]}, "x://a") == "é".encode() + b"\0\xff"
    assert document({"contents": []}, "x://a") == b""
    with pytest.raises(SyscallError, match="neither text nor base64"):
        document({"contents": [{"blob": "!"}]}, "x://a")


def test_prompts():
    """Their messages are given on; an empty text stands for no arguments."""
    assert prompt_answer({"messages": [1]}) == {"description": "", "messages": [1]}
    assert prompt_arguments([], " ", "p") == {}
    with refused(Code.INVALID, "p takes no argument 'x'; it takes no arguments"):
        prompt_arguments([], {"x": "y"}, "p")
