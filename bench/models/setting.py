"""What the calls are made with: a stub server, and a daemon whose providers are that server."""

import contextlib
import dataclasses
import os
import pathlib
import sys
from collections.abc import Iterator, Sequence

from bench import servers
from bench.models import answers, programs
from bench.servers import BenchError, Program

KEY = "BENCH_KEY"
"""The variable with the key of all providers, which nobody looks at."""
COMMAND_ENV = ("ANTHROPIC_API_KEY", "CURSOR_API_KEY")
DOUBLE_SAYS = "Hello from cursor"
"""What the stand-in for Cursor's command answers."""
STREAMS_MAX = 1000  # calls at once that the configuration allows

_DOUBLE = pathlib.Path(__file__).resolve().parents[2] / "tests" / "models" / "cursor_double.py"

_PROVIDERS = """
providers:
  - {{name: openai-compat, driver: openai-compat, base_url: "{url}/v1", default_model: {model},
     concurrency: {most}}}
  - {{name: anthropic, base_url: "{url}", default_model: {model}, api_key_env: {key}}}
  - {{name: gemini, base_url: "{url}", default_model: {model}, api_key_env: {key}}}
  - {{name: cursor, command: "{cursor}", api_key_env: {key}}}
"""
_CLAUDE = """
  - {{name: claude, base_url: "{url}", default_model: {model}, api_key_env: {key}, command: "{claude}"}}
"""


@dataclasses.dataclass(frozen=True)
class Setting:
    """A stub server and a daemon that asks it.

    Args:
        url: the server's address.
        stub: the server.
        daemon: the daemon.
        mountpoint: its mount.
        claude: the path of the `claude` command, "" without one.
        cursor: the path of the stand-in for Cursor's command.
        home: an empty home for commands.
    """

    url: str
    stub: Program
    daemon: Program
    mountpoint: pathlib.Path
    claude: str
    cursor: pathlib.Path
    home: pathlib.Path

    def environment(self, *keys: str) -> dict[str, str]:
        """The environment of a command that is started without us."""
        named = {"HOME": str(self.home), "PATH": os.environ["PATH"], "ANTHROPIC_BASE_URL": self.url}
        return named | dict.fromkeys(keys, os.environ[KEY]) | {"DISABLE_AUTOUPDATER": "1"}


@contextlib.contextmanager
def ready(folder: pathlib.Path, gap: float) -> Iterator[Setting]:
    """Both, for as long as the block runs.

    Args:
        folder: an empty place for them.
        gap: seconds between two pieces of a stream.
    """
    os.environ[KEY] = "sk-bench-000000000000000000000000"
    claude, cursor, home = programs.claude(), folder / "cursor-agent", folder / "empty"
    home.mkdir()
    cursor.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{_DOUBLE}" "$@"\n')
    cursor.chmod(0o755)
    with contextlib.ExitStack() as stack:
        stub = Program([sys.executable, "-m", "bench.models.stub", str(gap)])
        stack.callback(stub.end)
        port = stub.line()
        if not port.isdecimal():
            raise BenchError("the stub server did not start")
        url = f"http://127.0.0.1:{port}"
        daemon, mountpoint = stack.enter_context(servers.daemon(folder))
        text = (_PROVIDERS + (_CLAUDE if claude else "")).format(
            url=url, model=answers.MODEL, key=KEY, most=STREAMS_MAX, cursor=cursor, claude=claude
        )
        (folder / "home" / ".config" / "rnix" / "providers.yaml").write_text(text)
        yield Setting(url, stub, daemon, mountpoint, claude, cursor, home)


def pin(setting: Setting) -> tuple[set[int], set[int]]:
    """Keep the daemon on one core, and give that core and the others, on which all else is to run."""
    cores: Sequence[int] = sorted(os.sched_getaffinity(0))
    own, others = {cores[0]}, set(cores[1:]) or {cores[0]}
    servers.pin(setting.daemon.pid, own)
    servers.pin(setting.stub.pid, others)
    return own, others
