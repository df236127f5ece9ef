"""What each event changes of a process: one row an event.

The same rows serve a process that lives, right after the event was appended, and one that is made anew from
its log. So what a restart finds is what there was, by construction.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from rnixfs.llm import Message, ModelAnswer
from rnixfs.proc.process import Process
from rnixfs.proc.progress import Compacted, Done, Judged, StepEnd
from rnixfs.proc.signals import Disposition, Signal, parse
from rnixfs.proc.state import Exit
from rnixfs.state.store import Record

Row = Callable[[Process, Record], None]


def apply(process: Process, record: Record) -> None:
    """Change a process as an event of it says."""
    row = APPLY.get(record.event)
    if row is not None:
        row(process, record)
    process.changed_ns = int(record.ts * 1e9)


# --- the conversation and its steps ---


def _messages(process: Process, record: Record) -> None:
    data = record.data
    process.context.append(*msgspec.convert(data.get("messages", ()), list[Message]))
    del process.inbox[: data.get("inbox", 0)]
    process.forget_ends(data.get("told", ()))


def _inherit(process: Process, record: Record) -> None:
    data = record.data
    process.context.append(*msgspec.convert(data["messages"], list[Message]))
    process.steps = process.inherited = data["steps"]
    process.progress.judged = msgspec.convert(data["judged"], Judged)
    process.context_window = data.get("context_window", 0)


def _request(process: Process, record: Record) -> None:
    data = record.data
    process.steps = data["step"]
    process.progress.begin(data["step"], data["sent"], int(record.ts * 1e9) - process.started_ns)


def _answer(process: Process, record: Record) -> None:
    answer = msgspec.convert(record.data["answer"], ModelAnswer)
    process.progress.answered(answer)
    _spend(process, answer)
    process.model_used = answer.model or process.model_used


def _spend(process: Process, answer: ModelAnswer) -> None:
    process.tokens_used += answer.tokens_used
    process.cached_tokens += answer.cached_tokens
    process.cost_usd += answer.cost_usd
    process.context_window = answer.context_window or process.context_window


def _spent(process: Process, record: Record) -> None:
    process.tokens_used += record.data["tokens_used"]
    process.cost_usd += record.data["cost_usd"]


def _compacted(process: Process, record: Record) -> None:
    what = msgspec.convert(record.data, Compacted)
    process.context.replace(what.messages)
    process.progress.compacted(what)
    if what.answer is not None:
        _spend(process, what.answer)


def _tool_started(process: Process, record: Record) -> None:
    process.progress.started.add(record.data["place"])


def _tool_finished(process: Process, record: Record) -> None:
    done = msgspec.convert(record.data["done"], Done)
    process.progress.done[record.data["place"]] = done
    process.forget_ends(done.told)


def _step(process: Process, record: Record) -> None:
    end = msgspec.convert(record.data, StepEnd)
    # First what can be refused: a context that is full.
    prompt = process.context.messages
    process.context.append(*end.messages)
    process.add_step(process.progress.end(end, prompt), int(record.ts * 1e9))
    if end.result is not None:
        process.result = end.result


def _result(process: Process, record: Record) -> None:
    process.result = record.data["text"]


# --- what people and parents command ---


def _budget(process: Process, record: Record) -> None:
    process.set_budget(record.data["tokens"])


def _say(process: Process, record: Record) -> None:
    process.inbox.append(record.data["text"])


def _grant(process: Process, record: Record) -> None:
    process.rights.allow(record.data["path"])


def _revoke(process: Process, record: Record) -> None:
    process.rights.deny(record.data["path"])


def _block(process: Process, record: Record) -> None:
    process.signals.block(parse(record.data["signal"]))


def _unblock(process: Process, record: Record) -> None:
    process.signals.unblock(parse(record.data["signal"]))


def _heard(process: Process, record: Record) -> None:
    process.forget_ends([record.data["child"]])


def _board(process: Process, record: Record) -> None:
    if process.board is not None:
        process.board.apply(record.data)


APPLY: dict[str, Row] = {
    "messages": _messages,
    "inherit": _inherit,
    "request": _request,
    "answer": _answer,
    "spent": _spent,
    "compacted": _compacted,
    "tool_started": _tool_started,
    "tool_finished": _tool_finished,
    "step": _step,
    "result": _result,
    "budget": _budget,
    "say": _say,
    "grant": _grant,
    "revoke": _revoke,
    "block": _block,
    "unblock": _unblock,
    "heard": _heard,
    "board": _board,
}
"""What an event changes of the process that it is about, while it lives and when it is made anew."""


# --- what only the log tells: in a process that lives, the kernel does more than this ---


def _signal(process: Process, record: Record) -> None:
    signal = parse(record.data["signal"])
    disposition = Disposition.PEND if record.data.get("to") == "pend" else Disposition.DEFAULT
    if disposition is Disposition.PEND:
        process.signals.pending.add(signal)
    elif record.data.get("to") == "handle":
        return
    elif signal in (Signal.PAUSE, Signal.RESUME):
        process.paused = signal is Signal.PAUSE
    else:
        process.ending = process.ending or ENDINGS[signal]


def _exit(process: Process, record: Record) -> None:
    data = record.data
    process.exit = Exit(data["code"], data["reason"])
    process.paused, process.suspended = False, ""
    process.signals.clear()


def _suspend(process: Process, record: Record) -> None:
    process.suspended = record.data["reason"]


def _wake(process: Process, record: Record) -> None:
    process.suspended = ""


def _unheard(process: Process, record: Record) -> None:
    process.unheard.append(record.data["child"])


ENDINGS = {
    Signal.TERM: "terminated by SIGTERM",
    Signal.INT: "interrupted by SIGINT",
    Signal.KILL: "killed by SIGKILL",
}
"""Why a process ends that does nothing else about a signal."""

REBUILD: dict[str, Row] = APPLY | {
    "signal": _signal,
    "exit": _exit,
    "suspend": _suspend,
    "wake": _wake,
    "unheard": _unheard,
}
"""What an event changes when a process is made anew."""


def rebuild(process: Process, records: list[Record]) -> None:
    """Take a process that was just made from its first event through all the others.

    What it ran is counted from event to event; the time in which it was paused or suspended, and in which
    the system did not run, is not counted.

    Args:
        process: made from the first of them.
        records: all of its events.
    """
    elapsed, since = 0.0, records[0].ts
    for record in records[1:]:
        if process.runs and not record.data.get("restart"):
            elapsed += max(0.0, record.ts - since)
        since = record.ts
        row = REBUILD.get(record.event)
        if row is not None:
            row(process, record)
    process.changed_ns = int(since * 1e9)
    process.watch.set(elapsed)


def payload(value: Any) -> Any:
    """A value as the data of an event: of plain types only, as it comes back from the log."""
    return msgspec.to_builtins(value)
