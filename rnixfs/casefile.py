"""Cases on the command line: a recorded run becomes a file, and the file a test of the agent as it is today.

    python -m rnixfs.casefile record --log LOG.DB PID|UUID > CASE.yaml
    python -m rnixfs.casefile test [--live-tools] CASE.yaml...

A test runs the agent in a system that is only in memory, in the current folder. The scripted model plays the
case. Tools are answered from it, or with `--live-tools` really run; children are answered from it always. The
status of `test` is 0 where every case passes, else 1; that of `record` is 2 for a run that no case can hold.
"""

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import trio

from rnixfs import limits
from rnixfs.bootstrap import System
from rnixfs.case import DURING, Before, Case, Met, Wanted, read_case
from rnixfs.caserecord import record_case
from rnixfs.drivers.script import ScriptModel
from rnixfs.errors import Code, SyscallError, printable
from rnixfs.kernel import Kernel
from rnixfs.llm import ModelAnswer, ModelRequest, ToolCall, ToolSpec
from rnixfs.modelshelf import Models
from rnixfs.proc.process import Process
from rnixfs.proc.progress import Done
from rnixfs.proc.state import Exit
from rnixfs.programs.mcptools import is_servers
from rnixfs.programs.reason import LiveHands, reason
from rnixfs.programs.tools import Tool, fail, with_servers
from rnixfs.recordedstep import place_of
from rnixfs.relaunch import MakeSystem, relaunch, usual_system
from rnixfs.state.memory import MemoryStore
from rnixfs.state.reading import ReadOnlyLog
from rnixfs.state.store import Record
from rnixfs.syscalls import Syscalls
from rnixfs.traceline import clip
from rnixfs.yamlread import ManifestError

SCRIPT = "script"
"""The model's name under `dev/llm/`."""

CHILDREN = ("spawn", "wait")
"""Tools that are answered from the case always: a case has no model for children."""

_SHOWN = 160  # characters of a value in a line


class Deviation(NamedTuple):
    """Something that is not as it was.

    Args:
        step: in which step it shows.
        field: what it is.
        expected: what the case has.
        got: what there was.
    """

    step: int
    field: str
    expected: str
    got: str

    def line(self) -> str:
        """It in words."""
        expected, got = (clip(_json(printable(one)), _SHOWN) for one in (self.expected, self.got))
        return f"step {self.step}: {self.field}: expected {expected}, got {got}"


# --- running a case ---


class _Hands(LiveHands):
    """The hands of a process whose past is in a case.

    Args:
        case: what it meets.
        kernel: where it runs.
        live: whether tools are really run.
    """

    def __init__(self, case: Case, kernel: Kernel, live: bool) -> None:
        super().__init__()
        self._case = case
        self._kernel = kernel
        self._live = live

    async def outfit(self, sys: Syscalls) -> tuple[bool, dict[str, Tool]]:
        native, tools = await super().outfit(sys)
        return native, tools if self._live else with_servers(tools, self._of_servers())

    def _of_servers(self) -> dict[str, Tool]:
        """The tools of MCP servers that the case has results of: none is mounted to be asked for its own."""
        results = [one for met in self._case.met.values() for one in met.results]
        names = {
            one.tool for one in results if is_servers(one.tool) and not one.error.startswith("NOT_FOUND")
        }
        return {
            name: Tool(ToolSpec(name, "", {"type": "object"}), _unasked, False, "/mnt/mcp") for name in names
        }

    async def heard(self, sys: Syscalls) -> tuple[list[str], list[tuple[int, str]]]:
        await trio.lowlevel.checkpoint()
        before = self._case.met.get(sys.usage[0] + 1, Met()).before
        self._happen(sys, before)
        # In their order, whoever speaks.
        return [one.text for one in before if one.kind not in DURING], []

    async def ask(self, sys: Syscalls, request: ModelRequest) -> ModelAnswer:
        answer = await super().ask(sys, request)
        self._happen(sys, self._case.met.get(sys.progress.step, Met()).during)
        return answer

    def _happen(self, sys: Syscalls, turns: Sequence[Before]) -> None:
        process = self._kernel.process(sys.pid)
        for one in turns:
            if one.kind in DURING:
                data = {"tokens": one.tokens} if one.kind == "budget" else {"path": one.text}
                self._kernel.happen(process, one.kind, data)

    async def run(self, sys: Syscalls, tools: dict[str, Tool], call: ToolCall, key: str) -> Done:
        if self._live and call.name not in CHILDREN:
            return await super().run(sys, tools, call, key)
        await trio.lowlevel.checkpoint()
        step, place = sys.progress.step, place_of(key)
        results = self._case.met.get(step, Met()).results
        if place >= len(results) or results[place].tool != call.name:
            missing = SyscallError(Code.NOT_FOUND, f"the case has no result of this call in step {step}")
            return fail(call, tools[call.name], missing)
        found = results[place]
        device = tools[call.name].device
        return Done(call.id, call.name, call.arguments, found.text, found.error, 0, device)


