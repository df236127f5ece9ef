"""The files of `sys/`: what the system is, how it fares, and how to stop it."""

import dataclasses
import logging
import resource
import time
from collections.abc import Callable
from typing import Any

import rnixfs
from rnixfs import limits
from rnixfs.device import json_line
from rnixfs.errors import denied, invalid
from rnixfs.kernel import Kernel
from rnixfs.node import CommandRow, Control, Dir, Document, FixedDir, Node
from rnixfs.types import Caller

_LEVELS = ("debug", "info", "warning", "error")


@dataclasses.dataclass(frozen=True)
class LogFiles:
    """The log, as `sys/` shows it.

    Args:
        query: the device that answers questions about it.
        gc: removes from it what is not to be kept.
        stats: its size, for `sys/stats`; empty where there is nothing to tell.
    """

    query: Node
    gc: Callable[[], None]
    stats: Callable[[], dict[str, int]]


def sys_dir(
    kernel: Kernel,
    providers: Callable[[], list[dict[str, object]]],
    config: Callable[[], dict[str, Any]],
    log: LogFiles | None = None,
    check: Node | None = None,
    servers: Callable[[], list[dict[str, object]]] | None = None,
) -> Dir:
    """The folder `sys/`.

    Args:
        kernel: what is reported on.
        providers: the state of each provider.
        config: the settings in force.
        log: what is known of the log, and can be done to it; None leaves that out.
        check: the device that asks providers; None leaves it out.
        servers: the MCP servers of the configuration and their mounts; None leaves that out.
    """
    started = time.time_ns()
    monotonic = time.monotonic()

    def stats() -> bytes:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return json_line(
            {
                "processes": len(kernel.live()),
                "visible": len(kernel.processes),
                "history": len(kernel.history),
                "max_rss_kib": usage.ru_maxrss,
                "cpu_ms": int((usage.ru_utime + usage.ru_stime) * 1000),
                **(log.stats() if log is not None else {}),
            }
        )

    def always() -> int:
        return started

    return FixedDir(
        "sys",
        {
            "version": Document("sys/version", lambda: f"{rnixfs.__version__}\n".encode(), always),
            "uptime": Document(
                "sys/uptime", lambda: f"{time.monotonic() - monotonic:.1f}\n".encode(), always
            ),
            "stats": Document("sys/stats", stats, always),
            "limits": Document("sys/limits", _limits, always),
            "config": Document("sys/config", lambda: json_line(config()), always),
            "providers": _rows("sys/providers", providers, always),
            **({"check": check} if check is not None else {}),
            **({"mcp": _rows("sys/mcp", servers)} if servers is not None else {}),
            "init": Document("sys/init", kernel.init.document, kernel.init.changed),
            **({"query": log.query} if log is not None else {}),
            "ctl": _ctl(kernel, log),
        },
    )


def _rows(
    key: str, rows: Callable[[], list[dict[str, object]]], changed: Callable[[], int] = time.time_ns
) -> Node:
    return Document(key, lambda: b"".join(map(json_line, rows())), changed)


def _limits() -> bytes:
    names = (name for name in dir(limits) if name.isupper())
    return "".join(f"{name} {getattr(limits, name)}\n" for name in names).encode()


def _ctl(kernel: Kernel, log: LogFiles | None) -> Control:
    def shut_down(_caller: Caller, rest: str) -> None:
        if rest:
            raise invalid(f"shutdown takes nothing after it, but got {rest!r}")
        kernel.shut_down()

    def level(_caller: Caller, rest: str) -> None:
        if rest.lower() not in _LEVELS:
            raise invalid(f"loglevel takes one of {', '.join(_LEVELS)}, not {rest!r}")
        logging.getLogger("rnixfs").setLevel(rest.upper())

    def bootstrap(_caller: Caller, rest: str) -> None:
        if rest:
            raise invalid(f"bootstrap takes nothing after it, but got {rest!r}")
        kernel.start(kernel.init.run)

    def allow(caller: Caller) -> None:
        if caller.agent:
            raise denied("only people may command the system, not its processes")

    rows = {
        "shutdown": CommandRow("shutdown", "end every process, unmount and stop", shut_down),
        "loglevel": CommandRow(
            "loglevel L", "how much the daemon's log says: debug info warning error", level
        ),
        "bootstrap": CommandRow("bootstrap", "start what init.yaml names and does not run", bootstrap),
    }
    if log is not None:
        rows["gc"] = _gc(log)
    return Control("sys/ctl", rows, allow)


def _gc(log: LogFiles) -> CommandRow:
    def collect(_caller: Caller, rest: str) -> None:
        if rest:
            raise invalid(f"gc takes nothing after it, but got {rest!r}")
        log.gc()

    return CommandRow("gc", "remove from the log what is not to be kept", collect)
