"""Pipes for people: the device `dev/pipe` makes them, and their ends are files in `dev/pipes/`."""

import dataclasses
import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import trio

from rnixfs import limits, vfs
from rnixfs.device import Body, Description, Job, Sink, json_line
from rnixfs.errors import Code, SyscallError, invalid, not_found
from rnixfs.node import Dir, File, FixedDir, Node, StreamNode, fixed_link, refuse_reading
from rnixfs.proc.ipc import Pipe
from rnixfs.state.store import Keep
from rnixfs.types import Caller, Kind, Stat

if TYPE_CHECKING:
    from rnixfs.kernel import Kernel

_opens = itertools.count(1)


@dataclasses.dataclass
class _Listed:
    """A pipe of the folder.

    Args:
        pipe: the pipe.
        name: its second name, or empty.
        unused_since: when nobody had it open any more, on the clock of trio.
    """

    pipe: Pipe
    name: str
    unused_since: float


class Pipes(Dir):
    """`dev/pipes`: a folder for each pipe, and a link to it for each that was given a name.

    A pipe goes when both ends were opened and closed, when nobody had it open for
    `limits.PIPE_UNUSED_SECONDS`, and by rmdir.

    Args:
        kernel: numbers the pipes and keeps the events.
    """

    def __init__(self, kernel: "Kernel") -> None:
        self._kernel = kernel
        self._pipes: dict[int, _Listed] = {}

    def make(self, name: str, caller: Caller) -> Pipe:
        """A new pipe.

        Args:
            name: a second name, or empty.
            caller: who asks.

        Raises:
            SyscallError: INVALID for a name that cannot be one, EXISTS for one that is taken,
                RESOURCE_EXHAUSTED past `limits.PIPES_MAX`.
        """
        self._expire()
        self._check(name)
        number = self._kernel.channels.next_pipe()
        self._kernel.emit("pipe", 0, {"pipe": number, "name": name, "by": caller.agent})
        return self._add(number, name)

    def _add(self, number: int, name: str) -> Pipe:
        pipe = Pipe(number, on_close=self._closed, moving=self._moving)
        self._pipes[number] = _Listed(pipe, name, trio.current_time())
        return pipe

    def _moving(self, pipe: Pipe, event: str, data: bytes) -> None:
        about: dict[str, object] = {"pipe": pipe.number, "bytes": len(data)}
        if event == "pipe_write":
            about["data"] = data.decode("latin-1")  # each byte a character, so that JSON can hold it
        self._kernel.emit(event, 0, about)

    def restore(self) -> None:
        """Have the pipes as the log tells them, when the system starts."""
        for record in self._kernel.log.load(0, ("pipe", "pipe_write", "pipe_read", "pipe_removed")):
            number = record.data["pipe"]
            self._kernel.channels.pipe_seen(number)
            listed = self._pipes.get(number)
            if record.event == "pipe":
                self._add(number, record.data["name"])
            elif record.event == "pipe_removed":
                self._pipes.pop(number, None)
            elif listed is not None:
                data = record.data.get("data", "").encode("latin-1")
                listed.pipe.restore(record.event, data, record.data["bytes"])

    def _check(self, name: str) -> None:
        if name and (vfs.check_name(name).isdecimal() or name.startswith(".")):
            raise invalid(f"a pipe cannot be named {name!r}: numbers and names with a dot in front are taken")
        if name and self._named(name) is not None:
            raise SyscallError(Code.EXISTS, f"there is a pipe named {name!r}; choose another name")
        if len(self._pipes) >= limits.PIPES_MAX:
            raise SyscallError(
                Code.RESOURCE_EXHAUSTED,
                f"there may be {limits.PIPES_MAX} pipes in dev/pipes; rmdir those that nobody needs",
            )

    def _named(self, name: str) -> Pipe | None:
        return next((one.pipe for one in self._pipes.values() if one.name == name), None)

    def _expire(self) -> None:
        before = trio.current_time() - limits.PIPE_UNUSED_SECONDS
        for one in list(self._pipes.values()):
            if one.pipe.unused and one.unused_since <= before:
                self._remove(one.pipe, 0)

    def _closed(self, pipe: Pipe) -> None:
        listed = self._pipes.get(pipe.number)
        if listed is None or not pipe.unused:
            return
        listed.unused_since = trio.current_time()
        if pipe.done:
            self._remove(pipe, 0)

    def pipe(self, number: int) -> Pipe:
        """The pipe with a number.

        Raises:
            SyscallError: NOT_FOUND for one that is gone.
        """
        self._expire()
        listed = self._pipes.get(number)
        if listed is None:
            raise not_found(f"/dev/pipes/{number}")
        return listed.pipe

    # --- the folder ---

    def lookup(self, name: str, caller: Caller) -> Node:
        if name.isdecimal() and name.isascii():
            return PipeDir(self, self.pipe(int(name)).number)
        pipe = self._named(name)
        if pipe is None:
            raise not_found(f"/dev/pipes/{name}")
        return self._link(pipe.number, name)

    @staticmethod
    def _link(number: int, name: str) -> Node:
        return fixed_link(("pipe", number, name), str(number))

    def entries(self, caller: Caller) -> Iterable[tuple[str, Node]]:
        self._expire()
        for number, one in list(self._pipes.items()):
            yield str(number), PipeDir(self, number)
            if one.name:
                yield one.name, self._link(number, one.name)

    def rmdir(self, name: str, caller: Caller) -> None:
        node = self.lookup(name, caller)
        if not isinstance(node, PipeDir):
            raise SyscallError(Code.NOT_DIRECTORY, f"{name} is a link; rmdir the number it leads to")
        pipe = self.pipe(node.number)
        self._remove(pipe, caller.agent)
        pipe.hang_up()

    def _remove(self, pipe: Pipe, by: int) -> None:
        self._kernel.emit("pipe_removed", 0, {"pipe": pipe.number, "by": by}, Keep.VITAL)
        del self._pipes[pipe.number]


