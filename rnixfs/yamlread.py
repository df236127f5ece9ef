"""A strict reader for YAML: fields are asked for by type, and what does not fit is refused with its line."""

import dataclasses
import math
import re
from collections.abc import Collection, Mapping

from rnixfs.yamlvalue import USUAL, Bounds, Entry, ManifestError, Value, clip, compose, kind_of, nearest

__all__ = ["Bounds", "Doc", "Entry", "Fields", "ManifestError", "Value", "clip", "kind_of", "load", "nearest"]

_FIELDS_RIGHT = "write fields, one a line, such as name: example"


@dataclasses.dataclass(frozen=True, slots=True)
class Doc:
    """A file as values."""

    file: str
    root: Value
    bounds: Bounds = USUAL

    def fields(self) -> "Fields":
        """The file as a mapping.

        Raises:
            ManifestError: it is something else.
        """
        if not isinstance(self.root.data, dict):
            raise ManifestError(self.file, self.root.line, f"the file is {kind_of(self.root)}", _FIELDS_RIGHT)
        return Fields(self.file, self.root.line, "", self.root.data, self.bounds)


def load(text: str, file: str, *, before: int = 0, bounds: Bounds = USUAL) -> Doc:
    """Read a text as YAML.

    Args:
        text: the text.
        file: its name, for messages.
        before: lines of the file that stand before the text.
        bounds: how much it may hold.

    Raises:
        ManifestError: with the line, and nothing else whatever the text.
    """
    return Doc(file, compose(text, file, before, bounds), bounds)


class Fields:
    """A mapping whose fields are asked for by type.

    Args:
        file: the file, for messages.
        line: where the mapping starts.
        path: what stands before the names of its fields in messages, such as `models.`.
        entries: the fields.
        bounds: how much its lists may hold.
    """

    def __init__(
        self, file: str, line: int, path: str, entries: dict[str, Entry], bounds: Bounds = USUAL
    ) -> None:
        self.file = file
        self.line = line
        self.path = path
        self.entries = entries
        self.bounds = bounds

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def line_of(self, name: str) -> int:
        """The line of a field's name, or of the mapping where it is missing."""
        entry = self.entries.get(name)
        return entry.line if entry else self.line

    def error(self, name: str, what: str, right: str) -> ManifestError:
        """An error about a field; `what` follows its name."""
        return ManifestError(self.file, self.line_of(name), f"{self.path}{name} {what}", right)

    def only(self, known: Collection[str], hints: Mapping[str, str] | None = None) -> None:
        """Refuse fields that are not known.

        Args:
            known: the fields that may be there.
            hints: what to do about certain others.

        Raises:
            ManifestError: for the first one, with the nearest known name.
        """
        for name, entry in self.entries.items():
            if name not in known:
                hint = (hints or {}).get(name)
                right = hint or f"the fields are {', '.join(sorted(known))}{nearest(name, known)}"
                what = f"{self.path}{clip(name).strip(chr(39))} is not a field here"
                raise ManifestError(self.file, entry.line, what, right)

    def need(self, name: str, right: str) -> Value:
        """A field that must be there.

        Raises:
            ManifestError: it is missing.
        """
        entry = self.entries.get(name)
        if entry is None:
            raise ManifestError(self.file, self.line, f"{self.path}{name} is missing", f"add {name}: {right}")
        return entry.value

    def text(self, name: str, *, limit: int = 200, pattern: str = "", right: str = "text") -> str:
        """A text without spaces around it, "" where the field is missing.

        Args:
            name: the field.
            limit: most characters.
            pattern: regular expression for the whole text.
            right: what a good text is, for messages.
        """
        if name not in self.entries:
            return ""
        value = self.entries[name].value
        return self._text(value, f"{self.path}{name}", limit, pattern, right)

    def _text(self, value: Value, where: str, limit: int, pattern: str, right: str) -> str:
        what = ""
        if not isinstance(value.data, str):
            what = f"{where} is {kind_of(value)}"
            right = f"write {right}"
            if value.data is not None:
                right += ", in quotes if it looks like something else"
        else:
            text = value.data.strip()
            if not text:
                what, right = f"{where} is empty", f"write {right}, or remove the field"
            elif len(text) > limit:
                what, right = f"{where} has {len(text)} characters", f"at most {limit} are taken"
            elif pattern and not re.fullmatch(pattern, text):
                what, right = f"{where} is {clip(text)}", f"write {right}"
            else:
                return text
        raise ManifestError(self.file, value.line, what, right)

    def whole(self, name: str, low: int, high: int) -> int | None:
        """A whole number, None where the field is missing."""
        found = self._within(name, low, high, f"a whole number from {low} to {high}", (int,))
        return None if found is None else int(found)

    def number(self, name: str, low: float, high: float) -> float | None:
        """A number, None where the field is missing."""
        return self._within(name, low, high, f"a number from {low:g} to {high:g}", (int, float))

    def _within(
        self, name: str, low: float, high: float, right: str, kinds: tuple[type, ...]
    ) -> float | None:
        if name not in self.entries:
            return None
        value = self.entries[name].value
        if isinstance(value.data, bool) or not isinstance(value.data, kinds):
            raise self.error(name, f"is {kind_of(value)}", f"write {right}")
        assert isinstance(value.data, int | float)
        if math.isnan(value.data) or not low <= value.data <= high:
            raise self.error(name, f"is {clip(value.raw).strip(chr(39))}", f"write {right}")
        return value.data

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        if name not in self.entries:
            return default
        value = self.entries[name].value
        if not isinstance(value.data, bool):
            raise self.error(name, f"is {kind_of(value)}", "write true or false")
        return value.data

    def items(self, name: str, right: str) -> tuple[Value, ...] | None:
        """The items of a list, None where the field is missing."""
        if name not in self.entries:
            return None
        value = self.entries[name].value
        if not isinstance(value.data, tuple):
            raise self.error(name, f"is {kind_of(value)}", f"write {right}")
        if len(value.data) > self.bounds.items:
            right = f"at most {self.bounds.items} are taken"
            raise self.error(name, f"has {len(value.data)} entries", right)
        return value.data

    def texts(
        self, name: str, *, limit: int = 200, pattern: str = "", right: str = "text", unique: bool = True
    ) -> tuple[str, ...] | None:
        """A list of texts, None where the field is missing; each as `text` has it, and given once."""
        items = self.items(name, f"a list, such as [{right}]")
        if items is None:
            return None
        found: list[str] = []
        for place, item in enumerate(items, 1):
            text = self._text(item, f"{self.path}{name}[{place}]", limit, pattern, right)
            if unique and text in found:
                what = f"{self.path}{name} names {clip(text)} twice"
                raise ManifestError(self.file, item.line, what, "keep one of the two")
            found.append(text)
        return tuple(found)

    def mapping(self, name: str) -> "Fields | None":
        """The fields of a mapping, None where the field is missing."""
        if name not in self.entries:
            return None
        return self._mapping(self.entries[name].value, f"{self.path}{name}")

    def mappings(self, name: str) -> tuple["Fields", ...]:
        """A list of mappings, empty where the field is missing."""
        items = self.items(name, "a list of entries, each with its fields") or ()
        return tuple(self._mapping(item, f"{self.path}{name}[{at}]") for at, item in enumerate(items, 1))

    def _mapping(self, value: Value, where: str) -> "Fields":
        if not isinstance(value.data, dict):
            what = f"{where} is {kind_of(value)}"
            raise ManifestError(self.file, value.line, what, _FIELDS_RIGHT)
        return Fields(self.file, value.line, f"{where}.", value.data, self.bounds)
