"""Following the system calls of processes while they run.

The journal `trace.jsonl` is complete, so lines come from there; the stream `trace` only says when to look,
and when the process has ended. So nothing is lost, however slow the reader is, and a child that is found late
is shown from its first call. A full journal counts what it does not keep; that is shown at the end.
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


_DROPPED = b'{"dropped":'
_COUNT_MAX = 64  # more bytes than the line has that counts what was not kept


class Journal:
    """The whole lines of a growing file.

    When there is no more room in a journal, a line after the last one counts the records that are not kept.
    That line is written anew all the time, so it is no part of the lines.

    Args:
        descriptor: the open file.
        from_start: whether to begin with the first line, and not with what comes from now on.
    """

    def __init__(self, descriptor: int, from_start: bool = True) -> None:
        self.descriptor = descriptor
        self._offset = 0
        self._rest = b""
        self._dropped = 0
        self._dropped_before = 0
        if not from_start:
            self._go_to_end()

    def _go_to_end(self) -> None:
        self._offset = os.fstat(self.descriptor).st_size
        start = max(self._offset - _COUNT_MAX, 0)
        before, newline, last = self._read(start, self._offset).removesuffix(b"\n").rpartition(b"\n")
        if last.startswith(_DROPPED) and (newline or start == 0):
            self._dropped = self._dropped_before = json.loads(last)["dropped"]
            self._offset = start + len(before) + len(newline)

    def _read(self, start: int, end: int) -> bytes:
        data = b""
        while more := os.pread(self.descriptor, end - start - len(data), start + len(data)):
            data += more
        return data

    @property
    def dropped(self) -> int:
        """How many records were not kept since the beginning, as of the last look."""
        return self._dropped - self._dropped_before

    def lines(self) -> list[bytes]:
        """The lines that came since the last call."""
        found: list[bytes] = []
        while data := os.pread(self.descriptor, CHUNK, self._offset):
            self._offset += len(data)
            *whole, self._rest = (self._rest + data).split(b"\n")
            found += whole
            if found and found[-1].startswith(_DROPPED):
                count = found.pop()
                self._dropped = json.loads(count)["dropped"]
                self._offset -= len(count) + 1 + len(self._rest)
                self._rest = b""
                break
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
        self._journals: dict[int, Journal] = {}
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
        self._journals[pid] = Journal(self.tree.open(f"{folder}/trace.jsonl", call="Trace", pid=pid))
        records = [json.loads(line) for line in self._journals[pid].lines()]
        for record in records:
            self.show(pid, record)
        self._let_go(pid)
        for child in filter(None, map(spawned, records)) if self._children else ():
            self._follow(child)

    def _follow(self, pid: int) -> None:
        """Show all that a child did, and follow it if it still runs."""
        if pid in self._seen:
            return
        # Of one that is no longer in the history nothing can be shown; its children are found all the same.
        with contextlib.suppress(CommandError):
            folder, _ = self.tree.find(str(pid), "Trace")
            if self.tree.status(folder, call="Trace", pid=pid)["state"] in ENDED:
                self.past(folder, pid)
            else:
                self.attach(pid, from_start=True)
        self._seen.add(pid)

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
        self._journals[pid] = Journal(descriptor, from_start)
        self.traced.add(pid)
        if from_start:
            self._look(pid)
        self._add(stream, lambda _lines: self._look(pid), lambda: self._ended(pid))
        for child in self._children_of(pid):
            if from_start:
                self._follow(child)
            else:
                # One that has gone meanwhile is no reason to stop tracing the others.
                with contextlib.suppress(CommandError):
                    self.attach(child, from_start)

    def _children_of(self, pid: int) -> list[int]:
        if not self._children:
            return []
        with contextlib.suppress(CommandError):
            return list(self.tree.status(f"proc/{pid}", pid=pid).get("children", []))
        return []

    def _look(self, pid: int) -> None:
        for line in self._journals[pid].lines():
            record = json.loads(line)
            self.show(pid, record)
            # Events may be lost to a reader that lags, the journal is complete.
            if self._children and (child := spawned(record)):
                self._follow(child)

    def _ended(self, pid: int) -> None:
        self._look(pid)
        self._let_go(pid)
        self.traced.discard(pid)

    def _let_go(self, pid: int) -> None:
        journal = self._journals.pop(pid)
        os.close(journal.descriptor)
        if journal.dropped:
            self.show(pid, {"dropped": journal.dropped})

    def _events(self, lines: list[bytes]) -> None:
        for line in lines:
            event = json.loads(line)
            if event.get("ppid") in self._seen and isinstance(event.get("pid"), int):
                self._follow(event["pid"])
            elif "dropped" in event:
                for child in [child for pid in self.traced for child in self._children_of(pid)]:
                    self._follow(child)

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
        """Let go of every stream and journal."""
        for descriptor in self._sources:
            os.close(descriptor)
        self._sources.clear()
        for pid in list(self._journals):
            self._let_go(pid)
