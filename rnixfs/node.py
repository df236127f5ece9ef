"""Names and opens: the two objects that the tree is made of.

A `Node` is a name. It is a value: two nodes that compare equal are the same thing and get the same inode.
A `File` is one open of a name and holds all that belongs to that open. Neither knows who serves it; the
in-memory system calls and the mount use both in the same way.

Nothing here waits. `File.read` and `File.write` raise `trio.WouldBlock` where there is nothing to give yet,
and whoever serves the file awaits `File.wait`, in a way that can be interrupted. So the common request costs
no scheduling at all, and every wait is visible to poll.

Over 400 lines because the classes of files stand here side by side: document, journal, stream and control
share their contract, and what differs should be seen at a glance.
"""

import dataclasses
import os
from collections.abc import Callable, Hashable, Iterable

import trio

from rnixfs import limits
from rnixfs.device import json_line
from rnixfs.errors import Code, SyscallError, denied, not_found
from rnixfs.types import Caller, Kind, Ready, Stat


class Pulse:
    """Wakes whoever waits for a file to become ready: tasks, and the mount's poll handles.

    A wake-up says "look again", never "it is ready".
    """

    __slots__ = ("_once", "_tasks")

    def __init__(self) -> None:
        self._tasks = trio.lowlevel.ParkingLot()
        self._once: dict[object, Callable[[], None]] = {}

    def fire(self) -> None:
        """Wake everybody who waits now."""
        self._tasks.unpark_all()
        if self._once:
            once, self._once = self._once, {}
            for call in once.values():
                call()

    def once(self, key: object, call: Callable[[], None]) -> None:
        """Call `call` at the next wake-up; a later call with the same key takes its place."""
        self._once[key] = call

    def forget(self, key: object) -> None:
        """Take back what `once` was told."""
        self._once.pop(key, None)

    async def wait(self) -> None:
        """Sleep until the next wake-up."""
        await self._tasks.park()


class File:
    """One open. Unless a class says otherwise it refuses to be read or written.

    Args:
        pulse: fired when the file may have become ready; None for files that always are.
        direct: whether each read reaches the file, in place of the host kernel's page cache. Everything
            that can wait must be direct, or `stat` waits with it.
    """

    pulse: Pulse | None = None
    direct: bool = True

    def read(self, size: int, offset: int) -> bytes:
        """At most `size` bytes from `offset`; b"" is the end.

        Raises:
            trio.WouldBlock: nothing to read yet.
            SyscallError: BAD_FD where the file was not opened for reading.
        """
        raise SyscallError(Code.BAD_FD, "this file was not opened for reading")

    def write(self, data: bytes, offset: int) -> int:
        """Take bytes and say how many.

        Raises:
            trio.WouldBlock: no room yet.
            SyscallError: what is wrong with the bytes.
        """
        raise SyscallError(Code.BAD_FD, "this file was not opened for writing")

    def truncate(self, size: int) -> None:
        """Set the size; most files have none to set and agree to anything, as /proc does for `> file`."""

    def poll(self) -> Ready:
        """What can be done now without waiting."""
        return Ready.READ | Ready.WRITE

    async def wait(self, want: Ready) -> None:
        """Sleep until something of `want` (or a hang-up) may be done."""
        while not self.poll() & (want | Ready.HANGUP):
            if self.pulse is None:
                return
            await self.pulse.wait()

    def close(self) -> None:
        """The last reference is gone. Must not raise and must not wait."""


class Node:
    """One name of the tree."""

    def stat(self) -> Stat:
        """What is known of it. Must be quick and free of effects."""
        raise SyscallError(Code.INTERNAL, f"{type(self).__name__} cannot say what it is")

    def open(self, caller: Caller, flags: int) -> File:
        """Open it.

        Args:
            caller: who opens, for all that this open will do.
            flags: the O_… flags of open(2), access mode included.

        Raises:
            SyscallError: PERMISSION for a mode it does not have.
        """
        raise SyscallError(Code.INVALID, "this cannot be opened")

    def acting(self, caller: Caller) -> Caller:
        """The caller, as one who acts for the process through whose view this name was found, if any."""
        return caller

    def setattr(self, caller: Caller, change: "Change") -> None:
        """Change attributes. Modes and owners of what is made up here mean nothing, so refuse those;
        times and sizes are agreed to, since `touch` and `> file` ask for them."""
        if change.mode is not None or change.owner is not None:
            raise SyscallError(Code.NOT_PERMITTED, "modes and owners of this tree cannot be changed")


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """The attributes that setattr is to change; None leaves one as it is.

    Args:
        size: bytes.
        mode: permission bits.
        owner: (uid, gid), -1 for the one that stays.
        times: (atime, mtime) in nanoseconds, None for the one that stays.
    """

    size: int | None = None
    mode: int | None = None
    owner: tuple[int, int] | None = None
    times: tuple[int | None, int | None] | None = None


