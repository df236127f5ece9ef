"""Laws of host paths: nothing that is named here can lead out of its folder."""

import contextlib
import os
import pathlib
import socket
import stat

import pytest

from rnixfs import hostfile, hostpath, limits
from rnixfs.errors import Code, SyscallError
from rnixfs.hostpath import Root, Roots, Spot, by_openat2, by_steps

OPENERS = [by_openat2, by_steps]


@pytest.fixture(params=OPENERS, ids=lambda one: one.__name__)
def opener(request):
    return request.param


@pytest.fixture
def ground(tmp_path: pathlib.Path):
    """A root with a file and a folder, and a secret outside of it."""
    root = tmp_path / "root"
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "file").write_text("inside")
    (root / "sub" / "deep" / "leaf").write_text("leaf")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    return root


def roots_of(*paths: pathlib.Path, opener=None, avoid=""):
    return Roots([str(path) for path in paths], lambda: avoid, opener)


def refused(call, *args, **more) -> Code:
    with pytest.raises(SyscallError) as caught:
        call(*args, **more)
    return caught.value.code


def test_the_opener_that_is_chosen_works_here(tmp_path):
    """Whatever the kernel and the sandbox around us allow, folders can be opened."""
    assert hostpath.best_opener() in OPENERS
    root = Root("/", "/")
    with root.folder(str(tmp_path.resolve()).strip("/")) as place:
        assert stat.S_ISDIR(os.fstat(place).st_mode)


def test_both_openers_open_the_same_folder(ground, opener):
    """A canonical path leads to its folder."""
    root = Root(str(ground), str(ground), opener)
    with root.folder("sub/deep") as place:
        assert os.fstat(place).st_ino == (ground / "sub" / "deep").stat().st_ino
    with root.folder("") as place:
        assert os.fstat(place).st_ino == ground.stat().st_ino


@pytest.mark.parametrize("rel", ["..", "sub/../..", "out", "out/..", "loop", "file", "sub/up/outside"])
def test_no_opener_follows_what_is_not_a_plain_folder(ground, opener, rel):
    """Links, loops, files and dots are refused alike by both."""
    (ground / "out").symlink_to(ground.parent / "outside")
    (ground / "loop").symlink_to("loop")
    (ground / "sub" / "up").symlink_to("../..")
    root = Root(str(ground), str(ground), opener)
    with pytest.raises(OSError, match=r"directory|cross-device"), root.folder(rel):
        pass


def test_a_root_that_became_a_link_is_refused(ground, opener):
    """A root is the folder it was, not whatever its name leads to now."""
    root = roots_of(ground, opener=opener).all[0]
    ground.rename(ground.parent / "moved")
    ground.symlink_to(ground.parent / "outside")
    with pytest.raises(OSError, match="directory"):
        root.lstat("secret")


def test_a_root_that_was_replaced_by_another_folder_is_the_new_one(ground, opener):
    """No old descriptor keeps showing a folder that is gone."""
    root = roots_of(ground, opener=opener).all[0]
    assert root.lstat("file")
    ground.rename(ground.parent / "moved")
    ground.mkdir()
    (ground / "new").write_text("x")
    assert root.lstat("new").st_size == 1
    with pytest.raises(FileNotFoundError):
        root.lstat("file")


def test_no_descriptor_is_left(ground, opener):
    """Success and failure both close what they opened."""
    root = Root(str(ground), str(ground), opener)
    before = os.listdir("/proc/self/fd")
    root.lstat("sub/deep/leaf")
    for rel in ("nothing/below", "file/below", "sub/deep/leaf/x"):
        with contextlib.suppress(OSError):
            root.lstat(rel)
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_resolve_gives_canonical_places(ground, opener):
    """Dots, doubled slashes and links inside disappear; what is not there yet keeps its name."""
    (ground / "to_sub").symlink_to("sub")
    (ground / "absolute").symlink_to(ground / "sub" / "deep")
    (ground / "sub" / "chain").symlink_to("../to_sub/deep/leaf")
    roots = roots_of(ground, opener=opener)
    for asked, expected in {
        "file": "file",
        ".": "",
        "sub//./deep/": "sub/deep",
        "sub/../file": "file",
        f"{ground}/to_sub/deep/leaf": "sub/deep/leaf",
        "absolute/leaf": "sub/deep/leaf",
        "sub/chain": "sub/deep/leaf",
        "absolute/../../file": "file",
        "new/er/file": "new/er/file",
        f"../{ground.name}/file": "file",
    }.items():
        assert roots.resolve(asked, str(ground)).rel == expected, asked


