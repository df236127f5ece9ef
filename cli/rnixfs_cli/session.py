"""One run of the command: what every command shares, and the options that set it."""

import itertools
import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from rnixfs_cli.errors import CommandError
from rnixfs_cli.screen import Screen
from rnixfs_cli.tree import Tree

UUID_LEAST = 6
"""Hexadecimal digits of a uuid that a user must give."""
_HEX = frozenset("0123456789abcdef")
Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class Session:
    """What the options said, and the way to the tree.

    Args:
        screen: where output goes; stdout where it is not given.
        tree_of: makes the tree of a mountpoint.
    """

    def __init__(self, screen: Screen | None = None, tree_of: Callable[[str], Tree] = Tree) -> None:
        self.given: str | None = None
        self.as_json = False
        self.screen = screen or Screen()
        self._tree_of = tree_of

    def mount(self) -> str:
        """The mountpoint's absolute path."""
        from rnixfs_cli import mountpoint

        return mountpoint.choose(self.given)

    def tree(self) -> Tree:
        """The tree, with a daemon behind it: one is started where none answers.

        Raises:
            CommandError: no daemon can be had.
        """
        from rnixfs_cli import daemon

        mount = self.mount()
        daemon.ensure(mount)
        return self._tree_of(mount)

    def json(self, value: object) -> None:
        """Print a value as one line of JSON."""
        self.screen.line(json.dumps(value, ensure_ascii=False))

    def fail(self, failure: CommandError, errors: Screen) -> int:
        """Show a failure, for programs too where they asked for JSON.

        Args:
            failure: what went wrong.
            errors: where people read it.

        Returns:
            The exit status.
        """
        if self.as_json:
            self.json({"error": failure.as_dict()})
        errors.line(errors.paint("red", errors.safe(str(failure))))
        return failure.status


pass_session = click.make_pass_decorator(Session)


def mount_option(command: Decorated) -> Decorated:
    """`--mount DIR`, on the command itself and on each sub-command."""
    return click.option(
        "--mount",
        metavar="DIR",
        expose_value=False,
        callback=_set_mount,
        help="Mountpoint; else $RNIX_MOUNT, else ~/rnix.",
    )(command)


def json_option(command: Decorated) -> Decorated:
    """`--json`: JSON on stdout and nothing else."""
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        expose_value=False,
        callback=_set_json,
        help="Print JSON for programs.",
    )(command)


def pid_argument(command: Decorated) -> Decorated:
    """`PID`: a process by its number, its uuid or the beginning of that."""
    return click.argument("pid", callback=lambda _context, _parameter, value: identity(value))(command)


def pids_argument(command: Decorated) -> Decorated:
    """`PID...`: one process or more, each as `pid_argument` takes it."""
    return click.argument(
        "pids",
        metavar="PID...",
        nargs=-1,
        required=True,
        callback=lambda _context, _parameter, values: tuple(map(identity, values)),
    )(command)


def _set_mount(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(Session).given = value


def _set_json(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    context.ensure_object(Session).as_json |= value


def identity(text: str) -> str:
    """A process as the user named it, in the form that the tree has: a pid, a uuid or the beginning of one.

    Raises:
        click.BadParameter: it is neither.
    """
    # What is checked here becomes part of a path, so nothing else may pass.
    digits = text.replace("-", "").lower()
    if text.isascii() and text.isdecimal() and (int(text) > 0) and not _begins_uuid(digits):
        return str(int(text))
    if text[:1] != "-" and set(digits) <= _HEX and UUID_LEAST <= len(digits) <= 32:
        ends = (0, 8, 12, 16, 20, 32)
        parts = [digits[start:end] for start, end in itertools.pairwise(ends)]
        return "-".join(filter(None, parts))
    raise click.BadParameter(
        f"{text!r} is no process; give a pid such as 1 (see: rnix ps), a uuid (see: rnix history), "
        f"or at least the first {UUID_LEAST} digits of one"
    )


def _begins_uuid(digits: str) -> bool:
    # The uuids begin with the time, whose first digit stays 0 for some hundred years.
    return digits.startswith("0") and len(digits) >= UUID_LEAST