def wants_write(flags: int) -> bool:
    """Whether open(2) flags ask for writing."""
    return flags & os.O_ACCMODE != os.O_RDONLY


def wants_read(flags: int) -> bool:
    """Whether open(2) flags ask for reading."""
    return flags & os.O_ACCMODE != os.O_WRONLY


def refuse_writing(flags: int, what: str) -> None:
    """Raise PERMISSION when the flags ask for writing what can only be read."""
    if wants_write(flags):
        raise denied(f"{what} can only be read")


def refuse_reading(flags: int, what: str) -> None:
    """Raise PERMISSION when the flags ask for reading what can only be written."""
    if wants_read(flags):
        raise denied(f"{what} can only be written")


# --- folders ---


class Dir(Node):
    """A folder. Making, removing and renaming refuse unless a class allows them."""

    def stat(self) -> Stat:
        return Stat(Kind.DIRECTORY, mode=0o555, links=2, ttl=1.0)

    def lookup(self, name: str, caller: Caller) -> Node:
        """The node called `name`.

        Raises:
            SyscallError: NOT_FOUND; PERMISSION for one that this caller may not see.
        """
        raise not_found(name)

    def entries(self, caller: Caller) -> Iterable[tuple[str, Node]]:
        """The names to list, in a stable order, without `.` and `..`."""
        return ()

    def create(self, name: str, mode: int, caller: Caller, flags: int) -> tuple[Node, File]:
        """Make a file and open it."""
        raise self._fixed(name)

    def mkdir(self, name: str, mode: int, caller: Caller) -> Node:
        """Make a folder."""
        raise self._fixed(name)

    def unlink(self, name: str, caller: Caller) -> None:
        """Remove a file."""
        raise self._fixed(name)

    def rmdir(self, name: str, caller: Caller) -> None:
        """Remove a folder."""
        raise self._fixed(name)

    def rename(self, name: str, target: "Dir", new: str, caller: Caller, flags: int) -> None:
        """Give an entry another name, in this folder or another."""
        raise self._fixed(name)

    def symlink(self, name: str, to: str, caller: Caller) -> Node:
        """Make a symbolic link."""
        raise self._fixed(name)

    def link(self, name: str, node: Node, caller: Caller) -> Node:
        """Give a node of this or another folder a second name."""
        raise self._fixed(name)

    @staticmethod
    def _fixed(name: str) -> SyscallError:
        return SyscallError(
            Code.NOT_PERMITTED,
            f"names of this folder are made by the system; {name} cannot be made or changed",
        )


@dataclasses.dataclass(frozen=True)
class FixedDir(Dir):
    """A folder whose entries are known when it is made; equal to another with the same key."""

    key: Hashable
    children: dict[str, Node] = dataclasses.field(compare=False, default_factory=dict)
    hidden: dict[str, Node] = dataclasses.field(compare=False, default_factory=dict)

    def lookup(self, name: str, caller: Caller) -> Node:
        node = self.children.get(name) or self.hidden.get(name)
        if node is None:
            raise not_found(name)
        return node

    def entries(self, caller: Caller) -> Iterable[tuple[str, Node]]:
        return self.children.items()


@dataclasses.dataclass(frozen=True)
class TableDir(Dir):
    """A folder whose entries are made when asked for.

    Args:
        key: says which folder it is.
        find: the node of a name, or None. Also finds what is not listed.
        names: the names to list.
    """

    key: Hashable
    find: Callable[[str, Caller], Node | None] = dataclasses.field(compare=False)
    names: Callable[[Caller], Iterable[str]] = dataclasses.field(compare=False)

    def lookup(self, name: str, caller: Caller) -> Node:
        node = self.find(name, caller)
        if node is None:
            raise not_found(name)
        return node

    def entries(self, caller: Caller) -> Iterable[tuple[str, Node]]:
        for name in self.names(caller):
            node = self.find(name, caller)
            if node is not None:
                yield name, node


@dataclasses.dataclass(frozen=True)
class Link(Node):
    """A symbolic link; `target` is asked each time, for the caller who follows it."""

    key: Hashable
    target: Callable[[Caller], str] = dataclasses.field(compare=False)
    size: int = dataclasses.field(compare=False, default=0)

    def stat(self) -> Stat:
        return Stat(Kind.LINK, size=self.size, mode=0o777, name_ttl=0.0)


def fixed_link(key: Hashable, to: str) -> Link:
    """A symbolic link that always leads to the same place."""
    return Link(key, lambda _caller: to, len(to.encode()))


# --- documents: a snapshot, made at open ---


