"""One system from its first life to its last: daemons that die as planned, and a person for each of them."""

import contextlib
import dataclasses
import json
import os
import pathlib
import select
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

from tests.crash import person
from tests.crash.faults import Fault
from tests.crash.life import Ack, Acks, Place, Watch, fork_daemon
from tests.crash.points import Point

LIVES_MAX = 4
LIFE_SECONDS = 30.0  # in which something must be heard; a bound for what hangs, not a measure


class HarnessError(Exception):
    """A law that did not hold at a point, or a part of the harness that hangs."""


@dataclasses.dataclass
class System:
    """One system from its first life to its last.

    Args:
        place: its folders.
        point: what happens to it.
        fault: makes its disk fail; None where that is not planned.
    """

    place: Place
    point: Point
    fault: Fault | None = None
    told: dict[str, Any] = dataclasses.field(default_factory=dict)
    acks: list[Ack] = dataclasses.field(default_factory=list)
    lives: list[int] = dataclasses.field(default_factory=list)
    daemon: int = 0
    person: int = 0

    def run(self) -> None:
        """Live as often as it takes; how many events each life acknowledged is in `lives`.

        Raises:
            HarnessError: it does not come to an end.
        """
        try:
            while not self._live():
                if len(self.lives) >= LIVES_MAX:
                    raise HarnessError(f"no end after {LIVES_MAX} lives: {self.told}")
                if self.point.unmount:
                    unmount(self.place.mount)
        finally:
            self._clear()

    def _live(self) -> bool:
        """One life; whether it came to its end."""
        self._calm()
        self.told.pop("lost", None)
        number = len(self.lives)
        kills = self.point.kills
        acks = Acks()
        trouble = self.point.trouble if number == 0 else None
        watch = Watch(acks, kills[number] if number < len(kills) else None, trouble, self.fault)
        try:
            return self._through(watch)
        finally:
            self.lives.append(len(acks))
            self.acks += acks
            acks.close()

    def _through(self, watch: Watch) -> bool:
        self.daemon, ready = fork_daemon(self.place, watch)
        with descriptor(os.pidfd_open(self.daemon)) as death, descriptor(ready):
            line = next((one for one in lines(ready, death) if not one.startswith("notice: ")), "")
            if line != "ready":
                return self._died(watch, death, f"said {line!r} instead of being ready")
            self.person, voice = person.fork_person(
                self.place.mount, self.place.effects, self.told, self.fault
            )
            with descriptor(voice):
                self._listen(lines(voice, death, idle=self._calm))
            if "ends" not in self.told:
                return self._died(watch, death, "is gone")
            self._stop(death)
        return True

    def _calm(self) -> None:
        """Let the disk work again."""
        if self.fault is not None:
            self.fault.off()

    def _listen(self, lines: Iterator[str]) -> None:
        for line in lines:
            said = json.loads(line)
            if "failed" in said:
                raise HarnessError(f"the person failed: {said['failed']}")
            self.told |= said
            if "ends" in said:
                return

    def _died(self, watch: Watch, death: int, what: str) -> bool:
        """Check that the daemon died as planned, and let the person end."""
        # The mount may be gone some moments before the daemon is.
        if not select.select([death], [], [], LIFE_SECONDS if watch.kill else 1.0)[0]:
            raise HarnessError(f"the person is lost: {self.told.get('lost')}; {self._log()}")
        status = self._wait_daemon()
        if watch.kill is None or status != -signal.SIGKILL:
            raise HarnessError(f"the daemon {what} and ended with {status}; {self._log()}")
        self._end_person()
        return False

    def _stop(self, death: int) -> None:
        self._end_person()
        os.kill(self.daemon, signal.SIGTERM)
        if not select.select([death], [], [], LIFE_SECONDS)[0]:
            raise HarnessError(f"the daemon does not leave; {self._log()}")
        status = self._wait_daemon()
        if status not in (0, -signal.SIGKILL):
            raise HarnessError(f"the daemon left with {status}; {self._log()}")

    def _wait_daemon(self) -> int:
        status = os.waitstatus_to_exitcode(os.waitpid(self.daemon, 0)[1])
        self.daemon = 0
        return status

    def _end_person(self) -> None:
        if self.person:
            os.kill(self.person, signal.SIGKILL)
            os.waitpid(self.person, 0)
            self.person = 0

    def _log(self) -> str:
        text = self.place.log.read_text("utf-8", "replace") if self.place.log.exists() else ""
        return f"the daemon's log:\n{text[-4000:]}"

    def _clear(self) -> None:
        if self.daemon:
            os.kill(self.daemon, signal.SIGKILL)
            self._wait_daemon()
        self._end_person()
        unmount(self.place.mount)


def lines(fd: int, death: int, idle: Callable[[], None] = lambda: None) -> Iterator[str]:
    """What comes from a descriptor, until its end or until nothing more can come after a death.

    Args:
        fd: where lines come from.
        death: readable when the daemon is dead.
        idle: called after each second in which nothing came: then nothing else would end a trouble either.

    Raises:
        HarnessError: nothing came for too long.
    """
    rest, silent = b"", 0.0
    while silent < LIFE_SECONDS:
        ready = select.select([fd, death], [], [], 1.0)[0]
        if fd in ready:
            part = os.read(fd, 65536)
            if not part:
                return
            *whole, rest = (rest + part).split(b"\n")
            yield from (line.decode() for line in whole)
            silent = 0.0
        elif ready:
            return
        else:
            idle()
            silent += 1.0
    raise HarnessError(f"nothing was heard for {LIFE_SECONDS:g} s")


@contextlib.contextmanager
def descriptor(fd: int) -> Iterator[int]:
    """A descriptor for as long as the block runs."""
    try:
        yield fd
    finally:
        os.close(fd)


def mounted(folder: pathlib.Path) -> bool:
    """Whether anything, dead or alive, lies over a folder."""
    mounts = pathlib.Path("/proc/self/mountinfo").read_text()
    return any(line.split()[4] == str(folder) for line in mounts.splitlines())


def unmount(folder: pathlib.Path) -> None:
    """Take everything off a folder."""
    while mounted(folder):
        subprocess.run(["fusermount3", "-uz", str(folder)], check=True, timeout=LIFE_SECONDS)
