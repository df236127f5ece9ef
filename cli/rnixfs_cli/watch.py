"""Watching a process from the terminal: its log as it grows, its end, and Ctrl-C for it."""

import contextlib
import itertools
import os
import signal
import sys
from types import FrameType
from typing import Any

from rnixfs_cli.errors import CommandError
from rnixfs_cli.loglines import Entry, live, painted, parse
from rnixfs_cli.screen import Screen, cells, exit_line, model_label
from rnixfs_cli.session import Session
from rnixfs_cli.tree import Tree, lines
from rnixfs_cli.wait import end_of

INTERRUPTED = 130  # 128 + SIGINT, as shells report it
RULE = 60  # columns of the line above and below a result
# What a first and a second Ctrl-C write to the process's ctl.
_INTERRUPTS = {1: "int", 2: "kill"}


def watch(
    tree: Tree,
    pid: int,
    session: Session,
    *,
    folder: str = "",
    quiet: bool = False,
    word: str = "spawning",
    skip: int = 0,
) -> int:
    """Show what a process does until it ends.

    Args:
        tree: the tree.
        pid: the process.
        session: where to show it.
        folder: the process's folder; that in `proc/` where none is given.
        quiet: show the result alone.
        word: what happens to it, for the first line.
        skip: lines of its log that are not shown.

    Returns:
        Its exit code, or that of an interrupted program after Ctrl-C.

    Raises:
        CommandError: it is not there, or the daemon ended first.
    """
    folder = folder or f"proc/{pid}"
    # Opened at once: the file answers also when the process's folder has gone.
    ending = tree.open(f"{folder}/wait", call="Wait", pid=pid)
    status = tree.status(folder, pid=pid)
    view = View(pid, session.screen)
    shown = not (quiet or session.as_json)
    with Interrupts(tree, pid, Screen(sys.stderr)) as interrupts:
        if shown:
            view.begin(model_label(status), word)
            follow(tree, folder, view, skip)
        end = end_of(tree, ending, pid)
    with contextlib.suppress(CommandError):
        # Which model answers is known for certain only after its first answer.
        status = tree.status(folder, pid=pid)
    if session.as_json:
        about = {key: status.get(key) for key in ("uuid", "agent", "provider", "model")}
        session.json({"pid": pid, **about, **end})
    elif quiet:
        session.screen.line(session.screen.safe(str(end.get("result", "")).rstrip("\n")))
    else:
        view.end(model_label(status), end)
    return INTERRUPTED if interrupts.count else int(end["code"])


def follow(tree: Tree, folder: str, view: "View", skip: int = 0) -> None:
    """Show the log of a process until it ends.

    Args:
        tree: the tree.
        folder: the process's folder.
        view: where to show it.
        skip: how many of its first lines are left out.
    """
    name = f"{folder}/.live/log"
    descriptor = tree.open(name, call="Log", pid=view.pid)
    try:
        for line in itertools.islice(lines(descriptor), skip, None):
            view.entry(parse(line))
    except BrokenPipeError:
        # It is our own output that nobody reads any more; the process goes on without its audience.
        raise
    except OSError as error:
        raise tree.failure(error, name, "Log", view.pid) from None
    finally:
        os.close(descriptor)


class View:
    """What a person sees of a running process: its log, of each tool's output the first line.

    Args:
        pid: the process.
        screen: where to print.
    """

    def __init__(self, pid: int, screen: Screen) -> None:
        self.pid = pid
        self.screen = screen
        self._last = Entry(0.0, "", "")

    def begin(self, label: str, word: str = "spawning") -> None:
        """Say that the process starts, or goes on.

        Args:
            label: its provider and model.
            word: what happens to it.
        """
        self.screen.line(f"[kernel] {word} PID {self.pid} ({self.screen.safe(label)})...")

    def entry(self, entry: Entry) -> None:
        """Show an entry of its log."""
        if not entry.goes_on:
            self._last = entry
            self.screen.line(live(entry, self.pid, self.screen))
        elif self._last.category != "output":
            self.screen.line(painted(self.screen.safe(entry.text), self._last, self.screen))

    def end(self, label: str, end: dict[str, Any]) -> None:
        """Show the result and how it ended.

        Args:
            label: provider and model.
            end: what its `wait` file gave.
        """
        result = str(end.get("result") or "")
        if result.strip():
            self._result(result)
        style = "red" if end.get("code") else "green"
        self.screen.line(self.screen.paint(style, self.screen.safe(exit_line(self.pid, label, end))))

    def _result(self, result: str) -> None:
        title = "══ Result "
        self.screen.line(self.screen.paint("bold", title + "═" * (RULE - cells(title))))
        self.screen.line(self.screen.safe(result.rstrip("\n")))
        self.screen.line(self.screen.paint("bold", "═" * RULE))


class Interrupts:
    """Ctrl-C for the process instead of for this command: the first interrupts it, the second kills it.

    A third one ends this command alone, should the process not end.

    Args:
        tree: the tree.
        pid: the process.
        notes: where to say what was sent.
    """

    def __init__(self, tree: Tree, pid: int, notes: Screen) -> None:
        self.count = 0
        self._tree = tree
        self._pid = pid
        self._notes = notes
        self._before: Any = None

    def __enter__(self) -> "Interrupts":
        # A shell without job control starts background commands with SIGINT ignored; that stays so.
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            self._before = signal.signal(signal.SIGINT, self._interrupted)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _interrupted(self, _number: int, _frame: FrameType | None) -> None:
        # Raising nothing here lets the read that was interrupted go on, so that no line is lost.
        self.count += 1
        command = _INTERRUPTS.get(self.count)
        if command is None:
            raise KeyboardInterrupt
        try:
            self._tree.write(f"proc/{self._pid}/ctl", command, call="Kill", pid=self._pid)
            self._notes.line(f"[kernel] PID {self._pid}: signal sent (SIG{command.upper()})")
        except CommandError as failure:
            self._notes.line(str(failure))
