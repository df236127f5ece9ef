"""`mcp.yaml`: which MCP servers there are and how they are reached.

The same fields are taken as JSON by `mnt/mcp/ctl`, so one reader serves both. What a project's file may not
do, and how several files become one, is in `configmerge`.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from rnixfs import limits
from rnixfs.errors import SyscallError, invalid
from rnixfs.keycheck import looks_secret, refuse_keys
from rnixfs.manifest import AGENT_NAME
from rnixfs.yamlread import Entry, Fields, ManifestError, Value, kind_of, load, nearest

VERSION = 1
"""The version of the format."""

STDIO, HTTP = "stdio", "http"
RESTARTS = ("never", "on-failure", "always")
ALLOWED = ("elicitation", "sampling")
FILE_FIELDS = ("version", "servers", "mcpServers")
SERVER_NAME = rf"(?!\d+-){AGENT_NAME}"
"""A name may not begin as those that are made for processes do: `<pid>-<server>`."""

_NAME_RIGHT = "a name of letters, digits, - and _, which does not begin with a number and -"
REFERENCE = re.compile(r"\$\{([^}]*)\}")
VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
_HEADER = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"  # a token of HTTP
_BY_REFERENCE = "put it into an environment variable of the daemon and write ${VARIABLE} in its place"
_URL_RIGHT = "write an address such as http://127.0.0.1:8000/mcp"
_SECRET_HEADER = re.compile(r"(?i)(proxy-)?authorization|cookie|.*(api-?key|token|secret|password)")
_SECRET_VARIABLE = re.compile(r"(?i).*(KEY|TOKEN|SECRET|PASSWORD|PASSWD)")


class ServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One server.

    Args:
        name: as `mcp.yaml` calls it, or its folder below `mnt/mcp`.
        command: the program of a server that is started; "" for one that is reached by `url`.
        args: its arguments.
        env: variables of its environment beside the usual ones; `${VARIABLE}` stands for one of the daemon's.
        cwd: the absolute folder that it works in; "" for that of whoever mounts it.
        url: the address of a server that runs.
        headers: sent with each request to it; `${VARIABLE}` as in `env`.
        connect_ms: milliseconds until it must have connected.
        request_ms: milliseconds of one request.
        output_bytes: bytes of one message of it at most; a longer answer fails.
        restart: when it is started again after it ended: `never`, `on-failure` or `always`.
        allow: what it may ask for in turn: `elicitation` of people, `sampling` of models.
        autostart: whether it is mounted when the system starts.
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    connect_ms: int = int(limits.MOUNT_CONNECT_SECONDS * 1000)
    request_ms: int = limits.MCP_REQUEST_MS
    output_bytes: int = limits.MCP_OUTPUT_MAX
    restart: str = "never"
    allow: tuple[str, ...] = ()
    autostart: bool = False

    @property
    def kind(self) -> str:
        """The type of its transport."""
        return HTTP if self.url else STDIO

    def mounting(self) -> dict[str, Any]:
        """It as what `MountTable.begin` takes."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return {"type": self.kind} | {
            name: value for name, value in found.items() if name not in ("name", "autostart")
        }

    def references(self) -> list[str]:
        """The variables that it names, in order."""
        texts = [*self.args, *self.env.values(), *self.headers.values()]
        return list(dict.fromkeys(name for text in texts for name in REFERENCE.findall(text)))

    def filled(self, env: Mapping[str, str]) -> "ServerConfig":
        """It with the values of the variables that it names.

        Args:
            env: the daemon's environment.

        Raises:
            SyscallError: INVALID where one is not set.
        """
        missing = [name for name in self.references() if name not in env]
        if missing:
            named = ", ".join(f"${name}" for name in missing)
            raise invalid(
                f"the MCP server {self.name!r} needs {named}, not set in the daemon's environment; "
                "set it and start the daemon again"
            )

        def fill(text: str) -> str:
            return REFERENCE.sub(lambda found: env[found[1]], text)

        return msgspec.structs.replace(
            self,
            args=tuple(map(fill, self.args)),
            env={name: fill(text) for name, text in self.env.items()},
            headers={name: fill(text) for name, text in self.headers.items()},
        )


