"""Programs that stand in for command line models, and the real one where it can be had."""

import importlib.util
import os
import pathlib
import sys
from typing import Any

import pytest

from rnixfs.children import Children
from rnixfs.drivers.claude import ClaudeCli
from rnixfs.presets import CLAUDE_CLI
from rnixfs.providers import ProviderConfig
from tests.models.servers import SECONDS

KEY = "sk-ant-very-secret-0123456789"

CLAUDE_HELP = """Usage: claude [options] [command] [prompt]

Options:
  --bare                                Minimal mode, see --settings and
                                        --nothing-of-this
  --effort <level>                      Effort level
  --include-partial-messages            Pieces as they arrive
  -p, --print                           Print and exit
  --no-session-persistence              Keep nothing
  --setting-sources <sources>           Which settings
  --strict-mcp-config                   No other servers
  --disable-slash-commands              No commands
  --tools <tools...>                    Which tools

Commands:
  doctor                                Check
"""


def real_claude() -> str:
    """The program that the package claude-agent-sdk bundles; its absence is a failure, here and in CI."""
    spec = importlib.util.find_spec("claude_agent_sdk")
    places = list(spec.submodule_search_locations or []) if spec else []
    for place in places:
        path = pathlib.Path(place, "_bundled", "claude")
        if path.is_file():
            return str(path)
    pytest.fail(
        f"the claude command is not installed beside {sys.executable}: run `make dev`, which installs the "
        "package claude-agent-sdk that bundles it"
    )


def environment(home: pathlib.Path, url: str, key: str = KEY) -> dict[str, str]:
    """What a user's shell would have."""
    env = {"HOME": str(home), "PATH": os.defpath, "LANG": "C.UTF-8", "ANTHROPIC_BASE_URL": url}
    return env | ({"ANTHROPIC_API_KEY": key} if key else {})


def entry(**fields: Any) -> ProviderConfig:
    """An entry of providers.yaml for claude."""
    usual: dict[str, Any] = {"name": "claude", "driver": CLAUDE_CLI, "timeout_ms": round(SECONDS * 1000)}
    return ProviderConfig(**usual | fields)


def claude(url: str, home: pathlib.Path, key: str = KEY, **fields: Any) -> ClaudeCli:
    """The real program against a server of ours; `fields` are those of its entry."""
    fields = {"command": real_claude(), "default_model": "sonnet"} | fields
    return ClaudeCli(entry(**fields), Children(), environment(home, url, key))


def stand_in(
    folder: pathlib.Path, script: str, name: str = "claude", tells: str = CLAUDE_HELP, asked: str = ":"
) -> str:
    """A shell script that tells its options like the real program, and does `script` when it is asked."""
    path = folder / name
    helps = f"if [ \"$1\" = --help ]; then {asked}; cat <<'END'\n{tells}END\nexit 0; fi\n"
    path.write_text(f"#!/bin/sh\n{helps}{script}\n")
    path.chmod(0o755)
    return str(path)


def standing_in(command: str, env: dict[str, str] | None = None, **fields: Any) -> ClaudeCli:
    """A model with a program of ours."""
    user = {"HOME": "/nonexistent", "PATH": os.defpath, "ANTHROPIC_API_KEY": KEY}
    return ClaudeCli(entry(command=command, **fields), Children(), user if env is None else env)


def everybody_with(text: str) -> list[int]:
    """The processes that carry a text in their environment."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                carries = text.encode() in (folder / "environ").read_bytes()
            except OSError:
                continue
            if carries:
                found.append(int(folder.name))
    return found
