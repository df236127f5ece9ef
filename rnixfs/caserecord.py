"""Makes a case of a recorded run; what a case is, `case` says.

The answers of a model that speaks the text protocol become native tool calls, so that the scripted model can
play them; replies that were no usable action are left out.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec

from rnixfs import action
from rnixfs.case import LEFT_OUT, VERSION, read_case
from rnixfs.casetext import arguments_field, call_entry, hint, literal, text_field, writable
from rnixfs.errors import Code, SyscallError, invalid
from rnixfs.filters import TEXT_MAX
from rnixfs.llm import ToolCall
from rnixfs.proc.state import Exit
from rnixfs.proc.view import covers
from rnixfs.recordedstep import ORDERS, Heard, Step, Turn
from rnixfs.recording import Recording, Source, ended_by_itself, read_recording
from rnixfs.yamlread import ManifestError
from rnixfs.yamlwrite import dump


def record_case(log: Source, who: int | str) -> str:
    """The case of a process, as YAML.

    Args:
        log: where its events are.
        who: its pid or UUID.

    Raises:
        SyscallError: as `read_recording`; INVALID for a run that no case can hold, and why.
    """
    recording = read_recording(log, who)
    text = dump(_Writer(log, recording).case())
    try:
        read_case(text, "case")
    except ManifestError as error:
        raise _cannot(recording, f"{error.what}; {error.right}") from None
    return text


def _cannot(recording: Recording, why: str) -> SyscallError:
    return invalid(f"process {recording.pid} cannot be a case: {why}")


class _Writer:
    """Puts together one case."""

    def __init__(self, log: Source, recording: Recording) -> None:
        self._recording = recording
        self._exit = _exit_of(recording)
        self._steps, self._turns = _whole(log, recording)
        self._left_out: list[int] = []
        self._rules: list[dict[str, Any]] = []
        self._met: list[dict[str, Any]] = []
        self._tools: list[dict[str, Any]] = []

    def case(self) -> dict[str, Any]:
        """The whole file."""
        birth = self._recording.birth
        self._go_through()
        if not self._rules:
            raise _cannot(self._recording, "its model never answered")
        if self._left_out and self._exit.code:
            steps = ", ".join(map(str, self._left_out))
            why = f"it was ended by a limit, which replies of no use led to (step {steps})"
            raise _cannot(self._recording, why)
        return {
            "name": f"{birth.agent[:48]}-{birth.uuid[-8:]}",
            "description": self._description(),
            "when": {"intent": hint(birth.intent)},
            "rules": self._rules,
            "case": {
                "version": VERSION,
                "recorded": {"uuid": birth.uuid, "provider": birth.provider},
                "request": self._request(),
                "steps": self._met,
                "expect": {
                    "code": self._exit.code,
                    **text_field("reason", self._exit.reason),
                    **text_field("result", self._result()),
                    "tools": self._tools,
                },
            },
        }

    def _go_through(self) -> None:
        """Make a rule of each step, and note what belongs to it."""
        before = self._denied()
        for step in self._steps:
            before += self._before(step)
            number = len(self._rules) + 1
            during = [_turn(turn) for turn in self._turns if _comes_during(turn, step)]
            played = self._played(step) if step.answer is not None else None
            if played is None:
                before += during
                continue
            if step.started and step.end is not None and len(step.done) < len(played[1]):
                raise _cannot(self._recording, f"a new budget stopped it in the middle of step {step.number}")
            self._rules.append(self._rule(number, step, *played))
            results, wanted = _results(number, step, played[1])
            self._tools += wanted
            self._met += _met(number, before=before, during=during, results=results)
            before = []
        self._met += _met(len(self._rules) + 1, before=before)

    def _description(self) -> str:
        birth = self._recording.birth
        left_out = ", ".join(map(str, self._left_out))
        more = f" Replies of no use are left out: step {left_out}." if left_out else ""
        return f"Recorded: agent {birth.agent}, provider {birth.provider}, {len(self._rules)} steps.{more}"

    def _result(self) -> str:
        ends = [step.end for step in self._steps if step.end is not None]
        return next((end.result for end in reversed(ends) if end.result is not None), "")

    # --- what was asked for ---

    def _request(self) -> dict[str, Any]:
        birth, request = self._recording.birth, self._recording.request
        if request is None:
            raise _cannot(self._recording, "the log does not tell how it was asked for")
        data: dict[str, Any] = msgspec.to_builtins(request)
        data = {name: value for name, value in data.items() if name not in LEFT_OUT}
        data |= {"intent": birth.intent, "agent": birth.agent}
        allowed = request.allowed_devices
        for rights in self._recording.bounds():
            granted = rights.listing()["granted"]
            if granted is not None:
                allowed = granted if allowed is None else _common(allowed, granted)
        unfit = next((name for name, value in data.items() if not writable(value)), "")
        if unfit:
            raise _cannot(self._recording, f"its {unfit} holds what YAML does not take")
        return data if allowed is None else data | {"allowed_devices": allowed}

    def _denied(self) -> list[dict[str, Any]]:
        """What its ancestors had lost, which it could not have either."""
        lists = (rights.listing()["denied"] or [] for rights in self._recording.bounds())
        return [{"revoke": path} for path in dict.fromkeys(itertools.chain.from_iterable(lists))]

    # --- one step ---

    def _before(self, step: Step) -> list[dict[str, Any]]:
        """What came before a step, or during the one before it."""
        turns = [_turn(turn) for turn in self._turns if _comes_with(turn, step)]
        heard = [_heard(heard) for heard in step.heard if not (heard.own or heard.compacted)]
        return [one for one in (*turns, *itertools.chain.from_iterable(heard)) if one]

    def _played(self, step: Step) -> tuple[str, list[ToolCall]] | None:
        """The text and the tool calls of an answer; None for one that is left out."""
        answer = step.answer
        assert answer is not None
        if self._recording.native is not False:
            return answer.content, answer.tool_calls
        what = action.parse_reply(answer.content)
        if isinstance(what, action.Calls) and any(call.tool == "complete" for call in what.calls):
            raise _cannot(
                self._recording, f"step {step.number} calls a tool `complete`, which ends other runs"
            )
        if isinstance(what, action.BadAction):
            self._left_out.append(step.number)
            return None
        return _native(what)

    def _rule(self, number: int, step: Step, content: str, calls: list[ToolCall]) -> dict[str, Any]:
        answer = step.answer
        assert answer is not None
        if len(content) > TEXT_MAX:
            raise _cannot(self._recording, f"step {step.number} says more than {TEXT_MAX} characters")
        if any(not call.name.strip() or call.name != call.name.strip() for call in calls):
            raise _cannot(self._recording, f"step {step.number} calls a tool by a name that is none")
        rule: dict[str, Any] = {"name": f"step-{number}", "when": {"step": number - 1}}
        if content or not calls:
            rule["say"] = literal(content)
        if calls:
            rule["calls"] = [call_entry(call) for call in calls]
        # A budget counts the tokens used, and those of the prompt are part of them.
        given = min(answer.input_tokens, answer.tokens_used)
        rule["tokens"] = {"input": given, "output": answer.tokens_used - given}
        return rule | ({"cost_usd": answer.cost_usd} if answer.cost_usd else {})


def _exit_of(recording: Recording) -> Exit:
    """How a process ended, if that follows from what a case can hold."""
    exit_ = recording.exit
    if exit_ is None or not ended_by_itself(exit_):
        how = f"it ended by {exit_.reason!r}" if exit_ is not None else "it has not ended"
        raise _cannot(recording, f"{how}; only of a run that ends by itself it is known what to expect")
    if recording.native is False and exit_.reason.endswith("the next prompt does not fit"):
        why = "its end was a matter of bytes of the text protocol, which a case does not use"
        raise _cannot(recording, why)
    return exit_


def _whole(log: Source, recording: Recording) -> tuple[list[Step], list[Turn]]:
    """All steps that a process has been through, those before it was forked included."""
    if not (recording.inherit and recording.inherit["steps"]):
        return recording.steps, recording.turns
    origin = recording.birth.origin
    last = recording.inherit["steps"]
    try:
        source = read_recording(log, origin.uuid if origin is not None else "")
    except SyscallError as error:
        if error.code is not Code.NOT_FOUND:
            raise
        raise _cannot(recording, "the log of the process that it was forked from is gone") from None
    steps, turns = _whole(log, source)
    steps = [step for step in steps if step.number <= last]
    turns = [turn for turn in turns if turn.position.step <= last]
    return steps + recording.steps, turns + recording.turns


def _comes_with(turn: Turn, step: Step) -> bool:
    """Whether a turn came before a step, or while the tools of the one before it ran."""
    number = turn.position.step + turn.position.answered
    return not turn.up and turn.event in ORDERS and not _before_tools(turn) and number == step.number


def _comes_during(turn: Turn, step: Step) -> bool:
    """Whether a turn came while the model thought in a step."""
    same = turn.position.step == step.number
    return not turn.up and turn.event in ORDERS and _before_tools(turn) and same


def _before_tools(turn: Turn) -> bool:
    """Whether a step's request was sent, and nothing was done about an answer."""
    return turn.position.asked > 0 and not (turn.position.started or turn.position.done)


