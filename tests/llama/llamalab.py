"""A system whose models are llama-server, once through each driver that can speak with it."""

import contextlib
import json
import os
import pathlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

import trio

from rnixfs.bootstrap import Settings, System
from tests.llama.server import ALIAS, SECONDS, LlamaServer
from tests.models.programs import real_claude
from tests.tree import MemoryTree, Opened, ask, read, read_on

HTTP = ("chat", "messages")
"""The providers that reach it by HTTP: by the interface of OpenAI's form, and by that of Anthropic's."""
COMMAND = "command"
"""The provider that reaches it through the real `claude`."""
_KEY = "sk-ant-no-server-here-looks-at-it-0123456789"

_PROVIDERS = """
default_provider: chat
providers:
  - {{name: chat, driver: openai-compat, base_url: "{url}/v1"}}
  - {{name: messages, driver: anthropic, base_url: "{url}", default_model: {model}, api_key_env: TEST_KEY}}
  - {{name: command, driver: claude-cli, base_url: "{url}", default_model: {model}, api_key_env: TEST_KEY,
     command: "{claude}"}}
"""


def configured(folder: pathlib.Path, llama: LlamaServer) -> dict[str, str]:
    """The environment of a user whose configuration names the server.

    Args:
        folder: where the home is made.
        llama: the server.
    """
    config = folder / "home" / ".config" / "rnix"
    config.mkdir(parents=True)
    text = _PROVIDERS.format(url=llama.url, model=ALIAS, claude=real_claude())
    (config / "providers.yaml").write_text(text)
    return environment(folder) | {"RNIX_LOCAL_SERVERS": "none", "TEST_KEY": _KEY}


def environment(folder: pathlib.Path) -> dict[str, str]:
    """The environment of a user without any configuration."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    (folder / "work").mkdir()
    return {"HOME": str(home), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}


class Lab:
    """A system in memory, and the server that answers it.

    Args:
        system: a running one.
        llama: the server.
    """

    def __init__(self, system: System, llama: LlamaServer) -> None:
        self.system = system
        self.llama = llama
        self.tree = MemoryTree(system)

    async def ask(self, provider: str, **request: Any) -> Any:
        """Ask a model, and give its answer as decoded JSON."""
        with trio.fail_after(SECONDS):
            return json.loads(await ask(self.tree, f"dev/llm/{provider}", request))

    async def opened(self, provider: str, **request: Any) -> Opened:
        """Ask a model, and give the open file; the answer is yet to be read."""
        file = await self.tree.open(f"dev/llm/{provider}", os.O_RDWR)
        await file.write(json.dumps(request).encode())
        return file

    async def events(self, file: Opened) -> list[dict[str, Any]]:
        """The rest of an answer that streams as events."""
        return [json.loads(line) for line in (await read_on(file)).splitlines()]

    async def text(self, path: str) -> str:
        """All of a file."""
        with trio.fail_after(SECONDS):
            return (await read(self.tree, path)).decode()

    async def json(self, path: str) -> Any:
        """A file that is one JSON value."""
        return json.loads(await self.text(path))

    async def spent(self) -> tuple[int, int]:
        """The tokens that the server has read and written so far."""
        return await trio.to_thread.run_sync(self.llama.spent)

    async def slots(self, busy: int) -> None:
        """Wait until the server writes this many answers."""

        async def so() -> bool:
            return await trio.to_thread.run_sync(self.llama.busy) == busy

        await until(so)


@contextlib.asynccontextmanager
async def system_of(env: Mapping[str, str], llama: LlamaServer) -> AsyncGenerator[Lab]:
    """A system for as long as the block runs.

    Args:
        env: its environment; the folder of the project is `work` beside its home.
        llama: the server.
    """
    system = System(Settings((str(pathlib.Path(env["HOME"]).with_name("work")),), env=env))
    async with trio.open_nursery() as nursery:
        await nursery.start(system.kernel.run)
        try:
            yield Lab(system, llama)
        finally:
            await system.models.aclose()
            nursery.cancel_scope.cancel()


async def until(so: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something that must come true."""
    with trio.fail_after(SECONDS):
        while True:
            if await so():
                return
            await trio.sleep(0.01)
