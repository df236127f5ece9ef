"""YAML in which every value knows its line. `yamlread` has the strict reader for it.

The text is taken event by event, so that depth and size are bounded before anything is built. Plain words
mean what YAML 1.2's core schema says: `no`, `on` and `12:30` are text, only `true` and `false` are flags.
Tags, merge keys and second documents are refused: configuration needs none of them.
"""

import dataclasses
import difflib
import re
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import yaml

from rnixfs import limits
from rnixfs.errors import Code, SyscallError


class ManifestError(Exception):
    """A configuration file that cannot be taken as it is.

    Args:
        file: the file, as the user would name it.
        line: from 1.
        what: what is wrong there.
        right: what would be right.
    """

    def __init__(self, file: str, line: int, what: str, right: str) -> None:
        super().__init__(file, line, what, right)
        self.file = file
        self.line = line
        self.what = what
        self.right = right

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}; {self.right}"

    def as_syscall_error(self) -> SyscallError:
        """The same as a failed system call (INVALID)."""
        return SyscallError(Code.INVALID, str(self), device=self.file)


class Bounds(NamedTuple):
    """How much a file may hold.

    Args:
        characters: of its text.
        values: in it, those that aliases repeat included.
        items: of one list.
    """

    characters: int = limits.CONFIG_FILE_MAX
    values: int = limits.YAML_NODES_MAX
    items: int = limits.MANIFEST_ITEMS_MAX


USUAL = Bounds()


class Entry(NamedTuple):
    """One field of a mapping: the line of its name, and its value."""

    line: int
    value: "Value"


Scalar = str | int | float | bool | None


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """One value of a file.

    Args:
        line: where it starts, from 1.
        data: the scalar, the items of a list, or the fields of a mapping.
        raw: a scalar as it is written.
        nodes: values in it, itself and repetitions by alias included.
    """

    line: int
    data: Scalar | tuple["Value", ...] | dict[str, Entry]
    raw: str = ""
    nodes: int = 1


def kind_of(value: Value) -> str:
    """What a value is, in words for an error message."""
    match value.data:
        case None:
            return "empty"
        case bool():
            return "true or false"
        case int():
            return "a whole number"
        case float():
            return "a number"
        case str():
            return "text"
        case tuple():
            return "a list"
        case _:
            return "a mapping"


def clip(text: str, most: int = 60) -> str:
    """A text short enough for a message, quoted."""
    return repr(text if len(text) <= most else text[: most - 1] + "…")


