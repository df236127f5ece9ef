"""Mounts: connecting, failing, closing, and what of it shows below `mnt/mcp`."""

import contextlib
import dataclasses
import json
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from rnixfs import limits
from rnixfs.errors import Code, SyscallError, invalid
from rnixfs.mounts import LeftError, name_of
from rnixfs.node import Dir, FixedDir
from rnixfs.proc.signals import Signal
from rnixfs.state.store import Log, Record
from tests.groups.grouplab import Lab, refused, settle
from tests.kernel.kernellab import PERSON, agent, text


@dataclasses.dataclass
class Fake:
    """A server that a test holds in its hand. Its transport has a task of its own, as real ones do.

    Args:
        gate: lets it connect.
        failure: what connecting raises.
        shield: whether no cancellation reaches it while it connects.
        slow: seconds that closing takes.
        restart: when it is to be connected again.
    """

    gate: trio.Event | None = None
    failure: Exception | None = None
    shield: bool = False
    slow: float = 0.0
    restart: str = "never"
    connect_seconds: float = 30.0
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    happened: list[str] = dataclasses.field(default_factory=list)
    dies: trio.Event = dataclasses.field(default_factory=trio.Event)
    death: Exception = dataclasses.field(default_factory=lambda: ConnectionResetError("the server went away"))
    owner: int = -1
    connected_at: float = 0.0
    connected: trio.Event = dataclasses.field(default_factory=trio.Event)

    def __call__(self, name: str, config: dict[str, Any]) -> "Fake":
        """Make the transport."""
        if "wrong" in config:
            raise invalid('"wrong" is no field of this transport')
        self.config = config
        return self

    def details(self) -> dict[str, Any]:
        """What the status shows of it."""
        return {"connections": self.happened.count("connect")}

    @contextlib.asynccontextmanager
    async def connect(self, owner: int) -> AsyncIterator[Dir]:
        self.owner = owner
        self.happened.append("connect")
        self.connected_at = trio.current_time()
        if self.failure is None:
            self.connected.set()
        try:
            with trio.CancelScope(shield=self.shield):
                if self.gate is not None:
                    await self.gate.wait()
            if self.failure is not None:
                raise self.failure
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._listen)
                yield FixedDir("server", {"hello": text("hello", b"from the server\n")})
                await trio.sleep(self.slow)
                nursery.cancel_scope.cancel()
        finally:
            self.happened.append("closed")

    async def _listen(self) -> None:
        await self.dies.wait()
        self.dies = trio.Event()
        raise self.death


@pytest.fixture
def server(lab: Lab) -> Fake:
    """A server that can be mounted by the type `fake`."""
    found = Fake()
    lab.kernel.mounts.transports["fake"] = found
    return found


def state(lab: Lab, name: str) -> tuple[str, str]:
    """State and reason, as the file says."""
    found = json.loads(lab.read(f"/mnt/mcp/{name}/status"))
    return found["state"], found["reason"]


FAKE = {"type": "fake", "token": "secret"}


# --- by the control file ---


async def test_a_mount_appears_as_a_folder(lab, autojump_clock, server):
    """The write does not wait; the status tells how it goes; then what the server shows is there."""
    server.gate = trio.Event()
    assert lab.names("/mnt/mcp") == ["ctl"]
    lab.write("/mnt/mcp/ctl", 'mount time {"type": "fake", "token": "secret"}\n')
    assert lab.names("/mnt/mcp") == ["ctl", "time"]
    assert state(lab, "time") == ("connecting", "")
    assert lab.names("/mnt/mcp/time") == ["status"]
    with refused(Code.NOT_FOUND, "the mount is connecting"):
        lab.node("/mnt/mcp/time/hello")
    server.gate.set()
    await settle()
    assert state(lab, "time") == ("ready", "")
    assert lab.names("/mnt/mcp/time") == ["status", "hello"]
    assert lab.read("/mnt/mcp/time/hello") == "from the server\n"
    assert server.config == {"token": "secret"}
    assert "secret" not in lab.read("/mnt/mcp/time/status")


