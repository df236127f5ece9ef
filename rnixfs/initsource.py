"""Finds the `init.yaml` files that count: the user's own, and that of a trusted project."""

import os

from rnixfs import limits
from rnixfs.configfile import read_text
from rnixfs.errors import from_oserror
from rnixfs.initfile import InitPlan, merge, parse_init
from rnixfs.loader import Origin, Shelf, Source
from rnixfs.yamlread import ManifestError

FILE = "init.yaml"


def init_plan(shelf: Shelf) -> InitPlan:
    """What all files together say.

    Args:
        shelf: the configuration of the daemon's folder.

    Raises:
        SyscallError: INVALID with the file, the line and what is wrong there; why a file cannot be read.
    """
    sources = [source for source in shelf.sources if source.origin is not Origin.BUILT_IN]
    plans = [_of(source, shelf.trusted) for source in sources]
    return merge([InitPlan(warnings=shelf.warnings), *plans])


def _of(source: Source, trusted: bool) -> InitPlan:
    path = os.path.join(source.folder, FILE)
    if source.origin is Origin.PROJECT and not trusted:
        return InitPlan(warnings=(_untrusted(path),) if os.path.lexists(path) else ())
    try:
        return parse_init(read_text(source.folder, path, limits.CONFIG_FILE_MAX), path)
    except (FileNotFoundError, NotADirectoryError):
        return InitPlan()
    except ManifestError as error:
        raise error.as_syscall_error() from None
    except OSError as error:
        reason = f"{path}: {error.strerror}; make it a file that the daemon may read"
        raise from_oserror(error, reason) from None


def _untrusted(path: str) -> str:
    folder = os.path.dirname(os.path.dirname(path))
    return f"{path} is not used because it would start agents; to allow it, list {folder} in RNIX_TRUSTED"
