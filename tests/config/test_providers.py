"""providers.yaml: every field, every refusal, and what a project may not do."""

import re
from functools import partial
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rnixfs import limits
from rnixfs.llm import Fallback
from rnixfs.presets import LOCAL
from rnixfs.providermerge import (
    default_problem,
    fallback_problems,
    merge,
    problems,
    restrict_project,
    with_found,
)
from rnixfs.providers import (
    BUILT_IN,
    DRIVERS,
    MODEL_FIELDS,
    PRESETS,
    PROVIDER_FIELDS,
    ModelConfig,
    ProviderConfig,
    ProvidersFile,
    is_loopback,
    looks_secret,
    parse_providers,
)
from rnixfs.yamlread import ManifestError, load

from .shelves import attempt

EXAMPLE = """\
version: 1
default_provider: local
providers:
  - name: local
    driver: openai-compat
    base_url: http://127.0.0.1:11434/v1/
    default_model: qwen3
    api_key_env: LOCAL_KEY
    timeout_ms: 1000
  - name: mine
    driver: claude-cli
    command: /opt/claude
    args: [--verbose, --verbose]
  - name: play
    driver: script
    scenario: plays/a.yaml
  - name: groq
    concurrency: 3
    retries: 0
    effort: high
    models:
      - llama-small
      - name: llama:70b
        context_window: 131072
        max_tokens: 32768
        input_usd: 0.59
        output_usd: 1
        cached_usd: 0
    fallback:
      - local
      - local:qwen3:4b
      - :llama-small
      - {provider: mine, model: sonnet}
      - model: llama-tiny
"""


def test_every_field_is_read() -> None:
    assert parse_providers(EXAMPLE, "/conf/providers.yaml") == ProvidersFile(
        default_provider="local",
        default_at="/conf/providers.yaml:2",
        providers=(
            ProviderConfig(
                name="local",
                driver="openai-compat",
                base_url="http://127.0.0.1:11434/v1",
                default_model="qwen3",
                api_key_env="LOCAL_KEY",
                timeout_ms=1000,
            ),
            ProviderConfig("mine", "claude-cli", command="/opt/claude", args=["--verbose", "--verbose"]),
            ProviderConfig("play", "script", scenario="/conf/plays/a.yaml"),
            ProviderConfig(
                "groq",
                "openai-compat",
                base_url="https://api.groq.com/openai/v1",
                api_key_env="GROQ_API_KEY",
                concurrency=3,
                retries=0,
                effort="high",
                models=[
                    ModelConfig("llama-small"),
                    ModelConfig("llama:70b", 131072, 32768, 0.59, 1.0, 0.0),
                ],
                fallback=[
                    Fallback("local"),
                    Fallback("local", "qwen3:4b"),
                    Fallback("", "llama-small"),
                    Fallback("mine", "sonnet"),
                    Fallback("", "llama-tiny"),
                ],
            ),
        ),
        fallback_at={"groq": "/conf/providers.yaml:29"},
    )


def test_the_example_holds_every_field() -> None:
    """No field goes untested because nobody thought of it."""
    found = {field for entry in load(EXAMPLE, "f").fields().mappings("providers") for field in entry.entries}
    assert found == set(PROVIDER_FIELDS)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("groq", [Fallback("groq")]),
        ("groq:llama-3", [Fallback("groq", "llama-3")]),
        ("{provider: groq}", [Fallback("groq")]),
        ("':a:b'", [Fallback("", "a:b")]),
        ("ollama:small", [Fallback("", "small")]),
        ("{provider: ollama, model: small}", [Fallback("", "small")]),
        ("[]", []),
    ],
)
def test_who_is_asked_instead_is_written_in_several_ways(text: str, found: list[Fallback]) -> None:
    """A text, a mapping or a list; the provider's own name means another model of it."""
    assert one(f"{{name: ollama, fallback: {text}}}").fallback == found


def test_what_is_left_out_is_the_default() -> None:
    """An entry without the newer fields is what it was before they were there."""
    found = one("name: ollama")
    assert (found.models, found.concurrency, found.retries) == ([], 0, limits.MODEL_RETRIES)
    assert (found.fallback, found.effort) == ([], "")
    assert found.model("x") is None


