"""Where the logs of the benchmark lie: on a disk, for in memory it costs nothing to keep anything."""

import os
import pathlib
import tempfile

_MEMORY = ("tmpfs", "ramfs")


def kind(folder: pathlib.Path) -> str:
    """The host's name for the file system that a folder is on, such as `ext4`."""
    path, found = os.path.realpath(folder), ("", "?")
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        point = before.split(" ")[4]
        # Of several on the same folder, the last is what one sees.
        if os.path.commonpath([path, point]) == point and len(point) >= len(found[0]):
            found = (point, after.split(" ")[0])
    return found[1]


def lasting() -> pathlib.Path:
    """The folder for temporary files; where that is in memory, the one for those that outlive a boot."""
    usual, other = pathlib.Path(tempfile.gettempdir()), pathlib.Path("/var/tmp")
    in_memory = kind(usual) in _MEMORY
    return other if in_memory and kind(other) not in _MEMORY and os.access(other, os.W_OK) else usual
