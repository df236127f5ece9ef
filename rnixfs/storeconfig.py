"""`config.yaml` of the user's folder for configuration, and where the state lies.

    store:
      synchronous: normal      # off | normal | full: what the log survives
      keep:                    # what is beyond any of these goes, oldest first
        processes: 1000        # finished processes
        days: 90               # since their end
        bytes: 1073741824      # of the whole log

Only the user's own file counts: how durable the log is, and when it forgets, is not for a project to say.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from rnixfs import limits
from rnixfs.configfile import config_folder, read_text
from rnixfs.errors import from_oserror
from rnixfs.state.opening import LEVELS
from rnixfs.state.store import Retention
from rnixfs.yamlread import Fields, ManifestError, clip, load, nearest

FILE = "config.yaml"
VERSION = 1
"""The version of the format."""

FILE_FIELDS = ("version", "store")
STORE_FIELDS = ("synchronous", "keep")
KEEP_FIELDS = ("processes", "days", "bytes")
_KEEP_HINTS = {
    "count": "write processes",
    "age": "write days",
    "size": "write bytes",
}


class StoreSettings(msgspec.Struct, frozen=True):
    """How the log is kept.

    Args:
        synchronous: one of `LEVELS`; what each survives is said in `state.sqlite`.
        retention: how much of the past stays.
    """

    synchronous: str = "normal"
    retention: Retention = Retention()

    def shown(self) -> dict[str, object]:
        """The same as a file would say it."""
        return {"synchronous": self.synchronous, "keep": msgspec.to_builtins(self.retention)}


def store_settings(env: Mapping[str, str]) -> StoreSettings:
    """What the user's `config.yaml` says; what is usual where there is none.

    Args:
        env: environment that tells where configuration is.

    Raises:
        SyscallError: INVALID with the file, the line and what is wrong there; why it cannot be read.
    """
    folder = str(config_folder(env))
    path = os.path.join(folder, FILE)
    try:
        return parse_config(read_text(folder, path, limits.CONFIG_FILE_MAX), path)
    except (FileNotFoundError, NotADirectoryError):
        return StoreSettings()
    except ManifestError as error:
        raise error.as_syscall_error() from None
    except OSError as error:
        reason = f"{path}: {error.strerror}; make it a file that the daemon may read"
        raise from_oserror(error, reason) from None


def parse_config(text: str, file: str) -> StoreSettings:
    """Read the text of a `config.yaml`.

    Args:
        text: the text.
        file: its path, for messages.

    Raises:
        ManifestError: the line, what is wrong there and what would be right.
    """
    doc = load(text, file)
    if doc.root.data is None:
        return StoreSettings()
    fields = doc.fields()
    version = fields.whole("version", 0, 1_000_000)
    if version not in (None, VERSION):
        raise fields.error("version", f"is {version}", f"this release knows version {VERSION}: write that")
    fields.only(FILE_FIELDS, {"keep": "write it below store"})
    store = fields.mapping("store")
    return StoreSettings() if store is None else _store(store)


def _store(store: Fields) -> StoreSettings:
    store.only(STORE_FIELDS, dict.fromkeys(KEEP_FIELDS, "write it below keep"))
    keep = store.mapping("keep")
    return StoreSettings(_synchronous(store), Retention() if keep is None else _retention(keep))


def _synchronous(store: Fields) -> str:
    right = f"one of {', '.join(LEVELS)}"
    found = store.text("synchronous", right=right)
    if found and found not in LEVELS:
        close = nearest(found, LEVELS)
        raise store.error("synchronous", f"{clip(found)} is unknown", f"write {right}{close}")
    return found or StoreSettings().synchronous


def _retention(keep: Fields) -> Retention:
    keep.only(KEEP_FIELDS, _KEEP_HINTS)
    usual = Retention()
    processes = keep.whole("processes", 0, limits.KEEP_PROCESSES_MAX)
    days = keep.number("days", 0, limits.KEEP_DAYS_MAX)
    size = keep.whole("bytes", 0, limits.KEEP_BYTES_MAX)
    return Retention(
        processes=usual.processes if processes is None else processes,
        days=usual.days if days is None else days,
        bytes=usual.bytes if size is None else size,
    )


def state_folder(env: Mapping[str, str], mountpoint: str) -> Path:
    """Where the state of the system lies that is mounted at a folder.

    Below `$XDG_DATA_HOME/rnix`, or `~/.local/share/rnix`; named after the last part of the mountpoint, for
    people, and the beginning of the hash of all of it, so that no two mounts share a log.

    Args:
        env: environment that tells where data is.
        mountpoint: the canonical path.
    """
    base = env.get("XDG_DATA_HOME", "")
    home = env.get("HOME") or os.path.expanduser("~")
    data = Path(base if os.path.isabs(base) else os.path.join(home, ".local", "share")) / "rnix"
    mark = hashlib.sha256(os.fsencode(mountpoint)).hexdigest()[:8]
    # A name may have 255 bytes, the hash included.
    last = os.fsdecode(os.fsencode(os.path.basename(mountpoint))[: limits.NAME_MAX - len(mark) - 1])
    return data / f"{last}-{mark}"
