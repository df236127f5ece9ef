"""`python -m rnixfs.mcpserve`: the tree as an MCP server, as a program."""

import argparse
import json
import logging
import os
import sys
import threading
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import trio

from rnixfs.errors import Code, SyscallError, invalid
from rnixfs.gateway import keys
from rnixfs.gateway.mount import read_file
from rnixfs.manifest import UNRESTRICTED, parse_agent, parse_skill_head, whitelist
from rnixfs.mcpserve.rights import Rights
from rnixfs.mcpserve.tree import Tree
from rnixfs.yamlread import ManifestError

if TYPE_CHECKING:
    from rnixfs.mcpserve.server import TreeServer

log = logging.getLogger("rnixfs.mcpserve")

HOST = "127.0.0.1"
LEAVE_SECONDS = 10.0  # from the end of serving to the end of the program, whatever waits


class Options(NamedTuple):
    """How it was started.

    Args:
        mount: absolute path of the mountpoint.
        http: whether it serves by HTTP instead of its standard streams.
        port: the port; 0 for one that is free.
        key_env: the variable with the key; "" for the key in the state folder.
        view: the pid of the process whose view is offered; "" for the whole tree.
        allow: paths that may be used; none for all.
        agent: the agent whose manifest says which paths may be used; "" for no agent.
        read_only: whether nothing may be changed, started or ended.
        fs_write: whether files of the host may be written.
        as_json: whether what it says at its start is JSON.
    """

    mount: str
    http: bool
    port: int
    key_env: str
    view: str
    allow: list[str]
    agent: str
    read_only: bool
    fs_write: bool
    as_json: bool


def parse(arguments: list[str]) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="rnixfs.mcpserve", description="Offers the tree as an MCP server.")
    parser.add_argument("--mount", required=True)
    parser.add_argument("--http", action="store_true")
    parser.add_argument("--port", type=int, default=8081)
    parser.add_argument("--key-env", default="")
    parser.add_argument("--view", default="")
    parser.add_argument("--allow", action="append", default=[])
    parser.add_argument("--agent", default="")
    parser.add_argument("--read-only", action="store_true")
    parser.add_argument("--fs-write", action="store_true")
    parser.add_argument("--json", action="store_true", dest="as_json")
    return Options(**vars(parser.parse_args(arguments)))


# --- what may be used ---


def rights_of(options: Options) -> Rights:
    """What clients may use.

    Raises:
        SyscallError: an option is wrong, or the agent's manifest cannot be read.
    """
    if options.view and not (options.view.isascii() and options.view.isdecimal()):
        raise invalid(f"--view is {options.view!r}; it must be the pid of a process")
    for path in options.allow:
        if not path.startswith("/") or ".." in path.split("/"):
            raise invalid(f"--allow is {path!r}; it must be a path of the tree such as /dev/shell")
    allowed = [os.path.normpath(path).replace("//", "/") for path in options.allow] or None
    if options.agent:
        allowed = [*(allowed or []), *_paths_of(options)]
    return Rights(allowed, read_only=options.read_only, fs_write=options.fs_write)


def _paths_of(options: Options) -> tuple[str, ...]:
    """What the manifest of an agent allows, with its skills."""
    lib, name = f"{options.mount}/lib", options.agent
    if "/" in name or name in ("", ".", ".."):
        raise invalid(f"--agent is {name!r}; it must be a name in {lib}/agents")
    try:
        agent = parse_agent(_text(f"{lib}/agents/{name}/agent.yaml"), f"{lib}/agents/{name}/agent.yaml")
        files = [f"{lib}/skills/{skill}/SKILL.md" for skill in agent.skills]
        found = whitelist(agent, [parse_skill_head(_text(file), file) for file in files])
    except FileNotFoundError as error:
        raise SyscallError(Code.NOT_FOUND, f"{error.filename} is not there; see {lib}/agents") from None
    except ManifestError as error:
        raise invalid(str(error)) from None
    return UNRESTRICTED if found is None else found


def _text(file: str) -> str:
    return read_file(file).decode("utf-8", "replace")


# --- running ---


async def run(options: Options) -> None:
    """Serve until the client leaves, or a signal.

    Raises:
        SyscallError: there is no tree, or the server cannot be set up.
    """
    tree = Tree(options.mount, rights_of(options), options.view)
    await tree.check()
    # The SDK takes half a second to import: only once all else is right.
    from rnixfs.mcpserve.server import TreeServer

    server = TreeServer(tree)
    if options.http:
        await _by_http(options, server)
    else:
        from rnixfs.mcpserve import stdio

        await stdio.serve(server)


async def _by_http(options: Options, server: "TreeServer") -> None:
    from rnixfs.gateway.server import listen, url_of
    from rnixfs.mcpserve import http

    key = (
        keys.from_environment(options.key_env, os.environ)
        if options.key_env
        else keys.from_file(keys.folder_of(os.environ))
    )
    with listen(HOST, options.port) as listening:
        url = f"{url_of(listening)}{http.PATH}"
        told = {"url": url, "key": key.origin, "mount": options.mount}
        words = f"[mcp-serve] {url} offers the tree at {options.mount}; key: {key.origin}"
        line = json.dumps(told) if options.as_json else words
        await http.serve(server, key, listening, lambda: print(line, flush=True))


def main(arguments: list[str] | None = None) -> int:
    """Run the server; returns its exit status."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    # On stderr, for stdout belongs to the protocol; and of the SDK only what is wrong.
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", stream=sys.stderr)
    status = 0
    try:
        trio.run(run, options)
    except* SyscallError as group:
        status = _fail(options, _first(group).at(syscall="Serve", device=options.mount))
    except* (BrokenPipeError, trio.BrokenResourceError):
        log.warning("the client has gone")
    except* KeyboardInterrupt:
        status = 130  # 128 + SIGINT, as shells report it: it had not begun
    return status


def _first(group: BaseExceptionGroup[SyscallError]) -> SyscallError:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, SyscallError)
    return found


def _fail(options: Options, error: SyscallError) -> int:
    if options.as_json and options.http:
        print(json.dumps({"error": error.as_dict()}), flush=True)
    print(error, file=sys.stderr, flush=True)
    return 1


def leave() -> NoReturn:
    """Run the server and end with its exit status."""
    status = main()
    # A call of a mount whose daemon hangs waits for ever, in a thread.
    timer = threading.Timer(LEAVE_SECONDS, os._exit, (status,))
    timer.daemon = True
    timer.start()
    sys.exit(status)
