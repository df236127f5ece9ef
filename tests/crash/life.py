"""One life of a daemon: forked from a process that has imported it, killed by itself at a planned event.

The harness is told of every event that the store has acknowledged through memory that both share, so that
it knows of each before the daemon can die.
"""

import contextlib
import ctypes
import dataclasses
import hashlib
import mmap
import os
import pathlib
import signal
import struct
import sys
import traceback
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

import msgspec

from rnixfs import boot
from rnixfs.errors import SyscallError
from rnixfs.state.store import Record
from tests.crash import hooks
from tests.crash.faults import Fault
from tests.crash.points import AFTER, BEFORE, FULL, Kill, Trouble

ACKS_MAX = 8192  # events of one life that can be told of
_PR_SET_PDEATHSIG = 1
_FAULT_EVENTS = 12  # events after which a fault ends that refused none


class Ack(NamedTuple):
    """An event that the store acknowledged.

    Args:
        seq: its number in the log.
        event: what happened.
        digest: of all of it.
        vital: whether the store may have kept it in memory only, where the disk failed.
    """

    seq: int
    event: str
    digest: bytes
    vital: bool


def digest(record: Record) -> bytes:
    """What tells a record from one that differs in anything."""
    fields = (record.seq, record.ts, record.event, record.pid, record.data)
    return hashlib.blake2b(msgspec.json.encode(fields, order="sorted"), digest_size=16).digest()


class Acks:
    """Acknowledged events, in memory that a forked daemon shares."""

    _HEAD = struct.Struct("<q")
    _ROW = struct.Struct("<q24s16s?")

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, self._HEAD.size + ACKS_MAX * self._ROW.size)

    def __len__(self) -> int:
        count: int = self._HEAD.unpack_from(self._memory)[0]
        return count

    def __iter__(self) -> Iterator[Ack]:
        for row in range(len(self)):
            place = self._HEAD.size + row * self._ROW.size
            seq, event, digest, vital = self._ROW.unpack_from(self._memory, place)
            yield Ack(seq, event.rstrip(b"\0").decode(), digest, vital)

    def add(self, ack: Ack) -> None:
        """Add one; it counts once it is whole."""
        count = len(self)
        place = self._HEAD.size + count * self._ROW.size
        self._ROW.pack_into(self._memory, place, ack.seq, ack.event.encode(), ack.digest, ack.vital)
        self._HEAD.pack_into(self._memory, 0, count + 1)

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()


@dataclasses.dataclass
class Watch:
    """Stands before the daemon's store: tells of what it kept, and ends the daemon at the planned event.

    Args:
        acks: where events are told of.
        kill: the planned end, None for none.
        trouble: the planned fault, None for none.
        fault: makes the disk fail.
    """

    acks: Acks
    kill: Kill | None = None
    trouble: Trouble | None = None
    fault: Fault | None = None
    number: int = 0
    refused: int = 0
    depth: int = 0
    waiting: list[Ack] = dataclasses.field(default_factory=list)

    def install(self, store: Any) -> None:
        """Take the place of a class's methods."""
        append, batch = store.append_event, getattr(store, "batch", None)
        watch = self

        def append_event(
            self: Any, event: str, pid: int, data: dict[str, Any], *more: Any, **named: Any
        ) -> Any:
            watch.number += 1
            mine = watch.number
            watch.die_at(Kill(mine, BEFORE))
            watch.stumble(mine)
            vital = any(str(getattr(one, "value", "")) == "vital" for one in (*more, *named.values()))
            try:
                record = append(self, event, pid, data, *more, **named)
            except SyscallError:
                watch.refused += 1
                raise
            watch.heard(Ack(record.seq, event, digest(record), vital))
            watch.die_at(Kill(mine, AFTER))
            return record

        @contextlib.contextmanager
        def watched_batch(self: Any) -> Iterator[Any]:
            assert batch is not None
            with watch.together(), batch(self) as entered:
                yield entered

        store.append_event = append_event
        if batch is not None:
            store.batch = watched_batch

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """While events are appended that are acknowledged only together."""
        self.depth += 1
        try:
            yield
        except BaseException as error:
            # What is left of it has got other numbers.
            self.waiting.clear()
            self.refused += isinstance(error, SyscallError)
            raise
        finally:
            self.depth -= 1
        if not self.depth:
            self.tell()

    def heard(self, ack: Ack) -> None:
        """Note an event that the store took."""
        self.waiting.append(ack)
        if not self.depth:
            self.tell()

    def tell(self) -> None:
        """Tell of all events that are acknowledged now."""
        for ack in self.waiting:
            self.acks.add(ack)
        self.waiting.clear()

    def die_at(self, place: Kill) -> None:
        """Die if this is the planned place."""
        if self.kill == place:
            os.kill(os.getpid(), signal.SIGKILL)

    def stumble(self, number: int) -> None:
        """Let the disk fail, or be well again, as planned for this event."""
        if self.trouble is None or self.fault is None:
            return
        if number == self.trouble.number:
            if self.trouble.kind == FULL:
                self.fault.full()
            else:
                self.fault.fail_syncs()
        late = number > self.trouble.number + _FAULT_EVENTS
        if self.refused >= self.trouble.refusals or late:
            self.fault.off()