class ServersFile(msgspec.Struct, frozen=True):
    """A whole file, or several merged.

    Args:
        servers: the entries, in order.
        at: `file:line` of each entry by its name, for messages.
    """

    servers: tuple[ServerConfig, ...] = ()
    at: dict[str, str] = {}

    def named(self, name: str) -> ServerConfig | None:
        """The entry of that name."""
        return next((one for one in self.servers if one.name == name), None)

    def names(self) -> tuple[str, ...]:
        """The names of all entries, in order."""
        return tuple(one.name for one in self.servers)


SERVER_FIELDS = tuple(field.name for field in msgspec.structs.fields(ServerConfig))
_OWN = ("name", "autostart")
_HINTS = {
    "transport": "leave it out: command means stdio, url means http",
    "transport_type": "leave it out: command means stdio, url means http",
    "timeout": "write request_ms or connect_ms, in milliseconds",
    "mount_timeout": "write connect_ms, in milliseconds",
    "connect_timeout": "write connect_ms, in milliseconds",
    "request_timeout": "write request_ms, in milliseconds",
    "disabled": "remove the entry, or make it a comment",
    "serverUrl": "write url",
    "base_url": "write url",
    "environment": "write env",
    "arguments": "write args",
    **dict.fromkeys(("api_key", "key", "token", "secret", "password"), _BY_REFERENCE),
}


# --- files ---


def parse_mcp(text: str, file: str) -> ServersFile:
    """Read the text of an `mcp.yaml`.

    Args:
        text: the text.
        file: its path, for messages.

    Raises:
        ManifestError: the line, what is wrong there and what would be right. A key is never repeated in it.
    """
    doc = load(text, file)
    if doc.root.data is None:
        return ServersFile()
    _refuse_keys(file, doc.root)
    fields = doc.fields()
    _check_version(fields)
    fields.only(FILE_FIELDS, {"providers": "models belong into providers.yaml"})
    if "servers" in fields and "mcpServers" in fields:
        raise fields.error("mcpServers", "says what servers says too", "keep one of the two")
    found: dict[str, ServerConfig] = {}
    at: dict[str, str] = {}
    for entry in _entries(fields, "mcpServers" if "mcpServers" in fields else "servers"):
        one = _server_of_file(entry)
        if one.name in found:
            raise entry.error("name", f"{one.name!r} is given to two servers", "rename one of them")
        found[one.name], at[one.name] = one, f"{file}:{entry.line}"
    return ServersFile(tuple(found.values()), at)


def _refuse_keys(file: str, root: Value) -> None:
    try:
        refuse_keys(file, root)
    except ManifestError as error:
        raise ManifestError(error.file, error.line, error.what, _BY_REFERENCE) from None


def _check_version(fields: Fields) -> None:
    version = fields.whole("version", 0, 1_000_000)
    if version is not None and version > VERSION:
        right = f"this release knows version {VERSION}: update rnixfs, or write the file for it"
        raise fields.error("version", f"is {version}", right)
    if version == 0:
        raise fields.error("version", "is 0", f"write {VERSION}")


def _entries(fields: Fields, key: str) -> list[Fields]:
    """The entries of a file; of a mapping, each key is the name of its entry."""
    if key not in fields or fields.entries[key].value.data is None:
        return []
    value = fields.entries[key].value
    if isinstance(value.data, tuple):
        return list(fields.mappings(key))
    if not isinstance(value.data, dict):
        raise fields.error(key, f"is {kind_of(value)}", "write a list of servers, each with name and command")
    return [_named(fields, key, name, entry) for name, entry in value.data.items()]


