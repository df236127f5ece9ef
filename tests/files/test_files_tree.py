"""Laws of dev/fs: real files below the roots, and nothing else."""

import contextlib
import ctypes
import os
import pathlib
import shutil
import stat
import tempfile

import pytest

from rnixfs.errors import Code, SyscallError
from rnixfs.hostdir import HostDir, HostRoots, host_roots
from rnixfs.hostnode import HostLink, HostNode, inward
from rnixfs.hostpath import by_openat2, by_steps
from rnixfs.node import Change, Dir, Node
from rnixfs.types import Caller, Kind, Ready
from rnixfs.vfs import walk

ME = Caller(os.getuid(), os.getgid())


@pytest.fixture(params=[by_openat2, by_steps], ids=lambda one: one.__name__)
def tree(request, tmp_path: pathlib.Path):
    """`make(writable)` gives dev/fs with tmp_path/root as its only root."""
    (tmp_path / "root").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")

    def make(writable: bool = True, **more) -> Dir:
        return host_roots("key", (str(tmp_path / "root"),), writable, opener=request.param, **more)

    return make


@pytest.fixture
def root(tree, tmp_path):
    """The folder on the host."""
    return tmp_path / "root"


def at(fs: Dir, path: object, follow: bool = True) -> Node:
    return walk(fs, str(path), ME, follow=follow)


def folder(fs: Dir, path: object) -> Dir:
    node = at(fs, path)
    assert isinstance(node, Dir)
    return node