@dataclasses.dataclass(frozen=True)
class Place:
    """The folders of one system.

    Args:
        folder: holds most of them.
        state: where the daemon keeps its state.
    """

    folder: pathlib.Path
    state: pathlib.Path

    @property
    def mount(self) -> pathlib.Path:
        """Where it is mounted."""
        return self.folder / "m"

    @property
    def host(self) -> pathlib.Path:
        """Where agents work."""
        return self.folder / "host"

    @property
    def log(self) -> pathlib.Path:
        """What the daemon says."""
        return self.folder / "daemon.log"

    @property
    def effects(self) -> pathlib.Path:
        """The file that holds a line for each effect."""
        return self.host / "effects"

    def env(self) -> dict[str, str]:
        """The daemon's environment."""
        home = self.folder / "home"
        kept = {name: os.environ[name] for name in ("PATH", "VIRTUAL_ENV") if name in os.environ}
        return {
            **kept,
            "LC_ALL": "C.UTF-8",
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / ".config"),
            "XDG_DATA_HOME": str(home / "data"),
            "XDG_RUNTIME_DIR": str(home / "run"),
        }

    def make(self, scenario: pathlib.Path, settings: str) -> None:
        """Make the folders, and let agents be played by a scenario.

        Args:
            scenario: the file that the model plays.
            settings: the text of `config.yaml`.
        """
        for folder in (self.host, self.state, self.folder / "home" / "run"):
            folder.mkdir(parents=True, mode=0o700)
        config = self.folder / "home" / ".config" / "rnix"
        config.mkdir(parents=True)
        provider = f"{{name: crash, driver: script, scenario: {scenario}}}"
        text = f"version: 1\ndefault_provider: crash\nproviders:\n  - {provider}\n"
        (config / "providers.yaml").write_text(text)
        (config / "config.yaml").write_text(settings)
        (self.host / "input.txt").write_text("input for all\n")
        self.effects.touch()


def end_with_parent() -> None:
    """Let the host kill this process when the one that forked it ends, however that ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def fork_daemon(place: Place, watch: Watch) -> tuple[int, int]:
    """Start a daemon; gives its pid, and a descriptor on which it says when it is ready."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _be_daemon(place, watch, writing)
    os.close(writing)
    return pid, reading


def _be_daemon(place: Place, watch: Watch, ready: int) -> NoReturn:
    status = 70
    try:
        end_with_parent()
        os.setsid()
        log = os.open(place.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        for number, source in ((0, os.open("/dev/null", os.O_RDONLY)), (1, log), (2, log)):
            os.dup2(source, number)
        os.environ.clear()
        os.environ.update(place.env())
        os.chdir(place.host)
        watch.install(hooks.STORE)
        status = boot.main(hooks.daemon_options(place.mount, place.host, place.state, ready))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        # Not the way out of the tests that it was forked from.
        os._exit(status)
