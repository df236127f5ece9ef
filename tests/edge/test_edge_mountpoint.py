"""The folder under a mount: found, cleared, refused, without touching what is mounted there."""

import os
import signal
import subprocess
import sys

import pytest
from mountlab import PATIENCE, Client, is_mounted, serving, stopped, sweep, works

from rnixfs.edge import mountpoint
from rnixfs.edge.mountpoint import Mount
from rnixfs.errors import Code, SyscallError

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="a second mount on one folder needs root")


def refusal(call, *args, **kwargs) -> SyscallError:
    with pytest.raises(SyscallError) as caught:
        call(*args, **kwargs)
    return caught.value


# --- reading the table ---


def test_parse_mountinfo():
    """Octal digits become signs, optional fields are skipped, what is no line of the table is left out."""
    text = (
        "22 1 0:21 / /proc rw,relatime shared:5 master:1 - proc proc rw\n"
        "40 1 0:39 / /tmp/a\\040b\\011c\\012d\\134e rw - fuse.rnix rnixfs:123 rw,user_id=0\n"
        "41 1 0:40 / /x rw - fuse some\\040source rw\n"
        "nonsense\n"
    )
    assert mountpoint.parse_mountinfo(text) == [
        Mount("/proc", "proc", "proc"),
        Mount("/tmp/a b\tc\nd\\e", "fuse.rnix", "rnixfs:123"),
        Mount("/x", "fuse", "some source"),
    ]


@pytest.mark.parametrize(
    ("mount", "fuse", "server"),
    [
        (Mount("/x", "fuse.rnix", "rnixfs:123"), True, 123),
        (Mount("/x", "fuse.sshfs", "host:"), True, None),
        (Mount("/x", "fuse", "rnixfs:0x1"), True, None),
        (Mount("/x", "fuseblk", "/dev/sda1"), True, None),
        (Mount("/x", "fusectl", "rnixfs:1"), False, None),
        (Mount("/x", "ext4", "rnixfs:1"), False, None),
    ],
)
def test_kind_of_mount(mount, fuse, server):
    """A program serves FUSE mounts, and ours say which."""
    assert (mount.fuse, mount.server) == (fuse, server)


@pytest.mark.parametrize("name", ["plain", "with space", "back\\slash", "new\nline", "tab\there", "ünïcode"])
def test_mounted_at(tmp_path, name):
    """A mount is found under any name, with its server, and is gone when the server has left."""
    path = tmp_path / name
    path.mkdir()
    assert mountpoint.mounted_at(str(path)) is None
    with serving(path) as server:
        found = mountpoint.mounted_at(str(path))
        assert found == Mount(str(path), "fuse.rnix", f"rnixfs:{server.pid}")
        assert found.server == server.pid
        assert server.leave() == 0
    assert mountpoint.mounted_at(str(path)) is None


def test_nothing_touches_a_mount_that_hangs(tmp_path):
    """With a server that stands still, everything but the mount itself can be asked about it."""
    link = tmp_path / "link"
    with serving(tmp_path / "mnt") as server:
        path = str(server.path)
        link.symlink_to(server.path)
        with stopped(server):
            assert mountpoint.mounted_at(path) is not None
            assert mountpoint.mounted_at(str(link)) is not None
            assert mountpoint.canonical(f"{link}/deep/down/..") == f"{path}/deep"
            assert mountpoint.inside(f"{link}/deep", path)
            error = refusal(mountpoint.prepare, path, probe_seconds=0.1)
            assert error.code is Code.EXISTS
            assert f"pid {server.pid}, which does not answer" in error.reason
        assert works(server)


# --- paths ---


def test_canonical(tmp_path, monkeypatch):
    """Links, dots and what does not exist come out as realpath(3) has them."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "relative").symlink_to("a/b")
    (tmp_path / "absolute").symlink_to(tmp_path / "a")
    (tmp_path / "a" / "up").symlink_to("..")
    (tmp_path / "dangling").symlink_to("nowhere/../there")
    monkeypatch.chdir(tmp_path)
    for path in [
        ".",
        "a/b/..",
        "relative",
        "relative/../b",
        "absolute/b//x/./y",
        "absolute/up/relative",
        "dangling",
        "missing/../../other",
        "/..",
        str(tmp_path / "relative" / ".."),
    ]:
        assert mountpoint.canonical(path) == os.path.realpath(path), path


def test_canonical_refuses_a_loop(tmp_path):
    """Links that lead to each other end with ELOOP's code."""
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert refusal(mountpoint.canonical, str(tmp_path / "a")).code is Code.TOO_MANY_LINKS


