"""Patterns of file names, as bash has them with `globstar`, matched one name at a time.

`*`, `?` and `[…]` match within a name, `**` as a whole name matches any number of folders, `{a,b}` stands for
several patterns, `\\` takes away a meaning. A name that begins with a dot is only matched by a pattern that
begins with one. Three differences from bash: `a/**` does not give `a/` itself, links to folders are not
entered, and `.git` is only matched by its full name. With `everything`, no name is special.

A pattern is walked like a state machine, so a search enters only folders that can still match.
"""

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator

from rnixfs import limits
from rnixfs.errors import invalid

States = frozenset[tuple[int, int]]
"""How far each alternative has come: (alternative, names matched)."""

_MAGIC = re.compile(r"(?<!\\)(?:\\\\)*[*?\[]")
_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\s",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}


@dataclasses.dataclass(frozen=True)
class _Part:
    """What one name must be; None for `**`."""

    match: Callable[[str], object] | None
    dotted: bool = False
    literal: str | None = None


@dataclasses.dataclass(frozen=True)
class Pattern:
    """A compiled pattern.

    Args:
        parts: for each alternative, what each name must be.
        folders_only: for each alternative, whether it ended with `/`.
        everything: whether names with a dot and `.git` are like others.
    """

    parts: tuple[tuple[_Part, ...], ...]
    folders_only: tuple[bool, ...]
    everything: bool

    def start(self) -> States:
        """Where every alternative begins."""
        return frozenset(state for which in range(len(self.parts)) for state in self._here(which, 0))

    def step(self, states: States, name: str) -> States:
        """What is left after one more name; empty if nothing below it can match."""
        found: set[tuple[int, int]] = set()
        for which, index in states:
            parts = self.parts[which]
            if index == len(parts):
                continue
            part = parts[index]
            if part.match is None:
                if self._visible(part, name):
                    found.update(self._here(which, index))
            elif self._visible(part, name) and part.match(name):
                found.update(self._here(which, index + 1))
        return frozenset(found)

    def done(self, states: States, folder: bool) -> bool:
        """Whether a path that led to these states matches."""
        return any(
            index == len(self.parts[which]) and (folder or not self.folders_only[which])
            for which, index in states
        )

    def open(self, states: States) -> bool:
        """Whether something below can still match."""
        return any(index < len(self.parts[which]) for which, index in states)

    def matches(self, path: str, folder: bool = False) -> bool:
        """Whether a relative path matches as a whole."""
        states = self.start()
        for name in path.split("/"):
            states = self.step(states, name)
        return self.done(states, folder)

    def _here(self, which: int, index: int) -> Iterator[tuple[int, int]]:
        """A state and those that `**` leads to by matching no name at all."""
        parts = self.parts[which]
        yield which, index
        while index < len(parts) and parts[index].match is None:
            index += 1
            yield which, index

    def _visible(self, part: _Part, name: str) -> bool:
        if self.everything or not name.startswith("."):
            return True
        return part.dotted and (name != ".git" or part.literal == name)


def compile_glob(pattern: str, *, everything: bool = False) -> Pattern:
    """Compile a relative pattern.

    Raises:
        SyscallError: INVALID for an empty, absolute or too long one, for `..`, and for too many alternatives.
    """
    _check(pattern)
    alternatives = tuple(dict.fromkeys(_braces(pattern)))
    return Pattern(
        tuple(_parts(one) for one in alternatives),
        tuple(one.endswith("/") for one in alternatives),
        everything,
    )


def split_base(pattern: str) -> tuple[str, str]:
    """Take the leading names without magic from a pattern that is absolute or begins with `..`.

    Returns:
        The folder to search from ("" for the usual one), and the pattern that is left.
    """
    _check(pattern)
    if not pattern.startswith("/") and pattern.split("/")[0] != "..":
        return "", pattern
    names = pattern.split("/")
    count = 0
    while count < len(names) - 1 and not _MAGIC.search(names[count]) and "{" not in names[count]:
        count += 1
    return "/".join(_plain(name) for name in names[:count]) or "/", "/".join(names[count:])


def _check(pattern: str) -> None:
    if not pattern or len(pattern) > limits.PATTERN_MAX or "\0" in pattern:
        raise invalid(f"a pattern has 1 to {limits.PATTERN_MAX} characters and no NUL")


