"""Connections to MCP servers, by the official SDK.

The one part that imports the SDK, which takes most of a second; so this module is itself imported in a
thread, when the first server is mounted. The context of a connection belongs to one task, its requests to
whoever makes them.

What a server claims of its structured answers is not checked here, though the SDK would: its schemas may hold
patterns that run for ever.
"""

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import httpx2
import mcp_types as types
import trio
from mcp import Client
from mcp.client import Transport
from mcp.client.session import ClientRequestContext
from mcp.client.subscriptions import ResourceUpdated, Subscription, SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError

from rnixfs import __version__, limits
from rnixfs.errors import Code, SyscallError
from rnixfs.mcp.remote import Call, LostError, Remote

log = logging.getLogger(__name__)
# It writes a line, or a traceback, for whatever a server sends that is not as it should be.
logging.getLogger("mcp").setLevel(logging.CRITICAL)
logging.getLogger("client").setLevel(logging.CRITICAL)
logging.getLogger("httpx2").setLevel(logging.WARNING)

_NO_SUCH_RESOURCE = -32002  # in versions of the protocol before 2026
_CODES = {
    types.INVALID_PARAMS: Code.INVALID,
    types.REQUEST_TIMEOUT: Code.TIMEOUT,
    types.METHOD_NOT_FOUND: Code.NOT_PERMITTED,
    _NO_SUCH_RESOURCE: Code.NOT_FOUND,
}

LISTS = ("tools", "prompts", "resources")
"""What servers list."""

_CLOSED = "Connection closed"
"""What the SDK itself says where there is no connection; servers use the same code for anything."""

Answer = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""Answers what a server asks for; both are JSON as it goes over the wire."""


def _wire(model: BaseModel) -> dict[str, Any]:
    found: dict[str, Any] = model.model_dump(by_alias=True, mode="json", exclude_none=True)
    return found


def refusal(error: BaseException) -> SyscallError:
    """What went wrong with a connection or a request, in the words of whoever said it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case SyscallError():
            return error
        case MCPError():
            return _refused(error)
        case ValidationError():
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            return SyscallError(
                Code.DRIVER, f"the server's answer is not of the protocol: {where}: {first['msg']}"
            )
        case httpx2.HTTPError() | OSError() | trio.BrokenResourceError() | trio.ClosedResourceError():
            return LostError(Code.DRIVER, f"the connection failed: {error or type(error).__name__}")
    log.warning("a connection to a server failed in a way that is not known", exc_info=error)
    return SyscallError(Code.DRIVER, f"{type(error).__name__}: {error}"[: limits.MCP_ERROR_MAX])


def _refused(error: MCPError) -> SyscallError:
    if error.code == types.CONNECTION_CLOSED and error.message == _CLOSED:
        return LostError(Code.DRIVER, f"the connection ended ({error.message})")
    words = error.message[: limits.MCP_ERROR_MAX] or "it does not say why"
    return SyscallError(_CODES.get(error.code, Code.DRIVER), f"the server refused ({error.code}): {words}")