def test_a_model_is_found_by_its_name() -> None:
    """What is known of a model is asked for by the name that the provider uses."""
    found = one("{name: ollama, models: [a, {name: b, context_window: 5}]}")
    assert found.model("b") == ModelConfig("b", 5)


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "version: 1", "providers: []"])
def test_a_file_without_entries_is_good(text: str) -> None:
    assert parse_providers(text, "f") == ProvidersFile()


def one(text: str) -> ProviderConfig:
    return parse_providers(f"providers:\n - {text}", "/conf/f").providers[0]


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_known_name_fills_what_is_left_out(name: str) -> None:
    found, preset = one(f"name: {name}"), PRESETS[name]
    assert (found.driver, found.base_url, found.api_key_env) == (
        preset.driver,
        preset.base_url,
        preset.api_key_env,
    )
    assert found.timeout_ms == limits.PROVIDER_TIMEOUT_MS


def test_what_is_written_wins_over_what_a_name_fills_in() -> None:
    found = one("{name: groq, base_url: 'http://localhost:1/v1', api_key_env: MINE}")
    assert (found.base_url, found.api_key_env) == ("http://localhost:1/v1", "MINE")


def test_a_driver_with_an_address_of_its_own_fills_it_under_any_name() -> None:
    found = one("{name: opus, driver: anthropic}")
    assert (found.base_url, found.api_key_env) == ("https://api.anthropic.com", "ANTHROPIC_API_KEY")


def test_a_known_name_with_another_driver_gets_nothing_of_the_preset() -> None:
    assert one("{name: groq, driver: claude-cli}") == ProviderConfig("groq", "claude-cli")


