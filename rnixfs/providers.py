"""`providers.yaml`: which models there are and how they are reached.

What a project's file may not do is in `providermerge`.
"""

import os.path
import re
from collections.abc import Mapping

import msgspec

from rnixfs import limits
from rnixfs.address import is_loopback, read_base_url
from rnixfs.keycheck import NO_KEYS, looks_secret, refuse_keys
from rnixfs.llm import Fallback
from rnixfs.manifest import MODEL_NAME, PROVIDER_NAME
from rnixfs.presets import (
    ANTHROPIC,
    CLAUDE_CLI,
    CURSOR_CLI,
    DRIVERS,
    GEMINI,
    OPENAI_COMPAT,
    PRESETS,
    SCRIPT,
    preset_of,
)
from rnixfs.yamlread import Entry, Fields, ManifestError, Value, clip, kind_of, load, nearest

__all__ = [
    "ANTHROPIC",
    "BUILT_IN",
    "CLAUDE_CLI",
    "CURSOR_CLI",
    "DRIVERS",
    "FILE_FIELDS",
    "GEMINI",
    "MODEL_FIELDS",
    "OPENAI_COMPAT",
    "PRESETS",
    "PROVIDER_FIELDS",
    "SCRIPT",
    "VERSION",
    "ModelConfig",
    "ProviderConfig",
    "ProvidersFile",
    "is_loopback",
    "looks_secret",
    "parse_providers",
]

VERSION = 1
"""The version of the format."""


class ModelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of one model of a provider. Prices are dollars for a million tokens.

    Args:
        name: as the provider calls it.
        context_window: tokens that it takes at most; 0 where unknown.
        max_tokens: most tokens of an answer where the request names none; 0 for the provider's default.
        input_usd: price of input tokens.
        output_usd: price of output tokens.
        cached_usd: price of input tokens that the provider had in its cache; None for that of the others.
    """

    name: str
    context_window: int = 0
    max_tokens: int = 0
    input_usd: float = 0.0
    output_usd: float = 0.0
    cached_usd: float | None = None


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
        models: what is known of its models.
        concurrency: calls that may run at once; 0 for the driver's default.
        retries: further attempts after one that failed and may succeed a little later.
        fallback: who is asked, in order, when it cannot answer and the request names nobody.
        effort: how much its models are to think where a request does not say, in the provider's words.
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
    models: list[ModelConfig] = []
    concurrency: int = 0
    retries: int = limits.MODEL_RETRIES
    fallback: list[Fallback] = []
    effort: str = ""

    def model(self, name: str) -> ModelConfig | None:
        """What is known of a model."""
        return next((one for one in self.models if one.name == name), None)


class ProvidersFile(msgspec.Struct, frozen=True):
    """A whole file, or several merged.

    Args:
        default_provider: the provider where neither request nor agent names one; "" for none.
        providers: the entries, in order.
        default_at: `file:line` of the default, for messages.
        fallback_at: `file:line` of each entry's fallback by the entry's name, for messages.
    """

    default_provider: str = ""
    providers: tuple[ProviderConfig, ...] = ()
    default_at: str = ""
    fallback_at: dict[str, str] = {}

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


FILE_FIELDS = ("version", "default_provider", "providers")
PROVIDER_FIELDS = tuple(field.name for field in msgspec.structs.fields(ProviderConfig))
MODEL_FIELDS = tuple(field.name for field in msgspec.structs.fields(ModelConfig))
_PRICE = "write input_usd and output_usd, in dollars for a million tokens"
_HINTS = {
    **dict.fromkeys(("api_key", "apikey", "api-key", "key", "token", "secret", "password"), NO_KEYS),
    "model": "write default_model",
    "url": "write base_url",
    "extra_args": "write args",
    "timeout": "write timeout_ms, in milliseconds",
    "timeout_sec": "write timeout_ms, in milliseconds",
    "reasoning_effort": "write effort",
    "thinking": "write effort",
    "max_retries": "write retries",
    "max_concurrency": "write concurrency",
    "fallback_provider": "write fallback: PROVIDER, or PROVIDER:MODEL",
    "fallback_model": "write fallback: PROVIDER:MODEL, or :MODEL for another model of this provider",
    "fallbacks": "write fallback, which may be a list",
    "max_tokens": "write it into an entry of models",
    "context_window": "write it into an entry of models",
    "cost_per_token": f"in an entry of models, {_PRICE}",
}
_MODEL_HINTS = {
    "model": "write name",
    "id": "write name",
    "context": "write context_window, in tokens",
    "ctx_size": "write context_window, in tokens",
    "max_output_tokens": "write max_tokens",
    **dict.fromkeys(("cost", "price", "cost_per_token", "input", "output"), _PRICE),
}
_FIELDS_OF_DRIVER: Mapping[str, tuple[str, ...]] = {
    "base_url": (CLAUDE_CLI, CURSOR_CLI, OPENAI_COMPAT, ANTHROPIC, GEMINI),
    "command": (CLAUDE_CLI, CURSOR_CLI),
    "args": (CLAUDE_CLI, CURSOR_CLI),
    "scenario": (SCRIPT,),
    "effort": (CLAUDE_CLI, OPENAI_COMPAT, ANTHROPIC, GEMINI),
}


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
    refuse_keys(file, doc.root)
    fields = doc.fields()
    _check_version(fields)
    fields.only(FILE_FIELDS, {"servers": "MCP servers belong into mcp.yaml"})
    default = fields.text("default_provider", pattern=PROVIDER_NAME, right="the name of a provider")
    found: dict[str, ProviderConfig] = {}
    fallback_at: dict[str, str] = {}
    for entry in fields.mappings("providers"):
        one = _provider(entry)
        if one.name in found:
            raise entry.error("name", f"{one.name!r} is given to two providers", "rename one of them")
        found[one.name] = one
        if one.fallback:
            fallback_at[one.name] = f"{file}:{entry.line_of('fallback')}"
    at = f"{file}:{fields.line_of('default_provider')}" if default else ""
    return ProvidersFile(default, tuple(found.values()), at, fallback_at)


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
    name = entry.text("name", limit=limits.MANIFEST_NAME_MAX, pattern=PROVIDER_NAME, right=right)
    driver = _driver(entry, name)
    preset = preset_of(name, driver)
    retries = entry.whole("retries", 0, limits.PROVIDER_RETRIES_MAX)
    one = ProviderConfig(
        name=name,
        driver=driver,
        base_url=read_base_url(entry, driver) or preset.base_url,
        command=entry.text("command", limit=limits.PATH_MAX, right="the program's name or path"),
        args=list(entry.texts("args", limit=limits.PATH_MAX, unique=False) or ()),
        default_model=entry.text("default_model", pattern=MODEL_NAME, right="the name of a model"),
        api_key_env=_key_env(entry) or preset.api_key_env,
        timeout_ms=entry.whole("timeout_ms", 1, limits.TIMEOUT_MS_MAX) or limits.PROVIDER_TIMEOUT_MS,
        scenario=_scenario(entry),
        models=_models(entry),
        concurrency=entry.whole("concurrency", 1, limits.PROVIDER_CONCURRENCY_MAX) or 0,
        retries=limits.MODEL_RETRIES if retries is None else retries,
        fallback=_fallback(entry, name),
        effort=entry.text("effort", limit=64, pattern=r"[\w.-]+", right="a word such as low or high"),
    )
    _check_driver(entry, one)
    return one


def _driver(entry: Fields, name: str) -> str:
    driver = entry.text("driver", right=f"one of {', '.join(DRIVERS)}")
    if not driver and name in PRESETS:
        return PRESETS[name].driver
    if not driver:
        right = f"add driver: one of {', '.join(DRIVERS)}"
        if close := nearest(name, PRESETS):
            right += f"; or give it a name that is known{close}"
        raise entry.error("driver", "is missing", right)
    if driver not in DRIVERS:
        right = f"write one of {', '.join(DRIVERS)}{nearest(driver, DRIVERS)}"
        raise entry.error("driver", f"{driver[:60]!r} is unknown", right)
    return driver


def _check_driver(entry: Fields, one: ProviderConfig) -> None:
    for field, drivers in _FIELDS_OF_DRIVER.items():
        if field in entry and one.driver not in drivers:
            right = f"remove it, or use the driver {' or '.join(drivers)}"
            raise entry.error(field, f"means nothing to the driver {one.driver}", right)
    if one.driver == OPENAI_COMPAT and not one.base_url:
        right = "add base_url: the address up to /v1, such as http://127.0.0.1:11434/v1"
        raise entry.error("base_url", "is missing", right)


def _key_env(entry: Fields) -> str:
    # Not through `pattern`: its message would repeat what may be a key of a form that nobody knows.
    name = entry.text("api_key_env", limit=limits.NAME_MAX, right="the name of a variable")
    if name and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise entry.error("api_key_env", "is not the name of a variable", NO_KEYS)
    return name


def _scenario(entry: Fields) -> str:
    path = entry.text("scenario", limit=limits.PATH_MAX, right="the path of a scenario")
    if path.startswith("~/"):
        raise entry.error("scenario", "begins with ~", "write an absolute path, or one relative to this file")
    return os.path.normpath(os.path.join(os.path.dirname(entry.file), path)) if path else ""


# --- models ---


def _models(entry: Fields) -> list[ModelConfig]:
    found: dict[str, ModelConfig] = {}
    items = entry.items("models", "a list, such as [{name: qwen3, context_window: 32768}]") or ()
    for at, item in enumerate(items, 1):
        one = _model(_named(entry, item, f"{entry.path}models[{at}]", "name", "the name of a model"))
        if one.name in found:
            what = f"{entry.path}models names {clip(one.name)} twice"
            raise ManifestError(entry.file, item.line, what, "keep one of the two")
        found[one.name] = one
    return list(found.values())


def _named(entry: Fields, item: Value, where: str, field: str, right: str) -> Fields:
    """The fields of an item; a text stands for the one field that matters most."""
    if isinstance(item.data, str):
        return Fields(entry.file, item.line, f"{where}.", {field: Entry(item.line, item)}, entry.bounds)
    if not isinstance(item.data, dict):
        what = f"{where} is {kind_of(item)}"
        raise ManifestError(entry.file, item.line, what, f"write {right}, or fields such as {field}: example")
    return Fields(entry.file, item.line, f"{where}.", item.data, entry.bounds)


def _model(fields: Fields) -> ModelConfig:
    fields.only(MODEL_FIELDS, _MODEL_HINTS)
    fields.need("name", "the name of a model, as the provider calls it")
    window = fields.whole("context_window", 1, limits.BUDGET_TOKENS_MAX) or 0
    answer = fields.whole("max_tokens", 1, limits.BUDGET_TOKENS_MAX) or 0
    if window and answer > window:
        right = f"write at most {window}, since an answer lies in the window"
        raise fields.error("max_tokens", f"is {answer}, more than context_window", right)
    return ModelConfig(
        name=fields.text("name", pattern=MODEL_NAME, right="the name of a model"),
        context_window=window,
        max_tokens=answer,
        input_usd=_price(fields, "input_usd") or 0.0,
        output_usd=_price(fields, "output_usd") or 0.0,
        cached_usd=_price(fields, "cached_usd"),
    )


def _price(fields: Fields, name: str) -> float | None:
    dollars = fields.number(name, 0, limits.PRICE_USD_MAX)
    return None if dollars is None else float(dollars)


# --- who is asked instead ---

_ANOTHER = "a provider such as groq, groq:MODEL, :MODEL for another model of this provider"


def _fallback(entry: Fields, name: str) -> list[Fallback]:
    if "fallback" not in entry:
        return []
    value, where = entry.entries["fallback"].value, f"{entry.path}fallback"
    listed = isinstance(value.data, tuple)
    items = value.data if isinstance(value.data, tuple) else (value,)
    if len(items) > limits.FALLBACKS_MAX:
        right = f"at most {limits.FALLBACKS_MAX} are taken"
        raise entry.error("fallback", f"has {len(items)} entries", right)
    found: list[Fallback] = []
    for at, item in enumerate(items, 1):
        place = f"{where}[{at}]" if listed else where
        one = _another(entry, item, place, name)
        if one in found:
            raise ManifestError(entry.file, item.line, f"{where} names the same twice", "keep one of the two")
        found.append(one)
    return found


def _another(entry: Fields, item: Value, where: str, name: str) -> Fallback:
    right = f"write {_ANOTHER}, or a mapping with provider and model"
    if isinstance(item.data, str):
        provider, colon, model = item.data.strip().partition(":")
        if not re.fullmatch(f"(?:{PROVIDER_NAME})?", provider) or not _completes(model, colon, provider):
            raise ManifestError(entry.file, item.line, f"{where} is {clip(item.data)}", right)
    else:
        fields = _named(entry, item, where, "provider", _ANOTHER)
        # `groq: llama` with a blank is YAML for a mapping, and easily written for `groq:llama`.
        fields.only(
            ("provider", "model"), {one: f"write {one}:MODEL without a blank" for one in fields.entries}
        )
        provider = fields.text("provider", pattern=PROVIDER_NAME, right="the name of a provider")
        model = fields.text("model", pattern=MODEL_NAME, right="the name of a model")
        if not provider and not model:
            raise ManifestError(entry.file, item.line, f"{where} names nobody", right)
    if provider == name and not model:
        other = "name another provider, or another model of it as :MODEL"
        raise ManifestError(entry.file, item.line, f"{where} is the provider itself", other)
    return Fallback("" if provider == name else provider, model)


def _completes(model: str, colon: str, provider: str) -> bool:
    return re.fullmatch(MODEL_NAME, model) is not None if colon else bool(provider)
