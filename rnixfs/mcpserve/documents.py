"""What a client is shown of the tree beside its tools: documents as resources, agents as prompts."""

import json
import mimetypes
import os
import urllib.parse

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    BlobResourceContents,
    Completion,
    GetPromptResult,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
)

from rnixfs.errors import ERRNO, Code, SyscallError, printable
from rnixfs.gateway.mount import read_file
from rnixfs.manifest import parse_agent
from rnixfs.mcpserve import files, processes
from rnixfs.mcpserve.rights import SPAWN
from rnixfs.mcpserve.tree import SCHEME, Tree
from rnixfs.yamlread import ManifestError

LISTED_MAX = 100  # processes whose files are listed; all can be read
STREAM_SECONDS = 0.5  # that a stream is waited for when it is read as a resource
COMPLETIONS_MAX = 100  # names of one completion, as the protocol has it
AGENT = "agent/"

_FIXED = {
    "README.md": "how to use the tree",
    "sys/version": "the release",
    "sys/providers": "the models and whether they can be used, one line of JSON each",
    "proc/processes": "every live process, one line of JSON each",
}
_OF_PROCESS = {"status": "at a glance", "log": "what it thought and did", "result": "its final answer"}
_TYPES = {".md": "text/markdown", ".jsonl": "application/x-ndjson", ".yaml": "application/yaml"}
_MISTAKES = frozenset({Code.NOT_FOUND, Code.INVALID, Code.NOT_DIRECTORY, Code.NAME_TOO_LONG, Code.PERMISSION})


def uri_of(path: str) -> str:
    """The URI of a path of the tree."""
    return f"{SCHEME}{urllib.parse.quote(path, errors='surrogateescape')}"


def path_of(uri: str) -> str:
    """The path that a URI names.

    Raises:
        MCPError: it is none of ours.
    """
    if not uri.startswith(f"{SCHEME}/"):
        raise MCPError(
            INVALID_PARAMS, f"a resource here is {SCHEME}/PATH, such as {SCHEME}/proc/1/status", {"uri": uri}
        )
    return urllib.parse.unquote(uri.removeprefix(SCHEME), errors="surrogateescape")


def refused(error: SyscallError, uri: str) -> MCPError:
    """A failure, as the protocol has it for what is no tool."""
    code = INVALID_PARAMS if error.code in _MISTAKES else INTERNAL_ERROR
    number = os.strerror(ERRNO[error.code])
    return MCPError(code, printable(str(error)), {"uri": uri, "code": str(error.code), "errno": number})


# --- resources ---


async def resources(tree: Tree) -> list[Resource]:
    """Those that are listed: what tells of the whole, and the files of each process."""
    seen = [(name, words) for name, words in _FIXED.items() if tree.rights.sees(f"/{name}")]
    try:
        rows = await processes.table(tree)
    except SyscallError:
        rows = []
    for row in rows[:LISTED_MAX]:
        seen += [(f"proc/{row['pid']}/{name}", words) for name, words in _OF_PROCESS.items()]
    return [
        Resource(uri=uri_of(f"/{name}"), name=name, description=words, mime_type=_type(name))
        for name, words in seen
    ]


def template() -> ResourceTemplate:
    """The whole tree."""
    return ResourceTemplate(
        uri_template=f"{SCHEME}/{{+path}}",
        name="tree",
        title="A file of the tree",
        description="any document or journal of the tree, such as proc/1/log; a folder gives its listing",
    )


async def contents(tree: Tree, uri: str) -> ReadResourceResult:
    """What is in a resource.

    Raises:
        MCPError: it cannot be read.
    """
    path = path_of(uri)
    try:
        place, piece = await files.read(tree, path, 0, files.READ_MAX, STREAM_SECONDS)
        if not piece.ended and not piece.timed_out:
            reason = f"it is longer than {files.READ_MAX} bytes; the tool read gives parts of it"
            raise SyscallError(Code.TOO_LARGE, reason, syscall="Read", device=place.path)
    except SyscallError as error:
        if error.code is Code.IS_DIRECTORY:
            return await _folder(tree, path, uri)
        raise refused(error, uri) from None
    encoding, text, _ = files.as_text(piece._replace(ended=True))
    if encoding == "base64":
        kind = mimetypes.guess_type(place.path)[0] or "application/octet-stream"
        return ReadResourceResult(contents=[BlobResourceContents(uri=uri, blob=text, mime_type=kind)])
    return ReadResourceResult(
        contents=[TextResourceContents(uri=uri, text=text, mime_type=_type(place.path, text))]
    )