KEY = "sk-" + "abcdefGHIJKL0123456789"
REFUSED = [
    ("version: 2", 1, "version is 2", "update rnixfs"),
    ("version: 0", 1, "version is 0", "write 1"),
    ("version: '1'", 1, "version is text", "a whole number"),
    ("- a", 1, "the file is a list", "write fields"),
    ("provider: a", 1, "provider is not a field here", "did you mean providers?"),
    ("default_provider: a/b", 1, "default_provider is 'a/b'", "the name of a provider"),
    ("providers: {}", 1, "providers is a mapping", "a list of entries"),
    ("providers:\n  - a", 2, "providers[1] is text", "write fields"),
    ("providers:\n  - driver: script", 2, "providers[1].name is missing", "add name"),
    ("providers:\n  - name: ../x", 2, "providers[1].name is '../x'", "letters, digits"),
    ("providers:\n  - name: x", 2, "providers[1].driver is missing", "openai-compat"),
    ("providers:\n  - name: x\n    driver: opena-compat", 3, "is unknown", "did you mean openai-compat?"),
    ("providers:\n  - name: x\n    driver: openai-compat", 2, "base_url is missing", "up to /v1"),
    ("providers:\n  - name: claude\n  - name: claude", 3, "'claude' is given to two", "rename one"),
    ("providers:\n  - name: script\n    command: x", 3, "means nothing to the driver script", "claude-cli"),
    ("providers:\n  - name: claude\n    scenario: x", 3, "means nothing to the driver", "driver script"),
    ("providers:\n  - name: groq\n    args: x", 3, "args is text", "a list"),
    ("providers:\n  - name: claude\n    default_model: -x", 3, "default_model is '-x'", "name of a model"),
    ("providers:\n  - name: claude\n    timeout_ms: 0", 3, "timeout_ms is 0", "from 1 to"),
    ("providers:\n  - name: claude\n    timeout_sec: 3", 3, "not a field", "write timeout_ms"),
    ("providers:\n  - name: script\n    scenario: ~/x", 3, "begins with ~", "absolute path"),
    ("providers:\n  - name: groq\n    base_url: localhost:1/v1", 3, "is not an address", "http://"),
    ("providers:\n  - name: groq\n    base_url: ftp://x/", 3, "is not an address", "http://"),
    ("providers:\n  - name: groq\n    base_url: 'http://[x/'", 3, "is not an address", "http://"),
    ("providers:\n  - name: groq\n    base_url: http://x:99999/", 3, "is not an address", "http://"),
    ("providers:\n  - name: groq\n    base_url: http://x:0/", 3, "is not an address", "http://"),
    ("providers:\n  - name: groq\n    base_url: http://x y/", 3, "is not an address", "http://"),
    ("providers:\n  - name: groq\n    base_url: http://u:p@x/v1", 3, "user name or password", "http://"),
    ("providers:\n  - name: groq\n    base_url: http://x/v1?k=1", 3, "goes on after the path", "http://"),
    ("providers:\n  - name: groq\n    api_key: x", 3, "api_key is not a field", "environment variable"),
    ("providers:\n  - name: groq\n    token: x", 3, "token is not a field", "environment variable"),
    ("providers:\n  - name: groq\n    api_key_env: $KEY", 3, "not the name of a variable", "environment"),
    ("providers:\n  - name: grok", 2, "driver is missing", "did you mean groq?"),
    ("providers:\n  - name: groq\n    concurrency: 0", 3, "concurrency is 0", "from 1 to"),
    ("providers:\n  - name: groq\n    concurrency: many", 3, "concurrency is text", "a whole number"),
    ("providers:\n  - name: groq\n    retries: -1", 3, "retries is -1", "from 0 to"),
    ("providers:\n  - name: groq\n    retries: 99", 3, "retries is 99", "from 0 to 10"),
    ("providers:\n  - name: groq\n    max_retries: 3", 3, "not a field", "write retries"),
    ("providers:\n  - name: groq\n    retrys: 3", 3, "not a field", "did you mean retries?"),
    ("providers:\n  - name: groq\n    effort: very much", 3, "effort is 'very much'", "such as low"),
    ("providers:\n  - name: groq\n    reasoning_effort: low", 3, "not a field", "write effort"),
    ("providers:\n  - name: script\n    effort: low", 3, "nothing to the driver script", "remove it"),
    ("providers:\n  - name: groq\n    models: {a: 5}", 3, "models is a mapping", "a list"),
    ("providers:\n  - name: groq\n    models:\n     - a\n     - [b]", 5, "models[2] is a list", "name"),
    ("providers:\n  - name: groq\n    models:\n     - 5", 4, "models[1] is a whole number", "the name of"),
    ("providers:\n  - name: groq\n    models: ['-x']", 3, "models[1].name is '-x'", "name of a model"),
    ("providers:\n  - name: groq\n    models:\n     - context_window: 5", 4, "name is missing", "add name"),
    ("providers:\n  - name: groq\n    models:\n     - a\n     - name: a", 5, "names 'a' twice", "keep one"),
    (
        "providers:\n  - name: groq\n    models:\n     - name: a\n       window: 5",
        5,
        "not a field",
        "fields are",
    ),
    (
        "providers:\n  - name: groq\n    models:\n     - name: a\n       context_windw: 5",
        5,
        "models[1].context_windw is not a field",
        "did you mean context_window?",
    ),
    (
        "providers:\n  - name: groq\n    models:\n     - {name: a, context_window: 0}",
        4,
        "context_window is 0",
        "from 1",
    ),
    (
        "providers:\n - name: groq\n   models:\n    - name: a\n      context_window: 5\n      max_tokens: 6",
        6,
        "max_tokens is 6, more than",
        "at most 5",
    ),
    (
        "providers:\n  - name: groq\n    models:\n     - {name: a, input_usd: -1}",
        4,
        "input_usd is -1",
        "a number from 0",
    ),
    (
        "providers:\n  - name: groq\n    models:\n     - {name: a, output_usd: .nan}",
        4,
        "output_usd is",
        "a number",
    ),
    (
        "providers:\n  - name: groq\n    models:\n     - {name: a, input_usd: $3}",
        4,
        "input_usd is text",
        "a number",
    ),
    ("providers:\n  - name: groq\n    models:\n     - {name: a, cost: 1}", 4, "not a field", "dollars for a"),
    ("providers:\n  - name: groq\n    cost_per_token: 1", 3, "not a field", "an entry of models"),
    ("providers:\n  - name: groq\n    fallback: 5", 3, "fallback is a whole number", "groq:MODEL"),
    ("providers:\n  - name: groq\n    fallback: a b", 3, "fallback is 'a b'", "groq:MODEL"),
    ("providers:\n  - name: groq\n    fallback: 'a:'", 3, "fallback is 'a:'", "groq:MODEL"),
    ("providers:\n  - name: groq\n    fallback: ''", 3, "fallback is ''", "groq:MODEL"),
    ("providers:\n  - name: groq\n    fallback: groq", 3, "fallback is the provider itself", "as :MODEL"),
    (
        "providers:\n  - name: groq\n    fallback:\n     - a\n     - groq",
        5,
        "fallback[2] is the provi",
        ":MODEL",
    ),
    ("providers:\n  - name: groq\n    fallback:\n     - a\n     - a", 5, "names the same twice", "keep one"),
    ("providers:\n  - name: groq\n    fallback: {}", 3, "names nobody", "groq:MODEL"),
    ("providers:\n  - name: groq\n    fallback: {ollama: x}", 3, "not a field", "write ollama:MODEL without"),
    (
        "providers:\n  - name: groq\n    fallback: {provider: a/b}",
        3,
        "provider is 'a/b'",
        "name of a provider",
    ),
    ("providers:\n  - name: groq\n    fallback: [[a]]", 3, "fallback[1] is a list", "groq:MODEL"),
    (
        f"providers:\n  - name: groq\n    fallback: {[f'p{n}' for n in range(9)]}",
        3,
        "fallback has 9 entries",
        "at most 8",
    ),
    (
        "providers:\n  - name: groq\n    base_url: http://[::1]/v1/chat/completions",
        3,
        "ends in /chat/completions",
        "write http://[::1]/v1",
    ),
    (
        "providers:\n  - name: anthropic\n    base_url: http://localhost:1/v1/",
        3,
        "base_url ends in /v1",
        "write http://localhost:1",
    ),
    (
        "providers:\n  - name: claude\n    base_url: http://x/v1/messages",
        3,
        "ends in /v1/messages",
        "http://x",
    ),
    ("providers:\n  - name: gemini\n    base_url: http://x/v1beta", 3, "ends in /v1beta", "write http://x"),
    (f"providers:\n  - name: groq\n    api_key_env: {KEY}", 3, "looks like a secret", "api_key_env"),
    (f"default_provider: {KEY}", 1, "default_provider looks like a secret", "api_key_env"),
    (f"providers:\n  - name: groq\n    {KEY}: x", 3, "a field's name looks like a secret", "api_key_env"),
    (
        f"providers:\n  - name: groq\n    models:\n      - a\n      - name: b\n        cost: {KEY}",
        6,
        "providers[1].models[2].cost looks like a secret",
        "api_key_env",
    ),
    (
        f"providers:\n  - name: groq\n    fallback: [a, '{KEY}:b']",
        3,
        "fallback[2] looks like a secret",
        "api_key_env",
    ),
    (
        f"providers:\n  - name: claude\n    args:\n      - --k\n      - --k={KEY}",
        5,
        "a secret",
        "api_key_env",
    ),
]


