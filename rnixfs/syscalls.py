"""System calls: all that a program can do.

Each call is traced, walks from the process's own root, and may be cancelled while it waits. The names in
the trace are those of the reference.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from rnixfs import vfs
from rnixfs.errors import Code, SyscallError, denied, from_oserror
from rnixfs.llm import Message, ModelAnswer
from rnixfs.node import Dir, Node
from rnixfs.proc.process import Launch, OpenFile, Process
from rnixfs.proc.records import StepRecord
from rnixfs.proc.request import SpawnRequest
from rnixfs.proc.signals import Signal
from rnixfs.proc.state import Exit
from rnixfs.proc.traced import flag_names
from rnixfs.traceline import TraceRecord, clip
from rnixfs.types import Ready, Stat

if TYPE_CHECKING:
    from rnixfs.kernel import Kernel

READ_SIZE = 1 << 20
_T = TypeVar("_T")


class Syscalls:
    """The system calls of one process.

    Args:
        kernel: does what is asked.
        process: asks.
    """

    def __init__(self, kernel: "Kernel", process: Process) -> None:
        self._kernel = kernel
        self._process = process

    # --- what the program may know of itself ---

    @property
    def launch(self) -> Launch:
        """What it was started with."""
        return self._process.launch

    @property
    def pid(self) -> int:
        """Its pid."""
        return self._process.pid

    @property
    def context(self) -> list[Message]:
        """Its conversation; to be changed by `append` only."""
        return self._process.context.messages

    @property
    def system_prompt(self) -> str:
        """The instructions that stand before its conversation."""
        return self._process.context.system_prompt

    @property
    def usage(self) -> tuple[int, int, float]:
        """Steps, tokens and dollars so far."""
        return self._process.steps, self._process.tokens_used, self._process.cost_usd

    @property
    def limits(self) -> tuple[int, int, float]:
        """Steps, tokens and dollars it may use in all; 0 for no limit. May change while it runs."""
        budget = self._process.budget
        return budget.max_steps, budget.tokens, budget.cost_usd

    # --- tracing ---

    @contextlib.contextmanager
    def _call(self, syscall: str, **args: Any) -> Iterator[list[str]]:
        """Trace what happens inside; the block leaves the result's text in the list."""
        process, started = self._process, trio.current_time()
        outcome: list[str] = []
        failure = ""
        try:
            yield outcome
        except SyscallError as error:
            error.at(syscall=syscall, device=str(args.get("path", "")), pid=process.pid)
            failure = f"{error.code} ({error.reason})"
            raise
        except trio.Cancelled:
            failure = f"{Code.INTERRUPTED} ({process.ending or 'cancelled'})"
            raise
        finally:
            process.record(
                TraceRecord(
                    ts_ms=round((started - process.born) * 1000, 3),
                    pid=process.pid,
                    syscall=syscall,
                    args=args,
                    result="" if failure else "".join(outcome) or "0",
                    error=failure,
                    duration_ms=round((trio.current_time() - started) * 1000, 3),
                )
            )

    # --- files ---

    def _walk(self, path: str) -> Node:
        return vfs.walk(self._process.view.root, path, self._process.caller)

    async def open(self, path: str, flags: int = os.O_RDWR) -> int:
        """Open a path; returns the number of the open file.

        Raises:
            SyscallError: NOT_FOUND, PERMISSION and what the node refuses.
        """
        await trio.lowlevel.checkpoint()
        with self._call("Open", path=path, flags=flag_names(flags)) as outcome:
            file = self._kernel.open(self._open_node(path, flags), self._process.caller, flags, path)
            fd = self._process.add_file(OpenFile(path, flags, file))
            outcome.append(f"FD({fd})")
        return fd

    def _open_node(self, path: str, flags: int) -> Node:
        node = self._walk(path)
        if isinstance(node, Dir):
            raise SyscallError(Code.IS_DIRECTORY, f"{path} is a folder; list it instead")
        return node

    async def read(self, fd: int, size: int = READ_SIZE) -> bytes:
        """Read from an open file, waiting until there is something; b"" is the end.

        Raises:
            SyscallError: BAD_FD, SERVICE_UNAVAILABLE for an O_NONBLOCK open with nothing to read.
        """
        with self._call("Read", fd=fd, size=size) as outcome:
            opened = self._process.file(fd)
            data = await self._until_ready(opened, Ready.READ, lambda: opened.file.read(size, opened.offset))
            opened.offset += len(data)
            outcome.append(f"{len(data)} bytes")
        return data

    async def read_all(self, fd: int) -> bytes:
        """Read an open file to its end."""
        parts = []
        while data := await self.read(fd):
            parts.append(data)
        return b"".join(parts)

    async def write(self, fd: int, data: bytes) -> int:
        """Write to an open file, waiting until there is room.

        Raises:
            SyscallError: BAD_FD, and what the file refuses.
        """
        preview = clip(data[:400].decode("utf-8", "replace"))
        with self._call("Write", fd=fd, data=preview, size=len(data)) as outcome:
            opened = self._process.file(fd)
            count = await self._until_ready(
                opened, Ready.WRITE, lambda: opened.file.write(data, opened.offset)
            )
            opened.offset += count
            outcome.append(f"{count} bytes")
        return count

    @staticmethod
    async def _until_ready(opened: OpenFile, want: Ready, attempt: Callable[[], _T]) -> _T:
        await trio.lowlevel.checkpoint()
        while True:
            try:
                return attempt()
            except trio.WouldBlock:
                if opened.flags & os.O_NONBLOCK:
                    raise SyscallError(
                        Code.SERVICE_UNAVAILABLE, "not ready, and opened with O_NONBLOCK"
                    ) from None
                await opened.file.wait(want)
            except OSError as error:
                raise from_oserror(error) from error

    async def close(self, fd: int) -> None:
        """Close an open file.

        Raises:
            SyscallError: BAD_FD.
        """
        await trio.lowlevel.checkpoint()
        self.close_now(fd)

    def close_now(self, fd: int) -> None:
        """Close without a checkpoint, for cleanup after a cancellation."""
        with self._call("Close", fd=fd):
            self._process.file(fd).file.close()
            del self._process.files[fd]

    async def stat(self, path: str) -> Stat:
        """What is known of a path.

        Raises:
            SyscallError: NOT_FOUND and PERMISSION.
        """
        await trio.lowlevel.checkpoint()
        with self._call("Stat", path=path) as outcome:
            stat = self._walk(path).stat()
            outcome.append(f"{stat.kind}, {stat.size} bytes")
        return stat

    async def read_dir(self, path: str) -> list[tuple[str, Stat]]:
        """The names in a folder with what is known of them.

        Raises:
            SyscallError: NOT_FOUND, NOT_DIRECTORY and PERMISSION.
        """
        await trio.lowlevel.checkpoint()
        with self._call("ReadDir", path=path) as outcome:
            node = self._walk(path)
            if not isinstance(node, Dir):
                raise SyscallError(Code.NOT_DIRECTORY, f"{path} is no folder")
            found = [(name, one.stat()) for name, one in node.entries(self._process.caller)]
            outcome.append(f"{len(found)} entries")
        return found

    def may_use(self, path: str) -> bool:
        """Whether a path is among what the process may use (CapCheck)."""
        return self._process.view.sees(path)

    async def read_file(self, path: str) -> bytes:
        """Open, read to the end and close."""
        fd = await self.open(path, os.O_RDONLY)
        try:
            return await self.read_all(fd)
        finally:
            self.close_now(fd)

    # --- processes ---

    async def spawn(self, request: SpawnRequest) -> int:
        """Make a child; returns its pid.

        Raises:
            SyscallError: PERMISSION where `/proc/spawn` is not among what it may use.
        """
        await trio.lowlevel.checkpoint()
        with self._call("Spawn", intent=clip(request.intent), agent=request.agent) as outcome:
            self._process.view.check("/proc/spawn")
            child = self._kernel.spawn(request, self._process.caller)
            outcome.append(f"PID({child.pid})")
        return child.pid

    async def wait(self, pid: int) -> tuple[Exit, str]:
        """Wait for a child to end, and reap it; returns how it ended and its result.

        Raises:
            SyscallError: NOT_FOUND, PERMISSION for a process that is no child.
        """
        await trio.lowlevel.checkpoint()
        with self._call("Wait", pid=pid) as outcome:
            child = self._kernel.process(pid)
            if child.parent is not self._process:
                raise denied(f"process {pid} is no child of process {self.pid}")
            await child.done.wait()
            self._kernel.reap(child)
            assert child.exit is not None
            outcome.append(f"exited({child.exit.code})")
        return child.exit, child.result

    async def kill(self, pid: int, signal: Signal) -> None:
        """Send a signal to itself or a descendant.

        Raises:
            SyscallError: NOT_FOUND, PERMISSION, INVALID.
        """
        await trio.lowlevel.checkpoint()
        with self._call("Kill", pid=pid, signal=str(signal)):
            self._kernel.signal(self._kernel.process(pid), signal, self._process.caller)

    async def ps(self) -> list[dict[str, Any]]:
        """The status of itself and its descendants."""
        await trio.lowlevel.checkpoint()
        with self._call("PS") as outcome:
            rows = [one.status() for one in self._kernel.processes.values() if one.descends_from(self.pid)]
            outcome.append(f"{len(rows)} processes")
        return rows

    # --- signals ---

    def on_signal(self, signal: Signal, handler: Callable[[Signal], None] | None) -> None:
        """Handle a signal itself, or, with None, no longer.

        Raises:
            SyscallError: INVALID for KILL.
        """
        with self._call("SigHandle", signal=str(signal)):
            self._process.signals.handle(signal, handler is not None)
            if handler is not None:
                self._process.handlers[signal] = handler

    def block(self, signal: Signal) -> None:
        """Keep a signal waiting.

        Raises:
            SyscallError: INVALID for KILL.
        """
        with self._call("SigBlock", signal=str(signal)):
            self._process.signals.block(signal)

    def unblock(self, signal: Signal) -> None:
        """Let a signal through again; one that waited arrives now."""
        with self._call("SigUnblock", signal=str(signal)):
            if self._process.signals.unblock(signal):
                self._kernel.deliver(self._process, signal)

    async def boundary(self) -> list[str]:
        """Between two steps: sleeps while paused, then gives what people said to it meanwhile."""
        await trio.lowlevel.checkpoint()
        while self._process.paused:
            await self._process.resumed.wait()
        said, self._process.inbox = self._process.inbox, []
        return said

    # --- context and accounts ---

    def append(self, *messages: Message) -> None:
        """Add messages to the context, all or none.

        Raises:
            SyscallError: RESOURCE_EXHAUSTED when the context is full.
        """
        with self._call("CtxWrite", offset=0, messages=len(messages)):
            self._process.context.append(*messages)
            self._process.touch()

    def begin_step(self) -> int:
        """Count a step; returns its number, from 1."""
        self._process.steps += 1
        self._process.touch()
        self.say("step", f"step {self._process.steps}")
        return self._process.steps

    def account(self, answer: ModelAnswer) -> None:
        """Add what a model call used."""
        self._process.tokens_used += answer.tokens_used
        self._process.prompt_tokens = answer.input_tokens
        self._process.cost_usd += answer.cost_usd
        self._process.model_used = answer.model or self._process.model_used
        self._process.touch()

    def add_step(self, record: StepRecord) -> None:
        """Keep the record of a step."""
        self._kernel.emit("step", self.pid, {"step": record.step_number, "action": record.action})
        self._process.add_step(record)

    def say(self, category: str, text: str) -> None:
        """Write to the log: what it thinks, does, gives out, or warns of."""
        self._process.say(category, text)

    def set_result(self, text: str) -> None:
        """Leave the final answer."""
        self._process.result = text
        self._process.touch()
