"""Processes of a daemon, made and watched as people do it: by programs that read and write files."""

import json
import pathlib
from typing import Any

from tests.daemon import Daemon, quoted, until


def spawn(daemon: Daemon, intent: str, **more: Any) -> int:
    """Make a process whose mind is the scripted model."""
    request = json.dumps({"intent": intent, "provider": "script", **more})
    return int(daemon.out(f"echo {quoted(request)} > $M/proc/spawn; cat $M/proc/spawn"))


def done(daemon: Daemon, intent: str, **more: Any) -> int:
    """A process that has ended."""
    pid = spawn(daemon, intent, **more)
    daemon.out(f"cat $M/proc/{pid}/wait")
    return pid


def shown(daemon: Daemon, path: str) -> Any:
    """A file that is one JSON value."""
    return json.loads(daemon.out(f"cat $M/{path}"))


def text(daemon: Daemon, path: str) -> str:
    """A file."""
    return daemon.out(f"cat $M/{path}")


def live(daemon: Daemon) -> int:
    """A process that runs until somebody ends it."""
    pid = spawn(daemon, "wait 500 s")
    until(lambda: "/dev/llm/script" in text(daemon, f"proc/{pid}/trace.jsonl"), "the model is asked")
    return pid


def gated(daemon: Daemon, gate: pathlib.Path) -> int:
    """A process in a tool of its first step, which goes on when there is a file at `gate`."""
    pid = spawn(daemon, f"run: while [ ! -e {quoted(gate)} ]; do sleep 0.01; done; echo through")
    until(lambda: " tool shell " in text(daemon, f"proc/{pid}/log"), "the tool is called")
    return pid
