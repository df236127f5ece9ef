"""Rights and views: what a process may use, what it sees of it, and on whose behalf."""

import contextlib
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rnixfs.errors import Code, SyscallError
from rnixfs.node import Change, Dir, Document, File, FixedDir, Link, Node, Snapshot, fixed_link
from rnixfs.proc.view import Rights, SeenDir, View, covers
from rnixfs.types import Caller, Kind
from rnixfs.vfs import walk
from tests.kernel.kernellab import PERSON, agent, text

PATHS = ("/", "/dev", "/dev/fs", "/dev/fs/a", "/dev/fs/a/b", "/dev/fs2", "/dev/shell", "/mnt", "/mnt/x")
PATH = st.sampled_from(PATHS)
ALLOWED = st.none() | st.sets(PATH, max_size=3)
CHANGES = st.lists(st.tuples(st.sampled_from(["grant", "revoke"]), PATH), max_size=4)


def ancestors(path: str) -> list[str]:
    """The folders above a path, from `/` on."""
    return [one for one in PATHS if one != path and covers(one, path)]


@pytest.mark.parametrize(
    ("prefix", "path", "expected"),
    [
        ("/dev", "/dev", True),
        ("/dev", "/dev/shell", True),
        ("/dev/", "/dev/shell", True),
        ("/", "/dev", True),
        ("/", "/", True),
        ("/dev/fs", "/dev/fs2", False),
        ("/dev/shell", "/dev", False),
    ],
)
def test_a_prefix_counts_by_whole_names(prefix, path, expected):
    """`/dev/fs` says nothing about `/dev/fs2`."""
    assert covers(prefix, path) is expected


# --- rights ---


def changed(rights: Rights, changes: list[tuple[str, str]]) -> Rights:
    """Rights after some changes; those that are refused do nothing."""
    for what, path in changes:
        with contextlib.suppress(SyscallError):
            (rights.grant if what == "grant" else rights.revoke)(path)
    return rights


@given(ALLOWED, ALLOWED, ALLOWED, CHANGES, CHANGES, CHANGES)
def test_a_childs_rights_are_within_its_parents_always(first, second, third, one, two, three):
    """Whatever is granted and revoked, before or after, at any generation."""
    grandparent = Rights(first)
    parent = Rights(second, grandparent)
    child = Rights(third, parent)
    for rights, changes in ((child, three), (parent, two), (grandparent, one), (child, three)):
        changed(rights, changes)
        for path in PATHS:
            assert not child.permits(path) or parent.permits(path)
            assert not parent.permits(path) or grandparent.permits(path)


@given(ALLOWED, CHANGES, PATH)
def test_a_grant_gives_the_path_and_what_is_below_it_and_nothing_else(allowed, changes, path):
    """Other paths stay as they were."""
    rights = changed(Rights(allowed), changes)
    before = {one: rights.permits(one) for one in PATHS}
    rights.grant(path)
    for one in PATHS:
        assert rights.permits(one) is (covers(path, one) or before[one]), one


@given(ALLOWED, CHANGES, PATH)
def test_a_revoke_takes_the_path_and_what_is_below_it_and_nothing_else(allowed, changes, path):
    """Other paths stay as they were."""
    rights = changed(Rights(allowed), changes)
    before = {one: rights.permits(one) for one in PATHS}
    rights.revoke(path)
    for one in PATHS:
        assert rights.permits(one) is (before[one] and not covers(path, one)), one


@settings(max_examples=300)
@given(ALLOWED, ALLOWED, CHANGES, CHANGES)
def test_whatever_may_be_used_can_be_reached(first, second, one, two):
    """The folders on the way to a permitted path can be passed, and others lead to nothing."""
    parent = changed(Rights(first), one)
    child = changed(Rights(second, parent), two)
    for path in PATHS:
        if child.permits(path):
            for above in ancestors(path):
                assert child.permits(above) or child.leads_to(above), (above, path)


def test_a_narrow_grant_does_not_undo_a_wide_revoke():
    """`revoke /dev` then `grant /dev/shell` leaves the shell alone."""
    rights = Rights(None)
    rights.revoke("/dev")
    rights.grant("/dev/shell")
    assert rights.permits("/dev/shell")
    assert not rights.permits("/dev/fs")
    assert rights.permits("/mnt")


