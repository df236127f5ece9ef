"""The entry of the `rnix` command. Sub-commands are imported when used: `rnix ps` must start fast."""

import importlib
import os
import sys
from typing import NoReturn

import click

from rnixfs_cli.errors import CommandError
from rnixfs_cli.screen import Screen
from rnixfs_cli.session import Session, json_option, mount_option

INTERRUPTED = 130  # 128 + SIGINT, as shells report it

# Name of the sub-command -> module below rnixfs_cli that holds it under the same name.
COMMANDS: dict[str, str] = {
    "checkpoint": "lifecycle",
    "daemon": "daemon_commands",
    "doctor": "doctor",
    "fork": "lifecycle",
    "gc": "collect",
    "history": "history",
    "kill": "kill",
    "log": "log",
    "mcp": "mcp",
    "mcp-serve": "mcp_serve",
    "mount": "mount_commands",
    "providers": "providers",
    "ps": "ps",
    "query": "query",
    "record": "recorded",
    "replay": "recorded",
    "resume": "lifecycle",
    "serve": "serve",
    "spawn": "spawn",
    "strace": "strace",
    "suspend": "lifecycle",
    "test": "recorded",
    "umount": "mount_commands",
    "version": "version",
    "wait": "wait",
}


class Commands(click.Group):
    """The sub-commands of `COMMANDS`, imported one at a time."""

    def list_commands(self, _context: click.Context) -> list[str]:
        """Their names."""
        return sorted(COMMANDS)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        """The sub-command of a name, None where there is none."""
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"rnixfs_cli.{COMMANDS[name]}")
        command: click.Command = getattr(module, name.replace("-", "_"))
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@json_option
@mount_option
def cli() -> None:
    """Run AI agents as processes of a mounted file system.

    `rnix -i INTENT` is short for `rnix spawn INTENT`.
    """


def run(arguments: list[str], session: Session | None = None) -> int:
    """Run one command.

    Args:
        arguments: what follows the command's name.
        session: where output goes and how the tree is reached; the usual ways where it is not given.

    Returns:
        The exit status.
    """
    session = session or Session()
    errors = Screen(sys.stderr)
    try:
        status = cli.main(_spelled_out(arguments), prog_name="rnix", obj=session, standalone_mode=False)
        return status if isinstance(status, int) else 0
    except CommandError as failure:
        return session.fail(failure, errors)
    except click.ClickException as wrong:
        wrong.show()
        return wrong.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except OSError as error:
        return _host_error(error, session, errors)


def _host_error(error: OSError, session: Session, errors: Screen) -> int:
    from rnixfs_cli.errors import from_oserror

    if isinstance(error, BrokenPipeError):
        return 1
    return session.fail(from_oserror(error, "Read", str(error.filename or "the mount")), errors)


def _spelled_out(arguments: list[str]) -> list[str]:
    """`-i` in the place of the sub-command means `spawn -i`; `--version` is `version`."""
    if arguments == ["--version"]:
        return ["version"]
    at = 0
    while arguments[at : at + 1] and arguments[at].partition("=")[0] in ("--mount", "--json"):
        at += 2 if arguments[at] == "--mount" else 1
    if arguments[at : at + 1] in (["-i"], ["--intent"]):
        return [*arguments[:at], "spawn", *arguments[at:]]
    return arguments


def _occupy_standard_descriptors() -> None:
    """Open /dev/null for each of stdin, stdout and stderr that is closed.

    The next file would get its number, and the daemon would find that file, or nothing, in the place of ours.
    """
    descriptor = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    while descriptor <= 2:
        descriptor = os.dup(descriptor)
    os.close(descriptor)


def main() -> NoReturn:
    """Run the command of this process and end with its exit status."""
    _occupy_standard_descriptors()
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character of an answer shows a question mark instead of a traceback.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
    status = run(sys.argv[1:])
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        # Nobody reads any more; Python would say so once more at its end.
        sys.stdout = None
        status = status or 1
    sys.exit(status & 0xFF)
