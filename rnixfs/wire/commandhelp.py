"""The options and commands of a program, read from the text of its `--help`."""

import re
from typing import NamedTuple

_OPTION = re.compile(r"^ {1,8}(?:-\w, )?(--[a-z][\w-]*)(?:, (--[a-z][\w-]*))?(?=[ ,=\n]|$)", re.MULTILINE)
_COMMANDS = re.compile(r"^Commands:\n(.*)", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^ {1,8}([a-z][a-z-]*)", re.MULTILINE)


class Help(NamedTuple):
    """What a program takes.

    Args:
        options: its options; None where they are not known. Then all are taken to be there, as the program
            refuses to start with one that it does not have.
        commands: its commands.
    """

    options: frozenset[str] | None = None
    commands: frozenset[str] = frozenset()

    def has(self, option: str) -> bool:
        """Whether it takes an option."""
        return self.options is None or option in self.options

    def only(self, option: str) -> list[str]:
        """The option as arguments, none where the program does not take it."""
        return [option] if self.has(option) else []


def read_help(text: str) -> Help:
    """Read the text in the form of the usual libraries: one line for an option, a little to the right."""
    options = {name for found in _OPTION.findall(text) for name in found if name}
    section = _COMMANDS.search(text)
    commands = _COMMAND.findall(section[1]) if section else []
    return Help(frozenset(options) or None, frozenset(commands))