async def test_unmounting_takes_the_folder_at_once_and_closes(lab, autojump_clock, server):
    """Though closing takes time; then the name is free."""
    server.slow = 5
    lab.write("/mnt/mcp/ctl", 'mount time {"type": "fake"}\n')
    await settle()
    node = lab.folder("/mnt/mcp/time")
    lab.write("/mnt/mcp/ctl", "unmount time\n")
    assert lab.names("/mnt/mcp") == ["ctl"]
    with refused(Code.NOT_FOUND):
        node.lookup("hello", PERSON)
    assert server.happened == ["connect"]
    lab.write("/mnt/mcp/ctl", 'mount time {"type": "fake"}\n')
    await trio.sleep(6)
    assert server.happened == ["connect", "connect", "closed"]
    assert state(lab, "time") == ("ready", "")
    assert lab.folder("/mnt/mcp/time") != node


async def test_a_mount_that_fails_says_why_and_can_be_tried_again(lab, autojump_clock, server):
    """Only its status is left of it, until it is unmounted or mounted anew."""
    server.failure = OSError(2, "no such program")
    lab.write("/mnt/mcp/ctl", 'mount time {"type": "fake"}\n')
    await settle()
    assert state(lab, "time") == ("failed", "FileNotFoundError: [Errno 2] no such program")
    assert lab.names("/mnt/mcp/time") == ["status"]
    assert server.happened == ["connect", "closed"]
    server.failure = None
    lab.write("/mnt/mcp/ctl", 'mount time {"type": "fake"}\n')
    await settle()
    assert state(lab, "time") == ("ready", "")


async def test_a_server_that_goes_away_fails_its_mount(lab, autojump_clock, server):
    """While it is mounted; what it showed is gone."""
    lab.write("/mnt/mcp/ctl", 'mount time {"type": "fake"}\n')
    await settle()
    server.dies.set()
    await settle()
    assert state(lab, "time") == ("failed", "ConnectionResetError: the server went away")
    assert lab.names("/mnt/mcp/time") == ["status"]
    lab.write("/mnt/mcp/ctl", "unmount time\n")
    assert lab.names("/mnt/mcp") == ["ctl"]


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("mount", Code.INVALID, "mount takes a name and a JSON object"),
        ("mount time", Code.NOT_FOUND, "no MCP server 'time'"),
        ("mount 7-time {}", Code.INVALID, "begins with a number and -"),
        ("mount time {", Code.INVALID, "a name and a JSON object"),
        ("mount time []", Code.INVALID, "a JSON object such as"),
        ("mount time {}", Code.INVALID, "not None; there are: fake"),
        ('mount time {"type": "stdio"}', Code.INVALID, "not 'stdio'; there are: fake"),
        ('mount time {"type": ["fake"]}', Code.INVALID, "must name a transport"),
        ('mount time {"type": "fake", "wrong": 1}', Code.INVALID, '"wrong" is no field'),
        ('mount ctl {"type": "fake"}', Code.INVALID, "a mount's name"),
        ('mount a/b {"type": "fake"}', Code.INVALID, "not a name"),
        ('mount .. {"type": "fake"}', Code.INVALID, "a mount's name"),
        (f'mount {"a" * 256} {{"type": "fake"}}', Code.NAME_TOO_LONG, "255 bytes"),
        ("unmount time", Code.NOT_FOUND, "nothing is mounted at /mnt/mcp/time"),
        ("unmount", Code.NOT_FOUND, "nothing is mounted"),
        ("remount", Code.INVALID, "unknown command 'remount'; one of: mount, unmount"),
    ],
)
async def test_what_the_control_file_refuses(lab, autojump_clock, server, line, code, words):
    """With a sentence that says what would be right; nothing is left of it."""
    with refused(code, words):
        lab.write("/mnt/mcp/ctl", line)
    assert lab.names("/mnt/mcp") == ["ctl"]
    assert server.happened == []


async def test_where_there_are_no_transports_the_refusal_says_so(lab, autojump_clock):
    """As long as none is built in."""
    with refused(Code.INVALID, "there are: none in this system"):
        lab.write("/mnt/mcp/ctl", 'mount time {"type": "stdio"}\n')


async def test_a_name_is_mounted_once(lab, autojump_clock, server):
    """Also while it connects."""
    server.gate = trio.Event()
    for expected in ("connecting", "ready"):
        if expected == "connecting":
            lab.write("/mnt/mcp/ctl", 'mount time {"type": "fake"}\n')
        with refused(Code.EXISTS, f"mounted already ({expected})"):
            lab.write("/mnt/mcp/ctl", 'mount time {"type": "fake"}\n')
        server.gate.set()
        await settle()


