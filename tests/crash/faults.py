"""Disks that are full and syncs that fail, on demand: the Python side of `fault.c`.

The library is compiled once for each run of the tests. It works on programs that are started with the
environment of a `Fault`, and on what these start.
"""

import atexit
import ctypes
import functools
import mmap
import os
import pathlib
import shutil
import subprocess
import tempfile

SOURCE = pathlib.Path(__file__).with_name("fault.c")
COMPILE = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC")
_AMPLE = 1 << 60  # bytes, more than anybody writes


class Control(ctypes.Structure):
    """The numbers that the library reads and counts; `struct control` in `fault.c` explains them."""

    _fields_ = (
        ("room", ctypes.c_int64),
        ("syncs", ctypes.c_int64),
        ("failed_writes", ctypes.c_int64),
        ("failed_syncs", ctypes.c_int64),
        ("seen_writes", ctypes.c_int64),
        ("seen_syncs", ctypes.c_int64),
    )


class Fault:
    """One set of faults for the files of some programs; none at first.

    Args:
        folder: where its control file is made.
        path: the faults concern files whose absolute path contains this text.
    """

    def __init__(self, folder: pathlib.Path, path: str) -> None:
        handle, file = tempfile.mkstemp(prefix="fault-control-", dir=folder)
        try:
            os.ftruncate(handle, ctypes.sizeof(Control))
        finally:
            os.close(handle)
        self._take(file, path)
        self.off()

    def _take(self, file: str, path: str) -> None:
        self._file, self._path = file, path
        with open(file, "r+b") as control:
            self._control = Control.from_buffer(mmap.mmap(control.fileno(), ctypes.sizeof(Control)))

    @classmethod
    def of_environment(cls) -> "Fault | None":
        """The faults that this process was started with, None if there are none."""
        if "RNIX_FAULT_CONTROL" not in os.environ:
            return None
        made = cls.__new__(cls)
        made._take(os.environ["RNIX_FAULT_CONTROL"], os.environ["RNIX_FAULT_PATH"])
        return made

    @property
    def env(self) -> dict[str, str]:
        """What a program needs in its environment."""
        others = os.environ.get("LD_PRELOAD", "")
        return {
            "LD_PRELOAD": f"{library()}:{others}" if others else library(),
            "RNIX_FAULT_PATH": self._path,
            "RNIX_FAULT_CONTROL": self._file,
        }

    # --- what is to fail ---

    def full(self, after: int = 0) -> None:
        """Let the disk be full (ENOSPC).

        Args:
            after: bytes that still fit.
        """
        self._control.room = after

    def fail_syncs(self, times: int = -1) -> None:
        """Let fsync and fdatasync fail (EIO).

        Args:
            times: how many of them; negative for all that come.
        """
        self._control.syncs = times

    def off(self) -> None:
        """Let everything succeed again, and begin to count what is written."""
        self._control.syncs = 0
        self._control.room = _AMPLE

    # --- what happened ---

    @property
    def written(self) -> int:
        """Bytes written since `off`, while nothing fails."""
        return _AMPLE - int(self._control.room)

    @property
    def failed_writes(self) -> int:
        """Writes that failed or were cut short, from the beginning."""
        return int(self._control.failed_writes)

    @property
    def failed_syncs(self) -> int:
        """Syncs that failed, from the beginning."""
        return int(self._control.failed_syncs)

    @property
    def seen(self) -> tuple[int, int]:
        """Writes and syncs that came by, from the beginning: none where the library is not in their way."""
        return int(self._control.seen_writes), int(self._control.seen_syncs)


@functools.cache
def library() -> str:
    """The path of the compiled library."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "no C compiler in PATH; install gcc (building pyfuse3 needs it too)"
    folder = pathlib.Path(tempfile.mkdtemp(prefix="rnixfs-fault-"))
    atexit.register(_remove, folder, os.getpid())
    made = folder / "fault.so"
    argv = [compiler, *COMPILE, "-o", str(made), str(SOURCE)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return str(made)


def _remove(folder: pathlib.Path, owner: int) -> None:
    # What was forked from the tests meanwhile leaves it alone.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
