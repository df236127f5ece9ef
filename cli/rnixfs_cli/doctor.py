"""`rnix doctor`: whether this host has what is needed, and what to do where it has not."""

import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
from typing import NamedTuple

import click

from rnixfs_cli import bounded, daemon, mountpoint
from rnixfs_cli.errors import CommandError
from rnixfs_cli.session import Session, json_option, pass_session

PYTHON = (3, 11)
MODULES = ("rnixfs", "pyfuse3", "trio", "msgspec", "yaml", "httpx2")
# Kernels from 6.14 on end the whole connection when a request waits longer than these say.
TIMEOUTS = ("default_request_timeout", "max_request_timeout")
SYSCTL = "/proc/sys/fs/fuse"
DEVICE = "/dev/fuse"
READ_SECONDS = 10.0  # for one file of the trial mount


class Finding(NamedTuple):
    """One thing looked at.

    Args:
        name: what.
        ok: whether it is as it should be.
        detail: what was found.
        remedy: what to do about it.
        needed: whether nothing works without it.
    """

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    needed: bool = True


@click.command()
@json_option
@pass_session
def doctor(session: Session) -> int:
    """Check what is needed to mount, and mount for a moment in a temporary folder.

    The exit status is 1 where something needed is missing.
    """
    findings = [python(), *modules(), device(), helper(), *timeouts(), *trial(), claude()]
    if session.as_json:
        session.json([finding._asdict() for finding in findings])
    else:
        for finding in findings:
            _show(finding, session)
    return int(any(finding.needed and not finding.ok for finding in findings))


def _show(finding: Finding, session: Session) -> None:
    screen = session.screen
    word, style = (
        ("ok", "green") if finding.ok else ("MISSING", "red") if finding.needed else ("no", "yellow")
    )
    remedy = f" -> {finding.remedy}" if finding.remedy and not finding.ok else ""
    screen.line(f"{screen.paint(style, f'{word:<8}')} {finding.name}: {screen.safe(finding.detail)}{remedy}")


def python() -> Finding:
    """The interpreter's version."""
    found = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", sys.version_info >= PYTHON, found, "install Python 3.11 or later")


def modules() -> list[Finding]:
    """The packages that the daemon needs; they are looked up, not imported."""
    missing = [name for name in MODULES if importlib.util.find_spec(name) is None]
    detail = f"missing: {', '.join(missing)}" if missing else "all installed"
    return [Finding("packages", not missing, detail, f"install them for {sys.executable}")]


def device(path: str = DEVICE) -> Finding:
    """The host's FUSE device.

    Args:
        path: where it is.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return Finding(
            path,
            False,
            "not there",
            "load the module (modprobe fuse), or start the container with --device /dev/fuse",
        )
    except OSError as error:
        return Finding(
            path, False, f"cannot be opened: {error.strerror}", "run as root, or give yourself access to it"
        )
    return Finding(path, True, "can be opened")


def helper() -> Finding:
    """The program that mounts for users without privileges; root does not need it."""
    path = shutil.which("fusermount3")
    needed = os.geteuid() != 0
    return Finding("fusermount3", path is not None, path or "not found", "apt-get install fuse3", needed)


def timeouts(folder: str = SYSCTL) -> list[Finding]:
    """The host's time limits for requests, which must be off.

    Args:
        folder: where they are; kernels before 6.14 have none.
    """
    findings = []
    for name in TIMEOUTS:
        with contextlib.suppress(OSError), open(os.path.join(folder, name)) as file:
            value = file.read().strip()
            remedy = f"sysctl -w fs.fuse.{name}=0; else a read that waits longer ends the mount"
            findings.append(Finding(f"fs.fuse.{name}", value == "0", value, remedy))
    return findings


def claude() -> Finding:
    """The command line that dev/llm/claude uses."""
    path = shutil.which("claude")
    return Finding(
        "claude",
        path is not None,
        path or "not found",
        "install Claude Code for dev/llm/claude",
        needed=False,
    )


def trial() -> list[Finding]:
    """Mount in a temporary folder, read from there and unmount; then name the providers found."""
    folder = tempfile.mkdtemp(prefix="rnix-doctor-")
    where = mountpoint.choose(os.path.join(folder, "mnt"))
    try:
        daemon.start(daemon.Plan(where, state=daemon.IN_MEMORY))
        readme = bounded.read_file(os.path.join(where, "README.md"), READ_SECONDS)
        providers = bounded.bounded(
            lambda: "\n".join(os.listdir(os.path.join(where, "dev/llm"))).encode(), READ_SECONDS
        )
        daemon.unmount(where)
    except (CommandError, OSError) as error:
        return [Finding("mount", False, str(error), "see the lines above, and the daemon's log")]
    finally:
        _clear(where, folder)
    names = ", ".join(sorted(providers.decode("utf-8", "replace").split("\n")))
    return [
        Finding("mount", bool(readme), "mounted, read and unmounted", "README.md is empty"),
        Finding("providers", bool(names), names or "none", "see providers.yaml", needed=False),
    ]


def _clear(where: str, folder: str) -> None:
    if mountpoint.mounted(where):
        with contextlib.suppress(CommandError):
            daemon.unmount(where, force=True)
    for path in (where, folder):
        with contextlib.suppress(OSError):
            os.rmdir(path)
