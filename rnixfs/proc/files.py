"""The files of `proc/`: one row a file."""

import dataclasses
import json
from collections.abc import Callable, Hashable, Iterable

from rnixfs.device import Body, Description, Job, Sink, json_line
from rnixfs.errors import denied, invalid, not_found
from rnixfs.exchange import DeviceNode
from rnixfs.kernel import Kernel
from rnixfs.node import (
    CommandRow,
    Control,
    Dir,
    Document,
    FixedDir,
    JournalNode,
    Link,
    Node,
    StreamFile,
    StreamNode,
    TableDir,
    fixed_link,
)
from rnixfs.proc import ipcfiles, signals
from rnixfs.proc import request as spawning
from rnixfs.proc.capabilities import capability_commands
from rnixfs.proc.groupfiles import GroupsDir, group_commands, signals_row
from rnixfs.proc.groups import suspend_tree, wake_tree
from rnixfs.proc.process import Process
from rnixfs.proc.signals import Signal
from rnixfs.proc.supervisorfiles import supervisor_commands, supervisor_file
from rnixfs.proc.threadfiles import threads_row
from rnixfs.types import Caller, Kind, Stat

SECRET_MARKS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "COOKIE", "AUTH")
"""A variable whose name holds one of these is shown masked."""


class SpawnDevice:
    """`proc/spawn`: a request is a process to be made, the answer is its pid."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def describe(self, caller: Caller) -> Description:
        return Description(
            device="/proc/spawn",
            does="Makes a process: text is its intent, JSON says more. The answer is its pid.",
            request=spawning.REQUEST_SCHEMA,
            example={"intent": "count the files here", "agent": "code-analyst"},
        )

    def accept(self, caller: Caller, body: Body) -> Job:
        process = self.kernel.spawn(spawning.read_spawn(body), caller)

        async def job(sink: Sink) -> None:
            sink.write(b"%d\n" % process.pid)

        return job


def proc_dir(kernel: Kernel) -> Dir:
    """The folder `proc/`."""
    return ProcDir(kernel)


class ProcDir(Dir):
    """`proc/`: the files of the system, and a folder for each process."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.fixed: dict[str, Node] = {
            "spawn": DeviceNode("proc/spawn", "/proc/spawn", SpawnDevice(kernel), kernel.start),
            "processes": Document("proc/processes", self._processes, self._changed),
            "events": fixed_link("proc/events", ".live/events"),
            "self": Link("proc/self", lambda caller: str(caller.agent), 1),
            "groups": GroupsDir(kernel.groups),
            "history": HistoryDir(kernel),
        }
        self.hidden: dict[str, Node] = {
            ".live": FixedDir(
                "proc/.live", {}, {"events": StreamNode("events", lambda _c: kernel.events.join())}
            )
        }

    def stat(self) -> Stat:
        # Writable, for `rmdir` of processes by users whom the host kernel checks.
        return Stat(Kind.DIRECTORY, mode=0o755, links=2, ttl=1.0)

    def _processes(self) -> bytes:
        return b"".join(process.status_line() for process in self.kernel.live())

    def _changed(self) -> int:
        return max((process.changed_ns for process in self.kernel.processes.values()), default=0)

    def lookup(self, name: str, caller: Caller) -> Node:
        if name.isdecimal() and (process := self.kernel.processes.get(int(name))) is not None:
            return process_dir(self.kernel, process)
        node = self.fixed.get(name) or self.hidden.get(name)
        if node is None:
            raise not_found(f"/proc/{name}")
        return node

    def entries(self, caller: Caller) -> Iterable[tuple[str, Node]]:
        yield from self.fixed.items()
        for pid, process in self.kernel.processes.items():
            yield str(pid), process_dir(self.kernel, process)

    def rmdir(self, name: str, caller: Caller) -> None:
        if not name.isdecimal():
            raise self._fixed(name)
        self.kernel.remove(self.kernel.process(int(name)), caller)


@dataclasses.dataclass(frozen=True)
class PastDir(Dir):
    """A folder of a finished process as its history shows it. Not the same node as that under `proc/<pid>`:
    the host kernel gives a folder one place only, and one that was removed stays dead.

    Args:
        key: says which folder it is.
        inner: gives the folder itself, when it is first looked into: a listing of all history reads no log.
    """

    key: Hashable
    inner: Callable[[], Dir] = dataclasses.field(compare=False)

    def lookup(self, name: str, caller: Caller) -> Node:
        return self._past(self.inner().lookup(name, caller))

    def entries(self, caller: Caller) -> Iterable[tuple[str, Node]]:
        for name, node in self.inner().entries(caller):
            yield name, self._past(node)

    @staticmethod
    def _past(node: Node) -> Node:
        return PastDir(("past", node), lambda: node) if isinstance(node, Dir) else node


