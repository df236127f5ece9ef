"""Devices that take an idempotency key: a request that carries one runs once, however often it is asked.

The event `request` is in the log before the work begins, the event `answered` before anybody sees the
answer. So whoever asks again, in this run of the daemon or a later one, gets the recorded answer; whoever
asks while the work is done joins it. Where the log holds a request without an answer the daemon stopped in
between: what changes nothing runs again, of all else nobody can say whether it was done.

A keyed answer is given when it is whole, since only then it is recorded. Work that nobody waits for any more
is cancelled: a process's at once; a person's after `limits.KEYED_LINGER_SECONDS`, because asking again from
the same session first ends the exchange before it.
"""

import base64
import logging
from typing import Any, Protocol

import msgspec
import trio

from rnixfs import limits
from rnixfs.device import Body, Description, Device, Job, Sink
from rnixfs.errors import Code, SyscallError, invalid
from rnixfs.exchange import Start, as_syscall_error
from rnixfs.idempotency import FIELD, SCHEMA, check_key, digest, scoped
from rnixfs.state.store import Record
from rnixfs.types import Caller

log = logging.getLogger(__name__)

REQUEST = "request"
ANSWERED = "answered"


class Ledger(Protocol):
    """Where requests with a key are recorded."""

    def emit(self, event: str, pid: int, data: dict[str, Any]) -> Record:
        """Put an event on record; it is there when this returns.

        Raises:
            SyscallError: it could not be recorded, and is not.
        """

    def keyed(self, key: str) -> list[Record]:
        """All events whose data has `"key": key`, in order."""


class KeyedDevice:
    """A device behind its keys; implements `device.Device`. Requests without a key pass untouched.

    Args:
        device: does the work.
        path: its path in the main tree, under which its keys are recorded.
        ledger: keeps what was asked and answered.
        start: runs the work in the background.
        repeatable: whether the work changes nothing, so that it may run again after a crash.
    """

    def __init__(
        self, device: Device, path: str, ledger: Ledger, start: Start, repeatable: bool = False
    ) -> None:
        self._device = device
        self._path = path
        self._ledger = ledger
        self._start = start
        self._repeatable = repeatable
        self._works: dict[str, _Work] = {}

    def describe(self, caller: Caller) -> Description:
        """What the device says, and the field for the key."""
        described = self._device.describe(caller)
        properties = {**described.request.get("properties", {}), FIELD: SCHEMA}
        return msgspec.structs.replace(described, request={**described.request, "properties": properties})

    def accept(self, caller: Caller, body: Body) -> Job:
        """Take a request; one with a key is looked up before the device sees it.

        Raises:
            SyscallError: what the device refuses; INVALID for a key that is none or was used for another
                request; UNKNOWN_OUTCOME where the daemon stopped while the request ran.
        """
        if not isinstance(body, dict) or FIELD not in body:
            return self._device.accept(caller, body)
        request = {name: value for name, value in body.items() if name != FIELD}
        key = scoped(self._path, caller, check_key(body[FIELD]))
        work, content = self._works.get(key), digest(request)
        if work is None or (self._repeatable and work.scope.cancel_called):
            found = self._look_up(key, caller, request, content)
            if isinstance(found, _Outcome):
                return found.job()
            work = found
        _check_same(work.digest, content)
        return self._wait(work, caller)

    def _look_up(self, key: str, caller: Caller, request: dict[str, Any], content: str) -> "_Work | _Outcome":
        """The recorded answer, or the work, begun now."""
        records = self._ledger.keyed(key)
        asked = next((record.data for record in records if record.event == REQUEST), None)
        answered = next((record.data for record in records if record.event == ANSWERED), None)
        if asked is not None:
            _check_same(asked["digest"], content)
        if answered is not None:
            return _Outcome.recorded(answered)
        if asked is not None and not self._repeatable:
            raise SyscallError(
                Code.UNKNOWN_OUTCOME,
                "outcome unknown: the daemon stopped while this request ran; look what was done, then ask "
                "with another key",
            )
        job = self._device.accept(caller, request)
        if asked is None:
            who = {"agent": caller.agent} if caller.agent else {"uid": caller.uid}
            self._ledger.emit(REQUEST, 0, {"device": self._path, "key": key, **who, "digest": content})
        work = self._works[key] = _Work(key, content)
        self._start(lambda: self._do(work, job))
        return work

    async def _do(self, work: "_Work", job: Job) -> None:
        try:
            with work.scope:
                await job(work)
                work.outcome = _Outcome(bytes(work.data))
        except Exception as error:
            work.outcome = _Outcome(error=as_syscall_error(error, self._path).as_dict())
        if work.outcome is None:
            work.outcome = _Outcome(error=_cancelled().as_dict())
            if self._repeatable:
                self._forget(work)
                work.done.set()
                return
        try:
            self._record(work)
        except SyscallError as error:
            # The answer stays in memory. Whoever waits for it tries again, and is told why there is none.
            log.warning("the answer to a request to %s cannot be recorded: %s", self._path, error.reason)
        work.done.set()

    def _record(self, work: "_Work") -> None:
        if work.outcome is None or self._works.get(work.key) is not work:
            return
        data = {"device": self._path, "key": work.key, **work.outcome.record()}
        self._ledger.emit(ANSWERED, 0, data)
        self._forget(work)

    def _forget(self, work: "_Work") -> None:
        if self._works.get(work.key) is work:
            del self._works[work.key]

    def _wait(self, work: "_Work", caller: Caller) -> Job:
        work.join()

        async def job(sink: Sink) -> None:
            try:
                await work.done.wait()
            finally:
                work.leave(0.0 if caller.agent else limits.KEYED_LINGER_SECONDS)
            self._record(work)
            assert work.outcome is not None
            work.outcome.give(sink)

        return job