def test_inside(tmp_path):
    """A path is inside itself and its parents, by names and not by letters, through links as well."""
    (tmp_path / "mnt").mkdir()
    (tmp_path / "link").symlink_to("mnt")
    folder = str(tmp_path / "mnt")
    assert mountpoint.inside(folder, folder)
    assert mountpoint.inside(f"{folder}/a/b", folder)
    assert mountpoint.inside(str(tmp_path / "link" / "a"), folder)
    assert mountpoint.inside(folder, str(tmp_path))
    assert mountpoint.inside(folder, "/")
    assert not mountpoint.inside(f"{folder}2", folder)
    assert not mountpoint.inside(f"{folder}/..", folder)
    assert not mountpoint.inside(str(tmp_path), folder)


# --- prepare ---


def test_prepare_makes_the_folder(tmp_path):
    """A missing folder is made for its owner alone, and an empty one is taken."""
    path = tmp_path / "new" / "mnt"
    mountpoint.prepare(str(path))
    assert path.stat().st_mode & 0o777 == 0o700
    mountpoint.prepare(str(path))


def test_prepare_refuses_what_it_would_hide(tmp_path):
    """Files are not covered by a mount."""
    (tmp_path / "precious").touch()
    error = refusal(mountpoint.prepare, str(tmp_path))
    assert error.code is Code.NOT_EMPTY
    assert "precious" in error.reason


@pytest.mark.parametrize("name", ["file", "file/below", "dangling"])
def test_prepare_refuses_what_is_no_folder(tmp_path, name):
    """A file is no place for a mount, nor is anything below it."""
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("file")
    assert refusal(mountpoint.prepare, str(tmp_path / name)).code is Code.NOT_DIRECTORY


def test_prepare_refuses_a_second_mount(tmp_path):
    """A live mount stays as it is, and the message names who serves it."""
    with serving(tmp_path / "mnt") as server:
        error = refusal(mountpoint.prepare, str(server.path))
        assert error.code is Code.EXISTS
        assert f"{server.path} is already mounted by pid {server.pid}" in error.reason
        assert works(server)


@pytest.mark.parametrize("attr_seconds", [0, 3600])
def test_prepare_clears_a_dead_mount(tmp_path, attr_seconds):
    """After SIGKILL of the server the folder can be used again, whatever the kernel has in its cache."""
    path = tmp_path / "mnt"
    with serving(path, attr_seconds=attr_seconds) as server:
        assert works(server)
        with Client("cat", str(path / "never")) as cat:
            server.until(waiting=1)
            server.kill()
            assert cat.end() == 1
        assert is_mounted(path)
        mountpoint.prepare(str(path))
        assert not is_mounted(path)
        with serving(path) as second:
            assert works(second)


@as_root
def test_prepare_clears_stacked_dead_mounts(tmp_path):
    """Dead mounts lie on each other after several crashes; all of them go."""
    path = tmp_path / "mnt"
    with serving(path) as first, serving(path) as second, serving(path) as third:
        for server in (first, second, third):
            server.kill()
        assert is_mounted(path)
        mountpoint.prepare(str(path))
        assert not is_mounted(path)


@as_root
def test_prepare_stops_at_a_live_mount(tmp_path):
    """A dead mount on a live one: only the dead one goes."""
    path = tmp_path / "mnt"
    with serving(path) as alive, serving(path) as dead:
        dead.kill()
        assert f"pid {alive.pid}" in refusal(mountpoint.prepare, str(path)).reason
        assert works(alive)


@as_root
def test_prepare_bears_other_file_systems(tmp_path):
    """An empty disk or volume may carry the mount, as any folder."""
    path = tmp_path / "mnt"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", str(path)], check=True, timeout=PATIENCE)
    try:
        mountpoint.prepare(str(path))
        assert is_mounted(path)
    finally:
        sweep(path)


# --- unmount ---


@pytest.fixture(params=["own rights", "fusermount3"])
def any_way(request, monkeypatch):
    """Both ways to unmount: the system call for root, the set-uid program for others."""
    if request.param == "fusermount3":
        monkeypatch.setattr(os, "geteuid", lambda: 1000)


