"""`rnix wait`: the end of a process."""

import json
import os
import sys
from typing import Any

import click

from rnixfs_cli.errors import CommandError
from rnixfs_cli.screen import Screen, exit_line, model_label
from rnixfs_cli.session import Session, json_option, mount_option, pass_session, pid_argument
from rnixfs_cli.tree import Tree, live


@click.command()
@pid_argument
@json_option
@mount_option
@pass_session
def wait(session: Session, pid: str) -> int:
    """Wait until the process PID ends; the exit status is the process's code."""
    tree = session.tree()
    folder, number = tree.find(pid, "Wait")
    status = tree.status(folder, call="Wait", pid=number)
    label = model_label(status)
    if status.get("suspended"):
        Screen(sys.stderr).line(f"[kernel] PID {number} is suspended; to go on: rnix resume {number}")
    end = end_of(tree, tree.open(f"{folder}/wait", call="Wait", pid=number), number)
    if session.as_json:
        session.json({"pid": number, **end})
    else:
        session.screen.line(exit_line(number, label, end))
    return int(end["code"])


def end_of(tree: Tree, descriptor: int, pid: int) -> dict[str, Any]:
    """How a process ended, from its open `wait` file; waits for it and closes the file.

    Args:
        tree: the tree, for the message.
        descriptor: the open file.
        pid: the process.

    Raises:
        CommandError: the daemon ended first.
    """
    try:
        data = b"".join(live(descriptor))
    except OSError as error:
        raise tree.failure(error, f"proc/{pid}/wait", "Wait", pid) from None
    finally:
        os.close(descriptor)
    if not data.strip():
        reason = (
            f"the daemon ended before the process did; to go on where it was suspended: rnix resume {pid}"
        )
        raise CommandError("SERVICE_UNAVAILABLE", reason, syscall="Wait", device=f"/proc/{pid}/wait", pid=pid)
    end: dict[str, Any] = json.loads(data.splitlines()[0])
    return end