class _RecordedError(SyscallError):
    """A failure that was recorded: it is told again as it was told first.

    Args:
        shown: what `as_dict` gave then.
    """

    def __init__(self, shown: dict[str, Any]) -> None:
        code, place = Code(shown["code"]), {name: shown[name] for name in ("syscall", "device")}
        super().__init__(code, shown["message"], **place)
        self._shown = shown

    def as_dict(self) -> dict[str, object]:
        return self._shown


class _Outcome(msgspec.Struct, frozen=True):
    """How a request ended: its whole answer, or the error that stands in its place."""

    answer: bytes = b""
    error: dict[str, Any] | None = None

    @classmethod
    def recorded(cls, data: dict[str, Any]) -> "_Outcome":
        """What an event `answered` holds."""
        if "error" in data:
            return cls(error=data["error"])
        if "base64" in data:
            return cls(base64.b64decode(data["base64"]))
        return cls(data["answer"].encode())

    def record(self) -> dict[str, Any]:
        """What the event `answered` is to hold."""
        if self.error is not None:
            return {"error": self.error}
        try:
            return {"answer": self.answer.decode()}
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(self.answer).decode()}

    def give(self, sink: Sink) -> None:
        """Write the answer.

        Raises:
            SyscallError: the request had failed; a new error each time, since whoever gets it adds to it.
        """
        if self.error is not None:
            raise _RecordedError(self.error)
        sink.write(self.answer)

    def job(self) -> Job:
        """A job that gives it."""

        async def job(sink: Sink) -> None:
            await trio.lowlevel.checkpoint()
            self.give(sink)

        return job


class _Work:
    """A request that runs, or has ended and is not on record yet. Implements `device.Sink` for its job."""

    def __init__(self, key: str, content: str) -> None:
        self.key = key
        self.digest = content
        self.data = bytearray()
        self.outcome: _Outcome | None = None
        self.done = trio.Event()
        self.scope = trio.CancelScope()
        self._users = 0

    def write(self, data: bytes) -> None:
        if len(self.data) + len(data) > limits.KEYED_ANSWER_MAX:
            right = f"an answer that is kept for its key may have {limits.KEYED_ANSWER_MAX} bytes"
            raise SyscallError(Code.TOO_LARGE, f"{right}; this has more, so ask without a key")
        self.data += data

    def join(self) -> None:
        """One more waits for it."""
        self._users += 1
        self.scope.deadline = float("inf")

    def leave(self, linger: float) -> None:
        """One does not wait any more; after the last one it may run on for `linger` seconds."""
        self._users -= 1
        if not self._users:
            self.scope.deadline = trio.current_time() + linger


def _check_same(recorded: str, content: str) -> None:
    if recorded != content:
        raise invalid(
            f'this "{FIELD}" was used for a request with another content; use a new key for a new request'
        )


def _cancelled() -> SyscallError:
    return SyscallError(Code.CANCELED, "the request was cancelled before its answer was whole")