@pytest.mark.parametrize(("text", "line", "what", "right"), REFUSED)
def test_a_bad_file_is_refused_with_file_line_and_remedy(text: str, line: int, what: str, right: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_providers(text, "/conf/providers.yaml")
    assert (caught.value.file, caught.value.line) == ("/conf/providers.yaml", line)
    assert what in caught.value.what
    assert right in caught.value.right


@pytest.mark.parametrize("field", [*PROVIDER_FIELDS, "api_key", "key", "password"])
def test_no_message_repeats_a_key(field: str) -> None:
    """Wherever a key was put by mistake, the error does not carry it into a log."""
    lines = {"name": "groq", field: KEY}
    text = "providers:\n  - " + "\n    ".join(f"{name}: {value}" for name, value in lines.items())
    with pytest.raises(ManifestError) as caught:
        parse_providers(text, "f")
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("sk-ant-api03-abcdefghijkl", True),
        ("gsk_abcdefghijkl", True),
        ("AIzaSyA1234567890abcd", True),
        ("aB3" * 11, True),
        ("OPENAI_API_KEY", False),
        ("A_VERY_LONG_NAME_OF_A_VARIABLE_2_BE_READ", False),
        ("sk-learn", False),
        ("Qwen2.5-Coder-32B-Instruct-GPTQ-Int4", False),
        ("claude-opus-4-5-20251101", False),
        ("https://gateway.example.com/0123456789abcdef0123456789abcdef/v1", False),
    ],
)
def test_keys_are_told_from_names(text: str, secret: bool) -> None:
    assert looks_secret(text) is secret


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://localhost:1/v1", True),
        ("http://LOCALHOST", True),
        ("http://a.localhost", True),
        ("http://127.9.9.9:1", True),
        ("http://[::1]:8000/v1", True),
        ("http://127.0.0.1.evil.example", False),
        ("http://localhost.evil.example", False),
        ("http://0.0.0.0", False),
        ("http://10.0.0.1", False),
        ("https://api.openai.com/v1", False),
    ],
)
def test_only_addresses_of_this_machine_are_loopback(url: str, here: bool) -> None:
    assert is_loopback(url) is here


