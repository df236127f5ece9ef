"""All that the crash harness knows of how the daemon keeps its state."""

import functools
import pathlib

from rnixfs import scenario
from rnixfs.drivers import script
from rnixfs.state.sqlite import SqliteStore
from rnixfs.state.store import Record

STORE = SqliteStore
"""The class whose `append_event` and `batch` the daemon calls."""

NORMAL = "version: 1\nstore: {synchronous: normal}\n"
FULL = "version: 1\nstore: {synchronous: full}\n"
"""What `config.yaml` says; with `full` each event is synced, so that each sync can fail."""


def warm(file: pathlib.Path) -> None:
    """Read a scenario once for all daemons that are forked from this process."""
    read = functools.cache(scenario.load)
    read(file.read_text("utf-8"), str(file))
    vars(script)["load"] = read


def daemon_options(mount: pathlib.Path, host: pathlib.Path, state: pathlib.Path, ready: int) -> list[str]:
    """The daemon's command line.

    Args:
        mount: where it mounts.
        host: the folder that agents work in.
        state: the folder of its state.
        ready: the descriptor that it reports on.
    """
    return [
        *("--mount", str(mount)),
        *("--root", str(host)),
        *("--state", str(state)),
        *("--ready-fd", str(ready)),
    ]


def log_of(state: pathlib.Path) -> list[Record]:
    """The whole log of a daemon that has ended, in its order."""
    log = SqliteStore(state)
    try:
        records = [record for pid in range(log.last_pid() + 1) for record in log.load(pid)]
    finally:
        log.close()
    return sorted(records, key=lambda record: record.seq)