@pytest.mark.parametrize(
    "asked",
    [
        "/etc/passwd",
        "../outside/secret",
        "sub/../../outside/secret",
        "direct",
        "folder/secret",
        "relative/secret",
        "chain",
        "to_sub/../direct",
        "/",
        "..",
    ],
)
def test_nothing_outside_can_be_named(ground, opener, asked):
    """Whatever way leads out ends in PERMISSION, with the roots in the message."""
    outside = ground.parent / "outside"
    (ground / "direct").symlink_to(outside / "secret")
    (ground / "folder").symlink_to(outside)
    (ground / "relative").symlink_to("../outside")
    (ground / "chain").symlink_to("sub/hop")
    (ground / "sub" / "hop").symlink_to("../folder/secret")
    (ground / "to_sub").symlink_to("sub")
    roots = roots_of(ground, opener=opener)
    with pytest.raises(SyscallError, match=str(ground)) as caught:
        roots.resolve(asked, str(ground))
    assert caught.value.code is Code.PERMISSION


def test_a_link_from_one_root_to_another_is_followed(ground, opener):
    """What may be reached may be reached through a link, too."""
    outside = ground.parent / "outside"
    (ground / "folder").symlink_to(outside)
    spot = roots_of(ground, outside, opener=opener).resolve("folder/secret", str(ground))
    assert spot.path == str(outside / "secret")


def test_a_root_spelled_through_a_link_is_reached_by_both_names(ground, opener):
    """The place is the canonical one, whichever name was used."""
    alias = ground.parent / "alias"
    alias.symlink_to(ground)
    roots = roots_of(alias, opener=opener)
    assert roots.resolve("file", str(alias)).path == str(ground / "file")
    assert roots.resolve(str(ground / "file")).path == str(ground / "file")
    assert refused(roots.resolve, "../outside/secret", str(alias)) is Code.PERMISSION


def test_loops_missing_names_and_nonsense_end_in_their_own_errors(ground, opener):
    """Each failure has its code."""
    (ground / "loop").symlink_to("loop")
    roots = roots_of(ground, opener=opener)
    assert refused(roots.resolve, "loop", str(ground)) is Code.TOO_MANY_LINKS
    assert refused(roots.resolve, "nothing/../file", str(ground)) is Code.NOT_FOUND
    assert refused(roots.resolve, "file/below", str(ground)) is Code.NOT_DIRECTORY
    assert refused(roots.resolve, "", str(ground)) is Code.INVALID
    assert refused(roots.resolve, "a\0b", str(ground)) is Code.INVALID
    assert refused(roots.resolve, "x" * 300, str(ground)) is Code.NAME_TOO_LONG
    assert refused(Roots([]).resolve, "x", str(ground)) is Code.PERMISSION


def test_a_folder_swapped_for_a_link_between_two_steps_is_not_followed(ground):
    """The race that a check of names loses: the swap happens after the path was resolved."""
    swapped: list[str] = []

    def swapping(anchor: int, rel: str) -> int:
        if rel == "sub" and not swapped:
            swapped.append(rel)
            (ground / "sub").rename(ground / "aside")
            (ground / "sub").symlink_to("../outside")
        return by_openat2(anchor, rel)

    (ground / "sub" / "secret").write_text("harmless")
    spot = roots_of(ground).resolve("sub/secret", str(ground))
    racing = Spot(Root(str(ground), str(ground), swapping), spot.rel)
    with pytest.raises(NotADirectoryError):
        hostfile.read_regular(racing, 100)
    assert swapped
    with pytest.raises(NotADirectoryError):
        hostfile.replace_regular(racing, b"gone", None, lambda: None)
    assert (ground.parent / "outside" / "secret").read_text() == "secret"