def append(path: pathlib.Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def names(node: Dir) -> list[str]:
    return sorted(name for name, _ in node.entries(ME))


def content(fs: Dir, path: object) -> bytes:
    file = at(fs, path).open(ME, os.O_RDONLY)
    try:
        return file.read(1 << 20, 0)
    finally:
        file.close()


def refused(call, *args) -> Code:
    with pytest.raises(SyscallError) as caught:
        call(*args)
    return caught.value.code


def test_only_what_leads_to_a_root_is_listed_above_it(tree, root):
    """Folders on the way show one name each; their other names are not there."""
    fs = tree()
    here = fs
    for part in root.parts[1:]:
        assert names(here) == [part]
        assert here.stat().kind is Kind.DIRECTORY
        here = folder(here, f"/{part}")
    assert isinstance(here, HostDir)
    assert refused(at, fs, "/etc/passwd") is Code.NOT_FOUND
    assert refused(at, fs, root.parent / "outside" / "secret") is Code.NOT_FOUND
    assert refused(fs.mkdir, "new", 0o755, ME) is Code.NOT_PERMITTED


def test_several_roots_share_their_way(tmp_path):
    """Nested roots are part of the outer one; the top can be a root itself."""
    for name in ("a", "b", "a/in"):
        (tmp_path / name).mkdir()
    fs = host_roots("k", (f"{tmp_path}/a/in", f"{tmp_path}/b/", f"{tmp_path}/a"), False)
    assert names(folder(fs, tmp_path)) == ["a", "b"]
    assert names(folder(fs, tmp_path / "a")) == ["in"]
    whole = host_roots("k", ("/",), False)
    assert isinstance(whole, HostDir)
    assert isinstance(at(whole, tmp_path / "a"), HostDir)
    assert isinstance(host_roots("k", (), False), HostRoots)
    assert names(host_roots("k", (), False)) == []


def test_a_root_that_is_gone_is_not_listed_and_comes_back(tree, root):
    """The way to a root shows what is there now."""
    fs = tree()
    assert names(folder(fs, root.parent)) == ["root"]
    root.rmdir()
    assert names(folder(fs, root.parent)) == []
    assert refused(at, fs, root) is Code.NOT_FOUND
    root.mkdir()
    assert names(folder(fs, root.parent)) == ["root"]


def test_attributes_are_those_of_the_host(tree, root):
    """Size, mode, time and number of names are true."""
    file = root / "file"
    file.write_bytes(b"x" * 1234)
    file.chmod(0o640)
    os.utime(file, ns=(1, 1_700_000_000_123_456_789))
    os.link(file, root / "second")
    found = at(tree(), file).stat()
    assert (found.kind, found.size, found.mode) == (Kind.FILE, 1234, 0o640)
    assert (found.mtime_ns, found.links, found.blocks) == (
        1_700_000_000_123_456_789,
        2,
        file.stat().st_blocks,
    )
    assert (found.ttl, found.name_ttl) == (1.0, 0.0), (
        "a name is asked for at each use, its attributes are not"
    )
    (root / "sub").mkdir(mode=0o750)
    assert at(tree(), root / "sub").stat().kind is Kind.DIRECTORY
    assert at(tree(), root / "sub").stat().mode == 0o750


def test_reading_gives_what_is_there_at_any_offset(tree, root):
    """As pread(2), and fresh at each read."""
    (root / "file").write_bytes(b"0123456789")
    file = at(tree(), root / "file").open(ME, os.O_RDONLY)
    assert (file.read(4, 0), file.read(4, 8), file.read(4, 10)) == (b"0123", b"89", b"")
    append(root / "file", b"more")
    assert file.read(100, 10) == b"more"
    assert file.poll() & Ready.READ
    assert refused(file.write, b"x", 0) is Code.BAD_FD
    file.close()
    file.close()


def test_names_are_the_bytes_of_the_host(tree, root):
    """Names that are no UTF-8 are listed, found, made and removed by their surrogates."""
    odd = os.fsdecode(b"caf\xe9")
    pathlib.Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9")).write_text("latin")
    fs = tree()
    assert names(folder(fs, root)) == [odd]
    assert content(fs, f"{root}/{odd}") == b"latin"
    folder(fs, root).rename(odd, folder(fs, root), os.fsdecode(b"\xff"), ME, 0)
    assert os.listdir(os.fsencode(root)) == [b"\xff"]
    folder(fs, root).unlink(os.fsdecode(b"\xff"), ME)
    assert os.listdir(root) == []


def test_what_is_said_of_odd_names_is_text(tree, root):
    """A message can be put into JSON whatever the name it speaks of."""
    odd = os.fsdecode(b"caf\xe9")
    top = folder(tree(), root)
    (root / odd).mkdir()
    for call, args in ((top.lookup, ("x" + odd, ME)), (top.unlink, (odd, ME)), (top.mkdir, (odd, 0o700, ME))):
        with pytest.raises(SyscallError) as caught:
            call(*args)
        assert "caf\\xe9" in caught.value.reason.encode().decode()


def test_a_file_put_in_the_place_of_another_is_another_node(tree, root):
    """Equality says the same thing: an edit by rename is a new thing, a second look is not."""
    (root / "file").write_text("old")
    fs = tree()
    first = at(fs, root / "file")
    assert first == at(fs, root / "file")
    assert hash(first) == hash(at(fs, root / "file"))
    (root / "new").write_text("new content")
    (root / "new").rename(root / "file")
    second = at(fs, root / "file")
    assert second != first
    opened = first.open(ME, os.O_RDONLY)
    assert opened.read(100, 0) == b"new content"
    assert opened.direct, "pages of the old file must not mix with the new one's"
    opened.close()
    assert first.stat().size == len("new content")


def test_an_open_file_outlives_its_name(tree, root):
    """After unlink, stat and truncate of the open file still work; after close it is gone."""
    fs = tree()
    node, file = folder(fs, root).create("tmp", 0o600, ME, os.O_RDWR)
    file.write(b"12345", 0)
    folder(fs, root).unlink("tmp", ME)
    assert node.stat().size == 5
    assert node.stat().links == 0
    node.setattr(ME, Change(size=2))
    assert file.read(10, 0) == b"12"
    file.close()
    assert refused(node.stat) is Code.NOT_FOUND


def test_a_name_that_changed_its_kind_is_not_what_it_was(tree, root):
    """A node never turns from file to folder or link."""
    for make in (lambda path: path.mkdir(), lambda path: path.symlink_to("elsewhere")):
        (root / "x").write_text("file")
        node = at(tree(), root / "x")
        (root / "x").unlink()
        make(root / "x")
        assert refused(node.stat) is Code.NOT_FOUND
        assert refused(node.open, ME, os.O_RDONLY) in (Code.IS_DIRECTORY, Code.TOO_MANY_LINKS)
        (root / "x").rmdir() if (root / "x").is_dir() else (root / "x").unlink()


# --- links ---


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("file", "file"),
        ("../up", "../up"),
        ("../../../top", "../../../top"),
        ("./a//b", "./a//b"),
        ("../../../../../etc/passwd", "../../../etc/passwd"),
        ("/etc/passwd", "../../../etc/passwd"),
        ("/a/b/c/x", "x"),
        ("/a/b", ".."),
        ("/", "../../.."),
        ("//etc", "../../../etc"),
        ("x/../../y", "../y"),
        ("x/../../../../../../y", "../../../y"),
        ("", "."),
    ],
)
def test_a_shown_link_never_climbs_above_the_top(text, shown):
    """In a folder three deep no text has more than three steps up, and plain ones stay as they are."""
    assert inward("/a/b/c", text, lambda path: path) == shown