def nearest(name: str, names: Collection[str]) -> str:
    """` (did you mean …?)` when one of the names is close, else nothing."""
    if len(name) > limits.NAME_MAX:
        return ""
    close = difflib.get_close_matches(name, sorted(names), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


# --- from text to values ---

_NULL = re.compile(r"(?:~|null|Null|NULL)?")
_BOOL = re.compile(r"(true|True|TRUE)|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]{1,40}")
_BASED = re.compile(r"0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
# What an escape can smuggle in and no terminal, file name or UTF-8 text should get.
_UNFIT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]")


def fits(text: str) -> bool:
    """Whether a value may hold this text."""
    return _UNFIT.search(text) is None


_TEXT_TAGS = ("!", "tag:yaml.org,2002:str")


def plain(raw: str) -> Scalar:
    """What an unquoted word means."""
    if _NULL.fullmatch(raw):
        return None
    if flag := _BOOL.fullmatch(raw):
        return flag[1] is not None
    if _INT.fullmatch(raw):
        return int(raw)
    if _BASED.fullmatch(raw):
        return int(raw, 0)
    if _FLOAT.fullmatch(raw):
        return float(raw)
    if _SPECIAL.fullmatch(raw):
        return float(raw.replace(".", ""))
    return raw


class _Composer:
    """Builds values from the parser's events."""

    def __init__(self, events: Iterator[yaml.Event], file: str, before: int, most: int) -> None:
        self.events = events
        self.file = file
        self.before = before
        self.most = most
        self.anchors: dict[str, Value] = {}
        self.nodes = 0

    def document(self) -> Value:
        """The only document of the text; an empty text is an empty value."""
        found: Value | None = None
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                if found is not None:
                    raise self.refuse(event, "a second document starts here", "keep one document in the file")
                found = self.value(next(self.events), 0)
        return found or Value(self.before + 1, None)

    def value(self, event: yaml.Event, depth: int) -> Value:
        if depth > limits.YAML_DEPTH_MAX:
            most = f"at most {limits.YAML_DEPTH_MAX} levels are taken"
            raise self.refuse(event, "lists and mappings are nested too deep", most)
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event)
        made = self.anchored(event, depth)
        if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            self.anchors[event.anchor] = made
        return made

    def anchored(self, event: yaml.Event, depth: int) -> Value:
        self.count(event, 1)
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event)
        if tag := getattr(event, "tag", None):
            raise self.refuse(event, f"the tag {clip(tag)} is unknown", "remove the tag")
        if isinstance(event, yaml.SequenceStartEvent):
            return self.sequence(event, depth)
        return self.mapping(event, depth)

    def scalar(self, event: yaml.ScalarEvent) -> Value:
        if event.tag is not None and event.tag not in _TEXT_TAGS:
            raise self.refuse(event, f"the tag {clip(event.tag)} is unknown", "remove the tag")
        raw: str = event.value
        if found := _UNFIT.search(raw):
            what = f"a text holds the character U+{ord(found[0]):04X}"
            raise self.refuse(event, what, "remove it; only printable text is taken")
        is_plain = not event.style and event.tag is None
        return Value(self.line(event), plain(raw) if is_plain else raw, raw)

    def sequence(self, start: yaml.Event, depth: int) -> Value:
        items: list[Value] = []
        for event in self.events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            items.append(self.value(event, depth + 1))
        return Value(self.line(start), tuple(items), nodes=1 + sum(item.nodes for item in items))

    def mapping(self, start: yaml.Event, depth: int) -> Value:
        fields: dict[str, Entry] = {}
        for event in self.events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            name = self.field_name(event, depth)
            if name in fields:
                what = f"{clip(name)} is given twice, first in line {fields[name].line}"
                raise self.refuse(event, what, "keep one of the two")
            fields[name] = Entry(self.line(event), self.value(next(self.events), depth + 1))
        return Value(self.line(start), fields, nodes=1 + sum(entry.value.nodes for entry in fields.values()))

    def field_name(self, event: yaml.Event, depth: int) -> str:
        key = self.value(event, depth + 1)
        if not isinstance(key.data, str):
            what = f"a field's name is {kind_of(key)}"
            raise self.refuse(event, what, "write a word, in quotes if need be")
        return key.data

    def alias(self, event: yaml.AliasEvent) -> Value:
        found = self.anchors.get(event.anchor or "")
        if found is None:
            what = f"*{event.anchor} stands for nothing that is complete above this line"
            raise self.refuse(event, what, f"mark a value above with &{event.anchor}, or write it out")
        self.count(event, found.nodes)
        return found

    def count(self, event: yaml.Event, nodes: int) -> None:
        self.nodes += nodes
        if self.nodes > self.most:
            most = f"at most {self.most} are taken, repetitions by alias included"
            raise self.refuse(event, "the file holds too many values", most)

    def line(self, event: yaml.Event) -> int:
        return self.before + 1 + (event.start_mark.line if event.start_mark else 0)

    def refuse(self, event: yaml.Event, what: str, right: str) -> ManifestError:
        return ManifestError(self.file, self.line(event), what, right)


# The parser in C has other words for mistakes, but takes 0.3 s where the one in Python takes 10 s.
_FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def compose(text: str, file: str, before: int = 0, bounds: Bounds = USUAL) -> Value:
    """The value that a text is.

    Args:
        text: the text.
        file: its name, for messages.
        before: lines of the file that stand before the text.
        bounds: how much it may hold.

    Raises:
        ManifestError: with the line, and nothing else whatever the text.
    """
    if len(text) > bounds.characters:
        right = f"at most {bounds.characters} are taken"
        raise ManifestError(file, before + 1, f"the text has {len(text)} characters", right)
    try:
        loader = yaml.SafeLoader if len(text) <= limits.CONFIG_FILE_MAX else _FAST
        composer = _Composer(yaml.parse(text, Loader=loader), file, before, bounds.values)
        return composer.document()
    except yaml.MarkedYAMLError as error:
        raise _syntax(error, file, before) from None
    except yaml.reader.ReaderError as error:
        line = before + 1 + text.count("\n", 0, error.position)
        what = f"the character U+{_number(error.character):04X} is not allowed in YAML"
        raise ManifestError(file, line, what, "remove it") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # The scanner lets chr() and int() fail on escapes and directives with absurd numbers.
        what = f"not YAML: {error}"
        raise ManifestError(file, before + 1, what, "correct the escape or directive") from None


def _number(character: object) -> int:
    return character if isinstance(character, int) else ord(str(character)[:1] or "\0")


def _syntax(error: yaml.MarkedYAMLError, file: str, before: int) -> ManifestError:
    mark = error.problem_mark or error.context_mark
    line = before + 1 + (mark.line if mark else 0)
    while_doing = f" {error.context}" if error.context else ""
    if error.context_mark and error.context_mark.line != (mark.line if mark else 0):
        while_doing += f", begun in line {before + 1 + error.context_mark.line}"
    what = f"not YAML: {error.problem or 'it cannot be read'}{while_doing}"
    right = f"look at column {mark.column + 1}" if mark else "correct the line"
    right += "; text with : # { [ or quotes in it needs quotes around it"
    return ManifestError(file, line, what, right)