def _named(fields: Fields, key: str, name: str, entry: Entry) -> Fields:
    where = f"{key}.{name[:60]}"
    if not isinstance(entry.value.data, dict):
        what = f"{where} is {kind_of(entry.value)}"
        raise ManifestError(fields.file, entry.line, what, "write its fields, such as command: uvx")
    inner = entry.value.data
    if "name" in inner:
        raise ManifestError(fields.file, inner["name"].line, f"{where}.name is the key itself", "remove it")
    named = {"name": Entry(entry.line, Value(entry.line, name, name)), **inner}
    return Fields(fields.file, entry.line, f"{where}.", named, fields.bounds)


def _server_of_file(entry: Fields) -> ServerConfig:
    entry.only((*SERVER_FIELDS, "type"), _HINTS)
    entry.need("name", _NAME_RIGHT)
    name = entry.text("name", limit=limits.MANIFEST_NAME_MAX, pattern=SERVER_NAME, right=_NAME_RIGHT)
    one = _server(entry, name)
    _refuse_plain(entry, "headers", one.headers, _SECRET_HEADER)
    _refuse_plain(entry, "env", one.env, _SECRET_VARIABLE)
    return one


def _refuse_plain(entry: Fields, field: str, values: Mapping[str, str], secret: re.Pattern[str]) -> None:
    """Refuse a secret that stands in the file as it is, by the name of what holds it."""
    for name, value in values.items():
        if value and secret.fullmatch(name) and not REFERENCE.search(value):
            raise entry.error(field, f"holds a value for {name}", _BY_REFERENCE)


# --- JSON ---


def read_config(name: str, mapping: Mapping[str, Any]) -> ServerConfig:
    """Read the configuration of a server that is mounted.

    Args:
        name: its folder below `mnt/mcp`.
        mapping: its fields, as decoded JSON.

    Raises:
        SyscallError: INVALID, naming the field and what would be right.
    """
    try:
        value = _value(dict(mapping))
        assert isinstance(value.data, dict)
        entry = Fields("", 1, "", value.data)
        entry.only([one for one in (*SERVER_FIELDS, "type") if one not in _OWN], _HINTS)
        return _server(entry, name)
    except ManifestError as error:
        raise _of_json(error) from None
    except RecursionError:
        raise invalid("the configuration of a server has too many levels") from None


def _of_json(error: ManifestError) -> SyscallError:
    return invalid(f"{error.what}; {error.right}")


def _value(data: Any) -> Value:
    """Decoded JSON, as the reader of YAML has it."""
    if isinstance(data, dict):
        return Value(1, {str(name): Entry(1, _value(one)) for name, one in data.items()})
    if isinstance(data, list | tuple):
        return Value(1, tuple(map(_value, data)))
    return Value(1, data, data if isinstance(data, str) else msgspec.json.encode(data).decode())


# --- one entry ---


def _server(entry: Fields, name: str) -> ServerConfig:
    one = ServerConfig(
        name=name,
        command=entry.text("command", limit=limits.PATH_MAX, right="the program's name or path"),
        args=_arguments(entry),
        env=_texts(entry, "env", VARIABLE, "the name of a variable"),
        cwd=entry.text("cwd", limit=limits.PATH_MAX, pattern=r"/[^\0]*", right="an absolute path"),
        url=_url(entry),
        headers=_texts(entry, "headers", _HEADER, "the name of a header of HTTP"),
        connect_ms=entry.whole("connect_ms", 1, limits.TIMEOUT_MS_MAX)
        or int(limits.MOUNT_CONNECT_SECONDS * 1000),
        request_ms=entry.whole("request_ms", 1, limits.TIMEOUT_MS_MAX) or limits.MCP_REQUEST_MS,
        output_bytes=entry.whole("output_bytes", 1, limits.MCP_OUTPUT_MAX) or limits.MCP_OUTPUT_MAX,
        restart=_one_of(entry, "restart", RESTARTS) or "never",
        allow=_allow(entry),
        autostart=entry.flag("autostart", False),
    )
    _check_kind(entry, one)
    return one


