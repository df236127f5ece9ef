"""`rnix serve`: offer the models by HTTP."""

import os
import sys
from typing import NoReturn

import click

from rnixfs_cli import daemon
from rnixfs_cli.session import Session, json_option, mount_option, pass_session


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="The port; 0 for one that is free.",
)
@click.option(
    "--key-env", metavar="NAME", help="The variable with the key; else a key is made, and kept in a file."
)
@click.option(
    "--default",
    metavar="MODEL",
    help="The model for requests that name none, or none that is there: PROVIDER[:MODEL] or agent/NAME.",
)
@json_option
@mount_option
@pass_session
def serve(session: Session, host: str, port: int, key_env: str | None, default: str | None) -> NoReturn:
    """Offer every provider, and every agent as a model, as a server for clients of OpenAI and Anthropic.

    It runs until Ctrl-C or SIGTERM.
    """
    where = session.mount()
    daemon.ensure(where)
    # -P: a file of the current folder must not pass for a module of ours.
    words = [
        sys.executable,
        "-P",
        "-m",
        "rnixfs.gateway",
        "--mount",
        where,
        "--host",
        host,
        "--port",
        str(port),
    ]
    options = {"--key-env": key_env, "--default": default}
    words += [f"{name}={value}" for name, value in options.items() if value is not None]
    os.execv(sys.executable, [*words, *(["--json"] if session.as_json else [])])
