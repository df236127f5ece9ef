"""`python -m rnixfs.mcp.edit add|remove NAME`: changes the user's `mcp.yaml`, for the command `rnix mcp`.

`add` reads the entry as JSON from stdin. The answer is one JSON object: `{"file", "name"}`, or `{"error"}`.
The file is replaced as a whole, so that whoever reads it sees the old one or the new one, and only its user
may read it.
"""

import argparse
import contextlib
import fcntl
import os
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from rnixfs import limits
from rnixfs.configfile import config_folder, read_text
from rnixfs.errors import SyscallError, from_oserror, invalid
from rnixfs.mcp import editing
from rnixfs.mcp.config import ServerConfig, parse_mcp
from rnixfs.yamlread import ManifestError

MODE = 0o600


class Options(argparse.Namespace):
    """The command line."""

    action: str
    name: str


def change(action: str, name: str, entry: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, str]:
    """Add or remove a server; returns what was done.

    Args:
        action: `add` or `remove`.
        name: the server.
        entry: the fields of a new one.
        env: tells where the file is.

    Raises:
        SyscallError: what of it cannot be done.
    """
    folder = config_folder(env)
    path = folder / "mcp.yaml"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _alone(folder):
        text = _text(path)
        if action == "add":
            text = editing.add(text, str(path), _server(name, entry))
        else:
            text = editing.remove(text, str(path), name)
        _replace(path, text)
    return {"file": str(path), "name": name}


def _server(name: str, entry: Mapping[str, Any]) -> ServerConfig:
    """The entry as the file will have it, refused as it would be there."""
    text = msgspec.json.encode({"servers": [{"name": name, **entry}]}).decode()
    try:
        return parse_mcp(text, "").servers[0]
    except ManifestError as error:
        raise invalid(f"{error.what.removeprefix('servers[1].')}; {error.right}") from None


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one command at a time change files of a folder."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _text(path: Path) -> str:
    try:
        return read_text(str(path.parent), str(path), limits.CONFIG_FILE_MAX)
    except FileNotFoundError:
        return ""
    except ManifestError as error:
        raise error.as_syscall_error() from None


def _replace(path: Path, text: str) -> None:
    """Put a file in place of another, whole or not at all."""
    real = Path(os.path.realpath(path))  # a link within the folder stays one
    handle, made = tempfile.mkstemp(prefix=".mcp.yaml.", dir=real.parent)
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fchmod(file.fileno(), stat.S_IMODE(MODE))
            os.fsync(file.fileno())
        os.replace(made, real)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(made)
        raise


# --- the command ---


def parse(arguments: list[str]) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m rnixfs.mcp.edit", description="Change mcp.yaml.")
    parser.add_argument("action", choices=["add", "remove"])
    parser.add_argument("name")
    return parser.parse_args(arguments, namespace=Options())


def main(arguments: list[str] | None = None) -> int:
    """Change the file and answer; returns the exit status."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    try:
        entry = msgspec.json.decode(sys.stdin.buffer.read()) if options.action == "add" else {}
        answer: dict[str, Any] = change(options.action, options.name, entry, os.environ)
    except OSError as error:
        known = error if isinstance(error, SyscallError) else from_oserror(error, str(error))
        answer = {"error": known.as_dict()}
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    sys.exit(main())