def test_unmount(tmp_path, any_way):
    """The server notices and ends well by itself."""
    with serving(tmp_path / "mnt") as server:
        mountpoint.unmount(str(server.path))
        assert not is_mounted(server.path)
        assert server.process.wait(PATIENCE) == 0


def test_unmount_in_use(tmp_path, any_way):
    """A mount in use stays; lazily it goes, and its readers go on until the server leaves."""
    with serving(tmp_path / "mnt") as server, Client("cat", str(server.path / "never")) as cat:
        server.until(waiting=1)
        error = refusal(mountpoint.unmount, str(server.path))
        assert error.code is Code.SERVICE_UNAVAILABLE
        assert "in use" in error.reason
        mountpoint.unmount(str(server.path), lazy=True)
        assert not is_mounted(server.path)
        server.until(waiting=1)
        assert server.leave() == 0
        assert cat.end() == 1


def test_unmount_of_a_dead_mount(tmp_path, any_way):
    """So a mount whose server is dead goes too."""
    with serving(tmp_path / "mnt") as server:
        server.kill()
        mountpoint.unmount(str(server.path), lazy=True)
        assert not is_mounted(server.path)


def test_unmount_of_nothing(tmp_path):
    """Without a mount there is a clear error."""
    assert refusal(mountpoint.unmount, str(tmp_path)).code is Code.INVALID


def test_unmount_without_fusermount(tmp_path, monkeypatch):
    """A plain user without fusermount3 is told what to install."""
    with serving(tmp_path / "mnt") as server:
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert "fuse3" in refusal(mountpoint.unmount, str(server.path)).reason
        monkeypatch.undo()


def test_a_program_that_hangs_is_left_behind():
    """No wait without a bound: a program that does not end in time counts as hanging."""
    assert mountpoint._exit_code([sys.executable, "-c", "import signal; signal.pause()"], 0.01) is None
    assert mountpoint._exit_code([sys.executable, "-c", "raise SystemExit(7)"], PATIENCE) == 7
    code = f"import os; os.kill(os.getpid(), {int(signal.SIGTERM)})"
    assert mountpoint._exit_code([sys.executable, "-c", code], PATIENCE) == -signal.SIGTERM


# --- the host ---


@pytest.fixture
def host(tmp_path):
    """A host where all is well, as arguments of check_host; tests spoil one part each."""
    (tmp_path / "default_request_timeout").write_text("0\n")
    (tmp_path / "max_request_timeout").write_text("0\n")
    (tmp_path / "status").write_text("Name:\tx\nCapEff:\t000001ffffffffff\n")
    return {"device": "/dev/null", "sysctl": str(tmp_path), "status": str(tmp_path / "status")}


def problem(host) -> mountpoint.Problem:
    (found,) = mountpoint.check_host(**host)
    assert found.what.endswith(".")
    assert found.remedy.endswith(".")
    return found


def test_good_host(host, monkeypatch):
    """Nothing to say."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert mountpoint.check_host(**host) == []


def test_this_host():
    """The tests mount, so there must be nothing to say here either."""
    assert mountpoint.check_host() == []


def test_host_without_device(host, tmp_path, monkeypatch):
    """/dev/fuse is missing, or is not what it should be, or may not be opened."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "modprobe fuse" in problem(host | {"device": str(tmp_path / "none")}).remedy
    assert "not a device" in problem(host | {"device": str(tmp_path / "status")}).what

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    assert "Permission denied" in problem(host).what


@pytest.mark.parametrize("name", ["default_request_timeout", "max_request_timeout"])
def test_host_with_a_request_timeout(host, tmp_path, monkeypatch, name):
    """Either setting of the kernel would end the mount under a long wait; an old kernel has none."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (tmp_path / name).write_text("10\n")
    found = problem(host)
    assert "10" in found.what
    assert f"{tmp_path}/{name}" in found.remedy
    (tmp_path / name).unlink()
    assert mountpoint.check_host(**host) == []


def test_plain_user_without_fusermount(host, tmp_path, monkeypatch):
    """Only root mounts without fusermount3."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "apt-get install fuse3" in problem(host).remedy
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert mountpoint.check_host(**host) == []


def test_root_without_capability(host, tmp_path, monkeypatch):
    """Root in a container may lack the right to mount."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (tmp_path / "status").write_text("CapEff:\t00000000a80425fb\n")
    assert "--cap-add SYS_ADMIN" in problem(host).remedy
