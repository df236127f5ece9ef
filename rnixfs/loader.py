"""Finds agents, skills and providers in folders, and keeps what it has parsed.

A library has folders of its own (built in, then the user's) and, for a working folder, the `.rnix` folder
found in it or above it. A name found in a later folder hides the same name in earlier ones, also when what
is there cannot be read: falling back to another agent of that name would run something else than meant.

Files are opened by O_PATH first and taken only when they really lie below their folder, so a symbolic link
cannot lead to a file elsewhere. Reading is plain blocking I/O on small local files; a file that did not
change costs one stat. The caller sees to it that the working folder is not on the daemon's own mount.
"""

import dataclasses
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, from_oserror, invalid
from rnixfs.manifest import (
    AGENT_NAME,
    AgentManifest,
    SkillManifest,
    parse_agent,
    parse_skill,
    parse_skill_head,
)
from rnixfs.providers import (
    BUILT_IN,
    ProvidersFile,
    default_problem,
    merge,
    parse_providers,
    restrict_project,
)
from rnixfs.yamlread import ManifestError, nearest

import re  # isort: skip