def test_links_inside_work_and_links_outside_end_in_nothing(tree, root):
    """Whoever follows a link of dev/fs stays in it."""
    (root / "sub").mkdir()
    (root / "sub" / "file").write_text("inside")
    (root / "relative").symlink_to("sub/file")
    (root / "absolute").symlink_to(root / "sub" / "file")
    (root / "folder").symlink_to(root / "sub")
    (root / "sub" / "chain").symlink_to("../folder/../absolute")
    (root / "out").symlink_to(root.parent / "outside" / "secret")
    (root / "out2").symlink_to("../outside/secret")
    (root / "out3").symlink_to("../" * 40 + "etc/passwd")
    fs = tree()
    for name in ("relative", "absolute", "folder/file", "sub/chain"):
        assert content(fs, root / name) == b"inside", name
    for name in ("out", "out2", "out3"):
        assert refused(at, fs, root / name) is Code.NOT_FOUND, name
        link = at(fs, root / name, follow=False)
        assert isinstance(link, HostLink)
        assert link.stat().size == len(link.target(ME).encode())


def test_dots_behind_a_link_are_those_of_the_place_it_leads_to(tree, root):
    """`current/../x` with a link `current` is what the host's kernel makes of it."""
    (root / "releases" / "5").mkdir(parents=True)
    (root / "current").symlink_to("releases/5")
    (root / "releases" / "shared").write_text("right")
    (root / "shared").write_text("wrong")
    (root / "link").symlink_to("current/../shared")
    assert (root / "link").read_text() == "right"
    assert content(tree(), root / "link") == b"right"


def test_a_link_to_a_folder_high_up_cannot_be_climbed_from(tree, root):
    """The trick that a count of dots alone misses: a link to the top, then up through it."""
    (root / "top").symlink_to("../" * (len(root.parts) - 1))
    (root / "climb").symlink_to("top/../../../../../etc/passwd")
    link = at(tree(), root / "climb", follow=False)
    assert isinstance(link, HostLink)
    assert link.target(ME).count("..") <= len(root.parts) - 1
    assert not link.target(ME).startswith("top/..")


# --- what must not be opened or touched ---


def test_special_files_are_listed_but_not_opened(tree, root):
    """A pipe is shown as an empty file; opening it ends at once."""
    os.mkfifo(root / "pipe")
    fs = tree()
    assert names(folder(fs, root)) == ["pipe"]
    found = at(fs, root / "pipe").stat()
    assert (found.kind, found.size) == (Kind.FILE, 0)
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_TRUNC):
        assert refused(at(fs, root / "pipe").open, ME, flags) is Code.PERMISSION
    assert refused(folder(fs, root).create, "pipe", 0o600, ME, os.O_WRONLY) is Code.PERMISSION


