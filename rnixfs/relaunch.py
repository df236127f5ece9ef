"""Launching an agent for a rehearsal: as today's configuration says, but for the model, which is given.

A rehearsal is a replay, or the test of a case. It takes place in a system of its own that is only in memory.
"""

from collections.abc import Callable

from rnixfs.bootstrap import Settings, System
from rnixfs.launch import AgentLauncher
from rnixfs.loader import Agent, Shelf
from rnixfs.modelshelf import Models
from rnixfs.proc.birth import Birth
from rnixfs.proc.process import Launch, Process
from rnixfs.proc.request import SpawnRequest
from rnixfs.state.store import Log

MakeSystem = Callable[[Log, str], System]
"""Makes the system of a rehearsal, given its log and the folder where the process stands."""


class Relauncher(AgentLauncher):
    """Resolves spawn requests without looking whether the model could be asked.

    Args:
        system: where the processes are to run.
        provider: the model's name under `dev/llm/`.
        models: the models that they see; those of the system if None.
    """

    def __init__(self, system: System, provider: str, models: Models | None = None) -> None:
        super().__init__(system.library, models or system.models, system.home, lambda: "")
        self._given = provider

    def _provider(self, request: SpawnRequest, agent: Agent, parent: Process | None, shelf: Shelf) -> str:
        return self._given


def usual_system(log: Log, cwd: str) -> System:
    """A system as the daemon has it, which reads today's configuration.

    Args:
        log: where its events go.
        cwd: the folder of the host that it shows.
    """
    return System(Settings((cwd,)), log=log)


def relaunch(system: System, request: SpawnRequest, provider: str, models: Models | None = None) -> Launch:
    """What a request would start today; arguments as for `Relauncher`.

    Raises:
        SyscallError: what of it cannot be done any more.
    """
    return Relauncher(system, provider, models).launch(request, None)


def revive(system: System, birth: Birth) -> Launch:
    """What was started, whatever is configured today."""
    return Relauncher(system, birth.provider).revive(birth)