def _parts(pattern: str) -> tuple[_Part, ...]:
    if pattern.startswith("/"):
        raise invalid(f"this pattern must be relative to the folder searched: {pattern}")
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if ".." in names:
        raise invalid(f"a pattern cannot climb with .. behind a name: {pattern}; give the folder as path")
    if not names:
        raise invalid(f"a pattern must match a name: {pattern!r}")
    parts: list[_Part] = []
    for name in names:
        if name != "**":
            parts.append(_part(name))
        elif not parts or parts[-1].match is not None:
            parts.append(_Part(None))
    if parts[-1].match is None:
        # At the end `**` matches what is below, of whatever kind: a name after any number of folders.
        parts.append(_part("*"))
    return tuple(parts)


def _part(name: str) -> _Part:
    dotted = name.startswith((".", "\\."))
    if not _MAGIC.search(name):
        literal = _plain(name)
        return _Part(literal.__eq__, dotted, literal)
    return _Part(re.compile(_regex(name), re.DOTALL).fullmatch, dotted)


def _plain(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name, flags=re.DOTALL)


# --- one name ---


def _regex(name: str) -> str:
    """A regular expression for a name; its stars never backtrack into each other, so it is always quick."""
    pieces: list[str] = []  # what stands between stars
    current: list[str] = []
    position = 0
    while position < len(name):
        sign = name[position]
        position += 1
        if sign == "*":
            pieces.append("".join(current))
            current = []
        elif sign == "?":
            current.append(".")
        elif sign == "[" and (found := _set(name, position)) is not None:
            text, position = found
            current.append(text)
        elif sign == "\\" and position < len(name):
            current.append(re.escape(name[position]))
            position += 1
        else:
            current.append(re.escape(sign))
    last = "".join(current)
    if not pieces:
        return last
    middle = "".join(f"(?>.*?{piece})" for piece in pieces[1:] if piece)
    return f"{pieces[0]}{middle}.*{last}"


def _set(name: str, start: int) -> tuple[str, int] | None:
    """The regular expression of a set whose `[` stands before `start`, and its end; None if it has none."""
    position = start
    negated = name[position : position + 1] in ("!", "^")
    position += negated
    first = position
    items: list[str] = []
    while position < len(name) and (name[position] != "]" or position == first):
        class_end = name.find(":]", position + 2) if name.startswith("[:", position) else -1
        if class_end > 0:
            items.append(_CLASSES.get(name[position + 2 : class_end], ""))
            position = class_end + 2
            continue
        low, position = _sign(name, position)
        if name.startswith("-", position) and position + 1 < len(name) and name[position + 1] != "]":
            high, position = _sign(name, position + 1)
            if low <= high:
                items.append(f"{re.escape(low)}-{re.escape(high)}")
        else:
            items.append(re.escape(low))
    if position >= len(name):
        return None
    inside = "".join(items)
    if not inside:
        return ("." if negated else "(?!)"), position + 1
    return f"[{'^' if negated else ''}{inside}]", position + 1


def _sign(name: str, position: int) -> tuple[str, int]:
    if name[position] == "\\" and position + 1 < len(name):
        position += 1
    return name[position], position + 1


# --- braces ---


def _braces(pattern: str) -> list[str]:
    """All patterns that one with braces stands for, in bash's order, without empty ones."""
    whole: list[str] = []
    todo = [pattern]
    while todo:
        one = todo.pop()
        found = _first_braces(one)
        if found is None:
            whole.append(one)
        else:
            start, options, end = found
            todo.extend(one[:start] + option + one[end:] for option in reversed(options))
        if len(whole) + len(todo) > limits.BRACES_MAX:
            raise invalid(f"braces may stand for {limits.BRACES_MAX} patterns in all; these stand for more")
    return [one for one in whole if one] or whole


def _first_braces(pattern: str) -> tuple[int, list[str], int] | None:
    """The first braces with a comma: where they start, what is between the commas, and where they end."""
    opened: list[tuple[int, list[int]]] = []  # where braces opened, and their commas
    closed: list[tuple[int, list[int], int]] = []
    position = 0
    while position < len(pattern):
        sign = pattern[position]
        if sign == "\\":
            position += 1
        elif sign == "{":
            opened.append((position, []))
        elif sign == "," and opened:
            opened[-1][1].append(position)
        elif sign == "}" and opened:
            closed.append((*opened.pop(), position))
        position += 1
    whole = min((one for one in closed if one[1]), default=None)
    if whole is None:
        return None
    start, commas, end = whole
    cuts = [start, *commas, end]
    return start, [pattern[a + 1 : b] for a, b in itertools.pairwise(cuts)], end + 1