async def _unasked(_sys: Syscalls, _arguments: dict[str, Any], _key: str) -> tuple[str, list[int]]:
    raise SyscallError(Code.NOT_PERMITTED, "a tool of a case does nothing")


async def run_case(
    case: Case, cwd: str, *, live: bool = False, make_system: MakeSystem = usual_system
) -> list[Deviation]:
    """Run the agent of a case as it is today, and compare.

    Args:
        case: what is run.
        cwd: the folder where it stands.
        live: whether its tools are really run.
        make_system: makes the system that it runs in.

    Raises:
        SyscallError: it cannot be launched, and why.
    """
    store = MemoryStore()
    system = make_system(store, cwd)
    process = await _played(case, system, cwd, live)
    events = list(store.load(process.pid, ("tool_finished",)))
    return list(_deviations(case, process, events, exactly=not live))


async def _played(case: Case, system: System, cwd: str, live: bool) -> Process:
    kernel = system.kernel
    kernel.servers.off = not live
    model = ScriptModel(SCRIPT, [case.scenario])
    models = Models(lambda entry: model if entry.name == SCRIPT else None, kernel.start)
    request = msgspec.structs.replace(case.request, cwd=cwd)
    launch = relaunch(system, request, SCRIPT, models)
    hands = _Hands(case, kernel, live)

    async def program(sys: Syscalls) -> Exit:
        return await reason(sys, hands)

    async with trio.open_nursery() as nursery:
        await nursery.start(kernel.run)
        process = kernel.bear(dataclasses.replace(launch, program=program), None)
        kernel.runs.begin(process)
        await process.done.wait()
        nursery.cancel_scope.cancel()
    return process


# --- comparing ---


def _deviations(
    case: Case, process: Process, events: Sequence[Record], *, exactly: bool
) -> Iterator[Deviation]:
    """Everything in which a process deviates from its case, in order.

    Args:
        case: the case.
        process: it has ended.
        events: the ends of its tool calls.
        exactly: whether the results of tools came from the case, so that what follows from them must agree.
    """
    got: dict[int, list[tuple[int, Done]]] = {}
    for record in events:
        done = msgspec.convert(record.data["done"], Done)
        got.setdefault(record.data["step"], []).append((record.data["place"], done))
    wanted: dict[int, list[Wanted]] = {}
    for one in case.tools:
        wanted.setdefault(one.step, []).append(one)
    for step in sorted({*got, *wanted}):
        calls = [done for _, done in sorted(got.get(step, []), key=lambda one: one[0])]
        yield from _of_step(step, wanted.get(step, []), calls)
    last = max(process.steps, 1)
    steps = len(case.scenario.rules)
    if process.steps != steps:
        yield Deviation(last, "steps", str(steps), str(process.steps))
    exit_ = process.exit
    assert exit_ is not None
    if exit_.code != case.code:
        yield Deviation(last, "exit code", str(case.code), str(int(exit_.code)))
    if _core(case.reason, exactly) != _core(exit_.reason, exactly):
        yield Deviation(last, "exit reason", case.reason, exit_.reason)
    if process.result != case.result:
        yield Deviation(last, "result", case.result, process.result)


