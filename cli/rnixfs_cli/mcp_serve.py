"""`rnix mcp-serve`: offer the tree as an MCP server."""

import os
import sys
from typing import NoReturn

import click

from rnixfs_cli import daemon
from rnixfs_cli.session import Session, json_option, mount_option, pass_session


@click.command("mcp-serve")
@click.option("--http", is_flag=True, help="Serve by HTTP on this machine, not by stdin and stdout.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8081,
    show_default=True,
    help="The port of --http; 0 for one that is free.",
)
@click.option(
    "--key-env", metavar="NAME", help="The variable with the key of --http; else the key of rnix serve."
)
@click.option("--view", metavar="PID", type=click.IntRange(1), help="Offer the tree as this process sees it.")
@click.option(
    "--allow",
    metavar="PATH",
    multiple=True,
    help="A path that clients may use; may be given again; else all.",
)
@click.option("--agent", metavar="NAME", help="Allow what the manifest of this agent allows.")
@click.option("--read-only", is_flag=True, help="Let clients change, start and end nothing.")
@click.option("--fs-write", is_flag=True, help="Let clients write files below /dev/fs.")
@json_option
@mount_option
@pass_session
def mcp_serve(
    session: Session,
    http: bool,
    port: int,
    key_env: str | None,
    view: int | None,
    allow: tuple[str, ...],
    agent: str | None,
    read_only: bool,
    fs_write: bool,
) -> NoReturn:
    """Offer the tree to MCP clients: tools that start agents, ask devices, and read and write files.

    It runs until its client closes stdin, or, with --http, until Ctrl-C or SIGTERM.
    """
    where = session.mount()
    daemon.ensure(where)
    # -P: a file of the current folder must not pass for a module of ours.
    words = [sys.executable, "-P", "-m", "rnixfs.mcpserve", "--mount", where, f"--port={port}"]
    options = {"--key-env": key_env, "--view": view, "--agent": agent}
    words += [f"{name}={value}" for name, value in options.items() if value is not None]
    words += [f"--allow={path}" for path in allow]
    flags = {"--http": http, "--read-only": read_only, "--fs-write": fs_write, "--json": session.as_json}
    os.execv(sys.executable, [*words, *(flag for flag, on in flags.items() if on)])