async def test_mounts_are_limited(lab, autojump_clock, server, monkeypatch):
    """With a sentence that names the limit."""
    monkeypatch.setattr(limits, "MOUNTS_MAX", 1)
    lab.write("/mnt/mcp/ctl", 'mount a {"type": "fake"}\n')
    with refused(Code.RESOURCE_EXHAUSTED, "1 mounts"):
        lab.write("/mnt/mcp/ctl", 'mount b {"type": "fake"}\n')


async def test_names_of_a_mount_are_made_by_its_server(lab, autojump_clock, server):
    """The folder takes no others where the server's does not, and its status is not the server's."""
    lab.write("/mnt/mcp/ctl", 'mount time {"type": "fake"}\n')
    await settle()
    folder = lab.folder("/mnt/mcp/time")
    for call in (
        lambda: folder.mkdir("x", 0o755, PERSON),
        lambda: folder.rmdir("x", PERSON),
        lambda: folder.unlink("hello", PERSON),
        lambda: folder.create("x", 0o644, PERSON, os.O_WRONLY),
        lambda: lab.folder("/mnt/mcp").mkdir("x", 0o755, PERSON),
    ):
        with refused(Code.NOT_PERMITTED):
            call()
    with refused(Code.PERMISSION):
        lab.node("/mnt/mcp/time/status").open(PERSON, os.O_WRONLY)
    assert folder == lab.folder("/mnt/mcp/time")
    assert hash(folder) == hash(lab.folder("/mnt/mcp/time"))


# --- by system calls ---


async def test_the_call_waits_until_the_mount_is_ready(lab, autojump_clock, server):
    """Then the caller can use it; unmounting waits until it is closed."""
    server.gate, server.slow = trio.Event(), 3
    _, sys = await lab.puppet()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sys.mount, "/mnt/mcp/time", FAKE)
        await settle()
        assert state(lab, "time") == ("connecting", "")
        server.gate.set()
    assert await sys.read_file("/mnt/mcp/time/hello") == b"from the server\n"
    before = trio.current_time()
    await sys.unmount("/mnt/mcp/time")
    assert trio.current_time() - before == 3
    assert server.happened == ["connect", "closed"]
    assert lab.names("/mnt/mcp") == ["ctl"]


@pytest.mark.parametrize(
    ("failure", "code", "words"),
    [
        (OSError(111, "refused"), Code.DRIVER, "ConnectionRefusedError: [Errno 111] refused"),
        (SyscallError(Code.NOT_FOUND, "no program x"), Code.NOT_FOUND, "no program x"),
        (ValueError("oops"), Code.DRIVER, "ValueError: oops"),
        (
            ExceptionGroup("two", [ValueError("first"), ValueError("second")]),
            Code.DRIVER,
            "ValueError: first",
        ),
    ],
)
async def test_nothing_is_left_of_a_call_that_fails(lab, autojump_clock, server, failure, code, words):
    """The caller gets the reason, with the path."""
    server.failure = failure
    process, sys = await lab.puppet()
    with refused(code, words):
        await sys.mount("/mnt/mcp/time", FAKE)
    assert lab.names("/mnt/mcp") == ["ctl"]
    assert server.happened == ["connect", "closed"]
    call = lab.trace(process)[-1]
    assert (call["syscall"], call["args"]) == ("Mount", {"path": "/mnt/mcp/time", "type": "fake"})


@pytest.mark.parametrize("shield", [False, True])
async def test_a_server_that_does_not_answer_is_given_up(lab, autojump_clock, server, shield):
    """After the time limit, also where its transport does not let itself be cancelled."""
    server.gate, server.shield = trio.Event(), shield
    _, sys = await lab.puppet()
    before = trio.current_time()
    with refused(Code.TIMEOUT, "it did not connect within 30 s"):
        await sys.mount("/mnt/mcp/time", FAKE)
    assert trio.current_time() - before == limits.MOUNT_CONNECT_SECONDS == 30
    assert lab.names("/mnt/mcp") == ["ctl"]
    await settle()
    assert server.happened == (["connect"] if shield else ["connect", "closed"])
    server.gate.set()
    await settle()
    assert server.happened == ["connect", "closed"]
    assert lab.names("/mnt/mcp") == ["ctl"]


