"""Following the system calls of processes while they run.

The journal `trace.jsonl` is complete, so lines come from there; the stream `trace` only says when to look,
and when the process has ended. So nothing is lost, however slow the reader is, and a child that is found late
is shown from its first call.
"""

import contextlib
import json
import os
import re
import select
import time
from collections.abc import Callable
from typing import Any

from rnixfs_cli import attention
from rnixfs_cli.errors import CommandError
from rnixfs_cli.tree import CHUNK, ENDED, Tree

Show = Callable[[int, dict[str, Any]], None]
"""Takes the pid and the decoded record of a system call."""
_CHILD = re.compile(r"PID\((\d+)\)")  # as the kernel writes the result of Spawn
_IDLE_SECONDS = 0.05  # pause after a wake-up that brought nothing, so that a false one cannot spin


class Journal:
    """The whole lines of a growing file.

    Args:
        descriptor: the open file.
        offset: where to begin, in bytes.
    """

    def __init__(self, descriptor: int, offset: int = 0) -> None:
        self.descriptor = descriptor
        self._offset = offset
        self._rest = b""

    def lines(self) -> list[bytes]:
        """The lines that came since the last call."""
        found: list[bytes] = []
        while data := os.pread(self.descriptor, CHUNK, self._offset):
            self._offset += len(data)
            *whole, self._rest = (self._rest + data).split(b"\n")
            found += whole
        return found


class Source:
    """One stream that wakes the tracer.

    Args:
        descriptor: the open stream, not blocking.
        take: what to do with the lines that came.
        end: what to do at its end.
    """

    def __init__(self, descriptor: int, take: Callable[[list[bytes]], None], end: Callable[[], None]) -> None:
        self.descriptor = descriptor
        self.end = end
        self._take = take
        self._rest = b""

    def pull(self) -> bool | None:
        """Read what is there: True for something, False for nothing, None at the end."""
        try:
            data = os.read(self.descriptor, CHUNK)
        except BlockingIOError:
            return False
        if not data:
            return None
        *whole, self._rest = (self._rest + data).split(b"\n")
        self._take(whole)
        return True


def spawned(record: dict[str, Any]) -> int:
    """The pid of the child that a traced call made; 0 where it made none."""
    found = _CHILD.fullmatch(str(record.get("result", ""))) if record.get("syscall") == "Spawn" else None
    return int(found[1]) if found else 0


class Tracer:
    """Shows the system calls of processes until they have ended.

    Args:
        tree: the tree.
        show: takes each record.
        children: follow those that the processes spawn as well.
    """

    def __init__(self, tree: Tree, show: Show, children: bool = False) -> None:
        self.tree = tree
        self.show = show
        self.traced: set[int] = set()
        self._seen: set[int] = set()
        self._sources: dict[int, Source] = {}
        self._poller = select.poll()
        self._children = children
        self._watched = self._stream("proc/events") if children else -1
        if children:
            self._add(self._watched, self._events, lambda: None)

    def _stream(self, name: str, pid: int = 0) -> int:
        return self.tree.open(name, os.O_RDONLY | os.O_NONBLOCK, call="Trace", pid=pid)

    def _add(self, descriptor: int, take: Callable[[list[bytes]], None], end: Callable[[], None]) -> None:
        self._sources[descriptor] = Source(descriptor, take, end)
        self._poller.register(descriptor, select.POLLIN)

    def past(self, folder: str, pid: int) -> None:
        """Show what is in the journal of a process that has ended, then those of its children.

        A child that still runs is followed.

        Args:
            folder: the process's folder.
            pid: the process.
        """
        self._seen.add(pid)
        journal = Journal(self.tree.open(f"{folder}/trace.jsonl", call="Trace", pid=pid))
        records = [json.loads(line) for line in journal.lines()]
        os.close(journal.descriptor)
        for record in records:
            self.show(pid, record)
        for child in filter(None, map(spawned, records)) if self._children else ():
            # Of a child that is no longer in the history nothing can be shown.
            with contextlib.suppress(CommandError):
                self._past_or_running(child)

    def _past_or_running(self, pid: int) -> None:
        folder, _ = self.tree.find(str(pid), "Trace")
        if self.tree.status(folder, call="Trace", pid=pid)["state"] in ENDED:
            self.past(folder, pid)
        else:
            self.attach(pid, from_start=True)

    def attach(self, pid: int, from_start: bool) -> None:
        """Follow a running process, and its children where asked to.

        Args:
            pid: the process.
            from_start: show what it did before, too.
        """
        if pid in self._seen:
            return
        # Before anything can fail: the children of one that has gone already are to be found all the same.
        self._seen.add(pid)
        stream = self._stream(f"proc/{pid}/trace", pid)
        descriptor = self.tree.open(f"proc/{pid}/trace.jsonl", call="Trace", pid=pid)
        journal = Journal(descriptor, 0 if from_start else os.fstat(descriptor).st_size)
        self.traced.add(pid)
        if from_start:
            self._look(pid, journal)
        self._add(stream, lambda _lines: self._look(pid, journal), lambda: self._ended(pid, journal))
        if self._children:
            self._attach_all(self.tree.status(f"proc/{pid}", pid=pid).get("children", []), from_start)

    def _attach_all(self, pids: list[int], from_start: bool) -> None:
        for pid in pids:
            # One that has gone meanwhile is no reason to stop tracing the others.
            with contextlib.suppress(CommandError):
                self.attach(pid, from_start)

    def _look(self, pid: int, journal: Journal) -> None:
        for line in journal.lines():
            self.show(pid, json.loads(line))

    def _ended(self, pid: int, journal: Journal) -> None:
        self._look(pid, journal)
        os.close(journal.descriptor)
        self.traced.discard(pid)

    def _events(self, lines: list[bytes]) -> None:
        for line in lines:
            event = json.loads(line)
            if event.get("ppid") in self._seen and isinstance(event.get("pid"), int):
                self._attach_all([event["pid"]], True)

    def run(self) -> None:
        """Go on until every traced process has ended."""
        while self.traced or self._late_children():
            ready = attention.wait(self._poller)
            progress = [self._pull(descriptor) for descriptor in ready]
            if ready and not any(progress):
                time.sleep(_IDLE_SECONDS)

    def _late_children(self) -> bool:
        """Look for children that a process spawned just before it ended."""
        while self._watched in self._sources and self._pull(self._watched):
            pass
        return bool(self.traced)

    def _pull(self, descriptor: int) -> bool:
        source = self._sources[descriptor]
        progress = source.pull()
        if progress is None:
            self._poller.unregister(descriptor)
            del self._sources[descriptor]
            os.close(descriptor)
            source.end()
        return progress is not False

    def close(self) -> None:
        """Let go of every stream."""
        for descriptor in self._sources:
            os.close(descriptor)
        self._sources.clear()
