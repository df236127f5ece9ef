"""Several `providers.yaml` as one: the user's over what is built in, the project's over that.

**What a project's file may not do.** The file in a project's `.rnix` comes with whatever was cloned, and a
model decides what an agent runs. So an entry there that names a program to start (`command`, `args`), a
script to play (`scenario`), or a model on another machine (`base_url`, except the public address that is
known for that name) is dropped unless its user trusts the project: each would let the author of the
project run commands as that user, or read out a key. Programs and addresses belong into the global file.

What holds back spending is the user's to say, too: a price of nothing would make every limit on cost void. So
prices of a project are left out, and those of the user, and the user's limit on calls at once, stay in
force for an entry of the project that takes the place of the user's.

The same goes for `fallback`: an agent that may write in the project, and may use but one model, could
otherwise have that model's file lead to another. Other models of the same provider may be named.
"""

from urllib.parse import urlsplit

import msgspec

from rnixfs.address import is_loopback
from rnixfs.presets import LOCAL, PRESETS, preset_of
from rnixfs.providers import ModelConfig, ProviderConfig, ProvidersFile
from rnixfs.yamlread import nearest


def merge(base: ProvidersFile, over: ProvidersFile) -> ProvidersFile:
    """Two files as one: an entry of `over` takes the place of the whole entry of that name.

    Not field by field: half an entry of a project beside the key of the global one would send that key
    to the project's address.
    """
    merged = {one.name: one for one in base.providers} | {one.name: one for one in over.providers}
    kept = {name: at for name, at in base.fallback_at.items() if over.named(name) is None}
    default, at = (base.default_provider, base.default_at)
    if over.default_provider:
        default, at = (over.default_provider, over.default_at)
    return ProvidersFile(default, tuple(merged.values()), at, kept | over.fallback_at)


def with_found(file: ProvidersFile, found: tuple[ProviderConfig, ...]) -> ProvidersFile:
    """Merged files and the servers that were found on this machine; an entry hides the server of its name."""
    more = tuple(one for one in found if file.named(one.name) is None)
    return msgspec.structs.replace(file, providers=(*file.providers, *more)) if more else file


# --- what is named and not there ---


def problems(file: ProvidersFile) -> tuple[str, ...]:
    """What merged files name and do not have: the default provider, and who is asked instead of another."""
    default = default_problem(file)
    return (*([default] if default else ()), *fallback_problems(file))


def default_problem(file: ProvidersFile) -> str:
    """What is wrong with the default provider of merged files, "" when it is there."""
    name = file.default_provider
    if not name or _may_be_there(file, name):
        return ""
    what = f"default_provider {name!r} is not the name of a provider"
    return f"{file.default_at}: {what}; {_there(file, name)}"


def fallback_problems(file: ProvidersFile) -> tuple[str, ...]:
    """The fallbacks of merged files that no provider has the name of, each with its line."""
    wrong: list[str] = []
    for one in file.providers:
        for other in one.fallback:
            if other.provider and not _may_be_there(file, other.provider):
                what = f"fallback {other.provider!r} of {one.name!r} is not the name of a provider"
                own = "a model of the same provider is written :MODEL"
                there = _there(file, other.provider)
                wrong.append(f"{file.fallback_at.get(one.name, one.name)}: {what}; {there}; {own}")
    return tuple(wrong)


def _may_be_there(file: ProvidersFile, name: str) -> bool:
    # A server of this machine is there while it runs.
    return file.named(name) is not None or name in LOCAL


def _there(file: ProvidersFile, name: str) -> str:
    return f"there are {', '.join(file.names())}{remedy(file, name)}"


def remedy(file: ProvidersFile, name: str) -> str:
    """What to do about a name that no provider has, as the end of a sentence; "" where nothing is like it."""
    if name in PRESETS:
        return f"; its address is known, so an entry with `name: {name}` is enough"
    return nearest(name, [*file.names(), *PRESETS])


# --- projects ---

_NOTHING = ProvidersFile()


def restrict_project(
    file: ProvidersFile, where: str = ".rnix/providers.yaml", users: ProvidersFile = _NOTHING
) -> tuple[ProvidersFile, tuple[str, ...]]:
    """A project's file without what only its user may decide (see the module), and a warning for each
    thing that was left out.

    Args:
        file: the parsed file.
        where: its path, for the warnings.
        users: what the user's own file says.
    """
    kept: list[ProviderConfig] = []
    warnings: list[str] = []
    for one in file.providers:
        if reason := _needs_trust(one):
            what = f"is not used because it {reason}"
            warnings.append(f"{where}: provider {one.name!r} {what}; to allow it, {_ALLOW}")
            continue
        held, left_out = _held(one, users.named(one.name))
        kept.append(held)
        of = (
            f"of provider {one.name!r} are not used, since who is asked and at what cost is its user's choice"
        )
        warnings += [f"{where}: the {what} {of}; to allow it, {_ALLOW}" for what in left_out]
    at = {one.name: file.fallback_at[one.name] for one in kept if one.fallback}
    return msgspec.structs.replace(file, providers=tuple(kept), fallback_at=at), tuple(warnings)


_ALLOW = "put the entry into the global providers.yaml, or list the project's folder in RNIX_TRUSTED"


def _needs_trust(one: ProviderConfig) -> str:
    if one.command or one.args:
        return "names a program or its arguments"
    if one.scenario:
        return "plays a script"
    preset = preset_of(one.name, one.driver)
    if not one.base_url or is_loopback(one.base_url):
        return ""
    if one.base_url != preset.base_url:
        return f"asks a model on another machine ({urlsplit(one.base_url).hostname})"
    if one.api_key_env not in ("", preset.api_key_env):
        return f"sends ${one.api_key_env} to another machine"
    return ""


def _held(one: ProviderConfig, users: ProviderConfig | None) -> tuple[ProviderConfig, list[str]]:
    """An entry of a project within what its user said of that name, and what of it is not used."""
    known = users.models if users is not None else []
    models = {model.name: _priced(model, _of(known, model.name)) for model in one.models}
    models |= {model.name: model for model in known if model.name not in models}
    left_out = ["prices"] if any(map(_has_price, one.models)) else []
    concurrency, most = one.concurrency, users.concurrency if users is not None else 0
    if most and (concurrency > most or not concurrency):
        left_out += ["calls at once"] if concurrency else []
        concurrency = most
    fallback = [other for other in one.fallback if other.provider in ("", one.name)]
    if len(fallback) < len(one.fallback):
        left_out.append("fallbacks")
        fallback = users.fallback if users is not None else []
    return msgspec.structs.replace(
        one, models=list(models.values()), concurrency=concurrency, fallback=fallback
    ), left_out


def _of(models: list[ModelConfig], name: str) -> ModelConfig:
    return next((one for one in models if one.name == name), ModelConfig(name))


def _has_price(model: ModelConfig) -> bool:
    return (model.input_usd, model.output_usd, model.cached_usd) != (0.0, 0.0, None)


def _priced(model: ModelConfig, prices: ModelConfig) -> ModelConfig:
    return msgspec.structs.replace(
        model, input_usd=prices.input_usd, output_usd=prices.output_usd, cached_usd=prices.cached_usd
    )
