"""Where programs lie that a user's installers put on this machine, for a daemon that no shell started."""

import os
import re
from collections.abc import Mapping, Sequence

_OWN = (
    ".local/bin",
    ".claude/local",
    ".npm-global/bin",
    ".npm/bin",
    ".npm-packages/bin",
    ".bun/bin",
    ".volta/bin",
    ".local/share/pnpm",
    ".yarn/bin",
)
_SHARED = ("/usr/local/bin", "/usr/bin")


def find_command(names: Sequence[str], env: Mapping[str, str], home: str) -> str:
    """The path of a program that npm, bun, Volta, nvm or its own installer put on this machine; empty if
    it is nowhere.

    Args:
        names: its names, the best one first; or its path, where a name holds a slash. `~/` is the home.
        env: for PATH, NVM_DIR, BUN_INSTALL, VOLTA_HOME, PNPM_HOME and NPM_CONFIG_PREFIX.
        home: the user's home; empty to look in PATH alone.
    """
    if names and "/" in names[0]:
        path = os.path.join(home, names[0][2:]) if names[0].startswith("~/") else names[0]
        return path if os.path.isabs(path) and is_program(path) else ""
    # A relative folder in PATH would mean a folder of the daemon, not of who asks.
    folders = [folder for folder in env.get("PATH", "").split(os.pathsep) if os.path.isabs(folder)]
    if home:
        folders += [*_named(env), *(os.path.join(home, folder) for folder in _OWN)]
        folders += _nvm_folders(env.get("NVM_DIR") or os.path.join(home, ".nvm"))
    paths = (os.path.join(folder, name) for name in names for folder in (*folders, *_SHARED))
    return next(filter(is_program, paths), "")


def npm_platform_program(program: str, package: str, name: str) -> str:
    """The program that a package of npm holds for this platform, where its install script did not run and
    left a placeholder in its place; empty if there is none.

    Args:
        program: the path that was found, often a link into the package.
        package: the package for this platform, with its scope.
        name: the program's name in it.
    """
    parts = os.path.realpath(program).split(os.sep)
    if "node_modules" not in parts:
        return ""
    last = len(parts) - 1 - parts[::-1].index("node_modules")
    path = os.path.join(os.sep.join(parts[: last + 1]), package, name)
    return path if is_program(path) else ""


def is_program(path: str) -> bool:
    """Whether a path leads to a file that may be run."""
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _named(env: Mapping[str, str]) -> list[str]:
    """Folders that the variables of the installers name."""
    below = (("BUN_INSTALL", "bin"), ("VOLTA_HOME", "bin"), ("PNPM_HOME", ""), ("NPM_CONFIG_PREFIX", "bin"))
    folders = (os.path.join(env[variable], folder) for variable, folder in below if env.get(variable))
    return [folder for folder in folders if os.path.isabs(folder)]


def _nvm_folders(nvm: str) -> list[str]:
    """The program folders of nvm, that of the newest Node first."""
    try:
        versions = os.listdir(os.path.join(nvm, "versions", "node"))
    except OSError:
        return []
    versions.sort(key=lambda version: [int(part) for part in re.findall(r"\d+", version)], reverse=True)
    return [os.path.join(nvm, "versions", "node", version, "bin") for version in versions]