@dataclasses.dataclass(frozen=True)
class PipeDir(Dir):
    """`dev/pipes/<n>`: the two ends of a pipe.

    Args:
        pipes: the folder that it lies in.
        number: the pipe's number.
    """

    pipes: Pipes
    number: int

    def stat(self) -> Stat:
        # Pipes go by themselves, so that the host kernel must not remember them.
        return Stat(Kind.DIRECTORY, mode=0o555, links=2, name_ttl=0.0)

    def lookup(self, name: str, caller: Caller) -> Node:
        self.pipes.pipe(self.number)
        if name == ".live":
            read = StreamNode(("pipe", self.number, "read"), self._reader)
            return FixedDir(("pipe", self.number, ".live"), {}, {"read": read})
        for known, node in self.entries(caller):
            if name == known:
                return node
        raise not_found(f"/dev/pipes/{self.number}/{name}")

    def entries(self, caller: Caller) -> Iterable[tuple[str, Node]]:
        yield "read", fixed_link(("pipe", self.number, "to read"), ".live/read")
        yield "write", WriteNode(self, next(_opens))

    def _reader(self, _caller: Caller) -> File:
        return self.pipes.pipe(self.number).reader()


@dataclasses.dataclass(frozen=True)
class WriteNode(Node):
    """`dev/pipes/<n>/write`, another one each time it is looked up.

    A write of the mount that waits for room holds the lock of its inode, which another writer could not be
    freed from by any signal; so each open gets an inode of its own.

    Args:
        folder: the pipe's folder.
        serial: tells one look-up from another.
    """

    folder: PipeDir
    serial: int

    def stat(self) -> Stat:
        return Stat(Kind.FILE, mode=0o222, name_ttl=0.0)

    def open(self, caller: Caller, flags: int) -> File:
        refuse_reading(flags, f"/dev/pipes/{self.folder.number}/write")
        return self.folder.pipes.pipe(self.folder.number).writer()


class PipeDevice:
    """`dev/pipe`: makes a pipe in `dev/pipes`, or connects two processes.

    Args:
        kernel: has the processes.
        pipes: the folder for new pipes.
    """

    def __init__(self, kernel: "Kernel", pipes: Pipes) -> None:
        self.kernel = kernel
        self.pipes = pipes

    def describe(self, caller: Caller) -> Description:
        return Description(
            device="/dev/pipe",
            does="Makes a pipe and answers its number n; its ends are /dev/pipes/<n>/read and write."
            ' {"from": PID, "to": PID} connects two processes instead.',
            request=_SCHEMA,
            example={"name": "lines"},
        )

    def accept(self, caller: Caller, body: Body) -> Job:
        fields = _fields(body)
        if "from" in fields or "to" in fields:
            answer = self._connect(fields, caller)
        else:
            name = fields.get("name", "")
            if not isinstance(name, str):
                raise invalid(f"name must be text, not {name!r}")
            answer = b"%d\n" % self.pipes.make(name, caller).number

        async def job(sink: Sink) -> None:
            sink.write(answer)

        return job

    def _connect(self, fields: dict[str, Any], caller: Caller) -> bytes:
        if "name" in fields:
            raise invalid("a pipe between two processes has no name; give either name, or from and to")
        pids = [_pid(fields, field) for field in ("from", "to")]
        writer, reader = (self.kernel.process(pid) for pid in pids)
        pipe, write_fd, read_fd = self.kernel.channels.connect(writer, reader, caller)
        return json_line(
            {
                "pipe": pipe.number,
                "from": {"pid": writer.pid, "fd": write_fd},
                "to": {"pid": reader.pid, "fd": read_fd},
            }
        )


_SCHEMA: dict[str, Any] = {
    "description": "The text new, or an object.",
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "a second name for the pipe in dev/pipes"},
        "from": {"type": "integer", "description": "pid of the process that is to write"},
        "to": {"type": "integer", "description": "pid of the process that is to read"},
    },
    "additionalProperties": False,
}


def _fields(body: Body) -> dict[str, Any]:
    if isinstance(body, str) and body.strip() == "new":
        return {}
    if not isinstance(body, dict):
        raise invalid(f'a request for a pipe is the text "new" or a JSON object, not {body!r:.60}')
    unknown = sorted(body.keys() - _SCHEMA["properties"].keys())
    if unknown:
        raise invalid(f"unknown field {unknown[0]!r}; a request for a pipe has: name, or from and to")
    return body


def _pid(fields: dict[str, Any], field: str) -> int:
    pid = fields.get(field)
    if not isinstance(pid, int) or isinstance(pid, bool):
        raise invalid(f'{field} must be the pid of a process, as in {{"from": 1, "to": 2}}')
    return pid
