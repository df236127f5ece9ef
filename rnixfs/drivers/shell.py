"""`/dev/shell`: runs a command in bash.

A request in text is answered in text: both outputs in their order, as they come, and a last line only
where the command did not simply succeed: `[exit 3]` or `[timed out after 30000 ms]`. A request in JSON is
answered by one JSON object when all is over. Of each output 30,000 characters are kept; where it is longer
a line tells how many characters are missing before its last 10,000.

An exit code is the one that bash users know: 128 + n after death by signal n (so 143 or 137 after a time
limit, beside `"timed_out": true`). Nothing that a command puts in the background outlives it.
"""

import codecs
import math
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import trio

from rnixfs import children, hostprogram, limits
from rnixfs.clip import Clip
from rnixfs.device import Body, Description, Job, Sink, ToolInfo, json_line
from rnixfs.errors import Code, SyscallError, invalid
from rnixfs.types import Caller, Place

_SCRUBBED = ("BASH_ENV", "ENV")
"""Variables that make bash run a file before the command; only a request itself can set them."""

_EXAMPLE = {"command": "ls -l | wc -l", "timeout_ms": 10_000}

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "description": "The command, as given to `bash -c`."},
        "timeout_ms": {
            "type": "integer",
            "minimum": 1,
            "maximum": limits.SHELL_TIMEOUT_MAX_MS,
            "default": limits.SHELL_TIMEOUT_MS,
            "description": "Milliseconds until the command is ended.",
        },
        "cwd": {"type": "string", "description": "Folder to run in; relative to the current one."},
    },
    "required": ["command"],
    "additionalProperties": False,
}

_REQUEST_SCHEMA: dict[str, Any] = {
    **_SCHEMA,
    "properties": {
        **_SCHEMA["properties"],
        "env": {
            "type": "object",
            "additionalProperties": {"type": ["string", "null"]},
            "description": "Variables to set, or to remove with null.",
        },
        "background": {"const": False, "description": "Running in the background is not offered."},
    },
    "description": "Or text: the command alone, answered in text as it comes.",
}


