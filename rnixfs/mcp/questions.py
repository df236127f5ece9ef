"""`questions/` of a server: what it asks of people in the middle of a request, a device for each question.

It exists where the configuration allows `elicitation`. Reading a device shows the question, writing answers
it. A question that is not answered in time, or whose request ends, is taken back.
"""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import trio

from rnixfs import limits
from rnixfs.device import Body, Description, Job, Sink, json_line
from rnixfs.errors import Code, SyscallError, invalid, not_found
from rnixfs.mcp.remote import Remote
from rnixfs.mcp.tools import CheckOf, FleetingNode
from rnixfs.node import Dir, Node
from rnixfs.types import Caller, Kind, Stat

ACTIONS = ("accept", "decline", "cancel")


class Question:
    """One question: a device.

    Args:
        path: of its file.
        asked: its message, and the schema of an answer or an address to visit.
        check_of: makes the check of an answer.
    """

    def __init__(self, path: str, asked: Mapping[str, Any], check_of: CheckOf) -> None:
        self._path = path
        self._asked = asked
        self._schema: dict[str, Any] = asked.get("requestedSchema") or {"type": "object"}
        self._check = check_of(self._schema, path)
        self.answer: dict[str, Any] | None = None
        self.answered = trio.Event()

    def describe(self, caller: Caller) -> Description:
        url = self._asked.get("url")
        return Description(
            device=self._path,
            does=str(self._asked.get("message") or "The server asks for more."),
            request={
                "type": "object",
                "properties": {"action": {"enum": list(ACTIONS)}, "content": self._schema},
                "required": ["action"],
            },
            example={"action": "decline"},
            details={"url": url} if url else {},
        )

    def accept(self, caller: Caller, body: Body) -> Job:
        if self.answered.is_set():
            raise SyscallError(Code.BROKEN_PIPE, f"{self._path} was answered already")
        if not isinstance(body, dict) or body.get("action") not in ACTIONS:
            kinds = ", ".join(ACTIONS)
            raise invalid(
                f'{self._path} takes {{"action": …, "content": {{…}}}}; the action is one of {kinds}'
            )
        answer: dict[str, Any] = {"action": body["action"]}
        if body["action"] == "accept" and not self._asked.get("url"):
            self._check(body.get("content", {}))
            answer["content"] = body.get("content", {})
        self.answer = answer
        self.answered.set()

        async def job(sink: Sink) -> None:
            sink.write(json_line({"answered": body["action"]}))

        return job


class Questions(Dir):
    """The questions that wait for an answer.

    Args:
        remote: the server that asks.
        check_of: makes the check of an answer.
    """

    def __init__(self, remote: Remote, check_of: CheckOf) -> None:
        self._remote = remote
        self._check_of = check_of
        self._numbers = itertools.count(1)
        self._open: dict[str, Node] = {}

    async def ask(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Ask, and wait for the answer; nobody's answer is that the question was cancelled.

        Args:
            asked: the parameters of the server's request, as they came over the wire.
        """
        if len(self._open) >= limits.MCP_QUESTIONS_MAX:
            return {"action": "cancel"}
        name = str(next(self._numbers))
        path = f"{self._remote.path}/questions/{name}"
        question = Question(path, asked, self._check_of)
        self._open[name] = FleetingNode(("mcp", self._remote.key, path), path, question, self._remote.start)
        try:
            with trio.move_on_after(limits.MCP_QUESTION_SECONDS):
                await question.answered.wait()
        finally:
            del self._open[name]
            question.answered.set()
        return question.answer or {"action": "cancel"}

    def stat(self) -> Stat:
        return Stat(Kind.DIRECTORY, mode=0o555, links=2, name_ttl=0.0)

    def lookup(self, name: str, caller: Caller) -> Node:
        node = self._open.get(name)
        if node is None:
            raise not_found(f"{self._remote.path}/questions/{name}")
        return node

    def entries(self, caller: Caller) -> Iterable[tuple[str, Node]]:
        return list(self._open.items())