class Snapshot(File):
    """The bytes of a document as they were at open."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, size: int, offset: int) -> bytes:
        return self.data[offset : offset + size]

    def poll(self) -> Ready:
        return Ready.READ


@dataclasses.dataclass(frozen=True)
class Document(Node):
    """A file that is rendered when opened; its size is true.

    Args:
        key: says which document it is.
        render: makes the bytes; quick, free of effects.
        changed: time of the last change, nanoseconds since 1970; must move only when the bytes do, or
            backup tools report a change under their hands.
    """

    key: Hashable
    render: Callable[[], bytes] = dataclasses.field(compare=False)
    changed: Callable[[], int] = dataclasses.field(compare=False, default=lambda: 0)
    mode: int = dataclasses.field(compare=False, default=0o444)

    def stat(self) -> Stat:
        return Stat(Kind.FILE, size=len(self.render()), mode=self.mode, mtime_ns=self.changed())

    def open(self, caller: Caller, flags: int) -> File:
        refuse_writing(flags, "a document")
        return Snapshot(self.render())


# --- journals: history that grows ---


class Journal:
    """Records in order, kept from the first on.

    Args:
        limit: bytes kept. Records past it are counted in `lost`, and one line says so at the end.
        settle: called before its records are shown, so that what was seen outlives the system.
    """

    def __init__(self, limit: int = limits.JOURNAL_MAX, settle: Callable[[], None] = lambda: None) -> None:
        self.settle = settle
        self.data = bytearray()
        self.limit = limit
        self.lost = 0
        self.changed_ns = 0
        self.closed = False
        self.pulse = Pulse()

    def append(self, record: bytes, now_ns: int) -> None:
        """Add a record, which must end with a newline."""
        self.changed_ns = now_ns
        if self.lost or len(self.data) + len(record) > self.limit:
            self.lost += 1
        else:
            self.data += record
        self.pulse.fire()

    def tail(self) -> bytes:
        """What follows the kept records: the count of those that are not kept."""
        return b'{"dropped":%d}\n' % self.lost if self.lost else b""

    def __len__(self) -> int:
        return len(self.data) + len(self.tail())


class JournalFile(File):
    """One open of a journal: its end is where the journal ends at that moment, as `tail -f` needs."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def read(self, size: int, offset: int) -> bytes:
        self.journal.settle()
        kept = self.journal.data
        if offset >= len(kept):
            start = offset - len(kept)
            return self.journal.tail()[start : start + size]
        return bytes(memoryview(kept)[offset : offset + size])

    def poll(self) -> Ready:
        return Ready.READ


@dataclasses.dataclass(frozen=True)
class JournalNode(Node):
    """The name of a journal."""

    key: Hashable
    journal: Journal = dataclasses.field(compare=False)

    def stat(self) -> Stat:
        return Stat(Kind.FILE, size=len(self.journal), mtime_ns=self.journal.changed_ns)

    def open(self, caller: Caller, flags: int) -> File:
        refuse_writing(flags, "a journal")
        return JournalFile(self.journal)


# --- streams: what happens from now on ---


class StreamFile(File):
    """One reader of a stream: a bounded queue of records.

    A reader that lags by more than `limit` records loses the oldest and is told how many by a record
    `{"dropped": n}` in their place.
    """

    def __init__(
        self, on_close: Callable[["StreamFile"], None], limit: int = limits.STREAM_RECORDS_MAX
    ) -> None:
        self.pulse: Pulse = Pulse()
        self._records: list[bytes] = []
        self._taken = 0
        self._dropped = 0
        self._limit = limit
        self._ended = False
        self._on_close = on_close
        self._rest = b""

    def push(self, record: bytes) -> None:
        """Give this reader a record, which must end with a newline."""
        if self._ended:
            return
        self._records.append(record)
        if len(self._records) - self._taken > self._limit:
            self._taken += 1
            self._dropped += 1
        if self._taken > self._limit:
            del self._records[: self._taken]
            self._taken = 0
        self.pulse.fire()

    def prepend(self, data: bytes) -> None:
        """Give this reader what came before it joined."""
        self._rest = data + self._rest
        self.pulse.fire()

    def end(self) -> None:
        """No record will follow; the reader gets the end of the file after the last one."""
        self._ended = True
        self.pulse.fire()

    def read(self, size: int, offset: int) -> bytes:
        """The next bytes, whatever the offset: a stream has no positions."""
        if not self._rest:
            self._rest = self._next(size)
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def _next(self, size: int) -> bytes:
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            return b'{"dropped":%d}\n' % dropped
        if self._taken == len(self._records):
            if self._ended:
                return b""
            raise trio.WouldBlock
        return self._gather(size)

    def _gather(self, size: int) -> bytes:
        # As many whole records as fit, so that a busy stream does not cost a request a record.
        last, length = self._taken, 0
        while last < len(self._records) and (length == 0 or length + len(self._records[last]) <= size):
            length += len(self._records[last])
            last += 1
        data = b"".join(self._records[self._taken : last])
        self._taken = last
        return data

    def poll(self) -> Ready:
        waiting = self._rest or self._dropped or self._taken < len(self._records)
        if self._ended:
            return Ready.READ | Ready.HANGUP
        return Ready.READ if waiting else Ready.NONE

    def close(self) -> None:
        self._ended = True
        self._on_close(self)


