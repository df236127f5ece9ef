"""The key that clients show."""

import contextlib
import hmac
import os
import pathlib
import secrets
import stat
from collections.abc import Mapping

from rnixfs.errors import Code, SyscallError

FILE = "serve.key"
KEY_BYTES = 32  # of chance in a key that is made here
KEY_LEAST = 8  # characters of a key that somebody gives; a shorter one can be guessed by trying
_PREFIX = "rnix-"


class Key:
    """A key, which no text ever shows.

    Args:
        value: the key.
        origin: where it comes from: the path of its file, or the variable as `$NAME`.
    """

    def __init__(self, value: str, origin: str) -> None:
        self._value = value.encode()
        self.origin = origin

    def __repr__(self) -> str:
        return f"Key(from {self.origin})"

    def opens(self, shown: bytes) -> bool:
        """Whether this is the key; takes the same time however much of it is right."""
        return hmac.compare_digest(self._value, shown)


def from_environment(name: str, environment: Mapping[str, str]) -> Key:
    """The key in a variable.

    Raises:
        SyscallError: it is not set, or no key.
    """
    value = environment.get(name, "").strip()
    if not value:
        raise SyscallError(Code.INVALID, f"${name} is not set; set it to the key, or leave out --key-env")
    return Key(_checked(value, f"${name}"), f"${name}")


def folder_of(environment: Mapping[str, str]) -> pathlib.Path:
    """The folder for state of this user."""
    base = environment.get("XDG_DATA_HOME", "")
    if not base.startswith("/"):
        base = os.path.expanduser("~/.local/share")
    return pathlib.Path(base, "rnix")


def from_file(folder: pathlib.Path) -> Key:
    """The key in a folder's file, which is made with a new one where it is missing.

    Raises:
        SyscallError: it cannot be read or made, others may read it, or it holds no key.
    """
    path = folder / FILE
    try:
        if not path.exists():
            _make(path)
        found = path.stat()
        text = path.read_text("utf-8").strip() if stat.S_ISREG(found.st_mode) else ""
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SyscallError(Code.PERMISSION, f"the key in {path} cannot be used: {reason}") from None
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise SyscallError(Code.PERMISSION, f"others may read the key in {path}; run: chmod 600 {path}")
    return Key(_checked(text, str(path)), str(path))


def _checked(value: str, origin: str) -> str:
    # What cannot stand in a header could never be shown.
    if len(value) < KEY_LEAST or not value.isascii() or not value.isprintable() or " " in value:
        right = f"it must be {KEY_LEAST} or more characters of ASCII on one line, without blanks"
        raise SyscallError(Code.INVALID, f"what {origin} holds is no key; {right}")
    return value


def _make(path: pathlib.Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Whole before it has its name, so that of two that start at once both read the same key.
    draft = path.with_name(f"{FILE}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{_PREFIX}{secrets.token_urlsafe(KEY_BYTES)}\n")
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        os.unlink(draft)
