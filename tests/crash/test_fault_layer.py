"""The fault layer fails what it is told to, nothing else, and only as long as it is told to."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.crash.faults import Fault

SECONDS = 60.0

# Does what its input says, a line each: {"call": NAME, ...}; answers with a result, or the name of an errno.
CALLS = r"""
import errno, fcntl, json, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
calls = {
    "write": lambda size: os.write(fd, bytes(size)),
    "pwrite": lambda size: os.pwrite(fd, bytes(size), 0),
    "writev": lambda size: os.writev(fd, [bytes(size // 2), bytes(size - size // 2)]),
    "pwritev": lambda size: os.pwritev(fd, [bytes(size // 2), bytes(size - size // 2)], 0),
    "truncate": lambda size: os.ftruncate(fd, size),
    "allocate": lambda size: os.posix_fallocate(fd, 0, size),
    "fsync": lambda size: os.fsync(fd),
    "fdatasync": lambda size: os.fdatasync(fd),
}
for line in sys.stdin:
    name, size = json.loads(line)
    try:
        answer = calls[name](size)
    except OSError as error:
        answer = errno.errorcode[error.errno]
    print(json.dumps([answer, os.fstat(fd).st_size]), flush=True)
"""

# The same for a database: each line is a statement. Answers with rows, or the name of SQLite's error.
SQLITE = r"""
import json, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
for line in sys.stdin:
    try:
        answer = db.execute(json.loads(line)).fetchall()
    except sqlite3.Error as error:
        answer = error.sqlite_errorname
    print(json.dumps(answer), flush=True)
"""


class Talk:
    """A program that answers each line of its input with a line."""

    def __init__(self, text: str, path: pathlib.Path, env: dict[str, str], python: str) -> None:
        self.process = subprocess.Popen(
            [python, "-I", "-c", text, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **env},
            text=True,
        )

    def __call__(self, question: object) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        self.process.communicate(timeout=SECONDS)


@pytest.fixture
def fault(tmp_path: pathlib.Path) -> Fault:
    """Faults for what lies in a folder `state`, beside a folder `other`."""
    (tmp_path / "state").mkdir()
    (tmp_path / "other").mkdir()
    return Fault(tmp_path, f"{tmp_path}/state/")


def pythons() -> list[str]:
    """The Python of the tests, and the system's where it is another one and has SQLite."""
    found = [sys.executable]
    system = shutil.which("python3", path="/usr/bin:/bin")
    if system and os.path.realpath(system) != os.path.realpath(sys.executable):
        found.append(system)
    return [one for one in found if _has_sqlite(one)]


def _has_sqlite(python: str) -> bool:
    check = [python, "-I", "-c", "import sqlite3; sqlite3.Error.sqlite_errorname = ''"]
    return subprocess.run(check, capture_output=True, timeout=SECONDS, check=False).returncode == 0


@pytest.fixture
def plain(fault: Fault, tmp_path: pathlib.Path) -> Iterator[Talk]:
    """A plain program with a file that faults concern."""
    talk = Talk(CALLS, tmp_path / "state" / "file", fault.env, sys.executable)
    yield talk
    talk.close()


WRITES = ["write", "pwrite", "writev", "pwritev"]


@pytest.mark.parametrize("call", WRITES)
def test_a_full_disk_refuses_every_write(fault: Fault, plain: Talk, call: str) -> None:
    """Each way to write fails with ENOSPC while the disk is full, and works before and after."""
    assert plain([call, 10]) == [10, 10]
    fault.full()
    assert plain([call, 10]) == ["ENOSPC", 10]
    assert plain([call, 0])[0] == 0
    assert fault.failed_writes == 1
    fault.off()
    assert plain([call, 10])[0] == 10
    assert fault.written == 10


@pytest.mark.parametrize("call", WRITES)
def test_a_disk_takes_what_still_fits(fault: Fault, plain: Talk, call: str) -> None:
    """The write that fills the disk is cut short, the next one fails."""
    fault.full(after=25)
    assert [plain([call, 10])[0] for _ in range(4)] == [10, 10, 5, "ENOSPC"]
    assert fault.failed_writes == 2


def test_other_sizes_of_files(fault: Fault, plain: Talk) -> None:
    """On a full disk no room can be had in advance, and a file can shrink, but not grow."""
    assert plain(["allocate", 4096]) == [None, 4096]
    fault.full()
    assert plain(["allocate", 8192]) == ["ENOSPC", 4096]
    assert plain(["truncate", 5000]) == ["ENOSPC", 4096]
    assert plain(["truncate", 100]) == [None, 100]
    fault.off()
    assert plain(["truncate", 5000]) == [None, 5000]


@pytest.mark.parametrize("call", ["fsync", "fdatasync"])
def test_syncs_fail_as_often_as_told(fault: Fault, plain: Talk, call: str) -> None:
    """A number of syncs fails with EIO, or all until they need not any more."""
    assert plain([call, 0])[0] is None
    fault.fail_syncs(2)
    assert [plain([call, 0])[0] for _ in range(3)] == ["EIO", "EIO", None]
    fault.fail_syncs()
    assert [plain([call, 0])[0] for _ in range(3)] == ["EIO"] * 3
    assert plain(["write", 10])[0] == 10
    fault.off()
    assert plain([call, 0])[0] is None
    assert fault.failed_syncs == 5
    assert fault.seen == (1, 8)


def test_other_files_are_not_concerned(fault: Fault, tmp_path: pathlib.Path) -> None:
    """Faults keep to their files; the library is silent about all others."""
    fault.full()
    fault.fail_syncs()
    talk = Talk(CALLS, tmp_path / "other" / "file", fault.env, sys.executable)
    assert talk(["write", 10]) == [10, 10]
    assert talk(["fsync", 0])[0] is None
    talk.close()
    assert fault.seen == (0, 0)


def test_a_program_without_its_control_does_not_run(fault: Fault) -> None:
    """Faults that could never come end the program at once: it would prove nothing."""
    env = {**os.environ, **fault.env, "RNIX_FAULT_CONTROL": "/no/such/file"}
    done = subprocess.run(["true"], env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode < 0
    assert "fault: cannot map /no/such/file" in done.stderr


@pytest.mark.parametrize("python", pythons())
@pytest.mark.parametrize("synchronous", ["normal", "full"])
def test_sqlite_meets_a_full_disk(
    fault: Fault, tmp_path: pathlib.Path, python: str, synchronous: str
) -> None:
    """SQLite with a write-ahead log goes through the library: its commits fail on a full disk, at each
    number of bytes, nothing that it kept is lost, and it goes on afterwards."""
    sql = Talk(SQLITE, tmp_path / "state" / "log.db", fault.env, python)
    assert sql("PRAGMA journal_mode=wal") == [["wal"]]
    sql(f"PRAGMA synchronous={synchronous}")
    assert sql("CREATE TABLE t(a)") == []
    fault.off()
    assert sql("INSERT INTO t VALUES(zeroblob(6000))") == []
    kept = 1
    assert fault.written > 6000
    for after in range(0, 6000, 499):
        fault.full(after)
        assert sql("INSERT INTO t VALUES(zeroblob(6000))") == "SQLITE_FULL", after
        fault.off()
        assert sql("INSERT INTO t VALUES(zeroblob(6000))") == []
        kept += 1
        assert sql("SELECT count(*) FROM t") == [[kept]]
    assert sql("PRAGMA integrity_check") == [["ok"]]
    assert fault.failed_writes > 0
    sql.close()


@pytest.mark.parametrize("python", pythons())
def test_sqlite_meets_a_sync_that_fails(fault: Fault, tmp_path: pathlib.Path, python: str) -> None:
    """With `synchronous=full` a commit whose sync fails is refused; afterwards commits work."""
    sql = Talk(SQLITE, tmp_path / "state" / "log.db", fault.env, python)
    sql("PRAGMA journal_mode=wal")
    sql("PRAGMA synchronous=full")
    assert sql("CREATE TABLE t(a)") == []
    fault.fail_syncs(1)
    assert sql("INSERT INTO t VALUES(1)") == "SQLITE_IOERR_FSYNC"
    assert fault.failed_syncs == 1
    assert sql("INSERT INTO t VALUES(2)") == []
    assert sql("SELECT a FROM t WHERE a = 2") == [[2]]
    assert sql("PRAGMA integrity_check") == [["ok"]]
    sql.close()
