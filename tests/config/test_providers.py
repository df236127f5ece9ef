"""providers.yaml: every field, every refusal, and what a project may not do."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rnixfs import limits
from rnixfs.providers import (
    BUILT_IN,
    DRIVERS,
    PRESETS,
    PROVIDER_FIELDS,
    ProviderConfig,
    ProvidersFile,
    default_problem,
    is_loopback,
    looks_secret,
    merge,
    parse_providers,
    restrict_project,
)
from rnixfs.yamlread import ManifestError

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
        ),
    )


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
    (f"providers:\n  - name: groq\n    api_key_env: {KEY}", 3, "looks like a secret", "api_key_env"),
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


LINE = st.builds(
    lambda name, value: f"{name}: {value}",
    st.sampled_from([*PROVIDER_FIELDS, "api_key"]),
    st.sampled_from(
        [*DRIVERS, *PRESETS, "", "1", "[a]", "{}", "http://[", "http://a:b", "http://x\u2100y", "'"]
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
