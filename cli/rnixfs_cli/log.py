"""`rnix log`: what an agent thought and did."""

import os

import click

from rnixfs_cli.loglines import painted, parse
from rnixfs_cli.session import Session, json_option, mount_option, pass_session, pid_argument
from rnixfs_cli.tree import lines


@click.command()
@pid_argument
@click.option("-f", "--follow", is_flag=True, help="Go on until the process ends.")
@json_option
@mount_option
@pass_session
def log(session: Session, pid: str, follow: bool) -> None:
    """Print the log of the process PID."""
    tree = session.tree()
    folder, number = tree.find(pid, "Log")
    live = follow and not folder.startswith("proc/history/")
    name = f"{folder}/.live/log" if live else f"{folder}/log"
    descriptor = tree.open(name, call="Log", pid=number)
    try:
        for line in lines(descriptor):
            _show(line, session)
    finally:
        os.close(descriptor)


def _show(line: str, session: Session) -> None:
    entry = parse(line)
    if session.as_json:
        session.json(entry.as_dict())
    else:
        session.screen.line(painted(session.screen.safe(line), entry, session.screen))