def _check_kind(entry: Fields, one: ServerConfig) -> None:
    if one.command and one.url:
        right = "keep command for a server that is started, or url for one that runs"
        raise entry.error("url", "stands beside command", right)
    if not (one.command or one.url):
        right = "add command: the program to start, or url: the address of a server that runs"
        raise entry.error("command", "is missing", right)
    for field in ("args", "env", "cwd") if one.url else ("headers",):
        if field in entry:
            beside = "url" if one.url else "command"
            raise entry.error(field, f"means nothing beside {beside}", "remove it")
    kind = _one_of(entry, "type", (STDIO, HTTP, "streamable-http", "streamableHttp", "sse"))
    if kind == "sse":
        right = "write the url of its streamable HTTP, which took the place of that transport"
        raise entry.error("type", "is sse, which is not supported", right)
    if kind and (kind == STDIO) == bool(one.url):
        raise entry.error("type", f"is {kind} beside {'url' if one.url else 'command'}", "leave type out")


def _one_of(entry: Fields, field: str, words: tuple[str, ...]) -> str:
    right = f"one of {', '.join(words)}"
    word = entry.text(field, right=right)
    if word and word not in words:
        raise entry.error(field, f"is {word[:60]!r}", f"write {right}{nearest(word, words)}")
    return word


def _allow(entry: Fields) -> tuple[str, ...]:
    words = entry.texts("allow", right=" or ".join(ALLOWED)) or ()
    for word in words:
        if word not in ALLOWED:
            right = f"write {' or '.join(ALLOWED)}{nearest(word, ALLOWED)}"
            raise entry.error("allow", f"holds {word[:60]!r}", right)
    return words


def _arguments(entry: Fields) -> tuple[str, ...]:
    items = entry.items("args", "a list of texts, such as [mcp-server-time]") or ()
    for at, item in enumerate(items, 1):
        if isinstance(item.data, tuple | dict) or item.data is None:
            what = f"{entry.path}args[{at}] is {kind_of(item)}"
            raise ManifestError(entry.file, item.line, what, "write text, in quotes")
        _check_text(entry, item, f"{entry.path}args[{at}]")
    return tuple(item.raw for item in items)


def _texts(entry: Fields, field: str, pattern: str, right: str) -> dict[str, str]:
    """A mapping of names to texts; numbers and flags count as they are written."""
    found = entry.mapping(field)
    if found is None:
        return {}
    for name, (line, value) in found.entries.items():
        if not re.fullmatch(pattern, name) or looks_secret(name):
            raise ManifestError(entry.file, line, f"{found.path}{name[:60]} is not {right}", f"write {right}")
        if isinstance(value.data, tuple | dict) or value.data is None:
            what = f"{found.path}{name} is {kind_of(value)}"
            raise ManifestError(entry.file, line, what, 'write text, or "" for nothing')
        _check_text(entry, value, f"{found.path}{name}")
    return {name: value.raw for name, (_, value) in found.entries.items()}


def _check_text(entry: Fields, value: Value, where: str) -> None:
    if len(value.raw) > limits.PATH_MAX or "\0" in value.raw or "\n" in value.raw:
        right = f"write one line of at most {limits.PATH_MAX} characters"
        raise ManifestError(entry.file, value.line, f"{where} is too long, or more than a line", right)
    for name in REFERENCE.findall(value.raw):
        if not re.fullmatch(VARIABLE, name):
            right = "write ${VARIABLE} with the name of an environment variable"
            raise ManifestError(entry.file, value.line, f"{where} holds a reference to no variable", right)


def _url(entry: Fields) -> str:
    text = entry.text("url", limit=2000, right="an address such as http://127.0.0.1:8000/mcp")
    if not text:
        return ""
    try:
        url = urlsplit(text)
        good = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        good = False
    if not good or not re.fullmatch(r"[!-~]+", text):
        raise entry.error("url", "is not an address of HTTP", _URL_RIGHT)
    if url.username is not None or url.password is not None:
        raise entry.error("url", "holds a user name or password", "write them as a header, by ${VARIABLE}")
    if url.fragment:
        raise entry.error("url", "goes on after a #", "leave that out")
    return text