class Broadcast:
    """The source of a stream: gives each record to every reader that is there now."""

    def __init__(self) -> None:
        self._readers: dict[StreamFile, None] = {}
        self.ended = False

    def __bool__(self) -> bool:
        """Whether anybody reads, so that records nobody wants need not be made."""
        return bool(self._readers)

    def push(self, record: bytes) -> None:
        """Give a record to every reader."""
        for reader in self._readers:
            reader.push(record)

    def end(self) -> None:
        """End every reader, now and in future."""
        self.ended = True
        for reader in list(self._readers):
            reader.end()
        self._readers.clear()

    def _leave(self, reader: StreamFile) -> None:
        self._readers.pop(reader, None)

    def join(self) -> StreamFile:
        """A new reader, who sees what comes from now on."""
        reader = StreamFile(self._leave)
        if self.ended:
            reader.end()
        else:
            self._readers[reader] = None
        return reader


@dataclasses.dataclass(frozen=True)
class StreamNode(Node):
    """A file whose reads wait for what comes next.

    Args:
        key: says which stream it is.
        join: opens it for a caller.
    """

    key: Hashable
    join: Callable[[Caller], File] = dataclasses.field(compare=False)

    def stat(self) -> Stat:
        return Stat(Kind.FILE)

    def open(self, caller: Caller, flags: int) -> File:
        refuse_writing(flags, "a stream")
        return self.join(caller)


# --- control files ---


Command = Callable[[Caller, str], None]
"""What a line of a control file does; the text is the line without its first word."""


@dataclasses.dataclass(frozen=True, slots=True)
class CommandRow:
    """One command of a control file.

    Args:
        usage: its line as one would write it, such as `signal NAME`.
        help: one line on what it does.
        run: does it.
    """

    usage: str
    help: str
    run: Command


class ControlFile(File):
    """One open of a control file: each write is a batch of whole lines, done before it returns.

    Where it is open for reading too, a read after a write that was refused gives the reason.
    """

    def __init__(self, node: "Control", caller: Caller) -> None:
        self.node = node
        self.caller = caller
        self.shown = node.listing()

    def read(self, size: int, offset: int) -> bytes:
        return self.shown[offset : offset + size]

    def write(self, data: bytes, offset: int) -> int:
        try:
            self._do(data)
        except SyscallError as error:
            # The write does not move the position, so the reason begins where it would have gone.
            self.shown = bytes(offset) + json_line({"error": error.at(syscall="Write").as_dict()})
            raise
        return len(data)

    def _do(self, data: bytes) -> None:
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise SyscallError(
                Code.INVALID, f"a command must be UTF-8 text; byte {error.start} is not"
            ) from None
        for line in text.splitlines():
            if line.strip():
                self.node.do(self.caller, line.strip())


@dataclasses.dataclass(frozen=True)
class Control(Node):
    """A file that takes commands, one a line, and lists them when read.

    Args:
        key: says which file it is.
        commands: the commands by their first word.
        allow: raises when this caller may not command.
    """

    key: Hashable
    commands: dict[str, CommandRow] = dataclasses.field(compare=False)
    allow: Callable[[Caller], None] = dataclasses.field(compare=False, default=lambda _caller: None)

    def listing(self) -> bytes:
        """What reading gives: one command a line, with its help."""
        wide = max((len(row.usage) for row in self.commands.values()), default=0)
        return "".join(f"{row.usage:<{wide}}  {row.help}\n" for row in self.commands.values()).encode()

    def do(self, caller: Caller, line: str) -> None:
        """Do one line.

        Raises:
            SyscallError: INVALID for an unknown command, or what the command itself raises.
        """
        word, _, rest = line.partition(" ")
        row = self.commands.get(word.lower())
        if row is None:
            raise SyscallError(Code.INVALID, f"unknown command {word!r}; one of: {', '.join(self.commands)}")
        row.run(caller, rest.strip())

    def stat(self) -> Stat:
        return Stat(Kind.FILE, size=len(self.listing()), mode=0o644)

    def open(self, caller: Caller, flags: int) -> File:
        if wants_write(flags):
            self.allow(caller)
        return ControlFile(self, caller)
