"""`rnix mcp`: the MCP servers of mcp.yaml: which there are, adding and removing them, and trying one."""

import contextlib
import json
import os
import subprocess
import sys
import time
from typing import Any

import click

from rnixfs_cli import table
from rnixfs_cli.errors import CommandError
from rnixfs_cli.screen import Screen, one_line
from rnixfs_cli.session import Session, json_option, mount_option, pass_session
from rnixfs_cli.tree import Tree

HEADER = ("NAME", "TYPE", "MOUNTS", "STATE", "TARGET", "REASON")
CTL = "mnt/mcp/ctl"
COUNTED = ("tools", "resources", "prompts")
_PENDING = frozenset({"connecting"})
_LOOK_SECONDS = 0.05  # between two looks whether a server has connected


@click.group()
def mcp() -> None:
    """The MCP servers of mcp.yaml."""


# --- list ---


@mcp.command("list")
@json_option
@mount_option
@pass_session
def list_servers(session: Session) -> int:
    """List the servers, where each is mounted, and in what state."""
    rows = [json.loads(line) for line in _lines(session.tree().read("sys/mcp"))]
    if session.as_json:
        session.json(rows)
    elif rows:
        show(rows, session.screen)
    else:
        session.screen.line("[kernel] mcp.yaml names no servers; to add one: rnix mcp add NAME -- COMMAND")
    return 0


def _lines(data: bytes) -> list[str]:
    # Not splitlines: a text of JSON may hold what other alphabets take for the end of a line.
    return [line for line in data.decode("utf-8", "replace").split("\n") if line]


def show(rows: list[dict[str, Any]], screen: Screen) -> None:
    """Print the table: a line for each mount, and one for each server that is mounted nowhere.

    Args:
        rows: the lines of `sys/mcp`.
        screen: where to print; long texts are cut to its width.
    """
    cells = [_cells(row, mount) for row in rows for mount in row["mounts"] or [{}]]
    first, *others = table.layout(HEADER, cells, frozenset(), screen.width())
    screen.line(screen.paint("bold", first))
    for line in others:
        screen.line(line)


def _cells(row: dict[str, Any], mount: dict[str, Any]) -> tuple[str, ...]:
    texts = (row["name"], row["type"], mount.get("name"), mount.get("state"), row["target"])
    return tuple(one_line(str(text or "-")) for text in (*texts, mount.get("reason")))


# --- add and remove ---


def _pairs(what: str, mark: str) -> Any:
    def read(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
        found = {}
        for value in values:
            name, there, rest = value.partition(mark)
            if not (name and there):
                # Not the value itself: it may be a secret.
                raise click.BadParameter(f"write {what}")
            found[name.strip()] = rest.strip()
        return found

    return read


@mcp.command("add")
@click.argument("name")
@click.argument("command", nargs=-1, metavar="[COMMAND [ARGUMENT]...]")
@click.option("--url", metavar="URL", help="The address of a server that runs, in the place of COMMAND.")
@click.option(
    "--env",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_pairs("NAME=VALUE", "="),
    help="A variable of its environment; ${VARIABLE} in a value is one of the daemon's.",
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME:VALUE",
    callback=_pairs("NAME:VALUE", ":"),
    help="A header of each request to it; secrets as ${VARIABLE}.",
)
@click.option("--cwd", metavar="DIR", help="The folder that it works in; else that of whoever mounts it.")
@click.option(
    "--restart",
    type=click.Choice(["never", "on-failure", "always"]),
    help="When it is started again after it ended.",
)
@click.option(
    "--allow",
    multiple=True,
    type=click.Choice(["elicitation", "sampling"]),
    help="What it may ask for in turn: people's answers, models.",
)
@click.option("--autostart", is_flag=True, help="Mount it when the system starts.")
@json_option
@pass_session
def add_server(session: Session, /, name: str, command: tuple[str, ...], **fields: Any) -> None:
    """Add the server NAME to the global mcp.yaml.

    Options of COMMAND stand behind `--`: rnix mcp add time -- uvx mcp-server-time
    """
    entry = {field: value for field, value in fields.items() if value}
    if "cwd" in entry:
        entry["cwd"] = os.path.abspath(entry["cwd"])
    if command:
        entry |= {"command": command[0], **({"args": command[1:]} if command[1:] else {})}
    _tell(session, "added", _edit("add", name, entry))


@mcp.command("remove")
@click.argument("name")
@json_option
@pass_session
def remove_server(session: Session, name: str) -> None:
    """Remove the server NAME from the global mcp.yaml; its mounts stay until they are unmounted."""
    _tell(session, "removed", _edit("remove", name, {}))


def _edit(action: str, name: str, entry: dict[str, Any]) -> dict[str, Any]:
    """Have the file changed, by the part of the daemon's program that reads it.

    Raises:
        CommandError: what of it cannot be done.
    """
    # -P: a file of the current folder must not pass for a module of ours.
    words = [sys.executable, "-P", "-m", "rnixfs.mcp.edit", "--", action, name]
    done = subprocess.run(words, input=json.dumps(entry).encode(), stdout=subprocess.PIPE, check=False)
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise CommandError("DRIVER", "the program that changes mcp.yaml failed; it says why above") from None
    if "error" in answer:
        error = answer["error"]
        raise CommandError(error["code"], error["message"])
    return answer


def _tell(session: Session, what: str, answer: dict[str, Any]) -> None:
    if session.as_json:
        session.json({what: answer["name"], "file": answer["file"]})
    else:
        session.screen.line(f"[kernel] {what} {one_line(answer['name'])}: {one_line(answer['file'])}")


# --- check ---


@mcp.command("check")
@click.argument("name")
@json_option
@mount_option
@pass_session
def check_server(session: Session, name: str) -> int:
    """Mount the server NAME for a moment: what does it offer, and how long did it take to connect?

    The exit status is 1 where it does not connect.
    """
    tree = session.tree()
    # A name that nobody else has: the server may be mounted already, and is not touched.
    where = f"check-{os.getpid()}-{name}"
    started = time.monotonic()
    tree.command(CTL, f"mount {where} {json.dumps({'server': name})}", call="Mount")
    try:
        status = _settled(tree, where)
        took = time.monotonic() - started
    finally:
        with contextlib.suppress(CommandError):  # somebody else may have unmounted it
            tree.command(CTL, f"unmount {where}", call="Unmount")
    ready = status["state"] == "ready"
    result = {
        "name": name,
        "ready": ready,
        "took_ms": round(took * 1000),
        **({what: status.get(what, 0) for what in COUNTED} if ready else {}),
        "reason": status.get("reason", ""),
    }
    _report(session, result)
    return 0 if ready else 1


def _settled(tree: Tree, where: str) -> dict[str, Any]:
    """The status of a mount when it has connected, or has not: the daemon gives up in time."""
    while True:
        status: dict[str, Any] = json.loads(tree.read(f"mnt/mcp/{where}/status", call="Mount"))
        if status["state"] not in _PENDING:
            return status
        time.sleep(_LOOK_SECONDS)


def _report(session: Session, result: dict[str, Any]) -> None:
    if session.as_json:
        session.json(result)
        return
    name, took = one_line(result["name"]), result["took_ms"]
    if result["ready"]:
        counts = ", ".join(f"{result[what]} {what}" for what in COUNTED)
        session.screen.line(f"[kernel] {name} connected in {took} ms: {counts}")
    else:
        session.screen.line(f"[kernel] {name} did not connect: {one_line(result['reason'])}")