# --- several files ---


def test_merging_goes_by_name_and_keeps_the_order() -> None:
    base = ProvidersFile("a", (ProviderConfig("a", "script"), ProviderConfig("b", "script")), "base:1")
    over = ProvidersFile("", (ProviderConfig("b", "claude-cli"), ProviderConfig("c", "script")))
    merged = merge(base, over)
    assert merged.names() == ("a", "b", "c")
    found = merged.named("b")
    assert found is not None
    assert found.driver == "claude-cli"
    assert (merged.default_provider, merged.default_at) == ("a", "base:1")
    assert merge(base, ProvidersFile("c", (), "over:2")).default_at == "over:2"
    assert merged.named("d") is None


def test_merging_keeps_the_line_of_what_is_in_force() -> None:
    """The line of a fallback is that of the entry whose fallback it is."""
    base = parse_providers("providers: [{name: groq, fallback: a}, {name: ollama, fallback: b}]", "base")
    over = parse_providers("providers:\n - name: groq", "over")
    assert merge(base, over).fallback_at == {"ollama": "base:1"}
    again = parse_providers("providers:\n - name: groq\n   fallback: c", "again")
    assert merge(merge(base, over), again).fallback_at == {"ollama": "base:1", "groq": "again:3"}


def test_merging_never_joins_half_entries() -> None:
    """An address from one file and a key from another never meet."""
    base = ProvidersFile("", (ProviderConfig("x", "openai-compat", "https://good/v1", api_key_env="KEY"),))
    over = ProvidersFile("", (ProviderConfig("x", "openai-compat", "https://evil/v1"),))
    assert merge(base, over).providers == over.providers


def test_a_default_that_is_not_there_is_named_with_its_line() -> None:
    assert default_problem(BUILT_IN) == ""
    assert default_problem(merge(BUILT_IN, ProvidersFile("script"))) == ""
    problem = default_problem(merge(BUILT_IN, ProvidersFile("scrip", (), "f:2")))
    assert problem.startswith("f:2: default_provider 'scrip'")
    assert "did you mean script?" in problem


def test_a_fallback_that_is_not_there_is_named_with_its_line() -> None:
    """Who would be asked instead and does not exist is found when the files are read, not when it matters."""
    text = "providers:\n - name: groq\n   fallback: [ollama, clade, ':small', script]\n"
    text += " - name: openai\n   fallback: gpt-4"
    file = merge(BUILT_IN, parse_providers(text, "f"))
    first, second = fallback_problems(file)
    assert first.startswith(
        "f:3: fallback 'clade' of 'groq' is not the name of a provider; there are claude,"
    )
    assert "did you mean claude?" in first
    assert second.startswith("f:5: fallback 'gpt-4' of 'openai' is not")
    assert "a model of the same provider is written :MODEL" in second
    assert problems(file) == (first, second)
    wrong = msgspec.structs.replace(file, default_provider="x", default_at="f:1")
    assert problems(wrong) == (default_problem(wrong), first, second)
    known = msgspec.structs.replace(file, default_provider="deepseek", default_at="f:1")
    assert "an entry with `name: deepseek` is enough" in default_problem(known)


@pytest.mark.parametrize("name", LOCAL)
def test_a_server_of_this_machine_may_be_named_before_it_runs(name: str) -> None:
    """It is there while it runs; a file that names it is right all the time."""
    file = merge(
        BUILT_IN,
        parse_providers(f"default_provider: {name}\nproviders: [{{name: groq, fallback: {name}}}]", "f"),
    )
    assert problems(file) == ()


