"""A small template language over JSON values, for scenarios.

    {{ results[0].files }} files{% if results[0].truncated %} (list cut){% endif %}
    {% for entry in results[0].by_extension | items %}
    {{ entry.key }}: {{ entry.value }}
    {% endfor %}

An expression is a name, text, number, /pattern/, list, `true`, `false` or `null`, with `.field`, `[index]`
and `| filter(arguments)` behind it, compared by `== != < <= > >= in` and joined by `and`, `or`, `not`.
`{% set name = expression %}` gives a name to a value. A line that holds nothing but a `{% tag %}` leaves no
line behind; `{# a comment #}` leaves nothing. There is no way to call Python from it, and both the work and
the text made are bounded.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from rnixfs import filters
from rnixfs.expressions import DEPTH_MAX, Eval, Expressions, Scope, TemplateError, Words

_Emit = Callable[[Scope, list[str]], None]

_OPENING = re.compile(r"\{\{|\{%|\{#")
# A tag or comment that stands alone in a line takes the line with it.
_LINE_AFTER = re.compile(r"[ \t]*(?:\n|\Z)")


class _Blocks:
    """Turns a template into functions that write to a list."""

    def __init__(self, source: str, line: int) -> None:
        self.source = source
        self.first_line = line
        self.position = 0
        self.depth = 0

    def line(self, position: int) -> int:
        return self.first_line + self.source.count("\n", 0, position)

    def block(self, *ends: str) -> tuple[list[_Emit], str]:
        """Everything up to one of the end tags, and which one it was ("" for the end of the template)."""
        parts: list[_Emit] = []
        while found := _OPENING.search(self.source, self.position):
            self.literal(parts, found)
            if found[0] == "{#":
                self.comment(found.start())
            elif found[0] == "{{":
                parts.append(self.printed(found.start()))
            elif (tag := self.tag(found.start(), parts, ends)) in ends:
                return parts, tag
        if ends:
            right = f"close the block with {{% {ends[-1]} %}}"
            raise TemplateError(self.line(len(self.source)), "a block is not closed", right)
        parts.append(_literal(self.source[self.position :], self.line(self.position)))
        self.position = len(self.source)
        return parts, ""

    def literal(self, parts: list[_Emit], found: re.Match[str]) -> None:
        text = self.source[self.position : found.start()]
        if found[0] != "{{" and self.alone(found):
            text = text.rstrip(" \t")
        if text:
            parts.append(_literal(text, self.line(self.position)))

    def alone(self, found: re.Match[str]) -> bool:
        """Whether nothing but this tag stands in its line."""
        start = self.source.rfind("\n", 0, found.start()) + 1
        if self.source[start : found.start()].strip(" \t"):
            return False
        closing = "#}" if found[0] == "{#" else "%}"
        end = self.source.find(closing, found.end())
        return end >= 0 and _LINE_AFTER.match(self.source, end + 2) is not None

    def leave(self, start: int, end: int) -> None:
        """Go on behind a tag, and behind the end of the line if the tag stands alone in it."""
        line_start = self.source.rfind("\n", 0, start) + 1
        rest = _LINE_AFTER.match(self.source, end)
        whole = rest is not None and not self.source[line_start:start].strip(" \t")
        self.position = rest.end() if rest and whole else end

    def comment(self, start: int) -> None:
        end = self.source.find("#}", start)
        if end < 0:
            raise TemplateError(self.line(start), "a comment is not closed", "close it with #}")
        self.leave(start, end + 2)

    def printed(self, start: int) -> _Emit:
        words = Words(self.source, start + 2, self.line(start))
        value = Expressions(words).either()
        self.position = words.expect("}}").end
        return _printed(value, self.line(start))

    def tag(self, start: int, parts: list[_Emit], ends: tuple[str, ...]) -> str:
        words = Words(self.source, start + 2, self.line(start))
        name = words.name("if, for or set")
        line = self.line(start)
        if name in ends:
            self.leave(start, words.expect("%}").end)
        elif name == "set":
            parts.append(self.assignment(words))
            self.leave(start, words.expect("%}").end)
        elif name == "if":
            parts.append(self.branch(start, words))
        elif name == "for":
            parts.append(self.loop(start, words))
        else:
            right = f"close with {ends[-1]} first" if ends else "the tags for this place are if, for and set"
            raise TemplateError(line, f"the tag {name!r} stands in the wrong place", right)
        return name

    def assignment(self, words: Words) -> _Emit:
        name = words.name("the name to set")
        words.expect("=")
        value = Expressions(words).either()
        return lambda scope, out: scope.name(name, value(scope))

    def deeper(self, line: int) -> None:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise TemplateError(line, "blocks are nested too deep", f"at most {DEPTH_MAX} levels")

    def branch(self, start: int, words: Words) -> _Emit:
        self.deeper(self.line(start))
        condition = Expressions(words).either()
        self.leave(start, words.expect("%}").end)
        then, end = self.block("else", "endif")
        otherwise = self.block("endif")[0] if end == "else" else []
        self.depth -= 1
        return lambda scope, out: _run(then if condition(scope) else otherwise, scope, out)

    def loop(self, start: int, words: Words) -> _Emit:
        line = self.line(start)
        self.deeper(line)
        name = words.name("the name of the loop's variable")
        words.expect("in")
        items = Expressions(words).either()
        self.leave(start, words.expect("%}").end)
        body = self.block("endfor")[0]
        self.depth -= 1
        return _repeated(name, items, body, line)


def _literal(text: str, line: int) -> _Emit:
    return lambda scope, out: _write(text, line, scope, out)


def _write(text: str, line: int, scope: Scope, out: list[str]) -> None:
    scope.room -= len(text)
    if scope.room < 0:
        right = "use shorter lists: take(n), or clip(n)"
        raise TemplateError(line, f"the text grows beyond {filters.TEXT_MAX} characters", right)
    out.append(text)


def _printed(value: Eval, line: int) -> _Emit:
    return lambda scope, out: _write(filters.to_text(value(scope)), line, scope, out)


def _run(parts: list[_Emit], scope: Scope, out: list[str]) -> None:
    for part in parts:
        part(scope, out)


def _repeated(name: str, items: Eval, body: list[_Emit], line: int) -> _Emit:
    def emit(scope: Scope, out: list[str]) -> None:
        values = items(scope)
        if not isinstance(values, list):
            right = "use items for an object, lines for text"
            raise TemplateError(line, f"for takes a list, not {filters.kind_of(values)}", right)
        outer = scope.names
        for value in values:
            scope.step(line)
            scope.names = {**outer, name: value}
            _run(body, scope, out)
        scope.names = outer

    return emit


class Template:
    """A template that was read and can be worked out any number of times.

    Args:
        source: its text.
        line: the line of its file in which it starts, for messages.

    Raises:
        TemplateError: it cannot be read.
    """

    def __init__(self, source: str, line: int = 1) -> None:
        self.source = source
        self._parts = _Blocks(source, line).block()[0]
        self._single = _single(source, line)

    def render(self, names: Mapping[str, Any]) -> str:
        """The text that it makes.

        Args:
            names: the values that it may name: JSON values only.

        Raises:
            TemplateError: it asks for what is not there, or does too much.
        """
        out: list[str] = []
        _run(self._parts, Scope(dict(names)), out)
        return "".join(out)

    def value(self, names: Mapping[str, Any]) -> Any:
        """What it stands for: the value itself where it is one `{{ expression }}`, else its text.

        Raises:
            TemplateError: as `render`.
        """
        return self._single(Scope(dict(names))) if self._single else self.render(names)


def _single(source: str, line: int) -> Eval | None:
    text = source.strip()
    if not text.startswith("{{"):
        return None
    words = Words(text, 2, line)
    value = Expressions(words).either()
    return value if words.expect("}}").end == len(text) else None