class SdkSession:
    """A connection; implements `remote.Session`.

    Args:
        client: the SDK's.
        remote: the server.
        nursery: for what the connection does by itself.
    """

    def __init__(self, client: Client, remote: Remote, nursery: trio.Nursery) -> None:
        self._client = client
        self._remote = remote
        self._nursery = nursery
        self.modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        self._watched: dict[str, trio.CancelScope] = {}
        self._stale: dict[str, bool] = {}
        self.suspect = trio.Event()

    async def _ask(self, answer: Awaitable[BaseModel]) -> dict[str, Any]:
        try:
            return _wire(await answer)
        except Exception as error:
            reason = refusal(error)
            if isinstance(reason, LostError):
                self.suspect.set()
            raise reason from None

    # --- requests ---

    async def call_tool(self, name: str, arguments: Mapping[str, Any], call: Call) -> dict[str, Any]:
        async def advanced(progress: float, total: float | None, message: str | None) -> None:
            call.advance(progress, total, message)

        return await self._ask(self._client.call_tool(name, dict(arguments), progress_callback=advanced))

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> dict[str, Any]:
        return await self._ask(self._client.get_prompt(name, dict(arguments)))

    async def read_resource(self, uri: str) -> dict[str, Any]:
        return await self._ask(self._client.read_resource(uri))

    async def ping(self) -> None:
        """Return if the server is there.

        Raises:
            SyscallError: why it is not.
        """
        if self.modern:
            await self._ask(self._client.list_tools())
        else:
            await self._ask(self._client.session.send_request(types.PingRequest(), types.EmptyResult))

    # --- lists ---

    async def load(self, kinds: set[str]) -> None:
        """Ask for lists, and show them.

        Args:
            kinds: of `tools`, `prompts` and `resources`; those that the server does not have are left out.
        """
        has = self._client.server_capabilities
        if "tools" in kinds and has.tools is not None:
            self._remote.list_tools(await self._listed(self._client.list_tools, "tools"))
        if "prompts" in kinds and has.prompts is not None:
            self._remote.list_prompts(await self._listed(self._client.list_prompts, "prompts"))
        if "resources" in kinds and has.resources is not None:
            found = await self._listed(self._client.list_resources, "resources")
            templates = await self._templates()
            self._remote.list_resources(found, templates)

    async def _templates(self) -> list[dict[str, Any]]:
        try:
            return await self._listed(self._client.list_resource_templates, "resourceTemplates")
        except SyscallError as error:
            # Many servers have resources and no templates, and do not know the question.
            if error.code is not Code.NOT_PERMITTED:
                raise
            return []

    async def _listed(self, ask: Callable[..., Awaitable[BaseModel]], field: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        for _ in range(limits.MCP_PAGES_MAX):
            page = await self._ask(ask(cursor=cursor))
            found += page.get(field, [])
            following = page.get("nextCursor")
            if following is None or len(found) >= limits.MCP_ITEMS_MAX:
                break
            if following == cursor:
                raise SyscallError(
                    Code.DRIVER, f"the server's list of {field} has a page that leads to itself"
                )
            cursor = following
        if len(found) > limits.MCP_ITEMS_MAX or following is not None:
            log.warning(
                "%s lists more than %d %s; the rest is not shown", self._remote.path, len(found), field
            )
        return found[: limits.MCP_ITEMS_MAX]

    def reload(self, kind: str) -> None:
        """Ask for a list again since it changed, unless that is to happen anyway."""
        if kind in self._stale:
            self._stale[kind] = True
        else:
            self._stale[kind] = False
            self._nursery.start_soon(self._reload, kind)

    async def _reload(self, kind: str) -> None:
        again = True
        while again:
            self._stale[kind] = False
            try:
                with trio.fail_after(self._remote.config.request_ms / 1000):
                    await self.load({kind})
            except (SyscallError, trio.TooSlowError) as error:
                log.warning("%s: its %s changed and cannot be listed: %s", self._remote.path, kind, error)
            again = self._stale[kind]
        del self._stale[kind]

    # --- what the server tells ---

    async def heard(self, message: types.ServerNotification | Exception) -> None:
        """Take a notification."""
        match message:
            case types.ToolListChangedNotification():
                self.reload("tools")
            case types.PromptListChangedNotification():
                self.reload("prompts")
            case types.ResourceListChangedNotification():
                self.reload("resources")
            case types.ResourceUpdatedNotification():
                self._remote.was_changed(str(message.params.uri))
        await trio.lowlevel.checkpoint()

    async def listen(self, task_status: trio.TaskStatus[None]) -> None:
        """Hear of changed lists from servers of the newer protocol, who tell only those who ask."""
        has = self._client.server_capabilities
        ready = False
        try:
            while True:
                async with self._client.listen(
                    tools_list_changed=has.tools is not None,
                    prompts_list_changed=has.prompts is not None,
                    resources_list_changed=has.resources is not None,
                ) as changes:
                    if not ready:
                        ready = True
                        task_status.started()
                    else:
                        for kind in LISTS:
                            self.reload(kind)
                    await self._until_lost(changes)
                # It may be gone, or only tired of telling.
                self.suspect.set()
                await trio.sleep(limits.MCP_LISTEN_SECONDS)
        except (MCPError, SubscriptionLost, TimeoutError) as error:
            log.info("%s does not tell of changed lists: %s", self._remote.path, error)
            if not ready:
                task_status.started()

    async def _until_lost(self, changes: Subscription) -> None:
        # `heard` gets what is told, too.
        with contextlib.suppress(SubscriptionLost):
            async for _ in changes:
                pass

    def watch(self, uri: str) -> None:
        has = self._client.server_capabilities.resources
        if has is None or not (has.subscribe or self.modern) or uri in self._watched:
            return
        if len(self._watched) >= limits.MCP_SUBSCRIPTIONS_MAX:
            self._watched.pop(next(iter(self._watched))).cancel()
        scope = self._watched[uri] = trio.CancelScope()
        self._nursery.start_soon(self._watch, uri, scope)

    async def _watch(self, uri: str, scope: trio.CancelScope) -> None:
        with scope:
            try:
                await (self._follow(uri) if self.modern else self._subscribe(uri))
            except (MCPError, SubscriptionLost, TimeoutError, SyscallError) as error:
                log.info("%s does not tell of changes of %s: %s", self._remote.path, uri, error)

    async def _follow(self, uri: str) -> None:
        async with self._client.listen(resource_subscriptions=[uri]) as changes:
            async for change in changes:
                if isinstance(change, ResourceUpdated):
                    self._remote.was_changed(change.uri)

    async def _subscribe(self, uri: str) -> None:
        session = self._client.session
        wanted = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))
        try:
            await session.send_request(wanted, types.EmptyResult)
            await trio.sleep_forever()
        except trio.Cancelled:
            # Also where the answer is still on its way: the server may have taken the request.
            unwanted = types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=uri))
            with trio.move_on_after(limits.MCP_LEAVE_SECONDS, shield=True), contextlib.suppress(MCPError):
                await session.send_request(unwanted, types.EmptyResult)
            raise