def test_our_own_mountpoint_is_an_empty_folder_that_nobody_asks(tree, root, monkeypatch):
    """Listing, looking up and changing what leads to the mount makes no call on it."""
    mountpoint = root / "mnt" / "rnix"
    mountpoint.mkdir(parents=True)
    (mountpoint / "trap").write_text("")
    (root / "mnt" / "other").write_text("")
    fs = tree(avoid=lambda: str(mountpoint))
    real = os.stat

    def watched(path, **more):
        assert os.fspath(path) != "rnix", "the mountpoint was asked what it is"
        return real(path, **more)

    monkeypatch.setattr(os, "stat", watched)
    parent = folder(fs, root / "mnt")
    assert names(parent) == ["other", "rnix"]
    empty = parent.lookup("rnix", ME)
    assert isinstance(empty, Dir)
    assert names(empty) == []
    assert empty.stat().kind is Kind.DIRECTORY
    for change in (parent.rmdir, parent.unlink):
        assert refused(change, "rnix", ME) is Code.PERMISSION
    top = folder(fs, root)
    assert refused(top.rename, "mnt", top, "moved", ME, 0) is Code.PERMISSION
    assert refused(parent.rename, "other", parent, "rnix", ME, 0) is Code.PERMISSION


# --- changing ---


def test_a_tree_that_can_only_be_read_refuses_every_change(tree, root):
    """Each way to change something ends in READ_ONLY and changes nothing."""
    (root / "file").write_text("keep")
    (root / "sub").mkdir()
    (root / "link").symlink_to("file")
    fs = tree(writable=False)
    top, file = folder(fs, root), at(fs, root / "file")
    before = {path.name: path.lstat().st_mtime_ns for path in root.iterdir()}
    for call, args in [
        (file.open, (ME, os.O_WRONLY)),
        (file.open, (ME, os.O_RDWR)),
        (file.open, (ME, os.O_RDONLY | os.O_TRUNC)),
        (file.setattr, (ME, Change(size=0))),
        (file.setattr, (ME, Change(mode=0o777))),
        (top.setattr, (ME, Change(times=(1, 1)))),
        (at(fs, root / "link", follow=False).setattr, (ME, Change(times=(1, 1)))),
        (top.create, ("new", 0o644, ME, os.O_WRONLY)),
        (top.mkdir, ("new", 0o755, ME)),
        (top.unlink, ("file", ME)),
        (top.rmdir, ("sub", ME)),
        (top.rename, ("file", top, "other", ME, 0)),
        (top.symlink, ("new", "file", ME)),
        (top.link, ("new", file, ME)),
    ]:
        assert refused(call, *args) is Code.READ_ONLY, call
    assert {path.name: path.lstat().st_mtime_ns for path in root.iterdir()} == before
    assert content(fs, root / "file") == b"keep"


def test_writing_reaches_the_host_at_once(tree, root):
    """Create, write, append, truncate: the host sees each of them."""
    fs = tree()
    node, file = folder(fs, root).create("new", 0o640, ME, os.O_RDWR)
    assert isinstance(node, HostNode)
    assert file.write(b"hello", 0) == 5
    assert (root / "new").read_text() == "hello"
    assert stat.S_IMODE((root / "new").stat().st_mode) == 0o640
    assert file.read(10, 1) == b"ello"
    file.truncate(2)
    assert node.stat().size == 2
    file.close()
    appending = node.open(ME, os.O_WRONLY | os.O_APPEND)
    append(root / "new", b"[host]")
    appending.write(b"!", 0)
    assert refused(appending.read, 1, 0) is Code.BAD_FD
    appending.close()
    assert (root / "new").read_text() == "he[host]!"
    node.open(ME, os.O_WRONLY | os.O_TRUNC).close()
    assert (root / "new").read_bytes() == b""


