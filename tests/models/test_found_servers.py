"""Servers that were found, among configured providers: who is listed, who hides whom, who is the default."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rnixfs.errors import Code, SyscallError
from rnixfs.llm import Emit, ModelAnswer, ModelRequest
from rnixfs.loader import Library, Shelf
from rnixfs.model import Model
from rnixfs.modelshelf import Models
from rnixfs.providers import ProviderConfig
from rnixfs.types import Caller
from tests.config.shelves import write

PERSON = Caller(1000, 1000)


class Mute(Model):
    """A model that is there, or is not; nobody asks it."""

    def __init__(self, entry: ProviderConfig, reason: str) -> None:
        self.provider = entry.name
        self.reason = reason

    def unavailable(self) -> str:
        return self.reason

    def details(self) -> dict[str, object]:
        return {}

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> ModelAnswer:
        raise AssertionError("nobody asks")


def server(name: str, port: int = 1) -> ProviderConfig:
    """A server that was found."""
    return ProviderConfig(name, "openai-compat", f"http://127.0.0.1:{port}/v1", default_model="m")


class Home:
    """A user's folder, the servers that run, and the providers that follow from both.

    Args:
        top: where the folder lies.
        installed: the providers that can be used, beside servers.
    """

    def __init__(self, top: Path, *installed: str) -> None:
        self.top = top
        self.installed = {"script", *installed}
        self.running: tuple[ProviderConfig, ...] = ()
        self.models = Models(self.make, self.start, found=lambda: self.running)

    def make(self, entry: ProviderConfig) -> Model | None:
        is_server = entry.driver == "openai-compat"
        return Mute(entry, "" if is_server or entry.name in self.installed else "is not installed")

    @staticmethod
    def start(_job: Callable[[], Awaitable[None]]) -> None:
        raise AssertionError("nothing runs")

    @property
    def shelf(self) -> Shelf:
        return Library([self.top / "built-in", self.top]).for_cwd("/")

    def configure(self, text: str) -> None:
        write(self.top / "providers.yaml", text)

    def names(self) -> list[str]:
        return [name for name, _ in self.models.folder(self.shelf).entries(PERSON)]

    def shown(self) -> dict[str, bool]:
        return {str(row["name"]): bool(row["available"]) for row in self.models.states(self.shelf)}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


async def test_servers_are_there_while_they_run(home: Home) -> None:
    """In dev/llm, in sys/providers and for sys/check, behind what is configured."""
    assert home.names() == ["claude", "cursor", "script"]
    home.running = (server("ollama"), server("vllm", 2))
    expected = ["claude", "cursor", "script", "ollama", "vllm"]
    assert home.names() == list(home.shown()) == list(home.models.checked(home.shelf)) == expected
    home.models.check(home.shelf, "vllm")
    home.running = ()
    assert home.names() == ["claude", "cursor", "script"]


async def test_an_entry_hides_the_server_of_its_name(home: Home) -> None:
    """What a user wrote is never replaced by what was found."""
    home.configure("providers: [{name: ollama, base_url: 'http://127.0.0.1:9/v1', default_model: mine}]")
    home.running = (server("ollama"),)
    (row,) = [row for row in home.models.states(home.shelf) if row["name"] == "ollama"]
    assert row["default_model"] == "mine"
    service = home.models.service(home.shelf, "ollama")
    assert service is not None
    assert service.entry.base_url == "http://127.0.0.1:9/v1"


@pytest.mark.parametrize(
    ("installed", "running", "first"),
    [
        (["claude", "cursor"], ["ollama"], "claude"),
        (["cursor"], ["ollama"], "cursor"),
        ([], ["vllm", "ollama"], "ollama"),
        ([], ["lmstudio"], "lmstudio"),
        ([], [], "script"),
    ],
)
def test_where_nothing_is_said_programs_come_first_then_servers(
    tmp_path: Path, installed: list[str], running: list[str], first: str
) -> None:
    """The script, which is no AI, is asked only where there is nothing else."""
    home = Home(tmp_path, *installed)
    home.running = tuple(server(name) for name in running)
    assert home.models.first_available(home.shelf) == first


@pytest.mark.parametrize(
    ("entry", "first"),
    [
        ("{name: ollama, base_url: 'http://127.0.0.1:1/v1', default_model: mine}", "ollama"),
        ("{name: ollama, base_url: 'http://127.0.0.1:1/v1'}", "script"),
        ("{name: ollama, base_url: 'http://127.0.0.1:9/v1', default_model: mine}", "script"),
    ],
)
def test_an_entry_for_a_server_is_the_default_only_where_it_can_answer(
    home: Home, entry: str, first: str
) -> None:
    """Its server must run, and it must name a model."""
    home.configure(f"providers: [{entry}]")
    home.running = (server("ollama", 1),)
    assert home.models.first_available(home.shelf) == first
    home.running = ()
    assert home.models.first_available(home.shelf) == "script"


def test_a_server_that_does_not_run_is_told_from_other_names(home: Home) -> None:
    """The one may start at any time; the others are mistakes, and what would be right is told."""
    for name, code, words in (
        ("ollama", Code.SERVICE_UNAVAILABLE, "start it, or write an entry 'ollama' into providers.yaml"),
        ("olama", Code.NOT_FOUND, "there are: claude, cursor, script (did you mean ollama?)"),
        ("groq", Code.NOT_FOUND, "its address is known, so an entry with `name: groq` is enough"),
    ):
        with pytest.raises(SyscallError) as caught:
            home.models.check(home.shelf, name)
        assert caught.value.code is code
        assert words in caught.value.reason


async def test_a_wrong_file_is_the_reason_of_every_provider(home: Home) -> None:
    """Where the configuration was never right, nothing is used in its place, and each line says why."""
    home.configure("providers: [{nam: x}]")
    home.running = (server("ollama"),)
    assert home.shown() == {"claude": False, "cursor": False, "script": False}
    assert home.names() == ["claude", "cursor", "script"]
    where = f"{home.top}/providers.yaml:1: providers[1].nam is not a field here"
    for row in home.models.states(home.shelf):
        assert str(row["reason"]).startswith(where)
    for call in (home.models.check, home.models.service):
        with pytest.raises(SyscallError) as caught:
            call(home.shelf, "script")
        assert caught.value.reason.startswith(where)


async def test_who_is_checked_is_who_is_asked(home: Home) -> None:
    """The line of a provider for sys/check is its line of sys/providers, and its models are its own."""
    provider = home.models.checked(home.shelf)["script"]
    assert await provider.check() == []
    assert provider.row()["name"] == "script"
    with pytest.raises(SyscallError) as caught:
        await home.models.checked(home.shelf)["claude"].check()
    assert "is not installed" in caught.value.reason