def test_what_was_found_stands_behind_what_is_configured() -> None:
    """An entry hides the server of its name; others are added in their order."""
    file = merge(BUILT_IN, parse_providers("providers: [{name: vllm, default_model: mine}]", "f"))
    found = tuple(
        ProviderConfig(name, "openai-compat", "http://127.0.0.1:1/v1") for name in ("ollama", "vllm")
    )
    both = with_found(file, found)
    assert both.names() == ("claude", "cursor", "script", "vllm", "ollama")
    assert both.named("vllm") == file.named("vllm")
    assert with_found(file, ()) == file


KEPT = [
    "{name: local, driver: openai-compat, base_url: 'http://127.0.0.1:1/v1', api_key_env: ANY}",
    "{name: ollama, default_model: qwen3}",
    "{name: groq}",
    "{name: anthropic, default_model: x}",
    "{name: opus, driver: anthropic}",
    "{name: claude, default_model: sonnet}",
    "{name: script}",
]
DROPPED = [
    ("{name: claude, command: ./claude}", "names a program"),
    ("{name: claude, args: [--x]}", "names a program"),
    ("{name: script, scenario: x.yaml}", "plays a script"),
    ("{name: x, driver: openai-compat, base_url: 'https://evil.example/v1'}", "(evil.example)"),
    ("{name: openai, base_url: 'https://evil.example/v1'}", "(evil.example)"),
    ("{name: openai, base_url: 'http://127.0.0.1.evil.example/v1'}", "evil.example"),
    ("{name: anthropic, base_url: 'https://evil.example'}", "(evil.example)"),
    ("{name: claude, base_url: 'https://evil.example'}", "(evil.example)"),
    ("{name: openai, api_key_env: AWS_SECRET_ACCESS_KEY}", "sends $AWS_SECRET_ACCESS_KEY"),
    (
        "{name: x, driver: openai-compat, base_url: 'https://api.openai.com/v1', api_key_env: OTHER}",
        "another",
    ),
]


@pytest.mark.parametrize("text", KEPT)
def test_a_project_may_name_local_and_known_models(text: str) -> None:
    file = parse_providers(f"providers:\n - {text}", "f")
    assert restrict_project(file) == (file, ())


@pytest.mark.parametrize(("text", "reason"), DROPPED)
def test_a_project_may_not_run_programs_or_reach_other_machines(text: str, reason: str) -> None:
    file = parse_providers(f"providers:\n - {text}\n - name: ollama", "f")
    kept, warnings = restrict_project(file, "p/providers.yaml")
    assert kept.names() == ("ollama",)
    assert len(warnings) == 1
    assert warnings[0].startswith(
        f"p/providers.yaml: provider {file.providers[0].name!r} is not used because"
    )
    assert reason in warnings[0]
    assert "global providers.yaml" in warnings[0]
    assert "RNIX_TRUSTED" in warnings[0]


def project(text: str, users: str = "") -> tuple[ProviderConfig, list[str]]:
    """The entry of a project as it is used, beside the user's own file."""
    file = parse_providers(f"providers:\n - {text}", "f")
    kept, warnings = restrict_project(file, "p", parse_providers(f"providers: [{users}]", "u"))
    return kept.providers[0], list(warnings)


def test_a_project_may_not_say_what_things_cost() -> None:
    """A price of nothing would make limits on cost void: those of a project are left out, and it says so."""
    found, warnings = project("{name: groq, models: [{name: a, context_window: 9, input_usd: 0.001}, b]}")
    assert found.models == [ModelConfig("a", 9), ModelConfig("b")]
    assert len(warnings) == 1
    assert warnings[0].startswith("p: the prices of provider 'groq' are not used, since who is asked")
    assert "RNIX_TRUSTED" in warnings[0]
    assert project("{name: groq, models: [{name: a, cached_usd: 0}]}")[1] != []
    assert project("{name: groq, models: [{name: a, context_window: 9}]}")[1] == []


def test_the_users_prices_outlive_an_entry_of_the_project() -> None:
    """A project's entry takes the place of the user's, but not of what the user said that models cost."""
    users = "{name: groq, models: [{name: a, input_usd: 1, cached_usd: 0}, {name: b, output_usd: 2}]}"
    found, warnings = project("{name: groq, models: [{name: a, context_window: 9}]}", users)
    assert found.models == [ModelConfig("a", 9, 0, 1.0, 0.0, 0.0), ModelConfig("b", 0, 0, 0.0, 2.0)]
    assert warnings == []
    assert project("name: groq", users)[0].models[1].output_usd == 2


