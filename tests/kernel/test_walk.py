"""Paths: one walk against a model that rewrites names, and what Linux says of odd paths."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rnixfs import limits
from rnixfs.errors import Code, SyscallError
from rnixfs.node import Dir, Document, FixedDir, Link, Node, fixed_link
from rnixfs.types import Caller
from rnixfs.vfs import check_name, walk
from tests.kernel.kernellab import PERSON, agent, text

LINKS = {
    "/up": "..",
    "/here": ".",
    "/top": "/",
    "/tofile": "a/file",
    "/a/tob": "b",
    "/a/toroot": "/a/b",
    "/a/back": "../a/tob/../file",
    "/a/b/chain": "../../a/toroot/deep",
    "/a/dangling": "nowhere",
    "/a/slashed": "b/",
    "/loop": "loop",
    "/ping": "pong",
    "/pong": "a/../ping",
    "/a/b/above": "../../../../a",
}
FOLDERS = ("/a", "/a/b", "/a/b/deep")
FILES = ("/a/file", "/a/b/other", "/a/b/deep/far")


def build() -> tuple[Dir, dict[str, Node]]:
    """The tree above, and its nodes by path."""
    nodes: dict[str, Node] = {"/": FixedDir("/")}
    for path in FOLDERS:
        nodes[path] = FixedDir(path)
    for path in FILES:
        nodes[path] = text(path, path.encode())
    for path, target in LINKS.items():
        nodes[path] = fixed_link(path, target)
    for path, node in nodes.items():
        if path != "/":
            parent = nodes[path.rpartition("/")[0] or "/"]
            assert isinstance(parent, FixedDir)
            parent.children[path.rpartition("/")[2]] = node
    root = nodes["/"]
    assert isinstance(root, Dir)
    return root, nodes


ROOT, NODES = build()


@dataclasses.dataclass
class Model:
    """A second reading of the same rules: works on texts of paths, from left to right, by recursion."""

    follow: bool
    links: int = 0

    def at(self, path: str) -> str:
        parts = [part for part in path.split("/") if part not in ("", ".")]
        return self.names("/", parts, path.endswith("/"))

    def names(self, place: str, parts: list[str], folder: bool) -> str:
        for index, part in enumerate(parts):
            last = index == len(parts) - 1
            if part == "..":
                place = place.rpartition("/")[0] or "/"
                continue
            if NODES[place].stat().kind != "directory":
                raise SyscallError(Code.NOT_DIRECTORY, place)
            found = f"{place.rstrip('/')}/{part}"
            if found not in NODES:
                raise SyscallError(Code.NOT_FOUND, found)
            if found in LINKS and not (last and not self.follow and not folder):
                self.links += 1
                if self.links > limits.LINK_DEPTH_MAX:
                    raise SyscallError(Code.TOO_MANY_LINKS, found)
                target = LINKS[found]
                start = "/" if target.startswith("/") else place
                more = [one for one in target.split("/") if one not in ("", ".")]
                return self.names(start, more + parts[index + 1 :], folder)
            if (not last or folder) and NODES[found].stat().kind != "directory":
                raise SyscallError(Code.NOT_DIRECTORY, found)
            place = found
        return place


NAMES = sorted({path.rpartition("/")[2] for path in NODES if path != "/"})
PART = st.sampled_from(["..", ".", "", "absent", *NAMES, *NAMES])
PATHS = st.lists(PART, max_size=8).map(lambda parts: "/" + "/".join(parts))


def outcome(call):
    """The path that came out, or the code."""
    try:
        return call()
    except SyscallError as error:
        return error.code


@given(PATHS, st.booleans())
def test_a_walk_agrees_with_the_model(path, follow):
    """Names, dots, `..`, links in the middle and at the end, and slashes: the same node or the same error."""
    if path.endswith("/."):
        path += "/"  # what a last dot means is another test's
    by_node = {id(node): name for name, node in NODES.items()}
    found = outcome(lambda: by_node[id(walk(ROOT, path, PERSON, follow=follow))])
    assert found == outcome(lambda: Model(follow).at(path))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", "/"),
        ("//a///b//", "/a/b"),
        ("/..", "/"),
        ("/../../a", "/a"),
        ("/a/b/..", "/a"),
        ("/a/tob/..", "/a"),
        ("/a/toroot/../file", "/a/file"),
        ("/tofile", "/a/file"),
        ("/a/b/chain/far", "/a/b/deep/far"),
        ("/a/b/above/file", "/a/file"),
        ("/top/top/a", "/a"),
        ("/a/back", "/a/file"),
    ],
)
def test_where_paths_lead(path, expected):
    """Examples one can check by hand."""
    assert walk(ROOT, path, PERSON) is NODES[expected]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("", Code.INVALID),
        ("a", Code.INVALID),
        ("/absent", Code.NOT_FOUND),
        ("/a/absent/..", Code.NOT_FOUND),
        ("/a/dangling", Code.NOT_FOUND),
        ("/a/file/", Code.NOT_DIRECTORY),
        ("/a/file/..", Code.NOT_DIRECTORY),
        ("/a/file/x", Code.NOT_DIRECTORY),
        ("/a/file/.", Code.NOT_DIRECTORY),
        ("/tofile/", Code.NOT_DIRECTORY),
        ("/loop", Code.TOO_MANY_LINKS),
        ("/ping/x", Code.TOO_MANY_LINKS),
        ("/a/\0", Code.INVALID),
        ("/" + "x" * 256, Code.NAME_TOO_LONG),
        ("/" + "ü" * 128, Code.NAME_TOO_LONG),
        ("/" + "/" * 4096, Code.NAME_TOO_LONG),
    ],
)
def test_what_paths_are_refused(path, code):
    """As Linux refuses them: see path_resolution(7)."""
    with pytest.raises(SyscallError) as caught:
        walk(ROOT, path, PERSON)
    assert caught.value.code is code


def test_the_link_itself():
    """A link at the end is found itself when asked for, unless a slash follows it."""
    assert walk(ROOT, "/loop", PERSON, follow=False) is NODES["/loop"]
    assert walk(ROOT, "/a/tob", PERSON, follow=False) is NODES["/a/tob"]
    assert walk(ROOT, "/a/tob/", PERSON, follow=False) is NODES["/a/b"]
    assert walk(ROOT, "/a/tob/other", PERSON, follow=False) is NODES["/a/b/other"]


@pytest.mark.parametrize(
    ("count", "works"), [(limits.LINK_DEPTH_MAX, True), (limits.LINK_DEPTH_MAX + 1, False)]
)
def test_the_number_of_links(count, works):
    """Exactly as many links as the limit says may be followed in one walk."""
    children: dict[str, Node] = {"end": text("end", b"")}
    for number in range(count):
        target = f"link{number + 1}" if number + 1 < count else "end"
        children[f"link{number}"] = fixed_link(("link", number), target)
    root = FixedDir("many", children)
    found = outcome(lambda: walk(root, "/link0", PERSON))
    assert (found is children["end"]) if works else (found is Code.TOO_MANY_LINKS)


def test_a_link_is_read_for_whoever_follows_it():
    """The same name leads different callers to different places."""
    root = FixedDir(
        "self",
        {
            "1": text("one", b"1"),
            "2": text("two", b"2"),
            "self": Link("self", lambda caller: str(caller.agent)),
        },
    )
    assert walk(root, "/self", agent(1)) is root.children["1"]
    assert walk(root, "/self", agent(2)) is root.children["2"]


def test_each_folder_is_asked_once_a_name_and_by_the_caller():
    """A walk is one lookup a name, made for the caller."""
    asked: list[tuple[str, int]] = []

    class Noting(Dir):
        def lookup(self, name: str, caller: Caller) -> Node:
            asked.append((name, caller.agent))
            return self if name != "end" else Document("end", lambda: b"")

    walk(Noting(), "/x/./y//end", agent(5))
    assert asked == [("x", 5), ("y", 5), ("end", 5)]


@pytest.mark.parametrize("name", ["a", "ü" * 127, "x" * 255, "..", " ", "-rf"])
def test_names_that_are_names(name):
    """Whatever Linux takes as one name."""
    assert check_name(name) == name


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", Code.INVALID),
        ("a/b", Code.INVALID),
        ("a\0", Code.INVALID),
        ("x" * 256, Code.NAME_TOO_LONG),
        ("ü" * 128, Code.NAME_TOO_LONG),
    ],
)
def test_names_that_are_none(name, code):
    """Length counts in bytes."""
    with pytest.raises(SyscallError) as caught:
        check_name(name)
    assert caught.value.code is code