def test_our_own_mountpoint_is_known_by_its_name_and_never_asked(ground):
    """A path into the mount is refused, also through a link, before anything there is looked at."""
    asked = []

    def noting(anchor: int, rel: str) -> int:
        asked.append(rel)
        return by_steps(anchor, rel)

    mountpoint = ground / "sub" / "rnix"
    mountpoint.mkdir()
    (ground / "way").symlink_to("sub/rnix/proc")
    roots = roots_of(ground, opener=noting, avoid=str(mountpoint))
    for path in ("sub/rnix", "sub/rnix/proc/1/ctl", "way/1/ctl"):
        assert refused(roots.resolve, path, str(ground)) is Code.PERMISSION
    assert not [rel for rel in asked if "rnix" in rel]
    assert roots.resolve("sub/rnixx", str(ground)).rel == "sub/rnixx"


def test_special_files_are_refused_without_waiting(ground):
    """A pipe without a writer, a socket and a device end at once, with the reason."""
    os.mkfifo(ground / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{_fd(ground)}/sock")
    for name, word in (("pipe", "named pipe"), ("sock", "socket")):
        with pytest.raises(SyscallError, match=word) as caught:
            hostfile.read_regular(Spot(Root(str(ground), str(ground)), name), 10)
        assert caught.value.code is Code.PERMISSION
    with pytest.raises(SyscallError, match="device"):
        hostfile.read_regular(Spot(Root("/dev", "/dev"), "null"), 10)
    assert (
        refused(hostfile.read_regular, Spot(Root(str(ground), str(ground)), "sub"), 10) is Code.IS_DIRECTORY
    )


_held: list[int] = []


def _fd(folder: pathlib.Path) -> int:
    """A descriptor of a folder, so that a socket's path stays below its 108 bytes."""
    _held.append(os.open(folder, os.O_PATH))
    return _held[-1]


@pytest.fixture(autouse=True)
def _close_held():
    yield
    while _held:
        os.close(_held.pop())


def test_reading_is_bounded(ground):
    """A file past the limit is refused, not cut."""
    spot = Spot(Root(str(ground), str(ground)), "file")
    assert hostfile.read_regular(spot, 6)[0] == b"inside"
    assert refused(hostfile.read_regular, spot, 5) is Code.TOO_LARGE


def test_replacing_keeps_mode_and_leaves_nothing_behind(ground):
    """The new content has the old mode without set-id bits, and no temporary file stays, come what may."""
    file = ground / "file"
    file.chmod(0o4751)
    spot = Spot(Root(str(ground), str(ground)), "file")
    before = hostfile.read_regular(spot, 100)[1]
    hostfile.replace_regular(spot, b"new", before, lambda: None)
    assert file.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o751
    assert file.stat().st_ino != before.st_ino

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hostfile.replace_regular(spot, b"never", hostfile.read_regular(spot, 100)[1], stop)
    assert file.read_bytes() == b"new"
    assert refused(hostfile.replace_regular, spot, b"never", before, lambda: None) is Code.INVALID
    assert refused(hostfile.replace_regular, spot, b"never", None, lambda: None) is Code.EXISTS
    assert sorted(os.listdir(ground)) == ["file", "sub"]


def test_the_depth_of_links_has_the_limit_of_linux(ground):
    """As many links as the host's kernel follows, and not one more."""
    (ground / "l0").symlink_to("file")
    for index in range(1, limits.LINK_DEPTH_MAX + 1):
        (ground / f"l{index}").symlink_to(f"l{index - 1}")
    roots = roots_of(ground)
    assert roots.resolve(f"l{limits.LINK_DEPTH_MAX - 1}", str(ground)).rel == "file"
    assert refused(roots.resolve, f"l{limits.LINK_DEPTH_MAX}", str(ground)) is Code.TOO_MANY_LINKS