class Runner(Protocol):
    """What the shell needs of `children.Children`."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        agent: int,
        stdout: children.Give,
        stderr: children.Give | None,
        timeout: float,
    ) -> children.Ended:
        """Run a program to its end, and end all that it left."""


class Request(msgspec.Struct, frozen=True):
    """A request that was checked.

    Args:
        command: for `bash -c`.
        timeout_ms: milliseconds it may take.
        cwd: where to run; empty for the caller's folder, relative to it otherwise.
        env: changes to the caller's environment; None removes a variable.
        as_json: whether one JSON object is wanted.
    """

    command: str
    timeout_ms: int = limits.SHELL_TIMEOUT_MS
    cwd: str = ""
    env: dict[str, str | None] = {}
    as_json: bool = False


class Result(msgspec.Struct, frozen=True):
    """The answer to a request in JSON.

    Args:
        stdout: what the command printed, clipped.
        stderr: what it printed as errors, clipped.
        exit_code: 0 to 255, as `$?` of bash.
        timed_out: whether it was ended because its time was up.
        truncated: whether anything was cut from either output.
        duration_ms: milliseconds it took.
    """

    stdout: str
    stderr: str
    exit_code: int
    timed_out: bool
    truncated: bool
    duration_ms: int


class Shell:
    """The device.

    Args:
        runner: starts programs.
        whereabouts: folder and environment of a caller.
        mountpoint: folder of the daemon's own mount, or empty. No command may start in it: its start
            would need the daemon that is starting it.
        find: finds a program in PATH.
    """

    def __init__(
        self,
        runner: Runner,
        whereabouts: Callable[[Caller], Place],
        mountpoint: Callable[[], str] = str,
        find: Callable[[str], str | None] = shutil.which,
    ) -> None:
        self._runner = runner
        self._whereabouts = whereabouts
        self._mountpoint = mountpoint
        self._bash = find("bash")

    def describe(self, caller: Caller) -> Description:
        """What the shell takes and gives."""
        return Description(
            device="/dev/shell",
            does="Runs a command in bash and answers with what it prints and how it ends.",
            request=_REQUEST_SCHEMA,
            example=_EXAMPLE,
            available=self._bash is not None,
            reason="" if self._bash else "bash is not in PATH; install it (apt install bash)",
            tools=[_tool()] if self._bash else [],
            details={
                "answer": "text for text; JSON: " + ", ".join(Result.__struct_fields__),
                "output_max": f"{limits.SHELL_OUTPUT_MAX} characters of each output",
                "timeout_ms": {"default": limits.SHELL_TIMEOUT_MS, "max": limits.SHELL_TIMEOUT_MAX_MS},
            },
        )

    def accept(self, caller: Caller, body: Body) -> Job:
        """Check a command.

        Raises:
            SyscallError: INVALID with the field and what would be right; SERVICE_UNAVAILABLE without bash.
        """
        bash = self._bash
        if bash is None:
            raise SyscallError(
                Code.SERVICE_UNAVAILABLE, "bash is not in PATH; install it and start the daemon again"
            )
        request = parse(body)
        place = self._whereabouts(caller)
        env = _environment(place.env, request.env)
        hostprogram.check([bash, "-c", request.command], env)
        cwd = os.path.normpath(os.path.join(place.cwd, request.cwd))
        _refuse_mount(cwd, cwd, self._mountpoint())
        answer = self._answer_json if request.as_json else self._answer_text

        async def job(sink: Sink) -> None:
            await self._refuse_link_into_mount(cwd, request.timeout_ms / 1000)
            command = _Command([bash, "-c", request.command], cwd, env, caller.agent, request.timeout_ms)
            await answer(command, sink)

        return job

    async def _answer_text(self, command: "_Command", sink: Sink) -> None:
        output = _Output()

        def take(data: bytes) -> None:
            _write(sink, output.feed(data))

        ended = await command.run(self._runner, take, None)
        _write(sink, output.finish())
        if ended.timed_out:
            note = f"[timed out after {command.timeout_ms} ms]"
        elif ended.returncode:
            note = f"[exit {_exit_code(ended.returncode)}]"
        else:
            return
        line_end = "" if output.ends_line else "\n"
        _write(sink, f"{line_end}{note}\n")

    async def _answer_json(self, command: "_Command", sink: Sink) -> None:
        stdout, stderr = _Output(), _Output()
        ended = await command.run(self._runner, stdout.keep, stderr.keep)
        result = Result(
            stdout=stdout.text(),
            stderr=stderr.text(),
            exit_code=_exit_code(ended.returncode),
            timed_out=ended.timed_out,
            truncated=stdout.clip.cut > 0 or stderr.clip.cut > 0,
            duration_ms=ended.duration_ms,
        )
        sink.write(json_line(result))

    async def _refuse_link_into_mount(self, cwd: str, seconds: float) -> None:
        # In a thread, because a link may lead to a file system that does not answer.
        with trio.move_on_after(seconds):
            await trio.to_thread.run_sync(_check_links, cwd, self._mountpoint(), abandon_on_cancel=True)
            return
        raise SyscallError(Code.TIMEOUT, f"cannot look at {cwd} within {seconds} s; is a disk stuck?")


def _refuse_mount(cwd: str, real: str, mount: str) -> None:
    if mount and os.path.commonpath([mount, real]) == os.path.normpath(mount):
        raise invalid(
            f"cwd is {cwd!r}, which lies in the mount of rnix itself ({mount}); it must be a folder "
            "outside, from where the mount can be reached by absolute paths"
        )


def _check_links(cwd: str, mount: str) -> None:
    _refuse_mount(cwd, os.path.realpath(cwd), os.path.realpath(mount) if mount else "")


class _Command(msgspec.Struct, frozen=True):
    argv: list[str]
    cwd: str
    env: dict[str, str]
    agent: int
    timeout_ms: int

    async def run(
        self, runner: Runner, stdout: children.Give, stderr: children.Give | None
    ) -> children.Ended:
        return await runner.run(
            self.argv,
            cwd=self.cwd,
            env=self.env,
            agent=self.agent,
            stdout=stdout,
            stderr=stderr,
            timeout=self.timeout_ms / 1000,
        )


class _Output:
    """One output: bytes come in, clipped text goes out. What is no UTF-8 becomes U+FFFD."""

    def __init__(self) -> None:
        self.clip = Clip(limits.SHELL_OUTPUT_MAX, limits.SHELL_TAIL)
        self.ends_line = True
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes, final: bool = False) -> str:
        text = self._decoder.decode(data, final)
        if text:
            self.ends_line = text.endswith("\n")
        return self.clip.feed(text)

    def keep(self, data: bytes) -> None:
        self.feed(data)

    def finish(self) -> str:
        """What `feed` has not returned."""
        return self.feed(b"", final=True) + self.clip.rest()

    def text(self) -> str:
        self.feed(b"", final=True)
        return self.clip.text()


def parse(body: Body) -> Request:
    """Check a request.

    Raises:
        SyscallError: INVALID with the field and what would be right.
    """
    if isinstance(body, str):
        return Request(_command(body))
    if not isinstance(body, dict):
        raise invalid('a request is a command as text, or a JSON object such as {"command": "ls"}')
    for name in body:
        if name not in _REQUEST_SCHEMA["properties"]:
            known = ", ".join(_REQUEST_SCHEMA["properties"])
            raise invalid(f"unknown field {name!r}; a request to the shell has: {known}")
    if "command" not in body:
        raise invalid('field "command" is missing; it must be a string')
    if _optional(body, "background", bool, "true or false"):
        raise invalid('field "background" is true, but this shell offers no background units; leave it out')
    cwd = _optional(body, "cwd", str, "a string, the path of a folder")
    if cwd is not None and ("\0" in cwd or not cwd):
        raise invalid(f'field "cwd" is {cwd!r}; it must be the path of a folder')
    timeout = _optional(body, "timeout_ms", int, "a whole number of milliseconds")
    if timeout is not None and not 1 <= timeout <= limits.SHELL_TIMEOUT_MAX_MS:
        raise invalid(f'field "timeout_ms" is {timeout}; it must be from 1 to {limits.SHELL_TIMEOUT_MAX_MS}')
    return Request(
        command=_command(body["command"]),
        timeout_ms=limits.SHELL_TIMEOUT_MS if timeout is None else timeout,
        cwd=cwd or "",
        env=_changes(_optional(body, "env", dict, "an object of strings") or {}),
        as_json=True,
    )


def _optional(body: dict[str, Any], name: str, kind: type, right: str) -> Any:
    value = body.get(name)
    # A whole number is also right where JSON was written by a tool that only knows floats.
    if kind is int and isinstance(value, float) and math.isfinite(value) and value == int(value):
        value = int(value)
    if value is not None and type(value) is not kind:
        raise invalid(f'field "{name}" is {_json(value)}; it must be {right}')
    return value


def _command(value: object) -> str:
    if not isinstance(value, str):
        raise invalid(f'field "command" is {_json(value)}; it must be a string')
    if not value.strip():
        raise invalid("the command is empty; it must be a command for bash")
    return value


def _changes(changes: dict[str, Any]) -> dict[str, str | None]:
    for name, value in changes.items():
        if value is not None and not isinstance(value, str):
            raise invalid(f'field "env" has {name!r}: {_json(value)}; it must be a string, or null')
    return changes


def _json(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else text[:79] + "…"


def _environment(inherited: dict[str, str], changes: dict[str, str | None]) -> dict[str, str]:
    kept = {name: value for name, value in inherited.items() if name not in _SCRUBBED and name not in changes}
    return kept | {name: value for name, value in changes.items() if value is not None}


def _exit_code(returncode: int) -> int:
    return returncode if returncode >= 0 else 128 - returncode


def _write(sink: Sink, text: str) -> None:
    if text:
        sink.write(text.encode())


def _tool() -> ToolInfo:
    kept, tail = limits.SHELL_OUTPUT_MAX, limits.SHELL_TAIL
    return ToolInfo(
        name="shell",
        description=(
            "Run a command in bash and return its stdout, stderr and exit code. "
            f"Of each output {kept} characters are kept: its beginning and its last {tail}. "
            "Programs left in the background end with the command; stdin is empty."
        ),
        input_schema=_SCHEMA,
    )
