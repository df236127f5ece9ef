"""What templates can do with a value: `{{ value | lines | count }}`. A filter is one function and one row.

The first argument of each function is the value before the bar, the others stand in brackets. A filter that
cannot take what it is given raises `RefusedError`, to which the template adds its line.
"""

import inspect
import json
import posixpath
import re
from collections.abc import Callable
from typing import Any

from rnixfs.patterns import RefusedError, bounded

TEXT_MAX = 1 << 20  # characters of a text that a template may make
ITEMS_MAX = 100_000  # items of a list that a template may make

Pattern = re.Pattern[str]


def kind_of(value: object) -> str:
    """What a value is, in words for a message."""
    names = {
        type(None): "null",
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), "a pattern")


def to_text(value: object) -> str:
    """A value as a template prints it: text as it is, null as nothing, lists and objects as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else f"{value:.10g}"
    if isinstance(value, re.Pattern):
        return str(value.pattern)
    return json.dumps(value, ensure_ascii=False)


# --- taking values ---


def _text(value: object) -> str:
    if isinstance(value, dict | list | re.Pattern):
        raise RefusedError(f"this filter takes text, not {kind_of(value)}", "use json or join before it")
    return to_text(value)


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        what = f"this filter takes a list, not {kind_of(value)}"
        raise RefusedError(what, "use lines, split or items before it")
    return value


def _number(value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RefusedError(f"this filter takes a number, not {kind_of(value)}", "use number before it")
    return value


def _whole(value: object) -> int:
    number = _number(value)
    if int(number) != number:
        raise RefusedError(f"{to_text(value)} is not a whole number", "use round before it")
    return int(number)


def _pattern(value: object) -> Pattern:
    if not isinstance(value, re.Pattern):
        raise RefusedError(f"this filter takes a pattern, not {kind_of(value)}", "write it as /pattern/")
    return value


def _fits(size: int) -> None:
    if size > TEXT_MAX:
        raise RefusedError(f"the text would have {size} characters", f"at most {TEXT_MAX} are made")


def _field(item: object, name: str) -> Any:
    return item.get(name) if isinstance(item, dict) else None


# --- text ---


def _lines(value: object) -> list[str]:
    return _text(value).splitlines()


def _replace(value: object, old: str, new: str) -> str:
    text, old, new = _text(value), _text(old), _text(new)
    if not old:
        raise RefusedError("replace has nothing to look for", "give the text that is to be replaced")
    _fits(len(text) + text.count(old) * (len(new) - len(old)))
    return text.replace(old, new)


def _split(value: object, separator: str) -> list[str]:
    if not _text(separator):
        raise RefusedError("split has nothing to split at", "give the separator, or use words")
    return _text(value).split(_text(separator))


def _join(value: object, separator: str = "") -> str:
    parts = [to_text(item) for item in _list(value)]
    _fits(sum(map(len, parts)) + len(_text(separator)) * len(parts))
    return _text(separator).join(parts)


def _clip(value: object, most: int) -> str:
    text, most = _text(value), _whole(most)
    return text if len(text) <= most else text[: max(most - 1, 0)] + "…"


def _after(value: object, mark: str) -> str:
    return _text(value).partition(_text(mark))[2].strip()


def _before(value: object, mark: str) -> str:
    return _text(value).partition(_text(mark))[0].strip()


def _indent(value: object, width: int) -> str:
    lines = _lines(value)
    _fits(len(_text(value)) + len(lines) * _whole(width))
    return "\n".join(" " * _whole(width) + line for line in lines)


def _match(value: object, pattern: Pattern) -> str | None:
    found = _pattern(pattern).search(bounded(_text(value)))
    return None if found is None else found[1] if found.re.groups else found[0]


def _test(value: object, pattern: Pattern) -> bool:
    return _pattern(pattern).search(bounded(_text(value))) is not None


def _find_all(value: object, pattern: Pattern) -> list[str]:
    found = _pattern(pattern).finditer(bounded(_text(value)))
    return [match[1] if match.re.groups else match[0] for match in found]


# --- lists and objects ---


def _count(value: object) -> int:
    if isinstance(value, str | list | dict):
        return len(value)
    raise RefusedError(f"{kind_of(value)} has no length", "use it on text, a list or an object")


def _first(value: object) -> Any:
    items = _list(value)
    return items[0] if items else None


def _last(value: object) -> Any:
    items = _list(value)
    return items[-1] if items else None


def _take(value: object, most: int) -> list[Any]:
    return _list(value)[: max(_whole(most), 0)]


def _skip(value: object, some: int) -> list[Any]:
    return _list(value)[max(_whole(some), 0) :]


def _repeat(value: object, times: int) -> list[Any]:
    items, times = _list(value), max(_whole(times), 0)
    if len(items) * times > ITEMS_MAX:
        raise RefusedError(f"the list would have {len(items) * times} items", f"at most {ITEMS_MAX} are made")
    return items * times


def _order(value: object) -> tuple[int, Any]:
    """A key that puts values of every kind into one order."""
    if isinstance(value, bool) or value is None:
        return 0, value is True
    if isinstance(value, int | float):
        return 1, value
    return (2, value) if isinstance(value, str) else (3, to_text(value))


def _sort(value: object, field: str = "") -> list[Any]:
    name = _text(field)
    return sorted(_list(value), key=lambda item: _order(_field(item, name) if name else item))


def _unique(value: object) -> list[Any]:
    seen: dict[str, Any] = {}
    for item in _list(value):
        seen.setdefault(json.dumps(item, sort_keys=True), item)
    return list(seen.values())


def _sum(value: object, field: str = "") -> int | float:
    name = _text(field)
    return sum(_number(_field(item, name) if name else item) for item in _list(value))


def _map(value: object, field: str) -> list[Any]:
    return [_field(item, _text(field)) for item in _list(value)]


def _holds(item: object, field: str, wanted: object) -> bool:
    found = _field(item, _text(field))
    if isinstance(wanted, re.Pattern):
        return isinstance(found, str) and wanted.search(bounded(found)) is not None
    return bool(found == wanted)


def _where(value: object, field: str, wanted: object) -> list[Any]:
    return [item for item in _list(value) if _holds(item, field, wanted)]


def _without(value: object, field: str, wanted: object) -> list[Any]:
    return [item for item in _list(value) if not _holds(item, field, wanted)]


def _counting(value: object) -> dict[str, int]:
    counts: dict[str, int] = {}
    for item in _list(value):
        counts[to_text(item)] = counts.get(to_text(item), 0) + 1
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def _items(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, dict):
        raise RefusedError(f"items takes an object, not {kind_of(value)}", "use it on an object")
    return [{"key": key, "value": entry} for key, entry in value.items()]


def _keys(value: object) -> list[str]:
    return [item["key"] for item in _items(value)]


# --- numbers ---


def _to_number(value: object) -> int | float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    found = re.fullmatch(r"\s*([-+]?\d{1,18})(\.\d{1,18})?\s*", _text(value))
    if not found:
        raise RefusedError(f"{_text(value)[:60]!r} is no number", "use match with a pattern for digits first")
    return float(found[0]) if found[2] else int(found[1])


def _per(value: object, divisor: float) -> float:
    """Quotient with one decimal; 0 where the divisor is 0, so that a report of an empty folder works."""
    return round(_number(value) / _number(divisor), 1) if _number(divisor) else 0.0


def _mul(value: object, factor: float) -> int | float:
    product = _number(value) * _number(factor)
    if abs(product) > 1e300:
        raise RefusedError("the product is too large", "multiply smaller numbers")
    return product


def _bytes(value: object) -> str:
    size = float(_number(value))
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{to_text(round(size, 1))} {unit}"
        size /= 1024
    return f"{to_text(round(size, 1))} TiB"


# --- paths and JSON ---


def _extension(value: object) -> str:
    return posixpath.splitext(_text(value))[1]


def _parse_json(value: object) -> Any:
    try:
        return json.loads(_text(value))
    except (ValueError, RecursionError) as error:
        what = f"{_text(value)[:60]!r} is no JSON: {error}"
        raise RefusedError(what, "give one complete JSON value") from None


def _default(value: object, otherwise: object) -> Any:
    """The value, or the other one where it is null. (The template also uses it where a name is missing.)"""
    return otherwise if value is None else value


FILTERS: dict[str, Callable[..., Any]] = {
    "add": lambda value, other: _number(value) + _number(other),
    "after": _after,
    "basename": lambda value: posixpath.basename(_text(value)),
    "before": _before,
    "bytes": _bytes,
    "clip": _clip,
    "count": _count,
    "counting": _counting,
    "default": _default,
    "dirname": lambda value: posixpath.dirname(_text(value)),
    "extension": _extension,
    "find_all": _find_all,
    "first": _first,
    "indent": _indent,
    "items": _items,
    "join": _join,
    "json": lambda value: json.dumps(value, ensure_ascii=False),
    "keys": _keys,
    "last": _last,
    "length": _count,
    "lines": _lines,
    "lower": lambda value: _text(value).lower(),
    "map": _map,
    "match": _match,
    "mul": _mul,
    "number": _to_number,
    "parse_json": _parse_json,
    "per": _per,
    "repeat": _repeat,
    "replace": _replace,
    "reverse": lambda value: _list(value)[::-1],
    "round": lambda value: round(_number(value)),
    "skip": _skip,
    "sort": _sort,
    "split": _split,
    "sub": lambda value, other: _number(value) - _number(other),
    "sum": _sum,
    "take": _take,
    "test": _test,
    "trim": lambda value: _text(value).strip(),
    "unique": _unique,
    "upper": lambda value: _text(value).upper(),
    "where": _where,
    "without": _without,
    "words": lambda value: _text(value).split(),
}


def arguments_of(name: str) -> tuple[int, int]:
    """How many arguments in brackets a filter takes: least and most."""
    parameters = list(inspect.signature(FILTERS[name]).parameters.values())[1:]
    return sum(one.default is inspect.Parameter.empty for one in parameters), len(parameters)


def apply(name: str, value: object, arguments: list[Any]) -> Any:
    """Run a filter.

    Raises:
        RefusedError: it cannot take these values, or its result would be too large.
    """
    try:
        result = FILTERS[name](value, *arguments)
    except (OverflowError, RecursionError, TypeError) as error:
        raise RefusedError(f"{error}", "use smaller or simpler values") from None
    if isinstance(result, str):
        _fits(len(result))
    if isinstance(result, list) and len(result) > ITEMS_MAX:
        raise RefusedError(f"the list has {len(result)} items", f"at most {ITEMS_MAX} are made")
    return result
