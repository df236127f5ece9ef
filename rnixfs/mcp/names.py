"""How the names that a server gives become names of files, and back.

**Names of tools and prompts.** What cannot stand in a file's name is percent-encoded. So is the dot of a name
that ends in `.json`, which is how the definition of a tool is called. The one name that cannot be turned back
is one that is too long for a file: its end is replaced by `~` and a digest.

**URIs.** Each part between slashes is a folder, the last one a file; bytes that are no printable ASCII, and
`%` itself, are percent-encoded. A `%` that two hexadecimal digits do not follow is never part of a name, so
it marks what a path of files cannot say otherwise:

- `%` alone is an empty part,
- `%` at the end of a name says that the part goes on in the next name, since it has more than 255 bytes,
- `%.` at the end says that this is a document where a folder has the name too.

`scheme://rest` begins with the folder `scheme:`, and `file:///rest` with the folder `file:`, so that a shell
finds `resources/file:///home/me` however many slashes are typed. URIs that begin otherwise, but would look
so, have their colon encoded.
"""

import hashlib
import re
from collections.abc import Callable, Sequence

from rnixfs import limits

EMPTY = "%"
MORE = "%"
DOCUMENT = "%."
DEFINITION = ".json"
TEMPLATES = ".templates.json"

_ESCAPE = re.compile(r"%([0-9A-F]{2})")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,63}:")
_PRETTY = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,63}):/(/.*)", re.DOTALL)
_FILE = "file:"
_DIGEST = 16  # hexadecimal digits


def _quote(text: str, plain: Callable[[str], bool]) -> str:
    return "".join(
        sign if plain(sign) else "".join(f"%{byte:02X}" for byte in sign.encode("utf-8", "surrogatepass"))
        for sign in text
    )


def _decoded(text: str) -> str:
    parts = re.split(r"((?:%[0-9A-F]{2})+)", text)
    return "".join(
        bytes.fromhex(part.replace("%", "")).decode("utf-8", "surrogatepass") if at % 2 else part
        for at, part in enumerate(parts)
    )


def _dots(name: str) -> str:
    return name.replace(".", "%2E") if name in (".", "..") else name


# --- names of tools and prompts ---


def file_name(name: str) -> str:
    """The file's name for a tool or a prompt."""
    quoted = _dots(_quote(name, lambda sign: sign.isprintable() and sign not in "%/")) or EMPTY
    if quoted.endswith(DEFINITION):
        quoted = quoted.removesuffix(DEFINITION) + "%2Ejson"
    room = limits.NAME_MAX - len(DEFINITION)
    if len(quoted.encode()) <= room:
        return quoted
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    start = quoted.encode()[: room - _DIGEST - 1].decode("utf-8", "ignore")
    # Half an escape at the end would be read as something else.
    return f"{re.sub('%[0-9A-F]?$', '', start)}~{digest}"


def name_of(file: str) -> str:
    """The name that `file_name` made a file's name of, unless that was too long."""
    return "" if file == EMPTY else _decoded(file)


# --- URIs ---


def uri_path(uri: str) -> tuple[str, ...]:
    """The names that lead from `resources/` to the document of a URI."""
    pretty = _PRETTY.fullmatch(uri)
    if pretty is not None and (rest := _rest(pretty[1], pretty[2])) is not None:
        return (f"{pretty[1]}:", *_names(rest.split("/")))
    first, *others = uri.split("/")
    named = _names([first])
    if named[0] == TEMPLATES or _SCHEME.fullmatch(named[0]):
        named[0] = re.sub("[:.]", lambda found: f"%{ord(found[0]):02X}", named[0])
    return (*named, *_names(others))


def _rest(scheme: str, after: str) -> str | None:
    """What follows `scheme://`, given from its second slash on; without the third one for files.

    None where a path could not tell it from another.
    """
    rest = after[1:]
    if scheme != "file":
        return rest
    return rest[1:] if rest.startswith("/") else None


def _names(parts: Sequence[str]) -> list[str]:
    names: list[str] = []
    for part in parts:
        quoted = _dots(_quote(part, lambda sign: "!" <= sign <= "~" and sign not in "%/"))
        while len(quoted) >= limits.NAME_MAX - len(DOCUMENT):
            most = limits.NAME_MAX - len(DOCUMENT) - 3
            cut = next(at for at in range(most, 0, -1) if "%" not in quoted[max(0, at - 2) : at])
            names.append(quoted[:cut] + MORE)
            quoted = quoted[cut:]
        names.append(_dots(quoted) or EMPTY)
    return names