def test_a_wide_grant_undoes_a_narrow_revoke():
    """A grant holds for what is below its path, as the help of `ctl` says."""
    rights = Rights(["/dev"])
    rights.revoke("/dev/shell")
    assert not rights.permits("/dev/shell")
    rights.grant("/dev")
    assert rights.permits("/dev/shell")


def test_a_parent_that_loses_a_right_takes_it_from_its_children():
    """At once, and they get it back with it."""
    parent = Rights(["/dev"])
    child = Rights(None, parent)
    assert child.permits("/dev/shell")
    parent.revoke("/dev/shell")
    assert not child.permits("/dev/shell")
    parent.grant("/dev/shell")
    assert child.permits("/dev/shell")


def test_what_a_parent_may_not_use_cannot_be_granted():
    """The refusal names the path."""
    child = Rights([], Rights(["/dev/fs"]))
    child.grant("/dev/fs/a")
    with pytest.raises(SyscallError, match="/dev/shell") as caught:
        child.grant("/dev/shell")
    assert caught.value.code is Code.PERMISSION


def test_a_wide_child_of_a_narrow_parent_reaches_what_both_may_use():
    """A child with `/dev` below a parent with `/dev/fs/a` may walk there."""
    child = Rights(["/dev"], Rights(["/dev/fs/a"]))
    assert child.permits("/dev/fs/a")
    assert child.leads_to("/")
    assert child.leads_to("/dev")
    assert child.leads_to("/dev/fs")
    assert not child.leads_to("/dev/shell")


def test_what_caps_shows():
    """Sorted paths, null for everything."""
    rights = Rights(["/mnt", "/dev"])
    rights.revoke("/dev/shell")
    assert rights.listing() == {"granted": ["/dev", "/mnt"], "denied": ["/dev/shell"]}
    assert Rights(None).listing() == {"granted": None, "denied": []}


# --- views ---


class Noting(Dir):
    """A folder that notes what is asked of it and by whom."""

    def __init__(self, names: tuple[str, ...] = ()) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.names = names
        self.callers: set[int] = set()

    def _note(self, caller: Caller, *words: str) -> Node:
        self.callers.add(caller.agent)
        self.asked.append(words)
        return text("made", b"")

    def lookup(self, name, caller):
        self.callers.add(caller.agent)
        return text(name, name.encode()) if name in self.names else super().lookup(name, caller)

    def entries(self, caller):
        self.callers.add(caller.agent)
        return [(name, text(name, b"")) for name in self.names]

    def create(self, name, mode, caller, flags):
        return self._note(caller, "create", name), Snapshot(b"")

    def mkdir(self, name, mode, caller):
        self._note(caller, "mkdir", name)
        return FixedDir(name)

    def unlink(self, name, caller):
        self._note(caller, "unlink", name)

    def rmdir(self, name, caller):
        self._note(caller, "rmdir", name)

    def rename(self, name, target, new, caller, flags):
        assert not isinstance(target, SeenDir)
        self._note(caller, "rename", name, new)

    def symlink(self, name, to, caller):
        self._note(caller, "symlink", name, to)
        return fixed_link(name, to)

    def link(self, name, node, caller):
        assert type(node) is Document
        return self._note(caller, "link", name)

    def setattr(self, caller, change):
        self._note(caller, "setattr")


class Opened(Node):
    """A file that notes who opens it."""

    def __init__(self) -> None:
        self.callers: list[Caller] = []

    def stat(self):
        return text("x", b"").stat()

    def open(self, caller: Caller, flags: int) -> File:
        self.callers.append(caller)
        return Snapshot(b"opened")

    def setattr(self, caller: Caller, change: Change) -> None:
        self.callers.append(caller)