def _turn(turn: Turn) -> dict[str, Any]:
    return {turn.event: turn.data["tokens"] if turn.event == "budget" else turn.data["path"]}


def _heard(heard: Heard) -> Iterator[dict[str, Any]]:
    yield from (text_field("say", text) for text in heard.said)
    yield from (text_field("child", text) for _, text in heard.ends)


def _native(what: action.Action) -> tuple[str, list[ToolCall]]:
    """An action of the text protocol as text and native calls."""
    match what:
        case action.Calls():
            return what.said, [ToolCall("", call.tool, call.data) for call in what.calls]
        case action.Plan():
            return what.said, [ToolCall("", "plan", {"steps": list(what.steps), "reason": what.reason})]
        case action.Replan():
            return what.said, [ToolCall("", "plan", {"steps": [], "reason": what.reason})]
        case action.Spawn():
            return what.said, [ToolCall("", "spawn", {"intent": what.intent, **what.data})]
        case action.Specialize():
            return what.said, [ToolCall("", "skill", {"skill": what.skill})]
        case action.Complete():
            return "", [ToolCall("", "complete", {"result": what.result})]
        case action.Text():
            return what.text, []
        case action.BadAction():
            return what.said, []


def _met(number: int, **parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    filled = {name: part for name, part in parts.items() if part}
    return [{"step": number, **filled}] if filled else []


def _results(
    number: int, step: Step, calls: list[ToolCall]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What came of the calls of a step, and which calls are expected."""
    results, wanted = [], []
    noted = not step.done and step.end is not None and step.end.exit is None
    for place, call in enumerate(calls):
        done = step.done.get(place)
        if done is not None:
            error = text_field("error", done.error) if done.error else {}
            results.append({**text_field("tool", done.name), **text_field("text", done.text), **error})
        elif noted:
            # A plan of the text protocol ran as no call.
            error = {}
            results.append({"tool": call.name, "text": ""})
        else:
            continue
        arguments = {"arguments": arguments_field(call.arguments)} if call.arguments else {}
        wanted.append({"step": number, **text_field("tool", call.name), **arguments, **error})
    return results, wanted


def _common(one: list[str], other: list[str]) -> list[str]:
    """The paths that both of two lists allow."""
    narrow = {path for path in one if any(covers(outer, path) for outer in other)}
    return sorted(narrow | {path for path in other if any(covers(outer, path) for outer in one)})