def path_uri(path: Sequence[str]) -> str | None:
    """The URI whose document a path of names below `resources/` is; None for a path that is none's."""
    names = list(path)
    if names and names[-1].endswith(DOCUMENT):
        names[-1] = names[-1].removesuffix(DOCUMENT)
    parts = parts_of(names)
    if parts is None:
        return None
    if _SCHEME.fullmatch(names[0]) and len(parts) > 1:
        empty = "/" if names[0] == _FILE else ""
        return f"{names[0]}//{empty}" + "/".join(parts[1:])
    return "/".join(parts)


def parts_of(names: Sequence[str]) -> list[str] | None:
    """The parts of a URI that names of files stand for; None where a name stands for nothing."""
    parts: list[str] = []
    begun = ""
    for name in names:
        more = name.endswith(MORE) and name != EMPTY
        begun += "" if name == EMPTY else name.removesuffix(MORE) if more else name
        if more:
            continue
        if "%" in _ESCAPE.sub("", begun):
            return None
        try:
            parts.append(_decoded(begun))
        except UnicodeDecodeError:
            return None
        begun = ""
    return None if begun or not parts else parts


# --- templates ---

_EXPRESSION = re.compile(r"\{([^{}]*)\}")


class Template:
    """A template of URIs (RFC 6570), as a path of patterns.

    A variable stands for at least one character within one part. Where it may hold slashes (`{+path}`), they
    are written as `%2F` in the name of the file.

    Args:
        text: such as `note://{author}/{title}`.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        marks: list[str] = []

        # Expressions become what is part of no URI, so that they are cut like one.
        def mark(found: re.Match[str]) -> str:
            marks.append(found[1])
            return f"\0{len(marks) - 1}\0"

        parts = _template_parts(_EXPRESSION.sub(mark, _EXPRESSION.sub(_spread, text)))
        self._first = parts[0]
        self._begins = len(parts) > 1 and _SCHEME.fullmatch(parts[0]) is not None
        self._patterns = [re.compile(_pattern(part, marks), re.DOTALL) for part in parts]

    def leads(self, path: Sequence[str]) -> bool:
        """Whether a path may be a folder on the way to a URI that matches."""
        return self._matches(path) and len(path) < len(self._patterns)

    def matches(self, path: Sequence[str]) -> bool:
        """Whether a path is the document of a URI that matches."""
        return self._matches(path) and len(path) == len(self._patterns)

    def _matches(self, path: Sequence[str]) -> bool:
        names = [*path[:-1], path[-1].removesuffix(DOCUMENT)] if path else []
        parts = parts_of(names)
        if parts is None or len(parts) != len(names):
            return False
        # A folder of a scheme stands for more than its name says.
        if names[0] != self._first and (self._begins or _SCHEME.fullmatch(names[0])):
            return False
        pairs = zip(self._patterns, parts, strict=False)
        return all(pattern.fullmatch(part) is not None for pattern, part in pairs)


def _spread(found: re.Match[str]) -> str:
    """An expression whose variables are parts of their own, as that many."""
    if not found[1].startswith("/"):
        return found[0]
    return "".join(f"/{{{name}}}" for name in found[1][1:].split(","))


def _template_parts(text: str) -> list[str]:
    """The parts of a template as `uri_path` has them, but not encoded."""
    pretty = _PRETTY.fullmatch(text)
    if pretty is not None and (rest := _rest(pretty[1], pretty[2])) is not None:
        return [f"{pretty[1]}:", *rest.split("/")]
    return text.split("/")


def _pattern(part: str, marks: Sequence[str]) -> str:
    pieces = re.split(r"\0(\d+)\0", part)
    return "".join(
        _variable(marks[int(piece)]) if at % 2 else re.escape(piece) for at, piece in enumerate(pieces)
    )


def _variable(expression: str) -> str:
    match expression[:1]:
        case "+":
            return ".+"
        case "#":
            return "(?:#.*)?"
        case "?":
            return r"(?:\?.*)?"
        case "&" | ";":
            return f"(?:{expression[0]}.*)?"
        case ".":
            return r"\.[^/]+"
    return "[^/]+"
