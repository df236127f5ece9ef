"""Asking models and agents by the files of the mount."""

import abc
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import trio

from rnixfs import limits
from rnixfs.errors import Code
from rnixfs.gateway.models import Target, intent_of
from rnixfs.gateway.mount import CHUNK, Mount, json_of, lines_of, read_file, write_all
from rnixfs.gateway.refusal import RefusedError, of_code, of_device
from rnixfs.llm import EVENTS, Delta, ModelAnswer, ModelRequest, estimate_tokens, read_event

RECHECK_SECONDS = 2.0  # readiness is asked for anew this often, should a wake-up get lost on the way
KILL_SECONDS = 5.0  # for the order to kill an agent's process


class Client(Mount):
    """The tree, with those in it who answer. Arguments as `Mount` has them."""

    def ask(
        self, target: Target, request: ModelRequest, wants_pieces: bool
    ) -> contextlib.AbstractAsyncContextManager["Source"]:
        """Ask a model, or have an agent work; what was begun is cancelled when the block is left.

        Args:
            target: who is asked.
            request: what.
            wants_pieces: whether anybody wants to see what comes before the answer.

        Raises:
            RefusedError: it is refused.
        """
        if target.agent:
            return self._agent(target.agent, request, wants_pieces)
        return self._model(target, request)

    @contextlib.asynccontextmanager
    async def _model(self, target: Target, request: ModelRequest) -> AsyncIterator["Source"]:
        assert target.provider is not None
        name = f"dev/llm/{target.provider.name}"
        whole = msgspec.structs.replace(request, model=target.model, stream=EVENTS)
        async with self.opened(name, os.O_RDWR | os.O_NONBLOCK) as descriptor:
            lines = Lines(self, name, descriptor)
            await self.write(name, descriptor, encode(whole))
            yield ModelSource(lines)

    @contextlib.asynccontextmanager
    async def _agent(self, agent: str, request: ModelRequest, wants_pieces: bool) -> AsyncIterator["Source"]:
        wanted = {"intent": intent_of(request), "agent": agent, "cwd": _here()}
        if request.system_prompt:
            wanted["system_prompt"] = request.system_prompt
        if request.effort:
            wanted["effort"] = request.effort
        pid = await self.call(self._spawn, encode(wanted))
        ended = False
        try:
            async with (
                self.opened(f"proc/{pid}/wait", os.O_RDONLY | os.O_NONBLOCK) as wait,
                self.opened(f"proc/{pid}/.live/log", os.O_RDONLY | os.O_NONBLOCK) as log,
            ):
                told = Lines(self, f"proc/{pid}/log", log) if wants_pieces else None
                source = AgentSource(pid, self, Lines(self, f"proc/{pid}/wait", wait), told)
                try:
                    yield source
                finally:
                    ended = source.ended
        finally:
            if not ended:
                await self._kill(pid)

    def _spawn(self, request: bytes) -> int:
        name = "proc/spawn"
        descriptor = self.open(name, os.O_RDWR)
        try:
            write_all(descriptor, request)
            answer = os.read(descriptor, CHUNK)
        except OSError as error:
            raise self.refused(name, descriptor, error) from None
        finally:
            os.close(descriptor)
        if not answer.strip().isdigit():
            raise of_device(json_of(answer).get("error"))
        return int(answer)

    async def _kill(self, pid: int) -> None:
        """Kill a process and all that it started. Also those who are cancelled do this."""
        name = self.path(f"proc/{pid}/ctl")
        with trio.CancelScope(shield=True), trio.move_on_after(KILL_SECONDS), contextlib.suppress(OSError):
            await trio.to_thread.run_sync(_order, name, b"tree KILL\n", abandon_on_cancel=True)


class Lines:
    """The lines that a file of the mount gives as they come.

    Args:
        mount: the tree.
        name: the file's name, for messages.
        descriptor: the file, opened with O_NONBLOCK.
    """

    def __init__(self, mount: Mount, name: str, descriptor: int) -> None:
        self.mount = mount
        self.name = name
        self._descriptor = descriptor
        self._data = bytearray()
        self._searched = 0
        self._ended = False

    async def next(self) -> bytes | None:
        """The next line without its newline; None at the end. Whoever is cancelled here loses nothing.

        Raises:
            RefusedError: the file fails.
        """
        while (end := self._data.find(b"\n", self._searched)) < 0:
            self._searched = len(self._data)
            if self._ended:
                line, self._data = bytes(self._data), bytearray()
                return line or None
            await self._fill()
        line = bytes(self._data[:end])
        del self._data[: end + 1]
        self._searched = 0
        return line

    async def _fill(self) -> None:
        with trio.move_on_after(RECHECK_SECONDS):
            await trio.lowlevel.wait_readable(self._descriptor)
        try:
            # Not in a thread, which costs more: it does not wait, and poll has just asked the daemon as well.
            piece = os.read(self._descriptor, CHUNK)
        except BlockingIOError:
            return
        except OSError as error:
            raise self.mount.refusal(error, self.name) from None
        self._data += piece
        self._ended = not piece