def test_create_opens_what_is_there_unless_it_must_be_new(tree, root):
    """O_CREAT without O_EXCL opens, with it refuses; a link in the place is never followed."""
    (root / "file").write_text("old")
    (root / "link").symlink_to(root.parent / "outside" / "secret")
    top = folder(tree(), root)
    node, file = top.create("file", 0o600, ME, os.O_RDWR)
    assert file.read(10, 0) == b"old"
    file.close()
    assert node == top.lookup("file", ME)
    assert refused(top.create, "file", 0o600, ME, os.O_WRONLY | os.O_EXCL) is Code.EXISTS
    assert refused(top.create, "link", 0o600, ME, os.O_WRONLY | os.O_TRUNC) is Code.TOO_MANY_LINKS
    assert (root.parent / "outside" / "secret").read_text() == "secret"


def test_folders_are_made_and_removed(tree, root):
    """With exactly the mode that was asked for, and with the errors of the host."""
    top = folder(tree(), root)
    made = top.mkdir("sub", 0o777, ME)
    assert isinstance(made, HostDir)
    assert made.stat().mode == 0o777
    made.create("x", 0o600, ME, os.O_WRONLY)[1].close()
    assert refused(top.mkdir, "sub", 0o755, ME) is Code.EXISTS
    assert refused(top.rmdir, "sub", ME) is Code.NOT_EMPTY
    assert refused(top.unlink, "sub", ME) in (Code.IS_DIRECTORY, Code.NOT_PERMITTED)
    assert refused(top.rmdir, "nothing", ME) is Code.NOT_FOUND
    assert refused(top.mkdir, "n" * 256, 0o755, ME) is Code.NAME_TOO_LONG
    for name in ("", ".", "..", "a/b", "a\0"):
        assert refused(top.mkdir, name, 0o755, ME) is Code.INVALID
    made.unlink("x", ME)
    top.rmdir("sub", ME)
    assert os.listdir(root) == []


def test_renaming_moves_replaces_and_refuses(tree, root):
    """Plain rename replaces, RENAME_NOREPLACE does not, other flags and other trees are refused."""
    (root / "a").write_text("a")
    (root / "b").write_text("b")
    (root / "sub").mkdir()
    fs = tree()
    top, sub = folder(fs, root), folder(fs, root / "sub")
    assert refused(top.rename, "a", top, "b", ME, 1) is Code.EXISTS
    assert refused(top.rename, "a", top, "b", ME, 2) is Code.INVALID
    assert refused(top.rename, "a", fs, "b", ME, 0) is Code.CROSS_DEVICE
    assert refused(top.rename, "nothing", top, "b", ME, 0) is Code.NOT_FOUND
    top.rename("a", sub, "moved", ME, 1)
    assert (root / "sub" / "moved").read_text() == "a"
    sub.rename("moved", top, "b", ME, 0)
    assert (root / "b").read_text() == "a"
    assert refused(top.rename, "sub", sub, "into_itself", ME, 0) is Code.INVALID
    assert sorted(os.listdir(root)) == ["b", "sub"]


def test_links_are_made_with_their_own_text(tree, root):
    """The host gets the text as given; a second name shares the file."""
    (root / "file").write_text("x")
    top = folder(tree(), root)
    link = top.symlink("sym", "file", ME)
    assert isinstance(link, HostLink)
    assert os.readlink(root / "sym") == "file"
    second = top.link("hard", at(tree(), root / "file"), ME)
    assert second.stat().links == 2
    assert refused(top.symlink, "sym", "x", ME) is Code.EXISTS
    assert refused(top.link, "new", link, ME) is Code.CROSS_DEVICE
    link.setattr(ME, Change(times=(None, 5)))
    assert os.lstat(root / "sym").st_mtime_ns == 5
    assert (root / "file").stat().st_mtime_ns != 5
    assert refused(link.setattr, ME, Change(mode=0o600)) is Code.NOT_PERMITTED