def _core(reason: str, exactly: bool) -> str:
    """What of a reason must agree: not the words of a tool's failure, which may name what else there is."""
    rule = reason.partition(":")[0]
    if not exactly:
        return rule
    failure = re.search(r"\b[A-Z_]{4,}: ", reason)
    return reason[: failure.end()] if failure is not None and rule == "repeated_failure" else reason


def _of_step(step: int, wanted: Sequence[Wanted], got: Sequence[Done]) -> Iterator[Deviation]:
    for place, (one, other) in enumerate(itertools.zip_longest(wanted, got)):
        field = f"tools[{place}]"
        if other is None:
            yield Deviation(step, field, _call(one.tool, one.arguments), "no call")
        elif one is None:
            yield Deviation(step, field, "no call", _call(other.name, other.arguments))
        elif one.tool != other.name:
            yield Deviation(step, field, one.tool, other.name)
        elif one.arguments != other.arguments:
            yield Deviation(step, f"{field}.arguments", _json(one.arguments), _json(other.arguments))
        # The words of a failure may name what else there is; its code says what went wrong.
        elif one.error.partition(":")[0] != other.error.partition(":")[0]:
            yield Deviation(step, f"{field}.error", one.error or "success", other.error or "success")


def _call(tool: str, arguments: dict[str, Any]) -> str:
    return f"{tool} {_json(arguments)}"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


# --- the command ---


class Options(argparse.Namespace):
    """The command line."""

    command: str
    log: pathlib.Path
    who: str
    live_tools: bool
    cases: list[pathlib.Path]


def parse(arguments: list[str]) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m rnixfs.casefile", description="Recorded runs as tests.")
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="print a recorded run as a case")
    record.add_argument("--log", type=pathlib.Path, required=True, help="the log.db, or the folder it is in")
    record.add_argument("who", metavar="PID|UUID", help="the process")
    test = commands.add_parser("test", help="run cases and compare")
    test.add_argument("--live-tools", action="store_true", help="run the tools, in the current folder")
    test.add_argument("cases", metavar="CASE.yaml", nargs="+", type=pathlib.Path, help="files of cases")
    return parser.parse_args(arguments, namespace=Options())


def _record(options: Options) -> int:
    try:
        with contextlib.closing(ReadOnlyLog(options.log)) as log:
            text = record_case(log, options.who)
    except SyscallError as error:
        print(f"record: {error.reason}", file=sys.stderr)
        return 2
    _tell(text)
    return 0


def _test(options: Options) -> int:
    results = [_test_one(path, options.live_tools) for path in options.cases]
    failed = results.count(False)
    _tell(f"{len(results) - failed} passed, {failed} failed\n")
    return 1 if failed else 0


def _test_one(path: pathlib.Path, live: bool) -> bool:
    """Run a case and say what came of it; whether it passed."""
    name = str(path)
    try:
        case = read_case(_text_of(path), str(path))
        name = case.scenario.name
        found = trio.run(lambda: run_case(case, os.getcwd(), live=live))
    except (ManifestError, SyscallError) as error:
        reason = error.reason if isinstance(error, SyscallError) else str(error)
        _tell(f"FAILED {name}: {printable(reason)}\n")
        return False
    if found:
        lines = "\n  ".join(deviation.line() for deviation in found)
        _tell(f"FAILED {name}: {lines}\n")
    else:
        _tell(f"ok {name}\n")
    return not found


def _text_of(path: pathlib.Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(limits.SCENARIO_FILE_MAX + 1)
        if len(data) > limits.SCENARIO_FILE_MAX:
            right = f"at most {limits.SCENARIO_FILE_MAX} bytes are taken"
            raise ManifestError(str(path), 1, "the file is too long", right)
        return data.decode()
    except OSError as error:
        raise ManifestError(
            str(path), 1, f"cannot be read: {error.strerror}", "name a readable file"
        ) from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ManifestError(str(path), line, "is not UTF-8", "save the file as UTF-8") from None


def _tell(text: str) -> None:
    # In UTF-8 whatever the terminal says, so that a case can be read again.
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()


def main(arguments: list[str] | None = None) -> int:
    """Record or test; returns the exit status."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    return _record(options) if options.command == "record" else _test(options)


if __name__ == "__main__":
    sys.exit(main())
