"""`rnix daemon status` and `rnix daemon stop`."""

import json
import os
from typing import Any

import click

from rnixfs_cli import bounded, leaving, mountpoint
from rnixfs_cli.errors import CommandError
from rnixfs_cli.mountpoint import State
from rnixfs_cli.session import Session, json_option, mount_option, pass_session

NOT_RUNNING = 3  # as `systemctl status` has it: program is not running
READ_SECONDS = 10.0  # for each of the small files that are shown


@click.group()
@json_option
@mount_option
def daemon() -> None:
    """Look at the daemon, or stop it. It starts by itself with the first command that needs it."""


@daemon.command()
@json_option
@mount_option
@pass_session
def status(session: Session) -> int:
    """Say whether the daemon runs; exit status 3 when it does not. It is not started for this."""
    where = session.mount()
    state = mountpoint.probe(where)
    facts: dict[str, Any] = {"state": _STATES[state], "mount": where}
    if state is State.LIVE:
        facts |= {name: _fact(where, name) for name in ("version", "uptime", "stats")}
    if session.as_json:
        session.json(facts)
    else:
        for name, value in _flat(facts):
            session.screen.line(f"{name + ':':<16} {session.screen.safe(str(value))}")
    return 0 if state is State.LIVE else NOT_RUNNING


_STATES = {
    State.LIVE: "running",
    State.ABSENT: "not running",
    State.STALE: "dead, its mount is left over (rnix umount clears it)",
    State.HUNG: "does not answer (rnix umount ends its mount)",
}


def _fact(where: str, name: str) -> Any:
    try:
        text = (
            bounded.read_file(os.path.join(where, "sys", name), READ_SECONDS)
            .decode("utf-8", "replace")
            .strip()
        )
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    try:
        return json.loads(text)
    except ValueError:
        return text


def _flat(facts: dict[str, Any]) -> list[tuple[str, Any]]:
    """Names and values, those of an inner object beside the others."""
    flat: list[tuple[str, Any]] = []
    for name, value in facts.items():
        flat += _flat(value) if isinstance(value, dict) else [(name, value)]
    return flat


@daemon.command()
@json_option
@mount_option
@pass_session
def stop(session: Session) -> None:
    """Stop the daemon and wait until its mount is gone; nothing happens where none runs.

    Processes that run are suspended; `rnix resume PID` lets them go on.
    """
    from rnixfs_cli.daemon import stop as end

    where = session.mount()
    state = mountpoint.probe(where)
    at_work = leaving.look(where) if state is State.LIVE else leaving.NOBODY
    if state is State.LIVE and not end(where):
        reason = "the daemon did not leave in time; try: rnix umount --force"
        raise CommandError("TIMEOUT", reason, syscall="Umount", device=where)
    if state in (State.HUNG, State.STALE):
        code = "TIMEOUT" if state is State.HUNG else "SERVICE_UNAVAILABLE"
        raise CommandError(code, f"the daemon: {_STATES[state]}", syscall="Umount", device=where)
    word = "stopped" if state is State.LIVE else "not running"
    if session.as_json:
        session.json({"mount": where, "state": word, **at_work.as_dict()})
    else:
        session.screen.line(f"[kernel] daemon {word}")
        leaving.tell(at_work, session.screen)
