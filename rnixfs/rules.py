"""Rules of scenarios: conditions and actions, read from a file. The format is described in `scenario`."""

import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from rnixfs.errors import Code
from rnixfs.expressions import Expression, TemplateError
from rnixfs.filters import to_text
from rnixfs.patterns import RefusedError, clip, compile_pattern
from rnixfs.scene import Cue, CueCall, Scene
from rnixfs.templates import Template
from rnixfs.yamlread import Fields, ManifestError, Value, kind_of

NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
NAME_RIGHT = "letters, digits, dots, dashes and underscores"
DELAY_MS_MAX = 3_600_000  # milliseconds, an hour: the longest delay a rule can ask for
CALLS_MAX = 256  # calls of one reply

T = TypeVar("T")

# --- templates in a file ---

Maker = Callable[[Mapping[str, Any]], Any]
"""Makes a value of a file from the names of a scene."""


def _source(value: Value) -> tuple[str, int]:
    """A text and the line of its first line; the text of a block stands below the line of its `|`."""
    assert isinstance(value.data, str)
    return value.data, value.line + ("\n" in value.data)


def read_maker(value: Value, file: str) -> Maker:
    """A value of the file with templates in its texts.

    Raises:
        ManifestError: a template cannot be read.
    """
    if isinstance(value.data, str):
        return _read_with(lambda: Template(*_source(value)), file).value
    if isinstance(value.data, tuple):
        items = [read_maker(item, file) for item in value.data]
        return lambda names: [item(names) for item in items]
    if isinstance(value.data, dict):
        fields = {name: read_maker(entry.value, file) for name, entry in value.data.items()}
        return lambda names: _without_null({name: make(names) for name, make in fields.items()})
    data = value.data
    return lambda names: data


