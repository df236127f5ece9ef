"""Starting the daemon, and ending a mount."""

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from rnixfs_cli import bounded, mountpoint, runtime
from rnixfs_cli.errors import CommandError, from_oserror
from rnixfs_cli.mountpoint import State
from rnixfs_cli.screen import Screen

START_SECONDS = 120.0  # from the start of the daemon to its word that it is ready; a damaged log takes long
STOP_SECONDS = 15.0  # from the request to leave to the end of the mount; agents get 10 s of it to end
WRITE_SECONDS = 10.0  # for the request itself
DETACH_SECONDS = 10.0  # for one run of fusermount3 or umount
NOTICE = "notice:"  # how the daemon's lines begin that a person should read
IN_MEMORY = "none"  # in the place of a folder: the daemon keeps its log in memory only
STACKED_MAX = 16  # mounts on one folder that are taken away in turn


class Plan(NamedTuple):
    """How the daemon is to be started.

    Args:
        mount: absolute path of the mountpoint.
        roots: host folders below dev/fs; none means the folder we stand in.
        fs_write: whether files below dev/fs may be changed through the mount.
        idle_exit: whether it leaves by itself when nobody uses it.
        foreground: whether it stays in this terminal's session, with its messages on stderr.
        state: folder of its log, or `none` for one in memory; the usual folder if empty.
    """

    mount: str
    roots: tuple[str, ...] = ()
    fs_write: bool = False
    idle_exit: bool = True
    foreground: bool = False
    state: str = ""

    def argv(self, ready: int) -> list[str]:
        """The daemon's command line.

        Args:
            ready: descriptor on which it says that it is ready.
        """
        # -P: a file of the current folder must not pass for a module of ours.
        words = [sys.executable, "-P", "-m", "rnixfs.boot", "--mount", self.mount, "--ready-fd", str(ready)]
        for root in self.roots:
            words += ["--root", os.path.abspath(root)]
        if self.state:
            words += ["--state", self.state if self.state == IN_MEMORY else os.path.abspath(self.state)]
        flags = {"--fs-write": self.fs_write, "--idle-exit": self.idle_exit, "--foreground": self.foreground}
        return words + [flag for flag, on in flags.items() if on]


def ensure(mount: str) -> int:
    """Make sure that a daemon answers at a mountpoint; start one where none does.

    Args:
        mount: absolute path of the mountpoint.

    Returns:
        A descriptor that keeps the daemon from leaving as idle for as long as it is open.

    Raises:
        CommandError: no daemon can be had there.
    """
    for _ in range(3):
        state = mountpoint.probe(mount)
        if state is State.HUNG:
            raise _hung(mount)
        if state is not State.LIVE:
            start(Plan(mount))
        held = mountpoint.hold(mount)
        if held is not None:
            return held
    raise CommandError(
        "SERVICE_UNAVAILABLE",
        f"the daemon leaves as soon as it has come; see {runtime.log_path()}",
        syscall="Mount",
        device=mount,
    )


def start(plan: Plan) -> int | None:
    """Start the daemon and wait until it has mounted.

    Args:
        plan: how.

    Returns:
        Its process id, or None if another command was faster.

    Raises:
        CommandError: it cannot be started or mount, with what it said.
    """
    with runtime.starting(plan.mount):
        state = mountpoint.probe(plan.mount)
        if state is State.LIVE:
            return None
        if state is State.HUNG:
            raise _hung(plan.mount)
        _prepare(plan.mount, state)
        return _launch(plan)


def _hung(mount: str) -> CommandError:
    reason = f"a daemon is mounted there but does not answer; end it with: rnix umount {mount}"
    return CommandError("TIMEOUT", reason, syscall="Mount", device=mount)


def _prepare(mount: str, state: State) -> None:
    with contextlib.suppress(OSError):
        here = os.getcwd()
        if here == mount or here.startswith(mount + "/"):
            raise CommandError(
                "INVALID",
                "you stand inside the mountpoint; cd out of it first",
                syscall="Mount",
                device=mount,
            )
    if state is State.ABSENT:
        mountpoint.check_free(mount)
        try:
            os.makedirs(mount, mode=0o700, exist_ok=True)
        except OSError as error:
            failure = from_oserror(error, "Mount", mount)
            failure.reason = f"cannot make the mountpoint: {failure.reason}"
            raise failure from None


def _launch(plan: Plan) -> int:
    reader, writer = os.pipe()
    try:
        try:
            pid = _spawn(plan, writer)
        finally:
            os.close(writer)
        *notices, word = _words(reader, time.monotonic() + START_SECONDS)
    finally:
        os.close(reader)
    for notice in notices:
        _warn(notice.removeprefix(NOTICE).strip())
    if word == "ready":
        return pid
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    raise _not_started(plan, word)


