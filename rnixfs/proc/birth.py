"""What a process was born with: all that makes it what it is, and all that limits its power.

It is the first event of a process, and a restart of the system makes the process anew from it alone: agents,
skills and configuration may have changed since, and mean nothing to a process that runs.
"""

from typing import Any

import msgspec

from rnixfs.llm import Fallback
from rnixfs.proc.request import SpawnRequest
from rnixfs.proc.supervision import SupervisorSpec


class Origin(msgspec.Struct, frozen=True):
    """What a process was forked from.

    Args:
        uuid: the process.
        step: the last of its steps that the fork has seen.
    """

    uuid: str
    step: int


class Birth(msgspec.Struct, omit_defaults=True):
    """The first event of a process.

    Args:
        uuid: its key for all time.
        ppid: pid of its parent, whose rights bound it for life; 0 for a child of the system.
        depth: how many generations below the system it stands, from 1.
        intent: what is to be done.
        agent: the agent's name.
        skills: names of its skills.
        provider: name of its model under `dev/llm/`.
        model: the provider's model, empty for the default.
        system_prompt: instructions, whole.
        allowed_devices: paths it may use, None for everything the parent may.
        max_steps: reasoning steps before it is ended.
        tokens: tokens before it is ended; 0 for no limit.
        cost_usd: dollars before it is ended; 0 for no limit.
        timeout_ms: milliseconds of running before it is ended; 0 for no limit.
        cwd: the folder of the host where it stands.
        roots: folders of the host that its file tools may reach.
        writable: whether they may change files.
        env: variables in which its environment differs from the daemon's; None for one that is taken away.
        supervisor: what it supervises.
        request: how it was asked for.
        key: the key under which it was asked for, with the scope of that key; empty without one.
        origin: what it was forked from.
        effort: how much the model is to think, in the provider's words; empty for its default.
        fallback: who is asked, in order, when the provider cannot answer.
        mcp: names of the MCP servers that are mounted for it.
    """

    uuid: str
    ppid: int = 0
    depth: int = 1
    intent: str = ""
    agent: str = ""
    skills: tuple[str, ...] = ()
    provider: str = ""
    model: str = ""
    system_prompt: str = ""
    allowed_devices: tuple[str, ...] | None = None
    max_steps: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    timeout_ms: int = 0
    cwd: str = ""
    roots: tuple[str, ...] = ()
    writable: bool = False
    env: dict[str, str | None] = {}
    supervisor: SupervisorSpec | None = None
    request: SpawnRequest | None = None
    key: str = ""
    origin: Origin | None = None
    effort: str = ""
    fallback: tuple[Fallback, ...] = ()
    mcp: tuple[str, ...] = ()

    def data(self) -> dict[str, Any]:
        """It as the data of an event."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data


def read_birth(data: dict[str, Any]) -> Birth:
    """The birth that an event tells of."""
    return msgspec.convert(data, Birth)


def differences(env: dict[str, str], base: dict[str, str]) -> dict[str, str | None]:
    """The variables in which an environment differs from another; None for one that it lacks."""
    changed: dict[str, str | None] = {name: value for name, value in env.items() if base.get(name) != value}
    return changed | {name: None for name in base if name not in env}


def applied(changes: dict[str, str | None], base: dict[str, str]) -> dict[str, str]:
    """The environment that differs from `base` in some variables."""
    kept = {name: value for name, value in base.items() if name not in changes}
    return kept | {name: value for name, value in changes.items() if value is not None}