class Scene:
    """A small tree and a view of it.

    Args:
        allowed: what the process with pid 7 may use.
        binds: nodes of its own.
    """

    def __init__(self, *allowed: str, binds: dict[str, Node] | None = None) -> None:
        self.shell = Opened()
        self.files = Noting(("a", "b"))
        dev = FixedDir("dev", {"shell": self.shell, "files": self.files, "edit": text("edit", b"e")})
        proc = FixedDir(
            "proc",
            {
                "7": FixedDir("7", {"status": text("status7", b"7")}),
                "8": FixedDir("8", {"status": text("status8", b"8")}),
                "self": Link("self", lambda caller: str(caller.agent)),
                "spawn": text("spawn", b""),
            },
        )
        sys = FixedDir("sys", {"version": text("version", b"1"), "ctl": text("ctl", b"")})
        lib = FixedDir("lib", {"x": text("x", b"")})
        self.main = FixedDir(
            "root", {"README.md": text("readme", b"r"), "dev": dev, "proc": proc, "sys": sys, "lib": lib}
        )
        self.rights = Rights(allowed)

        def own(path: str) -> bool:
            return covers("/proc/7", path)

        self.view = View(7, self.main, self.rights, own, binds or {})

    def walk(self, path: str, caller: Caller = PERSON, follow: bool = True) -> Node:
        return walk(self.view.root, path, caller, follow=follow)

    def folder(self, path: str) -> Dir:
        found = self.walk(path)
        assert isinstance(found, Dir)
        return found

    def names(self, path: str) -> list[str]:
        return [name for name, _ in self.folder(path).entries(PERSON)]

    def refuses(self, path: str) -> Code:
        with pytest.raises(SyscallError) as caught:
            self.walk(path).open(PERSON, os.O_RDONLY)
        return caught.value.code


def test_a_view_lists_what_may_be_used_and_the_way_to_it():
    """Other names are not even listed."""
    scene = Scene("/dev/shell")
    assert scene.names("/") == ["README.md", "dev", "proc", "sys", "lib"]
    assert scene.names("/dev") == ["shell"]
    assert scene.names("/proc") == ["7", "self"]
    assert scene.names("/sys") == ["version"]
    assert Scene().names("/") == ["README.md", "proc", "sys", "lib"]


def test_what_may_not_be_used_is_refused_by_name_too():
    """PERMISSION for what is there, NOT_FOUND for what is not, and the refusal says what would be allowed."""
    scene = Scene("/dev/shell")
    assert scene.refuses("/dev/edit") is Code.PERMISSION
    assert scene.refuses("/dev/files/a") is Code.PERMISSION
    assert scene.refuses("/sys/ctl") is Code.PERMISSION
    assert scene.refuses("/proc/8/status") is Code.PERMISSION
    assert scene.refuses("/proc/spawn") is Code.PERMISSION
    assert scene.refuses("/dev/absent") is Code.NOT_FOUND
    with pytest.raises(SyscallError, match="process 7 may not use /dev/edit; it may use /dev/shell"):
        scene.walk("/dev/edit")
    assert scene.walk("/proc/7/status").open(PERSON, os.O_RDONLY).read(9, 0) == b"7"
    assert scene.walk("/lib/x")


def test_no_path_leads_around_a_view():
    """`..`, links and doubled slashes end at the same refusal."""
    scene = Scene("/dev/shell")
    for path in ("/dev/../dev/edit", "//dev//edit", "/proc/self/../../dev/edit", "/../dev/edit"):
        assert scene.refuses(path) is Code.PERMISSION


def test_an_open_through_a_view_acts_for_the_process():
    """Whoever makes it: a person, another agent, or the process itself."""
    scene = Scene("/dev")
    for caller in (PERSON, agent(8), agent(7), Caller(5, 6, host_pid=9, session=4)):
        scene.walk("/dev/shell", caller).open(caller, os.O_RDWR)
        assert scene.shell.callers[-1] == Caller(caller.uid, caller.gid, 7, caller.host_pid, caller.session)
        scene.walk("/dev/shell", caller).setattr(caller, Change(size=0))
        assert scene.shell.callers[-1].agent == 7
    assert scene.walk("/proc/self/status").open(PERSON, os.O_RDONLY).read(9, 0) == b"7"


def test_rights_are_asked_at_each_open_of_a_node_that_was_found():
    """A revoked path cannot be opened any more; what is open stays open."""
    scene = Scene("/dev")
    node = scene.walk("/dev/shell")
    opened = node.open(PERSON, os.O_RDONLY)
    scene.rights.revoke("/dev/shell")
    for call in (lambda: node.open(PERSON, os.O_RDONLY), lambda: node.setattr(PERSON, Change(size=0))):
        with pytest.raises(SyscallError) as caught:
            call()
        assert caught.value.code is Code.PERMISSION
    assert opened.read(99, 0) == b"opened"
    scene.rights.grant("/dev/shell")
    node.open(PERSON, os.O_RDONLY)