class Source(abc.ABC):
    """Where an answer comes from."""

    @abc.abstractmethod
    async def next(self) -> Delta | ModelAnswer:
        """The next piece, or the answer, after which nothing comes. Whoever is cancelled here loses nothing.

        Raises:
            RefusedError: there is no answer.
        """


class ModelSource(Source):
    """A call of a model.

    Args:
        lines: what its file gives.
    """

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    async def next(self) -> Delta | ModelAnswer:
        line = await self._lines.next()
        if line is None:
            raise of_code(Code.DRIVER, f"/{self._lines.name}: the file ended before the answer")
        error = json_of(line).get("error")
        if error is not None:
            raise of_device(error)
        try:
            return read_event(line)
        except (KeyError, msgspec.MsgspecError) as error:
            raise of_code(Code.DRIVER, f"/{self._lines.name}: an event of no known form: {error}") from None


class AgentSource(Source):
    """A process of an agent.

    Args:
        pid: the process.
        mount: the tree.
        wait: the lines of its file `wait`.
        log: the lines of its log; None where nobody wants them.
    """

    def __init__(self, pid: int, mount: Mount, wait: Lines, log: Lines | None) -> None:
        self.pid = pid
        self.ended = False
        self._mount = mount
        self._wait = wait
        self._log = log

    async def next(self) -> Delta | ModelAnswer:
        if self._log is not None:
            line = await self._log.next()
            if line is not None:
                return Delta("reasoning", line.decode("utf-8", "replace") + "\n")
            self._log = None
        end = await self._wait.next()
        if end is None:
            raise of_code(Code.SERVICE_UNAVAILABLE, f"the daemon ended; process {self.pid} is suspended")
        self.ended = True
        return await self._answer(json_of(end))

    async def _answer(self, end: dict[str, Any]) -> ModelAnswer:
        if end.get("code"):
            raise self._failure(int(end["code"]), str(end.get("reason", "")))
        # Nothing is known of how a past process divides its tokens but what its steps tell.
        steps = await self._mount.call(self._steps)
        result, tokens = str(end.get("result") or ""), int(end.get("tokens_used") or 0)
        output = sum(int(step.get("response_tokens") or 0) for step in steps) or estimate_tokens(result)
        status = await self._mount.call(self._status)
        return ModelAnswer(
            content=result,
            tokens_used=tokens,
            input_tokens=max(tokens - output, 0),
            output_tokens=min(output, tokens),
            cost_usd=float(status.get("cost_usd") or 0.0),
            model=str(status.get("model") or ""),
            provider=str(status.get("provider") or ""),
            attempts=max(len(steps), 1),
        )

    def _steps(self) -> list[dict[str, Any]]:
        with contextlib.suppress(OSError):
            return lines_of(read_file(self._mount.path(f"proc/{self.pid}/steps.jsonl")))
        return []

    def _status(self) -> dict[str, Any]:
        with contextlib.suppress(OSError):
            return json_of(read_file(self._mount.path(f"proc/{self.pid}/status")))
        return {}

    def _failure(self, code: int, reason: str) -> RefusedError:
        """How a process that failed is told of."""
        # Final: an agent acts, so no client may have it act a second time by itself.
        words = f"process {self.pid} of the agent failed with code {code}: {reason}"
        name = reason.partition("]")[0].removeprefix("[") if reason.startswith("[") else ""
        if code == 2:
            name = Code.BUDGET_EXCEEDED
        elif reason.startswith("timeout:"):
            name = Code.TIMEOUT
        return of_code(name if name in Code.__members__ else Code.INTERNAL, words, final=True)


def encode(value: Any) -> bytes:
    """A request as a device takes it.

    Raises:
        RefusedError: a text in it is no Unicode, or it is too long.
    """
    try:
        data = msgspec.json.encode(value)
    except (UnicodeEncodeError, RecursionError) as error:
        raise of_code(Code.INVALID, f"the request cannot be passed on: {error}") from None
    if len(data) > limits.REQUEST_MAX:
        # Said here: the host's kernel would split the write, and keep the refusal of a later part to itself.
        reason = (
            f"a request to a model may have {limits.REQUEST_MAX} bytes; this conversation has {len(data)}"
        )
        raise of_code(Code.TOO_LARGE, reason)
    return data + b"\n"


def _here() -> str:
    """The folder where the gateway was started, and agents work."""
    try:
        return os.getcwd()
    except OSError:
        raise of_code(Code.NOT_FOUND, "the folder where the gateway was started is gone") from None


def _order(path: str, command: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, command)
    finally:
        os.close(descriptor)