def test_attributes_can_be_changed_but_not_to_lend_rights(tree, root):
    """Mode, times and size change; owners and set-id bits do not."""
    file = root / "file"
    file.write_text("12345")
    node = at(tree(), file)
    node.setattr(ME, Change(mode=0o600, times=(7, None), size=3))
    assert (file.stat().st_mode & 0o7777, file.stat().st_atime_ns, file.read_text()) == (0o600, 7, "123")
    assert refused(node.setattr, ME, Change(mode=0o4755)) is Code.NOT_PERMITTED
    assert refused(node.setattr, ME, Change(owner=(file.stat().st_uid + 1, -1))) is Code.NOT_PERMITTED
    node.setattr(ME, Change(owner=(file.stat().st_uid, -1)))
    top = folder(tree(), root)
    assert refused(top.setattr, ME, Change(size=0)) is Code.IS_DIRECTORY
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_folder_swapped_for_a_link_is_not_entered(tree, root):
    """Nodes that were looked up before the swap do not lead out after it."""
    (root / "sub").mkdir()
    (root / "sub" / "secret").write_text("harmless")
    fs = tree()
    sub = folder(fs, root / "sub")
    file = sub.lookup("secret", ME)
    (root / "sub").rename(root / "aside")
    (root / "sub").symlink_to(root.parent / "outside")
    assert refused(sub.lookup, "secret", ME) is Code.NOT_DIRECTORY
    assert refused(lambda: list(sub.entries(ME))) is Code.NOT_DIRECTORY
    assert refused(file.open, ME, os.O_RDONLY) is Code.NOT_DIRECTORY
    assert refused(sub.create, "planted", 0o600, ME, os.O_WRONLY) is Code.NOT_DIRECTORY
    assert refused(sub.unlink, "secret", ME) is Code.NOT_DIRECTORY
    assert refused(file.stat) is Code.NOT_FOUND
    assert os.listdir(root.parent / "outside") == ["secret"]


def test_a_huge_folder_is_listed_once_through(tree, root):
    """Each name is asked for once, whatever their number, and a listing can be left at any time."""
    for index in range(3000):
        (root / f"f{index}").touch()
    top = folder(tree(), root)
    assert len(names(top)) == 3000
    before = len(os.listdir("/proc/self/fd"))
    entries = iter(top.entries(ME))
    assert next(entries)[0].startswith("f")
    assert len(os.listdir("/proc/self/fd")) > before
    entries.close()  # type: ignore[attr-defined]
    assert len(os.listdir("/proc/self/fd")) == before


@contextlib.contextmanager
def plain_user():
    """File rights of a user without privileges, for this thread only; nothing changes for one who is."""
    libc = ctypes.CDLL(None)
    uid, gid = libc.setfsuid(-1), libc.setfsgid(-1)
    if uid == 0:
        libc.setfsgid(65534)
        libc.setfsuid(65534)
    try:
        yield
    finally:
        libc.setfsuid(uid)
        libc.setfsgid(gid)


def test_the_rights_of_the_daemon_are_those_of_its_user():
    """What the host refuses to the daemon's user is refused with PERMISSION; the rest works."""
    base = pathlib.Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        base.chmod(0o755)
        (base / "open").write_text("for all")
        (base / "open").chmod(0o644)
        (base / "closed").write_text("for nobody")
        (base / "closed").chmod(0o000)
        (base / "shut").mkdir(mode=0o000)
        fs = host_roots("k", (str(base),), True)
        with plain_user():
            assert content(fs, base / "open") == b"for all"
            assert refused(at(fs, base / "closed").open, ME, os.O_RDONLY) is Code.PERMISSION
            assert refused(lambda: list(folder(fs, base / "shut").entries(ME))) is Code.PERMISSION
            assert at(fs, base / "closed").stat().mode == 0
    finally:
        (base / "shut").chmod(0o700)
        shutil.rmtree(base)