async def test_a_call_that_is_cancelled_leaves_nothing(lab, autojump_clock, server):
    """By the program itself, or since the process ends."""
    server.gate = trio.Event()
    process, sys = await lab.puppet()
    with trio.move_on_after(1):
        await sys.mount("/mnt/mcp/time", FAKE)
    await settle()
    assert (lab.names("/mnt/mcp"), server.happened) == (["ctl"], ["connect", "closed"])
    sys.spawn_thread(lambda: sys.mount("/mnt/mcp/time", FAKE))
    await settle()
    assert lab.names("/mnt/mcp") == ["ctl", "time"]
    lab.kernel.signal(process, Signal.KILL, PERSON)
    await settle()
    assert (lab.names("/mnt/mcp"), server.happened[2:]) == (["ctl"], ["connect", "closed"])


async def test_a_mount_that_is_unmounted_while_it_connects_fails_its_call(lab, autojump_clock, server):
    """With a reason that says so."""
    server.gate = trio.Event()
    _, sys = await lab.puppet()
    caught: list[SyscallError] = []

    async def mount() -> None:
        try:
            await sys.mount("/mnt/mcp/time", FAKE)
        except SyscallError as error:
            caught.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(mount)
        await settle()
        lab.write("/mnt/mcp/ctl", "unmount time\n")
    assert [error.code for error in caught] == [Code.CANCELED]
    await settle()
    assert server.happened == ["connect", "closed"]


async def test_closing_has_a_time_limit(lab, autojump_clock, server):
    """What is unmounted is gone, whether or not its server agrees."""
    server.slow = 10 * limits.MOUNT_CLOSE_SECONDS
    _, sys = await lab.puppet()
    await sys.mount("/mnt/mcp/time", FAKE)
    before = trio.current_time()
    await sys.unmount("/mnt/mcp/time")
    assert trio.current_time() - before == limits.MOUNT_CLOSE_SECONDS
    assert server.happened == ["connect", "closed"]


@pytest.mark.parametrize("path", ["/mnt/mcp/", "/mnt/mcp", "/mnt/mcp/a/b", "/dev/time", "mnt/mcp/time", ""])
async def test_mounts_are_below_one_folder(lab, autojump_clock, server, path):
    """Other paths are INVALID, to mount and to unmount."""
    _, sys = await lab.puppet()
    with refused(Code.INVALID, "mounts are at /mnt/mcp/NAME"):
        await sys.mount(path, FAKE)
    with refused(Code.INVALID, "mounts are at /mnt/mcp/NAME"):
        await sys.unmount(path)
    assert name_of("/mnt/mcp/time") == "time"


# --- whose they are ---


async def test_mounting_needs_the_right_to_the_control_file(lab, autojump_clock, server):
    """To mount is to run a program, so a narrow process may not; what it was granted it may still use."""
    process, sys = await lab.puppet(allowed_devices=["/mnt/mcp/time"])
    for call in (
        lambda: sys.mount("/mnt/mcp/time", FAKE),
        lambda: sys.unmount("/mnt/mcp/time"),
        sys.unmount_all,
    ):
        with refused(Code.PERMISSION, "may not use /mnt/mcp/ctl"):
            await call()
    lab.write("/mnt/mcp/ctl", 'mount time {"type": "fake"}\n')
    await settle()
    assert await sys.read_file("/mnt/mcp/time/hello") == b"from the server\n"
    lab.write(f"/proc/{process.pid}/ctl", "grant /mnt/mcp/ctl\n")
    assert await sys.unmount_all() == 0


async def test_a_process_unmounts_what_it_and_its_descendants_mounted(lab, autojump_clock, server):
    """People unmount everything."""
    lab.write("/mnt/mcp/ctl", 'mount people {"type": "fake"}\n')
    _, sys = await lab.puppet()
    child, below = await lab.puppet(parent=sys.pid)
    _, stranger = await lab.puppet()
    await sys.mount("/mnt/mcp/own", FAKE)
    await below.mount("/mnt/mcp/below", FAKE)
    await below.mount("/mnt/mcp/below2", FAKE)
    await stranger.mount("/mnt/mcp/other", FAKE)
    for name in ("people", "other"):
        with refused(Code.PERMISSION, "did not mount"):
            await sys.unmount(f"/mnt/mcp/{name}")
        with refused(Code.PERMISSION, "did not mount"):
            lab.write("/mnt/mcp/ctl", f"unmount {name}\n", agent(sys.pid))
    with refused(Code.PERMISSION):
        await below.unmount("/mnt/mcp/own")
    await sys.unmount("/mnt/mcp/below2")
    assert await sys.unmount_all() == 2
    assert lab.names("/mnt/mcp") == ["ctl", "people", "other"]
    lab.write("/mnt/mcp/ctl", "unmount other\nunmount people\n")
    assert lab.names("/mnt/mcp") == ["ctl"]
    assert child.live


