"""Which models there are, and which of them a client means."""

import datetime
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from rnixfs.errors import Code
from rnixfs.gateway.refusal import RefusedError, of_code, refuse
from rnixfs.llm import ModelRequest
from rnixfs.presets import ANTHROPIC, CLAUDE_CLI

AGENT = "agent/"
"""What stands before the name of an agent."""

DEFAULT = "default"
_SEPARATORS = ":/"
_NAMES_MAX = 30  # names in one error message


class Provider(NamedTuple):
    """A file of `dev/llm`.

    Args:
        name: its name.
        driver: what stands behind it.
        default: the model that it asks where none is named; "" where it does not say.
        models: names of further models that it is known to have.
        available: whether it can be used now.
    """

    name: str
    driver: str = ""
    default: str = ""
    models: tuple[str, ...] = ()
    available: bool = True

    @property
    def speaks_claude(self) -> bool:
        """Whether it knows the words for effort that Anthropic's API has."""
        return self.driver in (CLAUDE_CLI, ANTHROPIC)


class Target(NamedTuple):
    """Who answers a request: a provider with one of its models ("" for its default), or an agent."""

    provider: Provider | None = None
    model: str = ""
    agent: str = ""

    def __str__(self) -> str:
        if self.provider is None:
            return AGENT + self.agent
        return f"{self.provider.name}:{self.model}" if self.model else self.provider.name


class Catalog(NamedTuple):
    """What can be asked.

    Args:
        providers: the one first that is asked where none is named.
        agents: names below `lib/agents`.
        default: the name that stands for "" and `default`, and for names that nobody knows; "" for none.
    """

    providers: Sequence[Provider]
    agents: Sequence[str] = ()
    default: str = ""

    def find(self, name: str) -> Target:
        """Who is meant by a name.

        Raises:
            RefusedError: nobody, and there is no default.
        """
        if name in ("", DEFAULT):
            return self._default()
        found = self._known(name)
        if found is None and self.default:
            found = self._known(self.default)
        if found is None:
            raise self._unknown(name)
        return found

    def _known(self, name: str) -> Target | None:
        if name.startswith(AGENT):
            agent = name.removeprefix(AGENT)
            return Target(agent=agent) if agent in self.agents else None
        return self._provider(name) or self._of_provider(name) or self._reverse(name)

    def _provider(self, name: str) -> Target | None:
        return next((Target(one) for one in self.providers if one.name == name), None)

    def _of_provider(self, name: str) -> Target | None:
        for one in self.providers:
            rest = name.removeprefix(one.name)
            if len(rest) > 1 and rest != name and rest[0] in _SEPARATORS:
                return Target(one, rest[1:])
        return None

    def _reverse(self, name: str) -> Target | None:
        """A model that a provider is known to have, its default rather than another."""
        by_default = (Target(one, name) for one in self.providers if one.default == name)
        by_list = (Target(one, name) for one in self.providers if name in one.models)
        return next(by_default, None) or next(by_list, None)

    def _default(self) -> Target:
        if self.default:
            found = self._known(self.default)
            if found is not None:
                return found
            raise self._unknown(self.default)
        found = next((Target(one) for one in self.providers if one.available), None)
        if found is None:
            raise of_code(Code.SERVICE_UNAVAILABLE, "no provider can be used now; see: rnix providers")
        return found

    def _unknown(self, name: str) -> RefusedError:
        names = self.names()
        more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
        there = f"there are {', '.join(names[:_NAMES_MAX])}{more}"
        return RefusedError(404, f"no model {name[:200]!r}; {there}", kind="model_not_found", param="model")

    def names(self) -> list[str]:
        """All names: providers, their known models, agents."""
        found = []
        for one in self.providers:
            known = dict.fromkeys(filter(None, (one.default, *one.models)))
            found += [one.name, *(f"{one.name}:{model}" for model in known)]
        return [*found, *(AGENT + agent for agent in self.agents)]


def listing(names: Iterable[str], created: int) -> dict[str, Any]:
    """The list of models in the form of both APIs at once: neither minds the other's fields.

    Args:
        names: the models.
        created: seconds since 1970.
    """
    models = [entry(name, created) for name in names]
    ends = {"first_id": models[0]["id"], "last_id": models[-1]["id"]} if models else {}
    return {"object": "list", "data": models, "has_more": False, "first_id": None, "last_id": None} | ends


def entry(name: str, created: int) -> dict[str, Any]:
    """One model in the form of both APIs."""
    owner = "rnix" if name.startswith(AGENT) else name.partition(":")[0]
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": owner,
        "type": "model",
        "display_name": name,
        "created_at": _date(created),
    }


def _date(created: int) -> str:
    return datetime.datetime.fromtimestamp(created, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- a conversation as an intent ---


def intent_of(request: ModelRequest) -> str:
    """A conversation as the intent of a process: what the user said last, after what was said before.

    Raises:
        RefusedError: nothing is left to do.
    """
    *before, last = request.messages
    if not last.content.strip():
        raise refuse("messages: the last one has no text, so there is nothing to do for an agent", "messages")
    if not before:
        return last.content
    told = [f"{message.role}: {message.content}" for message in before if message.content]
    return "\n\n".join(["The conversation so far:", *told, "What is to be done now:", last.content])
