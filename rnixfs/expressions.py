"""Expressions of templates: words, then functions of a scope. The language is described in `templates`."""

import dataclasses
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from rnixfs import filters
from rnixfs.patterns import RefusedError, compile_pattern

STEPS_MAX = 200_000  # parts of a template that may be worked out in one rendering
STEP_SIZE = 64  # characters or items that a filter looks through for the price of one part
DEPTH_MAX = 40  # brackets and blocks inside each other
WORDS_MAX = 300  # words of one expression or tag; the work nests as deep as a chain of filters is long


class TemplateError(ValueError):
    """A template that cannot be read or worked out.

    Args:
        line: where, from the first line of its file (or of the template) as 1.
        what: what is wrong.
        right: what would be right.
    """

    def __init__(self, line: int, what: str, right: str) -> None:
        super().__init__(f"line {line}: {what}; {right}")
        self.line = line
        self.what = what
        self.right = right


class MissingError(TemplateError):
    """A name, field or index that is not there; the filter `default` takes its place."""


@dataclasses.dataclass(slots=True)
class Scope:
    """What one working out may name and spend.

    Args:
        names: the values by name.
        left: parts that may still be worked out.
        room: characters that may still be written.
    """

    names: dict[str, Any]
    left: int = STEPS_MAX
    room: int = filters.TEXT_MAX

    def step(self, line: int, size: int = 0) -> None:
        """Pay for one part, and for the characters or items that it looks through."""
        self.left -= 1 + size // STEP_SIZE
        if self.left < 0:
            what = f"the template takes more than {STEPS_MAX} steps"
            raise TemplateError(line, what, "use shorter lists: take(n)")

    def name(self, name: str, value: object) -> None:
        """Add or replace a name."""
        self.names = {**self.names, name: value}


Eval = Callable[[Scope], Any]
"""An expression that was read."""


# --- words ---

_TOKEN = re.compile(
    r"\s+|(?P<number>-?\d+(?:\.\d+)?)|(?P<name>[A-Za-z_]\w*)"
    r"""|(?P<text>"(?:[^"\\\n]|\\.)*+"|'(?:[^'\\\n]|\\.)*+')"""
    r"|(?P<pattern>/(?:[^/\\\n]|\\.)++/i?)|(?P<op>%\}|\}\}|==|!=|<=|>=|[<>|.,()\[\]=])"
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t"}


@dataclasses.dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int
    end: int


class Words:
    """The tokens of one expression or tag; reads until the mark that closes it."""

    def __init__(self, source: str, start: int, line: int) -> None:
        self.source = source
        self.line = line
        self.position = start
        self.taken = 0
        self.token = self._next()

    def _next(self) -> _Token:
        while self.position < len(self.source):
            found = _TOKEN.match(self.source, self.position)
            if found is None:
                what = f"{self.source[self.position]!r} means nothing here"
                raise TemplateError(self.line, what, "write a name or a text in quotes")
            self.position = found.end()
            if found.lastgroup:
                return _Token(found.lastgroup, found[0], self.line, found.end())
            self.line += found[0].count("\n")
        return _Token("end", "", self.line, self.position)

    def take(self) -> _Token:
        """The token, going on to the next one; the mark that closes is never passed."""
        token = self.token
        self.taken += 1
        if self.taken > WORDS_MAX:
            what = f"an expression has more than {WORDS_MAX} words"
            raise TemplateError(token.line, what, "split it with set")
        self.token = self._next() if token.kind != "end" and token.text not in ("}}", "%}") else token
        return token

    def at(self, *texts: str) -> bool:
        """Whether one of these operators or names comes next."""
        return self.token.kind in ("op", "name") and self.token.text in texts

    def skip(self, *texts: str) -> bool:
        """Take the next token if it is one of these."""
        if self.at(*texts):
            self.take()
            return True
        return False

    def expect(self, text: str) -> _Token:
        """Take the next token, which must be this one."""
        if not self.at(text):
            raise self.refuse(f"write {text}")
        return self.take()

    def name(self, what: str) -> str:
        """Take a name; `what` says which one is wanted."""
        if self.token.kind != "name":
            raise self.refuse(f"write {what}")
        return self.take().text

    def refuse(self, right: str) -> TemplateError:
        """An error about the next token."""
        found = f"{self.token.text!r} stands" if self.token.text else "the end stands"
        return TemplateError(self.token.line, f"{found} in the wrong place", right)


# --- expressions ---

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda left, right: left in right,
}
_CONSTANTS = {"true": True, "false": False, "null": None}