async def test_what_a_process_mounted_goes_when_it_ends(lab, autojump_clock, server):
    """And only that."""
    lab.write("/mnt/mcp/ctl", 'mount people {"type": "fake"}\n')
    process, sys = await lab.puppet()
    await sys.mount("/mnt/mcp/own", FAKE)
    lab.kernel.signal(process, Signal.KILL, PERSON)
    assert lab.names("/mnt/mcp") == ["ctl", "people"]
    await settle()
    assert server.happened == ["connect", "connect", "closed"]


async def test_all_is_unmounted_when_the_system_ends(nursery, autojump_clock):
    """Also what only connects, and what does not close in time."""
    lab = Lab()
    servers = {"ready": Fake(), "slow": Fake(slow=1000), "connecting": Fake(gate=trio.Event())}
    lab.kernel.mounts.transports.update(servers)
    async with trio.open_nursery() as own:
        await own.start(lab.kernel.run)
        for name in servers:
            lab.write("/mnt/mcp/ctl", f'mount {name} {{"type": "{name}"}}\n')
        await settle()
        await lab.kernel.suspend_all(1)
        assert lab.names("/mnt/mcp") == ["ctl"]
        own.cancel_scope.cancel()
    assert [server.happened for server in servers.values()] == [["connect", "closed"]] * 3


def every(log: Log) -> list[Record]:
    """All events of a log, in order."""
    pids = (0, *log.unfinished(), *(entry.pid for entry in log.finished()))
    return sorted((record for pid in pids for record in log.load(pid)), key=lambda record: record.seq)


async def test_each_change_of_a_mount_is_an_event(lab, autojump_clock, server):
    """Without its configuration, which may hold secrets."""
    _, sys = await lab.puppet()
    await sys.mount("/mnt/mcp/time", FAKE)
    await sys.unmount("/mnt/mcp/time")
    server.failure = ValueError("oops")
    lab.write("/mnt/mcp/ctl", 'mount time {"type": "fake", "token": "secret"}\n')
    await settle()
    found = [(one.event, one.pid) for one in every(lab.kernel.log) if "mount" in one.event]
    assert found == [
        ("mount", sys.pid),
        ("mount_ready", sys.pid),
        ("unmount", sys.pid),
        ("mount", 0),
        ("mount_failed", 0),
    ]
    assert "secret" not in str(every(lab.kernel.log))


# --- mounts that come back ---


async def seconds_until_ready(lab: Lab, server: Fake, kill: bool = True) -> float:
    """End a connection, and say how long the next one takes to come."""
    server.connected = trio.Event()
    if kill:
        server.dies.set()
    await settle()
    began = trio.current_time()
    with trio.move_on_after(2 * limits.MOUNT_RESTART_MAX_SECONDS):
        await server.connected.wait()
        await settle()
    assert state(lab, "time")[0] == "ready"
    return server.connected_at - began


async def test_the_pause_before_a_restart_doubles(lab, autojump_clock, server):
    """From one second to a minute; after a minute of health it begins anew."""
    server.restart = "on-failure"
    lab.write("/mnt/mcp/ctl", 'mount time {"type": "fake"}\n')
    await settle()
    pauses = [await seconds_until_ready(lab, server) for _ in range(8)]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    await trio.sleep(limits.MOUNT_HEALTHY_SECONDS)
    assert await seconds_until_ready(lab, server) == 1
    status = json.loads(lab.read("/mnt/mcp/time/status"))
    assert (status["state"], status["reason"], status["connections"]) == ("ready", "", 10)