CALLS = {
    "create": lambda folder: folder.create("n", 0o644, PERSON, 0)[0],
    "mkdir": lambda folder: folder.mkdir("n", 0o755, PERSON),
    "unlink": lambda folder: folder.unlink("n", PERSON),
    "rmdir": lambda folder: folder.rmdir("n", PERSON),
    "rename": lambda folder: folder.rename("n", folder, "m", PERSON, 0),
    "symlink": lambda folder: folder.symlink("n", "to", PERSON),
    "link": lambda folder: folder.link("n", folder.lookup("a", PERSON), PERSON),
    "setattr": lambda folder: folder.setattr(PERSON, Change(mode=0o700)),
}


@pytest.mark.parametrize("what", CALLS)
def test_changes_through_a_view_act_for_the_process(what):
    """And what they make is seen through the view again."""
    scene = Scene("/dev/files")
    made = CALLS[what](scene.walk("/dev/files"))
    assert [words[0] for words in scene.files.asked] == [what]
    assert scene.files.callers == {7}
    if isinstance(made, Node):
        assert not isinstance(made, Noting | Document | FixedDir)


@pytest.mark.parametrize("what", CALLS)
def test_changes_that_a_view_does_not_hold_are_refused(what):
    """Nothing reaches the folder."""
    scene = Scene("/dev/files")
    folder = scene.walk("/dev/files")
    scene.rights.revoke("/dev/files")
    with pytest.raises(SyscallError) as caught:
        CALLS[what](folder)
    assert caught.value.code is Code.PERMISSION
    assert scene.files.asked == []


def test_a_rename_needs_the_right_to_both_names():
    """What may not be named as a target cannot be overwritten."""
    scene = Scene("/dev/files")
    folder = scene.walk("/dev/files")
    assert isinstance(folder, Dir)
    scene.rights.revoke("/dev/files/secret")
    for call in (
        lambda: folder.rename("a", folder, "secret", PERSON, 0),
        lambda: folder.rename("secret", folder, "a", PERSON, 0),
    ):
        with pytest.raises(SyscallError):
            call()
    assert scene.files.asked == []


def test_a_bound_node_stands_in_place_of_the_main_one():
    """In a walk and in a listing, with the same rights."""
    own = FixedDir("own", {"mine": text("mine", b"m")})
    scene = Scene("/dev/files", binds={"/dev/files": own})
    assert scene.names("/dev/files") == ["mine"]
    assert scene.walk("/dev/files/mine").open(PERSON, os.O_RDONLY).read(9, 0) == b"m"
    listed = dict(scene.folder("/dev").entries(PERSON))["files"]
    assert isinstance(listed, Dir)
    assert [name for name, _ in listed.entries(PERSON)] == ["mine"]
    assert Scene(binds={"/dev/files": own}).refuses("/dev/files/mine") is Code.PERMISSION
    assert scene.files.callers == set()


def test_seen_nodes_are_values():
    """The same thing through the same view is equal; through another view it is another thing."""
    scene, other = Scene("/dev", "/proc"), Scene("/dev")
    assert scene.walk("/dev/edit") == scene.walk("/dev/edit")
    assert hash(scene.walk("/dev/edit")) == hash(scene.walk("/dev/edit"))
    assert scene.walk("/dev") == scene.walk("/dev")
    assert scene.walk("/dev") != other.walk("/dev")
    assert scene.walk("/dev/edit") != other.walk("/dev/edit")
    assert scene.walk("/dev/edit") != walk(scene.main, "/dev/edit", PERSON)
    link = scene.walk("/proc/self", follow=False)
    assert link == scene.walk("/proc/self", follow=False)
    assert link.stat().kind is Kind.LINK


def test_attributes_pass_through_a_view():
    """stat shows what the node itself says."""
    scene = Scene("/dev")
    assert scene.walk("/dev/edit").stat() == text("edit", b"e").stat()
    assert scene.walk("/dev").stat().kind is Kind.DIRECTORY