async def _folder(tree: Tree, path: str, uri: str) -> ReadResourceResult:
    try:
        real, rows, complete = await files.listing(tree, path)
    except SyscallError as error:
        raise refused(error, uri) from None
    uris = [uri_of(f"{real.rstrip('/')}/{row['name']}") for row in rows]
    entries = [files.shown(row) | {"uri": one} for row, one in zip(rows, uris, strict=True)]
    text = json.dumps({"path": printable(real), "entries": entries, "complete": complete}, ensure_ascii=False)
    return ReadResourceResult(
        contents=[TextResourceContents(uri=uri, text=text, mime_type="application/json")]
    )


async def completion(tree: Tree, name: str, value: str) -> Completion:
    """Names in the tree that begin like a path; none for other arguments, which may be anything."""
    if name != "path":
        return Completion(values=[])
    folder, _, begun = value.rpartition("/")
    try:
        _, rows, _ = await files.listing(tree, folder or "/")
    except SyscallError:
        return Completion(values=[])
    named = [row["name"] + "/" * (row["type"] == "folder") for row in map(files.shown, rows)]
    found = [one for one in named if one.startswith(begun)]
    before = f"{folder}/" if "/" in value else ""
    shown = [f"{before}{one}" for one in found[:COMPLETIONS_MAX]]
    return Completion(values=shown, total=len(found), has_more=len(found) > len(shown))


def _type(path: str, text: str = "") -> str:
    name = os.path.splitext(path)[1]
    if name in _TYPES:
        return _TYPES[name]
    if path.endswith("/status") or name == ".json":
        return "application/json"
    if text.startswith(("{", "[")):
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return "text/plain"
        return "application/json"
    return "text/plain"


# --- prompts ---


async def prompts(tree: Tree) -> list[Prompt]:
    """One for each agent, where processes may be started.

    Raises:
        SyscallError: the agents cannot be read.
    """
    if tree.rights.read_only or not tree.rights.sees(SPAWN):
        return []
    found = await tree.call(_agents, tree)
    task = PromptArgument(name="task", description="what the agent is to do", required=False)
    return [
        Prompt(name=f"{AGENT}{name}", title=f"Agent {name}", description=words, arguments=[task])
        for name, words in found.items()
    ]


def _agents(tree: Tree) -> dict[str, str]:
    """What each agent is for."""
    tree.resolve("/lib/agents")
    try:
        names = sorted(os.listdir(tree.host("/lib/agents")))
    except OSError as error:
        raise tree.failure(error, "/lib/agents", "List") from None
    return {name: _purpose(tree, name) for name in names}


def _purpose(tree: Tree, name: str) -> str:
    file = f"/lib/agents/{name}/agent.yaml"
    try:
        return parse_agent(read_file(tree.host(file)).decode(), file).description
    except (OSError, UnicodeDecodeError, ManifestError):
        return "its agent.yaml cannot be read"


async def prompt(tree: Tree, name: str, arguments: dict[str, str]) -> GetPromptResult:
    """What a prompt says.

    Raises:
        MCPError: there is no such prompt, or it takes no such argument.
    """
    found = await tree.call(_agents, tree)
    agent = name.removeprefix(AGENT)
    if not name.startswith(AGENT) or agent not in found:
        there = ", ".join(f"{AGENT}{one}" for one in found)
        raise MCPError(INVALID_PARAMS, f"there is no prompt {name!r}; there are: {there}", {"name": name})
    unknown = sorted(set(arguments) - {"task"})
    if unknown:
        raise MCPError(INVALID_PARAMS, f"{name} takes the argument task, not {unknown[0]!r}", {"name": name})
    task = arguments.get("task", "").strip()
    call = json.dumps({"intent": task or "WHAT IS TO BE DONE", "agent": agent}, ensure_ascii=False)
    text = (
        f"Have the agent {agent} do this work: {task or 'ask me what is to be done'}\n\n"
        f"What it is for: {found[agent]}\n\n"
        f"Start it with the tool spawn and these arguments: {call}. The result is its final answer; while it "
        "works its log comes as progress. With wait false you get its pid at once, and its end with wait."
    )
    message = PromptMessage(role="user", content=TextContent(type="text", text=text))
    return GetPromptResult(description=found[agent], messages=[message])