# --- what a server asks ---


class Wishes:
    """What a server may ask for in turn.

    Args:
        remote: the server.
        elicit: asks people.
        sample: asks a model.
    """

    def __init__(self, remote: Remote, elicit: Answer, sample: Answer) -> None:
        self._remote = remote
        self._elicit = elicit
        self._sample = sample

    async def elicitation(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Answer a question."""
        with self._remote.waiting_for_us():
            return types.ElicitResult.model_validate(await self._elicit(_wire(params)))

    async def sampling(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        """Have a model answer."""
        try:
            with self._remote.waiting_for_us():
                return types.CreateMessageResult.model_validate(await self._sample(_wire(params)))
        except SyscallError as error:
            return types.ErrorData(code=types.INTERNAL_ERROR, message=str(error.reason))
        except ValidationError as error:
            log.error("%s: the model's answer cannot be passed on", self._remote.path, exc_info=error)
            return types.ErrorData(
                code=types.INTERNAL_ERROR, message="the model's answer cannot be passed on"
            )


@contextlib.asynccontextmanager
async def connected(transport: Transport, remote: Remote, wishes: Wishes) -> AsyncIterator[SdkSession]:
    """Be connected to a server, with its lists shown, as long as the context lasts.

    Args:
        transport: the way to it.
        remote: where it is shown; told of lists, not of the beginning and the end.
        wishes: answers what it asks for.

    Raises:
        Exception: whatever the SDK raises; `refusal` says it in words.
    """
    session: SdkSession | None = None

    async def heard(message: types.ServerNotification | Exception) -> None:
        if session is not None:
            await session.heard(message)

    client = Client(
        transport,
        message_handler=heard,
        # What is not allowed is not offered, so that the server can say what it cannot do then.
        elicitation_callback=wishes.elicitation if "elicitation" in remote.config.allow else None,
        sampling_callback=wishes.sampling if "sampling" in remote.config.allow else None,
        client_info=types.Implementation(name="rnixfs", version=__version__),
        cache=None,
    )
    async with client, trio.open_nursery() as nursery:
        vars(client.session)["validate_tool_result"] = _trusted
        session = SdkSession(client, remote, nursery)
        # First listen, then look, or a change in between would be missed.
        if session.modern:
            await nursery.start(session.listen)
        await session.load(set(LISTS))
        remote.about = _about(client)
        yield session
        nursery.cancel_scope.cancel()


async def _trusted(_name: str, _result: types.CallToolResult) -> None:
    await trio.lowlevel.checkpoint()


def _about(client: Client) -> dict[str, Any]:
    info = client.server_info
    return {
        "protocol": client.protocol_version,
        "server": _wire(info) if info is not None else {},
        "capabilities": sorted(_wire(client.server_capabilities)),
        "instructions": client.instructions or "",
    }
