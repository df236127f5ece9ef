"""Processes that are made from what was before: by the same key once, and from a step of another process."""

import dataclasses
from typing import TYPE_CHECKING, Any

import msgspec

from rnixfs import idempotency
from rnixfs.errors import Code, SyscallError, denied, invalid
from rnixfs.proc.birth import Origin, read_birth
from rnixfs.proc.process import Process
from rnixfs.proc.request import SpawnRequest
from rnixfs.proc.view import covers
from rnixfs.state.store import Record
from rnixfs.types import Caller

if TYPE_CHECKING:
    from rnixfs.kernel import Kernel

_POWER = ("grant", "revoke", "budget")
"""Events that change what a process may; a fork has all of them, those after its step included."""


class Forks:
    """What remembers and repeats births.

    Args:
        kernel: has the processes and the log.
    """

    def __init__(self, kernel: "Kernel") -> None:
        self._kernel = kernel

    # --- idempotency keys ---

    @staticmethod
    def scoped(request: SpawnRequest, caller: Caller) -> str:
        """The key of a request with its scope, since two callers may choose the same; empty without one."""
        key = request.idempotency_key
        return idempotency.scoped("/proc/spawn", caller, key) if key else ""

    def known(self, key: str, request: SpawnRequest) -> Process | None:
        """The process that was made with a key before.

        Raises:
            SyscallError: INVALID where that was another request; NOT_FOUND where it was removed since.
        """
        found = self._kernel.log.keyed(key) if key else []
        if not found:
            return None
        born = read_birth(found[0].data)
        # The variables of whoever asks differ from terminal to terminal, and are no part of the question.
        if _asked(born.request) != _asked(request):
            raise invalid(
                f"the idempotency key {request.idempotency_key!r} was used for another request, which made "
                f"process {found[0].pid}; use a new key for a new request"
            )
        process = self._kernel.history.by_pid(found[0].pid)
        if process is None:
            raise SyscallError(Code.NOT_FOUND, f"process {found[0].pid}, made with this key, was removed")
        return process

    # --- forks ---

    def spawn(self, request: SpawnRequest, caller: Caller) -> Process:
        """Make the fork that a request asks for, and let it run."""
        fork = request.fork
        assert fork is not None
        return self.fork(self.source(fork.source), fork.step, caller, self.scoped(request, caller), request)

    def source(self, who: str) -> Process:
        """The process that a fork is to be made from, by pid or UUID.

        Raises:
            SyscallError: NOT_FOUND.
        """
        entry = self._kernel.log.entry(int(who) if who.isdecimal() else who)
        process = self._kernel.history.by_pid(entry.pid) if entry is not None else None
        if process is None:
            raise SyscallError(Code.NOT_FOUND, f"no process {who}, neither in proc nor in proc/history")
        return process

    def creator(self, source: Process) -> int:
        """The pid of the process that made another, whether that has ended or not; 0 for the system."""
        return read_birth(next(self._kernel.log.load(source.pid, ("spawn",))).data).ppid

    def fork(
        self,
        source: Process,
        step: int | None,
        caller: Caller,
        key: str = "",
        request: SpawnRequest | None = None,
    ) -> Process:
        """Make a process that has been through the same steps as another, up to one, and goes on from there.

        It is bound by all that binds the other now: rights, denials, budget, parent.

        Args:
            source: the other process, which may have ended.
            step: the last step that it has been through; 0 for none, None for the last one that the other
                finished without ending by it.
            caller: who asks; an agent needs power over the other.
            key: the idempotency key with its scope.
            request: how it was asked for.

        Raises:
            SyscallError: PERMISSION, INVALID for a step that is not finished and for a supervisor, and what
                `spawn` raises for the room.
        """
        kernel = self._kernel
        if request is not None and (known := self.known(key, request)) is not None:
            return known
        if caller.agent and not source.descends_from(caller.agent):
            raise denied(f"process {caller.agent} has no power over process {source.pid}")
        if source.launch.supervisor is not None:
            raise invalid(f"process {source.pid} is a supervisor; spawn another one instead")
        records = list(kernel.log.load(source.pid))
        data = _inherited(source, records, step)
        parent = source.parent if source.parent is not None and source.parent.live else None
        kernel.check_room(parent)
        origin = Origin(source.uuid, data["steps"])
        asked = request if request is not None else source.launch.request
        launch = dataclasses.replace(source.launch, origin=origin, request=asked)
        kernel.launcher.check_ready(launch)
        process = kernel.bear(launch, parent, key, bound=source.rights.parent, source=source)
        for record in records:
            if record.event in _POWER:
                kernel.happen(process, record.event, _of_fork(record.data, source, process))
        kernel.happen(process, "inherit", data)
        kernel.emit("fork", source.pid, {"pid": process.pid, "uuid": process.uuid, "step": data["steps"]})
        kernel.runs.begin(process)
        return process


def _of_fork(data: dict[str, Any], source: Process, process: Process) -> dict[str, Any]:
    """A change of a right to a server of the source's own, as one to that of the fork."""
    for server, path in source.servers.items():
        if "path" in data and covers(path, data["path"]):
            return data | {"path": process.servers[server] + data["path"].removeprefix(path)}
    return data


def _asked(request: SpawnRequest | None) -> SpawnRequest | None:
    return msgspec.structs.replace(request, env=None) if request is not None else None


def _inherited(source: Process, records: list[Record], step: int | None) -> dict[str, Any]:
    """What a fork takes over: the conversation and the counts at the end of a step."""
    ends = [record for record in records if record.event == "step"]
    start = source.inherited
    if step is None:
        open_ended = [record for record in ends if record.data.get("exit") is None]
        step = open_ended[-1].data["step"] if open_ended else start
    numbers = [record.data["step"] for record in ends]
    if step != start and step not in numbers:
        there = f"{numbers[0]} to {numbers[-1]}" if numbers else "none"
        reason = f"no finished step {step}; it has: {there} ({start} for its start)"
        raise invalid(f"process {source.pid} has {reason}")
    last = next((record.seq for record in ends if record.data["step"] == step), 0)
    messages: list[Any] = []
    judged: dict[str, Any] = {}
    for record in records:
        if record.event == "inherit":
            messages, judged = list(record.data["messages"]), record.data["judged"]
        elif record.event == "compacted" and record.seq <= last:
            messages = list(record.data["messages"])
        elif record.event in ("messages", "step") and record.seq <= last:
            messages += record.data.get("messages", ())
            judged = record.data.get("judged", judged)
    window = source.context_window
    return {"steps": step, "messages": messages, "judged": judged, "context_window": window}
