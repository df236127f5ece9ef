"""A tree of plain files and FIFOs in the place of a mount, and the command run as a program over it.

Commands run in processes of their own: they fork, and a process that holds threads of other
tests should not.
"""

import json
import os
import pathlib
import subprocess
import sys
from typing import Any, NamedTuple

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS = 60  # for one command; a bound for what hangs, not a measure

# The command over a folder: all of a mount but its devices, whose answers are the texts of files, and but
# refusals. `proc/spawn` answers with the file `answer`, `sys/query` with what the file `rows` holds for the
# request, and a control file refuses with the text of its file with `.refusal` after the name.
FAKE = """
import json, pathlib, sys
from rnixfs_cli.errors import CommandError
from rnixfs_cli.main import run
from rnixfs_cli.session import Session
from rnixfs_cli.tree import Tree, raise_refusal

class FakeTree(Tree):
    def exchange(self, name, request, *, call):
        root = pathlib.Path(self.root)
        answer = self.rows(root, request) if name == "sys/query" else self.answer(root, name, request)
        raise_refusal(answer, f"/{name}", call)
        return answer.decode()

    def answer(self, root, name, request):
        (root / "request").write_text(json.dumps({"device": name, **request}))
        return (root / "answer").read_bytes()

    def rows(self, root, request):
        asked = root / "asked"
        with asked.open("a") as file:
            file.write(json.dumps(request) + "\\n")
        rows = root / "rows"
        return rows.read_bytes() if rows.exists() else b'{"error": {"code": "NOT_FOUND", "message": "no"}}'

    def command(self, name, text, *, call, pid=0):
        refusal = pathlib.Path(self.root, name + ".refusal")
        if refusal.exists():
            raise_refusal(refusal.read_bytes(), f"/{name}", call, pid)
        super().command(name, text, call=call, pid=pid)

status = run(sys.argv[1:], Session(tree_of=FakeTree))
(pathlib.Path(sys.argv[0]).parent / "modules").write_text(json.dumps(sorted(sys.modules)))
sys.exit(status)
"""


class Done(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


class Rnix:
    """The command, with a folder in the place of its mount."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.root = folder / "tree"
        self.work = folder / "work"
        self.work.mkdir()
        self.program = folder / "fake.py"
        self.program.write_text(FAKE)
        self.env = os.environ | {
            "RNIX_MOUNT": str(self.root),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "cli"), str(ROOT)]),
            "XDG_RUNTIME_DIR": str(folder),
            "PYTHONUNBUFFERED": "1",
        }

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start a command whose output can be read while it runs."""
        return subprocess.Popen(
            [sys.executable, str(self.program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.env,
            cwd=self.work,
        )

    def __call__(self, *arguments: str) -> Done:
        """Run a command to its end."""
        process = self.start(*arguments)
        try:
            out, err = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        return Done(process.returncode, out, err)

    def modules(self) -> list[str]:
        """What the last command had imported at its end."""
        found: list[str] = json.loads((self.program.parent / "modules").read_text())
        return found

    def lay(self, name: str, content: str) -> pathlib.Path:
        """Put a file into the tree."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path

    def fifo(self, name: str) -> int:
        """Put a stream into the tree; the descriptor is its writing end, and closing that ends the stream."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(path)
        # Open for both, so that it is there before its reader; the reader sees the end all the same.
        return os.open(path, os.O_RDWR)

    def process(self, pid: int, **status: Any) -> None:
        """Put a process into the tree."""
        whole = {
            "pid": pid,
            "ppid": 0,
            "uuid": f"0192f3a0-0000-7000-8000-{pid:012d}",
            "state": "running",
            "paused": False,
            "suspended": "",
            "intent": "look around",
            "agent": "default",
            "provider": "script",
            "model": "tour",
            "tokens_used": 12,
            "steps": 1,
            "elapsed_ms": 1500.0,
            "children": [],
            "exit": None,
        } | status
        self.lay(f"proc/{pid}/status", json.dumps(whole) + "\n")
        self.lay(f"proc/{pid}/ctl", "")
        with (self.root / "proc/processes").open("a") as processes:
            processes.write(json.dumps(whole) + "\n")

    def past(self, pid: int, **status: Any) -> str:
        """Put a process into the history; gives its uuid."""
        whole: dict[str, Any] = {
            "pid": pid,
            "ppid": 0,
            "uuid": f"0192f3a0-0000-7000-8000-{pid:012d}",
            "state": "dead",
            "suspended": "",
            "intent": "look around",
            "agent": "default",
            "provider": "script",
            "model": "tour",
            "tokens_used": 12,
            "steps": 1,
            "exit": {"code": 0, "reason": "done"},
        }
        whole |= status
        self.lay(f"proc/history/{whole['uuid']}/status", json.dumps(whole) + "\n")
        return str(whole["uuid"])

    def rows(self, *rows: dict[str, Any]) -> None:
        """Let `sys/query` give these rows, whatever it is asked."""
        self.lay("rows", "".join(json.dumps(row) + "\n" for row in rows))

    def asked(self) -> list[dict[str, Any]]:
        """What `sys/query` was asked."""
        return [json.loads(line) for line in (self.root / "asked").read_text().splitlines()]

    def ended(self, pid: int, code: int = 0, reason: str = "completed", result: str = "all is well") -> None:
        """Say how a process ended."""
        end = {"code": code, "reason": reason, "result": result, "tokens_used": 34, "elapsed_ms": 6200.0}
        self.lay(f"proc/{pid}/wait", json.dumps(end) + "\n")


@pytest.fixture
def rnix(tmp_path: pathlib.Path) -> Rnix:
    """The command over a tree that holds no process."""
    made = Rnix(tmp_path)
    made.lay("sys/version", "0.0.1\n")
    made.lay("proc/processes", "")
    return made
