"""Folders with agents and skills, as the tests of this folder need them."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rnixfs.loader import Library
from rnixfs.yamlread import ManifestError

T = TypeVar("T")

LONG_AGO = 1_600_000_000_000_000_000  # nanoseconds since 1970


def write(path: Path, text: str) -> Path:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def add_agent(folder: Path, name: str, description: str, more: str = "", instructions: str = "") -> Path:
    """Write an agent into a folder of a library."""
    text = f"name: {name}\ndescription: {description}\n{more}"
    if instructions:
        write(folder / "agents" / name / "instructions.md", instructions)
    return write(folder / "agents" / name / "agent.yaml", text)


def add_skill(folder: Path, name: str, description: str, body: str = "body", more: str = "") -> Path:
    """Write a skill into a folder of a library."""
    text = f"---\nname: {name}\ndescription: {description}\n{more}---\n{body}\n"
    return write(folder / "skills" / name / "SKILL.md", text)


@dataclasses.dataclass
class Shelves:
    """A built-in folder, a user's folder, and a working folder inside a project."""

    built_in: Path
    user: Path
    project: Path
    cwd: Path

    @classmethod
    def below(cls, top: Path) -> "Shelves":
        found = cls(top / "built-in", top / "user", top / "work" / ".rnix", top / "work" / "deep" / "er")
        for folder in (found.built_in, found.user, found.project, found.cwd):
            folder.mkdir(parents=True)
        return found

    def library(self, *trusted: Path) -> Library:
        return Library([self.built_in, self.user], trusted)


def attempt(call: Callable[[], T]) -> T | ManifestError:
    """What a parser gives or refuses with; anything else it raises is a failure of the test."""
    try:
        return call()
    except ManifestError as error:
        return error


def age(path: Path, now: int = LONG_AGO) -> None:
    """Set the times of a file."""
    os.utime(path, ns=(now, now))