def _spawn(plan: Plan, writer: int) -> int:
    os.set_inheritable(writer, True)
    if plan.foreground:
        return _run(plan.argv(writer), [], own_session=False)
    log = runtime.open_log()
    try:
        files = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
        return _run(
            plan.argv(writer), [*files, *((os.POSIX_SPAWN_DUP2, log, to) for to in (1, 2))], own_session=True
        )
    finally:
        os.close(log)


def _run(argv: list[str], files: list[tuple[Any, ...]], *, own_session: bool) -> int:
    # posix_spawn and not subprocess: importing that costs more than everything else here.
    usual = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT]
    return os.posix_spawn(argv[0], argv, os.environ, file_actions=files, setsid=own_session, setsigdef=usual)


def _words(reader: int, deadline: float) -> list[str]:
    """The daemon's notices and its last word; what came of it when the daemon or the time ends first."""
    poller = select.poll()
    poller.register(reader, select.POLLIN)
    data = b""
    while not data.endswith(b"\n") or _lines(data)[-1].startswith(NOTICE):
        left = deadline - time.monotonic()
        if left <= 0 or not poller.poll(left * 1000):
            return [*_notices(data), f"error: it was not ready within {START_SECONDS:.0f} s"]
        piece = os.read(reader, 4096)
        if not piece:
            return [*_notices(data), ""]
        data += piece
    return _lines(data)


def _lines(data: bytes) -> list[str]:
    return [line.strip() for line in data.decode("utf-8", "replace").strip().split("\n")]


def _notices(data: bytes) -> list[str]:
    return [line for line in _lines(data) if line.startswith(NOTICE)]


def _warn(text: str) -> None:
    errors = Screen(sys.stderr)
    errors.line(errors.paint("yellow", errors.safe(f"[kernel] warning: {text}")))


def _not_started(plan: Plan, word: str) -> CommandError:
    said = word.removeprefix("error:").strip()
    if said:
        return CommandError("SERVICE_UNAVAILABLE", said, syscall="Mount", device=plan.mount)
    tail = "" if plan.foreground else runtime.log_tail()
    reason = "the daemon ended before it had mounted" + (f"; it said: {tail}" if tail else "")
    return CommandError("SERVICE_UNAVAILABLE", reason, syscall="Mount", device=plan.mount)


def stop(mount: str) -> bool:
    """Ask the daemon to leave and wait until its mount is gone.

    Args:
        mount: absolute path of the mountpoint.

    Returns:
        Whether it is gone.
    """
    # A daemon that ends before it has answered makes the write fail; the table of mounts decides.
    with contextlib.suppress(OSError):
        bounded.write_file(os.path.join(mount, "sys/ctl"), b"shutdown\n", WRITE_SECONDS)
    return mountpoint.wait_unmounted(mount, STOP_SECONDS)


def unmount(mount: str, force: bool = False, leaving: Callable[[], None] = lambda: None) -> None:
    """End what is mounted on a folder: politely, else by the host's own means, a stale one at once.

    Args:
        mount: absolute path of the mountpoint.
        force: detach it also while programs use it.
        leaving: called before a daemon that answers is asked to leave.

    Raises:
        CommandError: nothing, or something of others, is mounted there; or it is in use.
    """
    found = mountpoint.mounted(mount)
    if not found:
        raise CommandError("INVALID", "not mounted", syscall="Umount", device=mount)
    if not found[-1].ours:
        reason = f"what is mounted there is {found[-1].kind}, not a tree of rnix; use umount(8)"
        raise CommandError("INVALID", reason, syscall="Umount", device=mount)
    state = mountpoint.probe(mount)
    if state is State.LIVE:
        leaving()
        if stop(mount):
            return
    for _ in range(STACKED_MAX):
        found = mountpoint.mounted(mount)
        if not found or not found[-1].ours:
            return
        _detach(mount, lazily=force or state is not State.LIVE)


def _detach(mount: str, lazily: bool) -> None:
    import shutil
    import subprocess

    tool = shutil.which("fusermount3") or shutil.which("fusermount")
    if os.getuid() == 0 or tool is None:
        words = ["umount", *(["-l"] if lazily else []), mount]
    else:
        words = [tool, "-u", *(["-z"] if lazily else []), mount]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=DETACH_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError("DRIVER", f"{words[0]}: {error}", syscall="Umount", device=mount) from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip() or f"{words[0]} exited with {done.returncode}"
        hint = "" if lazily else "; close what uses it, or detach it with: rnix umount --force"
        raise CommandError("SERVICE_UNAVAILABLE", said + hint, syscall="Umount", device=mount)
