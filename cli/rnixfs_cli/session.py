"""One run of the command: what every command shares, and the options that set it."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from rnixfs_cli.errors import CommandError
from rnixfs_cli.screen import Screen
from rnixfs_cli.tree import Tree

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
    """`PID`: a process by its number or its uuid."""
    return click.argument("pid", callback=_check_pid)(command)


def _set_mount(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(Session).given = value


def _set_json(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    context.ensure_object(Session).as_json |= value


def _check_pid(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    # What is checked here becomes part of a path, so nothing else may pass.
    digits = set("0123456789")
    if value and set(value) <= digits and int(value) > 0:
        return str(int(value))
    if len(value) == 36 and set(value) <= digits | set("abcdef-"):
        return value
    raise click.BadParameter(f"{value!r} is no process; give a pid such as 1 (see: rnix ps), or a uuid")