@pytest.mark.parametrize(
    ("text", "users", "concurrency", "warned"),
    [
        ("{name: groq, concurrency: 9}", "", 9, False),
        ("{name: groq, concurrency: 9}", "{name: groq}", 9, False),
        ("{name: groq, concurrency: 9}", "{name: groq, concurrency: 2}", 2, True),
        ("{name: groq, concurrency: 1}", "{name: groq, concurrency: 2}", 1, False),
        ("{name: groq}", "{name: groq, concurrency: 2}", 2, False),
    ],
)
def test_a_project_may_not_call_more_at_once_than_its_user(
    text: str, users: str, concurrency: int, warned: bool
) -> None:
    """A limit that the user set holds for the project's entry of that name."""
    found, warnings = project(text, users)
    assert found.concurrency == concurrency
    assert any("calls at once" in one for one in warnings) is warned


def test_the_other_fields_of_a_project_are_its_own() -> None:
    """How often it is asked again, and how much a model thinks: a project may say that, as it may say whom to
    ask."""
    text = "{name: groq, retries: 5, effort: low}"
    found, warnings = project(text, "{name: groq, effort: high, retries: 1}")
    assert (found.retries, found.effort) == (5, "low")
    assert warnings == []


LINE = st.builds(
    lambda name, value: f"{name}: {value}",
    st.sampled_from([*PROVIDER_FIELDS, "api_key"]),
    st.sampled_from(
        [
            *DRIVERS,
            *PRESETS,
            "",
            "1",
            "[a]",
            "{}",
            "[[a]]",
            "[{name: a}]",
            "a:b",
            ":",
            ".inf",
            "http://[",
            "http://a:b",
            "http://x\u2100y",
            "'",
        ]
    ),
)


def _read_restricted(text: str) -> ProvidersFile:
    return restrict_project(parse_providers(text, "f"))[0]


@given(st.one_of(st.text(max_size=80), st.lists(LINE, max_size=6).map("\n    ".join)))
def test_any_text_is_a_file_or_a_refusal(text: str) -> None:
    """parse_providers and restrict_project raise nothing but ManifestError."""
    for whole in (text, f"providers:\n  - name: a\n    {text}"):
        found = attempt(partial(_read_restricted, whole))
        if isinstance(found, ManifestError):
            assert found.what
            assert found.right


# --- the page ---

PAGE = Path(__file__).resolve().parents[2] / "docs" / "man" / "sys-providers.md"


def test_the_page_has_every_field_and_every_known_name() -> None:
    """Whoever reads the manual finds each field once, and none that is not there."""
    text = PAGE.read_text().partition("## providers.yaml")[2]
    rows = re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)
    found = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert sorted(found) == sorted([*PROVIDER_FIELDS, *MODEL_FIELDS, *PRESETS])


@pytest.mark.parametrize("name", [name for name, preset in PRESETS.items() if preset.base_url])
def test_the_page_has_the_address_and_key_of_every_known_name(name: str) -> None:
    """The manual says where a name leads."""
    preset = PRESETS[name]
    key = f"`{preset.api_key_env}` " if preset.api_key_env else ""
    assert f"| `{name}` | `{preset.base_url}` | {key}|" in PAGE.read_text()


def test_a_project_leads_no_file_to_another_provider() -> None:
    """Its fallbacks to others are left out with a warning, and the user's own stay; other models of the same
    provider may be named."""
    project = parse_providers(
        "providers:\n - {name: ollama, fallback: [claude]}\n - {name: vllm, fallback: [':small']}\n", "p"
    )
    kept, warnings = restrict_project(project, "p")
    assert [one.fallback for one in kept.providers] == [[], [Fallback("", "small")]]
    assert len(warnings) == 1
    assert "fallbacks of provider 'ollama' are not used" in warnings[0]
    users = parse_providers("providers: [{name: ollama, fallback: script}]", "u")
    kept, _ = restrict_project(project, "p", users)
    assert kept.providers[0].fallback == [Fallback("script")]
