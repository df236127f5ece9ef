"""A daemon with drivers that misbehave in every way that a test knows: `hostile.py [--watch] OPTIONS`.

It is the daemon of `rnixfs.boot` in all else, so that what protects it here protects it everywhere. With
`--watch` interrupts come from the watcher over /proc, as where libfuse's own cannot be had.
"""

import sys
from collections.abc import Iterable
from typing import Any, NoReturn

import trio

from rnixfs import boot
from rnixfs.bootstrap import System
from rnixfs.device import Body, Description, Job, Sink
from rnixfs.edge.interrupt import Client, Interrupts
from rnixfs.errors import Code, SyscallError
from rnixfs.exchange import DeviceNode
from rnixfs.node import Dir, Document, File, FixedDir, Link, Node, Pulse, Snapshot, StreamNode
from rnixfs.types import Caller, Kind, Ready, Stat


def fail(*_arguments: object) -> NoReturn:
    """What a driver must never do."""
    raise ValueError("a driver failed on purpose")


def fail_in_a_group(*_arguments: object) -> NoReturn:
    """The same from inside a nursery."""
    raise ExceptionGroup("a nursery", [ValueError("a driver failed on purpose")])


def fail_without_number(*_arguments: object) -> NoReturn:
    """An OSError that says nothing."""
    raise OSError("a driver failed on purpose")


async def never(_sink: Sink) -> None:
    """A job that does not end."""
    await trio.sleep_forever()


async def half(sink: Sink) -> None:
    """A job that fails in the middle of its answer."""
    sink.write(b"first half")
    fail()


async def failing(sink: Sink) -> None:
    """A job that fails at once."""
    fail()


async def grouped(sink: Sink) -> None:
    """A job that fails in a nursery of its own."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(failing, sink)


async def flooding(sink: Sink) -> None:
    """A job that answers without end."""
    while True:
        sink.write(b"x" * (1 << 20))
        await trio.lowlevel.checkpoint()


async def cancelling(sink: Sink) -> None:
    """A job that loses a cancellation that is not its own."""
    with trio.CancelScope() as scope:
        scope.cancel()
        await trio.lowlevel.checkpoint()
    raise SyscallError(Code.DRIVER, "the bus is gone")


class Hostile:
    """A device whose parts can be replaced by what fails."""

    def __init__(self, **parts: Any) -> None:
        self.parts = parts

    def describe(self, caller: Caller) -> Description:
        self.parts.get("describe", str)(caller)
        return Description("/hostile", "Misbehaves.", {"type": "object"}, {})

    def accept(self, caller: Caller, body: Body) -> Job:
        self.parts.get("accept", str)(caller)
        job: Job = self.parts.get("job", never)
        return job


class HostileFile(File):
    """An open file of which one part fails."""

    def __init__(self, part: str, fault: Any) -> None:
        self.pulse: Pulse = Pulse()
        setattr(self, part, fault)

    def read(self, size: int, offset: int) -> bytes:
        return b"fine\n"[offset : offset + size]

    def write(self, data: bytes, offset: int) -> int:
        return len(data)

    def poll(self) -> Ready:
        return Ready.READ


def too_much(size: int, offset: int) -> bytes:
    """More than was asked for, which pyfuse3 cannot hand on."""
    return b"x" * (size + 1)


def text(size: int, offset: int) -> str:
    """What is no bytes."""
    return "text"


def nothing(*_arguments: object) -> Any:
    """What is no answer."""
    return None


class OpensAs(Node):
    """A node that opens as a file."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def stat(self) -> Stat:
        return Stat(Kind.FILE, mode=0o666)

    def open(self, caller: Caller, flags: int) -> File:
        made: File = self.file()
        return made


class NoStat(Node):
    """A node that cannot say what it is."""

    def stat(self) -> Stat:
        fail()


class NothingStat(Node):
    """A node that says nothing."""

    def stat(self) -> Stat:
        return nothing()


class NothingDir(Dir):
    """A folder whose names are nothing."""

    def lookup(self, name: str, caller: Caller) -> Node:
        return nothing()

    def entries(self, caller: Caller) -> Iterable[tuple[str, Node]]:
        return nothing()


class NoHash(Node):
    """A node that has no place in a table."""

    __hash__ = None  # type: ignore[assignment]

    def stat(self) -> Stat:
        return Stat(Kind.FILE)


class NoLookup(Dir):
    """A folder that fails at each name."""

    def lookup(self, name: str, caller: Caller) -> Node:
        fail()

    def mkdir(self, name: str, mode: int, caller: Caller) -> Node:
        fail()


class NoList(Dir):
    """A folder that fails in the middle of its list."""

    def entries(self, caller: Caller) -> Iterable[tuple[str, Node]]:
        yield "one", Document("one", bytes)
        fail()


def hostile(system: System) -> Dir:
    """A folder of everything that goes wrong. What spoils a list of names is hidden."""
    devices = {
        "describe": Hostile(describe=fail),
        "accept": Hostile(accept=fail),
        "job": Hostile(job=failing),
        "group": Hostile(job=grouped),
        "half": Hostile(job=half),
        "never": Hostile(),
        "flood": Hostile(job=flooding),
        "bus": Hostile(job=cancelling),
    }
    files: dict[str, tuple[str, Any]] = {
        "read": ("read", fail),
        "read-group": ("read", fail_in_a_group),
        "read-oserror": ("read", fail_without_number),
        "read-too-much": ("read", too_much),
        "read-text": ("read", text),
        "read-nothing": ("read", nothing),
        "write-nothing": ("write", nothing),
        "write-text": ("write", text),
        "poll-nothing": ("poll", nothing),
        "write": ("write", fail),
        "poll": ("poll", fail),
        "close": ("close", fail),
        "truncate": ("truncate", fail),
    }
    nodes: dict[str, Node] = {
        name: DeviceNode(("hostile", name), f"/hostile/{name}", device, system.kernel.start)
        for name, device in devices.items()
    }
    nodes |= {
        f"file-{name}": OpensAs(lambda part=part, fault=fault: HostileFile(part, fault))
        for name, (part, fault) in files.items()
    }
    nodes |= {
        "open": StreamNode("open", fail),
        "open-nothing": StreamNode("open-nothing", lambda _caller: None),  # type: ignore[arg-type, return-value]
        "lookup": NoLookup(),
        "list": NoList(),
        "document": OpensAs(lambda: Snapshot(b"fine\n")),
    }
    hidden: dict[str, Node] = {
        "stat": NoStat(),
        "hash": NoHash(),
        "render": Document("render", fail),
        "stat-nothing": NothingStat(),
        "link-nothing": Link("link-nothing", nothing),
        "lookup-nothing": NothingDir(),
        "list-nothing": NothingDir(),
    }
    return FixedDir("hostile", nodes, hidden)


class HostileSystem(System):
    """A system with a folder of drivers that misbehave."""

    def _tree(self) -> Dir:
        tree = super()._tree()
        assert isinstance(tree, FixedDir)
        tree.children["hostile"] = hostile(self)
        return tree


class Watching(Interrupts):
    """Interrupts that never find out how libfuse gives them, so that the watcher does it all."""

    async def calibrate(self, client: Client) -> bool:
        self.settled = True
        return False


def main(arguments: list[str]) -> int:
    """Run it; returns its exit status."""
    # The daemon offers no way to put other parts into it, and needs none but here.
    parts: dict[str, object] = {"System": HostileSystem}
    if "--watch" in arguments:
        arguments.remove("--watch")
        parts["Interrupts"] = Watching
    vars(boot).update(parts)
    return boot.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
