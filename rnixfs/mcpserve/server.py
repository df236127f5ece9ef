"""The tree as an MCP server: what it offers, and how failures are told."""

import logging
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    CallToolResult,
    CompleteRequestParams,
    CompleteResult,
    EmptyResult,
    GetPromptResult,
    InputRequiredResult,
    Prompt,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    SubscribeRequestParams,
    UnsubscribeRequestParams,
)
from pydantic import ValidationError

from rnixfs import __version__
from rnixfs.errors import Code, SyscallError, invalid
from rnixfs.mcpserve import documents
from rnixfs.mcpserve.answers import failed
from rnixfs.mcpserve.tools import Tools
from rnixfs.mcpserve.tree import Tree
from rnixfs.mcpserve.watch import Bus

log = logging.getLogger("rnixfs.mcpserve")

NAME = "rnix"
INSTRUCTIONS = """\
This server is a tree of files that runs AI agents as processes. spawn starts an agent on an intent and gives
its result; ps, wait and kill manage agents; ls and read show the tree; write asks a device or gives an order.
/proc/<pid> is a process, /dev/llm/<provider> a model, /dev/shell a shell, /dev/fs the files of the host,
/mnt/mcp other MCP servers, /sys/query the log as SQL. Read /README.md for the rest, and a device for its
requests.\
"""


class TreeServer(MCPServer[None]):
    """An MCP server for a tree.

    Args:
        tree: the tree, with what clients may use of it.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.bus = Bus(tree)
        super().__init__(
            NAME,
            title="rnix: agents as files",
            version=__version__,
            instructions=INSTRUCTIONS,
            tools=Tools(tree).offered(),
            subscriptions=self.bus,
            log_level="WARNING",
        )
        add = self._lowlevel_server.add_request_handler
        add("resources/subscribe", SubscribeRequestParams, self._subscribe)
        add("resources/unsubscribe", UnsubscribeRequestParams, self._unsubscribe)
        add("completion/complete", CompleteRequestParams, self._complete)

    async def _complete(
        self, _ctx: ServerRequestContext[None], params: CompleteRequestParams
    ) -> CompleteResult:
        argument = params.argument
        return CompleteResult(
            completion=await documents.completion(self._tree, argument.name, argument.value)
        )

    async def _subscribe(
        self, ctx: ServerRequestContext[None], params: SubscribeRequestParams
    ) -> EmptyResult:
        if not self.bus.add(str(params.uri), ctx.session):
            raise MCPError(INTERNAL_ERROR, "there are too many subscriptions; end some")
        return EmptyResult()

    async def _unsubscribe(
        self, ctx: ServerRequestContext[None], params: UnsubscribeRequestParams
    ) -> EmptyResult:
        self.bus.remove(str(params.uri), ctx.session)
        return EmptyResult()

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[None, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool; what fails in the tree is a result that says so."""
        tool = self._tool_manager.get_tool(name)
        if tool is not None:
            unknown = sorted(set(arguments) - set(tool.parameters["properties"]))
            if unknown:
                there = ", ".join(tool.parameters["properties"]) or "nothing"
                return failed(invalid(f"{name} takes no argument {unknown[0]!r}; it takes {there}"))
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            return failed(_reason(error.__cause__, name, error))

    async def list_resources(self) -> list[Resource]:
        """What tells of the whole tree, and the files of each process."""
        return await documents.resources(self._tree)

    async def list_resource_templates(self) -> list[ResourceTemplate]:
        """The whole tree."""
        return [documents.template()]

    async def list_prompts(self) -> list[Prompt]:
        """The agents."""
        try:
            return await documents.prompts(self._tree)
        except SyscallError as error:
            raise MCPError(INTERNAL_ERROR, str(error)) from None

    async def get_prompt(
        self, name: str, arguments: dict[str, Any] | None = None, context: Context[None, Any] | None = None
    ) -> GetPromptResult:
        """How an agent is put to work."""
        try:
            return await documents.prompt(self._tree, name, arguments or {})
        except SyscallError as error:
            raise MCPError(INTERNAL_ERROR, str(error)) from None

    async def _handle_read_resource(
        self, ctx: ServerRequestContext[None], params: ReadResourceRequestParams
    ) -> ReadResourceResult:
        # In the place of the SDK's way, which gives what is read a type before it is read.
        return await documents.contents(self._tree, str(params.uri))


def _reason(cause: BaseException | None, name: str, error: ToolError) -> SyscallError:
    """Why a tool failed."""
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    if isinstance(cause, SyscallError):
        return cause
    if isinstance(cause, ValidationError):
        first = cause.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the arguments"
        return invalid(f"{name}: {field}: {first['msg']}").at(syscall="Call", device=name)
    if cause is None:
        return SyscallError(Code.NOT_FOUND, str(error), syscall="Call", device=name)
    log.error("%s failed inside", name, exc_info=cause)
    return SyscallError(
        Code.INTERNAL, "the server failed inside; its log has more", syscall="Call", device=name
    )