class Expressions:
    """Turns words into functions of a scope."""

    def __init__(self, words: Words) -> None:
        self.words = words
        self.depth = 0

    def either(self) -> Eval:
        """A whole expression."""
        self.depth += 1
        if self.depth > DEPTH_MAX:
            right = f"at most {DEPTH_MAX} levels are taken"
            raise TemplateError(self.words.line, "brackets are nested too deep", right)
        parts = [self.both()]
        while self.words.skip("or"):
            parts.append(self.both())
        self.depth -= 1
        return parts[0] if len(parts) == 1 else lambda scope: any(part(scope) for part in parts)

    def both(self) -> Eval:
        parts = [self.negated()]
        while self.words.skip("and"):
            parts.append(self.negated())
        return parts[0] if len(parts) == 1 else lambda scope: all(part(scope) for part in parts)

    def negated(self) -> Eval:
        negations = 0
        while self.words.skip("not"):
            negations += 1
        inner = self.compared()
        if not negations:
            return inner
        return lambda scope: bool(inner(scope)) is (negations % 2 == 0)

    def compared(self) -> Eval:
        left = self.piped()
        if not self.words.at(*_COMPARE):
            return left
        word = self.words.take()
        return _comparison(word, left, self.piped())

    def piped(self) -> Eval:
        value = self.value()
        while self.words.skip("|"):
            value = self.filter(value)
        return value

    def filter(self, value: Eval) -> Eval:
        line = self.words.token.line
        name = self.words.name("the name of a filter")
        if name not in filters.FILTERS:
            right = f"the filters are {', '.join(filters.FILTERS)}"
            raise TemplateError(line, f"there is no filter {name!r}", right)
        arguments = self.sequence(")") if self.words.skip("(") else []
        least, most = filters.arguments_of(name)
        if not least <= len(arguments) <= most:
            wanted = f"{least}" if least == most else f"{least} to {most}"
            raise TemplateError(line, f"{name} is given {len(arguments)} arguments", f"it takes {wanted}")
        return _filtered(name, line, value, arguments)

    def sequence(self, closing: str) -> list[Eval]:
        found: list[Eval] = []
        while not self.words.skip(closing):
            if found:
                self.words.expect(",")
            found.append(self.either())
        return found

    def value(self) -> Eval:
        value = self.primary()
        while True:
            line = self.words.token.line
            if self.words.skip("."):
                field = self.words.name("the name of a field")
                value = _looked_up(value, _fixed(field), line)
            elif self.words.skip("["):
                index = self.either()
                self.words.expect("]")
                value = _looked_up(value, index, line)
            else:
                return value

    def primary(self) -> Eval:
        if self.words.skip("("):
            inner = self.either()
            self.words.expect(")")
            return inner
        if self.words.skip("["):
            items = self.sequence("]")
            return lambda scope: [item(scope) for item in items]
        if self.words.token.kind == "name":
            return _named(self.words.take())
        return self.constant()

    def constant(self) -> Eval:
        token = self.words.token
        if token.kind not in ("number", "text", "pattern"):
            raise self.words.refuse("write a name, a text in quotes, a number, a list or a /pattern/")
        return _fixed(_constant(self.words.take()))


def _fixed(value: object) -> Eval:
    return lambda scope: value


def _constant(token: _Token) -> Any:
    if token.kind == "number":
        return float(token.text) if "." in token.text else int(token.text)
    if token.kind == "text":
        return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), token.text[1:-1])
    body, _, flags = token.text[1:].rpartition("/")
    try:
        return compile_pattern(body.replace("\\/", "/"), flags)
    except RefusedError as error:
        raise TemplateError(token.line, error.what, error.right) from None


def _named(token: _Token) -> Eval:
    name, line = token.text, token.line
    if name in _CONSTANTS:
        return _fixed(_CONSTANTS[name])

    def look(scope: Scope) -> Any:
        scope.step(line)
        if name not in scope.names:
            right = f"the names are {', '.join(sorted(scope.names))}"
            raise MissingError(line, f"there is no name {name!r}", right)
        return scope.names[name]

    return look


def _comparison(word: _Token, left: Eval, right: Eval) -> Eval:
    compare = _COMPARE[word.text]

    def evaluate(scope: Scope) -> bool:
        scope.step(word.line)
        one, other = left(scope), right(scope)
        try:
            return bool(compare(one, other))
        except TypeError:
            kinds = f"{filters.kind_of(one)} and {filters.kind_of(other)}"
            what = f"{word.text} cannot compare {kinds}"
            raise TemplateError(word.line, what, "compare like with like") from None

    return evaluate


def _filtered(name: str, line: int, value: Eval, arguments: list[Eval]) -> Eval:
    def evaluate(scope: Scope) -> Any:
        try:
            given = value(scope)
        except MissingError:
            if name != "default":
                raise
            given = None
        scope.step(line, len(given) if isinstance(given, str | list | dict) else 0)
        try:
            return filters.apply(name, given, [argument(scope) for argument in arguments])
        except RefusedError as error:
            raise TemplateError(line, f"{name}: {error.what}", error.right) from None

    return evaluate


def _looked_up(holder: Eval, index: Eval, line: int) -> Eval:
    def evaluate(scope: Scope) -> Any:
        scope.step(line)
        return _look(holder(scope), index(scope), line)

    return evaluate


def _look(held: Any, key: Any, line: int) -> Any:
    if isinstance(held, dict) and isinstance(key, str):
        if key in held:
            return held[key]
        right = f"the fields are {', '.join(map(str, held))[:500]}"
        raise MissingError(line, f"there is no field {key!r}", right)
    if isinstance(held, list) and isinstance(key, int):
        if -len(held) <= key < len(held):
            return held[key]
        raise MissingError(line, f"there is no item {key}", f"the list has {len(held)} items, the first is 0")
    what = f"{filters.kind_of(held)} has no {'field' if isinstance(key, str) else 'item'} {key!r}"
    raise MissingError(line, what, "only objects have fields and only lists have items")


class Expression:
    """One expression without brackets around it, as conditions have it.

    Args:
        source: its text.
        line: the line of its file, for messages.

    Raises:
        TemplateError: it cannot be read.
    """

    def __init__(self, source: str, line: int = 1) -> None:
        words = Words(source, 0, line)
        self._evaluate = Expressions(words).either()
        if words.token.kind != "end":
            raise words.refuse("end the expression here")

    def value(self, names: Mapping[str, Any]) -> Any:
        """What it stands for.

        Raises:
            TemplateError: it asks for what is not there, or does too much.
        """
        return self._evaluate(Scope(dict(names)))