def _without_null(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _read_with(read: Callable[[], T], file: str, line: int = 0) -> T:
    """The same, with errors that name the file."""
    try:
        return read()
    except TemplateError as error:
        raise ManifestError(file, error.line, error.what, error.right) from None
    except RefusedError as error:
        raise ManifestError(file, line, error.what, error.right) from None


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    """A field whose value is made from the scene and then checked."""

    file: str
    line: int
    name: str
    make: Maker

    def refuse(self, what: str, right: str) -> ManifestError:
        return ManifestError(self.file, self.line, f"{self.name} {what}", right)

    def text(self, names: Mapping[str, Any]) -> str:
        return to_text(self.make(names))

    def number(self, names: Mapping[str, Any], most: float) -> float:
        value = self.make(names)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise self.refuse(f"worked out to {value!r:.60}", f"it must make a number from 0 to {most:g}")
        return value

    def fields(self, names: Mapping[str, Any]) -> dict[str, Any]:
        value = self.make(names)
        if not isinstance(value, dict):
            raise self.refuse(f"worked out to {value!r:.60}", "it must make an object")
        return value


def _field(fields: Fields, name: str) -> _Field | None:
    if name not in fields:
        return None
    make = read_maker(fields.entries[name].value, fields.file)
    return _Field(fields.file, fields.line_of(name), f"{fields.path}{name}", make)


# --- conditions ---

Condition = Callable[[Scene, Mapping[str, Any]], bool]
_TEXTS: dict[str, Callable[[Scene], str]] = {
    "intent": lambda scene: scene.intent,
    "system_prompt": lambda scene: scene.system_prompt,
    "last_tool": lambda scene: scene.last_tool,
    "last_result": lambda scene: scene.last_result,
}
_SLASHED = re.compile(r"/(.+)/(i?)", re.DOTALL)
_STEP = re.compile(r"(\d{1,6})(?:(\+)|-(\d{1,6}))?")


def _text_test(text: str) -> Callable[[str], bool]:
    if slashed := _SLASHED.fullmatch(text):
        pattern = compile_pattern(slashed[1], slashed[2])
        return lambda given: pattern.search(clip(given)) is not None
    wanted = text.casefold()
    return lambda given: wanted in given.casefold()


def _text_condition(fields: Fields, name: str) -> Condition:
    if isinstance(fields.entries[name].value.data, tuple):
        texts = fields.texts(name, limit=1000) or ()
    else:
        texts = (fields.text(name, limit=1000),)
    tests = [
        _read_with(functools.partial(_text_test, text), fields.file, fields.line_of(name)) for text in texts
    ]
    take = _TEXTS[name]
    return lambda scene, names: any(test(take(scene)) for test in tests)


def _step_condition(fields: Fields) -> Condition:
    value = fields.entries["step"].value
    found = _STEP.fullmatch(value.raw)
    if not found:
        raise fields.error("step", f"is {kind_of(value)} that is no step", "write 0, 2+ or 1-3")
    low = int(found[1])
    high = float("inf") if found[2] else int(found[3] or low)
    return lambda scene, names: low <= scene.step <= high


def _tools_condition(fields: Fields) -> Condition:
    wanted = frozenset(fields.texts("tools") or ())
    return lambda scene, names: wanted <= set(scene.tools)


def _if_condition(fields: Fields, name: str = "if") -> Callable[[Mapping[str, Any]], bool]:
    value = fields.entries[name].value
    if not isinstance(value.data, str):
        raise fields.error(name, f"is {kind_of(value)}", "write an expression, in quotes")
    expression = _read_with(lambda: Expression(*_source(value)), fields.file)
    return lambda names: bool(expression.value(names))


def read_conditions(fields: Fields | None) -> tuple[Condition, ...]:
    """The conditions under `when`.

    Raises:
        ManifestError: one of them cannot be read.
    """
    if fields is None:
        return ()
    fields.only([*_TEXTS, "step", "tools", "if"])
    found = [_text_condition(fields, name) for name in _TEXTS if name in fields]
    if "step" in fields:
        found.append(_step_condition(fields))
    if "tools" in fields:
        found.append(_tools_condition(fields))
    if "if" in fields:
        expression = _if_condition(fields)
        found.append(lambda scene, names: expression(names))
    return tuple(found)


# --- actions ---


@dataclasses.dataclass(frozen=True, slots=True)
class _Call:
    tool: _Field
    arguments: _Field | None
    name: str
    holds: Callable[[Mapping[str, Any]], bool]

    def make(self, names: Mapping[str, Any]) -> CueCall:
        tool = self.tool.text(names).strip()
        if not tool:
            raise self.tool.refuse("worked out to nothing", "it must make the name of a tool")
        return CueCall(tool, self.arguments.fields(names) if self.arguments else {}, self.name)


def _call(fields: Fields) -> _Call:
    fields.only(["tool", "arguments", "as", "if"])
    fields.need("tool", "the tool's name")
    tool = _field(fields, "tool")
    assert tool is not None
    name = fields.text("as", pattern=r"[A-Za-z]\w*", right="a word of letters, digits and underscores")
    holds = _if_condition(fields) if "if" in fields else lambda names: True
    return _Call(tool, _field(fields, "arguments"), name, holds)


def _calls(fields: Fields) -> Callable[[Mapping[str, Any]], Iterator[CueCall]]:
    if "calls" not in fields:
        return lambda names: iter(())
    if isinstance(fields.entries["calls"].value.data, str):
        made = _field(fields, "calls")
        assert made is not None
        return lambda names: _calls_from(made, names)
    calls = [_call(entry) for entry in fields.mappings("calls")]
    return lambda names: (call.make(names) for call in calls if call.holds(names))


def _calls_from(field: _Field, names: Mapping[str, Any]) -> Iterator[CueCall]:
    """Calls that a template made."""
    values = field.make(names)
    right = 'it must make a list such as [{"tool": "shell", "arguments": {"command": "ls"}}]'
    if not isinstance(values, list) or len(values) > CALLS_MAX:
        raise field.refuse(f"worked out to {values!r:.60}", f"{right}, of at most {CALLS_MAX}")
    for value in values:
        arguments = value.get("arguments", {}) if isinstance(value, dict) else None
        if not isinstance(arguments, dict) or not isinstance(value.get("tool"), str):
            raise field.refuse(f"holds {value!r:.60}", right)
        yield CueCall(value["tool"], arguments)


@dataclasses.dataclass(frozen=True, slots=True)
class _Failure:
    code: _Field
    message: _Field | None

    def make(self, names: Mapping[str, Any]) -> tuple[Code, str]:
        code = self.checked(self.code.text(names))
        return code, self.message.text(names) if self.message else "the scenario says so"

    def checked(self, word: str) -> Code:
        found = Code.__members__.get(word.strip().upper())
        if found is None:
            raise self.code.refuse(f"is {word!r:.60}", f"the codes are {', '.join(Code.__members__)}")
        return found


def _failure(fields: Fields | None) -> _Failure | None:
    if fields is None:
        return None
    fields.only(["code", "message"])
    value = fields.need("code", "DRIVER")
    code = _field(fields, "code")
    assert code is not None
    failure = _Failure(code, _field(fields, "message"))
    if "{" not in value.raw:
        failure.checked(value.raw)
    return failure


_ACTIONS = ("say", "calls", "fail")
_NUMBERS = {"delay_ms": DELAY_MS_MAX, "word_delay_ms": DELAY_MS_MAX, "cost_usd": 1e6}
_TOKENS = {"input": 10**9, "output": 10**9}


def _numbers(fields: Fields | None, most: Mapping[str, float]) -> dict[str, _Field]:
    if fields is None:
        return {}
    return {name: field for name in most if (field := _field(fields, name)) is not None}


class Rule:
    """One rule of a scenario.

    Args:
        fields: the rule in its file.

    Raises:
        ManifestError: it cannot be read.
    """

    def __init__(self, fields: Fields) -> None:
        fields.only(["name", "help", "when", *_ACTIONS, *_NUMBERS, "tokens"])
        if not any(name in fields for name in _ACTIONS):
            raise fields.error("say", "is missing", f"a rule needs one of {', '.join(_ACTIONS)}")
        self.name = fields.text("name", pattern=NAME, right=NAME_RIGHT) or f"line-{fields.line}"
        self.help = fields.text("help")
        self._conditions = read_conditions(fields.mapping("when"))
        self._say = _field(fields, "say")
        self._calls = _calls(fields)
        self._failure = _failure(fields.mapping("fail"))
        self._numbers = _numbers(fields, _NUMBERS)
        tokens = fields.mapping("tokens")
        if tokens is not None:
            tokens.only(_TOKENS)
        self._tokens = _numbers(tokens, _TOKENS)

    def holds(self, scene: Scene, names: Mapping[str, Any]) -> bool:
        """Whether all its conditions hold."""
        return all(condition(scene, names) for condition in self._conditions)

    def play(self, scenario: str, names: Mapping[str, Any]) -> Cue:
        """What it says to do, in a scene in which it holds."""
        numbers = {name: field.number(names, _NUMBERS[name]) for name, field in self._numbers.items()}
        tokens = {name: int(field.number(names, _TOKENS[name])) for name, field in self._tokens.items()}
        return Cue(
            scenario,
            self.name,
            say=self._say.text(names) if self._say else "",
            calls=tuple(self._calls(names)),
            failure=self._failure.make(names) if self._failure else None,
            delay_ms=numbers.get("delay_ms", 0),
            word_delay_ms=numbers.get("word_delay_ms", 0),
            input_tokens=tokens.get("input"),
            output_tokens=tokens.get("output"),
            cost_usd=numbers.get("cost_usd", 0.0),
        )
