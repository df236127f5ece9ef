"""`providers.yaml`: which models there are and how they are reached.

**What a project's file may not do.** The file in a project's `.rnix` comes with whatever was cloned, and a
model decides what an agent runs. So an entry there that names a program to start (`command`, `args`), a
script to play (`scenario`), or a model on another machine (`base_url`, except the public address that this
module knows for that name) is dropped unless its user trusts the project: each would let the author of the
project run commands as that user, or read out a key. Programs and addresses belong into the global file.
"""

import ipaddress
import os.path
import re
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

import msgspec

from rnixfs import limits
from rnixfs.manifest import MODEL_NAME, PROVIDER_NAME
from rnixfs.yamlread import Fields, ManifestError, load, nearest

VERSION = 1
"""The version of the format."""

CLAUDE_CLI = "claude-cli"
CURSOR_CLI = "cursor-cli"
OPENAI_COMPAT = "openai-compat"
ANTHROPIC = "anthropic"
GEMINI = "gemini"
SCRIPT = "script"
DRIVERS = (CLAUDE_CLI, CURSOR_CLI, OPENAI_COMPAT, ANTHROPIC, GEMINI, SCRIPT)


class ProviderConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `providers`.

    Args:
        name: its file under `dev/llm/`.
        driver: one of `DRIVERS`.
        base_url: address of the HTTP interface, without a slash at the end.
        command: the program of a command line model; "" for the driver's own.
        args: further arguments of that program.
        default_model: the model where a request names none.
        api_key_env: the variable that holds the key; "" for none.
        timeout_ms: milliseconds of one call where the request names none.
        scenario: the file that a scripted model plays; "" for the one that ships.
    """

    name: str
    driver: str
    base_url: str = ""
    command: str = ""
    args: list[str] = []
    default_model: str = ""
    api_key_env: str = ""
    timeout_ms: int = limits.PROVIDER_TIMEOUT_MS
    scenario: str = ""


class ProvidersFile(msgspec.Struct, frozen=True):
    """A whole file, or several merged.

    Args:
        default_provider: the provider where neither request nor agent names one; "" for none.
        providers: the entries, in order.
        default_at: `file:line` of the default, for messages.
    """

    default_provider: str = ""
    providers: tuple[ProviderConfig, ...] = ()
    default_at: str = ""

    def named(self, name: str) -> ProviderConfig | None:
        """The entry of that name."""
        return next((one for one in self.providers if one.name == name), None)

    def names(self) -> tuple[str, ...]:
        """The names of all entries, in order."""
        return tuple(one.name for one in self.providers)


BUILT_IN = ProvidersFile(
    providers=(
        ProviderConfig("claude", CLAUDE_CLI),
        ProviderConfig("cursor", CURSOR_CLI),
        ProviderConfig("script", SCRIPT),
    )
)
"""Providers that are there without any file."""


class Preset(msgspec.Struct, frozen=True):
    """What an entry of a known name gets where it leaves fields out."""

    driver: str = OPENAI_COMPAT
    base_url: str = ""
    api_key_env: str = ""


# The addresses are the ones that each project documents for its OpenAI-compatible interface.
PRESETS = {
    "claude": Preset(CLAUDE_CLI),
    "cursor": Preset(CURSOR_CLI),
    "script": Preset(SCRIPT),
    "anthropic": Preset(ANTHROPIC, "https://api.anthropic.com", "ANTHROPIC_API_KEY"),
    "gemini": Preset(GEMINI, "https://generativelanguage.googleapis.com", "GEMINI_API_KEY"),
    "openai": Preset(OPENAI_COMPAT, "https://api.openai.com/v1", "OPENAI_API_KEY"),
    "groq": Preset(OPENAI_COMPAT, "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "deepseek": Preset(OPENAI_COMPAT, "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "openrouter": Preset(OPENAI_COMPAT, "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "ollama": Preset(OPENAI_COMPAT, "http://127.0.0.1:11434/v1"),
    "vllm": Preset(OPENAI_COMPAT, "http://127.0.0.1:8000/v1"),
    "llamacpp": Preset(OPENAI_COMPAT, "http://127.0.0.1:8080/v1"),
    "lmstudio": Preset(OPENAI_COMPAT, "http://127.0.0.1:1234/v1"),
}

# Drivers with an address of their own fill it under any name.
_DRIVER_PRESETS = {ANTHROPIC: PRESETS["anthropic"], GEMINI: PRESETS["gemini"]}

FILE_FIELDS = ("version", "default_provider", "providers")
PROVIDER_FIELDS = (
    "name", "driver", "base_url", "command", "args", "default_model", "api_key_env", "timeout_ms", "scenario",
)  # fmt: skip
_NO_KEYS = "put the key into an environment variable and write the variable's name as api_key_env"
_HINTS = {
    **dict.fromkeys(("api_key", "apikey", "api-key", "key", "token", "secret", "password"), _NO_KEYS),
    "model": "write default_model",
    "url": "write base_url",
    "extra_args": "write args",
    "timeout": "write timeout_ms, in milliseconds",
    "timeout_sec": "write timeout_ms, in milliseconds",
}
_FIELDS_OF_DRIVER: Mapping[str, tuple[str, ...]] = {
    "base_url": (CLAUDE_CLI, CURSOR_CLI, OPENAI_COMPAT, ANTHROPIC, GEMINI),
    "command": (CLAUDE_CLI, CURSOR_CLI),
    "args": (CLAUDE_CLI, CURSOR_CLI),
    "scenario": (SCRIPT,),
}
# Beginnings of keys that their issuers document, and long runs of mixed letters and digits.
_KEY = re.compile(r"(?:sk-|gsk_|hf_|xai-|ghp_|github_pat_|glpat-|pplx-|r8_|AIza|AKIA)[A-Za-z0-9_-]{12,}")
_LONG_WORD = re.compile(r"[A-Za-z0-9]{32,}")


def looks_secret(text: str) -> bool:
    """Whether a text is more likely a key than a name."""
    return _KEY.search(text) is not None or any(_mixed(word) for word in _LONG_WORD.findall(text))


def _mixed(word: str) -> bool:
    kinds = (str.islower, str.isupper, str.isdigit)
    return all(any(kind(letter) for letter in word) for kind in kinds)


def parse_providers(text: str, file: str) -> ProvidersFile:
    """Read the text of a `providers.yaml`.

    Args:
        text: the text.
        file: its path, for messages; a scenario's path is relative to its folder.

    Raises:
        ManifestError: the line, what is wrong there and what would be right. A key is never repeated in it.
    """
    doc = load(text, file)
    if doc.root.data is None:
        return ProvidersFile()
    fields = doc.fields()
    _check_version(fields)
    fields.only(FILE_FIELDS, {"servers": "MCP servers belong into mcp.yaml"})
    default = fields.text("default_provider", pattern=PROVIDER_NAME, right="the name of a provider")
    found: dict[str, ProviderConfig] = {}
    for entry in fields.mappings("providers"):
        one = _provider(entry)
        if one.name in found:
            raise entry.error("name", f"{one.name!r} is given to two providers", "rename one of them")
        found[one.name] = one
    at = f"{file}:{fields.line_of('default_provider')}" if default else ""
    return ProvidersFile(default, tuple(found.values()), at)


def _check_version(fields: Fields) -> None:
    version = fields.whole("version", 0, 1_000_000)
    if version is not None and version > VERSION:
        right = f"this release knows version {VERSION}: update rnixfs, or write the file for it"
        raise fields.error("version", f"is {version}", right)
    if version == 0:
        raise fields.error("version", "is 0", f"write {VERSION}")


def _provider(entry: Fields) -> ProviderConfig:
    entry.only(PROVIDER_FIELDS, _HINTS)
    right = "a name of letters, digits, - and _"
    entry.need("name", right)
    _refuse_secrets(entry)
    name = entry.text("name", limit=limits.MANIFEST_NAME_MAX, pattern=PROVIDER_NAME, right=right)
    driver = _driver(entry, name)
    preset = _preset(name, driver)
    one = ProviderConfig(
        name=name,
        driver=driver,
        base_url=_base_url(entry) or preset.base_url,
        command=entry.text("command", limit=limits.PATH_MAX, right="the program's name or path"),
        args=list(entry.texts("args", limit=limits.PATH_MAX, unique=False) or ()),
        default_model=entry.text("default_model", pattern=MODEL_NAME, right="the name of a model"),
        api_key_env=_key_env(entry) or preset.api_key_env,
        timeout_ms=entry.whole("timeout_ms", 1, limits.TIMEOUT_MS_MAX) or limits.PROVIDER_TIMEOUT_MS,
        scenario=_scenario(entry),
    )
    _check_driver(entry, one)
    return one


def _driver(entry: Fields, name: str) -> str:
    driver = entry.text("driver", right=f"one of {', '.join(DRIVERS)}")
    if not driver and name in PRESETS:
        return PRESETS[name].driver
    if not driver:
        raise entry.error("driver", "is missing", f"add driver: one of {', '.join(DRIVERS)}")
    if driver not in DRIVERS:
        right = f"write one of {', '.join(DRIVERS)}{nearest(driver, DRIVERS)}"
        raise entry.error("driver", f"{driver[:60]!r} is unknown", right)
    return driver


def _preset(name: str, driver: str) -> Preset:
    preset = PRESETS.get(name, Preset())
    return preset if preset.driver == driver else _DRIVER_PRESETS.get(driver, Preset(driver))


def _check_driver(entry: Fields, one: ProviderConfig) -> None:
    for field, drivers in _FIELDS_OF_DRIVER.items():
        if field in entry and one.driver not in drivers:
            right = f"remove it, or use the driver {' or '.join(drivers)}"
            raise entry.error(field, f"means nothing to the driver {one.driver}", right)
    if one.driver == OPENAI_COMPAT and not one.base_url:
        right = "add base_url: the address up to /v1, such as http://127.0.0.1:11434/v1"
        raise entry.error("base_url", "is missing", right)


def _refuse_secrets(entry: Fields) -> None:
    for field, (_, value) in entry.entries.items():
        items = value.data if isinstance(value.data, tuple) else (value,)
        for item in items:
            if isinstance(item.data, str) and looks_secret(item.data):
                what = f"{entry.path}{field} looks like a secret"
                raise ManifestError(entry.file, item.line, what, _NO_KEYS)


def _key_env(entry: Fields) -> str:
    # Not through `pattern`: its message would repeat what may be a key.
    name = entry.text("api_key_env", limit=limits.NAME_MAX, right="the name of a variable")
    if name and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise entry.error("api_key_env", "is not the name of a variable", _NO_KEYS)
    return name


def _scenario(entry: Fields) -> str:
    path = entry.text("scenario", limit=limits.PATH_MAX, right="the path of a scenario")
    if path.startswith("~/"):
        raise entry.error("scenario", "begins with ~", "write an absolute path, or one relative to this file")
    return os.path.normpath(os.path.join(os.path.dirname(entry.file), path)) if path else ""


# --- addresses ---


def _base_url(entry: Fields) -> str:
    right = "an address such as http://127.0.0.1:11434/v1"
    text = entry.text("base_url", limit=2000, right=right)
    if text and (wrong := _url_problem(text)):
        raise entry.error("base_url", wrong, f"write {right}")
    return text.rstrip("/")


def _url_problem(text: str) -> str:
    try:
        url = urlsplit(text)
        port_is_good = url.port != 0
    except ValueError:
        return "is not an address"
    if url.username is not None or url.password is not None:
        return "holds a user name or password"
    if url.query or url.fragment:
        return "goes on after the path"
    return "" if _is_http(url) and port_is_good and re.fullmatch(r"[!-~]+", text) else "is not an address"


def _is_http(url: SplitResult) -> bool:
    return url.scheme in ("http", "https") and bool(url.hostname)


def is_loopback(base_url: str) -> bool:
    """Whether an address leads to this machine by its form, without asking for names."""
    host = urlsplit(base_url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# --- several files ---


def merge(base: ProvidersFile, over: ProvidersFile) -> ProvidersFile:
    """Two files as one: an entry of `over` takes the place of the whole entry of that name.

    Not field by field: half an entry of a project beside the key of the global one would send that key
    to the project's address.
    """
    merged = {one.name: one for one in base.providers} | {one.name: one for one in over.providers}
    default, at = (base.default_provider, base.default_at)
    if over.default_provider:
        default, at = (over.default_provider, over.default_at)
    return ProvidersFile(default, tuple(merged.values()), at)


def default_problem(file: ProvidersFile) -> str:
    """What is wrong with the default provider of merged files, "" when it is there."""
    name = file.default_provider
    if not name or file.named(name):
        return ""
    names = file.names()
    there = f"there are {', '.join(names)}{nearest(name, names)}"
    return f"{file.default_at}: default_provider {name!r} is not the name of a provider; {there}"


def restrict_project(
    file: ProvidersFile, where: str = ".rnix/providers.yaml"
) -> tuple[ProvidersFile, tuple[str, ...]]:
    """A project's file without what only its user may decide (see the module), and a warning for each
    entry that was dropped.

    Args:
        file: the parsed file.
        where: its path, for the warnings.
    """
    kept: list[ProviderConfig] = []
    warnings: list[str] = []
    for one in file.providers:
        if reason := _needs_trust(one):
            warnings.append(
                f"{where}: provider {one.name!r} is not used because it {reason}; to allow it, put the "
                "entry into the global providers.yaml, or list the project's folder in RNIX_TRUSTED"
            )
        else:
            kept.append(one)
    return msgspec.structs.replace(file, providers=tuple(kept)), tuple(warnings)


def _needs_trust(one: ProviderConfig) -> str:
    if one.command or one.args:
        return "names a program or its arguments"
    if one.scenario:
        return "plays a script"
    preset = _preset(one.name, one.driver)
    if not one.base_url or is_loopback(one.base_url):
        return ""
    if one.base_url != preset.base_url:
        return f"asks a model on another machine ({urlsplit(one.base_url).hostname})"
    if one.api_key_env not in ("", preset.api_key_env):
        return f"sends ${one.api_key_env} to another machine"
    return ""