class HistoryDir(Dir):
    """`proc/history`: the folders of finished processes, by UUID."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def lookup(self, name: str, caller: Caller) -> Node:
        if not self.kernel.history.holds(name):
            raise not_found(f"/proc/history/{name}")
        return self._past(name)

    def entries(self, caller: Caller) -> Iterable[tuple[str, Node]]:
        return ((uuid, self._past(uuid)) for uuid in self.kernel.history.uuids())

    def _past(self, uuid: str) -> Node:
        def inner() -> Dir:
            process = self.kernel.history.find(uuid)
            if process is None:
                raise not_found(f"/proc/history/{uuid}")
            return process_dir(self.kernel, process)

        return PastDir(("past", uuid), inner)


def process_dir(kernel: Kernel, process: Process) -> Dir:
    """`proc/<pid>/`, made once a process."""
    folder = process.folder
    if folder is None:
        folder = process.folder = _ProcessDir(kernel, process)
    return folder


class _ProcessDir(Dir):
    def __init__(self, kernel: Kernel, process: Process) -> None:
        self.kernel = kernel
        self.process = process
        self.files = FILES if process.board is None else {**FILES, **SUPERVISOR_FILES}
        self.made: dict[str, Node] = {}

    def _node(self, name: str, table: dict[str, "Row"]) -> Node:
        node = self.made.get(name)
        if node is None:
            node = self.made[name] = table[name](self.kernel, self.process)
        return node

    def lookup(self, name: str, caller: Caller) -> Node:
        table = self.files if name in self.files else HIDDEN
        if name not in table:
            raise not_found(f"/proc/{self.process.pid}/{name}")
        return self._node(name, table)

    def entries(self, caller: Caller) -> Iterable[tuple[str, Node]]:
        return ((name, self._node(name, self.files)) for name in self.files)


Row = Callable[[Kernel, Process], Node]


def _document(name: str, render: Callable[[Process], bytes]) -> Row:
    def row(_kernel: Kernel, process: Process) -> Node:
        return Document((process.uuid, name), lambda: render(process), lambda: process.changed_ns)

    return row


def _live(name: str) -> Row:
    return lambda _kernel, process: fixed_link((process.uuid, name), f".live/{name}")


def _text(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _line(text: str) -> bytes:
    return _text(text if not text or text.endswith("\n") else text + "\n")


def _summary(process: Process) -> bytes:
    return _text(process.context.summary(process.progress.prompt_tokens, process.context_window))


def _env(process: Process) -> bytes:
    masked = {name: mask(name, value) for name, value in sorted(process.launch.place.env.items())}
    return _text("".join(f"{name}={json.dumps(value)[1:-1]}\n" for name, value in masked.items()))


def mask(name: str, value: str) -> str:
    """The value of a variable as it may be shown."""
    secret = any(mark in name.upper() for mark in SECRET_MARKS)
    return "********" if secret and value else value


def _steps(_kernel: Kernel, process: Process) -> Node:
    def find(name: str, _caller: Caller) -> Node | None:
        stem, dot, kind = name.partition(".")
        if not (dot and kind == "json" and stem.isdecimal() and stem == str(int(stem))):
            return None
        number = int(stem)
        place = number - process.inherited - 1
        if not 0 <= place < len(process.step_records):
            return None
        record = process.step_records[place]
        return Document((process.uuid, "step", number), lambda: record, lambda: process.started_ns)

    return TableDir(
        (process.uuid, "steps"),
        find,
        lambda _caller: (
            f"{process.inherited + place}.json" for place in range(1, len(process.step_records) + 1)
        ),
    )


def _fds(_kernel: Kernel, process: Process) -> Node:
    def find(name: str, _caller: Caller) -> Node | None:
        opened = process.files.get(int(name)) if name.isdecimal() else None
        if opened is None:
            return None
        target = opened.path if opened.path.startswith("pipe:") else f"../../..{opened.path}"
        return Link((process.uuid, "fd", name, target), lambda _c: target, len(target.encode()))

    return TableDir((process.uuid, "fd"), find, lambda _caller: [str(fd) for fd in process.files])


def _hidden(kernel: Kernel, process: Process) -> Node:
    def joiner(join: Callable[[], StreamFile]) -> Callable[[Caller], StreamFile]:
        return lambda _caller: join()

    streams = {
        "trace": process.trace_live.join,
        "log": process.follow_log,
        "wait": lambda: _join_end(process),
    }
    nodes: dict[str, Node] = {
        name: StreamNode((process.uuid, "live", name), joiner(join)) for name, join in streams.items()
    }
    nodes["recv"] = ipcfiles.receiving(kernel, process)
    nodes["root"] = process.view.root
    return FixedDir((process.uuid, ".live"), {}, nodes)


def _join_end(process: Process) -> StreamFile:
    reader = process.ended_live.join()
    if process.exit is not None:
        reader.prepend(process.ending_line())
    return reader


def _ctl(kernel: Kernel, process: Process) -> Node:
    def allow(caller: Caller) -> None:
        if caller.agent and not process.descends_from(caller.agent):
            raise denied(f"process {caller.agent} has no power over process {process.pid}")

    return Control((process.uuid, "ctl"), _commands(kernel, process), allow)


def _commands(kernel: Kernel, process: Process) -> dict[str, CommandRow]:
    def send(signal: Signal) -> Callable[[Caller, str], None]:
        def command(caller: Caller, rest: str) -> None:
            _nothing(rest)
            kernel.signal(process, signal, caller)

        return command

    def named(caller: Caller, rest: str) -> None:
        kernel.signal(process, signals.parse(rest), caller)

    def note(event: str, caller: Caller, **data: object) -> None:
        kernel.happen(process, event, {**data, "by": caller.agent})

    def block(caller: Caller, rest: str) -> None:
        signal = signals.parse(rest)
        process.signals.refuse_kill(signal, "blocked")
        note("block", caller, signal=str(signal))

    def unblock(caller: Caller, rest: str) -> None:
        signal = signals.parse(rest)
        waiting = signal in process.signals.pending
        note("unblock", caller, signal=str(signal))
        if waiting:
            kernel.deliver(process, signal)

    def budget(caller: Caller, rest: str) -> None:
        if not rest.isdecimal():
            raise invalid(f"budget takes a number of tokens, 0 for no limit, not {rest!r}")
        note("budget", caller, tokens=int(rest))

    def say(caller: Caller, rest: str) -> None:
        if not rest:
            raise invalid("say takes the text to say")
        if not process.live:
            raise invalid(f"process {process.pid} has ended; nobody would hear it")
        note("say", caller, text=rest)

    def suspend(caller: Caller, rest: str) -> None:
        who = f"process {caller.agent}" if caller.agent else "its owner"
        _nothing(rest)
        suspend_tree(kernel, process, f"{who} suspended it", caller)

    def wake(caller: Caller, rest: str) -> None:
        _nothing(rest)
        wake_tree(kernel, process, caller)

    def checkpoint(caller: Caller, rest: str) -> None:
        _nothing(rest)
        kernel.check_power(process, caller)
        kernel.checkpoint(process, caller)

    def fork(caller: Caller, rest: str) -> None:
        if rest and not rest.isdecimal():
            raise invalid(f"fork takes the number of a step, or nothing for the last one, not {rest!r}")
        kernel.forks.fork(process, int(rest) if rest else None, caller)

    rows = [
        ("term", "end it: it may finish what it does for 10 s", send(Signal.TERM)),
        ("kill", "end it at once", send(Signal.KILL)),
        ("int", "interrupt it", send(Signal.INT)),
        ("pause", "stop it before its next step", send(Signal.PAUSE)),
        ("resume", "let it go on", send(Signal.RESUME)),
        ("suspend", "let it and its descendants do nothing until woken, over restarts too", suspend),
        ("wake", "let it and its descendants go on where they stood", wake),
        ("checkpoint", "see that all of it so far outlives a power cut", checkpoint),
        ("fork [STEP]", "make a process that goes on from a step of it, the last one if none", fork),
        ("signal NAME", "send a signal: TERM KILL INT PAUSE RESUME", named),
        ("block NAME", "keep a signal waiting (not KILL)", block),
        ("unblock NAME", "let a signal through again", unblock),
        ("budget N", "tokens it may use in all; 0 for no limit", budget),
        ("say TEXT", "add a message of the user before its next step", say),
        *capability_commands(kernel, process),
    ]
    rows += supervisor_commands(process)
    rows += group_commands(kernel, process)
    return {usage.partition(" ")[0]: CommandRow(usage, text, run) for usage, text, run in rows}


def _nothing(rest: str) -> None:
    if rest:
        raise invalid(f"this command takes nothing after it, but got {rest!r}")


FILES: dict[str, Row] = {
    "status": _document("status", Process.status_line),
    "intent": _document("intent", lambda process: _text(process.launch.intent)),
    "context": _document("context", _summary),
    "messages.json": _document("messages.json", lambda process: process.context.as_json()),
    "result": _document("result", lambda process: _line(process.result)),
    "wait": _live("wait"),
    "ctl": _ctl,
    "trace": _live("trace"),
    "trace.jsonl": lambda _kernel, process: JournalNode((process.uuid, "trace.jsonl"), process.trace),
    "log": lambda _kernel, process: JournalNode((process.uuid, "log"), process.log),
    "steps.jsonl": lambda _kernel, process: JournalNode((process.uuid, "steps.jsonl"), process.steps_journal),
    "steps": _steps,
    "mailbox": ipcfiles.mailbox,
    "recv": _live("recv"),
    "fd": _fds,
    "threads": threads_row,
    "signals": signals_row,
    "children": _document("children", lambda process: _text("".join(f"{pid}\n" for pid in process.children))),
    "caps": _document("caps", lambda process: json_line(process.rights.listing())),
    "env": _document("env", _env),
    "root": lambda _kernel, process: fixed_link((process.uuid, "root"), ".live/root"),
}
"""The listed files of a process."""

SUPERVISOR_FILES: dict[str, Row] = {"supervisor": supervisor_file}
"""The files that only a supervisor has beside those."""

HIDDEN: dict[str, Row] = {".live": _hidden}
"""What can be entered and is never listed, so that recursive tools neither wait nor go in circles."""