async def test_what_a_server_shows_stays_until_it_is_back(lab, autojump_clock, server):
    """The status says why it is away, and that is an event, once for each reason."""
    server.restart = "on-failure"
    lab.write("/mnt/mcp/ctl", 'mount time {"type": "fake"}\n')
    await settle()
    server.failure = OSError(111, "refused")
    server.dies.set()
    await settle()
    assert state(lab, "time") == ("restarting", "ConnectionResetError: the server went away")
    assert lab.read("/mnt/mcp/time/hello") == "from the server\n"
    await trio.sleep(100)
    assert state(lab, "time") == ("restarting", "ConnectionRefusedError: [Errno 111] refused")
    server.failure = None
    await seconds_until_ready(lab, server, kill=False)


async def test_a_server_that_never_started_is_tried_again(lab, autojump_clock, server):
    """Its names are not there yet, and say so with the errno for trying again."""
    server.restart, server.failure = "on-failure", OSError(111, "refused")
    lab.write("/mnt/mcp/ctl", 'mount time {"type": "fake"}\n')
    await settle()
    assert state(lab, "time")[0] == "restarting"
    assert lab.names("/mnt/mcp/time") == ["status"]
    with refused(Code.SERVICE_UNAVAILABLE, "try again later"):
        lab.node("/mnt/mcp/time/hello")
    server.failure = None
    await seconds_until_ready(lab, server, kill=False)
    assert lab.read("/mnt/mcp/time/hello") == "from the server\n"


async def test_a_server_that_does_not_answer_is_tried_again(lab, autojump_clock, server):
    """After its own time limit."""
    server.restart, server.gate, server.connect_seconds = "always", trio.Event(), 5.0
    lab.write("/mnt/mcp/ctl", 'mount time {"type": "fake"}\n')
    await trio.sleep(5.5)
    assert state(lab, "time") == ("restarting", "it did not connect within 5 s")
    server.gate.set()
    await seconds_until_ready(lab, server, kill=False)


@pytest.mark.parametrize(
    ("restart", "death", "then"),
    [
        ("never", OSError(5, "gone"), "failed"),
        ("on-failure", OSError(5, "gone"), "ready"),
        ("always", OSError(5, "gone"), "ready"),
        ("never", LeftError(Code.DRIVER, "it left"), "failed"),
        ("on-failure", LeftError(Code.DRIVER, "it left"), "failed"),
        ("always", LeftError(Code.DRIVER, "it left"), "ready"),
        ("always", invalid("wrong configuration"), "failed"),
    ],
)
async def test_when_a_mount_comes_back(lab, autojump_clock, server, restart, death, then):
    """As it was asked for; what is wrong with the configuration is not tried again."""
    server.restart, server.death = restart, death
    lab.write("/mnt/mcp/ctl", 'mount time {"type": "fake"}\n')
    await settle()
    server.dies.set()
    await trio.sleep(2)
    assert state(lab, "time")[0] == then


async def test_a_call_does_not_wait_for_restarts(lab, autojump_clock, server):
    """It fails with the first attempt, and nothing is left."""
    server.restart, server.failure = "always", OSError(111, "refused")
    process, sys = await lab.puppet()
    with refused(Code.DRIVER, "refused"):
        await sys.mount("/mnt/mcp/time", FAKE)
    assert lab.names("/mnt/mcp") == ["ctl"]
    await trio.sleep(1000)
    assert server.happened == ["connect", "closed"]
    assert server.owner == process.pid


async def test_unmounting_ends_the_wait_for_a_restart(lab, autojump_clock, server):
    """At once, and no other attempt is made."""
    server.restart = "always"
    lab.write("/mnt/mcp/ctl", 'mount time {"type": "fake"}\n')
    await settle()
    server.dies.set()
    await settle()
    before = trio.current_time()
    lab.write("/mnt/mcp/ctl", "unmount time\n")
    await trio.sleep(1000)
    assert server.happened == ["connect", "closed"]
    assert trio.current_time() - before == 1000


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"command": "x"}, "stdio"),
        ({"url": "http://x/"}, "http"),
        ({"url": "http://x/", "type": "streamable-http"}, "http"),
        ({"command": "x", "type": "fake"}, "fake"),
    ],
)
async def test_the_type_follows_from_the_configuration(lab, autojump_clock, server, config, kind):
    """Where it is not named."""
    lab.kernel.mounts.transports |= {"stdio": server, "http": server}
    lab.write("/mnt/mcp/ctl", f"mount time {json.dumps(config)}\n")
    await settle()
    assert json.loads(lab.read("/mnt/mcp/time/status"))["type"] == kind
    assert server.config == {name: value for name, value in config.items() if name != "type"}
