"""`/sys/check`: asks providers of models whether they would answer, without spending anything.

Looking at `/sys/providers` asks nobody; this does, so it is a device: nothing happens without a request.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import trio

from rnixfs import limits
from rnixfs.device import Body, Description, Job, Sink, json_line
from rnixfs.errors import Code, SyscallError, invalid
from rnixfs.model import ModelInfo
from rnixfs.types import Caller
from rnixfs.yamlread import clip, nearest

ALL = "all"

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "provider": {"type": "string", "description": "its name; all of them where it is missing"}
    },
    "additionalProperties": False,
    "description": "Or text: names with blanks between; all providers where it is empty or `all`.",
}


class Checked(Protocol):
    """A provider, as far as it can be checked."""

    def row(self) -> dict[str, object]:
        """Its line in `/sys/providers`."""

    async def check(self) -> list[ModelInfo]:
        """Ask it, and give the models that it says it has.

        Raises:
            SyscallError: why it would not answer.
        """


class Check:
    """The device.

    Args:
        providers: those of whoever asks, by name.
        seconds: how long one of them is waited for.
    """

    def __init__(
        self, providers: Callable[[Caller], Mapping[str, Checked]], seconds: float = limits.CHECK_SECONDS
    ) -> None:
        self._providers = providers
        self._seconds = seconds
        self._slots = trio.CapacityLimiter(limits.CHECKS_MAX)

    def describe(self, caller: Caller) -> Description:
        """What can be asked; asks nobody."""
        return Description(
            device="/sys/check",
            does="Asks providers of models whether they would answer, without spending anything; gives for "
            "each its line of /sys/providers, with the models that it says it has.",
            request=_SCHEMA,
            example={"provider": "script"},
            details={"seconds": self._seconds},
        )

    def accept(self, caller: Caller, body: Body) -> Job:
        """Check the names.

        Raises:
            SyscallError: INVALID for a request of another form; NOT_FOUND with the names that there are.
        """
        names = _names(body)
        there = self._providers(caller)
        for name in names:
            if name not in there:
                listed = f"there are: {', '.join(there)}{nearest(name, list(there))}"
                raise SyscallError(Code.NOT_FOUND, f"no provider {clip(name)}; {listed}")
        asked = [there[name] for name in names or there]

        async def job(sink: Sink) -> None:
            rows: dict[int, dict[str, object]] = {}

            async def one(at: int, provider: Checked) -> None:
                async with self._slots:
                    rows[at] = await self._row(provider)

            async with trio.open_nursery() as nursery:
                for at, provider in enumerate(asked):
                    nursery.start_soon(one, at, provider)
            for at in sorted(rows):
                sink.write(json_line(rows[at]))

        return job

    async def _row(self, provider: Checked) -> dict[str, object]:
        """The line of a provider after it was asked."""
        models, reason = list[ModelInfo](), ""
        try:
            with trio.fail_after(self._seconds):
                models = await provider.check()
        except trio.TooSlowError:
            reason = f"no answer within {self._seconds:g} s"
        except SyscallError as error:
            reason = error.reason
        failed = {"state": "unavailable", "available": False, "reason": reason} if reason else {}
        return {**provider.row(), **failed, "models": models}


def _names(body: Body) -> list[str]:
    """The names of a request, each once; none for all."""
    if isinstance(body, dict):
        for field in body:
            if field != "provider":
                raise invalid(f"unknown field {clip(field)}; a request has: provider")
        body = body.get("provider", "")
    if not isinstance(body, str):
        raise invalid('a request is names as text, or a JSON object such as {"provider": "script"}')
    names = list(dict.fromkeys(filter(None, re.split(r"[\s,]+", body))))
    return [] if names == [ALL] else names
