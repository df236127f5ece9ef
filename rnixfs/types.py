"""Small values that every layer shares."""

import dataclasses
import enum

import msgspec


class Kind(enum.StrEnum):
    """What a name is."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"


class Ready(enum.Flag):
    """What an open file can do now without waiting."""

    NONE = 0
    READ = enum.auto()
    WRITE = enum.auto()
    HANGUP = enum.auto()


ANYTHING = Ready.READ | Ready.WRITE


class Caller(msgspec.Struct, frozen=True, gc=False):
    """Who opens a name. Decided once, at open: later requests of a mount carry no caller.

    Args:
        uid: user id of the host.
        gid: group id of the host.
        agent: pid of the agent on whose behalf it happens; 0 for people and plain programs.
        host_pid: thread id of the host process that asks; 0 for system calls made in memory.
        session: POSIX session id of that host process; 0 in memory.
    """

    uid: int
    gid: int
    agent: int = 0
    host_pid: int = 0
    session: int = 0

    @property
    def origin(self) -> str:
        """`agent` for system calls made in memory, `mount` for a program of the host."""
        return "mount" if self.host_pid else "agent"


class Stat(msgspec.Struct, frozen=True, gc=False):
    """What is known of a name.

    Args:
        kind: file, directory or link.
        size: bytes; 0 where a size is unknown before reading (streams, devices).
        mode: permission bits only.
        mtime_ns: last change of the content, nanoseconds since 1970.
        links: number of names.
        ttl: seconds for which the host kernel may keep these attributes.
        name_ttl: seconds for which it may remember that the name leads here.
        blocks: 512-byte blocks in use, for `du`.
    """

    kind: Kind
    size: int = 0
    mode: int = 0o444
    mtime_ns: int = 0
    links: int = 1
    ttl: float = 0.0
    name_ttl: float = 1.0
    blocks: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a caller stands on the host.

    Args:
        cwd: absolute folder that relative names start from.
        env: environment of programs run for it.
        roots: absolute folders that its file tools may reach.
        writable: whether its file tools may change files.
    """

    cwd: str
    env: dict[str, str]
    roots: tuple[str, ...]
    writable: bool
